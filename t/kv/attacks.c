/* SPDX-License-Identifier: Apache-2.0 */
/* Clients of gpcd's KV events that send rubbish, subscribe to too much, come in crowds or never
 * read, and a gpcd that is stopped, or killed in the middle of an answer: others hear what they
 * should, and gpcd keeps its memory.
 * Tests: tools/daemon/events/accept.c tools/daemon/events/replay.c */
#include "config.h"

#ifdef HAVE_EVENTS
#include "t/lib/kv.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { CROWD = 100, BLOCKS = 8000, AT_ONCE = 500 };

static struct kv_batch batch;
static struct kv_model model;
static void *sub, *dealer;
static pid_t daemon_pid;
static gpc *c;

static void begin(void)
{
	memset(&model, 0, sizeof(model));
	kv_name_cache();
	daemon_pid = kv_start((const char *const[]){
		"--block-size", "4", "--vram-blocks", "8192", "--free-target", "0", "--keep-tokens",
		"--keep-digests", "--events", kv_out, "--events-replay", kv_replay, NULL });
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

static long resident(void) /* KiB of gpcd */
{
	char path[64], line[256];
	long n = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)daemon_pid);
	f = fopen(path, "r");
	while (f && n < 0 && fgets(line, sizeof(line), f))
		sscanf(line, "VmRSS: %ld", &n);
	if (f)
		fclose(f);
	return n;
}

static pid_t writer_of(void)
{
	struct gpc_info info = { .size = sizeof(info) };

	must(gpc_info_get(c, &info));
	return info.writer_pid;
}

/* The stream and the replay go on. */
static void goes_on(uint64_t n, const char *when)
{
	kv_store(c, 0, 0, n);
	ok(kv_follow(&model, sub, dealer, kv_last_change(c)) && kv_is_what_there_is(c, &model),
	   "%s: the stream goes on", when);
	kv_ask(dealer, kv_last_change(c));
	ok(kv_answer(dealer, &batch, 20000) && batch.sequence == kv_last_change(c) &&
		   kv_answer(dealer, &batch, 20000) && batch.sequence == UINT64_MAX,
	   "%s: so does the replay", when);
}

static int connect_raw(const char *endpoint)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(at.sun_path, sizeof(at.sun_path), "%s", endpoint + strlen("ipc://"));
	if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof(at)))
		bail("%s: %s", endpoint, strerror(errno));
	return fd;
}

static void test_rubbish(void)
{
	static const size_t sizes[] = { 0, 1, 10, 64, 65, 5000 };
	uint8_t bytes[5000];
	void *rude;

	begin();
	for (int i = 0; i < 120; i++) {
		int fd = connect_raw(i % 2 ? kv_out : kv_replay);

		for (size_t k = 0; k < sizeof(bytes); k++)
			bytes[k] = (uint8_t)(k * 7 + (size_t)i * 131 + (k >> 5));
		if (i % 3 == 0) /* begins like a greeting */
			memcpy(bytes, "\xff\0\0\0\0\0\0\0\1\x7f\3", 11);
		if (send(fd, bytes, sizes[i % 6], MSG_NOSIGNAL) < 0)
			diag("send: %s", strerror(errno));
		close(fd);
	}
	goes_on(1, "rubbish in place of a greeting");
	rude = kv_open(ZMQ_DEALER, kv_replay, 0, NULL);
	for (int i = 0; i < 2000; i++) {
		for (int k = 0; k < i % 5; k++)
			zmq_send(rude, bytes, sizes[(i + k) % 5], ZMQ_SNDMORE);
		zmq_send(rude, bytes, i % 9, 0);
	}
	goes_on(2, "rubbish in place of requests");
	zmq_close(rude);
	end();
}

/* A prefix tree of all topics is kept: a long one would be dear. */
static void test_long_topic(void)
{
	const size_t size = 100000;
	char *topic = calloc(1, size);
	void *rude;
	long before;

	begin();
	before = resident();
	topic[0] = 1;
	rude = kv_open(ZMQ_XSUB, kv_out, 0, NULL);
	zmq_send(rude, topic, size, 0);
	goes_on(1, "a topic of 100000 bytes");
	usleep(300000);
	goes_on(2, "and later");
	ok(resident() - before < 2048, "is not kept: %ld KiB", resident() - before);
	zmq_close(rude);
	free(topic);
	end();
}

static void test_crowd(void)
{
	static void *each[CROWD];
	struct rlimit most, few;
	int heard = 0;

	getrlimit(RLIMIT_NOFILE, &most);
	few = (struct rlimit){ .rlim_cur = 64, .rlim_max = most.rlim_max };
	setrlimit(RLIMIT_NOFILE, &few);
	kv_name_cache();
	daemon_pid = kv_start((const char *const[]){ "--block-size", "4", "--vram-blocks", "64",
						     "--events", kv_out, "--events-replay",
						     kv_replay, NULL });
	setrlimit(RLIMIT_NOFILE, &most);
	c = kv_worker();
	kv_until_writer(c, daemon_pid);
	sub = kv_subscribe();
	dealer = kv_open(ZMQ_DEALER, kv_replay, 0, NULL);
	for (int i = 0; i < CROWD; i++)
		each[i] = kv_subscribe();
	kv_store(c, 0, 0, 1);
	for (int i = 0; i < CROWD; i++)
		heard += kv_next(each[i], &batch, 5000);
	is_int(heard, CROWD, "more subscribers than descriptors at first");
	for (int i = 0; i < CROWD; i++)
		zmq_close(each[i]);
	end();
}

/* Some are turned away, and gpcd has descriptors for what it does else. */
static void test_larger_crowd(void)
{
	static void *each[CROWD];
	struct rlimit few = { .rlim_cur = 96, .rlim_max = 96 };
	int heard = 0;
	gpc *other;

	kv_name_cache();
	daemon_pid = fork();
	if (!daemon_pid) {
		setrlimit(RLIMIT_NOFILE, &few);
		daemon_pid = kv_start((const char *const[]){ "--block-size", "4", "--vram-blocks",
							     "64", "--events", kv_out,
							     "--events-replay", kv_replay, NULL });
		_exit(kv_end(daemon_pid, 0));
	}
	c = kv_worker();
	sub = kv_subscribe();
	kv_next(sub, &batch, 20000);
	for (int i = 0; i < CROWD; i++)
		each[i] = i % 2 ? kv_subscribe() : kv_open(ZMQ_DEALER, kv_replay, 0, NULL);
	while (!kv_has_said("were turned away"))
		usleep(1000);
	ok(true, "too many clients: gpcd says so");
	kv_store(c, 0, 0, 1);
	for (int i = 1; i < CROWD; i += 2)
		heard += kv_next(each[i], &batch, 100);
	ok(heard > 0 && heard < CROWD / 2, "%d of %d are let in", heard, CROWD / 2);
	other = kv_worker();
	ok(gpc_pool_make(other,
			 &(struct gpc_pool){ .size = sizeof(struct gpc_pool),
					     .kind = GPC_RAM,
					     .blocks = 1,
					     .transit = 1,
					     .demote_to = -1 },
			 NULL, 10000) == -ENOSPC,
	   "the writer answers");
	must(gpc_close(other));
	for (int i = 0; i < CROWD; i++)
		zmq_close(each[i]);
	zmq_close(sub);
	kill(writer_of(), SIGTERM);
	is_int(kv_end(daemon_pid, 0), 0, "gpcd ends well");
	cache_end(c);
}

/* Each answer would be 1.3 MB. */
static void test_never_reads(void)
{
	void *deaf;
	long before;

	begin();
	for (uint64_t i = 1; i <= BLOCKS; i++)
		kv_store(c, 0, i % 8 ? i - 1 : 0, i);
	ok(kv_follow(&model, sub, dealer, kv_last_change(c)), "many blocks");
	before = resident();
	deaf = kv_open(ZMQ_DEALER, kv_replay, 1, NULL);
	for (int i = 0; i < AT_ONCE; i++)
		kv_ask(deaf, 0);
	goes_on(BLOCKS + 1, "who never reads has asked 500 times");
	usleep(1500000); /* it is given up by then: the more it would hold */
	goes_on(BLOCKS + 2, "and later");
	ok(resident() - before < 131072, "not all answers wait for it: %ld KiB",
	   resident() - before);
	zmq_close(deaf);
	end();
}

static void test_killed_in_answer(void)
{
	void *slow;

	begin();
	for (uint64_t i = 1; i <= BLOCKS; i++)
		kv_store(c, 0, i % 8 ? i - 1 : 0, i);
	slow = kv_open(ZMQ_DEALER, kv_replay, 1, NULL);
	kv_ask(slow, 0);
	ok(kv_answer(slow, &batch, 20000) && batch.n > 4000, "the first batch of a snapshot");
	kv_end(daemon_pid, SIGKILL);
	zmq_close(slow);
	zmq_close(sub);
	daemon_pid = kv_start(
		(const char *const[]){ "--events", kv_out, "--events-replay", kv_replay, NULL });
	kv_until_writer(c, daemon_pid);
	sub = kv_subscribe();
	goes_on(BLOCKS + 1, "gpcd was killed in the middle, and asked again");
	is_int(model.snapshots, 1, "by a snapshot");
	end();
}

/* Blocks that go, and others that come, while a snapshot is on its way. */
static void test_changes_meanwhile(void)
{
	struct kv_batch *b = calloc(1, sizeof(*b));
	gpc_key key;
	gpc_block block;

	begin();
	for (uint64_t i = 1; i <= BLOCKS; i++)
		kv_store(c, 0, i % 8 ? i - 1 : 0, i);
	if (!kv_follow(&model, sub, dealer, kv_last_change(c)))
		bail("no stream");
	memset(&model, 0, sizeof(model));
	zmq_close(dealer);
	dealer = kv_open(ZMQ_DEALER, kv_replay, 1, NULL);
	kv_ask(dealer, 0);
	for (uint64_t i = BLOCKS; i > BLOCKS - 500; i--) {
		key = kv_key(c, i);
		if (gpc_lookup(c, 0, &key, 1, &block, GPC_QUIET) == 1)
			must(gpc_drop(c, &block, 1, NULL, 0, 10000));
		kv_store(c, 0, 0, 100000 + i);
	}
	while (kv_answer(dealer, b, 20000) && b->size)
		kv_apply(&model, b);
	is_int(b->sequence, UINT64_MAX, "an answer while blocks come and go");
	free(b);
	is_int(model.orphans + model.twice, 0, "has each block once, and parents first");
	ok(kv_follow(&model, sub, dealer, kv_last_change(c)) && kv_is_what_there_is(c, &model),
	   "and with what comes behind it is what there is");
	end();
}

static void test_stopped(void)
{
	gpc_block b;

	begin();
	kv_store(c, 0, 0, 1);
	stop_process(daemon_pid);
	is_int(gpc_reserve(c, 0, 1, &b, NULL, 0, 50), -ETIMEDOUT, "gpcd is stopped");
	kill(daemon_pid, SIGCONT);
	goes_on(2, "and goes on");
	is_int(model.replays, 0, "nothing was missed");
	end();
}

/* As gpc-inspect rm does it between two gpcds. */
static void test_made_anew(void)
{
	begin();
	kv_store(c, 0, 0, 1);
	kv_store(c, 0, 1, 2);
	is_int(kv_end(daemon_pid, SIGTERM), 0, "gpcd ends");
	must(gpc_close(c));
	must(gpc_unlink(cache_name, cache_dir));
	daemon_pid = kv_start((const char *const[]){ "--block-size", "4", "--vram-blocks", "64",
						     "--keep-digests", "--events", kv_out,
						     "--events-replay", kv_replay, NULL });
	c = kv_worker();
	kv_until_writer(c, daemon_pid);
	zmq_close(sub);
	sub = kv_subscribe();
	memset(&model, 0, sizeof(model));
	goes_on(7, "another cache of that name");
	is_int(model.last, 1, "begins with 1 again");
	end();
}

static int status_of(const char *events, const char *topic)
{
	kv_name_cache();
	return kv_end(kv_start((const char *const[]){ "--block-size", "4", "--vram-blocks", "64",
						      "--unlink", "--events", events, "--topic",
						      topic, NULL }),
		      0);
}

static void test_options(void)
{
	char path[sizeof(cache_dir) + 16], at[sizeof(path) + 8], topic[10001], far[200];
	struct stat st;
	int fd;

	memset(topic, 't', sizeof(topic) - 1);
	topic[sizeof(topic) - 1] = 0;
	is_int(status_of(kv_out, topic), 2, "a topic of 10000 bytes");
	topic[256] = 0;
	is_int(status_of(kv_out, topic), 2, "of 256");
	snprintf(path, sizeof(path), "%s/file", cache_dir);
	snprintf(at, sizeof(at), "ipc://%s", path);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	close(fd);
	is_int(status_of(at, ""), 1, "a file is in the way");
	ok(!stat(path, &st) && S_ISREG(st.st_mode), "and stays");
	unlink(path);
	snprintf(at, sizeof(at), "ipc://%s", cache_dir);
	is_int(status_of(at, ""), 1, "a folder is in the way");
	memset(far, 'p', sizeof(far) - 1);
	memcpy(far, "ipc:///", 7);
	far[sizeof(far) - 1] = 0;
	is_int(status_of(far, ""), 2, "a path that is too long");
	is_int(status_of("tcp://127.0.0.1:99999", ""), 2, "a port that is none");
	is_int(status_of("tcp://*:5557", ""), 2, "all networks");
	is_int(status_of("rubbish", ""), 2, "no endpoint");
}

static int body(void)
{
	kv_begin();
	test_rubbish();
	test_long_topic();
	test_crowd();
	test_larger_crowd();
	test_never_reads();
	test_killed_in_answer();
	test_changes_meanwhile();
	test_stopped();
	test_made_anew();
	test_options();
	return done_testing();
}
#endif

#include "t/lib/kv_main.h"
