/* SPDX-License-Identifier: Apache-2.0 */
/* A put that was given up arrives late, behind the removal of its key, by a real redis-server: the
 * server has ended its connection by then, also when the one who has put was killed.  Nobody else's
 * connection is ended.  Where a user may not end connections, or where there is no server but a
 * proxy, removals say so, also to the next process.
 * Tests: plugins/redis/fence.c plugins/redis/batch.c plugins/redis/conn.c lib/tiers/remote/batch.c
 *   lib/tiers/remote/remote.c plugins/folder.c */
#include "t/lib/tap.h"

#ifndef HAVE_HIREDIS
int main(void)
{
	plan_skip_all("there is no hiredis");
	return 0;
}
#else
#include <sys/mman.h>

#include "t/lib/late.h"
#include "t/lib/redis.h"
#include "t/lib/resp.h"
#include "index/base/order.h"
#include "tiers/remote/store.h"

#define BYTES 8192u
#define LANES 44u

static char plugin[512], own[1200];
static struct server server;
static struct late net;

static struct remote *start(const char *more, uint64_t node, uint64_t life, uint64_t *unsure)
{
	char spec[1500];
	struct remote_options o = { .spec = spec,
				    .image_bytes = BYTES,
				    .lanes = LANES,
				    .deadline_ms = 60000,
				    .log = remote_note,
				    .node = node,
				    .life = life,
				    .unsure_ns = unsure };
	struct remote *r = NULL;

	snprintf(spec, sizeof(spec), "%s:server=127.0.0.1:%d%s", plugin, net.port, more);
	if (remote_open(&o, &r) < 0)
		bail("%s", gpc_last_error());
	if (!remote_until(r, REMOTE_UP))
		bail("the store is not reached");
	return r;
}

static int put_within(struct remote *r, uint32_t lane, uint64_t key, uint32_t ms)
{
	struct images m;
	int result;

	images_make(&m, 1, BYTES);
	images_put(&m, key);
	remote_put(r, lane, m.b, 1, clock_ns() + ms * NS_PER_MS);
	result = m.b[0].result;
	free(m.at);
	return result;
}

static int put(struct remote *r, uint32_t lane, uint64_t key)
{
	return put_within(r, lane, key, 60000);
}

/* A put whose SET has been sent, and does not arrive; a busy machine may give one up before. */
static void put_late(struct remote *r, uint32_t lane, uint64_t key, const char *name)
{
	int result;

	do
		result = put_within(r, lane, key, 300);
	while (result == -ETIMEDOUT && !__atomic_load_n(&net.held, __ATOMIC_SEQ_CST));
	is_int(result, -ETIMEDOUT, "%s", name);
}

/* Such a store knows that it can end connections: of a put before that it is never sure. */
static struct remote *start_fenced(const char *more, uint64_t node, uint64_t life, uint64_t *unsure)
{
	struct remote *r = start(more, node, life, unsure);

	while (!load_relaxed(&r->fenced)) {
		remote_tick(r);
		usleep(5000);
	}
	return r;
}

static int there(uint64_t key)
{
	struct remote *r = remote_start(own, NULL, BYTES, 60000);
	gpc_key k = remote_key(key);
	int n = (int)remote_exists(r, 0, &k, 1, NULL, 0);

	remote_close(r);
	return n;
}

/* As the steward does, until it is known. */
static int removed(struct remote *r, uint64_t key)
{
	gpc_key k = remote_key(key);
	int32_t result;

	for (;;) {
		remote_tick(r);
		remote_remove(r, LANES - 1, &k, 1, &result, 0);
		if (!result || result == -EOPNOTSUPP)
			return result;
		usleep(5000);
	}
}

/* ---- one that was given up ---- */

static uint64_t connections(struct remote *r)
{
	struct gpc_remote_counter c;

	remote_counters(r, &c, 1);
	return c.value;
}

static uint64_t one_ns; /* until the key of one put was removed */

static void given_up(void)
{
	struct remote *r = start_fenced("", 7, 1, NULL), *other = start_fenced("", 8, 1, NULL);
	uint64_t ours, theirs;

	is_int(put(r, 0, 1) | put(r, 1, 2) | put(other, 0, 3), 0, "two machines have stored");
	theirs = connections(other);
	late_hold(&net);
	put_late(r, 0, 4, "a put is late, and given up");
	late_until_held(&net, 1);
	late_no_more(&net);
	one_ns = clock_ns();
	is_int(removed(r, 4), 0, "its key is removed");
	one_ns = clock_ns() - one_ns;
	is_int(late_arrives(&net), 1, "the put arrives");
	is_int(there(4), 0, "and stores nothing");
	is_int(there(1), 1, "what was stored is there");
	is_int(put(r, 0, 4), 0, "the key is stored again");
	is_int(there(4), 1, "and is there");
	ours = connections(r);
	is_int(put(r, 1, 5) | put(other, 0, 6), 0, "others store");
	is_int((long long)connections(r), (long long)ours,
	       "over the connections that they had: none of ours was ended that was not given up");
	is_int((long long)connections(other), (long long)theirs, "nor any of another machine");
	remote_close(other);
	remote_close(r);
}

/* Many at once. */
static struct remote *crowd;

static void *put_one(void *arg)
{
	put_within(crowd, (uint32_t)(uintptr_t)arg, 100 + (uintptr_t)arg, 400);
	return NULL;
}

static void many(void)
{
	pthread_t thread[40];
	gpc_key k[40];
	uintptr_t i;
	uint64_t began;
	int lost = 0;

	crowd = start_fenced("", 7, 2, NULL);
	late_hold(&net);
	for (i = 0; i < 40; i++)
		pthread_create(&thread[i], NULL, put_one, (void *)i);
	for (i = 0; i < 40; i++)
		pthread_join(thread[i], NULL);
	late_no_more(&net);
	began = clock_ns();
	for (i = 0; i < 40; i++) {
		lost += removed(crowd, 100 + i);
		k[i] = remote_key(100 + i);
	}
	is_int(lost, 0, "forty are given up, and removed");
	ok(is_soon(began, 5000 + 20 * one_ns / NS_PER_MS), "soon: it was one outage for all");
	diag("%u were on their way", late_arrives(&net));
	is_int(remote_exists(crowd, 0, k, 40, NULL, 0), 0, "none of them comes");
	remote_close(crowd);
}

/* ---- one whose process was killed ---- */

static void killed(void)
{
	struct remote *r;
	pid_t pid;

	late_hold(&net);
	pid = fork();
	if (!pid) {
		for (r = start_fenced("", 9, 3, NULL);;)
			put(r, 0, 20);
	}
	late_until_held(&net, 1);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	late_no_more(&net);
	r = start_fenced("", 9, 5, NULL);
	is_int(removed(r, 20), 0, "who puts is killed, and the next one removes the key");
	late_arrives(&net);
	is_int(there(20), 0, "the put arrives, and stores nothing");
	remote_close(r);
}

/* ---- a server that is started again: its numbers begin again ---- */

static void started_again(void)
{
	struct remote *r = start_fenced("", 7, 4, NULL);
	redisContext *c[64];
	redisReply *o;
	int i, alive = 0;

	late_hold(&net);
	put_late(r, 0, 30, "a put is given up");
	late_no_more(&net);
	server_kill(&server);
	server_start(&server, "one", 0, NULL);
	for (i = 0; i < 64; i++)
		c[i] = redisConnectUnix(server.path);
	is_int(removed(r, 30), 0, "the server was started again: the key is removed");
	for (i = 0; i < 64; i++) {
		o = redisCommand(c[i], "PING");
		alive += o && o->type == REDIS_REPLY_STATUS;
		if (o)
			freeReplyObject(o);
		redisFree(c[i]);
	}
	is_int(alive, 64, "clients that have those numbers now are not ended");
	late_arrives(&net);
	is_int(there(30), 0, "the put stores nothing");
	remote_close(r);
}

/* ---- a server that was stopped: what it has received it takes when it goes on ---- */

static void stopped(void)
{
	struct remote *r = start_fenced("", 7, 5, NULL);

	is_int(put(r, 0, 40), 0, "a put");
	stop_process(server.pid);
	is_int(put_within(r, 0, 41, 300), -ETIMEDOUT,
	       "the server is stopped: the next one is given up");
	kill(server.pid, SIGCONT);
	is_int(removed(r, 41), 0, "it goes on, and the key is removed");
	is_int(there(41), 0, "it is not there");
	is_int(there(40), 1, "the other one is");
	remote_close(r);
}

/* ---- no right ---- */

static void no_right(void)
{
	char more[700], path[300];
	uint64_t word = 0, since;
	struct remote *r;
	FILE *f;

	snprintf(path, sizeof(path), "%s/password", remote_dir);
	f = fopen(path, "w");
	fprintf(f, "sesame\n");
	fclose(f);
	chmod(path, 0600);
	snprintf(more, sizeof(more), ",user=poor,password-file=%s", path);
	server_ask(&server, NULL,
		   "ACL SETUSER poor on >sesame ~gpc1:* +get +set +exists +unlink +ping "
		   "+client|setname +client|list");
	remote_says_no_more();
	r = start(more, 7, 7, &word);
	/* a trial that a busy machine cuts short is made again */
	remote_until_said(r, "has no fence", 1);
	ok(remote_tells("ACL SETUSER poor +client|setname +client|list +client|kill"),
	   "a user who may not end connections: the log has the line that is needed");
	ok(remote_tells("has no fence"), "and what that means");
	is_int(put(r, 0, 50), 0, "a put");
	is_int((long long)word, 0, "has its answer, and leaves nothing behind");
	is_int(removed(r, 50), 0, "a removal is one: no put was given up");
	late_hold(&net);
	put_late(r, 0, 51, "a put is given up");
	late_no_more(&net);
	since = word;
	ok(since != 0, "its time is kept");
	is_int(removed(r, 51), -EOPNOTSUPP, "the key is removed, and may come back");
	late_arrives(&net);
	is_int(there(51), 1, "it does");
	remote_close(r);
	server_ask(&server, NULL, "ACL SETUSER poor +client|kill");
	r = start_fenced(more, 7, 9, &word);
	is_int(removed(r, 51), -EOPNOTSUPP,
	       "the next process may end connections, and still says so");
	is_int(there(51), 0, "it is removed");
	word = clock_ns() - REMOTE_UNSURE_NS;
	is_int(removed(r, 51), 0, "an hour later it is sure");
	is_int(put(r, 0, 52), 0, "a put");
	is_int((long long)(word + REMOTE_UNSURE_NS < clock_ns()), 1,
	       "that can be fenced leaves its time alone");
	remote_close(r);
}

/* A process that is killed in a put leaves its time behind. */
static void killed_without_right(void)
{
	uint64_t *word =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct remote *r;
	char more[700];
	pid_t pid;

	snprintf(more, sizeof(more), ",user=poor,password-file=%s/password", remote_dir);
	server_ask(&server, NULL, "ACL SETUSER poor -client|kill");
	late_hold(&net);
	pid = fork();
	if (!pid) {
		for (r = start(more, 7, 11, word);;)
			put(r, 0, 60);
	}
	late_until_held(&net, 1);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ok(*word != 0, "who is killed in a put that cannot be fenced leaves its time");
	late_arrives(&net);
}

/* ---- what is no server of Redis ---- */

static bool shares(struct resp *s, int fd, int argc, char **argv, const size_t *len)
{
	(void)s, (void)len;
	if (strcmp(argv[0], "CLIENT") || argc < 2)
		return false;
	resp_say(fd, strcmp(argv[1], "LIST") ? "+OK\r\n" : "$0\r\n\r\n");
	return true;
}

static void no_server(void)
{
	struct resp proxy = { .hook = shares };
	uint64_t word = 0;
	char spec[700];
	struct remote_options o = { .spec = spec,
				    .image_bytes = BYTES,
				    .lanes = LANES,
				    .log = remote_note,
				    .unsure_ns = &word };
	struct remote *r;

	resp_start(&proxy, false);
	snprintf(spec, sizeof(spec), "%s:server=127.0.0.1:%d", plugin, proxy.port);
	remote_says_no_more();
	if (remote_open(&o, &r) < 0 || !remote_until(r, REMOTE_UP))
		bail("no store");
	ok(remote_tells("is not listed by its name"),
	   "a proxy that shares connections is found out");
	is_int(put(r, 0, 1), 0, "it stores");
	word = clock_ns();
	is_int(removed(r, 1), -EOPNOTSUPP, "and nothing is known of puts that were given up");
	remote_close(r);
}

static void folder(void)
{
	char spec[1200], path[512];
	struct remote *r;
	uint64_t word = clock_ns();
	struct remote_options o = { .spec = spec,
				    .image_bytes = BYTES,
				    .lanes = LANES,
				    .log = remote_note,
				    .unsure_ns = &word };

	if (!remote_plugin("folder", path, sizeof(path)))
		bail("the plugin of folders is not built");
	snprintf(spec, sizeof(spec), "%s:dir=/proc", path);
	remote_says_no_more();
	if (remote_open(&o, &r) < 0)
		bail("no folder");
	remote_tick(r);
	ok(remote_tells("has no fence"), "a folder of which nothing is known has none");
	remote_close(r);
}

static int body(void)
{
	if (!redis_program())
		plan_skip_all("there is no redis-server");
	if (!remote_plugin("redis", plugin, sizeof(plugin)))
		plan_skip_all("this build has no plugin for Redis");
	server_start(&server, "one", 0, NULL);
	snprintf(own, sizeof(own), "%s:server=unix:%s", plugin, server.path);
	late_start(&net, server.path);
	given_up();
	many();
	killed();
	started_again();
	stopped();
	no_right();
	killed_without_right();
	no_server();
	folder();
	server_kill(&server);
	return done_testing();
}

int main(void)
{
	remote_dir_make();
	return tap_guard(100, body, remote_dir_remove);
}
#endif
