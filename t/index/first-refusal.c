/* SPDX-License-Identifier: Apache-2.0 */
/* A call that answers for each item leaves the sentence of the first one that was refused, whoever
 * asked for the answers and whatever it returns; after a call in which none was refused there is no
 * sentence.  The log has, at level debug, the first one of each errno and handle.  With timeout 0 the sentence of what the writer
 * refuses comes with gpc_ticket_wait. Tests: lib/index/request/publish.c lib/index/request/move.c
 * lib/index/request/rekey.c lib/index/request/reclaim.c lib/index/reader/ref.c lib/index/request/release.c
 * lib/index/peer/refuse.c */
#include "config.h"

#include "t/lib/cache.h"

#define N 8

static gpc *c;
static char logged[1024];
static unsigned lines;

static void on_log(void *arg, int level, const char *text)
{
	(void)arg;
	if (level != 7 || !strstr(text, "has refused an item"))
		return;
	snprintf(logged, sizeof(logged), "%s", text);
	lines++;
}

/* words: of the sentence that the call has left; NULL: it has left none. */
static void says(int got, int want, const char *words, const char *what)
{
	const char *text = gpc_last_error();

	if (words)
		ok(got == want && strstr(text, words), "%s: %d, \"%s\"", what, got, text);
	else
		ok(got == want && !*text, "%s: %d, no sentence: \"%s\"", what, got, text);
}

/* It leaves another sentence. */
static void before(void)
{
	gpc_pool_available(c, 127);
}

#define SAYS(call, want, words)                \
	do {                                   \
		int got;                       \
		before();                      \
		got = (call);                  \
		says(got, want, words, #call); \
	} while (0)

/* ---- publish ---- */

static void test_publish(gpc_key root, bool asks, int timeout)
{
	gpc_key k = key_of(c, 50), other = key_of(c, 51);
	gpc_block free_block = GPC_BLOCK(0, N - 1), none = -1, far = GPC_BLOCK(0, 1000), mine,
		  in[1];
	gpc_block twice[2];
	gpc_key keys[2] = { k, other };
	struct gpc_publish_options o = { .size = sizeof(o), .resident = in };
	const struct gpc_publish_options *opt = asks ? &o : NULL;

	diag("%s, timeout %d", asks ? "somebody asks" : "nobody asks", timeout);
	SAYS(gpc_publish(c, &root, &k, &free_block, 1, opt, 0, timeout), 0,
	     "blocks[0] is 0x7 (pool 0, slot 7): it is free: gpc_reserve comes first");
	SAYS(gpc_publish(c, &root, &k, &none, 1, opt, 0, timeout), 0, "blocks[0] is -1");
	SAYS(gpc_publish(c, &root, &k, &far, 1, opt, 0, timeout), 0, "pool 0 has the slots 0 to 7");
	must(gpc_reserve(c, 0, 1, &mine, NULL, 0, -1));
	SAYS(gpc_publish(c, &root, &root, &mine, 1, opt, 0, timeout), 0, "names no block");
	twice[0] = mine;
	twice[1] = free_block;
	if (timeout) {
		SAYS(gpc_publish(c, &other, &k, &mine, 1, opt, 0, timeout), 0, "parents[0] is");
		SAYS(gpc_publish(c, NULL, keys, twice, 2, NULL, 0, timeout), 1, "blocks[1] is 0x7");
	} else {
		SAYS(gpc_publish(c, &other, &k, &mine, 1, opt, 0, 0), 0, NULL);
		SAYS(gpc_ticket_wait(c, GPC_TICKET_ALL, -1), 0, "parents[0] is");
		SAYS(gpc_publish(c, NULL, &k, &mine, 1, opt, 0, -1), 1, NULL);
	}
	must(gpc_drop(c, &mine, 1, NULL, 0, -1));
	must(gpc_release(c, &mine, 1));
}

/* A key that is live in another block is an answer, and no refusal. */
static void test_duplicate(void)
{
	gpc_key k = key_of(c, 60);
	gpc_block b[2];

	must(gpc_reserve(c, 0, 2, b, NULL, 0, -1));
	SAYS(gpc_publish(c, NULL, &k, &b[0], 1, NULL, 0, -1), 1, NULL);
	SAYS(gpc_publish(c, NULL, &k, &b[1], 1, NULL, 0, -1), 0, NULL);
	must(gpc_drop(c, &b[0], 1, NULL, 0, -1));
	must(gpc_release(c, b, 2));
}

/* ---- the others ---- */

static void test_others(void)
{
	gpc_key k = key_of(c, 70), to = key_of(c, 71);
	gpc_block b, free_block = GPC_BLOCK(0, N - 1);
	struct gpc_move never = {
		.from = GPC_BLOCK(0, 1), .to = GPC_BLOCK(1, 1), .key = k, .op = 5
	};
	struct gpc_move no_slot = { .from = GPC_BLOCK(0, 1), .to = GPC_BLOCK(1, 5000), .key = k };
	struct gpc_move nothing = { .from = GPC_BLOCK(0, 1), .to = -1, .key = k };

	SAYS(gpc_commit(c, &never, 1, NULL, 0, -1), 0, "it is not under way any more");
	SAYS(gpc_commit(c, &no_slot, 1, NULL, 0, -1), 0, "moves[0].to is");
	SAYS(gpc_commit(c, &never, 1, NULL, GPC_CANCEL, -1), 0, "it is not under way any more");
	SAYS(gpc_commit(c, &nothing, 1, NULL, 0, -1), 0, NULL);
	SAYS(gpc_reclaim(c, &k, &free_block, 1, NULL, 0, -1), 0, "it is not live");
	SAYS(gpc_ref(c, &k, &free_block, 1), 0, "it does not hold keys[0]");
	SAYS(gpc_rekey(c, NULL, NULL, &to, &free_block, 1, NULL, 0, -1), 0, "blocks[0] is 0x7");
	chain_hold(c, 0, 70, 1, &b);
	SAYS(gpc_reclaim(c, &k, &b, 1, NULL, 0, -1), 1, NULL);
	must(gpc_release(c, &b, 1));
}

/* gpc_rekey is a reclaim and a publish, and its sentence is that of the half that refused, with
 * names of its own arguments. */
static void test_rekey(bool asks)
{
	gpc_key k = key_of(c, 80), to = key_of(c, 81), none = key_of(c, 82);
	gpc_block b, x, in[1];
	struct gpc_publish_options o = { .size = sizeof(o), .resident = in };
	const struct gpc_publish_options *opt = asks ? &o : NULL;

	diag("rekey, %s", asks ? "somebody asks" : "nobody asks");
	chain_hold(c, 0, 80, 1, &b);
	is_int(gpc_acquire(c, 0, &k, 1, &x, 0), 1, "a second reference");
	SAYS(gpc_rekey(c, &k, NULL, &to, &b, 1, opt, 0, -1), 0, "another reference is held");
	must(gpc_release(c, &x, 1));
	SAYS(gpc_rekey(c, &to, NULL, &to, &b, 1, opt, 0, -1), 0, "not live with the key");
	SAYS(gpc_rekey(c, &k, &to, &to, &b, 1, opt, 0, -1), -EINVAL,
	     "to[0] and parents[0] are the same key");
	is_int(gpc_lookup(c, 0, &k, 1, &x, GPC_QUIET), 1, "and the old key stays");
	SAYS(gpc_rekey(c, &k, &none, &to, &b, 1, opt, 0, -1), 0, "parents[0] is");
	SAYS(gpc_rekey(c, &k, NULL, &to, &b, 1, opt, 0, -1), 1, NULL);
	must(gpc_release(c, &b, 1));
	must(gpc_pool_clear(c, 0, 0, 0, -1));
}

/* A duplicate of a block that has all the references that there can be: that block has them, and not
 * the caller's. */
static void test_overflow(void)
{
	gpc_key k = key_of(c, 90);
	gpc_block b, x, in = -1;
	uint32_t i;

	chain_hold(c, 0, 90, 1, &b);
	for (i = 1; gpc_acquire(c, 0, &k, 1, &x, 0) == 1; i++)
		;
	must(gpc_reserve(c, 0, 1, &x, NULL, 0, -1));
	SAYS(gpc_publish(c, NULL, &k, &x, 1, GPC_OPTIONS(gpc_publish_options, .resident = &in), 0,
			 -1),
	     0, "it is live in another block");
	is_int(in, -EOVERFLOW, "refused");
	must(gpc_release(c, &x, 1));
	while (i--)
		must(gpc_release(c, &b, 1));
}

/* ---- the log ---- */

#define LOGS(call, want, words)                                                                   \
	do {                                                                                      \
		lines = 0;                                                                        \
		must(call);                                                                       \
		ok(lines == (want) && (!(want) || strstr(logged, words)), "%s: %u lines: \"%s\"", \
		   #call, lines, logged);                                                         \
	} while (0)

static void test_log(void)
{
	struct gpc_move never = { .from = GPC_BLOCK(0, 1), .to = GPC_BLOCK(1, 1), .op = 5 };
	gpc_block free_block = GPC_BLOCK(0, N - 1), none = -1;
	gpc_key k = key_of(c, 80);

	LOGS(gpc_publish(c, NULL, &k, &free_block, 1, NULL, 0, -1), 1,
	     "gpc_publish has refused an item: blocks[0] is 0x7 (pool 0, slot 7): it is free");
	LOGS(gpc_publish(c, NULL, &k, &free_block, 1, NULL, 0, -1), 0, "");
	LOGS(gpc_publish(c, NULL, &k, &free_block, 1, NULL, 0, 0), 0, "");
	LOGS(gpc_publish(c, NULL, &k, &none, 1, NULL, 0, 0), 1, "blocks[0] is -1");
	LOGS(gpc_commit(c, &never, 1, NULL, 0, -1), 1,
	     "gpc_commit has refused an item: moves[0], from 0x1 (pool 0, slot 1)");
	LOGS(gpc_commit(c, &never, 1, NULL, 0, -1), 0, "");
	LOGS(gpc_reclaim(c, NULL, &free_block, 1, NULL, 0, -1), 0, "");
}

static int body(void)
{
	struct gpc_config cfg = cache_config(N, N);
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir, .log = on_log };
	gpc_key root;
	int asks;

	c = cache_make(&cfg, &opt);
	serve_begin(c);
	must(gpc_key_root(c, NULL, 0, &root));
	test_log();
	for (asks = 0; asks < 2; asks++) {
		test_publish(root, asks, -1);
		test_publish(root, asks, 0);
	}
	test_duplicate();
	test_others();
	test_rekey(false);
	test_rekey(true);
	test_overflow();
	serve_end();
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
