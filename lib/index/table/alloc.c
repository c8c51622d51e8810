/* SPDX-License-Identifier: Apache-2.0 */
/* alloc.c - private memory of the writer, and the end of a writer that gets none.
 * Tests: t/index/queue.t t/index/takeover-memory.t */
#include "config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "index/table/alloc.h"

#define HUGE ((size_t)2 << 20) /* a huge page */

/* A writer that gets no memory stops where it is, like a killed one.  The segments are sound at
 * any instruction, and the next process on the seat goes on.  Memory that the interrupted
 * functions had allocated for themselves is lost. */
static __thread jmp_buf *way_out;

int writer_run(struct writer *w, int (*run)(struct writer *w, uint64_t arg), uint64_t arg)
{
	jmp_buf here;

	way_out = &here;
	if (setjmp(here))
		return err_set(ENOMEM, "no memory for the writer of %s: it gives the seat up",
			       w->seg.name);
	return run(w, arg);
}

bool writer_guard(void (*run)(void *arg), void *arg)
{
	jmp_buf here, *before = way_out;
	bool done = false;

	way_out = &here;
	if (!setjmp(here)) {
		run(arg);
		done = true;
	}
	way_out = before;
	return done;
}

void writer_no_memory(void)
{
	longjmp(*way_out, 1);
}

/* Large arrays lie in huge pages if the system gives them, since page faults would take a good
 * part of a takeover's time. */
void writer_advise_huge(void *p, size_t bytes)
{
	uintptr_t from = ROUND_UP((uintptr_t)p, HUGE), to = ((uintptr_t)p + bytes) & ~(HUGE - 1);

	if (from < to)
		madvise((void *)from, to - from, MADV_HUGEPAGE);
}

/* calloc() does not touch memory that comes fresh from the system. */
void *writer_zeroed(size_t n, size_t item)
{
	void *p = calloc(n ? n : 1, item);

	if (p)
		writer_advise_huge(p, n * item);
	return p;
}

void *writer_alloc(size_t n, size_t item)
{
	void *p = writer_zeroed(n, item);

	if (!p)
		writer_no_memory();
	return p;
}

void *writer_more(void *array, uint32_t *size, uint32_t want, size_t item)
{
	uint32_t to = MAX(*size * 2, 64u);

	to = MAX(to, want);
	array = realloc(array, to * item);
	if (!array)
		writer_no_memory();
	*size = to;
	return array;
}
