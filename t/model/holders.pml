/* SPDX-License-Identifier: Apache-2.0 */
/* holders.pml - whose columns of cells are looked at: index/table/holders.c, index/peer/refs.c.
 *
 * One block, two peers.  Each peer has a cell for it, and a bit that says that its column may have cells.
 * The writer looks at cells of those alone whose bit is set; now and then it clears a bit, reads the
 * column, and sets the bit again if there is a cell.  There are no sections: (T), (D) and the bits do it
 * alone.
 *
 * Proves: the block is not handed out while a peer has a reference.
 *
 * SHORT whole
 * SHORT mutants
 * RUN passes
 * RUN fails -DSHOW_FIRST       the bit is looked at before the cell is raised
 * RUN fails -DSHOW_LAST        the bit is set behind the second look at the state
 * RUN fails -DREAD_FIRST       the column is read before the bit is cleared
 * RUN fails -DFORGET_BLIND     the bit is cleared, and the column not read
 * RUN fails -DPLAIN_CLEAR      the bit is cleared by a plain store
 * RUN fails -DPLAIN_SHOW       the bit is set by a plain store */
#define PEERS   2
#define WRITER  PEERS
#define CPUS    (PEERS + 1)
#define DEPTH   3
#define ROUNDS  2

#define WORD    0
#define CELL(p) (1 + (p))
#define BIT(p)  (1 + PEERS + (p))
#define CELLS   (1 + 2 * PEERS)
#include "tso.h"

#define LIVE     0
#define DYING    1

bool available;                 /* the writer may hand the block out */
bool holds[PEERS];

inline show_bit()
{
	if
	:: mem[BIT(me)] -> skip
	:: else ->
#ifdef PLAIN_SHOW
		STORE(BIT(me), 1)
#else
		LOCKED(mem[BIT(me)] = 1)
#endif
	fi
}

proctype peer(byte me)
{
	byte n;
	bool live;

	do
	:: n < ROUNDS ->
		n++;
#ifdef SHOW_FIRST
		show_bit();
#endif
		LOCKED(mem[CELL(me)]++);
#ifndef SHOW_FIRST
#ifndef SHOW_LAST
		show_bit();
#endif
#endif
		live = mem[WORD] == LIVE;
#ifdef SHOW_LAST
		show_bit();
#endif
		if
		:: live ->
			atomic { holds[me] = true; assert(!available) }
			holds[me] = false
		:: else
		fi;
		LOCKED(mem[CELL(me)]--);
		live = false
	:: else -> break
	od
}

inline forget(p)
{
#ifdef READ_FIRST
	seen = mem[CELL(p)] != 0;
	LOCKED(mem[BIT(p)] = 0);
#else
#ifdef PLAIN_CLEAR
	STORE(BIT(p), 0);
#else
	LOCKED(mem[BIT(p)] = 0);
#endif
#ifndef FORGET_BLIND
	seen = mem[CELL(p)] != 0;
#endif
#endif
	if
	:: seen -> LOCKED(mem[BIT(p)] = 1)
	:: else
	fi;
	seen = false
}

/* No cell of the block is raised, as far as the bits say where to look. */
inline wait_for_row(p)
{
	if
	:: mem[BIT(p)] == 0
	:: mem[CELL(p)] == 0
	fi
}

proctype writer(byte me)
{
	byte n;
	bool seen;

	do
	:: n < ROUNDS ->
		n++;
		if
		:: forget(0)
		:: forget(1)
		:: skip
		fi;
end:		wait_for_row(0);
		LOCKED(mem[WORD] = DYING);
end1:		wait_for_row(0);
end2:		wait_for_row(1);
		atomic {
			available = true;
			assert(!holds[0] && !holds[1])
		}
		available = false;
		LOCKED(mem[WORD] = LIVE)
	:: else -> break
	od
}

init
{
	atomic {
		run peer(0);
		run peer(1);
		run writer(WRITER);
		run cpu(0);
		run cpu(1);
		run cpu(WRITER)
	}
}
