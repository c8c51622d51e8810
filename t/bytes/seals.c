/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums that an engine makes itself (gpc_seal), and their way: RAM, a file or a store, and back.
 * Another seed, a bit that is flipped in each place, a store that is cut off, parts of an image.
 * Tests: lib/bytes/payload/seals.c lib/index/base/sums.c lib/tiers/steward/images.c
 *   lib/tiers/steward/down.c lib/tiers/steward/up.c lib/bytes/payload/sum.c lib/tiers/disk/slot.c
 *   lib/bytes/memfile/draft.c lib/tiers/remote/image.c lib/bytes/device/host_sum.c */
#include "t/lib/below.h"
#include "t/lib/node.h"
#include "t/lib/sums.h"

#include <ftw.h>

#define SEED  0x1234abcdu
#define PARTS 4u

static int make_ram(gpc *c, uint32_t seed, uint32_t sums)
{
	struct gpc_pool p = { .size = sizeof(p), .kind = GPC_RAM, .blocks = 16, .demote_to = -1 };
	struct gpc_memory m = {
		.size = sizeof(m), .block_bytes = BYTES_IMAGE, .seed = seed, .sums = sums
	};

	return gpc_pool_make(c, &p, &m, -1);
}

/* Of part `part` of that block, of `parts`. */
static uint32_t crc_of(gpc *c, gpc_block b, uint32_t seed, uint32_t part, uint32_t parts)
{
	uint32_t bytes = BYTES_IMAGE / parts;

	return gpc_crc32c(seed, bytes_place(c, b, part * bytes), bytes);
}

static struct gpc_sum seal_of(gpc *c, gpc_block b, uint32_t seed, uint32_t part, uint32_t parts)
{
	return (struct gpc_sum){ .crc = crc_of(c, b, seed, part, parts),
				 .seed = seed,
				 .word = part ? 0 : 0xfeed00000000 + (uint32_t)b };
}

/* As an engine stores block n: seeds[i] is of part i. */
static gpc_block put_in(gpc *c, int pool, uint64_t n, const uint32_t *seeds, uint32_t parts)
{
	gpc_key k = key_of(c, n);
	struct gpc_sum s;
	gpc_block b;
	uint32_t i;

	must(gpc_reserve(c, pool, 1, &b, NULL, 0, 60000));
	bytes_write(c, b, n, BYTES_IMAGE);
	for (i = 0; i < parts; i++) {
		s = seal_of(c, b, seeds[i], i, parts);
		must(gpc_seal(c, &b, &k, 1, i, &s));
	}
	if (must(gpc_publish(c, NULL, &k, &b, 1, NULL, GPC_NO_REF, -1)) != 1)
		bail("not published");
	return b;
}

static struct gpc_sum seal_at(gpc *c, gpc_block b, uint64_t n, uint32_t part)
{
	gpc_key k = key_of(c, n);
	struct gpc_sum s = { .result = -1 };

	must(gpc_sealed(c, &b, &k, 1, part, &s));
	return s;
}

/* As an engine verifies what it has read. */
static bool is_good(gpc *c, gpc_block b, uint64_t n, uint32_t seed, uint32_t part, uint32_t parts)
{
	struct gpc_sum s = seal_at(c, b, n, part);

	return !s.result && !s.flags && s.seed == seed && s.crc == crc_of(c, b, seed, part, parts);
}

/* ---- in RAM ---- */

static void test_arguments(void)
{
	gpc *c = tiers_cache(256), *d;
	gpc_key k = key_of(c, 1);
	struct gpc_info info = { .size = sizeof(info) };
	struct gpc_sum s = { 0 };
	gpc_block b, none = 1 << 20;
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = 64, .no_checksums = 1 };
	struct gpc_pool p = { .size = sizeof(p), .kind = GPC_RAM, .blocks = 4, .demote_to = -1 };
	struct gpc_pool_memory seen = { .size = sizeof(seen) };
	int pool = must(make_ram(c, SEED, PARTS)), bare = must(gpc_pool_make(c, &p, &m, -1));

	is_int(make_ram(c, 0, 257), -EINVAL, "too many sums: %s", gpc_last_error());
	is_int(make_ram(c, 0, 7), -EINVAL, "parts that are not equal: %s", gpc_last_error());
	m.seed = 1;
	is_int(gpc_pool_make(c, &p, &m, -1), -EINVAL, "a seed of nothing: %s", gpc_last_error());
	must(gpc_pool_memory_get(c, pool, &seen, NULL, 0));
	is_int(seen.sums, PARTS, "a pool tells how many sums an image has");
	must(gpc_reserve(c, pool, 1, &b, NULL, 0, 60000));
	is_int(gpc_seal(c, &b, &k, 1, PARTS, &s), -EINVAL, "no such part: %s", gpc_last_error());
	is_int(gpc_seal(c, &none, &k, 1, 0, &s), -EINVAL, "no such block: %s", gpc_last_error());
	is_int(gpc_seal(c, &b, NULL, 1, 0, &s), -EINVAL, "no keys: %s", gpc_last_error());
	s.flags = 2;
	is_int(gpc_seal(c, &b, &k, 1, 0, &s), -EINVAL, "no such flag: %s", gpc_last_error());
	s.flags = 0;
	d = cache_attach(0, 0);
	is_int(gpc_seal(d, &b, &k, 1, 0, &s), -EPERM, "nor does another peer seal it: %s",
	       gpc_last_error());
	must(gpc_close(d));
	is_int(seal_at(c, b, 1, 0).result, -ENODATA, "what is not sealed is not known");
	must(gpc_info_get(c, &info));
	must(gpc_attach(cache_name,
			GPC_OPTIONS(gpc_attach_options, .dir = cache_dir, .timeout_ms = 60000,
				    .leader = info.peer + 1, .life = info.life),
			0, &d));
	is_int(gpc_seal(d, &b, &k, 1, 0, &s), 0, "its companion does");
	is_int(seal_at(c, b, 1, 0).result, 0, "and it is known");
	must(gpc_close(d));
	must(gpc_release(c, &b, 1));
	must(gpc_ticket_wait(c, GPC_TICKET_ALL, 60000));
	is_int(gpc_seal(c, &b, &k, 1, 0, &s), -EINVAL,
	       "nor is a block that is not reserved sealed: %s", gpc_last_error());
	must(gpc_reserve(c, bare, 1, &b, NULL, 0, 60000));
	is_int(gpc_seal(c, &b, &k, 1, 0, &s), -ENODATA, "a pool without them: %s",
	       gpc_last_error());
	is_int(gpc_pool_seed(c, bare, 0, 1), -ENODATA, "nor has it seeds");
	must(gpc_release(c, &b, 1));
	is_int(gpc_pool_seed(c, pool, 1, SEED), 0, "the seed that it has");
	is_int(gpc_pool_seed(c, pool, 1, 7), 1, "another one");
	is_int(gpc_pool_seed(c, pool, 1, 7), 0, "and again");
	fetch_end(c, "arguments");
}

static void test_ram(void)
{
	static const uint32_t seed = SEED;
	gpc *c = tiers_cache(256);
	int pool = must(make_ram(c, SEED, 0));
	gpc_block b = put_in(c, pool, 1, &seed, 1);
	gpc_key k = key_of(c, 1), other = key_of(c, 2);
	struct gpc_sum s;

	ok(is_good(c, b, 1, SEED, 0, 1), "a sealed block is good");
	is_int((long long)seal_at(c, b, 1, 0).word, (long long)(0xfeed00000000 + (uint32_t)b),
	       "its word is there");
	ok(!is_good(c, b, 1, SEED + 1, 0, 1), "not for another structure");
	ok(!is_good(c, b, 2, SEED, 0, 1), "nor under another key");
	flip(c, b, 17);
	ok(!is_good(c, b, 1, SEED, 0, 1), "nor with a bit flipped");
	flip(c, b, 17);
	/* a life later: a store that was cut off before its seal */
	must(gpc_drop(c, &b, 1, NULL, 0, 5000));
	must(gpc_reserve(c, pool, 1, &b, NULL, 0, 60000));
	is_int(seal_at(c, b, 1, 0).result, -ENODATA, "a store that was cut off has no seal");
	s = seal_of(c, b, SEED, 0, 1);
	s.flags = GPC_SEAL_UNSUMMED;
	must(gpc_seal(c, &b, &k, 1, 0, &s));
	s = seal_at(c, b, 1, 0);
	ok(!s.result && s.flags == GPC_SEAL_UNSUMMED && s.seed == SEED,
	   "without a sum the rest is known");
	is_int(gpc_sealed(c, &b, &other, 1, 0, &s), 0, "of its key alone");
	must(gpc_release(c, &b, 1));
	fetch_end(c, "RAM");
}

/* ---- VRAM above ---- */

static void test_vram(void)
{
	gpc *c = tiers(0);
	gpc_block b[CHAIN], in_ram;
	gpc_transfer t;

	is_int(gpc_pool_seed(c, RAM, 0, SEED), 0, "the pool of RAM has a seed");
	spill_chain(c, 0);
	in_ram = in_space(c, 3, 0);
	ok(is_good(c, in_ram, 3, SEED, 0, 1), "a spill makes sums with it");
	is_int(fetch_all(c, b, 0, &t), CHAIN, "a fetch finds them");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "right");
	must(gpc_release(c, b, CHAIN));
	fetch_end(c, "VRAM");

	c = tiers(0);
	must(gpc_pool_seed(c, RAM, 0, SEED));
	spill_chain(c, 0);
	must(gpc_pool_seed(c, RAM, 0, SEED + 1));
	is_int(fetch_all(c, b, 0, &t), CHAIN, "a fetch into another structure");
	is_int(gpc_transfer_wait(c, t, 5000), -EBADMSG, "is refused");
	must(gpc_release(c, b, CHAIN));
	fetch_end(c, "VRAM of another structure");
}

/* ---- a file below ---- */

static void damage_file(uint64_t n)
{
	long at = tiers_find_image(n);
	int fd = open(tiers_path, O_RDWR);
	uint8_t byte;

	if (at < 0 || pread(fd, &byte, 1, at + 99) != 1)
		bail("no image %d", (int)n);
	byte ^= 4;
	if (pwrite(fd, &byte, 1, at + 99) != 1)
		bail("pwrite");
	close(fd);
}

/* In each value of the store. */
static int damage_value(const char *path, const struct stat *st, int type, struct FTW *where)
{
	int fd = type == FTW_F && st->st_size >= BYTES_IMAGE ? open(path, O_RDWR) : -1;
	uint8_t byte;

	(void)where;
	if (fd < 0)
		return 0;
	if (pread(fd, &byte, 1, st->st_size - 9) != 1)
		bail("pread");
	byte ^= 4;
	if (pwrite(fd, &byte, 1, st->st_size - 9) != 1)
		bail("pwrite");
	close(fd);
	return 0;
}

/* RAM has none of them any more. */
static void forget(gpc *c, int pool)
{
	gpc_block more[16];
	uint32_t i;

	for (i = 0; i < 2; i++) {
		must(gpc_reserve(c, pool, 16, more, NULL, 0, 60000));
		must(gpc_release(c, more, 16));
	}
	/* a question below RAM finds room only when the writer has them back */
	must(gpc_ticket_wait(c, GPC_TICKET_ALL, -1));
}

static gpc_block bring(gpc *c, int pool, uint64_t n)
{
	gpc_key k = key_of(c, n);
	gpc_block b = -1;

	if (gpc_prefetch(c, pool, &k, 1, 0, 20000) != 1)
		return -1;
	return gpc_lookup(c, 0, &k, 1, &b, GPC_QUIET) == 1 ? b : -1;
}

/* Blocks 1 .. n, sealed with these seeds, are below, and not in RAM. */
static void fill(gpc *c, int pool, uint32_t n, const uint32_t *seeds, uint32_t parts)
{
	uint32_t i;

	for (i = 1; i <= n; i++)
		put_in(c, pool, i, seeds, parts);
	must(gpc_tiers_sync(c, TIERS_MS));
	forget(c, pool);
}

static void test_below(const struct gpc_tiers_options *o, bool file, const uint32_t *seeds,
		       uint32_t parts, gpc *c, const char *what)
{
	int pool = must(make_ram(c, seeds[0], parts));
	gpc_tiers *t;
	gpc_block b;
	uint32_t i, good = 0;

	for (i = 0; i < parts; i++)
		must(gpc_pool_seed(c, pool, i, seeds[i]));
	t = tiers_open(o);
	fill(c, pool, 6, seeds, parts);
	b = bring(c, pool, 1);
	ok(b >= 0, "%s: a block comes back", what);
	for (i = 0; b >= 0 && i < parts; i++)
		good += is_good(c, b, 1, seeds[i], i, parts);
	is_int(good, parts, "with the sums of all its parts, made with their seeds");
	ok(b >= 0 && seal_at(c, b, 1, 0).word >> 32 == 0xfeed, "and its word");
	if (file) {
		damage_file(2);
		is_int(bring(c, pool, 2), -1, "a bit that is flipped there is a miss");
	}
	is_int(gpc_pool_seed(c, pool, parts - 1, 77), 1, "the pool has another seed in a part");
	is_int(bring(c, pool, 3), -1, "what is of the other structure does not come");
	must(gpc_pool_seed(c, pool, parts - 1, 0));
	is_int(bring(c, pool, 4), -1, "nor does anything to a pool that lacks a seed");
	is_int(gpc_pool_seed(c, pool, parts - 1, seeds[parts - 1]), 0, "it has its own again");
	ok(bring(c, pool, 4) >= 0, "the rest comes, and what was asked for without a seed");
	must(gpc_pool_seed(c, pool, 0, 78));
	put_in(c, pool, 20, seeds, parts);
	put_in(c, pool, 21, seeds, parts);
	must(gpc_tiers_sync(c, TIERS_MS));
	forget(c, pool);
	is_int(bring(c, pool, 20), -1, "a block goes below with its own seeds, not the pool's");
	must(gpc_pool_seed(c, pool, 0, seeds[0]));
	b = bring(c, pool, 21);
	ok(b >= 0 && is_good(c, b, 21, seeds[0], 0, parts), "and comes where these are wanted");
	if (!file) {
		nftw(store, damage_value, 8, FTW_PHYS);
		is_int(bring(c, pool, 5), -1, "a bit that is flipped there is a miss");
	}
	must(gpc_tiers_close(t));
	fetch_end(c, what);
}

static void test_file(void)
{
	static const uint32_t one[] = { SEED }, four[PARTS] = { 1, SEED, 3, 5 };
	struct gpc_tiers_options o;

	tiers_file();
	o = tiers_options(64);
	o.ahead = 16;
	test_below(&o, true, one, 1, tiers_cache(256), "a file");
	unlink(tiers_path);
	test_below(&o, true, four, PARTS, tiers_cache(256), "a file, four parts");
	unlink(tiers_path);
}

/* ---- a store below ---- */

static gpc *store_cache(void)
{
	struct gpc_config cfg = cache_config(0, 0);

	cache_thread = true;
	cfg.max_blocks = 4096;
	cfg.max_peers = 8;
	cfg.secret = secret;
	return cache_make(&cfg, NULL);
}

static void test_store(void)
{
	static const uint32_t one[] = { SEED }, four[PARTS] = { 1, SEED, 3, 9 };
	struct gpc_tiers_options o;

	new_store("");
	o = node_options(1024, 16, 2000);
	test_below(&o, false, one, 1, store_cache(), "a store");
	new_store("");
	o = node_options(1024, 16, 2000);
	test_below(&o, false, four, PARTS, store_cache(), "a store, four parts");
}

static int body(void)
{
	if (!remote_plugin("folder", plugin, sizeof(plugin)))
		bail("the plugin of folders is not built");
	test_arguments();
	test_ram();
	test_vram();
	test_file();
	test_store();
	return done_testing();
}

static void clean_all(void)
{
	cache_dir_remove();
	remote_dir_remove();
}

int main(void)
{
	remote_dir_make();
	cache_dir_make();
	return tap_guard(60, body, clean_all);
}
