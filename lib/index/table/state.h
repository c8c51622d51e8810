/* SPDX-License-Identifier: Apache-2.0 */
/* state.h - the writer's private memory, and the places of the segments that it writes.
 *
 * Records are the truth (shm.h).  Everything here is derived from them.  A scan rebuilds it when
 * another process takes the seat (takeover/), so none of it has to survive.
 * Tests: t/index/counts.t t/index/given-up.t t/look/check-writer.t */
#ifndef GPC_TABLE_STATE_H
#define GPC_TABLE_STATE_H

#include "index/peer/handle.h"
#include "index/segment/hooks.h"
#include "index/segment/lockfile.h"
#include "index/segment/settings.h"
#include "kernels/probe.h"

#define NONE 0xffffffffu /* no record, no entry */

#define FRESH 1024u /* published blocks that wait to enter the queue */

struct records {
	uint32_t *at, n, size;
}; /* a list that grows */

/* One for each record, half a cache line.
 *
 *   in_tree      The record has a place in the tree: it is LIVE without REC_MOVED.  Otherwise it has
 *                no links and no blockers.
 *   blockers     The number of its children that tree_blocks() counts, without those that are
 *                counted_out.
 *   selected     lru_pick() has chosen it as a victim: it is a leaf in no queue.  That lasts until
 *                it is retired or put back by the same call: of a grant, refill(), peek() or
 *                pick_sources().
 *   counted_out  It is selected, and its parent's blockers do not count it any more, so that the
 *                parent can be chosen after it.
 *   pins         The number of uncommitted moves that read it.  It is no victim meanwhile.  A drop,
 *                a clear or a publish over it still happens, and the commit answers -ESTALE.
 *   readers      The number of its pins that belong to bound targets of transfers.  It is not FREE
 *                before the last of them has gone (rule B6).  There is at most one in each space.
 *   moving       One pin belongs to a move, and no other pin exists.  Otherwise all pins
 *                belong to copies.
 *   bound        It is RESERVED, and the target of a transfer that is answered and has not decided
 *                it yet.
 *   pending      Its key has an entry in the table of pending.c, and the entry names this record.
 *   claimed      ... because its peer claims the key, and not because a transfer brings it.
 *   leaving      The record has REC_LEAVING, is LIVE and in the tree.
 *   waits        It is in the list `leaving` of one batch, and counted in its pool's `leaving`.  If
 *                the flag `leaving` was taken back in between (leave_stay), the end of the batch
 *                does nothing to it.
 *   listed       It is RESERVED, and in its owner's list (union owned).
 *   doomed       The drop that is being carried out takes it, and has it in its list.
 *   ticket       odd: it has an item in its pool's queue.
 *
 * A leaf is LIVE and in the tree, not selected, without pins and blockers; if it is leaving, it
 * does not wait (lru_is_leaf).  Each leaf is in the queue or in `fresh`.  A function that makes a
 * leaf calls lru_offer().  A block that is no leaf any more may stay in the queue, and is passed
 * over at the front. */
struct node {
	uint32_t parent, first, next, prev; /* NONE: there is none */
	uint32_t blockers;
	uint32_t ticket;
	uint32_t pins;
	uint16_t readers;
	bool in_tree : 1, selected : 1, listed : 1;
	bool counted_out : 1;
	bool leaving : 1;
	bool waits : 1;
	bool moving : 1;
	bool bound : 1;
	bool pending : 1, claimed : 1;
	bool doomed : 1;
};

_Static_assert(sizeof(struct node) == 32, "no node on two cache lines");

/* The writer's notes of a bucket, in addition to its entries. */
struct books {
	/* The number of entries of its keys that are in their second bucket.  It may be all
	 * entries of the table, if peers choose their keys so. */
	uint32_t spilled;
	uint8_t retired; /* bit i: entry i is retired; high half: from takeover on */
};

struct pending {
	gpc_key key;
	uint32_t space, record;
}; /* record + 1; 0: empty */

/* From that number up to these drops, no drop took this key or an ancestor. */
struct dropped_good {
	uint64_t key[2], since, drops;
	uint32_t space;
};

/* The writer's own part of the ring of dropped keys (dropped.c); NULL: nothing was dropped. */
struct dropped {
	/* by hash of a key: the first place + 1; by place: the next place + 1 */
	uint32_t *first, *next;
	uint64_t *ns;                  /* by place: the time of its drop; 0: by an earlier writer */
	struct dropped_good *good;     /* by hash of a key */
	uint64_t last[GPC_MAX_SPACES]; /* the last drop of a key of a block there */
	uint64_t all;                  /* the last drop that took the descendants of its keys */
};

union owned {
	struct {
		uint32_t next, prev;
	};                /* RESERVED: links of the peer's list */
	uint64_t born_ns; /* LIVE: the time of the publish; 0: before this writer */
};

/* The leaves of a pool, oldest first (index/table/queue.c). */
struct leaf {
	uint64_t stamp;
	uint32_t depth, record, ticket;
};

struct queued {
	uint64_t stamp;
	uint32_t ticket, record;
};

struct bag {
	uint64_t from;
	struct queued *at;
	uint32_t n, size;
};

struct queue {
	struct leaf *front; /* the oldest, in order, from front_at on */
	uint32_t front_at, nfront, front_size;
	struct leaf *heap; /* items of the same time that came later */
	uint32_t nheap, heap_size;
	struct bag *bags; /* all other leaves, by age, from `first` on */
	uint32_t first, nbags, bags_size;
	uint32_t queued, stale; /* items */
	uint32_t hand;          /* bag that is cleaned next */
	uint64_t newest;        /* no stamp is above it */
};

struct wpool {
	uint32_t state, generation, first, slots, blocks, kind, flags, space;
	int32_t owner, demote_to;
	uint32_t *free, nfree; /* stack: last returned first; then ascending */
	uint32_t live, reserved, dying;
	/* Blocks in their grace period that are promised to nobody: DYING, or REC_MOVED, which
	 * counts as dying. */
	uint32_t coming;
	uint32_t leaving;   /* LIVE blocks that are in a batch, and go when it is over */
	uint32_t lingering; /* the DYING ones with REC_LINGERS */
	struct queue queue;
	bool removing;
	uint64_t memory, block_bytes; /* 0: it has none */
	uint8_t fingerprint[32];
};

struct wpeer {
	uint64_t next, tail; /* ring positions: to start, to acknowledge */
	/* lists of nodes: of CALLER blocks, and of all other blocks */
	uint32_t reserved_own, reserved;
	uint32_t nreserved;  /* blocks that count against the quota */
	bool seated;         /* its seat was seen taken, and is not reaped yet ... */
	struct identity who; /* ... by the process that took it */
	bool lost;    /* its lock is free, and its process or a companion may still be there */
	bool stalled; /* a publish waits for a bucket: the ring waits with it */
	bool stocked; /* its stock was given blocks */
	bool mourned; /* its death is logged, and its seat is not free yet */
	/* holders.c: the time of the next look at its column, and the pause until the one after */
	uint64_t look_ns, look_pause_ns;
	bool rang;       /* it has sent something after the last look at transfers */
	uint32_t claims; /* open claims */
	/* their records from claimed_at on, the oldest first */
	struct records claimed;
	uint32_t claimed_at;
	uint32_t published; /* a record, mostly the last one that it published */
	struct transfer
		*transfer[SHM_TRANSFERS]; /* of this peer, by channel; NULL: none under way */
	uint64_t announced; /* bit: that channel's transfer has begun, and is not over yet */
	uint64_t again;     /* ring position: a dead writer may have run the commands before it */
	bool commit_known;  /* index/writer/move.c: the first entry's own result, kept for last */
	int32_t commit_result;
};

/* The time when each tick was the present one (index/table/meter.c).  There are levels: each looks
 * back four times as far as the one before, and is four times as coarse. */
#define MOMENT_LEVELS 12
#define MOMENTS       64
struct moment {
	uint64_t tick, ns;
};
/* the last one is at (n - 1) % MOMENTS */
struct moments {
	struct moment at[MOMENTS];
	uint32_t n;
};
struct moment_span {
	uint64_t after, upto, ns;
}; /* a range of ticks that have the same answer */
/* nanoseconds that count as these milliseconds, in that cell */
struct observed {
	uint64_t from, upto, ms;
	uint32_t cell;
};

struct wmirror {
	const struct mirror_ops *ops;
	void *mirror;
	bool flushing, retired;
};

struct writer {
	gpc *c;             /* the handle that holds the seat */
	struct segment seg; /* like c's, with `index` mapped read-write */
	int lock_fd;        /* own description of the lock file */
	bool reaps;         /* it clears seats and serves nobody */
	/* index/table/alloc.c: what it has; what its takeover's threads have */
	struct writer_memory *memory, *scan;
	uint32_t max_blocks, max_peers, max_pools, buckets;
	struct { /* places of seg that are needed all the time: w_places() */
		struct shm_record *record;
		struct shm_state *state;
		struct shm_pool *pool;
		struct shm_tally *tally;
		struct shm_change *change;
		uint64_t change_mask;
		uint64_t *holders;
		uint64_t *tick;
	} at;

	struct node *node; /* of each record ... */
	union owned *owned;
	uint8_t *pool_of;
	struct wpool pool[GPC_MAX_POOLS + 1];
	struct wpeer *peer;

	/* index/table/table.c */
	struct probe_entry *table;
	struct books *books;                              /* per bucket */
	struct relocation *relocations, *old_relocations; /* those that are over are spare memory */
	struct probe_key due[2];                          /* keys whose buckets were both full */
	uint32_t ndue;

	/* index/table/grace.c */
	struct grace *open, *flushing, *grace, **grace_end;
	struct grace *spare; /* empty batches, for later use */
	uint64_t last_cookie;

	/* index/table/parked.c: one list for each peer, and behind these one for blocks that only
	 * transfers read */
	struct parked *parked;
	uint64_t has_parked[GPC_MAX_PEERS / 64 + 1]; /* bit: that list is not empty */
	/* blocks in all lists; the list that housekeeping looks at next */
	uint32_t nparked, parked_next;

	/* index/writer/retire.c */
	struct quarantine *quarantine;
	/* [0, hand) are still to be looked at */
	uint32_t nquarantine, quarantine_size, quarantine_hand;

	/* index/table/pending.c */
	struct pending *pending;
	uint32_t pending_size, npending;
	uint64_t ended_waits[SHM_WAITS / 64]; /* words whose waiters the pass will wake */
	bool has_ended_waits;

	/* index/writer/grant.c */
	struct grant *grants, **grants_end;
	struct leftover *leftover;
	uint32_t nleftover, leftover_size;
	struct records needy;            /* scratch: items of a grant that need a block */
	uint32_t *picked, picked_size;   /* scratch: victims */
	uint32_t *subtree, subtree_size; /* scratch: subtrees */
	struct leaf *aside;              /* scratch: leaves in use */
	uint32_t aside_size;

	/* index/writer/transfer.c */
	struct transfer *transfers; /* of all peers, that are under way */
	struct records order;       /* scratch: targets in the order of their commit */

	/* index/table/uses.c */
	/* the end up to which the window is being moved; 0: it is not being moved */
	uint64_t uses_upto;
	uint64_t uses_again_ns;
	uint32_t uses_at;

	/* index/table/lru.c */
	/* published after the last pick, and perhaps not queued yet */
	uint32_t fresh[FRESH], nfresh;

	/* index/table/mirror.c */
	struct wmirror mirror[SHM_MIRRORS];
	uint32_t nmirrors;
	uint32_t *dirty, ndirty, dirty_size;
	uint64_t *dirty_bit;
	bool status_dirty; /* the pools or spaces differ from those that the mirrors show */
	struct launch_change *changes;
	uint32_t changes_size;
	uint64_t flush_sequence, flush_deadline_ns;

	uint32_t cleared_pool;  /* the blocks of this pool go without changes of their own */
	struct dropped dropped; /* keys */
	struct records doomed;  /* scratch: the blocks that a drop takes */
	bool dropping; /* drop.c: the blocks that go now have bad bytes, and the feed says so */
	struct records missing; /* takeover: LIVE, without an entry */
	struct records twice;   /* takeover: entries whose block has another entry */
	/* index/writer/sweep.c */
	bool sweep_is_due; /* there were files that no pool names */
	uint64_t sweep_again_ns, sweep_pause_ns;

	/* index/writer/loop.c: bits of peers, as in shm_shared.pending */
	uint64_t active[4];   /* peers that may have commands: they rang, or were not drained */
	uint64_t answered[4]; /* results stored after the last wake */
	/* index/table/meter.c */
	uint64_t began_ns; /* this writer */
	uint64_t now_ns;   /* time of this pass: close enough, and free of cost */
	struct moments moments[MOMENT_LEVELS];
	struct moment_span asked[2]; /* the last two answers */
	struct observed observed[2];

	uint64_t awake_until_ns;    /* somebody has asked for something just before */
	uint64_t next_housekeep_ns; /* reaping and other slow checks */
	/* holders.c: the time of the next look at which peers have references */
	uint64_t refs_look_ns;
	uint32_t nseated; /* peers */
	/* reap.c: the time between looks at lost peers; 0: no peer is lost */
	uint64_t lost_pause_ns;
	uint64_t look_behind_ns; /* and the time of the next look behind locks that are held */
	/* at the last look there was no other peer, and nothing waited */
	bool alone;
	/* A command, a grant or a refill may get now the thing that it waits for, so the pass
	 * makes another round.  It is set by functions that make blocks, entries or seats usable:
	 * record_freed, record_return, table_entry_usable, table_copies_done, leave_batch,
	 * reap_seat and the end of a takeover.  It is also set by a grant that begins, or that has
	 * to look for another victim.  Only the pass lowers it, before each round. */
	bool progress;
};

/* Called after each change of seg. */
static inline void w_places(struct writer *w)
{
	uint8_t *index = w->seg.index;

	w->at.record = SEG_AT(index, w->seg.at.record, struct shm_record, 0);
	w->at.state = SEG_AT(index, w->seg.at.state, struct shm_state, 0);
	w->at.pool = SEG_AT(index, w->seg.at.pool, struct shm_pool, 0);
	w->at.tally = SEG_AT(index, w->seg.at.tally, struct shm_tally, 0);
	w->at.change = SEG_AT(index, w->seg.at.change, struct shm_change, 0);
	w->at.change_mask = w->seg.header.geometry.changes - 1;
	w->at.holders = seg_shared(&w->seg)->holders;
	w->at.tick = &seg_shared(&w->seg)->tick;
}

static inline struct shm_state *w_state(struct writer *w)
{
	return w->at.state;
}

/* A writer changes its segment between these two calls, or in a pass: the end of one pass is the
 * beginning of the next, and nothing is half done there.  A check that has a copy can tell whether
 * the writer was at rest, or has gone on.  (q) the number is odd before the first change and even
 * after the last; pairs with look/check_pace.c.  A writer that dies in between leaves it odd.  Its
 * successor repairs the segment, and begins a pass. */
static inline void w_pass_begin(struct writer *w)
{
	store_relaxed(&w_state(w)->passes, (w_state(w)->passes + 1) | 1);
	order_stores();
}

static inline void w_pass_end(struct writer *w)
{
	order_stores();
	store_relaxed(&w_state(w)->passes, (w_state(w)->passes | 1) + 1);
}

static inline struct shm_record *w_record(struct writer *w, uint32_t record)
{
	return w->at.record + record;
}

static inline struct shm_tally *w_tally(struct writer *w, uint32_t peer)
{
	return w->at.tally + peer;
}

static inline struct shm_pool *w_pool(struct writer *w, uint32_t pool)
{
	return w->at.pool + pool;
}

/* The numbers of a pool's blocks by state, for tools.  They change after each change of a record's
 * word, or of the words of one command.  A writer that dies between the two leaves them wrong by
 * these blocks, until its successor has counted. */
static inline void w_tell(struct writer *w, uint32_t pool)
{
	const struct wpool *p = &w->pool[pool];
	struct shm_pool *d = w_pool(w, pool);

	store_relaxed(&d->live, p->live);
	store_relaxed(&d->reserved, p->reserved);
	store_relaxed(&d->dying, p->dying);
	store_relaxed(&d->lingering, p->lingering);
}

/* Blocks that count against the capacity, which is a number of keys.  The rest of the capacity is
 * the room while no grant waits for a victim (room_of() of grant_place.c).  A dropped block that
 * somebody holds has no key: it takes a slot, and is not charged.  If it were charged, a swap
 * would lose a live key beside a free slot (t/model/capacity.pml). */
static inline uint32_t w_charged(const struct wpool *p)
{
	return p->live + p->reserved;
}

static inline uint32_t w_room(const struct wpool *p)
{
	return p->blocks > w_charged(p) ? p->blocks - w_charged(p) : 0;
}

/* The free blocks that the writer provides ahead of demand, in a pool whose victims are not
 * copied.  It evicts when fewer than half of them are free. */
static inline uint32_t w_ahead(const struct writer *w, const struct wpool *p)
{
	int32_t made = w->seg.header.free_target;

	if (p->demote_to >= 0 || (p->flags & GPC_POOL_CALLER))
		return 0;
	return MIN((uint32_t)setting_of(&w->seg, GPC_SET_FREE_TARGET, (uint64_t)MAX(made, 0)),
		   p->blocks / 16);
}

/* A key was lost, and no peer's tally counts it. */
static inline void w_count_lost(struct writer *w)
{
	struct shm_past *past = &w_state(w)->past;

	store_relaxed(&past->evicted, past->evicted + 1);
}

/* A block that was to leave for another space, which has its key by now, stays for good. */
static inline void w_count_stays(struct writer *w)
{
	struct shm_past *past = &w_state(w)->past;

	store_relaxed(&past->published, past->published + 1);
}

static inline uint32_t w_word(struct writer *w, uint32_t record)
{
	return load_relaxed(&w_record(w, record)->word);
}

static inline bool w_is(struct writer *w, uint32_t record, uint32_t state)
{
	return WORD_STATE(w_word(w, record)) == state;
}

/* A command names 1 + the generation that it means, or 0 for any.  When a successor runs the
 * command again, its block may be somebody else's by now. */
static inline bool w_means(struct writer *w, uint32_t record, uint32_t life)
{
	return !life || life == WORD_GEN(w_word(w, record)) + 1;
}

static inline struct wpool *w_pool_of(struct writer *w, uint32_t record)
{
	return &w->pool[w->pool_of[record]];
}

static inline gpc_block w_block(struct writer *w, uint32_t record)
{
	return GPC_BLOCK(w->pool_of[record], (gpc_block)(record - w_pool_of(w, record)->first));
}

static inline gpc_key w_key(struct writer *w, uint32_t record)
{
	const struct shm_record *r = w_record(w, record);

	return (gpc_key){ { r->key[0], r->key[1] } };
}

static inline uint32_t w_space(struct writer *w, uint32_t record)
{
	return w_pool_of(w, record)->space;
}

/* There are results, or something else that the peer may wait for: it is woken. */
static inline void w_answered(struct writer *w, uint32_t peer)
{
	w->answered[peer / 64] |= 1ull << peer % 64;
}

/* A command ends. */
static inline void w_answer(struct writer *w, uint32_t peer, uint64_t position, int32_t result)
{
	/* (R) the answer is stored after everything that it stands for; pairs with the load in
	 * ring.c.  Before it a successor runs the command again. */
	store_release(&seg_command(&w->seg, peer, position)->result, result);
	w_answered(w, peer);
}

/* The record of a block id that a command names; NONE if it is out of range. */
static inline uint32_t w_find_record(struct writer *w, gpc_block block)
{
	uint32_t pool = (uint32_t)block >> 24, slot = (uint32_t)block & 0xffffff;

	if (block < 0 || pool >= w->max_pools || slot >= w->pool[pool].slots)
		return NONE;
	return w->pool[pool].first + slot;
}

/* The seats whose columns may have cells: 64 of them, as bits. */
static inline uint64_t w_holders(struct writer *w, uint32_t i)
{
	uint32_t n = w->max_peers - MIN(w->max_peers, i * 64);

	return load_acquire(&w->at.holders[i]) & (n < 64 ? (1ull << n) - 1 : UINT64_MAX);
}

/* The first of them from this seat on; max_peers: there is none. */
static inline uint32_t w_next_holder(struct writer *w, uint32_t peer)
{
	uint64_t bits;

	for (; peer < w->max_peers; peer = (peer | 63) + 1) {
		bits = w_holders(w, peer / 64) >> peer % 64;
		if (bits)
			return peer + (uint32_t)__builtin_ctzll(bits);
	}
	return w->max_peers;
}

/* Does this peer hold nothing of the block?  If the peer gave the block up before the command that
 * made it live was answered, nobody holds it, and the peer need not come back.  The cell ends here
 * then (index/peer/hold.h). */
static inline bool w_cell_is_zero(struct writer *w, uint32_t record, uint32_t peer)
{
	uint16_t *cell = seg_cell(&w->seg, record, peer);
	uint16_t had = load_acquire(cell); /* pairs with (c) of index/peer/refs.c */

	if (__builtin_expect(had != CELL_BACK, 1))
		return !had;
	return (w_is(w, record, LIVE) || w_is(w, record, DYING)) && order_cas16(cell, &had, 0);
}

/* No cell of the block is raised.  A peer that raises one later and then sets its bit sees the
 * stores that came before this look. */
static inline bool w_row_is_zero(struct writer *w, uint32_t record)
{
	uint32_t i;
	uint64_t bits;

	for (i = 0; i * 64 < w->max_peers; i++)
		for (bits = w_holders(w, i); bits; bits &= bits - 1)
			if (!w_cell_is_zero(w, record, i * 64 + (uint32_t)__builtin_ctzll(bits)))
				return false;
	return true;
}

/* Its cells will be read soon. */
static inline __attribute__((always_inline)) void w_row_prefetch(struct writer *w, uint32_t record)
{
	uint64_t bits;
	uint32_t i;

	for (i = 0; i * 64 < w->max_peers; i++)
		for (bits = w_holders(w, i); bits; bits &= bits - 1)
			__builtin_prefetch(seg_cell(&w->seg, record,
						    i * 64 + (uint32_t)__builtin_ctzll(bits)));
}

static inline uint64_t w_tick(struct writer *w)
{
	return load_relaxed(w->at.tick);
}

#endif
