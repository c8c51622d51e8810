/* SPDX-License-Identifier: Apache-2.0 */
/* Who waits for a claim is woken by the publish, before the writer has seen it: where CPUs are to
 * spare, only if somebody waits, and only for a key that is claimed.  Woken too early it waits
 * on.
 * Tests: lib/index/request/publish.c lib/index/claim/claim_wait.c lib/index/peer/wait_word.h */
#include "t/lib/cache.h"

#include "index/peer/handle.h"
#include "index/peer/wait_word.h"

enum { KEYS = 3, UNCLAIMED = KEYS };

static gpc *c, *a, *b;
static gpc_block mine[KEYS + 1], other[KEYS];
static gpc_key key[KEYS + 1];
static struct gpc_claim pending[KEYS];

/* KEYS keys that a has claimed and b waits for; from here on nobody serves. */
static void begin(bool spare)
{
	struct gpc_config cfg = cache_config(32, 32);
	struct gpc_claim q[KEYS];
	uint32_t i;

	cfg.max_blocks = 256;
	c = cache_make(&cfg, NULL);
	a = cache_attach(0, 0);
	b = cache_attach(0, 0);
	a->spare_cpus = b->spare_cpus = spare;
	serve_begin(c);
	must(gpc_reserve(a, 0, KEYS + 1, mine, NULL, 0, 2000));
	must(gpc_reserve(b, 0, KEYS, other, NULL, 0, 2000));
	for (i = 0; i <= KEYS; i++)
		key[i] = key_of(a, 1 + i);
	is_int(gpc_claim(a, key, mine, KEYS, q, 0, 2000), KEYS, "claimed");
	is_int(gpc_claim(b, key, other, KEYS, pending, 0, 2000), 0, "by a");
	must(gpc_release(b, other, KEYS));
	must(gpc_ticket_wait(b, GPC_TICKET_ALL, 2000));
	serve_end();
}

static void end(const char *what)
{
	must(gpc_writer_serve(c, 30));
	must(gpc_close(a));
	must(gpc_close(b));
	must(gpc_writer_serve(c, 30));
	clean(c, what);
	cache_end(c);
}

static struct shm_wait *word_of(uint32_t i)
{
	return &seg_shared(&b->seg)->wait[wait_word(&key[i])];
}

/* How far its word moves by a publish that no writer sees. */
static uint32_t moved(uint32_t i, bool waits)
{
	struct shm_wait *word = word_of(i);
	uint32_t seq = load_acquire(&word->seq), by;

	if (waits)
		count_add(&word->waiters, 1);
	must(gpc_publish(a, NULL, &key[i], &mine[i], 1, NULL, 0, 0));
	by = load_acquire(&word->seq) - seq;
	if (waits)
		count_sub(&word->waiters, 1);
	return by;
}

static void test_when(void)
{
	begin(true);
	is_int(moved(0, true), 1, "a publish wakes who waits for the key");
	is_int(moved(1, false), 0, "nobody waits: there is nothing to wake");
	is_int(moved(UNCLAIMED, true), 0, "a key that nobody has claimed has nobody who waits");
	end("CPUs to spare");
	begin(false);
	is_int(moved(0, true), 0, "no CPU to spare: the writer alone wakes");
	end("no CPU to spare");
}

struct waiter {
	uint32_t i;
	int got;
};

static void *wait_run(void *arg)
{
	struct waiter *w = arg;

	w->got = gpc_claim_wait(b, &pending[w->i], 1, 10000);
	return NULL;
}

/* By timeout_ms 0 and not: the waiter is told when the claim has ended, and not before. */
static void waits_on(uint32_t i, const char *what)
{
	struct waiter w = { .i = i, .got = 99 };
	struct shm_wait *word = word_of(i);
	pthread_t thread;
	uint32_t seq;
	int k;

	if (pthread_create(&thread, NULL, wait_run, &w))
		bail("no thread");
	while (!load_acquire(&word->waiters))
		usleep(100);
	usleep(2000);
	seq = load_acquire(&word->seq);
	must(gpc_publish(a, NULL, &key[i], &mine[i], 1, NULL, 0, 0));
	ok(load_acquire(&word->seq) != seq, "%s: woken", what);
	usleep(5000); /* it has looked awake, and sleeps again */
	for (k = 0; k < 2000 && !load_acquire(&word->waiters); k++)
		usleep(1000);
	ok(load_acquire(&word->waiters), "%s: the claim is open, so it waits on", what);
	must(gpc_writer_serve(c, 30));
	pthread_join(thread, NULL);
	is_int(w.got, 0, "%s: and is told when it has ended", what);
}

static void test_early(void)
{
	begin(true);
	waits_on(0, "first");
	waits_on(1, "again");
	end("woken early");
}

static int body(void)
{
	test_when();
	test_early();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
