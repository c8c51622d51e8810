/* SPDX-License-Identifier: Apache-2.0 */
/* image.c - headers of images in a remote store: made and verified.
 * Tests: t/tiers/remote-image.t t/bytes/seals.t */
#include "config.h"

#include "tiers/remote/image.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "index/base/crc.h"

static uint32_t crc_of(const struct image_header *h)
{
	return crc32c(0, h, offsetof(struct image_header, header_crc));
}

void image_header_make(struct image_header *h, const struct image_what *w)
{
	struct timespec now = { 0 };
	int i;

	clock_gettime(CLOCK_REALTIME, &now);
	memset(h, 0, sizeof(*h));
	memcpy(h->magic, IMAGE_MAGIC, sizeof(h->magic));
	for (i = 0; i < 2; i++) {
		h->key[i] = htole64(w->key.w[i]);
		h->parent[i] = htole64(w->parent.w[i]);
	}
	memcpy(h->fingerprint, w->fingerprint, sizeof(h->fingerprint));
	h->depth = htole32(w->depth);
	h->tag = htole32(w->tag);
	h->bytes = htole64(w->bytes);
	h->written_ns = htole64((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
	h->crc = htole32(w->sum.crc);
	h->seed = htole32(w->sum.seed);
	h->word = htole64(w->sum.word);
	h->header_crc = htole32(crc_of(h));
}

static const char *wrong_with(const struct image_header *h, const struct image_what *want,
			      const struct image_what *is)
{
	if (memcmp(h->magic, IMAGE_MAGIC, sizeof(h->magic)) != 0)
		return "it does not begin like an image";
	if (le32toh(h->header_crc) != crc_of(h))
		return "the checksum of its header is wrong";
	if (is->key.w[0] != want->key.w[0] || is->key.w[1] != want->key.w[1])
		return "it is the image of another key";
	if (is->bytes != want->bytes)
		return "it is an image of another size";
	if (memcmp(is->fingerprint, want->fingerprint, sizeof(is->fingerprint)) != 0)
		return "it is an image of another layout";
	return NULL;
}

int image_header_read(const struct image_header *h, const struct image_what *want,
		      const struct image_parts *parts, struct image_what *ret, const char **why)
{
	struct image_what is = {
		.depth = le32toh(h->depth),
		.tag = le32toh(h->tag),
		.sum = { le32toh(h->crc), le32toh(h->seed), le64toh(h->word) },
		.bytes = le64toh(h->bytes),
	};
	int i, other;

	for (i = 0; i < 2; i++) {
		is.key.w[i] = le64toh(h->key[i]);
		is.parent.w[i] = le64toh(h->parent[i]);
	}
	memcpy(is.fingerprint, h->fingerprint, sizeof(is.fingerprint));
	*why = wrong_with(h, want, &is);
	if (*why)
		return -EBADMSG;
	*ret = is;
	other = sums_compare(is.sum.seed, want->sum.seed, parts);
	return other == -ESTALE ? -ENOENT : other;
}
