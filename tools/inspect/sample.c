/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers that follow from two looks.
 * Tests: t/tools/behind.t t/tools/top-layout.t */
#include "config.h"

#include "tools/inspect/sample.h"

#include <string.h>

static const struct {
	const char *name;
	size_t at;
} counters[RATES] = {
#define COUNTER(i, f) [i] = { #f, offsetof(struct gpc_stats, f) }
	COUNTER(RATE_LOOKUPS, lookups),
	COUNTER(RATE_HIT_VRAM, hit_vram),
	COUNTER(RATE_HIT_RAM, hit_ram),
	COUNTER(RATE_MISS, miss),
	COUNTER(RATE_PUBLISHED, published),
	COUNTER(RATE_EVICTED, evicted),
	COUNTER(RATE_DROPPED, dropped),
	COUNTER(RATE_DEMOTED, demoted),
	COUNTER(RATE_PROMOTED, promoted),
	COUNTER(RATE_COMMANDS, commands),
	COUNTER(RATE_FETCHED, fetched),
	COUNTER(RATE_SPILLED, spilled),
	COUNTER(RATE_FETCHED_BYTES, fetched_bytes),
	COUNTER(RATE_SPILLED_BYTES, spilled_bytes),
	COUNTER(RATE_RING_FULL, ring_full),
	COUNTER(RATE_BAD, bad),
	COUNTER(RATE_NO_BUCKET, no_bucket),
	COUNTER(RATE_STALE_REFS, stale_refs),
#undef COUNTER
};

const char *sample_rate_name(enum rate i)
{
	return counters[i].name;
}

uint64_t sample_counter(const struct gpc_stats *st, enum rate i)
{
	uint64_t v;

	memcpy(&v, (const char *)st + counters[i].at, sizeof(v));
	return v;
}

bool sample_same_cache(const struct sample *then, const struct sample *now)
{
	return then && then->there && now->there && then->info.created_ns == now->info.created_ns;
}

/* A counter that fell belongs to another life of the seat or cache. */
static void between(const struct gpc_stats *then, const struct gpc_stats *now, double seconds,
		    struct rates *ret)
{
	ret->seconds = seconds > 0 ? seconds : 0;
	for (int i = 0; i < RATES; i++) {
		uint64_t a = then ? sample_counter(then, (enum rate)i) : 0;
		uint64_t b = sample_counter(now, (enum rate)i);

		ret->r[i] = ret->seconds > 0 && b > a ? (double)(b - a) / seconds : 0;
	}
}

void sample_rates(const struct sample *then, const struct sample *now, struct rates *ret)
{
	*ret = (struct rates){ 0 };
	if (!now->there)
		return;
	if (sample_same_cache(then, now))
		between(&then->all, &now->all, (double)(now->at_ns - then->at_ns) / 1e9, ret);
	else if (now->wall_ns > now->info.created_ns)
		between(NULL, &now->all, (double)(now->wall_ns - now->info.created_ns) / 1e9, ret);
}

void sample_peer_rates(const struct sample *then, const struct sample *now,
		       const struct sample_peer *p, struct rates *ret)
{
	*ret = (struct rates){ 0 };
	if (!sample_same_cache(then, now))
		return;
	for (uint32_t i = 0; i < then->npeers; i++) {
		const struct sample_peer *q = &then->peer[i];

		if (q->seat == p->seat && q->st.pid == p->st.pid && q->st.lookups <= p->st.lookups)
			between(&q->st, &p->st, (double)(now->at_ns - then->at_ns) / 1e9, ret);
	}
}

double sample_share(const struct rates *r, enum rate a, enum rate b)
{
	double asked = r->r[RATE_HIT_VRAM] + r->r[RATE_HIT_RAM] + r->r[RATE_MISS];
	double found = r->r[a] + (a == b ? 0 : r->r[b]);

	return asked > 0 ? found / asked : -1;
}

double sample_load(const struct sample *then, const struct sample *now)
{
	if (!sample_same_cache(then, now) || !then->writer_cpu_ns || !now->writer_cpu_ns ||
	    then->info.writer_pid != now->info.writer_pid || now->at_ns <= then->at_ns ||
	    now->writer_cpu_ns < then->writer_cpu_ns)
		return -1;
	return (double)(now->writer_cpu_ns - then->writer_cpu_ns) /
	       (double)(now->at_ns - then->at_ns);
}

/* ---- the process that eviction waits for ---- */

enum { LONG_NS = 1000000000 }; /* a section that is open for longer is reported */

bool sample_is_behind(uint64_t dying, const struct gpc_stats *st, uint64_t oldest_ns)
{
	return dying && st->alive && st->oldest_section_ns > LONG_NS &&
	       st->oldest_section_ns > oldest_ns;
}

/* A number of another PID namespace is never named as a process to kill. */
void sample_behind_text(const struct gpc_stats *st, int stopped, char *ret, size_t room)
{
	int n = snprintf(
		ret, room,
		"eviction waits for process %d (%.31s), whose section has been open for %.1f s: ",
		st->pid, st->label, (double)st->oldest_section_ns / 1e9);

	if (n < 0 || (size_t)n >= room)
		return;
	if (!st->here)
		snprintf(ret + n, room - (size_t)n,
			 "the number is of another PID namespace; end that process there");
	else if (stopped == 1)
		snprintf(ret + n, room - (size_t)n, "kill -CONT %d, or kill -9 %d", st->pid,
			 st->pid);
	else
		snprintf(ret + n, room - (size_t)n, "it must leave that section, or kill %d",
			 st->pid);
}
