/* SPDX-License-Identifier: Apache-2.0 */
/* Lookups and matches captured in a CUDA graph: replayed while the table changes, and
 * after its mirror was replaced by another writer's.
 * Tests: lib/bytes/device/cuda_peer.c kernels/lookup.cu kernels/match.cu */
#include "t/lib/mirrors.h"

enum { KEYS = 64, SEQS = 4 };

static struct {
	gpc *c, *e; /* the seat goes from one to the other */
	gpc_dev *d;
	struct lookup a;
	uint32_t *len;
	gpc_block *matched;
	cudaGraphExec_t graph;
	gpc_key key[KEYS];
} g;

static gpc *writer_now;

/* Everything but the section's ends. */
static void launches(void)
{
	must(gpc_dev_lookup(g.d, 0, g.a.keys, KEYS, g.a.blocks, g.a.stream));
	must(gpc_dev_match(g.d, 0, g.a.keys, g.a.start, SEQS, g.a.len, g.matched, g.a.stream));
}

static cudaGraphExec_t instance(cudaGraph_t graph)
{
	cudaGraphExec_t ret = NULL;

	device_must(cudaGraphInstantiateWithFlags(&ret, graph, 0));
	device_must(cudaGraphDestroy(graph));
	return ret;
}

static cudaGraphExec_t capture(enum cudaStreamCaptureMode mode)
{
	int s = must(gpc_dev_enter(g.d));
	cudaGraph_t graph;

	device_must(cudaStreamBeginCapture(g.a.stream, mode));
	launches();
	device_must(cudaStreamEndCapture(g.a.stream, &graph));
	must(gpc_dev_leave(g.d, s, g.a.stream));
	return instance(graph);
}

static void replay(void)
{
	int s = must(gpc_dev_enter(g.d));

	device_must(cudaGraphLaunch(g.graph, g.a.stream));
	must(gpc_dev_leave(g.d, s, g.a.stream));
	must(gpc_dev_wait(g.d, g.a.stream, 10000));
}

/* Replayed, and compared with the host. */
static bool right(void)
{
	static const uint32_t start[SEQS + 1] = { 0, KEYS / 2, KEYS / 2, KEYS - 3, KEYS };
	gpc_block host[KEYS], dev[KEYS], mhost[KEYS], mdev[KEYS];
	uint32_t want[SEQS], len[SEQS];

	memset(mhost, 0x5a, sizeof(mhost));
	device_put(g.a.start, start, sizeof(start));
	device_put(g.matched, mhost, sizeof(mhost));
	must(gpc_lookup(g.c, 0, g.key, KEYS, host, GPC_QUIET));
	must(gpc_match(g.c, 0, g.key, start, SEQS, want, mhost, GPC_QUIET));
	replay();
	device_get(dev, g.a.blocks, sizeof(dev));
	device_get(len, g.a.len, sizeof(len));
	device_get(mdev, g.matched, sizeof(mdev));
	return !memcmp(dev, host, sizeof(host)) && !memcmp(len, want, sizeof(want)) &&
	       !memcmp(mdev, mhost, sizeof(mhost));
}

static void hand_over(void)
{
	must(gpc_writer_drop(writer_now));
	writer_now = writer_now == g.c ? g.e : g.c;
	must(gpc_writer_take(writer_now, 0, 0));
}

/* Chains come and go, and the keys asked for change, too. */
static void change(uint32_t i)
{
	gpc_block b;

	mirror_chain(writer_now, 1 + i % 5 * 20, 20);
	b = find(writer_now, 1 + i * 7 % 100);
	if (b >= 0)
		must(gpc_drop(writer_now, &b, 1, NULL, 0, -1));
	mirror_keys(writer_now, 1 + i % 40, KEYS, g.key);
	ask_put(&g.a, g.key, KEYS);
	mirror_sync(writer_now);
}

static void test_replay(void)
{
	uint32_t i, bad = 0;
	struct gpc_stats before, after;

	for (i = 0; i < 100; i++) {
		change(i);
		bad += !right();
	}
	is_int(bad, 0, "replayed a hundred times while the table changes");
	before = stats_of(g.c, -1);
	replay();
	after = stats_of(g.c, -1);
	is_int(after.lookups - before.lookups, 2 * KEYS, "replays are counted");
	is_int(after.hit_vram - before.hit_vram + after.miss - before.miss, 2 * KEYS,
	       "hits and misses");
}

static void test_replaced(void)
{
	uint32_t i, bad = 0, stale = 0;

	for (i = 0; i < 12; i++) {
		must(gpc_writer_drop(writer_now));
		stale += gpc_dev_enter(g.d) == -ESTALE;
		must(gpc_writer_take(writer_now, 0, 0));
		hand_over();
		change(i);
		bad += !right();
	}
	is_int(stale, 12, "without a writer there is no section to replay in");
	is_int(bad, 0, "replayed in the mirror of each new writer");
}

/* Between enter and the launch another thread may adopt a newer mirror. */
static void test_between(void)
{
	gpc_block host[KEYS], dev[KEYS];
	int s, s2;

	change(3);
	must(gpc_lookup(g.c, 0, g.key, KEYS, host, GPC_QUIET));
	s = must(gpc_dev_enter(g.d));
	hand_over();
	s2 = must(gpc_dev_enter(g.d));
	device_must(cudaGraphLaunch(g.graph, g.a.stream));
	must(gpc_dev_leave(g.d, s, g.a.stream));
	must(gpc_dev_leave(g.d, s2, g.a.stream));
	must(gpc_dev_wait(g.d, g.a.stream, 10000));
	device_get(dev, g.a.blocks, sizeof(dev));
	ok(!memcmp(host, dev, sizeof(host)), "a mirror that came between enter and launch");
}

/* A capture that forbids what may wait, in all threads; the library still replaces
 * mirrors. */
static void *replace_meanwhile(void *arg)
{
	int s;

	(void)arg;
	device_use();
	hand_over();
	s = must(gpc_dev_enter(g.d));
	must(gpc_dev_leave(g.d, s, NULL));
	return NULL;
}

static void test_during_capture(void)
{
	cudaGraph_t graph = NULL;
	cudaError_t e;
	pthread_t t;
	int s = must(gpc_dev_enter(g.d));

	device_must(cudaStreamBeginCapture(g.a.stream, cudaStreamCaptureModeGlobal));
	must(gpc_dev_lookup(g.d, 0, g.a.keys, KEYS, g.a.blocks, g.a.stream));
	if (pthread_create(&t, NULL, replace_meanwhile, NULL))
		bail("no thread");
	pthread_join(t, NULL);
	must(gpc_dev_match(g.d, 0, g.a.keys, g.a.start, SEQS, g.a.len, g.matched, g.a.stream));
	e = cudaStreamEndCapture(g.a.stream, &graph);
	must(gpc_dev_leave(g.d, s, g.a.stream));
	if (!ok(e == cudaSuccess, "a mirror is replaced during a capture: %s", cudaGetErrorName(e)))
		return;
	device_must(cudaGraphExecDestroy(g.graph));
	g.graph = instance(graph);
	change(5);
	ok(right(), "what was captured is replayed");
}

static void test_bad_capture(void)
{
	static gpc_key host_key;
	cudaGraph_t graph;
	int s = must(gpc_dev_enter(g.d));

	device_must(cudaStreamBeginCapture(g.a.stream, cudaStreamCaptureModeThreadLocal));
	refused(gpc_dev_lookup(g.d, 0, &host_key, 1, g.a.blocks, g.a.stream), EINVAL,
		"host memory, in a capture");
	ok(gpc_dev_wait(g.d, g.a.stream, 0) < 0, "nor is a capture waited for");
	if (cudaStreamEndCapture(g.a.stream, &graph) == cudaSuccess)
		device_must(cudaGraphDestroy(graph));
	cudaGetLastError();
	must(gpc_dev_leave(g.d, s, g.a.stream));
	ok(right(), "the stream works afterwards");
}

static int body(void)
{
	device_need_gpu();
	g.c = writer_now = mirror_cache(100, 0);
	g.e = cache_attach(0, 0);
	g.d = mirror_open(g.c);
	g.a = ask_new(g.d, KEYS, SEQS);
	g.matched = device_alloc(KEYS * sizeof(gpc_block));
	change(0);
	g.graph = capture(cudaStreamCaptureModeGlobal);
	test_replay();
	test_replaced();
	test_between();
	device_must(cudaGraphExecDestroy(g.graph));
	g.graph = capture(cudaStreamCaptureModeThreadLocal);
	ok(right(), "captured again, in another mode");
	test_during_capture();
	test_bad_capture();
	device_must(cudaGraphExecDestroy(g.graph));
	device_free(g.matched);
	ask_free(&g.a);
	must(gpc_dev_close(g.d));
	clean(g.c, "graphs");
	must(gpc_close(g.e));
	cache_end(g.c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(100, body, cache_dir_remove);
}
