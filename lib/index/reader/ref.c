/* SPDX-License-Identifier: Apache-2.0 */
/* ref.c - from hints to references: gpc_ref.
 * Tests: t/index/ask.t t/index/first-refusal.t */
#include "config.h"

#include "index/peer/refuse.h"
#include "index/reader/take.h"

static uint32_t ref(struct call *a, const gpc_key *keys, const gpc_block *blocks, uint32_t n,
		    uint32_t place, int *ret_err)
{
	uint32_t i, record[PROBE_GROUP];
	int err = 0;

	for (i = 0; i < n; i++)
		record[i] = pool_record(&a->c->seg, blocks[i]);
	take_prefetch_first(a, record, n);
	for (i = 0; i < n; i++) {
		take_prefetch(a, record, n, i);
		err = take_once(a, &keys[i], blocks[i], record[i]);
		a->stale += err == -ESTALE;
		if (err)
			break;
		refs_stamp(a->c, record[i], a->first - place - i);
	}
	*ret_err = err;
	return i;
}

GPC_EXPORT int gpc_ref(gpc *c, const gpc_key *keys, const gpc_block *blocks, uint32_t n)
{
	struct call a;
	uint32_t m, got, len = 0;
	int err = handle_check(c, true), why = 0;

	if (err)
		return err;
	err = call_check_arrays(keys, n, blocks);
	if (err || !n)
		return err;
	err = call_begin(&a, c, 0, 0, true);
	if (err)
		return err;
	a.first = refs_first_stamp(c, n);
	do {
		m = MIN(n - len, PROBE_GROUP);
		got = ref(&a, keys + len, blocks + len, m, len, &why);
		len += got;
	} while (got == m && len < n);
	call_end(&a, 0);
	if (why < 0)
		refuse_ref(c, len, blocks[len], why);
	return !len && a.overflow ? -EOVERFLOW : (int)len;
}
