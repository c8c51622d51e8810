/* SPDX-License-Identifier: Apache-2.0 */
/* host_mirror.c - the writer's mirror in a file: made, uploaded, flushed by a thread of its own.
 * Tests: t/bytes/mirror.t t/bytes/device-host.t */
#include "config.h"

#include "bytes/device/host.h"

#include "index/base/err.h"
#include "index/base/fd.h"
#include "index/base/order.h"
#include "index/base/worker.h"
#include "index/segment/files.h"
#include "bytes/device/host_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

uint32_t device_host_flush_delay_us, device_host_fail_after;

struct host_mirror {
	char path[HOST_PATH];
	uint8_t *base;
	uint64_t bytes, entries;
	uint32_t buckets;
	/* a forked child has no mapping, and the file belongs to its parent */
	pid_t pid;
	struct worker flusher; /* the lock protects the following fields */
	bool busy;
	uint64_t due;
	int result; /* of the last flush */
	uint32_t flushes;
	struct launch_change *changes;
	uint32_t n;
	struct mirror_status status;
};

/* ---- flushing ---- */

/* The slot holds this entry, another one or none.  Readers see the old entry, the new one, or a
 * miss: the block word is cleared before the key changes, and stored after it. */
static void store_entry(struct probe_entry *to, const struct probe_entry *e)
{
	if ((to->w[0] ^ e->w[0]) | (to->w[1] ^ e->w[1]) | ((to->w[2] ^ e->w[2]) & PROBE_KEY2) ||
	    !e->w[3]) {
		store_relaxed(&to->w[3], 0);
		order_fence();
	}
	store_relaxed(&to->w[0], e->w[0]);
	store_relaxed(&to->w[1], e->w[1]);
	store_relaxed(&to->w[2], e->w[2]);
	store_release(&to->w[3], e->w[3]);
}

static void store_status(struct mirror_status *to, const struct mirror_status *status)
{
	store_relaxed(&to->ram_pools[0], status->ram_pools[0]);
	store_relaxed(&to->ram_pools[1], status->ram_pools[1]);
	store_relaxed(&to->spaces, status->spaces);
	/* (b) the entries are stored before the number that covers them */
	store_release(&to->sequence, status->sequence);
}

static int apply(struct host_mirror *m)
{
	uint32_t fail_after = load_relaxed(&device_host_fail_after), i;

	m->flushes++;
	if (fail_after && m->flushes > fail_after)
		return -EIO;
	for (i = 0; i < m->n; i++)
		store_entry(&host_table(m->base)[m->changes[i].slot], &m->changes[i].entry);
	store_status(host_status(m->base, m->buckets), &m->status);
	return 0;
}

static uint64_t flush_step(struct worker *w)
{
	struct host_mirror *m = w->arg;

	if (!m->busy || worker_stops(w))
		return NEVER;
	if (clock_ns() < m->due)
		return m->due;
	m->result = apply(m);
	m->busy = false;
	return NEVER;
}

static const struct worker_kind flusher_kind = { .name = "gpc-mirror",
						 .what = "for the host device",
						 .step = flush_step };

int host_flush(void *mirror, const struct launch_change *changes, uint32_t n,
	       const struct mirror_status *status)
{
	struct host_mirror *m = mirror;
	struct launch_change *copy;
	int err = device_check_changes(changes, n, m->entries);

	if (err)
		return err;
	copy = malloc(MAX(n, 1u) * sizeof(*copy));
	if (!copy)
		return err_set(ENOMEM, "no memory for the changes of a flush");
	if (n)
		memcpy(copy, changes, n * sizeof(*copy));
	worker_lock(&m->flusher);
	if (m->busy) {
		err = err_set(EAGAIN, "a flush of this mirror is in flight");
		free(copy);
	} else {
		free(m->changes);
		m->changes = copy;
		m->n = n;
		m->status = *status;
		m->busy = true;
		m->due = clock_ns() + load_relaxed(&device_host_flush_delay_us) * 1000ull;
		worker_post(&m->flusher);
	}
	worker_unlock(&m->flusher);
	return err;
}

int host_flushed(void *mirror)
{
	struct host_mirror *m = mirror;
	int result;

	worker_lock(&m->flusher);
	result = m->busy ? -EAGAIN : m->result;
	worker_unlock(&m->flusher);
	if (result == -EIO)
		err_set(EIO, "the flush of this host mirror failed, as a test asked for");
	return result;
}

int host_upload(void *mirror, const struct probe_entry *table, uint64_t entries,
		const struct mirror_status *status)
{
	struct host_mirror *m = mirror;
	uint64_t i;
	int err = device_check_entries(entries, m->entries);

	if (err)
		return err;
	for (i = 0; i < entries; i++)
		store_entry(&host_table(m->base)[i], &table[i]);
	store_status(host_status(m->base, m->buckets), status);
	return 0;
}

/* ---- the file ---- */

/* Give the file the group and the mode of the index. */
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

static int make_mirror_file(const struct segment *s, struct host_mirror *m)
{
	int fd, err;

	unlink(m->path); /* this generation is ours, so a file of this name is a leftover */
	fd = fd_open(m->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_sys(0, "%s: cannot be created", m->path);
	err = like_index(s, fd);
	if (!err)
		err = segment_check_limit(s, m->bytes);
	if (!err) {
		err = segment_allocate(fd, 0, m->bytes);
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

static void fill_header(const struct segment *s, struct host_mirror *m, uint32_t generation)
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

static void fill_descriptor(const char *device, uint32_t generation, const struct host_mirror *m,
			    struct shm_mirror *desc)
{
	desc->bytes = m->bytes;
	memset(desc->uuid, 0, sizeof(desc->uuid));
	memset(desc->handle, 0, sizeof(desc->handle));
	device_describe(device, desc);
	snprintf((char *)desc->handle, sizeof(desc->handle), "%u", generation);
}

int host_create(const struct segment *s, const char *device, uint32_t generation,
		struct shm_mirror *desc, void **ret_mirror)
{
	struct host_mirror *m = calloc(1, sizeof(*m));
	int err;

	if (!m)
		return err_set(ENOMEM, "no memory for a host mirror");
	m->bytes = host_bytes(s);
	m->buckets = s->header.geometry.buckets;
	m->entries = (uint64_t)m->buckets * SHM_BUCKET;
	m->pid = getpid();
	worker_open(&m->flusher, &flusher_kind, m);
	fill_descriptor(device, generation, m, desc);
	err = host_path(s, desc->handle, m->path);
	if (err)
		goto no_file;
	err = make_mirror_file(s, m);
	if (err)
		goto no_file;
	fill_header(s, m, generation);
	err = worker_start(&m->flusher, 1);
	if (err < 0)
		goto no_thread;
	*ret_mirror = m;
	return 0;

no_thread:
	munmap(m->base, m->bytes);
	unlink(m->path);
no_file:
	worker_close(&m->flusher);
	free(m);
	return err;
}

void host_destroy(void *mirror)
{
	struct host_mirror *m = mirror;

	if (!m)
		return;
	worker_close(&m->flusher);
	if (m->pid == getpid()) {
		munmap(m->base, m->bytes);
		unlink(m->path);
	}
	free(m->changes);
	free(m);
}

void host_sweep(const struct segment *s, const struct shm_mirror *desc)
{
	char path[HOST_PATH];

	if (!host_path(s, desc->handle, path))
		unlink(path);
}
