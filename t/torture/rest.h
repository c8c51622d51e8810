/* SPDX-License-Identifier: Apache-2.0 */
/* rest.h - the judge of a cache at rest: nothing is held but what somebody who lives
 * should hold, and everything else can be had. */
#ifndef GPC_T_REST_H
#define GPC_T_REST_H

#include "survivor.h"

#include "t/lib/counts.h"
#include "index/peer/epoch.h"
#include "index/peer/hold.h"

struct rest {
	gpc *c;
	bool workers; /* they live, at rest */
	bool survivor;
	int servers;
};

/* What is wrong, until it is not; a sentence, or "". */
static inline const struct shm_pool *pool_of_record(const struct segment *s, uint32_t record)
{
	uint32_t p;

	for (p = 0; p < POOLS; p++) {
		const struct shm_pool *q = seg_pool(s, p);

		if (q->state != POOL_FREE && record >= q->range >> 32 &&
		    record < (q->range >> 32) + (uint32_t)q->range)
			return q;
	}
	return NULL;
}

static inline bool records_rest(const struct rest *j, char *why)
{
	const struct segment *s = &j->c->seg;
	uint32_t i;

	for (i = 0; i < s->header.geometry.max_blocks; i++) {
		const struct shm_record *r = seg_record(s, i);
		const struct shm_pool *p = pool_of_record(s, i);
		uint32_t state = WORD_STATE(r->word);

		if (state == FREE || state == LIVE)
			continue;
		if (state == RESERVED && p && p->state == POOL_READY &&
		    (p->flags & GPC_POOL_CALLER) && p->owner == (int32_t)r->owner)
			continue;
		snprintf(why, 300,
			 "record %u is left %s: pool state %u, owner %u, flags %x, "
			 "op %llu, source %u",
			 i, state == RESERVED ? "reserved" : "dying", p ? p->state : 99, r->owner,
			 r->flags, (unsigned long long)r->op, r->source);
		return false;
	}
	return true;
}

static inline bool references_rest(const struct rest *j, char *why)
{
	const struct segment *s = &j->c->seg;
	uint32_t i, peer, n = 0, want = j->survivor ? (uint32_t)survivor_holds() : 0;

	for (i = 0; i < s->header.geometry.max_blocks; i++)
		for (peer = 0; peer < s->header.geometry.max_peers; peer++)
			n += hold_refs(*seg_cell(s, i, peer));
	if (n != want || crew_stats(j->c, -1).refs != want) {
		snprintf(why, 300, "%u references, %llu in the statistics, want %u", n,
			 (unsigned long long)crew_stats(j->c, -1).refs, want);
		return false;
	}
	return true;
}

static inline bool seats_rest(const struct rest *j, char *why)
{
	const struct segment *s = &j->c->seg;
	struct gpc_info info = { .size = sizeof(info) };
	uint32_t i, peer, peers = (uint32_t)j->servers + 1 + j->survivor;

	for (peer = 0; peer < s->header.geometry.max_peers; peer++)
		for (i = 0; i < SHM_SECTIONS; i++)
			if (epoch_is_open(seg_section(s, peer, i))) {
				snprintf(why, 300, "section %u of peer %u is open", i, peer);
				return false;
			}
	must_be(gpc_info_get(j->c, &info), 0);
	if (!j->workers && (info.pools != scene.pools || info.peers != peers)) {
		snprintf(why, 300, "%u pools and %u peers, want %u and %u", info.pools, info.peers,
			 scene.pools, peers);
		return false;
	}
	return true;
}

static inline void come_to(const struct rest *j)
{
	uint64_t until = clock_ns() + 90000 * NS_PER_MS;
	char why[300] = "";

	while (!records_rest(j, why) || !references_rest(j, why) || !seats_rest(j, why)) {
		need(clock_ns() < until, "at rest, %s: %s",
		     j->workers    ? "all alive"
		     : j->survivor ? "the workers gone"
				   : "all gone",
		     why);
		nap(1000);
	}
}

/* No grace period is stuck, and nothing is lost in between: every pool can be had as a
 * whole. RAM comes last, since a block there may have its children in VRAM. */
static inline void reserve_all(const struct rest *j)
{
	const uint32_t blocks[] = { RAM_BLOCKS, scene.engines ? VAULT_BLOCKS : VRAM_BLOCKS,
				    VAULT_BLOCKS };
	uint64_t before = clock_ns();
	gpc_block b[VAULT_BLOCKS];
	uint32_t p;

	for (p = scene.pools; p--;) {
		must_be(gpc_reserve(j->c, (int)p, blocks[p], b, NULL, 0, 20000), blocks[p]);
		must_be(gpc_release(j->c, b, blocks[p]), 0);
	}
	need(clock_ns() - before < 5000 * NS_PER_MS, "to reserve all took %llu ms",
	     (unsigned long long)((clock_ns() - before) / NS_PER_MS));
}

/* Pools that went have left no hole: one as large as all of them fits. */
static inline void whole_range(const struct rest *j)
{
	uint32_t rest = scene_blocks() - RAM_BLOCKS - TRANSIT - VAULT_BLOCKS -
			(scene.engines ? 0 : VRAM_BLOCKS);
	int pool = scene_pool(j->c, GPC_VRAM, rest, 3, 0, -1);

	need(pool >= 0, "a pool of the %u blocks left: %s", rest, gpc_last_error());
	must_be(gpc_pool_clear(j->c, pool, 0, GPC_REMOVE, 10000), 0);
}

static inline void sums_rest(const struct rest *j)
{
	struct gpc_stats st = crew_stats(j->c, -1);
	uint64_t all = RAM_BLOCKS + TRANSIT + VAULT_BLOCKS + (scene.engines ? 0 : VRAM_BLOCKS);

	need(counts_agree(j->c), "the counts of the pools are not those of the records");
	need(!st.reserved && !st.dying && st.live + st.free_blocks == all,
	     "%llu live and %llu free of %llu", (unsigned long long)st.live,
	     (unsigned long long)st.free_blocks, (unsigned long long)all);
}

/* 1: all are alive; 2: the workers are gone; 3: the survivor is, too. */
static inline int judge_main(int phase)
{
	struct rest j = { .workers = phase == 1,
			  .survivor = phase < 3,
			  .servers = (int)scene.servers };

	life_begin(PLACES - 1);
	j.c = crew_attach("judge");
	come_to(&j);
	crew_check(j.c);
	if (phase == 3) {
		sums_rest(&j);
		reserve_all(&j);
		whole_range(&j);
		come_to(&j);
		crew_check(j.c);
	}
	gpc_close(j.c);
	return 0;
}

#endif
