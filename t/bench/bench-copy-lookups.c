/* SPDX-License-Identifier: Apache-2.0 */
/* bench-copy-lookups.c - lookups beside copies: on the device and by a CPU, each at its full rate,
 * beside gpc_copy and beside the same operations without gpc at the same rate, in turns. */
#include "config.h"

#include "bench-copy.h"

#include <errno.h>

#include "gpc_device.h"

#define BATCH    256u    /* keys of a call of gpc_lookup */
#define SLICE_US 80000.0 /* that is timed, when the copies run already */

struct asker {
	struct pools *p;
	uint32_t n; /* keys, random ones of the table */
	gpc_key *keys, *d_keys;
	gpc_block *d_blocks;
	gpc_dev *d;
	cudaStream_t stream;
	cudaEvent_t from, to, ended[2];
};

/* ---- keys ---- */

static void draw_keys(struct asker *a)
{
	uint64_t x = 88172645463325252u;
	uint32_t i;

	a->keys = calloc(a->n, sizeof(*a->keys));
	if (!a->keys)
		fail("out of memory");
	for (i = 0; i < a->n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		a->keys[i] = a->p->keys[(x >> 32) % a->p->entries];
	}
}

static void open_asker(struct asker *a, struct pools *p, int device)
{
	char text[16];
	int i;

	*a = (struct asker){ .p = p, .n = quick ? 1u << 20 : 1u << 22 };
	draw_keys(a);
	snprintf(text, sizeof(text), "cuda:%d", device);
	MUST(gpc_dev_open(p->c, text, &a->d));
	CK(cudaMalloc((void **)&a->d_keys, a->n * sizeof(*a->d_keys)));
	CK(cudaMalloc((void **)&a->d_blocks, a->n * sizeof(*a->d_blocks)));
	CK(cudaMemcpy(a->d_keys, a->keys, a->n * sizeof(*a->keys), cudaMemcpyDefault));
	CK(cudaStreamCreateWithFlags(&a->stream, cudaStreamNonBlocking));
	CK(cudaEventCreate(&a->from));
	CK(cudaEventCreate(&a->to));
	for (i = 0; i < 2; i++)
		CK(cudaEventCreateWithFlags(&a->ended[i], cudaEventDisableTiming));
}

static void close_asker(struct asker *a)
{
	MUST(gpc_dev_close(a->d));
	CK(cudaFree(a->d_keys));
	CK(cudaFree(a->d_blocks));
	CK(cudaStreamDestroy(a->stream));
	free(a->keys);
}

/* ---- at full rate ---- */

static void launch(struct asker *a)
{
	int section;

	while ((section = gpc_dev_enter(a->d)) == -EAGAIN)
		sleep_us(20); /* those of launches before end on their way */
	MUST(section);
	MUST(gpc_dev_lookup(a->d, 0, a->d_keys, a->n, a->d_blocks, a->stream));
	MUST(gpc_dev_leave(a->d, section, a->stream));
}

/* Million keys a second, one launch ahead of the device. */
static double on_device(struct asker *a)
{
	double until = now_us() + SLICE_US;
	uint32_t n = 0;
	float ms;

	CK(cudaEventRecord(a->from, a->stream));
	do {
		CK(cudaEventSynchronize(a->ended[n & 1]));
		launch(a);
		CK(cudaEventRecord(a->ended[n++ & 1], a->stream));
	} while (now_us() < until);
	CK(cudaEventRecord(a->to, a->stream));
	CK(cudaEventSynchronize(a->to));
	CK(cudaEventElapsedTime(&ms, a->from, a->to));
	return (double)n * a->n / ((double)ms * 1e3);
}

static double by_cpu(struct asker *a)
{
	double from = now_us(), until = from + SLICE_US;
	gpc_block blocks[BATCH];
	uint64_t n = 0;
	static uint32_t at;

	do {
		if (MUST(gpc_lookup(a->p->c, 0, a->keys + at, BATCH, blocks, 0)) != BATCH)
			wrong("a lookup missed a key that is there");
		at = (at + BATCH) % a->n;
		n += BATCH;
	} while (now_us() < until);
	return (double)n / (now_us() - from);
}

static void verify(struct asker *a)
{
	gpc_block *got = calloc(a->n, sizeof(*got)), want[BATCH];
	uint32_t i;

	launch(a);
	MUST(gpc_dev_wait(a->d, a->stream, 20000));
	CK(cudaMemcpy(got, a->d_blocks, a->n * sizeof(*got), cudaMemcpyDefault));
	for (i = 0; i < a->n; i += BATCH) {
		MUST(gpc_lookup(a->p->c, 0, a->keys + i, BATCH, want, GPC_QUIET));
		if (memcmp(want, got + i, sizeof(want)))
			wrong("lookups on the device, key %u and after", i);
	}
	free(got);
}

/* ---- rounds ---- */

struct side {
	struct times lookups, copies;
};

static double slice(struct asker *a, double (*look)(struct asker *), bool bare, double pace_us,
		    struct side *ret)
{
	struct copier k;
	double rate;

	copier_start(&k, a->p, bare, pace_us);
	sleep_us(25000);
	rate = look(a);
	copier_stop(&k);
	if (ret) {
		add_us(&ret->lookups, rate);
		add_us(&ret->copies, k.us);
	}
	return rate;
}

static double last_us(const struct times *t)
{
	return t->us[t->n - 1];
}

/* The bare copies keep to the time that a copy of gpc has taken last. */
static void compare(struct asker *a, double (*look)(struct asker *), const char *what)
{
	struct side ours = { 0 }, bare = { 0 };
	double bytes = (double)BLOCKS * PIECES * (double)a->p->piece, pace;
	struct times ratio = { 0 }, alone = { 0 };
	int r, n = quick ? 3 : 15;
	struct row row, limit;

	slice(a, look, false, 0, &ours);
	pace = last_us(&ours.copies);
	ours.lookups.n = ours.copies.n = 0;
	for (r = 0; r < n; r++) {
		double with, without = 0;

		if (r & 1)
			without = slice(a, look, true, pace, &bare);
		with = slice(a, look, false, 0, &ours);
		pace = last_us(&ours.copies);
		if (!(r & 1))
			without = slice(a, look, true, pace, &bare);
		add_us(&ratio, with / without);
		add_us(&alone, look(a));
	}
	row = row_of(&alone, "M/s");
	row_add(&row, "%s: alone", what);
	limit = row_of(&bare.lookups, "M/s");
	row_add(&limit, "%s: beside cudaMemcpy2DAsync (limit)", what);
	row = row_of(&ours.lookups, "M/s");
	row_limit(&row, &limit);
	row.ratio = middle(&ratio);
	row.judge = RATIO_AT_LEAST;
	row.mark = 0.97;
	row_add(&row, "%s: beside gpc_copy; ratio round by round", what);
	row = row_of(&ratio, "x");
	row_add(&row, "%s: that ratio", what);
	limit = rate_of(&bare.copies, bytes);
	row = rate_of(&ours.copies, bytes);
	row_limit(&row, &limit);
	row_add(&row, "%s: gpc_copy meanwhile, both ways; limit: those without gpc", what);
	forget(&ours.lookups);
	forget(&ours.copies);
	forget(&bare.lookups);
	forget(&bare.copies);
	forget(&ratio);
	forget(&alone);
}

void bench_lookups(struct pools *p, int device)
{
	struct asker a;

	open_asker(&a, p, device);
	verify(&a);
	compare(&a, on_device, "lookups on the device");
	compare(&a, by_cpu, "lookups by one CPU");
	close_asker(&a);
}
