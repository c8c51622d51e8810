/* SPDX-License-Identifier: Apache-2.0 */
/* map.h - the memory of pools, mapped in this process.
 *
 * A map belongs to a handle and to a pool's memory number.  It is made at first use and has an
 * address for each part.  Three kinds of users hold it, and each is counted:
 *
 *   the caller    gpc_pool_map, until gpc_pool_unmap
 *   a transfer    from before its addresses are computed until its channel is done (rule B11)
 *   the maker     of VRAM and of lent memory, until its pool has gone
 *
 *   state of a map     the pool         users          what happens
 *   -----------------  ---------------  -------------  ------------------------------------------
 *   current            has its number   any            it is used
 *   stale              gone, or another caller         it stays; gpc_pool_map says -ESTALE
 *   stale              gone, or another transfers only it stays until they are done
 *   stale              gone, or another none           the next call here, or the thread, unmaps it
 *
 * The current map is the map of a READY pool.  In the process that made the memory, the map of a
 * DRAINING pool is current, too: other processes read there as long as they hold its blocks.
 *
 * map_get takes the hold first and compares then: the pool must be READY, and have the map's
 * memory number.  If the number goes after the comparison, the hold is there, and the map stays as
 * long as the copies that use it. */
#ifndef GPC_MEMORY_MAP_H
#define GPC_MEMORY_MAP_H

#include "bytes/device/device.h"
#include "index/peer/handle.h"
#include "bytes/memfile/memfile.h"

struct map_part {
	uint8_t *base; /* NULL: not mapped yet */
	uint64_t bytes;
	/* made by device_bytes; NULL: images of the file, or the caller's own memory */
	void *memory;
};

struct map {
	struct map *next; /* next map of the handle */
	struct memory memory;
	const struct device_bytes *device; /* for VRAM; NULL for RAM */
	uint32_t pool;
	uint32_t callers, transfers; /* users, under c->maps' lock */
	bool made;                   /* this process made it */
	bool unwanted;               /* gpc_pool_unmap was called while copies were under way */
	uint8_t *images;             /* the file's images, mapped */
	uint8_t *pins;               /* for the images: a byte for each chunk, enum map_chunk */
	const struct device_bytes *pinner; /* the device that they are registered with */
	/* Set by gpc_pool_pin, when the thread has a hold of it.  It is stored with c->maps' lock,
	 * and copies read it. */
	bool pin_wanted;
	int pin_error; /* the result of that */
	/* RAM with checksums: its trailers; their `at` is NULL if there are none */
	struct memory_trailers trailers;
	/* the device that they are registered with; protected by c->maps->pin_lock */
	const struct device_bytes *trailers_by;
	/* the device's list of pieces of an image; protected by sums_lock */
	void *sums;
	struct map_part part[]; /* memory.nparts; at least 1 */
};

#define PIN_CHUNK \
	((uint64_t)1 << 30) /* bytes that are registered at a time; no copy crosses such an end */

/* Has the pool of that number this memory now?  The pool may also be on its way out. */
bool map_is_of_pool(const gpc *c, const struct map *m);
/* The pool's memory as it is now, with all parts mapped, and one more user (a transfer).  0,
 * -ENOENT, -ESTALE, -EAGAIN, -ENODEV, as gpc_pool_map. */
int map_get(gpc *c, uint32_t pool, struct map **ret);
void map_put(gpc *c, struct map *m);
/* This process has made this memory, which that pool has now.  After success *m, with its
 * descriptor, belongs to the map, and another thread may sweep it at once if the pool goes.  Parts
 * that are not lent yet have base NULL.  If the caller has mapped the images they are part 0, else
 * they are mapped here. */
int map_adopt(gpc *c, uint32_t pool, const struct memory *m, uint32_t nparts,
	      const struct map_part *part);
/* The maker lends a part, which stays where it is, and publishes it.  -EEXIST: it has lent it
 * already.  -EINVAL: it lies on another part.  -ENOENT: this process did not make the memory.
 * After an error nothing has changed. */
int map_adopt_part(gpc *c, uint32_t pool, uint32_t part, const struct map_part *what,
		   const struct shm_part *told);
/* The share of a pool's memory that this process has mapped: parts, registered bytes. */
struct map_seen {
	uint32_t parts;
	uint64_t pinned;
};
struct map_seen map_look(gpc *c, uint32_t pool, uint64_t number);
/* For tests: another size than PIN_CHUNK, and a device that registers instead of the cache's
 * GPUs. */
extern uint64_t map_pin_chunk;
extern const struct device_bytes *map_pin_device;

enum map_chunk { CHUNK_NEW, CHUNK_PINNED, CHUNK_REFUSED };
/* Register the chunks that hold these bytes of the images, with the GPUs that `device` drives, and
 * wait.  Without `must` a refusal is no error; and while gpc_pool_pin is registering, nothing is
 * done: copies go on without registered memory (pin.c). */
int map_pin(gpc *c, struct map *m, const struct device_bytes *device, uint64_t at, uint64_t bytes,
	    bool must);
/* Log once for each handle which memory cannot be registered, with the last error's sentence. */
void pin_say_refused(gpc *c, const char *what);
/* Register its trailers, which is needed in any case. */
int map_pin_trailers(gpc *c, struct map *m, const struct device_bytes *device);
/* VRAM: the list that its device needs to sum its images; it is made at first use. */
int map_sums(gpc *c, struct map *m, void **ret);
/* The number of a former pool of this device whose memory a handle of this process, the maker's
 * own included, still has by gpc_pool_map; or -1. */
int map_find_stale(gpc *c, const uint8_t uuid[16]);
/* Unmap stale and unused maps.  It is called by calls that are slow in any case, and by the
 * thread. */
void map_sweep(gpc *c);

/* ---- with the handle ---- */

int map_open(gpc *c); /* c->maps: -ENOMEM */
/* gpc_close: the threads end first.  Then no transfer is under way, and everything is unmapped. */
void map_stop(gpc *c);
void map_close_all(gpc *c);
void map_abandon(gpc *c); /* in a forked child: forget, touch no device */

/* Two functions of copies: `forget` is called before a map is unmapped.  The thread calls `feed` a
 * few times a second; if it returns true, again in a fraction of a millisecond.  map_poke: call it
 * now. */
void map_watch(gpc *c, void (*forget)(gpc *c, struct map *m), bool (*feed)(gpc *c));
int map_poke(gpc *c);

#endif
