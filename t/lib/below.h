/* SPDX-License-Identifier: Apache-2.0 */
/* below.h - caches with a tier on disk: what their tests share. */
#ifndef GPC_T_BELOW_H
#define GPC_T_BELOW_H

#include "fetch.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "tiers/disk/format.h"

#define TIERS_MS 100000

static char tiers_path[96]; /* of the file made last */

/* A name for a file that is not there, on the file system of the build. */
TAP_FN const char *tiers_file(void)
{
	static int number;

	snprintf(tiers_path, sizeof(tiers_path), "tiers-%d-%d.disk", (int)getpid(), number++);
	unlink(tiers_path);
	return tiers_path;
}

TAP_FN struct gpc_tiers_options tiers_options(uint32_t blocks)
{
	return (struct gpc_tiers_options){ .size = sizeof(struct gpc_tiers_options),
					   .dir = cache_dir,
					   .disk = tiers_path,
					   .disk_blocks = blocks,
					   .timeout_ms = 5000,
					   .questions = 2,
					   .disk_threads = 2 };
}

TAP_FN gpc_tiers *tiers_open(const struct gpc_tiers_options *opt)
{
	gpc_tiers *t = NULL;

	must(gpc_tiers_open(cache_name, opt, &t));
	return t;
}

TAP_FN struct gpc_tier tier_of(gpc *c)
{
	struct gpc_tier t = { .size = sizeof(t) };

	must(gpc_tier_get(c, 0, &t));
	return t;
}

/* A cache that a thread serves, with room for tiers. */
TAP_FN gpc *tiers_cache(uint32_t max_blocks)
{
	struct gpc_config cfg = cache_config(0, 0);

	cache_thread = true;
	cfg.max_blocks = max_blocks;
	cfg.max_peers = 8;
	return cache_make(&cfg, NULL);
}

/* The block below RAM that has this key, or -1. */
TAP_FN gpc_block tiers_block_below(gpc *c, uint64_t n)
{
	struct gpc_pool p = { .size = sizeof(p) };
	gpc_key k = key_of(c, n);
	gpc_block b = -1;

	must(gpc_pool_get(c, tier_of(c).pool, &p));
	must(gpc_lookup(c, GPC_SPACE(p.space), &k, 1, &b, GPC_QUIET));
	return b;
}

/* How many of the keys from `first` on are on the disk, as the index says. */
TAP_FN int tiers_below(gpc *c, uint64_t first, uint32_t n)
{
	int below = 0;
	uint32_t i;

	for (i = 0; i < n; i++)
		below += tiers_block_below(c, first + i) >= 0;
	return below;
}

/* Chains of `step` blocks into RAM, of the numbers from `first` on, each with a copy below before
 * the next comes. */
TAP_FN void tiers_fill(gpc *c, int ram, uint64_t first, uint32_t n, uint32_t step)
{
	gpc_block b[CACHE_KEYS];
	uint32_t i;

	for (i = 0; i < n; i += step) {
		bytes_chain(c, ram, first + i, step, b, false);
		must(gpc_tiers_sync(c, TIERS_MS));
	}
}

/* The bytes at a place of the file that hold image `n`: found by its bytes; -1. */
TAP_FN long tiers_find_image(uint64_t n)
{
	int fd = open(tiers_path, O_RDONLY);
	uint8_t want[64], have[64];
	off_t at, end = lseek(fd, 0, SEEK_END);
	uint32_t i;

	for (i = 0; i < sizeof(want); i++)
		want[i] = bytes_at(n, i);
	for (at = 0; at < end; at += 4096)
		if (pread(fd, have, sizeof(have), at) == sizeof(have) &&
		    !memcmp(have, want, sizeof(want)))
			break;
	close(fd);
	return at < end ? (long)at : -1;
}

/* The header of that key in the file is free, as if it had been lost with the power; how many there
 * were. */
TAP_FN int tiers_lose_header(gpc *c, uint64_t n)
{
	int fd = open(tiers_path, O_RDWR), found = 0;
	gpc_key k = key_of(c, n);
	struct disk_header h;
	off_t at;

	for (at = 0; pread(fd, &h, sizeof(h), at) == sizeof(h); at += sizeof(h))
		if (h.key[0] == k.w[0] && h.key[1] == k.w[1] && h.magic == DISK_HEADER_MAGIC) {
			memset(&h, 0, sizeof(h));
			found += pwrite(fd, &h, sizeof(h), at) == sizeof(h);
		}
	close(fd);
	return found;
}

/* ---- what most of them begin and end with ---- */

/* RAM of 16 blocks, VRAM of 64, and options for a file of 64 that is not made yet. */
TAP_FN gpc *tiers_begin(uint32_t max_blocks, struct gpc_tiers_options *o, int *ret_ram,
			int *ret_vram)
{
	gpc *c = tiers_cache(max_blocks);

	*ret_ram = bytes_ram(c, 16, 0, 0);
	*ret_vram = bytes_vram(c, 64, 0, *ret_ram, 0);
	tiers_file();
	*o = tiers_options(64);
	o->ahead = 8;
	return c;
}

/* The file as it is, once all of it is in the index. */
TAP_FN gpc_tiers *tiers_again(gpc *c, struct gpc_tiers_options *o)
{
	gpc_tiers *t;

	o->disk_blocks = 0;
	t = tiers_open(o);
	must(gpc_tiers_sync(c, TIERS_MS));
	return t;
}

TAP_FN void tiers_finish(gpc *c, gpc_tiers *t, const char *when)
{
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	fetch_end(c, when);
}

/* As the disk is at this moment. */
TAP_FN void tiers_copy_file(const char *to)
{
	char cmd[256];

	snprintf(cmd, sizeof(cmd), "cp --sparse=always %s %s", tiers_path, to);
	if (system(cmd))
		bail("%s", cmd);
}

/* The steward ends, and another one begins with that. */
TAP_FN gpc_tiers *tiers_crash(gpc *c, gpc_tiers *t, const char *copy, struct gpc_tiers_options *o)
{
	must(gpc_tiers_close(t));
	if (rename(copy, tiers_path))
		bail("rename");
	return tiers_again(c, o);
}

/* Numbers first ... first + n - 1 into that pool, each the parent of the next, behind number
 * `parent`; 0: a prompt of its own. */
TAP_FN void tiers_grow(gpc *c, int pool, uint32_t parent, uint32_t first, uint32_t n)
{
	gpc_key keys[CACHE_KEYS + 1];
	gpc_block b[CACHE_KEYS];
	uint32_t i;

	chain_keys(c, first, n, keys);
	if (parent)
		keys[0] = key_of(c, parent);
	must(gpc_reserve(c, pool, n, b, NULL, 0, 60000));
	for (i = 0; i < n; i++)
		bytes_write(c, b[i], first + i, BYTES_IMAGE);
	if (must(gpc_publish(c, keys, keys + 1, b, n, NULL, 0, -1)) != (int)n)
		bail("the chain from %u was not published", first);
	must(gpc_release(c, b, n));
}

/* So much happens that nothing is left of what the feed has told so far. */
TAP_FN void tiers_overwrite_feed(gpc *c, int ram)
{
	uint64_t cursor, from = UINT64_MAX;
	struct gpc_event e;
	gpc_block b[8];

	must(gpc_event_read(c, &from, &e, 1));
	for (cursor = from; gpc_event_read(c, &cursor, &e, 1) != -ESTALE; cursor = from) {
		bytes_chain(c, ram, 1000, 8, b, false);
		must(gpc_pool_clear(c, ram, 0, 0, 5000));
	}
}

#endif
