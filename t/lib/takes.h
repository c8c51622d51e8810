/* SPDX-License-Identifier: Apache-2.0 */
/* takes.h - takeovers of a large cache by as many threads as a test wants: the books and queues
 * that they leave are right, and so are the flags of the table.
 *
 * The program is linked with --wrap=parallel_size. */
#ifndef GPC_T_TAKES_H
#define GPC_T_TAKES_H

#include "index/base/parallel.h"
#include "kernels/probe.h"
#include "index/table/lru.h"
#include "index/table/alloc.h"
#include "index/table/queue.h"
#include "index/table/table.h"

#include "recency.h"

static uint32_t threads = 4;

uint32_t __wrap_parallel_size(void);

uint32_t __wrap_parallel_size(void)
{
	return threads;
}

/* ---- takeovers ---- */

TAP_FN bool is_recovering(void)
{
	return load_acquire(&seg_state(&c->seg)->recovering);
}

TAP_FN uint32_t is_valid(struct writer *w, uint32_t record, uint32_t ticket)
{
	return queue_has(w, record) && w->node[record].ticket == ticket;
}

/* Items of the queue that are not stale; 0 if one lies where it must not: the front is in order,
 * the heap is one, and each bag has the stamps from its own first one to the next bag's. */
TAP_FN uint32_t count_queued(struct writer *w, const struct queue *q)
{
	uint64_t end = q->nbags ? q->bags[q->first].from : UINT64_MAX;
	uint32_t i, j, n = 0;

	for (i = q->front_at; i < q->nfront; i++) {
		n += is_valid(w, q->front[i].record, q->front[i].ticket);
		if (q->front[i].stamp >= end ||
		    (i > q->front_at && q->front[i].stamp < q->front[i - 1].stamp))
			return 0;
	}
	for (i = 0; i < q->nheap; i++) {
		n += is_valid(w, q->heap[i].record, q->heap[i].ticket);
		if (q->heap[i].stamp >= end ||
		    q->heap[i].stamp < q->heap[i ? (i - 1) / 2 : 0].stamp)
			return 0;
	}
	for (i = 0; i < q->nbags; i++) {
		const struct bag *b = &q->bags[q->first + i];

		end = i + 1 < q->nbags ? b[1].from : UINT64_MAX;
		for (j = 0; j < b->n; j++) {
			n += is_valid(w, b->at[j].record, b->at[j].ticket);
			if (b->at[j].stamp < b->from || b->at[j].stamp >= end)
				return 0;
		}
	}
	return n;
}

/* Each record of a pool is in its books once, and each leaf once in its queue. */
TAP_FN bool is_booked(struct writer *w, struct wpool *p)
{
	uint32_t i, leaves = 0;

	for (i = p->first; i < p->first + p->slots; i++) {
		leaves += lru_is_leaf(w, i);
		if (lru_is_leaf(w, i) != queue_has(w, i))
			return false;
	}
	return leaves == p->queue.queued && leaves == count_queued(w, &p->queue) &&
	       p->live + p->reserved + p->dying + p->nfree == p->slots;
}

TAP_FN void take_by(uint32_t n)
{
	uint32_t i, wrong = 0;

	threads = n;
	must(gpc_writer_take(c, 0, 0));
	for (i = 0; i < c->writer->max_pools; i++)
		wrong += c->writer->pool[i].state != POOL_FREE &&
			 !is_booked(c->writer, &c->writer->pool[i]);
	is_int(wrong, 0, "all records are in the books, and leaves in the queues");
}

TAP_FN void take_over(uint32_t n)
{
	bool right = true;
	uint32_t i;

	for (i = 0; i < c->writer->max_pools; i++)
		right &= c->writer->pool[i].state == POOL_FREE ||
			 count_queued(c->writer, &c->writer->pool[i].queue) ==
				 c->writer->pool[i].queue.queued;
	ok(right, "each item was where it belongs");
	must(gpc_writer_drop(c));
	take_by(n);
}

/* Overflow flags stand where a block is in its second bucket, and nowhere else. */
TAP_FN void flags_are_right(void)
{
	struct writer *w = c->writer;
	uint8_t *want = calloc(w->buckets, 1);
	uint32_t slot, bucket, wrong = 0, n = 0;
	struct probe_key k;

	for (slot = 0; slot < w->buckets * SHM_BUCKET; slot++) {
		if (!w->table[slot].w[3])
			continue;
		k = table_key(w, w_find_record(w, (gpc_block)(w->table[slot].w[3] - 1)));
		want[k.first] |= slot / SHM_BUCKET == k.second;
	}
	for (bucket = 0; bucket < w->buckets; bucket++) {
		wrong += want[bucket] != (w->table[bucket * SHM_BUCKET].w[2] & PROBE_OVERFLOW);
		n += want[bucket];
	}
	free(want);
	is_int(wrong, 0, "flags of %u buckets, and of no other", (unsigned)n);
}

TAP_FN void recover(void)
{
	int i;

	for (i = 0; i < 1000 && is_recovering(); i++)
		must(gpc_writer_serve(c, 5));
	ok(!is_recovering(), "the first grace period is over");
	settle(c);
	flags_are_right();
}

/* ---- the end ---- */

/* Not even a flag: all were counted right. */
TAP_FN void nothing_stays(void)
{
	uint32_t blocks = ram_is_gone ? VRAM : SLOTS;
	static gpc_block b[VRAM];
	uint32_t i, n = 0, got;

	evict(UINT32_MAX, "all of them");
	is_int(stats_of(c, -1).live, 0, "nothing is left");
	is_int(stats_of(c, -1).free_blocks, blocks, "all is free");
	for (i = 0; i < c->seg.header.geometry.buckets * SHM_BUCKET; i++) {
		const struct probe_entry *e =
			SEG_AT(c->seg.index, c->seg.at.table, const struct probe_entry, i);

		n += (e->w[0] | e->w[1] | e->w[2] | e->w[3]) != 0;
	}
	is_int(n, 0, "the table is empty");
	for (got = 0; got < VRAM; got += MIN(VRAM - got, BATCH))
		must(gpc_reserve(c, 0, MIN(VRAM - got, BATCH), b + got, NULL, 0, 60000));
	must(gpc_release(c, b, VRAM));
	clean(c, "an empty cache");
}

#endif
