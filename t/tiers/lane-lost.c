/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin that breaks its contract: what it does not return from costs the call that asked its
 * deadline and a second, and others nothing; what it answers is believed after gpc's own checks; a
 * store that is none is refused.
 * Tests: lib/tiers/remote/lane.c lib/tiers/remote/call.c lib/tiers/remote/batch.c lib/tiers/remote/remote.c
 *   lib/gpc_remote.h */
#include "t/lib/remote.h"
#include "index/base/order.h"
#include "tiers/remote/store.h"

#define N       8u
#define MS      100u
#define GRACE   150u
#define MOST_NS (3000 * NS_PER_MS) /* the deadline, the time behind it, and a slow machine */

static char plugin[512], with_tick[512], flag[256];
static struct images m[4]; /* of lanes: a plugin has those of a lost one until it returns */

static void raise_flag(void)
{
	fclose(fopen(flag, "w"));
}

static struct remote *open_it(const char *spec, uint32_t ms)
{
	struct remote_options o = { .spec = spec,
				    .image_bytes = m[0].bytes,
				    .lanes = 4,
				    .deadline_ms = ms,
				    .grace_ms = GRACE,
				    .log = remote_note };
	struct remote *r = NULL;

	if (remote_open(&o, &r) < 0)
		bail("%s", gpc_last_error());
	return r;
}

static struct remote *start(const char *path, const char *how)
{
	char spec[1200];

	snprintf(spec, sizeof(spec), "%s:how=%s,flag=%s", path, how, flag);
	unlink(flag);
	remote_log[0] = 0;
	return open_it(spec, MS);
}

static struct remote_state state(struct remote *r)
{
	struct remote_state s;

	remote_state(r, &s);
	return s;
}

/* A deadline that no call here needs. */
static uint64_t far_ns(void)
{
	return clock_ns() + 60000 * NS_PER_MS;
}

static void stored(struct remote *r)
{
	images_put(&m[0], 0);
	if (remote_put(r, 0, m[0].b, N, far_ns()) != N)
		bail("images are not stored");
}

enum { GET, PUT, EXISTS, REMOVE };

/* Its first result, in that lane, within the deadline of the store or a longer one. */
static int32_t call_with(struct remote *r, int what, uint32_t lane, struct images *with,
			 uint64_t deadline_ns)
{
	int32_t result[N];
	gpc_key keys[N];
	uint32_t i;

	for (i = 0; i < N; i++)
		keys[i] = remote_key(i);
	if (what == GET) {
		images_want(with, 0);
		remote_get(r, lane, with->b, N, deadline_ns);
		return with->b[0].result;
	}
	if (what == PUT) {
		images_put(with, 50);
		remote_put(r, lane, with->b, N, deadline_ns);
		return with->b[0].result;
	}
	if (what == EXISTS)
		remote_exists(r, lane, keys, N, result, deadline_ns);
	else
		remote_remove(r, lane, keys, N, result, deadline_ns);
	return result[0];
}

static int32_t call(struct remote *r, int what, uint32_t lane)
{
	return call_with(r, what, lane, &m[lane], 0);
}

static void does_not_return(const char *path, int what, const char *how)
{
	struct remote *r = start(path, how);
	uint64_t began;
	char words[100];

	stored(r);
	raise_flag();
	began = clock_ns();
	is_int(call(r, what, 1), -EINPROGRESS, "%s does not return, and has what it was given",
	       how);
	ok(is_soon(began, MOST_NS / NS_PER_MS), "which is known after %d ms",
	   (int)((clock_ns() - began) / NS_PER_MS));
	ok(remote_is_lost(r, 1) && !remote_is_lost(r, 0), "its lane is lost, and no other one");
	snprintf(words, sizeof(words), "does not return from %s", how);
	ok(remote_tells(words), "which is said");
	is_int(state(r).state, REMOTE_DOWN, "the store is down");
	ok(strstr(state(r).why, "has not returned in time") != NULL, "since: %s", state(r).why);
	began = clock_ns();
	is_int(call_with(r, GET, 0, &m[0], far_ns()), -EHOSTDOWN, "other lanes are not asked");
	is_int(call_with(r, what, 1, &m[3], far_ns()), -EHOSTDOWN, "nor is this one");
	ok(is_soon(began, MOST_NS / NS_PER_MS), "at once, whatever their deadline");
	remote_tick(r);
	is_int(state(r).state, REMOTE_DOWN, "a tick changes nothing");
	unlink(flag);
	ok(remote_until(r, REMOTE_UP), "it returns, and the store is up again");
	ok(!remote_is_lost(r, 1), "the lane is there again");
	is_int(call_with(r, what, 1, &m[1], far_ns()), 0, "and works");
	ok(remote_close(r), "it is closed");
}

/* One that has not returned when the store is closed. */
static void closed_meanwhile(const char *path, const char *how, bool calls)
{
	struct remote *r = start(path, how);
	uint64_t began;

	stored(r);
	raise_flag();
	if (calls)
		is_int(call(r, GET, 2), -EINPROGRESS, "a get that does not return");
	remote_stop(r);
	began = clock_ns();
	ok(!remote_close(r), "%s does not return: the store stays", how);
	ok(is_soon(began, MOST_NS / NS_PER_MS), "its close does not wait for it");
	ok(remote_tells("it stays loaded until this process ends"), "which is said");
	unlink(flag); /* nobody is there for it any more */
}

static void *stop_soon(void *arg)
{
	usleep(50000);
	remote_stop(arg);
	return NULL;
}

/* A stop is for those who wait, too. */
static void stopped_meanwhile(void)
{
	char spec[1200];
	struct remote *r;
	pthread_t thread;
	uint64_t began;

	snprintf(spec, sizeof(spec), "%s:how=get,flag=%s", plugin, flag);
	r = open_it(spec, 60000);
	stored(r);
	raise_flag();
	pthread_create(&thread, NULL, stop_soon, r);
	began = clock_ns();
	is_int(call(r, GET, 0), -EINPROGRESS, "a call with a minute, and a stop");
	ok(is_soon(began, MOST_NS / NS_PER_MS), "ends after %d ms",
	   (int)((clock_ns() - began) / NS_PER_MS));
	pthread_join(thread, NULL);
	unlink(flag);
	while (remote_is_lost(r, 0))
		usleep(1000);
	ok(remote_close(r), "it returns, and is closed");
}

/* ---- puts of two lanes that no fence can end: the time of one that was given up ---- */

struct put {
	struct remote *r;
	pthread_t thread;
	uint32_t lane;
	int result;
};

static void *run_put(void *arg)
{
	struct put *p = arg;

	p->result = call_with(p->r, PUT, p->lane, &m[p->lane], far_ns());
	return NULL;
}

/* A put under way has stored its time. */
static void begin_put(struct put *p, struct remote *r, uint32_t lane)
{
	uint64_t before = load_relaxed(&r->unsure_ns);

	*p = (struct put){ .r = r, .lane = lane };
	pthread_create(&p->thread, NULL, run_put, p);
	while (load_relaxed(&r->unsure_ns) == before)
		usleep(1000);
}

static int end_put(struct put *p)
{
	pthread_join(p->thread, NULL);
	return p->result;
}

static void given_up_beside(void)
{
	struct remote *r = start(plugin, "put");
	struct put one;

	is_int((long long)load_relaxed(&r->unsure_ns), 0, "no put, no time");
	raise_flag();
	begin_put(&one, r, 2);
	is_int(call(r, PUT, 1), -EINPROGRESS, "a put is given up beside another one");
	unlink(flag);
	is_int(end_put(&one), 0, "which ends well");
	ok(load_relaxed(&r->unsure_ns) != 0, "its time is kept");
	while (remote_is_lost(r, 1))
		usleep(1000);
	remote_close(r);
}

/* In whichever order they end. */
static void answered_beside(void)
{
	struct remote *r = start(plugin, "put");
	int i, good = 0, kept = 0;
	struct put one, two;

	for (i = 0; i < 10; i++) {
		raise_flag();
		begin_put(&one, r, 2);
		begin_put(&two, r, 3);
		unlink(flag);
		good += !end_put(&one) + !end_put(&two);
		kept += load_relaxed(&r->unsure_ns) != 0;
	}
	is_int(good, 20, "ten times two puts at once end well");
	is_int(kept, 0, "and leave no time");
	remote_close(r);
}

static void tick_does_not_return(void)
{
	struct remote *r = start(with_tick, "tick");
	uint64_t began;

	raise_flag();
	began = clock_ns();
	remote_tick(r);
	ok(is_soon(began, MOST_NS / NS_PER_MS), "a tick that does not return is not waited for");
	is_int(state(r).state, REMOTE_DOWN, "the store is down: %s", state(r).why);
	unlink(flag);
	ok(remote_until(r, REMOTE_UP), "it returns, and the store is up again");
	ok(remote_close(r), "it is closed");
}

/* ---- what it answers ---- */

static void refused(const char *how, const char *sentence)
{
	struct remote_options o = { .image_bytes = 4096, .lanes = 1 };
	struct remote *r = NULL;
	char spec[1200];

	snprintf(spec, sizeof(spec), "%s:how=%s,flag=%s", plugin, how, flag);
	o.spec = spec;
	is_int(remote_open(&o, &r), -EPROTO, "open that answers %s is refused", how);
	if (!ok(strstr(gpc_last_error(), sentence) != NULL, "which says: %s", sentence))
		diag("it says: %s", gpc_last_error());
}

static void more_than_asked(void)
{
	struct remote *r = start(plugin, "more");
	struct gpc_remote_counter c[3] = { { NULL, 0 }, { "mine", 77 }, { "mine", 77 } };
	gpc_key keys[N];
	uint32_t i;

	stored(r);
	raise_flag();
	for (i = 0; i < N; i++)
		keys[i] = remote_key(i);
	is_int(call_with(r, GET, 0, &m[0], far_ns()), -EIO,
	       "a result that is none is a failure, of a get");
	unlink(flag);
	remote_until(r, REMOTE_UP);
	raise_flag();
	is_int(remote_exists(r, 0, keys, N, NULL, far_ns()), 0, "of exists");
	unlink(flag);
	remote_until(r, REMOTE_UP);
	raise_flag();
	is_int(call_with(r, PUT, 0, &m[0], far_ns()), -EIO, "of a put");
	is_int(remote_counters(r, c, 1), 1, "no more counters than there is room for");
	is_int((long long)c[1].value, 77, "and none beside it");
	remote_close(r);
}

/* It says that all came, and a lane's header of an earlier get would fit. */
static void nothing_came(void)
{
	struct remote *r = start(plugin, "nothing");

	stored(r);
	is_int(call(r, GET, 0), 0, "a get");
	raise_flag();
	remote_get(r, 0, m[0].b, 1, 0); /* the image is there still */
	is_int(m[0].b[0].result, -EBADMSG, "a header of an earlier get is none of this one");
	remote_close(r);
}

static void wrong_bytes(void)
{
	struct remote *r = start(plugin, "wrong");

	stored(r);
	raise_flag();
	is_int(call(r, GET, 0), -EBADMSG, "an image with another byte is wrong");
	is_int(images_with(&m[0], 0), 0, "none of them is given to anybody");
	is_int(state(r).state, REMOTE_OFF, "and the store is off");
	unlink(flag);
	is_int(call(r, GET, 0), -EHOSTDOWN, "nothing is asked any more");
	is_int(call(r, PUT, 1), -EHOSTDOWN, "nor stored");
	is_int(call(r, EXISTS, 2), -EHOSTDOWN, "nor looked for");
	is_int((long long)state(r).down, 3 * N, "which is counted");
	remote_close(r);
}

static int body(void)
{
	uint32_t i;

	if (!remote_plugin_of("t/lib", "bad", plugin, sizeof(plugin)) ||
	    !remote_plugin_of("t/lib", "bad_tick", with_tick, sizeof(with_tick)))
		bail("the plugin that breaks its contract is not built");
	snprintf(flag, sizeof(flag), "%s/flag", remote_dir);
	for (i = 0; i < 4; i++)
		images_make(&m[i], N, REMOTE_BYTES);
	does_not_return(plugin, GET, "get");
	does_not_return(with_tick, PUT, "put");
	does_not_return(plugin, EXISTS, "exists");
	does_not_return(with_tick, REMOVE, "remove");
	tick_does_not_return();
	given_up_beside();
	answered_beside();
	stopped_meanwhile();
	refused("null", "its open has answered 0 without a store");
	refused("positive", "its open has answered 1 in place of a store");
	more_than_asked();
	nothing_came();
	wrong_bytes();
	closed_meanwhile(with_tick, "close", false);
	closed_meanwhile(plugin, "get", true);
	return done_testing();
}

int main(void)
{
	remote_dir_make();
	return tap_guard(100, body, remote_dir_remove);
}
