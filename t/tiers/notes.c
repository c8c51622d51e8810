/* SPDX-License-Identifier: Apache-2.0 */
/* Notes of blocks on disk: they lie beside the blocks in the file, and come back with them after a
 * restart.
 * Tests: lib/tiers/steward/notes.c lib/tiers/steward/restore.c */
#include "t/lib/below.h"
#include "t/lib/notes.h"

#include "tiers/disk/format.h"

enum { KEYS = 40 };
static int ram;
static char told[1024];

static void hear(void *arg, int level, const char *text)
{
	(void)arg;
	(void)level;
	snprintf(told + strlen(told), sizeof(told) - strlen(told), "%s\n", text);
}

static gpc *cache(bool tokens, bool digests, const void *secret)
{
	struct gpc_config cfg = cache_config(0, 0);
	gpc *c;

	cache_thread = true;
	cfg.max_blocks = 1024;
	cfg.max_peers = 8;
	cfg.secret = secret;
	c = notes_cache(cfg, tokens, digests);
	ram = bytes_ram(c, 16, 0, 0);
	return c;
}

static struct gpc_tiers_options options(void)
{
	struct gpc_tiers_options o = tiers_options(64);

	o.ahead = 8;
	o.log = hear;
	told[0] = 0;
	return o;
}

/* Keys 1 to KEYS go through RAM, with what is said of them; every fourth without. */
static void fill(gpc *c)
{
	gpc_block b;
	gpc_key k;
	uint64_t n;

	for (n = 1; n <= KEYS; n++) {
		if (n % 4) {
			b = say_new(c, ram, n);
		} else {
			k = key_of(c, n);
			must(gpc_reserve(c, ram, 1, &b, NULL, 0, 60000));
			must(gpc_publish(c, NULL, &k, &b, 1, NULL, 0, -1));
		}
		must(gpc_release(c, &b, 1));
		if (n % 8 == 0)
			must(gpc_tiers_sync(c, TIERS_MS));
	}
}

/* Of the first `most` keys, those that have their digest, and their tokens, where they lie on
 * disk. */
static void count(gpc *c, uint64_t most, int *ret_digests, int *ret_tokens, int *ret_unsaid)
{
	uint64_t n;

	*ret_digests = *ret_tokens = *ret_unsaid = 0;
	for (n = 1; n <= most; n++) {
		struct gpc_entry e = notes_entry(c, n);

		if (e.block < 0)
			continue;
		*ret_digests += is_said(e.group, e.digest_bytes, e.digest, n);
		*ret_unsaid += is_unsaid(e.group, e.digest_bytes, e.digest);
		*ret_tokens += tokens_say(c, n, tiers_block_below(c, n));
	}
}

static void finish(gpc *c, gpc_tiers *t)
{
	must(gpc_tiers_close(t));
	cache_end(c);
}

/* A copy of the secret, for a cache that is made anew. */
static const void *secret_of_file(void)
{
	static struct gpc_tiers_file file;

	file.size = sizeof(file);
	must(gpc_tiers_file_get(tiers_path, &file));
	return file.secret;
}

static void test_restart(void)
{
	gpc *c = cache(true, true, NULL);
	struct gpc_tiers_options o;
	int digests, tokens, unsaid;
	gpc_tiers *t;
	gpc_key k[4];
	int i;

	tiers_file();
	o = options();
	t = tiers_open(&o);
	fill(c);
	ok(tiers_below(c, 1, 24) == 24, "24 blocks are on the disk");
	count(c, 24, &digests, &tokens, &unsaid);
	is_int(digests + 100 * tokens, 1818,
	       "18 of them with digest and tokens, as long as their steward lives");
	must(gpc_tiers_close(t));
	notes_cursor = UINT64_MAX;
	must(gpc_event_read(c, &notes_cursor, NULL, 0));
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	count(c, 24, &digests, &tokens, &unsaid);
	is_int(digests, 18, "after a restart 18 have group and digest");
	is_int(tokens, 18, "and their tokens");
	is_int(unsaid, 6, "of the others nothing is said");
	ok(event_says(c, GPC_STORED, 7), "the feed tells of one that came back with its digest");
	for (i = 0; i < 4; i++)
		k[i] = key_of(c, 1 + (uint64_t)i);
	is_int(gpc_prefetch(c, ram, k, 4, 0, 5000), 4, "four are brought to RAM");
	for (i = 1; i < 4; i++) {
		gpc_block b = find(c, (uint64_t)i);

		ok(b >= 0 && GPC_POOL(b) == ram && tokens_say(c, (uint64_t)i, b),
		   "and have their tokens there: %d", i);
	}
	is_int((int)tier_of(c).bad, 0, "nothing was damaged");
	finish(c, t);
}

/* The machine has restarted: another cache, the same file. */
static void test_other_cache(void)
{
	struct gpc_tiers_options o = options();
	int digests, tokens, unsaid;
	gpc_tiers *t;
	gpc *c;

	c = cache(true, true, secret_of_file());
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	count(c, 24, &digests, &tokens, &unsaid);
	is_int(digests + 100 * tokens, 1818, "a cache that is made anew has them");
	finish(c, t);

	c = cache(false, true, secret_of_file());
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	count(c, 24, &digests, &tokens, &unsaid);
	is_int(digests, 18, "one that keeps digests alone has those");
	finish(c, t);

	notes_block_tokens = 32;
	c = cache(true, true, secret_of_file());
	told[0] = 0;
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	count(c, 24, &digests, &tokens, &unsaid);
	is_int(digests + 100 * tokens, 18,
	       "one of another number of tokens has digests, and no tokens");
	ok(strstr(told, "has room for notes of 112 bytes, and those of"),
	   "and hears that the file has too little room");
	finish(c, t);
	notes_block_tokens = 16;
}

/* A note whose bytes are not what they were: the block is whole, and comes without it. */
static void test_damaged(void)
{
	struct gpc_tiers_options o = options();
	struct said s = said_of(2);
	int digests, tokens, unsaid, fd = open(tiers_path, O_RDWR), found = 0;
	uint8_t *front = malloc(DISK_GROUPS + DISK_GROUP * (DISK_HEADER_BYTES + 112));
	size_t bytes = DISK_GROUPS + DISK_GROUP * (DISK_HEADER_BYTES + 112), at;
	gpc_tiers *t;
	gpc *c;

	must(pread(fd, front, bytes, 0) == (ssize_t)bytes ? 0 : -1);
	for (at = DISK_GROUPS + DISK_GROUP * DISK_HEADER_BYTES; at + 112 <= bytes; at += 112)
		if (front[at + 8] == s.digest_bytes &&
		    !memcmp(front + at + 16, s.digest, sizeof(s.digest))) {
			front[at + 48] ^= 1;
			found += pwrite(fd, front + at + 48, 1, (off_t)at + 48) == 1;
		}
	close(fd);
	free(front);
	is_int(found, 1, "the note of one block has another bit");
	c = cache(true, true, secret_of_file());
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, 24), 24, "all blocks are there");
	count(c, 24, &digests, &tokens, &unsaid);
	is_int(digests + 100 * tokens, 1717, "one of them without its note");
	is_int(unsaid, 7, "of which nothing is said");
	finish(c, t);
	unlink(tiers_path);
}

/* A file that was made by a cache without notes has no room for any. */
static void test_no_room(void)
{
	gpc *c = cache(false, false, NULL);
	struct gpc_tiers_options o;
	int digests, tokens, unsaid;
	gpc_tiers *t;

	tiers_file();
	o = options();
	t = tiers_open(&o);
	fill(c);
	ok(!strstr(told, "notes"), "a cache without notes says nothing of them");
	finish(c, t);
	c = cache(true, true, secret_of_file());
	t = tiers_open(&o);
	ok(strstr(told, "has room for notes of 0 bytes, and those of"),
	   "a file without room is used, and that is said");
	must(gpc_pool_clear(c, -1, 0, 0, 5000));
	fill(c);
	count(c, 24, &digests, &tokens, &unsaid);
	is_int(digests + 100 * tokens, 1818, "notes are there while the steward lives");
	must(gpc_tiers_close(t));
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, 24), 24, "the blocks come back");
	count(c, 24, &digests, &tokens, &unsaid);
	is_int(digests + 100 * tokens, 0, "without their notes");
	finish(c, t);
	unlink(tiers_path);
}

/* Tokens for which no file has room: group and digest are kept. */
static void test_large(void)
{
	struct gpc_tiers_options o;
	int digests, tokens, unsaid;
	gpc_tiers *t;
	gpc *c;

	notes_block_tokens = NOTES_TOKENS;
	c = cache(true, true, NULL);
	tiers_file();
	o = options();
	t = tiers_open(&o);
	fill(c);
	must(gpc_tiers_close(t));
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	count(c, 24, &digests, &tokens, &unsaid);
	is_int(digests + 100 * tokens, 18,
	       "of %d tokens a block group and digest come back, and no tokens", NOTES_TOKENS);
	finish(c, t);
	notes_block_tokens = 16;
	unlink(tiers_path);
}

/* ---- a note as it stands in a file ---- */

bool notes_unpack(const gpc *c, const void *from, uint32_t bytes, const gpc_key *key,
		  struct shm_note *ret, uint32_t *tokens); /* of tiers/steward/steward.h */

static struct {
	struct disk_note n;
	uint32_t token[64];
} in_file;

static bool unpacks(const gpc *c, uint32_t ntokens, struct shm_note *ret)
{
	uint32_t tokens[64] = { 0 }, i;
	gpc_key key = { { 5, 6 } };

	for (i = 0; i < 64; i++)
		in_file.token[i] = 100 + i;
	return notes_unpack(c, &in_file, (uint32_t)sizeof(in_file.n) + 4 * ntokens, &key, ret,
			    tokens) &&
	       (!ret->has_tokens || (tokens[0] == 100 && tokens[15] == 115 && !tokens[16]));
}

static void test_of_others(void)
{
	gpc *c = cache(true, true, NULL);
	struct shm_note note;

	in_file.n = (struct disk_note){
		.version = DISK_NOTE_VERSION, .group = 3, .digest_bytes = 8, .ntokens = 16
	};
	ok(unpacks(c, 16, &note) && note.group == 3 && note.digest_bytes == 8 && note.has_tokens,
	   "a note has all that it says");
	ok(!unpacks(c, 15, &note), "one that ends before its tokens do is none");
	in_file.n.ntokens = 32;
	ok(unpacks(c, 32, &note) && note.group == 3 && !note.has_tokens,
	   "tokens of larger blocks are left out");
	in_file.n.ntokens = 8;
	ok(unpacks(c, 64, &note) && note.group == 3 && !note.has_tokens, "and of smaller ones");
	in_file.n.ntokens = 16;
	in_file.n.digest_bytes = 33;
	ok(!unpacks(c, 16, &note), "a digest that is longer than any is none");
	in_file.n.digest_bytes = 8;
	in_file.n.version++;
	ok(!unpacks(c, 16, &note), "nor is a note of another version");
	cache_end(c);
	in_file.n.version--;
	c = cache(true, false, NULL);
	ok(unpacks(c, 16, &note) && !note.group && !note.digest_bytes && note.has_tokens,
	   "a cache that keeps tokens alone has those");
	cache_end(c);
	c = cache(false, true, NULL);
	ok(unpacks(c, 16, &note) && note.group == 3 && !note.has_tokens,
	   "one that keeps digests has no tokens");
	cache_end(c);
}

static int body(void)
{
	test_restart();
	test_other_cache();
	test_damaged();
	test_no_room();
	test_large();
	test_of_others();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
