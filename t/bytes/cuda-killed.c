/* SPDX-License-Identifier: Apache-2.0 */
/* Processes killed in the middle of copies and of kernels' stores, into shared memory and into
 * another process's VRAM, twenty of each.  When their end has been seen, nothing of theirs lands
 * any more: what they wrote to is written anew, and stays so.
 * Tests: lib/bytes/device/cuda_copy.c lib/bytes/device/cuda_copier.c */
#include "t/gpu/bytes.h"

#define VICTIMS 4u               /* at a time: what takes long is that each opens the GPU */
#define PART    (64 * MIB)       /* that one of them copies into ... */
#define AREA    (VICTIMS * PART) /* ... and all of them */
#define SMALL   32768u           /* bytes of small copies */
#define WORDS   (65536 / 4)      /* of a block that kernels of victims fill */
#define BLOCKS  64u
#define MINE    0x4d494e45u
#define THEIRS  0xdeadu

enum { GATE_MADE, GATE_READY, GATE_LOOK, GATE_LOOKED, GATE_END };
enum { N_WRITTEN, N_LATE };

static struct page {
	struct shm_part part;
} * page;              /* shared by all */
static uint32_t *area; /* host memory, shared by all */

/* ---- into shared memory ---- */

/* The rows of the table "When a process dies in the middle": what writes, and who wrote it. */
enum { WHOLE, SMALL_COPIES, KERNEL, ENGINE_KERNEL, OUR_KERNEL, COPIES_IN, WAYS };

static const char *const what_writes[WAYS] = {
	"copies of 64 MiB from the device into shared memory",
	"copies of 32 KiB from the device into shared memory",
	"a kernel's stores into shared memory",
	"an engine's kernel that stores into another process's VRAM",
	"our kernel that copies blocks into another process's VRAM",
	"copies from the host into another process's VRAM",
};

/* A victim's number: its way, and which of its way it is. */
#define VICTIM(way, n) ((int)(way)*256 + (int)(n))

static uint32_t *part_of(int me)
{
	return area + (uint32_t)me % VICTIMS * (PART / 4);
}

static uint32_t word_of(int me)
{
	return THEIRS << 16 | (uint32_t)me;
}

/* Far ahead of the device. */
static void enqueue_copies(int me, const uint32_t *vram, cudaStream_t stream)
{
	struct copy_op op[64];
	uint32_t i, j, done, n = me / 256 == WHOLE ? 1 : 64;
	size_t bytes = n == 1 ? PART : SMALL;

	for (j = 0; j < 32; j++) {
		for (i = 0; i < n; i++)
			op[i] = (struct copy_op){ .to = (uint8_t *)part_of(me) +
							(j * n + i) * bytes % PART,
						  .from = (const uint8_t *)vram + i * bytes,
						  .width = bytes,
						  .rows = 1,
						  .slices = 1 };
		must_be(B->copy(uuid(), op, n, stream, &done), 0);
	}
}

/* Stores there without rest, by a kernel. */
static void enqueue_stores(int me, uint64_t ns, cudaStream_t stream)
{
	static uint32_t *slots;
	uint32_t i, *at;

	if (!slots)
		slots = pinned(64 * sizeof(*slots));
	for (i = 0; i < 64; i++)
		slots[i] = i;
	must_cuda(cudaHostGetDevicePointer((void **)&at, part_of(me), 0));
	must_cuda(work_fill(at, PART / 4 / 64, slots, 64, word_of(me), ns, stream));
}

static int copier(int me)
{
	cudaStream_t stream = new_stream();
	uint32_t *vram, *slots = pinned(4);
	bool kernel = me / 256 == KERNEL;
	int round;

	must_cuda(cudaMalloc((void **)&vram, PART));
	slots[0] = 0;
	must_cuda(work_fill(vram, PART / 4, slots, 1, word_of(me), 0, stream));
	must_be(B->pin(part_of(me), PART), 0);
	for (round = 0;; round++) {
		cudaError_t e;

		if (kernel)
			enqueue_stores(me, round ? 2000000000 : 0, stream);
		else
			enqueue_copies(me, vram, stream);
		if (round == 1)
			crew_open(GATE_READY); /* one round has ended, the next one is under way */
		e = round == 1 && !kernel ? cudaSuccess : cudaStreamSynchronize(stream);
		need(e == cudaSuccess, "%s: %s", what_writes[me / 256], cudaGetErrorString(e));
	}
	return 0;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t foreign_words(void)
{
	uint64_t n = 0;
	size_t i;

	for (i = 0; i < AREA / 4; i++)
		n += ((volatile uint32_t *)area)[i] != MINE;
	return n;
}

static void fill_area(void)
{
	size_t i;

	for (i = 0; i < AREA / 4; i++)
		area[i] = MINE;
}

static void kill_at_random(pid_t pid, uint64_t *seed)
{
	volatile uint32_t spin;

	for (spin = crew_random(seed, 5000000); spin; spin--)
		;
	crew_kill(pid);
}

/* So many at once, all of them killed in the middle. */
static void kill_batch(int (*member)(int me), int way, int first, uint64_t *seed)
{
	uint32_t ready = load_acquire(&crew->gate[GATE_READY]), i;
	pid_t pid[VICTIMS];

	for (i = 0; i < VICTIMS; i++)
		pid[i] = crew_fork(member, VICTIM(way, (uint32_t)first + i));
	crew_wait(GATE_READY, ready + VICTIMS);
	for (i = 0; i < VICTIMS; i++)
		kill_at_random(pid[i], seed);
}

static int batches(int rounds)
{
	return (rounds + (int)VICTIMS - 1) / (int)VICTIMS;
}

static void kill_copiers(int way, int n)
{
	uint64_t seed = 5061 + (uint64_t)way, late = 0, until;
	int r, wrote = 0;
	uint32_t i;

	for (r = 0; r < n; r++) {
		int first = r * (int)VICTIMS;

		fill_area();
		kill_batch(copier, way, first, &seed);
		for (i = 0; i < VICTIMS; i++)
			wrote += *part_of((int)i) == word_of(VICTIM(way, (uint32_t)first + i));
		fill_area();
		for (until = now_ns() + 500000000; now_ns() < until;)
			late += foreign_words();
	}
	is_int(wrote, n * (int)VICTIMS, "%s: their processes are killed in the middle",
	       what_writes[way]);
	is_int(late, 0, "and no word of theirs comes later");
}

/* ---- into another process's VRAM ---- */

/* The keeper's memory, and its bytes alone when somebody has died. */
static int keeper(int me)
{
	uint32_t *slots = pinned(BLOCKS * sizeof(*slots)), i, r;
	unsigned long long *wrong = pinned(BLOCKS * sizeof(*wrong));
	void *memory, *base;
	cudaStream_t stream;

	must_be(B->make(uuid(), (uint64_t)BLOCKS * WORDS * 4, &page->part, &memory, &base), 0);
	stream = new_stream();
	for (i = 0; i < BLOCKS; i++)
		slots[i] = i;
	must_cuda(work_fill(base, WORDS, slots, BLOCKS, MINE, 0, stream));
	must_cuda(cudaStreamSynchronize(stream));
	crew_open(GATE_MADE);
	for (r = 1; crew_goes_on(GATE_END, 1);) {
		if (!crew_is_open(GATE_LOOK, r)) {
			crew_breath();
			continue;
		}
		must_cuda(work_verify(base, WORDS, slots, BLOCKS, MINE, 0, wrong, stream));
		must_cuda(cudaStreamSynchronize(stream));
		for (i = 0; i < BLOCKS; i++)
			crew->count[N_WRITTEN] += wrong[i] != 0;
		must_cuda(work_fill(base, WORDS, slots, BLOCKS, MINE, 0, stream));
		must_cuda(work_verify(base, WORDS, slots, BLOCKS, MINE, 200000000, wrong, stream));
		must_cuda(cudaStreamSynchronize(stream));
		for (i = 0; i < BLOCKS; i++)
			crew->count[N_LATE] += wrong[i];
		crew_open(GATE_LOOKED);
		r++;
	}
	B->unmap(memory);
	return 0;
}

/* Its quarter of the keeper's blocks. */
static int storer(int me)
{
	enum { MINE_ONLY = BLOCKS / VICTIMS };
	uint32_t *slots = pinned(MINE_ONLY * sizeof(*slots)), *vram, i, done, round;
	uint32_t first = (uint32_t)me % VICTIMS * MINE_ONLY;
	size_t bytes = (size_t)MINE_ONLY * WORDS * 4;
	int way = me / 256;
	cudaStream_t stream = new_stream();
	struct copy_pair pair[MINE_ONLY];
	struct copy_shape s = { NULL, NULL, WORDS * 4, WORDS * 4, WORDS * 4, 1, 0, 0 };
	struct copy_op op = { NULL, NULL, WORDS * 4, MINE_ONLY, WORDS * 4, WORDS * 4, 1, 0, 0 };
	void *memory, *base, *host = pinned(bytes);

	must_be(B->map(uuid(), &page->part, &memory, &base), 0);
	must_cuda(cudaMalloc((void **)&vram, bytes));
	for (i = 0; i < MINE_ONLY; i++) {
		slots[i] = i;
		pair[i] = (struct copy_pair){ i, MINE_ONLY - 1 - i };
	}
	must_cuda(work_fill(vram, WORDS, slots, MINE_ONLY, THEIRS, 0, stream));
	must_cuda(cudaMemcpyAsync(host, vram, bytes, cudaMemcpyDefault, stream));
	must_cuda(cudaStreamSynchronize(stream));
	base = (uint8_t *)base + (size_t)first * WORDS * 4;
	op.to = s.to = base;
	s.from = (uint8_t *)vram;
	op.from = host;
	for (round = 0;; round++) {
		if (way == ENGINE_KERNEL)
			must_cuda(work_fill(base, WORDS, slots, MINE_ONLY, THEIRS,
					    round ? 2000000000 : 0, stream));
		for (i = 0; way != ENGINE_KERNEL && i < (round ? 200u : 1u); i++)
			must_be(way == OUR_KERNEL
					? B->copy_pairs(uuid(), &s, 1, pair, MINE_ONLY, stream)
					: B->copy(uuid(), &op, 1, stream, &done),
				0);
		if (round == 1)
			crew_open(GATE_READY); /* one round has ended, the next one is under way */
		must_cuda(cudaStreamSynchronize(stream));
	}
	return 0;
}

static void kill_storers(int n)
{
	uint32_t made = crew->gate[GATE_MADE], look = 0;
	pid_t k = crew_fork(keeper, 0);
	uint64_t seed = 5062, written = 0, late = 0;
	int way, r;

	crew_wait(GATE_MADE, made + 1);
	for (way = ENGINE_KERNEL; way <= COPIES_IN; way++) {
		for (r = 0; r < n; r++) {
			kill_batch(storer, way, r * (int)VICTIMS, &seed);
			crew_open(GATE_LOOK);
			crew_wait(GATE_LOOKED, ++look);
		}
		is_int((long long)(crew->count[N_WRITTEN] - written), (long long)n * BLOCKS,
		       "%s: its process is killed in the middle, %d times", what_writes[way],
		       n * (int)VICTIMS);
		is_int((long long)(crew->count[N_LATE] - late), 0,
		       "and no word of theirs comes later");
		written = crew->count[N_WRITTEN];
		late = crew->count[N_LATE];
	}
	crew_open(GATE_END);
	crew_join(k, "the keeper of the memory that they stored into");
}

/* ---- all ---- */

static int body(void)
{
	int way, n = batches(gpu_rounds(20));

	device_need_gpu();
	crew_begin();
	page = shared_memory(4096);
	area = shared_memory(AREA);
	for (way = WHOLE; way <= KERNEL; way++)
		kill_copiers(way, n);
	kill_storers(n);
	return done_testing();
}

int main(void)
{
	scratch_make("t641");
	return tap_guard(240, body, scratch_remove);
}
