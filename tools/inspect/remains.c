/* SPDX-License-Identifier: Apache-2.0 */
/* The files that have the name of a cache, and the processes that have locks on them.
 *
 *   index   a lock is held   what the files are
 *   ------  ---------------  ----------------------------------------------------------------
 *   there   either           a cache
 *   none    yes              a cache that is being made or removed
 *   none    no               remains: its maker or remover was killed
 *   none    no file          nothing: there is no cache
 *
 * Remains take memory as a cache does, so list shows them, and rm says that it removes them.
 * Tests: t/tools/inspect-rm.t */
#include "config.h"

#include "tools/inspect/inspect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* 1 = a process has locked a byte of that file, 0 = none has, or -errno. */
static int is_locked(const char *path)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK), r;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	r = fcntl(fd, F_OFD_GETLK, &lock) ? -errno : lock.l_type != F_UNLCK;
	close(fd);
	return r;
}

/* Is that the end of the name of a file that gpc_unlink() removes? */
static bool is_of_cache(const char *suffix)
{
	static const char *const all[] = { "idx",     "ctl",   "lock",     "idx.tmp",
					   "ctl.tmp", "words", "words.tmp" };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (!strcmp(suffix, all[i]))
			return true;
	return inspect_is_memory(suffix) ||
	       (suffix[0] == 'm' && suffix[1] && !suffix[1 + strspn(suffix + 1, "0123456789.-")]);
}

int inspect_each_file(const struct inspect *in, const char *name,
		      bool (*wanted)(const char *suffix), int (*look)(const char *path, void *arg),
		      void *arg)
{
	DIR *dir = opendir(inspect_dir(in));
	const struct dirent *e;
	size_t n = strlen(name);
	char path[PATH_MAX];
	int r = 0;

	while (dir && !r && (e = readdir(dir)))
		if (!strncmp(e->d_name, "gpc.", 4) && !strncmp(e->d_name + 4, name, n) &&
		    e->d_name[4 + n] == '.' && wanted(e->d_name + 4 + n + 1)) {
			snprintf(path, sizeof(path), "%s/%s", inspect_dir(in), e->d_name);
			r = look(path, arg);
		}
	if (dir)
		closedir(dir);
	return r;
}

static int look_locked(const char *path, void *arg)
{
	return is_locked(path);
}

/* Seats are byte locks on the lock file, and the kernel holds them as long as a process lives.  So
 * they tell of damaged caches, too.  The locks on files of memory tell the same of its uses. */
int inspect_is_used(const struct inspect *in, const char *name)
{
	char path[PATH_MAX];
	int r;

	snprintf(path, sizeof(path), "%s/gpc.%s.lock", inspect_dir(in), name);
	r = is_locked(path);
	return r ? r : inspect_each_file(in, name, inspect_is_memory, look_locked, NULL);
}

static int add_file(const char *path, void *arg)
{
	struct inspect_remains *r = arg;
	struct stat st;

	if (lstat(path, &st))
		return 0;
	r->files++;
	r->bytes += (uint64_t)st.st_blocks * 512;
	return 0;
}

bool inspect_remains(const struct inspect *in, const char *name, struct inspect_remains *ret)
{
	char path[PATH_MAX];
	struct stat st;

	*ret = (struct inspect_remains){ 0 };
	snprintf(path, sizeof(path), "%s/gpc.%s.idx", inspect_dir(in), name);
	if (!lstat(path, &st))
		return false;
	inspect_each_file(in, name, is_of_cache, add_file, ret);
	return ret->files > 0;
}
