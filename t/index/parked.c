/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that are held behind a clear cost nobody else's reserve anything, and who is short of
 * blocks has those that were let go at once, without housekeeping.
 * Tests: lib/index/table/parked.c lib/index/table/parked.h lib/index/writer/grant_place.c lib/index/writer/retire.c */
#include "config.h"

#include "t/lib/cache.h"
#include "t/lib/thread_cpu.h"

#define PART 1024
#define FEW  (4 * PART) /* more than one look of a command that has other blocks */
#define MANY (64 * PART)
#define ASKS 300

struct writer;
static bool keeps_house = true;
static gpc *c, *holder, *second;
static gpc_block all[MANY + 1];

void __real_parked_housekeep(struct writer *w);
void __wrap_parked_housekeep(struct writer *w);
void __wrap_parked_housekeep(struct writer *w)
{
	if (keeps_house)
		__real_parked_housekeep(w);
}

static void import(uint32_t from, uint32_t n, gpc_key *keys)
{
	uint64_t number[PART];
	uint32_t i;

	for (i = 0; i < n; i++)
		number[i] = from + i + 1;
	must(gpc_key_import(c, number, 8, 8, n, 0, keys));
}

/* Who refers to these blocks; the first n of `all` are published and nobody's then. */
static void hold(gpc *who, uint32_t n)
{
	static gpc_block got[PART];
	static gpc_key keys[PART];
	uint32_t i;

	for (i = 0; i < n; i += PART) {
		import(i, PART, keys);
		if (must(gpc_acquire(who, 0, keys, PART, got, 0)) != PART)
			bail("%u blocks from %u on are not there", PART, i);
	}
}

static void fill(uint32_t n)
{
	static gpc_key keys[PART];
	uint32_t i;

	for (i = 0; i < n; i += PART) {
		import(i, PART, keys);
		if (must(gpc_reserve(c, 0, PART, all + i, NULL, 0, 60000)) != PART ||
		    must(gpc_publish(c, NULL, keys, all + i, PART, NULL, GPC_NO_REF, -1)) != PART)
			bail("not all are published");
	}
}

static void begin(uint32_t held, uint32_t blocks)
{
	c = cache_new(blocks, 0);
	holder = cache_attach(0, 0);
	second = cache_attach(0, 0);
	fill(held);
	hold(holder, held);
}

static void clear(uint32_t held)
{
	is_int(gpc_pool_clear(c, 0, 0, 0, 1000), (int)held, "a clear leaves what is held");
	must(gpc_writer_serve(c, 0));
	must(gpc_writer_serve(c, 0));
}

static void end(void)
{
	keeps_house = true;
	must(gpc_close(second));
	must(gpc_close(holder));
	must(gpc_writer_serve(c, 50));
	clean(c, "at the end");
	cache_end(c);
}

/* ---- what it costs ---- */

/* This thread serves itself, so it has the writer's time as well. */
static uint64_t time_reserves(void)
{
	uint64_t began = 0;
	gpc_block b;
	int i;

	for (i = -ASKS; i < ASKS; i++) {
		if (i == 0)
			began = thread_cpu_ns();
		must(gpc_reserve(c, 0, 1, &b, NULL, 0, 60000));
		must(gpc_release(c, &b, 1));
	}
	return thread_cpu_ns() - began;
}

static void test_cost(void)
{
	uint64_t before, after;

	begin(MANY, MANY + PART);
	keeps_house = false;
	before = time_reserves();
	clear(MANY);
	after = time_reserves();
	ok(after < 3 * before + 1000000, "%u held blocks: %d reserves take %llu us, before %llu us",
	   MANY, ASKS, (unsigned long long)after / 1000, (unsigned long long)before / 1000);
	end();
}

/* What is refused for want of blocks costs no more for it, either. */
static void test_refused(void)
{
	uint64_t began, first, then;
	gpc_block b;
	int i;

	begin(MANY, MANY);
	keeps_house = false;
	clear(MANY);
	began = thread_cpu_ns();
	refused(gpc_reserve(c, 0, 1, &b, NULL, 0, 0), ENOSPC, "all blocks are held");
	first = thread_cpu_ns() - began;
	began = thread_cpu_ns();
	for (i = 0; i < ASKS; i++)
		gpc_reserve(c, 0, 1, &b, NULL, 0, 0);
	then = (thread_cpu_ns() - began) / ASKS;
	ok(then < first / 2 + 100000,
	   "another one that is refused takes %llu us, the first %llu us",
	   (unsigned long long)then / 1000, (unsigned long long)first / 1000);
	end();
}

/* ---- what is let go is there at once ---- */

static void is_given(gpc_block want, const char *name)
{
	gpc_block b = GPC_NONE;
	int got = gpc_reserve(c, 0, 1, &b, NULL, 0, 0);

	ok(got == 1 && b == want, "%s: %d, block 0x%x, want 0x%x", name, got, (unsigned)b,
	   (unsigned)want);
	if (got == 1)
		must(gpc_release(c, &b, 1));
	else
		return;
	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 0)); /* none is free from now on */
}

static void test_at_once(void)
{
	begin(FEW, FEW);
	hold(second, PART);
	keeps_house = false;
	clear(FEW);
	must(gpc_release(holder, all + FEW - 1, 1));
	is_given(all[FEW - 1], "the last one");
	must(gpc_release(holder, all + FEW / 2, 1));
	is_given(all[FEW / 2], "one from the middle");
	must(gpc_release(holder, all, 1));
	refused(gpc_reserve(c, 0, 1, all + MANY, NULL, 0, 0), ENOSPC, "one that another one holds");
	must(gpc_release(second, all, 1));
	is_given(all[0], "... lets go");
	must(gpc_release(second, all + 1, 1));
	must(gpc_release(holder, all + 1, 1));
	is_given(all[1], "the other way round");
	must(gpc_close(holder));
	must(gpc_writer_serve(c, 0));
	must(gpc_writer_serve(c, 0));
	is_int(gpc_reserve(c, 0, FEW - PART - 2, all, NULL, 0, 0), FEW - PART - 2,
	       "what its holder had when it left");
	must(gpc_release(c, all, FEW - PART - 2));
	holder = cache_attach(0, 0);
	end();
}

/* ---- and housekeeping finds what no count tells ---- */

static void test_housekeeping(void)
{
	struct gpc_pool p = { .size = sizeof(p) };

	begin(MANY, MANY);
	clear(MANY);
	must(gpc_release(holder, all, PART / 2));
	do {
		must(gpc_writer_serve(c, 20));
		must(gpc_pool_get(c, 0, &p));
	} while (p.dying != MANY - PART / 2);
	ok(true, "all that were let go come back, though nobody asks");
	end();
}

/* The holder looks up and releases all the time: its counts are others in each pass. */
static void test_busy_holder(void)
{
	struct gpc_pool p = { .size = sizeof(p) };
	gpc_key key;
	gpc_block b;
	int i;

	begin(MANY, MANY);
	clear(MANY);
	import(MANY + 1, 1, &key);
	must(gpc_release(holder, all, 1));
	must(gpc_release(holder, all + MANY - 1, 1));
	for (i = 0; i < 400; i++) {
		must(gpc_lookup(holder, 0, &key, 1, &b, 0));
		must(gpc_writer_serve(c, 20));
		must(gpc_pool_get(c, 0, &p));
		if (p.dying == MANY - 2)
			break;
	}
	is_int((int)p.dying, MANY - 2,
	       "so they do while their holder is busy, at both ends of the list");
	end();
}

static int body(void)
{
	cache_thread = false;
	test_at_once();
	test_cost();
	test_refused();
	test_housekeeping();
	test_busy_holder();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(100, body, cache_dir_remove);
}
