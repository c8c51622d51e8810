/* SPDX-License-Identifier: Apache-2.0 */
/* check: every invariant of the index, each violation a line.
 * Tests: t/tools/inspect.t */
#include "config.h"

#include "tools/inspect/inspect.h"
#include "tools/common/output.h"

#include <stdio.h>

static void take_line(void *arg, const char *line)
{
	json_array_append_new(arg, out_string(line, 500));
}

static void show(const struct inspect *in, int n, const json_t *lines)
{
	size_t i;
	const json_t *line;

	json_array_foreach((json_t *)lines, i, line) out_line("%s", json_string_value(line));
	if (n)
		out_line("%s: %d violation%s", in->name, n, n == 1 ? "" : "s");
	else
		out_line("%s: clean", in->name);
}

int inspect_check(struct inspect *in)
{
	json_t *lines, *o;
	gpc *c;
	int status, n;

	in->cannot_open = CHECK_CANNOT_OPEN;
	status = inspect_open(in, GPC_READONLY, &c);
	if (status)
		return status;
	lines = out_need(json_array());
	n = gpc_check(c, take_line, lines);
	if (n < 0)
		cli_gpc_error(n, "%s", in->name);
	gpc_close(c);
	if (n < 0) {
		json_decref(lines);
		return CHECK_CANNOT_OPEN;
	}
	if (in->json) {
		o = out_need(json_object());
		json_object_set_new(o, "name", out_string(in->name, GPC_MAX_NAME));
		json_object_set_new(o, "violations", out_need(json_integer(n)));
		json_object_set_new(o, "lines", lines);
		out_json(o);
	} else {
		show(in, n, lines);
		json_decref(lines);
	}
	return n ? CHECK_VIOLATIONS : 0;
}
