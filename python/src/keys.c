/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c - keys from fields, tokens and digests, and aliases of keys.
 * Tests: t/python/module.t */
#include "gpcpy.h"

#include <string.h>

static PyObject *give_keys(const struct array *out, int r)
{
	if (!out->own)
		return PyLong_FromLong(r);
	return PyBytes_FromStringAndSize(out->p, (Py_ssize_t)r * (Py_ssize_t)sizeof(gpc_key));
}

/* ---- root ---- */

#define MAX_FIELDS 64

static int read_field(PyObject *o, struct gpc_field *f, struct array *data)
{
	PyObject *tag = PySequence_GetItem(o, 0), *value = tag ? PySequence_GetItem(o, 1) : NULL;
	uint32_t number = 0;
	int r = -1;

	if (value && args_u32(tag, "tag", &number) == 0 && array_bytes(value, "data", data) == 0) {
		if (number > UINT16_MAX)
			PyErr_Format(PyExc_ValueError,
				     "tag: %lu is out of range, it may be 0 to 65535",
				     (unsigned long)number);
		else
			r = 0;
	}
	*f = (struct gpc_field){ .tag = (uint16_t)number, .len = data->n, .data = data->p };
	Py_XDECREF(tag);
	Py_XDECREF(value);
	return r;
}

struct fields {
	struct array data[MAX_FIELDS];
	struct gpc_field f[MAX_FIELDS];
	uint32_t n;
};

static int read_fields(PyObject *o, struct fields *ret)
{
	PyObject *items = PySequence_Tuple(o), *pair;
	Py_ssize_t count = items ? PyTuple_Size(items) : 0, i;
	int r = items ? 0 : -1;

	if (count > MAX_FIELDS) {
		PyErr_Format(PyExc_ValueError, "fields: %zd of them, at most %d are", count,
			     MAX_FIELDS);
		r = -1;
	}
	for (i = 0; r == 0 && i < count; i++) {
		pair = PySequence_Tuple(PyTuple_GetItem(items, i));
		if (pair && PyTuple_Size(pair) != 2)
			PyErr_Format(PyExc_TypeError, "fields[%zd]: a tag and its bytes are wanted",
				     i);
		r = pair && PyTuple_Size(pair) == 2 ? read_field(pair, &ret->f[i], &ret->data[i])
						    : -1;
		Py_XDECREF(pair);
	}
	ret->n = (uint32_t)count;
	Py_XDECREF(items);
	return r;
}

static void free_fields(struct fields *f)
{
	for (int i = 0; i < MAX_FIELDS; i++)
		array_free(&f->data[i]);
}

static METHOD(key_root)
{
	static const struct call call = { "key_root", 1, 1, { "fields" } };
	struct fields fields = { .n = 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	gpc_key key;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (read_fields(a[0], &fields) == 0 && handle_enter((Cache *)self) == 0) {
		r = gpc_key_root(((Cache *)self)->c, fields.f, fields.n, &key);
		ret = r < 0 ? error_raise(r) : PyBytes_FromStringAndSize((char *)&key, sizeof(key));
		handle_leave((Cache *)self);
	}
	free_fields(&fields);
	return ret;
}

static METHOD(root_keep)
{
	static const struct call call = { "root_keep", 1, 1, { "fields", "flags", "timeout" } };
	struct fields fields = { .n = 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t flags = 0;
	int timeout = -1, r;
	gpc_key key;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (read_fields(a[0], &fields) == 0 && args_u32(a[1], "flags", &flags) == 0 &&
	    args_time(a[2], "timeout", &timeout) == 0 && handle_enter((Cache *)self) == 0) {
		gpc *c = ((Cache *)self)->c;

		WAIT(r, r = gpc_root_keep(c, fields.f, fields.n, &key, flags, timeout));
		if (r < 0)
			ret = error_raise(r);
		else if (!wait_raised(r))
			ret = PyBytes_FromStringAndSize((char *)&key, sizeof(key));
		handle_leave((Cache *)self);
	}
	free_fields(&fields);
	return ret;
}

static PyObject *give_fields(const struct gpc_field *f, int n)
{
	PyObject *ret = PyList_New(n), *one;

	for (int i = 0; ret && i < n; i++) {
		one = Py_BuildValue("(iy#)", (int)f[i].tag, f[i].len ? (const char *)f[i].data : "",
				    (Py_ssize_t)f[i].len);
		if (!one || PyList_SetItem(ret, i, one) < 0)
			Py_CLEAR(ret);
	}
	return ret;
}

static METHOD(root_get)
{
	static const struct call call = { "root_get", 1, 1, { "root" } };
	struct gpc_field f[MAX_FIELDS];
	char data[GPC_ROOT_BYTES];
	PyObject *a[MAX_ARGS], *ret = NULL;
	struct array key = { 0 };
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (array_keys(a[0], "root", &key) == 0) {
		if (key.n != 1)
			PyErr_Format(PyExc_ValueError, "root: %lu keys, one is wanted",
				     (unsigned long)key.n);
		else if (handle_enter((Cache *)self) == 0) {
			r = gpc_root_get(((Cache *)self)->c, key.p, f, MAX_FIELDS, data,
					 sizeof(data));
			ret = r < 0 ? error_raise(r) : give_fields(f, r);
			handle_leave((Cache *)self);
		}
	}
	array_free(&key);
	return ret;
}

/* ---- tokens ---- */

struct extras {
	struct gpc_extra *x;
	struct array *data;
	uint32_t n;
};

static void extras_free(struct extras *e)
{
	uint32_t i;

	for (i = 0; e->data && i < e->n; i++)
		array_free(&e->data[i]);
	PyMem_Free(e->data);
	PyMem_Free(e->x);
}

static int extra_read(PyObject *o, struct gpc_extra *x, struct array *data)
{
	PyObject *pair = PySequence_Tuple(o);
	int r = -1;

	if (pair && PyTuple_Size(pair) != 2)
		PyErr_SetString(PyExc_TypeError,
				"extras: pairs of a token's number and bytes are wanted");
	else if (pair && args_u32(PyTuple_GetItem(pair, 0), "token", &x->token) == 0)
		r = array_bytes(PyTuple_GetItem(pair, 1), "data", data);
	x->len = data->n;
	x->data = data->p;
	Py_XDECREF(pair);
	return r;
}

static int extras_read(PyObject *o, struct extras *e)
{
	PyObject *items;
	Py_ssize_t i;
	int r = 0;

	if (!o || o == Py_None)
		return 0;
	items = PySequence_Tuple(o);
	if (!items)
		return -1;
	e->n = (uint32_t)PyTuple_Size(items);
	e->x = PyMem_Calloc(e->n + 1, sizeof(*e->x));
	e->data = PyMem_Calloc(e->n + 1, sizeof(*e->data));
	if (!e->x || !e->data) {
		PyErr_NoMemory();
		r = -1;
	}
	for (i = 0; r == 0 && i < (Py_ssize_t)e->n; i++)
		r = extra_read(PyTuple_GetItem(items, i), &e->x[i], &e->data[i]);
	Py_DECREF(items);
	return r;
}

/* The arguments that both calls take; for a group, its number and the cut of its blocks. */
struct hashing {
	bool is_group;
	uint32_t group, block_tokens, flags;
	struct array parent, tokens;
	struct extras extras;
};

static PyObject *hash(Cache *self, const struct hashing *h, PyObject *to)
{
	uint32_t block = h->block_tokens      ? h->block_tokens
			 : self->block_tokens ? self->block_tokens
					      : 1;
	size_t room = h->tokens.n / block + (h->flags & GPC_TAIL && h->tokens.n % block);
	struct gpc_prompt p = { .parent = h->parent.p,
				.tokens = h->tokens.p,
				.n = h->tokens.n,
				.x = h->extras.x,
				.nx = h->extras.n,
				.group = h->group,
				.block_tokens = h->block_tokens };
	struct array out = { 0 };
	PyObject *ret = NULL;
	int r;

	if (array_out(to, "out", room, sizeof(gpc_key), &out) == 0) {
		p.ret_keys = out.p;
		r = gpc_key_hash(self->c, &p, 1, h->flags | (h->is_group ? GPC_GROUP : 0));
		ret = r < 0 ? error_raise(r) : give_keys(&out, r);
	}
	array_free(&out);
	return ret;
}

/* a: parent, tokens, extras, flags, out */
static PyObject *hash_arguments(Cache *self, struct hashing *h, PyObject **a)
{
	PyObject *ret = NULL;

	if ((a[0] != Py_None && array_keys(a[0], "parent", &h->parent) < 0) ||
	    array_tokens(a[1], "tokens", &h->tokens) < 0 || extras_read(a[2], &h->extras) < 0 ||
	    args_u32(a[3], "flags", &h->flags) < 0)
		goto out;
	if (h->parent.p && h->parent.n != 1) {
		PyErr_Format(PyExc_ValueError, "parent: %lu keys, one is wanted, or None",
			     (unsigned long)h->parent.n);
	} else if (handle_enter(self) == 0) {
		ret = hash(self, h, a[4]);
		handle_leave(self);
	}
out:
	array_free(&h->parent);
	array_free(&h->tokens);
	extras_free(&h->extras);
	return ret;
}

static METHOD(key_hash)
{
	static const struct call call = {
		"key_hash", 2, 2, { "parent", "tokens", "extras", "flags", "out" }
	};
	struct hashing h = { 0 };
	PyObject *a[MAX_ARGS];

	return args_parse(&call, args, n, kwnames, a) < 0 ? NULL
							  : hash_arguments((Cache *)self, &h, a);
}

static METHOD(key_hash_group)
{
	static const struct call call = { "key_hash_group",
					  4,
					  4,
					  { "group", "block_tokens", "parent", "tokens", "extras",
					    "flags", "out" } };
	struct hashing h = { .is_group = true };
	PyObject *a[MAX_ARGS];

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_u32(a[0], "group", &h.group) < 0 ||
	    args_u32(a[1], "block_tokens", &h.block_tokens) < 0)
		return NULL;
	return hash_arguments((Cache *)self, &h, a + 2);
}

/* ---- many prompts ---- */

struct prompts {
	struct gpc_prompt *p;
	struct array *tokens, *keys;
	uint32_t n;
};

static void prompts_free(struct prompts *m)
{
	uint32_t i;

	for (i = 0; m->tokens && m->keys && i < m->n; i++) {
		array_free(&m->tokens[i]);
		array_free(&m->keys[i]);
	}
	PyMem_Free(m->p);
	PyMem_Free(m->tokens);
	PyMem_Free(m->keys);
}

static int prompt_read(Cache *self, PyObject *o, const struct array *parent, uint32_t flags,
		       struct prompts *m, uint32_t i)
{
	size_t block = self->block_tokens ? self->block_tokens : 1;

	if (array_tokens(o, "tokens", &m->tokens[i]) < 0 ||
	    array_out(NULL, "out", (m->tokens[i].n + (flags & GPC_TAIL ? block - 1 : 0)) / block,
		      sizeof(gpc_key), &m->keys[i]) < 0)
		return -1;
	m->p[i] = (struct gpc_prompt){ .tokens = m->tokens[i].p,
				       .n = m->tokens[i].n,
				       .ret_keys = m->keys[i].p };
	if (parent->p)
		m->p[i].parent = (gpc_key *)parent->p + (parent->n > 1 ? i : 0);
	return 0;
}

static int prompts_read(Cache *self, PyObject *items, const struct array *parent, uint32_t flags,
			struct prompts *m)
{
	Py_ssize_t n = PyTuple_Size(items);
	uint32_t i;

	if (parent->p && parent->n != 1 && (Py_ssize_t)parent->n != n) {
		PyErr_Format(
			PyExc_ValueError,
			"parent: %lu keys, one is wanted, or one for each of %zd prompts, or None",
			(unsigned long)parent->n, n);
		return -1;
	}
	m->n = (uint32_t)n;
	m->p = PyMem_Calloc(m->n + 1, sizeof(*m->p));
	m->tokens = PyMem_Calloc(m->n + 1, sizeof(*m->tokens));
	m->keys = PyMem_Calloc(m->n + 1, sizeof(*m->keys));
	if (!m->p || !m->tokens || !m->keys) {
		PyErr_NoMemory();
		return -1;
	}
	for (i = 0; i < m->n; i++)
		if (prompt_read(self, PyTuple_GetItem(items, i), parent, flags, m, i) < 0)
			return -1;
	return 0;
}

static PyObject *prompts_give(const struct prompts *m)
{
	PyObject *ret = PyList_New(m->n), *one;
	uint32_t i;

	for (i = 0; ret && i < m->n; i++) {
		one = give_keys(&m->keys[i], (int)m->keys[i].n);
		if (!one || PyList_SetItem(ret, i, one) < 0)
			Py_CLEAR(ret);
	}
	return ret;
}

static METHOD(key_hash_many)
{
	static const struct call call = { "key_hash_many", 2, 2, { "parent", "prompts", "flags" } };
	PyObject *a[MAX_ARGS], *items, *ret = NULL;
	struct array parent = { 0 };
	struct prompts m = { 0 };
	uint32_t flags = 0;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	items = PySequence_Tuple(a[1]);
	if (!items)
		return NULL;
	if ((a[0] == Py_None || array_keys(a[0], "parent", &parent) == 0) &&
	    args_u32(a[2], "flags", &flags) == 0 &&
	    prompts_read((Cache *)self, items, &parent, flags, &m) == 0 &&
	    handle_enter((Cache *)self) == 0) {
		FREELY(r = gpc_key_hash(((Cache *)self)->c, m.p, m.n, flags));
		ret = r < 0 ? error_raise(r) : prompts_give(&m);
		handle_leave((Cache *)self);
	}
	prompts_free(&m);
	array_free(&parent);
	Py_DECREF(items);
	return ret;
}

/* ---- digests ---- */

static METHOD(key_import)
{
	static const struct call call = {
		"key_import", 1, 1, { "digests", "size", "group", "out" }
	};
	struct array digests = { 0 }, out = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t bytes, group = 0;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (array_digests(a[0], "digests", a[1], &digests, &bytes) < 0 ||
	    args_u32(a[2], "group", &group) < 0 ||
	    array_out(a[3], "out", digests.n, sizeof(gpc_key), &out) < 0)
		goto out;
	if (handle_enter((Cache *)self) == 0) {
		r = gpc_key_import(((Cache *)self)->c, digests.p, bytes, bytes, digests.n, group,
				   out.p);
		ret = r < 0 ? error_raise(r) : give_keys(&out, (int)digests.n);
		handle_leave((Cache *)self);
	}
out:
	array_free(&digests);
	array_free(&out);
	return ret;
}

/* ---- aliases ---- */

static METHOD(key_alias)
{
	static const struct call call = { "alias", 2, 2, { "alias", "to", "flags", "timeout" } };
	struct array alias = { 0 }, to = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	uint32_t flags = 0;
	int timeout = -1, r;
	gpc *c;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (array_keys(a[0], "alias", &alias) == 0 && array_keys(a[1], "to", &to) == 0 &&
	    array_same("alias", &alias, "to", &to) && args_u32(a[2], "flags", &flags) == 0 &&
	    args_time(a[3], "timeout", &timeout) == 0 && handle_enter((Cache *)self) == 0) {
		c = ((Cache *)self)->c;
		WAIT(r, r = gpc_alias(c, alias.p, to.p, alias.n, flags, timeout));
		ret = wait_none(r);
		handle_leave((Cache *)self);
	}
	array_free(&alias);
	array_free(&to);
	return ret;
}

/* out may be the buffer of the keys itself. */
static METHOD(key_alias_resolve)
{
	static const struct call call = { "alias_resolve", 1, 1, { "keys", "out" } };
	struct array keys = { 0 }, out = { 0 };
	PyObject *a[MAX_ARGS], *ret = NULL;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (array_keys(a[0], "keys", &keys) == 0 &&
	    array_out(a[1], "out", keys.n, sizeof(gpc_key), &out) == 0 &&
	    handle_enter((Cache *)self) == 0) {
		if (keys.n)
			memmove(out.p, keys.p, keys.n * sizeof(gpc_key));
		r = gpc_alias_resolve(((Cache *)self)->c, out.p, keys.n);
		ret = r < 0 ? error_raise(r) : give_keys(&out, out.own ? (int)keys.n : r);
		handle_leave((Cache *)self);
	}
	array_free(&keys);
	array_free(&out);
	return ret;
}

const PyMethodDef methods_keys[] = {
	ROW("key_root", key_root, "$self, fields",
	    "The root key of a namespace: fields is a list of (tag, bytes), tags 1 model,\n"
	    "2 adapter, 3 salt, 4 weights version, others your own.  Their order matters."),
	ROW("root_keep", root_keep, "$self, fields, *, flags=0, timeout=None",
	    "key_root, and the cache keeps the fields for those who know the root alone: "
	    "KV events name\n"
	    "adapter and salt.  Asks the writer only where they are not kept yet." TIMES),
	ROW("root_get", root_get, "$self, root",
	    "The fields of a root that root_keep was given: a list of (tag, bytes).  "
	    "NotFound: none are kept."),
	ROW("key_hash", key_hash, "$self, parent, tokens, *, extras=None, flags=0, out=None",
	    "Keys of the full blocks of tokens (uint32), chained on from parent (one key, "
	    "or None).\n"
	    "extras: a sorted list of (token, bytes).  flags: TAIL.  Bytes of 16 a key; "
	    "with out, a\n"
	    "writable buffer, their number."
	    "\n"
	    "Tokens: 0 to 4294967295 each; ValueError: one that is not, and its place."),
	ROW("key_hash_many", key_hash_many, "$self, parent, prompts, *, flags=0",
	    "key_hash of each of a list of prompts, several at a time: a list of bytes.  "
	    "parent: one key\n"
	    "for all, one for each, or None.  flags: TAIL."
	    "\n"
	    "Tokens as those of key_hash."),
	ROW("key_hash_group", key_hash_group,
	    "$self, group, block_tokens, parent, tokens, *, extras=None, flags=0, out=None",
	    "key_hash for the blocks of a KV group, of block_tokens tokens each (0 = the "
	    "cache's): keys of no\n"
	    "other group or size."
	    "\n"
	    "group: 0 to 4294967295.  Tokens as those of key_hash."),
	ROW("key_import", key_import, "$self, digests, *, size=None, group=0, out=None",
	    "Keys of an engine's own digests: a list of bytes of one length, or a buffer "
	    "and the size\n"
	    "of each.  Bytes of 16 a key; with out their number."),
	ROW("alias", key_alias, "$self, alias, to, *, flags=0, timeout=None",
	    "A lookup of alias[i] finds what has the key to[i]: true for ever, "
	    "whether or not a\n"
	    "block with that key is live.  A pair may be forgotten at any time." TIMES),
	ROW("alias_resolve", key_alias_resolve, "$self, keys, *, out=None",
	    "The keys, those that are aliases replaced by the keys that they stand for: "
	    "call it before\n"
	    "lookup, acquire, fetch, claim, and for the parents of publish.  Bytes of 16 a "
	    "key; with out,\n"
	    "a writable buffer, which may be keys itself, how many were replaced."),
	{ NULL, NULL, 0, NULL }
};
