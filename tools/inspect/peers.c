/* SPDX-License-Identifier: Apache-2.0 */
/* peers: every seat that is taken, and what its process holds: references, reserved blocks, open
 * sections, transfers and claims, and the age of the oldest.
 * Tests: t/tools/inspect-liars.t t/tools/inspect-peers.t t/tools/reserved.t t/tools/behind.t
 *   t/tools/inspect-cost.t */
#include "config.h"

#include "tools/inspect/inspect.h"
#include "tools/common/output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct column columns[] = {
	{ "PEER", "peer", SHOW_TEXT },
	{ "PID", "pid", SHOW_TEXT },
	{ "LABEL", "label", SHOW_TEXT },
	{ "STATE", "state", SHOW_TEXT },
	{ "REFS", "refs", SHOW_TEXT },
	{ "HELD", "refs_held_ns", SHOW_AGE },
	{ "RESERVED", "reserved", SHOW_TEXT },
	{ "SECTIONS", "sections", SHOW_TEXT },
	{ "OLDEST", "oldest_section_ns", SHOW_AGE },
	{ "TRANSFERS", "transfers", SHOW_TEXT },
	{ "OLDEST", "oldest_transfer_ns", SHOW_AGE },
	{ "CLAIMS", "claims", SHOW_TEXT },
	{ "OLDEST", "oldest_claim_ns", SHOW_AGE },
	{ "RING FULL", "ring_full", SHOW_TEXT },
	{ "LOOKUPS", "lookups", SHOW_TEXT },
	{ "VRAM HITS", "hit_vram", SHOW_TEXT },
	{ "RAM HITS", "hit_ram", SHOW_TEXT },
	{ "MISSES", "miss", SHOW_TEXT },
	{ "PUBLISHED", "published", SHOW_TEXT },
	{ "LEADER", "leader", SHOW_TEXT },
};

/* A stopped process is alive and keeps all that it holds, so it has a state of its own.  The pid
 * of another PID namespace may stand for a different process here, so no question and no signal
 * may go to it. */
static const char *state_of(const struct gpc_stats *st, bool writer, int stopped)
{
	if (!st->alive)
		return st->left ? "left" : "dead";
	if (stopped == 1)
		return writer ? "writer stopped" : "stopped";
	if (writer)
		return "writer";
	return st->here ? "alive" : "elsewhere";
}

static void describe_waits(json_t *o, const json_t *waits)
{
	int peer = (int)json_integer_value(json_object_get(o, "peer"));
	json_t *transfers = inspect_waits_of(waits, "under_way", peer);
	json_t *claims = inspect_waits_of(waits, "claimed", peer);

	json_object_set_new(o, "oldest_transfer_ns", inspect_oldest(transfers));
	json_object_set_new(o, "oldest_claim_ns", inspect_oldest(claims));
	json_object_set_new(o, "under_way", transfers);
	json_object_set_new(o, "claimed", claims);
}

static json_t *describe(int peer, const struct gpc_stats *st, int writer_peer)
{
	const struct {
		const char *field;
		uint64_t v;
	} counters[] = {
		{ "refs", st->refs },           { "reserved", st->reserved },
		{ "sections", st->sections },   { "lookups", st->lookups },
		{ "hit_vram", st->hit_vram },   { "hit_ram", st->hit_ram },
		{ "miss", st->miss },           { "published", st->published },
		{ "duplicate", st->duplicate }, { "evicted", st->evicted },
		{ "demoted", st->demoted },     { "promoted", st->promoted },
		{ "dropped", st->dropped },     { "stale_refs", st->stale_refs },
		{ "ring_full", st->ring_full }, { "fetched", st->fetched },
		{ "spilled", st->spilled },     { "bad", st->bad },
		{ "transfers", st->transfers }, { "claims", st->claims },
	};
	int stopped = cli_stopped(st);
	bool writer = st->alive && peer == writer_peer;
	json_t *o = out_need(json_object());

	json_object_set_new(o, "peer", out_need(json_integer(peer)));
	json_object_set_new(o, "pid", out_need(json_integer(st->pid)));
	json_object_set_new(o, "label", out_string(st->label, sizeof(st->label)));
	json_object_set_new(o, "state", out_need(json_string(state_of(st, writer, stopped))));
	json_object_set_new(o, "alive", json_boolean(st->alive));
	json_object_set_new(o, "here", json_boolean(st->here));
	json_object_set_new(o, "writer", json_boolean(writer));
	json_object_set_new(o, "stopped", stopped < 0 ? json_null() : json_boolean(stopped));
	for (size_t i = 0; i < ARRAY_SIZE(counters); i++)
		json_object_set_new(o, counters[i].field,
				    out_need(json_integer((json_int_t)counters[i].v)));
	json_object_set_new(o, "oldest_section_ns",
			    st->oldest_section_ns
				    ? out_need(json_integer((json_int_t)st->oldest_section_ns))
				    : json_null());
	json_object_set_new(o, "refs_held_ns",
			    st->refs_ns ? out_need(json_integer((json_int_t)st->refs_ns))
					: json_null());
	json_object_set_new(o, "leader",
			    st->leader < 0 ? json_null() : out_need(json_integer(st->leader)));
	return o;
}

static void describe_behind(json_t *rows, const json_t *behind)
{
	const json_t *peer = json_object_get(behind, "peer");

	for (size_t i = 0; i < json_array_size(rows); i++) {
		json_t *o = json_array_get(rows, i);

		json_object_set_new(o, "eviction_waits",
				    json_boolean(json_equal(json_object_get(o, "peer"), peer)));
	}
}

static json_t *list_peers(gpc *c, const struct gpc_info *info, json_t **ret_waits)
{
	json_t *rows = out_need(json_array());
	uint64_t transfers = 0, claims = 0;

	for (uint32_t i = 0; i < info->max_peers; i++) {
		struct gpc_stats st = { .size = sizeof(st) };

		if (gpc_stats_get(c, (int)i, &st) < 0)
			continue;
		json_array_append_new(rows, describe((int)i, &st, info->writer_peer));
		transfers += st.transfers;
		claims += st.claims;
	}
	*ret_waits = inspect_waits(c, transfers, claims);
	for (size_t i = 0; i < json_array_size(rows); i++)
		describe_waits(json_array_get(rows, i), *ret_waits);
	return rows;
}

/* If a file is cut off or missing, its seats look empty.  A message says so, since the list is
 * not whole. */
static int say_damaged(const struct inspect *in, const struct gpc_info *info)
{
	if (!info->refused || info->refused == -ENOENT || info->refused == -ESTALE ||
	    inspect_is_closed(in, in->name, info->refused))
		return 0; /* the file is whole, or was removed since, or is good for other users */
	cli_error("%s: %s", in->name, info->why);
	return EXIT_RUNTIME;
}

int inspect_peers(struct inspect *in)
{
	struct gpc_info info = { .size = sizeof(info) };
	json_t *rows, *mirrors, *waits, *behind;
	gpc *c;
	int status = inspect_open(in, GPC_READONLY, &c), r;

	if (status)
		return status;
	r = gpc_info_get(c, &info);
	if (r < 0) {
		cli_gpc_error(r, "%s", in->name);
		gpc_close(c);
		return EXIT_RUNTIME;
	}
	rows = list_peers(c, &info, &waits);
	mirrors = inspect_mirrors(c);
	behind = inspect_behind(c, &info);
	describe_behind(rows, behind);
	gpc_close(c);
	if (in->json) {
		json_decref(behind);
		json_decref(mirrors);
		json_decref(waits);
		out_json(rows);
		return say_damaged(in, &info);
	}
	out_table(columns, ARRAY_SIZE(columns), rows);
	if (!json_is_null(behind))
		putchar('\n');
	inspect_show_behind(behind);
	inspect_show_waits(waits, true);
	if (json_array_size(mirrors)) {
		putchar('\n');
		inspect_show_mirrors(mirrors);
	}
	json_decref(rows);
	json_decref(behind);
	json_decref(mirrors);
	json_decref(waits);
	return say_damaged(in, &info);
}
