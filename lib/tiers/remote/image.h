/* SPDX-License-Identifier: Apache-2.0 */
/* image.h - the value that a remote store keeps under a key: a header of 128 bytes, and the image
 * of a block.
 *
 * The header has the key and the checksum of the image.  So damaged bytes, and bytes of another
 * block or layout, are found before any request gets them.  It keeps no secret: a client that may
 * write to the store can write values that pass. */
#ifndef GPC_REMOTE_IMAGE_H
#define GPC_REMOTE_IMAGE_H

#include "index/base/base.h"
#include "index/base/sums.h"
#include "gpc.h"
#include "gpc_remote.h"

#define IMAGE_MAGIC "gpcimg 1"

/* Little-endian, as it lies in the store; gpc_remote(7) has the offsets. */
struct image_header {
	char magic[8];
	uint64_t key[2], parent[2];
	uint8_t fingerprint[32]; /* of the layout */
	uint32_t depth, tag;
	uint64_t bytes; /* of the image */
	/* CLOCK_REALTIME of the machine that wrote it.  It is for people, and decides nothing */
	uint64_t written_ns;
	uint32_t crc;  /* CRC32C of the image, begun with seed (index/base/sums.h) */
	uint32_t seed; /* 0: unknown */
	uint64_t word; /* the engine's own word about the image */
	uint32_t reserved[3];
	uint32_t header_crc; /* CRC32C of the 124 bytes before it */
};
_Static_assert(sizeof(struct image_header) == GPC_REMOTE_HEADER, "as plugins have it");

struct image_what { /* the content of a header, in host order */
	gpc_key key, parent;
	uint32_t depth, tag;
	struct image_sum sum;
	uint64_t bytes;
	uint8_t fingerprint[32];
};

void image_header_make(struct image_header *h, const struct image_what *w);
/* 0, or -EBADMSG with the reason in *why: the header is damaged, or differs from `want` in key,
 * bytes or fingerprint.  -ENOENT: the header is good, but has another structure than
 * want->sum.seed, which another node uses.  -EAGAIN: it has one, and the wanted seeds, those of
 * `parts`, are not all known yet. */
int image_header_read(const struct image_header *h, const struct image_what *want,
		      const struct image_parts *parts, struct image_what *ret, const char **why);

#endif
