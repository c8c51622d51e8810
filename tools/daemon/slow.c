/* SPDX-License-Identifier: Apache-2.0 */
/* Logs calls that have waited long for the writer, in the gpcd that serves.
 * Tests: t/tools/slow.t */
#include "config.h"

#include "gpc_look.h"
#include "tools/daemon/daemon.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 64, MOST_LINES = 10 };

static void say_one(const struct daemon *d, const struct gpc_slow *s)
{
	char what[64] = "its commands";

	if (*s->command)
		snprintf(what, sizeof(what), "%s of %u block%s", s->command, s->blocks,
			 s->blocks == 1 ? "" : "s");
	say(LOG_NOTICE, "%s: peer %d, process %d, has waited %.0f ms for %s%s", d->name, s->peer,
	    s->pid, (double)s->took_ns / 1e6, what,
	    !s->error                ? ""
	    : s->error == -ETIMEDOUT ? ", and its time was up"
				     : ", and gave up");
}

void say_slow(struct daemon *d, gpc *c)
{
	struct gpc_slow batch[BATCH];
	uint64_t now = cli_now_ns(), cursor = 0, told = d->slow_ns, newest = told;
	unsigned n_told = 0;
	int n;

	if (now < d->next_slow)
		return;
	d->next_slow = now + UINT64_C(1000000000);
	if (!told) { /* it begins to serve; `gpc-inspect slow` has the calls before that */
		d->slow_ns = now;
		return;
	}
	while ((n = gpc_slow_walk(c, &cursor, batch, BATCH)) > 0)
		for (int i = 0; i < n; i++) {
			uint64_t ended = batch[i].ended_ns;

			/* any attached process may write there */
			if (ended <= told || ended > cli_now_ns())
				continue;
			newest = ended > newest ? ended : newest;
			if (++n_told <= MOST_LINES)
				say_one(d, &batch[i]);
		}
	d->slow_ns = newest;
	if (n_told > MOST_LINES)
		say(LOG_NOTICE, "%s: and %u more calls have waited long: gpc-inspect slow %s",
		    d->name, n_told - MOST_LINES, d->name);
}
