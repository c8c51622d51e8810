/* SPDX-License-Identifier: Apache-2.0 */
/* alias.c - a place of the table of aliases, read while its writer may be storing there:
 * shm_alias.h.
 * Tests: t/215-aliases-race.t t/117-aliases.t */
#include "config.h"

#include "segment/alias.h"

uint64_t alias_check(const gpc_key *alias, const gpc_key *to)
{
	return alias_mix(alias_mix(alias_hash(alias), to->w[0]), to->w[1]);
}

bool alias_read(const struct shm_alias *a, gpc_key *ret_alias, gpc_key *ret_to)
{
	gpc_key alias = { { load_relaxed(&a->alias[0]), load_relaxed(&a->alias[1]) } };
	gpc_key to = { { load_relaxed(&a->to[0]), load_relaxed(&a->to[1]) } };

	if (key_is_zero(&alias) || load_relaxed(&a->check) != alias_check(&alias, &to))
		return false;
	*ret_alias = alias;
	*ret_to = to;
	return true;
}
