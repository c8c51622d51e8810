/* SPDX-License-Identifier: Apache-2.0 */
/* The rest of t/bytes/sentences.c: calls about memory and devices, and those that look.
 * Tests: lib/gpc.h lib/bytes/mapping/map_call.c */
#include "t/lib/sentences.h"

/* ---- memory ---- */

#define mem_bad(words, kind_, field, value)                                             \
	do {                                                                            \
		struct gpc_pool of = {                                                  \
			.size = sizeof(of), .kind = kind_, .blocks = 4, .demote_to = -1 \
		};                                                                      \
		struct gpc_memory m = { .size = sizeof(m), .block_bytes = 4096 };       \
		m.field = value;                                                        \
		diag("%s %s", #field, #value);                                          \
		bad(EINVAL, words, gpc_pool_make(c, &of, &m, 0));                       \
	} while (0)

static int no_progress(void *arg, uint64_t done, uint64_t bytes)
{
	return arg && done > bytes;
}

static void test_memory(gpc *c)
{
	struct gpc_pool p = { .size = sizeof(p), .kind = GPC_RAM, .blocks = 4, .demote_to = -1 };
	struct gpc_pool_memory pm = { .size = sizeof(pm) };
	struct gpc_run run = { .count = 1, .bytes = 8, .slot_stride = 8 };

	mem_bad("size|4|gpc_memory", GPC_RAM, size, 4);
	mem_bad("nruns|513|512", GPC_RAM, nruns, 513);
	mem_bad("runs|NULL|nruns is 1", GPC_RAM, nruns, 1);
	mem_bad("block_bytes is 0|at least 1", GPC_RAM, block_bytes, 0);
	mem_bad("parts is 1|must be 0", GPC_RAM, parts, 1);
	mem_bad("parts is 2|0 or 1", GPC_VRAM, parts, 2);
	mem_bad("device|host|NULL", GPC_RAM, device, "host");
	mem_bad("device|\"foo\"", GPC_VRAM, device, "foo");
	mem_bad("numa|3|2", GPC_RAM, numa, 3);
	mem_bad("threads|17|16", GPC_RAM, threads, 17);
	mem_bad("nodes|0x1|must be 0", GPC_RAM, nodes, 1);
	mem_bad("huge_dir|/|hugetlbfs", GPC_RAM, huge_dir, "/");
	mem_bad("numa|0x1|must be 0", GPC_VRAM, numa, 1);
	mem_bad("nodes|0x2|must be 0", GPC_VRAM, nodes, 2);
	mem_bad("threads|2|must be 0", GPC_VRAM, threads, 2);
	mem_bad("huge_dir|/|NULL", GPC_VRAM, huge_dir, "/");
	mem_bad("progress|NULL", GPC_VRAM, progress, no_progress);
	bad(EINVAL, "base|NULL", gpc_pool_lend(c, 0, 0, NULL, 8));
	bad(EINVAL, "pool|99", gpc_pool_lend(c, 99, 0, &run, 8));
	bad(ENOENT, "pool|0|no memory", gpc_pool_lend(c, 0, 0, &run, 8));
	bad(ENOENT, "pool|9|no pool of that number", gpc_pool_lend(c, 9, 0, &run, 8));
	bad(ENOENT, "pool|0|no memory", gpc_pool_memory_get(c, 0, &pm, NULL, 0));
	pm.size = 4;
	bad(EINVAL, "size of struct gpc_pool_memory is 4", gpc_pool_memory_get(c, 0, &pm, NULL, 0));
	bad(EINVAL, "runs|NULL|n is 2", gpc_pool_memory_get(c, 0, NULL, NULL, 2));
	bad(ENOENT, "pool|0|no memory", gpc_pool_memory_get(c, 0, NULL, &run, 1));
	bad(EINVAL, "base|NULL", gpc_pool_map(c, 0, 0, NULL, &out.cursor));
	bad(EINVAL, "bytes|NULL", gpc_pool_map(c, 0, 0, (void **)&out.handle, NULL));
	bad(ENOENT, "pool|0|gpc_pool_make",
	    gpc_pool_map(c, 0, 0, (void **)&out.handle, &out.cursor));
	bad(EINVAL, "pool|99", gpc_pool_unmap(c, 99));
	bad(ENOENT, "pool|0|nothing", gpc_pool_unmap(c, 0));
	bad(EINVAL, "moves|NULL|n is 1", gpc_copy(c, NULL, 1, 0, NULL, NULL));
	bad(EINVAL, "transfer|77|no such name", gpc_transfer_wait(c, 77, 0));
	bad(EINVAL, "timeout_ms|-2|-1", gpc_transfer_wait(c, 0, -2));
	bad(EINVAL, "transfer|77|no such name", gpc_transfer_fd(c, 77));
	bad(EINVAL, "GPC_TRANSFER_ALL|one transfer", gpc_transfer_fd(c, GPC_TRANSFER_ALL));
	bad(ENOENT, "pool|0|no memory", gpc_pool_pin(c, 0, 0));
	bad(EINVAL, "timeout_ms|-2|-1", gpc_pool_pin(c, 1, -2));
}

/* ---- looking, serving ---- */

static void test_looking(gpc *c)
{
	bad(EINVAL, "peer|-2|-1|3", gpc_stats_get(c, -2, &out.stats));
	bad(EINVAL, "peer|4|3", gpc_stats_get(c, 4, &out.stats));
	bad(ENOENT, "peer|3", gpc_stats_get(c, 3, &out.stats));
	bad(EINVAL, "ret|NULL", gpc_stats_get(c, -1, NULL));
	out.stats.size = 4;
	bad(EINVAL, "size of struct gpc_stats is 4", gpc_stats_get(c, -1, &out.stats));
	out.stats.size = 0;
	bad(EINVAL, "size of struct gpc_stats is 0", gpc_stats_get(c, -1, &out.stats));
	out.mirror.size = 0;
	bad(EINVAL, "size of struct gpc_mirror is 0", gpc_mirror_get(c, 0, &out.mirror));
	out.mirror.size = sizeof(out.mirror);
	bad(EINVAL, "i|-1|0", gpc_mirror_get(c, -1, &out.mirror));
	bad(ENOENT, "i|5", gpc_mirror_get(c, 5, &out.mirror));
	bad(EINVAL, "ret|NULL", gpc_mirror_get(c, 0, NULL));
	bad(EINVAL, "cursor|NULL", gpc_walk(c, NULL, &out.entry, 1));
	bad(EINVAL, "out|NULL", gpc_walk(c, &out.cursor, NULL, 1));
	bad(EINVAL, "n|0", gpc_walk(c, &out.cursor, &out.entry, 0));
	bad(ESTALE, "cursor", gpc_walk(c, &out.cursor, &out.entry, 1));
	bad(EINVAL, "cursor|NULL", gpc_event_read(c, NULL, &out.change, 1));
	bad(EINVAL, "out|NULL", gpc_event_read(c, &out.cursor, NULL, 1));
	bad(EINVAL, "cookie|99999", gpc_grace_done(c, 99999));
	bad(EINVAL, "flags|0x2|GPC_STANDBY", gpc_writer_take(c, GPC_SERVE, 0));
	bad(EINVAL, "timeout_ms|-2", gpc_writer_take(c, 0, -2));
	bad(EINVAL, "timeout_ms|-2", gpc_writer_serve(c, -2));
}

/* ---- devices ---- */

static void test_devices(gpc *c)
{
	gpc_dev *d = NULL;
	gpc_key k = key_of(c, 1);
	uint32_t start[2] = { 0, 1 };

	bad(EINVAL, "device|NULL", gpc_dev_open(c, NULL, &out.dev));
	bad(EINVAL, "ret|NULL", gpc_dev_open(c, "host", NULL));
	bad(EINVAL, "device is \"foo\"|cuda:N", gpc_dev_open(c, "foo", &out.dev));
	bad(EINVAL, "device is \"\"|cuda:N", gpc_dev_open(c, "", &out.dev));
	bad(EINVAL, "device|byte 1", gpc_dev_open(c, "\033[2J", &out.dev));
	must(gpc_dev_open(c, "host", &d));
	bad(EINVAL, "section|-1|55", gpc_dev_leave(d, -1, NULL));
	bad(EINVAL, "section|56|55", gpc_dev_leave(d, 56, NULL));
	bad(EINVAL, "section|3|host", gpc_dev_leave(d, 3, NULL));
	bad(EINVAL, "d_keys|NULL", gpc_dev_lookup(d, 0, NULL, 1, out.blocks, NULL));
	bad(EINVAL, "d_blocks|NULL", gpc_dev_lookup(d, 0, &k, 1, NULL, NULL));
	bad(EINVAL, "n|4294967295", gpc_dev_lookup(d, 0, &k, UINT32_MAX, out.blocks, NULL));
	bad(EINVAL, "d_start|NULL", gpc_dev_match(d, 0, &k, NULL, 1, out.len, NULL, NULL));
	bad(EINVAL, "d_len|NULL", gpc_dev_match(d, 0, &k, start, 1, NULL, NULL, NULL));
	bad(EINVAL, "nseq|4294967295",
	    gpc_dev_match(d, 0, &k, start, UINT32_MAX, out.len, NULL, NULL));
	bad(EINVAL, "host|gpc_dev_enter", gpc_dev_lookup(d, 0, &k, 1, out.blocks, NULL));
	bad(EINVAL, "timeout_ms|-2", gpc_dev_wait(d, NULL, -2));
	must(gpc_dev_close(d));
	bad(EINVAL, "d|NULL", gpc_dev_enter(NULL));
}

#define tiers_bad(words, field, value)                                                      \
	do {                                                                                \
		struct gpc_tiers_options o = {                                              \
			.size = sizeof(o), .dir = cache_dir, .disk = "no", .disk_blocks = 8 \
		};                                                                          \
		gpc_tiers *none = NULL;                                                     \
		o.field = value;                                                            \
		diag("%s %s", #field, #value);                                              \
		bad(EINVAL, words, gpc_tiers_open(cache_name, &o, &none));                  \
	} while (0)

static void test_tiers(gpc *c)
{
	struct gpc_tiers_options good = {
		.size = sizeof(good), .dir = cache_dir, .disk = "no", .disk_blocks = 8
	};
	struct gpc_tiers_file file = { .size = sizeof(file) };
	struct gpc_tier tier = { .size = sizeof(tier) };
	gpc_key k = key_of(c, 1);
	gpc_tiers *t = NULL;

	bad(EINVAL, "handle|NULL", gpc_prefetch(NULL, 0, &k, 1, 0, 0));
	bad(EINVAL, "to|-1", gpc_prefetch(c, -1, &k, 1, 0, 0));
	bad(ENOENT, "to|9", gpc_prefetch(c, 9, &k, 1, 0, 0));
	bad(EINVAL, "keys|NULL", gpc_prefetch(c, 0, NULL, 1, 0, 0));
	bad(EINVAL, "n|4294967295", gpc_prefetch(c, 0, &k, UINT32_MAX, 0, 0));
	bad(EINVAL, "flags|0x8", gpc_prefetch(c, 0, &k, 1, GPC_QUIET, 0));
	bad(EINVAL, "timeout_ms|-2", gpc_prefetch(c, 0, &k, 1, 0, -2));
	bad(EINVAL, "timeout_ms|-2", gpc_tiers_sync(c, -2));
	bad(ENOTCONN, "no process keeps the tiers", gpc_tiers_sync(c, 0));
	bad(EINVAL, "ret|NULL", gpc_tier_get(c, 0, NULL));
	bad(ENOENT, "i|0", gpc_tier_get(c, 0, &tier));
	tier.size = 4;
	bad(EINVAL, "size|4|gpc_tier", gpc_tier_get(c, 0, &tier));
	bad(EINVAL, "disk|NULL", gpc_tiers_file_get(NULL, &file));
	bad(EINVAL, "ret|NULL", gpc_tiers_file_get("no", NULL));
	bad(ENOENT, "no", gpc_tiers_file_get("no", &file));
	bad(EINVAL, "ret|NULL", gpc_tiers_open(cache_name, &good, NULL));
	bad(EINVAL, "name|NULL", gpc_tiers_open(NULL, &good, &t));
	bad(EINVAL, "opt|NULL", gpc_tiers_open(cache_name, NULL, &t));
	tiers_bad("size|4|gpc_tiers_options", size, 4);
	tiers_bad("flags|0x100", flags, 256);
	tiers_bad("timeout_ms|-2", timeout_ms, -2);
	tiers_bad("ram|-1", ram, -1);
	tiers_bad("disk|NULL", disk, NULL);
	tiers_bad("disk_bytes|5|disk_blocks|8", disk_bytes, 5);
	tiers_bad("disk_blocks|16777217|16777216", disk_blocks, (1u << 24) + 1);
	tiers_bad("disk_space|32|31", disk_space, 32);
	tiers_bad("disk_threads|65|64", disk_threads, 65);
	tiers_bad("questions|17|16", questions, 17);
	tiers_bad("ahead|4097|4096", ahead, 4097);
	tiers_bad("reserved|1", reserved, 1);
	bad(ENOENT, "no pool of RAM|memory", gpc_tiers_open(cache_name, &good, &t));
	is_int(gpc_tiers_close(NULL), 0, "nothing is closed");
}

static int body(void)
{
	gpc *c;

	c = sentences_cache();
	out_fill();
	test_memory(c);
	test_looking(c);
	test_devices(c);
	test_tiers(c);
	is_int(gpc_pool_available(c, 0), 8, "nothing was done");
	clean(c, "bad arguments");
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
