/* SPDX-License-Identifier: Apache-2.0 */
/* curve.h - hit rate against capacity, of caches that evict the least recently used block.
 *
 * A block hits in every cache that is at least as large as its stack distance.  That is the number
 * of different blocks used since its last use, the block itself included.  So one pass over a
 * trace gives the hits of all capacities at once, and no cache is run. */
#ifndef GPC_TOOLS_REPLAY_CURVE_H
#define GPC_TOOLS_REPLAY_CURVE_H

#include "tools/replay/replay.h"

struct curve {
	uint64_t *hits; /* hits[c]: hits of caches of c blocks, c <= most */
	uint64_t most;  /* a larger cache has no more hits */
};

/* The curve of each deal, for caches of equal size that get the requests as it says.  Returns 0,
 * or -1 after a message; call curve_free in both cases. */
int curves_make(const struct trace *t, const struct deal *deals, uint32_t n, struct curve *ret);
void curve_free(struct curve *c);
uint64_t curve_hits(const struct curve *c, uint64_t blocks);
/* The smallest cache with so many hits; UINT64_MAX if there is none. */
uint64_t curve_blocks(const struct curve *c, uint64_t hits);

/* The curves of a plot.  Those from STICKY on are there only where sessions stick. */
enum {
	ONE,    /* one cache for all workers */
	EACH,   /* one for each, requests in turn */
	STICKY, /* one for each, sessions stick; ... */
	DIES,   /* ... and in the middle the first worker changes: see enum change */
	ADDED,
	REMOVED, /* only with two workers at least */
	CURVES,
	DRAWN = STICKY + 1,
	PLAIN = EACH + 1,
};

struct point {
	uint64_t blocks, hits[CURVES];
}; /* blocks of the machine */

enum { SHARES = 5 };

/* The blocks that a share of all possible hits takes. */
struct needs {
	uint64_t hits, blocks[DRAWN]; /* UINT64_MAX: no size is enough */
};

struct plot {
	const char *trace, *sticky; /* NULL: two curves */
	uint32_t caches, requests, sessions, curves;
	uint64_t refs;
	struct point *points; /* each a multiple of `caches`, from small to large */
	uint32_t n;
	struct needs needs[SHARES];
};

/* The number of curves that are drawn. */
static inline uint32_t plot_drawn(const struct plot *p)
{
	return p->curves < DRAWN ? p->curves : DRAWN;
}

/* Does all of --plot; returns the exit status. */
int plot_trace(const struct args *a, const struct trace *t);
/* Writes the picture as a whole file; -1 after a message. */
int svg_write(const char *file, const struct plot *p);

#endif
