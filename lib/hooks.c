/* SPDX-License-Identifier: Apache-2.0 */
/* hooks.c - the library's table of the functions that the index calls in the halls above it.
 * Tests: t/bytes/mirror-order.t */
#include "config.h"

#include "index/segment/hooks.h"

#include "bytes/device/device.h"
#include "bytes/mirror/dev.h"
#include "bytes/memfile/parts.h"
#include "bytes/mapping/make.h"
#include "bytes/mapping/map.h"
#include "bytes/payload/transfer.h"
#include "index/peer/handle.h"
#include "look/inspect.h"

#include <stdlib.h>

static int find_mirror(const char *device, const struct mirror_ops **ret)
{
	const struct driver *d;
	int err = driver_find(device, &d);

	if (!err)
		*ret = &d->mirror->writer;
	return err;
}

static bool leaves(gpc *c)
{
	bool ended = transfer_close_all(c);

	dev_close_all(c);
	return ended;
}

/* Maps go last, since plans of transfers are kept with them. */
static void left(gpc *c)
{
	transfer_free(c);
	map_close_all(c);
	make_close(c);
}

static void forked(gpc *c)
{
	transfer_abandon(c);
	map_abandon(c);
	make_abandon(c);
}

static void free_all(gpc *c)
{
	walk_free(c);
	transfer_free(c);
	free(c->lent);
	map_close_all(c);
}

const struct hooks hooks = {
	.handle_open = map_open,
	.handle_seated = transfer_open,
	.handle_leaves = leaves,
	.handle_left = left,
	.handle_forked = forked,
	.handle_free = free_all,
	.handle_count = dev_count,
	.devices_check = device_check_list,
	.memory_fits = ram_draft_fits,
	.mirror_find = find_mirror,
	.offload_query = offload_query,
	.offload_end = offload_end,
	.memory_draft = ram_draft_new,
	.memory_room = ram_draft_room,
	.memory_make = ram_draft_make,
	.memory_end = ram_draft_end,
	.pool_make = make_pool,
	.memory_describe = memory_describe,
	.memory_is_file = memory_is_file,
	.memory_open_elsewhere = memory_open_elsewhere,
	.memory_remove_named = memory_remove_named,
	.memory_sweep = memory_sweep,
	.memory_find_unnamed = memory_find_unnamed,
};
