/* SPDX-License-Identifier: Apache-2.0 */
/* curve.h - hit rate against capacity, of caches that evict the least recently used block.
 *
 * A block hits in every cache that is at least as large as its stack distance: the number of
 * different blocks used since its last use, itself included.  So one pass over a trace gives the
 * hits of all capacities at once, and no cache is run. */
#ifndef GPC_TOOLS_REPLAY_CURVE_H
#define GPC_TOOLS_REPLAY_CURVE_H

#include "tools/replay/replay.h"

struct curve {
	uint64_t *hits; /* hits[c]: of caches of c blocks, c <= most */
	uint64_t most;  /* a larger cache has no more hits */
};

/* Of `caches` caches of equal size, among which the requests are dealt in turn.  0, or -1 after a
 * message. */
int curve_make(const struct trace *t, uint32_t caches, struct curve *ret);
void curve_free(struct curve *c);
uint64_t curve_hits(const struct curve *c, uint64_t blocks);

struct point {
	uint64_t blocks, one, each;
}; /* blocks of the machine; hits */

struct plot {
	const char *trace;
	uint32_t caches, requests;
	uint64_t refs;
	struct point *points; /* each a multiple of `caches`, from small to large */
	uint32_t n;
};

/* --plot: all of it; the exit status. */
int plot_trace(const struct args *a, const struct trace *t);
/* The picture: a whole file, or -1 after a message. */
int svg_write(const char *file, const struct plot *p);

#endif
