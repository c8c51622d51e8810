/* SPDX-License-Identifier: Apache-2.0 */
/* alias.c - pairs alias -> key, stored.
 *
 * A pair is written where its alias stands already, else where no pair is, else over the oldest one
 * of its bucket.  `turn` is the place behind the one that was filled last, so, since places are
 * filled in turn, the oldest.
 *
 * If we die between two stores, the place holds no pair: its check does not agree.  The command has
 * no answer, so a successor runs it again, finds the place by its alias or as the first that holds
 * none, and fills it.  `turn` moves after that.  Where it has not, the place is the one that is
 * forgotten next, too early and no worse.
 * Tests: t/335-alias-stores.t t/215-aliases-race.t t/117-aliases.t */
#include "config.h"

#include <errno.h>
#include "segment/alias.h"
#include "writer/alias.h"

static struct shm_aliases *bucket_of(struct writer *w, const gpc_key *alias)
{
	return SEG_AT(w->seg.index, w->seg.at.alias, struct shm_aliases,
		      alias_bucket(&w->seg, alias));
}

/* It holds no pair as long as the check is the old one: that the check comes last is not needed. */
static void store_pair(struct shm_alias *a, const gpc_key *alias, const gpc_key *to)
{
	store_relaxed(&a->alias[0], alias->w[0]);
	store_relaxed(&a->alias[1], alias->w[1]);
	store_relaxed(&a->to[0], to->w[0]);
	store_relaxed(&a->to[1], to->w[1]);
	store_relaxed(&a->check, alias_check(alias, to));
}

/* The place that holds this alias, with what it stands for; or NONE. */
static uint32_t find_place(const struct shm_aliases *b, const gpc_key *alias, gpc_key *ret_to)
{
	uint32_t i;

	for (i = 0; i < SHM_ALIASES; i++)
		if (alias_is(&b->pair[i], alias, ret_to))
			return i;
	return NONE;
}

/* The first one from `turn` on that holds no pair; or NONE. */
static uint32_t find_room(const struct shm_aliases *b, uint32_t turn)
{
	gpc_key alias, to;
	uint32_t i, at;

	for (i = 0; i < SHM_ALIASES; i++) {
		at = (turn + i) % SHM_ALIASES;
		if (!alias_read(&b->pair[at], &alias, &to))
			return at;
	}
	return NONE;
}

static void add_pair(struct writer *w, struct shm_aliases *b, const gpc_key *alias,
		     const gpc_key *to)
{
	uint32_t turn = load_relaxed(&b->turn) % SHM_ALIASES, at = find_room(b, turn);
	struct shm_state *st = w_state(w);

	if (at != NONE) /* first: a reader that finds 0 looks no further */
		store_relaxed(&st->aliases, st->aliases + 1);
	else
		at = turn;
	store_pair(&b->pair[at], alias, to);
	store_relaxed(&b->turn, (at + 1) % SHM_ALIASES);
}

int32_t alias_store(struct writer *w, const gpc_key *alias, const gpc_key *to)
{
	gpc_key final = *to, was;
	struct shm_aliases *b;
	uint32_t at;

	if (key_is_zero(alias) || key_is_root(alias) || key_is_zero(to) || key_is_root(to) ||
	    key_same(alias, to))
		return -EINVAL;
	if (!alias_is_kept(&w->seg))
		return -ENOENT;
	alias_find(&w->seg, to, &final);
	if (key_same(alias, &final)) /* `to` is an alias of it: that says the same */
		return 0;
	b = bucket_of(w, alias);
	at = find_place(b, alias, &was);
	if (at == NONE)
		add_pair(w, b, alias, &final);
	else if (!key_same(&was, &final))
		store_pair(&b->pair[at], alias, &final);
	return 0;
}
