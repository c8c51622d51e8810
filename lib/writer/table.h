/* SPDX-License-Identifier: Apache-2.0 */
/* table.h - entries, buckets, relocation. */
#ifndef GPC_WRITER_TABLE_H
#define GPC_WRITER_TABLE_H

#include "writer/state.h"

struct relocation {                      /* rule T1 */
	struct relocation *next;
	struct batch *batch;             /* its copy waits in here */
	uint32_t record, from, to;       /* slots */
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
/* Bits of word 2 that are not the entry's own. */
#define TABLE_FLAGS(slot) ((slot) % SHM_BUCKET ? 0 : PROBE_OVERFLOW)
/* A usable entry for the key: TABLE_OK; TABLE_WAIT: after the next grace periods;
 * TABLE_FULL.  The entry is filled after the record's commit. */
int table_place(struct writer *w, const struct probe_key *k, uint32_t *ret_slot);
void table_fill(struct writer *w, uint32_t record, const struct probe_key *k, uint32_t slot);
/* The key will be looked for or removed soon; place: or placed. */
void table_prefetch(struct writer *w, const struct probe_key *k, bool place);
/* Record that is LIVE under this key in this space, or NONE. */
uint32_t table_find(struct writer *w, uint32_t space, const gpc_key *key);
uint32_t table_find_ready(struct writer *w, uint32_t space, const gpc_key *key, const struct probe_key *k);
/* Empty every entry that names the block; slots join the open batch. */
void table_remove(struct writer *w, uint32_t record);
/* Every entry that names `from` names `to` instead: same key, same space. */
void table_retier(struct writer *w, uint32_t from, uint32_t to);
bool table_has(struct writer *w, uint32_t record);
void table_copies_done(struct writer *w, struct batch *b);
void table_slot_usable(struct writer *w, uint32_t slot);
void table_wipe(struct writer *w, uint32_t slot);        /* empty one entry, which retires */
void table_set_flag(struct writer *w, uint32_t bucket);
void table_clear_spare_flag(struct writer *w, uint32_t bucket);

#endif
