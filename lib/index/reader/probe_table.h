/* SPDX-License-Identifier: Apache-2.0 */
/* probe_table.h - probing the host table: bounded, writes nothing, waits for nobody.
 *
 * The caller has a section open (handle_enter).  An emptied entry is reused only after a grace
 * period.  So any mix of old and new words that a load assembles is the entry itself or a miss.  A
 * hit is a hint until refs_take has verified it.
 * Tests: t/index/lookup.t */
#ifndef GPC_PROBE_TABLE_H
#define GPC_PROBE_TABLE_H

#include "index/peer/handle.h"
#include "kernels/probe.h"

#define PROBE_GROUP 64 /* keys whose answers are used together */
/* Keys that are compared before their second buckets are, and before the lines are prefetched that
 * their hits need. */
#define PROBE_PART  32
#define PROBE_PARTS (PROBE_GROUP / PROBE_PART)

/* The inputs of every probe of one call, loaded once. */
struct probe {
	const gpc *c;
	const struct probe_entry *table;
	uint32_t buckets;
	uint32_t spaces; /* a set with no empty spaces in it */
	struct pool_set live;
	/* Blocks of the first live pool, in which most hits are: from `usual` on, as many as it
	 * has records.  The records begin at `usual_record`. */
	uint32_t usual, usual_slots, usual_record;
	uint64_t usual_range; /* the pool's range as it was then: see probe_usual_stays() */
};

/* spaces as the caller gave them; 0 = every space with a pool */
void probe_begin(struct probe *l, const gpc *c, uint32_t spaces);
/* Is the usual pool where it was?  A pool without blocks goes without a grace period, and before
 * the call ends another pool may have its number, with other records.  So this is asked after
 * blocks were found. */
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
 * So the second buckets of a part are on their way while the next part is compared.  First buckets
 * are prefetched key by key, LINES_AHEAD keys before their turn. */
struct probe_run {
	const struct probe *l;  /* its live pools may be renewed meanwhile */
	uint32_t spaces, space; /* all spaces, and the first one */
	/* the most keys of a part; with one space the parts are smaller */
	uint32_t part;
	uint32_t n, asked;
	const gpc_key *keys;
	gpc_key mask; /* of the space */
	/* the first buckets of the keys that are prefetched */
	const struct probe_entry *bucket[PROBE_GROUP];
};

struct probe_part {
	uint32_t from, n;
	uint32_t hits; /* only if all of them are of the usual pool */
	bool usual;
	uint32_t nsecond;
	/* not 0: a block of another pool; the sign bit: an entry that is half wiped */
	struct probe_odd {
		uint32_t odd, wiped;
	} odd;
	uint8_t second[PROBE_GROUP]; /* the keys that may be in their second bucket */
	const struct probe_entry *bucket[PROBE_GROUP];
};

void probe_start(struct probe_run *r, const struct probe *l, const gpc_key *keys, uint32_t n);
void probe_first(struct probe_run *r, uint32_t from, uint32_t n, struct probe_part *part,
		 gpc_block *blocks);
void probe_rest(const struct probe_run *r, struct probe_part *part, gpc_block *blocks);

/* n <= PROBE_GROUP keys in one part. */
void probe_group(const struct probe *l, const gpc_key *keys, uint32_t n, gpc_block *blocks);

#endif
