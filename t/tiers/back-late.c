/* SPDX-License-Identifier: Apache-2.0 */
/* A block comes back at the end of a pass of the writer, behind the last look at those that wait
 * for blocks: who waits for it gets it in that pass, and not when the writer looks for the dead the
 * next time.
 * Tests: lib/index/writer/loop.c lib/index/writer/retire.c */
#include "t/lib/moved.h"

static int later; /* a section that ends in the middle of a pass; 0: none */

struct writer;

void __real_grant_sweep(struct writer *w);
void __wrap_grant_sweep(struct writer *w);

/* The grants have been looked at, and retire_advance() comes next. */
void __wrap_grant_sweep(struct writer *w)
{
	__real_grant_sweep(w);
	if (later)
		handle_leave(d, later - 1);
	later = 0;
}

static gpc *waits;
static gpc_block all[BLOCKS];
static int got;

static void *reserve_all(void *arg)
{
	(void)arg;
	got = gpc_reserve(waits, vram, BLOCKS, all, NULL, 0, 20000);
	return NULL;
}

static bool is_answered(void)
{
	const struct shm_seat *seat = seg_seat(&c->seg, waits->peer);

	return seat->tail == load_acquire(&seat->head);
}

/* The source of a move waits twice, for readers of the old entry and for those of the old block. */
static int body(void)
{
	pthread_t thread;
	gpc_block b;
	int second;

	begin(0, 0);
	settle(c);
	waits = cache_attach(0, 0);
	b = in_pool(vram, 1);
	must(gpc_release(c, &b, 1));
	reader_begins();
	down(b, 0);
	if (pthread_create(&thread, NULL, reserve_all, NULL))
		bail("no thread");
	while (gpc_writer_serve(c, 1) < 1)
		;
	ok(!is_answered(), "a block that a move has left is waited for");
	second = must(handle_enter(d));
	handle_leave(d, section);
	must(gpc_writer_serve(c, 0));
	ok(!is_answered(), "also while readers may have its number");
	later = second + 1;
	must(gpc_writer_serve(c, 0));
	is_int(later, 0, "they end in the middle of a pass");
	ok(is_answered(), "whose end brings the block to who waits");
	serve_begin(c);
	pthread_join(thread, NULL);
	is_int(got, BLOCKS, "all are there");
	must(gpc_release(waits, all, BLOCKS));
	done(waits);
	serve_end();
	must(gpc_close(waits));
	end("late");
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(30, body, cache_dir_remove);
}
