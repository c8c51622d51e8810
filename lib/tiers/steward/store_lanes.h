/* SPDX-License-Identifier: Apache-2.0 */
/* store_lanes.h - a store on other machines: declarations that remote.c and store_lanes.c
 * share. */
#ifndef GPC_STEWARD_STORE_LANES_H
#define GPC_STEWARD_STORE_LANES_H

#include "tiers/remote/remote.h"
#include "tiers/steward/gone.h"
#include "tiers/steward/steward.h"

#define LANES     18u /* the threads that answer, one that writes, and the store's own thread */
#define ALL_LANES ((1u << (LANES - 1)) - 1)
#define NO_LANE   LANES

struct kept { /* the blocks of a LOST lane's call */
	gpc_block block[GPC_REMOTE_BATCH];
	uint32_t n;
	bool is_read; /* they are reserved; otherwise held */
};

struct tier_store {
	gpc *c;
	struct remote *remote;
	struct shm_tier *shown;
	uint64_t image_bytes, deadline_ns;
	void *memory; /* the memory that the store knows */
	uint64_t memory_bytes;

	pthread_mutex_t lock;  /* taken below that lock */
	pthread_cond_t change; /* of lanes */
	uint32_t lanes;        /* bits of the free lanes ... */
	uint32_t lost;         /* ... and of the lanes whose plugin has not returned */
	struct kept kept[LANES];
	/* nothing is written until then, because the last call was refused */
	uint64_t rest_ns, rests_until;
	struct gone gone; /* keys to be removed there ... */
	bool blind; /* ... and there are more than can be remembered, so nothing is read any more */
	/* Keys that were removed within this hour, and within the hour before: each is removed
	 * again if it is met.  unsure: a put that was given up may bring a key back, so it is not
	 * put, and is removed again and again. */
	struct gone was[2];
	bool unsure;
	uint64_t hour_ns,
		/* used by the thread: the times of the next hour, and of the next removal */
		again_ns;
	/* keys on their way there: they are not removed before their hint is published or
	 * refused */
	gpc_key writing[BATCH];
	uint32_t nwriting;
	bool told_refusal;    /* used by the thread: the log has that removals are refused */
	struct worker worker; /* its lock protects ... */
	bool hurry;           /* ... keys are to be removed for the first time */
	uint64_t tick_ns;     /* used by the thread: the time of the next tick */
};

/* A lane for one call.  NO_LANE: the plugin has not returned in any of them. */
uint32_t store_lane(struct tier_store *s);
void store_lane_give(struct tier_store *s, uint32_t lane);
/* Items that the plugin still has are kept until it returns. */
void store_lane_keep(struct tier_store *s, uint32_t lane, struct tier_item *items, uint32_t n,
		     bool is_read);
/* Called now and then: has it returned? */
void store_lanes_look(struct tier_store *s);
/* It has not returned, and the handle is going to be closed. */
void store_lanes_leave(struct tier_store *s);

#endif
