/* SPDX-License-Identifier: Apache-2.0 */
/* looks.h - a handle looks at whatever the files are, in all the ways that there are of looking:
 * an error has a sentence, nothing goes on for ever. */
#ifndef GPC_T_LOOKS_H
#define GPC_T_LOOKS_H

#include "files.h"

enum { N_DONE, N_REFUSED, N_ATTACHED, N_TAKEN, N_FOUND, N_LINES, N_TOOLS, N_GOOD };

/* An error has a sentence of its own. */
#define said(call) (((char *)gpc_last_error())[0] = 0, has_said((call), #call))

TAP_FN int has_said(int got, const char *call)
{
	need(got >= 0 || *gpc_last_error(), "%s: %d, without a word", call, got);
	return got;
}

TAP_FN void count_line(void *arg, const char *line)
{
	need(strlen(line) < 300, "a long line");
	crew->count[N_LINES]++;
}

TAP_FN void look_up(gpc *c)
{
	gpc_key k[24];
	gpc_block b[24];
	uint32_t i, len, start[2] = { 0, 23 };

	for (i = 0; i < 24; i++)
		k[i] = crew_key(i + 1);
	for (i = 0; i < 24; i++)
		crew->count[N_FOUND] += gpc_lookup(c, 0, &k[i], 1, b, GPC_QUIET) > 0;
	gpc_lookup(c, 0, k, 24, b, 0);
	gpc_lookup(c, 0xffffffff, k, 24, b, 0);
	gpc_match(c, 0, k + 1, start, 1, &len, b, 0);
	gpc_alias_resolve(c, k, 24);
	gpc_root_get(c, k, NULL, 0, NULL, 0);
}

TAP_FN void look_around(gpc *c, bool check)
{
	struct gpc_info info = { .size = sizeof(info) };
	struct gpc_stats st = { .size = sizeof(st) };
	struct gpc_mirror mirror = { .size = sizeof(mirror) };
	struct gpc_pool pool = { .size = sizeof(pool) };
	struct gpc_entry entry[8];
	struct gpc_event change[8];
	uint64_t cursor = 0;
	int i;

	said(gpc_info_get(c, &info));
	said(gpc_stats_get(c, -1, &st));
	said(gpc_stats_get(c, (int)random_below(PEERS + 1), &st));
	for (i = 0; i < 5; i++) {
		said(gpc_pool_get(c, i, &pool));
		said(gpc_pool_available(c, i));
		said(gpc_mirror_get(c, i, &mirror));
	}
	for (i = 0; said(gpc_walk(c, &cursor, entry, 8)) > 0; i++)
		need(i < 100, "a walk without end");
	for (cursor = 0, i = 0; i < 3000; i++)
		if (said(gpc_event_read(c, &cursor, change, 8)) <= 0)
			break;
	if (check)
		need(said(gpc_check(c, count_line, NULL)) < 3000, "a check without end");
}

#endif
