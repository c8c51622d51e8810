/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.h - a directory of the test's own in /dev/shm, and caches in it. */
#ifndef GPC_T_SCRATCH_H
#define GPC_T_SCRATCH_H

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "index/segment/segment.h"
#include "tap.h"

static char scratch[64];

TAP_FN void scratch_make(const char *test)
{
	snprintf(scratch, sizeof(scratch), "/dev/shm/gpc-%s-%d", test, (int)getpid());
	if (mkdir(scratch, 0755))
		bail("%s: cannot be made", scratch);
}

/* Files of the directory whose name contains `part`; removes them too if told so. */
TAP_FN int scratch_files(const char *part, bool and_remove)
{
	DIR *dir = opendir(scratch);
	struct dirent *e;
	int n = 0;

	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.' && strstr(e->d_name, part)) {
			n++;
			if (and_remove)
				unlinkat(dirfd(dir), e->d_name, 0);
		}
	if (dir)
		closedir(dir);
	return n;
}

TAP_FN void scratch_remove(void)
{
	scratch_files("", true);
	rmdir(scratch);
}

/* Path of a file of cache NAME; good until the fourth call after it. */
TAP_FN const char *scratch_file(const char *name, const char *suffix)
{
	static char path[4][256];
	static int turn;
	char *p = path[turn++ & 3];

	snprintf(p, sizeof(path[0]), "%s/gpc.%s.%s", scratch, name, suffix);
	return p;
}

TAP_FN int scratch_create(const char *name, struct segment *s)
{
	struct gpc_config cfg = {
		.size = sizeof(cfg), .dir = scratch, .max_blocks = 64, .max_peers = 2
	};

	return segment_create(s, name, &cfg);
}

/* Is there a cache that opens? */
TAP_FN int scratch_open(const char *name)
{
	struct segment s;
	int err = segment_open(&s, name, scratch, NULL);

	if (!err)
		segment_close(&s);
	return err;
}

/* A snapshot of it, and its copy. */
TAP_FN int scratch_look(const char *name, struct segment *s)
{
	int err = segment_snapshot(s, name, scratch);

	if (!err && (err = segment_refresh(s)))
		segment_close(s);
	return err;
}

/* A file of cache NAME with no other content. */
TAP_FN void scratch_put(const char *name, const char *suffix, const char *text)
{
	int fd = open(scratch_file(name, suffix), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		bail("gpc.%s.%s: cannot be written", name, suffix);
	close(fd);
}

/* n bytes of a file, exchanged for others; get or put may be NULL. */
TAP_FN void scratch_patch(const char *path, long at, const void *put, void *get, size_t n)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0 || (get && pread(fd, get, n, at) != (ssize_t)n) ||
	    (put && pwrite(fd, put, n, at) != (ssize_t)n))
		bail("%s: cannot be patched", path);
	close(fd);
}

#endif
