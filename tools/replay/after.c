/* SPDX-License-Identifier: Apache-2.0 */
/* Checks after a worker was killed and started again: nothing of its last life is left, the cache
 * is sound, and each block of the shared RAM has the bytes of its key.
 * Tests: t/tools/replay-workers.t */
#include "config.h"

#include "tools/replay/worker.h"

#include <errno.h>
#include <stdio.h>

enum { ENTRIES = 256, PAUSE_MS = 2 };

/* ---- transfers and claims of dead workers ---- */

static bool is_dead(struct worker *w, int peer)
{
	struct gpc_stats st = { .size = sizeof(st) };

	return peer < 0 || gpc_stats_get(w->c, peer, &st) < 0 || !st.alive;
}

/* A list that changes while it is read may name a row whose peer has just gone, so it is looked at
 * again. */
static int count_dead(struct worker *w)
{
	struct gpc_transfer_info t = { .size = sizeof(t) };
	struct gpc_claim claim;
	uint64_t cursor = 0;
	int n = 0, r;

	for (uint32_t i = 0; gpc_transfer_get(w->c, i, &t) >= 0; i++)
		n += is_dead(w, t.peer);
	while ((r = gpc_claim_walk(w->c, &cursor, &claim, 1)) > 0)
		n += is_dead(w, claim.peer);
	return r < 0 ? r : n;
}

static int wait_for_the_dead(struct worker *w)
{
	uint64_t end = cli_now_ns() + PATIENCE_MS * UINT64_C(1000000);
	int n;

	while ((n = count_dead(w)) > 0 && cli_now_ns() < end)
		cli_sleep_ms(PAUSE_MS);
	if (n > 0)
		snprintf(w->error, sizeof(w->error), "%d transfers and claims of the dead are left",
			 n);
	return n < 0 ? worker_fail(w, n, "transfers and claims") : n ? -EIO : 0;
}

/* ---- the cache ---- */

static void on_violation(void *arg, const char *line)
{
	struct worker *w = arg;

	if (!w->error[0])
		snprintf(w->error, sizeof(w->error), "after a kill: %s", line);
}

static int check_cache(struct worker *w)
{
	int r = gpc_check(w->c, on_violation, w);

	return r < 0 ? worker_fail(w, r, "check") : r ? -EIO : 0;
}

/* ---- RAM ---- */

/* Checks a block under a reference; without one the block may have gone by now. */
static int check_block(struct worker *w, const struct gpc_entry *e)
{
	int r = gpc_ref(w->c, &e->key, &e->block, 1), wrong;

	if (r <= 0)
		return r < 0 ? worker_fail(w, r, "reference") : 0;
	wrong = w->payload.ops->check(&w->payload, GPC_RAM, &e->block, &e->key, 1);
	r = gpc_release(w->c, &e->block, 1);
	if (wrong < 0)
		return worker_fail_payload(w, wrong, "verify");
	worker_wrong(w, (uint64_t)wrong);
	w->counts.looked_after++;
	return r < 0 ? worker_fail(w, r, "release") : 0;
}

static int check_ram(struct worker *w)
{
	struct gpc_entry e[ENTRIES];
	uint64_t cursor = 0;
	int n, r = 0;

	while ((n = gpc_walk(w->c, &cursor, e, ENTRIES)) > 0 && r >= 0)
		for (int i = 0; i < n && r >= 0; i++)
			if (GPC_POOL(e[i].block) == w->job->ram)
				r = check_block(w, &e[i]);
	return n < 0 ? worker_fail(w, n, "walk") : r;
}

int after_kill(struct worker *w)
{
	int r = wait_for_the_dead(w);

	if (!r)
		r = check_cache(w);
	return r || w->job->ram < 0 ? r : check_ram(w);
}
