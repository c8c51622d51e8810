/* SPDX-License-Identifier: Apache-2.0 */
/* SIGHUP: the options are read again, from the command line and the file of --config.
 *
 *   an option that has changed          then
 *   ----------------------------------  ----------------------------------------------------------
 *   --quiet, --log-level                it has the new value from now on
 *   of the tiers, except --key-file     the tiers are closed, and opened with the new options; if
 *                                       these are refused, with the old ones
 *   of the cache, and --key-file        a line names it, with both values: gpcd keeps the old one
 *                                       until the cache is removed, and so must the file
 *   any other option                    a line names it, with both values: a restart uses the new one
 *   none: a mistake, or no file         a line says so, and nothing is changed
 *
 * An option that is not taken over is compared with its old value the next time as well, so it is
 * named until the restart.  Texts of options are never freed, since other threads use them.
 * Tests: t/daemon/reload.t t/daemon/roles.t */
#include "config.h"

#include "tools/daemon/daemon.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

/* Passes on a mistake that the parser found, as say() would. */
static void on_mistake(const char *text)
{
	cli_divert(NULL);
	say(LOG_ERR, "SIGHUP: nothing is changed: %s", text);
	cli_divert(on_mistake);
}

/* The options as they are in the file and the command line now; NULL after a message. */
static struct daemon *read_again(const struct daemon *d)
{
	struct daemon *n = calloc(1, sizeof(*n));
	int status;

	if (!n) {
		say(LOG_ERR, "%s: SIGHUP: nothing is changed: no memory", d->name);
		return NULL;
	}
	options_begin(n);
	optind = 0; /* getopt_long begins anew */
	cli_divert(on_mistake);
	status = options_parse(n, d->argc, d->argv);
	cli_divert(NULL);
	options_values(d);
	if (status < 0)
		return n;
	free(n);
	return NULL;
}

/* gpc-inspect set may have changed it, so that the option of this process says nothing. */
static bool is_set_alive(const struct option_said *o)
{
	return !strcmp(o->option, "free-target") || !strcmp(o->option, "quota");
}

/* The reason why an option is not taken over, and the remedy. */
static const char *remedy(const struct daemon *d, const struct option_said *o)
{
	if (o->of_cache && !d->create && !d->keep)
		return "it is for who makes the cache, with --block-size";
	if (!o->of_cache || d->keep)
		return "a restart takes it";
	if (is_set_alive(o))
		return "gpc-inspect set changes it while the cache lives, and a restart wants the old one";
	return "it is of the cache: a restart wants the old one until the cache is removed";
}

static void say_differs(const struct daemon *d, const struct option_said *old,
			const struct option_said *new)
{
	bool of_cache = is_set_alive(old) ||
			(!old->text && old->of_cache && strcmp(old->option, "key-file"));
	const char *what = of_cache    ? "what the cache has"
			   : old->text ? old->text
				       : "what it has by default";
	const char *quote = of_cache || !old->text ? "" : "'";

	say(LOG_WARNING, "%s: SIGHUP: --%s is %s%s%s, and it goes on with %s%s%s: %s", d->name,
	    old->option, new->text ? "'" : "not given", new->text ? new->text : "",
	    new->text ? "'" : "", quote, what, quote, remedy(d, old));
}

static bool is_same(const struct option_said *a, const struct option_said *b)
{
	return a->text && b->text ? !strcmp(a->text, b->text) : a->text == b->text;
}

static void adopt(struct daemon *d, const struct daemon *n, bool of_tiers)
{
	size_t i;

	for (i = 0; i < OPTIONS_MOST && d->said[i].option; i++) {
		struct option_said *old = &d->said[i];
		const struct option_said *new = &n->said[i];

		if (!old->at_run_time || old->of_tiers != of_tiers || is_same(old, new))
			continue;
		if (!d->quiet)
			say(LOG_INFO, "%s: SIGHUP: --%s is %s", d->name, old->option,
			    new->text ? new->text : "not given any more");
		*old = *new;
	}
}

/* Names the options that only a restart takes; *ret_of_tiers: how many others are options of the
 * tiers. */
static void compare(const struct daemon *d, const struct daemon *n, size_t *ret_of_tiers)
{
	size_t i;

	*ret_of_tiers = 0;
	for (i = 0; i < OPTIONS_MOST && d->said[i].option; i++) {
		const struct option_said *old = &d->said[i];
		const struct option_said *new = &n->said[i];

		if (is_same(old, new))
			continue;
		*ret_of_tiers += old->of_tiers && old->at_run_time;
		if (!old->at_run_time)
			say_differs(d, old, new);
	}
	if (strcmp(d->name, n->name))
		say(LOG_WARNING, "%s: SIGHUP: the name is '%s', and it goes on with '%s'", d->name,
		    n->name, d->name);
	if (strcmp(d->devices, n->devices)) {
		struct option_said ours = { "device", d->devices, .of_cache = true };
		struct option_said theirs = { "device", n->devices, .of_cache = true };

		say_differs(d, &ours, &theirs);
	}
}

static void take_over(struct daemon *d, struct daemon *n, gpc *c)
{
	size_t of_tiers;

	compare(d, n, &of_tiers);
	d->quiet = n->quiet;
	d->log_level = n->log_level;
	say_level(d);
	adopt(d, n, false);
	if (of_tiers && tiers_change(d, n, c))
		adopt(d, n, true);
	else if (of_tiers)
		say(LOG_ERR, "%s: SIGHUP: the tiers stay as they were", d->name);
	if (!d->quiet)
		say(LOG_INFO, "%s: SIGHUP: the options were read again", d->name);
}

void reload_look(struct daemon *d, gpc *c)
{
	struct daemon *n;

	if (!process_reload)
		return;
	process_reload = 0;
	manager_reloading();
	n = read_again(d);
	if (n)
		take_over(d, n, c);
	free(n);
	say_notify("READY=1\nSTATUS=%s", d->status);
}
