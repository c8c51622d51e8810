/* SPDX-License-Identifier: Apache-2.0 */
/* host_piece.c - finds the file of a range of memory, by /proc/self/maps.
 * Tests: t/bytes/lent-pages.t */
#include "config.h"

#include "bytes/device/host_piece.h"

#include "index/base/err.h"
#include "index/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A line of /proc/self/maps: from-to perms offset dev inode path */
struct line {
	uint64_t from, to, offset, inode;
	char perms[8];
	const char *path;
};

static bool line_read(char *text, struct line *ret)
{
	unsigned long long from, to, offset, inode;
	int at = 0;

	text[strcspn(text, "\n")] = 0;
	if (sscanf(text, "%llx-%llx %7s %llx %*s %llu %n", &from, &to, ret->perms, &offset, &inode,
		   &at) < 5 ||
	    !at)
		return false;
	ret->from = from;
	ret->to = to;
	ret->offset = offset;
	ret->inode = inode;
	ret->path = text + at;
	return true;
}

int host_not_lent(const void *base, uint64_t bytes, const char *why)
{
	return err_set(EINVAL,
		       "base is %p and bytes %llu: %s; the host device takes a shared, "
		       "writable mapping of a file in /dev/shm or a hugetlbfs: open one there with "
		       "shm_open(3), and mmap it with MAP_SHARED",
		       base, (unsigned long long)bytes, why);
}

/* Does the line continue the piece?  NULL: it does; else the reason why it does not. */
static const char *line_join(const struct line *l, uint64_t from, uint64_t at, struct host_piece *p)
{
	if (l->from > at)
		return "not all of it is mapped";
	if (l->perms[0] != 'r' || l->perms[1] != 'w')
		return "it is not readable and writable";
	if (l->perms[3] != 's')
		return "it is private memory, which no other process can map";
	if (strlen(l->path) >= sizeof(p->path))
		return "the path of its file is too long";
	if (at == from) {
		p->at = l->offset + (from - l->from);
		p->inode = l->inode;
		strcpy(p->path, l->path);
		return NULL;
	}
	if (l->inode != p->inode || strcmp(l->path, p->path) ||
	    l->offset + (at - l->from) != p->at + (at - from))
		return "it is not one piece of one file";
	return NULL;
}

/* A range may be in several mappings, which must be neighbours in one file. */
int host_find_piece(void *base, uint64_t bytes, struct host_piece *ret)
{
	uint64_t from = (uintptr_t)base, at = from, end = from + bytes;
	const char *why = "not all of it is mapped";
	int fd = fd_peek("/proc/self/maps", O_RDONLY);
	FILE *maps = fd < 0 ? NULL : fdopen(fd, "r");
	char *text = NULL;
	size_t size = 0;
	struct line l;

	if (!maps) {
		if (fd >= 0)
			close(fd);
		return err_sys(0, "/proc/self/maps tells which file memory is of");
	}
	while (at < end && getline(&text, &size, maps) > 0) {
		if (!line_read(text, &l) || l.to <= at)
			continue;
		why = line_join(&l, from, at, ret);
		if (why)
			break;
		at = l.to;
		why = "not all of it is mapped";
	}
	free(text);
	fclose(maps);
	return at >= end ? 0 : host_not_lent(base, bytes, why);
}
