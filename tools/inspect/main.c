/* SPDX-License-Identifier: Apache-2.0 */
/* gpc-inspect - looks at prefix caches from outside, and acts only when it is told to.
 * Tests: t/tools/inspect-damage.t t/tools/inspect.t */
#include "config.h"

#include "tools/inspect/inspect.h"

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command {
	const char *name;
	int (*run)(struct inspect *in);
	unsigned options; /* OPT_ bits */
	bool takes_name, takes_key;
	const char *usage, *help;
} commands[] = {
	{ "list", inspect_list, 0, false, false, "", "every cache in one line" },
	{ "stat", inspect_stat, OPT_WATCH | OPT_LIMIT, true, false, "[NAME]",
	  "geometry, pools, mirrors, counters; of all caches" },
	{ "top", inspect_top, OPT_WATCH, true, false, "[NAME]",
	  "rates, pools and processes, again and again" },
	{ "peers", inspect_peers, 0, true, false, "[NAME]",
	  "the attached processes, and the blocks that they hold" },
	{ "ls", inspect_ls, OPT_POOL | OPT_LIMIT | OPT_CSV, true, false, "[NAME]",
	  "the live blocks, parents before children" },
	{ "lookup", inspect_lookup, 0, true, true, "[NAME] KEY",
	  "the blocks that have a key (32 hex digits)" },
	{ "hot", inspect_hot, OPT_POOL | OPT_LIMIT | OPT_LOOKS, true, false, "[NAME]",
	  "prefixes, roots and tags that are used most" },
	{ "slow", inspect_slow, OPT_LIMIT, true, false, "[NAME]",
	  "calls that have waited long for the writer" },
	{ "check", inspect_check, 0, true, false, "[NAME]", "verify the whole cache" },
	{ "watch", inspect_watch, OPT_LIMIT | OPT_SINCE, true, false, "[NAME]",
	  "what is stored, removed and moved, as it happens" },
	{ "metrics", inspect_metrics, OPT_LIST, true, false, "[NAME]",
	  "one cache, or all, for Prometheus" },
	{ "command", inspect_command, OPT_CONFIG, true, false, "[NAME]",
	  "the command line of gpcd that makes such a cache" },
	{ "ping", inspect_ping, OPT_PUT | OPT_POOL | OPT_DEADLINE, true, false, "[NAME]",
	  "does its writer answer, and how soon?" },
	{ "env", inspect_env, 0, false, false, "",
	  "build, machine, shared memory, limits, caches" },
	{ "reap", inspect_reap, 0, true, false, "[NAME]",
	  "clear the seats of processes that have died or left" },
	{ "release", inspect_release, OPT_PEER | OPT_YES | OPT_DEADLINE, true, false, "NAME",
	  "kill the process of --peer, and free what it holds" },
	{ "set", inspect_set, OPT_POOL, true, false, "NAME [K=V]...",
	  "change settings of a cache that runs, or show them" },
	{ "clear", inspect_clear, OPT_POOL | OPT_TAG | OPT_IDLE, true, false, "NAME",
	  "forget all blocks, or those of a pool or a tag" },
	{ "drop", inspect_drop, OPT_POOL, true, true, "NAME KEY",
	  "forget the blocks of a key, and those after them" },
	{ "rm", inspect_rm, OPT_FORCE | OPT_STALE | OPT_DRY, true, false, "NAME | --stale",
	  "remove a cache, or all of yours that no process uses" },
};

static const struct option options[] = { { "json", no_argument, NULL, 'j' },
					 { "dir", required_argument, NULL, 'd' },
					 { "pool", required_argument, NULL, 'p' },
					 { "limit", required_argument, NULL, 'n' },
					 { "csv", no_argument, NULL, 'c' },
					 { "tag", required_argument, NULL, 't' },
					 { "if-idle", no_argument, NULL, 'I' },
					 { "since", required_argument, NULL, 'i' },
					 { "watch", required_argument, NULL, 'w' },
					 { "force", no_argument, NULL, 'f' },
					 { "stale", no_argument, NULL, 's' },
					 { "dry-run", no_argument, NULL, 'N' },
					 { "list", no_argument, NULL, 'l' },
					 { "put", no_argument, NULL, 'u' },
					 { "peer", required_argument, NULL, 'P' },
					 { "yes", no_argument, NULL, 'y' },
					 { "config", no_argument, NULL, 'C' },
					 { "looks", required_argument, NULL, 'L' },
					 { "deadline", required_argument, NULL, 'D' },
					 { "help", no_argument, NULL, 'h' },
					 { "version", no_argument, NULL, 'V' },
					 { NULL, 0, NULL, 0 } };

static const struct cli_help help[] = {
	{ NULL, "\nNAME may be left out if there is only one cache.\n", NULL },
	{ "--json",
	  "print one JSON value, watch and stat --watch one a line; keys and stamps are hex strings",
	  NULL },
	{ "--dir DIR", "folder of the caches' files", "/dev/shm" },
	{ "--pool N", "ls, clear, drop, hot, ping --put, set: blocks of this pool only",
	  "all pools" },
	{ "--limit N",
	  "ls, watch, stat --watch, hot, slow: at most so many blocks, changes or lines",
	  "no limit; hot: 20" },
	{ "--csv", "ls: print comma-separated values", NULL },
	{ "--tag T", "clear: blocks of this tag only", "all tags" },
	{ "--if-idle", "clear: do nothing if a process holds one of the blocks", NULL },
	{ "--since SEQ", "watch: begin with this change, 0: the oldest that is kept",
	  "what comes next" },
	{ "--watch SECONDS",
	  "stat: look again every so many seconds, a line with rates each time; top: look so "
	  "often, 1 to 86400",
	  "stat: look once; top: 2" },
	{ "--force", "rm: remove the name even if processes use the cache", NULL },
	{ "--stale",
	  "rm: remove every cache of yours that no process uses, or those whose name is like PATTERN, "
	  "as in 'test-*'",
	  NULL },
	{ "--dry-run", "rm: say what would be removed, and remove nothing", NULL },
	{ "--list", "metrics: which there are, with type, labels and help", NULL },
	{ "--put",
	  "ping: store, read and drop a block that is free, in a pool that has one to spare",
	  NULL },
	{ "--deadline MS", "ping, release: it has so long, 1 to 600000",
	  "ping: 1000; release: 10000" },
	{ "--peer N", "release: the seat, as peers shows it, 0 to 249", NULL },
	{ "--yes", "release: without a question", NULL },
	{ "--looks N", "hot: so many, a quarter of a second apart, 2 to 100000", "20" },
	{ "--config", "command: as a file for gpcd --config", NULL },
	{ "-h, --help", "show this text", NULL },
	{ "-V, --version", "show the version", NULL },
	{ NULL,
	  "\nExit status: 0 done, 1 failure, 2 wrong usage.  lookup: 1 when no block has the\n"
	  "key.  check: 1 when it finds violations, 3 when the cache cannot be opened.\n"
	  "ping: 1 when no writer answers, 3 when the cache cannot be opened, 4 when --put\n"
	  "fails.",
	  NULL },
};

static int show_help(void)
{
	fputs("Usage: gpc-inspect [OPTION]... COMMAND [ARGUMENT]...\n"
	      "Look at the prefix caches of this machine, live, dead or damaged.\n\n",
	      stdout);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		printf("  %-7s %-15s %s\n", commands[i].name, commands[i].usage, commands[i].help);
	return cli_show_help(help, ARRAY_SIZE(help));
}

const char *inspect_dir(const struct inspect *in)
{
	return in->dir ? in->dir : "/dev/shm";
}

/* ---- names ---- */

/* As gpc_segment(5) has them: p, 16 digits, and of further files .1 to .3. */
bool inspect_is_memory(const char *suffix)
{
	const char *end = suffix + 17;

	if (suffix[0] != 'p' || strspn(suffix + 1, "0123456789abcdef") != 16)
		return false;
	return !end[0] || (end[0] == '.' && end[1] >= '1' && end[1] <= '3' && !end[2]);
}

/* Takes NAME from "gpc.NAME.SUFFIX" into ret; suffix NULL stands for any of the three, or that of
 * a memory. */
static bool name_of_file(const char *file, const char *suffix, char ret[GPC_MAX_NAME + 1])
{
	static const char *const suffixes[] = { "idx", "ctl", "lock" };
	const char *dot = strrchr(file, '.');
	bool known;
	size_t len;

	if (dot && dot - file > 18 && dot[-18] == '.' && inspect_is_memory(dot - 17))
		dot -= 18; /* a further file of a memory */
	if (strncmp(file, "gpc.", 4) || !dot || dot < file + 5)
		return false;
	known = inspect_is_memory(dot + 1);
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++)
		known = known || strcmp(dot + 1, suffixes[i]) == 0;
	len = (size_t)(dot - file) - 4;
	if (!known || (suffix && strcmp(dot + 1, suffix)) || len > GPC_MAX_NAME)
		return false;
	memcpy(ret, file + 4, len);
	ret[len] = 0;
	return cli_name(ret);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_new(char **names, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (strcmp(names[i], name) == 0)
			return false;
	return true;
}

/* Takes over the name; -1 when there is no memory. */
static int add_name(char ***names, int n, char *name)
{
	char **more = name ? realloc(*names, (size_t)(n + 1) * sizeof(**names)) : NULL;

	if (!more) {
		free(name);
		return -1;
	}
	more[n] = name;
	*names = more;
	return n + 1;
}

int inspect_scan(const struct inspect *in, const char *suffix, char ***ret_names)
{
	DIR *dir = opendir(inspect_dir(in));
	char name[GPC_MAX_NAME + 1], **names = NULL;
	const struct dirent *entry;
	int n = 0;

	if (!dir) {
		cli_error("%s: %s", inspect_dir(in), strerror(errno));
		return -1;
	}
	while (n >= 0 && (entry = readdir(dir)))
		if (name_of_file(entry->d_name, suffix, name) && is_new(names, n, name)) {
			int grown = add_name(&names, n, strdup(name));

			if (grown < 0) {
				cli_error("out of memory");
				inspect_free_names(names, n);
				names = NULL;
			}
			n = grown;
		}
	closedir(dir);
	if (n > 1)
		qsort(names, (size_t)n, sizeof(*names), by_name);
	*ret_names = names;
	return n;
}

void inspect_free_names(char **names, int n)
{
	for (int i = 0; i < n; i++)
		free(names[i]);
	free(names);
}

/* Names as many as a line has room for. */
static int name_them(char **names, int n)
{
	char text[1024] = "";
	size_t used = 0;
	int i;

	for (i = 0; i < n && used + strlen(names[i]) + 2 < sizeof(text); i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i ? ", " : "",
					 names[i]);
	return cli_usage("there are %d caches; name one of them: %s%s", n, text,
			 i < n ? ", ..." : "");
}

int inspect_name(struct inspect *in)
{
	static char only[GPC_MAX_NAME + 1];
	char **names;
	int n, status = 0;

	if (in->name)
		return 0;
	n = inspect_scan(in, "idx", &names);
	if (n < 0)
		return in->cannot_open;
	if (n == 1) {
		snprintf(only, sizeof(only), "%s", names[0]);
		in->name = only;
	} else if (!n) {
		cli_error("there is no cache in %s; --dir looks elsewhere", inspect_dir(in));
		status = in->cannot_open;
	} else {
		status = name_them(names, n);
	}
	inspect_free_names(names, n);
	return status;
}

/* ---- attaching ---- */

int inspect_attach(const struct inspect *in, const char *name, uint32_t flags, gpc **ret)
{
	const struct gpc_attach_options opt = {
		.size = sizeof(opt),
		.dir = in->dir,
		.label = "gpc-inspect",
	};

	return gpc_attach(name, &opt, flags, ret);
}

int inspect_open(struct inspect *in, uint32_t flags, gpc **ret)
{
	int status = inspect_name(in), r;

	if (status)
		return status;
	r = inspect_attach(in, in->name, flags, ret);
	if (r >= 0)
		return 0;
	cli_cache_error(r, in->name);
	return in->cannot_open;
}

/* ---- command line ---- */

/* Takes an option without a value; false if it is none of these. */
static bool set_flag(struct inspect *in, int opt, unsigned *given)
{
	switch (opt) {
	case 'j':
		in->json = true;
		break;
	case 'f':
		in->force = true;
		*given |= OPT_FORCE;
		break;
	case 's':
		in->stale = true;
		*given |= OPT_STALE;
		break;
	case 'N':
		in->dry_run = true;
		*given |= OPT_DRY;
		break;
	case 'c':
		in->csv = true;
		*given |= OPT_CSV;
		break;
	case 'l':
		in->list = true;
		*given |= OPT_LIST;
		break;
	case 'C':
		in->config = true;
		*given |= OPT_CONFIG;
		break;
	case 'y':
		in->yes = true;
		*given |= OPT_YES;
		break;
	case 'u':
		in->put = true;
		*given |= OPT_PUT;
		break;
	case 'I':
		in->if_idle = true;
		*given |= OPT_IDLE;
		break;
	default:
		return false;
	}
	return true;
}

static int set_option(struct inspect *in, int opt, unsigned *given)
{
	uint64_t v;

	if (set_flag(in, opt, given))
		return 0;
	switch (opt) {
	case 'd':
		in->dir = optarg;
		break;
	case 't':
		if (!cli_count("tag", optarg, 1, UINT32_MAX, &v))
			return EXIT_USAGE;
		in->tag = (uint32_t)v;
		*given |= OPT_TAG;
		break;
	case 'p':
		if (!cli_count("pool", optarg, 0, GPC_MAX_POOLS - 1, &v))
			return EXIT_USAGE;
		in->pool = (int)v;
		*given |= OPT_POOL;
		break;
	case 'L':
		if (!cli_count("looks", optarg, 2, 100000, &in->looks))
			return EXIT_USAGE;
		*given |= OPT_LOOKS;
		break;
	case 'P':
		if (!cli_count("peer", optarg, 0, GPC_MAX_PEERS - 1, &v))
			return EXIT_USAGE;
		in->peer = (int)v;
		*given |= OPT_PEER;
		break;
	case 'w':
		if (!cli_count("watch", optarg, 1, 86400, &in->watch))
			return EXIT_USAGE;
		*given |= OPT_WATCH;
		break;
	case 'D':
		if (!cli_count("deadline", optarg, 1, 600000, &in->deadline))
			return EXIT_USAGE;
		*given |= OPT_DEADLINE;
		break;
	case 'i':
		if (!cli_count("since", optarg, 0, UINT64_MAX - 1, &in->since))
			return EXIT_USAGE;
		*given |= OPT_SINCE;
		break;
	default:
		if (!cli_count("limit", optarg, 0, UINT64_MAX, &in->limit))
			return EXIT_USAGE;
		*given |= OPT_LIMIT;
	}
	return 0;
}

/* Refuses an option that this command does not take, while another one does. */
static int refuse_option(const struct command *cmd, unsigned bits)
{
	static const struct {
		unsigned bit;
		const char *name;
	} names[] = {
		{ OPT_POOL, "pool" },         { OPT_LIMIT, "limit" }, { OPT_FORCE, "force" },
		{ OPT_STALE, "stale" },       { OPT_CSV, "csv" },     { OPT_TAG, "tag" },
		{ OPT_IDLE, "if-idle" },      { OPT_SINCE, "since" }, { OPT_WATCH, "watch" },
		{ OPT_LIST, "list" },         { OPT_DRY, "dry-run" }, { OPT_PUT, "put" },
		{ OPT_DEADLINE, "deadline" }, { OPT_PEER, "peer" },   { OPT_YES, "yes" },
		{ OPT_CONFIG, "config" },     { OPT_LOOKS, "looks" },
	};
	char owners[128] = "";
	size_t i = 0, n, left = 0, used = 0;

	while (!(bits & names[i].bit))
		i++;
	for (n = 0; n < ARRAY_SIZE(commands); n++)
		left += !!(commands[n].options & names[i].bit);
	for (n = 0; n < ARRAY_SIZE(commands); n++) {
		if (!(commands[n].options & names[i].bit))
			continue;
		left--;
		used += (size_t)snprintf(owners + used, sizeof(owners) - used, "%s%s",
					 !used  ? ""
					 : left ? ", "
						: " and ",
					 commands[n].name);
	}
	return cli_usage("%s: --%s is an option of %s", cmd->name, names[i].name, owners);
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

static int refuse_command(const char *name)
{
	char all[192] = "";

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? ", " : "",
			 commands[i].name);
	return cli_usage("there is no command '%s'; there are %s", name, all);
}

/* Takes the arguments after the command: [NAME] and, for lookup and drop, KEY. */
static int take_arguments(struct inspect *in, const struct command *cmd, int argc, char **argv)
{
	if (cmd->takes_key) {
		if (!argc)
			return cli_usage("%s: KEY is missing", cmd->name);
		in->key = argv[--argc];
	}
	if (argc && cmd->takes_name) {
		in->name = argv[0];
		argc--;
	}
	if (cmd->run == inspect_set) {
		in->words = argv + 1;
		in->nwords = argc;
		argc = 0;
	}
	if (argc)
		return cli_usage("%s: '%s' is one argument too many", cmd->name,
				 argv[cmd->takes_name ? 1 : 0]);
	if (in->name && !in->stale && !cli_name(in->name))
		return cli_bad_name(in->name);
	return -1;
}

/* -1: go on; otherwise the exit status. */
static int parse(struct inspect *in, const struct command **ret, int argc, char **argv)
{
	const struct command *cmd;
	unsigned given = 0;
	int opt, status = 0;

	while ((opt = cli_option(argc, argv, options, &status)) > 0) {
		if (opt == 'h')
			return show_help();
		if (set_option(in, opt, &given))
			return EXIT_USAGE;
	}
	if (opt < 0)
		return status;
	if (optind == argc)
		return cli_usage("a COMMAND is missing");
	cmd = find_command(argv[optind]);
	if (!cmd)
		return refuse_command(argv[optind]);
	if (given & ~cmd->options)
		return refuse_option(cmd, given & ~cmd->options);
	if (cmd->run == inspect_stat && (given & OPT_LIMIT) && !(given & OPT_WATCH))
		return cli_usage("stat: --limit goes with --watch");
	*ret = cmd;
	in->command = cmd->name;
	return take_arguments(in, cmd, argc - optind - 1, argv + optind + 1);
}

int main(int argc, char **argv)
{
	struct inspect in = {
		.pool = -1,
		.peer = -1,
		.limit = UINT64_MAX,
		.since = UINT64_MAX,
		.cannot_open = EXIT_RUNTIME,
	};
	const struct command *cmd = NULL;
	int status;

	cli_init("gpc-inspect");
	status = parse(&in, &cmd, argc, argv);
	if (status >= 0)
		return status;
	return cli_finish(cmd->run(&in));
}
