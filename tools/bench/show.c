/* SPDX-License-Identifier: Apache-2.0 */
/* The results and the machine: as JSON, as CSV, or as a table made from the same values.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/bench.h"

#include "tools/common/cli.h"
#include "tools/common/output.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static const char *const met_words[] = { "missed", "met" };

static bool on_ratio(const struct bench_row *row)
{
	return row->mark == MARK_RATIO_MOST || row->mark == MARK_RATIO_LEAST;
}

static bool at_most(const struct bench_row *row)
{
	return row->mark == MARK_VALUE_MOST || row->mark == MARK_RATIO_MOST;
}

/* ---- JSON ---- */

static void put_figure(json_t *o, const char *name, const struct figure *f)
{
	char low[32], high[32];

	if (!f->n)
		return;
	snprintf(low, sizeof(low), "%s_low", name);
	snprintf(high, sizeof(high), "%s_high", name);
	json_object_set_new(o, name, out_need(json_real(f->median)));
	json_object_set_new(o, low, out_need(json_real(f->low)));
	json_object_set_new(o, high, out_need(json_real(f->high)));
}

static json_t *row_json(const struct bench_row *row)
{
	json_t *o = out_need(json_object());
	int met = row_met(row);

	json_object_set_new(o, "work", out_string(row->work, sizeof(row->what)));
	json_object_set_new(o, "what", out_string(row->what, sizeof(row->what)));
	if (row->entries)
		json_object_set_new(o, "entries", out_need(json_integer((json_int_t)row->entries)));
	if (row->batch)
		json_object_set_new(o, "batch", out_need(json_integer((json_int_t)row->batch)));
	if (row->hits >= 0)
		json_object_set_new(o, "hits", out_need(json_integer(row->hits)));
	if (row->processes)
		json_object_set_new(o, "processes", out_need(json_integer(row->processes)));
	json_object_set_new(o, "unit", out_string(row->unit, 32));
	put_figure(o, "value", &row->value);
	if (row->value.n)
		json_object_set_new(o, "rounds", out_need(json_integer(row->value.n)));
	if (row->ratio.n) {
		json_object_set_new(o, "reference",
				    out_string(row->reference, sizeof(row->reference)));
		put_figure(o, "reference_value", &row->against);
		put_figure(o, "ratio", &row->ratio);
	}
	if (row->mark) {
		json_object_set_new(o, "mark", out_need(json_real(row->limit)));
		json_object_set_new(o, "mark_of", out_string(on_ratio(row) ? "ratio" : "value", 8));
		json_object_set_new(o, "mark_is", out_string(at_most(row) ? "most" : "least", 8));
	}
	if (met >= 0)
		json_object_set_new(o, "met", out_need(json_boolean(met)));
	if (row->reason[0])
		json_object_set_new(o, row->value.n ? "note" : "skipped",
				    out_string(row->reason, sizeof(row->reason)));
	return o;
}

static void cpu_name(char *ret, size_t room)
{
	FILE *f = fopen("/proc/cpuinfo", "r");
	char line[256];

	snprintf(ret, room, "unknown");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "model name", 10) && strchr(line, ':')) {
			snprintf(ret, room, "%s", strchr(line, ':') + 2);
			ret[strcspn(ret, "\n")] = 0;
			break;
		}
	if (f)
		fclose(f);
}

static json_t *machine_json(void)
{
	json_t *o = out_need(json_object());
	struct utsname u;
	char cpu[128];

	cpu_name(cpu, sizeof(cpu));
	json_object_set_new(o, "cpu", out_string(cpu, sizeof(cpu)));
	json_object_set_new(o, "cores", out_need(json_integer(bench_cores())));
	json_object_set_new(o, "memory",
			    out_need(json_integer((json_int_t)sysconf(_SC_PHYS_PAGES) *
						  sysconf(_SC_PAGESIZE))));
	if (!uname(&u)) {
		json_object_set_new(o, "kernel", out_string(u.release, sizeof(u.release)));
		json_object_set_new(o, "arch", out_string(u.machine, sizeof(u.machine)));
	}
	return o;
}

static json_t *names_json(const char *const *names)
{
	json_t *a = out_need(json_array());

	for (; *names; names++)
		json_array_append_new(a, out_string(*names, 64));
	return a;
}

static void show_json(const struct bench_row *rows, size_t n, const unsigned *count, double seconds)
{
	json_t *o = out_need(json_object()), *list = out_need(json_array());

	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, row_json(&rows[i]));
	json_object_set_new(o, "version", out_string(PACKAGE_VERSION, 32));
	json_object_set_new(o, "command", out_string(bench.command, sizeof(bench.command)));
	json_object_set_new(o, "machine", machine_json());
	json_object_set_new(o, "segments", out_string(cache_dir() ? cache_dir() : "/dev/shm", 256));
	json_object_set_new(o, "seconds", out_need(json_real(seconds)));
	json_object_set_new(o, "peers_absent", names_json(bench_peers_absent));
	json_object_set_new(o, "rows", list);
	json_object_set_new(o, "met", out_need(json_integer(count[1])));
	json_object_set_new(o, "missed", out_need(json_integer(count[0])));
	json_object_set_new(o, "skipped", out_need(json_integer(count[2])));
	out_json(o);
}

/* ---- CSV ---- */

static const char *const csv_columns[] = {
	"work",       "what",      "entries",         "batch",     "hits",
	"processes",  "unit",      "value",           "value_low", "value_high",
	"rounds",     "reference", "reference_value", "ratio",     "ratio_low",
	"ratio_high", "mark",      "mark_of",         "mark_is",   "met",
	"skipped",    "note",
};

/* As RFC 4180 has it. */
static void csv_text(const char *s)
{
	if (!strpbrk(s, ",\"\n")) {
		fputs(s, stdout);
		return;
	}
	putchar('"');
	for (; *s; s++) {
		if (*s == '"')
			putchar('"');
		putchar(*s);
	}
	putchar('"');
}

static void csv_cell(const json_t *v)
{
	if (json_is_integer(v))
		printf("%" JSON_INTEGER_FORMAT, json_integer_value(v));
	else if (json_is_real(v))
		printf("%.9g", json_real_value(v));
	else if (json_is_boolean(v))
		fputs(json_is_true(v) ? "true" : "false", stdout);
	else if (json_is_string(v))
		csv_text(json_string_value(v));
}

static void show_csv(const struct bench_row *rows, size_t n)
{
	for (size_t i = 0; i < ARRAY_SIZE(csv_columns); i++)
		printf("%s%s", i ? "," : "", csv_columns[i]);
	fputs("\r\n", stdout);
	for (size_t r = 0; r < n; r++) {
		json_t *o = row_json(&rows[r]);

		for (size_t i = 0; i < ARRAY_SIZE(csv_columns); i++) {
			if (i)
				putchar(',');
			csv_cell(json_object_get(o, csv_columns[i]));
		}
		fputs("\r\n", stdout);
		json_decref(o);
	}
}

/* ---- for people ---- */

static const struct column columns[] = {
	{ "WHAT", "what", SHOW_TEXT },
	{ "ENTRIES", "entries", SHOW_TEXT, true },
	{ "BATCH", "batch", SHOW_TEXT, true },
	{ "HITS", "hits", SHOW_TEXT, true },
	{ "PROCESSES", "processes", SHOW_TEXT, true },
	{ "MEDIAN", "value", SHOW_TEXT },
	{ "UNIT", "unit", SHOW_TEXT },
	{ "10 %", "value_low", SHOW_TEXT },
	{ "90 %", "value_high", SHOW_TEXT },
	{ "RATIO", "ratio", SHOW_TEXT },
	{ "TO", "reference", SHOW_TEXT },
	{ "MARK", "for_people", SHOW_TEXT },
};

static void add_words(json_t *o, const struct bench_row *row)
{
	char text[300];
	int met = row_met(row);

	if (row->mark)
		snprintf(text, sizeof(text), "%s %g%s: %s", at_most(row) ? "<=" : ">=", row->limit,
			 on_ratio(row) ? " x" : "", met < 0 ? "not measured" : met_words[met]);
	if (row->mark)
		json_object_set_new(o, "for_people", out_string(text, sizeof(text)));
}

static bool has(const json_t *list, const char *field)
{
	const json_t *o;
	size_t i;

	json_array_foreach((json_t *)list, i, o) if (json_object_get(o, field)) return true;
	return false;
}

static bool said_before(const struct bench_row *rows, size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (!strcmp(rows[j].what, rows[i].what) && !strcmp(rows[j].reason, rows[i].reason))
			return true;
	return false;
}

static void show_work(const struct bench_row *rows, size_t n)
{
	json_t *list = out_need(json_array());
	struct column used[ARRAY_SIZE(columns)];
	size_t nused = 0;

	for (size_t i = 0; i < n; i++) {
		json_t *o = row_json(&rows[i]);

		add_words(o, &rows[i]);
		json_array_append_new(list, o);
	}
	for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
		if (has(list, columns[i].field))
			used[nused++] = columns[i];
	printf("%s\n", rows[0].work);
	out_table(used, nused, list);
	json_decref(list);
	for (size_t i = 0; i < n; i++)
		if (rows[i].reason[0] && !said_before(rows, i))
			out_line("%s: %s%s", rows[i].what, rows[i].value.n ? "" : "skipped, ",
				 rows[i].reason);
	putchar('\n');
}

static void show_absent(void)
{
	char text[1024] = "not built in: ";
	size_t used = strlen(text);

	for (size_t i = 0; bench_peers_absent[i] && used < sizeof(text); i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i ? ", " : "",
					 bench_peers_absent[i]);
	if (bench_peers_absent[0])
		out_line("%s", text);
}

static void show_people(const struct bench_row *rows, size_t n, const unsigned *count,
			double seconds)
{
	char cpu[128];

	cpu_name(cpu, sizeof(cpu));
	out_line("%s", bench.command);
	out_line("%s, %u cores; segments in %s", cpu, bench_cores(),
		 cache_dir() ? cache_dir() : "/dev/shm");
	putchar('\n');
	for (size_t i = 0, from = 0; i < n; i++)
		if (i + 1 == n || strcmp(rows[i + 1].work, rows[from].work)) {
			show_work(rows + from, i + 1 - from);
			from = i + 1;
		}
	show_absent();
	out_line("%u marks met, %u missed, %u rows skipped; %.0f s%s", count[1], count[0], count[2],
		 seconds, bench.quick ? " (marks are for the usual sizes)" : "");
}

void show_rows(double seconds)
{
	unsigned count[3] = { 0 };
	const struct bench_row *rows;
	size_t n;

	rows = report_rows(&n);
	for (size_t i = 0; i < n; i++) {
		int met = row_met(&rows[i]);

		if (!rows[i].value.n)
			count[2]++;
		else if (met >= 0)
			count[met]++;
	}
	if (bench.json)
		show_json(rows, n, count, seconds);
	else if (bench.csv)
		show_csv(rows, n);
	else
		show_people(rows, n, count, seconds);
}
