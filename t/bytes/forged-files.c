/* SPDX-License-Identifier: Apache-2.0 */
/* Guarantee F: files that somebody has forged with care, whose checksums are true, are refused, or
 * a writer takes them and goes on.  Blocks that are each other's parents, a free seat that is in
 * use, records of no pool, a header with control characters, one of a cache that is too large.
 * Tests: lib/index/segment/validate.c lib/index/takeover/takeover.c */
#include "index/segment/memo.h"

#include "t/lib/looks.h"

/* ---- blocks that are each other's parents ---- */

static struct shm_record *record_at(uint8_t *index, uint32_t i)
{
	return (struct shm_record *)(index + at.record) + i;
}

static void make_ring_of(uint8_t *index, const uint32_t *list, uint32_t n)
{
	struct shm_record *r;
	uint32_t i;

	for (i = 0; i < n; i++) {
		r = record_at(index, list[i]);
		memcpy(r->parent, record_at(index, list[(i + 1) % n])->key, sizeof(r->parent));
		r->flags &= (uint8_t)~REC_UNCHAINED;
		r->check = key_check(r->key, r->parent, r->depth, r->tag);
	}
}

static int circled(int me)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = scratch };
	gpc_block b[BLOCKS];
	gpc *c;
	int i;

	alarm(LIMIT);
	must_be(gpc_attach(CREW_NAME, &opt, GPC_READONLY, &c), 0);
	look_up(c);
	look_around(c, true);
	gpc_close(c);
	must_be(gpc_attach(CREW_NAME, &opt, GPC_SERVE, &c), 0);
	for (i = 0; i < BLOCKS; i++)
		b[i] = GPC_BLOCK(0, i);
	need(gpc_drop(c, b, BLOCKS, NULL, 0, -1) >= 0, "drop: %s", gpc_last_error());
	need(gpc_reserve(c, 0, BLOCKS, b, NULL, 0, -1) == BLOCKS, "reserve: %s", gpc_last_error());
	must_be(gpc_check(c, NULL, NULL), 0);
	gpc_close(c);
	return me;
}

static void test_circle(void)
{
	uint8_t *index = malloc(file[0].size);
	uint32_t list[3], n = 0, i;

	memset(crew, 0, sizeof(*crew));
	memcpy(index, file[0].bytes, file[0].size);
	for (i = 0; i < BLOCKS && n < 3; i++)
		if (WORD_STATE(record_at(index, i)->word) == LIVE)
			list[n++] = i;
	is_int(n, 3, "three live blocks become a circle");
	make_ring_of(index, list, n);
	put_back(index, file[1].bytes);
	is_int(crew_status(crew_fork(circled, 0)), 0, "a writer takes it, and goes on");
	if (crew->why[0])
		diag("%s", crew->why);
	free(index);
}

/* ---- a seat that says it is free, and has an open section and a head ---- */

static int seated(int me)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = scratch };
	gpc_block b[BLOCKS];
	gpc_key none = crew_no_key, k = crew_key(77);
	gpc *c;
	int i;

	alarm(LIMIT);
	must_be(gpc_attach(CREW_NAME, &opt, 0, &c), 0);
	must_be(c->peer, 1);
	look_up(c);
	must_be(gpc_writer_take(c, 0, 0), 0);
	for (i = 0; i < BLOCKS; i++)
		b[i] = GPC_BLOCK(0, i);
	need(gpc_drop(c, b, BLOCKS, NULL, 0, -1) >= 0, "drop: %s", gpc_last_error());
	must_be(gpc_reserve(c, 0, BLOCKS, b, NULL, 0, 10000), BLOCKS);
	must_be(gpc_publish(c, &none, &k, b, 1, NULL, 0, -1), 1);
	gpc_close(c);
	return me;
}

static void test_free_seat(void)
{
	uint8_t *control = malloc(file[1].size);
	struct shm_section *s;

	memset(crew, 0, sizeof(*crew));
	memcpy(control, file[1].bytes, file[1].size);
	((struct shm_seat *)(control + at.seat))[1].head = 9;
	s = (struct shm_section *)(control + at.section) + SHM_SECTIONS;
	s->epoch = s->ticket = 1;
	put_back(file[0].bytes, control);
	is_int(crew_status(crew_fork(seated, 0)), 0,
	       "a free seat with a section and a head holds nobody up");
	if (crew->why[0])
		diag("%s", crew->why);
	free(control);
}

/* ---- records between the pools: reserved for a move from nowhere, and live ---- */

#define BETWEEN 8

static int between(int me)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = scratch };
	struct gpc_pool p = {
		.size = sizeof(p), .kind = GPC_VRAM, .blocks = BETWEEN, .demote_to = -1
	};
	gpc_block b[BETWEEN];
	gpc *c;

	alarm(LIMIT);
	must_be(gpc_attach(CREW_NAME, &opt, 0, &c), 0);
	must_be(gpc_writer_take(c, 0, 0), 0);
	must_be(gpc_pool_clear(c, 1, 0, GPC_REMOVE, 10000), 0);
	must_be(gpc_pool_make(c, &p, NULL, -1), 1);
	must_be(gpc_pool_clear(c, 0, 0, GPC_REMOVE, 10000), 0);
	must_be(gpc_pool_make(c, &p, NULL, -1), 0);
	must_be(gpc_reserve(c, 0, BETWEEN, b, NULL, 0, 10000), BETWEEN);
	must_be(gpc_reserve(c, 1, BETWEEN, b, NULL, 0, 10000), BETWEEN);
	must_be(gpc_check(c, NULL, NULL), 0);
	gpc_close(c);
	return me;
}

static void test_between(void)
{
	static const uint32_t state[] = { RESERVED, LIVE, DYING, RESERVED };
	uint8_t *index = malloc(file[0].size);
	struct shm_pool *ram;
	struct shm_record *r;
	uint32_t i, first;

	memset(crew, 0, sizeof(*crew));
	memcpy(index, file[0].bytes, file[0].size);
	ram = (struct shm_pool *)(index + at.pool) + 1;
	first = (uint32_t)(ram->range >> 32);
	/* what was the beginning of the RAM pool is between the two now */
	ram->range += ((uint64_t)BETWEEN << 32) - BETWEEN;
	for (i = 0; i < BETWEEN; i++) {
		r = record_at(index, first + i);
		r->word = WORD(state[i % 4], 5);
		r->owner = 0;
		r->flags = 0;
		r->source = i % 4 ? 2 : 0xfffffff0;
	}
	put_back(index, file[1].bytes);
	is_int(crew_status(crew_fork(between, 0)), 0, "records between the pools are nobody's");
	if (crew->why[0])
		diag("%s", crew->why);
	free(index);
}

/* ---- a header that speaks ---- */

static void test_words(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = scratch };
	uint8_t *index = malloc(file[0].size), *control = malloc(file[1].size);
	struct shm_header *h = (struct shm_header *)index;
	const unsigned char *p;
	gpc *c;

	memcpy(index, file[0].bytes, file[0].size);
	memcpy(control, file[1].bytes, file[1].size);
	memcpy(h->hash, "\x9b\x1b[2Jsiphash\x80\n\r\xfc", 16);
	seal(index, control);
	put_back(index, control);
	is_int(gpc_attach(CREW_NAME, &opt, GPC_READONLY, &c), -EPROTO, "another hash");
	for (p = (const unsigned char *)gpc_last_error(); *p >= ' ' && *p < 0x7f; p++)
		;
	ok(!*p, "whose name comes as text");
	free(index);
	free(control);
}

/* A page that speaks of the largest cache there can be: its copy would have 50 GB. */
static void test_large(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = scratch };
	struct gpc_config cfg = { .max_blocks = 1u << 28, .max_peers = PEERS };
	uint8_t *index = malloc(file[0].size), *control = malloc(file[1].size);
	struct shm_header *h = (struct shm_header *)index;
	struct layout large;
	gpc *c;

	memcpy(index, file[0].bytes, file[0].size);
	memcpy(control, file[1].bytes, file[1].size);
	is_int(geometry_from_config(&cfg, &h->geometry), 0, "a geometry");
	geometry_layout(&h->geometry, &large);
	h->bytes = large.index_bytes;
	seal(index, control);
	put_back(index, control);
	is_int(gpc_attach(CREW_NAME, &opt, GPC_READONLY, &c), -EBADMSG,
	       "which is not there is not copied");
	need(!truncate(scratch_file(CREW_NAME, "idx"), (off_t)h->bytes), "cannot grow");
	is_int(gpc_attach(CREW_NAME, &opt, GPC_READONLY, &c), -EBADMSG, "nor when it is a hole");
	free(index);
	free(control);
}

/* ---- aliases of anything, with true checks ---- */

static int aliased(int me)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = scratch };
	gpc_key k = crew_key(77), to = crew_key(78);
	uint32_t i;
	gpc *c;

	alarm(LIMIT);
	must_be(gpc_attach(CREW_NAME, &opt, GPC_READONLY, &c), 0);
	for (i = 0; i < 200; i++)
		look_up(c);
	look_around(c, true);
	gpc_close(c);
	must_be(gpc_attach(CREW_NAME, &opt, 0, &c), 0);
	must_be(gpc_writer_take(c, 0, 0), 0);
	look_up(c);
	for (i = 0; i < 100; i++) {
		k.w[0] += i;
		must_be(gpc_alias(c, &k, &to, 1, 0, -1), 0);
		must_be(gpc_alias(c, &to, &k, 1, 0, -1), 0);
	}
	must_be(gpc_alias_resolve(c, &k, 1), 1);
	gpc_close(c);
	return me;
}

static uint64_t check_of(const struct segment *s, const gpc_key *alias, const gpc_key *to)
{
	const struct memo m = memo_aliases(s);

	return memo_mix(memo_mix(memo_hash(&m, alias), to->w[0]), to->w[1]);
}

/* Whose check is true: keys that are none, that are their own aliases, and each other's; and other
 * words. */
static void test_aliases(void)
{
	uint8_t *index = malloc(file[0].size);
	struct shm_aliases *b;
	struct shm_header *h = (struct shm_header *)index;
	struct segment s = { .at = at };
	uint32_t i, j;

	memset(crew, 0, sizeof(*crew));
	memcpy(index, file[0].bytes, file[0].size);
	s.header = *h;
	need(h->geometry.alias_buckets, "no aliases are kept");
	for (i = 0; i < h->geometry.alias_buckets; i++) {
		b = (struct shm_aliases *)(index + at.alias) + i;
		b->turn = UINT64_MAX - i;
		for (j = 0; j < SHM_ALIASES; j++) {
			struct shm_alias *a = &b->place[j];
			gpc_key from = crew_key(random_below(24) + 1),
				to = crew_key(random_below(24) + 1);

			if (j == 2)
				to = (gpc_key){ { 0, (uint64_t)random_below(2) << 63 } };
			memcpy(a->key, &from, sizeof(from));
			memcpy(a->to, &to, sizeof(to));
			a->check = random_below(4) ? check_of(&s, &from, &to) : 0;
		}
	}
	((struct shm_state *)(index + at.state))->aliases = UINT64_MAX;
	put_back(index, file[1].bytes);
	is_int(crew_status(crew_fork(aliased, 0)), 0,
	       "aliases of anything are misses, or other keys");
	if (crew->why[0])
		diag("%s", crew->why);
	free(index);
}

static int body(void)
{
	files_begin();
	test_aliases();
	test_circle();
	test_free_seat();
	test_between();
	test_words();
	test_large();
	files_end();
	return done_testing();
}

int main(void)
{
	scratch_make("t395");
	return tap_guard(60, body, scratch_remove);
}
