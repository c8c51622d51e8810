/* SPDX-License-Identifier: Apache-2.0 */
/* check_transfer.c - transfers that the writer commits: the table of index/writer/transfer.h.
 * Tests: t/index/transfers-forged.t */
#include "config.h"

#include "look/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "index/segment/lockfile.h"

static bool is_sound(const struct shm_xfer *x)
{
	return x->value && x->value <= UINT64_MAX / SHM_TRANSFERS && x->op && x->n &&
	       x->n <= SHM_RING && x->op <= UINT64_MAX - SHM_RING && x->left <= x->n;
}

static bool has(const struct shm_xfer *x, uint64_t op)
{
	return x->left && is_sound(x) && op >= x->op && op - x->op < x->n;
}

/* The channel of its owner's transfer that the record belongs to, or SHM_TRANSFERS. */
static uint32_t channel_of(const struct check *k, const struct shm_record *r)
{
	uint32_t i = SHM_TRANSFERS;

	if (r->owner < k->s->header.geometry.max_peers)
		for (i = 0; i < SHM_TRANSFERS && !has(seg_xfer(k->s, r->owner, i), r->op); i++)
			;
	return i;
}

bool check_is_target(const struct check *k, const struct shm_record *r)
{
	return channel_of(k, r) < SHM_TRANSFERS;
}

static uint64_t witness(const struct shm_xfer *x)
{
	return check_mix(check_mix(x->value, x->op), x->left);
}

static void check_xfer(struct check *k, uint32_t peer, uint32_t channel)
{
	const struct shm_xfer *x = seg_xfer(k->s, peer, channel), *y;
	uint32_t i;

	if (!x->left)
		return;
	if (!is_sound(x)) {
		check_bad(
			k, witness(x),
			"seat %u: transfer %u is damaged (value %llu, operation %llu, %u entries, %u "
			"left)",
			peer, channel, (unsigned long long)x->value, (unsigned long long)x->op,
			x->n, x->left);
		return;
	}
	if (seg_seat(k->s, peer)->state == SEAT_FREE)
		check_bad(k, witness(x), "seat %u: empty, but its transfer %u is not over", peer,
			  channel);
	for (i = 0; i < SHM_RANKS && x->rank[i] != SHM_NO_PEER; i++)
		if (x->rank[i] != SHM_RANK_GONE && x->rank[i] >= k->s->header.geometry.max_peers)
			check_bad(k, witness(x),
				  "seat %u: rank %u of transfer %u is seat %u, which cannot be",
				  peer, i, channel, x->rank[i]);
	for (i = 0; i < channel; i++) {
		y = seg_xfer(k->s, peer, i);
		if (has(y, x->op) || has(x, y->op))
			check_bad(k, check_mix(witness(x), witness(y)),
				  "seat %u: transfers %u and %u have entries of one command", peer,
				  i, channel);
	}
}

/* Count the targets by channel.  A writer that was killed leaves a number that its successor
 * counts anew. */
static void check_left(struct check *k)
{
	uint32_t i, channel, n = k->s->header.geometry.max_peers * SHM_TRANSFERS;
	uint32_t *count = calloc(n, sizeof(*count));

	if (!count) {
		k->err = err_set(ENOMEM, "no memory to count the targets of transfers");
		return;
	}
	for (i = 0; i < k->s->header.geometry.max_blocks; i++) {
		const struct shm_record *r = seg_record(k->s, i);

		if (k->pool_of[i] == SHM_NO_POOL || WORD_STATE(r->word) != RESERVED)
			continue;
		channel = channel_of(k, r);
		if (channel < SHM_TRANSFERS)
			count[r->owner * SHM_TRANSFERS + channel]++;
	}
	for (i = 0; i < n; i++) {
		const struct shm_xfer *x = seg_xfer(k->s, i / SHM_TRANSFERS, i % SHM_TRANSFERS);

		if (x->left && is_sound(x) && x->left != count[i])
			check_bad(k, check_mix(witness(x), count[i]),
				  "seat %u: transfer %u has %u targets, and %u are said to be left",
				  i / SHM_TRANSFERS, i % SHM_TRANSFERS, count[i], x->left);
	}
	free(count);
}

void check_transfers(struct check *k)
{
	uint32_t peer, channel;

	for (peer = 0; peer < k->s->header.geometry.max_peers; peer++)
		for (channel = 0; channel < SHM_TRANSFERS; channel++)
			check_xfer(k, peer, channel);
	if (segment_writer_alive(k->s))
		check_left(k);
}
