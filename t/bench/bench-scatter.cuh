/* SPDX-License-Identifier: Apache-2.0 */
/* bench-scatter.cuh - changed entries into the mirror, as a flush brings them. */
#ifndef GPC_T_BENCH_BENCH_SCATTER_CUH
#define GPC_T_BENCH_BENCH_SCATTER_CUH

#include "bench-rows.cuh"

/* as the writer: the list is filled anew each time */
static void fill_changes(launch_change *list, uint32_t n, uint64_t round,
			 uint64_t entries)
{
	for (uint32_t i = 0; i < n; i++) {
		list[i].slot = (uint32_t)((i * 2654435761ull + round) & (entries - 1));
		list[i].entry.w[0] = i;
		list[i].entry.w[1] = (uint32_t)round;
		list[i].entry.w[2] = 0x100;
		list[i].entry.w[3] = i + 1;
	}
}

static void check_changes(mirror &m, const launch_change *list, uint32_t n,
			  uint64_t round, const char *what)
{
	probe_entry e;
	uint64_t got;

	CK(cudaMemcpy(&got, &m.line->sequence, 8, cudaMemcpyDeviceToHost));
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
	mirror_status line = {};
	cudaGraphExec_t empty;
	double limit;

	line.spaces = 1;
	empty = timer.capture([&] { nothing<<<1, 32, 0, timer.stream>>>(); });
	limit = spread_of(clocked(reps, [&] {
			CK(cudaGraphLaunch(empty, timer.stream));
			CK(cudaStreamSynchronize(timer.stream));
		})).median;
	CK(cudaGraphExecDestroy(empty));
	CK(cudaHostAlloc(&list, n * sizeof(*list), cudaHostAllocMapped));
	std::vector<double> us = clocked(reps, [&] {
		fill_changes(list, n, line.sequence = ++round, entries);
		CK(launch_scatter(m.table, m.line, list, n, &line, timer.stream));
		CK(cudaStreamSynchronize(timer.stream));
	});
	check_changes(m, list, n, round, name.c_str());
	add(name + ", launch", "us", spread_of(us), limit, 0);
	CK(cudaFreeHost(list));
	if (n > LAUNCH_STAGE)
		return;

	launch_stage *stage;
	CK(cudaHostAlloc(&stage, sizeof(*stage), cudaHostAllocMapped));
	memset(stage, 0, sizeof(*stage));
	stage->value = line;
	stage->n = n;
	cudaGraphExec_t graph = timer.capture([&] {
		CK(launch_scatter_staged(m.table, m.line, stage,
					 n <= 64 ? 64 : LAUNCH_STAGE, timer.stream));
	});
	us = clocked(reps, [&] {
		fill_changes(stage->change, n, stage->value.sequence = ++round, entries);
		stage->ticket = round;
		CK(cudaGraphLaunch(graph, timer.stream));
		while (__atomic_load_n(&stage->done, __ATOMIC_ACQUIRE) != round)
			;
	});
	check_changes(m, stage->change, n, round, name.c_str());
	add(name + ", stage in a graph, waited for by its ticket", "us", spread_of(us),
	    limit, mark);
	CK(cudaGraphExecDestroy(graph));
	CK(cudaFreeHost(stage));
}

#endif
