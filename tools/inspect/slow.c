/* SPDX-License-Identifier: Apache-2.0 */
/* slow: calls that have waited long for the writer, the newest last.
 * Tests: t/tools/slow.t */
#include "config.h"

#include "gpc_serve.h"
#include "tools/inspect/inspect.h"
#include "tools/common/output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 256 };

static const struct column columns[] = {
	{ "AGO", "age_ns", SHOW_AGE },     { "TOOK", "took_ns", SHOW_AGE },
	{ "PEER", "peer", SHOW_TEXT },     { "PID", "pid", SHOW_TEXT },
	{ "LABEL", "label", SHOW_TEXT },   { "COMMAND", "command", SHOW_TEXT },
	{ "BLOCKS", "blocks", SHOW_TEXT }, { "ENDED", "ended", SHOW_TEXT },
};

static const char *ended(const struct gpc_slow *s)
{
	return !s->error                ? "answered"
	       : s->error == -ETIMEDOUT ? "time was up"
	       : s->error == -ENOTCONN  ? "no writer"
					: "given up";
}

/* The label is that of the process that has the seat now, if it is still the same process. */
static json_t *describe(gpc *c, const struct gpc_slow *s)
{
	struct gpc_stats st = { .size = sizeof(st) };
	bool same = gpc_stats_get(c, s->peer, &st) >= 0 && st.pid == s->pid;
	json_t *o = out_need(json_object());

	uint64_t now = cli_now_ns();

	json_object_set_new(
		o, "age_ns",
		out_need(json_integer((json_int_t)(now > s->ended_ns ? now - s->ended_ns : 0))));
	json_object_set_new(o, "took_ns", out_need(json_integer((json_int_t)s->took_ns)));
	json_object_set_new(o, "peer", out_need(json_integer(s->peer)));
	json_object_set_new(o, "pid", out_need(json_integer(s->pid)));
	json_object_set_new(o, "label",
			    same ? out_string(st.label, sizeof(st.label)) : json_null());
	json_object_set_new(o, "command",
			    *s->command ? out_string(s->command, sizeof(s->command)) : json_null());
	json_object_set_new(o, "blocks", out_need(json_integer(s->blocks)));
	json_object_set_new(o, "ended", out_need(json_string(ended(s))));
	return o;
}

static int older_first(const void *a, const void *b)
{
	uint64_t x = ((const struct gpc_slow *)a)->ended_ns,
		 y = ((const struct gpc_slow *)b)->ended_ns;

	return x < y ? -1 : x > y;
}

/* 0, or a negative errno; *ret is to be freed. */
static int list(gpc *c, struct gpc_slow **ret, size_t *ret_n)
{
	uint64_t cursor = 0;
	int n;

	*ret = NULL;
	*ret_n = 0;
	do {
		*ret = realloc(*ret, (*ret_n + BATCH) * sizeof(**ret));
		if (!*ret)
			out_need(NULL);
		n = gpc_slow_walk(c, &cursor, *ret + *ret_n, BATCH);
		*ret_n += n > 0 ? (size_t)n : 0;
	} while (n > 0);
	qsort(*ret, *ret_n, sizeof(**ret), older_first);
	return n;
}

int inspect_slow(struct inspect *in)
{
	json_t *rows = out_need(json_array());
	struct gpc_slow *all = NULL;
	size_t n = 0, i;
	int64_t ms = 0;
	gpc *c;
	int status = inspect_open(in, GPC_READONLY, &c), r;

	if (status)
		return status;
	r = list(c, &all, &n);
	if (r == 0)
		r = gpc_setting_get(c, GPC_SET_SLOW_MS, -1, &ms);
	for (i = n > in->limit ? n - in->limit : 0; r == 0 && i < n; i++)
		json_array_append_new(rows, describe(c, &all[i]));
	free(all);
	if (r < 0)
		cli_gpc_error(r, "%s", in->name);
	gpc_close(c);
	if (r == 0 && in->json) {
		json_t *o = out_need(json_object());

		json_object_set_new(o, "slow_ms", out_need(json_integer(ms)));
		json_object_set_new(o, "slow", rows);
		out_json(o);
		return EXIT_SUCCESS;
	}
	if (r == 0 && json_array_size(rows))
		out_table(columns, ARRAY_SIZE(columns), rows);
	else if (r == 0)
		printf(ms ? "%s: no call of these processes took more than %lld ms\n"
			  : "%s: nobody notes slow calls: slow-ms is %lld\n",
		       in->name, (long long)ms);
	json_decref(rows);
	return r ? EXIT_RUNTIME : EXIT_SUCCESS;
}
