/* SPDX-License-Identifier: Apache-2.0 */
/* The tiers below RAM, for stat.
 * Tests: t/daemon/disk.t */
#include "config.h"

#include "tools/inspect/inspect.h"
#include "tools/common/shown.h"
#include "tools/common/output.h"

#include <stdio.h>

static const struct column columns[] = {
	{ "TIER", "kind", SHOW_TEXT },       { "POOL", "pool", SHOW_TEXT },
	{ "STEWARD", "steward", SHOW_TEXT }, { "READY", "ready", SHOW_TEXT },
	{ "STATE", "state", SHOW_TEXT },     { "IMAGE", "block_bytes", SHOW_BYTES },
	{ "BROUGHT", "brought", SHOW_TEXT }, { "BROUGHT BYTES", "brought_bytes", SHOW_BYTES },
	{ "WRITTEN", "written", SHOW_TEXT }, { "WRITTEN BYTES", "written_bytes", SHOW_BYTES },
	{ "FOUND", "found", SHOW_TEXT },     { "BAD", "bad", SHOW_TEXT },
	{ "ERRORS", "errors", SHOW_TEXT },   { "LATE", "late", SHOW_TEXT },
	{ "NO RAM", "no_ram", SHOW_TEXT },   { "FAILED", "failed", SHOW_TEXT },
	{ "FULL", "full", SHOW_TEXT },       { "DOWN", "down", SHOW_TEXT },
};

static json_t *describe_own(const struct gpc_tier *t)
{
	json_t *o = out_need(json_object());

	for (uint32_t i = 0; i < t->ncounters; i++)
		json_object_set_new(o, t->counter[i].name,
				    out_need(json_integer((json_int_t)t->counter[i].value)));
	return o;
}

static json_t *describe(const struct gpc_tier *t)
{
	const struct {
		const char *field;
		uint64_t v;
	} numbers[] = {
		{ "ready", t->ready },
		{ "block_bytes", t->block_bytes },
		{ "asks", t->asks },
		{ "hits", t->hits },
		{ "misses", t->misses },
		{ "brought", t->brought },
		{ "brought_bytes", t->brought_bytes },
		{ "written", t->written },
		{ "written_bytes", t->written_bytes },
		{ "absent", t->absent },
		{ "bad", t->bad },
		{ "errors", t->errors },
		{ "late", t->late },
		{ "overtaken", t->overtaken },
		{ "no_ram", t->no_ram },
		{ "refused", t->refused },
		{ "failed", t->failed },
		{ "unwanted", t->unwanted },
		{ "overrun", t->overrun },
		{ "evicted", t->evicted },
		{ "aged", t->aged },
		{ "forgotten", t->forgotten },
		{ "found", t->found },
		{ "restored", t->restored },
		{ "orphans", t->orphans },
		{ "full", t->full },
		{ "down", t->down },
		{ "asked", t->asked },
		{ "there", t->there },
		{ "emptied", t->emptied },
	};
	json_t *o = out_need(json_object());

	json_object_set_new(o, "kind", out_need(json_string(shown_kind(t->kind))));
	json_object_set_new(o, "state", out_need(json_string(shown_tier_state(t->state))));
	json_object_set_new(o, "pool", t->pool < 0 ? json_null() : out_need(json_integer(t->pool)));
	json_object_set_new(o, "steward",
			    t->steward < 0 ? json_null() : out_need(json_integer(t->steward)));
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		json_object_set_new(o, numbers[i].field,
				    out_need(json_integer((json_int_t)numbers[i].v)));
	json_object_set_new(o, "counters", describe_own(t));
	json_object_set_new(o, "what", out_string(t->what, sizeof(t->what)));
	return o;
}

json_t *inspect_tiers(gpc *c)
{
	json_t *rows = out_need(json_array());
	struct gpc_tier t = { .size = sizeof(t) };

	for (uint32_t i = 0; gpc_tier_get(c, i, &t) >= 0; i++)
		json_array_append_new(rows, describe(&t));
	return rows;
}

void inspect_show_tiers(const json_t *rows)
{
	if (!json_array_size(rows))
		return;
	out_table(columns, ARRAY_SIZE(columns), rows);
	putchar('\n');
}
