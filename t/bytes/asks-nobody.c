/* SPDX-License-Identifier: Apache-2.0 */
/* "In the thread of a scheduler" of gpc_engine(7): while the writer is busy for ever, the calls which ask nobody do their work,
 * and send nothing; a publish with timeout 0 only sends; calls that ask end in EAGAIN.  Answers arrive with gpc_returned.
 * Tests: lib/index/request/stock.c lib/index/request/returned.c lib/index/claim/claim_wait.c
 *   lib/bytes/payload/fetch.c man/gpc_engine.7 */
#include "t/lib/fetch.h"

#include "gpc_tiers.h"

enum { STOCK = 16, CHAIN = 4, OWN = 40, NEW = 100, PLAIN = 1000 };

static gpc *c, *d; /* the writer; the engine */
static int vram, own;
static gpc_block block[CHAIN], spare[CHAIN];
static gpc_ticket sent;

/* The stocks of both pools are full, and half of a stock may go before it is filled again. */
static void begin(void)
{
	gpc_block b[OWN];
	gpc_key keys[OWN + 1];
	int i;

	cache_thread = false;
	c = bytes_cache();
	d = cache_attach(STOCK, 0);
	serve_begin(c);
	vram = bytes_vram(d, 64, 0, -1, 0);
	own = pool_new(d, GPC_VRAM, OWN, 1, GPC_POOL_CALLER);
	bytes_chain(d, vram, 1, CHAIN, block, true);
	chain_keys(d, PLAIN, OWN, keys);
	for (i = 0; i < OWN; i++)
		b[i] = GPC_BLOCK(own, i);
	is_int(gpc_publish(d, keys, keys + 1, b, OWN, NULL, GPC_NO_REF, -1), OWN,
	       "own blocks are cached");
	is_int(gpc_evict(d, own, 1, b, 0, -1), 1, "and one of them comes back");
	is_int(gpc_reserve(d, vram, 1, spare, NULL, 0, -1), 1, "a block, and a stock");
	done(d);
	serve_end();
	sent = gpc_ticket_last(d);
}

static void quiet(const char *call)
{
	ok(gpc_ticket_last(d) == sent, "%s asks nobody", call);
}

static void test_finding(const gpc_key *keys)
{
	const uint32_t start[] = { 0, CHAIN };
	gpc_block b[CHAIN];
	uint32_t len;

	is_int(gpc_match(d, 0, keys, start, 1, &len, NULL, GPC_QUIET), CHAIN, "gpc_match");
	is_int(gpc_acquire(d, 0, keys, CHAIN, b, 0), CHAIN, "gpc_acquire");
	is_int(gpc_ref(d, keys, b, CHAIN), CHAIN, "gpc_ref");
	must(gpc_release(d, b, CHAIN));
	must(gpc_release(d, b, CHAIN));
	ok(gpc_pool_available(d, vram) > 0, "gpc_pool_available");
	is_int(gpc_fetch(d, vram, keys, CHAIN, b, NULL, 0, NULL, 0, NULL), CHAIN,
	       "gpc_fetch of blocks that are there");
	must(gpc_release(d, b, CHAIN));
	is_int(gpc_prefetch(d, vram, keys, CHAIN, 0, 0), CHAIN, "gpc_prefetch");
	quiet("finding");
}

static void test_room(void)
{
	gpc_block b[STOCK];

	is_int(gpc_reserve(d, vram, CHAIN - 1, spare + 1, NULL, GPC_IN_HAND, 0), CHAIN - 1,
	       "gpc_reserve out of the stock");
	is_int(gpc_evict(d, own, 4, b, 0, 0), 4, "gpc_evict out of the stock");
	is_int(gpc_returned(d, own, b, STOCK, 0), 0, "gpc_returned");
	quiet("room in hand");
}

static void test_claims(const gpc_key *keys)
{
	gpc_key wanted[1] = { key_of(d, NEW) };
	struct gpc_claim claim = { 0 };

	is_int(gpc_claim(d, wanted, spare, 1, &claim, GPC_PEEK, 0), 1, "gpc_claim with GPC_PEEK");
	claim = (struct gpc_claim){ .key = keys[0], .state = GPC_CLAIM_LIVE, .block = block[0] };
	is_int(gpc_claim_wait(d, &claim, 1, 0), 0, "gpc_claim_wait with timeout 0");
	quiet("a look at claims");
}

static void test_asking(void)
{
	gpc_block b[STOCK], res[CHAIN];
	gpc_ticket ticket = 0;
	gpc_key keys[CHAIN + 1];
	int i;

	for (i = 0; i < CHAIN; i++)
		res[i] = GPC_NONE;
	chain_keys(d, NEW, CHAIN, keys);
	is_int(gpc_publish(d, keys, keys + 1, spare, CHAIN,
			   GPC_OPTIONS(gpc_publish_options, .resident = res, .ticket = &ticket), 0,
			   0),
	       0, "gpc_publish with timeout 0");
	ok(ticket > sent && ticket == gpc_ticket_last(d), "it sends its blocks");
	refused(gpc_ticket_wait(d, ticket, 0), EAGAIN, "which have no answer yet");
	refused(gpc_reserve(d, vram, STOCK, b, NULL, GPC_IN_HAND, 0), EAGAIN,
		"the stock has too few blocks");
	refused(gpc_reserve(d, vram, STOCK + 1, b, NULL, 0, 0), EAGAIN,
		"so has the writer, for now");
	serve_begin(c);
	while (res[CHAIN - 1] == GPC_NONE)
		must(gpc_returned(d, own, b, STOCK, 0));
	is_int(res[0], spare[0], "gpc_returned takes the answers");
	is_int(gpc_ticket_wait(d, ticket, 0), 0, "and then the ticket is over");
	done(d);
	serve_end();
}

static int body(void)
{
	gpc_key keys[CHAIN + 1];

	begin();
	chain_keys(d, 1, CHAIN, keys);
	test_finding(keys + 1);
	test_room();
	test_claims(keys + 1);
	test_asking();
	must(gpc_release(d, spare, CHAIN));
	must(gpc_release(d, block, CHAIN));
	must(gpc_close(d));
	must(gpc_writer_serve(c, 50));
	clean(c, "a scheduler");
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
