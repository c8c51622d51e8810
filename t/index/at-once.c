/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that need no writer: gpc_reserve out of the stock alone (GPC_IN_HAND), and who else has or
 * computes a key (gpc_claim with GPC_PEEK).
 * Tests: lib/index/request/reserve.c lib/index/request/stock.c lib/index/claim/claim.c lib/index/claim/claim_here.c
 *   lib/index/table/pending.c lib/index/peer/wait_word.h */
#include "t/lib/cache.h"

enum { STOCK = 8 };

static void test_stock(void)
{
	gpc *c = cache_new(0, 64), *a = cache_attach(STOCK, 0);
	gpc_block got[64];
	int n;

	refused(gpc_reserve(a, 0, 4, got, NULL, GPC_IN_HAND, 0), EAGAIN, "no stock yet");
	must(gpc_writer_serve(c, 0));
	is_int(gpc_reserve(a, 0, 3, got, NULL, GPC_IN_HAND, 0), 3,
	       "the first call has asked for one");
	refused(gpc_reserve(a, 0, 6, got, NULL, GPC_IN_HAND, 0), EAGAIN,
		"more than there is: none");
	n = gpc_reserve(a, 0, 6, got, NULL, GPC_IN_HAND | GPC_PARTIAL, 0);
	is_int(n, STOCK - 3, "GPC_PARTIAL: all that there is");
	refused(gpc_reserve(a, 0, 1, got, NULL, GPC_IN_HAND | GPC_PARTIAL, -1), EAGAIN,
		"then none, whatever the timeout");
	refused(gpc_reserve(c, 0, 1, got, NULL, GPC_IN_HAND, 0), EAGAIN,
		"a handle without a stock");
	must(gpc_writer_serve(c, 0));
	is_int(gpc_reserve(a, 0, STOCK, got, NULL, GPC_IN_HAND, 0), STOCK, "it is full again");
	gpc_close(a);
	cache_end(c);
}

/* The writer takes some of the stock back at the moment: the others are there. */
static void test_recalled(void)
{
	gpc *c = cache_new(0, STOCK + 4), *a = cache_attach(STOCK, 0);
	gpc_block got[STOCK], others[6];

	refused(gpc_reserve(a, 0, 1, got, NULL, GPC_IN_HAND, 0), EAGAIN, "recalled: no stock yet");
	must(gpc_writer_serve(c, 0));
	is_int(gpc_reserve(c, 0, 6, others, NULL, 0, 60000), 6,
	       "recalled: another peer takes two of the stock");
	refused(gpc_reserve(a, 0, STOCK - 1, got, NULL, GPC_IN_HAND, 0), EAGAIN,
		"recalled: more than are left: none");
	is_int(gpc_reserve(a, 0, STOCK, got, NULL, GPC_IN_HAND | GPC_PARTIAL, 0), STOCK - 2,
	       "recalled: GPC_PARTIAL: all that are left");
	must(gpc_release(a, got, STOCK - 2));
	must(gpc_release(c, others, 6));
	clean(c, "recalled");
	gpc_close(a);
	cache_end(c);
}

static void test_peek(void)
{
	gpc *c = cache_new(0, 64), *a = cache_attach(0, 0);
	gpc_block got[2], any[3] = { GPC_BLOCK(0, 0), GPC_BLOCK(0, 0), GPC_BLOCK(0, 0) }, live;
	struct gpc_claim told[3];
	gpc_key k[4];

	chain_keys(c, 1, 3, k);
	chain_make(c, 0, 1, 1, &live);
	is_int(gpc_claim(a, k + 1, any, 3, told, GPC_PEEK, 0), 2, "two keys that nobody has");
	ok(told[0].state == GPC_CLAIM_LIVE && told[0].block == live, "one is live");
	ok(told[1].state == GPC_CLAIM_MINE && told[1].block == GPC_NONE, "nobody computes another");
	is_int((int)stats_of(c, -1).claims, 0, "nothing is claimed");
	must(gpc_reserve(c, 0, 2, got, NULL, 0, -1));
	must(gpc_claim(c, k + 2, got, 2, told, 0, -1));
	is_int(gpc_claim(a, k + 1, any, 3, told, GPC_PEEK, 0), 0, "now somebody computes both");
	ok(told[1].state == GPC_CLAIM_PENDING && told[1].block == got[0] &&
		   told[1].peer == info_of(c).peer,
	   "who, and where");
	refused(gpc_claim_wait(a, &told[1], 1, 0), EAGAIN, "it can be waited for");
	is_int(gpc_claim(c, k + 1, any, 3, told, GPC_PEEK, 0), 2, "to that peer these are its own");
	must(gpc_claim_drop(c, got, 2, -1));
	must(gpc_claim(a, k + 1, any, 3, told, GPC_PEEK, 0));
	ok(told[1].state == GPC_CLAIM_MINE, "its claim ends: nobody computes it");
	refused(gpc_claim(a, k + 1, any, 3, told, 0, 0), EPERM,
		"a claim needs blocks of one's own");
	any[1] = GPC_BLOCK(9, 0);
	refused(gpc_claim(a, k + 1, any, 3, told, GPC_PEEK, 0), EINVAL, "a block of no pool");
	must(gpc_release(c, got, 2));
	gpc_close(a);
	cache_end(c);
}

/* Many claims at once: that a key is pending is told without the writer however many others are. */
static void test_peek_many(void)
{
	enum { MANY = 512 };
	gpc *c = cache_new(0, MANY + 64), *a = cache_attach(0, 0);
	gpc_block got[MANY], any[MANY];
	struct gpc_claim told[MANY];
	gpc_key k[MANY];
	int i, n = 0;

	for (i = 0; i < MANY; i++) {
		k[i] = (gpc_key){ { 0x100 + (uint64_t)i, 7 } };
		any[i] = GPC_BLOCK(0, 0);
	}
	must(gpc_reserve(c, 0, MANY, got, NULL, 0, -1));
	must(gpc_claim(c, k, got, MANY, told, 0, -1));
	is_int(gpc_claim(a, k, any, MANY, told, GPC_PEEK, 0), 0, "many: each is told");
	for (i = 0; i < MANY; i++)
		n += told[i].state == GPC_CLAIM_PENDING && told[i].block == got[i];
	is_int(n, MANY, "many: with its block");
	/* claims that have ended make room for others, of one hash */
	for (i = 0; i < 4; i++) {
		must(gpc_claim_drop(c, got, 3, -1));
		for (n = 0; n < 3; n++) {
			k[n].w[0] = 0x5500 + 16 * (uint64_t)i + (uint64_t)n;
			k[n].w[1] = k[n].w[0] ^ 7;
		}
		must(gpc_claim(c, k, got, 3, told, 0, -1));
		is_int(gpc_claim(a, k, any, 3, told, GPC_PEEK, 0), 0, "many: of one hash, %d", i);
	}
	must(gpc_release(c, got, MANY));
	gpc_close(a);
	cache_end(c);
}

static int body(void)
{
	test_stock();
	test_recalled();
	test_peek();
	test_peek_many();
	return done_testing();
}

int main(void)
{
	return tap_guard(50, body, NULL);
}
