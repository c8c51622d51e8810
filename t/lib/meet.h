/* SPDX-License-Identifier: Apache-2.0 */
/* meet.h - two threads that are to meet at an instruction, to see whether a barrier is there.
 * They need a processor each; and what they store should come late. */
#ifndef GPC_T_MEET_H
#define GPC_T_MEET_H

#include <sched.h>
#include <stdint.h>

#include "index/base/order.h"

/* The calling thread: on the n-th processor from now on, where there are two.  Threads that it
 * creates afterwards are bound to the same one. */
static inline void meet_on(int n)
{
	cpu_set_t all, one;
	int i;

	if (sched_getaffinity(0, sizeof(all), &all) || CPU_COUNT(&all) < 2)
		return;
	for (i = 0; !CPU_ISSET(i, &all) || n--; i++)
		;
	CPU_ZERO(&one);
	CPU_SET(i, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

/* Many stores that have to wait for memory: what the thread stores next waits behind them, unless
 * there is a barrier, and what it loads next does not. */
static inline void meet_late(void)
{
	enum { LINES = 1 << 18, STORES = 48 };
	static uint8_t line[LINES][64];
	static __thread uint32_t at;
	int i;

	for (i = 0; i < STORES; i++) {
		at = at * 1664525u + 1013904223u;
		store_relaxed(&line[at >> 14][0], 1);
	}
}

#endif
