/* SPDX-License-Identifier: Apache-2.0 */
/* A steward of tiers that is refused leaves everything as it was, whichever step of its start fails:
 * each byte of the file, no pool, no thread, no lock, and what was dropped and cleared before is
 * still owed.
 * Tests: lib/tiers/steward/open.c lib/tiers/steward/plan.c */
#include "t/lib/below.h"
#include "t/lib/disk_shim.h"

#include <dirent.h>

#include "index/base/worker.h"
#include "tiers/disk/disk.h"
#include "index/peer/handle.h"

static int ram, vram;

/* ---- steps that fail ---- */

static int thread_fails = -1, threads; /* the n-th that is started */
static bool scan_fails, queue_fails, event_fails;

int __real_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	const struct worker *w = arg;

	if (strncmp(w->kind->name, "gpc-tiers", 9) != 0 || thread_fails < 0 ||
	    threads++ != thread_fails)
		return __real_pthread_create(t, attr, run, arg);
	return EAGAIN;
}

int __real_disk_scan(struct disk *d, struct disk_slot **ret, uint64_t *ret_n);
int __wrap_disk_scan(struct disk *d, struct disk_slot **ret, uint64_t *ret_n);
int __wrap_disk_scan(struct disk *d, struct disk_slot **ret, uint64_t *ret_n)
{
	return scan_fails ? -ENOMEM : __real_disk_scan(d, ret, ret_n);
}

int __real_queue_start(struct disk *d, const struct disk_options *opt);
int __wrap_queue_start(struct disk *d, const struct disk_options *opt);
int __wrap_queue_start(struct disk *d, const struct disk_options *opt)
{
	return queue_fails ? -EAGAIN : __real_queue_start(d, opt);
}

int __real_feed_begin(void *t);
int __wrap_feed_begin(void *t);
int __wrap_feed_begin(void *t)
{
	return event_fails ? err_set(EIO, "no feed") : __real_feed_begin(t);
}

static void shim_fails(uint32_t call, uint32_t skip, int err)
{
	memset(&shim, 0, sizeof(shim));
	shim.calls = call;
	shim.to = UINT64_MAX;
	shim.skip = skip;
	shim.times = 1;
	shim.err = err;
}

enum step {
	SOUND,
	NO_STORE,
	NO_SPACE,
	NO_USES,
	NO_EVENT,
	NO_SCAN,
	NO_QUEUE,
	THREAD_1,
	THREAD_2,
	THREAD_3,
	THREAD_4,
	SYNC_1,
	SYNC_2,
	STORE_1,
	STORE_2,
	NO_ROOM,
	STEPS
};
static const char *const step_name[] = {
	"sound",
	"no such store",
	"another pool is in its space",
	"no memory to count uses",
	"no feed",
	"no memory to scan",
	"no thread of the disk",
	"no first thread",
	"no second thread",
	"no third thread",
	"no fourth thread",
	"no sync",
	"no second sync",
	"no superblock",
	"no second superblock",
	"no room",
};

void *__real_uses_new(void);
void *__wrap_uses_new(void);
static bool uses_fail;
void *__wrap_uses_new(void)
{
	return uses_fail ? NULL : __real_uses_new();
}

static void fail(enum step s, struct gpc_tiers_options *o)
{
	memset(&shim, 0, sizeof(shim));
	threads = 0;
	thread_fails = s >= THREAD_1 && s <= THREAD_4 ? (int)(s - THREAD_1) : -1;
	scan_fails = s == NO_SCAN;
	queue_fails = s == NO_QUEUE;
	event_fails = s == NO_EVENT;
	uses_fail = s == NO_USES;
	if (s == NO_STORE)
		o->remote = "nonsense:";
	if (s == NO_SPACE)
		o->disk_space = 3;
	if (s == NO_USES)
		o->min_uses = 2;
	if (s == SYNC_1 || s == SYNC_2)
		shim_fails(SHIM_SYNC, s == SYNC_2, EIO);
	if (s == STORE_1 || s == STORE_2)
		shim_fails(SHIM_WRITE, s == STORE_2, EIO);
	if (s == NO_ROOM)
		shim_fails(SHIM_ROOM, 0, ENOSPC);
}

/* ---- as it was ---- */

static uint8_t *read_all(size_t *ret)
{
	int fd = open(tiers_path, O_RDONLY);
	off_t bytes = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	uint8_t *all = bytes < 0 ? NULL : malloc((size_t)bytes + 1);

	*ret = 0;
	if (!all)
		return NULL;
	if (pread(fd, all, (size_t)bytes, 0) != bytes)
		bail("%s cannot be read", tiers_path);
	close(fd);
	*ret = (size_t)bytes;
	return all;
}

static int count_threads(void)
{
	DIR *d = opendir("/proc/self/task");
	int n = 0;

	while (d && readdir(d))
		n++;
	closedir(d);
	return n;
}

static int lower_pools(gpc *c)
{
	struct gpc_pool p = { .size = sizeof(p) };
	int i, n = 0;

	for (i = 0; i < GPC_MAX_POOLS; i++)
		n += gpc_pool_get(c, i, &p) == 0 && p.kind == GPC_DISK;
	return n;
}

static gpc *begin(struct gpc_tiers_options *o)
{
	gpc *c = tiers_begin(4096, o, &ram, &vram);

	bytes_ram(c, 4, 3, 0);
	return c;
}

/* The answer of a steward of the file that was kept last. */
struct board_now {
	uint8_t file[16];
	uint64_t durable, cleared;
	uint32_t drops, steward, kept;
};

static struct board_now board_of(gpc *c)
{
	const struct shm_board *d = seg_board(&c->seg);
	struct board_now n;

	memset(&n, 0, sizeof(n));
	memcpy(n.file, d->file, sizeof(n.file));
	n.durable = d->durable;
	n.cleared = d->cleared;
	n.drops = d->drops;
	n.steward = d->steward;
	n.kept = d->kept;
	return n;
}

static void refuse(gpc *c, const struct gpc_tiers_options *as, enum step s, const char *what)
{
	struct gpc_tiers_options o = *as;
	struct board_now board = board_of(c), then;
	size_t before_bytes, after_bytes;
	uint8_t *before = read_all(&before_bytes), *after;
	int had = count_threads(), i, err;
	gpc_tiers *t = NULL;

	fail(s, &o);
	err = gpc_tiers_open(cache_name, &o, &t);
	fail(SOUND, &o);
	ok(err < 0 && !t && *gpc_last_error(), "%s: %s: %d, %s", what, step_name[s], err,
	   gpc_last_error());
	after = read_all(&after_bytes);
	ok(!before == !after && before_bytes == after_bytes &&
		   (!before || !memcmp(before, after, before_bytes)),
	   "%s: each byte of the file is as it was", what);
	then = board_of(c);
	ok(!memcmp(&board, &then, sizeof(board)), "%s: and what the cache knows of it", what);
	is_int(count_threads(), had, "%s: no thread is left", what);
	for (i = 0; lower_pools(c) && i < 2000; i++)
		usleep(1000);
	is_int(lower_pools(c), 0, "%s: nor a pool", what);
	free(before);
	free(after);
}

static bool applies(enum step s, bool grows)
{
	return s != NO_ROOM || grows;
}

static void refuse_all(gpc *c, const struct gpc_tiers_options *o, bool scanned, bool grows,
		       const char *what)
{
	enum step s;

	for (s = SOUND + 1; s < STEPS; s++)
		if (applies(s, grows) && (scanned || s != NO_SCAN))
			refuse(c, o, s, what);
}

/* ---- tests ---- */

static int tiers_below_next(gpc *c, const struct gpc_tiers_options *o)
{
	gpc_tiers *t = tiers_open(o);
	int n;

	must(gpc_tiers_sync(c, TIERS_MS));
	n = tiers_below(c, 1, 40);
	must(gpc_tiers_close(t));
	return n;
}

static void test_resize(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t;
	int i;

	refuse_all(c, &o, true, true, "a file to be made");
	t = tiers_open(&o);
	tiers_fill(c, ram, 1, 40, 8);
	is_int(tiers_below(c, 1, 24), 24, "blocks are on the disk");
	must(gpc_tiers_close(t));
	refuse_all(c, &o, true, false, "a file");
	o.flags = GPC_TIERS_RESIZE;
	o.disk_blocks = 10;
	refuse_all(c, &o, true, false, "a file to be cut");
	o.disk_blocks = 1500; /* another group of slots, too */
	refuse_all(c, &o, true, true, "a file to be grown");
	o.disk_blocks = 0;
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, 24), 24, "all of its blocks are there");
	must(gpc_tiers_close(t));
	o.disk_blocks = 1500;
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, 24), 24, "grown: the same");
	must(gpc_tiers_close(t));
	o.disk_blocks = 16;
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	ok(tiers_below(c, 1, 40) <= 16, "cut: as many as fit");
	must(gpc_tiers_close(t));
	o.disk_blocks = 48; /* where blocks were before it was cut */
	refuse_all(c, &o, true, true, "a file that was cut, to be grown");
	i = tiers_below_next(c, &o);
	ok(i > 0 && i <= 16, "grown: %d, and nothing of before it was cut", i);
	unlink(tiers_path);
	fetch_end(c, "resize");
}

/* A clear and a drop are owed to the file, and a start that is refused forgets neither. */
static void test_owed(bool drop)
{
	const char *what = drop ? "a drop is owed" : "a clear is owed";
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = tiers_open(&o);
	gpc_key k[9];
	gpc_block b;
	int i, err;

	tiers_fill(c, ram, 1, 40, 8);
	chain_keys(c, 1, 8, k);
	must(gpc_prefetch(c, vram, k + 1, 2, 0, 5000));
	must(gpc_tiers_close(t));
	for (i = 0; lower_pools(c) && i < 2000; i++)
		usleep(1000);
	b = find(c, 1);
	err = drop ? gpc_drop(c, &b, 1, NULL, 0, 5000) : gpc_pool_clear(c, -1, 0, 0, 5000);
	ok(err >= 0, "%s", what);
	o.flags = GPC_TIERS_RESIZE;
	o.disk_blocks = 80;
	refuse_all(c, &o, drop, true, what);
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, 8), 0, "%s: nothing comes back", what);
	is_int(tiers_below(c, 9, 8), drop ? 8 : 0, "%s: of others", what);
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	fetch_end(c, what);
}

/* Another file is refused: the one before is still the one that was kept last. */
static void test_other(void)
{
	struct gpc_tiers_options o, other;
	gpc *c = begin(&o);
	gpc_tiers *t = tiers_open(&o);
	char first[96];

	tiers_fill(c, ram, 1, 40, 8);
	is_int(gpc_pool_clear(c, -1, 0, 0, 5000) >= 0, 1, "all is cleared once");
	tiers_fill(c, ram, 1, 40, 8);
	must(gpc_tiers_close(t));
	strcpy(first, tiers_path);
	tiers_file();
	other = tiers_options(64);
	other.ahead = 8;
	refuse_all(c, &other, false, true, "another file");
	strcpy(tiers_path, first);
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, 24), 24, "the first one has all of its blocks");
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	fetch_end(c, "another file");
}

static int body(void)
{
	shim_dry = true;
	test_resize();
	test_owed(false);
	test_owed(true);
	test_other();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
