/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - splits NAME:word=value,word=value into its parts.  "\," is a comma of a value, "\\"
 * a backslash.
 * Tests: t/tiers/remote-image.t */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "index/base/err.h"
#include "tiers/remote/store.h"

/* Get one option of the text, and put a 0 in place of its comma.  Returns the text after it;
 * NULL: there is none. */
static char *split(char *text, struct gpc_remote_option *ret)
{
	char *to = text, *value = NULL;

	ret->word = text;
	for (; *text && *text != ','; text++) {
		if (*text == '=' && !value) {
			*to++ = 0;
			value = to;
			continue;
		}
		if (*text == '\\' && (text[1] == ',' || text[1] == '\\'))
			text++;
		*to++ = *text;
	}
	text = *text ? text + 1 : NULL;
	*to = 0;
	ret->value = value ? value : "";
	return text;
}

static const struct gpc_remote_option *find(const struct options *o, const char *word, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (strcmp(o->option[i].word, word) == 0)
			return &o->option[i];
	return NULL;
}

static int parse_all(struct options *o, char *text)
{
	const char *word;

	while (text && *text) {
		if (o->n == OPTIONS_MOST)
			return err_set(EINVAL, "%s has more than %u options", o->name,
				       OPTIONS_MOST);
		text = split(text, &o->option[o->n]);
		word = o->option[o->n].word;
		if (!*word)
			return err_set(EINVAL, "option %u of %s has no name", o->n + 1, o->name);
		if (strncmp(word, "//", 2) == 0)
			return err_set(
				EINVAL,
				"%s:%s is a URL: a remote store is NAME:word=value,..., for instance "
				"redis:server=HOST:PORT",
				o->name, word);
		if (find(o, word, o->n))
			return err_set(EINVAL, "option %s of %s stands there twice", word, o->name);
		o->n++;
	}
	return 0;
}

int options_parse(const char *spec, struct options *ret)
{
	size_t len = spec ? strcspn(spec, ":") : 0;
	int r;

	memset(ret, 0, sizeof(*ret));
	if (!len)
		return err_set(
			EINVAL,
			"the remote store has no name: it is NAME:word=value,..., for instance redis:server=HOST");
	if (len >= sizeof(ret->name))
		return err_set(EINVAL,
			       "the name of the remote store has %zu bytes, and may have %zu", len,
			       sizeof(ret->name) - 1);
	memcpy(ret->name, spec, len);
	ret->text = strdup(spec[len] ? spec + len + 1 : "");
	if (!ret->text)
		return err_set(ENOMEM, "no memory for the options of %s", ret->name);
	r = parse_all(ret, ret->text);
	if (r < 0)
		options_free(ret);
	return r;
}

static bool takes(const struct gpc_remote_plugin *p, const char *word)
{
	const struct gpc_remote_word *w;

	for (w = p->words; w && w->word; w++)
		if (strcmp(w->word, word) == 0)
			return true;
	return false;
}

int options_check(const struct options *o, const struct gpc_remote_plugin *p)
{
	char all[256] = "";
	const struct gpc_remote_word *w;
	size_t used = 0;
	uint32_t i;

	for (w = p->words; w && w->word && used < sizeof(all); w++)
		used += (size_t)snprintf(all + used, sizeof(all) - used, "%s%s", used ? ", " : "",
					 w->word);
	for (i = 0; i < o->n; i++)
		if (!takes(p, o->option[i].word))
			return err_set(EINVAL, "%s has no option %s; it takes %s", p->name,
				       o->option[i].word, all[0] ? all : "none");
	return 0;
}

void options_free(struct options *o)
{
	free(o->text);
	o->text = NULL;
	o->n = 0;
}
