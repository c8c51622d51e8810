/* SPDX-License-Identifier: Apache-2.0 */
/* The counts of the workers: over the pipe, summed up, shown.
 * Tests: t/tools/replay-result.t */
#include "config.h"

#include "tools/replay/replay.h"

#include "tools/common/output.h"
#include "tools/common/shown.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Names are those on the pipe; end_ns is not summed. */
static const struct {
	const char *name;
	size_t at;
} fields[] = {
	{ "requests", offsetof(struct counts, requests) },
	{ "block_refs", offsetof(struct counts, block_refs) },
	{ "prefix_hit_blocks", offsetof(struct counts, hits) },
	{ "vram_hit_blocks", offsetof(struct counts, vram_hits) },
	{ "ram_hit_blocks", offsetof(struct counts, ram_hits) },
	{ "disk_hit_blocks", offsetof(struct counts, disk_hits) },
	{ "inserted", offsetof(struct counts, inserted) },
	{ "duplicates", offsetof(struct counts, duplicates) },
	{ "refused", offsetof(struct counts, refused) },
	{ "unplaced", offsetof(struct counts, unplaced) },
	{ "demoted", offsetof(struct counts, demoted) },
	{ "promoted", offsetof(struct counts, promoted) },
	{ "wrong_blocks", offsetof(struct counts, wrong) },
	{ "retries", offsetof(struct counts, retries) },
	{ "on_device", offsetof(struct counts, on_device) },
	{ "demoted_bytes", offsetof(struct counts, down_bytes) },
	{ "demote_copy_ns", offsetof(struct counts, down_ns) },
	{ "promoted_bytes", offsetof(struct counts, up_bytes) },
	{ "promote_copy_ns", offsetof(struct counts, up_ns) },
	{ "uncommitted", offsetof(struct counts, uncommitted) },
	{ "claimed", offsetof(struct counts, claimed) },
	{ "claims_pending", offsetof(struct counts, pending) },
	{ "verified_after_kills", offsetof(struct counts, looked_after) },
};

static uint64_t *field_of(struct counts *c, size_t i)
{
	return (uint64_t *)((char *)c + fields[i].at);
}

static void set(json_t *o, const char *field, uint64_t v)
{
	json_object_set_new(o, field, out_need(json_integer((json_int_t)v)));
}

/* ---- latencies ---- */

/* Exact below 64; above that, the top 7 bits count. */
static uint32_t bucket_of(uint64_t ns)
{
	unsigned top;

	if (ns < 64)
		return (uint32_t)ns;
	top = 63 - (unsigned)__builtin_clzll(ns);
	return (top - 5) * 64 + (uint32_t)(ns >> (top - 6) & 63);
}

/* The middle of a bucket. */
static uint64_t value_of(uint32_t bucket)
{
	unsigned shift = bucket / 64;

	if (shift < 2)
		return bucket;
	return ((64 + (uint64_t)bucket % 64) << (shift - 1)) + (UINT64_C(1) << (shift - 1)) / 2;
}

void counts_latency(struct counts *c, uint64_t ns)
{
	c->latency[bucket_of(ns)]++;
}

uint64_t counts_percentile(const struct counts *c, unsigned percent)
{
	uint64_t all = 0, seen = 0;

	for (uint32_t i = 0; i < LATENCY_BUCKETS; i++)
		all += c->latency[i];
	for (uint32_t i = 0; all && i < LATENCY_BUCKETS; i++) {
		seen += c->latency[i];
		if (seen * 100 >= all * percent)
			return value_of(i);
	}
	return 0;
}

/* ---- over the pipe ---- */

json_t *counts_to_json(const struct counts *c)
{
	json_t *o = out_need(json_object()), *latency = out_need(json_object());
	char name[16];

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		set(o, fields[i].name, *field_of((struct counts *)c, i));
	set(o, "end_ns", c->end_ns);
	for (uint32_t i = 0; i < LATENCY_BUCKETS; i++) {
		if (!c->latency[i])
			continue;
		snprintf(name, sizeof(name), "%u", i);
		set(latency, name, c->latency[i]);
	}
	json_object_set_new(o, "latency", latency);
	return o;
}

bool counts_add_json(struct counts *sum, const json_t *from)
{
	const json_t *v = json_object_get(from, "end_ns"), *latency;
	const char *name;
	unsigned long bucket;

	latency = json_object_get(from, "latency");
	if (!json_is_integer(v) || !json_is_object(latency))
		return false;
	if ((uint64_t)json_integer_value(v) > sum->end_ns)
		sum->end_ns = (uint64_t)json_integer_value(v);
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		v = json_object_get(from, fields[i].name);
		if (!json_is_integer(v))
			return false;
		*field_of(sum, i) += (uint64_t)json_integer_value(v);
	}
	json_object_foreach((json_t *)latency, name, v)
	{
		bucket = strtoul(name, NULL, 10);
		if (bucket < LATENCY_BUCKETS)
			sum->latency[bucket] += (uint64_t)json_integer_value(v);
	}
	return true;
}

/* ---- for people and for programs ---- */

static double rate(double part, double whole)
{
	return whole > 0 ? part / whole : 0;
}

static json_t *to_json(const struct report *r)
{
	const struct counts *c = r->counts;
	json_t *o = out_need(json_object());

	json_object_set_new(o, "trace", out_string(r->trace, PATH_MAX));
	json_object_set_new(o, "cache",
			    r->cache ? out_string(r->cache, GPC_MAX_NAME) : json_null());
	set(o, "workers", r->workers);
	set(o, "workers_failed", r->failed);
	json_object_set_new(o, "sticky", r->sticky ? out_string(r->sticky, 16) : json_null());
	set(o, "sessions", r->sessions);
	set(o, "concurrency", r->concurrency);
	set(o, "vram_blocks", r->vram_blocks);
	set(o, "ram_blocks", r->ram_blocks);
	set(o, "disk_blocks", r->disk_blocks);
	set(o, "payload_bytes", r->payload);
	set(o, "payload_pieces", r->pieces);
	json_object_set_new(o, "payload_device",
			    r->device ? out_string(r->device, 64) : json_null());
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		set(o, fields[i].name, *field_of((struct counts *)c, i));
	set(o, "evicted", r->evicted);
	set(o, "dropped", r->dropped);
	json_object_set_new(o, "fetch", json_boolean(r->fetch));
	set(o, "fetched", r->fetched);
	set(o, "spilled", r->spilled);
	set(o, "bad", r->bad);
	set(o, "kills", r->kills);
	set(o, "restarts", r->restarts);
	set(o, "disk_written", r->tier.written);
	set(o, "disk_brought", r->tier.brought);
	set(o, "disk_restored", r->tier.restored);
	set(o, "disk_failed", r->tier.bad + r->tier.errors + r->tier.late + r->tier.failed);
	set(o, "left", r->left);
	json_object_set_new(
		o, "hit_rate",
		!c->block_refs ? json_null()
			       : out_need(json_real(rate((double)c->hits, (double)c->block_refs))));
	json_object_set_new(o, "seconds", out_need(json_real(r->seconds)));
	json_object_set_new(o, "requests_per_second",
			    out_need(json_real(rate((double)c->requests, r->seconds))));
	set(o, "lookup_ns_p50", counts_percentile(c, 50));
	set(o, "lookup_ns_p99", counts_percentile(c, 99));
	return o;
}

/* A title and the text of a figure.  Both stand closer on a terminal of less than 48 columns. */
static void line(const char *title, const char *figure, const char *unit)
{
	unsigned columns = shown_columns(STDOUT_FILENO);
	bool narrow = columns && columns < 48;

	printf("%-*s %*s%s\n", narrow ? 19 : 24, title, narrow ? 10 : 12, figure, unit);
}

static void row(const char *title, uint64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, v);
	line(title, text, "");
}

static void share(const char *title, uint64_t v, uint64_t of)
{
	char text[24], part[16];

	snprintf(text, sizeof(text), "%" PRIu64, v);
	snprintf(part, sizeof(part), "  %5.1f %%", 100 * rate((double)v, (double)of));
	line(title, text, part);
}

static void figure(const char *title, double v, int digits, const char *unit)
{
	char text[48];

	snprintf(text, sizeof(text), "%.*f", digits, v);
	line(title, text, unit);
}

static void show_head(const struct report *r)
{
	char ram[48] = "";

	if (r->disk_blocks)
		snprintf(ram, sizeof(ram), " + %u RAM + %u disk", r->ram_blocks, r->disk_blocks);
	else if (r->ram_blocks)
		snprintf(ram, sizeof(ram), " + %u RAM", r->ram_blocks);
	out_line("%s: %u worker%s on %s, %u VRAM%s blocks", r->trace, r->workers,
		 r->workers == 1 ? "" : "s", r->cache ? r->cache : "a cache of its own",
		 r->vram_blocks, ram);
	putchar('\n');
}

/* The time that the workers waited for copies, in sum. */
static void show_copies(const char *title, uint64_t bytes, uint64_t ns)
{
	figure(title, (double)bytes / 1e6, 1, " MB");
	figure("  in seconds", (double)ns / 1e9, 3, "");
}

static void show_fetch(const struct report *r)
{
	const struct counts *c = r->counts;

	row("fetched to VRAM", r->fetched);
	row("spilled to RAM", r->spilled);
	row("with a wrong checksum", r->bad);
	row("not committed", c->uncommitted);
	row("claimed", c->claimed);
	if (c->pending)
		row("claimed by others", c->pending);
	if (r->kills) {
		row("workers killed", r->kills);
		row("  verified after that", c->looked_after);
	}
	row("left behind", r->left);
}

static void show(const struct report *r)
{
	const struct counts *c = r->counts;

	show_head(r);
	row("requests", c->requests);
	row("blocks asked for", c->block_refs);
	share("prefix hits", c->hits, c->block_refs);
	share("  in VRAM", c->vram_hits, c->block_refs);
	share("  in RAM", c->ram_hits, c->block_refs);
	if (r->disk_blocks)
		share("  on disk", c->disk_hits, c->block_refs);
	row("inserted", c->inserted);
	row("evicted", r->evicted);
	if (!r->fetch) {
		row("demoted to RAM", c->demoted);
		row("promoted to VRAM", c->promoted);
	}
	row("dropped", r->dropped);
	if (r->restarts)
		row("restarts of gpcd", r->restarts);
	if (c->duplicates)
		row("computed twice", c->duplicates);
	if (c->unplaced + c->refused)
		row("without a place", c->unplaced + c->refused);
	if (c->on_device)
		row("matched on a device", c->on_device);
	if (c->retries)
		row("waits for a writer", c->retries);
	if (r->fetch) {
		show_fetch(r);
	} else if (r->device) {
		show_copies("copied to RAM", c->down_bytes, c->down_ns);
		show_copies("copied to VRAM", c->up_bytes, c->up_ns);
	}
	row("wrong blocks", c->wrong);
	if (r->failed)
		row("workers that failed", r->failed);
	figure("seconds", r->seconds, 3, "");
	figure("requests a second", rate((double)c->requests, r->seconds), 0, "");
	figure("lookup, median", (double)counts_percentile(c, 50) / 1e3, 2, " us");
	figure("lookup, 99 %", (double)counts_percentile(c, 99) / 1e3, 2, " us");
}

void report_show(const struct report *r, bool json)
{
	if (json)
		out_json(to_json(r));
	else
		show(r);
}

void report_progress(uint64_t done, uint64_t total)
{
	static const char bar[] = "########################################";
	unsigned columns = shown_columns(STDERR_FILENO), room, width, full;
	char text[64];

	if (!total) {
		fputs("\r\033[K", stderr);
		return;
	}
	snprintf(text, sizeof(text), " %3u %%  %" PRIu64 "/%" PRIu64,
		 (unsigned)(done * 100 / total), done, total);
	/* the text that fits, with its brackets and without the last column */
	room = columns > strlen(text) + 3 ? columns - 3 - (unsigned)strlen(text) : 0;
	width = room < sizeof(bar) - 1 ? room : sizeof(bar) - 1;
	full = (unsigned)(done * width / total);
	fputc('\r', stderr);
	if (width)
		fprintf(stderr, "[%.*s%*s]", (int)full, bar, (int)(width - full), "");
	shown_cut(text, columns - 1 - (width ? width + 2 : 0));
	fprintf(stderr, "%s\033[K", text);
}
