/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions by name.  Names with the same hash are distinguished by their text, since a trace may
 * have been written to have such names.
 * Tests: t/fuzz/trace.t t/tools/replay-turns.t t/tools/replay-sticky.t */
#include "config.h"

#include "tools/common/cli.h"
#include "tools/replay/trace.h"

#include <stdlib.h>
#include <string.h>

/* FNV-1a */
static uint64_t hash_of(const char *s)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3u;
	return h;
}

static int append(struct loader *l, const char *name, uint64_t hash)
{
	struct names *n = &l->names;
	uint32_t at = l->t.sessions;

	if (trace_room((void **)&n->text, &n->text_room, at, sizeof(*n->text)) ||
	    trace_room((void **)&l->t.hash, &n->hash_room, at, sizeof(*l->t.hash)))
		return -1;
	n->text[at] = name ? strdup(name) : NULL;
	if (name && !n->text[at]) {
		cli_error("out of memory");
		return -1;
	}
	l->t.hash[at] = hash;
	l->t.sessions++;
	return 0;
}

int names_add(struct loader *l, const struct row *r, uint32_t *ret)
{
	uint64_t hash = r->named ? hash_of(r->session) : l->t.sessions;
	const struct known_pair *p;

	*ret = l->t.sessions;
	if (!r->named)
		return append(l, NULL, hash);
	l->t.named++;
	for (uint64_t k = 0;; k++) {
		p = known_add(&l->names.known, hash, k, *ret, l->line);
		if (!p)
			return -1;
		if (p->value == *ret)
			return append(l, r->session, hash);
		if (!strcmp(l->names.text[p->value], r->session))
			break;
	}
	*ret = (uint32_t)p->value;
	return 0;
}

void names_free(struct names *n)
{
	free(n->known.pairs);
	free(n->text);
}
