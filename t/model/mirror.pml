/* SPDX-License-Identifier: Apache-2.0 */
/* mirror.pml - a mirror, its flushes, and who reads it: index/table/mirror.c, index/table/grace.c, bytes/mirror/view.c.
 *
 * The host table and a device's copy have two entries.  Key K is live for ever and is
 * relocated between them; M is published, evicted and published again, in either of two
 * blocks.  A flush is a scatter of the changed entries, whose values are listed when it
 * begins, or a copy of the whole chunk, whose entries the engine reads from the live
 * table one by one; both write the mirror in any order, while the writer goes on.
 * Emptied entries, evicted blocks and copies wait in the open batch, in the one that is
 * being flushed, then for the section that is open when their grace period begins.
 *
 * A kernel is launched in a section, after its peer has read which mirror is the live
 * one, and reads entries in any order.  What it found is used until the section ends.
 *
 * Proves: a kernel never misses K, and no block is free that an open section has found or
 * a kernel can still find (rules T1, T5, T6; (U), (W)).  -DFAIL: a flush does not end,
 * the mirror is retired, and the index goes on without it.  -DTAKEOVER: the writer is
 * killed anywhere, and its flush goes on or not; a successor publishes a mirror of its
 * own.
 *
 * SHORT whole -DFAIL
 * SHORT whole -DTAKEOVER
 * RUN passes
 * RUN passes -DFAIL
 * RUN passes -DTAKEOVER
 * RUN fails -DNO_FLUSH         the grace period begins when the entry is wiped
 * RUN fails -DNO_GRACE         the end of the flush is enough
 * RUN fails -DCOVER            a flush that is under way counts
 * RUN fails -DLATE_MARKS       marks are dropped at the end of the flush
 * RUN fails -DTWO_VALUES       an entry is listed once for each change, in any order
 * RUN fails -DOVERLAP          a flush begins while writes of the last one are under way
 * RUN fails -DFAIL -DRETIRE_LATE  the mirror is retired after the grace period began
 * RUN fails -DFAIL -DDESCRIPTOR_FIRST  the descriptor is read, then the section opened
 * RUN fails -DTAKEOVER -DADOPT         the successor goes on with the old mirror
 * RUN fails -DTAKEOVER -DEARLY_FREE    the grace period is before its mirror */
#define K       1               /* 2 and 3: the blocks of M */
#define FREE    0
#define LIVE    1
#define DYING   2
byte host[2], mirror[4];        /* mirror[2 * g + e]: of generation g */
byte state[4];                  /* of blocks 2 and 3 */
bool retired;
byte generation;                /* of the mirror that is published */

/* things that wait, each in a stage */
#define OPEN_BATCH      1
#define FLUSHING        2
#define GRACE           3
byte entry[2], block[4], copy;

byte dirty;                     /* marks, a bit for each entry */
bool busy;                      /* a flush is under way */
byte to_read, to_write, value[2];
#ifdef TWO_VALUES
byte before[2], twice;          /* an older value of an entry that is listed twice */
#endif

bool section, killed;
byte got;

/* ---- waiting ---- */

#ifdef NO_FLUSH
#define WAIT(what)      what = (section -> GRACE : 0)
#elif defined(COVER)
#define WAIT(what)      what = (busy -> FLUSHING : OPEN_BATCH)
#else
#define WAIT(what)      what = OPEN_BATCH
#endif

#define EACH(step)      step(entry[0]); step(entry[1]); step(block[2]); step(block[3]); \
			step(copy)
#define BEGINS(what)    what = (what == OPEN_BATCH -> FLUSHING : what)
#ifdef NO_GRACE
#define ENDS(what)      what = (what == FLUSHING -> 0 : what)
#else
#define ENDS(what)      what = (what == FLUSHING -> (section -> GRACE : 0) : what)
#endif
#define OVER(what)      what = (what == GRACE -> 0 : what)
#define ANY_OPEN        (dirty || entry[0] == OPEN_BATCH || entry[1] == OPEN_BATCH || \
			 block[2] == OPEN_BATCH || block[3] == OPEN_BATCH || \
			 copy == OPEN_BATCH)

/* ---- the device ---- */

proctype engine()               /* of the first writer's flushes, which may outlive it */
{
	byte i;

end:	do
	:: atomic {
		to_read ->
		if
		:: to_read & 1 -> i = 0
		:: to_read & 2 -> i = 1
		fi;
		value[i] = host[i];
		to_read = to_read & ~(1 << i);
		to_write = to_write | (1 << i);
		i = 0
	   }
	:: atomic {
		to_write ->
		if
		:: to_write & 1 -> i = 0
		:: to_write & 2 -> i = 1
		fi;
		mirror[i] = value[i];
		to_write = to_write & ~(1 << i);
		value[i] = 0;
		i = 0
	   }
	od
}

proctype kernel()
{
	byte g, x0, x1, rest;
	bool found, usable;

end:	do
	:: true ->
#ifdef DESCRIPTOR_FIRST
		atomic { g = generation; usable = !retired }
		section = true;
#else
		section = true;
		atomic { g = generation; usable = !retired }
#endif
		if
		:: usable ->
			rest = 3;
			do
			:: atomic { rest & 1 -> x0 = mirror[2 * g]; rest = rest & ~1 }
			:: atomic { rest & 2 -> x1 = mirror[2 * g + 1]; rest = rest & ~2 }
			:: !rest -> break
			od;
			atomic {
				assert(x0 == K || x1 == K);
				got = (x0 > K -> x0 : (x1 > K -> x1 : 0));
				x0 = 0;
				x1 = 0;
				assert(!got || state[got] != FREE)
			}
		:: else
		fi;
		atomic {
			section = false;
			got = 0;
			g = 0;
			usable = false;
			EACH(OVER)
		}
	od
}

/* ---- flushes ---- */

inline begin_flush()
{
	atomic {
		EACH(BEGINS);
		if
		:: retired -> dirty = 0; EACH(ENDS)
		:: else ->
			busy = true;
			to_read = 0;
			to_write = 0;
			if
			:: to_write = dirty; value[0] = host[0]; value[1] = host[1];
#ifdef TWO_VALUES
				if
				:: twice & 1 -> value[0] = before[0]
				:: true
				fi;
				if
				:: twice & 2 -> value[1] = before[1]
				:: true
				fi
#endif
			:: dirty -> to_read = 3; value[0] = 0; value[1] = 0
			fi;
#ifdef TWO_VALUES
			twice = 0;
			before[0] = 0;
			before[1] = 0;
#endif
#ifndef LATE_MARKS
			dirty = 0
#endif
		fi
	}
}

#ifdef OVERLAP
#define HAS_ENDED       (busy && !to_read)
#else
#define HAS_ENDED       (busy && !to_read && !to_write)
#endif

inline end_flush()
{
	atomic {
		busy = false;
#ifdef LATE_MARKS
		dirty = 0;
#endif
		EACH(ENDS)
	}
}

inline retire()                 /* the flush goes on, or never ends */
{
#ifdef RETIRE_LATE
	atomic { busy = false; EACH(ENDS) }
	retired = true
#else
	retired = true;
	atomic { busy = false; EACH(ENDS) }
#endif
}

/* ---- the writer ---- */

inline put(e, v)
{
	d_step {
#ifdef TWO_VALUES
		if
		:: dirty & (1 << (e)) -> before[e] = host[e]; twice = twice | (1 << (e))
		:: else
		fi;
#endif
		host[e] = v;
		dirty = dirty | (1 << (e))
	}
}

inline wipe(e)
{
	put(e, 0);
	d_step { WAIT(entry[e]) }
}

#define CAN_FILL(e)     (!host[e] && !entry[e])

inline free_block(b)
{
	d_step {
		assert(!section || got != b);
		state[b] = FREE
	}
}

inline evict(b)
{
	state[b] = DYING;
	if
	:: host[0] == b -> wipe(0)
	:: host[1] == b -> wipe(1)
	:: else
	fi;
	d_step { WAIT(block[b]) }
}

inline insert(b)
{
	state[b] = LIVE;
	if
	:: CAN_FILL(0) -> put(0, b)
	:: CAN_FILL(1) -> put(1, b)
	fi
}

inline relocate(to)
{
	put(to, K);
	d_step { from = 1 - (to); moving = true; WAIT(copy) }
}

#define ROOM    (CAN_FILL(0) || CAN_FILL(1))

proctype writer()
{
	byte from;
	bool moving;

	{
end:		do
		:: !moving && host[0] == K && CAN_FILL(1) -> relocate(1)
		:: !moving && host[1] == K && CAN_FILL(0) -> relocate(0)
		:: moving && !copy -> wipe(from); d_step { moving = false; from = 0 }
		:: state[2] == FREE && state[3] != LIVE && ROOM && !moving -> insert(2)
		:: state[3] == FREE && state[2] != LIVE && ROOM && !moving -> insert(3)
		:: state[2] == LIVE -> evict(2)
		:: state[3] == LIVE -> evict(3)
		:: state[2] == DYING && !block[2] -> free_block(2)
		:: state[3] == DYING && !block[3] -> free_block(3)
		:: !busy && ANY_OPEN -> begin_flush()
		:: HAS_ENDED -> end_flush()
#ifdef FAIL
		:: busy -> retire()
#endif
		od
	} unless { killed };
	run successor()
}

proctype killer() { killed = true }

#define IS_STALE(e)     (host[e] > K && state[host[e]] != LIVE)

/* What it does after its first grace period is what the writer does. */
proctype successor()
{
	bool waits;

	if
	:: IS_STALE(0) -> host[0] = 0
	:: else
	fi;
	if
	:: IS_STALE(1) -> host[1] = 0
	:: else
	fi;
	d_step { copy = 0; entry[0] = 0; entry[1] = 0; block[2] = 0; block[3] = 0 }
#ifdef EARLY_FREE
	d_step { copy = (section -> GRACE : 0) }
#endif
#ifndef ADOPT
	mirror[2] = host[0];
	mirror[3] = host[1];
	generation = 1;
#endif
#ifndef EARLY_FREE
	d_step { copy = (section -> GRACE : 0) }
#endif
	!copy;
	if
	:: state[2] == DYING -> free_block(2)
	:: else
	fi;
	if
	:: state[3] == DYING -> free_block(3)
	:: else
	fi
}

init
{
	atomic {
		host[0] = K;
		mirror[0] = K;
		run kernel();
		run engine();
		run writer();
#ifdef TAKEOVER
		run killer()
#endif
	}
}
