/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - text that people read: UTF-8 without control characters.
 *
 * Names, labels and device strings come from other processes and from the bytes of segments.
 * text_clean() gives them a form for a terminal or a log, which moves no cursor and begins no
 * escape sequence. */
#ifndef GPC_TEXT_H
#define GPC_TEXT_H

#include "index/base/base.h"

/* The position of the first byte of s[0 .. n) that is no such text; n if all of it is. */
size_t text_bad_byte(const char *s, size_t n);
/* Copy a string, cut to the room; each byte that is no such text becomes \xNN. */
void text_clean(char *to, size_t room, const char *from);

#endif
