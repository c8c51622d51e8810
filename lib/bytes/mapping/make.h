/* SPDX-License-Identifier: Apache-2.0 */
/* make.h - memory that this process makes for a pool.
 *
 *   bytes/mapping/make_want.c  makes a file's description from the caller's fields
 *   bytes/mapping/make.c       makes it, and adds its pool; takes answers that come late
 *   bytes/mapping/lend.c       parts of the caller's own; the description of a pool's memory
 *   bytes/mapping/who.c        processes that have the memory of a former pool
 *   bytes/mapping/huge.c       the part of RAM that lies in huge pages */
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
	uint64_t part_bytes[SHM_PARTS];    /* the bytes that the layout needs of each part */
	const struct device_bytes *device; /* for VRAM; NULL for RAM */
	void *allocation, *base;           /* as the device's make() returned them */
};

/* Fill request and memory: 0, -EINVAL, -ENODEV. */
int make_want(const gpc *c, const struct gpc_pool *p, const struct gpc_memory *m,
	      struct making *mk);

/* gpc_pool_make() of a pool with memory: its number. */
int make_pool(gpc *c, const struct gpc_pool *p, const struct gpc_memory *m, uint64_t deadline);

/* Has a call that was given up got its answer by now?  Then its pool is treated as if the call had
 * returned.  It serves calls about the memory of a pool, and waits for nobody. */
void make_settle(gpc *c);
/* gpc_close, once the seat is given up: the memory of unanswered calls belongs to nobody. */
void make_close(gpc *c);
void make_abandon(gpc *c); /* in a forked child: forget, touch no device */

/* Bytes of the images of this file in huge pages; 0 if unknown. */
uint64_t huge_bytes(const struct segment *s, const struct memory *m);

#define WHO_TEXT 128
/* "process 12 has", "processes 12, 34 have": the processes that have the memory of that number
 * open.  "some process has" if none is known. */
void memory_who(const gpc *c, uint64_t number, char ret[WHO_TEXT]);

#endif
