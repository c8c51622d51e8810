/* SPDX-License-Identifier: Apache-2.0 */
/* look.c - looking from outside, sections and grace periods, mirrors.
 * Tests: t/python/look.t */
#include "gpcpy.h"

static METHOD(look_info)
{
	static const struct call call = { "info", 0, 0, { NULL } };
	struct gpc_info info = { .size = sizeof(info) };
	PyObject *a[MAX_ARGS], *ret;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || handle_enter((Cache *)self) < 0)
		return NULL;
	r = gpc_info_get(((Cache *)self)->c, &info);
	ret = r < 0 ? error_raise(r) : record_make(&record_info, &info);
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(look_stats)
{
	static const struct call call = { "stats", 1, 0, { "peer" } };
	struct gpc_stats stats = { .size = sizeof(stats) };
	PyObject *a[MAX_ARGS], *ret;
	int peer = -1, r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_int(a[0], "peer", &peer) < 0 ||
	    handle_enter((Cache *)self) < 0)
		return NULL;
	r = gpc_stats_get(((Cache *)self)->c, peer, &stats);
	ret = r < 0 ? error_raise(r) : record_make(&record_stats, &stats);
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(look_hits_add)
{
	static const struct call call = { "hits_add", 0, 0, { "own", "disk", "store" } };
	uint64_t own = 0, disk = 0, store = 0;
	PyObject *a[MAX_ARGS];
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_u64(a[0], "own", &own) < 0 ||
	    args_u64(a[1], "disk", &disk) < 0 || args_u64(a[2], "store", &store) < 0 ||
	    handle_enter((Cache *)self) < 0)
		return NULL;
	r = gpc_hits_add(((Cache *)self)->c, own, disk, store);
	handle_leave((Cache *)self);
	if (r < 0)
		return error_raise(r);
	Py_RETURN_NONE;
}

static METHOD(look_histogram)
{
	static const struct call call = { "histogram", 2, 1, { "what", "peer" } };
	struct gpc_histogram histogram = { .size = sizeof(histogram) };
	PyObject *a[MAX_ARGS], *ret;
	int what = 0, peer = -1, r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_int(a[0], "what", &what) < 0 ||
	    args_int(a[1], "peer", &peer) < 0 || handle_enter((Cache *)self) < 0)
		return NULL;
	r = gpc_histogram_get(((Cache *)self)->c, what, peer, &histogram);
	ret = r < 0 ? error_raise(r) : record_make(&record_histogram, &histogram);
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(look_mirror)
{
	static const struct call call = { "mirror", 1, 1, { "i" } };
	struct gpc_mirror mirror = { .size = sizeof(mirror) };
	PyObject *a[MAX_ARGS], *ret;
	int i = 0, r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_int(a[0], "i", &i) < 0 ||
	    handle_enter((Cache *)self) < 0)
		return NULL;
	r = gpc_mirror_get(((Cache *)self)->c, i, &mirror);
	ret = r < 0 ? error_raise(r) : record_make(&record_mirror, &mirror);
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(look_tokens)
{
	static const struct call call = { "tokens", 2, 2, { "key", "block", "out" } };
	struct array key = { 0 }, out = { 0 };
	uint32_t room = ((Cache *)self)->block_tokens;
	PyObject *a[MAX_ARGS], *ret = NULL;
	int block = 0, r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (array_keys(a[0], "key", &key) < 0 || args_int(a[1], "block", &block) < 0 ||
	    array_out(a[2], "out", room, 4, &out) < 0)
		goto out;
	if (key.n != 1) {
		PyErr_Format(PyExc_ValueError, "key: %lu keys, one is wanted",
			     (unsigned long)key.n);
	} else if (handle_enter((Cache *)self) == 0) {
		r = gpc_tokens_get(((Cache *)self)->c, key.p, block, out.p, room);
		/* tokens are below 2^31 for every engine; larger ones come out right, too */
		if (r < 0)
			ret = error_raise(r);
		else if (!out.own)
			ret = PyLong_FromLong(r);
		else if ((ret = PyList_New(r)))
			for (uint32_t i = 0; i < (uint32_t)r; i++)
				PyList_SetItem(ret, i,
					       PyLong_FromUnsignedLong(((uint32_t *)out.p)[i]));
		handle_leave((Cache *)self);
	}
out:
	array_free(&key);
	array_free(&out);
	return ret;
}

/* ---- check ---- */

struct report {
	PyObject *call;
	bool failed;
};

/* Runs without the GIL around it; an exception stays until the call has ended. */
static void report_line(void *arg, const char *line)
{
	struct report *p = arg;
	PyGILState_STATE gil = PyGILState_Ensure();
	PyObject *r;

	if (!p->failed && p->call) {
		r = PyObject_CallFunction(p->call, "s", line);
		p->failed = !r;
		Py_XDECREF(r);
	}
	PyGILState_Release(gil);
}

static METHOD(look_check)
{
	static const struct call call = { "check", 1, 0, { "report" } };
	PyObject *a[MAX_ARGS], *ret = NULL;
	struct report p = { 0 };
	gpc *c;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	p.call = a[0] == Py_None ? NULL : a[0];
	if (p.call && !PyCallable_Check(p.call)) {
		PyErr_Format(PyExc_TypeError,
			     "report: a function of a line is wanted, this is %.200R", p.call);
		return NULL;
	}
	if (handle_enter((Cache *)self) < 0)
		return NULL;
	c = ((Cache *)self)->c;
	FREELY(r = gpc_check(c, report_line, &p));
	if (!p.failed)
		ret = r < 0 ? error_raise(r) : PyLong_FromLong(r);
	handle_leave((Cache *)self);
	return ret;
}

/* ---- sections ---- */

static METHOD(look_section_enter)
{
	static const struct call call = { "section_enter", 0, 0, { NULL } };
	PyObject *a[MAX_ARGS], *ret;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || handle_enter((Cache *)self) < 0)
		return NULL;
	r = gpc_section_enter(((Cache *)self)->c);
	ret = r < 0 ? error_raise(r) : PyLong_FromLong(r);
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(look_section_leave)
{
	static const struct call call = { "section_leave", 1, 1, { "section" } };
	PyObject *a[MAX_ARGS], *ret;
	int section = 0, r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_int(a[0], "section", &section) < 0 ||
	    handle_enter((Cache *)self) < 0)
		return NULL;
	r = gpc_section_leave(((Cache *)self)->c, section);
	ret = r < 0 ? error_raise(r) : Py_NewRef(Py_None);
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(look_grace_start)
{
	static const struct call call = { "grace_start", 0, 0, { NULL } };
	PyObject *a[MAX_ARGS], *ret;

	if (args_parse(&call, args, n, kwnames, a) < 0 || handle_enter((Cache *)self) < 0)
		return NULL;
	ret = PyLong_FromUnsignedLongLong(gpc_grace_start(((Cache *)self)->c));
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(look_grace_done)
{
	static const struct call call = { "grace_done", 1, 1, { "cookie" } };
	PyObject *a[MAX_ARGS], *ret;
	uint64_t cookie = 0;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_u64(a[0], "cookie", &cookie) < 0 ||
	    handle_enter((Cache *)self) < 0)
		return NULL;
	r = gpc_grace_done(((Cache *)self)->c, cookie);
	ret = r < 0 ? error_raise(r) : PyBool_FromLong(r);
	handle_leave((Cache *)self);
	return ret;
}

/* ---- mirrors ---- */

static METHOD(look_mirror_sync)
{
	static const struct call call = { "mirror_sync", 2, 0, { "ticket", "timeout" } };
	PyObject *a[MAX_ARGS], *ret = NULL;
	gpc_ticket t = GPC_TICKET_ALL;
	int timeout = -1, r;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_u64(a[0], "ticket", &t) < 0 ||
	    args_time(a[1], "timeout", &timeout) < 0 || handle_enter((Cache *)self) < 0)
		return NULL;
	c = ((Cache *)self)->c;
	WAIT(r, r = gpc_mirror_sync(c, t, timeout));
	ret = r < 0 ? error_raise(r) : Py_NewRef(Py_None);
	handle_leave((Cache *)self);
	return ret;
}

static int lag_of(gpc *c)
{
	struct gpc_mirror m = { .size = sizeof(m) };
	uint64_t lag = 0;
	int i, err;

	for (i = 0; (err = gpc_mirror_get(c, i, &m)) == 0 && !m.retired; i++)
		lag = Py_MAX(lag, m.changes - m.flushed);
	return err && err != -ENOENT ? err : (int)Py_MIN(lag, (uint64_t)INT_MAX);
}

static METHOD(look_mirror_lag)
{
	static const struct call call = { "mirror_lag", 0, 0, { NULL } };
	PyObject *a[MAX_ARGS], *ret;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || handle_enter((Cache *)self) < 0)
		return NULL;
	r = lag_of(((Cache *)self)->c);
	ret = r < 0 ? error_raise(r) : PyLong_FromLong(r);
	handle_leave((Cache *)self);
	return ret;
}

const PyMethodDef methods_look[] = {
	ROW("info", look_info, "$self", "Geometry, options, writer and seat: Info."),
	ROW("hits_add", look_hits_add, "$self, *, own=0, disk=0, store=0",
	    "For stats of this peer: blocks that it had itself, and hits in RAM that a "
	    "disk, or a store, has\n"
	    "brought for it."),
	ROW("stats", look_stats, "$self, peer=-1",
	    "Stats of one peer; -1 = all, summed.  gpc.NotFound: an empty seat."
	    "\n"
	    "peer: -1 to MAX_PEERS - 1."),
	ROW("histogram", look_histogram, "$self, what, peer=-1",
	    "Histogram of AGE_EVICTED, ROUND_TRIP ... since the cache was made; with peer "
	    "only ROUND_TRIP.\n"
	    "gpc.NotFound: an empty seat."),
	ROW("mirror", look_mirror, "$self, i", "Mirror number i.  gpc.NotFound: past the last."),
	ROW("tokens", look_tokens, "$self, key, block, *, out=None",
	    "The tokens that a live block was published with: a list.  With out, a buffer "
	    "of block_tokens\n"
	    "int32, how many.  gpc.Stale: the block does not hold that key now."),
	ROW("check", look_check, "$self, report=None",
	    "Verify all invariants: the number of violations.  report gets a line for each."),
	ROW("section_enter", look_section_enter, "$self",
	    "A section, in which ids without a reference keep."),
	ROW("section_leave", look_section_leave, "$self, section",
	    "Ends it: section is what section_enter returned, 0 to 55.  In the thread that entered it.\n"
	    "gpc.Invalid: it is not open."),
	ROW("grace_start", look_grace_start, "$self",
	    "A cookie: all sections that are open now must end."),
	ROW("grace_done", look_grace_done, "$self, cookie", "Have they?"),
	ROW("mirror_sync", look_mirror_sync, "$self, ticket=18446744073709551615, timeout=None",
	    "Returns when that command is visible on all mirrors." TIMES),
	ROW("mirror_lag", look_mirror_lag, "$self",
	    "Changes that the slowest mirror does not show yet."),
	{ NULL, NULL, 0, NULL }
};
