/* SPDX-License-Identifier: Apache-2.0 */
/* The cache to replay against: a gpcd of our own unless --name says otherwise, and
 * what the cache looks like. */
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

enum {
	WRITER_END_MS = 5000, WRITER_CAUGHT_MS = 500,
	LOOK_MS = 20,                /* between looks for a writer */
	SEATS_BESIDE = 10,           /* beside the workers': gpcd, standbys, tools */
};

/* ---- a writer of our own ---- */

/* $GPCD; else the one beside this program, one folder up when libtool runs this
 * program from its own; else whatever the PATH has. */
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

static _Noreturn void exec_gpcd(const struct run *run, const char *notify)
{
	const struct args *a = &run->a;
	char path[PATH_MAX], tokens[24], vram[24], ram[24], peers[24];
	const char *argv[24] = {
		"gpcd", run->name, "--foreground", "--quiet", "--unlink",
		"--tick", "exact", "--free-target", "0", "--dir", a->dir,
		"--block-size", tokens, "--vram-blocks", vram, "--ram-blocks", ram,
		"--max-peers", peers,
		a->device ? "--device" : NULL, a->device, NULL,
	};
	uint64_t seats = a->workers + SEATS_BESIDE;

	snprintf(tokens, sizeof(tokens), "%llu", (unsigned long long)a->tokens);
	snprintf(vram, sizeof(vram), "%llu", (unsigned long long)a->vram);
	snprintf(ram, sizeof(ram), "%llu", (unsigned long long)a->ram);
	snprintf(peers, sizeof(peers), "%llu", (unsigned long long)seats);
	find_gpcd(path);
	setenv("NOTIFY_SOCKET", notify, 1);
	execvp(path, (char *const *)argv);
	cli_error("cannot run %s: %s", path, strerror(errno));
	_exit(EXIT_RUNTIME);
}

/* 0: it serves; -1 after a message. */
static int wait_for_writer(struct run *run, int fd)
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
		if (waitpid(run->writer, NULL, WNOHANG) == run->writer) {
			run->writer = 0;
			cli_error("gpcd did not start");
			return -1;
		}
	}
	return -1;
}

int cache_start_writer(struct run *run)
{
	char notify[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];
	pid_t parent = getpid();
	int fd = open_notify(notify), r;

	if (fd < 0)
		return -1;
	snprintf(run->name, sizeof(run->name), "replay-%d", (int)parent);
	run->writer = fork();
	if (!run->writer) {
		replay_child(parent);
		exec_gpcd(run, notify);
	}
	if (run->writer < 0) {
		cli_error("cannot start gpcd: %s", strerror(errno));
		run->writer = 0;
		r = -1;
	} else {
		r = wait_for_writer(run, fd);
	}
	close(fd);
	return r;
}

/* gpcd removes its cache; if it was killed, we do.  It may be stopped; nobody waits long for it
 * who was told to end. */
void cache_stop_writer(struct run *run)
{
	int ms = replay_caught ? WRITER_CAUGHT_MS : WRITER_END_MS;
	uint64_t end = cli_now_ns() + (uint64_t)ms * 1000000;

	if (!run->writer)
		return;
	kill(run->writer, SIGTERM);
	kill(run->writer, SIGCONT);
	while (!waitpid(run->writer, NULL, WNOHANG)) {
		if (cli_now_ns() > end)
			kill(run->writer, SIGKILL);
		cli_sleep_ms(5);
	}
	run->writer = 0;
	gpc_unlink(run->name, run->a.dir);
}

/* ---- the cache ---- */

int cache_attach(const struct run *run, uint32_t flags, gpc **c)
{
	const struct gpc_attach_options opt = {
		.size = sizeof(opt), .dir = run->a.dir, .label = "gpc-replay",
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

/* What was given on the command line is what the cache has. */
static int same(const struct run *run, const char *what, bool given, uint64_t *asked,
		uint64_t found)
{
	if (given && *asked != found) {
		cli_error("%s has %llu %s, not %llu", run->name,
			  (unsigned long long)found, what, (unsigned long long)*asked);
		return -1;
	}
	*asked = found;
	return 0;
}

static int read_pools(struct run *run, gpc *c)
{
	struct job *job = run->job;
	uint64_t vram = 0, ram = 0;

	job->vram = job->ram = -1;
	for (int i = 0; i < GPC_MAX_POOLS; i++) {
		struct gpc_pool p = { .size = sizeof(p) };

		if (gpc_pool_get(c, i, &p) < 0)
			continue;
		job->pool[i] =
			(struct job_pool){ job->slots, p.blocks + p.transit, p.kind };
		job->slots += p.blocks + p.transit;
		if (p.kind == GPC_VRAM && job->vram < 0) {
			job->vram = i;
			job->ram = p.demote_to;
			vram = p.blocks;
		}
		if (i == job->ram)
			ram = p.blocks;
	}
	if (job->vram < 0) {
		cli_error("%s has no VRAM pool (gpcd --vram-blocks makes one)", run->name);
		return -1;
	}
	return same(run, "VRAM blocks", run->a.vram_given, &run->a.vram, vram) ||
	       same(run, "RAM blocks", run->a.ram_given, &run->a.ram, ram) ? -1 : 0;
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
		r = same(run, "tokens a block", run->a.tokens_given, &run->a.tokens,
			 info.block_tokens);
	if (r >= 0)
		r = read_pools(run, c);
	gpc_close(c);
	return r < 0 ? -1 : cache_stats(run, &run->before);
}

/* ---- its writer ---- */

/* 1: there is one, 0: there is none now, or -1 after a message. */
static int has_writer(const struct run *run, gpc *c)
{
	struct gpc_info info = { .size = sizeof(info) };
	int r = gpc_info_get(c, &info);

	if (r < 0)
		cli_gpc_error(r, "%s", run->name);
	return r < 0 ? -1 : info.writer_pid != 0;
}

/* Where there is none, it says so before it waits. */
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
		cli_error("%s has no writer: none came in %d s", run->name,
			  PATIENCE_MS / 1000);
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

/* In a child, since a process that has used a GPU cannot fork workers; the mirror of a cache
 * that is not ours may be about to come. */
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
