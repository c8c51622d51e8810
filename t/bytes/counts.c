/* SPDX-License-Identifier: Apache-2.0 */
/* A count that was negative, as an errno is, and so is more than two thousand million: each call that
 * takes a count refuses it with a sentence, reads no list, and changes nothing.
 * Tests: lib/index/base/err.c lib/index/request/release.c lib/index/request/reserve.c */
#include "t/lib/cache.h"

#include "gpc_look.h"
#include "gpc_tiers.h"
#include "index/base/order.h"
#include "index/peer/handle.h"

#define MANY ((uint32_t)-22)

static gpc_key key[8];
static gpc_block block[8];

static void says(int got, const char *name)
{
	if (!ok(got == -EINVAL && strstr(gpc_last_error(), "n is 4294967274"), "%s", name))
		diag("%d, %s", got, gpc_last_error());
}

static void test_index(gpc *c)
{
	struct gpc_field field[8] = { { 0 } };
	struct gpc_group group = { .keys = key, .n = MANY };
	struct gpc_entry entry[8];
	struct gpc_event event[8];
	struct gpc_claim claim[8];
	struct gpc_slow slow[8];
	struct gpc_move move[8];
	uint32_t tokens[8];
	uint64_t cursor = 0;
	int results[8];
	gpc_key root;

	says(gpc_key_root(c, field, MANY, &root), "gpc_key_root");
	says(gpc_key_import(c, tokens, 8, 8, MANY, 0, key), "gpc_key_import");
	says(gpc_alias(c, key, key, MANY, 0, 0), "gpc_alias");
	says(gpc_alias_resolve(c, key, MANY), "gpc_alias_resolve");
	says(gpc_lookup(c, 0, key, MANY, block, 0), "gpc_lookup");
	ok(gpc_match_groups(c, 0, &group, 1, NULL, 0) == -EINVAL, "gpc_match_groups: %s",
	   gpc_last_error());
	says(gpc_acquire(c, 0, key, MANY, block, 0), "gpc_acquire");
	says(gpc_ref(c, key, block, MANY), "gpc_ref");
	says(gpc_release(c, block, MANY), "gpc_release");
	says(gpc_reserve(c, 0, MANY, block, NULL, GPC_PARTIAL, 0), "gpc_reserve");
	says(gpc_reserve(c, 0, MANY, block, NULL, 0, 0), "gpc_reserve of all or none");
	says(gpc_publish(c, key, key, block, MANY, NULL, 0, 0), "gpc_publish");
	says(gpc_evict(c, 0, MANY, block, 0, 0), "gpc_evict");
	says(gpc_reclaim(c, key, block, MANY, results, 0, 0), "gpc_reclaim");
	says(gpc_rekey(c, key, key, key, block, MANY, NULL, 0, 0), "gpc_rekey");
	says(gpc_returned(c, -1, block, MANY, 0), "gpc_returned");
	says(gpc_drop(c, block, MANY, NULL, 0, 1000), "gpc_drop");
	says(gpc_dropped(c, gpc_drops(c), key, MANY), "gpc_dropped");
	says(gpc_demote(c, 0, 1, block, MANY, move, 0, 0), "gpc_demote");
	says(gpc_promote(c, block, MANY, 0, move, 0, 0), "gpc_promote");
	says(gpc_commit(c, move, MANY, results, 0, 0), "gpc_commit");
	says(gpc_claim(c, key, block, MANY, claim, 0, 0), "gpc_claim");
	says(gpc_claim_wait(c, claim, MANY, 0), "gpc_claim_wait");
	says(gpc_claim_drop(c, block, MANY, 0), "gpc_claim_drop");
	says(gpc_walk(c, &cursor, entry, MANY), "gpc_walk");
	says(gpc_tokens_get(c, key, 0, tokens, MANY), "gpc_tokens_get");
	says(gpc_root_keep(c, field, MANY, &root, 0, 0), "gpc_root_keep");
	says(gpc_root_get(c, key, field, MANY, tokens, sizeof(tokens)), "gpc_root_get");
	says(gpc_event_read(c, &cursor, event, MANY), "gpc_event_read");
	says(gpc_slow_walk(c, &cursor, slow, MANY), "gpc_slow_walk");
	says(gpc_claim_walk(c, &cursor, claim, MANY), "gpc_claim_walk");
	says(gpc_prefetch(c, 1, key, MANY, 0, 0), "gpc_prefetch");
}

static void test_bytes(gpc *c)
{
	struct gpc_sum sum[8] = { { 0 } };
	struct gpc_move move[8] = { { 0 } };
	struct gpc_run run[8];
	gpc_transfer t;
	int results[8];

	says(gpc_copy(c, move, MANY, 0, NULL, &t), "gpc_copy");
	says(gpc_fetch(c, 1, key, MANY, block, NULL, 0, NULL, 0, &t), "gpc_fetch");
	says(gpc_spill(c, 0, 1, block, MANY, NULL, 0, NULL, 0, &t), "gpc_spill");
	says(gpc_release_after(c, block, MANY, NULL), "gpc_release_after");
	says(gpc_transfer_results(c, 1, results, MANY), "gpc_transfer_results");
	says(gpc_seal(c, block, key, MANY, 0, sum), "gpc_seal");
	says(gpc_sealed(c, block, key, MANY, 0, sum), "gpc_sealed");
	says(gpc_pool_memory_get(c, 1, NULL, run, MANY), "gpc_pool_memory_get");
}

static int body(void)
{
	struct gpc_config cfg = cache_config(16, 0);
	struct gpc_pool ram = pool_of(GPC_RAM, 16, 0);
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = 4096 };
	uint64_t tick;
	gpc *c;

	cfg.max_blocks = 256;
	cfg.keep_tokens = cfg.keep_digests = 1;
	c = cache_make(&cfg, NULL);
	must(gpc_pool_make(c, &ram, &m, -1));
	must(gpc_reserve(c, 0, 8, block, NULL, 0, -1));
	tick = load_relaxed(&seg_shared(&c->seg)->tick);
	test_index(c);
	test_bytes(c);
	is_int((long long)(load_relaxed(&seg_shared(&c->seg)->tick) - tick < 1u << 20), 1,
	       "no call moves the clock of uses");
	is_int(gpc_release(c, block, 8), 0, "what was reserved is still ours");
	must(gpc_ticket_wait(c, GPC_TICKET_ALL, -1));
	is_int(gpc_pool_available(c, 0), 16, "and back");
	is_int(gpc_check(c, NULL, NULL), 0, "gpc_check");
	must(gpc_close(c));
	return done_testing();
}

static void clean_all(void)
{
	cache_dir_remove();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, clean_all);
}
