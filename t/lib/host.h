/* SPDX-License-Identifier: Apache-2.0 */
/* host.h - a cache that the test has made, and mirrors of its table on the host device. */
#ifndef GPC_T_HOST_H
#define GPC_T_HOST_H

#include <fcntl.h>
#include <pthread.h>
#include <time.h>

#include "bytes/device/device.h"
#include "made.h"
#include "bytes/mirror/dev.h"

#define KEYS 24 /* published, in block n - 1 */

static const struct device_ops *const host = &device_host;

TAP_FN void fill(struct made *m)
{
	uint32_t i;

	made_add_pool(m, 0, GPC_VRAM, 0, 0, 32);
	made_add_pool(m, 1, GPC_RAM, 0, 32, 16);
	made_add_pool(m, 2, GPC_VRAM, 3, 48, 8);
	for (i = 0; i < KEYS; i++)
		made_publish(m, (gpc_block)i, i + 1, i, i + 1);
	made_publish(m, GPC_BLOCK(1, 4), 100, KEYS, KEYS + 1);
	made_publish(m, GPC_BLOCK(2, 5), 1, 0, 1); /* key 1 in space 3, too */
	made_publish(m, GPC_BLOCK(2, 6), 101, 0, 1);
}

TAP_FN uint64_t entries(const struct made *m)
{
	return (uint64_t)m->c.seg.header.geometry.buckets * SHM_BUCKET;
}

TAP_FN int file_of(const struct made *m, const struct shm_mirror *d, int flags)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/gpc.%s.m%.20s", scratch, m->c.seg.name,
		 (const char *)d->handle);
	return open(path, flags, 0);
}

/* Mappings of that mirror's file (NULL: any mirror's) in this process, read-only ones. */
TAP_FN int imports_of(const struct made *m, const struct shm_mirror *d)
{
	char line[600], name[400];
	FILE *f = fopen("/proc/self/maps", "r");
	int n = 0;

	snprintf(name, sizeof(name), "gpc.%s.m%.20s", m->c.seg.name,
		 d ? (const char *)d->handle : "");
	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, name) && strstr(line, "r--s");
	if (f)
		fclose(f);
	return n;
}

/* Pool 1 is RAM. */
TAP_FN const struct mirror_status *status_of(uint64_t sequence)
{
	static struct mirror_status l;

	l = (struct mirror_status){ .sequence = sequence, .ram_pools = { 2 }, .spaces = 1 };
	return &l;
}

/* A mirror with the table as it is now. */
TAP_FN void *make_mirror(struct made *m, uint32_t generation, struct shm_mirror *d)
{
	void *mirror = NULL;

	memset(d, 0, sizeof(*d));
	if (host->writer.create(&m->c.seg, "host", generation, d, &mirror) ||
	    host->writer.upload(mirror, made_entry(m, 0), entries(m),
				status_of(made_state(m)->changes)))
		bail("no mirror: %s", gpc_last_error());
	d->generation = generation;
	d->flushed = made_state(m)->changes;
	d->state = MIRROR_READY;
	return mirror;
}

TAP_FN void publish_mirror(struct made *m, uint32_t i, const struct shm_mirror *d)
{
	struct shm_mirror *to = made_mirror(m, i);

	store_release(&to->state, MIRROR_NONE);
	order_fence();
	to->bytes = d->bytes;
	to->flushed = d->flushed;
	memcpy(to->device, d->device, sizeof(to->device));
	memcpy(to->handle, d->handle, sizeof(to->handle));
	store_release(&to->generation, d->generation);
	store_release(&to->state, MIRROR_READY);
}

TAP_FN int child_status(int (*run)(void *arg), void *arg)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(run(arg));
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#endif
