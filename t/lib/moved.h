/* SPDX-License-Identifier: Apache-2.0 */
/* moved.h - keys that move while somebody looks for them.
 *
 * A reader asks step by step, in a section of its own, and between two steps the writer
 * does whole commands. */
#ifndef GPC_T_MOVED_H
#define GPC_T_MOVED_H

#include "cache.h"

#include "index/peer/handle.h"
#include "index/peer/refs.h"
#include "index/reader/probe_table.h"

enum { BLOCKS = 8 };

static gpc *c, *d; /* who moves, and writes; who reads */
static int vram, ram, section;

/* ---- a reader that stops where it likes ---- */

TAP_FN void reader_begins(void)
{
	section = must(handle_enter(d));
}

TAP_FN void reader_ends(void)
{
	int i;

	handle_leave(d, section);
	for (i = 0; i < 3; i++)
		must(gpc_writer_serve(c, 1));
}

TAP_FN gpc_block ask(uint32_t space, uint64_t n)
{
	gpc_key k = key_of(d, n);
	struct probe l;

	probe_begin(&l, d, GPC_SPACE(space));
	return probe_one(&l, &k);
}

/* Is there a reference to be had?  It goes back at once. */
TAP_FN bool gives(gpc_block b, uint64_t n)
{
	gpc_key k = key_of(d, n);
	struct ref_sum sum = { 0 };
	uint32_t record = pool_record(&d->seg, b);
	bool got = b >= 0 && !refs_take(d, record, b, &k, &sum);

	if (got)
		refs_drop(d, record, b, &sum);
	refs_account(d, &sum);
	return got;
}

/* ---- a cache, and moves ---- */

TAP_FN void begin(uint32_t vram_space, uint32_t ram_space)
{
	struct gpc_config cfg = cache_config(0, 0);

	cfg.max_blocks = 256;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	vram = pool_new(c, GPC_VRAM, BLOCKS, vram_space, 0);
	ram = pool_new(c, GPC_RAM, BLOCKS, ram_space, GPC_POOL_UNCHAINED);
}

TAP_FN void end(const char *what)
{
	settle(c);
	is_int(stats_of(c, -1).dying, 0, "%s: nothing is left over", what);
	clean(c, what);
	must(gpc_close(d));
	must(gpc_writer_serve(c, 50));
	cache_end(c);
}

TAP_FN struct gpc_move up(gpc_block b, uint32_t flags)
{
	struct gpc_move m = { .to = GPC_NONE };

	if (must(gpc_promote(c, &b, 1, vram, &m, flags, 60000)) != 1 ||
	    must(gpc_commit(c, &m, 1, NULL, 0, -1)) != 1)
		bail("block 0x%x does not go up", (unsigned)b);
	return m;
}

TAP_FN struct gpc_move down(gpc_block b, uint32_t flags)
{
	struct gpc_move m = { .to = GPC_NONE };

	if (must(gpc_demote(c, vram, ram, &b, 1, &m, flags, 60000)) != 1 ||
	    must(gpc_commit(c, &m, 1, NULL, 0, -1)) != (m.to >= 0))
		bail("block 0x%x does not go down", (unsigned)b);
	return m;
}

TAP_FN gpc_block in_pool(int pool, uint64_t n)
{
	gpc_block b;

	chain_hold(c, pool, n, 1, &b);
	return b;
}

TAP_FN gpc_block at(uint32_t space, uint64_t n)
{
	gpc_key k = key_of(c, n);
	gpc_block b = -2;

	must(gpc_lookup(c, GPC_SPACE(space), &k, 1, &b, GPC_QUIET));
	return b;
}

TAP_FN void no_writer_for_a_while(void)
{
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	must(gpc_writer_serve(c, 1));
}

#endif
