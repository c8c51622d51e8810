/* SPDX-License-Identifier: Apache-2.0 */
/* claim.c - the commands that claim a key for a reservation, and the claims that a successor
 * finds.
 *
 * index/table/pending.h has the states, and the table in which keys are looked up.  A claim begins
 * here.  It ends there, with the reservation at the latest.
 * Tests: t/index/claim-ends.t t/index/claims.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "index/writer/claim.h"
#include "index/writer/grants.h"
#include "index/table/pending.h"
#include "index/table/table.h"

static void mark(struct writer *w, uint32_t peer, uint32_t record, const gpc_key *key)
{
	struct shm_record *r = w_record(w, record);
	struct shm_tally *t = w_tally(w, peer);

	store_relaxed(&t->claims, t->claims + 1);
	store_relaxed(&r->key[0], key->w[0]);
	store_relaxed(&r->key[1], key->w[1]);
	store_relaxed(&r->parent[0], clock_ns());
	store_relaxed(&r->parent[1], t->claims);
	store_relaxed(&r->depth, 0);
	/* (f) the claimed fields are stored before the mark; pairs with index/claim/claim_here.c,
	 * index/claim/claim_wait.c.  Before it a successor finds a plain reservation, and runs the
	 * command again. */
	store_release(&r->flags, (uint8_t)(r->flags | REC_CLAIM));
	pending_add_claim(w, peer, record);
}

static int32_t tell(struct shm_command *out, struct writer *w, uint32_t record, int32_t what,
		    uint32_t ahead)
{
	out->block = w_block(w, record);
	out->claim.state = what;
	out->claim.ahead = ahead;
	return 0;
}

/* The older open claims of its peer: all its open claims except for the later ones.  depth counts
 * the later ones that have ended. */
static uint32_t count_ahead(struct writer *w, uint32_t record)
{
	const struct shm_record *r = w_record(w, record);
	uint64_t later;

	if (!w->node[record].claimed)
		return 0;
	later = w_tally(w, r->owner)->claims - r->parent[1] - r->depth;
	return later < w->peer[r->owner].claims ? w->peer[r->owner].claims - 1 - (uint32_t)later
						: 0;
}

static int32_t check(struct writer *w, uint32_t peer, uint32_t record,
		     const struct shm_command *cmd)
{
	gpc_key key = { { cmd->claim.key[0], cmd->claim.key[1] } };
	const struct shm_record *r;

	if (record == NONE || key_is_zero(&key) || key_is_root(&key))
		return -EINVAL;
	r = w_record(w, record);
	if (w_pool_of(w, record)->state != POOL_READY)
		return -ESTALE;
	if (!w_is(w, record, RESERVED) || r->owner != peer || r->source || grant_holds(w, record) ||
	    w->node[record].bound ||
	    (cmd->claim.life && cmd->claim.life != WORD_GEN(w_word(w, record)) + 1))
		return -EPERM;
	return 0;
}

int32_t claim_key(struct writer *w, uint32_t peer, uint64_t position, const struct shm_command *cmd)
{
	struct shm_command *out = seg_command(&w->seg, peer, position);
	uint32_t record = w_find_record(w, cmd->block), other;
	gpc_key key = { { cmd->claim.key[0], cmd->claim.key[1] } }, had;
	int32_t err = check(w, peer, record, cmd);

	if (err < 0)
		return err;
	other = table_find(w, w_space(w, record), &key);
	if (other != NONE)
		return tell(out, w, other, CLAIM_LIVE, 0);
	had = w_key(w, record);
	if (w->node[record].pending && key_same(&had, &key))
		return tell(out, w, record, CLAIM_MINE, 0); /* the command runs again */
	other = pending_find(w, w_space(w, record), &key);
	if (other != NONE)
		return tell(out, w, other, CLAIM_PENDING, count_ahead(w, other));
	pending_end(w, record); /* the claim of another key */
	mark(w, peer, record, &key);
	return tell(out, w, record, CLAIM_MINE, 0);
}

int32_t claim_end(struct writer *w, uint32_t peer, const struct shm_command *cmd)
{
	uint32_t record = w_find_record(w, cmd->block);

	if (record == NONE)
		return -EINVAL;
	if (!w_is(w, record, RESERVED) || w_record(w, record)->owner != peer ||
	    !w->node[record].claimed ||
	    (cmd->unclaim.life && cmd->unclaim.life != WORD_GEN(w_word(w, record)) + 1))
		return 0;
	pending_end(w, record);
	return 1;
}

/* ---- takeover ---- */

/* A mark is noted again if it is on a reservation and its key is not live; each key only once. */
static void load_one(struct writer *w, uint32_t peer, uint32_t record)
{
	struct shm_record *r = w_record(w, record);
	gpc_key key = w_key(w, record);

	if (!(r->flags & REC_CLAIM) || r->source || w->node[record].pending)
		return;
	if (w_pool_of(w, record)->state == POOL_READY && !key_is_zero(&key) &&
	    table_find(w, w_space(w, record), &key) == NONE &&
	    pending_find(w, w_space(w, record), &key) == NONE) {
		pending_add_claim(w, peer, record);
		return;
	}
	store_release(&r->flags, (uint8_t)(r->flags & ~REC_CLAIM));
}

static void load_list(struct writer *w, uint32_t peer, uint32_t record)
{
	for (; record != NONE; record = w->owned[record].next)
		load_one(w, peer, record);
}

static int compare_age(const void *a, const void *b, void *arg)
{
	uint64_t x = w_record(arg, *(const uint32_t *)a)->parent[1];
	uint64_t y = w_record(arg, *(const uint32_t *)b)->parent[1];

	return (x > y) - (x < y);
}

/* A writer that died may have counted only some of the older claims. */
static void load_order(struct writer *w, uint32_t peer)
{
	struct records *l = &w->peer[peer].claimed;
	uint64_t all = w_tally(w, peer)->claims;
	uint32_t i;

	if (l->n)
		qsort_r(l->at, l->n, sizeof(*l->at), compare_age, w);
	for (i = 0; i < l->n; i++) {
		struct shm_record *r = w_record(w, l->at[i]);

		store_relaxed(&r->depth, (uint32_t)(all - r->parent[1]) - (l->n - 1 - i));
	}
}

void claim_load(struct writer *w)
{
	uint32_t peer;

	for (peer = 0; peer < w->max_peers; peer++) {
		store_relaxed(&w_tally(w, peer)->claims_open, 0);
		load_list(w, peer, w->peer[peer].reserved);
		load_list(w, peer, w->peer[peer].reserved_own);
		load_order(w, peer);
	}
	pending_wake_all(w);
}
