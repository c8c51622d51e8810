/* SPDX-License-Identifier: Apache-2.0 */
/* part.h - one mapped part of a pool's memory, as an object. */
#ifndef GPCPY_PART_H
#define GPCPY_PART_H

#include "gpcpy.h"

#include <sys/types.h>

struct part {
	PyObject_HEAD struct part
		*next; /* the cache's list of parts; its lock guards this and the fields below */
	Cache *cache;
	bool mapped;      /* it is in that list; if not, base may not be touched */
	uint32_t exports; /* views of this part */
	void *base;
	uint64_t bytes;
	int pool;
	uint32_t number;
	/* number of the CUDA device; -1 = memory of the host, -2 = of a GPU without a number */
	int device;
	pid_t pid;                /* the process that mapped it: a forked child has no mapping */
	Py_ssize_t shape, stride; /* shape and stride of its views */
	int64_t shape64, stride64;
};

/* Adds a view, or raises an exception. */
int part_export(struct part *p);
void part_unexport(struct part *p);

PyObject *part_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *part_dlpack_device(PyObject *self, PyObject *unused);

#endif
