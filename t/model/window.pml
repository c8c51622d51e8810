/* SPDX-License-Identifier: Apache-2.0 */
/* window.pml - the window of use[] is moved: index/segment/stamps.h, index/peer/refs.h refs_stamp, index/table/uses.c, index/table/lru.c.
 *
 * One block, two peers that use it, and a writer that moves what is old from use[] to stamp[], then the window, and
 * at any moment asks how old the block is.  A parent inherits what its child has; once the block
 * begins another life, as old as it was elsewhere.  Between two steps of the writer any time may pass, as where a
 * window takes many of them.  The writer may be killed between any two stores, as often as DEATHS, and a successor
 * goes on; a peer that is killed or held up stays where it is.
 *
 * Stamps are ticks, and are told whole: halves are compared as serial numbers.  A raise succeeds, where the code
 * gives up after two tries.
 *
 * Proves: a block is never told to be older than the last use that is over, nor younger than any use of its life.
 *
 * SEARCH collapsed
 * SHORT whole -DTICKS=4 -DMOVES=1 -DUSES=1
 * SHORT whole -DLIVES -DDEATHS=0 -DMOVES=1 -DUSES=1
 * RUN passes
 * RUN passes -DLIVES -DDEATHS=0 -DMOVES=1
 * RUN fails -DUSE_ALONE        a use from before the window hides a later one that has left it
 * RUN fails -DHALF_MOVED       while the window is being moved use[] is believed alone
 * RUN fails -DLIVES -DSET_ALONE        a life that is older than the last one begins in use[] alone
 * RUN fails -DNOT_MARKED       a window in which uses went to stamp[] is not marked
 * RUN fails -DMARKED_LATE      it is marked behind the beginning of the next one
 * RUN fails -DCLEAR_FIRST      use[] is cleared before stamp[] is raised
 * RUN fails -DCLEAR_BLIND      ... and whatever has come there
 * RUN fails -DWINDOW_FIRST     the window begins before what is old has left use[]
 * RUN fails -DLOOK_ONCE        who finds the window over does not look again
 * RUN fails -DNO_FENCE         the tick is read before the window can be seen */
#define PEERS   2
#define WRITER  0
#define CPUS    1               /* peers store by locked instructions alone */
#define DEPTH   3

#ifndef USES
#define USES    2               /* of the first peer; the other one has one less */
#endif
#ifndef DEATHS
#define DEATHS  1
#endif
#ifndef TICKS
#define TICKS   5
#endif
#ifndef MOVES
#define MOVES   2
#endif
#define DUE     2               /* ticks of the window that have passed when it is moved */
#define SPAN    3               /* of a window: it is over */
#define FAR     4               /* the most that it is moved by */

#define TICK    0
#define USE     1               /* 0: none */
#define STAMP   2
#define FROM    3
#define LATE    4
#define CELLS   5
#include "tso.h"

#define FITS(to, from) ((to) >= (from) && (to) - (from) < SPAN)
#define MAX(a, b) ((a) > (b) -> (a) : (b))

/* what is so, apart from all memory: */
byte over;                      /* the last use of this life that is over */
byte most;                      /* the last use that may come to it */
byte under[PEERS];              /* the use that is under way, 0: none ... */
bool counts[PEERS];             /* ... of this life */

inline raise_use(to)
{
	atomic { mem[USE] = MAX(mem[USE], to) }
}

inline raise_stamp(to)
{
	atomic { mem[STAMP] = MAX(mem[STAMP], to) }
}

proctype peer(byte me)
{
	byte n, to, from;

	do
	:: n < USES - me ->
		n++;
		if
		:: from = mem[FROM]     /* other processors load in any order */
		:: skip
		fi;
		atomic {
			if
			:: mem[TICK] < TICKS -> mem[TICK] = mem[TICK] + 1
			:: skip
			fi;
			to = mem[TICK];
			under[me] = to;
			counts[me] = true;
#ifdef LIVES
			most = MAX(most, to);
#endif
			if
			:: from
			:: !from -> from = mem[FROM]
			fi
		};
		if
		:: FITS(to, from) -> raise_use(to)
		:: else ->
			raise_stamp(to);
#ifndef LOOK_ONCE
			if
			:: FITS(to, mem[FROM]) -> raise_use(to)
			:: else
			fi
#endif
		fi;
		atomic {
			if
			:: counts[me] -> over = MAX(over, to)
			:: else
			fi;
			under[me] = 0;
			counts[me] = false;
			to = 0;
			from = 0
		}
	:: n == USES - me -> break
	od
}

#ifdef HALF_MOVED
#define IS_LATE (late > 0 || mem[TICK] - from >= SPAN)
#else
#define IS_LATE (late > 0 || mem[TICK] - from >= DUE)
#endif
/* As lru_stamp(), of its own words as it stored them last. */
inline ask()
{
	atomic {
		seen = mem[USE];
		if
#ifdef USE_ALONE
		:: seen == 0 || IS_LATE ->
#else
		:: seen < from || seen == 0 || IS_LATE ->
#endif
			seen = MAX(seen, mem[STAMP])
		:: else
		fi;
		assert(seen >= over);
#ifdef LIVES
		assert(seen <= most);
#endif
		seen = 0
	}
}

/* From a child that was used before the block was, or with it. */
inline inherit()
{
	atomic {
		inherits = true;
		seen = over;
		if
		:: over > 1 -> seen = over - 1
		:: skip
		fi;
		if
		:: FITS(seen, from) -> mem[USE] = MAX(mem[USE], seen)
		:: else -> mem[STAMP] = MAX(mem[STAMP], seen)
		fi;
		seen = 0
	}
}

#ifdef LIVES
/* It comes from another pool, as old as it was there; a use of its last life may come to it. */
inline begin_life()
{
	atomic {
		begins = true;
		seen = over;
		if
		:: over > 1 -> seen = over - 1
		:: skip
		fi;
		if
		:: FITS(seen, from) ->
			mem[USE] = seen;
#ifndef SET_ALONE
			mem[STAMP] = seen
#endif
		:: else -> mem[USE] = 0; mem[STAMP] = seen
		fi;
		over = seen;
		most = MAX(seen, MAX(under[0], under[1]));
		counts[0] = false;
		counts[1] = false;
		seen = 0
	}
}
#endif

/* What the writer does besides, between two steps of the window. */
inline others()
{
	do
	:: mem[TICK] < TICKS -> mem[TICK] = mem[TICK] + 1       /* other blocks are used */
	:: !inherits -> inherit()
#ifdef LIVES
	:: !begins -> begin_life()
#endif
	:: break
	od;
	ask()
}

#define DIES if :: deaths < DEATHS -> deaths++; goto takeover :: skip fi

proctype writer(byte me)
{
	byte from = 1, late, upto, old, seen, was, deaths, moves;
	bool inherits;
#ifdef LIVES
	bool begins;
#endif

serve:	do
	:: others()
	:: moves < MOVES && mem[TICK] - from >= DUE ->
		upto = (mem[TICK] - from > FAR -> from + FAR : mem[TICK]);
		break
	:: moves == MOVES || TICKS - from < DUE -> goto end
	od;
#ifdef WINDOW_FIRST
	STORE(FROM, upto);
	FENCE();
	DIES;
#endif
	others();
	was = mem[USE];
	if
	:: was && was < upto ->
#ifndef CLEAR_FIRST
		LOCKED(mem[STAMP] = MAX(mem[STAMP], was));
		DIES;
#endif
#ifdef CLEAR_BLIND
		LOCKED(mem[USE] = 0);
#else
		LOCKED(mem[USE] = (mem[USE] == was -> 0 : mem[USE]));
#endif
		DIES;
#ifdef CLEAR_FIRST
		LOCKED(mem[STAMP] = MAX(mem[STAMP], was));
		DIES
#endif
	:: else
	fi;
	others();
	was = late;
#ifndef NOT_MARKED
#ifndef MARKED_LATE
	late = 2;
	STORE(LATE, 2);
	DIES;
#endif
#endif
	atomic { old = from; from = upto; upto = 0; moves++ };
	STORE(FROM, from);
	DIES;
#ifdef MARKED_LATE
	late = 2;
	STORE(LATE, 2);
	DIES;
#endif
#ifndef NO_FENCE
	FENCE();
#endif
	if
	:: mem[TICK] - old < SPAN ->
		late = (was -> was - 1 : 0);
		STORE(LATE, late)
	:: else
	fi;
	atomic { empty(queue[me]); old = 0; was = 0 };
	DIES;
	goto serve;

takeover:
	FENCE();
	atomic { from = mem[FROM]; late = mem[LATE]; upto = 0; was = 0; old = 0 }
	goto serve;
end:	skip
}

init
{
	atomic {
		mem[TICK] = 1;
		mem[FROM] = 1;
		mem[USE] = 1;
		over = 1;
		most = 1;
		run peer(0);
		run peer(1);
		run writer(WRITER);
		run cpu(WRITER)
	}
}
