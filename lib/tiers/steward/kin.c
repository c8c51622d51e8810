/* SPDX-License-Identifier: Apache-2.0 */
/* kin.c - chains by place: entries with the hashes of their parents' keys, and the listed entries.
 * Tests: t/tiers/kin.t t/tiers/lost-since.t t/tiers/follow.t t/tiers/unchained.t */
#include "config.h"

#include "tiers/steward/kin.h"

#include <errno.h>
#include <stdlib.h>
#include "index/base/key.h"

#define KIN_LAST UINT32_MAX

bool numbers_add(struct numbers *s, uint32_t number)
{
	uint32_t room = s->room ? 2 * s->room : 64;
	uint32_t *more;

	if (s->n == s->room) {
		more = reallocarray(s->at, room, sizeof(*more));
		if (!more)
			return false;
		s->at = more;
		s->room = room;
	}
	s->at[s->n++] = number;
	return true;
}

/* Pages of records that are never entries are not touched. */
int kin_new(struct kin *k, uint32_t records)
{
	pthread_mutex_init(&k->lock, NULL);
	k->n = records;
	k->hash = calloc(records, sizeof(*k->hash));
	k->later = calloc(records, sizeof(*k->later));
	k->came = calloc(records / 64 + 1, sizeof(*k->came));
	return chains_new(&k->by, records) && k->hash && k->later && k->came ? 0 : -ENOMEM;
}

void kin_end(struct kin *k)
{
	chains_end(&k->by);
	free(k->hash);
	free(k->later);
	free(k->came);
}

/* ---- with the lock held ---- */

static void leave(struct kin *k, uint32_t number)
{
	if (k->hash[number])
		chains_cut(&k->by, number, k->hash[number]);
	k->hash[number] = 0;
}

static void list(struct kin *k, uint32_t number)
{
	if (!k->hash[number] || k->later[number])
		return;
	k->later[number] = k->listed ? k->listed : KIN_LAST;
	k->listed = number + 1;
}

static void set_came(struct kin *k, uint32_t number, bool came)
{
	uint64_t bit = UINT64_C(1) << number % 64, *at = &k->came[number / 64];

	*at = came ? *at | bit : *at & ~bit;
}

/* ---- entries ---- */

void kin_enter(struct kin *k, uint32_t number, const gpc_key *parent, bool listed)
{
	pthread_mutex_lock(&k->lock);
	leave(k, number);
	if (!key_is_zero(parent) && !key_is_root(parent)) {
		k->hash[number] = chains_hash(parent);
		chains_put(&k->by, number, k->hash[number]);
		set_came(k, number, listed);
		if (listed)
			list(k, number);
	}
	pthread_mutex_unlock(&k->lock);
}

void kin_leave(struct kin *k, uint32_t number)
{
	pthread_mutex_lock(&k->lock);
	leave(k, number);
	pthread_mutex_unlock(&k->lock);
}

bool kin_children(struct kin *k, const gpc_key *parent, struct numbers *to)
{
	uint32_t hash = chains_hash(parent), at;
	bool all = true;

	pthread_mutex_lock(&k->lock);
	CHAINS_EACH(&k->by, hash, at)
	if (k->hash[at - 1] == hash && all)
		all = numbers_add(to, at - 1);
	pthread_mutex_unlock(&k->lock);
	return all;
}

/* ---- gaps ---- */

void kin_removed(struct kin *k, const gpc_key *key)
{
	uint32_t hash = chains_hash(key), at;

	pthread_mutex_lock(&k->lock);
	CHAINS_EACH(&k->by, hash, at)
	if (k->hash[at - 1] == hash) {
		set_came(k, at - 1, false);
		list(k, at - 1);
	}
	pthread_mutex_unlock(&k->lock);
}

void kin_list(struct kin *k, uint32_t number)
{
	pthread_mutex_lock(&k->lock);
	list(k, number);
	pthread_mutex_unlock(&k->lock);
}

void kin_list_all(struct kin *k)
{
	uint32_t i;

	pthread_mutex_lock(&k->lock);
	for (i = 0; i < k->n; i++) {
		set_came(k, i, false);
		list(k, i);
	}
	pthread_mutex_unlock(&k->lock);
}

bool kin_next(struct kin *k, uint32_t *ret)
{
	bool any = false;

	pthread_mutex_lock(&k->lock);
	while (k->listed && !any) {
		*ret = k->listed - 1;
		any = k->hash[*ret] != 0;
		k->listed = k->later[*ret] == KIN_LAST ? 0 : k->later[*ret];
		k->later[*ret] = 0;
	}
	pthread_mutex_unlock(&k->lock);
	return any;
}

bool kin_came(struct kin *k, uint32_t number)
{
	bool came;

	pthread_mutex_lock(&k->lock);
	came = k->came[number / 64] >> number % 64 & 1;
	pthread_mutex_unlock(&k->lock);
	return came;
}
