/* SPDX-License-Identifier: Apache-2.0 */
/* sums.c - the list of pieces of an image in a map, in the form that its device sums.
 * Tests: t/bytes/checksums.t */
#include "config.h"

#include "bytes/mapping/maps.h"

#include <errno.h>
#include <stdlib.h>

static uint32_t count_pieces(const struct map *m)
{
	uint32_t i, n = 0;

	for (i = 0; i < m->memory.nruns; i++)
		n += m->memory.run[i].count;
	return n;
}

static void list_pieces(const struct map *m, struct sum_piece *to)
{
	uint32_t i, j;

	for (i = 0; i < m->memory.nruns; i++) {
		const struct shm_run *r = &m->memory.run[i];

		for (j = 0; j < r->count; j++)
			*to++ = (struct sum_piece){ m->part[r->part].base + r->offset +
							    j * r->run_stride,
						    r->slot_stride, r->bytes };
	}
}

static int open_sums(struct map *m)
{
	uint32_t n = count_pieces(m);
	struct sum_piece *pieces = calloc(n, sizeof(*pieces));
	void *sums;
	int err;

	if (!pieces)
		return err_set(ENOMEM, "no memory for the %u pieces of an image", n);
	list_pieces(m, pieces);
	err = m->device->sum_open(m->memory.uuid, pieces, n, 1, &sums);
	free(pieces);
	if (!err) /* it is complete before others see it; pairs with map_sums() */
		store_release(&m->sums, sums);
	return err;
}

int map_sums(gpc *c, struct map *m, void **ret)
{
	int err = 0;

	if (!load_acquire(&m->sums)) {
		pthread_mutex_lock(&c->maps->sums_lock);
		if (!m->sums)
			err = open_sums(m);
		pthread_mutex_unlock(&c->maps->sums_lock);
	}
	*ret = m->sums;
	return err;
}
