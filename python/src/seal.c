/* SPDX-License-Identifier: Apache-2.0 */
/* seal.c - checksums of blocks that the caller fills and reads itself: seal, sealed, pool_seed.
 * Tests: t/python/memory.t */
#include "gpcpy.h"

/* A list of Sum, or a buffer of struct gpc_sum. */
static int read_sums(PyObject *o, struct array *a)
{
	if (!PyObject_CheckBuffer(o))
		return record_array(&record_sum, o, "sums", a);
	if (array_bytes(o, "sums", a) < 0)
		return -1;
	if (a->n % sizeof(struct gpc_sum)) {
		PyErr_Format(PyExc_ValueError, "sums: %lu bytes are no multiple of %d",
			     (unsigned long)a->n, (int)sizeof(struct gpc_sum));
		return -1;
	}
	a->n /= (uint32_t)sizeof(struct gpc_sum);
	return 0;
}

static METHOD(seal_seal)
{
	static const struct call call = { "seal", 4, 3, { "blocks", "keys", "sums", "part" } };
	struct array blocks = { 0 }, keys = { 0 }, sums = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t part = 0;
	gpc *c;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (array_blocks(a[0], "blocks", &blocks) == 0 && array_keys(a[1], "keys", &keys) == 0 &&
	    array_same("keys", &keys, "blocks", &blocks) && read_sums(a[2], &sums) == 0 &&
	    array_same("sums", &sums, "blocks", &blocks) && args_u32(a[3], "part", &part) == 0 &&
	    handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		FREELY(r = gpc_seal(c, blocks.p, keys.p, blocks.n, part, sums.p));
		ret = r < 0 ? error_raise(r) : Py_NewRef(Py_None);
		handle_leave((Cache *)self);
	}
	array_free(&blocks);
	array_free(&keys);
	array_free(&sums);
	return ret;
}

static METHOD(seal_sealed)
{
	static const struct call call = { "sealed", 3, 2, { "blocks", "keys", "part", "out" } };
	struct array blocks = { 0 }, keys = { 0 }, out = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t part = 0;
	gpc *c;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (array_blocks(a[0], "blocks", &blocks) == 0 && array_keys(a[1], "keys", &keys) == 0 &&
	    array_same("keys", &keys, "blocks", &blocks) && args_u32(a[2], "part", &part) == 0 &&
	    array_out(a[3], "out", blocks.n, sizeof(struct gpc_sum), &out) == 0 &&
	    handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		FREELY(r = gpc_sealed(c, blocks.p, keys.p, blocks.n, part, out.p));
		ret = r < 0     ? error_raise(r)
		      : out.own ? record_list(&record_sum, out.p, blocks.n)
				: PyLong_FromLong(r);
		handle_leave((Cache *)self);
	}
	array_free(&blocks);
	array_free(&keys);
	array_free(&out);
	return ret;
}

static METHOD(seal_seed)
{
	static const struct call call = { "pool_seed", 3, 3, { "pool", "part", "seed" } };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t part = 0, seed = 0;
	int pool = 0, r;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_int(a[0], "pool", &pool) < 0 ||
	    args_u32(a[1], "part", &part) < 0 || args_u32(a[2], "seed", &seed) < 0 ||
	    handle_enter((Cache *)self) < 0)
		return NULL;
	FREELY(r = gpc_pool_seed(((Cache *)self)->c, pool, part, seed));
	ret = r < 0 ? error_raise(r) : PyBool_FromLong(r);
	handle_leave((Cache *)self);
	return ret;
}

const PyMethodDef methods_seal[] = {
	ROW("seal", seal_seal, "$self, blocks, keys, sums, part=0",
	    "Sums of reserved blocks that the caller has filled: a Sum for each, or a buffer of\n"
	    "struct gpc_sum.  Before they are published under these keys."),
	ROW("sealed", seal_sealed, "$self, blocks, keys, part=0, *, out=None",
	    "The same of blocks that the caller holds: a list of Sum, whose result is 0 where something\n"
	    "is known.  With out, a buffer of 24 bytes for each: how many of these."),
	ROW("pool_seed", seal_seed, "$self, pool, part, seed",
	    "Images that come from below are to have that seed.  True: they were to have another one."),
	{ NULL, NULL, 0, NULL }
};
