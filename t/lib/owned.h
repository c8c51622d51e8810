/* SPDX-License-Identifier: Apache-2.0 */
/* owned.h - the end of a cache with a pool that goes with its owner. */
#ifndef GPC_T_OWNED_H
#define GPC_T_OWNED_H

#include "cache.h"

/* c serves by a thread of its own (serve_begin); `other` is attached as well. */
TAP_FN void owned_end(gpc *c, gpc *owner, gpc *other, int pool, const char *what)
{
	struct gpc_pool p = { .size = sizeof(p) };
	int i;

	must(gpc_close(owner));
	for (i = 0; i < 5000 && gpc_pool_get(c, pool, &p) != -ENOENT; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	must(gpc_close(other));
	serve_end();
	must(gpc_writer_serve(c, 50));
	clean(c, what);
	cache_end(c);
}

#endif
