/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of one row.
 *
 *   field            a whole prompt                a turn
 *   hash_ids         required: whole numbers >= 0  required: whole numbers >= 0
 *   input_length     a length                      required: a length
 *   output_length    a length                      a length
 *   timestamp        a number                      0 to 1e15 ms
 *   delay            not read                      0 to 1e15 ms
 *   is_restart       not read                      true or false
 *   session          a name or a number            not read
 *   session_id       absent or null                required: a name
 *
 * A length is 0 to LENGTH_MOST, and a name has 1 to SESSION_MOST bytes.  A field that is not
 * required may be absent.  Fields of other names are not read.
 * Tests: t/tools/replay-trace.t t/fuzz/trace.t t/tools/replay-turns.t */
#include "config.h"

#include "tools/common/cli.h"
#include "tools/common/shown.h"
#include "tools/replay/trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_COLUMNS = 40 };
#define MS_MOST 1e15

int trace_complain(const struct loader *l, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	cli_error("%s:%u: %s", l->path, l->line, text);
	return -1;
}

int trace_bad(const struct loader *l, const char *field, const json_t *v, const char *wanted)
{
	char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
	char shown[512];

	if (!v)
		return trace_complain(l, "%s is missing: %s", field, wanted);
	shown_text(shown, sizeof(shown), text ? text : "?");
	free(text);
	shown_cut(shown, VALUE_COLUMNS);
	return trace_complain(l, "%s: %s is not %s", field, shown, wanted);
}

static int take_ids(const struct loader *l, const json_t *o, struct row *r)
{
	const json_t *ids = json_object_get(o, "hash_ids"), *item;
	char field[48];
	size_t i;

	if (!json_is_array(ids))
		return trace_bad(l, "hash_ids", ids, "an array of whole numbers");
	if (json_array_size(ids) > INT32_MAX)
		return trace_complain(l, "hash_ids: %zu ids are more than %d", json_array_size(ids),
				      INT32_MAX);
	json_array_foreach((json_t *)ids, i, item)
	{
		if (json_is_integer(item) && json_integer_value(item) >= 0)
			continue;
		snprintf(field, sizeof(field), "hash_ids[%zu]", i);
		return trace_bad(l, field, item, "a whole number from 0 to 9223372036854775807");
	}
	r->ids = ids;
	r->n = (uint32_t)json_array_size(ids);
	return 0;
}

static int take_length(const struct loader *l, const json_t *o, const char *field, bool wanted,
		       uint64_t *ret)
{
	static const char what[] = "a whole number from 0 to 2147483647";
	const json_t *v = json_object_get(o, field);

	if (!v && !wanted)
		return 0;
	if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > LENGTH_MOST)
		return trace_bad(l, field, v, what);
	*ret = (uint64_t)json_integer_value(v);
	return 0;
}

static int take_ms(const struct loader *l, const json_t *o, const char *field, uint64_t *ret_us)
{
	const json_t *v = json_object_get(o, field);

	if (!v)
		return 0;
	if (!json_is_number(v) || !(json_number_value(v) >= 0 && json_number_value(v) <= MS_MOST))
		return trace_bad(l, field, v, "a number from 0 to 1e15");
	*ret_us = (uint64_t)(json_number_value(v) * 1000 + 0.5);
	return 0;
}

static int take_name(const struct loader *l, const char *field, const json_t *v, struct row *r)
{
	size_t n = json_string_length(v);

	if (!v || json_is_null(v))
		return 0;
	if (json_is_integer(v) && json_integer_value(v) >= 0 && !r->turn)
		snprintf(r->session, sizeof(r->session), "%lld", json_integer_value(v));
	else if (json_is_string(v) && n && n <= SESSION_MOST)
		memcpy(r->session, json_string_value(v), n + 1);
	else
		return trace_bad(l, field, v,
				 r->turn ? "a string of 1 to 256 bytes"
					 : "a whole number >= 0 or a string of 1 to 256 bytes");
	r->named = true;
	return 0;
}

static int take_turn(const struct loader *l, const json_t *o, struct row *r)
{
	const json_t *restart = json_object_get(o, "is_restart");

	if (take_name(l, "session_id", json_object_get(o, "session_id"), r) ||
	    take_ms(l, o, "timestamp", &r->start_us) || take_ms(l, o, "delay", &r->delay_us))
		return -1;
	if (restart && !json_is_boolean(restart))
		return trace_bad(l, "is_restart", restart, "true or false");
	r->restart = json_is_true(restart);
	return 0;
}

int row_take(const struct loader *l, const json_t *o, struct row *ret)
{
	const json_t *id = json_object_get(o, "session_id"), *v;

	*ret = (struct row){ .turn = id && !json_is_null(id) };
	if (!json_is_object(o))
		return trace_bad(l, "the row", o, "a JSON object");
	if (take_ids(l, o, ret) || take_length(l, o, "input_length", ret->turn, &ret->input) ||
	    take_length(l, o, "output_length", false, &ret->output))
		return -1;
	if (ret->turn)
		return take_turn(l, o, ret);
	v = json_object_get(o, "timestamp");
	if (v && !json_is_number(v))
		return trace_bad(l, "timestamp", v, "a number");
	return take_name(l, "session", json_object_get(o, "session"), ret);
}
