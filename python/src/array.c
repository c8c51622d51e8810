/* SPDX-License-Identifier: Apache-2.0 */
/* array.c - arrays in and out: lists and buffers.  The length, item, order and writability of a
 * buffer are checked before anything is read or written.
 * Tests: t/python/arguments.t t/python/module.t */
#include "gpcpy.h"

#include <limits.h>
#include <string.h>

void array_free(struct array *a)
{
	if (a->own)
		PyMem_Free(a->p);
	if (a->viewed)
		PyBuffer_Release(&a->view);
	memset(a, 0, sizeof(*a));
}

static int refuse(const char *name, const char *wanted, PyObject *o)
{
	PyErr_Format(PyExc_TypeError, "%s: %s wanted, this is %.200R", name, wanted, o);
	return -1;
}

/* Makes n items of own memory, at least one byte. */
static int own(struct array *a, const char *name, size_t n, size_t size)
{
	if (n > INT_MAX) {
		PyErr_Format(PyExc_ValueError, "%s: %zu items, at most %d are", name, n, INT_MAX);
		return -1;
	}
	a->p = PyMem_Malloc(n * size + 8);
	if (!a->p) {
		PyErr_NoMemory();
		return -1;
	}
	a->own = true;
	a->n = (uint32_t)n;
	return 0;
}

/* The reason why an object that is a buffer gives no view: arrays that were transposed, sliced or
 * locked print as any other.  NULL: it is no buffer, or the fault is another one. */
static const char *why_no_buffer(PyObject *o, int flags)
{
	const char *why = NULL;
	Py_buffer v;

	if (PyObject_GetBuffer(o, &v, PyBUF_STRIDED_RO | PyBUF_FORMAT) < 0) {
		PyErr_Clear();
		return NULL;
	}
	if ((flags & PyBUF_WRITABLE) && v.readonly)
		why = "read-only";
	else if (!PyBuffer_IsContiguous(&v, 'C'))
		why = "not contiguous (numpy.ascontiguousarray() makes a copy that is)";
	PyBuffer_Release(&v);
	return why;
}

static int view(PyObject *o, const char *name, const char *wanted, int flags, struct array *a)
{
	if (PyObject_GetBuffer(o, &a->view, flags) < 0) {
		/* no buffer, not contiguous, or read-only: exporters raise different exceptions
		 * for it */
		if (PyErr_ExceptionMatches(PyExc_TypeError) ||
		    PyErr_ExceptionMatches(PyExc_BufferError) ||
		    PyErr_ExceptionMatches(PyExc_ValueError)) {
			const char *why;

			PyErr_Clear();
			why = why_no_buffer(o, flags);
			if (!why)
				return refuse(name, wanted, o);
			PyErr_Format(PyExc_TypeError, "%s: %s wanted, this is %s: %.200R", name,
				     wanted, why, o);
			return -1;
		}
		return -1;
	}
	a->viewed = true;
	return 0;
}

static bool is_sequence(PyObject *o)
{
	return PyList_Check(o) || PyTuple_Check(o);
}

/* A new reference, since the list may change while an item is read. */
static PyObject *item(PyObject *o, Py_ssize_t i)
{
	PyObject *v;

#ifdef Py_GIL_DISABLED
	return PySequence_GetItem(o, i);
#endif
	v = PyList_Check(o) ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i);
	Py_XINCREF(v);
	return v;
}

/* ---- bytes of one size: keys and digests ---- */

static int item_bytes(PyObject *o, const char *name, Py_ssize_t i, Py_ssize_t size, char *to)
{
	char *from;
	Py_ssize_t n;

	if (!PyBytes_Check(o)) {
		PyErr_Format(PyExc_TypeError, "%s[%zd]: bytes are wanted, this is %.200R", name, i,
			     o);
		return -1;
	}
	if (PyBytes_AsStringAndSize(o, &from, &n) < 0)
		return -1;
	if (n != size) {
		PyErr_Format(PyExc_ValueError, "%s[%zd]: %zd bytes, %zd are wanted", name, i, n,
			     size);
		return -1;
	}
	memcpy(to, from, (size_t)size);
	return 0;
}

static int pack_bytes(PyObject *o, const char *name, Py_ssize_t size, struct array *a)
{
	Py_ssize_t n = PySequence_Size(o), i;
	PyObject *v;
	int r;

	if (n < 0 || own(a, name, (size_t)n, (size_t)size) < 0)
		return -1;
	for (i = 0; i < n; i++) {
		v = item(o, i);
		if (!v)
			return -1;
		r = item_bytes(v, name, i, size, (char *)a->p + i * size);
		Py_DECREF(v);
		if (r < 0)
			return -1;
	}
	return 0;
}

static int view_bytes(PyObject *o, const char *name, const char *wanted, Py_ssize_t size,
		      struct array *a)
{
	if (view(o, name, wanted, PyBUF_C_CONTIGUOUS, a) < 0)
		return -1;
	if (a->view.len % size || a->view.len / size > INT_MAX) {
		PyErr_Format(PyExc_ValueError,
			     "%s: %zd bytes, %zd bytes an item are wanted, and at most %d items",
			     name, a->view.len, size, INT_MAX);
		return -1;
	}
	a->p = a->view.buf;
	a->n = (uint32_t)(a->view.len / size);
	if (!((uintptr_t)a->p % sizeof(uint64_t)))
		return 0;
	if (own(a, name, (size_t)(a->view.len / size), (size_t)size) < 0)
		return -1;
	memcpy(a->p, a->view.buf, (size_t)a->view.len);
	return 0;
}

#define KEYS_WANTED "keys, 16 bytes each in one contiguous buffer, or a list of bytes, are"

int array_keys(PyObject *o, const char *name, struct array *a)
{
	if (!o)
		return 0;
	if (is_sequence(o))
		return pack_bytes(o, name, sizeof(gpc_key), a);
	return view_bytes(o, name, KEYS_WANTED, sizeof(gpc_key), a);
}

int array_digests(PyObject *o, const char *name, PyObject *size, struct array *a, uint32_t *bytes)
{
	PyObject *first;

	*bytes = 0;
	if (args_u32(size, "size", bytes) < 0)
		return -1;
	if (size && !*bytes) {
		PyErr_SetString(PyExc_ValueError, "size: 0, a digest has at least 1 byte");
		return -1;
	}
	if (!is_sequence(o)) {
		if (!size) {
			PyErr_Format(PyExc_TypeError, "size: how many bytes of %s are a digest?",
				     name);
			return -1;
		}
		return view_bytes(o, name, "a list of bytes, or a contiguous buffer, is", *bytes,
				  a);
	}
	if (!size && PySequence_Size(o) > 0) {
		first = item(o, 0);
		if (!first)
			return -1;
		*bytes = PyBytes_Check(first) ? (uint32_t)PyBytes_Size(first) : 1;
		Py_DECREF(first);
	}
	if (!*bytes)
		*bytes = 1;
	return pack_bytes(o, name, *bytes, a);
}

int array_bytes(PyObject *o, const char *name, struct array *a)
{
	return view_bytes(o, name, "bytes, or another contiguous buffer, are", 1, a);
}

/* ---- 32-bit numbers ---- */

static int item_number(PyObject *o, const char *name, Py_ssize_t i, long long low, long long high,
		       uint32_t *to)
{
	PyObject *w = PyLong_Check(o) ? NULL : PyNumber_Index(o);
	long long v;

	if (!w && !PyLong_Check(o)) {
		PyErr_Format(PyExc_TypeError, "%s[%zd]: an int is wanted, this is %.200R", name, i,
			     o);
		return -1;
	}
	v = PyLong_AsLongLong(w ? w : o);
	Py_XDECREF(w);
	if ((v == -1 && PyErr_Occurred()) || v < low || v > high) {
		PyErr_Clear();
		PyErr_Format(PyExc_ValueError,
			     "%s[%zd]: %.200R is out of range, it may be %lld to %lld", name, i, o,
			     low, high);
		return -1;
	}
	*to = (uint32_t)v;
	return 0;
}

/* The code of the items, if they are integers of that many bytes in this machine's order; else
 * 0. */
static char number_code(const Py_buffer *v, Py_ssize_t size)
{
	const char *f = v->format;

	if (!f || v->itemsize != size)
		return 0;
	if (*f == '@' || *f == '=' || *f == '<')
		f++;
	return *f && !f[1] && strchr(size == 4 ? "iIlL" : "lLqQnN", *f) ? *f : 0;
}

static bool is_number32(const Py_buffer *v)
{
	return number_code(v, 4);
}

static int out_of_range(const char *name, size_t i, long long v, bool is_signed, long long low,
			long long high)
{
	PyErr_Format(PyExc_ValueError,
		     is_signed ? "%s[%zu]: %lld is out of range, it may be %lld to %lld"
			       : "%s[%zu]: %llu is out of range, it may be %lld to %lld",
		     name, i, v, low, high);
	return -1;
}

#define LOT 16 /* items that a compiler turns into few instructions */

/* The first loops have no branch, and run as fast as a copy. */
static int narrow_words(const char *name, const int64_t *from, size_t n, bool is_signed,
			uint32_t *to)
{
	uint64_t high = 0;
	size_t i;

	for (i = 0; i + LOT <= n; i += LOT)
		for (size_t k = 0; k < LOT; k++) {
			to[i + k] = (uint32_t)from[i + k];
			high |= (uint64_t)from[i + k];
		}
	for (; i < n; i++) {
		to[i] = (uint32_t)from[i];
		high |= (uint64_t)from[i];
	}
	for (i = 0, high >>= 32 /* of negative ones, too */; high && i < n; i++)
		if ((uint64_t)from[i] >> 32)
			return out_of_range(name, i, from[i], is_signed, 0, UINT32_MAX);
	return 0;
}

static int narrow_blocks(const char *name, const int64_t *from, size_t n, bool is_signed,
			 int32_t *to)
{
	uint64_t wrong = 0;
	size_t i;

	for (i = 0; i < n; i++) {
		to[i] = (int32_t)from[i];
		wrong |= (uint64_t)(from[i] ^ to[i]);
	}
	for (i = 0; wrong && i < n; i++)
		if (from[i] != to[i])
			return out_of_range(name, i, from[i], is_signed, INT32_MIN, INT32_MAX);
	return 0;
}

/* No id of a token and no place in an array is negative: it would be a huge one. */
static int refuse_negative(const char *name, const int32_t *p, size_t n)
{
	int32_t all = 0;
	size_t i;

	for (i = 0; i + LOT <= n; i += LOT)
		for (size_t k = 0; k < LOT; k++)
			all |= p[i + k];
	for (; i < n; i++)
		all |= p[i];
	for (i = 0; all < 0 && i < n; i++)
		if (p[i] < 0)
			return out_of_range(name, i, p[i], true, 0, UINT32_MAX);
	return 0;
}

static bool is_signed_code(char code)
{
	return code == 'i' || code == 'l' || code == 'q' || code == 'n';
}

/* Narrows 64-bit items, each of which has to fit. */
static int narrow(const char *name, const struct array *from, char code, bool blocks,
		  struct array *a)
{
	size_t n = (size_t)from->view.len / 8;
	const int64_t *p = from->view.buf;
	bool is_signed = is_signed_code(code);

	if (own(a, name, n, 4) < 0)
		return -1;
	if ((uintptr_t)p % 8) {
		PyErr_Format(
			PyExc_ValueError,
			"%s: its address is odd, a multiple of 8 is wanted for items of 8 bytes",
			name);
		return -1;
	}
	return blocks ? narrow_blocks(name, p, n, is_signed, a->p)
		      : narrow_words(name, p, n, is_signed, a->p);
}

/* blocks: int32; else uint32.  keep: the view itself serves if its items have 32 bits; then `from`
 * is the array. */
static int view_numbers(PyObject *o, const char *name, const char *wanted, bool blocks, bool keep,
			struct array *a)
{
	struct array from = { 0 };
	bool wide = false;
	size_t n;
	char code;
	int r = -1;

	if (view(o, name, wanted, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT, &from) < 0)
		return -1;
	n = (size_t)from.view.len / 4;
	if ((code = number_code(&from.view, 8))) {
		wide = true;
		r = narrow(name, &from, code, blocks, a);
	} else if (!(code = number_code(&from.view, 4))) {
		PyErr_Format(PyExc_TypeError,
			     "%s: %s wanted, the items of this buffer are '%s' of %zd bytes", name,
			     wanted, from.view.format ? from.view.format : "B", from.view.itemsize);
	} else if (keep && !((uintptr_t)from.view.buf % 4) && n <= INT_MAX) {
		*a = from;
		a->p = a->view.buf;
		a->n = (uint32_t)n;
		memset(&from, 0, sizeof(from));
		r = 0;
	} else if (own(a, name, n, 4) == 0) {
		memcpy(a->p, from.view.buf, (size_t)from.view.len);
		r = 0;
	}
	if (r == 0 && !blocks && !wide && is_signed_code(code))
		r = refuse_negative(name, a->p, a->n);
	array_free(&from);
	return r;
}

enum { BLOCKS = 1, KEEP = 2 };

static int numbers(PyObject *o, const char *name, const char *wanted, int how, struct array *a)
{
	long long low = how & BLOCKS ? INT32_MIN : 0, high = how & BLOCKS ? INT32_MAX : UINT32_MAX;
	Py_ssize_t n, i;
	PyObject *v;
	int r;

	if (!o)
		return 0;
	if (!is_sequence(o))
		return view_numbers(o, name, wanted, how & BLOCKS, how & KEEP, a);
	n = PySequence_Size(o);
	if (n < 0 || own(a, name, (size_t)n, 4) < 0)
		return -1;
	for (i = 0; i < n; i++) {
		v = item(o, i);
		if (!v)
			return -1;
		r = item_number(v, name, i, low, high, (uint32_t *)a->p + i);
		Py_DECREF(v);
		if (r < 0)
			return -1;
	}
	return 0;
}

#define WANTED(of) "a list of ints or a contiguous " of " or int64 buffer is"

int array_blocks(PyObject *o, const char *name, struct array *a)
{
	return numbers(o, name, WANTED("int32"), BLOCKS, a);
}

int array_words(PyObject *o, const char *name, struct array *a)
{
	return numbers(o, name, WANTED("uint32"), 0, a);
}

int array_tokens(PyObject *o, const char *name, struct array *a)
{
	return numbers(o, name, WANTED("uint32"), KEEP, a);
}

/* ---- out ---- */

static int out_view(PyObject *o, const char *name, size_t n, uint32_t size, struct array *a)
{
	const char *wanted = size == 4 ? "a writable, contiguous int32 buffer is"
				       : "a writable, contiguous buffer is";

	if (view(o, name, wanted, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE, a) < 0)
		return -1;
	if (size == 4 && !is_number32(&a->view)) {
		PyErr_Format(PyExc_TypeError,
			     "%s: %s wanted, the items of this one are '%s' of %zd bytes", name,
			     wanted, a->view.format ? a->view.format : "B", a->view.itemsize);
		return -1;
	}
	if ((size_t)a->view.len / size < n) {
		PyErr_Format(PyExc_ValueError, "%s: room for %zd items, %zu are wanted", name,
			     a->view.len / (Py_ssize_t)size, n);
		return -1;
	}
	if ((uintptr_t)a->view.buf % (size == 4 ? 4 : 8)) {
		PyErr_Format(PyExc_ValueError, "%s: its address is odd, a multiple of %d is wanted",
			     name, size == 4 ? 4 : 8);
		return -1;
	}
	a->p = a->view.buf;
	a->n = (uint32_t)n;
	return 0;
}

int array_out(PyObject *o, const char *name, size_t n, uint32_t size, struct array *a)
{
	if (n > INT_MAX) {
		PyErr_Format(PyExc_ValueError, "%s: %zu items, at most %d are", name, n, INT_MAX);
		return -1;
	}
	return o && o != Py_None ? out_view(o, name, n, size, a) : own(a, name, n, size);
}

bool array_same(const char *name, const struct array *a, const char *other, const struct array *b)
{
	if (a->n == b->n)
		return true;
	PyErr_Format(PyExc_ValueError, "%s has %lu items and %s %lu: one each is wanted", name,
		     (unsigned long)a->n, other, (unsigned long)b->n);
	return false;
}

PyObject *array_list(const int32_t *p, size_t n)
{
	PyObject *list = PyList_New((Py_ssize_t)n), *v;
	size_t i;

	for (i = 0; list && i < n; i++) {
		v = PyLong_FromLong(p[i]);
		if (!v || PyList_SetItem(list, (Py_ssize_t)i, v) < 0)
			Py_CLEAR(list);
	}
	return list;
}

PyObject *array_give(const struct array *out, int r)
{
	return out->own ? array_list(out->p, (size_t)r) : PyLong_FromLong(r);
}
