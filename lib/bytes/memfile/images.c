/* SPDX-License-Identifier: Apache-2.0 */
/* images.c - the files of a pool's images: found, checked, mapped one behind the other.
 *
 *   images      files   where they are
 *   ----------  ------  -------------------------------------------------------------------
 *   in a file   1       in the file of memory itself
 *   in a file   2 to 4  each has its range: the file itself, then p<number>.1 and so on
 *   elsewhere   1       a file of the same name in a hugetlbfs, from its beginning on
 * Tests: t/bytes/memory-ranges.t */
#include "config.h"

#include "bytes/memfile/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "index/base/err.h"
#include "index/base/fd.h"

/* ---- ranges ---- */

uint64_t memory_cut = (uint64_t)1 << 30;

static uint64_t bytes_of_each(uint64_t images_bytes, uint32_t files)
{
	return ROUND_UP((images_bytes + files - 1) / files, SHM_IMAGES);
}

bool memory_files_fit(uint64_t images_bytes, uint32_t files)
{
	return images_bytes > (files - 1) * bytes_of_each(images_bytes, files);
}

uint32_t memory_files_for(uint64_t images_bytes)
{
	uint32_t n = (uint32_t)MIN(MAX(images_bytes / memory_cut, 1), SHM_FILES);

	while (n > 1 && !memory_files_fit(images_bytes, n))
		n--;
	return n;
}

struct segment_range memory_range(const struct memory *m, uint32_t i)
{
	uint64_t each = bytes_of_each(m->images_bytes, m->files), at = i * each;

	return (struct segment_range){ .fd = i ? -1 : m->fd,
				       .from = i ? 0 : m->images,
				       .bytes = MIN(each, m->images_bytes - at) };
}

void memory_file_suffix(uint64_t number, uint32_t i, char ret[MEMORY_SUFFIX])
{
	memory_suffix(number, ret);
	if (i)
		memcpy(ret + MEMORY_OWN, (char[]){ '.', (char)('0' + i), 0 }, 3);
}

bool memory_is_further(const char *suffix)
{
	char of[MEMORY_SUFFIX] = "";

	memcpy(of, suffix, strnlen(suffix, MEMORY_OWN));
	return memory_suffix_number(of) && suffix[MEMORY_OWN] == '.' &&
	       suffix[MEMORY_OWN + 1] > '0' && suffix[MEMORY_OWN + 1] < '0' + (int)SHM_FILES &&
	       !suffix[MEMORY_OWN + 2];
}

bool memory_is_file(const char *suffix)
{
	return memory_suffix_number(suffix) || memory_is_further(suffix);
}

/* ---- checks ---- */

int memory_forged(const struct segment *s, uint64_t number, uint32_t file, const char *why)
{
	char suffix[MEMORY_SUFFIX];

	memory_file_suffix(number, file, suffix);
	return err_set(EBADMSG, "gpc.%s.%s: %s", s->name, suffix, why);
}

int memory_gone(const struct segment *s, uint64_t number, uint32_t file)
{
	char suffix[MEMORY_SUFFIX];

	memory_file_suffix(number, file, suffix);
	return err_set(ESTALE, "gpc.%s.%s does not exist: the pool's memory has gone", s->name,
		       suffix);
}

int memory_check_extent(const struct segment *s, const struct memory *m, uint32_t i, int fd)
{
	struct segment_range r = memory_range(m, i);
	uint64_t tables = r.from ? ROUND_UP(memory_tables(m), SHM_PAGE) : 0;
	struct stat st;

	if (fstat(fd, &st))
		return err_sys(0, "file %u of gpc.%s.p%016llx", i, s->name,
			       (unsigned long long)m->number);
	if ((uint64_t)st.st_size < r.from + r.bytes)
		return memory_forged(s, m->number, i, "the file is too short for its images");
	if ((uint64_t)st.st_blocks * 512 < tables + r.bytes)
		return memory_forged(s, m->number, i, "the file is sparse");
	return 0;
}

/* A missing page would be SIGBUS on the day that there is no memory for it, and pages elsewhere
 * may hide it from the count above.  A hugetlbfs does not tell holes, but the count is exact
 * there. */
static int check_holes(const struct segment *s, const struct memory *m, uint32_t i,
		       const struct segment_range *r)
{
	off_t hole = lseek(r->fd, (off_t)r->from, SEEK_HOLE);

	if (hole >= 0 && (uint64_t)hole < r->from + r->bytes)
		return memory_forged(s, m->number, i, "the file has holes");
	return r->bytes % segment_unit(r->fd) ? memory_forged(s, m->number, i, "impossible images")
					      : 0;
}

/* ---- other files ---- */

int memory_huge_path(const struct segment *s, uint64_t number, const struct shm_part *part,
		     char ret[SEGMENT_PATH])
{
	char name[GPC_MAX_NAME + MEMORY_SUFFIX + 8], suffix[MEMORY_SUFFIX], *base;
	uint32_t n = part->handle_bytes;
	struct statfs fs;
	int bad;

	memory_suffix(number, suffix);
	snprintf(name, sizeof(name), "gpc.%s.%s", s->name, suffix);
	if (part->state != SHM_READY || !n || n > sizeof(part->handle) || part->handle[0] != '/' ||
	    part->handle[n - 1] || strnlen((const char *)part->handle, n) != n - 1)
		return memory_forged(s, number, 0, "no path of huge pages");
	memcpy(ret, part->handle, n);
	base = strrchr(ret, '/');
	if (strcmp(base + 1, name))
		return memory_forged(s, number, 0, "its huge pages have another name");
	*base = 0;
	bad = statfs(ret, &fs) || fs.f_type != HUGETLBFS_MAGIC;
	*base = '/';
	return bad ? memory_forged(s, number, 0, "its huge pages are in no hugetlbfs") : 0;
}

/* A descriptor, or -errno. */
static int open_huge(const struct segment *s, const struct memory *m)
{
	char path[SEGMENT_PATH];
	struct shm_part part;
	struct stat st;
	int fd, err;

	memory_read_entry(m->fd, m->nruns, 0, &part);
	if ((err = memory_huge_path(s, m->number, &part, path)) < 0)
		return err;
	fd = fd_open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
	if (fd < 0)
		return errno == ENOENT ? memory_gone(s, m->number, 0) : err_sys(0, "%s", path);
	if (!fstat(fd, &st) && S_ISREG(st.st_mode))
		return fd;
	fd_close(fd);
	return err_set(EBADMSG, "%s is no regular file", path);
}

static int open_further(const struct segment *s, const struct memory *m, uint32_t i)
{
	char suffix[MEMORY_SUFFIX];
	int fd;

	memory_file_suffix(m->number, i, suffix);
	fd = segment_open_file(s, suffix, s->snapshot ? O_RDONLY : O_RDWR);
	return fd == -ENOENT ? memory_gone(s, m->number, i) : fd;
}

/* The file of memory itself was checked when it was opened. */
int memory_open_range(const struct segment *s, const struct memory *m, uint32_t i)
{
	char suffix[MEMORY_SUFFIX];
	int fd, err;

	if (!i && m->images)
		return m->fd;
	fd = i ? open_further(s, m, i) : open_huge(s, m);
	if (fd < 0)
		return fd;
	memory_file_suffix(m->number, i, suffix);
	err = s->snapshot ? 0 : segment_check_owner(s, fd, suffix);
	if (err == 0)
		err = memory_check_extent(s, m, i, fd);
	if (err < 0)
		fd_close(fd);
	return err < 0 ? err : fd;
}

/* ---- mapping ---- */

int memory_map(const struct segment *s, const struct memory *m, int prot, uint8_t **ret)
{
	struct segment_range range[SHM_FILES];
	uint32_t i;
	int err = 0;

	if (!m->images_bytes)
		return err_set(ENOENT, "memory %016llx of %s has no images in a file",
			       (unsigned long long)m->number, s->name);
	for (i = 0; err == 0 && i < m->files; i++) {
		range[i] = memory_range(m, i);
		range[i].fd = memory_open_range(s, m, i);
		err = range[i].fd < 0 ? range[i].fd : check_holes(s, m, i, &range[i]);
	}
	if (err == 0)
		err = segment_map_ranges(s, range, m->files, prot, ret);
	while (i--)
		if (range[i].fd >= 0 && range[i].fd != m->fd)
			fd_close(range[i].fd);
	return err;
}

int memory_map_images(const struct segment *s, const struct memory *m, uint8_t **ret)
{
	return memory_map(s, m, PROT_READ | PROT_WRITE, ret);
}

void memory_unmap_images(const struct segment *s, const struct memory *m, uint8_t *base)
{
	(void)s;
	if (base)
		munmap(base, m->images_bytes);
}

/* ---- for a change of mode and group ---- */

int memory_open_elsewhere(const struct segment *s, const char *suffix, int fd)
{
	char path[SEGMENT_PATH];
	struct shm_run run[SHM_RUNS];
	struct shm_memory h;
	struct shm_part part;
	int huge;

	if (!memory_suffix_number(suffix) || memory_read_header(fd, &h, run) || h.images ||
	    !h.images_bytes)
		return -ENOENT;
	memory_read_entry(fd, h.nruns, 0, &part);
	if (memory_huge_path(s, memory_suffix_number(suffix), &part, path))
		return -ENOENT;
	huge = fd_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	if (huge < 0)
		return errno == ENOENT ? -ENOENT : err_sys(0, "%s", path);
	return huge;
}
