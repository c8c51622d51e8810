/* SPDX-License-Identifier: Apache-2.0 */
/* The commands that forget: clear forgets the blocks of a pool or of a tag, drop forgets one key.
 * If no process is the writer, gpc-inspect is the writer while it works.
 * Tests: t/tools/inspect-change.t */
#include "config.h"

#include "tools/inspect/inspect.h"
#include "tools/common/output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PATIENCE_MS = 10000 };

/* The command must name its cache: it must not forget blocks of the only cache that happens to be
 * there. */
static int open_named(struct inspect *in, gpc **ret)
{
	return in->name ? inspect_open(in, GPC_SERVE, ret)
			: cli_usage("%s: NAME is missing", in->command);
}

/* The library's sentence names the flag; the message names the option. */
static int fail(const struct inspect *in, int r)
{
	static const char flag[] = "GPC_IF_IDLE: ";
	const char *text = cli_gpc_text(r);

	if (strncmp(text, flag, sizeof(flag) - 1))
		cli_gpc_error(r, "%s", in->name);
	else
		cli_error("%s: --if-idle: %s", in->name, text + sizeof(flag) - 1);
	return EXIT_RUNTIME;
}

/* ---- clear ---- */

static int live_blocks(gpc *c, uint64_t *ret)
{
	struct gpc_stats st = { .size = sizeof(st) };
	int r = gpc_stats_get(c, -1, &st);

	*ret = st.live;
	return r;
}

static void show_cleared(const struct inspect *in, uint64_t before, uint64_t after, int held)
{
	json_t *o;

	if (!in->json) {
		out_line("%s: live blocks: %" PRIu64 ", before that %" PRIu64
			 "; held, and found no more: %d",
			 in->name, after, before, held);
		return;
	}
	o = out_need(json_object());
	json_object_set_new(o, "name", out_string(in->name, GPC_MAX_NAME));
	json_object_set_new(o, "live_before", out_need(json_integer((json_int_t)before)));
	json_object_set_new(o, "live", out_need(json_integer((json_int_t)after)));
	json_object_set_new(o, "held", out_need(json_integer(held)));
	out_json(o);
}

static int clear(const struct inspect *in, gpc *c)
{
	uint64_t before, after;
	int held, r = live_blocks(c, &before);

	if (r < 0)
		return fail(in, r);
	held = gpc_pool_clear(c, in->pool, in->tag, in->if_idle ? GPC_IF_IDLE : 0, PATIENCE_MS);
	if (held < 0)
		return fail(in, held);
	r = live_blocks(c, &after);
	if (r < 0)
		return fail(in, r);
	show_cleared(in, before, after, held);
	return 0;
}

int inspect_clear(struct inspect *in)
{
	gpc *c;
	int status = open_named(in, &c);

	if (status)
		return status;
	status = inspect_check_pool(in, c);
	if (!status)
		status = clear(in, c);
	gpc_close(c);
	return status;
}

/* ---- drop ---- */

/* 1 = dropped, 0 = that space has no such block, or a negative errno.  The reference keeps the
 * block, so it has no other key when the command arrives. */
static int drop_in_space(const struct inspect *in, gpc *c, uint32_t space, const gpc_key *key)
{
	gpc_block block = GPC_NONE;
	int r = gpc_lookup(c, GPC_SPACE(space), key, 1, &block, GPC_QUIET), dropped;

	if (r <= 0 || (in->pool >= 0 && GPC_POOL(block) != in->pool))
		return r < 0 ? r : 0;
	r = gpc_ref(c, key, &block, 1);
	if (r <= 0)
		return r;
	dropped = gpc_drop(c, &block, 1, NULL, 0, PATIENCE_MS);
	r = gpc_release(c, &block, 1);
	return dropped < 0 ? dropped : r < 0 ? r : dropped;
}

static void show_dropped(const struct inspect *in, int n)
{
	json_t *o;

	if (!in->json) {
		if (n)
			out_line("%s: dropped %d block%s with that key, and what follows", in->name,
				 n, n == 1 ? "" : "s");
		else
			puts("not found");
		return;
	}
	o = out_need(json_object());
	json_object_set_new(o, "name", out_string(in->name, GPC_MAX_NAME));
	json_object_set_new(o, "dropped", out_need(json_integer(n)));
	out_json(o);
}

static int drop(const struct inspect *in, gpc *c, const gpc_key *key)
{
	int n = 0, r = 0;

	for (uint32_t space = 0; r >= 0 && space < GPC_MAX_SPACES; space++) {
		r = drop_in_space(in, c, space, key);
		n += r > 0;
	}
	if (r < 0)
		return fail(in, r);
	show_dropped(in, n);
	return n ? 0 : EXIT_RUNTIME;
}

int inspect_drop(struct inspect *in)
{
	gpc_key key;
	gpc *c;
	int status;

	if (!inspect_key(in->key, &key))
		return cli_usage("drop: '%s' is not a key of 32 hex digits", in->key);
	status = open_named(in, &c);
	if (status)
		return status;
	status = inspect_check_pool(in, c);
	if (!status)
		status = drop(in, c, &key);
	gpc_close(c);
	return status;
}
