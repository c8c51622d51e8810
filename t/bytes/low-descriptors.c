/* SPDX-License-Identifier: Apache-2.0 */
/* A program whose standard streams are closed, in each combination, makes a cache, attaches,
 * serves, opens a mirror, looks, checks and forks.  Nothing that the library opens takes the place
 * of a stream, so what the program prints goes nowhere, and the cache is sound.
 * Tests: lib/index/base/fd.c */
#include "t/lib/cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpc_device.h"

static unsigned closed; /* bits */

static void close_streams(void)
{
	int fd;

	for (fd = 0; fd < 3; fd++)
		if (closed >> fd & 1)
			close(fd);
}

/* While a thread of the library opens a file, /dev/null stands there. */
static bool is_null(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? errno == EBADF : S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
}

/* Prints as a program does that knows nothing of it.  True: no closed stream is a file. */
static bool print(const char *text)
{
	bool none = true;
	int fd;

	for (fd = 0; fd < 3; fd++) {
		if (!(closed >> fd & 1))
			continue;
		none &= is_null(fd);
		none &= write(fd, text, strlen(text)) >= 0 || errno == EBADF;
		none &= is_null(fd);
	}
	return none;
}

/* ... and none is open, when no thread of the library is left. */
static bool all_closed(void)
{
	int fd;

	for (fd = 0; fd < 3; fd++)
		if ((closed >> fd & 1) && (fcntl(fd, F_GETFD) >= 0 || errno != EBADF))
			return false;
	return true;
}

/* What it comes to: 0, or the number of the step that went wrong. */
#define step(n, good)                                                           \
	do {                                                                    \
		if (!(good))                                                    \
			return n;                                               \
		if (!print("an engine's own words, where a header might be\n")) \
			return 100 + (n);                                       \
	} while (0)

static int look(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	struct gpc_info info = { .size = sizeof(info) };
	gpc *r;

	step(10, !gpc_attach(cache_name, &opt, GPC_READONLY, &r));
	step(11, !gpc_info_get(r, &info));
	step(12, info.max_blocks == 64);
	step(13, gpc_check(r, NULL, NULL) == 0);
	step(14, !gpc_close(r));
	return 0;
}

static int engine(void)
{
	struct gpc_config cfg = cache_config(64, 0);
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	gpc *c, *d;
	gpc_dev *dev;
	gpc_key k;
	gpc_block b;
	int err;

	close_streams();
	cfg.devices = "host";
	snprintf(cache_name, sizeof(cache_name), "low-%d", (int)getpid());
	step(1, !gpc_create(cache_name, &cfg, &opt, GPC_SERVE, &c));
	step(2, !gpc_attach(cache_name, &opt, GPC_SERVE, &d));
	k = key_of(d, 7);
	step(3, gpc_reserve(d, 0, 1, &b, NULL, 0, 1000) == 1);
	step(4, gpc_publish(d, NULL, &k, &b, 1, NULL, 0, -1) == 1);
	step(5, !gpc_mirror_sync(d, GPC_TICKET_ALL, 1000));
	step(6, !gpc_dev_open(d, "host", &dev));
	err = look();
	if (err)
		return err;
	step(7, !gpc_dev_close(dev) && !gpc_close(c));
	step(8, gpc_lookup(d, 0, &k, 1, &b, 0) == 1);
	err = look();
	if (err)
		return err;
	step(20, !gpc_close(d));
	step(21, !gpc_unlink(cache_name, cache_dir));
	step(22, all_closed());
	return 0;
}

static int in_a_process(void)
{
	int status = 0;
	pid_t pid = fork();

	if (pid < 0)
		bail("no process");
	if (!pid)
		_exit(engine());
	while (waitpid(pid, &status, 0) < 0)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -status;
}

static int body(void)
{
	for (closed = 0; closed < 8; closed++)
		is_int(in_a_process(), 0, "closed:%s%s%s", closed & 1 ? " 0" : "",
		       closed & 2 ? " 1" : "", closed & 4 ? " 2" : "");
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
