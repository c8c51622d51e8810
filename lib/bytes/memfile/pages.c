/* SPDX-License-Identifier: Apache-2.0 */
/* pages.c - the pages of a pool's memory are all there before anybody uses them.
 *
 * Threads take steps of the files.  In each step they allocate and touch every page by
 * MADV_POPULATE_WRITE, which returns an error where a store would raise SIGBUS.  If the kernel
 * does not know it (before Linux 5.14), they use posix_fallocate and then stores.  In a tmpfs one
 * page of each huge page comes first: then MADV_COLLAPSE makes a huge page of it, if there is any.
 *
 * An engine may start meanwhile.  So some processors have no thread of ours, unless the caller says how
 * many it wants.  A lower priority would not do: a thread that waits for a processor may hold the lock
 * of the process's mappings, and the call waits for its last step.
 *
 * A huge page goes where its first page is, whatever the file's policy says, and an interleaving
 * policy puts every 512th page on one node.  So the thread sets its own policy while it touches,
 * anew for each huge page.  Then the whole range gets its policy, for queries and for pages that
 * are swapped in.
 * Tests: t/bytes/ram-memory.t t/bytes/creators.t t/bytes/full.t t/bytes/memory-ranges.t
 *   t/bytes/signals.t t/daemon/memory.t */
#include "config.h"

#include "bytes/memfile/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <numaif.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "index/base/err.h"
#include "index/base/fd.h"
#include "index/base/order.h"
#include "index/base/parallel.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define HUGE       ((uint64_t)2 << 20)
#define STEP       ((uint64_t)64 << 20)
#define LONG_STEP  ((uint64_t)512 << 20) /* where the kernel makes huge pages of it */
#define MASK_BITS  1024u                 /* the most nodes that any kernel can have */
#define MASK_WORDS (MASK_BITS / (8 * sizeof(unsigned long)))
#define MIB(bytes) ((unsigned long long)((bytes) >> 20))

struct node_mask {
	unsigned long word[MASK_WORDS];
};

struct touch {
	uint8_t *base;
	const struct segment_range *range; /* of the files, one behind the other at base */
	uint32_t ranges;
	uint64_t unit, done, bytes, nodes;
	uint32_t numa;
	int err; /* errno of the first step that failed */
	bool collapse;
	pthread_t caller;
	const struct memory_pages *pages;
};

struct step {
	struct touch *t;
	uint32_t range;
	uint64_t at, from, bytes; /* at: in that range; from: in base */
};

/* ---- nodes ---- */

/* The nodes among the first 64 that this process may use; without NUMA the kernel has one. */
static uint64_t allowed_nodes(void)
{
	struct node_mask all = { { 0 } };

	if (get_mempolicy(NULL, all.word, MASK_BITS, NULL, MPOL_F_MEMS_ALLOWED) || !all.word[0])
		return 1;
	return all.word[0];
}

/* The set bit number n, counted in a cycle. */
static uint64_t nth_node(uint64_t nodes, uint64_t n)
{
	for (n %= (uint64_t)__builtin_popcountll(nodes); n; n--)
		nodes &= nodes - 1;
	return nodes & -nodes;
}

static int set_policy(int mode, uint64_t nodes)
{
	struct node_mask mask = { { nodes } };

	return set_mempolicy(mode, mask.word, MASK_BITS) ? errno : 0;
}

/* ---- touching ---- */

/* For kernels before Linux 5.14.  All later kernels return an error there instead of a signal. */
static int touch_old(const struct step *s, uint64_t at, uint64_t bytes)
{
	const struct segment_range *r = &s->t->range[s->range];
	volatile uint8_t *p = s->t->base + at;
	int err = segment_allocate(r->fd, r->from + s->at + (at - s->from), bytes);
	uint64_t i;

	for (i = 0; !err && i < bytes; i += s->t->unit)
		p[i] = 0; /* a new file has nothing but zeros */
	return err;
}

static int touch_range(const struct step *s, uint64_t at, uint64_t bytes)
{
	if (!madvise(s->t->base + at, bytes, MADV_POPULATE_WRITE))
		return 0;
	if (errno == EINVAL)
		return touch_old(s, at, bytes);
	return errno == EFAULT || errno == ENOMEM ? ENOSPC : errno;
}

/* Touch so many bytes of each huge page, one after the other node's if they are interleaved. */
static int touch_each(const struct step *s, uint64_t bytes)
{
	uint64_t each = MAX(HUGE, s->t->unit), end = s->from + s->bytes, at;
	int err = 0;

	for (at = s->from; !err && at < end; at += each) {
		/* if a node is full, other nodes help out */
		if (s->t->numa == GPC_NUMA_INTERLEAVE)
			err = set_policy(MPOL_PREFERRED, nth_node(s->t->nodes, at / each));
		if (!err)
			err = touch_range(s, at, MIN(bytes, end - at));
	}
	return err;
}

/* Each call first waits until all processors have done a short work.  Meanwhile it holds the lock of
 * this process's mappings, so an mmap waits, too.  Therefore one call takes the whole step.  It ends
 * where the kernel has no huge page, and does not tell where that was. */
static void collapse_step(const struct step *s)
{
	uint64_t whole = s->bytes & ~(HUGE - 1), at;
	uint8_t *base = s->t->base + s->from;

	if (!whole || !madvise(base, whole, MADV_COLLAPSE))
		return;
	for (at = 0; at < whole; at += STEP)
		madvise(base + at, MIN(STEP, whole - at), MADV_COLLAPSE);
}

/* The kernel only collapses a range that has a page, and it may have no huge pages. */
static int touch_pages(const struct step *s)
{
	int err = s->t->collapse ? touch_each(s, SHM_PAGE) : 0;

	if (err)
		return err;
	if (s->t->collapse)
		collapse_step(s);
	return s->t->numa == GPC_NUMA_INTERLEAVE ? touch_each(s, MAX(HUGE, s->t->unit))
						 : touch_range(s, s->from, s->bytes);
}

/* With the thread's own policy, which is restored afterwards. */
static int touch_by_policy(const struct step *s)
{
	struct node_mask before;
	int mode, err = 0;

	if (s->t->numa == GPC_NUMA_DEFAULT)
		return touch_pages(s);
	if (get_mempolicy(&mode, before.word, MASK_BITS, NULL, 0))
		return errno;
	if (s->t->numa == GPC_NUMA_BIND)
		err = set_policy(MPOL_BIND, s->t->nodes);
	if (!err)
		err = touch_pages(s);
	set_mempolicy(mode, mode == MPOL_DEFAULT ? NULL : before.word, MASK_BITS);
	return err;
}

static void tell(struct touch *t, uint64_t done)
{
	if (t->pages->progress && t->pages->progress(t->pages->progress_arg, done, t->bytes))
		store_relaxed(&t->err, ECANCELED);
}

/* A job of parallel_run(). */
static void touch_step(void *job)
{
	struct step *s = job;
	struct touch *t = s->t;
	uint64_t done;
	int err;

	if (load_relaxed(&t->err))
		return;
	err = touch_by_policy(s);
	if (err) {
		store_relaxed(&t->err, err);
		return;
	}
	done = order_add64(&t->done, s->bytes) + s->bytes;
	if (!load_relaxed(&t->err) && done < t->bytes && pthread_equal(pthread_self(), t->caller))
		tell(t, done);
}

static uint32_t threads_of(const struct memory_pages *p)
{
	uint32_t n = (uint32_t)MIN((uint64_t)parallel_processors(), segment_processors());

	return p->threads ? p->threads : MIN(MAX(n - MAX(n / 8, 1), 1), PARALLEL_MOST);
}

/* The next step.  Long ones come first, since each has a wait of its own.  Then they become shorter, so
 * that all threads end at about the same time. */
static uint64_t step_bytes(const struct touch *t, uint32_t threads, uint64_t left)
{
	uint64_t most = t->collapse ? LONG_STEP : STEP;
	uint64_t least = MIN(STEP, t->bytes / threads / 2);
	uint64_t each = MAX(MIN(left / threads / 2, most), MAX(least, HUGE));

	return MIN(ROUND_UP(each, MAX(HUGE, t->unit)), left);
}

/* The next step is in the file that has the most bytes left, so threads are in different files. */
static struct step next_step(struct touch *t, uint32_t threads, uint64_t left[SHM_FILES])
{
	struct step step = { .t = t };
	uint64_t before = 0, all = 0;
	uint32_t i;

	for (i = 0; i < t->ranges; i++) {
		all += left[i];
		step.range = left[i] > left[step.range] ? i : step.range;
	}
	for (i = 0; i < step.range; i++)
		before += t->range[i].bytes;
	step.at = t->range[step.range].bytes - left[step.range];
	step.from = before + step.at;
	step.bytes = MIN(step_bytes(t, threads, all), left[step.range]);
	left[step.range] -= step.bytes;
	return step;
}

/* Returns the number of steps; ret NULL: it only counts. */
static uint32_t plan_steps(struct touch *t, uint32_t threads, struct step *ret)
{
	uint64_t left[SHM_FILES], planned;
	struct step step;
	uint32_t i, n = 0;

	for (i = 0; i < t->ranges; i++)
		left[i] = t->range[i].bytes;
	for (planned = 0; planned < t->bytes; planned += step.bytes) {
		step = next_step(t, threads, left);
		if (ret)
			ret[n] = step;
		n++;
	}
	return n;
}

static int touch_all(struct touch *t)
{
	uint32_t threads = threads_of(t->pages), n = plan_steps(t, threads, NULL);
	struct step *steps = calloc(n, sizeof(*steps));

	if (!steps)
		return ENOMEM;
	plan_steps(t, threads, steps);
	parallel_run(threads, touch_step, steps, sizeof(*steps), n);
	free(steps);
	return t->err;
}

/* Set the files' own policy, for the range that is mapped. */
static int set_file_policy(const struct touch *t)
{
	struct node_mask mask = { { t->nodes } };
	int mode = t->numa == GPC_NUMA_BIND ? MPOL_BIND : MPOL_INTERLEAVE;

	if (t->numa == GPC_NUMA_DEFAULT)
		return 0;
	return mbind(t->base, t->bytes, mode, mask.word, MASK_BITS, 0) ? errno : 0;
}

/* ---- room ---- */

static int no_room(const struct segment *s, uint64_t need, uint64_t there, const char *where)
{
	return err_set(
		ENOSPC,
		"%s: the memory of a pool needs %llu bytes (%llu MiB), and %llu bytes (%llu MiB) "
		"are available %s: %llu bytes are missing; ask for fewer or smaller blocks",
		s->name, (unsigned long long)need, MIB(need), (unsigned long long)there, MIB(there),
		where, (unsigned long long)(need - there));
}

static uint64_t free_in(const char *folder)
{
	int fd = fd_peek(folder, O_RDONLY | O_DIRECTORY);
	uint64_t there = UINT64_MAX;

	if (fd >= 0) {
		there = segment_free_space(fd);
		close(fd);
	}
	return there;
}

int memory_check_room(const struct segment *s, const char *folder, uint64_t nodes, uint64_t bytes)
{
	uint64_t there = free_in(folder);
	struct statfs fs;
	char where[SEGMENT_PATH + 8];

	snprintf(where, sizeof(where), "in %s", folder);
	if (bytes > there)
		return no_room(s, bytes, there, where);
	if (!nodes || (!statfs(folder, &fs) && fs.f_type == HUGETLBFS_MAGIC))
		return 0;
	there = segment_free_on_nodes(nodes);
	snprintf(where, sizeof(where), "on the NUMA nodes 0x%llx", (unsigned long long)nodes);
	return bytes > there ? no_room(s, bytes, there, where) : 0;
}

/* ---- what is asked for ---- */

static int check_nodes(uint32_t numa, uint64_t nodes, uint64_t *ret)
{
	uint64_t allowed = allowed_nodes();

	if (numa == GPC_NUMA_DEFAULT && nodes)
		return err_set(EINVAL, "nodes is 0x%llx: without a policy in numa it must be 0",
			       (unsigned long long)nodes);
	if (nodes & ~allowed)
		return err_set(EINVAL,
			       "nodes is 0x%llx: it must be within 0x%llx, the nodes that this "
			       "process may use",
			       (unsigned long long)nodes, (unsigned long long)allowed);
	*ret = numa == GPC_NUMA_DEFAULT ? 0 : nodes ? nodes : allowed;
	return 0;
}

int memory_check_pages(const struct memory_pages *p, const char *folder, uint32_t *ret_numa,
		       uint64_t *ret_nodes, uint32_t *ret_unit)
{
	struct statfs fs;
	int err;

	if ((err = err_range("numa", p->numa, GPC_NUMA_DEFAULT, GPC_NUMA_BIND)) < 0 ||
	    (err = err_range("threads", p->threads, 0, PARALLEL_MOST)) < 0 ||
	    (err = check_nodes(p->numa, p->nodes, ret_nodes)) < 0)
		return err;
	if (statfs(folder, &fs))
		return err_sys(0, "%s%s", p->huge_dir ? "huge_dir " : "", folder);
	if (p->huge_dir && *p->huge_dir && fs.f_type != HUGETLBFS_MAGIC)
		return err_set(EINVAL, "huge_dir is %s: it must be a folder of a hugetlbfs",
			       p->huge_dir);
	*ret_numa = p->numa;
	*ret_unit = fs.f_type == HUGETLBFS_MAGIC ? MAX((uint32_t)fs.f_bsize, SHM_PAGE) : SHM_PAGE;
	return 0;
}

/* ---- all of it ---- */

static bool is_tmpfs(int fd)
{
	struct statfs fs;

	return !fstatfs(fd, &fs) && fs.f_type == TMPFS_MAGIC;
}

/* There is as much as the files have got, which is free again when they are removed. */
static int no_more(const struct segment *s, const struct memory *m, const char *folder,
		   const struct touch *t)
{
	uint64_t rest = m->images ? ROUND_UP(memory_tables(m), t->unit) : 0;
	uint64_t need = rest + t->bytes, got = 0;
	char where[SEGMENT_PATH + 8];
	struct stat st;
	uint32_t i;

	for (i = 0; i < t->ranges; i++)
		got += fstat(t->range[i].fd, &st) ? 0 : (uint64_t)st.st_blocks * 512;
	snprintf(where, sizeof(where), "in %s", folder);
	return no_room(s, need, MIN(got, need), where);
}

static int say(const struct segment *s, const struct memory *m, const char *folder,
	       const struct touch *t, int err)
{
	if (err == ECANCELED)
		return err_set(ECANCELED,
			       "%s: progress() has ended it: the memory of a pool was to have "
			       "%llu bytes, of which %llu were there",
			       s->name, (unsigned long long)t->bytes, (unsigned long long)t->done);
	if (err == ENOSPC)
		return no_more(s, m, folder, t);
	errno = err;
	return err_sys(0, "%s: memory by its policy %u on nodes 0x%llx", s->name, t->numa,
		       (unsigned long long)t->nodes);
}

int memory_make_pages(const struct segment *s, const struct memory *m,
		      const struct segment_range *range, const char *folder,
		      const struct memory_pages *p)
{
	struct touch t = {
		.range = range,
		.ranges = m->files,
		.unit = segment_unit(range[0].fd),
		.bytes = m->images_bytes,
		.nodes = m->nodes,
		.numa = m->numa,
		.collapse = is_tmpfs(range[0].fd),
		.caller = pthread_self(),
		.pages = p,
	};
	int err = segment_map_ranges(s, range, m->files, PROT_READ | PROT_WRITE, &t.base);

	if (err < 0) /* the kernel promises huge pages when they are mapped */
		return t.unit > SHM_PAGE && memory_check_room(s, folder, 0, t.bytes) < 0 ? -ENOSPC
											 : err;
	madvise(t.base, t.bytes,
		MADV_HUGEPAGE); /* only the maker asks, which is charged for all of them */
	tell(&t, 0);
	err = t.err ? t.err : touch_all(&t);
	if (!err)
		err = set_file_policy(&t);
	munmap(t.base, t.bytes);
	if (!err)
		tell(&t, t.bytes);
	return err || t.err ? say(s, m, folder, &t, err ? err : t.err) : 0;
}
