/* SPDX-License-Identifier: Apache-2.0 */
/* notes.h - what tests of notes publish: all of it follows from the number of the key, so that who
 * reads a note knows what it must be. */
#ifndef GPC_T_NOTES_H
#define GPC_T_NOTES_H

#include <string.h>
#include "cache.h"

#define NOTES_TOKENS 16384 /* most tokens a block */

struct said { /* of one key */
	uint32_t group, digest_bytes;
	uint8_t digest[32];
};

static uint32_t notes_block_tokens = 16;

TAP_FN struct said said_of(uint64_t n)
{
	struct said s = { .group = 0x10000u + (uint32_t)n, .digest_bytes = 1 + (uint32_t)n % 32 };
	uint32_t i;

	for (i = 0; i < s.digest_bytes; i++)
		s.digest[i] = (uint8_t)(n * 7 + i);
	return s;
}

/* Until the next call. */
TAP_FN const uint32_t *tokens_of(uint64_t n)
{
	static uint32_t tokens[NOTES_TOKENS];
	uint32_t i;

	for (i = 0; i < notes_block_tokens; i++)
		tokens[i] = (uint32_t)n << 16 | i;
	return tokens;
}

TAP_FN gpc *notes_cache(struct gpc_config cfg, bool tokens, bool digests)
{
	cfg.block_tokens = notes_block_tokens;
	cfg.keep_tokens = tokens;
	cfg.keep_digests = digests;
	return cache_make(&cfg, NULL);
}

/* Key number n, without a parent, in a reservation of the caller, with what is said of it. */
TAP_FN int say_note(gpc *c, uint64_t n, gpc_block block, gpc_block *resident, int timeout_ms)
{
	struct gpc_info info = info_of(c);
	struct said s = said_of(n);
	struct gpc_publish_options opt = {
		.size = sizeof(opt),
		.resident = resident,
		.tokens = info.keep_tokens ? tokens_of(n) : NULL,
	};
	gpc_key key = key_of(c, n);

	if (info.keep_digests) {
		opt.group = s.group;
		opt.digests = s.digest;
		opt.digest_bytes = opt.digest_stride = s.digest_bytes;
	}
	return gpc_publish(c, NULL, &key, &block, 1, &opt, 0, timeout_ms);
}

/* The same in a block of that pool, which stays referenced. */
TAP_FN gpc_block say_new(gpc *c, int pool, uint64_t n)
{
	gpc_block b;

	must(gpc_reserve(c, pool, 1, &b, NULL, 0, 60000));
	if (must(say_note(c, n, b, NULL, -1)) != 1)
		bail("key %llu was not published", (unsigned long long)n);
	return b;
}

TAP_FN bool is_said(uint32_t group, uint32_t bytes, const uint8_t *digest, uint64_t n)
{
	struct said s = said_of(n);

	return group == s.group && bytes == s.digest_bytes &&
	       !memcmp(digest, s.digest, sizeof(s.digest));
}

TAP_FN bool is_unsaid(uint32_t group, uint32_t bytes, const uint8_t *digest)
{
	static const uint8_t zero[32];

	return !group && !bytes && !memcmp(digest, zero, sizeof(zero));
}

/* The entry of key number n; block -1: it is not live. */
TAP_FN struct gpc_entry notes_entry(gpc *c, uint64_t n)
{
	struct gpc_entry e[64], found = { .block = -1 };
	gpc_key key = key_of(c, n);
	uint64_t cursor = 0;
	int got, i;

	while ((got = must(gpc_walk(c, &cursor, e, 64))) > 0)
		for (i = 0; i < got; i++)
			if (key_is(e[i].key, key))
				found = e[i];
	return found;
}

TAP_FN bool walk_says(gpc *c, uint64_t n)
{
	struct gpc_entry e = notes_entry(c, n);

	return e.block >= 0 && is_said(e.group, e.digest_bytes, e.digest, n);
}

TAP_FN bool tokens_say(gpc *c, uint64_t n, gpc_block block)
{
	static uint32_t got[NOTES_TOKENS + 1];
	uint32_t tokens = notes_block_tokens;
	gpc_key key = key_of(c, n);

	got[tokens] = 4711;
	return gpc_tokens_get(c, &key, block, got, tokens) == (int)tokens &&
	       !memcmp(got, tokens_of(n), tokens * sizeof(*got)) && got[tokens] == 4711;
}

static uint64_t notes_cursor; /* of the feed */

/* The next change of key number n is of that kind, and says what was said of it. */
TAP_FN bool event_says(gpc *c, uint32_t what, uint64_t n)
{
	gpc_key key = key_of(c, n);
	struct gpc_event ev;

	while (must(gpc_event_read(c, &notes_cursor, &ev, 1)) == 1)
		if (key_is(ev.key, key))
			return ev.what == what && is_said(ev.group, ev.digest_bytes, ev.digest, n);
	return false;
}

TAP_FN void says_all(gpc *c, uint64_t n, gpc_block b, const char *when)
{
	ok(walk_says(c, n), "%s: the walk has group and digest", when);
	ok(tokens_say(c, n, b), "%s: the tokens are there", when);
}

#endif
