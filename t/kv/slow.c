/* SPDX-License-Identifier: Apache-2.0 */
/* Subscribers that are too slow, and a publisher that is: the writer waits for neither, batches
 * that are left out are seen as a gap, and what was overwritten is told as a snapshot.
 * Tests: tools/daemon/events/publish.c tools/daemon/events/batch.c */
#include "config.h"

#ifdef HAVE_EVENTS
#include "t/lib/kv.h"

enum { MANY = 1024, ROUNDS = 70 };

static struct kv_batch batch;
static struct kv_model model;
static void *sub, *dealer;
static pid_t daemon_pid;
static gpc *c;

static void begin(const char *blocks)
{
	memset(&model, 0, sizeof(model));
	kv_name_cache();
	daemon_pid = kv_start((const char *const[]){ "--block-size", "4", "--vram-blocks", "2048",
						     "--max-blocks", blocks, "--free-target", "0",
						     "--keep-digests", "--events", kv_out,
						     "--events-replay", kv_replay, NULL });
	c = kv_worker();
	kv_until_writer(c, daemon_pid);
	sub = kv_subscribe();
	dealer = kv_open(ZMQ_DEALER, kv_replay, 0, NULL);
	if (!kv_next(sub, &batch, 20000))
		bail("no batch at start");
	kv_apply(&model, &batch);
}

static void end(void)
{
	zmq_close(sub);
	zmq_close(dealer);
	is_int(kv_end(daemon_pid, SIGTERM), 0, "gpcd ends well");
	cache_end(c);
}

/* MANY first blocks in one call, and away again: twice as many changes. */
static void burst(uint64_t from)
{
	static gpc_key none[MANY], key[MANY];
	static gpc_block b[MANY];

	for (uint32_t i = 0; i < MANY; i++)
		key[i] = kv_key(c, from + i);
	must(gpc_reserve(c, 0, MANY, b, NULL, 0, 10000));
	must(gpc_publish(c, none, key, b, MANY, NULL, GPC_NO_REF, 10000));
	must(gpc_drop(c, b, MANY, NULL, 0, 10000));
}

/* The feed has room for a burst, and each burst waits for the one who keeps up: 143360 changes, of
 * which the one who sleeps has place for 100000 and what the sockets take. */
static void test_slow_subscriber(void)
{
	struct kv_model sleeper = { .n = 0 };
	bool good = true;
	void *slow;

	begin("65536");
	slow = kv_open(ZMQ_SUB, kv_out, 10, "");
	kv_next(slow, &batch, 20000);
	kv_apply(&sleeper, &batch);
	for (int i = 0; i < ROUNDS && good; i++) {
		burst((uint64_t)i * MANY + 1);
		good = kv_follow(&model, sub, dealer, kv_last_change(c));
	}
	ok(good && model.replays == 0, "who keeps up misses none of %llu changes",
	   (unsigned long long)kv_last_change(c));
	while (!kv_has_said("a subscriber is too slow"))
		usleep(1000);
	ok(true, "gpcd says that another one is too slow");
	while (good && sleeper.last < 90000) { /* it wakes up, and there is room again */
		good = kv_next(slow, &batch, 20000) && batch.sequence == sleeper.last + 1;
		sleeper.last = batch.sequence;
	}
	ok(good, "which finds what was left for it");
	kv_store(c, 0, 0, 999999);
	ok(kv_follow(&model, sub, dealer, kv_last_change(c)) && kv_is_what_there_is(c, &model),
	   "the one knows what there is");
	ok(kv_follow(&sleeper, slow, dealer, kv_last_change(c)) && sleeper.replays > 0 &&
		   kv_is_what_there_is(c, &sleeper),
	   "the other one, too, when it has asked");
	zmq_close(slow);
	end();
}

/* A feed of 1024 changes, and bursts of 2048: the publisher comes too late for some. */
static void test_slow_publisher(void)
{
	struct kv_model plain = { .n = 0 };
	void *only;
	int i;

	begin("2048");
	only = kv_subscribe(); /* and never asks */
	if (!kv_next(only, &batch, 20000))
		bail("no batch at start");
	kv_apply(&plain, &batch);
	for (i = 0; i < 300 && !kv_has_said("came too fast"); i++)
		burst((uint64_t)i * MANY + 1);
	if (kv_has_said("came too fast"))
		ok(true, "the feed is overwritten before it is read, after %d bursts", i);
	else
		skip(1, "the publisher is always as fast as the writer here");
	for (uint64_t n = 1; n <= 20; n++)
		kv_store(c, 0, n > 1 ? 2000000 + n - 1 : 0, 2000000 + n);
	ok(kv_follow(&model, sub, dealer, kv_last_change(c)) && kv_is_what_there_is(c, &model),
	   "who follows knows what there is");
	ok(kv_follow(&plain, only, NULL, kv_last_change(c)) && kv_is_what_there_is(c, &plain),
	   "who cannot ask, too");
	ok(!kv_has_said("came too fast") || plain.snapshots > 0, "by a snapshot");
	zmq_close(only);
	end();
}

static int body(void)
{
	kv_begin();
	test_slow_publisher();
	test_slow_subscriber();
	return done_testing();
}
#endif

#include "t/lib/kv_main.h"
