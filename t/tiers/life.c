/* SPDX-License-Identifier: Apache-2.0 */
/* The steward of a tier dies under a call that waits for it, and another one keeps the tiers before
 * the caller has looked: what the new one has on its disk is no answer about what the old one's
 * file still had.
 * Tests: lib/index/request/durable.c lib/tiers/steward/board.c lib/look/tiers.c */
#include "t/lib/below.h"
#include "t/lib/remote.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "index/base/futex.h"
#include "index/peer/handle.h"

static int ram, vram;

/* ---- a caller that sleeps through all that happens ---- */

int __real_futex_wait(uint32_t *word, uint32_t value, uint64_t ns);
int __wrap_futex_wait(uint32_t *word, uint32_t value, uint64_t ns);

static uint32_t *told; /* the word that callers sleep on, while they are to sleep on */
static uint32_t asleep;
static __thread bool calls;

int __wrap_futex_wait(uint32_t *word, uint32_t value, uint64_t ns)
{
	if (!calls || word != __atomic_load_n(&told, __ATOMIC_SEQ_CST))
		return __real_futex_wait(word, value, ns);
	__atomic_store_n(&asleep, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&told, __ATOMIC_SEQ_CST))
		usleep(200);
	return 0;
}

struct call {
	gpc *c;
	int (*run)(struct call *q);
	gpc_block block;
	int pool, got;
	uint32_t tag;
	pthread_t thread;
};

static int run_drop(struct call *q)
{
	return gpc_drop(q->c, &q->block, 1, NULL, 0, 10000);
}

static int run_clear(struct call *q)
{
	return gpc_pool_clear(q->c, q->pool, q->tag, 0, 10000);
}

static int run_sync(struct call *q)
{
	return gpc_tiers_sync(q->c, 10000);
}

static void *run(void *arg)
{
	struct call *q = arg;

	calls = true;
	q->got = q->run(q);
	return NULL;
}

static void falls_asleep(struct call *q)
{
	asleep = 0;
	__atomic_store_n(&told, &seg_board(&q->c->seg)->news, __ATOMIC_SEQ_CST);
	pthread_create(&q->thread, NULL, run, q);
	while (!__atomic_load_n(&asleep, __ATOMIC_SEQ_CST))
		usleep(200);
}

static int wakes(struct call *q)
{
	__atomic_store_n(&told, NULL, __ATOMIC_SEQ_CST);
	pthread_join(q->thread, NULL);
	return q->got;
}

/* ---- caches ---- */

static pid_t steward_start(gpc *c, const struct gpc_tiers_options *o)
{
	const struct shm_board *board = seg_board(&c->seg);
	uint32_t before = load_acquire(&board->life), life;
	gpc_tiers *t;
	pid_t pid = fork();

	if (!pid) {
		if (gpc_tiers_open(cache_name, o, &t) < 0)
			_exit(3);
		for (;;)
			pause();
	}
	while ((life = load_acquire(&board->life)) == before || life & 1 || !tier_of(c).ready)
		usleep(500);
	return pid;
}

/* Chain 1 to 8 is below RAM, and its first two blocks are in RAM as well; 9 to 40 are other
 * chains. */
static void fill(gpc *c)
{
	gpc_key k[9];

	tiers_fill(c, ram, 1, 40, 8);
	chain_keys(c, 1, 8, k);
	must(gpc_prefetch(c, vram, k + 1, 2, 0, 5000));
	if (tiers_below(c, 1, 8) != 8)
		bail("the chain is not below");
}

/* ---- replaced ---- */

/* The call sleeps while its steward is stopped, killed, and replaced by one with that file. */
static int replaced(struct call *q, pid_t steward, struct gpc_tiers_options *next, gpc_tiers **ret)
{
	stop_process(steward);
	falls_asleep(q);
	kill(steward, SIGKILL);
	waitpid(steward, NULL, 0);
	*ret = tiers_open(next);
	must(gpc_tiers_sync(q->c, TIERS_MS));
	return wakes(q);
}

static void test_same_file(void)
{
	struct gpc_tiers_options o;
	gpc *c = tiers_begin(2048, &o, &ram, &vram);
	struct call q = { .c = c };
	pid_t pid = steward_start(c, &o);
	gpc_tiers *t;

	fill(c);
	o.disk_blocks = 0;
	q.run = run_clear;
	q.pool = tier_of(c).pool;
	is_int(replaced(&q, pid, &o, &t), -ENOTCONN,
	       "a clear of the pool on disk is not answered by the next steward");
	ok(tiers_below(c, 9, 8) > 0, "which has published blocks again");
	must(gpc_tiers_close(t));

	pid = steward_start(c, &o);
	must(gpc_tiers_sync(c, TIERS_MS));
	q.pool = -1;
	q.tag = 77;
	is_int(replaced(&q, pid, &o, &t), -ENOTCONN, "nor is a clear of a tag");
	must(gpc_tiers_close(t));

	pid = steward_start(c, &o);
	must(gpc_tiers_sync(c, TIERS_MS));
	q.run = run_drop;
	q.block = find(c, 1);
	if (q.block < 0) {
		gpc_key k[9];

		chain_keys(c, 1, 8, k);
		must(gpc_prefetch(c, vram, k + 1, 2, 0, 5000));
		q.block = find(c, 1);
	}
	is_int(replaced(&q, pid, &o, &t), 1,
	       "a drop is: the next steward of that file has read of it");
	is_int(tiers_below(c, 1, 8), 0, "and its chain is not there");
	must(gpc_tiers_close(t));

	pid = steward_start(c, &o);
	must(gpc_tiers_sync(c, TIERS_MS));
	q.run = run_clear;
	q.tag = 0;
	ok(replaced(&q, pid, &o, &t) >= 0, "so is a clear of all pools");
	is_int(tiers_below(c, 1, 40), 0, "and nothing is there");
	must(gpc_tiers_close(t));

	pid = steward_start(c, &o);
	must(gpc_tiers_sync(c, TIERS_MS));
	q.run = run_sync;
	is_int(replaced(&q, pid, &o, &t), -ENOTCONN,
	       "gpc_tiers_sync says that there was another one");
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	fetch_end(c, "same file");
}

/* It ends by itself, with all that was asked for on its disk, and another one comes before the
 * caller looks. */
static void test_said_before(void)
{
	struct gpc_tiers_options o;
	gpc *c = tiers_begin(2048, &o, &ram, &vram);
	struct call q = { .c = c, .run = run_clear };
	gpc_tiers *t = tiers_open(&o);

	fill(c);
	q.pool = tier_of(c).pool;
	falls_asleep(&q);
	must(gpc_tiers_close(t));
	o.disk_blocks = 0;
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	ok(wakes(&q) >= 0, "what the last steward had said before it ended is so");
	is_int(tiers_below(c, 1, 24), 0, "and nothing of it is there");
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	fetch_end(c, "said before");
}

/* ---- a steward that begins ---- */

static uint32_t hold, held;

int __real_plan_ram(struct gpc_tiers *t);
int __wrap_plan_ram(struct gpc_tiers *t);
int __wrap_plan_ram(struct gpc_tiers *t)
{
	while (__atomic_load_n(&hold, __ATOMIC_SEQ_CST)) {
		__atomic_store_n(&held, 1, __ATOMIC_SEQ_CST);
		usleep(200);
	}
	return __real_plan_ram(t);
}

static void *open_run(void *arg)
{
	return tiers_open(arg);
}

/* It has the lock, and does not follow the feed yet; a pool of a dead one is there still. */
static void test_begins(void)
{
	struct gpc_tiers_options o;
	gpc *c = tiers_begin(2048, &o, &ram, &vram);
	struct call q = { .c = c, .run = run_clear, .pool = -1, .tag = 77 };
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = GPC_DISK,
			      .space = 5,
			      .blocks = 8,
			      .demote_to = -1,
			      .flags = GPC_POOL_CALLER | GPC_POOL_UNCHAINED };
	gpc_tiers *t = tiers_open(&o);
	struct gpc_tier tier;
	pthread_t thread;
	void *ret;
	int pool;

	fill(c);
	must(gpc_tiers_close(t));
	pool = must(gpc_pool_make(c, &p, NULL, 5000));
	o.disk_blocks = 0;
	__atomic_store_n(&hold, 1, __ATOMIC_SEQ_CST);
	pthread_create(&thread, NULL, open_run, &o);
	while (!__atomic_load_n(&held, __ATOMIC_SEQ_CST))
		usleep(200);
	tier = tier_of(c);
	ok(tier.steward < 0 && tier.pool < 0 && !tier.ready && tier.state == GPC_TIER_DOWN,
	   "nobody keeps the tier while a steward begins: steward %d, pool %d, ready %u, state %u",
	   tier.steward, tier.pool, tier.ready, tier.state);
	falls_asleep(&q);
	__atomic_store_n(&hold, 0, __ATOMIC_SEQ_CST);
	pthread_join(thread, &ret);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(wakes(&q), -ENOTCONN,
	       "a steward that had not followed the feed does not answer for a clear of a tag");
	must(gpc_tiers_close(ret));
	must(gpc_pool_clear(c, pool, 0, GPC_REMOVE, 0));
	unlink(tiers_path);
	fetch_end(c, "begins");
}

/* It is killed, and the next one begins before anybody has seen that: in the same space. */
static void test_space(void)
{
	struct gpc_tiers_options o;
	gpc *c = tiers_begin(2048, &o, &ram, &vram);
	gpc_tiers *t = NULL;
	pid_t pid;
	int err;

	o.disk_space = 7;
	pid = steward_start(c, &o);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	err = gpc_tiers_open(cache_name, &o, &t);
	ok(err == 0, "a space that a dead steward's pool is in is had when that has gone: %d, %s",
	   err, gpc_last_error());
	o.disk_space = 0;
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	fetch_end(c, "space");
}

/* ---- another file, or none, in between ---- */

static void test_other_file(bool drop)
{
	const char *what = drop ? "a drop" : "a clear of all";
	struct gpc_tiers_options o, other;
	gpc *c = tiers_begin(2048, &o, &ram, &vram);
	struct call q = { .c = c, .run = drop ? run_drop : run_clear, .pool = -1 };
	pid_t pid = steward_start(c, &o);
	char first[96];
	gpc_tiers *t;

	fill(c);
	q.block = find(c, 1);
	strcpy(first, tiers_path);
	tiers_file();
	other = tiers_options(64);
	is_int(replaced(&q, pid, &other, &t), -ENOTCONN,
	       "%s is not answered by the steward of another file", what);
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	strcpy(tiers_path, first);
	t = tiers_again(c, &o);
	is_int(tiers_below(c, 1, 8), 0, "%s: the first file brings nothing back", what);
	is_int(tiers_below(c, 9, 8), drop ? 8 : 0, "%s: of others", what);
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	fetch_end(c, what);
}

/* A store alone is kept meanwhile, and acknowledges. */
static void test_store_between(const char *plugin, bool drop)
{
	const char *what = drop ? "a drop" : "a clear of all";
	struct gpc_tiers_options o, store;
	char folder[160], spec[512];
	gpc *c = tiers_begin(2048, &o, &ram, &vram);
	gpc_tiers *t = tiers_open(&o);
	gpc_block b;

	fill(c);
	must(gpc_tiers_close(t));
	snprintf(folder, sizeof(folder), "%s/store-%d", remote_dir, drop);
	snprintf(spec, sizeof(spec), "%s:dir=%s", plugin, folder);
	mkdir(folder, 0700);
	store = o;
	store.disk = NULL;
	store.disk_blocks = 0;
	store.remote = spec;
	store.remote_blocks = 64;
	t = tiers_open(&store);
	b = find(c, 1);
	ok((drop ? gpc_drop(c, &b, 1, NULL, 0, 10000) : gpc_pool_clear(c, -1, 0, 0, 10000)) >= 0,
	   "%s while a store alone is kept", what);
	must(gpc_tiers_close(t));
	t = tiers_again(c, &o);
	is_int(tiers_below(c, 1, 8), 0, "%s: the file brings nothing back", what);
	is_int(tiers_below(c, 9, 8), drop ? 8 : 0, "%s: of others", what);
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	fetch_end(c, what);
}

static int body(void)
{
	char plugin[160];

	remote_dir_make();
	test_same_file();
	test_said_before();
	test_begins();
	test_space();
	test_other_file(true);
	test_other_file(false);
	if (remote_plugin("folder", plugin, sizeof(plugin))) {
		test_store_between(plugin, true);
		test_store_between(plugin, false);
	}
	remote_dir_remove();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
