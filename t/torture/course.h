/* SPDX-License-Identifier: Apache-2.0 */
/* course.h - what workers do in a sequence, one call at a time: whatever a call has put into its
 * ring is answered, and in the ledger, before the next one. */
#ifndef GPC_T_COURSE_H
#define GPC_T_COURSE_H

#include "judge.h"
#include "index/peer/refs.h"
#include "index/peer/hold.h"

static struct gpc_move moves[POOLS][SLOTS]; /* by target */
static uint32_t course_turns;               /* since the call began */

/* ---- calls ---- */

static void leave_sections(struct actor *w)
{
	while (w->nsections)
		gpc_section_leave(w->c, w->section[--w->nsections]);
}

/* The caller waits: the writer serves.  A section that holds everything back ends at last. */
static void course_turn(void)
{
	int i;

	need(course_turns++ < 5000, "a call does not end");
	world.now += course_turns < 8 ? 20000 : 6 * NS_PER_MS;
	if (course_turns == 5)
		for (i = 0; i < WORKERS; i++)
			if (!worker[i].dead)
				leave_sections(&worker[i]);
	recorder[0].changed = true;
	need(gpc_writer_serve(cache[0].c, 0) >= 0, "serving: %s", gpc_last_error());
}

static void turns_begin(void)
{
	course_turns = 0;
}

static void call_begins(struct actor *w)
{
	leave_sections(w);
	turns_begin();
}

static void call_ends(struct actor *w)
{
	struct answers a = { &w->c->seg, w->peer };

	do {
		while (seg_seat(a.s, w->peer)->tail != seg_seat(a.s, w->peer)->head)
			course_turn();
		while (w->acked < seg_seat(a.s, w->peer)->head)
			w->acked += ledger_apply(&ledger, &a, w->acked);
		ring_turn(w->c);
	} while (w->acked != seg_seat(a.s, w->peer)->head);
	feed_read(&feed, w->c);
}

/* ---- acts ---- */

static uint16_t refs_of(const struct actor *w, gpc_block b)
{
	uint32_t record = pool_record(&w->c->seg, b);

	return record == SHM_NO_RECORD
		       ? 0
		       : (uint16_t)hold_refs(*seg_cell(&w->c->seg, record, w->peer));
}

static int acquire(struct actor *w, int first, int n, gpc_block *b)
{
	int i, want;

	for (want = 0; want < n && ledger.key[first + want].live; want++)
		;
	must_be(gpc_acquire(w->c, 1, ledger_key + first, (uint32_t)n, b, 0), want);
	for (i = 0; i < want; i++)
		must_be(b[i], ledger.key[first + i].block);
	return want;
}

static void remember_moves(const struct gpc_move *m, int n)
{
	int i;

	for (i = 0; i < n; i++)
		if (m[i].to >= 0)
			moves[GPC_POOL(m[i].to)][GPC_SLOT(m[i].to)] = m[i];
}

static void settle_moves(struct actor *w, bool cancel, uint32_t most)
{
	struct gpc_move m[POOLS * SLOTS];
	uint32_t p, s, n = 0;

	for (p = 0; p < POOLS; p++)
		for (s = 0; s < SLOTS && n < most; s++)
			if (ledger.slot[p][s].owner == w->peer + 1 && ledger.slot[p][s].key)
				m[n++] = moves[p][s];
	if (!n)
		return;
	call_begins(w);
	need(gpc_commit(w->c, m, n, NULL, cancel ? GPC_CANCEL : 0, -1) >= 0, "commit: %s",
	     gpc_last_error());
	call_ends(w);
}

static int reserve(struct actor *w, int pool, int n, gpc_block *b)
{
	int got;

	call_begins(w);
	got = gpc_reserve(w->c, pool, (uint32_t)n, b, NULL, draw(2) ? GPC_PARTIAL : 0, -1);
	need(got > 0 || got == -ENOSPC, "reserve: %s", gpc_last_error());
	call_ends(w);
	return MAX(got, 0);
}

static void publish(struct actor *w, int first, int n, const gpc_block *b)
{
	gpc_key parents[DEEP];
	gpc_block at[DEEP];
	gpc_ticket t;
	bool nowait = draw(2);
	int i;

	for (i = 0; i < n; i++)
		parents[i] = key_parent(first + i);
	call_begins(w);
	need(gpc_publish(w->c, parents, ledger_key + first, b, (uint32_t)n,
			 GPC_OPTIONS(gpc_publish_options, .tag = key_tag(first), .resident = at,
				     .ticket = &t),
			 0, nowait ? 0 : -1) >= 0,
	     "publish: %s", gpc_last_error());
	if (nowait)
		must_be(gpc_ticket_wait(w->c, t, -1), 0);
	call_ends(w);
}

static void release(struct actor *w, bool all)
{
	gpc_block b;
	int p, s;

	call_begins(w);
	for (p = 0; p < POOLS; p++)
		for (s = 0; s < SLOTS; s++) {
			b = GPC_BLOCK(p, s);
			while (refs_of(w, b) && (all || draw(2)))
				must_be(gpc_release(w->c, &b, 1), 0);
		}
	call_ends(w);
}

static void act_release(struct actor *w)
{
	release(w, draw(3));
}

/* A prompt: what is there is acquired, the rest is computed; sometimes what is there, too. */
static void act_request(struct actor *w)
{
	int first = DEEP * (int)draw(CHAINS), n = 1 + (int)draw(DEEP), hit, got;
	gpc_block b[DEEP];

	hit = acquire(w, first, n, b);
	if (hit && !draw(6))
		hit--;
	if (hit == n)
		return;
	got = reserve(w, VRAM, n - hit, b);
	if (draw(4))
		settle_moves(w, !draw(4), 1 + draw(6));
	if (got && draw(8))
		publish(w, first + hit, got, b);
	if (draw(2))
		release(w, true);
}

static void act_give_back(struct actor *w)
{
	gpc_block b[POOLS * SLOTS];
	uint32_t p, s, n = 0;

	for (p = 0; p < POOLS; p++)
		for (s = 0; s < SLOTS; s++)
			if (ledger.slot[p][s].owner == w->peer + 1 && !ledger.slot[p][s].key &&
			    ledger.pool[p].ready)
				b[n++] = GPC_BLOCK((gpc_block)p, (gpc_block)s);
	call_begins(w);
	must_be(gpc_release(w->c, b, n), 0);
	call_ends(w);
}

static void act_evict(struct actor *w)
{
	gpc_block b[3];

	call_begins(w);
	need(gpc_evict(w->c, draw(3) ? VRAM : RAM, 1 + draw(3), b, draw(2) ? GPC_TAKE : 0, -1) >= 0,
	     "evict: %s", gpc_last_error());
	call_ends(w);
}

/* One that has a key in this pool, if there is any. */
static int some_chain(int pool)
{
	int i, k, chain = (int)draw(CHAINS);

	for (i = 0; i < CHAINS; i++, chain = (chain + 1) % CHAINS)
		for (k = DEEP * chain; k < DEEP * (chain + 1); k++)
			if (ledger.key[k].live && GPC_POOL(ledger.key[k].block) == pool)
				return chain;
	return chain;
}

static void act_demote(struct actor *w)
{
	int first = DEEP * some_chain(VRAM), n = 0, i, got;
	bool named = draw(2);
	struct gpc_move m[3];
	gpc_block list[3];

	for (i = DEEP; named && i-- && n < 3;)
		if (ledger.key[first + i].live && GPC_POOL(ledger.key[first + i].block) == VRAM)
			list[n++] = ledger.key[first + i].block;
	if (named && !n)
		return;
	call_begins(w);
	got = gpc_demote(w->c, VRAM, -1, named ? list : NULL, named ? (uint32_t)n : 2, m, 0, -1);
	need(got > 0 || got == -ENOSPC || (named && got == -EPERM), "demote: %s", gpc_last_error());
	call_ends(w);
	remember_moves(m, got);
}

static void act_promote(struct actor *w)
{
	int first = DEEP * some_chain(RAM), i, n, got;
	struct gpc_move m[DEEP];
	gpc_block b[DEEP];

	n = acquire(w, first, DEEP, b);
	for (i = 0; i < n && GPC_POOL(b[i]) == VRAM; i++)
		;
	for (got = 0; i < n && GPC_POOL(b[i]) == RAM; i++)
		b[got++] = b[i];
	if (!got)
		return;
	call_begins(w);
	got = gpc_promote(w->c, b, (uint32_t)got, VRAM, m, 0, -1);
	need(got > 0 || got == -ENOSPC, "promote: %s", gpc_last_error());
	call_ends(w);
	remember_moves(m, got);
}

static void act_commit(struct actor *w)
{
	settle_moves(w, !draw(4), 1 + draw(8));
}

static void act_drop(struct actor *w)
{
	gpc_block b[2];
	uint32_t n = 0, i;
	gpc_ticket t;
	int k;

	for (i = 0; i < 2; i++) {
		k = (int)draw(KEYS);
		if (ledger.key[k].live)
			b[n++] = ledger.key[k].block;
	}
	call_begins(w);
	if (draw(2)) {
		need(gpc_drop(w->c, b, n, NULL, 0, -1) >= 0, "drop: %s", gpc_last_error());
	} else {
		must_be(gpc_drop(w->c, b, n, &t, 0, 0), 0);
		must_be(gpc_ticket_wait(w->c, t, -1), 0);
	}
	call_ends(w);
}

static void act_clear(struct actor *w)
{
	call_begins(w);
	need(gpc_pool_clear(w->c, draw(2) ? -1 : (int)draw(2), draw(4), 0, -1) >= 0, "clear: %s",
	     gpc_last_error());
	call_ends(w);
}

/* A pool of another space: nobody's, or with an owner, or all of its owner's. */
static void act_pool(struct actor *w)
{
	static const uint32_t flags[] = { 0, GPC_POOL_OWNED, GPC_POOL_CALLER };
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = GPC_VRAM,
			      .space = 1,
			      .blocks = 4,
			      .demote_to = -1,
			      .flags = flags[draw(3)] };
	int other = VRAM + 1 + (int)draw(POOLS - VRAM - 1), n;
	gpc_block b[2];

	if (ledger.pool[other].ready && draw(2)) {
		call_begins(w);
		need(gpc_pool_clear(w->c, other, 0, GPC_REMOVE, 0) >= 0, "clear: %s",
		     gpc_last_error());
		call_ends(w);
		return;
	}
	call_begins(w);
	n = gpc_pool_make(w->c, &p, NULL, -1);
	need(n > VRAM || n == -ENOSPC, "pool_add: %s", gpc_last_error());
	call_ends(w);
	if (n > 0 && !(p.flags & GPC_POOL_CALLER))
		reserve(w, n, 1 + (int)draw(2), b);
}

static void act_section(struct actor *w)
{
	int section;

	if (w->nsections == ARRAY_SIZE(w->section))
		return;
	section = gpc_section_enter(w->c);
	need(section >= 0, "enter: %s", gpc_last_error());
	w->section[w->nsections++] = section;
}

/* It dies with all it has; its process may be there still.  One stays. */
static void act_death(struct actor *w)
{
	int i, living = 0;

	for (i = 0; i < WORKERS; i++)
		living += !worker[i].dead;
	if (living < 2)
		return;
	lock_drop(w->c->seg.lock_fd, LOCK_PEER(w->peer));
	for (i = 1; i < LEVELS; i++)
		lock_drop(cache[i].others, LOCK_PEER(w->peer));
	world.gone[person[w->peer]] = draw(2);
	w->dead = true;
	readable = ledger;
	still_readable = true;
	lingering = world.gone[person[w->peer]] ? -1 : (int)w->peer;
	turns_begin();
	ledger_reap(&ledger, w->peer);
	for (i = 0; i < 3 && lingering >= 0; i++)
		course_turn();
	if (lingering >= 0)
		must_be(seg_seat(&w->c->seg, w->peer)->state, SEAT_TAKEN);
	lingering = -1;
	world.gone[person[w->peer]] = true;
	while (seg_seat(&w->c->seg, w->peer)->state != SEAT_FREE)
		course_turn();
	still_readable = false;
}

/* Time passes: what waits for a grace period, a quarantine or a look around. */
static void act_idle(struct actor *w)
{
	int i;

	turns_begin();
	for (i = 0; i < 3; i++)
		course_turn();
	world.now += 21 * NS_PER_MS;
	course_turn();
	feed_read(&feed, w->c);
}

static const struct act {
	const char *name;
	void (*act)(struct actor *w);
} acts[] = {
	{ "request", act_request },     { "request", act_request },     { "request", act_request },
	{ "request", act_request },     { "request", act_request },     { "request", act_request },
	{ "release", act_release },     { "release", act_release },     { "release", act_release },
	{ "give back", act_give_back }, { "give back", act_give_back }, { "evict", act_evict },
	{ "evict", act_evict },         { "demote", act_demote },       { "demote", act_demote },
	{ "demote", act_demote },       { "promote", act_promote },     { "promote", act_promote },
	{ "promote", act_promote },     { "commit", act_commit },       { "commit", act_commit },
	{ "commit", act_commit },       { "drop", act_drop },           { "clear", act_clear },
	{ "pool", act_pool },           { "section", act_section },     { "death", act_death },
	{ "idle", act_idle },
};

/* The cache becomes fuller. */
static void course_fill(void)
{
	struct actor *w;

	while ((w = &worker[draw(WORKERS)])->dead)
		;
	act_request(w);
	act_give_back(w);
	release(w, true);
}

/* The worker who acts next, and what it does. */
static const struct act *course_next(struct actor **ret, bool recorded)
{
	const struct act *a;

	do {
		*ret = &worker[draw(WORKERS)];
		a = &acts[draw(ARRAY_SIZE(acts))];
	} while ((*ret)->dead ||
		 (!recorded && (a->act == act_death || a->act == act_clear) && draw(8)));
	return a;
}

#endif
