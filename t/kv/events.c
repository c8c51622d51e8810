/* SPDX-License-Identifier: Apache-2.0 */
/* What gpcd tells subscribers, change by change: the bytes of engines, one batch a change, the
 * feed's own numbers.
 * Tests: tools/daemon/events/publish.c tools/daemon/events/batch.c tools/daemon/events/wire.c
 *   tools/daemon/events/events.h */
#include "config.h"

#ifdef HAVE_EVENTS
#include "t/lib/kv.h"

static struct kv_batch batch;
static void *sub;
static pid_t daemon_pid;

static gpc *begin(const char *const *options)
{
	gpc *c;

	kv_name_cache();
	daemon_pid = kv_start(options);
	c = kv_worker();
	kv_until_writer(c, daemon_pid);
	sub = kv_subscribe();
	if (!kv_next(sub, &batch, 20000))
		bail("no batch at start");
	is_int(batch.sequence, 0, "the first batch is that of no change");
	is_int(batch.n, 0, "and empty");
	return c;
}

static void end(gpc *c)
{
	zmq_close(sub);
	is_int(kv_end(daemon_pid, SIGTERM), 0, "gpcd ends well");
	cache_end(c);
}

/* The batch of the next change, which has that many events. */
static bool next(uint64_t sequence, uint32_t n)
{
	do {
		if (!kv_next(sub, &batch, 20000))
			bail("no batch %llu", (unsigned long long)sequence);
	} while (batch.sequence < sequence); /* one more subscriber got the last one */
	if (batch.sequence == sequence && batch.n == n)
		return true;
	diag("batch %llu of %u events, want %llu of %u", (unsigned long long)batch.sequence,
	     batch.n, (unsigned long long)sequence, n);
	return false;
}

/* ---- golden bytes ---- */

/* But for the time, which is that of the batch: bytes 2 to 9. */
static void is_golden(const char *hex, const char *what)
{
	static char got[4096];
	double time;
	uint64_t word;

	memcpy(&word, batch.bytes + 2, 8);
	word = be64toh(word);
	memcpy(&time, &word, 8);
	memcpy(batch.bytes + 2, "\x3f\xf8\0\0\0\0\0\0", 8);
	for (size_t i = 0; i < batch.size && i < 2000; i++)
		snprintf(got + 2 * i, 3, "%02x", batch.bytes[i]);
	is_str(got, hex, "%s", what);
	ok(time > 1.7e9 && time < 1e10, "its time is one");
}

/* One block by its name of so many bytes, and with these tokens. */
static gpc_block store(gpc *c, int pool, const gpc_key *parent, uint64_t name, uint32_t bytes,
		       const uint32_t *tokens, gpc_key *ret)
{
	uint64_t be = htobe64(name);
	gpc_key none = { { 0, 0 } };
	gpc_block b;

	must(gpc_key_import(c, &name, 8, 8, 1, 0, ret));
	must(gpc_reserve(c, pool, 1, &b, NULL, 0, 60000));
	must(gpc_publish(c, parent ? parent : &none, ret, &b, 1,
			 GPC_OPTIONS(gpc_publish_options, .digests = (char *)&be + 8 - bytes,
				     .digest_bytes = bytes, .digest_stride = bytes,
				     .tokens = tokens),
			 0, 1000));
	return b;
}

static void test_golden_child(void)
{
	static const uint32_t tokens[] = { 1, 2, 70000, 128 };
	gpc *c = begin((const char *const[]){
		"--block-size", "4", "--vram-blocks", "16", "--ram-blocks", "16", "--ram-space",
		"1", "--keep-tokens", "--keep-digests", "--events", kv_out, NULL });
	gpc_block b[2];
	gpc_key k[2];

	b[0] = store(c, 1, NULL, 0xfedcba9876543210, 8, tokens, &k[0]);
	ok(next(1, 1), "a first block");
	ok(!batch.event[0].has_parent && batch.rank == 1,
	   "has no parent, and the rank of its space");
	b[1] = store(c, 1, &k[0], 42, 1, tokens, &k[1]);
	ok(next(2, 1), "a child");
	is_golden(
		"93cb3ff80000000000009188a474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573912ab1"
		"706172656e745f626c6f636b5f68617368cffedcba9876543210a9746f6b656e5f696473940102ce00011170cc80"
		"aa626c6f636b5f73697a6504a76c6f72615f6964c0a66d656469756da3435055a96c6f72615f6e616d65c001",
		"M2: stored, a child, CPU, rank 1");
	must(gpc_release(c, b, 2));
	end(c);
}

static void test_golden_others(void)
{
	gpc *c = begin((const char *const[]){ "--block-size", "4", "--vram-blocks", "16",
					      "--ram-blocks", "16", "--keep-digests",
					      "--free-target", "0", "--events", kv_out, NULL });
	struct gpc_move m;
	gpc_block b;
	gpc_key k;

	b = store(c, 0, NULL, 0x1122334455667788, 8, NULL, &k);
	ok(next(1, 1), "without tokens");
	is_int(batch.event[0].tokens, 0, "a cache that keeps none tells none");
	must(gpc_drop(c, &b, 1, NULL, 0, 60000));
	ok(next(2, 1), "dropped");
	is_golden(
		"93cb3ff80000000000009183a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68617368657391cf"
		"1122334455667788a66d656469756da347505500",
		"M5: removed, GPU");
	must(gpc_release(c, &b, 1));
	b = store(c, 0, NULL, 42, 1, NULL, &k);
	next(3, 1);
	must(gpc_release(c, &b, 1));
	is_int(gpc_demote(c, 0, 1, NULL, 1, &m, 0, 60000), 1, "a move");
	must(gpc_commit(c, &m, 1, NULL, 0, 60000));
	ok(next(4, 2), "two events, the new place first");
	is_golden(
		"93cb3ff80000000000009288a474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573912ab1"
		"706172656e745f626c6f636b5f68617368c0a9746f6b656e5f69647390aa626c6f636b5f73697a6504a76c6f7261"
		"5f6964c0a66d656469756da3435055a96c6f72615f6e616d65c083a474797065ac426c6f636b52656d6f766564ac"
		"626c6f636b5f686173686573912aa66d656469756da347505500",
		"M7: moved to RAM");
	must(gpc_pool_clear(c, 1, 0, 0, 60000));
	ok(next(5, 1), "cleared");
	is_golden("93cb3ff80000000000009181a474797065b0416c6c426c6f636b73436c656172656400",
		  "M6: nothing is left");
	end(c);
}

/* ---- what is told of what ---- */

static void test_clear(void)
{
	gpc *c = begin((const char *const[]){ "--block-size", "4", "--vram-blocks", "16",
					      "--ram-blocks", "16", "--ram-space", "1",
					      "--keep-tokens", "--keep-digests", "--events", kv_out,
					      "--topic", "kv@pod@m", NULL });

	is_str(batch.topic, "kv@pod@m", "the topic");
	kv_store(c, 0, 0, 1);
	kv_store(c, 0, 1, 2);
	kv_store(c, 1, 0, 3);
	ok(next(1, 1) && next(2, 1), "a batch a change");
	ok(batch.event[0].parent == KV_NAME + 1 && batch.event[0].tokens == 4 &&
		   batch.event[0].first == 2 << 16 && batch.event[0].block_tokens == 4 &&
		   batch.rank == 0,
	   "a parent by the engine's name, tokens, block size, rank");
	ok(next(3, 1) && batch.rank == 1, "another space, another rank");
	must(gpc_pool_clear(c, 0, 0, 0, 60000));
	ok(next(4, 2), "a pool of several: each of its blocks by name");
	ok(!strcmp(batch.event[0].type, "BlockRemoved") && batch.event[0].hash == KV_NAME + 1 &&
		   batch.event[1].hash == KV_NAME + 2,
	   "and none of another pool");
	must(gpc_pool_clear(c, 1, 77, 0, 60000));
	ok(next(5, 0), "a clear of a tag says nothing by itself");
	must(gpc_pool_clear(c, 1, 0, 0, 60000));
	ok(next(6, 1) && !strcmp(batch.event[0].type, "AllBlocksCleared"), "the last of all");
	end(c);
}

/* A batch has one rank, and what goes to another space is two changes. */
static void test_two_ranks(void)
{
	gpc *c = begin((const char *const[]){
		"--block-size", "4", "--vram-blocks", "16", "--ram-blocks", "16", "--ram-space",
		"1", "--keep-tokens", "--keep-digests", "--events", kv_out, NULL });
	gpc_block b = kv_store(c, 0, 0, 1);
	struct gpc_move m;

	ok(next(1, 1), "in VRAM");
	is_int(must(gpc_demote(c, 0, 1, &b, 1, &m, 0, 60000)), 1, "to RAM of another space");
	must(gpc_commit(c, &m, 1, NULL, 0, 60000));
	ok(next(2, 1) && !strcmp(batch.event[0].type, "BlockStored") && batch.rank == 1 &&
		   batch.event[0].tokens == 4 && !strcmp(batch.event[0].medium, "CPU"),
	   "there, in one rank");
	ok(next(3, 1) && !strcmp(batch.event[0].type, "BlockRemoved") && batch.rank == 0 &&
		   batch.event[0].hash == KV_NAME + 1 && !strcmp(batch.event[0].medium, "GPU"),
	   "and not here any more, in the other one");
	end(c);
}

static void test_keys(void)
{
	gpc *c = begin((const char *const[]){ "--block-size", "4", "--vram-blocks", "16",
					      "--events", kv_out, "--keep-tokens", NULL });
	gpc_key up = kv_key(c, 1), root, key = kv_key(c, 9);
	gpc_block b;

	kv_store(c, 0, 0, 1);
	ok(next(1, 1) && batch.event[0].hash == up.w[0], "without digests the key is the name");
	kv_store(c, 0, 1, 2);
	ok(next(2, 1) && batch.event[0].parent == up.w[0], "of the parent, too");
	must(gpc_key_root(c, NULL, 0, &root));
	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 60000));
	must(gpc_publish(c, &root, &key, &b, 1, NULL, GPC_NO_REF, 60000));
	ok(next(3, 1) && !batch.event[0].has_parent, "a root is no parent");
	is_int(batch.event[0].tokens, 0, "no tokens given, none told");
	end(c);
}

static void test_subscribers(void)
{
	gpc *c = begin((const char *const[]){ "--block-size", "4", "--vram-blocks", "64",
					      "--keep-digests", "--keep-tokens", "--events", kv_out,
					      "--topic", "kv@a", NULL });
	void *more[3];
	int same = 0;

	for (uint64_t i = 1; i <= 5; i++)
		kv_store(c, 0, 0, i);
	ok(next(1, 1) && next(5, 1), "five changes");
	for (int i = 0; i < 3; i++)
		more[i] = kv_open(ZMQ_SUB, kv_out, 0, i == 2 ? "other" : "kv@");
	for (int i = 0; i < 2; i++)
		same += kv_next(more[i], &batch, 20000) && batch.sequence == 5 && batch.n == 1 &&
			batch.event[0].hash == KV_NAME + 5;
	is_int(same, 2, "who comes late gets the last batch at once");
	kv_store(c, 0, 0, 6);
	same = next(6, 1);
	for (int i = 0; i < 2; i++) {
		do {
			if (!kv_next(more[i], &batch, 20000))
				break;
		} while (batch.sequence == 5);
		same += batch.sequence == 6;
	}
	is_int(same, 3, "all get what comes");
	ok(!kv_next(more[2], &batch, 0), "but for one of another topic");
	zmq_close(more[0]);
	more[0] = kv_subscribe();
	ok(kv_next(more[0], &batch, 20000) && batch.sequence == 6,
	   "one that comes back gets it as well");
	for (int i = 0; i < 3; i++)
		zmq_close(more[i]);
	end(c);
}

static int body(void)
{
	kv_begin();
	test_golden_child();
	test_golden_others();
	test_clear();
	test_two_ranks();
	test_keys();
	test_subscribers();
	return done_testing();
}
#endif

#include "t/lib/kv_main.h"
