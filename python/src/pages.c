/* SPDX-License-Identifier: Apache-2.0 */
/* pages.c - chunks between KV caches and slots, for gpc.vllm's worker: one call for each thread's share of a job.
 *
 * A chunk's slot has a header for each part, and the part's bytes (gpc/vllm/image.py).  A store clears the header,
 * copies, and seals the header when the bytes are there; a load compares header and sum, and copies what is good.
 * On a GPU the copies go to a stream, so that sums are made while others run: by this thread of the slots, or, where
 * an image is one block, by the GPU of the KV caches.  That one sums what it has loaded, so bad bytes arrive; they
 * are told all the same.
 *
 * Addresses are the caller's: he holds the slots, and the KV caches are there. */
#include "gpcpy.h"

#include <string.h>

enum { BAD = -1, FAILED = -2 };          /* worker.py has them, too */
#define WINDOW    8                      /* units that are under way together */
#define NEIGHBOUR 8                      /* chunks that are one unit, at most */
#define ANY_KIND  4                      /* cudaMemcpyDefault */
#define MAX_PITCH 0x7fffffffu            /* of a pitched copy of CUDA */
#define MAGIC     "gpcV"

/* Tensors of a group at equal distances: page b of tensor i is at address + i * pitch + b * stride, and in
 * the part at offset + i * host_pitch. */
struct run { int64_t address, offset, page, stride, count, pitch, host_pitch; };

/* Of the CUDA runtime, or of what takes its place. */
struct calls {
	int (*copy)(void *to, size_t to_pitch, const void *from, size_t pitch, size_t width, size_t height,
		    int kind, void *stream);
	int (*record)(void *event, void *stream);
	int (*wait)(void *event);
	int (*follow)(void *stream, void *event, unsigned int flags);
	void *stream, *sum_stream;
	void *event[WINDOW], *summed;
};

struct header { char magic[4]; uint32_t crc; uint8_t key[16]; uint64_t bytes; };
_Static_assert(sizeof(struct header) == 32, "as image.py has it");

struct work {
	bool store, sums;
	const struct run *run;
	uint32_t nruns;
	uint8_t *base;                   /* of slot 0 */
	uint64_t stride, area, head, bytes;      /* of slots; in a slot: the part, its header; of the part */
	const int64_t *slot;             /* of each chunk */
	const uint8_t *key;
	const int64_t *start;            /* of its pages: n + 1 of them */
	const int64_t *page;             /* place in the chunk, block of the engine */
	int64_t n;
	const struct calls *calls;       /* NULL: this thread copies */
	gpc_sums *by;                    /* who sums: a chunk is one block then; NULL: this thread */
	bool apart;                      /* a chunk is a unit */
	int64_t *result;                 /* bytes moved, BAD or FAILED */
};

/* ---- headers ---- */

static uint8_t *slot_at(const struct work *w, int64_t i)
{
	return w->base + (uint64_t)w->slot[i] * w->stride;
}

/* What a GPU sums is there by now. */
static uint32_t sum_of(const struct work *w, int64_t i)
{
	uint32_t crc = 0;

	if (w->by)
		gpc_sums_get(w->by, (uint32_t)i, &crc, 1);
	else if (w->sums)
		crc = gpc_crc32c(0, slot_at(w, i) + w->area, w->bytes);
	return crc;
}

static void clear(const struct work *w, int64_t i)
{
	memset(slot_at(w, i) + w->head, 0, sizeof(struct header));
}

static void seal(const struct work *w, int64_t i)
{
	struct header h = { .magic = MAGIC, .crc = sum_of(w, i), .bytes = w->bytes };

	memcpy(h.key, w->key + 16 * i, 16);
	memcpy(slot_at(w, i) + w->head, &h, sizeof(h));
}

static void read_header(const struct work *w, int64_t i, struct header *ret)
{
	memcpy(ret, slot_at(w, i) + w->head, sizeof(*ret));
}

static bool is_of_key(const struct work *w, int64_t i, const struct header *h)
{
	return !memcmp(h->magic, MAGIC, sizeof(h->magic)) && !memcmp(h->key, w->key + 16 * i, 16) &&
	       h->bytes == w->bytes;
}

/* Before it is copied: all that this thread can tell. */
static bool is_good(const struct work *w, int64_t i)
{
	struct header h;

	read_header(w, i, &h);
	return is_of_key(w, i, &h) && (!w->sums || w->by || h.crc == sum_of(w, i));
}

/* Afterwards: what a GPU has summed. */
static bool has_arrived(const struct work *w, int64_t i)
{
	struct header h;

	if (!w->by)
		return true;
	read_header(w, i, &h);
	return h.crc == sum_of(w, i);
}

/* ---- copies ---- */

/* rows of width bytes between a slot and a KV cache */
static int copy(const struct work *w, uint8_t *slot, uint64_t slot_pitch, int64_t kv, uint64_t kv_pitch,
		uint64_t width, uint64_t rows)
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
		return w->calls->copy(to, to_pitch, from, from_pitch, width, rows, ANY_KIND, w->calls->stream);
	for (i = 0; i < rows; i++)
		memcpy(to + i * to_pitch, from + i * from_pitch, width);
	return 0;
}

static int copy_chunk(const struct work *w, int64_t i, const struct run *r)
{
	uint8_t *area = slot_at(w, i) + w->area + r->offset;
	int64_t p;
	int err = 0;

	for (p = w->start[i]; !err && p < w->start[i + 1]; p++)
		err = copy(w, area + w->page[2 * p] * r->page, (uint64_t)r->host_pitch,
			   r->address + w->page[2 * p + 1] * r->stride, (uint64_t)r->pitch, (uint64_t)r->page,
			   (uint64_t)r->count);
	return err;
}

/* Neighbours: of each tensor one copy, whose rows are the chunks. */
static int copy_tensors(const struct work *w, int64_t i, int64_t n, const struct run *r)
{
	const int64_t *page = &w->page[2 * w->start[i]];
	uint8_t *area = slot_at(w, i) + w->area + r->offset + page[0] * r->page;
	int64_t kv = r->address + page[1] * r->stride, k;
	int err = 0;

	for (k = 0; !err && k < r->count; k++)
		err = copy(w, area + k * r->host_pitch, w->stride, kv + k * r->pitch, (uint64_t)r->stride,
			   (uint64_t)r->page, (uint64_t)n);
	return err;
}

/* Chunks of one page, in slots and blocks that follow each other. */
static bool follows(const struct work *w, int64_t i)
{
	const int64_t *page = &w->page[2 * w->start[i]];

	return w->start[i + 1] - w->start[i] == 1 && w->start[i] - w->start[i - 1] == 1 &&
	       w->slot[i] == w->slot[i - 1] + 1 && page[0] == page[-2] && page[1] == page[-1] + 1;
}

/* Chunks from i on whose copies, or whose sums, are given together. */
static int64_t unit(const struct work *w, int64_t i)
{
	int64_t k = 1;

	while ((w->by || !w->apart) && k < NEIGHBOUR && i + k < w->n && (w->apart || follows(w, i + k)))
		k++;
	return k;
}

static int copy_unit(const struct work *w, int64_t i, int64_t n)
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

static int ask_sums(const struct work *w, int64_t i, int64_t n)
{
	uint32_t block[NEIGHBOUR];
	int64_t at, k, some;
	int err = 0;

	for (at = i; !err && at < i + n; at += some) {
		some = i + n - at < NEIGHBOUR ? i + n - at : NEIGHBOUR;
		for (k = 0; k < some; k++)
			block[k] = (uint32_t)w->page[2 * w->start[at + k] + 1];
		err = gpc_sums_ask(w->by, (uint32_t)at, block, (uint32_t)some, w->calls->sum_stream);
	}
	return err;
}

static int await_sums(const struct work *w)
{
	int err = w->calls->record(w->calls->summed, w->calls->sum_stream);

	return err ? err : w->calls->wait(w->calls->summed);
}

/* Behind the copies so far: of these chunks. */
static int sum_loaded(const struct work *w, int64_t i, int64_t n, uint32_t lane)
{
	int err = w->calls->record(w->calls->event[lane], w->calls->stream);

	if (!err)
		err = w->calls->follow(w->calls->sum_stream, w->calls->event[lane], 0);
	return err ? err : ask_sums(w, i, n);
}

/* ---- a share of a job ---- */

static int64_t bytes_of(const struct work *w, int64_t i)
{
	int64_t bytes = 0;
	uint32_t r;

	for (r = 0; r < w->nruns; r++)
		bytes += w->run[r].page * w->run[r].count;
	return bytes * (w->start[i + 1] - w->start[i]);
}

static int begin_store(const struct work *w, int64_t i, int64_t n)
{
	int64_t k;

	for (k = 0; k < n; k++)
		clear(w, i + k);
	return copy_unit(w, i, n);
}

static int mark_stored(const struct work *w, uint32_t lane)
{
	return w->calls ? w->calls->record(w->calls->event[lane], w->calls->stream) : 0;
}

static int end_store(const struct work *w, int64_t i, int64_t n, uint32_t lane)
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
static int store_and_sum(const struct work *w)
{
	uint32_t begun = 0, ended = 0, ahead = w->calls ? WINDOW : 1;
	int64_t at = 0, done = 0, n[WINDOW];
	int err = 0;

	while (!err && done < w->n) {
		for (; !err && at < w->n && begun - ended < ahead; begun++) {
			n[begun % WINDOW] = unit(w, at);
			err = begin_store(w, at, n[begun % WINDOW]);
			if (!err)
				err = mark_stored(w, begun % WINDOW);
			at += n[begun % WINDOW];
		}
		if (!err)
			err = end_store(w, done, n[ended % WINDOW], ended % WINDOW);
		done += n[ended++ % WINDOW];
	}
	return err;
}

/* Up to the first one that is bad; that one is told. */
static int64_t good_ones(const struct work *w, int64_t i, int64_t n)
{
	int64_t k;

	for (k = 0; k < n; k++)
		if (!is_good(w, i + k)) {
			w->result[i + k] = BAD;
			break;
		}
	return k;
}

static int await_all(const struct work *w)
{
	int err = w->calls->record(w->calls->event[0], w->calls->stream);

	if (!err)
		err = w->calls->wait(w->calls->event[0]);
	return err || !w->by ? err : await_sums(w);
}

/* Nothing of it is for this thread to sum: all copies, and one wait. */
static int store_at_once(const struct work *w)
{
	int64_t i, n;
	int err = w->by ? ask_sums(w, 0, w->n) : 0;

	for (i = 0; !err && i < w->n; i += n) {
		n = unit(w, i);
		err = begin_store(w, i, n);
	}
	if (!err)
		err = await_all(w);
	for (i = 0; !err && i < w->n; i++) {
		seal(w, i);
		w->result[i] = bytes_of(w, i);
	}
	return err;
}

static int end_load(const struct work *w)
{
	int err = w->calls ? await_all(w) : 0;
	int64_t i;

	for (i = 0; !err && i < w->n; i++)
		if (w->result[i] != BAD)
			w->result[i] = has_arrived(w, i) ? bytes_of(w, i) : BAD;
	return err;
}

static int load(const struct work *w)
{
	uint32_t units = 0;
	int64_t i, good;
	int err = 0;

	for (i = 0; !err && i < w->n; i += good + (i + good < w->n && w->result[i + good] == BAD)) {
		good = good_ones(w, i, unit(w, i));
		if (good)
			err = copy_unit(w, i, good);
		if (!err && good && w->by)
			err = sum_loaded(w, i, good, units++ % WINDOW);
	}
	return err ? err : end_load(w);
}

/* What is not done when a call fails: a store has sealed nothing, and is of no bytes. */
static int move(struct work *w)
{
	int64_t i;

	w->apart = w->stride > MAX_PITCH;
	if (!w->apart)
		for (w->apart = true, i = 0; i < w->nruns; i++)
			w->apart &= w->run[i].count >= NEIGHBOUR;
	for (i = 0; i < w->n; i++)
		w->result[i] = w->store ? 0 : FAILED;
	if (!w->store)
		return load(w);
	return w->calls && (w->by || !w->sums) ? store_at_once(w) : store_and_sum(w);
}

/* ---- the calls ---- */

#define SUMS "gpc_sums"

static void close_sums(PyObject *capsule)
{
	gpc_sums_close(PyCapsule_GetPointer(capsule, SUMS));
}

METHOD(pages_sums)
{
	static const struct call call = { "_sums_open", 2, 2, { "device", "pieces" } };
	PyObject *a[MAX_ARGS], *keep = NULL, *ret = NULL;
	Py_buffer pieces;
	const char *device;
	gpc_sums *sums;
	int err;

	(void)self;
	if (args_parse(&call, args, n, kwnames, a) < 0 || args_text(a[0], "device", &device, &keep) < 0)
		return NULL;
	if (PyObject_GetBuffer(a[1], &pieces, PyBUF_SIMPLE) == 0) {
		FREELY(err = gpc_sums_open(device, pieces.buf,
					   (uint32_t)((size_t)pieces.len / sizeof(struct gpc_piece)), &sums));
		PyBuffer_Release(&pieces);
		ret = err < 0 ? error_raise(err) : PyCapsule_New(sums, SUMS, close_sums);
	}
	Py_XDECREF(keep);
	return ret;
}

enum { RUNS, SLOTS, KEYS, STARTS, PAGES, CALLS, BUFFERS };

static PyObject *answer(const struct work *w, int err)
{
	PyObject *list = PyList_New((Py_ssize_t)w->n), *item;
	Py_ssize_t i;

	for (i = 0; list && i < (Py_ssize_t)w->n; i++) {
		item = PyLong_FromLongLong(w->result[i]);
		if (!item || PyList_SetItem(list, i, item) < 0)
			Py_CLEAR(list);
	}
	return list ? Py_BuildValue("(Ni)", list, err) : NULL;
}

static PyObject *run(struct work *w)
{
	PyObject *ret = NULL;
	int err;

	w->result = PyMem_Malloc((size_t)(w->n + 1) * sizeof(*w->result));
	if (!w->result)
		return PyErr_NoMemory();
	FREELY(err = move(w));
	ret = answer(w, err);
	PyMem_Free(w->result);
	return ret;
}

/* Buffers whose lengths belong together, and pages that are of the chunks. */
static bool fits(const struct work *w, const Py_buffer b[BUFFERS])
{
	int64_t i, pages = b[PAGES].len / 16;

	if (b[RUNS].len % (Py_ssize_t)sizeof(struct run) || b[SLOTS].len % 8 || b[KEYS].len != 2 * b[SLOTS].len ||
	    b[STARTS].len != b[SLOTS].len + 8 || b[PAGES].len % 16)
		return false;
	for (i = 0; i < w->n; i++)
		if (w->slot[i] < 0 || w->start[i] < 0 || w->start[i] > w->start[i + 1] ||
		    (w->by && w->start[i] + 1 != w->start[i + 1]))
			return false;
	if (w->by && (!w->calls || w->n > GPC_SUMS))
		return false;
	return w->start[0] >= 0 && w->start[w->n] <= pages;
}

METHOD(pages_move)
{
	static const struct call call = { "_move_pages", 0, 12, {
		"runs", "slots", "keys", "starts", "pages", "calls", "store", "sums", "base", "where", "bytes",
		"by" } };
	PyObject *a[MAX_ARGS], *ret = NULL;
	Py_buffer b[BUFFERS] = { 0 };
	struct work w = { 0 };
	struct calls calls;
	gpc_sums *by = NULL;
	unsigned long long base, stride, area, head, bytes;
	int i;

	(void)self;
	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	base = PyLong_AsUnsignedLongLong(a[8]);
	bytes = PyLong_AsUnsignedLongLong(a[10]);
	if (PyErr_Occurred() || !PyArg_ParseTuple(a[9], "KKK", &stride, &area, &head))
		return NULL;
	if (a[11] != Py_None && !(by = PyCapsule_GetPointer(a[11], SUMS)))
		return NULL;
	for (i = 0; i < BUFFERS; i++)
		if (a[i] != Py_None && PyObject_GetBuffer(a[i], &b[i], PyBUF_SIMPLE) < 0)
			goto out;
	w = (struct work){
		.store = PyObject_IsTrue(a[6]) == 1, .sums = PyObject_IsTrue(a[7]) == 1,
		.run = b[RUNS].buf, .nruns = (uint32_t)((size_t)b[RUNS].len / sizeof(struct run)),
		.base = (uint8_t *)(uintptr_t)base, .stride = stride, .area = area, .head = head, .bytes = bytes,
		.slot = b[SLOTS].buf, .key = b[KEYS].buf, .start = b[STARTS].buf, .page = b[PAGES].buf,
		.n = b[SLOTS].len / 8, .by = by,
	};
	if (b[CALLS].buf) {
		if (b[CALLS].len != sizeof(calls)) {
			PyErr_Format(PyExc_ValueError, "calls has %zd bytes, %zu are wanted", b[CALLS].len,
				     sizeof(calls));
			goto out;
		}
		memcpy(&calls, b[CALLS].buf, sizeof(calls));
		w.calls = &calls;
	}
	if (!fits(&w, b))
		PyErr_SetString(PyExc_ValueError, "runs, slots, keys, starts and pages do not belong together");
	else
		ret = run(&w);
out:
	for (i = 0; i < BUFFERS; i++)
		PyBuffer_Release(&b[i]);
	return ret;
}
