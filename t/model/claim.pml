/* SPDX-License-Identifier: Apache-2.0 */
/* claim.pml - who computes a key that many want: index/table/pending.h, index/claim/claim.c (rules B13 to B15).
 *
 * Two or three peers want key K; peer i has block i reserved.  CLAIM marks the block as
 * the one that will hold K, unless one is marked already (PENDING: that block and its
 * word) or K is live (LIVE).  Who has the mark publishes, gives its block back, is
 * refused (its parent went), dies at any instruction, or is stopped for ever.  Who is told
 * PENDING waits on a sequence word of the control segment: raise `waiters`, read the
 * sequence, look at the record, sleep if the sequence is the same.  Once it may stop
 * waiting and compute K itself, if the one with the mark is stopped.  The first writer
 * dies at any instruction; the second rebuilds the claims from the records and wakes all.
 * Stores go through the queues of x86-64.  Sleeps have no deadline here.
 *
 * Proves: who waits for a claim that is over is woken (else: invalid end state); of those
 * that run one at a time is told MINE; K is live in one block at most; who was told LIVE
 * finds K, or asks again.
 *
 * SHORT whole -DONE_WRITER
 * RUN passes
 * RUN passes -DNO_GENERATION         a waiter compares the mark alone: the sequence is enough
 * RUN passes -DSTOPPED
 * RUN passes -DSTOPPED -DPEERS=3 -DONE_WRITER
 * RUN fails -DNO_FENCE               the writer looks at `waiters` before its store is out
 * RUN fails -DNO_WAITER_FENCE        `waiters` is raised by a plain store
 * RUN fails -DLOOK_FIRST             the record is looked at, then the sequence is read
 * RUN fails -DWAITERS_LATE           the record is looked at before `waiters` is raised
 * RUN fails -DSUCCESSOR_SILENT       takeover wakes nobody
 * RUN fails -DREAP_SILENT            reaping takes the mark away and wakes nobody
 * RUN fails -DREFUSED_KEEPS          a refused publish leaves the mark
 * RUN fails -DSTOPPED -DPEERS=3 -DONE_WRITER -DOTHER_SILENT    K published by another wakes nobody
 * RUN fails -DSUCCESSOR_FORGETS      takeover does not know of the marks
 * SEARCH collapsed */
#ifndef PEERS
#define PEERS 2
#endif
#define WRITER  PEERS                   /* both writers have one queue: one after the other */
#define CPUS    (PEERS + 1)
#define DEPTH   3

#define WORD(i)  (i)                    /* life * 4 + state */
#define MARK(i)  (PEERS + (i))
#define WAITERS  (2 * PEERS)
#define SEQ      (2 * PEERS + 1)
#define CELLS    (2 * PEERS + 2)
#include "tso.h"

#define FREE     0
#define RESERVED 1
#define LIVE     2
#define STATE(w) ((w) & 3)

#define CLAIM    1
#define PUBLISH  2
#define GIVE     3
#define AGAIN    4                      /* reserve: the same block, a new life */
#define MINE     1
#define ISLIVE   2
#define PENDING  3                      /* + block */
#define DONE     9
#define REFUSED  10

byte req[PEERS], ans[PEERS], answord[PEERS];
bool asleep[PEERS], dead[PEERS], stopped[PEERS], reaped[PEERS], told[PEERS], wkill;
bool refuse = true;                     /* once: the parent of K is gone */
byte nlive;

inline ask(what)
{
	atomic { FENCE(); ans[me] = 0; req[me] = what };
	ans[me] != 0
}

inline wait()
{
	atomic { b = ans[me] - PENDING; w = answord[me] };
#ifdef WAITERS_LATE
	m = mem[MARK(b)] && mem[WORD(b)] == w;
	LOCKED(mem[WAITERS]++);
	s = mem[SEQ];
#else
#ifdef NO_WAITER_FENCE
	STORE(WAITERS, 1);
#else
	LOCKED(mem[WAITERS]++);
#endif
#ifdef LOOK_FIRST
	m = mem[MARK(b)] && mem[WORD(b)] == w;
	s = mem[SEQ];
#else
	s = mem[SEQ];
#ifdef NO_GENERATION
	m = mem[MARK(b)];
#else
	m = mem[MARK(b)];
	m = m && mem[WORD(b)] == w;
#endif
#endif
#endif
	if
	:: m ->
		atomic { asleep[me] = (mem[SEQ] == s) };        /* futex_wait */
		if
		:: !asleep[me]
#ifdef STOPPED
		/* its own deadline, when nothing else will happen: it computes K itself */
		:: timeout && stopped[b] && !alone -> assert(!nlive); alone = true; asleep[me] = false
#endif
		fi
	:: else
	fi;
#ifdef NO_WAITER_FENCE
	STORE(WAITERS, 0);
#else
	LOCKED(mem[WAITERS]--);
#endif
	b = 0; w = 0; s = 0; m = 0
}

proctype peer(byte me)
{
	byte b, w, s, m, n;
	bool alone;

	{
	do
	:: true ->
		ask(CLAIM);
		if
		:: ans[me] == MINE ->
			atomic {
				b = 0;
				do
				:: b < PEERS -> assert(b == me || !told[b] || dead[b] || stopped[b]); b++
				:: else -> break
				od;
				b = 0;
				told[me] = true
			};
			if
			:: atomic { told[me] = false; FENCE(); ans[me] = 0; req[me] = PUBLISH };
				ans[me] != 0;
				if
				:: ans[me] == DONE -> break
				:: me == 0 && ans[me] == REFUSED && n < 1 -> n++        /* the parent is computed again */
				:: else -> break
				fi
			:: told[me] = false; ask(GIVE);
				if
				:: me == 0 && n < 1 -> n++; ask(AGAIN)  /* the same block, for the same key */
				:: break
				fi
#ifdef STOPPED
			:: me == 0 -> stopped[me] = true; break
#endif
			fi
		:: ans[me] == ISLIVE -> break           /* a reference, or once more: refs.pml */
		:: else ->
			wait();
			if
			:: alone -> ask(PUBLISH); break
			:: else
			fi
		fi
	od
	} unless { dead[me] }
}

proctype killer()
{
	if
#ifndef STOPPED
	:: dead[0] = true
#endif
	:: skip
	fi
}
#ifndef ONE_WRITER
proctype assassin() { wkill = true }
#endif

/* ---- the writer ---- */
inline wake()
{
#ifndef NO_FENCE
	FENCE();
#endif
	if
	:: mem[WAITERS] ->
		LOCKED(mem[SEQ]++);
		atomic {
			j = 0;
			do
			:: j < PEERS -> asleep[j] = false; j++
			:: else -> break
			od;
			j = 0
		}
	:: else
	fi
}

inline answer(p, what)
{
	atomic { empty(queue[me]); ans[p] = what; req[p] = 0 }
}

/* Private, and rebuilt: which block is marked, which has K. */
inline end_claim()
{
	if
	:: marked ->
		STORE(MARK(marked - 1), 0);
		marked = 0
	:: else
	fi
}

inline serve(p)
{
	if
	:: req[p] == CLAIM && live -> answer(p, ISLIVE)
	:: req[p] == CLAIM && !live && marked == p + 1 -> answer(p, MINE)       /* a second run */
	:: req[p] == CLAIM && !live && !marked ->
		STORE(MARK(p), 1);
		marked = p + 1;
		answer(p, MINE)
	:: req[p] == CLAIM && !live && marked && marked != p + 1 ->
		atomic { empty(queue[me]); answord[p] = mem[WORD(marked - 1)] };
		answer(p, PENDING + marked - 1)
	:: req[p] == PUBLISH ->
		if
		:: live == p + 1 -> end_claim(); wake(); answer(p, DONE)        /* a second run */
		:: live && live != p + 1 -> end_claim(); wake(); answer(p, ISLIVE)      /* the reservation stays */
		:: !live && refuse && marked == p + 1 ->
			refuse = false;
#ifndef REFUSED_KEEPS
			end_claim();
			wake();
#endif
			answer(p, REFUSED)
		:: !live ->
			atomic { nfull(queue[me]); queue[me]!WORD(p),(mem[WORD(p)] & 252) + LIVE; nlive++; assert(nlive == 1) };
			live = p + 1;
#ifdef OTHER_SILENT
			if
			:: marked == p + 1 -> end_claim(); wake()
			:: else
			fi;
#else
			end_claim();
			wake();
#endif
			answer(p, DONE)
		fi
	:: req[p] == GIVE ->
		if
		:: marked == p + 1 -> end_claim()
		:: else
		fi;
		FENCE();
		if
		:: STATE(mem[WORD(p)]) == RESERVED -> STORE(WORD(p), (mem[WORD(p)] & 252) + 4 + FREE)
		:: else
		fi;
		wake();
		answer(p, DONE)
	:: req[p] == AGAIN ->
		FENCE();
		if
		:: STATE(mem[WORD(p)]) == FREE -> STORE(WORD(p), (mem[WORD(p)] & 252) + RESERVED)
		:: else
		fi;
		answer(p, DONE)
	fi
}

proctype writer(byte me; byte number)
{
	byte marked, live, p, j;

end0:	number == 0 || wkill;
	{
	if
	:: number ->
		FENCE();
		p = 0;
		do
		:: p < PEERS ->
#ifndef SUCCESSOR_FORGETS
			if
			:: mem[MARK(p)] -> marked = p + 1
			:: else
			fi;
#endif
			if
			:: STATE(mem[WORD(p)]) == LIVE -> live = p + 1
			:: else
			fi;
			p++
		:: else -> break
		od;
		p = 0;
		if
		:: live && marked -> end_claim()        /* died between the two stores */
		:: else
		fi;
#ifndef SUCCESSOR_SILENT
		wake()
#endif
	:: else
	fi;
end:	do
	:: req[0] -> p = 0; serve(0); p = 0
	:: req[1] -> p = 1; serve(1); p = 0
#if PEERS > 2
	:: req[2] -> p = 2; serve(2); p = 0
#endif
	:: dead[0] && !reaped[0] ->
		req[0] = 0;
		if
		:: marked == 1 ->
			p = 0;
			end_claim();
#ifndef REAP_SILENT
			wake()
#endif
		:: else
		fi;
		reaped[0] = true
	od
	} unless { wkill && number == 0 }
}

init
{
	atomic {
		mem[WORD(0)] = RESERVED;
		mem[WORD(1)] = RESERVED;
		run peer(0); run peer(1);
		run cpu(WRITER);
#ifdef NO_WAITER_FENCE          /* else what peers store is locked */
		run cpu(0); run cpu(1);
#endif
#if PEERS > 2
		mem[WORD(2)] = RESERVED;
		run peer(2);
#endif
		run writer(WRITER, 0);
		run killer();
#ifndef ONE_WRITER
		run writer(WRITER, 1); run assassin();
#endif
	}
}
