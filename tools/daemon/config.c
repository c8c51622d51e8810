/* SPDX-License-Identifier: Apache-2.0 */
/* The file that --config names: options by their long names, which engines read as well.
 *
 *   [gpc]                          the name of the cache, its folder, its tiers: gpcd and all engines
 *   [gpcd]                         only gpcd: any other option
 *   [engines]                      all engines
 *   [vllm], [sglang], [lmcache]    that engine
 *
 * python/gpc/engines/file.py reads the same, and refuses the same.
 * Tests: t/daemon/config.t t/daemon/bounds.t t/daemon/reload.t */
#include "config.h"

#include "tools/daemon/daemon.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	MOST_LINE = 198,     /* bytes of a line: what inih takes wherever it was built */
	MOST_FILE = 1 << 20, /* bytes of the file */
	MOST_KEPT = 1 << 21, /* bytes of values, over all files that this process has read */
};

struct reader {
	FILE *f;
	const char *path;
	unsigned line;
	size_t bytes;     /* so far */
	bool after_value; /* the line before has a value, or goes on with one */
	bool goes_on;     /* this one does */
	int status;
	struct config_key *keys;
	size_t n;
};

/* A value that an option may point to.  It is kept as long as the process lives, and only once,
 * however often a file with it is read. */
struct kept {
	struct kept *next;
	char text[];
};
static struct kept *kept;
static size_t kept_bytes;

static int refuse(struct reader *r, unsigned line, const char *what)
{
	if (!r->status) {
		cli_at(r->path, line);
		r->status = cli_usage("%s", what);
		cli_at(NULL, 0);
	}
	return 0;
}

/* fgets(3) for inih; after a mistake it says that the file has ended. */
static char *next_line(char *room, int size, void *arg)
{
	struct reader *r = arg;
	const char *text;
	char why[128];

	if (r->status || !fgets(room, size < MOST_LINE + 2 ? size : MOST_LINE + 2, r->f))
		return NULL;
	r->line++;
	r->bytes += strlen(room);
	if (r->bytes > MOST_FILE) {
		snprintf(why, sizeof(why), "the file has more than %d bytes", MOST_FILE);
		refuse(r, r->line, why);
		return NULL;
	}
	if (!strchr(room, '\n') && !feof(r->f)) {
		snprintf(
			why, sizeof(why),
			"the line has more than %d bytes, or a zero byte: one below it that begins with a "
			"blank goes on with its value",
			MOST_LINE);
		refuse(r, r->line, why);
		return NULL;
	}
	text = room + strspn(room, " \t\r\n\v\f");
	if (!*text || *text == ';' || *text == '#' || *text == '[') {
		r->after_value = r->goes_on = false;
		return room;
	}
	r->goes_on = text > room;
	if (r->goes_on && !r->after_value) {
		refuse(r, r->line,
		       "the line begins with a blank, and there is no value in the line above that it could go on "
		       "with");
		return NULL;
	}
	r->after_value = true;
	return room;
}

static bool is_ours(const char *section)
{
	return !strcmp(section, "gpc") || !strcmp(section, "gpcd");
}

static bool is_section(const char *section)
{
	static const char *const others[] = { "engines", "vllm", "sglang", "lmcache" };

	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (!strcmp(section, others[i]))
			return true;
	return is_ours(section);
}

/* A key has one value, even if two of our sections could have it. */
static const struct config_key *find_twin(const struct reader *r, const char *section,
					  const char *key)
{
	for (size_t i = 0; i < r->n; i++)
		if (!strcmp(r->keys[i].key, key) &&
		    (!strcmp(r->keys[i].section, section) ||
		     (is_ours(section) && is_ours(r->keys[i].section))))
			return &r->keys[i];
	return NULL;
}

static int no_memory(struct reader *r)
{
	return refuse(r, r->line, "no memory");
}

static int go_on(struct reader *r, const char *value)
{
	struct config_key *k = &r->keys[r->n - 1];
	char *longer;

	if (asprintf(&longer, "%s%s", k->value, value) < 0)
		return no_memory(r);
	free(k->value);
	k->value = longer;
	return 1;
}

/* Called by inih; 1 means: go on. */
static int on_key(void *arg, const char *section, const char *name, const char *value)
{
	struct reader *r = arg;
	const struct config_key *twin;
	struct config_key *k;
	char why[512];

	if (r->status)
		return 0;
	if (r->goes_on)
		return go_on(r, value);
	if (!is_section(section)) {
		snprintf(
			why, sizeof(why),
			"%s: %s%s%s; there are [gpc], [gpcd], [engines], [vllm], [sglang] and [lmcache]",
			name, *section ? "[" : "", section,
			*section ? "] is no section" : "no section is above it");
		return refuse(r, r->line, why);
	}
	twin = find_twin(r, section, name);
	if (twin) {
		snprintf(why, sizeof(why), "%s: it is given twice, '%s' in line %u and '%s' here",
			 name, twin->value, twin->line, value);
		return refuse(r, r->line, why);
	}
	k = realloc(r->keys, (r->n + 1) * sizeof(*k));
	if (!k)
		return no_memory(r);
	r->keys = k;
	k += r->n;
	*k = (struct config_key){ strdup(section), strdup(name), strdup(value), r->line, false };
	r->n++;
	return k->section && k->key && k->value ? 1 : no_memory(r);
}

/* The value lives as long as the process from now on. */
static int keep_value(struct reader *r, struct config_key *k)
{
	size_t bytes = sizeof(struct kept) + strlen(k->value) + 1;
	struct kept *v = kept;
	char why[128];

	while (v && strcmp(v->text, k->value))
		v = v->next;
	if (!v && kept_bytes + bytes > MOST_KEPT) {
		snprintf(
			why, sizeof(why),
			"values of files have more than %d bytes so far: a restart forgets those before",
			MOST_KEPT);
		return refuse(r, k->line, why);
	}
	if (!v) {
		v = malloc(bytes);
		if (!v)
			return no_memory(r);
		strcpy(v->text, k->value);
		v->next = kept;
		kept = v;
		__atomic_store_n(&kept_bytes, kept_bytes + bytes, __ATOMIC_RELAXED);
	}
	free(k->value);
	k->value = v->text;
	k->is_kept = true;
	return 1;
}

size_t config_bytes(void)
{
	return __atomic_load_n(&kept_bytes, __ATOMIC_RELAXED);
}

static void read_keys(struct reader *r)
{
	int line = ini_parse_stream(next_line, r, on_key, r);

	if (ferror(r->f))
		r->status = cli_usage("--config %s: %s", r->path, strerror(errno));
	if (line > 0)
		refuse(r, (unsigned)line, "the line is neither [SECTION] nor KEY = VALUE");
}

static void take_keys(struct reader *r, bool (*take)(void *arg, const struct config_key *k),
		      void *arg)
{
	for (size_t i = 0; i < r->n && !r->status; i++) {
		if (!is_ours(r->keys[i].section) || !keep_value(r, &r->keys[i]))
			continue;
		cli_at(r->path, r->keys[i].line);
		if (!take(arg, &r->keys[i]))
			r->status = EXIT_USAGE;
		cli_at(NULL, 0);
	}
}

static void forget(struct reader *r)
{
	for (size_t i = 0; i < r->n; i++) {
		free(r->keys[i].section);
		free(r->keys[i].key);
		if (!r->keys[i].is_kept)
			free(r->keys[i].value);
	}
	free(r->keys);
}

int config_read(const char *shown, const char *path,
		bool (*take)(void *arg, const struct config_key *k), void *arg)
{
	struct reader r = { .path = shown, .f = fopen(path, "re") };

	if (!r.f)
		return cli_usage("--config %s: %s", shown, say_file(errno, false));
	read_keys(&r);
	fclose(r.f);
	take_keys(&r, take, arg);
	forget(&r);
	return r.status;
}
