/* SPDX-License-Identifier: Apache-2.0 */
/* restore.c - the blocks that a tier had when it was opened are published again, in the
 * background.
 *
 * Parents come first.  A block whose parent is nowhere, neither here nor in VRAM or RAM, is
 * published as well.  The common beginning of many prompts is often only in VRAM, and when it has
 * been computed anew, the blocks after it are of use again.  If nobody does that, the block gets
 * old and goes.  The writer publishes only if there was no clear that we do not know yet; if the
 * key is live already, the live block stays.  When all blocks are published, each is used once in
 * the order of their ages, so that the oldest goes first.
 *
 * Notes are read from the file as their blocks are published, and are in place before the writer
 * sees the command.
 *
 * If this process dies in between, the pool goes with it, and the next steward begins with the
 * same file.
 * Tests: t/tiers/alone.t t/tiers/notes.t t/tiers/down-and-up.t */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <syslog.h>
#include "tiers/disk/format.h"
#include "index/segment/note.h"
#include "tiers/steward/steward.h"

/* blocks that are published together, so that commands of others come in between */
#define RESTORE 512u

static gpc_block block_of(const struct lower *d, const struct disk_slot *f)
{
	return GPC_BLOCK((gpc_block)d->pool, (gpc_block)f->slot);
}

/* ---- blocks that are there ---- */

static struct disk_slot *find(const struct lower *d, const gpc_key *key)
{
	uint32_t at;

	if (d->nfound)
		CHAINS_EACH(&d->place, chains_hash(key), at)
	if (key_same(&d->found[at - 1].key, key))
		return &d->found[at - 1];
	return NULL;
}

static void put(struct lower *d, uint64_t number)
{
	chains_put(&d->place, (uint32_t)number, chains_hash(&d->found[number].key));
}

static bool is_orphan(const struct lower *d, const struct disk_slot *f)
{
	gpc_block block;

	return !key_is_zero(&f->parent) && !key_is_root(&f->parent) && !find(d, &f->parent) &&
	       gpc_lookup(d->t->c, 0, &f->parent, 1, &block, GPC_QUIET) != 1;
}

/* Depth by depth, since a child of an orphan is an orphan, too.  The feed has not been read yet;
 * it lists the blocks that lose their parents from now on. */
static void count_orphans(struct lower *d)
{
	const struct disk_slot *f;
	uint64_t i;
	bool orphan;

	for (i = 0; i < d->nfound; i++) {
		f = &d->found[i];
		orphan = is_orphan(d, f);
		d->orphans += orphan;
		if (!orphan)
			put(d, i);
		kin_enter(&d->t->kin, d->record + (uint32_t)f->slot, &f->parent, orphan);
	}
	for (i = 0; d->orphans && i < d->nfound; i++)
		if (!find(d, &d->found[i].key))
			put(d, i);
	tier_count(d, TIER_ORPHANS, d->orphans);
}

static int scan(struct lower *d)
{
	int err = d->file && !d->clear ? tier_disk_scan(d) : 0;
	uint64_t i;
	uint32_t k;

	if (err < 0)
		return err_set(-err, "tier %s of %s cannot be read: %s", d->name, d->t->c->seg.name,
			       gpc_strerror(err));
	for (i = 0; i < d->nfound; i++)
		d->slot[d->found[i].slot] =
			(struct slot){ .key = d->found[i].key, .state = SLOT_BUSY };
	for (k = d->blocks; k--;)
		if (d->slot[k].state == SLOT_FREE)
			d->free[d->nfree++] = k;
	tier_count(d, TIER_FOUND, d->nfound);
	return !d->file || chains_new(&d->place, (uint32_t)d->nfound)
		       ? 0
		       : err_set(ENOMEM, "no memory for %llu blocks of a tier",
				 (unsigned long long)d->nfound);
}

int restore_begin(struct gpc_tiers *t)
{
	uint32_t i;
	int err = 0;

	for (i = 0; i < t->nlower && err == 0; i++)
		err = scan(&t->lower[i]);
	return err;
}

void restore_settle(struct gpc_tiers *t)
{
	if (t->disk)
		count_orphans(t->disk);
}

/* Nobody else has BUSY slots of a file before all blocks that were found there are published. */
static bool waits(struct lower *d, const struct disk_slot *f)
{
	return f && slots_is_busy(d, (uint32_t)f->slot);
}

const struct disk_slot *restore_find(struct lower *d, const gpc_key *key)
{
	const struct disk_slot *f = find(d, key);

	return waits(d, f) ? f : NULL;
}

void restore_forget(struct lower *d, const struct disk_slot *f)
{
	slots_back(d, block_of(d, f), &f->key, UNWRITTEN);
	tier_count(d, TIER_FORGOTTEN, 1);
	kin_removed(&d->t->kin, &f->key);
}

/* With their descendants, as in the index: parents come first in the list, also published ones,
 * and descendants have that tag from then on. */
void restore_drop(struct lower *d, uint32_t tag)
{
	const struct disk_slot *up;
	uint64_t i;

	for (i = 0; i < d->nfound; i++) {
		struct disk_slot *f = &d->found[i];

		up = tag ? find(d, &f->parent) : NULL;
		if (up && up->tag == tag)
			f->tag = tag;
		if ((!tag || f->tag == tag) && waits(d, f))
			restore_forget(d, f);
	}
}

/* ---- publishes ---- */

/* Blocks that a clear or a drop has overtaken wait for its event in the feed. */
static void settle(struct lower *d, const uint64_t *at, const gpc_block *resident, uint32_t n)
{
	uint32_t now = slots_now(), age, live = 0;
	uint64_t clock = disk_now(d->file);

	while (n--) {
		const struct disk_slot *f = &d->found[at[n]];
		gpc_block got = resident[n];

		age = (uint32_t)((clock - MIN(f->born_ns, clock)) / 1000000000u);
		if (got == block_of(d, f)) {
			live++;
			slots_live(d, got, &f->key, now > age ? now - age : 0);
		} else if (got == -ESTALE) {
			d->next = at[n];
		} else {
			slots_back(d, block_of(d, f), &f->key, WRITTEN);
			kin_removed(&d->t->kin, &f->key);
		}
	}
	tier_count(d, TIER_RESTORED, live);
}

/* The notes of blocks, read from the file. */
struct notes_read {
	struct shm_note note[RESTORE];
	uint8_t buffer[DISK_MOST_NOTE];
	uint32_t tokens[]; /* block_tokens tokens for each, if they are kept */
};

/* NULL: none are kept; or there is no memory, and the blocks come without them. */
static struct notes_read *begin_notes(const struct lower *d)
{
	const struct segment *s = &d->t->c->seg;
	uint32_t tokens = seg_keeps(s, KEEP_TOKENS) ? s->header.block_tokens : 0;

	if (!s->header.geometry.note_lines)
		return NULL;
	return malloc(sizeof(struct notes_read) + (size_t)RESTORE * tokens * sizeof(uint32_t));
}

static void read_note(struct lower *d, const struct disk_slot *f, struct notes_read *r, uint32_t i,
		      struct publish_copy *copy)
{
	const struct segment *s = &d->t->c->seg;
	uint32_t *tokens =
		seg_keeps(s, KEEP_TOKENS) ? r->tokens + (size_t)i * s->header.block_tokens : NULL;

	if (!f->note_bytes || disk_note(d->file, f, r->buffer) ||
	    !notes_unpack(d->t->c, r->buffer, f->note_bytes, &f->key, &r->note[i], tokens))
		return;
	copy->note = &r->note[i];
	copy->tokens = tokens;
}

static bool publish_some(struct lower *d)
{
	struct publish_copy copy[RESTORE];
	gpc_block resident[RESTORE];
	uint64_t at[RESTORE], end = MIN(d->next + RESTORE, d->nfound);
	struct notes_read *notes;
	uint32_t n = 0;

	if (d->next == end || load_relaxed(&d->broken))
		return false;
	notes = begin_notes(d);
	for (; d->next < end; d->next++) {
		const struct disk_slot *f = &d->found[d->next];

		if (!waits(d, f))
			continue;
		at[n] = d->next;
		resident[n] = -ESTALE;
		copy[n] = (struct publish_copy){
			.key = f->key,
			.parent = f->parent,
			.tag = f->tag,
			.source = GPC_NONE,
			.block = block_of(d, f),
			.clears = (uint32_t)d->clears,
			.since = d->t->since,
			.unchained = d->exclusive,
		};
		if (notes)
			read_note(d, f, notes, n, &copy[n]);
		n++;
	}
	if (n)
		publish_copies(d->t->c, copy, n, resident, &d->t->stop);
	free(notes);
	settle(d, at, resident, n);
	return true;
}

/* ---- in order of their ages ---- */

static int by_age(const void *a, const void *b)
{
	const struct disk_slot *x = a, *y = b;

	return x->born_ns > y->born_ns ? 1 : x->born_ns < y->born_ns ? -1 : 0;
}

static void use_in_order(struct lower *d)
{
	gpc *c = d->t->c;
	uint64_t i, first;

	if (!d->next)
		return;
	qsort(d->found, d->next, sizeof(*d->found), by_age);
	first = refs_first_stamp(c, (uint32_t)d->next);
	for (i = 0; i < d->next; i++) /* the youngest block comes first */
		refs_stamp(c, d->record + (uint32_t)d->found[i].slot, first - (d->next - 1 - i));
}

/* A user who made a cache anew wants to know why a prompt is not found. */
static void tell(const struct lower *d)
{
	unsigned long long there = load_relaxed(&d->shown->count[TIER_FOUND]);
	char wait[96] = "";

	if (!there)
		return;
	if (d->orphans)
		snprintf(wait, sizeof(wait),
			 "; %llu are of use when the blocks before them have been computed again",
			 (unsigned long long)d->orphans);
	log_say(&d->t->c->log, LOG_INFO, "tier %s of %s: %llu of %llu blocks are found again%s",
		d->name, d->t->c->seg.name,
		(unsigned long long)load_relaxed(&d->shown->count[TIER_RESTORED]), there, wait);
}

static void forget_all(struct lower *d)
{
	free(d->found);
	chains_end(&d->place);
	d->found = NULL;
	d->place = (struct chains){ 0 };
	d->nfound = d->next = 0;
}

bool restore_step(struct gpc_tiers *t)
{
	uint32_t i;

	if (t->published)
		return false;
	if (t->disk && publish_some(t->disk))
		return true;
	if (t->disk) {
		tell(t->disk);
		use_in_order(t->disk);
		forget_all(t->disk);
	}
	for (i = 0; i < t->nlower; i++) /* it is for tools, and orders nothing */
		store_relaxed(&t->lower[i].shown->ready, 1);
	store_release(&t->published, 1);
	return false;
}

void restore_end(struct gpc_tiers *t)
{
	if (t->disk)
		forget_all(t->disk);
}
