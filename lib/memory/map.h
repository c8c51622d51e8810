/* SPDX-License-Identifier: Apache-2.0 */
/* map.h - the memory of pools in this process.
 *
 * A map belongs to a handle and a pool's memory number.  It is made at first use and has, part by
 * part, an address here.  Three kinds of users hold it, each counted:
 *
 *   the caller    gpc_pool_map, until gpc_pool_unmap
 *   a transfer    from before its addresses are computed until its slot is done (rule B11)
 *   the maker     of VRAM and of lent memory, until its pool has gone
 *
 *   state of a map     the pool         users          what happens
 *   -----------------  ---------------  -------------  --------------------------------------
 *   current            has its number   any            it is used
 *   stale              gone, or another caller         stays; gpc_pool_map says -ESTALE
 *   stale              gone, or another transfers only stays until they are done
 *   stale              gone, or another none           is unmapped, by the next call here or by the thread
 *
 * map_get takes the hold first and compares then: the pool READY, its memory number that of the
 * map.  So a number that goes after the comparison finds the hold, and what is mapped stays as long
 * as the copies that use it. */
#ifndef GPC_MEMORY_MAP_H
#define GPC_MEMORY_MAP_H

#include "device/bytes.h"
#include "peer/handle.h"
#include "segment/memory.h"

struct map_part {
	uint8_t *base;                   /* NULL: not mapped yet */
	uint64_t bytes;
	void *memory;                    /* of device_bytes; NULL: images of the file, or the caller's own */
};

struct map {
	struct map *next;                /* all of the handle */
	struct memory memory;
	const struct device_bytes *device;       /* of VRAM; of RAM NULL */
	uint32_t pool;
	uint32_t callers, transfers;     /* users, under c->maps' lock */
	bool made;                       /* this process made it */
	uint8_t *images;                 /* of the file, mapped */
	uint8_t *pins;                   /* RAM: a byte for each chunk that is registered; NULL: none is */
	struct map_part part[];          /* memory.nparts; at least 1 */
};

#define PIN_CHUNK ((uint64_t)1 << 30)    /* bytes that are registered at a time; no copy crosses an end */

/* The pool's memory as it is now, with all parts mapped and one user (a transfer) more: 0, -ENOENT,
 * -ESTALE, -EAGAIN, -ENODEV, as gpc_pool_map. */
int map_get(gpc *c, uint32_t pool, struct map **ret);
void map_put(gpc *c, struct map *m);
/* Register the chunks that hold these bytes of RAM; waits. */
int map_pin(gpc *c, struct map *m, uint64_t at, uint64_t bytes);
/* Unmap what is stale and unused.  Called where a call is slow anyway, and by the thread. */
void map_sweep(gpc *c);
/* gpc_close: no transfer is under way any more. */
void map_close_all(gpc *c);
void map_abandon(gpc *c);                /* in a forked child: forget, touch no device */

#endif
