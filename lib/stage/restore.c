/* SPDX-License-Identifier: Apache-2.0 */
/* restore.c - what a tier had when it was opened is published again, in the background.
 *
 * Parents come first.  A block whose parent is nowhere, neither here nor in VRAM or RAM, is
 * published as well: what many prompts begin with is often in VRAM alone, and when it has been
 * computed anew all that follows it is of use again.  If nobody does that, it gets old and goes.
 * The writer publishes only if no clear has come that we have not heard of, and a key that is live
 * already wins.  When all are there each is used once, in the order of their ages, so that the
 * oldest goes first.
 *
 * Notes are read from the file as their blocks are published, and stand there before the writer
 * sees the command.
 *
 * If this process dies in between, the pool goes with it, and the next one begins with the same
 * file.
 * Tests: t/105-tiers-alone.t t/106-tiers-notes.t t/101-tiers.t */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <syslog.h>
#include "disk/format.h"
#include "segment/note.h"
#include "stage/stage.h"

#define RESTORE 512u /* published together: commands of others come between */

static gpc_block block_of(const struct cold *d, const struct tier_found *f)
{
	return GPC_BLOCK((gpc_block)d->pool, (gpc_block)f->slot);
}

/* ---- what is there ---- */

/* cold.place: of keys in found[], + 1 */
static uint32_t first_place(const struct cold *d, const gpc_key *key)
{
	return (uint32_t)((key->w[0] ^ key->w[1]) * 0x9e3779b97f4a7c15ull >> 32) & d->place_mask;
}

static const struct tier_found *find(const struct cold *d, const gpc_key *key)
{
	uint32_t i = first_place(d, key);

	for (; d->place[i]; i = (i + 1) & d->place_mask)
		if (key_same(&d->found[d->place[i] - 1].key, key))
			return &d->found[d->place[i] - 1];
	return NULL;
}

static void put(const struct cold *d, uint32_t number, const gpc_key *key)
{
	uint32_t i = first_place(d, key);

	while (d->place[i])
		i = (i + 1) & d->place_mask;
	d->place[i] = number + 1;
}

static bool is_orphan(const struct cold *d, const struct tier_found *f)
{
	gpc_block block;

	return !key_is_zero(&f->parent) && !key_is_root(&f->parent) && !find(d, &f->parent) &&
	       gpc_lookup(d->t->c, 0, &f->parent, 1, &block, GPC_QUIET) != 1;
}

static int make_places(struct cold *d)
{
	d->place_mask = 1;
	while (d->place_mask < 2 * d->nfound)
		d->place_mask = 2 * d->place_mask + 1;
	d->place = calloc((size_t)d->place_mask + 1, sizeof(*d->place));
	return d->place ? 0
			: err_set(ENOMEM, "no memory for %llu blocks of a tier",
				  (unsigned long long)d->nfound);
}

/* Depth by depth: what follows an orphan is one, too. */
static void count_orphans(struct cold *d)
{
	uint64_t i;

	for (i = 0; i < d->nfound; i++)
		if (is_orphan(d, &d->found[i]))
			d->orphans++;
		else
			put(d, (uint32_t)i, &d->found[i].key);
	tier_count(d, TIER_ORPHANS, d->orphans);
	free(d->place);
	d->place = NULL;
}

static int scan(struct cold *d)
{
	int err = d->file && !d->clear ? tier_disk_scan(d->file, &d->found, &d->nfound) : 0;
	uint64_t i;
	uint32_t k;

	if (err < 0)
		return err_set(-err, "tier %s of %s cannot be read: %s", d->ops->name,
			       d->t->c->seg.name, gpc_strerror(err));
	for (i = 0; i < d->nfound; i++)
		d->slot[d->found[i].slot] =
			(struct slot){ .key = d->found[i].key, .state = SLOT_BUSY };
	for (k = d->blocks; k--;)
		if (d->slot[k].state == SLOT_FREE)
			d->free[d->nfree++] = k;
	tier_count(d, TIER_FOUND, d->nfound);
	d->there = d->nfound;
	return make_places(d);
}

int restore_begin(struct gpc_tiers *t)
{
	uint32_t i;
	int err = 0;

	for (i = 0; i < t->ncold && err == 0; i++)
		err = scan(&t->cold[i]);
	return err;
}

void restore_settle(struct gpc_tiers *t)
{
	uint32_t i;

	for (i = 0; i < t->ncold; i++)
		count_orphans(&t->cold[i]);
}

static void drop_all(struct cold *d)
{
	uint64_t i;

	for (i = d->next; i < d->nfound; i++)
		slots_back(d, block_of(d, &d->found[i]), &d->found[i].key, false);
	tier_count(d, TIER_FORGOTTEN, d->nfound - d->next);
	d->nfound = d->next;
}

/* With what follows them, as in the index: parents come first in the list, those that are published
 * among them. */
void restore_drop(struct cold *d, uint32_t tag)
{
	uint8_t *dead = tag && d->next < d->nfound ? calloc(d->nfound, 1) : NULL;
	uint64_t i;

	if (!dead || make_places(d) < 0) {
		free(dead);
		drop_all(d);
		return;
	}
	for (i = 0; i < d->nfound; i++) {
		dead[i] = d->found[i].tag == tag || find(d, &d->found[i].parent);
		if (dead[i])
			put(d, (uint32_t)i, &d->found[i].key);
	}
	free(d->place);
	d->place = NULL;
	restore_drop_dead(d, dead);
	free(dead);
}

void restore_drop_dead(struct cold *d, const uint8_t *dead)
{
	uint64_t i, k = d->next;

	for (i = d->next; i < d->nfound; i++) {
		struct tier_found *f = &d->found[i];

		if (!dead[i]) {
			d->found[k++] = *f;
			continue;
		}
		slots_back(d, block_of(d, f), &f->key, true);
		tier_count(d, TIER_FORGOTTEN, 1);
	}
	d->nfound = k;
}

void restore_end(struct gpc_tiers *t)
{
	uint32_t i;

	for (i = 0; i < t->ncold; i++) {
		free(t->cold[i].found);
		free(t->cold[i].place);
	}
}

/* ---- published ---- */

/* Those that a clear has overtaken stay in the list, and what the feed says of it decides. */
static void settle(struct cold *d, uint64_t end, const gpc_block *resident)
{
	uint32_t now = slots_now(), age, live = 0;
	uint64_t i, k = end;

	for (i = end; i-- > d->next;) {
		struct tier_found f = d->found[i];
		gpc_block got = resident[i - d->next];

		age = (uint32_t)(f.age_ns / 1000000000u);
		if (got == block_of(d, &f)) {
			live++;
			slots_live(d, got, &f.key, now > age ? now - age : 0);
		} else if (got == -ESTALE) {
			d->found[--k] = f;
		} else {
			slots_back(d, block_of(d, &f), &f.key, true);
		}
	}
	d->next = k;
	tier_count(d, TIER_RESTORED, live);
	d->restored += live;
}

/* What stood beside them in the file. */
struct notes_read {
	struct shm_note note[RESTORE];
	uint32_t *tokens; /* block_tokens for each, where they are kept */
	uint8_t *buffer;
};

static void end_notes(struct notes_read *r)
{
	if (!r)
		return;
	free(r->tokens);
	free(r->buffer);
	free(r);
}

/* NULL: none are kept, or there is no memory, and then the blocks come without. */
static struct notes_read *begin_notes(const struct cold *d)
{
	const struct segment *s = &d->t->c->seg;
	uint32_t tokens = seg_keeps(s, KEEP_TOKENS) ? s->header.block_tokens : 0;
	struct notes_read *r;

	if (!d->file || !s->header.geometry.note_lines)
		return NULL;
	r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	r->buffer = malloc(DISK_MOST_NOTE);
	r->tokens = malloc(((size_t)RESTORE * tokens + 1) * sizeof(*r->tokens));
	if (r->buffer && r->tokens)
		return r;
	end_notes(r);
	return NULL;
}

static void read_note(struct cold *d, struct notes_read *r, uint32_t i, struct publish_copy *copy)
{
	const struct segment *s = &d->t->c->seg;
	const struct tier_found *f = &d->found[d->next + i];
	uint32_t *tokens =
		seg_keeps(s, KEEP_TOKENS) ? r->tokens + (size_t)i * s->header.block_tokens : NULL;

	if (!f->note_bytes || tier_disk_note(d->file, f, r->buffer) ||
	    !notes_unpack(d->t->c, r->buffer, f->note_bytes, &f->key, &r->note[i], tokens))
		return;
	copy->note = &r->note[i];
	copy->tokens = tokens;
}

static bool publish_some(struct cold *d)
{
	struct publish_copy copy[RESTORE];
	gpc_block resident[RESTORE];
	uint64_t end = MIN(d->next + RESTORE, d->nfound), i;
	uint32_t n = (uint32_t)(end - d->next);
	struct notes_read *notes;

	if (!n || load_relaxed(&d->broken))
		return false;
	notes = begin_notes(d);
	for (i = 0; i < n; i++) {
		const struct tier_found *f = &d->found[d->next + i];

		resident[i] = -ESTALE;
		copy[i] = (struct publish_copy){
			.key = f->key,
			.parent = f->parent,
			.tag = f->tag,
			.source = GPC_NONE,
			.block = block_of(d, f),
			.clears = (uint32_t)d->clears,
			.unchained = d->exclusive,
		};
		if (notes)
			read_note(d, notes, (uint32_t)i, &copy[i]);
	}
	publish_copies(d->t->c, copy, n, resident, &d->t->stop);
	end_notes(notes);
	settle(d, end, resident);
	return true;
}

/* ---- in order of their ages ---- */

static int by_age(const void *a, const void *b)
{
	const struct tier_found *x = a, *y = b;

	return x->age_ns < y->age_ns ? 1 : x->age_ns > y->age_ns ? -1 : 0;
}

static void use_in_order(struct cold *d)
{
	gpc *c = d->t->c;
	uint64_t i, first;

	if (!d->next)
		return;
	qsort(d->found, d->next, sizeof(*d->found), by_age);
	first = refs_first_stamp(c, (uint32_t)d->next);
	for (i = 0; i < d->next; i++) /* the youngest one is first */
		refs_stamp(c, d->record + (uint32_t)d->found[i].slot, first - (d->next - 1 - i));
}

/* Who made a cache anew wants to know why a prompt is not found. */
static void tell(const struct cold *d)
{
	char wait[96] = "";

	if (!d->there)
		return;
	if (d->orphans)
		snprintf(wait, sizeof(wait),
			 "; %llu are of use when the blocks before them have been computed again",
			 (unsigned long long)d->orphans);
	log_say(&d->t->c->log, LOG_INFO, "tier %s of %s: %llu of %llu blocks are found again%s",
		d->ops->name, d->t->c->seg.name, (unsigned long long)d->restored,
		(unsigned long long)d->there, wait);
}

bool restore_step(struct gpc_tiers *t)
{
	bool more = false;
	uint32_t i;

	if (t->published)
		return false;
	for (i = 0; i < t->ncold; i++)
		more |= publish_some(&t->cold[i]);
	if (more)
		return true;
	for (i = 0; i < t->ncold; i++) {
		struct cold *d = &t->cold[i];

		tell(d);
		use_in_order(d);
		free(d->found);
		d->found = NULL;
		d->nfound = d->next = 0;
		store_relaxed(&d->told->ready, 1); /* for who looks: nobody orders anything by it */
	}
	store_release(&t->published, 1);
	return false;
}
