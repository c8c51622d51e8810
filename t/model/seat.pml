/* SPDX-License-Identifier: Apache-2.0 */
/* seat.pml - attaching against reaping: seat.c, reap.c.
 *
 * One seat, one byte of the lock file, one section, one reference cell and the counter of
 * references.  Two peers attach, look whether anything is left in the seat, raise the cell
 * in a section, count it, and leave in good order, with the cell up or down; peer 0 may be
 * killed at any instruction, and may have forked a child without fork handlers, which keeps
 * the lock of its dead parent until it ends.  The writer notes who sits there, reaps the
 * dead and those who have left, and may be killed itself, once; a successor goes on.  The
 * kernel drops a lock when the process is gone, with its stores in memory.
 *
 * Proves: never do two sit in one seat; who sits down finds the cell at zero; nobody else
 * ever changes the cell of who sits there ((a), (S)); and when all is quiet, what the
 * dead and the departed had is given back.  -DSAYS_FREE: peer 0 stores FREE in its own
 * seat at any moment at which it sits there, by mistake or malice: the lock and what is
 * left there are believed, the word is not.
 *
 * SEARCH collapsed
 * SHORT 50
 * RUN passes
 * RUN passes -DSAYS_FREE
 * RUN fails -DNO_LOCK          who finds a free seat sits down without the lock
 * RUN fails -DNO_RECHECK       the state is not looked at again under the lock
 * RUN fails -DFREE_FIRST       the seat is free before the column is cleared
 * RUN fails -DUNLOCKED         the column is cleared when the lock is given back
 * RUN fails -DNO_NOTE -DSAYS_FREE      the state says who has to be reaped, not the lock
 * RUN fails -DNO_IDENTITY      the lock alone says who is dead, while a child holds it
 * RUN fails -DLEFT_FIRST       LEFT is said before the cell is cleared
 * RUN fails -DNO_LOOK -DSAYS_FREE      who sits down does not look at what is left there
 * RUN fails -DNO_CARE -DSAYS_FREE      the writer does not look at seats that say FREE
 * RUN fails -DNO_PID -DSAYS_FREE       who is gone is reaped, whoever sits there now
 * RUN fails -DCOUNT_LATE -DSAYS_FREE   the section ends before the cell is counted
 * RUN fails -DSECTION_FIRST -DSAYS_FREE        reaping ends the section before the cell
 * RUN fails -DCOUNT_FIRST -DSAYS_FREE  reaping clears the counter before the cell */
#define PEERS   2
#define WRITER  PEERS
#define CPUS    (PEERS + 1)
#define DEPTH   4

#define FREE    0
#define TAKEN   1
#define LEFT    2

#define STATE   0
#define PID     1               /* 0 = nobody, else 1 + peer */
#define CELL    2
#define REFS    3               /* cells that are counted */
#define SECTION 4
#define CELLS   5
#include "tso.h"

byte lock;                      /* PID of its holder, or */
#define LOCKED_BY_WRITER 9
bool child;                     /* of peer 0, which has its lock, too */
bool alive[PEERS] = true;
bool mine[PEERS];               /* has sat down, and not given the lock back */
bool kill, kill_writer;
byte sits, raised;              /* what is so: how many sit, and the cell's value */

inline try_lock(who, ok)
{
	atomic {
		FENCE();
		if
		:: !lock -> lock = who; ok = true
		:: else -> ok = false
		fi
	}
}

inline drop_lock() { d_step { FENCE(); lock = 0 } }

/* ok: this seat is ours */
inline sit()
{
	mem[STATE] == FREE;
#ifdef NO_LOCK
	ok = true;
#else
	try_lock(me + 1, ok);
#ifndef NO_RECHECK
	if
	:: ok && mem[STATE] != FREE -> drop_lock(); ok = false
	:: else
	fi;
#endif
#ifndef NO_LOOK
	if
	:: ok && mem[SECTION] -> drop_lock(); ok = false
	:: else
	fi;
	if
	:: ok && mem[REFS] -> drop_lock(); ok = false
	:: else
	fi;
#endif
#endif
	if
	:: ok ->
		d_step { sits++; here = true; mine[me] = true }
		assert(sits == 1);
		STORE(PID, me + 1);
		STORE(STATE, TAKEN);
		FENCE();
		assert(mem[CELL] == 0)
	:: else
	fi
}

inline use()
{
	d_step { FENCE(); mem[SECTION] = 1 }
	d_step { FENCE(); mem[CELL]++; raised++ }
#ifdef COUNT_LATE
	STORE(SECTION, 0);
	d_step { FENCE(); mem[REFS]++ }
#else
	d_step { FENCE(); mem[REFS]++ }
	STORE(SECTION, 0);
#endif
	assert(mem[CELL] == raised);
	if
	:: d_step { FENCE(); mem[CELL]--; raised-- }
	   d_step { FENCE(); mem[REFS]-- }
	:: skip
	fi
}

inline give_up() { d_step { FENCE(); mine[me] = false; lock = 0 } }

inline leave()
{
	d_step { sits--; raised = 0; here = false }
#ifdef LEFT_FIRST
	STORE(STATE, LEFT);
	give_up();
#endif
	STORE(SECTION, 0);
	if
	:: mem[REFS] ->
		if
		:: mem[CELL] -> STORE(CELL, 0)
		:: else
		fi
	:: else
	fi;
#ifndef LEFT_FIRST
	STORE(STATE, LEFT);
	give_up();
#endif
	/* who attaches again opens the file anew (rule S2) */
	atomic { ok = false; child = child && me != 0 }
}

#ifndef TIMES
#ifdef SAYS_FREE
#define TIMES   1
#else
#define TIMES   (2 - me)
#endif
#endif

proctype peer(byte me)
{
	bool ok, here;
	byte n;

	{
end:		do
		:: n < TIMES ->
			n++;
			sit();
			if
			:: ok -> use(); leave()
			:: else
			fi
		:: else -> break
		od
	} unless { kill && me == 0 };
	if
	:: kill && me == 0 ->
		if
		:: here -> d_step { sits--; raised = 0 }
		:: else
		fi;
		atomic {
			FENCE();
			mine[me] = false;
			alive[me] = false;
			if
			:: lock == me + 1 && !child -> lock = 0
			:: else
			fi
		}
	:: else
	fi
}

proctype killer() { kill = true }

/* Another thread of peer 0, which says what is not so. */
proctype liar(byte me)
{
end:	atomic { mine[me] && nfull(queue[me]) -> STORE(STATE, FREE) }
}

/* A process that peer 0 has forked, and that outlives it, perhaps for ever. */
proctype forked()
{
	if
	:: atomic { lock == 1 && sits && alive[0] -> child = true }
	:: true -> goto out
	fi;
	if
	:: atomic {
		true -> child = false;
		if
		:: lock == 1 && !alive[0] -> lock = 0
		:: else
		fi
	   }
	:: true
	fi;
out:	skip
}

/* Who sits there is noted once; from then on the lock alone says when that is over. */
inline note()
{
	if
	:: !seated -> who = mem[PID]; seated = true
	:: else
	fi
}

inline clear_column()
{
	if
	:: mem[CELL] -> STORE(CELL, 0)
	:: else
	fi
}

inline reap()
{
	note();
#ifdef SECTION_FIRST
	STORE(SECTION, 0);
#endif
#ifdef COUNT_FIRST
	STORE(REFS, 0);
#endif
#if !defined(FREE_FIRST) && !defined(UNLOCKED)
	clear_column();
#endif
	STORE(SECTION, 0);
	STORE(REFS, 0);
	STORE(STATE, FREE);
#ifdef FREE_FIRST
	clear_column();
#endif
	seated = false;
	who = 0
}

#define IS_GONE(who)    (who && !alive[who - 1])
#ifdef NO_CARE
#define LEFT_OVER       (0)
#else
#define LEFT_OVER       (mem[SECTION] || mem[REFS])
#endif

inline housekeep()
{
	FENCE();                        /* a pass has locked instructions in plenty */
	if
	:: mem[STATE] != FREE -> note()
#ifdef NO_NOTE
	:: mem[STATE] == FREE -> seated = false; who = 0
#elif !defined(NO_CARE)
	:: else ->
		if
		:: mem[SECTION] -> note()
		:: else ->
			if
			:: mem[REFS] -> note()
			:: else
			fi
		fi
#else
	:: else
#endif
	fi;
	if
	:: seated ->
		try_lock(LOCKED_BY_WRITER, ok);
		if
		:: ok ->
			reap();
			drop_lock();
#ifdef UNLOCKED
			clear_column();
#endif
			ok = false
#ifndef NO_IDENTITY
		:: !ok && IS_GONE(who) ->
#ifndef NO_PID
			if
			:: mem[STATE] != FREE ->
				if
				:: mem[PID] == who -> reap()
				:: else
				fi
			:: else
			fi
#else
			reap()
#endif
		:: !ok && !IS_GONE(who)
#else
		:: else
#endif
		fi
	:: else
	fi
}

/* Something to do, now? */
#ifdef NO_IDENTITY
#define CAN_REAP        (!lock)
#elif defined(NO_PID)
#define CAN_REAP        (!lock || IS_GONE(who))
#else
#define CAN_REAP        (!lock || (IS_GONE(who) && mem[STATE] != FREE && mem[PID] == who))
#endif
#ifdef NO_NOTE
#define WORK    (mem[STATE] != FREE && (!seated || CAN_REAP))
#else
#define WORK    ((!seated && (mem[STATE] != FREE || LEFT_OVER)) || (seated && CAN_REAP))
#endif

proctype writer(byte me)
{
	bool seated, ok;
	byte who;

	{
end:		do
		:: WORK -> housekeep()
		od
	} unless { kill_writer };
	atomic {
		FENCE();
		if
		:: lock == LOCKED_BY_WRITER -> lock = 0
		:: else
		fi;
		run successor(me)
	}
}

proctype successor(byte me)
{
	bool seated, ok;
	byte who;

end:	do
	:: WORK -> housekeep()
	od
}

proctype kill_it() { kill_writer = true }

/* A child may hold the lock of a seat that says FREE: nobody can come there, and it is
 * reaped when the child ends. */
proctype quiet()
{
	timeout -> assert(sits || (mem[STATE] == FREE &&
				   (!(mem[CELL] || LEFT_OVER) || child)))
}

init
{
	atomic {
		run peer(0);
		run cpu(0);
		run peer(1);
		run cpu(1);
		run writer(WRITER);
		run cpu(WRITER);
		run killer();
		run kill_it();
#ifdef SAYS_FREE
		run liar(0);
#endif
		run forked();
		run quiet()
	}
}
