/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a writer without any work, and the memory that a cache costs.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/bench.h"

#include "tools/common/cli.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	SETTLE_MS = 300,
	WINDOW_MS = 1000,
	WINDOW_QUICK_MS = 100,
	WINDOWS = 3,
	WINDOWS_QUICK = 2,
	PEERS = 8,
};

/* A line of /proc/PID/status, which is there as long as the process is. */
static uint64_t status_of(pid_t pid, const char *field)
{
	char path[64], line[256];
	uint64_t value = 0;
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "r");
	while (f && !found && fgets(line, sizeof(line), f))
		if (!strncmp(line, field, strlen(field)) && line[strlen(field)] == ':')
			found = sscanf(line + strlen(field) + 1, "%lu", &value) == 1;
	if (f)
		fclose(f);
	if (!found)
		bench_fail("%s has no %s", path, field);
	return value;
}

/* ---- idle ---- */

struct idle {
	const struct bench_cache *cache;
	struct contender wakes;
	unsigned rounds;
};

/* Percent of a core. */
static double idle_value(void *arg)
{
	struct idle *t = arg;
	uint64_t from = cli_now_ns(), cpu = cache_writer_ns(t->cache), ns;
	uint64_t woken = status_of(t->cache->writer.pid, "voluntary_ctxt_switches");

	cli_sleep_ms(bench.quick ? WINDOW_QUICK_MS : WINDOW_MS);
	cpu = cache_writer_ns(t->cache) - cpu;
	woken = status_of(t->cache->writer.pid, "voluntary_ctxt_switches") - woken;
	ns = cli_now_ns() - from;
	if (t->rounds++)
		t->wakes.at[t->wakes.n++] = (double)woken * 1e9 / (double)ns;
	return 100.0 * (double)cpu / (double)ns;
}

void bench_idle(void)
{
	static struct idle t;
	static struct contender c;
	struct gpc_config cfg = { .vram_blocks = (uint32_t)bench.size };
	struct bench_row row = row_new("ring", "% of a core", "writer, nobody attached, CPU");
	struct bench_cache b;

	if (!cache_open(&b, &cfg, bench.size, CACHE_SERVED, &row)) {
		report_add(&row);
		return;
	}
	gpc_close(b.c); /* the writer's own handle is the only one left */
	b.c = NULL;
	cli_sleep_ms(SETTLE_MS);
	t.cache = &b;
	c = (struct contender){ .name = "gpc", .arg = &t, .value = idle_value };
	rounds_run("idle", &c, 1, bench.quick ? WINDOWS_QUICK : WINDOWS);
	row_value(&row, &c);
	row_mark(&row, MARK_VALUE_MOST, 0.05); /* 0.0 % */
	report_add(&row);
	row = row_new("ring", "wake-ups/s", "writer, nobody attached, sleeps");
	row_value(&row, &t.wakes);
	row_mark(&row, MARK_VALUE_MOST, 1);
	report_add(&row);
	cache_close(&b);
}

/* ---- memory ---- */

static void memory_row(const char *what, double bytes, uint64_t entries, double mark)
{
	struct bench_row row = row_new("memory", "bytes/block", "%s", what);

	row.entries = entries;
	row.processes = PEERS;
	bytes /= (double)entries;
	row.value = (struct figure){ bytes, bytes, bytes, 1 };
	row_mark(&row, mark > 0 ? MARK_VALUE_MOST : MARK_NONE, mark);
	report_add(&row);
}

void bench_memory(void)
{
	struct gpc_config cfg = { .vram_blocks = (uint32_t)bench.size, .max_peers = PEERS };
	struct gpc_info info = { .size = sizeof(info) };
	struct bench_row row = row_new("memory", "bytes/block", "segments and writer");
	struct bench_cache b;
	uint64_t before, after;

	/* The writer is born with pages of this process, which are not its own.  With free ones
	 * among them it would ask the system for less. */
	malloc_trim(0);
	before = status_of(getpid(), "RssAnon");
	row.entries = bench.size;
	if (!cache_open(&b, &cfg, bench.size, CACHE_SERVED, &row)) {
		report_add(&row);
		return;
	}
	must(gpc_info_get(b.c, &info), "info");
	after = status_of(b.writer.pid, "RssAnon");
	after = after > before ? after - before : 0;
	memory_row("segments", (double)info.bytes, b.entries, 0);
	memory_row("the writer's own", (double)(after << 10), b.entries, 0);
	memory_row("segments and writer", (double)(info.bytes + (after << 10)), b.entries, 200);
	cache_close(&b);
}
