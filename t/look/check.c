/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_check: each invariant is broken once, by hand, and must give its line and no other.
 * Tests: lib/look/check.c lib/look/check_control.c lib/look/check_record.c
 *   lib/look/check_table.c lib/look/check_hold.c lib/look/check_memo.c */
#include "config.h"

#include "t/lib/checked.h"

static void test_records(struct made *m)
{
	struct shm_record *r = made_record(m, 7);

	BREAK(m, r->check, r->check ^ 1, 1, "record 7 (block 0x00000007): its check word");
	BREAK(m, made_record(m, 12)->word, WORD(5, 1), 1,
	      "record 12 (block 0x0000000c): its "
	      "state is none");
	BREAK(m, made_record(m, 60)->word, WORD(RESERVED, 1), 1,
	      "record 60 (no block): RESERVED "
	      "outside of every pool");
	BREAK(m, made_record(m, 10)->owner, 3, 1,
	      "record 10 (block 0x0000000a): reserved by a "
	      "peer whose seat is empty");
	BREAK(m, made_record(m, 10)->owner, SHM_NO_PEER, 1, "reserved by nobody");
	BREAK(m, made_record(m, 10)->source, MADE_BLOCKS + 1, 1,
	      "record 10 (block 0x0000000a): "
	      "moves from record 64, which cannot be");
	BREAK(m, made_record(m, 10)->source, 11, 1, "moves from record 10");

	r->depth = 5;
	made_check_word(r);
	expect(m, 1, "record 7 (block 0x00000007): depth 5, but its parent, record 3, has 1");
	r->depth = 2;
	made_check_word(r);
	BREAK(m, r->word, WORD(FREE, 9), 1, "(block 0x00000007): names a block that is not live");
}

static void test_chain(struct made *m)
{
	struct shm_record *r = made_record(m, 7), *up = made_record(m, 3);
	struct probe_entry saved = *made_entry(m, slot_of[0]);
	uint32_t word = up->word;

	memset(made_entry(m, slot_of[0]), 0, sizeof(saved));
	up->word = WORD(FREE, 4);
	expect(m, 1, "record 7 (block 0x00000007): its parent is not live in its space");
	r->flags |= REC_UNCHAINED;
	expect(m, 0, "");
	r->flags = 0;
	up->word = word;
	*made_entry(m, slot_of[0]) = saved;

	/* the same in RAM */
	saved = *made_entry(m, slot_of[2]);
	memset(made_entry(m, slot_of[2]), 0, sizeof(saved));
	up = made_record(m, 33);
	word = up->word;
	up->word = WORD(DYING, WORD_GEN(word));
	expect(m, 1, "record 34 (block 0x01000002): its parent is not live in its space");
	up->word = word;
	*made_entry(m, slot_of[2]) = saved;
	expect(m, 0, "");
}

static void test_keys(struct made *m)
{
	uint64_t slot = made_publish(m, 8, 1, 0, 1);
	struct shm_record *r = made_record(m, 8);

	expect(m, 1,
	       "record 8 (block 0x00000008): its key is live in record 3 (block "
	       "0x00000003) of the same space too");
	r->word = WORD(FREE, 2);
	memset(made_entry(m, slot), 0, sizeof(struct probe_entry));

	slot = made_publish(m, 8, 0, 0, 1);
	expect(m, 1, "record 8 (block 0x00000008): live without a block's key");
	r->word = WORD(FREE, 2);
	memset(made_entry(m, slot), 0, sizeof(struct probe_entry));
	expect(m, 0, "");
}

static void test_table(struct made *m)
{
	struct probe_entry *e = made_entry(m, slot_of[1]), saved = *e;

	memset(e, 0, sizeof(*e));
	expect(m, 1, "record 7 (block 0x00000007): live, but no table entry names it");
	e->w[1] = 5;
	expect(m, 2, "half written: key words without a block");
	*e = saved;
	BREAK(m, e->w[0], 77, 2, "(block 0x00000007): its key is not the block's in its space");
	BREAK(m, e->w[3], 20, 2, "(block 0x00000013): names a block that is not live");
	BREAK(m, e->w[3], (5u << 24) + 1, 2, "(block 0x05000000): names a block of no pool");
	BREAK(m, e->w[3], 0xffffffff, 2, "(block 0xfffffffe): names a block of no pool");
	BREAK(m, e->w[3], 33, 2, "(block 0x00000020): names a block of no pool");
}

static void test_spilled(struct made *m)
{
	struct probe_entry *e = made_entry(m, slot_of[1]), saved = *e, *other;
	struct probe_key p = made_probe(m, 0, made_key(2));
	uint64_t second = (uint64_t)p.second * SHM_BUCKET + 2;
	char want[128];

	snprintf(want, sizeof(want),
		 "bucket %u entry 2 (block 0x00000007): spilled, but the "
		 "flag of its first bucket is not set",
		 p.second);
	other = made_entry(m, second);
	*other = saved;
	other->w[2] = p.w[2];
	memset(e, 0, sizeof(*e));
	expect(m, 1, want);
	made_entry(m, (uint64_t)p.first * SHM_BUCKET)->w[2] |= PROBE_OVERFLOW;
	expect(m, 0, ""); /* it may spill, and a stale flag is legal */
	made_entry(m, (uint64_t)p.first * SHM_BUCKET + 1)->w[2] |= PROBE_OVERFLOW;
	expect(m, 1, "half written"); /* but only entry 0 has one */
	made_entry(m, (uint64_t)p.first * SHM_BUCKET + 1)->w[2] = 0;
	*e = saved;
	e->w[2] |= PROBE_OVERFLOW;
	expect(m, 1, "record 7 (block 0x00000007): a table entry in each of its buckets");
	memset(other, 0, sizeof(*other));
	other = e + (slot_of[1] % SHM_BUCKET ? -1 : 1);
	*other = saved;
	other->w[2] = p.w[2];
	expect(m, 1, "two table entries of one bucket name it");
	memset(other, 0, sizeof(*other));
	*e = saved;
}

static void test_astray(struct made *m)
{
	uint32_t buckets = m->c.seg.header.geometry.buckets, bucket;
	struct probe_key p = made_probe(m, 0, made_key(2));
	struct probe_entry *other;

	bucket = (p.first + 1) % buckets;
	if (bucket == p.second)
		bucket = (p.first + 2) % buckets;
	other = made_entry(m, (uint64_t)bucket * SHM_BUCKET + 3);
	*other = *made_entry(m, slot_of[1]);
	other->w[2] = p.w[2];
	expect(m, 1, "stands in a bucket where nobody looks for it");
	memset(other, 0, sizeof(*other));
	expect(m, 0, "");
}

/* A relocation waits for its grace period as long as sections are open: no violation
 * then. */
static void test_relocation(struct made *m)
{
	struct probe_key p = made_probe(m, 0, made_key(2));
	struct probe_entry *other = made_entry(m, (uint64_t)p.second * SHM_BUCKET + 2);

	made_entry(m, (uint64_t)p.first * SHM_BUCKET)->w[2] |= PROBE_OVERFLOW;
	made_fill(m, (uint64_t)p.second * SHM_BUCKET + 2, p, 7);
	expect(m, 1, "a table entry in each of its buckets");
	epoch_enter(&m->c.seg, MADE_PEER, 0);
	expect(m, 0, "");
	epoch_leave(&m->c.seg, MADE_PEER, 0);
	memset(other, 0, sizeof(*other));
}

static void test_pools(struct made *m)
{
	struct shm_pool *a = made_pool(m, 0), *b = made_pool(m, 1);
	struct shm_state *st = made_state(m);

	BREAK(m, b->kind, 9, 1, "pool 1: kind 9 is none");
	BREAK(m, a->blocks, 33, 1, "pool 0: 33 blocks in 32 slots");
	BREAK(m, a->demote_to, 4, 1, "pool 0: demotes to 4, which is no pool");
	BREAK(m, a->backing_size, 1025, 1, "pool 0: 1025 bytes of backing");
	BREAK(m, a->owner, 77, 1, "pool 0: its owner 77 is no peer");
	BREAK(m, a->owner, 3, 1, "pool 0: the seat of its owner 3 is empty");
	BREAK(m, a->owner, MADE_PEER, 0, "");
	BREAK(m, st->spaces, 1, 1,
	      "state: the sets of spaces are 0x1 and 0x0, the pools have 0x3 and 0x0");
	BREAK(m, st->live_pools[1], 1, 1, "pool 64: counts as live, but is not");
	BREAK(m, st->live_pools[0], 1, 1, "pool 1: is ready, but does not count as live");

	b->range = 31ull << 32 | 17;
	ok(check(m) > 0 && was_heard("pool 1: record 31 belongs to pool 0 too"),
	   "overlapping pools");
	b->range = (uint64_t)MADE_BLOCKS << 32 | 0xffffffff;
	ok(check(m) > 0 && was_heard("pool 1: records 64 to 63 of 64"), "a pool beyond the end");
	b->range = 32ull << 32 | 16;
	a->state = 9;
	ok(check(m) > 0 && was_heard("pool 0: state 9 is none"), "a pool in no state");
	a->state = POOL_READY;
	b->space = 1000;
	ok(check(m) > 0 && was_heard("pool 1: space 1000 is out of range"), "a space too far");
	b->space = 1;
	expect(m, 0, "");
}

static void test_control(struct made *m)
{
	struct shm_shared *line = seg_shared(&m->c.seg);
	struct shm_seat *seat = seg_seat(&m->c.seg, MADE_PEER);
	struct shm_section *sec = seg_section(&m->c.seg, 3, 9);

	BREAK(m, line->completed, 50, 1, "epoch 1: 50 counts as completed");
	BREAK(m, sec->epoch, 1, 1, "seat 3: empty, but its section 9 is not idle");
	sec = seg_section(&m->c.seg, MADE_PEER, 9);
	BREAK(m, sec->epoch, 900, 1, "seat 1: section 9 is at epoch 900, ahead of 1");
	BREAK(m, seat->tail, 5, 1, "seat 1: its ring goes from 5 to 0");
	BREAK(m, seat->head, SHM_RING + 1, 1, "seat 1: its ring goes from 0 to 4097");
	BREAK(m, seat->head, SHM_RING, 0, "");
	BREAK(m, seg_seat(&m->c.seg, 2)->state, 8, 1, "seat 2: state 8 is none");
	BREAK(m, *seg_cell(&m->c.seg, 7, 2), 3, 1,
	      "record 7 (block 0x00000007): 3 references of "
	      "seat 2, which is empty");
	BREAK(m, *seg_stamp(&m->c.seg, 7), 102ull << STAMP_BITS, 1,
	      "record 7 (block 0x00000007): its stamp 102 "
	      "is in the future");
	BREAK(m, *seg_stamp(&m->c.seg, 7), 101 << STAMP_BITS | STAMP_PLACES, 0, "");
	BREAK(m, made_state(m)->events_floor, 1, 1, "changes feed: its floor 1 is above its head");
}

/* A column whose peer lives and is not at work shows that it has cells. */
static void test_holders(struct made *m)
{
	struct shm_seat *seat = seg_seat(&m->c.seg, MADE_PEER);
	uint16_t *cell = seg_cell(&m->c.seg, 7, MADE_PEER);
	struct shm_record *r = made_record(m, 10);
	uint32_t word;
	int peer = segment_open_lock(&m->c.seg), writer = segment_open_lock(&m->c.seg);

	word = r->word;
	r->word = WORD(FREE, 1); /* a peer that lives would have a cell there */
	made_count(m);
	lock_try(writer, LOCK_WRITER);
	BREAK(m, *cell, 3, 0, ""); /* who has died, perhaps behind the cell */
	lock_try(peer, LOCK_PEER(MADE_PEER));
	BREAK(m, *cell, 3, 1,
	      "record 7 (block 0x00000007): 3 references of seat 1, which is not among the holders");
	m->shared->holders[0] = 1 << MADE_PEER;
	BREAK(m, *cell, 3, 0, "");
	m->shared->holders[0] = 0;
	*cell = 3;
	epoch_enter(&m->c.seg, MADE_PEER, 0);
	expect(m, 0, "");
	epoch_leave(&m->c.seg, MADE_PEER, 0);
	BREAK(m, seat->head, 1, 0, "");
	seg_command(&m->c.seg, MADE_PEER, 5)->op = CMD_PUBLISH;
	BREAK(m, seg_command(&m->c.seg, MADE_PEER, 5)->result, CMD_PENDING, 0, "");
	expect(m, 1, "which is not among the holders");
	lock_drop(writer, LOCK_WRITER);
	expect(m, 0, ""); /* one that has died may have taken the bit away to look */
	*cell = 0;
	r->word = word;
	close(writer);
	close(peer);
}

/* Space 0 has no mask, so that the places of its entries do not depend on the secret. */
static void test_space0(void)
{
	struct made m;

	made_new(&m, "check-table", MADE_BLOCKS);
	made_add_pool(&m, 0, GPC_VRAM, 0, 0, 32);
	slot_of[0] = made_publish(&m, 3, 1, 0, 1);
	slot_of[1] = made_publish(&m, 7, 2, 1, 2);
	test_table(&m);
	test_spilled(&m);
	test_astray(&m);
	test_relocation(&m);
	made_free(&m);
}

static int body(void)
{
	struct made m, look;

	made_new(&m, "check", MADE_BLOCKS);
	fill(&m);
	expect(&m, 0, "");
	test_records(&m);
	test_chain(&m);
	test_keys(&m);
	test_pools(&m);
	test_control(&m);
	test_holders(&m);
	expect(&m, 0, "");
	made_look(&look, &m);
	is_int(gpc_check(&look.c, hear, NULL), 0, "from a read-only handle");
	made_look_end(&look);
	made_free(&m);
	test_space0();
	is_int(gpc_check(NULL, hear, NULL), -EINVAL, "no handle");
	return done_testing();
}

int main(void)
{
	scratch_make("t021");
	return tap_guard(50, body, scratch_remove);
}
