/* SPDX-License-Identifier: Apache-2.0 */
/* publish.c - publish, and the life of its answers.
 *
 * While a publish is not answered, the library may write into `resident`, whatever the call
 * returned.  So that array is the handle's until ticket_wait has returned for its ticket, or
 * close.
 * Tests: t/python/leaks.t t/python/module.t */
#include "gpcpy.h"

#include <errno.h>
#include <limits.h>

#define PART 1024u /* items that the library submits at once */

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
	if (array_words(o, "tokens", &p->tokens) < 0)
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

/* resident: None, True for a list of it, or a buffer that gets it. */
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

/* n items from `from` on. */
static int publish_some(gpc *c, const struct publish *p, uint32_t from, uint32_t n, int timeout,
			gpc_ticket *ticket)
{
	const gpc_key *parents = p->parents.p, *keys = p->keys.p;
	const gpc_block *blocks = p->blocks.p;
	struct gpc_publish_options opt = p->opt;

	if (from && opt.resident)
		opt.resident += from;
	if (from && opt.tokens)
		opt.tokens += (size_t)from * (p->tokens.n / p->blocks.n);
	if (from && opt.digests)
		opt.digests = (const char *)opt.digests + (size_t)from * opt.digest_stride;
	opt.ticket = ticket;
	return gpc_publish(c, parents ? parents + from : NULL, keys + from, blocks + from, n, &opt,
			   p->flags, timeout);
}

/* How many of an answered part are live in their own blocks. */
static int count_live(gpc *c, const struct publish *p, uint32_t from, uint32_t n)
{
	const gpc_block *blocks = p->blocks.p;
	const gpc_key *keys = p->keys.p;
	struct gpc_pool pool = { .size = sizeof(pool), .number = -1 };
	uint32_t i;
	int live = 0;

	for (i = from; i < from + n; i++) {
		gpc_block found = p->opt.resident ? p->opt.resident[i] : GPC_NONE;

		if (!p->opt.resident && (pool.number == GPC_POOL(blocks[i]) ||
					 gpc_pool_get(c, GPC_POOL(blocks[i]), &pool) == 0))
			gpc_lookup(c, GPC_SPACE(pool.space), &keys[i], 1, &found, GPC_QUIET);
		live += found == blocks[i];
	}
	return live;
}

/* As gpc_publish, which sends so many at once; and a signal is seen.  What was submitted when a
 * slice was up is waited for by its ticket: nothing is submitted twice. */
static int publish_wait(gpc *c, const struct publish *p, gpc_ticket *ticket)
{
	uint32_t from, n;
	int r = 0, live = 0, timeout = p->timeout;
	gpc_ticket sent;
	bool late;

	for (from = 0; p->opt.resident && from < p->blocks.n; from++)
		p->opt.resident[from] = -EAGAIN;
	for (from = 0; r >= 0 && (from == 0 || from < p->blocks.n); from += n) {
		n = p->blocks.n - from < PART ? p->blocks.n - from : PART;
		sent = 0;
		late = false;
		WAIT_SLICES(r, timeout, {
			late = sent != 0;
			r = late ? gpc_ticket_wait(c, sent, slice)
				 : publish_some(c, p, from, n, slice, &sent);
			if (r == -ETIMEDOUT && timeout > 0)
				timeout -= slice;
		});
		if (sent)
			*ticket = sent;
		live += r < 0 ? 0 : late ? count_live(c, p, from, n) : r;
		if (!n)
			break;
	}
	return r < 0 ? r : live;
}

static PyObject *publish(Cache *self, struct publish *p)
{
	gpc_ticket ticket = 0;
	gpc *c = self->c;
	int r;

	p->opt.resident = p->out.p;
	if (p->timeout)
		r = publish_wait(c, p, &ticket);
	else /* it is submitted, and no more */
		r = publish_some(c, p, 0, p->blocks.n, 0, &ticket);
	if (r < 0)
		error_raise_ticket(r, ticket);
	if (p->out.p && may_come_later(r, p->timeout)) {
		/* without a ticket: some part was submitted, or none: the last one covers it */
		if (handle_keep(self, &p->out, ticket ? ticket : gpc_ticket_last(c)) < 0)
			return NULL;
	}
	if (r < 0)
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
