/* SPDX-License-Identifier: Apache-2.0 */
/* log.h - messages of the library.  The library prints nothing by itself: messages go to a
 * callback of the options, and, for people, to stderr if the environment variable GPC_LOG is set
 * (a syslog level, "debug" or 0..7). */
#ifndef GPC_LOG_H
#define GPC_LOG_H

#include <syslog.h>
#include "index/base/base.h"

struct log {
	void (*call)(void *arg, int level, const char *text);
	void *arg;
	int level; /* of GPC_LOG; -1 = not set */
};

void log_init(struct log *l, void (*call)(void *, int, const char *), void *arg);
void log_say(const struct log *l, int level, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
