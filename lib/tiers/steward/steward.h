/* SPDX-License-Identifier: Apache-2.0 */
/* steward.h - the process that keeps the tiers below RAM: declarations that its files share.
 *
 *   open.c     the seat, threads; the end
 *   plan.c     options, and the size of the file
 *   board.c    the lock, and the steward's words in shared memory
 *   slots.c    the content of a tier's slots, as this process knows it
 *   images.c   blocks of RAM: held without a use, their bytes as pieces, their checksums
 *   notes.c    an engine's words about a block, kept with it in a file
 *   up.c       questions: from a tier to RAM
 *   down.c     from RAM to a tier, ahead of need; above.c, the ancestors of such blocks
 *   room.c     how many blocks go down, and for which of them others go from the tier
 *   uses.c     which blocks were next to go often enough
 *   feed.c     the feed's events of our pools: removals become durable, slots come back
 *   rest.c     a tier that can neither sync nor be cleared, until it can
 *   drops.c    dropped blocks, and all blocks behind them; kin.c, which blocks follow which
 *   restore.c  publishes the blocks that were there at the start
 *   learn.c    finds blocks of a store that the index does not know
 *   disk.c     the file of lib/disk as a tier
 *   peek.c     a file's description of itself, and the reasons why it is refused
 *   remote.c   a store of lib/remote as a tier; store_lanes.c, its lanes, and the memory that a plugin
 *              still has which does not return; gone.c, keys that are to be removed there
 *
 * The threads are `questions` that answer, one that writes to disk, one that writes to a store,
 * and one that reads the feed.  No peer's lookup waits for one of them, and neither does the
 * writer.
 *
 * One order serves rule B19 (and the table in lib/tiers/README.md).  A batch is written under
 * `writing`, from the choice of its slots to the answer of its publish.  Its refused blocks are
 * made free on the disk before the lock is given back.  An acknowledgement takes the lock once,
 * between its look at the feed and its sync.  So each batch that began before a removal is over
 * when the removal is acknowledged, and each batch that begins later finds its source gone.
 * Tests: t/tiers/remote-refuses.t */
#ifndef GPC_STEWARD_H
#define GPC_STEWARD_H

#include "index/base/err.h"
#include "index/base/worker.h"
#include "tiers/disk/disk.h"
#include "bytes/mapping/map.h"
#include "index/peer/handle.h"
#include "index/peer/refs.h"
#include "index/request/request.h"
#include "tiers/steward/gone.h"
#include "tiers/steward/kin.h"
#include "tiers/steward/tier.h"

#define BATCH          128u /* the most blocks that are written together */
#define CHUNK          64u  /* keys of a question that are looked at together */
#define QUESTIONS_MOST 16u

enum { TIERS_UP, TIERS_DOWN, TIERS_STORE, TIERS_FEED, TIERS_THREADS };
#define READ_NS (30000 * NS_PER_MS) /* the time for a question without a deadline */

/* ---- slots.c ----
 *
 *   state     the block of the pool        its header on disk    goes to
 *   FREE      RESERVED, ours               of `key`, or none     BUSY: a batch takes it; at the start
 *   BUSY      RESERVED, ours               being written         LIVE: published; FREE: refused
 *   LIVE      LIVE; or gone, which was     of `key`              FREE: it has come back
 *             not reported yet
 *
 * `key` is the key in a header on the disk.  It is zero if there is no header, or if nobody will
 * find it any more. */
enum slot_state { SLOT_FREE, SLOT_BUSY, SLOT_LIVE };

struct slot {
	gpc_key key;
	uint32_t born; /* slots_now() */
	uint8_t state;
	/* publishers of this slot that have not called slots_live() yet, although the slot was
	 * evicted and taken since */
	uint8_t overtaken;
	bool lost; /* a hint with descendants: the store has lost its key */
};

/* ---- uses.c: the number of times that a key has been next to go ---- */
#define USES 65536u
struct uses;
struct uses *uses_new(void); /* NULL: there is no memory.  The caller frees it by free(). */

/* ---- wanted.c: keys that peers want below ---- */

struct wish {
	gpc_key key;
	uint32_t space; /* a space of RAM */
};
struct wanted {
	pthread_mutex_t lock; /* taken below all other locks */
	struct wish *at;
	uint32_t first, n;
};
struct lower;
struct gpc_tiers;
int wanted_begin(struct wanted *s); /* -ENOMEM */
void wanted_end(struct wanted *s);
bool wanted_any(struct wanted *s);
/* Take the oldest ones off the list; returns their number. */
uint32_t wanted_take(struct wanted *s, struct wish *to, uint32_t n);
/* Its block of RAM, if it has to be written; or GPC_NONE. */
gpc_block wanted_find(struct lower *d, const struct wish *wish);
/* Answer a question: the number of its keys that have a copy, or are to get one.  *why: 0, or the
 * reason why there are no more. */
uint32_t wanted_answer(struct gpc_tiers *t, const struct shm_ask *a, uint32_t n, int *why);
/* Count it once for each life; returns the number so far, with this one.  *ret_new: it was counted
 * now. */
uint32_t uses_count(struct uses *u, const gpc_key *key, gpc_block block, uint32_t word,
		    bool *ret_new);

struct lower { /* a lower tier, with its pool */
	struct gpc_tiers *t;
	const char *name; /* "disk" */
	/* exactly one of these is set */
	struct disk *file;
	struct tier_store *store;
	uint64_t fails_ns, writes_ns; /* disk.c: writes fail; no more of them before that time */
	uint32_t index, space;        /* its place in the board */
	uint32_t pool, record, blocks;
	uint64_t block_bytes;
	/* the most bytes of a note of a block; 0: the cache or the tier keeps no notes */
	uint32_t note_room;
	uint8_t fingerprint[32];
	struct shm_tier *shown;

	pthread_mutex_t lock; /* protects the slots */
	struct slot *slot;
	uint32_t *free, nfree;
	/* the first of the free ones could not be written; a time of slots_now() */
	uint32_t nresting, rest_until;
	struct uses *uses; /* of down.c; NULL: uses are not counted */
	uint32_t min_uses;
	struct down *batch; /* of down.c */
	struct wanted wanted;
	/* gpc_tiers_sync: the last request for which down.c found nothing left */
	uint64_t idle;
	uint64_t events;    /* down.c: the events at the time when it found nothing to write ... */
	uint64_t looked_ns; /* ... and that time */
	bool later;         /* down.c: blocks are due, but may not be written yet */
	/* a block leaves RAM when it is here, and leaves here when it is in RAM */
	bool exclusive;
	uint32_t broken; /* nothing is written now, because it rests or its pool has gone */
	bool gone;       /* ... for ever */
	/* feed.c: the feed has reported the pool's end; its number may be reused */
	bool ended;
	bool emptied;                /* rest.c: the index has no block of it */
	uint64_t pause_ns, probe_ns; /* rest.c: the length of its rest, and its end */

	bool clear; /* at the start: the present blocks go */

	/* restore.c: the blocks that were found at the start, until all are published.  Blocks
	 * with BUSY slots, from `next` on, are not published yet */
	struct disk_slot *found;
	uint64_t nfound, next;
	uint64_t orphans;    /* the number of orphans among them */
	struct chains place; /* chains of the keys in it; they live as long */
	uint64_t clears;     /* clears of the pool, read from the feed */
	uint32_t aged;       /* the next slot whose age is looked at */
};

struct gpc_tiers {
	gpc *c;
	/* dir and disk are our own copies; secret is not used after it was compared */
	struct gpc_tiers_options opt;
	struct lower lower[SHM_TIERS];
	uint32_t nlower;
	struct lower *disk, *store; /* pointers to these; NULL: there is none */

	pthread_mutex_t writing; /* held for a batch on its way down, and for an acknowledgement */
	struct worker worker[TIERS_THREADS];
	bool has_lock, begun; /* begun: nothing can fail any more */
	uint32_t stop;
	bool open;        /* the gate is open: threads begin; under the lock of each worker */
	bool made;        /* this steward has made the file */
	uint8_t file[16]; /* its id; zeros: there is none */

	uint32_t published; /* all blocks that were there at the start */
	uint64_t cursor;    /* feed.c: the place in the feed before which all is done */
	bool wanted_away;   /* feed.c: removals from there on are those of a clear or a drop */

	/* drops.c, in the thread of feed.c.  The numbers are those of index/segment/dropped.h. */
	uint64_t heard;   /* the feed was read up to all drops before that number */
	uint64_t since;   /* (z) the descendants of drops before that number have left the tiers */
	gpc_key *dropped; /* room for SHM_DROPS */
	uint8_t *how;     /* SHM_DROP_... of each */
	struct kin kin;   /* any thread */
};

static inline bool steward_stops(const struct gpc_tiers *t)
{
	return load_relaxed(&t->stop) != 0;
}

/* The tier is a store on other machines.  It may have bytes of keys that the index does not know.
 * Other nodes share its content, and its writes take long. */
static inline bool lower_is_store(const struct lower *d)
{
	return d->store != NULL;
}

static inline bool lower_is_ready(const struct lower *d)
{
	return !load_relaxed(&d->broken) && (!d->store || tier_remote_ready(d->store));
}

static inline void tier_count(struct lower *d, uint32_t what, uint64_t n)
{
	if (n)
		count_add(&d->shown->count[what], n);
}

/* ---- plan.c ---- */

struct disk_options;
int plan_check(const char *name, const struct gpc_tiers_options *opt, gpc_tiers **ret);
int plan_ram(struct gpc_tiers *t); /* the pool whose images the tiers have */
/* keys have the same meaning if they are hashed with the same secret */
int plan_secret(const struct gpc_tiers *t);
/* The way to open the file; *ret_slots: its number of blocks. */
int plan_disk(struct gpc_tiers *t, uint32_t ram, struct disk_options *ret, uint32_t *ret_slots);
/* The number of blocks that the cache has room for, also in the place of a dead steward's pool of
 * that kind.  It comes before the file is made or resized in vain. */
int plan_room(const struct gpc_tiers *t, uint32_t kind, uint64_t blocks);
/* GPC_TIERS_CHECK: all that is compared before anything is made. */
int plan_try(const char *name, const struct gpc_tiers_options *opt);

/* ---- board.c ---- */

int board_take(struct gpc_tiers *t); /* -EBUSY: another process keeps tiers */
/* The feed is followed, and nothing can fail any more: from now on the board has this steward's
 * words. */
void board_begins(struct gpc_tiers *t);
/* This file is kept from now on; zeros: none is. */
void board_keeps(struct gpc_tiers *t, const uint8_t file[16]);
void board_show(struct gpc_tiers *t); /* questions may come */
void board_leave(struct gpc_tiers *t);
/* Sleep until the bell has rung after `seen`, or for this time. */
void board_sleep(struct gpc_tiers *t, uint32_t seen, uint64_t ns);
uint32_t board_bell(const struct gpc_tiers *t);
void board_wake(struct gpc_tiers *t); /* wake our own threads */
/* A thread that answers can take questions, or is on with one: index/segment/beat.h. */
void board_beat(struct gpc_tiers *t);
/* All removals that the feed reports before `number` are durable. */
void board_durable(struct gpc_tiers *t, uint64_t number, uint64_t cleared);

/* ---- slots.c ---- */

int slots_new(struct lower *d);
uint32_t slots_now(void); /* the present time, for slot.born */
void slots_end(struct lower *d);
/* Up to n free slots, BUSY from now on.  If there are fewer, the least recent blocks go, unless
 * `waits`. */
uint32_t slots_take(struct lower *d, gpc_block *blocks, uint32_t n);
/* The number of free slots without the places that rest. */
uint32_t slots_left(struct lower *d);
void slots_live(struct lower *d, gpc_block block, const gpc_key *key, uint32_t born);
/* The slot was not published after all.  WRITTEN: a header is on the disk, and is made free before
 * the slot is.  BAD_PLACE: other places were written, so for a while this one is taken only if no
 * other is left. */
enum slot_back { UNWRITTEN, WRITTEN, BAD_PLACE };
void slots_back(struct lower *d, gpc_block block, const gpc_key *key, enum slot_back how);
/* The block has come back.  Its header stays until feed.c has seen why, or the slot is written. */
void slots_returned(struct lower *d, gpc_block block);
/* Its key was removed: nobody finds the header any more, at the latest after the next sync.  kept:
 * only a hint was removed here, and the store keeps its value. */
void slots_removed(struct lower *d, gpc_block block, const gpc_key *key, bool kept);
/* A hint stays, although the store has lost its value; or the store has it again. */
void slots_lost(struct lower *d, gpc_block block, bool lost);
/* The block of a key by the index, or GPC_NONE. */
gpc_block slots_find(const struct lower *d, const gpc_key *key);
bool slots_is_lost(struct lower *d, gpc_block block);
bool slots_is_busy(struct lower *d, uint32_t slot);
/* Its block is not LIVE.  Unless the slot is BUSY (false), it is no entry any more. */
bool slots_leave(struct lower *d, uint32_t slot);
/* The same for all slots whose block is not LIVE.  all: the whole tier was made free. */
void slots_compare(struct lower *d);
void slots_forget_keys(struct lower *d);

/* ---- room.c ---- */

/* The number of blocks of that pool that are to have a copy, or to leave it.  drain: as many as
 * the policy wants at all. */
uint32_t room_due(const struct lower *d, uint32_t pool, bool drain);
/* The number of the n blocks of that pool that may be written.  sooner: blocks that go from the
 * pool before the last of them. */
uint32_t room_for(struct lower *d, uint32_t n, uint32_t pool, const gpc_block *sooner,
		  uint32_t nsooner);

/* ---- images.c ---- */

/* A reference that does not count as a use: recency stays as it is, because the writer knows a
 * steward by its pools (index/table/lru.c). */
bool hold_quietly(gpc *c, gpc_block block, const gpc_key *key);
void unhold_quietly(gpc *c, const gpc_block *blocks, uint32_t n);

/* The record of a LIVE block that the caller holds, or only looks at.  False: it is not LIVE. */
struct about {
	gpc_key key, parent;
	uint32_t tag, depth, word;
	bool unchained; /* it has no parent's key */
	bool alone;     /* it has one, but does not hang below it */
};
bool about_block(const gpc *c, gpc_block block, struct about *ret);
bool about_record(const gpc *c, uint32_t record, struct about *ret);
/* hold_quietly(), and the block's record.  False: the block has another key by now, and is not
 * held. */
bool hold_about(gpc *c, gpc_block block, const gpc_key *key, struct about *ret);

/* May images of this tier be in that pool? */
bool images_fit_pool(const struct lower *d, const struct shm_pool *p);
/* A pool of RAM near the pool `to`, or -1. */
int images_ram(const struct lower *d, uint32_t to);
uint32_t images_pieces(const struct map *m);
void images_iov(const struct map *m, gpc_block block, struct iovec *iov);
/* The number of sums of an image there, and the seeds that new images are to have. */
uint32_t images_sums(const struct map *m);
void images_seeds(const struct map *m, uint32_t *seed);
/* The sums that were stored for the block, of that life and key: of each part, and of the whole.
 * False: some part has no sum.  The seeds are there all the same, and the word; if no trailer has
 * them, they are those of the pool. */
bool images_sum(const gpc *c, const struct map *m, gpc_block block, const gpc_key *key,
		uint32_t *seed, uint32_t *crc, struct image_sum *ret);
void images_store_sum(const gpc *c, const struct map *m, gpc_block block, const gpc_key *key,
		      const struct image_sum *sum, const struct image_parts *parts);

/* ---- notes.c ---- */

/* The most bytes of a note of this cache in a file; 0: it keeps none. */
uint32_t notes_most(const struct segment *s);
/* The note of a block of that life, in the form of a file.  Returns its bytes; 0: there is no
 * note, or it is not available.  Parts that do not fit into `room` are left out: the tokens, or
 * the whole note. */
uint32_t notes_pack(const gpc *c, gpc_block block, const struct about *a, void *to, uint32_t room);
/* The other direction, under that key.  tokens has room for block_tokens.  Parts that this cache
 * does not keep are left out.  False: it has no part that this cache keeps. */
bool notes_unpack(const gpc *c, const void *from, uint32_t bytes, const gpc_key *key,
		  struct shm_note *ret, uint32_t *tokens);

/* ---- threads: up.c, down.c, feed.c ---- */

void up_thread(struct gpc_tiers *t);
/* Make the state that its threads need, before them.  down_end comes after them, even if they
 * never began. */
int down_begin(struct gpc_tiers *t);
void down_end(struct gpc_tiers *t);
void down_thread(struct gpc_tiers *t);
void store_thread(struct gpc_tiers *t); /* the same, for stores on other machines */
void feed_thread(struct gpc_tiers *t);
/* called once the pools are there; it says which tiers begin empty */
int feed_begin(struct gpc_tiers *t);
void feed_end(struct gpc_tiers *t); /* make known removals durable */

/* ---- rest.c, in the thread of feed.c ---- */

void rest_begin(struct lower *d, const char *what, int err);
/* No lookup finds blocks any more that have left the tier. */
void rest_lose_all(struct lower *d);
/* If a pause is over, or at the end, try a clear.  True: the tier does not rest, or no longer. */
bool rest_is_over(struct lower *d, bool ends);

/* ---- learn.c ---- */

/* Publish a hint for each of the first keys of this prompt that a store has and the index does not
 * know.  Returns their number. */
uint32_t learn(struct gpc_tiers *t, const gpc_key *keys, uint32_t n, uint64_t deadline);

/* ---- drops.c, in the thread of feed.c ---- */

int drops_begin(struct gpc_tiers *t);
void drops_end(struct gpc_tiers *t);
/* A block of VRAM or RAM that the feed reports; and all such blocks that there are. */
void drops_meet(struct gpc_tiers *t, gpc_block block);
void drops_meet_all(struct gpc_tiers *t);
/* All blocks that were dropped before `heard` leave the tiers, with all blocks behind them.  True:
 * it sent commands, whose effect the feed will report, or something that it looked at had gone.
 * Call it once more then, when the feed was read. */
bool drops_carry_out(struct gpc_tiers *t);
bool drops_are_due(const struct gpc_tiers *t); /* it has not been done yet */
/* The drops of the time when nobody kept the tiers.  It comes after the scan, and before anything
 * is published. */
void drops_missed(struct gpc_tiers *t);

/* ---- restore.c, in the thread of feed.c ---- */

int restore_begin(struct gpc_tiers *t); /* it comes before anything is written, and only looks */
/* called once the tiers have begun: useless blocks are made free */
void restore_settle(struct gpc_tiers *t);
bool restore_step(struct gpc_tiers *t); /* false: nothing is left */
/* The block of that key, if it is not published yet; or NULL. */
const struct disk_slot *restore_find(struct lower *d, const gpc_key *key);
void restore_forget(struct lower *d, const struct disk_slot *f);
/* Forget the found blocks of that tag; tag 0: all. */
void restore_drop(struct lower *d, uint32_t tag);
void restore_end(struct gpc_tiers *t);

#endif
