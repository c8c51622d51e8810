/* SPDX-License-Identifier: Apache-2.0 */
/* probe_table.h - probing the host table: bounded, writes nothing, waits for nobody.
 *
 * The caller has a section open (handle_enter): an emptied entry is reused only after a grace
 * period, so whatever mix of old and new words a load assembles is the entry itself or a
 * miss.  A hit is a hint until refs_take has verified it.
 * Tests: t/index/lookup.t */
#ifndef GPC_PROBE_TABLE_H
#define GPC_PROBE_TABLE_H

#include "index/peer/handle.h"
#include "kernels/probe.h"

#define PROBE_GROUP 64 /* keys whose answers are used together */
#define PROBE_PART \
	32 /* keys that are compared before their second buckets are, and
				  * before what their hits need is asked for */
#define PROBE_PARTS (PROBE_GROUP / PROBE_PART)

/* The inputs of every probe of one call, loaded once. */
struct probe {
	const gpc *c;
	const struct probe_entry *table;
	uint32_t buckets;
	uint32_t spaces; /* set, no empty ones */
	struct pool_set live;
	/* Blocks of the first live pool, which most hits are in: from `usual`, as many as it has
	 * records, which begin at `usual_record`. */
	uint32_t usual, usual_slots, usual_record;
	uint64_t usual_range; /* as it was then: see probe_usual_stays() */
};

/* spaces as the caller gave them; 0 = every space with a pool */
void probe_begin(struct probe *l, const gpc *c, uint32_t spaces);
/* Is the usual pool where it was?  A pool without blocks goes without a grace period, and another
 * one may have its number, with other records, before the call ends: ask after blocks were found. */
static inline bool probe_usual_stays(const struct probe *l)
{
	return load_relaxed(&seg_pool(&l->c->seg, l->usual >> 24)->range) == l->usual_range;
}

/* One key: block or -1.  The block's pool was live; its slot is not checked (pool_record). */
gpc_block probe_one(const struct probe *l, const gpc_key *key);
/* The same in one of l->spaces. */
gpc_block lookup_in_space(const struct probe *l, uint32_t space, const gpc_key *key);

/* ---- many keys, a part after the other ----
 *
 *   probe_start
 *   for each part           probe_first, then probe_rest of the part before
 *   probe_rest of the last part
 *
 * so that the second buckets of the part before are on their way while a part is compared.  First
 * buckets are asked for key by key, LINES_AHEAD keys before their turn. */
struct probe_run {
	const struct probe *l;  /* its live pools may be renewed meanwhile */
	uint32_t spaces, space; /* all, and the first one */
	/* keys of a part, at most: one space is asked in smaller ones */
	uint32_t part;
	uint32_t n, asked;
	const gpc_key *keys;
	gpc_key mask;                                  /* of the space */
	const struct probe_entry *bucket[PROBE_GROUP]; /* first ones of the keys asked for */
};

struct probe_part {
	uint32_t from, n;
	uint32_t hits; /* only when all of them are of the usual pool */
	bool usual;
	uint32_t nsecond;
	/* not 0: a block of another pool; the sign: an entry in the middle of being wiped */
	struct probe_odd {
		uint32_t odd, wiped;
	} odd;
	uint8_t second[PROBE_GROUP]; /* which keys may be in their second bucket */
	const struct probe_entry *bucket[PROBE_GROUP];
};

void probe_start(struct probe_run *r, const struct probe *l, const gpc_key *keys, uint32_t n);
void probe_first(struct probe_run *r, uint32_t from, uint32_t n, struct probe_part *part,
		 gpc_block *blocks);
void probe_rest(const struct probe_run *r, struct probe_part *part, gpc_block *blocks);

/* n <= PROBE_GROUP keys in one part. */
void probe_group(const struct probe *l, const gpc_key *keys, uint32_t n, gpc_block *blocks);

#endif
