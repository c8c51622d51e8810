/* SPDX-License-Identifier: Apache-2.0 */
/* The mirrors of a cache, as stat and peers show them.
 * Tests: t/tools/inspect-peers.t */
#include "config.h"

#include "tools/inspect/inspect.h"
#include "gpc_device.h"
#include "tools/common/output.h"

#include <stdio.h>
#include <string.h>

static const struct column columns[] = {
	{ "MIRROR", "device", SHOW_TEXT },    { "UUID", "uuid", SHOW_TEXT },
	{ "SIZE", "bytes", SHOW_BYTES },      { "GENERATION", "generation", SHOW_TEXT },
	{ "SEQUENCE", "flushed", SHOW_TEXT }, { "LAG", "lag", SHOW_TEXT },
	{ "STATE", "state", SHOW_TEXT },
};

static void set(json_t *o, const char *field, uint64_t v)
{
	json_object_set_new(o, field, out_need(json_integer((json_int_t)v)));
}

/* The form that the driver's own tools write; the host has none. */
static json_t *uuid_text(const uint8_t u[16])
{
	static const uint8_t none[16];
	char text[48] = "GPU-";
	size_t at = 4;

	if (!memcmp(u, none, sizeof(none)))
		return json_null();
	for (int i = 0; i < 16; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%02x",
				       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
	return out_need(json_string(text));
}

static bool has_row(const json_t *rows, const char *device)
{
	const json_t *row;
	size_t i;

	json_array_foreach((json_t *)rows, i,
			   row) if (strcmp(json_string_value(json_object_get(row, "device")),
					   device) == 0) return true;
	return false;
}

/* Devices that have no mirror.  Either the writer could not use them and has logged why, or there
 * has been no writer yet. */
static void add_missing(json_t *rows, gpc *c)
{
	struct gpc_info info = { .size = sizeof(info) };
	char *rest = info.devices, *device;

	if (gpc_info_get(c, &info) < 0)
		return;
	info.devices[sizeof(info.devices) - 1] = 0;
	while ((device = strsep(&rest, ",")) != NULL) {
		json_t *text, *o;

		if (!*device || strcmp(device, "none") == 0)
			continue;
		text = out_string(device, strlen(device));
		if (has_row(rows, json_string_value(text))) {
			json_decref(text);
			continue;
		}
		o = out_need(json_object());
		json_object_set_new(o, "device", text);
		json_object_set_new(o, "state", out_need(json_string("no mirror")));
		json_array_append_new(rows, o);
	}
}

json_t *inspect_mirrors(gpc *c)
{
	json_t *rows = out_need(json_array());

	for (int i = 0; i < 2 * GPC_MAX_MIRRORS; i++) {
		struct gpc_mirror m = { .size = sizeof(m) };
		json_t *o;

		if (gpc_mirror_get(c, i, &m) < 0)
			break;
		o = out_need(json_object());
		json_object_set_new(o, "device", out_string(m.device, sizeof(m.device)));
		json_object_set_new(o, "uuid", uuid_text(m.uuid));
		set(o, "generation", m.generation);
		set(o, "bytes", m.bytes);
		set(o, "flushed", m.flushed);
		set(o, "changes", m.changes);
		set(o, "lag", m.changes > m.flushed ? m.changes - m.flushed : 0);
		json_object_set_new(o, "state",
				    out_need(json_string(m.retired ? "retired" : "live")));
		json_array_append_new(rows, o);
	}
	add_missing(rows, c);
	return rows;
}

void inspect_show_mirrors(const json_t *rows)
{
	if (json_array_size(rows))
		out_table(columns, ARRAY_SIZE(columns), rows);
}
