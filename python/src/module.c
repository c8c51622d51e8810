/* SPDX-License-Identifier: Apache-2.0 */
/* module.c - the module gpc._gpc: functions without a handle, constants, and its start.
 * Tests: t/python/leaks.t t/python/many.t t/python/module.t */
#include "gpcpy.h"

/* ---- functions ---- */

static METHOD(module_unlink)
{
	static const struct call call = { "unlink", 1, 1, { "name", "dir" } };
	PyObject *a[MAX_ARGS], *keep[2] = { NULL, NULL }, *ret = NULL;
	const char *name = NULL, *dir = NULL;
	int r;

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	if (args_text(a[0], "name", &name, &keep[0]) == 0 &&
	    args_text(a[1], "dir", &dir, &keep[1]) == 0) {
		WAIT(r, r = gpc_unlink(name, dir));
		ret = wait_none(r);
	}
	Py_XDECREF(keep[0]);
	Py_XDECREF(keep[1]);
	return ret;
}

static METHOD(module_version)
{
	uint32_t v = gpc_version();

	return Py_BuildValue("(ii)", (int)(v >> 16), (int)(v & 0xffff));
}

static METHOD(module_strerror)
{
	static const struct call call = { "strerror", 1, 1, { "err" } };
	PyObject *a[MAX_ARGS];
	int err = 0;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_int(a[0], "err", &err) < 0)
		return NULL;
	return PyUnicode_FromString(gpc_strerror(err));
}

static METHOD(module_last_error)
{
	static const struct call call = { "last_error", 0, 0, { NULL } };
	PyObject *a[MAX_ARGS];

	if (args_parse(&call, args, n, kwnames, a) < 0)
		return NULL;
	return PyUnicode_FromString(gpc_last_error());
}

/* For memory that other threads may write meanwhile; then the sum is that of the bytes that were
 * read. */
static METHOD(module_crc32c)
{
	static const struct call call = { "crc32c", 2, 1, { "data", "crc" } };
	PyObject *a[MAX_ARGS];
	Py_buffer data;
	uint32_t crc = 0;

	if (args_parse(&call, args, n, kwnames, a) < 0 || args_u32(a[1], "crc", &crc) < 0)
		return NULL;
	if (PyObject_GetBuffer(a[0], &data, PyBUF_SIMPLE) < 0)
		return NULL;
	FREELY(crc = gpc_crc32c(crc, data.buf, (uint64_t)data.len));
	PyBuffer_Release(&data);
	return PyLong_FromUnsignedLong(crc);
}

/* Turns two numbers below the limits into a block, or one number into its pool or slot, or into a
 * set of spaces. */
static int two_numbers(const struct call *call, PyObject *const *args, Py_ssize_t n,
		       PyObject *kwnames, uint32_t high0, uint32_t high1, uint32_t v[2])
{
	PyObject *a[MAX_ARGS];
	uint32_t high[2] = { high0, high1 };
	int i;

	if (args_parse(call, args, n, kwnames, a) < 0)
		return -1;
	for (i = 0; i < call->required; i++) {
		if (args_u32(a[i], call->names[i], &v[i]) < 0)
			return -1;
		if (v[i] > high[i]) {
			PyErr_Format(PyExc_ValueError,
				     "%s: %lu is out of range, it may be 0 to %lu", call->names[i],
				     (unsigned long)v[i], (unsigned long)high[i]);
			return -1;
		}
	}
	return 0;
}

static METHOD(module_block)
{
	static const struct call call = { "BLOCK", 2, 2, { "pool", "slot" } };
	uint32_t v[2] = { 0, 0 };

	if (two_numbers(&call, args, n, kwnames, GPC_MAX_POOLS, 0xffffff, v) < 0)
		return NULL;
	return PyLong_FromLong(GPC_BLOCK(v[0], v[1]));
}

static METHOD(module_pool)
{
	static const struct call call = { "POOL", 1, 1, { "block" } };
	uint32_t v[2] = { 0, 0 };

	if (two_numbers(&call, args, n, kwnames, INT32_MAX, 0, v) < 0)
		return NULL;
	return PyLong_FromLong(GPC_POOL((long)v[0]));
}

static METHOD(module_slot)
{
	static const struct call call = { "SLOT", 1, 1, { "block" } };
	uint32_t v[2] = { 0, 0 };

	if (two_numbers(&call, args, n, kwnames, INT32_MAX, 0, v) < 0)
		return NULL;
	return PyLong_FromLong(GPC_SLOT((long)v[0]));
}

static METHOD(module_space)
{
	static const struct call call = { "SPACE", 1, 1, { "space" } };
	uint32_t v[2] = { 0, 0 };

	if (two_numbers(&call, args, n, kwnames, GPC_MAX_SPACES - 1, 0, v) < 0)
		return NULL;
	return PyLong_FromUnsignedLong(GPC_SPACE(v[0]));
}

static PyMethodDef functions[] = {
	ROW("attach", open_attach,
	    "$module, name, *, timeout=0.0, stock=0, quota=0, dir=None, label=None, "
	    "layout=None, serve=False, readonly=False, leader=None, life=0, log=None",
	    "Take a seat: a Cache.  Waits up to timeout for the name and a seat.  layout: "
	    "up to 32 bytes.\n"
	    "leader, life: info().peer and info().life of the peer that this one is a "
	    "companion of.\n"
	    "log: a function of level (as in syslog) and text, which any thread may call."
	    "\n"
	    "gpc.NotFound: no such cache.  EUSERS: all seats are taken.  EPROTO: another version or layout." TIMES),
	ROW("create", open_create,
	    "$module, name, *, if_absent=False, timeout=0.0, stock=0, quota=0, dir=None, "
	    "label=None, layout=None, serve=False, log=None, block_tokens=0, max_blocks=0, "
	    "max_peers=0, max_pools=0, vram_blocks=0, ram_blocks=0, tick_us=0, "
	    "free_target=0, quarantine_ms=0, keep_tokens=0, keep_digests=0, peer_quota=0, "
	    "mode=0, gid=0, devices=None, ram_space=0, ram_flags=0, max_aliases=0, "
	    "ram_runs=None, block_bytes=0, fingerprint=b'', numa=0, nodes=0, "
	    "no_checksums=0, huge_dir=None, threads=0, seed=0, sums=0, secret=None",
	    "Make a cache and attach: a Cache.  The other arguments are those of attach, "
	    "and the fields of\n"
	    "struct gpc_config; block_bytes, fingerprint, numa, nodes, no_checksums, "
	    "huge_dir, threads, seed, sums and\n"
	    "ram_runs give the pool of ram_blocks memory."
	    "\n"
	    "gpc.Exists: the name is taken.  gpc.NoSpace: too little shared memory, and how much.\n"
	    "EPROTO: if_absent, and what exists is different." TIMES),
	ROW("unlink", module_unlink, "$module, name, dir=None",
	    "Remove the names; attached processes go on."
	    "\n"
	    "gpc.NotFound: there is none.  gpc.Denied: it is another user's."),
	ROW("version", module_version, "$module", "(major, minor) of the loaded library."),
	ROW("strerror", module_strerror, "$module, err",
	    "One sentence for an errno of gpc, of either sign."),
	ROW("last_error", module_last_error, "$module",
	    "The sentence of this thread's last call: why an item was refused, where the "
	    "call has answered for each and raised nothing; \"\" if none was."),
	ROW("crc32c", module_crc32c, "$module, data, crc=0",
	    "The CRC32C of a contiguous buffer, behind what crc is of.  Other threads run "
	    "meanwhile."),
	ROW("BLOCK", module_block, "$module, pool, slot", "The number of a block."),
	ROW("POOL", module_pool, "$module, block", "The pool of a block."),
	ROW("SLOT", module_slot, "$module, block", "The slot of a block."),
	ROW("SPACE", module_space, "$module, space",
	    "The set of this one space; sets are joined by |."),
	ROW("tiers_open", tiers_open,
	    "$module, name, *, disk=None, disk_bytes=0, disk_blocks=0, flags=0, dir=None, "
	    "timeout=0.0, ram=0, disk_space=0, disk_threads=0, ahead=0, min_uses=0, "
	    "max_age_s=0, write_rate=0, questions=0, remote=None, remote_tag=None, "
	    "remote_blocks=0, remote_space=0, remote_uses=0, remote_ms=0, secret=None, "
	    "log=None",
	    "Keep the tiers below RAM of that cache, by threads of this process, until "
	    "tiers_close: the fields of\n"
	    "struct gpc_tiers_options.  The writer is another thread or process."
	    "\n"
	    "gpc.NotFound: no such cache.  gpc.Busy: another process keeps its tiers." TIMES),
	ROW("tiers_close", tiers_close, "$module, tiers",
	    "Keep them no more; so does the end of what tiers_open returned."),
	ROW("tiers_file", tiers_file, "$module, disk",
	    "The description in a file of a tier: TiersFile."
	    "\n"
	    "gpc.NotFound: no such file.  EBADMSG: it is none, or damaged."),
	PRIVATE("_share_begin", share_begin),
	PRIVATE("_share_end", share_end),
	PRIVATE("_sums_open", share_sums),
	{ "_close_all", handle_close_all, METH_NOARGS, NULL },
	{ NULL, NULL, 0, NULL }
};

/* ---- constants ---- */

#define C(name)                   \
	{                         \
#name, GPC_##name \
	}
static const struct {
	const char *name;
	long value;
} constants[] = {
	C(NONE),
	C(IF_ABSENT),
	C(SERVE),
	C(READONLY),
	C(QUIET),
	C(TOUCH),
	C(GROUP),
	C(IN_HAND),
	C(EVERYWHERE),
	C(ONLY),
	C(BELOW),
	C(FREE),
	C(SET_FREE_TARGET),
	C(SET_QUOTA),
	C(SET_LOG_LEVEL),
	C(SET_SPILL_AHEAD),
	C(SET_DISK_AHEAD),
	C(SET_DISK_MAX_AGE),
	C(SET_SLOW_MS),
	C(REF),
	C(ANYWHERE),
	C(PARTIAL),
	C(TAKE),
	C(COPY),
	C(CANCEL),
	C(TAIL),
	C(STANDBY),
	C(REMOVE),
	C(DEVICE),
	C(VERIFY_FIRST),
	C(IF_IDLE),
	C(NO_REF),
	C(PEEK),
	C(VRAM),
	C(RAM),
	C(DISK),
	C(REMOTE),
	C(TIERS_EXCLUSIVE),
	C(TIERS_RESIZE),
	C(TIERS_BUFFERED),
	C(TIERS_STRICT),
	C(TIERS_CHECK),
	C(TIER_DOWN),
	C(TIER_UP),
	C(TIER_OFF),
	C(TIER_STOPPED),
	C(POOL_OWNED),
	C(POOL_CALLER),
	C(POOL_UNCHAINED),
	C(SEAL_UNSUMMED),
	C(POOL_ONCE),
	C(NUMA_DEFAULT),
	C(NUMA_INTERLEAVE),
	C(NUMA_BIND),
	C(AGE_EVICTED),
	C(IDLE_EVICTED),
	C(REUSE_GAP),
	C(ROUND_TRIP),
	C(TAKEOVER),
	C(COPY_VRAM_VRAM),
	C(COPY_VRAM_RAM),
	C(COPY_RAM_VRAM),
	C(COPY_RAM_RAM),
	C(CLAIM_MINE),
	C(CLAIM_LIVE),
	C(CLAIM_PENDING),
	C(STORED),
	C(REMOVED),
	C(MOVED),
	C(CLEARED),
	C(RETURNED),
	C(MAX_NAME),
	C(MAX_POOLS),
	C(MAX_PEERS),
	C(MAX_SPACES),
	C(MAX_MIRRORS),
	C(SECTIONS),
	C(MAX_RUNS),
	C(MAX_PARTS),
	C(TRANSFERS),
	C(TRANSFER_BLOCKS),
	C(MAX_RANKS),
	C(MAX_STAGES),
	C(MAX_GROUPS),
};

static int add_u64(PyObject *module, const char *name, uint64_t value)
{
	PyObject *v = PyLong_FromUnsignedLongLong(value);
	int r = v ? PyModule_AddObjectRef(module, name, v) : -1;

	Py_XDECREF(v);
	return r;
}

static int constants_add(PyObject *module)
{
	size_t i;

	for (i = 0; i < sizeof(constants) / sizeof(constants[0]); i++)
		if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) < 0)
			return -1;
	if (PyModule_AddIntConstant(module, "_SHARE_CALLS", share_calls) < 0)
		return -1;
	if (add_u64(module, "TICKET_ALL", GPC_TICKET_ALL) < 0 ||
	    add_u64(module, "TRANSFER_ALL", GPC_TRANSFER_ALL) < 0 ||
	    add_u64(module, "FROM_NOW", UINT64_MAX) < 0)
		return -1;
	return 0;
}

/* ---- start ---- */

/* Types and exceptions are kept in static variables.  Threads of the library find their
 * interpreter by PyGILState_Ensure, which gives the main one.  So only the main interpreter may
 * have the module, and only once. */
static int check_interpreter(void)
{
	if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
		PyErr_SetString(PyExc_ImportError,
				"gpc works in the main interpreter of a process alone, and this is "
				"another one: use threads, or processes");
		return -1;
	}
	if (cache_type) {
		PyErr_SetString(PyExc_ImportError, "gpc is loaded already in this process");
		return -1;
	}
	return 0;
}

static int module_exec(PyObject *module)
{
	if (check_interpreter() < 0)
		return -1;
	if (gpc_version() >> 16 != GPC_VERSION_MAJOR ||
	    (gpc_version() & 0xffff) != GPC_VERSION_MINOR) {
		PyErr_Format(PyExc_ImportError, "gpc was built for libgpc %d.%d, and this is %d.%d",
			     GPC_VERSION_MAJOR, GPC_VERSION_MINOR, (int)(gpc_version() >> 16),
			     (int)(gpc_version() & 0xffff));
		return -1;
	}
	if (wait_init() < 0 || record_init() < 0 || error_init(module) < 0 ||
	    constants_add(module) < 0 || handle_init(module) < 0 || part_init(module) < 0 ||
	    walk_init(module) < 0 || device_init(module) < 0 || tiers_init(module) < 0)
		return -1;
	return 0;
}

static PyModuleDef_Slot slots[] = { { Py_mod_exec, module_exec },
/* Calls rely on the GIL around lists and buffers of the caller, and the tests have run on no build
 * without it.  There the import switches the GIL on. */
#ifdef Py_mod_gil
				    { Py_mod_gil, Py_MOD_GIL_USED },
#endif
#ifdef Py_mod_multiple_interpreters
				    { Py_mod_multiple_interpreters,
				      Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED },
#endif
				    { 0, NULL } };
static struct PyModuleDef definition = {
	.m_base = PyModuleDef_HEAD_INIT,
	.m_name = "gpc._gpc",
	.m_methods = functions,
	.m_slots = slots,
	.m_doc = "The calls of libgpc; see the package gpc.",
};

PyMODINIT_FUNC PyInit__gpc(void);
PyMODINIT_FUNC PyInit__gpc(void)
{
	return PyModuleDef_Init(&definition);
}
