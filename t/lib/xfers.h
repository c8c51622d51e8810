/* SPDX-License-Identifier: Apache-2.0 */
/* xfers.h - transfers by hand: commands that stand in the ring of a handle, and done words that the
 * test stores as a device would. */
#ifndef GPC_T_XFERS_H
#define GPC_T_XFERS_H

#include <string.h>

#include "cache.h"

#include "index/peer/handle.h"
#include "index/segment/blocks.h"

enum { XFERS_MOST = 16 };

/* A group: what is asked, and what was answered. */
struct xfer {
	gpc *p;
	uint32_t slot, n;
	uint64_t value, position;
	gpc_block to[XFERS_MOST];
	int32_t result;
};

#ifndef GPC_T_DIES_H
static gpc *c; /* the writer */
#endif

TAP_FN struct shm_seat *xfers_seat(gpc *p)
{
	return seg_seat(&p->seg, p->peer);
}

TAP_FN struct shm_transfer *xfers_words(gpc *p)
{
	return seg_transfer(&p->seg, p->peer);
}

TAP_FN const struct shm_xfer *xfers_of(gpc *p, uint32_t slot)
{
	return seg_xfer(&c->seg, p->peer, slot);
}

TAP_FN const struct shm_record *record_of(gpc_block b)
{
	return seg_record(&c->seg, pool_record(&c->seg, b));
}

TAP_FN uint32_t state_of(gpc_block b)
{
	return WORD_STATE(load_acquire(&record_of(b)->word));
}

TAP_FN uint16_t *cell_of(gpc *p, gpc_block b)
{
	return seg_cell(&p->seg, pool_record(&p->seg, b), p->peer);
}

/* ---- the ring ---- */

/* n slots of one group; the first has the arguments. */
TAP_FN uint64_t put(gpc *p, struct shm_command *cmd, uint32_t n)
{
	struct shm_seat *seat = xfers_seat(p);
	uint64_t at = seat->head;
	uint32_t i;

	for (i = 0; i < n; i++) {
		cmd[i].count = i ? 0 : n;
		cmd[i].result = CMD_PENDING;
		*seg_command(&p->seg, p->peer, at + i) = cmd[i];
	}
	store_release(&seat->head, at + n);
	order_or64(&seg_shared(&p->seg)->pending[p->peer >> 6], 1ull << (p->peer & 63));
	return at;
}

TAP_FN bool is_answered(gpc *p, uint64_t at)
{
	return load_acquire(&seg_command(&p->seg, p->peer, at)->result) != CMD_PENDING;
}

/* The answer, or CMD_PENDING when none comes. */
TAP_FN int32_t answer(gpc *p, uint64_t at)
{
	int i;

	for (i = 0; i < 100 && !is_answered(p, at); i++)
		must(gpc_writer_serve(c, 1));
	return load_acquire(&seg_command(&p->seg, p->peer, at)->result);
}

/* Takes the answers, as the library would. */
TAP_FN void take_answers(gpc *p)
{
	store_relaxed(&xfers_seat(p)->taken, xfers_seat(p)->head);
}

TAP_FN int32_t run1(gpc *p, struct shm_command cmd)
{
	int32_t r = answer(p, put(p, &cmd, 1));

	take_answers(p);
	return r;
}

/* ---- transfers ---- */

TAP_FN struct xfer xfer(gpc *p, uint32_t slot, uint64_t value)
{
	return (struct xfer){ .p = p, .slot = slot, .value = value };
}

/* The command in the ring; ranks: seats, or NULL. */
TAP_FN void xfer_put(struct xfer *x, uint32_t op, int from, int to, const gpc_block *blocks,
		     uint32_t n, const gpc *const *ranks, uint32_t nranks, uint16_t flags)
{
	struct shm_command cmd[XFERS_MOST];
	uint32_t i;

	memset(cmd, 0, sizeof(cmd));
	for (i = 0; i < n; i++) {
		cmd[i].op = (uint8_t)op;
		cmd[i].flags = flags;
		cmd[i].pool = (uint8_t)from;
		cmd[i].move.to_pool = (uint8_t)to;
		cmd[i].block = blocks ? blocks[i] : GPC_NONE;
	}
	cmd[0].move.any = !blocks;
	cmd[0].move.transfer = x->value << 6 | x->slot;
	memset(cmd[0].move.rank, SHM_NO_PEER, sizeof(cmd[0].move.rank));
	for (i = 0; i < nranks; i++)
		cmd[0].move.rank[i] = (uint8_t)ranks[i]->peer;
	xfers_words(x->p)->bad[x->slot % SHM_TRANSFERS] = UINT64_MAX;
	x->n = n;
	x->position = put(x->p, cmd, n);
}

TAP_FN int32_t xfer_answer(struct xfer *x)
{
	uint32_t i;

	x->result = answer(x->p, x->position);
	for (i = 0; i < XFERS_MOST; i++)
		x->to[i] = x->result > (int32_t)i
				   ? seg_command(&x->p->seg, x->p->peer, x->position + i)->move.to
				   : GPC_NONE;
	if (x->result != CMD_PENDING)
		take_answers(x->p);
	return x->result;
}

TAP_FN int32_t fetch(struct xfer *x, int to, const gpc_block *blocks, uint32_t n)
{
	xfer_put(x, CMD_PROMOTE, 0, to, blocks, n, NULL, 0, 0);
	return xfer_answer(x);
}

TAP_FN int32_t spill(struct xfer *x, int from, int to, const gpc_block *blocks, uint32_t n)
{
	xfer_put(x, CMD_DEMOTE, from, to, blocks, n, NULL, 0, 0);
	return xfer_answer(x);
}

/* The device has copied. */
TAP_FN void xfer_done(struct xfer *x)
{
	store_release(&xfers_words(x->p)->done[x->slot], x->value);
}

TAP_FN void rank_done(struct xfer *x, uint32_t i)
{
	store_release(&xfers_words(x->p)->rank[x->slot][i], x->value);
}

TAP_FN bool is_over(struct xfer *x)
{
	const struct shm_xfer *s = xfers_of(x->p, x->slot);

	return load_relaxed(&s->value) != x->value || !load_acquire(&s->left);
}

/* The writer serves until it is over; false: it is not. */
TAP_FN bool ends(struct xfer *x)
{
	int i;

	for (i = 0; i < 100 && !is_over(x); i++)
		must(gpc_writer_serve(c, 1));
	return is_over(x);
}

TAP_FN void serve_some(void)
{
	int i;

	for (i = 0; i < 5; i++)
		must(gpc_writer_serve(c, 1));
}

TAP_FN int32_t xfer_cut(struct xfer *x, uint64_t from)
{
	return run1(x->p, (struct shm_command){ .op = CMD_CUT,
						.cut.transfer = x->value << 6 | x->slot,
						.cut.from = from });
}

/* The command FREE, PUBLISH or DROP of one block. */
TAP_FN int32_t run_on(gpc *p, uint32_t op, gpc_block b)
{
	struct shm_command cmd = { .op = (uint8_t)op, .block = b };

	if (op == CMD_PUBLISH)
		cmd.publish.key[0] = cmd.publish.key[1] = 4711;
	return run1(p, cmd);
}

TAP_FN int32_t run_commit(gpc *p, gpc_block from, gpc_block to, uint16_t flags)
{
	return run1(p, (struct shm_command){ .op = CMD_COMMIT,
					     .flags = flags,
					     .block = from,
					     .commit.to = to,
					     .commit.move_op = record_of(to)->op });
}

/* All reservations and references are gone, and nothing is DYING. */
TAP_FN bool is_quiet(void)
{
	int i;

	for (i = 0; i < 200; i++) {
		struct gpc_stats st = stats_of(c, -1);

		if (!st.dying && !st.reserved)
			return true;
		must(gpc_writer_serve(c, 1));
	}
	diag("%d dying, %d reserved", (int)stats_of(c, -1).dying, (int)stats_of(c, -1).reserved);
	return false;
}

#endif
