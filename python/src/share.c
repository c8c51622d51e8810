/* SPDX-License-Identifier: Apache-2.0 */
/* share.c - pages.h for Python: a share is a capsule between its begin and its end.
 * Tests: t/python/threads.t t/python/vllm-trace.t t/python/vllm-worker.t */
#include "pages.h"

#include <string.h>

#define SUMS  "gpc_sums"
#define SHARE "gpc_share"

/* ---- the device that sums ---- */

struct who {
	gpc_sums *sums;
	uint32_t blocks; /* of a chunk */
};

static void close_sums(PyObject *capsule)
{
	struct who *w = PyCapsule_GetPointer(capsule, SUMS);

	gpc_sums_close(w->sums);
	PyMem_Free(w);
}

METHOD(share_sums)
{
	static const struct call call = { "_sums_open", 3, 3, { "device", "pieces", "blocks" } };
	PyObject *a[MAX_ARGS], *keep = NULL, *ret = NULL;
	Py_buffer pieces;
	const char *device;
	struct who *w;
	uint32_t blocks = 1;
	int err;

	(void)self;
	if (args_parse(&call, args, n, kwnames, a) < 0 || args_u32(a[2], "blocks", &blocks) < 0 ||
	    args_text(a[0], "device", &device, &keep) < 0)
		return NULL;
	w = PyMem_Calloc(1, sizeof(*w));
	if (!w)
		return PyErr_NoMemory();
	w->blocks = blocks;
	if (PyObject_GetBuffer(a[1], &pieces, PyBUF_SIMPLE) == 0) {
		FREELY(err = gpc_sums_open(
			       device, pieces.buf,
			       (uint32_t)((size_t)pieces.len / sizeof(struct gpc_piece)), blocks,
			       &w->sums));
		PyBuffer_Release(&pieces);
		ret = err < 0 ? error_raise(err) : PyCapsule_New(w, SUMS, close_sums);
	}
	if (!ret) {
		gpc_sums_close(w->sums);
		PyMem_Free(w);
	}
	Py_XDECREF(keep);
	return ret;
}

/* ---- shares ---- */

enum { RUNS, SLOTS, OF, STARTS, PAGES, CALLS, BUFFERS };

struct share {
	struct pages w;
	Py_buffer b[BUFFERS];
	PyObject *sums;
};

static void free_share(struct share *s)
{
	int i;

	for (i = 0; i < BUFFERS; i++)
		PyBuffer_Release(&s->b[i]);
	Py_XDECREF(s->sums);
	PyMem_Free(s->w.result);
	PyMem_Free(s);
}

static void close_share(PyObject *capsule)
{
	free_share(PyCapsule_GetPointer(capsule, SHARE));
}

static int fill_numbers(struct pages *w, PyObject *const *a)
{
	unsigned long long base = PyLong_AsUnsignedLongLong(a[8]), stride, area;
	unsigned int structure, each;

	w->bytes = PyLong_AsUnsignedLongLong(a[10]);
	if (PyErr_Occurred() ||
	    !PyArg_ParseTuple(a[9], "KKII", &stride, &area, &structure, &each) ||
	    args_u32(a[12], "lane", &w->lane) < 0)
		return -1;
	w->store = PyObject_IsTrue(a[6]) == 1;
	w->sums = PyObject_IsTrue(a[7]) == 1;
	w->base = (uint8_t *)(uintptr_t)base;
	w->stride = stride;
	w->area = area;
	w->structure = structure;
	w->each = each;
	return 0;
}

static void fill_arrays(struct pages *w, const Py_buffer b[BUFFERS])
{
	w->run = b[RUNS].buf;
	w->nruns = (uint32_t)((size_t)b[RUNS].len / sizeof(struct pages_run));
	w->slot = b[SLOTS].buf;
	w->sum = b[OF].buf;
	w->start = b[STARTS].buf;
	w->page = b[PAGES].buf;
	w->n = b[SLOTS].len / 8;
}

/* The lengths of the buffers fit together, and the pages belong to the chunks. */
static bool fits(const struct pages *w, const Py_buffer b[BUFFERS])
{
	int64_t i, pages = b[PAGES].len / 16;

	if (b[RUNS].len % (Py_ssize_t)sizeof(struct pages_run) || b[SLOTS].len % 8 ||
	    b[OF].len != b[SLOTS].len / 8 * (Py_ssize_t)sizeof(struct gpc_sum) ||
	    b[STARTS].len != b[SLOTS].len + 8 || b[PAGES].len % 16 ||
	    (b[CALLS].buf && b[CALLS].len != sizeof(struct pages_calls)) || w->lane >= PAGES_LANES)
		return false;
	for (i = 0; i < w->n; i++)
		if (w->slot[i] < 0 || w->start[i] < 0 || w->start[i] > w->start[i + 1] ||
		    (w->by && w->store && w->start[i] + w->blocks != w->start[i + 1]))
			return false;
	if (w->calls && w->calls->turn >= PAGES_STREAMS)
		return false;
	if (w->by && (!w->calls || w->n > GPC_SUMS / PAGES_LANES))
		return false;
	return w->start[0] >= 0 && w->start[w->n] <= pages;
}

static int fill(struct share *s, PyObject *const *a)
{
	struct pages *w = &s->w;
	const struct who *who;
	int i;

	w->blocks = 1;
	if (fill_numbers(w, a) < 0)
		return -1;
	for (i = 0; i < BUFFERS; i++)
		if (a[i] != Py_None &&
		    PyObject_GetBuffer(a[i], &s->b[i],
				       i == OF || i == CALLS ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0)
			return -1;
	fill_arrays(w, s->b);
	w->calls = s->b[CALLS].buf;
	if (a[11] != Py_None) {
		who = PyCapsule_GetPointer(a[11], SUMS);
		if (!who)
			return -1;
		w->by = who->sums;
		w->blocks = who->blocks;
		Py_INCREF(a[11]);
		s->sums = a[11];
	}
	if (!fits(w, s->b)) {
		PyErr_SetString(
			PyExc_ValueError,
			"runs, slots, of, starts, pages, calls and lane do not belong together");
		return -1;
	}
	w->result = PyMem_Malloc((size_t)(w->n + 1) * sizeof(*w->result));
	if (!w->result)
		PyErr_NoMemory();
	return w->result ? 0 : -1;
}

const long share_calls = sizeof(struct pages_calls) / 8;

METHOD(share_begin)
{
	static const struct call call = { "_share_begin",
					  0,
					  12,
					  { "runs", "slots", "of", "starts", "pages", "calls",
					    "store", "sums", "base", "where", "bytes", "by",
					    "lane" } };
	PyObject *a[MAX_ARGS], *ret;
	struct share *s;

	(void)self;
	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	s = PyMem_Calloc(1, sizeof(*s));
	if (!s)
		return PyErr_NoMemory();
	ret = fill(s, a) < 0 ? NULL : PyCapsule_New(s, SHARE, close_share);
	if (!ret)
		free_share(s);
	else
		FREELY(pages_begin(&s->w));
	return ret;
}

static PyObject *answer(const struct pages *w)
{
	PyObject *list = PyList_New((Py_ssize_t)w->n), *item;
	Py_ssize_t i;

	for (i = 0; list && i < (Py_ssize_t)w->n; i++) {
		item = PyLong_FromLongLong(w->result[i]);
		if (!item || PyList_SetItem(list, i, item) < 0)
			Py_CLEAR(list);
	}
	return list ? Py_BuildValue("(Ni(KKKK))", list, w->err, w->at[PAGES_FIRST],
				    w->at[PAGES_GIVEN], w->at[PAGES_COPIED], w->at[PAGES_SUMMED])
		    : NULL;
}

METHOD(share_end)
{
	static const struct call call = { "_share_end", 1, 1, { "share" } };
	PyObject *a[MAX_ARGS];
	struct share *s;

	(void)self;
	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	s = PyCapsule_GetPointer(a[0], SHARE);
	if (!s)
		return NULL;
	FREELY(pages_end(&s->w));
	return answer(&s->w);
}
