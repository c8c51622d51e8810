/* SPDX-License-Identifier: Apache-2.0 */
/* ck_ht of Concurrency Kit: one writer, readers of the same process without locks.
 *
 * It is used in direct mode: key and value are words of the entry itself, so a hit costs one
 * line.  Byte strings would cost a second line for the key.  The hash is the key, without its call
 * back.  The table has twice as many slots as entries from the start, the point where it would
 * grow.
 * Tests: t/tools/bench-peers.t */
#include "config.h"

#include "tools/bench/peer/peer.h"

#include <ck_ht.h>
#include <stdlib.h>

static void *ck_alloc(size_t bytes)
{
	return malloc(bytes);
}

/* Nobody else reads, so it is freed at once. */
static void ck_release(void *p, size_t bytes, bool defer)
{
	(void)bytes;
	(void)defer;
	free(p);
}

static struct ck_malloc allocator = { .malloc = ck_alloc, .free = ck_release };

static void *ck_open(uint32_t entries, const char **why)
{
	struct ck_ht *ht = calloc(1, sizeof(*ht));

	if (ht && ck_ht_init(ht, CK_HT_MODE_DIRECT | CK_HT_WORKLOAD_DELETE, NULL, &allocator,
			     2 * (CK_HT_TYPE)entries, 1))
		return ht;
	free(ht);
	return bench_why(why, "no memory for %u entries", entries);
}

static void ck_close(void *table)
{
	ck_ht_destroy(table);
	free(table);
}

static uint64_t pack(const struct bench_key *key, int32_t value)
{
	return key->w[1] << 32 | (uint32_t)value;
}

static int ck_insert(void *table, const struct bench_key *keys, const int32_t *values, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		ck_ht_hash_t h = { keys[i].w[0] };
		ck_ht_entry_t entry;

		ck_ht_entry_set_direct(&entry, h, keys[i].w[0], pack(&keys[i], values[i]));
		if (!ck_ht_put_spmc(table, h, &entry))
			return -1;
	}
	return 0;
}

static int ck_lookup(void *table, const struct bench_key *keys, uint32_t n, int32_t *values)
{
	for (uint32_t i = 0; i < n; i++) {
		ck_ht_hash_t h = { keys[i].w[0] };
		ck_ht_entry_t entry;
		uint64_t found;

		ck_ht_entry_key_set_direct(&entry, keys[i].w[0]);
		values[i] = -1;
		if (!ck_ht_get_spmc(table, h, &entry))
			continue;
		found = ck_ht_entry_value_direct(&entry);
		if (found >> 32 == (uint32_t)keys[i].w[1])
			values[i] = (int32_t)found;
	}
	return 0;
}

/* A removed entry leaves a mark, which the next insertion that passes it takes. */
static int ck_turn(void *table, const struct bench_key *in, const int32_t *values,
		   const struct bench_key *out, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		ck_ht_hash_t h = { out[i].w[0] };
		ck_ht_entry_t entry;

		ck_ht_entry_key_set_direct(&entry, out[i].w[0]);
		if (!ck_ht_remove_spmc(table, h, &entry))
			return -1;
	}
	return ck_insert(table, in, values, n);
}

const struct bench_peer bench_peer_ck = {
	.name = "ck_ht",
	.what = "Concurrency Kit " CK_VERSION ", one writer",
	.open = ck_open,
	.insert = ck_insert,
	.lookup = ck_lookup,
	.turn = ck_turn,
	.close = ck_close,
};
