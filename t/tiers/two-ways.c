/* SPDX-License-Identifier: Apache-2.0 */
/* A case that looks like the usual one, and is not: a reserve that could have all its blocks and whose call
 * is withdrawn while the writer looks, or that another one has come before; a publish below the
 * last block, when that has gone or is in another space.
 * Tests: lib/index/writer/command.c lib/index/writer/grant.c */
#include "t/lib/cache.h"

#include "index/peer/handle.h"

enum { BLOCKS = 8, FIRST = 5, SECOND = 2 };

static gpc *c;
static uint64_t *withdrawn; /* in the middle of the next look; NULL: none */

struct writer;

bool __real_grant_has_quota(struct writer *w, uint32_t peer, uint32_t n);
bool __wrap_grant_has_quota(struct writer *w, uint32_t peer, uint32_t n);

/* The command has been copied by then. */
bool __wrap_grant_has_quota(struct writer *w, uint32_t peer, uint32_t n)
{
	if (withdrawn)
		store_release(withdrawn, GROUP_WITHDRAWN);
	withdrawn = NULL;
	return __real_grant_has_quota(w, peer, n);
}

/* ---- a ring, as the library fills it ---- */

static struct shm_command *add(uint8_t op, uint32_t count, gpc_block block)
{
	struct shm_seat *seat = seg_seat(&c->seg, c->peer);
	struct shm_command *first = seg_command(&c->seg, c->peer, seat->head);
	uint32_t i;

	for (i = 0; i < count; i++)
		*seg_command(&c->seg, c->peer, seat->head + i) = (struct shm_command){
			.op = op,
			.count = (uint16_t)(i ? 0 : count),
			.block = block,
			.result = CMD_PENDING,
		};
	store_release(&seat->head, seat->head + count);
	return first;
}

static void serve(void)
{
	struct shm_seat *seat = seg_seat(&c->seg, c->peer);
	int i;

	for (i = 0; i < 2000 && (seat->tail != seat->head || stats_of(c, -1).dying); i++)
		must(gpc_writer_serve(c, i ? 1 : 0));
	seat->taken = seat->tail;
}

static void test_withdrawn(void)
{
	struct shm_command *r = add(CMD_RESERVE, SECOND, GPC_NONE);

	withdrawn = &r->group_state;
	serve();
	ok(!withdrawn, "a call is withdrawn when its command has been copied");
	is_int(r->result, -ETIMEDOUT, "it gets nothing");
	is_int((int)stats_of(c, -1).reserved, 0, "and nobody has it");
}

/* The three that are free are the first one's. */
static void test_in_order(void)
{
	struct shm_command *first = add(CMD_RESERVE, FIRST, GPC_NONE),
			   *second = add(CMD_RESERVE, SECOND, GPC_NONE);
	gpc_block had[FIRST + SECOND];
	int i, fresh = 0;

	serve();
	is_int(first->result, FIRST, "one for which blocks have to be evicted");
	is_int(second->result, SECOND, "one behind it, for which there is room");
	for (i = 0; i < FIRST; i++) {
		had[i] = first[i].block;
		fresh += had[i] >= FIRST;
	}
	for (i = 0; i < SECOND; i++)
		had[FIRST + i] = second[i].block;
	is_int(fresh, BLOCKS - FIRST, "what was free went to who came first");
	for (i = 0; i < FIRST + SECOND; i++)
		add(CMD_FREE, 1, had[i]);
	serve();
}

/* ---- below the last block ---- */

static int32_t publish(const gpc_key *parent, uint64_t n, gpc_block b)
{
	gpc_key k = key_of(c, n), none = { { 0, 0 } };
	gpc_block res = -1;

	must(gpc_publish(c, parent ? parent : &none, &k, &b, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = &res), 0, -1));
	return res;
}

static void test_below_the_last(void)
{
	struct gpc_config cfg = cache_config(BLOCKS, 0);
	gpc_block b[2], far;
	gpc_key k;

	cfg.max_blocks = 64;
	c = cache_make(&cfg, NULL);
	if (pool_new(c, GPC_VRAM, BLOCKS, 1, 0) != 1)
		bail("pool 1");
	k = key_of(c, 1);
	must(gpc_reserve(c, 0, 2, b, NULL, 0, 60000));
	must(gpc_reserve(c, 1, 1, &far, NULL, 0, 60000));
	is_int(publish(NULL, 1, far), far, "the last one, in space 1");
	is_int(publish(&k, 2, b[0]), -EXDEV, "is no parent in space 0");
	is_int(publish(NULL, 1, b[0]), b[0], "the last one, in space 0");
	must(gpc_release(c, &far, 1));
	must(gpc_release(c, b, 1));
	is_int(gpc_drop(c, &far, 1, NULL, 0, -1) + gpc_drop(c, b, 1, NULL, 0, -1), 2, "goes");
	is_int(publish(&k, 2, b[1]), -ENOENT, "and is no parent then");
	must(gpc_release(c, &b[1], 1));
	clean(c, "below the last one");
	cache_end(c);
}

static int body(void)
{
	c = cache_new(BLOCKS, 0);
	chain_make(c, 0, 1, FIRST, NULL);
	settle(c);
	test_withdrawn();
	test_in_order();
	is_int((int)stats_of(c, -1).reserved, 0, "all is given back");
	clean(c, "reserved and given back");
	cache_end(c);
	test_below_the_last();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(30, body, cache_dir_remove);
}
