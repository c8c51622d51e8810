/* SPDX-License-Identifier: Apache-2.0 */
/* Eight processes look up on one GPU while others insert and evict.
 *
 * Every hit is verified twice: inside its section without a reference, since its id is
 * not handed out while the section is open, however long the kernels run; and behind it
 * with one.  Whoever gets an id writes to its bytes at once, so an id that was handed
 * out too early shows.
 * Tests: kernels/lookup.cu kernels/load.cuh kernels/count.cuh lib/bytes/device/cuda_peer.c */
#include "t/gpu/worker.h"

#define WORKERS    8
#define PUBLISHERS 2
#define BLOCKS     512
#define KEYS       1500
#define ANCHORS    16 /* held by a publisher, all the time */
#define N          512
#define SLOW_NS    3000000

enum { GATE_MADE, GATE_ANCHORED, GATE_DONE, GATE_STOP, GATE_LEFT, GATE_END };
enum { N_ASKED, N_HITS, N_REFS, N_PUBLISHED, N_DROPPED };

static int rounds;

static void count(int what, uint64_t n)
{
	__atomic_fetch_add(&crew->count[what], n, __ATOMIC_SEQ_CST);
}

/* ---- who inserts ---- */

static void fill(gpc *c, const gpc_key *k, uint32_t n)
{
	gpc_block b[8], resident[8];
	uint32_t i;

	must_be(gpc_reserve(c, 0, n, b, NULL, 0, 30000), n);
	for (i = 0; i < n; i++) {
		crew_own(b[i]);
		crew_write(b[i], k[i]);
	}
	for (i = 0; i < n; i++)
		crew_disown(b[i]);
	need(gpc_publish(c, NULL, k, b, n, GPC_OPTIONS(gpc_publish_options, .resident = resident),
			 0, -1) >= 0,
	     "publish: %s", gpc_last_error());
	for (i = 0; i < n; i++) {
		need(resident[i] >= 0, "refused: %d", resident[i]);
		need(crew_holds(resident[i], k[i]), "other bytes in 0x%x", (unsigned)b[i]);
		if (resident[i] != b[i])
			must_be(gpc_release(c, &resident[i], 1), 0);
	}
	must_be(gpc_release(c, b, n), 0);
	count(N_PUBLISHED, n);
}

static void take_away(gpc *c, uint64_t *seed)
{
	gpc_key k = crew_key(1 + crew_random(seed, KEYS));
	gpc_block b[4];
	int i, n;

	need(gpc_lookup(c, 0, &k, 1, b, GPC_QUIET) >= 0, "lookup: %s", gpc_last_error());
	if (b[0] >= 0)
		need(gpc_drop(c, b, 1, NULL, 0, -1) >= 0, "drop: %s", gpc_last_error());
	n = gpc_evict(c, 0, 4, b, GPC_TAKE, 30000);
	need(n >= 0, "evict: %s", gpc_last_error());
	for (i = 0; i < n; i++) {
		crew_own(b[i]);
		crew_write(b[i], crew_no_key);
		crew_disown(b[i]);
	}
	must_be(gpc_release(c, b, (uint32_t)n), 0);
	count(N_DROPPED, 1);
}

static void anchor(gpc *c)
{
	gpc_key k[ANCHORS + 1] = { crew_no_key };
	gpc_block b[ANCHORS];
	int i;

	for (i = 0; i < ANCHORS; i++)
		k[i + 1] = crew_key(KEYS + 1 + (uint64_t)i);
	must_be(gpc_reserve(c, 0, ANCHORS, b, NULL, 0, 30000), ANCHORS);
	for (i = 0; i < ANCHORS; i++)
		crew_write(b[i], k[i + 1]);
	must_be(gpc_publish(c, k, k + 1, b, ANCHORS, NULL, 0, -1), ANCHORS);
	must_be(gpc_mirror_sync(c, GPC_TICKET_ALL, 30000), 0);
}

static int publisher(int me)
{
	gpc *c = crew_attach("publisher");
	uint64_t seed = 7000 + (uint64_t)me;
	gpc_key k[8];
	int i, turn;

	if (!me)
		anchor(c);
	crew_open(GATE_ANCHORED);
	for (turn = 0; crew_goes_on(GATE_STOP, 1); turn++) {
		for (i = 0; i < 8; i++)
			k[i] = crew_key(1 + (crew_random(&seed, KEYS - 8) / 8 * 8 + (uint64_t)i));
		fill(c, k, 8);
		if (turn % 8 == 7)
			take_away(c, &seed);
	}
	gpc_close(c);
	crew_open(GATE_LEFT);
	return 0;
}

/* ---- who looks up ---- */

static void ask_for(struct asker *a, uint64_t *seed)
{
	uint32_t i;

	for (i = 0; i < N; i++)
		a->keys[i] = crew_key(1 + (i < ANCHORS ? KEYS + i : crew_random(seed, KEYS)));
}

static void in_section(struct asker *a, const char *when)
{
	uint32_t i;

	for (i = 0; i < ANCHORS; i++)
		need(a->blocks[i] >= 0, "an anchor is not found");
	for (i = 0; i < N; i++)
		need(a->blocks[i] == -1 || crew_holds(a->blocks[i], a->keys[i]),
		     "block 0x%x has other bytes %s", (unsigned)a->blocks[i], when);
}

static void with_reference(struct asker *a)
{
	uint32_t i;

	for (i = 0; i < N; i++) {
		if (a->blocks[i] < 0)
			continue;
		count(N_HITS, 1);
		if (gpc_ref(a->c, &a->keys[i], &a->blocks[i], 1) != 1) {
			need(i >= ANCHORS, "an anchor is stale");
			continue;
		}
		need(crew_holds(a->blocks[i], a->keys[i]), "referenced, with other bytes");
		must_be(gpc_release(a->c, &a->blocks[i], 1), 0);
		count(N_REFS, 1);
	}
}

static void round_of(struct asker *a, uint64_t *seed, bool slow)
{
	int s = gpc_dev_enter(a->d);

	need(s >= 0, "enter: %s", gpc_last_error());
	ask_for(a, seed);
	asker_launch(a);
	if (slow) /* the ids are held back as long as this runs */
		must_cuda(work_spin(a->spin, SLOW_NS, 32, a->stream));
	asker_wait(a);
	in_section(a, "when its kernel is over");
	crew_breath();
	in_section(a, "in its section");
	must_be(gpc_dev_leave(a->d, s, a->stream), 0);
	with_reference(a);
	count(N_ASKED, N);
}

static int worker(int me)
{
	gpc *c;
	struct asker a;
	uint64_t seed = 6100 + (uint64_t)me;
	int i;

	crew_wait(GATE_ANCHORED, PUBLISHERS);
	c = crew_attach("worker");
	a = asker_new(c, N);
	for (i = 0; i < rounds; i++)
		round_of(&a, &seed, i % 4 == 3);
	crew_open(GATE_DONE);
	while (crew_goes_on(GATE_STOP, 1)) /* the slower ones have company */
		round_of(&a, &seed, true);
	asker_end(&a);
	gpc_close(c);
	crew_open(GATE_LEFT);
	return 0;
}

static int writer(int me)
{
	struct gpc_config cfg = { .vram_blocks = BLOCKS, .max_peers = 16, .free_target = 16 };
	gpc *c = gpu_create(cfg, 0);
	struct gpc_stats st;

	must_be(gpc_writer_take(c, 0, 0), 0);
	crew_open(GATE_MADE);
	crew_serve(c, GATE_LEFT, WORKERS + PUBLISHERS);
	crew_until(crew_stats(c, -1).refs == 0 && crew_stats(c, -1).reserved == 0 &&
			   crew_stats(c, -1).dying == 0,
		   gpc_writer_serve(c, 1));
	st = crew_stats(c, -1);
	must_be(st.sections, 0);
	/* the publishers' lookups are quiet, so these are the devices' */
	must_be(st.lookups, crew->count[N_ASKED]);
	must_be(st.hit_vram, crew->count[N_HITS]);
	must_be(st.miss, crew->count[N_ASKED] - crew->count[N_HITS]);
	must_be(gpc_mirror_sync(c, GPC_TICKET_ALL, 10000), 0);
	crew_check(c);
	gpc_close(c);
	return me;
}

static int body(void)
{
	pid_t w, pid[WORKERS + PUBLISHERS];
	uint64_t *n;
	int i;

	device_need_gpu();
	rounds = gpu_rounds(100);
	crew_begin();
	n = crew->count;
	w = crew_fork(writer, 0);
	crew_wait(GATE_MADE, 1);
	for (i = 0; i < PUBLISHERS; i++)
		pid[WORKERS + i] = crew_fork(publisher, i);
	for (i = 0; i < WORKERS; i++)
		pid[i] = crew_fork(worker, i);
	crew_wait(GATE_DONE, WORKERS);
	crew_open(GATE_STOP);
	for (i = 0; i < WORKERS; i++)
		crew_join(pid[i], "a worker, whose hits were what they said,");
	for (i = 0; i < PUBLISHERS; i++)
		crew_join(pid[WORKERS + i], "a publisher");
	crew_join(w, "the writer, which has counted the same hits and misses,");
	ok(n[N_HITS] > n[N_ASKED] / 10 && n[N_REFS] && n[N_DROPPED],
	   "%llu asked for, %llu hits, %llu referenced; %llu published, %llu evictions",
	   (unsigned long long)n[N_ASKED], (unsigned long long)n[N_HITS],
	   (unsigned long long)n[N_REFS], (unsigned long long)n[N_PUBLISHED],
	   (unsigned long long)n[N_DROPPED]);
	return done_testing();
}

int main(void)
{
	scratch_make("t610");
	return tap_guard(240, body, scratch_remove);
}
