/* SPDX-License-Identifier: Apache-2.0 */
/* remove.c - removes files of memory, with their pool, or because their maker has died.
 *
 * A pool names a number from the command that added it until the pool is FREE again.  That command
 * is carried out even if its peer has died meanwhile.  So a number in a seat's request counts,
 * too, as long as that seat's ring has a command left.
 * Tests: t/bytes/memory-sweep.t t/bytes/memory-dies.t t/bytes/memory-ranges.t */
#include "config.h"

#include "bytes/memfile/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "index/base/err.h"
#include "index/base/fd.h"
#include "index/base/order.h"
#include "index/segment/lockfile.h"
#include "index/segment/peek.h"

/* ---- is it named? ---- */

static bool seat_names(const struct segment *s, uint32_t peer, uint64_t number)
{
	uint64_t at = s->at.seat + (uint64_t)peer * sizeof(struct shm_seat), named, head, tail;

	if (seg_peek_seat_state(s, peer) == SEAT_FREE)
		return false;
	seg_peek_control(
		s, at + offsetof(struct shm_seat, request) + offsetof(struct shm_pool, memory),
		&named, sizeof(named));
	seg_peek_control(s, at + offsetof(struct shm_seat, head), &head, sizeof(head));
	seg_peek_control(s, at + offsetof(struct shm_seat, tail), &tail, sizeof(tail));
	return named == number && head != tail;
}

static bool pool_names(const struct segment *s, uint32_t pool, uint64_t number)
{
	uint64_t at = s->at.pool + (uint64_t)pool * sizeof(struct shm_pool), named;
	struct {
		uint32_t state, generation;
	} now;

	seg_peek_index(s, at, &now, sizeof(now));
	seg_peek_index(s, at + offsetof(struct shm_pool, memory), &named, sizeof(named));
	return now.state != POOL_FREE && named == number;
}

bool memory_is_of_pool(const struct segment *s, uint64_t number)
{
	uint32_t i;

	for (i = 0; i < s->header.geometry.max_pools; i++)
		if (pool_names(s, i, number))
			return true;
	return false;
}

/* The seats are read first: a command that is done by then has its pool. */
static bool is_named(const struct segment *s, uint64_t number)
{
	uint32_t i;

	if (!s->index && !s->snapshot)
		return false; /* no index, so no pool */
	for (i = 0; i < s->header.geometry.max_peers; i++)
		if (seat_names(s, i, number))
			return true;
	order_fence();
	return memory_is_of_pool(s, number);
}

/* ---- removing ---- */

static int remove_further(const struct segment *s, uint64_t number)
{
	char suffix[MEMORY_SUFFIX];
	uint32_t i;
	int err = 0;

	for (i = 1; i < SHM_FILES; i++) {
		int bad;

		memory_file_suffix(number, i, suffix);
		bad = segment_remove_file(s, suffix);
		err = err ? err : bad;
	}
	return err;
}

/* The file of huge pages goes before the file itself, which has its path.  The further files go
 * behind it: a maker that finds the file's name gone once it has made them removes them.  If we die
 * between, they are garbage without the file.  A file that somebody else has put in such a name
 * keeps none of the others. */
static int unlink_all(const struct segment *s, uint64_t number, int fd)
{
	char path[SEGMENT_PATH], suffix[MEMORY_SUFFIX];
	struct shm_run run[SHM_RUNS];
	struct shm_memory h;
	struct shm_part part;
	int err, bad;

	if (fd >= 0 && !memory_read_header(fd, &h, run) && !h.images && h.images_bytes) {
		memory_read_entry(fd, h.nruns, 0, &part);
		if (!memory_huge_path(s, number, &part, path))
			unlink(path);
	}
	memory_suffix(number, suffix);
	err = segment_remove_file(s, suffix);
	bad = remove_further(s, number);
	return err ? err : bad;
}

static int open_memory(const struct segment *s, uint64_t number)
{
	char suffix[MEMORY_SUFFIX];

	memory_suffix(number, suffix);
	return segment_open_file(s, suffix, O_RDWR);
}

int memory_remove(const struct segment *s, uint64_t number)
{
	struct shm_run run[SHM_RUNS];
	struct shm_memory h;
	int fd = open_memory(s, number), err = 0;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	if (memory_read_header(fd, &h, run) || !memcmp(h.cache, s->header.id, sizeof(h.cache)))
		err = unlink_all(s, number, fd);
	fd_close(fd);
	return err;
}

/* The file goes with the cache, whatever it contains. */
int memory_remove_named(const struct segment *s, const char *suffix, void *arg)
{
	uint64_t number = memory_suffix_number(suffix);
	int fd, err;

	(void)arg;
	if (!number)
		return memory_is_further(suffix) ? segment_remove_file(s, suffix) : 0;
	fd = open_memory(s, number);
	err = unlink_all(s, number, fd);
	if (fd >= 0)
		fd_close(fd);
	return err;
}

/* ---- sweeping ---- */

/* A cache that has lost its name must not touch the files of the next cache of that name.  So the
 * header of a file names its cache.  A file without a header, or of an earlier cache, belongs to
 * the cache whose index has the name.  The caller has MEMORY_LOCK_MADE, which the next cache's
 * maker gives up only when that cache has the name. */
static bool is_ours(const struct segment *s, const struct shm_memory *h)
{
	if (h && !memcmp(h->cache, s->header.id, sizeof(h->cache)))
		return true;
	return s->index_fd < 0 || segment_is_named(s, "idx", s->index_fd);
}

static bool is_used_vram(int fd)
{
	struct shm_run run[SHM_RUNS];
	struct shm_memory h;

	return !memory_read_header(fd, &h, run) && h.kind == GPC_VRAM &&
	       lock_test(fd, MEMORY_LOCK_USED) == 1;
}

/* While we have MEMORY_LOCK_MADE nobody can make a pool of it any more, and while we have
 * MEMORY_LOCK_USED nobody can begin to use it.  RAM needs no such check, since its bytes stay with
 * processes that have them mapped.  VRAM that is used is not locked even for a moment, since
 * memory_find_used() would take it for memory in the making. */
static bool is_garbage(const struct segment *s, uint64_t number, int fd)
{
	struct shm_run run[SHM_RUNS];
	struct shm_memory h;
	bool known;

	if (is_used_vram(fd) || lock_try(fd, MEMORY_LOCK_MADE) < 0)
		return false;
	known = memory_read_header(fd, &h, run) == 0;
	if (lock_try(fd, MEMORY_LOCK_USED) < 0 && known && h.kind == GPC_VRAM)
		return false;
	return is_ours(s, known ? &h : NULL) && !is_named(s, number);
}

/* A further file is made behind the file itself.  So it is garbage if that file is not there. */
static bool is_left_over(const struct segment *s, const char *suffix)
{
	char of[MEMORY_SUFFIX] = "";
	int fd;

	if (!memory_is_further(suffix))
		return false;
	memcpy(of, suffix, MEMORY_OWN);
	fd = segment_open_file(s, of, O_RDONLY);
	if (fd >= 0)
		fd_close(fd);
	return fd == -ENOENT;
}

static int sweep(const struct segment *s, const char *suffix, void *arg)
{
	uint64_t number = memory_suffix_number(suffix);
	int fd;

	(void)arg;
	if (is_left_over(s, suffix))
		segment_remove_file(s, suffix);
	if (!number || (fd = open_memory(s, number)) < 0)
		return 0;
	if (is_garbage(s, number, fd) && segment_is_named(s, suffix, fd))
		unlink_all(s, number, fd);
	fd_close(fd);
	return 0;
}

void memory_sweep(const struct segment *s)
{
	segment_visit(s, sweep, NULL);
}

/* ---- processes that still have it ---- */

static int find_unnamed(const struct segment *s, const char *suffix, void *arg)
{
	uint64_t number = memory_suffix_number(suffix);
	bool *found = arg;

	if ((number && !memory_is_of_pool(s, number)) || is_left_over(s, suffix))
		*found = true;
	return 0;
}

bool memory_find_unnamed(const struct segment *s)
{
	bool found = false;

	segment_visit(s, find_unnamed, &found);
	return found;
}

struct used {
	const uint8_t *uuid;
	uint64_t found;
};

static int find_used(const struct segment *s, const char *suffix, void *arg)
{
	uint64_t number = memory_suffix_number(suffix);
	struct shm_run run[SHM_RUNS];
	struct used *u = arg;
	struct shm_memory h;
	int fd;

	if (!number || (fd = open_memory(s, number)) < 0)
		return 0;
	if (!memory_read_header(fd, &h, run) && h.kind == GPC_VRAM &&
	    !memcmp(h.uuid, u->uuid, sizeof(h.uuid)) && lock_test(fd, MEMORY_LOCK_MADE) == 0 &&
	    lock_test(fd, MEMORY_LOCK_USED) == 1 && is_ours(s, &h) && !is_named(s, number))
		u->found = number;
	fd_close(fd);
	return 0;
}

uint64_t memory_find_used(const struct segment *s, const uint8_t uuid[16])
{
	struct used u = { .uuid = uuid };

	segment_visit(s, find_used, &u);
	return u.found;
}
