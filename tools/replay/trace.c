/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a trace, each of them a row of one format: see trace.h.
 *
 * An id of a whole prompt names a whole prefix, so it has one predecessor wherever it appears.  A
 * trace that breaks this rule would make hits that mean nothing, so it is refused.
 * Tests: t/tools/replay-trace.t t/fuzz/trace.t t/tools/replay-turns.t */
#include "config.h"

#include "tools/common/cli.h"
#include "tools/replay/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int trace_room(void **array, size_t *room, size_t n, size_t item)
{
	size_t more = *room ? 2 * *room : 8;
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

/* ---- whole prompts ---- */

/* Is the id in the request that is being read? */
static bool comes_before(const struct loader *l, uint64_t id)
{
	for (uint64_t i = l->t.start[l->t.requests]; i < l->t.refs; i++)
		if (l->t.ids[i] == id)
			return true;
	return false;
}

static int take_id(struct loader *l, uint64_t id, uint64_t before)
{
	const struct known_pair *p = known_add(&l->parents, id, 0, before, l->line);

	if (!p)
		return -1;
	if (p->value != before && comes_before(l, id))
		return trace_complain(l, "hash_ids: id %llu comes twice in one request",
				      (unsigned long long)id);
	if (p->value != before)
		return trace_complain(
			l, "hash_ids: id %llu has another predecessor here than in line %u",
			(unsigned long long)id, p->line);
	if (trace_room((void **)&l->t.ids, &l->ids_room, l->t.refs, sizeof(*l->t.ids)))
		return -1;
	l->t.ids[l->t.refs++] = id;
	return 0;
}

static int take_prompt(struct loader *l, const struct row *r, uint32_t session)
{
	uint64_t before = NO_ID, id;
	const json_t *item;
	size_t i;

	json_array_foreach((json_t *)r->ids, i, item)
	{
		id = (uint64_t)json_integer_value(item);
		if (take_id(l, id, before))
			return -1;
		before = id;
	}
	if (trace_room((void **)&l->t.session, &l->session_room, l->t.requests,
		       sizeof(*l->t.session)) ||
	    trace_room((void **)&l->t.start, &l->start_room, l->t.requests + 1,
		       sizeof(*l->t.start)))
		return -1;
	l->t.session[l->t.requests] = session;
	l->t.start[++l->t.requests] = l->t.refs;
	if (r->n > l->t.longest)
		l->t.longest = r->n;
	return 0;
}

/* ---- lines ---- */

/* The first row decides the format. */
static int check_format(struct loader *l, const struct row *r)
{
	if (!l->first) {
		l->first = l->line;
		l->t.turns = r->turn;
	}
	if (r->turn == l->t.turns)
		return 0;
	return trace_complain(
		l,
		"session_id: this row has %s, and line %u has %s: the rows of a trace are "
		"all whole prompts or all turns",
		r->turn ? "one" : "none", l->first, r->turn ? "none" : "one");
}

static int take_row(struct loader *l, const json_t *o)
{
	struct row r;
	uint32_t session;

	if (l->line == UINT32_MAX)
		return trace_complain(l, "the trace has too many lines");
	if (row_take(l, o, &r) || check_format(l, &r) || names_add(l, &r, &session))
		return -1;
	return r.turn ? turns_take(l, &r, session) : take_prompt(l, &r, session);
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
	r = take_row(l, o);
	json_decref(o);
	return r;
}

static int take_file(struct loader *l, FILE *f)
{
	char *text = NULL;
	size_t room = 0;
	ssize_t len;
	int r = trace_room((void **)&l->t.start, &l->start_room, 0, sizeof(*l->t.start));

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
	if (!r)
		r = turns_end(l);
	if (!r && !l->t.requests) {
		cli_error("%s: there are no requests in it", l->path);
		r = -1;
	}
	return r;
}

int trace_load(const char *path, const struct trace_options *o, struct trace *ret)
{
	struct loader l = { .path = path, .o = o };
	FILE *f = strcmp(path, "-") ? fopen(path, "re") : stdin;
	int r;

	if (!f) {
		cli_error("%s: %s", path, strerror(errno));
		return -1;
	}
	r = take_file(&l, f);
	if (f != stdin)
		fclose(f);
	free(l.parents.pairs);
	for (uint32_t i = 0; i < l.t.sessions; i++)
		free(l.names.text[i]);
	names_free(&l.names);
	turns_free(l.turns);
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
	free(t->session);
	free(t->hash);
	*t = (struct trace){ 0 };
}
