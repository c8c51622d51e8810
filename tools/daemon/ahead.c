/* SPDX-License-Identifier: Apache-2.0 */
/* The work of a keeper between two looks at its pool: it spills ahead, one transfer after the
 * other.
 *
 * The pause grows while nothing is due or no transfer succeeds.  A block whose parent is not in
 * the target tier is refused each time, so copying it again at once would only heat the machine.
 * Tests: t/daemon/ahead.t */
#include "config.h"

#include "tools/daemon/daemon.h"

#include <errno.h>

enum {
	CALL_MS = 200, /* a signal waits this long at most */
	PAUSE_MS = 1,
	PAUSE_MOST_MS = 64,
};

/* Logs no error that passes by itself. */
static void tell(struct ahead *a, const struct daemon *d, int err)
{
	if (err == a->told || err == -ENOTCONN || err == -ETIMEDOUT || err == -EAGAIN ||
	    err == -EINTR || err == -ENOSPC || err == -EALREADY)
		return;
	say(LOG_WARNING, "%s: pool %d: cannot spill ahead: %s", d->name, a->pool,
	    cli_gpc_text(err));
	a->told = err;
}

static int longer(struct ahead *a)
{
	int pause = a->pause_ms < PAUSE_MS ? PAUSE_MS : a->pause_ms;

	a->pause_ms = pause * 2 < PAUSE_MOST_MS ? pause * 2 : PAUSE_MOST_MS;
	return pause;
}

/* Has the writer committed a block of the transfer? */
static bool has_come(gpc *c, gpc_transfer t)
{
	int results[GPC_TRANSFER_BLOCKS],
		n = gpc_transfer_results(c, t, results, GPC_TRANSFER_BLOCKS);

	for (int i = 0; i < n; i++)
		if (!results[i])
			return true;
	return false;
}

/* Has the last step's transfer ended?  As long as that is not known, the next step asks again. */
static bool has_ended(struct ahead *a, const struct daemon *d, gpc *c)
{
	int r = a->transfer ? gpc_transfer_wait(c, a->transfer, CALL_MS) : 0;

	if (r == -ETIMEDOUT || r == -ENOTCONN || r == -EAGAIN || r == -EINTR)
		return false;
	if (r < 0)
		tell(a, d, r);
	a->vain = a->transfer && (r < 0 || !has_come(c, a->transfer));
	if (a->transfer && !a->vain)
		a->pause_ms = a->told = 0;
	a->transfer = 0;
	return true;
}

int ahead_step(struct ahead *a, const struct daemon *d, gpc *c)
{
	int n;

	if (!has_ended(a, d, c))
		return longer(a);
	n = gpc_spill_ahead(c, a->pool, NULL, CALL_MS, &a->transfer);
	if (n < 0) {
		a->transfer = 0;
		tell(a, d, n);
		return longer(a);
	}
	return n && !a->vain ? 0 : longer(a);
}
