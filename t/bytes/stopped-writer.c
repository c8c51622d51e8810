/* SPDX-License-Identifier: Apache-2.0 */
/* The writer is stopped: it has its seat, and answers nothing.  Each call that waits for it ends
 * when its own timeout says so, with that as its reason, also where another thread of the handle
 * waits without limit, and where the writer had granted what it was to answer.  When the writer
 * goes on, what was given up goes back, and all works.
 *
 * Then the same where the program stops the waits (gpc_wait_stop), which have no limit of their own.
 *
 * The calls have 50 ms; what they return says that they have used them.  Their wall clock is only
 * compared with a limit that no machine is too busy for.  A call that hangs ends with the watchdog.
 *
 * Tests: lib/index/peer/ring.c lib/index/peer/ring.h lib/index/request/pool.c lib/index/request/root.c lib/bytes/mapping/make.c
 * lib/index/door/serve.c lib/index/base/clock.c lib/index/base/wait.c */
#include "config.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "index/peer/handle.h"
#include "t/lib/bytes.h"

#define MOST_S 20

static int limit_ms = 50; /* of the calls; -1: gpc_wait_stop ends them */
static int asked;

enum { PAST = 1, STOP_AT_GRANT = 2 };
static volatile uint32_t *told; /* shared with the writer's process */
static pid_t writer;
static gpc *c, *other;
static int vram, ram;
static gpc_key unknown, live_key, ram_key;
static gpc_block mine[8], live, vram_block;

struct writer;
bool __real_grant_mark(struct writer *w, uint32_t peer, uint64_t position);
bool __wrap_grant_mark(struct writer *w, uint32_t peer, uint64_t position);
/* What it grants here it would answer at once. */
bool __wrap_grant_mark(struct writer *w, uint32_t peer, uint64_t position)
{
	bool granted = __real_grant_mark(w, peer, position);

	if (told && *told == STOP_AT_GRANT) {
		*told = PAST;
		raise(SIGSTOP);
	}
	return granted;
}

/* ---- the writer's process ---- */

static void write_for_ever(void)
{
	struct gpc_config cfg = cache_config(8, 0);
	gpc *w = NULL;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	cfg.max_blocks = 256;
	cfg.max_peers = 8;
	cfg.max_aliases = 16;
	cfg.keep_tokens = 1;
	must(gpc_create(cache_name, &cfg, NULL, 0, &w));
	must(gpc_writer_take(w, 0, 0));
	*told = PAST;
	for (;;)
		must(gpc_writer_serve(w, 60000));
}

static void begin(void)
{
	snprintf(cache_name, sizeof(cache_name), "stopped-%d", (int)getpid());
	told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (told == MAP_FAILED)
		bail("mmap");
	writer = fork();
	if (!writer)
		write_for_ever();
	while (!*told)
		usleep(1000);
	c = cache_attach(0, 0);
	other = cache_attach(0, 0);
	ram = bytes_ram(c, 16, 0, 0);
	vram = bytes_vram(c, 16, 0, ram, 0);
}

static void goes_on(void)
{
	kill(writer, SIGCONT);
	done(c);
}

/* ---- the calls, each with its own timeout ---- */

static int reserve(void)
{
	gpc_block b;

	return gpc_reserve(c, 0, 1, &b, NULL, 0, limit_ms);
}

static int publish(void)
{
	return gpc_publish(c, NULL, &unknown, &mine[0], 1, NULL, 0, limit_ms);
}

static int reclaim(void)
{
	return gpc_reclaim(c, &live_key, &live, 1, NULL, 0, limit_ms);
}

static int rekey(void)
{
	gpc_key to = key_of(c, 78);

	return gpc_rekey(c, &live_key, NULL, &to, &live, 1, NULL, 0, limit_ms);
}

static int drop(void)
{
	return gpc_drop(c, &mine[7], 1, NULL, 0, limit_ms);
}

static int evict(void)
{
	gpc_block b;

	return gpc_evict(c, 0, 1, &b, 0, limit_ms);
}

static int demote(void)
{
	struct gpc_move m;

	return gpc_demote(c, vram, ram, &vram_block, 1, &m, 0, limit_ms);
}

static int spill(void)
{
	gpc_transfer t;

	return gpc_spill(c, vram, ram, NULL, 1, NULL, 0, NULL, limit_ms, &t);
}

static int fetch(void)
{
	gpc_transfer t;
	gpc_block b;

	return gpc_fetch(c, vram, &ram_key, 1, &b, NULL, 0, NULL, limit_ms, &t);
}

static int alias(void)
{
	return gpc_alias(c, &unknown, &live_key, 1, 0, limit_ms);
}

static int claim(void)
{
	struct gpc_claim k;

	return gpc_claim(c, &unknown, &mine[1], 1, &k, 0, limit_ms);
}

static int claim_drop(void)
{
	return gpc_claim_drop(c, &mine[1], 1, limit_ms);
}

static int root_keep(void)
{
	static char word[] = "a";
	struct gpc_field f = { .data = word, .len = 1 };
	gpc_key root;

	word[0]++; /* one that is kept needs no writer */
	return gpc_root_keep(c, &f, 1, &root, 0, limit_ms);
}

static int pool_add(void)
{
	struct gpc_pool p = pool_of(GPC_RAM, 8, 3);

	return gpc_pool_make(c, &p, NULL, limit_ms);
}

static int pool_make(void)
{
	struct gpc_pool p = pool_of(GPC_RAM, 8, 4);
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = BYTES_IMAGE };

	return gpc_pool_make(c, &p, &m, limit_ms);
}

static int pool_clear(void)
{
	return gpc_pool_clear(c, ram, 77, 0, limit_ms);
}

static int ticket_wait(void)
{
	return gpc_ticket_wait(c, gpc_ticket_last(c), limit_ms);
}

static int mirror_sync(void)
{
	return gpc_mirror_sync(c, gpc_ticket_last(c), limit_ms);
}

static int writer_take(void)
{
	return gpc_writer_take(other, GPC_STANDBY, limit_ms);
}

static const struct {
	const char *name;
	int (*call)(void);
} calls[] = {
	{ "gpc_reserve", reserve },
	{ "gpc_publish", publish },
	{ "gpc_reclaim", reclaim },
	{ "gpc_rekey", rekey },
	{ "gpc_drop", drop },
	{ "gpc_evict", evict },
	{ "gpc_demote", demote },
	{ "gpc_spill", spill },
	{ "gpc_fetch", fetch },
	{ "gpc_alias", alias },
	{ "gpc_claim", claim },
	{ "gpc_claim_drop", claim_drop },
	{ "gpc_root_keep", root_keep },
	{ "gpc_pool_make", pool_add },
	{ "gpc_pool_make", pool_make },
	{ "gpc_pool_clear", pool_clear },
	{ "gpc_ticket_wait", ticket_wait },
	{ "gpc_mirror_sync", mirror_sync },
	{ "gpc_writer_take", writer_take },
};

/* As a program that has no reason to stop at first. */
static int say_stop(void *arg)
{
	asked++;
	return arg == &asked && asked > 2;
}

static void in_time(int (*call)(void), const char *what)
{
	uint64_t began = clock_ns();
	int got;

	asked = 0;
	gpc_wait_stop(limit_ms < 0 ? say_stop : NULL, &asked);
	got = call();
	gpc_wait_stop(NULL, NULL);
	is_int(got, -ETIMEDOUT, "%s%s", what, limit_ms < 0 ? ", which is stopped" : "");
	if (limit_ms < 0)
		is_int(asked, 3, "%s: asked until it said so, and no more", what);
	ok(is_soon(began, MOST_S * 1000), "%s: long before a limit", what);
}

/* ---- what is there before ---- */

static void fill(void)
{
	gpc_block b;

	unknown = key_of(c, 70);
	live_key = key_of(c, 71);
	bytes_chain(c, vram, 71, 1, &live, true);
	ram_key = key_of(c, 73);
	bytes_chain(c, vram, 72, 1, &vram_block, false);
	bytes_chain(c, ram, 73, 1, &b, false);
	must(gpc_reserve(c, 0, 8, mine, NULL, 0, 5000));
}

static void test_each(int ms)
{
	size_t i;

	limit_ms = ms;
	fill();
	stop_process(writer);
	for (i = 0; i < ARRAY_SIZE(calls); i++)
		in_time(calls[i].call, calls[i].name);
	goes_on();
	clean(c, "after all of these calls");
	gpc_release(c, mine, 8); /* those that still are */
	gpc_release(c, &live, 1);
	gpc_pool_clear(c, -1, 0, 0, 5000);
	limit_ms = 50;
}

/* A caller with 0 for ever waits as long as the call says. */
static void test_goes_on(void)
{
	gpc_block b;

	stop_process(writer);
	asked = 0;
	gpc_wait_stop(say_stop, NULL);
	is_int(gpc_reserve(c, 0, 1, &b, NULL, 0, 300), -ETIMEDOUT, "a wait that is not stopped");
	ok(asked > 1, "is asked more than once: %d times", asked);
	gpc_wait_stop(NULL, NULL);
	goes_on();
}

/* A name that nobody makes. */
static void test_attach(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir, .timeout_ms = -1 };
	gpc *none = NULL;

	asked = 0;
	gpc_wait_stop(say_stop, &asked);
	is_int(gpc_attach("none", &opt, 0, &none), -ENOENT, "gpc_attach waits for a name");
	is_int(asked, 3, "and is stopped");
	gpc_wait_stop(NULL, NULL);
}

/* ---- a thread that waits without limit ---- */

static void *add_for_ever(void *arg)
{
	struct gpc_pool p = pool_of(GPC_RAM, 8, 5);

	*(int *)arg = gpc_pool_make(c, &p, NULL, -1);
	return NULL;
}

static void test_beside_another(void)
{
	uint64_t head = load_acquire(&seg_seat(&c->seg, c->peer)->head);
	pthread_t thread;
	int added = 0;

	stop_process(writer);
	if (pthread_create(&thread, NULL, add_for_ever, &added))
		bail("no thread");
	while (load_acquire(&seg_seat(&c->seg, c->peer)->head) == head)
		sched_yield();
	in_time(pool_add, "gpc_pool_make beside a thread that waits for ever");
	in_time(pool_make, "gpc_pool_make beside it");
	in_time(root_keep, "gpc_root_keep beside it");
	limit_ms = -1;
	in_time(pool_add, "gpc_pool_make beside it");
	in_time(root_keep, "gpc_root_keep beside it");
	limit_ms = 50;
	kill(writer, SIGCONT);
	pthread_join(thread, NULL);
	ok(added >= 0, "the other call is answered when the writer goes on");
	done(c);
}

/* ---- granted, and not answered ---- */

static void test_granted(void)
{
	uint64_t before = stats_of(c, (int)c->peer).reserved;
	gpc_block b = GPC_NONE;

	*told = STOP_AT_GRANT;
	in_time(reserve, "gpc_reserve whose blocks are granted");
	is_int(*told, PAST, "the writer has stopped between grant and answer");
	goes_on();
	is_int((int)(stats_of(c, (int)c->peer).reserved - before), 0,
	       "what the late answer brings goes back");
	is_int(gpc_reserve(c, 0, 1, &b, NULL, 0, 5000), 1, "and can be had");
	must(gpc_release(c, &b, 1));
}

/* ---- the writer's seat, which another thread of the handle has ---- */

static void *serve_for_ever(void *arg)
{
	gpc_writer_serve(arg, -1);
	return NULL;
}

static void test_serving(void)
{
	pthread_t thread;
	gpc *w = cache_new(8, 0);

	if (pthread_create(&thread, NULL, serve_for_ever, w))
		bail("no thread");
	while (!load_relaxed(&w->may_wake))
		sched_yield();
	refused(gpc_writer_serve(w, limit_ms), EAGAIN,
		"gpc_writer_serve beside one that has no end");
	refused(gpc_writer_take(w, GPC_STANDBY, limit_ms), EAGAIN, "gpc_writer_take beside it");
	asked = 0;
	gpc_wait_stop(say_stop, &asked);
	refused(gpc_writer_drop(w), EAGAIN, "gpc_writer_drop beside it, which is stopped");
	gpc_wait_stop(NULL, NULL);
	gpc_writer_wake(w);
	pthread_join(thread, NULL);
	is_int(gpc_writer_take(w, 0, 0), 0, "which gpc_writer_wake ends");
	asked = 0;
	gpc_wait_stop(say_stop, &asked);
	is_int(gpc_writer_serve(w, -1), 0, "gpc_writer_serve without work is stopped");
	is_int(asked, 3, "when it has asked");
	gpc_wait_stop(NULL, NULL);
	cache_end(w);
}

static int body(void)
{
	uint64_t began;

	begin();
	test_granted();
	test_attach();
	test_goes_on();
	test_each(50);
	test_each(-1);
	test_beside_another();
	clean(c, "the writer has gone on");
	stop_process(writer);
	reserve();
	began = clock_ns();
	is_int(gpc_close(c), 0, "gpc_close beside a stopped writer");
	ok(is_soon(began, MOST_S * 1000), "gpc_close: long before a limit");
	kill(writer, SIGCONT);
	while (stats_of(other, -1).reserved || stats_of(other, -1).dying)
		usleep(1000);
	clean(other, "what the handle had has gone back");
	must(gpc_close(other));
	kill(writer, SIGKILL);
	waitpid(writer, NULL, 0);
	must(gpc_unlink(cache_name, cache_dir));
	test_serving();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(300, body, cache_dir_remove);
}
