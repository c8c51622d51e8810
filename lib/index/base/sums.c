/* SPDX-License-Identifier: Apache-2.0 */
/* sums.c - sums of images of one part or several.
 * Tests: t/bytes/seals.t */
#include "config.h"

#include "index/base/sums.h"

#include <errno.h>

#include "index/base/base.h"
#include "index/base/crc.h"

uint32_t sums_fold(const uint32_t *each, uint32_t n)
{
	return n == 1 ? each[0] : crc32c(0, each, n * sizeof(*each));
}

int sums_compare(uint32_t found, uint32_t wanted, const struct image_parts *p)
{
	uint32_t i;

	if (found == wanted)
		return 0;
	for (i = 0; p->seed && i < p->n; i++)
		if (!p->seed[i])
			return -EAGAIN;
	return -ESTALE;
}

static uint32_t sum_parts(const struct iovec *iov, uint32_t niov, const struct image_parts *p)
{
	uint32_t i, part = 0;
	uint64_t at, n, left = p->bytes; /* of the part */

	p->crc[0] = p->seed[0];
	for (i = 0; i < niov; i++)
		for (at = 0; at < iov[i].iov_len; at += n) {
			if (!left) {
				if (++part == p->n)
					return 0; /* no image of these parts */
				p->crc[part] = p->seed[part];
				left = p->bytes;
			}
			n = MIN(iov[i].iov_len - at, left);
			p->crc[part] = crc32c(p->crc[part], (uint8_t *)iov[i].iov_base + at, n);
			left -= n;
		}
	return sums_fold(p->crc, p->n);
}

uint32_t sums_of(const struct iovec *iov, uint32_t niov, const struct image_parts *p, uint32_t seed)
{
	uint32_t i;

	if (p->n > 1)
		return sum_parts(iov, niov, p);
	for (i = 0; i < niov; i++)
		seed = crc32c(seed, iov[i].iov_base, iov[i].iov_len);
	return seed;
}
