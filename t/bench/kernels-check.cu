/* SPDX-License-Identifier: Apache-2.0 */
/* kernels-check - every kernel against a plain loop on the host, over tables that are
 * crowded enough for second buckets and stale flags, with several spaces, tiers, odd
 * counts, odd alignment, graphs, and a mirror replaced between two replays.  Prints
 * TAP.
 *
 *   kernels-check [--long]     --long: 2^31 + 77 keys at once as well (40 GiB of memory) */
#include "checks.cuh"

/* ---- lookup ---- */

static bool lookup_agrees(const host_table &t, mirror &m, uint32_t spaces, uint32_t n,
			  size_t offset, unsigned long long *counters)
{
	buffer<key> keys(n, offset);
	buffer<int32_t> blocks(n);
	std::vector<key> k(n);
	counts want = {}, got;
	bool same = true;

	for (uint32_t i = 0; i < n; i++)
		k[i] = i % 97 == 96 ? key{} : numbered(mix64(n + i) % 5000);
	keys.put(k);
	CK(launch_lookup(m.word, spaces, (const key128 *)keys.at, n, blocks.at, counters, 0));
	CK(cudaDeviceSynchronize());
	std::vector<int32_t> b = blocks.get();

	for (uint32_t i = 0; i < n; i++) {
		int32_t ref = t.find(spaces ? spaces : all_spaces, k[i].w);

		same &= b[i] == ref;
		count_block(want, ref);
	}
	got = counters ? read_counts(counters) : want;
	return same && got == want && blocks.edges_whole();
}

static void check_lookup(const host_table &t, mirror &m, unsigned long long *counters)
{
	static const uint32_t sizes[] = { 0,
					  1,
					  2,
					  3,
					  31,
					  32,
					  33,
					  127,
					  128,
					  129,
					  1000,
					  4096,
					  12345,
					  65537,
					  (1 << 20) - 1,
					  1 << 20,
					  (1 << 20) + 77 };
	static const uint32_t sets[] = { 0, 1, 8, 1u << 31, 9, all_spaces, 2, 0xfffffffe };

	for (uint32_t set : sets) {
		bool good = true, quiet = true, odd = true;

		for (uint32_t n : sizes) {
			if (n > 100000 && set > 1)
				continue;
			good &= lookup_agrees(t, m, set, n, 0, counters);
			quiet &= lookup_agrees(t, m, set, n, 0, NULL);
			odd &= lookup_agrees(t, m, set, n, 8, counters);
		}
		ok(good, "lookup, spaces %#x: all counts of keys", set);
		ok(quiet, "lookup, spaces %#x: without counters", set);
		ok(odd, "lookup, spaces %#x: keys at 8 bytes", set);
	}
}

/* The status does not name space 0, which a launch without a set probes ahead. */
static void check_status(const host_table &t, unsigned long long *counters)
{
	static const uint32_t sets[] = { 0, 1u << 3, 1u << 3 | 1u << 31, 1u << 31 };
	uint32_t n = 5000;

	for (uint32_t set : sets) {
		mirror m(t, set, odd_pools, odd_pools);
		buffer<key> keys(n);
		buffer<int32_t> blocks(n);
		std::vector<key> k(n);
		bool same = true;

		for (uint32_t i = 0; i < n; i++)
			k[i] = numbered(i);
		keys.put(k);
		CK(launch_lookup(m.word, 0, (const key128 *)keys.at, n, blocks.at, counters, 0));
		CK(cudaDeviceSynchronize());
		std::vector<int32_t> b = blocks.get();

		for (uint32_t i = 0; i < n; i++)
			same &= b[i] == t.find(set, k[i].w);
		read_counts(counters);
		ok(same, "lookup, the status's spaces are %#x", set);
	}
}

/* ---- match ---- */

static bool match_agrees(const chains &s, mirror &m, uint32_t spaces, bool want_blocks,
			 unsigned long long *counters, size_t offset, bool pinned)
{
	uint32_t nseq = (uint32_t)s.n.size(), total = 0;
	std::vector<uint32_t> start(1, 0);
	std::vector<key> k;
	counts want = {}, got;
	bool same = true;

	for (uint32_t c = 0; c < nseq; c++) {
		for (uint32_t i = 0; i < s.n[c]; i++)
			k.push_back(numbered((uint64_t)c << 20 | i));
		start.push_back(total += s.n[c]);
	}
	buffer<key> keys(k.size(), offset);
	buffer<uint32_t> d_start(start.size()), len(nseq);
	buffer<int32_t> blocks(k.size());
	const void *from = keys.at;
	void *host = NULL;

	keys.put(k);
	d_start.put(start);
	if (pinned) {
		CK(cudaHostAlloc(&host, k.size() * 16, cudaHostAllocMapped));
		memcpy(host, k.data(), k.size() * 16);
		from = host;
	}
	CK(launch_match(m.word, spaces, (const key128 *)from, d_start.at, nseq, len.at,
			want_blocks ? blocks.at : NULL, counters, 0));
	CK(cudaDeviceSynchronize());
	std::vector<uint32_t> l = len.get();
	std::vector<int32_t> b = blocks.get();

	for (uint32_t c = 0; c < nseq; c++) {
		uint32_t i = 0;

		want.w[0] += s.n[c];
		for (; i < s.n[c]; i++) {
			int32_t ref = s.t.find(spaces ? spaces : 9, k[start[c] + i].w);

			if (ref < 0)
				break;
			want.w[is_ram(ref) ? 2 : 1]++;
			same &= b[start[c] + i] == (want_blocks ? ref : POISON);
		}
		same &= l[c] == i;
		for (; i < s.n[c]; i++)
			same &= b[start[c] + i] == POISON;
	}
	want.w[3] = want.w[0] - want.w[1] - want.w[2];
	got = counters ? read_counts(counters) : want;
	if (host)
		CK(cudaFreeHost(host));
	return same && got == want && blocks.edges_whole() && len.edges_whole();
}

static void check_match(unsigned long long *counters)
{
	static const uint32_t sets[] = { 0, 1, 8, 9, 4 };
	std::vector<uint32_t> lengths;

	for (uint32_t n = 0; n < 70; n++)
		lengths.push_back(n);
	for (uint32_t n : { 255u, 256u, 257u, 511u, 1000u, 1088u, 1089u, 2048u, 5000u, 40000u })
		for (int i = 0; i < 5; i++)
			lengths.push_back(n + i % 2);
	chains s(lengths);
	mirror m(s.t, 9, odd_pools, odd_pools), vram(s.t, 9);

	for (uint32_t set : sets) {
		if (set == 8)
			continue; /* space 3 is not prefix-closed here */
		for (int blocks = 0; blocks < 2; blocks++) {
			ok(match_agrees(s, m, set, blocks, counters, 0, false),
			   "match, spaces %#x, blocks %d", set, blocks);
			ok(match_agrees(s, m, set, blocks, NULL, 8, false),
			   "match, spaces %#x, blocks %d, no counters, keys at 8 bytes", set,
			   blocks);
			ok(match_agrees(s, m, set, blocks, counters, 0, true),
			   "match, spaces %#x, blocks %d, keys in host memory", set, blocks);
		}
	}
	CK(launch_match(m.word, 0, NULL, NULL, 0, NULL, NULL, counters, 0));
	ok(true, "match of no sequence");
}

/* ---- scatter ---- */

static void check_scatter(void)
{
	for (uint32_t n : { 0u, 1u, 2u, 15u, 16u, 17u, 511u, 512u, 513u, 1024u, 1025u, 2047u, 2048u,
			    2049u, 5000u, 100000u }) {
		host_table t(1u << 17);
		mirror m(t, 1);
		std::vector<launch_change> list(n);
		std::vector<probe_entry> want(t.entry);
		mirror_status status = {}, got;
		launch_change *host;
		bool same;

		CK(cudaHostAlloc(&host, n * sizeof(*host) + 32, cudaHostAllocMapped));
		for (uint32_t i = 0; i < n; i++) {
			uint32_t slot = (uint32_t)(i * 2654435761ull % want.size());

			host[i].slot = slot;
			for (int w = 0; w < 4; w++)
				host[i].entry.w[w] = (uint32_t)mix64(4 * i + w);
			want[slot] = host[i].entry;
		}
		status.sequence = 1ull << 40 | n;
		status.ram_pools[0] = 3;
		status.ram_pools[1] = 1ull << 63;
		status.spaces = 7;
		CK(launch_scatter(m.table, m.status, host, n, &status, 0));
		CK(cudaDeviceSynchronize());
		std::vector<probe_entry> have(want.size());

		CK(cudaMemcpy(have.data(), m.table, have.size() * 16, cudaMemcpyDeviceToHost));
		CK(cudaMemcpy(&got, m.status, sizeof(got), cudaMemcpyDeviceToHost));
		same = !memcmp(have.data(), want.data(), have.size() * 16) &&
		       !memcmp(&got, &status, 28);
		ok(same, "scatter of %u, from host memory", n);
		CK(cudaFreeHost(host));
	}
}

/* One graph, flushes of several sizes. */
static void check_pinned(uint32_t most)
{
	host_table t(1u << 15);
	mirror m(t, 1);
	std::vector<probe_entry> want(t.entry), have(t.entry.size());
	launch_pinned *pinned;
	device_timer timer;
	bool same = true;

	CK(cudaHostAlloc(&pinned, sizeof(*pinned), cudaHostAllocMapped));
	memset(pinned, 0, sizeof(*pinned));
	cudaGraphExec_t graph = timer.capture(
		[&] { CK(launch_scatter_pinned(m.table, m.status, pinned, most, timer.stream)); });
	for (uint32_t n : { 0u, 1u, most / 2, most - 1, most, 1u }) {
		mirror_status got;

		pinned->n = n;
		pinned->value.sequence++;
		pinned->value.spaces = n;
		for (uint32_t i = 0; i < n; i++) {
			uint32_t slot = (uint32_t)((i * 2654435761ull + n) % want.size());

			pinned->change[i].slot = slot;
			for (int w = 0; w < 4; w++)
				pinned->change[i].entry.w[w] = (uint32_t)mix64(4 * i + w + n);
			want[slot] = pinned->change[i].entry;
		}
		CK(cudaGraphLaunch(graph, timer.stream));
		CK(cudaStreamSynchronize(timer.stream));
		CK(cudaMemcpy(have.data(), m.table, have.size() * 16, cudaMemcpyDeviceToHost));
		CK(cudaMemcpy(&got, m.status, sizeof(got), cudaMemcpyDeviceToHost));
		same &= !memcmp(have.data(), want.data(), have.size() * 16) &&
			!memcmp(&got, &pinned->value, 28);
	}
	ok(same, "scatter of a pinned memory, up to %u", most);
	CK(cudaGraphExecDestroy(graph));
	CK(cudaFreeHost(pinned));
}

static void check_signal(unsigned long long *counters)
{
	const unsigned long long counted[4] = { 10, 5, 3, 2 };
	uint64_t *done, *totals;

	CK(cudaHostAlloc(&done, 128, cudaHostAllocMapped));
	totals = done + 8;
	for (int i = 0; i < 16; i++)
		done[i] = 7;
	CK(cudaMemcpy(counters, counted, sizeof(counted), cudaMemcpyHostToDevice));
	CK(launch_signal(done, 1ull << 45, counters, totals, 0));
	CK(cudaDeviceSynchronize());
	ok(done[0] == 1ull << 45 && done[1] == 7, "signal");
	ok(!memcmp(totals, counted, sizeof(counted)) && totals[4] == 7,
	   "what was counted comes with the signal");
	read_counts(counters);
	CK(cudaFreeHost(done));
}

/* ---- graphs ---- */

static void check_graph(unsigned long long *counters)
{
	const uint32_t n = 4096;
	host_table t[2] = { host_table(3000), host_table(777) };
	std::vector<key> k(n);
	std::vector<uint32_t> start = { 0, 1000, n };
	buffer<key> keys(n);
	buffer<int32_t> blocks(n);
	buffer<uint32_t> d_start(3), len(2);
	device_timer timer;

	for (uint32_t i = 0; i < n; i++) {
		k[i] = numbered(i);
		if (i % 3)
			t[0].insert(0, k[i].w, (int32_t)i);
		if (i < 900)
			t[1].insert(0, k[i].w, (int32_t)(i + 1000000));
	}
	keys.put(k);
	d_start.put(start);
	mirror m[2] = { { t[0], 1 }, { t[1], 1 } };
	cudaGraphExec_t graph = timer.capture([&] {
		CK(launch_lookup(m[0].word, 0, (const key128 *)keys.at, n, blocks.at, counters,
				 timer.stream));
		CK(launch_match(m[0].word, 0, (const key128 *)keys.at, d_start.at, 2, len.at, NULL,
				counters, timer.stream));
	});

	for (int round = 0; round < 6; round++) {
		int which = round & 1;
		bool same = true;
		uint32_t first = 0;

		CK(cudaMemcpy(m[0].word, &m[which].view, 8, cudaMemcpyHostToDevice));
		blocks.poison();
		CK(cudaGraphLaunch(graph, timer.stream));
		CK(cudaStreamSynchronize(timer.stream));
		std::vector<int32_t> b = blocks.get();

		for (uint32_t i = 0; i < n; i++)
			same &= b[i] == t[which].find(1, k[i].w);
		while (first < 1000 && t[which].find(1, k[first].w) >= 0)
			first++;
		if (which)
			same &= len.get()[0] == first;
		same &= read_counts(counters).w[0] == 2 * n;
		ok(same, "graph, replay %d, mirror %d", round, which);
	}
	CK(cudaGraphExecDestroy(graph));
}

/* ---- more keys than 31 bits count ---- */

static __global__ void make_many(key128 *keys, uint64_t n, uint64_t resident)
{
	uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;

	for (; i < n; i += (uint64_t)gridDim.x * blockDim.x)
		key_of(mix64(i) % (2 * resident), keys[i]);
}

static __global__ void check_many(const int32_t *blocks, uint64_t n, uint64_t resident,
				  unsigned long long *wrong)
{
	uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;

	for (; i < n; i += (uint64_t)gridDim.x * blockDim.x) {
		uint64_t who = mix64(i) % (2 * resident);

		if (blocks[i] != (who < resident ? (int32_t)who : -1))
			atomicAdd(wrong, 1ull);
	}
}

static void check_long(unsigned long long *counters)
{
	const uint64_t n = (1ull << 31) + 77, resident = 1 << 16;
	host_table t(1u << 17);
	unsigned long long wrong, *d_wrong;
	key128 *keys;
	int32_t *blocks;
	counts c;

	for (uint64_t i = 0; i < resident; i++)
		t.insert(0, numbered(i).w, (int32_t)i);
	mirror m(t, 1);
	CK(cudaMalloc(&keys, n * 16));
	CK(cudaMalloc(&blocks, n * 4));
	CK(cudaMalloc(&d_wrong, 8));
	CK(cudaMemset(d_wrong, 0, 8));
	CK(cudaMemset(blocks, 0x5a, n * 4));
	make_many<<<4096, 256>>>(keys, n, resident);
	CK(launch_lookup(m.word, 0, keys, (uint32_t)n, blocks, counters, 0));
	check_many<<<4096, 256>>>(blocks, n, resident, d_wrong);
	CK(cudaMemcpy(&wrong, d_wrong, 8, cudaMemcpyDeviceToHost));
	c = read_counts(counters);
	ok(t.refused == 0 && wrong == 0, "lookup of %llu keys", (unsigned long long)n);
	ok(c.w[0] == n && c.w[1] + c.w[2] + c.w[3] == n, "and their counts");
	cudaFree(keys);
	cudaFree(blocks);
	cudaFree(d_wrong);
}

int main(int argc, char **argv)
{
	unsigned long long *counters;
	bool is_long = argc == 2 && !strcmp(argv[1], "--long");

	if (argc > 1 && !is_long) {
		bool help = !strcmp(argv[1], "--help");

		fprintf(help ? stdout : stderr, "usage: kernels-check [--long]\n");
		return help ? 0 : 2;
	}
	CK(cudaMalloc(&counters, 32));
	CK(cudaMemset(counters, 0, 32));
	{
		host_table t = crowded_table(2000, 4600);
		mirror m(t, all_spaces, odd_pools, odd_pools);

		printf("# crowded: %.0f%% full, %llu spilled, %llu refused\n",
		       100. * 4600 * 1.5 / t.entry.size(), (unsigned long long)t.spilled,
		       (unsigned long long)t.refused);
		check_lookup(t, m, counters);
		check_status(t, counters);
	}
	{
		host_table t(2);
		mirror m(t, 1);

		ok(lookup_agrees(t, m, 0, 1000, 0, counters), "an empty table of 2 buckets");
	}
	check_match(counters);
	check_scatter();
	for (uint32_t most : { 1u, 16u, 64u, 100u, 512u, 1000u, 1024u })
		check_pinned(most);
	check_signal(counters);
	check_graph(counters);
	if (is_long)
		check_long(counters);
	CK(cudaDeviceSynchronize());
	CK(cudaFree(counters));
	printf("1..%d\n", tests);
	return failures != 0;
}
