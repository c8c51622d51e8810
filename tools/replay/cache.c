/* SPDX-License-Identifier: Apache-2.0 */
/* The cache as it is: its geometry, its figures, its writer, its devices.
 * Tests: t/tools/replay-result.t */
#include "config.h"

#include "tools/replay/replay.h"

#include <errno.h>
#include <string.h>

#include "gpc_device.h"

enum { LOOK_MS = 20 }; /* between looks for a writer */

/* ---- the cache ---- */

int cache_attach(const struct run *run, uint32_t flags, gpc **c)
{
	const struct gpc_attach_options opt = {
		.size = sizeof(opt),
		.dir = run->a.dir,
		.label = "gpc-replay",
	};
	int r = gpc_attach(run->name, &opt, flags, c);

	if (r < 0)
		cli_cache_error(r, run->name);
	return r < 0 ? -1 : 0;
}

int cache_stats(const struct run *run, struct gpc_stats *ret)
{
	gpc *c;
	int r;

	if (cache_attach(run, GPC_READONLY, &c))
		return -1;
	*ret = (struct gpc_stats){ .size = sizeof(*ret) };
	r = gpc_stats_get(c, -1, ret);
	if (r < 0)
		cli_gpc_error(r, "%s: statistics", run->name);
	gpc_close(c);
	return r < 0 ? -1 : 0;
}

int cache_same(const struct run *run, const char *what, bool given, uint64_t *asked, uint64_t found)
{
	if (given && *asked != found) {
		cli_error("%s has %llu %s, not %llu", run->name, (unsigned long long)found, what,
			  (unsigned long long)*asked);
		return -1;
	}
	*asked = found;
	return 0;
}

int cache_look(struct run *run)
{
	struct gpc_info info = { .size = sizeof(info) };
	gpc *c;
	int r;

	if (cache_attach(run, GPC_READONLY, &c))
		return -1;
	r = gpc_info_get(c, &info);
	if (r < 0)
		cli_gpc_error(r, "%s", run->name);
	else
		r = cache_same(run, "tokens a block", run->a.tokens_given, &run->a.tokens,
			       info.block_tokens);
	if (r >= 0)
		r = pools_look(run, c);
	gpc_close(c);
	return r < 0 ? -1 : cache_stats(run, &run->before);
}

/* ---- its writer ---- */

/* 1 if there is a writer, 0 if there is none now, -1 after a message. */
static int has_writer(const struct run *run, gpc *c)
{
	struct gpc_info info = { .size = sizeof(info) };
	int r = gpc_info_get(c, &info);

	if (r < 0)
		cli_gpc_error(r, "%s", run->name);
	return r < 0 ? -1 : info.writer_pid != 0;
}

/* If there is no writer, a message says so before the wait. */
static int wait_served(const struct run *run, gpc *c)
{
	uint64_t end = cli_now_ns() + PATIENCE_MS * UINT64_C(1000000);
	int has = has_writer(run, c);

	if (!has)
		cli_error("%s has no writer: waiting %d s for one (start gpcd %s)", run->name,
			  PATIENCE_MS / 1000, run->name);
	while (!has && !replay_caught && cli_now_ns() < end) {
		replay_poll(NULL, 0, LOOK_MS);
		has = has_writer(run, c);
	}
	if (!has && !replay_caught)
		cli_error("%s has no writer: none came in %d s", run->name, PATIENCE_MS / 1000);
	return has > 0 ? 0 : -1;
}

int cache_wait_writer(const struct run *run)
{
	gpc *c;
	int r;

	if (!run->a.name)
		return 0;
	if (cache_attach(run, GPC_READONLY, &c))
		return -1;
	r = wait_served(run, c);
	gpc_close(c);
	return r;
}

/* ---- the device ---- */

/* Done in a child, since a process that has used a GPU cannot fork workers.  The mirror of a cache
 * that is not ours may come a moment later. */
static int try_device(const struct run *run)
{
	uint64_t end = cli_now_ns() + (run->a.name ? PATIENCE_MS * UINT64_C(1000000) : 0);
	gpc_dev *d;
	gpc *c;
	int r;

	if (cache_attach(run, 0, &c))
		return EXIT_RUNTIME;
	while ((r = gpc_dev_open(c, run->job->device, &d)) == -ESTALE && cli_now_ns() < end)
		cli_sleep_ms(10);
	if (r < 0)
		cli_gpc_error(r, "--device %s", run->job->device);
	gpc_close(c);
	return r < 0 ? EXIT_RUNTIME : 0;
}

int cache_try_device(const struct run *run)
{
	return run->job->device[0] ? replay_in_child(run, try_device) : 0;
}
