/* SPDX-License-Identifier: Apache-2.0 */
/* gpcpy.h - what the files of the Python module share.
 *
 * Functions that return int and take a PyObject return 0, or -1 with an exception set.
 * Tests: t/python/arguments.t */
#ifndef GPCPY_H
#define GPCPY_H

/* One binary serves all of CPython since 3.11.  A build without the GIL has no stable interface
 * yet, so there setup.py leaves this out. */
#ifndef GPC_PY_FULL_API
#define Py_LIMITED_API 0x030b0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <gpc.h>
#include <gpc_bytes.h>
#include <gpc_device.h>
#include <gpc_look.h>
#include <gpc_serve.h>
#include <gpc_tiers.h>
#include <pthread.h>
#include <stdbool.h>

/* ---- error.c ---- */

int error_init(PyObject *module);
/* Raises the error of this thread's last call.  Returns NULL. */
void *error_raise(int err);
/* ... with attributes of the exception: a ticket (0 = none), a cursor. */
void *error_raise_ticket(int err, gpc_ticket ticket);
void *error_raise_cursor(int err, uint64_t cursor);
/* Raises an error that the module itself finds. */
void *error_say(int err, const char *format, ...);

/* ---- args.c: arguments in ---- */

#define MAX_ARGS 16

struct call { /* the arguments of a method */
	const char *name;
	int positional, required; /* most arguments by position; arguments that must be given */
	const char *names[MAX_ARGS + 1];
};

/* The arguments in the order of names, borrowed; NULL = not given. */
int args_parse(const struct call *call, PyObject *const *args, Py_ssize_t n, PyObject *kwnames,
	       PyObject **ret);

/* Scalars.  An argument that is not given leaves *ret as it is. */
int args_u32(PyObject *o, const char *name, uint32_t *ret);
int args_u64(PyObject *o, const char *name, uint64_t *ret);
int args_int(PyObject *o, const char *name, int *ret);
int args_text(PyObject *o, const char *name, const char **ret, PyObject **keep);
/* Seconds to milliseconds, rounded up; None = -1. */
int args_time(PyObject *o, const char *name, int *ret);
/* An int, or an object with cuda_stream (PyTorch) or __cuda_stream__; None = NULL. */
int args_stream(PyObject *o, const char *name, void **ret);

/* ---- array.c: arrays in and out ---- */

struct array { /* all zeros = no array */
	void *p;
	uint32_t n; /* items */
	bool own;   /* p is ours; else it belongs to the view */
	bool viewed;
	Py_buffer view;
};

void array_free(struct array *a);
/* Keys: 16 bytes each, of a buffer or a list.  None (where it may be): p = NULL. */
int array_keys(PyObject *o, const char *name, struct array *a);
/* int32 and uint32, copied: a caller that changes them while the call runs does no harm.  Each
 * 64-bit item has to fit, and no word may be negative. */
int array_blocks(PyObject *o, const char *name, struct array *a);
int array_words(PyObject *o, const char *name, struct array *a);
/* The same for tokens, which are viewed where they have 32 bits.  Each value is a token, so a
 * value that another thread changes meanwhile is only another token. */
int array_tokens(PyObject *o, const char *name, struct array *a);
/* Digests of one size: a list of bytes, or a buffer and its size. */
int array_digests(PyObject *o, const char *name, PyObject *size, struct array *a, uint32_t *bytes);
/* Room for n items of that many bytes: the caller's buffer, or our own memory if it gave none. */
int array_out(PyObject *o, const char *name, size_t n, uint32_t size, struct array *a);
/* Read-only bytes of any buffer. */
int array_bytes(PyObject *o, const char *name, struct array *a);
bool array_same(const char *name, const struct array *a, const char *other, const struct array *b);
PyObject *array_list(const int32_t *p, size_t n);
/* The result of a call that filled `r` items of out: their list, or their number if out is the
 * caller's. */
PyObject *array_give(const struct array *out, int r);

/* ---- field.c: structs as named tuples ---- */

enum field_kind {
	F_U32,
	F_I32,
	F_U64,
	F_DOUBLE,
	F_KEY,
	F_TEXT,
	F_BYTES,
	F_STRING,
	F_COUNTS,
	F_NAMED
};
struct field {
	const char *name;
	uint32_t offset, size;
	enum field_kind kind;
	/* F_BYTES, F_COUNTS, F_NAMED: offset of a u32, the number of units that count */
	uint32_t cut, unit;
};
struct record { /* a struct, and the class in gpc._types that shows it */
	const char *name;
	const struct field *fields; /* in the order of the class; the last name is NULL */
	uint32_t bytes;
	PyObject *class;
};
extern struct record record_run, record_move, record_claim, record_pool, record_memory, record_info,
	record_stats, record_histogram, record_mirror, record_entry, record_event, record_transfer,
	record_tier, record_tiers_file, record_sum;
extern const struct field fields_config[], fields_pool[], fields_backing[], fields_tiers[];

int record_init(void);
PyObject *record_make(const struct record *r, const void *from);
PyObject *record_list(const struct record *r, const void *from, size_t n);
/* Reads a tuple of all fields, or a dict of some. */
int record_read(const struct record *r, PyObject *o, const char *name, void *to);
/* Reads a list of them into own memory of the array. */
int record_array(const struct record *r, PyObject *o, const char *name, struct array *a);
/* Sets one field by its name; 1 = there is no such field.  F_STRING: the text lives as long as
 * *o. */
int field_set(const struct field *fields, const char *name, PyObject *o, void *to);

/* ---- tiers.c ---- */

/* Reads 16 bytes, or None: 0, -1. */
int tiers_secret(PyObject *o, uint8_t secret[16], const void **ret);

/* ---- handle.c ---- */

struct kept { /* memory that the library may still use */
	struct kept *next;
	gpc_ticket ticket; /* kept until a wait for this ticket; 0 = until close */
	struct array array;
};

struct left { /* blocks that a call took, and that no caller has heard of */
	struct left *next;
	uint32_t n;
	gpc_block block[];
};

struct part;
typedef struct {
	PyObject_HEAD gpc *c;
	uint32_t block_tokens;
	int users; /* calls that are inside; atomic, as is closed */
	int closed;
	pthread_mutex_t lock; /* guards the fields below; no Python runs under it */
	pthread_cond_t left;
	struct kept *kept;
	struct part *parts;           /* parts that are mapped */
	uint32_t exports;             /* number of views of them */
	uint32_t unmapping, unmapped; /* calls of pool_unmap: under way, so far */
	PyObject *log;
	PyObject *name;
	uint32_t max_blocks;
	int peer;
	uint32_t forks; /* value of handle_forks when it was opened */
	struct left *left_over;
} Cache;

extern PyTypeObject *cache_type;
int handle_init(PyObject *module);
/* Adds it to the list of handles that the end of the interpreter closes. */
int handle_open(Cache *self);
/* Each use is between these two; enter fails after close, and in a forked child. */
int handle_enter(Cache *self);
void handle_leave(Cache *self);
/* Takes the memory of the array, until ticket_wait(ticket), or until close for ticket 0. */
int handle_keep(Cache *self, struct array *a, gpc_ticket ticket);
void handle_unkeep(Cache *self, gpc_ticket ticket);
/* Number of forks on the way to this process. */
extern uint32_t handle_forks;
static inline bool handle_forked(const Cache *self)
{
	return self->forks != handle_forks;
}
/* "open", "closed" or "of the parent process" */
const char *handle_state(const Cache *self);
/* Blocks that the next returned() of their pool will tell. */
void handle_leave_over(Cache *self, const gpc_block *blocks, uint32_t n);
uint32_t handle_take_over(Cache *self, int pool, gpc_block *blocks, uint32_t n);
/* Above 0 in a callback into Python: this thread may not close. */
extern __thread int handle_inside;
extern bool handle_ending; /* the interpreter is about to end */
/* A Python function that gets the library's log: 0, or -1 with an exception. */
int log_check(PyObject *o);
void log_call(PyObject *const *at, int level, const char *text);
PyObject *handle_close_all(PyObject *module, PyObject *unused);

/* Runs without the GIL; the statement assigns r. */
#define FREELY(statement)                         \
	do {                                      \
		Py_BEGIN_ALLOW_THREADS statement; \
		Py_END_ALLOW_THREADS              \
	} while (0)

/* ---- wait.c: calls that wait, and signals ---- */

#define WAIT_RAISED (-100000) /* an exception was raised */

/* A call of the library that waits for other processes; the statement assigns r.  wait.c has the
 * table. */
#define WAIT(r, statement)                        \
	do {                                      \
		if (wait_begin() < 0) {           \
			(r) = WAIT_RAISED;        \
		} else {                          \
			FREELY(statement);        \
			(r) = wait_end((int)(r)); \
		}                                 \
	} while (0)
int wait_init(void);
int wait_begin(void);
int wait_end(int r);
/* Has a handler raised, or does one raise now?  It is asked after a call that takes something.
 * The caller then gives that back before the exception goes up, since afterwards it would be
 * lost. */
bool wait_raised(int r);
/* The result of a call that gives a number, or none. */
PyObject *wait_number(int r);
PyObject *wait_none(int r);
/* A child of fork has one thread, which is its main thread. */
void wait_forked(void);
/* Runs handlers of signals within a computation of the library; any value but 0 ends it. */
int wait_look(void);

/* For waits that do not ask for signals: waits in parts.  `statement` uses slice as its timeout
 * and assigns r. */
#define WAIT_SLICES(r, timeout_ms, statement)             \
	do {                                              \
		uint64_t until_ = wait_until(timeout_ms); \
		int slice;                                \
		do {                                      \
			slice = wait_slice(until_);       \
			FREELY(statement);                \
			(r) = wait_next((r), until_);     \
		} while ((r) == WAIT_ON);                 \
	} while (0)
#define WAIT_ON (-100001) /* another part */
uint64_t wait_until(int timeout_ms);
int wait_slice(uint64_t until_ns);
int wait_next(int r, uint64_t until_ns);

/* ---- the methods, in files by subject ---- */

#define METHOD(f) \
	PyObject *f(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
/* A public method has a signature, which inspect reads, and a sentence. */
#define ROW(name, f, signature, text)                                                  \
	{                                                                              \
		name, (PyCFunction)(void (*)(void))(f), METH_FASTCALL | METH_KEYWORDS, \
			name "(" signature ")\n--\n\n" text                            \
	}
#define PRIVATE(name, f)                                                                    \
	{                                                                                   \
		name, (PyCFunction)(void (*)(void))(f), METH_FASTCALL | METH_KEYWORDS, NULL \
	}
#define TIMES                                                                                   \
	"\ntimeout: seconds, 0 to 2147483; None = no limit, 0 = no wait beyond a round trip.  " \
	"gpc.TimedOut,\ngpc.Again (timeout=0), gpc.NotConnected: nobody does it.  Ctrl-C ends the wait."
#define SPACES "\nspaces: a set, SPACE(i) | SPACE(j), i from 0 to 31; 0 = all of VRAM and RAM."

extern const PyMethodDef methods_keys[], methods_find[], methods_fill[], methods_move[],
	methods_transfer[], methods_tiers[], methods_claim[], methods_pool[], methods_memory[],
	methods_look[], methods_walk[], methods_writer[], methods_device[], methods_seal[];
METHOD(tiers_open);
METHOD(tiers_close);
METHOD(tiers_file);
METHOD(open_attach);
METHOD(open_create);
METHOD(publish_call);
/* Words of the table of calls that a share takes, as in struct pages_calls. */
extern const long share_calls;
METHOD(share_begin);
METHOD(share_end);
METHOD(share_sums);
int part_init(PyObject *module);
int tiers_init(PyObject *module);
int walk_init(PyObject *module);
int device_init(PyObject *module);
/* Frees a handle's parts that have no views; called at close. */
void part_forget_all(Cache *self);

#endif
