/* SPDX-License-Identifier: Apache-2.0 */
/* gaps.pml - what follows from a drop in a tier below RAM, at the cost of what goes.
 *
 *   here                 in the library
 *   entry, listed        struct kin: kin_enter, kin_removed (tiers/steward/kin.c)
 *   down                 publish_all (tiers/steward/down.c)
 *   feed                 take_event, compare (tiers/steward/feed.c)
 *   follow, look_up      drops_carry_out, follow_all, way_up (tiers/steward/drops.c)
 *   bring, since         bring, publish (tiers/steward/up.c).  The number is taken before the block below is looked for; the writer
 *                        compares the life of that block as well, which is left out here
 *   carried              gpc_tiers.since
 *   dropped, number      index/segment/dropped.h; what the feed has of drops are removals alone
 *   compare              dropped_allows (index/table/dropped.c)
 *
 * Left out: an entry whose block goes by itself while a drop looks at it, and a drop that comes meanwhile.  For the first one all
 * begins anew behind the feed, and for the second one its keys are compared before an entry is listed no more.
 *
 * A prompt of three blocks.  RAM has them with bad bytes; an engine computes what RAM
 * has not, from the bytes of the block before it.  A steward writes blocks of RAM to its tier, brings them up again, and reads the
 * feed of changes at its own pace.  Blocks are evicted from RAM, the last one first, and from the tier in any order.
 *
 * The steward knows the entries of its tier by their parents' keys.  An entry whose parent was removed somewhere is listed: its way to the
 * root may have a gap.  A drop takes the entries of the dropped keys, of their children, and so on; of those that are listed it
 * takes each one whose way to the root has a gap or a dropped key, and lists the others no more.  A block that comes up
 * bears the number of the drops that had left the tier when it was read, and the writer compares that as for an engine (since.pml).
 *
 * Proves: once the drop was answered, neither RAM nor the tier has bad bytes.
 *
 * SEARCH collapsed
 * SHORT whole -DPUBLISHES=2 -DEVICTIONS=1
 * RUN passes
 * RUN passes -DFEED=2          the steward finds the feed overwritten, and asks for the keys of the drops
 * RUN fails -DNOT_LISTED       a removal lists nothing
 * RUN fails -DLIST_LOOKS       a removal lists nothing where the key is there again when the steward reads of it
 * RUN fails -DENTRY_LATE       a batch is published before the steward knows its entries
 * RUN fails -DUP_BLIND         what comes up is not compared with the drops
 * RUN fails -DUP_LATE          the number is asked for when the bytes are there
 * RUN fails -DFEED=2 -DLOST_UNLISTED   behind changes that were overwritten nothing is listed */
#ifndef PUBLISHES
#define PUBLISHES 3
#endif
#ifndef EVICTIONS
#define EVICTIONS 3
#endif
#ifndef FEED
#define FEED      20
#endif
#define EVENTS    20
#ifndef KEYS
#define KEYS      3
#endif

#define LAST      (KEYS - 1)

#define NOTHING 0
#define BAD     1
#define GOOD    2

byte ram[KEYS], born[KEYS];
byte tier[KEYS];                /* in the index, and in the file */
bool entry[KEYS], listed[KEYS]; /* as the steward knows them */
byte number;                    /* of drops */
bool dropped[KEYS];             /* the keys of number 1 */

mtype = { REMOVED, DROPPED };
mtype what[EVENTS];
byte whose[EVENTS];
byte head, cursor, due_at;

bool writing;                   /* a batch is on its way down */
bool due;                       /* the steward has read of a drop that it has not carried out */
byte bad[KEYS];                 /* ... and of which keys */
byte carried;                   /* the number of those that have left the tier */
bool acked;
byte publishes, evictions;

#define MAY_GO_DOWN(k)  (ram[k] && !tier[k] && !entry[k])
#define MAY_LEAVE(k)    (tier[k] && entry[k])
#define MAY_COME_UP(k)  (tier[k] && entry[k] && !ram[k] && (k == 0 || ram[(k + KEYS - 1) % KEYS]))
#define THERE(k)        (ram[k] || tier[k])
#define ALL_IS_WELL     (ram[0] != BAD && ram[1] != BAD && ram[2] != BAD && ram[LAST] != BAD && \
			 tier[0] != BAD && tier[1] != BAD && tier[2] != BAD && tier[LAST] != BAD)

inline tell(w, k)
{
	what[head] = w; whose[head] = k; head++
}

/* ---- the writer, and engines ---- */

/* Of the first block, with all of the prompt that RAM has. */
inline drop()
{
	number = 1;
	for (k : 0 .. KEYS - 1) {
		if
		:: ram[k] -> dropped[k] = true
		:: else
		fi
	}
	for (k : 0 .. KEYS - 1) {
		if
		:: dropped[k] && tier[k] -> tier[k] = NOTHING
		:: else
		fi;
		if
		:: ram[k] -> ram[k] = NOTHING; tell(DROPPED, k)
		:: else
		fi
	}
	due_at = head;
	k = 0
}

/* up, of a publish by somebody who knows of `since` drops. */
inline compare(k, since)
{
	refused = since < number && dropped[k];
	up = k;
	do
	:: since < number && up > 0 && !refused ->
		up--;
		if
		:: dropped[up] -> refused = true
		:: !dropped[up] && born[up] <= since -> break
		:: else
		fi
	:: else -> break
	od;
	up = 0
}

proctype writer()
{
	byte k;

end:	do
	:: atomic { !number && ram[0] == BAD -> drop() }
	:: atomic {             /* an engine computes the next block */
		publishes < PUBLISHES && (!ram[0] || !ram[1] || !ram[2] || !ram[LAST]) ->
		publishes++;
		k = (!ram[0] -> 0 : (!ram[1] -> 1 : (!ram[2] -> 2 : LAST)));
		ram[k] = (k == 0 -> GOOD : ram[k - 1]);
		born[k] = number;
		k = 0
	   }
	:: atomic {             /* RAM evicts its last one */
		evictions < EVICTIONS && ram[0] && head < EVENTS - 4 ->
		evictions++;
		k = (ram[LAST] -> LAST : (ram[2] -> 2 : (ram[1] -> 1 : 0)));
		ram[k] = NOTHING;
		tell(REMOVED, k);
		k = 0
	   }
	:: atomic {             /* the tier any */
		evictions < EVICTIONS && head < EVENTS - 4 && (MAY_LEAVE(0) || MAY_LEAVE(1) || MAY_LEAVE(KEYS - 2)) ->
		if
		:: MAY_LEAVE(0) -> k = 0
		:: MAY_LEAVE(1) -> k = 1
		:: KEYS > 3 && MAY_LEAVE(KEYS - 2) -> k = KEYS - 2
		fi;
		evictions++;
		tier[k] = NOTHING;
		tell(REMOVED, k);
		k = 0
	   }
	od
}

/* ---- the steward ---- */

proctype down()
{
	byte k, bytes;

end:	do
	:: atomic {
		MAY_GO_DOWN(0) || MAY_GO_DOWN(1) || MAY_GO_DOWN(2) || MAY_GO_DOWN(LAST) ->
		if
		:: MAY_GO_DOWN(0) -> k = 0
		:: MAY_GO_DOWN(1) -> k = 1
		:: MAY_GO_DOWN(2) -> k = 2
		:: KEYS > 3 && MAY_GO_DOWN(LAST) -> k = LAST
		fi;
		writing = true;
		bytes = ram[k]
	   }
#ifndef ENTRY_LATE
	   entry[k] = true;     /* before it is published: what the feed tells of its parent from now on lists it */
#endif
	   /* published: the writer finds its source LIVE, and so its parent, or refuses it */
	   atomic {
		if
		:: ram[k] == bytes -> tier[k] = bytes; assert(!acked || bytes != BAD)
		:: else -> bytes = NOTHING
		fi
	   }
	   atomic {
		entry[k] = bytes != NOTHING;
		listed[k] = listed[k] && entry[k]
	   }
	   atomic { writing = false; k = 0; bytes = 0 }
	od
}

/* The way from here to the root, as it is now: has it a gap, or a dropped key? */
inline look_up(k)
{
	goes = bad[k];
	up = k;
	do
	:: up > 0 && !goes ->
		up--;
		goes = bad[up] || !THERE(up)
	:: else -> break
	od;
	up = 0
}

inline follow()
{
	for (k : 0 .. KEYS - 1) {
		takes[k] = bad[k];
		if
		:: k > 0 && takes[k - 1] -> takes[k] = true
		:: else
		fi;
		if
		:: entry[k] && listed[k] ->
			look_up(k);
			takes[k] = takes[k] || goes;
			listed[k] = false
		:: else
		fi;
		/* nobody knows the children of a key without an entry */
		takes[k] = takes[k] && (entry[k] || bad[k])
	}
	for (k : 0 .. KEYS - 1) {
		if
		:: takes[k] && entry[k] && tier[k] -> tier[k] = NOTHING; entry[k] = false; listed[k] = false
		:: else
		fi;
		takes[k] = false
	}
	for (k : 0 .. KEYS - 1) { bad[k] = 0 }
	goes = false; k = 0
}

inline lists(k)
{
	if
#ifdef NOT_LISTED
	:: false
#endif
#ifdef LIST_LOOKS
	:: k + 1 < KEYS && entry[k + 1] && !THERE(k) -> listed[k + 1] = true
#else
	:: k + 1 < KEYS && entry[k + 1] -> listed[k + 1] = true
#endif
	:: else
	fi
}

proctype feed()
{
	byte k, up;
	bool goes, takes[KEYS];

end:	do
	:: atomic {
		cursor < head && head - cursor <= FEED ->
		k = whose[cursor];
		if
		:: what[cursor] == DROPPED -> bad[k] = 1; due = true
		:: else
		fi;
		/* its entry goes with it, unless it is of a later life */
		if
		:: entry[k] && !tier[k] && !writing -> entry[k] = false; listed[k] = false
		:: else
		fi;
#ifndef NOT_LISTED
		lists(k);
#endif
		cursor++;
		k = 0
	   }
	:: atomic {             /* it was overwritten */
		head - cursor > FEED ->
		cursor = head;
		for (k : 0 .. KEYS - 1) {
			if
			:: number && !carried -> bad[k] = dropped[k]; due = true
			:: else
			fi;
			if
			:: entry[k] && !tier[k] && !writing -> entry[k] = false; listed[k] = false
			:: else
			fi;
#ifndef LOST_UNLISTED
			listed[k] = k > 0 && entry[k]
#endif
		}
		k = 0
	   }
	:: atomic {
		due && number && cursor >= due_at ->
		follow();
		due = false; carried = 1
	   }
	:: atomic { carried && !acked -> acked = true; assert(ALL_IS_WELL) }
	od
}

proctype bring()
{
	byte k, up, bytes, since;
	bool refused;

end:	do
	:: atomic {
		MAY_COME_UP(0) || MAY_COME_UP(1) || MAY_COME_UP(2) || MAY_COME_UP(LAST) ->
		if
		:: MAY_COME_UP(0) -> k = 0
		:: MAY_COME_UP(1) -> k = 1
		:: MAY_COME_UP(2) -> k = 2
		:: KEYS > 3 && MAY_COME_UP(LAST) -> k = LAST
		fi;
		since = carried;
		bytes = tier[k]
	   }
	   atomic {             /* the writer */
#ifdef UP_LATE
		since = carried;
#endif
#ifndef UP_BLIND
		compare(k, since);
#endif
		if
		:: !refused && !ram[k] && (k == 0 || ram[k - 1]) ->
			ram[k] = bytes; born[k] = number;
			assert(!acked || bytes != BAD)
		:: else
		fi;
		refused = false; k = 0; bytes = 0; since = 0
	   }
	od
}

init
{
	atomic {
		ram[0] = BAD; ram[1] = BAD; ram[2] = BAD; ram[LAST] = BAD;
		run writer(); run down(); run feed(); run bring()
	}
}
