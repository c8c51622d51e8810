/* SPDX-License-Identifier: Apache-2.0 */
/* hands.h - ids in the hands of sections, the grace periods that the writer begins and
 * ends, and how old an id is when it is used again.
 *
 * The writer is this program, so it stamps what it does: a block that left the table,
 * or all mirrors, with the epoch of that moment; and the last grace period that it
 * found over.  A section that saw an id has it in its hands; nobody may be given that
 * id, and no grace period that began after its stamp may be over, until the section
 * ends. */
#ifndef GPC_T_HANDS_H
#define GPC_T_HANDS_H

#include "team.h"

#include "index/table/grace.h"
#include "index/table/alloc.h"

#define AGES       12
#define NEVER_LEFT UINT64_MAX

struct hands {
	uint32_t n[POOLS][SLOTS];    /* how many sections have it */
	uint32_t life[POOLS][SLOTS]; /* how often it was given out */
	uint64_t left[POOLS][SLOTS]; /* the table, in this epoch */
	uint64_t gone[POOLS][SLOTS]; /* all mirrors, too */
	uint64_t over;               /* the last grace period that is */
	uint64_t reused[AGES];       /* by grace periods that began since it was gone */
	uint64_t held[2][AGES];      /* host, device: by those that began since it left */
	uint64_t ended[2][AGES];     /* and were over: 0 and nothing else */
	uint64_t unstamped, seen[2], sections[2];
};

static struct hands *hands;

static inline void hands_begin(void)
{
	hands = mmap(NULL, sizeof(*hands), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (hands == MAP_FAILED)
		bail("no shared page");
}

static inline void hands_clear(void)
{
	memset(hands->n, 0, sizeof(hands->n));
	memset(hands->left, 0xff, sizeof(hands->left));
	memset(hands->gone, 0xff, sizeof(hands->gone));
	hands->over = 0;
}

#define OF(what, b) hands->what[GPC_POOL(b)][GPC_SLOT(b)]

static inline void tally(uint64_t *ages, uint64_t age)
{
	__atomic_fetch_add(&ages[MIN(age, AGES - 1)], 1, __ATOMIC_RELAXED);
}

/* ---- what the writer does ---- */

void __real_lru_forget(struct writer *w, uint32_t record);
void __wrap_lru_forget(struct writer *w, uint32_t record);
bool __real_mirror_flushed(struct writer *w);
bool __wrap_mirror_flushed(struct writer *w);
bool __real_epoch_over(const struct segment *s, uint64_t cookie);
bool __wrap_epoch_over(const struct segment *s, uint64_t cookie);

/* It leaves its queue behind its entry (index/writer/retire.c). */
void __wrap_lru_forget(struct writer *w, uint32_t record)
{
	__real_lru_forget(w, record);
	store_release(&OF(left, w_block(w, record)), load_relaxed(&seg_shared(&w->seg)->epoch));
}

bool __wrap_mirror_flushed(struct writer *w)
{
	const struct grace *b = w->flushing;
	uint32_t i;

	if (!__real_mirror_flushed(w))
		return false;
	for (i = 0; b && i < b->nrecords; i++)
		store_release(&OF(gone, w_block(w, b->records[i])),
			      load_relaxed(&seg_shared(&w->seg)->epoch));
	return true;
}

bool __wrap_epoch_over(const struct segment *s, uint64_t cookie)
{
	if (!__real_epoch_over(s, cookie))
		return false;
	store_release(&hands->over, cookie);
	return true;
}

/* ---- who is given an id ---- */

static inline void reused(gpc_block b)
{
	uint64_t gone = load_acquire(&OF(gone, b));

	need(!__atomic_load_n(&OF(n, b), __ATOMIC_SEQ_CST),
	     "block 0x%x was given out and is in the hands of %u sections", (unsigned)b, OF(n, b));
	__atomic_fetch_add(&OF(life, b), 1, __ATOMIC_SEQ_CST);
	if (gone == NEVER_LEFT)
		__atomic_fetch_add(&hands->unstamped, 1, __ATOMIC_RELAXED);
	else
		tally(hands->reused, load_acquire(&hands->over) - MIN(gone, hands->over));
	store_release(&OF(left, b), NEVER_LEFT);
	store_release(&OF(gone, b), NEVER_LEFT);
}

/* ---- sections ---- */

struct grip { /* what one section has seen */
	gpc_key key[DEEP];
	gpc_block block[DEEP];
	uint32_t life[DEEP];
	int section;
	uint32_t device; /* 0 or 1 */
};

static inline void grip_chain(struct grip *g, uint64_t *seed)
{
	int i, chain = (int)crew_random(seed, CHAINS);

	for (i = 0; i < DEEP; i++)
		g->key[i] = key_of(chain, i);
}

/* The ids have just been seen: from now on they are in hand. */
static inline void grip_take(struct grip *g)
{
	int i;

	for (i = 0; i < DEEP; i++) {
		gpc_block b = g->block[i];

		if (b < 0)
			continue;
		__atomic_fetch_add(&OF(n, b), 1, __ATOMIC_SEQ_CST);
		g->life[i] = load_acquire(&OF(life, b));
		need(holds(b, g->key[i]), "a section sees block 0x%x with other bytes",
		     (unsigned)b);
		__atomic_fetch_add(&hands->seen[g->device], 1, __ATOMIC_RELAXED);
	}
}

/* The section is about to end. */
static inline void grip_release(struct grip *g, const struct segment *s)
{
	int i;

	for (i = 0; i < DEEP; i++) {
		gpc_block b = g->block[i];
		uint64_t since, over;

		if (b < 0)
			continue;
		since = g->device ? load_acquire(&OF(gone, b)) : load_acquire(&OF(left, b));
		over = load_acquire(&hands->over);
		need(OF(life, b) == g->life[i],
		     "block 0x%x was given out while a section had "
		     "it",
		     (unsigned)b);
		need(holds(b, g->key[i]), "in a section, block 0x%x got other bytes", (unsigned)b);
		if (since != NEVER_LEFT) {
			tally(hands->held[g->device], load_relaxed(&seg_shared(s)->epoch) - since);
			tally(hands->ended[g->device], over > since ? over - since : 0);
		}
		__atomic_fetch_sub(&OF(n, b), 1, __ATOMIC_SEQ_CST);
	}
	__atomic_fetch_add(&hands->sections[g->device], 1, __ATOMIC_RELAXED);
}

#endif
