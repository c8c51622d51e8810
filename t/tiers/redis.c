/* SPDX-License-Identifier: Apache-2.0 */
/* A remote store in a real redis-server: killed and stopped under load, full, closed to us, with
 * values that others have spoilt.  Nothing is lost but hits, and no wrong byte is given to
 * anybody.
 * Tests: plugins/redis/redis.c plugins/redis/batch.c plugins/redis/options.c */
#include "t/lib/tap.h"

#ifndef HAVE_HIREDIS
int main(void)
{
	plan_skip_all("there is no hiredis");
	return 0;
}
#else
#include "t/lib/redis.h"

#define N     64u
#define BYTES (64u << 10)

static char plugin[512], spec[1200];
static struct server server;
static struct images m;

static struct remote *start(const char *more, uint32_t ms)
{
	char all[1500];

	snprintf(all, sizeof(all), "%s%s", spec, more);
	return remote_start(all, NULL, BYTES, ms);
}

static uint64_t counter(struct remote *r, const char *name)
{
	struct gpc_remote_counter c[16];
	uint32_t n = remote_counters(r, c, 16), i;

	for (i = 0; i < n; i++)
		if (!strcmp(c[i].name, name))
			return c[i].value;
	return UINT64_MAX;
}

static void there_and_back(void)
{
	struct remote *r = start("", 0);
	gpc_key keys[N];
	uint32_t i;

	is_int(remote_status(r), REMOTE_UP, "the store answers");
	images_put(&m, 0);
	is_int(remote_put(r, 0, m.b, N, 0), N, "%u images are stored", N);
	images_want(&m, 0);
	is_int(remote_get(r, 1, m.b, N, 0), N, "and come back");
	is_int(images_wrong(&m), 0, "with their bytes");
	images_want(&m, N / 2);
	is_int(remote_get(r, 1, m.b, N, 0), N / 2, "of others those that are there");
	is_int(images_with(&m, -ENOENT), N / 2, "the rest are misses");
	is_int(images_wrong(&m), 0, "what came is right");
	for (i = 0; i < N; i++)
		keys[i] = remote_key(i);
	is_int(remote_exists(r, 0, keys, N, NULL, 0), N, "all exist");
	is_int(remote_remove(r, 0, keys + 9, 2, NULL, 0), 2, "two are removed");
	is_int(remote_reach(r, 0, keys, N, 0), 9, "the chain ends there");
	is_int(counter(r, "connections"), 3, "two lanes and the tick have connected once each");
	remote_close(r);
}

/* An image in many pieces, more than are written at once. */
static void many_pieces(void)
{
	struct remote *r = start("", 0);
	static struct iovec v[300];
	uint32_t i, at = 0;

	images_put(&m, 5000);
	for (i = 0; i < 300; i++, at += BYTES / 300)
		v[i] = (struct iovec){ m.at + at, i < 299 ? BYTES / 300 : BYTES - at };
	m.b[0].image = v;
	m.b[0].npieces = 300;
	is_int(remote_put(r, 0, m.b, 1, 0), 1, "an image of 300 pieces is stored");
	memset(m.at, 0, BYTES);
	is_int(remote_get(r, 0, m.b, 1, 0), 1, "and comes back");
	remote_close(r);
}

/* ---- a server that ends, or does not answer, under load ---- */

static struct load {
	struct remote *r;
	uint32_t lane, stop, hits, wrong;
	uint64_t longest;
} load[3];

static void *run_load(void *arg)
{
	struct load *l = arg;
	struct images own;

	images_make(&own, 16, BYTES);
	while (!__atomic_load_n(&l->stop, __ATOMIC_RELAXED)) {
		uint64_t began = clock_ns(), ns;

		images_put(&own, 100 * l->lane);
		remote_put(l->r, l->lane, own.b, 16, 0);
		images_want(&own, 100 * l->lane);
		__atomic_fetch_add(&l->hits, remote_get(l->r, l->lane, own.b, 16, 0),
				   __ATOMIC_RELAXED);
		l->wrong += images_wrong(&own);
		ns = clock_ns() - began;
		if (ns > l->longest)
			l->longest = ns;
	}
	free(own.at);
	return NULL;
}

static bool hits_grow(struct remote *r)
{
	uint64_t end = clock_ns() + 90000 * NS_PER_MS;
	uint32_t before = __atomic_load_n(&load[0].hits, __ATOMIC_RELAXED);

	while (__atomic_load_n(&load[0].hits, __ATOMIC_RELAXED) < before + 64 && clock_ns() < end) {
		remote_tick(r);
		usleep(20000);
	}
	return __atomic_load_n(&load[0].hits, __ATOMIC_RELAXED) >= before + 64;
}

static void under_load(void)
{
	struct remote *r = start("", 5000);
	pthread_t thread[3];
	uint32_t i, wrong = 0;

	for (i = 0; i < 3; i++) {
		load[i] = (struct load){ .r = r, .lane = i };
		pthread_create(&thread[i], NULL, run_load, &load[i]);
	}
	ok(hits_grow(r), "three lanes store and load");
	server_kill(&server);
	ok(remote_until(r, REMOTE_DOWN), "the server is killed: the store is down");
	server_start(&server, "one", 0, NULL);
	ok(remote_until(r, REMOTE_UP), "it is there again, and found");
	ok(hits_grow(r), "and goes on, empty");
	stop_process(server.pid);
	ok(remote_until(r, REMOTE_DOWN), "the server is stopped: the store is down");
	kill(server.pid, SIGCONT);
	ok(remote_until(r, REMOTE_UP), "it goes on, and is found");
	ok(hits_grow(r), "with what it has");
	for (i = 0; i < 3; i++) {
		__atomic_store_n(&load[i].stop, 1, __ATOMIC_RELAXED);
		pthread_join(thread[i], NULL);
		wrong += load[i].wrong;
	}
	is_int(wrong, 0, "no wrong byte came");
	is_int(remote_status(r), REMOTE_UP, "and the store was never switched off");
	ok(remote_tells("is down: ") && remote_tells("answers again"), "both are told");
	remote_close(r);
}

/* A server that ends and is back while nobody calls: each lane finds its connection closed, opens another one, and
 * nothing of the call is lost or counts as an outage. */
static void idle_meanwhile(void)
{
	struct remote *r = start("", 0);
	struct remote_state st;
	uint64_t down = counter(r, "nodes_down");
	uint32_t lane, round, stored = 0;

	for (round = 0; round < 3; round++) {
		for (lane = 0; lane < 4; lane++) {
			images_put(&m, 100 * lane);
			stored += remote_put(r, lane, m.b, N, 0);
			images_want(&m, 100 * lane);
			stored += remote_get(r, lane, m.b, N, 0);
		}
		server_kill(&server);
		server_start(&server, "one", 0, NULL);
	}
	is_int(stored, 3 * 4 * 2 * N,
	       "connections that have gone are opened again, and all is stored and found");
	remote_state(r, &st);
	is_int((long long)(st.other + st.late + st.down), 0, "nothing counts as failed");
	is_int((long long)counter(r, "nodes_down"), (long long)down, "nor the server as down");
	remote_close(r);
}

/* A dead server costs the first call its deadline, and later ones nothing. */
static void costs_once(void)
{
	struct remote *r = start("", 60000);
	uint64_t began, first, later;
	uint32_t i;

	images_put(&m, 0);
	remote_put(r, 0, m.b, N, 0);
	stop_process(server.pid);
	images_want(&m, 0);
	began = clock_ns();
	is_int(remote_get(r, 0, m.b, N, began + 400 * NS_PER_MS), 0,
	       "a stopped server gives nothing");
	first = clock_ns() - began;
	ok(first > 300 * NS_PER_MS && is_soon(clock_ns() - first, 2000),
	   "the first call has its deadline");
	is_int(images_with(&m, -ETIMEDOUT), N, "all of it is late");
	began = clock_ns();
	for (i = 0; i < 1000; i++) {
		images_want(&m, 0);
		remote_get(r, i % 4, m.b, 1, 0);
	}
	later = (clock_ns() - began) / 1000;
	diag("the first call took %llu ms, a later one %llu us, image cleared",
	     (unsigned long long)first / 1000000, (unsigned long long)later / 1000);
	is_int(m.b[0].result, -EHOSTDOWN, "later ones are not tried, in any lane");
	ok(remote_until(r, REMOTE_DOWN), "the store says that it is down");
	kill(server.pid, SIGCONT);
	ok(remote_until(r, REMOTE_UP), "the server goes on");
	images_want(&m, 0);
	is_int(remote_get(r, 0, m.b, N, 0), N, "with all that it had");
	is_int(images_wrong(&m), 0, "and late answers are not taken for new ones");
	remote_close(r);
}

/* ---- a server that is full ---- */

static void full(void)
{
	struct remote *r = start("", 0);
	uint32_t stored;

	server_ask(&server, NULL, "FLUSHALL");
	server_ask(&server, NULL, "CONFIG SET maxmemory 3mb");
	server_ask(&server, NULL, "CONFIG SET maxmemory-policy noeviction");
	images_put(&m, 0);
	stored = remote_put(r, 0, m.b, N, 0);
	ok(stored > 0 && stored < N, "a server with noeviction takes %u of %u images", stored, N);
	is_int(images_with(&m, -ENOSPC), N - stored, "and is full for the rest");
	ok(remote_tells("is full: it takes no blocks"), "the log says so");
	remote_log[0] = 0;
	images_put(&m, 0);
	remote_put(r, 0, m.b, N, 0);
	ok(images_with(&m, -ENOSPC) > 0, "it is full again");
	ok(!remote_log[0], "which the log had already: %s", remote_log);
	images_want(&m, 0);
	is_int(remote_get(r, 0, m.b, N, 0), stored, "what it took is there");
	is_int(images_wrong(&m), 0, "whole");
	server_ask(&server, NULL, "CONFIG SET maxmemory-policy allkeys-lru");
	images_put(&m, 1000);
	is_int(remote_put(r, 0, m.b, N, 0), N, "with allkeys-lru it takes all");
	images_want(&m, 1000);
	ok(remote_get(r, 0, m.b, N, 0) < N, "and has evicted some");
	is_int(images_wrong(&m), 0, "no wrong byte came");
	is_int(remote_status(r), REMOTE_UP, "a full store is not down");
	server_ask(&server, NULL, "CONFIG SET maxmemory 0");
	remote_close(r);
}

/* ---- who we are ---- */

static void password_file(const char *name, const char *text, int mode, char *more, size_t room)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", remote_dir, name);
	f = fopen(path, "w");
	fprintf(f, "%s\n", text);
	fclose(f);
	chmod(path, (mode_t)mode);
	snprintf(more, room, ",password-file=%s", path);
}

static void auth(void)
{
	char right[600], wrong[600], open_to_all[600], user[700];
	struct remote *r;
	struct remote_state st;

	password_file("right", "sesame", 0600, right, sizeof(right));
	password_file("wrong", "barley", 0400, wrong, sizeof(wrong));
	password_file("open", "sesame", 0644, open_to_all, sizeof(open_to_all));
	server_ask(&server, NULL, "CONFIG SET requirepass sesame");
	remote_log[0] = 0;
	r = start("", 5000);
	is_int(remote_status(r), REMOTE_DOWN, "without a password the store is down");
	remote_state(r, &st);
	ok(strstr(st.why, "NOAUTH") != NULL, "which says: %s", st.why);
	remote_close(r);
	r = start(wrong, 5000);
	is_int(remote_status(r), REMOTE_DOWN, "with a wrong one, too");
	remote_state(r, &st);
	ok(strstr(st.why, "WRONGPASS") != NULL, "which says: %s", st.why);
	ok(!strstr(remote_log, "barley"), "no password is in the log");
	images_put(&m, 0);
	is_int(remote_put(r, 0, m.b, N, 0), 0, "nothing is stored");
	server_ask(&server, "sesame", "CONFIG SET requirepass barley");
	ok(remote_until(r, REMOTE_UP),
	   "the server's password is changed: it is tried again, and found");
	remote_close(r);
	server_ask(&server, "barley", "CONFIG SET requirepass sesame");
	r = start(right, 0);
	images_put(&m, 0);
	is_int(remote_put(r, 0, m.b, N, 0), N, "with the right one all is stored");
	remote_close(r);
	server_ask(&server, "sesame", "ACL SETUSER reader on >sesame ~gpc1:* +get +exists +ping");
	snprintf(user, sizeof(user), "%s,user=reader", right);
	r = start(user, 0);
	is_int(remote_status(r), REMOTE_UP, "a user who may only read");
	images_want(&m, 0);
	is_int(remote_get(r, 0, m.b, N, 0), N, "reads");
	images_put(&m, 0);
	is_int(remote_put(r, 0, m.b, N, 0), 0, "and does not write");
	is_int(images_with(&m, -EACCES), N, "as the server says");
	remote_close(r);
	server_ask(&server, "sesame", "CONFIG SET requirepass %s", "");
	r = start(open_to_all, 0);
	ok(!r && strstr(gpc_last_error(), "no other user may read"),
	   "a password that others may read is refused");
}

/* ---- values that others have spoilt ---- */

static void spoilt(void)
{
	struct remote *r = start("", 0);
	struct remote_state st;
	char key[GPC_REMOTE_KEY + 1] = "";
	redisContext *c = redisConnectUnix(server.path);
	redisReply *all, *two;

	server_ask(&server, NULL, "FLUSHALL");
	images_put(&m, 0);
	remote_put(r, 0, m.b, 2, 0);
	all = redisCommand(c, "KEYS gpc1:*");
	is_int((long long)all->elements, 2, "two keys");
	two = redisCommand(c, "GET %s", all->element[1]->str);
	snprintf(key, sizeof(key), "%s", all->element[0]->str);
	server_ask(&server, NULL, "SET %s %b", key, two->str, (size_t)two->len);
	images_want(&m, 0);
	is_int(remote_get(r, 0, m.b, 2, 0), 1, "the value of another key is none");
	server_ask(&server, NULL, "SET %s %b", key, two->str, (size_t)two->len / 2);
	images_put(&m, 0);
	remote_put(r, 0, m.b, 2, 0);
	server_ask(&server, NULL, "SETRANGE %s 5000 x!x", key);
	images_want(&m, 0);
	is_int(remote_get(r, 0, m.b, 2, 0), 1, "a value with three other bytes is none");
	is_int(images_with(&m, -EBADMSG), 1, "it is wrong");
	is_int(images_wrong(&m), 0, "and nobody has it");
	is_int(server_ask(&server, NULL, "EXISTS %s", key), 0, "it is removed");
	server_ask(&server, NULL, "LPUSH %s a b c", key);
	images_want(&m, 0);
	is_int(remote_get(r, 0, m.b, 2, 0), 1, "a list under our key is no value");
	remote_state(r, &st);
	is_int(st.state, REMOTE_OFF, "that was the third: the store is switched off");
	ok(strstr(st.why, "gpc1:0:") != NULL, "and says why: %s", st.why);
	freeReplyObject(all);
	freeReplyObject(two);
	redisFree(c);
	remote_close(r);
}

static void expires(void)
{
	struct remote *r = start(",expire=1", 0);
	uint64_t end = clock_ns() + 90000 * NS_PER_MS;

	images_put(&m, 0);
	is_int(remote_put(r, 0, m.b, 3, 0), 3, "values that expire after a second");
	images_want(&m, 0);
	is_int(remote_get(r, 0, m.b, 3, 0), 3, "are there");
	do {
		usleep(100000);
		images_want(&m, 0);
	} while (remote_get(r, 0, m.b, 3, 0) && clock_ns() < end);
	is_int(images_with(&m, -ENOENT), N - 3 + 3 - (N - 3), "and gone later");
	remote_close(r);
}

static void refused(const char *more, const char *sentence)
{
	ok(!start(more, 0), "%s is refused", more);
	if (!ok(strstr(gpc_last_error(), sentence) != NULL, "which says: %s", sentence))
		diag("it says: %s", gpc_last_error());
}

static void tls_is_refused(void)
{
	struct remote *r;

#ifdef HAVE_HIREDIS_SSL
	refused(",tls-ca=/etc/none.pem", "tls-ca=/etc/none.pem: ");
	refused(",tls-cert=/x",
		"tls-cert without tls-ca: TLS needs the certificate of the authority");
#else
	refused(",tls-ca=/etc/none.pem",
		"tls-ca: there is no TLS here: the hiredis that this plugin was built with has none, "
		"it came with hiredis 1.0");
	refused(",tls-cert=/x", "tls-cert: there is no TLS here");
#endif
	r = start(",db=x", 0);
	ok(!r && strstr(gpc_last_error(), "db=x: it must be a number from 0 to 65535"),
	   "and a database that is no number");
	r = start(",user=u", 0);
	ok(!r && strstr(gpc_last_error(), "user without password-file"),
	   "and a user without a password");
}

static int body(void)
{
	if (!redis_program())
		plan_skip_all("there is no redis-server");
	if (!remote_plugin("redis", plugin, sizeof(plugin)))
		plan_skip_all("this build has no plugin for Redis");
	server_start(&server, "one", 0, NULL);
	snprintf(spec, sizeof(spec), "%s:server=unix:%s", plugin, server.path);
	images_make(&m, N, BYTES);
	there_and_back();
	many_pieces();
	idle_meanwhile();
	costs_once();
	under_load();
	full();
	auth();
	spoilt();
	expires();
	tls_is_refused();
	server_kill(&server);
	return done_testing();
}

int main(void)
{
	remote_dir_make();
	return tap_guard(100, body, remote_dir_remove);
}
#endif
