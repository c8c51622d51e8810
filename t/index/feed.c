/* SPDX-License-Identifier: Apache-2.0 */
/* The changes feed and walks: who applies every change has exactly what a walk shows,
 * also after being too late; and a walk shows parents first.
 * Tests: lib/index/table/events.c lib/index/reader/events.c lib/look/walk.c */
#include "t/lib/churn.h"

static struct replica {
	bool live;
	gpc_key key, parent;
	uint32_t tag;
} replica[CHURN_POOLS][CHURN_SLOTS];
static uint64_t cursor, next_seq;
static uint32_t odd, applied[5]; /* changes that make no sense; by kind */

static struct replica *at(gpc_block b)
{
	return &replica[GPC_POOL(b)][GPC_SLOT(b)];
}

/* ---- a consumer ---- */

static void store(const struct gpc_event *ch)
{
	struct replica *r = at(ch->block);

	odd += r->live;
	*r = (struct replica){ true, ch->key, ch->parent, ch->tag };
}

static void forget(gpc_block b, gpc_key key)
{
	odd += !at(b)->live || !key_is(at(b)->key, key);
	at(b)->live = false;
}

static void apply(const struct gpc_event *ch)
{
	if (next_seq && ch->seq != next_seq)
		odd++;
	next_seq = ch->seq + 1;
	if (ch->what == GPC_RETURNED)
		return; /* says nothing of the content */
	if (ch->what < GPC_STORED || ch->what > GPC_CLEARED) {
		odd++;
		return;
	}
	applied[ch->what]++;
	switch (ch->what) {
	case GPC_STORED:
		store(ch);
		break;
	case GPC_REMOVED:
		forget(ch->block, ch->key);
		break;
	case GPC_MOVED:
		forget(ch->was, ch->key);
		store(ch);
		break;
	case GPC_CLEARED: /* of one tag: each entry has its own change */
		if (!ch->tag)
			memset(replica[GPC_POOL(ch->block)], 0, sizeof(replica[0]));
		break;
	}
}

static void follow(gpc *c)
{
	struct gpc_event ch[37];
	int n, i;

	while ((n = gpc_event_read(c, &cursor, ch, 37)) > 0)
		for (i = 0; i < n; i++)
			apply(&ch[i]);
	must(n);
}

static uint32_t space_of(int pool)
{
	return pool == churn.other ? 1 : pool == CHURN_SHARED ? 2 : 0;
}

/* Walk; compare with the replica, or make it anew.  True: all as it should be. */
static bool walk(gpc *c, bool anew)
{
	static struct gpc_entry all[CHURN_POOLS * CHURN_SLOTS];
	uint64_t at_walk = 0;
	uint32_t n = 0, i, j, live = 0, bad = 0;
	int got;

	while ((got = must(gpc_walk(c, &at_walk, all + n, 1 + chance(20)))) > 0)
		n += (uint32_t)got;
	if (anew)
		memset(replica, 0, sizeof(replica));
	for (i = 0; i < n; i++) {
		struct replica *r = at(all[i].block);

		if (anew)
			*r = (struct replica){ true, all[i].key, all[i].parent, all[i].tag };
		bad += !r->live || !key_is(r->key, all[i].key) ||
		       !key_is(r->parent, all[i].parent) || r->tag != all[i].tag;
		for (j = i + 1; j < n; j++) /* a parent never comes behind its child */
			bad += key_is(all[j].key, all[i].parent) &&
			       space_of(GPC_POOL(all[i].block)) ==
				       space_of(GPC_POOL(all[j].block)) &&
			       all[i].depth;
	}
	for (i = 0; i < CHURN_POOLS * CHURN_SLOTS; i++)
		live += replica[i / CHURN_SLOTS][i % CHURN_SLOTS].live;
	return !bad && live == n;
}

static void test_follow(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	gpc *c = churn_begin(&cfg);
	uint32_t i, same = 0, looks = 0;

	memset(replica, 0, sizeof(replica));
	memset(applied, 0, sizeof(applied));
	cursor = next_seq = odd = 0;
	for (i = 0; i < 3000; i++) {
		churn_step();
		if (i % 10 == 9)
			follow(c);
		if (i % 50 == 49) {
			done(c);
			follow(c);
			looks++;
			same += walk(c, false);
		}
		if (i % 500 == 499)
			churn_pool();
	}
	is_int(same, looks, "%u times, what the changes say is what a walk shows", looks);
	is_int(odd, 0, "every change makes sense, and none is missing");
	ok(applied[GPC_STORED] > 500 && applied[GPC_REMOVED] > 300 && applied[GPC_MOVED] > 100 &&
		   applied[GPC_CLEARED] > 20,
	   "%u stored, %u removed, %u moved, %u cleared", applied[1], applied[2], applied[3],
	   applied[4]);
	churn_end();
	follow(c);
	ok(walk(c, false), "to the last one");
	cache_end(c);
}

/* Too late: a walk, and on from there. */
static void test_late(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	gpc *c = churn_begin(&cfg);
	struct gpc_event ch[4];
	uint64_t old, from_now = UINT64_MAX, one = 0;
	uint32_t i, late = 0;
	int n;

	cursor = 0;
	follow(c);
	for (i = 0; i < 6000 && late < 2; i++) {
		churn_step();
		if (i % 1500 != 1499)
			continue;
		done(c);
		old = cursor;
		ch[0].seq = 77;
		n = gpc_event_read(c, &cursor, ch, 4);
		if (n != -ESTALE)
			continue;
		late++;
		ok(cursor > old && ch[0].seq == 77, "too late, and told where to go on");
		is_int(gpc_event_read(c, &cursor, ch, 4), 0, "nothing has happened since");
		next_seq = odd = 0;
		walk(c, true);
		churn_request();
		churn_drop();
		done(c);
		follow(c);
		ok(walk(c, false), "after a walk all is known again");
		is_int(odd, 0, "and makes sense");
	}
	is_int(late, 2, "twice too late");
	n = gpc_event_read(c, &one, ch, 4);
	ok(n == 4 && ch[3].seq == ch[0].seq + 3 && one == ch[3].seq + 1,
	   "from 0: the oldest ones that are kept");
	is_int(gpc_event_read(c, &from_now, ch, 4), 0, "from now on: nothing yet");
	is_int(from_now, cursor, "the same place");
	churn_end();
	is_int(gpc_event_read(c, &from_now, ch, 0), 0, "no room, no changes");
	ok(gpc_event_read(c, &from_now, ch, 4) > 0, "now there are some");
	refused(gpc_event_read(c, NULL, ch, 4), EINVAL, "no cursor");
	refused(gpc_event_read(c, &cursor, NULL, 4), EINVAL, "no room");
	cache_end(c);
}

static void test_each(void)
{
	gpc *c = cache_new(4, 4);
	struct gpc_event ch[8];
	struct gpc_move m[4];
	gpc_block b[2], x;
	gpc_key k[3];
	uint64_t at_change = 0;

	chain_keys(c, 1, 2, k);
	is_int(gpc_event_read(c, &at_change, ch, 8), 0, "an empty cache has no past");
	must(gpc_reserve(c, 0, 2, b, NULL, 0, 60000));
	is_int(gpc_event_read(c, &at_change, ch, 8), 0, "reservations are no news");
	must(gpc_publish(c, k, k + 1, b, 2, GPC_OPTIONS(gpc_publish_options, .tag = 9), 0, -1));
	is_int(gpc_event_read(c, &at_change, ch, 8), 2, "two are published");
	ok(ch[0].what == GPC_STORED && ch[0].block == b[0] && ch[0].tag == 9 &&
		   key_is(ch[0].key, k[1]) && key_is(ch[0].parent, k[0]) && ch[0].seq == 1,
	   "the first");
	ok(ch[1].what == GPC_STORED && ch[1].block == b[1] && key_is(ch[1].key, k[2]) &&
		   key_is(ch[1].parent, k[1]) && ch[1].seq == 2,
	   "and its child");
	must(gpc_release(c, b, 2));
	must(gpc_demote(c, 0, 1, NULL, 1, m, 0, 60000));
	is_int(gpc_event_read(c, &at_change, ch, 8), 0, "a move that began is none");
	must(gpc_commit(c, m, 1, NULL, 0, -1));
	is_int(gpc_event_read(c, &at_change, ch, 8), 1, "one that ended is one");
	ok(ch[0].what == GPC_MOVED && ch[0].was == b[1] && ch[0].block == m[0].to &&
		   key_is(ch[0].key, k[2]) && ch[0].tag == 9,
	   "from where to where");
	must(gpc_reserve(c, 0, 4, (gpc_block[4]){ 0 }, NULL, 0, 60000));
	is_int(gpc_event_read(c, &at_change, ch, 8), 2, "a victim, and what hangs below it");
	ok(ch[0].what == GPC_REMOVED && ch[0].block == m[0].to, "that first");
	ok(ch[1].what == GPC_REMOVED && ch[1].block == b[0], "are removed");
	must(gpc_pool_clear(c, 1, 0, 0, 60000));
	is_int(gpc_event_read(c, &at_change, ch, 8), 1, "a pool is cleared");
	ok(ch[0].what == GPC_CLEARED && GPC_POOL(ch[0].block) == 1 && !ch[0].tag, "as one");
	chain_make(c, 1, 20, 1, &x);
	must(gpc_drop(c, &x, 1, NULL, 0, -1));
	is_int(gpc_event_read(c, &at_change, ch, 8), 2, "a drop");
	ok(ch[1].what == GPC_REMOVED && ch[1].block == x, "is a removal");
	cache_end(c);
}

/* Whatever the order of the moves: down goes the leaf first, up the root. */
static void test_order(void)
{
	gpc *c = cache_new(8, 8);
	struct gpc_event ch[8];
	struct gpc_move m[4], x;
	gpc_block b[4];
	gpc_key k[5];
	uint64_t at_change = UINT64_MAX;
	uint32_t i;

	chain_keys(c, 1, 4, k);
	chain_make(c, 0, 1, 4, b);
	must(gpc_event_read(c, &at_change, ch, 8));
	must(gpc_demote(c, 0, 1, NULL, 4, m, 0, 60000));
	x = m[0]; /* leaf first: now not */
	m[0] = m[2];
	m[2] = x;
	must(gpc_commit(c, m, 4, NULL, 0, -1));
	is_int(gpc_event_read(c, &at_change, ch, 8), 4, "four go down");
	for (i = 0; i < 4 && key_is(ch[i].key, k[4 - i]); i++)
		;
	is_int(i, 4, "leaf first");
	must(gpc_acquire(c, 0, k + 1, 4, b, 0));
	must(gpc_promote(c, b, 4, 0, m, 0, 60000));
	x = m[0];
	m[0] = m[3];
	m[3] = x;
	must(gpc_commit(c, m, 4, NULL, 0, -1));
	is_int(gpc_event_read(c, &at_change, ch, 8), 4, "four come up");
	for (i = 0; i < 4 && key_is(ch[i].key, k[1 + i]); i++)
		;
	is_int(i, 4, "root first");
	b[0] = find(c, 1);
	must(gpc_drop(c, b, 1, NULL, 0, -1));
	is_int(gpc_event_read(c, &at_change, ch, 8), 4, "four are dropped");
	for (i = 0; i < 4 && ch[i].what == GPC_REMOVED && key_is(ch[i].key, k[4 - i]); i++)
		;
	is_int(i, 4, "deepest first");
	cache_end(c);
}

static void test_walk(void)
{
	gpc *c = cache_new(64, 0);
	struct gpc_entry e[64];
	uint64_t at_walk = 0, other = 0;
	uint32_t i;
	int n;

	is_int(gpc_walk(c, &at_walk, e, 8), 0, "an empty cache");
	at_walk = 0;
	chain_make(c, 0, 1, 40, NULL);
	touch(c, 1);
	n = gpc_walk(c, &at_walk, e, 30);
	is_int(n, 30, "a walk in two parts");
	is_int(gpc_walk(c, &at_walk, e + 30, 34), 10, "the rest");
	is_int(gpc_walk(c, &at_walk, e, 8), 0, "is all");
	for (i = 0; i < 40 && e[i].depth == i && key_is(e[i].key, key_of(c, i + 1)) &&
		    e[i].block == find(c, i + 1) && !e[i].refs;
	     i++)
		;
	is_int(i, 40, "each with its depth, parents first");
	ok(e[0].stamp > e[1].stamp && e[1].stamp == e[39].stamp, "and its last use");
	refused(gpc_walk(c, &at_walk, e, 8), ESTALE, "a walk that is over");
	at_walk = 0;
	must(gpc_walk(c, &at_walk, e, 8));
	must(gpc_walk(c, &other, e, 8));
	refused(gpc_walk(c, &at_walk, e, 8), ESTALE, "one walk of a handle ends another");
	is_int(gpc_walk(c, &other, e, 64), 32, "which goes on");
	refused(gpc_walk(c, NULL, e, 8), EINVAL, "no cursor");
	refused(gpc_walk(c, &other, NULL, 8), EINVAL, "no room");
	refused(gpc_walk(c, &other, e, 0), EINVAL, "not even for one");
	cache_end(c);
}

static void tests(void)
{
	test_each();
	test_order();
	test_walk();
	test_follow();
	test_late();
}

static int body(void)
{
	cache_both(tests);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
