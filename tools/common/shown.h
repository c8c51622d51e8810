/* SPDX-License-Identifier: Apache-2.0 */
/* shown.h - texts of foreign origin on a terminal, and how wide it is.
 *
 * Names of files, labels of peers, devices and traces may have any bytes.  A terminal gets those
 * of them that print.  Others become \xNN (a byte) or \uNNNN (a character), so that no label moves
 * the cursor or hides. */
#ifndef GPC_TOOLS_SHOWN_H
#define GPC_TOOLS_SHOWN_H

#include <stddef.h>
#include <stdint.h>

/* The length of the UTF-8 character at s, and its number in *ret; 0: there is none. */
size_t shown_decode(const char *s, uint32_t *ret);
/* Copy, cut to the room. */
void shown_text(char *to, size_t room, const char *from);
/* Columns that a text of shown_text takes. */
unsigned shown_width(const char *text);
/* Cut it to this many columns; the rest becomes "...". */
void shown_cut(char *text, unsigned columns);
/* The bytes of the part of a text that fits on a line of this many columns.  It is broken at a
 * blank, if there is one, which becomes the next line's first byte. */
size_t shown_line(const char *text, unsigned columns);
/* The columns of the terminal of a descriptor: COLUMNS, or the terminal's own answer.  0: it is no
 * terminal, and its text is neither cut nor wrapped. */
unsigned shown_columns(int fd);

/* A kind of pool: VRAM, RAM, DISK, REMOTE. */
const char *shown_kind(uint32_t kind);
/* Of a tier: down, up, off. */
const char *shown_tier_state(uint32_t state);

#endif
