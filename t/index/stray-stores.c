/* SPDX-License-Identifier: Apache-2.0 */
/* One store to the wrong place of the control segment, by a peer that dies of it or not: what
 * others rely on holds all the same.
 * Tests: lib/index/writer/loop.c lib/index/writer/command.c */
#include "t/lib/cache.h"

#include <signal.h>
#include <sys/wait.h>

#include "index/peer/refs.h"

static bool is_dying(gpc *c, gpc_block b)
{
	return WORD_STATE(load_acquire(&seg_record(&c->seg, (uint32_t)b)->word)) == DYING;
}

static void serve_for(int ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000l };

	nanosleep(&t, NULL);
}

/* A section that began after the epoch was scribbled over is waited for. */
static void test_epoch(uint64_t value)
{
	gpc *c = cache_new(8, 0), *d = cache_attach(0, 0);
	gpc_block b[3];
	int i, section;

	for (i = 0; i < 3; i++)
		chain_make(c, 0, (uint64_t)i * 10 + 1, 1, &b[i]);
	store_relaxed(&seg_shared(&c->seg)->epoch, value);
	for (i = 0; i < 3; i++) {
		section = must(gpc_section_enter(d));
		if (i == 2) /* lowered while it is open */
			store_relaxed(&seg_shared(&c->seg)->epoch, 5);
		is_int(gpc_drop(c, &b[i], 1, NULL, 0, -1), 1, "epoch 0x%llx: a block is dropped",
		       (unsigned long long)value);
		serve_for(60);
		ok(is_dying(c, b[i]), "and is nobody's while a section is open");
		gpc_section_leave(d, section);
		settle(c);
		ok(!is_dying(c, b[i]), "but afterwards");
	}
	must(gpc_close(d));
	cache_end(c);
}

/* A child that scribbles, and dies. */
static void victim(void (*scribble)(gpc *d))
{
	int fd[2], status;
	char ready;
	pid_t pid;

	if (pipe(fd))
		bail("no pipe");
	pid = fork();
	if (!pid) {
		scribble(cache_attach(0, 0));
		if (write(fd[1], "x", 1) == 1)
			for (;;)
				pause();
		_exit(1);
	}
	if (read(fd[0], &ready, 1) != 1)
		bail("the victim is not ready");
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	close(fd[0]);
	close(fd[1]);
	serve_for(200);
}

static void all_sections(gpc *d)
{
	memset(seg_section(&d->seg, d->peer, 0), 0xff, SHM_SECTIONS * sizeof(struct shm_section));
}

/* Behind the cells of its column, and the bits of seats that there are not. */
static void cell_of_nobody(gpc *d)
{
	store_relaxed(seg_cell(&d->seg, d->seg.header.geometry.max_blocks, d->peer), 1);
	order_or64(&seg_shared(&d->seg)->holders[0], ~0ull << d->seg.header.geometry.max_peers);
	order_or64(&seg_shared(&d->seg)->holders[3], ~0ull);
}

static void free_seat(gpc *d)
{
	must(gpc_section_enter(d));
	store_relaxed(seg_cell(&d->seg, 1, d->peer), 1);
	refs_show(d);
	serve_for(100);
	store_release(&seg_seat(&d->seg, d->peer)->state, SEAT_FREE);
}

static void test_sections(void)
{
	gpc *c = cache_new(2, 0), *d;
	gpc_block b, x[2];
	int section;

	victim(all_sections);
	d = cache_attach(0, 0);
	chain_make(c, 0, 1, 1, &b);
	section = must(gpc_section_enter(d));
	is_int(gpc_drop(c, &b, 1, NULL, 0, -1), 1, "the next one in that seat has a section");
	is_int(gpc_reserve(c, 0, 2, x, NULL, 0, 100), -ETIMEDOUT, "which counts");
	gpc_section_leave(d, section);
	settle(c);
	done(c); /* what came too late goes back */
	is_int(gpc_reserve(c, 0, 2, x, NULL, 0, 2000), 2, "until it ends");
	must(gpc_close(d));
	cache_end(c);
}

static void test_cell(void)
{
	struct gpc_config cfg = cache_config(2, 0);
	gpc_block x[2];
	gpc *c;

	cfg.max_peers = 5;
	c = cache_make(&cfg, NULL);
	chain_make(c, 0, 1, 1, NULL);
	chain_make(c, 0, 2, 1, NULL);
	victim(cell_of_nobody);
	is_int(gpc_reserve(c, 0, 2, x, NULL, 0, 2000), 2, "a cell of no seat holds nothing");
	cache_end(c);
}

static void test_seat(void)
{
	gpc *c = cache_new(2, 0);
	gpc_block x[2];

	chain_make(c, 0, 1, 1, NULL);
	chain_make(c, 0, 2, 1, NULL);
	victim(free_seat);
	is_int(gpc_reserve(c, 0, 2, x, NULL, 0, 2000), 2,
	       "a dead peer that said its seat was free holds nothing");
	must(gpc_release(c, x, 2));
	done(c);
	clean(c, "a seat said to be free");
	cache_end(c);
}

static int body(void)
{
	cache_thread = true;
	test_epoch(UINT64_MAX);
	test_epoch(UINT64_MAX - 1);
	test_epoch(1ull << 60);
	test_sections();
	test_cell();
	test_seat();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
