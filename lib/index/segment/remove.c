/* SPDX-License-Identifier: Apache-2.0 */
/* remove.c - taking a cache's names away.
 *
 * Creating and removing exclude each other by the byte LOCK_CREATE.  The index goes first: without
 * it the name means nothing, and the next creator or remover sweeps the files that a killed
 * remover has left.  The lock file goes last, with the byte still held.  A process that waits for
 * the byte finds then that the name stands for another file, and starts over.
 * Tests: t/index/segment-names.t t/python/vllm-words.t t/tools/inspect-rm.t */
#include "index/segment/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "index/base/err.h"
#include "index/base/fd.h"
#include "index/segment/lockfile.h"
#include "index/segment/hooks.h"

int segment_lock_name(const struct segment *s)
{
	uint64_t deadline = deadline_from(SEGMENT_PATIENCE_MS);
	int err;

	while ((err = lock_try(s->lock_fd, LOCK_CREATE)) == -EAGAIN &&
	       !wait_over(clock_ns(), deadline))
		clock_sleep(NS_PER_MS);
	if (err == -EAGAIN)
		return err_set(EAGAIN,
			       "another process has been creating or removing %s for "
			       "%d ms",
			       s->name, SEGMENT_PATIENCE_MS);
	if (err)
		return err_set(-err, "gpc.%s.lock: no lock: %s", s->name, strerror(-err));
	return segment_is_named(s, "lock", s->lock_fd) ? 0 : -ESTALE;
}

/* In a sticky folder only the owner may remove a file, and not the group that may use it. */
static int cannot_remove(const char *path)
{
	int err = errno;
	struct stat st;

	if (err == EPERM && !lstat(path, &st) && st.st_uid != geteuid())
		return err_set(EACCES,
			       "removing %s: only its owner may, user %u, or root: its folder is "
			       "sticky",
			       path, (unsigned)st.st_uid);
	errno = err;
	return err_sys(err == EPERM ? EACCES : 0, "removing %s", path);
}

int segment_remove_file(const struct segment *s, const char *suffix)
{
	char path[SEGMENT_PATH];

	segment_path(s, suffix, path);
	if (!unlink(path) || errno == ENOENT)
		return 0;
	return cannot_remove(path);
}

/* Mirrors of the host device have an m and a number.  "a.m1" is a name that a cache may have, and
 * its files must survive the removal of "a". */
bool segment_is_mirror(const char *suffix)
{
	return suffix[0] == 'm' && suffix[1] && !suffix[1 + strspn(suffix + 1, "0123456789.-")];
}

int segment_visit(const struct segment *s,
		  int (*visit)(const struct segment *s, const char *suffix, void *arg), void *arg)
{
	char prefix[GPC_MAX_NAME + 8] = "gpc.", room[4096] __attribute__((aligned(8)));
	int fd = fd_open(s->dir, O_RDONLY | O_DIRECTORY, 0), err = 0, bad;
	ssize_t got = 0, at = 0;
	struct dirent64 *e;
	size_t n;

	if (fd < 0)
		return err_sys(0, "directory %s", s->dir);
	strcat(strcat(prefix, s->name), ".");
	n = strlen(prefix);
	while (at < got || (at = 0, got = getdents64(fd, room, sizeof(room))) > 0) {
		e = (struct dirent64 *)(room + at);
		at += e->d_reclen;
		if (!strncmp(e->d_name, prefix, n) && (bad = visit(s, e->d_name + n, arg)))
			err = bad;
	}
	if (got < 0)
		err = err_sys(0, "directory %s", s->dir);
	fd_close(fd);
	return err;
}

static int remove_mirror(const struct segment *s, const char *suffix, void *arg)
{
	return segment_is_mirror(suffix) ? segment_remove_file(s, suffix) : 0;
}

/* Without a lock file a creator might make one now.  The removal has to exclude that, so it makes
 * one itself. */
static int open_lock_file(struct segment *s)
{
	char path[SEGMENT_PATH];

	s->lock_fd = segment_open_file(s, "lock", O_RDWR);
	if (s->lock_fd != -ENOENT)
		return MIN(s->lock_fd, 0);
	segment_path(s, "lock", path);
	s->lock_fd = fd_open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (s->lock_fd >= 0)
		return 0;
	if (errno == EEXIST)
		return -ESTALE;
	return err_sys(errno == EPERM || errno == EROFS ? EACCES : 0, "creating %s", path);
}

static int lock_for_removal(struct segment *s)
{
	int err;

	do {
		err = open_lock_file(s);
		if (!err)
			err = segment_lock_name(s);
		if (err)
			segment_close(s);
	} while (err == -ESTALE);
	return err;
}

static int remove_all(const struct segment *s)
{
	static const char *const in_order[] = { "idx",     "ctl",   "idx.tmp",
						"ctl.tmp", "words", "words.tmp" };
	size_t i;
	int err;

	for (i = 0; i < ARRAY_SIZE(in_order); i++)
		if ((err = segment_remove_file(s, in_order[i])))
			return err;
	if ((err = segment_visit(s, remove_mirror, NULL)) ||
	    (err = segment_visit(s, hooks.memory_remove_named, NULL)))
		return err;
	return segment_remove_file(s, "lock");
}

bool segment_has_index(const struct segment *s)
{
	char path[SEGMENT_PATH];

	segment_path(s, "idx", path);
	return !faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW);
}

/* The leftovers of a killed creator or remover are removed as well, even if there is no cache. */
int segment_unlink(const char *name, const char *dir)
{
	struct segment s;
	bool existed;
	int err;

	if ((err = segment_begin(&s, name, dir)))
		return err;
	err = lock_for_removal(&s);
	existed = segment_has_index(&s);
	if (!err)
		err = remove_all(&s);
	segment_close(&s);
	if (existed || (err && err != -EACCES))
		return err;
	return err_set(ENOENT, "there is no cache %s in %s", name, s.dir);
}
