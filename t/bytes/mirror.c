/* SPDX-License-Identifier: Apache-2.0 */
/* A mirror on the host device, through the public calls: after a sync it answers as the
 * host table does, whatever went on before; its sections count; each writer has its
 * own.
 * Tests: lib/index/table/mirror.c lib/index/writer/mirrors.c lib/bytes/device/host_mirror.c */
#include <sys/resource.h>

#include "t/lib/churn.h"
#include "t/lib/lag.h"

static struct gpc_config with_mirror(uint32_t vram)
{
	struct gpc_config cfg = cache_config(vram, 0);

	cfg.devices = "host";
	return cfg;
}

static void synced(gpc *c)
{
	if (gpc_mirror_sync(c, GPC_TICKET_ALL, 2000))
		bail("gpc_mirror_sync: %s", gpc_last_error());
}

/* One launch: keys to blocks. */
static void launch(gpc_dev *d, uint32_t spaces, const gpc_key *keys, uint32_t n, gpc_block *b)
{
	int section = must(gpc_dev_enter(d));

	must(gpc_dev_lookup(d, spaces, keys, n, b, NULL));
	must(gpc_dev_leave(d, section, NULL));
	must(gpc_dev_wait(d, NULL, 60000));
}

/* ---- the same answers ---- */

static const uint32_t masks[] = { 0, 1, 2, 4, 3, 5, 6, 7, 1u << 9, 0x201 };

static uint32_t differences(gpc *c, gpc_dev *d)
{
	gpc_block host[CHURN_KEYS], dev[CHURN_KEYS];
	uint32_t i, j, bad = 0;

	for (i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
		must(gpc_lookup(c, masks[i], churn.key, CHURN_KEYS, host, GPC_QUIET));
		for (j = 0; j < CHURN_KEYS; j++)
			dev[j] = -77;
		launch(d, masks[i], churn.key, CHURN_KEYS, dev);
		for (j = 0; j < CHURN_KEYS; j++)
			bad += host[j] != dev[j];
		must(gpc_lookup(c, masks[i], churn.key, CHURN_KEYS, dev, GPC_QUIET | GPC_ANYWHERE));
		bad += memcmp(host, dev, sizeof(host)) != 0;
	}
	return bad;
}

static uint32_t match_differences(gpc *c, gpc_dev *d)
{
	gpc_key keys[20 * CHURN_DEEP];
	gpc_block host[20 * CHURN_DEEP], dev[20 * CHURN_DEEP];
	uint32_t start[21] = { 0 }, len[20], dlen[20], path[CHURN_DEEP], i, j, n, bad = 0;
	int section;

	for (i = 0; i < 20; i++) {
		n = chance(8) ? churn_path(1 + chance(CHURN_KEYS - 1), path) : 0;
		for (j = 0; j < n; j++)
			keys[start[i] + j] = churn.key[path[j]];
		start[i + 1] = start[i] + n;
	}
	memset(host, 0x5a, sizeof(host));
	memset(dev, 0x5a, sizeof(dev));
	for (i = 0; i < 3; i++) {
		must(gpc_match(c, masks[i], keys, start, 20, len, host, GPC_QUIET));
		section = must(gpc_dev_enter(d));
		must(gpc_dev_match(d, masks[i], keys, start, 20, dlen, dev, NULL));
		must(gpc_dev_leave(d, section, NULL));
		must(gpc_dev_wait(d, NULL, 60000));
		bad += memcmp(len, dlen, sizeof(len)) || memcmp(host, dev, sizeof(host));
	}
	return bad;
}

static uint64_t changes_of(gpc *c)
{
	struct gpc_mirror m = { .size = sizeof(m) };

	must(gpc_mirror_get(c, 0, &m));
	return m.changes;
}

/* Host and device are compared while nothing changes: what a key has moved from goes by itself,
 * a while after the call that moved it.  So the count is read before the sync: a change behind
 * the sync is on no mirror yet, and is a reason to look again. */
struct compared {
	uint32_t blocks, matches, dirty;
};

static struct compared compare(gpc *c, gpc_dev *d)
{
	struct compared got;
	uint64_t before;

	do {
		before = changes_of(c);
		synced(c);
		got.dirty = mirror_lag(c) != 0;
		got.blocks = differences(c, d);
		got.matches = match_differences(c, d);
	} while (changes_of(c) != before);
	return got;
}

static void test_churn(void)
{
	struct gpc_config cfg = with_mirror(0);
	gpc *c = churn_begin(&cfg);
	uint32_t i, bad = 0, bad_match = 0, dirty = 0;
	struct compared got;
	gpc_dev *d;

	is_int(gpc_dev_open(c, "host", &d), 0, "the mirror is imported");
	for (i = 0; i < 1500; i++) {
		churn_step();
		if (i % 25 != 24)
			continue;
		got = compare(c, d);
		dirty += got.dirty;
		bad += got.blocks;
		bad_match += got.matches;
		if (i % 500 == 499)
			churn_pool();
	}
	is_int(bad, 0, "lookups on the device are the host's");
	is_int(bad_match, 0, "matches, too");
	is_int(dirty, 0, "nothing is dirty after a sync");
	churn_end();
	is_int(compare(c, d).blocks, 0, "also in the end");
	is_int(gpc_dev_close(d), 0, "closed");
	cache_end(c);
}

/* ---- what is shown when ---- */

static void test_sync(void)
{
	struct gpc_config cfg = with_mirror(8);
	gpc *c = cache_make(&cfg, NULL);
	struct gpc_mirror m = { .size = sizeof(m) };
	gpc_key k[5];
	gpc_block b[4], got[4], res[4];
	gpc_ticket t;
	gpc_dev *d;

	chain_keys(c, 1, 4, k);
	is_int(info_of(c).mirrors, 1, "one mirror");
	is_str(info_of(c).devices, "host", "on the host");
	is_int(gpc_mirror_get(c, 0, &m), 0, "described");
	ok(!strcmp(m.device, "host") && !m.retired && m.bytes && m.generation, "as it is");
	refused(gpc_mirror_get(c, 1, &m), ENOENT, "there is no other");
	refused(gpc_mirror_get(c, -1, &m), EINVAL, "they count from 0");
	must(gpc_dev_open(c, "host", &d));
	must(gpc_reserve(c, 0, 4, b, NULL, 0, 60000));
	is_int(gpc_publish(c, k, k + 1, b, 4,
			   GPC_OPTIONS(gpc_publish_options, .resident = res, .ticket = &t), 0, 0),
	       0, "published, no wait");
	is_int(gpc_mirror_sync(c, t, 2000), 0, "until that is on all mirrors");
	ok(!memcmp(b, res, sizeof(b)), "so it was acknowledged before");
	launch(d, 0, k + 1, 4, got);
	ok(!memcmp(b, got, sizeof(b)), "and is found on the device");
	is_int(mirror_lag(c), 0, "nothing is dirty");
	must(gpc_mirror_get(c, 0, &m));
	ok(m.flushed == m.changes && m.changes >= 4, "the mirror has all changes");
	must(gpc_drop(c, &b[2], 1, NULL, 0, -1));
	synced(c);
	launch(d, 0, k + 1, 4, got);
	ok(got[0] == b[0] && got[1] == b[1] && got[2] == -1 && got[3] == -1, "dropped there, too");
	is_int(gpc_mirror_sync(c, t, 0), 0, "an old ticket is done");
	refused(gpc_mirror_sync(c, t + 1000, 0), EINVAL, "a ticket that was never given");
	must(gpc_release(c, b, 4));
	must(gpc_dev_close(d));
	clean(c, "syncs");
	cache_end(c);

	c = cache_new(8, 0);
	is_int(info_of(c).mirrors, 0, "no mirror");
	is_int(gpc_mirror_sync(c, GPC_TICKET_ALL, 0), 0, "nothing to wait for");
	is_int(mirror_lag(c), 0, "nothing is dirty");
	chain_make(c, 0, 1, 4, NULL);
	is_int(mirror_lag(c), 0, "ever");
	refused(gpc_dev_open(c, "host", &d), ENODEV, "nothing to open");
	cache_end(c);
}

static void test_statistics(void)
{
	struct gpc_config cfg = with_mirror(8);
	gpc *c = cache_make(&cfg, NULL);
	struct gpc_stats before, after;
	gpc_block got[8];
	gpc_key k[9];
	uint64_t tick;
	gpc_dev *d;

	chain_keys(c, 1, 8, k);
	chain_make(c, 0, 1, 5, NULL);
	synced(c);
	must(gpc_dev_open(c, "host", &d));
	before = stats_of(c, -1);
	tick = info_of(c).tick;
	launch(d, 0, k + 1, 8, got);
	after = stats_of(c, -1);
	is_int(after.lookups - before.lookups, 8, "eight were looked up on the device");
	is_int(after.hit_vram - before.hit_vram, 5, "five hits");
	is_int(after.miss - before.miss, 3, "three misses");
	is_int(info_of(c).tick, tick, "but recency comes from references alone");
	is_int(gpc_ref(c, k + 1, got, 5), 5, "hits are hints for references");
	must(gpc_release(c, got, 5));
	must(gpc_dev_close(d));
	cache_end(c);
}

/* ---- sections ---- */

static void test_sections(void)
{
	struct gpc_config cfg = with_mirror(8);
	gpc_block b[8], got;
	int s[GPC_SECTIONS], i, n = 0;
	gpc *c, *e;
	gpc_dev *d, *f;
	gpc_key k;

	cfg.max_blocks = 512;
	c = cache_make(&cfg, NULL);
	k = key_of(c, 1);
	chain_make(c, 0, 1, 8, b);
	synced(c);
	e = cache_attach(0, 0);
	must(gpc_dev_open(c, "host", &d));
	must(gpc_dev_open(e, "host", &f));
	refused(gpc_dev_lookup(d, 0, &k, 1, &got, NULL), EINVAL, "a launch without a section");
	refused(gpc_dev_leave(d, 0, NULL), EINVAL, "a section that is not open");
	refused(gpc_dev_leave(d, -1, NULL), EINVAL, "a section that cannot be");
	refused(gpc_dev_leave(d, GPC_SECTIONS, NULL), EINVAL, "nor can this");
	s[0] = must(gpc_dev_enter(f));
	is_int(stats_of(c, info_of(e).peer).sections, 1, "a section of a device");
	refused(gpc_evict(c, 0, 1, b, 0, 20), ETIMEDOUT, "is waited for");
	must(gpc_dev_lookup(f, 0, &k, 1, &got, NULL));
	is_int(gpc_dev_leave(f, s[0], NULL), 0, "until the stream gets to its end");
	is_int(gpc_evict(c, 0, 1, b, 0, 2000), 1, "then it goes on");
	is_int(gpc_dev_wait(f, NULL, 1000), 0, "the stream is through");
	is_int(got, 0, "and had its answer");
	refused(gpc_dev_leave(f, s[0], NULL), EINVAL, "it ends once");

	for (i = 0; i < GPC_SECTIONS; i++)
		s[i] = must(gpc_dev_enter(d));
	refused(gpc_dev_enter(d), EAGAIN, "as many as there may be");
	refused(gpc_section_enter(c), EAGAIN, "of both kinds together");
	for (i = 0; i < GPC_SECTIONS; i++)
		n += gpc_dev_leave(d, s[i], NULL) == 0;
	is_int(n, GPC_SECTIONS, "all are left");
	must(gpc_dev_wait(d, NULL, 60000));
	is_int(stats_of(c, info_of(c).peer).sections, 0, "none is open");
	s[0] = must(gpc_dev_enter(d));
	s[1] = must(gpc_section_enter(c));
	ok(s[0] != s[1], "both kinds share their numbers");
	gpc_section_leave(c, s[0]);
	is_int(stats_of(c, info_of(c).peer).sections, 2, "a host call does not end a device's");
	gpc_section_leave(c, s[1]);
	must(gpc_dev_leave(d, s[0], NULL));
	must(gpc_dev_wait(d, NULL, 60000));
	for (i = n = 0; i < 500; i++) {
		launch(d, 0, &k, 1, &got);
		n += got == 0;
	}
	is_int(n, 500, "again and again");
	is_int(gpc_reserve(c, 0, 8, b, NULL, 0, 2000), 8, "nothing is held up");
	must(gpc_dev_close(d));
	must(gpc_dev_close(f));
	must(gpc_close(e));
	clean(c, "sections of devices");
	cache_end(c);
}

/* ---- coming and going ---- */

static void test_open(void)
{
	struct gpc_config cfg = with_mirror(8);
	gpc *c = cache_make(&cfg, NULL);
	gpc_dev *d, *again, *none = NULL;
	gpc_block got;
	gpc_key k = key_of(c, 1);

	refused(gpc_dev_open(c, "cuda:0", &none), ENODEV, "built without, or no such device");
	refused(gpc_dev_open(c, "tape", &none), EINVAL, "no such kind");
	refused(gpc_dev_open(c, NULL, &none), EINVAL, "no name");
	refused(gpc_dev_open(c, "host", NULL), EINVAL, "no place for it");
	ok(!none, "nothing was opened");
	must(gpc_dev_open(c, "host", &d));
	must(gpc_dev_open(c, "host", &again));
	chain_make(c, 0, 1, 1, NULL);
	synced(c);
	launch(d, 0, &k, 1, &got);
	is_int(got, 0, "one");
	is_int(gpc_dev_close(d), 0, "closed once");
	launch(again, 0, &k, 1, &got);
	is_int(got, 0, "the other works still");
	is_int(gpc_dev_close(again), 0, "closed");
	refused(gpc_dev_close(NULL), EINVAL, "no device");
	refused(gpc_dev_enter(NULL), EINVAL, "no device");
	must(gpc_dev_open(c, "host", &d));
	launch(d, 0, &k, 1, &got);
	is_int(got, 0, "opened again");
	must(gpc_dev_enter(d));
	cache_end(c); /* with a device and a section open */
}

/* The seat goes from one handle to another and back. */
static void test_writers(void)
{
	struct gpc_config cfg = with_mirror(8);
	struct gpc_mirror m = { .size = sizeof(m) };
	uint32_t generation = 0, i, n = 0, grows = 0;
	gpc *c, *e;
	gpc_dev *d;
	gpc_block got;
	gpc_key k;

	if (cache_thread)
		return;
	c = cache_make(&cfg, NULL);
	e = cache_attach(0, 0);
	must(gpc_dev_open(c, "host", &d));
	for (i = 0; i < 6; i++) {
		gpc *writer = i % 2 ? e : c, *next = i % 2 ? c : e;

		chain_make(writer, 0, 1 + i, 1, NULL);
		synced(writer);
		k = key_of(c, 1 + i);
		launch(d, 0, &k, 1, &got);
		n += got == (gpc_block)i;
		must(gpc_mirror_get(c, 0, &m));
		grows += m.generation > generation;
		generation = m.generation;
		must(gpc_writer_drop(writer));
		n += gpc_dev_enter(d) == -ESTALE; /* none is there */
		n += find(c, 1 + i) == (gpc_block)i;
		must(gpc_writer_take(next, 0, 0));
		launch(d, 0, &k, 1, &got);
		n += got == (gpc_block)i;
	}
	is_int(n, 24, "found with every writer; without one, by the host calls");
	is_int(grows, 6, "each has a mirror of its own");
	is_int(info_of(c).mirrors, 1, "there is one at a time");
	must(gpc_writer_serve(c, 10));
	synced(c);
	must(gpc_dev_close(d));
	clean(c, "six writers");
	must(gpc_close(e));
	cache_end(c);
}

/* A writer whose files may not be so long. */
static void test_limit(void)
{
	struct gpc_config cfg = with_mirror(8);
	struct rlimit had, small;
	gpc *c;
	int err;

	if (cache_thread)
		return;
	c = cache_make(&cfg, NULL);
	must(gpc_writer_drop(c));
	getrlimit(RLIMIT_FSIZE, &had);
	small = (struct rlimit){ 64, had.rlim_max };
	setrlimit(RLIMIT_FSIZE, &small);
	err = gpc_writer_take(c, 0, 0);
	setrlimit(RLIMIT_FSIZE, &had);
	is_int(err, 0, "has no room for its mirror, and goes on: %s", gpc_last_error());
	is_int(info_of(c).mirrors, 0, "without it");
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	is_int(info_of(c).mirrors, 1, "with another limit there is one");
	clean(c, "a limit");
	cache_end(c);
}

static void tests(void)
{
	test_sync();
	test_statistics();
	test_sections();
	test_open();
	test_writers();
	test_limit();
	test_churn();
}

static int body(void)
{
	cache_both(tests);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
