/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h - batches of KV events as MessagePack: gpc-events(7) has the format.
 *
 * It knows nothing of caches and sockets: it turns events into bytes, in a buffer that is used
 * again. */
#ifndef GPC_TOOLS_EVENTS_WIRE_H
#define GPC_TOOLS_EVENTS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <msgpack.h>

#include "tools/daemon/events/words.h"

struct wire {
	msgpack_sbuffer bytes;
	msgpack_packer pack;
};

struct wire_stored {
	const uint64_t *hashes; /* a chain; the first is the one nearest to the root */
	uint32_t n;
	bool has_parent; /* false: hashes[0] is the hash of a first block */
	uint64_t parent;
	const uint32_t *tokens; /* tokens of all n blocks */
	uint32_t ntokens;       /* 0 if they are not known */
	uint32_t block_tokens;
	const char *medium;
	uint32_t group;            /* 0 if not told */
	struct text adapter, salt; /* words of the namespace of all n blocks */
};

void wire_init(struct wire *w);
void wire_free(struct wire *w);

/* A batch: first begin, then as many events as begin was told, then end.  time: seconds since
 * 1970. */
void wire_begin(struct wire *w, double time, uint32_t events);
void wire_stored(struct wire *w, const struct wire_stored *s);
void wire_removed(struct wire *w, const uint64_t *hashes, uint32_t n, const char *medium,
		  uint32_t group);
void wire_cleared(struct wire *w);
void wire_end(struct wire *w, uint32_t rank);

/* The name of a block for consumers: the last 8 bytes of the engine's own name, as a number with
 * the highest byte first. */
uint64_t wire_hash(const uint8_t *digest, uint32_t bytes);

#endif
