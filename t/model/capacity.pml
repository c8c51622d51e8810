/* SPDX-License-Identifier: Apache-2.0 */
/* capacity.pml - the capacity of a RAM pool, its transit slots, and blocks that were dropped while somebody holds
 * them: writer/grant_place.c (w_room), request/pool.c (gpc_pool_available), rule C6.
 *
 * A pool has BLOCKS of capacity and TRANSIT slots more.  A slot is free, reserved, live, or dying: its key was
 * dropped or has moved, and a peer holds its bytes, or a section may.  Peers reserve and publish, take references and
 * release them, drop keys, and swap: a promotion takes a key out of the pool, and then a demotion brings one in.
 *
 * The capacity counts keys: live and reserved blocks.  A dying block has no key, so it is not charged; it lies in
 * a slot, and slots that it takes away come out of the transit.  The alternative charges it.
 *
 * Proves: a reserve or a demotion loses a live key only where the pool has its capacity of keys, or has no free slot; keys
 * are never more than the capacity; and a reserve gets at least what gpc_pool_available says, which is lower than that by
 * the dying blocks, as far as there are transit slots for them.  When all have let go, the whole pool is free.
 *
 * RUN passes
 * RUN passes -DTRANSIT=2 -DSWAPS=3
 * RUN passes -DTRANSIT=0
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

#define SLOTS (BLOCKS + TRANSIT)
#define FREE 0
#define RESERVED 1
#define LIVE 2
#define DYING 3

byte state[SLOTS];
bool held[SLOTS];               /* by a peer, LIVE or DYING */
bool source[SLOTS];             /* of a promotion that is under way: it leaves with the commit, and nobody may evict it */
byte live, reserved, dying, outward, published, swaps;

#define NFREE (SLOTS - live - reserved - dying)

#ifdef CHARGED
#define CHARGED_SWAP (live + reserved + dying)
#define CHARGED_RESERVE (live + reserved + dying)
#elif defined(CHARGED_RESERVES)
#define CHARGED_SWAP (live + reserved)
#define CHARGED_RESERVE (live + reserved + dying)
#else
#define CHARGED_SWAP (live + reserved)
#define CHARGED_RESERVE (live + reserved)
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

proctype reserver()
{
	byte s, i, n, can;

	do
	:: published < KEYS ->
		atomic {
			published++;
			/* what a reserve of many could have: free slots as far as there is room, and live keys that go */
			if
			:: outward == 0 ->
				count_available();
				count_evictable();
				can = can + (CHARGED_RESERVE >= BLOCKS -> 0 :
					(NFREE < BLOCKS - CHARGED_RESERVE -> NFREE : BLOCKS - CHARGED_RESERVE));
				assert(can >= n)
			:: else
			fi;
			if
			:: NFREE > 0 && CHARGED_RESERVE < BLOCKS -> any_free(s)
			:: else ->
				any_victim(s);
				if
				:: s < SLOTS ->
					assert(live + reserved >= BLOCKS || NFREE == 0);
					live--;
					state[s] = FREE
				:: else
				fi
			fi;
			if
			:: s < SLOTS -> state[s] = RESERVED; reserved++
			:: else -> goto next            /* -ENOSPC */
			fi
		};
		atomic { state[s] = LIVE; reserved--; live++ };
next:		s = 0;
		n = 0;
		can = 0;
		i = 0
	:: else -> break
	od
}

/* A key goes up, and then one comes down. */
proctype swapper()
{
	byte from, to, i;

	do
	:: swaps < SWAPS ->
		atomic {
			swaps++;
			any_victim(from);
			if
			:: from == SLOTS -> goto next   /* nothing to promote */
			:: else
			fi;
			source[from] = true;
			outward++
		};
		atomic {                /* the commit; a section may keep the block */
			source[from] = false;
			outward--;
			live--;
			if
			:: held[from] = true
			:: true
			fi;
			if
			:: held[from] -> state[from] = DYING; dying++
			:: else -> state[from] = FREE
			fi
		};
		atomic {
			if
			:: NFREE > 0 && CHARGED_SWAP < BLOCKS -> any_free(to)
			:: else ->
				any_victim(to);
				if
				:: to < SLOTS ->
					assert(live + reserved >= BLOCKS || NFREE == 0);
					live--;
					state[to] = FREE
				:: else
				fi
			fi;
			if
			:: to < SLOTS -> state[to] = RESERVED; reserved++
			:: else
			fi;
			assert(live + reserved <= BLOCKS)
		};
		atomic {
			if
			:: to < SLOTS -> state[to] = LIVE; reserved--; live++
			:: else
			fi
		};
next:		from = 0;
		to = 0;
		i = 0
	:: else -> break
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
		outward == 0 && reserved == 0;
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
		run reserver();
		run swapper();
		run swapper();
		run holder()
	}
}
