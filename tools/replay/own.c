/* SPDX-License-Identifier: Apache-2.0 */
/* A cache of our own.  A gpcd makes and serves it.  If the payload is in pools with memory, another
 * gpcd keeps the VRAM.  Each gpcd reports by NOTIFY_SOCKET that it is ready.
 * Tests: t/tools/replay-ends.t t/tools/replay-pools-end.t */
#include "config.h"

#include "tools/replay/replay.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpc_serve.h"

enum {
	END_MS = 5000,
	END_CAUGHT_MS = 500,
	SEATS_BESIDE = 10, /* seats beside those of workers: gpcd, keeper, standbys, tools */
	TRANSIT = 64,      /* slots of a RAM pool beside its capacity */
	POOLS_BESIDE = 4,  /* RAM, and the pools of workers that were killed */
	MAKE_MS = 30000,
};

/* ---- gpcd ---- */

/* Takes $GPCD.  Else it takes the one beside this program, one folder up when libtool runs this
 * program from its own.  Else it takes the first one in the PATH. */
static void find_gpcd(char ret[PATH_MAX])
{
	static const char hidden[] = "/.libs";
	const char *env = getenv("GPCD");
	char self[PATH_MAX], *end;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - sizeof("/gpcd"));

	snprintf(ret, PATH_MAX, "%s", env && *env ? env : "gpcd");
	if ((env && *env) || n <= 0)
		return;
	self[n] = 0;
	end = strrchr(self, '/');
	*end = 0;
	n = end - self - (ssize_t)strlen(hidden);
	if (n > 0 && strcmp(self + n, hidden) == 0)
		self[n] = 0;
	strcat(self, "/gpcd");
	if (access(self, X_OK) == 0)
		snprintf(ret, PATH_MAX, "%s", self);
}

/* A datagram socket with a name of the kernel's choice, which becomes NOTIFY_SOCKET. */
static int open_notify(char name[sizeof(((struct sockaddr_un *)0)->sun_path) + 1])
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(at);
	size_t n;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(sa_family_t)) ||
	    getsockname(fd, (struct sockaddr *)&at, &len)) {
		cli_error("cannot listen for gpcd: %s", strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	n = len - offsetof(struct sockaddr_un, sun_path);
	memcpy(name, at.sun_path, n);
	name[0] = '@';
	name[n] = 0;
	return fd;
}

/* Numbers of a command line, as text. */
struct words {
	char text[16][24];
	unsigned used;
};

static const char *number(struct words *w, uint64_t v)
{
	char *text = w->text[w->used++];

	snprintf(text, sizeof(w->text[0]), "%llu", (unsigned long long)v);
	return text;
}

struct command {
	const char *argv[40];
	unsigned n;
};

static void say(struct command *c, const char *option, const char *value)
{
	c->argv[c->n++] = option;
	if (value)
		c->argv[c->n++] = value;
}

/* With pools that have memory the RAM comes first, and the keeper's VRAM demotes to it. */
static void say_pools(struct command *c, struct words *w, const struct args *a)
{
	if (!a->in_pools) {
		say(c, "--vram-blocks", number(w, a->vram + a->up));
		say(c, "--ram-blocks", number(w, a->ram));
		return;
	}
	if (a->fetch) {
		/* counts the workers' pools and one pool of a worker that was killed */
		say(c, "--max-blocks", number(w, (a->workers + 1) * a->vram + a->ram + TRANSIT));
		say(c, "--max-pools", number(w, a->workers + POOLS_BESIDE));
		return;
	}
	say(c, "--max-blocks", number(w, a->vram + a->up + a->ram + a->spare + TRANSIT + a->disk));
	if (!a->ram)
		return;
	say(c, "--ram-blocks", number(w, a->ram + a->spare));
	say(c, "--block-bytes", number(w, a->payload));
}

static void say_disk(struct command *c, struct words *w, const struct run *run)
{
	if (!run->a.disk)
		return;
	say(c, "--disk", run->disk_path);
	say(c, "--disk-blocks", number(w, run->a.disk));
	say(c, "--disk-exclusive", NULL);
	say(c, "--disk-ahead", number(w, run->a.spare));
}

static void say_writer(struct command *c, struct words *w, const struct run *run)
{
	const struct args *a = &run->a;

	say(c, "--unlink", NULL);
	say(c, "--tick", "exact");
	say(c, "--free-target", "0");
	say(c, "--block-size", number(w, a->tokens));
	say_pools(c, w, a);
	say(c, "--max-peers", number(w, a->workers + SEATS_BESIDE));
	if (a->device)
		say(c, "--device", a->device);
	say_disk(c, w, run);
}

static void say_keeper(struct command *c, struct words *w, const struct run *run)
{
	const struct args *a = &run->a;

	say(c, "--keep", NULL);
	say(c, "--device", a->device);
	say(c, "--vram-blocks", number(w, a->vram + a->up));
	say(c, "--block-bytes", number(w, a->payload));
	say(c, "--pieces", number(w, a->pieces));
	if (a->ram)
		say(c, "--demote-to", "0");
}

typedef void (*say_options)(struct command *c, struct words *w, const struct run *run);

static _Noreturn void exec_gpcd(const struct run *run, say_options options, const char *notify)
{
	struct command c = { { "gpcd", run->name, "--foreground", "--quiet" }, 4 };
	struct words w = { .used = 0 };
	char path[PATH_MAX];

	say(&c, "--dir", run->a.dir);
	options(&c, &w, run);
	find_gpcd(path);
	setenv("NOTIFY_SOCKET", notify, 1);
	execvp(path, (char *const *)c.argv);
	cli_error("cannot run %s: %s", path, strerror(errno));
	_exit(EXIT_RUNTIME);
}

/* 0 means that it is ready; -1 after a message. */
static int wait_ready(pid_t *pid, const char *what, int fd)
{
	struct pollfd event = { .fd = fd, .events = POLLIN };
	char text[512];
	ssize_t n;

	while (!replay_caught) {
		replay_poll(&event, 1, -1);
		n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
		if (n > 0) {
			text[n] = 0;
			if (strstr(text, "READY=1"))
				return 0;
		}
		if (waitpid(*pid, NULL, WNOHANG) == *pid) {
			*pid = 0;
			cli_error("%s did not start", what);
			return -1;
		}
	}
	return -1;
}

static int start(const struct run *run, pid_t *pid, const char *what, say_options options)
{
	char notify[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];
	pid_t parent = getpid();
	int fd = open_notify(notify), r;

	if (fd < 0)
		return -1;
	*pid = fork();
	if (!*pid) {
		replay_child(parent);
		exec_gpcd(run, options, notify);
	}
	if (*pid < 0) {
		cli_error("cannot start %s: %s", what, strerror(errno));
		*pid = 0;
		r = -1;
	} else {
		r = wait_ready(pid, what, fd);
	}
	close(fd);
	return r;
}

/* ---- its life ---- */

int own_start_writer(struct run *run)
{
	snprintf(run->name, sizeof(run->name), "replay-%d", (int)getpid());
	return start(run, &run->writer, "gpcd", say_writer);
}

/* The cache is there already. */
int own_restart_writer(struct run *run)
{
	return start(run, &run->writer, "gpcd", say_writer);
}

int own_start_keeper(struct run *run)
{
	return run->a.in_pools && !run->a.fetch
		       ? start(run, &run->keeper, "gpcd --keep", say_keeper)
		       : 0;
}

/* Runs in a child: it may wait for long, and its memory belongs to no process.  Its blocks need no
 * parents there, since a worker's copy of a block may go before those of its children. */
static int make_ram(const struct run *run)
{
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = GPC_RAM,
			      .flags = GPC_POOL_UNCHAINED,
			      .space = (uint32_t)run->a.workers,
			      .blocks = (uint32_t)run->a.ram,
			      .demote_to = -1 };
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = run->a.payload };
	gpc *c;
	int r;

	if (cache_attach(run, 0, &c))
		return EXIT_RUNTIME;
	r = gpc_pool_make(c, &p, &m, MAKE_MS);
	if (r < 0)
		cli_gpc_error(r, "%s: cannot make a pool of RAM", run->name);
	gpc_close(c);
	return r < 0 ? EXIT_RUNTIME : 0;
}

int own_make_ram(struct run *run)
{
	return run->a.fetch && run->a.ram ? replay_in_child(run, make_ram) : 0;
}

/* The process may be stopped, so the wait for a process that was told to end is short. */
static void stop(pid_t *pid)
{
	int ms = replay_caught ? END_CAUGHT_MS : END_MS;
	uint64_t end = cli_now_ns() + (uint64_t)ms * 1000000;

	if (!*pid)
		return;
	kill(*pid, SIGTERM);
	kill(*pid, SIGCONT);
	while (!waitpid(*pid, NULL, WNOHANG)) {
		if (cli_now_ns() > end)
			kill(*pid, SIGKILL);
		cli_sleep_ms(5);
	}
	*pid = 0;
}

/* The keeper goes first, so that a writer sees its pool go.  gpcd removes its cache; if gpcd was
 * killed, this process removes it. */
void own_stop(struct run *run)
{
	bool made = run->writer;

	if (made)
		kill(run->writer, SIGCONT);
	stop(&run->keeper);
	stop(&run->writer);
	if (made)
		gpc_unlink(run->name, run->a.dir);
}
