/* SPDX-License-Identifier: Apache-2.0 */
/* What comes up from disk is read into the reserved slot of RAM itself: the system gets addresses
 * of the pool's memory, and no byte is copied from another place.
 * Tests: lib/tiers/steward/up.c lib/tiers/disk/io.c lib/tiers/steward/images.c */
#include "t/lib/below.h"

#include <pthread.h>
#include <sys/uio.h>

enum { IMAGE = 8192, BLOCKS = 8, MOST = 64 };

ssize_t __real_preadv(int fd, const struct iovec *v, int n, off_t at);
ssize_t __wrap_preadv(int fd, const struct iovec *v, int n, off_t at);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool watching;
static struct place {
	uint64_t offset, bytes;
	bool in_pool;
} seen[MOST];
static uint32_t nseen;
static off_t bad_at = -1; /* a read from there fails */

/* The file that is mapped at that address, and where in it. */
static struct place place_of(const void *at, uint64_t bytes)
{
	uint64_t from, to, offset, want = (uintptr_t)at;
	struct place p = { .bytes = bytes };
	char line[512];
	FILE *f = fopen("/proc/self/maps", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %*s %lx", &from, &to, &offset) == 3 && want >= from &&
		    want + bytes <= to) {
			p.offset = offset + want - from;
			p.in_pool = strstr(line, cache_name) != NULL;
		}
	if (f)
		fclose(f);
	return p;
}

ssize_t __wrap_preadv(int fd, const struct iovec *v, int n, off_t at)
{
	bool fails;
	int i;

	pthread_mutex_lock(&lock);
	fails = at == bad_at;
	for (i = 0; watching && i < n && nseen < MOST; i++)
		if (v[i].iov_len > 128) /* no header */
			seen[nseen++] = place_of(v[i].iov_base, v[i].iov_len);
	pthread_mutex_unlock(&lock);
	if (fails) {
		errno = EIO;
		return -1;
	}
	return __real_preadv(fd, v, n, at);
}

static void fail_at(off_t at)
{
	pthread_mutex_lock(&lock);
	bad_at = at;
	pthread_mutex_unlock(&lock);
}

static void watch(bool on)
{
	pthread_mutex_lock(&lock);
	watching = on;
	pthread_mutex_unlock(&lock);
}

static void store_image(uint8_t *to, uint64_t n)
{
	uint32_t i;

	for (i = 0; i < IMAGE; i++)
		to[i] = bytes_at(n, i);
}

static uint8_t *slot_at(gpc *c, gpc_block b)
{
	struct gpc_run run;
	uint64_t size;
	void *base;

	if (must(gpc_pool_memory_get(c, GPC_POOL(b), NULL, &run, 1)) != 1)
		bail("one run");
	must(gpc_pool_map(c, GPC_POOL(b), 0, &base, &size));
	return (uint8_t *)base + run.offset + (uint64_t)GPC_SLOT(b) * run.slot_stride;
}

/* Chains of BLOCKS, each with a copy below before the next one comes. */
static void fill(gpc *c, int ram)
{
	gpc_block b[BLOCKS];
	gpc_key k[BLOCKS + 1];
	uint32_t i, n;

	for (n = 1; n < 5 * BLOCKS; n += BLOCKS) {
		chain_keys(c, n, BLOCKS, k);
		must(gpc_reserve(c, ram, BLOCKS, b, NULL, 0, 60000));
		for (i = 0; i < BLOCKS; i++)
			store_image(slot_at(c, b[i]), n + i);
		must(gpc_publish(c, k, k + 1, b, BLOCKS, NULL, 0, -1));
		must(gpc_release(c, b, BLOCKS));
		must(gpc_tiers_sync(c, TIERS_MS));
	}
}

static bool was_read_into(const void *at)
{
	uint64_t offset = place_of(at, IMAGE).offset;
	uint32_t i;

	for (i = 0; i < nseen; i++)
		if (seen[i].in_pool && seen[i].offset == offset && seen[i].bytes == IMAGE)
			return true;
	return false;
}

/* One of its blocks cannot be read: the prompt ends before it, and nothing stands in RAM for it. */
static void one_fails(gpc *c, int ram)
{
	gpc_block b[BLOCKS];
	gpc_key k[BLOCKS + 1];
	uint8_t want[IMAGE];
	int i, n, right = 0;

	chain_keys(c, 1 + BLOCKS, BLOCKS, k);
	fail_at(tiers_find_image(BLOCKS + 3));
	is_int(gpc_prefetch(c, ram, k + 1, BLOCKS, 0, 5000), 2,
	       "where a block cannot be read those before it come");
	is_int(gpc_lookup(c, GPC_SPACE(0), k + 3, 1, b, 0), 0, "it does not");
	is_int((int)tier_of(c).errors, 1, "it is counted");
	fail_at(-1);
	is_int(gpc_prefetch(c, ram, k + 1, BLOCKS, 0, 5000), BLOCKS,
	       "and when it can be read, all come");
	n = must(gpc_acquire(c, GPC_SPACE(0), k + 1, BLOCKS, b, 0));
	for (i = 0; i < n; i++) {
		store_image(want, (uint64_t)(1 + BLOCKS + i));
		right += !memcmp(slot_at(c, b[i]), want, IMAGE);
	}
	is_int(right, BLOCKS, "with every byte");
	must(gpc_release(c, b, (uint32_t)n));
}

static int body(void)
{
	gpc *c = tiers_cache(1024);
	struct gpc_pool p = { .size = sizeof(p), .kind = GPC_RAM, .blocks = 16, .demote_to = -1 };
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = IMAGE };
	int ram = must(gpc_pool_make(c, &p, &m, -1));
	int straight = 0, right = 0;
	struct gpc_tiers_options o;
	gpc_block b[BLOCKS];
	gpc_key k[BLOCKS + 1];
	uint8_t want[IMAGE], *at;
	gpc_tiers *t;
	uint32_t i;

	tiers_file();
	o = tiers_options(64);
	o.ahead = 8;
	t = tiers_open(&o);
	fill(c, ram);
	chain_keys(c, 1, BLOCKS, k);
	is_int(gpc_acquire(c, 0, k + 1, BLOCKS, b, 0), 0, "a chain is below RAM alone");
	watch(true);
	is_int(gpc_prefetch(c, ram, k + 1, BLOCKS, 0, 5000), BLOCKS, "and is brought");
	watch(false);
	is_int(gpc_acquire(c, 0, k + 1, BLOCKS, b, 0), BLOCKS, "into RAM");
	for (i = 0; i < BLOCKS; i++) {
		at = slot_at(c, b[i]);
		store_image(want, 1 + i);
		straight += was_read_into(at);
		right += !memcmp(at, want, IMAGE);
	}
	is_int(straight, BLOCKS, "the system was given the memory of its slots");
	is_int(right, BLOCKS, "which have every byte");
	for (i = 0; i < nseen && seen[i].in_pool; i++)
		;
	is_int((int)i, BLOCKS, "and no other memory");
	must(gpc_release(c, b, BLOCKS));
	one_fails(c, ram);
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
