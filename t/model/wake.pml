/* SPDX-License-Identifier: Apache-2.0 */
/* wake.pml - sleep and wake, in both directions: ring.c, index/writer/loop.c.
 *
 * Peers submit commands and wait for their answers; the writer serves them and sleeps
 * when there is nothing to do.  Both sleep on a futex, whose word the kernel compares in
 * one step with going to sleep.  No sleep ends by itself: whoever is not woken sleeps for
 * ever.
 *
 * Proves: all commands are answered and all peers see it, so no wake-up is lost ((X),
 * (R), (Z), and `waiting` with `done`).  -DKILLED: peer 0 may die at any instruction, in
 * particular when it has taken the writer's `sleeping` back and not called the kernel
 * yet; then only the deadline of the writer's sleep, 20 ms at most, helps the others.
 *
 * SHORT whole -DPEERS=1
 * SHORT whole -DPEERS=1 -DKILLED
 * RUN passes
 * RUN passes -DKILLED
 * RUN fails -DSLEEP_LATE       `sleeping` is set after `pending` was read
 * RUN fails -DNO_FENCE         no fence between `sleeping` and `pending`
 * RUN fails -DPEERS=1 -DBELL_NO_FENCE  `pending` is raised by a plain store
 * RUN fails -DBELL_FIRST       `head` is stored after the doorbell
 * RUN fails -DLOOK_FIRST       `sleeping` is read before `pending` is raised
 * RUN fails -DCLEAR_LATE       `pending` is cleared after the rings were drained
 * RUN fails -DWAIT_LATE        `waiting` is raised after `done` was read
 * RUN fails -DDONE_NO_FENCE    no fence between `done` and `waiting`
 * RUN fails -DSEEN_LATE        `done` is noted after the answer was looked for
 * RUN fails -DBLIND            the kernel does not compare
 * RUN fails -DKILLED -DNO_DEADLINE     the writer sleeps until it is woken
 * RUN passes -DPEERS=1 -DWAIT_NO_FENCE no fence between `waiting` and `done`: the kernel
 *      has one of its own before it compares the same word */
#ifndef PEERS
#define PEERS   2
#endif
#ifndef COMMANDS
#ifdef KILLED
#define COMMANDS 1
#else
#define COMMANDS 2              /* of each peer, one after the other */
#endif
#endif
#define WRITER  PEERS
#define CPUS    (PEERS + 1)
#define DEPTH   3

#define SLEEPING   0
#define PENDING    1            /* a bit for each peer */
#define HEAD(p)    (2 + (p))
#define RESULT(p)  (2 + PEERS + (p))    /* commands answered so far */
#define DONE(p)    (2 + 2 * PEERS + (p))
#define WAITING(p) (2 + 3 * PEERS + (p))
#define CELLS      (2 + 4 * PEERS)
#include "tso.h"

bool asleep[CPUS];              /* in the kernel */
bool kill;
byte working = PEERS;

#ifdef BLIND
#define COMPARES(word, value)   true
#else
#define COMPARES(word, value)   (mem[word] == (value))
#endif
/* entering the kernel drains the stores */
#define FUTEX_WAIT(word, value) \
	LOCKED(if :: COMPARES(word, value) -> asleep[me] = true :: else fi); \
	!asleep[me]

inline bell()
{
#ifdef LOOK_FIRST
	v = mem[SLEEPING];
#endif
#ifdef BELL_NO_FENCE
	STORE(PENDING, 1 << me);        /* right for one peer */
#else
	LOCKED(mem[PENDING] = mem[PENDING] | (1 << me));
#endif
#ifndef LOOK_FIRST
	v = mem[SLEEPING];
#endif
	if
	:: v ->
		LOCKED(v = mem[SLEEPING]; mem[SLEEPING] = 0);
		if
		:: v -> asleep[WRITER] = false
		:: else
		fi
	:: else
	fi;
	v = 0
}

inline wait(number)             /* for the answer of command `number` */
{
	do
	:: true ->
#ifndef SEEN_LATE
		seen = mem[DONE(me)];
#endif
		if
		:: mem[RESULT(me)] >= number -> break
		:: else
		fi;
#ifdef SEEN_LATE
		seen = mem[DONE(me)];
#endif
#ifdef WAIT_LATE
		v = mem[DONE(me)];
		STORE(WAITING(me), 1);
		FENCE();
#else
		STORE(WAITING(me), 1);  /* an addition, but no barrier everywhere */
#ifndef WAIT_NO_FENCE
		FENCE();
#endif
		v = mem[DONE(me)];
#endif
		if
		:: v == seen ->
#ifdef WAIT_LATE
			LOCKED(asleep[me] = true);
			!asleep[me]
#else
			FUTEX_WAIT(DONE(me), seen)
#endif
		:: else
		fi;
		v = 0;
		STORE(WAITING(me), 0)
	od;
	seen = 0
}

inline submit(number)
{
#ifdef BELL_FIRST
	bell();
	STORE(HEAD(me), number)
#else
	STORE(HEAD(me), number);
	bell()
#endif
}

proctype peer(byte me)
{
	byte n, v, seen;

	{
		do
		:: n < COMMANDS ->
			n++;
			submit(n);
			wait(n)
		:: else -> break
		od
	} unless { kill && me == 0 };
	working--
}

#ifdef KILLED
proctype killer() { kill = true }
#endif

inline clear_bell()
{
	if
	:: mem[PENDING] -> LOCKED(mem[PENDING] = 0)
	:: else
	fi
}

inline drain(p)
{
	v = mem[HEAD(p)];
	if
	:: v > next[p] ->
		next[p] = v;
		some = true;
		STORE(RESULT(p), v);
		done[p]++;
		STORE(DONE(p), done[p]);
#ifndef DONE_NO_FENCE
		FENCE();
#endif
		if
		:: mem[WAITING(p)] -> asleep[p] = false
		:: else
		fi
	:: else
	fi;
	v = 0
}

proctype writer(byte me)
{
	byte v, next[PEERS], done[PEERS];
	bool some;

	do
	:: true ->
#ifndef CLEAR_LATE
		clear_bell();
#endif
		some = false;
		drain(0);
#if PEERS > 1
		drain(1);
#endif
#ifdef CLEAR_LATE
		clear_bell();
#endif
		if
		:: some
		:: else ->
#ifdef SLEEP_LATE
			v = mem[PENDING];
			STORE(SLEEPING, 1);
			FENCE();
#else
			STORE(SLEEPING, 1);
#ifndef NO_FENCE
			FENCE();
#endif
			v = mem[PENDING];
#endif
			if
			:: !v ->
				LOCKED(if
				:: COMPARES(SLEEPING, 1) -> asleep[me] = true
				:: else
				fi);
end:				if
				:: !asleep[me]
#if defined(KILLED) && !defined(NO_DEADLINE)
				:: working && timeout -> asleep[me] = false
#endif
				fi
			:: else
			fi;
			v = 0;
			STORE(SLEEPING, 0)
		fi
	od
}

init
{
	atomic {
		run peer(0);
		run cpu(0);
#if PEERS > 1
		run peer(1);
		run cpu(1);
#endif
		run writer(WRITER);
		run cpu(WRITER);
#ifdef KILLED
		run killer()
#endif
	}
}
