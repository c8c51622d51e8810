/* SPDX-License-Identifier: Apache-2.0 */
/* index/segment-damage - everything that opening a segment refuses: damaged and forged
 * headers, other sizes, other kinds of files, other people's files.  Each is undone
 * afterwards.
 * Tests: lib/index/segment/validate.c lib/index/segment/segment.c */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <time.h>

#include "index/segment/files.h"
#include "index/segment/lockfile.h"
#include "t/lib/scratch.h"

#define NAME       "a"
#define OTHER_USER 65534

/* ---- damage ---- */

static struct shm_header good; /* of the index */

static void put_header(const struct shm_header *h)
{
	scratch_patch(scratch_file(NAME, "idx"), 0, h, NULL, sizeof(*h));
}

/* Every byte of a file's first n, flipped: how many openings gave another error than
 * these. */
static int flip(const char *suffix, long n, int except_from, int except_to)
{
	const char *path = scratch_file(NAME, suffix);
	int wrong = 0;
	uint8_t byte, other;
	long i;

	for (i = 0; i < n; i++) {
		int err;

		scratch_patch(path, i, NULL, &byte, 1);
		other = byte ^ 0x41;
		scratch_patch(path, i, &other, NULL, 1);
		err = scratch_open(NAME);
		wrong += err != (i >= except_from && i < except_to ? -EPROTO : -EBADMSG);
		scratch_patch(path, i, &byte, NULL, 1);
	}
	return wrong;
}

static void test_flips(void)
{
	is_int(flip("idx", sizeof(good), 8, 9), 0,
	       "every byte of the index's header counts; another small version is one");
	is_int(flip("ctl", sizeof(good), 0, 0), 0, "every byte of the control header");
	is_int(flip("lock", 16, 0, 0), 0, "every byte of the lock file's id");
	is_int(scratch_open(NAME), 0, "undone, it opens");
}

/* Headers that somebody forged, checksums and all. */
static int open_forged(struct shm_header h)
{
	struct shm_header control, was;
	int err;

	h.checksum = segment_header_sum(&h);
	segment_control_header(&h, &control);
	put_header(&h);
	scratch_patch(scratch_file(NAME, "ctl"), 0, NULL, &was, sizeof(was));
	scratch_patch(scratch_file(NAME, "ctl"), 0, &control, NULL, sizeof(control));
	err = scratch_open(NAME);
	scratch_patch(scratch_file(NAME, "ctl"), 0, &was, NULL, sizeof(was));
	put_header(&good);
	return err;
}
#define FORGE(field, value, want, what)                  \
	do {                                             \
		struct shm_header forged = good;         \
		forged.field = value;                    \
		is_int(open_forged(forged), want, what); \
	} while (0)

static void test_forgeries(void)
{
	struct shm_header endless = good;

	memset(endless.devices, 'x', sizeof(endless.devices));
	is_int(open_forged(endless), -EBADMSG, "endless devices");
	FORGE(pad0, good.pad0, 0, "the true header");
	FORGE(version, SHM_VERSION + 1, -EPROTO, "the next version");
	FORGE(version, SHM_VERSION - 1, -EPROTO, "the one before");
	FORGE(version, 0, -EBADMSG, "no version");
	FORGE(version, UINT32_MAX, -EBADMSG, "a version that will never be");
	FORGE(magic, SHM_MAGIC_CONTROL, -EBADMSG, "a control segment");
	FORGE(endian, 0x04030201, -EBADMSG, "other bytes first");
	FORGE(page, 65536, -EBADMSG, "other pages");
	FORGE(header_bytes, 272, -EBADMSG, "longer header");
	FORGE(geometry.max_blocks, 65, -EBADMSG, "a block more");
	FORGE(geometry.max_blocks, UINT32_MAX, -EBADMSG, "all blocks there can be");
	FORGE(geometry.max_peers, 0, -EBADMSG, "no peers");
	FORGE(geometry.max_pools, 17, -EBADMSG, "a pool more than fits");
	FORGE(geometry.buckets, 0, -EBADMSG, "no buckets");
	FORGE(geometry.changes, 3, -EBADMSG, "an odd feed");
	FORGE(geometry.pad0, 1, -EBADMSG, "something where nothing is");
	FORGE(bytes, good.bytes + 4096, -EBADMSG, "more bytes");
	FORGE(block_tokens, 0, -EBADMSG, "no tokens");
	FORGE(tick_us, 0, -EBADMSG, "no tick");
	FORGE(free_target, -1, -EBADMSG, "less than nothing ahead");
	FORGE(hash[0], 'S', -EPROTO, "another hash");
	FORGE(secret[0], good.secret[0] ^ 1, 0, "another secret: nobody could know");
}

/* The type of the file system that statfs() answers; 0: as it is. */
static long fs_type;
int __real_fstatfs(int fd, struct statfs *fs);
int __wrap_fstatfs(int fd, struct statfs *fs);
int __wrap_fstatfs(int fd, struct statfs *fs)
{
	int r = __real_fstatfs(fd, fs);

	if (fs_type)
		fs->f_type = (__fsword_t)fs_type;
	return r;
}

/* Whether a cache is of this boot is told by its boot id, which a container may have of its own. */
static void test_boot(void)
{
	struct shm_header before = good;
	struct timespec now, up;

	clock_gettime(CLOCK_REALTIME, &now);
	clock_gettime(CLOCK_BOOTTIME, &up);
	before.created_ns = (uint64_t)(now.tv_sec - up.tv_sec - 60) * 1000000000u;
	is_int(open_forged(before), 0, "its boot id is ours: whatever the clock says");
	before.boot[3] ^= 1;
	is_int(open_forged(before), -EBADMSG, "another one: a copy that was kept over a boot");
	ok(strstr(gpc_last_error(), "before the last boot"), "as is said: %s", gpc_last_error());
	FORGE(boot[3], good.boot[3] ^ 1, 0,
	      "made since the boot: a container has an id of its own");
	fs_type = 0xef53;
	FORGE(boot[3], good.boot[3] ^ 1, -EBADMSG, "on a disk: of another boot or machine");
	FORGE(boot[3], good.boot[3], 0, "which is no matter where the id is ours");
	fs_type = 0x6969;
	FORGE(boot[3], good.boot[3] ^ 1, -EBADMSG, "on a network: of another machine");
	fs_type = 0;
}

static void test_unready(void)
{
	struct shm_header h = good;
	int fd = open(scratch_file(NAME, "lock"), O_RDWR | O_CLOEXEC);

	h.ready = 0;
	put_header(&h);
	is_int(scratch_open(NAME), -EBADMSG, "never completed");
	is_int(lock_try(fd, LOCK_CREATE), 0, "a creator at work");
	is_int(scratch_open(NAME), -ENOENT, "is waited for");
	close(fd);
	put_header(&good);
	is_int(scratch_open(NAME), 0, "completed");
}

static void test_sizes(void)
{
	static const char *const suffix[] = { "idx", "ctl" };
	struct stat st;
	int i, wrong = 0;

	for (i = 0; i < 2; i++) {
		const char *path = scratch_file(NAME, suffix[i]);
		off_t sizes[] = { 0, 1, 100, sizeof(good), 4095, 4096, 8192, 0, 0, 0 };
		uint8_t *copy;
		size_t j;
		int fd = open(path, O_RDWR | O_CLOEXEC);

		fstat(fd, &st);
		sizes[7] = st.st_size - 4096;
		sizes[8] = st.st_size - 1;
		sizes[9] = st.st_size + 4096;
		copy = malloc((size_t)st.st_size);
		if (!copy || pread(fd, copy, (size_t)st.st_size, 0) != st.st_size)
			bail("%s: unreadable", path);
		for (j = 0; j < ARRAY_SIZE(sizes); j++) {
			if (ftruncate(fd, sizes[j]))
				bail("%s: ftruncate", path);
			wrong += scratch_open(NAME) != -EBADMSG;
			if (ftruncate(fd, st.st_size) ||
			    pwrite(fd, copy, (size_t)st.st_size, 0) != st.st_size)
				bail("%s: cannot be restored", path);
		}
		is_int(scratch_open(NAME), 0, ".%s restored", suffix[i]);
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 4096);
		is_int(scratch_open(NAME), -EBADMSG, ".%s with a hole", suffix[i]);
		ok(strstr(gpc_last_error(), "sparse"), "is called sparse");
		if (pwrite(fd, copy, (size_t)st.st_size, 0) != st.st_size)
			bail("%s: cannot be restored", path);
		free(copy);
		close(fd);
	}
	is_int(wrong, 0, "no other size is accepted");
}

/* ---- other kinds of files, other people's files ---- */

static void test_kinds(void)
{
	static const char *const suffix[] = { "idx", "ctl", "lock" };
	struct segment s;
	char moved[128];
	int i;

	snprintf(moved, sizeof(moved), "%s/moved", scratch);
	for (i = 0; i < 3; i++) {
		const char *path = scratch_file(NAME, suffix[i]);

		if (rename(path, moved))
			bail("%s: rename", path);
		is_int(scratch_open(NAME), i ? -EBADMSG : -ENOENT, ".%s missing", suffix[i]);
		ok(!symlink(moved, path), "a link");
		is_int(scratch_open(NAME), -EACCES, "is not followed");
		unlink(path);
		ok(!mkdir(path, 0700), "a directory");
		is_int(scratch_open(NAME), -EBADMSG, "is no segment");
		rmdir(path);
		ok(!mkfifo(path, 0600), "a FIFO");
		is_int(scratch_open(NAME), -EBADMSG, "neither, and nobody waits for it");
		is_int(segment_snapshot(&s, NAME, scratch), i ? 0 : -EBADMSG, "nor looking");
		segment_close(&s);
		unlink(path);
		if (rename(moved, path))
			bail("%s: rename", path);
	}
	is_int(scratch_open(NAME), 0, "restored");
}

static void test_modes(void)
{
	static const char *const suffix[] = { "idx", "ctl", "lock" };
	int i, wrong = 0;

	for (i = 0; i < 3; i++) {
		chmod(scratch_file(NAME, suffix[i]), 0604);
		wrong += scratch_open(NAME) != -EACCES;
		chmod(scratch_file(NAME, suffix[i]), 0602);
		wrong += scratch_open(NAME) != -EACCES;
		chmod(scratch_file(NAME, suffix[i]), 0600);
	}
	is_int(wrong, 0, "what the world can reach is refused");
	is_int(scratch_open(NAME), 0, "restored");
}

/* Open as another user, perhaps of another group: the status of a child is -error. */
static int open_as(uid_t uid, gid_t gid)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		if (setgroups(0, NULL) || setgid(gid) || setuid(uid))
			_exit(255);
		_exit(-scratch_open(NAME));
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? -WEXITSTATUS(status) : status;
}

static void dress_all(uid_t uid, gid_t gid, mode_t mode)
{
	static const char *const suffix[] = { "idx", "ctl", "lock" };
	int i;

	for (i = 0; i < 3; i++)
		if (chown(scratch_file(NAME, suffix[i]), uid, gid) ||
		    chmod(scratch_file(NAME, suffix[i]), mode))
			bail("chown failed");
}

static void test_owners(void)
{
	struct segment s;

	if (geteuid())
		return skip(9, "needs root");
	dress_all(OTHER_USER, OTHER_USER, 0600);
	is_int(scratch_open(NAME), -EACCES, "another user's, for root too");
	is_int(scratch_create(NAME, &s), -EACCES, "nor is it created anew");
	is_int(segment_snapshot(&s, NAME, scratch), 0, "but root may look");
	segment_close(&s);
	is_int(open_as(OTHER_USER, OTHER_USER), 0, "its owner opens it");
	dress_all(0, 0, 0600);
	is_int(open_as(OTHER_USER, OTHER_USER), -EACCES, "root's, for others");
	dress_all(0, 1234, 0660);
	is_int(open_as(OTHER_USER, 1234), 0, "shared with a group");
	is_int(open_as(OTHER_USER, 1235), -EACCES, "not with another");
	dress_all(0, 1234, 0640);
	is_int(open_as(OTHER_USER, 1234), -EACCES, "to read is not enough");
	dress_all(0, 0, 0600);
	is_int(scratch_open(NAME), 0, "restored");
}

static int body(void)
{
	struct segment s;

	is_int(scratch_create(NAME, &s), 0, "created");
	segment_close(&s);
	scratch_patch(scratch_file(NAME, "idx"), 0, NULL, &good, sizeof(good));
	test_flips();
	test_forgeries();
	test_boot();
	test_unready();
	test_sizes();
	test_kinds();
	test_modes();
	test_owners();
	is_int(segment_unlink(NAME, scratch), 0, "removed");
	is_int(scratch_files("", false), 0, "nothing left");
	return done_testing();
}

int main(void)
{
	scratch_make("t009");
	return tap_guard(60, body, scratch_remove);
}
