/* SPDX-License-Identifier: Apache-2.0 */
/* Who has missed batches gets them again, or all that is there: afterwards it knows what a walk
 * shows, and nothing was told twice.
 * Tests: tools/daemon/events/replay.c */
#include "config.h"

#ifdef HAVE_EVENTS
#include "t/lib/kv.h"

static struct kv_batch batch;
static struct kv_model model;
static void *sub, *dealer;
static pid_t daemon_pid;
static gpc *c;

static void begin(const char *ram_space)
{
	memset(&model, 0, sizeof(model));
	kv_name_cache();
	daemon_pid = kv_start((const char *const[]){
		"--block-size", "4", "--vram-blocks", "512", "--ram-blocks", "512", "--ram-space",
		ram_space, "--free-target", "0", "--keep-tokens", "--keep-digests", "--events",
		kv_out, "--events-replay", kv_replay, NULL });
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

static void forget_chain(uint64_t n)
{
	gpc_key k = kv_key(c, n);
	gpc_block b;

	while (gpc_lookup(c, 0, &k, 1, &b, GPC_QUIET) == 1)
		must(gpc_drop(c, &b, 1, NULL, 0, 60000));
}

/* So many chains of three, from that number on. */
static void chains(uint64_t from, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		for (uint64_t j = 0; j < 3; j++)
			kv_store(c, 0, j ? from + 3 * i + j - 1 : 0, from + 3 * i + j);
}

static void knows_all(const char *when)
{
	bool good = kv_follow(&model, sub, dealer, kv_last_change(c));

	ok(good && kv_is_what_there_is(c, &model), "%s: knows what there is", when);
	/* a replay may tell the end of what had gone before it could be told */
	is_int(model.orphans + model.twice + (model.replays ? 0 : model.unknown), 0,
	       "and heard nothing twice or out of order");
	model.orphans = model.twice = model.unknown = 0;
}

/* So many batches are lost on the way. */
static void lose(uint32_t n)
{
	while (n--)
		kv_next(sub, &batch, 20000);
}

static void come_anew(void)
{
	zmq_close(sub);
	sub = kv_subscribe();
	memset(&model, 0, sizeof(model));
}

/* gpcd ends, or is killed, and another one comes; the subscriber has what it had. */
static void restart(int sig)
{
	kv_end(daemon_pid, sig);
	daemon_pid = kv_start(
		(const char *const[]){ "--events", kv_out, "--events-replay", kv_replay, NULL });
	kv_until_writer(c, daemon_pid);
}

static void test_gap(void)
{
	begin("0");
	chains(1, 4);
	knows_all("from the start");
	is_int(model.replays, 0, "and nothing was missed");
	chains(100, 4);
	forget_chain(100);
	forget_chain(1);
	lose(9);
	knows_all("after a gap");
	ok(model.replays == 1 && model.snapshots == 0, "which the feed closes");
	ok(model.last == kv_last_change(c), "the sequence is the change's number");
	end();
}

static void test_moves(void)
{
	struct gpc_move m[4];
	int n;

	begin("0");
	chains(1, 3);
	lose(3);
	n = must(gpc_demote(c, 0, 1, NULL, 4, m, 0, 60000));
	must(gpc_commit(c, m, (uint32_t)n, NULL, 0, 60000));
	knows_all("blocks that have moved since");
	n = must(gpc_demote(c, 0, 1, NULL, 4, m, 0, 60000));
	must(gpc_commit(c, m, (uint32_t)n, NULL, 0, 60000));
	knows_all("blocks that move");
	ok(model.at[0].medium[0] == 'C' || model.at[model.n - 1].medium[0] == 'C',
	   "some are in RAM");
	end();
}

static void test_late(bool clears_all)
{
	begin("1");
	chains(1, 20);
	for (uint64_t i = 0; i < 30; i++)
		kv_store(c, 1, i ? 1000 + i - 1 : 0, 1000 + i);
	zmq_close(sub);
	sub = kv_subscribe();
	memset(&model, 0, sizeof(model));
	model.clears_all = clears_all;
	knows_all("one that comes late");
	ok(model.replays == 1 && model.snapshots == 1, "has asked once, and got a snapshot");
	is_int(model.batches, 3, "a batch for each space, and one that clears the second");
	ok(model.last == kv_last_change(c), "whose last one has the last sequence");
	chains(300, 2);
	knows_all("and follows from there");
	is_int(model.replays, 1, "without another question");
	end();
}

/* What it has missed is of another rank than that of the blocks that are there. */
static void test_other_rank(void)
{
	for (int all = 0; all < 2; all++) {
		begin("1");
		model.clears_all = all;
		chains(1, 2);
		kv_store(c, 1, 0, 900);
		knows_all("two ranks");
		must(gpc_pool_clear(c, 1, 0, 0, 60000));
		lose(1);
		kv_store(c, 0, 0, 300);
		knows_all(all ? "one was cleared, who takes that for all"
			      : "one was cleared, who takes it for a rank");
		is_int(model.snapshots, 1, "by a snapshot");
		end();
	}
	begin("1");
	chains(1, 2);
	kv_store(c, 1, 0, 900);
	knows_all("two ranks");
	must(gpc_pool_clear(c, 1, 0, 0, 60000));
	lose(1);
	restart(SIGKILL);
	knows_all("one was cleared, and gpcd was killed");
	is_int(model.n, 6, "the other one is there");
	end();
}

static void test_too_short(void)
{
	uint64_t last;

	begin("0");
	chains(1, 2);
	knows_all("at first");
	for (uint32_t i = 0; i < 700; i++) {
		kv_store(c, 0, 0, 5000);
		forget_chain(5000);
	}
	chains(200, 5);
	last = kv_last_change(c);
	while (kv_next(sub, &batch, 20000) && batch.sequence < last)
		; /* 1024 changes are kept, and none of those is known */
	kv_store(c, 0, 0, 6000);
	knows_all("the feed is too short");
	ok(model.replays == 1 && model.snapshots == 1, "so a snapshot has come");
	end();
}

static void test_cleared(void)
{
	begin("1");
	chains(1, 5);
	kv_store(c, 1, 0, 900);
	knows_all("at first");
	chains(100, 3);
	must(gpc_pool_clear(c, 0, 0, 0, 60000));
	chains(200, 3);
	lose(10); /* with the clear */
	knows_all("a pool was cleared meanwhile");
	ok(model.snapshots == 1, "what went then is not in the feed: a snapshot");
	must(gpc_pool_clear(c, -1, 0, 0, 60000));
	knows_all("all are cleared");
	is_int(model.n, 0, "and nothing is left");
	end();
}

/* Who comes just after a clear hears of it first, and then of what was stored since. */
static void test_just_cleared(void)
{
	begin("0");
	chains(1, 5);
	knows_all("at first");
	must(gpc_pool_clear(c, -1, 0, 0, 60000));
	come_anew();
	knows_all("comes when all was cleared");
	is_int(model.n, 0, "and hears of nothing else");
	chains(100, 2);
	knows_all("then of what is stored");
	is_int(model.n, 6, "and of no more");
	must(gpc_pool_clear(c, -1, 0, 0, 60000));
	chains(200, 3);
	come_anew();
	knows_all("comes when some was stored since");
	ok(model.n == 9 && model.snapshots == 1, "and hears of a clear and of that");
	kv_store(c, 0, 202, 300);
	knows_all("and follows");
	end();
}

/* It has missed the clear, or the clear and what came then, over the life of a gpcd or without. */
static void test_missed_clear(void)
{
	begin("0");
	chains(1, 5);
	knows_all("at first");
	must(gpc_pool_clear(c, 0, 0, 0, 60000));
	lose(1);
	come_anew();
	model.begun = true;
	model.last = kv_last_change(c) - 1;
	chains(50, 1);
	knows_all("missed the clear alone");
	must(gpc_pool_clear(c, 0, 0, 0, 60000));
	lose(1);
	restart(SIGKILL);
	knows_all("missed the clear, and gpcd was killed");
	is_int(model.n, 0, "nothing is left");
	chains(100, 2);
	knows_all("then of what is stored");
	must(gpc_pool_clear(c, 0, 0, 0, 60000));
	chains(200, 2);
	lose(7);
	restart(SIGTERM);
	kv_store(c, 0, 0, 300);
	knows_all("missed it, and what came behind it, and gpcd has ended");
	is_int(model.n, 7, "which is all there is");
	end();
}

/* Answers to what is asked, up to the end: how many batches. */
static uint32_t ask(uint64_t first)
{
	uint32_t n = 0;

	kv_ask(dealer, first);
	while (kv_answer(dealer, &batch, 20000) && batch.size)
		n++;
	return batch.sequence == UINT64_MAX ? n : 999;
}

static void test_requests(void)
{
	begin("0");
	is_int(ask(0), 0, "nothing has happened: nothing but the end");
	chains(1, 3);
	knows_all("at first");
	is_int(ask(4), 6, "from 4 to 9");
	is_int(ask(9), 1, "the last one");
	is_int(ask(10), 0, "what is to come");
	is_int(ask(UINT64_MAX), 0, "never");
	is_int(ask(0), 1, "from nothing: a snapshot");
	zmq_send(dealer, "", 0, ZMQ_SNDMORE);
	zmq_send(dealer, "abc", 3, 0);
	zmq_send(dealer, "not asked for like this", 23, 0);
	zmq_send(dealer, "", 0, ZMQ_SNDMORE);
	zmq_send(dealer, "12345678", 8, ZMQ_SNDMORE);
	zmq_send(dealer, "more", 4, 0);
	is_int(ask(9), 1, "what is no request has no answer");
	kv_ask(dealer, 1);
	zmq_close(dealer); /* gone before its answer */
	dealer = kv_open(ZMQ_DEALER, kv_replay, 0, NULL);
	is_int(ask(9), 1, "who has gone keeps nobody");
	end();
}

static int body(void)
{
	kv_begin();
	test_gap();
	test_moves();
	test_late(false);
	test_late(true);
	test_other_rank();
	test_too_short();
	test_cleared();
	test_just_cleared();
	test_missed_clear();
	test_requests();
	return done_testing();
}
#endif

#include "t/lib/kv_main.h"
