/* SPDX-License-Identifier: Apache-2.0 */
/* Notes: group, digest and tokens of a block are given at publish, and given back by walks, events
 * and gpc_tokens_get for as long as the key stays, whatever block it is in. */
#include "t/lib/notes.h"

#include "peer/handle.h"
#include "segment/note.h"

enum { VRAM = 0, RAM = 1 };

static uint64_t cursor;

/* The next change of key number n is of that kind, and says what was said of it. */
static bool event_says(gpc *c, uint32_t what, uint64_t n)
{
	gpc_key key = key_of(c, n);
	struct gpc_event ev;

	while (must(gpc_event_read(c, &cursor, &ev, 1)) == 1)
		if (key_is(ev.key, key))
			return ev.what == what && is_said(ev.group, ev.digest_bytes, ev.digest, n);
	return false;
}

static void says_all(gpc *c, uint64_t n, gpc_block b, const char *when)
{
	ok(walk_says(c, n), "%s: the walk has group and digest", when);
	ok(tokens_say(c, n, b), "%s: the tokens are there", when);
}

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
		cursor = UINT64_MAX;
		must(gpc_event_read(c, &cursor, NULL, 0));
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
		cursor = 0;
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
		digests[(size_t)i * 2 * BYTES + BYTES] = 0xee;        /* between two */
	}
	for (i = 0; i < N * 16; i++)
		tokens[i] = i;
	must(gpc_reserve(c, 0, N, b, NULL, 0, 1000));
	is_int(gpc_publish(c, NULL, k, b, N,
			   GPC_OPTIONS(gpc_publish_options, .tokens = tokens, .digests = digests,
				       .digest_bytes = BYTES, .digest_stride = 2 * BYTES), 0, -1),
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
	struct gpc_publish_options opt = { .size = sizeof(opt), .digest_bytes = 5,
					   .digest_stride = 5 };
	struct said s = said_of(4), spoilt = s;
	gpc_key key = key_of(c, 4);
	uint32_t tokens[16];
	gpc_block b;

	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 1000));
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

#define REFUSED(sentence, ...)                                                                 \
	do {                                                                                   \
		refused(gpc_publish(c, NULL, &key, &b, 1,                                      \
				    GPC_OPTIONS(gpc_publish_options, __VA_ARGS__), 0, -1),     \
			EINVAL, "refused: %s", #__VA_ARGS__);                                  \
		ok(strstr(gpc_last_error(), sentence), "\"%s\"", gpc_last_error());            \
	} while (0)

static void test_refusals(void)
{
	uint8_t digest[64] = { 1 };
	uint32_t tokens[16] = { 1 };
	gpc *c = notes_cache(cache_config(4, 0), false, false);
	gpc_key key = key_of(c, 1);
	gpc_block b;

	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 1000));
	REFUSED("tokens is given, and this cache keeps none: it was made without "
		"gpc_config.keep_tokens", .tokens = tokens);
	REFUSED("digests is given, and this cache keeps none: it was made without "
		"gpc_config.keep_digests", .digests = digest, .digest_bytes = 8,
		.digest_stride = 8);
	REFUSED("group is given", .group = 3);
	is_int(say(c, 1, b, NULL, -1), 1, "without notes it is published");
	must(gpc_release(c, &b, 1));
	cache_end(c);

	c = notes_cache(cache_config(4, 0), true, true);
	key = key_of(c, 1);
	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 1000));
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

	must(gpc_reserve(c, 0, 1, &other, NULL, 0, 1000));
	must(gpc_publish(c, NULL, &key, &other, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = &res, .group = s.group,
				     .tokens = tokens_of(9), .digests = s.digest,
				     .digest_bytes = s.digest_bytes,
				     .digest_stride = s.digest_bytes), 0, -1));
	is_int(res, b, "a duplicate");
	says_all(c, 1, b, "the first publisher's stay");
	is_int(say(c, 2, other, NULL, -1), 1, "its block is published under another key");
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
	must(gpc_reserve(c, VRAM, 1, &v, NULL, 0, 1000));
	must(gpc_publish(c, NULL, &key, &v, 1,
			 GPC_OPTIONS(gpc_publish_options, .group = s.group, .digests = s.digest,
				     .digest_bytes = s.digest_bytes,
				     .digest_stride = s.digest_bytes), 0, -1));
	e = notes_entry(c, 1);
	ok(e.block == v && is_said(e.group, e.digest_bytes, e.digest, 9),
	   "the notes of the block that is live");
	must(gpc_release(c, &v, 1));
	cache_end(c);
}

/* ---- moves ---- */

static void test_move(uint32_t ram_space, uint32_t flags)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_move m, up;
	gpc_block b;
	gpc *c;

	cfg.max_blocks = 256;
	c = notes_cache(cfg, true, true);
	pool_new(c, GPC_VRAM, 4, 0, 0);
	pool_new(c, GPC_RAM, 4, ram_space, GPC_POOL_UNCHAINED);
	b = say_new(c, VRAM, 1);
	must(gpc_release(c, &b, 1));
	cursor = UINT64_MAX;
	must(gpc_event_read(c, &cursor, NULL, 0));
	is_int(gpc_demote(c, VRAM, RAM, &b, 1, &m, flags, 1000), 1, "a move to space %u%s",
	       ram_space, flags ? ", with GPC_COPY" : "");
	is_int(gpc_commit(c, &m, 1, NULL, 0, -1), 1, "committed");
	ok(tokens_say(c, 1, m.to), "the tokens have moved");
	ok(event_says(c, ram_space ? GPC_STORED : GPC_MOVED, 1), "the change has the note");
	settle(c);
	ok(walk_says(c, 1), "the walk too");
	if (flags)
		says_all(c, 1, b, "the source has its own still");
	else if (ram_space)
		ok(event_says(c, GPC_REMOVED, 1), "so has that of the source");
	if (!flags) {
		gpc_key key = key_of(c, 1);

		must(gpc_acquire(c, 0, &key, 1, &b, 0));
		is_int(gpc_promote(c, &b, 1, VRAM, &up, NULL, 0, 1000), 1, "and back");
		is_int(gpc_commit(c, &up, 1, NULL, 0, -1), 1, "committed");
		says_all(c, 1, up.to, "moved twice");
		must(gpc_release(c, &up.to, 1));
	}
	settle(c);
	clean(c, "moves with notes");
	cache_end(c);
}

/* The victim of a reserve, whose block is the caller's before the victim has moved. */
enum victim { COMMITTED_FIRST, PUBLISHED_FIRST, REFUSED_FIRST };

static void test_victim(enum victim how)
{
	gpc *c = notes_cache(cache_config(2, 4), true, true);
	gpc_block b[2] = { say_new(c, VRAM, 1), say_new(c, VRAM, 2) }, got;
	struct gpc_move m = { .to = -1 };
	gpc_block res;

	must(gpc_release(c, (gpc_block[2]){ b[1], b[0] }, 2));     /* the last goes first */
	is_int(gpc_reserve(c, VRAM, 1, &got, GPC_OPTIONS(gpc_reserve_options, .moves = &m), 0, 1000),
	       1, "a block with a victim in it");
	ok(m.to >= 0 && got == b[0], "which moves");
	if (how == REFUSED_FIRST) {      /* against the rule, as is the next one */
		is_int(say(c, 2, got, &res, -1), 0, "its block does not get a key that is live");
		must(gpc_release(c, &res, 1));
		is_int(gpc_commit(c, &m, 1, NULL, 0, -1), 1, "the victim's key is live");
		ok(!tokens_say(c, 1, m.to) && notes_entry(c, 1).digest_bytes == 0,
		   "without that key's note");
		is_int(say(c, 3, got, NULL, -1), 1, "another one");
	} else if (how == PUBLISHED_FIRST) {     /* its bytes are gone, and so is its note */
		is_int(say(c, 3, got, NULL, -1), 1, "published anew before that");
		is_int(gpc_commit(c, &m, 1, NULL, 0, -1), 1, "the victim's key is live");
		ok(!tokens_say(c, 1, m.to) && notes_entry(c, 1).digest_bytes == 0,
		   "without a note, and not with another key's");
	} else {
		is_int(gpc_commit(c, &m, 1, NULL, 0, -1), 1, "committed");
		says_all(c, 1, m.to, "the victim's are with it");
		is_int(say(c, 3, got, NULL, -1), 1, "its block is published anew");
		says_all(c, 1, m.to, "the victim's stay");
	}
	says_all(c, 3, got, "and the block has its own");
	must(gpc_release(c, &got, 1));
	settle(c);
	clean(c, "victims with notes");
	cache_end(c);
}

/* A swap, committed in one call: moves first, victims last. */
static void test_swap(void)
{
	gpc *c = notes_cache(cache_config(1, 2), true, true);
	struct gpc_move m[2];
	gpc_block up, b;
	gpc_key key;

	b = say_new(c, VRAM, 1);
	must(gpc_release(c, &b, 1));
	up = say_new(c, RAM, 2);
	is_int(gpc_promote(c, &up, 1, VRAM, &m[0], &m[1], 0, 1000), 1, "a promotion");
	ok(m[1].to >= 0 && m[0].to == b, "takes the place of a victim");
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 2, "both in one call");
	says_all(c, 2, m[0].to, "who came up has its notes");
	says_all(c, 1, m[1].to, "who went down too");
	key = key_of(c, 2);
	is_int(gpc_lookup(c, 0, &key, 1, &b, GPC_QUIET), 1, "found");
	must(gpc_release(c, &m[0].to, 1));
	settle(c);
	clean(c, "a swap with notes");
	cache_end(c);
}

/* Twice, cancelled, or too late: no note of a block that is live is touched. */
static void test_again(void)
{
	gpc *c = notes_cache(cache_config(4, 4), true, true);
	gpc_block b = say_new(c, VRAM, 1), other = say_new(c, VRAM, 2);
	struct gpc_move m, late;
	int result = 77;

	must(gpc_release(c, (gpc_block[2]){ b, other }, 2));
	must(gpc_demote(c, VRAM, RAM, &b, 1, &m, 0, 1000));
	must(gpc_demote(c, VRAM, RAM, &other, 1, &late, 0, 1000));
	must(gpc_commit(c, &late, 1, NULL, GPC_CANCEL, -1));
	says_all(c, 2, other, "a move that was given up");
	must(gpc_commit(c, &m, 1, NULL, 0, -1));
	must(gpc_commit(c, &m, 1, &result, 0, -1));
	settle(c);
	says_all(c, 1, m.to, "a commit that was sent twice");
	must(gpc_demote(c, VRAM, RAM, &other, 1, &late, 0, 1000));
	must(gpc_drop(c, &other, 1, NULL, 0, -1));
	must(gpc_commit(c, &late, 1, &result, 0, -1));
	is_int(result, -ESTALE, "its source is gone");
	is_int(notes_entry(c, 2).block, -1, "nothing is live");
	settle(c);
	clean(c, "moves that did not come off");
	cache_end(c);
}

/* ---- what a peer can write ---- */

static void test_scribbled(void)
{
	gpc *c = notes_cache(cache_config(4, 0), true, true);
	gpc_block b = say_new(c, 0, 1);
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
	memset(note, 0xff, 128);
	is_int(notes_entry(c, 1).digest_bytes, 0, "a note of no key");
	clean(c, "notes scribbled over");
	cursor = UINT64_MAX;
	must(gpc_event_read(c, &cursor, NULL, 0));
	must(gpc_release(c, &b, 1));
	must(gpc_drop(c, &b, 1, NULL, 0, -1));
	is_int(gpc_event_read(c, &cursor, &ev, 1), 1, "the block goes all the same");
	ok(ev.what == GPC_REMOVED && is_unsaid(ev.group, ev.digest_bytes, ev.digest),
	   "without a word of it");
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
	test_move(0, 0);
	test_move(1, 0);
	test_move(1, GPC_COPY);
	test_victim(COMMITTED_FIRST);
	test_victim(PUBLISHED_FIRST);
	test_victim(REFUSED_FIRST);
	test_swap();
	test_again();
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
