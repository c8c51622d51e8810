/* SPDX-License-Identifier: Apache-2.0 */
/* shm_tiers.h - a part of shm.h: how peers and the steward of the tiers below RAM talk, in the
 * control segment.
 *
 * The steward is a peer like others, with a lock of its own (LOCK_TIERS).  The pools of the tiers
 * are its own, so their blocks are in the index.  Only questions and numbers are here: a process
 * that scribbles on them makes others wait, or bring unwanted blocks, and does no other harm.
 * Tests: t/daemon/disk.t t/pages/segment-page.t */
#ifndef GPC_SHM_TIERS_H
#define GPC_SHM_TIERS_H

#include <stdint.h>

/* Below RAM: bytes that no peer looks at where they are. */
static inline int shm_is_lower(uint32_t kind)
{
	return kind == 3 || kind == 4; /* GPC_DISK, GPC_REMOTE */
}

#define SHM_ASKS     4u /* questions that one peer has open at a time */
#define SHM_ASK_KEYS 1024u
#define SHM_TIERS    2u                    /* below RAM ... */
enum { BOARD_DISK = 0, BOARD_REMOTE = 1 }; /* ... by place in the board */

enum { ASK_FREE = 0, ASK_POSTED = 1, ASK_TAKEN = 2, ASK_DONE = 3 };
#define ASK_WORD(state, seq) ((uint32_t)(seq) << 2 | (state))
#define ASK_STATE(word)      ((word)&3u)
#define ASK_SEQ(word)        ((word) >> 2)

enum {
	ASK_UP = 0,    /* they are to come to RAM */
	ASK_BELOW = 1, /* those in RAM are to have copies below */
};

/* "Bring these keys of one prompt into RAM."  The word has the state, and a number that grows with
 * each question: all but the first store of a question compare and swap the whole word.
 *
 *   from     to       by
 *   FREE     POSTED   the peer; (k) what it asks for stands there
 *   POSTED   FREE     the peer: nobody has taken it, and its time is up
 *   POSTED   TAKEN    the steward
 *   TAKEN    DONE     the steward; (l) the answer stands there
 *   TAKEN    POSTED   a steward that begins: the one that had taken it has died
 *   TAKEN    FREE     the peer, when no steward has the lock
 *   DONE     FREE     the peer
 *
 * A peer that dies leaves its questions as they are.  A question that is TAKEN ends, and nobody
 * reads the answer; the next peer on the seat waits for that, and frees the others. */
struct shm_ask {
	uint32_t word;        /* futex */
	uint32_t n;           /* p: keys; at most SHM_ASK_KEYS */
	int32_t to;           /* p: the pool near which they are wanted */
	uint32_t waits;       /* p: 1, a thread sleeps on word */
	uint64_t deadline_ns; /* p: CLOCK_MONOTONIC; 0: none */
	uint64_t asked_ns;    /* p: CLOCK_MONOTONIC */
	int32_t got, why; /* s: the number of first keys in VRAM or RAM; the reason for the end */
	uint32_t how;     /* p: ASK_UP, ASK_BELOW */
	uint32_t pad0;
	uint64_t pad[2];
	uint64_t key[SHM_ASK_KEYS][2]; /* p */
};
_Static_assert(sizeof(struct shm_ask) == 16448, "ask layout");

/* of a tier: what the steward counts */
enum {
	TIER_BROUGHT,
	TIER_BROUGHT_BYTES, /* blocks that came to RAM */
	TIER_WRITTEN,
	TIER_WRITTEN_BYTES,
	TIER_ABSENT, /* looked for there, and not found, or gone meanwhile */
	TIER_BAD,    /* another checksum, or a damaged header */
	TIER_ERRORS,
	TIER_LATE,
	TIER_OVERTAKEN, /* cleared, dropped or evicted while they were on their way */
	TIER_NO_RAM,    /* no block of RAM was to be had */
	TIER_REFUSED,   /* by the writer: no parent, no bucket */
	TIER_FAILED,    /* writes that failed */
	TIER_UNWANTED,  /* victims that had not been used often enough */
	TIER_EVICTED,
	TIER_AGED,      /* for want of room; for their age */
	TIER_FORGOTTEN, /* made free for ever: dropped, cleared */
	/* at the start: there, published, without parent */
	TIER_FOUND,
	TIER_RESTORED,
	TIER_ORPHANS,
	TIER_FULL,
	TIER_DOWN, /* a store had no room; was not asked, since it was not up */
	TIER_ASKED,
	TIER_THERE,   /* keys that a store was asked about; that it has */
	TIER_EMPTIED, /* times that drops were unknown: all of the tier went */
	TIER_COUNTS
};

struct shm_tier {      /* s */
	uint32_t kind; /* GPC_DISK, GPC_REMOTE; 0: there is none */
	int32_t pool;
	uint32_t ready; /* 1: the blocks found at the start are published */
	uint32_t state; /* GPC_TIER_DOWN, _UP, _OFF; that it is stopped others see */
	uint64_t block_bytes;
	uint64_t pad1[5];
	uint64_t count[TIER_COUNTS];
};
_Static_assert(sizeof(struct shm_tier) == 256, "tier layout");

#define SHM_WHAT 512u /* bytes: path of a file, or NAME:word=value,... of a store */
#define SHM_OWN  8u
struct shm_own {       /* s: what a store's plugin counts of its own */
	char name[24]; /* [a-z0-9_]+, 0 behind it; empty: no more of them */
	uint64_t value;
};

struct shm_board {         /* one page; s: the steward */
	uint32_t bell;     /* all: futex word of the steward: there is something to do */
	uint32_t sleepers; /* s: threads that sleep on it */
	uint32_t news;     /* s: futex word, moves with durable */
	uint32_t waiters;  /* p: threads that wait for durable */
	uint64_t durable; /* s: (o) removals that the feed tells with a lower seq never come back */
	uint64_t asked;   /* p: ... and up to where somebody waits for that */
	uint32_t steward; /* s: 1 + its seat; 0: none has been */
	uint8_t pad0[4];
	uint64_t idle_asked;         /* p: calls of gpc_tiers_sync so far ... */
	uint64_t idle;               /* s: ... and up to which nothing is left to do */
	uint8_t file[16];            /* s: the disk file of the last steward ... */
	uint64_t cleared;            /* s: ... and state.cleared when that was durable */
	uint64_t asks, hits, misses; /* s: questions; their keys that were brought, and were not */
	/* s: what was dropped before that number (index/segment/dropped.h) the remote store has no more */
	uint64_t swept;
	uint32_t life;  /* s: (y) twice the stewards so far; odd: one begins, or has failed to */
	uint32_t kept;  /* s: the first life of those without a gap that have kept `file` */
	uint64_t since; /* s: durable, as the life before has left it; while `life` is even */
	/* CLOCK_MONOTONIC: s: a thread that answers has looked for questions; p: the beat behind which nobody has
	 * answered (index/segment/beat.h) */
	uint64_t beat;
	/* CLOCK_MONOTONIC: s: a put that no fence of the store can end was given up then, or begun; 0:
	 * never */
	uint64_t unsure;
	uint64_t drops; /* s: ... and what follows from it `file` has no more; 0: nobody knows */
	/* s: blocks dropped before that number have left VRAM and RAM, too, with descendants that
	 * have no parent there; 0 or less: nobody has looked */
	uint64_t followed;
	uint8_t pad1[192 - 160];
	uint64_t late;
	uint8_t pad3[256 - 200];
	struct shm_tier tier[SHM_TIERS];
	struct shm_own own[SHM_OWN]; /* of the remote store */
	/* s: of each tier, as its steward was told it, cut to fit and 0 behind it */
	char what[SHM_TIERS][SHM_WHAT];
	uint8_t pad2[4096 - 256 - 256 * SHM_TIERS - 32 * SHM_OWN - SHM_TIERS * SHM_WHAT];
};
_Static_assert(sizeof(struct shm_board) == 4096, "board layout");

#endif
