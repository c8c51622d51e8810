/* SPDX-License-Identifier: Apache-2.0 */
/* names.c - names of servers become addresses, in threads of the C library's own.
 *
 * A resolver that does not answer takes half a minute, and cannot be stopped.  So tick asks, waits
 * for a moment, and looks again the next time; calls go on with the nodes that have an address.
 * Those threads run no code of this plugin, so it may be unloaded while one of them is under
 * way.
 * Tests: t/tiers/redis-names.t */
#include "plugins/redis/redis.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct name { /* is being looked up */
	struct gaicb ask;
	struct addrinfo hints;
	char host[256];
};

static struct name *begin(const char *host)
{
	struct name *m = calloc(1, sizeof(*m));
	struct gaicb *list[1];

	if (!m)
		return NULL;
	snprintf(m->host, sizeof(m->host), "%s", host);
	m->hints.ai_socktype = SOCK_STREAM;
	m->ask.ar_name = m->host;
	m->ask.ar_request = &m->hints;
	list[0] = &m->ask;
	if (getaddrinfo_a(GAI_NOWAIT, list, 1, NULL) == 0)
		return m;
	free(m);
	return NULL;
}

static void end(struct name **at)
{
	if ((*at)->ask.ar_result)
		freeaddrinfo((*at)->ask.ar_result);
	free(*at);
	*at = NULL;
}

/* 0, or EAI_INPROGRESS, or what is wrong. */
static int wait_for(struct name *m, uint64_t ns)
{
	const struct gaicb *list[1] = { &m->ask };
	const struct timespec t = { .tv_sec = (time_t)(ns / 1000000000),
				    .tv_nsec = (long)(ns % 1000000000) };

	if (gai_error(&m->ask) == EAI_INPROGRESS)
		gai_suspend(list, 1, &t);
	return gai_error(&m->ask);
}

/* Of several ones another one each time: not each need serve. */
static int take_address(const struct addrinfo *all, struct node *n)
{
	const struct addrinfo *a;
	uint32_t count = 0, k;

	for (a = all; a; a = a->ai_next)
		count++;
	if (!count)
		return EAI_NONAME;
	for (a = all, k = n->turn++ % count; k; k--)
		a = a->ai_next;
	return getnameinfo(a->ai_addr, a->ai_addrlen, n->address, sizeof(n->address), NULL, 0,
			   NI_NUMERICHOST);
}

bool name_look_up(struct name **at, struct node *n, uint64_t ns, char *why, size_t room)
{
	int err;

	if (*at && strcmp((*at)->host, n->host) != 0 && wait_for(*at, 0) != EAI_INPROGRESS)
		end(at); /* of a node that was here before */
	if (!*at)
		*at = begin(n->host);
	if (!*at) {
		snprintf(why, room, "no memory to look up %.100s", n->host);
		return false;
	}
	err = wait_for(*at, ns);
	if (err == EAI_INPROGRESS || strcmp((*at)->host, n->host) != 0) {
		snprintf(why, room, "%.100s: whoever knows names has not answered yet",
			 (*at)->host);
		return false;
	}
	if (!err)
		err = take_address((*at)->ask.ar_result, n);
	end(at);
	if (err)
		snprintf(why, room, "%.100s: %s", n->host, gai_strerror(err));
	return !err;
}

/* One that is under way writes its result when it comes: its memory stays. */
void name_end(struct name **at)
{
	if (*at && (gai_error(&(*at)->ask) != EAI_INPROGRESS ||
		    gai_cancel(&(*at)->ask) != EAI_NOTCANCELED))
		end(at);
}
