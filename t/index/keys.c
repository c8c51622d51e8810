/* SPDX-License-Identifier: Apache-2.0 */
/* Keys, as a caller sees them: what makes them differ, and what does not.
 * Tests: lib/index/reader/keys.c lib/index/base/key.c lib/index/base/many.c */
#include "t/lib/cache.h"

static gpc_key root_of(gpc *c, const struct gpc_field *f, uint32_t n)
{
	gpc_key k;

	is_int(gpc_key_root(c, f, n, &k), 0, "a root of %u fields", n);
	return k;
}

static struct gpc_field field(uint16_t tag, const char *text)
{
	return (struct gpc_field){ .tag = tag, .len = (uint32_t)strlen(text), .data = text };
}

/* No two alike. */
static void all_differ(const gpc_key *k, uint32_t n, const char *what)
{
	uint32_t i, j, same = 0;

	for (i = 0; i < n; i++)
		for (j = 0; j < i; j++)
			same += key_is(k[i], k[j]);
	is_int(same, 0, "%s: all differ", what);
}

static void test_roots(gpc *c, gpc *d)
{
	struct gpc_field ab[2] = { field(1, "a"), field(2, "b") };
	struct gpc_field ba[2] = { field(2, "b"), field(1, "a") };
	struct gpc_field moved[2] = { field(1, "ab"), field(2, "") };
	struct gpc_field other[2] = { field(1, "a"), field(3, "b") };
	struct gpc_field one[1] = { field(1, "a") };
	gpc_key k[7];

	k[0] = root_of(c, ab, 2);
	k[1] = root_of(c, ba, 2);
	k[2] = root_of(c, moved, 2);
	k[3] = root_of(c, other, 2);
	k[4] = root_of(c, one, 1);
	k[5] = root_of(c, NULL, 0);
	k[6] = (gpc_key){ { 0, 0 } };
	all_differ(k, 7, "fields, their order, where one ends and the next begins");
	ok(key_is(root_of(d, ab, 2), k[0]), "another peer has the same");
}

static void test_hashes(gpc *c)
{
	struct gpc_extra at3 = { 3, 2, "xy" }, at4 = { 4, 2, "xy" }, z = { 3, 2, "xz" };
	struct gpc_extra both[2] = { { 3, 1, "x" }, { 3, 1, "y" } }, late = { 20, 2, "xy" };
	gpc_key root, zero = { { 0, 0 } }, k[9], a[3], b[3];
	uint32_t tok[48], i;

	for (i = 0; i < 48; i++)
		tok[i] = i;
	root = root_of(c, NULL, 0);
	must(hash_keys(c, NULL, tok, 16, NULL, 0, 0, &k[0]));
	must(hash_keys(c, &zero, tok, 16, NULL, 0, 0, &a[0]));
	ok(key_is(k[0], a[0]), "no parent, or the zero key");
	must(hash_keys(c, &root, tok, 16, NULL, 0, 0, &k[1]));
	must(hash_keys(c, &k[0], tok, 16, NULL, 0, 0, &k[2]));
	must(hash_keys(c, NULL, tok, 16, &at3, 1, 0, &k[3]));
	must(hash_keys(c, NULL, tok, 16, &at4, 1, 0, &k[4]));
	must(hash_keys(c, NULL, tok, 16, &z, 1, 0, &k[5]));
	must(hash_keys(c, NULL, tok, 16, both, 2, 0, &k[6]));
	must(hash_keys(c, NULL, tok, 15, NULL, 0, GPC_TAIL, &k[7]));
	k[8] = root;
	all_differ(k, 9, "parents, extras, their place and number, a tail, a root");

	is_int(hash_keys(c, NULL, tok, 48, &late, 1, 0, a), 3, "an extra in the second block");
	must(hash_keys(c, NULL, tok, 48, NULL, 0, 0, b));
	ok(key_is(a[0], b[0]) && !key_is(a[1], b[1]) && !key_is(a[2], b[2]),
	   "leaves the first alone, and counts for all behind");
	late.token = 4;
	is_int(hash_keys(c, &a[0], tok + 16, 32, &late, 1, 0, b), 2, "continued there");
	ok(key_is(a[1], b[0]) && key_is(a[2], b[1]), "tokens count from the call's first");
	is_int(hash_keys(c, NULL, tok, 16, NULL, 0, GPC_TAIL, a), 1, "a full block has no tail");
	ok(key_is(a[0], k[0]), "and the same key");
}

/* Keys of groups: in domains of their own, however the blocks are cut. */
static void test_groups(gpc *c, gpc *d)
{
	struct gpc_extra at3 = { 3, 2, "xy" };
	gpc_key root = root_of(c, NULL, 0), k[12], whole[6], again[6];
	uint32_t tok[48], i;

	for (i = 0; i < 48; i++)
		tok[i] = i;
	k[0] = root;
	must(hash_keys(c, &root, tok, 16, NULL, 0, 0, &k[1]));
	must(gpc_key_import(c, &k[1], 16, 16, 1, 0, &k[2]));
	is_int(hash_group(c, 0, 0, &root, tok, 16, NULL, 0, 0, &k[3]), 1, "of the cache's size");
	must(hash_group(c, 1, 0, &root, tok, 16, NULL, 0, 0, &k[4]));
	is_int(hash_group(c, 1, 8, &root, tok, 15, NULL, 0, 0, &k[5]), 1,
	       "of 8 tokens, one is full");
	must(hash_group(c, 1, 16, &root, tok, 8, NULL, 0, GPC_TAIL, &k[6]));
	must(hash_keys(c, &root, tok, 8, NULL, 0, GPC_TAIL, &k[7]));
	must(hash_group(c, 8, 1, &root, tok, 1, NULL, 0, 0, &k[8]));
	must(hash_group(c, 1, 8, &root, tok, 8, &at3, 1, 0, &k[9]));
	must(hash_group(c, 1, 8, NULL, tok, 8, NULL, 0, 0, &k[10]));
	must(hash_group(c, 2, 8, &root, tok, 8, NULL, 0, 0, &k[11]));
	all_differ(k, 12, "groups, sizes, tails, extras, no group");
	must(hash_group(c, 1, 16, &root, tok, 16, NULL, 0, 0, again));
	ok(key_is(again[0], k[4]), "0 is the cache's size");
	is_int(hash_group(c, 3, 8, &root, tok, 47, NULL, 0, GPC_TAIL, whole), 6,
	       "a chain with a tail");
	must(hash_group(d, 3, 8, &root, tok, 24, NULL, 0, 0, again));
	must(hash_group(d, 3, 8, &again[2], tok + 24, 23, NULL, 0, GPC_TAIL, again + 3));
	ok(!memcmp(whole, again, sizeof(whole)), "in two steps, by another peer");
	all_differ(whole, 6, "a chain");
	refused(hash_group(c, 1, 65537, &root, tok, 16, NULL, 0, 0, k), EINVAL, "blocks too large");
	refused(hash_group(c, 1, 8, &root, tok, 16, NULL, 0, GPC_REF, k), EINVAL, "a flag");
	refused(hash_group(c, 1, 8, &root, NULL, 16, NULL, 0, 0, k), EINVAL, "no tokens");
	is_int(hash_group(c, 1, 65536, &root, tok, 48, NULL, 0, 0, k), 0, "no full block");
}

/* Prompts together have the keys that each has alone; t/index/many-keys.c has each way of hashing
 * them. */
static void test_many(gpc *c, gpc *d)
{
	enum { MANY = 20, ROOM = 12 };
	struct gpc_extra at20 = { 20, 2, "xy" };
	gpc_key root = root_of(c, NULL, 0), keys[MANY][ROOM], want[ROOM], none[MANY][ROOM];
	struct gpc_prompt p[MANY] = { 0 };
	uint32_t tok[200], i, all = 0, bad = 0;

	memset(keys, 7, sizeof(keys));
	memcpy(none, keys, sizeof(none));
	for (i = 0; i < 200; i++)
		tok[i] = i * i;
	for (i = 0; i < MANY; i++) {
		p[i] = (struct gpc_prompt){ .parent = i & 1 ? &root : NULL,
					    .tokens = tok + i,
					    .n = 9 * i,
					    .ret_keys = keys[i] };
		all += (9 * i + 15) / 16;
	}
	p[7].x = &at20;
	p[7].nx = 1;
	p[MANY - 1].reserved = 1;
	refused(gpc_key_hash(c, p, MANY, GPC_TAIL), EINVAL, "one of them is refused");
	ok(!memcmp(keys, none, sizeof(keys)), "none is hashed");
	p[MANY - 1].reserved = 0;
	is_int(gpc_key_hash(d, p, MANY, GPC_TAIL), all, "so many keys in all");
	for (i = 0; i < MANY; i++) {
		memset(want, 7, sizeof(want));
		must(hash_keys(c, p[i].parent, p[i].tokens, p[i].n, p[i].x, p[i].nx, GPC_TAIL,
			       want));
		bad += !!memcmp(want, keys[i], sizeof(want));
	}
	is_int(bad, 0, "of each prompt those that it has alone, and no more");
	is_int(gpc_key_hash(c, NULL, 0, 0), 0, "no prompt");
}

static void test_imports(gpc *c, gpc *d)
{
	struct {
		uint8_t digest[32], rest[8];
	} item[4];
	gpc_key k[9], again[4];
	uint32_t i;

	memset(item, 0, sizeof(item));
	for (i = 0; i < 4; i++) {
		item[i].digest[31] = (uint8_t)i;
		item[i].rest[0] = (uint8_t)chance(256);
	}
	is_int(gpc_key_import(c, item, 32, sizeof(item[0]), 4, 0, k), 0, "digests with a stride");
	is_int(gpc_key_import(c, item, 32, sizeof(item[0]), 4, 1, k + 4), 0, "of another group");
	is_int(gpc_key_import(c, item, 31, 31, 1, 0, k + 8), 0, "a shorter one");
	all_differ(k, 9, "digests, groups, lengths");
	for (i = 0; i < 4; i++)
		item[i].rest[0] ^= 0xff;
	is_int(gpc_key_import(d, item, 32, sizeof(item[0]), 4, 0, again), 0, "by another peer");
	ok(!memcmp(k, again, sizeof(again)), "the same, whatever stands between them");
	is_int(gpc_key_import(c, item[2].digest, 32, 32, 1, 0, again), 0, "one of them alone");
	ok(key_is(k[2], again[0]), "the same");
	is_int(gpc_key_import(c, NULL, 32, 32, 0, 0, NULL), 0, "none");
}

/* Imported keys and hashed ones, roots as parents: all can be published and found. */
static void test_use(gpc *c)
{
	gpc_key root, p[3], k[3];
	gpc_block b[3], got[3];
	uint32_t tok[16] = { 1, 2, 3 };

	root = root_of(c, NULL, 0);
	p[0] = root;
	must(hash_keys(c, &root, tok, 16, NULL, 0, 0, &k[0]));
	p[1] = k[0];
	k[1] = key_of(c, 5);
	p[2] = k[1];
	must(hash_keys(c, &k[1], tok, 16, NULL, 0, 0, &k[2]));
	must(gpc_reserve(c, 0, 3, b, NULL, 0, 60000));
	is_int(gpc_publish(c, p, k, b, 3, NULL, 0, -1), 3, "of all kinds");
	is_int(gpc_acquire(c, 0, k, 3, got, 0), 3, "in one chain");
	is_int(gpc_lookup(c, 0, &root, 1, got, 0), 0, "a root is never live");
	is_int(gpc_lookup(c, 0, (gpc_key[1]){ { { 0, 0 } } }, 1, got, 0), 0, "nor is no key");
	must(gpc_release(c, b, 3));
	must(gpc_release(c, b, 3));
	clean(c, "keys of all kinds");
}

static int body(void)
{
	gpc *c = cache_new(8, 0), *d = cache_attach(0, 0);

	test_roots(c, d);
	test_hashes(c);
	test_groups(c, d);
	test_many(c, d);
	test_imports(c, d);
	test_use(c);
	must(gpc_close(d));
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
