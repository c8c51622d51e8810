/* SPDX-License-Identifier: Apache-2.0 */
/* Who makes memory dies before each step of it; the writer dies before each store of the command
 * that names it, and of the pool's end, and so does the next one in its takeover; the owner of VRAM
 * dies while others have it mapped.  When all is quiet, each file is a pool's, and each pool has
 * its file.
 *
 *   GPC_T_ROUNDS=1    each store, not each sixth one
 * Tests: lib/index/writer/pool_memory.c lib/index/writer/sweep.c lib/bytes/mapping/make.c
 *   lib/bytes/memfile/remove.c */
#include "t/lib/memory_files.h"
#include "t/lib/dies.h"

#include <sys/wait.h>

#include "index/base/fd.h"
#include "bytes/mapping/map.h"
#include "index/peer/ring.h"
#include "index/segment/files.h"
#include "index/segment/lockfile.h"
#include "bytes/memfile/parts.h"
#include "index/table/state.h"

enum { BLOCKS = 4, BLOCK = 4096, STEPS = 300, STORES = 900 };

/* ---- steps of the maker ---- */

static bool counting;
static int steps, last_step;
static uint64_t block = BLOCK;

static void step(void)
{
	if (counting && ++steps == last_step)
		stops_die();
}

#define STEP(type, name, params, args)     \
	type __real_##name params;         \
	type __wrap_##name params;         \
	type __wrap_##name params          \
	{                                  \
		step();                    \
		return __real_##name args; \
	}

STEP(int, fd_open, (const char *path, int flags, mode_t mode), (path, flags, mode))
STEP(void, fd_close, (int fd), (fd))
STEP(int, lock_try, (int fd, uint64_t byte), (fd, byte))
STEP(void, lock_drop, (int fd, uint64_t byte), (fd, byte))
STEP(int, segment_map_ranges,
     (const struct segment *s, const struct segment_range *range, uint32_t n, int prot,
      uint8_t **ret),
     (s, range, n, prot, ret))
STEP(int, memory_store_part, (const struct memory *m, uint32_t i, const struct shm_part *part),
     (m, i, part))
STEP(int, ring_call,
     (gpc * d, struct op *op, const struct shm_command *cmds, uint64_t deadline, bool *ret_pending),
     (d, op, cmds, deadline, ret_pending))
STEP(int, posix_fallocate, (int fd, off_t at, off_t bytes), (fd, at, bytes))
STEP(void, memory_made, (struct memory * m), (m))
STEP(int, map_adopt,
     (gpc * d, uint32_t pool, const struct memory *m, uint32_t nparts, const struct map_part *part),
     (d, pool, m, nparts, part))

/* Dies before that step; or comes through, and then all is made. */
static void makes(uint32_t kind, int before)
{
	gpc *d = cache_attach(0, 0);
	struct gpc_pool p = pool_with(kind, BLOCKS, 1);
	struct gpc_memory m = memory_of(block);

	last_step = before;
	counting = true;
	if (gpc_pool_make(d, &p, &m, 2000) < 0)
		_exit(1);
	counting = false;
	_exit(0);
}

/* Its status; the parent serves meanwhile. */
static int served(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, WNOHANG) == 0)
		must(gpc_writer_serve(c, 1));
	return status;
}

static int pools_with_memory(void)
{
	struct gpc_pool p = { .size = sizeof(p) };
	struct gpc_pool_memory m = { .size = sizeof(m) };
	int i, n = 0;

	for (i = 0; i < (int)info_of(c).max_pools; i++) {
		if (gpc_pool_get(c, i, &p) < 0 || !p.memory)
			continue;
		n += gpc_pool_memory_get(c, i, &m, NULL, 0) > 0 ? 1 : 100;
	}
	return n;
}

static void remove_pools(void)
{
	struct gpc_pool p = { .size = sizeof(p) };
	int i;

	for (i = 0; i < (int)info_of(c).max_pools; i++)
		if (gpc_pool_get(c, i, &p) == 0 && p.memory)
			must(gpc_pool_clear(c, i, 0, GPC_REMOVE, 2000));
}

/* The dead are reaped, and what is swept is swept. */
static bool is_quiet(void)
{
	int i;

	for (i = 0; i < 2000 && info_of(c).peers > 1; i++)
		must(gpc_writer_serve(c, 1));
	return info_of(c).peers == 1 && memory_files_come_to(c, pools_with_memory());
}

static gpc *new_cache(void)
{
	struct gpc_config cfg = cache_config(8, 0);

	cfg.max_blocks = 128;
	cfg.max_pools = 4;
	return cache_make(&cfg, NULL);
}

static void test_maker(uint32_t kind, const char *what)
{
	int n, status = -1, kept = 0;
	bool good = true;
	pid_t pid;

	c = new_cache();
	for (n = 1; n < STEPS && status != 0 && good; n++) {
		pid = fork();
		if (!pid)
			makes(kind, n);
		status = served(pid);
		good = is_quiet();
		kept += memory_files();
		remove_pools();
		good = good && memory_files_come_to(c, 0) && gpc_check(c, cache_line, NULL) == 0;
	}
	ok(good && status == 0 && n > 10,
	   "the maker of %s dies before step %d: no file without "
	   "pool, no pool without file",
	   what, n - 2);
	if (status)
		diag("status %x", status);
	is_int(kept > 0, kind == GPC_RAM, "%d of its pools were there afterwards", kept);
	cache_end(c);
}

/* 9 MiB, in files of 4, 4 and 1. */
static void test_files(void)
{
	uint64_t usual = memory_cut;

	memory_cut = (uint64_t)2 << 20;
	block = (uint64_t)3 << 19;
	memory_files_each = 3;
	test_maker(GPC_RAM, "RAM in files");
	memory_cut = usual;
	block = BLOCK;
	memory_files_each = 1;
}

/* ---- memory made by hand ---- */

static struct memory mine;

/* As gpc_pool_make does before its command.  VRAM of CALLER blocks: those of a pool whose writer
 * died before its live bit are RESERVED, and it must be FREE all the same when the command runs
 * again. */
static void make_mine(uint32_t kind)
{
	struct shm_pool rq = { .range = BLOCKS,
			       .blocks = BLOCKS,
			       .kind = kind,
			       .space = 1,
			       .demote_to = -1,
			       .block_bytes = BLOCK,
			       .flags = kind == GPC_VRAM ? GPC_POOL_CALLER : 0 };

	mine = (struct memory){ .kind = kind,
				.slots = BLOCKS,
				.nruns = 1,
				.nparts = 1,
				.block_bytes = BLOCK,
				.images_bytes = BLOCK * BLOCKS,
				.run = { { .count = 1, .bytes = BLOCK, .slot_stride = BLOCK } } };
	must(memory_make(&c->seg, &mine, NULL));
	rq.memory = mine.number;
	dies_seat(c)->request = rq;
}

/* ---- left behind ---- */

static void test_orphan(void)
{
	struct memory m = { .kind = GPC_RAM,
			    .slots = BLOCKS,
			    .nruns = 1,
			    .nparts = 1,
			    .block_bytes = BLOCK,
			    .images_bytes = BLOCK * BLOCKS,
			    .run = { { .count = 1, .bytes = BLOCK, .slot_stride = BLOCK } } };

	c = new_cache();
	must(gpc_writer_drop(c));
	must(memory_make(&c->seg, &m, NULL));
	memory_close(&m);
	is_int(memory_files(), 1, "a file that nobody has any more");
	must(gpc_writer_take(c, 0, 0));
	ok(memory_files_come_to(c, 0), "goes with the next takeover");
	cache_end(c);
}

/* The kernel gives the locks of who dies back one by one: the seat's before the file's. */
static void test_late_lock(void)
{
	pid_t pid;
	int i;

	c = new_cache();
	make_mine(GPC_RAM);
	pid = fork();
	if (!pid) {
		cache_attach(0, 0);
		stops_die();
	}
	served(pid);
	for (i = 0; i < 200; i++) /* the sweeper comes, and comes again */
		must(gpc_writer_serve(c, 1));
	is_int(memory_files(), 1, "its maker's seat is cleared, and the file is locked still");
	memory_close(&mine);
	ok(memory_files_come_to(c, 0), "it goes with its lock");
	cache_end(c);
}

/* ---- dead before its command is run ---- */

/* Its last store shows the command, and no writer has seen that it is dead. */
static void asks_and_dies(void)
{
	gpc *d = cache_attach(0, 0);
	struct memory m = { .kind = GPC_RAM,
			    .slots = BLOCKS,
			    .nruns = 1,
			    .nparts = 1,
			    .block_bytes = BLOCK,
			    .images_bytes = BLOCK * BLOCKS,
			    .run = { { .count = 1, .bytes = BLOCK, .slot_stride = BLOCK } } };
	struct shm_seat *s = seg_seat(&d->seg, d->peer);

	must(memory_make(&d->seg, &m, NULL));
	s->request = (struct shm_pool){ .range = BLOCKS,
					.blocks = BLOCKS,
					.kind = GPC_RAM,
					.space = 1,
					.demote_to = -1,
					.memory = m.number,
					.block_bytes = BLOCK };
	*seg_command(&d->seg, d->peer, s->head) =
		(struct shm_command){ .op = CMD_POOL, .count = 1, .result = CMD_PENDING };
	store_release(&s->head, s->head + 1);
	stops_die();
}

static void test_dead_maker(void)
{
	pid_t pid;

	c = new_cache();
	pid = fork();
	if (!pid)
		asks_and_dies();
	while (waitpid(pid, NULL, 0) < 0)
		;
	c->writer->next_housekeep_ns = NEVER; /* it is reaped later */
	must(gpc_writer_serve(c, 0));
	is_int(seg_command(&c->seg, 1, 0)->result, -ESTALE, "its command is run, and refused");
	is_int(seg_pool(&c->seg, 1)->state, POOL_DRAINING, "its pool goes at once");
	c->writer->next_housekeep_ns = 0;
	ok(is_quiet() && memory_files() == 0, "and the file");
	clean(c, "a dead maker");
	cache_end(c);
}

/* ---- stores of the writer ---- */

static bool is_answered(void)
{
	int i;

	for (i = 0; i < 2000 && waits(c); i++)
		must(gpc_writer_serve(c, 1));
	for (i = 0; i < 30; i++) /* phantoms end */
		must(gpc_writer_serve(c, 1));
	return !waits(c);
}

static bool has_mine(int pool)
{
	struct gpc_pool p = { .size = sizeof(p) };

	return gpc_pool_get(c, pool, &p) == 0 && p.memory == mine.number &&
	       memory_file_exists(mine.number) && memory_files() == 1 && pools_with_memory() == 1;
}

/* Goes on until the pool is FREE. */
static void dies_ending(struct shm_command cmd, uint64_t last)
{
	static uint64_t count;
	gpc *d = cache_attach(0, 0);
	int i;

	must(gpc_writer_take(d, 0, 0));
	for (i = 0; i < 3 && load_acquire(&seg_state(&d->seg)->recovering); i++)
		must(gpc_writer_serve(d, 1));
	stops.count = &count;
	stops.last = last;
	submit(d, cmd);
	stops_begin();
	while (waits(d) || load_acquire(&seg_pool(&d->seg, cmd.pool)->state) != POOL_FREE)
		gpc_writer_serve(d, 1);
}

static bool end_round(int pool, uint64_t n, uint64_t next, bool *died)
{
	struct shm_command clear = { .op = CMD_CLEAR,
				     .pool = (uint8_t)pool,
				     .flags = CF_REMOVE,
				     .clear.generation =
					     seg_pool(&c->seg, (uint32_t)pool)->generation };

	must(gpc_writer_drop(c));
	*died = dies(dies_ending, clear, n);
	successor_dies(next);
	must(gpc_writer_take(c, 0, 0));
	return is_answered() && memory_files_come_to(c, 0) && pools_with_memory() == 0;
}

static bool add_round(uint32_t kind, uint64_t n, uint64_t next, bool *died, int *ret)
{
	bool good;

	make_mine(kind);
	must(gpc_writer_drop(c));
	*died = writer_dies((struct shm_command){ .op = CMD_POOL }, n);
	successor_dies(next);
	must(gpc_writer_take(c, 0, 0));
	good = is_answered() && (*ret = command(c)->result) >= 0 && has_mine(*ret);
	memory_made(&mine);
	memory_close(&mine);
	return good && is_quiet() && has_mine(*ret);
}

static void test_writer(uint32_t kind, uint64_t first, const char *what)
{
	uint64_t n, step_by = getenv("GPC_T_ROUNDS") ? 1 : 6;
	bool adds = true, ends = true, good = true;
	int pool = -1;

	c = new_cache();
	for (n = step_by == 1 ? 1 : first; n < STORES && (adds || ends) && good; n += step_by) {
		good = add_round(kind, n, 1 + n * 29 % 97, &adds, &pool) &&
		       end_round(pool, n, 1 + n * 31 % 97, &ends) &&
		       gpc_check(c, cache_line, NULL) == 0;
	}
	ok(good,
	   "the writer dies before store %d of a pool of %s, and of its end: the pool has its "
	   "file, and no other is left",
	   (int)(n - step_by), what);
	if (!good)
		diag("answer %d, %d files, %d pools", command(c)->result, memory_files(),
		     pools_with_memory());
	ok(!adds && !ends, "all of its stores");
	cache_end(c);
}

/* ---- VRAM of the dead ---- */

static uint32_t *gates; /* shared: 1 = the owner has made it, 2 .. = importers */

static void owns(void)
{
	gpc *d = cache_attach(0, 0);
	struct gpc_pool p = pool_with(GPC_VRAM, BLOCKS, 1);
	struct gpc_memory m = memory_of(BLOCK);
	uint64_t bytes;
	void *base;
	int pool = must(gpc_pool_make(d, &p, &m, -1));

	must(gpc_pool_map(d, pool, 0, &base, &bytes));
	memset(base, 0x44, BLOCK);
	__atomic_fetch_add(gates, 1, __ATOMIC_SEQ_CST);
	for (;;)
		pause();
}

/* Reads there until gate 3 is open. */
static void imports(void)
{
	struct timespec pause_ns = { .tv_nsec = 1000000 };
	gpc *d = cache_attach(0, 0);
	uint64_t bytes;
	void *base;

	must(gpc_pool_map(d, 1, 0, &base, &bytes));
	__atomic_fetch_add(&gates[1], 1, __ATOMIC_SEQ_CST);
	do {
		if (*(volatile uint8_t *)base != 0x44)
			_exit(1);
		nanosleep(&pause_ns, NULL);
	} while (!load_acquire(&gates[2]));
	if (gpc_pool_map(d, 1, 0, &base, &bytes) != -ESTALE)
		_exit(2);
	must(gpc_pool_unmap(d, 1));
	__atomic_fetch_add(&gates[3], 1, __ATOMIC_SEQ_CST);
	for (;;)
		pause();
}

static void until(uint32_t *gate, uint32_t n)
{
	while (load_acquire(gate) < n)
		must(gpc_writer_serve(c, 1));
}

static void test_owner(void)
{
	struct gpc_pool p = pool_with(GPC_VRAM, BLOCKS, 1), q = { .size = sizeof(q) };
	struct gpc_memory m = memory_of(BLOCK);
	pid_t pid[3];
	int i;

	gates = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	c = new_cache();
	for (i = 0; i < 3; i++) {
		pid[i] = fork();
		if (!pid[i] && i)
			imports();
		else if (!pid[i])
			owns();
		until(i ? &gates[1] : &gates[0], i ? (uint32_t)i : 1);
	}
	is_int(memory_files(), 1, "one file");
	must(gpc_pool_get(c, 1, &q));
	kill(pid[0], SIGKILL);
	served(pid[0]);
	refused(gpc_pool_make(c, &p, &m, 0), EAGAIN, "its owner is dead, its importers are not");
	for (i = 0; i < 2000 && gpc_pool_get(c, 1, &q) == 0; i++)
		must(gpc_writer_serve(c, 1));
	is_int(gpc_pool_get(c, 1, &q), -ENOENT, "the pool has gone");
	refused(gpc_pool_make(c, &p, &m, 50), ETIMEDOUT, "they read there, both of them");
	kill(pid[1], SIGKILL);
	is_int(WTERMSIG(served(pid[1])), SIGKILL, "one of them is killed");
	refused(gpc_pool_make(c, &p, &m, 50), ETIMEDOUT, "the other one still has it");
	is_int(memory_files(), 1, "so the file is there");
	store_release(&gates[2], 1);
	until(&gates[3], 1);
	is_int(gpc_pool_make(c, &p, &m, 5000), 1, "it has unmapped it: the number has a successor");
	ok(memory_files_come_to(c, 1), "whose file is the only one");
	kill(pid[2], SIGKILL);
	is_int(WTERMSIG(served(pid[2])), SIGKILL, "the importer had read what it should");
	ok(is_quiet(), "all is quiet");
	clean(c, "VRAM of the dead");
	cache_end(c);
}

static int body(void)
{
	cache_thread = false;
	test_maker(GPC_RAM, "RAM");
	test_maker(GPC_VRAM, "VRAM");
	test_files();
	test_orphan();
	test_late_lock();
	test_dead_maker();
	test_writer(GPC_RAM, 1, "RAM");
	test_writer(GPC_VRAM, 4, "VRAM");
	test_owner();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(110, body, cache_dir_remove);
}
