/* SPDX-License-Identifier: Apache-2.0 */
/* Answers to /healthz and /readyz, which the thread of http.c asks for.
 *
 * The main thread notes each turn of its loop.  A turn takes 2 seconds at most, whatever it waits
 * for.
 *
 *   the main thread ...                 /healthz            /readyz
 *   ----------------------------------  ------------------  ------------------------------------------
 *   has not turned yet: it starts       alive               no process is the writer, until this is
 *   waits for a cache to join, or for   alive               the cache cannot be opened: there is none
 *   its maker; makes its memory
 *   waits for a seat there              alive               this process has not joined it
 *   recovers the cache as its writer    alive, however      this process does not serve yet
 *                                       long that takes
 *   stands by                           alive               the state of the present writer, whichever
 *                                                           process that is
 *   serves                              alive               ready, or the reasons why it is not
 *   has not turned for LATE_NS          one line about it   the same line, and any other reasons
 *
 * So /healthz asks for a restart only where a restart helps.
 * Tests: t/daemon/health.t */
#include "config.h"

#include "tools/daemon/daemon.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LATE_NS UINT64_C(10000000000)

struct reasons {
	char *text;
	size_t room, used;
};

static void add(struct reasons *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Adds a line; a line that has no room is left out. */
static void add(struct reasons *r, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(r->text + r->used, r->room - r->used, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n + 2 > r->room - r->used) {
		r->text[r->used] = 0;
		return;
	}
	r->used += (size_t)n;
	r->text[r->used++] = '\n';
	r->text[r->used] = 0;
}

static gpc *look(const struct daemon *d, struct gpc_info *ret)
{
	const struct gpc_attach_options opt = { .size = sizeof(opt),
						.dir = d->dir[0] ? d->dir : NULL };
	gpc *c = NULL;

	*ret = (struct gpc_info){ .size = sizeof(*ret) };
	if (gpc_attach(d->name, &opt, GPC_READONLY, &c) < 0)
		return NULL;
	if (gpc_info_get(c, ret) < 0) {
		gpc_close(c);
		return NULL;
	}
	return c;
}

/* This process has the seat before its takeover is over. */
static bool recovers(const struct daemon *d)
{
	struct gpc_info info;
	gpc *c = look(d, &info);

	if (!c)
		return false;
	gpc_close(c);
	return info.writer_pid == getpid() && !__atomic_load_n(&d->served, __ATOMIC_RELAXED);
}

static void look_at_loop(const struct daemon *d, struct reasons *r)
{
	uint64_t turned = __atomic_load_n(&d->turned_ns, __ATOMIC_RELAXED), now = cli_now_ns();

	if (turned && now > turned && now - turned > LATE_NS && !recovers(d))
		add(r, "the loop of process %d has not turned for %" PRIu64 " s", (int)getpid(),
		    (now - turned) / 1000000000);
}

static void look_at_writer(const struct daemon *d, gpc *c, const struct gpc_info *info,
			   struct reasons *r)
{
	struct gpc_stats st = { .size = sizeof(st) };

	if (__atomic_load_n(&d->nameless, __ATOMIC_RELAXED))
		add(r, "the cache has lost its name: no process can attach to it");
	else if (info->refused)
		add(r, "no process can attach: %s", info->why);
	if (!info->writer_pid)
		add(r, "no process is the writer");
	else if (info->writer_pid == getpid() && !__atomic_load_n(&d->serving, __ATOMIC_RELAXED))
		add(r, "process %d recovers the cache, or opens its tiers, and does not serve yet",
		    (int)getpid());
	else if (info->writer_peer >= 0 && gpc_stats_get(c, info->writer_peer, &st) >= 0 &&
		 cli_stopped(&st) == 1)
		add(r, "the writer, process %d, is stopped", info->writer_pid);
}

static void look_at_tier(gpc *c, uint32_t kind, struct reasons *r)
{
	const char *word = kind == GPC_DISK ? "disk" : "remote";
	struct gpc_tier t = { .size = sizeof(t) };
	uint32_t i;
	int err;

	for (i = 0; (err = gpc_tier_get(c, i, &t)) == 0 && t.kind != kind; i++)
		;
	if (err || t.steward < 0)
		add(r, "tier %s: no process keeps it", word);
	else if (t.state == GPC_TIER_DOWN)
		add(r, "tier %s: it is down", word);
	else if (t.state == GPC_TIER_OFF)
		add(r, "tier %s: it is off until its steward starts anew", word);
	else if (t.state == GPC_TIER_STOPPED)
		add(r, "tier %s: its steward takes no questions", word);
}

/* Ends the answer in the form that http.c wants; true stands for 200. */
static bool end(struct reasons *r, const char *well)
{
	if (r->used)
		return false;
	add(r, "%s", well);
	return true;
}

bool health_live(const struct daemon *d, char *ret, size_t room)
{
	struct reasons r = { ret, room, 0 };

	look_at_loop(d, &r);
	return end(&r, "alive");
}

bool health_ready(const struct daemon *d, char *ret, size_t room)
{
	struct reasons r = { ret, room, 0 };
	struct gpc_info info;
	gpc *c = look(d, &info);

	look_at_loop(d, &r);
	if (c) {
		if (__atomic_load_n(&d->outside, __ATOMIC_RELAXED))
			add(&r, "process %d has not joined the cache yet", (int)getpid());
		look_at_writer(d, c, &info, &r);
		if (d->tiers.disk)
			look_at_tier(c, GPC_DISK, &r);
		if (d->tiers.remote)
			look_at_tier(c, GPC_REMOTE, &r);
		gpc_close(c);
	} else {
		add(&r, "the cache cannot be opened: %s", gpc_last_error());
	}
	return end(&r, "ready");
}
