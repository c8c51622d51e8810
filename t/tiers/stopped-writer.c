/* SPDX-License-Identifier: Apache-2.0 */
/* The writer stops while the steward of tiers waits for its answer to a batch that is on its way
 * down: gpc_tiers_close() returns all the same, and what was under way is undone when the writer
 * goes on.  The same where each of many blocks is asked for by itself (exclusive tiers), and where
 * the answer never comes.
 *
 * A close that hangs ends with the watchdog.  Wall clocks are compared with a limit that no machine
 * is too busy for.
 *
 * Tests: lib/tiers/steward/open.c lib/tiers/steward/feed.c lib/index/peer/ring.c lib/index/request/publish.c */
#include "config.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "index/peer/handle.h"
#include "index/request/request.h"
#include "t/lib/below.h"

#define MOST_S 20

static volatile uint32_t *ready; /* shared with the writer's process */
static pid_t writer;
static gpc *c;
static int ram;
static int armed, published, inside;

int __real_publish_copies(gpc *c, const struct publish_copy *copies, uint32_t n,
			  gpc_block *resident, const uint32_t *stop);
int __wrap_publish_copies(gpc *c, const struct publish_copy *copies, uint32_t n,
			  gpc_block *resident, const uint32_t *stop);
int __wrap_publish_copies(gpc *of, const struct publish_copy *copies, uint32_t n,
			  gpc_block *resident, const uint32_t *stop)
{
	if (load_acquire(&armed)) {
		store_release(&armed, 0);
		while (!load_acquire(&published)) /* a stopped writer does not answer that either */
			usleep(1000);
		stop_process(writer);
		store_release(&inside, 1);
	}
	return __real_publish_copies(of, copies, n, resident, stop);
}

static void write_for_ever(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	gpc *w = NULL;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	cfg.max_blocks = 512;
	cfg.max_peers = 8;
	must(gpc_create(cache_name, &cfg, NULL, 0, &w));
	must(gpc_writer_take(w, 0, 0));
	*ready = 1;
	for (;;)
		must(gpc_writer_serve(w, 60000));
}

static void begin(void)
{
	snprintf(cache_name, sizeof(cache_name), "stopped-%d", (int)getpid());
	ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (ready == MAP_FAILED)
		bail("mmap");
	writer = fork();
	if (!writer)
		write_for_ever();
	while (!*ready)
		usleep(1000);
	c = cache_attach(0, 0);
	ram = bytes_ram(c, 16, 0, 0);
}

/* The writer is stopped in the middle of a batch, and the tiers are closed. */
static void closes(gpc_tiers *t, const char *when)
{
	uint64_t began = clock_ns();

	is_int(gpc_tiers_close(t), 0, "%s: the tiers are closed", when);
	ok(is_soon(began, MOST_S * 1000), "%s: long before a limit", when);
	is_int(waitpid(writer, NULL, WNOHANG | WCONTINUED), 0, "%s: the writer stands still", when);
}

static void goes_on(const struct gpc_tiers_options *o, uint64_t first, const char *when)
{
	struct gpc_tiers_options again = *o;
	gpc_tiers *t;

	kill(writer, SIGCONT);
	waitpid(writer, NULL, WCONTINUED);
	again.disk_blocks = 0;
	t = tiers_open(&again);
	is_int(gpc_tiers_sync(c, TIERS_MS), 0, "%s: the writer goes on, and so do tiers", when);
	bytes_chain(c, ram, first, 4, (gpc_block[4]){ 0 }, false);
	must(gpc_tiers_sync(c, TIERS_MS));
	clean(c, when);
	must(gpc_tiers_close(t));
	while (stats_of(c, -1).reserved || stats_of(c, -1).dying)
		usleep(1000);
	clean(c, when);
	unlink(tiers_path);
}

/* The steward may write as soon as the first of these is published, so it is armed by then; to keep
 * exclusive tiers it has to only when it is asked for all that is due. */
static gpc_tiers *with_batch(struct gpc_tiers_options *o, uint64_t first, uint32_t flags)
{
	gpc_block b[12];
	gpc_tiers *t;

	tiers_file();
	*o = tiers_options(64);
	o->ahead = 8;
	o->flags = flags;
	t = tiers_open(o);
	must(gpc_tiers_sync(c, TIERS_MS));
	bytes_reserve(c, ram, first, 12, b);
	store_release(&published, 0);
	store_release(&armed, 1);
	bytes_publish(c, first, 12, b, false);
	store_release(&published, 1);
	gpc_tiers_sync(c, 0);
	while (!load_acquire(&inside))
		usleep(1000);
	store_release(&inside, 0);
	return t;
}

static void test_batch(uint32_t flags, uint64_t first, const char *when)
{
	struct gpc_tiers_options o;
	gpc_tiers *t = with_batch(&o, first, flags);

	closes(t, when);
	goes_on(&o, first + 100, when);
}

/* A peer's removal waits for the steward, and the steward for the batch: the call ends by itself. */
static void test_acknowledgement(void)
{
	struct gpc_tiers_options o;
	gpc_tiers *t = with_batch(&o, 3000, 0);
	uint64_t began = clock_ns();
	struct removal r;

	durable_begin(c, true, -1, 0, &r);
	r.lower = true;
	refused(durable_wait(c, &r, clock_ns() + 50 * NS_PER_MS), ETIMEDOUT,
		"an acknowledgement that the batch holds up");
	ok(is_soon(began, MOST_S * 1000), "it ends long before a limit");
	kill(writer, SIGCONT);
	waitpid(writer, NULL, WCONTINUED);
	is_int(durable_wait(c, &r, clock_ns() + TIERS_MS * NS_PER_MS), 0,
	       "and is given when the writer goes on");
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	clean(c, "behind the acknowledgement");
}

static int body(void)
{
	begin();
	test_batch(0, 1000, "copies");
	test_batch(GPC_TIERS_EXCLUSIVE, 2000, "exclusive");
	test_acknowledgement();
	must(gpc_close(c));
	kill(writer, SIGKILL);
	waitpid(writer, NULL, 0);
	must(gpc_unlink(cache_name, cache_dir));
	return done_testing();
}

static void cleanup(void)
{
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "rm -f tiers-%d-*.disk", (int)tap_child);
	if (system(cmd))
		diag("%s", cmd);
	cache_dir_remove();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(300, body, cleanup);
}
