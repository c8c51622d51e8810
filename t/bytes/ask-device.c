/* SPDX-License-Identifier: Apache-2.0 */
/* Questions of the host that a device answers: the same answers, and no device, no mirror or
 * a mirror that lags is no reason to fail where the host may answer.
 * Tests: lib/bytes/mirror/offload.c lib/bytes/mirror/view.c lib/bytes/device/cuda_query.c */
#include "t/lib/cache.h"
#include "t/lib/devices.h"
#include "bytes/mirror/view.h"

enum { KEYS = 6000, CHAIN = 200 };

static gpc_key key[KEYS];
static gpc_block there[KEYS], here[KEYS];

static gpc *make_cache(void)
{
	struct gpc_config cfg = cache_config(KEYS / 2, 16);
	uint32_t i;
	gpc *c;

	cfg.devices = device_name();
	c = cache_make(&cfg, NULL);
	for (i = 0; i < KEYS / 2 / CHAIN; i++)
		chain_make(c, 0, 1 + 2 * i * CHAIN, CHAIN, NULL);
	for (i = 0; i < KEYS; i++)
		key[i] = key_of(c, 1 + i);
	return c;
}

static uint32_t same(uint32_t n)
{
	uint32_t i, good = 0;

	for (i = 0; i < n; i++)
		good += there[i] == here[i];
	return good;
}

static void test_lookup(gpc *c)
{
	static const uint32_t sizes[] = { 0, 1, 7, 255, 256, 257, 1024, 4097, KEYS };
	struct gpc_stats before = stats_of(c, -1), after;
	uint32_t i, n, asked = 0;
	int hits;

	must(gpc_mirror_sync(c, GPC_TICKET_ALL, 2000));
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		n = sizes[i];
		memset(there, 0x55, sizeof(there));
		hits = gpc_lookup(c, 0, key, n, here, GPC_QUIET);
		is_int(gpc_lookup(c, 0, key, n, there, GPC_DEVICE), hits,
		       "%u keys: as many hits on the device", n);
		is_int(same(n), n, "%u keys: the same ones", n);
		memset(there, 0x55, sizeof(there));
		is_int(gpc_lookup(c, 0, key, n, there, GPC_DEVICE | GPC_QUIET), hits,
		       "%u keys, quietly: as many", n);
		is_int(same(n), n, "%u keys, quietly: the same ones", n);
		asked += n;
	}
	after = stats_of(c, -1);
	is_int(after.lookups - before.lookups, asked, "they are counted like others");
	is_int(gpc_lookup(c, 0, key, 100, there, GPC_DEVICE | GPC_REF), 100, "referenced");
	is_int(stats_of(c, -1).refs, 100, "indeed");
	must(gpc_release(c, there, 100));
	n = KEYS;
	hits = gpc_lookup(c, 0, key, n, here, GPC_QUIET);
	is_int(gpc_lookup(c, 0, key, n, there, GPC_ANYWHERE), hits, "anywhere");
	is_int(same(n), n, "is the same");
}

static void test_match(gpc *c)
{
	uint32_t start[8] = { 0, 0, 200, 1000, 1001, 1399, 1400, KEYS }, len[2][7], i;
	int sum;

	sum = gpc_match(c, 0, key, start, 7, len[0], here, GPC_QUIET);
	memcpy(there, here, sizeof(there)); /* what is not matched is not touched */
	is_int(gpc_match(c, 0, key, start, 7, len[1], there, GPC_DEVICE), sum, "a match");
	ok(!memcmp(len[0], len[1], sizeof(len[0])), "of the same lengths");
	is_int(same(KEYS), KEYS, "and blocks");
	is_int(gpc_match(c, 0, key, start, 7, len[1], NULL, GPC_DEVICE), sum, "without");
	is_int(gpc_match(c, 0, key, start, 7, len[1], NULL, GPC_ANYWHERE), sum, "anywhere");
	/* chains, cut where they please: a search need not look at all of them */
	memcpy(start, (uint32_t[]){ 0, 100, 300, 400, 500, 700, 800, 1000 }, sizeof(start));
	sum = gpc_match(c, 0, key, start, 7, len[0], NULL, GPC_QUIET);
	is_int(sum, 600, "some of each");
	is_int(gpc_match(c, 0, key, start, 7, len[1], NULL, GPC_DEVICE | GPC_QUIET), sum,
	       "the lengths alone");
	ok(!memcmp(len[0], len[1], sizeof(len[0])), "are the same");
	for (i = 0; i < 8; i++)
		start[i] = 400 + i * 700;
	sum = gpc_match(c, 0, key, start, 7, len[0], here, GPC_QUIET);
	is_int(gpc_match(c, 0, key, start, 7, len[1], there, GPC_DEVICE), sum,
	       "that begins behind the first key");
	ok(!memcmp(len[0], len[1], sizeof(len[0])), "is right, too");
}

/* ---- who answers ---- */

static const struct device_ops *real_ops;
static uint32_t questions;

static int counted_ask(void *dev, const struct dev_view *view, const struct device_query *q,
		       struct device_result *ret)
{
	questions++;
	return real_ops->ask(dev, view, q, ret);
}

/* A round trip pays from so many keys on: gpc_lookup(3), gpc_match(3). */
static void test_worth(gpc *c, gpc_dev *d)
{
	static const struct {
		uint32_t lookup, match, flags, there;
	} calls[] = {
		{ 1024, 0, GPC_ANYWHERE, 0 },
		{ 2047, 0, GPC_ANYWHERE, 0 },
		{ 2048, 0, GPC_ANYWHERE, 1 },
		{ 0, 4095, GPC_ANYWHERE, 0 },
		{ 0, 4096, GPC_ANYWHERE, 1 },
		{ 1, 0, GPC_DEVICE, 1 },
		{ KEYS, 0, 0, 0 },
	};
	struct device_ops counting = *d->ops;
	uint32_t i, start[2] = { 0 }, len;

	real_ops = d->ops;
	counting.ask = counted_ask;
	d->ops = &counting;
	must(gpc_mirror_sync(c, GPC_TICKET_ALL, 2000));
	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		questions = 0;
		start[1] = calls[i].match;
		if (calls[i].match)
			must(gpc_match(c, 0, key, start, 1, &len, NULL, calls[i].flags));
		else
			must(gpc_lookup(c, 0, key, calls[i].lookup, there, calls[i].flags));
		is_int(questions, calls[i].there, "%s of %u keys, flags 0x%x: %s",
		       calls[i].match ? "a match" : "a lookup", calls[i].match + calls[i].lookup,
		       calls[i].flags, calls[i].there ? "the device" : "the host");
	}
	d->ops = real_ops;
}

static void test_changes(gpc *c, gpc_dev *d)
{
	gpc_block b = find(c, 1);
	int hits;

	must(gpc_drop(c, &b, 1, NULL, 0, -1));
	hits = gpc_lookup(c, 0, key, KEYS, here, GPC_QUIET);
	is_int(hits, KEYS / 2 - CHAIN, "a chain is gone");
	is_int(gpc_lookup(c, 0, key, KEYS, there, GPC_ANYWHERE), hits, "anywhere: at once");
	must(gpc_mirror_sync(c, GPC_TICKET_ALL, 2000));
	is_int(gpc_lookup(c, 0, key, KEYS, there, GPC_DEVICE), hits,
	       "on the device: when it is in step");
	must(gpc_writer_drop(c));
	refused(gpc_lookup(c, 0, key, KEYS, there, GPC_DEVICE), ESTALE, "no mirror");
	is_int(gpc_lookup(c, 0, key, KEYS, there, GPC_ANYWHERE), hits, "the host has it");
	must(gpc_writer_take(c, 0, 0));
	is_int(gpc_lookup(c, 0, key, KEYS, there, GPC_DEVICE), hits, "a new mirror");
	must(gpc_dev_close(d));
	refused(gpc_lookup(c, 0, key, KEYS, there, GPC_DEVICE), ENODEV, "no device");
}

static int body(void)
{
	gpc_dev *d = NULL;
	gpc *c;

	cache_thread = false;
	c = make_cache();
	refused(gpc_lookup(c, 0, key, 1, there, GPC_DEVICE), ENODEV, "no device is open");
	must(gpc_dev_open(c, device_name(), &d));
	test_lookup(c);
	test_match(c);
	test_worth(c, d);
	test_changes(c, d);
	clean(c, "asked");
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
