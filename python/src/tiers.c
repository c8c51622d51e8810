/* SPDX-License-Identifier: Apache-2.0 */
/* tiers.c - tiers below RAM: asked for, looked at, kept.
 * Tests: t/python/transfers.t */
#include "gpcpy.h"

#include <string.h>

#define TIERS "gpc.tiers"

/* ---- asking, looking ---- */

static METHOD(tiers_prefetch)
{
	static const struct call call = { "prefetch", 2, 2, { "to", "keys", "flags", "timeout" } };
	struct array keys = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t flags = 0;
	int to = 0, timeout = -1, r;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (args_int(a[0], "to", &to) == 0 && array_keys(a[1], "keys", &keys) == 0 &&
	    args_u32(a[2], "flags", &flags) == 0 && args_time(a[3], "timeout", &timeout) == 0 &&
	    handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		FREELY(r = gpc_prefetch(c, to, keys.p, keys.n, flags, timeout));
		ret = r < 0 ? error_raise(r) : PyLong_FromLong(r);
		handle_leave((Cache *)self);
	}
	array_free(&keys);
	return ret;
}

static METHOD(tiers_sync)
{
	static const struct call call = { "tiers_sync", 1, 0, { "timeout" } };
	PyObject *a[MAX_ARGS], *ret;
	int timeout = -1, r;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0 ||
	    args_time(a[0], "timeout", &timeout) < 0 || handle_enter((Cache *)self) < 0)
		return NULL;
	c = ((Cache *)self)->c;
	WAIT_SLICES(r, timeout, r = gpc_tiers_sync(c, slice));
	ret = r < 0 ? error_raise(r) : Py_NewRef(Py_None);
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(tiers_tier)
{
	static const struct call call = { "tier", 1, 1, { "i" } };
	struct gpc_tier tier = { .size = sizeof(tier) };
	PyObject *a[MAX_ARGS], *ret;
	uint32_t i = 0;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_u32(a[0], "i", &i) < 0 ||
	    handle_enter((Cache *)self) < 0)
		return NULL;
	r = gpc_tier_get(((Cache *)self)->c, i, &tier);
	ret = r < 0 ? error_raise(r) : record_make(&record_tier, &tier);
	handle_leave((Cache *)self);
	return ret;
}

const PyMethodDef methods_tiers[] = {
	ROW("prefetch", tiers_prefetch,
	    "prefetch(to, keys, *, flags=0, timeout=None)\n\nThe keys of one prompt come from below RAM to RAM, near the pool "
	    "`to`: how many of the first\nkeys are in VRAM or RAM then.  timeout=0: asks, and how many are now."),
	ROW("tiers_sync", tiers_sync,
	    "tiers_sync(timeout=None)\n\nReturns when the steward of the tiers below RAM has nothing left to do."),
	ROW("tier", tiers_tier,
	    "tier(i)\n\nWhat tier number i below RAM does: Tier.  gpc.NotFound: past the last."),
	{ NULL, NULL, 0, NULL }
};

/* ---- keeping ---- */

struct keeping {
	gpc_tiers *tiers;
	PyObject *log; /* or NULL */
};

static void on_log(void *arg, int level, const char *text)
{
	log_call(&((struct keeping *)arg)->log, level, text);
}

static int end(struct keeping *k)
{
	int r;

	FREELY(r = gpc_tiers_close(k->tiers)); /* its threads may log until then */
	Py_XDECREF(k->log);
	PyMem_Free(k);
	return r;
}

static void drop(PyObject *capsule)
{
	struct keeping *k = PyCapsule_GetPointer(capsule, TIERS);

	if (k)
		end(k);
}

int tiers_secret(PyObject *o, uint8_t secret[16], const void **ret)
{
	struct array bytes = { 0 };
	int r = -1;

	if (o == Py_None)
		return 0;
	if (array_bytes(o, "secret", &bytes) < 0)
		return -1;
	if (bytes.n == 16) {
		memcpy(secret, bytes.p, 16);
		*ret = secret;
		r = 0;
	} else {
		PyErr_Format(PyExc_ValueError, "secret: %lu bytes, 16 are wanted",
			     (unsigned long)bytes.n);
	}
	array_free(&bytes);
	return r;
}

static int set_option(struct gpc_tiers_options *opt, struct keeping *k, uint8_t secret[16],
		      const char *name, PyObject *o)
{
	int r;

	if (!strcmp(name, "log")) {
		if (log_check(o) < 0)
			return -1;
		Py_CLEAR(k->log);
		k->log = o == Py_None ? NULL : Py_NewRef(o);
		opt->log = k->log ? on_log : NULL;
		opt->log_arg = k;
		return 0;
	}
	if (!strcmp(name, "secret"))
		return tiers_secret(o, secret, &opt->secret);
	if (!strcmp(name, "timeout"))
		return args_time(o, name, &opt->timeout_ms);
	r = field_set(fields_tiers, name, o, opt);
	if (r > 0)
		PyErr_Format(PyExc_TypeError, "tiers_open: there is no argument %s", name);
	return r ? -1 : 0;
}

static PyObject *open_tiers(struct keeping *k, PyObject *const *args, Py_ssize_t n,
			    PyObject *kwnames)
{
	struct gpc_tiers_options opt = { .size = sizeof(opt) };
	Py_ssize_t i, names = kwnames ? PyTuple_Size(kwnames) : 0;
	const char *name = PyUnicode_AsUTF8AndSize(args[0], NULL), *key;
	uint8_t secret[16];
	int r;

	for (i = 0; name && i < names; i++) {
		key = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(kwnames, i), NULL);
		if (!key || set_option(&opt, k, secret, key, args[n + i]) < 0)
			return NULL;
	}
	if (!name)
		return NULL;
	/* the arguments live as long as the call, and the library copies what it keeps */
	FREELY(r = gpc_tiers_open(name, &opt, &k->tiers));
	return r < 0 ? error_raise(r) : PyCapsule_New(k, TIERS, drop);
}

METHOD(tiers_open)
{
	struct keeping *k;
	PyObject *ret;

	(void)self;
	if (n != 1 || !PyUnicode_Check(args[0])) {
		PyErr_SetString(PyExc_TypeError,
				"tiers_open: the name of a cache is wanted, and the rest by name");
		return NULL;
	}
	k = PyMem_Calloc(1, sizeof(*k));
	if (!k)
		return PyErr_NoMemory();
	ret = open_tiers(k, args, n, kwnames);
	if (!ret)
		end(k);
	return ret;
}

METHOD(tiers_close)
{
	static const struct call call = { "tiers_close", 1, 1, { "tiers" } };
	PyObject *a[MAX_ARGS];
	struct keeping *k;
	int r;

	(void)self;
	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (!PyCapsule_IsValid(a[0], TIERS)) {
		PyErr_Format(PyExc_TypeError,
			     "tiers: what tiers_open has returned is wanted, once, this is %.200R",
			     a[0]);
		return NULL;
	}
	k = PyCapsule_GetPointer(a[0], TIERS);
	PyCapsule_SetName(a[0], "gpc.tiers that were closed");
	PyCapsule_SetDestructor(a[0], NULL);
	r = end(k);
	if (r < 0)
		return error_raise(r);
	Py_RETURN_NONE;
}

METHOD(tiers_file)
{
	static const struct call call = { "tiers_file", 1, 1, { "disk" } };
	struct gpc_tiers_file file = { .size = sizeof(file) };
	PyObject *a[MAX_ARGS], *keep = NULL, *ret;
	const char *path = NULL;
	int r;

	(void)self;
	if (args_parse(&call, args, n, kwnames, a) < 0 || args_text(a[0], "disk", &path, &keep) < 0)
		return NULL;
	FREELY(r = gpc_tiers_file_get(path, &file));
	ret = r < 0 ? error_raise(r) : record_make(&record_tiers_file, &file);
	Py_XDECREF(keep);
	return ret;
}
