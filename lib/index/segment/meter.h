/* SPDX-License-Identifier: Apache-2.0 */
/* meter.h - the places of the histograms of struct shm_meter, and how values are counted.
 * Tests: t/bytes/histograms.t */
#ifndef GPC_METER_H
#define GPC_METER_H

#include "index/segment/segment.h"

_Static_assert(sizeof(struct shm_state) <= SHM_METER &&
		       SHM_METER + sizeof(struct shm_meter) <= SHM_PAGE,
	       "both fit the page of the state");

static inline struct shm_meter *seg_meter(const struct segment *s)
{
	return SEG_AT(s->index + SHM_METER, s->at.state, struct shm_meter, 0);
}

/* The smallest k with units <= 2^k. */
static inline uint32_t meter_cell(uint64_t units)
{
	uint32_t k = units <= 1 ? 0 : 64 - (uint32_t)__builtin_clzll(units - 1);

	return MIN(k, SHM_CELLS - 1);
}

/* The cell of a time in whole units.  A value a little above 2^k units belongs in the next
 * cell. */
static inline uint32_t meter_cell_short(uint64_t ns)
{
	return meter_cell((ns + 999) / 1000);
}

#endif
