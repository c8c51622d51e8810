/* SPDX-License-Identifier: Apache-2.0 */
/* segment.c - the files of one cache: opened, mapped, closed.
 *
 * A mapping is made only after index/segment/validate.c has found the sizes right and every page
 * present, so opening cannot raise SIGBUS.
 * Tests: t/index/stray-index.t t/index/segment.t t/index/segment-damage.t */
#include "index/segment/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "index/base/err.h"
#include "index/base/fd.h"

#define OPEN_TRIES 8 /* tries while other processes remove the name and make it again */

/* ---- names ---- */

int segment_name_check(const char *name)
{
	size_t i, n = name ? strnlen(name, GPC_MAX_NAME + 1) : 0;

	if (!n)
		return err_set(EINVAL, "name is %s: a cache's name has 1 to %d bytes",
			       name ? "empty" : "NULL", GPC_MAX_NAME);
	if (n > GPC_MAX_NAME)
		return err_set(EINVAL, "name is longer than %d bytes", GPC_MAX_NAME);
	if (name[0] == '.')
		return err_set(EINVAL, "name \"%s\" begins with a dot", name);
	for (i = 0; i < n; i++)
		if (name[i] == '/' || (unsigned char)name[i] < ' ' || name[i] == 0x7f)
			return err_set(EINVAL,
				       "name \"%s\" has a slash or a control character "
				       "at byte %zu",
				       name, i + 1);
	return 0;
}

/* The directory is resolved once, since a daemon may change its working directory. */
static int resolve_dir(struct segment *s, const char *dir)
{
	const char *given = dir && *dir ? dir : SEGMENT_DIR;
	char *real = realpath(given, NULL);
	struct stat st;
	int err = 0;

	if (!real)
		return err_sys(errno == EACCES || errno == ENOMEM ? 0 : ENOENT, "directory %s",
			       given);
	if (strlen(real) >= sizeof(s->dir))
		err = err_set(EINVAL, "the directory's path is longer than %zu bytes",
			      sizeof(s->dir) - 1);
	else if (stat(real, &st) || !S_ISDIR(st.st_mode))
		err = err_set(ENOENT, "%s is no directory", given);
	else
		strcpy(s->dir, real);
	free(real);
	return err;
}

int segment_begin(struct segment *s, const char *name, const char *dir)
{
	int err = segment_name_check(name);

	memset(s, 0, sizeof(*s));
	s->index_fd = s->control_fd = s->lock_fd = -1;
	s->unit = SHM_PAGE;
	if (err)
		return err;
	strcpy(s->name, name);
	return resolve_dir(s, dir);
}

void segment_path(const struct segment *s, const char *suffix, char path[SEGMENT_PATH])
{
	snprintf(path, SEGMENT_PATH, "%s/gpc.%s.%s", s->dir, s->name, suffix);
}

/* ---- files ---- */

static int no_permission(const char *path)
{
	int saved = errno;
	char closed[SEGMENT_CLOSED];
	struct stat st;

	if (lstat(path, &st)) { /* a folder on the path is closed to us */
		errno = saved;
		return err_sys(EACCES, "%s", path);
	}
	return err_set(EACCES, "%s: %s: %s", path, strerror(saved),
		       segment_closed(&st, closed, sizeof(closed)));
}

static int open_error(const struct segment *s, const char *suffix, const char *path)
{
	switch (errno) {
	case ENOENT:
		return strcmp(suffix, "idx")
			       ? err_set(ENOENT, "%s does not exist", path)
			       : err_set(ENOENT, "there is no cache %s in %s", s->name, s->dir);
	case EACCES:
	case EPERM:
		return no_permission(path);
	case ELOOP:
		return err_set(EACCES, "%s is a symbolic link, which is refused", path);
	case EISDIR:
	case ENXIO:
		return err_set(EBADMSG, "%s is no regular file", path);
	default:
		return err_sys(0, "%s", path);
	}
}

/* O_NONBLOCK is there since a FIFO of that name would keep us waiting. */
int segment_open_file(const struct segment *s, const char *suffix, int flags)
{
	char path[SEGMENT_PATH];
	struct stat st;
	int fd;

	segment_path(s, suffix, path);
	fd = fd_open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
	if (fd < 0)
		return open_error(s, suffix, path);
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		fd_close(fd);
		return err_set(EBADMSG, "%s is no regular file", path);
	}
	return fd;
}

bool segment_is_named(const struct segment *s, const char *suffix, int fd)
{
	char path[SEGMENT_PATH];
	struct stat here, there;

	segment_path(s, suffix, path);
	return !fstat(fd, &here) && !lstat(path, &there) && here.st_ino == there.st_ino &&
	       here.st_dev == there.st_dev;
}

/* ---- opening ---- */

/* A file beside the index cannot be opened.  If the index is no index of ours, no other file is
 * missing; the sentence names the index then. */
static int no_file_beside(struct segment *s, const char *suffix, int err)
{
	char path[SEGMENT_PATH];

	if (err != -ENOENT)
		return err;
	if ((err = segment_read_header(s)))
		return err;
	segment_path(s, suffix, path);
	return err_set(EBADMSG, "%s does not exist", path);
}

static int open_files(struct segment *s)
{
	if ((s->index_fd = segment_open_file(s, "idx", O_RDWR)) < 0)
		return s->index_fd;
	if ((s->control_fd = segment_open_file(s, "ctl", O_RDWR)) < 0)
		return no_file_beside(s, "ctl", s->control_fd);
	if ((s->lock_fd = segment_open_file(s, "lock", O_RDWR)) < 0)
		return no_file_beside(s, "lock", s->lock_fd);
	return 0;
}

int segment_map(struct segment *s)
{
	int err = segment_map_pages(s, s->index_fd, s->at.index_bytes, PROT_READ, &s->index);

	if (err)
		return err;
	return segment_map_pages(s, s->control_fd, s->at.control_bytes, PROT_READ | PROT_WRITE,
				 &s->control);
}

static int open_once(struct segment *s, const struct segment_want *want, bool map)
{
	int err;

	if ((err = open_files(s)) || (err = segment_check_files(s)))
		return err;
	if (want && (err = segment_check_want(s, want)))
		return err;
	return map ? segment_map(s) : 0;
}

/* Apparent damage may be two halves of a removal and a creation.  If the name stands for another
 * file by now, look again. */
static int open_name(struct segment *s, const char *name, const char *dir,
		     const struct segment_want *want, bool map)
{
	bool replaced = true;
	int i, err = 0;

	for (i = 0; i < OPEN_TRIES && replaced; i++) {
		if ((err = segment_begin(s, name, dir)))
			return err;
		if (!(err = open_once(s, want, map)))
			return 0;
		replaced = s->index_fd >= 0 && !segment_is_named(s, "idx", s->index_fd);
		segment_close(s);
	}
	return replaced ? err_set(ENOENT, "%s is removed and created all the time", name) : err;
}

int segment_open(struct segment *s, const char *name, const char *dir,
		 const struct segment_want *want)
{
	return open_name(s, name, dir, want, true);
}

int segment_verdict(const char *name, const char *dir)
{
	struct segment s;
	int err = open_name(&s, name, dir, NULL, false);

	if (!err)
		segment_close(&s);
	return err;
}

int segment_map_writer(const struct segment *s, uint8_t **ret_index)
{
	if (s->snapshot)
		return err_set(EROFS, "%s was opened read-only", s->name);
	return segment_map_pages(s, s->index_fd, s->at.index_bytes, PROT_READ | PROT_WRITE,
				 ret_index);
}

void segment_unmap_writer(const struct segment *s, uint8_t *index)
{
	segment_unmap_pages(s, index, s->at.index_bytes);
}

/* Opens the file by way of /proc, since the name may be gone, or may be another file's by now. */
int segment_open_lock(const struct segment *s)
{
	char path[64];
	int fd;

	if (s->lock_fd < 0)
		return err_set(ENOENT, "gpc.%s.lock is missing", s->name);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", s->lock_fd);
	fd = fd_open(path, s->snapshot ? O_RDONLY : O_RDWR, 0);
	return fd >= 0 ? fd : err_sys(0, "gpc.%s.lock", s->name);
}

static void close_file(int *fd)
{
	fd_close(*fd);
	*fd = -1;
}

static void close_files(struct segment *s)
{
	close_file(&s->index_fd);
	close_file(&s->control_fd);
	close_file(&s->lock_fd);
}

void segment_close(struct segment *s)
{
	segment_unmap_pages(s, s->index, s->at.index_bytes);
	segment_unmap_pages(s, s->control, s->at.control_bytes);
	s->index = s->control = NULL;
	close_files(s);
}

/* The child has no descriptors to close (fd.c), and no mappings to undo except those of a
 * snapshot. */
void segment_abandon(struct segment *s)
{
	s->index_fd = s->control_fd = s->lock_fd = -1;
	if (!s->snapshot)
		s->index = s->control = NULL;
	segment_close(s);
}
