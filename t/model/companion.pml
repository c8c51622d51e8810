/* SPDX-License-Identifier: Apache-2.0 */
/* companion.pml - attaching as a companion against the end of its leader: index/peer/companion.c,
 * seat.c, reap.c.
 *
 * A leader sits in its seat with one cell raised, which keeps a block.  It leaves in good order or is
 * killed, at any instruction.  A companion comes at any moment, twice, writes to the block as long as
 * it sits, and leaves or is killed.  The writer ends the leader's life, keeps the seat or frees it, and may be
 * killed once; a successor goes on.  Another peer takes the leader's seat as soon as that is free, and
 * its life ends, too, so that the seat is used anew behind the back of who came late.
 *
 * Proves: as long as a companion sits the cell is up and the seat is not another's; who sits down
 * belongs to a life that goes on, or to one whose end waits for it; and when all is quiet, cell and
 * seat are given back.
 *
 * SHORT 60
 * RUN passes
 * RUN fails -DNO_LOOK          the companion does not look again when it sits
 * RUN fails -DNO_FENCE         it looks before the others can see that it sits
 * RUN fails -DNO_MARK          the lock alone says whether the life goes on: a reaper has it, too
 * RUN fails -DMARK_LATE        companions are looked for before the life is marked
 * RUN fails -DNO_REAP_FENCE    they are looked for before the others can see the mark
 * RUN fails -DMARK_RESET       the mark is taken away with the life, and says only that it ends
 * RUN fails -DSEAT_ALONE       the seat is compared, and not the life
 * RUN fails -DIGNORES          the writer looks for no companions
 * RUN fails -DFORGETS          its successor does not
 * RUN fails -DLEAVES           the leader that leaves looks for none */
#define COMPANION 0
#define LEADER  1
#define WRITER  2
#define NEXT    3
#define CPUS    4
#define DEPTH   4

#define FREE    0
#define TAKEN   1
#define LEFT    2

#define STATE   0               /* of the leader's seat */
#define LIFE    1
#define ENDED   2
#define CELL    3
#define SITS    4               /* of the companion's seat: its state, and the life that it names */
#define NAMES   5
#define CELLS   6
#include "tso.h"

#define HELD_BY_WRITER  9
byte lock, own;                 /* the locks of the two seats: 0, 1 + who has it */
bool sits;                      /* the companion writes */
bool kill_leader, kill_companion, kill_writer, taken_over;

inline try_lock(what, who, ok)
{
	atomic {
		FENCE();
		if
		:: !what -> what = who; ok = true
		:: else -> ok = false
		fi
	}
}

inline drop(what) { d_step { FENCE(); what = 0 } }

/* ---- companion ---- */

/* ok: the life that it has been told of, 1, goes on */
inline goes_on()
{
	ok = true;
#ifndef NO_MARK
#ifdef MARK_RESET
	if :: mem[ENDED] -> ok = false :: else fi;
#else
	if :: mem[ENDED] == 1 -> ok = false :: else fi;
#endif
#endif
	if :: mem[STATE] != TAKEN -> ok = false :: else fi;
#ifndef SEAT_ALONE
	if :: mem[LIFE] != 1 -> ok = false :: else fi;
#endif
	if :: !lock -> ok = false :: else fi
}

inline use()
{
	sits = true;
	assert(mem[CELL] == 1);
	assert(mem[LIFE] == 1);
	sits = false
}

inline sit_down()
{
	STORE(NAMES, 1);
	STORE(SITS, TAKEN);
#ifndef NO_FENCE
	FENCE();
#endif
#ifndef NO_LOOK
	goes_on();
#endif
	if
	:: ok -> use()
	:: else
	fi;
	STORE(SITS, LEFT)
}

/* A free seat of its own; seat.pml proves that it is alone there. */
inline come()
{
	goes_on();
	if
	:: ok -> try_lock(own, COMPANION + 1, ok)
	:: else
	fi;
	if
	:: ok ->
		if
		:: mem[SITS] == FREE -> sit_down()
		:: else
		fi;
		drop(own)
	:: else
	fi
}

proctype companion(byte me)
{
	bool ok;
	byte n;

	{
end:		do
		:: n < 2 -> n++; come()
		:: else -> break
		od
	} unless { kill_companion };
	atomic {
		FENCE();
		sits = false;
		if :: own == COMPANION + 1 -> own = 0 :: else fi
	}
}

proctype kills_companion() { if :: kill_companion = true :: skip fi }

/* ---- leader ---- */

inline leave()
{
	STORE(ENDED, 1);
	FENCE();
#ifdef LEAVES
	STORE(CELL, 0);
#else
	if
	:: mem[SITS] == TAKEN ->
		if
		:: mem[NAMES] == 1 ->
			if
			:: own && own != HELD_BY_WRITER -> kept = true
			:: else
			fi
		:: else
		fi
	:: else
	fi;
	if
	:: !kept -> STORE(CELL, 0)
	:: else
	fi;
#endif
	STORE(STATE, LEFT);
	drop(lock)
}

proctype leader(byte me)
{
	bool kept;

	{
		leave()
	} unless { kill_leader };
	atomic {
		FENCE();
		if :: lock == LEADER + 1 -> lock = 0 :: else fi
	}
}

proctype kills_leader() { if :: kill_leader = true :: skip fi }

/* Sits down when the seat is free, and is gone at some time. */
proctype next(byte me)
{
	bool ok;

end:	mem[STATE] == FREE;
	try_lock(lock, NEXT + 1, ok);
	if
	:: ok ->
		if
		:: mem[STATE] == FREE ->
			STORE(LIFE, 2);
			STORE(STATE, TAKEN);
			drop(lock)      /* killed */
		:: else -> drop(lock)
		fi
	:: else
	fi
}

/* ---- writer ---- */

inline mark()
{
#ifdef MARK_RESET
	STORE(ENDED, 1);
#else
	STORE(ENDED, life);
#endif
#ifndef NO_REAP_FENCE
	FENCE()
#endif
}

/* A dead companion's lock is free, and its seat is soon, too. */
#define LIVES(life)     (mem[SITS] == TAKEN && mem[NAMES] == life && own && own != HELD_BY_WRITER)
#if defined(IGNORES)
#define LOOKS   0
#elif defined(FORGETS)
#define LOOKS   (!taken_over)
#else
#define LOOKS   1
#endif

inline look()
{
	kept = false;
	if
	:: LOOKS && mem[SITS] == TAKEN ->
		if
		:: mem[NAMES] == life ->
			if
			:: own && own != HELD_BY_WRITER -> kept = true
			:: else
			fi
		:: else
		fi
	:: else
	fi
}

inline end_life()
{
	life = mem[LIFE];
#ifdef MARK_LATE
	look();
	mark();
#else
	mark();
	look();
#endif
	if
	:: kept
	:: else ->
		STORE(CELL, 0);
#ifdef MARK_RESET
		STORE(ENDED, 0);
#endif
		STORE(STATE, FREE)
	fi
}

inline housekeep()
{
	if
	:: mem[STATE] != FREE ->
		try_lock(lock, HELD_BY_WRITER, ok);
		if
		:: ok -> end_life(); drop(lock)
		:: else
		fi
	:: else
	fi;
	if
	:: mem[SITS] != FREE ->
		try_lock(own, HELD_BY_WRITER, ok);
		if
		:: ok -> STORE(SITS, FREE); drop(own)
		:: else
		fi
	:: else
	fi;
	ok = false; kept = false; life = 0
}

/* Something to do, now? */
#define KEPT    (LOOKS && mem[ENDED] == mem[LIFE] && LIVES(mem[LIFE]))
#define WORK    ((mem[STATE] != FREE && !lock && !KEPT) || (mem[SITS] != FREE && !own))

proctype successor(byte me)
{
	bool ok, kept;
	byte life;

end:	do
	:: WORK -> housekeep()
	od
}

proctype writer(byte me)
{
	bool ok, kept;
	byte life;

	{
end:		do
		:: WORK -> housekeep()
		od
	} unless { kill_writer };
	atomic {
		FENCE();
		if :: lock == HELD_BY_WRITER -> lock = 0 :: else fi;
		if :: own == HELD_BY_WRITER -> own = 0 :: else fi;
		taken_over = true;
		run successor(me)
	}
}

proctype kills_writer() { if :: kill_writer = true :: skip fi }

/* ---- what must be so ---- */

proctype always()
{
end:	atomic { sits && (mem[CELL] == 0 || mem[LIFE] != 1) -> assert(false) }
}

proctype quiet()
{
	timeout -> assert(lock || own || (mem[STATE] == FREE && mem[CELL] == 0))
}

init
{
	atomic {
		mem[STATE] = TAKEN;
		mem[LIFE] = 1;
		mem[CELL] = 1;
		lock = LEADER + 1;
		run companion(COMPANION);
		run cpu(COMPANION);
		run leader(LEADER);
		run cpu(LEADER);
		run writer(WRITER);
		run cpu(WRITER);
		run next(NEXT);
		run cpu(NEXT);
		run kills_leader();
		run kills_companion();
		run kills_writer();
		run always();
		run quiet()
	}
}
