/* SPDX-License-Identifier: Apache-2.0 */
/* queries.cuh - what bench-gpu times lookups with: a table of a size, queries whose answers are
 * known, and random reads of memory alone, which are the limit. */
#ifndef GPC_BENCH_QUERIES_CUH
#define GPC_BENCH_QUERIES_CUH

#include "rows.cuh"

/* ---- the limit of random reads ---- */

static __device__ __forceinline__ uint32_t scramble(uint32_t i)
{
	i *= 0x9e3779b1u;
	i = (i ^ i >> 15) * 0x85ebca6bu;
	return (i ^ i >> 13) * 0xc2b2ae35u;
}

/* One random 64-byte line a query, by 4 lanes, in the shape of a lookup: as many
 * queries a warp, a result stored for each; nothing else is read. */
static __global__ void __launch_bounds__(128)
	gather_lines(const probe_entry *table, uint32_t buckets, uint32_t n, int32_t *out)
{
	uint32_t i = blockIdx.x * 128 + threadIdx.x, tile = i & ~3u, sum = 0;
	ulonglong2 v[4];

	for (int r = 0; r < 4; r++) {
		uint32_t b = __umulhi(scramble(tile + r), buckets);
		const probe_entry *p = table + 4ull * b + (i & 3);

		asm volatile("{.reg .b128 t; ld.relaxed.gpu.global.b128 t, [%2];"
			     " mov.b128 {%0, %1}, t;}"
			     : "=l"(v[r].x), "=l"(v[r].y)
			     : "l"(p));
	}
	for (int r = 0; r < 4; r++)
		sum += (uint32_t)v[r].x + (uint32_t)v[r].y + (uint32_t)(v[r].x >> 32) +
		       (uint32_t)(v[r].y >> 32);
	if (i < n)
		out[i] = (int32_t)sum;
}

/* The same, and the keys of a lookup are read in order beside it. */
static __global__ void __launch_bounds__(128)
	gather_beside(const probe_entry *table, uint32_t buckets, const key128 *keys, uint32_t n,
		      int32_t *out)
{
	uint32_t i = blockIdx.x * 128 + threadIdx.x, tile = i & ~3u, sum = 0;
	ulonglong2 v[4], k = __ldcs((const ulonglong2 *)keys + (i < n ? i : 0));

	for (int r = 0; r < 4; r++) {
		uint32_t b = __umulhi(scramble(tile + r), buckets);
		const probe_entry *p = table + 4ull * b + (i & 3);

		asm volatile("{.reg .b128 t; ld.relaxed.gpu.global.b128 t, [%2];"
			     " mov.b128 {%0, %1}, t;}"
			     : "=l"(v[r].x), "=l"(v[r].y)
			     : "l"(p));
	}
	for (int r = 0; r < 4; r++)
		sum += (uint32_t)v[r].x + (uint32_t)v[r].y + (uint32_t)(v[r].x >> 32) +
		       (uint32_t)(v[r].y >> 32);
	if (i < n)
		out[i] = (int32_t)(sum + (uint32_t)k.x + (uint32_t)k.y);
}

static __global__ void nothing(void)
{
}

/* ---- a table of a size, with queries ---- */

struct bench_table {
	host_table host;
	std::vector<uint32_t> number; /* keys that found room */
	mirror *m;
	uint32_t *d_number;

	explicit bench_table(int log2_entries) : host(1u << (log2_entries - 1))
	{
		for (uint32_t i = 0; i < 1u << log2_entries; i++) {
			uint64_t k[2];

			key_of(i, k);
			if (host.insert(0, k, (int32_t)i))
				number.push_back(i);
		}
		m = new mirror(host, 1);
		CK(cudaMalloc(&d_number, number.size() * 4));
		CK(cudaMemcpy(d_number, number.data(), number.size() * 4, cudaMemcpyHostToDevice));
	}
	~bench_table()
	{
		delete m;
		cudaFree(d_number);
	}
};

struct queries {
	uint64_t n;
	key128 *keys;
	int32_t *expect, *blocks;
	unsigned long long *wrong, *counters;

	cudaStream_t stream;

	queries(uint64_t count, cudaStream_t on) : n(count), stream(on)
	{
		CK(cudaMalloc(&keys, n * 16));
		CK(cudaMalloc(&expect, n * 4));
		CK(cudaMalloc(&blocks, n * 4));
		CK(cudaMalloc(&wrong, 8));
		CK(cudaMalloc(&counters, 32));
		CK(cudaMemset(counters, 0, 32));
	}
	~queries()
	{
		cudaFree(keys);
		cudaFree(expect);
		cudaFree(blocks);
		cudaFree(wrong);
		cudaFree(counters);
	}
	void fill(const bench_table &t, int hit_pct)
	{
		make_queries<<<2048, 256, 0, stream>>>(keys, expect, n, t.d_number, t.number.size(),
						       hit_pct, n + hit_pct);
		CK(cudaGetLastError());
		CK(cudaMemsetAsync(blocks, 0x5a, n * 4, stream));
		CK(cudaStreamSynchronize(stream));
	}
	void check(const char *what)
	{
		unsigned long long w;

		CK(cudaMemsetAsync(wrong, 0, 8, stream));
		count_wrong<<<1024, 256, 0, stream>>>(blocks, expect, n, wrong);
		CK(cudaMemcpyAsync(&w, wrong, 8, cudaMemcpyDeviceToHost, stream));
		CK(cudaStreamSynchronize(stream));
		if (w)
			die(what);
		CK(cudaMemsetAsync(blocks, 0x5a, n * 4, stream));
	}
};

#endif
