/* SPDX-License-Identifier: Apache-2.0 */
/* index/err-log - sentences for people, clocks and deadlines.
 * Tests: lib/index/base/err.c lib/index/base/log.c lib/index/base/clock.c */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>

#include "index/base/base.h"
#include "index/base/err.h"
#include "gpc.h"
#include "index/base/log.h"
#include "t/lib/tap.h"

static void test_strerror(void)
{
	static const int all[] = { EINVAL, ENOENT, EEXIST,    EPROTO,     EBADMSG, EACCES, ENOSPC,
				   EDQUOT, EAGAIN, ETIMEDOUT, ENOTCONN,   EDEADLK, ESTALE, EPERM,
				   EUSERS, EXDEV,  EOVERFLOW, ECHILD,     EBUSY,   EROFS,  ENODEV,
				   ENOMEM, EINTR,  EIO,       EOPNOTSUPP, EFBIG };
	const char *other = gpc_strerror(EDOM);
	size_t i, j;
	int bad = 0;

	for (i = 0; i < ARRAY_SIZE(all); i++) {
		const char *text = gpc_strerror(all[i]);

		bad += text != gpc_strerror(-all[i]) || text == other || !*text;
		for (j = 0; j < i; j++)
			bad += !strcmp(text, gpc_strerror(all[j]));
	}
	is_int(bad, 0, "each errno of gpc.h has a sentence of its own, for either sign");
	is_str(gpc_strerror(0), "success", "no error");
	ok(other && *other, "any other number has a sentence too");
	is_int(gpc_version() >> 16, 0, "major version");
	is_int(gpc_version() & 0xffff, 2, "minor version");
}

static void *fail_elsewhere(void *arg)
{
	(void)arg;
	err_set(EIO, "of another thread");
	return NULL;
}

static void test_last_error(void)
{
	char long_text[2000];
	pthread_t t;

	is_str(gpc_last_error(), "", "nothing has failed yet");
	is_int(err_set(EINVAL, "%s is %d", "x", 7), -EINVAL, "an error");
	is_str(gpc_last_error(), "x is 7", "its sentence");
	errno = ENOENT;
	is_int(err_sys(0, "file %d", 3), -ENOENT, "the system's error");
	ok(strstr(gpc_last_error(), "file 3: No such file"), "%s", gpc_last_error());
	is_int(err_sys(EACCES, "file"), -EACCES, "another number for it");
	is_int(errno, ENOENT, "errno is left alone");
	if (pthread_create(&t, NULL, fail_elsewhere, NULL) || pthread_join(t, NULL))
		bail("no thread");
	ok(strstr(gpc_last_error(), "file"), "threads have sentences of their own");
	memset(long_text, 'x', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = 0;
	err_sys(EIO, "%s", long_text);
	ok(strlen(gpc_last_error()) < 1000, "a long one is cut");
}

static char said[256];
static int said_level, calls;

static void listener(void *arg, int level, const char *text)
{
	snprintf(said, sizeof(said), "%s%s", (char *)arg, text);
	said_level = level;
	calls++;
}

/* What log_say writes to stderr under a value of GPC_LOG. */
static const char *printed(const char *value, int level)
{
	static char text[512];
	int fds[2], saved = dup(STDERR_FILENO);
	struct log l;
	ssize_t n;

	if (pipe(fds) || dup2(fds[1], STDERR_FILENO) < 0)
		bail("no pipe");
	close(fds[1]);
	if (value)
		setenv("GPC_LOG", value, 1);
	else
		unsetenv("GPC_LOG");
	log_init(&l, NULL, NULL);
	log_say(&l, level, "number %d", 5);
	dup2(saved, STDERR_FILENO);
	close(saved);
	n = read(fds[0], text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = 0;
	close(fds[0]);
	return text;
}

static void test_log(void)
{
	struct log l;

	is_str(printed(NULL, LOG_EMERG), "", "without GPC_LOG nothing is printed");
	is_str(printed("", LOG_EMERG), "", "nor with an empty one");
	is_str(printed("info", LOG_DEBUG), "", "nor what is less than asked for");
	ok(strstr(printed("info", LOG_INFO), "number 5\n"), "info is, at info");
	ok(strstr(printed("debug", LOG_DEBUG), "debug: number 5"), "debug, at debug");
	ok(strstr(printed("3", LOG_ERR), "err: number 5"), "a number is a level");
	is_str(printed("3", LOG_WARNING), "", "warnings are less than 3");
	ok(strstr(printed("yes", LOG_DEBUG), "number 5"), "an unknown word means all");
	unsetenv("GPC_LOG");
	log_init(&l, listener, (void *)"heard: ");
	errno = 77;
	log_say(&l, LOG_WARNING, "%s", "a warning");
	is_int(errno, 77, "errno is left alone");
	is_str(said, "heard: a warning", "the callback hears it");
	is_int(said_level, LOG_WARNING, "with its level");
	is_int(calls, 1, "once");
}

static void test_clock(void)
{
	uint64_t before = clock_ns(), deadline = deadline_from(1000), after = clock_ns();

	ok(before <= after, "time goes on");
	ok(deadline >= before + 1000 * NS_PER_MS && deadline <= after + 1000 * NS_PER_MS,
	   "a deadline in a second");
	ok(deadline_from(0) <= before, "0 is over already");
	ok(deadline_from(-1) == NEVER && deadline_from(INT32_MIN) == NEVER, "-1 never is");
	ok(deadline_from(INT32_MAX) > after && deadline_from(INT32_MAX) != NEVER, "24 days");
	ok(clock_coarse_ns() <= clock_ns() && clock_coarse_ns() + 1000 * NS_PER_MS > before,
	   "the coarse clock is the same clock");
}

static int body(void)
{
	test_last_error();
	test_strerror();
	test_log();
	test_clock();
	return done_testing();
}

int main(void)
{
	return tap_guard(30, body, NULL);
}
