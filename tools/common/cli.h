/* SPDX-License-Identifier: Apache-2.0 */
/* cli.h - what the tools have in common: messages, numbers, the way out. */
#ifndef GPC_TOOLS_CLI_H
#define GPC_TOOLS_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

#include "gpc_look.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

enum { EXIT_RUNTIME = 1, EXIT_USAGE = 2 };

/* The name in front of every message; call it first.  Where a standard stream is closed,
 * /dev/null stands from then on. */
void cli_init(const char *tool);
const char *cli_tool(void);

/* Messages of this file, mistakes of options among them, go there and not to stderr; NULL: to stderr. */
void cli_divert(void (*to)(const char *text));
/* "tool: message" on stderr. */
void cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same with the library's sentence for the call that failed with err. */
void cli_gpc_error(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* For a cache that cannot be had: its name and the library's sentence, which has the name
 * in it where there is no such cache. */
void cli_cache_error(int err, const char *name);
/* The part of a sentence of the library that is to stand behind "NAME: ": some begin with that. */
const char *cli_behind_name(const char *text, const char *name);
/* The library's sentence alone. */
const char *cli_gpc_text(int err);
/* Message, then where to find help; returns EXIT_USAGE. */
int cli_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Until the next call: what is wrong is wrong in that line of a file, where options have no "--".
 * file: NULL for the command line. */
void cli_at(const char *file, unsigned line);
/* The next option of the command line that is the tool's own, -h included; 0: no more; -1: -V or
 * what is no option has been answered, and *ret_status is the exit status. */
struct option;
int cli_option(int argc, char **argv, const struct option *options, int *ret_status);

/* What --help says.  Each tool has one table: the defaults stand there, and nowhere else in it. */
struct cli_help {
	const char *option; /* "--dir DIR"; NULL: text is a line of its own */
	const char *text;
	const char *fallback; /* what holds where the option is not given; NULL: nothing */
};
/* Prints the table on at most 80 columns; returns the exit status. */
int cli_show_help(const struct cli_help *rows, size_t n);
int cli_version(void);
/* Flush stdout; a full disk or a closed pipe turns success into EXIT_RUNTIME. */
int cli_finish(int status);

/* A whole number with an optional suffix k, M or G (powers of 1024), min <= it <= max.
 * Says what is wrong with the option and returns false otherwise. */
bool cli_count(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *ret);
/* At most `room` bytes from pairs of hex digits; returns their number or -1. */
int cli_hex(const char *text, uint8_t *ret, size_t room);

/* none, host, cuda:N or GPU- and a UUID, whole or its beginning.  Says what is wrong with
 * --device and returns false otherwise. */
bool cli_device(const char *text);

/* A name the library accepts: 1 to 64 bytes, no '/', not starting with '.'. */
bool cli_name(const char *name);
/* EXIT_USAGE, for one that is not. */
int cli_bad_name(const char *name);

/* Is the process behind that seat stopped?  1, 0, or -1: it cannot be told, since it is in
 * another PID namespace, or /proc does not show it. */
struct gpc_stats;
int cli_stopped(const struct gpc_stats *st);

/* Monotonic clock. */
uint64_t cli_now_ns(void);
void cli_sleep_ms(unsigned ms);

#endif
