/* SPDX-License-Identifier: Apache-2.0 */
/* claim.c - claims: which process computes a key that many want.
 * Tests: t/python/transfers.t t/python/interrupt.t */
#include "gpcpy.h"

/* Gives back claims that were made, when the caller will not hear of them. */
static void claims_back(gpc *c, const struct array *blocks, const struct gpc_claim *claims)
{
	const gpc_block *b = blocks->p;
	uint32_t i;

	for (i = 0; i < blocks->n; i++)
		if (claims[i].state == GPC_CLAIM_MINE)
			gpc_claim_drop(c, &b[i], 1, 0);
}

static METHOD(claim_claim)
{
	static const struct call call = { "claim", 2, 2, { "keys", "blocks", "flags", "timeout" } };
	struct array keys = { 0 }, blocks = { 0 }, out = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t flags = 0;
	int timeout = -1, r;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (array_keys(a[0], "keys", &keys) == 0 && array_blocks(a[1], "blocks", &blocks) == 0 &&
	    array_same("keys", &keys, "blocks", &blocks) && args_u32(a[2], "flags", &flags) == 0 &&
	    args_time(a[3], "timeout", &timeout) == 0 &&
	    array_out(NULL, "keys", keys.n, sizeof(struct gpc_claim), &out) == 0 &&
	    handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		if (flags & GPC_PEEK) /* the call waits for nothing */
			r = gpc_claim(c, keys.p, blocks.p, keys.n, out.p, flags, timeout);
		else
			WAIT(r, r = gpc_claim(c, keys.p, blocks.p, keys.n, out.p, flags, timeout));
		if (r < 0)
			ret = error_raise(r);
		else if (!wait_raised(r))
			ret = record_list(&record_claim, out.p, keys.n);
		if (!ret && r >= 0 && !(flags & GPC_PEEK))
			claims_back(c, &blocks, out.p);
		handle_leave((Cache *)self);
	}
	array_free(&keys);
	array_free(&blocks);
	array_free(&out);
	return ret;
}

static METHOD(claim_wait)
{
	static const struct call call = { "claim_wait", 2, 1, { "claims", "timeout" } };
	struct array claims = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	int timeout = -1, r;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (record_array(&record_claim, a[0], "claims", &claims) == 0 &&
	    args_time(a[1], "timeout", &timeout) == 0 && handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		WAIT(r, r = gpc_claim_wait(c, claims.p, claims.n, timeout));
		ret = r < 0 ? error_raise(r) : PyLong_FromLong(r);
		handle_leave((Cache *)self);
	}
	array_free(&claims);
	return ret;
}

static METHOD(claim_drop)
{
	static const struct call call = { "claim_drop", 1, 1, { "blocks", "timeout" } };
	struct array blocks = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	int timeout = -1, r;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (array_blocks(a[0], "blocks", &blocks) == 0 &&
	    args_time(a[1], "timeout", &timeout) == 0 && handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		WAIT(r, r = gpc_claim_drop(c, blocks.p, blocks.n, timeout));
		ret = wait_number(r);
		handle_leave((Cache *)self);
	}
	array_free(&blocks);
	return ret;
}

const PyMethodDef methods_claim[] = {
	ROW("claim", claim_claim, "$self, keys, blocks, *, flags=0, timeout=None",
	    "blocks[i], reserved by you, is to have keys[i]: a list of Claim.  state: "
	    "CLAIM_MINE: publish it\n"
	    "in that block; CLAIM_LIVE: there is a block with it; CLAIM_PENDING: another "
	    "block is to have it."
	    "\n"
	    "gpc.Denied: a block that is not reserved by this handle." TIMES),
	ROW("claim_wait", claim_wait, "$self, claims, timeout=None",
	    "Sleeps until one of these pending claims has ended: which.  gpc.TimedOut, "
	    "gpc.Again: none has."
	    "\n"
	    "EDEADLK: this handle has open claims, or blocks reserved." TIMES),
	ROW("claim_drop", claim_drop, "$self, blocks, *, timeout=None",
	    "End these claims; the blocks stay reserved.  How many were claimed." TIMES),
	{ NULL, NULL, 0, NULL }
};
