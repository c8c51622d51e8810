/* SPDX-License-Identifier: Apache-2.0 */
/* Which files are opened: kinds, owners, locks, versions, layouts, secrets, sizes; files that were
 * damaged, cut, never finished.  One that is refused is left as it was.
 * Tests: lib/tiers/disk/open.c lib/tiers/disk/make.c lib/tiers/disk/super.c lib/tiers/disk/format.h */
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "t/lib/disks.h"

static uint64_t file_sum(void)
{
	static uint8_t part[1 << 20];
	uint32_t crc = 0;
	uint64_t size = 0;
	ssize_t n;
	int fd = open(disk_path, O_RDONLY | O_CLOEXEC);

	while (fd >= 0 && (n = read(fd, part, sizeof(part))) > 0) {
		crc = crc32c(crc, part, (size_t)n);
		size += (uint64_t)n;
	}
	if (fd >= 0)
		close(fd);
	return size << 32 ^ crc;
}

/* With this error and these words in the sentence, and the file as before. */
static void must_refuse(const struct disk_options *opt, int err, const char *words,
			const char *what)
{
	struct disk *d = NULL;
	uint64_t before = file_sum();
	int got = disk_open(disk_path, opt, &d);
	bool same = before == file_sum();

	ok(got == -err && !d && strstr(gpc_last_error(), words) && same, "%s: %s", what,
	   got ? gpc_last_error() : "opened");
	if (got != -err || !same)
		diag("got %d, want %d%s", got, -err, same ? "" : ", and the file has changed");
	disk_close(d);
}

static void make(uint64_t slots)
{
	struct disk_options opt = disk_opt(slots);
	struct disk *d;

	unlink(disk_path);
	d = disk_must(&opt);
	if (disk_put(d, 2, 22, 0, 1))
		bail("a block cannot be written");
	disk_close(d);
}

static bool is_whole(const struct disk_options *opt)
{
	struct disk *d = NULL;
	bool good = !disk_open(disk_path, opt, &d) && !disk_has(d, 2, 22);

	if (!good)
		diag("%s", gpc_last_error());
	disk_close(d);
	return good;
}

static void kinds(void)
{
	struct disk_options opt = disk_opt(4), other = disk_opt(4);
	struct stat st;
	char target[128];

	other.flags = 0;
	must_refuse(&other, ENOENT, "there is no", "no file");
	symlink("nowhere", disk_path);
	must_refuse(&opt, ENOTSUP, "symbolic link", "a link");
	unlink(disk_path);
	mkfifo(disk_path, 0600);
	{
		struct disk *d = NULL;

		is_int(disk_open(disk_path, &opt, &d), -ENOTSUP, "a pipe");
	}
	unlink(disk_path);
	mkdir(disk_path, 0700);
	must_refuse(&opt, ENOTSUP, "folder", "a folder");
	rmdir(disk_path);
	snprintf(target, sizeof(target), "%s/none/blocks", disk_folder);
	is_int(disk_open(target, &opt, &(struct disk *){ NULL }), -ENOENT, "no folder");
	make(4);
	chmod(disk_path, 0640);
	must_refuse(&opt, EPERM, "chmod 600", "a file that others may read");
	chmod(disk_path, 0602);
	must_refuse(&opt, EPERM, "chmod 600", "or write");
	chmod(disk_path, 0600);
	if (geteuid() == 0 && !chown(disk_path, 12345, 0)) {
		must_refuse(&opt, EPERM, "belongs to user 12345", "another user's");
		chown(disk_path, 0, 0);
	} else {
		skip(1, "only root gives files away");
	}
	ok(is_whole(&opt), "its own");
	unlink(disk_path);
	umask(0777);
	make(4);
	umask(022);
	ok(!stat(disk_path, &st) && (st.st_mode & 07777) == 0600, "mode 0600 whatever the umask");
	unlink(disk_path);
	is_int(disk_open("", &opt, &(struct disk *){ NULL }), -EINVAL, "no name");
	is_int(disk_open(NULL, &opt, &(struct disk *){ NULL }), -EINVAL, "NULL");
}

static void options(void)
{
	struct disk_options opt = disk_opt((1u << 28) + 1ull);

	must_refuse(&opt, EINVAL, "slots is 268435457", "too many slots");
	opt = disk_opt(0);
	must_refuse(&opt, EINVAL, "slots is 0", "no slots");
	opt = disk_opt(4);
	opt.image_bytes = 0;
	must_refuse(&opt, EINVAL, "image_bytes is 0", "images of no length");
	opt.image_bytes = (1ull << 32) + 1;
	must_refuse(&opt, EINVAL, "image_bytes is", "images that are too long");
	opt = disk_opt(4);
	opt.threads = 65;
	must_refuse(&opt, EINVAL, "threads is 65", "too many threads");
	opt = disk_opt(4);
	opt.note_bytes = 65537;
	must_refuse(&opt, EINVAL, "note_bytes is", "notes that are too long");
	ok(access(disk_path, F_OK), "and no file was left");
}

static void locks(void)
{
	struct disk_options opt = disk_opt(4);
	struct disk *d;
	int status = -1;
	pid_t pid;

	make(4);
	d = disk_must(&opt);
	must_refuse(&opt, EBUSY, "names it), or name another file", "a second one");
	pid = fork();
	if (!pid) { /* a child has the disk no more, and closes it */
		disk_close(d);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	is_int(status, 0, "a forked child closes its copy");
	must_refuse(&opt, EBUSY, "locked", "still locked after a child's end");
	is_int(disk_has(d, 2, 22), 0, "and the disk works");
	pid = fork();
	if (!pid) {
		pause();
		_exit(0);
	}
	disk_close(d);
	ok(is_whole(&opt), "free when it is closed, whatever children live");
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
}

static int stay(void *arg)
{
	(void)arg;
	for (;;)
		pause();
	return 0;
}

/* A process is killed, and its memory lives on for a while, as where a driver holds it: here
 * somebody else has it, who shares nothing but the memory. */
static void outlived(void)
{
	static char stack[65536];
	struct disk_options opt = disk_opt(4);
	pid_t pid, *other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
				 0);

	make(4);
	*other = 0;
	pid = fork();
	if (!pid) {
		pid_t is = clone(stay, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);

		disk_must(&opt);
		__atomic_store_n(other, is, __ATOMIC_SEQ_CST);
		for (;;)
			pause();
	}
	while (!__atomic_load_n(other, __ATOMIC_SEQ_CST))
		usleep(500);
	must_refuse(&opt, EBUSY, "locked by another process", "of a process that lives");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ok(!kill(*other, 0), "it is killed, and its memory lives");
	ok(is_whole(&opt), "the file is free all the same");
	kill(*other, SIGKILL);
	munmap(other, 4096);
}

static void layouts(void)
{
	static const uint8_t secret[16] = "secret of others", mine[16] = "secret of mine..";
	struct disk_options opt = disk_opt(4);
	struct disk_info info;
	struct disk *d;

	make(4);
	opt.fingerprint[31] = 1;
	must_refuse(&opt, EXDEV, "another layout", "another layout");
	opt = disk_opt(4);
	opt.image_bytes += 4096;
	must_refuse(&opt, EXDEV, "blocks of 12288 bytes", "images of another length");
	opt = disk_opt(5);
	must_refuse(&opt, ERANGE, "has 4 slots", "another number of slots");
	opt = disk_opt(4);
	opt.note_bytes = 101;
	must_refuse(&opt, EXDEV, "notes of 100", "longer notes");
	opt = disk_opt(4);
	opt.secret = secret;
	must_refuse(&opt, EXDEV, "another secret", "another secret");
	opt.secret = NULL;
	d = disk_must(&opt);
	disk_info(d, &info);
	disk_close(d);
	opt.secret = info.secret;
	ok(is_whole(&opt), "the secret that it keeps");
	unlink(disk_path);
	opt.secret = mine;
	d = disk_must(&opt);
	disk_info(d, &info);
	ok(!info.has_secret && disk_put(d, 2, 22, 0, 1) == 0,
	   "a file whose secret is kept elsewhere");
	disk_close(d);
	ok(is_whole(&opt), "is opened with it");
	is_int(disk_peek(disk_path, &info), 0, "it is peeked at");
	ok(!info.has_secret && info.slots == 4 && info.image_bytes == DISK_TEST_IMAGE,
	   "and has none");
	opt.secret = NULL;
	must_refuse(&opt, EXDEV, "kept elsewhere", "without it");
	ok(!strcmp(strrchr(gpc_last_error(), ' ') + 1, disk_path),
	   "which file to remove is said: %s", gpc_last_error());
	opt.secret = secret;
	must_refuse(&opt, EXDEV, "another secret", "with another one");
	unlink(disk_path);
	is_int(disk_peek(disk_path, &info), -ENOENT, "no file is peeked at");
	opt.flags |= DISK_KEEP_SECRET;
	disk_close(disk_must(&opt));
	is_int(disk_peek(disk_path, &info), 0, "a file that keeps the secret that it was given");
	ok(info.has_secret && !memcmp(info.secret, secret, 16), "tells it");
	chmod(disk_path, 0644);
	is_int(disk_peek(disk_path, &info), -EPERM, "but not when others may read it");
}

/* ---- damage ---- */

static void supers(void)
{
	struct disk_options opt = disk_opt(4);
	struct disk_super s, whole;
	struct disk_info info;
	struct disk *d;
	uint32_t i, bad[3] = { 0 };
	uint8_t junk[4096];

	make(4);
	for (i = 0; i < 4096 * 8; i += i < 256 * 8 ? 13 : 997) {
		disk_flip(i / 8 + (i & 1) * 65536, i % 8);
		d = disk_must(&opt);
		disk_info(d, &info);
		bad[0] += !info.mended;
		bad[1] += disk_has(d, 2, 22) != 0;
		disk_close(d);
		d = disk_must(&opt);
		disk_info(d, &info);
		bad[2] += info.mended;
		disk_close(d);
	}
	is_int(bad[0], 0, "a bit of one superblock is seen");
	is_int(bad[1], 0, "blocks are there");
	is_int(bad[2], 0, "and it was written again");
	disk_see(0, &whole, sizeof(whole));
	memset(junk, 0x55, sizeof(junk));
	disk_poke(65536 + 100, junk, 2000);
	disk_poke(0 + 2000, junk, 2096);
	must_refuse(&opt, EBADMSG, "both superblocks", "both torn");
	disk_poke(0, junk, 4096);
	disk_poke(65536, junk, 4096);
	must_refuse(&opt, EPROTO, "no disk file", "both overwritten");
	s = whole;
	s.version = DISK_OLDEST - 1;
	disk_seal_super(&s);
	disk_poke(0, &s, sizeof(s));
	must_refuse(&opt, EPROTO, "version 0", "a version that never was");
	s.version = DISK_VERSION + 1;
	disk_seal_super(&s);
	disk_poke(0, &s, sizeof(s));
	must_refuse(&opt, EPROTO, "version 3", "a later version");
	s.magic = __builtin_bswap64(s.magic);
	disk_poke(0, &s, sizeof(s));
	must_refuse(&opt, EPROTO, "byte order", "the other byte order");
	disk_poke(0, &whole, sizeof(whole));
	ok(is_whole(&opt), "with one superblock all is there");
}

/* The file as version 1 had it: superblock `at`, and the header of a slot where it is not 4. */
static void make_version_1(uint64_t at, uint64_t slot)
{
	struct disk_super s;
	struct disk_header h;

	disk_see(at, &s, sizeof(s));
	s.version = 1;
	disk_seal_super(&s);
	disk_poke(at, &s, sizeof(s));
	if (slot == 4)
		return;
	disk_see(disk_test_header(slot), &h, sizeof(h));
	h.magic = DISK_HEADER_1;
	h.seed = 1;
	h.word = DISK_TEST_IMAGE;
	disk_seal_header(&h);
	disk_poke(disk_test_header(slot), &h, sizeof(h));
}

/* Blocks of version 1 are read, for who tells no structure; what is written is of version 2. */
static void version_1(void)
{
	static uint8_t image[DISK_TEST_IMAGE] __attribute__((aligned(4096)));
	struct disk_slot seeded = { .slot = 2, .key = disk_key(22), .sum.seed = 7 };
	struct disk_options opt = disk_opt(4);
	struct disk_super s[2];
	struct disk_header h;
	struct disk *d;

	make(4);
	d = disk_must(&opt);
	is_int(disk_put(d, 1, 11, 0, 1), 0, "a second block");
	disk_close(d);
	make_version_1(0, 2);
	ok(is_whole(&opt), "superblock A of version 1, B of version 2");
	make_version_1(0, 4);
	make_version_1(65536, 4);
	d = disk_must(&opt);
	is_int(disk_has(d, 2, 22), 0, "both of version 1, and so is the block");
	is_int(disk_has(d, 1, 11), 0, "beside one of version 2");
	is_int(disk_read(d, &seeded, image), -ESTALE, "which is none of a structure");
	is_int(disk_put(d, 2, 23, 0, 1), 0, "its slot is written");
	is_int(disk_has(d, 2, 23), 0, "and read");
	disk_close(d);
	disk_see(0, &s[0], sizeof(s[0]));
	disk_see(65536, &s[1], sizeof(s[1]));
	disk_see(disk_test_header(2), &h, sizeof(h));
	ok(s[0].version == 2 && s[1].version == 2 && h.magic == DISK_HEADER_MAGIC,
	   "the file is of version 2: %u, %u", s[0].version, s[1].version);
	make_version_1(0, 2);
	disk_see(disk_test_header(2), &h, sizeof(h));
	h.word++;
	disk_seal_header(&h);
	disk_poke(disk_test_header(2), &h, sizeof(h));
	d = disk_must(&opt);
	is_int(disk_has(d, 2, 23), -EBADMSG, "a block of version 1 of another length");
	disk_close(d);
}

/* A clear that was acknowledged stands in both superblocks. */
static void epochs(void)
{
	struct disk_options opt = disk_opt(4);
	uint8_t junk[4096] = { 1 };
	struct disk *d;
	int i;

	for (i = 0; i < 2; i++) {
		make(4);
		d = disk_must(&opt);
		is_int(disk_clear(d), 0, "cleared");
		disk_close(d);
		disk_poke(i ? 65536 : 0, junk, sizeof(junk));
		d = disk_must(&opt);
		is_int(disk_has(d, 2, 22), -ENOENT, "with superblock %c lost, nothing comes back",
		       'A' + i);
		disk_close(d);
	}
}

static void cut(void)
{
	struct disk_options opt = disk_opt(4);
	static const uint64_t ends[] = { 1, 4095, 4096, 65536, 69632, 131072, 200000 };
	uint32_t i;
	int fd;

	for (i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		make(4);
		truncate(disk_path, (off_t)ends[i]);
		if (ends[i] < 8)
			must_refuse(&opt, EPROTO, "no disk file", "cut within the magic");
		else if (ends[i] < 4096)
			must_refuse(&opt, EBADMSG, "both superblocks", "cut within a superblock");
		else
			must_refuse(&opt, EBADMSG, "cut off", "cut off");
	}
	truncate(disk_path, 0);
	opt.flags = 0;
	must_refuse(&opt, ENOENT, "is empty", "an empty file");
	opt = disk_opt(4);
	disk_close(disk_must(&opt));
	ok(access(disk_path, F_OK) == 0, "which becomes a disk file when asked to");
	unlink(disk_path);
	fd = open(disk_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, 1 << 20))
		bail("no file");
	close(fd);
	must_refuse(&opt, EPROTO, "no disk file", "a file of zeros");
}

/* ---- sizes ---- */

static void sizes(void)
{
	struct disk_options opt = disk_opt(1500);
	struct disk_header h;
	struct disk_slot *s;
	struct disk_info info;
	struct disk *d;
	struct stat st;
	uint64_t n;

	make(1500);
	d = disk_must(&opt);
	is_int(disk_put(d, 1400, 14, 0, 1), 0, "a block in slot 1400");
	disk_close(d);
	opt.flags |= DISK_RESIZE;
	opt.slots = 3000;
	d = disk_must(&opt);
	disk_info(d, &info);
	ok(info.slots == 3000 && !stat(disk_path, &st) && (uint64_t)st.st_size == info.file_bytes &&
		   info.file_bytes == disk_test_image(2999) + DISK_TEST_IMAGE,
	   "grown to 3000 slots");
	ok(!disk_has(d, 2, 22) && !disk_has(d, 1400, 14), "blocks are where they were");
	is_int(disk_put(d, 2999, 29, 0, 1), 0, "the last slot is there");
	disk_close(d);
	opt.slots = 1401;
	d = disk_must(&opt);
	ok(!disk_has(d, 1400, 14) && !stat(disk_path, &st) &&
		   (uint64_t)st.st_size == disk_test_image(1400) + DISK_TEST_IMAGE,
	   "cut to 1401 slots");
	disk_close(d);
	opt.slots = 3;
	d = disk_must(&opt);
	is_int(disk_has(d, 2, 22), 0, "cut to 3");
	is_int(disk_clear(d), 0, "cleared");
	is_int(disk_put(d, 1, 11, 0, 1), 0, "written");
	disk_close(d);
	truncate(disk_path, (off_t)disk_test_image(5000)); /* as who died before its end was cut */
	disk_see(disk_test_header(1), &h, sizeof(h));
	h.slot = 10;
	h.key[0]++;
	disk_seal_header(&h);
	disk_poke(disk_test_header(10), &h, sizeof(h));
	h.slot = 2000;
	disk_seal_header(&h);
	disk_poke(disk_test_header(2000), &h, sizeof(h));
	opt.slots = 3000;
	d = disk_must(&opt);
	is_int(disk_scan(d, &s, &n), 0, "grown again");
	ok(n == 1 && s[0].slot == 1, "what was cut off has not come back");
	free(s);
	disk_close(d);
}

static void limits(void)
{
	struct disk_options opt = disk_opt(1000);
	const struct rlimit low = { 1 << 20, 1 << 20 };
	int status = -1;
	pid_t pid = fork();

	unlink(disk_path);
	if (!pid) {
		struct disk *d = NULL;

		setrlimit(RLIMIT_FSIZE, &low);
		_exit(disk_open(disk_path, &opt, &d) == -EFBIG &&
				      strstr(gpc_last_error(), "ulimit") && access(disk_path, F_OK)
			      ? 0
			      : 1);
	}
	waitpid(pid, &status, 0);
	is_int(status, 0, "a limit of file sizes is an error, and no signal");
	opt.slots = 1u << 28;
	opt.image_bytes = 1ull << 32;
	{
		struct disk *d = NULL;
		int err = disk_open(disk_path, &opt, &d);

		ok(err < 0 && access(disk_path, F_OK), "2^60 bytes: %s", gpc_last_error());
	}
}

static void removed(void)
{
	struct disk_options opt = disk_opt(4);
	struct disk_info info;
	struct disk *d, *e;

	make(4);
	d = disk_must(&opt);
	unlink(disk_path);
	disk_info(d, &info);
	ok(info.removed && !disk_has(d, 2, 22), "a file that was removed works on, and says so");
	e = disk_must(&opt);
	disk_info(e, &info);
	ok(info.made && !info.removed, "another one is made in its place");
	disk_close(d);
	disk_close(e);
}

static int body(void)
{
	kinds();
	options();
	locks();
	outlived();
	layouts();
	supers();
	version_1();
	epochs();
	cut();
	sizes();
	limits();
	removed();
	return done_testing();
}

int main(void)
{
	disk_make_folder();
	return tap_guard(60, body, disk_remove_folder);
}
