/* SPDX-License-Identifier: Apache-2.0 */
/* take.c - tries a failed reference again.
 * Tests: t/index/moves-refs.t t/index/refs.t */
#include "config.h"

#include "index/reader/take.h"

int take_again(struct call *a, const gpc_key *key, gpc_block *block, uint32_t *record)
{
	uint32_t left;
	int err;

	a->stale++;
	probe_begin(&a->probe, a->c, a->spaces);
	for (left = a->probe.spaces; left; left &= left - 1) {
		*block = lookup_in_space(&a->probe, (uint32_t)__builtin_ctz(left), key);
		if (*block < 0)
			continue;
		*record = pool_record(&a->c->seg, *block);
		err = take_once(a, key, *block, *record);
		if (err != -ESTALE)
			return err;
	}
	return -ESTALE;
}
