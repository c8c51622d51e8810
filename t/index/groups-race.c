/* SPDX-License-Identifier: Apache-2.0 */
/* Matches over groups while their blocks are published, dropped and evicted: whatever a match says,
 * it holds exactly what the prefix needs, with the right bytes; and it never says less than what is
 * live all the while.
 * Tests: lib/index/reader/groups.c */
#include "t/lib/crew.h"

#define GROUPS 3
#define TOKENS 192 /* of the prompt */
#define PINNED 48  /* so long a prefix is there throughout */
#define MOST   (TOKENS / 4)
#define BLOCKS 64 /* fewer than there are keys: 48 + 24 + 12 */
#define TURNS  12000

enum { GATE_FULL, GATE_MATCHERS, GATE_END, GATE_LEFT };
enum { N_MATCHED, N_LONGER, N_STALE };
enum { HOLDER, CHURNER, MATCHER, HINTER, MEMBERS };

static const struct {
	uint32_t tokens, last;
} kind[GROUPS] = { { 4, 0 }, { 8, 23 }, { 16, 1 } };

static gpc_key key_at(uint32_t g, uint32_t i)
{
	return crew_key(g * 1000 + i);
}

static bool is_needed(uint32_t g, uint32_t i, uint32_t len)
{
	uint32_t from = kind[g].last && kind[g].last < len ? len - kind[g].last : 0;

	return i * kind[g].tokens < len && (i + 1) * kind[g].tokens > from;
}

static bool publish(gpc *c, gpc_key k, gpc_block *b)
{
	gpc_block at = GPC_NONE;
	int n = gpc_reserve(c, 0, 1, b, NULL, 0, -1);

	if (n == -ENOSPC)
		return false;
	need(n == 1, "reserve: %s", gpc_last_error());
	crew_own(*b);
	crew_write(*b, k);
	crew_disown(*b);
	need(gpc_publish(c, NULL, &k, b, 1, GPC_OPTIONS(gpc_publish_options, .resident = &at), 0,
			 -1) >= 0,
	     "publish: %s", gpc_last_error());
	need(at >= 0 || at == -EAGAIN, "publish answers %d", at);
	if (at >= 0 && at != *b)
		must_be(gpc_release(c, &at, 1), 0);
	if (at != *b)
		must_be(gpc_release(c, b, 1), 0);
	return at == *b;
}

static int holder(gpc *c)
{
	gpc_block b;
	uint32_t g, i;

	for (g = 0; g < GROUPS; g++)
		for (i = 0; i < TOKENS / kind[g].tokens; i++)
			if (is_needed(g, i, PINNED))
				need(publish(c, key_at(g, i), &b), "no room");
	crew_open(GATE_FULL);
	crew_wait(GATE_END, 1);
	return 0;
}

/* The end of the prompt comes and goes: reserves evict, and some blocks are dropped. */
static int churner(gpc *c)
{
	uint64_t seed = 7;
	gpc_block b;
	uint32_t t, g, i;

	for (t = 0; t < TURNS; t++) {
		g = crew_random(&seed, GROUPS);
		i = crew_random(&seed, TOKENS / kind[g].tokens);
		if (is_needed(g, i, PINNED) || !publish(c, key_at(g, i), &b))
			continue;
		if (!crew_random(&seed, 4))
			need(gpc_drop(c, &b, 1, NULL, 0, -1) >= 0, "drop: %s", gpc_last_error());
		must_be(gpc_release(c, &b, 1), 0);
	}
	crew_open(GATE_END);
	return 0;
}

static uint32_t match(gpc *c, const gpc_key *k, gpc_block *b, uint32_t flags)
{
	struct gpc_group group[GROUPS];
	uint32_t g;
	int len;

	for (g = 0; g < GROUPS; g++)
		group[g] = (struct gpc_group){ .size = sizeof(group[g]),
					       .block_tokens = kind[g].tokens,
					       .last = kind[g].last,
					       .n = TOKENS / kind[g].tokens,
					       .keys = k + g * MOST,
					       .blocks = b + g * MOST };
	memset(b, 7, GROUPS * MOST * sizeof(*b));
	len = gpc_match_groups(c, 0, group, GROUPS, NULL, flags);
	need(len >= PINNED, "the prefix is %d long, and %d are live all the while", len, PINNED);
	need(len % 16 == 0, "the prefix ends at %d, in the middle of a block", len);
	return (uint32_t)len;
}

/* How many there are; with held, their bytes too. */
static uint32_t judge(const gpc_key *k, const gpc_block *b, uint32_t len, bool held)
{
	uint32_t g, i, n = 0;
	gpc_block is;

	for (g = 0; g < GROUPS; g++)
		for (i = 0; i < TOKENS / kind[g].tokens; i++) {
			is = b[g * MOST + i];
			need(is_needed(g, i, len) == (is >= 0),
			     "%u tokens: group %u, block %u is 0x%x", len, g, i, (unsigned)is);
			need(is < 0 || !held || crew_holds(is, k[g * MOST + i]),
			     "%u tokens: group %u, block %u has other bytes", len, g, i);
			n += is >= 0;
		}
	return n;
}

static void make_keys(gpc_key *k)
{
	uint32_t g, i;

	for (g = 0; g < GROUPS; g++)
		for (i = 0; i < MOST; i++)
			k[g * MOST + i] = key_at(g, i);
}

static void matches(gpc *c, uint32_t flags)
{
	gpc_block b[GROUPS * MOST];
	gpc_key k[GROUPS * MOST];
	uint32_t g, n, len;
	int seat = crew_seat(c);

	make_keys(k);
	while (crew_goes_on(GATE_END, 1)) {
		len = match(c, k, b, flags);
		n = judge(k, b, len, flags);
		must_be(crew_stats(c, seat).refs, flags ? n : 0);
		if (flags)
			sched_yield();
		judge(k, b, len, flags); /* they stay as they are */
		for (g = 0; flags && g < GROUPS; g++)
			must_be(gpc_release(c, b + g * MOST, TOKENS / kind[g].tokens), 0);
		__atomic_fetch_add(&crew->count[N_MATCHED], 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&crew->count[N_LONGER], len > PINNED, __ATOMIC_RELAXED);
	}
	__atomic_fetch_add(&crew->count[N_STALE], crew_stats(c, seat).stale_refs, __ATOMIC_RELAXED);
}

static int matcher(gpc *c)
{
	matches(c, GPC_REF);
	return 0;
}

static int hinter(gpc *c)
{
	matches(c, 0);
	return 0;
}

static int member(int me)
{
	static int (*const role[MEMBERS])(gpc * c) = { holder, churner, matcher, hinter };
	gpc *c = crew_attach("member");

	if (me != HOLDER) {
		crew_wait(GATE_FULL, 1);
		crew_open(GATE_MATCHERS);
		crew_wait(GATE_MATCHERS, MEMBERS - 1);
	}
	must_be(role[me](c), 0);
	gpc_close(c);
	crew_open(GATE_LEFT);
	return 0;
}

static int writer(int me)
{
	struct gpc_config cfg = { .vram_blocks = BLOCKS,
				  .max_peers = MEMBERS + 1,
				  .free_target = -1 };
	gpc *c = crew_create(cfg, 0);

	must_be(gpc_writer_take(c, 0, 0), 0);
	crew_serve(c, GATE_LEFT, MEMBERS);
	must_be(crew_stats(c, -1).refs, 0);
	crew_check(c);
	gpc_close(c);
	return 0;
}

static int body(void)
{
	static const char *const name[MEMBERS + 1] = { "holder", "churner", "matcher", "hinter",
						       "writer, with a clean check" };
	pid_t pid[MEMBERS + 1];
	uint64_t *n;
	int i;

	crew_begin();
	n = crew->count;
	pid[MEMBERS] = crew_fork(writer, MEMBERS);
	for (i = 0; i < MEMBERS; i++)
		pid[i] = crew_fork(member, i);
	for (i = 0; i <= MEMBERS; i++)
		crew_join(pid[i], name[i]);
	ok(n[N_MATCHED] > 100, "%llu matches", (unsigned long long)n[N_MATCHED]);
	ok(n[N_LONGER] > 10,
	   "%llu found more than what is always there; %llu references came too late",
	   (unsigned long long)n[N_LONGER], (unsigned long long)n[N_STALE]);
	return done_testing();
}

int main(void)
{
	scratch_make("t214");
	return tap_guard(60, body, scratch_remove);
}
