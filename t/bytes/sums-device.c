/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of images, by the table of bytes/device/bytes.h: of any layout, stored and compared, on the host
 * device, or on the GPU of GPC_TEST_DEVICE.  What the processor sums of the same bytes is the
 * truth.
 * Tests: lib/bytes/device/cuda_sum.c lib/bytes/device/host_sum.c kernels/sum.cu lib/bytes/payload/own_sums.c */
#include "t/lib/devices.h"

#include <errno.h>

#include "gpc_bytes.h"
#include "index/base/crc.h"
#include "bytes/device/bytes.h"
#include "bytes/device/device.h"

#define SLOTS 90u /* more than a launch takes */
#define AREA  ((size_t)48 << 20)

static const struct device_bytes *by;
static uint8_t uuid[16];
static uint8_t *vram, *copy;
static struct shm_trailer *trailer;
static uint64_t *bad;
static void *stream;

static void settle(void)
{
	if (device_is_gpu())
		device_must(cudaStreamSynchronize(stream));
	else if (stream_wait(-1))
		bail("the stream does not end");
}

/* Memory that the device reaches, 2 MiB aligned. */
static void *pinned(size_t bytes)
{
	void *p = aligned_alloc((size_t)2 << 20,
				(bytes + ((size_t)2 << 20) - 1) & ~(((size_t)2 << 20) - 1));

	if (!p || by->pin(p, bytes))
		bail("no pinned memory: %s", gpc_last_error());
	memset(p, 0, bytes);
	return p;
}

static uint32_t truth(const struct sum_piece *p, uint32_t n, uint32_t slot)
{
	uint32_t i, crc = 0;

	for (i = 0; i < n; i++)
		crc = crc32c(crc, copy + (p[i].at - vram) + slot * p[i].slot_stride, p[i].bytes);
	return crc;
}

static void want_all(struct sum_want *w)
{
	uint32_t i;

	for (i = 0; i < SLOTS; i++)
		w[i] = (struct sum_want){ .trailer = &trailer[(i * 7) % SLOTS],
					  .key = { i + 1, ~(uint64_t)i },
					  .slot = (i * 13) % SLOTS,
					  .index = 2 * i,
					  .life = i + 5 };
}

/* As the layout says, of so many bytes each. */
static void one(const char *what, uint32_t npieces, uint64_t bytes, uint64_t gap, uint64_t offset)
{
	struct sum_piece *p = calloc(npieces, sizeof(*p));
	struct sum_want w[SLOTS];
	uint32_t i, wrong = 0, hurt;
	void *sums;

	for (i = 0; i < npieces; i++) /* layer after layer */
		p[i] = (struct sum_piece){ vram + offset + i * (SLOTS * (bytes + gap)), bytes + gap,
					   bytes };
	if (offset + npieces * SLOTS * (bytes + gap) > AREA)
		bail("%s does not fit", what);
	if (by->sum_open(uuid, p, npieces, 1, &sums))
		bail("sum_open: %s", gpc_last_error());
	want_all(w);
	memset(trailer, 0, SLOTS * sizeof(*trailer));
	is_int(by->sum(sums, w, SLOTS, 3, NULL, stream), 0, "%s: summed", what);
	settle();
	for (i = 0; i < SLOTS; i++)
		wrong += w[i].trailer->crc != truth(p, npieces, w[i].slot) ||
			 w[i].trailer->life != w[i].life || w[i].trailer->key[0] != w[i].key[0] ||
			 w[i].trailer->key[1] != w[i].key[1];
	is_int(wrong, 0, "%s: each sum, key and life", what);
	*bad = UINT64_MAX;
	is_int(by->sum(sums, w, SLOTS, 3, bad, stream), 0, "%s: compared", what);
	settle();
	ok(*bad == UINT64_MAX, "%s: nothing is wrong", what);

	hurt = 41; /* one bit of its last byte, and of another one behind it */
	w[hurt].trailer->crc ^= 1;
	w[hurt + 9].trailer->crc ^= 0x80000000u;
	is_int(by->sum(sums, w, SLOTS, 3, bad, stream), 0, "%s: compared again", what);
	settle();
	is_int(*bad, 2 * hurt + 1, "%s: the first that differs", what);
	*bad = 7;
	by->sum(sums, w, SLOTS, 3, bad, stream);
	settle();
	is_int(*bad, 7, "%s: a smaller one stays", what);
	*bad = UINT64_MAX;
	w[hurt].life++; /* of another life: nothing is known of it */
	w[hurt + 9].key[1]++;
	by->sum(sums, w, SLOTS, 3, bad, stream);
	settle();
	ok(*bad == UINT64_MAX, "%s: trailers of another life or key say nothing", what);
	by->sum_close(sums);
	free(p);
}

/* A byte of the image changes: any byte. */
static void each_byte(void)
{
	enum { BYTES = 1536 + 5 };
	struct sum_piece p = { vram, 4096, BYTES };
	struct sum_want w;
	uint32_t i, missed = 0;
	uint8_t was, now;
	void *sums;

	w = (struct sum_want){
		.trailer = &trailer[0], .key = { 1, 1 }, .slot = 2, .index = 0, .life = 9
	};
	if (by->sum_open(uuid, &p, 1, 1, &sums))
		bail("sum_open: %s", gpc_last_error());
	by->sum(sums, &w, 1, 0, NULL, stream);
	settle();
	for (i = 0; i < BYTES; i += 1 + i % 3) {
		was = copy[2 * 4096 + i];
		now = was ^ (uint8_t)(1u << i % 8);
		device_put(vram + 2 * 4096 + i, &now, 1);
		*bad = UINT64_MAX;
		by->sum(sums, &w, 1, 0, bad, stream);
		settle();
		missed += *bad != 1;
		device_put(vram + 2 * 4096 + i, &was, 1);
	}
	is_int(missed, 0, "a bit of any byte that differs is found");
	by->sum_close(sums);
}

static void fails(int err, const char *why)
{
	ok(err == -EINVAL && strstr(gpc_last_error(), why), "%d, %s", err, gpc_last_error());
}

/* gpc_sums_open and what belongs to it, of the same bytes. */
static void own(void)
{
	struct gpc_piece piece[5];
	struct sum_piece same[5];
	uint32_t block[SLOTS], crc[SLOTS], i, wrong = 0;
	const char *name = device_name();
	void *in = device_is_gpu() ? stream : NULL;
	gpc_sums *s, *none = NULL;

	for (i = 0; i < 5; i++) {
		piece[i] = (struct gpc_piece){ vram + 7 + i * 300000, 3000, 2900 - i };
		same[i] = (struct sum_piece){ piece[i].at, piece[i].stride, piece[i].bytes };
	}
	for (i = 0; i < SLOTS; i++)
		block[i] = (i * 13) % SLOTS;
	is_int(gpc_sums_open(name, piece, 5, 1, &s), 0, "sums of memory of our own");
	is_int(gpc_sums_ask(s, GPC_SUMS - SLOTS, block, SLOTS, in), 0, "asked for");
	if (device_is_gpu())
		settle();
	is_int(gpc_sums_get(s, GPC_SUMS - SLOTS, crc, SLOTS), 0, "got");
	for (i = 0; i < SLOTS; i++)
		wrong += crc[i] != truth(same, 5, block[i]);
	is_int(wrong, 0, "what gpc_crc32c says of each");
	fails(gpc_sums_ask(s, GPC_SUMS - SLOTS + 1, block, SLOTS, in),
	      "first is 4007 and n is 90: there are");
	fails(gpc_sums_ask(s, 0, NULL, 1, in), "blocks is NULL, and n is 1");
	fails(gpc_sums_get(s, GPC_SUMS, crc, 1), "first is 4096 and n is 1: there are 4096");
	is_int(gpc_sums_close(s), 0, "closed");
	fails(gpc_sums_open(name, piece, 5, 0, &none), "blocks is 0: it must be 1 to 256");
	fails(gpc_sums_open(name, piece, 5, 257, &none), "blocks is 257: it must be 1 to 256");
	fails(gpc_sums_open("gpu", piece, 5, 1, &none), "gpu");
	fails(gpc_sums_open(NULL, piece, 5, 1, &none), "device is NULL");
	fails(gpc_sums_open(name, piece, 0, 1, &none), "n is 0: an image has 1 to 65536 pieces");
	piece[3].bytes = 0;
	fails(gpc_sums_open(name, piece, 5, 1, &none), "pieces[3] has 0 bytes");
	ok(!none && !gpc_sums_close(NULL), "nothing comes of that");
}

/* An image of several blocks, that lie anywhere: piece by piece, of each of them. */
static uint32_t truth_of_chunk(const struct sum_piece *p, uint32_t n, const uint32_t *slot,
			       uint32_t blocks, uint32_t seed)
{
	uint32_t i, k, crc = seed;

	for (i = 0; i < n; i++)
		for (k = 0; k < blocks; k++)
			crc = crc32c(crc, copy + (p[i].at - vram) + slot[k] * p[i].slot_stride,
				     p[i].bytes);
	return crc;
}

static void chunks(uint32_t blocks, uint32_t npieces, uint64_t bytes, uint64_t offset)
{
	enum { CHUNKS = 70, SEED = 0x7e57 };
	uint32_t *slot = malloc(CHUNKS * blocks * sizeof(*slot)), crc[CHUNKS], i, wrong = 0;
	struct gpc_piece own[8];
	struct sum_piece p[8];
	struct sum_want w[CHUNKS];
	void *sums, *in = device_is_gpu() ? stream : NULL;
	gpc_sums *s;

	for (i = 0; i < npieces; i++) {
		p[i] = (struct sum_piece){ vram + offset + i * SLOTS * bytes, bytes,
					   bytes - 3 * i };
		own[i] = (struct gpc_piece){ p[i].at, p[i].slot_stride, p[i].bytes };
	}
	for (i = 0; i < CHUNKS * blocks; i++)
		slot[i] = (i * 31 + i / 7) % SLOTS;
	for (i = 0; i < CHUNKS; i++)
		w[i] = (struct sum_want){ .trailer = &trailer[i],
					  .key = { i, 5 },
					  .slots = slot + i * blocks,
					  .index = i,
					  .life = i + 1,
					  .seed = SEED };
	if (by->sum_open(uuid, p, npieces, blocks, &sums))
		bail("sum_open: %s", gpc_last_error());
	is_int(by->sum(sums, w, CHUNKS, 1, NULL, stream), 0, "chunks of %u blocks", blocks);
	settle();
	for (i = 0; i < CHUNKS; i++)
		wrong += trailer[i].crc !=
				 truth_of_chunk(p, npieces, slot + i * blocks, blocks, SEED) ||
			 trailer[i].seed != SEED;
	is_int(wrong, 0, "each sum, with its seed");
	*bad = UINT64_MAX;
	trailer[33].seed ^= 1;
	by->sum(sums, w, CHUNKS, 1, bad, stream);
	settle();
	is_int(*bad, 34, "another seed differs, whatever the sum");
	by->sum_close(sums);
	if (gpc_sums_open(device_name(), own, npieces, blocks, &s))
		bail("%s", gpc_last_error());
	if (gpc_sums_seed(s, SEED))
		bail("%s", gpc_last_error());
	if (gpc_sums_ask(s, 3, slot, CHUNKS, in))
		bail("%s", gpc_last_error());
	if (device_is_gpu())
		settle();
	if (gpc_sums_get(s, 3, crc, CHUNKS))
		bail("%s", gpc_last_error());
	for (i = wrong = 0; i < CHUNKS; i++)
		wrong += crc[i] != truth_of_chunk(p, npieces, slot + i * blocks, blocks, SEED);
	is_int(wrong, 0, "and as gpc_sums_ask has them");
	gpc_sums_close(s);
	free(slot);
}

static int body(void)
{
	const struct driver *driver;
	size_t i;

	if (driver_identify(device_name(), &driver, uuid))
		bail("no device: %s", gpc_last_error());
	by = driver->bytes;
	stream = device_stream();
	vram = device_alloc(AREA);
	copy = malloc(AREA);
	for (i = 0; i < AREA; i++)
		copy[i] = (uint8_t)(i * 0x9e3779b97f4a7c15ull >> 56 ^ i >> 13);
	device_put(vram, copy, AREA);
	trailer = pinned(SLOTS * sizeof(*trailer));
	bad = pinned(4096);
	one("64 pieces of 4 KiB", 64, 4096, 0, 0);
	one("7 pieces of 64 KiB, apart", 7, 65536, 512, 256);
	one("one piece of 300 KiB and a bit", 1, 307200 + 48, 208, 0);
	one("3 pieces of 1000 bytes", 3, 1000, 24, 16);
	one("5 pieces of 777 bytes, anywhere", 5, 777, 2, 3);
	one("one byte", 1, 1, 0, 1);
	one("2 pieces of 512", 2, 512, 0, 0);
	each_byte();
	own();
	chunks(2, 4, 65536, 0);
	chunks(16, 6, 4096, 256);
	chunks(3, 8, 1000, 5);
	chunks(256, 2, 512, 0);
	return done_testing();
}

int main(void)
{
	return tap_guard(60, body, NULL);
}
