/* SPDX-License-Identifier: Apache-2.0 */
/* A worker with a pool of VRAM of its own, in a space of its own, like an engine on a GPU of its
 * own.  The blocks that it computes are copied, ahead of need, to the RAM that all workers share.
 * gpc_fetch brings from there the blocks that any worker has computed.
 *
 * Fetches are on the stream that verifies.  So on a GPU the bytes are verified in the order of
 * that stream, before the worker has waited for the copies.  The host device has no such stream,
 * so the worker waits first.  Spills are on the device's default stream, and the next request
 * waits for them.  So no victim is without its copy, and one worker's hits are the same each time.
 * Tests: t/tools/replay-fetch.t */
#include "config.h"

#include "tools/replay/worker.h"

#include <errno.h>
#include <string.h>

enum { COPY_MS = 60000 };

/* ---- the pool ---- */

/* Pieces lie as in the pool of a keeper.  A worker that starts again waits until the pool of its
 * last life has gone. */
int fetch_make_pool(struct worker *w)
{
	const struct job *j = w->job;
	uint64_t piece = j->payload / j->pieces;
	struct gpc_run run = { .count = j->pieces,
			       .bytes = piece,
			       .slot_stride = piece,
			       .run_stride = piece * j->vram_blocks };
	struct gpc_memory m = { .size = sizeof(m),
				.nruns = 1,
				.runs = &run,
				.device = j->device,
				.block_bytes = j->payload };
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = GPC_VRAM,
			      .flags = GPC_POOL_OWNED,
			      .space = w->number,
			      .blocks = j->vram_blocks,
			      .demote_to = j->ram,
			      .spill_ahead = j->ram < 0 ? 0 : j->spill_ahead };
	struct patience patience = { 0 };
	int r;

	do {
		r = gpc_pool_make(w->c, &p, &m, PATIENCE_MS);
	} while (worker_again(w, &patience, r == -ENOSPC ? -EAGAIN : r));
	if (r < 0)
		return worker_fail(w, r, "pool");
	w->vram = r;
	return 0;
}

/* ---- hits ---- */

static bool is_ordered(const struct worker *w)
{
	return strcmp(w->job->device, "host") != 0;
}

static int wait_for(struct worker *w, gpc_transfer t)
{
	struct patience p = { 0 };
	int r;

	do {
		r = gpc_transfer_wait(w->c, t, COPY_MS);
	} while (worker_again(w, &p, r));
	return r;
}

/* The number of blocks that came by the transfer.  The writer may have refused a block whose
 * source had gone meanwhile.  Such a block has its bytes, and belongs to the caller as long as it
 * is held. */
static int count_copied(struct worker *w, gpc_transfer t)
{
	int n = t ? gpc_transfer_results(w->c, t, w->results, w->job->longest + 1) : 0;

	for (int i = 0; i < n; i++)
		w->counts.uncommitted += w->results[i] < 0;
	return n < 0 ? worker_fail(w, n, "results") : n;
}

/* Waits for the bytes of blocks `first` on, and for the end of their transfer: 0, -EBADMSG, or an
 * error. */
static int settle(struct worker *w, uint32_t first, uint32_t n, gpc_transfer t)
{
	const gpc_key *keys = w->chain + 1 + first;
	int wrong, r = is_ordered(w) ? 0 : wait_for(w, t);

	if (r < 0)
		return r == -EBADMSG ? r : worker_fail(w, r, "fetch, wait");
	wrong = w->payload.ops->check(&w->payload, GPC_VRAM | GPC_RAM, w->held + first, keys, n);
	if (wrong < 0)
		return worker_fail_payload(w, wrong, "verify");
	r = is_ordered(w) ? wait_for(w, t) : 0;
	if (r < 0)
		return r == -EBADMSG ? r : worker_fail(w, r, "fetch, wait");
	worker_wrong(w, (uint64_t)wrong);
	return 0;
}

/* Fetches from block `first` on, as many as one call brings.  Blocks that cannot be had now are
 * computed. */
static int fetch_some(struct worker *w, uint32_t first, uint32_t n, gpc_transfer *ret)
{
	uint32_t ram = w->job->ram < 0 ? GPC_SPACE(w->number) : w->job->spaces;
	void *stream = w->payload.ops->stream(&w->payload);
	struct patience p = { 0 };
	int got;

	do {
		got = gpc_fetch(w->c, w->vram, w->chain + 1 + first, n, w->held + first,
				GPC_OPTIONS(gpc_fetch_options, .spaces = ram), 0, stream,
				PATIENCE_MS, ret);
	} while (worker_again(w, &p, got));
	if (got == -ENOSPC || got == -EALREADY)
		return 0;
	return got < 0 ? worker_fail(w, got, "fetch") : got;
}

/* Brings the longest prefix into this worker's VRAM; returns its length.  Where a checksum was
 * wrong, the bad block has been dropped, and the next prefix ends before it. */
int fetch_hits(struct worker *w, uint32_t n)
{
	uint32_t len = 0;
	int got, copied, r;

	do {
		gpc_transfer t = 0;

		got = fetch_some(w, len, n - len, &t);
		if (got <= 0)
			return got < 0 ? got : (int)len;
		r = settle(w, len, (uint32_t)got, t);
		if (r == -EBADMSG) {
			r = gpc_release(w->c, w->held + len, (uint32_t)got);
			copied = GPC_TRANSFER_BLOCKS;
			got = 0;
		} else {
			copied = r < 0 ? r : count_copied(w, t);
		}
		if (r < 0 || copied < 0)
			return r < 0 ? r : copied;
		w->counts.ram_hits += got ? (uint64_t)copied : 0;
		w->counts.vram_hits += got ? (uint64_t)(got - copied) : 0;
		len += (uint32_t)got;
	} while (len < n && copied >= GPC_TRANSFER_BLOCKS);
	return (int)len;
}

/* ---- blocks that are computed ---- */

/* The claim tells another worker of this space that these keys are being computed. */
int fetch_claim(struct worker *w, const gpc_key *keys, uint32_t n)
{
	struct patience p = { 0 };
	int r;

	do {
		r = gpc_claim(w->c, keys, w->fresh, n, w->claims, 0, PATIENCE_MS);
	} while (worker_again(w, &p, r));
	if (r < 0)
		return worker_fail(w, r, "claim");
	w->counts.claimed += (uint64_t)r;
	w->counts.pending += n - (uint64_t)r;
	return 0;
}

/* ---- ahead of need ---- */

int fetch_spilled(struct worker *w)
{
	int r = wait_for(w, w->spill);

	w->spill = 0;
	return r < 0 ? worker_fail(w, r, "spill, wait") : 0;
}

/* The step of an engine between two requests.  Another worker may be copying the same keys. */
int fetch_spill(struct worker *w)
{
	struct patience p = { 0 };
	int r;

	if (w->job->ram < 0)
		return 0;
	do {
		r = fetch_spilled(w);
		if (r < 0)
			return r;
		do {
			r = gpc_spill_ahead(w->c, w->vram, NULL, PATIENCE_MS, &w->spill);
		} while (worker_again(w, &p, r));
	} while (r == GPC_TRANSFER_BLOCKS);
	if (r == -ENOSPC || r == -EALREADY || r == -ESTALE)
		return 0;
	return r < 0 ? worker_fail(w, r, "spill") : 0;
}
