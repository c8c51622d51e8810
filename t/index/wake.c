/* SPDX-License-Identifier: Apache-2.0 */
/* No wake-up is lost, neither the writer's nor that of who waits for an answer.
 *
 * Both sleep on futexes with a limit, after which they look again: a lost wake-up costs time and
 * nothing else.  So the linker puts a futex_wait in between that has no such limit.  Whoever
 * sleeps for seconds although what it waits for is there has slept through it.
 *
 * Before it goes to sleep the writer asks for the time.  A clock_ns in between leaves it with
 * many stores that have to wait for memory: what it stores next comes late, unless there is a
 * barrier.
 * Tests: lib/index/writer/loop.c lib/index/peer/ring.c lib/index/base/futex.c */
#include "config.h"

#include <errno.h>
#include <time.h>

#include "t/lib/cache.h"
#include "index/base/futex.h"
#include "index/peer/handle.h"
#include "t/lib/meet.h"

#define SECONDS 2                  /* of commands, or GPC_T_SECONDS */
#define LONG_NS (300 * NS_PER_MS)  /* a sleep that is looked into */
#define LOST_NS (5000 * NS_PER_MS) /* nobody is held up for so long between two steps */

int __real_futex_wait(uint32_t *word, uint32_t value, uint64_t ns);
int __wrap_futex_wait(uint32_t *word, uint32_t value, uint64_t ns);

static gpc *writer, *peer;
uint64_t __real_clock_ns(void);
uint64_t __wrap_clock_ns(void);

static __thread bool is_writer;
static struct sleeper {
	uint32_t slept, unwoken, lost;
} of_writer, of_peer;
static uint32_t leave;

static bool bells(void)
{
	return load_relaxed(&seg_shared(&writer->seg)->pending[0]);
}

static bool answered(void)
{
	const struct shm_seat *s = seg_seat(&peer->seg, peer->peer);

	return load_relaxed(&s->tail) == load_relaxed(&s->head);
}

/* When it takes long and the reason is there, it should end in a moment.  When the word has moved
 * as well, a wake-up may be just on its way: once, but not every time. */
static void sleep_well(uint32_t *word, uint32_t value, bool (*reason)(void), struct sleeper *s)
{
	count_add(&s->slept, 1);
	if (__real_futex_wait(word, value, LONG_NS) != -ETIMEDOUT)
		return;
	if (load_relaxed(word) != value) {
		count_add(&s->unwoken, 1);
		return;
	}
	if (reason() && __real_futex_wait(word, value, LOST_NS) == -ETIMEDOUT)
		store_relaxed(&s->lost, 1);
}

int __wrap_futex_wait(uint32_t *word, uint32_t value, uint64_t ns)
{
	if (!writer || !peer || load_relaxed(&leave))
		return __real_futex_wait(word, value, ns);
	if (word == &seg_shared(&writer->seg)->sleeping)
		sleep_well(word, value, bells, &of_writer);
	else if (word == &seg_seat(&peer->seg, peer->peer)->done)
		sleep_well(word, value, answered, &of_peer);
	else
		return __real_futex_wait(word, value, ns);
	return 0;
}

uint64_t __wrap_clock_ns(void)
{
	uint64_t now = __real_clock_ns();

	if (is_writer)
		meet_late();
	return now;
}

static void *serve(void *arg)
{
	meet_on(1);
	is_writer = true;
	while (!load_relaxed(&leave))
		must(gpc_writer_serve(writer, 10));
	return arg;
}

/* Looking at the line costs the writer time to store there. */
static void spin(uint32_t n)
{
	while (n--) {
		(void)load_relaxed(&seg_shared(&peer->seg)->sleeping);
		order_pause();
	}
}

/* The commands come when the writer goes to sleep, is asleep, and anywhere between. */
static uint64_t commands(void)
{
	const char *seconds = getenv("GPC_T_SECONDS");
	uint64_t ms = 1000 * (seconds ? strtoul(seconds, NULL, 10) : SECONDS);
	uint64_t until = clock_ns() + ms * NS_PER_MS, n = 0;
	gpc_block b;

	meet_on(0);
	while (clock_ns() < until && !load_relaxed(&of_writer.lost) &&
	       !load_relaxed(&of_peer.lost)) {
		must(gpc_reserve(peer, 0, 1, &b, NULL, 0, -1));
		spin((uint32_t)(n * 7 % 256));
		must(gpc_release(peer, &b, 1));
		spin((uint32_t)(n * 13 % 1024));
		n++;
	}
	return n;
}

static int body(void)
{
	pthread_t thread;
	uint64_t n;

	writer = cache_new(64, 0);
	peer = cache_attach(0, 0);
	pthread_create(&thread, NULL, serve, NULL);
	n = commands();
	store_relaxed(&leave, 1);
	pthread_join(thread, NULL);
	diag("%llu commands; the writer slept %u times, the peer %u times", (unsigned long long)n,
	     of_writer.slept, of_peer.slept);
	ok(!of_writer.lost, "the writer sleeps through no bell");
	ok(!of_peer.lost, "nobody sleeps through an answer");
	ok(of_writer.unwoken < 3, "the bell wakes the writer");
	ok(of_peer.unwoken < 3, "the answer wakes who waits for it");
	ok(of_writer.slept && of_peer.slept, "both did sleep");
	must(gpc_close(peer));
	cache_end(writer);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
