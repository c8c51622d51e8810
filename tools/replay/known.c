/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of numbers, each with a value and the line that it was seen in first.
 * Tests: t/tools/replay-trace.t t/fuzz/trace.t */
#include "config.h"

#include "tools/common/cli.h"
#include "tools/replay/trace.h"

#include <stdlib.h>

static struct known_pair *place_of(const struct known *k, uint64_t id, uint64_t under)
{
	uint64_t mix = (id ^ (under * 0xff51afd7ed558ccdu)) * 0x9e3779b97f4a7c15u;
	size_t i = (size_t)(mix >> 20) & (k->places - 1);

	while (k->pairs[i].line && (k->pairs[i].id != id || k->pairs[i].under != under))
		i = (i + 1) & (k->places - 1);
	return &k->pairs[i];
}

static int grow(struct known *k)
{
	struct known old = *k;

	k->places = k->places ? 2 * k->places : 4096;
	k->pairs = calloc(k->places, sizeof(*k->pairs));
	if (!k->pairs) {
		*k = old;
		cli_error("out of memory");
		return -1;
	}
	for (size_t i = 0; i < old.places; i++)
		if (old.pairs[i].line)
			*place_of(k, old.pairs[i].id, old.pairs[i].under) = old.pairs[i];
	free(old.pairs);
	return 0;
}

struct known_pair *known_add(struct known *k, uint64_t id, uint64_t under, uint64_t value,
			     uint32_t line)
{
	struct known_pair *p;

	if (2 * k->n >= k->places && grow(k))
		return NULL;
	p = place_of(k, id, under);
	if (!p->line) {
		*p = (struct known_pair){ id, under, value, line };
		k->n++;
	}
	return p;
}
