/* SPDX-License-Identifier: Apache-2.0 */
/* root.c - the words of root keys, stored.
 *
 * If we die between two stores, the place proves no root.  The command has no answer, and its words
 * stand in the seat's request still, so a successor runs it again: it finds the root, or fills the
 * first place that proves none.  `turn` moves after that.  Where it has not, the place is the one
 * that is forgotten next.
 * Tests: t/357-root-stores.t t/118-roots.t */
#include "config.h"

#include <errno.h>
#include "segment/peek.h"
#include "segment/root.h"
#include "writer/root.h"

static bool request_copy(const struct writer *w, uint32_t peer, struct shm_root *ret)
{
	const struct shm_pool *rq = &seg_seat(&w->seg, peer)->request;
	uint32_t bytes = load_relaxed(&rq->backing_size);

	if (bytes > sizeof(ret->field) || bytes % 8)
		return false;
	ret->words = bytes / 8;
	seg_copy_words(ret->field, rq->backing, bytes);
	return true;
}

/* The first place from the bucket's turn on that holds nothing, or else the oldest one. */
static uint32_t choose(const struct writer *w, uint32_t first)
{
	const struct shm_root *bucket =
		SEG_AT(w->seg.index, w->seg.at.root, const struct shm_root, first);
	uint32_t i, at, turn = load_relaxed(&bucket->turn) % SHM_ROOTS;
	struct shm_root copy;

	for (i = 0; i < SHM_ROOTS; i++) {
		at = (turn + i) % SHM_ROOTS;
		seg_copy_words(&copy, &bucket[at], sizeof(copy));
		if (!root_proves(&w->seg, &copy, &(gpc_key){ { copy.root[0], copy.root[1] } }))
			return at;
	}
	return turn;
}

int32_t root_store(struct writer *w, uint32_t peer, const gpc_key *root)
{
	struct shm_root new, old, *bucket;
	uint32_t i, at, first;

	if (!root_is_kept(&w->seg))
		return -ENOENT;
	if (!request_copy(w, peer, &new) || !root_proves(&w->seg, &new, root))
		return -EINVAL;
	if (root_find(&w->seg, root, &old) != SHM_NO_RECORD)
		return 0;
	first = root_place(&w->seg, root);
	bucket = SEG_AT(w->seg.index, w->seg.at.root, struct shm_root, first);
	at = choose(w, first);
	store_relaxed(&bucket[at].root[0], root->w[0]);
	store_relaxed(&bucket[at].root[1], root->w[1]);
	store_relaxed(&bucket[at].words, new.words);
	for (i = 0; i < new.words; i++)
		store_relaxed(&bucket[at].field[i], new.field[i]);
	store_relaxed(&bucket->turn, (at + 1) % SHM_ROOTS);
	return 0;
}
