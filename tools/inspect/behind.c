/* SPDX-License-Identifier: Apache-2.0 */
/* The process that eviction waits for: blocks are dying, and this process has the oldest open
 * section.  The section of a lookup lasts microseconds.  A section that lasts longer belongs to a
 * process that is stopped, or that forgot it.  No block that dies after the section's beginning is
 * free before its end.
 * Tests: t/tools/behind.t */
#include "config.h"

#include "tools/inspect/inspect.h"
#include "tools/inspect/sample.h"
#include "tools/common/output.h"

/* null: eviction waits for no process. */
json_t *inspect_behind(gpc *c, const struct gpc_info *info)
{
	struct gpc_stats all = { .size = sizeof(all) }, best = { 0 };
	char text[256];
	int peer = -1, stopped;
	json_t *o;

	if (gpc_stats_get(c, -1, &all) < 0)
		return json_null();
	for (uint32_t i = 0; all.dying && i < info->max_peers; i++) {
		struct gpc_stats st = { .size = sizeof(st) };

		if (gpc_stats_get(c, (int)i, &st) < 0 ||
		    !sample_is_behind(all.dying, &st, best.oldest_section_ns))
			continue;
		best = st;
		peer = (int)i;
	}
	if (peer < 0)
		return json_null();
	stopped = cli_stopped(&best);
	sample_behind_text(&best, stopped, text, sizeof(text));
	o = out_need(json_object());
	json_object_set_new(o, "peer", out_need(json_integer(peer)));
	json_object_set_new(o, "pid", out_need(json_integer(best.pid)));
	json_object_set_new(o, "label", out_string(best.label, sizeof(best.label)));
	json_object_set_new(o, "here", json_boolean(best.here));
	json_object_set_new(o, "stopped", stopped < 0 ? json_null() : json_boolean(stopped));
	json_object_set_new(o, "section_ns",
			    out_need(json_integer((json_int_t)best.oldest_section_ns)));
	json_object_set_new(o, "text", out_string(text, sizeof(text)));
	return o;
}

bool inspect_show_behind(const json_t *behind)
{
	const char *text = json_string_value(json_object_get(behind, "text"));

	if (text)
		out_line("%s", text);
	return text != NULL;
}
