/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.pml - moves that the writer commits when a device says that their copies are done:
 * index/writer/transfer.h, reap.c, takeover (rules B1 to B12 there).
 *
 * Three slots: R in RAM holds key X, T in RAM is free, B in VRAM holds key V.  Peer P spills V to T, and
 * fetches X into B as soon as that can be had: two transfers, each with a value and a done word.  For each it
 * gives its stream a copy, in two halves, and the store of done.  Peer Q takes whatever slot is free, writes it in two
 * steps and publishes it.  Slots are evicted when Q wants one.  P dies at any instruction; its device goes
 * on until the process has exited.  P may release B at once.  The first writer dies at any instruction, the
 * second takes over from records, values and done words alone.
 *
 * Proves: a LIVE slot has the bytes of its key, whole; nobody writes a LIVE slot; what P was told is good in the
 * order of its stream is good as long as P holds it; when all is quiet, nothing of a dead peer is left, and
 * nothing that was done is undecided.
 *
 * SHORT whole -DONLY=SPILL
 * SHORT whole -DONLY=FETCH
 * RUN passes                         P dies
 * RUN passes -DWRITER_DIES -DONLY=SPILL      P and the first writer die
 * RUN passes -DWRITER_DIES -DONLY=FETCH
 * RUN passes -DCOPIES                the sources stay
 * RUN passes -DDROPS                 P dies; X or V is dropped
 * RUN passes -DDROPS -DNO_DEATH
 * RUN passes -DFAIL -DWRITER_DIES    the fetch's copy is not enqueued; the first writer dies
 * RUN passes -DLOST                  P dies, its context is lost
 * RUN fails -DFREE_AT_REAP           a dead peer's targets are free before its process has exited
 * RUN passes -DLATE_LOOK             pins go at reaping, done is looked at after the exit: the source's word tells
 * RUN passes -DNO_WORD_CHECK         a commit does not compare the source's word: the pin is enough
 * RUN fails -DLATE_LOOK -DNO_WORD_CHECK    but one of the two has to be
 * RUN fails -DSOFT_DONE              software says done when the context is lost
 * RUN fails -DDONE_UNORDERED         done is stored by another stream
 * RUN fails -DFAIL -DPARTIAL         a copy failed, and done is stored before the cut is answered
 * RUN fails -DEARLY_FREE             releasing a target frees it before done
 * RUN fails -DDROPS -DDROP_FREES     a target whose source is dropped is free before done
 * RUN fails -DDROPS -DREFUSED_FREE   a commit that is refused frees what its owner was promised
 * RUN fails -DDROPS -DPIN_IS_NO_HOLD -DNO_WORD_CHECK   a source that is dropped is free although a copy reads it
 * RUN fails -DWRITER_DIES -DONLY=FETCH -DSUCCESSOR_FREES        takeover frees targets that were told
 * RUN fails -DNO_PINS                a bound source is a victim
 * RUN fails -DWRITER_DIES -DONLY=FETCH -DSUCCESSOR_NO_PINS -DNO_WORD_CHECK        takeover forgets the pins
 * SEARCH collapsed */
#ifdef SOFT_DONE
#define LOST
#endif
#ifdef FAIL
#define NO_DEATH
#endif
#define R 0
#define T 1
#define B 2
#define FREE 0
#define RESERVED 1
#define LIVE 2
#define DYING 3
#define X 1
#define V 2
#define Q 3
#define OWN_P 1
#define OWN_Q 2
#define SPILL 0
#define FETCH 1
#define TARGET(x)       ((x) == SPILL -> T : B)
#define SOURCE(x)       ((x) == SPILL -> B : R)
#define KEY(x)          ((x) == SPILL -> V : X)
#define YES 1
#define NO 2

/* index: records, and the value of each transfer */
mtype = { COPY, DONE, USE };
byte st[3], key[3], own[3], src[3], gen[3], srcgen[3];
bool quar[3], value[2];
/* control */
bool cell;                      /* P's, of B */
bool done[2];
byte preq, pans, pcut, qreq, qans, qslot;       /* preq: transfer + 1 */
/* bytes */
byte lo[3], hi[3];
/* the world */
bool pkill, dead, exited, lost, wkill, reaped, dropped, wrote;
chan stream = [6] of { mtype, byte, byte };

#define WHOLE(s)        (lo[s] == key[s] && hi[s] == key[s])
#define BOUND(s)        (st[s] == RESERVED && own[s] == OWN_P && src[s])
#define MINE(s)         (st[s] == RESERVED && own[s] == OWN_P)
#define HALTED          (exited || lost)

/* ---- P ---- */
#ifdef ONLY
#define ASKS(x) ((x) == ONLY)
#else
#define ASKS(x) 1
#endif

inline ask(x)
{
	if
	:: ASKS(x) -> atomic { pans = 0; preq = x + 1 }; pans != 0
	:: !ASKS(x) -> pans = NO
	fi
}

proctype peer()
{
	bool failed;
	{
		ask(SPILL);
		if
		:: pans == YES ->
			stream!COPY,B,T;
			stream!DONE,SPILL,0
		:: else
		fi;
		ask(FETCH);
		if
		:: pans == NO -> goto out
		:: else
		fi;
		cell = true;                    /* before done can be stored */
#ifdef DONE_UNORDERED
		stream!DONE,FETCH,0;
#endif
#ifndef FAIL
		stream!COPY,R,B;
#else
		if
		:: stream!COPY,R,B
		:: failed = true;               /* the driver refused it */
#ifdef PARTIAL
			stream!DONE,FETCH,0;
			pcut = 1
#else
			pcut = 1;
			pcut == 0;              /* answered */
			cell = false
#endif
		fi;
#endif
		if
		:: !failed ->
#ifndef DONE_UNORDERED
			stream!DONE,FETCH,0;
#endif
			stream!USE,0,0
		:: else
		fi;
		if
		:: cell = false;                /* aborted: released at once */
#ifdef EARLY_FREE
			pcut = 2
#endif
		:: wrote -> cell = false
#ifdef SOFT_DONE
		:: lost -> done[FETCH] = true
#endif
		:: skip                         /* keeps it */
		fi;
out:		skip
	} unless { pkill };
	if
	:: pkill -> dead = true
	:: else
	fi
}

/* ---- P's device ---- */
proctype device()
{
	mtype op;
	byte a, b;

end:	do
	:: HALTED -> break
	:: !HALTED && nempty(stream) ->
		atomic { stream?op,a,b };
		if
		:: op == COPY ->
			if
			:: atomic { !HALTED -> assert(st[b] != LIVE); lo[b] = lo[a] }
			:: HALTED -> break
			fi;
			if
			:: atomic { !HALTED -> assert(st[b] != LIVE); hi[b] = hi[a] }
			:: HALTED -> break
			fi
		:: op == DONE ->
			if
			:: atomic { !HALTED -> done[a] = true }
			:: HALTED -> break
			fi
		:: op == USE ->                 /* the kernels that follow in the stream */
			atomic {
				assert(!cell || dead || HALTED || (lo[B] == X && hi[B] == X));
				wrote = true
			}
		fi;
		a = 0; b = 0
	od
}

/* ---- Q ---- */
proctype other()
{
	byte s;

	atomic { qans = 0; qreq = 1 };
end:	qans != 0;
	s = qslot;
	atomic { assert(st[s] != LIVE); lo[s] = Q };
	atomic { assert(st[s] != LIVE); hi[s] = Q };
	atomic { qans = 0; qreq = 2 };
	qans != 0
}

/* ---- the writer ---- */
#define ROW(s)          ((s) == B && cell)
#ifdef NO_PINS
#define PINNED(s)       0
#else
#define PINNED(s)       pins[s]
#endif
#ifdef PIN_IS_NO_HOLD
#define HELD_BY_PIN(s)  0
#else
#define HELD_BY_PIN(s)  PINNED(s)
#endif

inline unbind(s)                /* the source first: a successor finds a plain reservation */
{
	if
	:: src[s] ->
		pins[src[s] - 1] = pins[src[s] - 1] - (pins[src[s] - 1] > 0 -> 1 : 0);
		src[s] = 0
	:: else
	fi
}

inline to_free(s)
{
	unbind(s);
	atomic { st[s] = FREE; gen[s] = 1 - gen[s]; own[s] = 0; quar[s] = false }
}

inline bind(x)
{
	own[TARGET(x)] = OWN_P;
	st[TARGET(x)] = RESERVED;
	value[x] = true;                /* B1: before it is bound */
	atomic {
		key[TARGET(x)] = KEY(x);
		srcgen[TARGET(x)] = gen[SOURCE(x)];
		src[TARGET(x)] = SOURCE(x) + 1;
		pins[SOURCE(x)]++
	}
}

#ifdef NO_WORD_CHECK
#define SAME(x) 1
#else
#define SAME(x) (st[SOURCE(x)] == LIVE && gen[SOURCE(x)] == srcgen[TARGET(x)])
#endif

inline leave(x)                 /* the source of a commit goes, unless it stays */
{
#ifndef COPIES
	if
	:: st[SOURCE(x)] == LIVE && gen[SOURCE(x)] == srcgen[TARGET(x)] -> st[SOURCE(x)] = DYING
	:: else
	fi;
#endif
	skip
}

inline decide(x)
{
	if
	:: BOUND(TARGET(x)) && SAME(x) ->
		atomic { assert(WHOLE(TARGET(x))); st[TARGET(x)] = LIVE };
		leave(x);
		unbind(TARGET(x))
	:: MINE(TARGET(x)) && !(src[TARGET(x)] && SAME(x)) ->
#ifdef REFUSED_FREE
		to_free(TARGET(x))
#else
		unbind(TARGET(x));              /* not findable, but its owner's until released */
		st[TARGET(x)] = DYING
#endif
	:: else
	fi
}

inline mark_lost(s)
{
	if
	:: MINE(s) ->
#ifdef FREE_AT_REAP
		to_free(s)
#else
		unbind(s);
		quar[s] = true;
		st[s] = DYING
#endif
	:: else
	fi
}

inline answer(with) { atomic { pans = with; preq = 0 } }

inline begin(x)
{
	if
	:: st[SOURCE(x)] == LIVE && key[SOURCE(x)] == KEY(x) && st[TARGET(x)] == FREE &&
	   !PINNED(SOURCE(x)) ->
		bind(x);
		answer(YES)
	:: !(st[SOURCE(x)] == LIVE && key[SOURCE(x)] == KEY(x) && !PINNED(SOURCE(x))) -> answer(NO)
	:: st[TARGET(x)] != FREE -> answer(NO)  /* or it waits */
	fi
}

inline look(x)
{
	if
	:: value[x] && done[x] -> decide(x)
	:: else
	fi
}

inline reap()
{
#ifdef LATE_LOOK
	pins[R] = 0; pins[B] = 0;
	cell = false;
	late = true
#else
	look(SPILL);
	look(FETCH);
	mark_lost(T);
	mark_lost(B);
	cell = false;
	preq = 0; pcut = 0;
	reaped = true
#endif
}

inline roll_forward(x)          /* LIVE with a source */
{
	if
	:: st[TARGET(x)] == LIVE && src[TARGET(x)] -> leave(x); src[TARGET(x)] = 0
	:: else
	fi
}

inline take_back(x)             /* whom nobody told: nobody writes there */
{
	if
#ifdef SUCCESSOR_FREES
	:: MINE(TARGET(x)) ->
#else
	:: preq == x + 1 && MINE(TARGET(x)) ->
#endif
		src[TARGET(x)] = 0;
		atomic { st[TARGET(x)] = FREE; own[TARGET(x)] = 0; gen[TARGET(x)] = 1 - gen[TARGET(x)] }
	:: else
	fi
}

inline take_over()
{
	roll_forward(SPILL);
	roll_forward(FETCH);
	take_back(SPILL);
	take_back(FETCH);
#ifndef SUCCESSOR_NO_PINS
	if
	:: src[T] -> pins[B]++
	:: else
	fi;
	if
	:: src[B] -> pins[R]++
	:: else
	fi
#endif
}

proctype writer(byte number)
{
	byte pins[3];
	bool late;

end0:	number == 0 || wkill;
	{
	if
	:: number -> take_over()
	:: else
	fi;
end:	do
	/* commands */
	:: preq == 1 && !dead -> begin(SPILL)
	:: preq == 2 && !dead -> begin(FETCH)
	:: preq && dead && !reaped -> preq = 0
	:: pcut == 1 && !dead ->                /* a copy that was not enqueued */
		if
		:: BOUND(B) -> unbind(B); st[B] = DYING
		:: else
		fi;
		pcut = 0
#ifdef EARLY_FREE
	:: pcut == 2 && !dead ->
		if
		:: MINE(B) -> to_free(B)
		:: else
		fi;
		pcut = 0
#endif
	:: atomic { qreq == 1 && st[R] == FREE -> own[R] = OWN_Q; st[R] = RESERVED; qslot = R; qans = 1; qreq = 0 }
	:: atomic { qreq == 1 && st[T] == FREE -> own[T] = OWN_Q; st[T] = RESERVED; qslot = T; qans = 1; qreq = 0 }
	:: atomic { qreq == 1 && st[B] == FREE -> own[B] = OWN_Q; st[B] = RESERVED; qslot = B; qans = 1; qreq = 0 }
	:: atomic { qreq == 2 ->
		key[qslot] = Q;
		assert(st[qslot] == RESERVED && WHOLE(qslot));
		st[qslot] = LIVE;
		qans = 1;
		qreq = 0 }
	/* eviction, for anybody */
	:: qreq == 1 && st[R] == LIVE && !ROW(R) && !PINNED(R) -> st[R] = DYING
	:: (qreq == 1 || preq == 2) && st[B] == LIVE && !ROW(B) && !PINNED(B) -> st[B] = DYING
	:: qreq == 1 && st[T] == LIVE && !ROW(T) && !PINNED(T) -> st[T] = DYING
#ifdef DROPS
	:: !dropped && st[R] == LIVE && key[R] == X -> atomic { dropped = true; st[R] = DYING }
	:: !dropped && st[B] == LIVE && key[B] == V -> atomic { dropped = true; st[B] = DYING }
#ifdef DROP_FREES
	:: BOUND(B) && st[R] != LIVE -> to_free(B)
	:: BOUND(T) && st[B] != LIVE -> to_free(T)
#endif
#endif
	/* what has passed its grace period */
	:: st[R] == DYING && !quar[R] && !ROW(R) && !HELD_BY_PIN(R) -> to_free(R)
	:: st[B] == DYING && !quar[B] && !ROW(B) && !HELD_BY_PIN(B) -> to_free(B)
	:: st[T] == DYING && !quar[T] && !ROW(T) && !HELD_BY_PIN(T) -> to_free(T)
	:: quar[B] && st[B] == DYING && exited && !ROW(B) -> to_free(B)
	:: quar[T] && st[T] == DYING && exited && !ROW(T) -> to_free(T)
	/* transfers */
	:: value[SPILL] && done[SPILL] && !reaped && MINE(T) -> decide(SPILL)
	:: value[FETCH] && done[FETCH] && !reaped && MINE(B) -> decide(FETCH)
	:: dead && !reaped && !late -> reap()
#ifdef LATE_LOOK
	:: late && exited && !reaped ->
		look(SPILL);
		look(FETCH);
		mark_lost(T);
		mark_lost(B);
		reaped = true
#endif
	od
	} unless { wkill && number == 0 }
}

proctype killer() { pkill = true }
proctype assassin() { wkill = true }
proctype fault() { lost = true }
proctype leaving()
{
end:	dead -> exited = true
}

/* Nothing of the dead stays; nothing that has passed stays undecided. */
proctype judge()
{
end:	timeout ->
	assert(!dead || own[T] != OWN_P || st[T] == LIVE || st[T] == FREE);
	assert(!dead || own[B] != OWN_P || st[B] == LIVE || st[B] == FREE);
	assert(dead || lost || !done[SPILL] || !BOUND(T));
	assert(dead || lost || !done[FETCH] || !BOUND(B))
}

init
{
	atomic {
		st[R] = LIVE; key[R] = X; lo[R] = X; hi[R] = X;
		st[B] = LIVE; key[B] = V; lo[B] = V; hi[B] = V;
		run peer(); run device(); run other(); run writer(0);
		run leaving(); run judge();
#ifndef NO_DEATH
		run killer();
#endif
#ifdef LOST
		run fault();
#endif
#ifdef WRITER_DIES
		run writer(1); run assassin();
#endif
	}
}
