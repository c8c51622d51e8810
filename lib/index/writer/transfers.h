/* SPDX-License-Identifier: Apache-2.0 */
/* transfers.h - functions that the sources of transfers share: transfer.c, transfer_decide.c,
 * transfer_end.c.
 * Tests: t/index/transfers-forged.t t/index/transfers.t */
#ifndef GPC_WRITER_TRANSFERS_H
#define GPC_WRITER_TRANSFERS_H

#include "index/writer/transfer.h"

/* A transfer that a command has begun.  w->transfers has all of them, and transfer[] of a peer its
 * own by channel.  A takeover makes both anew, from struct shm_xfer and the records. */
struct transfer {
	struct transfer *next;
	uint32_t peer, channel, n;
	uint64_t value, op;
	uint64_t begun_ns, look_ns;
	uint32_t left;    /* targets that are not decided */
	uint32_t brought; /* targets that this writer has committed */
	bool announced;
	bool dead; /* its peer is dead, and ranks still copy */
	/* the target of each entry of the command; NONE: there is none, or it is decided */
	uint32_t target[];
};

enum words { WORDS_WAIT, WORDS_DONE, WORDS_LOST };

static inline struct shm_xfer *w_xfer(struct writer *w, uint32_t peer, uint32_t channel)
{
	return SEG_AT(w->seg.index, w->seg.at.xfer, struct shm_xfer,
		      (uint64_t)peer * SHM_TRANSFERS + channel);
}

static inline struct shm_xfer *xfer_of(struct writer *w, const struct transfer *t)
{
	return w_xfer(w, t->peer, t->channel);
}

static inline bool xfer_is_rank(uint8_t rank)
{
	return rank != SHM_NO_PEER && rank != SHM_RANK_GONE;
}

static inline bool xfer_has_ranks(const struct shm_xfer *x)
{
	return x->rank[0] != SHM_NO_PEER;
}

/* ---- transfer.c ---- */

struct transfer *transfer_add(struct writer *w, uint32_t peer, uint32_t channel,
			      const struct shm_xfer *x);
void transfer_remove(struct writer *w, struct transfer *t);
/* For tools: the number of this peer's transfers that are under way. */
void transfer_tell_count(struct writer *w, uint32_t peer);
void transfer_set_told(struct writer *w, struct transfer *t);
bool transfer_rank_passed(struct writer *w, const struct transfer *t, uint32_t i);
enum words transfer_words(struct writer *w, const struct transfer *t);
/* Look at it, and decide.  True: it is over, and freed; true has the same meaning below. */
bool transfer_look(struct writer *w, struct transfer *t);

/* ---- transfer_decide.c ---- */

bool transfer_commit(struct writer *w, struct transfer *t); /* false: it waits for a bucket */
bool transfer_refuse(struct writer *w, struct transfer *t,
		     uint64_t from); /* entries from there on */
bool transfer_refuse_bad(struct writer *w, struct transfer *t, uint64_t bad);
/* Copies of the dead peer itself may be under way. */
bool transfer_quarantine(struct writer *w, struct transfer *t);
bool transfer_tell(struct writer *w, struct transfer *t);

#endif
