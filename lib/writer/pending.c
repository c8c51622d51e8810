/* SPDX-License-Identifier: Apache-2.0 */
/* pending.c - keys that a block is reserved for: here, those that transfers bring. */
#include "config.h"

#include "writer/pending.h"

static bool is_pending(struct writer *w, uint32_t record, uint32_t space, const gpc_key *key)
{
	const struct shm_record *r = w_record(w, record);

	return w->node[record].bound && r->source && w_space(w, record) == space &&
	       r->key[0] == key->w[0] && r->key[1] == key->w[1];
}

uint32_t pending_find(struct writer *w, uint32_t space, const gpc_key *key)
{
	uint32_t peer, record;

	for (peer = 0; w->transfers && peer < w->max_peers; peer++)
		for (record = w->peer[peer].reserved; record != NONE;
		     record = w->owned[record].next)
			if (is_pending(w, record, space, key))
				return record;
	return NONE;
}

void pending_add(struct writer *w UNUSED, uint32_t record UNUSED)
{
}

void pending_end(struct writer *w UNUSED, uint32_t record UNUSED)
{
}
