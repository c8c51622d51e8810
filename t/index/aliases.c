/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_alias and gpc_alias_resolve: pairs of keys, whatever becomes of the blocks.
 * Tests: lib/index/reader/alias.c lib/index/request/alias.c lib/index/table/memo.c lib/index/segment/memo.h
 *   lib/look/check_memo.c lib/index/segment/shm_memo.h */
#include "t/lib/cache.h"

#include "index/peer/handle.h"
#include "index/segment/memo.h"

enum { BLOCKS = 16, MANY = 300 };

static gpc_key number(uint64_t n)
{
	return (gpc_key){ { n, n << 8 | 1 } };
}

static gpc_key stands_for(gpc *c, gpc_key alias)
{
	must(gpc_alias_resolve(c, &alias, 1));
	return alias;
}

static bool is_pair(gpc *c, uint64_t alias, uint64_t to)
{
	return key_is(stands_for(c, number(alias)), number(to));
}

static bool is_no_alias(gpc *c, uint64_t n)
{
	return is_pair(c, n, n);
}

static void store(gpc *c, uint64_t alias, uint64_t to)
{
	gpc_key a = number(alias), b = number(to);

	must(gpc_alias(c, &a, &b, 1, 0, -1));
}

static gpc *cache_of(int32_t aliases)
{
	struct gpc_config cfg = cache_config(BLOCKS, 0);

	cfg.max_aliases = aliases;
	return cache_make(&cfg, NULL);
}

/* ---- what they say ---- */

static void test_pairs(void)
{
	gpc *c = cache_of(0), *r;
	gpc_key keys[5] = { number(1), { { 0, 0 } }, number(2), number(3), { { 0 } } }, was[5];
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };

	must(gpc_key_root(c, NULL, 0, &keys[4]));
	memcpy(was, keys, sizeof(keys));
	is_int(gpc_alias_resolve(c, keys, 5), 0, "a new cache has none");
	ok(!memcmp(keys, was, sizeof(keys)), "and the keys stay");
	is_int((long)info_of(c).max_aliases, 3, "there is room for some");
	is_int(gpc_alias(c, (gpc_key[]){ number(1), number(3) },
			 (gpc_key[]){ number(101), number(103) }, 2, 0, -1),
	       0, "two pairs");
	is_int(gpc_alias_resolve(c, keys, 5), 2, "two of five");
	ok(key_is(keys[0], number(101)) && key_is(keys[3], number(103)), "are replaced");
	ok(!memcmp(&keys[1], &was[1], 2 * sizeof(*keys)) && key_is(keys[4], was[4]),
	   "a zero key, a root and one that is no alias are not");
	is_int((long)stats_of(c, -1).aliases, 2, "they are counted");
	store(c, 1, 101);
	is_int((long)stats_of(c, -1).aliases, 2, "once");
	store(c, 1, 105);
	ok(is_pair(c, 1, 105), "the last pair of an alias counts");
	is_int((long)stats_of(c, -1).aliases, 2, "and is no other one");
	is_int(gpc_alias(c, NULL, NULL, 0, 0, 0), 0, "no pairs");
	is_int(gpc_alias_resolve(c, NULL, 0), 0, "no keys");
	must(gpc_attach(cache_name, &opt, GPC_READONLY, &r));
	ok(is_pair(r, 3, 103), "a handle without a seat reads them");
	must(gpc_close(r));
	clean(c, "pairs");
	cache_end(c);
}

/* The key that it stands for at last, in one step. */
static void test_chains(void)
{
	gpc *c = cache_of(3000);

	store(c, 1, 2);
	store(c, 3, 1);
	ok(is_pair(c, 3, 2), "an alias of an alias is stored as the last key");
	store(c, 2, 9);
	ok(is_pair(c, 3, 2), "as it was at that moment");
	store(c, 9, 2);
	ok(is_pair(c, 2, 9) && is_no_alias(c, 9),
	   "a pair that is there the other way round adds nothing");
	is_int((long)stats_of(c, -1).aliases, 3, "three pairs");
	clean(c, "aliases of aliases");
	cache_end(c);
}

/* Evicted, dropped, cleared and published anew: a pair knows of none of it. */
static void test_blocks(void)
{
	gpc *c = cache_of(0);
	gpc_key key = key_of(c, 1), other = number(7), alias = number(8), none = { { 0, 0 } };
	gpc_block b, at;

	must(gpc_alias(c, &alias, &key, 1, 0, -1));
	ok(key_is(stands_for(c, alias), key), "before there is a block");
	chain_make(c, 0, 1, 1, &b);
	key = stands_for(c, alias);
	is_int(gpc_lookup(c, 0, &key, 1, &at, 0), 1, "the key is found by it");
	is_int(at, b, "in its block");
	is_int(gpc_lookup(c, 0, &alias, 1, &at, 0), 0, "a lookup itself knows no alias");
	must(gpc_drop(c, &b, 1, NULL, 0, -1));
	must(gpc_pool_clear(c, 0, 0, GPC_REMOVE, 2000));
	ok(key_is(stands_for(c, alias), key), "when the block and its pool are gone");
	must(gpc_writer_drop(c));
	ok(key_is(stands_for(c, alias), key), "without a writer");
	must(gpc_writer_take(c, 0, 0));
	ok(key_is(stands_for(c, alias), key), "and with another one");
	clean(c, "a pair without a block");
	cache_end(c);

	c = cache_of(0);
	must(gpc_reserve(c, 0, 1, &b, NULL, 0, -1));
	must(gpc_alias(c, &other, &key, 1, 0, -1));
	must(gpc_publish(c, &none, &other, &b, 1, NULL, GPC_NO_REF, -1));
	is_int(gpc_lookup(c, 0, &other, 1, &at, 0), 1, "an alias may be live itself");
	ok(key_is(stands_for(c, other), key), "and is replaced all the same");
	clean(c, "an alias with a block");
	cache_end(c);
}

/* ---- a full bucket ---- */

static void test_forgets(void)
{
	gpc *c = cache_of(3);
	uint64_t n;

	for (n = 1; n <= 3; n++)
		store(c, n, 100 + n);
	ok(is_pair(c, 1, 101) && is_pair(c, 2, 102) && is_pair(c, 3, 103), "three in one bucket");
	store(c, 1, 111);
	store(c, 4, 104);
	ok(is_no_alias(c, 1), "the fourth one makes it forget the oldest");
	ok(is_pair(c, 2, 102) && is_pair(c, 3, 103) && is_pair(c, 4, 104), "and no other");
	store(c, 5, 105);
	ok(is_no_alias(c, 2) && is_pair(c, 3, 103) && is_pair(c, 4, 104) && is_pair(c, 5, 105),
	   "then the next oldest");
	is_int((long)stats_of(c, -1).aliases, 3, "three are kept");
	clean(c, "a full bucket");
	cache_end(c);
}

/* Many in one call, at the load that the page speaks of. */
static void test_many(int32_t room, int least)
{
	gpc *c = cache_of(room);
	static gpc_key alias[3000], to[3000];
	int i, n = 0, wrong = 0;

	for (i = 0; i < 3000; i++) {
		alias[i] = number(1000 + (uint64_t)i);
		to[i] = number(9000 + (uint64_t)i);
	}
	is_int(gpc_alias(c, alias, to, 3000, 0, -1), 0, "3000 pairs in one call");
	n = must(gpc_alias_resolve(c, alias, 3000));
	for (i = 0; i < 3000; i++)
		wrong += !key_is(alias[i], to[i]) && !key_is(alias[i], number(1000 + (uint64_t)i));
	is_int(wrong, 0, "each is as it was, or its own");
	ok(n >= least && n <= 3000, "room for %d: %d are kept", (int)room, n);
	is_int((long)stats_of(c, -1).aliases, n, "as many are counted");
	clean(c, "many");
	cache_end(c);
}

/* ---- refusals ---- */

static void test_refused(void)
{
	gpc *c = cache_of(0), *r;
	gpc_key zero = { { 0, 0 } }, a[2] = { number(1), number(2) },
		b[2] = { number(3), number(4) };
	gpc_key root;
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	int s;

	must(gpc_key_root(c, NULL, 0, &root));
	a[1] = zero;
	refused(gpc_alias(c, a, b, 2, 0, -1), EINVAL, "a zero alias");
	ok(strstr(gpc_last_error(), "alias[1] is zero") != NULL, "%s", gpc_last_error());
	a[1] = root;
	refused(gpc_alias(c, a, b, 2, 0, -1), EINVAL, "a root as an alias");
	a[1] = number(2);
	b[1] = zero;
	refused(gpc_alias(c, a, b, 2, 0, -1), EINVAL, "an alias of zero");
	b[1] = root;
	refused(gpc_alias(c, a, b, 2, 0, -1), EINVAL, "an alias of a root");
	ok(strstr(gpc_last_error(), "to[1] is a root") != NULL, "%s", gpc_last_error());
	b[1] = a[1];
	refused(gpc_alias(c, a, b, 2, 0, -1), EINVAL, "an alias of itself");
	ok(strstr(gpc_last_error(), "alias[1] and to[1]") != NULL, "%s", gpc_last_error());
	ok(is_no_alias(c, 1), "nothing was stored");
	b[1] = number(4);
	refused(gpc_alias(c, a, b, 2, GPC_COPY, -1), EINVAL, "a flag");
	refused(gpc_alias(c, a, NULL, 2, 0, -1), EINVAL, "no array");
	refused(gpc_alias(c, a, b, 2, 0, -2), EINVAL, "a time below -1");
	refused(gpc_alias_resolve(c, NULL, 2), EINVAL, "no keys");
	s = must(gpc_section_enter(c));
	refused(gpc_alias(c, a, b, 2, 0, -1), EDEADLK, "in a section");
	is_int(gpc_alias_resolve(c, a, 2), 0, "where one may look");
	must(gpc_section_leave(c, s));
	must(gpc_attach(cache_name, &opt, GPC_READONLY, &r));
	refused(gpc_alias(r, a, b, 2, 0, -1), EROFS, "a handle without a seat");
	must(gpc_close(r));
	if (!cache_thread) {
		must(gpc_writer_drop(c));
		refused(gpc_alias(c, a, b, 2, 0, 100), ENOTCONN, "no writer");
		must(gpc_writer_take(c, 0, 0));
		must(gpc_ticket_wait(c, GPC_TICKET_ALL, 60000));
		is_int(gpc_alias(c, a, b, 2, 0, -1), 0, "again");
	}
	clean(c, "refusals");
	cache_end(c);
}

static void test_none(void)
{
	struct gpc_config cfg = cache_config(BLOCKS, 0);
	gpc *c = cache_of(-1), *d = NULL;
	gpc_key a = number(1), b = number(2);

	is_int((long)info_of(c).max_aliases, 0, "a cache without room for any");
	refused(gpc_alias(c, &a, &b, 1, 0, -1), ENOENT, "keeps none");
	ok(strstr(gpc_last_error(), "max_aliases") != NULL, "%s", gpc_last_error());
	is_int(gpc_alias_resolve(c, &a, 1), 0, "and finds none");
	cfg.max_aliases = 5;
	refused(gpc_create(cache_name, &cfg, NULL, GPC_IF_ABSENT, &d), EPROTO,
		"who wants some is refused");
	ok(strstr(gpc_last_error(), "max_aliases -1 instead of 5") != NULL, "%s", gpc_last_error());
	cfg.max_aliases = -1;
	is_int(gpc_create(cache_name, &cfg, NULL, GPC_IF_ABSENT, &d), 0, "who wants none is not");
	must(gpc_close(d));
	cfg.max_aliases = 0;
	is_int(gpc_create(cache_name, &cfg, NULL, GPC_IF_ABSENT, &d), 0, "nor who does not care");
	must(gpc_close(d));
	clean(c, "no aliases");
	cache_end(c);
}

/* ---- a place without a right check word ---- */

static struct shm_aliases *bucket_of(gpc *c, uint8_t **index, const gpc_key *alias)
{
	const struct memo m = memo_aliases(&c->seg);

	must(segment_map_writer(&c->seg, index));
	return SEG_AT(*index, memo_at(&m, memo_bucket(&m, alias)), struct shm_aliases, 0);
}

/* Each word wrong in turn: no pair, no violation; and a pair where nobody looks is one. */
static void test_check(void)
{
	gpc *c = cache_of(3000);
	gpc_key alias = number(1);
	struct shm_aliases *bucket, *next;
	uint8_t *index;
	uint32_t i;

	store(c, 1, 101);
	bucket = bucket_of(c, &index, &alias);
	for (i = 0; i < 5; i++) {
		((uint64_t *)&bucket->place[0])[i] ^= 1ull << 40;
		if (!is_no_alias(c, 1))
			break;
		clean(c, "a word that is wrong");
		((uint64_t *)&bucket->place[0])[i] ^= 1ull << 40;
	}
	is_int(i, 5, "with any wrong word it is no pair");
	ok(is_pair(c, 1, 101), "with all right it is");
	SEG_AT(index, c->seg.at.state, struct shm_state, 0)->aliases = 2;
	next = bucket == (struct shm_aliases *)(index + c->seg.at.alias) ? bucket + 1 : bucket - 1;
	next->place[2] = bucket->place[0];
	is_int(gpc_check(c, NULL, NULL), 1, "a pair in another bucket is a violation");
	memset(&next->place[2], 0, sizeof(next->place[2]));
	bucket->place[2] = bucket->place[0];
	is_int(gpc_check(c, NULL, NULL), 1, "as is one that stands there twice");
	memset(&bucket->place[2], 0, sizeof(bucket->place[2]));
	SEG_AT(index, c->seg.at.state, struct shm_state, 0)->aliases = 0;
	is_int(gpc_check(c, NULL, NULL), 1, "and a count that is too low");
	SEG_AT(index, c->seg.at.state, struct shm_state, 0)->aliases = 1;
	bucket->turn = UINT64_MAX;
	for (i = 2; i < 2 + MANY; i++)
		store(c, i, 1000 + i);
	clean(c, "a turn that is none");
	segment_unmap_writer(&c->seg, index);
	cache_end(c);
}

/* As a writer leaves it that dies while it stores a pair. */
static void test_torn(void)
{
	gpc *c = cache_of(3);
	struct shm_aliases *bucket;
	uint8_t *index;
	uint64_t n;

	for (n = 1; n <= 3; n++)
		store(c, n, 100 + n);
	bucket = bucket_of(c, &index, &(gpc_key){ { 0, 0 } });
	bucket->place[1].to[0]++;
	ok(is_no_alias(c, 2), "a torn pair is a miss");
	store(c, 4, 104);
	ok(is_pair(c, 1, 101) && is_pair(c, 3, 103) && is_pair(c, 4, 104),
	   "its place is filled before any pair is forgotten");
	store(c, 5, 105);
	ok(is_pair(c, 1, 101) && is_no_alias(c, 3) && is_pair(c, 4, 104) && is_pair(c, 5, 105),
	   "and the turn goes on from there");
	clean(c, "a torn pair");
	segment_unmap_writer(&c->seg, index);
	cache_end(c);
}

static void test_rooms(void)
{
	test_many(3000, 2100);
	test_many(6000, 2700);
	test_many(12000, 2920);
}

static int body(void)
{
	cache_both(test_pairs);
	test_chains();
	cache_thread = false;
	test_blocks();
	cache_both(test_forgets);
	test_rooms();
	cache_both(test_refused);
	cache_thread = false;
	test_none();
	test_torn();
	test_check();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
