/* SPDX-License-Identifier: Apache-2.0 */
/* move_bind.c - the first half of a move: a target names its source, which stays where it is.
 * Tests: t/index/moves.t t/index/move-ends.t t/bytes/copy-dies.t */
#include "config.h"

#include "index/table/lru.h"
#include "index/table/pending.h"
#include "index/writer/move_bind.h"

void move_pin(struct writer *w, uint32_t source, bool keep)
{
	w->node[source].pins++;
	if (!keep)
		w->node[source].moving = true;
}

void move_unpin(struct writer *w, uint32_t source, bool keep)
{
	w->node[source].pins--;
	if (!keep) /* the pin of its target replaces that of the grant */
		w->node[source].moving = w->node[source].pins != 0;
	lru_offer(w, source);
}

void move_bind(struct writer *w, uint32_t target, uint32_t source, uint32_t source_word,
	       uint8_t flags)
{
	struct shm_record *t = w_record(w, target);
	const struct shm_record *s = w_record(w, source);

	t->key[0] = s->key[0];
	t->key[1] = s->key[1];
	t->parent[0] = s->parent[0];
	t->parent[1] = s->parent[1];
	t->depth = s->depth;
	t->tag = s->tag;
	t->flags = flags | (s->flags & REC_UNCHAINED);
	t->source_word = source_word;
	/* (O) bound: a successor that sees the source sees all of the above.  Before it the
	 * successor sees a plain reservation. */
	store_release(&t->source, source + 1);
	move_pin(w, source, flags & REC_COPY);
	lru_set(w, target, lru_stamp(w, source));
}

/* The record may be the target of a transfer. */
static void end_transfer(struct writer *w, uint32_t record)
{
	if (!w->node[record].bound || !w_record(w, record)->source)
		return;
	pending_end(w, record);
	w->node[w_record(w, record)->source - 1].readers--;
}

void move_unbind(struct writer *w, uint32_t target)
{
	struct shm_record *t = w_record(w, target);
	uint32_t source = t->source - 1;
	uint8_t flags = t->flags;

	if (!w_is(w, target, RESERVED) || !t->source)
		return;
	end_transfer(w, target);
	/* in this order, since a source without its flags would look like a move's only source */
	store_release(&t->source, 0);
	store_release(&t->flags, 0);
	move_unpin(w, source, flags & REC_COPY);
}

static void forget_sources_of(struct writer *w, const struct wpool *of, uint32_t pool)
{
	uint32_t i;

	for (i = of->first; i < of->first + of->slots; i++) {
		const struct shm_record *t = w_record(w, i);

		/* A device may still read it for a transfer; the pool goes when that is over (rule
		 * B6). */
		if (w_is(w, i, RESERVED) && t->source && w->pool_of[t->source - 1] == pool &&
		    !w->node[i].bound)
			move_unbind(w, i);
	}
}

/* Only records of pools are looked at, since a forged segment may have anything between them. */
void move_forget_sources(struct writer *w, uint32_t pool)
{
	uint32_t p;

	for (p = 0; p < w->max_pools; p++)
		if (w->pool[p].state != POOL_FREE)
			forget_sources_of(w, &w->pool[p], pool);
}
