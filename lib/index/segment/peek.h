/* SPDX-License-Identifier: Apache-2.0 */
/* peek.h - the present content of the segments.  It is read from the mapping, or by pread from a
 * snapshot, which maps nothing.  A look writes nothing, so it disturbs neither recency nor
 * statistics, and it reads exactly the bytes that are asked for, so it costs the same in a cache
 * of any size.
 *
 * Other processes go on between two reads.  A fetch copies each word once, in no order.  A reader
 * that needs the words of one moment reads the words that mark the moment, fetches, and reads the
 * marks again. */
#ifndef GPC_PEEK_H
#define GPC_PEEK_H

#include "index/segment/segment.h"

/* `at` and `bytes` are multiples of 8. */
void seg_peek_index(const struct segment *s, uint64_t at, void *to, size_t bytes);
void seg_peek_control(const struct segment *s, uint64_t at, void *to, size_t bytes);
void seg_peek_state(const struct segment *s, struct shm_state *ret);
/* A READY description of that pool.  False: there is none, or it changes all the time. */
bool seg_peek_pool(const struct segment *s, uint32_t pool, struct shm_pool *ret);
uint32_t seg_peek_seat_state(const struct segment *s, uint32_t peer);
/* Blocks of a pool that the seat's owner holds; an empty seat holds none. */
uint32_t seg_peek_held(const struct segment *s, uint32_t peer, uint32_t pool);
/* The number of CALLER blocks that the pool's owner, this peer, has in stock, in this life of the
 * pool. */
uint32_t seg_peek_in_stock(const struct segment *s, uint32_t peer, uint32_t pool,
			   uint32_t generation);

/* Copy words that another process may store meanwhile: each is loaded once. */
void seg_copy_words(void *to, const void *from, size_t bytes);
/* Copy a text from shared memory.  It is cut to the room, and gets a final 0. */
void seg_copy_text(char *to, size_t room, const char *from, size_t bytes);

#endif
