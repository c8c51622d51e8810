/* SPDX-License-Identifier: Apache-2.0 */
/* index/segment - a segment as it is made, from which configurations, and for which
 * openers.
 * Tests: lib/index/segment/segment.c lib/index/segment/create.c lib/index/segment/files.h lib/index/segment/pages.c */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "index/segment/files.h"
#include "index/segment/lockfile.h"
#include "t/lib/scratch.h"
#include "t/lib/smaps.h"

#define NAME "a"

/* ---- names and configurations ---- */

static void test_names(void)
{
	static const char *const bad[] = { "", ".", ".a", "..", "/a", "a/b", "a\nb", "a\x7f" };
	static const char *const good[] = { "a", "A-b_c.d:e", "\xc3\xa4", "a b" };
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
	is_int(CREATE(.max_blocks = 64, .dir = "/dev/shm/no/such"), -ENOENT, "no directory");
	is_int(CREATE(.max_blocks = 64, .dir = "/dev/null"), -ENOENT, "no directory at all");
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
	struct gpc_config cfg = { .size = sizeof(cfg),
				  .dir = scratch,
				  .max_blocks = 64,
				  .mode = 0660,
				  .gid = getegid() };
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
			idle += !seg_section(s, peer, i)->epoch && !seg_section(s, peer, i)->done;
		}
	is_int(tickets, 2 * SHM_SECTIONS, "every section has a ticket to come");
	is_int(idle, 2 * SHM_SECTIONS, "and is idle");
	is_int(count_nonzero(s->control, s->at.seat, s->at.section), 0, "seats are free");
	is_int(count_nonzero(s->control, s->at.ring, s->at.control_bytes), 0,
	       "rings, cells and stamps are empty");
	ok(memcmp(s->header.secret, zero, 16), "there is a secret");
	ok(!memcmp(control->secret, zero, 16), "not in the control segment");
	ok(!memcmp(s->header.id, control->id, 16) && memcmp(control->id, zero, 16), "one id");
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
		    .tick_us = 1000, .free_target = 64, .quarantine_ms = 1000),
	       0, "all given");
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
	struct gpc_config cfg = {
		.size = sizeof(cfg), .dir = scratch, .max_blocks = 64, .layout = { 1, 2, 3 }
	};
	uint8_t same[32] = { 1, 2, 3 }, other[32] = { 1, 2, 3, [31] = 1 }, any[32] = { 0 };
	const uint8_t *layouts[] = { same, other, any, NULL };
	const int results[] = { 0, -EPROTO, 0, 0 };
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
	has = p == mmap(p, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) &&
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
	int all;

	is_int(segment_unlink(NAME, scratch), 0, "the small one is removed");
	is_int(segment_create(&s, NAME, &cfg), 0, "a larger one");
	is_int(huge_wishes("gpc." NAME, &all), 2,
	       "its maker asks for huge pages, and is charged for them");
	segment_close(&s);
	is_int(segment_open(&s, NAME, scratch, NULL), 0, "opened by another");
	is_int(huge_wishes("gpc." NAME, &all), 0, "who asks for none, and so never is");
	is_int(all, 2, "in both segments");
	is_int((long long)((uintptr_t)s.index & ((2 << 20) - 1)), 0,
	       "the index lies at a huge page");
	is_int((long long)((uintptr_t)s.control & ((2 << 20) - 1)), 0,
	       "so does the control segment");
	for (i = 0; i < s.at.index_bytes; i += SHM_PAGE)
		sum += s.index[i];
	ok(sum > 0, "every page is there");
	if (has_huge_pages())
		is_int(mapped_as(s.index, "ShmemPmdMapped:"),
		       (long long)(s.at.index_bytes >> 21 << 11), "all but its end in huge pages");
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
