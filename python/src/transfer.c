/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.c - copies, fetch and spill, and the state of transfers.
 * Tests: t/python/transfers.t */
#include "gpcpy.h"

/* ---- copy ---- */

static METHOD(transfer_copy)
{
	static const struct call call = { "copy", 1, 1, { "moves", "flags", "stream" } };
	struct array moves = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	gpc_transfer t = 0;
	void *stream = NULL;
	uint32_t flags = 0;
	gpc *c;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (record_array(&record_move, a[0], "moves", &moves) == 0 &&
	    args_u32(a[1], "flags", &flags) == 0 && args_stream(a[2], "stream", &stream) == 0 &&
	    handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		FREELY(r = gpc_copy(c, moves.p, moves.n, flags, stream, &t));
		ret = r < 0 ? error_raise_ticket(r, t) : PyLong_FromUnsignedLongLong(t);
		handle_leave((Cache *)self);
	}
	array_free(&moves);
	return ret;
}

/* ---- fetch ---- */

struct bring { /* fetch and spill */
	struct array in, ranks, out, moves, results;
	uint32_t flags, n, nmoves;
	int from, to, timeout;
	void *stream;
	gpc_transfer t;
};

static void bring_free(struct bring *p)
{
	array_free(&p->in);
	array_free(&p->ranks);
	array_free(&p->out);
	array_free(&p->moves);
	array_free(&p->results);
}

/* Reads ranks, and makes room for the moves that they cause. */
static int read_ranks(struct bring *p, PyObject *o, uint32_t *nranks, const int32_t **ranks)
{
	if (!o || o == Py_None)
		return 0;
	if (array_blocks(o, "ranks", &p->ranks) < 0 ||
	    array_out(NULL, "n", p->n, sizeof(struct gpc_move), &p->moves) < 0)
		return -1;
	*nranks = p->ranks.n;
	*ranks = p->ranks.p;
	return 0;
}

/* Returns (first, the transfer), and with ranks also the moves. */
static PyObject *give_bring(const struct bring *p, PyObject *first)
{
	PyObject *moves, *ret;

	if (!first || !p->moves.p)
		return first ? Py_BuildValue("(NK)", first, (unsigned long long)p->t) : NULL;
	moves = record_list(&record_move, p->moves.p, p->nmoves <= p->n ? p->nmoves : 0);
	ret = moves ? Py_BuildValue("(OKN)", first, (unsigned long long)p->t, moves) : NULL;
	Py_DECREF(first);
	return ret;
}

static PyObject *fetch(gpc *c, struct bring *p, struct gpc_fetch_options *opt)
{
	PyObject *ret;
	int r;

	opt->moves = p->moves.p;
	opt->nmoves = p->moves.p ? &p->nmoves : NULL;
	opt->results = p->results.p;
	WAIT(r, r = gpc_fetch(c, p->to, p->in.p, p->n, p->out.p, opt, p->flags, p->stream,
			      p->timeout, &p->t));
	if (r < 0)
		return error_raise(r);
	if (wait_raised(r)) {
		gpc_release(c, p->out.p, (uint32_t)r);
		return NULL;
	}
	ret = give_bring(p, array_give(&p->out, r));
	if (!ret && r > 0)
		gpc_release(c, p->out.p, (uint32_t)r);
	return ret;
}

static METHOD(transfer_fetch)
{
	static const struct call call = { "fetch",
					  2,
					  2,
					  { "to", "keys", "min", "most", "spaces", "stages",
					    "ranks", "results", "flags", "stream", "timeout",
					    "out" } };
	struct gpc_fetch_options opt = { .size = sizeof(opt) };
	struct bring p = { .timeout = -1 };
	PyObject *a[MAX_ARGS], *ret = NULL;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (args_int(a[0], "to", &p.to) < 0 || array_keys(a[1], "keys", &p.in) < 0 ||
	    args_u32(a[2], "min", &opt.min) < 0 || args_u32(a[3], "most", &opt.most) < 0 ||
	    args_u32(a[4], "spaces", &opt.spaces) < 0 || args_u32(a[5], "stages", &opt.stages) < 0)
		goto out;
	p.n = p.in.n;
	if (read_ranks(&p, a[6], &opt.nranks, &opt.ranks) < 0 ||
	    (a[7] && a[7] != Py_None && array_out(a[7], "results", p.n, 4, &p.results) < 0) ||
	    args_u32(a[8], "flags", &p.flags) < 0 || args_stream(a[9], "stream", &p.stream) < 0 ||
	    args_time(a[10], "timeout", &p.timeout) < 0 ||
	    array_out(a[11], "out", p.n, 4, &p.out) < 0)
		goto out;
	if (handle_enter((Cache *)self) == 0) {
		ret = fetch(((Cache *)self)->c, &p, &opt);
		handle_leave((Cache *)self);
	}
out:
	bring_free(&p);
	return ret;
}

/* ---- spill ---- */

static PyObject *spill(gpc *c, struct bring *p, struct gpc_spill_options *opt)
{
	int r;

	opt->moves = p->moves.p;
	opt->nmoves = p->moves.p ? &p->nmoves : NULL;
	WAIT(r, r = gpc_spill(c, p->from, p->to, p->in.p, p->n, opt, p->flags, p->stream,
			      p->timeout, &p->t));
	return give_bring(p, wait_number(r));
}

static METHOD(transfer_spill)
{
	static const struct call call = { "spill",
					  4,
					  3,
					  { "source", "to", "blocks", "n", "ranks", "flags",
					    "stream", "timeout" } };
	struct gpc_spill_options opt = { .size = sizeof(opt) };
	struct bring p = { .timeout = -1, .to = -1 };
	PyObject *a[MAX_ARGS], *ret = NULL;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (args_int(a[0], "source", &p.from) < 0 || args_int(a[1], "to", &p.to) < 0 ||
	    (a[2] != Py_None && array_blocks(a[2], "blocks", &p.in) < 0) ||
	    args_u32(a[3], "n", &p.n) < 0)
		goto out;
	if (a[2] != Py_None)
		p.n = p.in.n;
	if (read_ranks(&p, a[4], &opt.nranks, &opt.ranks) < 0 ||
	    args_u32(a[5], "flags", &p.flags) < 0 || args_stream(a[6], "stream", &p.stream) < 0 ||
	    args_time(a[7], "timeout", &p.timeout) < 0)
		goto out;
	if (handle_enter((Cache *)self) == 0) {
		ret = spill(((Cache *)self)->c, &p, &opt);
		handle_leave((Cache *)self);
	}
out:
	bring_free(&p);
	return ret;
}

static METHOD(transfer_spill_ahead)
{
	static const struct call call = { "spill_ahead", 1, 1, { "pool", "stream", "timeout" } };
	struct bring p = { .timeout = -1 };
	PyObject *a[MAX_ARGS], *ret;
	gpc *c;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_int(a[0], "pool", &p.from) < 0 ||
	    args_stream(a[1], "stream", &p.stream) < 0 ||
	    args_time(a[2], "timeout", &p.timeout) < 0 || handle_enter((Cache *)self) < 0)
		return NULL;
	c = ((Cache *)self)->c;
	WAIT(r, r = gpc_spill_ahead(c, p.from, p.stream, p.timeout, &p.t));
	ret = give_bring(&p, wait_number(r));
	handle_leave((Cache *)self);
	return ret;
}

/* ---- streams ---- */

static METHOD(transfer_order)
{
	static const struct call call = { "order", 3, 3, { "transfer", "stage", "stream" } };
	PyObject *a[MAX_ARGS], *ret;
	gpc_transfer t = 0;
	uint32_t stage = 0;
	void *stream = NULL;
	gpc *c;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_u64(a[0], "transfer", &t) < 0 ||
	    args_u32(a[1], "stage", &stage) < 0 || args_stream(a[2], "stream", &stream) < 0 ||
	    handle_enter((Cache *)self) < 0)
		return NULL;
	c = ((Cache *)self)->c;
	FREELY(r = gpc_order(c, t, stage, stream));
	ret = r < 0 ? error_raise(r) : Py_NewRef(Py_None);
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(transfer_release_after)
{
	static const struct call call = { "release_after", 2, 2, { "blocks", "stream" } };
	struct array blocks = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	void *stream = NULL;
	gpc *c;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (array_blocks(a[0], "blocks", &blocks) == 0 &&
	    args_stream(a[1], "stream", &stream) == 0 && handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		FREELY(r = gpc_release_after(c, blocks.p, blocks.n, stream));
		ret = r < 0 ? error_raise(r) : Py_NewRef(Py_None);
		handle_leave((Cache *)self);
	}
	array_free(&blocks);
	return ret;
}

static METHOD(transfer_mark)
{
	static const struct call call = { "transfer_mark", 3, 3, { "peer", "transfer", "stream" } };
	PyObject *a[MAX_ARGS], *ret;
	gpc_transfer t = 0;
	void *stream = NULL;
	int peer = 0, r;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_int(a[0], "peer", &peer) < 0 ||
	    args_u64(a[1], "transfer", &t) < 0 || args_stream(a[2], "stream", &stream) < 0 ||
	    handle_enter((Cache *)self) < 0)
		return NULL;
	c = ((Cache *)self)->c;
	FREELY(r = gpc_transfer_mark(c, peer, t, stream));
	ret = r < 0 ? error_raise(r) : Py_NewRef(Py_None);
	handle_leave((Cache *)self);
	return ret;
}

/* ---- the end of a transfer ---- */

static METHOD(transfer_wait)
{
	static const struct call call = { "transfer_wait", 2, 0, { "transfer", "timeout" } };
	gpc_transfer t = GPC_TRANSFER_ALL;
	PyObject *a[MAX_ARGS], *ret;
	int timeout = -1, r;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_u64(a[0], "transfer", &t) < 0 ||
	    args_time(a[1], "timeout", &timeout) < 0 || handle_enter((Cache *)self) < 0)
		return NULL;
	c = ((Cache *)self)->c;
	WAIT(r, r = gpc_transfer_wait(c, t, timeout));
	ret = r < 0 ? error_raise(r) : Py_NewRef(Py_None);
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(transfer_fd)
{
	static const struct call call = { "transfer_fd", 1, 1, { "transfer" } };
	gpc_transfer t = 0;
	PyObject *a[MAX_ARGS], *ret;
	gpc *c;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_u64(a[0], "transfer", &t) < 0 ||
	    handle_enter((Cache *)self) < 0)
		return NULL;
	c = ((Cache *)self)->c;
	FREELY(r = gpc_transfer_fd(c, t));
	ret = r < 0 ? error_raise(r) : PyLong_FromLong(r);
	handle_leave((Cache *)self);
	return ret;
}

static METHOD(transfer_results)
{
	static const struct call call = { "transfer_results", 1, 1, { "transfer", "n", "out" } };
	struct array out = { 0 };
	gpc_transfer t = 0;
	uint32_t count = GPC_TRANSFER_BLOCKS;
	PyObject *a[MAX_ARGS], *ret = NULL;
	gpc *c;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (args_u64(a[0], "transfer", &t) == 0 && args_u32(a[1], "n", &count) == 0 &&
	    array_out(a[2], "out", count, 4, &out) == 0 && handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		FREELY(r = gpc_transfer_results(c, t, out.p, out.n));
		if (r < 0)
			ret = error_raise(r);
		else
			ret = array_give(&out, out.own && (uint32_t)r > out.n ? (int)out.n : r);
		handle_leave((Cache *)self);
	}
	array_free(&out);
	return ret;
}

const PyMethodDef methods_transfer[] = {
	ROW("copy", transfer_copy, "$self, moves, *, flags=0, stream=None",
	    "Copy the images in the order of the stream; returns the transfer at once."
	    "\n"
	    "gpc.Denied: a block of a move is not held."),
	ROW("fetch", transfer_fetch,
	    "$self, to, keys, *, min=0, most=0, spaces=0, stages=0, ranks=None, "
	    "results=None, flags=0, stream=None, timeout=None, out=None",
	    "The longest prefix of one prompt, wherever it is, in blocks of the pool to: "
	    "(their list, the\n"
	    "transfer or 0).  With out, an int32 buffer, its length instead of the list.  "
	    "results: an int32\n"
	    "buffer that gets 0 or a negative errno of each key.  With ranks, a list of "
	    "peers that make the\n"
	    "copies: (list, transfer, moves).  flags: VERIFY_FIRST."
	    "\n"
	    "min, most: blocks, 0 = any number.  stages: 0 to 16.  gpc.Stale: the pool has gone.\n"
	    "gpc.NotFound: fewer than min can be had.  gpc.NoSpace: the first has to be copied, and to has no room." TIMES
		    SPACES),
	ROW("spill", transfer_spill,
	    "$self, source, to, blocks, n=0, *, ranks=None, flags=0, stream=None, "
	    "timeout=None",
	    "Move live blocks of the pool source, leaf first (None: its n least recent "
	    "leaves), to the pool\n"
	    "to (-1: its demote_to): (how many are on their way, the transfer).  With "
	    "ranks: and the moves.\n"
	    "flags: COPY."
	    "\n"
	    "gpc.NoSpace: no leaf can go, or no room in to.  gpc.Denied: the first has children that stay." TIMES),
	ROW("spill_ahead", transfer_spill_ahead, "$self, pool, *, stream=None, timeout=None",
	    "One step of the pool's policy: (how many are on their way, the transfer)."
	    "\n"
	    "gpc.NoSpace: none of those that are due can go." TIMES),
	ROW("order", transfer_order, "$self, transfer, stage, stream",
	    "The stream goes on when that stage of the transfer has been copied."),
	ROW("release_after", transfer_release_after, "$self, blocks, stream",
	    "release when the stream gets here."),
	ROW("transfer_mark", transfer_mark, "$self, peer, transfer, stream",
	    "This rank of that peer's transfer has given its copies to the stream."),
	ROW("transfer_wait", transfer_wait, "$self, transfer=18446744073709551615, timeout=None",
	    "Returns when the bytes are there, and a fetch or spill is committed."
	    "\n"
	    "EBADMSG: a checksum is wrong.  gpc.NotConnected: it needs the writer, and there is none." TIMES),
	ROW("transfer_fd", transfer_fd, "$self, transfer",
	    "A new descriptor, readable once the transfer has ended; close it with "
	    "os.close."),
	ROW("transfer_results", transfer_results, "$self, transfer, n=1024, *, out=None",
	    "0 or a negative errno of each copied block; with out how many there are."),
	{ NULL, NULL, 0, NULL }
};
