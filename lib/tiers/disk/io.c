/* SPDX-License-Identifier: Apache-2.0 */
/* io.c - whole transfers: interrupted and short ones are continued, and direct ones get the
 * alignment that they need.
 *
 * With O_DIRECT, memory and lengths must be aligned.  Aligned pieces go directly; if an image
 * ends within a page, its end goes through a buffer; any other image goes through a buffer as a
 * whole.  It waits for its reads in this thread, so none arrives after the process has ended.
 *
 * Headers and notes are stored through a mapping of the file.  A write(2) would take the inode's
 * lock exclusively.  So it would wait for every direct write under way, and these would wait for
 * it.  The kernel does the store, reading from a pipe.  If the file was cut, or its page is not
 * available, that gives an error and no signal.
 * Tests: t/tiers/straight.t t/tiers/disk-faults.t t/tiers/disk-slots.t */
#include "config.h"

#include "tiers/disk/state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "index/base/fd.h"

#define TRIES 8u /* tries without progress */

/* v without its first n bytes. */
static void advance(struct iovec **v, uint32_t *count, size_t n)
{
	while (*count && n >= (*v)->iov_len) {
		n -= (*v)->iov_len;
		(*v)++;
		(*count)--;
	}
	if (n) {
		(*v)->iov_base = (uint8_t *)(*v)->iov_base + n;
		(*v)->iov_len -= n;
	}
}

int io_move(int fd, bool write, struct iovec *v, uint32_t n, uint64_t at, uint32_t align)
{
	uint32_t tries = 0;
	ssize_t got;
	size_t whole;

	advance(&v, &n, 0); /* skip empty pieces */
	while (n) {
		int most = (int)MIN(n, (uint32_t)IOV_MAX);

		got = write ? pwritev(fd, v, most, (off_t)at) : preadv(fd, v, most, (off_t)at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (!got && !write)
			return -ENODATA;
		whole = (size_t)got / align * align;
		/* the file ends in this page, or the device stalls */
		if (!whole && ++tries == TRIES)
			return write ? -EIO : -ENODATA;
		tries = whole ? 0 : tries;
		at += whole;
		advance(&v, &n, whole);
	}
	return 0;
}

int io_read(int fd, void *to, size_t n, uint64_t at)
{
	struct iovec v = { to, n };

	return io_move(fd, false, &v, 1, at, 1);
}

int io_write(int fd, const void *from, size_t n, uint64_t at)
{
	struct iovec v = { (void *)(uintptr_t)from, n };

	return io_move(fd, true, &v, 1, at, 1);
}

/* ---- stores through the mapping ---- */

void io_map(struct disk *d, int fd)
{
	uint64_t bytes = disk_bytes(d, d->super.slots);
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);

	/* Nothing is read ahead, since pages of images have no place in the page cache. */
	posix_fadvise(d->fd, 0, 0, POSIX_FADV_RANDOM);
	if (at == MAP_FAILED)
		return; /* stores go by write(2) then */
	madvise(at, bytes, MADV_RANDOM);
	madvise(at, bytes, MADV_DONTFORK);
	d->map = at;
	d->map_bytes = bytes;
}

void io_unmap(struct disk *d)
{
	struct pipe *p;

	while ((p = d->pipes)) {
		d->pipes = p->next;
		fd_close(p->fd[0]);
		fd_close(p->fd[1]);
		free(p);
	}
	if (d->map)
		munmap(d->map, d->map_bytes);
}

static struct pipe *take_pipe(struct disk *d)
{
	struct pipe *p;

	pthread_mutex_lock(&d->buffer_lock);
	p = d->pipes;
	if (p)
		d->pipes = p->next;
	pthread_mutex_unlock(&d->buffer_lock);
	if (p)
		return p;
	p = malloc(sizeof(*p));
	if (p && fd_pipe(p->fd)) {
		free(p);
		p = NULL;
	}
	return p;
}

/* If a store failed, its pipe still has bytes. */
static void give_pipe(struct disk *d, struct pipe *p, bool good)
{
	if (!good) {
		fd_close(p->fd[0]);
		fd_close(p->fd[1]);
		free(p);
		return;
	}
	pthread_mutex_lock(&d->buffer_lock);
	p->next = d->pipes;
	d->pipes = p;
	pthread_mutex_unlock(&d->buffer_lock);
}

static int store_part(const struct pipe *p, const uint8_t *from, uint8_t *to, size_t n)
{
	ssize_t got;

	do
		got = write(p->fd[1], from, n);
	while (got < 0 && errno == EINTR);
	if (got != (ssize_t)n) /* a write of less than PIPE_BUF is never cut */
		return -EIO;
	do
		got = read(p->fd[0], to, n);
	while (got < 0 && errno == EINTR);
	return got == (ssize_t)n ? 0 : -EIO;
}

int io_store(struct disk *d, const void *from, size_t n, uint64_t at)
{
	struct pipe *p = d->map && at + n <= d->map_bytes ? take_pipe(d) : NULL;
	struct stat st;
	size_t done, part;
	int err = 0;

	if (!p)
		return io_write(d->fd, from, n, at);
	for (done = 0; done < n && !err; done += part) {
		part = MIN(n - done, (size_t)PIPE_BUF);
		err = store_part(p, (const uint8_t *)from + done, d->map + at + done, part);
	}
	give_pipe(d, p, !err);
	if (err && !fstat(d->fd, &st) && (uint64_t)st.st_size < at + n)
		err = -ENODATA;
	return err;
}

/* ---- buffers: of slot_bytes, used again ---- */

static void *take_buffer(struct disk *d)
{
	struct buffer *b;
	void *at = NULL;

	pthread_mutex_lock(&d->buffer_lock);
	b = d->buffers;
	if (b)
		d->buffers = b->next;
	pthread_mutex_unlock(&d->buffer_lock);
	if (!b && posix_memalign(&at, MAX(d->align, DISK_PAGE), d->super.slot_bytes))
		return NULL;
	return b ? (void *)b : at;
}

static void give_buffer(struct disk *d, void *at)
{
	struct buffer *b = at;

	if (!b)
		return;
	pthread_mutex_lock(&d->buffer_lock);
	b->next = d->buffers;
	d->buffers = b;
	pthread_mutex_unlock(&d->buffer_lock);
}

void io_free_buffers(struct disk *d)
{
	struct buffer *b;

	while ((b = d->buffers)) {
		d->buffers = b->next;
		free(b);
	}
}

/* ---- images ---- */

/* Copy between the caller's pieces and a buffer: bytes from `from` on. */
static void gather(const struct iovec *iov, uint32_t n, uint8_t *buffer, uint64_t from,
		   bool scatter)
{
	uint64_t at = 0, skip;
	uint32_t i;

	for (i = 0; i < n; at += iov[i++].iov_len) {
		skip = from > at ? MIN(from - at, iov[i].iov_len) : 0;
		if (skip == iov[i].iov_len)
			continue;
		if (scatter)
			memcpy((uint8_t *)iov[i].iov_base + skip, buffer + (at + skip - from),
			       iov[i].iov_len - skip);
		else
			memcpy(buffer + (at + skip - from), (uint8_t *)iov[i].iov_base + skip,
			       iov[i].iov_len - skip);
	}
}

/* The way of an image.  `v` is what the system gets.  tail: the bytes at the image's end that go
 * through the buffer. */
struct way {
	struct iovec few[8], *v;
	uint32_t n;
	void *buffer;
	uint64_t tail, through;
};

static bool is_aligned(const struct disk *d, const struct iovec *iov, uint32_t n)
{
	uint64_t tail = d->super.image_bytes % DISK_PAGE, bits = 0;
	uint32_t i;

	for (i = 0; i < n; i++)
		bits |= (uintptr_t)iov[i].iov_base | (iov[i].iov_len - (i == n - 1 ? tail : 0));
	return !(bits & (d->align - 1)) && n && iov[n - 1].iov_len >= tail;
}

static int find_way(struct disk *d, const struct iovec *iov, uint32_t n, struct way *w)
{
	bool aligned = d->direct && is_aligned(d, iov, n);

	*w = (struct way){ .tail = !d->direct ? 0
				   : aligned  ? d->super.image_bytes % DISK_PAGE
					      : d->super.image_bytes };
	w->v = n + 1 > ARRAY_SIZE(w->few) ? calloc(n + 1, sizeof(*iov)) : w->few;
	if (w->tail)
		w->buffer = take_buffer(d);
	if (!w->v || (w->tail && !w->buffer))
		return -ENOMEM;
	if (w->tail < d->super.image_bytes) {
		memcpy(w->v, iov, n * sizeof(*iov));
		w->n = n;
		w->v[n - 1].iov_len -= w->tail;
	}
	if (w->tail) {
		w->through = ROUND_UP(w->tail, DISK_PAGE);
		w->v[w->n++] = (struct iovec){ w->buffer, w->through };
	}
	return 0;
}

static void leave_way(struct disk *d, struct way *w)
{
	give_buffer(d, w->buffer);
	if (w->v != w->few)
		free(w->v);
}

static uint32_t sum(const struct disk_op *op)
{
	return sums_of(op->iov, op->niov, &op->parts, op->what.sum.seed);
}

int io_write_image(struct disk *d, struct disk_op *op)
{
	const struct iovec *iov = op->iov;
	uint32_t n = op->niov;
	struct way w;
	int err = find_way(d, iov, n, &w);

	if (!err && !op->has_crc)
		op->what.sum.crc = sum(op);
	if (!err && w.tail) {
		gather(iov, n, w.buffer, d->super.image_bytes - w.tail, false);
		memset((uint8_t *)w.buffer + w.tail, 0, w.through - w.tail);
	}
	if (!err)
		err = io_move(d->image_fd, true, w.v, w.n, disk_image_at(d, op->what.slot),
			      d->direct ? DISK_PAGE : 1);
	leave_way(d, &w);
	return err;
}

int io_read_image(struct disk *d, struct disk_op *op, uint32_t crc)
{
	const struct iovec *iov = op->iov;
	uint32_t n = op->niov;
	struct way w;
	int err = find_way(d, iov, n, &w);

	if (!err)
		err = io_move(d->image_fd, false, w.v, w.n, disk_image_at(d, op->what.slot),
			      d->direct ? DISK_PAGE : 1);
	if (!err && w.tail)
		gather(iov, n, w.buffer, d->super.image_bytes - w.tail, true);
	if (!err && sum(op) != crc)
		err = -EBADMSG;
	leave_way(d, &w);
	return err;
}
