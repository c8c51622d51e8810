/* SPDX-License-Identifier: Apache-2.0 */
/* handle.c - checks that every call makes of its handle, the present tick, and sections.
 * Tests: t/index/many-threads.t t/index/epoch.t t/bytes/threads.t t/bytes/errors.t
 *   t/look/stats.t */
#include "config.h"

#include <errno.h>
#include <sched.h>
#include "index/peer/handle.h"

int handle_refuse(gpc *c)
{
	if (!c)
		return err_set(EINVAL, "the handle is NULL");
	if (c->forked)
		return err_set(ECHILD, "the handle belongs to the parent process: "
				       "attach anew");
	return err_set(EROFS, "the handle was attached with GPC_READONLY");
}

#define ENDS_IN_ZEROS ((1ull << (32 - STAMP_BITS)) - 1)

/* Raise the tick by n or a few more: none of the n has a stamp whose lower half could be 0, which
 * means no use. */
static uint64_t more_ticks(struct shm_shared *shared, uint32_t n)
{
	uint64_t tick;

	do {
		tick = order_add64(&shared->tick, n) + n;
	} while ((tick & ENDS_IN_ZEROS) < n);
	return tick;
}

/* The thread that moves the time of the last step moves the tick.  If it dies in between, the
 * step is left out.  In time namespaces with clocks of their own the last step may seem to be long
 * ago, or yet to come.  A process makes one step at a time all the same. */
uint64_t handle_ticks(gpc *c, uint32_t n)
{
	struct shm_shared *shared = seg_shared(&c->seg);
	uint64_t step = c->seg.header.tick_us * 1000ull, now, last;

	if (c->seg.header.tick_us == 1 || n > 1)
		return more_ticks(shared, n);
	now = clock_coarse_ns();
	last = load_relaxed(&shared->tick_ns);
	if (now - last < step || now - load_relaxed(&c->tick_raised_ns) < step ||
	    !order_cas64(&shared->tick_ns, last, now))
		return load_relaxed(&shared->tick);
	store_relaxed(&c->tick_raised_ns, now);
	return more_ticks(shared, 1);
}

/* Each thread begins at the place that it had last, so threads settle on places, and on cache
 * lines, of their own. */
static int enter_any(gpc *c)
{
	static uint32_t threads;
	static __thread uint32_t hint;
	uint32_t i, place;

	if (__builtin_expect(!hint, 0))
		hint = SHM_OWN_SECTIONS + count_next(&threads);
	for (i = 0; i < SHM_OWN_SECTIONS; i++) {
		place = (hint + i) % SHM_OWN_SECTIONS;
		if (epoch_enter(&c->seg, c->peer, place)) {
			hint += i;
			return (int)place;
		}
	}
	for (place = SHM_SECTIONS; place-- > SHM_OWN_SECTIONS;)
		if (epoch_enter(&c->seg, c->peer, place))
			return (int)place;
	return -EAGAIN;
}

/* There are more threads than places.  A thread with a place is in a lookup, and gives the place
 * up within microseconds of processor time, so we yield the processor to it.  We do so a limited
 * number of times, whatever the others do: a lookup takes a bounded number of steps. */
int handle_enter(gpc *c)
{
	int place = enter_any(c), turns;

	for (turns = 0; __builtin_expect(place < 0, 0) && turns < HANDLE_TURNS; turns++) {
		sched_yield();
		place = enter_any(c);
	}
	return place >= 0
		       ? place
		       : err_set(EAGAIN,
				 "all %u sections of this handle are open: more threads than that are in "
				 "its lookups, or sections stay open; attach another handle for some of "
				 "the threads, or leave sections",
				 SHM_SECTIONS);
}

void handle_leave(gpc *c, int section)
{
	epoch_leave(&c->seg, c->peer, (uint32_t)section);
}

void handle_sweep_sections(gpc *c)
{
	uint32_t i, mark;

	if (c->readonly)
		return;
	mark = load_relaxed(&seg_seat(&c->seg, c->peer)->sections);
	mark = MIN(mark, SHM_SECTIONS);
	if (mark <= SHM_OWN_SECTIONS)
		return;
	pthread_mutex_lock(&c->device_sections);
	for (i = SHM_OWN_SECTIONS; i < mark; i++)
		epoch_sweep(&c->seg, c->peer, i);
	pthread_mutex_unlock(&c->device_sections);
}

bool handle_in_section(gpc *c)
{
	uint64_t me = handle_thread();
	uint32_t i;

	for (i = 0; i < GPC_SECTIONS; i++)
		if (load_relaxed(&c->section_thread[i]) == me)
			return true;
	return false;
}

/* ---- the copy of a read-only handle ---- */

int handle_copy_begin(gpc *c, bool fresh)
{
	int err = handle_check(c, false);

	if (err)
		return err;
	/* A live handle reads its mappings and needs no lock, but a snapshot's copy is
	 * one for all threads, and so is the copy of a walk. */
	pthread_mutex_lock(&c->walk_lock);
	if (c->seg.snapshot && (fresh || !c->seg.control))
		err = segment_refresh(&c->seg);
	if (!err)
		err = segment_check_copies(&c->seg);
	if (err)
		pthread_mutex_unlock(&c->walk_lock);
	return err;
}

void handle_copy_end(gpc *c)
{
	pthread_mutex_unlock(&c->walk_lock);
}

int handle_need_copy(gpc *c)
{
	int err = handle_copy_begin(c, false);

	if (!err)
		handle_copy_end(c);
	return err;
}
