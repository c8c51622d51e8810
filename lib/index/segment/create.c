/* SPDX-License-Identifier: Apache-2.0 */
/* create.c - making a cache that appears whole or not at all.
 *
 *   1  The lock file is made or opened, and LOCK_CREATE taken.  If there is an .idx, the answer is
 *      -EEXIST.  LOCK_MAKE is taken; another creator has it while it is in step 5.
 *   2  Leftovers of a dead creator are removed.  A lock file that was in use before is replaced:
 *      processes attached to the removed cache still hold their bytes in it.
 *   3  The id is stored in the lock file.
 *   4  ctl.tmp and idx.tmp are made: every page is allocated, then the content is filled in, `ready`
 *      last, and they are mapped.
 *   5  LOCK_CREATE is released while the memory of the RAM pool is made, and taken again.  Then
 *      idx.tmp names the memory.
 *   6  The files are renamed, the control segment first: a name that ends in .idx means a whole
 *      cache.
 *   7  All locks are released.
 *
 * A creator that is killed before the second rename of step 6 leaves files, which step 2 of the
 * next creator removes.  If it is killed after that, the cache is there, and the kernel has
 * dropped the locks.
 *
 * Step 5 takes minutes for 100 GiB.  Another creator finds LOCK_MAKE meanwhile, makes no memory of
 * its own, and waits up to its timeout (gpc_create).  A process that attaches finds no cache yet,
 * and waits the same way.  A remover gets LOCK_CREATE and takes all names away, the lock file's
 * last.  The creator notices that at the next step of its memory, or when it has LOCK_CREATE
 * again.  It gives up then and touches no name, since the names may be another creator's by then.
 * Tests: t/index/segment-names.t t/index/segment.t t/bytes/creators.t t/bytes/create-fails.t
 *   t/bytes/full.t t/bytes/names.t */
#include "index/segment/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "index/base/err.h"
#include "index/base/fd.h"
#include "index/segment/lockfile.h"
#include "index/segment/hooks.h"
#include "index/base/order.h"

#define MIB(bytes) ((unsigned long long)(((bytes) + (1u << 20) - 1) >> 20))

struct draft { /* the cache that is to be made */
	mode_t mode;
	gid_t gid;                /* or SEGMENT_LEAVE_GROUP */
	struct shm_header header; /* of the index */
	const struct gpc_config *cfg;
	struct ram_draft *memory; /* of the RAM pool; NULL: it has none */
	bool nameless;            /* the lock file has lost its name meanwhile */
};

/* ---- the draft ---- */

int segment_check_mode(uint32_t mode)
{
	if (mode & ~0660u)
		return err_set(EINVAL, "mode is %o: only the owner and a group may be let in",
			       (unsigned)mode);
	if (mode && (mode & 0600) != 0600)
		return err_set(EINVAL, "mode is %o: the owner must be able to read and write",
			       (unsigned)mode);
	return 0;
}

static int draft_mode(const struct gpc_config *cfg, struct draft *d)
{
	d->mode = cfg->mode ? cfg->mode : 0600;
	d->gid = segment_group(d->mode, cfg->gid);
	return segment_check_mode(cfg->mode);
}

/* gpc_create() has checked each device. */
static int draft_devices(const struct gpc_config *cfg, struct shm_header *h)
{
	const char *devices = cfg->devices && *cfg->devices ? cfg->devices : "none";

	int err = err_text("devices", devices, sizeof(h->devices) - 1);

	if (!err)
		strcpy(h->devices, devices);
	return err;
}

static int draw_random(const struct gpc_config *cfg, struct shm_header *h)
{
	if (cfg->secret)
		memcpy(h->secret, cfg->secret, sizeof(h->secret));
	if ((!cfg->secret && getrandom(h->secret, sizeof(h->secret), 0) != sizeof(h->secret)) ||
	    getrandom(h->id, sizeof(h->id), 0) != sizeof(h->id))
		return err_sys(EIO, "no random numbers");
	return 0;
}

static int draft_header(const struct gpc_config *cfg, struct shm_header *h)
{
	struct timespec now;
	struct layout at;
	int err;

	if ((err = geometry_from_config(cfg, &h->geometry)) || (err = draft_devices(cfg, h)) ||
	    (err = segment_boot_id(h->boot)) || (err = draw_random(cfg, h)))
		return err;
	clock_gettime(CLOCK_REALTIME, &now);
	geometry_layout(&h->geometry, &at);
	h->magic = SHM_MAGIC_INDEX;
	h->version = SHM_VERSION;
	h->endian = SHM_ENDIAN;
	h->header_bytes = sizeof(*h);
	h->page = SHM_PAGE;
	h->bytes = at.index_bytes;
	strcpy(h->hash, KEY_HASH_NAME);
	memcpy(h->layout, cfg->layout, sizeof(h->layout));
	h->block_tokens = cfg->block_tokens ? cfg->block_tokens : 16;
	h->tick_us = cfg->tick_us ? cfg->tick_us : 1000;
	h->free_target = cfg->free_target ? MAX(cfg->free_target, 0) : 64;
	h->quarantine_ms = cfg->quarantine_ms ? cfg->quarantine_ms : 1000;
	h->peer_quota = cfg->peer_quota;
	h->created_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	h->checksum = segment_header_sum(h);
	h->ready = SHM_READY;
	return 0;
}

static int draft_memory(struct draft *d)
{
	const struct gpc_config *cfg = d->cfg;

	if (!cfg->ram_memory)
		return 0;
	if (!cfg->ram_blocks)
		return err_set(EINVAL, "ram_blocks is 0: with ram_memory it must be at least 1");
	return hooks.memory_draft(cfg, cfg->ram_blocks + GEOMETRY_TRANSIT, &d->memory);
}

/* ---- files ---- */

/* fchmod is used, so that the caller's umask has no effect.  The group is set before the mode, so
 * that no other group gets in. */
static int dress(int fd, const char *path, const struct draft *d)
{
	if (d->gid != SEGMENT_LEAVE_GROUP && fchown(fd, (uid_t)-1, d->gid))
		return err_sys(errno == EPERM ? EINVAL : 0, "group %u for %s", (unsigned)d->gid,
			       path);
	if (fchmod(fd, d->mode))
		return err_sys(0, "mode of %s", path);
	return 0;
}

/* A new file, or -EEXIST. */
static int make_file(const struct segment *s, const char *suffix, const struct draft *d,
		     int *ret_fd)
{
	char path[SEGMENT_PATH];
	int fd, err;

	segment_path(s, suffix, path);
	fd = fd_open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_sys(errno == EPERM ? EACCES : 0, "creating %s", path);
	err = dress(fd, path, d);
	if (err) {
		unlink(path);
		fd_close(fd);
		return err;
	}
	*ret_fd = fd;
	return 0;
}

/* memory: the bytes that the RAM pool is going to need there as well; so the first refusal names
 * the whole need. */
static int no_space(const struct segment *s, uint64_t need, uint64_t free_bytes, uint64_t memory)
{
	uint64_t missing;

	if (free_bytes >= need + memory) /* the file system tells no limit, and nothing is left */
		free_bytes = 0;
	missing = need + memory - free_bytes;
	if (memory)
		return err_set(
			ENOSPC,
			"%s lacks %llu bytes (%llu MiB): %s needs %llu MiB, %llu MiB of them "
			"for the memory of its RAM pool, and %llu MiB are free by the limit of %s; "
			"raise it or lower ram_blocks, block_bytes, max_blocks or max_peers",
			s->dir, (unsigned long long)missing, MIB(missing), s->name,
			MIB(need + memory), MIB(memory), (unsigned long long)(free_bytes >> 20),
			segment_space_limit(s->lock_fd));
	return err_set(ENOSPC,
		       "%s lacks %llu bytes (%llu MiB): %s needs %llu MiB and %llu MiB "
		       "are free by the limit of %s; raise it or lower max_blocks or max_peers",
		       s->dir, (unsigned long long)missing, MIB(missing), s->name, MIB(need),
		       (unsigned long long)(free_bytes >> 20), segment_space_limit(s->lock_fd));
}

/* Each page is allocated now, since a hole would become SIGBUS on the day the file system is
 * full. */
static int allocate_file(const struct segment *s, int fd, uint64_t bytes)
{
	int err = segment_allocate(fd, 0, bytes);
	struct stat st;

	if (err == ENOSPC && !fstat(fd, &st))
		return no_space(s, bytes - MIN((uint64_t)st.st_blocks * 512, bytes),
				segment_free_space(s->lock_fd), 0);
	errno = err;
	return err ? err_sys(0, "%llu bytes in %s", (unsigned long long)bytes, s->dir) : 0;
}

/* Fill a new file through a mapping, since hugetlbfs has no write(2). */
static int map_new(const struct segment *s, int fd, uint64_t bytes, uint8_t **ret)
{
	int err;

	segment_advise_huge(s, fd, bytes);
	err = allocate_file(s, fd, ROUND_UP(bytes, s->unit));
	return err ? err : segment_map_pages(s, fd, bytes, PROT_READ | PROT_WRITE, ret);
}

static int write_id(const struct segment *s)
{
	uint8_t *p;
	int err = map_new(s, s->lock_fd, SHM_PAGE, &p);

	if (err)
		return err;
	memcpy(p, s->header.id, sizeof(s->header.id));
	segment_unmap_pages(s, p, SHM_PAGE);
	return 0;
}

/* ---- content ---- */

/* In the index zeros are right: records are FREE, and the table is empty.  The pools are seeded
 * elsewhere. */
static void fill_control(const struct segment *s, uint8_t *base)
{
	struct shm_shared *shared = SEG_AT(base, s->at.shared, struct shm_shared, 0);
	struct shm_section *section = SEG_AT(base, s->at.section, struct shm_section, 0);
	uint32_t i, n = s->header.geometry.max_peers * SHM_SECTIONS;

	shared->epoch = 1; /* 0 in a section means idle */
	shared->tick = 1;  /* 0 in a stamp means never used */
	for (i = 0; i < n; i++)
		section[i].ticket = 1; /* idle: done < ticket */
}

static int make_segment(const struct segment *s, const char *suffix, const struct draft *d,
			const struct shm_header *h, int *ret_fd)
{
	struct shm_header *there;
	uint8_t *p;
	int err = make_file(s, suffix, d, ret_fd);

	if (err || (err = map_new(s, *ret_fd, h->bytes, &p)))
		return err;
	there = (struct shm_header *)p;
	memcpy(there, h, offsetof(struct shm_header, ready));
	if (h->magic == SHM_MAGIC_CONTROL)
		fill_control(s, p);
	else
		segment_seed_pools(s, d->cfg, p);
	/* (A) everything is in place before the file says so.  Pairs with check_ready() in
	 * index/segment/validate.c.  If we die before it, the file still has a temporary name, and
	 * the next creator removes it. */
	store_release(&there->ready, h->ready);
	segment_unmap_pages(s, p, h->bytes);
	return 0;
}

static int rename_file(const struct segment *s, const char *from, const char *to)
{
	char old[SEGMENT_PATH], new[SEGMENT_PATH];

	segment_path(s, from, old);
	segment_path(s, to, new);
	return rename(old, new) ? err_sys(0, "renaming %s", old) : 0;
}

static int removed_meanwhile(const struct segment *s)
{
	return err_set(ECANCELED, "%s was removed while it was made", s->name);
}

/* Called at each step of the memory: is it still wanted? */
static bool is_wanted(void *arg)
{
	const struct segment *s = arg;

	return segment_is_named(s, "lock", s->lock_fd);
}

/* Others hold the lock only for a moment. */
static int lock_again(const struct segment *s)
{
	int err;

	while ((err = segment_lock_name(s)) == -EAGAIN)
		;
	return err == -ESTALE ? removed_meanwhile(s) : err;
}

/* Step 5. */
static int make_memory(const struct segment *s, struct draft *d)
{
	struct shm_pool made = { 0 };
	uint8_t *index;
	int err, lost;

	if (!d->cfg->ram_memory)
		return 0;
	lock_drop(s->lock_fd, LOCK_CREATE);
	err = hooks.memory_make(s, d->memory, is_wanted, (void *)s, &made);
	if ((lost = lock_again(s)) < 0) {
		d->nameless = true;
		return lost;
	}
	if (err || (err = segment_map_writer(s, &index)))
		return err;
	segment_seed_memory(s, d->cfg, &made, index);
	segment_unmap_writer(s, index);
	return 0;
}

/* The kernel charges a huge page that it makes later to a process that has asked for it: to the
 * maker, which is charged for the small pages, and to no other process. */
static void wish_for_huge(const struct segment *s)
{
	madvise(s->index, ROUND_UP(s->at.index_bytes, s->unit), MADV_HUGEPAGE);
	madvise(s->control, ROUND_UP(s->at.control_bytes, s->unit), MADV_HUGEPAGE);
}

/* The bytes of the RAM pool's memory that are going to lie in the cache's folder. */
static uint64_t memory_here(const struct draft *d)
{
	return d->memory ? hooks.memory_room(d->memory) : 0;
}

/* Steps 3 to 6. */
static int build(struct segment *s, struct draft *d)
{
	uint64_t need, space = segment_free_space(s->lock_fd);
	struct shm_header control;
	int err;

	s->header = d->header;
	s->unit = segment_unit(s->lock_fd);
	geometry_layout(&s->header.geometry, &s->at);
	segment_control_header(&s->header, &control);
	need = ROUND_UP(s->at.index_bytes, s->unit) + ROUND_UP(s->at.control_bytes, s->unit) +
	       s->unit;
	if (need + memory_here(d) > space)
		return no_space(s, need, space, memory_here(d));
	if ((err = segment_check_limit(
		     s, ROUND_UP(MAX(s->at.index_bytes, s->at.control_bytes), s->unit))) ||
	    (err = write_id(s)) ||
	    (err = make_segment(s, "ctl.tmp", d, &control, &s->control_fd)) ||
	    (err = make_segment(s, "idx.tmp", d, &s->header, &s->index_fd)) ||
	    (err = segment_map(s)))
		return err;
	wish_for_huge(s);
	if ((err = make_memory(s, d)) || (err = rename_file(s, "ctl.tmp", "ctl")))
		return err;
	return rename_file(s, "idx.tmp", "idx");
}

/* ---- the name ---- */

static int claim_lock_file(struct segment *s, const struct draft *d)
{
	int err;

	s->lock_fd = segment_open_file(s, "lock", O_RDWR);
	if (s->lock_fd >= 0)
		return segment_check_owner(s, s->lock_fd, "lock");
	if (s->lock_fd != -ENOENT)
		return s->lock_fd;
	err = make_file(s, "lock", d, &s->lock_fd);
	return err == -EEXIST ? -ESTALE : err; /* another creator was faster */
}

static int name_is_taken(struct segment *s)
{
	int err = -ENOENT;

	s->index_fd = segment_open_file(s, "idx", O_RDONLY);
	if (s->index_fd >= 0)
		err = segment_read_header(s);
	return err_set(EEXIST,
		       err ? "a cache %s exists in %s and cannot be used: remove it"
			   : "a cache %s exists in %s",
		       s->name, s->dir);
}

static int remove_leftovers(const struct segment *s)
{
	int err;

	if ((err = segment_remove_file(s, "idx.tmp")) || (err = segment_remove_file(s, "ctl.tmp")))
		return err;
	hooks.memory_sweep(s);
	return segment_remove_file(s, "ctl");
}

static int is_made(const struct segment *s)
{
	return err_set(EAGAIN,
		       "%s is being made by another process, which makes the memory of its RAM "
		       "pool",
		       s->name);
}

/* Steps 1 and 2; -ESTALE: start over. */
static int claim_once(struct segment *s, const struct draft *d)
{
	struct stat st;
	int err;

	if ((err = claim_lock_file(s, d)) || (err = segment_lock_name(s)))
		return err;
	if (segment_has_index(s))
		return name_is_taken(s);
	if ((err = lock_try(s->lock_fd, LOCK_MAKE)))
		return err == -EAGAIN
			       ? is_made(s)
			       : err_set(-err, "gpc.%s.lock: no lock: %s", s->name, strerror(-err));
	if ((err = remove_leftovers(s)))
		return err;
	if (fstat(s->lock_fd, &st))
		return err_sys(0, "gpc.%s.lock", s->name);
	if (!st.st_size)
		return 0;
	err = segment_remove_file(s, "lock");
	return err ? err : -ESTALE;
}

/* Most of the memory is made before others lose their patience. */
static int claim(struct segment *s, const struct draft *d)
{
	uint64_t deadline = deadline_from(SEGMENT_PATIENCE_MS);
	int err;

	while ((err = claim_once(s, d)) == -ESTALE ||
	       (err == -EAGAIN && !wait_over(clock_ns(), deadline))) {
		segment_close(s);
		if (err == -EAGAIN)
			clock_sleep(NS_PER_MS);
	}
	return err;
}

/* Remove the files, the lock file last, with its byte still held. */
static void give_up(const struct segment *s, struct draft *d)
{
	hooks.memory_end(s, d->memory, false);
	if (!d->nameless && !remove_leftovers(s))
		segment_remove_file(s, "lock");
}

int segment_create(struct segment *s, const char *name, const struct gpc_config *cfg)
{
	struct draft d = { .cfg = cfg };
	int err = segment_begin(s, name, cfg->dir);

	if (err || (err = draft_mode(cfg, &d)) || (err = draft_header(cfg, &d.header)) ||
	    (err = draft_memory(&d)))
		return err;
	if ((err = claim(s, &d))) {
		hooks.memory_end(s, d.memory, false);
		segment_close(s);
		return err;
	}
	if ((err = build(s, &d))) {
		give_up(s, &d);
		segment_close(s);
		return err;
	}
	hooks.memory_end(s, d.memory, true);
	lock_drop(s->lock_fd, LOCK_MAKE);
	lock_drop(s->lock_fd, LOCK_CREATE);
	return 0;
}
