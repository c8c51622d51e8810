/* SPDX-License-Identifier: Apache-2.0 */
/* A tier on disk below RAM: --disk-blocks.
 *
 * gpcd keeps it in exclusive mode, and keeps further blocks of RAM free in addition to --ram-blocks.
 * Half of these are more than the longest request needs.  So a block is in one place, and a request
 * never evicts from RAM.  When its worker has waited for the tier (gpc_tiers_sync), RAM has --ram-blocks at
 * most.
 *
 * A worker holds the blocks that it has found before it asks for the other blocks.  These are
 * younger than all blocks that could go down meanwhile.
 *
 * --restart stops the workers between two requests, kills gpcd and starts it again.  That gpcd is
 * the writer, the owner of the tier's pool and the process that has the file.
 * Tests: t/tools/replay-disk.t */
#include "config.h"

#include "tools/replay/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SYNC_MS = 60000, AHEAD_MOST = 4096 };

/* ---- a worker ---- */

/* Brings and holds blocks of the request that are below RAM, after its first `hits` blocks.  Returns
 * the number of hits after that. */
int disk_hits(struct worker *w, uint32_t hits, uint32_t n)
{
	const gpc_key *keys = w->chain + 1 + hits;
	struct patience p = { 0 };
	int got;

	if (!w->job->disk || hits == n)
		return (int)hits;
	do {
		got = gpc_prefetch(w->c, w->vram, keys, n - hits, 0, SYNC_MS);
	} while (worker_again(w, &p, got));
	if (got < 0)
		return worker_fail(w, got, "prefetch");
	got = got ? gpc_acquire(w->c, w->job->spaces, keys, n - hits, w->held + hits, GPC_QUIET)
		  : 0;
	if (got < 0)
		return worker_fail(w, got, "acquire");
	w->counts.disk_hits += (uint64_t)got;
	return (int)hits + got;
}

/* Called after a request: waits until all blocks that leave RAM are on the disk. */
int disk_settle(struct worker *w)
{
	struct patience p = { 0 };
	int r;

	if (!w->job->disk)
		return 0;
	do {
		r = gpc_tiers_sync(w->c, SYNC_MS);
	} while (worker_again(w, &p, r));
	return r < 0 ? worker_fail(w, r, "sync") : 0;
}

/* ---- the parent ---- */

/* Plans the blocks of RAM beside --ram-blocks. */
int disk_plan(struct run *run)
{
	uint64_t most = 4 * (uint64_t)run->trace.longest + 64;

	if (!run->a.disk)
		return 0;
	if (most > AHEAD_MOST) {
		cli_error("%s has a request of %u blocks: with --disk-blocks at most %d",
			  run->a.trace, run->trace.longest, (AHEAD_MOST - 64) / 4);
		return -1;
	}
	run->a.spare = most;
	if (run->a.disk_path)
		snprintf(run->disk_path, sizeof(run->disk_path), "%s", run->a.disk_path);
	else
		snprintf(run->disk_path, sizeof(run->disk_path), "/var/tmp/gpc-replay-%d.disk",
			 (int)getpid());
	run->disk_made = access(run->disk_path, F_OK) != 0;
	if (!run->disk_made) {
		cli_error(
			"--disk %s: there is a file of that name, and a replay wants one of its own",
			run->disk_path);
		return -1;
	}
	return 0;
}

void disk_remove(const struct run *run)
{
	if (run->disk_made)
		unlink(run->disk_path);
}

/* The tier's counts since its gpcd began. */
void disk_look(const struct run *run, struct gpc_tier *ret)
{
	gpc *c;

	*ret = (struct gpc_tier){ .size = sizeof(*ret) };
	if (!run->a.disk || cache_attach(run, GPC_READONLY, &c))
		return;
	if (gpc_tier_get(c, 0, ret) < 0)
		memset(ret, 0, sizeof(*ret));
	gpc_close(c);
}

/* ---- restarts ---- */

void restart_plan(struct run *run)
{
	if (run->a.restarts)
		__atomic_store_n(&run->job->step, 1, __ATOMIC_RELAXED);
}

bool restart_is_due(const struct run *run)
{
	return run->gate < 0 && run->restarted < run->a.restarts;
}

static bool all_wait(const struct run *run)
{
	for (uint32_t i = 0; i < run->a.workers; i++)
		if (run->child[i].fd >= 0 &&
		    __atomic_load_n(&run->job->progress[i].done, __ATOMIC_ACQUIRE) <
			    job_limit(run->job, i, run->restarted + 1))
			return false;
	return true;
}

static int wait_published(const struct run *run)
{
	gpc *c;
	int r;

	if (cache_attach(run, 0, &c))
		return EXIT_RUNTIME;
	r = gpc_tiers_sync(c, SYNC_MS);
	if (r < 0)
		cli_gpc_error(r, "%s: after a restart", run->name);
	gpc_close(c);
	return r < 0 ? EXIT_RUNTIME : 0;
}

int restart_step(struct run *run)
{
	if (!restart_is_due(run) || !all_wait(run))
		return 0;
	kill(run->writer, SIGKILL);
	waitpid(run->writer, NULL, 0);
	run->writer = 0;
	if (own_restart_writer(run) || replay_in_child(run, wait_published))
		return -1;
	run->restarted++;
	__atomic_store_n(&run->job->step, run->restarted + 1, __ATOMIC_RELAXED);
	return 0;
}
