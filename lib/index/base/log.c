/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - messages of the library, for those who want them.
 * Tests: t/index/err-log.t */
#include "index/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "index/base/text.h"

#define LOG_TEXT 512

static const char *const level_names[] = { "emerg",   "alert",  "crit", "err",
					   "warning", "notice", "info", "debug" };

/* A user who sets the variable wants to see messages, so an unknown word means all levels. */
static int level_from(const char *word)
{
	size_t i;

	if (!word || !*word)
		return -1;
	if (word[0] >= '0' && word[0] <= '7' && !word[1])
		return word[0] - '0';
	for (i = 0; i < ARRAY_SIZE(level_names); i++)
		if (!strcmp(word, level_names[i]))
			return (int)i;
	return LOG_DEBUG;
}

void log_init(struct log *l, void (*call)(void *, int, const char *), void *arg)
{
	l->call = call;
	l->arg = arg;
	l->level = level_from(secure_getenv("GPC_LOG"));
}

/* One write for a line, so that lines of several processes do not mix. */
static void say_to_stderr(int level, const char *text)
{
	char line[LOG_TEXT + 64];
	int n = snprintf(line, sizeof(line), "gpc[%d] %s: %s\n", (int)getpid(),
			 level_names[level & 7], text);

	if (n > 0 && write(STDERR_FILENO, line, MIN((size_t)n, sizeof(line) - 1)) < 0)
		return; /* stderr is gone, so nobody would read it */
}

void log_say(const struct log *l, int level, const char *fmt, ...)
{
	int saved = errno;
	char raw[LOG_TEXT], text[LOG_TEXT];
	va_list ap;

	if (!l->call && level > l->level)
		return;
	va_start(ap, fmt);
	vsnprintf(raw, sizeof(raw), fmt, ap);
	va_end(ap);
	text_clean(text, sizeof(text), raw); /* a dead peer's label may be in it */
	if (l->call)
		l->call(l->arg, level, text);
	if (level <= l->level)
		say_to_stderr(level, text);
	errno = saved;
}
