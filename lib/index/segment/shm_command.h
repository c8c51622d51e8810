/* SPDX-License-Identifier: Apache-2.0 */
/* shm_command.h - a command of a peer and its answer: an entry of a ring.  Part of shm.h.
 *
 * A group is `count` entries with one head: the first carries the arguments, each entry one block
 * of the answer.  All entries of a group are marked before the first one is.
 *
 * In the table * marks a field that each entry of a group has, and a name before a colon is a
 * flag.
 *
 *   command   arguments                             answer: result, and in each entry
 *   PUBLISH   block, key, parent, tag               The block that has the key, or an error.
 *             SOURCE: source, seen                  -ESTALE, too, if the source is not LIVE in that
 *             UNCLEARED: seen                       life, if the pool was cleared meanwhile, or if
 *             SINCE: since                          the key or one that it follows was dropped since.
 *   FREE      block, life                           0
 *   RESERVE   pool, headroom, group_state           The number of blocks; block.
 *   EVICT     pool, group_state                     The number of blocks; block.  NAMED: why, which is
 *             PEEK: headroom                        0 or an error.
 *             NAMED: block*, key* (or 0)
 *   DROP      block, key, life, alone               1 if the key was live, or had moved and was
 *                                                   dropped in its new block; else 0.
 *   DEMOTE    pool, to_pool, any, group_state       The number of moves; block: the source, to: its
 *             block* unless `any`                   target.
 *   PROMOTE   to_pool, group_state, block*          The number of moves; block, to.
 *   DEMOTE,   the same, and transfer, rank          The same, and in the entry behind the last move
 *   PROMOTE                                         the reason of the end: -EALREADY, another peer
 *   of a                                            computes or loads the next; -ENOSPC, -EDQUOT,
 *   transfer                                        -ESTALE ...  The first entry may have -EALREADY
 *                                                   also if a transfer of this name is not over,
 *                                                   or if the name is of another life.
 *   CUT       transfer, from                        0.  The targets of the entries from there on are
 *                                                   refused: no copy into them was or will be begun.
 *   CLAIM     block, key, life                      state: CLAIM_MINE ...; block: the block that is
 *                                                   to have the key, or has it; ahead: older open
 *                                                   claims of that block's owner.
 *   UNCLAIM   block, life                           1: it was claimed.
 *   ALIAS     key, means: the key it stands for     0
 *   ROOT      key; its words are in the seat's      0
 *             `request`
 *   COMMIT    block*, to*, move_op*                 0 or an error, for each entry.
 *   CLEAR     pool, tag, generation                 The number of blocks that are still held.
 *                                                   IDLE: -EBUSY, and block: their number; if there
 *                                                   is none, begun becomes 1 before the clear.
 *   POOL      the seat's `request`                  The pool's number.
 *   NOP       nothing                               0: all commands before it are done.
 * Every result may be a negative errno; of a group it is the first entry's.
 * Tests: t/pages/segment-page.t */
#ifndef GPC_SHM_COMMAND_H
#define GPC_SHM_COMMAND_H

#include <stdint.h>

enum {
	CMD_NONE = 0,
	CMD_PUBLISH, /* what each one means: see above */
	CMD_FREE,
	CMD_RESERVE,
	CMD_EVICT,
	CMD_DROP,
	CMD_DEMOTE,
	CMD_PROMOTE,
	CMD_COMMIT,
	CMD_CLEAR,
	CMD_POOL,
	CMD_NOP,
	CMD_CUT,
	CMD_CLAIM,
	CMD_UNCLAIM,
	CMD_ALIAS,
	CMD_ROOT,
	CMD_LAST = CMD_ROOT
};

/* flags of all commands: each flag has its own value */
enum {
	/* RESERVE */
	CF_PARTIAL = 1 << 0,
	CF_TRY = 1 << 1, /* any group that is given blocks */
	/* DROP: the key and its descendants, in every space */
	CF_EVERYWHERE = 1 << 2,
	CF_STOCK = 1 << 3, /* EVICT with TAKE, too: for a stock */
	/* EVICT.  TAKE: its blocks are reserved.  PEEK: it only names them.  NAMED, with TAKE:
	 * these blocks. */
	CF_TAKE = 1 << 4,
	CF_PEEK = 1 << 5,
	CF_NAMED = 1 << 6,
	CF_COPY = 1 << 7,   /* DEMOTE, PROMOTE */
	CF_CANCEL = 1 << 8, /* COMMIT */
	/* PUBLISH.  UNCHAINED: no parent is looked for.  SOURCE: only if `source` still has that
	 * life.  UNCLEARED: only if the block's pool has had as many clears as `seen` says. */
	CF_UNCHAINED = 1 << 9,
	CF_SOURCE = 1 << 10,
	CF_UNCLEARED = 1 << 11,
	CF_FREE = 1 << 12, /* RESERVE: nothing is evicted for it, now or soon after */
	/* CLEAR.  IDLE: only if nobody holds any of it. */
	CF_REMOVE = 1 << 13,
	CF_IDLE = 1 << 14,
	/* PUBLISH: not below a block that was dropped since */
	CF_SINCE = 1 << 15
};

#define CMD_PENDING INT32_MIN /* result of a command that is not done */

/* For a group that is given blocks: does its owner still wait?  Owner and writer compare and
 * swap.  So a call whose time is up knows that it will be given nothing. */
enum { GROUP_OPEN = 0, GROUP_WITHDRAWN = 1 /* p */, GROUP_GRANTED = 2 /* w */ };

enum { CLAIM_MINE = 1, CLAIM_LIVE = 2, CLAIM_PENDING = 3 }; /* answers to claims, in `state` */

/* In all commands a life is 1 + the generation of the block that is meant; 0: any. */

struct shm_cmd_publish {
	uint64_t key[2], parent[2];
	uint32_t tag;
	int32_t source; /* SOURCE: the block that the bytes were read from */
	/* SOURCE: its life.  UNCLEARED: the lower half of the clears of the block's pool, as the
	 * publisher knows them. */
	uint32_t seen;
	/* SINCE: the lower half of dropped_next(), read before the publisher looked up the blocks
	 * that it computed from. */
	uint32_t since;
};
_Static_assert(sizeof(struct shm_cmd_publish) == 48, "publish layout");

struct shm_cmd_life { /* FREE, UNCLAIM */
	uint32_t life;
};
_Static_assert(sizeof(struct shm_cmd_life) == 4, "life layout");

struct shm_cmd_drop {
	uint64_t key[2]; /* EVERYWHERE: the key that the block has, or had in that life */
	uint32_t life;
	uint8_t alone; /* 1: the key's descendants stay */
	uint8_t pad0[3];
};
_Static_assert(sizeof(struct shm_cmd_drop) == 24, "drop layout");

struct shm_cmd_claim {
	uint64_t key[2];
	uint32_t life;
	int32_t state;  /* out */
	uint32_t ahead; /* out */
	uint8_t pad0[4];
};
_Static_assert(sizeof(struct shm_cmd_claim) == 32, "claim layout");

struct shm_cmd_reserve {
	uint64_t headroom; /* blocks that the pool must still be able to give */
};
_Static_assert(sizeof(struct shm_cmd_reserve) == 8, "reserve layout");

struct shm_cmd_evict {
	uint64_t headroom; /* PEEK: this many victims are passed over */
	uint64_t key[2];
	int32_t why; /* out */
	uint8_t pad0[4];
};
_Static_assert(sizeof(struct shm_cmd_evict) == 32, "evict layout");

struct shm_cmd_move {            /* DEMOTE, PROMOTE */
	uint64_t transfer;       /* value << 6 | channel; 0: the peer commits */
	uint8_t rank[SHM_RANKS]; /* with a transfer: as in shm_xfer */
	int32_t to;              /* out */
	uint8_t to_pool;
	uint8_t any; /* DEMOTE: 1: the writer chooses what moves */
	uint8_t pad0[2];
};
_Static_assert(sizeof(struct shm_cmd_move) == 32, "move layout");

struct shm_cmd_commit {
	uint64_t move_op; /* `op` of the target's record */
	int32_t to;
	uint8_t pad0[4];
};
_Static_assert(sizeof(struct shm_cmd_commit) == 16, "commit layout");

struct shm_cmd_clear {
	uint64_t generation; /* of the pool that is meant; 0: any */
	uint32_t tag;
	uint32_t begun; /* w */
};
_Static_assert(sizeof(struct shm_cmd_clear) == 16, "clear layout");

struct shm_cmd_cut {
	uint64_t transfer;
	uint64_t from; /* the first entry of the transfer's command that is cut */
};
_Static_assert(sizeof(struct shm_cmd_cut) == 16, "cut layout");

struct shm_cmd_alias {
	uint64_t key[2], means[2];
};
_Static_assert(sizeof(struct shm_cmd_alias) == 32, "alias layout");

struct shm_cmd_root {
	uint64_t key[2];
};
_Static_assert(sizeof(struct shm_cmd_root) == 16, "root layout");

struct shm_command {
	uint8_t op, pool;
	uint16_t flags;
	uint32_t count; /* entries of the group, this one included; 0 in followers */
	int32_t block;
	int32_t result; /* (R) CMD_PENDING, then the answer */
	union {
		struct shm_cmd_publish publish;
		struct shm_cmd_life free, unclaim;
		struct shm_cmd_drop drop;
		struct shm_cmd_claim claim;
		struct {                      /* a group that is given blocks */
			uint64_t group_state; /* p, w: GROUP_OPEN ... */
			union {
				struct shm_cmd_reserve reserve;
				struct shm_cmd_evict evict;
				struct shm_cmd_move move;
			};
		};
		struct shm_cmd_commit commit;
		struct shm_cmd_clear clear;
		struct shm_cmd_cut cut;
		struct shm_cmd_alias alias;
		struct shm_cmd_root root;
	};
};
_Static_assert(sizeof(struct shm_command) == 64, "command layout");

#endif
