/* SPDX-License-Identifier: Apache-2.0 */
/* alone.c - the hooks of an index without halls above it: no device has a mirror, no pool has
 * memory, and a handle has nothing beside its seat. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "index/base/err.h"
#include "index/segment/hooks.h"
#include "look/inspect.h"

static int nothing_to_open(gpc *c UNUSED)
{
	return 0;
}

static bool all_ended(gpc *c UNUSED)
{
	return true;
}

static void nothing_to_free(gpc *c UNUSED)
{
}

static int check_devices(const char *devices)
{
	if (!*devices || !strcmp(devices, "none"))
		return 0;
	return err_set(ENODEV, "devices is \"%s\": an index alone has none", devices);
}

static int find_mirror(const char *device, const struct mirror_ops **ret UNUSED)
{
	return err_set(ENODEV, "%s: an index alone has no mirrors", device);
}

static int no_device_answers(gpc *c UNUSED, const struct device_query *q UNUSED, bool must,
			     struct device_result *ret UNUSED)
{
	return must ? err_set(ENODEV, "an index alone has no device") : -EAGAIN;
}

static void no_answer(gpc *c UNUSED, struct device_result *answer UNUSED)
{
}

static int no_memory(const struct gpc_config *cfg UNUSED, uint32_t slots UNUSED,
		     struct ram_draft **ret UNUSED)
{
	return err_set(ENOTSUP, "ram_memory: an index alone makes no memory");
}

static uint64_t no_room(const struct ram_draft *d UNUSED)
{
	return 0;
}

static int nothing_to_make(const struct segment *s UNUSED, struct ram_draft *d UNUSED,
			   bool (*wanted)(void *arg) UNUSED, void *arg UNUSED,
			   struct shm_pool *pool UNUSED)
{
	return -ENOTSUP;
}

static void nothing_to_end(const struct segment *s UNUSED, struct ram_draft *d UNUSED,
			   bool keep UNUSED)
{
}

static int nothing_fits(const gpc *c UNUSED, const struct gpc_config *cfg UNUSED)
{
	return err_set(ENOTSUP, "ram_memory: an index alone makes no memory");
}

static int no_pool(gpc *c UNUSED, const struct gpc_pool *p UNUSED,
		   const struct gpc_memory *m UNUSED, uint64_t deadline UNUSED)
{
	return err_set(ENOTSUP, "memory: an index alone makes none");
}

static int nothing_to_describe(const struct segment *s UNUSED, uint64_t number UNUSED,
			       struct shm_pool *ret UNUSED)
{
	return err_set(ESTALE, "an index alone has no memory");
}

static bool is_no_file(const char *suffix UNUSED)
{
	return false;
}

static int nothing_elsewhere(const struct segment *s UNUSED, const char *suffix UNUSED,
			     int fd UNUSED)
{
	return -ENOENT;
}

static int nothing_to_remove(const struct segment *s UNUSED, const char *suffix UNUSED,
			     void *arg UNUSED)
{
	return 0;
}

static void nothing_to_sweep(const struct segment *s UNUSED)
{
}

static bool none_is_unnamed(const struct segment *s UNUSED)
{
	return false;
}

const struct hooks hooks = {
	.handle_open = nothing_to_open,
	.handle_seated = nothing_to_open,
	.handle_leaves = all_ended,
	.handle_left = nothing_to_free,
	.handle_forked = nothing_to_free,
	.handle_free = walk_free,
	.handle_count = nothing_to_free,
	.devices_check = check_devices,
	.mirror_find = find_mirror,
	.offload_query = no_device_answers,
	.offload_end = no_answer,
	.memory_draft = no_memory,
	.memory_room = no_room,
	.memory_make = nothing_to_make,
	.memory_end = nothing_to_end,
	.memory_fits = nothing_fits,
	.pool_make = no_pool,
	.memory_describe = nothing_to_describe,
	.memory_is_file = is_no_file,
	.memory_open_elsewhere = nothing_elsewhere,
	.memory_remove_named = nothing_to_remove,
	.memory_sweep = nothing_to_sweep,
	.memory_find_unnamed = none_is_unnamed,
};
