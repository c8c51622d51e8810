/* SPDX-License-Identifier: Apache-2.0 */
/* check_table.c - the table, which is derived from the records, and the mirrors, which
 * are copies of the table.
 * Tests: t/look/check.t t/bytes/mirror-step.t */
#include "config.h"

#include "look/check.h"

#include "index/segment/hooks.h"
#include "index/segment/lockfile.h"
#include "index/segment/peek.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct probe_entry *entry_at(const struct check *k, uint64_t entry)
{
	return (const struct probe_entry *)(k->s->index + k->s->at.table) + entry;
}

static uint64_t witness(const struct probe_entry *e)
{
	return check_mix(check_mix(e->w[0], e->w[1]), check_mix(e->w[2], e->w[3]));
}

/* record: the one that the entry names, or SHM_NO_RECORD.  Records live and die fast, so each copy
 * of a live cache may show another life of the block under the same entry. */
static void bad_entry(struct check *k, uint64_t entry, uint32_t record, const char *what)
{
	const struct probe_entry *e = entry_at(k, entry);
	uint32_t word = record == SHM_NO_RECORD ? 0 : seg_record(k->s, record)->word;

	check_bad(k, check_mix(witness(e), word), "bucket %llu entry %llu (block 0x%08x): %s",
		  (unsigned long long)entry / SHM_BUCKET, (unsigned long long)entry % SHM_BUCKET,
		  e->w[3] - 1, what);
}

/* word 2 without the overflow flag, which belongs to the bucket and lives in entry 0 */
static uint32_t key_word2(const struct probe_entry *e, uint64_t entry)
{
	return entry % SHM_BUCKET ? e->w[2] : e->w[2] & ~PROBE_OVERFLOW;
}

static struct probe_key key_of(const struct check *k, const struct shm_record *r, uint32_t space)
{
	return probe_masked(r->key, k->mask[space].w, k->s->header.geometry.buckets);
}

/* Count an entry that names this record in its place. */
static void count_entry(struct check *k, uint32_t record, bool second)
{
	uint8_t *n = &k->entries[record];
	uint8_t one = second ? 0x10 : 0x01, all = second ? 0xf0 : 0x0f;

	if ((*n & all) != all)
		*n = (uint8_t)(*n + one);
}

/* The entry's block is live: does the entry have its key, and is it in a bucket of that key? */
static void check_place(struct check *k, uint64_t entry, uint32_t record)
{
	const struct probe_entry *e = entry_at(k, entry);
	struct probe_key p = key_of(k, seg_record(k->s, record), k->space_of[k->pool_of[record]]);
	uint32_t bucket = (uint32_t)(entry / SHM_BUCKET);

	if (e->w[0] != p.w[0] || e->w[1] != p.w[1] || key_word2(e, entry) != p.w[2]) {
		bad_entry(k, entry, record, "its key is not the block's in its space");
		return;
	}
	if (bucket != p.first && bucket != p.second) {
		bad_entry(k, entry, record, "stands in a bucket where nobody looks for it");
		return;
	}
	count_entry(k, record, bucket == p.second);
	if (bucket == p.second && !probe_overflows(*entry_at(k, (uint64_t)p.first * SHM_BUCKET)))
		bad_entry(k, entry, record, "spilled, but the flag of its first bucket is not set");
}

static void check_entry(struct check *k, uint64_t entry)
{
	const struct probe_entry *e = entry_at(k, entry);
	uint32_t record, pool = (e->w[3] - 1) >> 24;

	if (!e->w[3]) {
		if (e->w[0] | e->w[1] | key_word2(e, entry))
			bad_entry(k, entry, SHM_NO_RECORD,
				  "half written: key words without a block");
		return;
	}
	record = pool_record(k->s, (gpc_block)(e->w[3] - 1));
	if (record == SHM_NO_RECORD || k->pool_of[record] != pool) {
		bad_entry(k, entry, SHM_NO_RECORD, "names a block of no pool");
		return;
	}
	/* a pool dies in one step, and its entries go after it */
	if (!check_pool_ready(k, pool))
		return;
	if (!check_is_live(k, record))
		bad_entry(k, entry, record, "names a block that is not live");
	else
		check_place(k, entry, record);
}

void check_table(struct check *k)
{
	uint64_t entry, entries = (uint64_t)k->s->header.geometry.buckets * SHM_BUCKET;

	for (entry = 0; entry < entries; entry++)
		check_entry(k, entry);
}

/* ---- mirrors ---- */

static void compare_mirror(struct check *k, uint32_t i, const struct probe_entry *mirror,
			   uint64_t entries)
{
	const struct probe_entry *a = mirror, *b;
	uint64_t entry;

	for (entry = 0; entry < entries; entry++, a++) {
		b = entry_at(k, entry);
		if (memcmp(a, b, sizeof(*a)))
			check_bad(k, check_mix(witness(a), witness(b)),
				  "mirror %u bucket %llu entry %llu (block 0x%08x): the "
				  "table has block 0x%08x",
				  i, (unsigned long long)entry / SHM_BUCKET,
				  (unsigned long long)entry % SHM_BUCKET, a->w[3] - 1, b->w[3] - 1);
	}
}

/* The mirror is read after the table.  Entries may differ since they have just changed; in the
 * next copy these are other entries. */
static void read_mirror(struct check *k, uint32_t i, const struct shm_mirror *m)
{
	uint64_t entries = (uint64_t)k->s->header.geometry.buckets * SHM_BUCKET, sequence = 0;
	const struct mirror_ops *ops;
	struct probe_entry *mirror;
	char device[sizeof(m->device) + 1];
	int err;

	seg_copy_text(device, sizeof(device), m->device, sizeof(m->device));
	if (hooks.mirror_find(device, &ops) < 0)
		return; /* it is a device of another machine or build, which we cannot read */
	mirror = malloc(entries * sizeof(*mirror));
	if (!mirror) {
		k->err = err_set(ENOMEM, "no memory to read mirror %u back", i);
		return;
	}
	err = ops->read(k->s, m, mirror, entries, &sequence);
	if (err == -ESTALE && !segment_writer_alive(k->s))
		sequence = UINT64_MAX; /* it has gone with its writer, as mirrors may */
	else if (err)
		check_bad(k, m->generation, "mirror %u: %s", i, gpc_last_error());
	else if (sequence < m->flushed)
		check_bad(k, m->generation,
			  "mirror %u: shows %llu changes, but counts as "
			  "flushed up to %llu",
			  i, (unsigned long long)sequence, (unsigned long long)m->flushed);
	else if (sequence == m->flushed)
		compare_mirror(k, i, mirror, entries);
	free(mirror);
}

void check_mirrors(struct check *k)
{
	uint64_t changes = seg_state(k->s)->changes;
	const struct shm_mirror *m;
	uint32_t i;

	for (i = 0; i < SHM_MIRRORS; i++) {
		m = seg_mirror(k->s, i); /* as it is in the copy, like the table */
		if (m->state > MIRROR_RETIRED)
			check_bad(k, 0, "mirror %u: state %u is none", i, m->state);
		if (m->state != MIRROR_READY)
			continue;
		if (m->flushed > changes)
			check_bad(k, 0, "mirror %u: flushed up to %llu of %llu changes", i,
				  (unsigned long long)m->flushed, (unsigned long long)changes);
		else if (m->flushed == changes)
			read_mirror(k, i, m);
	}
}
