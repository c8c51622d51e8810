/* SPDX-License-Identifier: Apache-2.0 */
/* dropped.c - drops since the first look of a request.
 * Tests: t/index/drops-since.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "index/request/request.h"
#include "index/segment/dropped.h"

GPC_EXPORT uint64_t gpc_drops(gpc *c)
{
	return handle_check(c, false) < 0 ? 0 : dropped_next(&c->seg);
}

static int compare(const void *a, const void *b)
{
	const gpc_key *x = a, *y = b;

	if (x->w[0] != y->w[0])
		return x->w[0] < y->w[0] ? -1 : 1;
	return x->w[1] < y->w[1] ? -1 : x->w[1] > y->w[1];
}

static int count(gpc *c, uint64_t since, const gpc_key *keys, uint32_t n)
{
	gpc_key *gone = malloc(SHM_DROPS * sizeof(*gone));
	uint64_t upto;
	uint32_t i;
	int got, is = 0;

	if (!gone)
		return err_set(ENOMEM, "no memory for the keys that were dropped");
	got = dropped_since(&c->seg, since, gone, NULL, SHM_DROPS, &upto);
	if (got > 0)
		qsort(gone, (size_t)got, sizeof(*gone), compare);
	for (i = 0; got > 0 && i < n; i++)
		is += bsearch(&keys[i], gone, (size_t)got, sizeof(*gone), compare) != NULL;
	free(gone);
	return got < 0 ? got : is;
}

GPC_EXPORT int gpc_dropped(gpc *c, uint64_t since, const gpc_key *keys, uint32_t n)
{
	int err = handle_check(c, false);

	if (err == 0 && !since)
		err = err_set(EINVAL, "since is 0: it is a number that gpc_drops() has said");
	if (err == 0)
		err = request_check_since(c, since);
	if (err < 0)
		return err;
	if (n && !keys)
		return err_set(EINVAL, "keys is NULL");
	err = err_count(n, "keys");
	if (err < 0)
		return err;
	return dropped_none(&c->seg, since) ? 0 : count(c, since, keys, n);
}
