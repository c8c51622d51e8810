/* SPDX-License-Identifier: Apache-2.0 */
/* image.h - the bytes of a block in a pool with memory, as both CPU and GPU write and read them.
 *
 * The image of a block is a function of its key alone: the key, then words that are derived from
 * the key and their number.  So any process that has the key can verify each byte, wherever the
 * block has moved.  In a pool the image is in pieces, and the pool's runs place the pieces.
 *
 *   image.c           by the CPU
 *   image_kernels.cu  by a GPU
 *   image_cuda.c      streams and buffers for that */
#ifndef GPC_TOOLS_IMAGE_H
#define GPC_TOOLS_IMAGE_H

#include <stdint.h>

#ifdef __CUDACC__
#define IMAGE_FN static inline __host__ __device__
extern "C" {
#else
#define IMAGE_FN static inline
#endif

#define IMAGE_GOOD UINT32_MAX /* there is no wrong byte */

struct image_run {
	uint8_t *at; /* piece 0 of slot 0 */
	uint64_t bytes, slot_stride, run_stride;
	uint64_t from; /* its place in the image */
	uint32_t count;
	uint32_t aligned; /* 1: pieces are whole words, in memory and in the image */
};

struct image_item {
	uint64_t key[2];
	uint32_t slot, pad;
};

/* Word number i of the image of a key. */
IMAGE_FN uint64_t image_word(const uint64_t key[2], uint64_t i)
{
	uint64_t x = key[0] ^ (key[1] + i * 0x9e3779b97f4a7c15u);

	if (i < 2)
		return key[i];
	x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
	return x ^ x >> 32;
}

IMAGE_FN uint8_t image_byte(const uint64_t key[2], uint64_t i)
{
	return (uint8_t)(image_word(key, i / 8) >> i % 8 * 8);
}

IMAGE_FN uint8_t *image_piece(const struct image_run *r, uint32_t slot, uint32_t piece)
{
	return r->at + slot * r->slot_stride + piece * r->run_stride;
}

/* ---- CPU or GPU ---- */

struct image_layout {
	uint32_t nruns;
	uint64_t bytes; /* bytes of an image */
	struct image_run *run;
	void *there; /* the runs as the device has them */
};

/* Each returns 0 or more, or -1 after image_say(). */
struct image_ops {
	/* Opens a device that reaches the memory at base; NULL after image_say(). */
	void *(*open)(void *base);
	void (*close)(void *who);
	void *(*stream)(void *who); /* the stream for a gpc_copy before or after the calls below */
	int (*learn)(void *who, struct image_layout *l);
	void (*forget)(void *who, struct image_layout *l);
	/* Complete when it returns. */
	int (*fill)(void *who, const struct image_layout *l, const struct image_item *items,
		    uint32_t n);
	/* Returns how many are wrong.  Then first[i] is the first wrong byte of image i, or
	 * IMAGE_GOOD. */
	int (*check)(void *who, const struct image_layout *l, const struct image_item *items,
		     uint32_t n, uint32_t *first);
};

extern const struct image_ops image_host, image_cuda;

/* Notes the last error. */
void image_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
const char *image_said(void);

/* ---- kernels, on a stream; 0 or a cudaError_t ---- */

#define IMAGE_BATCH 4096 /* items of a launch */

int image_launch_fill(const struct image_run *runs, uint32_t nruns, const struct image_item *items,
		      uint32_t n, void *stream);
/* first[i] is as above; *wrong grows by the number of wrong images. */
int image_launch_check(const struct image_run *runs, uint32_t nruns, const struct image_item *items,
		       uint32_t n, uint32_t *first, unsigned long long *wrong, void *stream);

#ifdef __CUDACC__
}
#endif
#endif
