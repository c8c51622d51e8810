/* SPDX-License-Identifier: Apache-2.0 */
/* rows.cuh - what bench-gpu says: a row for each thing that it has timed, as a table or as JSON. */
#ifndef GPC_BENCH_ROWS_CUH
#define GPC_BENCH_ROWS_CUH

#include "gpu.cuh"

#include <string>

struct row {
	std::string name, unit;
	spread s;
	double limit; /* measured in the same run; 0: none */
	double mark;  /* of median / limit, without a limit of the median; 0: none */
	bool more_is_better;
};

static std::vector<row> rows;
static const char *only = "";
static bool quick;

static bool wanted(const char *group)
{
	return !strncmp(group, only, strlen(only)) || !strncmp(group, only, strlen(group));
}

static void add(const std::string &name, const char *unit, spread s, double limit, double mark,
		bool more_is_better = false)
{
	rows.push_back({ name, unit, s, limit, mark, more_is_better });
}

static spread rate(const std::vector<double> &us, double n)
{
	spread s = spread_of(us);

	return { n / s.median / 1e3, n / s.high / 1e3, n / s.low / 1e3 };
}

[[noreturn]] static void die(const char *what)
{
	fprintf(stderr, "bench-gpu: wrong results: %s\n", what);
	exit(1);
}

static double judged(const row &r)
{
	return r.limit ? r.s.median / r.limit : r.s.median;
}

static bool is_met(const row &r)
{
	return r.more_is_better ? judged(r) >= r.mark : judged(r) <= r.mark;
}

static void print_table(void)
{
	printf("%-66s %9s %9s %9s %-4s %8s %6s  %s\n", "", "median", "10 %", "90 %", "", "limit",
	       "ratio", "mark");
	for (const row &r : rows) {
		printf("%-66s %9.2f %9.2f %9.2f %-4s", r.name.c_str(), r.s.median, r.s.low,
		       r.s.high, r.unit.c_str());
		r.limit ? printf(" %8.2f %6.2f", r.limit, judged(r)) : printf(" %15s", "");
		if (r.mark)
			printf("  %s %.2f %s", r.more_is_better ? ">=" : "<=", r.mark,
			       is_met(r) ? "met" : "missed");
		printf("\n");
	}
}

static void print_json(const cudaDeviceProp &p)
{
	printf("{\"device\": \"%s\", \"rows\": [", p.name);
	for (size_t i = 0; i < rows.size(); i++) {
		const row &r = rows[i];

		printf("%s\n{\"name\": \"%s\", \"unit\": \"%s\", \"median\": %.4g, "
		       "\"p10\": %.4g, \"p90\": %.4g",
		       i ? "," : "", r.name.c_str(), r.unit.c_str(), r.s.median, r.s.low, r.s.high);
		if (r.limit)
			printf(", \"limit\": %.4g", r.limit);
		if (r.mark)
			printf(", \"mark\": %.4g, \"met\": %s", r.mark,
			       is_met(r) ? "true" : "false");
		printf("}");
	}
	printf("\n]}\n");
}

#endif
