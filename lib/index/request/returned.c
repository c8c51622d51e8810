/* SPDX-License-Identifier: Apache-2.0 */
/* returned.c - which of its own blocks an engine has got back.
 *
 * The record is the truth: RESERVED, for the owner.  Each time a block comes back, its word has a
 * new generation, and `told` has, for each block, the generation that the owner knows of.  So each
 * return is reported once, even after many looks, and a look at all records misses none.
 *
 * The feed says which records to look at: the writer puts a GPC_RETURNED there for each
 * return.  The pool has the number of the last return, so a call with nothing to report costs two
 * loads, even with a full feed.  All records of the pool are looked at only if the feed was
 * overwritten before it was read.  The feed is then read on from the place where it was when that
 * look began.
 *
 * A program may publish a block before gpc_returned() has reported its return:
 *
 *   the publish      the return was told  not told: at the publish   ... and at the answer
 *   ---------------  -------------------  -------------------------  -------------------------------
 *   succeeds         nothing to tell      the return counts as       nothing to tell
 *                                         known: that life ends
 *   is refused       nothing to tell      the return counts as       the return is told: the block is
 *                                         known while the publish    the owner's again
 *                                         is under way
 *
 * A block that the owner's own gpc_evict has taken carries the operation's number, and the answer
 * reports it, so gpc_returned() passes over it.  If nobody waits for the answer any more, the
 * block is given back, and returns once more, without a number.
 *
 * The memory that is kept for a pool here ends with the pool's life.  It is read with returns_lock
 * held, so nobody reads it when it is freed.  Without the lock only c->returns_life says
 * whether a pool is one of ours.
 *
 *   c->returns[pool]   c->returns_life[pool]   the pool with this number
 *   ------------------ ----------------------- -------------------------------------------------
 *   NULL               0, or of an ended life  belongs to another peer, does not exist, or has no
 *                                              CALLER blocks
 *   of a life          1 + its generation      is ours, and still has that life
 *   of a life          the same                its life has ended: the memory is freed when the
 *                                              next life of any number begins, or when we are told
 *                                              that the pool went
 * Tests: t/index/returned-lost.t t/index/returned.t t/index/returned-dies.t
 *   t/index/returned-refused.t t/bytes/pool-lives.t t/bytes/asks-nobody.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "gpc_look.h"
#include "index/request/request.h"
#include "index/peer/refuse.h"

struct returns {
	uint32_t slots;
	uint64_t cursor; /* the changes before it are read */
	uint32_t scan;   /* after a loss: the next slot to look at; else = slots */
	uint32_t told[]; /* by slot: generation of the word + 1 */
};

struct returns *returns_new(uint32_t slots)
{
	struct returns *r = calloc(1, sizeof(*r) + (size_t)slots * sizeof(r->told[0]));

	if (r)
		r->slots = r->scan = slots;
	return r;
}

static uint32_t life(const gpc *c, uint32_t record)
{
	return WORD_GEN(load_relaxed(&seg_record(&c->seg, record)->word)) + 1;
}

/* With returns_lock held. */
static void sweep(gpc *c)
{
	uint32_t i;

	for (i = 0; i < c->seg.header.geometry.max_pools; i++)
		if (c->returns[i] && !returns_keeps(c, i)) {
			free(c->returns[i]);
			c->returns[i] = NULL;
		}
}

void returns_sweep(gpc *c)
{
	pthread_mutex_lock(&c->returns_lock);
	sweep(c);
	pthread_mutex_unlock(&c->returns_lock);
}

/* Runs before the call that adds the pool returns its number, so every thread that knows the
 * number finds this. */
void returns_begin(gpc *c, uint32_t pool, struct returns *r)
{
	const struct shm_pool *d = seg_pool(&c->seg, pool);
	uint32_t i, record;

	pthread_mutex_lock(&c->returns_lock);
	if (returns_keeps(c, pool)) { /* two threads have looked for the pool */
		pthread_mutex_unlock(&c->returns_lock);
		free(r);
		return;
	}
	for (i = 0; i < r->slots; i++) {
		record = pool_record(&c->seg, GPC_BLOCK((gpc_block)pool, (gpc_block)i));
		if (record != SHM_NO_RECORD)
			r->told[i] = life(c, record);
	}
	r->cursor = load_acquire(&seg_state(&c->seg)->events_head);
	sweep(c);
	free(c->returns[pool]);
	c->returns[pool] = r;
	store_relaxed(&c->returns_life[pool], 1 + (uint64_t)load_relaxed(&d->generation));
	pthread_mutex_unlock(&c->returns_lock);
}

int returns_adopt(gpc *c, uint32_t pool, uint32_t slots)
{
	struct returns *r;

	if (returns_keeps(c, pool))
		return 0;
	r = returns_new(slots);
	if (!r)
		return err_set(ENOMEM, "no memory to keep %u blocks", slots);
	returns_begin(c, pool, r);
	return 0;
}

void returns_free(gpc *c)
{
	uint32_t i;

	for (i = 0; i < ARRAY_SIZE(c->returns); i++)
		free(c->returns[i]);
}

/* The pool's generation grows with every end of a pool. */
bool returns_is_kept(const gpc *c, uint32_t pool)
{
	return 1 + (uint64_t)load_relaxed(&seg_pool(&c->seg, pool)->generation) ==
	       load_relaxed(&c->returns_life[pool]);
}

uint64_t returns_reserved(const gpc *c)
{
	uint64_t n = 0;
	uint32_t i;

	for (i = 0; i < c->seg.header.geometry.max_pools; i++)
		if (returns_keeps(c, i))
			n += load_relaxed(&seg_pool(&c->seg, i)->reserved);
	return n;
}

/* The returns of the pool that has the block's number now, as this handle knows them; with
 * returns_lock held.  NULL: the pool is not ours. */
static struct returns *told_of(gpc *c, uint32_t record, gpc_block block)
{
	uint32_t pool = (uint32_t)block >> 24 & 127;
	struct returns *r = returns_keeps(c, pool) ? c->returns[pool] : NULL;

	return r && (uint32_t)GPC_SLOT(block) < r->slots && pool_record(&c->seg, block) == record
		       ? r
		       : NULL;
}

/* Under the lock the stored value is of the life that has the number now. */
bool returns_know(gpc *c, uint32_t record, gpc_block block)
{
	uint32_t now = life(c, record), slot = (uint32_t)GPC_SLOT(block);
	struct returns *r;
	bool untold;

	if (!returns_keeps(c, (uint32_t)block >> 24 & 127))
		return false;
	pthread_mutex_lock(&c->returns_lock);
	r = told_of(c, record, block);
	untold = r && r->told[slot] != now;
	if (untold)
		r->told[slot] = now;
	pthread_mutex_unlock(&c->returns_lock);
	return untold;
}

/* The cursor may already be past the block's change, so the slots from there on are looked at
 * once more. */
void returns_tell(gpc *c, uint32_t record, gpc_block block)
{
	uint32_t slot = (uint32_t)GPC_SLOT(block);
	struct returns *r;

	pthread_mutex_lock(&c->returns_lock);
	r = told_of(c, record, block);
	if (r && r->told[slot] == life(c, record)) {
		r->told[slot] = 0;
		r->scan = MIN(r->scan, slot);
	}
	pthread_mutex_unlock(&c->returns_lock);
}

/* Has this block come back without a report by gpc_returned()?  Then it is reported now. */
static bool tell(const gpc *c, struct returns *r, gpc_block block)
{
	uint32_t record = pool_record(&c->seg, block), word, *told;
	const struct shm_record *rec;

	if (record == SHM_NO_RECORD || (uint32_t)GPC_SLOT(block) >= r->slots)
		return false;
	rec = seg_record(&c->seg, record);
	word = load_acquire(&rec->word); /* pairs with (K) */
	told = &r->told[GPC_SLOT(block)];
	if (WORD_STATE(word) != RESERVED || load_relaxed(&rec->owner) != c->peer ||
	    load_relaxed(&rec->op) || *told == WORD_GEN(word) + 1)
		return false;
	*told = WORD_GEN(word) + 1;
	return true;
}

enum { OTHER, BACK, LOST };

/* The event of change `number`, and its block. */
static int look_at(const gpc *c, uint64_t number, gpc_block *ret)
{
	const struct shm_change *ch = seg_change(&c->seg, number);
	uint32_t what;

	if (load_acquire(&ch->seq) != number + 1)
		return LOST;
	what = load_relaxed(&ch->what);
	*ret = load_relaxed(&ch->block);
	order_fence();
	/* pairs with (N) of index/table/events.c */
	if (load_relaxed(&ch->seq) != number + 1)
		return LOST;
	return what == GPC_RETURNED ? BACK : OTHER;
}

/* Read the feed up to head.  False: part of it is lost. */
static bool follow(const gpc *c, uint32_t pool, struct returns *r, uint64_t head, gpc_block *blocks,
		   uint32_t n, uint32_t *got)
{
	gpc_block block;

	for (; r->cursor < head && *got < n; r->cursor++)
		switch (look_at(c, r->cursor, &block)) {
		case LOST:
			return false;
		case BACK:
			if ((uint32_t)GPC_POOL(block) == pool && tell(c, r, block))
				blocks[(*got)++] = block;
		}
	return true;
}

static void scan(const gpc *c, uint32_t pool, struct returns *r, gpc_block *blocks, uint32_t n,
		 uint32_t *got)
{
	gpc_block block;

	for (; r->scan < r->slots && *got < n; r->scan++) {
		block = GPC_BLOCK((gpc_block)pool, (gpc_block)r->scan);
		if (tell(c, r, block))
			blocks[(*got)++] = block;
	}
}

/* With returns_lock held. */
static uint32_t take_back(const gpc *c, uint32_t pool, struct returns *r, gpc_block *blocks,
			  uint32_t n)
{
	uint64_t head = load_acquire(&seg_state(&c->seg)->events_head);
	uint32_t got = 0;

	scan(c, pool, r, blocks, n, &got);
	if (r->scan < r->slots)
		return got;
	/* it is read after the head, since the pool notes the number of each return before the
	 * head moves */
	if (load_relaxed(&seg_pool(&c->seg, pool)->returned) <= r->cursor) {
		r->cursor = MAX(head, r->cursor);
	} else if (!follow(c, pool, r, head, blocks, n, &got)) {
		r->cursor = head; /* returns during the scan are in the feed after it */
		r->scan = 0;
		scan(c, pool, r, blocks, n, &got);
	}
	return got;
}

/* Can blocks of this pool come back to us?  0, or the reason why not. */
static int check_pool(const gpc *c, uint32_t pool, const struct returns *r)
{
	const struct shm_pool *d = seg_pool(&c->seg, pool);
	uint32_t state = load_acquire(&d->state);

	if (state == POOL_FREE)
		return -ENOENT;
	if (!load_relaxed(&c->returns_life[pool]) || load_relaxed(&d->owner) != (int32_t)c->peer)
		return -EPERM;
	return state != POOL_READY || !r || !returns_keeps(c, pool) ? -ESTALE : 0;
}

static int pool_error(int err, int pool)
{
	switch (err) {
	case -ENOENT:
		return pool < 0 ? err_set(ENOENT, "this peer keeps no pool of CALLER blocks")
				: err_set(ENOENT, "there is no pool %d", pool);
	case -EPERM:
		return err_set(EPERM, "pool %d is not one of CALLER blocks of this peer", pool);
	default:
		return err_set(ESTALE, "pool %d is going", pool);
	}
}

struct question {
	int pool;
	gpc_block *blocks;
	uint32_t n;
};

static int ask_pools(gpc *c, void *arg)
{
	const struct question *q = arg;
	uint32_t i = q->pool < 0 ? 0 : (uint32_t)q->pool, got = 0;
	uint32_t end = q->pool < 0 ? c->seg.header.geometry.max_pools : i + 1;
	int err = 0, first = -ENOENT;

	pthread_mutex_lock(&c->returns_lock);
	for (; i < end && got < q->n; i++) {
		if (q->pool < 0 && !c->returns[i])
			continue;
		err = check_pool(c, i, c->returns[i]);
		if (err == 0)
			got += take_back(c, i, c->returns[i], q->blocks + got, q->n - got);
		if (first) /* an error counts only if no pool can be asked */
			first = err;
	}
	pthread_mutex_unlock(&c->returns_lock);
	return got ? (int)got : first ? pool_error(q->pool < 0 ? -ENOENT : first, q->pool) : 0;
}

GPC_EXPORT int gpc_returned(gpc *c, int pool, gpc_block *blocks, uint32_t n, int timeout_ms)
{
	struct question q = { pool, blocks, n };
	int err = request_check(c, 0, 0, timeout_ms != 0);

	if (err == 0 && pool != -1)
		err = refuse_pool_number(c, "pool", pool);
	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err == 0)
		err = err_count(n, "blocks");
	if (err < 0)
		return err;
	if (n && !blocks)
		return err_set(EINVAL, "blocks is NULL");
	if (!n)
		return 0;
	return ring_watch(c, ask_pools, &q, deadline_from(timeout_ms));
}
