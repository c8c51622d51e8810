/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.c - the writer decides transfers when the devices have copied.
 *
 * The age of a transfer decides how often the writer looks at it (rule B18).  The writer also looks
 * when the transfer's peer, or a rank, has seen the done word and rings:
 *
 *   age           looked at
 *   below 10 ms   in each pass, and every 50 us
 *   below 1 s     every 1 ms
 *   older         every 20 ms
 * Tests: t/index/transfer-turns.t t/index/transfers-die.t t/index/transfers.t
 *   t/torture/transfer.t t/bytes/ranks.t */
#include "config.h"

#include <errno.h>
#include <string.h>
#include "index/writer/grants.h"
#include "index/table/alloc.h"
#include "index/table/pending.h"
#include "index/writer/transfers.h"

#define YOUNG_NS (10 * NS_PER_MS)
#define OLD_NS   (1000 * NS_PER_MS)

/* ---- the list ---- */

struct transfer *transfer_add(struct writer *w, uint32_t peer, uint32_t channel,
			      const struct shm_xfer *x)
{
	uint32_t i, n = x->n;
	struct transfer *t = writer_alloc(1, sizeof(*t) + n * sizeof(t->target[0]));

	*t = (struct transfer){
		.next = w->transfers,
		.peer = peer,
		.channel = channel,
		.n = n,
		.value = x->value,
		.op = x->op,
		.begun_ns = x->begun_ns,
	};
	w->transfers = w->peer[peer].transfer[channel] = t;
	for (i = 0; i < n; i++)
		t->target[i] = NONE;
	return t;
}

void transfer_remove(struct writer *w, struct transfer *t)
{
	struct transfer **at = &w->transfers;

	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	w->peer[t->peer].transfer[t->channel] = NULL;
	w->peer[t->peer].announced &= ~(1ull << t->channel);
	writer_free(t);
}

/* Called before the first `left` is stored, and after the last one has become 0. */
void transfer_tell_count(struct writer *w, uint32_t peer)
{
	store_relaxed(&w_tally(w, peer)->transfers,
		      (uint64_t)__builtin_popcountll(w->peer[peer].announced));
}

void transfer_set_told(struct writer *w, struct transfer *t)
{
	t->announced = true;
	w->peer[t->peer].announced |= 1ull << t->channel;
	transfer_tell_count(w, t->peer);
}

/* ---- begin ---- */

/* Up to 16 seats, each of them taken, and none twice. */
static int32_t ranks_check(struct writer *w, const struct shm_command *cmd)
{
	uint32_t i, j;

	for (i = 0; i < SHM_RANKS && cmd->move.rank[i] != SHM_NO_PEER; i++) {
		if (cmd->move.rank[i] >= w->max_peers)
			return -EINVAL;
		for (j = 0; j < i; j++)
			if (cmd->move.rank[j] == cmd->move.rank[i])
				return -EINVAL;
		if (load_acquire(&seg_seat(&w->seg, cmd->move.rank[i])->state) != SEAT_TAKEN)
			return -ESRCH;
	}
	for (; i < SHM_RANKS; i++)
		if (cmd->move.rank[i] != SHM_NO_PEER)
			return -EINVAL;
	return 0;
}

int32_t transfer_start(struct writer *w, uint32_t peer, uint64_t position,
		       const struct shm_command *cmd)
{
	uint32_t channel = cmd->move.transfer % SHM_TRANSFERS;
	uint64_t value = cmd->move.transfer / SHM_TRANSFERS;
	struct shm_xfer *x = w_xfer(w, peer, channel);
	bool again = value == x->value && x->op == OP_OF(position);
	int32_t err = value ? ranks_check(w, cmd) : -EINVAL;

	if (err < 0)
		return err;
	if (w->peer[peer].transfer[channel] || x->left || (value <= x->value && !again))
		return -EALREADY;
	/* The operation is stored before the value.  A successor that runs the command again finds
	 * a smaller value, or this one with this operation.  As left is 0, it believes nothing
	 * else. */
	store_release(&x->op, OP_OF(position));
	store_relaxed(&x->n, cmd->count);
	memcpy(x->rank, cmd->move.rank, sizeof(x->rank));
	store_relaxed(&x->refused, 0);
	store_relaxed(&x->bad, 0);
	/* rule B1: the value is stored before any target is bound, each of which is a release */
	store_release(&x->value, value);
	transfer_add(w, peer, channel, x);
	return 0;
}

static struct transfer *find_begun(struct writer *w, uint32_t peer, uint64_t position)
{
	uint32_t i;

	for (i = 0; i < SHM_TRANSFERS; i++) {
		struct transfer *t = w->peer[peer].transfer[i];

		if (t && !t->announced && t->op == OP_OF(position))
			return t;
	}
	return NULL;
}

void transfer_bound(struct writer *w, uint32_t peer, uint64_t position, uint32_t at,
		    uint32_t record)
{
	struct transfer *t = find_begun(w, peer, position);
	struct shm_xfer *x = xfer_of(w, t);

	if (!t->left++) {
		x->to = w->pool_of[record];
		x->from = w->pool_of[w_record(w, record)->source - 1];
	}
	t->target[at] = record;
	w->node[record].bound = true;
	w->node[w_record(w, record)->source - 1].readers++;
	pending_add(w, record);
}

void transfer_told(struct writer *w, uint32_t peer, uint64_t position)
{
	struct transfer *t = find_begun(w, peer, position);
	struct shm_xfer *x;

	if (!t)
		return; /* the command was refused */
	if (!t->left) {
		transfer_remove(w, t); /* nothing is copied */
		return;
	}
	x = xfer_of(w, t);
	transfer_set_told(w, t);
	t->begun_ns = t->look_ns = clock_ns();
	store_relaxed(&x->begun_ns, t->begun_ns);
	/* left is stored before the answer, since the peer takes 0 for over.  A successor that
	 * finds no answer sets it to 0, and the command runs again. */
	store_release(&x->left, t->left);
}

/* ---- look ---- */

/* Has the rank passed its copies?  Pairs with (d) of host_bytes.c, (h) and (e) of payload/: the
 * bytes are there. */
bool transfer_rank_passed(struct writer *w, const struct transfer *t, uint32_t i)
{
	return load_acquire(&seg_transfer(&w->seg, t->peer)->rank[t->channel][i]) == t->value;
}

static enum words look_at_ranks(struct writer *w, const struct transfer *t)
{
	const struct shm_xfer *x = xfer_of(w, t);
	enum words words = WORDS_DONE;
	uint32_t i;

	for (i = 0; i < SHM_RANKS && x->rank[i] != SHM_NO_PEER; i++) {
		if (transfer_rank_passed(w, t, i))
			continue;
		if (xfer_is_rank(x->rank[i]) && !(t->dead && x->rank[i] == t->peer))
			return WORDS_WAIT;
		words = WORDS_LOST;
	}
	return t->dead ? WORDS_LOST : words;
}

enum words transfer_words(struct writer *w, const struct transfer *t)
{
	if (xfer_has_ranks(xfer_of(w, t)))
		return look_at_ranks(w, t);
	return load_acquire(&seg_transfer(&w->seg, t->peer)->done[t->channel]) == t->value
		       ? WORDS_DONE
		       : WORDS_WAIT;
}

/* The peer is dead, and was a rank that did not pass.  Its copies may be under way until its
 * process is gone. */
static bool owner_copies(struct writer *w, const struct transfer *t)
{
	const struct shm_xfer *x = xfer_of(w, t);
	uint32_t i;

	if (!t->dead)
		return false;
	for (i = 0; i < SHM_RANKS && x->rank[i] != SHM_NO_PEER; i++)
		if (x->rank[i] == t->peer && !transfer_rank_passed(w, t, i))
			return true;
	return false;
}

bool transfer_look(struct writer *w, struct transfer *t)
{
	uint64_t bad;

	switch (transfer_words(w, t)) {
	case WORDS_WAIT:
		return false;
	case WORDS_DONE:
		bad = load_relaxed(&seg_transfer(&w->seg, t->peer)->bad[t->channel]);
		return bad == UINT64_MAX ? transfer_commit(w, t) : transfer_refuse_bad(w, t, bad);
	case WORDS_LOST:
		break;
	}
	return owner_copies(w, t) ? transfer_quarantine(w, t) : transfer_refuse(w, t, 0);
}

static uint64_t pause_of(uint64_t age)
{
	return age < YOUNG_NS ? 50000 : age < OLD_NS ? NS_PER_MS : 20 * NS_PER_MS;
}

static bool has_rung(struct writer *w, const struct transfer *t)
{
	const struct shm_xfer *x = xfer_of(w, t);
	uint32_t i;

	if (w->peer[t->peer].rang)
		return true;
	for (i = 0; i < SHM_RANKS && x->rank[i] != SHM_NO_PEER; i++)
		if (x->rank[i] < w->max_peers && w->peer[x->rank[i]].rang)
			return true;
	return false;
}

void transfer_poll(struct writer *w)
{
	struct transfer *t, *next;
	uint64_t now;
	uint32_t i;

	if (!w->transfers)
		return;
	now = clock_ns();
	for (t = w->transfers; t; t = next) {
		next = t->next;
		if (!t->announced ||
		    (now - t->begun_ns >= YOUNG_NS && now < t->look_ns && !has_rung(w, t)))
			continue;
		t->look_ns = now + pause_of(now - t->begun_ns);
		transfer_look(w, t);
	}
	for (i = 0; i < w->max_peers; i++)
		w->peer[i].rang = false;
}

bool transfer_settle(struct writer *w, uint32_t peer)
{
	struct wpeer *p = &w->peer[peer];
	uint64_t left;
	bool any = false;

	for (left = p->announced; left; left &= left - 1) {
		struct transfer *t = p->transfer[__builtin_ctzll(left)];

		if (transfer_words(w, t) == WORDS_WAIT)
			continue;
		transfer_look(w, t);
		any = true;
	}
	return any;
}

uint64_t transfer_next_look(const struct writer *w)
{
	const struct transfer *t;
	uint64_t first = UINT64_MAX;

	for (t = w->transfers; t; t = t->next)
		if (t->announced)
			first = MIN(first, t->look_ns);
	return first;
}

/* ---- cut ---- */

int32_t transfer_cut(struct writer *w, uint32_t peer, const struct shm_command *cmd)
{
	uint32_t channel = cmd->cut.transfer % SHM_TRANSFERS;
	struct transfer *t = w->peer[peer].transfer[channel];
	const struct shm_xfer *x = w_xfer(w, peer, channel);

	if (!cmd->cut.transfer || cmd->cut.transfer / SHM_TRANSFERS != x->value ||
	    cmd->cut.from > x->n)
		return -EINVAL;
	if (!t)
		return 0; /* it is over; a writer may have died before the answer */
	if (!t->announced)
		return -EBUSY;
	transfer_refuse(w, t, cmd->cut.from);
	return 0;
}
