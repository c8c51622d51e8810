/* SPDX-License-Identifier: Apache-2.0 */
/* Does the cache still have its name?  A removal takes the name away, and attached processes go
 * on.  No other process can come to them any more, and by now the name may stand for another
 * cache.
 *
 * The library keeps the index open.  So the name is ours as long as it stands for a file that this
 * process has open.  That test needs no memory of which file it was, so no wrong file can be
 * remembered.
 * Tests: t/daemon/life.t */
#include "config.h"

#include "tools/daemon/daemon.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { LOOK_NS = 1000000000 }; /* between two looks */

static bool is_open_here(DIR *fds, const struct stat *file)
{
	const struct dirent *e;
	struct stat st;

	while ((e = readdir(fds)))
		if (e->d_name[0] != '.' && fstat(atoi(e->d_name), &st) == 0 &&
		    st.st_ino == file->st_ino && st.st_dev == file->st_dev)
			return true;
	return false;
}

/* Where nothing can be found out, the name is believed to be there. */
bool name_is_ours(const struct daemon *d)
{
	char path[PATH_MAX + GPC_MAX_NAME + 16];
	struct stat file;
	bool ours;
	DIR *fds;

	snprintf(path, sizeof(path), "%s/gpc.%s.idx", d->dir[0] ? d->dir : "/dev/shm", d->name);
	if (lstat(path, &file))
		return errno != ENOENT && errno != ENOTDIR;
	fds = opendir("/proc/self/fd");
	if (!fds)
		return true;
	ours = is_open_here(fds, &file);
	closedir(fds);
	return ours;
}

bool name_is_lost(struct daemon *d)
{
	uint64_t now = cli_now_ns();

	if (now < d->next_look)
		return d->nameless;
	d->next_look = now + LOOK_NS;
	/* the thread of health.c reads it */
	__atomic_store_n(&d->nameless, !name_is_ours(d), __ATOMIC_RELAXED);
	return d->nameless;
}
