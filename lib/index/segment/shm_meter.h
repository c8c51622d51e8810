/* SPDX-License-Identifier: Apache-2.0 */
/* shm_meter.h - a part of shm.h: counters for tools.  Nothing of the index depends on it.
 *
 * Cell k of a histogram counts values of at most 2^k units, and more than half of that; the last
 * cell counts larger values.  Units are microseconds or milliseconds.  A cell is raised before the
 * sum is.  A death between these stores leaves a sum without the last value, and after a death
 * before them the value is not counted.
 * Tests: t/look/hits-told.t t/bytes/histograms.t t/pages/segment-page.t */
#ifndef GPC_SHM_METER_H
#define GPC_SHM_METER_H

#include <stdint.h>

#define SHM_CELLS  31u
#define SHM_COPIES 4u    /* pairs of tiers: 2 * from RAM + to RAM */
#define SHM_METER  1024u /* where the meter is, in the page of the state */

struct shm_past { /* w, r: the counts of peers that have left */
	uint64_t lookups, hit_vram, hit_ram, miss;
	uint64_t published, duplicate;
	uint64_t evicted; /* the keys lost that are counted for no peer are in it, too ... */
	uint64_t demoted, promoted;
	uint64_t dropped; /* ... and so are the ends by clears and by ends of pools here */
	uint64_t stale_refs, ring_full;
	uint64_t fetched, spilled, bad, commands;
	uint64_t fetched_bytes, spilled_bytes;
	uint64_t hit_own, hit_disk, hit_store, pad[3];
};
_Static_assert(sizeof(struct shm_past) == 192, "past layout");

struct shm_histogram {
	uint64_t sum; /* in a short histogram nanoseconds, in a long one milliseconds */
	uint64_t cell[SHM_CELLS];
};
_Static_assert(sizeof(struct shm_histogram) == 256, "histogram layout");

/* w, r.  The writer folds the histogram and the counters of a seat that is given up into
 * `round_trip` and shm_state.past.  First it stores the sums of both in `folded` and `folded_past`.
 * Then an odd number in `folds` says that these count in place of the others and of the seat, until
 * the seat has been cleared.  So a successor ends a fold that was begun, or begins it anew, and
 * nobody counts anything twice. */
struct shm_meter {
	uint64_t folds;   /* odd: a fold is under way */
	uint64_t folding; /* ... of this seat */
	uint64_t pad0[6];
	/* long: from when a key became live there to its eviction */
	struct shm_histogram age;
	struct shm_histogram idle; /* long: from the last use of a key to its eviction */
	/* long: between two uses of a block, as the queue of leaves sees them */
	struct shm_histogram gap;
	/* short: from the start of a new writer until it takes commands */
	struct shm_histogram takeover;
	/* short: of transfers, from their beginning to their commit */
	struct shm_histogram copy[SHM_COPIES];
	uint64_t copied_blocks[SHM_COPIES]; /* blocks that they brought */
	uint64_t copied_bytes[SHM_COPIES];
	struct shm_histogram round_trip; /* short: as in the seats, for peers that have left */
	struct shm_histogram folded;
	struct shm_past folded_past;
	uint64_t pad1[24];
};
_Static_assert(sizeof(struct shm_meter) == 3072, "meter layout");

#endif
