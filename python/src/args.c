/* SPDX-License-Identifier: Apache-2.0 */
/* args.c - arguments by place and by name, and scalars.
 *
 * A refusal names the argument, its value and the values that it may have.
 * Tests: t/python/arguments.t */
#include "gpcpy.h"

#include <errno.h>
#include <limits.h>
#include <math.h>

static int by_name(const struct call *call, PyObject *name, PyObject *value, PyObject **ret)
{
	int i;

	for (i = 0; call->names[i]; i++) {
		if (PyUnicode_CompareWithASCIIString(name, call->names[i]) != 0)
			continue;
		if (ret[i]) {
			PyErr_Format(PyExc_TypeError, "%s: %U is given twice", call->name, name);
			return -1;
		}
		ret[i] = value;
		return 0;
	}
	PyErr_Format(PyExc_TypeError, "%s: there is no argument %U", call->name, name);
	return -1;
}

int args_parse(const struct call *call, PyObject *const *args, Py_ssize_t n, PyObject *kwnames,
	       PyObject **ret)
{
	Py_ssize_t i, names = kwnames ? PyTuple_Size(kwnames) : 0;

	for (i = 0; call->names[i]; i++)
		ret[i] = NULL;
	if (n > call->positional) {
		PyErr_Format(PyExc_TypeError,
			     "%s: %zd arguments by place, at most %d are; the others go by name",
			     call->name, n, call->positional);
		return -1;
	}
	for (i = 0; i < n; i++)
		ret[i] = args[i];
	for (i = 0; i < names; i++)
		if (by_name(call, PyTuple_GetItem(kwnames, i), args[n + i], ret) < 0)
			return -1;
	for (i = 0; i < call->required; i++) {
		if (ret[i])
			continue;
		PyErr_Format(PyExc_TypeError, "%s: %s is missing", call->name, call->names[i]);
		return -1;
	}
	return 0;
}

/* ---- numbers ---- */

static int whole(PyObject *o, const char *name, long long low, unsigned long long high,
		 PyObject **ret)
{
	*ret = PyNumber_Index(o);
	if (*ret)
		return 0;
	if (PyErr_ExceptionMatches(PyExc_TypeError))
		PyErr_Format(PyExc_TypeError, "%s: an int from %lld to %llu is wanted, this is %R",
			     name, low, high, o);
	return -1;
}

static int out_of_range(PyObject *o, const char *name, long long low, unsigned long long high)
{
	PyErr_Clear();
	PyErr_Format(PyExc_ValueError, "%s: %R is out of range, it may be %lld to %llu", name, o,
		     low, high);
	return -1;
}

static int number_unsigned(PyObject *o, const char *name, unsigned long long high, uint64_t *ret)
{
	unsigned long long v;
	PyObject *w;

	if (!o)
		return 0;
	if (whole(o, name, 0, high, &w) < 0)
		return -1;
	v = PyLong_AsUnsignedLongLong(w);
	Py_DECREF(w);
	if ((v == ULLONG_MAX && PyErr_Occurred()) || v > high)
		return out_of_range(o, name, 0, high);
	*ret = v;
	return 0;
}

int args_u32(PyObject *o, const char *name, uint32_t *ret)
{
	uint64_t v = *ret;

	if (number_unsigned(o, name, UINT32_MAX, &v) < 0)
		return -1;
	*ret = (uint32_t)v;
	return 0;
}

int args_u64(PyObject *o, const char *name, uint64_t *ret)
{
	return number_unsigned(o, name, UINT64_MAX, ret);
}

int args_int(PyObject *o, const char *name, int *ret)
{
	long long v;
	PyObject *w;

	if (!o)
		return 0;
	if (whole(o, name, INT_MIN, INT_MAX, &w) < 0)
		return -1;
	v = PyLong_AsLongLong(w);
	Py_DECREF(w);
	if ((v == -1 && PyErr_Occurred()) || v < INT_MIN || v > INT_MAX)
		return out_of_range(o, name, INT_MIN, INT_MAX);
	*ret = (int)v;
	return 0;
}

int args_time(PyObject *o, const char *name, int *ret)
{
	double s;

	if (!o)
		return 0;
	if (o == Py_None) {
		*ret = -1;
		return 0;
	}
	s = PyFloat_AsDouble(o);
	if (s == -1.0 && PyErr_Occurred()) {
		if (PyErr_ExceptionMatches(PyExc_TypeError))
			PyErr_Format(PyExc_TypeError, "%s: seconds or None are wanted, this is %R",
				     name, o);
		return -1;
	}
	if (!(s >= 0) || s > INT_MAX / 1000) {
		PyErr_Format(PyExc_ValueError,
			     "%s: %R is out of range, it may be 0 to %d seconds, or None "
			     "for no limit",
			     name, o, INT_MAX / 1000);
		return -1;
	}
	*ret = (int)ceil(s * 1000 - 1e-6);
	return 0;
}

/* *ret points into *keep, which is a new reference. */
int args_text(PyObject *o, const char *name, const char **ret, PyObject **keep)
{
	PyObject *bytes = NULL;

	if (!o || o == Py_None)
		return 0;
	if (!PyUnicode_FSConverter(o, &bytes)) {
		if (PyErr_ExceptionMatches(PyExc_TypeError))
			PyErr_Format(PyExc_TypeError, "%s: a str is wanted, this is %R", name, o);
		return -1;
	}
	*ret = PyBytes_AsString(bytes);
	*keep = bytes;
	return 0;
}

/* ---- streams ---- */

static int stream_of(PyObject *o, const char *name, void **ret)
{
	uint64_t v = 0;

	if (number_unsigned(o, name, UINT64_MAX, &v) < 0)
		return -1;
	*ret = (void *)(uintptr_t)v;
	return 0;
}

int args_stream(PyObject *o, const char *name, void **ret)
{
	PyObject *v, *pair;
	int r;

	if (!o || o == Py_None)
		return 0;
	if (PyLong_Check(o))
		return stream_of(o, name, ret);
	v = PyObject_GetAttrString(o, "cuda_stream");
	if (!v) {
		PyErr_Clear();
		pair = PyObject_CallMethod(o, "__cuda_stream__", NULL);
		v = pair ? PySequence_GetItem(pair, 1) : NULL;
		Py_XDECREF(pair);
	}
	if (!v) {
		PyErr_Clear();
		PyErr_Format(PyExc_TypeError,
			     "%s: a cudaStream_t as an int, what has cuda_stream or "
			     "__cuda_stream__, or None is wanted, this is %R",
			     name, o);
		return -1;
	}
	r = stream_of(v, name, ret);
	Py_DECREF(v);
	return r;
}
