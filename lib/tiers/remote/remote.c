/* SPDX-License-Identifier: Apache-2.0 */
/* remote.c - a store: opened, watched, stopped, closed.
 *
 * Findings of calls are stored relaxed.  A call that does not see yet that the store is down costs
 * one more deadline, and nothing else depends on the order.
 * Tests: t/tiers/lane-lost.t t/tiers/late-put.t t/tiers/remote-folder.t */
#include "config.h"

#include "tiers/remote/remote.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "index/base/err.h"
#include "index/base/fd.h"
#include "index/base/key.h"
#include "index/base/log.h"
#include "index/base/order.h"
#include "index/base/text.h"
#include "tiers/remote/batch.h"
#include "tiers/remote/store.h"

#define PAUSE_LEAST_NS (100 * NS_PER_MS)
#define PAUSE_MOST_NS  (30000 * NS_PER_MS)
/* a store that is UP for this time, without a call, counts as UP */
#define TRUST_NS (3000 * NS_PER_MS)
/* the time between two questions whether puts can be fenced */
#define FENCE_NS (10000 * NS_PER_MS)
#define FORGET_NS \
	(600000 * NS_PER_MS) /* if no lane was lost for this time, the next pause is short again */

void store_say(struct remote *r, int level, const char *fmt, ...)
{
	char text[512], where[256] = "";
	size_t used;
	va_list ap;

	if (!r->o.log)
		return;
	if (r->store && r->plugin.own.where)
		r->plugin.own.where(r->store, where, sizeof(where));
	used = (size_t)snprintf(text, sizeof(text), "remote store %s%s%s: ", r->plugin.own.name,
				where[0] ? " at " : "", where);
	va_start(ap, fmt);
	vsnprintf(text + MIN(used, sizeof(text)), sizeof(text) - MIN(used, sizeof(text)), fmt, ap);
	va_end(ap);
	r->o.log(r->o.log_arg, level, text);
}

/* The lock is held. */
static void pause_longer(struct remote *r)
{
	uint64_t ns = r->pause_ns ? MIN(2 * r->pause_ns, PAUSE_MOST_NS) : PAUSE_LEAST_NS;

	r->pause_ns = ns;
	/* so that not all nodes try at the same moment */
	r->next_ns =
		clock_ns() + ns - ns / 4 + key_checksum(&r->next_ns, sizeof(r->next_ns)) % (ns / 2);
}

void store_down(struct remote *r, const char *why)
{
	bool news = false;

	pthread_mutex_lock(&r->lock);
	if (order_cas32(&r->state, REMOTE_UP, REMOTE_DOWN)) {
		r->pause_ns = 0;
		snprintf(r->why, sizeof(r->why), "%s", why);
		news = !r->logged;
		r->logged = true;
	}
	if (load_relaxed(&r->state) == REMOTE_DOWN)
		pause_longer(r);
	pthread_mutex_unlock(&r->lock);
	if (news)
		store_say(r, LOG_WARNING, "is down: %s; until it answers again all of it is a miss",
			  why);
}

/* An outage is logged once.  It is over when a call was answered, since not every plugin's tick
 * would know. */
static void store_up(struct remote *r)
{
	uint64_t now = clock_ns();
	bool news;

	pthread_mutex_lock(&r->lock);
	r->pause_ns = 0;
	r->why[0] = 0;
	if (order_cas32(&r->state, REMOTE_DOWN, REMOTE_UP)) {
		r->up_ns = now;
		store_relaxed(&r->answered, !r->plugin.own.tick);
	}
	news = r->logged && (load_relaxed(&r->answered) || now - r->up_ns >= TRUST_NS);
	r->logged &= !news;
	pthread_mutex_unlock(&r->lock);
	if (news)
		store_say(r, LOG_NOTICE, "answers again");
}

void store_lost(struct remote *r, uint32_t lane, const char *call)
{
	uint64_t now = clock_ns();

	order_or64(&r->lost, UINT64_C(1) << lane);
	pthread_mutex_lock(&r->lock);
	r->lost_pause_ns = now - r->lost_ns > FORGET_NS ? PAUSE_LEAST_NS
							: MIN(2 * r->lost_pause_ns, PAUSE_MOST_NS);
	r->lost_ns = now;
	snprintf(r->lost_why, sizeof(r->lost_why), "its %s has not returned in time", call);
	pthread_mutex_unlock(&r->lock);
	store_say(
		r, LOG_ERR,
		"does not return from %s: what it was given stays with it, and until it returns all of it "
		"is a miss",
		call);
}

/* Look for lanes that have come back. */
static void look_for_lost(struct remote *r)
{
	uint64_t was = load_relaxed(&r->lost), is = 0, pause;
	uint32_t lane;

	for (lane = 0; lane <= r->o.lanes; lane++)
		is |= (uint64_t)remote_is_lost(r, lane) << lane;
	if (!was || is)
		return;
	pthread_mutex_lock(&r->lock);
	pause = r->lost_pause_ns;
	pthread_mutex_unlock(&r->lock);
	store_relaxed(&r->lost_until, clock_ns() + pause);
	store_relaxed(&r->lost, 0);
	store_say(r, LOG_NOTICE, "has returned, and is asked again in %u ms",
		  (unsigned)(pause / NS_PER_MS));
}

static bool is_lost_now(const struct remote *r)
{
	return load_relaxed(&r->lost) || clock_ns() < load_relaxed(&r->lost_until);
}

void store_wrong(struct remote *r, const char *key, const char *why)
{
	uint32_t wrong;

	store_relaxed(&r->right, 0);
	wrong = count_next(&r->wrong) + 1;
	if (wrong > REMOTE_WRONG)
		return;
	store_say(r, LOG_WARNING, "wrong bytes under %s: %s; they are removed there", key, why);
	if (wrong < REMOTE_WRONG)
		return;
	pthread_mutex_lock(&r->lock);
	snprintf(r->why, sizeof(r->why), "wrong bytes, the last ones under %s: %s", key, why);
	store_relaxed(&r->state, REMOTE_OFF);
	pthread_mutex_unlock(&r->lock);
	store_say(
		r, LOG_ERR,
		"is switched off: it has answered wrong bytes %u times; find out who writes there, "
		"then start this process again",
		wrong);
}

/* ---- open ---- */

static int check_tag(const char *tag)
{
	static const char taken[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

	if (!tag[0] || strlen(tag) > REMOTE_TAG || tag[strspn(tag, taken)])
		return err_set(
			EINVAL,
			"the version tag is '%s': it must be 1 to %u bytes of [A-Za-z0-9._-]", tag,
			REMOTE_TAG);
	return 0;
}

/* "gpc1:TAG:LAYOUT:", where LAYOUT stands for fingerprint and size; the header has both in
 * full. */
static int make_prefix(struct remote *r)
{
	const char *tag = r->o.tag ? r->o.tag : "0";
	uint8_t layout[40];
	int ret = check_tag(tag), i;

	for (i = 0; i < 8; i++)
		layout[32 + i] = (uint8_t)(r->o.image_bytes >> 8 * i);
	memcpy(layout, r->o.fingerprint, 32);
	if (!ret)
		r->prefix_bytes = (uint32_t)snprintf(
			r->prefix, sizeof(r->prefix), "gpc1:%s:%016llx:", tag,
			(unsigned long long)key_checksum(layout, sizeof(layout)));
	return ret;
}

static void log_of_plugin(void *arg, int level, const char *text)
{
	char clean[400];

	text_clean(clean, sizeof(clean), text);
	store_say(arg, level, "%s", clean);
}

static int open_store(struct remote *r, const struct options *o)
{
	struct gpc_remote_setup setup = {
		.size = sizeof(setup),
		.lanes = r->o.lanes + 1,
		.value_bytes = r->o.image_bytes + sizeof(struct image_header),
		.options = o->option,
		.noptions = o->n,
		.log = log_of_plugin,
		.log_arg = r,
		.node = r->o.node,
		.life = r->o.life,
	};
	char why[384] = "";
	int ret = options_check(o, &r->plugin.own);

	if (ret < 0)
		return ret;
	ret = r->plugin.own.open(&setup, &r->store, why, sizeof(why));
	if (ret < 0)
		return err_set(-ret, "remote store %s: %s", r->plugin.own.name,
			       why[0] ? why : strerror(-ret));
	if (ret > 0 || !r->store) {
		r->store = NULL; /* there is nothing to close */
		return err_set(
			EPROTO,
			"remote store %s: its open has answered %d %s a store: a plugin answers 0 with one, "
			"or a negative errno",
			r->plugin.own.name, ret, ret > 0 ? "in place of" : "without");
	}
	if (!r->plugin.own.tick)
		return 0;
	remote_tick(r);
	return 0;
}

static int open_all(struct remote *r)
{
	struct options o;
	int ret = options_parse(r->o.spec, &o);

	if (ret < 0)
		return ret;
	ret = make_prefix(r);
	if (!ret)
		ret = plugin_load(o.name, &r->plugin);
	if (!ret)
		ret = batch_open(r);
	if (!ret)
		ret = open_store(r, &o);
	options_free(&o);
	return ret;
}

int remote_check(const char *spec)
{
	struct plugin plugin;
	struct options o;
	int r = options_parse(spec, &o);

	if (r < 0)
		return r;
	r = plugin_load(o.name, &plugin);
	if (!r) {
		r = options_check(&o, &plugin.own);
		plugin_unload(&plugin);
	}
	options_free(&o);
	return r;
}

static int check_options(const struct remote_options *o)
{
	int r = err_range("lanes", o->lanes, 1, GPC_REMOTE_LANES - 1);

	if (!r)
		r = err_range("image_bytes", o->image_bytes, 1, UINT64_C(1) << 40);
	return r;
}

static int open_cancel(struct remote *r)
{
	int other;

	if (fd_event(&r->cancel_fd, &other) < 0)
		return err_sys(0, "eventfd");
	close(other);
	return 0;
}

int remote_open(const struct remote_options *o, struct remote **ret)
{
	struct remote *r;
	int err = check_options(o);

	if (err < 0)
		return err;
	r = calloc(1, sizeof(*r));
	if (!r)
		return err_set(ENOMEM, "no memory for a remote store");
	r->o = *o;
	r->o.deadline_ms = o->deadline_ms ? o->deadline_ms : REMOTE_DEADLINE_MS;
	r->o.grace_ms = o->grace_ms ? o->grace_ms : REMOTE_GRACE_MS;
	while (!r->o.node && getrandom(&r->o.node, sizeof(r->o.node), 0) > 0)
		;
	pthread_mutex_init(&r->lock, NULL);
	r->cancel_fd = -1;
	err = open_cancel(r);
	if (!err)
		err = open_all(r);
	if (err < 0) {
		remote_close(r);
		return err;
	}
	*ret = r;
	return 0;
}

void remote_stop(struct remote *r)
{
	uint64_t one = 1;

	store_relaxed(&r->stopped, 1);
	if (write(r->cancel_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		store_say(r, LOG_ERR, "cannot be told to stop: %s", strerror(errno));
	batch_stop(r);
}

static bool any_lost(struct remote *r)
{
	uint32_t lane;

	for (lane = 0; lane <= r->o.lanes; lane++)
		if (remote_is_lost(r, lane))
			return true;
	return false;
}

bool remote_close(struct remote *r)
{
	if (!r)
		return true;
	if (r->store && (any_lost(r) || !batch_end(r))) {
		store_say(r, LOG_ERR,
			  "has not returned from a call: it stays loaded until this process ends");
		return false;
	}
	batch_close(r);
	plugin_unload(&r->plugin);
	if (r->cancel_fd >= 0)
		fd_close(r->cancel_fd);
	pthread_mutex_destroy(&r->lock);
	free(r);
	return true;
}

void remote_memory(struct remote *r, void *base, uint64_t bytes, bool there)
{
	int err = r->plugin.own.memory ? r->plugin.own.memory(r->store, base, bytes, there) : 0;

	if (err < 0)
		store_say(r, LOG_WARNING, "%llu MiB of memory are not registered: %s",
			  (unsigned long long)bytes >> 20, strerror(-err));
}

/* ---- is it there? ---- */

static void look_for_fence(struct remote *r)
{
	uint64_t now = clock_ns();

	if (load_relaxed(&r->fenced) || load_relaxed(&r->state) != REMOTE_UP || now < r->fence_ns)
		return;
	r->fence_ns = now + FENCE_NS;
	batch_probe_fence(r);
}

void remote_tick(struct remote *r)
{
	char why[256] = "it does not answer", clean[256];
	bool due;
	int err;

	look_for_lost(r);
	if (load_relaxed(&r->stopped) || load_relaxed(&r->state) == REMOTE_OFF || is_lost_now(r))
		return;
	if (!r->plugin.own.tick) {
		pthread_mutex_lock(&r->lock);
		due = load_relaxed(&r->state) == REMOTE_DOWN && clock_ns() >= r->next_ns;
		pthread_mutex_unlock(&r->lock);
		err = !due ? 1 : batch_probe(r);
	} else {
		err = batch_tick(r, why, sizeof(why));
	}
	if (err == 0) {
		store_up(r);
	} else if (err < 0) {
		text_clean(clean, sizeof(clean), why); /* the text may come from a server */
		store_down(r, clean);
	}
	look_for_fence(r);
}

void remote_state(struct remote *r, struct remote_state *ret)
{
	pthread_mutex_lock(&r->lock);
	*ret = r->counts;
	ret->state = load_relaxed(&r->state);
	snprintf(ret->why, sizeof(ret->why), "%s", r->why);
	if (ret->state != REMOTE_OFF && is_lost_now(r)) {
		ret->state = REMOTE_DOWN;
		snprintf(ret->why, sizeof(ret->why), "%s", r->lost_why);
	}
	pthread_mutex_unlock(&r->lock);
	snprintf(ret->plugin, sizeof(ret->plugin), "%s", r->plugin.own.name);
	ret->where[0] = 0;
	if (r->plugin.own.where)
		r->plugin.own.where(r->store, ret->where, sizeof(ret->where));
}

uint32_t remote_counters(struct remote *r, struct gpc_remote_counter *ret, uint32_t n)
{
	return r->plugin.own.counters ? MIN(r->plugin.own.counters(r->store, ret, n), n) : 0;
}
