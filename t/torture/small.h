/* SPDX-License-Identifier: Apache-2.0 */
/* small.h - a cache so small that it is made anew, byte by byte, some thousand times a
 * second: an image of the segments, what came of it, and when it is at rest.
 *
 * The boss is the worker whose commands a victim serves, or the writer who reaps one, and
 * the judge: one process, one thread, one handle a round. */
#ifndef GPC_T_SMALL_H
#define GPC_T_SMALL_H

#include "index/request/request.h"
#include "index/peer/hold.h"
#include "tracee.h"
#include "index/table/grace.h"
#include "index/table/alloc.h"

#define RAM     0
#define VRAM    1
#define POOLS   4
#define SLOTS   16
#define RAM_N   8
#define VRAM_N  12
#define TRANSIT 4
#define PEERS   4
#define KEYS    64 /* that lookups ask for */
#define RANGES  16

struct range {
	uint8_t *at;
	size_t bytes;
};

static struct {
	uint8_t *map[2]; /* ours, without a handle */
	size_t bytes[2];
	struct range hot[RANGES]; /* what an operation can change */
	int nhot;
	uint8_t *image, *seen; /* of the hot ranges, one after the other */
	uint64_t seed, drawn;
	uint64_t used[KEYS]; /* numbers of keys, in this round */
	int nused;
	char name[32];
} small;

static gpc *boss;

/* ---- a secret that comes from the seed: the same table every time ---- */

ssize_t __wrap_getrandom(void *to, size_t n, unsigned flags);
ssize_t __wrap_getrandom(void *to, size_t n, unsigned flags)
{
	uint8_t *p = to;
	size_t i;

	(void)flags;
	for (i = 0; i < n; i++)
		p[i] = (uint8_t)(crew_mix(small.seed * 977 + small.drawn++) >> 13);
	return (ssize_t)n;
}

/* ---- the image ---- */

static inline void add_hot(int file, uint64_t at, uint64_t bytes)
{
	small.hot[small.nhot++] = (struct range){ small.map[file] + at, bytes };
	if (small.nhot == RANGES)
		bail("too many ranges");
}

/* Of each ring, and of the feed, the first pages: a round has no more. */
static inline void find_hot(const struct segment *s)
{
	uint64_t ring = (uint64_t)SHM_RING * sizeof(struct shm_command);
	uint32_t i;

	small.nhot = 0;
	add_hot(0, s->at.state, s->at.change + 4 * SHM_PAGE - s->at.state);
	add_hot(1, s->at.shared, s->at.ring - s->at.shared);
	for (i = 0; i < PEERS; i++)
		add_hot(1, s->at.ring + i * ring, 2 * SHM_PAGE);
	add_hot(1, s->at.ref, s->at.control_bytes - s->at.ref);
}

static inline size_t hot_bytes(void)
{
	size_t sum = 0;
	int i;

	for (i = 0; i < small.nhot; i++)
		sum += small.hot[i].bytes;
	return sum;
}

static inline void hot_copy(uint8_t *copy, bool back)
{
	int i;

	for (i = 0; i < small.nhot; i++) {
		if (back)
			memcpy(small.hot[i].at, copy, small.hot[i].bytes);
		else
			memcpy(copy, small.hot[i].at, small.hot[i].bytes);
		copy += small.hot[i].bytes;
	}
}

/* Since the last time we looked. */
TAP_FN bool small_changed(void)
{
	uint8_t *copy = small.seen;
	bool changed = false;
	int i;

	for (i = 0; i < small.nhot; i++) {
		if (memcmp(copy, small.hot[i].at, small.hot[i].bytes)) {
			memcpy(copy, small.hot[i].at, small.hot[i].bytes);
			changed = true;
		}
		copy += small.hot[i].bytes;
	}
	return changed;
}

TAP_FN void small_look(void)
{
	hot_copy(small.seen, false);
}

static inline void map_file(int file, const char *suffix, size_t bytes)
{
	int fd = open(scratch_file(small.name, suffix), O_RDWR | O_CLOEXEC);

	small.bytes[file] = bytes;
	small.map[file] =
		fd < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (small.map[file] == MAP_FAILED)
		bail("%s: %s", suffix, strerror(errno));
	close(fd);
}

TAP_FN gpc *small_attach(const char *label, uint32_t stock)
{
	struct gpc_attach_options o = {
		.size = sizeof(o), .dir = scratch, .label = label, .stock = stock
	};
	gpc *c = NULL;

	must_be(gpc_attach(small.name, &o, 0, &c), 0);
	return c;
}

static inline void add_pools(gpc *c)
{
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = GPC_RAM,
			      .blocks = RAM_N,
			      .transit = TRANSIT,
			      .demote_to = -1 };

	must_be(gpc_writer_take(c, 0, 0), 0);
	must_be(gpc_pool_make(c, &p, NULL, -1), RAM);
	p = (struct gpc_pool){
		.size = sizeof(p), .kind = GPC_VRAM, .blocks = VRAM_N, .demote_to = RAM
	};
	must_be(gpc_pool_make(c, &p, NULL, -1), VRAM);
}

/* Two pools, nothing in them, nobody there. */
TAP_FN void small_make(uint64_t seed, const char *devices)
{
	struct gpc_config cfg = { .size = sizeof(cfg),
				  .max_blocks = 40,
				  .max_peers = PEERS,
				  .max_pools = POOLS,
				  .tick_us = 1,
				  .free_target = -1,
				  .devices = devices,
				  .dir = scratch };
	size_t index, control;
	gpc *c = NULL;

	small.seed = seed;
	small.drawn = 0;
	snprintf(small.name, sizeof(small.name), "small-%s", devices);
	must_be(gpc_create(small.name, &cfg, NULL, 0, &c), 0);
	add_pools(c);
	index = ROUND_UP(c->seg.at.index_bytes, c->seg.unit);
	control = ROUND_UP(c->seg.at.control_bytes, c->seg.unit);
	map_file(0, "idx", index);
	map_file(1, "ctl", control);
	find_hot(&c->seg);
	gpc_close(c);
	small.image = malloc(hot_bytes());
	small.seen = malloc(hot_bytes());
	if (!small.image || !small.seen)
		bail("no memory");
	hot_copy(small.image, false);
}

TAP_FN void small_unmake(void)
{
	munmap(small.map[0], small.bytes[0]);
	munmap(small.map[1], small.bytes[1]);
	free(small.image);
	free(small.seen);
	gpc_unlink(small.name, scratch);
}

TAP_FN void small_restore(void)
{
	hot_copy(small.image, true);
}

/* ---- at rest ---- */

static inline uint32_t cells_of(uint32_t record)
{
	uint32_t i, n = 0;

	for (i = 0; i < PEERS; i++)
		n += *seg_cell(&boss->seg, record, i) != 0;
	return n;
}

/* A record that may stay as it is. */
static inline bool record_rests(uint32_t i)
{
	const struct shm_record *r = seg_record(&boss->seg, i);

	switch (WORD_STATE(r->word)) {
	case RESERVED:
		return r->owner == boss->peer;
	case DYING:
		return *seg_cell(&boss->seg, i, boss->peer) != 0;
	default:
		return true;
	}
}

static inline bool seats_rest(char *why)
{
	uint32_t peer, i;

	for (peer = 0; peer < PEERS; peer++) {
		const struct shm_seat *s = seg_seat(&boss->seg, peer);

		for (i = 0; i < SHM_SECTIONS; i++)
			if (seg_section(&boss->seg, peer, i)->epoch) {
				snprintf(why, 200, "section %u of peer %u is open", i, peer);
				return false;
			}
		if (peer != boss->peer && s->state != SEAT_FREE) {
			snprintf(why, 200, "seat %u is in state %u", peer, s->state);
			return false;
		}
	}
	return true;
}

static inline bool small_rests(char *why)
{
	struct writer *w = boss->writer;
	uint32_t i, peer;

	for (i = 0; i < POOLS; i++)
		if (seg_pool(&boss->seg, i)->state == POOL_DRAINING) {
			snprintf(why, 200, "pool %u is still going", i);
			return false;
		}
	if (boss->ops || boss->back_n) {
		snprintf(why, 200, "a command has no answer");
		return false;
	}
	if (seg_state(&boss->seg)->recovering || !grace_idle(w) || w->nquarantine || w->grants ||
	    w->relocations) {
		snprintf(why, 200, "the writer has more to do");
		return false;
	}
	for (i = 0; i < boss->seg.header.geometry.max_blocks; i++) {
		if (!record_rests(i)) {
			snprintf(why, 200, "record %u: word 0x%x, owner %u, op %llu", i,
				 seg_record(&boss->seg, i)->word, seg_record(&boss->seg, i)->owner,
				 (unsigned long long)seg_record(&boss->seg, i)->op);
			return false;
		}
		for (peer = 0; peer < PEERS; peer++)
			if (peer != boss->peer && *seg_cell(&boss->seg, i, peer)) {
				snprintf(why, 200, "record %u: %u references of peer %u", i,
					 *seg_cell(&boss->seg, i, peer), peer);
				return false;
			}
	}
	return seats_rest(why);
}

/* The boss has the writer's seat; the dead are looked for at once. */
TAP_FN void small_settle(void)
{
	uint64_t until = clock_ns() + 90000 * NS_PER_MS;
	char why[200] = "";

	do {
		boss->writer->next_housekeep_ns = 0;
		need(gpc_writer_serve(boss, 0) >= 0, "serve: %s", gpc_last_error());
		need(boss->writer, "the seat was lost");
		ring_turn(boss);
		need(clock_ns() < until, "no rest: %s", why);
	} while (!small_rests(why));
}

/* ---- what came of it ---- */

#define TEXT 4096

struct small_key {
	uint64_t number;
	gpc_block block;
	uint32_t depth, refs; /* of the boss */
};

struct outcome {
	struct small_key key[POOLS * SLOTS];
	uint32_t nkeys;
	uint32_t free[POOLS], reserved[POOLS], dying[POOLS];
	char text[TEXT];
};

/* A record's tag is the number of its key, or of the first one published with it. */
static inline uint64_t key_number(const struct shm_record *r)
{
	uint64_t i;

	for (i = r->tag; i < r->tag + 2; i++)
		if (crew_key(i).w[0] == r->key[0] && crew_key(i).w[1] == r->key[1])
			return i;
	need(false, "tag %u with another key", r->tag);
	return 0;
}

static inline uint32_t record_of(int pool, int slot)
{
	return pool_record(&boss->seg, GPC_BLOCK(pool, slot));
}

static inline void book_record(struct outcome *o, int pool, int slot, char *text)
{
	const struct shm_record *r = seg_record(&boss->seg, record_of(pool, slot));
	uint32_t refs = hold_refs(*seg_cell(&boss->seg, record_of(pool, slot), boss->peer));
	char held[16] = "";

	if (refs)
		snprintf(held, sizeof(held), "+%u", refs);
	switch (WORD_STATE(r->word)) {
	case FREE:
		o->free[pool]++;
		sprintf(text, " .%s", held);
		break;
	case RESERVED:
		o->reserved[pool]++;
		sprintf(text, " r%s", held);
		break;
	case DYING:
		o->dying[pool]++;
		sprintf(text, " d%s", held);
		break;
	default:
		o->key[o->nkeys++] =
			(struct small_key){ key_number(r), GPC_BLOCK(pool, slot), r->depth, refs };
		sprintf(text, " %llu/%u%s", (unsigned long long)key_number(r), r->depth, held);
	}
}

/* Of each block: key and depth, or free, reserved, dying; references of the boss. */
static inline void book_pools(struct outcome *o)
{
	char one[64];
	int p, s;

	memset(o, 0, sizeof(*o));
	for (p = 0; p < POOLS; p++) {
		for (s = 0; s < SLOTS; s++) {
			if (record_of(p, s) == SHM_NO_RECORD)
				continue;
			book_record(o, p, s, one);
			strcat(o->text, one);
		}
		strcat(o->text, ",");
	}
}

/* Lookups say what records say: nothing else of all keys that were ever used. */
static inline void compare_lookups(void)
{
	gpc_block found[KEYS], want;
	gpc_key k[KEYS];
	int i, p, s;

	for (i = 0; i < small.nused; i++)
		k[i] = crew_key(small.used[i]);
	need(gpc_lookup(boss, 0, k, (uint32_t)small.nused, found, GPC_QUIET) >= 0, "lookup: %s",
	     gpc_last_error());
	for (i = 0; i < small.nused; i++) {
		want = GPC_NONE;
		for (p = 0; p < POOLS; p++)
			for (s = 0; s < SLOTS; s++) {
				uint32_t r = record_of(p, s);

				if (r != SHM_NO_RECORD &&
				    WORD_STATE(seg_record(&boss->seg, r)->word) == LIVE &&
				    key_number(seg_record(&boss->seg, r)) == small.used[i])
					want = GPC_BLOCK(p, s);
			}
		need(found[i] == want, "key %llu is found in 0x%x and lives in 0x%x",
		     (unsigned long long)small.used[i], (unsigned)found[i], (unsigned)want);
	}
}

TAP_FN void small_outcome(struct outcome *o)
{
	compare_lookups();
	book_pools(o);
}

TAP_FN const struct small_key *small_find(const struct outcome *o, uint64_t number)
{
	uint32_t i;

	for (i = 0; i < o->nkeys; i++)
		if (o->key[i].number == number)
			return &o->key[i];
	return NULL;
}

/* ---- afterwards ---- */

/* All that the boss holds goes; then both pools can be had as a whole. */
TAP_FN void small_give_all_back(void)
{
	gpc_block b, all[SLOTS];
	int p, s;

	for (p = 0; p < POOLS; p++)
		for (s = 0; s < SLOTS; s++) {
			b = GPC_BLOCK(p, s);
			while (record_of(p, s) != SHM_NO_RECORD && gpc_release(boss, &b, 1) == 0)
				;
		}
	small_settle();
	must_be(gpc_reserve(boss, VRAM, VRAM_N, all, NULL, 0, 2000), VRAM_N);
	must_be(gpc_release(boss, all, VRAM_N), 0);
	must_be(gpc_reserve(boss, RAM, RAM_N, all, NULL, 0, 2000), RAM_N);
	must_be(gpc_release(boss, all, RAM_N), 0);
	small_settle();
}

#endif
