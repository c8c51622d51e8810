/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h - caches as Prometheus sees them: the one table of metrics, and a text of them.
 *
 *   metrics.c       the table, and a look at a cache
 *   metrics_text.c  the text
 *
 * A metric that is labelled by pool, space, mirror or peer has as many series as there are of
 * these now.  A cache has at most 127 pools, 128 pairs of space and tier, two tiers below RAM with
 * 8 counters of their own each, 16 mirrors and 250 seats.  Nothing is labelled by tag, key or
 * process, since there may be any number of these. */
#ifndef GPC_TOOLS_METRICS_H
#define GPC_TOOLS_METRICS_H

#include "gpc.h"
#include "gpc_device.h"
#include "gpc_look.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum {
	METRICS_SHORT = GPC_ROUND_TRIP,
	METRICS_COPIES = 4,
	METRICS_TIERS = 4,
	METRICS_LOWER = 2,
	METRICS_OWN = 8,
	METRICS_MIRRORS = 2 * GPC_MAX_MIRRORS
};
enum metrics_role { METRICS_NO_DAEMON = -1, METRICS_STANDBY = 0, METRICS_SERVING = 1 };

struct metrics_pool {
	struct gpc_pool p;
	uint32_t available;
	uint64_t bytes;
};
struct metrics_peer {
	int seat;
	struct gpc_stats st;
};
struct metrics_space {
	uint32_t space, tier;
	uint64_t blocks, live;
};
struct metrics_tier {
	struct gpc_tier t;
	uint32_t kept;
};
struct metrics_counter {
	uint32_t kind;
	struct gpc_tier_counter c;
};

/* Counts of a daemon's --events since it is the writer. */
struct metrics_events {
	uint64_t connections, waiting_bytes, known_bytes, published, left_out, disconnected;
};

/* Of a daemon itself. */
struct metrics_process {
	uint64_t private_bytes, shared_bytes, file_bytes, descriptors, descriptors_limit, threads;
	uint64_t options_bytes;
	uint64_t scrapers, scrapers_closed, page_bytes;
	uint64_t opening; /* 1: the cache is made, or waited for */
};

/* A cache at one moment. */
struct metrics {
	const char *name;
	int32_t role;                 /* enum metrics_role, of the daemon that reports */
	struct metrics_events events; /* of the daemon that reports */
	struct metrics_process own;
	uint32_t up; /* 0: the cache could not be opened, and nothing else is known */
	uint32_t has_writer;
	uint64_t folder_bytes, folder_free_bytes; /* of the file system of the cache's files */
	struct gpc_info info;
	struct gpc_stats all;
	uint64_t writer_start_ns; /* CLOCK_REALTIME; 0: there is none */
	uint64_t tokens_queried, tokens_hit[2];
	struct gpc_histogram histogram[GPC_COPY_RAM_RAM + 1]; /* by its number in gpc_look.h */
	uint32_t npools, npeers, nmirrors, nspaces, ntiers, ncounters;
	struct metrics_tier tier[METRICS_LOWER];
	struct metrics_counter counter[METRICS_LOWER * METRICS_OWN];
	struct metrics_pool pool[GPC_MAX_POOLS];
	struct metrics_peer peer[GPC_MAX_PEERS];
	struct gpc_mirror mirror[METRICS_MIRRORS];
	struct metrics_space space[METRICS_TIERS * GPC_MAX_SPACES];
};

/* The kind of object that a row of the table describes. */
enum metrics_of {
	OF_TOOL,
	OF_CACHE,
	OF_DAEMON,
	OF_POOL,
	OF_SPACE,
	OF_MIRROR,
	OF_PEER,
	OF_TIER,
	OF_COUNTER,
	OF_HISTOGRAM,
	OF_COPY
};

/* One number; or, with a name, the first number of a family. */
struct metrics_row {
	const char *name; /* without gpc_; NULL: the family of the row before */
	const char *type, *help;
	enum metrics_of of;
	const char *labels; /* added to the labels of its object; NULL: none */
	size_t at;          /* in struct metrics, or in the struct of the pool, ... */
	unsigned bytes;     /* 4 or 8; with OF_HISTOGRAM the number of the histogram */
	unsigned scale;     /* 1, or 1000000000: nanoseconds that are shown as seconds */
};
extern const struct metrics_row metrics_rows[];
extern const unsigned metrics_nrows;

/* Look at a cache; c NULL: it cannot be opened.  `name` must stay valid. */
void metrics_look(struct metrics *m, const char *name, const char *dir, gpc *c,
		  enum metrics_role role);
/* Print all of the caches; each family once. */
void metrics_print(FILE *f, const struct metrics *const *list, unsigned n);
/* The table, a line for each family: name, type, unit, labels and help with tabs between them. */
void metrics_print_table(FILE *f);

#endif
