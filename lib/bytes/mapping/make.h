/* SPDX-License-Identifier: Apache-2.0 */
/* make.h - memory that this process makes for a pool.
 *
 *   bytes/mapping/make_want.c  what is wanted: the caller's fields become a file's description
 *   bytes/mapping/make.c       made, and its pool added; answers that come late
 *   bytes/mapping/lend.c       parts of the caller's own; what a pool's memory is
 *   bytes/mapping/who.c        who has what a former pool left
 *   bytes/mapping/huge.c       how much of RAM lies in huge pages */
#ifndef GPC_MEMORY_MAKE_H
#define GPC_MEMORY_MAKE_H

#include "bytes/device/device.h"
#include "index/peer/handle.h"
#include "bytes/memfile/memfile.h"

/* Memory that no pool of ours names yet. */
struct making {
	struct shm_pool request;
	struct memory memory; /* fd -1: no file yet */
	struct memory_pages pages;
	uint64_t part_bytes[SHM_PARTS];    /* what the layout needs of each */
	const struct device_bytes *device; /* of VRAM; of RAM NULL */
	void *allocation, *base;           /* of the device's make() */
};

/* Fill request and memory: 0, -EINVAL, -ENODEV. */
int make_want(const gpc *c, const struct gpc_pool *p, const struct gpc_memory *m,
	      struct making *mk);

/* gpc_pool_make() of a pool with memory: its number. */
int make_pool(gpc *c, const struct gpc_pool *p, const struct gpc_memory *m, uint64_t deadline);

/* Has a call that was given up got its answer by now? Then its pool is treated as if the call had
 * returned.  For calls about the memory of a pool; waits for nobody. */
void make_settle(gpc *c);
/* gpc_close, when the seat is given up: memory of unanswered calls belongs to nobody. */
void make_close(gpc *c);
void make_abandon(gpc *c); /* in a forked child: forget, touch no device */

/* Bytes of the images of this file in huge pages; 0 if unknown. */
uint64_t huge_bytes(const struct segment *s, const struct memory *m);

#define WHO_TEXT 128
/* "process 12 has", "processes 12, 34 have": the processes that have the memory of that number
 * open; or "some process has". */
void memory_who(const gpc *c, uint64_t number, char ret[WHO_TEXT]);

#endif
