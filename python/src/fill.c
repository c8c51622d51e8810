/* SPDX-License-Identifier: Apache-2.0 */
/* fill.c - reserve and evict, publish, tickets.  publish.c has the arguments of publish.
 * Tests: t/python/errors.t t/python/module.t */
#include "gpcpy.h"

#include <errno.h>

/* ---- reserve ---- */

struct reserve {
	int pool, timeout;
	uint32_t n, flags;
	struct gpc_reserve_options opt;
	struct array out;
};

static PyObject *reserve(gpc *c, struct reserve *p)
{
	PyObject *ret = NULL;
	int r;

	if (p->flags & GPC_IN_HAND) /* waits for nothing */
		r = gpc_reserve(c, p->pool, p->n, p->out.p, &p->opt, p->flags, 0);
	else
		WAIT(r, r = gpc_reserve(c, p->pool, p->n, p->out.p, &p->opt, p->flags, p->timeout));
	if (r < 0)
		return error_raise(r);
	if (!wait_raised(r))
		ret = array_give(&p->out, r);
	if (!ret && r > 0)
		gpc_release(c, p->out.p, (uint32_t)r);
	return ret;
}

static METHOD(fill_reserve)
{
	static const struct call call = {
		"reserve", 2, 2, { "pool", "n", "headroom", "flags", "timeout", "out" }
	};
	struct reserve p = { .timeout = -1, .opt = { .size = sizeof(p.opt) } };
	PyObject *a[MAX_ARGS], *ret = NULL;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (args_int(a[0], "pool", &p.pool) == 0 && args_u32(a[1], "n", &p.n) == 0 &&
	    args_u32(a[2], "headroom", &p.opt.headroom) == 0 &&
	    args_u32(a[3], "flags", &p.flags) == 0 && args_time(a[4], "timeout", &p.timeout) == 0 &&
	    array_out(a[5], "out", p.n, 4, &p.out) == 0 && handle_enter((Cache *)self) == 0) {
		ret = reserve(((Cache *)self)->c, &p);
		handle_leave((Cache *)self);
	}
	array_free(&p.out);
	return ret;
}

/* ---- evict and returned ---- */

/* Gives back blocks that the caller will not hear of.  Taken blocks are released.  Blocks that the
 * caller's own allocator has now are told by returned(). */
static void evicted_back(Cache *self, const struct array *out, uint32_t n, uint32_t flags)
{
	struct gpc_pool pool = { .size = sizeof(pool) };
	const gpc_block *blocks = out->p;

	if (flags & GPC_PEEK || gpc_pool_get(self->c, GPC_POOL(blocks[0]), &pool) < 0)
		return;
	if (pool.flags & GPC_POOL_CALLER && pool.owner == self->peer)
		handle_leave_over(self, blocks, n);
	else if (flags & GPC_TAKE)
		gpc_release(self->c, blocks, n);
}

static METHOD(fill_evict)
{
	static const struct call call = {
		"evict", 2, 2, { "pool", "n", "flags", "timeout", "out" }
	};
	struct array out = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t count = 0, flags = 0;
	int pool = 0, timeout = -1, r;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (args_int(a[0], "pool", &pool) == 0 && args_u32(a[1], "n", &count) == 0 &&
	    args_u32(a[2], "flags", &flags) == 0 && args_time(a[3], "timeout", &timeout) == 0 &&
	    array_out(a[4], "out", count, 4, &out) == 0 && handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		WAIT(r, r = gpc_evict(c, pool, count, out.p, flags, timeout));
		if (r < 0)
			ret = error_raise(r);
		else if (!wait_raised(r))
			ret = array_give(&out, r);
		if (!ret && r > 0)
			evicted_back((Cache *)self, &out, (uint32_t)r, flags);
		handle_leave((Cache *)self);
	}
	array_free(&out);
	return ret;
}

/* Releases blocks that became reservations, when the caller will not hear of them. */
static void reclaimed_back(gpc *c, const struct array *blocks, const int32_t *results)
{
	const gpc_block *b = blocks->p;
	uint32_t i;

	for (i = 0; i < blocks->n; i++)
		if (!results[i])
			gpc_release(c, &b[i], 1);
}

static METHOD(fill_reclaim)
{
	static const struct call call = {
		"reclaim", 1, 1, { "blocks", "keys", "flags", "timeout" }
	};
	struct array blocks = { 0 }, keys = { 0 }, out = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t flags = 0;
	int timeout = -1, r;
	bool any;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	any = !a[1] || a[1] == Py_None;
	if (array_blocks(a[0], "blocks", &blocks) == 0 &&
	    (any || (array_keys(a[1], "keys", &keys) == 0 &&
		     array_same("keys", &keys, "blocks", &blocks))) &&
	    args_u32(a[2], "flags", &flags) == 0 && args_time(a[3], "timeout", &timeout) == 0 &&
	    array_out(NULL, "n", blocks.n, 4, &out) == 0 && handle_enter((Cache *)self) == 0) {
		gpc *c = ((Cache *)self)->c;

		WAIT(r, r = gpc_reclaim(c, any ? NULL : keys.p, blocks.p, blocks.n, out.p, flags,
					timeout));
		if (r < 0)
			ret = error_raise(r);
		else if (!wait_raised(r))
			ret = array_give(&out, (int)blocks.n);
		if (!ret && r >= 0)
			reclaimed_back(c, &blocks, out.p);
		handle_leave((Cache *)self);
	}
	array_free(&blocks);
	array_free(&keys);
	array_free(&out);
	return ret;
}

static METHOD(fill_rekey)
{
	static const struct call call = {
		"rekey", 3, 3, { "parents", "keys", "blocks", "was", "flags", "timeout", "since" }
	};
	struct array parents = { 0 }, keys = { 0 }, blocks = { 0 }, was = { 0 };
	struct gpc_publish_options opt = { .size = sizeof(opt) };
	PyObject *a[MAX_ARGS], *ret = NULL;
	bool flat, any;
	uint32_t flags = 0;
	int timeout = -1, r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	flat = a[0] == Py_None;
	any = !a[3] || a[3] == Py_None;
	if (array_keys(a[1], "keys", &keys) == 0 && array_blocks(a[2], "blocks", &blocks) == 0 &&
	    array_same("keys", &keys, "blocks", &blocks) &&
	    (flat || (array_keys(a[0], "parents", &parents) == 0 &&
		      array_same("parents", &parents, "keys", &keys))) &&
	    (any ||
	     (array_keys(a[3], "was", &was) == 0 && array_same("was", &was, "keys", &keys))) &&
	    args_u32(a[4], "flags", &flags) == 0 && args_time(a[5], "timeout", &timeout) == 0 &&
	    args_u64(a[6], "since", &opt.since) == 0 && handle_enter((Cache *)self) == 0) {
		gpc *c = ((Cache *)self)->c;

		WAIT(r, r = gpc_rekey(c, any ? NULL : was.p, flat ? NULL : parents.p, keys.p,
				      blocks.p, blocks.n, &opt, flags, timeout));
		ret = wait_number(r);
		handle_leave((Cache *)self);
	}
	array_free(&parents);
	array_free(&keys);
	array_free(&blocks);
	array_free(&was);
	return ret;
}

static METHOD(fill_returned)
{
	static const struct call call = { "returned", 2, 2, { "pool", "n", "timeout", "out" } };
	struct array out = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t count = 0;
	int pool = 0, timeout = -1, r;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (args_int(a[0], "pool", &pool) == 0 && args_u32(a[1], "n", &count) == 0 &&
	    args_time(a[2], "timeout", &timeout) == 0 &&
	    array_out(a[3], "out", count, 4, &out) == 0 && handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		r = (int)handle_take_over((Cache *)self, pool, out.p, count);
		if (r)
			; /* told late, and all at once */
		else if (timeout)
			WAIT(r, r = gpc_returned(c, pool, out.p, count, timeout));
		else
			r = gpc_returned(c, pool, out.p, count, 0);
		if (r < 0)
			ret = error_raise(r);
		else if (!wait_raised(r))
			ret = array_give(&out, r);
		if (!ret && r > 0)
			handle_leave_over((Cache *)self, out.p, (uint32_t)r);
		handle_leave((Cache *)self);
	}
	array_free(&out);
	return ret;
}

/* ---- drop ---- */

static METHOD(fill_drop)
{
	static const struct call call = { "drop", 1, 1, { "blocks", "flags", "timeout" } };
	struct array blocks = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t flags = 0;
	gpc_ticket ticket = 0;
	int timeout = -1, r;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (array_blocks(a[0], "blocks", &blocks) == 0 && args_u32(a[1], "flags", &flags) == 0 &&
	    args_time(a[2], "timeout", &timeout) == 0 && handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		WAIT(r, r = gpc_drop(c, blocks.p, blocks.n, &ticket, flags, timeout));
		if (r < 0)
			ret = error_raise_ticket(r, ticket);
		else if (!wait_raised(r))
			ret = timeout ? PyLong_FromLong(r) : PyLong_FromUnsignedLongLong(ticket);
		handle_leave((Cache *)self);
	}
	array_free(&blocks);
	return ret;
}

static METHOD(fill_drops)
{
	static const struct call call = { "drops", 0, 0, { NULL } };
	PyObject *a[MAX_ARGS], *ret;

	if (args_parse(&call, args, n, kwnames, a) < 0 || handle_enter((Cache *)self) < 0)
		return NULL;
	ret = PyLong_FromUnsignedLongLong(gpc_drops(((Cache *)self)->c));
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(fill_dropped)
{
	static const struct call call = { "dropped", 2, 2, { "since", "keys" } };
	struct array keys = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint64_t since = 0;
	gpc *c;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (args_u64(a[0], "since", &since) == 0 && array_keys(a[1], "keys", &keys) == 0 &&
	    handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		FREELY(r = gpc_dropped(c, since, keys.p, keys.n));
		ret = r < 0 ? error_raise(r) : PyLong_FromLong(r);
		handle_leave((Cache *)self);
	}
	array_free(&keys);
	return ret;
}

/* ---- tickets ---- */

/* Memory that is kept for these tickets may go once the wait has ended well.  Memory that was kept
 * while it ran has newer tickets than the last one before it. */
static int wait_ticket(Cache *self, gpc_ticket t, int timeout)
{
	gpc_ticket last = t == GPC_TICKET_ALL ? gpc_ticket_last(self->c) : t;
	gpc *c = self->c;
	int r;

	WAIT(r, r = gpc_ticket_wait(c, t, timeout));
	if (r >= 0)
		handle_unkeep(self, last);
	return r;
}

static METHOD(fill_ticket_wait)
{
	static const struct call call = { "ticket_wait", 2, 0, { "ticket", "timeout" } };
	PyObject *a[MAX_ARGS], *ret = NULL;
	gpc_ticket t = GPC_TICKET_ALL;
	int timeout = -1, r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (args_u64(a[0], "ticket", &t) == 0 && args_time(a[1], "timeout", &timeout) == 0 &&
	    handle_enter((Cache *)self) == 0) {
		r = wait_ticket((Cache *)self, t, timeout);
		ret = r < 0 ? error_raise(r) : Py_NewRef(Py_None);
		handle_leave((Cache *)self);
	}
	return ret;
}

static METHOD(fill_ticket_last)
{
	static const struct call call = { "ticket_last", 0, 0, { NULL } };
	PyObject *a[MAX_ARGS], *ret;

	if (args_parse(&call, args, n, kwnames, a) < 0 || handle_enter((Cache *)self) < 0)
		return NULL;
	ret = PyLong_FromUnsignedLongLong(gpc_ticket_last(((Cache *)self)->c));
	handle_leave((Cache *)self);
	return ret;
}

const PyMethodDef methods_fill[] = {
	ROW("reserve", fill_reserve,
	    "$self, pool, n, *, headroom=0, flags=0, timeout=None, out=None",
	    "n blocks to write to, all or none: their list.  With out, an int32 buffer, "
	    "how many.\n"
	    "flags: PARTIAL."
	    "\n"
	    "n: from 0.  headroom: so many blocks stay free behind it.  gpc.NoSpace: there are not so many,\n"
	    "nor can be evicted, or the quota is used up." TIMES),
	ROW("publish", publish_call,
	    "$self, parents, keys, blocks, *, tag=0, group=0, tokens=None, digests=None, "
	    "digest_size=None, flags=0, timeout=None, resident=None, since=0",
	    "Reservations become references.  parents: a key each, all zero = none; or "
	    "None: no chain.\n"
	    "How many are live in the blocks named.  resident=True: instead a list of what "
	    "became of each:\n"
	    "the block itself, the block that has the key already (then referenced for "
	    "you, and yours\n"
	    "stays reserved), or a negative errno.  resident=buffer, of int32: it gets "
	    "this.\n"
	    "timeout=0 submits and returns the ticket; the buffer is filled when "
	    "ticket_wait(ticket) has\n"
	    "returned.  The same after TimedOut and NotConnected, which have the ticket as "
	    "an attribute.\n"
	    "flags: NO_REF, to publish and forget: nothing is referenced for you.\n"
	    "since: drops() of before the request looked: what follows from bytes dropped "
	    "since is refused."
	    "\n"
	    "tag, group: 32 bits.  tokens: block_tokens of each block, 0 to 4294967295.  gpc.Stale, gpc.Denied ... of each item\n"
	    "are in resident, and gpc.last_error() has the first." TIMES),
	ROW("drop", fill_drop, "$self, blocks, *, flags=0, timeout=None",
	    "Bytes are bad: unfindable now, with all descendants.  How many were dropped; "
	    "with timeout=0 the ticket.\n"
	    "flags: EVERYWHERE, the key in every space: of bytes that were computed "
	    "wrongly.\n"
	    "ONLY, the key alone, of bytes that no load got through its checksum: what follows it stays."
	    "\n"
	    "gpc.Stale: the pool of a block has gone." TIMES),
	ROW("drops", fill_drops, "$self",
	    "A mark in time: ask before a request looks up or loads anything, and publish "
	    "with it as since."),
	ROW("dropped", fill_dropped, "$self, since, keys",
	    "How many of these keys were dropped since drops() said that number."),
	ROW("evict", fill_evict, "$self, pool, n, *, flags=0, timeout=None, out=None",
	    "Least recent leaves without hold: their list; with out, how many.  flags: "
	    "TAKE, PEEK."
	    "\n"
	    "n: from 0, with PEEK at most 4096.  gpc.NotFound: no such pool." TIMES),
	ROW("reclaim", fill_reclaim, "$self, blocks, *, keys=None, flags=0, timeout=None",
	    "Chosen live blocks become reservations of yours, leaf first: of each 0 or a "
	    "negative errno.\n"
	    "keys: those that they are meant to have." TIMES),
	ROW("rekey", fill_rekey,
	    "$self, parents, keys, blocks, *, was=None, flags=0, timeout=None, since=0",
	    "Live blocks, each held by you alone or by nobody, get other keys, parents "
	    "before children: how\n"
	    "many did.  was: the keys that they are meant to have." TIMES),
	ROW("returned", fill_returned, "$self, pool, n, *, timeout=None, out=None",
	    "Owner only: up to n CALLER blocks of the pool (-1: of all such) that came "
	    "back.\n"
	    "Waits for the first one; an empty list = none in that time." TIMES),
	ROW("ticket_wait", fill_ticket_wait, "$self, ticket=18446744073709551615, timeout=None",
	    "Returns when the command and all before it are acknowledged." TIMES),
	ROW("ticket_last", fill_ticket_last, "$self",
	    "The ticket of the last command of this handle; 0 = none."),
	{ NULL, NULL, 0, NULL }
};
