/* SPDX-License-Identifier: Apache-2.0 */
/* tiers.c - tiers below RAM: asked for, looked at, kept.
 * Tests: t/python/transfers.t */
#include "gpcpy.h"

#include <string.h>

/* ---- options and looks ---- */

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
		WAIT(r, r = gpc_prefetch(c, to, keys.p, keys.n, flags, timeout));
		ret = wait_number(r);
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
	WAIT(r, r = gpc_tiers_sync(c, timeout));
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
	ROW("prefetch", tiers_prefetch, "$self, to, keys, *, flags=0, timeout=None",
	    "The keys of one prompt come from below RAM to RAM, near the pool `to`: how "
	    "many of the first\n"
	    "keys are in VRAM or RAM then.  timeout=0: asks, and how many are now.\n"
	    "flags: BELOW, the other way: those in RAM get copies below; how many have one, or are to get it."
	    "\n"
	    "gpc.NotConnected: nobody keeps tiers below RAM." TIMES),
	ROW("tiers_sync", tiers_sync, "$self, timeout=None",
	    "Returns when the steward of the tiers below RAM has nothing left to do." TIMES),
	ROW("tier", tiers_tier, "$self, i",
	    "State and counters of tier number i below RAM: Tier.  gpc.NotFound: past the last."),
	{ NULL, NULL, 0, NULL }
};

/* ---- keeping ---- */

typedef struct { /* a steward; tiers == NULL: it was closed */
	PyObject_HEAD gpc_tiers *tiers;
	PyObject *name, *log; /* log may be NULL */
	uint32_t forks;
} Tiers;

static PyTypeObject *tiers_type;

static void on_log(void *arg, int level, const char *text)
{
	log_call(&((Tiers *)arg)->log, level, text);
}

static int end(Tiers *k)
{
	gpc_tiers *t = k->tiers;
	int r;

	k->tiers = NULL;
	FREELY(r = gpc_tiers_close(t)); /* its threads may log until then */
	return r;
}

static void tiers_dealloc(PyObject *o)
{
	PyTypeObject *type = Py_TYPE(o);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
	Tiers *k = (Tiers *)o;

	end(k);
	Py_XDECREF(k->log);
	Py_XDECREF(k->name);
	release(o);
	Py_DECREF((PyObject *)type);
}

static PyObject *tiers_repr(PyObject *o)
{
	const Tiers *k = (Tiers *)o;

	return PyUnicode_FromFormat("<gpc.Tiers of cache %R, %s>", k->name,
				    !k->tiers                  ? "closed"
				    : k->forks != handle_forks ? "of the parent process"
							       : "open");
}

static PyType_Slot slots[] = {
	{ Py_tp_doc,
	  (void *)"The tiers below RAM of a cache, kept by this process: gpc.tiers_open makes it." },
	{ Py_tp_dealloc, tiers_dealloc },
	{ Py_tp_repr, tiers_repr },
	{ 0, NULL }
};
static PyType_Spec spec = {
	.name = "gpc.Tiers",
	.basicsize = sizeof(Tiers),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

int tiers_init(PyObject *module)
{
	tiers_type = (PyTypeObject *)PyType_FromSpec(&spec);
	return tiers_type ? PyModule_AddObjectRef(module, "Tiers", (PyObject *)tiers_type) : -1;
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

static int set_option(struct gpc_tiers_options *opt, Tiers *k, uint8_t secret[16], const char *name,
		      PyObject *o)
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

static PyObject *open_tiers(Tiers *k, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
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
	WAIT(r, r = gpc_tiers_open(name, &opt, &k->tiers));
	return r < 0 ? error_raise(r) : wait_raised(r) ? NULL : Py_NewRef((PyObject *)k);
}

METHOD(tiers_open)
{
	PyObject *ret;
	Tiers *k;

	(void)self;
	if (n != 1 || !PyUnicode_Check(args[0])) {
		PyErr_SetString(PyExc_TypeError,
				"tiers_open: the name of a cache is wanted, and the rest by name");
		return NULL;
	}
	k = (Tiers *)((allocfunc)PyType_GetSlot(tiers_type, Py_tp_alloc))(tiers_type, 0);
	if (!k)
		return NULL;
	k->name = Py_NewRef(args[0]);
	k->forks = handle_forks;
	ret = open_tiers(k, args, n, kwnames);
	Py_DECREF((PyObject *)k);
	return ret;
}

METHOD(tiers_close)
{
	static const struct call call = { "tiers_close", 1, 1, { "tiers" } };
	PyObject *a[MAX_ARGS];
	Tiers *k;
	int r;

	(void)self;
	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	k = (Tiers *)a[0];
	if (Py_TYPE(a[0]) != tiers_type || !k->tiers) {
		PyErr_Format(PyExc_TypeError,
			     "tiers: what tiers_open has returned is wanted, once, this is %.200R",
			     a[0]);
		return NULL;
	}
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
