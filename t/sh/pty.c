/* SPDX-License-Identifier: Apache-2.0 */
/* pty COLUMNS COMMAND [ARGUMENT]... - the command on a terminal so wide.
 *
 * What it writes there, on both of its outputs, is copied to the standard output; its exit
 * status is that of the command, 128 and more for a signal.  With GPC_T_KEYS=FILE it reads what
 * comes from that file, a pipe, too. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int fail(const char *what)
{
	fprintf(stderr, "pty: %s: %s\n", what, strerror(errno));
	return 125;
}

static _Noreturn void run(int terminal, char **argv)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setsid();
	ioctl(terminal, TIOCSCTTY, 0);
	for (int i = 0; i <= 2; i++)
		dup2(terminal, i);
	if (terminal > 2)
		close(terminal);
	execvp(argv[0], argv);
	_exit(fail(argv[0]));
}

/* Keys are read for as long as somebody can send some. */
static void pass_keys(int keys, int to)
{
	struct pollfd fds[] = { { .fd = to, .events = POLLIN }, { .fd = keys, .events = POLLIN } };
	char text[256];
	ssize_t n;

	while (poll(fds, keys < 0 ? 1 : 2, -1) > 0 && !fds[0].revents) {
		n = read(keys, text, sizeof(text));
		if (n > 0 && write(to, text, (size_t)n) != n)
			return;
		if (n <= 0)
			fds[1].fd = -1;
	}
}

/* The other end is closed, EIO, when the last process has left the terminal. */
static void copy(int from)
{
	const char *path = getenv("GPC_T_KEYS");
	int keys = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	char text[4096];
	ssize_t n;

	do {
		if (keys >= 0)
			pass_keys(keys, from);
		n = read(from, text, sizeof(text));
		if (n > 0 && (fwrite(text, 1, (size_t)n, stdout) != (size_t)n || fflush(stdout)))
			return;
	} while (n > 0 || (n < 0 && errno == EINTR));
}

int main(int argc, char **argv)
{
	struct winsize size = { .ws_row = 24 };
	int outer, inner, status;
	pid_t pid;

	if (argc < 3)
		return 125;
	size.ws_col = (unsigned short)atoi(argv[1]);
	outer = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (outer < 0 || grantpt(outer) || unlockpt(outer))
		return fail("posix_openpt");
	inner = open(ptsname(outer), O_RDWR | O_NOCTTY);
	if (inner < 0 || ioctl(inner, TIOCSWINSZ, &size))
		return fail("terminal");
	pid = fork();
	if (pid < 0)
		return fail("fork");
	if (!pid)
		run(inner, argv + 2);
	close(inner);
	copy(outer);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
