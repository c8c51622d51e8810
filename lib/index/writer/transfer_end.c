/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_end.c - transfers whose peer, rank or writer has died.
 * Tests: t/index/transfer-peers.t t/index/transfers-reaped.t t/index/transfers-die.t
 *   t/bytes/companion-ranks.t t/bytes/transfers-die-device.t t/bytes/transfer-lives.t */
#include "config.h"

#include "index/table/pending.h"
#include "index/writer/move_bind.h"
#include "index/writer/transfers.h"

/* ---- death ---- */

/* Only living ranks still copy.  Their copies are refused when they have passed. */
static void take_sources(struct writer *w, struct transfer *t)
{
	uint32_t i;

	for (i = 0; i < t->n; i++)
		if (t->target[i] != NONE)
			move_unbind(w, t->target[i]);
	t->dead = true;
}

/* False: it is not over, so call it again later. */
static bool reap_one(struct writer *w, struct transfer *t)
{
	bool ranks = xfer_has_ranks(xfer_of(w, t));

	/* A reaper serves nobody, so a bucket that is missing now will always be missing. */
	if (w->missing.n && !w->reaps)
		return false;
	if (t->dead)
		return true; /* the poll ends the transfer */
	if (!w->missing.n && transfer_words(w, t) != WORDS_WAIT) {
		if (transfer_look(w, t))
			return true;
		if (!w->reaps)
			return false;
		return transfer_quarantine(w, t);
	}
	if (!ranks)
		return transfer_quarantine(w, t);
	take_sources(w, t);
	transfer_look(w, t); /* it may have been the last rank to be waited for */
	return true;
}

bool transfer_reap(struct writer *w, uint32_t peer)
{
	uint32_t i;

	for (i = 0; i < SHM_TRANSFERS; i++) {
		struct transfer *t = w->peer[peer].transfer[i];

		if (t && !reap_one(w, t))
			return false;
	}
	return true;
}

/* A rank that has not passed by now never will. */
static void mark_gone(struct writer *w, const struct transfer *t, uint32_t peer)
{
	struct shm_xfer *x = xfer_of(w, t);
	uint32_t i;

	for (i = 0; i < SHM_RANKS && x->rank[i] != SHM_NO_PEER; i++)
		if (x->rank[i] == peer && !transfer_rank_passed(w, t, i))
			store_relaxed(&x->rank[i], SHM_RANK_GONE);
}

void transfer_rank_gone(struct writer *w, uint32_t peer)
{
	const struct transfer *t;

	for (t = w->transfers; t; t = t->next)
		if (t->peer != peer) /* its own transfers know it by `dead` */
			mark_gone(w, t, peer);
}

bool transfer_leave_seat(struct writer *w, uint32_t peer)
{
	uint32_t i;

	/* it comes first, since two peers may be ranks of each other */
	transfer_rank_gone(w, peer);
	for (i = 0; i < SHM_TRANSFERS; i++)
		if (w->peer[peer].transfer[i])
			return false;
	return true;
}

/* ---- takeover ---- */

static bool is_of(const struct shm_xfer *x, uint64_t op)
{
	return x->left && op - x->op < x->n && op >= x->op;
}

bool transfer_names(struct writer *w, uint32_t record)
{
	const struct shm_record *r = w_record(w, record);
	uint32_t i;

	if (r->owner >= w->max_peers)
		return false;
	for (i = 0; i < SHM_TRANSFERS; i++)
		if (is_of(w_xfer(w, r->owner, i), r->op))
			return true;
	return false;
}

static bool is_sound(const struct shm_xfer *x)
{
	return x->op && x->n && x->n <= SHM_RING && x->op <= UINT64_MAX - SHM_RING && x->value &&
	       x->value <= UINT64_MAX / SHM_TRANSFERS;
}

static bool load_xfers(struct writer *w, uint32_t peer)
{
	bool any = false;
	uint32_t i, j;

	for (i = 0; i < SHM_TRANSFERS; i++) {
		struct shm_xfer *x = w_xfer(w, peer, i);

		if (!x->left)
			continue;
		if (!is_sound(x)) {
			store_release(&x->left, 0);
			continue;
		}
		for (j = 0; j < SHM_RANKS; j++) /* forged: such a seat will never pass */
			if (xfer_is_rank(x->rank[j]) && x->rank[j] >= w->max_peers)
				x->rank[j] = SHM_RANK_GONE;
		transfer_set_told(w, transfer_add(w, peer, i, x));
		any = true;
	}
	if (!any)
		transfer_tell_count(w, peer);
	return any;
}

static void load_target(struct writer *w, uint32_t peer, uint32_t record)
{
	uint64_t op = w_record(w, record)->op;
	struct transfer *t;
	uint32_t i;

	for (i = 0; i < SHM_TRANSFERS; i++) {
		t = w->peer[peer].transfer[i];
		if (!t || op < t->op || op - t->op >= t->n || t->target[op - t->op] != NONE)
			continue;
		t->target[op - t->op] = record;
		t->left++;
		w->node[record].bound = true;
		if (w_record(w, record)->source) {
			w->node[w_record(w, record)->source - 1].readers++;
			pending_add(w, record);
		}
		return;
	}
}

void transfer_load(struct writer *w)
{
	struct transfer *t, *next;
	uint32_t peer, record;

	for (peer = 0; peer < w->max_peers; peer++)
		if (load_xfers(w, peer))
			for (record = w->peer[peer].reserved; record != NONE;
			     record = w->owned[record].next)
				load_target(w, peer, record);
	for (t = w->transfers; t; t = next) {
		next = t->next;
		if (t->left != xfer_of(w, t)->left)
			transfer_tell(w, t);
	}
}
