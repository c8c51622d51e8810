/* SPDX-License-Identifier: Apache-2.0 */
/* grace.pml - sections and grace periods: epoch.c, and the order of removal of index/writer/retire.c, grace.c.
 *
 * A block's entry is removed from the host table and from a mirror, a grace period
 * passes, and the block is used for something else.  Readers, each with a seat and a slot
 * of its own, open sections, find the block in the table or in the mirror, and use it
 * until they leave.  -DPOLL: the grace period is asked for with epoch_done(), which
 * shares what scans have proved in `completed`, and a stranger starts and polls one of
 * its own meanwhile.
 *
 * Proves: no section uses the block after it has been used for something else, which is
 * what (E), (F), (G) and (B) are for.
 *
 * SEARCH backwards
 * SHORT whole
 * SHORT whole -DPOLL
 * SHORT mutants
 * RUN passes
 * RUN passes -DPOLL
 * RUN fails -DNO_FENCE         the slot is stored, and nothing waits for that
 * RUN fails -DMARK_LATE        the high-water mark is stored after the slot
 * RUN fails -DWRITER_NO_FENCE  the epoch is raised by a plain store
 * RUN fails -DNO_GRACE         the block is used again at once
 * RUN fails -DGRACE_FIRST      the grace period begins before the flush has ended
 * RUN fails -DNO_FLUSH         the grace period begins without any flush
 * RUN fails -DLEAVE_EARLY      the slot is cleared before the last use
 * RUN fails -DPOLL -DSCAN_LATE what a scan proves is read from the epoch after it
 * RUN fails -DPOLL -DNO_FENCE */
#ifndef READERS
#ifdef POLL
#define READERS 1
#else
#define READERS 2
#endif
#endif
#define WRITER  READERS
#define POLLER  (READERS + 1)
#define CPUS    (READERS + 2)
#define DEPTH   2
#ifndef ROUNDS
#define ROUNDS  2
#endif

#define ENTRY   0               /* of the host table: 1 = names the block */
#define EPOCH   1
#define DONE    2               /* `completed` */
#define SLOT(p) (3 + (p))
#define MARK(p) (3 + READERS + (p))
#define CELLS   (3 + 2 * READERS)
#include "tso.h"

bool mirror = true, flushing, reused;

proctype reader(byte me)
{
	byte epoch, n;
	bool found;

	do
	:: n < ROUNDS ->
#ifndef MARK_LATE
		if
		:: mem[MARK(me)] == 0 -> LOCKED(mem[MARK(me)] = 1)
		:: else
		fi;
#endif
		epoch = mem[EPOCH];
#ifdef NO_FENCE
		STORE(SLOT(me), epoch);
#else
		LOCKED(mem[SLOT(me)] = epoch);
#endif
#ifdef MARK_LATE
		STORE(MARK(me), 1);
#endif
		if                              /* a host lookup, or a kernel */
		:: found = mem[ENTRY]
		:: found = mirror
		fi;
#ifdef LEAVE_EARLY
		STORE(SLOT(me), 0);
#endif
		assert(!(found && reused));
		assert(!(found && reused));
#ifndef LEAVE_EARLY
		STORE(SLOT(me), 0);
#endif
		found = false;
		epoch = 0;
		n++
	:: else -> break
	od
}

proctype engine()                       /* copies what is changed to the mirror */
{
end:	do
	:: flushing -> mirror = false; flushing = false
	od
}

inline flush() { flushing = true; !flushing }

/* oldest = min(oldest, epochs of open sections), in any moment's state of each word */
inline scan(oldest)
{
	p = 0;
	do
	:: p < READERS ->
		v = mem[MARK(p)];
		if
		:: v -> v = mem[SLOT(p)];
			if
			:: v && v < oldest -> oldest = v
			:: else
			fi
		:: else
		fi;
		p++
	:: else -> break
	od;
	p = 0;
	v = 0
}

inline start(cookie)
{
#ifdef WRITER_NO_FENCE
	cookie = mem[EPOCH] + 1;
	STORE(EPOCH, cookie)
#else
	LOCKED(mem[EPOCH]++; cookie = mem[EPOCH])
#endif
}

#ifndef POLL
inline wait_for(cookie)
{
	do
	:: true ->
#ifndef WRITER_NO_FENCE
		FENCE();
#endif
		oldest = cookie;
		scan(oldest);
		if
		:: oldest >= cookie -> break
		:: else
		fi
	od
}
#else
inline wait_for(cookie)                 /* epoch_done() until it says yes */
{
	do
	:: true ->
		known = mem[DONE];
		oldest = mem[EPOCH];
		if
		:: known >= cookie && known <= oldest -> break
		:: else
		fi;
		FENCE();
#ifdef SCAN_LATE
		oldest = 255;
		scan(oldest);
		if
		:: oldest == 255 -> oldest = mem[EPOCH]
		:: else
		fi;
#else
		scan(oldest);
#endif
		do
		:: known < oldest ->
			LOCKED(if
			:: mem[DONE] == known -> mem[DONE] = oldest; known = oldest
			:: else -> known = mem[DONE]
			fi)
		:: else -> break
		od;
		if
		:: oldest >= cookie -> break
		:: else
		fi
	od;
	known = 0
}
#endif

proctype writer(byte me)
{
	byte cookie, oldest, known, p, v;

	STORE(ENTRY, 0);                /* wipe; the epoch's locked addition drains it */
#ifdef GRACE_FIRST
	start(cookie);
	flush();
#else
#ifndef NO_FLUSH
	flush();
#endif
	start(cookie);
#endif
#ifndef NO_GRACE
	wait_for(cookie);
#endif
	reused = true
}

proctype poller(byte me)
{
	byte cookie, oldest, known, p, v;

	start(cookie);
	wait_for(cookie)
}

init
{
	atomic {
		mem[ENTRY] = 1;
		mem[EPOCH] = 1;
		run reader(0);
#if READERS > 1
		run reader(1);
#endif
		run writer(WRITER);
		run engine();
		run cpu(0);
#if READERS > 1
		run cpu(1);
#endif
		run cpu(WRITER);
#ifdef POLL
		run poller(POLLER);
		run cpu(POLLER)
#endif
	}
}
