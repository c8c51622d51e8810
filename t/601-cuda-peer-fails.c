/* SPDX-License-Identifier: Apache-2.0 */
/* A peer whose CUDA calls fail, each one in turn: an error with CUDA's own text, the same call
 * works when it is made again, nothing is kept.  The writer is another process. */
#include "gpu/worker.h"

#include "gpu/held.h"

#include "device_cuda.h"

#define TEXT  "unknown error"            /* CUDA's, for what is injected */
#define MOST  200

enum { KEYS = 8 };
enum { GATE_MADE, GATE_END };

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
	struct gpc_config cfg = { .vram_blocks = KEYS, .max_peers = 4, .ahead = -1 };
	gpc *c = gpu_create(cfg, GPC_SERVE);
	gpc_key k[KEYS + 1];
	gpc_block b[KEYS];
	int i;

	for (i = 0; i <= KEYS; i++)
		k[i] = i ? crew_key((uint64_t)i) : crew_no_key;
	must_be(gpc_reserve(c, 0, KEYS, 0, b, NULL, 0, -1), KEYS);
	must_be(gpc_publish(c, k, k + 1, b, KEYS, 0, NULL, 0, NULL), KEYS);
	must_be(gpc_sync(c, 0, 10000), 0);
	crew_open(GATE_MADE);
	crew_wait(GATE_END, 1);
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

#define twice(call)                              \
	do {                                     \
		((char *)gpc_last_error())[0] = 0; \
		if (failed(call))                \
			peer.wrong += (call) < 0; \
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
	must(gpc_dev_enter(d) >= 0, "enter: %s", gpc_last_error());
	must_be(gpc_dev_wait(d, peer.stream, 1000), 0);
	store_relaxed(&device_cuda_fail_at, 2);  /* the launch, behind asking for the device */
	err = gpc_dev_close(d);
	store_relaxed(&device_cuda_fail_at, 0);
	if (ok(!err || strstr(gpc_last_error(), TEXT), "closing ends the section, or says why"))
		ok(!err || gpc_dev_close(d) == 0, "then it works the second time");
	else
		diag("%d: %s", err, gpc_last_error());
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
	must(section >= 0, "enter: %s", gpc_last_error());
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
