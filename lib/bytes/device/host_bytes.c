/* SPDX-License-Identifier: Apache-2.0 */
/* host_bytes.c - the host device stands in for a GPU: its VRAM is shared memory, its copies are
 * jobs of the stream.
 *
 * The memory that it allocates is the images of the pool's own file, which bytes/mapping/map.c
 * maps as it maps RAM.  So this file only deals with the parts that a caller lends: pieces of a
 * file of shared memory (host_piece.c finds them).  The handle names that file by its path, and
 * has its inode, which tells it from a later file of that name.
 * Tests: t/bytes/lent-pages.t t/bytes/maps.t */
#include "config.h"

#include "bytes/device/host_bytes.h"

#include "index/base/err.h"
#include "index/base/fd.h"
#include "index/base/order.h"
#include "bytes/device/device.h"
#include "bytes/device/host_piece.h"
#include "bytes/device/host_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef HUGETLBFS_MAGIC
#define HUGETLBFS_MAGIC 0x958458f6
#endif

uint32_t device_host_copy_fail_at;
uint32_t device_host_map_unit;
bool device_host_copy_lost;
void *device_host_captures;

struct handle { /* content of shm_part.handle */
	uint64_t device, inode;
	char path[sizeof(((struct host_piece *)0)->path)];
};
_Static_assert(sizeof(struct handle) == sizeof(((struct shm_part *)0)->handle), "a part's handle");

/* ---- lent memory, at its lender's ---- */

/* The file must be a regular file of shared memory, and long enough: 0, or an errno.  So a forged
 * handle that names another file makes nobody write to it. */
static int check_file(int fd, uint64_t at, uint64_t bytes, struct stat *ret)
{
	struct statfs fs;

	if (fstat(fd, ret) || fstatfs(fd, &fs))
		return errno;
	if (!S_ISREG(ret->st_mode) || (fs.f_type != TMPFS_MAGIC && fs.f_type != HUGETLBFS_MAGIC))
		return ENOTSUP;
	if (at > (uint64_t)ret->st_size || bytes > (uint64_t)ret->st_size - at)
		return ERANGE;
	return 0;
}

static int host_lend(const uint8_t uuid[16] UNUSED, void *base, uint64_t bytes,
		     struct shm_part *part)
{
	struct handle *h = (struct handle *)part->handle;
	struct host_piece piece;
	struct stat st;
	int fd, err;

	if (!base || !bytes || (uintptr_t)base + bytes < (uintptr_t)base)
		return host_not_lent(base, bytes, "there is no such memory");
	err = host_find_piece(base, bytes, &piece);
	if (err)
		return err;
	fd = piece.path[0] == '/' ? fd_peek(piece.path, O_RDWR | O_NONBLOCK) : -1;
	if (fd < 0)
		return host_not_lent(base, bytes,
				     "it is of no file that others can open by a name");
	err = check_file(fd, piece.at, bytes, &st);
	close(fd);
	if (!err && st.st_ino != piece.inode)
		err = ESTALE;
	if (err)
		return host_not_lent(base, bytes,
				     err == ENOTSUP ? "its file is not shared memory"
				     : err == ERANGE
					     ? "its file is shorter"
					     : "the name of its file is another file's by now");
	memset(part->handle, 0, sizeof(part->handle));
	h->device = st.st_dev;
	h->inode = st.st_ino;
	strcpy(h->path, piece.path);
	part->handle_bytes = sizeof(*h);
	part->offset = piece.at;
	part->bytes = bytes;
	return 0;
}

/* ---- lent memory, in other processes ---- */

struct mapped {
	struct mapped *next;
	uint32_t users;
	uint64_t device, inode, at, bytes;
	uint8_t *start; /* of the first page ... */
	uint64_t length;
	uint8_t *base; /* ... and of the part, in it */
};

static struct {
	pthread_mutex_t lock;
	struct mapped *first;
} mapped = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void before_fork(void)
{
	pthread_mutex_lock(&mapped.lock);
}

static void in_parent(void)
{
	pthread_mutex_unlock(&mapped.lock);
}

/* None of it is mapped here (MADV_DONTFORK).  Its memory is not freed, since that might take a
 * lock. */
static void in_child(void)
{
	mapped.first = NULL;
	pthread_mutex_unlock(&mapped.lock);
}

static void watch_fork(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

/* unit: the bytes of a page of that file; mmap wants multiples of it as offsets and lengths. */
static int map_pages(int fd, struct mapped *m, uint64_t unit)
{
	uint64_t from = m->at / unit * unit;
	void *p;

	m->length = ROUND_UP(m->at + m->bytes - from, unit);
	fd_hold(); /* no child inherits it, at whatever instant it is forked */
	p = mmap(NULL, m->length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)from);
	if (p != MAP_FAILED)
		madvise(p, m->length, MADV_DONTFORK);
	fd_release();
	if (p == MAP_FAILED)
		return err_sys(ENOMEM, "mapping %llu bytes of lent memory",
			       (unsigned long long)m->length);
	m->start = p;
	m->base = m->start + (m->at - from);
	return 0;
}

/* The handle comes from a file that any peer can write, so its words are checked before they are
 * used. */
static int open_part(const struct shm_part *part, struct mapped *m)
{
	struct handle h;
	struct stat st;
	int fd, err;

	memcpy(&h, part->handle, sizeof(h));
	h.path[sizeof(h.path) - 1] = 0;
	if (part->handle_bytes != sizeof(h) || h.path[0] != '/' || !part->bytes ||
	    part->offset + part->bytes < part->bytes)
		return err_set(EBADMSG, "a lent part is damaged");
	fd = fd_peek(h.path, O_RDWR | O_NONBLOCK);
	if (fd < 0)
		return err_sys(errno == ENOENT ? ESTALE : errno, "%s: lent memory", h.path);
	err = check_file(fd, part->offset, part->bytes, &st);
	if (!err && (st.st_ino != h.inode || st.st_dev != h.device))
		err = ESTALE;
	if (err)
		err = err_sys(err == ENOTSUP || err == ERANGE ? EBADMSG : err, "%s: lent memory",
			      h.path);
	*m = (struct mapped){ .users = 1,
			      .device = h.device,
			      .inode = h.inode,
			      .at = part->offset,
			      .bytes = part->bytes };
	if (!err)
		err = map_pages(fd, m,
				MAX(MAX((uint64_t)SHM_PAGE, (uint64_t)st.st_blksize),
				    load_relaxed(&device_host_map_unit)));
	close(fd);
	return err;
}

static struct mapped *find_mapped(const struct mapped *like)
{
	struct mapped *m;

	for (m = mapped.first; m; m = m->next)
		if (m->device == like->device && m->inode == like->inode && m->at == like->at &&
		    m->bytes == like->bytes)
			break;
	return m;
}

/* If a part is mapped twice, there is one mapping.  The file is mapped before anybody knows
 * whether that is needed: nothing is opened under the lock, since fork takes both locks. */
static int host_map(const uint8_t uuid[16] UNUSED, const struct shm_part *part, void **ret_memory,
		    void **ret_base)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct mapped *mine = malloc(sizeof(*mine)), *m;
	int err;

	if (!mine)
		return err_set(ENOMEM, "no memory for a mapping");
	pthread_once(&once, watch_fork);
	err = open_part(part, mine);
	if (err) {
		free(mine);
		return err;
	}
	pthread_mutex_lock(&mapped.lock);
	m = find_mapped(mine);
	if (m) {
		m->users++;
	} else {
		mine->next = mapped.first;
		mapped.first = mine;
	}
	pthread_mutex_unlock(&mapped.lock);
	if (m) {
		munmap(mine->start, mine->length);
		free(mine);
	}
	m = m ? m : mine;
	*ret_memory = m;
	*ret_base = m->base;
	return 0;
}

static void host_unmap(void *memory)
{
	struct mapped *m = memory, **at;

	pthread_mutex_lock(&mapped.lock);
	if (--m->users) {
		pthread_mutex_unlock(&mapped.lock);
		return;
	}
	for (at = &mapped.first; *at; at = &(*at)->next) {
		if (*at == m) {
			*at = m->next;
			break;
		}
	}
	pthread_mutex_unlock(&mapped.lock);
	munmap(m->start, m->length);
	free(m);
}

static int host_make(const uint8_t uuid[16] UNUSED, uint64_t bytes, struct shm_part *part UNUSED,
		     void **ret_memory UNUSED, void **ret_base UNUSED)
{
	return err_set(EINVAL,
		       "%llu bytes of VRAM: the host device has them in the pool's own file",
		       (unsigned long long)bytes);
}

/* ---- host memory, the only memory here, needs no registering ---- */

static int host_pin(void *base UNUSED, uint64_t bytes UNUSED)
{
	return 0;
}

static void host_unpin(void *base UNUSED)
{
}

/* ---- copies ---- */

struct copy_job {
	struct stream_job job;
	struct copy_op op;
};

struct mark_job {
	struct stream_job job;
	uint64_t *done, value;
};

void host_copy_op(const struct copy_op *op)
{
	uint64_t slice, row;

	for (slice = 0; slice < op->slices; slice++) {
		uint8_t *to = op->to + slice * op->to_slice;
		const uint8_t *from = op->from + slice * op->from_slice;

		for (row = 0; row < op->rows; row++)
			memcpy(to + row * op->to_pitch, from + row * op->from_pitch, op->width);
	}
}

static void copy_run(struct stream_job *job)
{
	if (!load_relaxed(&device_host_copy_lost))
		host_copy_op(&((struct copy_job *)job)->op);
}

static void mark_run(struct stream_job *job)
{
	struct mark_job *m = (struct mark_job *)job;

	/* (d) the bytes are stored before done; pairs with the acquire of transfer_is_done in
	 * bytes/payload/transfer.c.  If we die before it, the transfer never ends, and its targets
	 * stay reservations. */
	if (!load_relaxed(&device_host_copy_lost))
		store_release(m->done, m->value);
}

static int host_check_stream(const uint8_t uuid[16] UNUSED, void *stream)
{
	if (stream && stream == load_relaxed(&device_host_captures))
		return err_set(EINVAL,
			       "the stream captures a graph: a copy in a graph would copy the "
			       "same blocks with each launch");
	return 0;
}

static int host_find_stream(void *stream UNUSED, uint8_t ret_uuid[16])
{
	memset(ret_uuid, 0, 16);
	return 0;
}

static int host_limits(const uint8_t *to UNUSED, const uint8_t *from UNUSED,
		       struct copy_limits *ret)
{
	*ret = (struct copy_limits){ .max_pitch = UINT64_MAX, .slices = true };
	return 0;
}

/* Is this the op that a test wants to be refused? */
static bool shall_fail(void)
{
	uint32_t at = load_relaxed(&device_host_copy_fail_at);

	if (at)
		store_relaxed(&device_host_copy_fail_at, at - 1);
	return at == 1;
}

static int submit_copy(const struct copy_op *op, void *stream)
{
	struct copy_job *j = malloc(sizeof(*j));

	if (!j)
		return err_set(ENOMEM, "no memory for a job of the host device");
	*j = (struct copy_job){ .job.run = copy_run,
				.job.delay_us = load_relaxed(&device_host_delay_us),
				.op = *op };
	return stream_submit_to(stream, &j->job);
}

static int host_copy(const uint8_t uuid[16] UNUSED, const struct copy_op *ops, uint32_t n,
		     void *stream, uint32_t *ret_done)
{
	int err = 0;

	for (*ret_done = 0; *ret_done < n; ++*ret_done) {
		err = shall_fail()
			      ? err_set(EIO, "the host device refused a copy, as a test wants it")
			      : submit_copy(&ops[*ret_done], stream);
		if (err)
			break;
	}
	return err;
}

static int host_copy_pairs(const uint8_t uuid[16] UNUSED, const struct copy_shape *shapes UNUSED,
			   uint32_t nshapes UNUSED, const struct copy_pair *pairs UNUSED,
			   uint32_t npairs UNUSED, void *stream UNUSED)
{
	return err_set(EINVAL, "the host device has no kernel that copies");
}

static int host_mark(const uint8_t uuid[16] UNUSED, uint64_t *done, uint64_t value, void *stream)
{
	struct mark_job *m = malloc(sizeof(*m));

	if (!m)
		return err_set(ENOMEM, "no memory for a job of the host device");
	*m = (struct mark_job){ .job.run = mark_run,
				.job.delay_us = load_relaxed(&device_host_delay_us),
				.done = done,
				.value = value };
	return stream_submit_to(stream, &m->job);
}

static int host_mark_now(const uint8_t uuid[16], uint64_t *done, uint64_t value)
{
	return host_mark(uuid, done, value, NULL);
}

/* In tests it stands for a GPU. */
static bool host_is_integrated(const uint8_t uuid[16] UNUSED)
{
	return false;
}

static int host_state(const uint8_t uuid[16] UNUSED)
{
	return load_relaxed(&device_host_copy_lost) ? err_set(EIO, "the host device is lost") : 0;
}

const struct device_bytes device_bytes_host = {
	.in_ram = true,
	.sums = true,
	.make = host_make,
	.lend = host_lend,
	.map = host_map,
	.unmap = host_unmap,
	.pin = host_pin,
	.unpin = host_unpin,
	.check_stream = host_check_stream,
	.limits = host_limits,
	.copy = host_copy,
	.copy_pairs = host_copy_pairs,
	.mark = host_mark,
	.sum_open = host_sum_open,
	.sum_close = host_sum_close,
	.sum = host_sum,
	.mark_now = host_mark_now,
	.is_integrated = host_is_integrated,
	.state = host_state,
	.find_stream = host_find_stream,
	.event_make = host_event_make,
	.event_free = host_event_free,
	.event_record = host_event_record,
	.event_wait = host_event_wait,
	.event_passed = host_event_passed,
};
