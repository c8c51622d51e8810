/* SPDX-License-Identifier: Apache-2.0 */
/* checks.cuh - what kernels-check compares with: device memory that shows what is not written, keys
 * and crowded tables, chains, and counters. */
#ifndef GPC_BENCH_CHECKS_CUH
#define GPC_BENCH_CHECKS_CUH

#include "gpu.cuh"

#include <cstdarg>

static int tests, failures;

static void ok(bool good, const char *format, ...)
{
	va_list args;

	printf("%sok %d - ", good ? "" : "not ", ++tests);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	failures += !good;
}

/* Device memory with 0x5a around and in it, so that what is not written shows. */
template <typename T> struct buffer {
	T *raw, *at;
	size_t n;

	explicit buffer(size_t count, size_t offset = 0) : n(count)
	{
		CK(cudaMalloc(&raw, (n + 64) * sizeof(T) + 64));
		at = (T *)((char *)raw + 32 * sizeof(T) + offset);
		poison();
	}
	~buffer()
	{
		cudaFree(raw);
	}
	buffer(const buffer &) = delete;
	void poison()
	{
		CK(cudaMemset(raw, 0x5a, (n + 64) * sizeof(T) + 64));
	}
	void put(const std::vector<T> &v)
	{
		CK(cudaMemcpy(at, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
	}
	std::vector<T> get()
	{
		std::vector<T> v(n);

		CK(cudaMemcpy(v.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost));
		return v;
	}
	bool edges_whole()
	{
		unsigned char edge[2][16];

		CK(cudaMemcpy(edge[0], (char *)at - 16, 16, cudaMemcpyDeviceToHost));
		CK(cudaMemcpy(edge[1], at + n, 16, cudaMemcpyDeviceToHost));
		for (int i = 0; i < 32; i++)
			if (edge[i / 16][i % 16] != 0x5a)
				return false;
		return true;
	}
};

struct key {
	uint64_t w[2];
};

static const int32_t POISON = 0x5a5a5a5a;

static key numbered(uint64_t i)
{
	key k;

	key_of(i, k.w);
	return k;
}

/* Blocks of pools 0..99; odd pools are RAM, of spaces 0, 3 and 31. */
static const int space_list[] = { 0, 3, 31 };
static const uint32_t all_spaces = 1u | 1u << 3 | 1u << 31;
static const uint64_t odd_pools = 0xaaaaaaaaaaaaaaaaull;

static bool is_ram(int32_t block)
{
	return block >> 24 & 1;
}

/* Key i is in the spaces of i % 8's bits (0 = none). */
static host_table crowded_table(uint32_t buckets, uint64_t nkeys)
{
	host_table t(buckets);

	for (uint64_t i = 0; i < nkeys; i++)
		for (int s = 0; s < 3; s++)
			if (i >> s & 1)
				t.insert(space_list[s], numbered(i).w,
					 (int32_t)((i * 3 + s) % 100 << 24 | (i & 0xffffff)));
	for (uint32_t b = 0; b < buckets; b += 7) /* flags left over are allowed */
		t.entry[4ull * b].w[2] |= PROBE_OVERFLOW;
	return t;
}

struct counts {
	unsigned long long w[4];

	bool operator==(const counts &o) const
	{
		return !memcmp(w, o.w, sizeof(w));
	}
};

static counts read_counts(unsigned long long *d)
{
	counts c;

	CK(cudaMemcpy(c.w, d, sizeof(c.w), cudaMemcpyDeviceToHost));
	CK(cudaMemset(d, 0, sizeof(c.w)));
	return c;
}

static void count_block(counts &c, int32_t b)
{
	c.w[0]++;
	c.w[b < 0 ? 3 : is_ram(b) ? 2 : 1]++;
}

/* A table of chains: chain c has keys c << 20 | depth.  In space 0 the first hot[c] are
 * in pool 0 and those up to warm[c] in pool 1 (RAM); in space 3 the keys that `other`
 * says. */
struct chains {
	std::vector<uint32_t> n, hot, warm;
	host_table t;

	static bool other(uint32_t c, uint32_t i)
	{
		return c % 3 && mix64(c * 77 + i) % (c % 3 == 1 ? 16 : 300);
	}
	explicit chains(const std::vector<uint32_t> &lengths)
	    : n(lengths), hot(n.size()), warm(n.size()), t(1u << 18)
	{
		for (uint32_t c = 0; c < n.size(); c++) {
			uint64_t r = mix64(c + 99);

			warm[c] = r % 5 == 0 ? 0 : r % 5 == 1 ? n[c] : r / 5 % (n[c] + 1);
			hot[c] = r / 7 % (warm[c] + 1);
			for (uint32_t i = 0; i < n[c]; i++)
				fill(c, i);
		}
	}
	void fill(uint32_t c, uint32_t i)
	{
		key k = numbered((uint64_t)c << 20 | i);

		if (i < warm[c])
			warm[c] = t.insert(0, k.w, (i >= hot[c]) << 24 | (int32_t)(c + i)) ? warm[c]
											   : i;
		if (other(c, i))
			t.insert(3, k.w, 5 << 24 | (int32_t)i);
	}
};

#endif
