/* SPDX-License-Identifier: Apache-2.0 */
/* What a peer has not got, or has given back, is nobody's, although it makes no further call: a
 * call whose time is up gets nothing later, and reservations that found no room in the ring are
 * there for others.
 * Tests: lib/index/peer/ring.c lib/index/peer/hold.c */
#include "t/lib/cache.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpc_device.h"

enum { BLOCKS = 16, RING = 4096 };

static gpc *c, *idle;

static void begin(uint32_t ram)
{
	gpc_block b[BLOCKS];

	c = cache_new(BLOCKS, ram);
	idle = cache_attach(0, 0);
	chain_make(c, 0, 1, BLOCKS, b);
}

/* Another peer gets every block, and the idle one makes no call meanwhile. */
static void all_can_be_had(const char *when)
{
	gpc_block b[BLOCKS];

	is_int(gpc_reserve(c, 0, BLOCKS, b, NULL, 0, 5000), BLOCKS, "%s: all can be had", when);
	is_int(stats_of(c, -1).reserved, BLOCKS, "%s: and no others are reserved", when);
	must(gpc_release(c, b, BLOCKS));
	clean(c, when);
	must(gpc_close(idle));
	cache_end(c);
}

static void test_section(void)
{
	gpc_block b[BLOCKS];
	int section;

	begin(0);
	section = must(gpc_section_enter(c));
	refused(gpc_reserve(idle, 0, BLOCKS, b, NULL, 0, 50), ETIMEDOUT, "a section is in the way");
	gpc_section_leave(c, section);
	all_can_be_had("reserve");

	begin(0);
	section = must(gpc_section_enter(c));
	refused(gpc_reserve(idle, 0, BLOCKS, b, NULL, GPC_PARTIAL, 50), ETIMEDOUT,
		"a part of them waits as well");
	gpc_section_leave(c, section);
	all_can_be_had("a part");

	begin(0);
	section = must(gpc_section_enter(c));
	refused(gpc_evict(idle, 0, BLOCKS / 2, b, GPC_TAKE, 50), ETIMEDOUT, "so does an eviction");
	gpc_section_leave(c, section);
	all_can_be_had("evict");
}

/* The writer, in a process that can be stopped. */
static pid_t serve(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	pid_t pid = fork();
	gpc *w;

	if (pid < 0)
		bail("no process");
	if (!pid) {
		if (gpc_attach(cache_name, &opt, GPC_SERVE, &w))
			_exit(1);
		for (;;)
			pause();
	}
	return pid;
}

static void end_server(pid_t pid)
{
	must(kill(pid, SIGKILL));
	while (waitpid(pid, NULL, 0) < 0)
		;
	must(gpc_writer_take(c, GPC_STANDBY, 5000));
}

static void test_stopped(void)
{
	gpc_block b[BLOCKS], none[RING];
	uint32_t i, n;
	pid_t pid;
	int err;

	/* a command that it has not seen is not run */
	cache_thread = false;
	begin(0);
	must(gpc_writer_drop(c));
	pid = serve();
	while ((err = gpc_pool_clear(idle, -1, 7, 0, 5000)) == -ENOTCONN)
		;
	is_int(err, 0, "it serves");
	stop_process(pid);
	refused(gpc_reserve(idle, 0, BLOCKS, b, NULL, 0, 50), ETIMEDOUT, "it is stopped");
	must(kill(pid, SIGCONT));
	is_int(gpc_pool_clear(c, -1, 7, 0, 5000), 0, "it goes on");
	for (i = n = 0; i < BLOCKS; i++)
		n += find(c, i + 1) >= 0;
	is_int((int)n, BLOCKS, "and has evicted nothing");

	/* nor does a full ring keep what was given back */
	must(gpc_reserve(idle, 0, BLOCKS, b, NULL, 0, 5000));
	stop_process(pid);
	for (i = 0; i < RING; i++)
		none[i] = b[0];
	is_int(gpc_drop(idle, none, RING, NULL, 0, 0), 0, "the ring is full");
	is_int(gpc_release(idle, b, BLOCKS), 0, "given back all the same");
	must(kill(pid, SIGCONT));
	is_int(gpc_reserve(c, 0, BLOCKS, b, NULL, 0, 5000), BLOCKS, "another one gets them");
	must(gpc_release(c, b, BLOCKS));
	end_server(pid);
	all_can_be_had("a full ring");
}

static int body(void)
{
	cache_thread = true;
	test_section();
	test_stopped();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
