/* SPDX-License-Identifier: Apache-2.0 */
/* huge.c - how much of a pool's RAM lies in huge pages.  This process maps it, and asks the kernel
 * how much of the mapping is huge pages.
 *
 * The images are mapped once more, and one page of each 2 MiB is made present, which maps a huge
 * page as a whole.  Then smaps says how many bytes were mapped so.  MADV_POPULATE_READ returns an
 * error where a load would raise a signal, so a file that somebody cuts does no harm.
 * Tests: t/bytes/pool-make.t */
#include "config.h"

#include "bytes/mapping/make.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "index/base/fd.h"
#include "index/segment/files.h"

#define HUGE_PAGE ((uint64_t)2 << 20)

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; older kernels give no answer */
#endif

static bool make_present(uint8_t *base, uint64_t bytes)
{
	uint64_t at;

	for (at = 0; at < bytes; at += HUGE_PAGE)
		if (madvise(base + at, SHM_PAGE, MADV_POPULATE_READ) < 0)
			return false;
	return true;
}

static uint64_t field_of(const char *line, const char *name)
{
	size_t n = strlen(name);
	uint64_t kib = 0;

	if (!strncmp(line, name, n))
		sscanf(line + n, " %" SCNu64, &kib);
	return kib << 10;
}

/* The sum of the huge pages that are mapped between the two addresses. */
static uint64_t read_smaps(FILE *f, uintptr_t from, uintptr_t to)
{
	uintptr_t low, high;
	uint64_t sum = 0;
	bool inside = false;
	char line[512];

	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &low, &high) == 2)
			inside = low < to && high > from;
		else if (inside)
			sum += field_of(line, "ShmemPmdMapped:") +
			       field_of(line, "FilePmdMapped:") +
			       field_of(line, "Shared_Hugetlb:") +
			       field_of(line, "Private_Hugetlb:");
	}
	return sum;
}

static uint64_t look(const struct memory *m, uint8_t *base)
{
	int fd = fd_peek("/proc/self/smaps", O_RDONLY);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	uint64_t sum = 0;

	if (f && make_present(base, m->images_bytes))
		sum = read_smaps(f, (uintptr_t)base, (uintptr_t)base + m->images_bytes);
	if (f)
		fclose(f);
	else if (fd >= 0)
		close(fd);
	return MIN(sum, m->images_bytes);
}

/* If the images have a file of their own, it is in a hugetlbfs, and all its pages are huge. */
uint64_t huge_bytes(const struct segment *s, const struct memory *m)
{
	uint8_t *base;
	uint64_t sum;

	if (!m->images)
		return m->images_bytes;
	if (memory_map(s, m, PROT_READ, &base) < 0)
		return 0;
	sum = look(m, base);
	memory_unmap_images(s, m, base);
	return sum;
}
