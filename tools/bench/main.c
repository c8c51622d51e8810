/* SPDX-License-Identifier: Apache-2.0 */
/* gpc-bench - measures the cost of a prefix cache on this machine, beside the machine's own limits
 * and beside other tables.
 *
 * All figures are ratios of medians that were taken side by side; nothing is printed before
 * everything has been measured and verified.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/bench.h"

#include "tools/common/cli.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
	ENTRIES_LEAST = 1 << 12,
	ENTRIES_MOST = 1 << 24,
	SIZE = 1 << 20,
	SIZE_QUICK = 1 << 13,
	ROUNDS = 15,
	ROUNDS_QUICK = 3,
	PATIENCE = 10,
	PATIENCE_QUICK = 2,
};

struct bench_args bench;

/* In the order in which they are measured: see run(). */
enum { LOOKUP, INSERT, SCALE = 7, SYNC, DEVICE };
static const struct work {
	const char *name;
	void (*run[3])(void);
} works[] = {
	[LOOKUP] = { "lookup", { NULL } },
	[INSERT] = { "insert", { bench_idle_peers } },
	{ "match", { bench_match } },
	{ "hash", { bench_hash } },
	{ "evict", { bench_evict, bench_caller } },
	{ "ref", { bench_ref } },
	{ "ring", { bench_ring, bench_idle } },
	[SCALE] = { "scale", { bench_scale, bench_changes, bench_memory } },
	[SYNC] = { "sync", { NULL } },
	[DEVICE] = { "device", { NULL } },
};

/* ---- command line ---- */

static const struct option options[] = { { "entries", required_argument, NULL, 'e' },
					 { "batch", required_argument, NULL, 'b' },
					 { "hits", required_argument, NULL, 'i' },
					 { "rounds", required_argument, NULL, 'r' },
					 { "patience", required_argument, NULL, 'P' },
					 { "seed", required_argument, NULL, 's' },
					 { "dir", required_argument, NULL, 'd' },
					 { "huge", no_argument, NULL, 'H' },
					 { "quick", no_argument, NULL, 'q' },
					 { "json", no_argument, NULL, 'j' },
					 { "csv", no_argument, NULL, 'c' },
					 { "plot", required_argument, NULL, 'p' },
					 { "help", no_argument, NULL, 'h' },
					 { "version", no_argument, NULL, 'V' },
					 { NULL, 0, NULL, 0 } };

static const struct cli_help help[] = {
	{ NULL, "Usage: gpc-bench [OPTION]... WORK...", NULL },
	{ NULL,
	  "Measure a prefix cache on this machine, beside the limit of the machine and\n"
	  "beside other tables.\n",
	  NULL },
	{ NULL,
	  "WORK is lookup, match, hash, insert, evict, ref, ring, scale, sync, device, or\n"
	  "all.\n",
	  NULL },
	{ "--entries N",
	  "blocks in the cache, of lookup and insert; may be repeated; the other works "
	  "take the last one, or 1M if none is given",
	  "64k, 1M and 16M" },
	{ "--batch N", "keys of one lookup; may be repeated", "64 and 1024" },
	{ "--hits PCT", "share of keys that are cached, in percent; may be repeated",
	  "100, 50 and 0" },
	{ "--rounds N", "number of rounds; figures are their medians", "15" },
	{ "--patience S", "skip the row of another table that takes longer than S seconds to fill",
	  "10" },
	{ "--seed N", "seed of the random numbers", "another one each time" },
	{ "--dir DIR", "folder of the caches' files", "/dev/shm" },
	{ "--huge", "keep the caches in huge pages, in a mounted hugetlbfs", NULL },
	{ "--quick", "small sizes and few rounds, to see whether it works", NULL },
	{ "--json", "print one JSON object", NULL },
	{ "--csv", "print comma-separated values, one row in each line", NULL },
	{ "--plot FILE", "also draw rates against entries and processes, as SVG (needs gnuplot)",
	  NULL },
	{ "-h, --help", "show this text", NULL },
	{ "-V, --version", "show the version", NULL },
	{ NULL, "\nNumbers take the suffixes k, M and G (powers of 1024).", NULL },
	{ NULL,
	  "Exit status: 0 done, whether marks are met or missed; 1 a wrong answer or a\n"
	  "failure; 2 wrong usage.",
	  NULL },
};

static bool add(struct bench_list *list, const char *option, const char *text, uint64_t min,
		uint64_t max)
{
	if (list->n == LIST_MOST) {
		cli_usage("--%s: at most %d times", option, LIST_MOST);
		return false;
	}
	return cli_count(option, text, min, max, &list->at[list->n++]);
}

static bool set_option(int opt, const char *arg)
{
	switch (opt) {
	case 'e':
		return add(&bench.entries, "entries", arg, ENTRIES_LEAST, ENTRIES_MOST);
	case 'b':
		return add(&bench.batch, "batch", arg, 1, 1 << 16);
	case 'i':
		return add(&bench.hits, "hits", arg, 0, 100);
	case 'r':
		return cli_count("rounds", arg, 1, ROUNDS_MOST, &bench.rounds);
	case 'P':
		return cli_count("patience", arg, 1, 3600, &bench.patience);
	case 's':
		return cli_count("seed", arg, 0, UINT64_MAX, &bench.seed);
	case 'd':
		bench.dir = arg;
		return true;
	case 'p':
		bench.plot = arg;
		return true;
	case 'H':
		bench.huge = true;
		return true;
	case 'q':
		bench.quick = true;
		return true;
	case 'j':
		bench.json = true;
		return true;
	default:
		bench.csv = true;
		return true;
	}
}

static void set_defaults(void)
{
	static const struct bench_list usual[] = {
		{ 3, { 1 << 16, 1 << 20, 1 << 24 } },
		{ 2, { 64, 1024 } },
		{ 3, { 100, 50, 0 } },
		{ 2, { 1 << 12, SIZE_QUICK } },
	};

	/* the middle one of the usual sizes, at which other tables are filled in bearable time */
	bench.size = bench.entries.n ? bench.entries.at[bench.entries.n - 1]
		     : bench.quick   ? SIZE_QUICK
				     : SIZE;
	if (!bench.entries.n)
		bench.entries = usual[bench.quick ? 3 : 0];
	if (!bench.batch.n)
		bench.batch = usual[1];
	if (!bench.hits.n)
		bench.hits = usual[2];
	if (!bench.rounds)
		bench.rounds = bench.quick ? ROUNDS_QUICK : ROUNDS;
	if (!bench.patience)
		bench.patience = bench.quick ? PATIENCE_QUICK : PATIENCE;
}

/* The command line of the program, for people who want to repeat it. */
static void note_command(int argc, char **argv)
{
	size_t used = 0;

	for (int i = 0; i < argc; i++) {
		const char *word = i ? argv[i] : "gpc-bench";
		int n = snprintf(bench.command + used, sizeof(bench.command) - used, "%s%s",
				 i ? " " : "", word);

		if (n < 0 || (size_t)n >= sizeof(bench.command) - used)
			return;
		used += (size_t)n;
	}
}

/* -1: go on; otherwise the exit status. */
static int parse(int argc, char **argv)
{
	bool seeded = false;
	int opt, status = 0;

	while ((opt = cli_option(argc, argv, options, &status)) > 0) {
		if (opt == 'h')
			return cli_show_help(help, ARRAY_SIZE(help));
		seeded |= opt == 's';
		if (!set_option(opt, optarg))
			return EXIT_USAGE;
	}
	if (opt < 0)
		return status;
	if (bench.json && bench.csv)
		return cli_usage("give --json or --csv, not both");
	if (bench.dir && strlen(bench.dir) > 3800)
		return cli_usage("--dir: the path is too long");
	if (!seeded && getrandom(&bench.seed, sizeof(bench.seed), 0) != sizeof(bench.seed)) {
		cli_error("no random numbers");
		return EXIT_RUNTIME;
	}
	set_defaults();
	return -1;
}

static void refuse_work(const char *name)
{
	char all[128] = "";

	for (size_t w = 0; w < ARRAY_SIZE(works); w++)
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s, ", works[w].name);
	cli_usage("there is no work '%s'; there are %sand all", name, all);
}

/* Which works are named?  False: one of them does not exist. */
static bool choose(char **names, int n, bool *chosen)
{
	for (int i = 0; i < n; i++) {
		bool found = false;

		for (size_t w = 0; w < ARRAY_SIZE(works); w++)
			if (!strcmp(names[i], works[w].name) || !strcmp(names[i], "all"))
				found = chosen[w] = true;
		if (!found) {
			refuse_work(names[i]);
			return false;
		}
	}
	return true;
}

/* A large cache takes long to fill: each is filled once. */
static void one_size(uint64_t entries, const bool *chosen)
{
	struct gpc_config cfg = { .vram_blocks = (uint32_t)entries + SPARE };
	struct bench_row why = row_new("lookup", "ns/key", "gpc");
	struct bench_cache b;

	if (cfg.vram_blocks > ENTRIES_MOST) { /* a pool cannot have more */
		cfg.vram_blocks = ENTRIES_MOST;
		entries = ENTRIES_MOST - SPARE;
	}
	if (!cache_open(&b, &cfg, entries, CACHE_SERVED, &why)) {
		if (chosen[LOOKUP])
			bench_no_lookup(entries, &why);
		if (chosen[INSERT])
			bench_no_insert(entries, &why);
		return;
	}
	if (chosen[LOOKUP])
		bench_lookup(&b);
	if (chosen[INSERT])
		bench_insert(&b);
	cache_close(&b);
}

/* Lookups and insertions share a cache of each size, devices come last. */
static void run(const bool *chosen)
{
	for (uint32_t i = 0; i < bench.entries.n; i++)
		if (chosen[LOOKUP] || chosen[INSERT])
			one_size(bench.entries.at[i], chosen);
	for (size_t w = 0; w < ARRAY_SIZE(works); w++)
		for (size_t i = 0; chosen[w] && i < ARRAY_SIZE(works[w].run); i++)
			if (works[w].run[i])
				works[w].run[i]();
	if (chosen[SYNC] || chosen[DEVICE])
		bench_devices(chosen[SYNC], chosen[DEVICE]);
}

static bool has_figures(void)
{
	const struct bench_row *rows;
	size_t n, i;

	rows = report_rows(&n);
	for (i = 0; i < n; i++)
		if (rows[i].value.n)
			return true;
	cli_error("nothing could be measured");
	return false;
}

int main(int argc, char **argv)
{
	bool chosen[ARRAY_SIZE(works)] = { false };
	uint64_t from = cli_now_ns();
	int status;

	cli_init("gpc-bench");
	note_command(argc, argv);
	status = parse(argc, argv);
	if (status >= 0)
		return status;
	if (optind == argc)
		return cli_usage("a WORK is missing, for instance all");
	if (!choose(argv + optind, argc - optind, chosen))
		return EXIT_USAGE;
	if (bench.plot && (status = plot_check(bench.plot, chosen[LOOKUP] || chosen[SCALE])))
		return status;
	cache_dir(); /* it reports now if there are no huge pages */
	crew_init();
	run(chosen);
	show_rows((double)(cli_now_ns() - from) / 1e9);
	status = has_figures() ? 0 : EXIT_RUNTIME;
	if (bench.plot && plot_rows(bench.plot))
		status = EXIT_RUNTIME;
	return cli_finish(status);
}
