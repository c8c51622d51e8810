/* SPDX-License-Identifier: Apache-2.0 */
/* given-up.pml - a block that is given up before its publish is answered: index/peer/hold.c,
 * index/request/publish.c, w_cell_is_zero of index/table/state.h.
 *
 * One block and one peer with two threads.  The first one has published the block without a
 * reference that it wants to keep, and releases it at any moment; then it may stop for ever, or take
 * the answer and give back what is left to give back.  The writer makes the block LIVE, or refuses;
 * whoever it likes needs the block, so it evicts it when nobody holds it, and grants it to the second
 * thread.  That one takes references on the LIVE block, and reserves and publishes it when it is
 * free.  The ring has no room for FREE while the first thread stands still.
 *
 * With KEEPS the publish keeps its reference, and the first thread releases that: behind a reference of
 * the second thread the cell is a number, and the release leaves no word for the answer.  The block's
 * life alone says then that the hold of the command has ended.
 *
 * All steps on the cell are locked instructions, so there are no store buffers here.
 *
 * Proves: nobody's reference or reservation is ended by the late answer, no block that somebody
 * holds is free, and when the first thread has stopped nothing of it keeps a LIVE block from going.
 *
 * SHORT whole
 * SHORT mutants
 * RUN passes
 * RUN passes -DOWNED
 * RUN passes -DKEEPS
 * RUN passes -DKEEPS -DOWNED
 * RUN fails -DPEER_ENDS                the writer leaves the way back to the peer
 * RUN fails -DNO_FLAG                  the answer does not know that the block was given up
 * RUN fails -DNO_FLAG -DOWNED          the same of a CALLER block, which has no way back
 * RUN fails -DKEEPS -DANY_LIFE         the answer does not look at the life: the flag alone
 * RUN fails -DSTEP_FAILS             a release that comes behind a reference of the other thread
 * RUN fails -DANY_STATE                the writer ends the way back of a reservation, too
 */
#define NONE     0
#define PENDING  10
#define BACK     11
#define RSVD     12

mtype = { FREE, RESERVED, LIVE, DYING };

mtype state = RESERVED;
byte life;
bool ours = true;               /* RESERVED by the peer */
byte cell = PENDING;            /* above 0 and below PENDING: references */
bool answered, live;            /* the command, by the writer */
bool taken;                     /* its answer */
bool given_up;                  /* the flag of the command */
bool listed;                    /* on the list of what waits for room: FREE of life 0 */
bool sent, free_done;
/* what is so, apart from all memory: */
bool first = true, refers, reserves, tries;  /* the first thread, the second one */
bool stopped, locked;

#define NOBODY (!first && !refers && !reserves && !tries)

/* HOLD_LIVE */
inline step_live()
{
	if
	:: cell == PENDING -> cell = 1
	:: cell == BACK -> cell = 0
	:: else
	fi
}

inline release_pending()
{
	if
	:: atomic { cell == PENDING -> was = (state == RESERVED && ours) };
		if
		:: !was -> atomic { step_live() }
#ifndef NO_FLAG
			given_up = true;
#endif
			atomic { assert(cell >= 1 && cell < PENDING); cell--; first = false }
		:: was ->
#ifndef NO_FLAG
			given_up = true;
#endif
			if
#ifdef OWNED
			:: atomic { cell == PENDING -> cell = 0; first = false }
#else
			:: atomic { cell == PENDING -> cell = BACK; first = false }
				listed = true
#endif
			/* the second thread was here, as it was LIVE */
#ifdef STEP_FAILS
			:: atomic { cell >= 1 && cell < PENDING -> first = false }
#else
			:: atomic { cell >= 1 && cell < PENDING -> cell--; first = false }
#endif
			fi
		fi
#ifdef KEEPS
	/* the second thread has found it, and the cell is a number: the answer is told nothing */
	:: atomic { cell >= 1 && cell < PENDING -> cell--; first = false }
#else
	/* the second thread has found it: a release would end a reference, whose ever, and the answer
	 * another one; gpc_publish(3) leaves it to the answer then */
	:: cell >= 1 && cell < PENDING
#endif
	fi
}

/* of the handle: a release of what is PENDING, the taking of answers, and the steps that make the
 * cell RSVD and PENDING are under it, references are not */
inline lock() { atomic { !locked -> locked = true } }
inline unlock() { locked = false }

inline may_stop()
{
	if :: true -> stopped = true; goto end_stopped :: skip fi
}

/* A publish that keeps no reference: what is LIVE goes with the answer, unless it was given up.  One
 * that keeps it is released by the program, here at once, unless it has released it before. */
inline take_answer()
{
	if
#ifdef ANY_LIFE
	:: true ->
#else
	:: life == 0 ->
#endif
		if
		:: live && given_up -> atomic { if :: cell == BACK -> cell = 0 :: else fi }
		:: live && !given_up ->
			atomic { unflagged = cell != BACK; step_live() }
			if
#ifdef KEEPS
			:: first -> atomic { assert(cell >= 1 && cell < PENDING); cell--; first = false }
#else
			:: unflagged -> atomic {
				if :: cell >= 1 && cell < PENDING -> cell-- :: else fi;
				first = false }
#endif
			:: else
			fi
		:: !live && !given_up -> atomic {
			if :: cell == PENDING -> cell = RSVD :: else fi }
		:: !live && given_up
		fi
	:: else
	fi;
	taken = true
}

inline give_back()
{
	if
	:: listed && state == RESERVED && life == 0 ->
		atomic { if :: cell == BACK -> cell = 0 :: else fi }
		sent = true;
end_sent:	free_done
	:: listed && state != RESERVED && life == 0 ->
		atomic { if :: cell == BACK -> cell = 0 :: else fi }
	:: else
	fi;
	listed = false
}

active proctype first_thread()
{
	bool was, unflagged;

	if
	:: true ->              /* it releases, at any moment */
		lock();
		release_pending();
		unlock();
		if
		:: !first -> may_stop()
		:: else
		fi;
		answered;
		lock();
		take_answer();
		unlock()
	:: answered ->
		lock();
		take_answer();
		unlock();
		if
		:: atomic { cell == RSVD && first -> cell = BACK; first = false }
			listed = true
		:: !first
		fi
	fi;
	may_stop();
	give_back();
	stopped = true;
end_stopped:
	skip
}

active proctype second_thread()
{
	byte n;

end_second:
	do
	:: n < 2 && state == LIVE -> n++;
		atomic { tries = true; cell++;
			if
			:: cell == PENDING + 1 -> cell = 2
			:: cell == BACK + 1 -> cell = 1
			:: else
			fi }
		if
		:: atomic { state == LIVE -> refers = true; tries = false }
			atomic { assert(cell >= 1 && cell < PENDING); refers = false; cell-- }
		:: atomic { state != LIVE -> assert(cell >= 1 && cell < PENDING); cell--;
			tries = false }
		fi
	:: n < 2 && reserves -> n++;      /* what the writer has granted */
		atomic { !locked -> assert(cell == 0); cell = RSVD }
		atomic { !locked -> assert(cell == RSVD); cell = PENDING }
		atomic { assert(cell == PENDING); cell = 0; reserves = false; state = FREE; life++ }
	:: n == 2 -> break
	od
}

/* Does nobody hold it?  w_cell_is_zero. */
inline look()
{
	atomic {
		if
#ifndef PEER_ENDS
#ifdef ANY_STATE
		:: cell == BACK -> cell = 0; zero = true
#else
		:: cell == BACK && (state == LIVE || state == DYING) -> cell = 0; zero = true
#endif
#endif
		:: else -> zero = (cell == 0)
		fi
	}
}

active proctype writer()
{
	bool zero;
	byte granted;

	if
	:: atomic { state = LIVE; live = true; ours = false }
	:: skip
	fi;
	answered = true;
end_first:
	do
	:: state == LIVE -> look();
		if
		:: zero -> state = DYING; break
		:: atomic { !zero && stopped && NOBODY -> look(); assert(zero) }
		:: else
		fi
#ifdef ANY_STATE
	:: state == RESERVED && life == 0 && !listed -> look();
		assert(!zero || !stopped || sent)
#endif
	:: atomic { sent && !free_done -> free_done = true;
		if :: state == RESERVED && life == 0 -> assert(cell == 0 && NOBODY);
			state = FREE; life++
		:: else fi }
		break
	od;
end_then:
	do
	:: state == DYING -> look();
		if
		:: zero -> atomic { assert(!first && !refers && !reserves); state = FREE; life++ }
		:: else
		fi
	:: state == FREE && granted == 0 -> granted++;
		atomic { state = RESERVED; reserves = true }
	:: atomic { sent && !free_done -> free_done = true }
	od
}
