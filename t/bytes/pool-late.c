/* SPDX-License-Identifier: Apache-2.0 */
/* Pools with memory whose making no writer answers in time: what becomes of the file, and whose
 * time the timeout counts.
 * Tests: lib/bytes/mapping/make.c lib/index/writer/pool_memory.c */
#include "t/lib/memory_files.h"

#include "index/request/request.h"
#include "bytes/memfile/memfile.h"

enum { BLOCK = 8192, BLOCKS = 6 };

static gpc *new_cache(void)
{
	struct gpc_config cfg = cache_config(0, 0);

	cfg.max_blocks = 512;
	cfg.max_pools = 4;
	memset(cfg.layout, 0x6c, sizeof(cfg.layout));
	return cache_make(&cfg, NULL);
}

static void serve(gpc *c)
{
	int i;

	for (i = 0; i < 50; i++)
		must(gpc_writer_serve(c, 1));
}

static void test_late(void)
{
	gpc *c = new_cache(), *d;
	struct gpc_pool p = pool_with(GPC_VRAM, BLOCKS, 0), q = { .size = sizeof(q) };
	struct gpc_memory m = memory_of(BLOCK);
	uint64_t bytes;
	void *base;

	d = cache_attach(0, 0);
	refused(gpc_pool_make(d, &p, &m, 300), ETIMEDOUT, "a writer that does not answer");
	is_int(memory_files(), 1, "the command may be carried out, so the file is there");
	must(gpc_writer_drop(c));
	memory_sweep(&c->seg);
	is_int(memory_files(), 1, "and nobody sweeps it");
	must(gpc_writer_take(c, 0, 0));
	serve(c);
	must(gpc_pool_get(d, 0, &q));
	ok(memory_file_exists(q.memory), "it was: the pool has it");
	is_int(memory_get(d, 0).parts_lent, 1, "its maker sees that");
	is_int(gpc_pool_map(d, 0, 0, &base, &bytes), 0, "and maps it");
	is_int((int)memory_get(d, 0).mapped, 1, "which it is told of");
	clean(c, "a late answer");
	is_int(gpc_pool_clear(c, 0, 0, GPC_REMOVE, 2000), 0, "the pool goes");
	must(gpc_close(d));
	ok(memory_files_come_to(c, 0), "and its file, when its maker has let go");
	cache_end(c);
}

/* Refused when the writer is there at last. */
static void test_late_refused(void)
{
	gpc *c = new_cache(), *d;
	struct gpc_pool p = pool_with(GPC_RAM, 4, 0);
	struct gpc_memory m = memory_of(64);

	p.demote_to = 3;
	d = cache_attach(0, 0);
	refused(gpc_pool_make(d, &p, &m, 300), ETIMEDOUT, "a writer that does not answer");
	is_int(memory_files(), 1, "the file waits");
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	serve(c);
	is_int(info_of(c).pools, 0, "no pool 3");
	p = pool_with(GPC_RAM, 4, 0);
	serve_begin(c);
	is_int(gpc_pool_make(d, &p, &m, 1000), 0, "another one");
	serve_end();
	is_int(memory_files(), 1, "the first one's file went with the answer");
	must(gpc_close(d));
	cache_end(c);
}

static void test_never(void)
{
	gpc *c = new_cache(), *d;
	struct gpc_pool p = pool_with(GPC_RAM, 4, 0);
	struct gpc_memory m = memory_of(64);

	d = cache_attach(0, 0);
	refused(gpc_pool_make(d, &p, &m, 300), ETIMEDOUT, "a writer that does not answer");
	refused(gpc_pool_make(d, &p, &m, 0), EAGAIN, "a second one waits for the first");
	must(gpc_writer_drop(c));
	is_int(memory_files(), 1, "and leaves no file");
	must(gpc_close(d));
	is_int(memory_files(), 0, "gpc_close removes it");
	must(gpc_writer_take(c, 0, 0));
	serve(c);
	is_int(info_of(c).pools, 0, "and no pool");
	clean(c, "never answered");
	cache_end(c);
}

/* The writer answers, and the maker closes its handle without a look at the answer. */
static void test_unseen(void)
{
	gpc *c = new_cache(), *d = cache_attach(0, 0);
	struct gpc_pool p = pool_with(GPC_RAM, 4, 0);
	struct gpc_memory m = memory_of(64);

	refused(gpc_pool_make(d, &p, &m, 300), ETIMEDOUT, "a writer that does not answer");
	serve(c);
	must(gpc_close(d));
	serve(c);
	must(gpc_pool_get(c, 0, &p));
	ok(memory_files() == 1 && memory_file_exists(p.memory), "the pool keeps its file");
	clean(c, "answered unseen");
	cache_end(c);
}

/* ---- answers that are known before anything is made ---- */

static int made; /* calls of progress */

static int makes(void *arg, uint64_t done, uint64_t bytes)
{
	(void)arg;
	(void)done;
	(void)bytes;
	made++;
	return 0;
}

static struct gpc_memory watched(void)
{
	struct gpc_memory m = memory_of(64);

	m.progress = makes;
	made = 0;
	return m;
}

static void test_no_writer(void)
{
	gpc *c = new_cache(), *d = cache_attach(0, 0);
	struct gpc_pool p = pool_with(GPC_RAM, 4, 0);
	struct gpc_memory m = watched();

	must(gpc_writer_drop(c));
	refused(gpc_pool_make(d, &p, &m, 0), ENOTCONN, "no writer, no time");
	refused(gpc_pool_make(d, &p, &m, 5000), ENOTCONN, "none comes in 0.2 s");
	refused(gpc_pool_make(d, &p, &m, 5000), ENOTCONN, "nor later");
	is_int(made + memory_files(), 0, "nothing was made");
	must(gpc_writer_take(c, 0, 0));
	serve(c);
	is_int(info_of(c).pools, 0, "and no command was sent");
	serve_begin(c);
	is_int(gpc_pool_make(d, &p, &m, 5000), 0, "there is a writer again");
	serve_end();
	must(gpc_close(d));
	cache_end(c);
}

static void test_no_room(void)
{
	gpc *c = new_cache(), *d = cache_attach(0, 0);
	struct gpc_pool p = pool_with(GPC_RAM, 500, 0), q = pool_with(GPC_RAM, 60, 0);
	struct gpc_memory m = watched();
	int i;

	must(gpc_pool_make(c, &p, NULL, -1));
	refused(gpc_pool_make(d, &q, &m, 300), ENOSPC, "max_blocks is used up");
	refused(gpc_pool_clear(d, 0, 0, GPC_REMOVE, 0), EAGAIN, "a removal is under way");
	is_int(made, 0, "nothing was made before it");
	refused(gpc_pool_make(d, &q, &m, 300), ETIMEDOUT, "now the writer decides");
	is_int(memory_files(), 1, "about memory that is there");
	must(gpc_close(d));
	must(gpc_pool_clear(c, 0, 0, GPC_REMOVE, 2000));
	d = cache_attach(0, 0);
	for (i = 0; i < 4; i++) {
		p = pool_with(GPC_RAM, 4, 0);
		must(gpc_pool_make(c, &p, NULL, -1));
	}
	made = 0;
	q = pool_with(GPC_RAM, 4, 0);
	refused(gpc_pool_make(d, &q, &m, 300), ENOSPC, "max_pools is used up");
	is_int(made, 0, "nothing was made");
	must(gpc_close(d));
	clean(c, "no room");
	cache_end(c);
}

/* Slow to be made; a writer that is there answers at once. */
static int dawdle(void *arg, uint64_t done, uint64_t bytes)
{
	struct timespec pause = { .tv_nsec = 700000000 };

	if (done == bytes) {
		nanosleep(&pause, NULL);
		++*(int *)arg;
	}
	return 0;
}

static void test_timeout(void)
{
	struct gpc_pool p = pool_with(GPC_RAM, 4, 0);
	struct gpc_memory m = memory_of(64);
	int slept = 0;
	gpc *c;

	cache_thread = true;
	c = new_cache();
	m.progress = dawdle;
	m.progress_arg = &slept;
	is_int(gpc_pool_make(c, &p, &m, 500), 0,
	       "the time of making is not taken from the writer's");
	is_int(slept, 1, "and was longer than the timeout");
	clean(c, "a slow making");
	cache_end(c);
	cache_thread = false;
}

static int body(void)
{
	cache_thread = false;
	test_late();
	test_late_refused();
	test_never();
	test_unseen();
	test_no_writer();
	test_no_room();
	test_timeout();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
