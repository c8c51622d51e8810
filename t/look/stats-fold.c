/* SPDX-License-Identifier: Apache-2.0 */
/* A seat is given up while a reader adds up the statistics of all: each count is in the sum once.
 * Tests: lib/look/stats.c lib/look/fold.h lib/look/meter.c */
#include "t/lib/cache.h"

#include "index/peer/handle.h"
#include "index/segment/lockfile.h"
#include "index/segment/peek.h"

enum { LOOKUPS = 5 };

static gpc *c;            /* the writer */
static uint32_t at, gone; /* when the reader asks for seat `at`, seat `gone` is given up */

bool __real_segment_peer_alive(const struct segment *s, uint32_t peer);
bool __wrap_segment_peer_alive(const struct segment *s, uint32_t peer);
bool __wrap_segment_peer_alive(const struct segment *s, uint32_t peer)
{
	if (at && peer == at) {
		at = 0;
		while (seg_peek_seat_state(s, gone) != SEAT_FREE)
			must(gpc_writer_serve(c, 1));
	}
	return __real_segment_peer_alive(s, peer);
}

static void look(gpc *d)
{
	gpc_key key[2];
	gpc_block b;
	int i;

	chain_keys(d, 1, 1, key);
	for (i = 0; i < LOOKUPS; i++)
		must(gpc_acquire(d, 0, key + 1, 1, &b, 0));
}

static struct gpc_stats stats(void)
{
	struct gpc_stats s = { .size = sizeof(s) };

	must(gpc_stats_get(c, -1, &s));
	return s;
}

static void test(bool before)
{
	struct gpc_stats s;
	gpc *d, *e;

	c = cache_new(8, 0);
	d = cache_attach(0, 0);
	e = cache_attach(0, 0);
	look(d);
	look(e);
	is_int(stats().lookups, 2 * LOOKUPS, "lookups of two peers");
	gone = before ? e->peer : d->peer;
	must(gpc_close(before ? e : d));
	at = before ? d->peer : e->peer;
	s = stats();
	is_int(at, 0, "a seat %s the other one is given up meanwhile",
	       before ? "behind" : "before");
	is_int(s.lookups, 2 * LOOKUPS, "each of its lookups counts once");
	is_int(s.miss, 2 * LOOKUPS, "so does each miss");
	must(gpc_close(before ? d : e));
	cache_end(c);
}

static int body(void)
{
	test(true);
	test(false);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
