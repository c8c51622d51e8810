/* SPDX-License-Identifier: Apache-2.0 */
/* A service manager such as systemd: it waits until gpcd is ready, and watches whether it goes on.
 *
 *   gpcd                                       says                           how often
 *   -----------------------------------------  -----------------------------  --------------------
 *   makes memory, opens tiers, waits for a     EXTEND_TIMEOUT_USEC, STATUS    once a second at most
 *   cache or a writer, and is not ready
 *   is ready (process_ready)                   READY=1, STATUS                once
 *   serves, stands by or keeps: a turn of its  WATCHDOG=1                     four times in the
 *   own loop                                                                  manager's interval
 *   reads its options again (reload.c)         RELOADING=1, then READY=1      each time
 *   ends                                       STOPPING=1                     once
 *
 * Only the thread that serves says WATCHDOG=1, between two turns of its loop.  So a process whose
 * writer hangs is silent, even if its other threads work.
 * Tests: t/daemon/manager.t */
#include "config.h"

#include "tools/daemon/daemon.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { EXTEND_S = 60 }; /* no step of long work takes longer */

static uint64_t interval_ns; /* of the watchdog; 0: there is no watchdog */

void manager_start(void)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");

	if (usec && (!pid || strtol(pid, NULL, 10) == (long)getpid()))
		interval_ns = strtoull(usec, NULL, 10) * 1000;
}

void manager_busy(const struct daemon *d, const char *fmt, ...)
{
	static uint64_t next;
	uint64_t now = cli_now_ns();
	char text[256];
	va_list ap;

	if (d->ready || now < next)
		return;
	next = now + UINT64_C(1000000000);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	say_notify("EXTEND_TIMEOUT_USEC=%d000000\nSTATUS=%s", EXTEND_S, text);
}

void manager_alive(void)
{
	static uint64_t next;
	uint64_t now = cli_now_ns();

	if (!interval_ns || now < next)
		return;
	next = now + interval_ns / 4;
	say_notify("WATCHDOG=1");
}

int manager_turn(int most_ms)
{
	uint64_t ms = interval_ns / 4000000;

	if (!interval_ns || ms >= (uint64_t)most_ms)
		return most_ms;
	return ms ? (int)ms : 1;
}

void manager_reloading(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	say_notify("RELOADING=1\nMONOTONIC_USEC=%llu",
		   (unsigned long long)now.tv_sec * 1000000 +
			   (unsigned long long)now.tv_nsec / 1000);
}
