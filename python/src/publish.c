/* SPDX-License-Identifier: Apache-2.0 */
/* publish.c - publish, and the life of its answers.
 *
 * While a publish is not answered, the library may write into `resident`, whatever the call
 * returned.  So the handle keeps that array until ticket_wait has returned for its ticket, or
 * until close.
 * Tests: t/python/leaks.t t/python/module.t */
#include "gpcpy.h"

#include <errno.h>
#include <limits.h>

struct publish {
	struct array parents, keys, blocks, tokens, digests, out;
	struct gpc_publish_options opt;
	uint32_t flags;
	int timeout;
};

static void publish_free(struct publish *p)
{
	array_free(&p->parents);
	array_free(&p->keys);
	array_free(&p->blocks);
	array_free(&p->tokens);
	array_free(&p->digests);
	array_free(&p->out);
}

static int read_chain(struct publish *p, PyObject **a)
{
	if ((a[0] != Py_None && array_keys(a[0], "parents", &p->parents) < 0) ||
	    array_keys(a[1], "keys", &p->keys) < 0 ||
	    array_blocks(a[2], "blocks", &p->blocks) < 0 ||
	    !array_same("keys", &p->keys, "blocks", &p->blocks))
		return -1;
	if (a[0] != Py_None && !array_same("parents", &p->parents, "keys", &p->keys))
		return -1;
	return 0;
}

static int read_tokens(struct publish *p, PyObject *o, uint32_t block_tokens)
{
	if (!o || o == Py_None)
		return 0;
	if (array_tokens(o, "tokens", &p->tokens) < 0)
		return -1;
	if ((uint64_t)p->blocks.n * block_tokens != p->tokens.n) {
		PyErr_Format(PyExc_ValueError,
			     "tokens has %lu items: %lu blocks of %lu tokens are wanted",
			     (unsigned long)p->tokens.n, (unsigned long)p->blocks.n,
			     (unsigned long)block_tokens);
		return -1;
	}
	p->opt.tokens = p->tokens.p;
	return 0;
}

static int read_digests(struct publish *p, PyObject *o, PyObject *size)
{
	uint32_t bytes;

	if (!o || o == Py_None)
		return 0;
	if (array_digests(o, "digests", size, &p->digests, &bytes) < 0 ||
	    !array_same("digests", &p->digests, "blocks", &p->blocks))
		return -1;
	p->opt.digests = p->digests.p;
	p->opt.digest_bytes = p->opt.digest_stride = bytes;
	return 0;
}

/* resident: None, True for a list, or a buffer for the blocks. */
static int make_resident(struct publish *p, PyObject *o)
{
	if (!o || o == Py_None || o == Py_False)
		return 0;
	if (o == Py_True && !p->timeout) {
		PyErr_SetString(PyExc_ValueError,
				"resident: True, but with timeout=0 the answers come later: give "
				"an int32 buffer, or None");
		return -1;
	}
	return array_out(o == Py_True ? NULL : o, "resident", p->blocks.n, 4, &p->out);
}

static bool may_come_later(int r, int timeout)
{
	return r < 0 ? r != -EINVAL : !timeout;
}

static PyObject *publish(Cache *self, struct publish *p)
{
	gpc_ticket ticket = 0;
	gpc *c = self->c;
	bool raised = false;
	int r;

	p->opt.resident = p->out.p;
	p->opt.ticket = &ticket;
	WAIT(r, r = gpc_publish(c, p->parents.p, p->keys.p, p->blocks.p, p->blocks.n, &p->opt,
				p->flags, p->timeout));
	if (r < 0)
		error_raise_ticket(r, ticket);
	else if (wait_raised(r))
		raised = true;
	if (p->out.p && may_come_later(r, p->timeout)) {
		/* without a ticket, a part was submitted or none was; the last ticket covers both
		 * cases */
		if (handle_keep(self, &p->out, ticket ? ticket : gpc_ticket_last(c)) < 0)
			return NULL;
	}
	if (r < 0 || raised)
		return NULL;
	if (!p->timeout)
		return PyLong_FromUnsignedLongLong(ticket);
	return p->out.own ? array_list(p->out.p, p->blocks.n) : PyLong_FromLong(r);
}

METHOD(publish_call)
{
	static const struct call call = { "publish",
					  3,
					  3,
					  { "parents", "keys", "blocks", "tag", "group", "tokens",
					    "digests", "digest_size", "flags", "timeout",
					    "resident", "since" } };
	struct publish p = { .opt = { .size = sizeof(p.opt) }, .timeout = -1 };
	PyObject *a[MAX_ARGS], *ret = NULL;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (read_chain(&p, a) == 0 && args_u32(a[3], "tag", &p.opt.tag) == 0 &&
	    args_u32(a[4], "group", &p.opt.group) == 0 &&
	    read_tokens(&p, a[5], ((Cache *)self)->block_tokens) == 0 &&
	    read_digests(&p, a[6], a[7]) == 0 && args_u32(a[8], "flags", &p.flags) == 0 &&
	    args_time(a[9], "timeout", &p.timeout) == 0 && make_resident(&p, a[10]) == 0 &&
	    args_u64(a[11], "since", &p.opt.since) == 0 && handle_enter((Cache *)self) == 0) {
		ret = publish((Cache *)self, &p);
		handle_leave((Cache *)self);
	}
	publish_free(&p);
	return ret;
}
