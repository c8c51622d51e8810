/* SPDX-License-Identifier: Apache-2.0 */
/* relocate.pml - the table with readers in flight: index/table/table.c, index/reader/probe.c, probe.h.
 *
 * Two buckets: the first with entries 0 and 1, the second with entry 2.  Key K is live
 * for ever, M is published, evicted and published again; either is relocated between its
 * buckets, which are the same for both; K changes its block once (a move between tiers).
 * An entry is three words, written and read one by one: two of key bits, half of which
 * both keys have in common, and the block.  The overflow flag is a bit of a key word of
 * entry 0.
 *
 * A reader looks for either key, in one section, with its words read in any order: bucket
 * by bucket, as one key is looked up, or first the key bits of a whole bucket and then
 * the block word of the match, as a group is.  Waiting for flush and grace period is: the
 * section that was open has ended (grace.pml and mirror.pml say why that may be so).
 *
 * Proves: K is always found; no relocation wipes the only entry of a block; a hit is a
 * block that has been this key's, and is used for nothing else until the section ends
 * (rules T1 to T4; (H), (I), (J)).
 *
 * SHORT 130
 * RUN passes
 * RUN fails -DPLAIN_MOVE       copy and wipe, with no grace period between them
 * RUN fails -DREUSE            a wiped entry is filled at once
 * RUN fails -DFLAG_LATE        the overflow flag is set when the old entry is wiped
 * RUN fails -DFLAG_EARLY       the flag is cleared when the copy back is made
 * RUN fails -DFLAG_LOST        wiping entry 0 clears the flag
 * RUN fails -DONE_RENAMED      of two entries in a relocation, a move renames the first
 * RUN fails -DONE_REMOVED      of two entries in a relocation, eviction wipes the first
 * RUN fails -DNOT_CANCELLED    a relocation goes on when its block has been evicted
 * RUN fails -DZERO_BITS        key words may be zero
 * RUN fails -DIN_PLACE         M's entry is overwritten by K's, never empty
 * RUN fails -DNO_BLOCK_GRACE   an evicted block is free at once */
#define K       1
#define M       2
#define FLAG    8

/* key words; the second is the flag's, too */
#define KEY0(key)       1
#ifdef ZERO_BITS
#define KEY1(key)       ((key) == K -> 0 : 2)
#else
#define KEY1(key)       (key)
#endif
byte w0[3], w1[3], block[3];
/* blocks 1 and 2 are K's, one after the other; 3 is M's */
#define OWNER(b)        ((b) == 3 -> M : K)

bool section;
byte got;                       /* the hit of the section, 0 = none */
/* what waits for a grace period, a bit each: entries 0 to 2; blocks 1, 3; the copy */
byte waiting;
bool is_free[4];
#define BIT(n)          (1 << (n))
#define BLOCK1  3
#define BLOCK3  4
#define COPY    5

inline start_wait(what)
{
	d_step {
		if
		:: section -> waiting = waiting | BIT(what)
		:: else -> waiting = waiting & ~BIT(what)
		fi
	}
}

#define IS_KEY(e, key)  (w0[e] == KEY0(key) && (w1[e] & ~FLAG) == KEY1(key))

/* ---- the writer ---- */

inline fill(e, key, b)
{
	w0[e] = KEY0(key);
	w1[e] = KEY1(key) | (w1[e] & FLAG);
	block[e] = b
}

inline wipe(e)
{
	block[e] = 0;
	w0[e] = 0;
#ifdef FLAG_LOST
	w1[e] = 0;
#else
	w1[e] = w1[e] & FLAG;
#endif
#ifndef REUSE
	start_wait(e)
#else
	skip
#endif
}

#define CAN_FILL(e)     (!block[e] && !(waiting & BIT(e)))

/* the last spilled entry has gone */
inline clear_flag()
{
	if
	:: !block[2] -> w1[0] = w1[0] & ~FLAG
	:: else
	fi
}

inline set_flag() { w1[0] = w1[0] | FLAG }

inline place(e, key, b)         /* a copy, or a new entry */
{
#ifndef FLAG_LATE
	if
	:: e == 2 -> set_flag()
	:: else
	fi;
#endif
	fill(e, key, b)
}

#define COPIES(b)       ((block[0] == (b)) + (block[1] == (b)) + (block[2] == (b)))

inline wipe_spilled(e)
{
	wipe(e);
	if
	:: e == 2 -> clear_flag()
	:: else
	fi
}

inline choose_from(e)           /* an entry to relocate */
{
	if
	:: block[0] -> e = 0
	:: block[1] -> e = 1
	:: block[2] -> e = 2
	fi
}

inline relocate()
{
	atomic {
		choose_from(from);
		b = block[from];
		key = OWNER(b);
		to = 9;
		if
		:: from < 2 && CAN_FILL(2) -> to = 2
		:: from == 2 && CAN_FILL(0) -> to = 0
		:: from == 2 && CAN_FILL(1) -> to = 1
		:: else
		fi
	}
	if
	:: to != 9 ->
#ifdef FLAG_EARLY
		if
		:: from == 2 -> w1[0] = w1[0] & ~FLAG
		:: else
		fi;
#endif
		place(to, key, b);
#ifndef PLAIN_MOVE
		start_wait(COPY);
#endif
		moving = key
	:: else
	fi;
	b = 0;
	key = 0
}

inline evict()                  /* M */
{
	e = 0;
	do
	:: e < 3 ->
		if
		:: block[e] == 3 ->
			wipe_spilled(e);
#ifdef ONE_REMOVED
			break
#endif
		:: else
		fi;
		e++
	:: else -> break
	od;
	e = 0;
#ifndef NOT_CANCELLED
	if
	:: moving == M -> moving = 0
	:: else
	fi;
#endif
	live = false;
#ifndef NO_BLOCK_GRACE
	start_wait(BLOCK3)
#endif
}

inline rename()                 /* K is another block now */
{
	e = 0;
	do
	:: e < 3 ->
		if
		:: block[e] == 1 ->
			block[e] = 2;
#ifdef ONE_RENAMED
			break
#endif
		:: else
		fi;
		e++
	:: else -> break
	od;
	e = 0;
	renamed = true;
	start_wait(BLOCK1)
}

proctype writer()
{
	byte from, to, e, b, key, moving;
	bool live, renamed;

end:	do
	:: !moving -> relocate()
	:: moving && !(waiting & BIT(COPY)) ->
#ifdef FLAG_LATE
		set_flag();
#endif
		assert(!block[from] || COPIES(block[from]) > 1);
		wipe_spilled(from);
		moving = 0
	:: !live && is_free[3] && (CAN_FILL(0) || CAN_FILL(1) || CAN_FILL(2)) ->
		atomic {
			is_free[3] = false;
			live = true;
			if
			:: CAN_FILL(0) -> e = 0
			:: !CAN_FILL(0) && CAN_FILL(1) -> e = 1
			:: !CAN_FILL(0) && !CAN_FILL(1) -> e = 2
			fi
		}
		place(e, M, 3);
		e = 0
	:: live -> evict()
	:: !live && !is_free[3] && !(waiting & BIT(BLOCK3)) ->
		d_step {
			is_free[3] = true;
			assert(!section || got != 3)
		}
	:: !renamed -> rename()
	:: renamed && !is_free[1] && !(waiting & BIT(BLOCK1)) ->
		d_step {
			is_free[1] = true;
			assert(!section || got != 1)
		}
#ifdef IN_PLACE
	:: live && !moving && block[0] == 3 && block[1] && OWNER(block[1]) == K ->
		b = block[1];
		fill(0, K, b);
		wipe(1);
		live = false;
		start_wait(BLOCK3)
#endif
	od
}

/* ---- a reader ---- */

/* One entry, its words in any order; b = 0 when it is not the key's. */
inline read_entry(i)
{
	rest = 7;
	do
	:: rest & 1 -> b = block[i]; rest = rest & ~1
	:: rest & 2 -> x0 = w0[i]; rest = rest & ~2
	:: rest & 4 -> x1 = w1[i]; rest = rest & ~4
	:: !rest -> break
	od;
	rest = 0;
	d_step {
		if
		:: i == 0 -> more = (x1 & FLAG) != 0
		:: else
		fi;
		if
		:: x0 == KEY0(want) && (x1 & ~FLAG) == KEY1(want)
		:: else -> b = 0
		fi;
		x0 = 0;
		x1 = 0
	}
}

inline one_key()                /* probe_bucket(), one_in_space() */
{
	read_entry(0);
	if
	:: !b -> read_entry(1)
	:: else
	fi;
	if
	:: !b && more -> read_entry(2)
	:: else
	fi
}

/* match_bucket(): the key bits of all its entries, then one block word */
inline match_first()
{
	x0 = w0[0];
	x1 = w1[0];
	d_step {
		more = (x1 & FLAG) != 0;
		m0 = x0 == KEY0(want) && (x1 & ~FLAG) == KEY1(want)
	}
	x0 = w0[1];
	x1 = w1[1];
	d_step {
		m1 = x0 == KEY0(want) && (x1 & ~FLAG) == KEY1(want);
		x0 = 0;
		x1 = 0
	}
	if
	:: m0 -> b = block[0]; unsure = !b
	:: !m0 && m1 -> b = block[1]; unsure = !b
	:: else
	fi;
	m0 = false;
	m1 = false
}

inline match_second()
{
	x0 = w0[2];
	x1 = w1[2];
	if
	:: x0 == KEY0(want) && (x1 & ~FLAG) == KEY1(want) -> b = block[2]; unsure = !b
	:: else
	fi;
	x0 = 0;
	x1 = 0
}

inline group()
{
	match_first();
	if
	:: !b && !unsure && more -> match_second()
	:: else
	fi;
	if
	:: unsure -> unsure = false; one_key()
	:: else
	fi
}

proctype reader()
{
	byte want, b, x0, x1, rest;
	bool more, m0, m1, unsure;

end:	do
	:: atomic { section = true; if :: want = K :: want = M fi }
		if
		:: one_key()
		:: group()
		fi;
		atomic {
			assert(want != K || b);
			assert(!b || (OWNER(b) == want && !is_free[b]));
			got = b;
			b = 0;
			more = false
		}
		atomic { section = false; waiting = 0; got = 0; want = 0 }
	od
}

init
{
	atomic {
		w0[0] = KEY0(K);
		w1[0] = KEY1(K);
		block[0] = 1;
		is_free[3] = true;
		run writer();
		run reader()
	}
}
