/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_slow_walk: calls that wait longer than GPC_SET_SLOW_MS are noted, answered or given up, eight
 * for each seat; shorter ones are not, and an entry that cannot be is not shown.
 * Tests: lib/index/peer/slow.c lib/index/peer/slow.h lib/look/slow.c lib/index/peer/ring.c */
#include "t/lib/cache.h"
#include "index/peer/handle.h"
#include "index/segment/settings.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

enum { BLOCKS = 16 };
static gpc *c, *idle, *look;
static uint32_t idle_peer;

static uint32_t all(struct gpc_slow *ret, uint32_t most, uint32_t batch)
{
	uint64_t cursor = 0;
	uint32_t n = 0;
	int got;

	while (n < most && (got = gpc_slow_walk(look, &cursor, ret + n, MIN(batch, most - n))) > 0)
		n += (uint32_t)got;
	return n;
}

/* A section keeps what is evicted, so the call waits until its time is up. */
static void give_up(int timeout_ms)
{
	int section = must(gpc_section_enter(c));
	gpc_block b[BLOCKS];

	refused(gpc_reserve(idle, 0, BLOCKS, b, NULL, 0, timeout_ms), ETIMEDOUT,
		"a section is in the way");
	gpc_section_leave(c, section);
}

static uint32_t over;

/* The writer works again when the call has waited for it, 5 ms at least. */
static void *serve(void *unused)
{
	uint64_t began = clock_ns();

	while (!load_acquire(&seg_seat(&c->seg, idle_peer)->waiting) ||
	       clock_ns() < began + 5 * NS_PER_MS)
		sched_yield();
	while (!load_acquire(&over))
		gpc_writer_serve(c, 1);
	return unused;
}

static void wait_for_it(void)
{
	gpc_block b[BLOCKS];
	pthread_t thread;

	pthread_create(&thread, NULL, serve, NULL);
	is_int(gpc_reserve(idle, 0, BLOCKS, b, NULL, 0, 60000), BLOCKS, "it is answered late");
	store_release(&over, 1);
	pthread_join(thread, NULL);
	must(gpc_release(idle, b, BLOCKS));
}

static void bad_arguments(void)
{
	struct gpc_slow s;
	uint64_t cursor = 0;

	refused(gpc_slow_walk(look, NULL, &s, 1), EINVAL, "no cursor");
	refused(gpc_slow_walk(look, &cursor, NULL, 1), EINVAL, "nowhere to put it");
	refused(gpc_slow_walk(look, &cursor, &s, 0), EINVAL, "none wanted");
	refused(gpc_setting_set(c, GPC_SET_SLOW_MS, -1, 3600001), EINVAL, "more than an hour");
}

static void forged(uint32_t n)
{
	struct shm_slow *e = seg_seat(&c->seg, idle_peer)->slow, was = e[2];
	struct gpc_slow s[16];

	e[2].op = CMD_LAST + 1;
	is_int(all(s, 16, 16), n - 1, "one of a command that there is none of is not shown");
	e[2] = was;
	e[2].number++;
	is_int(all(s, 16, 16), n - 1, "nor one in another's place");
	e[2].number = 0;
	is_int(all(s, 16, 16), n - 1, "nor one that is being written");
	e[2] = was;
	is_int(all(s, 16, 16), n, "all are there again");
}

static int body(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	struct gpc_slow s[16];
	gpc_block b[BLOCKS];
	uint64_t was;
	int64_t ms;
	uint32_t i;

	c = cache_new(BLOCKS, 0);
	idle = cache_attach(0, 0);
	idle_peer = (uint32_t)info_of(idle).peer;
	must(gpc_attach(cache_name, &opt, GPC_READONLY, &look));
	chain_make(c, 0, 1, BLOCKS, b);
	bad_arguments();
	must(gpc_setting_get(look, GPC_SET_SLOW_MS, -1, &ms));
	is_int((int)ms, 100, "a tenth of a second is long where nothing is set");
	must(gpc_setting_set(c, GPC_SET_SLOW_MS, -1, 0));
	give_up(20);
	is_int(all(s, 16, 16), 0, "with 0 none is noted");
	must(gpc_setting_set(c, GPC_SET_SLOW_MS, -1, 3600000));
	give_up(20);
	is_int(all(s, 16, 16), 0, "nor one that was shorter");
	must(gpc_setting_set(c, GPC_SET_SLOW_MS, -1, 1));
	was = clock_ns();
	give_up(20);
	is_int(all(s, 16, 16), 1, "one that was longer is");
	ok(!strcmp(s[0].command, "reserve") && s[0].blocks == BLOCKS && s[0].error == -ETIMEDOUT &&
		   s[0].peer == (int32_t)idle_peer && s[0].pid == getpid() &&
		   s[0].took_ns >= 19000000 && s[0].ended_ns >= was && s[0].ended_ns <= clock_ns(),
	   "%s of %u blocks, error %d, %llu ns", s[0].command, s[0].blocks, s[0].error,
	   (unsigned long long)s[0].took_ns);
	wait_for_it();
	is_int(all(s, 16, 1), 2, "an answer that comes late, too; one at a time");
	ok(!strcmp(s[1].command, "reserve") && !s[1].error && s[1].took_ns >= 1000000,
	   "and is said so");
	for (i = 0; i < SHM_SLOW; i++)
		give_up(5);
	is_int(all(s, 16, 3), SHM_SLOW, "a seat has the last of them, three at a time");
	for (i = 1, was = 0; i < SHM_SLOW; i++)
		was += s[i].ended_ns < s[i - 1].ended_ns;
	is_int((int)was, 0, "the oldest first");
	forged(SHM_SLOW);
	must(gpc_close(idle));
	is_int(all(s, 16, 16), SHM_SLOW, "they outlive the process");
	clean(c, "at the end");
	must(gpc_close(look));
	cache_end(c);
	return done_testing();
}

int main(void)
{
	return tap_guard(50, body, NULL);
}
