/* SPDX-License-Identifier: Apache-2.0 */
/* rest.c - a tier that cannot sync and cannot be cleared rests, and is tried from time to time
 * (rule B19).
 *
 *   it rests     Nothing is written there, published from there, or acknowledged.  The blocks that it
 *                had are forgotten, here and in the index.  Its file may have everything that was
 *                removed since the last acknowledgement.
 *   a probe      The thread of the feed tries a clear and a sync: 1 s after the failure, then after
 *                twice as long each time, at most 60 s; and once more when the tiers are closed.
 *   it is up     A probe has succeeded: all older blocks belong to an older epoch of the file, and the
 *                new epoch is on the disk.  So everything that is acknowledged or written from then
 *                on comes after all removals that were owed.
 *
 * If this process dies while the tier rests, nothing was acknowledged, and the next steward goes
 * on from `board.durable`.
 * Tests: t/tiers/rest.t */
#include "config.h"

#include "tiers/steward/steward.h"

/* Entries of the index below RAM would only be misses.  Without a writer it is tried again.  If
 * its pool has gone, nothing is left of it, and another pool may have the number. */
static bool is_emptied(struct lower *d)
{
	if (!d->emptied && !returns_keeps(d->t->c, d->pool))
		d->emptied = true;
	if (!d->emptied)
		d->emptied = gpc_pool_clear(d->t->c, (int)d->pool, 0, 0, 0) >= 0;
	return d->emptied;
}

void rest_lose_all(struct lower *d)
{
	d->emptied = false;
	is_emptied(d);
}

void rest_begin(struct lower *d, const char *what, int err)
{
	if (load_relaxed(&d->broken))
		return;
	store_relaxed(&d->broken, 1);
	d->pause_ns = REST_NS;
	d->probe_ns = clock_ns() + d->pause_ns;
	store_relaxed(&d->shown->state, GPC_TIER_DOWN);
	log_say(&d->t->c->log, LOG_ERR,
		"tier %s of %s: %s: %s; it rests: nothing is written there, and no removal is "
		"acknowledged, until it can be cleared, which is tried in 1 s and then at intervals of up to 60 s",
		d->name, d->t->c->seg.name, what, gpc_strerror(err));
	slots_forget_keys(d);
	restore_drop(d, 0);
	rest_lose_all(d);
}

/* No batch is under way meanwhile, since its blocks would come after the clear. */
static int probe(struct lower *d)
{
	int err;

	pthread_mutex_lock(&d->t->writing);
	slots_forget_keys(d);
	err = disk_clear(d->file);
	if (err >= 0)
		err = disk_sync(d->file);
	if (err >= 0)
		store_relaxed(&d->broken, 0);
	pthread_mutex_unlock(&d->t->writing);
	return err;
}

bool rest_is_over(struct lower *d, bool ends)
{
	int err;

	if (!load_relaxed(&d->broken) || d->gone)
		return true;
	if (!ends && (!is_emptied(d) || clock_ns() < d->probe_ns))
		return false;
	err = probe(d);
	if (err < 0) {
		d->pause_ns = rest_longer(d->pause_ns);
		d->probe_ns = clock_ns() + d->pause_ns;
		return false;
	}
	store_relaxed(&d->shown->state, GPC_TIER_UP);
	log_say(&d->t->c->log, LOG_NOTICE, "tier %s of %s is up again, and empty", d->name,
		d->t->c->seg.name);
	return true;
}
