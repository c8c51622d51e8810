/* SPDX-License-Identifier: Apache-2.0 */
/* bench-fetch-lookups.c - lookups by a thread at its full rate, beside another one that fetches
 * chain after chain, and beside bare copies of as many blocks at the same pace; by the CPU, and on
 * the GPU. */
#include "config.h"

#include "bench-fetch.h"

#include "gpc_device.h"

#define BATCH    256u /* keys of a call by the CPU */
#define SLICE_US 80000.0

struct looker {
	struct tiers *t;
	uint32_t entries, at, turn;
	gpc_key *keys, *d_keys;
	gpc_block *d_blocks;
	gpc_dev *d;
	cudaStream_t stream;
};

/* ---- a thread that copies without rest ---- */

struct fetcher {
	struct tiers *t;
	bool bare;
	double pace_us; /* not sooner one after the other */
	uint32_t *turn; /* the chain whose turn it is: the other one has the room now */
	uint32_t stop;
	double us; /* out: of a chain */
	pthread_t thread;
};

static void *fetcher_run(void *arg)
{
	struct fetcher *f = arg;
	struct tiers *t = f->t;
	struct gpc_fetch_options opt = { .size = sizeof(opt), .spaces = GPC_SPACE(RAM_SPACE) };
	struct gpc_move moves[MOST];
	gpc_block b[MOST], r[MOST];
	gpc_transfer x;
	double from, left;
	uint32_t i, j;

	if (on_gpu())
		CK(cudaSetDevice(strncmp(device, "cuda:", 5) ? 0 : atoi(device + 5)));
	if (f->bare) {
		tiers_take(t, RAM_SPACE, 0, t->n, r);
		MUST(gpc_reserve(t->c, t->vram, t->n, b, NULL, 0, WAIT));
		for (j = 0; j < t->n; j++)
			moves[j] = (struct gpc_move){ .from = r[j], .to = b[j] };
	}
	from = now_us();
	for (i = 0; !__atomic_load_n(&f->stop, __ATOMIC_ACQUIRE); i++) {
		left = from + i * f->pace_us - now_us();
		if (f->pace_us > 0 && left > 60)
			sleep_us((unsigned)left - 50);
		if (f->bare) {
			copy_bare(t, moves, t->n);
			settle(t->stream);
			continue;
		}
		if (MUST(gpc_fetch(t->c, t->vram, t->key[++*f->turn & 1] + 1, t->n, b, &opt, 0,
				   t->stream, WAIT, &x)) != (int)t->n ||
		    !x)
			fail("not all was fetched");
		MUST(gpc_transfer_wait(t->c, x, WAIT));
		MUST(gpc_release(t->c, b, t->n));
	}
	f->us = (now_us() - from) / (i ? i : 1);
	if (f->bare) {
		MUST(gpc_release(t->c, r, t->n));
		MUST(gpc_release(t->c, b, t->n));
	}
	return NULL;
}

/* ---- lookups ---- */

static double by_cpu(struct looker *l)
{
	double from = now_us(), until = from + SLICE_US;
	gpc_block blocks[BATCH];
	uint64_t n = 0;

	do {
		if (MUST(gpc_lookup(l->t->c, GPC_SPACE(TABLE_SPACE), l->keys + l->at, BATCH, blocks,
				    0)) != BATCH)
			wrong("a lookup missed a key that is there");
		l->at = (l->at + BATCH) % l->entries;
		n += BATCH;
	} while (now_us() < until);
	return (double)n / (now_us() - from);
}

static double on_device(struct looker *l)
{
	double from = now_us(), until = from + SLICE_US;
	int section, i;
	uint64_t n = 0;

	do {
		section = MUST(gpc_dev_enter(l->d));
		for (i = 0; i < 16; i++, n += l->entries)
			MUST(gpc_dev_lookup(l->d, GPC_SPACE(TABLE_SPACE), l->d_keys, l->entries,
					    l->d_blocks, l->stream));
		MUST(gpc_dev_leave(l->d, section, l->stream));
		MUST(gpc_dev_wait(l->d, l->stream, WAIT));
	} while (now_us() < until);
	return (double)n / (now_us() - from);
}

static double slice(struct looker *l, double (*look)(struct looker *), bool bare, double pace_us,
		    double *ret_us)
{
	struct fetcher f = { .t = l->t, .bare = bare, .pace_us = pace_us, .turn = &l->turn };
	double rate;

	if (pthread_create(&f.thread, NULL, fetcher_run, &f))
		fail("cannot start a thread that fetches");
	sleep_us(20000);
	rate = look(l);
	__atomic_store_n(&f.stop, 1, __ATOMIC_RELEASE);
	pthread_join(f.thread, NULL);
	*ret_us = f.us;
	return rate;
}

static void compare(struct looker *l, double (*look)(struct looker *), const char *what)
{
	struct times ours = { 0 }, bare = { 0 }, ratio = { 0 }, alone = { 0 }, pace = { 0 };
	uint32_t i, n = quick ? 3 : 15;
	double with, without, us, ignored;
	struct row row, limit;

	slice(l, look, false, 0, &us);
	for (i = 0; i < n; i++) {
		without = i & 1 ? slice(l, look, true, us, &ignored) : 0;
		with = slice(l, look, false, 0, &us);
		if (!(i & 1))
			without = slice(l, look, true, us, &ignored);
		add_us(&ours, with);
		add_us(&bare, without);
		add_us(&ratio, with / without);
		add_us(&pace, us);
		add_us(&alone, look(l));
	}
	row = row_of(&alone, "M/s");
	row_add(&row, "%s: alone", what);
	limit = row_of(&bare, "M/s");
	row_add(&limit, "%s: beside bare copies (limit)", what);
	row = row_of(&ours, "M/s");
	row_limit(&row, &limit);
	row.ratio = middle(&ratio);
	row.judge = RATIO_AT_LEAST;
	row.mark = 0.97;
	row_add(&row, "%s: beside gpc_fetch; ratio round by round", what);
	row = rate_of(&pace, (double)l->t->n * PIECES * (double)l->t->piece);
	row_add(&row, "%s: gpc_fetch meanwhile", what);
	forget(&ours);
	forget(&bare);
	forget(&ratio);
	forget(&alone);
	forget(&pace);
}

/* Keys of the pool without memory, in chains of their own. */
static void fill_table(struct looker *l)
{
	gpc_key k[BATCH + 1];
	uint32_t i;

	l->keys = calloc(l->entries, sizeof(*l->keys));
	if (!l->keys)
		fail("out of memory");
	for (i = 0; i < l->entries; i += BATCH) {
		make_chain(l->t->c, 0, 1000 + i, BATCH, 0);
		make_keys(1000 + i, BATCH, k);
		memcpy(l->keys + i, k + 1, BATCH * sizeof(*k));
	}
}

void bench_lookups(struct tiers *t)
{
	struct looker l = { .t = t, .entries = quick ? 1u << 13 : 1u << 17 };
	gpc_block room[MOST + 6]; /* n + 2 blocks are left */
	char what[60];

	fill_table(&l);
	/* so that a chain that is fetched takes the place of the one before */
	MUST(gpc_reserve(t->c, t->vram, t->n + 6, room, NULL, 0, WAIT));
	snprintf(what, sizeof(what), "lookups by one CPU, pieces of %u KiB",
		 (unsigned)(t->piece >> 10));
	compare(&l, by_cpu, what);
	if (on_gpu()) {
		MUST(gpc_mirror_sync(t->c, GPC_TICKET_ALL, WAIT));
		MUST(gpc_dev_open(t->c, device, &l.d));
		l.stream = new_stream();
		CK(cudaMalloc((void **)&l.d_keys, l.entries * sizeof(*l.keys)));
		CK(cudaMalloc((void **)&l.d_blocks, l.entries * sizeof(*l.d_blocks)));
		CK(cudaMemcpy(l.d_keys, l.keys, l.entries * sizeof(*l.keys), cudaMemcpyDefault));
		snprintf(what, sizeof(what), "lookups on the device, pieces of %u KiB",
			 (unsigned)(t->piece >> 10));
		compare(&l, on_device, what);
		CK(cudaFree(l.d_keys));
		CK(cudaFree(l.d_blocks));
		CK(cudaStreamDestroy(l.stream));
		MUST(gpc_dev_close(l.d));
	}
	MUST(gpc_release(t->c, room, t->n + 6));
	clear(t->c, 0);
	free(l.keys);
}
