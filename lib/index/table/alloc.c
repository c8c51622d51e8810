/* SPDX-License-Identifier: Apache-2.0 */
/* alloc.c - private memory of the writer, and the end of a writer that gets none.
 *
 * Each piece of memory hangs in a list, and the end of the writer frees the list, however far the
 * interrupted functions had come.  One thread at a time has a list, so it needs no lock:
 *
 *   who allocates               list         the rest of the list is freed
 *   --------------------------  -----------  ------------------------------------------------
 *   the thread that serves      w->memory    by writer_close()
 *   a job of a takeover         its own      with w->scan: the lists are joined when all jobs are done
 *   the jobs before             w->scan      at the end of the takeover, or by writer_close()
 * Tests: t/index/serve-memory.t t/index/queue.t t/index/takeover-memory.t */
#include "config.h"

#include <errno.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "index/table/alloc.h"

#define HUGE ((size_t)2 << 20) /* a huge page */

/* The header of each piece, which lies before the memory itself. */
struct writer_memory {
	_Alignas(max_align_t) struct writer_memory *next;
	struct writer_memory **at; /* the pointer that names this piece */
	size_t mapped;             /* bytes; 0: the piece comes from malloc() */
};

/* A writer that gets no memory stops where it is, like a killed one.  The segments are sound at
 * any instruction, and the next process on the seat goes on. */
static __thread struct way {
	jmp_buf *out;
	struct writer_memory **memory;
} way;

/* The way before is that of another handle's writer, whose log function serves this one. */
int writer_run(struct writer *w, int (*run)(struct writer *w, uint64_t arg), uint64_t arg)
{
	struct way before = way;
	jmp_buf here;
	int err;

	way = (struct way){ &here, &w->memory };
	if (setjmp(here))
		err = err_set(ENOMEM, "no memory for the writer of %s: it gives the seat up",
			      w->seg.name);
	else
		err = run(w, arg);
	way = before;
	return err;
}

bool writer_guard(struct writer_memory **list, void (*run)(void *arg), void *arg)
{
	struct way before = way;
	jmp_buf here;
	bool done = false;

	way = (struct way){ &here, list };
	if (!setjmp(here)) {
		run(arg);
		done = true;
	}
	way = before;
	return done;
}

void writer_no_memory(void)
{
	longjmp(*way.out, 1);
}

/* The piece's pointers are set here, since the piece may be new, or may have moved. */
static void *hang(struct writer_memory *m)
{
	*m->at = m;
	if (m->next)
		m->next->at = &m->next;
	return m + 1;
}

static void *hang_in(struct writer_memory **list, struct writer_memory *m)
{
	m->next = *list;
	m->at = list;
	return hang(m);
}

/* Large arrays lie in huge pages if the system gives them, since page faults would take a good
 * part of a takeover's time.  A mapping of whole huge pages begins with one, and nothing is stored
 * there before the advice. */
static struct writer_memory *map(size_t bytes)
{
	size_t all = ROUND_UP(bytes, HUGE);
	struct writer_memory *m =
		mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (m == MAP_FAILED)
		return NULL;
	madvise(m, all - HUGE, MADV_HUGEPAGE); /* the last huge page is not full, as a rule */
	m->mapped = all;
	return m;
}

void *writer_alloc(size_t n, size_t item)
{
	size_t bytes = sizeof(struct writer_memory) + n * item;
	struct writer_memory *m = bytes > HUGE ? map(bytes) : calloc(1, bytes);

	if (!m)
		writer_no_memory();
	return hang_in(way.memory, m);
}

void *writer_more(void *array, uint32_t *size, uint32_t want, size_t item)
{
	struct writer_memory *m = array ? (struct writer_memory *)array - 1 : NULL;
	uint32_t to = MAX(*size * 2, 64u);

	to = MAX(to, want);
	m = realloc(m, sizeof(*m) + to * item);
	if (!m)
		writer_no_memory();
	m->mapped = 0;
	*size = to;
	return array ? hang(m) : hang_in(way.memory, m);
}

void writer_free(void *p)
{
	struct writer_memory *m;

	if (!p)
		return;
	m = (struct writer_memory *)p - 1;
	*m->at = m->next;
	if (m->next)
		m->next->at = m->at;
	if (m->mapped)
		munmap(m, m->mapped);
	else
		free(m);
}

void writer_free_all(struct writer_memory **list)
{
	while (*list)
		writer_free(*list + 1);
}

void writer_join(struct writer_memory **list, struct writer_memory **more)
{
	struct writer_memory *m;

	while ((m = *more) != NULL) {
		*more = m->next;
		hang_in(list, m);
	}
}
