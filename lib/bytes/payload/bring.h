/* SPDX-License-Identifier: Apache-2.0 */
/* bring.h - one transfer that the writer commits, from the maps to the mark: the common part of
 * fetch and spill.
 *
 *   bring_new      memory of the call
 *   bring_lot      the pools on either side, mapped, and planned
 *   bring_begin    a channel, with all these maps; the stream is checked
 *   bring_ask      the command, its answer: items have their targets
 *   bring_copy     by stages and lots to the stream; returns the number of whole items
 *   bring_finish   the mark behind them; or the transfer is torn
 *   bring_end      frees memory, and what was not begun
 *
 * With ranks other processes copy, so here are no lots and no copies, and no mark. */
#ifndef GPC_PAYLOAD_BRING_H
#define GPC_PAYLOAD_BRING_H

#include "bytes/payload/sum.h"
#include "bytes/payload/transfers.h"
#include "index/request/request.h"

struct bring_item {         /* an entry of the command */
	gpc_block from, to; /* to is -1: it is not known yet, or the target's space has the key */
	uint32_t lot;
	uint32_t place; /* of a fetch: its place in the prompt */
	gpc_key key;
	uint64_t op;
};

struct bring_lot {
	struct map *map;
	const struct pair *pair;
};

struct bring {
	gpc *c;
	uint32_t n;   /* items */
	int32_t why;  /* the reason why the writer has given fewer than were asked for; else 0 */
	bool fetches; /* blocks come to `home`; else they leave it */
	bool begun;   /* this call has the channel */
	bool copied;  /* something was given to the stream */
	bool lost;    /* ... and nobody will see its end */
	uint32_t channel;
	uint32_t stages;
	uint32_t nranks;
	const int32_t *ranks;
	void *stream;
	const struct map *by; /* the pool whose device copies; NULL: our threads, or ranks */
	struct map *home;
	uint32_t nlots;
	struct bring_lot lot[GPC_MAX_POOLS + 1];
	struct bring_item item[GPC_TRANSFER_BLOCKS];
	struct sum_item sum[GPC_TRANSFER_BLOCKS];
};

/* Check the ranks: -EINVAL. */
int bring_check_ranks(const gpc *c, uint32_t nranks, const int32_t *ranks, const void *moves,
		      const void *nmoves);
struct bring *bring_new(gpc *c, bool fetches, void *stream); /* NULL: no memory */
int bring_home(struct bring *b, uint32_t pool);
/* The other pool of some items.  -ENOSPC: it would need another device than the lots before. */
int bring_lot(struct bring *b, uint32_t pool, uint32_t *ret_lot);
int bring_begin(struct bring *b);
/* The head has b->item[].from, or the writer chooses the blocks.  Returns the number of items,
 * which are all items from then on, with their `to`.  After an error no transfer is begun any
 * more. */
int bring_ask(struct bring *b, const struct shm_command *head, uint64_t deadline);
/* Copy the first n items; returns the number that are whole. */
uint32_t bring_copy(struct bring *b, uint32_t n, int *ret_err);
/* The input for the checksum of item i, whose key is known. */
void bring_sum_item(const struct bring *b, uint32_t i, struct sum_item *ret);
/* Called after bring_ask().  -ESTALE: the mapped memory is not the memory of the bound pools. */
int bring_check(const struct bring *b);
/* The items before `whole` are whole.  all: no items follow them; else those that do are cut.
 * Returns the transfer's name, or 0 if nothing is on its way. */
gpc_transfer bring_finish(struct bring *b, uint32_t whole, bool all);
/* For ranks: the moves that are to be copied. */
void bring_tell(const struct bring *b, uint32_t n, struct gpc_move *moves, uint32_t *nmoves);
/* Drop one of the caller's references on each block. */
void bring_unref(gpc *c, const gpc_block *blocks, uint32_t n);
void bring_end(struct bring *b);

#endif
