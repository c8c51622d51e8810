/* SPDX-License-Identifier: Apache-2.0 */
/* Trailers that somebody else has written, and a bit anywhere in an image.  VRAM is that of the
 * host device.
 * Tests: lib/bytes/payload/sum.c lib/bytes/memfile/open.c */
#include "t/lib/sums.h"

/* ---- forged trailers ---- */

enum forgery { SUM, LIFE, KEY, ANOTHERS };

static void forge(gpc *c, int number, enum forgery how)
{
	struct shm_trailer *t = trailer_of(c, find(c, (uint64_t)number));

	switch (how) {
	case SUM:
		t->crc ^= 1;
		break;
	case LIFE:
		t->life += 1;
		break;
	case KEY:
		t->key[1] ^= 1ull << 63;
		break;
	case ANOTHERS:
		*t = *trailer_of(c, find(c, (uint64_t)number + 1));
	}
}

/* A sum that is this block's and wrong: bad.  One that says it is another block's: none, and who
 * wants only what has one gets nothing from there on.  The image is good all the same. */
static void test_forged(enum forgery how, const char *what)
{
	gpc *c = tiers(0);
	struct gpc_fetch_options opt = { .size = sizeof(opt) };
	int results[CHAIN];
	gpc_key k[CHAIN + 1];
	gpc_block b[CHAIN];
	gpc_transfer t;

	opt.results = results;
	spill_chain(c, 0);
	forge(c, 5, how);
	nsaid = 0;
	if (how == SUM) {
		is_int(fetch_all(c, b, GPC_VERIFY_FIRST, &t), CHAIN, "%s: on its way", what);
		is_int(gpc_transfer_wait(c, t, 5000), -EBADMSG, "and is refused");
		is_int(left(c, 0), 4, "dropped, with its descendants");
		is_int((long long)stats_of(c, -1).bad, 1, "counted");
		is_int(nsaid, 1, "named");
		must(gpc_release(c, b, CHAIN));
		fetch_end(c, what);
		return;
	}
	chain_keys(c, 1, CHAIN, k);
	is_int(gpc_fetch(c, VRAM, k + 1, CHAIN, b, &opt, GPC_VERIFY_FIRST, NULL, 5000, &t), 4,
	       "%s: verified first, as far as there are sums", what);
	is_int(results[4], -EBADMSG, "and why no further");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "they are good");
	must(gpc_release(c, b, 4));
	is_int(fetch_all(c, b, 0, &t), CHAIN, "without: all of them");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "nothing is called bad");
	is_int(fetch_right(c, b, CHAIN, 1), CHAIN, "every byte");
	is_int((long long)stats_of(c, -1).bad + nsaid, 0, "nothing is counted, or named");
	must(gpc_release(c, b, CHAIN));
	fetch_end(c, what);
}

/* A bit of each part of an image, in turns: none is outside of the sum. */
static void test_every_part(void)
{
	gpc *c = tiers(1);
	gpc_block b[CHAIN], root;
	gpc_transfer t;
	uint64_t at;
	int found = 0, tried = 0;

	for (at = 0; at < BYTES_IMAGE; at += BYTES_IMAGE / 7, tried++) {
		spill_chain(c, GPC_COPY);
		must(gpc_pool_clear(c, VRAM, 0, 0, 60000));
		settle(c);
		root = in_space(c, 1, 1);
		flip(c, root, at);
		must(fetch_all(c, b, GPC_VERIFY_FIRST, &t));
		found += gpc_transfer_wait(c, t, 5000) == -EBADMSG && in_space(c, 1, 1) < 0 &&
			 find(c, 1) < 0;
		must(gpc_release(c, b, CHAIN));
		must(gpc_pool_clear(c, RAM, 0, 0, 60000));
		settle(c);
	}
	is_int(found, tried, "a bit anywhere is found");
	is_int((long long)stats_of(c, -1).bad, tried, "each is counted");
	fetch_end(c, "every part");
}

static void tests(void)
{
	test_forged(SUM, "a wrong sum");
	test_forged(LIFE, "a sum of another life");
	test_forged(KEY, "a sum of another key");
	test_forged(ANOTHERS, "the sum of another block");
	test_every_part();
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
