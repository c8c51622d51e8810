/* SPDX-License-Identifier: Apache-2.0 */
/* The leftovers of a steward of tiers that is refused; what it must not acknowledge, and must not
 * keep waiting.
 * Tests: lib/tiers/steward/open.c lib/tiers/steward/feed.c lib/tiers/steward/board.c lib/tiers/steward/peek.c */
#include "t/lib/below.h"

#include <pthread.h>

static int ram, vram;

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

static int sync_error;

int __wrap_fdatasync(int fd)
{
	if (!__atomic_load_n(&sync_error, __ATOMIC_SEQ_CST))
		return __real_fdatasync(fd);
	errno = EIO;
	return -1;
}

int __real_gpc_pool_make(gpc *c, struct gpc_pool *p, const struct gpc_memory *m, int timeout_ms);
int __wrap_gpc_pool_make(gpc *c, struct gpc_pool *p, const struct gpc_memory *m, int timeout_ms);

static gpc *goes; /* its pool is in the way, and goes behind the refusal that it is the cause of */
static uint32_t in_way, tries;

int __wrap_gpc_pool_make(gpc *c, struct gpc_pool *p, const struct gpc_memory *m, int timeout_ms)
{
	int n = __real_gpc_pool_make(c, p, m, timeout_ms);

	tries++;
	if (n >= 0 || !goes)
		return n;
	must(gpc_close(goes));
	goes = NULL;
	while (load_acquire(&seg_pool(&c->seg, in_way)->state) != POOL_FREE)
		usleep(200);
	return n;
}

static long long length(const char *path)
{
	struct stat st;

	return stat(path, &st) ? -1 : (long long)st.st_size;
}

/* ---- refused: the file is as it was ---- */

/* Each for a reason that has nothing to do with the file. */
static void refuse_all(const struct gpc_tiers_options *as, const char *what)
{
	struct gpc_tiers_options o = *as;
	long long before = length(tiers_path);
	gpc_tiers *t = NULL;

	o.disk_space = 0;
	o.remote = "nonsense:";
	ok(gpc_tiers_open(cache_name, &o, &t) < 0, "%s: no such store: %s", what, gpc_last_error());
	is_int(length(tiers_path), before, "the file is as it was");
	o.remote = NULL;
	o.disk_space = 3;
	refused(gpc_tiers_open(cache_name, &o, &t), EXDEV, "another pool is in its space");
	is_int(length(tiers_path), before, "the file is as it was");
	o.disk_space = 0;
	__atomic_store_n(&sync_error, 1, __ATOMIC_SEQ_CST);
	ok(gpc_tiers_open(cache_name, &o, &t) < 0, "no sync: %s", gpc_last_error());
	__atomic_store_n(&sync_error, 0, __ATOMIC_SEQ_CST);
	is_int(length(tiers_path), before, "the file is as it was");
}

static void test_as_it_was(void)
{
	struct gpc_tiers_options o;
	gpc *c = tiers_begin(1024, &o, &ram, &vram);
	gpc_tiers *t;

	bytes_ram(c, 4, 3, 0);
	refuse_all(&o, "a new file");
	t = tiers_open(&o);
	tiers_fill(c, ram, 1, 40, 8);
	is_int(tiers_below(c, 1, 24), 24, "blocks are on the disk");
	must(gpc_tiers_close(t));
	o.flags = GPC_TIERS_RESIZE;
	o.disk_blocks = 10;
	refuse_all(&o, "a file to be cut");
	o.disk_blocks = 100;
	refuse_all(&o, "a file to be grown");
	o.disk_blocks = 0;
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, 24), 24, "all of its blocks are there");
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	fetch_end(c, "as it was");
}

/* ---- arguments: each sentence names the argument, its value, and what it may be ---- */

static void says(int got, int want, const char *a, const char *b)
{
	const char *text = gpc_last_error();

	ok(got == want && strstr(text, a) && strstr(text, b), "%d: %s", got, text);
}

#define TRY(field, value, want, a, b)                                    \
	do {                                                             \
		struct gpc_tiers_options x = o;                          \
		gpc_tiers *none = NULL;                                  \
		x.field = value;                                         \
		says(gpc_tiers_open(cache_name, &x, &none), want, a, b); \
	} while (0)

static void test_arguments(void)
{
	struct gpc_tiers_file file = { .size = sizeof(file) };
	struct gpc_tiers_options o;
	gpc *c = tiers_begin(1024, &o, &ram, &vram);

	TRY(size, 3, -EINVAL, "size", "is 3");
	TRY(flags, 32, -EINVAL, "0x20", "GPC_TIERS_CHECK");
	TRY(timeout_ms, -2, -EINVAL, "timeout_ms is -2", "-1");
	TRY(ram, -1, -EINVAL, "ram is -1", "number of a pool");
	TRY(ram, 5, -ENOENT, "ram is 5", "no RAM with memory");
	TRY(disk, NULL, -EINVAL, "disk and remote are NULL", "no tier");
	TRY(disk, "", -EINVAL, "disk is empty", "name a file");
	TRY(disk, ".", -EPROTO, ". is a folder", "regular file");
	TRY(disk, "/dev/null", -EPROTO, "/dev/null", "no regular file");
	TRY(disk, "nosuch/file", -ENOENT, "nosuch/file cannot be made", "folder does not exist");
	TRY(disk_bytes, 5, -EINVAL, "disk_bytes is 5", "disk_blocks 64");
	TRY(disk_blocks, UINT32_MAX, -EINVAL, "disk_blocks is 4294967295", "16777216");
	TRY(disk_blocks, 2000, -ENOSPC, "2000 blocks", "max_blocks 1024");
	TRY(disk_blocks, 0, -EINVAL, "disk_bytes and disk_blocks are 0", "no file");
	TRY(disk_space, 32, -EINVAL, "disk_space is 32", "31");
	TRY(disk_threads, 65, -EINVAL, "disk_threads is 65", "64");
	TRY(ahead, 4097, -EINVAL, "ahead is 4097", "4096");
	TRY(questions, 17, -EINVAL, "questions is 17", "16");
	TRY(reserved, 1, -EINVAL, "reserved is 1", "0");
	TRY(secret, "0123456789abcdef", -EPROTO, "secret is not that of", "made with");
	says(gpc_tiers_file_get("", &file), -EINVAL, "disk is empty", "name a file");
	is_int(length(tiers_path), -1, "no file is made by all that");
	fetch_end(c, "arguments");
}

/* ---- not acknowledged ---- */

static void test_sync(void)
{
	struct gpc_tiers_options o;
	gpc *c = tiers_begin(1024, &o, &ram, &vram);
	gpc_tiers *t = tiers_open(&o);
	gpc_block b;

	tiers_fill(c, ram, 1, 40, 8);
	b = tiers_block_below(c, 8);
	__atomic_store_n(&sync_error, 1, __ATOMIC_SEQ_CST);
	is_int(gpc_drop(c, &b, 1, NULL, 0, 300), -ETIMEDOUT, "a drop that cannot be synced");
	is_int(gpc_tiers_sync(c, 300), -ETIMEDOUT, "is nothing that gpc_tiers_sync says is done");
	__atomic_store_n(&sync_error, 0, __ATOMIC_SEQ_CST);
	is_int(gpc_tiers_sync(c, TIERS_MS), 0, "until the disk syncs again");
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	fetch_end(c, "sync");
}

/* ---- cleared while another file was kept ---- */

static void test_other_file(void)
{
	struct gpc_tiers_options o, other;
	gpc *c = tiers_begin(1024, &o, &ram, &vram);
	gpc_tiers *t = tiers_open(&o);
	char first[96];
	int i, err;

	tiers_fill(c, ram, 1, 40, 8);
	must(gpc_tiers_close(t));
	strcpy(first, tiers_path);
	tiers_file();
	other = tiers_options(64);
	t = tiers_open(&other);
	for (i = 0; (err = gpc_pool_clear(c, -1, 0, 0, 5000)) == -ENOTCONN && i < 100; i++)
		usleep(20000);
	ok(err >= 0, "all is cleared, while another file is kept");
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	strcpy(tiers_path, first);
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, 40), 0, "the first one brings nothing back");
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	fetch_end(c, "other file");
}

/* ---- its pool is removed by somebody else ---- */

static void test_removed(void)
{
	struct gpc_tiers_options o;
	gpc *c = tiers_begin(1024, &o, &ram, &vram);
	gpc_tiers *t = tiers_open(&o);

	tiers_fill(c, ram, 1, 40, 8);
	is_int(gpc_pool_clear(c, tier_of(c).pool, 0, GPC_REMOVE, 5000), 0, "its pool is removed");
	must(gpc_tiers_close(t));
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, 24), 0, "nothing of it comes back");
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	fetch_end(c, "removed");
}

/* ---- the pool of a steward that is dead goes while the next one is refused for it ---- */

static void test_in_the_way(uint32_t blocks, uint32_t space, const char *why)
{
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = GPC_DISK,
			      .flags = GPC_POOL_CALLER | GPC_POOL_UNCHAINED,
			      .blocks = blocks,
			      .space = space,
			      .demote_to = -1 };
	struct gpc_tiers_options o;
	gpc *c = tiers_begin(1024, &o, &ram, &vram), *d;
	gpc_tiers *t;

	o.disk_space = 5;
	d = cache_attach(0, 0);
	in_way = (uint32_t)must(gpc_pool_make(d, &p, NULL, 2000));
	goes = d;
	tries = 0;
	t = tiers_open(&o);
	is_int(tries, 2, "%s: asked again", why);
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	fetch_end(c, "in the way");
}

/* ---- nobody waits for the write rate ---- */

static void test_rate(void)
{
	struct gpc_tiers_options o;
	gpc *c = tiers_begin(1024, &o, &ram, &vram);
	gpc_block b[8];
	uint64_t start;
	gpc_tiers *t;

	o.write_rate = 1;
	t = tiers_open(&o);
	bytes_chain(c, ram, 1, 8, b, false);
	bytes_chain(c, ram, 9, 8, b, false);
	while (!tier_of(c).written)
		usleep(1000);
	usleep(50000);
	start = clock_ns();
	is_int(gpc_pool_clear(c, tier_of(c).pool, 0, 0, 5000), 0,
	       "with a byte a second all on the disk is cleared");
	must(gpc_tiers_close(t));
	ok(is_soon(start, 2000), "and the tier ends soon: %d ms",
	   (int)((clock_ns() - start) / NS_PER_MS));
	unlink(tiers_path);
	fetch_end(c, "rate");
}

static int body(void)
{
	test_as_it_was();
	test_arguments();
	test_sync();
	test_other_file();
	test_removed();
	test_in_the_way(850, 6, "its room");
	test_in_the_way(8, 5, "its space");
	test_rate();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
