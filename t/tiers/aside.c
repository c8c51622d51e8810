/* SPDX-License-Identifier: Apache-2.0 */
/* A damaged file is set aside, and a new one is begun: which ones, under which name, and that a start
 * which fails leaves each file at its name.
 * Tests: lib/tiers/disk/aside.c lib/tiers/disk/open.c lib/tiers/disk/super.c */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "t/lib/disks.h"

static char bad[128];

static struct disk_options aside(uint64_t slots)
{
	struct disk_options opt = disk_opt(slots);

	opt.flags |= DISK_ASIDE;
	return opt;
}

static off_t size_of(const char *path)
{
	struct stat st;

	return stat(path, &st) ? -1 : st.st_size;
}

static void forget(void)
{
	char name[160];
	uint32_t i;

	unlink(disk_path);
	unlink(bad);
	for (i = 1; i < 5; i++) {
		snprintf(name, sizeof(name), "%s.%u", bad, i);
		unlink(name);
	}
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

static void spoil(void)
{
	uint8_t junk[4000] = { 1 };

	disk_poke(8 + 16, junk, sizeof(junk)); /* behind the magic, version and endian */
	disk_poke(65536 + 8 + 16, junk, sizeof(junk));
}

static char said[600];

static void hear(void *arg, int level, const char *text)
{
	if (level <= LOG_WARNING)
		snprintf(said, sizeof(said), "%s", text);
}

/* A new, empty file of so many slots; the old one, of so many bytes, at that name. */
static void is_aside(const struct disk_options *opt, uint64_t slots, off_t bytes, const char *name,
		     const char *what)
{
	struct log log = { .call = hear, .level = -1 };
	struct disk_options o = *opt;
	struct disk_info info = { 0 };
	struct disk_slot *s = NULL;
	struct disk *d = NULL;
	uint64_t n = 9;
	int err;

	o.log = &log;
	said[0] = 0;
	err = disk_open(disk_path, &o, &d);
	if (err) {
		ok(false, "%s: %s", what, gpc_last_error());
		return;
	}
	disk_info(d, &info);
	ok(info.made && info.slots == slots && !disk_scan(d, &s, &n) && n == 0 &&
		   !disk_put(d, 1, 11, 0, 1) && !disk_has(d, 1, 11) &&
		   size_of(disk_path) == (off_t)info.file_bytes && size_of(name) == bytes &&
		   strstr(said, name),
	   "%s: kept as %s, and said: %s", what, strrchr(name, '/') + 1, said);
	free(s);
	disk_close(d);
	o.flags = 0;
	ok(!disk_open(disk_path, &o, &d) && !disk_has(d, 1, 11), "%s: and the new one lasts", what);
	disk_close(d);
}

static void is_refused(const struct disk_options *opt, int err, const char *words, const char *what)
{
	struct disk *d = NULL;
	off_t before = size_of(disk_path);
	int got = disk_open(disk_path, opt, &d);

	ok(got == -err && strstr(gpc_last_error(), words) && size_of(disk_path) == before &&
		   access(bad, F_OK),
	   "%s: refused, and where it was: %s", what, got ? gpc_last_error() : "opened");
	disk_close(d);
}

static void damaged(void)
{
	struct disk_options opt = aside(8), any = aside(0);
	static const off_t ends[] = { 8, 4095, 4096, 65536, 131072, 200000 };
	uint32_t i;

	for (i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		make(4);
		truncate(disk_path, ends[i]);
		is_aside(&opt, 8, ends[i], bad, "cut off");
		forget();
	}
	make(4);
	truncate(disk_path, 200000);
	is_aside(&any, 4, 200000, bad, "cut off, and nobody says how large a new one is to be");
	forget();
	make(4);
	spoil();
	is_refused(&any, EBADMSG, "how large", "no superblock, and no size");
	is_aside(&opt, 8, size_of(disk_path), bad, "no superblock");
	forget();
}

static void others(void)
{
	struct disk_options opt = aside(4), other;
	struct disk *d, *second = NULL;
	uint8_t junk[65536 + 4096] = { 1 };
	uint32_t later = DISK_VERSION + 1;

	make(4);
	truncate(disk_path, 200000);
	other = opt;
	other.image_bytes = 4096;
	is_refused(&other, EXDEV, "blocks of 12288", "cut off, of blocks of another size");
	other = opt;
	other.fingerprint[3] = 1;
	is_refused(&other, EXDEV, "another layout", "cut off, of another layout");
	other = opt;
	other.secret = junk;
	is_refused(&other, EXDEV, "another secret", "cut off, under another secret");
	other = disk_opt(4);
	is_refused(&other, EBADMSG, "cut off", "cut off, and not to be set aside");
	chmod(disk_path, 0640);
	is_refused(&opt, EPERM, "chmod 600", "cut off, and others may read it");
	make(4);
	disk_poke(8, &later, sizeof(later));
	disk_poke(65536 + 8, &later, sizeof(later));
	is_refused(&opt, EPROTO, "version 3", "of another version");
	make(4);
	disk_poke(0, junk, sizeof(junk));
	is_refused(&opt, EPROTO, "no disk file", "another program's");
	make(4);
	d = disk_must(&opt);
	truncate(disk_path, 200000);
	is_int(disk_open(disk_path, &opt, &second), -EBUSY, "cut off while another has it");
	disk_close(d);
	forget();
}

static void names(void)
{
	struct disk_options opt = aside(4);
	char name[160];
	uint32_t i;

	for (i = 0; i < 4; i++) {
		make(4);
		truncate(disk_path, 200000 + i);
		snprintf(name, sizeof(name), i ? "%s.%u" : "%s", bad, i);
		is_aside(&opt, 4, 200000 + i, name, "one more");
	}
	truncate(disk_path, 199999);
	{
		struct disk *d = NULL;

		ok(disk_open(disk_path, &opt, &d) == -EBADMSG && size_of(disk_path) == 199999 &&
			   strstr(gpc_last_error(), "blocks.bad.3"),
		   "the fifth stays: %s", gpc_last_error());
	}
	ok(size_of(bad) == 200000, "and the first one is as it was");
	forget();
}

/* Where the new one cannot be made the damaged one has its name again. */
static void no_room(void)
{
	struct disk_options opt = aside(1000);
	const struct rlimit low = { 1 << 20, 1 << 20 };
	int status = -1;
	pid_t pid;

	make(4);
	truncate(disk_path, 200000);
	pid = fork();
	if (!pid) {
		struct disk *d = NULL;
		int err;

		signal(SIGXFSZ, SIG_IGN);
		setrlimit(RLIMIT_FSIZE, &low);
		err = disk_open(disk_path, &opt, &d);
		_exit(err == -EFBIG && size_of(disk_path) == 200000 && access(bad, F_OK) ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	is_int(status, 0, "no room for a new one: the damaged one has its name again");
	forget();
}

/* Only looked at: closed before it has begun. */
static void later(void)
{
	struct disk_options opt = aside(4);
	struct disk *d = NULL;

	make(4);
	truncate(disk_path, 200000);
	opt.flags |= DISK_LATER;
	is_int(disk_open(disk_path, &opt, &d), 0, "looked at");
	disk_close(d);
	ok(size_of(disk_path) == 200000 && access(bad, F_OK), "and it stays where it is");
	forget();
}

int main(void)
{
	disk_make_folder();
	snprintf(bad, sizeof(bad), "%s.bad", disk_path);
	damaged();
	others();
	names();
	no_room();
	later();
	disk_remove_folder();
	return done_testing();
}
