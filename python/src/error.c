/* SPDX-License-Identifier: Apache-2.0 */
/* error.c - exceptions: errno, and the sentence of gpc_last_error.
 * Tests: t/python/errors.t */
#include "gpcpy.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static PyObject *base;
static struct subclass {
	const char *name;
	int err[3];      /* the list ends with 0 */
	PyObject **also; /* a second base class */
	const char *doc;
	PyObject *class;
} subclasses[] = {
	{ "gpc.NoSpace",
	  { ENOSPC, EDQUOT },
	  NULL,
	  "Nothing free, nothing evictable, or a quota is used up." },
	{ "gpc.TimedOut", { ETIMEDOUT }, &PyExc_TimeoutError, "Time is up." },
	{ "gpc.Again", { EAGAIN }, &PyExc_BlockingIOError, "Not yet: ring full, or timeout 0." },
	{ "gpc.NotConnected", { ENOTCONN }, &PyExc_ConnectionError, "No writer." },
	{ "gpc.Stale", { ESTALE }, NULL, "The block, key, mirror or pool has changed." },
	{ "gpc.NotFound", { ENOENT }, &PyExc_LookupError, "No such name, key, pool or peer." },
	{ "gpc.Exists", { EEXIST }, &PyExc_FileExistsError, "The name is taken." },
	{ "gpc.Denied",
	  { EPERM, EACCES, EROFS },
	  &PyExc_PermissionError,
	  "Not your block, another user's segment, or a read-only handle." },
	{ "gpc.Busy", { EBUSY }, NULL, "Somebody holds it." },
	{ "gpc.Invalid", { EINVAL }, &PyExc_ValueError, "An argument is out of range." },
};
#define SUBCLASSES (sizeof(subclasses) / sizeof(subclasses[0]))

static int subclass_make(PyObject *module, struct subclass *s)
{
	PyObject *bases = s->also ? PyTuple_Pack(2, base, *s->also) : PyTuple_Pack(1, base);

	if (!bases)
		return -1;
	s->class = PyErr_NewExceptionWithDoc(s->name, s->doc, bases, NULL);
	Py_DECREF(bases);
	return s->class ? PyModule_AddObjectRef(module, s->name + 4, s->class) : -1;
}

int error_init(PyObject *module)
{
	size_t i;

	base = PyErr_NewExceptionWithDoc(
		"gpc.Error",
		"A call of gpc failed.  errno says what it is about, strerror is one sentence: which\n"
		"argument, its value, what it may be.  ticket, cursor: as the call's text says.",
		PyExc_OSError, NULL);
	if (!base || PyModule_AddObjectRef(module, "Error", base) < 0)
		return -1;
	for (i = 0; i < SUBCLASSES; i++)
		if (subclass_make(module, &subclasses[i]) < 0)
			return -1;
	return 0;
}

static PyObject *class_of(int err)
{
	size_t i;
	int k;

	for (i = 0; i < SUBCLASSES; i++)
		for (k = 0; k < 3 && subclasses[i].err[k]; k++)
			if (subclasses[i].err[k] == err)
				return subclasses[i].class;
	return base;
}

/* The exception is set with one more attribute, if it has a name. */
static void *raise_with(int err, const char *sentence, const char *attribute, uint64_t value)
{
	/* a name in the sentence may have any bytes */
	PyObject *text = PyUnicode_DecodeUTF8(sentence, (Py_ssize_t)strlen(sentence), "replace");
	PyObject *class = class_of(err), *o, *v;

	o = text ? PyObject_CallFunction(class, "iO", err, text) : NULL;
	Py_XDECREF(text);
	if (!o)
		return NULL;
	if (attribute) {
		v = PyLong_FromUnsignedLongLong(value);
		if (v && PyObject_SetAttrString(o, attribute, v) == 0)
			PyErr_SetObject(class, o);
		Py_XDECREF(v);
	} else {
		PyErr_SetObject(class, o);
	}
	Py_DECREF(o);
	return NULL;
}

static const char *sentence_of(int err)
{
	const char *text = gpc_last_error();

	return text && *text ? text : gpc_strerror(err);
}

void *error_raise(int err)
{
	if (err == WAIT_RAISED)
		return NULL;
	err = err < 0 ? -err : err;
	return raise_with(err, sentence_of(err), NULL, 0);
}

void *error_raise_ticket(int err, gpc_ticket ticket)
{
	if (err == WAIT_RAISED)
		return NULL;
	err = err < 0 ? -err : err;
	return raise_with(err, sentence_of(err), "ticket", ticket);
}

void *error_raise_cursor(int err, uint64_t cursor)
{
	err = err < 0 ? -err : err;
	return raise_with(err, sentence_of(err), "cursor", cursor);
}

void *error_say(int err, const char *format, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	return raise_with(err, text, NULL, 0);
}
