/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers that are not over, and claims that are open, with their ages and their owners.  If the
 * counters say that there are none, the command does not look for them.
 * Tests: t/tools/inspect-peers.t */
#include "config.h"

#include "tools/inspect/inspect.h"
#include "tools/common/output.h"

#include <stdio.h>
#include <stdlib.h>

enum { WALK_BATCH = 256, CLAIMS_SHOWN = 20 };

static const struct column transfer_columns[] = {
	{ "TRANSFER", "transfer", SHOW_TEXT }, { "PEER", "peer", SHOW_TEXT },
	{ "PID", "pid", SHOW_TEXT },           { "LABEL", "label", SHOW_TEXT },
	{ "FROM", "from", SHOW_TEXT },         { "TO", "to", SHOW_TEXT },
	{ "BLOCKS", "blocks", SHOW_TEXT },     { "LEFT", "left", SHOW_TEXT },
	{ "RANKS", "ranks", SHOW_TEXT },       { "DONE", "passed", SHOW_TEXT },
	{ "AGE", "age_ns", SHOW_AGE },
};

static const struct column claim_columns[] = {
	{ "CLAIMED KEY", "key", SHOW_TEXT }, { "PEER", "peer", SHOW_TEXT },
	{ "PID", "pid", SHOW_TEXT },         { "LABEL", "label", SHOW_TEXT },
	{ "POOL", "pool", SHOW_TEXT },       { "SLOT", "slot", SHOW_TEXT },
	{ "AGE", "age_ns", SHOW_AGE },
};

static void set(json_t *o, const char *field, uint64_t v)
{
	json_object_set_new(o, field, out_need(json_integer((json_int_t)v)));
}

/* Null: its seat has been cleared by now. */
static void set_owner(json_t *o, gpc *c, int peer)
{
	struct gpc_stats st = { .size = sizeof(st) };
	bool there = gpc_stats_get(c, peer, &st) >= 0;

	json_object_set_new(o, "peer", out_need(json_integer(peer)));
	json_object_set_new(o, "pid", there ? out_need(json_integer(st.pid)) : json_null());
	json_object_set_new(o, "label",
			    there ? out_string(st.label, sizeof(st.label)) : json_null());
}

/* ---- transfers ---- */

static json_t *describe_transfer(gpc *c, const struct gpc_transfer_info *t)
{
	json_t *o = out_need(json_object());

	set(o, "transfer", t->transfer);
	set_owner(o, c, t->peer);
	json_object_set_new(o, "from", out_need(json_integer(t->from)));
	json_object_set_new(o, "to", out_need(json_integer(t->to)));
	set(o, "blocks", t->blocks);
	set(o, "left", t->left);
	set(o, "ranks", t->ranks);
	set(o, "passed", t->passed);
	set(o, "age_ns", t->age_ns);
	return o;
}

/* Transfers are numbered anew when one ends or begins.  Then the same one may come twice in a row,
 * and is listed once. */
static json_t *list_transfers(gpc *c)
{
	json_t *rows = out_need(json_array());
	struct gpc_transfer_info last = { .peer = -1 };

	for (uint32_t i = 0;; i++) {
		struct gpc_transfer_info t = { .size = sizeof(t) };

		if (gpc_transfer_get(c, i, &t) < 0)
			return rows;
		if (t.peer != last.peer || t.transfer != last.transfer)
			json_array_append_new(rows, describe_transfer(c, &t));
		last = t;
	}
}

/* ---- claims ---- */

static json_t *describe_claim(gpc *c, const struct gpc_claim *claim)
{
	json_t *o = out_need(json_object());

	json_object_set_new(o, "key", out_key(&claim->key));
	set_owner(o, c, claim->peer);
	json_object_set_new(o, "block", out_need(json_integer(claim->block)));
	json_object_set_new(o, "pool", out_need(json_integer(GPC_POOL(claim->block))));
	json_object_set_new(o, "slot", out_need(json_integer(GPC_SLOT(claim->block))));
	set(o, "age_ns", claim->age_ns);
	return o;
}

static int older_first(const void *a, const void *b)
{
	uint64_t x = ((const struct gpc_claim *)a)->age_ns,
		 y = ((const struct gpc_claim *)b)->age_ns;

	return x > y ? -1 : x < y;
}

static json_t *list_claims(gpc *c)
{
	json_t *rows = out_need(json_array());
	struct gpc_claim *all = NULL;
	uint64_t cursor = 0;
	size_t used = 0;
	int n;

	do {
		all = realloc(all, (used + WALK_BATCH) * sizeof(*all));
		if (!all)
			out_need(NULL);
		n = gpc_claim_walk(c, &cursor, all + used, WALK_BATCH);
		used += n > 0 ? (size_t)n : 0;
	} while (n > 0);
	qsort(all, used, sizeof(*all), older_first);
	for (size_t i = 0; i < used; i++)
		json_array_append_new(rows, describe_claim(c, &all[i]));
	free(all);
	return rows;
}

/* ---- both ---- */

json_t *inspect_waits(gpc *c, uint64_t transfers, uint64_t claims)
{
	json_t *o = out_need(json_object());

	json_object_set_new(o, "under_way", transfers ? list_transfers(c) : out_need(json_array()));
	json_object_set_new(o, "claimed", claims ? list_claims(c) : out_need(json_array()));
	return o;
}

json_t *inspect_waits_of(const json_t *waits, const char *list, int peer)
{
	const json_t *all = json_object_get(waits, list);
	json_t *rows = out_need(json_array());

	for (size_t i = 0; i < json_array_size(all); i++) {
		json_t *o = json_array_get(all, i);

		if (json_integer_value(json_object_get(o, "peer")) == peer)
			json_array_append(rows, o);
	}
	return rows;
}

json_t *inspect_oldest(const json_t *rows)
{
	json_int_t oldest = -1, age;

	for (size_t i = 0; i < json_array_size(rows); i++) {
		age = json_integer_value(json_object_get(json_array_get(rows, i), "age_ns"));
		oldest = age > oldest ? age : oldest;
	}
	return oldest < 0 ? json_null() : out_need(json_integer(oldest));
}

static void show_claims(const json_t *claims)
{
	json_t *rows = out_need(json_array());
	size_t n = json_array_size(claims);

	for (size_t i = 0; i < n && i < CLAIMS_SHOWN; i++)
		json_array_append(rows, json_array_get(claims, i));
	out_table(claim_columns, ARRAY_SIZE(claim_columns), rows);
	if (n > CLAIMS_SHOWN)
		out_line("and %zu claims more, which are younger", n - CLAIMS_SHOWN);
	json_decref(rows);
}

bool inspect_show_waits(const json_t *waits, bool apart)
{
	const json_t *transfers = json_object_get(waits, "under_way");
	const json_t *claims = json_object_get(waits, "claimed");

	if (json_array_size(transfers)) {
		if (apart)
			putchar('\n');
		out_table(transfer_columns, ARRAY_SIZE(transfer_columns), transfers);
		apart = true;
	}
	if (json_array_size(claims)) {
		if (apart)
			putchar('\n');
		show_claims(claims);
	}
	return json_array_size(transfers) || json_array_size(claims);
}
