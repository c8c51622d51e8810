/* SPDX-License-Identifier: Apache-2.0 */
/* space.c - the memory that is left, and the processors.
 *
 * The check comes before the allocation, since the kernel promises pages of a tmpfs that it does
 * not have, and kills processes that touch them.
 * Tests: t/index/control-groups.t t/daemon/full.t t/bytes/full.t t/daemon/limits.t
 *   t/bytes/create-fails.t */
#include "config.h"

#include "index/segment/files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "index/base/err.h"
#include "index/base/fd.h"

/* A text file of the kernel: its bytes, or -1. */
static ssize_t read_text(const char *path, char *text, size_t room)
{
	int fd = fd_peek(path, O_RDONLY);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, text, room - 1);
	close(fd);
	text[MAX(n, 0)] = 0;
	return n;
}

/* The sum of the numbers of some fields. */
static uint64_t sum_fields(const char *text, const char *const *fields, size_t n)
{
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < n; i++) {
		const char *at = strstr(text, fields[i]);

		if (at)
			sum += strtoull(at + strlen(fields[i]), NULL, 10);
	}
	return sum;
}

static uint64_t number_in(const char *path)
{
	char text[64];

	return read_text(path, text, sizeof(text)) > 0 ? strtoull(text, NULL, 10) : UINT64_MAX;
}

/* A file of a control group: its bytes, or -1. */
static ssize_t read_group(const char *group, const char *file, char *text, size_t room)
{
	char path[4096 + 64];

	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/%s", group, file);
	return read_text(path, text, room);
}

/* Copies of files, which the kernel drops before the group is full. */
static uint64_t copies_of(const char *group)
{
	static const char *const fields[] = { "\nactive_file ", "\ninactive_file " };
	char text[16384];

	if (read_group(group, "memory.stat", text, sizeof(text)) <= 0)
		return 0;
	return sum_fields(text, fields, ARRAY_SIZE(fields));
}

/* The memory that it still allows. */
static uint64_t memory_of(const char *group)
{
	char most[64], now[64];
	uint64_t n, used;

	if (read_group(group, "memory.max", most, sizeof(most)) <= 0 ||
	    read_group(group, "memory.current", now, sizeof(now)) <= 0)
		return UINT64_MAX;
	n = strtoull(most, NULL, 10); /* "max" is read as 0 */
	used = strtoull(now, NULL, 10);
	used -= MIN(used, copies_of(group));
	return n ? n - MIN(n, used) : UINT64_MAX;
}

/* The processors whose time it allows: "max 100000", or "150000 100000" for two. */
static uint64_t processors_of(const char *group)
{
	char text[64], *end;
	uint64_t time, period;

	if (read_group(group, "cpu.max", text, sizeof(text)) <= 0)
		return UINT64_MAX;
	time = strtoull(text, &end, 10);
	period = strtoull(end, NULL, 10);
	return time && period ? (time + period - 1) / period : UINT64_MAX;
}

/* The least of the control groups that this process is in (cgroup 2).  Inside a container the machine
 * says little. */
static uint64_t least_of_groups(uint64_t (*of)(const char *group))
{
	uint64_t least = UINT64_MAX;
	char text[4096], *at, *end;

	if (read_text("/proc/self/cgroup", text, sizeof(text)) <= 0)
		return least;
	at = strstr(text, "0::/");
	if (!at)
		return least;
	at += 3;
	at[strcspn(at, "\n")] = 0;
	do {
		end = strrchr(at, '/');
		least = MIN(least, of(end[1] ? at : ""));
		*end = 0;
		if (end == at && end[1]) { /* the root is the last one */
			at[0] = '/';
			at[1] = 0;
		}
	} while (*at);
	return least;
}

uint64_t segment_processors(void)
{
	return least_of_groups(processors_of);
}

static uint64_t free_of_machine(void)
{
	static const char *const fields[] = { "\nMemAvailable:", "\nSwapFree:" }; /* kB */
	uint64_t sum = 0;
	char text[4096];

	if (read_text("/proc/meminfo", text, sizeof(text)) > 0)
		sum = sum_fields(text, fields, ARRAY_SIZE(fields)) << 10;
	return sum ? sum : UINT64_MAX;
}

uint64_t segment_free_memory(void)
{
	return MIN(free_of_machine(), least_of_groups(memory_of));
}

uint64_t segment_free_on_nodes(uint64_t nodes)
{
	static const char *const fields[] = { "MemFree:", "Active(file):", "Inactive(file):" };
	char path[64], text[4096];
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < 64; i++) {
		snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/meminfo", i);
		if (nodes >> i & 1 && read_text(path, text, sizeof(text)) > 0)
			sum += sum_fields(text, fields, ARRAY_SIZE(fields)) << 10;
	}
	return sum ? sum : UINT64_MAX;
}

/* The free huge pages of this hugetlbfs's page size.  Pages that somebody has mapped and not
 * touched yet count as free, but are promised. */
static uint64_t free_huge_pages(uint64_t size)
{
	static const struct {
		const char *field;
		int sign;
	} field[] = {
		{ "free_hugepages", 1 },
		{ "nr_overcommit_hugepages", 1 },
		{ "resv_hugepages", -1 },
		{ "surplus_hugepages", -1 },
	};
	char path[128];
	int64_t sum = 0;
	uint64_t n;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(field); i++) {
		snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%llukB/%s",
			 (unsigned long long)size >> 10, field[i].field);
		n = number_in(path);
		if (n == UINT64_MAX)
			return n;
		sum += field[i].sign * (int64_t)n;
	}
	return sum > 0 ? (uint64_t)sum * size : 0;
}

static uint64_t free_in(const struct statfs *fs)
{
	return fs->f_blocks ? (uint64_t)fs->f_bavail * (uint64_t)fs->f_bsize : UINT64_MAX;
}

/* The limit of a tmpfs, if it has one, may exceed the memory that is left.  Then a write past that
 * memory meets the OOM killer, and no error. */
uint64_t segment_free_space(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs))
		return UINT64_MAX;
	if (fs.f_type == HUGETLBFS_MAGIC)
		return MIN(free_in(&fs), free_huge_pages((uint64_t)fs.f_bsize));
	return fs.f_type == TMPFS_MAGIC ? MIN(free_in(&fs), segment_free_memory()) : free_in(&fs);
}

const char *segment_space_limit(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) || fs.f_type != TMPFS_MAGIC || free_in(&fs) <= segment_free_memory())
		return "that file system";
	return free_of_machine() <= least_of_groups(memory_of) ? "the machine's memory"
							       : "this process's control groups";
}

int segment_check_limit(const struct segment *s, uint64_t bytes)
{
	struct rlimit most;

	if (getrlimit(RLIMIT_FSIZE, &most) || bytes <= most.rlim_cur)
		return 0; /* RLIM_INFINITY is more than any file has */
	return err_set(EFBIG,
		       "%s: a file needs %llu bytes, and files of this process may have %llu: "
		       "raise the limit (ulimit -f), or ask for fewer blocks",
		       s->name, (unsigned long long)bytes, (unsigned long long)most.rlim_cur);
}
