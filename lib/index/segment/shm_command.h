/* SPDX-License-Identifier: Apache-2.0 */
/* shm_command.h - a command of a peer and its answer: an entry of a ring.  Part of shm.h.
 *
 * A group is `count` entries with one head: the first carries the arguments, each entry one block
 * of the answer.  All entries of a group are marked before the first one is.
 *
 *   command   its head (*: and each entry) has      the answer: result, and in each entry
 *   PUBLISH   block, key, parent, tag;              the block that has the key, or an error.  -ESTALE,
 *             SOURCE: source; SOURCE, UNCLEARED:    too: the source is not LIVE in that life; a clear came;
 *             seen; SINCE: since                    a block that it follows was dropped since, or it was
 *   FREE      block, life                           0
 *   RESERVE   pool, headroom, group_state           how many; block
 *   EVICT     pool, group_state; PEEK: headroom;    how many; block.  NAMED: why, 0 or an error
 *             NAMED: block*, key*: its key or 0
 *   DROP      block, key, life, alone               1: it was live, or its key had moved and was
 *   DEMOTE    pool, to_pool, any, group_state;      how many; block: what moves, to: its target
 *             block* unless `any`
 *   PROMOTE   to_pool, group_state; block*          how many; block, to
 *   DEMOTE,   the same, and transfer, rank          the same, and in the entry behind the last one the
 *   PROMOTE                                         reason: -EALREADY, another peer computes or
 *                                                   loads it; -ENOSPC, -EDQUOT, -ESTALE ...  Of the
 *                                                   first entry -EALREADY, too: a transfer of
 *                                                   another life of this name, or of a name that is
 *                                                   not over
 *   CUT       transfer, from                        0: the targets of its entries from there on, into
 *                                                   which nothing was or will be copied, are
 *                                                   refused
 *   CLAIM     block, key, life                      block; state: CLAIM_MINE ...: that block is to
 *                                                   have the key, or has it; ahead: older claims of
 *                                                   its owner that are open
 *   UNCLAIM   block, life                           1: it was claimed
 *   ALIAS     key, means: the key it stands for     0
 *   ROOT      key; its words: the seat's `request`  0
 *   COMMIT    block*, to*, move_op*                 of each entry: 0, or an error
 *   CLEAR     pool, tag, generation                 blocks that are still held; IDLE: -EBUSY, block: so
 *                                                   many are; before it, begun: 1, none is
 *   POOL      the seat's `request`                  the pool's number
 *   NOP       nothing                               0: what came before is done
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
	/* EVICT: its blocks are reserved; only name; with TAKE, these */
	CF_TAKE = 1 << 4,
	CF_PEEK = 1 << 5,
	CF_NAMED = 1 << 6,
	CF_COPY = 1 << 7,   /* DEMOTE, PROMOTE */
	CF_CANCEL = 1 << 8, /* COMMIT */
	/* PUBLISH: no parent is looked for; only if `source` still has that life; only if the
	 * block's pool has had so many clears */
	CF_UNCHAINED = 1 << 9,
	CF_SOURCE = 1 << 10,
	CF_UNCLEARED = 1 << 11,
	CF_FREE = 1 << 12, /* RESERVE: nothing is evicted for it, now or soon after */
	/* CLEAR; IDLE: only if nobody holds any of it */
	CF_REMOVE = 1 << 13,
	CF_IDLE = 1 << 14,
	/* PUBLISH: not below a block dropped since */
	CF_SINCE = 1 << 15
};

#define CMD_PENDING INT32_MIN /* result of a command that is not done */

/* For a group that is given blocks: does its owner still wait?  Owner and writer compare and
 * swap, so a call whose time is up knows that nothing will be given to it. */
enum { GROUP_OPEN = 0, GROUP_WITHDRAWN = 1 /* p */, GROUP_GRANTED = 2 /* w */ };

enum { CLAIM_MINE = 1, CLAIM_LIVE = 2, CLAIM_PENDING = 3 }; /* answers to claims, in `state` */

/* In all of them a life is the generation of the block that is meant + 1; 0: any. */

struct shm_cmd_publish {
	uint64_t key[2], parent[2];
	uint32_t tag;
	int32_t source; /* SOURCE: the block that the bytes were read from */
	/* SOURCE: its life.  UNCLEARED: the clears of the block's pool as the publisher knows them,
	 * the lower half */
	uint32_t seen;
	/* SINCE: the lower half of dropped_next() of before what it was computed from was looked
	 * for */
	uint32_t since;
};
_Static_assert(sizeof(struct shm_cmd_publish) == 48, "publish layout");

struct shm_cmd_life { /* FREE, UNCLAIM */
	uint32_t life;
};
_Static_assert(sizeof(struct shm_cmd_life) == 4, "life layout");

struct shm_cmd_drop {
	uint64_t key[2]; /* EVERYWHERE: that the block has, or had in that life */
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
	uint64_t headroom; /* PEEK: victims that are passed over */
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
	uint64_t from; /* entry of the transfer's command */
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
