/* SPDX-License-Identifier: Apache-2.0 */
/* live.c - scans the LIVE records, in shares.
 * Tests: t/index/takeover-damage.t t/index/left-in-records.t t/index/takeover-large.t */
#include "config.h"

#include <string.h>
#include "index/takeover/takeover.h"
#include "index/table/leave.h"
#include "index/table/lru.h"
#include "index/table/alloc.h"
#include "index/table/tree.h"
#include "index/writer/pools.h"
#include "index/base/parallel.h"

#define AHEAD  16u    /* records; the processor's own prefetch ends with a page */
#define SHARE  32768u /* the least number of records that is worth a thread */
#define SHARES 64u

void records_add(struct records *list, uint32_t record)
{
	list->at = writer_grow(list->at, &list->size, list->n + 1, sizeof(*list->at));
	list->at[list->n++] = record;
}

/* ---- threads ---- */

struct guarded {
	void (*run)(void *job);
	void *job;
	struct writer_memory *memory;
	bool done;
};

static void run_guarded(void *arg)
{
	struct guarded *g = arg;

	g->done = writer_guard(&g->memory, g->run, g->job);
}

void takeover_parallel(struct writer *w, struct scan *sc, void (*run)(void *job), void *jobs,
		       size_t bytes, uint32_t n)
{
	struct guarded *g = writer_alloc(n, sizeof(*g));
	bool done = true;
	uint32_t i;

	for (i = 0; i < n; i++)
		g[i] = (struct guarded){ .run = run, .job = (char *)jobs + i * bytes };
	parallel_run(sc->threads, run_guarded, g, sizeof(*g), n);
	for (i = 0; i < n; i++) {
		writer_join(&w->scan, &g[i].memory);
		done = done && g[i].done;
	}
	writer_free(g);
	if (!done)
		writer_no_memory();
}

/* ---- shares ---- */

static void add_share(struct writer *w, struct scan *sc, uint32_t pool, uint32_t first, uint32_t n)
{
	struct share *s = &sc->share[sc->nshares++];

	*s = (struct share){ .w = w, .pool = pool, .first = first, .end = first + n };
	s->entry = sc->entry;
}

/* The pools follow each other, each in shares of about the same size. */
static void make_shares(struct writer *w, struct scan *sc)
{
	uint32_t i, j, n, from, to, size = MAX(SHARE, w->max_blocks / SHARES);

	sc->share = writer_alloc(w->max_pools + w->max_blocks / size, sizeof(*sc->share));
	for (i = 0; i < w->max_pools; i++) {
		const struct wpool *p = &w->pool[i];

		if (p->state == POOL_FREE)
			continue;
		n = MAX(p->slots / size, 1u);
		for (j = 0; j < n; j++) {
			from = (uint32_t)((uint64_t)p->slots * j / n);
			to = (uint32_t)((uint64_t)p->slots * (j + 1) / n);
			add_share(w, sc, i, p->first + from, to - from);
		}
	}
	sc->threads = w->max_blocks >= 2 * SHARE ? parallel_size() : 1;
}

/* ---- one share ---- */

static void scan_live(struct share *s, uint32_t record)
{
	struct writer *w = s->w;
	const struct shm_record *r = w_record(w, record);

	s->live++;
	tree_enter(w, record);
	w->node[record].leaving = r->flags & REC_LEAVING;
	takeover_meet(s, record);
	if (r->check != key_check(r->key, r->parent, r->depth, r->tag) ||
	    w->pool[s->pool].state != POOL_READY)
		records_add(&s->bad, record);
	else if (r->source)
		records_add(&s->half_moved, record);
	if (r->flags & REC_LEAVING)
		records_add(&s->leaving, record);
}

/* A LIVE record is as (C) of index/table/record.h made it.  The scan goes from the last record to
 * the first; parents are looked for when the records around have been met. */
static void scan_share(void *arg)
{
	struct share *s = arg;
	struct writer *w = s->w;
	uint32_t live[TAKEOVER_GROUP], n, left = s->end, linked = s->end;

	s->near = writer_alloc(TAKEOVER_NEAR_SIZE, sizeof(*s->near));
	s->counted = writer_alloc(takeover_regions(w), sizeof(*s->counted));
	while (linked > s->first) {
		for (n = 0; left > s->first && n < TAKEOVER_GROUP;) {
			left--;
			__builtin_prefetch(w_record(w, left - MIN(left - s->first, AHEAD)));
			pools_reset_node(w, left);
			if (w_is(w, left, LIVE) && !(w_record(w, left)->flags & REC_MOVED))
				scan_live(s, live[n++] = left);
			else
				records_add(&s->other, left);
		}
		takeover_note_entries(s, live, n);
		while (linked > (left > s->first ? left + TAKEOVER_NEAR : s->first))
			takeover_link_near(s, --linked);
	}
	writer_free(s->near);
}

void takeover_scan(struct writer *w, struct scan *sc)
{
	uint32_t i;

	sc->entry = writer_alloc(w->max_blocks, 1);
	make_shares(w, sc);
	takeover_parallel(w, sc, scan_share, sc->share, sizeof(*sc->share), sc->nshares);
	for (i = 0; i < sc->nshares; i++)
		w->pool[sc->share[i].pool].live += sc->share[i].live;
}

void takeover_scan_end(struct writer *w, struct scan *sc)
{
	writer_free_all(&w->scan);
	writer_free(sc->share);
	writer_free(sc->region);
	writer_free(sc->map);
	writer_free(sc->entry);
	writer_free(sc->group);
	writer_free(sc->moving.at);
	writer_free(sc->orphans.at);
}

/* ---- leaves ---- */

static void find_leaves(void *arg)
{
	struct share *s = arg;
	uint32_t i;

	for (i = s->first; i < s->end; i++)
		if (lru_is_leaf(s->w, i))
			records_add(&s->leaves, i);
}

/* The queues have had items since moves were finished. */
void takeover_fill_queues(struct writer *w, struct scan *sc)
{
	uint32_t i, j;

	for (i = 0; i < sc->nshares; i++) /* a waiting record is no leaf of the queue */
		for (j = 0; j < sc->share[i].leaving.n; j++)
			leave_again(w, sc->share[i].leaving.at[j]);
	takeover_parallel(w, sc, find_leaves, sc->share, sizeof(*sc->share), sc->nshares);
	for (i = 0; i < w->max_pools; i++)
		lru_empty(w, i);
	for (i = 0; i < sc->nshares; i++)
		for (j = 0; j < sc->share[i].leaves.n; j++)
			lru_add(w, sc->share[i].leaves.at[j]);
}
