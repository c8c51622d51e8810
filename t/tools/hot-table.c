/* SPDX-License-Identifier: Apache-2.0 */
/* The table of gpc-inspect hot against a trace whose counts are known: exact while there is room, and
 * with ten times more than that it keeps to its bounds.
 * Tests: tools/inspect/hot_table.c tools/inspect/hot.h */
#include "t/lib/tap.h"
#include "tools/inspect/hot.h"

enum { LOOKS = 40, FREQUENT = 100, ONCE = 20000 };

static void use(struct hot_table *t, uint64_t number, uint32_t look)
{
	const struct gpc_entry e = { .parent = { { number - 1, 7 } }, .depth = 1 };
	const gpc_key key = { { number, 7 } };

	if (!hot_count(t, &key, &e, look) || !hot_count(t, &key, &e, look))
		bail("out of memory");
}

static uint32_t count_of(const struct hot_table *t, uint64_t number)
{
	const gpc_key key = { { number, 7 } };
	const struct hot_row *r = hot_find(t, &key);

	return r ? r->count : 0;
}

/* Number i of the frequent ones is used by looks 0 to i % LOOKS; in each look `once` come that no other
 * one has. */
static void run(struct hot_table *t, uint32_t once, uint32_t *ret_most)
{
	uint64_t next = 1000000;

	*ret_most = 0;
	for (uint32_t look = 0; look < LOOKS; look++) {
		for (uint64_t i = 1; i <= FREQUENT; i++)
			if (look <= i % LOOKS)
				use(t, i, look);
		for (uint32_t k = 0; k < once; k++) {
			use(t, next += 2, look);
			if (*ret_most < t->n)
				*ret_most = t->n;
		}
		if (!hot_trim(t))
			bail("out of memory");
		if (*ret_most < t->n)
			*ret_most = t->n;
	}
}

static uint32_t wrong(const struct hot_table *t)
{
	uint32_t n = 0;

	for (uint64_t i = 1; i <= FREQUENT; i++) {
		uint32_t is = (uint32_t)(i % LOOKS) + 1, got = count_of(t, i);

		n += got > is || got + t->lost < is;
	}
	return n;
}

static int body(void)
{
	struct hot_table t = { 0 };
	uint32_t most, before;

	run(&t, 0, &most);
	is_int(t.lost, 0, "with room nothing is lost");
	is_int(wrong(&t), 0, "and each count is exact");
	hot_link(&t);
	hot_sort(&t);
	is_int(t.row[0].count, LOOKS, "the most frequent one is first");
	before = UINT32_MAX;
	for (uint32_t i = 0; i < t.n && t.row[i].count <= before; i++)
		before = t.row[i].count;
	is_int(before, t.row[t.n - 1].count, "then one behind the other");
	hot_free(&t);
	run(&t, ONCE, &most);
	ok(most <= HOT_ROOM + ONCE + FREQUENT,
	   "800,000 of them have no more than the room that there is");
	ok(t.lost > 0 && t.lost <= LOOKS * (ONCE + FREQUENT) / HOT_ROOM,
	   "what is lost is less than all of the trace by the room");
	is_int(wrong(&t), 0, "no count is too high, or lower by more than that");
	hot_free(&t);
	run(&t, 15 * ONCE, &most);
	ok(most <= 2 * HOT_ROOM, "twice as much where one look has more than that");
	ok(t.lost <= LOOKS * (15 * ONCE + FREQUENT) / HOT_ROOM,
	   "and what is lost is less than that");
	is_int(wrong(&t), 0, "which no count passes");
	hot_free(&t);
	return done_testing();
}

int main(void)
{
	return tap_guard(50, body, NULL);
}
