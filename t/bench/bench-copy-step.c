/* SPDX-License-Identifier: Apache-2.0 */
/* bench-copy-step.c - what a decode-like step feels of copies beside it: 4 KiB in, a kernel, 64 B
 * out, on a stream of its own.  Slices by turns: alone; with a stream that the same thread keeps
 * full by gpc_copy between its steps; and with a thread that copies both ways at once. */
#include "config.h"

#include "bench-copy.h"

#include <errno.h>

#define SLICE_US 200000.0
#define STEPS    20000u /* of each way, at least */

enum { ALONE, SAME_THREAD, OTHER_THREAD, WAYS };

struct step {
	cudaStream_t stream;
	uint8_t *host, *dev;
	uint32_t *word;
};

static double one_step(struct step *s)
{
	double at = now_us();

	CK(cudaMemcpyAsync(s->dev, s->host, 4096, cudaMemcpyHostToDevice, s->stream));
	CK(busy_say(s->word, s->stream));
	CK(cudaMemcpyAsync(s->host, s->dev, 64, cudaMemcpyDeviceToHost, s->stream));
	CK(cudaStreamSynchronize(s->stream));
	return now_us() - at;
}

static void open_step(struct step *s)
{
	int low, high, i;

	CK(cudaDeviceGetStreamPriorityRange(&low, &high));
	CK(cudaStreamCreateWithPriority(&s->stream, cudaStreamNonBlocking, high));
	CK(cudaHostAlloc((void **)&s->host, 8192, cudaHostAllocMapped));
	CK(cudaMalloc((void **)&s->dev, 4096));
	s->word = (uint32_t *)(void *)(s->host + 4096);
	for (i = 0; i < 500; i++)
		one_step(s);
}

/* ---- a stream that is kept full ---- */

struct feeder {
	struct pools *p;
	cudaStream_t stream;
	gpc_transfer t[COPY_AHEAD];
	uint32_t n;
};

static void feed(struct feeder *f)
{
	int err = gpc_transfer_wait(f->p->c, f->t[f->n % COPY_AHEAD], 0);

	if (err == -EAGAIN)
		return;
	MUST(err);
	MUST(gpc_copy(f->p->c, f->p->moves[f->n & 1], BLOCKS, 0, f->stream,
		      &f->t[f->n % COPY_AHEAD]));
	f->n++;
}

/* ---- slices ---- */

static void slice(struct step *s, struct feeder *f, int way, struct times *t)
{
	double until;
	struct copier k;
	uint32_t i;

	if (way == OTHER_THREAD)
		copier_start(&k, f->p, false, 0);
	for (i = 0; way == SAME_THREAD && i < COPY_AHEAD; i++)
		feed(f);
	sleep_us(2000);
	for (until = now_us() + SLICE_US, i = 0; now_us() < until; i++) {
		if (way == SAME_THREAD && i % 4 == 0)
			feed(f);
		add_us(t, one_step(s));
	}
	if (way == OTHER_THREAD)
		copier_stop(&k);
	MUST(gpc_transfer_wait(f->p->c, GPC_TRANSFER_ALL, 20000));
}

static void add_rows(struct times *t, const char *what, struct times *alone, bool marked)
{
	static const double parts[] = { 0.5, 0.99, 0.999 };
	static const char *const of[] = { "p50", "p99", "p99.9" };
	size_t i;

	for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		double us = part(t, parts[i]);
		struct row r = { .unit = "us", .value = { us, part(t, 0), part(t, 1) } };

		if (alone) {
			r.limit = part(alone, parts[i]);
			r.ratio = us / r.limit;
		}
		if (marked && i == 1) {
			r.judge = RATIO_AT_MOST;
			r.mark = 1.6;
		}
		row_add(&r, "a decode-like step %s, %s (then: least, most)", what, of[i]);
	}
}

void bench_step(struct pools *p)
{
	struct times t[WAYS] = { 0 };
	struct feeder f = { .p = p };
	uint32_t least = quick ? 500 : STEPS, i;
	struct step s;
	bool more = true;

	open_step(&s);
	CK(cudaStreamCreateWithFlags(&f.stream, cudaStreamNonBlocking));
	for (i = 0; i < 60 && more; i++) { /* 8 rounds of slices, as many as 20 if need be */
		slice(&s, &f, (int)(i % WAYS), &t[i % WAYS]);
		if (i % WAYS == WAYS - 1 && i + 1 >= (quick ? 1u : 8u) * WAYS)
			more = t[ALONE].n < least || t[SAME_THREAD].n < least ||
			       t[OTHER_THREAD].n < least;
	}
	note("steps: %u alone, %u beside, %u beside another thread", t[ALONE].n, t[SAME_THREAD].n,
	     t[OTHER_THREAD].n);
	add_rows(&t[ALONE], "alone", NULL, false);
	add_rows(&t[SAME_THREAD], "beside a stream full of copies", &t[ALONE], true);
	add_rows(&t[OTHER_THREAD], "beside a thread that copies both ways", &t[ALONE], false);
	for (i = 0; i < WAYS; i++)
		forget(&t[i]);
	CK(cudaStreamDestroy(f.stream));
	CK(cudaStreamDestroy(s.stream));
	CK(cudaFreeHost(s.host));
	CK(cudaFree(s.dev));
}
