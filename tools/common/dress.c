/* SPDX-License-Identifier: Apache-2.0 */
/* Mode and group of a cache that exists.  The library changes all of its files when a process asks
 * for that cache with another mode or group.  So this asks for the cache as it is.
 * Tests: t/fuzz/tools.t */
#include "config.h"

#include "tools/common/dress.h"

#include <errno.h>
#include <stdbool.h>

int dress(gpc *c, const char *name, const struct gpc_config *want,
	  const struct gpc_attach_options *opt)
{
	struct gpc_info info = { .size = sizeof(info) }, made = { .size = sizeof(made) };
	struct gpc_config cfg = {
		.size = sizeof(cfg), .dir = want->dir, .mode = want->mode, .gid = want->gid
	};
	int r = gpc_info_get(c, &info);
	bool gone;
	gpc *other;

	if (r < 0)
		return r;
	cfg.block_tokens = info.block_tokens;
	r = gpc_create(name, &cfg, opt, GPC_IF_ABSENT, &other);
	if (r < 0)
		return r;
	gone = gpc_info_get(other, &made) < 0 || made.created_ns != info.created_ns;
	gpc_close(other);
	if (!gone)
		return 0;
	gpc_unlink(name, want->dir); /* the old cache was removed meanwhile, and this one is ours */
	return -ESTALE;
}
