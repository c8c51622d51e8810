/* SPDX-License-Identifier: Apache-2.0 */
/* hooks.h - all calls that the index makes into other halls.
 *
 * The index finds blocks and changes them; memory, devices and copies are other halls.  They know
 * the index, and the index knows them only by this table.  A program is linked with one table.
 * The library's is lib/hooks.c.  t/lib/alone.c has the table of an index by itself, without memory
 * and devices.
 * Tests: t/bytes/mirror-order.t */
#ifndef GPC_HOOKS_H
#define GPC_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

#include "gpc.h"
#include "kernels/launch.h"
#include "index/segment/segment.h"

/* A mirror is a copy of the table on a device; its writer and gpc_check use these functions.  All
 * return 0 or a negative errno with err_set. */
struct mirror_ops {
	/* Make a new mirror, and fill uuid, bytes, handle and device of *desc.  A uuid that is set
	 * already comes from a predecessor's mirror, and says which device to use. */
	int (*create)(const struct segment *s, const char *device, uint32_t generation,
		      struct shm_mirror *desc, void **ret_mirror);
	/* Copy the whole table, and wait for the end.  It is slow, and serves the first use and a
	 * takeover. */
	int (*upload)(void *mirror, const struct probe_entry *table, uint64_t entries,
		      const struct mirror_status *status);
	/* Begin to apply n changes (copied), each slot at most once, then the status, with its
	 * sequence last.  Only one flush of a mirror is in flight.  The mirror may show newer
	 * entries than the change has, if the table does. */
	int (*flush)(void *mirror, const struct launch_change *changes, uint32_t n,
		     const struct mirror_status *status);
	/* 0 = that flush has ended, -EAGAIN = not yet, else it failed */
	int (*flushed)(void *mirror);
	void (*destroy)(void *mirror);
	/* Remove the leftovers of a dead writer's mirror outside of process memory.  Processes
	 * that have imported the mirror go on reading. */
	void (*sweep)(const struct segment *s, const struct shm_mirror *desc);
	/* Any process: copy a mirror back, for gpc_check. */
	int (*read)(const struct segment *s, const struct shm_mirror *desc,
		    struct probe_entry *table, uint64_t entries, uint64_t *ret_sequence);
};

/* A question to a device: keys in host memory, and answers there. */
struct device_query {
	uint32_t spaces; /* 0 = the spaces of the mirror's status */
	const gpc_key *keys;
	uint32_t n;
	/* where each sequence begins, from 0 to n; NULL: each key is asked for by itself */
	const uint32_t *start;
	uint32_t nseq;
	bool blocks; /* of sequences: the blocks are wanted, too */
};

struct device_result {
	const gpc_block *blocks;
	const uint32_t *len; /* of sequences */
	void *memory;        /* to be freed when the answers have been read; or NULL */
};

struct ram_draft; /* a RAM pool's memory that is wanted and not made yet */

struct hooks {
	/* ---- of a handle: its memory, devices and copies ---- */

	int (*handle_open)(gpc *c);   /* before it has a seat: -ENOMEM */
	int (*handle_seated)(gpc *c); /* it has one: -ENOMEM */
	/* The handle is about to leave its seat, so copies end.  False: a transfer goes on, and
	 * the seat has to wait. */
	bool (*handle_leaves)(gpc *c);
	void (*handle_left)(gpc *c); /* the seat is left, and the segment still mapped */
	/* in a forked child: forget everything, and touch no device */
	void (*handle_forked)(gpc *c);
	void (*handle_free)(gpc *c); /* the last call; it also comes if there never was a seat */

	/* Add to the seat what launches on devices have counted, for those that are over. */
	void (*handle_count)(gpc *c);

	/* ---- of a device ---- */

	/* Writer: the mirror functions of that device.  -ENODEV: they are not built in.  -EINVAL:
	 * there is no such kind of device. */
	int (*mirror_find)(const char *device, const struct mirror_ops **ret);
	/* Check a list of devices, as a cache is made with one: -EINVAL. */
	int (*devices_check)(const char *devices);
	/* Peer: a device answers for a whole call.  -EAGAIN: a device is not worth it, or its
	 * mirror is behind; with `must` the call waits for the mirror.  After 0 the caller calls
	 * offload_end(), within the section. */
	int (*offload_query)(gpc *c, const struct device_query *q, bool must,
			     struct device_result *ret);
	void (*offload_end)(gpc *c, struct device_result *answer);

	/* ---- of the memory of pools, which is in separate files ---- */

	/* gpc_create(): prepare cfg->ram_memory for that many slots.  NULL: none is wanted. */
	int (*memory_draft)(const struct gpc_config *cfg, uint32_t slots, struct ram_draft **ret);
	/* the bytes that it takes of the cache's folder */
	uint64_t (*memory_room)(const struct ram_draft *d);
	/* Make it, and set memory, block_bytes and fingerprint of *pool.  Each step asks whether
	 * it is still wanted. */
	int (*memory_make)(const struct segment *s, struct ram_draft *d, bool (*wanted)(void *arg),
			   void *arg, struct shm_pool *pool);
	/* A pool names the memory now; or, without `keep`, the memory is removed again.  NULL is
	 * fine. */
	void (*memory_end)(const struct segment *s, struct ram_draft *d, bool keep);
	/* Does the existing cache have the memory that the configuration asks for?  -EPROTO:
	 * no. */
	int (*memory_fits)(const gpc *c, const struct gpc_config *cfg);
	/* gpc_pool_make() of a pool with memory: the pool's number. */
	int (*pool_make)(gpc *c, const struct gpc_pool *p, const struct gpc_memory *m,
			 uint64_t deadline);
	/* gpc_check(): kind, slots (low half of the range), block_bytes, fingerprint and uuid[0]
	 * of a memory, as its file says.  -ESTALE, -EBADMSG, -EACCES. */
	int (*memory_describe)(const struct segment *s, uint64_t number, struct shm_pool *ret);
	/* Does this name belong to a memory's file?  The other function opens the part of its
	 * bytes in another folder: a descriptor; -ENOENT: there is none. */
	bool (*memory_is_file)(const char *suffix);
	int (*memory_open_elsewhere)(const struct segment *s, const char *suffix, int fd);
	/* For segment_visit(): remove a file of memory, whether it is locked or not, and whatever
	 * it contains. */
	int (*memory_remove_named)(const struct segment *s, const char *suffix, void *arg);
	/* Remove the files that no pool names.  Is there one? */
	void (*memory_sweep)(const struct segment *s);
	bool (*memory_find_unnamed)(const struct segment *s);
};

extern const struct hooks hooks;

#endif
