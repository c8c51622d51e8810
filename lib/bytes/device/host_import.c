/* SPDX-License-Identifier: Apache-2.0 */
/* host_import.c - a host mirror of any process: its file found, checked, mapped and read.
 * Tests: t/bytes/device-namespaces.t t/bytes/device-host.t */
#include "config.h"

#include "bytes/device/host.h"

#include "index/base/err.h"
#include "index/base/fd.h"
#include "index/base/key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct host_import {
	uint8_t *base;
	uint64_t bytes;
	pid_t pid;
};

/* The handle comes from a segment.  Only digits are allowed, or it could name any file. */
int host_path(const struct segment *s, const uint8_t handle[64], char ret[HOST_PATH])
{
	size_t n = strnlen((const char *)handle, 64);

	if (!n || n > 10 || strspn((const char *)handle, "0123456789") != n)
		return err_set(EBADMSG, "the handle of this host mirror is none");
	if (snprintf(ret, HOST_PATH, "%s/gpc.%s.m%.10s", s->dir, s->name, (const char *)handle) >=
	    HOST_PATH)
		return err_set(EINVAL, "the directory's path is too long");
	return 0;
}

static int check_header(const struct segment *s, const struct shm_mirror *desc, int fd,
			const char *path)
{
	uint64_t bytes = host_bytes(s);
	struct host_header h;
	struct stat st;

	if (fstat(fd, &st))
		return err_sys(0, "%s: cannot be looked at", path);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != bytes)
		return err_set(EBADMSG, "%s: not a mirror of this cache, or truncated", path);
	if (pread(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h))
		return err_set(EBADMSG, "%s: cannot be read", path);
	if (h.magic != SHM_MAGIC_MIRROR || h.version != SHM_VERSION || h.endian != SHM_ENDIAN)
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
	char path[HOST_PATH];
	int fd, err;

	err = host_path(s, desc->handle, path);
	if (err)
		return err;
	fd = fd_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(errno == ENOENT ? ESTALE : 0, "%s: the mirror cannot be opened",
			       path);
	err = check_header(s, desc, fd, path);
	if (err) {
		fd_close(fd);
		return err;
	}
	return fd;
}

int host_import(const struct segment *s, const struct shm_mirror *desc, void **ret_import,
		struct dev_view *view)
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
	im->bytes = host_bytes(s);
	im->pid = getpid();
	im->base = mmap(NULL, im->bytes, PROT_READ, MAP_SHARED, fd, 0);
	fd_close(fd);
	if (im->base == MAP_FAILED) {
		free(im);
		return err_sys(0, "cannot map the mirror");
	}
	madvise(im->base, im->bytes, MADV_DONTFORK);
	memset(view, 0, sizeof(*view));
	view->table = host_table(im->base);
	view->buckets = s->header.geometry.buckets;
	view->status = host_status(im->base, view->buckets);
	memcpy(&secret, s->header.secret, sizeof(secret));
	key_masks(&secret, view->mask);
	*ret_import = im;
	return 0;
}

void host_release(void *import)
{
	struct host_import *im = import;

	if (im->pid == getpid()) /* a forked child may have something else there */
		munmap(im->base, im->bytes);
	free(im);
}

static int read_exactly(int fd, void *to, uint64_t bytes, uint64_t from)
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

int host_read(const struct segment *s, const struct shm_mirror *desc, struct probe_entry *table,
	      uint64_t entries, uint64_t *ret_sequence)
{
	uint64_t bytes = device_table_bytes(s->header.geometry.buckets);
	int fd, err;

	if (entries * sizeof(*table) != bytes)
		return err_set(EINVAL, "a mirror has as many entries as its table");
	fd = open_mirror(s, desc);
	if (fd < 0)
		return fd;
	/* the number is read first, so the entries are at least as new.  Pairs with (b) */
	err = read_exactly(fd, ret_sequence, sizeof(*ret_sequence), SHM_PAGE + bytes);
	if (!err)
		err = read_exactly(fd, table, bytes, SHM_PAGE);
	fd_close(fd);
	return err;
}
