/* SPDX-License-Identifier: Apache-2.0 */
/* When the writer decides a transfer: before commands that its peer sent after done; as often as
 * its age says; when there is a bucket.
 * Tests: lib/index/writer/transfer.c lib/index/writer/loop.c */
#include <unistd.h>

#include "t/lib/xfers.h"

#include "kernels/probe.h"

enum { VRAM, RAM, OTHER }; /* pools: OTHER is VRAM of a space of its own */

static gpc *p, *q; /* peers */

static void begin(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_pool ram = pool_of(GPC_RAM, 16, 0);

	cfg.max_blocks = 80;
	cfg.max_peers = 8;
	ram.transit = 2;
	c = cache_make(&cfg, NULL);
	p = cache_attach(0, 0);
	q = cache_attach(0, 0);
	pool_new(c, GPC_VRAM, 16, 0, 0);
	must(gpc_pool_make(c, &ram, NULL, -1));
	pool_new(c, GPC_VRAM, 16, 1, GPC_POOL_UNCHAINED);
}

static void end(const char *what)
{
	ok(is_quiet(), "%s: nothing is left", what);
	clean(c, what);
	must(gpc_close(q));
	must(gpc_close(p));
	cache_end(c);
}

/* A chain of numbers 1 .. n in a pool, on which a handle has references. */
static void hold(gpc *holder, uint32_t n, gpc_block *b)
{
	gpc_key keys[CACHE_KEYS + 1];

	chain_keys(holder, 1, n, keys);
	if (must(gpc_acquire(holder, 0, keys + 1, n, b, 0)) != (int)n)
		bail("no chain");
}

static void chain(gpc *holder, int pool, uint32_t n, gpc_block *b)
{
	chain_make(c, pool, 1, n, b);
	hold(holder, n, b);
}

/* A block that is reserved by hand: no cell has it. */
static gpc_block reserve(int pool)
{
	uint64_t at = xfers_seat(p)->head;

	if (run1(p, (struct shm_command){ .op = CMD_RESERVE, .pool = (uint8_t)pool }) != 1)
		bail("no block");
	return seg_command(&p->seg, p->peer, at)->block;
}

/* The peer saw done, and publishes a child below what it has fetched: in one pass of the writer,
 * which has looked at that transfer a moment ago, and whose bell does not ring yet. */
static void test_child_of_fetched(void)
{
	enum { N = 12 };
	gpc_block b[N], child[N];
	struct xfer x[N];
	uint32_t i, good = 0;
	int chained;

	begin();
	chained = pool_new(c, GPC_VRAM, 2 * N, 2, 0);
	chain(p, RAM, N, b);
	for (i = 0; i < N; i++) {
		child[i] = reserve(chained);
		x[i] = xfer(p, i, i + 1);
		if (fetch(&x[i], chained, b + i, 1) != 1)
			bail("not bound");
	}
	usleep(15000); /* from here on it looks each 1 ms */
	for (i = 0; i < N; i++) {
		struct shm_command cmd = { .op = CMD_PUBLISH, .block = child[i] };
		gpc_key parent = key_of(c, i + 1), own = key_of(c, 1000 + i);
		uint64_t at;

		memcpy(cmd.publish.parent, parent.w, sizeof(cmd.publish.parent));
		memcpy(cmd.publish.key, own.w, sizeof(cmd.publish.key));
		must(gpc_writer_serve(c, 0));
		xfer_done(&x[i]);
		at = put(p, &cmd, 1);
		store_relaxed(&seg_shared(&p->seg)->pending[p->peer >> 6], 0);
		good += answer(p, at) == child[i];
		take_answers(p);
	}
	is_int(good, N, "children of what has been fetched by then");
	must(gpc_release(p, b, N));
	end("children of fetched blocks");
}

/* An old one is looked at each 20 ms, and when its peer rings. */
static void test_old(void)
{
	enum { N = 6 };
	gpc_block b[N];
	struct xfer x[N];
	uint32_t i, late = 0, rung = 0;

	begin();
	chain(p, RAM, N, b);
	for (i = 0; i < N; i++) {
		x[i] = xfer(p, i, i + 1);
		if (fetch(&x[i], VRAM, b + i, 1) != 1)
			bail("not bound");
	}
	usleep(1100000);
	for (i = 0; i < N - 1; i++) {
		must(gpc_writer_serve(c, 0));
		xfer_done(&x[i]);
		must(gpc_writer_serve(c, 0));
		late += !is_over(&x[i]);
		order_or64(&seg_shared(&p->seg)->pending[p->peer >> 6], 1ull << (p->peer & 63));
		must(gpc_writer_serve(c, 0));
		rung += is_over(&x[i]);
	}
	ok(late > 0, "%u of %d that are done are not looked at again at once", late, N - 1);
	is_int(rung, N - 1, "all are when their peer rings");
	xfer_done(&x[i]);
	ok(ends(&x[i]), "and without, a little later");
	must(gpc_release(p, b, N));
	end("old ones");
}

/* One that is under way holds up no ring (rule B18): all positions are used again, and more than
 * once. */
static void test_ring(void)
{
	gpc_block b[1];
	struct xfer x;
	uint32_t i, n = 0;

	begin();
	chain(p, RAM, 1, b);
	x = xfer(p, 0, 1);
	is_int(fetch(&x, VRAM, b, 1), 1, "one is on its way");
	is_int((long long)xfers_seat(p)->tail, (long long)xfers_seat(p)->head,
	       "and has left the ring");
	for (i = 0; i < 2 * SHM_RING + 7; i++)
		n += run1(p, (struct shm_command){ .op = CMD_NOP }) == 0;
	is_int(n, 2 * SHM_RING + 7, "its peer goes twice around the ring");
	is_int(xfers_of(p, 0)->left, 1, "it is on its way still");
	xfer_done(&x);
	ok(ends(&x), "and comes to its end");
	is_int(find(c, 1), x.to[0], "where it was to be");
	must(gpc_release(p, b, 1));
	end("the ring");
}

/* The source is dropped, and its key computed anew, in the same block if the writer gives that
 * away: neither its pin nor its word lets the old copy pass for the new one (rule B10). */
static void test_reborn(bool dies)
{
	gpc_block b[1], all[18], own;
	gpc_key k = { { 0 } };
	struct xfer x;
	int i, n;

	begin();
	chain(p, RAM, 1, b);
	k = key_of(c, 1);
	x = xfer(p, 0, 1);
	is_int(fetch(&x, VRAM, b, 1), 1, "one is on its way");
	must(gpc_release(p, b, 1));
	must(gpc_drop(c, b, 1, NULL, 0, -1));
	serve_some();
	n = must(gpc_reserve(c, RAM, 16, all, NULL, GPC_PARTIAL, 100));
	own = all[0];
	for (i = 0; i < n; i++)
		if (all[i] == b[0])
			own = all[i];
	must(gpc_publish(c, NULL, &k, &own, 1, NULL, 0, -1));
	for (i = 0; i < n; i++)
		if (all[i] != own)
			must(gpc_release(c, &all[i], 1));
	must(gpc_release(c, &own, 1));
	done(c);
	if (dies) {
		must(gpc_writer_drop(c));
		must(gpc_writer_take(c, 0, 0));
		serve_some();
	}
	xfer_done(&x);
	ok(ends(&x), "done");
	is_int(xfers_of(p, 0)->refused, 1, "it is refused");
	is_int(find(c, 1), own, "the key is what was published last");
	end("a source of another life");
}

/* A key of the buckets 5 and 9, of which there are 32: eight of them have a place. */
static gpc_key crowded(uint64_t *n)
{
	struct probe_key k;
	gpc_key key;

	do {
		key = key_of(c, ++*n);
		k = probe_prepare(key.w[0], key.w[1], 32);
	} while ((k.first != 5 && k.first != 9) || (k.second != 5 && k.second != 9));
	return key;
}

/* The same, and in space 1 there is a place for it. */
static gpc_key crowded_here(uint64_t *n)
{
	struct probe_key k;
	gpc_key key;

	do {
		key = crowded(n);
		k = probe_masked(key.w, c->mask[1].w, 32);
	} while (k.first == 5 || k.first == 9);
	return key;
}

/* The target's key waits for a bucket, and with it a child that is published below it. */
static void test_bucket(bool dies)
{
	struct gpc_config cfg = cache_config(48, 0);
	gpc_key key[9], own = { { 4711, 4711 } };
	struct shm_command cmd = { .op = CMD_PUBLISH };
	gpc_block b[8], source;
	uint64_t n = 0, at;
	struct xfer x;
	int i, far, section;

	cfg.max_blocks = 64;
	c = cache_make(&cfg, NULL);
	p = cache_attach(0, 0);
	q = cache_attach(0, 0);
	if (info_of(c).buckets != 32)
		bail("the table has %u buckets", (unsigned)info_of(c).buckets);
	far = pool_new(c, GPC_VRAM, 4, 1, 0);
	for (i = 0; i < 8; i++)
		key[i] = crowded(&n);
	key[8] = crowded_here(&n);
	must(gpc_reserve(c, 0, 8, b, NULL, 0, 60000));
	is_int(must(gpc_publish(c, NULL, key, b, 8, NULL, 0, -1)), 8, "two buckets are full");
	must(gpc_release(c, b, 8));
	must(gpc_reserve(c, far, 1, &source, NULL, 0, 60000));
	is_int(must(gpc_publish(c, NULL, key + 8, &source, 1, NULL, 0, -1)), 1,
	       "a ninth key is elsewhere");
	must(gpc_release(c, &source, 1));
	must(gpc_acquire(p, GPC_SPACE(1), key + 8, 1, &source, 0));
	x = xfer(p, 0, 1);
	is_int(fetch(&x, 0, &source, 1), 1, "and is fetched");
	cmd.block = reserve(0);
	section = must(gpc_section_enter(q));
	must(gpc_drop(c, b, 1, NULL, 0, -1));
	xfer_done(&x);
	serve_some();
	ok(!is_over(&x), "it is done, and waits for a place that somebody still looks at");
	memcpy(cmd.publish.parent, key[8].w, sizeof(cmd.publish.parent));
	memcpy(cmd.publish.key, own.w, sizeof(cmd.publish.key));
	at = put(p, &cmd, 1);
	serve_some();
	ok(!is_answered(p, at), "and so does a child");
	if (dies) {
		must(gpc_writer_drop(c));
		must(gpc_writer_take(c, 0, 0));
		serve_some();
		ok(!is_over(&x) || is_answered(p, at), "with a successor, too");
	}
	must(gpc_section_leave(q, section));
	ok(ends(&x), "then it is committed");
	is_int(xfers_of(p, 0)->refused, 0, "not refused");
	is_int(answer(p, at), cmd.block, "and the child is published");
	take_answers(p);
	must(gpc_release(p, &source, 1));
	end("a bucket");
}

/* CUT of all that the last free block was bound for. */
static void test_cut_all(void)
{
	gpc_block b[1], all[16];
	struct xfer x;

	begin();
	chain(p, RAM, 1, b);
	must(gpc_reserve(c, VRAM, 16, all, NULL, 0, 60000));
	must(gpc_release(c, all + 15, 1));
	done(c);
	x = xfer(p, 0, 1);
	is_int(fetch(&x, VRAM, b, 1), 1, "the last block");
	is_int(xfer_cut(&(struct xfer){ .p = p, .slot = 1, .value = 1 }, 0), -EINVAL,
	       "no such transfer");
	is_int(xfer_cut(&x, 0), 0, "cut");
	ok(is_over(&x), "and over");
	must(gpc_release(c, all, 15));
	must(gpc_release(p, b, 1));
	done(c);
	end("cut");
}

static int body(void)
{
	test_child_of_fetched();
	test_old();
	test_ring();
	test_reborn(false);
	test_reborn(true);
	test_bucket(false);
	test_bucket(true);
	test_cut_all();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(20, body, cache_dir_remove);
}
