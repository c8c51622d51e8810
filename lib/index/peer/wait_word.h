/* SPDX-License-Identifier: Apache-2.0 */
/* wait_word.h - the word of shm_wait on which waits for a key sleep, and the place that says that
 * a peer computes the key.
 * Tests: t/index/rouse.t t/index/at-once.t */
#ifndef GPC_WAIT_WORD_H
#define GPC_WAIT_WORD_H

#include "gpc.h"
#include "index/segment/shm.h"

static inline uint32_t wait_word(const gpc_key *key)
{
	return (uint32_t)((key->w[0] ^ key->w[1]) * 0x9e3779b97f4a7c15u >> 56) % SHM_WAITS;
}

/* The hints that may name the block of the key. */
static inline uint32_t wait_hint(const gpc_key *key)
{
	return (uint32_t)((key->w[0] ^ key->w[1]) * 0x9e3779b97f4a7c15u >> 54) % SHM_HINTS;
}

#endif
