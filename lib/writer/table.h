/* SPDX-License-Identifier: Apache-2.0 */
/* table.h - entries, buckets, relocation. */
#ifndef GPC_WRITER_TABLE_H
#define GPC_WRITER_TABLE_H

#include "writer/bucket.h"

struct relocation { /* rule T1 */
	struct relocation *next;
	struct batch *batch;       /* its copy waits in here */
	uint32_t record, from, to; /* slots */
};

/* A key made ready; that of a record. */
static inline struct probe_key table_ready(struct writer *w, uint32_t space, const uint64_t key[2])
{
	return probe_masked(key, w->c->mask[space].w, w->buckets);
}

static inline struct probe_key table_key(struct writer *w, uint32_t record)
{
	return table_ready(w, w_space(w, record), w_record(w, record)->key);
}

enum { TABLE_OK = 0, TABLE_WAIT, TABLE_FULL };
/* A usable entry for the key: TABLE_OK; TABLE_WAIT: after the next grace periods;
 * TABLE_FULL.  The entry is filled after the record's commit. */
int table_place(struct writer *w, const struct probe_key *k, uint32_t *ret_slot);
void table_fill(struct writer *w, uint32_t record, const struct probe_key *k, uint32_t slot);
/* The parts of it: a copy comes into the second bucket of this key; both of its buckets are full
 * now. */
void table_spill(struct writer *w, const struct probe_key *k);
/* an entry of its keys has left their second bucket */
void table_unspill(struct writer *w, uint32_t bucket);
/* Relocations that were begun ahead of need, and wait for their memory: at the end of a round of
 * commands. */
void table_relocate_due(struct writer *w);
void table_relocate_ahead(struct writer *w, const struct probe_key *k);
/* The key will be looked for, placed or removed soon: its first bucket; then, when that is here,
 * its second one, if that matters. */
static inline __attribute__((always_inline)) void table_prefetch(struct writer *w,
								 const struct probe_key *k)
{
	__builtin_prefetch(&w->table[k->first * SHM_BUCKET], 1);
	__builtin_prefetch(&w->books[k->first], 1);
}

/* Without a branch, which would be mispredicted: one that is here already costs nothing. */
static inline __attribute__((always_inline)) void
table_prefetch_second(struct writer *w, const struct probe_key *k, bool place)
{
	uint32_t usable = place ? bucket_usable(w, k->first) : 3;
	uint32_t second = (uint32_t)bucket_spills(w, k) | !(usable & (usable - 1));
	uint32_t bucket = k->first ^ ((k->first ^ k->second) & (0u - second));

	__builtin_prefetch(&w->table[bucket * SHM_BUCKET], 1);
	__builtin_prefetch(&w->books[bucket], 1);
}

/* Record that is LIVE under this key in this space, or NONE. */
uint32_t table_find(struct writer *w, uint32_t space, const gpc_key *key);
uint32_t table_find_ready(struct writer *w, uint32_t space, const gpc_key *key,
			  const struct probe_key *k);
/* Empty every entry that names the block; slots join the open batch. */
void table_remove(struct writer *w, uint32_t record);
/* Every entry that names `from` names `to` instead: same key, same space. */
void table_retier(struct writer *w, uint32_t from, uint32_t to);
bool table_has(struct writer *w, uint32_t record);
void table_copies_done(struct writer *w, struct batch *b);
void table_slot_usable(struct writer *w, uint32_t slot);
void table_wipe(struct writer *w, uint32_t slot); /* empty one entry, which retires */
void table_set_flag(struct writer *w, uint32_t bucket);
void table_clear_spare_flag(struct writer *w, uint32_t bucket);

#endif
