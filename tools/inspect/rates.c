/* SPDX-License-Identifier: Apache-2.0 */
/* stat --watch: one line for each look at each cache, for logs.  A line gives the changes since
 * the look before.  The first line of a cache gives the changes since it was made.
 * Tests: t/tools/inspect-top.t */
#include "config.h"

#include "tools/inspect/sample.h"
#include "tools/common/output.h"
#include "tools/common/shown.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct watched {
	char name[GPC_MAX_NAME + 1];
	struct sample *then; /* NULL: not looked at yet */
};

struct watch {
	const struct inspect *in;
	struct watched *caches;
	size_t n;
	uint64_t left; /* lines that are left */
};

static json_t *share(const struct rates *r, enum rate a, enum rate b)
{
	double v = sample_share(r, a, b);

	return v < 0 ? json_null() : out_need(json_real(v));
}

static void set(json_t *o, const char *field, uint64_t v)
{
	json_object_set_new(o, field, out_need(json_integer((json_int_t)v)));
}

static json_t *describe(const char *name, const struct sample *then, const struct sample *now)
{
	json_t *o = out_need(json_object()), *rates = out_need(json_object());
	time_t t = (time_t)(now->wall_ns / 1000000000);
	struct rates r;
	char text[32];

	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime(&t));
	sample_rates(then, now, &r);
	json_object_set_new(o, "time", out_need(json_string(text)));
	json_object_set_new(o, "cache", out_string(name, GPC_MAX_NAME));
	json_object_set_new(o, "state", out_string(now->state, sizeof(now->state)));
	if (!now->there) {
		json_decref(rates);
		return o;
	}
	json_object_set_new(o, "seconds", out_need(json_real(r.seconds)));
	json_object_set_new(o, "hit_rate", share(&r, RATE_HIT_VRAM, RATE_HIT_RAM));
	for (int i = 0; i < RATES; i++)
		json_object_set_new(rates, sample_rate_name((enum rate)i),
				    out_need(json_real(r.r[i])));
	json_object_set_new(o, "per_second", rates);
	set(o, "live", now->all.live);
	set(o, "free_blocks", now->all.free_blocks);
	set(o, "refs", now->all.refs);
	set(o, "reserved", now->all.reserved);
	set(o, "pending", now->all.pending);
	set(o, "peers", (uint64_t)now->alive);
	set(o, "dead", (uint64_t)now->dead);
	set(o, "writer_generation", now->info.writer_generation);
	return o;
}

/* name=value: each number stands with its name, wherever a log is cut. */
static void show_text(const json_t *o)
{
	const char *key, *sub;
	json_t *v, *w;

	json_object_foreach((json_t *)o, key, v)
	{
		char clean[1024];

		if (json_is_string(v)) {
			shown_text(clean, sizeof(clean), json_string_value(v));
			if (strcmp(key, "time") == 0)
				fputs(clean, stdout);
			else
				printf(strchr(clean, ' ') ? " %s=\"%s\"" : " %s=%s", key, clean);
		} else if (json_is_object(v)) {
			json_object_foreach(v, sub, w)
				printf(" %s/s=%.1f", sub, json_number_value(w));
		} else if (json_is_real(v)) {
			printf(" %s=%.3f", key, json_real_value(v));
		} else if (json_is_integer(v)) {
			printf(" %s=%" JSON_INTEGER_FORMAT, key, json_integer_value(v));
		} else {
			printf(" %s=-", key);
		}
	}
	putchar('\n');
}

static void look(struct watch *w, struct watched *one)
{
	struct sample *now = malloc(sizeof(*now));
	json_t *o;

	if (!now)
		out_need(NULL);
	sample_take(w->in, one->name, now);
	o = describe(one->name, one->then, now);
	if (w->in->json) {
		out_dump(o, JSON_COMPACT);
		putchar('\n');
	} else {
		show_text(o);
	}
	json_decref(o);
	free(one->then);
	one->then = now;
	w->left--;
}

static struct watched *find(struct watch *w, const char *name)
{
	for (size_t i = 0; i < w->n; i++)
		if (strcmp(w->caches[i].name, name) == 0)
			return &w->caches[i];
	w->caches = realloc(w->caches, (w->n + 1) * sizeof(*w->caches));
	if (!w->caches)
		out_need(NULL);
	w->caches[w->n] = (struct watched){ .then = NULL };
	snprintf(w->caches[w->n].name, sizeof(w->caches[0].name), "%s", name);
	return &w->caches[w->n++];
}

/* A cache that has gone gets one more line, and no line after that. */
static void forget_gone(struct watch *w)
{
	for (size_t i = w->n; i-- > 0;) {
		if (!w->caches[i].then || w->caches[i].then->there)
			continue;
		free(w->caches[i].then);
		w->caches[i] = w->caches[--w->n];
	}
}

/* Looks at the caches that were there, and at new ones. */
static int look_at_all(struct watch *w)
{
	char **names;
	int n = inspect_scan(w->in, "idx", &names);

	if (n < 0)
		return EXIT_RUNTIME;
	for (int i = 0; i < n; i++)
		find(w, names[i]);
	inspect_free_names(names, n);
	for (size_t i = 0; i < w->n && w->left; i++)
		look(w, &w->caches[i]);
	forget_gone(w);
	return 0;
}

/* Sleeps by the clock, so that a slow look moves no other. */
static void sleep_until(uint64_t at_ns)
{
	struct timespec t = { (time_t)(at_ns / 1000000000), (long)(at_ns % 1000000000) };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

int inspect_stat_watch(struct inspect *in)
{
	struct watch w = { .in = in, .left = in->limit };
	uint64_t next = cli_now_ns();
	int status = 0;

	while (!status && w.left) {
		if (in->name)
			look(&w, find(&w, in->name));
		else
			status = look_at_all(&w);
		if (fflush(stdout))
			break;
		next += in->watch * UINT64_C(1000000000);
		if (w.left)
			sleep_until(next);
	}
	for (size_t i = 0; i < w.n; i++)
		free(w.caches[i].then);
	free(w.caches);
	return status;
}
