/* SPDX-License-Identifier: Apache-2.0 */
/* A block that is given up before its publish is answered is held by nobody from the answer on,
 * though its peer makes no call any more; and an answer that is taken late ends nothing that others
 * have of the block by then.
 * Tests: lib/index/peer/hold.c lib/index/request/publish.c lib/index/table/state.h lib/index/table/parked.c
 *   lib/index/writer/grant_named.c */
#include "config.h"

#include "index/peer/hold.h"
#include "index/segment/shm.h"
#include "t/lib/cache.h"

#define BLOCKS 8

static gpc *writer, *owner, *other;
static int pool;
static gpc_block gone[BLOCKS];

static void all_begin(uint32_t blocks)
{
	struct gpc_config cfg = cache_config(blocks, 0);

	cache_thread = false;
	cfg.max_blocks = blocks + 2 * BLOCKS;
	writer = cache_make(&cfg, NULL);
	owner = cache_attach(0, 0);
	other = cache_attach(0, 0);
}

static void all_end(void)
{
	must(gpc_close(other));
	must(gpc_close(owner));
	cache_end(writer);
}

static void publish_nowait(const gpc_block *blocks, uint32_t n, uint64_t key, uint32_t flags,
			   gpc_block *resident)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		gpc_key k = key_of(owner, key + i);

		must(gpc_publish(
			owner, NULL, &k, &blocks[i], 1,
			resident ? GPC_OPTIONS(gpc_publish_options, .resident = &resident[i])
				 : NULL,
			flags, 0));
	}
}

static uint16_t cell_of(gpc_block block)
{
	return load_relaxed(seg_cell(&owner->seg, pool_record(&owner->seg, block), owner->peer));
}

/* ---- blocks of the owner's own ---- */

/* Published, released, and answered; the owner comes no more. */
static void owned_begin(gpc_block *blocks)
{
	struct gpc_pool p = pool_of(GPC_VRAM, BLOCKS, 0);
	int i;

	all_begin(1);
	p.flags = GPC_POOL_CALLER;
	serve_begin(writer);
	pool = must(gpc_pool_make(owner, &p, NULL, 10000));
	serve_end();
	for (i = 0; i < BLOCKS; i++)
		blocks[i] = GPC_BLOCK(pool, i);
	publish_nowait(blocks, BLOCKS, 1, 0, NULL);
	is_int(gpc_release(owner, blocks, BLOCKS), 0, "they are released before the answer");
	serve_begin(writer);
}

static void owned_end(void)
{
	must(gpc_ticket_wait(owner, GPC_TICKET_ALL, 10000));
	is_int((int)stats_of(owner, (int)owner->peer).refs, 0, "no reference is left");
	clean(owner, "behind the answers");
	serve_end();
	all_end();
}

static void owned_is_evicted(void)
{
	gpc_block blocks[BLOCKS];

	owned_begin(blocks);
	is_int(gpc_evict(other, pool, BLOCKS, gone, 0, 10000), BLOCKS,
	       "CALLER blocks: another peer evicts all of them");
	owned_end();
}

static void owned_is_removed(void)
{
	gpc_block blocks[BLOCKS];

	owned_begin(blocks);
	is_int(gpc_pool_clear(other, pool, 0, GPC_REMOVE | GPC_IF_IDLE, 10000), 0,
	       "CALLER blocks: another peer removes their pool, which is idle");
	owned_end();
}

/* Given up, and published once more under another key before the first answer. */
static void owned_is_published_again(bool refused_first)
{
	gpc_block b, one = GPC_NONE, two = GPC_NONE;
	struct gpc_pool p = pool_of(GPC_VRAM, BLOCKS, 0);
	gpc_key none, first, second;

	all_begin(1);
	none = key_of(owner, 100);
	first = key_of(owner, 101);
	second = key_of(owner, 102);
	p.flags = GPC_POOL_CALLER;
	serve_begin(writer);
	pool = must(gpc_pool_make(owner, &p, NULL, 10000));
	serve_end();
	b = GPC_BLOCK(pool, 3);
	must(gpc_publish(owner, refused_first ? &none : NULL, &first, &b, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = &one), 0, 0));
	is_int(gpc_release(owner, &b, 1), 0, "again: given up");
	must(gpc_publish(owner, NULL, &second, &b, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = &two), 0, 0));
	is_int(hold_of(cell_of(b)), HOLD_PENDING, "again: the second publish is under way");
	must(gpc_writer_serve(writer, 0));
	serve_begin(writer);
	must(gpc_ticket_wait(owner, GPC_TICKET_ALL, 10000));
	is_int(one, refused_first ? -ENOENT : b, "again: the answer of the first one");
	is_int(two, refused_first ? b : -EPERM, "again: and of the second one");
	is_int(cell_of(b), refused_first, "again: which alone has a reference");
	is_int((int)stats_of(owner, (int)owner->peer).refs, refused_first, "again: so it counts");
	if (refused_first)
		is_int(gpc_release(owner, &b, 1), 0, "again: and is released");
	is_int(gpc_evict(other, pool, 1, gone, 0, 10000), 1, "again: and goes");
	owned_end();
}

/* ---- blocks of the cache, where the ring has no room for the way back ---- */

static gpc_block all[SHM_RING];
static gpc_block resident[SHM_RING];

/* flags: of the publish; the answers are not taken. */
static void full_begin(uint32_t flags)
{
	uint32_t i;

	all_begin(SHM_RING);
	for (i = 0; i < SHM_RING; i++)
		all[i] = GPC_NONE;
	serve_begin(writer);
	must(gpc_reserve(owner, 0, SHM_RING, all, NULL, 0, 10000));
	serve_end();
	publish_nowait(all, SHM_RING, 1000, flags, resident);
	is_int(gpc_release(owner, all, SHM_RING), 0, "all are released before the answer");
	is_int(hold_of(cell_of(all[7])), HOLD_BACK, "and the ring has no room for more");
	must(gpc_writer_serve(writer, 0));
	must(gpc_writer_serve(writer, 0));
}

static void full_end(void)
{
	serve_begin(writer);
	must(gpc_ticket_wait(owner, GPC_TICKET_ALL, 10000));
	is_int((int)stats_of(owner, (int)owner->peer).refs, 0, "no reference of it is left");
	clean(owner, "behind the answers");
	serve_end();
	all_end();
}

static void full_is_reserved(void)
{
	static gpc_block got[SHM_RING];
	int n;

	full_begin(0);
	serve_begin(writer);
	n = gpc_reserve(other, 0, SHM_RING, got, NULL, 0, 10000);
	is_int(n, SHM_RING, "full ring: another peer gets all of these blocks");
	if (n > 0)
		must(gpc_release(other, got, SHM_RING));
	serve_end();
	full_end();
}

static void full_is_dropped(void)
{
	struct gpc_pool p = { .size = sizeof(p) };

	full_begin(0);
	serve_begin(writer);
	is_int(gpc_drop(other, all, 1, NULL, 0, 10000), 1, "full ring: one is dropped");
	do
		must(gpc_pool_get(other, 0, &p));
	while (p.dying);
	ok(find(other, 1000) < 0, "full ring: and becomes free");
	serve_end();
	full_end();
}

/* A thread of the same handle has a reference of its own by the time that the answer is taken. */
static void full_is_another_threads(uint32_t flags, const char *what)
{
	gpc_key k;
	gpc_block b = GPC_NONE;

	full_begin(flags);
	serve_begin(writer);
	must(gpc_evict(other, 0, 1, gone, 0, 10000)); /* the writer looks at the row */
	serve_end();
	k = key_of(owner, 1000 + 9);
	is_int(gpc_lookup(owner, GPC_SPACE(0), &k, 1, &b, GPC_REF), 1, "%s: one is found", what);
	serve_begin(writer);
	must(gpc_ticket_wait(owner, GPC_TICKET_ALL, 10000));
	serve_end();
	is_int(cell_of(b), 1, "%s: and the reference stays when the answers are taken", what);
	is_int(gpc_release(owner, &b, 1), 0, "%s: it is released", what);
	full_end();
}

static int body(void)
{
	owned_is_evicted();
	owned_is_removed();
	owned_is_published_again(false);
	owned_is_published_again(true);
	full_is_reserved();
	full_is_dropped();
	full_is_another_threads(0, "publish");
	full_is_another_threads(GPC_NO_REF, "publish without references");
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
