/* SPDX-License-Identifier: Apache-2.0 */
/* node.h - a node with a store that it shares with others: its cache, the process that keeps the
 * store, the store's folder. */
#ifndef GPC_T_NODE_H
#define GPC_T_NODE_H

#include "fetch.h"
#include "remote.h"

static char plugin[512], spec[1200], store[256];
static uint8_t secret[16] = "one secret here";
static int ram, vram;

TAP_FN gpc *node(uint32_t ram_blocks)
{
	struct gpc_config cfg = cache_config(0, 0);
	gpc *c;

	cache_thread = true;
	cfg.max_blocks = 4096;
	cfg.max_peers = 8;
	cfg.secret = secret;
	c = cache_make(&cfg, NULL);
	ram = bytes_ram(c, ram_blocks, 0, 0);
	vram = bytes_vram(c, 64, 0, ram, 0);
	return c;
}

/* An empty folder, and the spec of the plugin for it. */
TAP_FN void new_store(const char *more)
{
	static int number;

	snprintf(store, sizeof(store), "%s/store-%d", remote_dir, number++);
	mkdir(store, 0755);
	snprintf(spec, sizeof(spec), "%s:dir=%s%s", plugin, store, more);
}

TAP_FN struct gpc_tiers_options node_options(uint32_t hints, uint32_t ahead, uint32_t ms)
{
	return (struct gpc_tiers_options){ .size = sizeof(struct gpc_tiers_options),
					   .dir = cache_dir,
					   .remote = spec,
					   .remote_blocks = hints,
					   .timeout_ms = 5000,
					   .questions = 2,
					   .ahead = ahead,
					   .remote_ms = ms,
					   .log = remote_note };
}

TAP_FN gpc_tiers *node_keep(const struct gpc_tiers_options *o)
{
	gpc_tiers *t = NULL;

	must(gpc_tiers_open(cache_name, o, &t));
	return t;
}

TAP_FN struct gpc_tier node_tier(gpc *c)
{
	struct gpc_tier t = { .size = sizeof(t) };

	must(gpc_tier_get(c, 0, &t));
	return t;
}

TAP_FN void node_end(gpc *c, gpc_tiers *t, const char *when)
{
	must(gpc_tiers_close(t));
	fetch_end(c, when);
}

#endif
