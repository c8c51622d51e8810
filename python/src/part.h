/* SPDX-License-Identifier: Apache-2.0 */
/* part.h - one mapped part of a pool's memory, as an object. */
#ifndef GPCPY_PART_H
#define GPCPY_PART_H

#include "gpcpy.h"

#include <sys/types.h>

struct part {
	PyObject_HEAD struct part
		*next; /* of the cache's parts; under its lock, as is what follows */
	Cache *cache;
	bool mapped;      /* in that list; else base may not be touched */
	uint32_t exports; /* views of this part */
	void *base;
	uint64_t bytes;
	int pool;
	uint32_t number;
	int device; /* of CUDA; -1 = memory of the host, -2 = of a GPU without number */
	pid_t pid;  /* that mapped it: a forked child has no mapping */
	Py_ssize_t shape, stride; /* of its views */
	int64_t shape64, stride64;
};

/* One more view, or an exception. */
int part_export(struct part *p);
void part_unexport(struct part *p);

PyObject *part_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *part_dlpack_device(PyObject *self, PyObject *unused);

#endif
