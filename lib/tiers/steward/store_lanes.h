/* SPDX-License-Identifier: Apache-2.0 */
/* store_lanes.h - a store on other machines: what remote.c and store_lanes.c share. */
#ifndef GPC_STEWARD_STORE_LANES_H
#define GPC_STEWARD_STORE_LANES_H

#include "tiers/remote/remote.h"
#include "tiers/steward/gone.h"
#include "tiers/steward/steward.h"

#define LANES     18u /* threads that answer, one that writes, and the thread */
#define ALL_LANES ((1u << (LANES - 1)) - 1)
#define NO_LANE   LANES

struct kept { /* of a lane that is LOST: what its call was given */
	gpc_block block[GPC_REMOTE_BATCH];
	uint32_t n;
	bool is_read; /* reserved; else held */
};

struct tier_store {
	gpc *c;
	struct remote *remote;
	struct shm_tier *shown;
	uint64_t image_bytes, deadline_ns;
	void *memory; /* that the store was told of */
	uint64_t memory_bytes;

	pthread_mutex_t lock;  /* below it */
	pthread_cond_t change; /* of lanes */
	uint32_t lanes;        /* bits of the free ones ... */
	uint32_t lost;         /* ... and of lanes whose plugin has not returned */
	struct kept kept[LANES];
	/* nothing is written until then, as the last call was refused */
	uint64_t rest_ns, rests_until;
	struct gone gone; /* keys to be removed there ... */
	bool blind; /* ... and more of it than can be kept in mind: nothing is read any more */
	/* Keys that were removed within this hour, and the one before: each goes again if it is met.
	 * unsure: a put that was given up may bring it back, so it is not put, and goes again and
	 * again. */
	struct gone was[2];
	bool unsure;
	uint64_t hour_ns,
		again_ns; /* the thread's: when the next hour, and the next time, is due */
	/* on its way there: not removed before its hint is published, or refused */
	gpc_key writing[BATCH];
	uint32_t nwriting;
	bool told_refusal;    /* the thread's: the log has it that removals are refused */
	struct worker worker; /* its lock is of ... */
	bool hurry;           /* ... something is to be removed for the first time */
	uint64_t tick_ns;     /* the thread's: when the next tick is due */
};

/* A lane for one call.  NO_LANE: the plugin has not returned in any of them. */
uint32_t store_lane(struct tier_store *s);
void store_lane_give(struct tier_store *s, uint32_t lane);
/* Those that the plugin still has are kept until it returns. */
void store_lane_keep(struct tier_store *s, uint32_t lane, struct tier_item *items, uint32_t n,
		     bool is_read);
/* Every now and then: has it? */
void store_lanes_look(struct tier_store *s);
/* It never has, and the handle is going to be closed. */
void store_lanes_leave(struct tier_store *s);

#endif
