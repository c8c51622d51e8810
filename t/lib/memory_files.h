/* SPDX-License-Identifier: Apache-2.0 */
/* memory_files.h - files of memory that a cache of cache.h has, and pools that have some. */
#ifndef GPC_T_MEMORY_FILES_H
#define GPC_T_MEMORY_FILES_H

#include "cache.h"

#include <sys/stat.h>
#include <unistd.h>

/* DIR/gpc.NAME.p<16 digits> of the cache made last; with `more`, files that go with it. */
TAP_FN bool memory_file_is(const char *name, bool more)
{
	char prefix[96];
	size_t n = (size_t)snprintf(prefix, sizeof(prefix), "gpc.%s.p", cache_name);

	return !strncmp(name, prefix, n) && strspn(name + n, "0123456789abcdef") == 16 &&
	       name[n + 16] == (more ? '.' : 0);
}

TAP_FN int memory_count(bool more)
{
	DIR *dir = opendir(cache_dir);
	struct dirent *e;
	int n = 0;

	while (dir && (e = readdir(dir)))
		n += memory_file_is(e->d_name, more);
	if (dir)
		closedir(dir);
	return n;
}

TAP_FN int memory_files(void)
{
	return memory_count(false);
}

TAP_FN int memory_further_files(void)
{
	return memory_count(true);
}

TAP_FN bool memory_file_exists(uint64_t number)
{
	char path[200];

	snprintf(path, sizeof(path), "%s/gpc.%s.p%016llx", cache_dir, cache_name,
		 (unsigned long long)number);
	return access(path, F_OK) == 0;
}

static int memory_files_each = 1; /* files of one memory: the file itself and further ones */

/* The sweeper is another thread, and removes the further files behind the file itself. */
TAP_FN bool memory_files_are(int n)
{
	return memory_files() == n && memory_further_files() == n * (memory_files_each - 1);
}

/* So many memories are left, sooner or later, with all of their files and no other; a handle that
 * has the writer's seat serves meanwhile. */
TAP_FN bool memory_files_come_to(gpc *c, int n)
{
	struct timespec pause = { .tv_nsec = 1000000 };
	int i;

	for (i = 0; i < 5000 && !memory_files_are(n); i++)
		if (!c || gpc_writer_serve(c, 1) < 0)
			nanosleep(&pause, NULL);
	if (memory_files_are(n))
		return true;
	diag("%d files of memory and %d further ones, not %d and %d", memory_files(),
	     memory_further_files(), n, n * (memory_files_each - 1));
	return false;
}

/* The address of a compound literal goes with its block: these are copied. */
TAP_FN struct gpc_memory memory_of(uint64_t block_bytes)
{
	return (struct gpc_memory){ .size = sizeof(struct gpc_memory), .block_bytes = block_bytes };
}

TAP_FN struct gpc_pool pool_with(uint32_t kind, uint32_t blocks, uint32_t space)
{
	struct gpc_pool p = pool_of(kind, blocks, space);

	p.transit = kind == GPC_RAM ? 2 : 0;
	return p;
}

TAP_FN struct gpc_pool_memory memory_get(gpc *c, int pool)
{
	struct gpc_pool_memory m = { .size = sizeof(m) };

	must(gpc_pool_memory_get(c, pool, &m, NULL, 0));
	return m;
}

#endif
