/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - which bytes are text; makes the others visible.
 * Tests: t/tools/foreign-text.t */
#include "index/base/text.h"

#include <stdio.h>
#include <string.h>

/* Bytes of the character at s[0 .. n), or 0: these are control characters (C0, DEL, C1), and
 * sequences that RFC 3629 calls ill-formed: overlong, surrogates, beyond U+10FFFF, cut. */
static size_t character(const unsigned char *s, size_t n)
{
	static const unsigned long least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	unsigned long c = s[0];
	size_t len, i;

	if (c < 0x80)
		return c >= 0x20 && c != 0x7f;
	len = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
	if (c < 0xc2 || c > 0xf4 || len > n)
		return 0;
	c &= 0xff >> (len + 1);
	for (i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) || c < 0xa0)
		return 0;
	return len;
}

size_t text_bad_byte(const char *s, size_t n)
{
	size_t i = 0, len;

	while (i < n && (len = character((const unsigned char *)s + i, n - i)) != 0)
		i += len;
	return i;
}

void text_clean(char *to, size_t room, const char *from)
{
	size_t n = strlen(from), i, len, used = 0;

	for (i = 0; i < n; i += MAX(len, (size_t)1)) {
		len = character((const unsigned char *)from + i, n - i);
		if (used + MAX(len, (size_t)4) >= room)
			break;
		if (len)
			memcpy(to + used, from + i, len);
		else
			snprintf(to + used, 5, "\\x%02x", (unsigned char)from[i]);
		used += len ? len : 4;
	}
	to[used] = 0;
}
