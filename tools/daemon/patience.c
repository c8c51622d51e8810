/* SPDX-License-Identifier: Apache-2.0 */
/* A wait for another process's work: its cache, a seat there, an answer.
 *
 * The log says at once which thing is missing, and says it again at SIGUSR1.  A service manager is
 * told once a second, by STATUS and by a request for more time.  READY=1 is not sent meanwhile,
 * since units ordered after this one would expect a cache that is not there.  So such a unit is
 * "activating" for as long as the wait takes, and no limit of its start ends it.
 * Tests: t/daemon/joins.t */
#include "config.h"

#include "tools/daemon/daemon.h"

#include <poll.h>
#include <stdio.h>

struct patience patience_for(const char *who, int most_ms)
{
	struct patience p = { .who = who, .most_ms = most_ms };

	if (most_ms)
		p.until_ns = cli_now_ns() + (uint64_t)most_ms * UINT64_C(1000000);
	return p;
}

void patience_pause(int ms)
{
	sigset_t ends, before;
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGHUP);
	sigaddset(&ends, SIGUSR1);
	sigprocmask(SIG_BLOCK, &ends, &before);
	if (!process_stopping && !process_asked)
		ppoll(NULL, 0, &t, &before);
	sigprocmask(SIG_SETMASK, &before, NULL);
}

static void tell(const struct daemon *d, struct patience *p, int err, const char *text,
		 const char *remedy)
{
	char most[32] = "";

	if (p->most_ms)
		snprintf(most, sizeof(most), " up to %d seconds", p->most_ms / 1000);
	if (p->said != err)
		say(LOG_WARNING, "%s: waiting%s: %s%s", d->name, most, text, remedy);
	p->said = err;
	if (process_asked)
		say_asked("%s: %s that waits: %s", d->name, p->who, text);
	process_asked = 0;
	manager_busy(d, "waiting: %s", text);
}

bool patience_lasts(const struct daemon *d, struct patience *p, int err, const char *text,
		    const char *remedy, int pause_ms)
{
	if (process_stopping || (p->until_ns && cli_now_ns() >= p->until_ns))
		return false;
	tell(d, p, err, text, remedy);
	patience_pause(pause_ms);
	return !process_stopping;
}
