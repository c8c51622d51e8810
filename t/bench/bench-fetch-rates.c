/* SPDX-License-Identifier: Apache-2.0 */
/* bench-fetch-rates.c - chains fetched and spilled, from the call to the last byte: beside gpc_copy
 * of as many blocks of the same pools, with checksums beside without; and one block beside the bare
 * copy. */
#include "config.h"

#include "bench-fetch.h"

enum { ALONE, PLAIN, SUMMED, WAYS };
enum { UP, DOWN };

/* How many chains, one call each, before anybody waits. */
static gpc_block held[2][MOST];

static double bytes_of(const struct tiers *t, uint32_t chains)
{
	return (double)chains * t->n * PIECES * (double)t->piece;
}

/* ---- gpc_copy alone ---- */

static double copy_once(struct tiers *t, int direction, uint32_t chains)
{
	int to = direction == UP ? t->vram : t->ram;
	struct gpc_move moves[2][MOST];
	gpc_block b[2][MOST];
	uint32_t i, j;
	double from;

	for (i = 0; i < chains; i++) {
		tiers_take(t, direction == UP ? RAM_SPACE : VRAM_SPACE, i, t->n, held[i]);
		MUST(gpc_reserve(t->c, to, t->n, b[i], NULL, 0, WAIT));
		for (j = 0; j < t->n; j++)
			moves[i][j] = (struct gpc_move){ .from = held[i][j], .to = b[i][j] };
	}
	from = now_us();
	for (i = 0; i < chains; i++)
		MUST(gpc_copy(t->c, moves[i], t->n, 0, t->stream, NULL));
	settle(t->stream);
	from = now_us() - from;
	MUST(gpc_transfer_wait(t->c, GPC_TRANSFER_ALL, WAIT));
	for (i = 0; i < chains; i++) {
		MUST(gpc_release(t->c, held[i], t->n));
		MUST(gpc_release(t->c, b[i], t->n));
	}
	return from;
}

/* ---- fetch and spill ---- */

static double fetch_once(struct tiers *t, bool summed, uint32_t chains)
{
	struct gpc_fetch_options opt = { .size = sizeof(opt),
					 .spaces = GPC_SPACE(summed ? SUMMED_SPACE : RAM_SPACE) };
	gpc_transfer x[2];
	double from = now_us();
	uint32_t i;

	for (i = 0; i < chains; i++)
		if (MUST(gpc_fetch(t->c, t->vram, t->key[i] + 1, t->n, held[i], &opt, 0, t->stream,
				   WAIT, &x[i])) != (int)t->n ||
		    !x[i])
			fail("not all was fetched");
	settle(t->stream);
	from = now_us() - from;
	for (i = 0; i < chains; i++) {
		MUST(gpc_transfer_wait(t->c, x[i], WAIT));
		MUST(gpc_release(t->c, held[i], t->n));
	}
	return from;
}

static double spill_once(struct tiers *t, bool summed, uint32_t chains)
{
	gpc_block leaf_first[2][MOST];
	gpc_transfer x[2];
	uint32_t i, j;
	double from;

	for (i = 0; i < chains; i++) {
		tiers_take(t, VRAM_SPACE, i, t->n, held[i]);
		MUST(gpc_release(t->c, held[i], t->n));
		for (j = 0; j < t->n; j++)
			leaf_first[i][j] = held[i][t->n - 1 - j];
	}
	from = now_us();
	for (i = 0; i < chains; i++)
		if (MUST(gpc_spill(t->c, t->vram, summed ? t->summed : t->ram, leaf_first[i], t->n,
				   NULL, GPC_COPY, t->stream, WAIT, &x[i])) != (int)t->n ||
		    !x[i])
			fail("not all was spilled");
	settle(t->stream);
	from = now_us() - from;
	for (i = 0; i < chains; i++)
		MUST(gpc_transfer_wait(t->c, x[i], WAIT));
	return from;
}

/* ---- rounds ---- */

static void drop(struct tiers *t, uint32_t space, uint32_t chains)
{
	uint32_t i;

	for (i = 0; i < chains; i++) {
		tiers_take(t, space, i, t->n, held[i]);
		MUST(gpc_release(t->c, held[i], t->n));
		MUST(gpc_drop(t->c, held[i], t->n, NULL, 0, WAIT));
	}
	MUST(gpc_ticket_wait(t->c, GPC_TICKET_ALL, WAIT));
}

struct rates {
	struct times us[2][WAYS], ratio[2][WAYS];
};

/* Up and down by each way; what was brought is cleared between, so that targets are free. */
static void round_of(struct tiers *t, uint32_t chains, uint32_t turn, double us[2][WAYS])
{
	uint32_t i;

	for (i = 0; i < WAYS; i++) {
		uint32_t way = (turn + i) % WAYS;

		if (way == ALONE) {
			us[UP][way] = copy_once(t, UP, chains);
			continue;
		}
		us[UP][way] = fetch_once(t, way == SUMMED, chains);
		clear(t->c, t->vram);
	}
	fetch_once(t, true, chains);
	for (i = 0; i < WAYS; i++) {
		uint32_t way = (turn + i) % WAYS;

		if (way == ALONE) {
			us[DOWN][way] = copy_once(t, DOWN, chains);
			continue;
		}
		drop(t, way == SUMMED ? SUMMED_SPACE : RAM_SPACE, chains);
		us[DOWN][way] = spill_once(t, way == SUMMED, chains);
	}
	clear(t->c, t->vram);
}

static void tell(struct tiers *t, struct rates *r, uint32_t chains)
{
	static const char *const what[] = { "fetch", "spill" };
	struct row row, limit;
	char name[100];
	int d;

	for (d = 0; d < 2; d++) {
		snprintf(name, sizeof(name), "%s, %u blocks of 64 x %u KiB%s", what[d], t->n,
			 (unsigned)(t->piece >> 10), chains > 1 ? ", two calls in a row" : "");
		limit = rate_of(&r->us[d][ALONE], bytes_of(t, chains));
		row_add(&limit, "%s: gpc_copy alone (limit)", name);
		row = rate_of(&r->us[d][PLAIN], bytes_of(t, chains));
		row_limit(&row, &limit);
		row.ratio = middle(&r->ratio[d][PLAIN]);
		row.judge = RATIO_AT_LEAST;
		row.mark = 0.97;
		row_add(&row, "%s: without checksums; ratio round by round", name);
		limit = row;
		row = rate_of(&r->us[d][SUMMED], bytes_of(t, chains));
		row_limit(&row, &limit);
		row.ratio = middle(&r->ratio[d][SUMMED]);
		row.judge = RATIO_AT_LEAST;
		row.mark = 0.95;
		row_add(&row, "%s: with; limit: without", name);
	}
}

static void bench_chains(struct tiers *t, uint32_t chains)
{
	struct rates r = { 0 };
	uint32_t i, n = quick ? 7 : 41;
	double us[2][WAYS];
	int d, way;

	round_of(t, chains, 0, us); /* the first one plans, and registers */
	for (i = 0; i < n; i++) {
		round_of(t, chains, i, us);
		for (d = 0; d < 2; d++) {
			for (way = 0; way < WAYS; way++)
				add_us(&r.us[d][way], us[d][way]);
			add_us(&r.ratio[d][PLAIN], us[d][ALONE] / us[d][PLAIN]);
			add_us(&r.ratio[d][SUMMED], us[d][PLAIN] / us[d][SUMMED]);
		}
	}
	tell(t, &r, chains);
	for (d = 0; d < 2; d++)
		for (way = 0; way < WAYS; way++) {
			forget(&r.us[d][way]);
			forget(&r.ratio[d][way]);
		}
}

void bench_rates(struct tiers *t)
{
	bench_chains(t, 1);
	bench_chains(t, 2);
}

/* ---- one block ---- */

/* Something that the writer has just done, so that it does not sleep yet. */
static void wake_writer(struct tiers *t)
{
	gpc_block b;

	MUST(gpc_reserve(t->c, t->vram, 1, &b, NULL, 0, WAIT));
	MUST(gpc_release(t->c, &b, 1));
	MUST(gpc_ticket_wait(t->c, GPC_TICKET_ALL, WAIT));
}

static double bare_one(struct tiers *t)
{
	struct gpc_move m;
	double from;

	tiers_take(t, RAM_SPACE, 0, 1, &m.from);
	MUST(gpc_reserve(t->c, t->vram, 1, &m.to, NULL, 0, WAIT));
	from = now_us();
	copy_bare(t, &m, 1);
	settle(t->stream);
	from = now_us() - from;
	MUST(gpc_release(t->c, &m.from, 1));
	MUST(gpc_release(t->c, &m.to, 1));
	return from;
}

static double fetch_one(struct tiers *t, bool summed, bool awake)
{
	struct gpc_fetch_options opt = { .size = sizeof(opt),
					 .spaces = GPC_SPACE(summed ? SUMMED_SPACE : RAM_SPACE) };
	gpc_transfer x;
	gpc_block b;
	double from;

	clear(t->c, t->vram);
	if (awake)
		wake_writer(t);
	else
		sleep_us(5000);
	from = now_us();
	MUST(gpc_fetch(t->c, t->vram, t->key[0] + 1, 1, &b, &opt, 0, t->stream, WAIT, &x));
	settle(t->stream);
	from = now_us() - from;
	MUST(gpc_transfer_wait(t->c, x, WAIT));
	MUST(gpc_release(t->c, &b, 1));
	return from;
}

void bench_latency(struct tiers *t)
{
	struct times bare = { 0 }, awake = { 0 }, asleep = { 0 }, summed = { 0 }, above = { 0 };
	uint32_t i, n = quick ? 20 : 300, kib = (uint32_t)(PIECES * t->piece >> 10);
	struct row limit, row;
	double a, b;

	for (i = 0; i < n + 4; i++) {
		a = bare_one(t);
		b = fetch_one(t, false, true);
		if (i < 4) /* the first ones plan, and register */
			continue;
		add_us(&bare, a);
		add_us(&awake, b);
		add_us(&above, b - a);
		add_us(&summed, fetch_one(t, true, true));
		if (i % 4 == 0)
			add_us(&asleep, fetch_one(t, false, false));
	}
	limit = row_of(&bare, "us");
	row_add(&limit, "one block of %u KiB to VRAM: the bare copy (limit)", kib);
	row = row_of(&awake, "us");
	row_limit(&row, &limit);
	row_add(&row, "one block of %u KiB fetched, the writer awake", kib);
	row = row_of(&above, "us");
	row_limit(&row, &limit);
	row.judge = RATIO_AT_MOST;
	row.mark = kib < 1024 ? 1.4 : 0.32; /* of the copy, which takes a time of its own too */
	row_add(&row, "one block of %u KiB fetched: above the bare copy (limit)", kib);
	row = row_of(&summed, "us");
	row_limit(&row, &limit);
	row_add(&row, "one block of %u KiB fetched, with its checksum", kib);
	row = row_of(&asleep, "us");
	row_limit(&row, &limit);
	row_add(&row, "one block of %u KiB fetched, the writer asleep", kib);
	forget(&bare);
	forget(&awake);
	forget(&asleep);
	forget(&summed);
	forget(&above);
}
