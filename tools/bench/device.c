/* SPDX-License-Identifier: Apache-2.0 */
/* Mirrors on devices: how soon one shows published keys, and how fast keys are looked up there.
 * The host device is always there.  The rows of a GPU are skipped if there is none.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/bench.h"

#include "gpc_device.h"
#include "tools/common/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	MOST = 1024,
	TIMES = 16, /* syncs of a round */
	KEYS = 1 << 16,
	KEYS_QUICK = 1 << 12,
};

static const char *const devices[] = { "host", "cuda:0" };

struct there { /* a cache with a mirror, and the way to it */
	struct bench_cache cache;
	gpc_dev *dev;
	const char *device;
};

/* ---- is there one? ---- */

/* The device is tried in a child, since a process that has used a GPU cannot fork any more. */
static int try_device(struct crew_child *child, void *arg)
{
	const struct there *t = arg;
	gpc *c = cache_attach(t->cache.name);
	gpc_dev *dev;

	if (gpc_dev_open(c, t->device, &dev) < 0)
		snprintf(child->text, sizeof(child->text), "%s", cli_gpc_text(0));
	crew_set(&child->ready, 1);
	while (!crew_get(&child->stop))
		cli_sleep_ms(1);
	gpc_close(c);
	return 0;
}

static bool is_there(struct there *t, struct bench_row *row)
{
	struct crew child;

	crew_start(&child, try_device, t);
	crew_wait_ready(&child, 1);
	if (child.child->text[0])
		row_skip(row, "%s", child.child->text);
	crew_finish(&child);
	return !row->reason[0];
}

static bool open_there(struct there *t, const char *device, struct bench_row *row)
{
	struct gpc_config cfg = { .vram_blocks = (uint32_t)bench.size,
				  .devices = device,
				  .free_target = -1 };

	*t = (struct there){ .device = device };
	if (!cache_open(&t->cache, &cfg, bench.size - MOST, CACHE_SERVED, row))
		return false;
	if (!is_there(t, row)) {
		cache_close(&t->cache);
		return false;
	}
	must(gpc_dev_open(t->cache.c, device, &t->dev), device);
	must(gpc_mirror_sync(t->cache.c, GPC_TICKET_ALL, -1), "sync");
	return true;
}

static void close_there(struct there *t)
{
	gpc_dev_close(t->dev);
	cache_close(&t->cache);
}

/* ---- sync ---- */

struct sync {
	struct there *t;
	uint32_t n;
	bool waits_only; /* it only waits for the writer, not for the mirror */
	uint64_t next;
};

static double sync_once(struct sync *s)
{
	gpc *c = s->t->cache.c;
	gpc_block blocks[MOST], got[MOST];
	gpc_key keys[MOST];
	gpc_ticket ticket;
	uint64_t from;
	double us;
	int err;

	cache_key_run(&s->t->cache, s->next, s->n, keys);
	s->next += s->n;
	must(gpc_reserve(c, 0, s->n, blocks, NULL, 0, -1), "reserve");
	must(gpc_mirror_sync(c, GPC_TICKET_ALL, -1), "sync");
	from = cli_now_ns();
	err = gpc_publish(c, NULL, keys, blocks, s->n,
			  GPC_OPTIONS(gpc_publish_options, .ticket = &ticket), 0, 0);
	if (err >= 0)
		err = s->waits_only ? gpc_ticket_wait(c, ticket, -1)
				    : gpc_mirror_sync(c, ticket, -1);
	us = (double)(cli_now_ns() - from) / 1000;
	must(err, "sync");
	if (!s->waits_only &&
	    (gpc_lookup(c, 0, keys, s->n, got, GPC_DEVICE | GPC_QUIET) != (int)s->n ||
	     memcmp(got, blocks, s->n * sizeof(*got))))
		return -1;
	must(gpc_release(c, blocks, s->n), "unref");
	return us;
}

static double sync_value(void *arg)
{
	double us[TIMES];

	for (uint32_t i = 0; i < TIMES; i++) {
		us[i] = sync_once(arg);
		if (us[i] < 0)
			return -1;
	}
	return figure_of(us, TIMES).median;
}

static void one_sync(struct there *t, uint32_t n, uint64_t first)
{
	static struct contender c[2];
	struct sync all = { t, n, false, first }, wait = { t, n, true, first + (1u << 30) };
	struct bench_row row = row_new("sync", "us", "%u changes on %s", n, t->device);

	c[0] = (struct contender){ .name = "published and shown",
				   .arg = &all,
				   .value = sync_value };
	c[1] = (struct contender){ .name = "published", .arg = &wait, .value = sync_value };
	rounds_run("sync", c, 2, (unsigned)bench.rounds);
	row.entries = bench.size;
	row.batch = n;
	row_against(&row, &c[0], &c[1]);
	report_add(&row);
	if (!strcmp(t->device, "host"))
		beside_sync(&t->cache, n, &c[0]);
}

static void measure_sync(struct there *t)
{
	one_sync(t, 16, bench.size);
	one_sync(t, MOST, bench.size + (1u << 28));
}

/* ---- lookups there ---- */

struct ask {
	struct there *t;
	struct lookup_arg look;
};

static void prepare(void *arg)
{
	lookup_prepare(&((struct ask *)arg)->look);
}

static int run_ask(void *arg)
{
	return probe_run(&((struct ask *)arg)->look);
}

static bool verify(void *arg)
{
	return lookup_verify(&((struct ask *)arg)->look);
}

/* As a stream does it, with pointers that the host device can follow. */
static int run_stream(void *arg)
{
	const struct ask *a = arg;
	const struct key_set *s = a->look.set;

	for (uint32_t i = 0; i < s->n; i += a->look.batch) {
		int section = gpc_dev_enter(a->t->dev), err;

		if (section < 0)
			return section;
		err = gpc_dev_lookup(a->t->dev, 0, s->keys + i, a->look.batch, s->got + i, NULL);
		gpc_dev_leave(a->t->dev, section, NULL);
		if (err < 0 || gpc_dev_wait(a->t->dev, NULL, -1) < 0)
			return -1;
	}
	return 0;
}

static void one_batch(struct there *t, struct key_set *s, uint32_t batch)
{
	static struct contender c[3];
	struct ask here = { t, { .set = s, .batch = batch, .flags = GPC_QUIET, .hits = 100 } };
	struct ask there = {
		t, { .set = s, .batch = batch, .flags = GPC_QUIET | GPC_DEVICE, .hits = 100 }
	};
	uint32_t n = strcmp(t->device, "host") ? 2 : 3;

	c[0] = (struct contender){ .name = "gpc_lookup in shared memory", .arg = &here };
	c[1] = (struct contender){ .name = "gpc_lookup with GPC_DEVICE", .arg = &there };
	c[2] = (struct contender){ .name = "gpc_dev_lookup", .arg = &there };
	for (uint32_t i = 0; i < n; i++) {
		c[i].run = i < 2 ? run_ask : run_stream;
		c[i].prepare = prepare;
		c[i].verify = verify;
		c[i].per = s->n;
		c[i].wall = true; /* a device's time is not this thread's */
	}
	rounds_run("device", c, n, (unsigned)bench.rounds);
	for (uint32_t i = 1; i < n; i++) {
		struct bench_row row = row_new("device", "ns/key", "%s, %s", c[i].name, t->device);

		row.entries = s->cache->entries;
		row.batch = batch;
		row.hits = 100;
		row_against(&row, &c[i], &c[0]);
		report_add(&row);
	}
}

static void measure_lookups(struct there *t)
{
	struct key_set s;

	key_set_open(&s, &t->cache, bench.quick ? KEYS_QUICK : KEYS);
	one_batch(t, &s, 256);
	one_batch(t, &s, 4096);
	key_set_close(&s);
}

static void skip(const char *work, const char *unit, const char *device,
		 const struct bench_row *why)
{
	struct bench_row row = row_new(work, unit, "on %s", device);

	row.entries = bench.size;
	row_skip(&row, "%s", why->reason);
	report_add(&row);
}

/* All of a device at once, and that of a GPU last: from the first use of it on this process
 * cannot start another one that uses it. */
void bench_devices(bool sync, bool lookups)
{
	for (uint32_t i = 0; i < ARRAY_SIZE(devices); i++) {
		struct bench_row why = row_new("device", "ns/key", "on %s", devices[i]);
		struct there t;
		bool there = open_there(&t, devices[i], &why);

		if (lookups && there)
			measure_lookups(&t);
		if (lookups && !there)
			skip("device", "ns/key", devices[i], &why);
		if (sync && there)
			measure_sync(&t);
		if (sync && !there)
			skip("sync", "us", devices[i], &why);
		if (there)
			close_there(&t);
	}
}
