/* SPDX-License-Identifier: Apache-2.0 */
/* A writer that died between what a command does and its answer: the successor runs it a
 * second time, among others.  The state such a writer leaves is made by hand.
 * Tests: lib/index/writer/command.c lib/index/takeover/others.c */
#include "t/lib/cache.h"

#include "index/peer/handle.h"
#include "index/peer/ring.h"

#define WAITING 64 /* commands of one turn of a ring */

static struct shm_seat *seat_of(gpc *c)
{
	return seg_seat(&c->seg, c->peer);
}

/* Of blocks that wait for room, and one that is given back behind them. */
static void submit(gpc *b, uint32_t op, gpc_block block, uint32_t life)
{
	struct shm_command *cmd = seg_command(&b->seg, b->peer, seat_of(b)->head);

	*cmd = (struct shm_command){
		.op = (uint8_t)op, .count = 1, .block = block, .result = CMD_PENDING
	};
	if (op == CMD_DROP)
		cmd->drop.life = life;
	else if (op == CMD_FREE)
		cmd->free.life = life;
	store_release(&seat_of(b)->head, seat_of(b)->head + 1);
}

static void free_by_hand(gpc *c, gpc_block block)
{
	struct shm_record *r;
	uint8_t *index = NULL;

	must(segment_map_writer(&c->seg, &index));
	r = SEG_AT(index, c->seg.at.record, struct shm_record, (uint32_t)block);
	store_release(&r->word, WORD(FREE, WORD_GEN(r->word) + 1));
	r->owner = SHM_NO_PEER;
	segment_unmap_writer(&c->seg, index);
}

static void test_free(void)
{
	gpc *c = cache_new(4, 0), *b = cache_attach(0, 0);
	uint64_t at, life;
	gpc_block x[4];
	int i, given = 0;

	serve_begin(c);
	must(gpc_reserve(b, 0, 4, x, NULL, 0, 60000));
	serve_end();
	must(gpc_writer_drop(c));
	at = seat_of(b)->head;
	life = ring_life(b, x[0]);
	for (i = 0; i < WAITING; i++)
		submit(b, CMD_RESERVE, 0, 0);
	submit(b, CMD_FREE, x[0], life);
	free_by_hand(c, x[0]); /* and dies */
	must(gpc_writer_take(c, 0, 0));
	for (i = 0; i < 3; i++)
		must(gpc_writer_serve(c, 10));
	is_int(seg_command(&b->seg, b->peer, at + WAITING)->result, -EPERM,
	       "the block was given back already");
	for (i = 0; i < WAITING; i++)
		given += seg_command(&b->seg, b->peer, at + (uint64_t)i)->result == 1;
	is_int(given, 1, "and is one reservation's");
	cache_end(c);
}

/* All answered, and the tail not stored. */
static void test_tail(void)
{
	gpc *c = cache_new(4, 0), *b = cache_attach(0, 0);
	static gpc_block none[SHM_RING];
	gpc_ticket t;
	int i, n = -EAGAIN;

	must(gpc_drop(b, none, SHM_RING, &t, 0, 0));
	must(gpc_writer_serve(c, 100));
	is_int(gpc_ticket_wait(b, t, 1000), 0, "a whole ring is answered");
	must(gpc_writer_drop(c));
	store_release(&seat_of(b)->tail, seat_of(b)->tail - SHM_RING);
	is_int(gpc_drop(b, none, 1, &t, 0, 0), -EAGAIN, "a full ring");
	must(gpc_writer_take(c, 0, 0));
	for (i = 0; i < 3 && n < 0; i++) {
		must(gpc_writer_serve(c, 10));
		n = gpc_drop(b, none, 1, &t, 0, 0);
	}
	is_int(n, 0, "is empty for the next writer");
	must(gpc_writer_serve(c, 10));
	is_int(gpc_ticket_wait(b, t, 1000), 0, "and goes on");
	cache_end(c);
}

/* Who evicts from a pool of somebody else's: whose command it was is not in that one's ring. */
static struct {
	gpc *a, *b;
	int pool, evicted;
	gpc_block out;
} owner;

static void *keep(void *arg)
{
	struct gpc_pool p = pool_of(GPC_VRAM, 2, 1);
	gpc_key k = key_of(owner.a, 5);
	gpc_block b;

	p.flags = GPC_POOL_CALLER;
	owner.pool = must(gpc_pool_make(owner.a, &p, NULL, -1));
	b = GPC_BLOCK(owner.pool, 0);
	must(gpc_publish(owner.a, NULL, &k, &b, 1, NULL, 0, -1));
	must(gpc_release(owner.a, &b, 1));
	return arg;
}

static void *evict_owners(void *arg)
{
	gpc_block none = 1;
	int i;

	for (i = 0; i < 10; i++) /* the command's number is to be one of the owner's */
		must(gpc_drop(owner.b, &none, 1, NULL, 0, -1));
	owner.evicted = gpc_evict(owner.b, owner.pool, 1, &owner.out, 0, 5000);
	return arg;
}

static void beside(gpc *c, void *(*run)(void *arg))
{
	pthread_t thread;

	serve_begin(c);
	pthread_create(&thread, NULL, run, NULL);
	pthread_join(thread, NULL);
	serve_end();
}

static void test_owner(void)
{
	struct gpc_config cfg = cache_config(2, 0);
	uint64_t at;
	gpc *c, *d;
	int section, i;

	cfg.max_blocks = 64;
	cfg.max_pools = 4;
	cfg.max_peers = 8;
	c = cache_make(&cfg, NULL);
	owner.a = cache_attach(0, 0);
	owner.b = cache_attach(0, 0);
	d = cache_attach(0, 0);
	chain_make(c, 0, 1, 1, NULL);
	beside(c, keep);
	beside(c, evict_owners);
	is_int(owner.evicted, 1, "a block of the owner's goes back to it");
	section = must(gpc_section_enter(d));
	at = seat_of(owner.a)->head;
	for (i = 0; i < WAITING; i++)
		submit(owner.a, CMD_NOP, 0, 0);
	store_release(&seat_of(owner.a)->head, at);
	submit(owner.a, CMD_EVICT, 0, 0);
	seg_command(&owner.a->seg, owner.a->peer, at)->count = WAITING;
	store_release(&seat_of(owner.a)->head, at + WAITING);
	must(gpc_writer_serve(c, 10));
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	gpc_section_leave(d, section);
	for (i = 0; i < 4; i++)
		must(gpc_writer_serve(c, 10));
	is_int(seg_command(&owner.a->seg, owner.a->peer, at)->result, 1,
	       "its own evict elsewhere has one block");
	is_int(GPC_POOL(seg_command(&owner.a->seg, owner.a->peer, at)->block), 0,
	       "of the pool it asked for");
	cache_end(c);
}

/* Its choice stands in the slot already, and is gone by the time of the second run. */
static void test_demote(void)
{
	gpc *c = cache_new(4, 4), *b = cache_attach(0, 0);
	struct shm_command *cmd;
	gpc_block x, y;

	chain_make(c, 0, 1, 1, &x);
	chain_make(c, 0, 11, 1, &y);
	must(gpc_drop(c, &x, 1, NULL, 0, -1));
	must(gpc_writer_drop(c));
	cmd = seg_command(&b->seg, b->peer, seat_of(b)->head);
	submit(b, CMD_DEMOTE, x, 0);
	cmd->move.any = 1;
	cmd->move.to_pool = 1;
	must(gpc_writer_take(c, 0, 0));
	must(gpc_writer_serve(c, 10));
	is_int(cmd->result, 1, "a demotion of any block finds another one");
	is_int(cmd->block, y, "one that is there");
	must(gpc_close(b));
	must(gpc_writer_serve(c, 10));
	clean(c, "a second choice");
	cache_end(c);
}

/* The last command of b was done, and its writer died before the answer. */
static void unanswer(gpc *b)
{
	struct shm_seat *s = seat_of(b);

	store_release(&s->tail, s->head - 1);
	seg_command(&b->seg, b->peer, s->tail)->result = CMD_PENDING;
}

/* Published, and dropped by another peer's command before the publisher's runs again. */
static void test_dropped(void)
{
	gpc *c = cache_new(4, 0), *b = cache_attach(0, 0);
	gpc_block x, resident = GPC_NONE;
	struct shm_command *cmd;
	gpc_ticket t;
	gpc_key k;
	int i;

	serve_begin(c);
	must(gpc_reserve(b, 0, 1, &x, NULL, 0, 60000));
	serve_end();
	k = key_of(b, 1);
	cmd = seg_command(&b->seg, b->peer, seat_of(b)->head);
	must(gpc_publish(b, NULL, &k, &x, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = &resident, .ticket = &t), 0,
			 0));
	must(gpc_writer_serve(c, 10));
	must(gpc_writer_drop(c));
	is_int(cmd->result, x, "a writer has published");
	unanswer(b);
	submit(c, CMD_DROP, x, 0);
	must(gpc_writer_take(c, 0, 0));
	for (i = 0; i < 3; i++)
		must(gpc_writer_serve(c, 10));
	is_int(seg_command(&c->seg, c->peer, seat_of(c)->head - 1)->result, 1, "it was live");
	is_int(gpc_ticket_wait(b, t, 1000), 0, "the second run knows it");
	is_int(resident, x, "as the publisher's block");
	is_int(gpc_release(b, &x, 1), 0, "which it holds");
	must(gpc_writer_serve(c, 10));
	clean(c, "published and dropped");
	cache_end(c);
}

/* Published; then the next writer died too, as it began to drop it, and so did who had asked. */
static void test_half_dropped(void)
{
	gpc *c = cache_new(4, 0), *b = cache_attach(0, 0);
	gpc_block x, resident = GPC_NONE;
	uint8_t *index = NULL;
	gpc_ticket t;
	gpc_key k;

	serve_begin(c);
	must(gpc_reserve(b, 0, 1, &x, NULL, 0, 60000));
	serve_end();
	k = key_of(b, 1);
	must(gpc_publish(b, NULL, &k, &x, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = &resident, .ticket = &t), 0,
			 0));
	must(gpc_writer_serve(c, 10));
	must(gpc_writer_drop(c));
	unanswer(b);
	must(segment_map_writer(&c->seg, &index));
	SEG_AT(index, c->seg.at.record, struct shm_record, (uint32_t)x)->owner = SHM_NO_PEER;
	segment_unmap_writer(&c->seg, index);
	must(gpc_writer_take(c, 0, 0));
	must(gpc_writer_serve(c, 10));
	is_int(gpc_ticket_wait(b, t, 1000), 0, "a block that was nearly dropped was published");
	is_int(resident, x, "as the publisher's");
	is_int(find(c, 1), x, "and is there");
	is_int(gpc_release(b, &x, 1), 0, "it holds it");
	must(gpc_writer_serve(c, 10));
	clean(c, "nearly dropped");
	cache_end(c);
}

static void test_pool(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_pool p = pool_of(GPC_RAM, 4, 0), got = { .size = sizeof(got) };
	gpc *c, *b;
	int number;

	cfg.max_pools = 4;
	cfg.max_blocks = 256;
	c = cache_make(&cfg, NULL);
	b = cache_attach(0, 0);
	serve_begin(c);
	number = must(gpc_pool_make(b, &p, NULL, -1));
	serve_end();
	must(gpc_writer_drop(c));
	unanswer(b);
	must(gpc_writer_take(c, 0, 0));
	must(gpc_writer_serve(c, 10));
	is_int(seg_command(&b->seg, b->peer, seat_of(b)->head - 1)->result, number,
	       "a pool that was added before is answered again");
	is_int(gpc_pool_get(c, number + 1, &got), -ENOENT, "and not added again");
	must(gpc_close(b));
	must(gpc_writer_serve(c, 10));
	clean(c, "a pool");
	cache_end(c);
}

/* A command that waits for a grace period has no answer: the next writer has it as well. */
struct parked {
	gpc *c;
	gpc_block b;
	int got;
};

static void *evict_one(void *arg)
{
	struct parked *p = arg;

	p->got = gpc_evict(p->c, 0, 1, &p->b, 0, 5000);
	return NULL;
}

static void test_parked(void)
{
	gpc *c = cache_new(4, 0), *d = cache_attach(0, 0);
	struct parked p = { .c = cache_attach(0, 0), .b = GPC_NONE, .got = -77 };
	gpc_block b[4];
	pthread_t thread;
	int section, i;

	for (i = 0; i < 4; i++)
		chain_make(c, 0, 1 + (uint64_t)i, 1, &b[i]);
	section = must(gpc_section_enter(d));
	if (pthread_create(&thread, NULL, evict_one, &p))
		bail("no thread");
	for (i = 0; i < 2000 && find(c, 1) >= 0; i++)
		must(gpc_writer_serve(c, 5));
	is_int(find(c, 1), -1, "one is evicted, and held back");
	must(gpc_drop(p.c, &b[3], 1, NULL, 0, 0));
	for (i = 0; i < 2000 && find(c, 4) >= 0; i++)
		must(gpc_writer_serve(c, 5));
	is_int(find(c, 4), -1, "what stands behind it in the ring is done, and answered");
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	gpc_section_leave(d, section);
	serve_begin(c);
	pthread_join(thread, NULL);
	serve_end();
	is_int(p.got, 1, "the next writer answers");
	is_int(p.b, b[0], "with that one");
	is_int(stats_of(c, -1).live, 2, "and takes no other");
	must(gpc_close(p.c));
	must(gpc_close(d));
	must(gpc_writer_serve(c, 10));
	clean(c, "a command that waited");
	cache_end(c);
}

static int body(void)
{
	cache_thread = false;
	test_free();
	test_tail();
	test_owner();
	test_demote();
	test_dropped();
	test_half_dropped();
	test_pool();
	test_parked();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
