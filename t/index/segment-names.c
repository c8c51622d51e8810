/* SPDX-License-Identifier: Apache-2.0 */
/* index/segment-names - names that come and go under others' feet, and leftovers of the
 * dead.
 * Tests: lib/index/segment/create.c lib/index/segment/remove.c lib/index/segment/files.h */
#include <errno.h>
#include <stdint.h>

#include "index/segment/files.h"
#include "index/segment/lockfile.h"
#include "t/lib/scratch.h"

#define NAME "a"

/* The linker puts it before each rename: under a name that ends in .idx all has to be there. */
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);

static uint32_t named, early;

int __wrap_rename(const char *from, const char *to)
{
	size_t n = strlen(to);
	char ctl[512];

	if (n > 4 && n < sizeof(ctl) && !strcmp(to + n - 4, ".idx")) {
		memcpy(ctl, to, n - 4);
		memcpy(ctl + n - 4, ".ctl", 5);
		named++;
		early += access(ctl, F_OK) != 0;
	}
	return __real_rename(from, to);
}

/* ---- removal ---- */

/* Whoever is attached goes on, and the name is free for another cache. */
static void test_unlink_attached(void)
{
	struct segment a, b, c;
	uint8_t *writer;
	int fd;

	scratch_create(NAME, &a);
	is_int(segment_open(&b, NAME, scratch, NULL), 0, "attached");
	is_int(lock_try(b.lock_fd, LOCK_PEER(0)), 0, "with a seat");
	is_int(segment_unlink(NAME, scratch), 0, "removed");
	is_int(segment_unlink(NAME, scratch), -ENOENT, "once only");
	is_int(scratch_open(NAME), -ENOENT, "nobody else can come");
	is_int(segment_map_writer(&b, &writer), 0, "a writer can take over");
	writer[b.at.record] = 9;
	is_int(seg_record(&a, 0)->word, 9, "what it writes is seen");
	segment_unmap_writer(&b, writer);
	fd = segment_open_lock(&a);
	is_int(lock_test(fd, LOCK_PEER(0)), 1, "the seat is still taken");
	close(fd);

	is_int(scratch_create(NAME, &c), 0, "the name is free");
	ok(memcmp(c.header.id, a.header.id, 16) && memcmp(c.header.secret, a.header.secret, 16),
	   "for a cache with its own id and secret");
	is_int(lock_test(c.lock_fd, LOCK_PEER(0)), 0, "and its own seats");
	is_int(seg_record(&c, 0)->word, 0, "empty");
	segment_close(&c);
	segment_close(&b);
	segment_close(&a);
	is_int(segment_unlink(NAME, scratch), 0, "removed again");
}

/* gpc.a.m1.idx belongs to the cache "a.m1", not to "a". */
static void test_unlink_others(void)
{
	struct segment s;

	scratch_create("a.m1", &s);
	segment_close(&s);
	scratch_create("ab", &s);
	segment_close(&s);
	scratch_create(NAME, &s);
	segment_close(&s);
	scratch_put(NAME, "m1", "mirror");
	scratch_put(NAME, "m12", "mirror");
	is_int(scratch_files("", false), 11, "three caches and two mirrors");
	is_int(segment_unlink(NAME, scratch), 0, "one goes");
	is_int(scratch_files("", false), 6, "with its mirrors and nothing else");
	is_int(scratch_open("a.m1"), 0, "one stays");
	is_int(scratch_open("ab"), 0, "the other, too");
	segment_unlink("a.m1", scratch);
	segment_unlink("ab", scratch);
	is_int(segment_unlink("a/b", scratch), -EINVAL, "bad name");
	is_int(scratch_files("", false), 0, "all gone");
}

/* ---- leftovers ---- */

/* What a creator may leave that was killed after each step. */
static void test_leftovers(void)
{
	static const char *const left[][5] = {
		{ "lock" },
		{ "lock", "ctl.tmp" },
		{ "lock", "ctl.tmp", "idx.tmp" },
		{ "lock", "ctl", "idx.tmp" },
		{ "ctl", "idx.tmp", "ctl.tmp" },
	};
	size_t i, j, locked;
	struct segment s;

	for (locked = 0; locked < 2; locked++)
		for (i = 0; i < ARRAY_SIZE(left); i++) {
			for (j = 0; j < 5 && left[i][j]; j++)
				scratch_put(NAME, left[i][j], locked ? "sixteen bytes id" : "");
			is_int(scratch_open(NAME), -ENOENT, "leftovers are no cache");
			is_int(scratch_create(NAME, &s), 0, "and in nobody's way");
			segment_close(&s);
			is_int(scratch_open(NAME), 0, "the new one is whole");
			is_int(scratch_files("", false), 3, "and alone");
			segment_unlink(NAME, scratch);
			for (j = 0; j < 5 && left[i][j]; j++)
				scratch_put(NAME, left[i][j], "");
			is_int(segment_unlink(NAME, scratch), -ENOENT, "nothing to remove");
			is_int(scratch_files("", false), 0, "but leftovers are swept");
		}
}

/* Killed while removing, after the index: peers still hold bytes of the old lock file. */
static void test_half_removed(void)
{
	struct segment a, b;

	scratch_create(NAME, &a);
	lock_try(a.lock_fd, LOCK_WRITER);
	unlink(scratch_file(NAME, "idx"));
	is_int(scratch_create(NAME, &b), 0, "created over a half removed one");
	is_int(lock_test(b.lock_fd, LOCK_WRITER), 0, "whose writer is not in the way");
	segment_close(&b);
	segment_close(&a);

	unlink(scratch_file(NAME, "ctl"));
	is_int(scratch_create(NAME, &b), -EEXIST, "a damaged cache is not overwritten");
	ok(strstr(gpc_last_error(), "exists"), "says: %s", gpc_last_error());
	scratch_put(NAME, "idx", "rubbish");
	is_int(scratch_create(NAME, &b), -EEXIST, "nor is what is none");
	ok(strstr(gpc_last_error(), "remove it"), "says: %s", gpc_last_error());
	is_int(segment_unlink(NAME, scratch), 0, "it can be removed");
	is_int(scratch_files("", false), 0, "all of it");
}

static void test_creator_at_work(void)
{
	struct segment s;
	int fd;

	scratch_put(NAME, "lock", "");
	fd = open(scratch_file(NAME, "lock"), O_RDWR | O_CLOEXEC);
	lock_try(fd, LOCK_CREATE);
	is_int(scratch_create(NAME, &s), -EAGAIN, "another creator is at work, and stays");
	is_int(segment_unlink(NAME, scratch), -EAGAIN, "nor can it be removed");
	close(fd);
	is_int(segment_unlink(NAME, scratch), -ENOENT, "when it is gone, it can");
}

/* ---- crowds ---- */

#define CROWD    6
#define CROWD_MS 1000

/* All start at once when the gate closes; returns how many ended with status 0. */
static int crowd(int (*work)(int number))
{
	int gate[2], i, status, good = 0;
	pid_t pid[CROWD];
	char byte;

	if (pipe(gate))
		bail("pipe failed");
	for (i = 0; i < CROWD; i++) {
		pid[i] = fork();
		if (!pid[i]) {
			close(gate[1]);
			if (read(gate[0], &byte, 1))
				_exit(255);
			_exit(work(i));
		}
	}
	close(gate[0]);
	close(gate[1]);
	for (i = 0; i < CROWD; i++) {
		waitpid(pid[i], &status, 0);
		good += WIFEXITED(status) && !WEXITSTATUS(status);
		if (!WIFEXITED(status) || WEXITSTATUS(status) > 1)
			diag("child %d: status %x", i, (unsigned)status);
	}
	return good;
}

/* 0 = made it, 1 = found it, 2 = neither */
static int create_or_open(int number)
{
	struct segment s;
	int err = scratch_create(NAME, &s);

	(void)number;
	if (!err)
		return 0;
	return err == -EEXIST && !scratch_open(NAME) ? 1 : 2;
}

/* Two make, two remove, two look: every answer is one of the expected. */
static int make_and_break(int number)
{
	struct segment s;
	uint64_t end = clock_ns() + CROWD_MS * NS_PER_MS;
	int i, err;

	for (i = 0; clock_ns() < end; i++) {
		if (number % 3 == 0) {
			err = scratch_create(NAME, &s);
			if (err && err != -EEXIST)
				return 2;
		} else if (number % 3 == 1) {
			err = segment_unlink(NAME, scratch);
			if (err && err != -ENOENT)
				return 3;
		} else {
			err = i & 1 ? segment_open(&s, NAME, scratch, NULL)
				    : scratch_look(NAME, &s);
			if (err && err != -ENOENT)
				return 4;
			if (!err && (seg_shared(&s)->epoch != 1 || s.truncated))
				return 5;
		}
		if (number % 3 != 1 && !err)
			segment_close(&s);
	}
	return 0;
}

static void test_crowds(void)
{
	is_int(crowd(create_or_open), 1, "of %d creators one wins, all others find it", CROWD);
	segment_unlink(NAME, scratch);
	is_int(crowd(make_and_break), CROWD, "a name made, removed and opened all the time");
	segment_unlink(NAME, scratch);
	is_int(scratch_files("", false), 0, "nothing left");
}

/* Makes and removes until somebody kills it; says first that it has begun. */
static void make_for_ever(int says)
{
	struct segment s;

	if (write(says, "", 1) != 1)
		_exit(1);
	for (;;) {
		if (!scratch_create(NAME, &s))
			segment_close(&s);
		scratch_open(NAME);
		segment_unlink(NAME, scratch);
	}
}

static void kill_one_after(int spins)
{
	volatile int spin;
	int fds[2];
	pid_t pid;
	char byte;

	if (pipe(fds))
		bail("pipe failed");
	pid = fork();
	if (!pid)
		make_for_ever(fds[1]);
	close(fds[1]);
	if (read(fds[0], &byte, 1) != 1)
		bail("the child did not come up");
	close(fds[0]);
	for (spin = 0; spin < spins; spin++)
		;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Creators killed anywhere: the name is free or stands for a whole cache. */
static void test_killed(void)
{
	int i, err, wrong = 0, whole = 0;
	struct segment s;

	for (i = 0; i < 60; i++) {
		kill_one_after(i * 20000);
		err = scratch_open(NAME);
		whole += !err;
		wrong += err && err != -ENOENT && err != -EBADMSG;
		/* half removed, the index still there: only the unlinker's first step */
		wrong += err == -EBADMSG && access(scratch_file(NAME, "idx"), F_OK) == 0;
		err = scratch_create(NAME, &s);
		wrong += err != 0 && err != -EEXIST;
		if (!err)
			segment_close(&s);
		wrong += scratch_open(NAME) != 0;
		segment_unlink(NAME, scratch);
	}
	is_int(wrong, 0, "killed at %d moments (%d caches stood), no trace", i, whole);
	is_int(scratch_files("", false), 0, "nothing left");
}

/* ---- the usual place ---- */

static void test_default_dir(void)
{
	struct gpc_config cfg = { .size = sizeof(cfg), .max_blocks = 8, .max_peers = 1 };
	const char *name = strrchr(scratch, '/') + 1;
	struct segment s;

	is_int(segment_create(&s, name, &cfg), 0, "created in /dev/shm");
	is_str(s.dir, "/dev/shm", "indeed");
	segment_close(&s);
	is_int(segment_open(&s, name, NULL, NULL), 0, "opened there");
	segment_close(&s);
	is_int(segment_unlink(name, ""), 0, "removed there");
}

static int body(void)
{
	test_unlink_attached();
	ok(named && !early, "a cache gets its name when all of it is there");
	test_unlink_others();
	test_leftovers();
	test_half_removed();
	test_creator_at_work();
	test_crowds();
	test_killed();
	test_default_dir();
	is_int(scratch_files("", false), 0, "nothing left");
	return done_testing();
}

static void cleanup(void)
{
	segment_unlink(strrchr(scratch, '/') + 1, NULL);
	scratch_remove();
}

int main(void)
{
	scratch_make("t006");
	return tap_guard(60, body, cleanup);
}
