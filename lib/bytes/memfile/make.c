/* SPDX-License-Identifier: Apache-2.0 */
/* make.c - makes the file of a pool's memory.
 *
 *   1  The file is made, with its name, mode and group, and both locks are taken.  A process that
 *      sweeps between the name and the lock removes it, and another number is drawn.
 *   2  Header and runs are stored, with their sum, without `ready`.
 *   3  Further files are made.  With a huge_dir, the path of the other file is stored in part 0,
 *      then that file is made.
 *   4  All pages of the images are made.
 *   5  Part 0 is stored, if the images are in the file; then `ready`.
 *
 * A death in step 1 leaves an empty file.  A death in steps 2 to 5 leaves a file from whose name
 * and part 0 a sweeper learns which other files go with it.
 * Tests: t/bytes/creators.t t/bytes/full.t t/bytes/memory-file.t t/bytes/memory-ranges.t
 *   t/bytes/signals.t */
#include "config.h"

#include "bytes/memfile/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "index/base/err.h"
#include "index/base/fd.h"
#include "index/base/order.h"
#include "index/segment/lockfile.h"

#define DRAWS 8 /* numbers that are drawn while others have the name */

struct file_making {
	const struct segment *s;
	struct memory *m;
	const struct memory_pages *pages;
	char path[SEGMENT_PATH];   /* of the file */
	char folder[SEGMENT_PATH]; /* of the folder for the images: a real path */
	char huge[SEGMENT_PATH];   /* of their own file; empty: they are in the file itself */
	uint32_t unit;             /* the unit of the folder's files */
};

/* ---- files ---- */

/* Like the cache's other files: its users are in its group. */
static int dress(const struct segment *s, int fd, const char *path)
{
	struct stat like, now;

	if (fstat(s->index_fd >= 0 ? s->index_fd : s->lock_fd, &like) || fstat(fd, &now))
		return err_sys(0, "%s", path);
	if (now.st_gid != like.st_gid && like.st_mode & 0060 && fchown(fd, (uid_t)-1, like.st_gid))
		return err_sys(0, "group %u for %s", (unsigned)like.st_gid, path);
	return fchmod(fd, like.st_mode & 0660) ? err_sys(0, "mode of %s", path) : 0;
}

static int make_file(const struct segment *s, const char *path, int *ret)
{
	int fd = fd_open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600), err;

	if (fd < 0)
		return err_sys(errno == EPERM || errno == EROFS ? EACCES : 0, "creating %s", path);
	if ((err = dress(s, fd, path)) < 0) {
		unlink(path);
		fd_close(fd);
		return err;
	}
	*ret = fd;
	return 0;
}

/* -EAGAIN: a sweeper saw it before it was locked. */
static int lock_file(const struct segment *s, const char *suffix, int fd)
{
	int err = lock_try(fd, MEMORY_LOCK_MADE);

	if (err == 0)
		err = lock_share(fd, MEMORY_LOCK_USED);
	if (err == 0 && !segment_is_named(s, suffix, fd))
		err = -EAGAIN;
	return err == 0 || err == -EAGAIN
		       ? err
		       : err_set(-err, "gpc.%s.%s: no lock: %s", s->name, suffix, strerror(-err));
}

static int draw_once(struct file_making *k)
{
	char suffix[MEMORY_SUFFIX];
	int err;

	do
		if (getrandom(&k->m->number, sizeof(k->m->number), 0) != sizeof(k->m->number))
			return err_sys(EIO, "no random numbers");
	while (!k->m->number);
	memory_suffix(k->m->number, suffix);
	segment_path(k->s, suffix, k->path);
	if ((err = make_file(k->s, k->path, &k->m->fd)) < 0)
		return err == -EEXIST ? -EAGAIN : err;
	err = lock_file(k->s, suffix, k->m->fd);
	if (err < 0) {
		if (segment_is_named(k->s, suffix, k->m->fd))
			unlink(k->path);
		memory_close(k->m);
	}
	return err;
}

static int draw(struct file_making *k)
{
	int i, err = -EAGAIN;

	for (i = 0; i < DRAWS && err == -EAGAIN; i++)
		err = draw_once(k);
	return err != -EAGAIN
		       ? err
		       : err_set(EAGAIN, "%s: files of memory are removed as soon as they are made",
				 k->s->name);
}

/* A file of this number in that folder, only for the images. */
static int make_huge(struct file_making *k, struct shm_part *part, int *ret)
{
	const struct memory *m = k->m;
	uint8_t *base, *at;
	uint64_t bytes, place = memory_entry_place(m->nruns, 0);
	int err = memory_map_tables(k->s, m->fd, place, sizeof(*part), &base, &bytes, &at);

	if (err < 0)
		return err;
	memcpy(at, part, sizeof(*part)); /* its path is stored before the file is there */
	munmap(base, bytes);
	err = make_file(k->s, k->huge, ret);
	if (err < 0)
		k->huge[0] = 0; /* the existing file is none of ours */
	return err;
}

/* ---- content ---- */

static void describe(const struct file_making *k, struct shm_memory *h)
{
	const struct memory *m = k->m;

	*h = (struct shm_memory){
		.magic = SHM_MAGIC_MEMORY,
		.version = SHM_VERSION,
		.endian = SHM_ENDIAN,
		.number = m->number,
		.kind = m->kind,
		.slots = m->slots,
		.nruns = m->nruns,
		.nparts = m->nparts,
		.block_bytes = m->block_bytes,
		.images = m->images,
		.images_bytes = m->images_bytes,
		.nodes = m->nodes,
		.numa = m->numa,
		.lent = m->lent,
		.maker_pid = m->maker_pid,
		.trailers = m->trailers,
		.nsums = m->nsums,
		.files = m->files,
	};
	memcpy(h->cache, k->s->header.id, sizeof(h->cache));
	memcpy(h->fingerprint, m->fingerprint, sizeof(h->fingerprint));
	memcpy(h->uuid, m->uuid, sizeof(h->uuid));
	memcpy(h->device, m->device, sizeof(h->device));
	h->checksum = memory_sum(h, m->run);
}

static int allocate(const char *path, int fd, uint64_t bytes)
{
	int err = segment_allocate(fd, 0, bytes);

	errno = err;
	return err ? err_sys(0, "%llu bytes in %s", (unsigned long long)bytes, path) : 0;
}

static int extend(const char *path, int fd, uint64_t bytes)
{
	return ftruncate(fd, (off_t)bytes)
		       ? err_sys(0, "%llu bytes for %s", (unsigned long long)bytes, path)
		       : 0;
}

/* Of file i of the images; room is for the path of a further one. */
static const char *path_of(const struct file_making *k, uint32_t i, char room[SEGMENT_PATH])
{
	char suffix[MEMORY_SUFFIX];

	if (!i)
		return k->huge[0] ? k->huge : k->path;
	memory_file_suffix(k->m->number, i, suffix);
	segment_path(k->s, suffix, room);
	return room;
}

/* A process that removes the cache removes further files behind the file itself.  So they stay if
 * that file has its name now. */
static int check_name(const struct file_making *k)
{
	char suffix[MEMORY_SUFFIX];

	memory_suffix(k->m->number, suffix);
	return segment_is_named(k->s, suffix, k->m->fd) ? 0 : memory_gone(k->s, k->m->number, 0);
}

/* Step 3.  The caller closes all files but the first one. */
static int make_files(struct file_making *k, struct shm_part *part, struct segment_range *range)
{
	struct memory *m = k->m;
	char path[SEGMENT_PATH];
	uint32_t i;
	int err = 0;

	for (i = 0; i < m->files; i++)
		range[i] = memory_range(m, i);
	if (k->huge[0]) {
		part->handle_bytes = (uint32_t)strlen(k->huge) + 1;
		memcpy(part->handle, k->huge, part->handle_bytes);
		err = make_huge(k, part, &range[0].fd);
	}
	for (i = 1; err == 0 && i < m->files; i++)
		err = make_file(k->s, path_of(k, i, path), &range[i].fd);
	if (err == 0 && m->files > 1)
		err = check_name(k);
	for (i = 0; err == 0 && i < m->files; i++)
		err = extend(path_of(k, i, path), range[i].fd, range[i].from + range[i].bytes);
	return err;
}

/* Steps 3 and 4, and the part in step 5. */
static int make_images(struct file_making *k)
{
	struct memory *m = k->m;
	struct shm_part part = { .state = SHM_READY,
				 .bytes = m->images_bytes,
				 .offset = m->images };
	struct segment_range range[SHM_FILES];
	uint32_t i;
	int err;

	if (!m->images_bytes)
		return 0;
	err = make_files(k, &part, range);
	if (err == 0)
		err = memory_make_pages(k->s, m, range, k->folder, k->pages);
	for (i = 0; i < m->files; i++)
		if (range[i].fd >= 0 && range[i].fd != m->fd)
			fd_close(range[i].fd);
	if (err == 0 && !k->huge[0])
		err = memory_store_part(m, 0, &part);
	return err;
}

static void make_trailers(const struct memory *m, uint8_t *at)
{
	uint32_t *seed =
		(uint32_t *)(at + (uint64_t)m->slots * m->nsums * sizeof(struct shm_trailer));
	uint32_t i;

	memset(at, 0, memory_trailers_bytes(m->slots, m->nsums));
	for (i = 0; i < m->nsums; i++)
		seed[i] = m->seed;
}

/* Steps 2 to 5. */
static int fill(struct file_making *k)
{
	struct memory *m = k->m;
	uint64_t bytes = memory_tables(m), mapped;
	struct shm_memory h, *there;
	uint8_t *base, *at;
	int err;

	if ((err = allocate(k->path, m->fd, ROUND_UP(bytes, segment_unit(m->fd)))) < 0 ||
	    (err = memory_map_tables(k->s, m->fd, 0, bytes, &base, &mapped, &at)) < 0)
		return err;
	describe(k, &h);
	there = (struct shm_memory *)at;
	memcpy(at + SHM_PAGE, m->run, m->nruns * sizeof(*m->run));
	memcpy(there, &h, offsetof(struct shm_memory, ready));
	if (m->trailers) /* pages that nobody has stored to count as holes */
		make_trailers(m, at + m->trailers);
	err = make_images(k);
	/* (A) all of it, with its pages, is there before the file says so.  Pairs with read_file()
	 * in bytes/memfile/open.c.  If we die before it, no pool names the file, and it has no
	 * lock. */
	if (err == 0)
		store_release(&there->ready, SHM_READY);
	munmap(base, mapped);
	return err;
}

/* ---- what is asked for ---- */

static int find_folder(struct file_making *k)
{
	const char *dir = k->pages->huge_dir;
	char *real;

	if (!dir || !*dir || !k->m->images_bytes) {
		strcpy(k->folder, k->s->dir);
		return 0;
	}
	real = realpath(dir, NULL);
	if (!real)
		return err_sys(errno == EACCES || errno == ENOMEM ? 0 : ENOENT, "huge_dir %s", dir);
	if (strlen(real) + 1 + strlen("gpc..") + strlen(k->s->name) + MEMORY_SUFFIX >
	    sizeof(((struct shm_part *)0)->handle)) {
		free(real);
		return err_set(EINVAL,
			       "huge_dir is %s: the path of a file there must have at most "
			       "%zu bytes",
			       dir, sizeof(((struct shm_part *)0)->handle) - 1);
	}
	strcpy(k->folder, real);
	free(real);
	return 0;
}

static int check(struct file_making *k)
{
	struct memory *m = k->m;
	uint64_t need[SHM_PARTS], image;
	int err;

	if ((err = memory_check_runs(m->run, m->nruns, m->nparts, m->slots, need, &image)) < 0)
		return err;
	if ((err = err_range("block_bytes", m->block_bytes, image, image)) < 0)
		return err;
	if (m->images_bytes)
		err = err_range("images_bytes", m->images_bytes, need[0], MEMORY_BYTES / 2);
	return err;
}

/* Is there room in that folder, and may a file have so many bytes? */
static int check_file(const struct file_making *k, const char *folder, uint64_t nodes,
		      uint64_t need, uint64_t size)
{
	int err = memory_check_room(k->s, folder, nodes, need);

	return err ? err : segment_check_limit(k->s, size);
}

/* Choose the place of the images, and check that there is memory for all.  The images may be in
 * another folder than the rest. */
static int place(struct file_making *k)
{
	struct memory *m = k->m;
	uint64_t nodes, rest;
	int err = memory_check_pages(k->pages, k->folder, &m->numa, &m->nodes, &k->unit);

	m->images = 0;
	m->files = 1;
	m->nsums = MAX(m->nsums, 1u);
	if (m->trailers)
		m->trailers = ROUND_UP(memory_entry_place(m->nruns, m->nparts), SHM_PAGE);
	if (err < 0)
		return err;
	nodes = m->numa == GPC_NUMA_BIND ? m->nodes : 0;
	rest = ROUND_UP(memory_tables(m), (uint64_t)k->s->unit);
	m->images_bytes = ROUND_UP(m->images_bytes, (uint64_t)k->unit);
	if (m->images_bytes && !strcmp(k->folder, k->s->dir)) {
		m->images = ROUND_UP(ROUND_UP(memory_tables(m), SHM_IMAGES), (uint64_t)k->unit);
		if (m->kind == GPC_RAM && k->unit == SHM_PAGE)
			m->files = memory_files_for(m->images_bytes);
		return check_file(k, k->folder, nodes, rest + m->images_bytes,
				  m->images + memory_range(m, 0).bytes);
	}
	err = check_file(k, k->s->dir, 0, rest, rest);
	return err < 0 || !m->images_bytes
		       ? err
		       : check_file(k, k->folder, nodes, m->images_bytes, m->images_bytes);
}

int memory_make(const struct segment *s, struct memory *m, const struct memory_pages *pages)
{
	static const struct memory_pages usual;
	struct file_making k = { .s = s, .m = m, .pages = pages ? pages : &usual };
	char path[SEGMENT_PATH];
	uint32_t i;
	int err;

	m->fd = -1;
	m->maker_pid = (int32_t)getpid();
	if ((err = check(&k)) < 0 || (err = find_folder(&k)) < 0 || (err = place(&k)) < 0 ||
	    (err = draw(&k)) < 0)
		return err;
	if (m->images_bytes && !m->images) {
		strcat(strcat(strcpy(k.huge, k.folder), "/"), strrchr(k.path, '/') + 1);
	}
	err = fill(&k);
	if (err < 0) {
		if (k.huge[0])
			unlink(k.huge);
		unlink(k.path);
		for (i = 1; i < m->files; i++)
			unlink(path_of(&k, i, path));
		memory_close(m);
	}
	return err;
}

void memory_made(struct memory *m)
{
	lock_drop(m->fd, MEMORY_LOCK_MADE);
}
