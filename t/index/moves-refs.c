/* SPDX-License-Identifier: Apache-2.0 */
/* References while keys move (rule S3): a gate between finding a block and taking the reference,
 * and the moves come to their ends in it.
 *
 * The linker puts the gate in between: refs_take() is called through it.
 * Tests: lib/index/reader/take.c lib/index/writer/move.c */
#include "t/lib/cache.h"

#include "index/peer/handle.h"
#include "index/peer/refs.h"

enum { SPACES = 4, BLOCKS = 8 };

static gpc *c, *d; /* who moves, and writes; who reads */
static int pool[SPACES];

/* ---- the gate ---- */

static struct {
	void (*pass)(int n); /* before reference n is tried, from 0 on */
	int n;
} gate;

int __real_refs_take(gpc *h, uint32_t record, gpc_block block, const gpc_key *key,
		     struct ref_sum *sum);
int __wrap_refs_take(gpc *h, uint32_t record, gpc_block block, const gpc_key *key,
		     struct ref_sum *sum);
int __wrap_refs_take(gpc *h, uint32_t record, gpc_block block, const gpc_key *key,
		     struct ref_sum *sum)
{
	if (gate.pass && h == d)
		gate.pass(gate.n++);
	return __real_refs_take(h, record, block, key, sum);
}

static int acquire_at_gate(void (*pass)(int n), gpc_block *b)
{
	gpc_key k = key_of(d, 1);
	int got;

	gate.pass = pass;
	gate.n = 0;
	*b = GPC_NONE;
	got = gpc_acquire(d, 0, &k, 1, b, 0);
	gate.pass = NULL;
	return got;
}

/* ---- moves ---- */

static gpc_block now; /* where key 1 is; c holds it */

static void move_to(int to)
{
	struct gpc_move m;
	int n = to ? gpc_demote(c, GPC_POOL(now), pool[to], &now, 1, &m, 0, 0)
		   : gpc_promote(c, &now, 1, pool[0], &m, 0, 0);

	if (must(n) != 1 || must(gpc_commit(c, &m, 1, NULL, 0, -1)) != 1)
		bail("key 1 does not move");
	now = m.to;
}

static void begin(int nspaces)
{
	struct gpc_config cfg = cache_config(0, 0);
	int i;

	cfg.max_peers = 8;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	pool[0] = pool_new(c, GPC_VRAM, BLOCKS, 0, 0);
	for (i = 1; i < nspaces; i++)
		pool[i] = pool_new(c, nspaces == 2 ? GPC_RAM : GPC_VRAM, BLOCKS,
				   nspaces == 2 ? 0 : (uint32_t)i, 0);
	chain_hold(c, pool[0], 1, 1, &now);
}

static void end(const char *what)
{
	must(gpc_release(c, &now, 1));
	settle(c);
	clean(c, what);
	must(gpc_close(d));
	must(gpc_writer_serve(c, 50));
	cache_end(c);
}

/* ---- in one space: down and up again, a move each time the reader has found the key ---- */

static void moves_once_more(int n)
{
	move_to(n % 2 ? 0 : 1);
	must(gpc_writer_serve(c, 1));
}

static void test_one_space(void)
{
	gpc_block b, first;

	begin(2);
	first = now;
	is_int(acquire_at_gate(moves_once_more, &b), 1, "one space: it moves, and is found");
	is_int(b, first, "one space: where it was found");
	is_int(gate.n, 1, "one space: at the first try");
	is_int(gpc_release(d, &b, 1), 0, "one space: held");
	must(gpc_writer_serve(c, 1));
	end("one space");
}

/* ---- between spaces: two sources end, one after the other, each when it has been found ---- */

static gpc *older[2];
static int section[2];

static void source_ends(int n)
{
	if (n >= 2)
		return;
	gpc_section_leave(older[n], section[n]);
	must(gpc_writer_serve(c, 1));
}

static void test_three_spaces(void)
{
	gpc_block b;
	int i;

	begin(3);
	for (i = 0; i < 2; i++) { /* of the second one's grace period the first knows nothing */
		older[i] = cache_attach(0, 0);
		section[i] = must(gpc_section_enter(older[i]));
		move_to(i + 1);
		must(gpc_writer_serve(c, 1));
	}
	is_int(find(c, 1), GPC_BLOCK(pool[0], 0), "three spaces: it is in all of them");
	is_int(acquire_at_gate(source_ends, &b), 1, "three spaces: it is found in the last");
	is_int(b, now, "three spaces: where it went");
	is_int(gate.n, 3, "three spaces: at the third try");
	must(gpc_release(d, &b, 1));
	for (i = 0; i < 2; i++)
		must(gpc_close(older[i]));
	must(gpc_writer_serve(c, 50));
	end("three spaces");
}

/* ---- however often it goes and comes, a lookup ends (guarantee B) ---- */

static void comes_anew(int n)
{
	if (n > 100)
		bail("a lookup without an end");
	must(gpc_release(c, &now, 1));
	must(gpc_drop(c, &now, 1, NULL, 0, -1));
	chain_hold(c, pool[n % SPACES], 1, 1, &now);
}

static void test_bounded(void)
{
	gpc_block b;

	begin(SPACES);
	is_int(acquire_at_gate(comes_anew, &b), 0, "dropped again and again: not found");
	ok(gate.n >= 2 && gate.n <= 1 + SPACES, "in %d tries: one, and one in each space", gate.n);
	must(gpc_writer_serve(c, 1));
	end("dropped again and again");
}

static int body(void)
{
	cache_thread = false;
	test_one_space();
	test_three_spaces();
	test_bounded();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
