/* SPDX-License-Identifier: Apache-2.0 */
/* survivor.h - the one worker that is never killed, and keeps a model of what was
 * acknowledged to it: chains in the vault, whose idle blocks nobody may evict, and
 * blocks of the common pools that it holds.  Whatever dies, each is where it was, with
 * its bytes; what it dropped is gone. */
#ifndef GPC_T_SURVIVOR_H
#define GPC_T_SURVIVOR_H

#include "worker.h"

struct survivor {
	struct actor w;
	gpc_block vault[VAULT];   /* or none */
	gpc_block pinned[PINNED]; /* referenced all the time */
};

/* Without a writer a call is made again: nothing changed, or what it was given comes
 * back. */
static inline int insist(struct survivor *s, int pool, uint32_t n, gpc_block *b)
{
	uint64_t until = clock_ns() + 90000 * NS_PER_MS;
	int r;

	do {
		r = gpc_reserve(s->w.c, pool, n, b, NULL, 0, 1000);
		need(r == (int)n || r == -ENOTCONN || r == -ETIMEDOUT || r == -ENOSPC ||
			     r == -EAGAIN,
		     "the survivor's reserve: %d, %s", r, gpc_last_error());
		need(clock_ns() < until, "the survivor gets no %u blocks of pool %d: %s", n, pool,
		     gpc_last_error());
	} while (r < 0);
	return r;
}

/* Keys first .. first + n - 1 of the vault, or the pinned ones, as one chain. */
static inline void keep(struct survivor *s, int pool, gpc_key (*key)(int), int first, int n,
			gpc_key parent, gpc_block *ret)
{
	gpc_key k[VAULT + 1] = { parent };
	gpc_block b[VAULT], resident[VAULT];
	int i, again;

	insist(s, pool, (uint32_t)n, b);
	for (i = 0; i < n; i++) {
		own(b[i], "the survivor's reserve");
		k[i + 1] = key(first + i);
		put(b[i], k[i + 1]);
		disown(b[i]);
	}
	for (i = 0; i < n; i += again) {
		publish_and_wait(&s->w, k + i, k + i + 1, b + i, n - i, 5, resident + i);
		for (again = 0; i + again < n && resident[i + again] == b[i + again]; again++)
			ret[i + again] = b[i + again];
		need(i + again == n || resident[i + again] == -EAGAIN,
		     "the survivor's publish answers %d for block 0x%x", resident[i + again],
		     (unsigned)b[i + again]);
	}
}

static inline void vault_look(struct survivor *s)
{
	gpc_key k[VAULT + PINNED];
	gpc_block b[VAULT + PINNED], want;
	uint32_t spaces = GPC_SPACE(VAULT_SPACE) | GPC_SPACE(scene.engines ? SHARED_SPACE : 0);
	int i;

	for (i = 0; i < VAULT + PINNED; i++)
		k[i] = i < VAULT ? vault_key(i) : pinned_key(i - VAULT);
	need(gpc_lookup(s->w.c, spaces, k, VAULT + PINNED, b, GPC_QUIET) >= 0, "lookup");
	for (i = 0; i < VAULT + PINNED; i++) {
		want = i < VAULT ? s->vault[i] : s->pinned[i - VAULT];
		need(b[i] == want, "key %d of the survivor is in block 0x%x, not 0x%x%s", i,
		     (unsigned)b[i], (unsigned)want, b[i] < 0 ? ": lost" : "");
		need(want < 0 || holds(want, k[i]), "key %d of the survivor: other bytes", i);
	}
	count(N_LOOKS, 1);
}

static inline void vault_drop(struct survivor *s, int i)
{
	gpc_ticket t = 0;
	int r = gpc_drop(s->w.c, &s->vault[i], 1, &t, 0, -1);

	while (r == -ENOTCONN || r == -ETIMEDOUT)
		r = gpc_ticket_wait(s->w.c, t, 1000);
	need(r >= 0, "the survivor's drop: %s", gpc_last_error());
	do
		s->vault[i] = GPC_NONE;
	while (++i % DEEP);
}

/* A chain of the vault becomes longer, or shorter. */
static inline void vault_change(struct survivor *s)
{
	int chain = DEEP * (int)crew_random(&s->w.seed, VAULT / DEEP), n = 0, i;

	while (n < DEEP && s->vault[chain + n] >= 0)
		n++;
	if (n && one_in(&s->w, 3)) {
		vault_drop(s, chain + (int)crew_random(&s->w.seed, (uint32_t)n));
	} else if (n < DEEP) {
		i = 1 + (int)crew_random(&s->w.seed, (uint32_t)(DEEP - n));
		keep(s, scene.vault, vault_key, chain + n, i,
		     n ? vault_key(chain + n - 1) : crew_no_key, s->vault + chain + n);
		unref(&s->w, s->vault + chain + n, i);
	}
}

static inline void survivor_begin(struct survivor *s)
{
	int i, half = scene.engines ? 0 : PINNED / 2;

	s->w.c = crew_attach("survivor");
	for (i = 0; i < VAULT; i++)
		s->vault[i] = GPC_NONE;
	for (i = 0; i < PINNED; i++)
		s->pinned[i] = GPC_NONE;
	if (half)
		keep(s, scene.vram, pinned_key, 0, half, crew_no_key, s->pinned);
	keep(s, scene.ram, pinned_key, half, PINNED / 2, crew_no_key, s->pinned + half);
}

static inline int survivor_main(int place)
{
	struct survivor s = { 0 };

	life_begin(place);
	s.w.seed = crew_mix(opt.seed + 77 + page->count[N_ROUNDS]) | 1;
	survivor_begin(&s);
	while (load_acquire(&page->stop) < 2) {
		vault_look(&s);
		if (!load_acquire(&page->stop) && one_in(&s.w, 8))
			vault_change(&s);
		nap(500);
	}
	vault_look(&s);
	gpc_close(s.w.c);
	return 0;
}

/* How many blocks it holds. */
TAP_FN int survivor_holds(void)
{
	return scene.engines ? PINNED / 2 : PINNED;
}

#endif
