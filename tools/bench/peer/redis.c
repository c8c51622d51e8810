/* SPDX-License-Identifier: Apache-2.0 */
/* Redis over a unix socket.
 *
 * It has no persistence and no other clients.  It is asked by MGET and MSET of 64 keys, eight of
 * them under way at a time; keys are the 16 bytes as they are, values four bytes, which Redis
 * keeps within the object.
 *
 * At the first key beyond the entries, its memory is limited to the amount that it uses at that
 * time, and its buffers.  From then on it evicts by its own LRU, which looks at samples (the
 * default of Redis).
 * Tests: t/tools/bench-peers.t */
#include "config.h"

#include "tools/bench/peer/peer.h"
#include "tools/bench/peer/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	GROUP = 64,          /* keys in a command */
	AHEAD = 8,           /* commands under way; their answers fit the socket */
	BUFFERS = 256 << 10, /* of clients, which count as memory used, too */
};

struct redis {
	struct server server;
	uint32_t entries;
	uint64_t inserted;
	bool limited;
	char command[32 + GROUP * 40];
};

static char what[80] = "Redis, unix socket";

static char *put_text(char *to, const char *text)
{
	size_t n = strlen(text);

	return (char *)memcpy(to, text, n) + n;
}

/* ---- start ---- */

/* The number after "name:" in a section of INFO, or the text, when there is room for it. */
static int info(struct redis *r, const char *section, const char *name, char *text, size_t room)
{
	char command[64];
	size_t length = strlen(name), left, size;
	int status = -1;
	char *line;

	snprintf(command, sizeof(command), "INFO %s\r\n", section);
	if (server_send(&r->server, command, strlen(command)))
		return -1;
	line = server_line(&r->server);
	if (!line || *line != '$')
		return -1;
	for (left = strtoul(line + 1, NULL, 10) + 2; left; left -= size < left ? size : left) {
		line = server_line(&r->server);
		if (!line)
			return -1;
		size = strlen(line) + 2;
		if (!strncmp(line, name, length) && line[length] == ':') {
			snprintf(text, room, "%s", line + length + 1);
			status = 0;
		}
	}
	return status;
}

static void redis_close(void *table)
{
	struct redis *r = table;

	server_stop(&r->server);
	free(r);
}

static void *redis_open(uint32_t entries, const char **why)
{
	static const char *const argv[] = { "redis-server",
					    "--port",
					    "0",
					    "--unixsocket",
					    "@socket",
					    "--unixsocketperm",
					    "600",
					    "--dir",
					    "@dir",
					    "--save",
					    "",
					    "--appendonly",
					    "no",
					    "--daemonize",
					    "no",
					    "--maxmemory-policy",
					    "allkeys-lru",
					    NULL };
	struct redis *r = calloc(1, sizeof(*r));
	char version[24];

	if (!r)
		return bench_why(why, "no memory");
	r->entries = entries;
	if (server_start(&r->server, argv, why)) {
		free(r);
		return NULL;
	}
	if (info(r, "server", "redis_version", version, sizeof(version))) {
		redis_close(r);
		return bench_why(why, "Redis does not tell its version");
	}
	snprintf(what, sizeof(what), "Redis %s, unix socket", version);
	return r;
}

/* ---- keys in ---- */

static char *put_head(char *to, unsigned parts, const char *name)
{
	return to + sprintf(to, "*%u\r\n$4\r\n%s\r\n", parts, name);
}

static char *put_key(char *to, const struct bench_key *key)
{
	to = (char *)memcpy(put_text(to, "$16\r\n"), key, 16) + 16;
	return put_text(to, "\r\n");
}

static int send_mset(struct redis *r, const struct bench_key *keys, const int32_t *values,
		     uint32_t n)
{
	char *to = put_head(r->command, 1 + 2 * n, "MSET");

	for (uint32_t i = 0; i < n; i++) {
		to = put_key(to, &keys[i]);
		to = (char *)memcpy(put_text(to, "$4\r\n"), &values[i], 4) + 4;
		to = put_text(to, "\r\n");
	}
	return server_send(&r->server, r->command, (size_t)(to - r->command));
}

static int take_ok(struct redis *r)
{
	char *line = server_line(&r->server);

	return line && !strcmp(line, "+OK") ? 0 : -1;
}

static int limit_memory(struct redis *r)
{
	char used[24], command[64];

	if (info(r, "memory", "used_memory", used, sizeof(used)))
		return -1;
	snprintf(command, sizeof(command), "CONFIG SET maxmemory %llu\r\n",
		 strtoull(used, NULL, 10) + BUFFERS);
	r->limited = true;
	return server_send(&r->server, command, strlen(command)) ? -1 : take_ok(r);
}

static uint32_t groups_of(uint32_t n)
{
	return n / GROUP + !!(n % GROUP);
}

static uint32_t length_of(uint32_t n, uint32_t group)
{
	return n - group * GROUP < GROUP ? n - group * GROUP : GROUP;
}

static int redis_insert(void *table, const struct bench_key *keys, const int32_t *values,
			uint32_t n)
{
	struct redis *r = table;
	uint32_t sent = 0;

	if (!r->limited && r->inserted + n > r->entries && limit_memory(r))
		return -1;
	for (uint32_t taken = 0; taken < groups_of(n); taken++) {
		for (; sent < groups_of(n) && sent < taken + AHEAD; sent++)
			if (send_mset(r, keys + sent * GROUP, values + sent * GROUP,
				      length_of(n, sent)))
				return -1;
		if (take_ok(r))
			return -1;
	}
	r->inserted += n;
	return 0;
}

static uint64_t redis_evicted(void *table)
{
	char text[24];

	if (info(table, "stats", "evicted_keys", text, sizeof(text)))
		return 0;
	return strtoull(text, NULL, 10);
}

/* ---- keys found ---- */

static int send_mget(struct redis *r, const struct bench_key *keys, uint32_t n)
{
	char *to = put_head(r->command, 1 + n, "MGET");

	for (uint32_t i = 0; i < n; i++)
		to = put_key(to, &keys[i]);
	return server_send(&r->server, r->command, (size_t)(to - r->command));
}

/* "*64", then "$4" and the bytes, or "$-1", for each. */
static int take_mget(struct redis *r, uint32_t n, int32_t *values)
{
	char *line = server_line(&r->server), *bytes;

	if (!line || *line != '*' || strtoul(line + 1, NULL, 10) != n)
		return -1;
	for (uint32_t i = 0; i < n; i++) {
		line = server_line(&r->server);
		if (!line || *line != '$')
			return -1;
		values[i] = -1;
		if (line[1] == '-')
			continue;
		bytes = server_bytes(&r->server, 6);
		if (!bytes)
			return -1;
		memcpy(&values[i], bytes, 4);
	}
	return 0;
}

static int redis_lookup(void *table, const struct bench_key *keys, uint32_t n, int32_t *values)
{
	struct redis *r = table;
	uint32_t sent = 0;

	for (uint32_t taken = 0; taken < groups_of(n); taken++) {
		for (; sent < groups_of(n) && sent < taken + AHEAD; sent++)
			if (send_mget(r, keys + sent * GROUP, length_of(n, sent)))
				return -1;
		if (take_mget(r, length_of(n, taken), values + taken * GROUP))
			return -1;
	}
	return 0;
}

const struct bench_peer bench_peer_redis = {
	.name = "Redis",
	.what = what,
	.server = true,
	.open = redis_open,
	.insert = redis_insert,
	.lookup = redis_lookup,
	.evicted = redis_evicted,
	.close = redis_close,
};
