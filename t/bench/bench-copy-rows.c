/* SPDX-License-Identifier: Apache-2.0 */
/* bench-copy-rows.c - times and rows of bench-copy: a table, or JSON in the form of bench-gpu's. */
#include "config.h"

#include "bench-copy.h"

#include <getopt.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

bool quick;
static bool json;
static uint32_t printed;

void check(int e, const char *call, const char *file, int line)
{
	if (e == 0)
		return;
	fprintf(stderr, "bench-copy: %s:%d: %s: %s\n", file, line, call,
		e > 0 ? cudaGetErrorString((cudaError_t)e) : gpc_last_error());
	exit(2);
}

void wrong(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "bench-copy: wrong bytes: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n");
	exit(1);
}

void note(const char *format, ...)
{
	va_list args;

	fprintf(json ? stderr : stdout, "# ");
	va_start(args, format);
	vfprintf(json ? stderr : stdout, format, args);
	va_end(args);
	fprintf(json ? stderr : stdout, "\n");
}

/* ---- clocks, memory ---- */

static double read_clock(clockid_t which)
{
	struct timespec t;

	clock_gettime(which, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

double now_us(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

double cpu_us(void)
{
	return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

void sleep_us(unsigned us)
{
	struct timespec t = { .tv_nsec = (long)us * 1000 };

	nanosleep(&t, NULL);
}

void *shared_ram(size_t bytes)
{
	size_t two = (size_t)2 << 20;
	uint8_t *p = mmap(NULL, bytes + two, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			  -1, 0);

	if (p == MAP_FAILED) {
		fprintf(stderr, "bench-copy: no %zu MiB of shared memory\n", bytes >> 20);
		exit(2);
	}
	p = (uint8_t *)(((uintptr_t)p + two - 1) / two * two);
	madvise(p, bytes, MADV_HUGEPAGE);
	memset(p, 1, bytes);
	return p;
}

/* ---- rows ---- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double part(struct times *t, double of)
{
	uint32_t at = (uint32_t)(of * t->n);

	if (!t->n)
		return 0;
	qsort(t->us, t->n, sizeof(*t->us), by_value);
	return t->us[at < t->n ? at : t->n - 1];
}

static void print_row(const char *name, const char *unit, const double v[3], double mark,
		      bool more_is_better)
{
	if (json) {
		printf("%s\n{\"name\": \"%s\", \"unit\": \"%s\", \"median\": %.4g, "
		       "\"p10\": %.4g, \"p90\": %.4g", printed++ ? "," : "", name, unit, v[0], v[1],
		       v[2]);
		if (mark > 0)
			printf(", \"mark\": %.4g", mark);
		printf("}");
		return;
	}
	printf("%-84s %9.2f %9.2f %9.2f %-4s", name, v[0], v[1], v[2], unit);
	if (mark > 0)
		printf(" %8.2f %s", mark, (more_is_better ? v[0] >= mark : v[0] <= mark) ?
		       "met" : "missed");
	printf("\n");
	fflush(stdout);
}

#define NAME(name)                                               \
	char text_[200];                                         \
	va_list args_;                                           \
	va_start(args_, name);                                   \
	vsnprintf(text_, sizeof(text_), name, args_);            \
	va_end(args_)

void row_rate(struct times *t, double bytes, double mark, const char *name, ...)
{
	double v[3] = { bytes / middle(t) / 1e3, bytes / part(t, 0.9) / 1e3,
			bytes / part(t, 0.1) / 1e3 };

	NAME(name);
	print_row(text_, "GB/s", v, mark, true);
}

void row_ratio(double value, double mark, bool more_is_better, const char *name, ...)
{
	double v[3] = { value, value, value };

	NAME(name);
	print_row(text_, "x", v, mark, more_is_better);
}

void row_us(struct times *t, double mark, const char *name)
{
	double v[3] = { middle(t), part(t, 0.1), part(t, 0.9) };

	print_row(name, "us", v, mark, false);
}

void row_part(struct times *t, double of, double mark, const char *name)
{
	double v[3] = { part(t, of), part(t, 0), part(t, 1) };

	print_row(name, "us", v, mark, false);
}

void begin_rows(const char *device)
{
	if (json)
		printf("{\"device\": \"%s\", \"rows\": [", device);
	else
		printf("# %s, CUDA %d.%d\n%-84s %9s %9s %9s %-4s %8s\n", device,
		       CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, "", "median", "10 %",
		       "90 %", "", "mark");
	fflush(stdout);
}

int end_rows(void)
{
	if (json)
		printf("\n]}\n");
	return fflush(stdout) ? 2 : 0;
}

bool options(int argc, char **argv, int *ret_device)
{
	static const struct option known[] = { { "json", 0, NULL, 'j' }, { "quick", 0, NULL, 'q' },
					       { "device", 1, NULL, 'd' }, { "pin", 0, NULL, 'p' },
					       { "help", 0, NULL, 'h' }, { NULL, 0, NULL, 0 } };
	bool pin = false;
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1)
		switch (c) {
		case 'j':
			json = true;
			break;
		case 'q':
			quick = true;
			break;
		case 'd':
			*ret_device = atoi(strncmp(optarg, "cuda:", 5) ? optarg : optarg + 5);
			break;
		case 'p':
			pin = true;
			break;
		default:
			fprintf(c == 'h' ? stdout : stderr, "usage: bench-copy [--json] [--quick] "
				"[--device N] [--pin]\n");
			exit(c == 'h' ? 0 : 2);
		}
	return pin;
}
