/* SPDX-License-Identifier: Apache-2.0 */
/* alone.pml - what hangs on a key that is dropped alone, and a drop of what comes before the hole.
 *
 *   here                 in the library
 *   alone, LEFT          record_leave_alone, dropped_left (index/writer/retire.c)
 *   number               state.drops: dropped_begin, dropped_end (index/table/dropped.h)
 *   entry, listed        struct kin (tiers/steward/kin.c)
 *   steward              follow (tiers/steward/feed.c), drops_carry_out, take_key (tiers/steward/drops.c)
 *
 * A prompt of three blocks in RAM whose pool takes gaps: A, X, and C.  X is dropped alone, so that C stays without its parent; then A is
 * dropped with what follows it.  C was computed from A, so it has to go as well, by the steward, since nothing hangs C on A any
 * more.  Meanwhile an engine computes X, or both, anew.  The writer may die behind each of its stores, as often as DEATHS; the
 * next one runs the command again, and knows of C what its record says.  The steward may die, too: the next one meets blocks that
 * are there without their parents, and goes on with the number that was carried out.
 *
 * Proves: when the steward has carried out the drop of A, C is not there; and no death takes C before that.
 *
 * SHORT whole
 * RUN passes
 * RUN passes -DDEATHS=3
 * RUN fails -DMARK_FIRST       the record says that C stands alone before the ring does
 * RUN fails -DUNMARKED         ... or never, and the next writer takes C for lost
 * RUN fails -DUNTOLD           the steward is not told of C
 * RUN fails -DHEARD_LATE       the number that counts as carried out is read behind the keys
 * RUN fails -DMEETS_NONE       a steward that begins does not look for such blocks */
#ifndef DEATHS
#define DEATHS 2
#endif
#define ENTRIES 12

#define LEFT 1
#define ALL  2

bool a = true, x = true, c = true;      /* LIVE */
bool alone;                             /* C's record */
bool gap;                               /* X has gone, and was told */
byte number;
byte what[ENTRIES], by[ENTRIES], head;
byte since = 1;
byte deaths;

inline tell(kind)
{
	d_step {
		what[head] = kind;
		by[head] = number;
		head++;
	}
}

/* Takeover: a LIVE block whose parent is not there, and whose record does not say that it may be so, is lost. */
inline takeover()
{
	d_step {
		deaths++;
		if
		:: !x && !alone && c && gap -> assert(false)
		:: else
		fi
	}
}

active proctype writer()
{
alone_again:
	if
	:: x && !gap ->
		d_step { number = number | 1 }
		if :: deaths < DEATHS -> takeover(); goto alone_again :: true fi;
#ifdef MARK_FIRST
		if
		:: !alone ->
			alone = true;
			if :: deaths < DEATHS -> takeover(); goto alone_again :: true fi;
			tell(LEFT)
		:: else
		fi;
#else
		if
		:: !alone ->
#ifndef UNTOLD
			tell(LEFT);
#endif
			if :: deaths < DEATHS -> takeover(); goto alone_again :: true fi;
#ifndef UNMARKED
			alone = true
#else
			skip
#endif
		:: else
		fi;
#endif
		if :: deaths < DEATHS -> takeover(); goto alone_again :: true fi;
		d_step { x = false; gap = true }
		if :: deaths < DEATHS -> takeover(); goto alone_again :: true fi
	:: else
	fi;
	d_step { number = (number | 1) + 1 }
all_again:
	if
	:: a ->
		d_step { number = number | 1 }
		if :: deaths < DEATHS -> takeover(); goto all_again :: true fi;
		tell(ALL);
		if :: deaths < DEATHS -> takeover(); goto all_again :: true fi;
		x = false;      /* if it is there, it hangs on A */
		if :: deaths < DEATHS -> takeover(); goto all_again :: true fi;
		a = false;
		if :: deaths < DEATHS -> takeover(); goto all_again :: true fi
	:: else
	fi;
	d_step { number = (number | 1) + 1 }
}

/* Behind a drop, once each. */
active proctype engine()
{
	if
	:: atomic { gap && a && !x -> x = true }
	:: atomic { number == 4 -> a = true }; x = true
	:: true
	fi
}

active proctype steward()
{
	byte heard, i, upto, dying;
	bool entry, listed, bad;

	do
	:: since < 5 ->
#ifndef HEARD_LATE
		heard = number | 1;
#endif
		upto = head;
		i = 0;
		bad = false;
		do
		:: i < upto && by[i] >= since && what[i] == LEFT ->
			d_step {
				if
				:: alone && c -> entry = true; listed = true
				:: else
				fi;
				i++
			}
		:: i < upto && by[i] >= since && what[i] == ALL -> bad = true; i++
		:: i < upto && by[i] < since -> i++
		:: i == upto -> break
		od;
#ifdef HEARD_LATE
		heard = number | 1;
#endif
		if
		/* X is not there, or it hangs on A, whose key was dropped */
		:: bad && listed -> listed = false; c = false
		:: else
		fi;
		since = heard;
		assert(since < 5 || !c)
	:: since < 5 && dying < 1 ->    /* and the next one */
		dying++;
		d_step {
			entry = false;
			listed = false
		}
#ifndef MEETS_NONE
		d_step {
			if
			:: alone && c -> entry = true; listed = true
			:: else
			fi
		}
#endif
	:: since >= 5 -> break
	od
}
