/* SPDX-License-Identifier: Apache-2.0 */
/* Every public function with every bad argument there is: the errno, a sentence that
 * names the argument, its value and what it may be, and not a byte written.
 * Tests: lib/gpc.h lib/index/base/err.c lib/index/peer/refuse.c lib/index/door/attach.c */
#include "t/lib/sentences.h"

/* ---- making and attaching ---- */

#define cfg_bad(words, field, value)                                              \
	do {                                                                      \
		struct gpc_config cfg = cache_config(8, 8);                       \
		cfg.field = value;                                                \
		diag("%s %s", #field, #value);                                    \
		bad(EINVAL, words, gpc_create("no", &cfg, NULL, 0, &out.handle)); \
	} while (0)

static void test_config(void)
{
	struct gpc_config good = cache_config(8, 8);

	cfg_bad("size|4|gpc_config", size, 4);
	cfg_bad("block_tokens|1000000|65536", block_tokens, 1000000);
	cfg_bad("max_peers|251|250", max_peers, 251);
	cfg_bad("max_pools|128|127", max_pools, 128);
	cfg_bad("max_pools|1|2", max_pools, 1);
	cfg_bad("max_blocks|4294967295|268435456", max_blocks, UINT32_MAX);
	cfg_bad("max_blocks|15|80", max_blocks, 15);
	cfg_bad("vram_blocks|16777217|16777216", vram_blocks, (1u << 24) + 1);
	cfg_bad("ram_blocks|16777216|16777152", ram_blocks, 1u << 24);
	cfg_bad("ram_space|32|31", ram_space, 32);
	cfg_bad("ram_flags|0x2|GPC_POOL_UNCHAINED", ram_flags, GPC_POOL_CALLER);
	cfg_bad("tick_us|4294967295|10000000", tick_us, UINT32_MAX);
	cfg_bad("free_target|-2|-1", free_target, -2);
	cfg_bad("max_aliases|-2|-1|268435456", max_aliases, -2);
	cfg_bad("max_aliases|268435457|268435456", max_aliases, (1 << 28) + 1);
	cfg_bad("quarantine_ms|4000000|3600000", quarantine_ms, 4000000);
	cfg_bad("mode|666", mode, 0666);
	cfg_bad("mode|60", mode, 0060);
	cfg_bad("devices|\"foo\"|cuda:N", devices, "foo");
	cfg_bad("devices|\"host,\"", devices, "host,");
	cfg_bad("devices|cuda:x", devices, "cuda:x");
	cfg_bad("devices|GPU-xyz", devices, "GPU-xyz");
	cfg_bad("devices|host|twice", devices, "host,host");
	cfg_bad("devices|cuda:0|twice", devices, "cuda:0,cuda:0");
	cfg_bad("devices|cuda:00|twice", devices, "cuda:0,host,cuda:00");
	cfg_bad("devices|8 mirrors", devices,
		"cuda:0,cuda:1,cuda:2,cuda:3,cuda:4,cuda:5,cuda:6,"
		"cuda:7,host");
	cfg_bad("devices|63 bytes", devices,
		"cuda:00000000000000000000000000000000000000000000000"
		"0000000000000");
	cfg_bad("devices|byte 5", devices, "host\033[2J");
	bad(EINVAL, "ret|NULL", gpc_create("no", &good, NULL, 0, NULL));
	bad(EINVAL, "flags|0x10004|GPC_IF_ABSENT, GPC_SERVE",
	    gpc_create("no", &good, NULL, 0x10004, &out.handle));
}

#define opt_bad(words, field, value)                                                   \
	do {                                                                           \
		struct gpc_attach_options o = { .size = sizeof(o), .dir = cache_dir }; \
		o.field = value;                                                       \
		diag("%s %s", #field, #value);                                         \
		bad(EINVAL, words, gpc_attach(cache_name, &o, 0, &out.handle));        \
	} while (0)

static void test_options(gpc *c)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };

	opt_bad("size|8|gpc_attach_options", size, 8);
	opt_bad("timeout_ms|-2|-1", timeout_ms, -2);
	opt_bad("stock|1025|1024", stock, 1025);
	opt_bad("leader|-1|250", leader, -1);
	opt_bad("leader|251|250", leader, 251);
	opt_bad("life|leader|gpc_info", leader, 1);
	opt_bad("life|leader|both", life, 7);
	opt_bad("label|byte 4", label, "red\033[31m");
	opt_bad("label|byte 1|UTF-8", label, "\xff\xfe");
	opt_bad("label|byte 3", label,
		"c1\xc2\x9b"
		"2J");
	bad(EINVAL, "flags|0x10|GPC_SERVE, GPC_READONLY",
	    gpc_attach(cache_name, &opt, GPC_REF, &out.handle));
	bad(EINVAL, "GPC_READONLY|GPC_SERVE",
	    gpc_attach(cache_name, &opt, GPC_READONLY | GPC_SERVE, &out.handle));
	opt.leader = 1;
	opt.life = 1;
	bad(EINVAL, "GPC_READONLY|companion",
	    gpc_attach(cache_name, &opt, GPC_READONLY, &out.handle));
	bad(EINVAL, "leader|gpc_attach", gpc_create(cache_name, NULL, &opt, 0, &out.handle));
	bad(ESTALE, "leader is 1|0x1", gpc_attach(cache_name, &opt, 0, &out.handle));
	opt.leader = GPC_MAX_PEERS;
	bad(EINVAL, "leader|250", gpc_attach(cache_name, &opt, 0, &out.handle));
	opt.leader = 0;
	opt.life = 0;
	bad(EINVAL, "ret|NULL", gpc_attach(cache_name, &opt, 0, NULL));
	bad(EINVAL, "name|NULL|64", gpc_attach(NULL, &opt, 0, &out.handle));
	bad(EINVAL, "name|empty", gpc_attach("", &opt, 0, &out.handle));
	bad(EINVAL, "name|a\\x1bb|byte 2", gpc_attach("a\033b", &opt, 0, &out.handle));
	bad(EINVAL, "name|\\xc3|byte 2", gpc_attach("a\xc3", &opt, 0, &out.handle));
	bad(EINVAL, "name|dot", gpc_attach(".a", &opt, 0, &out.handle));
	bad(EINVAL, "name|byte 2", gpc_unlink("a/b", cache_dir));
	bad(ENOENT, "nobody", gpc_unlink("nobody", cache_dir));
	bad(ENOENT, "nobody", gpc_attach("nobody", &opt, 0, &out.handle));
	bad(EINVAL, "ret|NULL", gpc_info_get(c, NULL));
	out.info.size = 4;
	bad(EINVAL, "size of struct gpc_info is 4", gpc_info_get(c, &out.info));
}

/* ---- pools ---- */

#define pool_bad(err, words, field, value)                                  \
	do {                                                                \
		struct gpc_pool p = pool_of(GPC_VRAM, 2, 0);                \
		struct gpc_pool was_;                                       \
		p.field = value;                                            \
		was_ = p;                                                   \
		diag("%s %s", #field, #value);                              \
		bad(err, words, gpc_pool_make(c, &p, NULL, -1));            \
		ok(!memcmp(&p, &was_, sizeof(p)), "the description stays"); \
	} while (0)

static void test_pools(gpc *c)
{
	pool_bad(EINVAL, "size|5|gpc_pool", size, 5);
	pool_bad(EINVAL, "kind|7|GPC_VRAM (1)|GPC_RAM (2)", kind, 7);
	pool_bad(EINVAL, "flags|0x11|0x10|GPC_POOL_CALLER|GPC_POOL_ONCE", flags, 17);
	pool_bad(EINVAL, "space|32|31", space, 32);
	pool_bad(EINVAL, "blocks|0|1 to 16777216", blocks, 0);
	pool_bad(EINVAL, "blocks|16777217|16777216", blocks, (1u << 24) + 1);
	pool_bad(EINVAL, "transit|16777216", transit, 1u << 24);
	pool_bad(EINVAL, "gpus|17|16", gpus, 17);
	pool_bad(EINVAL, "backing_size|1025|1024", backing_size, 1025);
	pool_bad(EINVAL, "demote_to|-2|-1", demote_to, -2);
	pool_bad(ENOENT, "demote_to|9", demote_to, 9);
	pool_bad(ENOSPC, "blocks|9999|max_blocks", blocks, 9999);
	bad(EINVAL, "p|NULL", gpc_pool_make(c, NULL, NULL, -1));
	bad(EINVAL, "pool|-1|15", gpc_pool_get(c, -1, &out.pool));
	bad(EINVAL, "pool|16|15", gpc_pool_get(c, 16, &out.pool));
	bad(ENOENT, "pool|9", gpc_pool_get(c, 9, &out.pool));
	bad(EINVAL, "ret|NULL", gpc_pool_get(c, 0, NULL));
	out.pool.size = 3;
	bad(EINVAL, "size|3|gpc_pool", gpc_pool_get(c, 0, &out.pool));
	bad(EINVAL, "pool|-1|15", gpc_pool_available(c, -1));
	bad(ENOENT, "pool|9", gpc_pool_available(c, 9));
	bad(EINVAL, "pool|-2|15", gpc_pool_clear(c, -2, 0, 0, 1000));
	bad(EINVAL, "pool|-1|GPC_REMOVE", gpc_pool_clear(c, -1, 0, GPC_REMOVE, 1000));
	bad(EINVAL, "tag|5|GPC_REMOVE", gpc_pool_clear(c, 0, 5, GPC_REMOVE, 1000));
	bad(EINVAL, "flags|0x1|GPC_REMOVE, GPC_IF_IDLE", gpc_pool_clear(c, 0, 0, 1, 1000));
	bad(EINVAL, "timeout_ms|-7|-1", gpc_pool_clear(c, 0, 0, 0, -7));
	bad(ENOENT, "pool|9", gpc_pool_clear(c, 9, 0, 0, 1000));
}

/* ---- keys ---- */

static void test_keys(gpc *c)
{
	struct gpc_extra x[2] = { { 20, 1, "a" }, { 4, 1, "b" } }, none = { 3, 7, NULL };
	struct gpc_field f = { .tag = 1, .len = 3 }, r = { .tag = 1, .reserved = 4 };
	struct gpc_prompt p[2] = { { .n = 0 }, { .n = 16, .ret_keys = out.keys } };
	uint32_t tok[64] = { 0 };

	bad(EINVAL, "p|NULL", gpc_key_hash(c, NULL, 1, 0));
	bad(EINVAL, "flags|0x8|GPC_TAIL", gpc_key_hash(c, NULL, 0, GPC_QUIET));
	bad(EINVAL, "p[1]|tokens", gpc_key_hash(c, p, 2, 0));
	p[1].tokens = tok;
	p[1].reserved = 3;
	bad(EINVAL, "p[1].reserved|3|0", gpc_key_hash(c, p, 2, 0));
	p[0] = (struct gpc_prompt){ .tokens = tok, .n = 64, .x = x, .nx = 2, .ret_keys = out.keys };
	p[1].reserved = 0;
	bad(EINVAL, "p[0]|x[1].token|4|20", gpc_key_hash(c, p, 2, 0));
	p[0].nx = 0;
	p[1].n = SIZE_MAX;
	bad(EINVAL, "p[1]|keys", gpc_key_hash(c, p, 2, 0));
	bad(EINVAL, "tokens|NULL", hash_keys(c, NULL, NULL, 16, NULL, 0, 0, out.keys));
	bad(EINVAL, "ret_keys|NULL", hash_keys(c, NULL, tok, 16, NULL, 0, 0, NULL));
	bad(EINVAL, "flags|0x8|GPC_TAIL",
	    hash_keys(c, NULL, tok, 16, NULL, 0, GPC_QUIET, out.keys));
	bad(EINVAL, "x|NULL", hash_keys(c, NULL, tok, 64, NULL, 1, 0, out.keys));
	bad(EINVAL, "x[1].token|4|20", hash_keys(c, NULL, tok, 64, x, 2, 0, out.keys));
	bad(EINVAL, "x[0].token|20|0 to 15", hash_keys(c, NULL, tok, 16, x, 1, 0, out.keys));
	bad(EINVAL, "x[0].data|NULL|7", hash_keys(c, NULL, tok, 16, &none, 1, 0, out.keys));
	bad(EINVAL, "n|2147483647",
	    hash_group(c, 0, 16, NULL, tok, SIZE_MAX, NULL, 0, 0, out.keys));
	bad(EINVAL, "block_tokens|65537|65536",
	    hash_group(c, 0, 65537, NULL, tok, 16, NULL, 0, 0, out.keys));
	bad(EINVAL, "n|18446744073709551615|2147483647",
	    hash_keys(c, NULL, tok, SIZE_MAX, NULL, 0, 0, out.keys));
	bad(EINVAL, "f[0].data|NULL|3", gpc_key_root(c, &f, 1, &out.root));
	bad(EINVAL, "f[0].reserved|4", gpc_key_root(c, &r, 1, &out.root));
	bad(EINVAL, "f|NULL", gpc_key_root(c, NULL, 1, &out.root));
	bad(EINVAL, "ret_root|NULL", gpc_key_root(c, NULL, 0, NULL));
	bad(EINVAL, "bytes|0", gpc_key_import(c, tok, 0, 4, 1, 0, out.keys));
	bad(EINVAL, "stride|4|8", gpc_key_import(c, tok, 8, 4, 1, 0, out.keys));
	bad(EINVAL, "digests|NULL", gpc_key_import(c, NULL, 4, 4, 1, 0, out.keys));
	bad(EINVAL, "ret_keys|NULL", gpc_key_import(c, tok, 4, 4, 1, 0, NULL));
	bad(EINVAL, "n|4294967295|2147483647",
	    gpc_key_import(c, tok, 4, 4, UINT32_MAX, 0, out.keys));
	bad(EINVAL, "alias|NULL", gpc_alias(c, NULL, out.keys, 1, 0, 1000));
	bad(EINVAL, "to|NULL", gpc_alias(c, out.keys, NULL, 1, 0, 1000));
	bad(EINVAL, "flags|0x80", gpc_alias(c, out.keys, out.keys, 1, GPC_TAKE, 1000));
	bad(EINVAL, "timeout_ms|-9", gpc_alias(c, out.keys, out.keys, 1, 0, -9));
	bad(EINVAL, "n|4294967295", gpc_alias(c, out.keys, out.keys, UINT32_MAX, 0, 1000));
	bad(EINVAL, "f|NULL", gpc_root_keep(c, NULL, 1, out.keys, 0, 1000));
	bad(EINVAL, "flags|0x80", gpc_root_keep(c, NULL, 0, out.keys, GPC_TAKE, 1000));
	bad(EINVAL, "timeout_ms|-9", gpc_root_keep(c, NULL, 0, out.keys, 0, -9));
	bad(EINVAL, "root|NULL", gpc_root_get(c, NULL, NULL, 0, NULL, 0));
	bad(EINVAL, "data|NULL", gpc_root_get(c, out.keys, NULL, 0, NULL, 1));
	bad(EINVAL, "f|NULL", gpc_root_get(c, out.keys, NULL, 1, NULL, 0));
	bad(EINVAL, "keys|NULL", gpc_alias_resolve(c, NULL, 1));
	bad(EINVAL, "n|4294967295", gpc_alias_resolve(c, out.keys, UINT32_MAX));
}

/* ---- asking ---- */

static void test_asking(gpc *c)
{
	gpc_key k = key_of(c, 1);
	uint32_t start[3] = { 0, 2, 1 }, far[2] = { 0, UINT32_MAX };
	struct gpc_group g[2] = {
		{ .size = sizeof(g[0]), .n = 1, .keys = &k, .blocks = out.blocks }
	};

	bad(EINVAL, "keys|NULL", gpc_lookup(c, 0, NULL, 1, out.blocks, 0));
	bad(EINVAL, "blocks|NULL", gpc_lookup(c, 0, &k, 1, NULL, 0));
	bad(EINVAL, "n|4294967295|2147483647", gpc_lookup(c, 0, &k, UINT32_MAX, out.blocks, 0));
	bad(EINVAL, "flags|0x40|GPC_QUIET, GPC_REF, GPC_ANYWHERE, GPC_DEVICE",
	    gpc_lookup(c, 0, &k, 1, out.blocks, GPC_PARTIAL));
	bad(ENODEV, "gpc_dev_open", gpc_lookup(c, 0, &k, 1, out.blocks, GPC_DEVICE));
	bad(EINVAL, "start[1]|2|start[2]|1", gpc_match(c, 0, &k, start, 2, out.len, out.blocks, 0));
	bad(EINVAL, "start|NULL", gpc_match(c, 0, &k, NULL, 1, out.len, out.blocks, 0));
	bad(EINVAL, "len|NULL", gpc_match(c, 0, &k, start, 1, NULL, out.blocks, 0));
	bad(EINVAL, "keys|NULL", gpc_match(c, 0, NULL, start, 1, out.len, out.blocks, 0));
	bad(EINVAL, "nseq|4294967295",
	    gpc_match(c, 0, &k, start, UINT32_MAX, out.len, out.blocks, 0));
	bad(EINVAL, "start[1]|4294967295|2147483647",
	    gpc_match(c, 0, &k, far, 1, out.len, out.blocks, 0));
	bad(EINVAL, "flags|0x10|GPC_QUIET, GPC_ANYWHERE, GPC_DEVICE",
	    gpc_match(c, 0, &k, start, 1, out.len, out.blocks, GPC_REF));
	bad(EINVAL, "flags|0x20|GPC_QUIET, GPC_REF",
	    gpc_match_groups(c, 0, g, 2, NULL, GPC_ANYWHERE));
	bad(EINVAL, "groups|NULL", gpc_match_groups(c, 0, NULL, 1, NULL, 0));
	bad(EINVAL, "n|65|64", gpc_match_groups(c, 0, g, 65, NULL, 0));
	bad(EINVAL, "groups[1].size|0|groups[0].size", gpc_match_groups(c, 0, g, 2, NULL, 0));
	g[1] = g[0];
	g[1].block_tokens = 65537;
	bad(EINVAL, "groups[1].block_tokens|65537|65536", gpc_match_groups(c, 0, g, 2, NULL, 0));
	g[0].blocks = NULL;
	bad(EINVAL, "groups[0].blocks|NULL", gpc_match_groups(c, 0, g, 2, NULL, 0));
	g[0].keys = NULL;
	bad(EINVAL, "groups[0].keys|NULL", gpc_match_groups(c, 0, g, 2, NULL, 0));
	g[0].n = UINT32_MAX;
	bad(EINVAL, "groups[0].n|4294967295|2147483647", gpc_match_groups(c, 0, g, 2, NULL, 0));
	bad(EINVAL, "size|2|gpc_match_options",
	    gpc_match_groups(c, 0, g, 1, &(struct gpc_match_options){ .size = 2 }, 0));
	bad(EINVAL, "keys|NULL", gpc_acquire(c, 0, NULL, 1, out.blocks, 0));
	bad(EINVAL, "blocks|NULL", gpc_acquire(c, 0, &k, 1, NULL, 0));
	bad(EINVAL, "flags|0x10|GPC_QUIET", gpc_acquire(c, 0, &k, 1, out.blocks, GPC_REF));
	bad(EINVAL, "keys|NULL", gpc_ref(c, NULL, out.blocks, 1));
	bad(EINVAL, "blocks|NULL", gpc_ref(c, &k, NULL, 1));
	bad(EINVAL, "blocks|NULL", gpc_release(c, NULL, 1));
}

/* ---- filling and moving ---- */

static void test_reserving(gpc *c)
{
	bad(EINVAL, "pool|16|15", gpc_reserve(c, 16, 1, out.blocks, NULL, 0, 0));
	bad(EINVAL, "pool|-1|15", gpc_reserve(c, -1, 1, out.blocks, NULL, 0, 0));
	bad(EINVAL, "blocks|NULL", gpc_reserve(c, 0, 1, NULL, NULL, 0, 0));
	bad(EINVAL, "flags|0x100|GPC_PARTIAL", gpc_reserve(c, 0, 1, out.blocks, NULL, GPC_COPY, 0));
	bad(EINVAL, "timeout_ms|-2|-1", gpc_reserve(c, 0, 1, out.blocks, NULL, 0, -2));
	bad(ENOENT, "pool|9", gpc_reserve(c, 9, 1, out.blocks, NULL, 0, 1000));
	bad(ENOSPC, "n|5000|max_blocks", gpc_reserve(c, 0, 5000, out.blocks, NULL, 0, 0));
	bad(ENOSPC, "n is 2|headroom 7: pool 0 has 8 blocks, so there are never so many",
	    gpc_reserve(c, 0, 2, out.blocks, GPC_OPTIONS(gpc_reserve_options, .headroom = 7), 0,
			1000));
	bad(EINVAL, "pool|16|15", gpc_evict(c, 16, 1, out.blocks, 0, 1000));
	bad(EINVAL, "blocks|NULL", gpc_evict(c, 0, 1, NULL, 0, 1000));
	bad(EINVAL, "flags|GPC_TAKE|GPC_PEEK",
	    gpc_evict(c, 0, 1, out.blocks, GPC_TAKE | GPC_PEEK, 1000));
	bad(EINVAL, "n|4097|GPC_PEEK|4096", gpc_evict(c, 0, 4097, out.blocks, GPC_PEEK, 1000));
	bad(EINVAL, "flags|0x40|GPC_TAKE, GPC_PEEK",
	    gpc_evict(c, 0, 1, out.blocks, GPC_PARTIAL, 1000));
	bad(EINVAL, "timeout_ms|-9", gpc_evict(c, 0, 1, out.blocks, 0, -9));
	bad(ENOENT, "pool|9", gpc_evict(c, 9, 1, out.blocks, 0, 1000));
	bad(EINVAL, "blocks|NULL", gpc_reclaim(c, NULL, NULL, 1, NULL, 0, 1000));
	bad(EINVAL, "flags|0x80", gpc_reclaim(c, NULL, out.blocks, 1, NULL, GPC_TAKE, 1000));
	bad(EINVAL, "timeout_ms|-9", gpc_reclaim(c, NULL, out.blocks, 1, NULL, 0, -9));
	bad(EINVAL, "to|NULL", gpc_rekey(c, NULL, NULL, NULL, out.blocks, 1, NULL, 0, 1000));
	bad(EINVAL, "flags|0x80|GPC_NO_REF",
	    gpc_rekey(c, NULL, NULL, out.keys, out.blocks, 1, NULL, GPC_TAKE, 1000));
	bad(EINVAL, "n|4294967295", gpc_reclaim(c, NULL, out.blocks, UINT32_MAX, NULL, 0, 1000));
}

static void test_filling(gpc *c)
{
	static gpc_block many[4097];
	gpc_key k = key_of(c, 1);
	gpc_block b = 0, far = GPC_BLOCK(9, 1), slot = GPC_BLOCK(0, 77), neg = -5;

	bad(EINVAL, "keys|NULL",
	    gpc_publish(
		    c, NULL, NULL, &b, 1,
		    GPC_OPTIONS(gpc_publish_options, .resident = out.resident, .ticket = &out.t), 0,
		    -1));
	bad(EINVAL, "blocks|NULL",
	    gpc_publish(
		    c, NULL, &k, NULL, 1,
		    GPC_OPTIONS(gpc_publish_options, .resident = out.resident, .ticket = &out.t), 0,
		    -1));
	bad(EINVAL, "flags|0x10|GPC_NO_REF",
	    gpc_publish(
		    c, NULL, &k, &b, 1,
		    GPC_OPTIONS(gpc_publish_options, .resident = out.resident, .ticket = &out.t),
		    GPC_REF, -1));
	bad(EINVAL, "n|4294967295",
	    gpc_publish(
		    c, NULL, &k, &b, UINT32_MAX,
		    GPC_OPTIONS(gpc_publish_options, .resident = out.resident, .ticket = &out.t), 0,
		    -1));
	bad(EINVAL, "blocks|NULL", gpc_drop(c, NULL, 1, &out.t, 0, -1));
	bad(EINVAL, "blocks[0]|pool 9", gpc_drop(c, &far, 1, &out.t, 0, -1));
	bad(EINVAL, "blocks[0]|slot 77|0 to 7", gpc_drop(c, &slot, 1, &out.t, 0, -1));
	bad(EINVAL, "blocks[0]|-5", gpc_drop(c, &neg, 1, &out.t, 0, -1));
	bad(EINVAL, "flags|0x10|GPC_EVERYWHERE", gpc_drop(c, &b, 1, &out.t, GPC_REF, -1));
	bad(EINVAL, "n|4097|4096", gpc_drop(c, many, 4097, &out.t, 0, 0));
	bad(EINVAL, "t|1000000", gpc_ticket_wait(c, 1000000, 0));
	bad(EINVAL, "timeout_ms|-3", gpc_ticket_wait(c, 0, -3));
	bad(EINVAL, "t|1000000", gpc_mirror_sync(c, 1000000, 0));
	bad(EINVAL, "timeout_ms|-3", gpc_mirror_sync(c, GPC_TICKET_ALL, -3));
}

static void test_moving(gpc *c)
{
	gpc_block b = GPC_BLOCK(0, 0), far = GPC_BLOCK(9, 1), ram = GPC_BLOCK(1, 0);
	struct gpc_move none = { .from = 0, .to = far };
	struct gpc_move gone = { .from = 0, .to = ram, .op = 77 };

	bad(EINVAL, "from|-1|15", gpc_demote(c, -1, 1, NULL, 1, out.moves, 0, 1000));
	bad(EINVAL, "to|-2|15", gpc_demote(c, 0, -2, NULL, 1, out.moves, 0, 1000));
	bad(EINVAL, "from|to|1", gpc_demote(c, 1, 1, NULL, 1, out.moves, 0, 1000));
	bad(EINVAL, "moves|NULL", gpc_demote(c, 0, 1, NULL, 1, NULL, 0, 1000));
	bad(EINVAL, "flags|0x40|GPC_COPY", gpc_demote(c, 0, 1, NULL, 1, out.moves, 64, 1000));
	bad(EINVAL, "timeout_ms|-4", gpc_demote(c, 0, 1, NULL, 1, out.moves, 0, -4));
	bad(ENOENT, "to|9", gpc_demote(c, 0, 9, NULL, 1, out.moves, 0, 1000));
	bad(ENOENT, "to|-1|pool 1", gpc_demote(c, 1, -1, NULL, 1, out.moves, 0, 1000));
	bad(ENOENT, "from|9", gpc_demote(c, 9, 1, NULL, 1, out.moves, 0, 1000));
	bad(ESTALE, "blocks[0]|slot 0|no key", gpc_demote(c, 0, 1, &b, 1, out.moves, 0, 1000));
	bad(EINVAL, "blocks[0]|pool 9", gpc_demote(c, 0, 1, &far, 1, out.moves, 0, 1000));
	bad(EINVAL, "GPC_COPY|0 and 1", gpc_demote(c, 0, 1, NULL, 1, out.moves, GPC_COPY, 1000));
	bad(EINVAL, "to|16|15", gpc_promote(c, &b, 1, 16, out.moves, 0, 1000));
	bad(EINVAL, "blocks|NULL", gpc_promote(c, NULL, 1, 0, out.moves, 0, 1000));
	bad(EINVAL, "moves|NULL", gpc_promote(c, &b, 1, 0, NULL, 0, 1000));
	bad(EINVAL, "flags|0x40|GPC_COPY", gpc_promote(c, &b, 1, 0, out.moves, GPC_PARTIAL, 1000));
	bad(EINVAL, "timeout_ms|-4", gpc_promote(c, &b, 1, 0, out.moves, 0, -4));
	bad(ESTALE, "blocks[0]|slot 0|no key", gpc_promote(c, &ram, 1, 0, out.moves, 0, 1000));
	bad(ENOENT, "to|9", gpc_promote(c, &ram, 1, 9, out.moves, 0, 1000));
	bad(EINVAL, "moves|NULL", gpc_commit(c, NULL, 1, out.results, 0, -1));
	bad(EINVAL, "n|4097|4096", gpc_commit(c, &gone, 4097, out.results, 0, -1));
	bad(EINVAL, "flags|0x40|GPC_CANCEL", gpc_commit(c, &gone, 1, out.results, 64, -1));
	item(0, "moves[0].to|pool 9", gpc_commit(c, &none, 1, out.results, 0, -1));
	item(0, "moves[0]|pool 1|slot 0|under way", gpc_commit(c, &gone, 1, out.results, 0, -1));
	item(0, "", gpc_commit(c, &gone, 0, out.results, 0, -1));
}

/* ---- errnos ---- */

/* What gpc_strerror says where there is no other sentence sends nobody round in circles. */
static void test_strerror(void)
{
	int i, round = 0;

	for (i = -200; i <= 200; i++)
		round += strstr(gpc_strerror(i), "gpc_last_error") != NULL;
	is_int(round, 0, "no sentence of gpc_strerror sends its reader to gpc_last_error");
}

static int body(void)
{
	gpc *c;

	test_strerror();
	out_fill();
	test_config();
	c = sentences_cache();
	test_options(c);
	out_fill();
	test_pools(c);
	out_fill();
	test_keys(c);
	test_asking(c);
	test_reserving(c);
	test_filling(c);
	test_moving(c);
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
