/* SPDX-License-Identifier: Apache-2.0 */
/* shm.h - every byte that processes share.  gpc_segment(5) documents the same.
 *
 * There are two segments.  Peers map the index read-only, and only the writer stores there.  The
 * control segment is mapped read-write by all; each peer writes only what is its own.  The column
 * on the right has a letter: w, the writer stores; p, the peer that owns the seat stores; r,
 * everybody reads.
 *
 *   index segment                              control segment
 *     header      4096   immutable               header      4096   immutable copy
 *     state       4096   w                       shared      20480  epoch, tick, doorbell
 *     pool[]      2048   w                       seat[P]     4096   p
 *     mirror[8]    256   w                       section[P][64] 64  p
 *     tally[P]     128   w                       ring[P][4096]  64  p, results w
 *     xfer[P][64]   64   w                       ref[P][max_blocks]  u16 cells, a column a peer, p
 *     table[buckets] 64  w                       stamp[max_blocks]   u64, p and w
 *     record[max_blocks] 64 w                    use[max_blocks]     u32, p and w
 *     change[]      64   w                       note[max_blocks]    p, where notes are kept
 *     change_note[] 64   w, with digests         transfer[P]   12288  p, devices
 *     alias[]      128   w (shm_memo.h)          board       4096   the steward of tiers (shm_tiers.h)
 *     root[]      2088   w (shm_memo.h), with notes   ask[P][4] 16448 p, the steward of tiers
 *     drop[65536]   32   w
 *
 * In addition there is one file for each mirror of the host device (bytes/device/host.h), and one
 * or more for each pool that has memory (struct shm_memory below).  Offsets follow only from the geometry
 * (geometry.h) and are never read from a segment.  Fixed-width integers only.  A change here bumps
 * SHM_VERSION and edits gpc_segment(5).
 * Tests: t/daemon/other-layout.t t/daemon/upgrade.t t/pages/segment-page.t */
#ifndef GPC_SHM_H
#define GPC_SHM_H

#include <stdint.h>

#ifndef SHM_VERSION /* t/daemon/upgrade.t plays a later one */
#define SHM_VERSION 8u
#endif
#define SHM_MAGIC_INDEX   0x3158444943504721ull /* "!GPCIDX1", little endian */
#define SHM_MAGIC_CONTROL 0x314c544343504721ull /* "!GPCCTL1" */
#define SHM_MAGIC_MIRROR  0x31524d4943504721ull /* "!GPCIMR1" */
#define SHM_MAGIC_MEMORY  0x314d454d43504721ull /* "!GPCMEM1" */
#define SHM_ENDIAN        0x01020304u
#define SHM_READY         0x59444552u /* "REDY", stored last */

#define SHM_PAGE     4096u
#define SHM_SECTIONS 64u   /* per peer; the first 8 are the library's own lookups */
#define SHM_RING     4096u /* commands per peer, power of two */
#define SHM_MIRRORS  8u
#define SHM_BUCKET   4u /* entries a bucket */
#define SHM_NO_PEER  0xffu
/* in a command: every pool, or the pool that demote_to of `pool` names */
#define SHM_NO_POOL   0xffu
#define SHM_NO_RECORD 0xffffffffu

/* bytes of the lock file */
#define LOCK_WRITER   0
#define LOCK_CREATE   1
#define LOCK_PIN      2 /* the process that registers memory with GPUs now */
#define LOCK_MAKE     3 /* the process that makes this cache and its memory */
#define LOCK_PIN_NEXT 4 /* the process that registers next */
#define LOCK_ONCE     5 /* the process that makes a pool with GPC_POOL_ONCE */
#define LOCK_TIERS    6 /* the process that keeps the tiers below RAM */
#define LOCK_PEER(i)  (64 + (i))

struct shm_geometry { /* all that offsets depend on */
	uint32_t max_blocks;
	uint8_t max_peers;
	uint8_t keep;        /* set of KEEP_* */
	uint16_t note_lines; /* 64 bytes each, of a block's note; 0 = none are kept */
	uint16_t max_pools;
	uint16_t pad0; /* 0 */
	uint32_t buckets;
	uint32_t changes;       /* entries of the changes feed, power of two */
	uint32_t alias_buckets; /* 0 = no aliases are kept */
};
_Static_assert(sizeof(struct shm_geometry) == 24, "geometry layout");

enum { KEEP_DIGESTS = 1 << 0, KEEP_TOKENS = 1 << 1 };

struct shm_header { /* at 0 of index and control; immutable once ready */
	uint64_t magic;
	uint32_t version, endian;
	uint32_t header_bytes, page;
	struct shm_geometry geometry;
	uint64_t bytes;     /* of this segment */
	uint8_t id[16];     /* same in index, control and lock file: one creation */
	uint8_t boot[16];   /* kernel's boot id: a copied file is refused */
	char hash[16];      /* "siphash-1-3-128" */
	uint8_t secret[16]; /* index only; zero in control */
	uint8_t layout[32];
	char devices[64];
	uint32_t block_tokens, tick_us;
	int32_t free_target;
	uint32_t quarantine_ms, peer_quota;
	uint32_t pad0;
	uint64_t created_ns; /* CLOCK_REALTIME */
	uint64_t checksum;   /* of all bytes above, see header_checksum() */
	uint32_t ready;      /* SHM_READY; (A) stored last */
	uint32_t pad1;
};
_Static_assert(sizeof(struct shm_header) == 264, "header layout");

#include "index/segment/shm_memo.h"
#include "index/segment/shm_meter.h"

/* ---- index segment ---- */

struct shm_state {           /* w, r */
	uint32_t generation; /* of the writer; grows with every takeover */
	int32_t writer_pid;
	uint32_t recovering;    /* 1 until the successor's first grace period is over */
	uint32_t spaces;        /* set of spaces that READY pools of VRAM and RAM belong to */
	uint64_t live_pools[2]; /* bit p: pool p is READY; all its blocks die when it is cleared */
	uint32_t writer_peer;   /* its seat + 1; 0 = none */
	uint32_t
		uses_late; /* the number of windows that end until stamp[] is older than use[] again */
	uint64_t uses_from; /* stamp that the window of use[] begins with: stamps.h */
	uint64_t cleared;   /* clears of all pools so far */
	/* set of spaces that READY pools below RAM belong to; none is in `spaces` */
	uint32_t lower_spaces;
	uint8_t pad0[4];
	/* line 1: the number of stores to table entries so far; a mirror's lag is counted in
	 * them */
	uint64_t changes;
	uint64_t events_head;  /* next number of the changes feed */
	uint64_t events_floor; /* a cursor of a reader that is below this number is too late */
	uint64_t
		/* pool + 1 << 32 | tag of a clear whose GPC_CLEARED is in the feed while the clear
		 * goes on; 0 = none */
		clearing;
	uint64_t relocated, no_bucket; /* counters */
	uint64_t aliases;              /* at least the number of pairs in alias[]; it only grows */
	uint64_t served_ns;            /* CLOCK_MONOTONIC: when the writer took the seat */
	struct shm_past past;          /* lines 2 to 4 */
	/* line 5: twice the number of drops of blocks of VRAM and RAM so far.  If odd, a drop is
	 * under way, and this is its number. */
	uint64_t drops;
	uint64_t drops_head; /* keys stored in drop[] so far; the last SHM_DROPS are there */
	uint64_t
		drops_floor; /* keys of drops up to this number may be overwritten; 0: all are there */
	/* Twice the number of passes of all writers so far.  If odd, a pass is under way, or its
	 * writer has died in it.  A writer changes this segment only in a pass (w_pass_begin). */
	uint64_t passes;
	uint8_t pad1[32];
};
_Static_assert(sizeof(struct shm_state) == 384, "state layout");
_Static_assert(__builtin_offsetof(struct shm_state, drops) == 320, "state lines");

/* Dropped key k, counted over all drops, is at k % SHM_DROPS.  Each key is added before its block
 * is DYING, so the ring has all that a dead writer has done of a drop. index/segment/dropped.h has
 * the readers. */
#define SHM_DROPS 65536u

struct shm_drop { /* w, r */
	uint64_t key[2];
	uint64_t number; /* odd, and never less than of the key before */
	/* Of the last key of a drop: its command, as seat + 1 << 56 | position; of the other keys
	 * 0.  Plus the kind, 54 bits to the left. */
	uint64_t command;
};
_Static_assert(sizeof(struct shm_drop) == 32, "drop layout");

enum {
	SHM_DROP_ALL = 0,  /* the key went, with its descendants */
	SHM_DROP_KEY = 1,  /* only the key */
	SHM_DROP_LEFT = 2, /* key[0] is a block of VRAM or RAM that stays; its parent has gone */
};
#define SHM_DROP_IS(what)      ((uint64_t)(what) << 54)
#define SHM_DROP_WHAT(command) ((uint32_t)((command) >> 54 & 3))
#define SHM_DROP_BY(command)   ((command) & ~SHM_DROP_IS(3))

enum { POOL_FREE = 0, POOL_READY = 1, POOL_DRAINING = 2 };

struct shm_pool { /* w, r */
	uint32_t state;
	uint32_t generation;
	uint64_t range;  /* first record << 32 | slots (capacity + transit) */
	uint32_t blocks; /* capacity */
	uint32_t kind, flags, space;
	int32_t owner, demote_to;
	uint32_t gpus, backing_size;
	uint8_t uuid[16][16];
	uint8_t backing[1024];
	uint64_t maker; /* command that added it: seat + 1 << 56 | position */
	/* CALLER: number of its last GPC_RETURNED, + 1; at most events_head + 1 */
	uint64_t returned;
	uint64_t memory;         /* names the file of its memory; 0 = none */
	uint64_t block_bytes;    /* of an image; 0 = no memory */
	uint8_t fingerprint[32]; /* of the images */
	uint32_t spill_ahead;    /* blocks that are to be free, or clean, ahead of need */
	uint8_t pad0[4];
	/* Clears of this pool so far, by tag or whole.  A publish that was begun before a clear
	 * does not succeed after it. */
	uint64_t clears;
	/* line 22: blocks by state, for tools; each writer counts anew */
	uint32_t live, reserved, dying;
	uint32_t lingering; /* the dying ones with REC_LINGERS */
	uint8_t pad1[2048 - 1408 - 16];
};
_Static_assert(sizeof(struct shm_pool) == 2048, "pool layout");
_Static_assert(__builtin_offsetof(struct shm_pool, live) == 1408, "pool lines");

enum { MIRROR_NONE = 0, MIRROR_READY = 1, MIRROR_RETIRED = 2 };

struct shm_mirror { /* w, r; generation is the last store of a publication */
	uint32_t state, generation;
	uint64_t bytes;
	uint64_t flushed; /* state.changes covered by the last ended flush */
	uint8_t uuid[16];
	char device[32];
	uint8_t handle[64]; /* cudaIpcMemHandle_t; host: file name suffix */
	uint8_t pad[120];
};
_Static_assert(sizeof(struct shm_mirror) == 256, "mirror layout");

struct shm_tally { /* w, r: what the writer counts for a peer */
	uint64_t published, duplicate, evicted, demoted, promoted, dropped;
	uint64_t reserved; /* blocks the peer holds reserved now */
	uint64_t commands;
	uint64_t fetched, spilled; /* blocks that transfers have committed */
	uint64_t bad;              /* blocks whose bytes had another checksum */
	uint64_t claims;           /* of this peer, ever; a claim's number */
	uint64_t claims_open;
	uint64_t fetched_bytes, spilled_bytes; /* of those blocks */
	uint64_t transfers;                    /* transfers under way; 0: none in xfer[] */
};
_Static_assert(sizeof(struct shm_tally) == 128, "tally layout");

/* A transfer that the writer commits; index/writer/transfer.h has the rules.  Entry i belongs to
 * channel i of the peer's struct shm_transfer.  The owner of its targets is the peer, and their op
 * is one of the n numbers from `op` on, with or without a source.  While left is not 0 the
 * transfer is not over.  `value` is stored before the first target is bound, and stays when the
 * transfer is over. */
#define SHM_RANKS     16u
#define SHM_RANK_GONE 0xfeu /* replaces a seat whose process has exited without done */

struct shm_xfer {          /* w, r */
	uint64_t value;    /* the value that devices store when their copies are done */
	uint64_t op;       /* OP_OF the first entry of its command */
	uint32_t n;        /* entries of that command */
	uint32_t left;     /* targets that are not decided */
	uint64_t begun_ns; /* CLOCK_MONOTONIC */
	/* The seats whose devices copy, then SHM_NO_PEER.  If there is none, the peer's own device
	 * copies. */
	uint8_t rank[SHM_RANKS];
	uint32_t refused; /* targets that were not committed */
	uint32_t bad;     /* 1 + the first entry whose checksum was wrong; 0: none */
	uint8_t to, from; /* pools: of its targets; of its first source */
	uint8_t pad[6];
};
_Static_assert(sizeof(struct shm_xfer) == 64, "xfer layout");

/* A table entry: 88 bits of the masked key, a flag, block + 1.  Block word 0 = empty; a bucket
 * is 4 entries.  kernels/probe.h has the layout. */

enum { FREE = 0, RESERVED = 1, LIVE = 2, DYING = 3 };
#define WORD(state, gen) ((uint32_t)(gen) << 3 | (state))
#define WORD_STATE(w)    ((w)&7u)
#define WORD_GEN(w)      ((w) >> 3)

/* flags of a record */
enum {
	REC_UNCHAINED = 1 << 0,  /* published without a parent link */
	REC_QUARANTINE = 1 << 1, /* DYING: was reserved by a peer that may still write */
	REC_COPY = 1 << 3,       /* RESERVED target: the source stays live */
	/* LIVE: its key names another block of its space.  No entry names this block, and it goes
	 * after a grace period (leave.c). */
	REC_MOVED = 1 << 4,
	/* LIVE: its key has gone to another space.  The block goes after a grace period, as soon
	 * as it has no descendants. */
	REC_LEAVING = 1 << 5,
	/* DYING: somebody held it when it could otherwise become FREE; in a CALLER pool, when it
	 * left */
	REC_LINGERS = 1 << 6,
	REC_RECALL = 1 << 7,       /* RESERVED: the writer takes it back from a stock */
	REC_CLAIM = REC_QUARANTINE /* RESERVED: it is to have the key in its record */
};

/* The meaning of the fields of a record in each state.  The meaning of a state holds from the store
 * of the word on.  The fields are filled before that store, so a successor may find those of the
 * next state already.
 *
 *   FREE       Nothing is read.  The first store after the word clears owner, op, source and flags.
 *   RESERVED   owner    The peer whose reservation it is.
 *              op       1 + the ring position of the command that gave it the block.  0: a CALLER
 *                       block came back to its owner, without a command.
 *              source   0; or, in the target of a move, 1 + the block that is read.  Then
 *                       source_word is that block's word, and key, parent, depth and tag are
 *                       the values of the moving key.
 *              flags    A target may have COPY and UNCHAINED, any block RECALL, and a block that
 *                       is no target CLAIM.  With CLAIM, key is the key that the owner computes,
 *                       parent[0] the time of the claim (CLOCK_MONOTONIC, ns), parent[1] the
 *                       number of the claim (shm_tally.claims, which counts it), and depth the
 *                       number of later claims of that peer that have ended.
 *   LIVE       owner    The peer that published it, or began its move.
 *              op       The publish, or the command that began the move.  By owner and op a
 *                       command that runs again finds that it was done.
 *              source   0; or 1 + the REC_MOVED block, LIVE as well, that the key came from.
 *              flags    UNCHAINED.  MOVED or LEAVING: the key has gone, and the block goes.
 *              source_word  Without a source: 1 + the record in which the parent was.  It is a
 *                       hint, and may be any number.
 *   DYING      owner    The peer whose command evicted it and gets it next; op is the entry of
 *                       that command.  SHM_NO_PEER: the block becomes FREE, and op is still the
 *                       publish's, or 0.
 *              source   0
 *              flags    QUARANTINE: it also waits until the process of its dead owner is gone.
 *                       LINGERS.  The other flags mean nothing any more. */
struct shm_record {    /* w, r: the only truth about a block */
	uint32_t word; /* {generation:29, state:3}: one store commits */
	uint8_t owner; /* a peer, or SHM_NO_PEER */
	uint8_t flags;
	uint16_t check;     /* of key, parent, depth, tag while LIVE */
	uint64_t key[2];    /* plain, not masked */
	uint64_t parent[2]; /* the parent's key: parents move, keys do not */
	uint64_t op;        /* ring position of the owner's command + 1 (rule C1) */
	uint32_t depth, tag;
	/* target of a move: source record + 1, else 0; LIVE: as long as the source is not DYING
	 * (rule C3) */
	uint32_t source;
	uint32_t source_word; /* the source's word when the move began; see LIVE above */
};
_Static_assert(sizeof(struct shm_record) == 64, "record layout");

struct shm_change {   /* w, r: one entry of the changes feed */
	uint64_t seq; /* its number + 1; stored first as 0, then last */
	uint32_t what, tag;
	int32_t block, was; /* removed: was is `block` of VRAM or RAM that was dropped */
	uint64_t key[2], parent[2];
	uint64_t pad;
};
_Static_assert(sizeof(struct shm_change) == 64, "change layout");

/* ---- control segment ---- */

/* An engine's words about a block, with its key; nothing of the index depends on them.  In note[]
 * the tokens follow, if the cache keeps them.  The generation in the record's word is its sequence:
 * the block's peer stores it while the block is RESERVED, and from LIVE on it stays. */
struct shm_note {
	uint64_t key[2]; /* the key of the note: for another key it means nothing */
	uint32_t group;
	uint8_t digest_bytes; /* 0 = none; more than 32: scribbled over */
	uint8_t has_tokens;
	uint8_t pad0[2];
	uint8_t digest[32];
	uint8_t pad1[8];
};
_Static_assert(sizeof(struct shm_note) == 64, "note layout");

/* A stamp is the tick of the last use, and below it the place of the block in the array of the
 * call that used it: STAMP_PLACES at the front, and less further back.  In a longer array each
 * further STAMP_PLACES + 1 places have a tick of their own, the one before.  use[] has the lower
 * half of a stamp, which is never 0: 0 is none (stamps.h). */
#define STAMP_BITS    10
#define STAMP_PLACES  ((1u << STAMP_BITS) - 1)
#define STAMP_TICK(s) ((s) >> STAMP_BITS)

/* A cell of ref[]: what one peer holds of one block.  A number of references, or one of the
 * values below, for a block that is reserved, or was until a moment ago.  Threads of the peer may
 * take references at the same moment, so each value has room above it. index/peer/hold.h says
 * which values go with which state of the record. */
#define CELL_REFS     0x9fffu /* the most that is a number of references */
#define CELL_PENDING  0xa000u /* p: reserved; a command makes it one reference */
#define CELL_BACK     0xb000u /* p: given up; its way back has not begun */
#define CELL_RESERVED 0xc000u /* p, w clears: reserved, the program has it */
#define CELL_STOCK    0xd000u /* w, p takes: reserved, in the peer's stock */
#define CELL_ABOVE    0x0fffu /* the room */

struct shm_shared {         /* one cache line for each kind of access */
	uint64_t epoch;     /* all: raised to start a grace period */
	uint64_t completed; /* all: no open section is older; only a hint to save scans */
	uint8_t pad0[48];
	uint64_t tick;    /* all */
	uint64_t tick_ns; /* all: CLOCK_MONOTONIC, coarse, when it was raised */
	uint8_t pad1[48];
	uint64_t pending[4]; /* p: bit = seat has commands; w clears */
	uint32_t sleeping;   /* w: futex word, 1 while the writer sleeps */
	uint32_t pad2[7];
	/* p, w: bit = the seat's column may have a cell that is not zero.  A peer sets it behind
	 * the cell, and before it looks at the record again; only the writer clears it
	 * (holders.c) */
	uint64_t holders[4];
	uint8_t pad3[32];
	/* all, any peer sets one: 1 + its number, by GPC_SET_... - 1; 0: it is not set
	 * (settings.h) */
	uint64_t setting[8];
	uint8_t pad4[1024 - 320];
	uint64_t
		ahead[128]; /* all: of a pool, spill_ahead: its generation << 32 | 1 + its number */
	/* A peer that waits for a key, while another peer computes or loads it, sleeps on the word
	 * of the key's hash (rule B14).  All may write here: a waiter believes only records. */
	struct shm_wait {
		/* all: futex word, moves when a claim has ended, or is about to, and somebody
		 * waits */
		uint32_t seq;
		uint32_t waiters; /* p: threads that wait */
	} wait[256];
	/* w: blocks + 1, by the hash of the key that they are reserved for; each open claim has a
	 * place, unless more than four have one hash.  Only hints that save a question: any may
	 * be old or scribbled, and only records are believed */
	uint32_t hint[1024][4];
};
_Static_assert(sizeof(struct shm_shared) == 20480, "shared layout");
_Static_assert(__builtin_offsetof(struct shm_shared, setting) == 256 &&
		       __builtin_offsetof(struct shm_shared, ahead) == 1024,
	       "shared lines");
#define SHM_WAITS     256u
#define SHM_HINTS     1024u
#define SHM_HINT_WAYS 4u

enum { SEAT_FREE = 0, SEAT_TAKEN = 1, SEAT_LEFT = 2 };

/* A call that took longer than GPC_SET_SLOW_MS (index/peer/slow.h). */
#define SHM_SLOW 8u

struct shm_slow {
	uint64_t number;   /* p: (q) 1 + its number; 0 while it is written */
	uint64_t ended_ns; /* p: CLOCK_MONOTONIC */
	uint32_t took_us;
	int32_t pid;
	uint32_t blocks; /* or keys, of its command; 0: not known */
	uint16_t op;     /* CMD_...; 0: of commands that were sent before */
	uint16_t error;  /* 0: it was answered; or why the caller waits no longer: an errno */
};
_Static_assert(sizeof(struct shm_slow) == 32, "slow layout");

struct shm_seat {       /* 4096 bytes */
	uint32_t state; /* p: TAKEN, LEFT; w: FREE after reaping */
	uint32_t incarnation;
	int32_t pid;
	uint32_t quota;
	uint64_t start_time; /* of the process, clock ticks since boot */
	uint64_t namespaces; /* inodes: time << 32 | PID */
	char label[32];
	uint64_t attached_ns; /* CLOCK_MONOTONIC */
	uint64_t leader_life; /* p: of a companion: its leader's life (index/peer/companion.h) */
	uint32_t leader;      /* p: ... and 1 + the leader's seat; 0: it is none */
	/* p: ... 1 once that life was seen to go on behind TAKEN; else the peer leaves the seat
	 * soon */
	uint32_t joined;
	uint8_t pad0[128 - 88];
	uint64_t head;  /* p: line 2: next position to write */
	uint64_t taken; /* p: the peer has taken the answers before it */
	uint8_t pad1[48];
	uint64_t tail;    /* w: line 3: everything before it is done */
	uint32_t done;    /* w: futex word, moves when results were stored */
	uint32_t waiting; /* p: threads that sleep on done */
	uint64_t lost_ns; /* w: the time when its lock was free, and its process not gone; 0 */
	uint64_t ended;   /* w, p when it leaves: the life that no companion may join any more; 0 */
	uint64_t refs_since_ns; /* w: the time since which each look has found references; 0 */
	uint8_t pad2[24];
	uint64_t lookups, hit_vram, hit_ram, miss; /* p: line 4: counters */
	uint64_t stale_refs, ring_full;
	uint64_t refs;     /* references held */
	uint32_t sections; /* p: places ever used; bounds the scan */
	/* p: 1 once a given-up reservation found no room in the ring: the writer looks for such */
	uint32_t back_waits;
	uint32_t in_use[128]; /* p: distinct blocks of each pool referenced or reserved */
	uint64_t hit_own, hit_disk, hit_store; /* p: counters, from gpc_hits_add */
	uint64_t slow_calls; /* p: ever noted in `slow`, over all lives of the seat */
	uint8_t pad4[1024 - 320 - 512 - 32];
	union {
		struct shm_pool request; /* p: argument of CMD_POOL */
		struct {
			uint8_t pad5[2048 - 512]; /* the words lie in padding of the request */
			struct shm_words words;   /* p: argument of CMD_ROOT */
		};
	};
	/* p: short: commands that were waited for, from submission to answer */
	struct shm_histogram round_trip;
	/* p: for its own CALLER pools: the number of blocks evicted ahead of demand, and above it
	 * 16 bits of the pool's generation */
	uint32_t in_stock[128];
	struct shm_slow slow[SHM_SLOW]; /* p: the n-th at n % SHM_SLOW; they outlive the peer */
};
_Static_assert(sizeof(struct shm_seat) == 4096, "seat layout");
_Static_assert(__builtin_offsetof(struct shm_seat, head) == 128 &&
		       __builtin_offsetof(struct shm_seat, tail) == 192 &&
		       __builtin_offsetof(struct shm_seat, lookups) == 256 &&
		       __builtin_offsetof(struct shm_seat, in_use) == 320,
	       "seat lines");

/* Open: epoch != 0 and done < ticket.  Idle places keep done < ticket too, so that a place is
 * open from the very store of its epoch.  A device only ever raises done (rule S1). */
struct shm_section {
	uint64_t epoch;    /* p: (E) 0 = idle */
	uint64_t ticket;   /* p: grows with every use by a device, for ever */
	uint64_t done;     /* device */
	uint64_t since_ns; /* p: CLOCK_MONOTONIC, coarse */
	uint32_t kind;     /* p: 0 host, 1 device */
	uint32_t pad[7];
};
_Static_assert(sizeof(struct shm_section) == 64, "section layout");

/* A transfer of a peer: its channel, and the value that the device stores there behind the last copy.
 * A channel has one transfer at a time, and values grow for ever: a channel is free when done
 * equals the last value of its peer and, if the writer commits it, its shm_xfer is over. Only a
 * device stores done (rule B4). */
#define SHM_TRANSFERS 64u /* per peer */

struct shm_transfer {                 /* pages that devices can be given */
	uint64_t done[SHM_TRANSFERS]; /* device */
	/* p, before the transfer begins: all ones.  Device, before done: 1 + the first entry of
	 * the command whose bytes have another checksum */
	uint64_t bad[SHM_TRANSFERS];
	uint8_t pad[4096 - 16 * SHM_TRANSFERS];
	uint64_t rank[SHM_TRANSFERS][SHM_RANKS]; /* as done, by the devices of shm_xfer.rank */
};
_Static_assert(sizeof(struct shm_transfer) == 12288, "transfer layout");

#include "index/segment/shm_command.h"
#include "index/segment/shm_memory.h"
#include "index/segment/shm_tiers.h"

#endif
