/* SPDX-License-Identifier: Apache-2.0 */
/* ls: the live blocks, printed while they are read, since there may be millions.  lookup: one of
 * them.
 * Tests: t/tools/inspect-change.t t/tools/inspect.t */
#include "config.h"

#include "tools/inspect/inspect.h"
#include "tools/common/shown.h"
#include "tools/common/output.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { WALK_BATCH = 256 };

static json_t *describe(const struct gpc_entry *e)
{
	json_t *o = out_need(json_object());

	json_object_set_new(o, "block", out_need(json_integer(e->block)));
	json_object_set_new(o, "pool", out_need(json_integer(GPC_POOL(e->block))));
	json_object_set_new(o, "slot", out_need(json_integer(GPC_SLOT(e->block))));
	json_object_set_new(o, "depth", out_need(json_integer(e->depth)));
	json_object_set_new(o, "tag", out_need(json_integer(e->tag)));
	json_object_set_new(o, "refs", out_need(json_integer(e->refs)));
	json_object_set_new(o, "stamp", out_hex(e->stamp));
	json_object_set_new(o, "key", out_key(&e->key));
	json_object_set_new(o, "parent", out_key(&e->parent));
	return o;
}

/* pool, slot, depth, tag, references, stamp, key, parent */
static const int widths[] = { 4, 8, 6, 10, 5, 18, -32, -32 };

static void key_text(char text[33], const gpc_key *k)
{
	if (k->w[0] | k->w[1])
		snprintf(text, 33, "%016" PRIx64 "%016" PRIx64, k->w[0], k->w[1]);
	else
		snprintf(text, 33, "-");
}

static void print_csv(const char *const *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		printf("%s%s", i ? "," : "", text[i]);
	putchar('\n');
}

static void print_row(const struct gpc_entry *e, bool csv)
{
	char pool[12], slot[12], depth[12], tag[12], refs[12], stamp[20], key[33], parent[33];
	const char *const text[] = { pool, slot, depth, tag, refs, stamp, key, parent };

	snprintf(pool, sizeof(pool), "%d", GPC_POOL(e->block));
	snprintf(slot, sizeof(slot), "%d", GPC_SLOT(e->block));
	snprintf(depth, sizeof(depth), "%u", e->depth);
	snprintf(tag, sizeof(tag), "%u", e->tag);
	snprintf(refs, sizeof(refs), "%u", e->refs);
	snprintf(stamp, sizeof(stamp), "0x%016" PRIx64, e->stamp);
	key_text(key, &e->key);
	key_text(parent, &e->parent);
	if (csv)
		print_csv(text, ARRAY_SIZE(text));
	else
		out_cells(text, widths, ARRAY_SIZE(widths));
}

static void print_json(const struct gpc_entry *e, bool first)
{
	json_t *o = describe(e);

	fputs(first ? "\n  " : ",\n  ", stdout);
	out_dump(o, JSON_COMPACT);
	json_decref(o);
}

/* Returns 0, or the error of gpc_walk. */
static int walk(const struct inspect *in, gpc *c, uint64_t *ret_shown)
{
	struct gpc_entry batch[WALK_BATCH];
	uint64_t cursor = 0, shown = 0;
	int n = 1;

	while (n > 0 && shown < in->limit) {
		n = gpc_walk(c, &cursor, batch, WALK_BATCH);
		for (int i = 0; i < n && shown < in->limit; i++) {
			if (in->pool >= 0 && GPC_POOL(batch[i].block) != in->pool)
				continue;
			if (in->json)
				print_json(&batch[i], shown == 0);
			else
				print_row(&batch[i], in->csv);
			shown++;
		}
	}
	*ret_shown = shown;
	return n < 0 ? n : 0;
}

int inspect_check_pool(const struct inspect *in, gpc *c)
{
	struct gpc_pool p = { .size = sizeof(p) };
	int r = in->pool < 0 ? 0 : gpc_pool_get(c, in->pool, &p);

	if (r >= 0)
		return 0;
	if (r == -ENOENT || r == -EINVAL) /* not found now, or no key at all */
		cli_error("%s has no pool %d", in->name, in->pool);
	else
		cli_gpc_error(r, "%s", in->name);
	return EXIT_RUNTIME;
}

static int list_blocks(const struct inspect *in, gpc *c)
{
	static const char *const titles[] = { "POOL", "SLOT",  "DEPTH", "TAG",
					      "REFS", "STAMP", "KEY",   "PARENT" };
	static const char *const fields[] = { "pool", "slot",  "depth", "tag",
					      "refs", "stamp", "key",   "parent" };
	uint64_t shown;
	int r;

	if (in->json)
		putchar('[');
	else if (in->csv)
		print_csv(fields, ARRAY_SIZE(fields));
	else
		out_cells(titles, widths, ARRAY_SIZE(widths));
	r = walk(in, c, &shown);
	if (in->json)
		fputs(shown ? "\n]\n" : "]\n", stdout);
	if (r < 0)
		cli_gpc_error(r, "%s", in->name);
	return r < 0 ? EXIT_RUNTIME : 0;
}

int inspect_ls(struct inspect *in)
{
	gpc *c;
	int status;

	if (in->csv && in->json)
		return cli_usage("ls: either --csv or --json");
	status = inspect_open(in, GPC_READONLY, &c);
	if (status)
		return status;
	status = inspect_check_pool(in, c);
	if (!status)
		status = list_blocks(in, c);
	gpc_close(c);
	return status;
}

/* ---- lookup ---- */

static const struct column columns[] = {
	{ "SPACE", "space", SHOW_TEXT }, { "POOL", "pool", SHOW_TEXT },
	{ "SLOT", "slot", SHOW_TEXT },   { "KIND", "kind", SHOW_TEXT },
	{ "BLOCK", "block", SHOW_TEXT },
};

bool inspect_key(const char *text, gpc_key *ret)
{
	uint8_t bytes[16];
	uint64_t w[2];

	if (cli_hex(text, bytes, sizeof(bytes)) != sizeof(bytes))
		return false;
	memcpy(w, bytes, sizeof(w));
	ret->w[0] = be64toh(w[0]);
	ret->w[1] = be64toh(w[1]);
	return true;
}

static json_t *describe_hit(gpc *c, int space, gpc_block block)
{
	struct gpc_pool p = { .size = sizeof(p) };
	json_t *o = out_need(json_object());

	json_object_set_new(o, "space", out_need(json_integer(space)));
	json_object_set_new(o, "pool", out_need(json_integer(GPC_POOL(block))));
	json_object_set_new(o, "slot", out_need(json_integer(GPC_SLOT(block))));
	json_object_set_new(o, "block", out_need(json_integer(block)));
	if (gpc_pool_get(c, GPC_POOL(block), &p) >= 0)
		json_object_set_new(o, "kind", out_need(json_string(shown_kind(p.kind))));
	return o;
}

int inspect_lookup(struct inspect *in)
{
	json_t *hits;
	gpc_key key;
	gpc *c;
	int status, r = 0;

	if (!inspect_key(in->key, &key))
		return cli_usage("lookup: '%s' is not a key of 32 hex digits", in->key);
	status = inspect_open(in, GPC_READONLY, &c);
	if (status)
		return status;
	hits = out_need(json_array());
	for (int space = 0; r >= 0 && space < GPC_MAX_SPACES; space++) {
		gpc_block block = GPC_NONE;

		r = gpc_lookup(c, GPC_SPACE(space), &key, 1, &block, GPC_QUIET);
		if (r == 1)
			json_array_append_new(hits, describe_hit(c, space, block));
	}
	if (r < 0)
		cli_gpc_error(r, "%s", in->name);
	gpc_close(c);
	if (r < 0) {
		json_decref(hits);
		return EXIT_RUNTIME;
	}
	status = json_array_size(hits) ? 0 : EXIT_RUNTIME;
	if (in->json) {
		out_json(hits);
		return status;
	}
	if (status)
		puts("not found");
	else
		out_table(columns, ARRAY_SIZE(columns), hits);
	json_decref(hits);
	return status;
}
