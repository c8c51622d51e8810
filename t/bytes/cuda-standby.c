/* SPDX-License-Identifier: Apache-2.0 */
/* Writers are killed while workers' kernels run on their mirrors: each time a standby
 * takes over, the workers find its mirror and go on, and none of them ever sees an
 * error of CUDA.
 *
 * A standby has its context before it is needed.  Between two writers there is no
 * mirror, or a dead one's: lookups that are in flight then end like any others.
 * Tests: lib/bytes/device/cuda_mirror.c */
#include "t/gpu/worker.h"

#define WORKERS 4
#define BLOCKS  128
#define KEYS    400
#define N       256
#define AHEAD   2 /* standbys that are being made */

enum {
	GATE_MAY,
	GATE_READY = GATE_MAY + 1,
	GATE_TAKEN,
	GATE_WARM,
	GATE_END,
	GATE_LEFT,
	GATE_MEASURE,
	GATE_MEASURED,
	GATE_LAST
};
enum { N_ROUNDS, N_STALE, N_HITS, N_FREE, N_STEP = 16 };

static int rounds;

static void count(int what, uint64_t n)
{
	__atomic_fetch_add(&crew->count[what], n, __ATOMIC_SEQ_CST);
}

/* ---- workers ---- */

/* An answer that has not come: the next writer gives it. */
static bool again(int err)
{
	return err == -ENOTCONN || err == -ETIMEDOUT || err == -EAGAIN;
}

static void publish(gpc *c, uint64_t *seed)
{
	gpc_key k = crew_key(1 + crew_random(seed, KEYS));
	gpc_block b, resident = -1;
	gpc_ticket t = 0;
	int n;

	do
		n = gpc_reserve(c, 0, 1, &b, NULL, 0, 30000);
	while (again(n) && crew_goes_on(GATE_LAST, 1));
	must_be(n, 1);
	crew_own(b);
	crew_write(b, k);
	crew_disown(b);
	n = gpc_publish(c, NULL, &k, &b, 1,
			GPC_OPTIONS(gpc_publish_options, .resident = &resident, .ticket = &t), 0,
			-1);
	while (again(n) && crew_goes_on(GATE_LAST, 1))
		n = gpc_ticket_wait(c, t, 1000);
	need(n >= 0, "publish: %s", gpc_last_error());
	need(resident >= 0 && crew_holds(resident, k), "published in 0x%x", (unsigned)resident);
	if (resident != b)
		must_be(gpc_release(c, &resident, 1), 0);
	must_be(gpc_release(c, &b, 1), 0);
}

static void verify(struct asker *a)
{
	uint32_t i;

	for (i = 0; i < N; i++)
		need(a->blocks[i] == -1 || crew_holds(a->blocks[i], a->keys[i]),
		     "block 0x%x has other bytes in its section", (unsigned)a->blocks[i]);
}

/* On the device if there is a mirror, else on the host. */
static void look_up(struct asker *a, uint64_t *seed, int me)
{
	uint32_t i;
	int s, hits = 0;

	for (i = 0; i < N; i++)
		a->keys[i] = crew_key(1 + crew_random(seed, KEYS));
	s = gpc_dev_enter(a->d);
	if (s < 0) {
		must_be(s, -ESTALE);
		need(gpc_lookup(a->c, 0, a->keys, N, a->blocks, 0) >= 0, "the host: %s",
		     gpc_last_error());
		count(N_STALE, 1);
		return;
	}
	asker_launch(a);
	must_cuda(work_spin(a->spin, 1000000, 32, a->stream));
	asker_wait(a);
	verify(a);
	must_be(gpc_dev_leave(a->d, s, a->stream), 0);
	for (i = 0; i < N; i++)
		hits += a->blocks[i] >= 0;
	count(N_HITS, (uint64_t)hits);
	count(N_ROUNDS, 1);
	count(N_STEP + me, 1);
}

static int worker(int me)
{
	gpc *c = crew_attach("worker");
	uint64_t seed = 6200 + (uint64_t)me;
	struct asker a = asker_new(c, N);
	uint32_t measured = 0;

	crew_open(GATE_WARM);
	while (crew_goes_on(GATE_END, 1)) {
		publish(c, &seed);
		look_up(&a, &seed, me);
		if (me == 0 && crew_is_open(GATE_MEASURE, measured + 1)) {
			crew->count[N_FREE] = gpu_free_memory();
			measured++;
			crew_open(GATE_MEASURED);
		}
	}
	asker_end(&a);
	gpc_close(c);
	crew_open(GATE_LEFT);
	return 0;
}

/* ---- writers; the first one makes the cache ---- */

static int writer(int me)
{
	struct gpc_config cfg = { .vram_blocks = BLOCKS, .max_peers = 12, .free_target = 4 };
	gpc *c;

	device_use();
	must_cuda(cudaFree(NULL)); /* the context */
	c = me ? crew_attach("writer") : gpu_create(cfg, 0);
	crew_wait(GATE_MAY, (uint32_t)me + 1);
	crew_open(GATE_READY);
	must_be(gpc_writer_take(c, GPC_STANDBY, -1), 0);
	crew_open(GATE_TAKEN);
	crew_serve(c, GATE_LEFT, WORKERS);
	crew_until(crew_stats(c, -1).refs == 0 && crew_stats(c, -1).reserved == 0,
		   gpc_writer_serve(c, 1));
	must_be(crew_stats(c, -1).sections, 0);
	crew_check(c);
	gpc_close(c);
	return 0;
}

/* ---- who kills ---- */

static uint64_t measure(uint32_t n)
{
	crew_open(GATE_MEASURE);
	crew_wait(GATE_MEASURED, n);
	return crew->count[N_FREE];
}

/* Every worker has looked up twice more. */
static void workers_go_on(void)
{
	uint64_t *n = crew->count + N_STEP, target[WORKERS];
	int i;

	for (i = 0; i < WORKERS; i++)
		target[i] = load_relaxed(&n[i]) + 2;
	for (i = 0; i < WORKERS; i++)
		crew_until(load_relaxed(&n[i]) >= target[i], crew_breath());
}

static void kill_writers(pid_t *writers)
{
	int i, next = 1;

	for (i = 0; i < rounds; i++) {
		for (; next <= rounds && next <= i + AHEAD; next++)
			writers[next] = crew_fork(writer, next);
		crew_open(GATE_MAY);
		crew_wait(GATE_READY, (uint32_t)i + 2);
		workers_go_on();
		crew_kill(writers[i]);
		crew_wait(GATE_TAKEN, (uint32_t)i + 2);
		workers_go_on();
	}
}

static int body(void)
{
	pid_t pid[WORKERS], *writers;
	uint64_t before, after;
	int i;

	device_need_gpu();
	rounds = gpu_rounds(100);
	writers = calloc((size_t)rounds + 1, sizeof(*writers));
	crew_begin();
	writers[0] = crew_fork(writer, 0);
	crew_open(GATE_MAY);
	crew_wait(GATE_TAKEN, 1);
	for (i = 0; i < WORKERS; i++)
		pid[i] = crew_fork(worker, i);
	crew_wait(GATE_WARM, WORKERS);
	workers_go_on();
	before = measure(1);
	kill_writers(writers);
	after = measure(2);
	crew_open(GATE_END);
	for (i = 0; i < WORKERS; i++)
		crew_join(pid[i], "a worker, whose device never failed,");
	crew_join(writers[rounds], "the last writer, with a clean check,");
	/* a mirror is 2 MiB of the device, a context some hundred */
	ok(after + ((uint64_t)64 << 20) > before, "%lld KiB less of the device are free",
	   ((long long)before - (long long)after) / 1024);
	ok(crew->count[N_HITS] > 0,
	   "%d writers killed: %llu lookups on the device with %llu "
	   "hits, %llu on the host meanwhile",
	   rounds, (unsigned long long)crew->count[N_ROUNDS],
	   (unsigned long long)crew->count[N_HITS], (unsigned long long)crew->count[N_STALE]);
	free(writers);
	return done_testing();
}

int main(void)
{
	scratch_make("t620");
	return tap_guard(280, body, scratch_remove);
}
