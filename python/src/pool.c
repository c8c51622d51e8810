/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c - pools: add, make, look at, clear.  part.c has their memory.
 * Tests: t/python/memory.t t/python/interrupt.t */
#include "gpcpy.h"

#include <string.h>

struct pool_options {
	struct gpc_pool pool;
	struct gpc_memory memory;
	struct array runs;
	PyObject *progress;
	bool make;
	int timeout;
};

static int set_option(struct pool_options *p, PyObject *key, PyObject *o)
{
	const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
	int r = name ? field_set(fields_pool, name, o, &p->pool) : -1;

	if (r <= 0)
		return r;
	if (!strcmp(name, "timeout"))
		return args_time(o, name, &p->timeout);
	r = p->make ? field_set(fields_backing, name, o, &p->memory) : 1;
	if (r <= 0)
		return r;
	if (p->make && !strcmp(name, "runs"))
		return o == Py_None ? 0 : record_array(&record_run, o, name, &p->runs);
	if (!p->make || strcmp(name, "progress") != 0) {
		PyErr_Format(PyExc_TypeError, "%s: there is no argument %U",
			     p->make ? "pool_make" : "pool_add", key);
		return -1;
	}
	if (o != Py_None && !PyCallable_Check(o)) {
		PyErr_Format(PyExc_TypeError,
			     "progress: a function of two ints is wanted, this is %.200R", o);
		return -1;
	}
	p->progress = o == Py_None ? NULL : o;
	return 0;
}

static int read_options(struct pool_options *p, PyObject *const *args, Py_ssize_t n,
			PyObject *kwnames)
{
	Py_ssize_t i, names = kwnames ? PyTuple_Size(kwnames) : 0;

	p->pool.size = sizeof(p->pool);
	p->pool.demote_to = -1;
	p->memory.size = sizeof(p->memory);
	p->timeout = -1;
	if (n) {
		PyErr_Format(PyExc_TypeError, "%s: all arguments go by name",
			     p->make ? "pool_make" : "pool_add");
		return -1;
	}
	for (i = 0; i < names; i++)
		if (set_option(p, PyTuple_GetItem(kwnames, i), args[i]) < 0)
			return -1;
	p->memory.runs = p->runs.p;
	p->memory.nruns = p->runs.n;
	return 0;
}

/* Called by the calling thread, without the GIL; an exception stays until the call has ended. */
static int progress(void *arg, uint64_t done, uint64_t bytes)
{
	struct pool_options *p = arg;
	PyGILState_STATE gil;
	PyObject *r;
	int stop;

	if (wait_look())
		return 1;
	if (!p->progress)
		return 0;
	gil = PyGILState_Ensure();
	r = PyObject_CallFunction(p->progress, "KK", (unsigned long long)done,
				  (unsigned long long)bytes);
	stop = r ? PyObject_IsTrue(r) : -1;
	Py_XDECREF(r);
	PyGILState_Release(gil);
	return stop;
}

static PyObject *pool_new(PyObject *self, bool make, PyObject *const *args, Py_ssize_t n,
			  PyObject *kwnames)
{
	struct pool_options p = { .make = make };
	PyObject *ret = NULL;
	gpc *c;
	int r;

	if (read_options(&p, args, n, kwnames) == 0 && handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		if (p.progress || (make && p.pool.kind == GPC_RAM)) {
			p.memory.progress = progress;
			p.memory.progress_arg = &p;
		}
		WAIT(r, r = gpc_pool_make(c, &p.pool, make ? &p.memory : NULL, p.timeout));
		if (!PyErr_Occurred())
			ret = wait_number(r);
		handle_leave((Cache *)self);
	}
	array_free(&p.runs);
	return ret;
}

static METHOD(pool_add)
{
	return pool_new(self, false, args, n, kwnames);
}

static METHOD(pool_make)
{
	return pool_new(self, true, args, n, kwnames);
}

static METHOD(pool_get)
{
	static const struct call call = { "pool_get", 1, 1, { "pool" } };
	struct gpc_pool pool = { .size = sizeof(pool) };
	PyObject *a[MAX_ARGS], *ret;
	int number = 0, r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_int(a[0], "pool", &number) < 0 ||
	    handle_enter((Cache *)self) < 0)
		return NULL;
	r = gpc_pool_get(((Cache *)self)->c, number, &pool);
	ret = r < 0 ? error_raise(r) : record_make(&record_pool, &pool);
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(pool_available)
{
	static const struct call call = { "pool_available", 1, 1, { "pool" } };
	PyObject *a[MAX_ARGS], *ret;
	int number = 0, r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_int(a[0], "pool", &number) < 0 ||
	    handle_enter((Cache *)self) < 0)
		return NULL;
	r = gpc_pool_available(((Cache *)self)->c, number);
	ret = r < 0 ? error_raise(r) : PyLong_FromLong(r);
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(pool_clear)
{
	static const struct call call = {
		"pool_clear", 1, 1, { "pool", "tag", "flags", "timeout" }
	};
	PyObject *a[MAX_ARGS], *ret;
	int number = 0, timeout = -1, r;
	uint32_t tag = 0, flags = 0;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_int(a[0], "pool", &number) < 0 ||
	    args_u32(a[1], "tag", &tag) < 0 || args_u32(a[2], "flags", &flags) < 0 ||
	    args_time(a[3], "timeout", &timeout) < 0 || handle_enter((Cache *)self) < 0)
		return NULL;
	c = ((Cache *)self)->c;
	WAIT(r, r = gpc_pool_clear(c, number, tag, flags, timeout));
	ret = wait_number(r);
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(pool_memory)
{
	static const struct call call = { "pool_memory", 1, 1, { "pool" } };
	struct gpc_pool_memory memory = { .size = sizeof(memory) };
	PyObject *a[MAX_ARGS], *ret;
	int number = 0, r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_int(a[0], "pool", &number) < 0 ||
	    handle_enter((Cache *)self) < 0)
		return NULL;
	r = gpc_pool_memory_get(((Cache *)self)->c, number, &memory, NULL, 0);
	ret = r < 0 ? error_raise(r) : record_make(&record_memory, &memory);
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(pool_runs)
{
	static const struct call call = { "pool_runs", 1, 1, { "pool" } };
	struct array runs = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	int number = 0, r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_int(a[0], "pool", &number) < 0 ||
	    array_out(NULL, "pool", GPC_MAX_RUNS, sizeof(struct gpc_run), &runs) < 0)
		return NULL;
	if (handle_enter((Cache *)self) == 0) {
		r = gpc_pool_memory_get(((Cache *)self)->c, number, NULL, runs.p, GPC_MAX_RUNS);
		ret = r < 0 ? error_raise(r)
			    : record_list(&record_run, runs.p,
					  r < GPC_MAX_RUNS ? (size_t)r : GPC_MAX_RUNS);
		handle_leave((Cache *)self);
	}
	array_free(&runs);
	return ret;
}

static METHOD(pool_pin)
{
	static const struct call call = { "pool_pin", 1, 1, { "pool", "timeout" } };
	PyObject *a[MAX_ARGS], *ret;
	int number = 0, timeout = -1, r;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_int(a[0], "pool", &number) < 0 ||
	    args_time(a[1], "timeout", &timeout) < 0 || handle_enter((Cache *)self) < 0)
		return NULL;
	c = ((Cache *)self)->c;
	WAIT_SLICES(r, timeout, r = gpc_pool_pin(c, number, slice));
	ret = r < 0 ? error_raise(r) : Py_NewRef(Py_None);
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(setting_set)
{
	static const struct call call = { "setting_set", 2, 2, { "what", "value", "pool" } };
	PyObject *a[MAX_ARGS], *ret;
	uint64_t value = 0;
	uint32_t what = 0;
	int pool = -1, r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_u32(a[0], "what", &what) < 0 ||
	    (a[1] != Py_None && args_u64(a[1], "value", &value) < 0) ||
	    args_int(a[2], "pool", &pool) < 0)
		return NULL;
	if (value > INT64_MAX) /* no setting takes such a value, and the library says so */
		value = INT64_MAX;
	if (handle_enter((Cache *)self) < 0)
		return NULL;
	r = gpc_setting_set(((Cache *)self)->c, what, pool, a[1] == Py_None ? -1 : (int64_t)value);
	ret = r < 0 ? error_raise(r) : Py_NewRef(Py_None);
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(setting_get)
{
	static const struct call call = { "setting_get", 1, 1, { "what", "pool" } };
	PyObject *a[MAX_ARGS], *ret;
	int64_t value = -1;
	uint32_t what = 0;
	int pool = -1, r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_u32(a[0], "what", &what) < 0 ||
	    args_int(a[1], "pool", &pool) < 0 || handle_enter((Cache *)self) < 0)
		return NULL;
	r = gpc_setting_get(((Cache *)self)->c, what, pool, &value);
	ret = r < 0 ? error_raise(r) : value < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(value);
	handle_leave((Cache *)self);
	return ret;
}

const PyMethodDef methods_pool[] = {
	ROW("pool_add", pool_add,
	    "$self, *, kind, blocks, flags=0, space=0, transit=0, demote_to=-1, gpus=0, "
	    "uuid=b'', backing=b'', spill_ahead=0, timeout=None",
	    "A pool without memory: its number.  After NotConnected, TimedOut and Again it "
	    "may still be added.\n"
	    "flags: POOL_...; POOL_ONCE: that of the pool which is there already." TIMES),
	ROW("pool_make", pool_make,
	    "$self, *, kind, blocks, flags=0, space=0, transit=0, demote_to=-1, gpus=0, "
	    "uuid=b'', backing=b'', spill_ahead=0, runs=None, block_bytes=0, "
	    "fingerprint=b'', device=None, parts=0, numa=0, nodes=0, no_checksums=0, "
	    "huge_dir=None, threads=0, seed=0, sums=0, progress=None, timeout=None",
	    "A pool with memory: its number.  runs: a list of Run.  progress: a function "
	    "of bytes done and\n"
	    "all; what it returns that is true ends the call."
	    "\n"
	    "ECANCELED: progress has ended it.  gpc.NoSpace: too little memory, and how much is missing." TIMES),
	ROW("pool_get", pool_get, "$self, pool", "Pool.  gpc.NotFound: there is none."),
	ROW("setting_set", setting_set, "$self, what, value, *, pool=-1",
	    "From now on; None: as it was made.  what: SET_..."
	    "\n"
	    "value: as gpc_setting_set(3) says for each, 0 to 2^63 - 1.  gpc.Invalid: beyond its limit."),
	ROW("setting_get", setting_get, "$self, what, *, pool=-1",
	    "The number that counts now; None: each process that goes by it has its own."),
	ROW("pool_available", pool_available, "$self, pool",
	    "Blocks that a reserve could have now."),
	ROW("pool_clear", pool_clear, "$self, pool, *, tag=0, flags=0, timeout=None",
	    "Forget every entry (of that tag; 0 = all) of a pool (-1 = all): how many are "
	    "held\n"
	    "still.\n"
	    "flags: REMOVE; IF_IDLE: gpc.Busy if somebody holds one."
	    "\n"
	    "gpc.NotFound: no such pool.  gpc.TimedOut: blocks of a pool that goes are held still." TIMES),
	ROW("pool_memory", pool_memory, "$self, pool",
	    "PoolMemory: the memory of a pool as it is."),
	ROW("pool_runs", pool_runs, "$self, pool", "Its layout: a list of Run."),
	ROW("pool_pin", pool_pin, "$self, pool, *, timeout=None",
	    "Register the pool's RAM with the GPUs of this process."
	    "\n"
	    "EIO: the driver refused.  gpc.NotFound: no such pool, or it is not RAM." TIMES),
	{ NULL, NULL, 0, NULL }
};
