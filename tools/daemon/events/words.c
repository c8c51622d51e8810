/* SPDX-License-Identifier: Apache-2.0 */
/* Adapter and salt of a root.  Most blocks are told one after the other, so the last root is
 * remembered.  The words of a root never change.
 * Tests: t/kv/namespaces.t t/kv/wire.t */
#include "config.h"

#include "tools/daemon/events/words.h"

#include <string.h>

enum { FIELDS = GPC_ROOT_BYTES / 8, ADAPTER = 2, SALT = 3 };

/* The number of bytes of the character that begins there, or 0 if none does.  Surrogates and
 * overlong forms are no characters. */
static uint32_t character(const uint8_t *p, uint32_t n)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	uint32_t many = *p < 0x80       ? 1
			: *p >> 5 == 6  ? 2
			: *p >> 4 == 14 ? 3
			: *p >> 3 == 30 ? 4
					: 0;
	uint32_t value = many == 1 ? *p : *p & (0x7fu >> many);

	if (!many || many > n)
		return 0;
	for (uint32_t i = 1; i < many; i++) {
		if (p[i] >> 6 != 2)
			return 0;
		value = value << 6 | (p[i] & 0x3f);
	}
	return value < least[many] || value > 0x10ffff || value >> 11 == 27 ? 0 : many;
}

bool words_is_text(const void *bytes, uint32_t n)
{
	const uint8_t *p = bytes;
	uint32_t step;

	for (; n; n -= step, p += step) {
		step = character(p, n);
		if (!step)
			return false;
	}
	return true;
}

static void take(struct text *t, const struct gpc_field *f)
{
	if (!t->bytes && f->len && words_is_text(f->data, f->len))
		*t = (struct text){ f->data, f->len };
}

void words_of(struct words *w, gpc *c, const gpc_key *root)
{
	struct gpc_field f[FIELDS];
	int n;

	if (w->root.w[0] == root->w[0] && w->root.w[1] == root->w[1])
		return;
	w->root = (gpc_key){ { 0, 0 } };
	w->adapter = w->salt = (struct text){ NULL, 0 };
	if (!(root->w[0] | root->w[1]))
		return;
	n = gpc_root_get(c, root, f, FIELDS, w->data, sizeof(w->data));
	for (int i = 0; i < n; i++) {
		if (f[i].tag == ADAPTER)
			take(&w->adapter, &f[i]);
		else if (f[i].tag == SALT)
			take(&w->salt, &f[i]);
	}
	if (n >= 0) /* an absent word may be kept a moment later */
		w->root = *root;
}
