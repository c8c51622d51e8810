/* SPDX-License-Identifier: Apache-2.0 */
/* pages.c - copies, headers and sums of chunks.
 * Tests: t/python/vllm-worker.t */
#include "pages.h"

#include <string.h>

#define NEIGHBOUR 8           /* chunks that are one unit, at most */
#define ANY_KIND  4           /* cudaMemcpyDefault */
#define MAX_PITCH 0x7fffffffu /* of a pitched copy of CUDA */
#define MAGIC     "gpcV"

struct header {
	char magic[4];
	uint32_t crc;
	uint8_t key[16];
	uint32_t bytes;
	uint32_t structure;
};
_Static_assert(sizeof(struct header) == 32, "as image.py has it");

/* ---- headers ---- */

static uint8_t *slot_at(const struct pages *w, int64_t i)
{
	return w->base + (uint64_t)w->slot[i] * w->stride;
}

static uint32_t first_answer(const struct pages *w)
{
	return w->lane * (GPC_SUMS / PAGES_LANES);
}

/* What a GPU sums is there by now. */
static uint32_t sum_of(const struct pages *w, int64_t i)
{
	uint32_t crc = 0;

	if (w->by)
		gpc_sums_get(w->by, first_answer(w) + (uint32_t)i, &crc, 1);
	else if (w->sums)
		crc = gpc_crc32c(0, slot_at(w, i) + w->area, w->bytes);
	return crc;
}

static void clear(const struct pages *w, int64_t i)
{
	memset(slot_at(w, i) + w->head, 0, sizeof(struct header));
}

static void seal(const struct pages *w, int64_t i)
{
	struct header h = { .magic = MAGIC,
			    .crc = sum_of(w, i),
			    .bytes = (uint32_t)w->bytes,
			    .structure = w->structure };

	memcpy(h.key, w->key + 16 * i, 16);
	memcpy(slot_at(w, i) + w->head, &h, sizeof(h));
}

static void read_header(const struct pages *w, int64_t i, struct header *ret)
{
	memcpy(ret, slot_at(w, i) + w->head, sizeof(*ret));
}

static bool is_of_key(const struct pages *w, int64_t i, const struct header *h)
{
	return !memcmp(h->magic, MAGIC, sizeof(h->magic)) && !memcmp(h->key, w->key + 16 * i, 16) &&
	       h->bytes == w->bytes && h->structure == w->structure;
}

/* Before it is copied: all that this thread can tell. */
static bool is_good(const struct pages *w, int64_t i)
{
	struct header h;

	read_header(w, i, &h);
	return is_of_key(w, i, &h) && (!w->sums || w->by || h.crc == sum_of(w, i));
}

/* Afterwards: what a GPU has summed. */
static bool has_arrived(const struct pages *w, int64_t i)
{
	struct header h;

	if (!w->by)
		return true;
	read_header(w, i, &h);
	return h.crc == sum_of(w, i);
}

/* ---- copies ---- */

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
		return w->calls->copy(to, to_pitch, from, from_pitch, width, rows, ANY_KIND,
				      w->calls->stream);
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

/* Neighbours: of each tensor one copy, whose rows are the chunks. */
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

/* Chunks of one page, in slots and blocks that follow each other. */
static bool follows(const struct pages *w, int64_t i)
{
	const int64_t *page = &w->page[2 * w->start[i]];

	return w->start[i + 1] - w->start[i] == 1 && w->start[i] - w->start[i - 1] == 1 &&
	       w->slot[i] == w->slot[i - 1] + 1 && page[0] == page[-2] && page[1] == page[-1] + 1;
}

/* Chunks from i on whose copies, or whose sums, are given together. */
static int64_t unit(const struct pages *w, int64_t i)
{
	int64_t k = 1;

	while ((w->by || !w->apart) && k < NEIGHBOUR && i + k < w->n &&
	       (w->apart || follows(w, i + k)))
		k++;
	return k;
}

static int copy_unit(const struct pages *w, int64_t i, int64_t n)
{
	uint32_t r;
	int64_t k;
	int err = 0;

	for (r = 0; !err && r < w->nruns; r++) {
		if (n > w->run[r].count && !w->apart)
			err = copy_tensors(w, i, n, &w->run[r]);
		else
			for (k = 0; !err && k < n; k++)
				err = copy_chunk(w, i + k, &w->run[r]);
	}
	return err;
}

/* ---- sums by the GPU ---- */

static int ask_sums(const struct pages *w, int64_t i, int64_t n)
{
	uint32_t block[NEIGHBOUR];
	int64_t at, k, some;
	int err = 0;

	for (at = i; !err && at < i + n; at += some) {
		some = i + n - at < NEIGHBOUR ? i + n - at : NEIGHBOUR;
		for (k = 0; k < some; k++)
			block[k] = (uint32_t)w->page[2 * w->start[at + k] + 1];
		err = gpc_sums_ask(w->by, first_answer(w) + (uint32_t)at, block, (uint32_t)some,
				   w->calls->sum_stream);
	}
	return err;
}

/* Behind the copies so far: of these chunks.  Who follows an event follows what it was when he was
 * told. */
static int sum_loaded(const struct pages *w, int64_t i, int64_t n)
{
	int err = w->calls->record(w->calls->copied[w->lane], w->calls->stream);

	if (!err)
		err = w->calls->follow(w->calls->sum_stream, w->calls->copied[w->lane], 0);
	return err ? err : ask_sums(w, i, n);
}

/* ---- the end of a share in streams ---- */

static int mark_end(const struct pages *w)
{
	int err = w->calls->record(w->calls->copied[w->lane], w->calls->stream);

	return err || !w->by ? err
			     : w->calls->record(w->calls->summed[w->lane], w->calls->sum_stream);
}

static int await_end(const struct pages *w)
{
	int err = w->calls->wait(w->calls->copied[w->lane]);

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

static int begin_store(const struct pages *w, int64_t i, int64_t n)
{
	int64_t k;

	for (k = 0; k < n; k++)
		clear(w, i + k);
	return copy_unit(w, i, n);
}

static int mark_stored(const struct pages *w, uint32_t lane)
{
	return w->calls ? w->calls->record(w->calls->event[lane], w->calls->stream) : 0;
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

/* Sums of a unit are made while the next ones are copied. */
static int store_and_sum(const struct pages *w)
{
	uint32_t begun = 0, ended = 0, ahead = w->calls ? PAGES_WINDOW : 1;
	int64_t at = 0, done = 0, n[PAGES_WINDOW];
	int err = 0;

	while (!err && done < w->n) {
		for (; !err && at < w->n && begun - ended < ahead; begun++) {
			n[begun % PAGES_WINDOW] = unit(w, at);
			err = begin_store(w, at, n[begun % PAGES_WINDOW]);
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

/* Up to the first one that is bad; that one is told. */
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

/* Nothing of it is for this thread to sum. */
static int begin_stores(const struct pages *w)
{
	int64_t i, n;
	int err = w->by ? ask_sums(w, 0, w->n) : 0;

	for (i = 0; !err && i < w->n; i += n) {
		n = unit(w, i);
		err = begin_store(w, i, n);
	}
	return err ? err : mark_end(w);
}

static int begin_loads(const struct pages *w)
{
	int64_t i, good;
	int err = 0;

	for (i = 0; !err && i < w->n;
	     i += good + (i + good < w->n && w->result[i + good] == PAGES_BAD)) {
		good = good_ones(w, i, unit(w, i));
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

/* What is not done when a call fails: a store has sealed nothing, and is of no bytes. */
void pages_begin(struct pages *w)
{
	int64_t i;

	w->apart = w->stride > MAX_PITCH;
	if (!w->apart)
		for (w->apart = true, i = 0; i < w->nruns; i++)
			w->apart &= w->run[i].count >= NEIGHBOUR;
	for (i = 0; i < w->n; i++)
		w->result[i] = w->store ? 0 : PAGES_FAILED;
	if (!w->store)
		w->err = begin_loads(w);
	else
		w->err = in_streams(w) ? begin_stores(w) : store_and_sum(w);
}

void pages_end(struct pages *w)
{
	int64_t i;

	if (!w->err && in_streams(w))
		w->err = await_end(w);
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
