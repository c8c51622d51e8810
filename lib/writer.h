/* SPDX-License-Identifier: Apache-2.0 */
/* writer.h - the writer's private memory, and the functions by which its files meet.
 *
 * Records are the truth (shm.h).  All that stands here is derived: it is rebuilt by a scan
 * when another process takes the seat (takeover.c), so nothing here needs to survive.
 *
 *   writer.c    the seat's life, the serving loop        command.c   one command each
 *   table.c     entries, buckets, relocation             grant*.c    reserve, evict, begin moves
 *   tree.c      parents and children                     move.c      commit of moves
 *   lru.c       who goes next                            leave.c     what they moved from
 *   queue.c     leaves by age                            pools.c     pools come and go, clear
 *   retire.c    flush, grace period, reuse               reap.c      the dead
 *   mirror.c    copies on devices                        takeover*.c from what is left
 *   feed.c      changes for the outside                  recall.c    from stocks */
#ifndef GPC_WRITER_H
#define GPC_WRITER_H

#include "device.h"
#include "handle.h"
#include "lockfile.h"
#include "probe.h"

#define NONE 0xffffffffu                 /* no record, no slot */
#define FRESH 1024u                      /* published blocks that wait for the queue */

struct records { uint32_t *at, n, size; };       /* a list that grows */
struct moved { uint32_t from, to; };             /* to: NONE, it is not known any more */

/* One per record, half a cache line. */
struct node {
	uint32_t parent, first, next, prev;      /* tree of LIVE blocks and of moves in limbo */
	uint32_t hot;                    /* children that keep this block from going (tree.c) */
	uint32_t ticket;                 /* of its item in the pool's queue; even: it has none */
	uint32_t pins;                   /* uncommitted moves that read this block */
	bool in_tree : 1, selected : 1, listed : 1;
	bool counted_out : 1;            /* selected: the parent's hot does not count it */
	bool leaving : 1;                /* REC_LEAVING ... */
	bool waits : 1;                  /* ... and in a batch, to go when that is over */
};
_Static_assert(sizeof(struct node) == 32, "no node on two cache lines");

struct owned { uint32_t next, prev; };   /* RESERVED blocks of one peer */

/* The leaves of a pool, oldest first (queue.c). */
struct leaf { uint64_t stamp; uint32_t depth, record, ticket; };
struct queued { uint64_t stamp; uint32_t ticket, record; };
struct bag { uint64_t from; struct queued *at; uint32_t n, size; };

struct queue {
	struct leaf *front;              /* the oldest, in order, from front_at on */
	uint32_t front_at, nfront, front_size;
	struct leaf *heap;               /* as old, but come later */
	uint32_t nheap, heap_size;
	struct bag *bags;                /* the others, by age, from `first` on */
	uint32_t first, nbags, bags_size;
	uint32_t queued, stale;          /* items */
	uint32_t hand;                   /* bag that is cleaned next */
	uint64_t newest;                 /* no stamp is above it */
};

struct wpool {
	uint32_t state, generation, first, slots, blocks, kind, flags, space;
	int32_t keeper, demote_to;
	uint32_t *free, nfree;           /* stack: last returned first; then ascending */
	uint32_t live, reserved, dying;
	uint32_t coming;                 /* in their grace period, promised to nobody: DYING, or
	                                  * REC_MOVED, which counts as dying */
	uint32_t leaving;                /* LIVE, and in a batch, to go when that is over */
	uint32_t outward;                /* promotions out of this pool that are not committed */
	uint32_t lingering;              /* CALLER: those of the DYING with REC_LINGERS */
	struct queue queue;
	bool removing;
};

struct wpeer {
	uint64_t next, tail;             /* ring positions: to start, to acknowledge */
	uint32_t reserved;               /* list of nodes */
	uint32_t nreserved;              /* those that count against the quota */
	bool seated;                     /* seen taken since it was reaped last ... */
	struct identity who;             /* ... by whom */
	bool stalled;                    /* a publish waits for a bucket: the ring waits with it */
	bool stocked;                    /* blocks were put in its stock */
	bool answered;                   /* results stored since the last wake */
	bool commit_known;               /* move.c: the first slot's own result, kept for last */
	int32_t commit_result;
};

/* What waits together for the next flush and the grace period after it. */
struct batch {
	struct batch *next;
	uint64_t cookie;
	uint32_t *slots, nslots, slots_size;     /* emptied entries: reusable afterwards */
	uint32_t *records, nrecords, records_size;       /* DYING blocks */
	struct moved *moved;             /* REC_MOVED: they become DYING afterwards */
	uint32_t nmoved, moved_size;
	struct records leaving;          /* REC_LEAVING: the same, if nothing hangs below them */
	bool moves;                      /* relocations of stage 1 wait in here */
	bool takeover;
};

struct relocation {                      /* rule T1 */
	struct relocation *next;
	struct batch *batch;             /* its copy waits in here */
	uint32_t record, from, to;       /* slots */
};

struct grant_slot {
	gpc_block want;                  /* demote, promote: as the command names it */
	uint32_t source;                 /* demote, promote: pinned, stays LIVE until commit */
	uint32_t source_word;            /* its word when it was pinned */
	uint32_t block;                  /* what is given: was free, or was a victim */
	uint32_t ram;                    /* where that victim's bytes go */
	bool wait_block, wait_ram;       /* still DYING */
	bool skip;                       /* the target space has the key already ... */
	bool behind;                     /* ... in a block that is leaving: that comes first */
};

struct grant {                           /* a group command that may wait for grace periods */
	struct grant *next;
	uint32_t peer, kind, n, waiting;
	uint32_t pool;                   /* where `block` comes from */
	uint32_t ram_pool;               /* where victims go; NONE: they are dropped */
	uint32_t leave;
	uint8_t flags;
	bool started;
	bool again;                      /* a dead writer had begun it: its quota was checked */
	bool behind;                     /* some slot is */
	uint64_t position;
	struct grant_slot *slot;
};

/* A block that a dead writer had evicted for a command that is not answered (rule C1). */
struct leftover { uint32_t peer, record; uint64_t op; };

struct quarantine { uint32_t record; uint64_t until_ns; struct identity who; };

struct wmirror {
	const struct device_ops *ops;
	void *mirror;
	bool flushing, retired;
};

struct writer {
	gpc *c;                          /* the handle that holds the seat */
	struct segment seg;              /* like c's, with `index` mapped read-write */
	int lock_fd;                     /* own description of the lock file */
	bool reaps;                      /* it clears seats and serves nobody */
	uint32_t max_blocks, max_peers, max_pools, buckets;

	struct node *node;               /* of each record ... */
	struct owned *owned;
	uint8_t *pool_of;
	struct wpool pool[GPC_MAX_POOLS + 1];
	struct wpeer *peer;

	/* table.c */
	struct probe_entry *table;
	uint8_t *quarantined;            /* per bucket, bit = slot; high half: since takeover */
	uint32_t *spilled;               /* per bucket: entries that live in their second one;
	                                  * all there are, if peers choose their keys so */
	struct relocation *relocations;

	/* retire.c */
	struct batch *open, *flushing, *grace, **grace_end;
	uint64_t last_cookie;
	uint32_t *held, nheld, held_size;        /* DYING, grace over, still referenced */
	struct quarantine *quarantine;
	uint32_t nquarantine, quarantine_size;

	/* grant.c */
	struct grant *grants, **grants_end;
	struct leftover *leftover;
	uint32_t nleftover, leftover_size;
	uint32_t *picked, picked_size;   /* scratch: victims */
	uint32_t *below, below_size;     /* scratch: subtrees */
	struct leaf *aside;              /* scratch: leaves in use */
	uint32_t aside_size;

	/* lru.c */
	uint32_t fresh[FRESH], nfresh;   /* published since the last pick: not queued yet, perhaps */

	/* mirror.c */
	struct wmirror mirror[SHM_MIRRORS];
	uint32_t nmirrors;
	uint32_t *dirty, ndirty, dirty_size;
	uint64_t *dirty_bit;
	bool line_dirty;                 /* pools or spaces are others than the mirrors show */
	struct launch_change *changes;
	uint32_t changes_size;
	uint64_t flush_sequence, flush_deadline_ns;

	uint32_t cleared_pool;           /* its blocks go without changes of their own */
	struct records missing;          /* takeover: LIVE, without an entry */
	struct records twice;            /* takeover: slots whose block has another */
	struct records twins;            /* takeover: in limbo, but another target of their key
	                                  * has what hangs below it */
	uint64_t next_care_ns;           /* reaping and other slow checks */
	uint32_t nseated;                /* peers */
	bool alone;                      /* they had nothing to look after last time */
	bool crowded;                    /* a pool may have more than its capacity */
	bool progress;                   /* something was freed or became reusable */
};

/* ---- typed places, writable ---- */
static inline struct shm_state *w_state(struct writer *w)
{
	return SEG_AT(w->seg.index, w->seg.at.state, struct shm_state, 0);
}

static inline struct shm_record *w_record(struct writer *w, uint32_t record)
{
	return SEG_AT(w->seg.index, w->seg.at.record, struct shm_record, record);
}

static inline struct shm_tally *w_tally(struct writer *w, uint32_t peer)
{
	return SEG_AT(w->seg.index, w->seg.at.tally, struct shm_tally, peer);
}

static inline struct shm_pool *w_pool(struct writer *w, uint32_t pool)
{
	return SEG_AT(w->seg.index, w->seg.at.pool, struct shm_pool, pool);
}

/* The numbers of a pool's blocks by state, for who looks from outside: behind each change of a
 * record's word, so a writer that dies between the two leaves them wrong by that block until its
 * successor has counted. */
static inline void w_tell(struct writer *w, uint32_t pool)
{
	const struct wpool *p = &w->pool[pool];
	struct shm_pool *d = w_pool(w, pool);

	store_relaxed(&d->live, p->live);
	store_relaxed(&d->reserved, p->reserved);
	store_relaxed(&d->dying, p->dying);
	store_relaxed(&d->lingering, p->lingering);
}

static inline uint32_t w_word(struct writer *w, uint32_t record)
{
	return load_relaxed(&w_record(w, record)->word);
}

static inline bool w_is(struct writer *w, uint32_t record, uint32_t state)
{
	return WORD_STATE(w_word(w, record)) == state;
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

/* Record of a block id as a command names it; NONE when out of range. */
uint32_t w_find_record(struct writer *w, gpc_block block);
/* No cell of the row is raised. */
bool w_row_is_zero(struct writer *w, uint32_t record);
uint64_t w_tick(struct writer *w);

/* ---- writer.c ---- */
/* Takes the seat: -EAGAIN.  reaps: only to clear the seats of the dead, by writer_reap(); it must
 * not serve, since it keeps no mirrors.  Those of the last writer stay as they are, and nothing
 * that they may still name becomes free. */
int writer_open(gpc *c, bool reaps, struct writer **ret);
/* Both: -ENOMEM means that the writer is in no state to go on and must be closed. */
int writer_serve(struct writer *w, uint64_t deadline_ns);
int writer_reap(struct writer *w);
void writer_close(struct writer *w);
/* Private memory; without it these do not return, see writer.c. */
void *writer_more(void *array, uint32_t *size, uint32_t want, size_t item);
static inline void *writer_grow(void *array, uint32_t *size, uint32_t want, size_t item)
{
	return want <= *size ? array : writer_more(array, size, want, item);
}

void *writer_alloc(size_t n, size_t item);
/* For other threads than the one that serves: there they end with run(), which is false.  What it
 * calls may be stopped anywhere; then writer_no_memory() tells the thread that serves. */
bool writer_guard(void (*run)(void *arg), void *arg);
void writer_no_memory(void) __attribute__((noreturn));

/* ---- table.c ---- */
enum { TABLE_OK = 0, TABLE_WAIT, TABLE_FULL };
/* Bits of word 2 that are not the entry's own. */
#define TABLE_FLAGS(slot) ((slot) % SHM_BUCKET ? 0 : PROBE_OVERFLOW)
/* A usable entry for the record's key: TABLE_OK; TABLE_WAIT: after the next grace periods;
 * TABLE_FULL.  The entry is filled after the record's commit. */
int table_place(struct writer *w, uint32_t record, uint32_t *ret_slot);
void table_fill(struct writer *w, uint32_t record, uint32_t slot);
/* The key will be looked for or removed soon; place: or placed. */
void table_prefetch(struct writer *w, uint32_t space, const gpc_key *key, bool place);
/* Record that is LIVE under this key in this space, or NONE. */
uint32_t table_find(struct writer *w, uint32_t space, const gpc_key *key);
/* Empty every entry that names the block; slots join the open batch. */
void table_remove(struct writer *w, uint32_t record);
/* Every entry that names `from` names `to` instead: same key, same space. */
void table_retier(struct writer *w, uint32_t from, uint32_t to);
bool table_has(struct writer *w, uint32_t record);
void table_copies_done(struct writer *w, struct batch *b);
void table_slot_usable(struct writer *w, uint32_t slot);
void table_wipe(struct writer *w, uint32_t slot);        /* empty one entry, quarantine it */
struct probe_key table_key(struct writer *w, uint32_t record);
void table_set_flag(struct writer *w, uint32_t bucket);
void table_clear_spare_flag(struct writer *w, uint32_t bucket);

/* ---- tree.c ---- */
void tree_enter(struct writer *w, uint32_t record);      /* alone, without parent */
void tree_attach(struct writer *w, uint32_t record, uint32_t parent);
void tree_unlink(struct writer *w, uint32_t record);     /* children left lose their parent */
void tree_replace(struct writer *w, uint32_t from, uint32_t to);
/* The subtree below and with record, deepest first; returns how many in *list. */
uint32_t tree_collect(struct writer *w, uint32_t record, uint32_t **list, uint32_t *size,
		      uint32_t n);
bool tree_blocks(struct writer *w, uint32_t parent, uint32_t child);

/* ---- lru.c ---- */
void lru_offer(struct writer *w, uint32_t record);       /* it is, or became, a leaf */
void lru_offer_fresh(struct writer *w, uint32_t record);         /* ... just published */
/* Choose victims, tentatively, until the list has n instead of `found`: fewer are returned when
 * there are no more.  They are off the queue until they are retired, or lru_put_back has been
 * called for each, last one first. */
uint32_t lru_pick(struct writer *w, uint32_t pool, uint32_t n, bool demote,
		  uint32_t **list, uint32_t *size, uint32_t found);
void lru_put_back(struct writer *w, uint32_t record);
void lru_forget(struct writer *w, uint32_t record);
void lru_begin(struct writer *w, uint32_t record);       /* stamp = now, behind all places */
void lru_inherit(struct writer *w, uint32_t record, uint64_t stamp);     /* rule R2 */
uint64_t lru_stamp(struct writer *w, uint32_t record);
bool lru_is_leaf(struct writer *w, uint32_t record);
/* Takeover: an empty queue; then leaves, in any order. */
void lru_empty(struct writer *w, uint32_t pool);
void lru_add(struct writer *w, uint32_t record);

/* ---- queue.c ---- */
static inline bool queue_has(const struct writer *w, uint32_t record)
{
	return w->node[record].ticket & 1;
}

/* Only what is not in it; with the record's present depth. */
void queue_push(struct writer *w, struct queue *q, uint64_t stamp, uint32_t record);
bool queue_pop(struct writer *w, struct queue *q, struct leaf *ret);     /* false: it is empty */
/* Only what is in it. */
void queue_forget(struct writer *w, struct queue *q, uint32_t record);
/* The first ones, in no strict order; some may be stale. */
const struct leaf *queue_front(struct writer *w, struct queue *q, uint32_t *ret_n);
/* Takeover: to an empty queue, any number in any order. */
void queue_add(struct writer *w, struct queue *q, uint64_t stamp, uint32_t record);
void queue_empty(struct writer *w, struct queue *q);
void queue_free(struct queue *q);        /* the nodes keep their tickets */

/* ---- retire.c ---- */
/* LIVE -> DYING: unpublished; it comes back after flush and grace period.  owner and op:
 * for whom (rule C1), or SHM_NO_PEER. */
void retire_block(struct writer *w, uint32_t record, uint32_t owner, uint64_t op);
/* Before each of a list is retired: what the next few will take is asked for. */
void retire_ahead(struct writer *w, const uint32_t *list, uint32_t n, uint32_t i);
/* REC_MOVED -> DYING: the rest of its end, and no change for the feed. */
void retire_moved(struct writer *w, uint32_t record);
/* retire_block, with all descendants, deepest first. */
void retire_subtree(struct writer *w, uint32_t record);
void retire_slot(struct writer *w, uint32_t slot);
struct batch *retire_open(struct writer *w);
void retire_dying(struct writer *w, uint32_t record);    /* takeover: DYING already */
bool retire_advance(struct writer *w);
bool retire_idle(struct writer *w);
void retire_quarantine(struct writer *w, uint32_t record, const struct identity *who);
void retire_poll_held(struct writer *w);

/* ---- leave.c ---- */
/* The source of a committed move, whose entries name `to` now. */
void leave_moved(struct writer *w, uint32_t from, uint32_t to);
/* The source of a move that was committed to another space. */
void leave_space(struct writer *w, uint32_t record);
/* It is wanted where it is after all. */
void leave_stay(struct writer *w, uint32_t record);
/* REC_LEAVING, and perhaps a leaf now. */
void leave_offer(struct writer *w, uint32_t record);
/* The key of this block goes: so does what it has moved from. */
void leave_sources(struct writer *w, uint32_t record);
bool leave_is_moved(struct writer *w, uint32_t record);
void leave_again(struct writer *w, uint32_t record);     /* takeover: it was leaving already */
void leave_batch(struct writer *w, struct batch *b);     /* flush and grace period are over */

/* ---- record states (retire.c) ---- */
void record_reserve(struct writer *w, uint32_t record, uint32_t owner, uint64_t op);
void record_free(struct writer *w, uint32_t record);     /* RESERVED or DYING -> FREE */
void record_publish(struct writer *w, uint32_t record, uint32_t what, gpc_block was);
/* DYING or FREE, of a CALLER pool -> RESERVED for the keeper, who is told.  op: of its own
 * gpc_evict, whose answer names the block; else 0. */
void record_return(struct writer *w, uint32_t record, uint64_t op);
void record_own(struct writer *w, uint32_t record, uint32_t owner);      /* lists only */
void record_disown(struct writer *w, uint32_t record);

/* ---- grant.c ---- */
static inline bool grant_is_refill(const struct grant *g)
{
	return g->kind == CMD_RESERVE && (g->flags & CF_STOCK);
}
#define OP_OF(position) ((position) + 1)         /* 0 = no operation */
void grant_start(struct writer *w, uint32_t peer, uint64_t position,
		 const struct shm_command *cmd);
/* A victim has passed its grace period; in_use: but is referenced, so it is given up.
 * True: the grant has taken it. */
bool grant_arrived(struct writer *w, uint32_t record, bool in_use);
/* Was it evicted by a dead writer, for a command that has not run again yet (rule C1)? */
bool grant_expects(struct writer *w, uint32_t record);
/* Has an unanswered grant this block?  Its owner was not told of it: a peer that names it all
 * the same is guessing. */
bool grant_holds(struct writer *w, uint32_t record);
/* A clear has met this victim on its way. */
void grant_forget(struct writer *w, uint32_t record);
/* Start those that wait for room, finish those that have all, refuse those that only try. */
void grant_sweep(struct writer *w);
void grant_cancel_peer(struct writer *w, uint32_t peer);
void grant_cancel_pool(struct writer *w, uint32_t pool);

/* ---- grant_source.c ---- */
/* Pin the sources of a move command: 0, or why not even the first can move. */
int32_t grant_take_sources(struct writer *w, struct grant *g, uint32_t from);
void grant_unpin(struct writer *w, struct grant_slot *s, struct grant *g);
/* Must the grant wait until a block of one of its keys has left the target's space? */
bool grant_is_behind(struct writer *w, struct grant *g);

/* ---- grant_place.c ---- */
enum { GRANT_WAIT = 1 };
/* Find blocks for all slots in need.  0: they are there or on their way; GRANT_WAIT: nothing
 * was done, come again; -ENOSPC: nothing was done, and waiting would not help. */
int32_t grant_place(struct writer *w, struct grant *g);
void grant_give_up_ram(struct writer *w, struct grant *g, struct grant_slot *s);
/* Pools that got more than their capacity drop what is too much. */
void grant_trim(struct writer *w);

/* ---- move.c ---- */
/* A block that a move reads stays where it is. */
void move_pin(struct writer *w, uint32_t source, uint32_t to_pool, bool keep);
void move_unpin(struct writer *w, uint32_t source, uint32_t to_pool, bool keep);
/* Make `target`, RESERVED, the target of a move of `source`'s key.  source_word is what the
 * source was when the move began: pins do not keep a key from being published anew. */
void move_bind(struct writer *w, uint32_t target, uint32_t source, uint32_t source_word,
	       uint8_t flags);
/* An uncommitted target forgets its source; it stays RESERVED. */
void move_unbind(struct writer *w, uint32_t target);
/* The same, but what hangs below a key in limbo is the caller's affair. */
void move_forget(struct writer *w, uint32_t target);
/* A pool goes: its blocks are no sources any more. */
void move_forget_sources(struct writer *w, uint32_t pool);
/* What hangs below a move in limbo goes: its parent will not come. */
void move_drop_limbo(struct writer *w, uint32_t target);
/* The key of `from` is live in `to` as well: the entry names `to`, `from` waits for its end
 * (rule C3).  Also takeover's roll-forward. */
void move_switch(struct writer *w, uint32_t from, uint32_t to);
/* One group of CMD_COMMIT; false: waits for a bucket, come again. */
bool move_commit(struct writer *w, uint32_t peer, uint64_t position, uint32_t n);

/* ---- pools.c ---- */
int32_t pools_add(struct writer *w, uint32_t peer, uint64_t position);
/* Blocks still held; pool and tag as in gpc_clear.  generation: of the pool that is meant, 0 =
 * whatever has the number. */
int32_t pools_clear(struct writer *w, int32_t pool, uint32_t tag, bool remove,
		    uint64_t generation);
void pools_kill(struct writer *w, uint32_t pool);        /* one step, then the rest */
void pools_care(struct writer *w);                       /* emptied pools become FREE */
int pools_load(struct writer *w);                        /* takeover; -EBADMSG */
/* Takeover, when the tree is there: clears that were announced, and pools that ended. */
void pools_finish_clears(struct writer *w);
void pools_reset_node(struct writer *w, uint32_t record);

/* ---- command.c ---- */
/* What this command will touch is asked for. */
void command_prefetch(struct writer *w, const struct shm_command *cmd);
/* false: waits for a bucket, come again */
bool command_run(struct writer *w, uint32_t peer, uint64_t position,
		 const struct shm_command *cmd);
void command_answer(struct writer *w, uint32_t peer, uint64_t position, int32_t result);

/* ---- mirror.c ---- */
void mirror_open_all(struct writer *w);          /* create, upload, publish */
void mirror_close_all(struct writer *w);
void mirror_dirty(struct writer *w, uint32_t slot);      /* after every store to an entry */
void mirror_pools_changed(struct writer *w);
void mirror_flush(struct writer *w);
bool mirror_flushed(struct writer *w);           /* the flush has ended, or failed for good */

/* ---- feed.c ---- */
void feed_prepare(struct writer *w, uint32_t what, uint32_t record, gpc_block was);
void feed_commit(struct writer *w);
void feed_recover(struct writer *w);
/* A pool is cleared: told, and noted until feed_clear_done(). */
void feed_cleared(struct writer *w, uint32_t pool, uint32_t tag);
void feed_clear_done(struct writer *w);
bool feed_is_clearing(struct writer *w, uint32_t *ret_pool, uint32_t *ret_tag);
void feed_returned(struct writer *w, uint32_t record);   /* prepared: RESERVED commits it */
void feed_commit_returned(struct writer *w, uint32_t pool);

/* ---- recall.c ---- */
/* A grant for the stock of its owner has got this block; the answer follows. */
void recall_put(struct writer *w, uint32_t record);
/* Take up to n blocks of a pool back from stocks, if there are `least`; returns how many are free
 * now. */
uint32_t recall_some(struct writer *w, uint32_t pool, uint32_t least, uint32_t n);
/* Will there be more of them when the rings have run? */
bool recall_comes(struct writer *w, uint32_t pool);
/* ... all of a pool that goes. */
void recall_pool(struct writer *w, uint32_t pool);
/* Takeover.  told: the command that reserved it is answered.  False: its owner does not have it,
 * and it shall be free. */
bool recall_resume(struct writer *w, uint32_t record, bool told);

/* ---- reap.c ---- */
void reap_dead(struct writer *w);
void reap_seat(struct writer *w, uint32_t peer);
void reap_note(struct writer *w, uint32_t peer);         /* its seat is taken */

/* ---- takeover.c ---- */
int takeover(struct writer *w);                  /* -EBADMSG */
void takeover_finish(struct writer *w);          /* after the first grace period */

#endif
