/* SPDX-License-Identifier: Apache-2.0 */
/* match.cu - the longest resident prefix of many sequences; one block each.
 *
 * In the lowest space a chain is only ever cut at its end, so the first missing key is found by
 * search.  A warp probes as many keys at once as bring it to the end in the fewest rounds, and no
 * more (12 a round for 2048 keys: 13^3 > 2048), since the keys may be read over the bus.  A flush
 * in progress may show a child without its parent.  The result still never falls short of the keys
 * that were present throughout.
 *
 * Then the block goes over the keys in order, up to the first key that no space has.  It does so
 * where blocks are wanted, or where other spaces may go on.
 *
 * Within the lowest space, blocks in RAM lie after blocks in VRAM (demotion goes leaf first).  So
 * one more search gives the hits by tier of a part that was only searched.
 * Tests: t/bytes/device-moves.t t/bytes/cuda-graph.t */
#include "count.cuh"
#include "load.cuh"

#define MATCH_WIDE   256u       /* threads, where all keys are probed */
#define MATCH_UNSURE 128u       /* where that depends on the status's spaces */
#define MATCH_GRID   (1u << 20) /* blocks at most; each takes every so-many-th sequence */

struct match {
	struct mirror_view *const *word;
	const uint64_t *keys; /* two words each */
	const uint32_t *start;
	uint32_t *len;
	int32_t *blocks;              /* or NULL */
	unsigned long long *counters; /* or NULL */
	uint32_t nseq;
	uint32_t spaces; /* 0: those of the status */
};

/* One sequence. */
struct chain {
	const uint64_t *keys;
	int32_t *blocks;
	uint32_t n;
};

struct match_shared {
	uint32_t len, next, ram;
};

/* Keys to probe at once: the least number that needs no more rounds than a whole warp.  (A
 * rounding error costs a probe or a round.) */
static __device__ __forceinline__ uint32_t search_width(uint32_t n)
{
	float answers = (float)n + 1.f;
	float rounds = ceilf(log2f(answers) / log2f(WARP + 1.f) - 1e-4f);

	return max(1u, min(WARP, (uint32_t)(exp2f(log2f(answers) / rounds) + 1e-3f)));
}

/* k probes divide `open` keys from lo on evenly; this is the key of number i. */
static __device__ __forceinline__ uint32_t search_at(uint32_t lo, uint32_t open, uint32_t k,
						     uint32_t i)
{
	return lo + (uint32_t)((i + 1) * ((uint64_t)open + 1) / (k + 1)) - 1;
}

/* Called by one warp: how many of the first n keys of the chain are in the space; `vram`: in VRAM
 * there. */
template <bool ALIGNED>
static __device__ __forceinline__ uint32_t search(const struct load_view &v, ulonglong2 mask,
						  const struct chain &c, uint32_t n, bool vram)
{
	uint32_t lane = threadIdx.x % WARP, width = search_width(n), lo = 0, hi = n;

	while (lo < hi) { /* keys below lo are there, and key hi is not */
		uint32_t from = lo, open = hi - lo, k = min(width, open), misses, hits, find;
		ulonglong2 key = make_ulonglong2(0, 0);
		bool probes = lane < k, miss;

		if (probes)
			key = load_key<ALIGNED>(c.keys + 2ull * search_at(from, open, k, lane));
		find = probe_warp<false>(v, key.x ^ mask.x, key.y ^ mask.y, probes);
		miss = !find_hit(find) || (vram && is_ram(v.status, find));
		misses = __ballot_sync(ALL_LANES, probes && miss);
		hits = misses ? __ffs(misses) - 1 : k;
		if (misses)
			hi = search_at(from, open, k, hits);
		if (hits)
			lo = search_at(from, open, k, hits - 1) + 1;
	}
	return lo;
}

/* Called by one warp: the resident part in the lowest space.  Where no walk follows, its hits in
 * RAM are counted here. */
template <bool ALIGNED>
static __device__ __forceinline__ void
search_chain(const struct load_view &v, const struct mirror_view *view, struct space_set set,
	     const struct chain &c, bool tiers, struct match_shared *sh)
{
	ulonglong2 mask = load_view16(view->mask[set.first]);
	bool vram = false;
	uint32_t n = set.all ? c.n : 0, len = 0;

	for (;;) {
		n = search<ALIGNED>(v, mask, c, n, vram);
		if (!vram)
			len = n;
		if (vram || !tiers || c.blocks)
			break;
		vram = true;
	}
	if (!threadIdx.x) {
		sh->len = len;
		sh->ram = len - n;
	}
}

/* Called by the block: walks the keys from `at` on, up to `end` or to the first key that no space
 * of the set has.  Returns that key's number; ram: this thread's hits in RAM. */
template <bool ALIGNED>
static __device__ __forceinline__ uint32_t walk(const struct load_view &v,
						const struct mirror_view *view,
						struct space_set set, const struct chain &c,
						uint32_t at, uint32_t end, bool tiers,
						struct match_shared *sh, uint32_t &ram)
{
	while (at < end) {
		uint32_t step = min(blockDim.x, end - at), find;
		bool mine = threadIdx.x < step;
		ulonglong2 key = make_ulonglong2(0, 0);

		if (mine)
			key = load_key<ALIGNED>(c.keys + 2ull * (at + threadIdx.x));
		if (!threadIdx.x)
			sh->next = step;
		__syncthreads();
		find = probe_spaces(v, view, set, key, mine);
		if (mine && !find_hit(find))
			atomicMin(&sh->next, threadIdx.x);
		__syncthreads();
		mine = threadIdx.x < sh->next;
		if (mine && c.blocks)
			c.blocks[at + threadIdx.x] = find_block(find);
		if (mine && tiers)
			ram += is_ram(v.status, find);
		at += sh->next;
		if (sh->next < step)
			break;
		__syncthreads();
	}
	return at;
}

template <bool ALIGNED>
static __device__ __forceinline__ void
match_one(const struct load_view &v, const struct mirror_view *view, struct space_set set,
	  const struct chain &c, bool tiers, unsigned long long *counters, uint32_t *len,
	  struct match_shared *sh)
{
	bool alone = !(set.all & ~(1u << set.first));
	bool direct = c.blocks && c.n <= blockDim.x; /* one step of the walk: no search */
	uint32_t matched, ram = 0;

	if (direct && !threadIdx.x) {
		sh->len = c.n;
		sh->ram = 0;
	}
	if (!direct && threadIdx.x < WARP)
		search_chain<ALIGNED>(v, view, set, c, tiers, sh);
	__syncthreads();
	matched = walk<ALIGNED>(v, view, set, c, c.blocks ? 0 : sh->len, alone ? sh->len : c.n,
				tiers, sh, ram);
	if (!threadIdx.x)
		*len = matched;
	if (!counters)
		return;
	ram = __reduce_add_sync(ALL_LANES, ram);
	if (ram && threadIdx.x % WARP == 0)
		atomicAdd(&sh->ram, ram);
	__syncthreads();
	if (threadIdx.x < WARP && c.n)
		count_add(counters, c.n, matched, sh->ram);
}

template <bool ALIGNED>
static __global__ void __launch_bounds__(MATCH_WIDE, 4) match_kernel(struct match m)
{
	__shared__ struct match_shared sh;
	const struct mirror_view *view = load_word(m.word);
	struct load_view v = load_view_of(view);
	struct space_set set = space_set_begin(v, m.spaces);

	bool tiers = m.counters && any_ram(v.status);

	if (!m.spaces && set.all)
		set.first = __ffs(set.all) - 1;
	for (uint64_t i = blockIdx.x; i < m.nseq; i += gridDim.x) {
		uint32_t from = m.start[i], to = m.start[i + 1];
		struct chain c = { m.keys + 2ull * from, m.blocks ? m.blocks + from : NULL,
				   to > from ? to - from : 0 };

		match_one<ALIGNED>(v, view, set, c, tiers, m.counters, m.len + i, &sh);
		__syncthreads();
	}
}

extern "C" int launch_match(struct mirror_view *const *view, uint32_t spaces,
			    const uint64_t (*keys)[2], const uint32_t *start, uint32_t nseq,
			    uint32_t *len, int32_t *blocks, unsigned long long *counters,
			    void *stream)
{
	struct match m = {
		view, (const uint64_t *)keys, start, len, blocks, counters, nseq, spaces
	};
	uint32_t grid = nseq < MATCH_GRID ? nseq : MATCH_GRID;
	bool alone = spaces && !(spaces & (spaces - 1));
	uint32_t block = blocks ? MATCH_WIDE : alone ? WARP : MATCH_UNSURE;
	cudaStream_t s = (cudaStream_t)stream;

	if (!nseq)
		return 0;
	if ((uintptr_t)keys % 16 == 0)
		match_kernel<true><<<grid, block, 0, s>>>(m);
	else
		match_kernel<false><<<grid, block, 0, s>>>(m);
	return (int)cudaGetLastError();
}

extern "C" int launch_load_match(void)
{
	return load_kernels(match_kernel<true>, match_kernel<false>);
}
