/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of gpcd, which becomes a struct daemon.
 * Tests: t/daemon/config.t t/daemon/defaults.t t/daemon/roles.t t/daemon/options.t
 *   t/python/vllm-gpcd.t */
#include "config.h"

#include "tools/common/dress.h"
#include "tools/daemon/daemon.h"

#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct number {
	const char *option;
	uint64_t min, max;
	size_t at; /* in struct gpc_config, a u32 */
} numbers[] = {
	{ "block-size", 1, 65536, offsetof(struct gpc_config, block_tokens) },
	{ "max-blocks", 1, 1 << 28, offsetof(struct gpc_config, max_blocks) },
	{ "vram-blocks", 0, 1 << 24, offsetof(struct gpc_config, vram_blocks) },
	{ "ram-blocks", 0, 1 << 24, offsetof(struct gpc_config, ram_blocks) },
	{ "max-peers", 1, GPC_MAX_PEERS, offsetof(struct gpc_config, max_peers) },
	{ "max-pools", 1, GPC_MAX_POOLS, offsetof(struct gpc_config, max_pools) },
	{ "quarantine", 1, 3600000, offsetof(struct gpc_config, quarantine_ms) },
	{ "quota", 0, UINT32_MAX, offsetof(struct gpc_config, peer_quota) },
};

enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };

#define MOST_BYTES  ((uint64_t)1 << 40) /* of a block */
#define MOST_PIECES 65536u              /* of a block */
#define MOST_AHEAD  (1 << 24)           /* as of --vram-blocks */

enum {
	OPT_NUMBER = 256, /* + index into numbers */
	OPT_DEVICE = OPT_NUMBER + NUMBERS,
	OPT_TICK,
	OPT_FREE_TARGET,
	OPT_MODE,
	OPT_GROUP,
	OPT_DIR,
	OPT_LAYOUT,
	OPT_PIDFILE,
	OPT_KEEP_TOKENS,
	OPT_KEEP_DIGESTS,
	OPT_STANDBY,
	OPT_FOREGROUND,
	OPT_DAEMONIZE,
	OPT_UNLINK,
	OPT_QUIET,
	OPT_BLOCK_BYTES,
	OPT_SUMS,
	OPT_NUMA,
	OPT_HUGE_DIR,
	OPT_KEEP,
	OPT_PIECES,
	OPT_SPACE,
	OPT_DEMOTE_TO,
	OPT_SPILL_AHEAD,
	OPT_RAM_SPACE,
	OPT_UNCHAINED,
	OPT_MAX_ALIASES,
	OPT_EVENTS,
	OPT_EVENTS_REPLAY,
	OPT_EVENTS_PUBLIC,
	OPT_EVENTS_MEMORY,
	OPT_TOPIC,
	OPT_METRICS,
	OPT_METRICS_PUBLIC,
	OPT_LOG_LEVEL,
	OPT_CONFIG,
	OPT_TIERS,
	OPT_BEHIND_TIERS = OPT_TIERS + 32, /* + number in tiers.c */
};

static const struct option options[] = {
	{ "block-size", required_argument, NULL, OPT_NUMBER + 0 },
	{ "max-blocks", required_argument, NULL, OPT_NUMBER + 1 },
	{ "vram-blocks", required_argument, NULL, OPT_NUMBER + 2 },
	{ "ram-blocks", required_argument, NULL, OPT_NUMBER + 3 },
	{ "ram-space", required_argument, NULL, OPT_RAM_SPACE },
	{ "unchained", no_argument, NULL, OPT_UNCHAINED },
	{ "max-peers", required_argument, NULL, OPT_NUMBER + 4 },
	{ "max-pools", required_argument, NULL, OPT_NUMBER + 5 },
	{ "quarantine", required_argument, NULL, OPT_NUMBER + 6 },
	{ "quota", required_argument, NULL, OPT_NUMBER + 7 },
	{ "device", required_argument, NULL, OPT_DEVICE },
	{ "tick", required_argument, NULL, OPT_TICK },
	{ "free-target", required_argument, NULL, OPT_FREE_TARGET },
	{ "block-bytes", required_argument, NULL, OPT_BLOCK_BYTES },
	{ "sums", required_argument, NULL, OPT_SUMS },
	{ "numa", required_argument, NULL, OPT_NUMA },
	{ "huge-dir", required_argument, NULL, OPT_HUGE_DIR },
	{ "keep-tokens", no_argument, NULL, OPT_KEEP_TOKENS },
	{ "keep-digests", no_argument, NULL, OPT_KEEP_DIGESTS },
	{ "max-aliases", required_argument, NULL, OPT_MAX_ALIASES },
	{ "mode", required_argument, NULL, OPT_MODE },
	{ "group", required_argument, NULL, OPT_GROUP },
	{ "dir", required_argument, NULL, OPT_DIR },
	{ "layout", required_argument, NULL, OPT_LAYOUT },
	{ "pidfile", required_argument, NULL, OPT_PIDFILE },
	{ "standby", no_argument, NULL, OPT_STANDBY },
	{ "foreground", no_argument, NULL, OPT_FOREGROUND },
	{ "daemonize", no_argument, NULL, OPT_DAEMONIZE },
	{ "unlink", no_argument, NULL, OPT_UNLINK },
	{ "quiet", no_argument, NULL, OPT_QUIET },
	{ "config", required_argument, NULL, OPT_CONFIG },
	{ "log-level", required_argument, NULL, OPT_LOG_LEVEL },
	{ "keep", no_argument, NULL, OPT_KEEP },
	{ "pieces", required_argument, NULL, OPT_PIECES },
	{ "space", required_argument, NULL, OPT_SPACE },
	{ "demote-to", required_argument, NULL, OPT_DEMOTE_TO },
	{ "spill-ahead", required_argument, NULL, OPT_SPILL_AHEAD },
	{ "events", required_argument, NULL, OPT_EVENTS },
	{ "events-replay", required_argument, NULL, OPT_EVENTS_REPLAY },
	{ "events-public", no_argument, NULL, OPT_EVENTS_PUBLIC },
	{ "events-memory", required_argument, NULL, OPT_EVENTS_MEMORY },
	{ "topic", required_argument, NULL, OPT_TOPIC },
	{ "metrics", required_argument, NULL, OPT_METRICS },
	{ "metrics-public", no_argument, NULL, OPT_METRICS_PUBLIC },
	TIERS_OPTIONS(OPT_TIERS),
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ NULL, 0, NULL, 0 }
};

static const struct cli_help help[] = {
	{ NULL, "Usage: gpcd NAME --block-size N [OPTION]...", NULL },
	{ NULL, "       gpcd NAME [--standby] [OPTION]...", NULL },
	{ NULL, "       gpcd NAME --keep --device D --vram-blocks N --block-bytes B [OPTION]...",
	  NULL },
	{ NULL,
	  "Serve the prefix cache NAME as its writer.  With --block-size it makes the cache\n"
	  "if there is none; without it it waits for the cache that another process makes.",
	  NULL },
	{ NULL, "\nThe cache:", NULL },
	{ "--block-size N", "tokens in a block, 1 to 64k", NULL },
	{ "--max-blocks N", "blocks of all pools together, at most, 1 to 256M",
	  "as many as the pools below need, else 64k" },
	{ "--vram-blocks N", "make pool 0, of N blocks of VRAM; at most 16M", "0" },
	{ "--ram-blocks N", "make pool 1, of N blocks of RAM, which pool 0 demotes to; at most 16M",
	  "0" },
	{ "--ram-space S", "space of the RAM pool, 0 to 31", "0" },
	{ "--unchained", "the RAM pool takes blocks whose parent is not in its space", NULL },
	{ "--block-bytes B",
	  "give the RAM pool memory of its own, B bytes a block; with --keep that of its pool",
	  NULL },
	{ "--sums N",
	  "blocks of that memory have N parts with a checksum each, 1 to 256: one for each worker of "
	  "an engine",
	  "1" },
	{ "--numa POLICY",
	  "of that memory: default, interleave or bind, the last two with :NODES, as in bind:0,2-3",
	  "default" },
	{ "--huge-dir DIR", "folder of a hugetlbfs for that memory", "beside the cache's files" },
	{ "--max-peers N", "seats for processes, 1 to 250", "32" },
	{ "--max-pools N", "room for pools, 1 to 127", "16" },
	{ "--device D", "keep a mirror on none, host, cuda:N or GPU-UUID; may be repeated",
	  "none" },
	{ "--tick exact|MS",
	  "unit of recency: each call that uses blocks, or 1 to 60000 milliseconds", "1" },
	{ "--free-target N", "blocks of each pool that are kept free for the next reserve; 0: none",
	  "64" },
	{ "--quarantine MS", "wait so long before reuse of blocks that a dead process may write",
	  "1000" },
	{ "--quota N", "most blocks that one process may hold reserved; 0: no limit", "0" },
	{ "--keep-tokens", "keep the tokens of each block, 4 bytes each", NULL },
	{ "--keep-digests", "keep the engine's digest and group of each block", NULL },
	{ "--max-aliases N", "room for N aliases of keys, 43 bytes each, at most 256M; 0: none",
	  "an eighth of --max-blocks" },
	{ "--mode OCTAL", "permissions of the cache's files", "0600, with --group 0660" },
	{ "--group GROUP", "group whose members may attach, by name or number", NULL },
	{ "--layout HEX",
	  "fingerprint of model and block layout; a process with another one is "
	  "refused",
	  NULL },
	{ "--dir DIR", "folder of the cache's files, best on a tmpfs", "/dev/shm" },
	{ NULL, "\nThe keeper:", NULL },
	{ "--keep", "own a pool of --vram-blocks of VRAM on --device, and serve nobody", NULL },
	{ "--pieces K", "pieces of a block, those of one number in a row; divides --block-bytes",
	  "1" },
	{ "--space S", "space of the keeper's pool, 0 to 31", "0" },
	{ "--demote-to P", "pool that victims move to", "none" },
	{ "--spill-ahead N",
	  "move there ahead of need: N blocks are kept free, or, where that pool is of "
	  "another space, have a copy there",
	  "0" },
	{ NULL, "\nTiers below RAM, while this process is the writer:", NULL },
	{ "--disk FILE",
	  "keep blocks of RAM there as well, over restarts; it is made where there is none",
	  "none" },
	{ "--disk-bytes SIZE", "bytes of that file", "the size that the file has" },
	{ "--disk-blocks N", "blocks of that file, in place of its bytes; at most 16M", NULL },
	{ "--disk-exclusive", "a block is in RAM or there, and not in both", NULL },
	{ "--disk-ahead N", "keep a copy there of the N blocks that leave RAM next; at most 4k",
	  "a quarter of RAM or of the tier, 64 to 4k" },
	{ "--disk-min-uses N", "write a block when it is next to go for the N-th time", "1" },
	{ "--disk-max-age SECONDS", "blocks that were written longer ago go; 0: none do", "0" },
	{ "--disk-write-rate BYTES", "write at most so many bytes a second; 0: no limit", "0" },
	{ "--disk-resize", "grow or cut a file of another size; blocks beyond its new end are lost",
	  NULL },
	{ "--disk-buffered", "through the page cache, even where O_DIRECT works", NULL },
	{ "--disk-strict",
	  "refuse a damaged file; else it is renamed to FILE.bad, and a new one made", NULL },
	{ "--key-file FILE",
	  "make the cache with the secret in FILE, 0600, made where there is none",
	  "that of --disk, else random" },
	{ "--remote STORE",
	  "keep blocks of RAM in a store that other machines share: PLUGIN:OPTION=VALUE,...",
	  "none" },
	{ "--remote-tag T", "version of the cached data: processes with another one see none of it",
	  "0" },
	{ "--remote-blocks N", "keys of the store that are remembered here; at most 16M",
	  "4 times RAM, at least 64k" },
	{ "--remote-min-uses N", "as --disk-min-uses", "1" },
	{ "--remote-deadline MS", "a call to the store has so long, 1 to 600000", "2000" },
	{ NULL, "\nKV events, while this process is the writer:", NULL },
	{ "--events ENDPOINT", "publish them there: ipc:///PATH or tcp://HOST:PORT", "none" },
	{ "--events-replay ENDPOINT", "send missed batches there, to subscribers that ask",
	  "none" },
	{ "--events-memory SIZE", "bytes that may wait for all subscribers together", "256M" },
	{ "--topic T", "in front of every batch, at most 255 bytes", "empty" },
	{ "--events-public", "HOST may be * or another address of all networks", NULL },
	{ NULL, "\nMetrics, as the writer and as a standby:", NULL },
	{ "--metrics [ADDR:]PORT",
	  "answer scrapes of /metrics and probes of /healthz and /readyz; without ADDR on 127.0.0.1",
	  "none" },
	{ "--metrics-public", "ADDR may be 0.0.0.0 or another one of all networks", NULL },
	{ NULL, "\nThe process:", NULL },
	{ "--config FILE",
	  "options that are not given here, by their long names, in a file that engines read, too",
	  NULL },
	{ "--standby", "if there is a writer, wait until it is gone, then take over", NULL },
	{ "--foreground", "stay in the foreground, as without --daemonize", NULL },
	{ "--daemonize", "return when the daemon is ready; it logs to syslog", NULL },
	{ "--pidfile FILE", "keep the process id in FILE while it runs", NULL },
	{ "--unlink", "remove the cache at the end, if this process has served it", NULL },
	{ "--quiet", "print warnings and errors only", NULL },
	{ "--log-level LEVEL",
	  "print messages up to this level: err, warning, notice, info, debug, or 0 to 7", "info" },
	{ "-h, --help", "show this text", NULL },
	{ "-V, --version", "show the version", NULL },
	{ NULL, "\nNumbers take the suffixes k, M and G (powers of 1024).", NULL },
	{ NULL,
	  "Exit status: 0 ended by SIGTERM or SIGINT, 1 error, 2 wrong usage,\n"
	  "3 the cache has a writer already.",
	  NULL },
};

static bool set_number(struct daemon *d, unsigned i, const char *text)
{
	uint64_t v;

	if (!cli_count(numbers[i].option, text, numbers[i].min, numbers[i].max, &v))
		return false;
	*(uint32_t *)((char *)&d->cfg + numbers[i].at) = (uint32_t)v;
	return true;
}

static bool add_device(struct daemon *d, const char *device)
{
	size_t used = strlen(d->devices);
	int n = snprintf(d->devices + used, sizeof(d->devices) - used, "%s%s", used ? "," : "",
			 device);

	/* only its form: the writer goes on without a device of that name */
	if (!cli_device(device))
		return false;
	if (n >= 0 && (size_t)n < sizeof(d->devices) - used)
		return true;
	cli_usage("--device: more devices than a cache has room for");
	return false;
}

static bool set_tick(struct daemon *d, const char *text)
{
	uint64_t ms;

	if (strcmp(text, "exact") == 0) {
		d->cfg.tick_us = 1;
		return true;
	}
	if (text[0] < '0' || text[0] > '9') {
		cli_usage("--tick: '%s' is not a number of milliseconds, nor 'exact': 1 to 60000",
			  text);
		return false;
	}
	if (!cli_count("tick", text, 1, 60000, &ms))
		return false;
	d->cfg.tick_us = (uint32_t)ms * 1000;
	return true;
}

static bool set_free_target(struct daemon *d, const char *text)
{
	uint64_t n = 0;

	if (strcmp(text, "-1") && !cli_count("free-target", text, 0, INT32_MAX, &n))
		return false;
	d->cfg.free_target = n ? (int32_t)n : -1;
	return true;
}

static bool set_max_aliases(struct daemon *d, const char *text)
{
	uint64_t n;

	if (!cli_count("max-aliases", text, 0, 1 << 28, &n))
		return false;
	d->cfg.max_aliases = n ? (int32_t)n : -1;
	return true;
}

static bool set_mode(struct daemon *d, const char *text)
{
	char *end;
	unsigned long mode = strtoul(text, &end, 8);

	if (*text < '0' || *text > '7' || *end || !mode || mode & ~0660ul) {
		cli_usage("--mode: '%s' is not an octal mode; only the bits of 0660 are allowed",
			  text);
		return false;
	}
	if ((mode & 0600) != 0600) {
		cli_usage("--mode: '%s': the owner must be able to read and write: 0600 is missing",
			  text);
		return false;
	}
	d->cfg.mode = (uint32_t)mode;
	return true;
}

/* A name or a number, since a container need not know names. */
static bool find_group(const char *text, gid_t *ret)
{
	const struct group *g = getgrnam(text);
	unsigned long long gid;
	char *end;

	errno = 0;
	gid = strtoull(text, &end, 10);
	if (g)
		*ret = g->gr_gid;
	else if (*text >= '0' && *text <= '9' && !*end && !errno && gid < UINT32_MAX)
		*ret = (gid_t)gid;
	else
		return false;
	return true;
}

static bool set_group(struct daemon *d, const char *text)
{
	gid_t gid;

	if (!find_group(text, &gid)) {
		cli_usage("--group: there is no group '%s', and it is no number of one, 0 to %u",
			  text, UINT32_MAX - 1);
		return false;
	}
	d->cfg.gid = dress_gid(gid);
	if (!d->cfg.mode)
		d->cfg.mode = 0660;
	return true;
}

/* "0,2-3" and no more text. */
static bool parse_nodes(const char *text, uint64_t *ret)
{
	unsigned long from, to;
	uint64_t set = 0;
	char *end;

	do {
		if (*text < '0' || *text > '9')
			return false;
		from = to = strtoul(text, &end, 10);
		if (*end == '-') {
			if (end[1] < '0' || end[1] > '9')
				return false;
			to = strtoul(end + 1, &end, 10);
		}
		if (from > to || to > 63)
			return false;
		for (; from <= to; from++)
			set |= UINT64_C(1) << from;
		text = end + 1;
	} while (*end == ',');
	*ret = set;
	return !*end;
}

static bool set_numa(struct daemon *d, const char *text)
{
	static const char *const policies[] = { "default", "interleave", "bind" };
	size_t n = strcspn(text, ":");

	for (uint32_t i = 0; i < 3; i++) {
		if (strlen(policies[i]) != n || strncmp(text, policies[i], n))
			continue;
		d->memory.numa = i; /* in the order of GPC_NUMA_... */
		d->memory.nodes = 0;
		if (!text[n] || (i && parse_nodes(text + n + 1, &d->memory.nodes)))
			return true;
	}
	cli_usage(
		"--numa: '%s' is not default, interleave, bind, nor one of the last two with nodes "
		"from 0 to 63, as in bind:0,2-3",
		text);
	return false;
}

static bool set_layout(struct daemon *d, const char *text)
{
	uint8_t bytes[sizeof(d->cfg.layout)] = { 0 };

	if (cli_hex(text, bytes, sizeof(bytes)) <= 0) {
		cli_usage("--layout: '%s' is not an even number of hex digits, 2 to %zu", text,
			  2 * sizeof(bytes));
		return false;
	}
	memcpy(d->cfg.layout, bytes, sizeof(bytes));
	return true;
}

/* Absolute, since the daemon leaves its folder. */
bool options_path(char ret[PATH_MAX], const char *option, const char *path)
{
	/* it stays for options that are read again in the background */
	static char started[PATH_MAX];
	const char *cwd = "";
	int n;

	if (path[0] != '/' && !started[0] && !getcwd(started, sizeof(started))) {
		cli_error("--%s: %s", option, strerror(errno));
		return false;
	}
	if (path[0] != '/')
		cwd = started;
	n = snprintf(ret, PATH_MAX, "%s%s%s", cwd, cwd[0] ? "/" : "", path);
	if (*path && n >= 0 && n < PATH_MAX)
		return true;
	cli_usage("--%s: the path is %s", option, *path ? "too long" : "empty");
	return false;
}

static bool set_sums(struct daemon *d, const char *arg)
{
	uint64_t n;

	if (!cli_count("sums", arg, 1, GPC_MAX_SUMS, &n))
		return false;
	d->memory.sums = (uint32_t)n;
	return true;
}

static bool set_ram_space(struct daemon *d, const char *arg)
{
	uint64_t n;

	if (!cli_count("ram-space", arg, 0, GPC_MAX_SPACES - 1, &n))
		return false;
	d->cfg.ram_space = (uint32_t)n;
	d->ram_given = true;
	return true;
}

static bool set_unchained(struct daemon *d)
{
	d->cfg.ram_flags = GPC_POOL_UNCHAINED;
	d->ram_given = true;
	return true;
}

static bool set_keep_number(struct daemon *d, int opt, const char *arg)
{
	uint64_t n;

	switch (opt) {
	case OPT_PIECES:
		if (!cli_count("pieces", arg, 1, MOST_PIECES, &n))
			return false;
		d->pieces = (uint32_t)n;
		return true;
	case OPT_SPACE:
		if (!cli_count("space", arg, 0, GPC_MAX_SPACES - 1, &n))
			return false;
		d->space = (uint32_t)n;
		d->space_given = true;
		return true;
	case OPT_SPILL_AHEAD:
		if (!cli_count("spill-ahead", arg, 0, MOST_AHEAD, &n))
			return false;
		d->spill_ahead = (uint32_t)n;
		return true;
	default:
		if (!cli_count("demote-to", arg, 0, GPC_MAX_POOLS - 1, &n))
			return false;
		d->demote_to = (int32_t)n;
		return true;
	}
}

static bool set_log_level(struct daemon *d, const char *text)
{
	d->log_level = say_level_named(text);
	if (d->log_level >= 0)
		return true;
	cli_usage(
		"--log-level: '%s' is no level: emerg, alert, crit, err, warning, notice, info, debug, or 0 to 7",
		text);
	return false;
}

static bool set_option(struct daemon *d, int opt, const char *arg)
{
	switch (opt) {
	case OPT_KEEP:
		d->keep = true;
		return true;
	case OPT_PIECES:
	case OPT_SPACE:
	case OPT_DEMOTE_TO:
	case OPT_SPILL_AHEAD:
		return set_keep_number(d, opt, arg);
	case OPT_RAM_SPACE:
		return set_ram_space(d, arg);
	case OPT_UNCHAINED:
		return set_unchained(d);
	case OPT_DEVICE:
		return add_device(d, arg);
	case OPT_TICK:
		return set_tick(d, arg);
	case OPT_FREE_TARGET:
		return set_free_target(d, arg);
	case OPT_MODE:
		return set_mode(d, arg);
	case OPT_GROUP:
		return set_group(d, arg);
	case OPT_LAYOUT:
		return set_layout(d, arg);
	case OPT_DIR:
		return options_path(d->dir, "dir", arg);
	case OPT_PIDFILE:
		return options_path(d->pidfile, "pidfile", arg);
	case OPT_EVENTS:
		d->events = arg;
		return true;
	case OPT_EVENTS_REPLAY:
		d->events_replay = arg;
		return true;
	case OPT_EVENTS_PUBLIC:
		d->events_public = true;
		return true;
	case OPT_EVENTS_MEMORY:
		return cli_count("events-memory", arg, 1 << 20, UINT64_C(1) << 50,
				 &d->events_memory);
	case OPT_TOPIC:
		d->topic = arg;
		return true;
	case OPT_METRICS:
		d->metrics = arg;
		return true;
	case OPT_METRICS_PUBLIC:
		d->metrics_public = true;
		return true;
	case OPT_BLOCK_BYTES:
		return cli_count("block-bytes", arg, 1, MOST_BYTES, &d->memory.block_bytes);
	case OPT_SUMS:
		return set_sums(d, arg);
	case OPT_NUMA:
		return set_numa(d, arg);
	case OPT_HUGE_DIR:
		return options_path(d->huge_dir, "huge-dir", arg);
	case OPT_KEEP_TOKENS:
		d->cfg.keep_tokens = 1;
		return true;
	case OPT_KEEP_DIGESTS:
		d->cfg.keep_digests = 1;
		return true;
	case OPT_MAX_ALIASES:
		return set_max_aliases(d, arg);
	case OPT_STANDBY:
		d->standby = true;
		return true;
	case OPT_FOREGROUND:
		d->foreground = true;
		return true;
	case OPT_DAEMONIZE:
		d->background = true;
		return true;
	case OPT_UNLINK:
		d->unlink_at_end = true;
		return true;
	case OPT_QUIET:
		d->quiet = true;
		return true;
	case OPT_LOG_LEVEL:
		return set_log_level(d, arg);
	case OPT_CONFIG:
		return true; /* the file is read after the command line */
	default:
		if (opt >= OPT_TIERS && opt < OPT_BEHIND_TIERS)
			return tiers_option(d, opt - OPT_TIERS, arg);
		return set_number(d, (unsigned)(opt - OPT_NUMBER), arg);
	}
}

/* Does SIGHUP change this option? */
static bool is_at_run_time(int opt)
{
	return opt == OPT_QUIET || opt == OPT_LOG_LEVEL ||
	       (opt >= OPT_TIERS && opt < OPT_BEHIND_TIERS &&
		!tiers_option_is_key(opt - OPT_TIERS));
}

static bool is_of_cache(int opt)
{
	switch (opt) {
	case OPT_TICK:
	case OPT_FREE_TARGET:
	case OPT_LAYOUT:
	case OPT_BLOCK_BYTES:
	case OPT_SUMS:
	case OPT_NUMA:
	case OPT_HUGE_DIR:
	case OPT_KEEP_TOKENS:
	case OPT_KEEP_DIGESTS:
	case OPT_RAM_SPACE:
	case OPT_UNCHAINED:
	case OPT_MAX_ALIASES:
		return true;
	default:
		return (opt >= OPT_NUMBER && opt < OPT_DEVICE) ||
		       (opt >= OPT_TIERS && opt < OPT_BEHIND_TIERS &&
			tiers_option_is_key(opt - OPT_TIERS));
	}
}

void options_begin(struct daemon *d)
{
	*d = (struct daemon){ .cfg = { .size = sizeof(d->cfg) },
			      .ready_fd = -1,
			      .pidfile_fd = -1,
			      .demote_to = -1,
			      .log_level = -1,
			      .set_level = -1 };
	for (size_t i = 0; options[i].name; i++)
		d->said[i] = (struct option_said){
			.option = options[i].name,
			.at_run_time = is_at_run_time(options[i].val),
			.of_tiers = options[i].val >= OPT_TIERS,
			.of_cache = is_of_cache(options[i].val),
		};
}

/* Devices, which may be many, are compared as a list. */
static struct option_said *said_of(struct daemon *d, int opt)
{
	size_t i = 0;

	_Static_assert(ARRAY_SIZE(options) < OPTIONS_MOST, "one behind them is empty");
	while (options[i].name && options[i].val != opt)
		i++;
	return &d->said[i];
}

/* line: of the file; 0: on the command line. */
static bool take_said(struct daemon *d, int opt, const char *arg, unsigned line)
{
	struct option_said *said = said_of(d, opt);

	said->place = line ? IN_FILE : ON_LINE;
	said->line = line;
	if (said->option && opt != OPT_DEVICE)
		said->text = arg ? arg : "yes";
	return set_option(d, opt, arg);
}

/* Units and wrappers add options after those that are there, so the last one counts.  But two
 * values of one option are more often a mistake, so a message names them. */
static void say_twice(const char *given[OPT_BEHIND_TIERS], int opt, const char *arg)
{
	const struct option *o = options;

	if (!arg || opt == OPT_DEVICE || opt >= OPT_BEHIND_TIERS)
		return;
	while (o->name && o->val != opt)
		o++;
	if (given[opt] && o->name && strcmp(given[opt], arg))
		cli_error("--%s is given twice, '%s' and '%s': the last one counts", o->name,
			  given[opt], arg);
	given[opt] = arg;
}

/* ---- the file of --config ---- */

struct line { /* the command line */
	struct daemon *d;
	bool has[OPT_BEHIND_TIERS];
	const char *text[OPT_BEHIND_TIERS];
};

/* The command line beats the file: its options also beat those that they exclude. */
static bool is_beaten(const struct line *l, const struct option *o)
{
	static const char *const rivals[][2] = {
		{ "disk-bytes", "disk-blocks" },
		{ "quiet", "log-level" },
		{ "foreground", "daemonize" },
	};
	const struct option *other;

	if (l->has[o->val])
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(rivals); i++)
		for (int k = 0; k < 2; k++)
			if (!strcmp(rivals[i][k], o->name))
				for (other = options; other->name; other++)
					if (!strcmp(rivals[i][!k], other->name) &&
					    l->has[other->val])
						return true;
	return false;
}

static bool is_path(int opt)
{
	return opt == OPT_DIR || opt == OPT_PIDFILE || opt == OPT_HUGE_DIR ||
	       (opt >= OPT_TIERS && tiers_option_is_path(opt - OPT_TIERS));
}

/* -1: neither true nor false. */
static int truth(const char *value)
{
	static const char *const words[] = { "no", "yes", "false", "true", "off", "on", "0", "1" };

	for (int i = 0; i < (int)ARRAY_SIZE(words); i++)
		if (!strcmp(value, words[i]))
			return i & 1;
	return -1;
}

static bool take_devices(struct daemon *d, char *list, unsigned line)
{
	said_of(d, OPT_DEVICE)->place = IN_FILE;
	said_of(d, OPT_DEVICE)->line = line;
	for (char *rest, *one = strtok_r(list, ", ", &rest); one; one = strtok_r(NULL, ", ", &rest))
		if (!add_device(d, one))
			return false;
	return true;
}

static bool take_option(const struct line *l, const struct option *o, const struct config_key *k)
{
	int yes = o->has_arg == no_argument ? truth(k->value) : 1;

	if (yes < 0)
		cli_usage("%s: '%s', yes or no is wanted", k->key, k->value);
	else if (is_path(o->val) && k->value[0] != '/')
		cli_usage(
			"%s: '%s' does not begin with /, and processes of several folders read this file",
			k->key, k->value);
	else if (!yes || is_beaten(l, o))
		return true;
	else if (o->val == OPT_DEVICE)
		return take_devices(l->d, k->value, k->line);
	else
		return take_said(l->d, o->val, o->has_arg == no_argument ? NULL : k->value,
				 k->line);
	return false;
}

static bool take_key(void *arg, const struct config_key *k)
{
	struct line *l = arg;
	const struct option *o = options;
	bool shared = !strcmp(k->section, "gpc");

	if (shared && !strcmp(k->key, "name")) {
		if (!l->d->name)
			l->d->name = k->value;
		return true;
	}
	while (o->name && strcmp(o->name, k->key))
		o++;
	if (!o->name || o->val == OPT_CONFIG || o->val == 'h' || o->val == 'V')
		cli_usage("%s: there is no such key, and '%s' is its value; [%s] has %s", k->key,
			  k->value, k->section,
			  shared ? "name, dir and the options about tiers, as in gpcd(8)"
				 : "the long options of gpcd, as in gpcd(8)");
	else if (shared && o->val != OPT_DIR && o->val < OPT_TIERS)
		cli_usage("%s: '%s': no engine knows it; its section is [gpcd]", k->key, k->value);
	else
		return take_option(l, o, k);
	return false;
}

/* Takes NAME, the words beside it, and the file. */
static int take_rest(struct line *l, int argc, char **argv)
{
	char path[PATH_MAX];
	int status;

	if (optind + 1 < argc)
		return cli_usage("one NAME only: '%s' is one argument too many", argv[optind + 1]);
	l->d->name = argv[optind];
	if (l->has[OPT_CONFIG]) {
		if (!options_path(path, "config", l->text[OPT_CONFIG]))
			return EXIT_USAGE;
		status = config_read(l->text[OPT_CONFIG], path, take_key, l);
		if (status)
			return status;
	}
	return l->d->name ? 0 : cli_usage("which cache? NAME is missing");
}

static unsigned line_of(const void *arg, const char *option, size_t len)
{
	const struct daemon *d = arg;

	for (const struct option_said *s = d->said; s->option; s++)
		if (s->place == IN_FILE && !strncmp(s->option, option, len) && !s->option[len])
			return s->line;
	return 0;
}

void options_values(const struct daemon *d)
{
	cli_values(d->config, line_of, d);
}

/* -1: go on; or EXIT_USAGE after a message. */
static int check(struct daemon *d)
{
	int status;

	if (d->foreground && d->background)
		return cli_usage("--foreground and --daemonize exclude each other: give one");
	if (d->quiet && d->log_level >= 0)
		return cli_usage(
			"--quiet and --log-level exclude each other: --quiet is --log-level warning");
	if (!cli_name(d->name))
		return cli_bad_name(d->name);
	status = options_check_role(d);
	if (status < 0)
		status = endpoint_check(d);
	if (status < 0)
		status = tiers_check(d);
	if (status < 0)
		status = options_check_keep(d);
	if (status >= 0)
		return status;
	status = d->keep ? 0 : options_check_cache(d);
	return status ? status : -1;
}

int options_parse(struct daemon *d, int argc, char **argv)
{
	struct line l = { .d = d };
	int opt, status = 0;

	d->argc = argc;
	d->argv = argv;
	cli_values(NULL, NULL, NULL);
	while ((opt = cli_option(argc, argv, options, &status)) > 0) {
		if (opt == 'h')
			return cli_show_help(help, sizeof(help) / sizeof(help[0]));
		if (!take_said(d, opt, optarg, 0))
			return EXIT_USAGE;
		say_twice(l.text, opt, optarg);
		l.has[opt] = true;
	}
	if (opt < 0)
		return status;
	status = take_rest(&l, argc, argv);
	if (status)
		return status;
	d->config = l.text[OPT_CONFIG];
	options_values(d);
	return check(d);
}
