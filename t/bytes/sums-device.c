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
	if (by->sum_open(uuid, p, npieces, &sums))
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
	if (by->sum_open(uuid, &p, 1, &sums))
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
	is_int(gpc_sums_open(name, piece, 5, &s), 0, "sums of memory of our own");
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
	fails(gpc_sums_open("gpu", piece, 5, &none), "gpu");
	fails(gpc_sums_open(NULL, piece, 5, &none), "device is NULL");
	fails(gpc_sums_open(name, piece, 0, &none), "n is 0: an image has 1 to 65536 pieces");
	piece[3].bytes = 0;
	fails(gpc_sums_open(name, piece, 5, &none), "pieces[3] has 0 bytes");
	ok(!none && !gpc_sums_close(NULL), "nothing comes of that");
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
	return done_testing();
}

int main(void)
{
	return tap_guard(60, body, NULL);
}
