/* SPDX-License-Identifier: Apache-2.0 */
/* memcached over a unix socket.
 *
 * It has one worker thread, as there is one client, no CAS numbers, a hash table of the final
 * size, and a slab class that fits the items.  It is asked by the text protocol: a get names 64
 * keys, and eight gets are under way at a time; only the last one of the sets asks for an answer.
 * Keys are 22 printable characters, values are four bytes.
 *
 * Its memory can be limited only in MiB, so it may take all memory that it needs for the entries.
 * The first set beyond them fixes the limit, and from then on the least recently used items go.
 * Tests: t/tools/bench-peers.t */
#include "config.h"

#include "tools/bench/peer/peer.h"
#include "tools/bench/peer/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	KEY = 22,   /* characters: 6 bits each */
	GROUP = 64, /* keys in a get */
	AHEAD = 8,  /* gets under way; their answers fit the socket */
	SET = 4 + KEY + sizeof(" 0 0 4 noreply\r\n") - 1 + 4 + 2,
};

struct memcached {
	struct server server;
	uint32_t entries;
	uint64_t inserted;
	bool limited;
	char get[AHEAD][4 + GROUP * (KEY + 1) + 2];
	char set[GROUP * SET];
};

static char what[80] = "memcached, unix socket";

/* ---- start ---- */

static void memcached_close(void *table)
{
	struct memcached *m = table;

	server_stop(&m->server);
	free(m);
}

static const char *number(char *text, size_t room, unsigned long long n)
{
	snprintf(text, room, "%llu", n);
	return text;
}

static int start(struct memcached *m, const char **why)
{
	char mib[24], power[40];
	unsigned log = 12;
	const char *argv[] = { "memcached",
			       "-s",
			       "@socket",
			       "-a",
			       "0600",
			       "-t",
			       "1",
			       "-c",
			       "16",
			       "-C",
			       "-n",
			       "32",
			       "-f",
			       "1.05",
			       "-m",
			       mib,
			       "-o",
			       power,
			       geteuid() ? NULL : "-u",
			       "root",
			       NULL };

	while (log < 32 && 1ull << log < m->entries)
		log++;
	snprintf(power, sizeof(power), "hashpower=%u", log);
	number(mib, sizeof(mib), ((unsigned long long)m->entries * 128 >> 20) + 64);
	return server_start(&m->server, argv, why);
}

static void *memcached_open(uint32_t entries, const char **why)
{
	struct memcached *m = calloc(1, sizeof(*m));
	char *line;

	if (!m)
		return bench_why(why, "no memory");
	m->entries = entries;
	if (start(m, why)) {
		free(m);
		return NULL;
	}
	line = server_send(&m->server, "version\r\n", 9) ? NULL : server_line(&m->server);
	if (!line || strncmp(line, "VERSION ", 8)) {
		memcached_close(m);
		return bench_why(why, "memcached does not tell its version");
	}
	snprintf(what, sizeof(what), "memcached %.24s, unix socket", line + 8);
	return m;
}

/* ---- keys ---- */

/* A key may have any characters except for blanks and control characters. */
static char *put_key(char *to, const struct bench_key *key)
{
	for (int word = 0; word < 2; word++) {
		uint64_t w = key->w[word];

		for (int i = 0; i < KEY / 2; i++, w >>= 6)
			*to++ = (char)('0' + (w & 63));
	}
	return to;
}

static char *put_text(char *to, const char *text)
{
	size_t n = strlen(text);

	return (char *)memcpy(to, text, n) + n;
}

/* ---- set ---- */

/* The number in "STAT name number" of an answer that ends with END. */
static int stat_of(struct memcached *m, const char *command, const char *name, uint64_t *ret)
{
	size_t length = strlen(name);
	int r = -1;
	char *line;

	if (server_send(&m->server, command, strlen(command)))
		return -1;
	while ((line = server_line(&m->server)) && strcmp(line, "END"))
		if (!strncmp(line, "STAT ", 5) && !strncmp(line + 5, name, length) &&
		    line[5 + length] == ' ') {
			*ret = strtoull(line + 5 + length, NULL, 10);
			r = 0;
		}
	return line ? r : -1;
}

/* The memory that it has is the limit from now on; 8 MiB is the least that it takes. */
static int limit_memory(struct memcached *m)
{
	char command[64], *line;
	uint64_t bytes, mib;

	if (stat_of(m, "stats slabs\r\n", "total_malloced", &bytes))
		return -1;
	mib = (bytes + (1 << 20) - 1) >> 20;
	snprintf(command, sizeof(command), "cache_memlimit %llu\r\n",
		 (unsigned long long)(mib < 8 ? 8 : mib));
	if (server_send(&m->server, command, strlen(command)))
		return -1;
	line = server_line(&m->server);
	m->limited = true;
	return line && !strcmp(line, "OK") ? 0 : -1;
}

static int send_sets(struct memcached *m, const struct bench_key *keys, const int32_t *values,
		     uint32_t n)
{
	char *to = m->set;

	for (uint32_t i = 0; i < n; i++) {
		to = put_key(put_text(to, "set "), &keys[i]);
		to = put_text(to, " 0 0 4 noreply\r\n");
		to = put_text((char *)memcpy(to, &values[i], 4) + 4, "\r\n");
	}
	return server_send(&m->server, m->set, (size_t)(to - m->set));
}

/* The answer to mn comes after those of all sets before, which answer only if they fail. */
static int memcached_insert(void *table, const struct bench_key *keys, const int32_t *values,
			    uint32_t n)
{
	struct memcached *m = table;
	char *line;

	if (!m->limited && m->inserted + n > m->entries && limit_memory(m))
		return -1;
	for (uint32_t i = 0; i < n; i += GROUP)
		if (send_sets(m, keys + i, values + i, n - i < GROUP ? n - i : GROUP))
			return -1;
	m->inserted += n;
	if (server_send(&m->server, "mn\r\n", 4))
		return -1;
	line = server_line(&m->server);
	return line && !strcmp(line, "MN") ? 0 : -1;
}

static uint64_t memcached_evicted(void *table)
{
	uint64_t n = 0;

	stat_of(table, "stats\r\n", "evictions", &n);
	return n;
}

/* ---- get ---- */

static uint32_t length_of(uint32_t n, uint32_t group)
{
	return n - group * GROUP < GROUP ? n - group * GROUP : GROUP;
}

static int send_get(struct memcached *m, const struct bench_key *keys, uint32_t n, uint32_t group)
{
	char *get = m->get[group % AHEAD], *to = put_text(get, "get");

	for (uint32_t i = 0; i < length_of(n, group); i++) {
		*to++ = ' ';
		to = put_key(to, &keys[group * GROUP + i]);
	}
	to = put_text(to, "\r\n");
	return server_send(&m->server, get, (size_t)(to - get));
}

/* Hits come in the order of the request: VALUE, the key, flags and length; then the bytes.  Keys
 * in between are not there. */
static int take_get(struct memcached *m, uint32_t n, uint32_t group, int32_t *values)
{
	const char *key = m->get[group % AHEAD] + 4;
	uint32_t count = length_of(n, group), i = 0;
	char *line, *bytes;

	values += group * GROUP;
	while ((line = server_line(&m->server)) && strcmp(line, "END")) {
		if (strncmp(line, "VALUE ", 6))
			return -1;
		while (i < count && memcmp(line + 6, key + i * (KEY + 1), KEY))
			values[i++] = -1;
		bytes = server_bytes(&m->server, 6);
		if (i == count || !bytes)
			return -1;
		memcpy(&values[i++], bytes, 4);
	}
	while (i < count)
		values[i++] = -1;
	return line ? 0 : -1;
}

static int memcached_lookup(void *table, const struct bench_key *keys, uint32_t n, int32_t *values)
{
	uint32_t groups = n / GROUP + !!(n % GROUP), sent = 0;
	struct memcached *m = table;

	for (uint32_t taken = 0; taken < groups; taken++) {
		for (; sent < groups && sent < taken + AHEAD; sent++)
			if (send_get(m, keys, n, sent))
				return -1;
		if (take_get(m, n, taken, values))
			return -1;
	}
	return 0;
}

const struct bench_peer bench_peer_memcached = {
	.name = "memcached",
	.what = what,
	.server = true,
	.open = memcached_open,
	.insert = memcached_insert,
	.lookup = memcached_lookup,
	.evicted = memcached_evicted,
	.close = memcached_close,
};
