/* SPDX-License-Identifier: Apache-2.0 */
/* lookup.cu - a batch of keys, each by itself.
 *
 * A warp takes 32 keys a round, for a few rounds.  The keys of the next round are being loaded
 * while this one probes.  Blocks are small and many.  The hardware hands them out in the order of
 * the keys, which keeps the stream of keys dense in DRAM.  With 32 registers a lane, warps fill a
 * multiprocessor; one word on the stack costs more than it saves.
 *
 * A small batch waits for its longest chain of loads, and for its instructions to arrive.  So it
 * has one warp a block, which spreads it over all multiprocessors.  It has one round, and may use
 * all registers.
 * Tests: t/bytes/cuda-workers.t t/bytes/cuda-graph.t t/bytes/cuda-peer.t */
#include "count.cuh"
#include "load.cuh"

#define LOOKUP_FEW    16384u     /* keys of a small batch */
#define LOOKUP_MANY   (1u << 20) /* keys that fill any device many times */
#define LOOKUP_BLOCK  128u
#define LOOKUP_ROUNDS 3u
/* Resident threads of a multiprocessor.  On sm_80, 32 registers are too few to count
 * without a stack. */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ < 900
#define LOOKUP_THREADS(count) ((count) ? 1024u : 2048u)
#else
#define LOOKUP_THREADS(count) 2048u
#endif

struct lookup {
	struct mirror_view *const *word;
	const uint64_t *keys; /* two words each */
	int32_t *blocks;
	unsigned long long *counters;
	uint32_t n, rounds;
	uint32_t spaces; /* 0: those of the line */
};

template <bool ALIGNED>
static __device__ __forceinline__ ulonglong2 lookup_key(const struct lookup &l, uint64_t i)
{
	return i < l.n ? load_key<ALIGNED>(l.keys + 2 * i) : make_ulonglong2(0, 0);
}

/* Called by the block, at its end. */
static __device__ __forceinline__ void lookup_count(const struct lookup &l,
						    const struct tally *tally, uint32_t rounds)
{
	uint64_t most = blockDim.x * (uint64_t)rounds;

	tally_end(tally, l.counters, min(most, l.n - blockIdx.x * most));
}

template <bool ALIGNED, bool COUNT>
static __global__ void __launch_bounds__(LOOKUP_BLOCK, LOOKUP_THREADS(COUNT) / LOOKUP_BLOCK)
	lookup_kernel(struct lookup l)
{
	uint64_t warp = (blockIdx.x * (uint64_t)LOOKUP_BLOCK + threadIdx.x) / WARP;
	uint64_t i = warp * WARP * l.rounds + threadIdx.x % WARP;
	ulonglong2 key = lookup_key<ALIGNED>(l, i);
	const struct mirror_view *view = load_word(l.word);
	struct load_view v = load_view_of(view);
	struct space_set set = space_set_begin(v, l.spaces);
	__shared__ struct tally tally;

	if (COUNT)
		tally_begin(&tally);
#pragma unroll 1
	for (uint32_t round = 0; round < l.rounds; round++, i += WARP) {
		ulonglong2 next = make_ulonglong2(0, 0);
		uint32_t find;

		if (round + 1 < l.rounds)
			next = lookup_key<ALIGNED>(l, i + WARP);
		find = probe_spaces(v, view, set, key, i < l.n);
		if (i < l.n)
			l.blocks[i] = find_block(find);
		if (COUNT)
			tally_add(&tally, view, i < l.n ? find : FIND_NOTHING);
		key = next;
	}
	if (COUNT)
		lookup_count(l, &tally, l.rounds);
}

template <bool ALIGNED, bool COUNT>
static __global__ void __launch_bounds__(WARP) lookup_few(struct lookup l)
{
	uint32_t i = blockIdx.x * WARP + threadIdx.x;
	ulonglong2 key = lookup_key<ALIGNED>(l, i);
	const struct mirror_view *view = load_word(l.word);
	struct load_view v = load_view_of(view);
	struct space_set set = space_set_begin(v, l.spaces);
	__shared__ struct tally tally;
	uint32_t find;

	if (COUNT)
		tally_begin(&tally);
	find = probe_spaces(v, view, set, key, i < l.n);
	if (i < l.n)
		l.blocks[i] = find_block(find);
	if (COUNT) {
		tally_add(&tally, view, i < l.n ? find : FIND_NOTHING);
		lookup_count(l, &tally, 1);
	}
}

template <bool ALIGNED, bool COUNT>
static void probe_start(const struct lookup &l, cudaStream_t stream)
{
	uint64_t most = (uint64_t)LOOKUP_BLOCK * l.rounds;

	if (l.n <= LOOKUP_FEW)
		lookup_few<ALIGNED, COUNT><<<(l.n + WARP - 1) / WARP, WARP, 0, stream>>>(l);
	else
		lookup_kernel<ALIGNED, COUNT>
			<<<(uint32_t)((l.n + most - 1) / most), LOOKUP_BLOCK, 0, stream>>>(l);
}

extern "C" int launch_lookup(struct mirror_view *const *view, uint32_t spaces,
			     const uint64_t (*keys)[2], uint32_t n, int32_t *blocks,
			     unsigned long long *counters, void *stream)
{
	uint32_t rounds = n >= LOOKUP_MANY ? LOOKUP_ROUNDS : 1;
	struct lookup l = { view, (const uint64_t *)keys, blocks, counters, n, rounds, spaces };
	bool aligned = (uintptr_t)keys % 16 == 0;
	cudaStream_t s = (cudaStream_t)stream;

	if (!n)
		return 0;
	if (aligned && counters)
		probe_start<true, true>(l, s);
	else if (aligned)
		probe_start<true, false>(l, s);
	else if (counters)
		probe_start<false, true>(l, s);
	else
		probe_start<false, false>(l, s);
	return (int)cudaGetLastError();
}

extern "C" int launch_load_lookup(void)
{
	return load_kernels(lookup_kernel<true, true>, lookup_kernel<true, false>,
			    lookup_kernel<false, true>, lookup_kernel<false, false>,
			    lookup_few<true, true>, lookup_few<true, false>,
			    lookup_few<false, true>, lookup_few<false, false>);
}
