/* SPDX-License-Identifier: Apache-2.0 */
/* One worker: it attaches by name, replays its share of the requests in order, and reports once.
 *
 * If the writer is absent for a moment (-ENOTCONN), the worker waits for it.  It neither gives up
 * a request nor asks twice.
 * Tests: t/pages/reference.t t/tools/replay-lru.t t/tools/replay-sticky.t */
#include "config.h"

#include "tools/replay/worker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAUSE_MS_MAX 64

int worker_fail(struct worker *w, int err, const char *what)
{
	if (!w->error[0])
		snprintf(w->error, sizeof(w->error), "%s: %s", what, cli_gpc_text(err));
	return err;
}

int worker_fail_payload(struct worker *w, int err, const char *what)
{
	if (!w->payload.error[0])
		return worker_fail(w, err, what);
	if (!w->error[0])
		snprintf(w->error, sizeof(w->error), "%s: %s", what, w->payload.error);
	return err;
}

void worker_wrong(struct worker *w, uint64_t n)
{
	if (n && !w->counts.wrong && w->payload.wrong[0])
		cli_error("worker %u: %s", w->number + 1, w->payload.wrong);
	w->counts.wrong += n;
}

bool worker_again(struct worker *w, struct patience *p, int r)
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

bool worker_in_ram(const struct worker *w, gpc_block block)
{
	return block >= 0 && w->job->pool[GPC_POOL(block)].kind == GPC_RAM;
}

/* ---- its life ---- */

static int attach_job(struct worker *w)
{
	struct stat st;
	void *at;

	if (fstat(FD_JOB, &st) || (size_t)st.st_size < sizeof(struct job))
		return -EINVAL;
	at = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, FD_JOB, 0);
	if (at == MAP_FAILED)
		return -errno;
	w->job = at;
	return w->number >= w->job->workers ? -EINVAL : 0;
}

static int make_arrays(struct worker *w)
{
	size_t n = w->job->longest + 1;
	size_t results = n > RING_BATCH ? n : RING_BATCH;

	w->chain = calloc(n + 1, sizeof(*w->chain));
	w->held = calloc(2 * n, sizeof(*w->held));
	w->fresh = calloc(n, sizeof(*w->fresh));
	w->resident = calloc(n, sizeof(*w->resident));
	w->moves = calloc(RING_BATCH, sizeof(*w->moves));
	w->results = calloc(results, sizeof(*w->results));
	w->bad = calloc(results, sizeof(*w->bad));
	w->claims = calloc(n, sizeof(*w->claims));
	return w->chain && w->held && w->fresh && w->resident && w->moves && w->results && w->bad &&
			       w->claims
		       ? 0
		       : -ENOMEM;
}

static int attach_cache(struct worker *w)
{
	char label[32];
	struct gpc_attach_options opt = {
		.size = sizeof(opt),
		.timeout_ms = PATIENCE_MS,
		.dir = w->job->dir,
		.label = label,
	};
	int r;

	snprintf(label, sizeof(label), "gpc-replay %u of %u", w->number + 1, w->job->workers);
	r = gpc_attach(w->job->name, &opt, 0, &w->c);
	return r < 0 ? worker_fail(w, r, "attach") : 0;
}

/* The mirror may come a moment later. */
static int open_device(struct worker *w)
{
	struct patience p = { 0 };
	int r;

	/* a match without a device, or with a pool of its own, looks on the host */
	if (!w->job->device[0] || w->job->fetch)
		return 0;
	do {
		r = gpc_dev_open(w->c, w->job->device, &w->device);
	} while (worker_again(w, &p, r == -ESTALE ? -EAGAIN : r));
	return r < 0 ? worker_fail(w, r, "device") : 0;
}

static int open_payload(struct worker *w)
{
	int r;

	w->payload.ops = w->job->in_pools ? &payload_pool : &payload_own;
	w->payload.job = w->job;
	w->payload.c = w->c;
	w->payload.vram = w->vram;
	r = w->payload.ops->open(&w->payload);
	return r < 0 ? worker_fail_payload(w, r, "payload") : 0;
}

static void close_payload(struct worker *w)
{
	if (!w->payload.ops)
		return;
	w->counts.down_bytes = w->payload.down.bytes;
	w->counts.down_ns = w->payload.down.ns;
	w->counts.up_bytes = w->payload.up.bytes;
	w->counts.up_ns = w->payload.up.ns;
	w->payload.ops->close(&w->payload);
}

static void wait_for_gate(void)
{
	char byte;

	if (write(FD_RESULT, "+", 1) != 1)
		return;
	while (read(FD_GATE, &byte, 1) < 0 && errno == EINTR)
		;
}

/* ---- its share ---- */

static void wait_for_limit(const struct worker *w, uint64_t done)
{
	while (done >=
	       job_limit(w->job, w->number, __atomic_load_n(&w->job->step, __ATOMIC_RELAXED)))
		cli_sleep_ms(1);
}

/* Saves the counts before the number that makes them valid.  A worker that is killed between the
 * two does its request once more. */
static void save(struct worker *w, uint64_t done)
{
	if (w->job->fetch)
		w->job->saved[w->number][done & 1] = w->counts;
	__atomic_store_n(&w->job->progress[w->number].done, done, __ATOMIC_RELEASE);
}

/* The request at which the last life of this worker ended. */
static uint64_t resume(struct worker *w)
{
	uint64_t done = __atomic_load_n(&w->job->progress[w->number].done, __ATOMIC_ACQUIRE);

	if (done)
		w->counts = w->job->saved[w->number][done & 1];
	return done;
}

static int replay_share(struct worker *w)
{
	const uint64_t *start = job_start(w->job), *ids = job_ids(w->job);
	const uint64_t *share = job_shares(w->job) + w->number, *order = job_order(w->job);
	uint64_t done = w->job->progress[w->number].done, i;
	int r = 0;

	while (share[0] + done < share[1] && r >= 0) {
		wait_for_limit(w, done);
		i = order[share[0] + done];
		r = request_replay(w, ids + start[i], (uint32_t)(start[i + 1] - start[i]));
		/* a failed request does not count as done: the count may bring a kill before the
		 * report */
		if (r >= 0)
			save(w, ++done);
	}
	if (r >= 0 && w->job->fetch)
		r = fetch_spilled(w);
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

static int begin(struct worker *w)
{
	int r = attach_cache(w);

	w->vram = w->job->vram;
	if (r >= 0 && w->job->fetch)
		r = fetch_make_pool(w);
	if (r >= 0)
		r = open_device(w);
	if (r >= 0)
		r = open_payload(w);
	if (r >= 0 && w->job->fetch && resume(w) + w->job->progress[w->number].starts > 0)
		r = after_kill(w);
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
	r = begin(&w);
	wait_for_gate();
	if (r >= 0)
		r = replay_share(&w);
	close_payload(&w);
	gpc_close(w.c);
	return report(&w) || r < 0 ? EXIT_RUNTIME : 0;
}
