/* SPDX-License-Identifier: Apache-2.0 */
/* pending.c - keys that a block is reserved for, by space and key: an open table of records.
 *
 * An entry has a copy of its space and key, so it can be taken out after any change of the
 * record.
 * Tests: t/index/claim-ends.t t/index/at-once.t t/index/claims.t */
#include "config.h"

#include <string.h>
#include "index/base/futex.h"
#include "index/table/alloc.h"
#include "index/table/pending.h"

#define FIRST_SIZE 64u /* a power of two, as all sizes */

/* ---- the table ---- */

static uint32_t place_of(const struct writer *w, uint32_t space, const gpc_key *key)
{
	uint64_t h = (key->w[0] ^ key->w[1] ^ (uint64_t)space << 40) * 0x9e3779b97f4a7c15u;

	return (uint32_t)(h >> 32) & (w->pending_size - 1);
}

static bool is_key(const struct pending *p, uint32_t space, const gpc_key *key)
{
	return p->space == space && key_same(&p->key, key);
}

/* The place of the key's entry, or the empty entry where it would be. */
static uint32_t find_place(const struct writer *w, uint32_t space, const gpc_key *key)
{
	uint32_t at = place_of(w, space, key);

	while (w->pending[at].record && !is_key(&w->pending[at], space, key))
		at = (at + 1) & (w->pending_size - 1);
	return at;
}

static void grow(struct writer *w)
{
	struct pending *old = w->pending;
	uint32_t n = w->pending_size, i;

	w->pending_size = n ? 2 * n : FIRST_SIZE;
	w->pending = writer_alloc(w->pending_size, sizeof(*w->pending));
	for (i = 0; i < n; i++)
		if (old[i].record)
			w->pending[find_place(w, old[i].space, &old[i].key)] = old[i];
	writer_free(old);
}

/* Later entries move into the gap if it is nearer to their own place. */
static void take_out(struct writer *w, uint32_t at)
{
	uint32_t next = at, mask = w->pending_size - 1, home;

	for (;;) {
		next = (next + 1) & mask;
		if (!w->pending[next].record)
			break;
		home = place_of(w, w->pending[next].space, &w->pending[next].key);
		if (((next - home) & mask) < ((next - at) & mask))
			continue;
		w->pending[at] = w->pending[next];
		at = next;
	}
	w->pending[at].record = 0;
	w->npending--;
}

/* A pool that has gone has taken its blocks along. */
static bool is_so(struct writer *w, const struct pending *p)
{
	uint32_t record = p->record - 1;

	return w->node[record].pending && w_is(w, record, RESERVED) &&
	       w_pool_of(w, record)->state == POOL_READY;
}

uint32_t pending_find(struct writer *w, uint32_t space, const gpc_key *key)
{
	const struct pending *p;

	if (!w->npending)
		return NONE;
	p = &w->pending[find_place(w, space, key)];
	return p->record && is_so(w, p) ? p->record - 1 : NONE;
}

/* May a hint be overwritten?  Not if it names the block of a key that is still pending, since
 * peers that look by themselves would not find that block.  Others may write there, too, so it may
 * name any block. */
static bool is_hint_over(const struct writer *w, uint32_t hint, uint32_t record)
{
	uint32_t of = pool_record(&w->seg, (gpc_block)hint - 1);

	return of == SHM_NO_RECORD || of == record || !w->node[of].pending;
}

static void leave_hint(struct writer *w, uint32_t record, const gpc_key *key)
{
	uint32_t *hint = seg_shared(&w->seg)->hint[wait_hint(key)], i;

	for (i = 0; i < SHM_HINT_WAYS; i++)
		if (is_hint_over(w, load_relaxed(&hint[i]), record))
			break;
	/* (g) the record is stored before the hint; pairs with index/claim/claim_here.c.  If the
	 * writer dies before it stores the hint, a peer asks the writer once. */
	store_release(&hint[i < SHM_HINT_WAYS ? i : record % SHM_HINT_WAYS],
		      (uint32_t)w_block(w, record) + 1);
}

static struct pending *put(struct writer *w, uint32_t record)
{
	gpc_key key = w_key(w, record);
	struct pending *p;

	if (2 * (w->npending + 1) > w->pending_size)
		grow(w);
	p = &w->pending[find_place(w, w_space(w, record), &key)];
	if (p->record && is_so(w, p))
		return NULL;
	w->npending += !p->record;
	*p = (struct pending){ .key = key, .space = w_space(w, record), .record = record + 1 };
	w->node[record].pending = true;
	leave_hint(w, record, &key);
	return p;
}

void pending_add(struct writer *w, uint32_t record)
{
	put(w, record);
}

void pending_add_claim(struct writer *w, uint32_t peer, uint32_t record)
{
	struct records *l = &w->peer[peer].claimed;

	put(w, record);
	l->at = writer_grow(l->at, &l->size, l->n + 1, sizeof(*l->at));
	l->at[l->n++] = record;
	w->node[record].claimed = true;
	w->peer[peer].claims++;
	store_relaxed(&w_tally(w, peer)->claims_open, w->peer[peer].claims);
}

/* ---- waiting threads ---- */

/* The threads are woken when all stores of this pass have been made: pending_wake(). */
static void note_end(struct writer *w, const gpc_key *key)
{
	uint32_t i = wait_word(key);

	w->ended_waits[i / 64] |= 1ull << (i % 64);
	w->has_ended_waits = true;
}

void pending_wake(struct writer *w)
{
	struct shm_shared *shared = seg_shared(&w->seg);
	uint32_t i;

	if (!w->has_ended_waits)
		return;
	w->has_ended_waits = false;
	/* the end is stored before `waiters` is read; index/claim/claim_wait.c does the reverse;
	 * t/model/claim.pml */
	order_fence();
	for (i = 0; i < SHM_WAITS; i++) {
		struct shm_wait *word = &shared->wait[i];

		if (!(w->ended_waits[i / 64] >> (i % 64) & 1) || !load_relaxed(&word->waiters))
			continue;
		count_add(&word->seq, 1);
		futex_wake_all(&word->seq);
	}
	for (i = 0; i < ARRAY_SIZE(w->ended_waits); i++)
		w->ended_waits[i] = 0;
}

void pending_wake_all(struct writer *w)
{
	uint32_t i;

	for (i = 0; i < ARRAY_SIZE(w->ended_waits); i++)
		w->ended_waits[i] = UINT64_MAX;
	w->has_ended_waits = true;
}

/* ---- the end ---- */

/* Take out the record's entry.  The record still has its key, since a change of the key comes
 * after this. */
static void remove_entry(struct writer *w, uint32_t record)
{
	gpc_key key = w_key(w, record);
	uint32_t at = find_place(w, w_space(w, record), &key);

	if (w->pending[at].record == record + 1)
		take_out(w, at);
	note_end(w, &key);
}

/* One more of the older claims has ended.  If claims end in order, there is nothing to do. */
static void leave_order(struct writer *w, struct wpeer *p, uint32_t record)
{
	struct records *l = &p->claimed;
	uint32_t i = p->claimed_at;

	for (; i < l->n && l->at[i] != record; i++)
		store_relaxed(&w_record(w, l->at[i])->depth, w_record(w, l->at[i])->depth + 1);
	if (i == p->claimed_at)
		p->claimed_at++;
	else if (i < l->n)
		memmove(l->at + i, l->at + i + 1, (--l->n - i) * sizeof(*l->at));
	if (p->claimed_at > l->n / 2) { /* the list is moved up when as many have left as remain */
		l->n -= p->claimed_at;
		memmove(l->at, l->at + p->claimed_at, l->n * sizeof(*l->at));
		p->claimed_at = 0;
	}
}

void pending_end_now(struct writer *w, uint32_t record)
{
	struct shm_record *r = w_record(w, record);

	remove_entry(w, record);
	w->node[record].pending = false;
	if (!w->node[record].claimed)
		return;
	w->node[record].claimed = false;
	leave_order(w, &w->peer[r->owner], record);
	w->peer[r->owner].claims--;
	store_relaxed(&w_tally(w, r->owner)->claims_open, w->peer[r->owner].claims);
	/* the flag means this only in RESERVED: the next state may have stored its own by now */
	if (w_is(w, record, RESERVED))
		store_release(&r->flags, (uint8_t)(r->flags & ~REC_CLAIM));
	/* (u) the flag goes before the fields key, since and number change.  So a reader that
	 * copies some of the new values finds at its second look no flag, or another number.  If we die among
	 * these stores, a successor finds a plain reservation, and runs the command again. */
	order_stores();
}

void pending_live(struct writer *w, uint32_t record)
{
	gpc_key key = w_key(w, record);
	uint32_t other = w->npending ? pending_find(w, w_space(w, record), &key) : NONE;

	if (other != NONE && other != record && w->node[other].claimed)
		pending_end(w, other);
}
