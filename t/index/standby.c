/* SPDX-License-Identifier: Apache-2.0 */
/* The writer is killed again and again, under load, with a standby behind it: what was
 * acknowledged and is referenced is there at every moment, in its block, with its bytes.
 * Tests: lib/index/takeover/takeover.c lib/index/takeover/open.c */
#include "t/lib/crew.h"

#define WORKERS 3
#define ROUNDS  100
#define VRAM    96
#define RAM     48
#define OWNED   16 /* blocks that each worker holds */
#define STEPS   40 /* of all workers together, between two kills */

enum { GATE_READY, GATE_TAKEN, GATE_END, GATE_LEFT };
enum { N_STEPS, N_PUBLISHED, N_MOVED, N_EVICTED, N_LOST, N_WRITER };

struct work {
	gpc *c;
	uint64_t seed, serial;
	uint32_t n;
	gpc_key key[OWNED], parent[OWNED];
	gpc_block block[OWNED];
};

static void count(int what, uint64_t n)
{
	__atomic_fetch_add(&crew->count[what], n, __ATOMIC_RELAXED);
}

/* Between two writers a call may end without an answer, when no standby was fast enough. */
static bool again(int err)
{
	count(N_LOST, err == -ENOTCONN);
	return err == -ENOTCONN;
}

static void verify(struct work *w)
{
	gpc_block at[OWNED];
	uint32_t i;

	must_be(gpc_lookup(w->c, 0, w->key, w->n, at, GPC_QUIET), w->n);
	for (i = 0; i < w->n; i++) {
		need(at[i] == w->block[i], "key %u was in block 0x%x and is in 0x%x", i,
		     (unsigned)w->block[i], (unsigned)at[i]);
		need(crew_holds(at[i], w->key[i]), "block 0x%x of key %u has other bytes",
		     (unsigned)at[i], i);
	}
}

static void commit(struct work *w, const struct gpc_move *m, int n, int *result)
{
	int i, err;

	for (i = 0; i < n; i++)
		crew_copy(m[i].from, m[i].to);
	do
		err = gpc_commit(w->c, m, (uint32_t)n, result, 0, -1);
	while (again(err));
	need(err >= 0, "commit: %s", gpc_last_error());
	count(N_MOVED, (uint64_t)err);
}

static int reserve(struct work *w, uint32_t n, gpc_block *b)
{
	int got;

	do
		got = gpc_reserve(w->c, 0, n, b, NULL, GPC_PARTIAL, -1);
	while (again(got));
	need(got > 0 || got == -ENOSPC, "reserve: %s", gpc_last_error());
	return got < 0 ? 0 : got;
}

/* One of ours, or what hangs below it: who holds a block holds all above it. */
static uint32_t choose_leaf(struct work *w)
{
	uint32_t i = crew_random(&w->seed, w->n), j;

	for (j = 0; j < w->n; j++)
		if (key_same(&w->parent[j], &w->key[i])) {
			i = j;
			j = UINT32_MAX; /* from the start again */
		}
	return i;
}

static void forget(struct work *w, uint32_t i)
{
	must_be(gpc_release(w->c, &w->block[i], 1), 0);
	w->n--;
	w->key[i] = w->key[w->n];
	w->parent[i] = w->parent[w->n];
	w->block[i] = w->block[w->n];
}

/* A chain of up to four new blocks. */
static void publish(struct work *w)
{
	gpc_key key[5] = { crew_no_key };
	gpc_block b[4], at[4];
	gpc_ticket t = 0;
	bool waits = !crew_random(&w->seed, 2);
	int i, err, n = reserve(w, 1 + crew_random(&w->seed, 4), b);

	for (i = 0; i < n; i++) {
		key[i + 1] = crew_key(((uint64_t)crew_me << 32) + ++w->serial);
		crew_own(b[i]);
		crew_write(b[i], key[i + 1]);
		crew_disown(b[i]);
	}
	if (!n)
		return;
	err = gpc_publish(w->c, key, key + 1, b, (uint32_t)n,
			  GPC_OPTIONS(gpc_publish_options, .resident = at, .ticket = &t), 0,
			  waits ? -1 : 0);
	need(err >= 0 || again(err), "publish: %s", gpc_last_error());
	while (!waits || err < 0)
		if (!again(gpc_ticket_wait(w->c, t, -1)))
			break;
	while (w->n + (uint32_t)n > OWNED)
		forget(w, choose_leaf(w));
	for (i = 0; i < n; i++) {
		need(at[i] == b[i], "publish of a new key answers %d", at[i]);
		w->key[w->n] = key[i + 1];
		w->parent[w->n] = key[i];
		w->block[w->n++] = b[i];
	}
	count(N_PUBLISHED, (uint64_t)n);
}

static void demote(struct work *w)
{
	struct gpc_move m[3];
	int n, results[3];

	do
		n = gpc_demote(w->c, 0, 1, NULL, 3, m, 0, -1);
	while (again(n));
	need(n > 0 || n == -ENOSPC, "demote: %s", gpc_last_error());
	if (n > 0)
		commit(w, m, n, results);
}

/* One of our own goes to RAM, or comes back. */
static void move(struct work *w)
{
	uint32_t i = w->n ? crew_random(&w->seed, w->n) : 0;
	struct gpc_move m;
	int n, result;

	if (!w->n)
		return;
	do
		n = GPC_POOL(w->block[i]) ? gpc_promote(w->c, &w->block[i], 1, 0, &m, 0, -1)
					  : gpc_demote(w->c, 0, 1, &w->block[i], 1, &m, 0, -1);
	while (again(n));
	/* -EPERM: it has children above it; or it was pinned by a begin that got no answer */
	need(n > 0 || n == -ENOSPC || n == -EPERM, "move: %s", gpc_last_error());
	if (n < 0)
		return;
	commit(w, &m, 1, &result);
	if (result == 0)
		w->block[i] = m.to;
	else /* promoted before its parent */
		must_be(result, -ENOENT);
}

static void evict(struct work *w)
{
	gpc_block b[2];
	uint32_t flags = crew_random(&w->seed, 2) ? GPC_TAKE : 0;
	int i, n;

	do
		n = gpc_evict(w->c, 0, 2, b, flags, -1);
	while (again(n));
	need(n >= 0, "evict: %s", gpc_last_error());
	count(N_EVICTED, (uint64_t)n);
	for (i = 0; flags && i < n; i++) {
		crew_own(b[i]);
		crew_write(b[i], crew_no_key);
		crew_disown(b[i]);
	}
	if (flags)
		must_be(gpc_release(w->c, b, (uint32_t)n), 0);
}

static int worker(int me)
{
	struct work w = { .c = crew_attach("worker"), .seed = 300 + (uint64_t)me };

	while (crew_goes_on(GATE_END, 1)) {
		switch (crew_random(&w.seed, 6)) {
		case 0:
			demote(&w);
			break;
		case 1:
			evict(&w);
			break;
		case 2:
			move(&w);
			break;
		default:
			publish(&w);
		}
		verify(&w);
		count(N_STEPS, 1);
	}
	gpc_close(w.c);
	crew_open(GATE_LEFT);
	return 0;
}

/* The first one makes the cache. */
static int server(int me)
{
	struct gpc_config cfg = {
		.vram_blocks = VRAM, .ram_blocks = RAM, .max_peers = 8, .free_target = 4
	};
	gpc *c = me ? crew_attach("server") : crew_create(cfg, 0);

	crew_open(GATE_READY);
	must_be(gpc_writer_take(c, GPC_STANDBY, -1), 0);
	crew->count[N_WRITER] = (uint64_t)getpid();
	crew_open(GATE_TAKEN);
	crew_serve(c, GATE_LEFT, WORKERS);
	crew_until(crew_stats(c, -1).refs == 0 && crew_stats(c, -1).reserved == 0,
		   gpc_writer_serve(c, 1));
	crew_check(c);
	gpc_close(c);
	return 0;
}

static int body(void)
{
	pid_t pid[WORKERS], old, next;
	uint64_t *n, target = 0;
	int i;

	crew_begin();
	n = crew->count;
	next = crew_fork(server, 0);
	crew_wait(GATE_TAKEN, 1);
	for (i = 0; i < WORKERS; i++)
		pid[i] = crew_fork(worker, i + 1);
	for (i = 0; i < ROUNDS; i++) {
		old = next;
		next = crew_fork(server, i + 1);
		crew_wait(GATE_READY, (uint32_t)i + 2);
		target = load_relaxed(&n[N_STEPS]) + STEPS;
		crew_until(load_relaxed(&n[N_STEPS]) >= target, crew_breath());
		crew_kill(old);
		crew_wait(GATE_TAKEN, (uint32_t)i + 2);
		if (n[N_WRITER] != (uint64_t)next)
			bail("somebody else has the seat");
	}
	crew_open(GATE_END);
	for (i = 0; i < WORKERS; i++)
		crew_join(pid[i], "worker, which found all it holds");
	crew_join(next, "the last writer, with a clean check");
	ok(n[N_PUBLISHED] && n[N_MOVED] && n[N_EVICTED],
	   "%llu published, %llu moved, %llu "
	   "evicted; %llu calls without an answer",
	   (unsigned long long)n[N_PUBLISHED], (unsigned long long)n[N_MOVED],
	   (unsigned long long)n[N_EVICTED], (unsigned long long)n[N_LOST]);
	return done_testing();
}

int main(void)
{
	scratch_make("t300");
	return tap_guard(60, body, scratch_remove);
}
