/* SPDX-License-Identifier: Apache-2.0 */
/* payload.h - the bytes behind the blocks, as an engine would have them.
 *
 *   payload_own.c    in shared memory of the replay's own, which the CPU writes and copies
 *   payload_pool.c   in pools with memory, of a GPU and of RAM, between which gpc_copy copies
 * Tests: t/tools/replay-pools.t */
#ifndef GPC_TOOLS_PAYLOAD_H
#define GPC_TOOLS_PAYLOAD_H

#include "gpc.h"
#include "gpc_bytes.h"

#include <stdbool.h>
#include <stddef.h>

struct job;
struct payload_pools;

struct payload_copied {
	uint64_t bytes, ns;
};

struct payload {
	const struct payload_ops *ops;
	const struct job *job;
	gpc *c;
	int32_t vram;                   /* pool that this worker fills */
	unsigned char *bytes;           /* payload_own */
	struct payload_pools *pools;    /* payload_pool */
	struct payload_copied down, up; /* VRAM to RAM, and back; what gpc_copy did */
	char error[320]; /* of the call that failed last; empty: the library has it */
	char wrong[160]; /* of the call that found wrong blocks: where; may be empty */
};

/* Calls return 0 or more, or a negative errno.  Of arrays of blocks, -1 is skipped. */
struct payload_ops {
	/* In a worker that has attached. */
	int (*open)(struct payload *p);
	void (*close)(struct payload *p);
	/* The blocks are reservations of the caller; complete on return. */
	int (*write)(struct payload *p, const gpc_block *blocks, const gpc_key *keys, uint32_t n);
	/* How many have not the bytes of their key; kinds: GPC_RAM, those in RAM, GPC_VRAM, all
	 * others, or both. */
	int (*check)(struct payload *p, uint32_t kinds, const gpc_block *blocks,
		     const gpc_key *keys, uint32_t n);
	/* From one pool to one other; complete on return.  bad[i]: these were not the bytes of
	 * moves[i].key. */
	int (*copy)(struct payload *p, const struct gpc_move *moves, uint32_t n, bool *bad);
	/* Which check() and write() use for blocks of VRAM; NULL: the payload is in no pool. */
	void *(*stream)(struct payload *p);
};

extern const struct payload_ops payload_own, payload_pool;

/* ---- files of payload_own, which the parent makes ---- */

/* A memory file nobody else sees: the cache is the replay's own.  fd, or -1 after a
 * message. */
int payload_private(size_t bytes);
/* One file for all replays that use the cache `name` at once.  *ret_fresh: the file is
 * new, so blocks of earlier replays have no bytes any more; the caller has them
 * forgotten and then calls payload_settled.  fd, or -1 after a message. */
int payload_shared(const char *dir, const char *name, size_t bytes, bool *ret_fresh);
int payload_settled(int fd, size_t bytes);
/* The last one out removes the file. */
void payload_release(const char *dir, const char *name, int fd);

#endif
