/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_lookup, gpc_acquire and gpc_match on a table that the test fills: what they return,
 * count, stamp and reference.
 * Tests: lib/index/reader/lookup.c lib/index/reader/match.c lib/index/reader/hits.c lib/index/reader/call.c */
#include "config.h"

#include <errno.h>

#include "t/lib/four_pools.h"

static gpc_key key[300];
static gpc_block got[300];

/* n chained keys: the first `vram` in VRAM, the others in RAM */
static void chain(uint32_t n, uint32_t vram)
{
	gpc_block b;
	uint32_t i;

	for (i = 0; i < ARRAY_SIZE(key); i++) {
		key[i] = made_key(1000 + i);
		got[i] = 77;
		b = (i < vram ? VRAM : RAM) + (int)i;
		if (i < n && !made_publish_key(&f, b, key[i]))
			bail("the table is too full for the test");
	}
}

static void are_counted(uint64_t lookups, uint64_t vram, uint64_t ram, const char *what)
{
	ok(f.seat->lookups == lookups && f.seat->hit_vram == vram && f.seat->hit_ram == ram &&
		   f.seat->miss == lookups - vram - ram,
	   "%s: %d asked, %d and %d found", what, (int)lookups, (int)vram, (int)ram);
}

static uint32_t stamped(uint64_t tick)
{
	uint32_t i, n = 0;

	for (i = 0; i < 2048; i++)
		n += STAMP_TICK(seg_last_use(&f.c.seg, i)) == tick;
	return n;
}

static uint32_t open_sections(void)
{
	uint32_t i, n = 0;

	for (i = 0; i < SHM_SECTIONS; i++)
		n += epoch_is_open(seg_section(&f.c.seg, 0, i));
	return n;
}

static void test_arguments(void)
{
	uint32_t start[3] = { 0, 1, 0 }, len[3] = { 9, 9, 9 };

	begin();
	chain(10, 10);
	is_int(gpc_lookup(NULL, 0, key, 1, got, 0), -EINVAL, "lookup: NULL handle");
	is_int(gpc_lookup(&f.c, 0, NULL, 1, got, 0), -EINVAL, "lookup: NULL keys");
	is_int(gpc_lookup(&f.c, 0, key, 1, NULL, 0), -EINVAL, "lookup: NULL blocks");
	is_int(gpc_lookup(&f.c, 0, NULL, 0, NULL, 0), 0, "lookup: nothing of nothing");
	is_int(gpc_lookup(&f.c, 0, key, 1u << 31, got, 0), -EINVAL, "lookup: too many");
	is_int(gpc_lookup(&f.c, 0, key, 1, got, GPC_TAKE), -EINVAL, "lookup: unknown flag");
	is_int(gpc_acquire(&f.c, 0, key, 1, got, GPC_REF), -EINVAL, "acquire: unknown flag");
	is_int(gpc_acquire(&f.c, 0, NULL, 1, got, 0), -EINVAL, "acquire: NULL keys");
	is_int(gpc_acquire(&f.c, 0, key, UINT32_MAX, got, 0), -EINVAL, "acquire: too many");
	is_int(gpc_acquire(&f.c, 0, NULL, 0, NULL, 0), 0, "acquire: nothing of nothing");
	is_int(gpc_match(&f.c, 0, key, start, 1, len, got, GPC_REF), -EINVAL,
	       "match: unknown flag");
	is_int(gpc_match(&f.c, 0, key, NULL, 1, len, got, 0), -EINVAL, "match: NULL start");
	is_int(gpc_match(&f.c, 0, key, start, 1, NULL, got, 0), -EINVAL, "match: NULL len");
	is_int(gpc_match(&f.c, 0, NULL, start, 1, len, got, 0), -EINVAL, "match: NULL keys");
	is_int(gpc_match(&f.c, 0, key, start, 2, len, got, 0), -EINVAL, "match: descending");
	start[1] = start[2] = 1u << 31;
	is_int(gpc_match(&f.c, 0, key, start, 2, len, got, 0), -EINVAL, "match: too many");
	is_int(gpc_match(&f.c, 0, NULL, NULL, 0, NULL, NULL, 0), 0, "match: no sequence");
	ok(got[0] == 77 && len[0] == 9, "outputs are untouched");
	are_counted(0, 0, 0, "refused calls");
	is_int(open_sections(), 0, "and no section is left open");
	made_free(&f);
}

static void test_lookup(void)
{
	uint64_t tick;
	uint32_t i;

	begin();
	chain(150, 100);
	is_int(gpc_lookup(&f.c, 0, key, 200, got, 0), 150, "150 of 200");
	for (i = 0; i < 150 && got[i] == (i < 100 ? VRAM : RAM) + (int)i; i++)
		;
	while (i < 200 && got[i] == -1)
		i++;
	is_int(i, 200, "each block is the right one");
	is_int(got[200], 77, "and nothing is written behind them");
	are_counted(200, 100, 50, "lookup");
	tick = f.shared->tick;
	is_int(stamped(tick), 150, "hits are used, all at one tick");
	is_int(gpc_lookup(&f.c, 0, key + 149, 1, got, 0), 1, "a single key");
	is_int(stamped(tick + 1), 1, "is a use as well");
	is_int(gpc_lookup(&f.c, 0, key + 150, 100, got, 0), 0, "misses");
	is_int((long long)(f.shared->tick - tick), 1, "touch nothing and take no tick");
	are_counted(301, 100, 51, "lookup");

	is_int(gpc_lookup(&f.c, 0, key, 200, got, GPC_QUIET | GPC_ANYWHERE), 150, "quiet");
	are_counted(301, 100, 51, "quiet lookup");
	is_int((long long)(f.shared->tick - tick), 1, "no tick");
	f.pool[1].range = 512ull << 32 | 120;
	is_int(gpc_lookup(&f.c, 0, key, 200, got, 0), 120, "slots that a pool has not are misses");
	ok(got[119] == RAM + 119 && got[120] == -1, "from the first on");
	is_int(open_sections(), 0, "no section is left open");
	made_free(&f);
}

static void test_sections_used_up(void)
{
	int i, slot[SHM_SECTIONS];

	begin();
	chain(5, 5);
	for (i = 0; i < (int)SHM_SECTIONS; i++)
		slot[i] = handle_enter(&f.c);
	is_int(gpc_lookup(&f.c, 0, key, 5, got, 0), -EAGAIN, "no section left: -EAGAIN");
	is_int(got[0], 77, "outputs are untouched");
	handle_leave(&f.c, slot[30]);
	is_int(gpc_acquire(&f.c, 0, key, 5, got, 0), 5, "one is enough");
	made_free(&f);
}

static void test_readonly(void)
{
	uint64_t bytes, sum;
	uint32_t start[2] = { 0, 20 }, len;

	begin();
	chain(20, 10);
	f.c.readonly = true;
	f.c.peer = SHM_NO_PEER;
	bytes = f.c.seg.at.control_bytes;
	sum = key_checksum(f.c.seg.control, bytes);
	is_int(gpc_lookup(&f.c, 0, key, 30, got, 0), 20, "read-only: lookup");
	is_int(gpc_lookup(&f.c, 0, key, 1, got, 0), 1, "read-only: of one");
	is_int(gpc_match(&f.c, 0, key, start, 1, &len, got, 0), 20, "read-only: match");
	ok(key_checksum(f.c.seg.control, bytes) == sum, "and nothing is written");
	is_int(gpc_lookup(&f.c, 0, key, 1, got, GPC_REF), -EROFS, "no references");
	is_int(gpc_acquire(&f.c, 0, key, 1, got, 0), -EROFS, "at all");
	made_free(&f);
}

static void test_lookup_ref(void)
{
	uint32_t i, cells = 0;

	begin();
	chain(100, 60);
	is_int(gpc_lookup(&f.c, 0, key, 120, got, GPC_REF), 100, "a reference on every hit");
	for (i = 0; i < 2048; i++)
		cells += *refs_cell(&f.c, i);
	is_int(cells, 100, "and on nothing else");
	ok(f.seat->refs == 100 && f.seat->in_use[0] == 60 && f.seat->in_use[1] == 40, "counted");
	f.record[10].word = WORD(DYING, 1);
	*refs_cell(&f.c, 20) = REF_CAP;
	is_int(gpc_lookup(&f.c, 0, key, 120, got, GPC_REF | GPC_QUIET), 98,
	       "a dying block and one at the cap are misses");
	ok(got[10] == -1 && got[20] == -1 && got[19] == VRAM + 19, "these and no others");
	ok(*refs_cell(&f.c, 10) == 1 && *refs_cell(&f.c, 20) == REF_CAP, "cells as they were");
	is_int((long long)f.seat->stale_refs, 0, "quiet");
	is_int(gpc_lookup(&f.c, 0, key, 120, got, GPC_REF), 98, "once more");
	is_int((long long)f.seat->stale_refs, 1, "the stale one is counted");
	are_counted(240, 118, 80, "lookup with references");
	made_free(&f);
}

static void test_acquire(void)
{
	static const uint32_t lengths[] = { 0, 1, 2, 63, 64, 65, 128, 130 };
	uint64_t refs = 0, asked = 0;
	uint32_t i, n;

	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		n = lengths[i];
		begin();
		chain(n, n / 2);
		made_publish_key(&f, VRAM + 500, key[n + 1]);
		is_int(gpc_acquire(&f.c, 0, key, 200, got, 0), n, "a prefix of %u", n);
		ok((!n || got[n - 1] == RAM + (int)n - 1) && got[n] == 77 && got[n + 1] == 77,
		   "blocks past it are untouched");
		are_counted(200, n / 2, n - n / 2, "acquire");
		is_int(f.seat->refs, n, "all referenced");
		is_int(stamped(f.shared->tick ? f.shared->tick : 99), n, "all at one tick");
		made_free(&f);
	}

	begin();
	chain(130, 130);
	is_int(gpc_acquire(&f.c, 0, key, 64, got, GPC_QUIET), 64, "no further than asked");
	is_int(gpc_acquire(&f.c, 0, key, 130, got, GPC_QUIET), 130, "to the very end");
	refs += 64 + 130;
	is_int(f.seat->refs, refs, "references are counted");
	is_int(f.seat->lookups, asked, "quiet calls are not");
	f.record[70].word = WORD(DYING, 1);
	got[70] = 77;
	is_int(gpc_acquire(&f.c, 0, key, 130, got, 0), 70, "cut where a reference fails");
	ok(got[70] == 77 && *refs_cell(&f.c, 71) == 1, "nothing is taken behind it");
	is_int(f.seat->stale_refs, 1, "counted as stale");
	*refs_cell(&f.c, 5) = REF_CAP;
	is_int(gpc_acquire(&f.c, 0, key, 130, got, 0), 5, "cut at the cap");
	is_int(gpc_acquire(&f.c, 0, key + 5, 10, got, 0), -EOVERFLOW, "an error at the first");
	is_int(f.seat->refs, refs + 75, "no reference is lost");
	is_int(open_sections(), 0, "no section is left open");
	made_free(&f);
}

static void test_match(void)
{
	uint32_t start[6] = { 3, 3, 13, 100, 180, 280 }, len[5], i;

	begin();
	chain(250, 100);
	wipe(made_put(&f, 0, made_key(5), VRAM)); /* a place that was used */
	f.record[150].word = WORD(DYING, 1);
	is_int(gpc_match(&f.c, 0, key, start, 5, len, got, 0), 0 + 10 + 87 + 80 + 70,
	       "the sum of all");
	ok(len[0] == 0 && len[1] == 10 && len[2] == 87 && len[3] == 80 && len[4] == 70,
	   "an empty one, whole ones, and one that is cut");
	for (i = 3; i < 250 && got[i] == (i < 100 ? VRAM : RAM) + (int)i; i++)
		;
	is_int(i, 250, "blocks are indexed like keys");
	ok(got[2] == 77 && got[250] == 77, "only the matched part is written");
	are_counted(277, 97, 150, "match");
	is_int(stamped(f.shared->tick), 247, "all hits at one tick");
	is_int(f.seat->refs, 0, "no references: these are hints");
	is_int(gpc_match(&f.c, 0, key, start, 5, len, NULL, GPC_QUIET), 247, "without blocks");
	is_int(gpc_match(&f.c, GPC_SPACE(1), key, start, 5, len, NULL, 0), 0, "another space");
	is_int(len[4], 0, "has nothing");
	made_free(&f);
}

/* A sequence that begins in one space and goes on in another. */
static void test_match_spaces(void)
{
	uint32_t start[2] = { 0, 120 }, len, i;

	begin();
	chain(50, 50);
	for (i = 30; i < 110; i++)
		made_publish_key(&f, LAST + (int)i, key[i]);
	is_int(gpc_match(&f.c, 0, key, start, 1, &len, got, 0), 110, "on through another space");
	ok(got[49] == VRAM + 49 && got[50] == LAST + 50, "the lowest space as far as it goes");
	is_int(gpc_acquire(&f.c, 0, key, 120, got, 0), 110, "acquire: the same");
	ok(f.seat->in_use[0] == 50 && f.seat->in_use[3] == 60, "of both pools");
	is_int(gpc_acquire(&f.c, GPC_SPACE(31), key, 120, got, 0), 0, "a prefix begins at 0");
	made_free(&f);
}

static int body(void)
{
	test_arguments();
	test_lookup();
	test_sections_used_up();
	test_readonly();
	test_lookup_ref();
	test_acquire();
	test_match();
	test_match_spaces();
	return done_testing();
}

int main(void)
{
	return tap_guard(50, body, NULL);
}
