/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of gpc-replay.
 * Tests: t/tools/replay-options.t t/daemon/defaults.t t/tools/replay-result.t */
#include "config.h"

#include "tools/replay/replay.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* limits of a cache, as gpcd has them */
enum { POOL_MOST = 1 << 24, KILLS_MOST = 10000, TOKENS_MOST = 1 << 16 };

static const struct option options[] = { { "workers", required_argument, NULL, 'w' },
					 { "vram-blocks", required_argument, NULL, 'v' },
					 { "ram-blocks", required_argument, NULL, 'r' },
					 { "block-tokens", required_argument, NULL, 'b' },
					 { "payload", required_argument, NULL, 'p' },
					 { "pieces", required_argument, NULL, 'k' },
					 { "name", required_argument, NULL, 'n' },
					 { "dir", required_argument, NULL, 'd' },
					 { "device", required_argument, NULL, 'D' },
					 { "fetch", no_argument, NULL, 'f' },
					 { "kill", required_argument, NULL, 'K' },
					 { "disk-blocks", required_argument, NULL, 'B' },
					 { "disk", required_argument, NULL, 'F' },
					 { "restart", required_argument, NULL, 'R' },
					 { "plot", required_argument, NULL, 'P' },
					 { "sticky", required_argument, NULL, 's' },
					 { "concurrency", required_argument, NULL, 'c' },
					 { "json", no_argument, NULL, 'j' },
					 { "worker", required_argument, NULL,
					   'W' }, /* the parent starts its workers with it */
					 { "help", no_argument, NULL, 'h' },
					 { "version", no_argument, NULL, 'V' },
					 { NULL, 0, NULL, 0 } };

static const struct cli_help help[] = {
	{ NULL, "Usage: gpc-replay TRACE [OPTION]...", NULL },
	{ NULL,
	  "Replay recorded requests against a cache.  TRACE has one JSON object in each\n"
	  "line; '-' is the standard input.\n",
	  NULL },
	{ "--workers N", "processes that share the requests, 1 to 240", "1" },
	{ "--vram-blocks V", "blocks of VRAM, 1 to 16M", "10000" },
	{ "--ram-blocks R", "blocks of RAM that VRAM demotes to, up to 16M; 0: none", "0" },
	{ "--block-tokens B",
	  "tokens in a block, 1 to 64k; changes no result where rows are whole prompts",
	  "16; 512 where rows are turns" },
	{ "--payload BYTES",
	  "bytes of memory behind each block, 24 to 16M; with --device, in "
	  "pools with memory, VRAM there and RAM in shared memory",
	  "64" },
	{ "--pieces K",
	  "pieces of a block in VRAM, those of one number in a row; divides "
	  "--payload",
	  "as many as have 256 bytes, at most 64" },
	{ "--name NAME", "use the cache of a running gpcd, not a cache of its own", NULL },
	{ "--dir DIR", "folder of the cache's files", "/dev/shm" },
	{ "--device D",
	  "match on host, cuda:N or GPU-UUID, where a cache of its own gets a "
	  "mirror; none: match in shared memory",
	  "none" },
	{ "--fetch",
	  "with --payload and --device: each worker has VRAM of its own, and --ram-blocks "
	  "are shared by all; blocks come by gpc_fetch",
	  NULL },
	{ "--kill N",
	  "with --fetch: kill so many workers, one after the other, start each again and "
	  "verify what it left",
	  "0" },
	{ "--disk-blocks C",
	  "with --payload, --device and --ram-blocks: blocks of a tier on disk, where those go that "
	  "RAM gives up, up to 16M; 0: none",
	  "0" },
	{ "--disk FILE", "its file, which must not exist, and is removed at the end",
	  "one in /var/tmp" },
	{ "--restart N", "with --disk-blocks: kill gpcd so many times and start it again", "0" },
	{ "--plot FILE",
	  "replay nothing: compute the hit rates of all capacities, of one cache for "
	  "all workers and of one for each, and draw them as SVG",
	  NULL },
	{ "--sticky HOW",
	  "all requests of a session go to one worker: session, to the least loaded "
	  "when it begins; hash, to that of its name",
	  "requests are dealt in turn" },
	{ "--concurrency S", "where rows are turns: sessions at a time, 1 to 1M",
	  "the number that their timestamps imply; 64 if all timestamps are the same" },
	{ "--json", "print one JSON object", NULL },
	{ "-h, --help", "show this text", NULL },
	{ "-V, --version", "show the version", NULL },
	{ NULL, "\nNumbers take the suffixes k, M and G (powers of 1024).", NULL },
	{ NULL, "With --name, the sizes that you give must be those of the cache.", NULL },
	{ NULL,
	  "Exit status: 0 done, 1 a wrong block or a failure, 2 wrong usage,\n"
	  "130 interrupted.",
	  NULL },
};

static bool set_sticky(struct args *a, const char *arg)
{
	a->sticky_text = arg;
	a->sticky = !strcmp(arg, "session") ? STICKY_SESSION
		    : !strcmp(arg, "hash")  ? STICKY_HASH
					    : STICKY_NONE;
	if (a->sticky == STICKY_NONE)
		cli_usage("--sticky: '%s' is neither session nor hash", arg);
	return a->sticky != STICKY_NONE;
}

static bool set_option(struct args *a, int opt, const char *arg)
{
	switch (opt) {
	case 'w':
		return cli_count("workers", arg, 1, WORKERS_MAX, &a->workers);
	case 'p':
		a->payload_given = true;
		return cli_count("payload", arg, PAYLOAD_MIN, PAYLOAD_MAX, &a->payload);
	case 'k':
		return cli_count("pieces", arg, 1, PAYLOAD_MAX, &a->pieces);
	case 'v':
		a->vram_given = true;
		return cli_count("vram-blocks", arg, 1, POOL_MOST, &a->vram);
	case 'r':
		a->ram_given = true;
		return cli_count("ram-blocks", arg, 0, POOL_MOST, &a->ram);
	case 'b':
		a->tokens_given = true;
		return cli_count("block-tokens", arg, 1, TOKENS_MOST, &a->tokens);
	case 'n':
		a->name = arg;
		return true;
	case 'd':
		a->dir = arg;
		return true;
	case 'D':
		a->device = arg;
		return true;
	case 'f':
		a->fetch = true;
		return true;
	case 'P':
		a->plot = arg;
		return true;
	case 'B':
		return cli_count("disk-blocks", arg, 0, POOL_MOST, &a->disk);
	case 'F':
		a->disk_path = arg;
		return true;
	case 'R':
		return cli_count("restart", arg, 0, KILLS_MOST, &a->restarts);
	case 's':
		return set_sticky(a, arg);
	case 'c':
		return cli_count("concurrency", arg, 1, CONCURRENCY_MOST, &a->concurrency);
	case 'K':
		return cli_count("kill", arg, 0, KILLS_MOST, &a->kills);
	default:
		a->json = true;
		return true;
	}
}

/* Sets the places of the pieces: -1 to go on, or the exit status. */
static int set_pieces(struct args *a)
{
	uint64_t k = PIECES_MOST;

	a->in_pools = a->payload_given && a->device && strcmp(a->device, "none");
	if (a->pieces && a->payload % a->pieces)
		return cli_usage("--pieces: %llu does not divide --payload %llu",
				 (unsigned long long)a->pieces, (unsigned long long)a->payload);
	while (k > 1 && (a->payload % k || a->payload / k < PIECE_MIN))
		k--;
	if (!a->pieces)
		a->pieces = k;
	return -1;
}

/* The RAM has the last space, and each worker has one before that. */
static int check_sizes(const struct args *a)
{
	if (a->fetch && a->workers >= GPC_MAX_SPACES)
		return cli_usage(
			"--fetch: %llu workers are too many, since each has a space: at most %d",
			(unsigned long long)a->workers, GPC_MAX_SPACES - 1);
	if (a->disk_path && strlen(a->disk_path) >= PATH_MAX)
		return cli_usage("--disk: the path is too long");
	return -1;
}

int options_parse(struct args *a, int argc, char **argv)
{
	uint64_t number;
	int opt, status = 0;

	while ((opt = cli_option(argc, argv, options, &status)) > 0) {
		if (opt == 'h')
			return cli_show_help(help, ARRAY_SIZE(help));
		if (opt == 'W')
			return cli_count("worker", optarg, 0, WORKERS_MAX - 1, &number)
				       ? worker_main((uint32_t)number)
				       : EXIT_USAGE;
		if (!set_option(a, opt, optarg))
			return EXIT_USAGE;
	}
	if (opt < 0)
		return status;
	if (optind == argc)
		return cli_usage("which TRACE?");
	if (optind + 1 < argc)
		return cli_usage("one TRACE only: '%s' is one argument too many", argv[optind + 1]);
	a->trace = argv[optind];
	if (a->name && !cli_name(a->name))
		return cli_bad_name(a->name);
	if (a->device && strlen(a->device) >= sizeof(((struct job *)0)->device))
		return cli_usage("--device: the name is too long");
	if (a->device && !cli_device(a->device))
		return EXIT_USAGE;
	if (strlen(a->dir) >= PATH_MAX - 128)
		return cli_usage("--dir: the path is too long");
	status = options_legal(a);
	if (status < 0)
		status = set_pieces(a);
	return status >= 0 ? status : check_sizes(a);
}
