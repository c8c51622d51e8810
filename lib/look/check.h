/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - one pass over a private copy of a cache, by the files check*.c.
 *
 * Every number of the copy is bounded before it is used: damage becomes lines, never a signal. */
#ifndef GPC_CHECK_H
#define GPC_CHECK_H

#include "index/peer/handle.h"
#include "kernels/probe.h"

struct check {
	gpc *c;
	const struct segment *s; /* the copy */
	gpc_key mask[GPC_MAX_SPACES];
	uint8_t *pool_of; /* by record: pool that owns it, or SHM_NO_POOL */
	/* by record: the number of table entries that name it, 4 bits for each of its two buckets,
	 * saturated */
	uint8_t *entries;
	uint32_t *by_key; /* open addressing: record + 1 */
	uint64_t by_key_mask, seed[2];
	uint32_t space_of[GPC_MAX_POOLS + 1];
	uint8_t *named;            /* by record: a command of its owner names it */
	bool alive[GPC_MAX_PEERS]; /* seats with a living process, whose work goes on */
	bool open_sections;        /* an open section holds grace periods back */

	/* lines: a line counts only if earlier copies had it, too (check.c) */
	const uint64_t *before; /* sorted, of the previous copy; NULL in the first */
	uint64_t nbefore;
	uint64_t *now, nnow, now_size;
	bool last;  /* this copy's lines are reported */
	bool still; /* nobody lived before the copy was made, so the next one would be the same */
	/* check_pace.c: shm_state.passes after the first copy, and after the last one */
	uint64_t passes_first, passes_behind;
	bool copied, unfinished; /* the last copy has changes that only passes of the writer end */
	uint32_t recovery_waits;
	uint64_t reported;
	void (*report)(void *arg, const char *line);
	void *arg;
	int err; /* there is no memory */
};

/* Report a violation.  witness: a hash of the words that it is about; the same line about other
 * words is another violation. */
void check_bad(struct check *k, uint64_t witness, const char *fmt, ...) PRINTF_LIKE(3, 4);

static inline uint64_t check_mix(uint64_t a, uint64_t b)
{
	unsigned __int128 m =
		(unsigned __int128)(a ^ 0x9e3779b97f4a7c15ull) * (b ^ 0xd6e8feb86659fd93ull);

	return (uint64_t)m ^ (uint64_t)(m >> 64);
}

/* The block id of a record that a pool owns; -1 for all other records. */
gpc_block check_block(const struct check *k, uint32_t record);
/* READY, so that its blocks count? */
bool check_pool_ready(const struct check *k, uint32_t pool);
bool check_is_live(const struct check *k, uint32_t record);
/* Is the key live in the space of that pool?  It is called after check_records. */
bool check_key_is_live(const struct check *k, const uint64_t key[2], uint32_t pool);

/* check_pace.c: make the next copy that counts.  -EAGAIN: there is none; or another negative
 * errno. */
int check_next_copy(struct check *k, struct segment *s, bool (*is_live)(const struct segment *s));
/* Wait until two passes have ended since the first copy, or the writer does not serve. */
void check_wait_passes(struct check *k, const struct segment *s);
bool check_passes_over(const struct check *k);
/* Has this seat a living process, and not merely a lock?  (check_control.c) */
bool check_lives(const struct check *k, uint32_t peer);

void check_files(struct check *k);  /* check.c: sizes, headers, counters of the state */
void check_pools(struct check *k);  /* check_record.c */
void check_memory(struct check *k); /* check_memory.c */
void check_records(struct check *k);
void check_table(struct check *k); /* check_table.c */
void check_mirrors(struct check *k);
void check_control(struct check *k);   /* check_control.c */
void check_holds(struct check *k);     /* check_hold.c */
void check_transfers(struct check *k); /* check_transfer.c */
/* Is the RESERVED record the target of a transfer of its owner? */
bool check_is_target(const struct check *k, const struct shm_record *r);
void check_claims(struct check *k);  /* check_claim.c; after check_records and check_holds */
void check_memos(struct check *k);   /* check_memo.c */
void check_dropped(struct check *k); /* check_dropped.c */

#endif
