/* SPDX-License-Identifier: Apache-2.0 */
/* cli.h - functions that the tools share: messages, numbers, the end. */
#ifndef GPC_TOOLS_CLI_H
#define GPC_TOOLS_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

#include "gpc_look.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

enum { EXIT_RUNTIME = 1, EXIT_USAGE = 2 };

/* The name in front of every message; it is called first.  From then on a closed standard stream
 * is /dev/null. */
void cli_init(const char *tool);
const char *cli_tool(void);

/* Messages of this file, also about wrong options, go there and not to stderr; NULL: to stderr. */
void cli_divert(void (*to)(const char *text));
/* "tool: message" on stderr. */
void cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same with the library's sentence for the call that failed with err. */
void cli_gpc_error(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* For a cache that cannot be opened: its name and the library's sentence.  If there is no such
 * cache, the sentence has the name already. */
void cli_cache_error(int err, const char *name);
/* The part of a library's sentence that follows "NAME: ", since some sentences begin with that. */
const char *cli_behind_name(const char *text, const char *name);
/* The library's sentence alone. */
const char *cli_gpc_text(int err);
/* Message, then where to find help; returns EXIT_USAGE. */
int cli_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Until the next call, mistakes are in that line of a file, where options have no "--".  file:
 * NULL for the command line. */
void cli_at(const char *file, unsigned line);
/* Until the next call, mistakes that name options as "--OPTION" may be about values of a file: find
 * says of an option in which line it is there, 0: it is not there.  find NULL: no such file. */
void cli_values(const char *file, unsigned (*find)(const void *arg, const char *option, size_t len),
		const void *arg);
/* " (FILE:LINE)" for the first such option in the text, or nothing, in ret. */
const char *cli_value_at(const char *text, char *ret, size_t room);
/* The tool's next own option on the command line, -h included.  0: there is none.  -1: -V or a
 * word that is no option has been answered, and *ret_status is the exit status. */
struct option;
int cli_option(int argc, char **argv, const struct option *options, int *ret_status);

/* The text of --help.  Each tool has one table, and the defaults are in it and nowhere else. */
struct cli_help {
	const char *option; /* "--dir DIR"; NULL: text is a line of its own */
	const char *text;
	const char *fallback; /* the value without the option; NULL: none */
};
/* Prints the table on at most 80 columns; returns the exit status. */
int cli_show_help(const struct cli_help *rows, size_t n);
int cli_version(void);
/* Flush stdout; a full disk or a closed pipe turns success into EXIT_RUNTIME. */
int cli_finish(int status);

/* A whole number with an optional suffix k, M, G or T (powers of 1024), min <= it <= max.
 * Says what is wrong with the option and returns false otherwise. */
bool cli_count(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *ret);
/* At most `room` bytes from pairs of hex digits; returns their number or -1. */
int cli_hex(const char *text, uint8_t *ret, size_t room);

/* none, host, cuda:N or GPU- and a UUID, whole or its beginning.  Says what is wrong with
 * --device and returns false otherwise. */
bool cli_device(const char *text);

/* A name that the library accepts: 1 to 64 bytes, without '/', not starting with '.'. */
bool cli_name(const char *name);
/* EXIT_USAGE, for a name that is not accepted. */
int cli_bad_name(const char *name);

/* Is the process of that seat stopped?  1, 0; or -1 if that is unknown, since the process is in
 * another PID namespace or /proc does not show it. */
struct gpc_stats;
int cli_stopped(const struct gpc_stats *st);

/* Monotonic clock. */
uint64_t cli_now_ns(void);
void cli_sleep_ms(unsigned ms);

#endif
