/* SPDX-License-Identifier: Apache-2.0 */
/* who.c - the attached processes that have the file of a former pool open, as far as /proc shows
 * them to this process.  Other users' processes, and those of other PID namespaces, stay unnamed.
 * Tests: t/bytes/memory-waits.t */
#include "config.h"

#include "bytes/mapping/make.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "index/base/fd.h"
#include "index/segment/files.h"
#include "index/segment/lockfile.h"
#include "bytes/memfile/parts.h"

#define WHO_MOST 6u /* the most pids that a sentence names */

static bool has_open(int32_t pid, const struct stat *file)
{
	char path[32], room[2048] __attribute__((aligned(8)));
	ssize_t got = 0, at = 0;
	struct dirent64 *e;
	bool found = false;
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	fd = fd_peek(path, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return false;
	while (!found && (at < got || (at = 0, got = getdents64(fd, room, sizeof(room))) > 0)) {
		e = (struct dirent64 *)(room + at);
		at += e->d_reclen;
		found = !fstatat(fd, e->d_name, &st, 0) && st.st_dev == file->st_dev &&
			st.st_ino == file->st_ino;
	}
	close(fd);
	return found;
}

static bool is_listed(const int32_t *pid, uint32_t n, int32_t who)
{
	while (n)
		if (pid[--n] == who)
			return true;
	return false;
}

/* The pids of taken seats in this PID namespace whose process has the file open: at most
 * WHO_MOST. */
static uint32_t find_pids(const gpc *c, const struct stat *file, int32_t pid[WHO_MOST])
{
	const struct shm_seat *seat;
	struct identity me;
	uint32_t i, n = 0;

	identity_self(&me);
	for (i = 0; me.namespaces && n < WHO_MOST && i < c->seg.header.geometry.max_peers; i++) {
		seat = seg_seat(&c->seg, i);
		if (segment_peer_alive(&c->seg, i) &&
		    (uint32_t)load_relaxed(&seat->namespaces) == (uint32_t)me.namespaces &&
		    !is_listed(pid, n, load_relaxed(&seat->pid)) &&
		    has_open(load_relaxed(&seat->pid), file))
			pid[n++] = load_relaxed(&seat->pid);
	}
	return n;
}

void memory_who(const gpc *c, uint64_t number, char ret[WHO_TEXT])
{
	char suffix[MEMORY_SUFFIX], path[SEGMENT_PATH];
	int32_t pid[WHO_MOST];
	uint32_t i, n = 0;
	struct stat file;
	size_t at;

	memory_suffix(number, suffix);
	segment_path(&c->seg, suffix, path);
	if (!stat(path, &file))
		n = find_pids(c, &file, pid);
	at = (size_t)snprintf(ret, WHO_TEXT,
			      !n       ? "some process has"
			      : n == 1 ? "process"
				       : "processes");
	for (i = 0; i < n; i++)
		at += (size_t)snprintf(ret + at, WHO_TEXT - at, "%s %d", i ? "," : "", (int)pid[i]);
	if (n)
		snprintf(ret + at, WHO_TEXT - at, n == 1 ? " has" : " have");
}
