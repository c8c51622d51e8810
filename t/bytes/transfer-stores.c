/* SPDX-License-Identifier: Apache-2.0 */
/* A peer dies before each store into shared memory of gpc_fetch, gpc_spill, of a claim, of
 * gpc_release_after, and of gpc_transfer_mark, for a transfer of its own and for another peer's.
 * Who is left finds each key with its bytes, those that the device has said to be done where they
 * are to be; what it holds itself keeps its bytes all the while; and nothing stays held, claimed or
 * under way.
 *
 *   GPC_T_ROUNDS=1    each store of all of them; else some
 * Tests: lib/bytes/payload/bring.c lib/index/claim/claim.c lib/bytes/payload/order.c lib/bytes/payload/mark.c */
#include "t/lib/memory_files.h"
#include "t/lib/stores.h"

#include <sys/wait.h>

enum {
	BLOCKS = 4,
	KEYS = 2,
	LAYERS = 2,
	PIECE = 64,
	IMAGE = LAYERS * PIECE,
	STORES = 3000,
	WORDS = 4
};
enum { RAM, VRAM };

static gpc *c;         /* who is left */
static gpc_block kept; /* what it holds */

/* What the dying says, and is told. */
static struct {
	int32_t seat, leader;
	uint64_t done[WORDS], key;
	gpc_transfer transfer;
	uint32_t go;
} * said;

struct scene {
	const char *name;
	void (*run)(gpc *d, uint64_t key);
	void (*with)(gpc *leader); /* done by who is left, once the dying has its seat */
	int from, to;              /* where keys are before; where done has them, or -1 */
	uint32_t step;
	bool keeps; /* somebody else has a reference on the source */
};

/* ---- bytes ---- */

static uint8_t byte_of(uint64_t key, uint32_t i)
{
	return (uint8_t)(key * 61 + i * 7 + 1);
}

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

/* ---- the cache ---- */

static void new_cache(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_pool ram = pool_with(GPC_RAM, BLOCKS, 0), vram = pool_of(GPC_VRAM, BLOCKS, 0);
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = IMAGE };
	struct gpc_run run = {
		.count = LAYERS, .bytes = PIECE, .slot_stride = PIECE, .run_stride = BLOCKS * PIECE
	};
	struct gpc_memory l = { .size = sizeof(l), .device = "host", .nruns = 1, .runs = &run };
	gpc_block b;
	uint64_t n;

	cfg.max_blocks = 64;
	cfg.quarantine_ms = 3600000; /* exits are seen, or nothing comes back */
	c = cache_make(&cfg, NULL);
	vram.flags = GPC_POOL_OWNED;
	vram.demote_to = RAM;
	must(gpc_pool_make(c, &ram, &m, -1));
	must(gpc_pool_make(c, &vram, &l, -1));
	for (n = 1; n <= KEYS; n++) {
		gpc_key k = key_of(c, n);

		must(gpc_reserve(c, VRAM, 1, &b, NULL, 0, 60000));
		fill(c, b, n);
		if (must(gpc_publish(c, NULL, &k, &b, 1, NULL, 0, -1)) != 1)
			bail("key %d was not published", (int)n);
		must(gpc_release(c, &b, 1));
	}
}

static void need_that(bool good, int status)
{
	if (good)
		return;
	fprintf(stderr, "# %s\n", gpc_last_error());
	_exit(status);
}

static void moves(gpc *d, uint64_t key, bool up)
{
	gpc_key k = key_of(d, key);
	gpc_transfer t = 0;
	gpc_block b = find(d, key);

	if (up) {
		need_that(gpc_fetch(d, VRAM, &k, 1, &b, NULL, GPC_VERIFY_FIRST, NULL, 1000, &t) ==
				  1,
			  2);
		need_that(gpc_transfer_wait(d, t, 5000) == 0 && has(d, b, key), 3);
		need_that(gpc_release(d, &b, 1) == 0, 4);
		return;
	}
	need_that(gpc_spill(d, VRAM, RAM, &b, 1, NULL, 0, NULL, 1000, &t) == 1, 5);
	need_that(gpc_transfer_wait(d, t, 5000) == 0 && has(d, find(d, key), key), 6);
}

/* Every key is in the pool where a round begins. */
static void put_back(int pool)
{
	gpc_transfer t = 0;
	uint64_t n;

	for (n = 1; n <= KEYS; n++) {
		gpc_key k = key_of(c, n);
		gpc_block b = find(c, n);

		if (GPC_POOL(b) == pool)
			continue;
		if ((pool == RAM ? gpc_spill(c, VRAM, RAM, &b, 1, NULL, 0, NULL, 1000, &t)
				 : gpc_fetch(c, VRAM, &k, 1, &b, NULL, 0, NULL, 1000, &t)) != 1 ||
		    gpc_transfer_wait(c, t, 5000))
			bail("key %d cannot be put back: %s", (int)n, gpc_last_error());
		if (pool == VRAM)
			must(gpc_release(c, &b, 1));
	}
}

/* ---- who dies ---- */

static void fetches(gpc *d, uint64_t key)
{
	moves(d, key, true);
}

static void spills(gpc *d, uint64_t key)
{
	moves(d, key, false);
}

/* Two claims: one ends by a publish, the other with its reservation. */
static void claims(gpc *d, uint64_t key)
{
	gpc_key k[2] = { key_of(d, 1000 + key), key_of(d, 2000 + key) };
	struct gpc_claim claim[2];
	gpc_block b[2], live;

	need_that(gpc_reserve(d, VRAM, 2, b, NULL, 0, 1000) == 2, 2);
	need_that(gpc_claim(d, k, b, 2, claim, 0, 1000) == 2, 3);
	fill(d, b[0], 1000 + key);
	need_that(gpc_publish(d, NULL, k, b, 1, NULL, 0, 1000) == 1, 4);
	live = b[0];
	need_that(gpc_claim_drop(d, b + 1, 1, 1000) == 1, 5);
	need_that(gpc_claim(d, k + 1, b + 1, 1, claim, 0, 1000) == 1, 6);
	need_that(gpc_release(d, b, 2) == 0 && gpc_drop(d, &live, 1, NULL, 0, 1000) == 1, 7);
}

static uint64_t refs_of(gpc *d)
{
	return stats_of(d, info_of(d).peer).refs;
}

static void releases(gpc *d, uint64_t key)
{
	gpc_key k = key_of(d, key);
	gpc_block b;
	int i;

	need_that(gpc_acquire(d, 0, &k, 1, &b, 0) == 1, 2);
	need_that(gpc_release_after(d, &b, 1, NULL) == 0, 3);
	for (i = 0; i < 5000 && refs_of(d); i++)
		usleep(100);
	need_that(!refs_of(d), 4);
}

/* As a rank of its own transfer: the copies are its own, too. */
static void marks(gpc *d, uint64_t key)
{
	int32_t self = said->seat;
	struct gpc_move m;
	uint32_t n = 0;
	struct gpc_fetch_options o = {
		.size = sizeof(o), .nranks = 1, .ranks = &self, .moves = &m, .nmoves = &n
	};
	gpc_key k = key_of(d, key);
	gpc_transfer t = 0;
	gpc_block b;

	need_that(gpc_fetch(d, VRAM, &k, 1, &b, &o, 0, NULL, 1000, &t) == 1 && n == 1, 2);
	fill(d, b, key);
	need_that(gpc_transfer_mark(d, self, t, NULL) == 0, 3);
	need_that(gpc_transfer_wait(d, t, 5000) == 0, 4);
	need_that(gpc_release(d, &b, 1) == 0, 5);
}

/* As a rank of the transfer of who is left. */
static void leads(gpc *leader)
{
	struct gpc_move m;
	uint32_t n = 0;
	struct gpc_fetch_options o = {
		.size = sizeof(o), .nranks = 1, .ranks = &said->seat, .moves = &m, .nmoves = &n
	};
	gpc_key k = key_of(leader, said->key);

	if (gpc_fetch(leader, VRAM, &k, 1, &kept, &o, 0, NULL, 1000, &said->transfer) != 1)
		bail("a leader: %s", gpc_last_error());
	fill(leader, kept, said->key);
	said->leader = info_of(leader).peer;
}

static void follows(gpc *d, uint64_t key)
{
	const struct shm_xfer *x =
		seg_xfer(&d->seg, (uint32_t)said->leader, said->transfer % SHM_TRANSFERS);
	int i;

	(void)key;
	need_that(gpc_transfer_mark(d, said->leader, said->transfer, NULL) == 0, 2);
	for (i = 0; i < 5000 && load_acquire(&x->left); i++)
		usleep(100);
	need_that(gpc_close(d) == 0, 3);
}

static int runs(const struct scene *s, uint64_t key, uint32_t before)
{
	int status = 0, i;
	pid_t pid;

	store_release(&said->go, 0);
	said->key = key;
	pid = fork();
	if (!pid) {
		gpc *d = cache_attach(0, 0);

		said->seat = info_of(d).peer;
		for (i = 0; i < WORDS; i++)
			said->done[i] = seg_transfer(&d->seg, d->peer)->done[i];
		store_release(&said->go, 1);
		while (s->with && load_acquire(&said->go) != 2)
			usleep(20);
		stores_begin(d, before);
		s->run(d, key);
		stores_end();
		_exit(0);
	}
	while (!load_acquire(&said->go))
		must(gpc_writer_serve(c, 1));
	if (s->with)
		s->with(c);
	store_release(&said->go, 2);
	while (waitpid(pid, &status, WNOHANG) == 0)
		must(gpc_writer_serve(c, 0));
	return status;
}

/* ---- who is left ---- */

static bool said_done(void)
{
	const uint64_t *done = seg_transfer(&c->seg, (uint32_t)said->seat)->done;
	int i;

	for (i = 0; i < WORDS; i++)
		if (load_acquire(&done[i]) != said->done[i])
			return true;
	return false;
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

static uint64_t under_way(void)
{
	return stats_of(c, -1).transfers;
}

static uint64_t held(void)
{
	struct gpc_stats s = stats_of(c, -1);

	return s.refs + s.reserved + s.dying;
}

static bool is_claimed(void)
{
	struct gpc_claim claim[4];
	uint64_t cursor = 0;

	return must(gpc_claim_walk(c, &cursor, claim, 4)) > 0;
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

/* What claims() published, and nobody dropped. */
static bool drop_published(uint64_t key)
{
	gpc_block b = find(c, 1000 + key);

	if (b >= 0 && !has(c, b, 1000 + key))
		return false;
	if (b >= 0)
		must(gpc_drop(c, &b, 1, NULL, 0, -1));
	return true;
}

/* NULL: nothing is wrong. */
static const char *look(const struct scene *s, uint64_t key)
{
	bool is_done = said_done();

	if (kept >= 0 && !has(c, kept, key))
		return "what somebody holds has other bytes";
	if (!come(others))
		return "the seat of the dead is not free";
	if (!come(under_way))
		return "a transfer is under way";
	if (kept >= 0) {
		if (!has(c, kept, key))
			return "what somebody holds has other bytes in the end";
		must(gpc_release(c, &kept, 1));
		kept = GPC_NONE;
	}
	if (!drop_published(key))
		return "a key that was published has other bytes";
	if (!come(held))
		return "blocks are held";
	if (is_claimed())
		return "a key is claimed";
	if (gpc_pool_available(c, RAM) != BLOCKS || gpc_pool_available(c, VRAM) != BLOCKS)
		return "blocks are missing";
	if (!keys_have_bytes())
		return "a key has other bytes, or none";
	if (is_done && s->to >= 0 && GPC_POOL(find(c, key)) != s->to)
		return "it is done, and not committed";
	return gpc_check(c, cache_line, NULL) ? "gpc_check" : NULL;
}

static void test_stores(const struct scene *s)
{
	uint32_t n, died = 0, step = getenv("GPC_T_ROUNDS") ? 1 : s->step;
	const char *wrong = NULL;
	int status = -1;

	new_cache();
	for (n = 1; n < STORES && !wrong && status; n += step) {
		uint64_t key = 1 + n / step % KEYS;
		gpc_key k = key_of(c, key);

		put_back(s->from);
		kept = GPC_NONE;
		if (s->keeps)
			must(gpc_acquire(c, 0, &k, 1, &kept, 0));
		status = runs(s, key, n);
		if (WIFEXITED(status) && status)
			wrong = "it could not do what it should";
		else
			wrong = look(s, key);
		died += WIFSIGNALED(status) && WTERMSIG(status) != SIGALRM;
	}
	ok(!wrong, "%s%s: dead before %u of %u stores: %s", s->name,
	   s->keeps ? ", somebody reads" : "", died, n - step, wrong ? wrong : "nothing is wrong");
	if (wrong)
		diag("status %x: %s", (unsigned)status, gpc_last_error());
	ok(!status && died, "and then it came through");
	cache_end(c);
}

static const struct scene scenes[] = {
	{ "fetch", fetches, NULL, RAM, VRAM, 1, false },
	{ "fetch", fetches, NULL, RAM, VRAM, 3, true },
	{ "spill", spills, NULL, VRAM, RAM, 1, false },
	{ "spill", spills, NULL, VRAM, RAM, 3, true },
	{ "claims", claims, NULL, VRAM, -1, 7, false },
	{ "release after", releases, NULL, VRAM, -1, 1, false },
	{ "a mark of its own", marks, NULL, RAM, -1, 5, false },
	{ "a mark of its own", marks, NULL, RAM, -1, 9, true },
	{ "a mark for another", follows, leads, RAM, -1, 7, false },
};

static int body(void)
{
	size_t i;

	cache_thread = false;
	said = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (said == MAP_FAILED)
		bail("no shared page");
	for (i = 0; i < ARRAY_SIZE(scenes); i++)
		test_stores(&scenes[i]);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
