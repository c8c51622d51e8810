/* SPDX-License-Identifier: Apache-2.0 */
/* What the workers counted: over the pipe, summed up, shown. */
#include "config.h"

#include "replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names as on the pipe; end_ns is not summed. */
static const struct { const char *name; size_t at; } fields[] = {
	{ "requests", offsetof(struct counts, requests) },
	{ "block_refs", offsetof(struct counts, block_refs) },
	{ "prefix_hit_blocks", offsetof(struct counts, hits) },
	{ "vram_hit_blocks", offsetof(struct counts, vram_hits) },
	{ "ram_hit_blocks", offsetof(struct counts, ram_hits) },
	{ "inserted", offsetof(struct counts, inserted) },
	{ "duplicates", offsetof(struct counts, duplicates) },
	{ "refused", offsetof(struct counts, refused) },
	{ "unplaced", offsetof(struct counts, unplaced) },
	{ "demoted", offsetof(struct counts, demoted) },
	{ "promoted", offsetof(struct counts, promoted) },
	{ "wrong_blocks", offsetof(struct counts, wrong) },
	{ "retries", offsetof(struct counts, retries) },
	{ "on_device", offsetof(struct counts, on_device) },
};

static uint64_t *field_of(struct counts *c, size_t i)
{
	return (uint64_t *)((char *)c + fields[i].at);
}

static json_t *need(json_t *v)
{
	if (v)
		return v;
	cli_error("out of memory");
	exit(EXIT_RUNTIME);
}

static void set(json_t *o, const char *field, uint64_t v)
{
	json_object_set_new(o, field, need(json_integer((json_int_t)v)));
}

/* ---- latencies ---- */

/* Below 64 exact; above, the top 7 bits. */
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
	return ((64 + (uint64_t)bucket % 64) << (shift - 1)) +
	       (UINT64_C(1) << (shift - 1)) / 2;
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
	json_t *o = need(json_object()), *latency = need(json_object());
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
	json_object_foreach((json_t *)latency, name, v) {
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
	json_t *o = need(json_object());

	json_object_set_new(o, "trace", json_string(r->trace));
	json_object_set_new(o, "cache", r->cache ? need(json_string(r->cache))
						: json_null());
	set(o, "workers", r->workers);
	set(o, "workers_failed", r->failed);
	set(o, "vram_blocks", r->vram_blocks);
	set(o, "ram_blocks", r->ram_blocks);
	set(o, "payload_bytes", r->payload);
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		set(o, fields[i].name, *field_of((struct counts *)c, i));
	set(o, "evicted", r->evicted);
	set(o, "dropped", r->dropped);
	json_object_set_new(o, "hit_rate", !c->block_refs ? json_null() :
		need(json_real(rate((double)c->hits, (double)c->block_refs))));
	json_object_set_new(o, "seconds", need(json_real(r->seconds)));
	json_object_set_new(o, "requests_per_second",
			    need(json_real(rate((double)c->requests, r->seconds))));
	set(o, "lookup_ns_p50", counts_percentile(c, 50));
	set(o, "lookup_ns_p99", counts_percentile(c, 99));
	return o;
}

static void row(const char *title, uint64_t v)
{
	printf("%-24s %12" PRIu64 "\n", title, v);
}

static void share(const char *title, uint64_t v, uint64_t of)
{
	printf("%-24s %12" PRIu64 "  %5.1f %%\n", title, v,
	       100 * rate((double)v, (double)of));
}

static void show(const struct report *r)
{
	const struct counts *c = r->counts;

	printf("%s: %u worker%s on %s, %u VRAM", r->trace, r->workers,
	       r->workers == 1 ? "" : "s",
	       r->cache ? r->cache : "a cache of its own", r->vram_blocks);
	if (r->ram_blocks)
		printf(" + %u RAM", r->ram_blocks);
	puts(" blocks\n");
	row("requests", c->requests);
	row("blocks asked for", c->block_refs);
	share("prefix hits", c->hits, c->block_refs);
	share("  in VRAM", c->vram_hits, c->block_refs);
	share("  in RAM", c->ram_hits, c->block_refs);
	row("inserted", c->inserted);
	row("evicted from VRAM", r->evicted);
	row("demoted to RAM", c->demoted);
	row("promoted to VRAM", c->promoted);
	row("dropped from RAM", r->dropped);
	if (c->duplicates)
		row("computed twice", c->duplicates);
	if (c->unplaced + c->refused)
		row("without a place", c->unplaced + c->refused);
	if (c->on_device)
		row("matched on a device", c->on_device);
	if (c->retries)
		row("waits for a writer", c->retries);
	row("wrong blocks", c->wrong);
	if (r->failed)
		row("workers that failed", r->failed);
	printf("%-24s %12.3f\n", "seconds", r->seconds);
	printf("%-24s %12.0f\n", "requests a second",
	       rate((double)c->requests, r->seconds));
	printf("%-24s %12.2f us\n", "lookup, median",
	       (double)counts_percentile(c, 50) / 1e3);
	printf("%-24s %12.2f us\n", "lookup, 99 %",
	       (double)counts_percentile(c, 99) / 1e3);
}

void report_show(const struct report *r, bool json)
{
	json_t *o;

	if (!json) {
		show(r);
		return;
	}
	o = to_json(r);
	if (json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0)
		putchar('\n');
	json_decref(o);
}

void report_progress(uint64_t done, uint64_t total)
{
	enum { WIDTH = 40 };
	static const char bar[] = "########################################";
	int full;

	if (!total) {
		fprintf(stderr, "\r%*s\r", WIDTH + 32, "");
		return;
	}
	full = (int)(done * WIDTH / total);
	fprintf(stderr, "\r[%.*s%*s] %3u %%  %" PRIu64 "/%" PRIu64, full, bar,
		WIDTH - full, "", (unsigned)(done * 100 / total), done, total);
}
