/* SPDX-License-Identifier: Apache-2.0 */
/* A look at a cache, and at the process that writes to it.
 * Tests: t/tools/inspect-top.t */
#include "config.h"

#include "tools/inspect/sample.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Reads the fields after the name, which may contain any character.  The first of them is the
 * state; the 12th and 13th are user and system time. */
static uint64_t cpu_of(const struct gpc_stats *st)
{
	unsigned long long user, system;
	char path[64], text[1024];
	const char *after;
	size_t n;
	FILE *f;

	if (!st->alive || !st->here)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)st->pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = 0;
	after = strrchr(text, ')');
	if (!after || sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu",
			     &user, &system) != 2)
		return 0;
	/* ... + 1, since a writer that has just begun has used no time that is counted yet */
	return 1 + (user + system) * (1000000000ull / (unsigned long long)sysconf(_SC_CLK_TCK));
}

static void take_pools(gpc *c, struct sample *s)
{
	for (uint32_t i = 0; i < s->info.max_pools && s->npools < GPC_MAX_POOLS; i++) {
		struct gpc_pool p = { .size = sizeof(p) };
		int available;

		if (gpc_pool_get(c, (int)i, &p) < 0 ||
		    (available = gpc_pool_available(c, (int)i)) < 0)
			continue;
		s->pool[s->npools++] = (struct sample_pool){
			.number = (int)i,
			.owner = p.owner,
			.demote_to = p.demote_to,
			.kind = p.kind,
			.space = p.space,
			.blocks = p.blocks,
			.slots = p.blocks + p.transit,
			.live = p.live,
			/* below RAM a free slot is its steward's */
			.reserved = p.kind > GPC_RAM ? 0 : p.reserved,
			.dying = p.dying,
			.available = (uint32_t)available,
		};
	}
}

static void take_peers(gpc *c, struct sample *s)
{
	for (uint32_t i = 0; i < s->info.max_peers && s->npeers < GPC_MAX_PEERS; i++) {
		struct sample_peer *p = &s->peer[s->npeers];

		p->st = (struct gpc_stats){ .size = sizeof(p->st) };
		if (gpc_stats_get(c, (int)i, &p->st) < 0)
			continue;
		p->seat = (int)i;
		p->writer = p->st.alive && (int)i == s->info.writer_peer;
		p->stopped = cli_stopped(&p->st);
		if (p->writer)
			s->writer_cpu_ns = cpu_of(&p->st);
		s->npeers++;
	}
}

static void take_tiers(gpc *c, struct sample *s)
{
	for (; s->ntiers < ARRAY_SIZE(s->tier); s->ntiers++) {
		s->tier[s->ntiers] = (struct gpc_tier){ .size = sizeof(s->tier[0]) };
		if (gpc_tier_get(c, s->ntiers, &s->tier[s->ntiers]) < 0)
			return;
	}
}

static void take_mirrors(gpc *c, struct sample *s)
{
	while (s->nmirrors < 2 * GPC_MAX_MIRRORS) {
		struct gpc_mirror *m = &s->mirror[s->nmirrors];

		*m = (struct gpc_mirror){ .size = sizeof(*m) };
		if (gpc_mirror_get(c, (int)s->nmirrors, m) < 0)
			return;
		s->nmirrors++;
	}
}

static int take(const struct inspect *in, const char *name, gpc *c, struct sample *s)
{
	struct inspect_look look;
	int r = inspect_look(in, name, c, &look);

	if (r < 0)
		return r;
	s->info = look.info;
	s->alive = look.alive;
	s->dead = look.dead;
	s->writer_stopped = look.writer_stopped;
	/* there is one line, so it has the sentence */
	snprintf(s->state, sizeof(s->state), "%s",
		 look.info.refused && !inspect_is_closed(in, name, look.info.refused)
			 ? look.info.why
			 : look.state);
	s->all = (struct gpc_stats){ .size = sizeof(s->all) };
	r = gpc_stats_get(c, -1, &s->all);
	if (r < 0)
		return r;
	take_pools(c, s);
	take_peers(c, s);
	take_mirrors(c, s);
	take_tiers(c, s);
	return 0;
}

void sample_take(const struct inspect *in, const char *name, struct sample *ret)
{
	struct timespec now;
	gpc *c;
	int r;

	memset(ret, 0, sizeof(*ret));
	clock_gettime(CLOCK_REALTIME, &now);
	ret->wall_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	ret->at_ns = cli_now_ns();
	r = inspect_attach(in, name, GPC_READONLY, &c);
	if (r >= 0) {
		r = take(in, name, c, ret);
		gpc_close(c);
	}
	ret->there = r >= 0;
	if (r < 0)
		snprintf(ret->state, sizeof(ret->state), "%s",
			 r == -ENOENT ? "no cache" : cli_gpc_text(r));
}
