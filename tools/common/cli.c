/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the tools share: cli.h.
 * Tests: t/tools/interrupt.t t/pages/tools.t t/daemon/config.t t/daemon/defaults.t
 *   t/daemon/options.t t/daemon/reload.t */
#include "config.h"

#include "tools/common/cli.h"

#include "gpc.h"
#include "tools/common/shown.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *tool = "gpc";
static void (*diverted)(const char *text);

/* A file that a tool opens must not take the place of a closed stream.  The descriptor that stands
 * there refuses the stream's use, as the closed one did, so a result that goes nowhere is still a
 * failure. */
static void fill_streams(void)
{
	int fd;

	for (fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
		    open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0)
			return;
}

void cli_init(const char *name)
{
	tool = name;
	fill_streams();
	setlocale(LC_CTYPE, ""); /* sets which characters the terminal prints */
}

const char *cli_tool(void)
{
	return tool;
}

const char *cli_behind_name(const char *text, const char *name)
{
	size_t n = strlen(name);

	return n && !strncmp(text, name, n) && !strncmp(text + n, ": ", 2) ? text + n + 2 : text;
}

static void say(const char *detail, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));

/* One write for the whole line, since several processes may share this stderr.  Its quotations may
 * come from anywhere, so a terminal gets no control characters. */
static void say(const char *detail, const char *fmt, va_list ap)
{
	char line[2048], clean[2048];
	size_t used;

	vsnprintf(line, sizeof(line), fmt, ap);
	used = strlen(line);
	if (detail)
		snprintf(line + used, sizeof(line) - used, ": %s", cli_behind_name(detail, line));
	if (diverted) {
		diverted(line);
		return;
	}
	shown_text(clean, sizeof(clean), line);
	fprintf(stderr, "%s: %s\n", tool, clean);
}

void cli_divert(void (*to)(const char *text))
{
	diverted = to;
}

void cli_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(NULL, fmt, ap);
	va_end(ap);
}

const char *cli_gpc_text(int err)
{
	const char *text = gpc_last_error();

	return text && *text ? text : gpc_strerror(err);
}

void cli_gpc_error(int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(cli_gpc_text(err), fmt, ap);
	va_end(ap);
}

void cli_cache_error(int err, const char *name)
{
	const char *text = cli_gpc_text(err);

	if (err == -ENOENT)
		cli_error(
			"%s%s", text,
			strncmp(text, "there is no cache", 17)
				? ""
				: "; 'gpc-inspect list' shows the caches that exist, --dir looks elsewhere");
	else
		cli_gpc_error(err, "%s", name);
}

static const char *at_file;
static unsigned at_line;

void cli_at(const char *file, unsigned line)
{
	at_file = file;
	at_line = line;
}

static struct {
	const char *file;
	unsigned (*find)(const void *arg, const char *option, size_t len);
	const void *arg;
} values;

void cli_values(const char *file, unsigned (*find)(const void *arg, const char *option, size_t len),
		const void *arg)
{
	values.file = file;
	values.find = find;
	values.arg = arg;
}

/* The line of the first option in the text that has its value in the file; 0: there is none. */
static unsigned value_line(const char *text, const char **ret_option)
{
	unsigned line = 0;

	if (!values.find)
		return 0;
	for (const char *at = text; !line && (at = strstr(at, "--")); at += 2) {
		size_t len = strspn(at + 2, "abcdefghijklmnopqrstuvwxyz-");

		*ret_option = at;
		line = len ? values.find(values.arg, at + 2, len) : 0;
	}
	return line;
}

const char *cli_value_at(const char *text, char *ret, size_t room)
{
	const char *option;
	unsigned line = value_line(text, &option);

	ret[0] = 0;
	if (line)
		snprintf(ret, room, " (%s:%u)", values.file, line);
	return ret;
}

static void say_mistake(const char *text)
{
	const char *bare = text + 2 * !strncmp(text, "--", 2), *option = text;
	unsigned line = at_file ? at_line : value_line(text, &option);

	if (at_file)
		cli_error("%s:%u: %s", at_file, line, bare);
	else if (line && option == text)
		cli_error("%s:%u: %s", values.file, line, bare);
	else if (line)
		cli_error("%s (%.*s: %s:%u)", text,
			  (int)strspn(option, "abcdefghijklmnopqrstuvwxyz-"), option, values.file,
			  line);
	else
		cli_error("%s", text);
}

int cli_usage(const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	say_mistake(text);
	if (!diverted)
		fprintf(stderr, "Try '%s --help'.\n", tool);
	return EXIT_USAGE;
}

/* The number of options that begin as this long one does, without its '='.  *ret_alone: one of
 * them takes no value, and has the letter of optopt. */
static unsigned like_option(const struct option *options, const char *arg, bool *ret_alone)
{
	size_t len = strcspn(arg + 2, "=");
	unsigned n = 0;

	*ret_alone = false;
	for (; options->name; options++) {
		if (strncmp(options->name, arg + 2, len))
			continue;
		n++;
		if (options->has_arg == no_argument && options->val == optopt)
			*ret_alone = true;
	}
	return n;
}

/* The long options that begin as this one does, as many as there is room for. */
static void name_options(char *ret, size_t room, const struct option *options, const char *arg)
{
	size_t len = strcspn(arg + 2, "="), used = 0;

	ret[0] = 0;
	for (; options->name && used < room; options++)
		if (!strncmp(options->name, arg + 2, len))
			used += (size_t)snprintf(ret + used, room - used, "%s--%s",
						 used ? ", " : "", options->name);
}

/* For an option that getopt_long could not take: opt is '?' or ':'.  optopt is the letter of a
 * short option or of a known long one, and 0 otherwise. */
static int bad_option(int opt, char **argv, const struct option *options)
{
	const char *arg = argv[optind - 1];
	bool is_long = strncmp(arg, "--", 2) == 0, alone = false;
	unsigned n = is_long ? like_option(options, arg, &alone) : 0;
	char names[512];

	if (opt == ':')
		return cli_usage("option '%s' needs a value", arg);
	if (optopt && alone && strchr(arg, '='))
		return cli_usage("option '%.*s' takes no value", (int)strcspn(arg, "="), arg);
	if (optopt)
		return cli_usage("there is no option '-%c'", optopt);
	if (n > 1) {
		name_options(names, sizeof(names), options, arg);
		return cli_usage("option '%.*s' is ambiguous: it may be %s", (int)strcspn(arg, "="),
				 arg, names);
	}
	return cli_usage("option '%s' is unknown", arg);
}

int cli_version(void)
{
	uint32_t v = gpc_version();

	printf("%s %s (libgpc %u.%u)\n", tool, PACKAGE_VERSION, v >> 16, v & 0xffff);
	return cli_finish(0);
}

int cli_finish(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	cli_error("cannot write the output: %s", strerror(errno));
	return status ? status : EXIT_RUNTIME;
}

int cli_option(int argc, char **argv, const struct option *options, int *ret_status)
{
	int opt = getopt_long(argc, argv, ":hV", options, NULL);

	switch (opt) {
	case -1:
		return 0;
	case 'V':
		*ret_status = cli_version();
		return -1;
	case '?':
	case ':':
		*ret_status = bad_option(opt, argv, options);
		return -1;
	}
	return opt;
}

/* ---- help ---- */

enum { HELP_COLUMNS = 80 };

/* From column `at` on, broken at blanks. */
static void put_help(const char *text, unsigned at)
{
	while (shown_width(text) > HELP_COLUMNS - at) {
		size_t n = shown_line(text, HELP_COLUMNS - at);

		printf("%.*s\n%*s", (int)n, text, (int)at, "");
		text += n + (text[n] == ' ');
	}
	puts(text);
}

int cli_show_help(const struct cli_help *rows, size_t n)
{
	unsigned width = 0;
	char text[512];

	for (size_t i = 0; i < n; i++)
		if (rows[i].option && strlen(rows[i].option) > width)
			width = (unsigned)strlen(rows[i].option);
	for (size_t i = 0; i < n; i++) {
		if (!rows[i].option) {
			puts(rows[i].text);
			continue;
		}
		snprintf(text, sizeof(text), "%s%s%s%s", rows[i].text,
			 rows[i].fallback ? " (default " : "",
			 rows[i].fallback ? rows[i].fallback : "", rows[i].fallback ? ")" : "");
		printf("  %-*s  ", (int)width, rows[i].option);
		put_help(text, width + 4);
	}
	return cli_finish(0);
}

/* ---- values ---- */

static unsigned suffix_shift(const char *s)
{
	static const struct {
		char c;
		unsigned shift;
	} suffixes[] = {
		{ 'k', 10 }, { 'K', 10 }, { 'M', 20 }, { 'G', 30 }, { 'T', 40 },
	};

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (s[0] == suffixes[i].c && !s[1])
			return suffixes[i].shift;
	return UINT_MAX;
}

bool cli_count(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
	unsigned shift = 0;
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || (*end && (shift = suffix_shift(end)) == UINT_MAX)) {
		cli_usage("--%s: '%s' is not a number: %llu to %llu, with k, M, G or T for powers "
			  "of 1024",
			  option, text, (unsigned long long)min, (unsigned long long)max);
		return false;
	}
	if (errno || v > UINT64_MAX >> shift || v << shift < min || v << shift > max) {
		cli_usage("--%s: %s is out of range (%llu to %llu)", option, text,
			  (unsigned long long)min, (unsigned long long)max);
		return false;
	}
	*ret = (uint64_t)v << shift;
	return true;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int cli_hex(const char *text, uint8_t *ret, size_t room)
{
	size_t n = 0;

	for (; text[0]; text += 2, n++) {
		int high = hex_digit(text[0]);
		int low = high < 0 ? -1 : hex_digit(text[1]);

		if (low < 0 || n == room)
			return -1;
		ret[n] = (uint8_t)(high << 4 | low);
	}
	return (int)n;
}

/* A UUID in the driver's form: hex digits in groups of 8, 4, 4, 4 and 12. */
static bool is_uuid(const char *text)
{
	static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
	size_t i;

	for (i = 0; text[i]; i++)
		if (i >= sizeof(form) - 1 ||
		    !strchr(form[i] == '-' ? "-" : "0123456789abcdef", text[i]))
			return false;
	return i > 0;
}

bool cli_device(const char *text)
{
	if (strcmp(text, "none") == 0 || strcmp(text, "host") == 0)
		return true;
	if (strncmp(text, "cuda:", 5) == 0 && text[5] && !text[5 + strspn(text + 5, "0123456789")])
		return true;
	if (strncmp(text, "GPU-", 4) == 0 && is_uuid(text + 4))
		return true;
	cli_usage("--device: '%s' is not none, host, cuda:N, or GPU- and a UUID or its beginning",
		  text);
	return false;
}

bool cli_name(const char *name)
{
	size_t len = strnlen(name, GPC_MAX_NAME + 1);

	return len && len <= GPC_MAX_NAME && name[0] != '.' && !strchr(name, '/');
}

int cli_bad_name(const char *name)
{
	return cli_usage(
		"'%s' cannot name a cache: a name has 1 to %d bytes, no '/', and no '.' first",
		name, GPC_MAX_NAME);
}

/* Only if the number is one of our PID namespace; in another it is somebody else's. */
int cli_stopped(const struct gpc_stats *st)
{
	char path[64], text[512];
	const char *after;
	size_t n;
	FILE *f;

	if (!st->alive || !st->here)
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)st->pid);
	f = fopen(path, "re");
	if (!f)
		return -1;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = 0;
	after = strrchr(text, ')'); /* the name before it may contain anything */
	if (!after || strncmp(after, ") ", 2))
		return -1;
	return after[2] == 'T' || after[2] == 't';
}

uint64_t cli_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

void cli_sleep_ms(unsigned ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}
