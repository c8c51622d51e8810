/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_root_keep and gpc_root_get: the fields of a root key, for those who know the root alone.
 * Tests: lib/index/request/root.c lib/index/table/memo.c lib/index/segment/root.c lib/look/root.c
 *   lib/look/check_memo.c lib/index/segment/shm_memo.h */
#include "t/lib/cache.h"

#include "index/peer/handle.h"
#include "index/segment/root.h"

enum { BLOCKS = 16, MANY = 400 };

static gpc *cache_of(bool tokens, bool digests)
{
	struct gpc_config cfg = cache_config(BLOCKS, 0);

	cfg.keep_tokens = tokens;
	cfg.keep_digests = digests;
	return cache_make(&cfg, NULL);
}

static struct gpc_field field(uint16_t tag, const char *text)
{
	return (struct gpc_field){ .tag = tag, .len = (uint32_t)strlen(text), .data = text };
}

/* Is that what is kept of the root? */
static bool has(gpc *c, const gpc_key *root, const struct gpc_field *f, int n)
{
	struct gpc_field got[64];
	uint8_t data[GPC_ROOT_BYTES];
	bool same = gpc_root_get(c, root, got, 64, data, sizeof(data)) == n;

	for (int i = 0; same && i < n; i++)
		same = got[i].tag == f[i].tag && got[i].len == f[i].len &&
		       !memcmp(got[i].data, f[i].data, f[i].len);
	return same;
}

static gpc *reader(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	gpc *r;

	must(gpc_attach(cache_name, &opt, GPC_READONLY, &r));
	return r;
}

static void test_fields(void)
{
	struct gpc_field f[4] = { field(1, "llama"), field(2, "german"), field(3, ""),
				  field(777, "12345678") };
	gpc *c = cache_of(true, true), *r = reader();
	struct gpc_field got[4] = { { 0 } };
	gpc_key root, same, bare;
	uint8_t data[16];

	must(gpc_key_root(c, f, 4, &same));
	is_int(gpc_root_get(c, &same, NULL, 0, NULL, 0), -ENOENT,
	       "of a root that was only computed nothing is kept");
	is_int(gpc_root_keep(c, f, 4, &root, 0, -1), 0, "four fields are kept");
	ok(key_is(root, same), "of the root that gpc_key_root makes of them");
	ok(has(c, &root, f, 4), "they are what was given");
	ok(has(r, &root, f, 4), "to a handle without a seat, too");
	is_int(gpc_root_get(c, &root, NULL, 0, NULL, 0), 4, "only how many");
	is_int(gpc_root_get(c, &root, got, 2, data, sizeof(data)), 4, "two of them");
	ok(got[0].len == 5 && !memcmp(got[1].data, "german", 6) && !got[2].data, "are two");
	is_int(gpc_root_get(c, &root, got, 4, data, sizeof(data)), -ENOSPC,
	       "room for 16 bytes of 19");
	is_int(gpc_root_keep(c, f, 3, NULL, 0, -1), 0, "nobody wants the root");
	must(gpc_key_root(c, f, 3, &bare));
	ok(has(c, &bare, f, 3), "it is kept");
	is_int(gpc_root_keep(c, NULL, 0, &bare, 0, -1), 0, "a root of nothing");
	ok(has(c, &bare, f, 0), "has no fields");
	is_int(gpc_root_get(c, &(gpc_key){ { 1, 2 } }, NULL, 0, NULL, 0), -ENOENT,
	       "a block's key has none");
	must(gpc_close(r));
	clean(c, "fields");
	cache_end(c);
}

static void test_limits(void)
{
	static char text[GPC_ROOT_BYTES];
	struct gpc_field f[62] = { { .tag = 3, .len = GPC_ROOT_BYTES - 8, .data = text } };
	gpc *c = cache_of(false, true);
	gpc_key root = { { 0, 0 } }, want;

	is_int(gpc_root_keep(c, f, 1, &root, 0, -1), 0, "as many bytes as there is room for");
	ok(has(c, &root, f, 1), "are kept");
	f[0].len++;
	must(gpc_key_root(c, f, 1, &want));
	is_int(gpc_root_keep(c, f, 1, &root, 0, -1), -EINVAL, "one more is not");
	ok(key_is(root, want), "and the root is there all the same");
	memset(f, 0, sizeof(f));
	is_int(gpc_root_keep(c, f, 61, &root, 0, -1), 0, "61 fields without data");
	ok(has(c, &root, f, 61), "are kept");
	is_int(gpc_root_keep(c, f, 62, NULL, 0, -1), -EINVAL, "62 are not");
	clean(c, "limits");
	cache_end(c);
	c = cache_of(false, false);
	is_int(gpc_root_keep(c, f, 1, NULL, 0, -1), -ENOENT, "a cache without notes keeps none");
	is_int(gpc_root_get(c, &root, NULL, 0, NULL, 0), -ENOENT, "and has none");
	clean(c, "none");
	cache_end(c);
}

/* More than there is room for: the latest is there, and so are many others; each is what it was. */
static void test_many(void)
{
	gpc *c = cache_of(true, false);
	char text[MANY][16];
	gpc_key root[MANY];
	int i, there = 0, right = 0, last = 0;

	for (i = 0; i < MANY; i++) {
		struct gpc_field f;

		snprintf(text[i], sizeof(text[i]), "tenant-%d", i);
		f = field(3, text[i]);
		must(gpc_root_keep(c, &f, 1, &root[i], 0, -1));
		last += has(c, &root[i], &f, 1);
	}
	for (i = 0; i < MANY; i++) {
		struct gpc_field f = field(3, text[i]);

		there += gpc_root_get(c, &root[i], NULL, 0, NULL, 0) >= 0;
		right += has(c, &root[i], &f, 1);
	}
	is_int(last, MANY, "each is there when its call returns");
	is_int(right, there, "what is there is right");
	ok(there > 40 && there <= 64, "%d of %d are there, the others forgotten", there, MANY);
	clean(c, "many");
	cache_end(c);
}

/* The publisher goes, the writer goes, another one comes. */
static void test_lives(void)
{
	struct gpc_field f = field(2, "german");
	gpc *c = cache_of(true, true), *p = cache_attach(0, 0), *r;
	gpc_key root;

	must(gpc_writer_drop(c));
	is_int(gpc_root_keep(p, &f, 1, &root, 0, 0), -ENOTCONN, "without a writer");
	must(gpc_writer_take(c, 0, 60000));
	for (int i = 0; i < 1000 && !has(c, &root, &f, 1); i++)
		must(gpc_writer_serve(c, 1));
	ok(has(c, &root, &f, 1), "the next one keeps it");
	must(gpc_close(p));
	must(gpc_writer_drop(c));
	r = cache_attach(0, 0);
	must(gpc_writer_take(r, 0, 60000));
	must(gpc_pool_clear(r, -1, 0, 0, 0));
	ok(has(r, &root, &f, 1), "it outlives publisher, writer and a clear");
	is_int(gpc_root_keep(c, &f, 1, &root, 0, 0), 0, "what is kept needs no writer");
	must(gpc_close(r));
	clean(c, "lives");
	cache_end(c);
}

/* Each word of a place wrong in turn; then a true check of words that are not the root's. */
static void test_check(void)
{
	struct gpc_field f = field(2, "german");
	gpc *c = cache_of(true, true);
	const struct memo m = memo_roots(&c->seg);
	struct shm_roots *bucket;
	uint64_t *place, was, h;
	uint8_t *index;
	gpc_key root;
	uint32_t i;

	must(gpc_root_keep(c, &f, 1, &root, 0, -1));
	must(segment_map_writer(&c->seg, &index));
	bucket = SEG_AT(index, memo_at(&m, memo_bucket(&m, &root)), struct shm_roots, 0);
	place = (uint64_t *)&bucket->place[0];
	for (i = 0; i < sizeof(bucket->place[0]) / 8; i++) {
		place[i] ^= 1ull << 40;
		if (has(c, &root, &f, 1) || gpc_check(c, NULL, NULL))
			break;
		place[i] ^= 1ull << 40;
	}
	is_int(i, 65, "with any wrong word it holds nothing");
	ok(has(c, &root, &f, 1), "with all right it does");
	was = bucket->place[0].check;
	bucket->place[0].value.field[1] ^= 1;
	for (i = 0, h = memo_hash(&m, &root); i < m.words; i++)
		h = memo_mix(h, place[2 + i]);
	bucket->place[0].check = h;
	is_int(gpc_check(c, NULL, NULL), 1, "words of another root are a violation");
	bucket->place[0].value.field[1] ^= 1;
	bucket->place[0].check = was;
	bucket->place[1] = bucket->place[0];
	is_int(gpc_check(c, NULL, NULL), 1, "a root that stands there twice is one, too");
	memset(&bucket->place[1], 0, sizeof(bucket->place[1]));
	bucket->turn = UINT64_MAX;
	must(gpc_root_keep(c, &f, 0, &root, 0, -1));
	ok(has(c, &root, &f, 0), "a turn that is none");
	segment_unmap_writer(&c->seg, index);
	clean(c, "check");
	cache_end(c);
}

static int body(void)
{
	test_fields();
	test_limits();
	test_many();
	test_lives();
	test_check();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
