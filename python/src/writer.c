/* SPDX-License-Identifier: Apache-2.0 */
/* writer.c - the writer's calls.
 * Tests: t/python/errors.t t/python/interrupt.t */
#include "gpcpy.h"

static bool is_writer(gpc *c)
{
	struct gpc_info info = { .size = sizeof(info) };

	return gpc_info_get(c, &info) == 0 && info.writer_peer >= 0 &&
	       info.writer_peer == info.peer;
}

static METHOD(writer_take)
{
	static const struct call call = { "writer_take", 0, 0, { "flags", "timeout" } };
	PyObject *a[MAX_ARGS], *ret;
	uint32_t flags = 0;
	int timeout = -1, r;
	bool was;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_u32(a[0], "flags", &flags) < 0 ||
	    args_time(a[1], "timeout", &timeout) < 0 || handle_enter((Cache *)self) < 0)
		return NULL;
	c = ((Cache *)self)->c;
	was = is_writer(c);
	WAIT(r, r = gpc_writer_take(c, flags, timeout));
	ret = wait_none(r);
	if (!ret && r >= 0 && !was)
		gpc_writer_drop(c);
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(writer_serve)
{
	static const struct call call = { "writer_serve", 1, 0, { "timeout" } };
	PyObject *a[MAX_ARGS], *ret;
	int timeout = -1, r;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0 ||
	    args_time(a[0], "timeout", &timeout) < 0 || handle_enter((Cache *)self) < 0)
		return NULL;
	c = ((Cache *)self)->c;
	WAIT(r, r = gpc_writer_serve(c, timeout));
	ret = wait_number(r);
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(writer_wake)
{
	static const struct call call = { "writer_wake", 0, 0, { NULL } };
	PyObject *a[MAX_ARGS];

	if (args_parse(&call, args, n, kwnames, a) < 0 || handle_enter((Cache *)self) < 0)
		return NULL;
	gpc_writer_wake(((Cache *)self)->c);
	handle_leave((Cache *)self);
	Py_RETURN_NONE;
}

static METHOD(writer_drop)
{
	static const struct call call = { "writer_drop", 0, 0, { NULL } };
	PyObject *a[MAX_ARGS], *ret;
	gpc *c;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || handle_enter((Cache *)self) < 0)
		return NULL;
	c = ((Cache *)self)->c;
	WAIT(r, r = gpc_writer_drop(c));
	ret = wait_none(r);
	handle_leave((Cache *)self);
	return ret;
}

const PyMethodDef methods_writer[] = {
	ROW("writer_take", writer_take, "$self, *, flags=0, timeout=None",
	    "Take the seat and recover.  gpc.Again: it is taken.  STANDBY: wait for it."
	    "\n"
	    "gpc.TimedOut: time is up, and STANDBY waits." TIMES),
	ROW("writer_serve", writer_serve, "$self, timeout=None",
	    "Do what is due, waiting for work: the number of commands done."
	    "\n"
	    "gpc.NotConnected: this handle is not the writer.  gpc.Again: another thread serves by it." TIMES),
	ROW("writer_wake", writer_wake, "$self",
	    "Ends the wait of the writer_serve of this handle."),
	ROW("writer_drop", writer_drop, "$self",
	    "Give the seat up."
	    "\n"
	    "Waits for a thread that serves by this handle.  gpc.NotConnected: it is not the writer."),
	{ NULL, NULL, 0, NULL }
};
