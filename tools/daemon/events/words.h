/* SPDX-License-Identifier: Apache-2.0 */
/* words.h - adapter and salt of a root key, as consumers want them.
 *
 * They are the words that gpc_root_keep was given, if they are text; other bytes would make the
 * batch unreadable. */
#ifndef GPC_TOOLS_EVENTS_WORDS_H
#define GPC_TOOLS_EVENTS_WORDS_H

#include "gpc.h"
#include "gpc_look.h"

#include <stdbool.h>

struct text {
	const char *bytes; /* NULL: there is none */
	uint32_t n;
};

struct words {
	gpc_key root; /* the root that was looked up last; zero: none */
	struct text adapter, salt;
	char data[GPC_ROOT_BYTES];
};

/* The words of that root.  A zero key has none, and neither has a key that the cache does not
 * know. */
void words_of(struct words *w, gpc *c, const gpc_key *root);
/* Is it UTF-8? */
bool words_is_text(const void *bytes, uint32_t n);

#endif
