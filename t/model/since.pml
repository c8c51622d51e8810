/* SPDX-License-Identifier: Apache-2.0 */
/* since.pml - bytes computed before a drop, and published behind it.
 *
 * lib/index/writer/drop.c is keep_all() (tell()), retire_below() and what follows (carry_out()), and, for the
 * block of X that has moved, follow(); lib/index/table/dropped.c is keep() (dropped_tell()), IS_DROPPED
 * (is_dropped(), and the floor) and the walk of a publish (dropped_allows()); HAS_BLOCK is dropped_by(),
 * which looks for the command, not for the block.  `born` is when a block was published, in time, not
 * in drops: it is compared with the time of the first drop since (first_ns()), and both are 0 for what a
 * successor finds.  gpc_drops() is the first number that is not over, so `since` + 1.
 *
 * A prompt of three blocks, X, Y, Z; X is LIVE with bad bytes.  Requests look up how much of the prompt is there, compute the
 * rest from what they have found, and publish it block by block; so what follows bad bytes is bad.  Somebody holds the block of X
 * and drops it.  Meanwhile the key of X may move to another block, and the last block of the prompt may be evicted.  The writer
 * may die between any two stores of the drop, as often as DEATHS, and its successor runs the command again; publishes of others
 * may come before that.
 *
 * A request says in each publish how many drops there were when it began.  The writer keeps the keys of the last drops, each
 * with its number, and what it does not keep any more has a floor.  A node has the number at which it was published.  A publish
 * goes up from the block's parent through nodes that are younger than the request, and is refused when the key of one of them,
 * or its own, was dropped since.
 *
 * -DSPACES: the same keys are live in another space as well, and older than all requests.  X was damaged in the first space
 * alone, so the drop leaves the others.  A request looks in the first space and then in the other one, and publishes there: -DGAP,
 * below blocks that hang on X by its key, as in RAM that several GPUs share.
 *
 * Proves: once a drop was answered, no block of the prompt has bad bytes, whoever publishes; the answer counts the block, however
 * far a dead writer came.
 *
 * SHORT whole -DREQUESTS=1
 * RUN passes
 * RUN passes -DDEATHS=2
 * RUN passes -DRING=1
 * RUN passes -DREQUESTS=3 -DDEATHS=0
 * RUN passes -DSPACES -DREQUESTS=1
 * RUN passes -DSPACES -DGAP -DREQUESTS=1
 * RUN fails -DNOT_COMPARED     publishes are not compared with the drops
 * RUN fails -DSINCE_LATE       a request asks for the number behind its lookup
 * RUN fails -DUNDER_WAY_IS_DONE        a drop that is under way counts as one that is over
 * RUN fails -DPARENT_ONLY      the parent's key is compared, and no ancestor's
 * RUN fails -DRING_LATE        the block is DYING before its key is among those of the drops
 * RUN fails -DNOT_FOLLOWED     a block whose key has moved is no block to drop
 * RUN fails -DFLOOR_BLIND -DRING=1     keys that are kept no more are forgotten without a trace
 * RUN fails -DBORN_EARLY       a successor takes what it finds for older than all requests
 * RUN fails -DOLDER_ENDS -DSPACES -DREQUESTS=1         a way up ends at an older block, and the drop was of another space
 * RUN fails -DOLDER_ENDS -DSPACES -DGAP -DREQUESTS=1   ... or is of one that hangs on nothing there
 * RUN fails -DCOUNT_BLIND      a successor counts what it finds LIVE alone */
#ifndef DEATHS
#define DEATHS   1
#endif
#ifndef REQUESTS
#define REQUESTS 2
#endif
#ifndef RING
#define RING     3
#endif

#define NOTHING 0
#define BAD     1
#define GOOD    2
#define KEYS    3               /* X is 0, its child 1, and the child of that 2 */

/* the table, and the tree */
byte live[KEYS] = NOTHING;
byte born[KEYS];
byte home;                      /* the block of X: 0 is the one that is held, 1 its target, 2 a later one */
bool moved;                     /* block 0 says that its key has moved */

#ifdef SPACES
/* the other space; the last block of the prompt comes there */
byte there[KEYS] = NOTHING;
byte there_born[KEYS];
#endif

/* drops */
byte drops;                     /* odd: one is under way */
byte ring_key[RING], ring_number[RING];
byte ring_block[RING];          /* of X: which block; a successor looks for it */
byte kept;
byte below;                     /* numbers up to this one may be missing */

bool asked, answered;
bool other;                     /* one was dropped that is not of this prompt */
byte step, deaths;
byte answer;

#define IN_RING(k, n)   ((kept > 0 && ring_key[0] == k && ring_number[0] >= n) || \
			 (RING > 1 && kept > 1 && ring_key[1 % RING] == k && ring_number[1 % RING] >= n) || \
			 (RING > 2 && kept > 2 && ring_key[2 % RING] == k && ring_number[2 % RING] >= n))
#ifdef FLOOR_BLIND
#define IS_DROPPED(k, n) IN_RING(k, n)
#else
#define IS_DROPPED(k, n) (below >= n || IN_RING(k, n))
#endif
/* the block of the command was dropped by a predecessor */
#define HAS_BLOCK       ((kept > 0 && ring_block[0] == 1) || (RING > 1 && kept > 1 && ring_block[1 % RING] == 1) || \
			 (RING > 2 && kept > 2 && ring_block[2 % RING] == 1))

inline keep(k, b)
{
	if
	:: kept == RING ->              /* the oldest one goes */
		below = ring_number[0];
		i = 0;
		do
		:: i + 1 < RING ->
			ring_key[i] = ring_key[i + 1]; ring_number[i] = ring_number[i + 1];
			ring_block[i] = ring_block[i + 1]; i++
		:: else -> break
		od;
		kept--
	:: else
	fi;
	ring_key[kept] = k; ring_number[kept] = drops | 1; ring_block[kept] = b;
	kept++;
	i = 0
}

/* ---- the writer ---- */

inline keep_all()
{
	/* the block that was named comes last: it is the one that a successor looks for */
	if
	:: live[2] -> keep(2, 0)
	:: else
	fi;
	if
	:: live[1] -> keep(1, 0)
	:: else
	fi;
	keep(0, 1)
}

inline retire_below()
{
	live[2] = NOTHING; live[1] = NOTHING
}

#define NAMED_IS_LIVE   (live[0] && home == 0)
#ifdef NOT_FOLLOWED
#define IS_TO_GO        NAMED_IS_LIVE
#else
#define IS_TO_GO        (NAMED_IS_LIVE || (moved && live[0]))
#endif

proctype writer()
{
	byte i;

end:	do
	:: atomic { asked && !answered && step == 0 && IS_TO_GO -> drops = drops | 1; step = 1 }
	:: atomic {             /* nothing to do any more, or never */
		asked && !answered && step == 0 && !IS_TO_GO ->
		if
#ifndef COUNT_BLIND
		:: HAS_BLOCK -> answer = 1
#endif
		:: else -> answer = 0
		fi;
		drops = (drops & 1 -> drops + 1 : drops);
		answered = true
	}
#ifdef RING_LATE
	:: atomic { step == 1 -> retire_below(); live[0] = NOTHING; step = 2 }
	:: atomic { step == 2 -> keep(0, 1); step = 4 }
#else
	:: atomic { step == 1 -> keep_all(); step = 2 }
	:: atomic { step == 2 -> retire_below(); step = 3 }
	:: atomic { step == 3 -> live[0] = NOTHING; step = 4 }
#endif
	:: atomic { step == 4 -> drops++; step = 5 }
	:: atomic { step == 5 -> answer = 1; answered = true; step = 0 }
	:: atomic {             /* it dies; the next one begins with what is stored */
		deaths < DEATHS ->
		deaths++;
		step = 0;
#ifdef BORN_EARLY
		born[0] = 0; born[1] = 0; born[2] = 0
#else
		born[0] = drops | 1; born[1] = drops | 1; born[2] = drops | 1
#endif
	}
	:: atomic { step == 0 && live[0] && home == 0 && !moved -> home = 1; moved = true }
	:: atomic {             /* a drop of something else */
		step == 0 && !other && !(drops & 1) ->
		other = true;
		keep(KEYS, 0);
		drops = drops + 2
	}
	:: atomic {             /* the last one is evicted */
		step == 0 ->
		if
		:: live[2] -> live[2] = NOTHING
		:: !live[2] && live[1] -> live[1] = NOTHING
		:: else
		fi
	}
	od
}

/* ---- requests ---- */

#ifdef SPACES
/* It has read what the first space has, and the rest of what is there from the other one; it computes the last block. */
proctype elsewhere()
{
	byte since, have, up, last = GOOD;
	bool refused;

	atomic {
		since = drops & ~1;
		do
		:: have < KEYS - 1 && live[have] ->
			last = (live[have] == BAD || last == BAD -> BAD : GOOD);
			have++
		:: else -> break
		od;
		do
		:: have < KEYS - 1 && there[have] -> have++
		:: else -> break
		od
	}
	atomic {
		step == 0 ->
		if
		:: have == KEYS - 1 && since != drops ->
			refused = IS_DROPPED(KEYS - 1, since + 1);
			up = KEYS - 1;
			do
			:: up > 0 && !refused ->
				up--;
				if
				:: IS_DROPPED(up, since + 1) -> refused = true
#ifdef OLDER_ENDS
				:: !IS_DROPPED(up, since + 1) && there_born[up] <= since -> break
#endif
				:: !IS_DROPPED(up, since + 1) && !there[up] -> refused = true   /* a gap */
				:: else
				fi
			:: else -> break
			od
		:: else
		fi;
		up = 0;
		if
		:: have == KEYS - 1 && !refused && there[KEYS - 2] ->
			there[KEYS - 1] = last;
			there_born[KEYS - 1] = drops & ~1;
			assert(!answered || last != BAD)
		:: else
		fi
	}
}
#endif

proctype request()
{
	byte since, have, last, k, up;
	bool refused;

	atomic {
#ifdef UNDER_WAY_IS_DONE
		since = drops + 1 & ~1;
#else
		since = drops & ~1;
#endif
#ifdef SINCE_LATE
		since = 0
#endif
	}
	atomic {                /* how much of it is there */
		last = GOOD;
		do
		:: have < KEYS && live[have] ->
			last = (live[have] == BAD || last == BAD -> BAD : GOOD);
			have++
		:: else -> break
		od
	}
#ifdef SINCE_LATE
	since = drops & ~1;
#endif
	k = have;
	do
	:: k == KEYS -> break
	:: else -> atomic {
		step == 0 ->            /* the writer does one thing at a time */
#ifndef NOT_COMPARED
		refused = since != drops && IS_DROPPED(k, since + 1);
		if
		:: k > 0 && since != drops ->
			up = k;
			do
			:: up > 0 && !refused ->
				up--;
				if
				:: IS_DROPPED(up, since + 1) -> refused = true
#ifdef PARENT_ONLY
				:: else -> break
#else
				:: !IS_DROPPED(up, since + 1) && born[up] <= since -> break
				:: else
#endif
				fi
			:: else -> break
			od
		:: else
		fi;
#endif
		up = 0;
		if
		:: refused -> k = KEYS
		:: !refused && k > 0 && !live[k - 1] -> k = KEYS
		:: !refused && (k == 0 || live[k - 1]) && live[k] -> k++    /* somebody else's: it goes on with its own bytes */
		:: else ->
			live[k] = last;
			born[k] = drops & ~1;
			if
			:: k == 0 -> home = 2
			:: else
			fi;
			assert(!answered || last != BAD);
			k++
		fi }
	od
}

/* Somebody found that the bytes of the block are bad. */
proctype dropper()
{
	asked = true;
	atomic {
		answered ->
		/* a successor may find it among 65,536 keys; here among so few that others may have taken its place */
		assert(answer == 1 || below > 0);
		assert(live[0] != BAD && live[1] != BAD && live[2] != BAD)
	}
}

init
{
	byte n;

	atomic {
		live[0] = BAD;
#ifdef SPACES
#ifndef GAP
		there[0] = GOOD;
#endif
		there[1] = GOOD;
		run elsewhere();
#endif
		do
		:: n < REQUESTS -> run request(); n++
		:: else -> break
		od;
		run dropper();
		run writer()
	}
}
