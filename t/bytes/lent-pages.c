/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that are lent begin anywhere in a file, whose pages may be of any size: whoever maps them
 * sees the lender's bytes.
 * Tests: lib/bytes/mapping/lend.c lib/bytes/device/host_bytes.c lib/bytes/device/host_piece.c */
#include "t/lib/cache.h"
#include "t/lib/namespaces.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "bytes/device/host_bytes.h"

enum { BLOCK = 5000, BLOCKS = 4, PART = BLOCK * BLOCKS, FILE_BYTES = 8 << 20 };
enum { NO_MOUNT = 77 };

static const size_t offset[] = {
	0,
	1,
	64,
	4095,
	4096,
	4097,
	8192,
	1 << 20,
	(2 << 20) - 4096,
	2 << 20,
	(2 << 20) + 4096,
	(3 << 20) + 777,
	FILE_BYTES - PART,
};

static uint8_t *file_map(const char *dir)
{
	char path[128];
	void *p;
	int fd;

	snprintf(path, sizeof(path), "%s/lent", dir);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, FILE_BYTES))
		bail("%s", path);
	p = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return p == MAP_FAILED ? NULL : p; /* a hugetlbfs without pages */
}

static void fill(uint8_t *at, uint32_t seed)
{
	uint32_t i;

	for (i = 0; i < PART; i++)
		at[i] = (uint8_t)((seed + i) * 2654435761u >> 24);
}

/* Lent by one handle, mapped by another, where it is mapped anew. */
static bool is_seen(gpc *c, gpc *d, uint8_t *at, uint32_t seed)
{
	struct gpc_pool p = pool_of(GPC_VRAM, BLOCKS, 0);
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = BLOCK, .parts = 1 };
	int n = must(gpc_pool_make(c, &p, &m, -1));
	uint8_t *there;
	uint64_t bytes;
	void *base;
	bool good;

	fill(at, seed);
	must(gpc_pool_lend(c, n, 0, at, PART));
	must(gpc_pool_map(d, n, 0, &base, &bytes));
	there = base;
	good = there != at && bytes == PART && !memcmp(there, at, PART);
	there[PART - 1] ^= 0xff;
	good &= there[PART - 1] == at[PART - 1];
	must(gpc_pool_unmap(d, n));
	must(gpc_pool_clear(c, n, 0, GPC_REMOVE, 5000));
	return good;
}

/* How many of the parts others see as they are; -1: no file can be mapped in that folder. */
static int seen_in(const char *dir)
{
	struct gpc_config cfg = cache_config(0, 0);
	uint8_t *file = file_map(dir);
	int good = 0;
	uint32_t i;
	gpc *c, *d;

	if (!file)
		return -1;
	cfg.max_blocks = 64;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	for (i = 0; i < sizeof(offset) / sizeof(offset[0]); i++)
		good += is_seen(c, d, file + offset[i], i + 1);
	must(gpc_close(d));
	cache_end(c);
	munmap(file, FILE_BYTES);
	return good;
}

static int all_seen(void)
{
	return (int)(sizeof(offset) / sizeof(offset[0]));
}

static void test_unit(uint32_t unit)
{
	device_host_map_unit = unit;
	is_int(seen_in(cache_dir), all_seen(), "parts at any offset, mapped in units of %u", unit);
	device_host_map_unit = 0;
}

/* ---- file systems ---- */

static int mounted(const char *type, const char *options)
{
	char dir[128];
	int good;

	snprintf(dir, sizeof(dir), "%s/mounted", cache_dir);
	if (namespaces_leave(CLONE_NEWNS) || namespaces_own_mounts() || mkdir(dir, 0700) ||
	    mount("none", dir, type, 0, options))
		return NO_MOUNT;
	good = seen_in(dir);
	return good < 0 ? NO_MOUNT : good != all_seen();
}

static void test_mounted(const char *type, const char *options)
{
	char dir[128];
	int status = -1;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid)
		_exit(mounted(type, options));
	while (waitpid(pid, &status, 0) < 0)
		;
	snprintf(dir, sizeof(dir), "%s/mounted", cache_dir);
	rmdir(dir);
	if (WIFEXITED(status) && WEXITSTATUS(status) == NO_MOUNT)
		skip(1, "cannot mount that here, or it has no pages");
	else
		is_int(status, 0, "parts of files on a %s, %s", type, options);
}

static int body(void)
{
	cache_thread = false;
	test_unit(0);
	test_unit(64 << 10);
	test_unit(2 << 20);
	test_mounted("tmpfs", "huge=never,size=32m");
	test_mounted("tmpfs", "huge=always,size=32m");
	test_mounted("hugetlbfs", "size=16m");
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(30, body, cache_dir_remove);
}
