/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of a cache, each with its remedy.  Faults that stop all processes come first, then those
 * that stop some, then mere oddities.
 * Tests: t/tools/top-layout.t */
#include "config.h"

#include "tools/inspect/top/top.h"
#include "tools/common/shown.h"

#include <stdio.h>
#include <string.h>

enum { LAG_MANY = 100000, REPLACED_NS = 60, SECTION_LONG_S = 5 };

struct list {
	struct alert *at;
	unsigned n;
};

static void say(struct list *l, enum look look, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void say(struct list *l, enum look look, const char *fmt, ...)
{
	va_list ap;

	if (l->n == TOP_ALERTS)
		return;
	l->at[l->n].look = look;
	va_start(ap, fmt);
	vsnprintf(l->at[l->n].text, sizeof(l->at[l->n].text), fmt, ap);
	va_end(ap);
	l->n++;
}

static void of_writer(const struct top *t, struct list *l)
{
	const struct sample *s = t->now;

	if (!s->info.writer_pid)
		say(l, s->alive ? LOOK_BAD : LOOK_WARN,
		    "no writer: lookups go on, nothing is stored or evicted; "
		    "start: gpcd %s",
		    t->name);
	else if (s->writer_stopped == 1)
		say(l, LOOK_BAD,
		    "the writer, process %d, is stopped: nothing is stored or evicted until it goes on "
		    "(kill -CONT %d)",
		    s->info.writer_pid, s->info.writer_pid);
	else if (sample_same_cache(t->then, s) && s->all.pending && t->then->all.pending &&
		 s->all.commands == t->then->all.commands && s->at_ns - t->then->at_ns > 900000000)
		say(l, LOOK_BAD,
		    "%s commands wait, and the writer, process %d, carries out none: what they ask for is "
		    "held (look below for REFS, RESRVD, SECTION), or it hangs",
		    short_count((double)s->all.pending), s->info.writer_pid);
	if (t->replaced_ns && s->at_ns - t->replaced_ns < REPLACED_NS * UINT64_C(1000000000))
		say(l, LOOK_WARN, "another writer took over %s ago: process %d, generation %u",
		    short_age((double)(s->at_ns - t->replaced_ns) / 1e9), s->info.writer_pid,
		    s->info.writer_generation);
}

static void of_pools(const struct sample *s, struct list *l)
{
	for (uint32_t i = 0; i < s->npools; i++)
		if (!s->pool[i].available && s->pool[i].blocks && s->pool[i].kind <= GPC_RAM)
			say(l, LOOK_BAD,
			    "pool %d (%s): none of %s blocks can be had, all are held or reserved: look "
			    "below for who holds them",
			    s->pool[i].number, shown_kind(s->pool[i].kind),
			    short_count(s->pool[i].blocks));
}

static bool has_mirror(const struct sample *s, const char *device, size_t n)
{
	for (uint32_t i = 0; i < s->nmirrors; i++)
		if (strncmp(s->mirror[i].device, device, n) == 0 && !s->mirror[i].device[n] &&
		    !s->mirror[i].retired)
			return true;
	return false;
}

/* Only while there is a writer, which makes them. */
static void of_mirrors(const struct sample *s, struct list *l)
{
	const char *at = s->info.devices;

	for (size_t n; *at && s->info.writer_pid; at += n + (at[n] == ',')) {
		n = strcspn(at, ",");
		if (n && strncmp(at, "none", n) && !has_mirror(s, at, n))
			say(l, LOOK_BAD, "no mirror on %.*s: the writer's log says why", (int)n,
			    at);
	}
	for (uint32_t i = 0; i < s->nmirrors; i++) {
		const struct gpc_mirror *m = &s->mirror[i];
		uint64_t lag = m->changes > m->flushed ? m->changes - m->flushed : 0;

		if (!m->retired && lag > LAG_MANY)
			say(l, LOOK_WARN, "the mirror on %.32s lags by %s changes", m->device,
			    short_count((double)lag));
	}
}

/* A tier that no process keeps may be one that is not wanted any more; its line says so. */
static void of_tiers(const struct top *top, struct list *l)
{
	const struct sample *s = top->now;

	for (uint32_t i = 0; i < s->ntiers; i++) {
		const struct gpc_tier *t = &s->tier[i];

		if (t->steward >= 0 && t->state == GPC_TIER_STOPPED)
			say(l, LOOK_BAD,
			    "the tier %s is stopped, and all of it is a miss: peer %d keeps it, and does "
			    "not run, or hangs",
			    shown_kind(t->kind), t->steward);
		else if (t->steward >= 0 && t->state != GPC_TIER_UP)
			say(l, LOOK_BAD,
			    "the tier %s is %s, and all of it is a miss: the log of its steward says why",
			    shown_kind(t->kind), shown_tier_state(t->state));
		else if (t->steward >= 0 && tier_overrun(top, i) > 0)
			say(l, LOOK_WARN,
			    "%s blocks a second leave RAM without a copy in the tier %s: more RAM, or a "
			    "faster or larger tier",
			    short_count(tier_overrun(top, i)), shown_kind(t->kind));
	}
}

/* The peer that eviction waits for holds up all others. */
static const struct sample_peer *of_behind(const struct sample *s, struct list *l)
{
	const struct sample_peer *behind = NULL;
	char text[sizeof(l->at->text)];

	for (uint32_t i = 0; i < s->npeers; i++)
		if (sample_is_behind(s->all.dying, &s->peer[i].st,
				     behind ? behind->st.oldest_section_ns : 0))
			behind = &s->peer[i];
	if (!behind)
		return NULL;
	sample_behind_text(&behind->st, behind->stopped, text, sizeof(text));
	say(l, LOOK_BAD, "%s", text);
	return behind;
}

static void of_peers(const struct sample *s, const struct sample_peer *told, struct list *l)
{
	if (s->dead)
		say(l, s->info.writer_pid ? LOOK_WARN : LOOK_BAD,
		    "%d seat%s of processes that are gone%s", s->dead, s->dead == 1 ? "" : "s",
		    s->info.writer_pid
			    ? ", not cleared yet"
			    : ": nobody clears them without a writer (gpc-inspect reap)");
	if (s->alive >= (int)s->info.max_peers)
		say(l, LOOK_WARN, "all %u seats are taken: nobody else can attach",
		    s->info.max_peers);
	for (uint32_t i = 0; i < s->npeers; i++) {
		const struct sample_peer *p = &s->peer[i];

		if (p == told)
			continue;
		if (p->st.alive && p->stopped == 1 && !p->writer)
			say(l, LOOK_WARN,
			    "process %d (%.31s) is stopped; it holds %s references, %s reserved blocks",
			    p->st.pid, p->st.label, short_count((double)p->st.refs),
			    short_count((double)p->st.reserved));
		else if (p->st.oldest_section_ns > SECTION_LONG_S * UINT64_C(1000000000))
			say(l, LOOK_WARN,
			    "process %d (%.31s) has a section open for %s: what is evicted is not free "
			    "before it ends",
			    p->st.pid, p->st.label,
			    short_age((double)p->st.oldest_section_ns / 1e9));
	}
}

static void of_rates(const struct top *t, struct list *l)
{
	struct rates r;

	if (!sample_same_cache(t->then, t->now))
		return;
	sample_rates(t->then, t->now, &r);
	if (r.r[RATE_BAD] > 0)
		say(l, LOOK_BAD,
		    "%s blocks a second had wrong checksums: their bytes in RAM were changed",
		    short_count(r.r[RATE_BAD]));
	if (r.r[RATE_NO_BUCKET] > 0)
		say(l, LOOK_WARN, "%s publishes a second were refused: the table is full",
		    short_count(r.r[RATE_NO_BUCKET]));
	if (r.r[RATE_RING_FULL] > 0)
		say(l, LOOK_WARN,
		    "rings are full %s times a second: the writer is slower than those who ask it",
		    short_count(r.r[RATE_RING_FULL]));
}

unsigned top_alerts(const struct top *t, struct alert ret[TOP_ALERTS])
{
	struct list l = { ret, 0 };
	const struct sample *s = t->now;
	const struct sample_peer *told;

	if (!s->there) {
		say(&l, LOOK_BAD, "%s: %s%s", t->name,
		    t->last && !strcmp(s->state, "no cache") ? "the cache was removed" : s->state,
		    t->last ? "; below is what was seen last" : "");
		return l.n;
	}
	if (s->info.refused && strncmp(s->state, "served", 6) &&
	    strncmp(s->state, "no writer", 9) && strncmp(s->state, "unused", 6) &&
	    strncmp(s->state, "writer", 6))
		say(&l, LOOK_BAD, "no process can attach: %.200s", s->info.why);
	of_writer(t, &l);
	told = of_behind(s, &l);
	of_pools(s, &l);
	of_rates(t, &l);
	of_mirrors(s, &l);
	of_tiers(t, &l);
	of_peers(s, told, &l);
	return l.n;
}
