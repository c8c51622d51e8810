/* SPDX-License-Identifier: Apache-2.0 */
/* A server of another project, to compare with: server.h.
 * Tests: t/tools/bench-peers.t */
#include "config.h"

#include "tools/bench/peer/server.h"

#include "tools/bench/peer/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { START_MS = 10000, STUCK_S = 30, MAX_ARGS = 40 };

/* ---- start and end ---- */

static const char *path_of(const char *arg, const char *dir, const char *socket)
{
	return !strcmp(arg, "@dir") ? dir : !strcmp(arg, "@socket") ? socket : arg;
}

/* In the child. */
static void run(const char *const *argv, const char *dir, const char *socket,
		const sigset_t *signals, pid_t parent)
{
	char *args[MAX_ARGS + 1] = { NULL };
	int null = open("/dev/null", O_RDWR);

	for (int i = 0; argv[i] && i < MAX_ARGS; i++)
		args[i] = (char *)path_of(argv[i], dir, socket);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || null < 0)
		_exit(127);
	for (int fd = 0; fd <= 2; fd++)
		dup2(null, fd);
	setsid(); /* ^C is for us */
	bench_release_signals(signals);
	execvp(args[0], args);
	_exit(127);
}

static int connect_to(const struct sockaddr_un *at)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (const struct sockaddr *)at, sizeof(*at))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* A server begins to listen some time after it has started. */
static int meet(struct server *s, const struct sockaddr_un *at, const char **why)
{
	struct timeval stuck = { .tv_sec = STUCK_S };

	for (int ms = 0; ms < START_MS; ms++) {
		s->fd = connect_to(at);
		if (s->fd >= 0) {
			setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &stuck, sizeof(stuck));
			setsockopt(s->fd, SOL_SOCKET, SO_SNDTIMEO, &stuck, sizeof(stuck));
			return 0;
		}
		if (waitpid(s->pid, NULL, WNOHANG) == s->pid) {
			s->pid = 0;
			bench_why(why, "it ended as soon as it was started");
			return -1;
		}
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	bench_why(why, "it does not answer");
	return -1;
}

static int start_in(struct server *s, const char *const *argv, const char *dir,
		    const sigset_t *signals, const char **why)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	pid_t parent = getpid();
	int r;

	if (snprintf(at.sun_path, sizeof(at.sun_path), "%s/socket", dir) >=
	    (int)sizeof(at.sun_path)) {
		bench_why(why, "%s is too long for a socket", dir);
		return -1;
	}
	s->pid = fork();
	if (!s->pid)
		run(argv, dir, at.sun_path, signals, parent);
	if (s->pid < 0) {
		bench_why(why, "no process: %m");
		return -1;
	}
	r = meet(s, &at, why);
	unlink(at.sun_path);
	return r;
}

int server_start(struct server *s, const char *const *argv, const char **why)
{
	const char *tmp = getenv("TMPDIR");
	char dir[PATH_MAX];
	sigset_t signals;
	int r = -1;

	s->pid = 0;
	s->fd = -1;
	s->at = s->end = 0;
	if (!bench_in_path(argv[0])) {
		bench_why(why, "%s is not in PATH", argv[0]);
		return -1;
	}
	snprintf(dir, sizeof(dir), "%s/gpc-bench-%d.XXXXXX", tmp && *tmp ? tmp : "/tmp",
		 (int)getpid());
	bench_hold_signals(&signals);
	if (mkdtemp(dir)) {
		r = start_in(s, argv, dir, &signals, why);
		if (r)
			server_stop(s);
		rmdir(dir);
	} else {
		bench_why(why, "cannot make %s: %m", dir);
	}
	bench_release_signals(&signals);
	return r;
}

void server_stop(struct server *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	if (s->pid > 0) {
		kill(s->pid, SIGKILL);
		while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	s->pid = 0;
}

/* ---- talk ---- */

int server_send(struct server *s, const void *bytes, size_t n)
{
	const char *at = bytes;

	while (n) {
		ssize_t sent = send(s->fd, at, n, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return -1;
		at += sent;
		n -= (size_t)sent;
	}
	return 0;
}

static int read_more(struct server *s)
{
	ssize_t got;

	if (s->at && s->end > sizeof(s->buffer) / 2) {
		memmove(s->buffer, s->buffer + s->at, s->end - s->at);
		s->end -= s->at;
		s->at = 0;
	}
	if (s->end == sizeof(s->buffer))
		return -1;
	do {
		got = recv(s->fd, s->buffer + s->end, sizeof(s->buffer) - s->end, 0);
	} while (got < 0 && errno == EINTR);
	if (got <= 0)
		return -1;
	s->end += (size_t)got;
	return 0;
}

char *server_line(struct server *s)
{
	size_t seen = 0;
	char *line, *end;

	for (;;) {
		line = s->buffer + s->at;
		end = memchr(line + seen, '\n', s->end - s->at - seen);
		if (end)
			break;
		seen = s->end - s->at;
		if (read_more(s))
			return NULL;
	}
	s->at = (size_t)(end + 1 - s->buffer);
	*end = '\0';
	if (end > line && end[-1] == '\r')
		end[-1] = '\0';
	return line;
}

char *server_bytes(struct server *s, size_t n)
{
	while (s->end - s->at < n)
		if (read_more(s))
			return NULL;
	s->at += n;
	return s->buffer + s->at - n;
}
