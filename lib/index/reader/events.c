/* SPDX-License-Identifier: Apache-2.0 */
/* events.c - reading the feed of numbered changes.
 *
 * The segment numbers changes from 0 and keeps number + 1 in each (0 = being written).
 * For callers a change is that number + 1, and the cursor is the next number.  So a cursor is
 * never 0 again after the first call, and a caller that starts with 0 notices each loss.
 * Tests: t/index/feed.t t/look/feed-walk.t */
#include "config.h"

#include "index/peer/handle.h"
#include "gpc_look.h"
#include "index/segment/peek.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define START_TRIES 8 /* tries to read the oldest change while it is being overwritten */

struct change { /* a change, with the note beside it if digests are kept */
	struct shm_change ch;
	struct shm_note note;
};

static bool copy_mapped(const struct segment *s, uint64_t number, struct change *ret)
{
	const struct shm_change *from = seg_change(s, number);
	uint64_t seq = number + 1;

	if (load_acquire(&from->seq) != seq)
		return false;
	seg_copy_words(&ret->ch, from, sizeof(ret->ch));
	if (seg_keeps(s, KEEP_DIGESTS))
		seg_copy_words(&ret->note, seg_change_note(s, number), sizeof(ret->note));
	order_fence();
	/* pairs with (N) of index/table/events.c */
	return load_relaxed(&from->seq) == seq;
}

/* The same by reading the file, one word after the other. */
static bool copy_from_file(const struct segment *s, uint64_t number, struct change *ret)
{
	uint64_t place = number & (s->header.geometry.changes - 1);
	uint64_t at = s->at.change + place * sizeof(ret->ch);
	uint64_t before, after;

	segment_read(s->index_fd, at, &before, sizeof(before));
	segment_read(s->index_fd, at, &ret->ch, sizeof(ret->ch));
	if (seg_keeps(s, KEEP_DIGESTS))
		segment_read(s->index_fd, s->at.change_note + place * sizeof(ret->note), &ret->note,
			     sizeof(ret->note));
	segment_read(s->index_fd, at, &after, sizeof(after));
	return before == number + 1 && after == number + 1;
}

/* Copy change `number`, if the feed has it and had it during the whole copy. */
static bool copy_change(const struct segment *s, uint64_t number, struct gpc_event *out)
{
	struct change it = { .note = { .group = 0 } };
	const struct shm_change *ch = &it.ch;

	if (!(s->snapshot ? copy_from_file(s, number, &it) : copy_mapped(s, number, &it)))
		return false;
	*out = (struct gpc_event){
		.seq = number + 1,
		.what = ch->what,
		.tag = ch->tag,
		.block = ch->block,
		.was = ch->was,
		.key = { { ch->key[0], ch->key[1] } },
		.parent = { { ch->parent[0], ch->parent[1] } },
		.group = it.note.group,
		.digest_bytes = it.note.digest_bytes,
	};
	memcpy(out->digest, it.note.digest, sizeof(out->digest));
	return true;
}

static uint64_t head_of(const struct segment *s)
{
	struct shm_state st;

	seg_peek_state(s, &st);
	order_fence();
	return st.events_head;
}

static uint64_t floor_of(const struct segment *s)
{
	struct shm_state st;

	seg_peek_state(s, &st);
	return st.events_floor;
}

static uint64_t oldest_of(const struct segment *s, uint64_t head)
{
	uint64_t floor = floor_of(s);
	uint64_t kept = s->header.geometry.changes;
	uint64_t oldest = head > kept ? head - kept : 0;

	return MIN(MAX(oldest, floor), head);
}

static uint32_t copy_changes(const struct segment *s, uint64_t from, uint64_t head,
			     struct gpc_event *out, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && from + i < head; i++)
		if (!copy_change(s, from + i, &out[i]))
			break;
	return i;
}

static int changes_oldest(const struct segment *s, uint64_t *cursor, struct gpc_event *out,
			  uint32_t n)
{
	uint64_t head = 0, from;
	uint32_t got, tries;

	for (tries = 0; tries < START_TRIES; tries++) {
		head = head_of(s);
		/* the oldest change may lie in the very place that is being overwritten, so each
		 * try begins a little later */
		from = MIN(oldest_of(s, head) + (1u << tries) - 1, head);
		got = copy_changes(s, from, head, out, n);
		if (got || from == head || !n) {
			*cursor = from + got + 1;
			return (int)got;
		}
	}
	*cursor = head + 1;
	return err_set(ESTALE, "the feed is overwritten faster than it is read");
}

static int changes_next(const struct segment *s, uint64_t *cursor, struct gpc_event *out,
			uint32_t n)
{
	uint64_t head = head_of(s), from = *cursor - 1;
	uint32_t got;

	if (from == head)
		return 0;
	if (from < head && from >= oldest_of(s, head)) {
		got = copy_changes(s, from, head, out, n);
		*cursor += got;
		if (got || !n)
			return (int)got;
		head = head_of(s);
	}
	*cursor = head + 1;
	if (from > head)
		return err_set(ESTALE, "change %llu has not happened yet: the last one is %llu",
			       (unsigned long long)from + 1, (unsigned long long)head);
	return err_set(ESTALE,
		       "change %llu is not kept any more; walk, and go on from the new "
		       "cursor",
		       (unsigned long long)from + 1);
}

GPC_EXPORT int gpc_event_read(gpc *c, uint64_t *cursor, struct gpc_event *out, uint32_t n)
{
	uint64_t start;
	int err, cut;

	if (!cursor || (!out && n))
		return err_set(EINVAL, "%s is NULL", cursor ? "out" : "cursor");
	err = handle_check(c, false);
	if (err == 0)
		err = err_count(n, "events");
	if (err)
		return err;
	start = *cursor;
	if (*cursor == UINT64_MAX)
		*cursor = head_of(&c->seg) + 1;
	else if (*cursor == 0)
		err = changes_oldest(&c->seg, cursor, out, n);
	else
		err = changes_next(&c->seg, cursor, out, n);
	/* the reads are done before the check: if the file is whole now, it was whole then */
	cut = segment_check_index(&c->seg);
	if (cut < 0)
		*cursor = start;
	return cut < 0 ? cut : err;
}
