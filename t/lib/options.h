/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - command lines of tests that take options: what is wrong there ends the program with
 * one line and status 2, before any test has run. */
#ifndef GPC_T_OPTIONS_H
#define GPC_T_OPTIONS_H

#include <ctype.h>
#include <errno.h>
#include <getopt.h>

#include "tap.h"

#define OPTION_HELP                            \
	{                                      \
		"help", no_argument, NULL, 'h' \
	}
#define MOST_SECONDS 4000000

TAP_FN TAP_PRINTF(1, 2) __attribute__((noreturn)) void option_refuse(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	exit(2);
}

/* As getopt_long(); `known` ends with OPTION_HELP, which prints `help`. */
TAP_FN int option_next(int argc, char **argv, const struct option *known, const char *help)
{
	int o = getopt_long(argc, argv, ":h", known, NULL);

	if (o == 'h') {
		printf("Usage: %s [OPTION]...\n%s", program_invocation_short_name, help);
		exit(0);
	}
	if (o == ':')
		option_refuse("%s needs a value", argv[optind - 1]);
	if (o == '?')
		option_refuse("there is no such option: %s (see --help)", argv[optind - 1]);
	if (o == -1 && optind < argc)
		option_refuse("there are options only: %s (see --help)", argv[optind]);
	return o;
}

/* Decimal, or hexadecimal after 0x. */
TAP_FN uint64_t option_number(const char *text, const char *option, uint64_t min, uint64_t max)
{
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(text, &end, text[0] == '0' && tolower(text[1]) == 'x' ? 16 : 10);
	if (!isdigit((unsigned char)*text) || *end)
		option_refuse("--%s %s: not a number", option, text);
	if (errno || n < min || n > max)
		option_refuse("--%s %s: must be %llu to %llu", option, text,
			      (unsigned long long)min, (unsigned long long)max);
	return n;
}

#endif
