/* SPDX-License-Identifier: Apache-2.0 */
/* command: the command line of gpcd that makes a cache like this one, or its configuration file.
 *
 * It has the settings that the cache itself knows: its geometry, the pools that gpcd makes, the
 * memory of RAM, and the owner and mode of its files.  Standard error names the rest, a line each:
 * pools of other makers, tiers, whose options only the steward knows, and settings that no option
 * has.
 * Tests: t/tools/command.t t/python/vllm-gpcd.t */
#include "config.h"

#include "tools/inspect/inspect.h"
#include "tools/common/output.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_OPTIONS = 48, VALUE = 320, TRANSIT = 64, EXACT_US = 1, PAGE = 4096 };

struct made {
	const struct inspect *in;
	gpc *c;
	struct gpc_info info;
	uint32_t n;
	struct {
		const char *name; /* without hyphens */
		char value[VALUE];
		bool flag; /* it takes no value */
	} option[MOST_OPTIONS];
	json_t *notes;
	int vram, ram; /* pools that gpcd makes, or -1 */
};

static void add(struct made *m, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void add(struct made *m, const char *name, const char *fmt, ...)
{
	va_list ap;

	if (m->n == MOST_OPTIONS)
		return;
	m->option[m->n].name = name;
	va_start(ap, fmt);
	vsnprintf(m->option[m->n].value, VALUE, fmt, ap);
	va_end(ap);
	m->n++;
}

static void add_flag(struct made *m, const char *name)
{
	add(m, name, "%s", "");
	m->option[m->n - 1].flag = true;
}

static void note(struct made *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void note(struct made *m, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	json_array_append_new(m->notes, out_string(text, sizeof(text)));
}

/* ---- the cache ---- */

static void add_tick(struct made *m)
{
	if (m->info.tick_us == EXACT_US)
		add(m, "tick", "exact");
	else
		add(m, "tick", "%u", (m->info.tick_us + 999) / 1000);
	if (m->info.tick_us != EXACT_US && m->info.tick_us % 1000)
		note(m, "--tick has whole milliseconds, and the cache has %u microseconds",
		     m->info.tick_us);
}

static void add_geometry(struct made *m)
{
	const struct gpc_info *i = &m->info;

	add(m, "block-size", "%u", i->block_tokens);
	add(m, "max-blocks", "%u", i->max_blocks);
	add(m, "max-peers", "%u", i->max_peers);
	add(m, "max-pools", "%u", i->max_pools);
	add(m, "max-aliases", "%u", i->max_aliases);
	add_tick(m);
	add(m, "free-target", "%d", i->free_target > 0 ? i->free_target : 0);
	add(m, "quarantine", "%u", i->quarantine_ms);
	add(m, "quota", "%u", i->peer_quota);
	if (i->keep_tokens)
		add_flag(m, "keep-tokens");
	if (i->keep_digests)
		add_flag(m, "keep-digests");
}

static void add_layout(struct made *m)
{
	static const uint8_t none[sizeof(m->info.layout)];
	char text[2 * sizeof(none) + 1];

	if (!memcmp(m->info.layout, none, sizeof(none)))
		return;
	for (size_t i = 0; i < sizeof(none); i++)
		snprintf(text + 2 * i, 3, "%02x", m->info.layout[i]);
	add(m, "layout", "%s", text);
}

static void add_devices(struct made *m)
{
	char list[sizeof(m->info.devices)], *rest, *one;

	snprintf(list, sizeof(list), "%s", m->info.devices);
	for (one = strtok_r(list, ",", &rest); one; one = strtok_r(NULL, ",", &rest))
		if (strcmp(one, "none"))
			add(m, "device", "%s", one);
}

/* gpcd gives the files its own group where no other is named. */
static void add_files(struct made *m)
{
	char path[PATH_MAX], *full = m->in->dir ? realpath(m->in->dir, NULL) : NULL;
	struct stat st;

	snprintf(path, sizeof(path), "%s/gpc.%s.idx", inspect_dir(m->in), m->in->name);
	if (lstat(path, &st) == 0) {
		add(m, "mode", "0%o", st.st_mode & 0777);
		if (st.st_mode & 0070)
			add(m, "group", "%u", (unsigned)st.st_gid);
	}
	if (m->in->dir && strlen(full ? full : m->in->dir) < VALUE)
		add(m, "dir", "%s", full ? full : m->in->dir);
	else if (m->in->dir)
		note(m, "--dir is too long for this");
	free(full);
}

/* ---- its pools ---- */

static bool is_plain(const struct gpc_pool *p, uint32_t flags)
{
	return p->owner < 0 && !(p->flags & ~flags) && !p->spill_ahead && p->gpus <= 1 &&
	       !p->backing_size;
}

static bool get(struct made *m, int number, struct gpc_pool *ret)
{
	*ret = (struct gpc_pool){ .size = sizeof(*ret) };
	return gpc_pool_get(m->c, number, ret) == 0;
}

/* Pool 0 of VRAM, and after it one of RAM, as gpc_config makes them. */
static void find_pools(struct made *m)
{
	struct gpc_pool p;

	m->vram = m->ram = -1;
	if (get(m, 0, &p) && p.kind == GPC_VRAM && is_plain(&p, 0) && !p.space && !p.memory &&
	    !p.transit)
		m->vram = 0;
	if (get(m, m->vram + 1, &p) && p.kind == GPC_RAM && is_plain(&p, GPC_POOL_UNCHAINED) &&
	    p.transit == TRANSIT && p.demote_to < 0)
		m->ram = m->vram + 1;
}

static const char *nodes_text(uint64_t nodes, char *ret, size_t room)
{
	size_t used = 0;

	ret[0] = 0;
	for (uint32_t i = 0; i < 64 && used + 4 < room; i++)
		if (nodes >> i & 1)
			used += (size_t)snprintf(ret + used, room - used, "%s%u", used ? "," : ":",
						 i);
	return ret;
}

static void add_numa(struct made *m, const struct gpc_pool_memory *p)
{
	static const char *const policies[] = { "default", "interleave", "bind" };
	char nodes[256];

	if (p->numa && p->numa < ARRAY_SIZE(policies))
		add(m, "numa", "%s%s", policies[p->numa],
		    nodes_text(p->nodes, nodes, sizeof(nodes)));
}

/* The folder is that of the cache's files, unless the file is in a hugetlbfs. */
static void add_huge_dir(struct made *m, const struct gpc_pool_memory *p)
{
	char dir[sizeof(p->file)], *slash;
	struct stat a, b;

	snprintf(dir, sizeof(dir), "%s", p->file);
	slash = strrchr(dir, '/');
	if (!slash)
		return;
	*slash = 0;
	if (stat(dir, &a) == 0 && stat(inspect_dir(m->in), &b) == 0 &&
	    (a.st_dev != b.st_dev || a.st_ino != b.st_ino))
		add(m, "huge-dir", "%s", dir);
}

/* Does --sums lay them out so?  Part by part, each at a multiple of a page. */
static bool is_in_parts(const struct gpc_pool_memory *p, const struct gpc_run *runs)
{
	uint64_t part = p->sums ? p->block_bytes / p->sums : 0;
	uint64_t stride = (part + PAGE - 1) / PAGE * PAGE;

	if (p->sums <= 1 || p->nruns != p->sums)
		return false;
	for (uint32_t i = 0; i < p->nruns; i++)
		if (runs[i].count != 1 || runs[i].bytes != part || runs[i].part ||
		    runs[i].slot_stride != stride || runs[i].offset != i * p->slots * stride)
			return false;
	return true;
}

static void add_sums(struct made *m, const struct gpc_pool_memory *p, const struct gpc_run *runs)
{
	if (is_in_parts(p, runs)) {
		add(m, "sums", "%u", p->sums);
		return;
	}
	if (p->nruns != 1)
		note(m, "pool %d has a layout of %u runs, which no option says", m->ram, p->nruns);
	if (!p->checksums)
		note(m, "pool %d keeps no checksums, which no option says", m->ram);
	if (p->sums > 1)
		note(m,
		     "pool %d keeps %u checksums of a block, and not in the layout that --sums makes",
		     m->ram, p->sums);
}

static void add_memory(struct made *m)
{
	static struct gpc_run runs[GPC_MAX_RUNS];
	struct gpc_pool_memory p = { .size = sizeof(p) };

	if (gpc_pool_memory_get(m->c, m->ram, &p, runs, GPC_MAX_RUNS) < 0)
		return;
	add(m, "block-bytes", "%" PRIu64, p.block_bytes);
	add_numa(m, &p);
	add_huge_dir(m, &p);
	add_sums(m, &p, runs);
	if (memcmp(p.fingerprint, m->info.layout, sizeof(p.fingerprint)))
		note(m, "pool %d has a fingerprint of its own, which no option says", m->ram);
}

static void add_pools(struct made *m)
{
	struct gpc_pool p;

	find_pools(m);
	if (m->vram >= 0 && get(m, m->vram, &p))
		add(m, "vram-blocks", "%u", p.blocks);
	if (m->ram >= 0 && get(m, m->ram, &p)) {
		add(m, "ram-blocks", "%u", p.blocks);
		if (p.space)
			add(m, "ram-space", "%u", p.space);
		if (p.flags & GPC_POOL_UNCHAINED)
			add_flag(m, "unchained");
		add_memory(m);
	}
	for (int i = 0; i < (int)m->info.max_pools; i++)
		if (i != m->vram && i != m->ram && get(m, i, &p) && p.kind != GPC_DISK &&
		    p.kind != GPC_REMOTE)
			note(m,
			     "pool %d, of %u blocks, was made by another process than gpcd for "
			     "the cache, and is made by that again",
			     i, p.blocks);
}

static void look_at_tiers(struct made *m)
{
	struct gpc_tier t = { .size = sizeof(t) };

	for (uint32_t i = 0; gpc_tier_get(m->c, i, &t) == 0; i++)
		note(m,
		     "the cache has a tier %s: its options are those of the process that keeps it",
		     t.kind == GPC_DISK ? "on disk (--disk)" : "in a store (--remote)");
}

/* ---- the text ---- */

static bool is_safe(const char *word)
{
	return *word && !word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					   "0123456789._/:,=@%+-")];
}

/* For a POSIX shell; a name that begins with a hyphen follows --. */
static void print_word(const char *word)
{
	if (is_safe(word)) {
		fputs(word, stdout);
		return;
	}
	putchar('\'');
	for (; *word; word++)
		if (*word == '\'')
			fputs("'\\''", stdout);
		else
			putchar(*word);
	putchar('\'');
}

static void print_line(const struct made *m)
{
	fputs("gpcd", stdout);
	for (uint32_t i = 0; i < m->n; i++) {
		printf(" --%s", m->option[i].name);
		if (!m->option[i].flag) {
			putchar(' ');
			print_word(m->option[i].value);
		}
	}
	fputs(m->in->name[0] == '-' ? " -- " : " ", stdout);
	print_word(m->in->name);
	putchar('\n');
}

/* Can a line of a configuration file have this value? */
static bool fits_file(const char *value)
{
	size_t n = strlen(value);

	for (const char *c = value; *c; c++)
		if ((unsigned char)*c < ' ' || strchr(";#\"", *c))
			return false;
	return n && n < 160 && value[0] != ' ' && value[n - 1] != ' ';
}

static void print_devices(const struct made *m)
{
	bool any = false;

	for (uint32_t i = 0; i < m->n; i++)
		if (!strcmp(m->option[i].name, "device")) {
			printf("%s%s", any ? "," : "device = ", m->option[i].value);
			any = true;
		}
	if (any)
		putchar('\n');
}

static int print_file(const struct made *m)
{
	const char *dir = NULL;

	for (uint32_t i = 0; i < m->n; i++)
		if (!strcmp(m->option[i].name, "dir"))
			dir = m->option[i].value;
	if (!fits_file(m->in->name) || (dir && !fits_file(dir))) {
		cli_error(
			"%s: --config: the name, or the folder, has what a line of a configuration "
			"file cannot have",
			m->in->name);
		return EXIT_RUNTIME;
	}
	printf("[gpc]\nname = %s\n", m->in->name);
	if (dir)
		printf("dir = %s\n", dir);
	puts("\n[gpcd]");
	for (uint32_t i = 0; i < m->n; i++)
		if (strcmp(m->option[i].name, "dir") && strcmp(m->option[i].name, "device"))
			printf("%s = %s\n", m->option[i].name,
			       m->option[i].flag ? "yes" : m->option[i].value);
	print_devices(m);
	return 0;
}

static void print_json(struct made *m)
{
	json_t *o = out_need(json_object()), *words = out_need(json_array());
	char text[64];

	json_array_append_new(words, out_string("gpcd", 5));
	for (uint32_t i = 0; i < m->n; i++) {
		snprintf(text, sizeof(text), "--%s", m->option[i].name);
		json_array_append_new(words, out_string(text, sizeof(text)));
		if (!m->option[i].flag)
			json_array_append_new(words, out_string(m->option[i].value, VALUE));
	}
	if (m->in->name[0] == '-')
		json_array_append_new(words, out_string("--", 3));
	json_array_append_new(words, out_string(m->in->name, GPC_MAX_NAME));
	json_object_set_new(o, "command", words);
	json_object_set(o, "notes", m->notes);
	out_json(o);
}

static int print_all(struct made *m)
{
	size_t i;
	const json_t *text;

	if (m->in->json) {
		print_json(m);
		return 0;
	}
	json_array_foreach(m->notes, i, text)
		cli_error("%s: %s", m->in->name, json_string_value(text));
	if (m->in->config)
		return print_file(m);
	print_line(m);
	return 0;
}

int inspect_command(struct inspect *in)
{
	struct made m = { .in = in, .info = { .size = sizeof(m.info) } };
	int status, r;

	if (in->json && in->config)
		return cli_usage("command: either --config or --json");
	status = inspect_open(in, GPC_READONLY, &m.c);
	if (status)
		return status;
	m.notes = out_need(json_array());
	r = gpc_info_get(m.c, &m.info);
	if (r < 0) {
		cli_gpc_error(r, "%s", in->name);
		status = EXIT_RUNTIME;
	} else {
		add_geometry(&m);
		add_pools(&m);
		add_devices(&m);
		add_layout(&m);
		add_files(&m);
		look_at_tiers(&m);
		status = print_all(&m);
	}
	json_decref(m.notes);
	gpc_close(m.c);
	return status;
}
