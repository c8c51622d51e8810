/* SPDX-License-Identifier: Apache-2.0 */
/* Removals and the disk (rule B19): what a call has acknowledged does not come back, whatever was
 * on its way; who may keep tiers; pools that go.  A restart after a crash is a copy of the file as
 * it is at that moment.
 * Tests: lib/index/request/durable.c lib/tiers/steward/feed.c lib/tiers/steward/board.c lib/tiers/steward/slots.c */
#include "t/lib/below.h"

#include <pthread.h>
#include <sys/uio.h>

static int ram, vram;
static uint32_t ahead = 8;

/* ---- the system below ---- */

ssize_t __real_pwritev(int fd, const struct iovec *v, int n, off_t at);
ssize_t __real_preadv(int fd, const struct iovec *v, int n, off_t at);
int __real_fdatasync(int fd);
ssize_t __wrap_pwritev(int fd, const struct iovec *v, int n, off_t at);
ssize_t __wrap_preadv(int fd, const struct iovec *v, int n, off_t at);
int __wrap_fdatasync(int fd);

static uint32_t syncs;
static int sync_error;
static uint32_t hold_write, hold_read, held; /* 1: the next image waits until it is 0 */

static size_t bytes_of(const struct iovec *v, int n)
{
	size_t bytes = 0;

	while (n--)
		bytes += v[n].iov_len;
	return bytes;
}

static void stand(uint32_t *hold, const struct iovec *v, int n)
{
	if (bytes_of(v, n) < BYTES_IMAGE || bytes_of(v, n) > 4 * BYTES_IMAGE ||
	    !__atomic_load_n(hold, __ATOMIC_SEQ_CST))
		return;
	__atomic_store_n(&held, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(hold, __ATOMIC_SEQ_CST))
		usleep(500);
}

ssize_t __wrap_pwritev(int fd, const struct iovec *v, int n, off_t at)
{
	stand(&hold_write, v, n);
	return __real_pwritev(fd, v, n, at);
}

ssize_t __wrap_preadv(int fd, const struct iovec *v, int n, off_t at)
{
	stand(&hold_read, v, n);
	return __real_preadv(fd, v, n, at);
}

int __wrap_fdatasync(int fd)
{
	__atomic_fetch_add(&syncs, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&sync_error, __ATOMIC_SEQ_CST)) {
		errno = EIO;
		return -1;
	}
	return __real_fdatasync(fd);
}

static void set(uint32_t *hold, uint32_t to)
{
	if (to)
		__atomic_store_n(&held, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(hold, to, __ATOMIC_SEQ_CST);
}

static void wait_held(void)
{
	while (!__atomic_load_n(&held, __ATOMIC_SEQ_CST))
		usleep(500);
}

/* ---- caches ---- */

static gpc_tiers *begin(gpc **ret, struct gpc_tiers_options *o)
{
	*ret = tiers_begin(1024, o, &ram, &vram);
	o->ahead = ahead;
	o->disk_threads = 16; /* those that stand still keep nobody else */
	return tiers_open(o);
}

/* ---- drops and clears ---- */

static void test_drop(void)
{
	struct gpc_tiers_options o;
	uint32_t before;
	gpc_block b;
	gpc_tiers *t;
	gpc *c;

	t = begin(&c, &o);
	tiers_fill(c, ram, 1, 40, 8);
	b = tiers_block_below(c, 8);
	before = __atomic_load_n(&syncs, __ATOMIC_SEQ_CST);
	is_int(gpc_drop(c, &b, 1, NULL, 0, 5000), 1, "a block on the disk is dropped");
	ok(__atomic_load_n(&syncs, __ATOMIC_SEQ_CST) > before,
	   "and that is synced before the call returns");
	tiers_copy_file("tiers-crash.tmp");
	is_int(tiers_block_below(c, 8), -1, "it is in the index no more");
	t = tiers_crash(c, t, "tiers-crash.tmp", &o);
	is_int(tiers_block_below(c, 8), -1, "nor after a crash");
	is_int(tiers_below(c, 1, 7), 7, "the others are");
	tiers_finish(c, t, "drop");
}

/* Of which the feed tells by one change, the last one: it counts, too. */
static void test_last_change(void)
{
	struct gpc_tiers_options o;
	uint32_t before, i;
	gpc_block b;
	gpc_tiers *t;
	gpc *c;

	t = begin(&c, &o);
	for (i = 0; i < 3; i++) {
		bytes_chain(c, ram, 1, 1, &b, false);
		must(gpc_tiers_sync(c, TIERS_MS));
		before = __atomic_load_n(&syncs, __ATOMIC_SEQ_CST);
		is_int(gpc_drop(c, &b, 1, NULL, 0, 5000), 1,
		       "a block of RAM is dropped, and nothing else changes");
		ok(__atomic_load_n(&syncs, __ATOMIC_SEQ_CST) > before,
		   "which is synced before the call returns");
	}
	is_int(gpc_tiers_sync(c, TIERS_MS), 0, "nothing is left to do");
	before = __atomic_load_n(&syncs, __ATOMIC_SEQ_CST);
	is_int(gpc_pool_clear(c, tier_of(c).pool, 9, 0, 5000), 0,
	       "a tag that no block has is cleared");
	ok(__atomic_load_n(&syncs, __ATOMIC_SEQ_CST) > before, "which is synced, too");
	tiers_finish(c, t, "the last change");
}

static void clear_one(int pool, uint32_t tag, const char *what)
{
	struct gpc_tiers_options o;
	gpc_tiers *t;
	int n;
	gpc *c;

	t = begin(&c, &o);
	tiers_fill(c, ram, 1, 40, 8);
	n = tiers_below(c, 1, 40);
	ok(n >= 24, "%s: %d blocks are on the disk", what, n);
	is_int(gpc_pool_clear(c, pool == -2 ? tier_of(c).pool : pool, tag, 0, 5000), 0,
	       "%s: cleared", what);
	tiers_copy_file("tiers-crash.tmp");
	/* what RAM has still is written again */
	is_int(tiers_below(c, 1, 24), tag == 5 ? 24 : 0, "%s: in the index", what);
	t = tiers_crash(c, t, "tiers-crash.tmp", &o);
	is_int(tiers_below(c, 1, 24), tag == 5 ? 24 : 0, "%s: after a crash", what);
	tiers_fill(c, ram, 1, 24, 8);
	ok(tiers_below(c, 1, 24) >= 8, "%s: and the tier goes on", what);
	tiers_finish(c, t, what);
}

static void test_clears(void)
{
	clear_one(-2, 0, "the disk's pool");
	clear_one(-1, 0, "all pools");
	clear_one(-2, 5, "a tag that no block has");
}

/* Blocks of two tags. */
static void test_tag(void)
{
	struct gpc_tiers_options o;
	gpc_key k[9];
	gpc_block b[8];
	gpc_tiers *t;
	uint32_t i;
	gpc *c;

	t = begin(&c, &o);
	for (i = 0; i < 5; i++) {
		chain_keys(c, 1 + 8 * i, 8, k);
		must(gpc_reserve(c, ram, 8, b, NULL, 0, 60000));
		must(gpc_publish(c, k, k + 1, b, 8,
				 GPC_OPTIONS(gpc_publish_options, .tag = 1 + i % 2), 0, -1));
		must(gpc_release(c, b, 8));
		must(gpc_tiers_sync(c, TIERS_MS));
	}
	is_int(tiers_below(c, 1, 24), 24, "three chains of two tags are on the disk");
	is_int(gpc_pool_clear(c, tier_of(c).pool, 1, 0, 5000), 0, "one tag is cleared");
	tiers_copy_file("tiers-crash.tmp");
	is_int(tiers_below(c, 1, 8) + tiers_below(c, 17, 8), 0, "its chains are gone");
	is_int(tiers_below(c, 9, 8), 8, "the other one's are there");
	t = tiers_crash(c, t, "tiers-crash.tmp", &o);
	is_int(tiers_below(c, 1, 8) + tiers_below(c, 17, 8), 0, "the same after a crash");
	is_int(tiers_below(c, 9, 8), 8, "for both");
	tiers_finish(c, t, "tag");
}

/* Nobody keeps the file meanwhile; the cache remembers. */
static void test_cleared_meanwhile(void)
{
	struct gpc_tiers_options o;
	gpc_tiers *t;
	int i, err;
	gpc *c;

	t = begin(&c, &o);
	tiers_fill(c, ram, 1, 40, 8);
	must(gpc_tiers_close(t));
	/* the pool of a steward that leaves is there a moment longer, and then the call says that
	 * its steward has ended */
	for (i = 0; (err = gpc_pool_clear(c, -1, 0, 0, 5000)) == -ENOTCONN && i < 100; i++)
		usleep(20000);
	is_int(err, 0, "all is cleared while nobody keeps the tiers");
	o.disk_blocks = 0;
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, 40), 0, "nothing comes back");
	tiers_finish(c, t, "cleared meanwhile");
}

/* ---- what is on its way ---- */

struct clearing {
	gpc *c;
	int pool, timeout, got;
};

static void *clear_run(void *arg)
{
	struct clearing *q = arg;

	q->got = gpc_pool_clear(q->c, q->pool, 0, 0, q->timeout);
	return NULL;
}

/* A write is under way when all is cleared: the answer waits until that is over, and nothing of it
 * comes back. */
static void test_clear_under_write(void)
{
	struct clearing q = { .pool = -1, .timeout = 10000 };
	struct gpc_tiers_options o;
	pthread_t thread;
	gpc_block b[16];
	gpc_tiers *t;
	gpc *c;

	t = begin(&c, &o);
	q.c = c;
	set(&hold_write, 1);
	bytes_chain(c, ram, 1, 8, b, false);
	bytes_chain(c, ram, 9, 8, b, false);
	wait_held();
	is_int(gpc_pool_clear(c, -1, 0, 0, 100), -ETIMEDOUT,
	       "a clear whose time is up says that it may not be on the disk yet");
	pthread_create(&thread, NULL, clear_run, &q);
	usleep(50000);
	set(&hold_write, 0);
	pthread_join(thread, NULL);
	ok(q.got >= 0, "with more time it is");
	tiers_copy_file("tiers-crash.tmp");
	is_int(tiers_below(c, 1, 16), 0, "what was being written is not published");
	ok(tier_of(c).overtaken + tier_of(c).failed >= 1, "and is counted");
	t = tiers_crash(c, t, "tiers-crash.tmp", &o);
	is_int(tiers_below(c, 1, 16), 0, "nor does it come back");
	tiers_finish(c, t, "clear under a write");
}

/* The source is dropped while it is written. */
static void test_drop_under_write(void)
{
	struct gpc_tiers_options o;
	gpc_block b[16];
	gpc_tiers *t;
	gpc *c;

	ahead = 16; /* all of RAM, so that nothing else is written behind it */
	t = begin(&c, &o);
	ahead = 8;
	tiers_fill(c, ram, 1, 16, 8);
	set(&hold_write, 1);
	bytes_chain(c, ram, 17, 8, b, false);
	wait_held();
	b[0] = find(c, 17);
	is_int(gpc_drop(c, b, 1, NULL, 0, 100), -ETIMEDOUT,
	       "the source is dropped, and copies of it are being written");
	is_int(find(c, 17), -1, "it is found no more, nor are its descendants");
	set(&hold_write, 0);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 17, 8), 0, "what was read from it is not published");
	tiers_copy_file("tiers-crash.tmp");
	t = tiers_crash(c, t, "tiers-crash.tmp", &o);
	is_int(tiers_below(c, 17, 8), 0, "nor does it come back");
	tiers_finish(c, t, "drop under a write");
}

struct fetching {
	gpc *c;
	int got;
	gpc_key k[9];
};

static void *prefetch_run(void *arg)
{
	struct fetching *q = arg;

	q->got = gpc_prefetch(q->c, vram, q->k + 1, 8, 0, 10000);
	return NULL;
}

/* The disk is cleared while a block comes up. */
static void test_clear_under_read(void)
{
	struct gpc_tiers_options o;
	struct fetching q;
	pthread_t thread;
	gpc_tiers *t;
	gpc *c;

	t = begin(&c, &o);
	q.c = c;
	tiers_fill(c, ram, 1, 40, 8);
	chain_keys(c, 1, 8, q.k);
	set(&hold_read, 1);
	pthread_create(&thread, NULL, prefetch_run, &q);
	wait_held();
	is_int(gpc_pool_clear(c, tier_of(c).pool, 0, 0, 5000), 8,
	       "eight blocks are held while they are read");
	set(&hold_read, 0);
	pthread_join(thread, NULL);
	is_int(q.got, 0, "none of them comes to RAM");
	is_int(find(c, 1), -1, "nor is it found");
	ok(tier_of(c).overtaken + tier_of(c).absent >= 1, "that is counted");
	tiers_finish(c, t, "clear under a read");
}

/* RAM goes while it is read into. */
static void test_ram_goes(void)
{
	struct gpc_tiers_options o;
	struct fetching q;
	pthread_t thread;
	gpc_tiers *t;
	int again;
	gpc *c;

	t = begin(&c, &o);
	q.c = c;
	tiers_fill(c, ram, 1, 40, 8);
	chain_keys(c, 1, 8, q.k);
	set(&hold_read, 1);
	pthread_create(&thread, NULL, prefetch_run, &q);
	wait_held();
	ok(gpc_pool_clear(c, ram, 0, GPC_REMOVE, 0) >= 8,
	   "the pool of RAM is removed, and eight blocks or more are held");
	set(&hold_read, 0);
	pthread_join(thread, NULL);
	is_int(q.got, 0, "nothing came");
	must(gpc_pool_unmap(c, ram)); /* the new pool may have its number */
	again = bytes_ram(c, 16, 0, 0);
	is_int(gpc_prefetch(c, vram, q.k + 1, 8, 0, 10000), 8,
	       "another pool, of whatever number, is served: %d", again);
	ram = again;
	is_int(fetch_live(c, 1, 8, ram), 8, "every byte");
	tiers_finish(c, t, "RAM goes");
}

/* ---- who keeps, and for how long one waits ---- */

static void test_refused(void)
{
	struct gpc_tiers_options o, second;
	gpc_tiers *t, *u = NULL;
	gpc_key k[9];
	gpc *c;

	t = begin(&c, &o);
	tiers_fill(c, ram, 1, 40, 8);
	second = o;
	second.disk = "tiers-second.disk";
	second.disk_blocks = 8;
	refused(gpc_tiers_open(cache_name, &second, &u), EBUSY,
		"a second steward of a cache is refused");
	chain_keys(c, 1, 8, k);
	set(&hold_read, 1);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 100), 0,
	       "when time is up a prefetch returns what there is");
	set(&hold_read, 0);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 10000), 8,
	       "and what it asked for has come, or comes");
	must(gpc_tiers_close(t));
	refused(gpc_tiers_sync(c, 1000), ENOTCONN, "nobody keeps tiers");
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 1000), 8, "what is in RAM needs nobody");
	chain_keys(c, 300, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 1000), 0, "and what is nowhere is a miss");
	unlink(tiers_path);
	fetch_end(c, "refused");
}

/* A disk that syncs nothing any more acknowledges nothing. */
static void test_no_sync(void)
{
	struct gpc_tiers_options o;
	gpc_block b;
	gpc_tiers *t;
	gpc *c;

	t = begin(&c, &o);
	tiers_fill(c, ram, 1, 40, 8);
	b = tiers_block_below(c, 8);
	__atomic_store_n(&sync_error, 1, __ATOMIC_SEQ_CST);
	is_int(gpc_drop(c, &b, 1, NULL, 0, 500), -ETIMEDOUT,
	       "a drop that cannot be synced is not acknowledged");
	is_int(tiers_block_below(c, 8), -1, "the block is gone from the index all the same");
	__atomic_store_n(&sync_error, 0, __ATOMIC_SEQ_CST);
	tiers_finish(c, t, "no sync");
}

static int body(void)
{
	test_drop();
	test_last_change();
	test_clears();
	test_tag();
	test_cleared_meanwhile();
	test_clear_under_write();
	test_drop_under_write();
	test_clear_under_read();
	test_ram_goes();
	test_refused();
	test_no_sync();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
