/* SPDX-License-Identifier: Apache-2.0 */
/* A reserve that could go the short way (writer/plain.h), and must not: its call is withdrawn while the writer looks,
 * or another one has come before it and is not done. */
#include "t/lib/cache.h"

#include "peer/handle.h"

enum { BLOCKS = 8, FIRST = 5, SECOND = 2 };

static gpc *c;
static uint64_t *withdrawn;              /* in the middle of the next look; NULL: none */

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
			.op = op, .count = (uint16_t)(i ? 0 : count), .block = block, .to = GPC_NONE,
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
	struct shm_command *first = add(CMD_RESERVE, FIRST, GPC_NONE), *second = add(CMD_RESERVE, SECOND, GPC_NONE);
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
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(30, body, cache_dir_remove);
}
