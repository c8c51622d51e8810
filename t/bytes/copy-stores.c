/* SPDX-License-Identifier: Apache-2.0 */
/* A peer dies before each store into shared memory of a move down or up with its copy, of a copy
 * from RAM to RAM, of maps, of making and lending memory, and at each step of a sweep.  Who is left
 * finds no fault, no block that stays held, no copy that is said to be done without its bytes, and
 * a file for each pool that has one, and no other.
 *
 *   GPC_T_ROUNDS=1    each store of all of them: else of moves and maps, and a few of the others
 * Tests: lib/bytes/memfile/open.c lib/index/request/move.c lib/bytes/payload/copy.c */
#include "t/lib/memory_files.h"
#include "t/lib/stores.h"

#include <fcntl.h>
#include <sys/wait.h>

#include "index/base/fd.h"
#include "index/peer/ring.h"
#include "index/segment/files.h"
#include "index/segment/lockfile.h"
#include "bytes/memfile/memfile.h"

enum { BLOCKS = 4, KEYS = 2, LAYERS = 2, PIECE = 64, IMAGE = LAYERS * PIECE, STORES = 3000 };
enum { RAM, VRAM, OTHER };

static gpc *c; /* who is left */

/* What the dying says before it does. */
static struct {
	int32_t seat;
	uint64_t done[2];
	gpc_block to;
	uint64_t key;
} * said;

/* ---- bytes ---- */

static uint8_t byte_of(uint64_t key, uint32_t i)
{
	return (uint8_t)(key * 61 + i * 7 + 1);
}

/* VRAM has layer after layer, RAM block after block. */
static uint8_t *piece(gpc *d, gpc_block b, uint32_t layer)
{
	uint64_t slot = (uint64_t)GPC_SLOT(b), bytes;
	void *base;

	must(gpc_pool_map(d, GPC_POOL(b), 0, &base, &bytes));
	return (uint8_t *)base +
	       (GPC_POOL(b) == VRAM ? layer * BLOCKS + slot : slot * LAYERS + layer) * PIECE;
}

static void fill(gpc *d, gpc_block b, uint64_t key)
{
	uint32_t i;

	for (i = 0; i < IMAGE; i++)
		piece(d, b, i / PIECE)[i % PIECE] = byte_of(key, i);
}

static bool has(gpc *d, gpc_block b, uint64_t key)
{
	uint32_t i = 0;

	while (i < IMAGE && piece(d, b, i / PIECE)[i % PIECE] == byte_of(key, i))
		i++;
	return i == IMAGE;
}

static int copy(gpc *d, const struct gpc_move *m)
{
	gpc_transfer t = 0;
	int err = gpc_copy(d, m, 1, 0, NULL, &t);

	return err ? err : gpc_transfer_wait(d, t, 5000);
}

/* ---- the cache ---- */

static void make_pools(void)
{
	struct gpc_pool ram = pool_with(GPC_RAM, BLOCKS, 0), vram = pool_of(GPC_VRAM, BLOCKS, 0),
			other = pool_with(GPC_RAM, BLOCKS, 1);
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = IMAGE };
	struct gpc_run run = {
		.count = LAYERS, .bytes = PIECE, .slot_stride = PIECE, .run_stride = BLOCKS * PIECE
	};
	struct gpc_memory l = { .size = sizeof(l), .device = "host", .nruns = 1, .runs = &run };

	vram.flags = GPC_POOL_OWNED;
	vram.demote_to = RAM;
	must(gpc_pool_make(c, &ram, &m, -1));
	must(gpc_pool_make(c, &vram, &l, -1));
	must(gpc_pool_make(c, &other, &m, -1));
}

static void new_cache(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	gpc_block b;
	uint64_t n;

	cfg.max_blocks = 64;
	cfg.max_pools = 6;
	cfg.quarantine_ms = 3600000; /* exits are seen, or nothing comes back */
	c = cache_make(&cfg, NULL);
	make_pools();
	for (n = 1; n <= KEYS; n++) {
		gpc_key k = key_of(c, n);

		must(gpc_reserve(c, VRAM, 1, &b, NULL, 0, 60000));
		fill(c, b, n);
		if (must(gpc_publish(c, NULL, &k, &b, 1, NULL, 0, -1)) != 1)
			bail("key %d was not published", (int)n);
		must(gpc_release(c, &b, 1));
	}
}

/* ---- who dies ---- */

static void moves(gpc *d, uint64_t key)
{
	gpc_key k = key_of(d, key);
	struct gpc_move m;
	gpc_block b;

	if (must(gpc_acquire(d, 0, &k, 1, &b, 0)) != 1)
		_exit(2);
	if ((GPC_POOL(b) == VRAM ? gpc_demote(d, VRAM, RAM, &b, 1, &m, 0, 1000)
				 : gpc_promote(d, &b, 1, VRAM, &m, 0, 1000)) != 1)
		_exit(3);
	said->to = m.to;
	if (copy(d, &m) || gpc_commit(d, &m, 1, NULL, 0, 1000) != 1 || gpc_release(d, &m.to, 1))
		_exit(4);
}

/* By threads of its own; and what it has by then goes to VRAM, never published. */
static void copies(gpc *d, uint64_t key)
{
	struct gpc_move m;
	gpc_block held[2];

	must(gpc_reserve(d, RAM, 1, &m.from, NULL, 0, 60000));
	fill(d, m.from, key);
	must(gpc_reserve(d, OTHER, 1, &m.to, NULL, 0, 60000));
	said->to = m.to;
	held[0] = m.from;
	held[1] = m.to;
	if (copy(d, &m) || !has(d, m.to, key) || gpc_release(d, held, 2))
		_exit(4);
}

static void maps(gpc *d, uint64_t key)
{
	uint64_t bytes;
	void *base;
	int p;

	(void)key;
	for (p = RAM; p <= OTHER; p++) {
		must(gpc_pool_map(d, p, 0, &base, &bytes));
		must(gpc_pool_unmap(d, p));
	}
}

/* Shared memory of the engine's own. */
static uint8_t *engine(void)
{
	char path[128];
	void *p;
	int fd;

	snprintf(path, sizeof(path), "%s/engine", cache_dir);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, 2 * BLOCKS * PIECE))
		_exit(5);
	p = mmap(NULL, 2 * BLOCKS * PIECE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		_exit(5);
	return p;
}

static void lends(gpc *d, uint64_t key)
{
	struct gpc_run run[2] = { { .part = 0, .count = 1, .bytes = PIECE, .slot_stride = PIECE },
				  { .part = 1, .count = 1, .bytes = PIECE, .slot_stride = PIECE } };
	struct gpc_memory m = {
		.size = sizeof(m), .device = "host", .nruns = 2, .runs = run, .parts = 2
	};
	struct gpc_pool p = pool_of(GPC_VRAM, BLOCKS, 3);
	uint8_t *mine = engine();
	uint64_t bytes;
	void *base;
	int pool;

	(void)key;
	p.flags = GPC_POOL_OWNED;
	pool = must(gpc_pool_make(d, &p, &m, 2000));
	if (gpc_pool_lend(d, pool, 0, mine, BLOCKS * PIECE) ||
	    gpc_pool_lend(d, pool, 1, mine + BLOCKS * PIECE, BLOCKS * PIECE) ||
	    gpc_pool_map(d, pool, 1, &base, &bytes))
		_exit(4);
}

static void make(gpc *d, uint32_t kind)
{
	struct gpc_pool p = pool_with(kind, BLOCKS, 3);
	struct gpc_memory m = { .size = sizeof(m),
				.block_bytes = IMAGE,
				.threads = kind == GPC_RAM };

	p.flags = kind == GPC_VRAM ? GPC_POOL_OWNED : 0;
	if (gpc_pool_make(d, &p, &m, 2000) < 0)
		_exit(4);
}

static void makes_ram(gpc *d, uint64_t key)
{
	(void)key;
	make(d, GPC_RAM);
}

static void makes_vram(gpc *d, uint64_t key)
{
	(void)key;
	make(d, GPC_VRAM);
}

/* ---- and who sweeps ---- */

#define STEP(type, name, params, args)     \
	type __real_##name params;         \
	type __wrap_##name params;         \
	type __wrap_##name params          \
	{                                  \
		stores_step();             \
		return __real_##name args; \
	}
STEP(int, fd_open, (const char *path, int flags, mode_t mode), (path, flags, mode))
STEP(void, fd_close, (int fd), (fd))
STEP(int, lock_try, (int fd, uint64_t byte), (fd, byte))
STEP(int, segment_remove_file, (const struct segment *s, const char *suffix), (s, suffix))

static void sweeps(gpc *d, uint64_t key)
{
	(void)key;
	memory_sweep(&d->seg);
}

/* A file that nobody has any more. */
static void leave_orphan(uint32_t kind)
{
	struct memory m = { .kind = kind,
			    .slots = BLOCKS,
			    .nruns = 1,
			    .nparts = 1,
			    .block_bytes = IMAGE,
			    .images_bytes = IMAGE * BLOCKS,
			    .run = { { .count = 1, .bytes = IMAGE, .slot_stride = IMAGE } } };

	must(memory_make(&c->seg, &m, NULL));
	memory_close(&m);
}

/* Dies before that store, or comes through. */
static int runs(void (*what)(gpc *d, uint64_t key), uint64_t key, uint32_t before)
{
	int status = 0, i;
	pid_t pid = fork();

	if (!pid) {
		gpc *d = cache_attach(0, 0);

		said->seat = info_of(d).peer;
		said->key = key;
		said->to = GPC_NONE;
		for (i = 0; i < 2; i++)
			said->done[i] = seg_transfer(&d->seg, d->peer)->done[i];
		stores_begin(d, before);
		what(d, key);
		stores_end();
		_exit(0);
	}
	while (waitpid(pid, &status, WNOHANG) == 0)
		must(gpc_writer_serve(c, 1));
	return status;
}

/* ---- who is left ---- */

/* What the words of the dead say, before anybody has looked at its seat. */
static bool done_has_bytes(void)
{
	const uint64_t *done = seg_transfer(&c->seg, (uint32_t)said->seat)->done;

	return (done[0] == said->done[0] && done[1] == said->done[1]) ||
	       (said->to >= 0 && has(c, said->to, said->key));
}

/* Memory that the dead was about to make or lend is there as a whole, or not yet: read before
 * anybody has seen that it is dead. */
static bool parts_are_whole(void)
{
	uint64_t bytes;
	bool whole = true;
	void *base;
	uint32_t part;
	int i, err;

	for (i = OTHER + 1; i < (int)info_of(c).max_pools; i++) {
		for (part = 0; part < 2; part++) {
			err = gpc_pool_map(c, i, part, &base, &bytes);
			whole &= err != -EBADMSG;
		}
		gpc_pool_unmap(c, i);
	}
	return whole;
}

static bool come(uint64_t (*count)(void))
{
	int i;

	for (i = 0; i < 2000 && count(); i++)
		must(gpc_writer_serve(c, 1));
	return !count();
}

static uint64_t others(void)
{
	return info_of(c).peers - 1;
}

/* VRAM of the dead. */
static uint64_t left(void)
{
	struct gpc_pool p = { .size = sizeof(p) };
	uint64_t n = 0;
	int i;

	for (i = OTHER + 1; i < (int)info_of(c).max_pools; i++)
		n += gpc_pool_get(c, i, &p) == 0 && p.kind == GPC_VRAM;
	return n;
}

static uint64_t held(void)
{
	struct gpc_stats s = stats_of(c, -1);

	return s.refs + s.reserved + s.dying;
}

static bool all_available(void)
{
	int p;

	for (p = RAM; p <= OTHER; p++)
		if (gpc_pool_available(c, p) != BLOCKS)
			return false;
	return true;
}

static bool keys_have_bytes(void)
{
	uint64_t n;

	for (n = 1; n <= KEYS; n++) {
		gpc_block b = find(c, n);

		if (b < 0 || !has(c, b, n))
			return false;
	}
	return true;
}

static int pools_with_memory(void)
{
	struct gpc_pool p = { .size = sizeof(p) };
	int i, n = 0;

	for (i = 0; i < (int)info_of(c).max_pools; i++)
		n += gpc_pool_get(c, i, &p) == 0 && p.memory;
	return n;
}

/* RAM outlives who made it. */
static void remove_made(void)
{
	int i;

	for (i = OTHER + 1; i < (int)info_of(c).max_pools; i++)
		gpc_pool_clear(c, i, 0, GPC_REMOVE, 2000);
}

/* Every key is in the pool where a round begins. */
static void put_back(int pool)
{
	struct gpc_move m;
	uint64_t n;

	for (n = 1; n <= KEYS; n++) {
		gpc_key k = key_of(c, n);
		gpc_block b = find(c, n);

		if (GPC_POOL(b) == pool)
			continue;
		must(gpc_acquire(c, 0, &k, 1, &b, 0));
		if ((pool == RAM ? gpc_demote(c, VRAM, RAM, &b, 1, &m, 0, 1000)
				 : gpc_promote(c, &b, 1, VRAM, &m, 0, 1000)) != 1 ||
		    copy(c, &m) || gpc_commit(c, &m, 1, NULL, 0, 1000) != 1)
			bail("key %d cannot be put back: %s", (int)n, gpc_last_error());
		must(gpc_release(c, &m.to, 1));
	}
}

/* NULL: nothing is wrong. */
static const char *look(void)
{
	if (!done_has_bytes())
		return "a copy is said to be done that is not";
	if (!parts_are_whole())
		return "memory is there by half";
	if (!come(others))
		return "the seat of the dead is not free";
	if (!come(left))
		return "VRAM of the dead has a pool";
	if (!come(held))
		return "blocks are held";
	if (!all_available())
		return "blocks are missing";
	if (!keys_have_bytes())
		return "a key has other bytes, or none";
	if (!memory_files_come_to(c, pools_with_memory()))
		return "a file without pool, or a pool without file";
	return gpc_check(c, cache_line, NULL) ? "gpc_check" : NULL;
}

static void test_stores(void (*what)(gpc *d, uint64_t key), int pool, uint32_t step,
			const char *name)
{
	uint32_t n, died = 0;
	const char *wrong = NULL;
	int status = -1;

	new_cache();
	step = getenv("GPC_T_ROUNDS") ? 1 : step;
	for (n = 1; n < STORES && !wrong && status; n += step) {
		put_back(pool);
		if (what == sweeps) {
			leave_orphan(GPC_RAM);
			leave_orphan(GPC_VRAM);
		}
		status = runs(what, 1 + n % KEYS, n);
		if (WIFEXITED(status) && status)
			wrong = "it could not do what it should";
		else
			wrong = look();
		died += WIFSIGNALED(status) && WTERMSIG(status) != SIGALRM;
		remove_made();
		if (!wrong && !memory_files_come_to(c, OTHER + 1))
			wrong = "files are left";
	}
	ok(!wrong, "%s: dead before %u of %u stores: %s", name, died, n - step,
	   wrong ? wrong : "nothing is wrong");
	if (wrong)
		diag("status %x: %s", status, gpc_last_error());
	ok(!status && died, "and then it came through");
	cache_end(c);
}

static int body(void)
{
	cache_thread = false;
	said = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (said == MAP_FAILED)
		bail("no shared page");
	test_stores(moves, VRAM, 1, "a move down");
	test_stores(moves, RAM, 1, "a move up");
	test_stores(copies, VRAM, 11, "a copy from RAM to RAM");
	test_stores(maps, VRAM, 1, "maps");
	test_stores(makes_ram, VRAM, 23, "RAM is made");
	test_stores(makes_vram, VRAM, 23, "VRAM is made");
	test_stores(lends, VRAM, 3, "memory is lent");
	test_stores(sweeps, VRAM, 1, "a sweep");
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
