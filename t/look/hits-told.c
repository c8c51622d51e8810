/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_hits_add: what engines tell of their hits adds up, for each peer and in the sums, and outlives
 * the peer.
 * Tests: lib/look/stats.c lib/index/writer/reap.c lib/index/segment/shm_meter.h */
#include "t/lib/cache.h"

static void is_told(gpc *c, int peer, uint64_t own, uint64_t disk, uint64_t store, const char *what)
{
	struct gpc_stats st = stats_of(c, peer);

	ok(st.hit_own == own && st.hit_disk == disk && st.hit_store == store, "%s", what);
}

static int body(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	gpc *c = cache_new(0, 16), *other = cache_attach(0, 0), *look;
	int me = info_of(c).peer, they = info_of(other).peer;
	struct gpc_stats was = stats_of(c, -1), now = { .size = sizeof(now) };

	is_told(c, -1, 0, 0, 0, "nobody has told anything");
	is_int(gpc_hits_add(c, 3, 0, 7), 0, "one peer tells");
	is_int(gpc_hits_add(other, 10, 20, 30), 0, "and another one");
	is_int(gpc_hits_add(c, 0, 1, 0), 0, "and the first one again");
	is_told(c, me, 3, 1, 7, "each has its own");
	is_told(other, they, 10, 20, 30, "from wherever one looks");
	is_told(c, -1, 13, 21, 37, "and the sums have both");
	now = stats_of(c, -1);
	ok(now.lookups == was.lookups && now.hit_ram == was.hit_ram && now.miss == was.miss,
	   "none of it is a lookup");
	must(gpc_close(other));
	while (gpc_stats_get(c, they, &now) == 0)
		must(gpc_writer_serve(c, 1));
	is_told(c, -1, 13, 21, 37, "a peer that has left stays in the sums");
	must(gpc_attach(cache_name, &opt, GPC_READONLY, &look));
	refused(gpc_hits_add(look, 1, 1, 1), EROFS, "a read-only handle tells nothing");
	must(gpc_close(look));
	cache_end(c);
	return done_testing();
}

int main(void)
{
	return tap_guard(50, body, NULL);
}
