/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_check beside a writer that stays in the middle of a change for longer than nine copies take: a key
 * that is live in two blocks of its space, as long as a publish has not switched its entry.
 * Tests: lib/look/check_pace.c lib/index/writer/loop.c lib/index/takeover/open.c lib/index/table/state.h */
#include "config.h"

#include <sched.h>

#include "t/lib/cache.h"

#include "index/peer/handle.h"
#include "index/segment/segment.h"

static uint32_t holds, is_in; /* the next switch takes its time; one does */
static int copies;

struct writer;
void __real_move_switch(struct writer *w, uint32_t from, uint32_t to);
void __wrap_move_switch(struct writer *w, uint32_t from, uint32_t to);
int __real_segment_refresh(struct segment *s);
int __wrap_segment_refresh(struct segment *s);

void __wrap_move_switch(struct writer *w, uint32_t from, uint32_t to)
{
	struct timespec pause = { .tv_nsec = 700 * 1000 * 1000 };

	if (order_swap32(&holds, 0)) {
		store_release(&is_in, 1);
		nanosleep(&pause, NULL);
	}
	__real_move_switch(w, from, to);
}

int __wrap_segment_refresh(struct segment *s)
{
	copies++;
	return __real_segment_refresh(s);
}

static uint64_t passes(gpc *c)
{
	return load_relaxed(&seg_state(&c->seg)->passes);
}

/* Key 1 is in RAM; its next block is in VRAM. */
static void publishes(gpc *d)
{
	gpc_key none = { { 0, 0 } }, k = key_of(d, 1);
	gpc_block b;

	must(gpc_reserve(d, 0, 1, &b, NULL, 0, 60000));
	store_release(&holds, 1);
	must(gpc_publish(d, &none, &k, &b, 1, NULL, 0, 0));
	while (!load_acquire(&is_in))
		sched_yield();
}

static void test_slow(void)
{
	gpc *c, *d;

	cache_thread = true;
	c = cache_new(8, 8);
	d = cache_attach(0, 0);
	chain_make(d, 1, 1, 1, NULL);
	publishes(d);
	ok(passes(c) & 1, "a writer is in a pass");
	is_int(gpc_check(d, NULL, NULL), 0, "and not done with a change: that is no damage");
	ok(copies > 1, "which the first copy has shown");
	must(gpc_ticket_wait(d, seg_seat(&d->seg, d->peer)->head, 60000));
	clean(c, "in the end");
	must(gpc_close(d));
	cache_end(c);
}

/* A program that serves when it likes is between two passes for the rest of the time, and so is one that
 * has given the seat up or taken it. */
static void test_rests(void)
{
	uint64_t before;
	gpc *c;

	cache_thread = false;
	c = cache_new(8, 8);
	before = passes(c);
	ok(!(before & 1), "a takeover is a pass, which is over");
	must(gpc_writer_serve(c, 0));
	ok(passes(c) > before && !(passes(c) & 1), "one that has served rests");
	before = passes(c);
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	ok(passes(c) > before && !(passes(c) & 1), "the next one counts on");
	cache_end(c);
}

static int body(void)
{
	test_slow();
	test_rests();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
