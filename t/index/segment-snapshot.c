/* SPDX-License-Identifier: Apache-2.0 */
/* index/segment-snapshot - looking at a cache from outside, however it is damaged; and what
 * a forked child has of a segment.
 * Tests: lib/index/segment/snapshot.c */
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#include "index/segment/files.h"
#include "index/segment/lockfile.h"
#include "t/lib/scratch.h"

#define NAME "a"

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
	ok(!memcmp(s.control, a.control, a.at.control_bytes), "the whole control segment");
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
	is_int(scratch_look(NAME, &s), 0, "a look at a whole cache");
	s.index[bytes - 1] = 7;
	s.index[8192] = 7;
	if (truncate(scratch_file(NAME, "idx"), 8000) || truncate(scratch_file(NAME, "ctl"), 4096))
		bail("truncate failed");
	is_int(segment_refresh(&s), 0, "a look at half of one");
	ok(s.truncated, "is called truncated");
	ok(!s.index[bytes - 1] && !s.index[8192] && !seg_shared(&s)->tick, "zeros are there");
	segment_close(&s);
	is_int(scratch_open(NAME), -EBADMSG, "nobody opens it");
	is_int(scratch_look(NAME, &s), 0, "but tools can look");
	ok(s.truncated && !s.index[bytes - 1], "the same");
	segment_close(&s);
	unlink(scratch_file(NAME, "ctl"));
	unlink(scratch_file(NAME, "lock"));
	is_int(scratch_look(NAME, &s), 0, "without control segment and lock");
	ok(s.truncated && s.control_fd < 0 && s.lock_fd < 0 && !seg_shared(&s)->tick, "too");
	is_int(segment_open_lock(&s), -ENOENT, "no lock file, no lock");
	segment_close(&s);
	scratch_put(NAME, "lock", "another cache's ");
	is_int(segment_snapshot(&s, NAME, scratch), 0, "with a foreign lock file");
	ok(s.truncated && s.lock_fd < 0, "which is not believed");
	segment_close(&s);
	if (truncate(scratch_file(NAME, "idx"), 100))
		bail("truncate failed");
	is_int(segment_snapshot(&s, NAME, scratch), -EBADMSG, "without a header nothing works");
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
	is_int(scratch_look(NAME, &s), 0, "a body of rubbish");
	ok(!s.truncated && s.index[a.at.record] == (uint8_t)(a.at.record * 31 + 7), "is shown");
	segment_close(&s);
	scratch_patch(scratch_file(NAME, "ctl"), 100, "x", NULL, 1);
	is_int(segment_snapshot(&s, NAME, scratch), -EBADMSG, "a foreign control segment is not");
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
	scratch_look(NAME, &look);
	lock_try(s.lock_fd, LOCK_PEER(0));
	pid = fork();
	if (!pid) {
		int bad = is_mapped(s.index) || is_mapped(s.control);
		int was = s.index_fd;
		void *copy = look.index;

		segment_abandon(&s);
		segment_abandon(&look);
		bad |= s.index || s.control || s.index_fd != -1 || fcntl(was, F_GETFD) != -1;
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

static int body(void)
{
	test_snapshot();
	test_truncated();
	test_damaged_body();
	test_fork();
	is_int(scratch_files("", false), 0, "nothing left");
	return done_testing();
}

int main(void)
{
	scratch_make("t013");
	return tap_guard(60, body, scratch_remove);
}
