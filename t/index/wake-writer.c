/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_writer_wake: a server that waits without limit ends when it is told to, by a signal
 * handler as well, whenever the signal comes.
 * Tests: lib/index/door/serve.c lib/index/writer/loop.c */
#include "config.h"

#include <signal.h>
#include <sys/time.h>

#include "gpc_device.h"
#include "index/base/base.h"
#include "t/lib/cache.h"

#define ROUNDS 2000

static gpc *server;
static volatile sig_atomic_t told;

static void tell(int sig)
{
	told = sig;
	gpc_writer_wake(server);
}

static void wait_ms(long ms)
{
	struct timespec t = { 0, ms * 1000000 };

	nanosleep(&t, NULL);
}

static void *tell_later(void *arg)
{
	wait_ms(20);
	gpc_writer_wake(server);
	return arg;
}

static void test_one(void)
{
	pthread_t thread;
	uint64_t from;

	gpc_writer_wake(server);
	is_int(gpc_writer_serve(server, -1), 0, "told before: it does not wait");
	from = clock_ns();
	pthread_create(&thread, NULL, tell_later, NULL);
	is_int(gpc_writer_serve(server, -1), 0, "told while it waits: it ends");
	ok(is_soon(from, 1000), "at once, not when it looks for the dead");
	pthread_join(thread, NULL);
	is_int(gpc_writer_serve(server, 1), 0, "told once, it ends once");
}

/* A call that needs the writer serves itself while nobody else does, here for a while: the grace
 * period that it waits for is not over. */
static void test_between(void)
{
	gpc *reader = cache_attach(0, 0);
	uint64_t from;
	gpc_block b;
	int section;

	chain_make(server, 0, 1, 1, NULL);
	section = must(gpc_section_enter(reader));
	gpc_writer_wake(server);
	is_int(gpc_evict(server, 0, 1, &b, 0, 50), -ETIMEDOUT, "another call serves");
	gpc_section_leave(reader, section);
	must(gpc_close(reader));
	from = clock_ns();
	while (must(gpc_writer_serve(server, 3000)))
		;
	ok(is_soon(from, 1000), "and what was told is kept");
}

static void test_others(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	gpc *peer = cache_attach(0, 0), *reader;

	must(gpc_attach(cache_name, &opt, GPC_READONLY, &reader));

	gpc_writer_wake(NULL);
	gpc_writer_wake(peer);
	gpc_writer_wake(reader);
	is_int(gpc_writer_serve(server, 20), 0, "others tell it nothing: it waits");
	must(gpc_close(reader));
	must(gpc_close(peer));
}

/* A timer that goes off once, anywhere between the look at `told` and the sleep.  A peer comes and
 * goes now and then, so that there is something to do that is no command. */
static void test_signals(void)
{
	struct sigaction sa = { .sa_handler = tell };
	struct itimerval in = { { 0, 0 }, { 0, 0 } };
	uint32_t i, late = 0;

	sigaction(SIGALRM, &sa, NULL);
	for (i = 0; i < ROUNDS; i++) {
		uint64_t from = clock_ns();

		if (i % 16 == 0)
			must(gpc_close(cache_attach(0, 0)));
		told = 0;
		in.it_value.tv_usec = 1 + i * 7 % 120;
		setitimer(ITIMER_REAL, &in, NULL);
		while (!told)
			must(gpc_writer_serve(server, 3000));
		late += clock_ns() - from > 2500 * NS_PER_MS;
	}
	is_int(late, 0, "no signal of %u is slept through", ROUNDS);
	signal(SIGALRM, SIG_DFL);
}

/* The other one serves without a pause, and each call waits for one of its calls at most. */
static void test_turns(void)
{
	uint64_t from;
	int i;

	serve_begin(server);
	wait_ms(20);
	from = clock_ns();
	for (i = 0; i < 50; i++)
		must(gpc_writer_serve(server, 0));
	serve_end();
	ok(is_soon(from, 2000), "50 calls get their turn beside a thread that serves: %d ms",
	   (int)((clock_ns() - from) / NS_PER_MS));
}

static int body(void)
{
	cache_thread = false;
	server = cache_new(64, 0);
	must(gpc_writer_take(server, 0, 0));
	test_one();
	test_between();
	test_others();
	test_signals();
	test_turns();
	cache_end(server);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
