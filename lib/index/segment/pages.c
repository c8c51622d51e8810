/* SPDX-License-Identifier: Apache-2.0 */
/* pages.c - a segment's pages, large ones if the kernel has any.
 *
 * A lookup goes to random lines of the table, and a takeover to all lines; with pages of 4 KiB
 * each such line costs a page walk as well.  Systems leave huge pages for shared memory switched
 * off (shmem_enabled is "never") but since Linux 6.1 a process may ask for huge pages of one
 * mapping, before it is filled.  The huge pages belong to the file: a process that maps it at an
 * address of the same alignment gets them, and has no fault for each 4 KiB.
 *
 * The kernel charges a page to the control group of the process that touches it first.  It charges
 * a huge page that it makes later (khugepaged) to the group of a process that has asked for huge
 * pages there (MADV_HUGEPAGE).  So the maker touches all pages and asks for huge ones, and no
 * other process asks.
 * Tests: t/index/segment.t t/bytes/signals.t t/pages/charges.t */
#include "index/segment/files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include "index/base/err.h"
#include "index/base/fd.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define HUGE          ((uint64_t)2 << 20)
#define ALLOCATE_STEP ((uint64_t)64 << 20)

/* Address space of `bytes`, aligned so that huge pages of a file can be mapped there. */
static uint8_t *find_place(size_t bytes, size_t align)
{
	uint8_t *all = mmap(NULL, bytes + align, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint8_t *at, *end;

	if (all == MAP_FAILED)
		return NULL;
	at = (uint8_t *)ROUND_UP((uintptr_t)all, (uintptr_t)align);
	end = at + bytes;
	if (at > all)
		munmap(all, (size_t)(at - all));
	if (all + align > at)
		munmap(end, (size_t)(all + align - at));
	return at;
}

/* No child inherits the mapping, even if it is forked during the call. */
static void *map_at(void *at, size_t n, int prot, int fd, uint64_t from)
{
	void *p;

	fd_hold();
	p = mmap(at, n, prot, MAP_SHARED | MAP_FIXED, fd, (off_t)from);
	if (p != MAP_FAILED)
		madvise(p, n, MADV_DONTFORK);
	fd_release();
	return p;
}

int segment_map_ranges(const struct segment *s, const struct segment_range *range, uint32_t n,
		       int prot, uint8_t **ret)
{
	uint64_t bytes = 0, done = 0;
	uint8_t *at;
	uint32_t i;

	for (i = 0; i < n; i++)
		bytes += range[i].bytes;
	at = find_place(bytes, MAX(HUGE, segment_unit(range[0].fd)));
	for (i = 0; at && i < n; done += range[i++].bytes)
		if (map_at(at + done, range[i].bytes, prot, range[i].fd, range[i].from) ==
		    MAP_FAILED) {
			munmap(at, bytes);
			at = NULL;
		}
	if (!at)
		return err_sys(ENOMEM, "%s: mapping %llu bytes", s->name,
			       (unsigned long long)bytes);
	*ret = at;
	return 0;
}

int segment_map_pages(const struct segment *s, int fd, uint64_t bytes, int prot, uint8_t **ret)
{
	struct segment_range whole = { fd, 0, ROUND_UP(bytes, s->unit) };

	return segment_map_ranges(s, &whole, 1, prot, ret);
}

void segment_unmap_pages(const struct segment *s, uint8_t *p, uint64_t bytes)
{
	if (p)
		munmap(p, ROUND_UP(bytes, s->unit));
}

/* Kernels may undo a step when a signal comes.  The step was too long for this process then, and is
 * halved. */
int segment_allocate(int fd, uint64_t from, uint64_t bytes)
{
	uint64_t unit = segment_unit(fd), step = ROUND_UP(ALLOCATE_STEP, unit), n;
	int err = 0;

	while (bytes && (!err || err == EINTR)) {
		n = MIN(bytes, step);
		err = posix_fallocate(fd, (off_t)from, (off_t)n);
		if (err) {
			step = MAX(n / 2 / unit, 1u) * unit;
			continue;
		}
		from += n;
		bytes -= n;
	}
	return err;
}

/* The advice is only a wish.  Kernels collapse ranges that have at least one page. */
void segment_advise_huge(const struct segment *s, int fd, uint64_t bytes)
{
	uint64_t whole = bytes & ~(HUGE - 1), at;
	struct statfs fs;
	uint8_t *p;

	if (!whole || fstatfs(fd, &fs) || fs.f_type != TMPFS_MAGIC)
		return;
	for (at = 0; at < whole; at += HUGE)
		if (posix_fallocate(fd, (off_t)at, SHM_PAGE))
			return; /* the code that allocates the rest reports missing memory */
	if (segment_map_pages(s, fd, whole, PROT_READ | PROT_WRITE, &p))
		return;
	madvise(p, whole, MADV_COLLAPSE);
	segment_unmap_pages(s, p, whole);
}
