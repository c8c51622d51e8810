/* SPDX-License-Identifier: Apache-2.0 */
/* Rates as a picture: lookups against entries, and against processes.  gnuplot draws.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/bench.h"

#include "tools/common/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINES_MOST = 32 };

struct picture { /* the rows of one of the two pictures */
	const char *title, *x_title, *y_title;
	bool (*takes)(const struct bench_row *row, double *x, double *y);
};

/* Millions a second, for all hits and one size of batch. */
static bool takes_lookup(const struct bench_row *row, double *x, double *y)
{
	if (strcmp(row->work, "lookup") || row->batch != bench.batch.at[0] || !row->value.n ||
	    (row->hits >= 0 && row->hits != 100))
		return false;
	*x = (double)row->entries;
	*y = 1000 / row->value.median;
	return true;
}

static bool takes_scale(const struct bench_row *row, double *x, double *y)
{
	if (strcmp(row->work, "scale") || !row->processes || !row->value.n)
		return false;
	*x = row->processes;
	*y = row->value.median * row->processes;
	return true;
}

static const struct picture pictures[] = {
	{ "lookups, one process", "entries", "M keys/s", takes_lookup },
	{ "readers together", "processes", "M blocks/s", takes_scale },
};

/* Names of lines, each once. */
static size_t lines_of(const struct picture *p, const char **names)
{
	const struct bench_row *rows;
	size_t n, lines = 0, i, j;
	double x, y;

	rows = report_rows(&n);
	for (i = 0; i < n; i++) {
		if (!p->takes(&rows[i], &x, &y))
			continue;
		for (j = 0; j < lines && strcmp(names[j], rows[i].what); j++)
			;
		if (j == lines && lines < LINES_MOST)
			names[lines++] = rows[i].what;
	}
	return lines;
}

static void put_points(FILE *f, const struct picture *p, const char *name)
{
	const struct bench_row *rows;
	double x, y;
	size_t n;

	rows = report_rows(&n);
	for (size_t i = 0; i < n; i++)
		if (!strcmp(rows[i].what, name) && p->takes(&rows[i], &x, &y))
			fprintf(f, "%.0f %.6g\n", x, y);
	fputs("e\n", f);
}

/* In the quotes of gnuplot a quote is two. */
static void put_quoted(FILE *f, const char *text)
{
	putc('\'', f);
	for (; *text; text++) {
		if (*text == '\'')
			putc('\'', f);
		putc(*text, f);
	}
	putc('\'', f);
}

static void put_picture(FILE *f, const struct picture *p)
{
	const char *names[LINES_MOST];
	size_t n = lines_of(p, names);

	if (!n)
		return;
	fprintf(f, "set title '%s'\nset xlabel '%s'\nset ylabel '%s'\n", p->title, p->x_title,
		p->y_title);
	fputs("plot ", f);
	for (size_t i = 0; i < n; i++) {
		fputs(i ? ", '-' with linespoints title " : "'-' with linespoints title ", f);
		put_quoted(f, names[i]);
	}
	putc('\n', f);
	for (size_t i = 0; i < n; i++)
		put_points(f, p, names[i]);
}

static void put_all(FILE *f)
{
	const char *names[LINES_MOST];
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(pictures); i++)
		n += lines_of(&pictures[i], names) > 0;
	fprintf(f, "set terminal svg size 900,%zu noenhanced\n", 500 * n);
	fputs("set output '/dev/stdout'\nset key outside right\nset grid\n"
	      "set logscale x 2\nset logscale y\nset format x '%.0f'\n",
	      f);
	fprintf(f, "set multiplot layout %zu,1\n", n);
	for (size_t i = 0; i < ARRAY_SIZE(pictures); i++)
		put_picture(f, &pictures[i]);
	fputs("unset multiplot\n", f);
}

static bool has_lines(void)
{
	const char *names[LINES_MOST];

	for (size_t i = 0; i < ARRAY_SIZE(pictures); i++)
		if (lines_of(&pictures[i], names))
			return true;
	return false;
}

/* The file is its output, so gnuplot never sees the file's name. */
static _Noreturn void be_gnuplot(int in, int out)
{
	static const char *const argv[] = { "gnuplot", "-", NULL };

	if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0)
		execvp(argv[0], (char *const *)argv);
	_exit(127);
}

static void put_nothing(FILE *f)
{
	fputc('\n', f);
}

/* 127: there is no gnuplot; -1: it failed. */
static int run_gnuplot(int out, void (*put)(FILE *f))
{
	int ends[2], status = -1;
	pid_t pid;
	FILE *f;

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	signal(SIGPIPE, SIG_IGN); /* it may end before it has read everything */
	fflush(stdout);
	pid = fork();
	if (!pid)
		be_gnuplot(ends[0], out);
	close(ends[0]);
	f = fdopen(ends[1], "w");
	if (f && pid > 0)
		put(f);
	if (f)
		fclose(f);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int open_file(const char *file, int flags)
{
	int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);

	if (fd < 0)
		cli_error("--plot: %s: %s", file, strerror(errno));
	return fd;
}

/* A whole run is too long to learn at its end that nobody can draw.  gnuplot with nothing to draw
 * does nothing. */
int plot_check(const char *file, bool measured)
{
	bool is_new = access(file, F_OK) != 0;
	int fd, status;

	if (!measured)
		return cli_usage("--plot: lookup or scale is drawn, and neither is named");
	fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	status = fd < 0 ? -1 : run_gnuplot(fd, put_nothing);
	close(fd);
	if (status) {
		cli_error(status == 127 ? "--plot: gnuplot is not installed"
					: "--plot: gnuplot does not run");
		return EXIT_RUNTIME;
	}
	fd = open_file(file, 0);
	if (fd < 0)
		return EXIT_RUNTIME;
	close(fd);
	if (is_new)
		unlink(file);
	return 0;
}

int plot_rows(const char *file)
{
	int out, status;

	if (!has_lines()) {
		cli_error("--plot: nothing was measured that is drawn (lookup, scale)");
		return EXIT_RUNTIME;
	}
	out = open_file(file, O_TRUNC);
	if (out < 0)
		return EXIT_RUNTIME;
	status = run_gnuplot(out, put_all);
	if (!close(out) && !status)
		return 0;
	cli_error("--plot: gnuplot could not draw %s", file);
	unlink(file);
	return EXIT_RUNTIME;
}
