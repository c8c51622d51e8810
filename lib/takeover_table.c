/* SPDX-License-Identifier: Apache-2.0 */
/* takeover_table.c - the table against the records.
 *
 * Records lie in no order of the table, so this is all waiting for memory.  Going by the records,
 * each costs one line of the table, which is asked for well before it is looked at; going by the
 * entries, each would cost a record and all that is kept for it. */
#include "config.h"

#include "writer.h"

static void prefetch_bucket(struct writer *w, uint32_t bucket)
{
	__builtin_prefetch(&w->table[bucket * SHM_BUCKET]);
}

static void note_bucket(struct writer *w, struct entries *e, uint32_t record,
			const struct probe_key *k, uint32_t bucket)
{
	uint32_t i, slot = bucket * SHM_BUCKET;

	for (i = 0; i < SHM_BUCKET; i++, slot++) {
		if (probe_entry_block(w->table[slot], *k) != w_block(w, record))
			continue;
		e->named[slot / 64] |= 1ull << slot % 64;
		if (e->of[record] == ENTRY_SEEN)
			records_add(&w->twice, slot);
		e->of[record] = ENTRY_SEEN;
		if (bucket == k->second)
			w->spilled[k->first]++;
	}
}

void takeover_note_entries(struct writer *w, struct entries *e, const uint32_t *record,
			   uint32_t n)
{
	struct probe_key k[TAKEOVER_GROUP];
	uint32_t spilled[TAKEOVER_GROUP], nspilled = 0, i;

	for (i = 0; i < n; i++) {
		k[i] = table_key(w, record[i]);
		prefetch_bucket(w, k[i].first);
	}
	for (i = 0; i < n; i++) {
		e->of[record[i]] = ENTRY_MISSING;
		note_bucket(w, e, record[i], &k[i], k[i].first);
		/* the flag is set before the second bucket is used (rule T3), but it may have
		 * been scribbled over */
		if (e->of[record[i]] == ENTRY_SEEN &&
		    !probe_overflows(w->table[k[i].first * SHM_BUCKET]))
			continue;
		prefetch_bucket(w, k[i].second);
		spilled[nspilled++] = i;
	}
	while (nspilled--) {
		i = spilled[nspilled];
		note_bucket(w, e, record[i], &k[i], k[i].second);
	}
}

void takeover_sweep_table(struct writer *w, const struct entries *e)
{
	uint32_t bucket, slot, end;

	for (bucket = 0; bucket < w->buckets; bucket++) {
		end = (bucket + 1) * SHM_BUCKET;
		for (slot = bucket * SHM_BUCKET; slot < end; slot++) {
			const uint32_t *word = w->table[slot].w;

			if (!(e->named[slot / 64] >> slot % 64 & 1) &&
			    (word[0] | word[1] | (word[2] & PROBE_KEY2) | word[3]))
				table_wipe(w, slot);
		}
		w->quarantined[bucket] |= 0xf0;
		if (w->spilled[bucket])
			table_set_flag(w, bucket);
	}
}
