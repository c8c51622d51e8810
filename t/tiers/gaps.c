/* SPDX-License-Identifier: Apache-2.0 */
/* A file that lacks a block keeps what follows it in a prompt: that is of use when the block has
 * been computed again.  If something before the gap is dropped as bad, what is behind it goes too,
 * whatever the gap is filled with by then.
 * Tests: lib/tiers/steward/drops.c lib/tiers/steward/above.c */
#include "t/lib/below.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static int ram, vram;

/* ---- a steward that stands still as it looks for a block in VRAM and RAM ---- */

int __real_gpc_lookup(gpc *c, uint32_t spaces, const gpc_key *keys, uint32_t n, gpc_block *blocks,
		      uint32_t flags);
int __wrap_gpc_lookup(gpc *c, uint32_t spaces, const gpc_key *keys, uint32_t n, gpc_block *blocks,
		      uint32_t flags);

static uint32_t hold, held;
static gpc_key hold_at;
static pthread_t engine;

int __wrap_gpc_lookup(gpc *c, uint32_t spaces, const gpc_key *keys, uint32_t n, gpc_block *blocks,
		      uint32_t flags)
{
	while (__atomic_load_n(&hold, __ATOMIC_SEQ_CST) && !spaces && n == 1 &&
	       !memcmp(keys, &hold_at, sizeof(*keys)) && !pthread_equal(pthread_self(), engine)) {
		__atomic_store_n(&held, 1, __ATOMIC_SEQ_CST);
		usleep(500);
	}
	return __real_gpc_lookup(c, spaces, keys, n, blocks, flags);
}

/* ---- a writer that stands still in a drop, and a steward that has read the feed ---- */

struct writer;
struct gpc_tiers;
void __real_retire_subtree(struct writer *w, uint32_t record, uint64_t *sum);
void __wrap_retire_subtree(struct writer *w, uint32_t record, uint64_t *sum);
bool __real_drops_carry_out(struct gpc_tiers *t);
bool __wrap_drops_carry_out(struct gpc_tiers *t);

static uint32_t hold_writer, held_writer, hold_steward, held_steward, hold_behind;

static void stand(uint32_t *on, uint32_t *told)
{
	while (__atomic_load_n(on, __ATOMIC_SEQ_CST)) {
		__atomic_store_n(told, 1, __ATOMIC_SEQ_CST);
		usleep(500);
	}
}

void __wrap_retire_subtree(struct writer *w, uint32_t record, uint64_t *sum)
{
	stand(&hold_writer, &held_writer);
	__real_retire_subtree(w, record, sum);
}

bool __wrap_drops_carry_out(struct gpc_tiers *t)
{
	bool sent;

	stand(&hold_steward, &held_steward);
	sent = __real_drops_carry_out(t);
	if (sent)
		stand(&hold_behind, &held_steward);
	return sent;
}

static void stands(uint32_t *on, uint32_t *told)
{
	__atomic_store_n(told, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(on, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(told, __ATOMIC_SEQ_CST))
		usleep(500);
}

/* ---- caches ---- */

/* Chains of eight: 1 to 8, which will lack its third block, 9 to 16, and so on. */
static gpc *begin(struct gpc_tiers_options *o)
{
	gpc *c = tiers_cache(1024);
	gpc_tiers *t;

	ram = bytes_ram(c, 24, 0, 0);
	vram = bytes_vram(c, 64, 0, ram, 0);
	tiers_file();
	*o = tiers_options(64);
	o->ahead = 8;
	t = tiers_open(o);
	tiers_fill(c, ram, 1, 40, 8);
	must(gpc_tiers_close(t));
	is_int(tiers_lose_header(c, 3), 1, "a block is lost from the file");
	o->disk_blocks = 0;
	return c;
}

static void come_up(gpc *c, uint64_t first, int n)
{
	gpc_key k[9];

	chain_keys(c, first, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, (uint32_t)n, 0, 5000), n,
	       "%d blocks of a chain come up", n);
}

static int drop(gpc *c, uint64_t n, int timeout_ms)
{
	gpc_block b = find(c, n);

	return gpc_drop(c, &b, 1, NULL, 0, timeout_ms);
}

static void chains_are(gpc *c, int behind, int next, const char *when)
{
	is_int(tiers_below(c, 4, 5), behind, "%s: %d blocks are behind the gap", when, behind);
	is_int(tiers_below(c, 9, 8), next, "%s: %d of the next chain are there", when, next);
	is_int(tiers_below(c, 17, 8), 8, "%s: and all of the third one", when);
}

static void test_before_the_gap(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = tiers_again(c, &o);

	chains_are(c, 5, 8, "kept");
	come_up(c, 1, 2);
	is_int(drop(c, 1, 5000), 1, "the first block is dropped");
	chains_are(c, 0, 8, "dropped");
	must(gpc_tiers_close(t));
	t = tiers_again(c, &o);
	chains_are(c, 0, 8, "opened again");
	tiers_finish(c, t, "before the gap");
}

/* Nobody knows what a block behind a gap was computed from, so any drop may have been of that. */
static void test_elsewhere(bool filled)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = tiers_again(c, &o);
	gpc_block b[3];

	if (filled)
		bytes_chain(c, vram, 1, 3, b, false);
	come_up(c, 9, 1);
	is_int(drop(c, 9, 5000), 1, "a block of another chain is dropped");
	chains_are(c, filled ? 5 : 0, 0,
		   filled ? "what is before is in VRAM" : "what is before is nowhere");
	tiers_finish(c, t, "elsewhere");
}

static void test_nobody_keeps(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = tiers_again(c, &o);
	int err, i;

	come_up(c, 1, 2);
	must(gpc_tiers_close(t));
	for (i = 0; (err = drop(c, 1, 5000)) == -ENOTCONN && find(c, 1) >= 0 && i < 100; i++)
		usleep(20000);
	is_int(find(c, 1), -1, "the first block is dropped while nobody keeps the tier");
	t = tiers_again(c, &o);
	chains_are(c, 0, 8, "opened again");
	tiers_finish(c, t, "nobody keeps");
}

/* The steward is stopped while the first block is dropped, and that and the gap are computed
 * again. */
static void test_filled_since(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t;
	gpc_block b[3];
	pid_t pid = fork();

	if (!pid) {
		if (gpc_tiers_open(cache_name, &o, &t) < 0)
			_exit(3);
		for (;;)
			pause();
	}
	while (tier_of(c).steward < 0 || !tier_of(c).ready)
		usleep(500);
	must(gpc_tiers_sync(c, TIERS_MS));
	come_up(c, 1, 2);
	must(gpc_tiers_sync(c, TIERS_MS));
	stop_process(pid);
	is_int(drop(c, 1, 200), -ETIMEDOUT, "the first block is dropped");
	bytes_chain(c, vram, 1, 3, b, false);
	kill(pid, SIGCONT);
	must(gpc_tiers_sync(c, TIERS_MS));
	chains_are(c, 0, 8, "filled since");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	t = tiers_again(c, &o);
	chains_are(c, 0, 8, "opened again");
	tiers_finish(c, t, "filled since");
}

/* A block with a copy is no sign that those before it have one: what is computed again goes down
 * with what follows it. */
static void test_written(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = tiers_again(c, &o);
	gpc_key k[9], more = key_of(c, 100);
	gpc_block b[8], r;

	is_int((int)tier_of(c).orphans, 5, "five are behind the gap");
	come_up(c, 1, 2);
	chain_keys(c, 1, 8, k);
	must(gpc_reserve(c, ram, 1, &r, NULL, 0, 60000));
	bytes_write(c, r, 3, BYTES_IMAGE);
	must(gpc_publish(c, &k[2], &k[3], &r, 1, NULL, 0, -1));
	must(gpc_release(c, &r, 1));
	is_int(gpc_prefetch(c, vram, k + 4, 5, 0, 5000), 5, "what is behind the gap comes up");
	is_int(gpc_acquire(c, 0, k + 1, 8, b, 0), 8, "the whole chain is in RAM");
	must(gpc_reserve(c, ram, 1, &r, NULL, 0, 60000));
	bytes_write(c, r, 100, BYTES_IMAGE);
	must(gpc_publish(c, &k[8], &more, &r, 1, NULL, 0, -1));
	must(gpc_release(c, &r, 1));
	must(gpc_tiers_sync(c, TIERS_MS));
	tiers_fill(c, ram, 101, 12, 6);
	is_int(tiers_below(c, 100, 1), 1, "a block at its end goes down");
	is_int(tiers_below(c, 1, 8), 8, "and with it what was computed again");
	must(gpc_release(c, b, 8));
	must(gpc_tiers_close(t));
	t = tiers_again(c, &o);
	is_int((int)tier_of(c).orphans, 0, "there is no gap any more");
	tiers_finish(c, t, "written");
}

/* Of a prompt the first n blocks in VRAM, and the others in RAM, with copies below.  Returns the
 * first one. */
static gpc_block two_places(gpc *c, uint64_t first, uint32_t n)
{
	gpc_block b[8], others[8];
	gpc_key k[9];
	uint32_t i;

	chain_keys(c, first, 8, k);
	bytes_chain(c, vram, first, n, b, false);
	must(gpc_reserve(c, ram, 8 - n, others, NULL, 0, 60000));
	for (i = 0; i < 8 - n; i++)
		bytes_write(c, others[i], first + n + i, BYTES_IMAGE);
	must(gpc_publish(c, k + n, k + n + 1, others, 8 - n, NULL, 0, -1));
	must(gpc_release(c, others, 8 - n));
	must(gpc_tiers_sync(c, TIERS_MS));
	return b[0];
}

/* Its place is the caller's. */
static gpc_block take_back(gpc *c, uint64_t n)
{
	gpc_key k = key_of(c, n);
	gpc_block b = find(c, n);

	is_int(gpc_reclaim(c, &k, &b, 1, NULL, 0, 5000), 1, "block %d goes", (int)n);
	return b;
}

struct dropping {
	gpc *c;
	gpc_block block;
	int got;
};

static void *drop_run(void *arg)
{
	struct dropping *q = arg;

	q->got = gpc_drop(q->c, &q->block, 1, NULL, 0, 10000);
	return NULL;
}

/* The steward has seen a block of another prompt where one of this prompt is computed again. */
static void test_in_its_place(void)
{
	gpc *c = tiers_cache(1024);
	struct dropping q = { .c = c };
	struct gpc_tiers_options o;
	gpc_block b[3];
	pthread_t thread;
	gpc_tiers *t;
	gpc_key k[4];
	uint32_t i;

	ram = bytes_ram(c, 24, 0, 0);
	vram = bytes_vram(c, 64, 0, ram, 0);
	tiers_file();
	o = tiers_options(64);
	o.ahead = 24; /* all that is in RAM has a copy */
	t = tiers_open(&o);
	two_places(c, 9, 1);
	q.block = two_places(c, 1, 3);
	must(gpc_pool_clear(c, ram, 0, 0, 5000));
	b[1] = take_back(c, 3);
	b[0] = take_back(c, 2);
	is_int(tiers_below(c, 4, 5) + tiers_below(c, 10, 7), 12,
	       "what follows two blocks of VRAM is below");
	chain_keys(c, 1, 3, k);
	engine = pthread_self();
	hold_at = k[3];
	__atomic_store_n(&hold, 1, __ATOMIC_SEQ_CST);
	pthread_create(&thread, NULL, drop_run, &q);
	while (!__atomic_load_n(&held, __ATOMIC_SEQ_CST))
		usleep(500);
	b[2] = take_back(c, 9);
	for (i = 0; i < 3; i++)
		bytes_write(c, b[i], 1 + i, BYTES_IMAGE);
	must(gpc_publish(c, k, k + 1, b, 3, NULL, 0, -1));
	must(gpc_release(c, b, 3));
	__atomic_store_n(&hold, 0, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	is_int(q.got, 1,
	       "the first one is dropped, and it and its gap are computed again in other places");
	is_int(tiers_below(c, 4, 5), 0, "what follows it goes");
	tiers_finish(c, t, "in its place");
}

/* The steward reads the feed while the writer has begun a drop, of which the feed tells nothing yet;
 * and all that it tells later is overwritten before the steward reads it. */
static void test_begun(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = tiers_again(c, &o);
	struct dropping q = { .c = c };
	pthread_t thread;

	come_up(c, 1, 2);
	q.block = find(c, 1);
	__atomic_store_n(&held_writer, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&hold_writer, 1, __ATOMIC_SEQ_CST);
	pthread_create(&thread, NULL, drop_run, &q);
	while (!__atomic_load_n(&held_writer, __ATOMIC_SEQ_CST))
		usleep(500);
	stands(&hold_steward, &held_steward);
	__atomic_store_n(&hold_steward, 0, __ATOMIC_SEQ_CST);
	usleep(2000);
	stands(&hold_steward, &held_steward); /* a whole round behind the writer's first step */
	__atomic_store_n(&hold_writer, 0, __ATOMIC_SEQ_CST);
	while (find(c, 1) >= 0)
		usleep(500);
	tiers_overwrite_feed(c, ram);
	__atomic_store_n(&hold_steward, 0, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	is_int(q.got, 1, "a block is dropped, and the feed is overwritten");
	is_int(tiers_below(c, 4, 5), 0, "what follows it goes");
	tiers_finish(c, t, "begun");
}

/* Into a pool that takes it: the number `parent` is nowhere. */
static void alone(gpc *c, uint64_t parent, uint64_t n)
{
	gpc_key k = key_of(c, n), up = key_of(c, parent);
	gpc_block b;

	must(gpc_reserve(c, ram, 1, &b, NULL, 0, 60000));
	bytes_write(c, b, n, BYTES_IMAGE);
	must(gpc_publish(c, &up, &k, &b, 1, NULL, 0, -1));
	must(gpc_release(c, &b, 1));
}

/* A drop by the steward itself, of a block without its parent in RAM, is no reason to drop what
 * comes there later. */
static void test_ours(void)
{
	gpc *c = tiers_cache(1024);
	struct dropping q = { .c = c };
	struct gpc_tiers_options o;
	pthread_t thread;
	gpc_tiers *t;

	ram = bytes_ram(c, 24, 0, GPC_POOL_UNCHAINED);
	tiers_file();
	o = tiers_options(64);
	t = tiers_open(&o);
	alone(c, 500, 501);
	alone(c, 501, 502); /* hangs on it */
	bytes_chain(c, ram, 1, 1, &q.block, false);
	__atomic_store_n(&held_steward, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&hold_behind, 1, __ATOMIC_SEQ_CST);
	pthread_create(&thread, NULL, drop_run, &q);
	while (!__atomic_load_n(&held_steward, __ATOMIC_SEQ_CST))
		usleep(500);
	is_int(find(c, 501), -1, "what is in RAM without its parent goes");
	alone(c, 600, 601);
	__atomic_store_n(&hold_behind, 0, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	is_int(q.got, 1, "and the drop is done");
	ok(find(c, 601) >= 0, "what comes later stays");
	bytes_chain(c, ram, 2, 1, &q.block, false);
	drop_run(&q);
	is_int(find(c, 601), -1, "until the next drop");
	tiers_finish(c, t, "ours");
}

static int body(void)
{
	test_ours();
	test_begun();
	test_before_the_gap();
	test_elsewhere(false);
	test_elsewhere(true);
	test_nobody_keeps();
	test_filled_since();
	test_written();
	test_in_its_place();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
