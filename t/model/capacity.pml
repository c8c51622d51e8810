/* SPDX-License-Identifier: Apache-2.0 */
/* capacity.pml - the capacity of a RAM pool, its transit slots, and blocks that were dropped while somebody holds
 * them: index/writer/grant_place.c (room_of), index/writer/grant_again.c, index/request/pool.c (gpc_pool_available), rules C1 and C6.
 *
 * A pool has BLOCKS of capacity and TRANSIT slots more.  A slot is free, reserved, live, or dying: its key was
 * dropped or has moved, and a peer holds its bytes, or a section may.  Peers reserve and publish, take references and
 * release them, drop keys, and swap: a promotion takes a key out of the pool, and then a demotion brings one in.
 *
 * A victim is on its way for a grace period, in which other commands run, and is a reservation then.  A writer may die
 * DEATHS times: what was on its way, or reserved and not answered, is free, and each command without an answer
 * runs again.  (On its way it is free a grace period later: the command waits for it.)
 *
 * The capacity counts keys: live and reserved blocks, and victims on their way to be reserved.  A dying block has no
 * key, so it is not charged; it lies in a slot, and slots that it takes away come out of the transit.  The
 * alternative charges it.
 *
 * Proves: what runs again after a death finds room for all that was taken for it, and evicts nothing; a reserve or a
 * demotion loses a live key only where the pool has its capacity of keys, or has no free slot; keys
 * are never more than the capacity; and a reserve gets at least what gpc_pool_available says, which is lower than that by
 * the dying blocks, as far as there are transit slots for them.  When all have let go, the whole pool is free.
 *
 * SHORT whole -DTRANSIT=0 -DKEYS=3
 * SHORT mutants
 * RUN passes
 * RUN passes -DTRANSIT=2 -DSWAPS=3
 * RUN passes -DDEATHS=2 -DKEYS=3
 * RUN passes -DTRANSIT=0
 * RUN fails -DROOM_GIVEN_AWAY          a victim on its way is not charged: more keys than the capacity
 * RUN fails -DROOM_GIVEN_AWAY -DAGAIN  ... and a command that runs again evicts another
 * RUN fails -DCHARGED                  dying blocks are charged: a demotion loses a live key beside a free slot
 * RUN fails -DCHARGED_RESERVES         ... reserves alone charge them: the same of a reserve
 * RUN fails -DAVAILABLE_LIVE           gpc_pool_available does not count dying blocks that are held */
#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifndef TRANSIT
#define TRANSIT 1
#endif
#ifndef SWAPS
#define SWAPS 2
#endif
#ifndef KEYS
#define KEYS 5                  /* published by reserves */
#endif

#ifndef DEATHS
#define DEATHS 1
#endif

#define SLOTS (BLOCKS + TRANSIT)
#define NONE SLOTS              /* of a command: no block */
#define ANEW (SLOTS + 1)        /* a writer died, and it runs again */
#define FREE 0
#define RESERVED 1
#define LIVE 2
#define DYING 3
#define COMING 4                /* a victim, for whom it was taken */

byte state[SLOTS];
bool held[SLOTS];               /* by a peer, LIVE or DYING */
bool source[SLOTS];             /* of a promotion that is under way: it leaves with the commit, and nobody may evict it */
byte live, reserved, dying, coming, outward, published, swaps, deaths;
byte got[3];                    /* by process: the slot of its command without an answer */

#define NFREE (SLOTS - live - reserved - dying - coming)
#ifdef ROOM_GIVEN_AWAY
#define ON_THEIR_WAY 0
#else
#define ON_THEIR_WAY coming
#endif

#ifdef CHARGED
#define CHARGED_SWAP (live + reserved + ON_THEIR_WAY + dying)
#define CHARGED_RESERVE (live + reserved + ON_THEIR_WAY + dying)
#elif defined(CHARGED_RESERVES)
#define CHARGED_SWAP (live + reserved + ON_THEIR_WAY)
#define CHARGED_RESERVE (live + reserved + ON_THEIR_WAY + dying)
#else
#define CHARGED_SWAP (live + reserved + ON_THEIR_WAY)
#define CHARGED_RESERVE (live + reserved + ON_THEIR_WAY)
#endif

#define EVICTABLE(s) (state[s] == LIVE && !held[s] && !source[s])

/* Any slot in that state, or SLOTS. */
inline any_free(s)
{
	s = 0;
	do
	:: s < SLOTS && state[s] != FREE -> s++
	:: else -> break
	od
}

/* Whichever is the least recent one. */
inline any_victim(s)
{
	if
	:: EVICTABLE(0) -> s = 0
	:: EVICTABLE(1) -> s = 1
#if SLOTS > 2
	:: EVICTABLE(2) -> s = 2
#endif
#if SLOTS > 3
	:: EVICTABLE(3) -> s = 3
#endif
	:: else -> s = SLOTS
	fi
}

inline count_available()
{
	n = 0;
	i = 0;
	do
	:: i < SLOTS ->
#ifdef AVAILABLE_LIVE
		if :: state[i] == RESERVED || (state[i] == LIVE && held[i]) -> n++ :: else fi;
#else
		if :: state[i] == RESERVED || held[i] -> n++ :: else fi;
#endif
		i++
	:: else -> break
	od;
	n = (n < BLOCKS -> BLOCKS - n : 0)
}

inline count_evictable()
{
	can = 0;
	i = 0;
	do
	:: i < SLOTS -> if :: EVICTABLE(i) -> can++ :: else fi; i++
	:: else -> break
	od
}

/* A free slot or a victim for the command of this process; NONE: -ENOSPC. */
inline place(id, charged)
{
	if
	:: NFREE > 0 && charged < BLOCKS ->
		any_free(s);
		state[s] = RESERVED;
		reserved++
	:: else ->
		any_victim(s);
		if
		:: s < SLOTS ->
			assert(live + reserved + coming >= BLOCKS || NFREE == 0);
			live--;
			state[s] = COMING;
			coming++
		:: else
		fi
	fi;
	got[id] = s
}

/* Until it has an answer, and its block a key. */
inline bring(id, charged)
{
	do
	:: atomic { got[id] == ANEW -> place(id, charged) }
	:: atomic { got[id] < SLOTS && state[got[id]] == COMING ->
		coming--;
		state[got[id]] = RESERVED;
		reserved++;
#ifndef AGAIN
		assert(live + reserved <= BLOCKS)
#endif
	   }
	:: atomic { got[id] < SLOTS && state[got[id]] == RESERVED ->
		state[got[id]] = LIVE;
		reserved--;
		live++;
		got[id] = NONE;
		s = 0;
		break
	   }
	:: atomic { got[id] == NONE -> s = 0; break }
	od
}

proctype reserver()
{
	byte s, i, n, can;

	do
	:: published < KEYS ->
		atomic {
			published++;
			/* what a reserve of many could have: free slots as far as there is room, and live keys that go */
			if
			:: outward == 0 && coming == 0 ->
				count_available();
				count_evictable();
				can = can + (CHARGED_RESERVE >= BLOCKS -> 0 :
					(NFREE < BLOCKS - CHARGED_RESERVE -> NFREE : BLOCKS - CHARGED_RESERVE));
				assert(can >= n)
			:: else
			fi;
			n = 0;
			can = 0;
			i = 0;
			place(0, CHARGED_RESERVE)
		};
		bring(0, CHARGED_RESERVE)
	:: else -> break
	od
}

/* A key goes up, and then one comes down. */
proctype swapper(byte id)
{
	byte s;

	do
	:: atomic { swaps < SWAPS ->
			swaps++;
			any_victim(s);
			if
			:: s == SLOTS -> goto next      /* nothing to promote */
			:: else
			fi;
			source[s] = true;
			outward++
	   };
		atomic {                /* the commit; a section may keep the block */
			source[s] = false;
			outward--;
			live--;
			if
			:: held[s] = true
			:: true
			fi;
			if
			:: held[s] -> state[s] = DYING; dying++
			:: else -> state[s] = FREE
			fi;
			s = 0
		};
		atomic { place(id, CHARGED_SWAP) };
		bring(id, CHARGED_SWAP);
next:		s = 0
	:: else -> break
	od
}

/* The writer dies, and another one comes: what was taken without an answer is free. */
proctype death()
{
	byte i, n;

	do
	:: atomic { deaths < DEATHS && (got[0] < SLOTS || got[1] < SLOTS || got[2] < SLOTS) ->
		deaths++;
		i = 0;
		do
		:: i < 3 ->
			if
			:: got[i] < SLOTS ->
				if
				:: state[got[i]] == COMING -> coming--
				:: else -> reserved--
				fi;
				state[got[i]] = FREE;
				got[i] = ANEW;
				n++
			:: else
			fi;
			i++
		:: else -> break
		od;
		/* as many find room again, and none evicts */
		assert(NFREE >= n && live + reserved + coming + n <= BLOCKS);
		i = 0;
		n = 0
	   }
	:: deaths == DEATHS || (published == KEYS && swaps == SWAPS) -> break
	od
}

/* Takes references, drops keys and lets go. */
proctype holder()
{
	byte s, i;

	do
	:: atomic {
		s = 0;
		do
		:: s + 1 < SLOTS -> s++
		:: break
		od;
		if
		:: state[s] == LIVE && !held[s] && published < KEYS -> held[s] = true
		:: state[s] == LIVE && !source[s] && published < KEYS ->
			live--;
			if
			:: held[s] -> state[s] = DYING; dying++
			:: else -> state[s] = FREE
			fi
		:: held[s] ->
			held[s] = false;
			if
			:: state[s] == DYING -> state[s] = FREE; dying--
			:: else
			fi
		:: else
		fi;
		s = 0
	   }
	:: published == KEYS && swaps == SWAPS -> break
	od;
	atomic {                        /* all is released and dropped */
		outward == 0 && reserved == 0 && coming == 0;
		i = 0;
		do
		:: i < SLOTS ->
			if
			:: state[i] == LIVE -> live--
			:: state[i] == DYING -> assert(held[i]); dying--
			:: else
			fi;
			state[i] = FREE;
			held[i] = false;
			i++
		:: else -> break
		od;
		assert(live == 0 && dying == 0 && NFREE == SLOTS)
	}
}

init {
	atomic {
		got[0] = NONE;
		got[1] = NONE;
		got[2] = NONE;
		run reserver();
		run swapper(1);
		run swapper(2);
		run death();
		run holder()
	}
}
