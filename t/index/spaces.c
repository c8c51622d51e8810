/* SPDX-License-Identifier: Apache-2.0 */
/* Two workers, each with a VRAM pool in a space of its own, and one RAM pool behind both in a
 * third space.  First step by step, then under load.
 * Tests: lib/index/reader/prefix.c lib/index/writer/move.c */
#include "t/lib/crew.h"

#define VRAM     48
#define RAM      80
#define PROMPTS  24
#define DEEP     8
#define REQUESTS 1000
#define SHARED   GPC_SPACE(2)

enum { GATE_RAM, GATE_POOLS, GATE_STEP, GATE_RANDOM, GATE_LEFT };
enum { N_RAM, N_PUBLISHED, N_DEMOTED, N_SPARED, N_PROMOTED, N_FOUND };

struct side {
	gpc *c;
	int me, pool, ram;
	uint32_t own; /* its space, as a set */
	uint64_t seed;
	uint32_t step;
};

static void count(int what, uint64_t n)
{
	__atomic_fetch_add(&crew->count[what], n, __ATOMIC_RELAXED);
}

static int add_pool(gpc *c, uint32_t kind, uint32_t flags, uint32_t space, uint32_t blocks,
		    int demote_to)
{
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = kind,
			      .flags = flags,
			      .space = space,
			      .blocks = blocks,
			      .demote_to = demote_to };
	int n = gpc_pool_make(c, &p, NULL, -1);

	need(n >= 0, "pool_add: %s", gpc_last_error());
	return n;
}

static gpc_block at(struct side *s, uint32_t spaces, gpc_key key)
{
	gpc_block b = GPC_NONE;

	need(gpc_lookup(s->c, spaces, &key, 1, &b, GPC_QUIET) >= 0, "lookup: %s", gpc_last_error());
	return b;
}

/* Copies are complete: every one must be accepted. */
static void carry_out(struct side *s, const struct gpc_move *m, int n)
{
	int i;

	for (i = 0; i < n; i++)
		if (m[i].to >= 0)
			crew_copy(m[i].from, m[i].to);
	for (i = 0; i < n && m[i].to < 0; i++)
		;
	if (i < n)
		need(gpc_commit(s->c, m, (uint32_t)n, NULL, 0, -1) > 0, "commit: %s",
		     gpc_last_error());
}

/* ---- step by step: the same chain of four in both spaces ---- */

static void both_at_once(struct side *s)
{
	crew_open(GATE_STEP);
	crew_wait(GATE_STEP, 2 * ++s->step);
}

static void each_its_own(struct side *s, const gpc_key *key, gpc_block *b)
{
	gpc_block at_all[4];
	int i;

	must_be(gpc_reserve(s->c, s->pool, 4, b, NULL, 0, -1), 4);
	for (i = 0; i < 4; i++)
		crew_write(b[i], key[i + 1]);
	must_be(gpc_publish(s->c, key, key + 1, b, 4, NULL, 0, -1), 4);
	both_at_once(s);
	for (i = 0; i < 4; i++)
		need(at(s, s->own, key[i + 1]) == b[i], "its own block is found");
	must_be(gpc_lookup(s->c, 0, key + 1, 4, at_all, GPC_QUIET), 4);
	for (i = 0; i < 4; i++)
		need(GPC_POOL(at_all[i]) == (int)crew->count[N_FOUND], "lowest space first");
	must_be(gpc_lookup(s->c, SHARED, key + 1, 4, at_all, GPC_QUIET), 0);
	both_at_once(s);
}

static void turned(const gpc_block *b, gpc_block *leaf_first)
{
	int i;

	for (i = 0; i < 4; i++)
		leaf_first[i] = b[3 - i];
}

/* The first brings copies to RAM and keeps its blocks; the second finds them there. */
static void first_demotes(struct side *s, const gpc_key *key, const gpc_block *b)
{
	struct gpc_move m[4];
	gpc_block list[4], r;
	int i;

	turned(b, list);
	if (s->me == 0) {
		must_be(gpc_demote(s->c, s->pool, -1, list, 4, m, GPC_COPY, -1), 4);
		carry_out(s, m, 4);
		for (i = 0; i < 4; i++) { /* the references have moved along */
			must_be(gpc_release(s->c, &m[i].to, 1), 0);
			must_be(gpc_release(s->c, &m[i].from, 1), -EPERM);
		}
	}
	both_at_once(s);
	for (i = 0; i < 4; i++) {
		r = at(s, SHARED, key[i + 1]);
		need(r >= 0 && GPC_POOL(r) == s->ram && crew_holds(r, key[i + 1]),
		     "key %d is in RAM now", i);
		need(at(s, s->own, key[i + 1]) == b[i], "and where it was");
	}
	if (s->me == 1) {
		must_be(gpc_demote(s->c, s->pool, -1, list, 4, m, GPC_COPY, -1), 4);
		for (i = 0; i < 4; i++)
			must_be(m[i].to, GPC_NONE);
		need(at(s, s->own, key[4]) == list[0], "kept");
	}
	both_at_once(s);
}

/* The second lets its blocks go, and has them back from RAM. */
static void second_comes_back(struct side *s, const gpc_key *key, gpc_block *b)
{
	struct gpc_move m[4];
	gpc_block list[4], r[4];
	int i;

	turned(b, list);
	must_be(gpc_release(s->c, list, 4), 0);
	must_be(gpc_demote(s->c, s->pool, s->ram, list, 4, m, 0, -1), 4);
	for (i = 0; i < 4; i++) {
		must_be(m[i].to, GPC_NONE);
		must_be(at(s, s->own, key[i + 1]), GPC_NONE);
	}
	must_be(gpc_acquire(s->c, s->own | SHARED, key + 1, 4, r, 0), 4);
	must_be(gpc_promote(s->c, r, 4, s->pool, m, GPC_COPY, -1), 4);
	carry_out(s, m, 4);
	for (i = 0; i < 4; i++) {
		b[i] = m[i].to;
		must_be(at(s, s->own, key[i + 1]), b[i]);
		must_be(at(s, SHARED, key[i + 1]), r[i]);
		need(crew_holds(b[i], key[i + 1]), "copied");
	}
}

/* Without GPC_COPY the block in RAM goes, and its reference moves along. */
static void first_takes_it_all(struct side *s, const gpc_key *key, gpc_block *b)
{
	struct gpc_move m[4];
	gpc_block r[4];
	int i, result[4];

	need(gpc_drop(s->c, b, 1, NULL, 0, -1) == 1, "drop: %s", gpc_last_error());
	must_be(gpc_acquire(s->c, s->own | SHARED, key + 1, 4, r, 0), 4);
	must_be(gpc_promote(s->c, r, 4, s->pool, m, 0, -1), 4);
	for (i = 0; i < 4; i++)
		crew_copy(m[i].from, m[i].to);
	must_be(gpc_commit(s->c, m, 4, result, 0, -1), 4);
	for (i = 0; i < 4; i++) {
		must_be(result[i], 0);
		b[i] = m[i].to;
		must_be(at(s, s->own, key[i + 1]), b[i]);
		crew_until(at(s, SHARED, key[i + 1]) == GPC_NONE, crew_breath());
		must_be(gpc_release(s->c, &r[i], 1), -EPERM);
	}
}

/* A block that was published in RAM by itself is the parent of one that comes down to it. */
static void parent_of_its_own(struct side *s)
{
	gpc_key k[4] = { crew_no_key, crew_key(9101), crew_key(9102), crew_key(9103) };
	gpc_block b[3], r;
	struct gpc_move m;
	int i;

	must_be(gpc_reserve(s->c, s->ram, 1, &r, NULL, 0, -1), 1);
	crew_write(r, k[2]);
	must_be(gpc_publish(s->c, NULL, &k[2], &r, 1, NULL, 0, -1), 1);
	must_be(gpc_reserve(s->c, s->pool, 3, b, NULL, 0, -1), 3);
	for (i = 0; i < 3; i++)
		crew_write(b[i], k[i + 1]);
	must_be(gpc_publish(s->c, k, k + 1, b, 3, NULL, 0, -1), 3);
	must_be(gpc_release(s->c, b, 3), 0);
	must_be(gpc_demote(s->c, s->pool, -1, &b[2], 1, &m, 0, -1), 1);
	carry_out(s, &m, 1);
	must_be(at(s, SHARED, k[3]), m.to);
	must_be(gpc_release(s->c, &r, 1), 0);
	crew_check(s->c);
	must_be(gpc_drop(s->c, &r, 1, NULL, 0, -1), 1);
	must_be(at(s, SHARED, k[3]), GPC_NONE);
}

static void step_by_step(struct side *s)
{
	gpc_key key[5] = { crew_no_key };
	gpc_block b[4];
	int i;

	for (i = 1; i <= 4; i++)
		key[i] = crew_key(9000 + (uint64_t)i);
	each_its_own(s, key, b);
	first_demotes(s, key, b);
	if (s->me == 1)
		second_comes_back(s, key, b);
	both_at_once(s);
	if (s->me == 0)
		first_takes_it_all(s, key, b);
	both_at_once(s);
	need(at(s, s->own, key[4]) == b[3] && crew_holds(b[3], key[4]), "each has its own");
	must_be(gpc_release(s->c, b, 4), 0);
	if (s->me == 0)
		parent_of_its_own(s);
}

/* ---- under load ---- */

struct prompt {
	uint32_t n, hit, local; /* blocks, found, of those in its own space */
	gpc_key key[DEEP + 1];
	gpc_block block[DEEP];
};

static void verify(const struct prompt *p)
{
	uint32_t i;

	for (i = 0; i < p->hit; i++)
		need(crew_holds(p->block[i], p->key[i + 1]), "block 0x%x has other bytes",
		     (unsigned)p->block[i]);
}

static void find(struct side *s, struct prompt *p)
{
	uint32_t i, number = crew_random(&s->seed, PROMPTS);
	int hit;

	p->n = 1 + crew_random(&s->seed, DEEP);
	for (i = 1; i <= p->n; i++)
		p->key[i] = crew_key(number * 100 + i);
	hit = gpc_acquire(s->c, s->own | SHARED, p->key + 1, p->n, p->block, 0);
	need(hit >= 0, "acquire: %s", gpc_last_error());
	p->hit = (uint32_t)hit;
	for (i = 0; i < p->hit && GPC_POOL(p->block[i]) == s->pool; i++)
		;
	p->local = i;
	verify(p);
}

/* What is only in RAM comes up, as far as there is room. */
static void bring_up(struct side *s, struct prompt *p)
{
	struct gpc_move m[DEEP];
	int result[DEEP], i, n;
	uint32_t want = 0, flags = crew_random(&s->seed, 2) ? GPC_COPY : 0, base;

	while (p->local + want < p->hit && GPC_POOL(p->block[p->local + want]) == s->ram)
		want++;
	if (!want || p->local + want < p->hit)
		return;
	n = gpc_promote(s->c, p->block + p->local, want, s->pool, m, flags, -1);
	need(n > 0 || n == -ENOSPC || n == -ESTALE, "promote: %d, %s", n, gpc_last_error());
	for (i = 0; i < n; i++)
		if (m[i].to >= 0)
			crew_copy(m[i].from, m[i].to);
	if (n > 0)
		need(gpc_commit(s->c, m, (uint32_t)n, result, 0, -1) >= 0, "commit: %s",
		     gpc_last_error());
	for (i = 0, base = p->local; i < n; i++) {
		if (m[i].to < 0 || result[i] != 0)
			continue; /* in its own space already, or refused: it stays */
		need(m[i].from == p->block[base + (uint32_t)i], "in order");
		p->block[base + (uint32_t)i] = m[i].to;
		p->local += p->local == base + (uint32_t)i;
		count(N_PROMOTED, 1);
	}
	verify(p);
}

static void fill(struct side *s, struct prompt *p)
{
	gpc_block b[DEEP], resident[DEEP];
	uint32_t i;
	int n, done;

	if (p->local < p->hit || p->hit == p->n)
		return;
	n = gpc_reserve(s->c, s->pool, p->n - p->hit, b, NULL, GPC_PARTIAL, -1);
	need(n > 0 || n == -ENOSPC, "reserve: %s", gpc_last_error());
	for (i = 0; (int)i < n; i++) {
		crew_own(b[i]);
		crew_write(b[i], p->key[p->hit + i + 1]);
		crew_disown(b[i]);
	}
	if (n <= 0)
		return;
	done = gpc_publish(s->c, p->key + p->hit, p->key + p->hit + 1, b, (uint32_t)n,
			   GPC_OPTIONS(gpc_publish_options, .resident = resident), 0, -1);
	if (done == 0 && p->hit && resident[0] == -EXDEV) {
		/* found here at the end of its move to RAM, which has taken the key since */
		must_be(gpc_release(s->c, b, (uint32_t)n), 0);
		return;
	}
	need(done == n, "publish: %d of %d, %s", done, n, gpc_last_error());
	memcpy(p->block + p->hit, b, (size_t)n * sizeof(*b));
	p->hit += (uint32_t)n;
	count(N_PUBLISHED, (uint64_t)n);
	verify(p);
}

static void push_down(struct side *s)
{
	struct gpc_move m[4];
	int i, n, result[4];
	uint32_t flags = crew_random(&s->seed, 2) ? GPC_COPY : 0;
	bool cancel = !crew_random(&s->seed, 5);

	n = gpc_demote(s->c, s->pool, -1, NULL, 4, m, flags, -1);
	need(n > 0 || n == -ENOSPC, "demote: %s", gpc_last_error());
	for (i = 0; i < n; i++) {
		if (m[i].to < 0) {
			count(N_SPARED, 1);
			continue;
		}
		need(crew_holds(m[i].from, m[i].key), "a source has other bytes");
		crew_copy(m[i].from, m[i].to);
	}
	if (n <= 0)
		return;
	need(gpc_commit(s->c, m, (uint32_t)n, result, cancel ? GPC_CANCEL : 0, -1) >= 0,
	     "commit: %s", gpc_last_error());
	for (i = 0; i < n; i++) {
		need(result[i] == 0 || result[i] == -EEXIST || result[i] == -ESTALE,
		     "commit answers %d", result[i]);
		count(N_DEMOTED, !cancel && m[i].to >= 0 && result[i] == 0);
	}
}

static void under_load(struct side *s)
{
	struct prompt p = { .n = 0 };
	int i;

	for (i = 0; i < REQUESTS; i++) {
		find(s, &p);
		count(N_RAM, p.hit - p.local);
		bring_up(s, &p);
		fill(s, &p);
		must_be(gpc_release(s->c, p.block, p.hit), 0);
		if (!crew_random(&s->seed, 3))
			push_down(s);
	}
}

/* ---- members ---- */

static int worker(int me)
{
	struct side s = { .c = crew_attach("worker"), .me = me, .seed = 77 + (uint64_t)me };

	crew_wait(GATE_RAM, 1);
	crew_wait(GATE_POOLS, (uint32_t)me); /* the first one's pool has the lower number */
	s.ram = (int)crew->count[N_RAM];
	s.own = GPC_SPACE(me);
	s.pool = add_pool(s.c, GPC_VRAM, GPC_POOL_OWNED, (uint32_t)me, VRAM, s.ram);
	if (!me)
		crew->count[N_FOUND] = (uint64_t)s.pool;
	crew_open(GATE_POOLS);
	crew_wait(GATE_POOLS, 2);
	step_by_step(&s);
	crew_open(GATE_RANDOM);
	crew_wait(GATE_RANDOM, 2);
	crew->count[N_RAM] = 0;
	under_load(&s);
	crew_open(GATE_LEFT);
	crew_wait(GATE_LEFT, 2);
	crew_wait(GATE_LEFT, 3); /* checked, while the pools are there */
	gpc_close(s.c);
	return 0;
}

static int writer(int me)
{
	struct gpc_config cfg = {
		.max_blocks = 400, .max_peers = 4, .max_pools = 4, .free_target = me
	};
	gpc *c = crew_create(cfg, 0);
	struct gpc_pool p = { .size = sizeof(p) };

	must_be(gpc_writer_take(c, 0, 0), 0);
	/* this very thread serves the call */
	crew->count[N_RAM] = (uint64_t)add_pool(c, GPC_RAM, GPC_POOL_UNCHAINED, 2, RAM, -1);
	crew_open(GATE_RAM);
	crew_serve(c, GATE_LEFT, 2);
	must_be(crew_stats(c, -1).refs, 0);
	must_be(crew_stats(c, -1).reserved, 0);
	crew_check(c);
	crew_open(GATE_LEFT);
	/* with their owners the pools go; RAM stays */
	crew_until(gpc_pool_get(c, (int)crew->count[N_FOUND], &p) == -ENOENT,
		   gpc_writer_serve(c, 1));
	must_be(gpc_pool_get(c, 0, &p), 0);
	crew_check(c);
	gpc_close(c);
	return 0;
}

static int body(void)
{
	pid_t pid[3];
	int i;

	crew_begin();
	pid[2] = crew_fork(writer, -1);
	for (i = 0; i < 2; i++)
		pid[i] = crew_fork(worker, i);
	for (i = 0; i < 2; i++)
		crew_join(pid[i], "worker");
	crew_join(pid[2], "writer, with a clean check");
	ok(crew->count[N_RAM] && crew->count[N_PUBLISHED] && crew->count[N_DEMOTED] &&
		   crew->count[N_SPARED] && crew->count[N_PROMOTED],
	   "%llu found in RAM, %llu published, %llu demoted, %llu spared, %llu promoted",
	   (unsigned long long)crew->count[N_RAM], (unsigned long long)crew->count[N_PUBLISHED],
	   (unsigned long long)crew->count[N_DEMOTED], (unsigned long long)crew->count[N_SPARED],
	   (unsigned long long)crew->count[N_PROMOTED]);
	return done_testing();
}

int main(void)
{
	scratch_make("t210");
	return tap_guard(60, body, scratch_remove);
}
