/* SPDX-License-Identifier: Apache-2.0 */
/* find.c - lookups, references and releases.  They are wait-free, so they keep the GIL, unless a
 * device is asked.
 * Tests: t/python/module.t */
#include "gpcpy.h"

#include <string.h>

#define ON_DEVICE (GPC_ANYWHERE | GPC_DEVICE)

/* ---- lookup ---- */

static METHOD(find_lookup)
{
	static const struct call call = { "lookup", 1, 1, { "keys", "spaces", "flags", "out" } };
	struct array keys = { 0 }, out = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t spaces = 0, flags = 0;
	gpc *c;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (array_keys(a[0], "keys", &keys) < 0 || args_u32(a[1], "spaces", &spaces) < 0 ||
	    args_u32(a[2], "flags", &flags) < 0 || array_out(a[3], "out", keys.n, 4, &out) < 0 ||
	    handle_enter((Cache *)self) < 0)
		goto out;
	c = ((Cache *)self)->c;
	if (flags & ON_DEVICE)
		FREELY(r = gpc_lookup(c, spaces, keys.p, keys.n, out.p, flags));
	else
		r = gpc_lookup(c, spaces, keys.p, keys.n, out.p, flags);
	if (r < 0)
		ret = error_raise(r);
	else
		ret = array_give(&out, out.own ? (int)keys.n : r);
	handle_leave((Cache *)self);
out:
	array_free(&keys);
	array_free(&out);
	return ret;
}

/* ---- match ---- */

static bool is_start(const struct array *start, uint32_t n)
{
	const uint32_t *s = start->p;
	uint32_t i;

	for (i = 0; i < start->n; i++) {
		if (s[i] <= n && (i == 0 || s[i - 1] <= s[i]))
			continue;
		PyErr_Format(PyExc_ValueError,
			     "start[%lu] is %lu: it must ascend to at most %lu, the number of keys",
			     (unsigned long)i, (unsigned long)s[i], (unsigned long)n);
		return false;
	}
	if (start->n)
		return true;
	PyErr_SetString(PyExc_ValueError,
			"start is empty: it has one item more than there are sequences");
	return false;
}

/* A list of blocks for each sequence. */
static PyObject *list_matches(const struct array *start, const uint32_t *len, const int32_t *blocks)
{
	const uint32_t *s = start->p;
	PyObject *list = PyList_New((Py_ssize_t)start->n - 1), *v;
	uint32_t i;

	for (i = 0; list && i + 1 < start->n; i++) {
		v = array_list(blocks + s[i], len[i]);
		if (!v || PyList_SetItem(list, (Py_ssize_t)i, v) < 0)
			Py_CLEAR(list);
	}
	return list;
}

static METHOD(find_match)
{
	static const struct call call = {
		"match", 2, 2, { "keys", "start", "spaces", "flags", "lens", "out" }
	};
	struct array keys = { 0 }, start = { 0 }, lens = { 0 }, out = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t spaces = 0, flags = 0, nseq;
	gpc *c;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (array_keys(a[0], "keys", &keys) < 0 || array_words(a[1], "start", &start) < 0 ||
	    args_u32(a[2], "spaces", &spaces) < 0 || args_u32(a[3], "flags", &flags) < 0 ||
	    !is_start(&start, keys.n) || array_out(a[4], "lens", start.n - 1, 4, &lens) < 0 ||
	    array_out(a[5], "out", keys.n, 4, &out) < 0 || handle_enter((Cache *)self) < 0)
		goto out;
	nseq = start.n - 1;
	c = ((Cache *)self)->c;
	if (flags & ON_DEVICE)
		FREELY(r = gpc_match(c, spaces, keys.p, start.p, nseq, lens.p, out.p, flags));
	else
		r = gpc_match(c, spaces, keys.p, start.p, nseq, lens.p, out.p, flags);
	if (r < 0)
		ret = error_raise(r);
	else
		ret = lens.own ? list_matches(&start, lens.p, out.p) : PyLong_FromLong(r);
	handle_leave((Cache *)self);
out:
	array_free(&keys);
	array_free(&start);
	array_free(&lens);
	array_free(&out);
	return ret;
}

/* ---- groups ---- */

struct groups {
	uint32_t n;
	struct gpc_group g[GPC_MAX_GROUPS];
	struct array keys[GPC_MAX_GROUPS], out[GPC_MAX_GROUPS];
};

/* A tuple of keys, block_tokens and last. */
static int group_read(PyObject *o, struct groups *to)
{
	struct gpc_group *g = &to->g[to->n];
	struct array *keys = &to->keys[to->n], *out = &to->out[to->n];
	PyObject *items = PySequence_Tuple(o);
	int r = -1;

	*g = (struct gpc_group){ .size = sizeof(*g) };
	to->n++;
	if (items && PyTuple_Size(items) != 3)
		PyErr_SetString(PyExc_TypeError,
				"groups: tuples of keys, block_tokens and last are wanted");
	else if (items && array_keys(PyTuple_GetItem(items, 0), "keys", keys) == 0 &&
		 args_u32(PyTuple_GetItem(items, 1), "block_tokens", &g->block_tokens) == 0 &&
		 args_u32(PyTuple_GetItem(items, 2), "last", &g->last) == 0 &&
		 array_out(NULL, "blocks", keys->n, 4, out) == 0)
		r = 0;
	g->n = keys->n;
	g->keys = keys->p;
	g->blocks = out->p;
	Py_XDECREF(items);
	return r;
}

static int groups_read(PyObject *o, struct groups *to)
{
	PyObject *items = PySequence_Tuple(o);
	Py_ssize_t i, n = items ? PyTuple_Size(items) : 0;
	int r = items ? 0 : -1;

	if (n > GPC_MAX_GROUPS) {
		PyErr_Format(PyExc_ValueError, "groups: %zd of them, at most %d are", n,
			     GPC_MAX_GROUPS);
		r = -1;
	}
	for (i = 0; r == 0 && i < n; i++)
		r = group_read(PyTuple_GetItem(items, i), to);
	Py_XDECREF(items);
	return r;
}

static void groups_free(struct groups *to)
{
	uint32_t i;

	for (i = 0; i < to->n; i++) {
		array_free(&to->keys[i]);
		array_free(&to->out[i]);
	}
	PyMem_Free(to);
}

static PyObject *groups_list(const struct groups *from)
{
	PyObject *list = PyList_New((Py_ssize_t)from->n), *v;
	uint32_t i;

	for (i = 0; list && i < from->n; i++) {
		v = array_list(from->g[i].blocks, from->g[i].n);
		if (!v || PyList_SetItem(list, (Py_ssize_t)i, v) < 0)
			Py_CLEAR(list);
	}
	return list;
}

/* There is no memory for the list of held blocks, so they are given back. */
static PyObject *groups_give(gpc *c, const struct groups *from, int len, bool held)
{
	PyObject *list = groups_list(from), *ret = list ? Py_BuildValue("(iN)", len, list) : NULL;
	uint32_t i;

	for (i = 0; !ret && held && i < from->n; i++)
		gpc_release(c, from->g[i].blocks, from->g[i].n);
	return ret;
}

static METHOD(find_match_groups)
{
	static const struct call call = {
		"match_groups", 1, 1, { "groups", "spaces", "multiple", "flags" }
	};
	struct gpc_match_options opt = { .size = sizeof(opt) };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t spaces = 0, flags = 0;
	struct groups *groups;
	gpc *c;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	groups = PyMem_Calloc(1, sizeof(*groups));
	if (!groups)
		return PyErr_NoMemory();
	if (groups_read(a[0], groups) == 0 && args_u32(a[1], "spaces", &spaces) == 0 &&
	    args_u32(a[2], "multiple", &opt.multiple) == 0 &&
	    args_u32(a[3], "flags", &flags) == 0 && handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		r = gpc_match_groups(c, spaces, groups->g, groups->n, &opt, flags);
		ret = r < 0 ? error_raise(r) : groups_give(c, groups, r, flags & GPC_REF);
		handle_leave((Cache *)self);
	}
	groups_free(groups);
	return ret;
}

/* ---- acquire ---- */

/* There is no memory for the list of held blocks, so they are given back. */
static PyObject *give_held(gpc *c, const struct array *out, int r)
{
	PyObject *ret = array_give(out, r);

	if (!ret && r > 0)
		gpc_release(c, out->p, (uint32_t)r);
	return ret;
}

static METHOD(find_acquire)
{
	static const struct call call = { "acquire", 1, 1, { "keys", "spaces", "flags", "out" } };
	struct array keys = { 0 }, out = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t spaces = 0, flags = 0;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (array_keys(a[0], "keys", &keys) == 0 && args_u32(a[1], "spaces", &spaces) == 0 &&
	    args_u32(a[2], "flags", &flags) == 0 && array_out(a[3], "out", keys.n, 4, &out) == 0 &&
	    handle_enter((Cache *)self) == 0) {
		r = gpc_acquire(((Cache *)self)->c, spaces, keys.p, keys.n, out.p, flags);
		ret = r < 0 ? error_raise(r) : give_held(((Cache *)self)->c, &out, r);
		handle_leave((Cache *)self);
	}
	array_free(&keys);
	array_free(&out);
	return ret;
}

static PyObject *prefix(gpc *c, const struct array *digests, uint32_t bytes, uint32_t group,
			uint32_t spaces, uint32_t flags, PyObject *to)
{
	struct array keys = { 0 }, out = { 0 };
	PyObject *ret = NULL;
	int r;

	if (array_out(NULL, "digests", digests->n, sizeof(gpc_key), &keys) == 0 &&
	    array_out(to, "out", digests->n, 4, &out) == 0) {
		r = gpc_key_import(c, digests->p, bytes, bytes, digests->n, group, keys.p);
		if (r >= 0)
			r = gpc_acquire(c, spaces, keys.p, digests->n, out.p, flags);
		ret = r < 0 ? error_raise(r) : give_held(c, &out, r);
	}
	array_free(&keys);
	array_free(&out);
	return ret;
}

static METHOD(find_prefix)
{
	static const struct call call = {
		"prefix", 1, 1, { "digests", "size", "group", "spaces", "flags", "out" }
	};
	struct array digests = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t bytes, group = 0, spaces = 0, flags = 0;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (array_digests(a[0], "digests", a[1], &digests, &bytes) == 0 &&
	    args_u32(a[2], "group", &group) == 0 && args_u32(a[3], "spaces", &spaces) == 0 &&
	    args_u32(a[4], "flags", &flags) == 0 && handle_enter((Cache *)self) == 0) {
		ret = prefix(((Cache *)self)->c, &digests, bytes, group, spaces, flags, a[5]);
		handle_leave((Cache *)self);
	}
	array_free(&digests);
	return ret;
}

/* ---- references ---- */

static METHOD(find_ref)
{
	static const struct call call = { "ref", 2, 2, { "keys", "blocks" } };
	struct array keys = { 0 }, blocks = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (array_keys(a[0], "keys", &keys) == 0 && array_blocks(a[1], "blocks", &blocks) == 0 &&
	    array_same("keys", &keys, "blocks", &blocks) && handle_enter((Cache *)self) == 0) {
		r = gpc_ref(((Cache *)self)->c, keys.p, blocks.p, keys.n);
		ret = r < 0 ? error_raise(r) : PyLong_FromLong(r);
		handle_leave((Cache *)self);
	}
	array_free(&keys);
	array_free(&blocks);
	return ret;
}

static METHOD(find_release)
{
	static const struct call call = { "release", 1, 1, { "blocks" } };
	struct array blocks = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (array_blocks(a[0], "blocks", &blocks) == 0 && handle_enter((Cache *)self) == 0) {
		r = gpc_release(((Cache *)self)->c, blocks.p, blocks.n);
		ret = r < 0 ? error_raise(r) : Py_NewRef(Py_None);
		handle_leave((Cache *)self);
	}
	array_free(&blocks);
	return ret;
}

const PyMethodDef methods_find[] = {
	ROW("lookup", find_lookup, "$self, keys, *, spaces=0, flags=0, out=None",
	    "Each key by itself: a list of blocks, -1 for a miss.  With out, an int32 "
	    "buffer, the hits.\n"
	    "Hints, unless flags has REF.  QUIET, REF, ANYWHERE, DEVICE."
	    "\n"
	    "A key is 16 bytes; a block is 0 to 2147483647." SPACES),
	ROW("match", find_match, "$self, keys, start, *, spaces=0, flags=0, lens=None, out=None",
	    "The longest prefix of each sequence keys[start[i]:start[i + 1]]: a list of "
	    "blocks for each.\n"
	    "With lens, a uint32 buffer of their lengths, and out, an int32 buffer as long "
	    "as keys: the sum of lens.\n"
	    "Hints.  QUIET, ANYWHERE, DEVICE." SPACES),
	ROW("match_groups", find_match_groups, "$self, groups, *, spaces=0, multiple=0, flags=0",
	    "The longest prefix that all KV groups of a prompt can go on from: its length "
	    "in tokens, and for\n"
	    "each group a list of blocks as long as its keys, -1 where none is needed.  "
	    "groups: tuples of keys,\n"
	    "block_tokens (0 = the cache's) and last (of a prefix, so many tokens at its "
	    "end are needed; 0 = all).\n"
	    "Hints, unless flags has REF.  QUIET, REF." SPACES),
	ROW("acquire", find_acquire, "$self, keys, *, spaces=0, flags=0, out=None",
	    "The longest prefix of one prompt, referenced: a list of its blocks.  With "
	    "out, an int32\n"
	    "buffer, its length.  QUIET."
	    "\n"
	    "gpc.Error (EOVERFLOW): 32768 references of this peer on one block." SPACES),
	ROW("prefix", find_prefix,
	    "$self, digests, *, size=None, group=0, spaces=0, flags=0, out=None",
	    "acquire(key_import(digests)) in one call." SPACES),
	ROW("ref", find_ref, "$self, keys, blocks",
	    "Hints to references, verified; how many were taken: it stops at the first "
	    "stale one."),
	ROW("release", find_release, "$self, blocks",
	    "One hold less on each, root first; -1 is skipped.  gpc.Denied: a block that "
	    "is not held;\n"
	    "the others are released."),
	{ NULL, NULL, 0, NULL }
};
