/* SPDX-License-Identifier: Apache-2.0 */
/* drop.pml - removals that no restart undoes (rule B19): tiers/steward/feed.c, tiers/steward/drops.c, tiers/steward/restore.c, tiers/steward/down.c,
 * tiers/steward/board.c, index/request/durable.c, index/writer/drop.c.
 *
 * One key, which RAM has with bytes 1.  A steward of tiers writes them to its file, publishes them, and at its start
 * publishes what the file has.  A caller drops the key, or with CLEAR clears its tag in all pools, and waits until the steward
 * says that this is durable; then a worker computes the key anew, with bytes 2.  The steward may be killed at any
 * moment, as often as DEATHS, and the next one keeps the same file.  The file has a header in the page cache, and one on the disk,
 * which the system writes when it likes, or when it is told to.  The writer may die behind any of its stores.
 *
 * Proves: once the call has said that it is done, bytes 1 are neither in the index below RAM, nor in the file, nor on the disk.
 *
 * SHORT whole
 * SHORT whole -DCLEAR
 * RUN passes
 * RUN passes -DCLEAR
 * RUN passes -DDEATHS=2
 * RUN passes -DDEATHS=2 -DCLEAR
 * RUN fails -DNO_LOCK          an acknowledgement does not wait for the batch under way
 * RUN fails -DFREE_LATE        what was refused is made free when the batch is over
 * RUN fails -DSYNC_FIRST       the sync comes before the feed is read
 * RUN fails -DNO_SYNC          ... or not at all
 * RUN fails -DSAY_HEAD         the number is the head of the feed, not how far it was read
 * RUN fails -DNO_MISSED        a steward that begins does not read what was dropped before
 * RUN fails -DMISSED_LATE      it reads it before it knows from where it will follow the feed
 * RUN fails -DSOURCE_BLIND     the writer publishes a copy whose source has gone
 * RUN fails -DCLEAR -DCOUNT_BLIND      the writer publishes what was found though something was cleared since
 * RUN fails -DPUBLISHED_STAYS  what was published before the writer had counted the drop is not dropped by the steward
 * RUN fails -DLIVE_BLIND       a batch that was published does not look whether it is still
 * RUN fails -DCLEAR -DNO_LIFE  the number of any steward is an answer
 * RUN fails -DCLEAR -DLIFE_EARLY       a life begins with the lock, before its steward follows the feed
 * RUN fails -DCLEAR -DDEATHS=2 -DSINCE_ANY     what stood there before is believed of each life
 * RUN fails -DCLEAR -DDEATHS=2 -DREAD_ONCE     ... or of the one that was there before it was read */
#ifndef DEATHS
#define DEATHS  1
#endif

#define NOTHING 0
#define BAD     1
#define GOOD    2

/* the writer's */
byte ram = BAD;                 /* bytes of the key in RAM */
byte lower;                      /* ... and of the block below that is LIVE */
byte head, clears;              /* of the feed; of the pool */
bool counted;                   /* the drop, or it never will be */

/* the file */
byte header, disk;              /* as every process sees it; as a loss of power leaves it */

/* the board */
byte durable, asked, since;
byte life;                      /* odd: a steward begins; even: it follows the feed */
bool lock;

/* what a steward knows; gone with it */
bool writing, shown, ready;
byte slot, found, cursor, known;
bool due;
byte deaths;                    /* of stewards so far */
#define FREE    0
#define BUSY    1
#define LIVE    2

/* publishes of its two threads */
mtype = { IDLE, POSTED, YES, NO, STALE };
mtype pub[2] = IDLE;
byte bytes[2], number[2];
#define DOWN    0
#define FEED    1

/* the caller's */
bool submitted, removed, acked;

/* ---- the writer ---- */

inline publish(i)
{
	atomic {
		pub[i] == POSTED ->
		if
#ifndef SOURCE_BLIND
		:: i == DOWN && ram != bytes[i] -> pub[i] = NO
#endif
#ifndef COUNT_BLIND
		:: i == FEED && number[i] != clears -> pub[i] = STALE
#endif
		:: lower != NOTHING -> pub[i] = NO
		:: else -> lower = bytes[i]; pub[i] = YES
		fi
	}
}

proctype writer()
{
	bool began;

end:	do
	:: publish(DOWN)
	:: publish(FEED)
	:: atomic { submitted && !removed && !began -> began = true; if :: lower == BAD -> lower = NOTHING :: else fi }
	:: atomic {
		began && !removed ->
		if
		:: lower == BAD -> lower = NOTHING        /* by a successor that runs it again */
		:: else
		fi;
		ram = NOTHING;
		head++;
#ifdef CLEAR
		clears++;               /* a successor ends a clear before anything else */
#endif
		removed = true;
		began = false
	   }
#ifndef CLEAR
	:: atomic { removed && !counted -> counted = true; clears++ }
	:: atomic { removed && !counted -> counted = true }     /* it died, and the next one finds the block gone */
#endif
	:: atomic { removed && ram == NOTHING && acked -> ram = GOOD }
	od
}

/* ---- the system ---- */

proctype system()
{
end:	do
	:: atomic { disk != header -> disk = header }
	od
}

/* ---- the steward ---- */

inline make_free()
{
	header = NOTHING
}

/* It looks whether the index still says so: what the feed told meanwhile was passed over. */
inline is_published()
{
	atomic {
		slot = LIVE;
#ifndef LIVE_BLIND
		if
		:: lower == NOTHING -> make_free(); slot = FREE
		:: else
		fi
#endif
	}
}

byte batch;

proctype down()
{
	byte me;

end:	do
	:: atomic { lock && shown -> me = deaths };
	   {
endidle:	do
		:: atomic {
			!writing && slot == FREE && ram != NOTHING && lower == NOTHING && found == NOTHING ->
			writing = true;
			slot = BUSY;
			batch = ram
		   }
		   header = NOTHING;
		   header = batch;
		   atomic { bytes[DOWN] = batch; pub[DOWN] = POSTED };
		   if
		   :: atomic { pub[DOWN] == YES -> pub[DOWN] = IDLE };
		      is_published()
		   :: atomic { pub[DOWN] == NO || pub[DOWN] == STALE -> pub[DOWN] = IDLE };
#ifdef FREE_LATE
		      writing = false;
#endif
		      atomic { make_free(); slot = FREE }
		   fi;
		   writing = false
		od
	   } unless { deaths != me }
	od
}

/* Of what was removed nothing is left in the file, as far as this steward knows it. */
inline take_event()
{
	cursor = head;
	if
	:: found == BAD -> found = NOTHING; make_free(); slot = FREE
	:: else
	fi;
	if
	:: slot == LIVE && lower == NOTHING -> make_free(); slot = FREE
#if !defined(PUBLISHED_STAYS) && !defined(CLEAR)
	:: slot == LIVE && lower == BAD -> lower = NOTHING; make_free(); slot = FREE
#endif
	:: else
	fi
}

inline follow()
{
	seen = clears;
	atomic { if :: cursor < head -> take_event() :: else fi };
	atomic { known = seen; seen = 0 }
}

inline acknowledge()
{
#ifdef SYNC_FIRST
	disk = header;
#endif
	follow();
#ifdef SAY_HEAD
	upto = head;
#else
	upto = cursor;
#endif
#ifndef NO_LOCK
	!writing;
#endif
#ifndef SYNC_FIRST
#ifndef NO_SYNC
	disk = header;
#endif
#endif
	atomic { durable = upto; upto = 0 }
}

inline restore()
{
	atomic { bytes[FEED] = found; number[FEED] = known; pub[FEED] = POSTED };
	if
	:: atomic { pub[FEED] == YES -> pub[FEED] = IDLE; found = NOTHING };
	   is_published()
	:: atomic { pub[FEED] == NO -> pub[FEED] = IDLE; found = NOTHING; make_free(); slot = FREE }
	:: atomic { pub[FEED] == STALE -> pub[FEED] = IDLE }
	fi
}

/* Drops since the last steward has acknowledged; a clear of a tag is not remembered. */
inline missed(to)
{
#ifndef CLEAR
#ifndef NO_MISSED
	if
	:: durable < to ->
		due = true;
		if
		:: found == BAD -> found = NOTHING; make_free(); slot = FREE
		:: else
		fi
	:: else
	fi;
#endif
#endif
	skip
}

/* The pool is new, and so is its number of clears. */
inline begin()
{
	atomic { lower = NOTHING; clears = 0 };
#ifdef MISSED_LATE
	atomic { found = header; slot = (found -> BUSY : FREE) };
	atomic { missed(head) };
	cursor = head;
#else
	cursor = head;
#endif
	known = clears;
	if
	:: known ->
		atomic { header = NOTHING; disk = NOTHING; found = NOTHING; slot = FREE }
	:: else ->
#ifndef MISSED_LATE
		atomic { found = header; slot = (found -> BUSY : FREE) };
		atomic { missed(cursor) };
#endif
		skip
	fi;
#ifndef LIFE_EARLY
	since = durable;
	life++;
#endif
	if
	:: !due -> durable = cursor
	:: else -> due = false
	fi;
	shown = true
}

proctype feed()
{
	byte seen, upto;
	bool spare;

end:	do
	:: atomic { !lock -> lock = true; seen = 0; upto = 0; spare = true };
	   {
		atomic { if :: life % 2 == 0 -> life++ :: else fi };
#ifdef LIFE_EARLY
		since = durable;
		life++;
#endif
		begin();
endidle:	do
		:: atomic { cursor < head || known != clears }; follow()
		:: atomic { found != NOTHING && pub[FEED] == IDLE }; restore(); follow()
		:: atomic { asked > durable }; acknowledge()
		:: atomic { spare -> spare = false }; acknowledge()     /* for somebody else */
		od
	   } unless { !lock }
	od
}

proctype killer()
{
end:	do
	:: atomic {
		deaths < DEATHS && lock ->
		deaths++;
		lock = false;
		shown = false;
		writing = false;
		slot = FREE;
		found = NOTHING;
		cursor = 0;
		known = 0;
		due = false;
		batch = 0;
		lower = NOTHING;         /* its pool goes with it */
		pub[DOWN] = IDLE;
		pub[FEED] = IDLE;
		bytes[DOWN] = 0;
		bytes[FEED] = 0;
		number[FEED] = 0
	   }
	od
}

/* ---- the caller ---- */

/* The next life is that of `was`, which had begun. */
#define FOLLOWED (was % 2 == 0 && life == was + 2)

proctype caller()
{
	byte was, want;
	byte now;
	bool said, before;

	was = life;
	submitted = true;
	removed;
	want = head;
	asked = want;
end:	do
	:: said = durable >= want;
	   now = life;
	   before = since >= want;
	   atomic {
#ifdef CLEAR
		if
#ifdef NO_LIFE
		:: said -> acked = true; break
#else
		:: life == was && said -> acked = true; break
#ifdef SINCE_ANY
		:: life > was && before -> acked = true; break
#else
#ifdef READ_ONCE
		:: now > was && was % 2 == 0 && now == was + 2 && before -> acked = true; break
#endif
		:: life > was && FOLLOWED && before && life == now -> acked = true; break
		:: life > was + 2 || (life == was + 1 && was % 2) || (life == was + 2 && life == now && !before) ->
			break           /* -ENOTCONN */
#endif
#endif
		:: else
		fi
#else
		if
		:: said -> acked = true; break
		:: else
		fi
#endif
	   }
	   if
	   :: !lock -> break            /* -ENOTCONN */
	   :: durable >= want || life != now
	   fi
	od
}

proctype monitor()
{
end:	atomic {
		acked && (lower == BAD || header == BAD || disk == BAD) ->
		assert(false)
	}
}

init
{
	atomic {
		run writer();
		run system();
		run feed();
		run down();
		run killer();
		run caller();
		run monitor()
	}
}
