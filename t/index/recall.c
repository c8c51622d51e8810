/* SPDX-License-Identifier: Apache-2.0 */
/* A writer dies before each of its stores while it fills a stock, and while it takes one back: its
 * successor finds every block with its owner, or free.
 * Tests: lib/index/writer/recall.c lib/index/request/stock.c */
#include "config.h"

#include "t/lib/cache.h"

#include <sys/wait.h>

#include "index/request/request.h"
#include "index/segment/blocks.h"
#include "index/peer/hold.h"
#include "t/lib/serve_stops.h"

#define BLOCKS 6
#define STORES 1000 /* more than any of it has */

static gpc *c, *d;    /* who asks for blocks; a peer with a stock of four */
static gpc_block own; /* of the peer's program */
static struct {
	gpc_block b[BLOCKS];
	int n;
} got;

static void take_answer(gpc *handle, struct op *op)
{
	struct ref_sum sum = { 0 };
	int i;

	got.n = op->group ? ring_entry(handle, op, 0)->result : 0;
	for (i = 0; i < got.n; i++)
		request_own(handle, got.b[i] = ring_entry(handle, op, (uint32_t)i)->block, &sum);
	refs_account(handle, &sum);
}

/* A command of c, which does not wait for it. */
static void submit(struct shm_command cmd)
{
	struct shm_command cmds[BLOCKS] = { cmd };
	struct op *op = ring_op(cmd.count, 0);

	if (!op)
		bail("no memory");
	op->group = cmd.op == CMD_RESERVE;
	op->take = take_answer;
	must(ring_submit(c, op, cmds));
}

/* The stock is there, or only asked for. */
static void begin(bool filled)
{
	gpc_block b;

	c = cache_new(BLOCKS, 0);
	d = cache_attach(4, 0);
	serve_begin(c);
	must(gpc_reserve(d, 0, 1, &own,
			 GPC_OPTIONS(gpc_reserve_options, .headroom = filled ? 0 : BLOCKS - 1), 0,
			 1000));
	done(d);
	serve_end();
	must(gpc_writer_drop(c));
	if (!filled && gpc_reserve(d, 0, 1, &b, NULL, 0, 0) != -ENOTCONN)
		bail("there is a writer");
}

static bool is_found(const char *what, uint64_t store, int n, int want)
{
	if (n != want)
		diag("store %d: %s: %d instead of %d", (int)store, what, n, want);
	return n == want;
}

/* A successor has come, and all commands are answered. */
static bool comes_right(uint64_t store, bool removed)
{
	gpc_block b[BLOCKS];
	bool good;
	int n, i;

	serve_begin(c);
	must(gpc_ticket_wait(c, 0, 60000));
	done(c);
	done(d);
	good = is_found("lines of gpc_check", store, gpc_check(c, cache_line, NULL), 0);
	must(gpc_release(c, got.b, (uint32_t)MAX(got.n, 0)));
	done(c);
	if (!removed) {
		n = gpc_reserve(c, 0, BLOCKS - 1, b, NULL, 0, 1000);
		good &= is_found("blocks", store, n, BLOCKS - 1);
		for (i = 0; i < n; i++)
			good &= b[i] != own;
		must(gpc_release(c, b, (uint32_t)MAX(n, 0)));
		done(c);
	}
	good &= is_found("reserved", store, (int)stats_of(c, -1).reserved, 1);
	good &= is_found("lines of gpc_check", store, gpc_check(c, cache_line, NULL), 0);
	must(gpc_release(d, &own, 1));
	done(d);
	serve_end();
	return good;
}

static void each_store(const char *what, bool filled, struct shm_command cmd)
{
	bool died = true, good = true;
	uint64_t n;

	for (n = 1; n < STORES && died && good; n++) {
		begin(filled);
		got.n = 0;
		if (cmd.op)
			submit(cmd);
		died = writer_dies(n);
		must(gpc_writer_take(c, 0, 0));
		good = comes_right(n, cmd.op == CMD_CLEAR);
		must(gpc_close(d));
		must(gpc_writer_serve(c, 5));
		cache_end(c);
	}
	ok(good, "%s: dead before each of %d stores", what, (int)n - 2);
	ok(!good || !died, "which are all");
}

static int body(void)
{
	cache_thread = false;
	each_store("a stock is filled", false, (struct shm_command){ 0 });
	each_store("a reserve takes it back", true,
		   (struct shm_command){ .op = CMD_RESERVE, .count = BLOCKS - 1 });
	each_store("its pool goes", true,
		   (struct shm_command){ .op = CMD_CLEAR, .count = 1, .flags = CF_REMOVE });
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
