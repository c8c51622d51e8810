/* SPDX-License-Identifier: Apache-2.0 */
/* Notes: group, digest and tokens of a block are given at publish, and given back by walks, events
 * and gpc_tokens_get for as long as the key stays, whatever block it is in.
 * Tests: lib/index/segment/note.c lib/index/request/note.c lib/look/note.c */
#include "t/lib/notes.h"

#include "index/peer/handle.h"
#include "index/segment/note.h"

enum { VRAM = 0, RAM = 1 };
static gpc *look(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	gpc *r = NULL;

	must(gpc_attach(cache_name, &opt, GPC_READONLY, &r));
	return r;
}
/* ---- given, and given back ---- */

static void test_given(void)
{
	static const uint32_t sizes[] = { 1, 16, 17, 256 };
	gpc *c, *r;
	gpc_block b;
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		notes_block_tokens = sizes[i];
		c = notes_cache(cache_config(8, 0), true, true);
		notes_cursor = UINT64_MAX;
		must(gpc_event_read(c, &notes_cursor, NULL, 0));
		b = say_new(c, VRAM, 1);
		must(gpc_release(c, (gpc_block[1]){ say_new(c, VRAM, 32) }, 1));
		says_all(c, 1, b, "published");
		ok(walk_says(c, 32), "a digest of one byte");
		ok(event_says(c, GPC_STORED, 1), "GPC_STORED has them");
		r = look();
		says_all(r, 1, b, "a read-only handle");
		must(gpc_release(c, &b, 1));
		must(gpc_drop(c, &b, 1, NULL, 0, -1));
		ok(event_says(c, GPC_REMOVED, 1), "GPC_REMOVED has them, when the block is gone");
		notes_cursor = 0;
		ok(event_says(r, GPC_STORED, 1) && event_says(r, GPC_REMOVED, 1),
		   "the feed of a read-only handle");
		must(gpc_close(r));
		clean(c, "notes");
		cache_end(c);
	}
	notes_block_tokens = 16;
}

/* Many of one call, each with its own; of several parts of the ring. */
static void test_many(void)
{
	enum { N = 3000, BYTES = 9 };
	gpc *c = notes_cache(cache_config(N, 0), true, true);
	uint32_t *tokens = malloc(N * 16 * sizeof(*tokens)), got[16], i, good = 0;
	uint8_t *digests = calloc(N, 2 * BYTES);
	gpc_block *b = malloc(N * sizeof(*b));
	gpc_key *k = malloc(N * sizeof(*k));
	struct gpc_entry e;
	uint64_t at = 0;

	for (i = 0; i < N; i++) {
		k[i] = key_of(c, i + 1);
		memcpy(digests + (size_t)i * 2 * BYTES, &i, sizeof(i));
		digests[(size_t)i * 2 * BYTES + BYTES] = 0xee; /* between two */
	}
	for (i = 0; i < N * 16; i++)
		tokens[i] = i;
	must(gpc_reserve(c, 0, N, b, NULL, 0, 60000));
	is_int(gpc_publish(c, NULL, k, b, N,
			   GPC_OPTIONS(gpc_publish_options, .tokens = tokens, .digests = digests,
				       .digest_bytes = BYTES, .digest_stride = 2 * BYTES),
			   0, -1),
	       N, "%d in one call", N);
	for (i = 0; i < N; i++)
		good += gpc_tokens_get(c, &k[i], b[i], got, 16) == 16 &&
			!memcmp(got, tokens + (size_t)i * 16, sizeof(got));
	is_int(good, N, "each has its own tokens");
	good = 0;
	while (must(gpc_walk(c, &at, &e, 1))) {
		memcpy(&i, e.digest, sizeof(i));
		good += i < N && key_is(k[i], e.key) && e.digest_bytes == BYTES && !e.digest[BYTES];
	}
	is_int(good, N, "and its own digest");
	is_int(gpc_tokens_get(c, &k[7], b[7], got, 3), 3, "as many as there is room for");
	is_int(gpc_tokens_get(c, &k[7], b[7], NULL, 0), 0, "or none");
	must(gpc_release(c, b, N));
	free(tokens);
	free(digests);
	free(b);
	free(k);
	cache_end(c);
}

/* Without waiting: what the caller gave is his again when the call returns. */
static void test_nowait(void)
{
	gpc *c = notes_cache(cache_config(4, 0), true, true);
	struct gpc_publish_options opt = { .size = sizeof(opt),
					   .digest_bytes = 5,
					   .digest_stride = 5 };
	struct said s = said_of(4), spoilt = s;
	gpc_key key = key_of(c, 4);
	uint32_t tokens[16];
	gpc_block b;

	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 60000));
	opt.group = s.group;
	opt.digests = spoilt.digest;
	opt.tokens = memcpy(tokens, tokens_of(4), sizeof(tokens));
	must(gpc_publish(c, NULL, &key, &b, 1, &opt, 0, 0));
	memset(&spoilt, 0xff, sizeof(spoilt));
	memset(tokens, 0xff, sizeof(tokens));
	done(c);
	says_all(c, 4, b, "timeout 0");
	must(gpc_release(c, &b, 1));
	cache_end(c);
}

/* ---- nothing given, nothing kept ---- */

static void test_none_given(void)
{
	gpc *c = notes_cache(cache_config(1, 0), true, true);
	gpc_key key = key_of(c, 1);
	gpc_block b = say_new(c, 0, 1);
	struct gpc_entry e;
	uint32_t got[16];

	must(gpc_release(c, &b, 1));
	must(gpc_drop(c, &b, 1, NULL, 0, -1));
	settle(c);
	chain_hold(c, 0, 1, 1, &b);
	e = notes_entry(c, 1);
	ok(e.block == b && is_unsaid(e.group, e.digest_bytes, e.digest),
	   "the same key in the same block, without notes: there are none");
	is_int(gpc_tokens_get(c, &key, b, got, 16), 0, "no tokens");
	must(gpc_release(c, &b, 1));
	cache_end(c);
}

static void test_some_kept(void)
{
	gpc *c;
	struct gpc_info info;
	gpc_key key;
	gpc_block b;
	uint32_t got[16];

	c = notes_cache(cache_config(4, 0), true, false);
	info = info_of(c);
	ok(info.keep_tokens == 1 && info.keep_digests == 0, "info: tokens are kept");
	b = say_new(c, 0, 1);
	ok(tokens_say(c, 1, b), "tokens alone");
	is_int(notes_entry(c, 1).digest_bytes, 0, "no digest");
	must(gpc_release(c, &b, 1));
	cache_end(c);
	c = notes_cache(cache_config(4, 0), false, true);
	info = info_of(c);
	ok(info.keep_tokens == 0 && info.keep_digests == 1, "info: digests are kept");
	b = say_new(c, 0, 1);
	ok(walk_says(c, 1), "digests alone");
	key = key_of(c, 1);
	refused(gpc_tokens_get(c, &key, b, got, 16), ENOENT, "no tokens are kept");
	must(gpc_release(c, &b, 1));
	cache_end(c);
}

#define REFUSED(sentence, ...)                                                             \
	do {                                                                               \
		refused(gpc_publish(c, NULL, &key, &b, 1,                                  \
				    GPC_OPTIONS(gpc_publish_options, __VA_ARGS__), 0, -1), \
			EINVAL, "refused: %s", #__VA_ARGS__);                              \
		ok(strstr(gpc_last_error(), sentence), "\"%s\"", gpc_last_error());        \
	} while (0)

static void test_refusals(void)
{
	uint8_t digest[64] = { 1 };
	uint32_t tokens[16] = { 1 };
	gpc *c = notes_cache(cache_config(4, 0), false, false);
	gpc_key key = key_of(c, 1);
	gpc_block b;

	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 60000));
	REFUSED("tokens is given, and this cache keeps none: it was made without "
		"gpc_config.keep_tokens",
		.tokens = tokens);
	REFUSED("digests is given, and this cache keeps none: it was made without "
		"gpc_config.keep_digests",
		.digests = digest, .digest_bytes = 8, .digest_stride = 8);
	REFUSED("group is given", .group = 3);
	is_int(say_note(c, 1, b, NULL, -1), 1, "without notes it is published");
	must(gpc_release(c, &b, 1));
	cache_end(c);

	c = notes_cache(cache_config(4, 0), true, true);
	key = key_of(c, 1);
	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 60000));
	REFUSED("digest_bytes is 0", .digests = digest, .digest_stride = 8);
	REFUSED("digest_bytes is 33", .digests = digest, .digest_bytes = 33, .digest_stride = 64);
	REFUSED("digest_stride is 7: it must be at least digest_bytes, 8", .digests = digest,
		.digest_bytes = 8, .digest_stride = 7);
	REFUSED("digests is NULL, and digest_bytes is 8", .digest_bytes = 8);
	REFUSED("digests is NULL, and digest_stride is 8", .digest_stride = 8);
	must(gpc_release(c, &b, 1));
	refused(gpc_tokens_get(c, NULL, 0, tokens, 16), EINVAL, "no key");
	refused(gpc_tokens_get(c, &key, 0, NULL, 16), EINVAL, "no room");
	refused(gpc_tokens_get(NULL, &key, 0, tokens, 16), EINVAL, "no handle");
	refused(gpc_tokens_get(c, &key, b, tokens, 16), ESTALE, "a free block");
	refused(gpc_tokens_get(c, &key, -1, tokens, 16), ESTALE, "no block");
	refused(gpc_tokens_get(c, &key, GPC_BLOCK(0, 4), tokens, 16), ESTALE, "past the pool");
	refused(gpc_tokens_get(c, &key, GPC_BLOCK(5, 0), tokens, 16), ESTALE, "no such pool");
	b = say_new(c, 0, 2);
	refused(gpc_tokens_get(c, &key, b, tokens, 16), ESTALE, "another key's block");
	must(gpc_release(c, &b, 1));
	cache_end(c);
}

static void test_config(void)
{
	struct gpc_config cfg = cache_config(4, 0);
	gpc *c, *again = NULL;

	cfg.keep_tokens = 2;
	refused(gpc_create("no", &cfg, NULL, 0, &again), EINVAL, "keep_tokens 2");
	cfg.keep_tokens = 0;
	cfg.keep_digests = 7;
	refused(gpc_create("no", &cfg, NULL, 0, &again), EINVAL, "keep_digests 7");
	cfg.keep_digests = 0;
	c = notes_cache(cfg, false, true);
	is_int(gpc_create(cache_name, &cfg, NULL, GPC_IF_ABSENT, &again), 0, "who does not care");
	must(gpc_close(again));
	cfg.keep_digests = 1;
	is_int(gpc_create(cache_name, &cfg, NULL, GPC_IF_ABSENT, &again), 0, "who wants digests");
	must(gpc_close(again));
	cfg.keep_tokens = 1;
	refused(gpc_create(cache_name, &cfg, NULL, GPC_IF_ABSENT, &again), EPROTO,
		"who wants tokens too");
	ok(strstr(gpc_last_error(), "keep_tokens 0 instead of 1"), "%s", gpc_last_error());
	cache_end(c);
}

/* ---- whose notes ---- */

static void test_duplicate(void)
{
	gpc *c = notes_cache(cache_config(4, 0), true, true);
	struct said s = said_of(9);
	gpc_key key = key_of(c, 1);
	gpc_block b = say_new(c, 0, 1), other, res = -7;

	must(gpc_reserve(c, 0, 1, &other, NULL, 0, 60000));
	must(gpc_publish(c, NULL, &key, &other, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = &res, .group = s.group,
				     .tokens = tokens_of(9), .digests = s.digest,
				     .digest_bytes = s.digest_bytes,
				     .digest_stride = s.digest_bytes),
			 0, -1));
	is_int(res, b, "a duplicate");
	says_all(c, 1, b, "the first publisher's stay");
	is_int(say_note(c, 2, other, NULL, -1), 1, "its block is published under another key");
	says_all(c, 2, other, "with that one's");
	must(gpc_release(c, (gpc_block[3]){ b, res, other }, 3));
	cache_end(c);
}

/* Of a key that is in RAM the block just computed takes the place, and its notes with it. */
static void test_over_ram(void)
{
	gpc *c = notes_cache(cache_config(4, 4), true, true);
	gpc_block b = say_new(c, RAM, 1), v;
	gpc_key key = key_of(c, 1);
	struct said s = said_of(9);
	struct gpc_entry e;

	must(gpc_release(c, &b, 1));
	must(gpc_reserve(c, VRAM, 1, &v, NULL, 0, 60000));
	must(gpc_publish(c, NULL, &key, &v, 1,
			 GPC_OPTIONS(gpc_publish_options, .group = s.group, .digests = s.digest,
				     .digest_bytes = s.digest_bytes,
				     .digest_stride = s.digest_bytes),
			 0, -1));
	e = notes_entry(c, 1);
	ok(e.block == v && is_said(e.group, e.digest_bytes, e.digest, 9),
	   "the notes of the block that is live");
	must(gpc_release(c, &v, 1));
	cache_end(c);
}
/* ---- what a peer can write ---- */

static void test_scribbled(void)
{
	gpc *c = notes_cache(cache_config(4, 0), true, true);
	gpc_block b = say_new(c, 0, 1), other = say_new(c, 0, 2);
	gpc_key key = key_of(c, 1);
	uint32_t tokens[16];
	uint32_t record = pool_record(&c->seg, b);
	struct shm_note *note = seg_note(&c->seg, record);
	struct gpc_event ev;
	struct gpc_entry e;
	gpc *r;

	note->digest_bytes = 33;
	e = notes_entry(c, 1);
	ok(e.block == b && is_unsaid(e.group, e.digest_bytes, e.digest),
	   "a digest of 33 bytes is none");
	r = look();
	e = notes_entry(r, 1);
	ok(e.block == b && is_unsaid(e.group, e.digest_bytes, e.digest), "nor to who reads files");
	must(gpc_close(r));
	memcpy(note, seg_note(&c->seg, pool_record(&c->seg, other)), 128);
	e = notes_entry(c, 1);
	ok(e.block == b && is_unsaid(e.group, e.digest_bytes, e.digest),
	   "a whole note of another key says nothing");
	is_int(gpc_tokens_get(c, &key, b, tokens, 16), 0, "nor do the tokens beside it");
	memset(note, 0xff, 128);
	is_int(notes_entry(c, 1).digest_bytes, 0, "a note of no key");
	clean(c, "notes scribbled over");
	notes_cursor = UINT64_MAX;
	must(gpc_event_read(c, &notes_cursor, NULL, 0));
	must(gpc_release(c, &b, 1));
	must(gpc_drop(c, &b, 1, NULL, 0, -1));
	is_int(gpc_event_read(c, &notes_cursor, &ev, 1), 1, "the block goes all the same");
	ok(ev.what == GPC_REMOVED && is_unsaid(ev.group, ev.digest_bytes, ev.digest),
	   "without a word of it");
	must(gpc_release(c, &other, 1));
	cache_end(c);
}
static void tests(void)
{
	test_given();
	test_many();
	test_nowait();
	test_none_given();
	test_some_kept();
	test_refusals();
	test_config();
	test_duplicate();
	test_over_ram();
	test_scribbled();
}

static int body(void)
{
	cache_both(tests);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
