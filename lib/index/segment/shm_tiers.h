/* SPDX-License-Identifier: Apache-2.0 */
/* shm_tiers.h - a part of shm.h: how peers and the steward of the tiers below RAM talk, in the
 * control segment.
 *
 * The steward is a peer like any other, with a lock of its own (LOCK_TIERS).  The pools of the tiers
 * belong to it, so their blocks are in the index.  Only questions and numbers are here.  A process
 * that scribbles on them can make other peers wait, or make the steward bring unwanted blocks, but
 * can do no other harm.
 * Tests: t/daemon/disk.t t/pages/segment-page.t */
#ifndef GPC_SHM_TIERS_H
#define GPC_SHM_TIERS_H

#include <stdint.h>

/* A kind below RAM: no peer reads the bytes of its blocks in their place. */
static inline int shm_is_lower(uint32_t kind)
{
	return kind == 3 || kind == 4; /* GPC_DISK, GPC_REMOTE */
}

#define SHM_ASKS     4u /* the most questions that one peer has open at a time */
#define SHM_ASK_KEYS 1024u
#define SHM_TIERS    2u                    /* the most tiers below RAM ... */
enum { BOARD_DISK = 0, BOARD_REMOTE = 1 }; /* ... and their places in the board */

enum { ASK_FREE = 0, ASK_POSTED = 1, ASK_TAKEN = 2, ASK_DONE = 3 };
#define ASK_WORD(state, seq) ((uint32_t)(seq) << 2 | (state))
#define ASK_STATE(word)      ((word)&3u)
#define ASK_SEQ(word)        ((word) >> 2)

enum {
	ASK_UP = 0,    /* the keys are to come to RAM */
	ASK_BELOW = 1, /* keys that are in RAM are to have copies below */
};

/* "Bring these keys of one prompt into RAM." The word has the state, and a number that grows with
 * each question.  The first step of a question stores the word, and every later step compares and
 * swaps all of it.
 *
 *   from     to       by
 *   FREE     POSTED   the peer; (k) the question is stored before
 *   POSTED   FREE     the peer, whose time is up before anybody has taken it
 *   POSTED   TAKEN    the steward
 *   TAKEN    DONE     the steward; (l) the answer is stored before
 *   TAKEN    POSTED   a new steward, because the one that had taken it has died
 *   TAKEN    FREE     the peer, if no steward has the lock
 *   DONE     FREE     the peer
 *
 * A peer that dies leaves its questions as they are.  The steward finishes a question that is
 * TAKEN, and nobody reads the answer.  The next peer on the seat waits for that end, and frees the
 * other questions. */
struct shm_ask {
	uint32_t word;        /* futex */
	uint32_t n;           /* p: keys; at most SHM_ASK_KEYS */
	int32_t to;           /* p: the pool near which they are wanted */
	uint32_t waits;       /* p: 1, a thread sleeps on word */
	uint64_t deadline_ns; /* p: CLOCK_MONOTONIC; 0: none */
	uint64_t asked_ns;    /* p: CLOCK_MONOTONIC */
	/* s: the number of first keys that are in VRAM or RAM now; the reason for the end */
	int32_t got, why;
	uint32_t how; /* p: ASK_UP, ASK_BELOW */
	uint32_t pad0;
	uint64_t pad[2];
	uint64_t key[SHM_ASK_KEYS][2]; /* p */
};
_Static_assert(sizeof(struct shm_ask) == 16448, "ask layout");

/* Counters of the steward, for each tier. */
enum {
	TIER_OVERRUN, /* blocks that left RAM while the tier had no copy */
	TIER_BROUGHT,
	TIER_BROUGHT_BYTES, /* blocks that came to RAM */
	TIER_WRITTEN,
	TIER_WRITTEN_BYTES,
	TIER_ABSENT, /* keys that were looked for there and not found, or that went meanwhile */
	TIER_BAD,    /* blocks with another checksum, or a damaged header */
	TIER_ERRORS,
	TIER_LATE,
	TIER_OVERTAKEN, /* blocks cleared, dropped or evicted while they were on their way */
	TIER_NO_RAM,    /* blocks for which there was no block of RAM */
	TIER_REFUSED,   /* blocks that the writer refused: no parent, no bucket */
	TIER_FAILED,    /* writes that failed */
	TIER_UNWANTED,  /* victims that had not been used often enough */
	TIER_EVICTED,
	TIER_AGED,      /* blocks evicted for lack of room; for their age */
	TIER_FORGOTTEN, /* blocks freed for ever: dropped, cleared */
	/* at the start: blocks found there, blocks published, blocks without parent */
	TIER_FOUND,
	TIER_RESTORED,
	TIER_ORPHANS,
	TIER_FULL,
	/* writes for which a store had no room; blocks not asked for, because the store was down */
	TIER_DOWN,
	TIER_ASKED,
	TIER_THERE,   /* keys that a store was asked about; keys of these that it has */
	TIER_EMPTIED, /* how often the whole tier was emptied, because the drops were not known */
	TIER_COUNTS
};

struct shm_tier {      /* s */
	uint32_t kind; /* GPC_DISK, GPC_REMOTE; 0: there is none */
	int32_t pool;
	uint32_t ready; /* 1: the blocks found at the start are published */
	/* GPC_TIER_DOWN, _UP or _OFF; readers find out by themselves whether it is stopped */
	uint32_t state;
	uint64_t block_bytes;
	uint64_t pad1[4];
	uint64_t count[TIER_COUNTS];
};
_Static_assert(sizeof(struct shm_tier) == 256, "tier layout");

#define SHM_WHAT 512u /* bytes: path of a file, or NAME:word=value,... of a store */
#define SHM_OWN  8u
struct shm_own {       /* s: a counter of a store's plugin */
	char name[24]; /* [a-z0-9_]+, 0 behind it; empty: there are no more of them */
	uint64_t value;
};

struct shm_board {         /* one page; s: the steward */
	uint32_t bell;     /* all: futex word of the steward: there is work for it */
	uint32_t sleepers; /* s: threads that sleep on it */
	uint32_t news;     /* s: futex word, moves with durable */
	uint32_t waiters;  /* p: threads that wait for durable */
	uint64_t durable;  /* s: (o) removals that the feed has with a lower seq never come back */
	uint64_t asked;    /* p: ... and the number that somebody waits for */
	uint32_t steward;  /* s: 1 + its seat; 0: none has been */
	uint8_t pad0[4];
	uint64_t idle_asked; /* p: calls of gpc_tiers_sync so far ... */
	uint64_t idle;       /* s: ... and the number of calls for which no work is left */
	uint8_t file[16];    /* s: the disk file of the last steward ... */
	/* s: ... and state.cleared at the time up to which that file is durable */
	uint64_t cleared;
	uint64_t asks, hits, misses; /* s: questions; their keys that were brought, and were not */
	/* s: the remote store has no key any more that was dropped before that number
	 * (index/segment/dropped.h) */
	uint64_t swept;
	/* s: (y) twice the number of stewards so far; odd: one begins, or has failed to */
	uint32_t life;
	/* s: the first life of a run of stewards without a gap that have kept `file` */
	uint32_t kept;
	/* s: the value of `durable` that the life before has left; it counts while `life` is
	 * even */
	uint64_t since;
	/* CLOCK_MONOTONIC.  s: the last time when an answering thread has looked for questions.
	 * p: the beat after which nobody has answered (index/segment/beat.h). */
	uint64_t beat;
	/* CLOCK_MONOTONIC.  s: the time when a put was given up, or begun, that no fence of the
	 * store can end; 0: never. */
	uint64_t unsure;
	/* s: ... and `file` has no descendant of those keys either; 0: nobody knows */
	uint64_t drops;
	/* s: blocks that were dropped before that number have left VRAM and RAM, too, with those
	 * descendants that have no parent there.  0 or less: nobody has looked. */
	uint64_t followed;
	uint8_t pad1[192 - 160];
	uint64_t late;
	uint8_t pad3[256 - 200];
	struct shm_tier tier[SHM_TIERS];
	struct shm_own own[SHM_OWN]; /* of the remote store */
	/* s: of each tier the option of its steward, cut to fit, with 0 behind it */
	char what[SHM_TIERS][SHM_WHAT];
	uint8_t pad2[4096 - 256 - 256 * SHM_TIERS - 32 * SHM_OWN - SHM_TIERS * SHM_WHAT];
};
_Static_assert(sizeof(struct shm_board) == 4096, "board layout");

#endif
