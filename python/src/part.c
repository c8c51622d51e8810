/* SPDX-License-Identifier: Apache-2.0 */
/* part.c - the memory of pools: lend, map, unmap.  A mapped part is an object with the buffer
 * protocol.
 *
 * A view counts on its part and on its cache.  pool_unmap and close refuse while there is a view,
 * so no view outlives its mapping.  An unmapped part knows that it is, and a later use of the
 * object is a ValueError.
 * Tests: t/python/memory.t t/python/many.t */
#include "part.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static PyTypeObject *part_type;

/* ---- views ---- */

int part_export(struct part *p)
{
	bool mapped;

	pthread_mutex_lock(&p->cache->lock);
	mapped = p->mapped && p->pid == getpid() && !p->cache->closed;
	if (mapped) {
		p->exports++;
		p->cache->exports++;
	}
	pthread_mutex_unlock(&p->cache->lock);
	if (mapped)
		return 0;
	PyErr_Format(
		PyExc_ValueError,
		p->pid != getpid()
			? "part %lu of pool %d was mapped by the parent process: a forked child has "
			  "no such memory; attach and map it anew there"
			: "part %lu of pool %d is not mapped in this process any more",
		(unsigned long)p->number, p->pool);
	return -1;
}

void part_unexport(struct part *p)
{
	pthread_mutex_lock(&p->cache->lock);
	p->exports--;
	p->cache->exports--;
	pthread_mutex_unlock(&p->cache->lock);
}

static int part_getbuffer(PyObject *o, Py_buffer *view, int flags)
{
	struct part *p = (struct part *)o;

	if (p->device != -1) {
		PyErr_Format(PyExc_BufferError,
			     "part %lu of pool %d is memory of a GPU: use __dlpack__ or "
			     "__cuda_array_interface__",
			     (unsigned long)p->number, p->pool);
		return -1;
	}
	if (part_export(p) < 0)
		return -1;
	if (PyBuffer_FillInfo(view, o, p->base, (Py_ssize_t)p->bytes, 0, flags) == 0)
		return 0;
	part_unexport(p);
	return -1;
}

static void part_releasebuffer(PyObject *o, Py_buffer *view)
{
	part_unexport((struct part *)o);
}

/* ---- the object ---- */

static void unlink_part(struct part *p)
{
	struct part **at;

	for (at = &p->cache->parts; *at && *at != p; at = &(*at)->next)
		;
	if (*at)
		*at = p->next;
	p->mapped = false;
}

static void part_dealloc(PyObject *o)
{
	PyTypeObject *type = Py_TYPE(o);
	struct part *p = (struct part *)o;
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	pthread_mutex_lock(&p->cache->lock);
	unlink_part(p);
	pthread_mutex_unlock(&p->cache->lock);
	Py_DECREF((PyObject *)p->cache);
	release(o);
	Py_DECREF((PyObject *)type);
}

void part_forget_all(Cache *self)
{
	struct part *p;

	pthread_mutex_lock(&self->lock);
	for (p = self->parts; p; p = p->next)
		p->mapped = false;
	self->parts = NULL;
	pthread_mutex_unlock(&self->lock);
}

static bool is_mapped(const struct part *p)
{
	return p->mapped && p->pid == getpid();
}

static PyObject *part_repr(PyObject *o)
{
	const struct part *p = (struct part *)o;
	char where[32] = "RAM";

	if (p->device >= 0)
		snprintf(where, sizeof(where), "cuda:%d", p->device);
	else if (p->device == -2)
		snprintf(where, sizeof(where), "a GPU");
	return PyUnicode_FromFormat(
		"<gpc.Part %lu of pool %d, cache %R: %llu bytes of %s at %p, %s>",
		(unsigned long)p->number, p->pool, p->cache->name, (unsigned long long)p->bytes,
		where, p->base,
		is_mapped(p)         ? "mapped"
		: p->pid != getpid() ? "of the parent process"
				     : "not mapped");
}

static PyObject *part_array_interface(PyObject *o, void *unused)
{
	struct part *p = (struct part *)o;

	if (p->device == -1) {
		PyErr_SetString(PyExc_AttributeError,
				"__cuda_array_interface__: this part is memory of the host");
		return NULL;
	}
	if (part_export(p) < 0)
		return NULL;
	part_unexport(p); /* the protocol has no end, so pool_unmap cannot know of it */
	return Py_BuildValue("{s:(K),s:s,s:(KO),s:i,s:O,s:O}", "shape",
			     (unsigned long long)p->bytes, "typestr", "|u1", "data",
			     (unsigned long long)(uintptr_t)p->base, Py_False, "version", 3,
			     "strides", Py_None, "stream", Py_None);
}

static PyObject *part_get(PyObject *o, void *which)
{
	struct part *p = (struct part *)o;

	switch ((intptr_t)which) {
	case 0:
		return PyLong_FromLong(p->pool);
	case 1:
		return PyLong_FromUnsignedLong(p->number);
	case 2:
		return PyLong_FromUnsignedLongLong(p->bytes);
	case 3:
		return PyBool_FromLong(is_mapped(p));
	default:
		return PyLong_FromUnsignedLongLong((uintptr_t)p->base);
	}
}

static PyGetSetDef getset[] = {
	{ "pool", part_get, NULL, "The number of its pool.", (void *)0 },
	{ "number", part_get, NULL, "Its own number, from 0.", (void *)1 },
	{ "nbytes", part_get, NULL, "Its bytes.", (void *)2 },
	{ "mapped", part_get, NULL, "False after pool_unmap and close, and in a forked child.",
	  (void *)3 },
	{ "address", part_get, NULL, "Where it is in this process, or on the GPU.", (void *)4 },
	{ "__cuda_array_interface__", part_array_interface, NULL, "Bytes on a GPU.", NULL },
	{ NULL, NULL, NULL, NULL, NULL }
};
static PyMethodDef methods[] = {
	ROW("__dlpack__", part_dlpack,
	    "$self, *, stream=None, max_version=None, dl_device=None, copy=None",
	    "A capsule of its bytes, uint8."),
	{ "__dlpack_device__", part_dlpack_device, METH_NOARGS,
	  "__dlpack_device__($self)\n--\n\n(1, 0) for the host, (2, N) for CUDA." },
	{ NULL, NULL, 0, NULL }
};
static PyType_Slot slots[] = {
	{ Py_tp_doc, (void *)"One part of a pool's memory, mapped by pool_map: writable bytes." },
	{ Py_tp_dealloc, part_dealloc },
	{ Py_tp_repr, part_repr },
	{ Py_tp_getset, getset },
	{ Py_tp_methods, methods },
	{ Py_bf_getbuffer, part_getbuffer },
	{ Py_bf_releasebuffer, part_releasebuffer },
	{ 0, NULL }
};
static PyType_Spec spec = {
	.name = "gpc.Part",
	.basicsize = sizeof(struct part),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

int part_init(PyObject *module)
{
	part_type = (PyTypeObject *)PyType_FromSpec(&spec);
	return part_type ? PyModule_AddObjectRef(module, "Part", (PyObject *)part_type) : -1;
}

/* ---- map ---- */

static int device_of(const struct gpc_pool_memory *m)
{
	if (m->kind == GPC_RAM || !strcmp(m->device, "host"))
		return -1;
	return strncmp(m->device, "cuda:", 5) ? -2 : atoi(m->device + 5);
}

/* unmapped: the cache's count before the mapping was made.  If a pool_unmap came in between, the
 * mapping may have gone. */
static PyObject *part_new(Cache *cache, int pool, uint32_t number, int device, void *base,
			  uint64_t bytes, uint32_t unmapped)
{
	allocfunc alloc = (allocfunc)PyType_GetSlot(part_type, Py_tp_alloc);
	struct part *p = (struct part *)alloc(part_type, 0);

	if (!p)
		return NULL;
	p->cache = (Cache *)Py_NewRef((PyObject *)cache);
	p->base = base;
	p->bytes = bytes;
	p->pool = pool;
	p->number = number;
	p->device = device;
	p->pid = getpid();
	pthread_mutex_lock(&cache->lock);
	if (!cache->unmapping && cache->unmapped == unmapped && !cache->closed) {
		p->mapped = true;
		p->next = cache->parts;
		cache->parts = p;
	}
	pthread_mutex_unlock(&cache->lock);
	if (p->mapped)
		return (PyObject *)p;
	Py_DECREF((PyObject *)p);
	return error_say(EAGAIN, "pool_unmap ran at the same time: map pool %d again", pool);
}

static PyObject *map_parts(Cache *cache, int pool, const struct gpc_pool_memory *m)
{
	PyObject *list = PyList_New((Py_ssize_t)m->parts), *v;
	gpc *c = cache->c;
	uint32_t i, unmapped;
	uint64_t bytes;
	void *base;
	int r;

	for (i = 0; list && i < m->parts; i++) {
		pthread_mutex_lock(&cache->lock);
		unmapped = cache->unmapped;
		pthread_mutex_unlock(&cache->lock);
		FREELY(r = gpc_pool_map(c, pool, i, &base, &bytes));
		v = r < 0 ? error_raise(r)
			  : part_new(cache, pool, i, device_of(m), base, bytes, unmapped);
		if (!v || PyList_SetItem(list, (Py_ssize_t)i, v) < 0)
			Py_CLEAR(list);
	}
	return list;
}

static METHOD(memory_map)
{
	static const struct call call = { "pool_map", 1, 1, { "pool" } };
	/* the count of huge pages takes its time, and the device stands after it in the struct */
	struct gpc_pool_memory m = { .size = offsetof(struct gpc_pool_memory, huge_bytes) };
	PyObject *a[MAX_ARGS], *ret;
	int pool = 0, r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_int(a[0], "pool", &pool) < 0 ||
	    handle_enter((Cache *)self) < 0)
		return NULL;
	r = gpc_pool_memory_get(((Cache *)self)->c, pool, &m, NULL, 0);
	if (r >= 0 && m.kind == GPC_VRAM) {
		m.size = sizeof(m);
		r = gpc_pool_memory_get(((Cache *)self)->c, pool, &m, NULL, 0);
	}
	ret = r < 0 ? error_raise(r) : map_parts((Cache *)self, pool, &m);
	handle_leave((Cache *)self);
	return ret;
}

/* ---- unmap ---- */

/* Takes the parts of the pool away; or returns how many views forbid it. */
static uint32_t begin_unmap(Cache *self, int pool)
{
	struct part *p, *next;
	uint32_t views = 0;

	pthread_mutex_lock(&self->lock);
	for (p = self->parts; p; p = p->next)
		if (p->pool == pool)
			views += p->exports;
	for (p = self->parts; p && !views; p = next) {
		next = p->next;
		if (p->pool == pool)
			unlink_part(p);
	}
	if (!views) {
		self->unmapping++;
		self->unmapped++;
	}
	pthread_mutex_unlock(&self->lock);
	return views;
}

static METHOD(memory_unmap)
{
	static const struct call call = { "pool_unmap", 1, 1, { "pool" } };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t views;
	int pool = 0, r;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_int(a[0], "pool", &pool) < 0 ||
	    handle_enter((Cache *)self) < 0)
		return NULL;
	views = begin_unmap((Cache *)self, pool);
	if (views) {
		PyErr_Format(PyExc_BufferError,
			     "%lu views of the memory of pool %d exist: release them first",
			     (unsigned long)views, pool);
	} else {
		c = ((Cache *)self)->c;
		FREELY(r = gpc_pool_unmap(c, pool));
		pthread_mutex_lock(&((Cache *)self)->lock);
		((Cache *)self)->unmapping--;
		pthread_mutex_unlock(&((Cache *)self)->lock);
		ret = r < 0 ? error_raise(r) : Py_NewRef(Py_None);
	}
	handle_leave((Cache *)self);
	return ret;
}

/* ---- lend ---- */

struct memory_range {
	void *base;
	uint64_t bytes;
	struct array view;
};

static bool item_is_none(PyObject *cai, const char *name)
{
	PyObject *v = PyMapping_GetItemString(cai, name);
	bool none = !v || v == Py_None;

	PyErr_Clear();
	Py_XDECREF(v);
	return none;
}

/* The bytes of a contiguous array: items, times the digits of a typestr such as "<f2". */
static int cuda_bytes(PyObject *cai, uint64_t *ret)
{
	PyObject *shape = PyMapping_GetItemString(cai, "shape"),
		 *type = PyMapping_GetItemString(cai, "typestr");
	const char *text = type ? PyUnicode_AsUTF8AndSize(type, NULL) : NULL;
	unsigned long long n = text && strlen(text) > 2 ? strtoull(text + 2, NULL, 10) : 0,
			   some = 0;
	Py_ssize_t i;
	bool good = n && shape && PyTuple_Check(shape) && item_is_none(cai, "strides");

	for (i = 0; good && i < PyTuple_Size(shape); i++) {
		some = PyLong_AsUnsignedLongLong(PyTuple_GetItem(shape, i));
		good = !PyErr_Occurred() && !__builtin_mul_overflow(n, some, &n);
	}
	Py_XDECREF(shape);
	Py_XDECREF(type);
	*ret = n;
	if (good)
		return 0;
	PyErr_SetString(
		PyExc_TypeError,
		"bytes: how many bytes of the GPU's memory are lent?  base is no contiguous "
		"array whose shape and typestr tell");
	return -1;
}

/* The range of an object with __cuda_array_interface__; 1 = it has none. */
static int cuda_range(PyObject *o, struct memory_range *m, PyObject *bytes)
{
	PyObject *cai = PyObject_GetAttrString(o, "__cuda_array_interface__"), *data;
	uint64_t address = 0;
	int r = -1;

	if (!cai) {
		PyErr_Clear();
		return 1;
	}
	data = PyMapping_GetItemString(cai, "data");
	if (data && PyTuple_Check(data) && PyTuple_Size(data) == 2)
		r = args_u64(PyTuple_GetItem(data, 0), "data", &address);
	if (r < 0 && !PyErr_Occurred())
		PyErr_SetString(PyExc_TypeError, "base: its __cuda_array_interface__ has no data");
	if (r == 0)
		r = bytes && bytes != Py_None ? args_u64(bytes, "bytes", &m->bytes)
					      : cuda_bytes(cai, &m->bytes);
	m->base = (void *)(uintptr_t)address;
	Py_XDECREF(data);
	Py_DECREF(cai);
	return r;
}

static int host_range(PyObject *o, struct memory_range *m, PyObject *bytes)
{
	if (array_out(o, "base", 0, 1, &m->view) < 0)
		return -1;
	m->base = m->view.view.buf;
	m->bytes = (uint64_t)m->view.view.len;
	if (!bytes || bytes == Py_None)
		return 0;
	if (args_u64(bytes, "bytes", &m->bytes) < 0)
		return -1;
	if (m->bytes <= (uint64_t)m->view.view.len)
		return 0;
	PyErr_Format(PyExc_ValueError, "bytes: %R, but base has %zd", bytes, m->view.view.len);
	return -1;
}

/* A buffer stays until close, since the pool does not say when it has gone. */
static int keep_range(Cache *self, struct memory_range *m)
{
	return m->view.viewed ? handle_keep(self, &m->view, 0) : 0;
}

static METHOD(memory_lend)
{
	static const struct call call = { "pool_lend", 4, 3, { "pool", "part", "base", "bytes" } };
	struct memory_range m = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t part = 0;
	int pool = 0, r;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_int(a[0], "pool", &pool) < 0 ||
	    args_u32(a[1], "part", &part) < 0)
		return NULL;
	r = cuda_range(a[2], &m, a[3]);
	if (r > 0)
		r = host_range(a[2], &m, a[3]);
	if (r == 0 && handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		FREELY(r = gpc_pool_lend(c, pool, part, m.base, m.bytes));
		if (r < 0)
			error_raise(r);
		else if (keep_range((Cache *)self, &m) == 0)
			ret = Py_NewRef(Py_None);
		handle_leave((Cache *)self);
	}
	array_free(&m.view);
	return ret;
}

const PyMethodDef methods_memory[] = {
	ROW("pool_map", memory_map, "$self, pool",
	    "Its memory in this process: a list of Part.  gpc.Stale: what is mapped is of "
	    "a pool that has\n"
	    "gone: pool_unmap, and call again."
	    "\n"
	    "gpc.NotFound: no such pool, or it has no memory.  gpc.Again: not all of it has been lent."),
	ROW("pool_unmap", memory_unmap, "$self, pool",
	    "Unmap all its parts.  BufferError: views of them exist.  Of "
	    "__cuda_array_interface__ it cannot know."),
	ROW("pool_lend", memory_lend, "$self, pool, part, base, bytes=None",
	    "Owner only: this memory is that part.  base: a writable buffer, kept until "
	    "close, or an object\n"
	    "with __cuda_array_interface__, which has to stay as long as the pool.  bytes: "
	    "where\n"
	    "base does not tell."),
	{ NULL, NULL, 0, NULL }
};
