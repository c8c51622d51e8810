/* SPDX-License-Identifier: Apache-2.0 */
/* ask.c - lookup, match, acquire and ref: what a worker asks before every prefill.
 *
 * All four have one shape: open a section, then for each group of keys probe the
 * table, locate the records of the hits and fetch their lines together, use them
 * (references, stamps, counts), and at the end close the section and add the counts to
 * the seat once.  A read-only handle works on its copy: no section, and nothing is
 * written. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include "dev.h"
#include "lookup.h"
#include "refs.h"

struct ask {                             /* one call */
	gpc *c;
	uint32_t spaces;
	bool quiet;                      /* no stamps, no statistics */
	bool refs;                       /* takes references */
	bool overflow;                   /* one failed for REF_CAP */
	int section;
	uint64_t tick;                   /* of all uses in this call; 0 = none yet */
	uint64_t vram, ram, stale;
	struct device_answer there;      /* to all keys, when blocks is not NULL */
	struct lookup l;
	struct ref_sum sum;              /* only with refs */
};

struct hits {                            /* of one group */
	gpc_block block[LOOKUP_GROUP];
	uint32_t record[LOOKUP_GROUP];
};

static int ask_begin(struct ask *a, gpc *c, uint32_t spaces, uint32_t flags, bool refs)
{
	a->c = c;
	a->spaces = spaces;
	a->quiet = (flags & GPC_QUIET) || c->readonly;
	a->refs = refs;
	a->overflow = false;
	a->tick = a->vram = a->ram = a->stale = 0;
	a->section = -1;
	a->there = (struct device_answer){ 0 };
	if (refs)
		memset(&a->sum, 0, sizeof(a->sum));
	if (!c->readonly) {
		a->section = handle_enter(c);
		if (a->section < 0)
			return a->section;
	}
	lookup_begin(&a->l, c, spaces);
	return 0;
}

static void count_if(uint64_t *counter, uint64_t n)
{
	if (n)
		count_add(counter, n);
}

/* asked: keys that this call counts as looked up */
static void ask_end(struct ask *a, uint64_t asked)
{
	struct shm_seat *seat;

	if (a->there.blocks)
		dev_ask_end(a->c, &a->there);
	if (a->refs)                     /* within the section: see seat_is_clean() */
		refs_account(a->c, &a->sum);
	if (a->section >= 0)
		handle_leave(a->c, a->section);
	if (a->quiet)
		return;
	seat = seg_seat(&a->c->seg, a->c->peer);
	count_if(&seat->lookups, asked);
	count_if(&seat->hit_vram, a->vram);
	count_if(&seat->hit_ram, a->ram);
	count_if(&seat->miss, asked - MIN(asked, a->vram + a->ram));
	count_if(&seat->stale_refs, a->stale);
}

/* Let a device answer for the whole call, if the flags say that it may or must. */
static int ask_device(struct ask *a, const struct device_question *q, uint32_t flags)
{
	int err;

	if (!(flags & (GPC_ANYWHERE | GPC_DEVICE)) || a->c->readonly)
		return 0;
	err = dev_ask(a->c, q, flags & GPC_DEVICE, &a->there);
	return err == -EAGAIN && !(flags & GPC_DEVICE) ? 0 : err;
}

/* A device's answers; blocks of pools that are gone by now are none. */
static void take_answers(const struct ask *a, uint32_t from, uint32_t n, gpc_block *blocks)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		gpc_block b = a->there.blocks[from + i];

		blocks[i] = b >= 0 && pool_set_has(&a->l.live, (uint32_t)b >> 24) ? b
										   : GPC_NONE;
	}
}

/* All of them, as hints and no more: nothing is located, stamped or counted.  A mask for each pool,
 * and the last one for misses, spare a decision a key. */
static uint32_t take_hints(const struct ask *a, uint32_t n, gpc_block *blocks)
{
	int32_t none[256];               /* by the top byte of a block */
	uint32_t i, hits = 0;

	for (i = 0; i < 256; i++)
		none[i] = i < 128 && pool_set_has(&a->l.live, i) ? 0 : -1;
	for (i = 0; i < n; i++) {
		gpc_block b = a->there.blocks[i];

		blocks[i] = b | none[(uint32_t)b >> 24];
		hits += blocks[i] >= 0;
	}
	return hits;
}

/* Records of the hits; a block that has none becomes a miss.  Their lines are asked
 * for. */
static void locate(const struct ask *a, gpc_block *blocks, uint32_t *records, uint32_t n)
{
	const struct segment *s = &a->c->seg;
	uint32_t i, record;

	for (i = 0; i < n; i++) {
		record = pool_record(s, blocks[i]);
		records[i] = record;
		if (record == SHM_NO_RECORD) {
			blocks[i] = GPC_NONE;
			continue;
		}
		if (!a->quiet)
			__builtin_prefetch(seg_stamp(s, record), 1);
		if (a->refs) {
			__builtin_prefetch(seg_record(s, record));
			__builtin_prefetch(refs_cell(a->c, record), 1);
		}
	}
}

/* A hit counts for its tier, and as a use. */
static void use(struct ask *a, gpc_block block, uint32_t record)
{
	const struct shm_pool *pool = seg_pool(&a->c->seg, (uint32_t)GPC_POOL(block));

	if (load_relaxed(&pool->kind) == GPC_RAM)
		a->ram++;
	else
		a->vram++;
	if (a->quiet)
		return;
	if (!a->tick)
		a->tick = handle_tick(a->c);
	refs_stamp(a->c, record, a->tick);
}

static int take(struct ask *a, const gpc_key *key, gpc_block block, uint32_t record)
{
	int err = -ESTALE;

	if (record != SHM_NO_RECORD)
		err = refs_take(a->c, record, block, key, &a->sum);
	a->overflow |= err == -EOVERFLOW;
	return err;
}

/* Reference on a hit; if its block went meanwhile, the table is probed once more (rule
 * S3), with the pools as they are now, before it is a miss. */
static int hold(struct ask *a, const gpc_key *key, gpc_block *block, uint32_t *record)
{
	int err = take(a, key, *block, *record);

	if (err != -ESTALE)
		return err;
	a->stale++;
	lookup_begin(&a->l, a->c, a->spaces);
	*block = lookup_one(&a->l, key);
	if (*block < 0)
		return -ESTALE;
	*record = pool_record(&a->c->seg, *block);
	return take(a, key, *block, *record);
}

static uint32_t leading_hits(const gpc_block *blocks, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && blocks[i] >= 0; i++)
		;
	return i;
}

static int overflow_error(void)
{
	return err_set(EOVERFLOW, "this peer has %u references on the first block",
		       REF_CAP);
}

static int check_arrays(const gpc_key *keys, uint32_t n, const gpc_block *blocks)
{
	if (n > INT32_MAX)
		return err_set(EINVAL, "%u keys are too many for one call", n);
	if (n && (!keys || !blocks))
		return err_set(EINVAL, "%s is NULL", keys ? "blocks" : "keys");
	return 0;
}

/* ---- each key by itself ---- */

/* Where the group's hits are: ascending, found without branches. */
static uint32_t collect(const gpc_block *blocks, uint32_t n, uint8_t *at, struct hits *h)
{
	uint32_t i, hits = 0;

	for (i = 0; i < n; i++) {
		at[hits] = (uint8_t)i;
		h->block[hits] = blocks[i];
		hits += blocks[i] >= 0;
	}
	return hits;
}

/* Returns how many of the group are hits.  A key at REF_CAP counts as a miss: a block
 * without its reference must not look like one with it. */
static uint32_t look_up(struct ask *a, const gpc_key *all, uint32_t from, uint32_t n,
			gpc_block *blocks)
{
	const gpc_key *keys = all + from;
	uint8_t at[LOOKUP_GROUP];
	struct hits h;
	uint32_t i, m, hits = 0;

	if (a->there.blocks)
		take_answers(a, from, n, blocks);
	else if (n == 1)
		blocks[0] = lookup_one(&a->l, keys);
	else
		lookup_group(&a->l, keys, n, blocks);
	m = collect(blocks, n, at, &h);
	locate(a, h.block, h.record, m);
	for (i = 0; i < m; i++) {
		if (a->refs && hold(a, &keys[at[i]], &h.block[i], &h.record[i]))
			h.block[i] = GPC_NONE;
		blocks[at[i]] = h.block[i];
		if (h.block[i] < 0)
			continue;
		use(a, h.block[i], h.record[i]);
		hits++;
	}
	return hits;
}

GPC_EXPORT int gpc_lookup(gpc *c, uint32_t spaces, const gpc_key *keys, uint32_t n,
			  gpc_block *blocks, uint32_t flags)
{
	struct device_question q = { .spaces = spaces, .keys = keys, .n = n };
	struct ask a;
	uint32_t i, hits = 0;
	int err = handle_check(c, flags & (GPC_REF | GPC_DEVICE));

	if (err)
		return err;
	if (flags & ~(uint32_t)(GPC_QUIET | GPC_REF | GPC_ANYWHERE | GPC_DEVICE))
		return err_set(EINVAL, "flags 0x%x: gpc_lookup takes GPC_QUIET, GPC_REF, "
			       "GPC_ANYWHERE and GPC_DEVICE", flags);
	err = check_arrays(keys, n, blocks);
	if (err || !n)
		return err;
	err = ask_begin(&a, c, spaces, flags, flags & GPC_REF);
	if (err)
		return err;
	err = ask_device(&a, &q, flags);
	if (!err && a.there.blocks && a.quiet && !a.refs)
		hits = take_hints(&a, n, blocks);
	else
		for (i = 0; !err && i < n; i += LOOKUP_GROUP)
			hits += look_up(&a, keys, i, MIN(n - i, LOOKUP_GROUP), blocks + i);
	ask_end(&a, err ? 0 : n);
	return err ? err : (int)hits;
}

/* ---- longest prefix, hints ---- */

static uint32_t match(struct ask *a, const gpc_key *keys, uint32_t n, gpc_block *blocks)
{
	struct hits h;
	uint32_t i, j, m, run, len = 0;

	for (i = 0; i < n; i += LOOKUP_GROUP) {
		m = MIN(n - i, LOOKUP_GROUP);
		lookup_group(&a->l, keys + i, m, h.block);
		run = leading_hits(h.block, m);
		locate(a, h.block, h.record, run);
		run = leading_hits(h.block, run);
		for (j = 0; j < run; j++)
			use(a, h.block[j], h.record[j]);
		if (blocks)
			memcpy(blocks + i, h.block, run * sizeof(*blocks));
		len += run;
		if (run < m)
			break;
	}
	return len;
}

static int check_starts(const uint32_t *start, uint32_t nseq)
{
	uint32_t i;

	for (i = 0; i < nseq; i++)
		if (start[i] > start[i + 1])
			return err_set(EINVAL, "start[%u] = %u and start[%u] = %u do not "
				       "ascend", i, start[i], i + 1, start[i + 1]);
	if (start[nseq] - start[0] > INT32_MAX)
		return err_set(EINVAL, "%u keys are too many for one call",
			       start[nseq] - start[0]);
	return 0;
}

/* A sequence whose length a device knows. */
static uint32_t match_there(struct ask *a, uint32_t from, uint32_t n, gpc_block *blocks)
{
	struct hits h;
	uint32_t i, j, m, run, len = 0;

	for (i = 0; i < n; i += LOOKUP_GROUP) {
		m = MIN(n - i, LOOKUP_GROUP);
		take_answers(a, from + i, m, h.block);
		locate(a, h.block, h.record, m);
		run = leading_hits(h.block, m);
		for (j = 0; j < run; j++)
			use(a, h.block[j], h.record[j]);
		if (blocks)
			memcpy(blocks + i, h.block, run * sizeof(*blocks));
		len += run;
		if (run < m)
			break;
	}
	return len;
}

static int check_match(uint32_t flags, const gpc_key *keys, const uint32_t *start,
		       uint32_t nseq, const uint32_t *len)
{
	int err;

	if (flags & ~(uint32_t)(GPC_QUIET | GPC_ANYWHERE | GPC_DEVICE))
		return err_set(EINVAL, "flags 0x%x: gpc_match takes GPC_QUIET, GPC_ANYWHERE "
			       "and GPC_DEVICE", flags);
	if (!nseq)
		return 0;
	if (nseq > INT32_MAX)
		return err_set(EINVAL, "%u sequences are too many for one call", nseq);
	if (!start || !len)
		return err_set(EINVAL, "%s is NULL", start ? "len" : "start");
	err = check_starts(start, nseq);
	if (!err && !keys && start[nseq] > start[0])
		return err_set(EINVAL, "keys is NULL");
	return err;
}

GPC_EXPORT int gpc_match(gpc *c, uint32_t spaces, const gpc_key *keys,
			 const uint32_t *start, uint32_t nseq, uint32_t *len,
			 gpc_block *blocks, uint32_t flags)
{
	struct device_question q = { .spaces = spaces, .keys = keys, .start = start,
				     .nseq = nseq,
				     .blocks = blocks || !(flags & GPC_QUIET) };
	struct ask a;
	uint32_t i, at, sum = 0;
	int err = handle_check(c, flags & GPC_DEVICE);

	if (!err)
		err = check_match(flags, keys, start, nseq, len);
	if (err || !nseq)
		return err;
	err = ask_begin(&a, c, spaces, flags, false);
	if (err)
		return err;
	q.n = start[nseq] - start[0];
	err = q.n ? ask_device(&a, &q, flags) : 0;
	for (i = 0; !err && i < nseq; i++) {
		at = start[i];
		len[i] = a.there.len && !q.blocks ? a.there.len[i] :
			 a.there.blocks ? match_there(&a, at - start[0], a.there.len[i],
					       blocks ? blocks + at : NULL)
				 : match(&a, keys + at, start[i + 1] - at,
					 blocks ? blocks + at : NULL);
		sum += len[i];
	}
	ask_end(&a, err ? 0 : start[nseq] - start[0]);
	return err ? err : (int)sum;
}

/* ---- longest prefix, referenced ---- */

/* Root to leaf, cut at the first failure (rule T8). */
static uint32_t acquire(struct ask *a, const gpc_key *keys, uint32_t n, gpc_block *blocks)
{
	struct hits h;
	uint32_t run, i;

	lookup_group(&a->l, keys, n, h.block);
	run = leading_hits(h.block, n);
	locate(a, h.block, h.record, run);
	for (i = 0; i < run; i++) {
		if (hold(a, &keys[i], &h.block[i], &h.record[i]))
			break;
		use(a, h.block[i], h.record[i]);
		blocks[i] = h.block[i];
	}
	return i;
}

GPC_EXPORT int gpc_acquire(gpc *c, uint32_t spaces, const gpc_key *keys, uint32_t n,
			   gpc_block *blocks, uint32_t flags)
{
	struct ask a;
	uint32_t m, got, len = 0;
	int err = handle_check(c, true);

	if (err)
		return err;
	if (flags & ~(uint32_t)GPC_QUIET)
		return err_set(EINVAL, "flags 0x%x: gpc_acquire takes GPC_QUIET", flags);
	err = check_arrays(keys, n, blocks);
	if (err || !n)
		return err;
	err = ask_begin(&a, c, spaces, flags, true);
	if (err)
		return err;
	do {
		m = MIN(n - len, LOOKUP_GROUP);
		got = acquire(&a, keys + len, m, blocks + len);
		len += got;
	} while (got == m && len < n);
	ask_end(&a, n);
	return !len && a.overflow ? overflow_error() : (int)len;
}

/* ---- hints to references ---- */

static uint32_t ref(struct ask *a, const gpc_key *keys, const gpc_block *blocks,
		    uint32_t n)
{
	struct hits h;
	uint32_t i;
	int err;

	memcpy(h.block, blocks, n * sizeof(*blocks));
	locate(a, h.block, h.record, n);
	for (i = 0; i < n; i++) {
		err = take(a, &keys[i], h.block[i], h.record[i]);
		a->stale += err == -ESTALE;
		if (err)
			break;
		refs_stamp(a->c, h.record[i], a->tick);
	}
	return i;
}

GPC_EXPORT int gpc_ref(gpc *c, const gpc_key *keys, const gpc_block *blocks, uint32_t n)
{
	struct ask a;
	uint32_t m, got, len = 0;
	int err = handle_check(c, true);

	if (err)
		return err;
	err = check_arrays(keys, n, blocks);
	if (err || !n)
		return err;
	err = ask_begin(&a, c, 0, 0, true);
	if (err)
		return err;
	a.tick = handle_tick(c);
	do {
		m = MIN(n - len, LOOKUP_GROUP);
		got = ref(&a, keys + len, blocks + len, m);
		len += got;
	} while (got == m && len < n);
	ask_end(&a, 0);
	return !len && a.overflow ? overflow_error() : (int)len;
}
