/* SPDX-License-Identifier: Apache-2.0 */
/* move.c - moves between tiers, both halves: demote, promote, commit.
 * Tests: t/python/transfers.t t/python/interrupt.t */
#include "gpcpy.h"

/* Moves that were begun are cancelled when the caller will not hear of them. */
static PyObject *give_moves(gpc *c, const struct array *moves, int r)
{
	struct array out = { 0 };
	PyObject *ret = NULL;

	if (r < 0)
		return error_raise(r);
	if (!wait_raised(r))
		ret = record_list(&record_move, moves->p, (size_t)r);
	if (!ret && r > 0 && array_out(NULL, "moves", (size_t)r, 4, &out) == 0)
		gpc_commit(c, moves->p, (uint32_t)r, out.p, GPC_CANCEL, 0);
	array_free(&out);
	return ret;
}

static METHOD(move_demote)
{
	static const struct call call = {
		"demote", 4, 3, { "source", "to", "blocks", "n", "flags", "timeout" }
	};
	struct array blocks = { 0 }, moves = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t count = 0, flags = 0;
	int from = 0, to = -1, timeout = -1, r;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (args_int(a[0], "source", &from) < 0 || args_int(a[1], "to", &to) < 0 ||
	    (a[2] != Py_None && array_blocks(a[2], "blocks", &blocks) < 0) ||
	    args_u32(a[3], "n", &count) < 0 || args_u32(a[4], "flags", &flags) < 0 ||
	    args_time(a[5], "timeout", &timeout) < 0)
		goto out;
	if (a[2] != Py_None)
		count = blocks.n;
	if (array_out(NULL, "n", count, sizeof(struct gpc_move), &moves) < 0 ||
	    handle_enter((Cache *)self) < 0)
		goto out;
	c = ((Cache *)self)->c;
	WAIT(r, r = gpc_demote(c, from, to, blocks.p, count, moves.p, flags, timeout));
	ret = give_moves(c, &moves, r);
	handle_leave((Cache *)self);
out:
	array_free(&blocks);
	array_free(&moves);
	return ret;
}

static METHOD(move_promote)
{
	static const struct call call = { "promote", 2, 2, { "blocks", "to", "flags", "timeout" } };
	struct array blocks = { 0 }, moves = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	int to = 0, timeout = -1, r;
	uint32_t flags = 0;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (array_blocks(a[0], "blocks", &blocks) == 0 && args_int(a[1], "to", &to) == 0 &&
	    args_u32(a[2], "flags", &flags) == 0 && args_time(a[3], "timeout", &timeout) == 0 &&
	    array_out(NULL, "blocks", blocks.n, sizeof(struct gpc_move), &moves) == 0 &&
	    handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		WAIT(r, r = gpc_promote(c, blocks.p, blocks.n, to, moves.p, flags, timeout));
		ret = give_moves(c, &moves, r);
		handle_leave((Cache *)self);
	}
	array_free(&blocks);
	array_free(&moves);
	return ret;
}

static METHOD(move_commit)
{
	static const struct call call = { "commit", 1, 1, { "moves", "flags", "timeout", "out" } };
	struct array moves = { 0 }, out = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t flags = 0;
	int timeout = -1, r;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (record_array(&record_move, a[0], "moves", &moves) == 0 &&
	    args_u32(a[1], "flags", &flags) == 0 && args_time(a[2], "timeout", &timeout) == 0 &&
	    array_out(a[3], "out", moves.n, 4, &out) == 0 && handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		WAIT(r, r = gpc_commit(c, moves.p, moves.n, out.p, flags, timeout));
		if (r < 0)
			ret = error_raise(r);
		else if (!wait_raised(r))
			ret = array_give(&out, out.own ? (int)moves.n : r);
		handle_leave((Cache *)self);
	}
	array_free(&moves);
	array_free(&out);
	return ret;
}

const PyMethodDef methods_move[] = {
	ROW("demote", move_demote, "$self, source, to, blocks, n=0, *, flags=0, timeout=None",
	    "Begin moves of live blocks of the pool source, leaf first; blocks=None: of "
	    "its n least recent\n"
	    "leaves.  to=-1: the pool's demote_to.  A list of Move; to == -1 in one: "
	    "nothing to copy.  COPY."
	    "\n"
	    "gpc.NoSpace: none can go, or to is full.  gpc.Denied: the first has children that stay." TIMES),
	ROW("promote", move_promote, "$self, blocks, to, *, flags=0, timeout=None",
	    "Begin moves of blocks that the caller references, root first: a list of Move. "
	    " COPY."
	    "\n"
	    "gpc.NoSpace: to is full.  gpc.Denied: a block that is not held." TIMES),
	ROW("commit", move_commit, "$self, moves, *, flags=0, timeout=None, out=None",
	    "Copies are complete: a list with 0 or a negative errno for each.  With out, "
	    "an int32 buffer\n"
	    "that gets this: how many were committed.  CANCEL." TIMES),
	{ NULL, NULL, 0, NULL }
};
