/* SPDX-License-Identifier: Apache-2.0 */
/* hooks.h - calls that the index makes upward: the only upward arrows.
 *
 * The index finds blocks and changes them; memory, devices and copies are other halls.  They know
 * the index, and the index knows them by this table alone.  A program has one table, from when it
 * is linked: that of the library is lib/hooks.c, and t/lib/alone.c that of an index by itself,
 * where there is no memory and no device.
 * Tests: t/bytes/mirror-order.t */
#ifndef GPC_HOOKS_H
#define GPC_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

#include "gpc.h"
#include "kernels/launch.h"
#include "index/segment/segment.h"

/* A mirror, a copy of the table on a device, as its writer and gpc_check have it.  All return 0 or a negative
 * errno with err_set. */
struct mirror_ops {
	/* a mirror of its own; fills uuid, bytes, handle, device of *desc.  A uuid that
	 * is set already, of a predecessor's mirror, says which device it has to be. */
	int (*create)(const struct segment *s, const char *device, uint32_t generation,
		      struct shm_mirror *desc, void **ret_mirror);
	/* copy the whole table; waits.  (slow: first use and takeover) */
	int (*upload)(void *mirror, const struct probe_entry *table, uint64_t entries,
		      const struct mirror_status *status);
	/* begin to apply n changes (copied), each slot at most once, then the status, its
	 * sequence last.  Only one flush of a mirror is in flight.  The mirror may show
	 * newer entries than the change has, if the table does. */
	int (*flush)(void *mirror, const struct launch_change *changes, uint32_t n,
		     const struct mirror_status *status);
	/* 0 = that flush has ended, -EAGAIN = not yet, else it failed */
	int (*flushed)(void *mirror);
	void (*destroy)(void *mirror);
	/* remove the leftovers of a dead writer's mirror outside of process memory; processes
	 * that have imported it keep reading */
	void (*sweep)(const struct segment *s, const struct shm_mirror *desc);
	/* anybody: copy a mirror back, for gpc_check */
	int (*read)(const struct segment *s, const struct shm_mirror *desc,
		    struct probe_entry *table, uint64_t entries, uint64_t *ret_sequence);
};

/* Keys in host memory, and answers there. */
struct device_query {
	uint32_t spaces; /* 0 = the spaces of the mirror's status */
	const gpc_key *keys;
	uint32_t n;
	const uint32_t *start; /* of sequences, from 0 to n; NULL: each key by itself */
	uint32_t nseq;
	bool blocks; /* of sequences: wanted beside the lengths */
};

struct device_result {
	const gpc_block *blocks;
	const uint32_t *len; /* of sequences */
	void *memory;        /* to be freed after it was read; or NULL */
};

struct ram_draft; /* memory that is wanted for the RAM pool, and is not made yet */

struct hooks {
	/* ---- of a handle: its memory, devices and copies ---- */

	int (*handle_open)(gpc *c);   /* before it has a seat: -ENOMEM */
	int (*handle_seated)(gpc *c); /* it has one: -ENOMEM */
	/* It is about to leave its seat: copies end.  False: a transfer goes on, and the seat has
	 * to wait. */
	bool (*handle_leaves)(gpc *c);
	void (*handle_left)(gpc *c);   /* the segment is mapped still */
	void (*handle_forked)(gpc *c); /* in a child: forget, and touch no device */
	void (*handle_free)(gpc *c);   /* the last; also where it never had a seat */

	/* Add what launches on devices have counted, as far as they are over, to the seat. */
	void (*handle_count)(gpc *c);

	/* ---- of a device ---- */

	/* writer: the mirror functions of that device.  -ENODEV: not built in; -EINVAL: there is
	 * no such kind. */
	int (*mirror_find)(const char *device, const struct mirror_ops **ret);
	/* A list of devices, as a cache is made with: -EINVAL. */
	int (*devices_check)(const char *devices);
	/* peer: a device answers for a whole call.  -EAGAIN: it is not worth it, or its mirror is
	 * behind, which with `must` is waited for.  After 0: offload_end(), within the section. */
	int (*offload_query)(gpc *c, const struct device_query *q, bool must,
			     struct device_result *ret);
	void (*offload_end)(gpc *c, struct device_result *answer);

	/* ---- of the memory of pools, which lies in files beside the segments ---- */

	/* gpc_create(): of cfg->ram_memory, for that many slots.  NULL: none is wanted. */
	int (*memory_draft)(const struct gpc_config *cfg, uint32_t slots, struct ram_draft **ret);
	uint64_t (*memory_room)(const struct ram_draft *d); /* bytes of the cache's folder */
	/* Make it: memory, block_bytes and fingerprint of *pool.  Asks with each step whether it is
	 * still wanted. */
	int (*memory_make)(const struct segment *s, struct ram_draft *d, bool (*wanted)(void *arg),
			   void *arg, struct shm_pool *pool);
	/* A pool names it now; or, not to be kept, it is removed again.  NULL is fine. */
	void (*memory_end)(const struct segment *s, struct ram_draft *d, bool keep);
	/* Has the cache that is there what the configuration asks for?  -EPROTO. */
	int (*memory_fits)(const gpc *c, const struct gpc_config *cfg);
	/* gpc_pool_make() of a pool with memory: the pool's number. */
	int (*pool_make)(gpc *c, const struct gpc_pool *p, const struct gpc_memory *m,
			 uint64_t deadline);
	/* gpc_check(): kind, slots (low half of the range), block_bytes, fingerprint and uuid[0] of
	 * a memory, as its file says.  -ESTALE, -EBADMSG, -EACCES. */
	int (*memory_describe)(const struct segment *s, uint64_t number, struct shm_pool *ret);
	/* Is that file one of a memory?  The part of its bytes in another folder: a descriptor,
	 * -ENOENT: none. */
	bool (*memory_is_file)(const char *suffix);
	int (*memory_open_elsewhere)(const struct segment *s, const char *suffix, int fd);
	/* For segment_visit(): remove a file of memory, locked or not, and whatever it says. */
	int (*memory_remove_named)(const struct segment *s, const char *suffix, void *arg);
	/* Remove the files that no pool names; is there one? */
	void (*memory_sweep)(const struct segment *s);
	bool (*memory_find_unnamed)(const struct segment *s);
};

extern const struct hooks hooks;

#endif
