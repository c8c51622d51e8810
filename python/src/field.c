/* SPDX-License-Identifier: Apache-2.0 */
/* field.c - structs of the headers as named tuples of gpc._types, by tables.
 * Tests: t/python/look.t */
#include "gpcpy.h"

#include <stddef.h>
#include <string.h>

#define F(type, name, kind)                                                        \
	{                                                                          \
#name, offsetof(type, name), sizeof(((type *)0)->name), kind, 0, 0 \
	}
#define F_AS(type, python, name, kind)                                              \
	{                                                                           \
		python, offsetof(type, name), sizeof(((type *)0)->name), kind, 0, 0 \
	}
#define F_CUT(type, name, by, unit)                                              \
	{                                                                        \
#name, offsetof(type, name), sizeof(((type *)0)->name), F_BYTES, \
			offsetof(type, by), unit                                 \
	}
#define END                             \
	{                               \
		NULL, 0, 0, F_U32, 0, 0 \
	}

#define T struct gpc_run
static const struct field fields_run[] = { F(T, part, F_U32),
					   F(T, count, F_U32),
					   F(T, bytes, F_U64),
					   F(T, offset, F_U64),
					   F(T, slot_stride, F_U64),
					   F(T, run_stride, F_U64),
					   END };
#undef T
#define T struct gpc_move
static const struct field fields_move[] = { F_AS(T, "from_", from, F_I32), F(T, to, F_I32),
					    F(T, key, F_KEY), F(T, op, F_U64), END };
#undef T
#define T struct gpc_claim
static const struct field fields_claim[] = { F(T, key, F_KEY),   F(T, state, F_U32),
					     F(T, block, F_I32), F(T, peer, F_I32),
					     F(T, pid, F_I32),   F(T, loading, F_U32),
					     F(T, ahead, F_U32), F(T, age_ns, F_U64),
					     F(T, life, F_U64),  END };
#undef T
#define T struct gpc_pool
static const struct field fields_pool_all[] = {
	F(T, number, F_I32),        F(T, kind, F_U32),
	F(T, flags, F_U32),         F(T, space, F_U32),
	F(T, blocks, F_U32),        F(T, transit, F_U32),
	F(T, generation, F_U32),    F(T, owner, F_I32),
	F(T, demote_to, F_I32),     F(T, gpus, F_U32),
	F_CUT(T, uuid, gpus, 16),   F_CUT(T, backing, backing_size, 1),
	F(T, memory, F_U64),        F(T, block_bytes, F_U64),
	F(T, fingerprint, F_BYTES), F(T, spill_ahead, F_U32),
	F(T, live, F_U32),          F(T, reserved, F_U32),
	F(T, dying, F_U32),         END
};
/* fields that a caller of pool_add and pool_make gives */
const struct field fields_pool[] = { F(T, kind, F_U32),
				     F(T, flags, F_U32),
				     F(T, space, F_U32),
				     F(T, blocks, F_U32),
				     F(T, transit, F_U32),
				     F(T, demote_to, F_I32),
				     F(T, gpus, F_U32),
				     F(T, uuid, F_BYTES),
				     F_CUT(T, backing, backing_size, 1),
				     F(T, spill_ahead, F_U32),
				     END };
#undef T
#define T struct gpc_memory
const struct field fields_backing[] = { F(T, block_bytes, F_U64),  F(T, fingerprint, F_BYTES),
					F(T, device, F_STRING),    F(T, parts, F_U32),
					F(T, numa, F_U32),         F(T, nodes, F_U64),
					F(T, no_checksums, F_U32), F(T, huge_dir, F_STRING),
					F(T, threads, F_U32),      F(T, seed, F_U32),
					F(T, sums, F_U32),         END };
#undef T
#define T struct gpc_pool_memory
static const struct field fields_memory[] = { F(T, kind, F_U32),
					      F(T, slots, F_U32),
					      F(T, nruns, F_U32),
					      F(T, parts, F_U32),
					      F(T, parts_lent, F_U32),
					      F(T, memory, F_U64),
					      F(T, block_bytes, F_U64),
					      F(T, bytes, F_U64),
					      F(T, huge_bytes, F_U64),
					      F(T, numa, F_U32),
					      F(T, mapped, F_U32),
					      F(T, nodes, F_U64),
					      F(T, pinned, F_U64),
					      F(T, fingerprint, F_BYTES),
					      F(T, device, F_TEXT),
					      F(T, file, F_TEXT),
					      F(T, checksums, F_U32),
					      F(T, sums, F_U32),
					      END };
#undef T
#define T struct gpc_config
const struct field fields_config[] = { F(T, block_tokens, F_U32),
				       F(T, max_blocks, F_U32),
				       F(T, max_peers, F_U32),
				       F(T, max_pools, F_U32),
				       F(T, vram_blocks, F_U32),
				       F(T, ram_blocks, F_U32),
				       F(T, tick_us, F_U32),
				       F(T, free_target, F_I32),
				       F(T, quarantine_ms, F_U32),
				       F(T, keep_tokens, F_U32),
				       F(T, keep_digests, F_U32),
				       F(T, peer_quota, F_U32),
				       F(T, mode, F_U32),
				       F(T, gid, F_U32),
				       F(T, devices, F_STRING),
				       F(T, ram_space, F_U32),
				       F(T, ram_flags, F_U32),
				       F(T, max_aliases, F_I32),
				       END };
#undef T
#define T struct gpc_info
static const struct field fields_info[] = { F(T, version, F_U32),
					    F(T, block_tokens, F_U32),
					    F(T, max_blocks, F_U32),
					    F(T, max_peers, F_U32),
					    F(T, max_pools, F_U32),
					    F(T, pools, F_U32),
					    F(T, peers, F_U32),
					    F(T, mirrors, F_U32),
					    F(T, writer_pid, F_I32),
					    F(T, writer_generation, F_U32),
					    F(T, peer, F_I32),
					    F(T, tick_us, F_U32),
					    F(T, free_target, F_I32),
					    F(T, keep_tokens, F_U32),
					    F(T, keep_digests, F_U32),
					    F(T, tick, F_U64),
					    F(T, bytes, F_U64),
					    F(T, buckets, F_U64),
					    F(T, hash, F_TEXT),
					    F(T, devices, F_TEXT),
					    F(T, layout, F_BYTES),
					    F(T, writer_peer, F_I32),
					    F(T, refused, F_I32),
					    F(T, why, F_TEXT),
					    F(T, life, F_U64),
					    F(T, max_aliases, F_U32),
					    F(T, created_ns, F_U64),
					    F(T, writer_since_ns, F_U64),
					    F(T, peers_alive, F_U32),
					    F(T, peers_dead, F_U32),
					    F(T, quarantine_ms, F_U32),
					    F(T, peer_quota, F_U32),
					    END };
#undef T
#define T struct gpc_stats
static const struct field fields_stats[] = { F(T, pid, F_I32),
					     F(T, label, F_TEXT),
					     F(T, lookups, F_U64),
					     F(T, hit_vram, F_U64),
					     F(T, hit_ram, F_U64),
					     F(T, miss, F_U64),
					     F(T, published, F_U64),
					     F(T, duplicate, F_U64),
					     F(T, evicted, F_U64),
					     F(T, demoted, F_U64),
					     F(T, promoted, F_U64),
					     F(T, dropped, F_U64),
					     F(T, stale_refs, F_U64),
					     F(T, ring_full, F_U64),
					     F(T, relocated, F_U64),
					     F(T, no_bucket, F_U64),
					     F(T, refs, F_U64),
					     F(T, reserved, F_U64),
					     F(T, sections, F_U64),
					     F(T, oldest_section_ns, F_U64),
					     F(T, live, F_U64),
					     F(T, free_blocks, F_U64),
					     F(T, dying, F_U64),
					     F(T, alive, F_I32),
					     F(T, here, F_I32),
					     F(T, left, F_I32),
					     F(T, fetched, F_U64),
					     F(T, spilled, F_U64),
					     F(T, bad, F_U64),
					     F(T, transfers, F_U64),
					     F(T, claims, F_U64),
					     F(T, leader, F_I32),
					     F(T, aliases, F_U64),
					     F(T, commands, F_U64),
					     F(T, pending, F_U64),
					     F(T, fetched_bytes, F_U64),
					     F(T, spilled_bytes, F_U64),
					     F(T, refs_ns, F_U64),
					     F(T, hit_own, F_U64),
					     F(T, hit_disk, F_U64),
					     F(T, hit_store, F_U64),
					     F(T, start_time, F_U64),
					     END };
#undef T
#define T struct gpc_histogram
static const struct field fields_histogram[] = {
	F(T, first_ns, F_U64),
	{ "cell", offsetof(T, cell), sizeof(((T *)0)->cell), F_COUNTS, offsetof(T, cells), 8 },
	F(T, count, F_U64),
	F(T, sum, F_DOUBLE),
	F(T, blocks, F_U64),
	F(T, bytes, F_U64),
	END
};
#undef T
#define T struct gpc_mirror
static const struct field fields_mirror[] = { F(T, generation, F_U32), F(T, device, F_TEXT),
					      F(T, uuid, F_BYTES),     F(T, bytes, F_U64),
					      F(T, flushed, F_U64),    F(T, changes, F_U64),
					      F(T, retired, F_U32),    END };
#undef T
#define T struct gpc_entry
static const struct field fields_entry[] = { F(T, key, F_KEY),
					     F(T, parent, F_KEY),
					     F(T, block, F_I32),
					     F(T, depth, F_U32),
					     F(T, tag, F_U32),
					     F(T, refs, F_U32),
					     F(T, stamp, F_U64),
					     F(T, group, F_U32),
					     F_CUT(T, digest, digest_bytes, 1),
					     END };
#undef T
#define T struct gpc_event
static const struct field fields_event[] = { F(T, seq, F_U64),
					     F(T, what, F_U32),
					     F(T, tag, F_U32),
					     F(T, block, F_I32),
					     F(T, was, F_I32),
					     F(T, key, F_KEY),
					     F(T, parent, F_KEY),
					     F(T, group, F_U32),
					     F_CUT(T, digest, digest_bytes, 1),
					     END };
#undef T
#define T struct gpc_transfer_info
static const struct field fields_transfer[] = { F(T, peer, F_I32),
						F(T, transfer, F_U64),
						F(T, blocks, F_U32),
						F(T, left, F_U32),
						F(T, ranks, F_U32),
						F(T, passed, F_U32),
						F_AS(T, "from_", from, F_I32),
						F(T, to, F_I32),
						F(T, age_ns, F_U64),
						END };
#undef T
#define T struct gpc_tier
static const struct field fields_tier[] = {
	F(T, kind, F_U32),
	F(T, pool, F_I32),
	F(T, steward, F_I32),
	F(T, ready, F_U32),
	F(T, state, F_U32),
	F(T, block_bytes, F_U64),
	F(T, asks, F_U64),
	F(T, hits, F_U64),
	F(T, misses, F_U64),
	F(T, brought, F_U64),
	F(T, brought_bytes, F_U64),
	F(T, written, F_U64),
	F(T, written_bytes, F_U64),
	F(T, absent, F_U64),
	F(T, bad, F_U64),
	F(T, errors, F_U64),
	F(T, late, F_U64),
	F(T, overtaken, F_U64),
	F(T, no_ram, F_U64),
	F(T, refused, F_U64),
	F(T, failed, F_U64),
	F(T, unwanted, F_U64),
	F(T, evicted, F_U64),
	F(T, aged, F_U64),
	F(T, forgotten, F_U64),
	F(T, found, F_U64),
	F(T, restored, F_U64),
	F(T, orphans, F_U64),
	F(T, full, F_U64),
	F(T, down, F_U64),
	F(T, asked, F_U64),
	F(T, there, F_U64),
	F(T, emptied, F_U64),
	{ "counters", offsetof(T, counter), sizeof(((T *)0)->counter), F_NAMED,
	  offsetof(T, ncounters), sizeof(struct gpc_tier_counter) },
	F(T, what, F_TEXT),
	F(T, overrun, F_U64),
	END
};
#undef T
#define T struct gpc_tiers_file
static const struct field fields_tiers_file[] = { F(T, has_secret, F_U32),  F(T, blocks, F_U64),
						  F(T, block_bytes, F_U64), F(T, bytes, F_U64),
						  F(T, secret, F_BYTES),    END };
#undef T
#define T struct gpc_tiers_options
/* fields that a caller of tiers_open gives */
const struct field fields_tiers[] = { F(T, flags, F_U32),         F(T, dir, F_STRING),
				      F(T, ram, F_I32),           F(T, disk, F_STRING),
				      F(T, disk_bytes, F_U64),    F(T, disk_blocks, F_U32),
				      F(T, disk_space, F_U32),    F(T, disk_threads, F_U32),
				      F(T, ahead, F_U32),         F(T, min_uses, F_U32),
				      F(T, max_age_s, F_U32),     F(T, write_rate, F_U64),
				      F(T, questions, F_U32),     F(T, remote, F_STRING),
				      F(T, remote_tag, F_STRING), F(T, remote_blocks, F_U32),
				      F(T, remote_space, F_U32),  F(T, remote_uses, F_U32),
				      F(T, remote_ms, F_U32),     END };
#undef T

#define T struct gpc_sum
static const struct field fields_sum[] = { F(T, crc, F_U32),   F(T, seed, F_U32),
					   F(T, flags, F_U32), F(T, result, F_I32),
					   F(T, word, F_U64),  END };
#undef T

struct record record_run = { "Run", fields_run, sizeof(struct gpc_run), NULL };
struct record record_move = { "Move", fields_move, sizeof(struct gpc_move), NULL };
struct record record_claim = { "Claim", fields_claim, sizeof(struct gpc_claim), NULL };
struct record record_pool = { "Pool", fields_pool_all, sizeof(struct gpc_pool), NULL };
struct record record_memory = { "PoolMemory", fields_memory, sizeof(struct gpc_pool_memory), NULL };
struct record record_info = { "Info", fields_info, sizeof(struct gpc_info), NULL };
struct record record_stats = { "Stats", fields_stats, sizeof(struct gpc_stats), NULL };
struct record record_histogram = { "Histogram", fields_histogram, sizeof(struct gpc_histogram),
				   NULL };
struct record record_mirror = { "Mirror", fields_mirror, sizeof(struct gpc_mirror), NULL };
struct record record_entry = { "Entry", fields_entry, sizeof(struct gpc_entry), NULL };
struct record record_event = { "Event", fields_event, sizeof(struct gpc_event), NULL };
struct record record_transfer = { "Transfer", fields_transfer, sizeof(struct gpc_transfer_info),
				  NULL };

struct record record_tier = { "Tier", fields_tier, sizeof(struct gpc_tier), NULL };
struct record record_tiers_file = { "TiersFile", fields_tiers_file, sizeof(struct gpc_tiers_file),
				    NULL };

struct record record_sum = { "Sum", fields_sum, sizeof(struct gpc_sum), NULL };

static struct record *const records[] = { &record_run,   &record_move,       &record_claim,
					  &record_pool,  &record_memory,     &record_info,
					  &record_stats, &record_histogram,  &record_mirror,
					  &record_entry, &record_event,      &record_transfer,
					  &record_tier,  &record_tiers_file, &record_sum };

static newfunc tuple_new;

/* The class has the same fields in the same order. */
static int record_check(const struct record *r)
{
	PyObject *names = PyObject_GetAttrString(r->class, "_fields");
	Py_ssize_t n = names ? PyTuple_Size(names) : -1, i;
	bool same = n >= 0;

	for (i = 0; same && i < n; i++)
		same = r->fields[i].name &&
		       PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, i),
							r->fields[i].name) == 0;
	same = same && !r->fields[n].name;
	Py_XDECREF(names);
	if (same)
		return 0;
	PyErr_Format(PyExc_ImportError, "gpc._types.%s is not that of this module", r->name);
	return -1;
}

int record_init(void)
{
	PyObject *types = PyImport_ImportModule("gpc._types");
	size_t i;

	if (!types)
		return -1;
	tuple_new = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
	for (i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
		records[i]->class = PyObject_GetAttrString(types, records[i]->name);
		if (!records[i]->class || record_check(records[i]) < 0)
			break;
	}
	Py_DECREF(types);
	return i == sizeof(records) / sizeof(records[0]) ? 0 : -1;
}

/* ---- out ---- */

/* The number of its bytes that count. */
static size_t bytes_that_count(const struct field *f, const char *base)
{
	size_t n = f->size;
	uint32_t cut;

	if (f->unit) {
		memcpy(&cut, base + f->cut, sizeof(cut));
		if ((size_t)cut * f->unit < n)
			n = (size_t)cut * f->unit;
	}
	return n;
}

static PyObject *counts_of(const struct field *f, const char *base)
{
	size_t n = bytes_that_count(f, base) / sizeof(uint64_t), i;
	PyObject *ret = PyTuple_New((Py_ssize_t)n), *v;
	uint64_t u64;

	for (i = 0; ret && i < n; i++) {
		memcpy(&u64, base + f->offset + i * sizeof(u64), sizeof(u64));
		v = PyLong_FromUnsignedLongLong(u64);
		if (!v || PyTuple_SetItem(ret, (Py_ssize_t)i, v) < 0)
			Py_CLEAR(ret);
	}
	return ret;
}

static PyObject *named_of(const struct field *f, const char *base)
{
	size_t n = bytes_that_count(f, base) / sizeof(struct gpc_tier_counter), i;
	PyObject *ret = PyDict_New(), *v;
	struct gpc_tier_counter c;

	for (i = 0; ret && i < n; i++) {
		memcpy(&c, base + f->offset + i * sizeof(c), sizeof(c));
		c.name[sizeof(c.name) - 1] = 0;
		v = PyLong_FromUnsignedLongLong(c.value);
		if (!v || PyDict_SetItemString(ret, c.name, v) < 0)
			Py_CLEAR(ret);
		Py_XDECREF(v);
	}
	return ret;
}

static PyObject *field_get(const struct field *f, const char *base)
{
	const char *at = base + f->offset;
	uint32_t u32;
	int32_t i32;
	uint64_t u64;
	double d;

	switch (f->kind) {
	case F_U32:
		memcpy(&u32, at, sizeof(u32));
		return PyLong_FromUnsignedLong(u32);
	case F_I32:
		memcpy(&i32, at, sizeof(i32));
		return PyLong_FromLong(i32);
	case F_U64:
		memcpy(&u64, at, sizeof(u64));
		return PyLong_FromUnsignedLongLong(u64);
	case F_DOUBLE:
		memcpy(&d, at, sizeof(d));
		return PyFloat_FromDouble(d);
	case F_COUNTS:
		return counts_of(f, base);
	case F_NAMED:
		return named_of(f, base);
	case F_KEY:
		return PyBytes_FromStringAndSize(at, f->size);
	case F_TEXT:
		return PyUnicode_DecodeUTF8(at, (Py_ssize_t)strnlen(at, f->size), "replace");
	default:
		return PyBytes_FromStringAndSize(at, (Py_ssize_t)bytes_that_count(f, base));
	}
}

PyObject *record_make(const struct record *r, const void *from)
{
	PyObject *values, *args, *ret = NULL, *v;
	Py_ssize_t n = 0, i;

	while (r->fields[n].name)
		n++;
	values = PyTuple_New(n);
	for (i = 0; values && i < n; i++) {
		v = field_get(&r->fields[i], from);
		if (!v || PyTuple_SetItem(values, i, v) < 0)
			Py_CLEAR(values);
	}
	args = values ? PyTuple_Pack(1, values) : NULL;
	if (args)
		ret = tuple_new((PyTypeObject *)r->class, args, NULL);
	Py_XDECREF(args);
	Py_XDECREF(values);
	return ret;
}

PyObject *record_list(const struct record *r, const void *from, size_t n)
{
	PyObject *list = PyList_New((Py_ssize_t)n), *v;
	size_t i;

	for (i = 0; list && i < n; i++) {
		v = record_make(r, (const char *)from + i * r->bytes);
		if (!v || PyList_SetItem(list, (Py_ssize_t)i, v) < 0)
			Py_CLEAR(list);
	}
	return list;
}

/* ---- in ---- */

static int set_bytes(const struct field *f, PyObject *o, char *base)
{
	struct array a = { 0 };
	uint32_t size;
	int r = -1;

	if (array_bytes(o, f->name, &a) < 0) {
		array_free(&a);
		return -1;
	}
	size = a.n;
	if (size > f->size || (f->kind == F_KEY && size != f->size)) {
		PyErr_Format(PyExc_ValueError, "%s: %lu bytes, %s%lu are wanted", f->name,
			     (unsigned long)size, f->kind == F_KEY ? "" : "at most ",
			     (unsigned long)f->size);
	} else {
		memcpy(base + f->offset, a.p, size);
		if (f->unit == 1)
			memcpy(base + f->cut, &size, sizeof(size));
		r = 0;
	}
	array_free(&a);
	return r;
}

static int set_number(const struct field *f, PyObject *o, char *base)
{
	uint32_t u32 = 0;
	uint64_t u64 = 0;
	int i32 = 0;

	switch (f->kind) {
	case F_U32:
		if (args_u32(o, f->name, &u32) < 0)
			return -1;
		memcpy(base + f->offset, &u32, sizeof(u32));
		return 0;
	case F_I32:
		if (args_int(o, f->name, &i32) < 0)
			return -1;
		memcpy(base + f->offset, &i32, sizeof(i32));
		return 0;
	default:
		if (args_u64(o, f->name, &u64) < 0)
			return -1;
		memcpy(base + f->offset, &u64, sizeof(u64));
		return 0;
	}
}

static int set_string(const struct field *f, PyObject *o, char *base)
{
	const char *text;

	if (o == Py_None)
		return 0;
	if (!PyUnicode_Check(o)) {
		PyErr_Format(PyExc_TypeError, "%s: a str is wanted, this is %.200R", f->name, o);
		return -1;
	}
	text = PyUnicode_AsUTF8AndSize(o, NULL);
	if (!text)
		return -1;
	memcpy(base + f->offset, &text, sizeof(text));
	return 0;
}

static int set_one(const struct field *f, PyObject *o, char *base)
{
	switch (f->kind) {
	case F_KEY:
	case F_BYTES:
		return set_bytes(f, o, base);
	case F_STRING:
		return set_string(f, o, base);
	case F_TEXT:
		return 0;
	default:
		return set_number(f, o, base);
	}
}

int field_set(const struct field *fields, const char *name, PyObject *o, void *to)
{
	for (; fields->name; fields++)
		if (!strcmp(fields->name, name))
			return set_one(fields, o, to);
	return 1;
}

static int read_dict(const struct record *r, PyObject *o, const char *name, void *to)
{
	PyObject *key, *value;
	Py_ssize_t at = 0;
	const char *text;
	int err;

	while (PyDict_Next(o, &at, &key, &value)) {
		text = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, NULL) : NULL;
		err = text ? field_set(r->fields, text, value, to) : 1;
		if (err > 0)
			PyErr_Format(PyExc_TypeError, "%s: a %s has no field %.200R", name, r->name,
				     key);
		if (err)
			return -1;
	}
	return 0;
}

static int read_tuple(const struct record *r, PyObject *o, const char *name, void *to)
{
	Py_ssize_t n = 0, i;

	while (r->fields[n].name)
		n++;
	if (PyTuple_Size(o) != n) {
		PyErr_Format(PyExc_TypeError, "%s: a tuple of %zd items, a %s has %zd", name,
			     PyTuple_Size(o), r->name, n);
		return -1;
	}
	for (i = 0; i < n; i++)
		if (set_one(&r->fields[i], PyTuple_GetItem(o, i), to) < 0)
			return -1;
	return 0;
}

int record_read(const struct record *r, PyObject *o, const char *name, void *to)
{
	PyObject *copy;
	int err;

	memset(to, 0, r->bytes);
	if (PyTuple_Check(o))
		return read_tuple(r, o, name, to);
	if (!PyDict_Check(o)) {
		PyErr_Format(PyExc_TypeError,
			     "%s: a gpc.%s, a tuple of its fields or a dict is wanted, this is "
			     "%.200R",
			     name, r->name, o);
		return -1;
	}
	copy = PyDict_Copy(o); /* a conversion of a value may change the dict */
	err = copy ? read_dict(r, copy, name, to) : -1;
	Py_XDECREF(copy);
	return err;
}

int record_array(const struct record *r, PyObject *o, const char *name, struct array *a)
{
	PyObject *items;
	Py_ssize_t n, i;
	int err = 0;

	if (!PyList_Check(o) && !PyTuple_Check(o)) {
		PyErr_Format(PyExc_TypeError, "%s: a list of gpc.%s is wanted, this is %.200R",
			     name, r->name, o);
		return -1;
	}
	items = PySequence_Tuple(o);
	n = items ? PyTuple_Size(items) : 0;
	if (!items || array_out(NULL, name, (size_t)n, r->bytes, a) < 0)
		err = -1;
	for (i = 0; err == 0 && i < n; i++)
		err = record_read(r, PyTuple_GetItem(items, i), name,
				  (char *)a->p + (size_t)i * r->bytes);
	Py_XDECREF(items);
	return err;
}
