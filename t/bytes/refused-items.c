/* SPDX-License-Identifier: Apache-2.0 */
/* What the writer refuses is told as well: which pool, which block, which item of
 * several, why.
 * Tests: lib/index/peer/refuse.c */
#include "t/lib/sentences.h"

static void test_publish_items(gpc *c)
{
	gpc_block b[4], lost = GPC_BLOCK(0, 70);
	gpc_key k[6], parents[2], bogus = key_of(c, 999), zero = { { 0, 0 } }, root;
	gpc_ticket t;

	must(gpc_key_root(c, NULL, 0, &root));
	chain_keys(c, 1, 4, k);
	must(gpc_reserve(c, 0, 4, b, NULL, 0, 60000));
	item(1, "",
	     gpc_publish(c, k, k + 1, b, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = out.resident), 0, -1));
	parents[0] = k[1];
	parents[1] = bogus;
	item(1, "parents[1]|not live|blocks[1]",
	     gpc_publish(c, parents, k + 2, b + 1, 2,
			 GPC_OPTIONS(gpc_publish_options, .resident = out.resident), 0, -1));
	is_int(out.resident[1], -ENOENT, "as the answer has it");
	item(0, "blocks[0]|published already", gpc_publish(c, k, k + 4, b, 1, NULL, 0, -1));
	item(0, "keys[0]|zero", gpc_publish(c, k, &zero, b + 2, 1, NULL, 0, -1));
	item(0, "keys[0]|root", gpc_publish(c, k, &root, b + 2, 1, NULL, 0, -1));
	item(0, "keys[0] and parents[0]", gpc_publish(c, k + 3, k + 3, b + 2, 1, NULL, 0, -1));
	item(0, "blocks[0]|slot 70|0 to 7", gpc_publish(c, k, k + 3, &lost, 1, NULL, 0, -1));
	/* the key is live elsewhere: no refusal */
	item(0, "", gpc_publish(c, k, k + 1, b + 2, 1, NULL, 0, -1));
	/* without waiting: told by the wait */
	parents[0] = bogus;
	item(0, "",
	     gpc_publish(c, parents, k + 3, b + 2, 1,
			 GPC_OPTIONS(gpc_publish_options, .ticket = &t), 0, 0));
	item(0, "parents[0]|not live", gpc_ticket_wait(c, t, 2000));
	item(0, "", gpc_ticket_wait(c, t, 2000));
	must(gpc_release(c, b + 2, 2));
	item(0, "blocks[0]|slot",
	     gpc_publish(c, k, k + 3, b + 2, 1, GPC_OPTIONS(gpc_publish_options, .ticket = &t), 0,
			 0));
	must(gpc_release(c, b, 2));
	done(c);
}

/* Not yours, and not back yet: two sentences. */
static void test_whose(gpc *c)
{
	gpc *d = cache_attach(0, 2);
	gpc_block b[2], mine[2], got[8];
	gpc_key k[3];

	chain_keys(c, 40, 2, k);
	must(gpc_reserve(c, 0, 2, b, NULL, 0, 60000));
	must(gpc_reserve(d, 0, 1, mine, NULL, 0, 60000));
	item(0, "blocks[0]|reserved by peer|this is peer",
	     gpc_publish(d, k, k + 1, b, 1, NULL, 0, -1));
	bad(EDQUOT, "n is 2|1 blocks|quota is 2", gpc_reserve(d, 0, 2, out.blocks, NULL, 0, 1000));
	bad(EPERM, "blocks[1]|no reference or reservation",
	    gpc_release(d, (gpc_block[]){ GPC_NONE, b[1] }, 2));
	/* referenced by the other one, dropped by us: on its way back */
	must(gpc_publish(c, k, k + 1, b, 1, NULL, 0, -1));
	is_int(gpc_acquire(d, 0, k + 1, 1, got, 0), 1, "the other one holds it");
	must(gpc_drop(c, b, 1, NULL, 0, -1));
	item(0, "blocks[0]|not back yet", gpc_publish(c, k, k + 1, b, 1, NULL, 0, -1));
	item(0, "blocks[0]|keys[0]", gpc_ref(c, k + 1, b, 1));
	must(gpc_release(c, b, 2));
	done(c);
	must(gpc_release(d, got, 1));
	item(0, "blocks[0]|gpc_reserve",
	     gpc_publish(d, k, k + 1, (gpc_block[]){ 6 }, 1, NULL, 0, -1));
	must(gpc_close(d));
	settle(c);
}

/* The pool of an engine with its own allocator. */
static void test_caller_pool(gpc *c)
{
	int pool = pool_new(c, GPC_VRAM, 4, 3, GPC_POOL_CALLER);
	char words[64];

	snprintf(words, sizeof(words), "pool %d|GPC_POOL_CALLER|only its owner", pool);
	bad(EPERM, words, gpc_reserve(c, pool, 1, out.blocks, NULL, 0, 1000));
	bad(EPERM, words, gpc_demote(c, 0, pool, NULL, 1, out.moves, 0, 1000));
	must(gpc_pool_clear(c, pool, 0, GPC_REMOVE, 2000));
}

static void test_move_items(gpc *c)
{
	gpc_block b[3];
	gpc_key k[4];
	struct gpc_move m[2];

	chain_keys(c, 60, 3, k);
	chain_hold(c, 0, 60, 3, b);
	bad(EPERM, "blocks[0]|children", gpc_demote(c, 0, 1, b, 1, out.moves, 0, 1000));
	is_int(gpc_demote(c, 0, 1, b + 2, 1, m, 0, 60000), 1, "the leaf moves");
	bad(ENOSPC, "blocks[0]|being moved", gpc_demote(c, 0, 1, b + 2, 1, out.moves, 0, 1000));
	item(0, "blocks[0]|target of a move", gpc_publish(c, k, k + 1, &m[0].to, 1, NULL, 0, -1));
	must(gpc_drop(c, b + 2, 1, NULL, 0, -1));
	m[1] = m[0];
	item(0, "moves[0]|under way", gpc_commit(c, m, 2, out.results, 0, -1));
	ok(out.results[0] == -ESTALE && out.results[1] == -ESTALE, "as the results have it");
	must(gpc_release(c, b, 3));
	bad(EPERM, "blocks[0]|no reference", gpc_promote(c, b, 1, 2, out.moves, GPC_COPY, 1000));
	done(c);
}

static int body(void)
{
	gpc *c = sentences_cache();

	out_fill();
	test_publish_items(c);
	test_whose(c);
	test_caller_pool(c);
	pool_new(c, GPC_VRAM, 4, 5, 0);
	test_move_items(c);
	settle(c);
	clean(c, "what was refused");
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
