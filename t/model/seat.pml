/* SPDX-License-Identifier: Apache-2.0 */
/* seat.pml - attaching against reaping: seat.c, reap.c.
 *
 * One seat, one byte of the lock file, one reference cell.  Two peers attach, raise the
 * cell, and leave in good order, with the cell up or down; peer 0 may be killed at any
 * instruction, and may have forked a child without fork handlers, which keeps the lock of
 * its dead parent until it ends.  The writer notes who sits there, reaps the dead and
 * those who have left, and may be killed itself, once; a successor goes on.  The kernel
 * drops a lock when the process is gone, with its stores in memory.
 *
 * Proves: never do two sit in one seat; who sits down finds the cell at zero; nobody else
 * ever changes the cell of who sits there ((a), (S)); and when all is quiet, what the
 * dead and the departed had is given back.  -DSAYS_FREE: peer 0 stores FREE in its own
 * seat while it sits there, by mistake or malice, when the writer has noted it, which
 * lives on, and nobody else comes: the lock alone is believed.  (-DSOON: not noted, or by
 * a writer that died. -DNEWCOMER: peer 1 comes.)
 *
 * RUN passes
 * RUN passes -DSAYS_FREE
 * RUN fails -DNO_LOCK          who finds a free seat sits down without the lock
 * RUN fails -DNO_RECHECK       the state is not looked at again under the lock
 * RUN fails -DFREE_FIRST       the seat is free before the column is cleared
 * RUN fails -DUNLOCKED         the column is cleared when the lock is given back
 * RUN fails -DNO_NOTE -DSAYS_FREE      the state says who has to be reaped, not the lock
 * RUN fails -DNO_IDENTITY      the lock alone says who is dead, while a child holds it
 * RUN fails -DLEFT_FIRST       LEFT is said before the cell is cleared */
#define PEERS   2
#define WRITER  PEERS
#define CPUS    (PEERS + 1)
#define DEPTH   3

#define FREE    0
#define TAKEN   1
#define LEFT    2

#define STATE   0
#define PID     1               /* 0 = nobody, else 1 + peer */
#define CELL    2
#define CELLS   3
#include "tso.h"

byte lock;                      /* PID of its holder, or */
#define LOCKED_BY_WRITER 9
bool child;                     /* of peer 0, which has its lock, too */
bool alive[PEERS] = true;
byte noted;                     /* by the present writer */
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
#endif
	if
	:: ok ->
		d_step { sits++; mine = true }
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
	d_step { FENCE(); mem[CELL]++; raised++ }
#ifdef SAYS_FREE
	if
#ifdef SOON
	:: STORE(STATE, FREE)
#else
	:: noted == me + 1 -> STORE(STATE, FREE)
#endif
	:: skip
	fi;
#endif
	assert(mem[CELL] == raised);
	assert(mem[CELL] == raised);
	if
	:: d_step { FENCE(); mem[CELL]--; raised-- }
	:: skip
	fi
}

inline leave()
{
	d_step { sits--; raised = 0; mine = false }
#ifdef LEFT_FIRST
	STORE(STATE, LEFT);
	drop_lock();
#endif
	if
	:: mem[CELL] -> STORE(CELL, 0)
	:: else
	fi;
#ifndef LEFT_FIRST
	STORE(STATE, LEFT);
	drop_lock();
#endif
	/* who attaches again opens the file anew (rule S2) */
	atomic { ok = false; child = child && me != 0 }
}

proctype peer(byte me)
{
	bool ok, mine;
	byte n;

	{
end:		do
		:: n < 2 - me ->
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
		:: mine -> d_step { sits--; raised = 0 }
		:: else
		fi;
		atomic {
			FENCE();
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
	:: !seated -> who = mem[PID]; seated = true; noted = who
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
#if !defined(FREE_FIRST) && !defined(UNLOCKED)
	clear_column();
#endif
	STORE(STATE, FREE);
#ifdef FREE_FIRST
	clear_column();
#endif
	seated = false;
	noted = 0;
	who = 0
}

#define IS_GONE(who)    (who && !alive[who - 1])

inline care()
{
	FENCE();                        /* a pass has locked instructions in plenty */
	if
	:: mem[STATE] != FREE -> note()
#ifdef NO_NOTE
	:: mem[STATE] == FREE -> seated = false; who = 0
#endif
	:: else
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
		:: !ok && IS_GONE(who) -> reap()
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
#else
#define CAN_REAP        (!lock || IS_GONE(who))
#endif
#ifdef NO_NOTE
#define WORK    (mem[STATE] != FREE && (!seated || CAN_REAP))
#else
#define WORK    ((!seated && mem[STATE] != FREE) || (seated && CAN_REAP))
#endif

proctype writer(byte me)
{
	bool seated, ok;
	byte who;

	{
end:		do
		:: WORK -> care()
		od
	} unless { kill_writer };
	atomic {
		FENCE();
		if
		:: lock == LOCKED_BY_WRITER -> lock = 0
		:: else
		fi;
		noted = 0;
		run successor(me)
	}
}

proctype successor(byte me)
{
	bool seated, ok;
	byte who;

end:	do
	:: WORK -> care()
	od
}

proctype kill_it() { kill_writer = true }

proctype quiet()
{
	timeout -> assert(sits || (mem[STATE] == FREE && mem[CELL] == 0))
}

init
{
	atomic {
		run peer(0);
		run cpu(0);
#if !defined(SAYS_FREE) || defined(NEWCOMER)
		run peer(1);
		run cpu(1);
#endif
		run writer(WRITER);
		run cpu(WRITER);
		run killer();
#if !defined(SAYS_FREE) || defined(SOON)
		run kill_it();
#endif
		run forked();
		run quiet()
	}
}
