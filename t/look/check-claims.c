/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_check of claims: each of its sentences, by one word that is wrong; and what is no mistake.
 * Tests: lib/look/check_claim.c */
#include "t/lib/xfers.h"

enum { VRAM, RAM };

static gpc *p, *q;
static uint8_t *hand; /* the index, written to */
static gpc_block mine[3], other[2];

/* A call of a peer, answered meanwhile. */
#define SERVED(call)               \
	({                         \
		int got_;          \
		serve_begin(c);    \
		got_ = must(call); \
		serve_end();       \
		got_;              \
	})

static void give_back(gpc *who, gpc_block *b, uint32_t n)
{
	serve_begin(c);
	must(gpc_release(who, b, n));
	done(who);
	serve_end();
}

static void begin(void)
{
	struct gpc_config cfg = cache_config(16, 16);

	cfg.max_blocks = 128;
	c = cache_make(&cfg, NULL);
	p = cache_attach(0, 0);
	q = cache_attach(0, 0);
	SERVED(gpc_reserve(p, VRAM, 3, mine, NULL, 0, 1000));
	SERVED(gpc_reserve(q, VRAM, 2, other, NULL, 0, 1000));
	must(segment_map_writer(&c->seg, &hand));
}

static void claim(gpc *who, uint64_t n, gpc_block b)
{
	struct gpc_claim told;
	gpc_key k = key_of(who, n);

	if (SERVED(gpc_claim(who, &k, &b, 1, &told, 0, 1000)) != 1)
		bail("key %d is not claimed", (int)n);
}

static struct shm_record *forge(gpc_block b)
{
	return SEG_AT(hand, c->seg.at.record, struct shm_record, pool_record(&c->seg, b));
}

static struct shm_tally *tally(gpc *who)
{
	return SEG_AT(hand, c->seg.at.tally, struct shm_tally, who->peer);
}

static struct {
	const char *want;
	int lines, hits;
} heard;

static void look_for(void *arg, const char *line)
{
	(void)arg;
	heard.lines++;
	heard.hits += strstr(line, heard.want) != NULL;
	if (!strstr(line, heard.want))
		diag("%s", line);
}

/* Those lines and no other. */
static void says(int n, const char *want, const char *when)
{
	heard.want = want;
	heard.lines = heard.hits = 0;
	must(gpc_check(c, look_for, NULL));
	ok(heard.lines == n && heard.hits == n, "%s: %s", when, want);
}

static void test_counts(void)
{
	uint8_t flags = forge(mine[0])->flags;

	tally(p)->claims_open = 3;
	says(1, "2 blocks are claimed, and 3 claims are said to be open", "one too many");
	tally(p)->claims_open = 2;
	forge(mine[0])->flags &= (uint8_t)~REC_CLAIM;
	says(1, "1 blocks are claimed, and 2 claims are said to be open", "a mark that is lost");
	forge(mine[0])->flags = flags;
	forge(other[1])->key[0] = 99;
	forge(other[1])->parent[1] = 1;
	forge(other[1])->flags |= REC_CLAIM;
	says(1, "2 blocks are claimed, and 1 claims are said to be open", "a mark of nobody");
	forge(other[1])->flags &= (uint8_t)~REC_CLAIM;
	clean(c, "as they were");
}

static void test_keys(void)
{
	struct shm_record *r = forge(other[0]), was = *r;
	const struct shm_record *first = forge(mine[0]);
	gpc_block live;

	r->key[0] = first->key[0];
	r->key[1] = first->key[1];
	says(1, "its key is claimed in record", "one key, two claims");
	r->key[0] = r->key[1] = 0;
	says(1, "claimed without a block's key", "no key");
	r->key[0] = 5;
	r->key[1] = KEY_ROOT_BIT;
	says(1, "claimed without a block's key", "a root's key");
	chain_make(c, VRAM, 50, 1, &live);
	r->key[0] = forge(live)->key[0];
	r->key[1] = forge(live)->key[1];
	says(1, "claimed, but its key is live in the same space", "a key that is live");
	*r = was;
	r->parent[1] = 0;
	says(1, "claimed by a number that its peer has not reached", "number 0");
	r->parent[1] = 77;
	says(1, "claimed by a number that its peer has not reached", "a number of later");
	*r = was;
	clean(c, "as they were");
}

/* A key that leaves for RAM of another space, or is on its way, may be claimed where it was. */
static void test_spaces(void)
{
	gpc_block far, b;
	int pool = pool_new(c, GPC_VRAM, 8, 1, GPC_POOL_UNCHAINED);

	SERVED(gpc_reserve(q, pool, 1, &far, NULL, 0, 1000));
	claim(q, 1, far);
	clean(c, "the same key in two spaces");
	must(gpc_pool_clear(c, pool, 0, GPC_REMOVE, 0));
	clean(c, "of a pool that is on its way out");
	give_back(q, &far, 1);
	SERVED(gpc_reserve(q, VRAM, 1, &b, NULL, 0, 1000));
	claim(q, 2, b);
	give_back(q, &b, 1);
	clean(c, "gone, and claimed no more");
}

/* Who is dead cannot be asked: the next one counts anew. */
static void test_dead(void)
{
	tally(p)->claims_open = 7;
	must(gpc_writer_drop(c));
	clean(c, "nobody serves");
	must(gpc_writer_take(c, 0, 0));
	serve_some();
	is_int((int)tally(p)->claims_open, 2, "a successor has counted");
	clean(c, "a successor");
}

static int body(void)
{
	begin();
	claim(p, 1, mine[0]);
	claim(p, 3, mine[1]);
	claim(q, 4, other[0]);
	clean(c, "three claims");
	test_counts();
	test_keys();
	test_spaces();
	test_dead();
	segment_unmap_writer(&c->seg, hand);
	give_back(p, mine, 3);
	give_back(q, other, 2);
	must(gpc_close(p));
	must(gpc_close(q));
	serve_some();
	ok(is_quiet(), "nothing is left");
	clean(c, "in the end");
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(30, body, cache_dir_remove);
}
