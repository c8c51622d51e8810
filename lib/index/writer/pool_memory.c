/* SPDX-License-Identifier: Apache-2.0 */
/* pool_memory.c - requests for pools with memory, and the memory of pools that have ended.
 * Tests: t/bytes/memory-dies.t t/bytes/pool-late.t t/bytes/pool-lives.t t/bytes/pool-make.t */
#include "config.h"

#include "index/writer/pool_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "index/segment/files.h"
#include "index/segment/lockfile.h"

/* Blocks that go from one pool to the other have images of one size and one meaning.  A pool
 * without memory has no images that any other process could copy. */
static bool images_fit(const struct wpool *to, const struct shm_pool *rq)
{
	return !to->memory || !rq->memory ||
	       (to->block_bytes == rq->block_bytes &&
		!memcmp(to->fingerprint, rq->fingerprint, sizeof(to->fingerprint)));
}

/* Each memory belongs to one pool.  A command that runs again finds no pool of its first run that
 * is still ending: no block of such a pool was given to anybody, and housekeeping, which comes
 * before commands, makes the pool FREE. */
static bool is_named(const struct writer *w, uint64_t memory)
{
	uint32_t i;

	for (i = 0; i < w->max_pools; i++)
		if (w->pool[i].state != POOL_FREE && w->pool[i].memory == memory)
			return true;
	return false;
}

/* Blocks below RAM are copies, so they have a space of their own (rule B19).  They belong to one
 * process. */
static int32_t lower_check(const struct writer *w, const struct shm_pool *rq)
{
	bool lower = shm_is_lower(rq->kind);
	uint32_t i;

	if (lower && (!(rq->flags & GPC_POOL_CALLER) || rq->memory || rq->demote_to >= 0))
		return -EINVAL;
	for (i = 0; i < w->max_pools; i++)
		if (w->pool[i].state == POOL_READY && w->pool[i].space == rq->space &&
		    (lower || shm_is_lower(w->pool[i].kind)))
			return -EXDEV;
	return 0;
}

int32_t pool_memory_check(struct writer *w, const struct shm_pool *rq)
{
	int32_t err = lower_check(w, rq);

	if (err < 0)
		return err;
	if (!rq->memory)
		return rq->block_bytes ? -EINVAL : 0;
	if (!rq->block_bytes || rq->backing_size ||
	    (rq->kind == GPC_VRAM && !(rq->flags & GPC_POOL_OWNED)))
		return -EINVAL;
	if (rq->demote_to >= 0 && !images_fit(&w->pool[rq->demote_to], rq))
		return -EPROTO;
	return is_named(w, rq->memory) ? -EEXIST : 0;
}

/* The maker has the file locked until its command is answered, so nobody sweeps the file.  If the
 * maker lives now, it has had the lock since before READY, and a later holder of the lock finds
 * the pool.  If the maker is dead, a sweep may have looked before READY, and may remove the file
 * at any time.  Then the pool goes with its maker, which can tell nobody its number any more. */
bool pool_memory_maker_died(struct writer *w, uint32_t peer)
{
	return lock_test(w->lock_fd, LOCK_PEER(peer)) == 0;
}

/* Somebody may have removed further files of its images alone.  Then gpc_check() says so, and so does
 * each call that maps them. */
bool pool_memory_is_lost(struct writer *w, uint64_t memory)
{
	char suffix[24], path[SEGMENT_PATH];

	snprintf(suffix, sizeof(suffix), "p%016llx", (unsigned long long)memory);
	segment_path(&w->seg, suffix, path);
	return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}
