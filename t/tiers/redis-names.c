/* SPDX-License-Identifier: Apache-2.0 */
/* Names of servers of Redis: those that nobody answers hold up neither a tick nor other servers;
 * one whose address has changed is found again, and so is one of which only the second address
 * serves.
 *
 * The names are this program's own: it stands before the resolver of the C library.
 * Tests: plugins/redis/names.c plugins/redis/node.c */
#include <netdb.h>
#include <dlfcn.h>

#include "t/lib/resp.h"

#define N     8u
#define BYTES 3000u
#define MS    2000u

static char plugin[512];
static struct resp one;
static struct images m;
static uint32_t first_address; /* of "moving.test": 127.0.0.1 or 127.0.0.x */
static uint32_t lookups;

/* ---- the resolver ---- */

#define OURS __attribute__((visibility("default")))

static struct addrinfo *address(uint32_t a, int port)
{
	struct addrinfo *info = calloc(1, sizeof(*info) + sizeof(struct sockaddr_in));
	struct sockaddr_in *in = (void *)(info + 1);

	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htonl(a);
	in->sin_port = htons((uint16_t)port);
	info->ai_family = AF_INET;
	info->ai_socktype = SOCK_STREAM;
	info->ai_addr = (void *)in;
	info->ai_addrlen = sizeof(*in);
	return info;
}

static bool is_ours(const char *host)
{
	return strstr(host, ".test") != NULL;
}

static int answer(const char *host, struct addrinfo **ret)
{
	__atomic_fetch_add(&lookups, 1, __ATOMIC_SEQ_CST);
	if (!strcmp(host, "nobody.test"))
		return EAI_NONAME;
	*ret = address(strcmp(host, "moving.test") ? INADDR_LOOPBACK + 8 : first_address, 0);
	if (!strcmp(host, "second.test"))
		(*ret)->ai_next = address(INADDR_LOOPBACK, 0);
	return 0;
}

OURS int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
		     struct addrinfo **ret)
{
	static __typeof__(getaddrinfo) *real;

	if (!real)
		real = (__typeof__(real))dlsym(RTLD_NEXT, "getaddrinfo");
	if (!host || !is_ours(host))
		return real(host, service, hints, ret);
	if (!strcmp(host, "hangs.test"))
		sleep(8);
	return answer(host, ret);
}

OURS void freeaddrinfo(struct addrinfo *info)
{
	struct addrinfo *next;

	for (; info; info = next) {
		next = info->ai_next;
		free(info);
	}
}

OURS int getaddrinfo_a(int mode, struct gaicb **list, int n, struct sigevent *sig)
{
	(void)mode, (void)n, (void)sig;
	list[0]->ar_result = NULL;
	list[0]->__return = !strcmp(list[0]->ar_name, "hangs.test")
				    ? EAI_INPROGRESS
				    : answer(list[0]->ar_name, &list[0]->ar_result);
	return 0;
}

OURS int gai_error(struct gaicb *one_of)
{
	return one_of->__return;
}

OURS int gai_suspend(const struct gaicb *const *list, int n, const struct timespec *t)
{
	(void)list, (void)n;
	usleep((useconds_t)(t->tv_sec * 1000000 + t->tv_nsec / 1000));
	return EAI_AGAIN;
}

OURS int gai_cancel(struct gaicb *one_of)
{
	one_of->__return = EAI_CANCELED;
	return EAI_CANCELED;
}

/* ---- */

static struct remote *start(const char *name, int port, const char *more)
{
	char spec[800];

	snprintf(spec, sizeof(spec), "%s:server=%s:%d%s", plugin, name, port, more);
	return remote_start(spec, NULL, BYTES, MS);
}

static uint32_t get(struct remote *r)
{
	images_want(&m, 0);
	return remote_get(r, 0, m.b, N, 0);
}

static void fill(void)
{
	struct remote *r = start("127.0.0.1", one.port, "");

	images_put(&m, 0);
	if (remote_put(r, 0, m.b, N, 0) != N)
		bail("the server takes nothing");
	remote_close(r);
}

static void hangs(void)
{
	uint64_t began = clock_ns();
	struct remote_state st;
	struct remote *r;
	char more[64];

	snprintf(more, sizeof(more), "+127.0.0.1:%d", one.port);
	r = start("hangs.test", one.port, more);
	ok(remote_until(r, REMOTE_UP),
	   "a name that nobody answers, and a server beside it: the store is up");
	is_int(get(r), N, "and gives what it has");
	if (!ok(is_soon(began, 3 * MS), "soon"))
		diag("%u ms", (unsigned)((clock_ns() - began) / NS_PER_MS));
	remote_close(r);
	r = start("hangs.test", one.port, "");
	remote_state(r, &st);
	ok(st.state == REMOTE_DOWN && strstr(st.why, "hangs.test"), "alone it is down: %s", st.why);
	began = clock_ns();
	ok(remote_close(r), "and closed");
	ok(is_soon(began, MS), "at once");
}

static void moves(void)
{
	struct remote *r;

	first_address = INADDR_LOOPBACK + 8;
	r = start("moving.test", one.port, "");
	is_int(remote_status(r), REMOTE_DOWN, "a name with an address where nobody is");
	first_address = INADDR_LOOPBACK;
	ok(remote_until(r, REMOTE_UP), "it has another address now, and is found");
	is_int(get(r), N, "with what it has");
	remote_close(r);
}

static void second(void)
{
	struct remote *r = start("second.test", one.port, "");

	ok(remote_until(r, REMOTE_UP), "a name of two addresses, of which the second one serves");
	is_int(get(r), N, "and gives what it has");
	remote_close(r);
}

static void nobody(void)
{
	struct remote *r = start("nobody.test", one.port, "");
	struct remote_state st;

	remote_state(r, &st);
	ok(st.state == REMOTE_DOWN && strstr(st.why, "nobody.test: "), "a name that is none: %s",
	   st.why);
	ok(lookups > 0, "the resolver is this program's own: %u questions", lookups);
	remote_close(r);
}

static int body(void)
{
	if (!remote_plugin("redis", plugin, sizeof(plugin)))
		plan_skip_all("this build has no plugin for Redis");
	images_make(&m, N, BYTES);
	resp_start(&one, false);
	fill();
	nobody();
	moves();
	second();
	hangs();
	return done_testing();
}

int main(void)
{
	remote_dir_make();
	return tap_guard(100, body, remote_dir_remove);
}
