/* SPDX-License-Identifier: Apache-2.0 */
/* Making, finding and leaving a cache: bad names and geometries, too little memory,
 * damaged and foreign segments, seats, the writer's seat.  What is refused leaves
 * nothing behind.
 * Tests: lib/index/door/attach.c lib/index/segment/create.c lib/index/peer/seat.c lib/index/takeover/open.c */
#include <fcntl.h>
#include <sys/stat.h>

#include "t/lib/cache.h"

/* Files of the directory. */
static int files(void)
{
	DIR *dir = opendir(cache_dir);
	struct dirent *e;
	int n = 0;

	while (dir && (e = readdir(dir)))
		n += e->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return n;
}

static struct gpc_attach_options here(void)
{
	return (struct gpc_attach_options){ .size = sizeof(struct gpc_attach_options),
					    .dir = cache_dir };
}

static void test_names(void)
{
	struct gpc_config cfg = cache_config(8, 0);
	struct gpc_attach_options opt = here();
	char longest[GPC_MAX_NAME + 2];
	const char *bad[] = { "a/b", "/", "", NULL, ".", "..", ".hidden", "a\nb", longest };
	gpc *c = (gpc *)&cfg, *old = c;
	uint32_t i;

	memset(longest, 'x', sizeof(longest));
	longest[GPC_MAX_NAME + 1] = 0;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		refused(gpc_create(bad[i], &cfg, NULL, 0, &c), EINVAL, "create: name %u", i);
		refused(gpc_attach(bad[i], &opt, 0, &c), EINVAL, "attach: name %u", i);
		refused(gpc_unlink(bad[i], cache_dir), EINVAL, "unlink: name %u", i);
	}
	ok(c == old, "no handle was written");
	is_int(files(), 0, "no file was made");
	longest[GPC_MAX_NAME] = 0;
	is_int(gpc_create(longest, &cfg, NULL, 0, &c), 0, "the longest name");
	must(gpc_close(c));
	is_int(gpc_unlink(longest, cache_dir), 0, "goes again");
	is_int(files(), 0, "as a whole");
	refused(gpc_attach("nobody", &opt, 0, &c), ENOENT, "a name that is not there");
	refused(gpc_unlink("nobody", cache_dir), ENOENT, "nor can it go");
	opt.dir = "/dev/shm/there/is/no/such/folder";
	refused(gpc_attach("nobody", &opt, 0, &c), ENOENT, "in a directory that is not");
	cfg.dir = opt.dir;
	refused(gpc_create("nobody", &cfg, NULL, 0, &c), ENOENT, "nothing is made there");
}

static void test_geometry(void)
{
	struct gpc_config good = cache_config(8, 8), cfg;
	char devices[100];
	gpc *c = NULL;

#define BAD_CONFIG(err, why, ...)                                             \
	do {                                                                  \
		cfg = good;                                                   \
		__VA_ARGS__;                                                  \
		refused(gpc_create("geometry", &cfg, NULL, 0, &c), err, why); \
	} while (0)
	memset(devices, 'x', sizeof(devices));
	devices[99] = 0;
	BAD_CONFIG(EINVAL, "no size", cfg.size = 0);
	BAD_CONFIG(EINVAL, "a size too small", cfg.size = 20);
	BAD_CONFIG(EINVAL, "blocks of a million tokens", cfg.block_tokens = 1000000);
	BAD_CONFIG(EINVAL, "too many peers", cfg.max_peers = GPC_MAX_PEERS + 1);
	BAD_CONFIG(EINVAL, "too many pools", cfg.max_pools = GPC_MAX_POOLS + 1);
	BAD_CONFIG(EINVAL, "too few pools", cfg.max_pools = 1);
	BAD_CONFIG(EINVAL, "too many blocks", cfg.max_blocks = UINT32_MAX);
	BAD_CONFIG(EINVAL, "too few for both pools", cfg.max_blocks = 15);
	BAD_CONFIG(EINVAL, "too few for transit, too", cfg.max_blocks = 16);
	BAD_CONFIG(EINVAL, "a pool too large", cfg.vram_blocks = (1u << 24) + 1);
	BAD_CONFIG(EINVAL, "RAM too large", cfg.ram_blocks = 1u << 24);
	BAD_CONFIG(EINVAL, "ticks of hours", cfg.tick_us = UINT32_MAX);
	BAD_CONFIG(EINVAL, "fewer than none ahead", cfg.free_target = -2);
	BAD_CONFIG(EINVAL, "more ahead than there can be", cfg.free_target = INT32_MAX);
	BAD_CONFIG(EINVAL, "a quarantine of days", cfg.quarantine_ms = UINT32_MAX);
	BAD_CONFIG(EINVAL, "open to the world", cfg.mode = 0666);
	BAD_CONFIG(EINVAL, "closed to the owner", cfg.mode = 0060);
	BAD_CONFIG(EINVAL, "executable", cfg.mode = 0700);
	BAD_CONFIG(EINVAL, "a long list of devices", cfg.devices = devices);
	BAD_CONFIG(ENOSPC, "more than the machine has", cfg.max_blocks = 1u << 28,
		   cfg.max_peers = GPC_MAX_PEERS);
	ok(strstr(gpc_last_error(), "lacks") != NULL, "and it says how much is missing");
	cfg = good;
	refused(gpc_create("geometry", &cfg, NULL, 0x10000, &c), EINVAL, "an unknown flag");
	refused(gpc_create("geometry", &cfg, NULL, GPC_READONLY, &c), EINVAL, "a flag of others");
	refused(gpc_create("geometry", &cfg, NULL, 0, NULL), EINVAL, "no place for the handle");
	ok(!c, "no handle was made");
	is_int(files(), 0, "and no file");
}

static void test_exists(void)
{
	struct gpc_config cfg = cache_config(8, 0), other = cfg;
	struct gpc_attach_options opt = here();
	struct gpc_stats st;
	gpc *c, *d = NULL;

	memset(cfg.layout, 0x11, sizeof(cfg.layout));
	cfg.max_blocks = 64;
	c = cache_make(&cfg, NULL);
	chain_make(c, 0, 1, 2, NULL);
	refused(gpc_create(cache_name, &cfg, NULL, 0, &d), EEXIST, "the name is taken");
	is_int(gpc_create(cache_name, &cfg, NULL, GPC_IF_ABSENT, &d), 0, "it fits, so attach");
	is_int(find(d, 2), 1, "it is the same");
	must(gpc_close(d));
	other = cfg;
	other.vram_blocks = 9;
	refused(gpc_create(cache_name, &other, NULL, GPC_IF_ABSENT, &d), EPROTO, "another pool");
	ok(strstr(gpc_last_error(), "with vram_blocks 8, not 9") != NULL, "... and which there is");
	other = cfg;
	other.max_blocks = 65;
	refused(gpc_create(cache_name, &other, NULL, GPC_IF_ABSENT, &d), EPROTO,
		"another geometry");
	other = cfg;
	other.block_tokens = 32;
	refused(gpc_create(cache_name, &other, NULL, GPC_IF_ABSENT, &d), EPROTO,
		"blocks of another size");
	other = cfg;
	other.layout[31] ^= 1;
	refused(gpc_create(cache_name, &other, NULL, GPC_IF_ABSENT, &d), EPROTO, "another layout");
	memset(opt.layout, 0x22, sizeof(opt.layout));
	refused(gpc_attach(cache_name, &opt, 0, &d), EPROTO, "another model");
	memset(opt.layout, 0x11, sizeof(opt.layout));
	is_int(gpc_attach(cache_name, &opt, 0, &d), 0, "the same model");
	must(gpc_close(d));
	memset(opt.layout, 0, sizeof(opt.layout));
	is_int(gpc_attach(cache_name, &opt, 0, &d), 0, "one that does not care");
	must(gpc_close(d));
	opt.size = 4;
	refused(gpc_attach(cache_name, &opt, 0, &d), EINVAL, "options without size");
	opt.size = sizeof(opt);
	refused(gpc_attach(cache_name, &opt, GPC_READONLY | GPC_SERVE, &d), EINVAL,
		"a reader that serves");
	refused(gpc_attach(cache_name, &opt, GPC_QUIET, &d), EINVAL, "a flag of others");
	refused(gpc_attach(cache_name, &opt, 0, NULL), EINVAL, "no place for the handle");
	must(gpc_writer_serve(c, 30));
	is_int(info_of(c).peers, 1, "nobody is left over");
	opt.label = "a label of the caller's own choice, cut where it is too long";
	is_int(gpc_attach(cache_name, &opt, 0, &d), 0, "with a label");
	st = stats_of(c, info_of(d).peer);
	is_str(st.label, "a label of the caller's own cho", "which all can read");
	ok(st.pid == getpid() && st.alive == 1, "beside the pid of who lives");
	must(gpc_close(d));
	is_int(find(c, 2), 1, "and nothing changed");
	clean(c, "what was refused");
	cache_end(c);
}

/* Attached processes go on when the name is gone; the name is free. */
static void test_unlink(void)
{
	struct gpc_config cfg = cache_config(8, 0);
	struct gpc_attach_options opt = here();
	gpc *c = cache_make(&cfg, NULL), *d;

	is_int(gpc_unlink(cache_name, cache_dir), 0, "unlinked");
	is_int(files(), 0, "as a whole");
	chain_make(c, 0, 1, 3, NULL);
	is_int(find(c, 3), 2, "who is attached goes on");
	refused(gpc_attach(cache_name, &opt, 0, &d), ENOENT, "nobody else comes");
	is_int(gpc_create(cache_name, &cfg, NULL, 0, &d), 0, "the name is free");
	must(gpc_writer_take(d, 0, 0));
	is_int(find(d, 3), -1, "for another cache");
	must(gpc_close(c));
	cache_end(d);
}

/* ---- damage ---- */

static int file_of(const char *suffix, int flags)
{
	char path[200];

	snprintf(path, sizeof(path), "%s/gpc.%s.%s", cache_dir, cache_name, suffix);
	return open(path, flags);
}

static void damaged(const char *suffix, off_t at, const void *bytes, size_t n, int err,
		    const char *why)
{
	struct gpc_config cfg = cache_config(8, 0);
	struct gpc_attach_options opt = here();
	gpc *c, *d = NULL;
	int fd;

	cache_thread = false;
	c = cache_make(&cfg, NULL);
	must(gpc_close(c));
	fd = file_of(suffix, O_RDWR);
	if (fd < 0 || (bytes ? pwrite(fd, bytes, n, at) != (ssize_t)n : ftruncate(fd, at)))
		bail("cannot damage gpc.%s.%s", cache_name, suffix);
	close(fd);
	refused(gpc_attach(cache_name, &opt, 0, &d), err, "%s: attach", why);
	refused(gpc_attach(cache_name, &opt, GPC_SERVE, &d), err, "%s: serve", why);
	refused(gpc_create(cache_name, &cfg, NULL, 0, &d), EEXIST, "%s: the name is taken", why);
	ok(!d, "%s: no handle", why);
	is_int(gpc_unlink(cache_name, cache_dir), 0, "%s: it can be removed", why);
	is_int(files(), 0, "%s: as a whole", why);
}

static void test_damage(void)
{
	uint8_t noise[4096];
	uint32_t i, version = 99;

	for (i = 0; i < sizeof(noise); i++)
		noise[i] = (uint8_t)chance(256);
	damaged("idx", 0, noise, sizeof(noise), EBADMSG, "noise for an index");
	damaged("ctl", 0, noise, sizeof(noise), EBADMSG, "noise for a control segment");
	damaged("idx", 8, &version, sizeof(version), EPROTO, "another version");
	damaged("idx", 100, noise, 1, EBADMSG, "one byte");
	damaged("idx", 0, NULL, 0, EBADMSG, "an empty index");
	damaged("idx", 5000, NULL, 0, EBADMSG, "a truncated index");
	damaged("ctl", 5000, NULL, 0, EBADMSG, "a truncated control segment");
	damaged("lock", 0, NULL, 0, EBADMSG, "an empty lock file");
}

static void test_another_user(void)
{
	struct gpc_config cfg = cache_config(8, 0);
	struct gpc_attach_options opt = here();
	const char *suffix[] = { "idx", "ctl", "lock" };
	gpc *c, *d = NULL;
	uint32_t i;
	int fd;

	if (geteuid()) {
		skip(2, "only root can give files away");
		return;
	}
	c = cache_make(&cfg, NULL);
	must(gpc_close(c));
	for (i = 0; i < 3; i++) {
		fd = file_of(suffix[i], O_RDWR);
		if (fd < 0 || fchown(fd, 12345, 12345))
			bail("cannot give a file away");
		close(fd);
	}
	refused(gpc_attach(cache_name, &opt, 0, &d), EACCES, "another user's segment");
	refused(gpc_attach(cache_name, &opt, GPC_SERVE, &d), EACCES, "in no way");
	cache_dir_remove();
	if (mkdir(cache_dir, 0700))
		bail("the directory cannot be made again");
}

/* ---- seats ---- */

static void *make_later(void *arg)
{
	struct gpc_config cfg = cache_config(8, 0);
	struct timespec pause = { .tv_nsec = 20000000 };

	nanosleep(&pause, NULL); /* the name appears while another waits for it */
	must(gpc_create("later", &cfg, NULL, 0, arg));
	return NULL;
}

static void test_seats(void)
{
	struct gpc_config cfg = cache_config(8, 0);
	struct gpc_attach_options opt = here();
	gpc *c, *d = NULL, *e = NULL;
	pthread_t thread;

	cfg.max_peers = 2;
	c = cache_make(&cfg, NULL);
	must(gpc_attach(cache_name, &opt, 0, &d));
	refused(gpc_attach(cache_name, &opt, 0, &e), EUSERS, "no seat is free");
	opt.timeout_ms = 20;
	refused(gpc_attach(cache_name, &opt, 0, &e), EUSERS, "not in 20 ms either");
	is_int(gpc_attach(cache_name, &opt, GPC_READONLY, &e), 0, "who only reads needs none");
	must(gpc_close(e));
	must(gpc_close(d));
	must(gpc_writer_serve(c, 30));
	opt.timeout_ms = 1000;
	serve_begin(c);
	is_int(gpc_attach(cache_name, &opt, 0, &d), 0, "a seat that was left");
	serve_end();
	must(gpc_close(d));
	cache_end(c);

	opt.timeout_ms = 5000;
	if (pthread_create(&thread, NULL, make_later, &c))
		bail("no thread");
	is_int(gpc_attach("later", &opt, 0, &d), 0, "a name that was waited for");
	pthread_join(thread, NULL);
	must(gpc_close(d));
	must(gpc_close(c));
	must(gpc_unlink("later", cache_dir));
	is_int(gpc_close(NULL), 0, "no handle to close");
}

/* ---- the writer's seat ---- */

static void *drop_later(void *arg)
{
	struct timespec pause = { .tv_nsec = 20000000 };

	nanosleep(&pause, NULL); /* somebody stands by meanwhile */
	must(gpc_writer_drop(arg));
	return NULL;
}

static void count_lines(void *arg, int level, const char *text)
{
	if (level >= 0 && level <= 7 && text && *text)
		++*(int *)arg;
}

static void test_writer_seat(void)
{
	struct gpc_config cfg = cache_config(8, 0);
	struct gpc_attach_options opt = here();
	uint32_t generation;
	pthread_t thread;
	int lines = 0;
	gpc *c, *d;

	opt.log = count_lines;
	opt.log_arg = &lines;
	c = cache_make(&cfg, &opt);
	ok(lines > 0, "the log callback hears of it");
	d = cache_attach(0, 0);
	is_int(info_of(c).writer_pid, getpid(), "this process is the writer");
	generation = info_of(c).writer_generation;
	is_int(gpc_writer_take(c, 0, 0), 0, "it has the seat already");
	is_int(info_of(c).writer_generation, generation, "so it does not take it again");
	refused(gpc_writer_take(d, 0, 0), EAGAIN, "the other handle cannot");
	refused(gpc_writer_take(d, GPC_STANDBY, 20), ETIMEDOUT, "nor by waiting a little");
	refused(gpc_writer_take(d, GPC_SERVE, 0), EINVAL, "a flag of others");
	refused(gpc_writer_serve(d, 0), ENOTCONN, "it is not the writer");
	refused(gpc_writer_drop(d), ENOTCONN, "so it has nothing to give up");
	chain_make(c, 0, 1, 4, NULL);
	if (pthread_create(&thread, NULL, drop_later, c))
		bail("no thread");
	is_int(gpc_writer_take(d, GPC_STANDBY, 5000), 0, "it stands by");
	pthread_join(thread, NULL);
	ok(info_of(c).writer_generation > generation, "another generation");
	refused(gpc_writer_serve(c, 0), ENOTCONN, "the first one is the writer no more");
	is_int(find(d, 4), 3, "what was there is there");
	chain_make(d, 0, 11, 4, NULL);
	is_int(find(c, 14), 7, "and it goes on");
	clean(d, "two writers");
	must(gpc_close(d));
	is_int(info_of(c).writer_pid, 0, "a writer that closes is none");
	cache_end(c);
}

static int body(void)
{
	test_names();
	test_geometry();
	test_exists();
	test_unlink();
	test_damage();
	test_another_user();
	test_seats();
	test_writer_seat();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
