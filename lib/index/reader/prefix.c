/* SPDX-License-Identifier: Apache-2.0 */
/* prefix.c - the longest prefix over several spaces.
 *
 * It makes two calls, each with spaces of its own.  Keys that are not in the near spaces are
 * looked up in the far ones, group by group.  The references are taken in the order of the keys,
 * in either set of spaces.
 * Tests: t/index/spaces.t t/index/moves-race.t t/index/moves-seen.t t/index/ask.t */
#include "config.h"

#include "index/reader/hits.h"
#include "index/reader/prefix.h"
#include "index/reader/take.h"

#include <errno.h>

struct both {
	struct call near, far;
	bool has_far;
};

/* A block for each key of the group, or -1; from_far: it is in a far space. */
static void find_group(const struct both *b, const gpc_key *keys, uint32_t n, gpc_block *blocks,
		       bool *from_far)
{
	gpc_key left[PROBE_GROUP];
	gpc_block found[PROBE_GROUP];
	uint8_t at[PROBE_GROUP];
	uint32_t i, nleft = 0;

	probe_group(&b->near.probe, keys, n, blocks);
	for (i = 0; i < n; i++) {
		from_far[i] = blocks[i] < 0;
		if (blocks[i] >= 0 || !b->has_far)
			continue;
		left[nleft] = keys[i];
		at[nleft++] = (uint8_t)i;
	}
	if (!nleft)
		return;
	probe_group(&b->far.probe, left, nleft, found);
	for (i = 0; i < nleft; i++)
		blocks[at[i]] = found[i];
}

/* A key may have moved from one side to the other meanwhile, so each side is asked once more. */
static int take_either(struct both *b, const gpc_key *key, gpc_block *block, uint32_t *record,
		       bool *far)
{
	int err = key_take(*far ? &b->far : &b->near, key, block, record);

	if (err == -ESTALE && *far) {
		*far = false;
		err = take_again(&b->near, key, block, record);
	}
	if (err == -ESTALE && b->has_far) {
		*far = true;
		err = take_again(&b->far, key, block, record);
	}
	return err;
}

static int take_one(struct both *b, struct prefix *p, const gpc_key *key, uint32_t i,
		    gpc_block *block, bool far)
{
	struct call *a;
	uint32_t record;
	int err;

	if (*block < 0)
		return -ENOENT;
	record = pool_record(&b->near.c->seg, *block);
	err = take_either(b, key, block, &record, &far);
	if (err)
		return err == -ESTALE ? -ENOENT : err;
	a = far ? &b->far : &b->near;
	err = p->may ? p->may(p->arg, i, *block) : 0;
	if (err)
		refs_drop(a->c, record, *block, &a->sum);
	else
		hits_use_one(a, *block, record, i);
	return err;
}

static uint32_t take_all(struct both *b, struct prefix *p, const gpc_key *keys, uint32_t n,
			 gpc_block *blocks)
{
	gpc_block found[PROBE_GROUP];
	bool far[PROBE_GROUP];
	uint32_t i, k, m;

	p->why = 0;
	for (i = 0; i < n; i += m) {
		m = MIN(n - i, PROBE_GROUP);
		find_group(b, keys + i, m, found, far);
		for (k = 0; k < m; k++) {
			p->why = take_one(b, p, &keys[i + k], i + k, &found[k], far[k]);
			if (p->why)
				return i + k;
			blocks[i + k] = found[k];
		}
	}
	return n;
}

/* The far call's hits are added to the near call, which counts all keys. */
static void end(struct both *b, uint32_t n)
{
	if (b->has_far) {
		b->near.vram += b->far.vram;
		b->near.ram += b->far.ram;
		b->near.stale += b->far.stale;
		b->far.vram = b->far.ram = b->far.stale = 0;
		call_end(&b->far, 0);
	}
	call_end(&b->near, n);
}

/* Runs in the section of the caller. */
static bool is_in(const gpc *c, uint32_t spaces, const gpc_key *key)
{
	struct probe l;

	probe_begin(&l, c, spaces);
	return probe_one(&l, key) >= 0;
}

int prefix_take(gpc *c, struct prefix *p, const gpc_key *keys, uint32_t n, gpc_block *blocks)
{
	struct both b = { .has_far = p->far != 0 };
	uint32_t len;
	int err = call_begin(&b.near, c, p->near, 0, true);

	if (err)
		return err;
	err = b.has_far ? call_begin(&b.far, c, p->far, 0, true) : 0;
	if (err) {
		call_end(&b.near, 0);
		return err;
	}
	/* both calls have one order: the first block of the prompt is the youngest */
	b.near.first = b.far.first = refs_first_stamp(c, n);
	len = take_all(&b, p, keys, n, blocks);
	p->is_below = p->why == -ENOENT && p->below && is_in(c, p->below, &keys[len]);
	end(&b, n);
	return (int)len;
}
