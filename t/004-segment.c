/* SPDX-License-Identifier: Apache-2.0 */
/* 004-segment - a segment as it is made, and everything that opening one refuses. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "segment/lockfile.h"
#include "t/lib/scratch.h"
#include "segment/files.h"

#define NAME "a"
#define OTHER_USER 65534

/* ---- names and configurations ---- */

static void test_names(void)
{
	static const char *const bad[] = {"",	".",   ".a",   "..",
					  "/a", "a/b", "a\nb", "a\x7f"};
	static const char *const good[] = {"a", "A-b_c.d:e", "\xc3\xa4", "a b"};
	char name[GPC_MAX_NAME + 2];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++)
		is_int(segment_name_check(bad[i]), -EINVAL, "a bad name: %zu", i);
	for (i = 0; i < ARRAY_SIZE(good); i++)
		is_int(segment_name_check(good[i]), 0, "a good name: %zu", i);
	is_int(segment_name_check(NULL), -EINVAL, "no name");
	memset(name, 'x', sizeof(name));
	name[GPC_MAX_NAME + 1] = 0;
	is_int(segment_name_check(name), -EINVAL, "a byte too long");
	name[GPC_MAX_NAME] = 0;
	is_int(segment_name_check(name), 0, "just short enough");
}

static int create(struct gpc_config cfg)
{
	struct segment s;
	int err;

	cfg.size = sizeof(cfg);
	if (!cfg.dir)
		cfg.dir = scratch;
	err = segment_create(&s, NAME, &cfg);
	if (!err) {
		segment_close(&s);
		segment_unlink(NAME, cfg.dir);
	}
	return err;
}
#define CREATE(...) create((struct gpc_config){ __VA_ARGS__ })

static void test_refused_configs(void)
{
	char devices[65] = "", dir[400];

	/* cuda:000...0 is a number, too */
	memset(devices, '0', 64);
	memcpy(devices + 1, "cuda:", 5);
	devices[0] = '/';
	memset(dir, '/', sizeof(dir));
	strcpy(dir + sizeof(dir) - 5, "tmp");
	is_int(CREATE(.max_blocks = 64, .mode = 0666), -EINVAL, "mode 666");
	is_int(CREATE(.max_blocks = 64, .mode = 0604), -EINVAL, "mode 604");
	is_int(CREATE(.max_blocks = 64, .mode = 0700), -EINVAL, "mode 700");
	is_int(CREATE(.max_blocks = 64, .mode = 04600), -EINVAL, "mode 4600");
	is_int(CREATE(.max_blocks = 64, .mode = 0400), -EINVAL, "mode 400");
	is_int(CREATE(.max_blocks = 64, .mode = 0060), -EINVAL, "mode 060");
	is_int(CREATE(.max_blocks = 64, .devices = devices), -EINVAL, "devices with a slash");
	is_int(CREATE(.max_blocks = 64, .max_peers = 251), -EINVAL, "absurd geometry");
	is_int(CREATE(.max_blocks = 64, .dir = "/dev/shm/no/such"), -ENOENT,
	       "no directory");
	is_int(CREATE(.max_blocks = 64, .dir = "/dev/null"), -ENOENT,
	       "no directory at all");
	is_int(scratch_files("", false), 0, "and no file was left");
	memcpy(devices, "cuda:0", 6);
	is_int(CREATE(.max_blocks = 64, .devices = devices), -EINVAL, "64 bytes of devices");
	devices[63] = 0;
	is_int(CREATE(.max_blocks = 64, .devices = devices), 0, "63 bytes of devices");
}

/* More than there is: said before anything is made.  The limit of sizes is for machines
 * that could, and for a library that has forgotten to ask. */
static void test_no_space(void)
{
	struct rlimit old, small;
	struct statvfs fs;
	int err;

	getrlimit(RLIMIT_FSIZE, &old);
	small = old;
	small.rlim_cur = MIN(old.rlim_cur, (rlim_t)64 << 20);
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &small);
	err = CREATE(.max_blocks = 1u << 28, .max_peers = 250);
	setrlimit(RLIMIT_FSIZE, &old);
	is_int(scratch_files("", false), 0, "what cannot be made leaves no file");
	if (err == -EFBIG && !statvfs(scratch, &fs) &&
	    (!fs.f_blocks || fs.f_bavail * fs.f_frsize >> 30 > 150))
		return skip(2, "150 GiB of shared memory are free here");
	is_int(err, -ENOSPC, "more memory than there is");
	ok(strstr(gpc_last_error(), "bytes"), "says how much: %s", gpc_last_error());
}

/* ---- what is made ---- */

static void test_files(void)
{
	static const char *const suffix[] = { "idx", "ctl", "lock" };
	mode_t old = umask(077);
	struct gpc_config cfg = { .size = sizeof(cfg), .dir = scratch, .max_blocks = 64,
				  .mode = 0660, .gid = getegid() };
	struct segment s;
	struct stat st;
	size_t i;

	is_int(segment_create(&s, NAME, &cfg), 0, "created for a group");
	umask(old);
	for (i = 0; i < 3; i++) {
		is_int(stat(scratch_file(NAME, suffix[i]), &st), 0, ".%s", suffix[i]);
		is_int(st.st_mode, S_IFREG | 0660, "has its mode, whatever the umask");
		ok(st.st_blocks * 512 >= st.st_size, "and all of its pages");
	}
	is_int(scratch_files("", false), 3, "three files, nothing temporary");
	is_int(lock_test(s.lock_fd, LOCK_CREATE), 0, "the creator's byte is free");
	segment_close(&s);
	is_int(scratch_open(NAME), 0, "and it opens");
	is_int(segment_unlink(NAME, scratch), 0, "removed");
	is_int(scratch_files("", false), 0, "all of it");
}

static int count_nonzero(const uint8_t *p, uint64_t from, uint64_t to)
{
	int n = 0;

	for (; from < to; from++)
		n += p[from] != 0;
	return n;
}

static void test_content(struct segment *s)
{
	struct shm_header *control = (struct shm_header *)s->control;
	uint32_t peer, i, tickets = 0, idle = 0;
	uint8_t zero[16] = { 0 };

	is_int(count_nonzero(s->index, sizeof(struct shm_header), s->at.index_bytes), 0,
	       "behind its header the index is empty");
	is_int(seg_shared(s)->epoch, 1, "epoch 1");
	is_int(seg_shared(s)->tick, 1, "tick 1");
	for (peer = 0; peer < 2; peer++)
		for (i = 0; i < SHM_SECTIONS; i++) {
			tickets += seg_section(s, peer, i)->ticket == 1;
			idle += !seg_section(s, peer, i)->epoch &&
				!seg_section(s, peer, i)->done;
		}
	is_int(tickets, 2 * SHM_SECTIONS, "every section has a ticket to come");
	is_int(idle, 2 * SHM_SECTIONS, "and is idle");
	is_int(count_nonzero(s->control, s->at.seat, s->at.section), 0, "seats are free");
	is_int(count_nonzero(s->control, s->at.ring, s->at.control_bytes), 0,
	       "rings, cells and stamps are empty");
	ok(memcmp(s->header.secret, zero, 16), "there is a secret");
	ok(!memcmp(control->secret, zero, 16), "not in the control segment");
	ok(!memcmp(s->header.id, control->id, 16) && memcmp(control->id, zero, 16),
	   "one id");
	is_int(control->ready, SHM_READY, "ready");
	is_int(s->header.block_tokens, 16, "16 tokens a block");
	is_int(s->header.tick_us, 1000, "a millisecond");
	is_int(s->header.free_target, 64, "64 ahead");
	is_int(s->header.quarantine_ms, 1000, "a second of quarantine");
	is_str(s->header.devices, "none", "no devices");
	is_str(s->header.hash, KEY_HASH_NAME, "the hash's name");
}

/* One creation; the segment stays for the tests that follow. */
static void test_create(void)
{
	struct segment a, b;
	uint8_t *writer;

	is_int(scratch_create(NAME, &a), 0, "created");
	test_content(&a);
	is_int(scratch_create(NAME, &b), -EEXIST, "the name is taken");
	is_int(segment_open(&b, NAME, scratch, NULL), 0, "opened");
	ok(!memcmp(&a.header, &b.header, sizeof(a.header)), "the same header");
	seg_shared(&a)->completed = 77;
	is_int(seg_shared(&b)->completed, 77, "the same control segment");
	is_int(segment_map_writer(&b, &writer), 0, "mapped for the writer");
	writer[b.at.record] = 5;
	is_int(seg_record(&a, 0)->word, 5, "the same index");
	writer[b.at.record] = 0;
	seg_shared(&a)->completed = 0;
	segment_unmap_writer(&b, writer);
	segment_close(&b);
	segment_close(&a);
	segment_close(&a);
	ok(a.index_fd == -1 && a.lock_fd == -1, "closing twice is fine");
}

/* ---- what openers want ---- */

static int open_wanting(struct gpc_config cfg)
{
	struct segment_want want = { .config = &cfg };
	struct segment s;
	int err;

	cfg.size = sizeof(cfg);
	err = segment_open(&s, NAME, scratch, &want);
	if (!err)
		segment_close(&s);
	return err;
}
#define WANT(...) open_wanting((struct gpc_config){ .size = 0, __VA_ARGS__ })

static void test_wants(void)
{
	is_int(WANT(), 0, "defaults fit");
	is_int(WANT(.block_tokens = 16, .max_blocks = 64, .max_peers = 2, .max_pools = 16,
		    .tick_us = 1000, .free_target = 64, .quarantine_ms = 1000), 0, "all given");
	is_int(WANT(.block_tokens = 32), -EPROTO, "other blocks");
	is_int(WANT(.max_blocks = 65), -EPROTO, "other size");
	is_int(WANT(.max_peers = 3), -EPROTO, "other peers");
	is_int(WANT(.max_pools = 3), -EPROTO, "other pools");
	is_int(WANT(.tick_us = 1), -EPROTO, "other tick");
	is_int(WANT(.free_target = -1), -EPROTO, "other ahead");
	is_int(WANT(.quarantine_ms = 2), -EPROTO, "other quarantine");
	is_int(WANT(.peer_quota = 2), -EPROTO, "other quota");
	is_int(WANT(.vram_blocks = 64), 0, "pools that fit");
	is_int(WANT(.vram_blocks = 65), -EPROTO, "pools that do not");
	is_int(WANT(.layout = { 1 }), -EPROTO, "another model");
}

static void test_layouts(void)
{
	struct gpc_config cfg = {.size = sizeof(cfg),
				 .dir = scratch,
				 .max_blocks = 64,
				 .layout = {1, 2, 3}};
	uint8_t same[32] = {1, 2, 3}, other[32] = {1, 2, 3, [31] = 1}, any[32] = {0};
	const uint8_t *layouts[] = {same, other, any, NULL};
	const int results[] = {0, -EPROTO, 0, 0};
	struct segment s;
	int i;

	is_int(segment_create(&s, "b", &cfg), 0, "a model with a fingerprint");
	segment_close(&s);
	for (i = 0; i < 4; i++) {
		struct segment_want want = { .layout = layouts[i] };

		is_int(segment_open(&s, "b", scratch, &want), results[i], "opener %d", i);
		segment_close(&s);
	}
	segment_unlink("b", scratch);
}

/* ---- damage: each is undone afterwards ---- */

static struct shm_header good;           /* of the index */

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
#define FORGE(field, value, want, what) do { \
	struct shm_header forged = good; \
	forged.field = value; \
	is_int(open_forged(forged), want, what); \
} while (0)

static void test_forgeries(void)
{
	struct shm_header endless = good;

	memset(endless.devices, 'x', sizeof(endless.devices));
	is_int(open_forged(endless), -EBADMSG, "endless devices");
	FORGE(reserved, good.reserved, 0, "the true header");
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
	FORGE(geometry.ref_stride, 1, -EBADMSG, "narrow rows");
	FORGE(bytes, good.bytes + 4096, -EBADMSG, "more bytes");
	FORGE(block_tokens, 0, -EBADMSG, "no tokens");
	FORGE(tick_us, 0, -EBADMSG, "no tick");
	FORGE(free_target, -1, -EBADMSG, "less than nothing ahead");
	FORGE(hash[0], 'S', -EPROTO, "another hash");
	FORGE(boot[3], good.boot[3] ^ 1, -EBADMSG, "another boot");
	FORGE(secret[0], good.secret[0] ^ 1, 0, "another secret: nobody could know");
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
		is_int(scratch_open(NAME), i ? -EBADMSG : -ENOENT, ".%s missing",
		       suffix[i]);
		ok(!symlink(moved, path), "a link");
		is_int(scratch_open(NAME), -EACCES, "is not followed");
		unlink(path);
		ok(!mkdir(path, 0700), "a directory");
		is_int(scratch_open(NAME), -EBADMSG, "is no segment");
		rmdir(path);
		ok(!mkfifo(path, 0600), "a FIFO");
		is_int(scratch_open(NAME), -EBADMSG, "neither, and nobody waits for it");
		is_int(segment_snapshot(&s, NAME, scratch), i ? 0 : -EBADMSG,
		       "nor looking");
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

/* ---- pages ---- */

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Of the mapping that begins at p: what smaps says of it, in KiB. */
static long mapped_as(const void *p, const char *what)
{
	char line[256], begin[32];
	bool here = false;
	long kib = -1;
	FILE *f = fopen("/proc/self/smaps", "re");

	snprintf(begin, sizeof(begin), "%lx-", (unsigned long)(uintptr_t)p);
	while (f && kib < 0 && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, begin, strlen(begin)))
			here = true;
		else if (here && !strncmp(line, what, strlen(what)))
			kib = atol(line + strlen(what));
	}
	if (f)
		fclose(f);
	return kib;
}

/* Does this kernel give huge pages of this file system to a process that asks? */
static bool has_huge_pages(void)
{
	char path[512];
	uint8_t *all, *p;
	bool has;
	int fd;

	snprintf(path, sizeof(path), "%s/probe", scratch);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, 2 << 20) || posix_fallocate(fd, 0, 4096))
		bail("%s: no file for a probe", path);
	all = mmap(NULL, 4 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	p = (uint8_t *)ROUND_UP((uintptr_t)all, (uintptr_t)2 << 20);
	has = mmap(p, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == p &&
	      !madvise(p, 2 << 20, MADV_COLLAPSE) && mapped_as(p, "ShmemPmdMapped:") > 0;
	munmap(all, 4 << 20);
	close(fd);
	unlink(path);
	return has;
}

static void test_pages(void)
{
	struct gpc_config cfg = { .size = sizeof(cfg), .dir = scratch, .max_blocks = 65536 };
	uint64_t sum = 0, i;
	struct segment s;

	is_int(segment_unlink(NAME, scratch), 0, "the small one is removed");
	is_int(segment_create(&s, NAME, &cfg), 0, "a larger one");
	segment_close(&s);
	is_int(segment_open(&s, NAME, scratch, NULL), 0, "opened by another");
	is_int((long long)((uintptr_t)s.index & ((2 << 20) - 1)), 0, "the index lies at a huge page");
	is_int((long long)((uintptr_t)s.control & ((2 << 20) - 1)), 0, "so does the control segment");
	for (i = 0; i < s.at.index_bytes; i += SHM_PAGE)
		sum += s.index[i];
	ok(sum > 0, "every page is there");
	if (has_huge_pages())
		is_int(mapped_as(s.index, "ShmemPmdMapped:"), (long long)(s.at.index_bytes >> 21 << 11),
		       "all but its end in huge pages");
	else
		skip(1, "this kernel gives no huge pages for shared memory");
	segment_close(&s);
}

static int body(void)
{
	test_names();
	test_refused_configs();
	test_no_space();
	test_files();
	test_create();
	test_wants();
	test_layouts();
	scratch_patch(scratch_file(NAME, "idx"), 0, NULL, &good, sizeof(good));
	test_flips();
	test_forgeries();
	test_unready();
	test_sizes();
	test_kinds();
	test_modes();
	test_owners();
	test_pages();
	is_int(segment_unlink(NAME, scratch), 0, "removed");
	is_int(scratch_files("", false), 0, "nothing left");
	return done_testing();
}

int main(void)
{
	scratch_make("t004");
	return tap_guard(60, body, scratch_remove);
}
