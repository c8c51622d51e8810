/* SPDX-License-Identifier: Apache-2.0 */
/* gpcd as a process: signals, the way into the background, the pid file, readiness.
 * Tests: t/daemon/descriptors.t t/daemon/manager.t t/daemon/life.t t/daemon/reload.t
 *   t/daemon/files.t */
#include "config.h"

#include "tools/daemon/daemon.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_FILES = 1024 }; /* files that a process may have as a rule */

volatile sig_atomic_t process_stopping;
volatile sig_atomic_t process_asked;
volatile sig_atomic_t process_reload;
gpc *volatile process_served;

static void on_signal(int sig)
{
	process_stopping = sig;
	gpc_writer_wake(process_served);
}

static void on_question(int sig)
{
	(void)sig;
	process_asked = 1;
	gpc_writer_wake(process_served);
}

static void on_hangup(int sig)
{
	(void)sig;
	process_reload = 1;
	gpc_writer_wake(process_served);
}

/* With a terminal, SIGHUP says that the terminal hangs up. */
static bool has_terminal(void)
{
	int fd = open("/dev/tty", O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

void process_raise_descriptors(void)
{
	struct rlimit n;
	rlim_t most;

	if (getrlimit(RLIMIT_NOFILE, &n))
		return;
	most = n.rlim_max < DESCRIPTORS_MOST ? n.rlim_max : DESCRIPTORS_MOST;
	if (n.rlim_cur >= most)
		return;
	n.rlim_cur = most;
	setrlimit(RLIMIT_NOFILE, &n);
}

void process_catch_signals(void)
{
	struct sigaction reload = { .sa_handler = on_hangup, .sa_flags = SA_RESTART };
	struct sigaction ask = { .sa_handler = on_question, .sa_flags = SA_RESTART };
	struct sigaction stop = { .sa_handler = on_signal };
	struct sigaction ignore = { .sa_handler = SIG_IGN };

	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGHUP, has_terminal() ? &stop : &reload, NULL);
	sigaction(SIGUSR1, &ask, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
	sigaction(SIGXFSZ, &ignore, NULL); /* a file over the limit is an error like others */
}

const char *process_end(void)
{
	int sig = process_stopping;

	return sig == SIGINT ? "SIGINT" : sig == SIGHUP ? "SIGHUP" : "SIGTERM";
}

/* A pipe or a file that the starter left open would stay open as long as gpcd lives, and the
 * reader of such a pipe would wait for its end.  The descriptor that the folder is read by goes
 * with the rest. */
static void close_inherited(int but)
{
	DIR *fds = opendir("/proc/self/fd");
	const struct dirent *e;
	int fd;

	while (fds && (e = readdir(fds))) {
		fd = e->d_name[0] == '.' ? -1 : atoi(e->d_name);
		if (fd > 2 && fd != but && fd != dirfd(fds))
			close(fd);
	}
	if (fds)
		closedir(fds);
	else /* there is no /proc */
		for (fd = 3; fd < MOST_FILES; fd++)
			if (fd != but)
				close(fd);
}

/* ---- the way into the background ----
 *
 *   until the daemon is ready                     the daemon        the starting process
 *   --------------------------------------------  ----------------  --------------------------------
 *   SIGTERM, SIGINT or SIGHUP to the starting     gets SIGTERM      waits for its end, and has its
 *   process                                                         status
 *   the starting process is killed                gets SIGTERM      is gone
 *   the daemon ends                               is gone           has its status, or says so
 *
 * So no daemon is left that has no number in its pid file, and no person knows of. */

static volatile sig_atomic_t daemon_pid, forwarded;

static void on_forward(int sig)
{
	(void)sig;
	forwarded = 1;
	if (daemon_pid)
		kill(daemon_pid, SIGTERM);
}

static const int forward[] = { SIGTERM, SIGINT, SIGHUP };

static void forward_signals(void)
{
	struct sigaction sa = { .sa_handler = on_forward, .sa_flags = SA_RESTART };
	struct sigaction old;

	for (size_t i = 0; i < sizeof(forward) / sizeof(forward[0]); i++) {
		/* nohup(1) */
		if (!sigaction(forward[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaction(forward[i], &sa, NULL);
	}
}

/* Signals are blocked between the fork and this, so none is lost. */
static void begin_daemon(struct daemon *d, int ready_fd, pid_t parent, const sigset_t *before)
{
	d->ready_fd = ready_fd;
	close_inherited(d->ready_fd);
	setsid();
	process_catch_signals();
	sigprocmask(SIG_SETMASK, before, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		process_stopping = SIGTERM;
}

int process_detach(struct daemon *d)
{
	pid_t pid, parent = getpid();
	int fds[2], status = 0;
	sigset_t set, before;
	char byte;
	ssize_t n;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(forward) / sizeof(forward[0]); i++)
		sigaddset(&set, forward[i]);
	sigprocmask(SIG_BLOCK, &set, &before);
	if (pipe2(fds, O_CLOEXEC) || (pid = fork()) < 0) {
		cli_error("cannot become a daemon: %s", strerror(errno));
		return EXIT_RUNTIME;
	}
	if (!pid) {
		close(fds[0]);
		begin_daemon(d, fds[1], parent, &before);
		return -1;
	}
	close(fds[1]);
	daemon_pid = pid;
	forward_signals();
	sigprocmask(SIG_SETMASK, &before, NULL);
	while ((n = read(fds[0], &byte, 1)) < 0 && errno == EINTR)
		;
	if (n == 1)
		return 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && (WEXITSTATUS(status) || forwarded))
		return WEXITSTATUS(status); /* it has said why */
	cli_error("the daemon ended before it was ready");
	return EXIT_RUNTIME;
}

/* ---- the pid file ----
 *
 * It is locked as long as gpcd lives.  The lock tells the file of a living process from one that a
 * killed process has left.  The lock belongs to the process, so others can read the owner's number
 * from it.  It goes when any descriptor of the file is closed, so there is only this one. */

static int pidfile_error(const struct daemon *d)
{
	/* EINVAL: the file is of a kind that cannot be cut */
	say(LOG_ERR, "--pidfile %s: %s", d->pidfile,
	    say_file(errno == EINVAL ? ENXIO : errno, true));
	return EXIT_RUNTIME;
}

static bool is_my_pidfile(const struct daemon *d)
{
	struct stat here, there;

	return d->pidfile_fd >= 0 && !fstat(d->pidfile_fd, &here) && !lstat(d->pidfile, &there) &&
	       here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

/* The owner may remove the file between the two calls. */
static int open_pidfile(struct daemon *d)
{
	int flags = O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

	do {
		d->pidfile_fd = open(d->pidfile, flags | O_CREAT | O_EXCL, 0644);
		d->made_pidfile = d->pidfile_fd >= 0;
		if (d->made_pidfile || errno != EEXIST)
			break;
		d->pidfile_fd = open(d->pidfile, flags);
	} while (d->pidfile_fd < 0 && errno == ENOENT);
	return d->pidfile_fd < 0 ? pidfile_error(d) : 0;
}

/* 0; -EAGAIN if another process has the lock; or -errno. */
static int lock_pidfile(struct daemon *d)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	if (fcntl(d->pidfile_fd, F_SETLK, &lock) == 0)
		return 0;
	if (errno != EACCES && errno != EAGAIN)
		return -errno;
	if (fcntl(d->pidfile_fd, F_GETLK, &lock) == 0)
		d->pidfile_owner = lock.l_type == F_UNLCK ? 0 : lock.l_pid;
	return -EAGAIN;
}

int process_take_pidfile(struct daemon *d)
{
	int r;

	for (;;) {
		if (open_pidfile(d))
			return EXIT_RUNTIME;
		r = lock_pidfile(d);
		if (r == 0 && is_my_pidfile(d))
			return 0;
		if (r < 0 && r != -EAGAIN) {
			errno = -r;
			return pidfile_error(d);
		}
		/* another process has it, or its owner has just ended and the file is gone */
		close(d->pidfile_fd);
		d->pidfile_fd = -1;
		if (r == -EAGAIN)
			return EXIT_PIDFILE_TAKEN;
	}
}

int process_pidfile_taken(const struct daemon *d)
{
	/* 0: the owner is in another PID namespace */
	if (d->pidfile_owner > 0)
		say(LOG_ERR, "--pidfile %s: process %d has it, and is alive", d->pidfile,
		    (int)d->pidfile_owner);
	else
		say(LOG_ERR, "--pidfile %s: another process has it, and is alive", d->pidfile);
	return EXIT_RUNTIME;
}

void process_remove_pidfile(const struct daemon *d)
{
	if ((d->ready || d->made_pidfile) && is_my_pidfile(d))
		unlink(d->pidfile);
}

static int write_pidfile(const struct daemon *d)
{
	if (ftruncate(d->pidfile_fd, 0) == 0 && dprintf(d->pidfile_fd, "%d\n", (int)getpid()) > 0)
		return 0;
	return pidfile_error(d);
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

/* Called when gpcd serves or waits for the seat.  The pid file is written only now, since a gpcd
 * that finds the seat taken must leave the writer's file alone. */
int process_ready(struct daemon *d, const char *status)
{
	snprintf(d->status, sizeof(d->status), "%s", status);
	if (!d->quiet)
		say(LOG_INFO, "%s: %s", d->name, status);
	if (d->ready) {
		say_notify("STATUS=%s", status);
		return 0;
	}
	if (d->pidfile_fd >= 0 && write_pidfile(d))
		return EXIT_RUNTIME;
	d->ready = true;
	__atomic_store_n(&d->outside, false, __ATOMIC_RELAXED); /* health.c reads it */
	say_notify("READY=1\nSTATUS=%s", status);
	if (d->ready_fd < 0)
		return 0;
	leave_terminal();
	prctl(PR_SET_PDEATHSIG, 0);
	if (write(d->ready_fd, "", 1) != 1)
		say(LOG_WARNING, "the starting process is gone");
	close(d->ready_fd);
	d->ready_fd = -1;
	return 0;
}
