/* SPDX-License-Identifier: Apache-2.0 */
/* The starting algorithm: the first version of this project, as the baseline of its figures.
 *
 * Linear probing over separate arrays of keys, block ids, references and stamps, at most 75 %
 * full.  A lookup stores the clock of the table in the stamp of the entry that it finds.  Eviction
 * sorts the stamps of all entries without references, drops the oldest and builds the table anew;
 * a sync copies both arrays, whole.
 *
 * If its description leaves a choice, the faster one was taken: a power of two of slots, a radix
 * sort of the stamps, and a rebuild by one pass over copies.  The clock is 32 bits and wraps.
 * Tests: t/tools/bench-peers.t */
#include "config.h"

#include "tools/bench/peer/peer.h"

#include <stdlib.h>
#include <string.h>

struct start {
	uint32_t slots, mask, limit, count, clock;
	uint64_t *keys; /* 0: free */
	int32_t *ids;
	uint32_t *refs, *stamps;
	uint64_t *order, *scratch; /* stamp << 32 | slot, during a sort */
	uint64_t *old_keys;        /* the arrays that a rebuild reads */
	int32_t *old_ids;
	uint32_t *old_refs, *old_stamps;
};

static void start_close(void *table)
{
	struct start *s = table;

	free(s->keys);
	free(s->ids);
	free(s->refs);
	free(s->stamps);
	free(s->order);
	free(s->scratch);
	free(s->old_keys);
	free(s->old_ids);
	free(s->old_refs);
	free(s->old_stamps);
	free(s);
}

static void *start_open(uint32_t entries, const char **why)
{
	struct start *s = calloc(1, sizeof(*s));
	uint64_t slots = 4;

	while (slots / 4 * 3 < entries)
		slots *= 2;
	if (!s || slots > UINT32_MAX)
		return free(s), bench_why(why, "no table of %u entries", entries);
	s->slots = (uint32_t)slots;
	s->mask = s->slots - 1;
	s->limit = s->slots / 4 * 3;
	s->keys = calloc(slots, sizeof(*s->keys));
	s->ids = calloc(slots, sizeof(*s->ids));
	s->refs = calloc(slots, sizeof(*s->refs));
	s->stamps = calloc(slots, sizeof(*s->stamps));
	s->order = malloc(slots * sizeof(*s->order));
	s->scratch = malloc(slots * sizeof(*s->scratch));
	s->old_keys = malloc(slots * sizeof(*s->old_keys));
	s->old_ids = malloc(slots * sizeof(*s->old_ids));
	s->old_refs = malloc(slots * sizeof(*s->old_refs));
	s->old_stamps = malloc(slots * sizeof(*s->old_stamps));
	if (s->keys && s->ids && s->refs && s->stamps && s->order && s->scratch && s->old_keys &&
	    s->old_ids && s->old_refs && s->old_stamps)
		return s;
	start_close(s);
	return bench_why(why, "no memory for %u entries", entries);
}

/* The slot of a key, or the free one where the search ends. */
static uint32_t find(const struct start *s, uint64_t key)
{
	uint32_t at = (uint32_t)key & s->mask;

	while (s->keys[at] && s->keys[at] != key)
		at = (at + 1) & s->mask;
	return at;
}

static void put(struct start *s, uint64_t key, int32_t id, uint32_t refs, uint32_t stamp)
{
	uint32_t at = find(s, key);

	s->count += !s->keys[at];
	s->keys[at] = key;
	s->ids[at] = id;
	s->refs[at] = refs;
	s->stamps[at] = stamp;
}

static int start_insert(void *table, const struct bench_key *keys, const int32_t *values,
			uint32_t n)
{
	struct start *s = table;

	for (uint32_t i = 0; i < n; i++) {
		if (s->count == s->limit)
			return -1;
		put(s, keys[i].w[0], values[i], 0, ++s->clock);
	}
	return 0;
}

static int start_lookup(void *table, const struct bench_key *keys, uint32_t n, int32_t *values)
{
	struct start *s = table;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = find(s, keys[i].w[0]);

		values[i] = -1;
		if (s->keys[at]) {
			values[i] = s->ids[at];
			s->stamps[at] = ++s->clock;
		}
	}
	return 0;
}

/* ---- eviction ---- */

/* The stamps are the upper halves: three turns of 11 bits, the result in s->scratch. */
static void sort_by_stamp(struct start *s, uint32_t n)
{
	uint64_t *from = s->order, *to = s->scratch, *swap;

	for (unsigned shift = 32; shift < 64; shift += 11) {
		uint32_t first[2048] = { 0 }, sum = 0, count;

		for (uint32_t i = 0; i < n; i++)
			first[from[i] >> shift & 2047]++;
		for (uint32_t d = 0; d < 2048; d++) {
			count = first[d];
			first[d] = sum;
			sum += count;
		}
		for (uint32_t i = 0; i < n; i++)
			to[first[from[i] >> shift & 2047]++] = from[i];
		swap = from;
		from = to;
		to = swap;
	}
}

/* Linear probing allows no holes, so a table that has lost entries is built anew. */
static void rehash(struct start *s)
{
	memcpy(s->old_keys, s->keys, s->slots * sizeof(*s->keys));
	memcpy(s->old_ids, s->ids, s->slots * sizeof(*s->ids));
	memcpy(s->old_refs, s->refs, s->slots * sizeof(*s->refs));
	memcpy(s->old_stamps, s->stamps, s->slots * sizeof(*s->stamps));
	memset(s->keys, 0, s->slots * sizeof(*s->keys));
	s->count = 0;
	for (uint32_t at = 0; at < s->slots; at++)
		if (s->old_keys[at])
			put(s, s->old_keys[at], s->old_ids[at], s->old_refs[at], s->old_stamps[at]);
}

static int start_evict(void *table, uint32_t n)
{
	struct start *s = table;
	uint32_t loose = 0;

	for (uint32_t at = 0; at < s->slots; at++)
		if (s->keys[at] && !s->refs[at])
			s->order[loose++] = (uint64_t)s->stamps[at] << 32 | at;
	if (loose < n)
		return -1;
	sort_by_stamp(s, loose);
	for (uint32_t i = 0; i < n; i++)
		s->keys[(uint32_t)s->scratch[i]] = 0;
	rehash(s);
	return 0;
}

static int start_turn(void *table, const struct bench_key *in, const int32_t *values,
		      const struct bench_key *out, uint32_t n)
{
	(void)out;
	return start_evict(table, n) ? -1 : start_insert(table, in, values, n);
}

/* ---- the rest of it ---- */

size_t bench_start_upload(void *table, void *mirror)
{
	struct start *s = table;
	size_t keys = s->slots * sizeof(*s->keys), ids = s->slots * sizeof(*s->ids);

	if (mirror) {
		memcpy(mirror, s->keys, keys);
		memcpy((char *)mirror + keys, s->ids, ids);
	}
	return keys + ids;
}

void bench_start_hash(const uint32_t *tokens, uint32_t n, uint32_t block_tokens, uint64_t *keys)
{
	for (uint32_t end = block_tokens; end <= n; end += block_tokens) {
		uint64_t h = 0xcbf29ce484222325;

		for (uint32_t i = 0; i < end; i++)
			for (unsigned shift = 0; shift < 32; shift += 8)
				h = (h ^ (tokens[i] >> shift & 0xff)) * 0x100000001b3;
		*keys++ = h;
	}
}

const struct bench_peer bench_start = {
	.name = "start",
	.what = "the starting algorithm: linear probing, sort and rehash to evict",
	.open = start_open,
	.insert = start_insert,
	.lookup = start_lookup,
	.evict = start_evict,
	.turn = start_turn,
	.close = start_close,
};
