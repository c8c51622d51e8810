/* SPDX-License-Identifier: Apache-2.0 */
/* wait.c - calls that wait, and signals.
 *
 * Python runs the handlers of signals in its main thread alone.  While that thread waits in the
 * library, the library asks stop() (gpc_wait_stop), which runs the handlers.  A handler that
 * raises ends the wait as if its time was up, and its exception goes up in place of gpc.TimedOut.
 * A handler that returns lets the wait go on to its own limit.  After the call wait_raised() looks
 * once more.  If it raises, the call gives back all that the caller will not hear of.  The table
 * has each call of the module that waits.
 *
 *   call                        waits for             ends by     behind KeyboardInterrupt
 *   --------------------------  --------------------  ----------  -------------------------------
 *   attach, create, tiers_open  a name, a seat        stop        nothing is attached; a cache or
 *                                                                 pool that was made stays
 *   create, pool_make           pages of RAM          progress    no memory, no pool
 *   pool_make, pool_add         writer, ONCE          stop        the pool may come: pool_get
 *   unlink                      who makes or removes  stop        the name stays, or is gone
 *   reserve, evict              writer, grace         stop        no block: withdrawn, or given back
 *   returned                    the writer's evicts   stop        what came is told by the next one
 *   publish, drop, rekey,       writer                stop        submitted is carried out; its
 *     alias, root_keep                                            buffers stay until ticket_wait
 *   reclaim                     writer                stop        given back, or carried out:
 *                                                                 reservations, release them
 *   pool_clear                  writer, holds, tiers  stop        carried out
 *   demote, promote             writer                stop        withdrawn, or cancelled
 *   commit                      writer                stop        carried out
 *   claim, claim_drop           writer                stop        dropped, or carried out: release
 *                                                                 of the blocks ends claims
 *   claim_wait                  the claims of others  stop        nothing changes
 *   fetch                       tiers, writer         stop        no hold; a transfer that was begun
 *                                                                 is the handle's: transfers()
 *   spill, spill_ahead          writer                stop        the same
 *   prefetch                    tiers                 stop        what comes stays in RAM
 *   ticket_wait, mirror_sync,   writer, device        stop        nothing changes; call again
 *     transfer_wait, tiers_sync
 *   pool_pin, Device.wait       driver, device        slices      nothing changes; call again
 *   writer_take                 the seat              stop        not the writer
 *   writer_serve                work                  stop        the writer still
 *   writer_drop                 who serves            stop        the writer still
 *   close                       calls of others       a look      the handle is open
 *   Device.close                calls of others       a look      the device is open
 *   copy, fetch, spill: the     a turn to register   by itself   in 10 s, once for a pool
 *     first copy with a GPU     memory
 *   close, Device.close,        writer 1 s, device    by itself   closed: the exception comes behind
 *     tiers_close               10 s, stores 2 s
 *
 * A handler that runs in stop() may make no call that waits: the outer call may have a lock that
 * the nested one waits for.
 * Tests: t/python/interrupt.t */
#include "gpcpy.h"

#include <limits.h>
#include <time.h>

#define SLICE_MS 200

static __thread int waits;       /* WAITs of this thread, one in the other */
static __thread bool in_handler; /* in stop() */
static unsigned long main_thread;

int wait_init(void)
{
	PyObject *threading = PyImport_ImportModule("threading"), *thread, *ident;

	thread = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
	ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;
	if (ident)
		main_thread = PyLong_AsUnsignedLong(ident);
	Py_XDECREF(ident);
	Py_XDECREF(thread);
	Py_XDECREF(threading);
	return PyErr_Occurred() ? -1 : 0;
}

void wait_forked(void)
{
	main_thread = PyThread_get_thread_ident();
	waits = 0;
	in_handler = false;
}

static bool hears_signals(void)
{
	return PyThread_get_thread_ident() == main_thread;
}

/* ---- by gpc_wait_stop ---- */

int wait_look(void)
{
	PyGILState_STATE gil;
	bool inner = in_handler;
	int r;

	if (handle_ending || !hears_signals())
		return 0;
	gil = PyGILState_Ensure();
	in_handler = true;
	r = PyErr_Occurred() || PyErr_CheckSignals() < 0;
	in_handler = inner;
	PyGILState_Release(gil);
	return r;
}

static int stop(void *unused)
{
	(void)unused;
	return wait_look();
}

int wait_begin(void)
{
	if (in_handler) {
		error_say(EDEADLK,
			  "a handler of a signal, which came while a call of gpc waited, may not "
			  "wait itself: raise an exception, or do it when the call has returned");
		return -1;
	}
	if (!waits++ && hears_signals())
		gpc_wait_stop(stop, NULL);
	return 0;
}

int wait_end(int r)
{
	if (!--waits)
		gpc_wait_stop(NULL, NULL);
	return r < 0 && PyErr_Occurred() ? WAIT_RAISED : r;
}

bool wait_raised(int r)
{
	return r >= 0 && (PyErr_Occurred() || PyErr_CheckSignals() < 0);
}

PyObject *wait_number(int r)
{
	if (r < 0)
		return error_raise(r);
	return wait_raised(r) ? NULL : PyLong_FromLong(r);
}

PyObject *wait_none(int r)
{
	if (r < 0)
		return error_raise(r);
	return wait_raised(r) ? NULL : Py_NewRef(Py_None);
}

/* ---- by slices ---- */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t wait_until(int timeout_ms)
{
	if (timeout_ms < 0)
		return UINT64_MAX;
	return timeout_ms ? now_ns() + (uint64_t)timeout_ms * 1000000u : 0;
}

/* Only a timeout of 0 gives 0, which does not wait. */
int wait_slice(uint64_t until_ns)
{
	uint64_t now = until_ns ? now_ns() : 0;
	uint64_t left = until_ns > now ? (until_ns - now + 999999u) / 1000000u : until_ns != 0;

	return left < SLICE_MS ? (int)left : SLICE_MS;
}

int wait_next(int r, uint64_t until_ns)
{
	if ((r != -ETIMEDOUT && r != -EINTR) || !until_ns)
		return r;
	if (PyErr_CheckSignals() < 0)
		return WAIT_RAISED;
	return now_ns() < until_ns ? WAIT_ON : r;
}
