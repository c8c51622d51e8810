/* SPDX-License-Identifier: Apache-2.0 */
/* Between the choice of a victim and its end: a reference that was just in time (rule S4), and
 * a writer that is not there (rule C2).
 * Tests: lib/index/writer/retire.c lib/index/peer/ring.c */
#include "t/lib/cache.h"

#include "index/peer/handle.h"
#include "index/peer/refs.h"

struct waiting {
	gpc *c;
	gpc_block b;
	int got;
};

static void *reserve_one(void *arg)
{
	struct waiting *w = arg;

	w->got = gpc_reserve(w->c, 0, 1, &w->b, NULL, 0, 5000);
	return NULL;
}

/* The cell is raised after the writer has looked, as by one who then reads DYING, or is held up
 * before it does. */
static void test_won_victim(void)
{
	gpc *c = cache_new(2, 0), *d = cache_attach(0, 0);
	struct waiting w = { .c = cache_attach(0, 0), .b = GPC_NONE, .got = -77 };
	gpc_block b[2];
	pthread_t thread;
	int section, i;

	chain_make(c, 0, 1, 1, &b[0]);
	chain_make(c, 0, 2, 1, &b[1]);
	section = must(gpc_section_enter(d));
	if (pthread_create(&thread, NULL, reserve_one, &w))
		bail("no thread");
	for (i = 0; i < 2000 && find(c, 1) >= 0; i++)
		must(gpc_writer_serve(c, 5));
	is_int(find(c, 1), -1, "the oldest is the victim");
	order_add16(refs_cell(d, (uint32_t)b[0]), 1);
	refs_show(d);
	gpc_section_leave(d, section);
	serve_begin(c);
	pthread_join(thread, NULL);
	serve_end();
	is_int(w.got, 1, "a reference has won it: it is not waited for");
	is_int(w.b, b[1], "another one goes");
	is_int(WORD_STATE(seg_record(&c->seg, (uint32_t)b[0])->word), DYING,
	       "the first is nobody's");
	order_dec16(refs_cell(d, (uint32_t)b[0]), CELL_REFS);
	settle(c);
	is_int(gpc_pool_available(c, 0), 1, "until the reference has gone");
	must(gpc_close(w.c));
	must(gpc_close(d));
	must(gpc_writer_serve(c, 50));
	clean(c, "a victim that was won");
	cache_end(c);
}

static void test_no_writer(void)
{
	gpc *c = cache_new(2, 0), *d = cache_attach(0, 0);
	gpc_block b;

	must(gpc_writer_drop(c));
	refused(gpc_reserve(d, 0, 1, &b, NULL, 0, 3000), ENOTCONN,
		"nobody is the writer: a call says so before its time is over");
	must(gpc_writer_take(c, 0, 0));
	must(gpc_close(d));
	must(gpc_writer_serve(c, 50));
	clean(c, "no writer for a while");
	cache_end(c);
}

static int body(void)
{
	cache_thread = false;
	test_won_victim();
	test_no_writer();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
