/* SPDX-License-Identifier: Apache-2.0 */
/* pages.c - copies and sums of chunks.
 * Tests: t/python/vllm-shares.t t/python/vllm-register.t t/python/vllm-trace.t
 *   t/python/vllm-worker.t */
#include "pages.h"

#include <string.h>
#include <time.h>

#define NEIGHBOUR   8           /* at most this many chunks are one unit */
#define ANY_KIND    4           /* cudaMemcpyDefault */
#define MAX_PITCH   0x7fffffffu /* of a pitched copy of CUDA */
#define MOST_BLOCKS 256         /* of a chunk that a GPU sums */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- sums ---- */

static uint8_t *slot_at(const struct pages *w, int64_t i)
{
	return w->base + (uint64_t)w->slot[i] * w->stride;
}

static uint32_t first_answer(const struct pages *w)
{
	return w->lane * (GPC_SUMS / PAGES_LANES);
}

/* Does the GPU sum the chunk?  It does if the chunk has all of its blocks, in their places. */
static bool is_whole(const struct pages *w, int64_t i)
{
	int64_t p, first = w->start[i];

	if (!w->by || w->start[i + 1] - first != w->blocks)
		return false;
	for (p = 0; p < w->blocks; p++)
		if (w->page[2 * (first + p)] != p)
			return false;
	return true;
}

/* If the GPU has summed the chunk, its answer is there by now. */
static uint32_t sum_of(const struct pages *w, int64_t i)
{
	uint32_t crc = 0;

	if (is_whole(w, i))
		gpc_sums_get(w->by, first_answer(w) + (uint32_t)i, &crc, 1);
	else
		crc = gpc_crc32c(w->structure, slot_at(w, i) + w->area, w->bytes);
	return crc;
}

static void seal(const struct pages *w, int64_t i)
{
	w->sum[i] = (struct gpc_sum){ .crc = w->sums ? sum_of(w, i) : 0,
				      .seed = w->structure,
				      .flags = w->sums ? 0 : GPC_SEAL_UNSUMMED };
}

/* Is the chunk sealed under the key that the caller asked for, and has it this structure? */
static bool is_sealed(const struct pages *w, int64_t i)
{
	const struct gpc_sum *s = &w->sum[i];

	return !s->result && s->seed == w->structure && !(w->sums && s->flags);
}

/* Before the chunk is copied: as far as this thread can tell. */
static bool is_good(const struct pages *w, int64_t i)
{
	return is_sealed(w, i) && (!w->sums || is_whole(w, i) || w->sum[i].crc == sum_of(w, i));
}

/* After the copy: of the chunks that the GPU has summed. */
static bool has_arrived(const struct pages *w, int64_t i)
{
	return !is_whole(w, i) || w->sum[i].crc == sum_of(w, i);
}

/* ---- copies ---- */

static void *stream_of(const struct pages *w)
{
	return w->calls->stream[w->calls->turn];
}

/* The stream waits for the copies so far.  cudaStreamWaitEvent() captures the event's state at the
 * time of the call. */
static int follow_copies(const struct pages *w, void *stream)
{
	int err = w->calls->record(w->calls->so_far[w->lane], stream_of(w));

	return err ? err : w->calls->follow(stream, w->calls->so_far[w->lane], 0);
}

static int next_turn(const struct pages *w)
{
	uint64_t next = (w->calls->turn + 1) % PAGES_STREAMS;
	int err = follow_copies(w, w->calls->stream[next]);

	w->calls->turn = next;
	w->calls->turned = 0;
	return err;
}

static int copy_in_turn(const struct pages *w, uint8_t *to, uint64_t to_pitch, const uint8_t *from,
			uint64_t from_pitch, uint64_t width, uint64_t rows)
{
	bool ends = w->store && w->calls->turned >= w->calls->turn_bytes;
	int err = ends ? next_turn(w) : 0;

	w->calls->turned += w->store ? width * rows : 0;
	return err ? err
		   : w->calls->copy(to, to_pitch, from, from_pitch, width, rows, ANY_KIND,
				    stream_of(w));
}

/* rows of width bytes between a slot and a KV cache */
static int copy(const struct pages *w, uint8_t *slot, uint64_t slot_pitch, int64_t kv,
		uint64_t kv_pitch, uint64_t width, uint64_t rows)
{
	uint8_t *to = slot, *from = (uint8_t *)(uintptr_t)kv;
	uint64_t to_pitch = slot_pitch, from_pitch = kv_pitch, i;

	if (!w->store) {
		to = from;
		from = slot;
		to_pitch = kv_pitch;
		from_pitch = slot_pitch;
	}
	if (w->calls)
		return copy_in_turn(w, to, to_pitch, from, from_pitch, width, rows);
	for (i = 0; i < rows; i++)
		memcpy(to + i * to_pitch, from + i * from_pitch, width);
	return 0;
}

static int copy_chunk(const struct pages *w, int64_t i, const struct pages_run *r)
{
	uint8_t *area = slot_at(w, i) + w->area + r->offset;
	int64_t p;
	int err = 0;

	for (p = w->start[i]; !err && p < w->start[i + 1]; p++)
		err = copy(w, area + w->page[2 * p] * r->page, (uint64_t)r->host_pitch,
			   r->address + w->page[2 * p + 1] * r->stride, (uint64_t)r->pitch,
			   (uint64_t)r->page, (uint64_t)r->count);
	return err;
}

/* Neighbours: one copy for each tensor, whose rows are the chunks. */
static int copy_tensors(const struct pages *w, int64_t i, int64_t n, const struct pages_run *r)
{
	const int64_t *page = &w->page[2 * w->start[i]];
	uint8_t *area = slot_at(w, i) + w->area + r->offset + page[0] * r->page;
	int64_t kv = r->address + page[1] * r->stride, k;
	int err = 0;

	for (k = 0; !err && k < r->count; k++)
		err = copy(w, area + k * r->host_pitch, w->stride, kv + k * r->pitch,
			   (uint64_t)r->stride, (uint64_t)r->page, (uint64_t)n);
	return err;
}

/* Do chunks i and i + 1 have one page each, in slots and blocks that follow each other, in memory
 * that one copy may go through (gpc/vllm/register.py)? */
static bool follows(const struct pages *w, int64_t i)
{
	const int64_t *page = &w->page[2 * w->start[i]];

	return !(w->each && w->slot[i] % w->each == 0) && w->start[i + 1] - w->start[i] == 1 &&
	       w->start[i] - w->start[i - 1] == 1 && w->slot[i] == w->slot[i - 1] + 1 &&
	       page[0] == page[-2] && page[1] == page[-1] + 1;
}

/* The number of chunks from i on whose copies, or whose sums, are given together. */
static int64_t unit(const struct pages *w, int64_t i)
{
	int64_t k = 1;

	while ((w->by || !w->apart) && k < NEIGHBOUR && i + k < w->n &&
	       (w->apart || w->blocks > 1 || follows(w, i + k)))
		k++;
	return k;
}

static int copy_unit(const struct pages *w, int64_t i, int64_t n)
{
	uint32_t r;
	int64_t k;
	int err = 0;

	for (r = 0; !err && r < w->nruns; r++) {
		if (n > w->run[r].count && !w->apart && w->blocks == 1)
			err = copy_tensors(w, i, n, &w->run[r]);
		else
			for (k = 0; !err && k < n; k++)
				err = copy_chunk(w, i + k, &w->run[r]);
	}
	return err;
}

/* ---- sums by the GPU ---- */

/* Ask for the sums of the chunks that the GPU sums; other chunks may lie between them. */
static int ask_some(const struct pages *w, int64_t i, int64_t n)
{
	uint32_t block[NEIGHBOUR * MOST_BLOCKS];
	int64_t k, p;

	for (k = 0; k < n; k++)
		for (p = 0; p < w->blocks; p++)
			block[k * w->blocks + p] = (uint32_t)w->page[2 * (w->start[i + k] + p) + 1];
	return gpc_sums_ask(w->by, first_answer(w) + (uint32_t)i, block, (uint32_t)n,
			    w->calls->sum_stream);
}

static int ask_sums(const struct pages *w, int64_t i, int64_t n)
{
	int64_t at, some;
	int err = 0;

	for (at = i; !err && at < i + n; at += some ? some : 1) {
		for (some = 0; some < NEIGHBOUR && at + some < i + n && is_whole(w, at + some);)
			some++;
		if (some)
			err = ask_some(w, at, some);
	}
	return err;
}

/* Ask for the sums of these chunks, behind the copies so far. */
static int sum_loaded(const struct pages *w, int64_t i, int64_t n)
{
	int err = follow_copies(w, w->calls->sum_stream);

	return err ? err : ask_sums(w, i, n);
}

/* ---- the end of a share in streams ---- */

static int mark_end(const struct pages *w)
{
	int err = w->calls->record(w->calls->copied[w->lane], stream_of(w));

	return err || !w->by ? err
			     : w->calls->record(w->calls->summed[w->lane], w->calls->sum_stream);
}

static int await_end(struct pages *w)
{
	int err = w->calls->wait(w->calls->copied[w->lane]);

	w->at[PAGES_COPIED] = now_ns();
	return err || !w->by ? err : w->calls->wait(w->calls->summed[w->lane]);
}

/* ---- a share of a job ---- */

static int64_t bytes_of(const struct pages *w, int64_t i)
{
	int64_t bytes = 0;
	uint32_t r;

	for (r = 0; r < w->nruns; r++)
		bytes += w->run[r].page * w->run[r].count;
	return bytes * (w->start[i + 1] - w->start[i]);
}

static int mark_stored(const struct pages *w, uint32_t lane)
{
	return w->calls ? w->calls->record(w->calls->event[lane], stream_of(w)) : 0;
}

static int end_store(const struct pages *w, int64_t i, int64_t n, uint32_t lane)
{
	int err = w->calls ? w->calls->wait(w->calls->event[lane]) : 0;
	int64_t k;

	for (k = i; !err && k < i + n; k++) {
		seal(w, k);
		w->result[k] = bytes_of(w, k);
	}
	return err;
}

/* A unit is summed while the next ones are copied. */
static int store_and_sum(const struct pages *w)
{
	uint32_t begun = 0, ended = 0, ahead = w->calls ? PAGES_WINDOW : 1;
	int64_t at = 0, done = 0, n[PAGES_WINDOW];
	int err = 0;

	while (!err && done < w->n) {
		for (; !err && at < w->n && begun - ended < ahead; begun++) {
			n[begun % PAGES_WINDOW] = unit(w, at);
			err = copy_unit(w, at, n[begun % PAGES_WINDOW]);
			if (!err)
				err = mark_stored(w, begun % PAGES_WINDOW);
			at += n[begun % PAGES_WINDOW];
		}
		if (!err)
			err = end_store(w, done, n[ended % PAGES_WINDOW], ended % PAGES_WINDOW);
		done += n[ended++ % PAGES_WINDOW];
	}
	return err;
}

/* The number of chunks up to the first bad one, which is reported. */
static int64_t good_ones(const struct pages *w, int64_t i, int64_t n)
{
	int64_t k;

	for (k = 0; k < n; k++)
		if (!is_good(w, i + k)) {
			w->result[i + k] = PAGES_BAD;
			break;
		}
	return k;
}

/* This thread has no chunk to sum. */
static int begin_stores(const struct pages *w)
{
	int64_t i, n;
	int err = w->by ? ask_sums(w, 0, w->n) : 0;

	for (i = 0; !err && i < w->n; i += n) {
		n = unit(w, i);
		err = copy_unit(w, i, n);
	}
	return err ? err : mark_end(w);
}

static int begin_loads(struct pages *w)
{
	int64_t i, good;
	int err = 0;

	for (i = 0; !err && i < w->n;
	     i += good + (i + good < w->n && w->result[i + good] == PAGES_BAD)) {
		good = good_ones(w, i, unit(w, i));
		if (good && !w->at[PAGES_FIRST])
			w->at[PAGES_FIRST] = now_ns();
		if (good)
			err = copy_unit(w, i, good);
		if (!err && good && w->by)
			err = sum_loaded(w, i, good);
	}
	return err || !w->calls ? err : mark_end(w);
}

static bool in_streams(const struct pages *w)
{
	return w->calls && (!w->store || w->by || !w->sums);
}

static int follow_fence(const struct pages *w)
{
	void *const stream[] = { stream_of(w), w->calls->sum_stream };
	uint32_t i;
	int err = 0;

	for (i = 0; !err && w->calls->fence && i < sizeof(stream) / sizeof(stream[0]); i++)
		if (stream[i])
			err = w->calls->follow(stream[i], w->calls->fence, 0);
	return err;
}

static int begin(struct pages *w)
{
	int err = w->calls ? follow_fence(w) : 0;

	if (err)
		return err;
	if (!w->store)
		return begin_loads(w);
	return in_streams(w) ? begin_stores(w) : store_and_sum(w);
}

/* If a call fails, a store has sealed nothing, and its results are 0 bytes.  The results of a load
 * are PAGES_FAILED then. */
void pages_begin(struct pages *w)
{
	int64_t i;

	if (w->by)
		gpc_sums_seed(w->by, w->structure);
	w->apart = w->stride > MAX_PITCH;
	if (!w->apart)
		for (w->apart = true, i = 0; i < w->nruns; i++)
			w->apart &= w->run[i].count >= NEIGHBOUR;
	memset(w->at, 0, sizeof(w->at));
	if (w->store)
		w->at[PAGES_FIRST] = now_ns();
	for (i = 0; i < w->n; i++)
		w->result[i] = w->store ? 0 : PAGES_FAILED;
	w->err = begin(w);
	w->at[PAGES_GIVEN] = w->at[PAGES_COPIED] = now_ns();
	if (!w->at[PAGES_FIRST])
		w->at[PAGES_FIRST] = w->at[PAGES_GIVEN];
}

void pages_end(struct pages *w)
{
	int64_t i;

	if (!w->err && in_streams(w))
		w->err = await_end(w);
	w->at[PAGES_SUMMED] = now_ns();
	if (w->err || (w->store && !in_streams(w)))
		return;
	for (i = 0; i < w->n; i++) {
		if (w->store)
			seal(w, i);
		else if (w->result[i] == PAGES_BAD || !has_arrived(w, i)) {
			w->result[i] = PAGES_BAD;
			continue;
		}
		w->result[i] = bytes_of(w, i);
	}
}
