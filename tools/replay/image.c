/* SPDX-License-Identifier: Apache-2.0 */
/* Images by the CPU: in RAM, and in the VRAM of the host device, which is shared memory.
 * Tests: t/tools/replay-pools.t */
#include "config.h"

#include "tools/replay/image.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static char said[256];

void image_say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(said, sizeof(said), fmt, ap);
	va_end(ap);
}

const char *image_said(void)
{
	return said;
}

/* ---- a piece ---- */

static void fill_piece(uint8_t *to, const struct image_run *r, uint64_t from, const uint64_t key[2])
{
	uint64_t i, word;

	if (!r->aligned) {
		for (i = 0; i < r->bytes; i++)
			to[i] = image_byte(key, from + i);
		return;
	}
	for (i = 0; i < r->bytes; i += 8) {
		word = image_word(key, (from + i) / 8);
		memcpy(to + i, &word, 8);
	}
}

static uint64_t wrong_byte(const uint8_t *at, uint64_t from, uint64_t n, const uint64_t key[2])
{
	uint64_t i = 0;

	while (i < n && at[i] == image_byte(key, from + i))
		i++;
	return i;
}

/* The first wrong byte of a piece; the piece's size if there is none. */
static uint64_t check_piece(const uint8_t *at, const struct image_run *r, uint64_t from,
			    const uint64_t key[2])
{
	uint64_t i = 0, word;

	if (!r->aligned)
		return wrong_byte(at, from, r->bytes, key);
	for (; i < r->bytes; i += 8) {
		memcpy(&word, at + i, 8);
		if (word != image_word(key, (from + i) / 8))
			return i + wrong_byte(at + i, from + i, 8, key);
	}
	return i;
}

/* ---- an image ---- */

static uint32_t check_image(const struct image_layout *l, const struct image_item *item)
{
	for (uint32_t i = 0; i < l->nruns; i++) {
		const struct image_run *r = &l->run[i];

		for (uint32_t j = 0; j < r->count; j++) {
			uint64_t from = r->from + j * r->bytes;
			uint64_t k = check_piece(image_piece(r, item->slot, j), r, from, item->key);

			if (k < r->bytes)
				return (uint32_t)(from + k);
		}
	}
	return IMAGE_GOOD;
}

static int host_fill(void *who, const struct image_layout *l, const struct image_item *items,
		     uint32_t n)
{
	(void)who;
	for (uint32_t k = 0; k < n; k++)
		for (uint32_t i = 0; i < l->nruns; i++)
			for (uint32_t j = 0; j < l->run[i].count; j++)
				fill_piece(image_piece(&l->run[i], items[k].slot, j), &l->run[i],
					   l->run[i].from + j * l->run[i].bytes, items[k].key);
	return 0;
}

static int host_check(void *who, const struct image_layout *l, const struct image_item *items,
		      uint32_t n, uint32_t *first)
{
	int wrong = 0;

	(void)who;
	for (uint32_t k = 0; k < n; k++) {
		first[k] = check_image(l, &items[k]);
		wrong += first[k] != IMAGE_GOOD;
	}
	return wrong;
}

/* ---- nothing to keep ---- */

static void *host_open(void *base)
{
	return base;
}

static void host_close(void *who)
{
	(void)who;
}

/* The stream of the host device is one for the whole process, whichever device is named. */
static void *host_stream(void *who)
{
	(void)who;
	return NULL;
}

static int host_learn(void *who, struct image_layout *l)
{
	(void)who;
	l->there = NULL;
	return 0;
}

static void host_forget(void *who, struct image_layout *l)
{
	(void)who;
	(void)l;
}

const struct image_ops image_host = {
	.open = host_open,
	.close = host_close,
	.stream = host_stream,
	.learn = host_learn,
	.forget = host_forget,
	.fill = host_fill,
	.check = host_check,
};
