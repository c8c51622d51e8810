/* SPDX-License-Identifier: Apache-2.0 */
/* scatter.cu - the writer's flush: changed entries, then the mirror's status.
 *
 * Up to SCATTER_ONE changes one block does all the work, and its barrier puts the status after the
 * entries.  More changes go to many blocks, and the status follows in a launch of its own.
 *
 * A change is two halves of 16 bytes, and two neighbouring lanes read them.  The list may lie in
 * host memory, and a warp then asks the bus for 512 bytes in a row.
 * Tests: t/bytes/cuda-busy.t */
#include "load.cuh"

#define SCATTER_BLOCK 1024u
#define SCATTER_DEEP  2 /* halves that a thread loads together */
#define SCATTER_ONE   2048u

static __device__ __forceinline__ void store_entry(struct probe_entry *p, ulonglong2 entry)
{
	asm volatile("{\n\t"
		     ".reg .b128 t;\n\t"
		     "mov.b128 t, {%1, %2};\n\t"
		     "st.relaxed.gpu.global.b128 [%0], t;\n\t"
		     "}"
		     :
		     : "l"(p), "l"(entry.x), "l"(entry.y)
		     : "memory");
}

static __device__ __forceinline__ void store_relaxed64(void *p, uint64_t v)
{
	asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(p), "l"(v) : "memory");
}

static __device__ __forceinline__ uint64_t load_sys64(const void *p)
{
	uint64_t v;

	asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}

static __device__ __forceinline__ void store_release64(void *p, uint64_t v)
{
	asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(p), "l"(v) : "memory");
}

/* Half h of the list: an odd half is an entry, and its slot is in the half before. */
static __device__ __forceinline__ void scatter_half(struct probe_entry *table, ulonglong2 half,
						    bool mine)
{
	uint32_t slot = __shfl_up_sync(ALL_LANES, (uint32_t)half.x, 1);

	if (mine && threadIdx.x & 1)
		store_entry(table + slot, half);
}

/* A thread's halves from h on, `step` apart.  All loads come first, so they travel together. */
struct halves {
	ulonglong2 half[SCATTER_DEEP];
};

static __device__ __forceinline__ struct halves load_halves(const struct launch_change *changes,
							    uint64_t h, uint64_t step, uint64_t end)
{
	const uint64_t *words = (const uint64_t *)changes;
	struct halves v;

#pragma unroll
	for (int k = 0; k < SCATTER_DEEP; k++) {
		v.half[k] = make_ulonglong2(0, 0);
		if (h + k * step < end)
			v.half[k] = load_key<true>(words + 2 * (h + k * step));
	}
	return v;
}

static __device__ __forceinline__ void store_halves(struct probe_entry *table,
						    const struct halves &v, uint64_t h,
						    uint64_t step, uint64_t end)
{
#pragma unroll
	for (int k = 0; k < SCATTER_DEEP; k++)
		scatter_half(table, v.half[k], h + k * step < end);
}

static __device__ __forceinline__ void scatter(struct probe_entry *table,
					       const struct launch_change *changes, uint32_t n)
{
	uint64_t step = gridDim.x * (uint64_t)blockDim.x, end = 2ull * n;
	uint64_t base = blockIdx.x * (uint64_t)blockDim.x;

	for (; base < end; base += SCATTER_DEEP * step) {
		struct halves v = load_halves(changes, base + threadIdx.x, step, end);

		store_halves(table, v, base + threadIdx.x, step, end);
	}
}

/* Called by one thread, after the block's barrier.  The sequence is released last, so a reader of
 * it sees all entries and the rest of the status.  The block's stores are before the barrier, so
 * the release covers them. */
static __device__ __forceinline__ void store_status(struct mirror_status *status,
						    const struct mirror_status &value)
{
	store_relaxed64(&status->ram_pools[0], value.ram_pools[0]);
	store_relaxed64(&status->ram_pools[1], value.ram_pools[1]);
	asm volatile("st.relaxed.sys.global.u32 [%0], %1;"
		     :
		     : "l"(&status->spaces), "r"(value.spaces)
		     : "memory");
	store_release64(&status->sequence, value.sequence);
}

static __global__ void __launch_bounds__(SCATTER_BLOCK)
	scatter_many(struct probe_entry *table, const struct launch_change *changes, uint32_t n)
{
	scatter(table, changes, n);
}

static __global__ void __launch_bounds__(SCATTER_BLOCK)
	scatter_one(struct probe_entry *table, struct mirror_status *status,
		    const struct launch_change *changes, uint32_t n, struct mirror_status value)
{
	scatter(table, changes, n);
	__syncthreads();
	if (!threadIdx.x)
		store_status(status, value);
}

/* The loads of the changes begin before their number is known. */
static __global__ void __launch_bounds__(SCATTER_BLOCK)
	scatter_pinned(struct probe_entry *table, struct mirror_status *status,
		       struct launch_pinned *pinned, uint32_t most)
{
	struct halves v = load_halves(pinned->change, threadIdx.x, blockDim.x, 2ull * most);
	uint32_t n = pinned->n;
	struct mirror_status value;
	uint64_t ticket;

	if (!threadIdx.x) {
		value.sequence = pinned->value.sequence;
		value.ram_pools[0] = pinned->value.ram_pools[0];
		value.ram_pools[1] = pinned->value.ram_pools[1];
		value.spaces = pinned->value.spaces;
		ticket = pinned->ticket;
	}
	store_halves(table, v, threadIdx.x, blockDim.x, 2ull * min(n, most));
	__syncthreads();
	if (!threadIdx.x) {
		store_status(status, value);
		store_release64(&pinned->done, ticket);
	}
}

extern "C" int launch_scatter_pinned(struct probe_entry *table, struct mirror_status *status,
				     struct launch_pinned *pinned, uint32_t most, void *stream)
{
	uint32_t threads = (2 * most + WARP - 1) / WARP * WARP;

	if (!most || most > LAUNCH_PINNED || (uintptr_t)pinned % 16)
		return (int)cudaErrorInvalidValue;
	if (threads > SCATTER_BLOCK)
		threads = SCATTER_BLOCK;
	scatter_pinned<<<1, threads, 0, (cudaStream_t)stream>>>(table, status, pinned, most);
	return (int)cudaGetLastError();
}

extern "C" int launch_scatter(struct probe_entry *table, struct mirror_status *status,
			      const struct launch_change *changes, uint32_t n,
			      const struct mirror_status *value, void *stream)
{
	cudaStream_t s = (cudaStream_t)stream;
	uint64_t grid = (2ull * n + SCATTER_BLOCK - 1) / SCATTER_BLOCK;
	uint32_t threads = SCATTER_BLOCK;

	if ((uintptr_t)changes % 16)
		return (int)cudaErrorMisalignedAddress;
	if (n > SCATTER_ONE) {
		scatter_many<<<(uint32_t)grid, SCATTER_BLOCK, 0, s>>>(table, changes, n);
		n = 0;
	}
	if (2ull * n < threads)
		threads = (2 * n + WARP) / WARP * WARP;
	scatter_one<<<1, threads, 0, s>>>(table, status, changes, n, *value);
	return (int)cudaGetLastError();
}

/* ---- the end of a section ---- */

/* The earlier work of the stream is over and counted when this kernel begins.  Counts of other
 * streams so far come along, and their later counts come with their own signals.  The ticket is
 * never lowered: a signal may be late, and another section may have the slot by then. */
static __global__ void signal_kernel(uint64_t *done, uint64_t ticket,
				     const unsigned long long *counters, uint64_t *totals)
{
	const volatile unsigned long long *now = counters;

	for (int i = 0; i < 4; i++)
		store_relaxed64(&totals[i], now[i]);
	if (load_sys64(done) < ticket)
		store_release64(done, ticket);
}

extern "C" int launch_signal(uint64_t *done, uint64_t ticket, const unsigned long long *counters,
			     uint64_t *totals, void *stream)
{
	signal_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(done, ticket, counters, totals);
	return (int)cudaGetLastError();
}

extern "C" int launch_load_scatter(void)
{
	return load_kernels(scatter_many, scatter_one, scatter_pinned, signal_kernel);
}
