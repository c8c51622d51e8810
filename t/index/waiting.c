/* SPDX-License-Identifier: Apache-2.0 */
/* A peer that is killed in its wait for an answer leaves nothing raised for the next owner of the
 * seat: each answer would wake threads that are not there.
 * Tests: lib/index/peer/ring.c */
#include "config.h"

#include "t/lib/cache.h"

#include <signal.h>
#include <sys/wait.h>

#include "index/peer/handle.h"
#include "index/segment/lockfile.h"
#include "index/peer/ring.h"

static gpc *c;

static struct shm_seat *seat(void)
{
	return seg_seat(&c->seg, c->peer + 1);
}

/* A child waits for an answer that nobody gives, and is killed there. */
static void dies_in_its_wait(void)
{
	gpc_block b;
	pid_t pid = fork();

	if (pid < 0)
		bail("no process");
	if (!pid) {
		gpc *d = cache_attach(0, 0);

		gpc_reserve(d, 0, 1, &b, NULL, 0, -1);
		_exit(1);
	}
	while (!load_relaxed(&seat()->waiting))
		order_pause();
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void test_reaped(void)
{
	gpc *d;

	c = cache_new(8, 0);
	dies_in_its_wait();
	is_int(seat()->waiting, 1, "it was waiting");
	while (load_acquire(&seat()->state) != SEAT_FREE)
		must(gpc_writer_serve(c, 1));
	is_int(seat()->waiting, 0, "nobody waits in an empty seat");
	d = cache_attach(0, 0);
	is_int(d->peer, c->peer + 1, "the next one sits there");
	is_int(seat()->waiting, 0, "and waits for nothing");
	clean(c, "a death in a wait");
	must(gpc_close(d));
	must(gpc_writer_serve(c, 50));
	cache_end(c);
}

/* A seat that was freed by its owner's own hand is not reaped. */
static void test_taken(void)
{
	gpc *d;

	c = cache_new(8, 0);
	store_relaxed(&seat()->waiting, 3);
	d = cache_attach(0, 0);
	is_int(d->peer, c->peer + 1, "a seat that says it is free");
	is_int(seat()->waiting, 0, "who sits down begins anew");
	must(gpc_close(d));
	must(gpc_writer_serve(c, 50));
	cache_end(c);
}

static int body(void)
{
	test_reaped();
	test_taken();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
