/* SPDX-License-Identifier: Apache-2.0 */
/* counted.h - allocations that a test counts and refuses: malloc, calloc, realloc and free, by --wrap.
 * The test says by is_refused() which request fails; threads may ask at once. */
#ifndef GPC_T_COUNTED_H
#define GPC_T_COUNTED_H

#include "index/base/order.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static bool is_refused(void);

static uint64_t allocations; /* those that were not freed */

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__real_calloc(size_t n, size_t item);
void *__wrap_calloc(size_t n, size_t item);
void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void __real_free(void *p);
void __wrap_free(void *p);

static void *counted(void *p)
{
	if (p)
		count_add(&allocations, 1);
	return p;
}

void *__wrap_malloc(size_t n)
{
	return is_refused() ? NULL : counted(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t item)
{
	return is_refused() ? NULL : counted(__real_calloc(n, item));
}

void *__wrap_realloc(void *p, size_t n)
{
	if (is_refused())
		return NULL;
	return p ? __real_realloc(p, n) : counted(__real_realloc(p, n));
}

void __wrap_free(void *p)
{
	if (p)
		count_sub(&allocations, 1);
	__real_free(p);
}

#endif
