/* SPDX-License-Identifier: Apache-2.0 */
/* walk.c - all that has a cursor (entries, events, claims), and transfers, by number.
 *
 * One type iterates over all of them, and reads a batch at a time.  An iterator of events goes on
 * where it stopped when next() is called again.
 * Tests: t/python/many.t t/python/look.t */
#include "gpcpy.h"

#include <errno.h>

#define BATCH 128

struct source {
	const char *name;
	const struct record *record;
	int (*read)(gpc *c, uint64_t *cursor, void *out, uint32_t n);
	bool resumes;
};

static int read_entries(gpc *c, uint64_t *cursor, void *out, uint32_t n)
{
	return gpc_walk(c, cursor, out, n);
}

static int read_events(gpc *c, uint64_t *cursor, void *out, uint32_t n)
{
	return gpc_event_read(c, cursor, out, n);
}

static int read_claims(gpc *c, uint64_t *cursor, void *out, uint32_t n)
{
	return gpc_claim_walk(c, cursor, out, n);
}

static int read_transfers(gpc *c, uint64_t *cursor, void *out, uint32_t n)
{
	struct gpc_transfer_info *info = out;
	uint32_t i;
	int r = 0;

	for (i = 0; i < n; i++) {
		info[i] = (struct gpc_transfer_info){ .size = sizeof(*info) };
		r = gpc_transfer_get(c, (uint32_t)*cursor, &info[i]);
		if (r < 0)
			break;
		++*cursor;
	}
	return r < 0 && r != -ENOENT ? r : (int)i;
}

static const struct source entries = { "walk", &record_entry, read_entries, false };
static const struct source events = { "events", &record_event, read_events, true };
static const struct source claims = { "claims", &record_claim, read_claims, false };
static const struct source transfers = { "transfers", &record_transfer, read_transfers, false };

typedef struct {
	PyObject_HEAD Cache *cache;
	const struct source *source;
	uint64_t cursor;
	PyObject *items; /* a list; `at` counts the items given so far */
	Py_ssize_t at;
	bool ended;
	bool reading; /* a thread reads, without the GIL */
} Walk;

static PyTypeObject *walk_type;

/* Reads a list of at most n items, from *cursor on. */
static PyObject *read_batch(Cache *cache, const struct source *s, uint64_t *cursor, uint32_t n)
{
	struct array out = { 0 };
	PyObject *ret = NULL;
	gpc *c;
	int r;

	if (array_out(NULL, "n", n, s->record->bytes, &out) == 0 && handle_enter(cache) == 0) {
		c = cache->c;
		FREELY(r = s->read(c, cursor, out.p, n));
		ret = r < 0 ? error_raise_cursor(r, *cursor)
			    : record_list(s->record, out.p, (size_t)r);
		handle_leave(cache);
	}
	array_free(&out);
	return ret;
}

static PyObject *walk_next(PyObject *o)
{
	Walk *self = (Walk *)o;
	PyObject *items;

	while (!self->items || self->at >= PyList_Size(self->items)) {
		if (self->ended)
			return NULL;
		if (self->reading) {
			PyErr_Format(
				PyExc_ValueError,
				"%s: another thread is in this iterator: one iterator is for one "
				"thread at a time",
				self->source->name);
			return NULL;
		}
		self->reading = true;
		items = read_batch(self->cache, self->source, &self->cursor, BATCH);
		self->reading = false;
		if (!items)
			return NULL;
		Py_XDECREF(self->items);
		self->items = items;
		self->at = 0;
		if (PyList_Size(items))
			continue;
		self->ended = !self->source->resumes;
		return NULL;
	}
	return Py_XNewRef(PyList_GetItem(self->items, self->at++));
}

static PyObject *walk_self(PyObject *o)
{
	return Py_NewRef(o);
}

static void walk_dealloc(PyObject *o)
{
	PyTypeObject *type = Py_TYPE(o);
	Walk *self = (Walk *)o;
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	Py_XDECREF((PyObject *)self->cache);
	Py_XDECREF(self->items);
	release(o);
	Py_DECREF((PyObject *)type);
}

static PyObject *walk_start(PyObject *cache, const struct source *s, uint64_t cursor)
{
	allocfunc alloc = (allocfunc)PyType_GetSlot(walk_type, Py_tp_alloc);
	Walk *w = (Walk *)alloc(walk_type, 0);

	if (!w)
		return NULL;
	w->cache = (Cache *)Py_NewRef(cache);
	w->source = s;
	w->cursor = cursor;
	return (PyObject *)w;
}

static PyObject *walk_repr(PyObject *o)
{
	const Walk *self = (Walk *)o;

	return PyUnicode_FromFormat("<gpc.Walk of %s, cache %R %s: cursor %llu%s>",
				    self->source->name, self->cache->name,
				    handle_state(self->cache), (unsigned long long)self->cursor,
				    self->ended ? ", at its end" : "");
}

static PyObject *walk_cursor(PyObject *o, void *unused)
{
	return PyLong_FromUnsignedLongLong(((Walk *)o)->cursor);
}

/* ---- methods ---- */

static PyObject *start_plain(PyObject *self, const struct source *s, PyObject *const *args,
			     Py_ssize_t n, PyObject *kwnames)
{
	struct call call = { s->name, 0, 0, { NULL } };
	PyObject *a[MAX_ARGS];

	return args_parse(&call, args, n, kwnames, a) < 0 ? NULL : walk_start(self, s, 0);
}

static METHOD(walk_entries)
{
	return start_plain(self, &entries, args, n, kwnames);
}

static METHOD(walk_claims)
{
	return start_plain(self, &claims, args, n, kwnames);
}

static METHOD(walk_transfers)
{
	return start_plain(self, &transfers, args, n, kwnames);
}

static METHOD(walk_events)
{
	static const struct call call = { "events", 1, 0, { "cursor" } };
	PyObject *a[MAX_ARGS];
	uint64_t cursor = 0;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_u64(a[0], "cursor", &cursor) < 0)
		return NULL;
	return walk_start(self, &events, cursor);
}

static METHOD(walk_event_read)
{
	static const struct call call = { "event_read", 2, 1, { "cursor", "n" } };
	PyObject *a[MAX_ARGS], *list, *ret;
	uint64_t cursor = 0;
	uint32_t count = BATCH;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_u64(a[0], "cursor", &cursor) < 0 ||
	    args_u32(a[1], "n", &count) < 0)
		return NULL;
	list = read_batch((Cache *)self, &events, &cursor, count);
	if (!list)
		return NULL;
	ret = Py_BuildValue("(OK)", list, (unsigned long long)cursor);
	Py_DECREF(list);
	return ret;
}

const PyMethodDef methods_walk[] = {
	ROW("walk", walk_entries, "$self",
	    "An iterator over the entries that are live throughout, parents first: Entry.\n"
	    "A handle has one walk at a time.  gpc.Stale: another one has begun meanwhile."),
	ROW("claims", walk_claims, "$self", "An iterator over the open claims: Claim."),
	ROW("transfers", walk_transfers, "$self",
	    "An iterator over the transfers that are not over: Transfer."),
	ROW("events", walk_events, "$self, cursor=0",
	    "An iterator over the changes so far, from the oldest that is kept; FROM_NOW: "
	    "those to come.\n"
	    "It ends when there is none left, and goes on by the next for loop over it.  "
	    "gpc.Stale: too\n"
	    "late; walk, and go on.  Its attribute cursor is where it has read to."
	    "\n"
	    "cursor: 0 to 2^64 - 1."),
	ROW("event_read", walk_event_read, "$self, cursor, n=128",
	    "(a list of at most n Event, the next cursor).  gpc.Stale: too late; its "
	    "attribute cursor is\n"
	    "where to go on."),
	{ NULL, NULL, 0, NULL }
};

static PyGetSetDef getset[] = { { "cursor", walk_cursor, NULL, "Where the next batch begins.",
				  NULL },
				{ NULL, NULL, NULL, NULL, NULL } };
static PyType_Slot slots[] = { { Py_tp_doc, (void *)"An iterator over what a cache has." },
			       { Py_tp_dealloc, walk_dealloc },
			       { Py_tp_repr, walk_repr },
			       { Py_tp_iter, walk_self },
			       { Py_tp_iternext, walk_next },
			       { Py_tp_getset, getset },
			       { 0, NULL } };
static PyType_Spec spec = {
	.name = "gpc.Walk",
	.basicsize = sizeof(Walk),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

int walk_init(PyObject *module)
{
	walk_type = (PyTypeObject *)PyType_FromSpec(&spec);
	return walk_type ? PyModule_AddObjectRef(module, "Walk", (PyObject *)walk_type) : -1;
}
