/* SPDX-License-Identifier: Apache-2.0 */
/* More threads than sections in the lookups of one handle: a lookup that finds no section lets the others
 * go on, and has one of theirs.  Where none ends it is refused, after a bounded number of turns.
 * Tests: lib/index/peer/handle.c */
#include "config.h"

#include <sched.h>

#include "index/peer/handle.h"
#include "t/lib/cache.h"

#define THREADS 100
#define KEYS    1000

static gpc *c;
static gpc_key keys[KEYS];
static int turns, free_at; /* after so many turns a section ends; 0: none does */
static int section[SHM_SECTIONS];
static bool counts;

int __wrap_sched_yield(void);
int __real_sched_yield(void);
int __wrap_sched_yield(void)
{
	if (!counts)
		return __real_sched_yield();
	if (++turns == free_at)
		handle_leave(c, section[5]);
	return 0;
}

static int look(void)
{
	gpc_block b[KEYS];

	return gpc_lookup(c, 0, keys, 1, b, 0);
}

static void test_turns(void)
{
	uint32_t i;

	counts = true;
	for (i = 0; i < SHM_SECTIONS; i++)
		section[i] = must(handle_enter(c));
	is_int(turns, 0, "%u sections are to be had at once", SHM_SECTIONS);
	free_at = 7;
	is_int(look(), 1, "a lookup has the one that ends meanwhile");
	is_int(turns, 7, "as soon as it has ended");
	section[5] = must(handle_enter(c));
	turns = free_at = 0;
	is_int(look(), -EAGAIN, "where none ends it is refused");
	is_int(turns, HANDLE_TURNS, "after so many turns");
	ok(strstr(gpc_last_error(), "all 64 sections") &&
		   strstr(gpc_last_error(), "another handle"),
	   "with the limit, and what to do: %s", gpc_last_error());
	for (i = 0; i < SHM_SECTIONS; i++)
		handle_leave(c, section[i]);
	turns = 0;
	is_int(look(), 1, "and is answered when they have ended");
	is_int(turns, 0, "at once");
	counts = false;
}

static int refused, found;

static void *run(void *arg)
{
	gpc_block b[KEYS];
	int i, r;

	for (i = 0; i < 200; i++) {
		r = gpc_lookup(c, 0, keys, KEYS, b, 0);
		__atomic_add_fetch(r == KEYS / 2 ? &found : &refused, 1, __ATOMIC_RELAXED);
		if (r != KEYS / 2 && r != -EAGAIN)
			bail("%d, %s", r, gpc_last_error());
	}
	return arg;
}

static void test_threads(void)
{
	pthread_t thread[THREADS];
	int i;

	for (i = 0; i < THREADS; i++)
		if (pthread_create(&thread[i], NULL, run, NULL))
			bail("no thread");
	for (i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	is_int(found + refused, 200 * THREADS, "%d threads look up", THREADS);
	ok(refused < found / 100, "and are answered: %d are, %d are not", found, refused);
}

static int body(void)
{
	uint32_t i;

	cache_thread = true;
	c = cache_new(KEYS, 0);
	for (i = 0; i < KEYS; i++)
		keys[i] = key_of(c, i);
	for (i = 0; i < KEYS / 2; i++) {
		gpc_block b;

		must(gpc_reserve(c, 0, 1, &b, NULL, 0, 60000));
		must(gpc_publish(c, NULL, &keys[i], &b, 1, NULL, 0, 60000));
		must(gpc_release(c, &b, 1));
	}
	test_turns();
	test_threads();
	gpc_close(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
