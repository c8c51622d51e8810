/* SPDX-License-Identifier: Apache-2.0 */
/* For how long a peer has had references: from the first look of the writer that finds some to the first
 * one that finds none, over a change of writers; a time that is yet to come is none.
 * Tests: lib/index/table/holders.c lib/look/stats.c */
#include "config.h"

#include "index/peer/handle.h"
#include "t/lib/cache.h"

static gpc *writer, *c;

static uint64_t held(int peer)
{
	struct gpc_stats st = { .size = sizeof(st) };

	must(gpc_stats_get(writer, peer, &st));
	return st.refs_ns;
}

/* The writer serves until a look has found some. */
static uint64_t serve_until_held(void)
{
	uint64_t ns;

	do
		must(gpc_writer_serve(writer, 20));
	while (!(ns = held((int)c->peer)));
	return ns;
}

static int body(void)
{
	gpc_block b[3];
	uint64_t first, later, taken;
	struct shm_seat *seat;
	gpc_key k;
	int i;

	writer = cache_new(8, 0);
	chain_make(writer, 0, 1, 3, b);
	c = cache_attach(0, 0);
	seat = seg_seat(&c->seg, c->peer);
	must(gpc_writer_serve(writer, 300));
	is_int((long)held((int)c->peer), 0, "a peer without references");
	k = key_of(c, 1);
	taken = clock_ns();
	must(gpc_lookup(c, 0, &k, 1, b, GPC_REF));
	first = serve_until_held();
	ok(first <= clock_ns() - taken, "not older than it is: %llu ns", (unsigned long long)first);
	for (i = 0; i < 15; i++)
		must(gpc_writer_serve(writer, 20));
	later = held((int)c->peer);
	ok(later > first, "and it grows: %llu ns", (unsigned long long)later);
	is_int(held(-1) >= later, 1, "a sum has the longest");
	is_int((long)held((int)writer->peer), 0, "who has none has no time");

	must(gpc_writer_drop(writer));
	must(gpc_writer_take(writer, 0, 0));
	for (i = 0; i < 15; i++)
		must(gpc_writer_serve(writer, 20));
	ok(held((int)c->peer) > later, "the next writer goes on from there");

	store_relaxed(&seat->refs_since_ns, clock_ns() + 3600000 * NS_PER_MS);
	is_int((long)held((int)c->peer), 0, "a time that is yet to come is none");
	serve_until_held();
	ok(seat->refs_since_ns <= clock_ns(), "and the next look begins anew");

	must(gpc_release(c, b, 1));
	while (load_relaxed(&seat->refs_since_ns))
		must(gpc_writer_serve(writer, 20));
	is_int((long)held((int)c->peer), 0, "when the last one is released it ends");
	must(gpc_close(c));
	cache_end(writer);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
