/* SPDX-License-Identifier: Apache-2.0 */
/* A tier on disk: what RAM gives up goes there, and comes back through RAM; restarts.
 * Tests: lib/tiers/steward/up.c lib/tiers/steward/restore.c lib/tiers/steward/disk.c lib/tiers/steward/open.c lib/tiers/steward/tier.h
 *   lib/bytes/payload/ask.c */
#include "t/lib/below.h"

#include <pthread.h>

static int ram, vram;

/* The clock that ages are counted by, ahead of its time. */
int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
static long seconds_later;

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
	int err = __real_clock_gettime(id, ts);

	if (id == CLOCK_BOOTTIME)
		ts->tv_sec += __atomic_load_n(&seconds_later, __ATOMIC_SEQ_CST);
	return err;
}

static gpc *three(uint32_t v, uint32_t r, uint32_t max)
{
	gpc *c = tiers_cache(max);

	ram = bytes_ram(c, r, 0, 0);
	vram = bytes_vram(c, v, 0, ram, 0);
	tiers_file();
	return c;
}

/* ---- down, and up ---- */

static void test_down_and_up(void)
{
	gpc *c = three(64, 16, 1024);
	struct gpc_tiers_options o = tiers_options(64);
	gpc_tiers *t;
	struct gpc_tier s;
	gpc_transfer tr = 0;
	gpc_block b[40];
	gpc_key k[41];

	o.ahead = 8;
	t = tiers_open(&o);
	tiers_fill(c, ram, 1, 40, 8);
	s = tier_of(c);
	is_int(s.kind, GPC_DISK, "the first tier below RAM is a disk");
	ok(s.written >= 24 && s.written_bytes == s.written * BYTES_IMAGE,
	   "at least 24 of 40 blocks were written: %d", (int)s.written);
	ok(tiers_below(c, 1, 40) >= 24, "and are in its pool");
	chain_keys(c, 1, 8, k);
	is_int(gpc_acquire(c, 0, k + 1, 8, b, 0), 0,
	       "the first blocks are in VRAM and RAM no more");
	is_int(gpc_prefetch(c, vram, k + 1, 4, 0, 5000), 4, "four are asked for, and come");
	is_int(gpc_acquire(c, 0, k + 1, 8, b, 0), 4, "they are in RAM");
	is_int(fetch_in(b, 4, ram), 4, "all of them");
	is_int(fetch_right(c, b, 4, 1), 4, "every byte");
	must(gpc_release(c, b, 4));
	is_int(gpc_fetch(c, vram, k + 1, 8, b, NULL, GPC_VERIFY_FIRST, NULL, 10000, &tr), 8,
	       "a fetch of eight asks for the others by itself");
	is_int(gpc_transfer_wait(c, tr, 5000), 0, "they are brought, with sums that are right");
	is_int(fetch_right(c, b, 8, 1), 8, "every byte");
	must(gpc_release(c, b, 8));
	s = tier_of(c);
	is_int((int)(s.bad + s.errors + s.failed + s.late), 0, "nothing went wrong");
	ok(s.brought >= 8, "eight or more were brought: %d", (int)s.brought);
	tiers_finish(c, t, "down and up");
}

/* Timeout 0 asks; the tier works on. */
static void test_background(void)
{
	gpc *c = three(64, 16, 1024);
	struct gpc_tiers_options o = tiers_options(64);
	gpc_tiers *t;
	gpc_block b[8];
	gpc_key k[41];
	int i, got = 0;

	o.ahead = 8;
	t = tiers_open(&o);
	tiers_fill(c, ram, 1, 40, 8);
	chain_keys(c, 1, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 6, 0, 0), 0, "with timeout 0 none is there yet");
	for (i = 0; i < 2000 && got < 6; i++) {
		got = must(gpc_lookup(c, 0, k + 1, 6, b, GPC_QUIET));
		usleep(1000);
	}
	is_int(got, 6, "and soon all are");
	is_int(gpc_prefetch(c, vram, k + 1, 6, 0, 0), 6, "which a second call says");
	is_int(gpc_prefetch(c, vram, (gpc_key[1]){ key_of(c, 999) }, 1, 0, 1000), 0,
	       "what is nowhere is a miss at once");
	tiers_finish(c, t, "background");
}

/* ---- restarts ---- */

static pthread_mutex_t told_lock = PTHREAD_MUTEX_INITIALIZER;
static char told[512];

static void keep_log(void *arg, int level, const char *text)
{
	(void)arg;
	(void)level;
	pthread_mutex_lock(&told_lock);
	if (strstr(text, "found again"))
		snprintf(told, sizeof(told), "%s", text);
	pthread_mutex_unlock(&told_lock);
}

/* What the log says agrees with what is counted. */
static void log_agrees(const struct gpc_tier *s)
{
	char want[512], wait[128] = "";

	if (s->orphans)
		snprintf(wait, sizeof(wait),
			 "; %d are of use when the blocks before them have been computed again",
			 (int)s->orphans);
	snprintf(want, sizeof(want), "tier disk of %s: %d of %d blocks are found again%s",
		 cache_name, (int)s->restored, (int)s->found, wait);
	pthread_mutex_lock(&told_lock);
	ok(strcmp(told, want) == 0, "the log says so: %s", told);
	told[0] = 0;
	pthread_mutex_unlock(&told_lock);
}

static void test_restart(void)
{
	gpc *c = three(64, 16, 1024);
	struct gpc_tiers_options o = tiers_options(64);
	gpc_tiers *t;
	struct gpc_tier s;
	gpc_block b[40];
	gpc_key k[41];
	int below;

	o.ahead = 8;
	t = tiers_open(&o);
	tiers_fill(c, ram, 1, 40, 8);
	below = tiers_below(c, 1, 40);
	must(gpc_tiers_close(t));
	is_int(tier_of(c).steward, -1, "nobody keeps it");
	chain_keys(c, 1, 8, k);
	o.disk_blocks = 0;
	o.log = keep_log;
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	s = tier_of(c);
	is_int((int)s.restored, below, "all blocks are published again");
	is_int((int)s.found, below, "which were found");
	is_int(tiers_below(c, 1, 40), below, "they are in the index");
	is_int((int)s.orphans, 0, "none is without its parent");
	log_agrees(&s);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 5000), 8, "and can be had");
	is_int(gpc_acquire(c, 0, k + 1, 8, b, 0), 8, "eight are in RAM");
	is_int(fetch_right(c, b, 8, 1), 8, "every byte");
	must(gpc_release(c, b, 8));
	tiers_finish(c, t, "restart");
}

/* The first one to go from the file is the one that was written first, also behind a restart. */
static void test_order(void)
{
	gpc *c = three(64, 16, 1024);
	struct gpc_tiers_options o = tiers_options(64);
	uint64_t n, oldest = 1;
	gpc_tiers *t;

	o.ahead = 8;
	t = tiers_open(&o);
	tiers_fill(c, ram, 1, 96, 8);
	must(gpc_tiers_close(t));
	o.disk_blocks = 0;
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	while (!tiers_below(c, oldest, 8))
		oldest += 8;
	is_int(tiers_below(c, oldest, 64), 64, "a file is full when it is opened again");
	for (n = 0; n < 4; n++) {
		tiers_fill(c, ram, 97 + 8 * n, 8, 8);
		ok(tiers_below(c, oldest + 8 * n, 8) == 0 &&
			   tiers_below(c, oldest + 8 * (n + 1), 8) == 8,
		   "chain %d goes, as it is the oldest", (int)n);
	}
	tiers_finish(c, t, "order");
}

static void test_orphans(void)
{
	gpc *c = three(64, 16, 1024);
	struct gpc_tiers_options o = tiers_options(64);
	struct gpc_tier s;
	gpc_block b[8];
	gpc_key k[9];
	gpc_tiers *t;
	int below;

	o.ahead = 8;
	t = tiers_open(&o);
	tiers_fill(c, ram, 1, 40, 8);
	below = tiers_below(c, 1, 40);
	must(gpc_tiers_close(t));
	is_int(tiers_lose_header(c, 3), 1, "one header is lost");
	o.disk_blocks = 0;
	o.log = keep_log;
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	s = tier_of(c);
	is_int((int)s.found, below - 1, "the others are found");
	is_int((int)s.orphans, 5, "five of them are behind it");
	is_int(tiers_below(c, 1, 40), below - 1, "all are in the index");
	log_agrees(&s);
	chain_keys(c, 1, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 5000), 2, "a prompt gets what is before the gap");
	bytes_chain(c, vram, 1, 3, b, false);
	is_int(gpc_acquire(c, 0, k + 1, 3, b, 0), 3, "the gap is computed again");
	is_int(gpc_prefetch(c, vram, k + 4, 5, 0, 5000), 5,
	       "and the next prompt gets what is behind it");
	is_int(gpc_acquire(c, 0, k + 4, 5, b + 3, 0), 5, "in RAM");
	is_int(fetch_right(c, b, 8, 1), 8, "every byte");
	must(gpc_release(c, b, 8));
	must(gpc_tiers_sync(c, TIERS_MS)); /* what these eight have made next to go is written */
	must(gpc_tiers_close(t));
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int((int)tier_of(c).found, 39, "the file has all but the one in VRAM");
	tiers_finish(c, t, "orphans");
}

/* A cache that is made anew, under the secret that the file keeps. */
static void test_other_cache(void)
{
	gpc *c = three(64, 16, 1024);
	struct gpc_tiers_options o = tiers_options(64);
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_tiers_file file = { .size = sizeof(file) };
	gpc_tiers *t;
	gpc_block b[40];
	gpc_key k[41];

	o.ahead = 8;
	t = tiers_open(&o);
	tiers_fill(c, ram, 1, 40, 8);
	must(gpc_tiers_close(t));
	is_int(gpc_tiers_file_get(tiers_path, &file), 0, "the file says of itself");
	ok(file.blocks == 64 && file.block_bytes == BYTES_IMAGE && file.has_secret,
	   "how large it is, and that it keeps a "
	   "secret");
	fetch_end(c, "the first cache");

	c = tiers_cache(1024);
	ram = bytes_ram(c, 16, 0, 0);
	o.disk_blocks = 0;
	refused(gpc_tiers_open(cache_name, &o, &t), EPROTO,
		"a cache of another secret has no use for it");
	cache_end(c);

	cfg.max_blocks = 1024;
	cfg.max_peers = 8;
	cfg.secret = file.secret;
	c = cache_make(&cfg, NULL);
	ram = bytes_ram(c, 16, 0, 0);
	vram = bytes_vram(c, 64, 0, ram, 0);
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	chain_keys(c, 1, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 5000), 8,
	       "one of the same secret finds its blocks");
	is_int(gpc_acquire(c, 0, k + 1, 8, b, 0), 8, "eight are in RAM");
	is_int(fetch_right(c, b, 8, 1), 8, "every byte");
	must(gpc_release(c, b, 8));
	tiers_finish(c, t, "the second cache");
}

/* ---- exclusive ---- */

static void test_exclusive(void)
{
	gpc *c = three(64, 16, 1024);
	struct gpc_tiers_options o = tiers_options(64);
	struct gpc_pool p = { .size = sizeof(p) };
	gpc_tiers *t;
	gpc_block b[40];
	gpc_key k[41];

	o.ahead = 8;
	o.flags = GPC_TIERS_EXCLUSIVE;
	t = tiers_open(&o);
	tiers_fill(c, ram, 1, 40, 8);
	must(gpc_pool_get(c, ram, &p));
	is_int(p.live, 8, "eight of RAM's 16 blocks are free");
	is_int(tiers_below(c, 1, 40), 32, "the others are on the disk");
	chain_keys(c, 1, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 4, 0, 5000), 4, "four come back");
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, 4), 0, "and are on the disk no more");
	is_int(gpc_acquire(c, 0, k + 1, 4, b, 0), 4, "but in RAM");
	is_int(fetch_right(c, b, 4, 1), 4, "every byte");
	must(gpc_release(c, b, 4));
	must(gpc_pool_get(c, ram, &p));
	is_int(p.live, 8, "and eight are free again");
	is_int(tiers_below(c, 1, 40), 32, "40 blocks in all");
	tiers_finish(c, t, "exclusive");
}

/* ---- policies ---- */

static void test_min_uses(void)
{
	gpc *c = three(64, 16, 1024);
	struct gpc_tiers_options o = tiers_options(64);
	gpc_tiers *t;

	o.ahead = 8;
	o.min_uses = 2;
	t = tiers_open(&o);
	tiers_fill(c, ram, 1, 40, 8);
	is_int((int)tier_of(c).written, 0, "what was next to go once is not written");
	ok(tier_of(c).unwanted >= 24, "and is counted: %d", (int)tier_of(c).unwanted);
	tiers_fill(c, ram, 1, 24, 8);
	ok(tier_of(c).written >= 8, "the second time it is: %d", (int)tier_of(c).written);
	tiers_finish(c, t, "min_uses");
}

int __real_gpc_reclaim(gpc *c, const gpc_key *keys, const gpc_block *blocks, uint32_t n,
		       int *results, uint32_t flags, int timeout_ms);
int __wrap_gpc_reclaim(gpc *c, const gpc_key *keys, const gpc_block *blocks, uint32_t n,
		       int *results, uint32_t flags, int timeout_ms);

static uint32_t reclaims, asked_back; /* calls; blocks */

int __wrap_gpc_reclaim(gpc *c, const gpc_key *keys, const gpc_block *blocks, uint32_t n,
		       int *results, uint32_t flags, int timeout_ms)
{
	__atomic_fetch_add(&reclaims, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&asked_back, n, __ATOMIC_SEQ_CST);
	return __real_gpc_reclaim(c, keys, blocks, n, results, flags, timeout_ms);
}

/* Old blocks that stay, since they are in use or others hang on them, are asked for all the time:
 * together, or the removals that wait behind that are late. */
static void test_age_held(void)
{
	gpc *c = three(64, 16, 1024);
	struct gpc_tiers_options o = tiers_options(64);
	struct gpc_pool p = { .size = sizeof(p) };
	gpc_key k[25];
	gpc_block b[24];
	gpc_tiers *t;
	int i;

	o.ahead = 8;
	o.max_age_s = 60;
	t = tiers_open(&o);
	tiers_fill(c, ram, 1, 40, 8);
	must(gpc_pool_get(c, tier_of(c).pool, &p));
	chain_keys(c, 1, 24, k);
	for (i = 0; i < 24; i += 8)
		is_int(gpc_acquire(c, GPC_SPACE(p.space), k + 1 + i, 8, b + i, 0), 8,
		       "blocks below are in use");
	__atomic_store_n(&asked_back, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&reclaims, 0, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&seconds_later, 62, __ATOMIC_SEQ_CST);
	for (i = 0; i < 600 && __atomic_load_n(&asked_back, __ATOMIC_SEQ_CST) < 24; i++)
		usleep(10000);
	ok(asked_back >= 24 && reclaims <= asked_back / 8, "%u are asked for by %u calls",
	   asked_back, reclaims);
	is_int(tiers_below(c, 1, 24), 24, "and stay while they are");
	must(gpc_release(c, b, 24));
	tiers_finish(c, t, "age, in use");
}

static void test_age(void)
{
	gpc *c = three(64, 16, 1024);
	struct gpc_tiers_options o = tiers_options(64);
	gpc_tiers *t;
	int i;

	o.ahead = 8;
	o.max_age_s = 60;
	t = tiers_open(&o);
	tiers_fill(c, ram, 1, 40, 8);
	is_int((int)tier_of(c).aged, 0, "no block is older than a minute");
	__atomic_store_n(&seconds_later, 62, __ATOMIC_SEQ_CST);
	for (i = 0; i < 600 && tier_of(c).aged < 20; i++)
		usleep(10000);
	ok(tier_of(c).aged >= 20, "they go when they are: %d", (int)tier_of(c).aged);
	tiers_finish(c, t, "age");
}

/* Less room than there are blocks: the least recent ones go. */
static void test_room(void)
{
	gpc *c = three(64, 16, 1024);
	struct gpc_tiers_options o = tiers_options(8);
	gpc_tiers *t;
	struct gpc_tier s;

	o.ahead = 8;
	o.flags = GPC_TIERS_EXCLUSIVE;
	t = tiers_open(&o);
	tiers_fill(c, ram, 1, 40, 8);
	s = tier_of(c);
	is_int(tiers_below(c, 1, 40), 8, "eight blocks are on a disk of eight");
	is_int((int)s.evicted, (int)s.written - 8, "the others went");
	tiers_finish(c, t, "room");
}

/* ---- bytes that are not what they were ---- */

static void test_bad(void)
{
	gpc *c = three(64, 16, 1024);
	struct gpc_tiers_options o = tiers_options(64);
	gpc_tiers *t;
	gpc_key k[41];
	uint8_t byte;
	long at;
	int fd;

	o.ahead = 8;
	t = tiers_open(&o);
	tiers_fill(c, ram, 1, 40, 8);
	at = tiers_find_image(3);
	ok(at > 0, "image 3 lies in the file");
	fd = open(tiers_path, O_RDWR);
	is_int((int)pread(fd, &byte, 1, at + 700), 1, "a byte of it");
	byte ^= 4;
	is_int((int)pwrite(fd, &byte, 1, at + 700), 1, "gets another bit");
	fsync(fd);
	close(fd);
	chain_keys(c, 1, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 5000), 2, "the prompt ends before it");
	is_int((int)tier_of(c).bad, 1, "it is counted");
	is_int(tiers_below(c, 3, 1), 0, "and is there no more");
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 5000), 2, "nobody asks for it again");
	is_int((int)tier_of(c).bad, 1, "so it is not counted twice");
	tiers_finish(c, t, "bad bytes");
}

static int body(void)
{
	test_down_and_up();
	test_background();
	test_restart();
	test_order();
	test_orphans();
	test_other_cache();
	test_exclusive();
	test_min_uses();
	test_age();
	test_age_held();
	test_room();
	test_bad();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
