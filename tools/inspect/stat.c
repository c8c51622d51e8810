/* SPDX-License-Identifier: Apache-2.0 */
/* stat: an overview of one cache: geometry, pools, mirrors, transfers and claims, content,
 * history.
 * Tests: t/tools/reserved.t t/tools/stopped-writer.t t/tools/behind.t t/tools/inspect-cost.t
 *   t/tools/inspect.t */
#include "config.h"

#include "tools/inspect/inspect.h"
#include "tools/common/shown.h"
#include "tools/common/output.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const struct column info_columns[] = {
	{ "cache", "name", SHOW_TEXT },
	{ "state", "state", SHOW_TEXT },
	{ "  why", "refused", SHOW_TEXT },
	{ "writer", "writer_pid", SHOW_TEXT },
	{ "  generation", "writer_generation", SHOW_TEXT },
	{ "  since", "writer_since", SHOW_TEXT },
	{ "made", "created", SHOW_TEXT },
	{ "peers", "peers", SHOW_TEXT },
	{ "  dead", "dead", SHOW_TEXT },
	{ "  at most", "max_peers", SHOW_TEXT },
	{ "tokens per block", "block_tokens", SHOW_TEXT },
	{ "records", "max_blocks", SHOW_TEXT },
	{ "buckets", "buckets", SHOW_TEXT },
	{ "shared memory", "bytes", SHOW_BYTES },
	{ "tick", "tick", SHOW_TEXT },
	{ "  microseconds", "tick_us", SHOW_TEXT },
	{ "free target", "free_target", SHOW_TEXT },
	{ "keeps", "keeps", SHOW_LIST },
	{ "aliases at most", "max_aliases", SHOW_TEXT },
	{ "hash", "hash", SHOW_TEXT },
	{ "devices", "devices", SHOW_TEXT },
	{ "layout", "layout", SHOW_TEXT },
};

static const struct column stat_columns[] = {
	{ "live blocks", "live", SHOW_TEXT },
	{ "free blocks", "free_blocks", SHOW_TEXT },
	{ "dying blocks", "dying", SHOW_TEXT },
	{ "references", "refs", SHOW_TEXT },
	{ "reserved blocks", "reserved", SHOW_TEXT },
	{ "  by the steward", "reserved_by_steward", SHOW_TEXT },
	{ "open sections", "sections", SHOW_TEXT },
	{ "  oldest", "oldest_section_ns", SHOW_AGE },
	{ "transfers", "transfers", SHOW_TEXT },
	{ "  oldest", "oldest_transfer_ns", SHOW_AGE },
	{ "claims", "claims", SHOW_TEXT },
	{ "  oldest", "oldest_claim_ns", SHOW_AGE },
	{ "aliases", "aliases", SHOW_TEXT },
	{ "lookups", "lookups", SHOW_TEXT },
	{ "  hits in VRAM", "hit_vram", SHOW_TEXT },
	{ "  hits in RAM", "hit_ram", SHOW_TEXT },
	{ "    brought from disk", "hit_disk", SHOW_TEXT },
	{ "    brought from a store", "hit_store", SHOW_TEXT },
	{ "  misses", "miss", SHOW_TEXT },
	{ "  hit rate", "hit_rate", SHOW_SHARE },
	{ "engines' own hits", "hit_own", SHOW_TEXT },
	{ "published", "published", SHOW_TEXT },
	{ "  duplicates", "duplicate", SHOW_TEXT },
	{ "evicted", "evicted", SHOW_TEXT },
	{ "demoted", "demoted", SHOW_TEXT },
	{ "promoted", "promoted", SHOW_TEXT },
	{ "fetched", "fetched", SHOW_TEXT },
	{ "  bytes", "fetched_bytes", SHOW_BYTES },
	{ "spilled", "spilled", SHOW_TEXT },
	{ "  bytes", "spilled_bytes", SHOW_BYTES },
	{ "wrong checksums", "bad", SHOW_TEXT },
	{ "dropped", "dropped", SHOW_TEXT },
	{ "stale references", "stale_refs", SHOW_TEXT },
	{ "commands", "commands", SHOW_TEXT },
	{ "  pending", "pending", SHOW_TEXT },
	{ "ring full", "ring_full", SHOW_TEXT },
	{ "table moves", "relocated", SHOW_TEXT },
	{ "no bucket", "no_bucket", SHOW_TEXT },
};

static const struct column pool_columns[] = {
	{ "POOL", "pool", SHOW_TEXT },
	{ "KIND", "kind", SHOW_TEXT },
	{ "SPACE", "space", SHOW_TEXT },
	{ "BLOCKS", "blocks", SHOW_TEXT },
	{ "AVAILABLE", "available", SHOW_TEXT },
	{ "TRANSIT", "transit", SHOW_TEXT },
	{ "DEMOTES TO", "demote_to", SHOW_TEXT },
	{ "AHEAD", "spill_ahead", SHOW_TEXT },
	{ "OWNER", "owner", SHOW_TEXT },
	{ "GENERATION", "generation", SHOW_TEXT },
	{ "FLAGS", "flags", SHOW_LIST },
};

/* Columns of those pools that have memory. */
static const struct column memory_columns[] = {
	{ "POOL", "pool", SHOW_TEXT },
	{ "MEMORY", "bytes", SHOW_BYTES },
	{ "IMAGE", "block_bytes", SHOW_BYTES },
	{ "RUNS", "runs", SHOW_TEXT },
	{ "PARTS", "parts_lent", SHOW_TEXT },
	{ "OF", "parts", SHOW_TEXT },
	{ "HUGE PAGES", "huge_bytes", SHOW_BYTES },
	{ "NUMA", "numa", SHOW_TEXT },
	{ "NODES", "nodes", SHOW_LIST },
	{ "SUMS", "sums", SHOW_TEXT },
	{ "DEVICE", "device", SHOW_TEXT },
	{ "FINGERPRINT", "fingerprint", SHOW_TEXT },
};

static void set(json_t *o, const char *field, uint64_t v)
{
	json_object_set_new(o, field, out_need(json_integer((json_int_t)v)));
}

static void set_signed(json_t *o, const char *field, int64_t v)
{
	json_object_set_new(o, field, v < 0 ? json_null() : out_need(json_integer(v)));
}

static void set_text(json_t *o, const char *field, const char *text)
{
	json_object_set_new(o, field, out_need(json_string(text)));
}

/* ---- pools ---- */

static json_t *pool_flags(uint32_t flags)
{
	static const struct {
		uint32_t bit;
		const char *name;
	} names[] = {
		{ GPC_POOL_OWNED, "owned" },
		{ GPC_POOL_CALLER, "caller" },
		{ GPC_POOL_UNCHAINED, "unchained" },
	};
	json_t *list = out_need(json_array());

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (flags & names[i].bit)
			json_array_append_new(list, out_need(json_string(names[i].name)));
	return list;
}

static json_t *numa_nodes(uint64_t nodes)
{
	json_t *list = out_need(json_array());
	char text[8];

	for (uint32_t i = 0; i < 64; i++)
		if (nodes >> i & 1) {
			snprintf(text, sizeof(text), "%u", i);
			json_array_append_new(list, out_need(json_string(text)));
		}
	return list;
}

static void describe_ram(json_t *o, const struct gpc_pool_memory *m)
{
	static const char *const policy[] = { "default", "interleave", "bind" };

	set(o, "huge_bytes", m->huge_bytes);
	set(o, "checksums", m->checksums);
	set(o, "sums", m->checksums ? m->sums : 0);
	if (m->numa < ARRAY_SIZE(policy))
		set_text(o, "numa", policy[m->numa]);
	json_object_set_new(o, "nodes", numa_nodes(m->nodes));
}

/* NULL if it has no memory, or has lost it. */
static json_t *describe_memory(gpc *c, int number)
{
	struct gpc_pool_memory m = { .size = sizeof(m) };
	static const uint8_t none[sizeof(m.fingerprint)];
	json_t *o;

	if (gpc_pool_memory_get(c, number, &m, NULL, 0) < 0)
		return NULL;
	o = out_need(json_object());
	set(o, "pool", (uint64_t)number);
	set(o, "bytes", m.bytes);
	set(o, "block_bytes", m.block_bytes);
	set(o, "slots", m.slots);
	set(o, "runs", m.nruns);
	set(o, "parts_lent", m.parts_lent);
	set(o, "parts", m.parts);
	if (m.kind == GPC_RAM)
		describe_ram(o, &m);
	else
		json_object_set_new(o, "device", out_string(m.device, sizeof(m.device)));
	if (memcmp(m.fingerprint, none, sizeof(none)))
		json_object_set_new(o, "fingerprint",
				    out_bytes_hex(m.fingerprint, sizeof(m.fingerprint)));
	json_object_set_new(o, "file", out_string(m.file, sizeof(m.file)));
	return o;
}

static json_t *describe_pool(gpc *c, int number, const struct gpc_pool *p)
{
	json_t *o = out_need(json_object());

	set(o, "pool", (uint64_t)number);
	set_text(o, "kind", shown_kind(p->kind));
	set(o, "space", p->space);
	set(o, "blocks", p->blocks);
	set_signed(o, "available", gpc_pool_available(c, number));
	set(o, "transit", p->transit);
	set_signed(o, "demote_to", p->demote_to);
	set(o, "spill_ahead", p->spill_ahead);
	set_signed(o, "owner", p->owner);
	set(o, "generation", p->generation);
	set(o, "gpus", p->gpus);
	json_object_set_new(o, "flags", pool_flags(p->flags));
	if (p->memory) {
		json_t *memory = describe_memory(c, number);

		json_object_set_new(o, "memory", memory ? memory : json_null());
	}
	return o;
}

json_t *inspect_pools(gpc *c)
{
	struct gpc_info info = { .size = sizeof(info) };
	json_t *rows = out_need(json_array());

	if (gpc_info_get(c, &info) < 0)
		return rows;
	for (uint32_t i = 0; i < info.max_pools; i++) {
		struct gpc_pool p = { .size = sizeof(p) };

		if (gpc_pool_get(c, (int)i, &p) >= 0)
			json_array_append_new(rows, describe_pool(c, (int)i, &p));
	}
	return rows;
}

/* ---- the whole ---- */

static json_t *describe_keeps(const struct gpc_info *info)
{
	json_t *list = out_need(json_array());

	if (info->keep_digests)
		json_array_append_new(list, out_need(json_string("digests")));
	if (info->keep_tokens)
		json_array_append_new(list, out_need(json_string("tokens")));
	return list;
}

/* A time of CLOCK_REALTIME; null means never. */
static json_t *date(uint64_t ns)
{
	time_t t = (time_t)(ns / 1000000000);
	struct tm tm;
	char text[32];

	if (!ns || !gmtime_r(&t, &tm) || !strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm))
		return json_null();
	return out_need(json_string(text));
}

/* A time of CLOCK_MONOTONIC. */
static json_t *date_of(uint64_t ns)
{
	struct timespec now;
	uint64_t age = cli_now_ns() - ns;

	clock_gettime(CLOCK_REALTIME, &now);
	return date(ns ? (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec - age : 0);
}

static void describe_info(json_t *o, const struct gpc_info *info)
{
	static const uint8_t none[sizeof(info->layout)];

	set(o, "block_tokens", info->block_tokens);
	set(o, "max_blocks", info->max_blocks);
	set(o, "max_peers", info->max_peers);
	set(o, "max_pools", info->max_pools);
	set(o, "writer_generation", info->writer_generation);
	json_object_set_new(o, "created", date(info->created_ns));
	json_object_set_new(o, "writer_since", date_of(info->writer_since_ns));
	set(o, "tick_us", info->tick_us);
	if (info->tick_us == 1)
		set_text(o, "tick", "exact");
	else
		set_text(o, "tick", "timed");
	set(o, "free_target", info->free_target > 0 ? (uint64_t)info->free_target : 0);
	json_object_set_new(o, "keeps", describe_keeps(info));
	set(o, "max_aliases", info->max_aliases);
	set(o, "bytes", info->bytes);
	set(o, "buckets", info->buckets);
	json_object_set_new(o, "hash", out_string(info->hash, sizeof(info->hash)));
	json_object_set_new(o, "devices", out_string(info->devices, sizeof(info->devices)));
	if (memcmp(info->layout, none, sizeof(none)))
		json_object_set_new(o, "layout", out_bytes_hex(info->layout, sizeof(info->layout)));
}

static void set_oldest(json_t *o, const char *field, const json_t *rows)
{
	json_t *age = inspect_oldest(rows);

	if (json_is_null(age))
		json_decref(age);
	else
		json_object_set_new(o, field, age);
}

static json_t *describe_stats(const struct gpc_stats *st, const json_t *waits)
{
	const struct {
		const char *field;
		uint64_t v;
	} counters[] = {
		{ "live", st->live },
		{ "free_blocks", st->free_blocks },
		{ "dying", st->dying },
		{ "refs", st->refs },
		{ "reserved", st->reserved },
		{ "sections", st->sections },
		{ "transfers", st->transfers },
		{ "claims", st->claims },
		{ "aliases", st->aliases },
		{ "lookups", st->lookups },
		{ "hit_vram", st->hit_vram },
		{ "hit_ram", st->hit_ram },
		{ "hit_disk", st->hit_disk },
		{ "hit_store", st->hit_store },
		{ "hit_own", st->hit_own },
		{ "miss", st->miss },
		{ "published", st->published },
		{ "duplicate", st->duplicate },
		{ "evicted", st->evicted },
		{ "demoted", st->demoted },
		{ "promoted", st->promoted },
		{ "fetched", st->fetched },
		{ "spilled", st->spilled },
		{ "bad", st->bad },
		{ "dropped", st->dropped },
		{ "stale_refs", st->stale_refs },
		{ "ring_full", st->ring_full },
		{ "commands", st->commands },
		{ "pending", st->pending },
		{ "fetched_bytes", st->fetched_bytes },
		{ "spilled_bytes", st->spilled_bytes },
		{ "relocated", st->relocated },
		{ "no_bucket", st->no_bucket },
	};
	uint64_t hits = st->hit_vram + st->hit_ram, asked = hits + st->miss;
	json_t *o = out_need(json_object());

	for (size_t i = 0; i < ARRAY_SIZE(counters); i++)
		set(o, counters[i].field, counters[i].v);
	if (st->sections)
		set(o, "oldest_section_ns", st->oldest_section_ns);
	set_oldest(o, "oldest_transfer_ns", json_object_get(waits, "under_way"));
	set_oldest(o, "oldest_claim_ns", json_object_get(waits, "claimed"));
	json_object_set_new(o, "hit_rate",
			    asked ? out_need(json_real((double)hits / (double)asked))
				  : json_null());
	return o;
}

/* A table of its own, with a row for each pool that has memory. */
static void show_memory(const json_t *pools)
{
	json_t *rows = out_need(json_array()), *memory;

	for (size_t i = 0; i < json_array_size(pools); i++) {
		memory = json_object_get(json_array_get(pools, i), "memory");
		if (json_is_object(memory))
			json_array_append(rows, memory);
	}
	if (json_array_size(rows)) {
		out_table(memory_columns, ARRAY_SIZE(memory_columns), rows);
		putchar('\n');
	}
	json_decref(rows);
}

static void show(json_t *o)
{
	const json_t *pools = json_object_get(o, "pools");
	const json_t *list = json_object_get(o, "mirrors");

	if (json_is_null(json_object_get(o, "refused")))
		json_object_del(o, "refused");
	out_fields(info_columns, ARRAY_SIZE(info_columns), o);
	putchar('\n');
	if (inspect_show_behind(json_object_get(o, "eviction_waits")))
		putchar('\n');
	if (json_array_size(pools)) {
		out_table(pool_columns, ARRAY_SIZE(pool_columns), pools);
		putchar('\n');
		show_memory(pools);
	}
	inspect_show_tiers(json_object_get(o, "tiers"));
	if (json_array_size(list)) {
		inspect_show_mirrors(list);
		putchar('\n');
	}
	if (inspect_show_waits(o, false))
		putchar('\n');
	out_fields(stat_columns, ARRAY_SIZE(stat_columns), json_object_get(o, "stats"));
}

/* The sum over the seats counts empty slots of tiers as well, since their steward holds them: as many as the seat of
 * the steward has in `peers`.  It keeps all tiers, so it is counted once. */
static void put_steward(json_t *stats, gpc *c)
{
	struct gpc_stats st = { .size = sizeof(st) };
	struct gpc_tier t = { .size = sizeof(t) };

	for (uint32_t i = 0; gpc_tier_get(c, i, &t) >= 0; i++)
		if (t.steward >= 0) {
			if (gpc_stats_get(c, t.steward, &st) >= 0)
				set(stats, "reserved_by_steward", st.reserved);
			return;
		}
}

/* NULL after a message. */
static json_t *describe(const struct inspect *in, const char *name, gpc *c)
{
	struct gpc_stats st = { .size = sizeof(st) };
	struct inspect_look look;
	json_t *o, *waits;
	int r = inspect_look(in, name, c, &look);

	if (r >= 0)
		r = gpc_stats_get(c, -1, &st);
	if (r < 0) {
		cli_gpc_error(r, "%s", name);
		return NULL;
	}
	o = out_need(json_object());
	json_object_set_new(o, "name", out_string(name, GPC_MAX_NAME));
	inspect_put_state(o, &look);
	describe_info(o, &look.info);
	json_object_set_new(o, "pools", inspect_pools(c));
	json_object_set_new(o, "tiers", inspect_tiers(c));
	json_object_set_new(o, "mirrors", inspect_mirrors(c));
	waits = inspect_waits(c, st.transfers, st.claims);
	json_object_set_new(o, "eviction_waits", inspect_behind(c, &look.info));
	json_object_set_new(o, "stats", describe_stats(&st, waits));
	put_steward(json_object_get(o, "stats"), c);
	json_object_update(o, waits);
	json_decref(waits);
	return o;
}

static int stat_one(struct inspect *in)
{
	gpc *c;
	int status = inspect_open(in, GPC_READONLY, &c);
	json_t *o;

	if (status)
		return status;
	o = describe(in, in->name, c);
	gpc_close(c);
	if (!o)
		return EXIT_RUNTIME;
	if (in->json) {
		out_json(o);
		return 0;
	}
	show(o);
	json_decref(o);
	return 0;
}

/* Several caches by name: an array, or one below the other.  A cache that cannot be opened hides
 * no other. */
static int stat_all(const struct inspect *in, char **names, int n)
{
	json_t *rows = out_need(json_array());
	int status = 0;

	for (int i = 0; i < n; i++) {
		gpc *c;
		int r = inspect_attach(in, names[i], GPC_READONLY, &c);
		json_t *o = NULL;

		if (r < 0)
			cli_cache_error(r, names[i]);
		else
			o = describe(in, names[i], c);
		if (r >= 0)
			gpc_close(c);
		if (!o) {
			status = EXIT_RUNTIME;
			continue;
		}
		if (!in->json && json_array_size(rows))
			putchar('\n');
		if (!in->json)
			show(o);
		json_array_append_new(rows, o);
	}
	if (in->json)
		out_json(rows);
	else
		json_decref(rows);
	return status;
}

int inspect_stat(struct inspect *in)
{
	char **names;
	int n, status;

	if (in->watch)
		return inspect_stat_watch(in);
	if (in->name)
		return stat_one(in);
	n = inspect_scan(in, "idx", &names);
	if (n < 0)
		return EXIT_RUNTIME;
	status = n > 1 ? stat_all(in, names, n) : stat_one(in);
	inspect_free_names(names, n);
	return status;
}
