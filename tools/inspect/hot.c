/* SPDX-License-Identifier: Apache-2.0 */
/* hot: the prefixes, roots and tags that are used most.
 *
 * Readers count nothing by block.  Each use leaves a stamp, which the next use overwrites.  So the
 * command looks K times.  For each block it counts in `looks` the looks that found a use since the
 * look before; there were at least as many uses.  Let uses be independent, at a rate of r per
 * second.  Then a look d seconds after the look before finds a use with probability
 * p = 1 - exp(-r d).  The share of looks
 * gives r, and Wilson's interval of that share gives the interval of r.  If every look finds a use,
 * there is no upper end.
 *
 * A prefix ends at a block if no child has nine tenths of its looks.  The blocks before the end are
 * used together.  The blocks after it go different ways, or are not used.
 * Tests: t/tools/hot.t */
#include "config.h"

#include "tools/inspect/hot.h"
#include "tools/inspect/inspect.h"
#include "tools/common/output.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LOOKS = 20, BATCH = 256, MOST_ROWS = 1000, ROWS = 20, INTERVAL_MS = 250, FIELDS = 64 };

struct hot {
	const struct inspect *in;
	gpc *c;
	struct hot_table blocks, roots, tags;
	uint32_t looks; /* looks that counted: all but the first */
	uint64_t tick;  /* of the last look */
	uint64_t begun_ns, ended_ns;
};

/* ---- looking ---- */

static bool count(struct hot *h, const struct gpc_entry *e)
{
	gpc_key tag = { { e->tag, 0 } };

	return hot_count(&h->blocks, &e->key, e, h->looks) &&
	       (e->depth || hot_count(&h->roots, &e->parent, e, h->looks)) &&
	       (!e->tag || hot_count(&h->tags, &tag, e, h->looks));
}

/* Count the blocks that were used since that tick; 0, or a negative errno. */
static int walk(struct hot *h, uint64_t since)
{
	struct gpc_entry batch[BATCH];
	uint64_t cursor = 0;
	int n;

	do {
		n = gpc_walk(h->c, &cursor, batch, BATCH);
		for (int i = 0; i < n; i++)
			if (batch[i].stamp > since &&
			    (h->in->pool < 0 || GPC_POOL(batch[i].block) == h->in->pool) &&
			    !count(h, &batch[i]))
				return -ENOMEM;
	} while (n > 0);
	return n;
}

static int look(struct hot *h)
{
	struct gpc_info info = { .size = sizeof(info) };
	int r = gpc_info_get(h->c, &info);

	if (r == 0 && h->begun_ns)
		r = walk(h, h->tick);
	if (r < 0)
		return r;
	h->ended_ns = cli_now_ns();
	if (h->begun_ns)
		h->looks++;
	else
		h->begun_ns = h->ended_ns;
	h->tick = info.tick;
	return hot_trim(&h->blocks) && hot_trim(&h->roots) && hot_trim(&h->tags) ? 0 : -ENOMEM;
}

/* ---- estimates ---- */

static double interval_s(const struct hot *h)
{
	return (double)(h->ended_ns - h->begun_ns) / 1e9 / h->looks;
}

/* The rate, in uses per second, that follows from a share of looks; infinite for a share of 1. */
static double rate(const struct hot *h, double share)
{
	return -log1p(-share) / interval_s(h);
}

static void set_rate(json_t *o, const char *field, const struct hot *h, double share)
{
	json_object_set_new(o, field,
			    share < 1 ? out_need(json_real(round(rate(h, share) * 1000) / 1000))
				      : json_null());
}

/* Wilson's interval for 95 of 100; uses that the table may have lost raise its upper end. */
static void set_rates(json_t *o, const struct hot *h, const struct hot_table *t,
		      const struct hot_row *r)
{
	double n = h->looks, z = 1.96;
	double high = fmin(n, (double)r->count + t->lost);
	double p = r->count / n, q = high / n;
	double low_of = (p + z * z / 2 / n - z * sqrt(p * (1 - p) / n + z * z / 4 / n / n));
	double high_of = (q + z * z / 2 / n + z * sqrt(q * (1 - q) / n + z * z / 4 / n / n));

	json_object_set_new(o, "looks", out_need(json_integer(r->count)));
	set_rate(o, "uses", h, p);
	set_rate(o, "least", h, fmax(0, low_of / (1 + z * z / n)));
	set_rate(o, "most", h, q < 1 ? high_of / (1 + z * z / n) : 1);
}

/* ---- the answer ---- */

/* The words of a root that the cache keeps, without salts. */
static json_t *words_of(const struct hot *h, const gpc_key *root)
{
	char data[GPC_ROOT_BYTES], text[GPC_ROOT_BYTES + 2 * FIELDS] = "";
	struct gpc_field f[FIELDS];
	size_t used = 0;
	int n = gpc_root_get(h->c, root, f, FIELDS, data, sizeof(data));

	for (int i = 0; i < n && i < FIELDS; i++)
		if (f[i].tag != 3 && used + f[i].len + 2 < sizeof(text))
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%.*s",
						 used ? " " : "", (int)f[i].len,
						 (const char *)f[i].data);
	return n > 0 ? out_string(text, sizeof(text)) : json_null();
}

static json_t *key_or_null(const gpc_key *k)
{
	return k->w[0] | k->w[1] ? out_key(k) : json_null();
}

static bool is_end(const struct hot_row *r)
{
	return r->child * 10 < r->count * 9;
}

static json_t *list(struct hot *h, struct hot_table *t,
		    void (*put)(struct hot *h, json_t *o, const struct hot_row *r))
{
	uint64_t most = h->in->limit < MOST_ROWS ? h->in->limit : ROWS;
	json_t *rows = out_need(json_array());

	if (t == &h->blocks)
		hot_link(t);
	hot_sort(t);
	for (uint32_t i = 0; i < t->n && json_array_size(rows) < most; i++) {
		json_t *o;

		if (t == &h->blocks && !is_end(&t->row[i]))
			continue;
		o = out_need(json_object());
		put(h, o, &t->row[i]);
		set_rates(o, h, t, &t->row[i]);
		json_array_append_new(rows, o);
	}
	return rows;
}

static void put_block(struct hot *h, json_t *o, const struct hot_row *r)
{
	(void)h;
	json_object_set_new(o, "key", out_key(&r->key));
	json_object_set_new(o, "blocks", out_need(json_integer((json_int_t)r->depth + 1)));
	json_object_set_new(o, "tag", out_need(json_integer(r->tag)));
}

static void put_root(struct hot *h, json_t *o, const struct hot_row *r)
{
	json_object_set_new(o, "root", key_or_null(&r->key));
	json_object_set_new(o, "words", words_of(h, &r->key));
}

static void put_tag(struct hot *h, json_t *o, const struct hot_row *r)
{
	(void)h;
	json_object_set_new(o, "tag", out_need(json_integer((json_int_t)r->key.w[0])));
}

static const struct column block_columns[] = {
	{ "PREFIX", "key", SHOW_TEXT, true }, { "BLOCKS", "blocks", SHOW_TEXT },
	{ "TAG", "tag", SHOW_TEXT },          { "LOOKS", "looks", SHOW_TEXT },
	{ "USES/S", "uses", SHOW_TEXT },      { "LEAST", "least", SHOW_TEXT },
	{ "MOST", "most", SHOW_TEXT },
};

static const struct column root_columns[] = {
	{ "ROOT", "root", SHOW_TEXT, true }, { "WORDS", "words", SHOW_TEXT },
	{ "LOOKS", "looks", SHOW_TEXT },     { "USES/S", "uses", SHOW_TEXT },
	{ "LEAST", "least", SHOW_TEXT },     { "MOST", "most", SHOW_TEXT },
};

static const struct column tag_columns[] = {
	{ "TAG", "tag", SHOW_TEXT },     { "LOOKS", "looks", SHOW_TEXT },
	{ "USES/S", "uses", SHOW_TEXT }, { "LEAST", "least", SHOW_TEXT },
	{ "MOST", "most", SHOW_TEXT },
};

static void show(struct hot *h)
{
	json_t *o = out_need(json_object());
	const json_t *blocks, *roots, *tags;

	json_object_set_new(o, "name", out_string(h->in->name, GPC_MAX_NAME));
	json_object_set_new(o, "looks", out_need(json_integer(h->looks)));
	json_object_set_new(o, "interval_s", out_need(json_real(interval_s(h))));
	json_object_set_new(o, "lost", out_need(json_integer(h->blocks.lost)));
	json_object_set_new(o, "roots", list(h, &h->roots, put_root));
	json_object_set_new(o, "tags", list(h, &h->tags, put_tag));
	json_object_set_new(o, "prefixes", list(h, &h->blocks, put_block));
	if (h->in->json) {
		out_json(o);
		return;
	}
	blocks = json_object_get(o, "prefixes");
	roots = json_object_get(o, "roots");
	tags = json_object_get(o, "tags");
	out_line("%s: %u looks, %.3f s apart%s", h->in->name, h->looks, interval_s(h),
		 json_array_size(blocks) ? "" : ": no block was used");
	if (json_array_size(roots)) {
		putchar('\n');
		out_table(root_columns, ARRAY_SIZE(root_columns), roots);
	}
	if (json_array_size(tags)) {
		putchar('\n');
		out_table(tag_columns, ARRAY_SIZE(tag_columns), tags);
	}
	if (json_array_size(blocks)) {
		putchar('\n');
		out_table(block_columns, ARRAY_SIZE(block_columns), blocks);
	}
	json_decref(o);
}

static int hot(struct hot *h)
{
	uint64_t looks = h->in->looks ? h->in->looks : LOOKS;
	int r = look(h);

	while (r == 0 && h->looks < looks) {
		cli_sleep_ms(INTERVAL_MS);
		r = look(h);
	}
	if (r == -ENOMEM)
		cli_error("out of memory");
	else if (r < 0)
		cli_gpc_error(r, "%s", h->in->name);
	else
		show(h);
	return r < 0 ? EXIT_RUNTIME : 0;
}

int inspect_hot(struct inspect *in)
{
	struct hot h = { .in = in };
	int status;

	if (in->limit != UINT64_MAX && (!in->limit || in->limit > MOST_ROWS - 1))
		return cli_usage("hot: --limit: %" PRIu64 " is out of range (1 to %d)", in->limit,
				 MOST_ROWS - 1);
	status = inspect_open(in, 0, &h.c);
	if (status)
		return status;
	status = inspect_check_pool(in, h.c);
	if (!status)
		status = hot(&h);
	hot_free(&h.blocks);
	hot_free(&h.roots);
	hot_free(&h.tags);
	gpc_close(h.c);
	return status;
}
