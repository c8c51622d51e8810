/* SPDX-License-Identifier: Apache-2.0 */
/* References: cells, what they count, and that a granted one is good.
 * Tests: lib/index/peer/refs.c lib/index/reader/take.c */
#include "config.h"

#include <errno.h>
#include <sched.h>

#include "t/lib/made.h"
#include "index/peer/hold.h"
#include "t/lib/tap.h"

#define VRAM GPC_BLOCK(0, 0)
#define RAM  GPC_BLOCK(1, 0)

static struct made f;

/* 64 blocks of VRAM, 64 of RAM, both in space 0 */
static void begin(void)
{
	made_in_memory(&f, 128, 64);
	made_add_pool(&f, 0, GPC_VRAM, 0, 0, 64);
	made_add_pool(&f, 1, GPC_RAM, 0, 64, 64);
}

static uint16_t cell_of(gpc_block block)
{
	return *refs_cell(&f.c, pool_record(&f.c.seg, block));
}

static int take(gpc_block block, gpc_key key)
{
	struct ref_sum sum = { 0 };
	int err = refs_take(&f.c, pool_record(&f.c.seg, block), block, &key, &sum);

	refs_account(&f.c, &sum);
	return err;
}

static bool drop(gpc_block block)
{
	struct ref_sum sum = { 0 };
	bool had = refs_drop(&f.c, pool_record(&f.c.seg, block), block, &sum);

	refs_account(&f.c, &sum);
	return had;
}

static bool step(gpc_block block, enum hold_event event)
{
	struct ref_sum sum = { 0 };
	bool changed = hold_step(&f.c, pool_record(&f.c.seg, block), block, event, &sum);

	refs_account(&f.c, &sum);
	return changed;
}

static void is_counted(uint64_t refs, uint32_t vram, uint32_t ram, const char *when)
{
	ok(f.seat->refs == refs && f.seat->in_use[0] == vram && f.seat->in_use[1] == ram,
	   "%s: %d references, %u and %u blocks held", when, (int)refs, vram, ram);
}

static void test_take(void)
{
	begin();
	made_live(&f, VRAM + 5, made_key(1), 7);
	made_live(&f, RAM + 5, made_key(2), 1);
	is_int(take(VRAM + 5, made_key(1)), 0, "a live block with its key");
	is_counted(1, 1, 0, "one");
	is_int(take(VRAM + 5, made_key(1)), 0, "once more");
	is_int(take(RAM + 5, made_key(2)), 0, "and one in RAM");
	is_counted(3, 1, 1, "three");
	is_int(cell_of(VRAM + 5), 2, "the cell counts");
	is_int(*seg_cell(&f.c.seg, 5, 1), 0, "the neighbour's cell does not");
	ok(drop(VRAM + 5), "dropped");
	is_counted(2, 1, 1, "two");
	ok(drop(VRAM + 5) && drop(RAM + 5), "all dropped");
	is_counted(0, 0, 0, "none");
	ok(!drop(VRAM + 5), "there is none to drop");
	is_int(cell_of(VRAM + 5), 0, "the cell does not wrap");
	is_counted(0, 0, 0, "still none");
	made_free(&f);
}

static void is_stale(gpc_block block, gpc_key key, const char *why)
{
	is_int(take(block, key), -ESTALE, "stale: %s", why);
	ok(!cell_of(block) && !f.seat->refs && !f.seat->in_use[0], "and nothing is left of it");
}

static void test_stale(void)
{
	struct shm_record *r;
	gpc_key key = made_key(1);
	uint32_t state;

	begin();
	r = made_live(&f, VRAM + 9, key, 3);
	key.w[0] ^= 1ull << 63;
	is_stale(VRAM + 9, key, "the first half of another key");
	key = made_key(1);
	key.w[1] ^= 1;
	is_stale(VRAM + 9, key, "the last bit of another key");
	key = made_key(1);
	for (state = 0; state < 8; state++) {
		if (state == LIVE)
			continue;
		r->word = WORD(state, 3);
		is_stale(VRAM + 9, key, "a state that is not LIVE");
	}
	r->word = WORD(LIVE, 0);
	is_int(take(VRAM + 9, key), 0, "generation 0 is one like the others");
	ok(drop(VRAM + 9), "dropped");
	made_kill_pool(&f, 0);
	is_stale(VRAM + 9, key, "its pool has died");
	made_add_pool(&f, 0, GPC_VRAM, 0, 1, 64);
	is_int(refs_take(&f.c, 9, VRAM + 9, &key, &(struct ref_sum){ 0 }), -ESTALE,
	       "stale: the pool has other records now");
	is_int(*refs_cell(&f.c, 9), 0, "and nothing is left of it");
	made_free(&f);
}

static void test_cap(void)
{
	begin();
	made_live(&f, VRAM, made_key(1), 1);
	*refs_cell(&f.c, 0) = REF_CAP - 1;
	is_int(take(VRAM, made_key(1)), 0, "the last one below the cap");
	is_int(take(VRAM, made_key(1)), -EOVERFLOW, "no more");
	is_int(cell_of(VRAM), REF_CAP, "and the cell stays");
	is_int(f.seat->refs, 1, "and the count");
	ok(drop(VRAM), "dropped");
	is_int(take(VRAM, made_key(1)), 0, "and taken again");
	made_free(&f);
}

static void reserved(gpc_block block, uint32_t generation)
{
	struct shm_record *r = f.record + pool_record(&f.c.seg, block);

	r->word = WORD(RESERVED, generation);
	r->owner = 0;
}

/* reserve, publish, release: the block is held once throughout */
static void test_steps(void)
{
	begin();
	reserved(VRAM + 3, 1);
	ok(step(VRAM + 3, HOLD_GRANT), "reserved");
	ok(!step(VRAM + 3, HOLD_GRANT), "twice is once");
	is_counted(0, 1, 0, "reserved");
	ok(!drop(VRAM + 3), "a reservation is no reference");
	ok(step(VRAM + 3, HOLD_SEND), "the publish is sent");
	ok(!step(VRAM + 3, HOLD_SEND), "one at a time");
	is_counted(1, 1, 0, "publishing");
	ok(!drop(VRAM + 3), "nor is what may be one soon");
	made_live(&f, VRAM + 3, made_key(1), 1);
	is_int(take(VRAM + 3, made_key(1)), 0, "found by another thread before the answer");
	is_int(cell_of(VRAM + 3), 2, "which settles it");
	is_counted(2, 1, 0, "found");
	ok(!step(VRAM + 3, HOLD_LIVE), "the answer has nothing to add");
	is_counted(2, 1, 0, "published");
	ok(drop(VRAM + 3) && drop(VRAM + 3), "released");
	is_counted(0, 0, 0, "released");

	reserved(RAM + 63, 1);
	ok(step(RAM + 63, HOLD_GRANT) && step(RAM + 63, HOLD_SEND), "the last block");
	ok(step(RAM + 63, HOLD_REFUSED), "a publish that is refused");
	is_counted(0, 0, 1, "refused");
	ok(step(RAM + 63, HOLD_GIVE), "and given back");
	is_counted(0, 0, 0, "given back");
	ok(step(RAM + 63, HOLD_FREED) && !cell_of(RAM + 63), "on its way");
	made_free(&f);
}

/* Given up while the publish was under way, and live all the same: others may have it. */
static void test_given_up(void)
{
	begin();
	reserved(VRAM + 4, 1);
	ok(step(VRAM + 4, HOLD_GRANT) && step(VRAM + 4, HOLD_SEND) && step(VRAM + 4, HOLD_GIVE),
	   "given up before the answer");
	is_counted(0, 0, 0, "given up");
	made_live(&f, VRAM + 4, made_key(1), 1);
	is_int(take(VRAM + 4, made_key(1)), 0, "live, and found by another thread");
	is_int(cell_of(VRAM + 4), 1, "whose reference is the only one");
	is_counted(1, 1, 0, "found");
	ok(drop(VRAM + 4), "released");
	is_counted(0, 0, 0, "released");

	*refs_cell(&f.c, 5) = CELL_RESERVED;
	made_live(&f, VRAM + 5, made_key(2), 1);
	is_int(take(VRAM + 5, made_key(2)), -ESTALE, "a cell that cannot be gives no reference");
	is_int(cell_of(VRAM + 5), CELL_RESERVED, "and stays");
	is_counted(0, 0, 0, "still none");
	made_free(&f);
}

static void test_stock(void)
{
	uint16_t *cell;

	begin();
	reserved(VRAM + 6, 1);
	cell = refs_cell(&f.c, 6);
	*cell = CELL_STOCK;
	ok(!step(VRAM + 6, HOLD_SEND) && !step(VRAM + 6, HOLD_GIVE),
	   "the stock is not the program's");
	ok(hold_take(cell), "which takes it");
	ok(!hold_take(cell), "once");
	ok(step(VRAM + 6, HOLD_SEND) && step(VRAM + 6, HOLD_REFUSED), "to publish it");
	ok(hold_put(cell), "and puts it back");
	ok(!hold_put(cell), "once");
	*cell = 0;
	ok(!hold_take(cell), "the writer was faster");
	made_free(&f);
}

static void test_gpc_ref(void)
{
	gpc_block blocks[200];
	gpc_key keys[200];
	uint64_t tick;
	int i;

	begin();
	for (i = 0; i < 128; i++) {
		keys[i] = made_key((uint64_t)i);
		blocks[i] = i < 64 ? VRAM + i : RAM + i - 64;
		made_live(&f, blocks[i], keys[i], 1);
	}
	is_int(gpc_ref(&f.c, keys, blocks, 0), 0, "nothing asked, nothing given");
	is_int(gpc_ref(&f.c, NULL, NULL, 0), 0, "NULL is fine for nothing");
	is_int(gpc_ref(&f.c, NULL, blocks, 1), -EINVAL, "and for nothing else");
	is_int(gpc_ref(&f.c, keys, NULL, 1), -EINVAL, "blocks neither");
	tick = f.shared->tick;
	is_int(gpc_ref(&f.c, keys, blocks, 128), 128, "good hints, more than one group");
	is_counted(128, 64, 64, "gpc_ref");
	is_int((long long)(f.shared->tick - tick), 1, "one tick for all");
	ok(seg_last_use(&f.c.seg, 0) == (f.shared->tick << STAMP_BITS | STAMP_PLACES) &&
		   seg_last_use(&f.c.seg, 127) == seg_last_use(&f.c.seg, 0) - 127,
	   "it is a use of each, at its place");
	is_int((long long)f.seat->lookups, 0, "but no lookup");

	f.record[100].word = WORD(DYING, 1);
	is_int(gpc_ref(&f.c, keys, blocks, 128), 100, "it stops at the first stale one");
	is_int((long long)f.seat->stale_refs, 1, "which is counted");
	is_counted(228, 64, 64, "gpc_ref");
	blocks[1] = GPC_NONE;
	is_int(gpc_ref(&f.c, keys, blocks, 128), 1, "-1 stops it");
	blocks[1] = VRAM + 64;
	is_int(gpc_ref(&f.c, keys, blocks, 128), 1, "so does a slot that no pool has");
	blocks[1] = GPC_BLOCK(5, 1);
	is_int(gpc_ref(&f.c, keys, blocks, 128), 1, "a pool that is not there");
	blocks[1] = INT32_MAX;
	is_int(gpc_ref(&f.c, keys, blocks, 128), 1, "or one that cannot be");
	blocks[1] = VRAM + 2;
	is_int(gpc_ref(&f.c, keys, blocks, 128), 1, "and a block of another key");

	*refs_cell(&f.c, 0) = REF_CAP;
	is_int(gpc_ref(&f.c, keys, blocks, 1), -EOVERFLOW, "the cap on the first is an error");
	*refs_cell(&f.c, 2) = REF_CAP;
	is_int(gpc_ref(&f.c, keys + 2, blocks + 2, 1), -EOVERFLOW, "always");
	is_int(gpc_ref(&f.c, keys + 3, blocks + 3, 5), 5, "other blocks are not concerned");
	f.c.readonly = true;
	is_int(gpc_ref(&f.c, keys, blocks, 1), -EROFS, "read-only: no references");
	made_free(&f);
}

/* One key moves between two blocks for ever, as promotion and demotion do it: target
 * LIVE, the entry's block word, source DYING, and a block is used again only after a
 * grace period and with an empty row.  Readers that acquire it must have it every
 * time, and what they have must not change under their reference. */
#define TURNS 30000

static struct made *peers[MADE_PEERS];
static struct probe_entry *entry;
static uint64_t payload[128], missed, wrong, granted, stop;

static void *acquirer(void *arg)
{
	gpc *c = &peers[(uintptr_t)arg]->c;
	gpc_key key = made_key(1);
	struct ref_sum sum;
	gpc_block block;
	uint32_t n;

	for (n = 1; !load_relaxed(&stop); n++) {
		if (n % 64 == 0)
			sched_yield(); /* there may be two processors */
		if (gpc_acquire(c, 0, &key, 1, &block, GPC_QUIET) != 1) {
			count_add(&missed, 1);
			continue;
		}
		if (load_relaxed(&payload[pool_record(&c->seg, block)]) != key.w[0])
			count_add(&wrong, 1);
		count_add(&granted, 1);
		sum = (struct ref_sum){ 0 };
		refs_drop(c, pool_record(&c->seg, block), block, &sum);
		refs_account(c, &sum);
	}
	return NULL;
}

static bool row_is_zero(uint32_t record)
{
	uint32_t i, any = 0;

	for (i = 0; i < MADE_PEERS; i++)
		any |= load_acquire(seg_cell(&f.c.seg, record, i));
	return !any;
}

static void move(gpc_block from, gpc_block to, uint32_t generation)
{
	struct shm_record *source = &f.record[pool_record(&f.c.seg, from)];
	struct shm_record *target = &f.record[pool_record(&f.c.seg, to)];
	gpc_key key = made_key(1);
	uint64_t cookie;

	store_relaxed(&payload[target - f.record], key.w[0]);
	store_relaxed(&target->key[0], key.w[0]);
	store_relaxed(&target->key[1], key.w[1]);
	store_release(&target->word, WORD(LIVE, generation));
	store_release(&entry->w[3], (uint32_t)to + 1);
	order_swap32(&source->word, WORD(DYING, WORD_GEN(source->word)));
	cookie = epoch_start(&f.c.seg);
	while (!epoch_done(&f.c.seg, cookie) || !row_is_zero(pool_record(&f.c.seg, from)))
		sched_yield();
	store_release(&source->word, WORD(FREE, WORD_GEN(source->word)));
	store_relaxed(&payload[source - f.record], 0);
	store_relaxed(&source->key[0], 0);
	store_relaxed(&source->key[1], 0);
}

static void test_moving_key(void)
{
	struct made other;
	pthread_t thread[3];
	uint32_t i;

	begin();
	other = f; /* another process, as it were */
	other.c.peer = 1;
	pthread_mutex_init(&other.c.device_sections, NULL);
	peers[0] = &f;
	peers[1] = &other;
	payload[0] = made_key(1).w[0];
	made_live(&f, VRAM, made_key(1), 1);
	entry = made_put(&f, 0, made_key(1), VRAM);
	for (i = 0; i < ARRAY_SIZE(thread); i++)
		pthread_create(&thread[i], NULL, acquirer, (void *)(uintptr_t)(i / 2));
	for (i = 0; i < TURNS || load_relaxed(&granted) < TURNS; i += 2) {
		move(VRAM, RAM, i + 2);
		move(RAM, VRAM, i + 3);
	}
	store_relaxed(&stop, 1);
	for (i = 0; i < ARRAY_SIZE(thread); i++)
		pthread_join(thread[i], NULL);
	is_int((long long)missed, 0, "a key that moves is never missed");
	is_int((long long)wrong, 0, "and its bytes stay while they are referenced");
	is_counted(0, 0, 0, "in the end");
	ok(!seg_seat(&f.c.seg, 1)->refs && !seg_seat(&f.c.seg, 1)->in_use[0] &&
		   !seg_seat(&f.c.seg, 1)->in_use[1] && row_is_zero(0) && row_is_zero(64),
	   "nothing is left of the other peer's either");
	made_free(&f);
}

static int body(void)
{
	test_take();
	test_stale();
	test_cap();
	test_steps();
	test_given_up();
	test_stock();
	test_gpc_ref();
	test_moving_key();
	return done_testing();
}

int main(void)
{
	return tap_guard(50, body, NULL);
}
