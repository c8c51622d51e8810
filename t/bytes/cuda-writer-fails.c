/* SPDX-License-Identifier: Apache-2.0 */
/* A writer whose CUDA calls fail, each one in turn: it has no mirror then, or retires
 * the one it had, says why in CUDA's own words, keeps nothing, and the index goes on.
 * Tests: lib/bytes/device/cuda_mirror.c lib/bytes/device/cuda.c lib/bytes/device/cuda_name.c */
#include "t/lib/mirrors.h"

#include "t/gpu/held.h"

#include "bytes/device/cuda.h"

#define TEXT "unknown error" /* CUDA's, for what is injected */
#define MOST 200             /* calls; more are a loop that does not end */

enum { KEYS = 8 };

static char heard[600];
static gpc_key key[KEYS];
static struct held before;

static void hear(void *arg, int level, const char *text)
{
	size_t n = strlen(heard);

	(void)arg;
	if (level <= 3)
		snprintf(heard + n, sizeof(heard) - n, "%s; ", text);
}

/* Without a writer. */
static gpc *cache_idle(uint32_t max_blocks)
{
	struct gpc_config cfg = cache_config(KEYS, 0);
	struct gpc_attach_options opt = { .size = sizeof(opt), .log = hear };
	gpc *c;

	cfg.devices = device_name();
	cfg.max_blocks = max_blocks;
	cache_thread = false;
	c = cache_make(&cfg, &opt);
	must(gpc_writer_drop(c));
	return c;
}

static size_t free_memory(void)
{
	size_t available, total;

	device_must(cudaMemGetInfo(&available, &total));
	return available;
}

static int open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

/* Did call n fail?  If not, there are not so many. */
static void fail_at(uint32_t n)
{
	heard[0] = 0;
	store_relaxed(&device_cuda_fail_at, n);
}

static bool has_failed(void)
{
	bool failed = !load_relaxed(&device_cuda_fail_at);

	store_relaxed(&device_cuda_fail_at, 0);
	return failed;
}

static bool host_works(gpc *c)
{
	gpc_block b[KEYS];
	int n;

	chain_make(c, 0, 1, KEYS, NULL);
	if (gpc_lookup(c, 0, key, KEYS, b, 0) != KEYS)
		return false;
	n = gpc_evict(c, 0, KEYS, b, GPC_TAKE, 5000);
	return n == KEYS && gpc_release(c, b, KEYS) == 0;
}

static bool device_works(gpc *c)
{
	gpc_dev *d = mirror_open(c);
	struct lookup a = ask_new(d, KEYS, 0);
	gpc_block b[KEYS];
	bool good;

	chain_make(c, 0, 1, KEYS, NULL);
	mirror_sync(c);
	ask_lookup(&a, 0, key, KEYS, b);
	good = b[0] == find(c, 1) && b[KEYS - 1] == find(c, KEYS) && b[0] >= 0;
	ask_free(&a);
	must(gpc_dev_close(d));
	return good;
}

/* ---- one call after the other ---- */

static void test_take(gpc *c)
{
	uint32_t n, bad = 0, without = 0, silent = 0, leaks = 0;
	bool failed;

	for (n = 1; n < MOST; n++) {
		fail_at(n);
		must(gpc_writer_take(c, 0, 0));
		failed = has_failed();
		without += info_of(c).mirrors == 0;
		/* the index that cannot be pinned: a mirror all the same, without
		 * chunks */
		if (failed && !info_of(c).mirrors)
			silent += !strstr(heard, TEXT);
		bad += !host_works(c) || (info_of(c).mirrors && !device_works(c));
		must(gpc_writer_drop(c));
		leaks += !held_is(&before);
		if (!failed)
			break;
	}
	ok(n > 10 && n < MOST, "a mirror is made by %u calls, each of which has failed", n - 1);
	ok(without >= n - 2, "%u times without a mirror", without);
	is_int(bad, 0, "the host's calls worked each time");
	is_int(silent, 0, "CUDA's text was in the log each time");
	is_int(leaks, 0, "and nothing was left");
}

static void test_flush(gpc *c)
{
	uint32_t n, bad = 0, leaks = 0, retired = 0, silent = 0, failed = 0;
	struct gpc_mirror m = { .size = sizeof(m) };

	for (n = 1; n <= 12; n++) { /* the last ones may be more than there are */
		must(gpc_writer_take(c, 0, 0));
		mirror_sync(c);
		fail_at(n);
		bad += !host_works(c);
		if (has_failed()) {
			must(gpc_mirror_get(c, 0, &m));
			failed++;
			retired += m.retired;
			silent += m.retired && !strstr(heard, TEXT);
			bad += gpc_mirror_sync(c, GPC_TICKET_ALL, 2000) != 0 || !host_works(c);
		}
		must(gpc_writer_drop(c));
		leaks += !held_is(&before);
	}
	ok(failed > 4, "%u calls of flushes have failed", failed);
	is_int(retired, failed, "each time the mirror is retired");
	is_int(bad, 0, "evictions went on");
	is_int(silent, 0, "CUDA's text was in the log");
	is_int(leaks, 0, "and nothing was left");
}

static void test_drop(gpc *c)
{
	uint32_t n, leaks = 0;
	bool failed = true;

	for (n = 1; n < MOST && failed; n++) {
		must(gpc_writer_take(c, 0, 0));
		fail_at(n);
		must(gpc_writer_drop(c));
		failed = has_failed();
		leaks += !held_is(&before);
	}
	ok(n > 2 && n < MOST, "%u calls when the seat is dropped", n - 2);
	is_int(leaks, 0, "failures leave nothing");
}

static void no_line(void *arg, const char *line)
{
	(void)arg;
	(void)line;
}

static void test_check(gpc *c)
{
	uint32_t n, bad = 0;
	bool failed = true;

	must(gpc_writer_take(c, 0, 0));
	chain_make(c, 0, 1, KEYS, NULL);
	mirror_sync(c);
	for (n = 1; n < MOST && failed; n++) {
		fail_at(n);
		bad += gpc_check(c, no_line, NULL) < 0;
		failed = has_failed();
	}
	ok(n > 2 && n < MOST, "%u calls of a check", n - 2);
	is_int(bad, 0, "what cannot be read once does not end a check");
	clean(c, "nothing was wrong");
	must(gpc_writer_drop(c));
	ok(held_is(&before), "and nothing was left");
}

/* ---- a mirror that does not fit ---- */

static void test_no_room(void)
{
	gpc *c = cache_idle(4u << 20);
	void *all[64];
	size_t bytes;
	int n = 0;

	mirror_keys(c, 1, KEYS, key);
	for (bytes = (size_t)64 << 30; bytes >= (size_t)2 << 20; bytes /= 2)
		while (n < 64 && free_memory() > bytes + ((size_t)8 << 20) &&
		       cudaMalloc(&all[n], bytes) == cudaSuccess)
			n++;
	cudaGetLastError();
	diag("%zu MiB are free", free_memory() >> 20);
	heard[0] = 0;
	must(gpc_writer_take(c, 0, 0));
	is_int(info_of(c).mirrors, 0, "a mirror that is larger than what is free");
	ok(strstr(heard, "out of memory"), "is none: %s", heard);
	ok(host_works(c), "the host's calls work");
	must(gpc_writer_drop(c));
	while (n--)
		device_must(cudaFree(all[n]));
	must(gpc_writer_take(c, 0, 0));
	is_int(info_of(c).mirrors, 1, "with room there is one");
	ok(device_works(c), "that works");
	must(gpc_writer_drop(c));
	ok(held_is(&before), "and nothing was left");
	cache_end(c);
}

static int body(void)
{
	size_t memory;
	int files;
	gpc *c;

	device_need_gpu();
	c = cache_idle(0);
	mirror_keys(c, 1, KEYS, key);
	must(gpc_writer_take(c, 0, 0)); /* whatever CUDA makes once */
	if (!device_works(c))
		bail("nothing works");
	must(gpc_writer_drop(c));
	before = held;
	files = open_files();
	memory = free_memory();
	test_take(c);
	test_flush(c);
	test_drop(c);
	test_check(c);
	ok(free_memory() + ((size_t)4 << 20) >= memory, "memory of the device: %zu KiB less",
	   (memory - free_memory()) >> 10);
	is_int(open_files(), files, "as many open files");
	cache_end(c);
	test_no_room();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
