/* SPDX-License-Identifier: Apache-2.0 */
/* Which options go together.
 * Tests: t/daemon/options.t t/daemon/mode-and-group.t */
#include "config.h"

#include "tools/daemon/daemon.h"

#include <string.h>

#define MOST_MEMORY ((uint64_t)1 << 62) /* of a pool */

int options_check_cache(struct daemon *d)
{
	d->create = d->cfg.block_tokens != 0;
	if (!d->create &&
	    (d->cfg.max_blocks || d->cfg.vram_blocks || d->cfg.ram_blocks || d->cfg.max_peers ||
	     d->cfg.max_pools || d->cfg.keep_tokens || d->cfg.keep_digests || d->cfg.max_aliases ||
	     d->devices[0] || d->ram_given))
		return cli_usage("--block-size is missing");
	if (!d->create && d->cfg.mode)
		return cli_usage("--%s: --block-size is missing, which says what cache it is for",
				 d->cfg.gid ? "group" : "mode");
	if (!d->create && d->key_file[0] && !d->disk[0] && !d->tiers.remote)
		return cli_usage(
			"--key-file: --block-size is missing: which cache is to be made with it?");
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
	if (d->cfg.block_tokens || d->cfg.max_blocks || d->cfg.ram_blocks || d->cfg.max_peers ||
	    d->cfg.max_pools || d->cfg.keep_tokens || d->cfg.keep_digests || d->cfg.max_aliases ||
	    d->standby || d->unlink_at_end || d->memory.numa || d->memory.sums || d->huge_dir[0] ||
	    d->ram_given)
		return cli_usage(
			"--keep and options of a cache, --standby and --unlink exclude each "
			"other: a keeper makes no cache and serves none");
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
