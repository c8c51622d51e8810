/* SPDX-License-Identifier: Apache-2.0 */
/* Checks which options go together.
 * Tests: t/daemon/roles.t t/daemon/options.t t/daemon/mode-and-group.t */
#include "config.h"

#include "tools/daemon/daemon.h"

#include <stdio.h>
#include <string.h>

#define MOST_MEMORY ((uint64_t)1 << 62) /* of a pool */

/* ---- the role of a process, and its options for that role ----
 *
 * With --block-size it makes the cache, or serves the one that it would have made.  Without it, it
 * joins the one that another process makes.  With --keep it owns a pool and serves nobody.  One
 * file may serve all processes of a cache.  So an option there that only a maker needs is no
 * mistake for the others, while it is one on their command lines.
 *
 *   option                             makes             joins: line    joins: file    keeps
 *   ---------------------------------  ----------------  -------------  -------------  ----------------
 *   block-size                         yes               -              -              refused
 *   max-blocks, ram-blocks, ram-space, for what it       refused        named: counts  refused
 *   unchained, max-peers, max-pools,   makes; what there                for nothing
 *   tick, free-target, quarantine,     is is compared
 *   quota, numa, huge-dir, sums,
 *   keep-tokens, keep-digests,
 *   max-aliases
 *   vram-blocks, block-bytes, device   the same          refused        named          of its pool
 *   key-file                           its secret        with a tier    with a tier    refused
 *                                                        compared, else compared, else
 *                                                        refused        named
 *   layout                             made with, or     compared       compared       compared
 *                                      compared
 *   mode, group                        the files get     the same where they are this  refused
 *                                      them, or refused  user's, else a warning
 *   standby, unlink                    yes               yes            yes            refused
 *   tiers, events, metrics             yes               yes            yes            refused, tiers_check and
 *                                                                                      endpoint_check say why
 *   pieces, space, demote-to,          refused           refused        refused        of its pool
 *   spill-ahead
 *   dir, pidfile, foreground,          yes               yes            yes            yes
 *   daemonize, quiet, log-level,
 *   config
 *
 * Each role takes an option that is not in the array below. */
static const struct role {
	const char *option;
	enum { TAKEN, OF_MAKER, OF_MAKER_OR_TIER } joins;
	bool keeps;
} roles[] = {
	{ "block-size", TAKEN, false },
	{ "max-blocks", OF_MAKER, false },
	{ "ram-blocks", OF_MAKER, false },
	{ "ram-space", OF_MAKER, false },
	{ "unchained", OF_MAKER, false },
	{ "max-peers", OF_MAKER, false },
	{ "max-pools", OF_MAKER, false },
	{ "tick", OF_MAKER, false },
	{ "free-target", OF_MAKER, false },
	{ "quarantine", OF_MAKER, false },
	{ "quota", OF_MAKER, false },
	{ "numa", OF_MAKER, false },
	{ "huge-dir", OF_MAKER, false },
	{ "sums", OF_MAKER, false },
	{ "keep-tokens", OF_MAKER, false },
	{ "keep-digests", OF_MAKER, false },
	{ "max-aliases", OF_MAKER, false },
	{ "vram-blocks", OF_MAKER, true },
	{ "block-bytes", OF_MAKER, true },
	{ "device", OF_MAKER, true },
	{ "key-file", OF_MAKER_OR_TIER, true },
	{ "mode", TAKEN, false },
	{ "group", TAKEN, false },
	{ "standby", TAKEN, false },
	{ "unlink", TAKEN, false },
};

static enum option_place place_of(const struct daemon *d, const char *option)
{
	for (const struct option_said *s = d->said; s->option; s++)
		if (!strcmp(s->option, option))
			return s->place;
	return NOWHERE;
}

static bool is_unused(const struct daemon *d, const struct role *r)
{
	return r->joins == OF_MAKER ||
	       (r->joins == OF_MAKER_OR_TIER && !d->disk[0] && !d->tiers.remote);
}

/* Forgets these options, as if the file had not named them. */
static void forget_making(struct daemon *d)
{
	struct gpc_config cfg = { .size = sizeof(cfg), .mode = d->cfg.mode, .gid = d->cfg.gid };

	memcpy(cfg.layout, d->cfg.layout, sizeof(cfg.layout));
	d->cfg = cfg;
	d->memory = (struct gpc_memory){ 0 };
	d->huge_dir[0] = d->devices[0] = 0;
	d->ram_given = false;
	if (!d->disk[0] && !d->tiers.remote)
		d->key_file[0] = 0;
}

static int check_join(struct daemon *d)
{
	size_t used = 0;

	for (size_t i = 0; i < ARRAY_SIZE(roles); i++) {
		const struct role *r = &roles[i];
		enum option_place place = is_unused(d, r) ? place_of(d, r->option) : NOWHERE;

		if (place == ON_LINE)
			return cli_usage(
				"--%s: --block-size is missing: without it no cache is made that this could be for",
				r->option);
		if (place == IN_FILE && used < sizeof(d->unused))
			used += (size_t)snprintf(d->unused + used, sizeof(d->unused) - used, "%s%s",
						 used ? ", " : "", r->option);
	}
	forget_making(d);
	return -1;
}

int options_check_role(struct daemon *d)
{
	d->create = !d->keep && d->cfg.block_tokens;
	if (d->create)
		return -1;
	if (!d->keep)
		return check_join(d);
	for (size_t i = 0; i < ARRAY_SIZE(roles); i++)
		if (!roles[i].keeps && place_of(d, roles[i].option) != NOWHERE)
			return cli_usage(
				"--keep and --%s exclude each other: a keeper makes no cache and serves none",
				roles[i].option);
	return -1;
}

int options_check_cache(struct daemon *d)
{
	if (d->ram_given && !d->cfg.ram_blocks)
		return cli_usage("--%s: --ram-blocks is missing: it is for the pool of RAM",
				 d->cfg.ram_flags ? "unchained" : "ram-space");
	if (d->memory.block_bytes && d->cfg.vram_blocks && !d->cfg.ram_blocks)
		return cli_usage(
			"--block-bytes: --ram-blocks is missing: this option gives memory to the "
			"pool of RAM; the VRAM of --vram-blocks gets memory from a keeper: "
			"gpcd NAME --keep");
	if (d->memory.block_bytes && !d->cfg.ram_blocks)
		return cli_usage("--block-bytes: --ram-blocks is missing");
	if (d->memory.sums && !d->memory.block_bytes)
		return cli_usage("--sums: --block-bytes is missing");
	if (d->memory.sums && d->memory.block_bytes % d->memory.sums)
		return cli_usage("--sums: %u does not divide --block-bytes %llu", d->memory.sums,
				 (unsigned long long)d->memory.block_bytes);
	if (d->memory.numa && !d->memory.block_bytes)
		return cli_usage("--numa: --block-bytes is missing");
	if (d->huge_dir[0] && !d->memory.block_bytes)
		return cli_usage("--huge-dir: --block-bytes is missing");
	return 0;
}

int options_check_keep(struct daemon *d)
{
	if (!d->keep && (d->pieces || d->space_given || d->demote_to >= 0 || d->spill_ahead))
		return cli_usage("--%s: it is for the pool of --keep%s",
				 d->pieces           ? "pieces"
				 : d->space_given    ? "space"
				 : d->demote_to >= 0 ? "demote-to"
						     : "spill-ahead",
				 d->space_given && !d->pieces
					 ? "; that of --ram-blocks has --ram-space"
					 : "");
	if (!d->keep)
		return -1;
	if (!d->devices[0] || strchr(d->devices, ',') || !strcmp(d->devices, "none"))
		return cli_usage(d->devices[0] ? "--keep wants one --device, not '%s'"
					       : "--device is missing: which has the VRAM?%s",
				 d->devices);
	if (!d->cfg.vram_blocks)
		return cli_usage("--vram-blocks is missing: how many is the pool to have?");
	if (!d->memory.block_bytes)
		return cli_usage("--block-bytes is missing: how large is a block?");
	if (d->spill_ahead && d->demote_to < 0)
		return cli_usage(
			"--spill-ahead: --demote-to is missing: where are the blocks to go?");
	if (d->spill_ahead > d->cfg.vram_blocks)
		return cli_usage("--spill-ahead: %u is more than --vram-blocks %u", d->spill_ahead,
				 d->cfg.vram_blocks);
	if (d->memory.block_bytes > MOST_MEMORY / d->cfg.vram_blocks)
		return cli_usage(
			"--block-bytes: %llu is too many for --vram-blocks %u: a pool has at most "
			"%llu bytes",
			(unsigned long long)d->memory.block_bytes, d->cfg.vram_blocks,
			(unsigned long long)MOST_MEMORY);
	if (!d->pieces)
		d->pieces = 1;
	if (d->memory.block_bytes % d->pieces)
		return cli_usage("--pieces: %u does not divide --block-bytes %llu", d->pieces,
				 (unsigned long long)d->memory.block_bytes);
	return -1;
}
