/* SPDX-License-Identifier: Apache-2.0 */
/* others.c - scans the records that are not LIVE, and finds their purpose.
 * Tests: t/index/stock-evict-dies.t t/index/second-run.t t/index/drops-die.t
 *   t/index/left-in-records.t t/index/promised.t t/index/transfers-forged.t */
#include "config.h"

#include "index/takeover/takeover.h"
#include "index/writer/grants.h"
#include "index/table/leave.h"
#include "index/table/alloc.h"
#include "index/table/record.h"
#include "index/writer/reap.h"
#include "index/writer/recall.h"
#include "index/writer/retire.h"
#include "index/writer/transfer.h"

/* ---- rings ---- */

static void scan_ring(struct writer *w, struct scan *sc, uint32_t peer)
{
	struct shm_seat *s = seg_seat(&w->seg, peer);
	struct wpeer *p = &w->peer[peer];
	uint64_t head = load_acquire(&s->head), at;

	p->tail = p->next = load_relaxed(&s->tail);
	w_answered(w, peer); /* the command may be answered, with the tail not stored */
	if (head - p->tail > SHM_RING)
		return; /* scribbled over: the peer is not served any more until it is reaped */
	p->again = head;
	for (at = p->tail; at != head; at++) {
		const struct shm_command *c = seg_command(&w->seg, peer, at);
		uint32_t n = load_relaxed(&c->count);

		if (c->op < CMD_RESERVE || c->op > CMD_PROMOTE || c->op == CMD_DROP ||
		    c->result != CMD_PENDING || !n || n > head - at)
			continue;
		sc->group = writer_grow(sc->group, &sc->groups_size, sc->ngroups + 1,
					sizeof(*sc->group));
		sc->group[sc->ngroups++] = (struct open_group){ peer, n, c->op, at };
		at += n - 1;
	}
}

/* The kind of the unanswered command that this operation belongs to, or CMD_NONE. */
static uint32_t open_operation(const struct scan *sc, uint32_t peer, uint64_t op)
{
	uint32_t from = 0, to = sc->ngroups, at;
	const struct open_group *g;

	if (!op)
		return CMD_NONE;
	while (from < to) { /* find the last group that begins before it */
		at = from + (to - from) / 2;
		g = &sc->group[at];
		if (g->peer < peer || (g->peer == peer && g->position < op))
			from = at + 1;
		else
			to = at;
	}
	g = from ? &sc->group[from - 1] : NULL;
	return g && g->peer == peer && op <= g->position + g->n ? g->kind : CMD_NONE;
}

void takeover_rings(struct writer *w, struct scan *sc)
{
	uint32_t i;

	for (i = 0; i < w->max_peers; i++) {
		w_tally(w, i)->reserved = 0;
		scan_ring(w, sc, i);
	}
}

/* ---- records ---- */

static void keep_leftover(struct writer *w, uint32_t record)
{
	const struct shm_record *r = w_record(w, record);

	w->leftover =
		writer_grow(w->leftover, &w->leftover_size, w->nleftover + 1, sizeof(*w->leftover));
	w->leftover[w->nleftover++] = (struct leftover){ r->owner, record, r->op };
}

/* A pool takes along the blocks of its owner if they are CALLER blocks.  It also does if the owner
 * never learnt of the pool, since the writer died while it made the pool. */
static bool pool_took_it(struct writer *w, uint32_t record)
{
	const struct wpool *p = w_pool_of(w, record);

	return p->state != POOL_READY && (p->flags & GPC_POOL_CALLER) &&
	       p->owner == (int32_t)w_record(w, record)->owner;
}

/* Records between the pools have number 0, too. */
static bool is_in_pool(const struct writer *w, uint32_t record, bool may_go)
{
	const struct wpool *p = &w->pool[w->pool_of[record]];

	return (p->state == POOL_READY || (may_go && p->state == POOL_DRAINING)) &&
	       record - p->first < p->slots;
}

static void scan_reserved(struct writer *w, struct scan *sc, uint32_t record)
{
	struct shm_record *r = w_record(w, record);
	uint32_t kind = open_operation(sc, r->owner, r->op);
	bool told = kind == CMD_NONE || kind == CMD_EVICT;
	bool taken = r->owner < w->max_peers && pool_took_it(w, record);

	if (taken || (!(told && transfer_names(w, record)) && !recall_resume(w, record, told))) {
		/* the owner never learnt of the block, so nobody writes there; the command runs
		 * again */
		if (taken)
			recall_resume(w, record, false); /* the block leaves a stock, too */
		sc->damage.states += r->owner >= w->max_peers;
		r->source = 0;
		store_release(&r->word, WORD(FREE, WORD_GEN(r->word) + 1));
		return;
	}
	w_pool_of(w, record)->reserved++;
	record_own(w, record, r->owner);
	reap_note(w, r->owner); /* whatever its seat says now */
	if (kind == CMD_EVICT)
		keep_leftover(w, record);
	sc->damage.states += r->source > w->max_blocks;
	if (r->source > w->max_blocks ||
	    (r->source && !is_in_pool(w, r->source - 1, transfer_names(w, record))))
		r->source = 0; /* as pool_shut() does */
	if (r->source)
		records_add(&sc->moving, record);
}

static void scan_dying(struct writer *w, struct scan *sc, uint32_t record)
{
	static const struct identity nobody = { 0 };
	struct shm_record *r = w_record(w, record);

	w_pool_of(w, record)->dying++;
	w_pool_of(w, record)->lingering += (r->flags & REC_LINGERS) != 0;
	if (r->flags & REC_QUARANTINE) {
		r->owner = SHM_NO_PEER;
		retire_quarantine(w, record, &nobody);
		return;
	}
	if (r->owner != SHM_NO_PEER && open_operation(sc, r->owner, r->op) == CMD_EVICT) {
		keep_leftover(w, record);
	} else if (r->owner != SHM_NO_PEER) {
		r->owner = SHM_NO_PEER;
		r->op = 0;
	}
	retire_dying(w, record);
}

static void scan_free(struct writer *w, struct scan *sc, struct wpool *p, uint32_t record)
{
	struct shm_record *r = w_record(w, record);

	sc->damage.states += WORD_STATE(r->word) != FREE; /* it has no valid state */
	if (WORD_STATE(r->word) != FREE)
		store_release(&r->word, WORD(FREE, WORD_GEN(r->word) + 1));
	r->owner = SHM_NO_PEER;
	r->flags = 0;
	r->source = 0;
	r->op = 0;
	if ((p->flags & GPC_POOL_CALLER) && p->state == POOL_READY)
		record_return(w, record, 0); /* its writer died in record_free() */
	else
		p->free[p->nfree++] = record;
}

/* A record is as (D), (K), (L) of index/table/record.h or (M) of record.c left it, and the target
 * of a move as (O) of move_bind.c and command.c of index/writer did: before the store, or after
 * it. */
static void scan_other(struct writer *w, struct scan *sc, uint32_t record)
{
	const struct shm_record *r = w_record(w, record);

	if (WORD_STATE(r->word) == DYING) {
		scan_dying(w, sc, record);
		return;
	}
	if (WORD_STATE(r->word) == LIVE) { /* REC_MOVED */
		leave_again(w, record);
		return;
	}
	if (WORD_STATE(r->word) == RESERVED) {
		scan_reserved(w, sc, record);
		if (WORD_STATE(r->word) == RESERVED)
			return;
	}
	scan_free(w, sc, w_pool_of(w, record), record);
}

/* The scan goes from the last record of a pool to the first, since free blocks are stacked in that
 * order. */
void takeover_others(struct writer *w, struct scan *sc)
{
	uint32_t i, j;

	for (i = sc->nshares; i--;)
		for (j = 0; j < sc->share[i].other.n; j++)
			scan_other(w, sc, sc->share[i].other.at[j]);
}
