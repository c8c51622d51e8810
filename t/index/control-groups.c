/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of control groups: the least one counts, of the process's own group and of all above it.
 * Tests: lib/index/segment/space.c */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "index/base/base.h"
#include "index/base/fd.h"
#include "index/segment/files.h"
#include "t/lib/tap.h"

/* Files of the kernel, as the test wants them. */
struct text {
	const char *path, *text;
};

static struct text file[8];

int __real_fd_peek(const char *path, int flags);
int __wrap_fd_peek(const char *path, int flags);

static int open_text(const char *text)
{
	int fd = memfd_create("text", MFD_CLOEXEC);

	if (fd < 0 || pwrite(fd, text, strlen(text), 0) != (ssize_t)strlen(text))
		bail("memfd: %s", strerror(errno));
	return fd;
}

int __wrap_fd_peek(const char *path, int flags)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(file); i++)
		if (file[i].path && !strcmp(file[i].path, path))
			return open_text(file[i].text);
	if (strncmp(path, "/sys/fs/cgroup", 14) && strcmp(path, "/proc/self/cgroup"))
		return __real_fd_peek(path, flags);
	errno = ENOENT;
	return -1;
}

static void set(const struct text *files, size_t n)
{
	memset(file, 0, sizeof(file));
	memcpy(file, files, n * sizeof(*files));
}

#define SET(...)                                                    \
	do {                                                        \
		static const struct text files[] = { __VA_ARGS__ }; \
		set(files, ARRAY_SIZE(files));                      \
	} while (0)

#define IN    "/proc/self/cgroup"
#define GROUP "/sys/fs/cgroup"

static void test_processors(void)
{
	set(NULL, 0);
	ok(segment_processors() == UINT64_MAX, "a kernel without control groups sets no limit");
	SET({ IN, "1:cpu:/a\n" }, { GROUP "/cpu.max", "100000 100000\n" });
	ok(segment_processors() == UINT64_MAX, "nor does one of version 1");
	SET({ IN, "0::/a/b\n" });
	ok(segment_processors() == UINT64_MAX, "nor do groups without files");
	SET({ IN, "0::/a/b\n" }, { GROUP "/a/b/cpu.max", "max 100000\n" },
	    { GROUP "/a/cpu.max", "max 100000\n" });
	ok(segment_processors() == UINT64_MAX, "nor does max");
	SET({ IN, "0::/a/b\n" }, { GROUP "/a/b/cpu.max", "400000 100000\n" });
	is_int(segment_processors(), 4, "the process's own group");
	SET({ IN, "3:cpu:/x\n0::/a/b\n" }, { GROUP "/a/b/cpu.max", "400000 100000\n" },
	    { GROUP "/a/cpu.max", "250000 100000\n" });
	is_int(segment_processors(), 3, "the group above has less: 2.5 are three");
	SET({ IN, "0::/a\n" }, { GROUP "/cpu.max", "1000 100000\n" });
	is_int(segment_processors(), 1,
	       "the root of a container's groups, and less than one is one");
	SET({ IN, "0::/\n" }, { GROUP "/cpu.max", "200000 100000\n" });
	is_int(segment_processors(), 2, "where the process is in the root itself");
	SET({ IN, "0::/a\n" }, { GROUP "/a/cpu.max", "100000\n" });
	ok(segment_processors() == UINT64_MAX, "a file without a period says nothing");
	SET({ IN, "0::/a\n" }, { GROUP "/a/cpu.max", "" });
	ok(segment_processors() == UINT64_MAX, "nor does an empty one");
}

static void test_memory(void)
{
	uint64_t all;

	set(NULL, 0);
	all = segment_free_memory();
	SET({ IN, "0::/a\n" }, { GROUP "/a/memory.max", "max\n" },
	    { GROUP "/a/memory.current", "9\n" });
	ok(segment_free_memory() > 4096, "a group without a limit takes no memory: %llu of %llu",
	   (unsigned long long)segment_free_memory(), (unsigned long long)all);
	SET({ IN, "0::/a\n" }, { GROUP "/a/memory.max", "8192\n" },
	    { GROUP "/a/memory.current", "4096\n" });
	is_int(segment_free_memory(), 4096, "with one it leaves what is not used");
	SET({ IN, "0::/a\n" }, { GROUP "/a/memory.max", "8192\n" },
	    { GROUP "/a/memory.current", "9000\n" });
	is_int(segment_free_memory(), 0, "and nothing when more is used");
	SET({ IN, "0::/a\n" }, { GROUP "/a/memory.max", "8192\n" },
	    { GROUP "/a/memory.current", "8000\n" },
	    { GROUP "/a/memory.stat", "anon 1\nfile 7000\nshmem 3000\ninactive_anon 3000\n"
				      "active_anon 1\ninactive_file 3000\nactive_file 1000\n" });
	is_int(segment_free_memory(), 4192, "copies of files go when others need the memory");
	SET({ IN, "0::/a\n" }, { GROUP "/a/memory.max", "8192\n" },
	    { GROUP "/a/memory.current", "2000\n" },
	    { GROUP "/a/memory.stat", "anon 0\ninactive_file 2500\n" });
	is_int(segment_free_memory(), 8192, "and no more than all of it is free");
	SET({ IN, "0::/a\n" }, { GROUP "/a/memory.max", "8192\n" },
	    { GROUP "/memory.max", "4096\n" }, { GROUP "/a/memory.current", "0\n" },
	    { GROUP "/memory.current", "96\n" });
	is_int(segment_free_memory(), 4000, "the group above counts, too");
	SET({ IN, "0::/a\n" }, { GROUP "/a/memory.max", "8192\n" });
	ok(segment_free_memory() > 8192, "a limit without its use says nothing");
}

/* The limit that a sentence names. */
static void test_limit(void)
{
	int shm = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int root = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	SET({ IN, "0::/a\n" }, { GROUP "/a/memory.max", "8192\n" },
	    { GROUP "/a/memory.current", "4096\n" });
	is_str(segment_space_limit(shm), "this process's control groups", "a group's");
	is_str(segment_space_limit(root), "that file system", "only of memory");
	SET({ "/proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 8 kB\nSwapFree: 1 kB\n" });
	is_int(segment_free_memory(), 9 << 10, "memory and swap");
	is_str(segment_space_limit(shm), "the machine's memory", "the machine's");
	set(NULL, 0);
	close(root);
	close(shm);
}

static int body(void)
{
	test_processors();
	test_memory();
	test_limit();
	return done_testing();
}

int main(void)
{
	return tap_guard(30, body, NULL);
}
