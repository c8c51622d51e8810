/* SPDX-License-Identifier: Apache-2.0 */
/* map.h - the memory of pools in this process.
 *
 * A map belongs to a handle and a pool's memory number.  It is made at first use and has, part by
 * part, an address here.  Three kinds of users hold it, each counted:
 *
 *   the caller    gpc_pool_map, until gpc_pool_unmap
 *   a transfer    from before its addresses are computed until its channel is done (rule B11)
 *   the maker     of VRAM and of lent memory, until its pool has gone
 *
 *   state of a map     the pool         users          what happens
 *   -----------------  ---------------  -------------  --------------------------------------
 *   current            has its number   any            it is used
 *   stale              gone, or another caller         stays; gpc_pool_map says -ESTALE
 *   stale              gone, or another transfers only stays until they are done
 *   stale              gone, or another none           is unmapped, by the next call here or by the thread
 *
 * Current is the map of a READY pool.  In the process that made the memory it is that of a DRAINING
 * one, too: others read there as long as they hold its blocks.
 *
 * map_get takes the hold first and compares then: the pool READY, its memory number that of the
 * map.  So a number that goes after the comparison finds the hold, and the map stays as long as
 * the copies that use it. */
#ifndef GPC_MEMORY_MAP_H
#define GPC_MEMORY_MAP_H

#include "bytes/device/device.h"
#include "index/peer/handle.h"
#include "bytes/memfile/memfile.h"

struct map_part {
	uint8_t *base; /* NULL: not mapped yet */
	uint64_t bytes;
	void *memory; /* of device_bytes; NULL: images of the file, or the caller's own */
};

struct map {
	struct map *next; /* all of the handle */
	struct memory memory;
	const struct device_bytes *device; /* of VRAM; of RAM NULL */
	uint32_t pool;
	uint32_t callers, transfers; /* users, under c->maps' lock */
	bool made;                   /* this process made it */
	bool unwanted;               /* gpc_pool_unmap came while copies were under way */
	uint8_t *images;             /* of the file, mapped */
	uint8_t *pins;               /* of the images: a byte for each chunk, enum map_chunk */
	const struct device_bytes *pinner; /* the device that they are registered with */
	/* by gpc_pool_pin: the thread has a hold of it; stored with c->maps' lock, read by copies */
	bool pin_wanted;
	int pin_error;                          /* what became of that */
	struct memory_trailers trailers;        /* of RAM with checksums; at NULL: it has none */
	const struct device_bytes *trailers_by; /* they are registered with; c->maps->pin_lock */
	void *sums;                             /* of device: the way through an image; sums_lock */
	struct map_part part[];                 /* memory.nparts; at least 1 */
};

#define PIN_CHUNK \
	((uint64_t)1 << 30) /* bytes that are registered at a time; no copy crosses an end */

/* The pool's memory as it is now, with all parts mapped and one user (a transfer) more: 0, -ENOENT,
 * -ESTALE, -EAGAIN, -ENODEV, as gpc_pool_map. */
/* Is it the memory that the pool of that number has now, also on its way out? */
bool map_is_of_pool(const gpc *c, const struct map *m);
int map_get(gpc *c, uint32_t pool, struct map **ret);
void map_put(gpc *c, struct map *m);
/* This process has made this memory, which that pool has now: on success *m with its descriptor is
 * the map's from here on, and another thread may sweep it at once if the pool goes.  Parts that are
 * not lent yet have base NULL; images that the caller has mapped are part 0, else they are mapped
 * here. */
int map_adopt(gpc *c, uint32_t pool, const struct memory *m, uint32_t nparts,
	      const struct map_part *part);
/* The maker lends a part, which stays where it is, and tells others of it so: -EEXIST, it has
 * already; -EINVAL, it is on another part; -ENOENT, this process did not make it.  On failure
 * nothing has changed. */
int map_adopt_part(gpc *c, uint32_t pool, uint32_t part, const struct map_part *what,
		   const struct shm_part *told);
/* The share of a pool's memory that this process has: parts, registered bytes. */
struct map_seen {
	uint32_t parts;
	uint64_t pinned;
};
struct map_seen map_look(gpc *c, uint32_t pool, uint64_t number);
/* For tests: another size than PIN_CHUNK, and a device that registers in place of the cache's
 * GPUs. */
extern uint64_t map_pin_chunk;
extern const struct device_bytes *map_pin_device;

enum map_chunk { CHUNK_NEW, CHUNK_PINNED, CHUNK_REFUSED };
/* Register the chunks that hold these bytes of the images, with the GPUs that `device` drives;
 * waits.  Without `must` it is no error where that is refused, and nothing is done while gpc_pool_pin
 * is at it: copies go on without (pin.c). */
int map_pin(gpc *c, struct map *m, const struct device_bytes *device, uint64_t at, uint64_t bytes,
	    bool must);
/* To the log, once of a handle: what cannot be registered, with the last error's sentence. */
void pin_say_refused(gpc *c, const char *what);
/* Its trailers, which have to be. */
int map_pin_trailers(gpc *c, struct map *m, const struct device_bytes *device);
/* VRAM: what its device needs to sum its images; made at first use. */
int map_sums(gpc *c, struct map *m, void **ret);
/* A former pool of this device whose memory a handle of this process, the maker's own included,
 * still has by gpc_pool_map; -1. */
int map_find_stale(gpc *c, const uint8_t uuid[16]);
/* Unmap stale and unused maps.  Called where a call is slow anyway, and by the thread. */
void map_sweep(gpc *c);

/* ---- with the handle ---- */

int map_open(gpc *c); /* c->maps: -ENOMEM */
/* gpc_close: the threads end first; then no transfer is under way, and everything is unmapped. */
void map_stop(gpc *c);
void map_close_all(gpc *c);
void map_abandon(gpc *c); /* in a forked child: forget, touch no device */

/* Two calls that copies ask for: `forget` before a map is unmapped, `feed` by the thread, a few times
 * a second; true: again in a fraction of a millisecond.  map_poke: now. */
void map_watch(gpc *c, void (*forget)(gpc *c, struct map *m), bool (*feed)(gpc *c));
int map_poke(gpc *c);

#endif
