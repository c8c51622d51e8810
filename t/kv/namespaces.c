/* SPDX-License-Identifier: Apache-2.0 */
/* KV events name adapter and salt of what was published below a root of gpc_root_keep: to who
 * follows, in replays and snapshots, after moves, and after publisher and gpcd have gone.
 * Tests: tools/daemon/events/words.c */
#include "config.h"

#ifdef HAVE_EVENTS
#include "t/lib/kv.h"

static struct kv_batch batch;
static void *sub, *dealer;

#define GEOMETRY                                                                           \
	"--block-size", "4", "--vram-blocks", "64", "--ram-blocks", "64", "--keep-tokens", \
		"--keep-digests", "--events", kv_out, "--events-replay", kv_replay

static pid_t start(const char *option)
{
	return kv_start((const char *const[]){ GEOMETRY, option, NULL });
}

static gpc_key root_of(gpc *c, const char *adapter, const char *salt)
{
	struct gpc_field f[3] = { { .tag = 1, .len = 5, .data = "llama" } };
	uint32_t n = 1;
	gpc_key root;

	if (adapter)
		f[n++] = (struct gpc_field){ .tag = 2,
					     .len = (uint32_t)strlen(adapter),
					     .data = adapter };
	if (salt)
		f[n++] =
			(struct gpc_field){ .tag = 3, .len = (uint32_t)strlen(salt), .data = salt };
	must(gpc_root_keep(c, f, n, &root, 0, 10000));
	return root;
}

/* Block n, with its tokens, below a root or another block. */
static gpc_block store(gpc *c, gpc_key up, uint64_t n)
{
	gpc_key key = kv_key(c, n);
	uint64_t name = htobe64(KV_NAME + n);
	uint32_t tokens[KV_TOKENS] = { (uint32_t)n << 16 };
	gpc_block b;

	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 10000));
	if (must(gpc_publish(c, &up, &key, &b, 1,
			     GPC_OPTIONS(gpc_publish_options, .tokens = tokens, .digests = &name,
					 .digest_bytes = 8, .digest_stride = 8),
			     GPC_NO_REF, 10000)) != 1)
		bail("block %llu was not published: %s", (unsigned long long)n, gpc_last_error());
	return b;
}

static bool is(const struct kv_event *e, const char *type, uint64_t n, const char *adapter,
	       const char *salt, const char *extra)
{
	bool same = !strcmp(e->type, type) && e->hash == KV_NAME + n &&
		    !strcmp(e->adapter, adapter) && !strcmp(e->salt, salt) &&
		    !strcmp(e->extra, extra);

	if (!same)
		diag("%s %llx adapter '%s' salt '%s' extra '%s'", e->type,
		     (unsigned long long)e->hash, e->adapter, e->salt, e->extra);
	return same;
}

static bool hears(const char *type, uint64_t n, const char *adapter, const char *salt,
		  const char *extra)
{
	return kv_next(sub, &batch, 20000) && batch.n &&
	       is(&batch.event[0], type, n, adapter, salt, extra);
}

#define S "BlockStored"

static void stores(gpc *c)
{
	gpc_key both = root_of(c, "fr", "tenant-a"), salted = root_of(c, NULL, "tenant-b"),
		plain = root_of(c, NULL, NULL);
	gpc_key bare;

	must(gpc_key_root(c, &(struct gpc_field){ .tag = 3, .len = 3, .data = "own" }, 1, &bare));
	store(c, both, 1);
	ok(hears(S, 1, "fr", "tenant-a", "fr|tenant-a"), "adapter and salt of a first block");
	store(c, kv_key(c, 1), 2);
	ok(hears(S, 2, "fr", "tenant-a", "fr"), "and of the next one");
	store(c, salted, 3);
	ok(hears(S, 3, "", "tenant-b", "tenant-b"), "a salt alone");
	store(c, kv_key(c, 3), 4);
	ok(hears(S, 4, "", "tenant-b", ""), "and behind it");
	store(c, plain, 5);
	ok(hears(S, 5, "", "", ""), "a model alone");
	store(c, bare, 6);
	ok(hears(S, 6, "", "", ""), "a root that nobody has told the words of");
	store(c, kv_key(c, 2), 7);
	ok(hears(S, 7, "fr", "tenant-a", "fr"), "the chain again");
	store(c, root_of(c, "\xff\xfe", "tenant-c"), 8);
	ok(hears(S, 8, "", "tenant-c", "tenant-c"), "what is no text is not told");
}

static void moves(gpc *c)
{
	gpc_key key = kv_key(c, 7);
	struct gpc_move m;
	gpc_block b;

	is_int(gpc_acquire(c, 0, &key, 1, &b, 0), 1, "the last block of the chain");
	must(gpc_release(c, &b, 1));
	is_int(gpc_demote(c, 0, 1, &b, 1, &m, 0, 10000), 1, "moves");
	must(gpc_commit(c, &m, 1, NULL, 0, 10000));
	ok(hears(S, 7, "fr", "tenant-a", "fr") && batch.n == 2 &&
		   !strcmp(batch.event[0].medium, "CPU"),
	   "to RAM, with its words");
}

/* All that a consumer gets that asks from that change on: how many events of each block are as they
 * should be. */
static int answers(uint64_t first, int *snapshots)
{
	int good = 0;

	*snapshots = 0;
	kv_ask(dealer, first);
	while (kv_answer(dealer, &batch, 20000) && batch.size)
		for (uint32_t i = 0; i < batch.n; i++) {
			const struct kv_event *e = &batch.event[i];

			*snapshots += !strcmp(e->type, "AllBlocksCleared");
			if (strcmp(e->type, S))
				continue;
			switch (e->hash - KV_NAME) {
			case 1:
				good += is(e, S, 1, "fr", "tenant-a", "fr|tenant-a");
				break;
			case 2:
			case 7:
				good += is(e, S, e->hash - KV_NAME, "fr", "tenant-a", "fr");
				break;
			case 3:
				good += is(e, S, 3, "", "tenant-b", "tenant-b");
				break;
			case 4:
				good += is(e, S, 4, "", "tenant-b", "");
				break;
			}
		}
	return good;
}

static int body(void)
{
	pid_t first, second;
	gpc *c, *p;
	int snapshots;

	kv_begin();
	kv_name_cache();
	first = start(NULL);
	c = kv_worker();
	p = kv_worker();
	kv_until_writer(c, first);
	sub = kv_subscribe();
	dealer = kv_open(ZMQ_DEALER, kv_replay, 0, NULL);
	if (!kv_next(sub, &batch, 20000))
		bail("no batch at start");
	stores(p);
	moves(p);
	is_int(answers(1, &snapshots), 6, "a replay names them, each change of a block");
	is_int(snapshots, 0, "and is none of all");
	is_int(answers(0, &snapshots), 5, "so does a snapshot");
	is_int(snapshots, 1, "of all there is");
	must(gpc_close(p));
	is_int(kv_end(first, SIGKILL), -SIGKILL, "publisher and gpcd have gone");
	second = start(NULL);
	kv_until_writer(c, second);
	kv_next(sub, &batch, 20000);
	is_int(answers(0, &snapshots), 5, "the next gpcd knows the words from the cache");
	store(c, kv_key(c, 4), 9);
	do
		if (!kv_next(sub, &batch, 20000))
			break;
	while (!batch.n || batch.event[0].hash != KV_NAME + 9);
	ok(is(&batch.event[0], S, 9, "", "tenant-b", ""),
	   "and names those of blocks that come after");
	is_int(kv_end(second, SIGTERM), 0, "gpcd ends well");
	zmq_close(sub);
	zmq_close(dealer);
	cache_end(c);
	return done_testing();
}
#endif

#include "t/lib/kv_main.h"
