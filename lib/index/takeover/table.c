/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - compares the table with the records.
 *
 * The order of records has nothing to do with the order of the table, so this work mainly waits
 * for memory.  If it goes by the records, each costs one line of the table, which is prefetched
 * early.  If it went by the entries, each would cost a record and all the data kept for it.
 *
 * Each record notes one entry, and no two records note the same.  So if a part of the table has as
 * many entries as were noted, it has no spare entry.  Only the other parts are looked at entry by
 * entry.
 * Tests: t/index/left-in-table.t t/index/many-spilled.t t/index/takeover-damage.t t/bytes/kill-points.t
 *   t/torture/prefix.t */
#include "config.h"

#include "index/takeover/takeover.h"
#include "index/table/leave.h"
#include "index/table/alloc.h"
#include "index/table/table.h"

/* Inline, since gcc removes a call of a function that only prefetches. */
static inline __attribute__((always_inline)) void prefetch_bucket(const struct writer *w,
								  uint32_t bucket)
{
	__builtin_prefetch(&w->table[bucket * SHM_BUCKET]);
}

/* Like probe_entry_block(); and no spare bit is set. */
static bool is_entry(const struct writer *w, uint32_t entry, const struct probe_key *k,
		     gpc_block block)
{
	const struct probe_entry *e = &w->table[entry];

	return probe_entry_block(*e, *k) == block && (e->w[2] & ~BUCKET_FLAGS(entry)) == k->w[2];
}

/* The record's entry in this bucket, the first if there are two; or NONE. */
static uint32_t find_in(const struct writer *w, gpc_block block, const struct probe_key *k,
			uint32_t bucket)
{
	uint32_t i, entry, found = 0;

	/* there are no branches, since nobody can predict the place in the bucket */
	for (i = 0; i < SHM_BUCKET; i++)
		found |= (uint32_t)(w->table[bucket * SHM_BUCKET + i].w[3] == (uint32_t)block + 1)
			 << i;
	for (; found; found &= found - 1) {
		entry = bucket * SHM_BUCKET + (uint32_t)__builtin_ctz(found);
		if (is_entry(w, entry, k, block))
			return entry;
	}
	return NONE;
}

static bool note_in(struct share *s, uint32_t record, const struct probe_key *k, uint32_t bucket)
{
	struct writer *w = s->w;

	if (find_in(w, w_block(w, record), k, bucket) == NONE)
		return false;
	s->counted[bucket / TAKEOVER_REGION]++;
	s->entry[record] = ENTRY_SEEN;
	if (bucket == k->second)
		count_add(&w->books[k->first].spilled, 1);
	return true;
}

void takeover_note_entries(struct share *s, const uint32_t *record, uint32_t n)
{
	struct probe_key k[TAKEOVER_GROUP];
	uint32_t far[TAKEOVER_GROUP], nfar = 0, i;

	for (i = 0; i < n; i++) {
		k[i] = table_key(s->w, record[i]);
		if (i < LINES_AHEAD)
			prefetch_bucket(s->w, k[i].first);
	}
	for (i = 0; i < n; i++) {
		if (i + LINES_AHEAD < n)
			prefetch_bucket(s->w, k[i + LINES_AHEAD].first);
		s->entry[record[i]] = ENTRY_MISSING;
		if (!note_in(s, record[i], &k[i], k[i].first)) {
			prefetch_bucket(s->w, k[i].second);
			far[nfar++] = i;
		}
	}
	for (i = 0; i < nfar; i++)
		note_in(s, record[far[i]], &k[far[i]], k[far[i]].second);
}

/* ---- entries that no record has noted ---- */

struct region { /* a region of the table; one thread works on it at a time */
	struct writer *w;
	uint32_t first, end; /* buckets */
	uint32_t entries;
	struct records no_flag; /* buckets that have spilled without their flag */
};

uint32_t takeover_regions(const struct writer *w)
{
	return (w->buckets + TAKEOVER_REGION - 1) / TAKEOVER_REGION;
}

static bool is_blank(const struct writer *w, uint32_t entry)
{
	const struct probe_entry *e = &w->table[entry];

	return !(e->w[0] | e->w[1] | (e->w[2] & ~BUCKET_FLAGS(entry)) | e->w[3]);
}

static void count_region(void *arg)
{
	struct region *r = arg;
	struct writer *w = r->w;
	uint32_t bucket, i;

	for (bucket = r->first; bucket < r->end; bucket++) {
		for (i = 0; i < SHM_BUCKET; i++)
			r->entries += !is_blank(w, bucket * SHM_BUCKET + i);
		if (w->books[bucket].spilled &&
		    !(w->table[bucket * SHM_BUCKET].w[2] & PROBE_OVERFLOW))
			records_add(&r->no_flag, bucket);
		w->books[bucket].retired |= 0xf0;
	}
}

/* An entry that its record has not noted: the second entry of a block, or an entry of no block. */
static void sweep_entry(struct writer *w, struct damage *d, uint32_t entry)
{
	const struct probe_entry *e = &w->table[entry];
	uint32_t record = e->w[3] ? w_find_record(w, (gpc_block)(e->w[3] - 1)) : NONE;
	uint32_t bucket = entry / SHM_BUCKET, noted;
	struct probe_key k;

	if (record != NONE && w_is(w, record, LIVE) && !leave_is_moved(w, record)) {
		k = table_key(w, record);
		noted = find_in(w, w_block(w, record), &k, k.first);
		if (noted == NONE)
			noted = find_in(w, w_block(w, record), &k, k.second);
		if (entry == noted)
			return;
		if (is_entry(w, entry, &k, w_block(w, record)) &&
		    (bucket == k.first || bucket == k.second)) {
			records_add(&w->twice, entry);
			if (bucket == k.second) {
				w->books[k.first].spilled++;
				table_set_flag(w, k.first);
			}
			return;
		}
	}
	d->halves += !e->w[3];
	d->entries += e->w[3] && (record == NONE || !w_is(w, record, DYING));
	table_wipe(w, entry);
}

static void sweep_region(struct region *r, struct damage *d)
{
	uint32_t entry;

	for (entry = r->first * SHM_BUCKET; entry < r->end * SHM_BUCKET; entry++)
		if (!is_blank(r->w, entry))
			sweep_entry(r->w, d, entry);
}

void takeover_sweep_table(struct writer *w, struct scan *sc)
{
	uint32_t n = takeover_regions(w), noted, bucket, i, j;
	struct region *region = writer_alloc(n, sizeof(*region));

	sc->region = region;
	for (i = 0; i < n; i++) {
		bucket = i * TAKEOVER_REGION;
		region[i] = (struct region){ .w = w,
					     .first = bucket,
					     .end = MIN(bucket + TAKEOVER_REGION, w->buckets) };
	}
	takeover_parallel(w, sc, count_region, region, sizeof(*region), n);
	for (i = 0; i < n; i++) {
		for (noted = j = 0; j < sc->nshares; j++)
			noted += sc->share[j].counted[i];
		if (noted != region[i].entries)
			sweep_region(&region[i], &sc->damage);
		sc->damage.flags += region[i].no_flag.n;
		for (j = 0; j < region[i].no_flag.n; j++)
			table_set_flag(w, region[i].no_flag.at[j]);
	}
}
