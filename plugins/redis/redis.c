/* SPDX-License-Identifier: Apache-2.0 */
/* redis.c - the table of functions; open and close.
 * Tests: t/tiers/redis.t */
#include "plugins/redis/redis.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define PATH_MOST (sizeof(((struct sockaddr_un *)0)->sun_path) - 1)

static void exists(void *store, const struct gpc_remote_call *call, struct gpc_remote_item *items,
		   uint32_t n)
{
	batch_run(store, call, EXISTS, items, n);
}

static void get(void *store, const struct gpc_remote_call *call, struct gpc_remote_item *items,
		uint32_t n)
{
	batch_run(store, call, GET, items, n);
}

static void put(void *store, const struct gpc_remote_call *call, struct gpc_remote_item *items,
		uint32_t n)
{
	batch_run(store, call, PUT, items, n);
}

static void take_away(void *store, const struct gpc_remote_call *call,
		      struct gpc_remote_item *items, uint32_t n)
{
	batch_run(store, call, REMOVE, items, n);
}

static void fence(void *store, const struct gpc_remote_call *call, struct gpc_remote_item *items,
		  uint32_t n)
{
	batch_run(store, call, FENCE, items, n);
}

static void close_store(void *store)
{
	struct redis *r = store;
	uint32_t i;

	for (i = 0; r->lane && i < r->nlanes; i++)
		lane_free(r->lane[i]);
	free(r->lane);
	for (i = 0; i < NODES; i++)
		name_end(&r->name[i]);
#ifdef HAVE_HIREDIS_SSL
	if (r->ssl)
		redisFreeSSLContext(r->ssl);
#endif
	pthread_mutex_destroy(&r->lock);
	/* a password does not stay in memory that is free */
	explicit_bzero(&r->o, sizeof(r->o));
	free(r);
}

/* "+" is between servers. */
static int add_servers(struct redis *r, char *why, size_t room)
{
	const char *at = r->o.server;
	char host[256];
	uint16_t node;
	int port;

	while (*at) {
		size_t n = strcspn(at, "+");

		if (!node_parse(at, n, host, sizeof(host), &port)) {
			snprintf(
				why, room,
				"server=%.*s is none of HOST, HOST:PORT, [ADDRESS]:PORT, unix:/PATH; + is between "
				"several",
				(int)(n < 200 ? n : 200), at);
			return -EINVAL;
		}
		if (!port && strlen(host) > PATH_MOST) {
			snprintf(why, room,
				 "server: the path of a socket has %zu bytes, and may have %zu",
				 strlen(host), PATH_MOST);
			return -EINVAL;
		}
		node = node_number(r, host, port);
		if (node == NO_NODE) {
			snprintf(why, room, "server names more than %d servers", NODES);
			return -EINVAL;
		}
		r->node[node].seed = true;
		at += n + (at[n] == '+');
	}
	return 0;
}

#ifdef HAVE_HIREDIS_SSL
static const char *text_or_null(const char *s)
{
	return s[0] ? s : NULL;
}

static int open_tls(struct redis *r, char *why, size_t room)
{
	redisSSLContextError err = REDIS_SSL_CTX_NONE;

	if (!r->o.tls_ca[0])
		return 0;
	redisInitOpenSSL();
	r->ssl = redisCreateSSLContext(r->o.tls_ca, NULL, text_or_null(r->o.tls_cert),
				       text_or_null(r->o.tls_key), text_or_null(r->o.tls_name),
				       &err);
	if (r->ssl)
		return 0;
	snprintf(why, room, "tls-ca=%s: %s", r->o.tls_ca, redisSSLContextGetError(err));
	return -EINVAL;
}
#else
static int open_tls(struct redis *r, char *why, size_t room)
{
	return 0;
}
#endif

static int open_store(const struct gpc_remote_setup *setup, void **store, char *why, size_t room)
{
	struct redis *r = calloc(1, sizeof(*r));
	int ret;

	if (!r)
		return -ENOMEM;
	pthread_mutex_init(&r->lock, NULL);
	r->setup = *setup;
	r->nlanes = setup->lanes;
	memset(r->slot, 0xff, sizeof(r->slot));
	r->lane = calloc(setup->lanes, sizeof(*r->lane));
	ret = r->lane ? options_read(setup, &r->o, why, room) : -ENOMEM;
	if (!ret)
		ret = add_servers(r, why, room);
	if (!ret)
		ret = open_tls(r, why, room);
	if (ret < 0) {
		close_store(r);
		return ret;
	}
	*store = r;
	return 0;
}

static uint32_t counters(void *store, struct gpc_remote_counter *ret, uint32_t n)
{
	static const char *const names[COUNTERS] = {
		[CONNECTED] = "connections", [RECONNECTED] = "reconnections",
		[REDIRECTED] = "moved",      [ASKED] = "asked_elsewhere",
		[NODE_DOWN] = "nodes_down",  [MAPS] = "slot_maps",
	};
	struct redis *r = store;
	uint32_t i;

	for (i = 0; i < COUNTERS && i < n; i++) {
		ret[i].name = names[i];
		ret[i].value = __atomic_load_n(&r->count[i], __ATOMIC_RELAXED);
	}
	return i;
}

static void where(void *store, char *ret, size_t room)
{
	struct redis *r = store;
	uint32_t i, nodes = 0;

	pthread_mutex_lock(&r->lock);
	for (i = 0; i < r->nnodes; i++)
		nodes += r->node[i].in_map;
	if (r->cluster)
		snprintf(ret, room, "%s, a cluster of %u", r->o.server, nodes);
	else
		snprintf(ret, room, "%s", r->o.server);
	pthread_mutex_unlock(&r->lock);
}

static const struct gpc_remote_word words[] = {
	{ "server",
	  "HOST, HOST:PORT, [ADDRESS]:PORT or unix:/PATH; of a cluster any nodes of it, with + between" },
	{ "user", "who we are there" },
	{ "password-file", "a file of mode 600 with the password in its first line" },
	{ "db", "number of the database; 0" },
	{ "expire", "seconds after which the server forgets a value; 0 = its own policy" },
	{ "tls-ca", "TLS, and the certificate of the authority that has signed the server's" },
	{ "tls-cert", "our certificate" },
	{ "tls-key", "its key" },
	{ "tls-name", "the name that the server is asked for (SNI)" },
	{ NULL, NULL }
};

const struct gpc_remote_plugin gpc_remote_plugin = {
	.size = sizeof(struct gpc_remote_plugin),
	.abi = GPC_REMOTE_ABI,
	.name = "redis",
	.about = "a Redis or Valkey server, or a cluster of them",
	.words = words,
	.open = open_store,
	.close = close_store,
	.exists = exists,
	.get = get,
	.put = put,
	.remove = take_away,
	.tick = tick,
	.counters = counters,
	.where = where,
	.fence = fence,
};
