/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - attach and create: options by name.
 * Tests: t/python/module.t */
#include "gpcpy.h"

#include <math.h>
#include <string.h>

struct options { /* the arguments by name */
	const char *name, *dir, *label;
	PyObject *keep_name, *keep_dir, *keep_label;
	uint32_t flags;
	int has_memory;
	PyObject *log, *runs;
	struct array run_array;
	struct gpc_attach_options attach;
	struct gpc_config config;
	uint8_t secret[16];
	struct gpc_memory memory;
};

/* ---- the log ---- */

/* May run in any thread of the library.  *at changes only in threads that hold the interpreter. */
void log_call(PyObject *const *at, int level, const char *text)
{
	PyGILState_STATE gil;
	PyObject *r = NULL, *line, *log;

	if (handle_ending)
		return;
	gil = PyGILState_Ensure();
	handle_inside++;
	log = *at;
	line = log ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace") : NULL;
	Py_XINCREF(log);
	if (line)
		r = PyObject_CallFunction(log, "iN", level, line);
	if (log && !r)
		PyErr_WriteUnraisable(log);
	Py_XDECREF(log);
	Py_XDECREF(r);
	handle_inside--;
	PyGILState_Release(gil);
}

static void log_line(void *arg, int level, const char *text)
{
	log_call(&((Cache *)arg)->log, level, text);
}

int log_check(PyObject *o)
{
	if (o == Py_None || PyCallable_Check(o))
		return 0;
	PyErr_Format(PyExc_TypeError, "log: a function of level and text is wanted, this is %.200R",
		     o);
	return -1;
}

/* ---- arguments ---- */

static int set_flag(struct options *p, PyObject *o, uint32_t flag)
{
	int truth = PyObject_IsTrue(o);

	if (truth > 0)
		p->flags |= flag;
	return truth < 0 ? -1 : 0;
}

static int set_layout(struct options *p, PyObject *o)
{
	static const struct field layout[] = {
		{ "layout", offsetof(struct gpc_attach_options, layout), 32, F_BYTES, 0, 0 },
		{ NULL, 0, 0, F_U32, 0, 0 }
	};

	if (o == Py_None)
		return 0;
	if (field_set(layout, "layout", o, &p->attach) < 0)
		return -1;
	memcpy(p->config.layout, p->attach.layout, sizeof(p->config.layout));
	return 0;
}

/* A peer as info().peer has it; the C option is one more, so that 0 stands for none. */
static int set_leader(struct options *p, PyObject *o)
{
	int peer = 0;

	if (o == Py_None)
		return 0;
	if (args_int(o, "leader", &peer) < 0)
		return -1;
	if (peer < 0 || peer >= GPC_MAX_PEERS) {
		PyErr_Format(PyExc_ValueError, "leader: %d, a peer is wanted, 0 to %d", peer,
			     GPC_MAX_PEERS - 1);
		return -1;
	}
	p->attach.leader = 1 + peer;
	return 0;
}

/* Arguments of both calls; 1 = it is none of them. */
static int set_attach(struct options *p, const char *name, PyObject *o)
{
	if (!strcmp(name, "timeout"))
		return args_time(o, name, &p->attach.timeout_ms);
	if (!strcmp(name, "stock"))
		return args_u32(o, name, &p->attach.stock);
	if (!strcmp(name, "quota"))
		return args_u32(o, name, &p->attach.quota);
	if (!strcmp(name, "dir"))
		return args_text(o, name, &p->dir, &p->keep_dir);
	if (!strcmp(name, "label"))
		return args_text(o, name, &p->label, &p->keep_label);
	if (!strcmp(name, "layout"))
		return set_layout(p, o);
	if (!strcmp(name, "serve"))
		return set_flag(p, o, GPC_SERVE);
	if (strcmp(name, "log") != 0)
		return 1;
	if (log_check(o) < 0)
		return -1;
	p->log = o == Py_None ? NULL : o;
	return 0;
}

static int set_create(struct options *p, const char *name, PyObject *o)
{
	int r;

	if (!strcmp(name, "if_absent"))
		return set_flag(p, o, GPC_IF_ABSENT);
	if (!strcmp(name, "secret"))
		return tiers_secret(o, p->secret, &p->config.secret);
	r = field_set(fields_config, name, o, &p->config);
	if (r <= 0)
		return r;
	if (!strcmp(name, "ram_runs")) {
		p->has_memory = 1;
		return o == Py_None ? 0 : record_array(&record_run, o, name, &p->run_array);
	}
	r = field_set(fields_backing, name, o, &p->memory);
	if (r == 0)
		p->has_memory = 1;
	return r;
}

static int set_option(struct options *p, bool create, PyObject *key, PyObject *o)
{
	const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
	int r = name ? set_attach(p, name, o) : -1;

	if (r <= 0)
		return r;
	if (!create && !strcmp(name, "leader"))
		return set_leader(p, o);
	if (!create && !strcmp(name, "life"))
		return args_u64(o, name, &p->attach.life);
	if (!create && !strcmp(name, "readonly"))
		return set_flag(p, o, GPC_READONLY);
	r = create ? set_create(p, name, o) : 1;
	if (r > 0)
		PyErr_Format(PyExc_TypeError, "%s: there is no argument %U",
			     create ? "create" : "attach", key);
	return r ? -1 : 0;
}

/* Called while much memory is made, so that a signal is seen. */
static int progress(void *arg, uint64_t done, uint64_t bytes)
{
	(void)arg;
	(void)done;
	(void)bytes;
	return wait_look();
}

static int read_options(struct options *p, bool create, PyObject *const *args, Py_ssize_t n,
			PyObject *kwnames)
{
	Py_ssize_t i, names = kwnames ? PyTuple_Size(kwnames) : 0;

	if (n != 1) {
		PyErr_Format(PyExc_TypeError,
			     "%s: the name of a cache is wanted, and the rest by name",
			     create ? "create" : "attach");
		return -1;
	}
	if (!PyUnicode_Check(args[0])) {
		PyErr_Format(PyExc_TypeError, "name: a str is wanted, this is %.200R", args[0]);
		return -1;
	}
	if (args_text(args[0], "name", &p->name, &p->keep_name) < 0)
		return -1;
	for (i = 0; i < names; i++)
		if (set_option(p, create, PyTuple_GetItem(kwnames, i), args[n + i]) < 0)
			return -1;
	p->attach.dir = p->dir;
	p->attach.label = p->label;
	p->config.dir = p->dir;
	p->memory.runs = p->run_array.p;
	p->memory.nruns = p->run_array.n;
	/* memory was asked for */
	if (p->config.ram_blocks && p->memory.block_bytes + p->memory.nruns)
		p->memory.progress = progress;
	if (p->has_memory)
		p->config.ram_memory = &p->memory;
	return 0;
}

/* ---- the calls ---- */

static Cache *make(struct options *p)
{
	allocfunc alloc = (allocfunc)PyType_GetSlot(cache_type, Py_tp_alloc);
	Cache *self = (Cache *)alloc(cache_type, 0);

	if (!self)
		return NULL;
	self->name = PyUnicode_DecodeFSDefault(p->name);
	if (!self->name) {
		Py_DECREF((PyObject *)self);
		return NULL;
	}
	self->forks = handle_forks;
	self->peer = -1;
	pthread_mutex_init(&self->lock, NULL);
	pthread_cond_init(&self->left, NULL);
	if (p->log) {
		Py_INCREF(p->log);
		self->log = p->log;
		p->attach.log = log_line;
		p->attach.log_arg = self;
	}
	return self;
}

static PyObject *open_cache(struct options *p, bool create)
{
	Cache *self = make(p);
	struct gpc_info info = { .size = sizeof(info) };
	gpc *c = NULL;
	int r;

	if (!self)
		return NULL;
	if (create)
		WAIT(r, r = gpc_create(p->name, &p->config, &p->attach, p->flags, &c));
	else
		WAIT(r, r = gpc_attach(p->name, &p->attach, p->flags, &c));
	if (r < 0) {
		Py_DECREF((PyObject *)self);
		return error_raise(r);
	}
	self->c = c;
	if (gpc_info_get(c, &info) == 0) {
		self->block_tokens = info.block_tokens;
		self->max_blocks = info.max_blocks;
		self->peer = info.peer;
	}
	if (wait_raised(r) || handle_open(self) < 0) {
		Py_DECREF((PyObject *)self);
		return NULL;
	}
	return (PyObject *)self;
}

static PyObject *open_by(bool create, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	struct options *p = PyMem_Calloc(1, sizeof(*p));
	PyObject *ret = NULL;

	if (!p)
		return PyErr_NoMemory();
	p->attach.size = sizeof(p->attach);
	p->config.size = sizeof(p->config);
	p->memory.size = sizeof(p->memory);
	if (read_options(p, create, args, n, kwnames) == 0)
		ret = open_cache(p, create);
	array_free(&p->run_array);
	Py_XDECREF(p->keep_name);
	Py_XDECREF(p->keep_dir);
	Py_XDECREF(p->keep_label);
	PyMem_Free(p);
	return ret;
}

METHOD(open_attach)
{
	return open_by(false, args, n, kwnames);
}

METHOD(open_create)
{
	return open_by(true, args, n, kwnames);
}
