/* SPDX-License-Identifier: Apache-2.0 */
/* section.pml - sections around device work: epoch.c, dev.c, reap.c.
 *
 * One slot with its epoch, ticket and done word.  A thread opens a section, launches a
 * kernel and goes; the kernel reads a mirror later, uses what it has found, and raises
 * the done word to its ticket.  The same thread or another one of its process sweeps the
 * slot and opens it again, for the host or for a device.  A writer removes the entry,
 * flushes, starts a grace period, and uses the block for something else.  -DKILLED: the
 * process dies at any instruction, its seat is reaped while its kernel may still store
 * its done word, and the seat's next owner opens sections in the same slot.
 *
 * Proves: nothing is used after its block was used for something else, except by kernels
 * of a process that is dead; a late done word closes no other section (rule S1; (G)).
 *
 * SEARCH backwards
 * SHORT whole -DKILLED
 * SHORT mutants
 * RUN passes
 * RUN passes -DKILLED
 * RUN fails -DEPOCH_FIRST      a sweep clears the epoch, then raises the ticket
 * RUN fails -DDEVICE_CLEARS    the device clears the epoch itself
 * RUN fails -DHOST_LEAVES      the thread leaves when it has launched its kernel
 * RUN fails -DTICKET_STAYS     a sweep leaves the ticket as it is
 * RUN fails -DKILLED -DTICKET_AGAIN    the reaper begins with ticket 1 again */
#define THREADS 2               /* -DKILLED: one in each of two processes */
#define WRITER  THREADS
#define CPUS    (THREADS + 1)
#define DEPTH   3

#define ENTRY   0
#define EPOCH   1
#define SLOT    2
#define TICKET  3
#define DONE    4
#define CELLS   5
#include "tso.h"

bool mirror = true, reused, kill, dead, reaped;
byte sweeping;                  /* the mutex of a process's sweeps */
chan launched = [2] of { byte, byte };  /* thread, ticket */

inline find(copy)
{
	found = copy;
	assert(!(found && reused));
	assert(!(found && reused));
	found = false
}

inline sweep()
{
	atomic { FENCE(); !sweeping -> sweeping = 1 }
	t = mem[TICKET];
	if
	:: device && mem[SLOT] && mem[DONE] >= t ->
		device = false;
#ifdef EPOCH_FIRST
		STORE(SLOT, 0);
		STORE(TICKET, t + 1);
#else
#ifndef TICKET_STAYS
		STORE(TICKET, t + 1);
#endif
		STORE(SLOT, 0);
#endif
	:: else
	fi;
	t = 0;
	atomic { FENCE(); sweeping = 0 }
}

inline enter()
{
	e = mem[EPOCH];
	atomic {
		FENCE();
		if
		:: !mem[SLOT] -> mem[SLOT] = e; mine = true
		:: else -> mine = false
		fi;
		e = 0
	}
}

inline host_section()
{
	find(mem[ENTRY]);
	STORE(SLOT, 0)
}

bool device;                    /* the slot's kind: 1 */

inline device_section()
{
	device = true;
	t = mem[TICKET];
	launched!me,t;
	t = 0;
#ifdef HOST_LEAVES
	device = false;
	STORE(SLOT, 0)
#else
	skip
#endif
}

proctype thread(byte me)
{
	byte n, e, t;
	bool mine, found;

#ifdef KILLED
	me == 0 || reaped;
#endif
	{
		do
		:: n < 2 ->
			n++;
			sweep();
			enter();
			if
			:: mine -> host_section()
			:: mine -> device_section()
			:: !mine
			fi;
			mine = false
		:: else -> break
		od
	} unless { kill && me == 0 };
#ifdef KILLED
	if
	:: me == 0 -> kill; FENCE(); dead = true
	:: else
	fi
#endif
}

proctype stream()
{
	byte owner, t;
	bool found;

end:	do
	:: launched?owner,t ->
		found = mirror;
		assert(!(found && reused) || (owner == 0 && dead));
		assert(!(found && reused) || (owner == 0 && dead));
		found = false;
#ifdef DEVICE_CLEARS
		mem[SLOT] = 0;
#endif
		if
		:: t > mem[DONE] -> mem[DONE] = t
		:: else
		fi;
		owner = 0;
		t = 0
	od
}

/* The part of the writer that takes a dead peer's section back. */
proctype reaper()
{
	byte t;

	dead;
#ifdef TICKET_AGAIN
	t = 1;
	mem[DONE] = 0;
#else
	t = (mem[TICKET] > mem[DONE] -> mem[TICKET] : mem[DONE]) + 1;
#endif
	mem[TICKET] = t;
	device = false;
	sweeping = 0;
	mem[SLOT] = 0;
	reaped = true
}

proctype killer() { kill = true }

proctype writer(byte me)
{
	byte cookie, oldest;

	STORE(ENTRY, 0);
	mirror = false;
	LOCKED(mem[EPOCH]++; cookie = mem[EPOCH]);
	do
	:: true ->
		oldest = mem[SLOT];
		if
		:: !oldest || oldest >= cookie -> break
		:: else ->                      /* epoch_is_open() */
			if
			:: !mem[SLOT] -> break
			:: else ->
				oldest = mem[DONE];
				if
				:: oldest >= mem[TICKET] -> break
				:: else
				fi
			fi
		fi
	od;
	reused = true
}

init
{
	atomic {
		mem[ENTRY] = 1;
		mem[EPOCH] = 1;
		mem[TICKET] = 1;
		run thread(0);
		run thread(1);
		run stream();
		run writer(WRITER);
		run cpu(0);
		run cpu(1);
		run cpu(WRITER);
#ifdef KILLED
		run reaper();
		run killer()
#endif
	}
}
