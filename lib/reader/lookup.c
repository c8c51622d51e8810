/* SPDX-License-Identifier: Apache-2.0 */
/* lookup.c - lookup, match, acquire and ref: what a worker asks before every prefill.
 *
 * All four have one shape: open a section, then for each group of keys probe the
 * table part by part, locate the records of the hits and have their lines on the way before
 * they are used (references, stamps, counts), and at the end close the section and add the
 * counts to the seat once.  A read-only handle works on its copy: no section, and nothing is
 * written. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include "reader/dev.h"
#include "reader/probe_table.h"
#include "peer/refs.h"
#include "peer/refuse.h"

#define AHEAD 8u                 /* references whose lines are on their way */

_Static_assert(PROBE_GROUP <= REFS_GROUP, "places of a group");

struct lookup {                             /* one call */
	gpc *c;
	uint32_t spaces;
	bool quiet;                      /* no stamps, no statistics */
	bool refs;                       /* takes references */
	bool overflow;                   /* one failed for REF_CAP */
	int section;
	uint64_t first;                  /* stamp of the first use; 0 = none yet */
	uint64_t vram, ram, stale;
	struct device_result there;      /* to all keys, when blocks is not NULL */
	struct probe l;
	struct ref_sum sum;              /* only with refs */
};

struct hits {                            /* of a part of the keys */
	uint32_t n;
	bool usual;                      /* all of the usual pool */
	uint8_t at[PROBE_GROUP];        /* which keys, ascending */
	uint32_t record[PROBE_GROUP];
};

static int call_begin(struct lookup *a, gpc *c, uint32_t spaces, uint32_t flags, bool refs)
{
	a->c = c;
	a->spaces = spaces;
	a->quiet = (flags & GPC_QUIET) || c->readonly;
	a->refs = refs;
	a->overflow = false;
	a->first = a->vram = a->ram = a->stale = 0;
	a->section = -1;
	a->there = (struct device_result){ 0 };
	if (refs)
		memset(&a->sum, 0, sizeof(a->sum));
	if (!c->readonly) {
		a->section = handle_enter(c);
		if (a->section < 0)
			return a->section;
	} else {
		int err = handle_need_copy(c);

		if (err)
			return err;
	}
	probe_begin(&a->l, c, spaces);
	return 0;
}

static void count_if(uint64_t *counter, uint64_t n)
{
	if (n)
		count_add(counter, n);
}

/* asked: keys that this call counts as looked up */
static void call_end(struct lookup *a, uint64_t asked)
{
	struct shm_seat *seat;

	if (a->there.blocks)
		offload_end(a->c, &a->there);
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
static int call_offload(struct lookup *a, const struct device_query *q, uint32_t flags)
{
	int err;

	if (!(flags & (GPC_ANYWHERE | GPC_DEVICE)) || a->c->readonly)
		return 0;
	err = offload_query(a->c, q, flags & GPC_DEVICE, &a->there);
	return err == -EAGAIN && !(flags & GPC_DEVICE) ? 0 : err;
}

/* A device's answers; blocks of pools that are gone by now are none. */
static void take_answers(const struct lookup *a, uint32_t from, uint32_t n, gpc_block *blocks)
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
static uint32_t take_hints(const struct lookup *a, uint32_t n, gpc_block *blocks)
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

/* The lines that a use of this record will need.
 *
 * Always inline: a call of a function that does nothing but prefetch has no effect that gcc knows
 * of, and is removed. */
static inline __attribute__((always_inline)) void prefetch_lines(const struct lookup *a, uint32_t record)
{
	const struct segment *s = &a->c->seg;

	if (!a->quiet)
		__builtin_prefetch(seg_stamp(s, record), 1);
	if (a->refs) {
		__builtin_prefetch(seg_record(s, record));
		__builtin_prefetch(refs_cell(a->c, record), 1);
	}
}

/* References are taken one by one, with a locked instruction or two each; meanwhile the lines of
 * the next few are on their way. */
static inline __attribute__((always_inline)) void prefetch_ahead(const struct lookup *a,
							    const uint32_t *records,
							    uint32_t n, uint32_t i)
{
	if (a->refs && i + AHEAD < n && records[i + AHEAD] != SHM_NO_RECORD)
		prefetch_lines(a, records[i + AHEAD]);
}

static inline __attribute__((always_inline)) void prefetch_first(const struct lookup *a,
							    const uint32_t *records, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < AHEAD; i++)
		prefetch_ahead(a, records, n, i - AHEAD);
}

/* Where the hits are, without a branch that depends on the data. */
static uint32_t collect(const gpc_block *blocks, uint32_t n, uint8_t *at)
{
	uint32_t i, hits = 0;

	for (i = 0; i < n; i++) {
		at[hits] = (uint8_t)i;
		hits += blocks[i] >= 0;
	}
	return hits;
}

/* The hits and their records; a block that has none becomes a miss.  Their stamps are asked
 * for; see prefetch_ahead() for references. */
static void locate(const struct lookup *a, gpc_block *blocks, uint32_t n, struct hits *h)
{
	uint32_t i, record, hits = collect(blocks, n, h->at);

	h->n = 0;
	h->usual = false;
	for (i = 0; i < hits; i++) {
		uint8_t at = h->at[i];

		record = pool_record(&a->c->seg, blocks[at]);
		h->at[h->n] = at;
		h->record[h->n] = record;
		if (record == SHM_NO_RECORD) {
			blocks[at] = GPC_NONE;
			continue;
		}
		h->n++;
		if (!a->refs)
			prefetch_lines(a, record);
	}
}

/* The same for what a part of a lookup has found. */
static void locate_part(const struct lookup *a, const struct probe_part *part, gpc_block *blocks,
			struct hits *h)
{
	uint32_t i;

	if (!part->usual || a->refs || !probe_usual_stays(&a->l)) {
		locate(a, blocks, part->n, h);
		return;
	}
	h->n = part->hits;
	h->usual = true;
	if (a->quiet)
		return;
	collect(blocks, part->n, h->at);
	for (i = 0; i < h->n; i++)
		h->record[i] = a->l.usual_record + ((uint32_t)blocks[h->at[i]] - a->l.usual);
	for (i = 0; i < h->n; i++)
		__builtin_prefetch(seg_stamp(&a->c->seg, h->record[i]), 1);
}

static bool is_ram(const struct lookup *a, gpc_block block)
{
	return load_relaxed(&seg_pool(&a->c->seg, (uint32_t)GPC_POOL(block))->kind) == GPC_RAM;
}

/* A hit counts for its tier, and as a use. */
static void use(struct lookup *a, gpc_block block, uint32_t record, uint32_t place)
{
	bool ram = is_ram(a, block);

	a->ram += ram;
	a->vram += !ram;
	if (a->quiet)
		return;
	if (!a->first)
		a->first = refs_first_stamp(a->c);
	refs_stamp(a->c, record, a->first - place);
}

/* The same for many, without references.  Misses leave no gap: it is the order that counts. */
static void use_all(struct lookup *a, const gpc_block *blocks, const struct hits *h, uint32_t place)
{
	uint32_t i, ram = 0;
	uint64_t stamp;

	if (!h->n)
		return;
	if (h->usual)
		ram = is_ram(a, (gpc_block)a->l.usual) ? h->n : 0;
	else
		for (i = 0; i < h->n; i++)
			ram += is_ram(a, blocks[h->at[i]]);
	a->ram += ram;
	a->vram += h->n - ram;
	if (!a->first)
		a->first = refs_first_stamp(a->c);
	for (i = 0, stamp = a->first - place; i < h->n; i++)
		refs_stamp(a->c, h->record[i], stamp--);
}

static int take(struct lookup *a, const gpc_key *key, gpc_block block, uint32_t record)
{
	int err = -ESTALE;

	if (record != SHM_NO_RECORD)
		err = refs_take(a->c, record, block, key, &a->sum);
	a->overflow |= err == -EOVERFLOW;
	return err;
}

/* Each space once more, in order, with the pools as they are now; one whose block does not give a
 * reference is passed (rule S3). */
static __attribute__((noinline)) int hold_again(struct lookup *a, const gpc_key *key,
						gpc_block *block, uint32_t *record)
{
	uint32_t left;
	int err;

	a->stale++;
	probe_begin(&a->l, a->c, a->spaces);
	for (left = a->l.spaces; left; left &= left - 1) {
		*block = lookup_in_space(&a->l, (uint32_t)__builtin_ctz(left), key);
		if (*block < 0)
			continue;
		*record = pool_record(&a->c->seg, *block);
		err = take(a, key, *block, *record);
		if (err != -ESTALE)
			return err;
	}
	return -ESTALE;
}

/* Reference on a hit; if its block went meanwhile, it is looked for again before it is a miss. */
static int hold(struct lookup *a, const gpc_key *key, gpc_block *block, uint32_t *record)
{
	int err = take(a, key, *block, *record);

	return err == -ESTALE ? hold_again(a, key, block, record) : err;
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
	return err_set(EOVERFLOW, "this peer has %u references on the first block, the most there "
		       "can be", REF_CAP);
}

static int check_arrays(const gpc_key *keys, uint32_t n, const gpc_block *blocks)
{
	if (n > INT32_MAX)
		return err_set(EINVAL, "n is %u: at most %d keys a call", n, INT32_MAX);
	if (n && (!keys || !blocks))
		return err_set(EINVAL, "%s is NULL", keys ? "blocks" : "keys");
	return 0;
}

/* ---- each key by itself ---- */

/* Uses of a part's hits.  Returns how many are none after all.  A key at REF_CAP counts as a
 * miss: a block without its reference must not look like one with it. */
static uint32_t use_hits(struct lookup *a, const gpc_key *keys, gpc_block *blocks, struct hits *h,
			 uint32_t place)
{
	uint32_t i, lost = 0;

	if (!a->refs) {
		if (!a->quiet)
			use_all(a, blocks, h, place);
		return 0;
	}
	prefetch_first(a, h->record, h->n);
	for (i = 0; i < h->n; i++) {
		gpc_block *block = &blocks[h->at[i]];

		prefetch_ahead(a, h->record, h->n, i);

		if (hold(a, &keys[h->at[i]], block, &h->record[i])) {
			*block = GPC_NONE;
			lost++;
			continue;
		}
		use(a, *block, h->record[i], place + i);
	}
	return lost;
}

/* Keys that a device has answered to, and a single one. */
static uint32_t look_up_part(struct lookup *a, const gpc_key *all, uint32_t from, uint32_t n,
			     gpc_block *blocks)
{
	struct hits h;

	if (a->there.blocks)
		take_answers(a, from, n, blocks);
	else
		blocks[0] = probe_one(&a->l, all);
	locate(a, blocks, n, &h);
	return h.n - use_hits(a, all + from, blocks, &h, refs_place(from));
}

/* The next group of a run: its parts are compared, each one while the second buckets of the one
 * before are on their way; then the hits are used, whose lines have arrived by then.  Returns the
 * number of hits. */
static uint32_t look_up(struct lookup *a, struct probe_run *run, uint32_t from, uint32_t n,
			gpc_block *blocks)
{
	struct probe_part part[2];
	struct hits h[PROBE_PARTS];
	uint32_t i, k, last, hits = 0;

	for (i = k = 0; i < n + run->part; i += run->part, k++) {
		if (i < n)
			probe_first(run, from + i, MIN(run->part, n - i), &part[k & 1],
				     blocks + i);
		if (!k)
			continue;
		last = i - run->part;
		probe_rest(run, &part[~k & 1], blocks + last);
		locate_part(a, &part[~k & 1], blocks + last, &h[k - 1]);
		hits += h[k - 1].n;
	}
	for (i = 0; i < k - 1; i++)
		hits -= use_hits(a, run->keys + from + i * run->part, blocks + i * run->part,
				 &h[i], refs_place(from) + i * run->part);
	return hits;
}

static uint32_t look_up_all(struct lookup *a, const gpc_key *keys, uint32_t n, gpc_block *blocks)
{
	struct probe_run run;
	uint32_t i, hits = 0;

	probe_start(&run, &a->l, keys, n);
	for (i = 0; i < n; i += PROBE_GROUP)
		hits += look_up(a, &run, i, MIN(n - i, PROBE_GROUP), blocks + i);
	return hits;
}

GPC_EXPORT int gpc_lookup(gpc *c, uint32_t spaces, const gpc_key *keys, uint32_t n,
			  gpc_block *blocks, uint32_t flags)
{
	struct device_query q = { .spaces = spaces, .keys = keys, .n = n };
	struct lookup a;
	uint32_t i, hits = 0;
	int err = handle_check(c, flags & (GPC_REF | GPC_DEVICE));

	if (err)
		return err;
	err = err_flags(flags, GPC_QUIET | GPC_REF | GPC_ANYWHERE | GPC_DEVICE);
	if (err)
		return err;
	err = check_arrays(keys, n, blocks);
	if (err || !n)
		return err;
	err = call_begin(&a, c, spaces, flags, flags & GPC_REF);
	if (err)
		return err;
	err = call_offload(&a, &q, flags);
	if (!err && a.there.blocks && a.quiet && !a.refs)
		hits = take_hints(&a, n, blocks);
	else if (!err && (a.there.blocks || n == 1))
		for (i = 0; i < n; i += PROBE_GROUP)
			hits += look_up_part(&a, keys, i, MIN(n - i, PROBE_GROUP), blocks + i);
	else if (!err)
		hits = look_up_all(&a, keys, n, blocks);
	call_end(&a, err ? 0 : n);
	return err ? err : (int)hits;
}

/* ---- longest prefix ---- */

/* The hits of a part up to the first miss. */
static void locate_prefix(const struct lookup *a, gpc_block *found, uint32_t n, struct hits *h)
{
	locate(a, found, leading_hits(found, n), h);
	h->n = leading_hits(found, h->n);        /* they are at 0, 1, 2 ... */
}

/* Root to leaf, cut at the first failure (rule T8).  Returns how many of the part are used. */
static uint32_t use_prefix(struct lookup *a, const gpc_key *keys, gpc_block *found,
			   struct hits *h, gpc_block *blocks, uint32_t place)
{
	uint32_t i;

	prefetch_first(a, h->record, h->n);
	for (i = 0; i < h->n; i++) {
		prefetch_ahead(a, h->record, h->n, i);
		if (a->refs && hold(a, &keys[i], &found[i], &h->record[i]))
			break;
		if (!a->quiet)
			use(a, found[i], h->record[i], place + i);
		if (blocks)
			blocks[i] = found[i];
	}
	return i;
}

/* In parts, as look_up() goes.  A part with a miss is the last one. */
static uint32_t match(struct lookup *a, const gpc_key *keys, uint32_t n, gpc_block *blocks)
{
	gpc_block found[4][PROBE_GROUP];
	struct probe_part part[2];
	struct probe_run run;
	struct hits h[2];
	uint32_t i, k, from, got, len = 0;

	probe_start(&run, &a->l, keys, n);
	for (i = k = 0; i < n + 2 * run.part; i += run.part, k++) {
		if (i < n)
			probe_first(&run, i, MIN(run.part, n - i), &part[k & 1], found[k & 3]);
		from = i - run.part;
		if (from < n) {
			probe_rest(&run, &part[~k & 1], found[(k - 1) & 3]);
			locate_prefix(a, found[(k - 1) & 3], part[~k & 1].n, &h[~k & 1]);
			if (h[~k & 1].n < part[~k & 1].n)
				n = from + h[~k & 1].n;
		}
		from -= run.part;
		if (from >= n)
			continue;
		got = use_prefix(a, keys + from, found[(k - 2) & 3], &h[k & 1],
				 blocks ? blocks + from : NULL, refs_place(from));
		len += got;
		if (got < h[k & 1].n)
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
		return err_set(EINVAL, "start[%u] - start[0] is %u: at most %d keys a call", nseq,
			       start[nseq] - start[0], INT32_MAX);
	return 0;
}

/* A sequence whose length a device knows. */
static uint32_t match_there(struct lookup *a, uint32_t from, uint32_t n, gpc_block *blocks)
{
	gpc_block found[PROBE_GROUP];
	struct hits h;
	uint32_t i, m, len = 0;

	for (i = 0; i < n; i += PROBE_GROUP) {
		m = MIN(n - i, PROBE_GROUP);
		take_answers(a, from + i, m, found);
		locate_prefix(a, found, m, &h);
		len += use_prefix(a, NULL, found, &h, blocks ? blocks + i : NULL, refs_place(i));
		if (h.n < m)
			break;
	}
	return len;
}

static int check_match(uint32_t flags, const gpc_key *keys, const uint32_t *start,
		       uint32_t nseq, const uint32_t *len)
{
	int err;

	err = err_flags(flags, GPC_QUIET | GPC_ANYWHERE | GPC_DEVICE);
	if (err)
		return err;
	if (!nseq)
		return 0;
	if (nseq > INT32_MAX)
		return err_set(EINVAL, "nseq is %u: at most %d sequences a call", nseq, INT32_MAX);
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
	struct device_query q = { .spaces = spaces, .keys = keys, .start = start,
				     .nseq = nseq,
				     .blocks = blocks || !(flags & GPC_QUIET) };
	struct lookup a;
	uint32_t i, at, sum = 0;
	int err = handle_check(c, flags & GPC_DEVICE);

	if (!err)
		err = check_match(flags, keys, start, nseq, len);
	if (err || !nseq)
		return err;
	err = call_begin(&a, c, spaces, flags, false);
	if (err)
		return err;
	q.n = start[nseq] - start[0];
	err = q.n ? call_offload(&a, &q, flags) : 0;
	for (i = 0; !err && i < nseq; i++) {
		at = start[i];
		len[i] = a.there.len && !q.blocks ? a.there.len[i] :
			 a.there.blocks ? match_there(&a, at - start[0], a.there.len[i],
					       blocks ? blocks + at : NULL)
				 : match(&a, keys + at, start[i + 1] - at,
					 blocks ? blocks + at : NULL);
		sum += len[i];
	}
	call_end(&a, err ? 0 : start[nseq] - start[0]);
	return err ? err : (int)sum;
}

GPC_EXPORT int gpc_acquire(gpc *c, uint32_t spaces, const gpc_key *keys, uint32_t n,
			   gpc_block *blocks, uint32_t flags)
{
	struct lookup a;
	uint32_t len;
	int err = handle_check(c, true);

	if (err)
		return err;
	err = err_flags(flags, GPC_QUIET);
	if (err)
		return err;
	err = check_arrays(keys, n, blocks);
	if (err || !n)
		return err;
	err = call_begin(&a, c, spaces, flags, true);
	if (err)
		return err;
	len = match(&a, keys, n, blocks);
	call_end(&a, n);
	return !len && a.overflow ? overflow_error() : (int)len;
}

/* ---- hints to references ---- */

static uint32_t ref(struct lookup *a, const gpc_key *keys, const gpc_block *blocks,
		    uint32_t n, uint32_t place, int *ret_err)
{
	uint32_t i, record[PROBE_GROUP];
	int err = 0;

	for (i = 0; i < n; i++)
		record[i] = pool_record(&a->c->seg, blocks[i]);
	prefetch_first(a, record, n);
	for (i = 0; i < n; i++) {
		prefetch_ahead(a, record, n, i);
		err = take(a, &keys[i], blocks[i], record[i]);
		a->stale += err == -ESTALE;
		if (err)
			break;
		refs_stamp(a->c, record[i], a->first - place - i);
	}
	*ret_err = err;
	return i;
}

GPC_EXPORT int gpc_ref(gpc *c, const gpc_key *keys, const gpc_block *blocks, uint32_t n)
{
	struct lookup a;
	uint32_t m, got, len = 0;
	int err = handle_check(c, true), why = 0;

	if (err)
		return err;
	err = check_arrays(keys, n, blocks);
	if (err || !n)
		return err;
	err = call_begin(&a, c, 0, 0, true);
	if (err)
		return err;
	a.first = refs_first_stamp(c);
	do {
		m = MIN(n - len, PROBE_GROUP);
		got = ref(&a, keys + len, blocks + len, m, refs_place(len), &why);
		len += got;
	} while (got == m && len < n);
	call_end(&a, 0);
	if (why < 0)
		refuse_ref(c, len, blocks[len], why);
	return !len && a.overflow ? -EOVERFLOW : (int)len;
}
