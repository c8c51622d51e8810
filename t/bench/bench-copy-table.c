/* SPDX-License-Identifier: Apache-2.0 */
/* bench-copy-table.c - copies by the device's table (bytes/device/bytes.h), without a cache: between host
 * and device, alone and beside a kernel; within the device, and to another one. */
#include "config.h"

#include "bench-copy.h"

#define SLOTS   512u
#define LARGEST 65536u
#define POOL    ((size_t)SLOTS * PIECES * LARGEST)

enum { WHOLE, GPC, BATCH, WAYS };
enum { H2D, D2H };

static uint8_t *ram, *vram, *vram2;
static uint8_t uuid[16];
static uint32_t slot[2][BLOCKS]; /* in RAM, in VRAM */
static cudaStream_t stream;
static cudaEvent_t from, to;

/* ---- the blocks ---- */

static void draw_slots(uint32_t *ret, uint64_t seed)
{
	uint32_t all[SLOTS], i;

	for (i = 0; i < SLOTS; i++)
		all[i] = i;
	shuffle(all, SLOTS, seed);
	memcpy(ret, all, BLOCKS * sizeof(*ret));
}

static uint8_t *image_at(uint32_t i, uint64_t piece)
{
	return ram + slot[0][i] * PIECES * piece;
}

static uint8_t *piece_at(uint8_t *pool, uint32_t i, uint32_t layer, uint64_t piece)
{
	return pool + layer * SLOTS * piece + slot[1][i] * piece;
}

/* As the planner emits them: rows of an image to rows that are a layer apart. */
static void make_ops(struct copy_op *op, int direction, uint64_t piece)
{
	uint32_t i;

	for (i = 0; i < BLOCKS; i++) {
		uint8_t *host = image_at(i, piece), *dev = piece_at(vram, i, 0, piece);
		bool in = direction == H2D;

		op[i] = (struct copy_op){ .to = in ? dev : host,
					  .from = in ? host : dev,
					  .width = piece,
					  .rows = PIECES,
					  .slices = 1,
					  .to_pitch = in ? SLOTS * piece : piece,
					  .from_pitch = in ? piece : SLOTS * piece };
	}
}

/* ---- three ways ---- */

static void copy_whole(int direction, uint64_t piece)
{
	uint32_t i;

	for (i = 0; i < BLOCKS; i++) {
		uint8_t *host = image_at(i, piece);
		uint8_t *dev = vram + slot[1][i] * PIECES * piece;

		CK(cudaMemcpyAsync(direction == H2D ? dev : host, direction == H2D ? host : dev,
				   PIECES * piece, cudaMemcpyDefault, stream));
	}
}

static void copy_gpc(int direction, uint64_t piece)
{
	struct copy_op op[BLOCKS];
	uint32_t done;

	make_ops(op, direction, piece);
	CK(device_bytes_cuda.copy(uuid, op, BLOCKS, stream, &done));
}

#if CUDART_VERSION >= 12080
static void *batch_to[BLOCKS * PIECES];
static const void *batch_from[BLOCKS * PIECES];
static size_t batch_bytes[BLOCKS * PIECES];

static void copy_batch(int direction, uint64_t piece)
{
	struct cudaMemcpyAttributes a = { .srcAccessOrder = cudaMemcpySrcAccessOrderStream };
	uint32_t i, l, n = 0;
	size_t first = 0;

	for (i = 0; i < BLOCKS; i++)
		for (l = 0; l < PIECES; l++, n++) {
			uint8_t *host = image_at(i, piece) + l * piece;
			uint8_t *dev = piece_at(vram, i, l, piece);

			batch_to[n] = direction == H2D ? dev : host;
			batch_from[n] = direction == H2D ? host : dev;
			batch_bytes[n] = piece;
		}
#if CUDART_VERSION >= 13000
	CK(cudaMemcpyBatchAsync(batch_to, batch_from, batch_bytes, n, &a, &first, 1, stream));
#else
	CK(cudaMemcpyBatchAsync(batch_to, (void **)batch_from, batch_bytes, n, &a, &first, 1,
				&(size_t){ 0 }, stream));
#endif
}
#else
static void copy_batch(int direction, uint64_t piece)
{
	uint32_t i, l;

	for (i = 0; i < BLOCKS; i++)
		for (l = 0; l < PIECES; l++) {
			uint8_t *host = image_at(i, piece) + l * piece;
			uint8_t *dev = piece_at(vram, i, l, piece);

			CK(cudaMemcpyAsync(direction == H2D ? dev : host,
					   direction == H2D ? host : dev, piece, cudaMemcpyDefault,
					   stream));
		}
}
#endif

static void (*const way[WAYS])(int, uint64_t) = { copy_whole, copy_gpc, copy_batch };

/* Microseconds between events around it. */
static double once(void (*copy)(int, uint64_t), int direction, uint64_t piece)
{
	float ms;

	CK(cudaEventRecord(from, stream));
	copy(direction, piece);
	CK(cudaEventRecord(to, stream));
	CK(cudaEventSynchronize(to));
	CK(cudaEventElapsedTime(&ms, from, to));
	return (double)ms * 1e3;
}

/* ---- are the bytes right? ---- */

static void fill(uint8_t *p, size_t n, uint64_t seed)
{
	uint64_t *w = (uint64_t *)(void *)p;
	size_t i;

	for (i = 0; i < n / 8; i++)
		w[i] = (i + seed) * 0x9e3779b97f4a7c15u ^ i >> 7;
}

static void compare_pieces(uint8_t *pool, uint64_t piece, const char *what)
{
	static uint8_t got[LARGEST];
	uint32_t i, l;

	for (i = 0; i < BLOCKS; i += 3)
		for (l = 0; l < PIECES; l += 7) {
			CK(cudaMemcpy(got, piece_at(pool, i, l, piece), piece, cudaMemcpyDefault));
			if (memcmp(got, image_at(i, piece) + l * piece, piece))
				wrong("%s, pieces of %llu: block %u, piece %u", what,
				      (unsigned long long)piece, i, l);
		}
}

static void verify(uint64_t piece)
{
	uint32_t i;

	fill(ram, SLOTS * PIECES * piece, piece);
	CK(cudaMemset(vram, 0xa5, SLOTS * PIECES * piece));
	CK(cudaDeviceSynchronize());
	once(copy_gpc, H2D, piece);
	compare_pieces(vram, piece, "to the device");
	memset(ram, 0, SLOTS * PIECES * piece);
	once(copy_gpc, D2H, piece);
	compare_pieces(vram, piece, "to the host");
	for (i = 0; i < PIECES * piece; i++) /* and they are what was put there */
		if (image_at(0, piece)[i])
			return;
	wrong("to the host, pieces of %llu: nothing came", (unsigned long long)piece);
}

/* ---- host and device ---- */

static const struct mark {
	uint64_t piece;
	double limit, batch[2];
} marks[] = {
	{ 4096, 0.90, { 6, 3.8 } },
	{ 16384, 0.80, { 1.9, 1.8 } },
	{ 32768, 0.96, { 1.5, 1.8 } },
	{ 65536, 0.97, { 1.25, 1.4 } },
};

/* The rows of the three ways; beside: of another one, which is the limit then.  late: it was not
 * beside the kernel. */
static void rate_rows(struct times t[WAYS], const struct mark *m, int direction, struct row *idle,
		      bool late, const char *name)
{
	double bytes = (double)BLOCKS * PIECES * (double)m->piece;
	const char *beside = idle ? ", beside a kernel that fills the GPU" : "";
	struct row whole = rate_of(&t[WHOLE], bytes), ours = rate_of(&t[GPC], bytes);
	struct row batch = rate_of(&t[BATCH], bytes), times = ours;

	row_limit(&ours, idle ? idle : &whole);
	row_limit(&batch, &whole);
	row_limit(&times, &batch);
	if (late)
		ours.ratio = 0;
	ours.judge = RATIO_AT_LEAST;
	ours.mark = idle ? 0.95 : m->limit;
	times.judge = RATIO_AT_LEAST;
	times.mark = m->batch[direction];
	row_add(&whole, "%s%s: whole blocks, contiguous", name, beside);
	row_add(&ours, "%s%s: gpc%s", name, beside, idle ? "; limit: gpc idle" : "");
	row_add(&batch, "%s%s: cudaMemcpyBatchAsync, a piece each", name, beside);
	if (idle)
		return;
	row_add(&times, "%s: gpc; limit: cudaMemcpyBatchAsync", name);
	/* whoever is at the limit cannot do more */
	if (times.ratio < times.mark)
		note("%s: the limit itself is %.2f times cudaMemcpyBatchAsync", name,
		     whole.value[0] / batch.value[0]);
}

/* All ways in turns.  With busy_us a kernel fills the GPU that long, from before each copy begins;
 * returns how many copies it did not outlast. */
static int rounds(struct times t[WAYS], int direction, uint64_t piece, uint32_t busy_us)
{
	int r, w, n = quick ? 5 : busy_us ? 11 : 25, ended = 0;

	for (w = 0; w < WAYS; w++)
		forget(&t[w]);
	for (r = 0; r < n; r++)
		for (w = 0; w < WAYS; w++) {
			double us;

			if (busy_us) {
				CK(busy_spin(busy_us));
				sleep_us(300); /* it runs */
			}
			us = once(way[w], direction, piece);
			if (busy_us && cudaStreamQuery(NULL) == cudaSuccess)
				ended++;
			cudaGetLastError(); /* not ready: no error of what comes */
			CK(cudaDeviceSynchronize());
			add_us(&t[w], us);
		}
	if (ended)
		note("%d of %d copies ended after the kernel beside them", ended, n * WAYS);
	return ended;
}

static void bench_pieces(const struct mark *m)
{
	static const char *const direction[] = { "H2D", "D2H" };
	static struct times t[WAYS];
	double bytes = (double)BLOCKS * PIECES * (double)m->piece;
	struct row idle;
	char name[80];
	int d, late;

	verify(m->piece);
	for (d = H2D; d <= D2H; d++) {
		snprintf(name, sizeof(name), "%s, pieces of %llu KiB", direction[d],
			 (unsigned long long)m->piece / 1024);
		rounds(t, d, m->piece, 0);
		rate_rows(t, m, d, NULL, false, name);
		idle = rate_of(&t[GPC], bytes);
		late = rounds(t, d, m->piece, 40000);
		rate_rows(t, m, d, &idle, late > 0, name);
	}
}

/* ---- within one GPU, and between two ---- */

static void copy_pairs(int unused, uint64_t piece)
{
	struct copy_shape s = { vram2, vram,   piece,         piece,
				piece, PIECES, SLOTS * piece, SLOTS * piece };
	struct copy_pair pair[BLOCKS];
	uint32_t i;

	(void)unused;
	for (i = 0; i < BLOCKS; i++)
		pair[i] = (struct copy_pair){ slot[1][i], slot[1][i] };
	CK(device_bytes_cuda.copy_pairs(uuid, &s, 1, pair, BLOCKS, stream));
}

static void copy_device(int unused, uint64_t piece)
{
	(void)unused;
	CK(cudaMemcpyAsync(vram2, vram, BLOCKS * PIECES * piece, cudaMemcpyDefault, stream));
}

static void bench_within(uint64_t piece, double mark)
{
	struct times t = { 0 }, limit = { 0 };
	double bytes = (double)BLOCKS * PIECES * (double)piece;
	struct row row, whole;
	int r;

	verify(piece);
	CK(cudaMemset(vram2, 0, POOL));
	CK(cudaDeviceSynchronize());
	once(copy_pairs, 0, piece);
	compare_pieces(vram2, piece, "within the device");
	for (r = 0; r < (quick ? 5 : 25); r++) {
		add_us(&limit, once(copy_device, 0, piece));
		add_us(&t, once(copy_pairs, 0, piece));
	}
	whole = rate_of(&limit, bytes);
	row = rate_of(&t, bytes);
	row_limit(&row, &whole);
	row.judge = mark > 0 ? RATIO_AT_LEAST : NO_MARK;
	row.mark = mark;
	row_add(&whole, "within the GPU, %u KiB: cudaMemcpyAsync, contiguous",
		(unsigned)piece / 1024);
	row_add(&row, "within the GPU, pieces of %u KiB: gpc's kernel", (unsigned)piece / 1024);
	forget(&t);
	forget(&limit);
}

static uint8_t *peer;

static void peer_whole(int unused, uint64_t piece)
{
	uint32_t i;

	(void)unused;
	for (i = 0; i < BLOCKS; i++)
		CK(cudaMemcpyAsync(peer + slot[0][i] * PIECES * piece,
				   vram + slot[1][i] * PIECES * piece, PIECES * piece,
				   cudaMemcpyDefault, stream));
}

static void peer_gpc(int unused, uint64_t piece)
{
	struct copy_op op[BLOCKS];
	uint32_t i, done;

	(void)unused;
	for (i = 0; i < BLOCKS; i++)
		op[i] = (struct copy_op){ .to = piece_at(peer, i, 0, piece),
					  .from = piece_at(vram, i, 0, piece),
					  .width = piece,
					  .rows = PIECES,
					  .slices = 1,
					  .to_pitch = SLOTS * piece,
					  .from_pitch = SLOTS * piece };
	CK(device_bytes_cuda.copy(uuid, op, BLOCKS, stream, &done));
}

static void bench_peer(int device, uint64_t piece)
{
	struct times t = { 0 }, limit = { 0 };
	double bytes = (double)BLOCKS * PIECES * (double)piece;
	struct cudaDeviceProp p;
	struct copy_limits l;
	struct row row, whole;
	int r;

	CK(cudaSetDevice(!device));
	CK(cudaMalloc((void **)&peer, POOL));
	CK(cudaDeviceSynchronize());
	CK(cudaGetDeviceProperties(&p, !device));
	CK(cudaSetDevice(device));
	CK(device_bytes_cuda.limits((uint8_t *)p.uuid.bytes, uuid, &l));
	verify(piece);
	once(peer_gpc, 0, piece);
	compare_pieces(peer, piece, "to the other GPU");
	for (r = 0; r < (quick ? 5 : 25); r++) {
		add_us(&limit, once(peer_whole, 0, piece));
		add_us(&t, once(peer_gpc, 0, piece));
	}
	whole = rate_of(&limit, bytes);
	row = rate_of(&t, bytes);
	row_limit(&row, &whole);
	row.judge = piece == 65536 ? RATIO_AT_LEAST : NO_MARK;
	row.mark = 0.95;
	row_add(&whole, "GPU to GPU, %u KiB: whole blocks, contiguous", (unsigned)piece / 1024);
	row_add(&row, "GPU to GPU, pieces of %u KiB: gpc", (unsigned)piece / 1024);
	forget(&t);
	forget(&limit);
	CK(cudaFree(peer));
}

/* ---- all ---- */

static void begin(int device)
{
	struct cudaDeviceProp p;
	struct copy_limits l;
	double until;

	CK(cudaSetDevice(device));
	CK(cudaGetDeviceProperties(&p, device));
	memcpy(uuid, p.uuid.bytes, 16);
	CK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CK(cudaEventCreate(&from));
	CK(cudaEventCreate(&to));
	ram = shared_ram(POOL);
	CK(device_bytes_cuda.pin(ram, POOL / 2));
	CK(device_bytes_cuda.pin(ram + POOL / 2, POOL / 2));
	CK(cudaMalloc((void **)&vram, POOL));
	CK(cudaMalloc((void **)&vram2, POOL));
	CK(device_bytes_cuda.limits(uuid, NULL, &l));
	note("pitches up to %llu MiB", (unsigned long long)l.max_pitch >> 20);
	draw_slots(slot[0], 1);
	draw_slots(slot[1], 2);
	for (until = now_us() + 500000; now_us() < until;) { /* link and clocks wake up */
		once(copy_whole, H2D, 65536);
		once(copy_whole, D2H, 65536);
	}
}

static void free_all(void)
{
	device_bytes_cuda.unpin(ram);
	device_bytes_cuda.unpin(ram + POOL / 2);
	CK(cudaFree(vram));
	CK(cudaFree(vram2));
}

void bench_by_table(int device, bool pieces, bool within)
{
	int gpus = 0;
	size_t i;

	begin(device);
	for (i = 0; pieces && i < sizeof(marks) / sizeof(marks[0]); i++)
		bench_pieces(&marks[i]);
	if (within) {
		bench_within(4096, 0);
		bench_within(16384, 0);
		bench_within(65536, 0.78);
		CK(cudaGetDeviceCount(&gpus));
	}
	for (i = 0; gpus > 1 && i < 3; i++)
		bench_peer(device ? 1 : 0, (uint64_t[]){ 4096, 16384, 65536 }[i]);
	free_all();
}
