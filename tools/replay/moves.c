/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that move: those that would be evicted next go down to RAM, ahead of demand, and hits
 * come up from there.
 * Tests: t/tools/replay-disk.t t/tools/replay-pools.t */
#include "config.h"

#include "tools/replay/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int commit(struct worker *w, const struct gpc_move *moves, uint32_t n)
{
	struct patience p = { 0 };
	int r;

	do {
		r = gpc_commit(w->c, moves, n, w->results, 0, -1);
	} while (worker_again(w, &p, r));
	return r < 0 ? worker_fail(w, r, "commit") : r;
}

/* ---- whose block it is ---- */

static int by_key(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(gpc_key));
}

/* In a cache that other processes fill as well, blocks that go down may be theirs, and then they
 * have no bytes of ours to verify.  It is asked only when the bytes are not those of the key. */
static bool is_of_trace(struct worker *w, const gpc_key *key)
{
	uint64_t n = w->job->refs, at, batch;

	if (!w->known) {
		w->known = calloc(n, sizeof(*w->known));
		if (!w->known)
			return true;
		for (at = 0; at < n; at += batch) {
			batch = n - at < 65536 ? n - at : 65536;
			gpc_key_import(w->c, job_ids(w->job) + at, sizeof(uint64_t),
				       sizeof(uint64_t), (uint32_t)batch, w->job->group,
				       w->known + at);
		}
		qsort(w->known, n, sizeof(*w->known), by_key);
	}
	return bsearch(key, w->known, n, sizeof(*w->known), by_key);
}

/* ---- down ---- */

static int copy(struct worker *w, const struct gpc_move *moves, uint32_t n)
{
	int r = w->payload.ops->copy(&w->payload, moves, n, w->bad);

	return r < 0 ? worker_fail_payload(w, r, "copy") : 0;
}

/* Copies these blocks down and commits; returns how many went, or a negative errno. */
static int move_down(struct worker *w, uint32_t n)
{
	uint32_t wrong = 0;
	int r = copy(w, w->moves, n);

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < n; i++)
		wrong += w->bad[i] && is_of_trace(w, &w->moves[i].key);
	worker_wrong(w, wrong);
	r = commit(w, w->moves, n);
	if (r > 0)
		w->counts.demoted += (uint64_t)r;
	return r;
}

/* Moves up to n of the least recent blocks that nobody holds; returns how many went, 0 if none
 * can. */
static int demote(struct worker *w, uint32_t n)
{
	struct patience p = { 0 };
	int began;

	do {
		began = gpc_demote(w->c, w->vram, w->job->ram, NULL, n, w->moves, 0, -1);
	} while (worker_again(w, &p, began));
	if (began == -ENOSPC || began == -ESTALE)
		return 0;
	if (began < 0)
		return worker_fail(w, began, "demote");
	return began ? move_down(w, (uint32_t)began) : 0;
}

int moves_make_room(struct worker *w, uint32_t n)
{
	struct gpc_pool vram = { .size = sizeof(vram) };
	uint64_t used;
	int r;

	if (w->job->ram < 0 || w->job->fetch)
		return 0;
	r = gpc_pool_get(w->c, w->vram, &vram);
	if (r < 0)
		return worker_fail(w, r, "pool");
	used = (uint64_t)vram.live + vram.reserved + n;
	while (used > w->job->fill) {
		uint64_t over = used - w->job->fill;

		r = demote(w, over < RING_BATCH ? (uint32_t)over : RING_BATCH);
		if (r <= 0)
			return r;
		used -= (uint32_t)r;
	}
	return 0;
}

/* ---- up ---- */

/* Begins, copies, commits; held[] names the VRAM blocks afterwards.  Returns how many moves began,
 * 0 when there is no room, or a negative errno. */
static int promote_batch(struct worker *w, gpc_block *held, uint32_t n)
{
	struct gpc_move moves[PROMOTE_BATCH];
	struct patience p = { 0 };
	int began, r = n > w->job->up ? moves_make_room(w, n - w->job->up) : 0;

	if (r < 0)
		return r;
	do {
		began = gpc_promote(w->c, held, n, w->vram, moves, 0, -1);
	} while (worker_again(w, &p, began));
	if (began == -ENOSPC || began == -ESTALE || began == 0)
		return 0;
	if (began < 0)
		return worker_fail(w, began, "promote");
	r = copy(w, moves, (uint32_t)began);
	if (r < 0)
		return r;
	for (int i = 0; i < began; i++)
		worker_wrong(w, w->bad[i]);
	r = commit(w, moves, (uint32_t)began);
	if (r < 0)
		return r;
	w->counts.promoted += (uint64_t)r;
	for (int i = 0; i < began; i++)
		if (!w->results[i])
			held[i] = moves[i].to;
	r = moves_make_room(w, 0);
	return r < 0 ? r : began;
}

int moves_promote(struct worker *w, uint32_t hits)
{
	uint32_t i = 0, n;
	int r;

	while (i < hits) {
		n = 0;
		while (n < PROMOTE_BATCH && i + n < hits && worker_in_ram(w, w->held[i + n]))
			n++;
		if (!n) {
			i++;
			continue;
		}
		r = promote_batch(w, w->held + i, n);
		if (r <= 0)
			return r;
		i += (uint32_t)r;
	}
	return 0;
}
