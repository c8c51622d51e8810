/* SPDX-License-Identifier: Apache-2.0 */
/* One worker: attaches by name, replays requests i, i + N, ... in order, reports once.
 *
 * A request does what an engine does.  Its longest prefix is looked up and referenced at
 * once; what lies in RAM is promoted; blocks for the rest are reserved, filled,
 * published; at the end everything goes back in one call, root first, which makes deeper
 * blocks older.
 *
 * A writer that is gone for a moment (-ENOTCONN) is waited for: nothing that was asked
 * of it is given up or asked for twice. */
#include "config.h"

#include "tools/replay/replay.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	PROMOTE_BATCH = 32,          /* well below a RAM pool's transit slots */
	RING_BATCH = 1024,           /* well below what one command may name */
	PAUSE_MS_MAX = 64,
};

struct worker {
	struct job *job;
	struct payload payload;
	uint32_t number;
	gpc *c;
	gpc_dev *device;             /* NULL: match on the host */
	struct counts counts;
	/* of the request at hand: chain[0] is no key, chain[1 + j] names block j */
	gpc_key *chain;
	gpc_block *held;             /* blocks that go back at the end, root first */
	gpc_block *fresh, *resident;
	struct gpc_move *moves;
	int *results;
	gpc_key *known;              /* keys of the trace, sorted; made when wanted */
	char error[512];
};

/* ---- errors, and a writer that is away ---- */

static int fail(struct worker *w, int err, const char *what)
{
	if (!w->error[0])
		snprintf(w->error, sizeof(w->error), "%s: %s", what, cli_gpc_text(err));
	return err;
}

struct patience { uint64_t end_ns; unsigned pause_ms; };

/* True: wait a little, then do it again. */
static bool try_again(struct worker *w, struct patience *p, int r)
{
	if (r != -ENOTCONN && r != -EAGAIN && r != -ETIMEDOUT && r != -EINTR)
		return false;
	if (!p->end_ns) {
		p->end_ns = cli_now_ns() + PATIENCE_MS * UINT64_C(1000000);
		p->pause_ms = 1;
	} else if (cli_now_ns() > p->end_ns) {
		return false;
	}
	if (r == -ENOTCONN)
		w->counts.retries++;
	cli_sleep_ms(p->pause_ms);
	if (p->pause_ms < PAUSE_MS_MAX)
		p->pause_ms *= 2;
	return true;
}

static int commit(struct worker *w, const struct gpc_move *moves, uint32_t n)
{
	struct patience p = { 0 };
	int r;

	do {
		r = gpc_commit(w->c, moves, n, w->results, 0, -1);
	} while (try_again(w, &p, r));
	return r < 0 ? fail(w, r, "commit") : r;
}

/* ---- whose block it is ---- */

static int by_key(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(gpc_key));
}

/* In a cache that others fill as well, victims may be theirs, with no bytes of ours to
 * verify.  Asked only when the bytes are not those of the key. */
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
				   sizeof(uint64_t), (uint32_t)batch, REPLAY_GROUP,
				   w->known + at);
		}
		qsort(w->known, n, sizeof(*w->known), by_key);
	}
	return bsearch(key, w->known, n, sizeof(*w->known), by_key);
}

/* ---- victims and promotion ---- */

/* Victims came leaf first: their parents are at the end, and are committed first. */
static int commit_victims(struct worker *w, const struct gpc_move *moves, uint32_t n)
{
	uint32_t batch;
	int r, done = 0;

	while (n) {
		batch = n < RING_BATCH ? n : RING_BATCH;
		n -= batch;
		r = commit(w, moves + n, batch);
		if (r < 0)
			return r;
		done += r;
	}
	return done;
}

/* Copy each victim down, then commit: at[i] is the block whose bytes are still the
 * victim's, moves[i] where they go.  Compacts moves. */
static int demote_victims(struct worker *w, const gpc_block *at, struct gpc_move *moves,
			  uint32_t n)
{
	uint32_t m = 0;
	int r;

	for (uint32_t i = 0; i < n; i++) {
		if (moves[i].to < 0)
			continue;
		if (!payload_copy(&w->payload, at[i], moves[i].to, &moves[i].key) &&
		    is_of_trace(w, &moves[i].key))
			w->counts.wrong++;
		moves[m++] = moves[i];
	}
	r = commit_victims(w, moves, m);
	if (r > 0)
		w->counts.demoted += (uint64_t)r;
	return r;
}

/* Begin, copy, commit; held[] names the VRAM blocks afterwards.  Returns how many
 * moves began, 0 when there is no room, or a negative errno. */
static int promote_batch(struct worker *w, gpc_block *held, uint32_t n)
{
	struct gpc_move moves[PROMOTE_BATCH], victims[PROMOTE_BATCH];
	gpc_block to[PROMOTE_BATCH];
	struct patience p = { 0 };
	int began, r;

	do {
		began = gpc_promote(w->c, held, n, w->job->vram, moves, victims, 0, -1);
	} while (try_again(w, &p, began));
	if (began == -ENOSPC || began == -ESTALE || began == 0)
		return 0;
	if (began < 0)
		return fail(w, began, "promote");
	for (int i = 0; i < began; i++)
		to[i] = moves[i].to;
	r = demote_victims(w, to, victims, (uint32_t)began);
	if (r < 0)
		return r;
	for (int i = 0; i < began; i++)
		if (!payload_copy(&w->payload, moves[i].from, moves[i].to, &moves[i].key))
			w->counts.wrong++;
	r = commit(w, moves, (uint32_t)began);
	if (r < 0)
		return r;
	w->counts.promoted += (uint64_t)r;
	for (int i = 0; i < began; i++)
		if (!w->results[i])
			held[i] = moves[i].to;
	return began;
}

static bool is_in_ram(const struct worker *w, gpc_block block)
{
	return block >= 0 && w->job->pool[GPC_POOL(block)].kind == GPC_RAM;
}

/* Root first, run by run of blocks in RAM; without room the rest is used from there. */
static int promote_hits(struct worker *w, uint32_t hits)
{
	uint32_t i = 0, n;
	int r;

	while (i < hits) {
		n = 0;
		while (n < PROMOTE_BATCH && i + n < hits && is_in_ram(w, w->held[i + n]))
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

/* ---- what is missing ---- */

/* Up to n blocks, ready to be written; fewer or none when the rest is in use. */
static int reserve(struct worker *w, uint32_t n)
{
	struct gpc_move *moves = w->job->ram < 0 ? NULL : w->moves;
	int vram = w->job->vram;
	struct patience p = { 0 };
	int got, r;

	do {
		got = gpc_reserve(w->c, vram, n, w->fresh,
				  GPC_OPTIONS(gpc_reserve_options, .moves = moves),
				  GPC_PARTIAL, -1);
	} while (try_again(w, &p, got));
	if (got == -ENOSPC)
		return 0;
	if (got < 0)
		return fail(w, got, "reserve");
	r = moves ? demote_victims(w, w->fresh, moves, (uint32_t)got) : 0;
	return r < 0 ? r : got;
}

/* fresh[at .. at + n), block `first` of the request being fresh[0].  Submitted once; the
 * answer is waited for across writers. */
static int publish_batch(struct worker *w, uint32_t first, uint32_t at, uint32_t n)
{
	const gpc_key *parents = w->chain + first + at;
	struct patience p = { 0 }, q = { 0 };
	gpc_ticket ticket = 0;
	int r;

	do {
		r = gpc_publish(w->c, parents, parents + 1, w->fresh + at, n,
				GPC_OPTIONS(gpc_publish_options, .tag = REPLAY_TAG,
					    .resident = w->resident + at,
					    .ticket = &ticket), 0, 0);
	} while (try_again(w, &p, r));
	if (r < 0)
		return fail(w, r, "publish");
	do {
		r = gpc_ticket_wait(w->c, ticket, 1000);
	} while (try_again(w, &q, r));
	return r < 0 ? fail(w, r, "wait") : 0;
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

/* What became of each block: ours, somebody else's, or refused.  held[] grows by n
 * places; reservations that were not needed go to spare[]. */
static void sort_out(struct worker *w, uint32_t first, uint32_t n, gpc_block *spare,
		     uint32_t *nspare)
{
	for (uint32_t i = 0; i < n; i++) {
		gpc_block resident = w->resident[i];

		w->held[first + i] = resident < 0 ? GPC_NONE : resident;
		if (resident == w->fresh[i]) {
			w->counts.inserted++;
			continue;
		}
		spare[(*nspare)++] = w->fresh[i];
		if (resident < 0) {
			w->counts.refused++;
			continue;
		}
		w->counts.duplicates++;
		if (!payload_is(&w->payload, resident, &w->chain[1 + first + i]))
			w->counts.wrong++;
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
	for (int i = 0; i < got; i++)
		payload_write(&w->payload, w->fresh[i],
			      &w->chain[1 + hits + (uint32_t)i]);
	r = publish(w, hits, (uint32_t)got);
	if (r < 0)
		return r;
	sort_out(w, hits, (uint32_t)got, w->held + hits + got, &spares);
	return (int)(hits + (uint32_t)got + spares);
}

/* ---- one request ---- */

static void count_hits(struct worker *w, uint32_t hits)
{
	w->counts.hits += hits;
	for (uint32_t i = 0; i < hits; i++) {
		if (is_in_ram(w, w->held[i]))
			w->counts.ram_hits++;
		else
			w->counts.vram_hits++;
		if (!payload_is(&w->payload, w->held[i], &w->chain[1 + i]))
			w->counts.wrong++;
	}
}

/* By the device, on what was acknowledged so far; its hits are hints until they are
 * references.  While there is no mirror the host answers. */
static int acquire_there(struct worker *w, uint32_t n)
{
	const uint32_t start[] = { 0, n };
	const gpc_key *keys = w->chain + 1;
	uint32_t len = 0;
	int r = gpc_mirror_sync(w->c, GPC_TICKET_ALL, PATIENCE_MS);

	if (r >= 0)
		r = gpc_match(w->c, 0, keys, start, 1, &len, w->held, GPC_DEVICE);
	if (r < 0)
		return gpc_acquire(w->c, 0, keys, n, w->held, 0);
	w->counts.on_device++;
	return len ? gpc_ref(w->c, keys, w->held, len) : 0;
}

static int acquire(struct worker *w, uint32_t n)
{
	return w->device ? acquire_there(w, n)
			 : gpc_acquire(w->c, 0, w->chain + 1, n, w->held, 0);
}

static int replay(struct worker *w, const uint64_t *ids, uint32_t n)
{
	uint64_t begin;
	int hits, used, r;

	w->counts.requests++;
	w->counts.block_refs += n;
	if (!n)
		return 0;            /* shorter than a block */
	r = gpc_key_import(w->c, ids, sizeof(*ids), sizeof(*ids), n, REPLAY_GROUP,
		       w->chain + 1);
	if (r < 0)
		return fail(w, r, "import");
	begin = cli_now_ns();
	hits = acquire(w, n);
	if (hits < 0)
		return fail(w, hits, "acquire");
	counts_latency(&w->counts, cli_now_ns() - begin);
	count_hits(w, (uint32_t)hits);
	r = promote_hits(w, (uint32_t)hits);
	if (r < 0)
		return r;
	used = fill(w, (uint32_t)hits, n);
	if (used < 0)
		return used;
	r = used ? gpc_release(w->c, w->held, (uint32_t)used) : 0;
	return r < 0 ? fail(w, r, "release") : 0;
}

/* ---- its life ---- */

static int attach_job(struct worker *w)
{
	struct stat st;
	void *at;

	if (fstat(FD_JOB, &st) || (size_t)st.st_size < sizeof(struct job))
		return -EINVAL;
	at = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED,
		  FD_JOB, 0);
	if (at == MAP_FAILED)
		return -errno;
	w->job = at;
	if (w->number >= w->job->workers)
		return -EINVAL;
	return payload_map(&w->payload, w->job, FD_PAYLOAD);
}

static int make_arrays(struct worker *w)
{
	size_t n = w->job->longest + 1;
	size_t results = n > PROMOTE_BATCH ? n : PROMOTE_BATCH;

	w->chain = calloc(n + 1, sizeof(*w->chain));
	w->held = calloc(2 * n, sizeof(*w->held));
	w->fresh = calloc(n, sizeof(*w->fresh));
	w->resident = calloc(n, sizeof(*w->resident));
	w->moves = calloc(n, sizeof(*w->moves));
	w->results = calloc(results, sizeof(*w->results));
	return w->chain && w->held && w->fresh && w->resident && w->moves && w->results ?
	       0 : -ENOMEM;
}

static int attach_cache(struct worker *w)
{
	char label[32];
	struct gpc_attach_options opt = {
		.size = sizeof(opt), .timeout_ms = PATIENCE_MS, .dir = w->job->dir,
		.label = label,
	};
	int r;

	snprintf(label, sizeof(label), "gpc-replay %u of %u", w->number + 1,
		 w->job->workers);
	r = gpc_attach(w->job->name, &opt, 0, &w->c);
	return r < 0 ? fail(w, r, "attach") : 0;
}

/* The mirror may be about to come. */
static int open_device(struct worker *w)
{
	struct patience p = { 0 };
	int r;

	if (!w->job->device[0])
		return 0;
	do {
		r = gpc_dev_open(w->c, w->job->device, &w->device);
	} while (try_again(w, &p, r == -ESTALE ? -EAGAIN : r));
	return r < 0 ? fail(w, r, "device") : 0;
}

static void wait_for_gate(void)
{
	char byte;

	if (write(FD_RESULT, "+", 1) != 1)
		return;
	while (read(FD_GATE, &byte, 1) < 0 && errno == EINTR)
		;
}

static int replay_share(struct worker *w)
{
	const uint64_t *start = job_start(w->job), *ids = job_ids(w->job);
	uint64_t *done = &w->job->progress[w->number].done;
	uint32_t step = w->job->workers;
	int r = 0;

	for (uint32_t i = w->number; i < w->job->requests && r >= 0; i += step) {
		r = replay(w, ids + start[i], (uint32_t)(start[i + 1] - start[i]));
		__atomic_store_n(done, *done + 1, __ATOMIC_RELAXED);
	}
	w->counts.end_ns = cli_now_ns();
	return r;
}

static int report(struct worker *w)
{
	json_t *o = counts_to_json(&w->counts);
	FILE *f = fdopen(FD_RESULT, "w");
	int r;

	if (w->error[0])
		json_object_set_new(o, "error", json_string(w->error));
	r = f ? json_dumpf(o, f, JSON_COMPACT) : -1;
	if (f && fclose(f))
		r = -1;
	json_decref(o);
	return r;
}

int worker_main(uint32_t number)
{
	static struct worker w;
	int r;

	w.number = number;
	r = attach_job(&w);
	if (!r)
		r = make_arrays(&w);
	if (r) {
		cli_error("worker %u: %s", number + 1, strerror(-r));
		return EXIT_RUNTIME;
	}
	r = attach_cache(&w);
	if (r >= 0)
		r = open_device(&w);
	wait_for_gate();
	if (r >= 0)
		r = replay_share(&w);
	gpc_close(w.c);
	return report(&w) || r < 0 ? EXIT_RUNTIME : 0;
}
