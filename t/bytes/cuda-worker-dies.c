/* SPDX-License-Identifier: Apache-2.0 */
/* Workers are killed with kernels in flight: lookups, and ones that write into the
 * blocks they had reserved, for two seconds.  Their ids come back, nothing else stays,
 * and when an id is back nobody writes to its bytes any more: whoever has it next finds
 * only its own there.
 *
 * The blocks are memory of the judge's, which the workers have opened by its IPC
 * handle.
 * Tests: lib/bytes/device/cuda_peer.c lib/bytes/device/cuda_memory.c */
#include "t/gpu/worker.h"

#define VICTIMS  4 /* a round */
#define HELD     6 /* blocks that each has reserved */
#define BLOCKS   32
#define WORDS    (65536 / 4) /* of a block */
#define N        256
#define WRITE_NS 2000000000ull
#define LOOK_NS  15000000ull /* for bytes of the dead; once WRITE_NS */
#define MINE     0x4d494e45u

enum { GATE_MADE, GATE_SLAB, GATE_GO, GATE_READY, GATE_DEAD, GATE_JUDGED, GATE_END, GATE_LEFT };
enum { N_ROUND, N_WRITTEN };

static int rounds;
static cudaIpcMemHandle_t *slab_handle; /* shared by all */

/* ---- victims ---- */

static void write_blocks(uint32_t *slab, const gpc_block *b, uint32_t me)
{
	uint32_t *slots = gpu_pinned(HELD * sizeof(*slots)), i;
	cudaStream_t stream;

	for (i = 0; i < HELD; i++)
		slots[i] = (uint32_t)GPC_SLOT(b[i]);
	must_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	must_cuda(work_fill(slab, WORDS, slots, HELD, 0xdead0000u + me, 0, stream));
	must_cuda(cudaStreamSynchronize(stream));
	must_cuda(work_fill(slab, WORDS, slots, HELD, 0xdead0000u + me, WRITE_NS, stream));
}

static void reserve(gpc *c, gpc_block *b, uint32_t me)
{
	gpc_key k = crew_key(me);
	uint32_t i;

	must_be(gpc_reserve(c, 0, HELD + 1, b, NULL, 0, 30000), HELD + 1);
	must_be(gpc_publish(c, NULL, &k, &b[HELD], 1, NULL, 0, -1), 1);
	for (i = 0; i < HELD; i++)
		need(GPC_SLOT(b[i]) < BLOCKS, "block 0x%x", (unsigned)b[i]);
}

/* me: from 1 on. */
static int victim(int me)
{
	gpc *c;
	void *slab;
	struct asker a;
	gpc_block b[HELD + 1];
	uint32_t i;

	device_use();
	must_cuda(cudaFree(NULL));
	crew_wait(GATE_SLAB, 1);
	must_cuda(cudaIpcOpenMemHandle(&slab, *slab_handle, cudaIpcMemLazyEnablePeerAccess));
	crew_wait(GATE_GO, (uint32_t)(me + VICTIMS - 1) / VICTIMS);
	c = crew_attach("victim");
	a = asker_new(c, N);
	reserve(c, b, (uint32_t)me);
	for (i = 0; i < N; i++)
		a.keys[i] = crew_key(1 + i);
	write_blocks(slab, b, (uint32_t)me);
	need(gpc_dev_enter(a.d) >= 0, "enter: %s", gpc_last_error()); /* never left */
	asker_launch(&a);
	crew_open(GATE_READY);
	for (;;) { /* sections and kernels, until it is killed */
		int s = gpc_dev_enter(a.d);

		if (s == -EAGAIN) { /* all are in flight */
			gpc_dev_wait(a.d, a.stream, 1);
			continue;
		}
		need(s >= 0, "enter: %s", gpc_last_error());
		asker_launch(&a);
		must_cuda(work_spin(a.spin, 2000000, 32, a.stream));
		must_be(gpc_dev_leave(a.d, s, a.stream), 0);
		if (crew_random(&(uint64_t){ (uint64_t)me * 77 }, 2))
			asker_wait(&a);
		else
			gpc_dev_wait(a.d, a.stream, 1);
	}
	return 0;
}

/* ---- the judge: its memory, and its bytes alone ---- */

struct judge {
	gpc *c;
	uint32_t *slab, *slots;
	unsigned long long *foreign; /* words, of each block */
	cudaStream_t stream;
	struct asker a;
};

static void make_slab(struct judge *j)
{
	uint32_t i;

	device_use();
	must_cuda(cudaMalloc((void **)&j->slab, (size_t)BLOCKS * WORDS * 4));
	must_cuda(cudaMemset(j->slab, 0, (size_t)BLOCKS * WORDS * 4));
	must_cuda(cudaIpcGetMemHandle(slab_handle, j->slab));
	must_cuda(cudaStreamCreateWithFlags(&j->stream, cudaStreamNonBlocking));
	j->slots = gpu_pinned(BLOCKS * sizeof(*j->slots));
	j->foreign = gpu_pinned(BLOCKS * sizeof(*j->foreign));
	for (i = 0; i < BLOCKS; i++)
		j->slots[i] = i;
}

/* Until it has all ids, those that the dead had as well; each is filled when it comes. */
static void take_all(struct judge *j, gpc_block *b)
{
	uint32_t i, have = 0;
	int n;

	for (; have < BLOCKS; have += (uint32_t)n) {
		crew_until((n = gpc_reserve(j->c, 0, BLOCKS - have, b + have, NULL, GPC_PARTIAL,
					    1000)) > 0,
			   crew_breath());
		for (i = have; i < have + (uint32_t)n; i++)
			j->slots[i] = (uint32_t)GPC_SLOT(b[i]);
		must_cuda(work_fill(j->slab, WORDS, j->slots + have, (uint32_t)n, MINE, 0,
				    j->stream));
		must_cuda(cudaStreamSynchronize(j->stream));
	}
}

static unsigned long long foreign(const struct judge *j)
{
	unsigned long long sum = 0;
	int i;

	for (i = 0; i < BLOCKS; i++)
		sum += j->foreign[i];
	return sum;
}

static void look(struct judge *j, uint64_t ns)
{
	gpc_block b[BLOCKS];

	take_all(j, b);
	must_cuda(work_verify(j->slab, WORDS, j->slots, BLOCKS, MINE, ns, j->foreign, j->stream));
	must_cuda(cudaStreamSynchronize(j->stream));
	need(!foreign(j), "%llu words of the dead after their ids came back", foreign(j));
	must_be(gpc_release(j->c, b, BLOCKS), 0);
}

/* Did the victims write at all? */
static void count_written(struct judge *j)
{
	must_cuda(work_verify(j->slab, WORDS, j->slots, BLOCKS, MINE, 0, j->foreign, j->stream));
	must_cuda(cudaStreamSynchronize(j->stream));
	crew->count[N_WRITTEN] += foreign(j);
}

/* Its own device works, whatever happened to others. */
static void look_up(struct judge *j)
{
	int s = gpc_dev_enter(j->a.d);

	need(s >= 0, "enter: %s", gpc_last_error());
	asker_launch(&j->a);
	must_be(gpc_dev_leave(j->a.d, s, j->a.stream), 0);
	asker_wait(&j->a);
}

static void no_trace(struct judge *j)
{
	struct gpc_stats st;
	int i;

	for (i = 0; i < 16; i++)
		crew_until(i == crew_seat(j->c) || crew_seat_is_free(j->c, i) || i == 0,
			   crew_breath());
	crew_until(!crew_stats(j->c, -1).dying && !crew_stats(j->c, -1).reserved, crew_breath());
	st = crew_stats(j->c, -1);
	must_be(st.refs, 0);
	must_be(st.sections, 0);
}

static int judge(int me)
{
	struct judge j = { 0 };
	int i;

	make_slab(&j);
	j.c = crew_attach("judge");
	j.a = asker_new(j.c, N);
	crew_open(GATE_SLAB);
	for (i = 1; i <= rounds; i++) {
		crew_wait(GATE_DEAD, (uint32_t)i);
		count_written(&j);
		look(&j, i == 1 ? WRITE_NS : LOOK_NS);
		look_up(&j);
		no_trace(&j);
		must_be(gpc_mirror_sync(j.c, GPC_TICKET_ALL, 10000), 0);
		crew_check(j.c);
		crew->count[N_ROUND] = (uint64_t)i;
		crew_open(GATE_JUDGED);
	}
	crew_wait(GATE_END, 1);
	asker_end(&j.a);
	must_cuda(cudaFree(j.slab));
	gpc_close(j.c);
	crew_open(GATE_LEFT);
	return me;
}

static int writer(int me)
{
	struct gpc_config cfg = { .vram_blocks = BLOCKS, .max_peers = 16, .free_target = -1 };
	gpc *c = gpu_create(cfg, 0);

	must_be(gpc_writer_take(c, 0, 0), 0);
	crew_open(GATE_MADE);
	crew_serve(c, GATE_LEFT, 1);
	crew_check(c);
	gpc_close(c);
	return me;
}

/* How much of the device is free, as a process sees it that comes and goes. */
static int meter(int me)
{
	device_use();
	must_cuda(cudaFree(NULL));
	crew->count[me] = gpu_free_memory();
	return 0;
}

static uint64_t measure(int where)
{
	need(crew_status(crew_fork(meter, where)) == 0, "no measure");
	return crew->count[where];
}

static void fork_victims(pid_t *pid, int round)
{
	int i;

	for (i = 0; i < VICTIMS; i++)
		pid[i] = crew_fork(victim, round * VICTIMS + i + 1);
}

static void kill_victims(void)
{
	pid_t pid[2][VICTIMS];
	uint64_t seed = 621;
	volatile uint32_t spin;
	int i, r;

	fork_victims(pid[0], 0);
	for (r = 0; r < rounds; r++) {
		if (r + 1 < rounds)
			fork_victims(pid[(r + 1) & 1], r + 1);
		crew_open(GATE_GO);
		crew_wait(GATE_READY, (uint32_t)(r + 1) * VICTIMS);
		for (spin = crew_random(&seed, 3000000); spin; spin--)
			;
		for (i = 0; i < VICTIMS; i++)
			kill(pid[r & 1][i], SIGKILL);
		for (i = 0; i < VICTIMS; i++)
			must_be(crew_status(pid[r & 1][i]), 256 + SIGKILL);
		crew_open(GATE_DEAD);
		crew_wait(GATE_JUDGED, (uint32_t)r + 1);
	}
}

static int body(void)
{
	pid_t w, j;
	uint64_t before, after;

	device_need_gpu();
	rounds = (gpu_rounds(100) + VICTIMS - 1) / VICTIMS;
	slab_handle = mmap(NULL, sizeof(*slab_handle), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (slab_handle == MAP_FAILED)
		bail("no shared page");
	crew_begin();
	w = crew_fork(writer, 0);
	crew_wait(GATE_MADE, 1);
	j = crew_fork(judge, 0);
	crew_wait(GATE_SLAB, 1);
	before = measure(30);
	kill_victims();
	after = measure(31);
	crew_open(GATE_END);
	crew_join(j, "the judge, who found no byte of the dead in a block that was back,");
	crew_join(w, "the writer, with a clean check,");
	is_int(crew->count[N_ROUND] * VICTIMS, rounds * VICTIMS, "workers were killed");
	ok(crew->count[N_WRITTEN] > 0, "%llu words had been written by then",
	   (unsigned long long)crew->count[N_WRITTEN]);
	ok(after + ((uint64_t)64 << 20) > before, "%lld KiB less of the device are free",
	   ((long long)before - (long long)after) / 1024);
	return done_testing();
}

int main(void)
{
	scratch_make("t621");
	return tap_guard(240, body, scratch_remove);
}
