/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_serve.h - for programs that make a cache, remove it, or are its writer: gpcd, and engines that
 * need no daemon.
 *
 * GPC_SERVE of gpc_attach and gpc_create does all the work of a writer in a thread of the process.
 * The calls at the end are for a program that serves in a loop of its own.  gpc_wait_stop ends waits
 * early.
 * Tests: t/repo/exports.t t/repo/headers.t t/repo/abi.t */
#ifndef GPC_SERVE_H
#define GPC_SERVE_H

#include "gpc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* flags of these calls, besides the flags of gpc.h */
enum {
	GPC_IF_ABSENT = 1 << 0, /* create: attach when the name exists and fits */
	GPC_STANDBY = 1 << 11   /* writer_take: wait until the present writer is gone */
};

struct gpc_memory; /* gpc_bytes.h */

struct gpc_config { /* zero = default everywhere; set size */
	uint32_t size;
	uint32_t block_tokens; /* tokens a block; default 16 */
	/* how many blocks all pools together may have at any time, transit blocks included; 0 =
	 * enough for vram_blocks and ram_blocks, or 65536 if both are 0 */
	uint32_t max_blocks;
	uint32_t max_peers;   /* default 32, at most GPC_MAX_PEERS */
	uint32_t max_pools;   /* default 16, at most GPC_MAX_POOLS */
	uint32_t vram_blocks; /* shorthand: pool 0 in space 0, no owner, demotes to pool 1 */
	uint32_t ram_blocks;  /* shorthand: pool 1 (0 without VRAM), no owner */
	/* recency step in microseconds; 0 = 1000; 1 = a new tick with every call that uses blocks
	 * (exact order of requests) */
	uint32_t tick_us;
	/* blocks that the writer keeps free in each pool ahead of demand; 0 = 64; -1 = none, the
	 * capacity is exact */
	int32_t free_target;
	/* the delay in ms before a dead peer's reserved blocks are reused, if nobody can see
	 * whether its process has exited; 0 = 1000 */
	uint32_t quarantine_ms;
	uint32_t keep_tokens;  /* 1 = keep the tokens of each block, 4 bytes each; default 0 */
	uint32_t keep_digests; /* 1 = keep a digest and a group of each block; default 0 */
	/* the most blocks that any peer may hold reserved; 0 = no limit */
	uint32_t peer_quota;
	/* mode and group of the files; 0 = 0600, group of this process; UINT32_MAX = group 0.
	 * 0660 with gid lets that group in; world bits are refused.  GPC_IF_ABSENT: the files of a cache that exists get
	 * this mode and group, if they are this user's */
	uint32_t mode, gid;
	/* a folder on a tmpfs or hugetlbfs; on a disk the cache is slower; default /dev/shm */
	const char *dir;
	const char *devices; /* mirrors to keep: "none", "host", "cuda:0,cuda:1"; default "none" */
	/* fingerprint of model, dtype, parallel and block layout; attachers bring the same or
	 * all zero */
	uint8_t layout[32];
	const struct gpc_memory *ram_memory; /* memory of the RAM pool; NULL = no memory */
	uint32_t ram_space;                  /* space of the RAM pool */
	uint32_t ram_flags;                  /* flags of the RAM pool: 0 or GPC_POOL_UNCHAINED */
	/* room for pairs of gpc_alias, 43 bytes each; 0 = an eighth of max_blocks; -1 = none */
	int32_t max_aliases;
	/* the 16-byte secret of the key hash; NULL = random.  With the same secret, a cache that is
	 * made again has the same keys.  Whoever knows it can construct keys that collide */
	const void *secret;
};

int gpc_create(const char *name, const struct gpc_config *cfg, const struct gpc_attach_options *opt,
	       uint32_t flags, gpc **ret);
/* [shared] Make the segments and attach.  cfg and opt may be NULL.  GPC_IF_ABSENT,
 * GPC_SERVE.  -EEXIST, -EPROTO (GPC_IF_ABSENT: it exists and differs), -ENOSPC (says how
 * much is missing).  -EINVAL: opt->leader is set; a companion calls gpc_attach. */

int gpc_unlink(const char *name, const char *dir);
/* [shared] Remove the names; attached processes go on. */

/* ---- settings of a cache that runs ---- */

enum {                           /* with the limits of the value */
       GPC_SET_FREE_TARGET = 1,  /* gpc_config.free_target: 0 to 2^24; 0 = keep none free */
       GPC_SET_QUOTA = 2,        /* gpc_config.peer_quota; 0 = no limit */
       GPC_SET_LOG_LEVEL = 3,    /* of gpcd, as in syslog(3): 0 to 7 */
       GPC_SET_SPILL_AHEAD = 4,  /* of a pool that demotes: 0 to its blocks */
       GPC_SET_DISK_AHEAD = 5,   /* gpc_tiers_options.ahead: 1 to 4096 */
       GPC_SET_DISK_MAX_AGE = 6, /* gpc_tiers_options.max_age_s */
       GPC_SET_SLOW_MS = 7       /* for gpc_slow_walk: 0 to 3600000; 0 = none; default 100 */
};

int gpc_setting_set(gpc *c, uint32_t what, int pool, int64_t value);
/* [shared] Set a value from now on; -1: the value that the cache, the pool or its steward was made
 * with.  pool: of SPILL_AHEAD, else -1.  The process that uses a setting reads it each time that
 * it matters; gpcd reads its level every two seconds or more often.  A setting outlives writers,
 * and is gone with the cache, or the pool.  A lower quota ends no hold. */

int gpc_setting_get(gpc *c, uint32_t what, int pool, int64_t *ret);
/* [shared] The present value; -1: not set: each gpcd, or the steward of the tiers, uses its own. */

/* ---- being the writer ---- */

int gpc_writer_take(gpc *c, uint32_t flags, int timeout_ms);
/* [shared] Take the writer's seat and recover.  -EAGAIN: the seat is taken.  GPC_STANDBY: wait for the
 * seat up to the timeout, then -ETIMEDOUT.  Without GPC_STANDBY the call waits, 2 s at most, for a
 * writer that is giving the seat up. */

int gpc_writer_serve(gpc *c, int timeout_ms);
/* [shared] Do all work that is due, and wait for work up to the timeout; returns the number of
 * commands done.  -EAGAIN: another thread has served by this handle for the whole timeout, or for two
 * seconds if that is longer; gpc_writer_take returns it, too. */

void gpc_writer_wake(gpc *c);
/* [shared] Ends the wait of the gpc_writer_serve of this handle that is running.  If none is
 * running, the next one does not wait.  Any thread and any signal handler may call it; NULL is
 * fine. */

int gpc_writer_drop(gpc *c);
/* [shared] Give up the seat.  Waits for a thread that serves by this handle.  -EAGAIN:
 * gpc_wait_stop has ended that wait. */

/* ---- waits that end early ---- */

void gpc_wait_stop(int (*stop)(void *arg), void *arg);
/* [local] From now on each waiting call of this thread asks stop(arg) at least every 0.1 s, and
 * after a signal handler that ran in this thread.  Once stop has returned another value than 0,
 * waits of the thread end as if their time was up, until the next gpc_wait_stop.  NULL: no function
 * is asked.  With a function, gpc_writer_serve returns when stop says so, and a signal handler by
 * itself no longer ends it.  stop may make calls of gpc that wait for nobody; it may not close the
 * handle.  gpc_close, gpc_dev_close, gpc_dev_wait and gpc_pool_pin have limits of their own, and do
 * not ask. */

#ifdef __cplusplus
}
#endif
#endif
