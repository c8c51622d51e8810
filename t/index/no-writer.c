/* SPDX-License-Identifier: Apache-2.0 */
/* A handle waits once for a writer that has gone; from then on each call says at once that there is
 * none, until one is back.
 * Tests: lib/index/peer/ring.c lib/index/peer/ring.h lib/bytes/payload/wait.c */
#include "config.h"

#include "t/lib/cache.h"

static gpc *c, *d; /* who is the writer now and then; who asks */
static int own;    /* pool of CALLER blocks of d */
static int sleeps; /* waits for answers */

int __real_futex_wait(uint32_t *word, uint32_t value, uint64_t ns);
int __wrap_futex_wait(uint32_t *word, uint32_t value, uint64_t ns);
int __wrap_futex_wait(uint32_t *word, uint32_t value, uint64_t ns)
{
	__atomic_add_fetch(&sleeps, 1, __ATOMIC_RELAXED);
	return __real_futex_wait(word, value, ns);
}

/* live; given; to be claimed; to be published, one in each round */
static gpc_block b[5];
static gpc_key key[3];
static int round_no;
static gpc_ticket ticket;

static int call_reserve(void)
{
	return gpc_reserve(d, 0, 1, b + 1, NULL, 0, 60000);
}

static int call_reserve_long(void)
{
	return gpc_reserve(d, 0, 1, b + 1, NULL, 0, -1);
}

static int call_evict(void)
{
	return gpc_evict(d, 0, 1, b + 1, 0, 60000);
}

static int call_clear(void)
{
	return gpc_pool_clear(d, 0, 7, 0, 60000);
}

static int call_add(void)
{
	struct gpc_pool p = pool_of(GPC_VRAM, 2, 0);

	return gpc_pool_make(d, &p, NULL, -1);
}

static int call_ticket(void)
{
	return gpc_ticket_wait(d, ticket, -1);
}

static int call_publish(void)
{
	static gpc_block resident; /* the answer comes when there is a writer */

	return gpc_publish(d, NULL, key + 1 + round_no, b + 3 + round_no, 1,
			   GPC_OPTIONS(gpc_publish_options, .resident = &resident), 0, -1);
}

static int call_drop(void)
{
	return gpc_drop(d, b, 1, NULL, 0, -1);
}

static int call_claim(void)
{
	struct gpc_claim claim;
	gpc_key unknown = key_of(d, 9);

	return gpc_claim(d, &unknown, b + 2, 1, &claim, 0, 60000);
}

static int call_returned(void)
{
	return gpc_returned(d, own, b + 1, 1, 60000);
}

static const struct {
	const char *name;
	int (*call)(void);
} calls[] = {
	{ "gpc_reserve", call_reserve },    { "gpc_reserve, timeout -1", call_reserve_long },
	{ "gpc_evict", call_evict },        { "gpc_claim", call_claim },
	{ "gpc_pool_clear", call_clear },   { "gpc_pool_make", call_add },
	{ "gpc_returned", call_returned },  { "gpc_publish", call_publish },
	{ "gpc_ticket_wait", call_ticket }, { "gpc_drop", call_drop },
};
#define CALLS (sizeof(calls) / sizeof(calls[0]))

static void *ask(void *arg)
{
	return (void *)(intptr_t)((int (*)(void))arg)();
}

static int in_a_thread(int (*call)(void))
{
	pthread_t thread;
	void *got;

	if (pthread_create(&thread, NULL, ask, (void *)call) || pthread_join(thread, &got))
		bail("no thread");
	return (int)(intptr_t)got;
}

static void test_at_once(void)
{
	uint32_t i;
	int got;

	sleeps = 0;
	refused(call_reserve(), ENOTCONN, "the writer has gone");
	ok(sleeps > 0, "the first call has waited for the next one");
	for (i = 0; i < CALLS; i++) {
		sleeps = 0;
		got = in_a_thread(calls[i].call);
		ok(got == -ENOTCONN && !sleeps, "%s says so at once: %d, %d waits", calls[i].name,
		   got, sleeps);
	}
}

static void serve_once(void)
{
	must(gpc_writer_take(c, 0, 0));
	serve_begin(c);
}

static void stop_serving(void)
{
	serve_end();
	must(gpc_writer_drop(c));
}

static int body(void)
{
	struct gpc_pool p = pool_of(GPC_VRAM, 2, 1);
	struct gpc_config cfg = cache_config(6, 0);

	cache_thread = false;
	cfg.max_blocks = 64;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	serve_begin(c);
	key[0] = key_of(d, 1);
	key[1] = key_of(d, 2);
	key[2] = key_of(d, 3);
	p.flags = GPC_POOL_CALLER;
	own = must(gpc_pool_make(d, &p, NULL, -1));
	must(gpc_reserve(d, 0, 1, b, NULL, 0, 60000));
	must(gpc_reserve(d, 0, 3, b + 2, NULL, 0, 60000));
	must(gpc_publish(d, NULL, key, b, 1, NULL, 0, -1));
	stop_serving();
	must(gpc_drop(d, b, 1, &ticket, 0, 0));
	test_at_once();
	serve_once();
	is_int(gpc_reserve(d, 0, 1, b + 1, NULL, 0, 60000), 1,
	       "the next call finds a writer that is back");
	must(gpc_release(d, b + 1, 1));
	stop_serving();
	round_no++;
	must(gpc_drop(d, b, 1, &ticket, 0, 0));
	test_at_once();
	serve_once(); /* and goes again before anybody has asked */
	stop_serving();
	sleeps = 0;
	refused(call_reserve(), ENOTCONN, "another one has gone");
	ok(sleeps > 0, "which nobody has waited for");
	sleeps = 0;
	must(gpc_close(d));
	is_int(sleeps, 0, "gpc_close does not wait for it");
	must(gpc_writer_take(c, 0, 0));
	must(gpc_writer_serve(c, 50));
	clean(c, "at the end");
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
