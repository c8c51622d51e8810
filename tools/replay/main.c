/* SPDX-License-Identifier: Apache-2.0 */
/* gpc-replay - replays a recorded trace of real requests against a prefix cache, with as many
 * worker processes as asked for.
 *
 * The parent never touches the cache while the workers run.  Whatever ends the parent, all that it
 * has made is removed: workers and gpcd get a signal when their parent dies, and gpcd removes the
 * cache that it made, with the memory of its pools.  If pools have no memory, the payload is in a
 * file without a name.  Only the payload of a cache of --name has a name, and the last replay
 * removes it.
 * Tests: t/tools/replay-ends.t t/tools/replay-result.t */
#include "config.h"

#include "tools/replay/curve.h"
#include "tools/replay/replay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- preparations for the workers ---- */

/* Forgets blocks of earlier replays, which have no bytes any more.  It runs in a child, since it
 * waits for a writer. */
static int forget_earlier(const struct run *run)
{
	uint64_t end = cli_now_ns() + PATIENCE_MS * UINT64_C(1000000);
	gpc *c;
	int r;

	if (cache_attach(run, 0, &c))
		return EXIT_RUNTIME;
	while ((r = gpc_pool_clear(c, -1, REPLAY_TAG, 0, PATIENCE_MS)) == -ENOTCONN &&
	       cli_now_ns() < end)
		cli_sleep_ms(10);
	if (r < 0)
		cli_gpc_error(r, "%s: cannot clear the blocks of earlier replays", run->name);
	gpc_close(c);
	return r < 0 ? EXIT_RUNTIME : 0;
}

static int make_payload(struct run *run)
{
	size_t bytes = run->job->slots * run->job->payload;
	bool fresh;

	if (run->a.in_pools)
		return 0;
	if (!run->a.name) {
		run->payload_fd = payload_private(bytes);
		return run->payload_fd < 0 ? -1 : 0;
	}
	run->payload_fd = payload_shared(run->a.dir, run->name, bytes, &fresh);
	if (run->payload_fd < 0)
		return -1;
	if (!fresh)
		return 0;
	return replay_in_child(run, forget_earlier) ? -1 : payload_settled(run->payload_fd, bytes);
}

/* Deals each worker its requests, in the order of the trace. */
static int deal_job(struct run *run)
{
	struct job *job = run->job;
	uint64_t *shares = (uint64_t *)job_shares(job), *order = (uint64_t *)job_order(job), n = 0;
	struct deal d;

	if (deal_make(&run->trace, job->workers, run->a.sticky, CHANGE_NONE, &d))
		return -1;
	for (uint32_t w = 0; w < job->workers; w++) {
		shares[w] = n;
		for (uint32_t i = 0; i < job->requests; i++)
			if (d.to[i] == w)
				order[n++] = i;
	}
	shares[job->workers] = n;
	deal_free(&d);
	return 0;
}

static int make_job(struct run *run)
{
	const struct trace *t = &run->trace;
	size_t bytes = sizeof(struct job) + job_words(t, run->a.workers) * sizeof(uint64_t);
	struct job *job = MAP_FAILED;

	run->job_fd = memfd_create("gpc-replay job", MFD_CLOEXEC);
	if (run->job_fd >= 0 && ftruncate(run->job_fd, (off_t)bytes) == 0)
		job = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, run->job_fd, 0);
	if (job == MAP_FAILED) {
		cli_error("no memory for the trace: %s", strerror(errno));
		return -1;
	}
	run->job = job;
	memcpy(job->name, run->name, sizeof(job->name));
	snprintf(job->dir, sizeof(job->dir), "%s", run->a.dir);
	if (run->a.device && strcmp(run->a.device, "none"))
		snprintf(job->device, sizeof(job->device), "%s", run->a.device);
	job->workers = (uint32_t)run->a.workers;
	job->requests = t->requests;
	job->longest = t->longest;
	job->payload = (uint32_t)run->a.payload;
	job->in_pools = run->a.in_pools;
	job->fetch = run->a.fetch;
	job->disk = run->a.disk != 0;
	job->vram_blocks = (uint32_t)run->a.vram;
	job->pieces = (uint32_t)run->a.pieces;
	/* as many as one request may need, so that each victim has a copy */
	job->spill_ahead = (uint32_t)(t->longest < run->a.vram ? t->longest : run->a.vram);
	/* --kill and --restart exclude each other */
	job->step = job->steps = run->a.kills + run->a.restarts + 1;
	job->tag = job->in_pools ? REPLAY_POOL_TAG : REPLAY_TAG;
	job->group = job->in_pools ? REPLAY_POOL_GROUP : REPLAY_GROUP;
	job->refs = t->refs;
	memcpy(job->words, t->start, (t->requests + 1) * sizeof(uint64_t));
	if (t->refs)
		memcpy(job->words + t->requests + 1, t->ids, t->refs * sizeof(uint64_t));
	return deal_job(run);
}

/* ---- the whole ---- */

static uint64_t all_held(const struct gpc_stats *st)
{
	return st->refs + st->reserved + st->transfers + st->claims;
}

/* When the workers have gone, the writer needs a moment to clear up after them. */
static int final_stats(const struct run *run, struct gpc_stats *ret)
{
	uint64_t end = cli_now_ns() + PATIENCE_MS * UINT64_C(1000000);
	int r;

	while ((r = cache_stats(run, ret)) == 0 && !run->a.name && all_held(ret) &&
	       cli_now_ns() < end && !replay_caught)
		cli_sleep_ms(2);
	return r;
}

/* -1 means that the result shows a fault. */
static int show_result(struct run *run)
{
	struct gpc_stats after;
	struct report r = {
		.trace = run->a.trace,
		.cache = run->a.name,
		.workers = (uint32_t)run->a.workers,
		.failed = run->failed,
		.vram_blocks = (uint32_t)run->a.vram,
		.ram_blocks = (uint32_t)run->a.ram,
		.payload = (uint32_t)run->a.payload,
		.pieces = run->a.in_pools ? (uint32_t)run->a.pieces : 0,
		.device = run->a.in_pools ? run->a.device : NULL,
		.counts = &run->counts,
		.fetch = run->a.fetch,
		.kills = run->killer.done,
		.disk_blocks = (uint32_t)run->a.disk,
		.restarts = run->restarted,
		.sticky = run->a.sticky_text,
		.sessions = run->trace.sessions,
		.concurrency = run->trace.concurrency,
	};

	disk_look(run, &r.tier);
	if (run->counts.end_ns > run->begin_ns)
		r.seconds = (double)(run->counts.end_ns - run->begin_ns) / 1e9;
	if (final_stats(run, &after) == 0) {
		r.evicted = after.evicted - run->before.evicted;
		r.dropped = after.dropped - run->before.dropped;
		r.fetched = after.fetched - run->before.fetched;
		r.spilled = after.spilled - run->before.spilled;
		r.bad = after.bad - run->before.bad;
		r.left = run->a.name ? 0 : all_held(&after);
	}
	report_show(&r, run->a.json);
	return !r.left && r.kills == run->a.kills ? 0 : -1;
}

/* If the device cannot be opened, it is useless to ask it for memory. */
static int make_cache(struct run *run)
{
	run->a.up = run->a.ram && !run->a.fetch ? PROMOTE_BATCH : 0;
	return disk_plan(run) || own_start_writer(run) || make_job(run) || cache_try_device(run) ||
			       own_start_keeper(run) || own_make_ram(run) || cache_look(run)
		       ? -1
		       : 0;
}

static int find_cache(struct run *run)
{
	return make_job(run) || cache_look(run) || cache_wait_writer(run) || cache_try_device(run)
		       ? -1
		       : 0;
}

static int go(struct run *run)
{
	int r = run->a.name ? find_cache(run) : make_cache(run);

	if (r || make_payload(run) || replay_caught)
		return EXIT_RUNTIME;
	r = crew_start(run);
	if (!r)
		r = crew_watch(run);
	crew_end(run);
	if (r || replay_caught)
		return EXIT_RUNTIME;
	r = show_result(run);
	return r || run->counts.wrong || run->failed ? EXIT_RUNTIME : 0;
}

static void clean_up(struct run *run)
{
	own_stop(run);
	disk_remove(run);
	if (run->payload_fd >= 0 && run->a.name)
		payload_release(run->a.dir, run->name, run->payload_fd);
	trace_free(&run->trace);
}

/* Options that only the trace can refuse. */
static int check_trace(const struct args *a, const struct trace *t)
{
	if (a->concurrency && !t->turns)
		cli_error("--concurrency: the rows of %s are whole prompts: none has a session_id",
			  a->trace);
	else if (a->sticky && !t->named)
		cli_error("--sticky: no row of %s has a session or a session_id", a->trace);
	else
		return 0;
	return -1;
}

static int load(struct run *run)
{
	const struct trace_options o = {
		.tokens = run->a.tokens_given ? run->a.tokens : 0,
		.concurrency = run->a.concurrency,
	};

	if (trace_load(run->a.trace, &o, &run->trace))
		return -1;
	if (check_trace(&run->a, &run->trace)) {
		trace_free(&run->trace);
		return -1;
	}
	if (run->trace.turns && !run->a.tokens_given)
		run->a.tokens = TURN_TOKENS;
	return 0;
}

int main(int argc, char **argv)
{
	static struct run run = {
		.a = { .workers = 1,
		       .vram = 10000,
		       .tokens = 16,
		       .payload = 64,
		       .dir = "/dev/shm" },
		.job_fd = -1,
		.payload_fd = -1,
		.gate = -1,
	};
	int status;

	cli_init("gpc-replay");
	status = options_parse(&run.a, argc, argv);
	if (status >= 0)
		return status;
	if (load(&run))
		return EXIT_RUNTIME;
	if (run.a.plot) {
		status = plot_trace(&run.a, &run.trace);
		trace_free(&run.trace);
		return cli_finish(status);
	}
	if (run.a.name)
		snprintf(run.name, sizeof(run.name), "%s", run.a.name);
	replay_hold_signals();
	status = go(&run);
	clean_up(&run);
	if (replay_caught)
		replay_raise();
	return cli_finish(status);
}
