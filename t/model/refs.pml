/* SPDX-License-Identifier: Apache-2.0 */
/* refs.pml - references against eviction: index/peer/refs.c, index/table/record.h.
 *
 * One block, as many lives as LIVES: published with a key by peer 0, who adds to its own
 * cell before it sends the command (rule S3), then evicted and published again with
 * another key. Peers take references at any time, on hints that may be as old as they
 * like: what they found is not modelled, only what they want.  Keys have two halves,
 * stored and read one by one.  A section is open while a reference is taken, and the
 * writer waits for it before the row is read the second time; -DNO_GRACE: it does not, as
 * if there were no sections.
 *
 * Proves: who has a reference has the key that was asked for, and the block is not free
 * before the reference is given back ((T), (D), (c), (C)).  Twice over: the barriers and
 * the second check do it alone, and so does the grace period.
 *
 * SHORT whole -DLIVES=2 -DTRIES=1
 * SHORT mutants
 * RUN passes
 * RUN passes -DNO_GRACE
 * RUN fails -DKEY_UNCHECKED            the state is verified, the key is not
 * RUN fails -DROW_ONCE                 the row is read before DYING, and not again
 * RUN fails -DLATE_ADD                 the publisher's cell is raised after the answer
 * RUN fails -DNO_GRACE -DNO_CELL_FENCE the cell is raised by a plain store
 * RUN fails -DNO_GRACE -DWRITER_NO_FENCE       DYING is a plain store
 * RUN fails -DNO_GRACE -DNO_RECHECK    the cell is raised, and nothing looked at again
 * RUN fails -DNO_GRACE -DCHECK_FIRST   all is looked at twice, then the cell raised
 * RUN passes -DWRITER_NO_FENCE         plain victims: the barrier that begins the grace period is the one
 * RUN passes -DNO_RECHECK -DNO_CELL_FENCE */
#define PEERS   2
#define WRITER  PEERS
#define CPUS    (PEERS + 1)
#define DEPTH   4
#ifndef LIVES
#define LIVES   3
#endif
#ifndef TRIES
#define TRIES   2
#endif

#define WORD    0
#define KEY0    1
#define KEY1    2
#define CELL(p) (3 + (p))
#define SECTION(p) (3 + PEERS + (p)) /* a number, 0 = none is open */
#define CELLS   (3 + 2 * PEERS)
#include "tso.h"

#define FREE     0              /* states; a word is life * 4 + state */
#define RESERVED 1
#define LIVE     2
#define DYING    3
#define STATE(w) ((w) & 3)
/* keys: 1, 1 in even lives, 1, 2 and 2, 2 in odd ones */
#define FIRST(life)     ((life) == 2 -> 2 : 1)
#define SECOND(life)    ((life) == 0 -> 1 : 2)

bool asked, answered;           /* the one publish command */
/* what is so, apart from all memory: */
bool available;                 /* the writer may hand the block out */
byte life;                      /* of the last publish */
byte holds[PEERS];              /* 1 + the life whose key was asked for */

/* word = the record's word when it is LIVE and has the key that is wanted, else 0 */
inline live_word(word)
{
	word = mem[WORD];
	if
	:: STATE(word) != LIVE -> word = 0
	:: else ->
#ifdef KEY_UNCHECKED
		skip
#else
		if
		:: mem[KEY0] != FIRST(want) -> word = 0
		:: else ->
			if
			:: mem[KEY1] != SECOND(want) -> word = 0
			:: else ->
				if
				:: mem[WORD] != word -> word = 0
				:: else
				fi
			fi
		fi
#endif
	fi
}

inline raise_cell()
{
#ifdef NO_CELL_FENCE
	STORE(CELL(me), 1)
#else
	LOCKED(mem[CELL(me)]++)
#endif
}

inline lower_cell() { LOCKED(mem[CELL(me)]--) }

inline hold(which)              /* granted */
{
	atomic {
		holds[me] = 1 + which;
		assert(!available && FIRST(life) == FIRST(which) &&
		       SECOND(life) == SECOND(which))
	}
}

inline let_go()
{
	holds[me] = 0;
	lower_cell()
}

inline take()
{
	LOCKED(mem[SECTION(me)] = n);
	live_word(word);
	if
	:: !word
	:: else ->
#ifdef CHECK_FIRST
		live_word(word);
		raise_cell();
#else
		raise_cell();
#ifndef NO_RECHECK
		live_word(word);
#endif
#endif
		if
		:: word -> hold(want)
		:: else -> lower_cell()
		fi
	fi;
	STORE(SECTION(me), 0);
	word = 0
}

proctype peer(byte me)
{
	byte want, word, n;

	if                              /* who computed it */
	:: me == 0 ->
#ifdef LATE_ADD
		asked = true;
		answered;
		raise_cell();
#else
		raise_cell();
		FENCE();                        /* the doorbell of the ring is one */
		asked = true;
		answered;
#endif
		hold(0);
		let_go()
	:: else
	fi;
	do
	:: n < TRIES ->
		n++;
		if
		:: want = 0
		:: want = 1
		:: want = 2
		fi;
		take();
		if
		:: holds[me] -> let_go()
		:: else
		fi
	:: else -> break
	od
}

/* The section that is open when the grace period begins has ended. */
inline wait_for_section(p)
{
	v = mem[SECTION(p)];
	!v || mem[SECTION(p)] != v;
	v = 0
}

proctype writer(byte me)
{
	byte n, v;

	asked;
	do
	:: n < LIVES ->
		STORE(KEY0, FIRST(n));
		STORE(KEY1, SECOND(n));
		atomic { nfull(queue[me]); life = n; STORE(WORD, n * 4 + LIVE) }
		answered = true;
end:		if                      /* it may stay, when it is in use */
		:: mem[CELL(0)] == 0
		fi;
end1:		if
		:: mem[CELL(1)] == 0
		fi;
#ifdef WRITER_NO_FENCE
		STORE(WORD, n * 4 + DYING);
#else
		LOCKED(mem[WORD] = n * 4 + DYING);
#endif
#ifndef NO_GRACE
		FENCE();
		wait_for_section(0);
		wait_for_section(1);
#endif
#ifndef ROW_ONCE
		mem[CELL(0)] == 0;
		mem[CELL(1)] == 0;
#endif
		atomic {
			available = true;
			assert(!holds[0] && !holds[1])
		}
		n++;
		STORE(WORD, n * 4 + FREE);
		atomic { available = false; STORE(WORD, n * 4 + RESERVED) }
	:: else -> break
	od
}

init
{
	atomic {
		mem[WORD] = RESERVED;
		run peer(0);
		run peer(1);
		run writer(WRITER);
		run cpu(0);
		run cpu(1);
		run cpu(WRITER)
	}
}
