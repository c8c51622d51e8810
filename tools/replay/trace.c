/* SPDX-License-Identifier: Apache-2.0 */
/* One request a line: {"timestamp": t, "input_length": n, "output_length": n,
 * "hash_ids": [id, ...]}.  Each id names a whole prefix, so it has one predecessor
 * wherever it appears; a trace that breaks this would make hits that mean nothing, and
 * is refused.
 * Tests: t/fuzz/trace.t t/tools/replay-trace.t */
#include "config.h"

#include "tools/replay/replay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_ID UINT64_MAX /* predecessor of a first block; ids stay below it */

struct parent {
	uint64_t id, before;
	uint32_t line;
}; /* line 0: an empty place */

struct loader {
	const char *path;
	uint32_t line;
	struct trace t;
	size_t ids_room, start_room;
	struct parent *parents; /* hash table, at most half full */
	size_t places, known;
};

static int complain(const struct loader *l, const char *what)
{
	cli_error("%s:%u: %s", l->path, l->line, what);
	return -1;
}

/* *array has room for one more than n afterwards. */
static int make_room(void **array, size_t *room, size_t n, size_t item)
{
	size_t more = *room ? 2 * *room : 1024;
	void *p;

	if (n < *room)
		return 0;
	p = reallocarray(*array, more, item);
	if (!p) {
		cli_error("out of memory");
		return -1;
	}
	*array = p;
	*room = more;
	return 0;
}

/* ---- predecessors ---- */

static struct parent *place_of(const struct loader *l, uint64_t id)
{
	size_t i = (size_t)((id * 0x9e3779b97f4a7c15u) >> 20) & (l->places - 1);

	while (l->parents[i].line && l->parents[i].id != id)
		i = (i + 1) & (l->places - 1);
	return &l->parents[i];
}

static int grow_parents(struct loader *l)
{
	struct loader old = *l;

	l->places = l->places ? 2 * l->places : 4096;
	l->parents = calloc(l->places, sizeof(*l->parents));
	if (!l->parents) {
		l->parents = old.parents;
		l->places = old.places;
		cli_error("out of memory");
		return -1;
	}
	for (size_t i = 0; i < old.places; i++)
		if (old.parents[i].line)
			*place_of(l, old.parents[i].id) = old.parents[i];
	free(old.parents);
	return 0;
}

/* In the request that is being read. */
static bool comes_before(const struct loader *l, uint64_t id)
{
	for (uint64_t i = l->t.start[l->t.requests]; i < l->t.refs; i++)
		if (l->t.ids[i] == id)
			return true;
	return false;
}

static int check_parent(struct loader *l, uint64_t id, uint64_t before)
{
	struct parent *p;
	char text[128];

	if (2 * l->known >= l->places && grow_parents(l))
		return -1;
	p = place_of(l, id);
	if (!p->line) {
		*p = (struct parent){ id, before, l->line };
		l->known++;
	} else if (p->before != before && comes_before(l, id)) {
		snprintf(text, sizeof(text), "id %llu comes twice in one request",
			 (unsigned long long)id);
		return complain(l, text);
	} else if (p->before != before) {
		snprintf(text, sizeof(text), "id %llu has another predecessor here than in line %u",
			 (unsigned long long)id, p->line);
		return complain(l, text);
	}
	return 0;
}

/* ---- lines ---- */

static int take_id(struct loader *l, const json_t *item, uint64_t *before)
{
	uint64_t id = (uint64_t)json_integer_value(item);

	if (!json_is_integer(item) || json_integer_value(item) < 0)
		return complain(l, "hash_ids holds something else than whole numbers >= 0");
	if (check_parent(l, id, *before) ||
	    make_room((void **)&l->t.ids, &l->ids_room, l->t.refs, sizeof(*l->t.ids)))
		return -1;
	l->t.ids[l->t.refs++] = id;
	*before = id;
	return 0;
}

static int check_fields(const struct loader *l, const json_t *o)
{
	static const char *const lengths[] = { "input_length", "output_length" };
	const json_t *v = json_object_get(o, "timestamp");

	if (v && !json_is_number(v))
		return complain(l, "timestamp is not a number");
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		v = json_object_get(o, lengths[i]);
		if (v && (!json_is_integer(v) || json_integer_value(v) < 0))
			return complain(l, "a length is not a whole number >= 0");
	}
	return 0;
}

static int take_request(struct loader *l, const json_t *o)
{
	const json_t *ids = json_object_get(o, "hash_ids"), *item;
	uint64_t before = NO_ID, n = json_array_size(ids);
	size_t i;

	if (!json_is_object(o))
		return complain(l, "not a JSON object");
	if (!json_is_array(ids))
		return complain(l, "there is no array hash_ids");
	if (check_fields(l, o))
		return -1;
	if (n > INT32_MAX || l->t.requests == UINT32_MAX - 1)
		return complain(l, "too long");
	json_array_foreach((json_t *)ids, i, item) if (take_id(l, item, &before)) return -1;
	if (make_room((void **)&l->t.start, &l->start_room, l->t.requests + 1, sizeof(*l->t.start)))
		return -1;
	l->t.start[++l->t.requests] = l->t.refs;
	if (n > l->t.longest)
		l->t.longest = (uint32_t)n;
	return 0;
}

static int take_line(struct loader *l, const char *text, size_t len)
{
	json_error_t error;
	json_t *o;
	int r;

	if (strspn(text, " \t\r\n") == len)
		return 0;
	o = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
	if (!o) {
		cli_error(
			"%s:%u: no JSON: %s; each line of a trace is one JSON object, see gpc-replay(1)",
			l->path, l->line, error.text);
		return -1;
	}
	r = take_request(l, o);
	json_decref(o);
	return r;
}

static int take_file(struct loader *l, FILE *f)
{
	char *text = NULL;
	size_t room = 0;
	ssize_t len;
	int r = make_room((void **)&l->t.start, &l->start_room, 0, sizeof(*l->t.start));

	if (!r)
		l->t.start[0] = 0;
	while (!r && (len = getline(&text, &room, f)) >= 0) {
		l->line++;
		r = take_line(l, text, (size_t)len);
	}
	free(text);
	if (!r && ferror(f)) {
		cli_error("%s: %s", l->path, strerror(errno));
		r = -1;
	}
	if (!r && !l->t.requests) {
		cli_error("%s: there are no requests in it", l->path);
		r = -1;
	}
	return r;
}

int trace_load(const char *path, struct trace *ret)
{
	struct loader l = { .path = path };
	FILE *f = strcmp(path, "-") ? fopen(path, "re") : stdin;
	int r;

	if (!f) {
		cli_error("%s: %s", path, strerror(errno));
		return -1;
	}
	r = take_file(&l, f);
	if (f != stdin)
		fclose(f);
	free(l.parents);
	if (r)
		trace_free(&l.t);
	else
		*ret = l.t;
	return r;
}

void trace_free(struct trace *t)
{
	free(t->ids);
	free(t->start);
	*t = (struct trace){ 0 };
}
