/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoints that --events and --metrics accept.
 *
 * Events hold the tokens that people wrote; metrics hold the names of caches and processes.  So an
 * endpoint that every network reaches must be asked for by an option of its own.
 * Tests: t/daemon/metrics-http.t t/daemon/options.t */
#include "config.h"

#include "tools/daemon/daemon.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

enum { MOST_TOPIC = 255 };

static int check_path(const char *option, const char *path)
{
	if (path[0] != '/')
		return cli_usage("--%s: ipc://%s: the path of a socket begins with /", option,
				 path);
	if (strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
		return cli_usage(
			"--%s: ipc://%s: the path is too long for a socket: %zu bytes at most",
			option, path, sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
	return -1;
}

static bool is_port(const char *text)
{
	char *end;
	unsigned long port = strtoul(text, &end, 10);

	return *text >= '0' && *text <= '9' && !*end && port && port <= 65535;
}

/* Addresses that stand for all addresses of the machine. */
static bool is_everywhere(const char *host, size_t n)
{
	static const char *const words[] = { "*", "0.0.0.0", "0", "[::]", "::", "[::0]", "[0::0]" };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (strlen(words[i]) == n && !strncmp(words[i], host, n))
			return true;
	return false;
}

static int check_host(const struct daemon *d, const char *option, const char *host)
{
	const char *port = strrchr(host, ':');

	if (!port || port == host || !is_port(port + 1))
		return cli_usage(
			"--%s: 'tcp://%s' is not tcp://HOST:PORT, with a port of 1 to 65535",
			option, host);
	if (is_everywhere(host, (size_t)(port - host)) && !d->events_public)
		return cli_usage(
			"--%s: tcp://%s is open to every network, and events have the tokens of "
			"prompts: name one address, as in tcp://127.0.0.1:5557, or add "
			"--events-public",
			option, host);
	return -1;
}

static int check_one(const struct daemon *d, const char *option, const char *text)
{
	if (strncmp(text, "ipc://", 6) == 0)
		return check_path(option, text + 6);
	if (strncmp(text, "tcp://", 6) == 0)
		return check_host(d, option, text + 6);
	return cli_usage("--%s: '%s' is not ipc:///PATH, nor tcp://HOST:PORT", option, text);
}

/* ---- metrics ---- */

void metrics_endpoint(const char *text, char *host, size_t host_room, char *port, size_t port_room)
{
	const char *colon = strrchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : 0;

	snprintf(port, port_room, "%s", colon ? colon + 1 : text);
	if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
		text++;
		n -= 2;
	}
	if (!colon)
		snprintf(host, host_room, METRICS_HOST);
	else
		snprintf(host, host_room, "%.*s", (int)n, text);
}

/* An address and not a name, so that no name has to be resolved.  An address with colons stands in
 * brackets.  All zeros, also as IPv4 in IPv6, stand for every address of the machine. */
static bool is_address(const char *text, size_t n, bool *ret_everywhere)
{
	static const uint8_t none[4];
	bool brackets = n > 2 && text[0] == '[' && text[n - 1] == ']';
	struct in6_addr at;
	char host[64];

	if (n >= sizeof(host))
		return false;
	snprintf(host, sizeof(host), "%.*s", (int)(brackets ? n - 2 : n),
		 brackets ? text + 1 : text);
	if (inet_pton(brackets ? AF_INET6 : AF_INET, host, &at) != 1)
		return false;
	*ret_everywhere = brackets ? IN6_IS_ADDR_UNSPECIFIED(&at) ||
					     (IN6_IS_ADDR_V4MAPPED(&at) &&
					      !memcmp(&at.s6_addr[12], none, sizeof(none)))
				   : !memcmp(&at, none, sizeof(none));
	return true;
}

static int check_metrics(const struct daemon *d)
{
	const char *colon = strrchr(d->metrics, ':'), *port = colon ? colon + 1 : d->metrics;
	bool everywhere = false;

	if ((strcmp(port, "0") && !is_port(port)) ||
	    (colon && !is_address(d->metrics, (size_t)(colon - d->metrics), &everywhere)))
		return cli_usage(
			"--metrics: '%s' is not [ADDR:]PORT: a port of 0 to 65535, and in front of it an "
			"address as in 127.0.0.1:9400 or [::1]:9400",
			d->metrics);
	if (everywhere && !d->metrics_public)
		return cli_usage(
			"--metrics: %s is open to every network: name one address, as in 127.0.0.1:9400, "
			"or add --metrics-public",
			d->metrics);
#ifndef HAVE_METRICS
	return cli_usage(
		"--metrics: this gpcd was built without libmicrohttpd, which answers scrapes");
#endif
	if (d->keep)
		return cli_usage(
			"--keep and --metrics exclude each other: the writer and its standbys answer "
			"scrapes");
	return -1;
}

static int check_events(const struct daemon *d);

int endpoint_check(const struct daemon *d)
{
	int status = d->metrics ? check_metrics(d) : -1;

	if (!d->metrics && d->metrics_public)
		return cli_usage("--metrics-public: --metrics is missing");
	return status < 0 ? check_events(d) : status;
}

static int check_events(const struct daemon *d)
{
	int status;

	if (!d->events && (d->events_replay || d->topic || d->events_public || d->events_memory))
		return cli_usage("--%s: --events is missing", d->events_replay   ? "events-replay"
							      : d->topic         ? "topic"
							      : d->events_public ? "events-public"
										 : "events-memory");
	if (!d->events)
		return -1;
#ifndef HAVE_EVENTS
	return cli_usage(
		"--events: this gpcd was built without libzmq and msgpack-c, which publish events");
#endif
	if (d->keep)
		return cli_usage(
			"--keep and --events exclude each other: the writer publishes events");
	if (d->topic && strlen(d->topic) > MOST_TOPIC)
		return cli_usage("--topic: more than %d bytes", MOST_TOPIC);
	status = check_one(d, "events", d->events);
	if (status < 0 && d->events_replay)
		status = check_one(d, "events-replay", d->events_replay);
	if (status < 0 && d->events_replay && !strcmp(d->events, d->events_replay))
		return cli_usage("--events and --events-replay want two endpoints: both are %s",
				 d->events);
	return status;
}
