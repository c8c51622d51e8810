/* SPDX-License-Identifier: Apache-2.0 */
/* take.h - references on hits.
 *
 * They are taken one by one, with a locked instruction or two each.  The lines of the next few are
 * prefetched meanwhile. */
#ifndef GPC_TAKE_H
#define GPC_TAKE_H

#include "index/peer/refs.h"
#include "index/reader/call.h"

#include <errno.h>

#define TAKE_AHEAD 8u /* references whose lines are on their way */

/* Prefetch the lines that the reference TAKE_AHEAD places behind i will need.
 *
 * It is always inline: gcc sees no effect in a function that does nothing but prefetch, and
 * removes calls of it. */
static inline __attribute__((always_inline)) void
take_prefetch(const struct call *a, const uint32_t *records, uint32_t n, uint32_t i)
{
	const struct segment *s = &a->c->seg;
	uint32_t record;

	if (!a->refs || i + TAKE_AHEAD >= n || records[i + TAKE_AHEAD] == SHM_NO_RECORD)
		return;
	record = records[i + TAKE_AHEAD];
	if (!a->quiet)
		__builtin_prefetch(seg_use(s, record), 1);
	__builtin_prefetch(seg_record(s, record));
	__builtin_prefetch(refs_cell(a->c, record), 1);
}

static inline __attribute__((always_inline)) void
take_prefetch_first(const struct call *a, const uint32_t *records, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < TAKE_AHEAD; i++)
		take_prefetch(a, records, n, i - TAKE_AHEAD);
}

/* A reference on this block: 0, or -ESTALE, -EOVERFLOW. */
static inline int take_once(struct call *a, const gpc_key *key, gpc_block block, uint32_t record)
{
	int err = -ESTALE;

	if (record != SHM_NO_RECORD)
		err = refs_take(a->c, record, block, key, &a->sum);
	a->overflow |= err == -EOVERFLOW;
	return err;
}

/* Look in each space once more, in order, with the pools as they are now.  A space whose block
 * gives no reference is passed over (rule S3). */
int take_again(struct call *a, const gpc_key *key, gpc_block *block, uint32_t *record);

/* Take a reference on a hit.  If its block went meanwhile, the key is looked for again before it
 * counts as a miss. */
static inline int key_take(struct call *a, const gpc_key *key, gpc_block *block, uint32_t *record)
{
	int err = take_once(a, key, *block, *record);

	return err == -ESTALE ? take_again(a, key, block, record) : err;
}

#endif
