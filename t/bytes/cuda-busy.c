/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU that is busy with something else: a process beside the writer, with which it
 * takes turns, so that flushes go by copies of whole chunks; or kernels of the writer's
 * own process that leave no room, so that a flush never ends and its mirror is given
 * up.
 * Tests: lib/bytes/device/cuda_flush.c kernels/scatter.cu */
#include "t/lib/mirrors.h"
#include "t/lib/lag.h"

#include "t/gpu/held.h"
#include "t/gpu/work.h"

#include <sys/mman.h>

enum { KEYS = 128, CHAIN = 8, ROUNDS = 300, TURN_NS = 20000000, LIMIT_US = 1000 };

static struct work_spin *spin;
static gpc_key key[KEYS];
static char heard[400];

static void hear(void *arg, int level, const char *text)
{
	(void)arg;
	if (level <= 3 && !heard[0])
		snprintf(heard, sizeof(heard), "%s", text);
}

static gpc *cache_heard(uint32_t blocks)
{
	struct gpc_config cfg = cache_config(blocks, 0);
	struct gpc_attach_options opt = { .size = sizeof(opt), .log = hear };

	heard[0] = 0;
	cfg.devices = device_name();
	cfg.max_blocks = 65536; /* a table of many chunks */
	return cache_make(&cfg, &opt);
}

static uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static struct work_spin *new_spin(void)
{
	struct work_spin *w = NULL;

	device_must(cudaHostAlloc((void **)&w, sizeof(*w), cudaHostAllocMapped));
	memset(w, 0, sizeof(*w));
	return w;
}

static bool right(gpc *c, struct lookup *a)
{
	gpc_block host[KEYS], dev[KEYS];

	must(gpc_lookup(c, 0, key, KEYS, host, GPC_QUIET));
	ask_lookup(a, 0, key, KEYS, dev);
	return !memcmp(host, dev, sizeof(host));
}

/* ---- a neighbour ---- */

static struct neighbour {
	uint32_t stop, turns;
} * beside; /* shared with it */
static pid_t neighbour_pid;

/* Kernels without a pause, two at a time on their way. */
static int neighbour(void)
{
	cudaStream_t stream[2];
	uint32_t i;

	device_use();
	for (i = 0; i < 2; i++)
		stream[i] = device_stream();
	for (i = 0; !load_acquire(&beside->stop); i++) {
		device_must(cudaStreamSynchronize(stream[i & 1]));
		device_must((cudaError_t)work_spin(NULL, TURN_NS, WORK_ALL, stream[i & 1]));
		store_release(&beside->turns, i);
	}
	device_must(cudaDeviceSynchronize());
	return 0;
}

/* Before this process uses CUDA. */
static void neighbour_begin(void)
{
	beside = mmap(NULL, sizeof(*beside), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (beside == MAP_FAILED)
		bail("no shared page");
	fflush(stdout);
	neighbour_pid = fork();
	if (neighbour_pid < 0)
		bail("fork failed");
	if (!neighbour_pid)
		_exit(neighbour());
}

static int compare(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* A chain takes the place of another; the median time of a sync, in microseconds. */
static uint32_t syncs(gpc *c, struct lookup *a, uint32_t n, uint32_t *wrong)
{
	static uint32_t us[ROUNDS];
	uint64_t from;
	uint32_t i;

	for (i = 0; i < n; i++) {
		mirror_chain(c, 1 + chance(KEYS / CHAIN) * CHAIN, CHAIN);
		from = now_us();
		mirror_sync(c);
		us[i] = (uint32_t)(now_us() - from);
		if (i % 10 == 9)
			*wrong += !right(c, a);
	}
	qsort(us, n, sizeof(us[0]), compare);
	diag("a sync: %u us at least, %u and %u at the first and last tenth, %u at most", us[0],
	     us[n / 10], us[n - n / 10], us[n - 1]);
	return us[n / 2];
}

static void test_neighbour(void)
{
	struct timespec pause = { .tv_nsec = 400000000 };
	uint32_t copies, wrong = 0, us;
	struct lookup a;
	gpc_dev *d;
	gpc *c;
	int status = -1;

	c = cache_heard(KEYS / 2);
	d = mirror_open(c);
	a = ask_new(d, KEYS, 0);
	mirror_keys(c, 1, KEYS, key);
	while (load_acquire(&beside->turns) < 3)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	held_copies = 0;
	us = syncs(c, &a, ROUNDS, &wrong);
	copies = held_copies;
	is_int(wrong, 0, "beside a busy neighbour the mirror is right");
	ok(copies > ROUNDS / 2, "most flushes are copies of chunks: %u copies in %d syncs", copies,
	   ROUNDS);
	ok(us < LIMIT_US, "they do not wait for its turns to end: a sync takes %u us", us);
	store_release(&beside->stop, 1);
	if (waitpid(neighbour_pid, &status, 0) != neighbour_pid)
		bail("no neighbour");
	is_int(status, 0, "the neighbour was well, too");
	nanosleep(&pause, NULL); /* chunks are copied for a while */
	mirror_sync(c);
	held_copies = 0;
	us = syncs(c, &a, ROUNDS, &wrong);
	is_int(wrong, 0, "alone, it is right as well");
	ok(held_copies < ROUNDS / 10, "and changes are scattered: %u copies", held_copies);
	diag("a sync alone: %u us, at the median", us);
	ask_free(&a);
	must(gpc_dev_close(d));
	clean(c, "a busy neighbour");
	cache_end(c);
}

/* ---- a flush that never ends ---- */

static void occupy(void *stream)
{
	uint32_t i;

	memset(spin, 0, sizeof(*spin));
	device_must((cudaError_t)work_spin(spin, 30000000000ull, WORK_ALL, stream));
	for (i = 0; i < spin->blocks; i++)
		while (!load_acquire(&spin->begun[i]))
			nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

static void after_it(gpc *c, gpc_dev *d)
{
	struct gpc_mirror m = { .size = sizeof(m) };
	gpc_block b[KEYS];

	must(gpc_mirror_get(c, 0, &m));
	ok(m.retired, "the mirror is retired");
	ok(strstr(heard, "does not end"), "the log says why: %s", heard);
	refused(gpc_dev_enter(d), ESTALE, "peers are sent to the host");
	is_int(gpc_mirror_sync(c, GPC_TICKET_ALL, 0), 0, "no sync waits for it");
	chain_make(c, 0, 1, CHAIN, NULL);
	is_int(gpc_lookup(c, 0, key, CHAIN, b, 0), CHAIN, "keys come");
	is_int(gpc_evict(c, 0, CHAIN, b, GPC_TAKE, 5000), CHAIN, "and go");
	must(gpc_release(c, b, CHAIN));
	settle(c);
	is_int(stats_of(c, -1).dying, 0, "nothing is held back");
}

static void test_never_ends(void)
{
	gpc *c, *e;
	gpc_dev *d;
	void *stream = device_stream();
	gpc_block b[4];

	spin = new_spin();
	c = cache_heard(CHAIN);
	d = mirror_open(c);
	mirror_keys(c, 1, KEYS, key);
	chain_make(c, 0, 101, CHAIN, NULL);
	mirror_sync(c);
	e = cache_attach(0, 0);
	occupy(stream);
	must(gpc_drop(c, &(gpc_block){ 0 }, 1, NULL, 0, -1));
	ok(mirror_lag(e) > 0, "a flush that does not end");
	refused(gpc_mirror_sync(c, GPC_TICKET_ALL, 50), ETIMEDOUT,
		"is waited for, but not longer than told");
	refused(gpc_reserve(c, 0, 1, b, NULL, 0, 50), ETIMEDOUT, "nor do ids come");
	is_int(gpc_mirror_sync(c, GPC_TICKET_ALL, 10000), 0, "until the mirror is given up");
	must(gpc_close(e));
	after_it(c, d);
	spin->stop = 1;
	device_must(cudaStreamSynchronize(stream));
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	is_int(must(gpc_dev_enter(d)) >= 0, 1, "the next writer makes a mirror anew");
	must(gpc_dev_close(d));
	device_stream_free(stream);
	device_must(cudaFreeHost(spin));
	clean(c, "a flush that did not end");
	cache_end(c);
}

static int body(void)
{
	device_need_gpu();
	neighbour_begin();
	test_neighbour();
	test_never_ends();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
