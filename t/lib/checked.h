/* SPDX-License-Identifier: Apache-2.0 */
/* checked.h - what gpc_check says of a cache that the test has made. */
#ifndef GPC_T_CHECKED_H
#define GPC_T_CHECKED_H

#include "gpc_look.h"
#include "made.h"

/* ---- what is reported ---- */

static struct {
	char line[8][256];
	int lines;
} heard;

TAP_FN void hear(void *arg, const char *line)
{
	(void)arg;
	if (heard.lines < 8)
		snprintf(heard.line[heard.lines], sizeof(heard.line[0]), "%s", line);
	heard.lines++;
}

TAP_FN int check(struct made *m)
{
	memset(&heard, 0, sizeof(heard));
	return gpc_check(&m->c, hear, NULL);
}

TAP_FN bool was_heard(const char *want)
{
	int i;

	for (i = 0; i < heard.lines && i < 8; i++)
		if (strstr(heard.line[i], want))
			return true;
	return false;
}

TAP_FN void tell(void)
{
	int i;

	for (i = 0; i < heard.lines && i < 8; i++)
		diag("%s", heard.line[i]);
}

/* n violations, and `want` is in the line of one of them. */
TAP_FN void expect(struct made *m, int n, const char *want)
{
	int got = check(m);
	bool good = got == n && heard.lines == n && (!n || was_heard(want));

	if (!ok(good, "%s", n ? want : "nothing"))
		diag("%d violations instead of %d", got, n);
	if (!good)
		tell();
}

/* Set a field, look, set it back. */
#define BREAK(m, field, value, n, want)             \
	do {                                        \
		__typeof__(field) saved_ = (field); \
		(field) = (value);                  \
		expect((m), (n), (want));           \
		(field) = saved_;                   \
	} while (0)

/* ---- a cache with something of everything ---- */

static uint64_t slot_of[4];

TAP_FN void fill(struct made *m)
{
	struct shm_record *r;

	made_add_pool(m, 0, GPC_VRAM, 0, 0, 32);
	made_add_pool(m, 1, GPC_RAM, 1, 32, 16);
	slot_of[0] = made_publish(m, 3, 1, 0, 1);
	slot_of[1] = made_publish(m, 7, 2, 1, 2);
	slot_of[2] = made_publish(m, GPC_BLOCK(1, 1), 1, 0, 1); /* another space: its own */
	slot_of[3] = made_publish(m, GPC_BLOCK(1, 2), 5, 1, 2);
	r = made_record(m, 10);
	r->word = WORD(RESERVED, 1);
	r->owner = MADE_PEER;
	made_record(m, 11)->word = WORD(DYING, 1);
	made_record(m, 11)->owner = SHM_NO_PEER;
}

#endif
