/* SPDX-License-Identifier: Apache-2.0 */
/* What a dead writer may leave in the table, each made by hand; what a takeover does with it at
 * once, and what not before its first grace period is over (rule T7).
 * Tests: lib/index/takeover/table.c lib/index/takeover/tree.c */
#include "config.h"

#include "index/takeover/takeover.h"
#include "t/lib/hand.h"

/* ---- before the grace period ---- */

/* Its entry stands in the second bucket, and the store of the flag was the last but one. */
static void test_missing_flag(void)
{
	gpc_block b = GPC_NONE;
	gpc_key k = { { 0, 0 } };
	int i;

	begin();
	for (i = 0; i <= FULL; i++)
		b = publish(k = key_in(5, 9));
	ok(slot_of(9, b) >= 0 && has_flag(5), "a key in its second bucket");
	writer_dies();
	entry(5 * FULL)->w[2] &= ~PROBE_OVERFLOW;
	is_int(look(k), -1, "without the flag of the first it is not found");
	writer_comes(true);
	is_int(look(k), b, "by a new writer the flag is set at once");
	recovers();
	is_int(look(k), b, "and stays");
	end("a missing flag");
}

static void test_wrong_entry(void)
{
	struct probe_key p;
	gpc_block b;
	gpc_key k;

	begin();
	k = key_in(5, 9);
	b = publish(k);
	p = places(key_in(7, 11));
	writer_dies();
	*entry(7 * FULL + 1) = (struct probe_entry){ { p.w[0], p.w[1], p.w[2], (uint32_t)b + 1 } };
	*entry(8 * FULL + 2) = (struct probe_entry){ { 1, 2, 3u << 8, 0 } };
	*entry(8 * FULL + 3) = (struct probe_entry){ { 1, 2, 3u << 8, 40 } };
	writer_comes(true);
	is_int(slot_of(7, b), -1, "an entry with another key's bits goes at once");
	is_int(seen(8 * FULL + 3)->w[3], 0, "so does one that names a free block");
	is_int(seen(8 * FULL + 2)->w[0] | seen(8 * FULL + 3)->w[0], 0, "nor do its bits stay");
	is_int(look(k), b, "a good one stays");
	recovers();
	end("wrong entries");
}

/* Somebody may still be at an entry that the dead writer has emptied: which, nobody knows. */
static void test_empty_entries(void)
{
	gpc_ticket t;
	gpc_block b;
	gpc_key k;
	int err;

	begin();
	k = key_in(5, 9);
	writer_dies();
	writer_comes(true);
	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 60000));
	must(gpc_publish(c, NULL, &k, &b, 1, GPC_OPTIONS(gpc_publish_options, .ticket = &t), 0, 0));
	err = gpc_ticket_wait(c, t, 20);
	is_int(err, -ETIMEDOUT, "a publish waits: no empty entry is used");
	is_int(look(k), -1, "it is not found");
	recovers();
	is_int(gpc_ticket_wait(c, t, 2000), 0, "until the grace period is over");
	is_int(look(k), b, "then it is");
	must(gpc_release(c, &b, 1));
	end("empty entries");
}

/* ---- after it ---- */

static void test_twice(bool evicted)
{
	gpc_block b;
	gpc_key k;
	int at;

	begin();
	b = publish(k = key_in(5, 9));
	at = slot_of(5, b);
	writer_dies();
	*entry(9 * FULL + 2) = *entry((uint32_t)at);
	entry(9 * FULL + 2)->w[2] &= ~PROBE_OVERFLOW;
	entry(5 * FULL)->w[2] |= PROBE_OVERFLOW;
	writer_comes(true);
	is_int(entries_of(k, b), 2, "a relocation half done: both entries stay at first");
	is_int(look(k), b, "the key is found");
	if (evicted) {
		refused(gpc_evict(c, 0, 1, &b, 0, 0), EAGAIN,
			"the block is evicted, and waited for");
		is_int(entries_of(k, b), 0, "both entries go at once");
	}
	recovers();
	is_int(entries_of(k, b), !evicted, "then one goes");
	is_int(look(k), evicted ? -1 : b, "the key is found if it is live");
	end(evicted ? "two entries of a victim" : "two entries");
}

/* A move's writer died while it renamed the two entries of a relocation. */
static void test_renamed_half(void)
{
	gpc_block from, to;
	gpc_key k;

	begin();
	from = publish(k = key_in(5, 9));
	must(gpc_reserve(c, 0, 1, &to, NULL, 0, 60000));
	writer_dies();
	*entry(9 * FULL + 2) = *entry((uint32_t)slot_of(5, from));
	entry(9 * FULL + 2)->w[2] &= ~PROBE_OVERFLOW;
	entry(9 * FULL + 2)->w[3] = (uint32_t)to + 1;
	entry(5 * FULL)->w[2] |= PROBE_OVERFLOW;
	*record(to) = *record(from);
	record(to)->source = (uint32_t)from + 1;
	record(to)->source_word = record(from)->word;
	*refs_cell(c, (uint32_t)to) = 0; /* the commit had been sent */
	writer_comes(true);
	is_int(entries_of(k, to), 2, "a move half done: both entries name its target");
	is_int(look(k), to, "the key is found there");
	recovers();
	is_int(entries_of(k, to), 1, "one of them goes");
	is_int(look(k), to, "the key is found");
	end("a move of two entries");
}

static void test_spare_flag(void)
{
	begin();
	publish(key_in(5, 9));
	writer_dies();
	entry(5 * FULL)->w[2] |= PROBE_OVERFLOW;
	entry(7 * FULL)->w[2] |= PROBE_OVERFLOW;
	writer_comes(false);
	recovers();
	ok(!has_flag(5) && !has_flag(7), "flags without spilled entries go");
	end("spare flags");
}

static void test_no_entry(void)
{
	gpc_block b;
	gpc_key k;

	begin();
	b = publish(k = key_in(5, 9));
	writer_dies();
	*entry((uint32_t)slot_of(5, b)) = (struct probe_entry){ { 0, 0, 0, 0 } };
	writer_comes(false);
	recovers();
	is_int(look(k), b, "a block without an entry gets one");
	end("no entry");
}

/* The place of a key among those that a scan has met last: index/takeover/tree.c. */
static uint32_t near_place(gpc_key k)
{
	return (k.w[0] ^ k.w[1]) * 0x9e3779b97f4a7c15ull >> 32 & (TAKEOVER_NEAR_SIZE - 1);
}

/* Nothing but its key tells where it is: its child lies in another place and does not say where it
 * was, and another block is met behind it. */
static void test_parent_without_entry(void)
{
	gpc_key parent, child, other;
	gpc_block b[8];

	begin();
	parent = key_in(5, 9);
	child = key_in(7, 11);
	do
		other = key_of(c, ++number);
	while (near_place(other) != near_place(parent));
	must(gpc_reserve(c, 0, 8, b, NULL, 0, 60000));
	is_int(gpc_publish(c, NULL, &parent, &b[7], 1, NULL, 0, -1), 1, "a parent");
	is_int(gpc_publish(c, &parent, &child, &b[3], 1, NULL, 0, -1), 1, "and its child");
	is_int(gpc_publish(c, NULL, &other, &b[0], 1, NULL, 0, -1), 1, "and another one");
	must(gpc_release(c, b, 8));
	writer_dies();
	*entry((uint32_t)slot_of(5, b[7])) = (struct probe_entry){ { 0, 0, 0, 0 } };
	record(b[3])->source_word = 0;
	writer_comes(false);
	recovers();
	is_int(look(parent), b[7], "a parent without an entry gets one");
	is_int(look(child), b[3], "and its child is none that has lost it");
	end("a parent without an entry");
}

static int body(void)
{
	test_missing_flag();
	test_wrong_entry();
	test_empty_entries();
	test_twice(false);
	test_twice(true);
	test_renamed_half();
	test_spare_flag();
	test_no_entry();
	test_parent_without_entry();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
