/* SPDX-License-Identifier: Apache-2.0 */
/* node.c - nodes, and which one has a key.
 * Tests: t/tiers/redis-nodes.t t/cluster/redis.t t/tiers/redis-names.t */
#include "plugins/redis/redis.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#define PAUSE_LEAST_NS UINT64_C(100000000)
#define PAUSE_MOST_NS  UINT64_C(30000000000)
#define TRUST_NS       (2 * PAUSE_MOST_NS) /* UP for so long, and no batch has come to nothing */
#define SLOW_MOST      3u

uint64_t now_ns(void)
{
	struct timespec t = { 0 };

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void count(struct redis *r, int which)
{
	__atomic_fetch_add(&r->count[which], 1, __ATOMIC_RELAXED);
}

/* CRC-16/XMODEM of the whole key, as the cluster specification says.  Our keys have no braces, so
 * none of them names a part of itself to be hashed instead. */
uint32_t key_slot(const char *key, uint32_t bytes)
{
	uint32_t crc = 0, i;
	int bit;

	for (i = 0; i < bytes; i++) {
		crc ^= (uint32_t)(uint8_t)key[i] << 8;
		for (bit = 0; bit < 8; bit++)
			crc = crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1;
	}
	return crc & (SLOTS - 1);
}

static bool take_port(const char *s, size_t n, int *port)
{
	size_t i;
	int v = 0;

	for (i = 0; i < n && v <= 65535; i++) {
		if (!isdigit((unsigned char)s[i]))
			return false;
		v = 10 * v + (s[i] - '0');
	}
	*port = v;
	return n && v >= 1 && v <= 65535;
}

static bool copy(char *to, size_t room, const char *from, size_t n)
{
	if (!n || n >= room)
		return false;
	memcpy(to, from, n);
	to[n] = 0;
	return true;
}

/* A URL is none, nor are two with a comma between. */
static bool copy_host(char *to, size_t room, const char *from, size_t n)
{
	return copy(to, room, from, n) && !to[strcspn(to, " \t,/=@?#\"'\\")];
}

bool node_parse(const char *s, size_t n, char *host, size_t room, int *port)
{
	const char *end, *colon;
	bool path = n > 5 && memcmp(s, "unix:", 5) == 0;

	if (path)
		s += 5, n -= 5;
	if (path && s[0] != '/')
		return false;
	if (n && s[0] == '/') {
		*port = 0;
		return copy(host, room, s, n);
	}
	*port = 6379;
	if (n && s[0] == '[') {
		end = memchr(s, ']', n);
		if (!end || !copy_host(host, room, s + 1, (size_t)(end - s - 1)))
			return false;
		n -= (size_t)(end + 1 - s);
		return !n || (end[1] == ':' && take_port(end + 2, n - 1, port));
	}
	colon = memrchr(s, ':', n);
	if (!colon || memchr(s, ':', (size_t)(colon - s))) /* none, or an IPv6 address */
		return copy_host(host, room, s, n);
	return copy_host(host, room, s, (size_t)(colon - s)) &&
	       take_port(colon + 1, n - (size_t)(colon + 1 - s), port);
}

/* ---- nodes ---- */

static bool is_free(const struct node *n)
{
	return !n->seed && !n->in_map && !n->up;
}

static bool is_numeric(const char *host)
{
	unsigned char b[16];

	return inet_pton(AF_INET, host, b) == 1 || inet_pton(AF_INET6, host, b) == 1;
}

/* Of those that do not answer the one that has not for longest.  Slots that it has are asked for at
 * another node, which sends us on. */
static uint32_t give_place(const struct redis *r)
{
	uint32_t i, at = NO_NODE;

	for (i = 0; i < r->nnodes; i++)
		if (!r->node[i].seed && !r->node[i].up &&
		    (at == NO_NODE || r->node[i].next_ns < r->node[at].next_ns))
			at = i;
	return at;
}

uint16_t node_number(struct redis *r, const char *host, int port)
{
	struct node *n;
	uint32_t i, at = NO_NODE;

	for (i = 0; i < r->nnodes; i++) {
		if (r->node[i].port == port && strcmp(r->node[i].host, host) == 0)
			return (uint16_t)i;
		if (at == NO_NODE && is_free(&r->node[i]))
			at = i;
	}
	if (at == NO_NODE && r->nnodes < NODES)
		at = r->nnodes++;
	if (at == NO_NODE)
		at = give_place(r);
	if (at == NO_NODE)
		return NO_NODE;
	n = &r->node[at];
	snprintf(n->host, sizeof(n->host), "%s", host);
	n->address[0] = 0;
	n->numeric = is_numeric(host);
	n->renew = false;
	n->turn = 0;
	if (n->numeric)
		snprintf(n->address, sizeof(n->address), "%.63s", host);
	n->port = port;
	n->life++;
	n->up = n->seed = n->in_map = n->told = n->told_refused = false;
	n->doubt = n->slow = 0;
	n->pause_ns = n->next_ns = n->trial_ns = 0;
	n->right = false;
	n->looked = 0;
	snprintf(n->why, sizeof(n->why), "not connected yet");
	return (uint16_t)at;
}

static uint16_t any_up(const struct redis *r)
{
	uint32_t i;

	for (i = 0; i < r->nnodes; i++)
		if (r->node[i].up)
			return (uint16_t)i;
	return NO_NODE;
}

uint16_t node_of_key(struct redis *r, const char *key, uint32_t bytes)
{
	uint16_t n;

	pthread_mutex_lock(&r->lock);
	if (!r->cluster)
		n = any_up(r);
	else
		n = r->slot[key_slot(key, bytes)];
	if (n == NO_NODE) /* a slot that nobody has named: whoever is asked knows where it is */
		n = any_up(r);
	if (n != NO_NODE && !r->node[n].up)
		n = NO_NODE;
	pthread_mutex_unlock(&r->lock);
	return n;
}

uint16_t node_redirected(struct redis *r, uint16_t asked, const struct answer *a)
{
	uint16_t n;

	count(r, a->where == MOVED ? REDIRECTED : ASKED);
	pthread_mutex_lock(&r->lock);
	/* a node that does not know its own address means itself */
	n = node_number(r,
			a->host[0]            ? a->host
			: r->node[asked].port ? r->node[asked].host
					      : "127.0.0.1",
			a->port);
	if (n != NO_NODE) {
		r->node[n].in_map = true;
		/* A new one is tried at once.  Names are looked up by tick, as that can take its
		 * time. */
		if (r->node[n].address[0] && !r->node[n].pause_ns)
			r->node[n].up = true;
	}
	if (a->where == MOVED) {
		r->cluster = r->kind_known = r->stale = true;
		if (n != NO_NODE && a->slot >= 0 && a->slot < SLOTS)
			r->slot[a->slot] = n;
	}
	if (n != NO_NODE && !r->node[n].up)
		n = NO_NODE;
	pthread_mutex_unlock(&r->lock);
	return n;
}

static void say(struct redis *r, int level, const struct node *n, const char *what, const char *why)
{
	char text[600];

	if (!r->setup.log)
		return;
	if (n->port)
		snprintf(text, sizeof(text), "node %s:%d %s%s", n->host, n->port, what, why);
	else
		snprintf(text, sizeof(text), "%s %s%s", n->host, what, why);
	r->setup.log(r->setup.log_arg, level, text);
}

/* An outage is told once, with its first reason; and once more if the server is there and refuses
 * us, since that lasts until somebody does something.  The lock is held. */
static bool is_news(struct node *n, const char *why)
{
	struct answer a;
	bool refuses, news;

	reply_of_error(why, strlen(why), &a);
	refuses = a.result == -EACCES;
	news = !n->told || (refuses && !n->told_refused);
	n->told = true;
	n->told_refused |= refuses;
	return news;
}

static void fall(struct redis *r, uint16_t node, const char *why, uint32_t doubt)
{
	struct node *n = &r->node[node], copy_of;
	uint64_t now = now_ns();
	bool first, news;

	pthread_mutex_lock(&r->lock);
	first = !n->told;
	news = is_news(n, why);
	if (n->up || !doubt) { /* of many lanes with one outage the first one counts */
		n->pause_ns = !n->pause_ns || (n->up && !n->doubt) ? PAUSE_LEAST_NS
			      : 2 * n->pause_ns < PAUSE_MOST_NS    ? 2 * n->pause_ns
								   : PAUSE_MOST_NS;
		/* not all lanes of all nodes at the same moment */
		n->next_ns = now + n->pause_ns - n->pause_ns / 4 + now % (n->pause_ns / 2);
	}
	n->doubt |= doubt;
	n->slow = 0;
	n->up = false;
	n->renew = !n->numeric; /* it may have moved */
	snprintf(n->why, sizeof(n->why), "%s", why);
	r->stale = true;
	copy_of = *n;
	pthread_mutex_unlock(&r->lock);
	if (first)
		count(r, NODE_DOWN);
	if (news)
		say(r, LOG_WARNING, &copy_of, "is down: ", why);
}

void node_down(struct redis *r, uint16_t node, const char *why)
{
	fall(r, node, why, 0);
}

/* It may answer PING all the same, and other batches.  Then it is tried again, later each time,
 * until it has answered one of this kind. */
void node_mute(struct redis *r, uint16_t node, enum kind kind, const char *why)
{
	fall(r, node, why, 1u << kind);
}

void node_slow(struct redis *r, uint16_t node, enum kind kind)
{
	bool mute;

	pthread_mutex_lock(&r->lock);
	mute = ++r->node[node].slow >= SLOW_MOST;
	pthread_mutex_unlock(&r->lock);
	if (mute)
		node_mute(r, node, kind, "no answer within the deadline");
}

/* Without a doubt it is UP, and that is told if the outage was.  The lock is held. */
static bool recovers(struct node *n)
{
	bool news = n->up && n->told && !n->doubt;

	if (n->up && !n->doubt) {
		n->pause_ns = 0;
		n->told = n->told_refused = false;
	}
	return news;
}

void node_proved(struct redis *r, uint16_t node, enum kind kind)
{
	struct node *n = &r->node[node], copy_of;
	bool news;

	pthread_mutex_lock(&r->lock);
	n->doubt &= ~(1u << kind);
	n->slow = 0;
	news = recovers(n);
	copy_of = *n;
	pthread_mutex_unlock(&r->lock);
	if (news)
		say(r, LOG_NOTICE, &copy_of, "answers again", "");
}

void node_up(struct redis *r, uint16_t node)
{
	struct node *n = &r->node[node], copy_of;
	uint64_t now = now_ns();
	bool news;

	pthread_mutex_lock(&r->lock);
	if (!n->up)
		n->up_ns = now;
	else if (now - n->up_ns > TRUST_NS)
		n->doubt = 0;
	n->up = true;
	news = recovers(n);
	copy_of = *n;
	pthread_mutex_unlock(&r->lock);
	if (news)
		say(r, LOG_NOTICE, &copy_of, "answers again", "");
}
