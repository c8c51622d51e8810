/* SPDX-License-Identifier: Apache-2.0 */
/* sample.h - one look at a cache as numbers, and the rates between two looks: the model of `stat
 * --watch` and of `top`.  A look opens the name anew.  So it goes on after a writer that is
 * replaced, after a cache that is removed, and after one that is made again. */
#ifndef GPC_TOOLS_INSPECT_SAMPLE_H
#define GPC_TOOLS_INSPECT_SAMPLE_H

#include "gpc_device.h"
#include "tools/inspect/inspect.h"

/* counters that rates are made of */
enum rate {
	RATE_LOOKUPS,
	RATE_HIT_VRAM,
	RATE_HIT_RAM,
	RATE_MISS,
	RATE_PUBLISHED,
	RATE_EVICTED,
	RATE_DROPPED,
	RATE_DEMOTED,
	RATE_PROMOTED,
	RATE_COMMANDS,
	RATE_FETCHED,
	RATE_SPILLED,
	RATE_FETCHED_BYTES,
	RATE_SPILLED_BYTES,
	RATE_RING_FULL,
	RATE_BAD,
	RATE_NO_BUCKET,
	RATE_STALE_REFS,
	RATES
};

struct sample_pool {
	int number, owner, demote_to;
	uint32_t kind, space;
	uint32_t blocks, slots; /* slots: also counts those of transit */
	uint32_t live, reserved, dying, available;
};

struct sample_peer {
	int seat;
	bool writer;
	int stopped; /* as cli_stopped says */
	struct gpc_stats st;
};

struct sample {
	uint64_t at_ns;   /* CLOCK_MONOTONIC */
	uint64_t wall_ns; /* CLOCK_REALTIME */
	bool there;       /* else `state` gives the reason, and the rest is empty */
	char state[400];
	struct gpc_info info;
	struct gpc_stats all;
	int alive, dead, writer_stopped;
	uint64_t writer_cpu_ns; /* time that its process has used so far, + 1; 0: unknown */
	uint32_t npools, npeers, nmirrors, ntiers;
	struct gpc_tier tier[2];
	struct sample_pool pool[GPC_MAX_POOLS];
	struct sample_peer peer[GPC_MAX_PEERS];
	struct gpc_mirror mirror[2 * GPC_MAX_MIRRORS];
};

struct rates {
	double seconds;  /* 0: nothing is known */
	double r[RATES]; /* a second */
};

void sample_take(const struct inspect *in, const char *name, struct sample *ret);
/* The name of a counter in JSON. */
const char *sample_rate_name(enum rate i);
uint64_t sample_counter(const struct gpc_stats *st, enum rate i);
/* Rates between two looks.  If `then` is NULL or of another cache of the name, they are those
 * since the cache was made. */
void sample_rates(const struct sample *then, const struct sample *now, struct rates *ret);
/* Rates of a peer between two looks; none are known for a peer that was not there. */
void sample_peer_rates(const struct sample *then, const struct sample *now,
		       const struct sample_peer *p, struct rates *ret);
/* The share of lookups that these found; -1 if there were none. */
double sample_share(const struct rates *r, enum rate a, enum rate b);
/* The share of one processor that the writer's process has used; 1 is all of it, -1 unknown. */
double sample_load(const struct sample *then, const struct sample *now);
bool sample_same_cache(const struct sample *then, const struct sample *now);
/* Do so many dying blocks wait for this peer, and not for a peer with a section of that age? */
bool sample_is_behind(uint64_t dying, const struct gpc_stats *st, uint64_t oldest_ns);
/* A text that names that peer, the time since when, and the remedy. */
void sample_behind_text(const struct gpc_stats *st, int stopped, char *ret, size_t room);

#endif
