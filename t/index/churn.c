/* SPDX-License-Identifier: Apache-2.0 */
/* Everything at random, with one writer after the other, and all invariants verified
 * again and again.
 * Tests: lib/index/writer/ lib/look/check.c */
#include "t/lib/churn.h"

/* One that knows nothing but what the segments say. */
static void another_writer(void)
{
	if (cache_thread)
		return;
	must(gpc_writer_drop(churn.c));
	must(gpc_writer_take(churn.c, 0, 0));
}

static bool enough(void)
{
	struct gpc_stats st = stats_of(churn.c, -1);

	return churn.did[0] > 1000 && churn.did[2] > 100 && churn.did[3] > 100 &&
	       churn.did[5] > 50 && st.demoted > 100 && st.promoted > 50;
}

/* A writer that has had no processor for a while has not done enough: it gets more steps. */
static void run(const struct gpc_config *cfg, uint32_t steps, const char *what)
{
	struct gpc_stats st;
	uint32_t i, bad = 0;

	diag("%s", what);
	churn_begin(cfg);
	for (i = 0; i < steps || (i < 10 * steps && !enough()); i++) {
		churn_step();
		if (i % 50 == 49)
			bad += gpc_check(churn.c, cache_line, NULL) != 0;
		if (i % 1000 == 999)
			churn_pool();
		if (i % 100 == 77)
			another_writer();
	}
	is_int(bad, 0, "%s: clean all the while", what);
	st = stats_of(churn.c, -1);
	ok(enough(), "%s: enough of everything, %d keys went down, %d up", what, (int)st.demoted,
	   (int)st.promoted);
	churn_end();
	cache_end(churn.c);
}

static void tests(void)
{
	struct gpc_config cfg = cache_config(0, 0);

	run(&cfg, 4000, "exact");
	cfg.free_target = 8;
	cfg.tick_us = 1000;
	run(&cfg, 4000, "free_target of demand, milliseconds");
}

static int body(void)
{
	cache_both(tests);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
