/* SPDX-License-Identifier: Apache-2.0 */
/* order.h - every atomic access of the library.  No other file uses __atomic or fences.
 *
 * The names say the order.  A release in the sources has a letter in parentheses; the
 * acquire or fence it pairs with names that letter (index/BARRIERS.md lists all pairs).
 *
 * order_swap, order_add and order_cas are full barriers.  On x86 a locked instruction is one (rule
 * S5); elsewhere they have a fence on both sides.
 * Tests: t/repo/barriers.t */
#ifndef GPC_ORDER_H
#define GPC_ORDER_H

#include <stdbool.h>
#include <stdint.h>
#ifdef __x86_64__
#include <emmintrin.h>
#endif

#define load_relaxed(p)     __atomic_load_n((p), __ATOMIC_RELAXED)
#define load_acquire(p)     __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)

/* for counters that several threads raise, and by which nobody orders anything */
#define count_add(p, v) ((void)__atomic_fetch_add((p), (v), __ATOMIC_RELAXED))
#define count_next(p)   __atomic_fetch_add((p), 1, __ATOMIC_RELAXED)
#define count_sub(p, v) ((void)__atomic_fetch_sub((p), (v), __ATOMIC_RELAXED))

static inline void order_fence(void)
{
#ifdef __SANITIZE_THREAD__
	/* ThreadSanitizer knows no fences; a locked instruction is one as well */
	uint32_t here = 0;

	__atomic_fetch_add(&here, 1, __ATOMIC_SEQ_CST);
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Stores before it come before stores after it. */
static inline void order_stores(void)
{
#ifdef __SANITIZE_THREAD__
	order_fence();
#else
	__atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

#if defined(__x86_64__) || defined(__i386__)
#define order_pause() __builtin_ia32_pause()
#define ORDER_SIDE()  ((void)0)
#else
#define order_pause() __asm__ volatile("" ::: "memory")
#define ORDER_SIDE()  order_fence()
#endif

static inline uint64_t order_add64(uint64_t *p, uint64_t v)
{
	uint64_t old;

	ORDER_SIDE();
	old = __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
	ORDER_SIDE();
	return old;
}

static inline uint32_t order_add32(uint32_t *p, uint32_t v)
{
	uint32_t old;

	ORDER_SIDE();
	old = __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
	ORDER_SIDE();
	return old;
}

static inline uint64_t order_or64(uint64_t *p, uint64_t v)
{
	uint64_t old;

	ORDER_SIDE();
	old = __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);
	ORDER_SIDE();
	return old;
}

static inline uint64_t order_and64(uint64_t *p, uint64_t v)
{
	uint64_t old;

	ORDER_SIDE();
	old = __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST);
	ORDER_SIDE();
	return old;
}

static inline uint16_t order_add16(uint16_t *p, uint16_t v)
{
	uint16_t old;

	ORDER_SIDE();
	old = __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
	ORDER_SIDE();
	return old;
}

static inline uint32_t order_swap32(uint32_t *p, uint32_t v)
{
	uint32_t old;

	ORDER_SIDE();
	old = __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
	ORDER_SIDE();
	return old;
}

static inline uint64_t order_swap64(uint64_t *p, uint64_t v)
{
	uint64_t old;

	ORDER_SIDE();
	old = __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
	ORDER_SIDE();
	return old;
}

static inline bool order_cas64(uint64_t *p, uint64_t from, uint64_t to)
{
	bool ok;

	ORDER_SIDE();
	ok = __atomic_compare_exchange_n(p, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	ORDER_SIDE();
	return ok;
}

static inline bool order_cas32(uint32_t *p, uint32_t from, uint32_t to)
{
	bool ok;

	ORDER_SIDE();
	ok = __atomic_compare_exchange_n(p, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	ORDER_SIDE();
	return ok;
}

/* If *p is *from, make it `to`; else store its value in *from. */
static inline bool order_cas16(uint16_t *p, uint16_t *from, uint16_t to)
{
	bool ok;

	ORDER_SIDE();
	ok = __atomic_compare_exchange_n(p, from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	ORDER_SIDE();
	return ok;
}

/* Lower a cell by one if it is from 1 to `most`.  Returns the old value, or 0 if nothing was
 * lowered.  It is a release: the caller's uses of the block are over before the writer can see the
 * cell at zero. */
static inline uint16_t order_dec16(uint16_t *p, uint16_t most)
{
	uint16_t v = load_relaxed(p);

	while ((uint16_t)(v - 1) < most)
		if (__atomic_compare_exchange_n(p, &v, (uint16_t)(v - 1), true, __ATOMIC_RELEASE,
						__ATOMIC_RELAXED))
			return v;
	return 0;
}

/* Raise *p to v, at most `tries` attempts (rule R1: a stamp only grows). */
static inline void order_raise64(uint64_t *p, uint64_t v, int tries)
{
	uint64_t old = load_relaxed(p);

	while (old < v && tries--)
		if (__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED))
			return;
}

/* One attempt to make *p `to`; *p was *old before.  After a failure *old has the value of *p. */
static inline bool order_raise_from32(uint32_t *p, uint32_t *old, uint32_t to)
{
	return __atomic_compare_exchange_n(p, old, to, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define ORDER_VECTORS 1
#endif

/* Four 32-bit words, 16-byte aligned, each read once and untorn; they may be of different
 * moments.
 *
 * x86-64 reads them with one SSE load, which AVX processors do as one access.  It does not use
 * __atomic on a 16-byte type: libatomic may read it by a locked compare-and-swap, which is a
 * write, and the table is mapped read-only.  The thread sanitizer cannot see through the
 * intrinsic. */
struct words4 {
	uint32_t w[4];
};

#ifdef ORDER_VECTORS
static inline __attribute__((always_inline)) __m128i load_vector4(const uint32_t *p)
{
	__m128i x = _mm_load_si128((const __m128i *)(const void *)p);

	__asm__("" : "+x"(x)); /* the compiler reads it once, however often it is used */
	return x;
}
#endif

static inline __attribute__((always_inline)) struct words4 load_words4(const uint32_t *p)
{
#ifdef ORDER_VECTORS
	__m128i x = load_vector4(p);
	uint64_t lo = (uint64_t)_mm_cvtsi128_si64(x);
	uint64_t hi = (uint64_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(x, x));

	return (struct words4){ { (uint32_t)lo, (uint32_t)(lo >> 32), (uint32_t)hi,
				  (uint32_t)(hi >> 32) } };
#else
	return (struct words4){ { load_relaxed(p), load_relaxed(p + 1), load_relaxed(p + 2),
				  load_relaxed(p + 3) } };
#endif
}

#endif
