/* SPDX-License-Identifier: Apache-2.0 */
/* The changes of a cache as they happen: a line each, for people or as JSON.
 * Tests: t/tools/inspect-watch.t */
#include "config.h"

#include "tools/inspect/inspect.h"
#include "tools/common/output.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum { BATCH = 256, PAUSE_MS = 10 };

static const char *word_of(uint32_t what)
{
	static const char *const words[] = { "?",     "stored",  "removed",
					     "moved", "cleared", "returned" };

	return words[what < ARRAY_SIZE(words) ? what : 0];
}

static bool is_key(const gpc_key *k)
{
	return k->w[0] || k->w[1];
}

static void set(json_t *o, const char *field, int64_t v)
{
	json_object_set_new(o, field, out_need(json_integer(v)));
}

/* Fields that say nothing of this change are left out. */
static json_t *describe(const struct gpc_event *e)
{
	json_t *o = out_need(json_object());

	set(o, "seq", (json_int_t)e->seq);
	json_object_set_new(o, "what", out_need(json_string(word_of(e->what))));
	set(o, "pool", GPC_POOL(e->block));
	if (e->what != GPC_CLEARED)
		set(o, "slot", GPC_SLOT(e->block));
	if (e->what == GPC_MOVED) {
		set(o, "from_pool", GPC_POOL(e->was));
		set(o, "from_slot", GPC_SLOT(e->was));
	}
	if (is_key(&e->key))
		json_object_set_new(o, "key", out_key(&e->key));
	if (is_key(&e->parent))
		json_object_set_new(o, "parent", out_key(&e->parent));
	if (e->tag)
		set(o, "tag", e->tag);
	if (e->digest_bytes) {
		set(o, "group", e->group);
		json_object_set_new(o, "digest", out_bytes_hex(e->digest, e->digest_bytes));
	}
	return o;
}

static void show_text(const struct gpc_event *e)
{
	printf("%-8llu %-8s", (unsigned long long)e->seq, word_of(e->what));
	if (e->what == GPC_MOVED)
		printf(" %d:%d ->", GPC_POOL(e->was), GPC_SLOT(e->was));
	if (e->what == GPC_CLEARED)
		printf(" pool %d", GPC_POOL(e->block));
	else
		printf(" %d:%d", GPC_POOL(e->block), GPC_SLOT(e->block));
	if (is_key(&e->key))
		printf(" %016llx%016llx", (unsigned long long)e->key.w[0],
		       (unsigned long long)e->key.w[1]);
	if (is_key(&e->parent))
		printf(" below %016llx%016llx", (unsigned long long)e->parent.w[0],
		       (unsigned long long)e->parent.w[1]);
	if (e->tag)
		printf(" tag %u", e->tag);
	putchar('\n');
}

static void show(json_t *o)
{
	out_dump(o, JSON_COMPACT);
	putchar('\n');
	json_decref(o);
}

/* `from` is a number that no change has had yet, as after the cache was made anew.  The changes
 * that come next are shown. */
static void show_ahead(const struct inspect *in, uint64_t from, uint64_t last)
{
	json_t *o;

	if (!in->json) {
		printf("%-8llu ahead    of the last change, %llu: those behind that one follow\n",
		       (unsigned long long)from, (unsigned long long)last);
		return;
	}
	o = out_need(json_object());
	set(o, "seq", (json_int_t)from);
	json_object_set_new(o, "what", out_need(json_string("ahead")));
	set(o, "last", (json_int_t)last);
	show(o);
}

/* Changes that can no longer be read get a line of their own, since the numbers go on after
 * them. */
static void show_lost(const struct inspect *in, uint64_t from, uint64_t to)
{
	json_t *o;

	if (!in->json) {
		printf("%-8llu lost     up to %llu: they were overwritten before they were read\n",
		       (unsigned long long)from, (unsigned long long)to);
		return;
	}
	o = out_need(json_object());
	set(o, "seq", (json_int_t)from);
	json_object_set_new(o, "what", out_need(json_string("lost")));
	set(o, "to", (json_int_t)to);
	show(o);
}

/* Shows some changes; returns how many, or a negative errno. */
static int show_some(const struct inspect *in, gpc *c, uint64_t *cursor, uint32_t most)
{
	struct gpc_event e[BATCH];
	uint64_t before = *cursor;
	int n = gpc_event_read(c, cursor, e, most < BATCH ? most : BATCH);

	if (n == -ESTALE) {
		if (before > *cursor)
			show_ahead(in, before, *cursor - 1);
		else
			show_lost(in, before, *cursor - 1);
		return 0;
	}
	for (int i = 0; i < n; i++) {
		if (in->json)
			show(describe(&e[i]));
		else
			show_text(&e[i]);
	}
	return n;
}

int inspect_watch(struct inspect *in)
{
	uint64_t cursor = in->since, left = in->limit;
	gpc *c;
	int status = inspect_open(in, GPC_READONLY, &c), n = 0;

	if (status)
		return status;
	/* from now on: the mark is taken before the message that the command looks */
	if (cursor == UINT64_MAX)
		n = gpc_event_read(c, &cursor, NULL, 0);
	while (n >= 0 && left && fflush(stdout) == 0) {
		n = show_some(in, c, &cursor, left < BATCH ? (uint32_t)left : BATCH);
		if (n > 0)
			left -= (uint64_t)n;
		else if (n == 0)
			cli_sleep_ms(PAUSE_MS);
	}
	if (n < 0)
		cli_cache_error(n, in->name);
	gpc_close(c);
	return n < 0 ? EXIT_RUNTIME : 0;
}
