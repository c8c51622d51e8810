/* SPDX-License-Identifier: Apache-2.0 */
/* sum.c - checksums: no memory has trailers so far. */
#include "config.h"

#include "payload/sum.h"

bool sum_kept(const struct map *ram UNUSED)
{
	return false;
}

bool sum_is_known(const struct map *ram UNUSED, const struct sum_item *item UNUSED)
{
	return false;
}

int sum_store(gpc *c UNUSED, const struct map *by UNUSED, const struct map *images UNUSED,
	      const struct map *ram UNUSED, const struct sum_item *items UNUSED, uint32_t n UNUSED,
	      void *stream UNUSED)
{
	return 0;
}

int sum_compare(gpc *c UNUSED, const struct map *by UNUSED, const struct map *images UNUSED,
		const struct map *ram UNUSED, const struct sum_item *items UNUSED, uint32_t n UNUSED,
		uint64_t *bad UNUSED, void *stream UNUSED)
{
	return 0;
}

void sum_carry(const struct map *to UNUSED, const struct map *from UNUSED,
	       const struct sum_item *item UNUSED, uint32_t from_slot UNUSED)
{
}

bool sum_is_right(const struct map *ram UNUSED, const struct sum_item *item UNUSED)
{
	return true;
}
