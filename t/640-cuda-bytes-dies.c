/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of pools on a GPU, in several processes: made, lent and mapped; and processes killed in
 * the middle of copies into shared memory and of stores into another process's VRAM.  When
 * their end has been seen, nothing of theirs lands any more. */
#include "gpu/bytes.h"

#define AREA   (128 * MIB)               /* that victims copy into */
#define WORDS  (65536 / 4)               /* of a block that kernels of victims fill */
#define BLOCKS 64u
#define MINE   0x4d494e45u
#define THEIRS 0xdeadu

enum { GATE_MADE, GATE_MAPPED, GATE_DEAD, GATE_READY, GATE_LOOK, GATE_LOOKED, GATE_END };
enum { N_WRITTEN, N_LATE };

static struct page { struct shm_part part; } *page;      /* shared by all */
static uint32_t *area;                   /* host memory, shared by all */
static uint64_t nowhere;                 /* that no GPU knows */

/* ---- made, lent, mapped ---- */

static void put(uint8_t *to, int value, size_t n)
{
	must_cuda(cudaMemset(to, value, n));
	must_cuda(cudaDeviceSynchronize());
}

static void find(const uint8_t *at, int value, size_t n, const char *what)
{
	uint8_t *p = malloc(n);
	size_t i;

	must_cuda(cudaMemcpy(p, at, n, cudaMemcpyDefault));
	for (i = 0; i < n; i++)
		need(p[i] == value, "%s: byte %zu is 0x%02x, must be 0x%02x", what, i, p[i], value);
	free(p);
}

static int maker(int me)
{
	void *memory, *base, *again, *mine;
	struct shm_part none;

	must_be(B->make(uuid(), 5 * MIB + 3, &page->part, &memory, &base), 0);
	must_be(page->part.bytes, 5 * MIB + 3);
	must_be(B->make(uuid(), (uint64_t)1 << 50, &none, &again, &mine), -ENOSPC);
	need(strstr(gpc_last_error(), "missing"), "the sentence is: %s", gpc_last_error());
	put(base, 0x11, 5 * MIB + 3);
	must_be(B->map(uuid(), &page->part, &again, &mine), 0);  /* its own */
	need(mine == base, "its own allocation is mapped elsewhere");
	B->unmap(again);
	crew_open(GATE_MADE);
	crew_wait(GATE_MAPPED, 1);
	find(base, 0x22, 5 * MIB + 3, "what the other process wrote");
	crew_open(GATE_DEAD);
	for (;;)
		pause();
	return me;
}

static int importer(int me)
{
	void *memory, *base, *twice, *same;
	struct shm_part forged;

	crew_wait(GATE_MADE, 1);
	must_be(B->map(uuid(), &page->part, &memory, &base), 0);
	must_be(B->map(uuid(), &page->part, &twice, &same), 0);
	need(same == base, "mapped twice, at two addresses");
	B->unmap(twice);
	forged = page->part;
	forged.offset = 64 * MIB;
	must_be(B->map(uuid(), &forged, &twice, &same), -EBADMSG);
	forged.handle_bytes = 65;
	must_be(B->map(uuid(), &forged, &twice, &same), -EBADMSG);
	find(base, 0x11, page->part.bytes, "what its maker wrote");
	put(base, 0x22, page->part.bytes);
	crew_open(GATE_MAPPED);
	crew_wait(GATE_READY, 1);        /* the maker is dead */
	find(base, 0x22, page->part.bytes, "after the maker's death");
	put(base, 0x33, page->part.bytes);
	find(base, 0x33, page->part.bytes, "written after the maker's death");
	B->unmap(memory);
	must_cuda(cudaDeviceSynchronize());
	return me;
}

static int newcomer(int me)
{
	void *memory, *base;

	must_be(B->map(uuid(), &page->part, &memory, &base), -ESTALE);
	must_cuda(cudaDeviceSynchronize());
	must_cuda(cudaGetLastError());
	return me;
}

/* Allocations of an engine: the middle of a large one, a small one, and those nobody can open. */
static int lender(int me)
{
	uint8_t *big, *small;
	void *host = pinned(4096), *pool, *memory, *base;
	struct shm_part part;

	uuid();
	must_cuda(cudaMalloc((void **)&big, 64 * MIB));
	must_cuda(cudaMalloc((void **)&small, 100000));
	must_be(B->lend(uuid(), host, 4096, &part), -EINVAL);
	must_be(B->lend(uuid(), &nowhere, 8, &part), -EINVAL);
	must_be(B->lend(uuid(), big + MIB, 64 * MIB, &part), -EINVAL);   /* beyond its end */
	must_cuda(cudaMallocAsync(&pool, 4 * MIB, NULL));
	must_cuda(cudaDeviceSynchronize());
	must_be(B->lend(uuid(), pool, 4096, &part), -EINVAL);
	need(strstr(gpc_last_error(), "expandable_segments:False"), "the sentence is: %s",
	     gpc_last_error());
	must_be(B->lend(uuid(), small + 12, 5000, &page->part), 0);
	put(small, 0x44, 12);
	put(small + 12, 0x55, 5000);
	must_be(B->map(uuid(), &page->part, &memory, &base), 0);
	need(base == small + 12, "lent memory is mapped elsewhere in its own process");
	B->unmap(memory);
	crew_open(GATE_MADE);
	crew_wait(GATE_MAPPED, 2);
	must_be(B->lend(uuid(), big + 33 * MIB + 256, 3 * MIB, &page->part), 0);
	must_be(page->part.offset, 33 * MIB + 256);
	put(big + 33 * MIB, 0x66, 256);
	put(big + 33 * MIB + 256, 0x55, 3 * MIB);
	crew_open(GATE_MADE);
	crew_wait(GATE_MAPPED, 3);
	must_cuda(cudaFree(big));
	must_be(B->map(uuid(), &page->part, &memory, &base), -ESTALE);
	return me;
}

static int borrower(int me)
{
	void *memory, *base;
	uint32_t i;

	uuid();
	for (i = 2; i <= 3; i++) {
		crew_wait(GATE_MADE, i);
		must_be(B->map(uuid(), &page->part, &memory, &base), 0);
		find(base, 0x55, page->part.bytes, "what was lent");
		B->unmap(memory);
		crew_open(GATE_MAPPED);
	}
	return me;
}

static void processes(void)
{
	pid_t m = crew_fork(maker, 0), i = crew_fork(importer, 1);

	crew_wait(GATE_DEAD, 1);
	crew_kill(m);
	crew_join(crew_fork(newcomer, 2), "who maps the memory of a dead process: -ESTALE,");
	crew_open(GATE_READY);
	crew_join(i, "who had it mapped before that death");
	m = crew_fork(lender, 3);
	i = crew_fork(borrower, 4);
	crew_join(m, "who lends");
	crew_join(i, "who maps what is lent");
}

/* ---- killed in the middle ---- */

/* Copies from the device into shared memory without rest: whole, or in rows of 32 KiB. */
static int copier(int me)
{
	cudaStream_t stream = new_stream();
	struct copy_op op = { (uint8_t *)area, NULL, AREA, 1, 0, 0, 1, 0, 0 };
	uint32_t *vram, *slots = pinned(4), done;

	uuid();
	must_cuda(cudaMalloc((void **)&vram, AREA));
	slots[0] = 0;
	must_cuda(work_fill(vram, AREA / 4, slots, 1, THEIRS << 16 | (uint32_t)me, 0, stream));
	must_be(B->pin(area, AREA), 0);
	op.from = (uint8_t *)vram;
	if (me % 2) {
		op.width = 32768;
		op.rows = AREA / 32768;
		op.to_pitch = op.from_pitch = 32768;
	}
	must_be(B->copy(uuid(), &op, 1, stream, &done), 0);
	must_cuda(cudaStreamSynchronize(stream));
	for (done = 0; ; ) {
		cudaError_t e;
		uint32_t i;

		for (i = 0; i < 64; i++)         /* far ahead of the device */
			must_be(B->copy(uuid(), &op, 1, stream, &done), 0);
		crew_open(GATE_READY);
		e = cudaStreamSynchronize(stream);
		need(e == cudaSuccess, "copies: %s", cudaGetErrorString(e));
	}
	return me;
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

static void kill_copiers(int rounds)
{
	uint64_t seed = 5061, late = 0, wrote = 0, until;
	uint32_t ready = crew->gate[GATE_READY];
	int r;

	for (r = 0; r < rounds; r++) {
		pid_t pid;

		fill_area();
		ready = load_acquire(&crew->gate[GATE_READY]);
		pid = crew_fork(copier, r);
		crew_wait(GATE_READY, ready + 1);
		kill_at_random(pid, &seed);
		wrote += area[0] == (THEIRS << 16 | (uint32_t)r);
		fill_area();
		for (until = now_ns() + 500000000; now_ns() < until; )
			late += foreign_words();
	}
	is_int(wrote, rounds, "copiers to shared memory were killed in the middle");
	is_int(late, 0, "and no word of theirs came later");
}

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
	for (r = 1; crew_goes_on(GATE_END, 1); ) {
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
	return me;
}

/* By turns: an engine's kernel that fills, our kernel that copies blocks, copies from the host. */
static int storer(int me)
{
	uint32_t *slots = pinned(BLOCKS * sizeof(*slots)), *vram, i, done;
	int way = me % 3;
	cudaStream_t stream = new_stream();
	struct copy_pair pair[BLOCKS];
	struct copy_shape s = { NULL, NULL, WORDS * 4, WORDS * 4, WORDS * 4, 1, 0, 0 };
	struct copy_op op = { NULL, NULL, WORDS * 4, BLOCKS, WORDS * 4, WORDS * 4, 1, 0, 0 };
	void *memory, *base, *host = pinned((size_t)BLOCKS * WORDS * 4);

	must_be(B->map(uuid(), &page->part, &memory, &base), 0);
	must_cuda(cudaMalloc((void **)&vram, (size_t)BLOCKS * WORDS * 4));
	for (i = 0; i < BLOCKS; i++) {
		slots[i] = i;
		pair[i] = (struct copy_pair){ i, BLOCKS - 1 - i };
	}
	must_cuda(work_fill(vram, WORDS, slots, BLOCKS, THEIRS, 0, stream));
	must_cuda(cudaMemcpyAsync(host, vram, (size_t)BLOCKS * WORDS * 4, cudaMemcpyDefault, stream));
	must_cuda(cudaStreamSynchronize(stream));
	op.to = s.to = base;
	s.from = (uint8_t *)vram;
	op.from = host;
	must_be(B->copy_pairs(uuid(), &s, 1, pair, BLOCKS, stream), 0);
	must_cuda(cudaStreamSynchronize(stream));
	for (;;) {
		if (way == 0)
			must_cuda(work_fill(base, WORDS, slots, BLOCKS, THEIRS, 2000000000, stream));
		for (i = 0; way && i < 200; i++)
			must_be(way == 1 ? B->copy_pairs(uuid(), &s, 1, pair, BLOCKS, stream)
					    : B->copy(uuid(), &op, 1, stream, &done), 0);
		crew_open(GATE_READY);
		must_cuda(cudaStreamSynchronize(stream));
	}
	return me;
}

static void kill_storers(int rounds)
{
	uint32_t made = crew->gate[GATE_MADE], ready;
	pid_t k = crew_fork(keeper, 0);
	uint64_t seed = 5062;
	int r;

	crew_wait(GATE_MADE, made + 1);
	for (r = 0; r < rounds; r++) {
		pid_t pid;

		ready = load_acquire(&crew->gate[GATE_READY]);
		pid = crew_fork(storer, r);
		crew_wait(GATE_READY, ready + 1);
		kill_at_random(pid, &seed);
		crew_open(GATE_LOOK);
		crew_wait(GATE_LOOKED, (uint32_t)r + 1);
	}
	crew_open(GATE_END);
	crew_join(k, "the keeper of the memory that they stored into");
	is_int(crew->count[N_WRITTEN], (long long)rounds * BLOCKS,
	       "who stored into another process's VRAM was killed in the middle");
	is_int(crew->count[N_LATE], 0, "and no word of theirs came later");
}

/* ---- two GPUs ---- */

static int peers(int me)
{
	struct cudaDeviceProp p;
	uint8_t other[16], *from, *to, *host = pinned(MIB);
	struct copy_limits l;
	struct copy_op op = { NULL, NULL, 4096, 64, 8192, 12288, 1, 0, 0 };
	uint32_t done, i, j;
	int n = 0, now = -1;

	uuid();
	must_cuda(cudaGetDeviceCount(&n));
	if (n < 2)
		return 77;
	must_cuda(cudaGetDeviceProperties(&p, 1));
	memcpy(other, p.uuid.bytes, 16);
	must_be(B->limits(other, uuid(), &l), 0);
	need(!l.pairs, "pairs between two GPUs");
	for (i = 0; i < MIB; i++)
		host[i] = (uint8_t)(i * 7 + i / 4096);
	must_cuda(cudaSetDevice(1));
	must_cuda(cudaMalloc((void **)&to, MIB));
	must_cuda(cudaMemset(to, 0, MIB));
	must_cuda(cudaDeviceSynchronize());
	must_cuda(cudaSetDevice(0));
	must_cuda(cudaMalloc((void **)&from, MIB));
	must_cuda(cudaMemcpy(from, host, MIB, cudaMemcpyDefault));
	must_cuda(cudaDeviceSynchronize());
	op.to = to;
	op.from = from;
	must_be(B->copy(uuid(), &op, 1, NULL, &done), 0);
	must_cuda(cudaGetDevice(&now));
	must_be(now, 0);
	must_cuda(cudaDeviceSynchronize());
	must_cuda(cudaMemcpy(from, to, MIB, cudaMemcpyDefault));
	must_cuda(cudaMemset(to, 0, MIB));
	must_cuda(cudaMemcpy(host + 0, from, MIB, cudaMemcpyDefault));
	for (i = 0; i < 64; i++)
		for (j = 0; j < 4096; j++) {
			uint32_t at = i * 12288 + j;

			need(host[i * 8192 + j] == (uint8_t)(at * 7 + at / 4096),
			     "row %u, byte %u from the other GPU", i, j);
		}
	return 0;
}

static int two_gpus(int me)
{
	exit(peers(me));
}

/* ---- all ---- */

static int body(void)
{
	int status;

	device_need_gpu();
	crew_begin();
	page = shared_memory(4096);
	area = shared_memory(AREA);
	status = crew_status(crew_fork(two_gpus, 0));
	if (status == 77)
		skip(1, "there is one GPU");
	else
		is_int(status, 0, "copies between two GPUs: %s", crew->why);
	processes();
	kill_copiers(gpu_rounds(20));
	kill_storers(gpu_rounds(21));
	return done_testing();
}

int main(void)
{
	scratch_make("t640");
	return tap_guard(240, body, scratch_remove);
}
