/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.cuh - what bench-gpu and kernels-check share: a table made by the host through
 * probe.h, its mirror in device memory, queries with known answers, and timing.  Needs
 * no libgpc. */
#ifndef GPC_BENCH_GPU_CUH
#define GPC_BENCH_GPU_CUH

#include "kernels/launch.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define CK(call)                                                                      \
	do {                                                                          \
		cudaError_t err_ = (cudaError_t)(call);                               \
		if (err_ != cudaSuccess) {                                            \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
				cudaGetErrorString(err_));                            \
			exit(2);                                                      \
		}                                                                     \
	} while (0)

typedef uint64_t key128[2];

/* key number i; two keys of different numbers differ */
static __host__ __device__ inline uint64_t mix64(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static __host__ __device__ inline void key_of(uint64_t i, uint64_t *key)
{
	key[0] = mix64(i);
	key[1] = mix64(i ^ 0x5bd1e995ull << 32);
}

/* ---- the table, on the host ---- */

struct host_table {
	std::vector<probe_entry> entry;
	uint32_t buckets;
	uint64_t spilled = 0, refused = 0;
	uint64_t mask[LAUNCH_SPACES][2];

	explicit host_table(uint32_t nbuckets) : entry(4ull * nbuckets), buckets(nbuckets)
	{
		for (int s = 0; s < LAUNCH_SPACES; s++)
			for (int w = 0; w < 2; w++)
				mask[s][w] = s ? mix64(0x777 + 2 * s + w) : 0;
	}

	probe_key prepare(int space, const uint64_t *key) const
	{
		return probe_prepare(key[0] ^ mask[space][0], key[1] ^ mask[space][1], buckets);
	}

	bool put(uint32_t bucket, const probe_key &p, int32_t block)
	{
		for (uint32_t i = 0; i < 4; i++) {
			probe_entry &e = entry[4ull * bucket + i];

			if (e.w[3])
				continue;
			e.w[0] = p.w[0];
			e.w[1] = p.w[1];
			e.w[2] = p.w[2] | (e.w[2] & PROBE_OVERFLOW);
			e.w[3] = (uint32_t)block + 1;
			return true;
		}
		return false;
	}

	/* false: both buckets are full; the caller leaves the key out */
	bool insert(int space, const uint64_t *key, int32_t block)
	{
		probe_key p = prepare(space, key);

		if (put(p.first, p, block))
			return true;
		if (!put(p.second, p, block)) {
			refused++;
			return false;
		}
		entry[4ull * p.first].w[2] |= PROBE_OVERFLOW;
		spilled++;
		return true;
	}

	int32_t in_bucket(uint32_t bucket, const probe_key &p) const
	{
		for (uint32_t i = 0; i < 4; i++) {
			int32_t b = probe_entry_block(entry[4ull * bucket + i], p);

			if (b >= 0)
				return b;
		}
		return -1;
	}

	/* the reference: the lowest space of the set that has the key */
	int32_t find(uint32_t spaces, const uint64_t *key) const
	{
		for (; spaces; spaces &= spaces - 1) {
			probe_key p = prepare(__builtin_ctz(spaces), key);
			int32_t b = in_bucket(p.first, p);

			if (b < 0 && probe_overflows(entry[4ull * p.first]))
				b = in_bucket(p.second, p);
			if (b >= 0)
				return b;
		}
		return -1;
	}
};

/* ---- its mirror ---- */

struct mirror {
	probe_entry *table;
	mirror_status *status;
	mirror_view *view;
	mirror_view **word;

	mirror(const host_table &t, uint32_t spaces, uint64_t ram0 = 0, uint64_t ram1 = 0)
	{
		size_t bytes = t.entry.size() * sizeof(probe_entry);
		mirror_status l = {};
		mirror_view v = {};

		CK(cudaMalloc(&table, bytes + sizeof(l)));
		CK(cudaMemcpy(table, t.entry.data(), bytes, cudaMemcpyHostToDevice));
		status = (mirror_status *)((char *)table + bytes);
		l.sequence = 1;
		l.ram_pools[0] = ram0;
		l.ram_pools[1] = ram1;
		l.spaces = spaces;
		CK(cudaMemcpy(status, &l, sizeof(l), cudaMemcpyHostToDevice));
		v.table = table;
		v.status = status;
		v.buckets = t.buckets;
		memcpy(v.mask, t.mask, sizeof(v.mask));
		CK(cudaMalloc(&view, sizeof(v)));
		CK(cudaMemcpy(view, &v, sizeof(v), cudaMemcpyHostToDevice));
		CK(cudaMalloc(&word, sizeof(*word)));
		CK(cudaMemcpy(word, &view, sizeof(view), cudaMemcpyHostToDevice));
	}
	~mirror()
	{
		cudaFree(table);
		cudaFree(view);
		cudaFree(word);
	}
	mirror(const mirror &) = delete;
};

/* ---- timing ---- */

struct spread {
	double median, low, high; /* low, high: 10th and 90th of a hundred */
};

static inline spread spread_of(std::vector<double> v)
{
	std::sort(v.begin(), v.end());
	size_t n = v.size();

	return { v[n / 2], v[n / 10], v[std::min(n - 1, n - 1 - n / 10)] };
}

static inline double now_us()
{
	using namespace std::chrono;

	return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

struct device_timer {
	cudaStream_t stream;
	cudaEvent_t from, to;

	device_timer()
	{
		CK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
		CK(cudaEventCreate(&from));
		CK(cudaEventCreate(&to));
	}
	/* microseconds of what f puts into the stream */
	double once(const std::function<void()> &f)
	{
		float ms;

		CK(cudaEventRecord(from, stream));
		f();
		CK(cudaEventRecord(to, stream));
		CK(cudaEventSynchronize(to));
		CK(cudaEventElapsedTime(&ms, from, to));
		return ms * 1e3;
	}
	cudaGraphExec_t capture(const std::function<void()> &f)
	{
		cudaGraph_t graph;
		cudaGraphExec_t exec;

		CK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
		f();
		CK(cudaStreamEndCapture(stream, &graph));
		CK(cudaGraphInstantiate(&exec, graph, 0));
		CK(cudaGraphDestroy(graph));
		return exec;
	}
};

/* ---- queries with known answers ---- */

#define MISS_BASE (1ull << 40) /* keys of these numbers are in no table */

static __global__ void make_queries(key128 *keys, int32_t *expect, uint64_t n,
				    const uint32_t *number, uint64_t resident, int hit_pct,
				    uint64_t seed)
{
	uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;

	for (; i < n; i += (uint64_t)gridDim.x * blockDim.x) {
		uint64_t r = mix64(seed * 0x51ed270b9f2c3ull + i);
		bool hit = mix64(r ^ 0xabcdef) % 100 < (uint64_t)hit_pct;
		uint32_t who = hit ? number[__umul64hi(r, resident)] : 0;

		key_of(hit ? who : MISS_BASE + (r >> 8), keys[i]);
		expect[i] = hit ? (int32_t)who : -1;
	}
}

static __global__ void count_wrong(const int32_t *got, const int32_t *expect, uint64_t n,
				   unsigned long long *wrong)
{
	uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
	unsigned long long c = 0;

	for (; i < n; i += (uint64_t)gridDim.x * blockDim.x)
		c += got[i] != expect[i];
	if (c)
		atomicAdd(wrong, c);
}

#endif
