/* SPDX-License-Identifier: Apache-2.0 */
/* alloc.h - private memory of the writer, which gives up its seat when there is none left. */
#ifndef GPC_TABLE_ALLOC_H
#define GPC_TABLE_ALLOC_H

#include "index/table/state.h"

/* Returns the answer of run(w, arg), or -ENOMEM as soon as there is no memory for the writer.  The
 * writer is in no state to go on then, and must be closed. */
int writer_run(struct writer *w, int (*run)(struct writer *w, uint64_t arg), uint64_t arg);

/* Private memory.  Without memory these functions do not return, but end writer_run() or
 * writer_guard().  A piece of memory is freed with its list, or earlier.  An array that grows
 * begins as NULL. */
void *writer_more(void *array, uint32_t *size, uint32_t want, size_t item);

static inline void *writer_grow(void *array, uint32_t *size, uint32_t want, size_t item)
{
	return want <= *size ? array : writer_more(array, size, want, item);
}

void *writer_alloc(size_t n, size_t item); /* zeros */
void writer_free(void *p);
void writer_free_all(struct writer_memory **list);
void writer_join(struct writer_memory **list, struct writer_memory **more);

/* For threads that do not serve.  All memory that run() allocates is in this list, and run() grows
 * and frees no other memory.  Without memory it ends at once, so the functions that it calls may
 * be stopped anywhere, and writer_guard() returns false.  Then writer_no_memory() tells the thread
 * that serves. */
bool writer_guard(struct writer_memory **list, void (*run)(void *arg), void *arg);

void writer_no_memory(void) __attribute__((noreturn));

#endif
