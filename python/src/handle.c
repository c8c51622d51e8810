/* SPDX-License-Identifier: Apache-2.0 */
/* handle.c - the type Cache: a handle that threads share, and its end.
 *
 * Each call counts itself in and out.  close() first sets `closed`, then waits until the other
 * calls are out.  A call that counts itself in afterwards sees that and leaves.  Both orders are
 * sequentially consistent, so one of the two sees the other.  In a forked child close() does not
 * wait, since the threads inside exist in the parent only.
 * Tests: t/python/threads.t t/python/leaks.t t/python/many.t */
#include "gpcpy.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

PyTypeObject *cache_type;
__thread int handle_inside;
bool handle_ending;
uint32_t handle_forks;

static struct open_cache { /* all that are open, for the end of the interpreter */
	struct open_cache *next;
	Cache *cache; /* borrowed: dealloc takes it out */
} * open_caches;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- in and out ---- */

int handle_enter(Cache *self)
{
	if (handle_forked(self)) {
		error_say(ECHILD,
			  "the handle belongs to the parent process: a forked child has none; "
			  "attach anew there, or use multiprocessing's method spawn");
		return -1;
	}
	__atomic_fetch_add(&self->users, 1, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&self->closed, __ATOMIC_SEQ_CST)) {
		handle_inside++;
		return 0;
	}
	handle_inside++;
	handle_leave(self);
	PyErr_SetString(PyExc_ValueError, "the cache is closed");
	return -1;
}

void handle_leave(Cache *self)
{
	handle_inside--;
	if (__atomic_sub_fetch(&self->users, 1, __ATOMIC_SEQ_CST) ||
	    !__atomic_load_n(&self->closed, __ATOMIC_SEQ_CST))
		return;
	pthread_mutex_lock(&self->lock);
	pthread_cond_broadcast(&self->left);
	pthread_mutex_unlock(&self->lock);
}

/* ---- memory that the library may still write ---- */

int handle_keep(Cache *self, struct array *a, gpc_ticket ticket)
{
	struct kept *k = PyMem_Malloc(sizeof(*k));

	if (!k) {
		/* it leaks, so that it is not written after it is freed */
		a->own = a->viewed = false;
		PyErr_NoMemory();
		return -1;
	}
	*k = (struct kept){ .ticket = ticket, .array = *a };
	*a = (struct array){ 0 };
	pthread_mutex_lock(&self->lock);
	k->next = self->kept;
	self->kept = k;
	pthread_mutex_unlock(&self->lock);
	return 0;
}

/* Frees memory kept for ticket t or an older one, without the lock, since a free may run
 * Python. */
void handle_unkeep(Cache *self, gpc_ticket t)
{
	struct kept **at, *k, *free_them = NULL;

	pthread_mutex_lock(&self->lock);
	for (at = &self->kept; (k = *at);) {
		if (!k->ticket || k->ticket > t) {
			at = &k->next;
			continue;
		}
		*at = k->next;
		k->next = free_them;
		free_them = k;
	}
	pthread_mutex_unlock(&self->lock);
	while ((k = free_them)) {
		free_them = k->next;
		array_free(&k->array);
		PyMem_Free(k);
	}
}

static void unkeep_all(Cache *self)
{
	struct kept *k;

	while ((k = self->kept)) {
		self->kept = k->next;
		array_free(&k->array);
		PyMem_Free(k);
	}
}

/* ---- blocks that no caller has heard of ---- */

void handle_leave_over(Cache *self, const gpc_block *blocks, uint32_t n)
{
	struct left *l = PyMem_Malloc(sizeof(*l) + n * sizeof(*blocks)), **at;

	if (!l)
		return; /* the owner's allocator misses them, and finds them by a walk */
	*l = (struct left){ .n = n };
	memcpy(l->block, blocks, n * sizeof(*blocks));
	pthread_mutex_lock(&self->lock);
	for (at = &self->left_over; *at; at = &(*at)->next)
		;
	*at = l;
	pthread_mutex_unlock(&self->lock);
}

/* Takes out at most n blocks of this pool; -1 = of any pool. */
uint32_t handle_take_over(Cache *self, int pool, gpc_block *blocks, uint32_t n)
{
	uint32_t got = 0, i, kept;
	struct left *l;

	pthread_mutex_lock(&self->lock);
	for (l = self->left_over; l; l = l->next) {
		for (i = kept = 0; i < l->n; i++) {
			if (got < n && (pool == -1 || GPC_POOL(l->block[i]) == pool))
				blocks[got++] = l->block[i];
			else
				l->block[kept++] = l->block[i];
		}
		l->n = kept;
	}
	while ((l = self->left_over) && !l->n) {
		self->left_over = l->next;
		PyMem_Free(l);
	}
	pthread_mutex_unlock(&self->lock);
	return got;
}

/* ---- the list of all ---- */

int handle_open(Cache *self)
{
	struct open_cache *o = PyMem_Malloc(sizeof(*o));

	if (!o) {
		PyErr_NoMemory();
		return -1;
	}
	o->cache = self;
	pthread_mutex_lock(&open_lock);
	o->next = open_caches;
	open_caches = o;
	pthread_mutex_unlock(&open_lock);
	return 0;
}

static void forget(Cache *self)
{
	struct open_cache **at, *o;

	pthread_mutex_lock(&open_lock);
	for (at = &open_caches; (o = *at) && o->cache != self; at = &o->next)
		;
	if (o)
		*at = o->next;
	pthread_mutex_unlock(&open_lock);
	PyMem_Free(o);
}

/* A fork copies locks in their state, held ones too.  The child has one thread, so new locks
 * serve. */
static void renew_locks(void)
{
	struct open_cache *o;

	handle_forks++;
	wait_forked();
	pthread_mutex_init(&open_lock, NULL);
	handle_inside = 0;
	for (o = open_caches; o; o = o->next) {
		pthread_mutex_init(&o->cache->lock, NULL);
		pthread_cond_init(&o->cache->left, NULL);
		o->cache->users = 0;
	}
}

/* ---- the end ---- */

static void finish(Cache *self)
{
	gpc *c = self->c;

	part_forget_all(self);
	self->c = NULL;
	FREELY(gpc_close(c));
	forget(self);
	unkeep_all(self);
}

/* 0: this thread closes; 1: another thread has closed; -1: not now. */
static int begin_close(Cache *self)
{
	uint32_t views;
	int ret = 0;

	if (handle_inside) {
		error_say(
			EDEADLK,
			"close was called in a callback of gpc: close when the call has returned");
		return -1;
	}
	pthread_mutex_lock(&self->lock);
	views = self->exports;
	if (self->closed)
		ret = 1;
	else if (!views)
		__atomic_store_n(&self->closed, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&self->lock);
	if (ret == 0 && views) {
		PyErr_Format(PyExc_BufferError,
			     "%lu views of this cache's memory exist: release them first",
			     (unsigned long)views);
		return -1;
	}
	return ret;
}

static void wait_a_while(Cache *self)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += 50000000;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	pthread_mutex_lock(&self->lock);
	if (__atomic_load_n(&self->users, __ATOMIC_SEQ_CST))
		pthread_cond_timedwait(&self->left, &self->lock, &t);
	pthread_mutex_unlock(&self->lock);
}

/* Waits until the other calls are out.  A signal handler that raises ends the wait, and the handle
 * is open as before. */
static int wait_for_others(Cache *self)
{
	gpc_writer_wake(self->c);
	while (__atomic_load_n(&self->users, __ATOMIC_SEQ_CST)) {
		FREELY(wait_a_while(self));
		if (PyErr_CheckSignals() < 0) {
			__atomic_store_n(&self->closed, 0, __ATOMIC_SEQ_CST);
			return -1;
		}
	}
	return 0;
}

static PyObject *handle_close(PyObject *o, PyObject *unused)
{
	Cache *self = (Cache *)o;
	int r = begin_close(self);

	if (r < 0 || (r == 0 && wait_for_others(self) < 0))
		return NULL;
	if (r == 0)
		finish(self);
	Py_RETURN_NONE;
}

/* Called at the end of the interpreter, while threads of the library may still call the log.  A
 * cache that a daemon thread uses is left to the end of the process. */
PyObject *handle_close_all(PyObject *module, PyObject *unused)
{
	struct open_cache *o;
	Cache *self;

	handle_ending = true;
	for (;;) {
		pthread_mutex_lock(&open_lock);
		for (o = open_caches; o; o = o->next) {
			self = o->cache;
			if (!__atomic_load_n(&self->users, __ATOMIC_SEQ_CST) && !self->exports &&
			    !__atomic_exchange_n(&self->closed, 1, __ATOMIC_SEQ_CST))
				break;
		}
		pthread_mutex_unlock(&open_lock);
		if (!o)
			Py_RETURN_NONE;
		Py_INCREF((PyObject *)self);
		finish(self);
		Py_DECREF((PyObject *)self);
	}
}

static void handle_dealloc(PyObject *o)
{
	PyTypeObject *type = Py_TYPE(o);
	Cache *self = (Cache *)o;
	struct left *l;

	PyObject_GC_UnTrack(o);
	if (self->c)
		finish(self);
	Py_CLEAR(self->log);
	Py_CLEAR(self->name);
	while ((l = self->left_over)) {
		self->left_over = l->next;
		PyMem_Free(l);
	}
	pthread_mutex_destroy(&self->lock);
	pthread_cond_destroy(&self->left);
	PyObject_GC_Del(o);
	Py_DECREF((PyObject *)type);
}

static int handle_traverse(PyObject *o, visitproc visit, void *arg)
{
	Py_VISIT(((Cache *)o)->log);
	Py_VISIT((PyObject *)Py_TYPE(o));
	return 0;
}

/* Threads of the library call the log until the handle ends.  The collector takes the objects of a
 * cycle apart in any order.  So the handle ends before that, while all objects are whole.  Where
 * views of its memory keep it, it has no log any more. */
static void handle_finalize(PyObject *o)
{
	Cache *self = (Cache *)o;
	PyObject *type, *value, *trace;

	PyErr_Fetch(&type, &value, &trace);
	__atomic_store_n(&self->closed, 1, __ATOMIC_SEQ_CST);
	if (self->c && !self->exports)
		finish(self);
	Py_CLEAR(self->log);
	PyErr_Restore(type, value, trace);
}

static int handle_clear(PyObject *o)
{
	Py_CLEAR(((Cache *)o)->log);
	return 0;
}

static PyObject *handle_self(PyObject *o, PyObject *unused)
{
	Cache *self = (Cache *)o;

	if (handle_enter(self) < 0)
		return NULL;
	handle_leave(self);
	Py_INCREF(o);
	return o;
}

static PyObject *handle_exit(PyObject *o, PyObject *args)
{
	return handle_close(o, NULL);
}

const char *handle_state(const Cache *self)
{
	if (__atomic_load_n(&self->closed, __ATOMIC_SEQ_CST))
		return "closed";
	return handle_forked(self) ? "of the parent process" : "open";
}

static PyObject *handle_repr(PyObject *o)
{
	const Cache *self = (Cache *)o;

	if (self->peer < 0)
		return PyUnicode_FromFormat(
			"<gpc.Cache %R: %lu blocks of %lu tokens, read-only, %s>", self->name,
			(unsigned long)self->max_blocks, (unsigned long)self->block_tokens,
			handle_state(self));
	return PyUnicode_FromFormat("<gpc.Cache %R: %lu blocks of %lu tokens, peer %d, %s>",
				    self->name, (unsigned long)self->max_blocks,
				    (unsigned long)self->block_tokens, self->peer,
				    handle_state(self));
}

static PyObject *handle_is_closed(PyObject *o, void *unused)
{
	return PyBool_FromLong(__atomic_load_n(&((Cache *)o)->closed, __ATOMIC_SEQ_CST));
}

/* ---- the type ---- */

static const PyMethodDef methods_handle[] = {
	{ "close", handle_close, METH_NOARGS,
	  "close($self)\n--\n\nGive every hold, section and the seat back; the cache stays.  Waits for calls of other\n"
	  "threads.  BufferError: views of its memory exist.  A second close does nothing." },
	{ "__enter__", handle_self, METH_NOARGS,
	  "__enter__($self)\n--\n\nThe handle itself.  ValueError: it is closed." },
	{ "__exit__", handle_exit, METH_VARARGS, "__exit__($self, *args)\n--\n\nclose()." },
	{ NULL, NULL, 0, NULL }
};

static const PyMethodDef *const tables[] = { methods_handle, methods_keys,   methods_find,
					     methods_fill,   methods_move,   methods_transfer,
					     methods_tiers,  methods_claim,  methods_pool,
					     methods_memory, methods_look,   methods_walk,
					     methods_writer, methods_device, methods_seal };

#define MAX_METHODS 160
static PyMethodDef methods[MAX_METHODS];

static void collect_methods(void)
{
	size_t t, n = 0;
	const PyMethodDef *m;

	for (t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
		for (m = tables[t]; m->ml_name && n < MAX_METHODS - 1; m++)
			methods[n++] = *m;
}

static PyGetSetDef getset[] = { { "closed", handle_is_closed, NULL, "True once close has begun.",
				  NULL },
				{ NULL, NULL, NULL, NULL, NULL } };

static PyType_Slot slots[] = {
	{ Py_tp_doc,
	  (void *)"One attachment to a cache: gpc.attach and gpc.create make it.  Any thread may use it." },
	{ Py_tp_dealloc, handle_dealloc },
	{ Py_tp_repr, handle_repr },
	{ Py_tp_traverse, handle_traverse },
	{ Py_tp_clear, handle_clear },
	{ Py_tp_finalize, handle_finalize },
	{ Py_tp_methods, methods },
	{ Py_tp_getset, getset },
	{ 0, NULL }
};
static PyType_Spec spec = {
	.name = "gpc.Cache",
	.basicsize = sizeof(Cache),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

int handle_init(PyObject *module)
{
	collect_methods();
	cache_type = (PyTypeObject *)PyType_FromSpec(&spec);
	if (!cache_type || PyModule_AddObjectRef(module, "Cache", (PyObject *)cache_type) < 0)
		return -1;
	if (pthread_atfork(NULL, NULL, renew_locks)) {
		PyErr_NoMemory();
		return -1;
	}
	return 0;
}
