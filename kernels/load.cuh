/* SPDX-License-Identifier: Apache-2.0 */
/* load.cuh - how kernels read a mirror: 128-bit relaxed loads, in tiles of 4 lanes.
 *
 * A bucket is 64 bytes.  Each of the 4 lanes of a tile loads 16 bytes of it, in one instruction.
 * So one instruction asks for the whole line: one access to DRAM.  Every lane of a warp brings one
 * query, and its tile loads the buckets of its 4 queries at once.
 *
 * The writer's flush stores meanwhile.  Loads of entries are relaxed at gpu scope: they are
 * single-copy atomic, and never served from L1.  Loads of the word, and of the words of the
 * mirror's status, are relaxed at cta scope, so that L1 may serve them.  Every warp reads these
 * words, and at gpu scope one slice of L2 would have to answer all warps.  L1 begins empty with
 * each kernel, so their values are never older than the launch.
 *
 * All lanes of a warp must call these functions together.
 * Tests: t/bytes/cuda-workers.t */
#ifndef GPC_LOAD_CUH
#define GPC_LOAD_CUH

#include "launch.h"

#include <cuda_runtime.h>

#define WARP      32u
#define ALL_LANES 0xffffffffu
#define TILE      4

/* The result of a lane for a bucket, a "find": (block + 1) << 1 of the entry that matches, else 0;
 * bit 0 is the bucket's overflow flag.  Blocks are below 2^31 - 1, so it fits.  The largest find
 * of a tile is its answer: a match is above any flag, and beside a match the flag does not
 * matter. */
#define FIND_NOTHING 0u
#define FIND_SPILLED 1u /* not here; the second bucket may have it */

struct load_view { /* the part of a view that every lane keeps */
	const struct probe_entry *table;
	const struct mirror_status *status;
	uint32_t buckets;
};

static __device__ __forceinline__ int32_t find_block(uint32_t find)
{
	return (int32_t)(find >> 1) - 1;
}

static __device__ __forceinline__ bool find_hit(uint32_t find)
{
	return find > FIND_SPILLED;
}

/* ---- loads ---- */

static __device__ __forceinline__ uint64_t load_cta64(const void *p)
{
	uint64_t v;

	asm volatile("ld.relaxed.cta.global.u64 %0, [%1];" : "=l"(v) : "l"(p));
	return v;
}

static __device__ __forceinline__ uint32_t load_cta32(const void *p)
{
	uint32_t v;

	asm volatile("ld.relaxed.cta.global.u32 %0, [%1];" : "=r"(v) : "l"(p));
	return v;
}

/* The view is constant for the kernel, so its words may be loaded in any way. */
static __device__ __forceinline__ ulonglong2 load_view16(const void *p)
{
	ulonglong2 v;

	asm("ld.global.nc.v2.u64 {%0, %1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(p));
	return v;
}

static __device__ __forceinline__ const struct mirror_view *
load_word(struct mirror_view *const *word)
{
	return (const struct mirror_view *)load_cta64(word);
}

static __device__ __forceinline__ struct load_view load_view_of(const struct mirror_view *view)
{
	ulonglong2 both = load_view16(&view->table);
	struct load_view v;

	v.table = (const struct probe_entry *)both.x;
	v.status = (const struct mirror_status *)both.y;
	v.buckets = (uint32_t)load_view16(&view->buckets).x;
	return v;
}

/* Queries are read once, so they pass L1 by.  They may lie at 8 bytes, or in host memory. */
template <bool ALIGNED> static __device__ __forceinline__ ulonglong2 load_key(const uint64_t *key)
{
	ulonglong2 v;

	if (ALIGNED)
		asm("ld.global.nc.L1::no_allocate.v2.u64 {%0, %1}, [%2];"
		    : "=l"(v.x), "=l"(v.y)
		    : "l"(key));
	else
		asm("ld.global.nc.u64 %0, [%2];\n\t"
		    "ld.global.nc.u64 %1, [%2 + 8];"
		    : "=&l"(v.x), "=l"(v.y)
		    : "l"(key));
	return v;
}

/* Loads where `on`, else gives an empty entry.  It is predicated and does not branch, so that the
 * loads of a tile's queries are in flight together. */
static __device__ __forceinline__ struct probe_entry load_entry(const struct probe_entry *p,
								bool on)
{
	uint64_t lo = 0, hi = 0;
	struct probe_entry e;

	asm volatile("{\n\t"
		     ".reg .pred q;\n\t"
		     ".reg .b128 t;\n\t"
		     "setp.ne.u32 q, %3, 0;\n\t"
		     "mov.b128 t, {%0, %1};\n\t"
		     "@q ld.relaxed.gpu.global.b128 t, [%2];\n\t"
		     "mov.b128 {%0, %1}, t;\n\t"
		     "}"
		     : "+l"(lo), "+l"(hi)
		     : "l"(p), "r"((uint32_t)on));
	e.w[0] = (uint32_t)lo;
	e.w[1] = (uint32_t)(lo >> 32);
	e.w[2] = (uint32_t)hi;
	e.w[3] = (uint32_t)(hi >> 32);
	return e;
}

/* ---- tiles ---- */

static __device__ __forceinline__ uint32_t tile_lane(void)
{
	return threadIdx.x & (TILE - 1);
}

/* Lane r of a tile gets the largest find[r] of its 4 lanes.  It is a transposition that keeps half
 * of its values at each step, with 3 shuffles instead of 8. */
static __device__ __forceinline__ uint32_t tile_max(const uint32_t find[TILE])
{
	bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
	uint32_t a = __shfl_xor_sync(ALL_LANES, odd ? find[0] : find[1], 1);
	uint32_t b = __shfl_xor_sync(ALL_LANES, odd ? find[2] : find[3], 1);
	uint32_t c;

	a = max(a, odd ? find[1] : find[0]);
	b = max(b, odd ? find[3] : find[2]);
	c = __shfl_xor_sync(ALL_LANES, upper ? a : b, 2);
	return max(c, upper ? b : a);
}

/* Compares this lane's entry with the key of lane `from` of the tile.  Only entry 0 has the flag;
 * a copy of it in another entry would only cost one more read. */
static __device__ __forceinline__ uint32_t tile_compare(struct probe_entry e, struct probe_key p,
							int from)
{
	uint32_t w0 = __shfl_sync(ALL_LANES, p.w[0], from, TILE);
	uint32_t w1 = __shfl_sync(ALL_LANES, p.w[1], from, TILE);
	uint32_t w2 = __shfl_sync(ALL_LANES, p.w[2], from, TILE);
	uint32_t differs = (e.w[0] ^ w0) | (e.w[1] ^ w1) | ((e.w[2] ^ w2) & PROBE_KEY2);

	return (differs ? 0 : e.w[3] << 1) | (e.w[2] & PROBE_OVERFLOW);
}

static __device__ __forceinline__ struct probe_entry tile_load(const struct probe_entry *table,
							       uint32_t bucket, int from, bool on)
{
	uint32_t b = __shfl_sync(ALL_LANES, bucket, from, TILE);

	return load_entry(table + ((uint64_t)b * TILE + tile_lane()), on);
}

/* Bit r: lane r of this tile wants a probe. */
static __device__ __forceinline__ uint32_t tile_wants(bool mine)
{
	return __ballot_sync(ALL_LANES, mine) >> (threadIdx.x & (WARP - TILE)) & 15;
}

/* Each lane's find in its bucket, for the lanes that want one. */
static __device__ __forceinline__ uint32_t tile_probe(const struct probe_entry *table,
						      struct probe_key p, uint32_t bucket,
						      uint32_t wants)
{
	struct probe_entry e[TILE];
	uint32_t find[TILE];
	int r;

#pragma unroll
	for (r = 0; r < TILE; r++)
		e[r] = tile_load(table, bucket, r, wants >> r & 1);
#pragma unroll
	for (r = 0; r < TILE; r++)
		find[r] = tile_compare(e[r], p, r);
	return tile_max(find);
}

/* The same where no tile wants more than one probe: one load a tile. */
static __device__ __forceinline__ uint32_t tile_probe_one(const struct probe_entry *table,
							  struct probe_key p, uint32_t bucket,
							  uint32_t wants)
{
	int from = wants ? __ffs(wants) - 1 : 0;
	struct probe_entry e = tile_load(table, bucket, from, wants != 0);
	uint32_t find = tile_compare(e, p, from);

	find = max(find, __shfl_xor_sync(ALL_LANES, find, 1));
	return max(find, __shfl_xor_sync(ALL_LANES, find, 2));
}

/* ---- queries ---- */

/* The find of each lane's key (masked) in one space, for the lanes that want one.  It takes at
 * most two dependent reads.  ALL: nearly all lanes want it, and a test of each would cost more
 * than it saves. */
template <bool ALL>
static __device__ __forceinline__ uint32_t probe_warp(const struct load_view &v, uint64_t k0,
						      uint64_t k1, bool wanted)
{
	struct probe_key p = probe_prepare(k0, k1, v.buckets);
	uint32_t find = tile_probe(v.table, p, p.first, ALL ? 15 : tile_wants(wanted));
	bool again = wanted && find == FIND_SPILLED;
	uint32_t wants, second;

	if (!__any_sync(ALL_LANES, again))
		return find;
	wants = tile_wants(again);
	if (!__any_sync(ALL_LANES, wants & (wants - 1)))
		second = tile_probe_one(v.table, p, p.second, wants);
	else
		second = tile_probe(v.table, p, p.second, wants);
	return again ? second & ~FIND_SPILLED : find;
}

/* The spaces to probe.  When the caller leaves them to the mirror's status, space 0 is probed
 * before the status has answered.  It is in nearly every set, and the status would be one more
 * dependent read. */
struct space_set {
	uint32_t first, all;
};

static __device__ __forceinline__ struct space_set space_set_begin(const struct load_view &v,
								   uint32_t spaces)
{
	struct space_set set;

	set.first = spaces ? __ffs(spaces) - 1 : 0;
	set.all = spaces ? spaces : load_cta32(&v.status->spaces);
	return set;
}

/* The find of each lane's key in the lowest space of the set that has it. */
static __device__ __forceinline__ uint32_t probe_spaces(const struct load_view &v,
							const struct mirror_view *view,
							struct space_set set, ulonglong2 key,
							bool wanted)
{
	ulonglong2 mask = load_view16(view->mask[set.first]);
	uint32_t find = probe_warp<true>(v, key.x ^ mask.x, key.y ^ mask.y, wanted);
	uint32_t rest = set.all & ~(1u << set.first);

	if (rest == set.all)
		find = FIND_NOTHING;
	for (; rest; rest &= rest - 1) {
		bool miss = wanted && !find_hit(find);
		uint32_t next;

		if (!__any_sync(ALL_LANES, miss))
			break;
		mask = load_view16(view->mask[__ffs(rest) - 1]);
		next = probe_warp<false>(v, key.x ^ mask.x, key.y ^ mask.y, miss);
		if (miss)
			find = next;
	}
	return find;
}

/* A kernel that is not loaded before is loaded at its first launch, which may allocate and
 * wait. */
template <typename... Kernels> static int load_kernels(Kernels... kernels)
{
	const void *list[] = { (const void *)kernels... };
	cudaFuncAttributes attributes;
	cudaError_t e = cudaSuccess;

	for (const void *kernel : list)
		if (e == cudaSuccess)
			e = cudaFuncGetAttributes(&attributes, kernel);
	return (int)e;
}

#endif
