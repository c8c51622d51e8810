/* SPDX-License-Identifier: Apache-2.0 */
/* KV events over the lives of writers: the sequence goes on, who follows it knows what there is,
 * and nobody takes the endpoint of one that lives.
 * Tests: tools/daemon/events/publish.c tools/daemon/events/socket.c */
#include "config.h"

#ifdef HAVE_EVENTS
#include "t/lib/kv.h"
#include "t/lib/patient.h"

#include <sys/stat.h>

static struct kv_batch batch;
static struct kv_model model;
static void *sub, *dealer;

#define GEOMETRY                                                                        \
	"--block-size", "4", "--vram-blocks", "512", "--keep-tokens", "--keep-digests", \
		"--events", kv_out, "--events-replay", kv_replay

static pid_t start(const char *option)
{
	return kv_start((const char *const[]){ GEOMETRY, option, NULL });
}

static void knows_all(gpc *c, const char *when)
{
	bool good = kv_follow(&model, sub, dealer, kv_last_change(c));

	ok(good && kv_is_what_there_is(c, &model), "%s: knows what there is", when);
	/* a replay may tell the end of what had gone before it could be told */
	is_int(model.orphans + model.twice + (model.replays ? 0 : model.unknown), 0,
	       "and heard nothing twice or out of order");
}

static gpc *begin(pid_t *ret)
{
	gpc *c;

	memset(&model, 0, sizeof(model));
	kv_name_cache();
	*ret = start(NULL);
	c = kv_worker();
	kv_until_writer(c, *ret);
	sub = kv_subscribe();
	dealer = kv_open(ZMQ_DEALER, kv_replay, 0, NULL);
	if (!kv_next(sub, &batch, 20000))
		bail("no batch at start");
	kv_apply(&model, &batch);
	return c;
}

static void end(gpc *c)
{
	zmq_close(sub);
	zmq_close(dealer);
	cache_end(c);
}

/* Until a batch comes of that sequence or later, it has nobody to tell. */
static void test_standby(void)
{
	pid_t first, second;
	gpc *c = begin(&first);

	for (uint64_t i = 1; i <= 20; i++)
		kv_store(c, 0, i - 1, i);
	second = start("--standby");
	while (!kv_has_said("standing by"))
		usleep(1000);
	for (uint64_t i = 21; i <= 40; i++)
		kv_store(c, 0, i - 1, i);
	is_int(kv_end(first, SIGKILL), -SIGKILL, "killed in the middle");
	kv_until_writer(c, second);
	for (uint64_t i = 41; i <= 60; i++)
		kv_store(c, 0, i - 1, i);
	knows_all(c, "the standby goes on");
	is_int(model.last, 60, "with the same numbers");
	is_int(kv_end(second, SIGTERM), 0, "and ends well");
	end(c);
}

/* Kills at any moment, while a worker stores and drops all the time. */
static void test_many_kills(void)
{
	pid_t pid[2];
	gpc *c = begin(&pid[0]);
	uint64_t n = 1;

	for (int round = 0; round < 6; round++) {
		pid_t worker;

		pid[1] = start("--standby");
		worker = fork();
		if (!worker) {
			gpc *w = patient(kv_worker());
			gpc_block b;

			for (uint64_t i = 0; i < 60; i++) {
				b = kv_store(w, 0, 0, n + i);
				if (i % 3 == 0)
					must(gpc_drop(w, &b, 1, NULL, 0, 10000));
			}
			gpc_close(w);
			_exit(0);
		}
		n += 60;
		usleep((useconds_t)(round * 1500));
		kv_end(pid[0], SIGKILL);
		kv_until_writer(c, pid[1]);
		kv_end(worker, 0);
		pid[0] = pid[1];
	}
	knows_all(c, "six writers later");
	is_int(kv_end(pid[0], SIGTERM), 0, "the last one ends well");
	end(c);
}

/* Nobody serves for a while. */
static void test_restart(void)
{
	pid_t pid;
	gpc *c = begin(&pid);

	kv_store(c, 0, 0, 1);
	kv_store(c, 0, 1, 2);
	knows_all(c, "before");
	is_int(kv_end(pid, SIGTERM), 0, "ends well");
	must(gpc_writer_take(c, 0, 0)); /* somebody else, who tells nobody */
	must(gpc_writer_drop(c));
	pid = start(NULL);
	kv_until_writer(c, pid);
	kv_store(c, 0, 2, 3);
	knows_all(c, "after");
	ok(model.snapshots == 0 && model.last == 3, "the numbers go on, without a snapshot");
	is_int(kv_end(pid, SIGKILL), -SIGKILL, "killed, with its sockets left behind");
	pid = start(NULL);
	kv_until_writer(c, pid);
	kv_store(c, 0, 0, 4);
	knows_all(c, "the next one");
	is_int(kv_end(pid, SIGTERM), 0, "ends well");
	end(c);
}

/* The last change before a start is told with its own number: who had missed just that one gets
 * it. */
static void test_just_the_last(void)
{
	pid_t pid;
	gpc *c = begin(&pid);

	kv_store(c, 0, 0, 1);
	knows_all(c, "one");
	kv_store(c, 0, 1, 2);
	kv_next(sub, &batch, 20000); /* lost */
	kv_end(pid, SIGKILL);
	pid = start(NULL);
	kv_until_writer(c, pid);
	knows_all(c, "the one that was missed");
	is_int(model.replays, 0, "no question was needed");
	kv_end(pid, SIGTERM);
	end(c);
}

static void test_refused(void)
{
	pid_t pid, other;
	gpc *c = begin(&pid);
	char name[64];
	struct stat st;

	is_int(kv_end(start(NULL), 0), 3, "a second gpcd of the cache is refused");
	snprintf(name, sizeof(name), "%s", cache_name);
	kv_name_cache();
	other = start(NULL);
	is_int(kv_end(other, 0), 1, "one of another cache does not get the endpoint");
	ok(kv_has_said("Address already in use"), "and says why");
	snprintf(cache_name, sizeof(cache_name), "%s", name);
	kv_store(c, 0, 0, 1);
	knows_all(c, "the first one goes on");
	ok(!stat(kv_out + 6, &st) && S_ISSOCK(st.st_mode) && (st.st_mode & 0777) == 0600,
	   "the socket has the mode of the cache");
	is_int(kv_end(pid, SIGTERM), 0, "ends well");
	ok(stat(kv_out + 6, &st) && errno == ENOENT, "and its sockets go");
	pid = kv_start((const char *const[]){ "--events", "ipc:///no/such/folder/x", NULL });
	is_int(kv_end(pid, 0), 1, "no such folder");
	end(c);
}

static void test_group(void)
{
	struct stat st;
	pid_t pid;
	gpc *c;

	kv_name_cache();
	pid = kv_start((const char *const[]){ GEOMETRY, "--mode", "0660", NULL });
	c = kv_worker();
	kv_until_writer(c, pid);
	sub = kv_subscribe();
	dealer = kv_open(ZMQ_DEALER, kv_replay, 0, NULL);
	kv_next(sub, &batch, 20000);
	ok(!stat(kv_out + 6, &st) && (st.st_mode & 0777) == 0660, "of a cache of a group: 0660");
	kv_end(pid, SIGTERM);
	end(c);
}

static int body(void)
{
	kv_begin();
	test_standby();
	test_many_kills();
	test_restart();
	test_just_the_last();
	test_refused();
	test_group();
	return done_testing();
}
#endif

#include "t/lib/kv_main.h"
