/* SPDX-License-Identifier: Apache-2.0 */
/* One request, as an engine serves it.  Its longest prefix is looked up and referenced at once,
 * and hits in RAM are promoted.  Blocks for the rest are reserved, filled and published.  At the
 * end all blocks go back in one call, root first, which makes deeper blocks older.
 * Tests: t/tools/replay-lru.t */
#include "config.h"

#include "tools/replay/worker.h"

#include <errno.h>

/* ---- missing blocks ---- */

/* Reserves up to n blocks, ready to be written; fewer or none when the rest is in use. */
static int reserve(struct worker *w, uint32_t n)
{
	struct patience p = { 0 };
	int got = moves_make_room(w, n);

	if (got < 0)
		return got;
	do {
		got = gpc_reserve(w->c, w->vram, n, w->fresh, NULL, GPC_PARTIAL, -1);
	} while (worker_again(w, &p, got));
	if (got == -ENOSPC)
		return 0;
	return got < 0 ? worker_fail(w, got, "reserve") : got;
}

/* Publishes fresh[at .. at + n); fresh[0] is block `first` of the request.  It submits once, and
 * waits for the answer across writers. */
static int publish_batch(struct worker *w, uint32_t first, uint32_t at, uint32_t n)
{
	const gpc_key *parents = w->chain + first + at;
	struct patience p = { 0 }, q = { 0 };
	gpc_ticket ticket = 0;
	int r;

	do {
		r = gpc_publish(w->c, parents, parents + 1, w->fresh + at, n,
				GPC_OPTIONS(gpc_publish_options, .tag = w->job->tag,
					    .resident = w->resident + at, .ticket = &ticket),
				0, 0);
	} while (worker_again(w, &p, r));
	if (r < 0)
		return worker_fail(w, r, "publish");
	do {
		r = gpc_ticket_wait(w->c, ticket, 1000);
	} while (worker_again(w, &q, r));
	return r < 0 ? worker_fail(w, r, "wait") : 0;
}

static int publish(struct worker *w, uint32_t first, uint32_t n)
{
	uint32_t at, batch;
	int r = 0;

	for (at = 0; at < n && !r; at += batch) {
		batch = n - at < RING_BATCH ? n - at : RING_BATCH;
		r = publish_batch(w, first, at, batch);
	}
	return r;
}

/* Have the blocks of these kinds the bytes of the keys of blocks first, ... of the request? */
static int verify(struct worker *w, uint32_t kinds, const gpc_block *blocks, uint32_t first,
		  uint32_t n)
{
	int wrong = w->payload.ops->check(&w->payload, kinds, blocks, &w->chain[1 + first], n);

	if (wrong < 0)
		return worker_fail_payload(w, wrong, "verify");
	worker_wrong(w, (uint64_t)wrong);
	return 0;
}

/* The result of each block: ours, another process's, or refused.  held[] grows by n places.
 * Reservations that were not needed go to spare[].  resident[] keeps the blocks that another
 * process published. */
static void sort_out(struct worker *w, uint32_t first, uint32_t n, gpc_block *spare,
		     uint32_t *nspare)
{
	for (uint32_t i = 0; i < n; i++) {
		gpc_block resident = w->resident[i];

		w->held[first + i] = resident < 0 ? GPC_NONE : resident;
		if (resident == w->fresh[i]) {
			w->counts.inserted++;
			w->resident[i] = GPC_NONE;
			continue;
		}
		spare[(*nspare)++] = w->fresh[i];
		if (resident < 0)
			w->counts.refused++;
		else
			w->counts.duplicates++;
	}
}

/* Returns how many places of held[] are in use, or a negative errno. */
static int fill(struct worker *w, uint32_t hits, uint32_t n)
{
	uint32_t spares = 0;
	int got, r;

	got = n > hits ? reserve(w, n - hits) : 0;
	if (got < 0)
		return got;
	w->counts.unplaced += n - hits - (uint32_t)got;
	if (!got)
		return (int)hits;
	r = w->job->fetch ? fetch_claim(w, &w->chain[1 + hits], (uint32_t)got) : 0;
	if (r < 0)
		return r;
	r = w->payload.ops->write(&w->payload, w->fresh, &w->chain[1 + hits], (uint32_t)got);
	if (r < 0)
		return worker_fail_payload(w, r, "write");
	r = publish(w, hits, (uint32_t)got);
	if (r < 0)
		return r;
	sort_out(w, hits, (uint32_t)got, w->held + hits + got, &spares);
	r = verify(w, GPC_VRAM | GPC_RAM, w->resident, hits, (uint32_t)got);
	return r < 0 ? r : (int)(hits + (uint32_t)got + spares);
}

/* ---- one request ---- */

static void count_hits(struct worker *w, uint32_t hits)
{
	w->counts.hits += hits;
	for (uint32_t i = 0; i < hits; i++) {
		if (worker_in_ram(w, w->held[i]))
			w->counts.ram_hits++;
		else
			w->counts.vram_hits++;
	}
}

/* Each hit is verified under its reference: in VRAM here, a hit that comes up from RAM at its
 * copy, and the rest in place. */
static int use_hits(struct worker *w, uint32_t hits)
{
	int r = verify(w, GPC_VRAM, w->held, 0, hits);

	if (r >= 0)
		r = moves_promote(w, hits);
	return r < 0 ? r : verify(w, GPC_RAM, w->held, 0, hits);
}

/* The device matches the blocks that were acknowledged so far.  Its hits are hints until they are
 * references.  While there is no mirror, the host answers. */
static int acquire_there(struct worker *w, uint32_t n)
{
	const uint32_t start[] = { 0, n };
	const gpc_key *keys = w->chain + 1;
	uint32_t len = 0;
	int r = gpc_mirror_sync(w->c, GPC_TICKET_ALL, PATIENCE_MS);

	if (r >= 0)
		r = gpc_match(w->c, w->job->spaces, keys, start, 1, &len, w->held, GPC_DEVICE);
	if (r < 0)
		return gpc_acquire(w->c, w->job->spaces, keys, n, w->held, 0);
	w->counts.on_device++;
	return len ? gpc_ref(w->c, keys, w->held, len) : 0;
}

static int acquire(struct worker *w, uint32_t n)
{
	return w->device ? acquire_there(w, n)
			 : gpc_acquire(w->c, w->job->spaces, w->chain + 1, n, w->held, 0);
}

/* Uses hits in place, and hits that come up from RAM. */
static int hit(struct worker *w, uint32_t n)
{
	uint64_t begin = cli_now_ns();
	int hits = acquire(w, n), r;

	if (hits < 0)
		return worker_fail(w, hits, "acquire");
	count_hits(w, (uint32_t)hits);
	r = disk_hits(w, (uint32_t)hits, n);
	if (r < 0)
		return r;
	w->counts.hits += (uint64_t)(r - hits);
	hits = r;
	counts_latency(&w->counts, cli_now_ns() - begin);
	r = use_hits(w, (uint32_t)hits);
	return r < 0 ? r : hits;
}

/* All blocks come into this worker's own pool; the time is that until the bytes are there. */
static int hit_by_fetch(struct worker *w, uint32_t n)
{
	uint64_t begin;
	int hits, r = fetch_spilled(w);

	if (r < 0)
		return r;
	begin = cli_now_ns();
	hits = fetch_hits(w, n);
	if (hits < 0)
		return hits;
	counts_latency(&w->counts, cli_now_ns() - begin);
	w->counts.hits += (uint64_t)hits;
	return hits;
}

int request_replay(struct worker *w, const uint64_t *ids, uint32_t n)
{
	int hits, used, r;

	w->counts.requests++;
	w->counts.block_refs += n;
	if (!n)
		return 0; /* the prompt is shorter than a block */
	r = gpc_key_import(w->c, ids, sizeof(*ids), sizeof(*ids), n, w->job->group, w->chain + 1);
	if (r < 0)
		return worker_fail(w, r, "import");
	hits = w->job->fetch ? hit_by_fetch(w, n) : hit(w, n);
	if (hits < 0)
		return hits;
	used = fill(w, (uint32_t)hits, n);
	if (used < 0)
		return used;
	r = used ? gpc_release(w->c, w->held, (uint32_t)used) : 0;
	if (r < 0)
		return worker_fail(w, r, "release");
	return w->job->fetch ? fetch_spill(w) : disk_settle(w);
}
