/* SPDX-License-Identifier: Apache-2.0 */
/* takeover_table.c - the table against the records.
 *
 * Records lie in no order of the table, so this is all waiting for memory.  Going by the records,
 * each costs one line of the table, which is asked for well before it is looked at; going by the
 * entries, each would cost a record and all that is kept for it. */
#include "config.h"

#include "writer.h"

#define ALL_SLOTS ((1u << SHM_BUCKET) - 1)

static void prefetch_bucket(struct writer *w, uint32_t bucket)
{
	__builtin_prefetch(&w->table[bucket * SHM_BUCKET]);
}

/* probe_entry_block(), and no spare bit is set. */
static bool is_entry(const struct writer *w, uint32_t slot, const struct probe_key *k,
		     gpc_block block)
{
	const struct probe_entry *e = &w->table[slot];

	return probe_entry_block(*e, *k) == block && (e->w[2] & ~TABLE_FLAGS(slot)) == k->w[2];
}

/* Note the record's entry in this bucket, one if there are two. */
static bool note_in(struct writer *w, struct entries *e, uint32_t record,
		    const struct probe_key *k, uint32_t bucket)
{
	gpc_block block = w_block(w, record);
	uint32_t i, slot, found = 0;

	/* without branches: where in the bucket it is, nobody can foretell */
	for (i = 0; i < SHM_BUCKET; i++)
		found |= (uint32_t)(w->table[bucket * SHM_BUCKET + i].w[3] ==
				    (uint32_t)block + 1) << i;
	for (; found; found &= found - 1) {
		slot = bucket * SHM_BUCKET + (uint32_t)__builtin_ctz(found);
		if (!is_entry(w, slot, k, block))
			continue;
		e->named[slot / 64] |= 1ull << slot % 64;
		e->of[record] = ENTRY_SEEN;
		if (bucket == k->second)
			w->spilled[k->first]++;
		return true;
	}
	return false;
}

/* Loops that do nothing but ask keep more requests, and page walks, under way. */
void takeover_note_entries(struct writer *w, struct entries *e, const uint32_t *record,
			   uint32_t n)
{
	struct probe_key k[TAKEOVER_GROUP];
	uint32_t far[TAKEOVER_GROUP], nfar = 0, i;

	for (i = 0; i < n; i++)
		k[i] = table_key(w, record[i]);
	for (i = 0; i < n; i++)
		prefetch_bucket(w, k[i].first);
	for (i = 0; i < n; i++) {
		e->of[record[i]] = ENTRY_MISSING;
		if (!note_in(w, e, record[i], &k[i], k[i].first))
			far[nfar++] = i;
	}
	for (i = 0; i < nfar; i++)
		prefetch_bucket(w, k[far[i]].second);
	for (i = 0; i < nfar; i++)
		note_in(w, e, record[far[i]], &k[far[i]], k[far[i]].second);
}

static bool is_blank(const struct writer *w, uint32_t slot)
{
	const struct probe_entry *e = &w->table[slot];

	return !(e->w[0] | e->w[1] | (e->w[2] & ~TABLE_FLAGS(slot)) | e->w[3]);
}

/* An entry that was not noted: the second one of a block, or nobody's. */
static void sweep_slot(struct writer *w, uint32_t slot)
{
	const struct probe_entry *e = &w->table[slot];
	uint32_t record = e->w[3] ? w_find_record(w, (gpc_block)(e->w[3] - 1)) : NONE;
	struct probe_key k;

	if (record != NONE && w_is(w, record, LIVE)) {
		k = table_key(w, record);
		if (is_entry(w, slot, &k, w_block(w, record)) &&
		    (slot / SHM_BUCKET == k.first || slot / SHM_BUCKET == k.second)) {
			records_add(&w->twice, slot);
			if (slot / SHM_BUCKET == k.second)
				w->spilled[k.first]++;
			return;
		}
	}
	table_wipe(w, slot);
}

void takeover_sweep_table(struct writer *w, const struct entries *e)
{
	uint32_t bucket, slot, rest, i;

	for (bucket = 0; bucket < w->buckets; bucket++) {
		slot = bucket * SHM_BUCKET;
		rest = ~(uint32_t)(e->named[slot / 64] >> slot % 64) & ALL_SLOTS;
		for (i = 0; i < SHM_BUCKET; i++)
			rest &= ~((uint32_t)is_blank(w, slot + i) << i);
		for (; rest; rest &= rest - 1)
			sweep_slot(w, slot + (uint32_t)__builtin_ctz(rest));
		w->quarantined[bucket] |= 0xf0;
	}
	for (bucket = 0; bucket < w->buckets; bucket++)
		if (w->spilled[bucket])
			table_set_flag(w, bucket);
}
