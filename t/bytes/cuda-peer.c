/* SPDX-License-Identifier: Apache-2.0 */
/* A peer, beside a writer in another process.  Its CUDA calls fail, each one in turn:
 * an error with CUDA's own text, the same call works when it is made again, nothing is
 * kept.  Its mirror is replaced while its kernels run, and no call waits for them.
 * Tests: lib/bytes/device/cuda_peer.c lib/bytes/device/cuda.c kernels/lookup.cu kernels/launch.h */
#include "t/gpu/worker.h"

#include "t/gpu/held.h"

#include "bytes/device/cuda.h"

#define TEXT     "unknown error" /* CUDA's, for what is injected */
#define MOST     200
#define REPLACED 4      /* times that the mirror is replaced */
#define SOON_US  500000 /* what does not wait is over long before */

enum { KEYS = 8 };
enum { GATE_MADE, GATE_REPLACE, GATE_REPLACED, GATE_END };

static struct {
	gpc *c;
	gpc_key *keys;
	gpc_block *blocks;
	uint32_t *start, *len;
	cudaStream_t stream;
	gpc_key key[KEYS];
	uint32_t failures, silent, wrong;
} peer;

static int writer(int me)
{
	struct gpc_config cfg = { .vram_blocks = KEYS, .max_peers = 4, .free_target = -1 };
	gpc *c = gpu_create(cfg, 0);
	gpc_key k[KEYS + 1];
	gpc_block b[KEYS];
	uint32_t i;

	must_be(gpc_writer_take(c, 0, 0), 0);

	for (i = 0; i <= KEYS; i++)
		k[i] = i ? crew_key(i) : crew_no_key;
	must_be(gpc_reserve(c, 0, KEYS, b, NULL, 0, -1), KEYS);
	must_be(gpc_publish(c, k, k + 1, b, KEYS, NULL, 0, -1), KEYS);
	must_be(gpc_mirror_sync(c, GPC_TICKET_ALL, 10000), 0);
	crew_open(GATE_MADE);
	for (i = 1; i <= REPLACED; i++) { /* by a mirror of the same writer's */
		crew_serve(c, GATE_REPLACE, i);
		must_be(gpc_writer_drop(c), 0);
		must_be(gpc_writer_take(c, 0, 0), 0);
		crew_open(GATE_REPLACED);
	}
	crew_serve(c, GATE_END, 1);
	must_be(crew_stats(c, -1).sections, 0);
	crew_check(c);
	gpc_close(c);
	return me;
}

/* ---- a call that fails is made again ---- */

static bool failed(int r)
{
	if (r >= 0)
		return false;
	peer.failures++;
	peer.silent += !strstr(gpc_last_error(), TEXT);
	return true;
}

#define twice(call)                                \
	do {                                       \
		((char *)gpc_last_error())[0] = 0; \
		if (failed(call))                  \
			peer.wrong += (call) < 0;  \
	} while (0)

static int enter(gpc_dev *d, int *section)
{
	return *section = gpc_dev_enter(d);
}

/* What a peer does with a device, from open to close. */
static void all_calls(const char *device)
{
	gpc_dev *d = NULL;
	int s = -1, i;

	memset(peer.blocks, 0x55, KEYS * sizeof(*peer.blocks));
	twice(gpc_dev_open(peer.c, device, &d));
	if (!d) {
		peer.wrong++;
		return;
	}
	twice(enter(d, &s));
	twice(gpc_dev_lookup(d, 0, peer.keys, KEYS, peer.blocks, peer.stream));
	twice(gpc_dev_match(d, 0, peer.keys, peer.start, 1, peer.len, NULL, peer.stream));
	twice(gpc_dev_leave(d, s, peer.stream));
	twice(gpc_dev_wait(d, peer.stream, 10000));
	for (i = 0; i < KEYS; i++)
		peer.wrong += peer.blocks[i] != i;
	peer.wrong += peer.len[0] != KEYS;
	peer.wrong += gpc_lookup(peer.c, 0, peer.key, KEYS, peer.blocks, 0) != KEYS;
	twice(gpc_dev_wait(d, peer.stream, -1));
	twice(gpc_dev_close(d));
}

static void test_every_call(void)
{
	uint32_t n, fired = 0, leaks = 0;
	struct held before;

	all_calls(device_name());
	is_int(peer.wrong + peer.failures, 0, "all works");
	before = held;
	for (n = 1; n < MOST; n++) {
		store_relaxed(&device_cuda_fail_at, n);
		all_calls(device_name());
		if (load_relaxed(&device_cuda_fail_at))
			break;
		fired++;
		if (!held_is(&before)) {
			leaks++;
			before = held;
			diag("call %u", n);
		}
	}
	store_relaxed(&device_cuda_fail_at, 0);
	ok(fired > 15 && n < MOST, "%u calls from open to close, each has failed", fired);
	ok(peer.failures + 4 >= fired, "%u errors", peer.failures);
	is_int(peer.silent, 0, "all with CUDA's text");
	is_int(peer.wrong, 0, "the call that is made again works, and the host's");
	is_int(leaks, 0, "and nothing is left");
	all_calls(device_name());
	is_int(peer.wrong, 0, "in the end all works");
}

/* A section that was never left: closing cannot launch its end. */
static void test_close(void)
{
	gpc_dev *d = NULL;
	int err;

	must_be(gpc_dev_open(peer.c, device_name(), &d), 0);
	need(gpc_dev_enter(d) >= 0, "enter: %s", gpc_last_error());
	must_be(gpc_dev_wait(d, peer.stream, 1000), 0);
	store_relaxed(&device_cuda_fail_at, 2); /* the launch, behind asking for the device */
	err = gpc_dev_close(d);
	store_relaxed(&device_cuda_fail_at, 0);
	if (ok(!err || strstr(gpc_last_error(), TEXT), "closing ends the section, or says why"))
		ok(!err || gpc_dev_close(d) == 0, "then it works the second time");
	else
		diag("%d: %s", err, gpc_last_error());
}

/* ---- nothing waits for kernels in flight ---- */

static uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* Enter, look up, leave, in a stream of its own; how long the slowest of these calls
 * took. */
static uint64_t slowest_call(gpc_dev *d)
{
	uint64_t t[4];
	int s;

	t[0] = now_us();
	s = gpc_dev_enter(d);
	need(s >= 0, "enter: %s", gpc_last_error());
	t[1] = now_us();
	must_be(gpc_dev_lookup(d, 0, peer.keys, KEYS, peer.blocks, peer.stream), 0);
	t[2] = now_us();
	must_be(gpc_dev_leave(d, s, peer.stream), 0);
	t[3] = now_us();
	return MAX(MAX(t[1] - t[0], t[2] - t[1]), t[3] - t[2]);
}

static void replace(uint32_t n)
{
	crew_open(GATE_REPLACE);
	crew_wait(GATE_REPLACED, n);
}

/* Kernels run, of ours and of others, while mirrors are imported and released. */
static void test_in_flight(void)
{
	struct work_spin *spin = gpu_pinned(sizeof(*spin));
	uint64_t us = 0, import = 0, after;
	cudaStream_t busy;
	gpc_dev *d = NULL;
	uint32_t i;
	int s;

	must_cuda(cudaStreamCreateWithFlags(&busy, cudaStreamNonBlocking));
	must_be(gpc_dev_open(peer.c, device_name(), &d), 0);
	us = slowest_call(d);
	must_be(gpc_dev_wait(d, peer.stream, 5000), 0);
	s = gpc_dev_enter(d);
	need(s >= 0, "enter: %s", gpc_last_error());
	must_cuda(work_spin(spin, 20000000000ull, 32, busy));
	must_be(gpc_dev_leave(d, s, busy), 0);
	must_be(gpc_dev_wait(d, busy, 0), -EAGAIN);
	for (i = 1; i <= REPLACED; i++) {
		replace(i);
		import = MAX(import, slowest_call(d));
		must_be(gpc_dev_wait(d, peer.stream, 1000), 0);
		us = MAX(us, slowest_call(d));
	}
	is_int(gpc_dev_wait(d, busy, 0), -EAGAIN, "a kernel is in flight all the while");
	ok(import < SOON_US, "it keeps no new mirror from being imported: %llu us",
	   (unsigned long long)import);
	ok(us < SOON_US, "nor a lookup from being launched: %llu us", (unsigned long long)us);
	is_int(peer.blocks[KEYS - 1], KEYS - 1, "which has its answer before it ends");
	store_release(&spin->stop, 1);
	must_be(gpc_dev_wait(d, busy, 10000), 0);
	spin->stop = 0;
	/* the section is over, but something else runs: now the old ones are released */
	must_cuda(work_spin(spin, 20000000000ull, 32, busy));
	for (i = 0, after = 0; i < 4; i++)
		after = MAX(after, slowest_call(d));
	ok(after < SOON_US, "and old ones are released beside it: %llu us",
	   (unsigned long long)after);
	is_int(gpc_dev_wait(d, busy, 0), -EAGAIN, "while it runs");
	store_release(&spin->stop, 1);
	must_cuda(cudaStreamSynchronize(busy));
	must_be(gpc_dev_close(d), 0);
	must_cuda(cudaStreamDestroy(busy));
	must_cuda(cudaFreeHost(spin));
}

/* ---- more than one GPU ---- */

static void other_device(int mine, int other)
{
	gpc_dev *d = NULL, *none = NULL;
	void *far = NULL, *stream;
	cudaStream_t s;
	char name[24];
	int section;

	snprintf(name, sizeof(name), "cuda:%d", other);
	is_int(gpc_dev_open(peer.c, name, &none), -ESTALE, "a GPU without a mirror");
	must_cuda(cudaSetDevice(other));
	must_cuda(cudaMalloc(&far, 4096));
	must_cuda(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	stream = s;
	must_be(gpc_dev_open(peer.c, device_name(), &d), 0);
	section = gpc_dev_enter(d);
	need(section >= 0, "enter: %s", gpc_last_error());
	is_int(gpc_dev_lookup(d, 0, peer.keys, KEYS, peer.blocks, stream), -EINVAL,
	       "a stream of another device");
	ok(strstr(gpc_last_error(), "(cuda"), "in CUDA's words: %s", gpc_last_error());
	is_int(gpc_dev_leave(d, section, stream), -EINVAL, "cannot end a section");
	is_int(gpc_dev_lookup(d, 0, far, 1, peer.blocks, peer.stream), -EINVAL,
	       "memory of another device");
	is_int(gpc_dev_lookup(d, 0, peer.keys, KEYS, peer.blocks, peer.stream), 0,
	       "while another device is current: the right ones work");
	is_int(gpc_dev_leave(d, section, peer.stream), 0, "to the end");
	is_int(gpc_dev_wait(d, peer.stream, 5000), 0, "of it");
	is_int(peer.blocks[KEYS - 1], KEYS - 1, "with the right answer");
	must_cuda(cudaGetDevice(&section));
	is_int(section, other, "and the current device is what it was");
	is_int(gpc_dev_close(d), 0, "closed");
	must_cuda(cudaFree(far));
	must_cuda(cudaStreamDestroy(s));
	must_cuda(cudaSetDevice(mine));
}

static void test_other_device(void)
{
	int n = 0, mine = 0;

	must_cuda(cudaGetDeviceCount(&n));
	must_cuda(cudaGetDevice(&mine));
	if (n < 2)
		skip(1, "there is one GPU");
	else
		other_device(mine, (mine + 1) % n);
}

static int body(void)
{
	pid_t pid;
	int i;

	device_need_gpu();
	crew_begin();
	pid = crew_fork(writer, 0);
	crew_wait(GATE_MADE, 1);
	peer.c = crew_attach("peer");
	device_use();
	must_cuda(cudaStreamCreateWithFlags(&peer.stream, cudaStreamNonBlocking));
	peer.keys = gpu_pinned(sizeof(peer.key));
	peer.blocks = gpu_pinned(KEYS * sizeof(gpc_block));
	peer.start = gpu_pinned(4 * sizeof(uint32_t));
	peer.len = peer.start + 2;
	peer.start[1] = KEYS;
	for (i = 0; i < KEYS; i++)
		peer.keys[i] = peer.key[i] = crew_key((uint64_t)i + 1);
	test_every_call();
	test_close();
	test_in_flight();
	test_other_device();
	must_be(gpc_close(peer.c), 0);
	crew_open(GATE_END);
	crew_join(pid, "the writer");
	return done_testing();
}

int main(void)
{
	scratch_make("t601");
	return tap_guard(120, body, scratch_remove);
}
