/* SPDX-License-Identifier: Apache-2.0 */
/* A remote store in a cluster of three real redis-servers: keys go to their nodes, slots that move
 * are followed (MOVED, ASK), and a node that ends or does not answer takes its own keys with it and
 * nothing else.
 * Tests: plugins/redis/node.c plugins/redis/tick.c plugins/redis/fence.c */
#include "t/lib/tap.h"

#ifndef HAVE_HIREDIS
int main(void)
{
	plan_skip_all("there is no hiredis");
	return 0;
}
#else
#include "t/lib/redis.h"

#define N     300u
#define BYTES 20000u
#define SLOTS 16384

static char plugin[512], spec[1200], id[3][64];
static struct server server[3];
static struct images m;
static int port;

static void start_node(int i)
{
	char name[16], conf[32];

	snprintf(name, sizeof(name), "node-%d", i);
	snprintf(conf, sizeof(conf), "nodes-%d.conf", i);
	server_start(&server[i], name, port + i, "--cluster-enabled", "yes",
		     "--cluster-config-file", conf, "--cluster-require-full-coverage", "no",
		     "--cluster-node-timeout", "2000", "--cluster-allow-replica-migration", "no",
		     NULL);
}

static bool cluster_is_ok(int i)
{
	redisContext *c = redisConnectUnix(server[i].path);
	redisReply *r = redisCommand(c, "CLUSTER INFO");
	bool good = r && r->str && strstr(r->str, "cluster_state:ok") &&
		    strstr(r->str, "cluster_known_nodes:3") &&
		    strstr(r->str, "cluster_slots_assigned:16384");

	freeReplyObject(r);
	redisFree(c);
	return good;
}

static void make_cluster(void)
{
	redisContext *c;
	redisReply *r;
	int i, k;

	for (i = 0; i < 3; i++) {
		start_node(i);
		c = redisConnectUnix(server[i].path);
		r = redisCommand(c, "CLUSTER MYID");
		snprintf(id[i], sizeof(id[i]), "%s", r->str);
		freeReplyObject(r);
		redisFree(c);
		server_ask(&server[i], NULL, "CLUSTER ADDSLOTSRANGE %d %d", i * SLOTS / 3,
			   (i + 1) * SLOTS / 3 - 1);
	}
	for (i = 1; i < 3; i++)
		server_ask(&server[0], NULL, "CLUSTER MEET 127.0.0.1 %d", port + i);
	for (k = 0; k < 2000 && !(cluster_is_ok(0) && cluster_is_ok(1) && cluster_is_ok(2)); k++)
		usleep(10000);
	ok(k < 2000, "a cluster of three");
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

static uint32_t get_all(struct remote *r)
{
	uint32_t hits;

	images_want(&m, 0);
	hits = remote_get(r, 0, m.b, N, 0);
	is_int(images_wrong(&m), 0, "no byte is wrong");
	return hits;
}

static void there_and_back(struct remote *r)
{
	struct remote_state s;
	long long at[3];
	int i;

	remote_state(r, &s);
	ok(strstr(s.where, "a cluster of 3") != NULL, "it is known as a cluster: %s", s.where);
	images_put(&m, 0);
	is_int(remote_put(r, 0, m.b, N, 0), N, "%u images are stored", N);
	is_int(get_all(r), N, "and come back");
	is_int(counter(r, "moved"), 0, "each was asked for where it is");
	for (i = 0; i < 3; i++)
		at[i] = server_ask(&server[i], NULL, "DBSIZE");
	ok(at[0] > 50 && at[1] > 50 && at[2] > 50 && at[0] + at[1] + at[2] == N,
	   "each node has its share: %d %d %d", (int)at[0], (int)at[1], (int)at[2]);
}

/* A slot of node 0 that has one of our keys, and that key. */
static int pick_slot(char *key, size_t room)
{
	redisContext *c = redisConnectUnix(server[0].path);
	redisReply *r = redisCommand(c, "RANDOMKEY");
	int slot;

	snprintf(key, room, "%s", r->str);
	freeReplyObject(r);
	r = redisCommand(c, "CLUSTER KEYSLOT %s", key);
	slot = (int)r->integer;
	freeReplyObject(r);
	redisFree(c);
	return slot;
}

/* As an administrator reshards: the slot is on its way for a while. */
static void resharding(struct remote *r)
{
	char key[300];
	int slot = pick_slot(key, sizeof(key)), i;
	uint64_t asked = counter(r, "asked_elsewhere"), moved = counter(r, "moved");

	server_ask(&server[1], NULL, "CLUSTER SETSLOT %d IMPORTING %s", slot, id[0]);
	server_ask(&server[0], NULL, "CLUSTER SETSLOT %d MIGRATING %s", slot, id[1]);
	is_int(get_all(r), N, "a slot is to move, and its keys are where they were");
	server_ask(&server[0], NULL, "MIGRATE 127.0.0.1 %d %s 0 5000", port + 1, key);
	is_int(get_all(r), N, "a key of it has moved, and is found (ASK)");
	ok(counter(r, "asked_elsewhere") > asked, "by a second question");
	images_put(&m, 0);
	is_int(remote_put(r, 0, m.b, N, 0), N, "what is written meanwhile goes there, too");
	for (i = 0; i < 3; i++)
		server_ask(&server[i], NULL, "CLUSTER SETSLOT %d NODE %s", slot, id[1]);
	is_int(get_all(r), N, "the slot has moved (MOVED)");
	ok(counter(r, "moved") > moved, "which is followed");
	for (i = 0; i < 50; i++) {
		remote_tick(r);
		usleep(20000);
	}
	moved = counter(r, "moved");
	is_int(get_all(r), N, "later all is found");
	is_int(counter(r, "moved"), (long long)moved, "without another detour");
	ok(counter(r, "slot_maps") >= 2, "as the map was read anew");
}

static void node_dies(struct remote *r)
{
	long long lost = server_ask(&server[2], NULL, "DBSIZE");
	uint64_t began;

	server_kill(&server[2]);
	ok(get_all(r) == N - (uint32_t)lost, "a node is killed: the keys of the others are found");
	began = clock_ns();
	ok(get_all(r) == N - (uint32_t)lost, "and again");
	ok(clock_ns() - began < 300 * NS_PER_MS, "at once");
	is_int(images_with(&m, -EHOSTDOWN), lost, "the rest is not tried");
	is_int(remote_status(r), REMOTE_UP, "the store is not down");
	images_put(&m, 0);
	is_int(remote_put(r, 0, m.b, N, 0), N - lost, "what belongs to others is stored");
	start_node(2);
	began = clock_ns();
	do {
		remote_tick(r);
		usleep(20000);
		images_put(&m, 0);
	} while (remote_put(r, 0, m.b, N, 0) < N && clock_ns() - began < 20000 * NS_PER_MS);
	is_int(get_all(r), N, "the node is there again, and takes its keys");
}

static void node_stops(struct remote *r)
{
	uint64_t began = clock_ns();
	long long lost = server_ask(&server[1], NULL, "DBSIZE");

	kill(server[1].pid, SIGSTOP);
	is_int(get_all(r), N - lost, "a node is stopped: the keys of the others are found");
	ok(clock_ns() - began < 3000 * NS_PER_MS, "within the deadline");
	began = clock_ns();
	is_int(get_all(r), N - lost, "and again");
	ok(clock_ns() - began < 300 * NS_PER_MS, "at once: it costs one deadline");
	kill(server[1].pid, SIGCONT);
	began = clock_ns();
	do {
		remote_tick(r);
		usleep(20000);
		images_want(&m, 0);
	} while (remote_get(r, 0, m.b, N, 0) < N && clock_ns() - began < 20000 * NS_PER_MS);
	is_int(get_all(r), N, "it goes on, with all that it had");
}

/* Puts are given up at a node that is stopped.  Keys of other nodes are removed meanwhile, and
 * what belongs to that one when it goes on, behind all that it has received. */
static void fences(struct remote *r)
{
	long long lost = server_ask(&server[1], NULL, "DBSIZE");
	gpc_key keys[N];
	int32_t results[N];
	uint32_t i, gone = 0;

	for (i = 0; i < N; i++)
		keys[i] = remote_key(i);
	stop_process(server[1].pid);
	images_put(&m, 0);
	is_int(remote_put(r, 0, m.b, N, 0), N - lost, "a node is stopped: its puts are given up");
	remote_remove(r, 3, keys, N, results, 0);
	for (i = 0; i < N; i++)
		gone += results[i] == 0;
	is_int(gone, N - lost, "the keys of the others are removed");
	kill(server[1].pid, SIGCONT);
	do {
		remote_tick(r);
		usleep(20000);
	} while (remote_remove(r, 3, keys, N, results, 0) < N);
	is_int(get_all(r), 0, "it goes on: all of its keys are removed, and none comes back");
	images_put(&m, 0);
	is_int(remote_put(r, 0, m.b, N, 0), N, "all are stored anew");
}

static int body(void)
{
	struct remote *r;
	int i;

	if (!redis_program())
		plan_skip_all("there is no redis-server");
	if (!remote_plugin("redis", plugin, sizeof(plugin)))
		plan_skip_all("this build has no plugin for Redis");
	port = 20000 + (int)getpid() % 2000 * 3;
	make_cluster();
	images_make(&m, N, BYTES);
	snprintf(spec, sizeof(spec), "%s:server=127.0.0.1:%d+unix:%s", plugin, port,
		 server[1].path);
	r = remote_start(spec, NULL, BYTES, 500);
	there_and_back(r);
	resharding(r);
	node_dies(r);
	node_stops(r);
	fences(r);
	remote_close(r);
	for (i = 0; i < 3; i++)
		server_kill(&server[i]);
	return done_testing();
}

int main(void)
{
	remote_dir_make();
	return tap_guard(150, body, remote_dir_remove);
}
#endif
