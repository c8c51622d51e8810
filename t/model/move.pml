/* SPDX-License-Identifier: Apache-2.0 */
/* move.pml - keys that move between blocks and spaces: leave.c, index/reader/take.h, retire.c.
 *
 * One key, three spaces, two blocks in each.  The writer moves the key, within a space or to another
 * one, as long as there is a block for it.  The target is LIVE and has its entry in one step; the
 * source waits for a grace period that begins after that, is DYING, loses its entry if it has
 * one, and is free after another.  A reader asks the spaces in order and takes a reference on
 * what it finds; one that fails asks each space once more, and passes those whose block gives
 * none (rule S3).
 *
 * Proves: a key that only moves is found and gives its reference (guarantee A), in at most one try
 * and one more in each space (guarantee B).
 *
 * A grace period is "the section that is open now has ended".  Stores are seen at once: the
 * orders of memory are those of grace.pml and refs.pml.  One reader: another one could only make
 * the writer wait longer, and it may wait as long as it likes.
 *
 * SHORT whole -DMOVES=2
 * RUN passes
 * RUN passes -DREADS=2 -DMOVES=3       sections one after the other
 * RUN fails -DAT_ONCE                  the source of a move between spaces goes at the commit
 * RUN fails -DMOVED_AT_ONCE            the one of a move within a space, whose entry is renamed
 * RUN fails -DGRACE_EARLY              the grace period begins before the target has its entry
 * RUN fails -DPROBE_ONCE               a reference that fails is tried once more, and no third time
 * RUN fails -DAT_ONCE -DMOVED_AT_ONCE -DPROBE_ONCE     all three, as it was once */
#define SPACES 3
#define BLOCKS (2 * SPACES)             /* block b is of space b / 2 */
#define NONE   BLOCKS
#ifndef READS
#define READS  1
#endif
#ifndef MOVES
#define MOVES  4
#endif

#define FREE  0
#define LIVE  1
#define WAITS 2                         /* LIVE, and its key has another block */
#define DYING 3                         /* its entry is there still */
#define GOING 4                         /* DYING, without entry */

byte state[BLOCKS];
byte entry[SPACES];                     /* the block that it names, or NONE */
byte section;                           /* the number of the one that is open, 0 = none */
byte waited[BLOCKS];                    /* the one that the block waits for */
byte home;                              /* where the key is */
byte moves, planned = NONE;
bool over;                              /* the reader is through */

#define GRACE_OVER(b) (!waited[b] || section != waited[b])
#define READABLE(b)   (state[b] == LIVE || state[b] == WAITS)
/* another space has no block of the key that is on its way */
#define CAN_MOVE(b)   (state[b] == FREE && moves < MOVES && planned == NONE && \
		       (entry[b / 2] == NONE || entry[b / 2] == home))

inline commit(to)               /* target LIVE, and its entry: in one space it is renamed */
{
	if
#ifdef AT_ONCE
	:: home / 2 != to / 2 -> state[home] = DYING
#endif
#ifdef MOVED_AT_ONCE
	:: home / 2 == to / 2 -> state[home] = GOING
#endif
	:: else -> state[home] = WAITS
	fi;
	state[to] = LIVE;
	entry[to / 2] = to;
	home = to;
	moves++
}

proctype writer()
{
	byte b;

	do
	:: over -> break
	:: else -> atomic {
		if
		:: b = 0 :: b = 1 :: b = 2 :: b = 3 :: b = 4 :: b = 5
		fi;
		if
#ifdef GRACE_EARLY
		:: CAN_MOVE(b) -> waited[home] = section; planned = b
		:: planned == b -> commit(b); planned = NONE
#else
		:: CAN_MOVE(b) -> waited[home] = section; commit(b)
#endif
		:: state[b] == WAITS && GRACE_OVER(b) && entry[b / 2] == b -> state[b] = DYING
		:: state[b] == WAITS && GRACE_OVER(b) && entry[b / 2] != b ->
			waited[b] = section; state[b] = GOING
		:: state[b] == DYING ->
			entry[b / 2] = NONE; waited[b] = section; state[b] = GOING
		:: state[b] == GOING && GRACE_OVER(b) -> state[b] = FREE; waited[b] = 0
		:: else
		fi;
		b = 0 }
	od
}

proctype reader()
{
	byte s, b, tries, n;
	bool got;

	do
	:: n == READS -> break
	:: else ->
		n++;
		section = n;
		b = NONE;
		do                              /* the lowest space that has it */
		:: s < SPACES && b == NONE -> b = entry[s]; s++
		:: else -> break
		od;
		assert(b != NONE);              /* a hint, at least */
		tries = 1;
		got = READABLE(b);
		s = 0;
		do                              /* each once more */
		:: s < SPACES && !got ->
			b = entry[s];
			s++;
			if
			:: b == NONE
			:: else ->
				tries++;
				got = READABLE(b);
#ifdef PROBE_ONCE
				s = SPACES
#endif
			fi
		:: else -> break
		od;
		assert(got && tries <= 1 + SPACES);
		section = 0;
		s = 0; b = 0; tries = 0; got = false
	od;
	over = true
}

init
{
	atomic {
		entry[0] = 0; entry[1] = NONE; entry[2] = NONE;
		state[0] = LIVE;
		run writer();
		run reader()
	}
}
