/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of foreign origin: shown.h.
 * Tests: t/tools/width.t t/tools/foreign-text.t t/tools/top-layout.t */
#include "config.h"

#include "tools/common/shown.h"

#include "gpc.h"
#include "gpc_tiers.h"

#include <langinfo.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

enum { COLUMNS_LEAST = 20, COLUMNS_USUAL = 80, COLUMNS_MOST = 10000 };

size_t shown_decode(const char *s, uint32_t *ret)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const unsigned char *u = (const unsigned char *)s;
	uint32_t c = u[0];
	size_t len, i;

	*ret = c;
	if (c < 0x80)
		return c != 0;
	len = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
	if (c < 0xc2 || c > 0xf4)
		return 0;
	c &= 0xff >> (len + 1);
	for (i = 1; i < len; i++) {
		if ((u[i] & 0xc0) != 0x80) /* this also stops at the final 0 */
			return 0;
		c = c << 6 | (u[i] & 0x3f);
	}
	*ret = c;
	return c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : len;
}

/* These characters take no room, and change those around them, for instance their direction. */
static bool is_unseen(uint32_t c)
{
	return (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
	       (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || c == 0xad || c == 0x61c ||
	       (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe0fff);
}

/* In the locale of this process, which has the terminal. */
static bool prints(uint32_t c)
{
	if (c < 0x80)
		return c >= 0x20 && c != 0x7f;
	return c >= 0xa0 && !is_unseen(c) && strcmp(nl_langinfo(CODESET), "UTF-8") == 0 &&
	       wcwidth((wchar_t)c) >= 0;
}

void shown_text(char *to, size_t room, const char *from)
{
	size_t used = 0, len;
	char piece[16];
	uint32_t c;

	for (; *from; from += len) {
		len = shown_decode(from, &c);
		if (!len || c < 0x20 || c == 0x7f)
			snprintf(piece, sizeof(piece), "\\x%02x", (unsigned char)*from);
		else if (!prints(c))
			snprintf(piece, sizeof(piece), c > 0xffff ? "\\U%08x" : "\\u%04x", c);
		else
			snprintf(piece, sizeof(piece), "%.*s", (int)len, from);
		len = len ? len : 1;
		if (used + strlen(piece) >= room)
			break;
		memcpy(to + used, piece, strlen(piece));
		used += strlen(piece);
	}
	to[used] = 0;
}

static unsigned width_of(uint32_t c)
{
	int n = c < 0x80 ? 1 : wcwidth((wchar_t)c);

	return n < 0 ? 1 : (unsigned)n;
}

/* Bytes of the text that fit; *ret_width: their columns. */
static size_t fitting(const char *text, unsigned columns, unsigned *ret_width)
{
	size_t used = 0, len;
	uint32_t c;

	*ret_width = 0;
	while ((len = shown_decode(text + used, &c)) != 0) {
		if (*ret_width + width_of(c) > columns)
			break;
		*ret_width += width_of(c);
		used += len;
	}
	return used;
}

unsigned shown_width(const char *text)
{
	unsigned width;

	fitting(text, UINT32_MAX / 2, &width);
	return width;
}

void shown_cut(char *text, unsigned columns)
{
	unsigned width, dots = columns < 3 ? columns : 3;

	if (!text[fitting(text, columns, &width)])
		return;
	/* the dots are no longer than the text that they replace */
	strcpy(text + fitting(text, columns - dots, &width), &"..."[3 - dots]);
}

size_t shown_line(const char *text, unsigned columns)
{
	unsigned width;
	size_t n = fitting(text, columns, &width), at = n;

	if (!text[n])
		return n;
	while (at && text[at] != ' ')
		at--;
	return at ? at : n ? n : strlen(text);
}

unsigned shown_columns(int fd)
{
	const char *text = getenv("COLUMNS");
	struct winsize size;
	long n = text ? strtol(text, NULL, 10) : 0;

	if (!isatty(fd))
		return 0;
	if (n <= 0 && ioctl(fd, TIOCGWINSZ, &size) == 0)
		n = size.ws_col;
	if (n <= 0 || n > COLUMNS_MOST)
		n = COLUMNS_USUAL;
	return n < COLUMNS_LEAST ? COLUMNS_LEAST : (unsigned)n;
}

const char *shown_kind(uint32_t kind)
{
	static const char *const names[] = {
		[GPC_VRAM] = "VRAM", [GPC_RAM] = "RAM", [GPC_DISK] = "DISK", [GPC_REMOTE] = "REMOTE"
	};

	return kind >= GPC_VRAM && kind <= GPC_REMOTE ? names[kind] : "-";
}

const char *shown_tier_state(uint32_t state)
{
	static const char *const names[] = {
		[GPC_TIER_DOWN] = "down",
		[GPC_TIER_UP] = "up",
		[GPC_TIER_OFF] = "off",
		[GPC_TIER_STOPPED] = "stopped",
	};

	return state < sizeof(names) / sizeof(*names) ? names[state] : "-";
}
