/* SPDX-License-Identifier: Apache-2.0 */
/* host.c - the device that every machine has: a mirror in a file beside the
 * segments.
 *
 *   DIR/gpc.NAME.m<handle>     header  4096 bytes
 *                              table   as in the index, buckets * 64 bytes
 *                              line    128 bytes: changes that it shows, pools, spaces
 *
 * The file is the mirror's memory: its writer stores there from a thread of the
 * mirror's own, so a flush is as asynchronous as a copy to a GPU, and importers map it
 * read-only.  The handle of the descriptor is the text after the m, the mirror's
 * generation. */
#include "config.h"

#include "device/device.h"

#include "base/err.h"
#include "base/fd.h"
#include "device/host_kernel.h"
#include "base/order.h"
#include "device/host_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

uint32_t device_host_delay_us, device_host_flush_delay_us, device_host_fail_after;

struct host_header {	/* at 0; r: all; immutable after creation */
	uint64_t magic; /* SHM_MAGIC_MIRROR */
	uint32_t version, endian;
	uint32_t buckets, generation;
	uint64_t bytes;
	uint8_t id[16]; /* of the segments it mirrors */
};
_Static_assert(sizeof(struct host_header) == 48, "header of a host mirror");

struct host_mirror {
	char path[512];
	uint8_t *base;
	uint64_t bytes, entries;
	uint32_t buckets;
	pid_t pid; /* a forked child has neither mapping nor thread */
	pthread_t thread;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t work;
	bool busy, stop;
	int result; /* of the last flush */
	uint32_t flushes;
	struct launch_change *changes;
	uint32_t n;
	struct mirror_status line;
};

struct host_import {
	uint8_t *base;
	uint64_t bytes;
	pid_t pid;
};

static uint64_t table_bytes(uint32_t buckets)
{
	return (uint64_t)buckets * SHM_BUCKET * sizeof(struct probe_entry);
}

/* Of the file: hugetlbfs has larger pages than others. */
static uint64_t mirror_bytes(const struct segment *s)
{
	return ROUND_UP(SHM_PAGE + table_bytes(s->header.geometry.buckets) +
				sizeof(struct mirror_status),
			(uint64_t)s->unit);
}

static struct probe_entry *table_of(uint8_t *base)
{
	return (struct probe_entry *)(base + SHM_PAGE);
}

static struct mirror_status *line_of(uint8_t *base, uint32_t buckets)
{
	return (struct mirror_status *)(base + SHM_PAGE + table_bytes(buckets));
}

/* The handle comes from a segment: digits only, or it could name any file. */
static int mirror_path(const struct segment *s, const uint8_t handle[64], char *ret,
		       size_t room)
{
	size_t n = strnlen((const char *)handle, 64);

	if (!n || n > 10 || strspn((const char *)handle, "0123456789") != n)
		return err_set(EBADMSG, "the handle of this host mirror is none");
	if (snprintf(ret, room, "%s/gpc.%s.m%.10s", s->dir, s->name,
		     (const char *)handle) >= (int)room)
		return err_set(EINVAL, "the directory's path is too long");
	return 0;
}

static bool host_matches(const char *device)
{
	return !strcmp(device, "host");
}

/* ---- writer: flushing ---- */

/* The slot holds this entry, another one or none; readers see that, the new one, or a
 * miss: the block word is gone before the key changes, and comes back after it. */
static void store_entry(struct probe_entry *to, const struct probe_entry *e)
{
	if ((to->w[0] ^ e->w[0]) | (to->w[1] ^ e->w[1]) |
		    ((to->w[2] ^ e->w[2]) & PROBE_KEY2) ||
	    !e->w[3]) {
		store_relaxed(&to->w[3], 0);
		order_fence();
	}
	store_relaxed(&to->w[0], e->w[0]);
	store_relaxed(&to->w[1], e->w[1]);
	store_relaxed(&to->w[2], e->w[2]);
	store_release(&to->w[3], e->w[3]);
}

static void store_line(struct mirror_status *to, const struct mirror_status *line)
{
	store_relaxed(&to->ram_pools[0], line->ram_pools[0]);
	store_relaxed(&to->ram_pools[1], line->ram_pools[1]);
	store_relaxed(&to->spaces, line->spaces);
	/* (b) the entries stand before the number that covers them */
	store_release(&to->sequence, line->sequence);
}

static int apply(struct host_mirror *m)
{
	uint32_t fail_after = load_relaxed(&device_host_fail_after), i;

	m->flushes++;
	if (fail_after && m->flushes > fail_after)
		return -EIO;
	for (i = 0; i < m->n; i++)
		store_entry(&table_of(m->base)[m->changes[i].slot], &m->changes[i].entry);
	store_line(line_of(m->base, m->buckets), &m->line);
	return 0;
}

static void *flusher_run(void *arg)
{
	struct host_mirror *m = arg;
	uint64_t until;

	pthread_mutex_lock(&m->lock);
	while (!m->stop) {
		if (!m->busy) {
			pthread_cond_wait(&m->work, &m->lock);
			continue;
		}
		until = clock_ns() + load_relaxed(&device_host_flush_delay_us) * 1000ull;
		while (!m->stop && clock_ns() < until &&
		       stream_sleep(&m->work, &m->lock, until))
			;
		if (m->stop)
			break;
		m->result = apply(m);
		m->busy = false;
	}
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

static int host_flush(void *mirror, const struct launch_change *changes, uint32_t n,
		      const struct mirror_status *line)
{
	struct host_mirror *m = mirror;
	struct launch_change *copy;
	uint32_t i;
	int err = 0;

	for (i = 0; i < n; i++)
		if (changes[i].slot >= m->entries)
			return err_set(EINVAL, "entry %u is beyond the mirror's %llu",
				       changes[i].slot, (unsigned long long)m->entries);
	copy = malloc(MAX(n, 1u) * sizeof(*copy));
	if (!copy)
		return err_set(ENOMEM, "no memory for the changes of a flush");
	if (n)
		memcpy(copy, changes, n * sizeof(*copy));
	pthread_mutex_lock(&m->lock);
	if (m->busy) {
		err = err_set(EAGAIN, "a flush of this mirror is in flight");
		free(copy);
	} else {
		free(m->changes);
		m->changes = copy;
		m->n = n;
		m->line = *line;
		m->busy = true;
		pthread_cond_signal(&m->work);
	}
	pthread_mutex_unlock(&m->lock);
	return err;
}

static int host_flushed(void *mirror)
{
	struct host_mirror *m = mirror;
	int result;

	pthread_mutex_lock(&m->lock);
	result = m->busy ? -EAGAIN : m->result;
	pthread_mutex_unlock(&m->lock);
	if (result == -EIO)
		err_set(EIO, "the flush of this host mirror failed, as a test asked for");
	return result;
}

static int host_upload(void *mirror, const struct probe_entry *table, uint64_t entries,
		       const struct mirror_status *line)
{
	struct host_mirror *m = mirror;
	uint64_t i;

	if (entries != m->entries)
		return err_set(
			EINVAL, "a table of %llu entries does not fit a mirror of %llu",
			(unsigned long long)entries, (unsigned long long)m->entries);
	for (i = 0; i < entries; i++)
		store_entry(&table_of(m->base)[i], &table[i]);
	store_line(line_of(m->base, m->buckets), line);
	return 0;
}

/* ---- writer: the file ---- */

/* As open to others as the index is. */
static int like_index(const struct segment *s, int fd)
{
	char path[512];
	struct stat st;

	snprintf(path, sizeof(path), "%s/gpc.%s.idx", s->dir, s->name);
	if ((s->index_fd >= 0 ? fstat(s->index_fd, &st) : stat(path, &st)) ||
	    (st.st_mode & 0777) == 0600)
		return 0;
	if (fchown(fd, (uid_t)-1, st.st_gid) || fchmod(fd, st.st_mode & 0660))
		return err_sys(0, "cannot give a host mirror the group of its cache");
	return 0;
}

static int make_file(const struct segment *s, struct host_mirror *m)
{
	int fd, err;

	unlink(m->path); /* this generation is ours: a leftover of this name */
	fd = fd_open(m->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_sys(0, "%s: cannot be created", m->path);
	err = like_index(s, fd);
	if (!err) {
		err = posix_fallocate(fd, 0, (off_t)m->bytes);
		if (err)
			err = err_set(err, "%s: no room for %llu bytes", m->path,
				      (unsigned long long)m->bytes);
	}
	if (!err) {
		m->base = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (m->base == MAP_FAILED)
			err = err_sys(0, "%s: cannot be mapped", m->path);
		else
			madvise(m->base, m->bytes, MADV_DONTFORK);
	}
	fd_close(fd);
	if (err)
		unlink(m->path);
	return err;
}

static void fill_header(const struct segment *s, struct host_mirror *m,
			uint32_t generation)
{
	struct host_header h = {
		.magic = SHM_MAGIC_MIRROR,
		.version = SHM_VERSION,
		.endian = SHM_ENDIAN,
		.buckets = s->header.geometry.buckets,
		.generation = generation,
		.bytes = m->bytes,
	};

	memcpy(h.id, s->header.id, sizeof(h.id));
	memcpy(m->base, &h, sizeof(h));
}

static void fill_descriptor(const char *device, uint32_t generation,
			    const struct host_mirror *m, struct shm_mirror *desc)
{
	desc->bytes = m->bytes;
	memset(desc->uuid, 0, sizeof(desc->uuid));
	memset(desc->device, 0, sizeof(desc->device));
	memset(desc->handle, 0, sizeof(desc->handle));
	memcpy(desc->device, device, MIN(strlen(device), sizeof(desc->device) - 1));
	snprintf((char *)desc->handle, sizeof(desc->handle), "%u", generation);
}

static int host_create(const struct segment *s, const char *device, uint32_t generation,
		       struct shm_mirror *desc, void **ret_mirror)
{
	struct host_mirror *m = calloc(1, sizeof(*m));
	int err;

	if (!m)
		return err_set(ENOMEM, "no memory for a host mirror");
	m->bytes = mirror_bytes(s);
	m->buckets = s->header.geometry.buckets;
	m->entries = (uint64_t)m->buckets * SHM_BUCKET;
	m->pid = getpid();
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->work, NULL);
	fill_descriptor(device, generation, m, desc);
	err = mirror_path(s, desc->handle, m->path, sizeof(m->path));
	if (err)
		goto no_file;
	err = make_file(s, m);
	if (err)
		goto no_file;
	fill_header(s, m, generation);
	err = stream_thread(&m->thread, flusher_run, m);
	if (err)
		goto no_thread;
	*ret_mirror = m;
	return 0;

no_thread:
	munmap(m->base, m->bytes);
	unlink(m->path);
no_file:
	pthread_cond_destroy(&m->work);
	pthread_mutex_destroy(&m->lock);
	free(m);
	return err;
}

static void host_destroy(void *mirror)
{
	struct host_mirror *m = mirror;

	if (!m)
		return;
	if (m->pid == getpid()) {
		pthread_mutex_lock(&m->lock);
		m->stop = true;
		pthread_cond_signal(&m->work);
		pthread_mutex_unlock(&m->lock);
		pthread_join(m->thread, NULL);
		munmap(m->base, m->bytes);
		unlink(m->path);
		pthread_cond_destroy(&m->work);
		pthread_mutex_destroy(&m->lock);
	}
	free(m->changes);
	free(m);
}

static void host_sweep(const struct segment *s, const struct shm_mirror *desc)
{
	char path[512];

	if (!mirror_path(s, desc->handle, path, sizeof(path)))
		unlink(path);
}

/* ---- peer ---- */

static int check_header(const struct segment *s, const struct shm_mirror *desc, int fd,
			const char *path)
{
	uint64_t bytes = mirror_bytes(s);
	struct host_header h;
	struct stat st;

	if (fstat(fd, &st))
		return err_sys(0, "%s: cannot be looked at", path);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != bytes)
		return err_set(EBADMSG, "%s: not a mirror of this cache, or truncated",
			       path);
	if (pread(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h))
		return err_set(EBADMSG, "%s: cannot be read", path);
	if (h.magic != SHM_MAGIC_MIRROR || h.version != SHM_VERSION ||
	    h.endian != SHM_ENDIAN)
		return err_set(EBADMSG, "%s: not a mirror, or of another version", path);
	if (h.bytes != bytes || h.buckets != s->header.geometry.buckets ||
	    memcmp(h.id, s->header.id, sizeof(h.id)))
		return err_set(EBADMSG, "%s: a mirror of another cache", path);
	if (h.generation != desc->generation)
		return err_set(ESTALE, "%s: another mirror than the one described", path);
	return 0;
}

/* The mirror's file, checked: a descriptor, or a negative errno. */
static int open_mirror(const struct segment *s, const struct shm_mirror *desc)
{
	char path[512];
	int fd, err;

	err = mirror_path(s, desc->handle, path, sizeof(path));
	if (err)
		return err;
	fd = fd_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(errno == ENOENT ? ESTALE : 0,
			       "%s: the mirror cannot be opened", path);
	err = check_header(s, desc, fd, path);
	if (err) {
		fd_close(fd);
		return err;
	}
	return fd;
}

static int host_import(const struct segment *s, const struct shm_mirror *desc,
		       void **ret_import, struct dev_view *view)
{
	struct host_import *im;
	struct key_secret secret;
	int fd;

	fd = open_mirror(s, desc);
	if (fd < 0)
		return fd;
	im = malloc(sizeof(*im));
	if (!im) {
		fd_close(fd);
		return err_set(ENOMEM, "no memory to import a mirror");
	}
	im->bytes = mirror_bytes(s);
	im->pid = getpid();
	im->base = mmap(NULL, im->bytes, PROT_READ, MAP_SHARED, fd, 0);
	fd_close(fd);
	if (im->base == MAP_FAILED) {
		free(im);
		return err_sys(0, "cannot map the mirror");
	}
	madvise(im->base, im->bytes, MADV_DONTFORK);
	memset(view, 0, sizeof(*view));
	view->table = table_of(im->base);
	view->buckets = s->header.geometry.buckets;
	view->line = line_of(im->base, view->buckets);
	memcpy(&secret, s->header.secret, sizeof(secret));
	key_masks(&secret, view->mask);
	*ret_import = im;
	return 0;
}

static void host_release(void *import)
{
	struct host_import *im = import;

	if (im->pid == getpid()) /* a forked child has something else there */
		munmap(im->base, im->bytes);
	free(im);
}

/* ---- anybody ---- */

static int read_all(int fd, void *to, uint64_t bytes, uint64_t from)
{
	uint64_t at = 0;

	while (at < bytes) {
		ssize_t n = pread(fd, (char *)to + at, bytes - at, (off_t)(from + at));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(0, "the mirror's file cannot be read");
		if (!n)
			return err_set(EBADMSG, "the mirror's file is truncated");
		at += (uint64_t)n;
	}
	return 0;
}

static int host_read(const struct segment *s, const struct shm_mirror *desc,
		     struct probe_entry *table, uint64_t entries, uint64_t *ret_sequence)
{
	uint64_t bytes = table_bytes(s->header.geometry.buckets);
	int fd, err;

	if (entries * sizeof(*table) != bytes)
		return err_set(EINVAL, "a mirror has as many entries as its table");
	fd = open_mirror(s, desc);
	if (fd < 0)
		return fd;
	/* the number first: the entries are at least as new.  Pairs with (b) */
	err = read_all(fd, ret_sequence, sizeof(*ret_sequence), SHM_PAGE + bytes);
	if (!err)
		err = read_all(fd, table, bytes, SHM_PAGE);
	fd_close(fd);
	return err;
}

/* ---- launches: the seat itself has the counters ---- */

static int host_identify(const char *device UNUSED, uint8_t uuid[16])
{
	memset(uuid, 0, 16);
	return 0;
}

static int host_open(const struct segment *s, uint32_t peer, const char *device UNUSED,
		     void **ret_dev)
{
	*ret_dev = &seg_seat(s, peer)->lookups;
	return 0;
}
_Static_assert(offsetof(struct shm_seat, miss) - offsetof(struct shm_seat, lookups) ==
			       COUNT_MISS * sizeof(uint64_t) &&
		       DEVICE_COUNTERS == COUNT_MISS + 1,
	       "a seat's counters are those of a device");

static void host_close(void *dev UNUSED)
{
}

/* Each job carries its view. */
static int host_adopt(void *dev UNUSED, void *import UNUSED)
{
	return 0;
}

static void host_counted(void *dev UNUSED, uint64_t counts[DEVICE_COUNTERS])
{
	memset(counts, 0, DEVICE_COUNTERS * sizeof(counts[0]));
}

static void shift(const struct device_query *q, uint32_t *start)
{
	uint32_t i;

	for (i = 0; i <= q->nseq; i++)
		start[i] = q->start[i] - q->start[0];
}

/* By the same jobs as a launch.  The one block of memory: blocks, lengths, starts. */
static int host_ask(void *dev UNUSED, const struct dev_view *view,
		    const struct device_query *q, struct device_result *ret)
{
	uint64_t nseq = q->start ? q->nseq + 1ull : 0;
	gpc_block *blocks = malloc((q->n + 2 * nseq) * sizeof(*blocks));
	uint32_t *len, *start;
	int err;

	if (!blocks)
		return err_set(ENOMEM, "no memory for %u answers", q->n);
	len = (uint32_t *)blocks + q->n;
	start = len + nseq;
	if (q->start) {
		shift(q, start);
		err = host_kernel_match(NULL, view, q->spaces, q->keys + q->start[0], start,
					q->nseq, len, blocks, NULL);
	} else {
		err = host_kernel_lookup(NULL, view, q->spaces, q->keys, q->n, blocks, NULL);
	}
	if (!err)
		err = stream_wait(-1);
	if (err) {
		free(blocks);
		return err;
	}
	*ret = (struct device_result){ .blocks = blocks, .len = len, .memory = blocks };
	return 0;
}

static int host_wait(void *dev UNUSED, void *stream UNUSED, int timeout_ms)
{
	return stream_wait(timeout_ms);
}

static bool host_lost(void *dev UNUSED)
{
	return false;
}

const struct device_ops device_host = {
	.name = "host",
	.matches = host_matches,
	.identify = host_identify,
	.create = host_create,
	.upload = host_upload,
	.flush = host_flush,
	.flushed = host_flushed,
	.destroy = host_destroy,
	.sweep = host_sweep,
	.read = host_read,
	.import = host_import,
	.release = host_release,
	.open = host_open,
	.close = host_close,
	.adopt = host_adopt,
	.counted = host_counted,
	.ask = host_ask,
	.lookup = host_kernel_lookup,
	.match = host_kernel_match,
	.signal = host_kernel_signal,
	.wait = host_wait,
	.lost = host_lost,
};
