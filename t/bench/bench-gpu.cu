/* SPDX-License-Identifier: Apache-2.0 */
/* bench-gpu - the kernels on this machine's GPU, each beside the physical limit
 * measured in the same run.  All results are checked before anything is timed;
 * repetitions of the things compared are interleaved.
 *
 *   bench-gpu [--json] [--quick] [--only PREFIX] [--device N]
 *
 * Columns: median, 10th and 90th of a hundred, the limit, the ratio to it, and the mark, which is
 * one of that ratio. */
#include "queries.cuh"

/* ---- lookup: a large batch ---- */

static void bench_large(device_timer &timer, bench_table &t, queries &q, int lg, int hit_pct)
{
	const uint32_t n = 1u << 24;
	int reps = quick ? 5 : 21;
	std::vector<double> plain, count, line, beside;
	std::string name = "lookup 2^24 of 2^" + std::to_string(lg);
	double mark = lg == 20 ? 0.66 : hit_pct ? 0.85 : 0.83; /* of reads of random lines */
	spread limit, l2;

	for (int i = 0; i < reps; i++) {
		uint64_t at = i & 1 ? n : 0;

		line.push_back(timer.once([&] {
			gather_lines<<<n / 128, 128, 0, timer.stream>>>(t.m->table, t.host.buckets,
									n, q.blocks + at);
		}));
		beside.push_back(timer.once([&] {
			gather_beside<<<n / 128, 128, 0, timer.stream>>>(
				t.m->table, t.host.buckets, q.keys + at, n, q.blocks + at);
		}));
		plain.push_back(timer.once([&] {
			CK(launch_lookup(t.m->word, 0, q.keys + at, n, q.blocks + at, NULL,
					 timer.stream));
		}));
		count.push_back(timer.once([&] {
			CK(launch_lookup(t.m->word, 0, q.keys + at, n, q.blocks + at, q.counters,
					 timer.stream));
		}));
	}
	q.check(name.c_str());
	limit = rate(line, n);
	l2 = rate(beside, n);
	name += hit_pct ? " hits" : " misses";
	add(name, "G/s", rate(plain, n), limit.median, mark, true);
	add(name + ", counted", "G/s", rate(count, n), limit.median, 0.98 * mark, true);
	add(name + ": gather beside a stream of keys", "G/s", l2, limit.median, 0, true);
	double ratio = spread_of(count).median / spread_of(plain).median;
	add(name + ": slowdown by counting", "%",
	    { 100 * (ratio - 1), 100 * (ratio - 1), 100 * (ratio - 1) }, 0, lg == 24 ? 2 : 0);
}

/* ---- lookup: small batches in a graph ---- */

/* Not every instance of a graph is as fast as the next one: the median is one over all
 * replays of several, in turns. */
struct replays {
	static const int chain = 32, instances = 7;
	cudaGraphExec_t exec[instances];
	std::vector<double> us;

	replays(device_timer &timer, const std::function<void(int)> &launch)
	{
		for (cudaGraphExec_t &e : exec) {
			e = timer.capture([&] {
				for (int i = 0; i < chain; i++)
					launch(i);
			});
			once(timer, e);
			once(timer, e);
		}
	}
	~replays()
	{
		for (cudaGraphExec_t e : exec)
			cudaGraphExecDestroy(e);
	}
	double once(device_timer &timer, cudaGraphExec_t e)
	{
		return timer.once([&] { CK(cudaGraphLaunch(e, timer.stream)); }) / chain;
	}
	void round(device_timer &timer)
	{
		for (cudaGraphExec_t e : exec)
			us.push_back(once(timer, e));
	}
};

static void bench_small(device_timer &timer, bench_table &t, queries &q, int lg, int hit_pct,
			uint32_t n)
{
	int reps = quick ? 5 : 21;
	std::vector<double> cold;
	std::string name = "lookup " + std::to_string(n) + " of 2^" + std::to_string(lg) +
			   (hit_pct ? " hits" : " misses") + " in a graph";
	auto lookup = [&](int i, unsigned long long *counters) {
		uint64_t at = (uint64_t)i * n * 7;

		CK(launch_lookup(t.m->word, 0, q.keys + at, n, q.blocks + at, counters,
				 timer.stream));
	};
	replays plain(timer, [&](int i) { lookup(i, NULL); });
	replays count(timer, [&](int i) { lookup(i, q.counters); });
	replays empty(timer, [&](int) { nothing<<<n / 32, 32, 0, timer.stream>>>(); });

	for (int i = 0; i < reps; i++) {
		plain.round(timer);
		count.round(timer);
		empty.round(timer);
	}
	for (int i = 0; i < 5; i++) { /* caches filled with other things */
		CK(launch_lookup(t.m->word, 0, q.keys + (1 << 24), 1 << 24, q.blocks + (1 << 24),
				 NULL, timer.stream));
		cold.push_back(plain.once(timer, plain.exec[0]));
	}
	double limit = spread_of(empty.us).median;
	add(name, "us", spread_of(plain.us), limit, lg == 20 && n == 4096 ? 3.3 : 0);
	add(name + ", counted", "us", spread_of(count.us), limit, 0);
	add(name + ", cold", "us", spread_of(cold), limit, 0);
	add(name + ": nodes that do nothing", "us", spread_of(empty.us), 0, 0);
}

/* ---- host to host ---- */

static std::vector<double> clocked(int reps, const std::function<void()> &f)
{
	std::vector<double> us;

	for (int i = 0; i < reps + 5; i++) {
		double t0 = now_us();

		f();
		if (i >= 5)
			us.push_back(now_us() - t0);
	}
	return us;
}

/* The host path: probe.h over the table in ordinary memory, lines 16 keys ahead. */
static void host_lookup(const host_table &t, const uint64_t (*keys)[2], uint32_t n, int32_t *blocks)
{
	for (uint32_t i = 0; i < n; i++) {
		if (i + 16 < n)
			__builtin_prefetch(&t.entry[4ull * t.prepare(0, keys[i + 16]).first]);
		blocks[i] = t.find(1, keys[i]);
	}
}

static void bench_host(device_timer &timer, bench_table &t, queries &q, int lg, uint32_t n)
{
	int reps = quick ? 50 : 400;
	std::vector<int32_t> expect(n);
	std::vector<double> us;
	std::string name = "host to host, " + std::to_string(n) + " of 2^" + std::to_string(lg);
	key128 *keys;
	int32_t *blocks;
	cudaGraphExec_t graph, empty;

	CK(cudaHostAlloc(&keys, n * 16, cudaHostAllocMapped));
	CK(cudaHostAlloc(&blocks, n * 4, cudaHostAllocMapped));
	CK(cudaMemcpy(keys, q.keys, n * 16, cudaMemcpyDeviceToHost));
	CK(cudaMemcpy(expect.data(), q.expect, n * 4, cudaMemcpyDeviceToHost));
	auto launch = [&] { CK(launch_lookup(t.m->word, 0, keys, n, blocks, NULL, timer.stream)); };
	auto verify = [&] {
		if (memcmp(blocks, expect.data(), n * 4))
			die(name.c_str());
		memset(blocks, 0x5a, n * 4);
	};
	graph = timer.capture(launch);
	empty = timer.capture([&] { nothing<<<1, 32, 0, timer.stream>>>(); });
	us = clocked(reps, [&] {
		CK(cudaGraphLaunch(empty, timer.stream));
		CK(cudaStreamSynchronize(timer.stream));
	});
	double limit = spread_of(us).median;

	us = clocked(reps, [&] {
		CK(cudaGraphLaunch(graph, timer.stream));
		CK(cudaStreamSynchronize(timer.stream));
	});
	verify();
	add(name + ", graph", "us", spread_of(us), limit, n == 256 ? 1.8 : 2.1);
	us = clocked(reps, [&] {
		launch();
		CK(cudaStreamSynchronize(timer.stream));
	});
	verify();
	add(name + ", launch", "us", spread_of(us), limit, 0);
	us = clocked(reps, [&] {
		launch();
		while (cudaStreamQuery(timer.stream) == cudaErrorNotReady)
			;
	});
	verify();
	add(name + ", launch and query", "us", spread_of(us), limit, 0);
	us = clocked(reps, [&] { host_lookup(t.host, keys, n, blocks); });
	verify();
	add(name + ", by the host", "us", spread_of(us), limit, n == 256 ? 0.5 : 0);
	CK(cudaGraphExecDestroy(graph));
	CK(cudaGraphExecDestroy(empty));
	CK(cudaFreeHost(keys));
	CK(cudaFreeHost(blocks));
}

/* ---- match ---- */

static void bench_match_one(device_timer &timer, const char *what, bool full)
{
	const uint32_t nseq = 256, each = 2048;
	int reps = quick ? 20 : 200;
	host_table t(1u << 23); /* as large as that of 2^24 entries */
	std::vector<uint32_t> want(nseq);
	key128 *keys;
	uint32_t *start, *len;
	int32_t *d_blocks;
	key128 *d_keys;

	CK(cudaHostAlloc(&keys, nseq * each * 16, cudaHostAllocMapped));
	CK(cudaHostAlloc(&start, (nseq + 1) * 4, cudaHostAllocMapped));
	CK(cudaHostAlloc(&len, nseq * 4, cudaHostAllocMapped));
	CK(cudaMalloc(&d_blocks, nseq * each * 4));
	CK(cudaMalloc(&d_keys, nseq * each * 16));
	for (uint32_t s = 0; s < nseq; s++) {
		uint32_t resident = full ? each : mix64(s) % (each + 1);

		for (uint32_t i = 0; i < each; i++) {
			key_of((uint64_t)s << 20 | i, keys[s * each + i]);
			if (i < resident &&
			    !t.insert(0, keys[s * each + i], (int32_t)(s * each + i)))
				resident = i;
		}
		want[s] = resident;
		start[s + 1] = (s + 1) * each;
	}
	start[0] = 0;
	CK(cudaMemcpy(d_keys, keys, nseq * each * 16, cudaMemcpyHostToDevice));
	mirror m(t, 1);
	/* Three rounds of 12 probes decide a sequence of 2048: so many keys over the bus, or,
	 * where they are on the device, a kernel that does nothing. */
	double bus = spread_of(clocked(reps, [&] {
			     CK(cudaMemcpyAsync(d_keys, keys, nseq * 36 * sizeof(key128),
						cudaMemcpyHostToDevice, timer.stream));
			     CK(cudaStreamSynchronize(timer.stream));
		     })).median;
	double launch = spread_of(clocked(reps, [&] {
				nothing<<<1, 32, 0, timer.stream>>>();
				CK(cudaStreamSynchronize(timer.stream));
			})).median;
	std::string name = std::string("match 256 x 2048, ") + what;
	struct {
		const char *how;
		const key128 *from;
		int32_t *blocks;
		double limit, mark;
	} const ways[] = { { ", keys on the host", keys, NULL, bus, 3.7 },
			   { ", keys on the device", d_keys, NULL, launch, 0 },
			   { ", keys on the host, and blocks", keys, d_blocks, bus, 0 },
			   { ", keys and blocks on the device", d_keys, d_blocks, launch, 0 } };

	for (auto &w : ways) {
		memset(len, 0x5a, nseq * 4);
		std::vector<double> us = clocked(reps, [&] {
			CK(launch_match(m.word, 0, w.from, start, nseq, len, w.blocks, NULL,
					timer.stream));
			CK(cudaStreamSynchronize(timer.stream));
		});
		std::vector<double> kernel;

		for (int i = 0; i < 11; i++)
			kernel.push_back(timer.once([&] {
				CK(launch_match(m.word, 0, w.from, start, nseq, len, w.blocks, NULL,
						timer.stream));
			}));
		if (memcmp(len, want.data(), nseq * 4))
			die(name.c_str());
		add(name + w.how, "us", spread_of(us), w.limit, w.mark);
		add(name + w.how + ": between events", "us", spread_of(kernel), 0, 0);
	}
	CK(cudaFreeHost(keys));
	CK(cudaFreeHost(start));
	CK(cudaFreeHost(len));
	CK(cudaFree(d_blocks));
	CK(cudaFree(d_keys));
}

/* ---- scatter ---- */

/* as the writer: the list is filled anew each time */
static void fill_changes(launch_change *list, uint32_t n, uint64_t round, uint64_t entries)
{
	for (uint32_t i = 0; i < n; i++) {
		list[i].slot = (uint32_t)((i * 2654435761ull + round) & (entries - 1));
		list[i].entry.w[0] = i;
		list[i].entry.w[1] = (uint32_t)round;
		list[i].entry.w[2] = 0x100;
		list[i].entry.w[3] = i + 1;
	}
}

static void check_changes(mirror &m, const launch_change *list, uint32_t n, uint64_t round,
			  const char *what)
{
	probe_entry e;
	uint64_t got;

	CK(cudaMemcpy(&got, &m.status->sequence, 8, cudaMemcpyDeviceToHost));
	for (uint32_t i = 0; i < n; i += n / 16) {
		CK(cudaMemcpy(&e, m.table + list[i].slot, 16, cudaMemcpyDeviceToHost));
		if (memcmp(&e, &list[i].entry, 16) || got != round)
			die(what);
	}
}

static void bench_sync(device_timer &timer, int lg, mirror &m, uint32_t n, double mark)
{
	int reps = quick ? 50 : 400;
	uint64_t entries = 1ull << (lg + 1), round = 0;
	std::string name = "sync of " + std::to_string(n) + " in 2^" + std::to_string(lg);
	launch_change *list;
	mirror_status status = {};
	cudaGraphExec_t empty;
	double limit;

	status.spaces = 1;
	empty = timer.capture([&] { nothing<<<1, 32, 0, timer.stream>>>(); });
	limit = spread_of(clocked(reps, [&] {
			CK(cudaGraphLaunch(empty, timer.stream));
			CK(cudaStreamSynchronize(timer.stream));
		})).median;
	CK(cudaGraphExecDestroy(empty));
	CK(cudaHostAlloc(&list, n * sizeof(*list), cudaHostAllocMapped));
	std::vector<double> us = clocked(reps, [&] {
		fill_changes(list, n, status.sequence = ++round, entries);
		CK(launch_scatter(m.table, m.status, list, n, &status, timer.stream));
		CK(cudaStreamSynchronize(timer.stream));
	});
	check_changes(m, list, n, round, name.c_str());
	add(name + ", launch", "us", spread_of(us), limit, 0);
	CK(cudaFreeHost(list));
	if (n > LAUNCH_PINNED)
		return;

	launch_pinned *pinned;
	CK(cudaHostAlloc(&pinned, sizeof(*pinned), cudaHostAllocMapped));
	memset(pinned, 0, sizeof(*pinned));
	pinned->value = status;
	pinned->n = n;
	cudaGraphExec_t graph = timer.capture([&] {
		CK(launch_scatter_pinned(m.table, m.status, pinned, n <= 64 ? 64 : LAUNCH_PINNED,
					 timer.stream));
	});
	us = clocked(reps, [&] {
		fill_changes(pinned->change, n, pinned->value.sequence = ++round, entries);
		pinned->ticket = round;
		CK(cudaGraphLaunch(graph, timer.stream));
		while (__atomic_load_n(&pinned->done, __ATOMIC_ACQUIRE) != round)
			;
	});
	check_changes(m, pinned->change, n, round, name.c_str());
	add(name + ", stage in a graph, waited for by its ticket", "us", spread_of(us), limit,
	    mark);
	CK(cudaGraphExecDestroy(graph));
	CK(cudaFreeHost(pinned));
}

/* ---- all ---- */

static void bench_size(device_timer &timer, int lg)
{
	bench_table t(lg);
	queries q(1ull << 25, timer.stream);

	for (int hit_pct : { 100, 0 }) {
		q.fill(t, hit_pct);
		CK(launch_lookup(t.m->word, 0, q.keys, (uint32_t)q.n, q.blocks, NULL,
				 timer.stream));
		q.check("lookup of 2^25");
		if (wanted("large"))
			bench_large(timer, t, q, lg, hit_pct);
		if (wanted("small"))
			for (uint32_t n : { 256u, 4096u, 65536u })
				bench_small(timer, t, q, lg, hit_pct, n);
	}
	q.fill(t, 50);
	if (wanted("host"))
		for (uint32_t n : { 256u, 1024u, 4096u })
			bench_host(timer, t, q, lg, n);
	if (wanted("sync"))
		for (uint32_t n : { 16u, 256u, 1024u, 4096u, 65536u })
			bench_sync(timer, lg, *t.m, n, n == 16 ? 1.4 : n == 1024 ? 2.6 : 0);
}

int main(int argc, char **argv)
{
	bool json = false;
	cudaDeviceProp p;
	int device = 0;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--json"))
			json = true;
		else if (!strcmp(argv[i], "--quick"))
			quick = true;
		else if (!strcmp(argv[i], "--only") && i + 1 < argc)
			only = argv[++i];
		else if (!strcmp(argv[i], "--device") && i + 1 < argc)
			device = atoi(argv[++i]);
		else {
			bool help = !strcmp(argv[i], "--help");

			fprintf(help ? stdout : stderr,
				"usage: bench-gpu [--json] [--quick] [--only large|small|"
				"host|match|sync] [--device N]\n");
			return help ? 0 : 2;
		}
	}
	CK(cudaSetDevice(device));
	CK(cudaSetDeviceFlags(cudaDeviceScheduleSpin));
	CK(cudaGetDeviceProperties(&p, device));
	device_timer timer;

	if (wanted("match")) {
		bench_match_one(timer, "any length", false);
		bench_match_one(timer, "full", true);
	}
	if (wanted("large") || wanted("small") || wanted("host") || wanted("sync"))
		for (int lg : { 20, 24 })
			bench_size(timer, lg);
	if (json) {
		print_json(p);
		return 0;
	}
	printf("# %s, %d SMs, L2 %d MiB, CUDA %d.%d\n", p.name, p.multiProcessorCount,
	       p.l2CacheSize >> 20, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
	print_table();
	return 0;
}
