/* SPDX-License-Identifier: Apache-2.0 */
/* Signals, and children of this process.
 * Tests: t/tools/interrupt.t t/tools/replay-ends.t */
#include "config.h"

#include "tools/replay/replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

volatile sig_atomic_t replay_caught;

static sigset_t usual_mask;

static void on_signal(int sig)
{
	if (sig != SIGCHLD)
		replay_caught = sig;
}

void replay_hold_signals(void)
{
	static const int which[] = { SIGINT, SIGTERM, SIGHUP, SIGCHLD };
	struct sigaction act = { .sa_handler = on_signal };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(which); i++) {
		sigaddset(&set, which[i]);
		sigaction(which[i], &act, NULL);
	}
	sigprocmask(SIG_BLOCK, &set, &usual_mask);
	signal(SIGXFSZ, SIG_IGN); /* a file over the limit is an error like others */
}

int replay_poll(struct pollfd *fds, nfds_t n, int ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };
	int r = ppoll(fds, n, ms < 0 ? NULL : &ts, &usual_mask);

	return r < 0 && errno == EINTR ? 0 : r;
}

void replay_child(pid_t parent)
{
	sigprocmask(SIG_SETMASK, &usual_mask, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(EXIT_RUNTIME);
}

/* The child may be stopped, and a signal to us does not wait for it: SIGKILL is the only signal
 * that ends a stopped process. */
int replay_wait(pid_t child)
{
	int status = 0;

	while (waitpid(child, &status, WNOHANG) == 0) {
		if (replay_caught)
			kill(child, SIGKILL);
		replay_poll(NULL, 0, replay_caught ? 1 : -1);
	}
	return status;
}

int replay_in_child(const struct run *run, int (*what)(const struct run *run))
{
	pid_t parent = getpid(), child = fork();
	int status = 0;

	if (!child) {
		replay_child(parent);
		_exit(what(run));
	}
	if (child < 0) {
		cli_error("cannot start a process: %s", strerror(errno));
		return -1;
	}
	status = replay_wait(child);
	return status ? -1 : 0;
}

void replay_raise(void)
{
	signal(replay_caught, SIG_DFL);
	sigprocmask(SIG_SETMASK, &usual_mask, NULL);
	raise(replay_caught);
}
