/* SPDX-License-Identifier: Apache-2.0 */
/* tap.h - the Test Anything Protocol, as much of it as our tests speak.
 *
 *	static int body(void)
 *	{
 *		plan(2);                        or none, and done_testing() prints it
 *		ok(x > 0, "x is positive");
 *		is_int(x, 3, "x of %s", name);
 *		return done_testing();          0 if all is well: the exit status
 *	}
 *
 *	int main(void)
 *	{
 *		return tap_guard(30, body, remove_my_files);
 *	}
 *
 * One process prints.  Children of a test stay silent and speak by their exit status. */
#ifndef GPC_T_TAP_H
#define GPC_T_TAP_H

#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "patience.h"

#define TAP_FN           static inline __attribute__((unused))
#define TAP_PRINTF(f, a) __attribute__((format(printf, f, a)))

static struct {
	int planned, run, failed;
} tap;

TAP_FN void plan(int n)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	tap.planned = n;
	printf("1..%d\n", n);
}

TAP_FN void plan_skip_all(const char *why)
{
	printf("1..0 # SKIP %s\n", why);
	fflush(stdout);
	exit(0);
}

TAP_FN TAP_PRINTF(1, 2) void diag(const char *fmt, ...)
{
	va_list ap;

	printf("# ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
}

/* Nothing that follows would make sense. */
TAP_FN TAP_PRINTF(1, 2) __attribute__((noreturn)) void bail(const char *fmt, ...)
{
	va_list ap;

	printf("Bail out! ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	exit(255);
}

TAP_FN TAP_PRINTF(4, 0) bool tap_result(bool good, const char *file, int line, const char *fmt,
					va_list ap)
{
	if (!tap.run && !tap.planned)
		setvbuf(stdout, NULL, _IOLBF, 0);
	printf("%s %d - ", good ? "ok" : "not ok", ++tap.run);
	vprintf(fmt, ap);
	printf("\n");
	if (!good) {
		tap.failed++;
		diag("at %s:%d", file, line);
	}
	return good;
}

TAP_FN TAP_PRINTF(4, 5) bool tap_ok(bool good, const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	tap_result(good, file, line, fmt, ap);
	va_end(ap);
	return good;
}

TAP_FN TAP_PRINTF(5, 6) bool tap_int(long long got, long long want, const char *file, int line,
				     const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (!tap_result(got == want, file, line, fmt, ap))
		diag("got %lld, want %lld", got, want);
	va_end(ap);
	return got == want;
}

TAP_FN TAP_PRINTF(5, 6) bool tap_str(const char *got, const char *want, const char *file, int line,
				     const char *fmt, ...)
{
	bool same = got && want ? !strcmp(got, want) : got == want;
	va_list ap;

	va_start(ap, fmt);
	if (!tap_result(same, file, line, fmt, ap))
		diag("got \"%s\", want \"%s\"", got ? got : "NULL", want ? want : "NULL");
	va_end(ap);
	return same;
}

#define ok(good, ...) tap_ok((good), __FILE__, __LINE__, __VA_ARGS__)
#define is_int(got, want, ...) \
	tap_int((long long)(got), (long long)(want), __FILE__, __LINE__, __VA_ARGS__)
#define is_str(got, want, ...) tap_str((got), (want), __FILE__, __LINE__, __VA_ARGS__)

TAP_FN void skip(int n, const char *why)
{
	while (n--)
		printf("ok %d # SKIP %s\n", ++tap.run, why);
}

TAP_FN int done_testing(void)
{
	if (!tap.planned)
		plan(tap.run);
	if (tap.planned != tap.run)
		diag("planned %d tests and ran %d", tap.planned, tap.run);
	fflush(stdout);
	return tap.failed || tap.planned != tap.run;
}

static volatile sig_atomic_t tap_child;

static inline void tap_stop(int sig)
{
	(void)sig;
	if (tap_child > 0)
		kill(-tap_child, SIGKILL);
}

/* SIGSTOP is on its way for a while, and all threads of the process have stopped when this
 * returns. */
TAP_FN void stop_process(pid_t pid)
{
	char path[40], text[256] = "", *state;
	int status, n;

	kill(pid, SIGSTOP);
	if (waitpid(pid, &status, WUNTRACED) == pid)
		return;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid); /* it is none of our children */
	for (n = 0; n < 5000; n++) {
		FILE *f = fopen(path, "r");

		if (f && !fgets(text, sizeof(text), f))
			text[0] = 0;
		if (f)
			fclose(f);
		state = strrchr(text, ')');
		if (!f || (state && (state[2] == 'T' || state[2] == 'Z')))
			return;
		usleep(1000);
	}
	bail("process %d does not stop", (int)pid);
}

static bool tap_is_guarded; /* this is the process of body, or one of its own */

/* Longer where the environment asks for more than make check does. */
static inline unsigned tap_limit(unsigned seconds)
{
	const char *more = getenv("GPC_T_SECONDS");

	if (getenv("GPC_T_ROUNDS") || getenv("GPC_T_EACH"))
		return seconds * 20;
	return seconds + (more ? (unsigned)strtoul(more, NULL, 10) : 0);
}

/* Until the child has ended, or has used up its limit; 0: it has none. */
TAP_FN int tap_watch(pid_t pid, unsigned seconds, bool *in_time)
{
	struct timespec look = { 0, (long)PATIENCE_LOOK };
	struct patience patience;
	sigset_t ends;
	int status;

	sigemptyset(&ends);
	sigaddset(&ends, SIGCHLD);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	patience_begin(&patience, pid, tap_limit(seconds));
	*in_time = true;
	while (waitpid(pid, &status, WNOHANG) != pid) {
		sigtimedwait(&ends, NULL, &look);
		if (seconds && *in_time && !patience_lasts(&patience)) {
			*in_time = false;
			kill(-pid, SIGKILL);
		}
	}
	return status;
}

/* Run the test in a process group of its own, at most so many seconds, as patience.h counts
 * them.  However it ends, by a signal too, the group is gone and cleanup has run before the
 * status returns. */
TAP_FN int tap_guard(unsigned seconds, int (*body)(void), void (*cleanup)(void))
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP };
	pid_t parent = getpid(), pid;
	sigset_t held, was;
	int status = 0;
	bool in_time;
	size_t i;

	/* a signal that comes before we know whom to end waits until then */
	sigemptyset(&held);
	for (i = 0; i < sizeof(ends) / sizeof(*ends); i++)
		sigaddset(&held, ends[i]);
	sigprocmask(SIG_BLOCK, &held, &was);
	pid = fork();
	if (pid < 0)
		bail("fork failed");
	if (!pid) {
		tap_is_guarded = true;
		sigprocmask(SIG_SETMASK, &was, NULL);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(255);
		setpgid(0, 0);
		status = body();
		fflush(stdout);
		exit(status);
	}
	setpgid(pid, pid);
	tap_child = pid;
	for (i = 0; i < sizeof(ends) / sizeof(*ends); i++)
		signal(ends[i], tap_stop);
	sigprocmask(SIG_SETMASK, &was, NULL);
	status = tap_watch(pid, seconds, &in_time);
	kill(-pid, SIGKILL);
	/* one that is still on its way out may make a file behind cleanup's back; who is not waited
	 * for by its parent stays in the group */
	for (i = 0; i < 200 && kill(-pid, 0) == 0; i++)
		usleep(1000);
	if (cleanup)
		cleanup();
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	printf("Bail out! killed by signal %d (%s)\n", WTERMSIG(status),
	       in_time ? "see above" : "out of time");
	return 255;
}

#endif
