/* SPDX-License-Identifier: Apache-2.0 */
/* say.c - logs the damage that a takeover found, and the blocks that were lost by it.
 *
 * A death between two stores leaves one entry without its block, or one block without its entry;
 * entries of DYING blocks; entries twice; spare flags; and reservations that no peer knows.  The
 * log has none of these.  If a parent was on its way to RAM, and the process that copied it dies,
 * the children lose this parent.  That is no damage, but the children are gone, so the log reports
 * them.
 * Tests: t/index/takeover-says.t */
#include "config.h"

#include "index/takeover/takeover.h"

static void say_lost(struct writer *w, const struct damage *d)
{
	const struct log *log = &w->c->log;

	if (d->bad)
		log_say(log, LOG_WARNING,
			"takeover of %s: dropped %u blocks: the records of %u are damaged "
			"(wrong checksum), the others are their descendants",
			w->seg.name, d->bad_lost, d->bad);
	if (d->orphans)
		log_say(log, LOG_NOTICE,
			"takeover of %s: dropped %u blocks: the parents of %u are lost, the "
			"others are their descendants",
			w->seg.name, d->orphans_lost, d->orphans);
}

void takeover_say(struct writer *w, const struct damage *d)
{
	const struct log *log = &w->c->log;

	say_lost(w, d);
	if (d->states)
		log_say(log, LOG_WARNING,
			"takeover of %s: freed %u blocks: their records were damaged (no such "
			"state, owner or source)",
			w->seg.name, d->states);
	if (d->entries || d->halves > 1)
		log_say(log, LOG_WARNING,
			"takeover of %s: wiped %u entries of the table: they named no block "
			"that has their key",
			w->seg.name, d->entries + d->halves);
	if (d->flags)
		log_say(log, LOG_WARNING,
			"takeover of %s: set %u overflow flags that were missing: keys behind "
			"them were not found",
			w->seg.name, d->flags);
	if (d->missing > 1)
		log_say(log, LOG_WARNING,
			"takeover of %s: %u blocks had no entry in the table: each gets one",
			w->seg.name, d->missing);
}

void takeover_say_full(struct writer *w, uint32_t blocks)
{
	if (blocks)
		log_say(&w->c->log, LOG_WARNING,
			"takeover of %s: dropped %u blocks that had no entry: the table has no "
			"room for them",
			w->seg.name, blocks);
}
