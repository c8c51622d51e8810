/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - gpc_dev_*: lookups that run on a device, on arrays in its memory.
 *
 * The stream reads and writes the arrays after the call.  An array of the host is viewed until the
 * device's wait() or close().  For memory of a GPU its owner must keep it, as for any kernel.
 * Tests: t/python/many.t t/python/look.t */
#include "gpcpy.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
	PyObject_HEAD Cache *cache;
	PyObject *name;
	gpc_dev *dev;
	int users, closed;
	pthread_mutex_t lock;
	struct kept *kept;
} Device;

static PyTypeObject *device_type;

static int enter(Device *self)
{
	if (handle_enter(self->cache) < 0)
		return -1;
	__atomic_fetch_add(&self->users, 1, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&self->closed, __ATOMIC_SEQ_CST))
		return 0;
	__atomic_fetch_sub(&self->users, 1, __ATOMIC_SEQ_CST);
	handle_leave(self->cache);
	PyErr_SetString(PyExc_ValueError, "the device is closed");
	return -1;
}

static void leave(Device *self)
{
	__atomic_fetch_sub(&self->users, 1, __ATOMIC_SEQ_CST);
	handle_leave(self->cache);
}

/* ---- arrays ---- */

static int keep(Device *self, struct array *a)
{
	struct kept *k;

	if (!a->viewed)
		return 0;
	k = PyMem_Malloc(sizeof(*k));
	if (!k) {
		PyErr_NoMemory();
		return -1;
	}
	*k = (struct kept){ .array = *a };
	*a = (struct array){ 0 };
	pthread_mutex_lock(&self->lock);
	k->next = self->kept;
	self->kept = k;
	pthread_mutex_unlock(&self->lock);
	return 0;
}

static struct kept *take_kept(Device *self)
{
	struct kept *k;

	pthread_mutex_lock(&self->lock);
	k = self->kept;
	self->kept = NULL;
	pthread_mutex_unlock(&self->lock);
	return k;
}

static void give_kept(Device *self, struct kept *k)
{
	struct kept *last = k;

	if (!k)
		return;
	while (last->next)
		last = last->next;
	pthread_mutex_lock(&self->lock);
	last->next = self->kept;
	self->kept = k;
	pthread_mutex_unlock(&self->lock);
}

static void free_kept(struct kept *k)
{
	struct kept *next;

	for (; k; k = next) {
		next = k->next;
		array_free(&k->array);
		PyMem_Free(k);
	}
}

/* Bytes of an array of shape; -1 with an exception. */
static long long cai_bytes(PyObject *cai)
{
	PyObject *shape = PyMapping_GetItemString(cai, "shape"),
		 *type = PyMapping_GetItemString(cai, "typestr"), *strides;
	const char *text =
		type && PyUnicode_Check(type) ? PyUnicode_AsUTF8AndSize(type, NULL) : NULL;
	long long bytes = text && text[0] && text[1] ? atoll(text + 2) : -1, dim;
	Py_ssize_t i;

	for (i = 0; bytes >= 0 && shape && PyTuple_Check(shape) && i < PyTuple_Size(shape); i++) {
		dim = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
		if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes))
			bytes = -1;
	}
	Py_XDECREF(shape);
	Py_XDECREF(type);
	strides = PyMapping_GetItemString(cai, "strides");
	if (strides && strides != Py_None)
		bytes = -1;
	Py_XDECREF(strides);
	PyErr_Clear();
	return bytes;
}

/* The address of an array of a device, or of the host.  n = 0: it may have any number of items;
 * else at least n. */
static int device_array(PyObject *o, const char *name, size_t n, uint32_t size, bool write,
			struct array *a)
{
	PyObject *cai = PyObject_GetAttrString(o, "__cuda_array_interface__"), *data = NULL;
	uint64_t address = 0;
	long long bytes;
	int r = -1;

	if (!cai) {
		PyErr_Clear();
		if (write)
			return array_out(o, name, n, size, a);
		if (PyObject_GetBuffer(o, &a->view, PyBUF_C_CONTIGUOUS) < 0)
			return -1;
		a->viewed = true;
		a->p = a->view.buf;
		a->n = (uint32_t)((size_t)a->view.len / size);
		if (a->n >= n && (size_t)a->view.len / size <= INT32_MAX)
			return 0;
		PyErr_Format(PyExc_ValueError, "%s: %zd bytes, %zu items of %lu are wanted", name,
			     a->view.len, n, (unsigned long)size);
		return -1;
	}
	bytes = cai_bytes(cai);
	data = PyMapping_GetItemString(cai, "data");
	if (data && PyTuple_Check(data) && PyTuple_Size(data) == 2)
		r = args_u64(PyTuple_GetItem(data, 0), name, &address);
	Py_XDECREF(data);
	Py_DECREF(cai);
	if (r == 0 && bytes >= 0 && (uint64_t)bytes / size >= n && bytes / size <= INT32_MAX) {
		a->p = (void *)(uintptr_t)address;
		a->n = (uint32_t)(bytes / size);
		return 0;
	}
	PyErr_Clear();
	PyErr_Format(PyExc_ValueError,
		     "%s: a contiguous array of a device, with room for %zu items of %lu bytes, is "
		     "wanted",
		     name, n, (unsigned long)size);
	return -1;
}

/* ---- methods ---- */

static METHOD(device_enter)
{
	static const struct call call = { "enter", 0, 0, { NULL } };
	PyObject *a[MAX_ARGS], *ret;
	gpc_dev *d;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || enter((Device *)self) < 0)
		return NULL;
	d = ((Device *)self)->dev;
	FREELY(r = gpc_dev_enter(d));
	ret = r < 0 ? error_raise(r) : PyLong_FromLong(r);
	leave((Device *)self);
	return ret;
}

static METHOD(device_leave)
{
	static const struct call call = { "leave", 2, 1, { "section", "stream" } };
	PyObject *a[MAX_ARGS], *ret;
	void *stream = NULL;
	int section = 0, r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_int(a[0], "section", &section) < 0 ||
	    args_stream(a[1], "stream", &stream) < 0 || enter((Device *)self) < 0)
		return NULL;
	r = gpc_dev_leave(((Device *)self)->dev, section, stream);
	ret = r < 0 ? error_raise(r) : Py_NewRef(Py_None);
	leave((Device *)self);
	return ret;
}

static METHOD(device_lookup)
{
	static const struct call call = { "lookup", 2, 2, { "keys", "out", "spaces", "stream" } };
	struct array keys = { 0 }, out = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t spaces = 0;
	void *stream = NULL;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (device_array(a[0], "keys", 0, sizeof(gpc_key), false, &keys) == 0 &&
	    device_array(a[1], "out", keys.n, 4, true, &out) == 0 &&
	    args_u32(a[2], "spaces", &spaces) == 0 && args_stream(a[3], "stream", &stream) == 0 &&
	    enter((Device *)self) == 0) {
		r = gpc_dev_lookup(((Device *)self)->dev, spaces, keys.p, keys.n, out.p, stream);
		if (r < 0)
			error_raise(r);
		else if (keep((Device *)self, &keys) == 0 && keep((Device *)self, &out) == 0)
			ret = Py_NewRef(Py_None);
		leave((Device *)self);
	}
	array_free(&keys);
	array_free(&out);
	return ret;
}

/* The host device reads a checked copy, so that the values stay as they were checked. */
static int check_start(struct array *start, uint32_t nseq, uint32_t n)
{
	uint32_t *s, i;

	if (!start->viewed)
		return 0;
	s = PyMem_Malloc(((size_t)nseq + 1) * sizeof(*s));
	if (!s) {
		PyErr_NoMemory();
		return -1;
	}
	memcpy(s, start->p, ((size_t)nseq + 1) * sizeof(*s));
	start->p = s;
	start->own = true;
	for (i = 0; i <= nseq; i++) {
		if (s[i] <= n && (i == 0 || s[i - 1] <= s[i]))
			continue;
		PyErr_Format(PyExc_ValueError,
			     "start[%lu] is %lu: it must ascend to at most %lu, the number of keys",
			     (unsigned long)i, (unsigned long)s[i], (unsigned long)n);
		return -1;
	}
	return 0;
}

static METHOD(device_match)
{
	static const struct call call = {
		"match", 5, 5, { "keys", "start", "nseq", "lens", "out", "spaces", "stream" }
	};
	struct array keys = { 0 }, start = { 0 }, lens = { 0 }, out = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t spaces = 0, nseq = 0;
	void *stream = NULL;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (args_u32(a[2], "nseq", &nseq) == 0 &&
	    device_array(a[0], "keys", 0, sizeof(gpc_key), false, &keys) == 0 &&
	    device_array(a[1], "start", (size_t)nseq + 1, 4, false, &start) == 0 &&
	    check_start(&start, nseq, keys.n) == 0 &&
	    device_array(a[3], "lens", nseq, 4, true, &lens) == 0 &&
	    device_array(a[4], "out", keys.n, 4, true, &out) == 0 &&
	    args_u32(a[5], "spaces", &spaces) == 0 && args_stream(a[6], "stream", &stream) == 0 &&
	    enter((Device *)self) == 0) {
		r = gpc_dev_match(((Device *)self)->dev, spaces, keys.p, start.p, nseq, lens.p,
				  out.p, stream);
		if (r < 0)
			error_raise(r);
		else if (keep((Device *)self, &keys) == 0 && keep((Device *)self, &start) == 0 &&
			 keep((Device *)self, &lens) == 0 && keep((Device *)self, &out) == 0)
			ret = Py_NewRef(Py_None);
		leave((Device *)self);
	}
	array_free(&keys);
	array_free(&start);
	array_free(&lens);
	array_free(&out);
	return ret;
}

static METHOD(device_wait)
{
	static const struct call call = { "wait", 2, 0, { "stream", "timeout" } };
	PyObject *a[MAX_ARGS], *ret;
	void *stream = NULL;
	int timeout = -1, r;
	struct kept *k;
	gpc_dev *d;

	if (args_parse(&call, args, n, kwnames, a) < 0 ||
	    args_stream(a[0], "stream", &stream) < 0 || args_time(a[1], "timeout", &timeout) < 0 ||
	    enter((Device *)self) < 0)
		return NULL;
	d = ((Device *)self)->dev;
	k = take_kept((Device *)self); /* calls that come meanwhile are not waited for */
	WAIT_SLICES(r, timeout, r = gpc_dev_wait(d, stream, slice));
	ret = r < 0 ? error_raise(r) : Py_NewRef(Py_None);
	if (r < 0)
		give_kept((Device *)self, k);
	else
		free_kept(k);
	leave((Device *)self);
	return ret;
}

/* ---- open and close ---- */

static void finish(Device *self)
{
	gpc_dev *d = self->dev;

	self->dev = NULL;
	if (d && handle_enter(self->cache) == 0) {
		FREELY(gpc_dev_close(d));
		handle_leave(self->cache);
	} else if (d && self->cache->c) {
		/* a close is under way, and the device may still write: the arrays leak */
		take_kept(self);
	}
	PyErr_Clear(); /* the cache is closed, and the device with it */
	free_kept(take_kept(self));
}

static METHOD(device_close)
{
	static const struct call call = { "close", 0, 0, { NULL } };
	Device *d = (Device *)self;
	PyObject *a[MAX_ARGS];

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (__atomic_exchange_n(&d->closed, 1, __ATOMIC_SEQ_CST))
		Py_RETURN_NONE;
	/* in a forked child the threads inside do not exist */
	while (!handle_forked(d->cache) && __atomic_load_n(&d->users, __ATOMIC_SEQ_CST)) {
		FREELY(usleep(1000));
		if (PyErr_CheckSignals() < 0) {
			__atomic_store_n(&d->closed, 0, __ATOMIC_SEQ_CST);
			return NULL;
		}
	}
	finish(d);
	Py_RETURN_NONE;
}

static void device_dealloc(PyObject *o)
{
	PyTypeObject *type = Py_TYPE(o);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
	Device *self = (Device *)o;

	finish(self);
	pthread_mutex_destroy(&self->lock);
	Py_XDECREF(self->name);
	Py_DECREF((PyObject *)self->cache);
	release(o);
	Py_DECREF((PyObject *)type);
}

static PyObject *device_repr(PyObject *o)
{
	Device *self = (Device *)o;
	bool closed = __atomic_load_n(&self->closed, __ATOMIC_SEQ_CST);

	return PyUnicode_FromFormat("<gpc.Device %R of cache %R, %s>", self->name,
				    self->cache->name,
				    closed ? "closed" : handle_state(self->cache));
}

static METHOD(device_open)
{
	static const struct call call = { "dev_open", 1, 1, { "device" } };
	PyObject *a[MAX_ARGS], *kept = NULL;
	const char *name = NULL;
	gpc_dev *d = NULL;
	Device *ret = NULL;
	gpc *c;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (!PyUnicode_Check(a[0])) {
		PyErr_Format(PyExc_TypeError, "device: a str is wanted, this is %.200R", a[0]);
		return NULL;
	}
	if (args_text(a[0], "device", &name, &kept) < 0)
		return NULL;
	if (handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		FREELY(r = gpc_dev_open(c, name, &d));
		if (r < 0)
			error_raise(r);
		else
			ret = (Device *)((allocfunc)PyType_GetSlot(device_type, Py_tp_alloc))(
				device_type, 0);
		if (ret) {
			pthread_mutex_init(&ret->lock, NULL);
			ret->cache = (Cache *)Py_NewRef(self);
			ret->name = Py_NewRef(a[0]);
			ret->dev = d;
		} else if (d) {
			FREELY(gpc_dev_close(d));
		}
		handle_leave((Cache *)self);
	}
	Py_DECREF(kept);
	return (PyObject *)ret;
}

const PyMethodDef methods_device[] = {
	ROW("dev_open", device_open, "$self, device",
	    "A Device: \"host\", \"cuda:N\" or \"GPU-uuid\"."
	    "\n"
	    "ENODEV: no such device, or a library without it.  gpc.Stale: there is no live mirror there now."),
	{ NULL, NULL, 0, NULL }
};

static PyMethodDef methods[] = {
	ROW("enter", device_enter, "$self",
	    "Before each launch or graph launch: a section.  gpc.Stale: there is no mirror "
	    "now."),
	ROW("leave", device_leave, "$self, section, stream=None",
	    "The section ends when the stream gets here."),
	ROW("lookup", device_lookup, "$self, keys, out, *, spaces=0, stream=None",
	    "Inside a section: a block or -1 of each key to out, in the order of the "
	    "stream.  Arrays of the\n"
	    "device, with __cuda_array_interface__; on the host device, buffers." SPACES),
	ROW("match", device_match, "$self, keys, start, nseq, lens, out, *, spaces=0, stream=None",
	    "The same for Cache.match.  What start holds on a GPU is yours to get right." SPACES),
	ROW("wait", device_wait, "$self, stream=None, timeout=None",
	    "Until the stream has done what it has so far." TIMES),
	ROW("close", device_close, "$self", "Waits until the device has done what it was given."),
	{ NULL, NULL, 0, NULL }
};
static PyType_Slot slots[] = {
	{ Py_tp_doc, (void *)"This process's use of one mirror: Cache.dev_open makes it." },
	{ Py_tp_dealloc, device_dealloc },
	{ Py_tp_repr, device_repr },
	{ Py_tp_methods, methods },
	{ 0, NULL }
};
static PyType_Spec spec = {
	.name = "gpc.Device",
	.basicsize = sizeof(Device),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

int device_init(PyObject *module)
{
	device_type = (PyTypeObject *)PyType_FromSpec(&spec);
	return device_type ? PyModule_AddObjectRef(module, "Device", (PyObject *)device_type) : -1;
}
