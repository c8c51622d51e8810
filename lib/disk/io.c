/* SPDX-License-Identifier: Apache-2.0 */
/* io.c - whole transfers: interrupted ones and short ones go on, and direct ones get the alignment
 * that they need.
 *
 * With O_DIRECT, memory and lengths must be aligned.  Pieces that are go as they are; an
 * image that ends within a page has that end go through a buffer; any other image goes through one as a
 * whole.  It waits for its reads in this thread, so none arrives after the process has ended. */
#include "config.h"

#include "disk/state.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/crc.h"

#define TRIES 8u                         /* without progress */

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

	advance(&v, &n, 0);              /* empty ones */
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
		if (!whole && ++tries == TRIES)  /* a page that the file ends in, or a device that stalls */
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

static uint32_t sum(const struct iovec *iov, uint32_t n)
{
	uint32_t i, crc = 0;

	for (i = 0; i < n; i++)
		crc = crc32c(crc, iov[i].iov_base, iov[i].iov_len);
	return crc;
}

/* Between the caller's pieces and a buffer: bytes from `from` on. */
static void gather(const struct iovec *iov, uint32_t n, uint8_t *buffer, uint64_t from, bool scatter)
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

/* How an image goes: `v` is what the system gets.  tail: bytes of it that go through the buffer, at the
 * image's end. */
struct way { struct iovec few[8], *v; uint32_t n; void *buffer; uint64_t tail, through; };

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

	*w = (struct way){ .tail = !d->direct ? 0 : aligned ? d->super.image_bytes % DISK_PAGE :
							      d->super.image_bytes };
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
		count_add(&d->counts.bounced, 1);
	}
	return 0;
}

static void leave_way(struct disk *d, struct way *w)
{
	give_buffer(d, w->buffer);
	if (w->v != w->few)
		free(w->v);
}

int io_write_image(struct disk *d, uint64_t slot, const struct iovec *iov, uint32_t n,
		   bool has_crc, uint32_t *crc)
{
	struct way w;
	int err = find_way(d, iov, n, &w);

	if (!err && !has_crc)
		*crc = sum(iov, n);
	if (!err && w.tail) {
		gather(iov, n, w.buffer, d->super.image_bytes - w.tail, false);
		memset((uint8_t *)w.buffer + w.tail, 0, w.through - w.tail);
	}
	if (!err)
		err = io_move(d->image_fd, true, w.v, w.n, disk_image_at(d, slot),
			      d->direct ? DISK_PAGE : 1);
	leave_way(d, &w);
	return err;
}

int io_read_image(struct disk *d, uint64_t slot, const struct iovec *iov, uint32_t n, uint32_t crc)
{
	struct way w;
	int err = find_way(d, iov, n, &w);

	if (!err)
		err = io_move(d->image_fd, false, w.v, w.n, disk_image_at(d, slot),
			      d->direct ? DISK_PAGE : 1);
	if (!err && w.tail)
		gather(iov, n, w.buffer, d->super.image_bytes - w.tail, true);
	if (!err && sum(iov, n) != crc)
		err = -EBADMSG;
	leave_way(d, &w);
	return err;
}
