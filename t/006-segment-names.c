/* SPDX-License-Identifier: Apache-2.0 */
/* 006-segment-names - names that come and go under others' feet, leftovers of the dead,
 * and looking from outside. */
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#include "segment/lockfile.h"
#include "t/lib/scratch.h"
#include "segment/files.h"

#define NAME "a"

static void put_file(const char *suffix, const char *text)
{
	int fd = open(scratch_file(NAME, suffix), O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		bail("gpc.%s.%s: cannot be written", NAME, suffix);
	close(fd);
}

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
	ok(memcmp(c.header.id, a.header.id, 16) &&
		   memcmp(c.header.secret, a.header.secret, 16),
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
	put_file("m1", "mirror");
	put_file("m12", "mirror");
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
				put_file(left[i][j], locked ? "sixteen bytes id" : "");
			is_int(scratch_open(NAME), -ENOENT, "leftovers are no cache");
			is_int(scratch_create(NAME, &s), 0, "and in nobody's way");
			segment_close(&s);
			is_int(scratch_open(NAME), 0, "the new one is whole");
			is_int(scratch_files("", false), 3, "and alone");
			segment_unlink(NAME, scratch);
			for (j = 0; j < 5 && left[i][j]; j++)
				put_file(left[i][j], "");
			is_int(segment_unlink(NAME, scratch), -ENOENT,
			       "nothing to remove");
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
	put_file("idx", "rubbish");
	is_int(scratch_create(NAME, &b), -EEXIST, "nor is what is none");
	ok(strstr(gpc_last_error(), "remove it"), "says: %s", gpc_last_error());
	is_int(segment_unlink(NAME, scratch), 0, "it can be removed");
	is_int(scratch_files("", false), 0, "all of it");
}

static void test_creator_at_work(void)
{
	struct segment s;
	int fd;

	put_file("lock", "");
	fd = open(scratch_file(NAME, "lock"), O_RDWR | O_CLOEXEC);
	lock_try(fd, LOCK_CREATE);
	is_int(scratch_create(NAME, &s), -EAGAIN,
	       "another creator is at work, and stays");
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

/* Two make, two remove, two open: every answer is one of the expected. */
/* A snapshot and its copy. */
static int look_at(struct segment *s)
{
	int err = segment_snapshot(s, NAME, scratch);

	if (!err && (err = segment_refresh(s)))
		segment_close(s);
	return err;
}

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
				    : look_at(&s);
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
	is_int(crowd(create_or_open), 1, "of %d creators one wins, all others find it",
	       CROWD);
	segment_unlink(NAME, scratch);
	is_int(crowd(make_and_break), CROWD,
	       "a name made, removed and opened all the time");
	segment_unlink(NAME, scratch);
	is_int(scratch_files("", false), 0, "nothing left");
}

/* Creators killed anywhere: the name is free or stands for a whole cache. */
static void test_killed(void)
{
	int i, err, wrong = 0, whole = 0;
	volatile int spin;
	struct segment s;
	pid_t pid;

	for (i = 0; i < 60; i++) {
		int fds[2];
		char byte;

		if (pipe(fds))
			bail("pipe failed");
		pid = fork();
		if (!pid) {
			if (write(fds[1], "", 1) != 1)
				_exit(1);
			for (;;) {
				if (!scratch_create(NAME, &s))
					segment_close(&s);
				scratch_open(NAME);
				segment_unlink(NAME, scratch);
			}
		}
		close(fds[1]);
		if (read(fds[0], &byte, 1) != 1)
			bail("the child did not come up");
		close(fds[0]);
		for (spin = 0; spin < i * 20000; spin++)
			;
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
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

/* ---- from outside ---- */

static void test_snapshot(void)
{
	struct segment a, s;
	uint8_t *writer;
	int fd;

	is_int(segment_snapshot(&s, NAME, scratch), -ENOENT, "nothing to see");
	scratch_create(NAME, &a);
	seg_shared(&a)->tick = 1234;
	is_int(segment_snapshot(&s, NAME, scratch), 0, "a snapshot");
	ok(s.snapshot && !s.truncated && !s.index && !s.control, "copies nothing");
	is_int(segment_refresh(&s), 0, "a look");
	ok(!memcmp(s.index, a.index, a.at.index_bytes), "the whole index");
	ok(!memcmp(s.control, a.control, a.at.control_bytes),
	   "the whole control segment");
	ok(s.snapshot && !s.truncated, "a snapshot, complete");
	seg_shared(&s)->tick = 99;
	is_int(seg_shared(&a)->tick, 1234, "private");
	segment_map_writer(&a, &writer);
	writer[a.at.record] = 3;
	is_int(seg_record(&s, 0)->word, 0, "still");
	is_int(segment_refresh(&s), 0, "another look");
	is_int(seg_record(&s, 0)->word, 3, "sees what changed");
	is_int(seg_shared(&s)->tick, 1234, "everywhere");
	segment_unmap_writer(&a, writer);
	is_int(segment_map_writer(&s, &writer), -EROFS, "nobody writes through it");
	lock_try(a.lock_fd, LOCK_PEER(1));
	fd = segment_open_lock(&s);
	is_int(lock_test(fd, LOCK_PEER(1)), 1, "seats can be seen");
	is_int(lock_try(fd, LOCK_PEER(0)), -EBADF, "not taken");
	close(fd);
	segment_unlink(NAME, scratch);
	is_int(segment_refresh(&s), 0, "it outlives the name");
	ok(!s.truncated, "complete");
	segment_close(&s);
	segment_close(&a);
}

/* Cut off under the feet of whoever looks. */
static void test_truncated(void)
{
	struct segment a, s;
	uint64_t bytes;

	scratch_create(NAME, &a);
	bytes = a.at.index_bytes;
	seg_shared(&a)->tick = 1234;
	is_int(look_at(&s), 0, "a look at a whole cache");
	s.index[bytes - 1] = 7;
	s.index[8192] = 7;
	if (truncate(scratch_file(NAME, "idx"), 8000) ||
	    truncate(scratch_file(NAME, "ctl"), 4096))
		bail("truncate failed");
	is_int(segment_refresh(&s), 0, "a look at half of one");
	ok(s.truncated, "is called truncated");
	ok(!s.index[bytes - 1] && !s.index[8192] && !seg_shared(&s)->tick,
	   "zeros are there");
	segment_close(&s);
	is_int(scratch_open(NAME), -EBADMSG, "nobody opens it");
	is_int(look_at(&s), 0, "but tools can look");
	ok(s.truncated && !s.index[bytes - 1], "the same");
	segment_close(&s);
	unlink(scratch_file(NAME, "ctl"));
	unlink(scratch_file(NAME, "lock"));
	is_int(look_at(&s), 0,
	       "without control segment and lock");
	ok(s.truncated && s.control_fd < 0 && s.lock_fd < 0 && !seg_shared(&s)->tick,
	   "too");
	is_int(segment_open_lock(&s), -ENOENT, "no lock file, no lock");
	segment_close(&s);
	put_file("lock", "another cache's ");
	is_int(segment_snapshot(&s, NAME, scratch), 0, "with a foreign lock file");
	ok(s.truncated && s.lock_fd < 0, "which is not believed");
	segment_close(&s);
	if (truncate(scratch_file(NAME, "idx"), 100))
		bail("truncate failed");
	is_int(segment_snapshot(&s, NAME, scratch), -EBADMSG,
	       "without a header nothing works");
	segment_close(&a);
	segment_unlink(NAME, scratch);
}

static void test_damaged_body(void)
{
	struct segment a, s;
	uint64_t i;
	uint8_t *writer;

	scratch_create(NAME, &a);
	segment_map_writer(&a, &writer);
	for (i = sizeof(struct shm_header); i < a.at.index_bytes; i++)
		writer[i] = (uint8_t)(i * 31 + 7);
	segment_unmap_writer(&a, writer);
	is_int(look_at(&s), 0, "a body of rubbish");
	ok(!s.truncated && s.index[a.at.record] == (uint8_t)(a.at.record * 31 + 7),
	   "is shown");
	segment_close(&s);
	scratch_patch(scratch_file(NAME, "ctl"), 100, "x", NULL, 1);
	is_int(segment_snapshot(&s, NAME, scratch), -EBADMSG,
	       "a foreign control segment is not");
	segment_close(&a);
	segment_unlink(NAME, scratch);
}

/* ---- fork ---- */

static int is_mapped(void *p)
{
	unsigned char page;

	return !mincore(p, 4096, &page);
}

static void test_fork(void)
{
	struct segment s, look;
	int status, fd;
	pid_t pid;

	scratch_create(NAME, &s);
	look_at(&look);
	lock_try(s.lock_fd, LOCK_PEER(0));
	pid = fork();
	if (!pid) {
		int bad = is_mapped(s.index) || is_mapped(s.control);
		int was = s.index_fd;
		void *copy = look.index;

		segment_abandon(&s);
		segment_abandon(&look);
		bad |= s.index || s.control || s.index_fd != -1 ||
		       fcntl(was, F_GETFD) != -1;
		bad |= is_mapped(copy);
		_exit(bad);
	}
	waitpid(pid, &status, 0);
	is_int(status, 0, "a child has no mappings, and closes the files");
	fd = segment_open_lock(&s);
	is_int(lock_test(fd, LOCK_PEER(0)), 1, "without dropping its parent's locks");
	is_int(seg_shared(&s)->tick, 1, "or mappings");
	close(fd);
	segment_close(&look);
	segment_close(&s);
	segment_unlink(NAME, scratch);
}

/* The usual place, for once. */
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
	test_snapshot();
	test_truncated();
	test_damaged_body();
	test_fork();
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
