/* SPDX-License-Identifier: Apache-2.0 */
/* Somebody takes a reference on a block that has been chosen to go, before it is DYING: the
 * reference is good, another block goes, and a pool of CALLER blocks says that one less can be
 * had.
 * Tests: lib/index/writer/retire.c lib/index/writer/grant_place.c */
#include "t/lib/moved.h"

static gpc_block wanted = GPC_NONE; /* with key 1; none: it is held */

struct writer;

void __real_meter_evicted(struct writer *w, uint32_t record);
void __wrap_meter_evicted(struct writer *w, uint32_t record);

/* Which the writer notes down when it has looked at the cells, and before it stores the state. */
void __wrap_meter_evicted(struct writer *w, uint32_t record)
{
	gpc_key k = key_of(d, 1);
	struct ref_sum sum = { 0 };

	if (wanted != GPC_NONE && pool_record(&d->seg, wanted) == record) {
		if (refs_take(d, record, wanted, &k, &sum))
			bail("a live block gives no reference");
		refs_account(d, &sum);
		wanted = GPC_NONE;
	}
	__real_meter_evicted(w, record);
}

static uint32_t state_of(gpc_block b)
{
	return WORD_STATE(seg_record(&c->seg, pool_record(&c->seg, b))->word);
}

static void let_go(gpc_block b)
{
	struct ref_sum sum = { 0 };

	refs_drop(d, pool_record(&d->seg, b), b, &sum);
	refs_account(d, &sum);
}

static void test_another_goes(void)
{
	gpc_block b[2], x = GPC_NONE;

	begin(0, 0);
	chain_make(c, vram, 2, 1, &b[1]);
	chain_make(c, vram, 1, 1, &b[0]);
	touch(c, 2);
	wanted = b[0];
	is_int(gpc_evict(c, vram, 1, &x, GPC_TAKE, 2000), 1, "one is evicted");
	is_int(wanted, GPC_NONE, "while the first is taken");
	is_int(x, b[1], "it is the other one");
	is_int(state_of(b[0]), DYING, "what is held stays as it is");
	clean(c, "held");
	let_go(b[0]);
	must(gpc_release(c, &x, 1));
	end("another goes");
}

static void test_caller(void)
{
	gpc_block b, x;
	int pool, before;

	begin(0, 0);
	settle(c);
	pool = pool_new(c, GPC_VRAM, 4, 1, GPC_POOL_CALLER);
	b = GPC_BLOCK(pool, 0);
	must(gpc_publish(c, NULL, &(gpc_key){ { key_of(c, 1).w[0], key_of(c, 1).w[1] } }, &b, 1,
			 NULL, 0, -1));
	must(gpc_release(c, &b, 1));
	before = gpc_pool_available(c, pool);
	wanted = b;
	reader_begins();
	refused(gpc_evict(c, pool, 1, &x, 0, 0), EAGAIN, "a block of the caller's goes");
	is_int(wanted, GPC_NONE, "while it is taken");
	is_int(state_of(b), DYING, "and readers are waited for");
	is_int(gpc_pool_available(c, pool), before - 1, "one less can be had");
	is_int((int)seg_pool(&c->seg, (uint32_t)pool)->lingering, 1, "and it is counted once");
	clean(c, "the caller's");
	let_go(b);
	reader_ends();
	end("the caller's");
}

/* It is held all the while. */
static void test_dropped(void)
{
	gpc_block b;

	begin(0, 0);
	b = in_pool(vram, 1);
	is_int(gpc_drop(c, &b, 1, NULL, 0, -1), 1, "dropped");
	must(gpc_writer_serve(c, 1));
	must(gpc_writer_serve(c, 1));
	is_int(state_of(b), DYING, "dropped: not free while it is held");
	must(gpc_release(c, &b, 1));
	end("dropped");
}

static int body(void)
{
	test_another_goes();
	test_dropped();
	test_caller();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(30, body, cache_dir_remove);
}
