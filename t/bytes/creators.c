/* SPDX-License-Identifier: Apache-2.0 */
/* Creators while they make memory: they tell how far they are, may be stopped, killed at each step,
 * or have their cache removed, and leave nothing that stays; others wait for one that is at
 * work.
 * Tests: lib/index/segment/create.c lib/bytes/memfile/make.c lib/bytes/memfile/pages.c */
#include "t/lib/ram_memory.h"
#include "t/lib/steps.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "index/segment/lockfile.h"

static struct {
	pthread_t thread;
	uint64_t last, bytes;
	int calls, wrong, die_at, gate[2];
} seen;

static int progress(void *arg, uint64_t done, uint64_t bytes)
{
	seen.wrong += arg != &seen || !pthread_equal(pthread_self(), seen.thread) ||
		      done < seen.last || done > bytes;
	seen.last = done;
	seen.bytes = bytes;
	if (++seen.calls == seen.die_at)
		kill(getpid(), SIGKILL);
	return 0;
}

static void test_progress(void)
{
	gpc *c;

	seen.thread = pthread_self();
	memory.progress = progress;
	memory.progress_arg = &seen;
	memory.threads = 3;
	c = make();
	ok(seen.calls >= 2 && !seen.wrong, "%d times told how far it is, by the caller's thread",
	   seen.calls);
	ok(seen.last == seen.bytes && seen.bytes >= SLOTS * BYTES, "to the end");
	end(c);
}

/* Steps of a creator, beside those of steps.h. */
STEP(int, lock_try, (int fd, uint64_t byte), (fd, byte))
STEP(void, lock_drop, (int fd, uint64_t byte), (fd, byte))
STEP(int, rename, (const char *from, const char *to), (from, to))
STEP(int, segment_map_writer, (const struct segment *s, uint8_t **ret), (s, ret))

static bool creator_dies(long n)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		struct gpc_config cfg = config();
		gpc *c;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		memory.threads = 1;
		steps = n;
		_exit(gpc_create(NAME, &cfg, NULL, 0, &c) != 0);
	}
	while (waitpid(pid, &status, 0) < 0)
		;
	return WIFSIGNALED(status);
}

/* The next creator, and a remover in turns, finds what a dead one left. */
static void test_kills(void)
{
	int wrong = 0, with_memory = 0, whole = 0;
	gpc *c = NULL;
	long n;

	memory.progress = NULL;
	for (n = 1; creator_dies(n); n++) {
		struct gpc_config cfg = config();
		int err;

		with_memory += files(NAME ".p") == 1 && !is_cache();
		if (n & 1) {
			err = gpc_create(NAME, &cfg, NULL, 0, &c);
			whole += err == -EEXIST;
			if (err == -EEXIST)
				err = gpc_create(NAME, &cfg, NULL, GPC_IF_ABSENT, &c);
			wrong += err != 0 || files(NAME ".p") != 1;
			if (!err)
				must(gpc_close(c));
		}
		err = gpc_unlink(NAME, cache_dir);
		wrong += (err && err != -ENOENT) || files("");
	}
	ok(n > 15 && with_memory > 5, "a creator was killed at %ld steps, %d times with memory",
	   n - 1, with_memory);
	ok(whole >= 1, "%d times the cache was there already", whole);
	is_int(wrong, 0, "the next one makes it all the same, and a remover removes all of it");
	must(gpc_unlink(NAME, cache_dir));
	is_int(files(""), 0, "nothing is left");
}

static int hold(void *arg, uint64_t done, uint64_t bytes)
{
	char c;

	if (done)
		return 0;
	if (write(seen.gate[1], "", 1) != 1 || read(*(int *)arg, &c, 1) != 1)
		_exit(3);
	return 0;
}

/* Until a byte comes by go; what it answers then. */
static pid_t creator_that_waits(int go[2], int want)
{
	pid_t pid = fork();
	char byte;

	if (!pid) {
		struct gpc_config cfg = config();
		gpc *c;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		memory.progress = hold;
		memory.progress_arg = &go[0];
		_exit(gpc_create(NAME, &cfg, NULL, 0, &c) != want);
	}
	if (read(seen.gate[0], &byte, 1) != 1)
		bail("no creator");
	return pid;
}

/* Others, while a creator touches its memory for more than two seconds. */
static void test_waiting(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt),
					  .timeout_ms = 20000,
					  .dir = cache_dir };
	struct gpc_config cfg = config();
	int go[2], status;
	gpc *c = NULL;
	pid_t pid, waiter;
	char byte;

	if (pipe(seen.gate) || pipe(go))
		bail("no pipe");
	pid = creator_that_waits(go, 0);
	waiter = fork();
	if (!waiter) { /* its first try ends before ours */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(write(seen.gate[1], "", 1) != 1 ||
		      gpc_create(NAME, &cfg, &opt, GPC_IF_ABSENT, &c) != 0);
	}
	if (read(seen.gate[0], &byte, 1) != 1)
		bail("nobody waits");
	refused(gpc_attach(NAME,
			   &(struct gpc_attach_options){ .size = sizeof(opt), .dir = cache_dir }, 0,
			   &c),
		ENOENT, "no cache while its memory is made");
	is_int(gpc_create(NAME, &cfg, NULL, GPC_IF_ABSENT, &c), -EAGAIN,
	       "a creator without timeout: %s", gpc_last_error());
	is_int(files(NAME ".p"), 1, "has made no memory of its own");
	if (write(go[1], "", 1) != 1)
		bail("no gate");
	waitpid(waiter, &status, 0);
	is_int(status, 0, "one with a timeout waits for it");
	is_int(files(NAME ".p"), 1, "and shares its memory");
	waitpid(pid, &status, 0);
	is_int(status, 0, "which the first one made");
	must(gpc_unlink(NAME, cache_dir));
}

/* Its maker says so, at the beginning, in the middle, or at the end. */
static int stops(void *arg, uint64_t done, uint64_t bytes)
{
	const int *when = arg;

	return *when == 0 ? done == 0 : *when == 1 ? done != 0 : done == bytes;
}

static void test_stopped(void)
{
	struct gpc_config cfg = config();
	unsigned long long all, there;
	const char *said;
	gpc *c = NULL;
	int when;

	memory.threads = 1;
	memory.progress = stops;
	memory.progress_arg = &when;
	for (when = 0; when < 3; when++) {
		refused(gpc_create(NAME, &cfg, NULL, 0, &c), ECANCELED, "progress() ends it, %s",
			when == 0   ? "at once"
			: when == 1 ? "soon"
				    : "at the end");
		said = strstr(gpc_last_error(), "was to have ");
		ok(said &&
			   sscanf(said, "was to have %llu bytes, of which %llu were", &all,
				  &there) == 2 &&
			   (when < 2 ? there < all : there == all),
		   "says: %s", gpc_last_error());
		is_int(files(""), 0, "nothing is left");
	}
	memory.progress = NULL;
}

/* Removed while its memory is made: at once; and the name may be another cache's when its maker
 * comes to that. */
static void test_removed(bool again)
{
	struct gpc_config cfg = config();
	int go[2], fd, status;
	char path[200];
	gpc *c = NULL;
	pid_t pid;

	if (pipe(seen.gate) || pipe(go))
		bail("no pipe");
	pid = creator_that_waits(go, -ECANCELED);
	snprintf(path, sizeof(path), "%s/gpc." NAME ".lock", cache_dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	is_int(lock_test(fd, LOCK_CREATE), 0, "nobody is kept from the name while memory is made");
	is_int(lock_test(fd, LOCK_MAKE), 1, "but from making it once more");
	close(fd);
	is_int(gpc_unlink(NAME, cache_dir), -ENOENT, "it is removed, though it was no cache yet");
	is_int(files(""), 0, "all of it");
	memory.progress = NULL;
	if (again)
		is_int(gpc_create(NAME, &cfg, NULL, 0, &c), 0, "another one is made");
	if (write(go[1], "", 1) != 1)
		bail("no gate");
	waitpid(pid, &status, 0);
	is_int(status, 0, "the first creator is told that its cache was removed");
	is_int(files(NAME ".p"), again, "its memory has gone, and no other");
	if (again) {
		ok(is_cache() && gpc_check(c, NULL, NULL) == 0, "the other cache is whole");
		must(gpc_close(c));
		must(gpc_unlink(NAME, cache_dir));
	}
	is_int(files(""), 0, "nothing is left");
}

/* A creator that waits goes on where the one before it died. */
static void test_waits_for_dead(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt),
					  .timeout_ms = 20000,
					  .dir = cache_dir };
	struct gpc_config cfg = config();
	int go[2], status;
	gpc *c = NULL;
	pid_t pid, waiter;

	if (pipe(go))
		bail("no pipe");
	pid = creator_that_waits(go, 0);
	waiter = fork();
	if (!waiter) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(gpc_create(NAME, &cfg, &opt, GPC_IF_ABSENT, &c) != 0);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	waitpid(waiter, &status, 0);
	is_int(status, 0, "a creator dies in the middle: who waited makes the cache");
	is_int(files(NAME ".p"), 1, "with one memory");
	must(gpc_unlink(NAME, cache_dir));
	is_int(files(""), 0, "and nothing else");
}

static int body(void)
{
	test_progress();
	test_kills();
	test_waiting();
	test_waits_for_dead();
	test_stopped();
	test_removed(false);
	test_removed(true);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(30, body, cache_dir_remove);
}
