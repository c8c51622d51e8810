/* SPDX-License-Identifier: Apache-2.0 */
/* Every public function with every bad argument there is: the errno, a sentence that names the
 * argument, its value and what it may be, and not a byte written.  What the writer refuses is
 * told as well: which pool, which block, why. */
#include "t/lib/cache.h"

static struct out {                      /* every place that a call may write to */
	gpc_block blocks[4], resident[4];
	gpc_key keys[4], root;
	struct gpc_move moves[4], victims[4];
	uint32_t len[4];
	int results[4];
	gpc_ticket t;
	uint64_t cursor;
	struct gpc_entry entry;
	struct gpc_event change;
	struct gpc_info info;
	struct gpc_stats stats;
	struct gpc_mirror mirror;
	struct gpc_pool pool;
	gpc *handle;
	gpc_dev *dev;
} out;

static void out_fill(void)
{
	memset(&out, 0x5a, sizeof(out));
	out.info.size = sizeof(out.info);
	out.stats.size = sizeof(out.stats);
	out.mirror.size = sizeof(out.mirror);
	out.pool.size = sizeof(out.pool);
}

/* words: separated by |, each in the sentence. */
static bool has_words(const char *text, const char *words)
{
	char list[256], *rest = list, *word;

	snprintf(list, sizeof(list), "%s", words);
	while ((word = strsep(&rest, "|")) != NULL)
		if (!strstr(text, word))
			return false;
	return true;
}

static void told(int got, int err, bool same, const char *call, const char *words)
{
	const char *text = gpc_last_error();
	bool good = got == -err && has_words(text, words) && !strstr(text, "gpc_last_error") &&
		    strlen(text) < 400;

	ok(good && same, "%.100s", call);
	if (!good)
		diag("got %d, want %d; \"%s\" without %s", got, -err, text, words);
	if (!same)
		diag("something was written");
}

/* Compares what the call found with what it left. */
#define bad(err, words, call)                                                  \
	do {                                                                   \
		struct out was;                                                \
		int got_;                                                      \
									       \
		cache_spoil();                                                 \
		memcpy(&was, &out, sizeof(was));                               \
		got_ = (call);                                                 \
		told(got_, err, !memcmp(&was, &out, sizeof(was)), #call, words); \
	} while (0)

/* A call that does what it can, and leaves a sentence about what it could not; or an empty one. */
#define item(want, words, call)                                                \
	do {                                                                   \
		int got_;                                                      \
									       \
		strcpy((char *)gpc_last_error(), "of an older call");          \
		got_ = (call);                                                 \
		ok(got_ == (want) && has_words(gpc_last_error(), words) &&     \
			   (*(words) ? 1 : !*gpc_last_error()),                \
		   "%.90s: %s", #call, *(words) ? words : "no refusal");       \
		diag("%d \"%s\"", got_, gpc_last_error());                     \
	} while (0)

/* ---- making and attaching ---- */

#define cfg_bad(words, field, value)                                           \
	do {                                                                   \
		struct gpc_config cfg = cache_config(8, 8);                    \
		cfg.field = value;                                             \
		diag("%s %s", #field, #value);                                 \
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
	cfg_bad("tick_us|4294967295|10000000", tick_us, UINT32_MAX);
	cfg_bad("free_target|-2|-1", free_target, -2);
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
	cfg_bad("devices|8 mirrors", devices, "cuda:0,cuda:1,cuda:2,cuda:3,cuda:4,cuda:5,cuda:6,"
		"cuda:7,host");
	cfg_bad("devices|63 bytes", devices, "cuda:00000000000000000000000000000000000000000000000"
		"0000000000000");
	cfg_bad("devices|byte 5", devices, "host\033[2J");
	bad(EINVAL, "ret|NULL", gpc_create("no", &good, NULL, 0, NULL));
	bad(EINVAL, "flags|0x10004|GPC_IF_ABSENT, GPC_SERVE",
	    gpc_create("no", &good, NULL, 0x10004, &out.handle));
}

#define opt_bad(words, field, value)                                           \
	do {                                                                   \
		struct gpc_attach_options o = { .size = sizeof(o), .dir = cache_dir }; \
		o.field = value;                                               \
		diag("%s %s", #field, #value);                                 \
		bad(EINVAL, words, gpc_attach(cache_name, &o, 0, &out.handle)); \
	} while (0)

static void test_options(gpc *c)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };

	opt_bad("size|8|gpc_attach_options", size, 8);
	opt_bad("timeout_ms|-2|-1", timeout_ms, -2);
	opt_bad("stock|1025|1024", stock, 1025);
	opt_bad("label|byte 4", label, "red\033[31m");
	opt_bad("label|byte 1|UTF-8", label, "\xff\xfe");
	opt_bad("label|byte 3", label, "c1\xc2\x9b" "2J");
	bad(EINVAL, "flags|0x10|GPC_SERVE, GPC_READONLY",
	    gpc_attach(cache_name, &opt, GPC_REF, &out.handle));
	bad(EINVAL, "GPC_READONLY|GPC_SERVE",
	    gpc_attach(cache_name, &opt, GPC_READONLY | GPC_SERVE, &out.handle));
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

#define pool_bad(err, words, field, value)                                     \
	do {                                                                   \
		struct gpc_pool p = pool_of(GPC_VRAM, 2, 0);                   \
		struct gpc_pool was_;                                          \
		p.field = value;                                               \
		was_ = p;                                                      \
		diag("%s %s", #field, #value);                                 \
		bad(err, words, gpc_pool_add(c, &p, -1));                          \
		ok(!memcmp(&p, &was_, sizeof(p)), "the description stays");     \
	} while (0)

static void test_pools(gpc *c)
{
	pool_bad(EINVAL, "size|5|gpc_pool", size, 5);
	pool_bad(EINVAL, "kind|7|GPC_VRAM (1)|GPC_RAM (2)", kind, 7);
	pool_bad(EINVAL, "flags|0x9|0x8|GPC_POOL_CALLER", flags, 9);
	pool_bad(EINVAL, "space|32|31", space, 32);
	pool_bad(EINVAL, "blocks|0|1 to 16777216", blocks, 0);
	pool_bad(EINVAL, "blocks|16777217|16777216", blocks, (1u << 24) + 1);
	pool_bad(EINVAL, "transit|16777216", transit, 1u << 24);
	pool_bad(EINVAL, "gpus|17|16", gpus, 17);
	pool_bad(EINVAL, "backing_size|1025|1024", backing_size, 1025);
	pool_bad(EINVAL, "demote_to|-2|-1", demote_to, -2);
	pool_bad(ENOENT, "demote_to|9", demote_to, 9);
	pool_bad(ENOSPC, "blocks|9999|max_blocks", blocks, 9999);
	bad(EINVAL, "p|NULL", gpc_pool_add(c, NULL, -1));
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
	bad(EINVAL, "flags|0x1|GPC_REMOVE", gpc_pool_clear(c, 0, 0, 1, 1000));
	bad(EINVAL, "timeout_ms|-7|-1", gpc_pool_clear(c, 0, 0, 0, -7));
	bad(ENOENT, "pool|9", gpc_pool_clear(c, 9, 0, 0, 1000));
}

/* ---- keys ---- */

static void test_keys(gpc *c)
{
	struct gpc_extra x[2] = { { 20, 1, "a" }, { 4, 1, "b" } }, none = { 3, 7, NULL };
	struct gpc_field f = { .tag = 1, .len = 3 }, r = { .tag = 1, .reserved = 4 };
	uint32_t tok[64] = { 0 };

	bad(EINVAL, "tokens|NULL", gpc_key_hash(c, NULL, NULL, 16, NULL, 0, 0, out.keys));
	bad(EINVAL, "ret_keys|NULL", gpc_key_hash(c, NULL, tok, 16, NULL, 0, 0, NULL));
	bad(EINVAL, "flags|0x8|GPC_TAIL",
	    gpc_key_hash(c, NULL, tok, 16, NULL, 0, GPC_QUIET, out.keys));
	bad(EINVAL, "x|NULL", gpc_key_hash(c, NULL, tok, 64, NULL, 1, 0, out.keys));
	bad(EINVAL, "x[1].token|4|20", gpc_key_hash(c, NULL, tok, 64, x, 2, 0, out.keys));
	bad(EINVAL, "x[0].token|20|0 to 15", gpc_key_hash(c, NULL, tok, 16, x, 1, 0, out.keys));
	bad(EINVAL, "x[0].data|NULL|7", gpc_key_hash(c, NULL, tok, 16, &none, 1, 0, out.keys));
	bad(EINVAL, "n|2147483647", gpc_key_hash(c, NULL, tok, SIZE_MAX, NULL, 0, 0, out.keys));
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
}

/* ---- asking ---- */

static void test_asking(gpc *c)
{
	gpc_key k = key_of(c, 1);
	uint32_t start[3] = { 0, 2, 1 }, far[2] = { 0, UINT32_MAX };

	bad(EINVAL, "keys|NULL", gpc_lookup(c, 0, NULL, 1, out.blocks, 0));
	bad(EINVAL, "blocks|NULL", gpc_lookup(c, 0, &k, 1, NULL, 0));
	bad(EINVAL, "n|4294967295|2147483647", gpc_lookup(c, 0, &k, UINT32_MAX, out.blocks, 0));
	bad(EINVAL, "flags|0x40|GPC_QUIET, GPC_REF, GPC_ANYWHERE, GPC_DEVICE",
	    gpc_lookup(c, 0, &k, 1, out.blocks, GPC_PARTIAL));
	bad(ENODEV, "gpc_dev_open", gpc_lookup(c, 0, &k, 1, out.blocks, GPC_DEVICE));
	bad(EINVAL, "start[1]|2|start[2]|1",
	    gpc_match(c, 0, &k, start, 2, out.len, out.blocks, 0));
	bad(EINVAL, "start|NULL", gpc_match(c, 0, &k, NULL, 1, out.len, out.blocks, 0));
	bad(EINVAL, "len|NULL", gpc_match(c, 0, &k, start, 1, NULL, out.blocks, 0));
	bad(EINVAL, "keys|NULL", gpc_match(c, 0, NULL, start, 1, out.len, out.blocks, 0));
	bad(EINVAL, "nseq|4294967295",
	    gpc_match(c, 0, &k, start, UINT32_MAX, out.len, out.blocks, 0));
	bad(EINVAL, "start[1]|4294967295|2147483647",
	    gpc_match(c, 0, &k, far, 1, out.len, out.blocks, 0));
	bad(EINVAL, "flags|0x10|GPC_QUIET, GPC_ANYWHERE, GPC_DEVICE",
	    gpc_match(c, 0, &k, start, 1, out.len, out.blocks, GPC_REF));
	bad(EINVAL, "keys|NULL", gpc_acquire(c, 0, NULL, 1, out.blocks, 0));
	bad(EINVAL, "blocks|NULL", gpc_acquire(c, 0, &k, 1, NULL, 0));
	bad(EINVAL, "flags|0x10|GPC_QUIET", gpc_acquire(c, 0, &k, 1, out.blocks, GPC_REF));
	bad(EINVAL, "keys|NULL", gpc_ref(c, NULL, out.blocks, 1));
	bad(EINVAL, "blocks|NULL", gpc_ref(c, &k, NULL, 1));
	bad(EINVAL, "blocks|NULL", gpc_release(c, NULL, 1));
}

/* ---- filling and moving ---- */

static void test_filling(gpc *c)
{
	static gpc_block many[4097];
	gpc_key k = key_of(c, 1);
	gpc_block b = 0, far = GPC_BLOCK(9, 1), slot = GPC_BLOCK(0, 77), neg = -5;

	bad(EINVAL, "pool|16|15", gpc_reserve(c, 16, 1, out.blocks, NULL, 0, 0));
	bad(EINVAL, "pool|-1|15", gpc_reserve(c, -1, 1, out.blocks, NULL, 0, 0));
	bad(EINVAL, "blocks|NULL", gpc_reserve(c, 0, 1, NULL, NULL, 0, 0));
	bad(EINVAL, "flags|0x100|GPC_PARTIAL",
	    gpc_reserve(c, 0, 1, out.blocks, NULL, GPC_COPY, 0));
	bad(EINVAL, "timeout_ms|-2|-1", gpc_reserve(c, 0, 1, out.blocks, NULL, 0, -2));
	bad(ENOENT, "pool|9", gpc_reserve(c, 9, 1, out.blocks, NULL, 0, 1000));
	bad(ENOSPC, "n|5000|max_blocks", gpc_reserve(c, 0, 5000, out.blocks, NULL, 0, 0));
	bad(ENOSPC, "n is 2|leave is 7|8 blocks|pool 0",
	    gpc_reserve(c, 0, 2, out.blocks,
			GPC_OPTIONS(gpc_reserve_options, .headroom = 7), 0, 1000));
	bad(EINVAL, "pool|16|15", gpc_evict(c, 16, 1, out.blocks, 0, 1000));
	bad(EINVAL, "blocks|NULL", gpc_evict(c, 0, 1, NULL, 0, 1000));
	bad(EINVAL, "flags|0x40|GPC_TAKE", gpc_evict(c, 0, 1, out.blocks, GPC_PARTIAL, 1000));
	bad(EINVAL, "timeout_ms|-9", gpc_evict(c, 0, 1, out.blocks, 0, -9));
	bad(ENOENT, "pool|9", gpc_evict(c, 9, 1, out.blocks, 0, 1000));
	bad(EINVAL, "keys|NULL", gpc_publish(c, NULL, NULL, &b, 1,
					     GPC_OPTIONS(gpc_publish_options,
							 .resident = out.resident,
							 .ticket = &out.t), 0, -1));
	bad(EINVAL, "blocks|NULL",
	    gpc_publish(c, NULL, &k, NULL, 1,
			GPC_OPTIONS(gpc_publish_options, .resident = out.resident,
				    .ticket = &out.t), 0, -1));
	bad(EINVAL, "flags|0x10|none",
	    gpc_publish(c, NULL, &k, &b, 1,
			GPC_OPTIONS(gpc_publish_options, .resident = out.resident,
				    .ticket = &out.t), GPC_REF, -1));
	bad(EINVAL, "n|4294967295",
	    gpc_publish(c, NULL, &k, &b, UINT32_MAX,
			GPC_OPTIONS(gpc_publish_options, .resident = out.resident,
				    .ticket = &out.t), 0, -1));
	bad(EINVAL, "blocks|NULL", gpc_drop(c, NULL, 1, &out.t, 0, -1));
	bad(EINVAL, "blocks[0]|pool 9", gpc_drop(c, &far, 1, &out.t, 0, -1));
	bad(EINVAL, "blocks[0]|slot 77|0 to 7", gpc_drop(c, &slot, 1, &out.t, 0, -1));
	bad(EINVAL, "blocks[0]|-5", gpc_drop(c, &neg, 1, &out.t, 0, -1));
	bad(EINVAL, "flags|0x10|none", gpc_drop(c, &b, 1, &out.t, GPC_REF, -1));
	bad(EINVAL, "n|4097|4096", gpc_drop(c, many, 4097, &out.t, 0, 0));
	bad(EINVAL, "t|1000000", gpc_ticket_wait(c, 1000000, 0));
	bad(EINVAL, "timeout_ms|-3", gpc_ticket_wait(c, 0, -3));
	bad(EINVAL, "t|1000000", gpc_mirror_sync(c, 1000000, 0));
	bad(EINVAL, "timeout_ms|-3", gpc_mirror_sync(c, GPC_TICKET_ALL, -3));
}

static void test_moving(gpc *c)
{
	gpc_block b = GPC_BLOCK(0, 0), far = GPC_BLOCK(9, 1), ram = GPC_BLOCK(1, 0);
	struct gpc_move none = { .from = 0, .to = far }, gone = { .from = 0, .to = ram, .op = 77 };

	bad(EINVAL, "from|-1|15", gpc_demote(c, -1, 1, NULL, 1, out.moves, 0, 1000));
	bad(EINVAL, "to|-2|15", gpc_demote(c, 0, -2, NULL, 1, out.moves, 0, 1000));
	bad(EINVAL, "from|to|1", gpc_demote(c, 1, 1, NULL, 1, out.moves, 0, 1000));
	bad(EINVAL, "moves|NULL", gpc_demote(c, 0, 1, NULL, 1, NULL, 0, 1000));
	bad(EINVAL, "flags|0x40|GPC_COPY", gpc_demote(c, 0, 1, NULL, 1, out.moves, 64, 1000));
	bad(EINVAL, "timeout_ms|-4", gpc_demote(c, 0, 1, NULL, 1, out.moves, 0, -4));
	bad(ENOENT, "to|9", gpc_demote(c, 0, 9, NULL, 1, out.moves, 0, 1000));
	bad(ENOENT, "to|-1|pool 1", gpc_demote(c, 1, -1, NULL, 1, out.moves, 0, 1000));
	bad(ENOENT, "from|9", gpc_demote(c, 9, 1, NULL, 1, out.moves, 0, 1000));
	bad(ESTALE, "blocks[0]|slot 0|live", gpc_demote(c, 0, 1, &b, 1, out.moves, 0, 1000));
	bad(EINVAL, "blocks[0]|pool 9", gpc_demote(c, 0, 1, &far, 1, out.moves, 0, 1000));
	bad(EINVAL, "GPC_COPY|0 and 1", gpc_demote(c, 0, 1, NULL, 1, out.moves, GPC_COPY, 1000));
	bad(EINVAL, "to|16|15", gpc_promote(c, &b, 1, 16, out.moves, NULL, 0, 1000));
	bad(EINVAL, "blocks|NULL", gpc_promote(c, NULL, 1, 0, out.moves, NULL, 0, 1000));
	bad(EINVAL, "moves|NULL", gpc_promote(c, &b, 1, 0, NULL, NULL, 0, 1000));
	bad(EINVAL, "flags|0x40|GPC_COPY",
	    gpc_promote(c, &b, 1, 0, out.moves, out.victims, GPC_PARTIAL, 1000));
	bad(EINVAL, "timeout_ms|-4", gpc_promote(c, &b, 1, 0, out.moves, NULL, 0, -4));
	bad(ESTALE, "blocks[0]|slot 0|live",
	    gpc_promote(c, &ram, 1, 0, out.moves, out.victims, 0, 1000));
	bad(ENOENT, "to|9", gpc_promote(c, &ram, 1, 9, out.moves, NULL, 0, 1000));
	bad(EINVAL, "moves|NULL", gpc_commit(c, NULL, 1, out.results, 0, -1));
	bad(EINVAL, "n|4097|4096", gpc_commit(c, &gone, 4097, out.results, 0, -1));
	bad(EINVAL, "flags|0x40|GPC_CANCEL", gpc_commit(c, &gone, 1, out.results, 64,
							-1));
	item(0, "moves[0].to|pool 9", gpc_commit(c, &none, 1, out.results, 0, -1));
	item(0, "moves[0]|pool 1|slot 0|under way", gpc_commit(c, &gone, 1, out.results,
							       0, -1));
	item(0, "", gpc_commit(c, &gone, 0, out.results, 0, -1));
}

/* ---- the rest ---- */

static void test_rest(gpc *c)
{
	gpc_dev *d = NULL;
	gpc_key k = key_of(c, 1);
	uint32_t start[2] = { 0, 1 };

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

/* ---- items ---- */

static void test_publish_items(gpc *c)
{
	gpc_block b[4], lost = GPC_BLOCK(0, 70);
	gpc_key k[6], parents[2], bogus = key_of(c, 999), zero = { { 0, 0 } }, root;
	gpc_ticket t;

	must(gpc_key_root(c, NULL, 0, &root));
	chain_keys(c, 1, 4, k);
	must(gpc_reserve(c, 0, 4, b, NULL, 0, 1000));
	item(1, "", gpc_publish(c, k, k + 1, b, 1,
				GPC_OPTIONS(gpc_publish_options,
					    .resident = out.resident), 0, -1));
	parents[0] = k[1];
	parents[1] = bogus;
	item(1, "parents[1]|not live|blocks[1]",
	     gpc_publish(c, parents, k + 2, b + 1, 2,
			 GPC_OPTIONS(gpc_publish_options, .resident = out.resident), 0,
			 -1));
	is_int(out.resident[1], -ENOENT, "as the answer has it");
	item(0, "blocks[0]|published already", gpc_publish(c, k, k + 4, b, 1, NULL, 0,
							   -1));
	item(0, "keys[0]|zero", gpc_publish(c, k, &zero, b + 2, 1, NULL, 0, -1));
	item(0, "keys[0]|root", gpc_publish(c, k, &root, b + 2, 1, NULL, 0, -1));
	item(0, "keys[0] and parents[0]", gpc_publish(c, k + 3, k + 3, b + 2, 1, NULL, 0,
						      -1));
	item(0, "blocks[0]|slot 70|0 to 7", gpc_publish(c, k, k + 3, &lost, 1, NULL, 0,
							-1));
	/* the key is live elsewhere: no refusal */
	item(0, "", gpc_publish(c, k, k + 1, b + 2, 1, NULL, 0, -1));
	/* without waiting: told by the wait */
	parents[0] = bogus;
	item(0, "", gpc_publish(c, parents, k + 3, b + 2, 1,
				GPC_OPTIONS(gpc_publish_options, .ticket = &t), 0, 0));
	item(0, "parents[0]|not live", gpc_ticket_wait(c, t, 2000));
	item(0, "", gpc_ticket_wait(c, t, 2000));
	must(gpc_release(c, b + 2, 2));
	item(0, "blocks[0]|slot", gpc_publish(c, k, k + 3, b + 2, 1,
					      GPC_OPTIONS(gpc_publish_options,
							  .ticket = &t), 0, 0));
	must(gpc_release(c, b, 2));
	done(c);
}

/* Not yours, and not back yet: two sentences. */
static void test_whose(gpc *c)
{
	gpc *d = cache_attach(0, 2);
	gpc_block b[2], mine[2], got[8];
	gpc_key k[3];

	chain_keys(c, 40, 2, k);
	must(gpc_reserve(c, 0, 2, b, NULL, 0, 1000));
	must(gpc_reserve(d, 0, 1, mine, NULL, 0, 1000));
	item(0, "blocks[0]|reserved by peer|this is peer",
	     gpc_publish(d, k, k + 1, b, 1, NULL, 0, -1));
	bad(EDQUOT, "n is 2|1 blocks|quota is 2",
	    gpc_reserve(d, 0, 2, out.blocks, NULL, 0, 1000));
	bad(EPERM, "blocks[1]|no reference or reservation",
	    gpc_release(d, (gpc_block[]){ GPC_NONE, b[1] }, 2));
	/* referenced by the other one, dropped by us: on its way back */
	must(gpc_publish(c, k, k + 1, b, 1, NULL, 0, -1));
	is_int(gpc_acquire(d, 0, k + 1, 1, got, 0), 1, "the other one holds it");
	must(gpc_drop(c, b, 1, NULL, 0, -1));
	item(0, "blocks[0]|not back yet", gpc_publish(c, k, k + 1, b, 1, NULL, 0, -1));
	item(0, "blocks[0]|keys[0]", gpc_ref(c, k + 1, b, 1));
	must(gpc_release(c, b, 2));
	done(c);
	must(gpc_release(d, got, 1));
	item(0, "blocks[0]|gpc_reserve", gpc_publish(d, k, k + 1, (gpc_block[]){ 6 }, 1,
						     NULL, 0, -1));
	must(gpc_close(d));
	settle(c);
}

/* The pool of an engine with its own allocator. */
static void test_caller_pool(gpc *c)
{
	int pool = pool_new(c, GPC_VRAM, 4, 3, GPC_POOL_CALLER);
	char words[64];

	snprintf(words, sizeof(words), "pool %d|GPC_POOL_CALLER|only its owner", pool);
	bad(EPERM, words, gpc_reserve(c, pool, 1, out.blocks, NULL, 0, 1000));
	bad(EPERM, words, gpc_demote(c, 0, pool, NULL, 1, out.moves, 0, 1000));
	must(gpc_pool_clear(c, pool, 0, GPC_REMOVE, 2000));
}

static void test_move_items(gpc *c)
{
	gpc_block b[3];
	gpc_key k[4];
	struct gpc_move m[2];

	chain_keys(c, 60, 3, k);
	chain_hold(c, 0, 60, 3, b);
	bad(EPERM, "blocks[0]|children", gpc_demote(c, 0, 1, b, 1, out.moves, 0, 1000));
	is_int(gpc_demote(c, 0, 1, b + 2, 1, m, 0, 1000), 1, "the leaf moves");
	bad(ENOSPC, "blocks[0]|being moved", gpc_demote(c, 0, 1, b + 2, 1, out.moves, 0, 1000));
	item(0, "blocks[0]|target of a move", gpc_publish(c, k, k + 1, &m[0].to, 1, NULL,
							  0, -1));
	must(gpc_drop(c, b + 2, 1, NULL, 0, -1));
	m[1] = m[0];
	item(0, "moves[0]|under way", gpc_commit(c, m, 2, out.results, 0, -1));
	ok(out.results[0] == -ESTALE && out.results[1] == -ESTALE, "as the results have it");
	must(gpc_release(c, b, 3));
	bad(EPERM, "blocks[0]|no reference",
	    gpc_promote(c, b, 1, 2, out.moves, NULL, GPC_COPY, 1000));
	done(c);
}

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
	struct gpc_config cfg = cache_config(8, 8);
	gpc *c;

	cache_thread = true;
	test_strerror();
	out_fill();
	test_config();
	cfg.devices = "host";
	cfg.max_blocks = 256;
	c = cache_make(&cfg, NULL);
	test_options(c);
	out_fill();
	test_pools(c);
	out_fill();
	test_keys(c);
	test_asking(c);
	test_filling(c);
	test_moving(c);
	test_rest(c);
	is_int(gpc_pool_available(c, 0), 8, "nothing was done");
	clean(c, "bad arguments");
	test_publish_items(c);
	test_whose(c);
	test_caller_pool(c);
	pool_new(c, GPC_VRAM, 4, 5, 0);
	test_move_items(c);
	settle(c);
	clean(c, "what was refused");
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
