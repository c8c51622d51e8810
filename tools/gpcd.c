/* SPDX-License-Identifier: Apache-2.0 */
/* gpcd - the writer of one cache, as a daemon.
 *
 * Makes the cache or attaches to it, takes the writer's seat, serves until SIGTERM or
 * SIGINT.  The cache stays when gpcd goes (a standby or the next gpcd goes on with it)
 * unless --unlink says otherwise.  "Ready" means: serving, or, as a standby, waiting
 * for the seat. */
#include "config.h"

#include "cli.h"

#include "gpc.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

enum {
	EXIT_SEAT_TAKEN = 3,
	TURN_MS = 200,               /* longest sleep between two looks at `stopping` */
};

struct daemon {
	const char *name;
	struct gpc_config cfg;
	char devices[64];
	char pidfile[PATH_MAX], dir[PATH_MAX];
	bool create;                 /* a geometry was given: make it if it is absent */
	bool standby, background, quiet, unlink_at_end;
	int ready_fd;                /* --daemonize: the parent waits for one byte here */
	bool ready, served;
	bool made_pidfile;           /* it was not there before us */
};

static volatile sig_atomic_t stopping;       /* the signal that ends it */
static bool to_syslog;

/* ---- what it says ---- */

static void say(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(int level, const char *fmt, ...)
{
	char line[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (to_syslog)
		syslog(level, "%s", line);
	else
		cli_error("%s", line);
}

static void log_library(void *arg, int level, const char *text)
{
	const struct daemon *d = arg;

	if (level <= (d->quiet ? LOG_WARNING : LOG_INFO))
		say(level, "%s: %s", d->name, text);
}

/* One datagram to the service manager that started us; nobody there is fine. */
static void notify(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void notify(const char *fmt, ...)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	char text[512];
	size_t len;
	va_list ap;
	int fd;

	if (!path || (path[0] != '/' && path[0] != '@') ||
	    strlen(path) >= sizeof(to.sun_path))
		return;
	len = strlen(path);
	memcpy(to.sun_path, path, len + 1);
	if (path[0] == '@')
		to.sun_path[0] = 0;  /* abstract: the length counts, no final 0 */
	else
		len++;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (sendto(fd, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&to,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0 &&
	    errno != ECONNREFUSED)
		say(LOG_WARNING, "cannot notify %s: %s", path, strerror(errno));
	close(fd);
}

/* ---- command line ---- */

static const struct number {
	const char *option;
	uint64_t min, max;
	size_t at;                   /* in struct gpc_config, a u32 */
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

enum {
	OPT_NUMBER = 256,            /* + index into numbers */
	OPT_DEVICE = OPT_NUMBER + NUMBERS,
	OPT_TICK, OPT_AHEAD, OPT_MODE, OPT_GROUP, OPT_DIR, OPT_LAYOUT, OPT_PIDFILE,
	OPT_STANDBY, OPT_FOREGROUND, OPT_DAEMONIZE, OPT_UNLINK, OPT_QUIET,
};

static const struct option options[] = {
	{ "block-size", required_argument, NULL, OPT_NUMBER + 0 },
	{ "max-blocks", required_argument, NULL, OPT_NUMBER + 1 },
	{ "vram-blocks", required_argument, NULL, OPT_NUMBER + 2 },
	{ "ram-blocks", required_argument, NULL, OPT_NUMBER + 3 },
	{ "max-peers", required_argument, NULL, OPT_NUMBER + 4 },
	{ "max-pools", required_argument, NULL, OPT_NUMBER + 5 },
	{ "quarantine", required_argument, NULL, OPT_NUMBER + 6 },
	{ "quota", required_argument, NULL, OPT_NUMBER + 7 },
	{ "device", required_argument, NULL, OPT_DEVICE },
	{ "tick", required_argument, NULL, OPT_TICK },
	{ "ahead", required_argument, NULL, OPT_AHEAD },
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
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ NULL, 0, NULL, 0 }
};

static const char help[] =
"Usage: gpcd NAME --block-size N [OPTION]...\n"
"       gpcd NAME [--standby] [OPTION]...\n"
"Serve the prefix cache NAME as its writer, made on the way if it is absent.\n"
"Without --block-size the cache must exist.\n"
"\n"
"The cache:\n"
"  --block-size N    tokens a block\n"
"  --max-blocks N    records: all pools that will ever be present at once\n"
"  --vram-blocks N   make pool 0, VRAM, of N blocks\n"
"  --ram-blocks N    make pool 1, RAM, of N blocks, which pool 0 demotes to\n"
"  --max-peers N     seats for processes\n"
"  --max-pools N     room for pools\n"
"  --device D        keep a mirror on none, host or cuda:N; may be repeated\n"
"  --tick exact|MS   step of recency: each touching call, or milliseconds (1)\n"
"  --ahead N         blocks kept free ahead of demand (64); 0: capacity is exact\n"
"  --quarantine MS   delay before blocks that a dead process wrote are reused\n"
"  --quota N         most blocks one process may hold reserved\n"
"  --mode OCTAL      of the segments: 0600, or 0660 with --group\n"
"  --group NAME      group that may attach\n"
"  --layout HEX      fingerprint of model and block layout that attachers must bring\n"
"  --dir DIR         tmpfs or hugetlbfs directory (/dev/shm)\n"
"\n"
"The process:\n"
"  --standby         wait until the present writer is gone, then take over\n"
"  --foreground      stay (the default)\n"
"  --daemonize       return once ready; the daemon logs to syslog\n"
"  --pidfile FILE    the process id, while it runs\n"
"  --unlink          remove the cache at the end; without it the cache stays\n"
"  --quiet           say only what is wrong\n"
"  --help, --version\n"
"\n"
"Numbers take the suffixes k, M and G (powers of 1024).\n"
"Exit status: 0 after SIGTERM or SIGINT, 1 error, 2 usage, 3 it has a writer already.\n";

static bool set_number(struct daemon *d, unsigned i, const char *text)
{
	uint64_t v;

	if (!cli_count(numbers[i].option, text, numbers[i].min, numbers[i].max, &v))
		return false;
	*(uint32_t *)((char *)&d->cfg + numbers[i].at) = (uint32_t)v;
	return true;
}

/* Only its form: without a device of that name the writer goes on as well. */
static bool is_device(const char *device)
{
	if (strcmp(device, "none") == 0 || strcmp(device, "host") == 0)
		return true;
	if (strncmp(device, "cuda:", 5) == 0)
		return device[5] && !device[5 + strspn(device + 5, "0123456789")];
	return strncmp(device, "GPU-", 4) == 0 && device[4] && !strchr(device, ',');
}

static bool add_device(struct daemon *d, const char *device)
{
	size_t used = strlen(d->devices);
	int n = snprintf(d->devices + used, sizeof(d->devices) - used, "%s%s",
			 used ? "," : "", device);

	if (!is_device(device)) {
		cli_usage("--device: '%s' is not none, host or cuda:N", device);
		return false;
	}
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
	if (!cli_count("tick", text, 1, 60000, &ms))
		return false;
	d->cfg.tick_us = (uint32_t)ms * 1000;
	return true;
}

static bool set_ahead(struct daemon *d, const char *text)
{
	uint64_t n = 0;

	if (strcmp(text, "-1") && !cli_count("ahead", text, 0, INT32_MAX, &n))
		return false;
	d->cfg.ahead = n ? (int32_t)n : -1;
	return true;
}

static bool set_mode(struct daemon *d, const char *text)
{
	char *end;
	unsigned long mode = strtoul(text, &end, 8);

	if (*text < '0' || *text > '7' || *end || !mode || mode & ~0660ul) {
		cli_usage("--mode: '%s' is not an octal mode within 0660", text);
		return false;
	}
	d->cfg.mode = (uint32_t)mode;
	return true;
}

static bool set_group(struct daemon *d, const char *name)
{
	const struct group *g = getgrnam(name);

	if (!g) {
		cli_usage("--group: there is no group '%s'", name);
		return false;
	}
	d->cfg.gid = g->gr_gid;
	if (!d->cfg.mode)
		d->cfg.mode = 0660;
	return true;
}

static bool set_layout(struct daemon *d, const char *text)
{
	uint8_t bytes[sizeof(d->cfg.layout)] = { 0 };

	if (cli_hex(text, bytes, sizeof(bytes)) <= 0) {
		cli_usage("--layout: '%s' is not an even number of hex digits, 2 to %zu",
			  text, 2 * sizeof(bytes));
		return false;
	}
	memcpy(d->cfg.layout, bytes, sizeof(bytes));
	return true;
}

/* Absolute, since the daemon leaves its folder. */
static bool set_path(char ret[PATH_MAX], const char *option, const char *path)
{
	char cwd[PATH_MAX] = "";
	int n;

	if (path[0] != '/' && !getcwd(cwd, sizeof(cwd))) {
		cli_error("--%s: %s", option, strerror(errno));
		return false;
	}
	n = snprintf(ret, PATH_MAX, "%s%s%s", cwd, cwd[0] ? "/" : "", path);
	if (*path && n >= 0 && n < PATH_MAX)
		return true;
	cli_usage("--%s: the path is %s", option, *path ? "too long" : "empty");
	return false;
}

static bool set_option(struct daemon *d, int opt, const char *arg)
{
	switch (opt) {
	case OPT_DEVICE: return add_device(d, arg);
	case OPT_TICK: return set_tick(d, arg);
	case OPT_AHEAD: return set_ahead(d, arg);
	case OPT_MODE: return set_mode(d, arg);
	case OPT_GROUP: return set_group(d, arg);
	case OPT_LAYOUT: return set_layout(d, arg);
	case OPT_DIR: return set_path(d->dir, "dir", arg);
	case OPT_PIDFILE: return set_path(d->pidfile, "pidfile", arg);
	case OPT_STANDBY: d->standby = true; return true;
	case OPT_FOREGROUND: d->background = false; return true;
	case OPT_DAEMONIZE: d->background = true; return true;
	case OPT_UNLINK: d->unlink_at_end = true; return true;
	case OPT_QUIET: d->quiet = true; return true;
	default:
		return set_number(d, (unsigned)(opt - OPT_NUMBER), arg);
	}
}

/* -1: go on; otherwise the exit status. */
static int parse(struct daemon *d, int argc, char **argv)
{
	int opt;

	while ((opt = getopt_long(argc, argv, ":hV", options, NULL)) != -1) {
		if (opt == 'h') {
			fputs(help, stdout);
			return cli_finish(0);
		}
		if (opt == 'V')
			return cli_version();
		if (opt == '?' || opt == ':')
			return cli_bad_option(opt, argv);
		if (!set_option(d, opt, optarg))
			return EXIT_USAGE;
	}
	if (optind + 1 != argc)
		return cli_usage(optind == argc ? "which cache? NAME is missing"
						: "one NAME only");
	d->name = argv[optind];
	if (!cli_name(d->name))
		return cli_bad_name(d->name);
	d->create = d->cfg.block_tokens != 0;
	if (!d->create && (d->cfg.max_blocks || d->cfg.vram_blocks || d->cfg.ram_blocks ||
			   d->cfg.max_peers || d->cfg.max_pools || d->devices[0]))
		return cli_usage("--block-size is missing");
	return -1;
}

/* ---- the process ---- */

static void on_signal(int sig)
{
	stopping = sig;
}

static void catch_signals(void)
{
	struct sigaction stop = { .sa_handler = on_signal };
	struct sigaction ignore = { .sa_handler = SIG_IGN };

	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGHUP, &stop, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
	sigaction(SIGXFSZ, &ignore, NULL);       /* a limit is an error like others */
}

/* In the parent: wait for the daemon's byte, return the exit status.  -1 in the child. */
static int detach(struct daemon *d)
{
	int fds[2], status = 0;
	char byte;
	ssize_t n;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) || (pid = fork()) < 0) {
		cli_error("cannot become a daemon: %s", strerror(errno));
		return EXIT_RUNTIME;
	}
	if (!pid) {
		close(fds[0]);
		d->ready_fd = fds[1];
		setsid();
		return -1;
	}
	close(fds[1]);
	while ((n = read(fds[0], &byte, 1)) < 0 && errno == EINTR)
		;
	if (n == 1)
		return 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status))
		return WEXITSTATUS(status);     /* it has said why */
	cli_error("the daemon ended before it was ready");
	return EXIT_RUNTIME;
}

/* Before there is a cache: can it be written?  What is in it stays until we are ready. */
static int try_pidfile(struct daemon *d)
{
	int flags = O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
	int fd = open(d->pidfile, flags | O_CREAT | O_EXCL, 0644);

	d->made_pidfile = fd >= 0;
	if (fd < 0 && errno == EEXIST)
		fd = open(d->pidfile, flags);
	if (fd >= 0) {
		close(fd);
		return 0;
	}
	say(LOG_ERR, "--pidfile %s: %s", d->pidfile, strerror(errno));
	return EXIT_RUNTIME;
}

/* Ours, or the empty one that we made and nobody has written to since. */
static void remove_pidfile(const struct daemon *d)
{
	struct stat st;

	if (d->ready || (d->made_pidfile && !stat(d->pidfile, &st) && !st.st_size))
		unlink(d->pidfile);
}

static int write_pidfile(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	bool good;

	if (fd >= 0) {
		good = dprintf(fd, "%d\n", (int)getpid()) > 0;
		if (close(fd) == 0 && good)
			return 0;
	}
	say(LOG_ERR, "--pidfile %s: %s", path, strerror(errno));
	return -1;
}

static void leave_terminal(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	openlog("gpcd", LOG_PID, LOG_DAEMON);
	to_syslog = true;
	for (int fd = 0; null >= 0 && fd <= 2; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
	if (chdir("/"))
		say(LOG_WARNING, "cannot leave the working folder: %s", strerror(errno));
}

/* Serving, or waiting for the seat.  Only now the pid file: a gpcd that finds the seat
 * taken must not touch the one of the writer. */
static int report_ready(struct daemon *d, const char *status)
{
	if (!d->quiet)
		say(LOG_INFO, "%s: %s", d->name, status);
	if (d->ready) {
		notify("STATUS=%s", status);
		return 0;
	}
	if (d->pidfile[0] && write_pidfile(d->pidfile))
		return EXIT_RUNTIME;
	d->ready = true;
	notify("READY=1\nSTATUS=%s", status);
	if (d->ready_fd < 0)
		return 0;
	leave_terminal();
	if (write(d->ready_fd, "", 1) != 1)
		say(LOG_WARNING, "the starting process is gone");
	close(d->ready_fd);
	d->ready_fd = -1;
	return 0;
}

/* ---- the writer ---- */

/* The library's sentence with options in place of its configuration's fields. */
static const char *option_words(const char *text, char *ret, size_t room)
{
	static const struct { const char *field, *option; } words[] = {
		{ "block_tokens", "--block-size" }, { "max_blocks", "--max-blocks" },
		{ "vram_blocks", "--vram-blocks" }, { "ram_blocks", "--ram-blocks" },
		{ "max_peers", "--max-peers" }, { "max_pools", "--max-pools" },
	};
	size_t used = 0, i, len;

	while (*text && used + 1 < room) {
		for (i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			if (strncmp(text, words[i].field, strlen(words[i].field)) == 0)
				break;
		if (i == sizeof(words) / sizeof(words[0])) {
			ret[used++] = *text++;
			continue;
		}
		len = strlen(words[i].option);
		if (len >= room - used)
			break;
		memcpy(ret + used, words[i].option, len);
		used += len;
		text += strlen(words[i].field);
	}
	ret[used] = 0;
	return ret;
}

/* Returns the exit status. */
static int cannot_open(const struct daemon *d, int err)
{
	const char *text = cli_gpc_text(err);
	char words[1024];

	if (err == -ENOENT && !d->create && strncmp(text, "there is no cache", 17) == 0)
		say(LOG_ERR, "%s; --block-size makes one", text);
	else
		say(LOG_ERR, "%s: %s", d->name,
		    option_words(text, words, sizeof(words)));
	return err == -EINVAL ? EXIT_USAGE : EXIT_RUNTIME;
}

static int open_cache(struct daemon *d, gpc **c)
{
	struct gpc_options opt = {
		.size = sizeof(opt),
		.dir = d->dir[0] ? d->dir : NULL,
		.label = d->standby ? "gpcd standby" : "gpcd",
		.log = log_library,
		.log_arg = d,
	};
	int r;

	memcpy(opt.layout, d->cfg.layout, sizeof(opt.layout));
	d->cfg.dir = opt.dir;
	d->cfg.devices = d->devices[0] ? d->devices : NULL;
	if (d->create)
		r = gpc_create(d->name, &d->cfg, &opt, GPC_IF_ABSENT, c);
	else
		r = gpc_attach(d->name, &opt, 0, c);
	return r < 0 ? cannot_open(d, r) : 0;
}

/* 0: this process is the writer; otherwise the exit status, or 0 with `stopping`. */
static int take_seat(struct daemon *d, gpc *c)
{
	struct gpc_info info = { .size = sizeof(info) };
	int r = gpc_writer_take(c, 0, 0);

	if (r == -EAGAIN && d->standby) {
		if (report_ready(d, "standing by for the writer's seat"))
			return EXIT_RUNTIME;
		do {
			r = gpc_writer_take(c, GPC_STANDBY, TURN_MS);
		} while (!stopping && (r == -ETIMEDOUT || r == -EAGAIN || r == -EINTR));
		if (stopping && r < 0)
			return 0;
	}
	if (r == -EAGAIN) {
		int pid = gpc_get_info(c, &info) < 0 ? 0 : info.writer_pid;

		say(LOG_ERR,
		    "%s has a writer already (process %d); --standby waits for its end",
		    d->name, pid);
		return EXIT_SEAT_TAKEN;
	}
	if (r < 0)
		say(LOG_ERR, "%s: cannot take the writer's seat: %s", d->name,
		    cli_gpc_text(r));
	d->served = r >= 0;
	return r < 0 ? EXIT_RUNTIME : 0;
}

static int serve(struct daemon *d, gpc *c)
{
	char status[64];
	int r;

	snprintf(status, sizeof(status), "serving as process %d", (int)getpid());
	if (report_ready(d, status))
		return EXIT_RUNTIME;
	while (!stopping) {
		r = gpc_writer_serve(c, TURN_MS);
		if (r < 0 && r != -EINTR && r != -ETIMEDOUT && r != -EAGAIN) {
			say(LOG_ERR, "%s: cannot go on serving: %s", d->name,
			    cli_gpc_text(r));
			return EXIT_RUNTIME;
		}
	}
	return 0;
}

static int remove_cache(struct daemon *d)
{
	int r = gpc_unlink(d->name, d->cfg.dir);

	if (r >= 0 || r == -ENOENT)
		return 0;
	say(LOG_ERR, "%s: cannot remove it: %s", d->name, cli_gpc_text(r));
	return EXIT_RUNTIME;
}

static const char *signal_name(int sig)
{
	return sig == SIGINT ? "SIGINT" : sig == SIGHUP ? "SIGHUP" : "SIGTERM";
}

/* 0, or the exit status. */
static int start(struct daemon *d, gpc **c)
{
	int status = d->pidfile[0] ? try_pidfile(d) : 0;

	if (!status)
		status = open_cache(d, c);
	if (status && d->pidfile[0])
		remove_pidfile(d);
	return status;
}

static int run(struct daemon *d)
{
	gpc *c = NULL;
	int status = start(d, &c);
	bool gone;

	if (status)
		return status;
	status = take_seat(d, c);
	if (!status && !stopping)
		status = serve(d, c);
	notify("STOPPING=1\nSTATUS=leaving");
	gpc_close(c);                /* drops the writer's seat, too */
	/* a standby that never served leaves the cache to its writer */
	gone = d->unlink_at_end && d->served && !status;
	if (gone)
		status = remove_cache(d);
	if (d->pidfile[0])
		remove_pidfile(d);
	if (!d->quiet && !status)
		say(LOG_INFO, "%s: ended by %s, the cache %s", d->name,
		    signal_name(stopping), gone ? "is removed" : "stays");
	return status;
}

int main(int argc, char **argv)
{
	struct daemon d = { .cfg = { .size = sizeof(d.cfg) }, .ready_fd = -1 };
	int status;

	cli_init("gpcd");
	status = parse(&d, argc, argv);
	if (status < 0 && d.background)
		status = detach(&d);
	if (status >= 0)
		return status;
	catch_signals();
	return run(&d);
}
