/* SPDX-License-Identifier: Apache-2.0 */
/* dlpack.c - a part as a DLPack tensor: its bytes, uint8, one dimension.
 *
 * The structs are those of the protocol, of versions 0 and 1.  A tensor counts as a view until its
 * consumer calls the deleter, which may be on any thread, without the GIL.
 * Tests: t/python/memory.t */
#include "part.h"

#include <stdlib.h>

enum { DL_CPU = 1, DL_CUDA = 2, DL_UINT = 1 };

struct dl_device {
	int32_t type, id;
};
struct dl_tensor {
	void *data;
	struct dl_device device;
	int32_t ndim;
	struct {
		uint8_t code, bits;
		uint16_t lanes;
	} dtype;
	int64_t *shape, *strides;
	uint64_t byte_offset;
};
struct dl_managed { /* "dltensor" */
	struct dl_tensor tensor;
	void *context;
	void (*deleter)(struct dl_managed *self);
};
struct dl_versioned { /* "dltensor_versioned" */
	struct {
		uint32_t major, minor;
	} version;
	void *context;
	void (*deleter)(struct dl_versioned *self);
	uint64_t flags;
	struct dl_tensor tensor;
};

static void let_go(struct part *p)
{
	PyGILState_STATE gil;

	if (handle_ending)
		return;
	gil = PyGILState_Ensure();
	part_unexport(p);
	Py_DECREF((PyObject *)p);
	PyGILState_Release(gil);
}

static void managed_delete(struct dl_managed *m)
{
	let_go(m->context);
	free(m);
}

static void versioned_delete(struct dl_versioned *m)
{
	let_go(m->context);
	free(m);
}

/* A consumer renames the capsule that it takes; one that was not taken is ours to delete. */
static void managed_unused(PyObject *capsule)
{
	if (PyCapsule_IsValid(capsule, "dltensor"))
		managed_delete(PyCapsule_GetPointer(capsule, "dltensor"));
}

static void versioned_unused(PyObject *capsule)
{
	if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
		versioned_delete(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
}

static void fill(struct part *p, struct dl_tensor *t)
{
	p->shape64 = (int64_t)p->bytes;
	p->stride64 = 1;
	*t = (struct dl_tensor){
		.data = p->base,
		.ndim = 1,
		.dtype = { DL_UINT, 8, 1 },
		.device = { p->device < 0 ? DL_CPU : DL_CUDA, p->device < 0 ? 0 : p->device },
		.shape = &p->shape64,
		.strides = &p->stride64,
	};
}

static PyObject *capsule(struct part *p, bool versioned)
{
	struct dl_versioned *v = calloc(1, sizeof(*v));
	struct dl_managed *m = calloc(1, sizeof(*m));
	PyObject *ret = NULL;

	if (!v || !m) {
		PyErr_NoMemory();
	} else if (versioned) {
		v->version.major = 1;
		v->context = p;
		v->deleter = versioned_delete;
		fill(p, &v->tensor);
		ret = PyCapsule_New(v, "dltensor_versioned", versioned_unused);
	} else {
		m->context = p;
		m->deleter = managed_delete;
		fill(p, &m->tensor);
		ret = PyCapsule_New(m, "dltensor", managed_unused);
	}
	if (!ret || !versioned)
		free(v);
	if (!ret || versioned)
		free(m);
	if (ret)
		Py_INCREF((PyObject *)p);
	return ret;
}

/* Checks the wishes of the consumer: (major, minor) of the protocol, a device, a copy. */
static int check_wishes(struct part *p, PyObject *max_version, PyObject *device, PyObject *copy,
			uint32_t *major)
{
	uint32_t type = 0;

	if (max_version && max_version != Py_None) {
		PyObject *first = PySequence_GetItem(max_version, 0);
		int r = first ? args_u32(first, "max_version", major) : -1;

		Py_XDECREF(first);
		if (r < 0)
			return -1;
	}
	if (device && device != Py_None) {
		PyObject *first = PySequence_GetItem(device, 0);
		int r = first ? args_u32(first, "dl_device", &type) : -1;

		Py_XDECREF(first);
		if (r < 0)
			return -1;
		if (type != (p->device < 0 ? DL_CPU : DL_CUDA)) {
			PyErr_SetString(
				PyExc_BufferError,
				"dl_device: this memory cannot be exported to another device");
			return -1;
		}
	}
	if (copy == Py_True) {
		PyErr_SetString(PyExc_BufferError,
				"copy: this memory is shared, a copy is the consumer's to make");
		return -1;
	}
	return 0;
}

METHOD(part_dlpack)
{
	static const struct call call = {
		"__dlpack__", 0, 0, { "stream", "max_version", "dl_device", "copy" }
	};
	struct part *p = (struct part *)self;
	PyObject *a[MAX_ARGS], *ret;
	uint32_t major = 0;

	if (args_parse(&call, args, n, kwnames, a) < 0 ||
	    check_wishes(p, a[1], a[2], a[3], &major) < 0)
		return NULL;
	if (p->device == -2) {
		PyErr_SetString(PyExc_BufferError,
				"the pool's device has no number here: make it as cuda:N");
		return NULL;
	}
	if (part_export(p) < 0)
		return NULL;
	ret = capsule(p, major >= 1);
	if (!ret)
		part_unexport(p);
	return ret;
}

PyObject *part_dlpack_device(PyObject *self, PyObject *unused)
{
	struct part *p = (struct part *)self;

	return Py_BuildValue("(ii)", p->device < 0 ? DL_CPU : DL_CUDA,
			     p->device < 0 ? 0 : p->device);
}
