/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_drop says that bytes are bad.  Copies below RAM have the same bytes, and what follows them
 * was computed from them: none of it is found again, whenever the steward of the tiers dies, or is
 * not there.
 * Tests: lib/tiers/steward/drops.c lib/index/writer/drop.c lib/index/request/durable.c */
#include "t/lib/below.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "index/request/request.h"

static int ram, vram;

/* ---- a restart that stands still before it publishes ---- */

int __real_publish_copies(gpc *c, const struct publish_copy *p, uint32_t n, gpc_block *resident,
			  const uint32_t *stop);
int __wrap_publish_copies(gpc *c, const struct publish_copy *p, uint32_t n, gpc_block *resident,
			  const uint32_t *stop);

static uint32_t hold, held, hold_up, held_up;

int __wrap_publish_copies(gpc *c, const struct publish_copy *p, uint32_t n, gpc_block *resident,
			  const uint32_t *stop)
{
	while (p[0].source == GPC_NONE && __atomic_load_n(&hold, __ATOMIC_SEQ_CST)) {
		__atomic_store_n(&held, 1, __ATOMIC_SEQ_CST);
		usleep(500);
	}
	while (p[0].source != GPC_NONE && p[0].since &&
	       __atomic_load_n(&hold_up, __ATOMIC_SEQ_CST)) {
		__atomic_store_n(&held_up, 1, __ATOMIC_SEQ_CST);
		usleep(500);
	}
	return __real_publish_copies(c, p, n, resident, stop);
}

/* ---- a steward that dies once it has read what was dropped before it ---- */

static int says[2] = { -1, -1 }, goes_on[2];

void __real_drops_missed(struct gpc_tiers *t);
void __wrap_drops_missed(struct gpc_tiers *t);

void __wrap_drops_missed(struct gpc_tiers *t)
{
	char x = 0;

	if (says[1] < 0) {
		__real_drops_missed(t);
		return;
	}
	if (write(says[1], &x, 1) != 1 || read(goes_on[0], &x, 1) != 1)
		_exit(4);
	__real_drops_missed(t);
	kill(getpid(), SIGKILL);
	pause();
}

/* ---- a steward that has read of a drop, and stands still before it follows it ---- */

struct gpc_tiers;
bool drops_are_due(const struct gpc_tiers *t);
bool __real_drops_carry_out(struct gpc_tiers *t);
bool __wrap_drops_carry_out(struct gpc_tiers *t);

static uint32_t hold_drops;

bool __wrap_drops_carry_out(struct gpc_tiers *t)
{
	while (drops_are_due(t) && __atomic_load_n(&hold_drops, __ATOMIC_SEQ_CST))
		usleep(500);
	return __real_drops_carry_out(t);
}

/* ---- caches ---- */

static gpc *begin(struct gpc_tiers_options *o, uint32_t flags)
{
	gpc *c = tiers_begin(1024, o, &ram, &vram);

	o->flags = flags;
	return c;
}

/* Chain 1 to 8 is below RAM, and its first two blocks are in RAM as well; 9 to 40 are other
 * chains. */
static void fill(gpc *c)
{
	gpc_key k[9];

	tiers_fill(c, ram, 1, 40, 8);
	chain_keys(c, 1, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 2, 0, 5000), 2, "two blocks of a chain are in RAM");
	is_int(tiers_below(c, 1, 8), 8, "and all of it is below");
}

static int drop_first(gpc *c, int timeout_ms)
{
	gpc_block b = find(c, 1);

	return gpc_drop(c, &b, 1, NULL, 0, timeout_ms);
}

/* The chain is nowhere, and the next one is there. */
static void is_gone(gpc *c, const char *when)
{
	gpc_key k[9];

	chain_keys(c, 1, 8, k);
	is_int(tiers_below(c, 1, 8), 0, "%s: nothing of the chain is below", when);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 5000), 0, "%s: nor comes anything of it back",
	       when);
	is_int(tiers_below(c, 9, 8), 8, "%s: the next chain is there", when);
}

/* ---- tests ---- */

static void test_drop(int timeout_ms, const char *when)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o, 0);
	gpc_tiers *t = tiers_open(&o);
	char crash[128];

	fill(c);
	is_int(drop_first(c, timeout_ms), timeout_ms != 0, "%s: the first block is dropped", when);
	if (!timeout_ms)
		must(gpc_tiers_sync(c, TIERS_MS));
	snprintf(crash, sizeof(crash), "%s.crash", tiers_path);
	tiers_copy_file(crash);
	is_gone(c, when);
	t = tiers_crash(c, t, crash, &o);
	is_gone(c, "after a crash at that moment");
	tiers_finish(c, t, when);
}

/* Blocks of an exclusive disk hang on nothing, and only the last ones of the chain are there. */
static void test_exclusive(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o, GPC_TIERS_EXCLUSIVE);
	gpc_tiers *t = tiers_open(&o);
	gpc_key k[9];

	tiers_fill(c, ram, 1, 40, 8);
	chain_keys(c, 1, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 2, 0, 5000), 2, "exclusive: two blocks come up");
	is_int(tiers_below(c, 1, 8), 6, "and six stay below");
	is_int(drop_first(c, 5000), 1, "the first one is dropped");
	is_gone(c, "exclusive");
	tiers_finish(c, t, "exclusive");
}

/* A drop of what lies on disk says nothing of RAM. */
static void test_below_alone(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o, 0);
	gpc_tiers *t = tiers_open(&o);
	struct gpc_pool p = { .size = sizeof(p) };
	gpc_key k = key_of(c, 1);
	gpc_block b;

	fill(c);
	must(gpc_pool_get(c, tier_of(c).pool, &p));
	must(gpc_lookup(c, GPC_SPACE(p.space), &k, 1, &b, GPC_QUIET));
	is_int(gpc_drop(c, &b, 1, NULL, 0, 5000), 1, "the copy on disk is dropped");
	is_int(tiers_below(c, 1, 1), 0, "and is gone");
	ok(find(c, 1) >= 0, "the block in RAM stays");
	tiers_finish(c, t, "below alone");
}

/* Evicting, reclaiming and clearing one pool concern that pool's blocks alone. */
static void test_others(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o, 0);
	gpc_tiers *t = tiers_open(&o);
	gpc_block b;
	gpc_key k;

	fill(c);
	k = key_of(c, 2);
	b = find(c, 2);
	is_int(gpc_reclaim(c, &k, &b, 1, NULL, 0, 5000), 1, "a block of RAM is reclaimed");
	must(gpc_release(c, &b, 1));
	must(gpc_pool_clear(c, ram, 0, 0, 5000));
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, 8), 8, "its copy, and those of a pool that was cleared, stay");
	is_int((int)tier_of(c).forgotten, 0, "nothing was forgotten");
	tiers_finish(c, t, "others");
}

/* Nobody keeps the tiers meanwhile. */
static void test_meanwhile(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o, 0);
	gpc_tiers *t = tiers_open(&o);
	int i, err;

	fill(c);
	must(gpc_tiers_close(t));
	for (i = 0; (err = gpc_tiers_sync(c, 100)) != -ENOTCONN && i < 100; i++)
		;
	err = drop_first(c, 5000);
	ok(err == 1 || err == -ENOTCONN, "a block is dropped while nobody keeps the tiers");
	t = tiers_again(c, &o);
	is_gone(c, "meanwhile");
	tiers_finish(c, t, "meanwhile");
}

/* ... and so much has happened since that the feed is overwritten. */
static void test_feed_lost(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o, 0);
	gpc_tiers *t = tiers_open(&o);

	fill(c);
	must(gpc_tiers_close(t));
	drop_first(c, 60000);
	tiers_overwrite_feed(c, ram);
	t = tiers_again(c, &o);
	is_gone(c, "the feed is overwritten");
	must(gpc_tiers_close(t));
	t = tiers_again(c, &o);
	is_gone(c, "for ever");
	tiers_finish(c, t, "feed lost");
}

/* ... or more was dropped than the cache keeps in mind. */
static void test_more_than_is_known(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o, 0);
	gpc_tiers *t = tiers_open(&o);
	gpc_block b[8];
	uint32_t i;

	fill(c);
	must(gpc_tiers_close(t));
	drop_first(c, 60000);
	for (i = 0; i < SHM_DROPS; i += 8) {
		/* nobody reads their bytes */
		must(gpc_reserve(c, vram, 8, b, NULL, 0, 60000));
		bytes_publish(c, 1000 + i, 8, b, false);
		must(gpc_drop(c, b, 1, NULL, 0, 0));
	}
	done(c);
	must(gpc_pool_clear(c, ram, 0, 0, 60000)); /* it would go down again */
	t = tiers_again(c, &o);
	is_int(tiers_below(c, 1, 40), 0,
	       "where nobody knows what was dropped, all of the file goes");
	is_int((int)tier_of(c).emptied, 1, "which is counted");
	must(gpc_tiers_close(t));
	t = tiers_again(c, &o);
	is_int(tiers_below(c, 1, 40), 0, "for ever");
	tiers_finish(c, t, "more than is known");
}

/* A block is dropped behind the place from where a steward follows the feed, which dies before it
 * has read of that. */
static void test_begins(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o, 0);
	gpc_tiers *t = tiers_open(&o);
	char x = 0;
	pid_t pid;
	int i;

	fill(c);
	must(gpc_tiers_close(t));
	if (pipe(says) || pipe(goes_on))
		bail("no pipe");
	o.disk_blocks = 0;
	pid = fork();
	if (!pid)
		_exit(gpc_tiers_open(cache_name, &o, &t) < 0 ? 3 : 5);
	if (read(says[0], &x, 1) != 1)
		bail("the steward does not begin");
	for (i = 0; i < 600; i++) /* more than one read of the feed brings */
		must(gpc_pool_clear(c, ram, 77, 0, 60000));
	is_int(drop_first(c, 0), 0, "a block is dropped while a steward begins");
	done(c);
	if (write(goes_on[1], &x, 1) != 1)
		bail("a pipe");
	waitpid(pid, NULL, 0);
	close(says[0]), close(says[1]), close(goes_on[0]), close(goes_on[1]);
	says[1] = -1;
	tiers_overwrite_feed(c, ram);
	t = tiers_again(c, &o);
	is_int(tiers_below(c, 1, 8), 0,
	       "it dies, and the feed is overwritten: nothing of the chain is back");
	tiers_finish(c, t, "begins");
}

/* Blocks of two tags in one prompt: a clear of the first one's takes what follows along, published
 * or not. */
static void test_tags(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o, 0);
	gpc_tiers *t = tiers_open(&o);
	gpc_key k[9];
	gpc_block b[8];
	uint32_t i;

	chain_keys(c, 1, 8, k);
	must(gpc_reserve(c, ram, 8, b, NULL, 0, 60000));
	for (i = 0; i < 8; i++)
		bytes_write(c, b[i], 1 + i, BYTES_IMAGE);
	for (i = 0; i < 8; i += 4)
		must(gpc_publish(c, k + i, k + i + 1, b + i, 4,
				 GPC_OPTIONS(gpc_publish_options, .tag = 5 + i), 0, -1));
	must(gpc_release(c, b, 8));
	must(gpc_tiers_sync(c, TIERS_MS));
	tiers_fill(c, ram, 9, 32, 8);
	is_int(tiers_below(c, 1, 8), 8, "a prompt of two tags is below");
	must(gpc_tiers_close(t));
	__atomic_store_n(&held, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&hold, 1, __ATOMIC_SEQ_CST);
	o.disk_blocks = 0;
	t = tiers_open(&o);
	while (!__atomic_load_n(&held, __ATOMIC_SEQ_CST))
		usleep(500);
	while (gpc_pool_clear(c, -1, 5, 0, 0) == -EAGAIN)
		; /* the writer has not answered; the disk is not waited for */
	__atomic_store_n(&hold, 0, __ATOMIC_SEQ_CST);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, 4), 0, "its first tag is cleared before it is published");
	is_int(tiers_below(c, 5, 4), 0, "and what follows went with that");
	is_int(tiers_below(c, 9, 8), 8, "other prompts are there");
	must(gpc_tiers_close(t));
	t = tiers_again(c, &o);
	is_int(tiers_below(c, 1, 8), 0, "and no restart brings it back");
	tiers_finish(c, t, "tags");
}

struct dropping {
	gpc *c;
	int got;
};

static void *drop_run(void *arg)
{
	struct dropping *q = arg;

	q->got = drop_first(q->c, 10000);
	return NULL;
}

/* The file is open again, and nothing of it is published yet. */
static void test_restart(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o, 0);
	gpc_tiers *t = tiers_open(&o);
	struct dropping q = { .c = c };
	pthread_t thread;

	fill(c);
	must(gpc_tiers_close(t));
	__atomic_store_n(&held, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&hold, 1, __ATOMIC_SEQ_CST);
	o.disk_blocks = 0;
	t = tiers_open(&o);
	while (!__atomic_load_n(&held, __ATOMIC_SEQ_CST))
		usleep(500);
	pthread_create(&thread, NULL, drop_run, &q);
	while (find(c, 1) >= 0)
		usleep(500);
	__atomic_store_n(&hold, 0, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	is_int(q.got, 1, "a block is dropped while its copy is about to be published");
	must(gpc_tiers_sync(c, TIERS_MS));
	is_gone(c, "restart");
	/* blocks of RAM are written again while nothing is published */
	is_int((int)(tier_of(c).restored + tier_of(c).written), tiers_below(c, 1, 40),
	       "not for a moment was it back");
	must(gpc_tiers_close(t));
	t = tiers_again(c, &o);
	is_gone(c, "and the next one");
	tiers_finish(c, t, "restart");
}

static void *ask_run(void *arg)
{
	struct dropping *q = arg;
	gpc_key k[9];

	chain_keys(q->c, 1, 8, k);
	q->got = gpc_prefetch(q->c, vram, k + 1, 8, 0, 400);
	return NULL;
}

/* What follows on an exclusive disk hangs on nothing.  The first blocks are computed again before
 * the steward has followed the drop, and the others are asked for; early: they were asked for before
 * the drop, and their bytes have come. */
static void test_comes_up(bool early)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o, GPC_TIERS_EXCLUSIVE);
	gpc_tiers *t = tiers_open(&o);
	struct dropping q = { .c = c }, up = { .c = c };
	pthread_t drops, asks;
	gpc_block b[2];
	gpc_key k[9];

	tiers_fill(c, ram, 1, 40, 8);
	chain_keys(c, 1, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 2, 0, 5000), 2, "two blocks come up");
	__atomic_store_n(&held_up, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&hold_up, early, __ATOMIC_SEQ_CST);
	__atomic_store_n(&hold_drops, 1, __ATOMIC_SEQ_CST);
	if (early)
		pthread_create(&asks, NULL, ask_run, &up);
	while (early && !__atomic_load_n(&held_up, __ATOMIC_SEQ_CST))
		usleep(500);
	pthread_create(&drops, NULL, drop_run, &q);
	while (find(c, 1) >= 0)
		usleep(500);
	bytes_chain(c, vram, 1, 2, b, false);
	__atomic_store_n(&hold_up, 0, __ATOMIC_SEQ_CST);
	if (!early)
		pthread_create(&asks, NULL, ask_run, &up);
	pthread_join(asks, NULL);
	is_int(up.got, 2, "nothing that follows comes up while a drop is not followed");
	__atomic_store_n(&hold_drops, 0, __ATOMIC_SEQ_CST);
	pthread_join(drops, NULL);
	is_int(q.got, 1, "the first one is dropped");
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 5000), 2, "nor behind that");
	is_int(tiers_below(c, 3, 6), 0, "it is gone");
	chain_keys(c, 9, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 5000), 8, "the next chain comes up");
	tiers_finish(c, t, "comes up");
}

/* The steward is killed behind the drop, before it has heard of it. */
static void test_killed(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o, 0);
	struct gpc_tier s = { .size = sizeof(s) };
	gpc_tiers *t;
	pid_t pid = fork();
	int err;

	if (!pid) {
		if (gpc_tiers_open(cache_name, &o, &t) < 0)
			_exit(3);
		for (;;)
			pause();
	}
	while (gpc_tier_get(c, 0, &s) < 0 || s.steward < 0)
		usleep(500);
	fill(c);
	stop_process(pid);
	is_int(drop_first(c, 200), -ETIMEDOUT, "a steward that is stopped acknowledges nothing");
	is_int(find(c, 1), -1, "the block is gone from RAM all the same");
	is_int(tiers_below(c, 1, 2), 0, "and the writer has removed what has its bytes below");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	for (err = 0; err < 10000 && tier_of(c).steward >= 0; err++)
		usleep(500);
	t = tiers_again(c, &o);
	is_gone(c, "killed");
	tiers_finish(c, t, "killed");
}

/* Key 1 is below alone, and so is what follows it: whoever holds a block of RAM that had it drops the key. */
static void test_everywhere(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o, 0), *d = cache_attach(0, 0);
	gpc_tiers *t = tiers_open(&o);
	gpc_key k = key_of(c, 1);
	gpc_block b;

	fill(c);
	is_int(gpc_acquire(d, 0, &k, 1, &b, 0), 1, "a block is held");
	must(gpc_pool_clear(c, ram, 0, 0, 5000));
	must(gpc_pool_clear(c, vram, 0, 0, 5000));
	is_int(gpc_drop(d, &b, 1, NULL, 0, 5000), 0,
	       "its key is nowhere but below, where it stays");
	is_int(tiers_below(c, 1, 8), 8, "with what follows it");
	is_int(gpc_drop(d, &b, 1, NULL, GPC_EVERYWHERE, 5000), 1, "everywhere it is dropped");
	is_gone(c, "everywhere");
	must(gpc_release(d, &b, 1));
	must(gpc_close(d));
	t = (must(gpc_tiers_close(t)), tiers_again(c, &o));
	is_gone(c, "everywhere, and opened again");
	tiers_finish(c, t, "everywhere");
}

static int body(void)
{
	test_drop(5000, "drop");
	test_drop(0, "drop without a wait");
	test_exclusive();
	test_everywhere();
	test_below_alone();
	test_others();
	test_meanwhile();
	test_feed_lost();
	test_more_than_is_known();
	test_begins();
	test_tags();
	test_restart();
	test_comes_up(false);
	test_comes_up(true);
	test_killed();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
