/* SPDX-License-Identifier: Apache-2.0 */
/* Subscribers that do not read: what waits for all of them has one bound, --events-memory.  Who takes
 * nothing is disconnected, comes back and asks; who reads is not held up; and memory is given back.
 * Tests: tools/daemon/events/waiting.c tools/daemon/events/accept.c tools/daemon/events/publish.c */
#include "config.h"

#ifdef HAVE_EVENTS
#include "t/lib/kv.h"

enum { MANY = 1024, ROUNDS = 60, SLEEPERS = 16, CROWD = 40, LIMIT_MIB = 16, ROOM_MIB = 24 };

static struct kv_batch batch;
static struct kv_model model;
static void *sub, *dealer, *sleeper[SLEEPERS];
static pid_t daemon_pid;
static gpc *c;
static long first; /* MiB, before anything waits */

static long rss_mib(void)
{
	char path[64], line[256];
	long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)daemon_pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "RssAnon: %ld", &kib);
	if (f)
		fclose(f);
	return kib / 1024;
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

/* One that takes as little as it can, and then nothing. */
static void *sleep_there(void)
{
	int one = 1, small = 4096;
	void *s = zmq_socket(kv_context, ZMQ_SUB);

	zmq_setsockopt(s, ZMQ_RCVHWM, &one, sizeof(one));
	zmq_setsockopt(s, ZMQ_RCVBUF, &small, sizeof(small));
	zmq_setsockopt(s, ZMQ_SUBSCRIBE, "", 0);
	if (zmq_connect(s, kv_out))
		bail("no subscriber");
	return s;
}

static void test_bound(void)
{
	long most = 0, now;
	bool good = true;
	int i;

	for (i = 0; i < SLEEPERS; i++)
		sleeper[i] = sleep_there();
	kv_follow(&model, sub, dealer, kv_last_change(c));
	first = rss_mib();
	for (i = 0; i < ROUNDS && good; i++) {
		burst((uint64_t)i * MANY + 1);
		good = kv_follow(&model, sub, dealer, kv_last_change(c));
		now = rss_mib();
		most = now > most ? now : most;
	}
	ok(good && kv_is_what_there_is(c, &model), "who reads follows all of %llu changes",
	   (unsigned long long)kv_last_change(c));
	ok(most - first <= ROOM_MIB, "%d that do not read: %ld MiB more for a bound of %d",
	   SLEEPERS, most - first, LIMIT_MIB);
	ok(kv_has_said("takes nothing") || kv_has_said("take nothing"),
	   "gpcd says that some were disconnected");
}

/* It comes back by itself, learns the sequence and asks. */
static void test_sleeper_wakes(void)
{
	struct kv_model m = { .n = 0 };

	kv_store(c, 0, 0, 999999);
	ok(kv_follow(&m, sleeper[0], dealer, kv_last_change(c)) && kv_is_what_there_is(c, &m),
	   "one that wakes up knows what there is");
	ok(m.replays > 0, "when it has asked");
}

static void test_given_back(void)
{
	int i;

	for (i = 0; i < SLEEPERS; i++)
		zmq_close(sleeper[i]);
	/* the watchdog ends a wait that is in vain */
	while (rss_mib() > first + LIMIT_MIB / 4)
		usleep(20000);
	ok(true, "memory is given back when they have gone: %ld MiB, %ld at first", rss_mib(),
	   first);
}

/* So many connections are let in that they have a quarter of the bound: 64. */
static void test_crowd(void)
{
	static void *crowd[2 * CROWD];
	int i;

	for (i = 0; i < 2 * CROWD; i++)
		crowd[i] = sleep_there();
	while (!kv_has_said("were turned away so far"))
		usleep(5000);
	ok(true, "more connections than that are turned away");
	ok(kv_follow(&model, sub, dealer, kv_last_change(c)), "those that are there stay");
	for (i = 0; i < 2 * CROWD; i++)
		zmq_close(crowd[i]);
}

static int body(void)
{
	kv_begin();
	kv_name_cache();
	daemon_pid = kv_start((const char *const[]){
		"--block-size", "4", "--vram-blocks", "2048", "--max-blocks", "65536",
		"--free-target", "0", "--keep-digests", "--events", kv_out, "--events-replay",
		kv_replay, "--events-memory", "16M", NULL });
	c = kv_worker();
	kv_until_writer(c, daemon_pid);
	sub = kv_subscribe();
	dealer = kv_open(ZMQ_DEALER, kv_replay, 0, NULL);
	if (!kv_next(sub, &batch, 20000))
		bail("no batch at start");
	kv_apply(&model, &batch);
	test_bound();
	test_sleeper_wakes();
	test_given_back();
	test_crowd();
	zmq_close(sub);
	zmq_close(dealer);
	is_int(kv_end(daemon_pid, SIGTERM), 0, "gpcd ends well");
	cache_end(c);
	return done_testing();
}
#endif

#include "t/lib/kv_main.h"
