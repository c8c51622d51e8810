/* SPDX-License-Identifier: Apache-2.0 */
/* What the feed tells is what a walk finds, whichever store its writer dies before.
 *
 * The process that asks is the writer, too: nobody is left who would ask again.  The next writer
 * dies as well, before some store of its takeover.  When the one after that has taken over, the
 * feed is replayed and compared with a walk, and all that has been told of has happened.
 *
 *   GPC_T_ROUNDS=1    each store, not each third one
 * Tests: lib/index/table/events.c lib/index/takeover/takeover.c */
#include "t/lib/cache.h"

#include <sys/wait.h>

#include "index/peer/handle.h"
#include "t/lib/stops.h"

enum {
	VRAM = 6,
	RAM = 4,
	CHAIN = 5,
	IN_VRAM = 3,
	OTHER = 4,
	TAG = 7,
	STORES = 4000,
	SLOTS = 128,
	POOLS = 5
};

static gpc *c;                 /* the last writer */
static uint64_t keys = 1;      /* numbers of keys */
static int other;              /* a pool that comes and goes */
static uint32_t other_life;    /* its generation */
static uint64_t first_key;     /* of this round's chain ... */
static gpc_block chain[CHAIN]; /* ... the first IN_VRAM of it are in VRAM */

/* ---- what the cache has before each round ---- */

static void store(int pool, uint32_t n, const uint32_t *tags, gpc_block *b)
{
	gpc_key k[CHAIN + 1];
	uint32_t i;

	chain_keys(c, keys, n, k);
	keys += n;
	must(gpc_reserve(c, pool, n, b, NULL, 0, 60000));
	for (i = 0; i < n; i++)
		must(gpc_publish(c, k + i, k + i + 1, b + i, 1,
				 GPC_OPTIONS(gpc_publish_options, .tag = tags[i]), 0, -1));
	must(gpc_release(c, b, n));
}

static void to_ram(gpc_block *b)
{
	struct gpc_move m;

	if (must(gpc_demote(c, 0, 1, b, 1, &m, 0, 60000)) != 1)
		bail("a block cannot be demoted");
	must(gpc_commit(c, &m, 1, NULL, 0, -1));
	*b = m.to;
}

static void add_other(void)
{
	struct gpc_pool p = pool_of(GPC_VRAM, OTHER, 1);

	other = must(gpc_pool_make(c, &p, NULL, -1));
	p.size = sizeof(p);
	must(gpc_pool_get(c, other, &p));
	other_life = p.generation;
}

static void fill(void)
{
	static const uint32_t tags[] = { 0, TAG, 0, TAG, 0, TAG };
	struct gpc_pool p = { .size = sizeof(p) };
	gpc_block b[OTHER];
	int i;

	must(gpc_pool_clear(c, -1, 0, 0, 60000));
	settle(c);
	if (other < 0 || gpc_pool_get(c, other, &p) < 0)
		add_other();
	first_key = keys;
	store(0, CHAIN, tags, chain);
	for (i = CHAIN; i-- > IN_VRAM;)
		to_ram(&chain[i]);
	store(0, 1, tags, b);
	store(other, 3, tags, b);
	settle(c);
}

/* ---- what is done; by the one who dies ---- */

static bool clear_one(gpc *d)
{
	return gpc_pool_clear(d, 0, 0, 0, 0) == 0;
}
static bool clear_all(gpc *d)
{
	return gpc_pool_clear(d, -1, 0, 0, 0) == 0;
}
static bool clear_tag(gpc *d)
{
	return gpc_pool_clear(d, 0, TAG, 0, 0) == 0;
}
static bool clear_tags(gpc *d)
{
	return gpc_pool_clear(d, -1, TAG, 0, 0) == 0;
}
static bool shut(gpc *d)
{
	return gpc_pool_clear(d, other, 0, GPC_REMOVE, 1000) == 0;
}
static bool drop(gpc *d)
{
	return gpc_drop(d, &chain[1], 1, NULL, 0, -1) == 1;
}

static bool evict(gpc *d)
{
	gpc_block b[2];

	return gpc_evict(d, 0, 2, b, 0, 1000) == 2;
}

static bool demote(gpc *d)
{
	struct gpc_move m;

	return gpc_demote(d, 0, 1, &chain[IN_VRAM - 1], 1, &m, 0, 1000) == 1 &&
	       gpc_commit(d, &m, 1, NULL, 0, -1) == 1;
}

static bool promote(gpc *d)
{
	gpc_key k = key_of(d, first_key + IN_VRAM);
	struct gpc_move m;
	gpc_block b;

	return gpc_acquire(d, 0, &k, 1, &b, 0) == 1 && gpc_promote(d, &b, 1, 0, &m, 0, 1000) == 1 &&
	       gpc_commit(d, &m, 1, NULL, 0, -1) == 1 && gpc_release(d, &m.to, 1) == 0;
}

static bool publish(gpc *d)
{
	gpc_key k = key_of(d, keys);
	gpc_block b;

	return gpc_reserve(d, 0, 1, &b, NULL, 0, 1000) == 1 &&
	       gpc_publish(d, NULL, &k, &b, 1, GPC_OPTIONS(gpc_publish_options, .tag = TAG), 0,
			   -1) == 1 &&
	       gpc_release(d, &b, 1) == 0;
}

/* Of a key that is in RAM. */
static bool publish_over(gpc *d)
{
	gpc_key up = key_of(d, first_key + IN_VRAM - 1), k = key_of(d, first_key + IN_VRAM);
	gpc_block b;

	return gpc_reserve(d, 0, 1, &b, NULL, 0, 1000) == 1 &&
	       gpc_publish(d, &up, &k, &b, 1, NULL, 0, -1) == 1 && gpc_release(d, &b, 1) == 0;
}

/* A pool whose owner has died. */
static bool reap(gpc *d)
{
	int i;

	for (i = 0; i < 50; i++)
		must(gpc_writer_serve(d, 1));
	return info_of(d).pools == 3;
}

static const struct act {
	const char *what;
	bool (*act)(gpc *d);
	bool owner;
} acts[] = {
	{ "a clear of a pool", clear_one, false },
	{ "a clear of all pools", clear_all, false },
	{ "a clear of a tag", clear_tag, false },
	{ "a clear of a tag in all pools", clear_tags, false },
	{ "the removal of a pool", shut, false },
	{ "a drop", drop, false },
	{ "an eviction", evict, false },
	{ "a demotion", demote, false },
	{ "a promotion", promote, false },
	{ "a publication", publish, false },
	{ "a publication over RAM", publish_over, false },
	{ "the end of a pool whose owner died", reap, true },
};

/* ---- who dies ---- */

static uint64_t *count; /* of stores; shared */
static uint32_t *kept;  /* the owner is ready; shared */

static bool was_killed(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status))
		bail("what it did was refused");
	return WIFSIGNALED(status);
}

static pid_t child_of(void)
{
	pid_t pid = fork();

	if (pid < 0)
		bail("no process");
	return pid;
}

static bool first_dies(const struct act *a, uint64_t last)
{
	pid_t pid = child_of();
	gpc *d;

	if (pid)
		return was_killed(pid);
	d = cache_attach(0, 0);
	must(gpc_writer_take(d, 0, 0));
	while (load_acquire(&seg_state(&d->seg)->recovering))
		must(gpc_writer_serve(d, 1));
	*count = 0;
	stops.count = count;
	stops.last = last;
	stops_begin();
	_exit(a->act(d) ? 0 : 1);
}

static void second_dies(uint64_t last)
{
	pid_t pid = child_of();

	if (pid) {
		was_killed(pid);
		return;
	}
	*count = 0;
	stops.count = count;
	stops.last = last;
	stops.on_map = true;
	gpc_writer_take(cache_attach(0, 0), 0, 0);
	_exit(0);
}

/* It makes a pool of its own, and waits to be killed. */
static pid_t owner(void)
{
	pid_t pid = child_of();
	gpc_block b[2];
	gpc_key k[2];
	int pool;
	gpc *d;

	if (!pid) {
		d = cache_attach(0, 0);
		pool = pool_new(d, GPC_VRAM, 2, 2, GPC_POOL_OWNED);
		k[0] = key_of(d, keys);
		k[1] = key_of(d, keys + 1);
		must(gpc_reserve(d, pool, 2, b, NULL, 0, 60000));
		must(gpc_publish(d, NULL, &k[0], &b[0], 1, NULL, 0, -1));
		must(gpc_publish(d, &k[0], &k[1], &b[1], 1, NULL, 0, -1));
		store_release(kept, 1);
		for (;;)
			pause();
	}
	while (!load_acquire(kept))
		must(gpc_writer_serve(c, 1));
	store_release(kept, 0);
	return pid;
}

/* ---- feed and walk ---- */

static struct content {
	gpc_key key[POOLS][SLOTS];
} told, there;
static uint64_t cursor;

static gpc_key *at(struct content *t, gpc_block b)
{
	if (b < 0 || GPC_POOL(b) >= POOLS || GPC_SLOT(b) >= SLOTS)
		bail("block 0x%x", (unsigned)b);
	return &t->key[GPC_POOL(b)][GPC_SLOT(b)];
}

static void apply(const struct gpc_event *ch)
{
	static const gpc_key none;

	switch (ch->what) {
	case GPC_MOVED:
		*at(&told, ch->was) = none;
		/* fall through */
	case GPC_STORED:
		*at(&told, ch->block) = ch->key;
		break;
	case GPC_REMOVED:
		if (key_is(*at(&told, ch->block), ch->key))
			*at(&told, ch->block) = none;
		break;
	default:
		if (!ch->tag)
			memset(told.key[GPC_POOL(ch->block)], 0, sizeof(told.key[0]));
	}
}

static void replay(void)
{
	struct gpc_event ch[64];
	int i, n;

	while ((n = must(gpc_event_read(c, &cursor, ch, 64))) > 0)
		for (i = 0; i < n; i++)
			apply(&ch[i]);
}

static bool agree(const char *when, const struct act *a, uint64_t store_number)
{
	uint64_t walk = 0;
	struct gpc_entry e[64];
	int i, n, differ = 0;

	replay();
	memset(&there, 0, sizeof(there));
	while ((n = must(gpc_walk(c, &walk, e, 64))) > 0)
		for (i = 0; i < n; i++)
			*at(&there, e[i].block) = e[i].key;
	for (i = 0; i < POOLS * SLOTS; i++)
		differ += !key_is(told.key[i / SLOTS][i % SLOTS], there.key[i / SLOTS][i % SLOTS]);
	if (differ)
		diag("%s, store %d: %d blocks differ from what the feed tells %s", a->what,
		     (int)store_number, differ, when);
	return !differ;
}

/* ---- a round ---- */

/* READY again, whatever came before: the number was used once more. */
static bool pool_has_aged(void)
{
	struct gpc_pool p = { .size = sizeof(p) };
	uint32_t before = other_life;
	int i, was = other;

	if (gpc_pool_get(c, other, &p) == 0)
		return p.generation == before;
	for (i = 0; i < 500 && seg_pool(&c->seg, (uint32_t)other)->state != POOL_FREE; i++)
		must(gpc_writer_serve(c, 1));
	add_other();
	if (other == was && other_life == before + 2)
		return true;
	diag("pool %d of generation %u is pool %d of %u in its next life", was, before, other,
	     other_life);
	return false;
}

static bool is_round_good(const struct act *a, uint64_t n, bool *died)
{
	pid_t pid = -1;
	bool good;
	int i;

	fill();
	if (a->owner)
		pid = owner();
	if (!agree("before", a, n))
		return false;
	must(gpc_writer_drop(c));
	if (pid > 0) {
		kill(pid, SIGKILL);
		was_killed(pid);
	}
	*died = first_dies(a, n);
	second_dies(1 + n * 29 % 211);
	must(gpc_writer_take(c, 0, 0));
	good = agree("after the takeover", a, n);
	for (i = 0; i < 500 && info_of(c).peers > 1; i++)
		must(gpc_writer_serve(c, 1));
	settle(c);
	return good && agree("when all is quiet", a, n) && (a->act != shut || pool_has_aged()) &&
	       gpc_check(c, cache_line, NULL) == 0;
}

static void test_act(const struct act *a)
{
	uint64_t n, step = getenv("GPC_T_ROUNDS") ? 1 : 3;
	struct gpc_config cfg = cache_config(VRAM, RAM);
	bool died = true, good = true;

	cfg.max_blocks = 96;
	cfg.max_pools = POOLS;
	c = cache_make(&cfg, NULL);
	memset(&told, 0, sizeof(told));
	cursor = 0;
	other = -1;
	for (n = 1; n < STORES && died && good; n += step)
		good = is_round_good(a, n, &died);
	ok(good, "%s dies before store %d: the feed tells what a walk finds", a->what,
	   (int)(n - step));
	ok(!good || !died, "and so it is after all of its stores");
	cache_end(c);
}

static int body(void)
{
	size_t i;

	cache_thread = false;
	count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (count == MAP_FAILED)
		bail("no shared page");
	kept = (uint32_t *)(count + 1);
	for (i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
		test_act(&acts[i]);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(110, body, cache_dir_remove);
}
