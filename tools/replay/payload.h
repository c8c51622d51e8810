/* SPDX-License-Identifier: Apache-2.0 */
/* payload.h - the bytes behind the blocks, as an engine would have them.
 *
 *   payload_own.c    in shared memory of the replay's own, where the CPU writes and copies
 *   payload_pool.c   in pools with memory, of a GPU and of RAM; gpc_copy copies between them
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
	struct payload_copied down, up; /* copies from VRAM to RAM, and back, by gpc_copy */
	char error[320]; /* text of the call that failed last; empty: the library has the text */
	char wrong[160]; /* place of the wrong blocks that a call found; may be empty */
};

/* Calls return 0 or more, or a negative errno.  In arrays of blocks, -1 is skipped. */
struct payload_ops {
	/* Called in a worker that has attached. */
	int (*open)(struct payload *p);
	void (*close)(struct payload *p);
	/* The blocks are reservations of the caller; the call returns when all is written. */
	int (*write)(struct payload *p, const gpc_block *blocks, const gpc_key *keys, uint32_t n);
	/* The number of blocks that have not the bytes of their key.  kinds: GPC_RAM for those in
	 * RAM, GPC_VRAM for all others, or both. */
	int (*check)(struct payload *p, uint32_t kinds, const gpc_block *blocks,
		     const gpc_key *keys, uint32_t n);
	/* Copies from one pool to another; returns when all is copied.  bad[i]: these were not the
	 * bytes of moves[i].key. */
	int (*copy)(struct payload *p, const struct gpc_move *moves, uint32_t n, bool *bad);
	/* The stream that check() and write() use for blocks of VRAM; NULL: the payload is in no
	 * pool. */
	void *(*stream)(struct payload *p);
};

extern const struct payload_ops payload_own, payload_pool;

/* ---- files of payload_own, which the parent makes ---- */

/* A memory file that no other process sees: the cache is the replay's own.  Returns its fd, or -1
 * after a message. */
int payload_private(size_t bytes);
/* One file for all replays that use the cache `name` at once.  *ret_fresh: the file is new, so
 * blocks of earlier replays have no bytes any more.  The caller then forgets these blocks and
 * calls payload_settled.  Returns its fd, or -1 after a message. */
int payload_shared(const char *dir, const char *name, size_t bytes, bool *ret_fresh);
int payload_settled(int fd, size_t bytes);
/* The last replay that releases the file removes it. */
void payload_release(const char *dir, const char *name, int fd);

#endif
