/* SPDX-License-Identifier: Apache-2.0 */
/* gpcd as a process: signals, the way into the background, the pid file, readiness. */
#include "config.h"

#include "gpcd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

volatile sig_atomic_t process_stopping;
gpc *volatile process_served;

static void on_signal(int sig)
{
	process_stopping = sig;
	gpc_writer_wake(process_served);
}

void process_catch_signals(void)
{
	struct sigaction stop = { .sa_handler = on_signal };
	struct sigaction ignore = { .sa_handler = SIG_IGN };

	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGHUP, &stop, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
	sigaction(SIGXFSZ, &ignore, NULL);       /* a limit is an error like others */
}

const char *process_end(void)
{
	int sig = process_stopping;

	return sig == SIGINT ? "SIGINT" : sig == SIGHUP ? "SIGHUP" : "SIGTERM";
}

int process_detach(struct daemon *d)
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

int process_try_pidfile(struct daemon *d)
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

void process_remove_pidfile(const struct daemon *d)
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

	say_to_syslog();
	for (int fd = 0; null >= 0 && fd <= 2; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
	if (chdir("/"))
		say(LOG_WARNING, "cannot leave the working folder: %s", strerror(errno));
}

/* Serving, or waiting for the seat.  Only now the pid file: a gpcd that finds the seat
 * taken must not touch the one of the writer. */
int process_ready(struct daemon *d, const char *status)
{
	if (!d->quiet)
		say(LOG_INFO, "%s: %s", d->name, status);
	if (d->ready) {
		say_notify("STATUS=%s", status);
		return 0;
	}
	if (d->pidfile[0] && write_pidfile(d->pidfile))
		return EXIT_RUNTIME;
	d->ready = true;
	say_notify("READY=1\nSTATUS=%s", status);
	if (d->ready_fd < 0)
		return 0;
	leave_terminal();
	if (write(d->ready_fd, "", 1) != 1)
		say(LOG_WARNING, "the starting process is gone");
	close(d->ready_fd);
	d->ready_fd = -1;
	return 0;
}
