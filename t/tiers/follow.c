/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks that a drop takes along in a tier are found by what the feed has told: which blocks have lost
 * their parents, when nobody looks for these in time, and which are on their way down.  Other prompts
 * come up meanwhile.  Without memory a drop waits, and nothing else goes.
 * Tests: lib/tiers/steward/drops.c lib/tiers/steward/kin.c lib/tiers/steward/up.c */
#include "t/lib/below.h"

#include <pthread.h>

#include "index/request/request.h"
#include "index/segment/dropped.h"
#include "tiers/steward/kin.h"

static int ram, vram;

/* ---- a steward that stands still ---- */

struct gpc_tiers;
bool drops_are_due(const struct gpc_tiers *t);
bool __real_drops_carry_out(struct gpc_tiers *t);
bool __wrap_drops_carry_out(struct gpc_tiers *t);
int __real_publish_copies(gpc *c, const struct publish_copy *p, uint32_t n, gpc_block *resident,
			  const uint32_t *stop);
int __wrap_publish_copies(gpc *c, const struct publish_copy *p, uint32_t n, gpc_block *resident,
			  const uint32_t *stop);
int __real_dropped_since(const struct segment *s, uint64_t since, gpc_key *out, uint8_t *what,
			 uint32_t cap, uint64_t *upto);
int __wrap_dropped_since(const struct segment *s, uint64_t since, gpc_key *out, uint8_t *what,
			 uint32_t cap, uint64_t *upto);
bool __real_numbers_add(struct numbers *s, uint32_t number);
bool __wrap_numbers_add(struct numbers *s, uint32_t number);

struct stop {
	uint32_t on, told;
};
/* each time; with a drop; when it has read its keys; behind a publish of what goes down */
static struct stop feed, drops, keys, down;
static uint32_t no_memory;

static void stand(struct stop *s)
{
	while (__atomic_load_n(&s->on, __ATOMIC_SEQ_CST)) {
		__atomic_store_n(&s->told, 1, __ATOMIC_SEQ_CST);
		usleep(500);
	}
}

static void stop(struct stop *s)
{
	__atomic_store_n(&s->told, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&s->on, 1, __ATOMIC_SEQ_CST);
}

static void stands(struct stop *s)
{
	while (!__atomic_load_n(&s->told, __ATOMIC_SEQ_CST))
		usleep(500);
}

static void goes_on(struct stop *s)
{
	__atomic_store_n(&s->on, 0, __ATOMIC_SEQ_CST);
}

bool __wrap_drops_carry_out(struct gpc_tiers *t)
{
	stand(&feed);
	if (drops_are_due(t))
		stand(&drops);
	return __real_drops_carry_out(t);
}

int __wrap_publish_copies(gpc *c, const struct publish_copy *p, uint32_t n, gpc_block *resident,
			  const uint32_t *s)
{
	int got = __real_publish_copies(c, p, n, resident, s);

	if (p[0].source != GPC_NONE && !p[0].since)
		stand(&down);
	return got;
}

int __wrap_dropped_since(const struct segment *s, uint64_t since, gpc_key *out, uint8_t *what,
			 uint32_t cap, uint64_t *upto)
{
	int n = __real_dropped_since(s, since, out, what, cap, upto);

	stand(&keys);
	return n;
}

bool __wrap_numbers_add(struct numbers *s, uint32_t number)
{
	return !__atomic_load_n(&no_memory, __ATOMIC_SEQ_CST) && __real_numbers_add(s, number);
}

/* ---- caches ---- */

static gpc *begin(struct gpc_tiers_options *o)
{
	gpc *c = tiers_begin(1024, o, &ram, &vram);

	o->flags = GPC_TIERS_EXCLUSIVE;
	return c;
}

/* Of the chain 1 to 8 the first three are in RAM alone, and the others in the file. */
static gpc_tiers *fill(gpc *c, const struct gpc_tiers_options *o)
{
	gpc_tiers *t = tiers_open(o);
	gpc_block other;
	gpc_key k[9];

	tiers_fill(c, ram, 1, 40, 8);
	chain_keys(c, 1, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 3, 0, 60000), 3, "three blocks come up");
	is_int(tiers_below(c, 1, 8), 5, "and five stay below");
	/* so much for what moved: nothing is listed any more */
	bytes_chain(c, vram, 401, 1, &other, false);
	must(gpc_drop(c, &other, 1, NULL, 0, 60000));
	is_int(tiers_below(c, 1, 8), 5, "also when something else is dropped");
	return t;
}

static void goes(gpc *c, uint64_t n)
{
	gpc_key k = key_of(c, n);
	gpc_block b = find(c, n);

	if (gpc_reclaim(c, &k, &b, 1, NULL, 0, 60000) != 1)
		bail("block %d does not go: %s", (int)n, gpc_last_error());
	must(gpc_release(c, &b, 1));
}

struct dropping {
	gpc *c;
	int got;
};

static void *drop_run(void *arg)
{
	struct dropping *q = arg;
	gpc_block b = find(q->c, 1);

	q->got = gpc_drop(q->c, &b, 1, NULL, 0, 10000);
	return NULL;
}

static void is_gone(gpc *c, const char *when)
{
	is_int(tiers_below(c, 4, 5), 0, "%s: what follows goes", when);
	is_int(tiers_below(c, 9, 8), 8, "%s: the next chain is there", when);
}

/* ---- gaps ---- */

/* The third block is nowhere when the first one is dropped, and all three are there again before the
 * steward has read of any of that. */
static void test_filled_again(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = fill(c, &o);
	gpc_block b[3], first;

	stop(&feed);
	stands(&feed);
	goes(c, 3);
	first = find(c, 1);
	must(gpc_drop(c, &first, 1, NULL, 0, 0));
	bytes_chain(c, vram, 1, 3, b, false);
	goes_on(&feed);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_gone(c, "filled again");
	tiers_finish(c, t, "filled again");
}

/* ... and the steward looks at what is behind the gap, for a drop of something else that came before. */
static void test_while_it_looks(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = fill(c, &o);
	gpc_block b[3], other, first;

	bytes_chain(c, vram, 301, 1, &other, false);
	goes(c, 3);
	stop(&keys);
	must(gpc_drop(c, &other, 1, NULL, 0, 0));
	stands(&keys);
	first = find(c, 1);
	must(gpc_drop(c, &first, 1, NULL, 0, 0));
	bytes_chain(c, vram, 1, 3, b, false);
	goes_on(&keys);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_gone(c, "while it looks");
	tiers_finish(c, t, "while it looks");
}

/* ... and no steward is there. */
static void test_nobody_keeps(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = fill(c, &o);
	gpc_block b[3], first;
	int i;

	must(gpc_tiers_close(t));
	for (i = 0; gpc_tiers_sync(c, 100) != -ENOTCONN && i < 100; i++)
		;
	goes(c, 3);
	first = find(c, 1);
	must(gpc_drop(c, &first, 1, NULL, 0, 0));
	bytes_chain(c, vram, 1, 3, b, false);
	t = tiers_again(c, &o);
	is_gone(c, "nobody keeps");
	tiers_finish(c, t, "nobody keeps");
}

/* A block loses its parent when it has come to the file, and the steward does not know yet that it
 * has. */
static void test_on_its_way(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = tiers_open(&o);
	struct dropping q = { .c = c };
	gpc_block b[5];

	tiers_fill(c, ram, 9, 32, 8);
	must(gpc_pool_clear(c, ram, 0, 0, 60000));
	stop(&down);
	bytes_chain(c, ram, 1, 4, b, false);
	bytes_chain(c, ram, 101, 5, b, false); /* one block is missing */
	must(gpc_tiers_sync(c, 0) == -EAGAIN ? 0 : -1);
	stands(&down);
	is_int(tiers_below(c, 1, 4), 1, "the last block of a chain has come to the file");
	bytes_chain(c, vram, 1, 4, b, false);
	goes(c, 4);
	goes(c, 3);
	stop(&feed);
	stands(&feed);
	goes_on(&feed);
	usleep(2000);
	stop(&feed); /* a whole round behind that */
	stands(&feed);
	goes_on(&feed);
	goes_on(&down);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 4, 1), 1, "its parent is nowhere");
	drop_run(&q);
	is_int(q.got, 1, "the first one is dropped");
	is_int(tiers_below(c, 4, 1), 0, "and it goes");
	is_int(tiers_below(c, 9, 8), 8, "another chain is there");
	tiers_finish(c, t, "on its way");
}

/* ---- questions ---- */

/* A drop is not carried out, and what it has nothing to do with comes up. */
static void test_beside(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = fill(c, &o);
	struct dropping q = { .c = c };
	pthread_t thread;
	gpc_block b[3];
	gpc_key k[9];

	stop(&drops);
	pthread_create(&thread, NULL, drop_run, &q);
	stands(&drops);
	chain_keys(c, 9, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 60000), 8,
	       "another chain comes up beside a drop that is not carried out");
	bytes_chain(c, vram, 1, 3, b, false);
	chain_keys(c, 1, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 60000), 3, "and nothing of what follows from it");
	goes_on(&drops);
	pthread_join(thread, NULL);
	is_int(q.got, 1, "it is carried out");
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 60000), 3, "nothing comes up behind that");
	tiers_finish(c, t, "beside");
}

/* ---- memory ---- */

static void test_memory(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = fill(c, &o);
	gpc_block first = find(c, 1);

	__atomic_store_n(&no_memory, 1, __ATOMIC_SEQ_CST);
	is_int(gpc_drop(c, &first, 1, NULL, 0, 300), -ETIMEDOUT,
	       "without memory a drop is not acknowledged");
	is_int(tiers_below(c, 9, 8), 8, "and the tier has what it had");
	__atomic_store_n(&no_memory, 0, __ATOMIC_SEQ_CST);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_gone(c, "with memory");
	tiers_finish(c, t, "memory");
}

static int body(void)
{
	test_filled_again();
	test_while_it_looks();
	test_nobody_keeps();
	test_on_its_way();
	test_beside();
	test_memory();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
