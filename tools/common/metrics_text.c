/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics as Prometheus' text, version 0.0.4.
 * Tests: t/daemon/metrics.t */
#include "config.h"

#include "tools/common/metrics.h"

#include <string.h>

static const char *const tiers[METRICS_TIERS] = { "vram", "ram", "disk", "remote" };

/* The name of a kind of pool; another version may have more kinds. */
static const char *tier_of(uint32_t kind)
{
	return tiers[kind >= GPC_VRAM && kind <= GPC_REMOTE ? kind - GPC_VRAM : 1];
}

/* The bytes of the UTF-8 character at s; 0: it is none. */
static unsigned character(const unsigned char *s)
{
	unsigned n = s[0] < 0x80                   ? 1
		     : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
		     : (s[0] & 0xf0) == 0xe0       ? 3
		     : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
						   : 0;

	for (unsigned i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0; /* longer than needed, a surrogate, or beyond the last character */
	return n;
}

/* A label is UTF-8, and three characters in it are escaped. */
static void put_label(FILE *f, const char *name, const char *value)
{
	const unsigned char *s = (const unsigned char *)value;
	unsigned n;

	fprintf(f, "%s=\"", name);
	for (; *s; s += n ? n : 1) {
		n = character(s);
		if (*s == '\n')
			fputs("\\n", f);
		else if (*s == '"' || *s == '\\')
			fprintf(f, "\\%c", *s);
		else if (n)
			fwrite(s, 1, n, f);
		else
			fputc('?', f);
	}
	fputc('"', f);
}

static void put_number(FILE *f, const void *at, const struct metrics_row *row)
{
	uint64_t v = 0;
	uint32_t v32;

	if (row->bytes == 4) {
		memcpy(&v32, at, sizeof(v32));
		v = v32;
	} else {
		memcpy(&v, at, sizeof(v));
	}
	if (row->scale == 1)
		fprintf(f, "%llu\n", (unsigned long long)v);
	else
		fprintf(f, "%llu.%09llu\n", (unsigned long long)(v / row->scale),
			(unsigned long long)(v % row->scale));
}

/* Write "gpc_NAME{cache="...""; more labels may follow. */
static void begin(FILE *f, const char *family, const char *suffix, const struct metrics *m,
		  const char *labels)
{
	fprintf(f, "gpc_%s%s{", family, suffix);
	put_label(f, "cache", m->name);
	if (labels)
		fprintf(f, ",%s", labels);
}

static void put_histogram(FILE *f, const char *family, const struct metrics *m, unsigned which)
{
	const struct gpc_histogram *h = &m->histogram[which];
	unsigned copy = which - GPC_COPY_VRAM_VRAM;
	char labels[64] = "";
	uint64_t sum = 0;

	if (which >= GPC_COPY_VRAM_VRAM)
		snprintf(labels, sizeof(labels), "from=\"%s\",to=\"%s\"", tiers[copy / 2],
			 tiers[copy % 2]);
	for (uint32_t i = 0; i < h->cells; i++) {
		sum += h->cell[i];
		begin(f, family, "_bucket", m, labels[0] ? labels : NULL);
		if (i + 1 < h->cells)
			fprintf(f, ",le=\"%.10g\"} %llu\n", 1e-9 * (double)(h->first_ns << i),
				(unsigned long long)sum);
		else
			fprintf(f, ",le=\"+Inf\"} %llu\n", (unsigned long long)sum);
	}
	begin(f, family, "_sum", m, labels[0] ? labels : NULL);
	fprintf(f, "} %.15g\n", h->sum);
	begin(f, family, "_count", m, labels[0] ? labels : NULL);
	fprintf(f, "} %llu\n", (unsigned long long)sum);
}

static unsigned how_many(const struct metrics *m, const struct metrics_row *row)
{
	switch (row->of) {
	case OF_POOL:
		return m->npools;
	case OF_SPACE:
		return m->nspaces;
	case OF_MIRROR:
		return m->nmirrors;
	case OF_PEER:
		return m->npeers;
	case OF_TIER:
		return m->ntiers;
	case OF_COUNTER:
		return m->ncounters;
	case OF_COPY:
		return METRICS_COPIES;
	case OF_DAEMON:
		return m->role != METRICS_NO_DAEMON;
	default:
		return 1;
	}
}

/* Write the labels of number i beside the cache; returns its struct. */
static const void *put_labels(FILE *f, const struct metrics *m, const struct metrics_row *row,
			      unsigned i)
{
	switch (row->of) {
	case OF_POOL:
		fprintf(f, ",pool=\"%d\",space=\"%u\",tier=\"%s\"", (int)m->pool[i].p.number,
			m->pool[i].p.space, tier_of(m->pool[i].p.kind));
		return &m->pool[i];
	case OF_SPACE:
		fprintf(f, ",space=\"%u\",tier=\"%s\"", m->space[i].space, tiers[m->space[i].tier]);
		return &m->space[i];
	case OF_TIER:
		fprintf(f, ",tier=\"%s\"", tier_of(m->tier[i].t.kind));
		return &m->tier[i];
	case OF_COUNTER:
		fprintf(f, ",tier=\"%s\",", tier_of(m->counter[i].kind));
		put_label(f, "counter", m->counter[i].c.name);
		return &m->counter[i];
	case OF_MIRROR:
		fprintf(f, ",mirror=\"%u\",", i);
		put_label(f, "device", m->mirror[i].device);
		return &m->mirror[i];
	case OF_PEER:
		fprintf(f, ",seat=\"%d\",", m->peer[i].seat);
		put_label(f, "label", m->peer[i].st.label);
		return &m->peer[i];
	case OF_COPY:
		fprintf(f, ",from=\"%s\",to=\"%s\"", tiers[i / 2], tiers[i % 2]);
		return &m->histogram[GPC_COPY_VRAM_VRAM + i];
	default:
		return m;
	}
}

/* A cache that could not be opened has only one number. */
static bool is_known(const struct metrics *m, const struct metrics_row *row)
{
	return m->up || row->at == offsetof(struct metrics, up) || row->of == OF_DAEMON;
}

static void put_row(FILE *f, const char *family, const struct metrics_row *row,
		    const struct metrics *m)
{
	if (!is_known(m, row))
		return;
	if (row->of == OF_HISTOGRAM) {
		put_histogram(f, family, m, row->bytes);
		return;
	}
	for (unsigned i = 0; i < how_many(m, row); i++) {
		const void *from;

		begin(f, family, "", m, row->labels);
		from = put_labels(f, m, row, i);
		fputs("} ", f);
		put_number(f, (const char *)from + row->at, row);
	}
}

/* Numbers that only a daemon knows of itself are left out if no daemon reports. */
static bool is_told(const struct metrics_row *row, const struct metrics *const *list, unsigned n)
{
	if (row->of != OF_DAEMON)
		return true;
	for (unsigned i = 0; i < n; i++)
		if (list[i]->role != METRICS_NO_DAEMON)
			return true;
	return false;
}

static void put_family(FILE *f, unsigned first, const struct metrics *const *list, unsigned n)
{
	const struct metrics_row *row = &metrics_rows[first];

	if (!is_told(row, list, n))
		return;
	fprintf(f, "# HELP gpc_%s %s\n# TYPE gpc_%s %s\n", row->name, row->help, row->name,
		row->type);
	if (row->of == OF_TOOL) {
		fprintf(f, "gpc_%s{version=\"%s\"} 1\n", row->name, PACKAGE_VERSION);
		return;
	}
	for (unsigned i = 0; i < n; i++)
		for (unsigned r = first; r == first || (r < metrics_nrows && !metrics_rows[r].name);
		     r++)
			put_row(f, row->name, &metrics_rows[r], list[i]);
}

void metrics_print(FILE *f, const struct metrics *const *list, unsigned n)
{
	for (unsigned i = 0; i < metrics_nrows; i++)
		if (metrics_rows[i].name)
			put_family(f, i, list, n);
}

/* Labels in the form of a page: "cache pool space tier". */
static const char *labels_of(unsigned row)
{
	static const char *const of[] = {
		[OF_TOOL] = "version",
		[OF_CACHE] = "cache",
		[OF_DAEMON] = "cache",
		[OF_POOL] = "cache pool space tier",
		[OF_SPACE] = "cache space tier",
		[OF_MIRROR] = "cache mirror device",
		[OF_PEER] = "cache seat label",
		[OF_TIER] = "cache tier",
		[OF_COUNTER] = "cache tier counter",
		[OF_HISTOGRAM] = "cache",
		[OF_COPY] = "cache from to",
	};
	const struct metrics_row *r = &metrics_rows[row];

	if (r->of == OF_HISTOGRAM && r->bytes >= GPC_COPY_VRAM_VRAM)
		return "cache from to";
	return of[r->of];
}

void metrics_print_table(FILE *f)
{
	for (unsigned i = 0; i < metrics_nrows; i++) {
		const struct metrics_row *r = &metrics_rows[i];
		size_t own = r->labels ? strcspn(r->labels, "=") : 0;

		if (!r->name)
			continue;
		fprintf(f, "gpc_%s\t%s\t%s", r->name, r->type, labels_of(i));
		if (own)
			fprintf(f, " %.*s", (int)own, r->labels);
		fprintf(f, "\t%s\n", r->help);
	}
}
