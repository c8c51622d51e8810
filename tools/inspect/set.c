/* SPDX-License-Identifier: Apache-2.0 */
/* set: settings of a cache that runs.  All of them are checked before the first one is set.
 *
 *   key            it is set by                     it takes effect in
 *   -------------  -------------------------------  -------------------------------------------
 *   free-target    gpc_setting_set                  the writer, at its next pass
 *   quota          gpc_setting_set                  the writer, at the next reserve
 *   log-level      gpc_setting_set                  each gpcd, within 2 seconds
 *   spill-ahead    gpc_setting_set, with --pool     the process that spills, at its next look
 *   disk-ahead     gpc_setting_set                  the steward of tiers, at its next round
 *   disk-max-age   gpc_setting_set                  the same
 *   slow-ms        gpc_setting_set                  each call that waits for the writer
 *   mode, group    gpc_create with GPC_IF_ABSENT    the kernel, at the next attach
 *
 * All other options of gpcd are fixed when the cache is made, or when gpcd starts.
 * Tests: t/tools/set.t */
#include "config.h"

#include "gpc_serve.h"
#include "tools/inspect/inspect.h"
#include "tools/common/dress.h"
#include "tools/common/output.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 8 };

static const struct key {
	const char *name;
	uint32_t what; /* GPC_SET_..., or 0 for a setting of the files */
	uint64_t least, most;
} keys[] = {
	{ "free-target", GPC_SET_FREE_TARGET, 0, 1 << 24 },
	{ "quota", GPC_SET_QUOTA, 0, UINT32_MAX },
	{ "log-level", GPC_SET_LOG_LEVEL, 0, 7 },
	{ "spill-ahead", GPC_SET_SPILL_AHEAD, 0, 1 << 24 },
	{ "disk-ahead", GPC_SET_DISK_AHEAD, 1, 4096 },
	{ "disk-max-age", GPC_SET_DISK_MAX_AGE, 0, UINT32_MAX },
	{ "slow-ms", GPC_SET_SLOW_MS, 0, 3600000 },
	{ "mode", 0, 0, 0 },
	{ "group", 0, 0, 0 },
};

/* Options of gpcd that stay as they are, by when that is decided. */
static const char *const made_with[] = {
	"block-size",  "max-blocks", "vram-blocks", "ram-blocks",  "ram-space",    "unchained",
	"block-bytes", "sums",       "numa",        "huge-dir",    "max-peers",    "max-pools",
	"device",      "tick",       "quarantine",  "keep-tokens", "keep-digests", "max-aliases",
	"layout",      "dir",        "key-file"
};
static const char *const started_with[] = { "disk",
					    "disk-bytes",
					    "disk-blocks",
					    "disk-exclusive",
					    "disk-min-uses",
					    "disk-write-rate",
					    "disk-resize",
					    "disk-buffered",
					    "disk-strict",
					    "remote",
					    "remote-tag",
					    "remote-blocks",
					    "remote-min-uses",
					    "remote-deadline",
					    "events",
					    "events-replay",
					    "events-memory",
					    "events-public",
					    "topic",
					    "metrics",
					    "metrics-public",
					    "standby",
					    "foreground",
					    "daemonize",
					    "pidfile",
					    "unlink",
					    "quiet" };

struct change {
	const struct key *key;
	int64_t value; /* -1: as when it was made */
};

struct set {
	struct inspect *in;
	gpc *c;
	struct change list[MOST];
	uint32_t n;
	uint32_t mode, gid; /* 0: as it is */
	bool files;
};

/* ---- the words ---- */

static bool is_among(const char *const *list, size_t n, const char *key)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(list[i], key))
			return true;
	return false;
}

static int refuse_key(const char *key)
{
	if (is_among(made_with, ARRAY_SIZE(made_with), key))
		return cli_usage(
			"set: %s is fixed when a cache is made: 'gpc-inspect command' prints "
			"how, and 'gpc-inspect rm' makes room for another one",
			key);
	if (is_among(started_with, ARRAY_SIZE(started_with), key))
		return cli_usage(
			"set: %s is an option that gpcd reads when it starts: start it anew, "
			"and the cache stays",
			key);
	return cli_usage("set: there is no setting '%s'; there are free-target, quota, log-level, "
			 "spill-ahead, disk-ahead, disk-max-age, slow-ms, mode and group",
			 key);
}

static int take_mode(struct set *s, const char *text)
{
	char *end;
	unsigned long mode = strtoul(text, &end, 8);

	if (*text < '0' || *text > '7' || *end || (mode & ~0060ul) != 0600)
		return cli_usage(
			"set: mode: '%s' is not 0600, 0640 or 0660, nor another one of the "
			"owner's 0600 and bits of 0060",
			text);
	s->mode = (uint32_t)mode;
	s->files = true;
	return 0;
}

static int take_group(struct set *s, const char *text)
{
	const struct group *g = getgrnam(text);
	unsigned long long gid;
	char *end;

	errno = 0;
	gid = g ? g->gr_gid : strtoull(text, &end, 10);
	if (!g && (*text < '0' || *text > '9' || *end || errno || gid >= UINT32_MAX))
		return cli_usage(
			"set: group: there is no group '%s', and it is no number of one, 0 "
			"to %u",
			text, UINT32_MAX - 1);
	s->gid = dress_gid((gid_t)gid);
	s->files = true;
	return 0;
}

static int level_named(const char *text)
{
	static const char *const names[] = { "emerg",   "alert",  "crit", "err",
					     "warning", "notice", "info", "debug" };

	for (int i = 0; i < (int)ARRAY_SIZE(names); i++)
		if (!strcmp(text, names[i]))
			return i;
	return -1;
}

static int take_value(struct set *s, const struct key *k, const char *text)
{
	uint64_t v = 0;
	int level = k->what == GPC_SET_LOG_LEVEL ? level_named(text) : -1;
	bool made = !strcmp(text, "made");

	if (k->what == GPC_SET_SPILL_AHEAD && s->in->pool < 0)
		return cli_usage("set: spill-ahead is a pool's: --pool is missing");
	if (!made && level < 0 && k->what == GPC_SET_LOG_LEVEL && (*text < '0' || *text > '9'))
		return cli_usage("set: log-level: '%s' is no level: emerg, alert, crit, err, "
				 "warning, notice, info, debug, 0 to 7, or made",
				 text);
	if (!made && level < 0 && !cli_count(k->name, text, k->least, k->most, &v))
		return EXIT_USAGE;
	s->list[s->n++] = (struct change){ k, made ? -1 : level >= 0 ? level : (int64_t)v };
	return 0;
}

static int take_word(struct set *s, const char *word)
{
	const char *value = strchr(word, '=');
	char key[32];

	if (!value || value == word || (size_t)(value - word) >= sizeof(key))
		return cli_usage("set: '%s' is not KEY=VALUE", word);
	snprintf(key, sizeof(key), "%.*s", (int)(value - word), word);
	value++;
	for (uint32_t i = 0; i < s->n; i++)
		if (!strcmp(s->list[i].key->name, key))
			return cli_usage("set: %s is given twice", key);
	if (!strcmp(key, "mode"))
		return s->mode ? cli_usage("set: mode is given twice") : take_mode(s, value);
	if (!strcmp(key, "group"))
		return s->gid ? cli_usage("set: group is given twice") : take_group(s, value);
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (!strcmp(keys[i].name, key))
			return take_value(s, &keys[i], value);
	return refuse_key(key);
}

/* ---- the cache ---- */

static int fail(const struct set *s, int r)
{
	cli_gpc_error(r, "%s", s->in->name);
	return EXIT_RUNTIME;
}

/* Checks that the pool is there and has enough blocks, before anything is set. */
static int look_first(const struct set *s)
{
	struct gpc_pool p = { .size = sizeof(p) };

	for (uint32_t i = 0; i < s->n; i++) {
		if (s->list[i].key->what != GPC_SET_SPILL_AHEAD)
			continue;
		if (gpc_pool_get(s->c, s->in->pool, &p) < 0) {
			cli_error("%s has no pool %d", s->in->name, s->in->pool);
			return EXIT_RUNTIME;
		}
		if (p.demote_to < 0 || s->list[i].value > (int64_t)p.blocks) {
			cli_error("%s: spill-ahead: pool %d %s", s->in->name, s->in->pool,
				  p.demote_to < 0 ? "demotes to no other one" : "has fewer blocks");
			return EXIT_RUNTIME;
		}
	}
	return 0;
}

/* Does the same as gpcd --mode and --group for a cache that exists: the library changes all of its
 * files. */
static int set_files(struct set *s)
{
	struct gpc_config cfg = { .size = sizeof(cfg), .dir = s->in->dir };
	struct gpc_attach_options opt = { .size = sizeof(opt),
					  .dir = s->in->dir,
					  .label = "gpc-inspect" };
	char path[PATH_MAX];
	struct stat st;
	int r;

	snprintf(path, sizeof(path), "%s/gpc.%s.idx", inspect_dir(s->in), s->in->name);
	if (stat(path, &st))
		return fail(s, -errno);
	if (geteuid() && st.st_uid != geteuid()) {
		cli_error(
			"%s: set: %s: only user %u, who owns its files, can change that: they have "
			"mode %03o and group %u",
			s->in->name, s->gid ? "group" : "mode", (unsigned)st.st_uid,
			st.st_mode & 0777, (unsigned)st.st_gid);
		return EXIT_RUNTIME;
	}
	cfg.mode = s->mode ? s->mode : 0660;
	cfg.gid = s->gid ? s->gid : dress_gid(st.st_gid);
	r = dress(s->c, s->in->name, &cfg, &opt);
	if (r != -ESTALE)
		return r < 0 ? fail(s, r) : 0;
	cli_error("%s: the cache has lost its name", s->in->name);
	return EXIT_RUNTIME;
}

static int apply(struct set *s)
{
	int status = look_first(s), r;

	if (!status && s->files)
		status = set_files(s);
	for (uint32_t i = 0; !status && i < s->n; i++) {
		const struct key *k = s->list[i].key;

		r = gpc_setting_set(s->c, k->what,
				    k->what == GPC_SET_SPILL_AHEAD ? s->in->pool : -1,
				    s->list[i].value);
		if (r < 0)
			status = fail(s, r);
	}
	return status;
}

/* ---- the settings that hold now ---- */

static json_t *settings(const struct set *s)
{
	json_t *o = out_need(json_object());
	char path[PATH_MAX], text[16];
	struct stat st;
	int64_t v;

	json_object_set_new(o, "name", out_string(s->in->name, GPC_MAX_NAME));
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		bool pool = keys[i].what == GPC_SET_SPILL_AHEAD;

		if (!keys[i].what || (pool && s->in->pool < 0) ||
		    gpc_setting_get(s->c, keys[i].what, pool ? s->in->pool : -1, &v) < 0)
			continue;
		json_object_set_new(o, keys[i].name,
				    v < 0 ? json_null() : out_need(json_integer(v)));
	}
	snprintf(path, sizeof(path), "%s/gpc.%s.idx", inspect_dir(s->in), s->in->name);
	if (stat(path, &st) == 0) {
		snprintf(text, sizeof(text), "0%o", st.st_mode & 0777);
		json_object_set_new(o, "mode", out_need(json_string(text)));
		json_object_set_new(o, "group", out_need(json_integer(st.st_gid)));
	}
	return o;
}

static void show(const struct set *s)
{
	static const struct column columns[] = {
		{ "cache", "name", SHOW_TEXT },
		{ "free-target", "free-target", SHOW_TEXT },
		{ "quota", "quota", SHOW_TEXT },
		{ "log-level", "log-level", SHOW_TEXT },
		{ "spill-ahead", "spill-ahead", SHOW_TEXT },
		{ "disk-ahead", "disk-ahead", SHOW_TEXT },
		{ "disk-max-age", "disk-max-age", SHOW_TEXT },
		{ "slow-ms", "slow-ms", SHOW_TEXT },
		{ "mode", "mode", SHOW_TEXT },
		{ "group", "group", SHOW_TEXT },
	};
	json_t *o = settings(s);

	if (s->in->json) {
		out_json(o);
		return;
	}
	out_fields(columns, ARRAY_SIZE(columns), o);
	json_decref(o);
}

int inspect_set(struct inspect *in)
{
	struct set s = { .in = in };
	int status = in->name ? 0 : cli_usage("set: NAME is missing");

	for (int i = 0; !status && i < in->nwords; i++)
		status = take_word(&s, in->words[i]);
	if (!status && s.gid && s.mode && !(s.mode & 0060))
		status = cli_usage(
			"set: group counts for nothing with mode %03o, which lets no group in: 0660 does, and is "
			"the mode where none is given",
			s.mode);
	if (!status)
		status = inspect_open(in, in->nwords ? 0 : GPC_READONLY, &s.c);
	if (status)
		return status;
	status = inspect_check_pool(in, s.c);
	if (!status)
		status = apply(&s);
	if (!status)
		show(&s);
	gpc_close(s.c);
	return status;
}
