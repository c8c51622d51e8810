/* SPDX-License-Identifier: Apache-2.0 */
/* ram_memory.h - a cache whose RAM pool has memory from the beginning, and its files. */
#ifndef GPC_T_RAM_MEMORY_H
#define GPC_T_RAM_MEMORY_H

#include "cache.h"

#include <unistd.h>

#include "bytes/memfile/memfile.h"

#define NAME  "ram"
#define RAM   8u
#define SLOTS (RAM + GEOMETRY_TRANSIT)
#define BYTES ((uint64_t)64 << 10)

static struct gpc_memory memory = { .size = sizeof(memory), .block_bytes = BYTES };

TAP_FN struct gpc_config config(void)
{
	struct gpc_config cfg = cache_config(4, RAM);

	cfg.ram_memory = &memory;
	memset(cfg.layout, 9, sizeof(cfg.layout));
	return cfg;
}

TAP_FN int files(const char *part)
{
	DIR *dir = opendir(cache_dir);
	struct dirent *e;
	int n = 0;

	while (dir && (e = readdir(dir)))
		n += e->d_name[0] != '.' && strstr(e->d_name, part);
	if (dir)
		closedir(dir);
	return n;
}

TAP_FN bool is_cache(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/gpc." NAME ".idx", cache_dir);
	return !access(path, F_OK);
}

TAP_FN gpc *make(void)
{
	struct gpc_config cfg = config();
	gpc *c = NULL;

	must(gpc_create(NAME, &cfg, NULL, 0, &c));
	return c;
}

TAP_FN void end(gpc *c)
{
	must(gpc_close(c));
	must(gpc_unlink(NAME, cache_dir));
}

#endif
