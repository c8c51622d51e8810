/* SPDX-License-Identifier: Apache-2.0 */
/* hand.h - what a dead writer may leave, made by hand: a cache, a reader, and a writer that dies,
 * whose segment is changed before the next one comes. */
#ifndef GPC_T_HAND_H
#define GPC_T_HAND_H

#include "cache.h"

#include "index/peer/handle.h"
#include "index/peer/refs.h"
#include "kernels/probe.h"

enum { BLOCKS = 64, BUCKETS = 32, FULL = 4 };

static gpc *c, *d; /* d: a reader, whose section holds grace periods back */
static int section;
static uint8_t *index_of_hand;
static uint64_t number; /* of keys */

TAP_FN void begin(void)
{
	struct gpc_config cfg = cache_config(BLOCKS, 0);

	cfg.quarantine_ms = 3600 * 1000;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	if (info_of(c).buckets != BUCKETS)
		bail("the table has %u buckets", (unsigned)info_of(c).buckets);
}

TAP_FN void end(const char *what)
{
	settle(c);
	clean(c, what);
	must(gpc_close(d));
	cache_end(c);
}

/* ---- the hand ---- */

TAP_FN void writer_dies(void)
{
	must(gpc_writer_drop(c));
	must(segment_map_writer(&c->seg, &index_of_hand));
}

/* The next one, which has not served yet; held: a section is open all the while. */
TAP_FN void writer_comes(bool held)
{
	segment_unmap_writer(&c->seg, index_of_hand);
	section = held ? must(gpc_section_enter(d)) : -1;
	must(gpc_writer_take(c, 0, 0));
}

TAP_FN bool is_recovering(void)
{
	return load_acquire(&seg_state(&c->seg)->recovering);
}

TAP_FN void recovers(void)
{
	int i;

	if (section >= 0)
		gpc_section_leave(d, section);
	for (i = 0; i < 200 && is_recovering(); i++)
		must(gpc_writer_serve(c, 10));
	ok(!is_recovering(), "the first grace period is over");
}

TAP_FN struct probe_entry *entry(uint32_t slot)
{
	return SEG_AT(index_of_hand, c->seg.at.table, struct probe_entry, slot);
}

TAP_FN struct shm_record *record(gpc_block b)
{
	return SEG_AT(index_of_hand, c->seg.at.record, struct shm_record, (uint32_t)b);
}

TAP_FN const struct probe_entry *seen(uint32_t slot)
{
	return SEG_AT(c->seg.index, c->seg.at.table, const struct probe_entry, slot);
}

TAP_FN bool has_flag(uint32_t bucket)
{
	return load_acquire(&seen(bucket * FULL)->w[2]) & PROBE_OVERFLOW;
}

TAP_FN struct probe_key places(gpc_key k)
{
	return probe_prepare(k.w[0], k.w[1], BUCKETS);
}

/* A slot of this bucket that names the block; -1. */
TAP_FN int slot_of(uint32_t bucket, gpc_block b)
{
	uint32_t i;

	for (i = bucket * FULL; i < (bucket + 1) * FULL; i++)
		if (load_acquire(&seen(i)->w[3]) == (uint32_t)b + 1)
			return (int)i;
	return -1;
}

TAP_FN int entries_of(gpc_key k, gpc_block b)
{
	return (slot_of(places(k).first, b) >= 0) + (slot_of(places(k).second, b) >= 0);
}

/* ---- keys ---- */

TAP_FN gpc_key key_in(uint32_t first, uint32_t second)
{
	struct probe_key p;
	gpc_key k;

	do {
		k = key_of(c, ++number);
		p = places(k);
	} while (p.first != first || p.second != second);
	return k;
}

TAP_FN gpc_block publish(gpc_key k)
{
	gpc_block b;

	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 60000));
	if (must(gpc_publish(c, NULL, &k, &b, 1, NULL, 0, -1)) != 1)
		bail("a key has no place");
	must(gpc_release(c, &b, 1));
	return b;
}

TAP_FN gpc_block look(gpc_key k)
{
	gpc_block b = -2;

	must(gpc_lookup(d, 0, &k, 1, &b, GPC_QUIET));
	return b;
}

#endif
