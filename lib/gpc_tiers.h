/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_tiers.h - tiers below RAM: bytes on disk, or with a remote store.
 *
 * One process of the cache keeps the tiers (gpcd with --disk or --remote).  Each tier is a pool of
 * the index in a space of its own.  The bytes of a block come to RAM before any other process can
 * use them.  gpc_drop and gpc_pool_clear (gpc.h) also remove blocks of the tiers; their pages say
 * which.
 * Tests: t/pages/structs.t t/repo/exports.t t/repo/headers.t t/repo/abi.t */
#ifndef GPC_TIERS_H
#define GPC_TIERS_H

#include "gpc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpc_tiers gpc_tiers; /* the tiers that this process keeps */

/* ---- for engines ---- */

/* state of a tier, see gpc_tier_get (gpc_look.h) */
enum {
	/* the store does not answer, the disk rests, or nobody keeps the tier: lookups in it miss */
	GPC_TIER_DOWN = 0,
	GPC_TIER_UP = 1,
	/* switched off until its steward starts anew: wrong bytes, or too many drops */
	GPC_TIER_OFF = 2,
	/* the steward lives and takes no questions: it is stopped, or all its threads hang.  Until
	 * it goes on, calls do not wait for it, and lookups in the tier miss */
	GPC_TIER_STOPPED = 3
};

/* flags of gpc_prefetch */
enum {
	GPC_BELOW = 1 << 24, /* the other way: blocks in RAM get copies below */
};

int gpc_prefetch(gpc *c, int to, const gpc_key *keys, uint32_t n, uint32_t flags, int timeout_ms);
/* [shared] Ask the process that keeps the tiers to bring the keys of one prompt, as far as they are below
 * RAM, to RAM: to RAM of the space of pool `to`, if it has images like theirs, else to any RAM.  Waits
 * up to the timeout and returns how many of the first keys are in VRAM or RAM then.  Timeout 0 asks for
 * the first 1024 missing keys, and returns how many are there now.  The question goes on without the
 * caller.  Nothing is held: call gpc_acquire next, or gpc_fetch, which asks by itself if it has time.
 * While a block is on its way its key is PENDING (gpc_claim).  Bytes that are damaged, late, or cleared
 * meanwhile are misses, and so are all keys while no block of RAM is free.
 * GPC_BELOW: blocks with these keys in RAM of the space of `to`, held or not, get copies below before RAM
 * needs their room, and so do their ancestors; the keys need not be of one prompt.  With time, returns
 * how many have a copy or are to get one; timeout 0 returns 0.  gpc_tiers_sync waits for the writes.
 * -ENOTCONN: the steward has ended, and the first missing key may be below RAM.
 * -EAGAIN: 4 questions of this handle are under way; each call leaves a new one.  A call waits for a
 * stopped steward once, at most for five seconds, and later calls do not ask until it goes on
 * (GPC_TIER_STOPPED). */

int gpc_tiers_sync(gpc *c, int timeout_ms);
/* [shared] Returns when the steward of the tiers has nothing left to do.  Then the blocks of the
 * file are published, blocks that are next to go from RAM are written as far as the policy wants
 * it, and removed blocks are gone from the disk for ever.  gpc_drop and gpc_pool_clear
 * themselves wait for the removals.  -ENOTCONN: nobody keeps the tiers, or another process began to
 * keep them during the call. */

/* ---- for their steward ---- */

struct gpc_tiers_options { /* zero = default; set size */
	uint32_t size;
	uint32_t flags;     /* GPC_TIERS_... */
	const char *dir;    /* of the cache; /dev/shm */
	int32_t timeout_ms; /* time for the cache, a seat and a writer to appear */
	/* 1 + the RAM pool whose images the tiers have; 0 = the first RAM pool with memory.  Other
	 * RAM pools with images of the same size and fingerprint are served, too */
	int32_t ram;
	/* path of a file; a missing file is made, with mode 0600; NULL = no disk */
	const char *disk;
	/* about the size of that file; 0 = as it is, and a new file needs disk_blocks */
	uint64_t disk_bytes;
	uint32_t disk_blocks;  /* or its size in blocks; 0 = as many as disk_bytes has room for */
	uint32_t disk_space;   /* space of its pool; 0 = the highest space without pools */
	uint32_t disk_threads; /* threads that read and write; default 8, at most 64 */
	/* the number of blocks, next to go from each RAM pool, that have a copy below before they
	 * go.  Their ancestors in the pool have a copy, too, if the tier has as many blocks as RAM.
	 * With GPC_TIERS_EXCLUSIVE this number of blocks of RAM is kept free, and at least half of
	 * it at any time.  0 = a quarter of the pool or of the tier, whichever is less, with
	 * GPC_TIERS_EXCLUSIVE a sixteenth of the pool; 64 to 4096 */
	uint32_t ahead;
	/* a block is written when it is next to go for the Nth time since this steward began;
	 * 0 and 1 = the first time */
	uint32_t min_uses;
	uint32_t max_age_s;  /* blocks that were written longer ago are removed; 0 = no limit */
	uint64_t write_rate; /* most bytes written in a second; 0 = no limit */
	uint32_t questions;  /* questions that are answered at a time; default 4, at most 16 */
	uint32_t reserved;
	/* a store on other machines: NAME:word=value,... of a plugin; NULL = none */
	const char *remote;
	/* version of the cached content, 1 to 32 bytes of [A-Za-z0-9._-]: a cache with another tag
	 * finds none of this content; NULL = "0" */
	const char *remote_tag;
	/* the number of keys in the store that are known here; 0 = 4 times the RAM pool, at least 65536 */
	uint32_t remote_blocks;
	uint32_t remote_space; /* space of its pool; 0 = the highest space without pools */
	uint32_t remote_uses;  /* min_uses for the store */
	uint32_t remote_ms;    /* time for a call to the store; 0 = 2000 */
	/* the secret, 16 bytes, with which the cache was made: the file keeps no copy of it, and a
	 * file that was written under another secret is refused.  NULL = the file keeps the secret
	 * of the cache */
	const void *secret;
	void (*log)(void *arg, int level, const char *text); /* level as in syslog(3) */
	void *log_arg;
};
enum {
	/* a block is in RAM or below it: a block that was brought up leaves the disk, and a written
	 * block leaves RAM.  Default: both keep it */
	GPC_TIERS_EXCLUSIVE = 1 << 0,
	/* a file of another size is grown, or cut: blocks beyond the new end are lost */
	GPC_TIERS_RESIZE = 1 << 1,
	/* the file goes through the page cache; default: O_DIRECT where it can */
	GPC_TIERS_BUFFERED = 1 << 2,
	/* a damaged file of ours is refused; default: it is renamed to DISK.bad, and a new one made */
	GPC_TIERS_STRICT = 1 << 3,
	/* Nothing is opened, and *ret is NULL.  The secret, the file and the room are compared with
	 * those of the cache, by a process that may take the tiers over later.  Tiers that are kept
	 * now count as gone.  The file alone is compared first, so -ENOENT may stand for "there is no
	 * cache".  disk and remote may be NULL: the secret alone */
	GPC_TIERS_CHECK = 1 << 4
};

int gpc_tiers_open(const char *name, const struct gpc_tiers_options *opt, gpc_tiers **ret);
/* [writer] Attach to the cache as a peer of its own, and keep its tiers below RAM with threads of
 * this process, until gpc_tiers_close.  Each tier is a pool of the index (GPC_DISK) in a space of
 * its own.  Its blocks can be looked up, counted, walked, dropped and cleared like others.  The pool
 * is removed when this process ends, and the file stays: the next call publishes its blocks again,
 * in the background, and gpc_tiers_sync waits for that.  -EBUSY: another process keeps the tiers of
 * this cache, or has the file.  -EPROTO: the file is no disk file of gpc, or has another version,
 * image size, fingerprint or secret.  -EACCES: the file is another user's, or other users may read
 * it.  -EBADMSG: damaged.  -ENOSPC: no room for the file, or for its blocks in the cache
 * (max_blocks), or for another pool (max_pools).  -ENOENT: no such RAM pool.  In each case the file
 * is as it was, and the sentence has the remedy.  -ENOTCONN: no writer. */

int gpc_tiers_close(gpc_tiers *t);
/* [writer] Answers open questions with the blocks that have come so far, ends the threads, and removes
 * the pools.  Waits for the writer for two seconds at most.  NULL is fine. */

struct gpc_tiers_file { /* an existing file.  set size */
	uint32_t size;
	uint32_t has_secret; /* 1: the file keeps the secret of its cache */
	uint64_t blocks, block_bytes, bytes;
	uint8_t secret[16]; /* with which its keys were hashed: for gpc_config.secret */
};

int gpc_tiers_file_get(const char *disk, struct gpc_tiers_file *ret);
/* [local] Read the header of such a file, for a program that makes the cache of the file anew.  The
 * call needs no steward, and does not lock the file.  -ENOENT: no such file.  -EPROTO, -EBADMSG,
 * -EACCES as above. */

#ifdef __cplusplus
}
#endif
#endif
