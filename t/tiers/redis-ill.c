/* SPDX-License-Identifier: Apache-2.0 */
/* A Redis that is ill, or a cluster whose answers lead astray: each call ends by its deadline, what
 * one key or one node has is no other's trouble, no wrong byte comes, and nothing that is right is
 * removed or switched off.
 * Tests: plugins/redis/batch.c plugins/redis/conn.c plugins/redis/reply.c */
#include "t/lib/resp.h"

#define N     8u
#define BYTES 3000u
#define MS    3000u
#define LATE  300u /* of a call that comes to nothing */

static char plugin[512];
static struct resp one, six;
static struct images m;

static struct remote *start(const struct resp *s, uint32_t ms)
{
	char spec[700];

	snprintf(spec, sizeof(spec), "%s:server=127.0.0.1:%d", plugin, s->port);
	return remote_start(spec, NULL, BYTES, ms);
}

/* All images are there. */
static void fill(void)
{
	struct remote *r;

	resp_hook(&one, NULL);
	r = start(&one, MS);
	images_put(&m, 0);
	if (remote_put(r, 0, m.b, N, 0) != N)
		bail("the server takes nothing");
	remote_close(r);
}

static uint32_t get_within(struct remote *r, uint32_t ms)
{
	images_want(&m, 0);
	return remote_get(r, 0, m.b, N, clock_ns() + ms * NS_PER_MS);
}

static uint32_t get(struct remote *r)
{
	return get_within(r, MS);
}

/* The last digit of a key that our images have: its number. */
static uint32_t number_of(const char *key)
{
	return (uint32_t)strtoul(key + strlen(key) - 2, NULL, 16) - 1;
}

/* ---- bytes that come one by one ---- */

static bool in_bytes(struct resp *s, int fd, int argc, char **argv, const size_t *len)
{
	char text[64];
	size_t i;

	(void)s;
	if (strcmp(argv[0], "EXISTS"))
		return false;
	(void)argc, (void)len;
	snprintf(text, sizeof(text), ":1\r\n");
	for (i = 0; i < strlen(text); i++) {
		resp_send(fd, text + i, 1);
		usleep(200);
	}
	return true;
}

/* One byte every 20 ms, for ever: the deadline is that of the whole call. */
static bool too_slowly(struct resp *s, int fd, int argc, char **argv, const size_t *len)
{
	int i;

	(void)s, (void)argc, (void)len;
	if (strcmp(argv[0], "GET"))
		return false;
	resp_say(fd, "$3128\r\n");
	for (i = 0; i < 1000 && send(fd, "x", 1, MSG_NOSIGNAL) > 0; i++)
		usleep(20000);
	return true;
}

static void slow(void)
{
	gpc_key keys[N];
	struct remote *r = start(&one, MS);
	uint64_t began;
	uint32_t i;

	for (i = 0; i < N; i++)
		keys[i] = remote_key(i);
	resp_hook(&one, in_bytes);
	is_int(remote_exists(r, 0, keys, N, NULL, 0), N,
	       "answers that come byte by byte are answers");
	resp_hook(&one, too_slowly);
	began = clock_ns();
	is_int(get_within(r, LATE), 0, "a value that never ends is none");
	ok(is_soon(began, 3 * MS), "and costs the deadline of the call, not of a byte");
	resp_hook(&one, NULL);
	remote_until(r, REMOTE_UP);
	is_int(get(r), N, "then all are there");
	is_int(images_wrong(&m), 0, "with their bytes");
	remote_close(r);
}

/* ---- answers that nobody has asked for ---- */

static uint32_t stray_of;

static bool stray(struct resp *s, int fd, int argc, char **argv, const size_t *len)
{
	resp_plain(fd, argc, argv, len);
	(void)s;
	if (strcmp(argv[0], "GET") || number_of(argv[1]) != N - 1 ||
	    !__atomic_exchange_n(&stray_of, 0, __ATOMIC_SEQ_CST))
		return true;
	usleep(30000);
	resp_get(fd, argv[1]);
	return true;
}

static void strays(void)
{
	struct remote *r = start(&one, MS);
	struct remote_state st;
	gpc_key keys[N];
	uint32_t i;

	resp_hook(&one, stray);
	stray_of = 1;
	is_int(get(r), N, "all come, and then an answer to nothing");
	usleep(60000);
	is_int(get(r), N, "it is no answer to the next call: all come");
	is_int(images_wrong(&m), 0, "with their bytes");
	remote_state(r, &st);
	is_int(st.wrong, 0, "nothing is taken for damaged");
	resp_hook(&one, NULL);
	for (i = 0; i < N; i++)
		keys[i] = remote_key(i);
	is_int(remote_exists(r, 0, keys, N, NULL, 0), N, "and nothing is removed");
	remote_close(r);
}

/* ---- one bad value among good ones ---- */

static void longer(void)
{
	struct remote *r = start(&one, MS);
	char *much = calloc(1, 4 << 20);
	struct resp_value *v;
	char *key = NULL;
	uint32_t i;

	for (i = 0; i < 256; i++)
		if (resp_value[i].at && number_of(resp_value[i].key) == 2)
			key = strdup(resp_value[i].key);
	if (!key)
		bail("no key of block 2");
	resp_put(key, much, 4 << 20);
	is_int(get(r), N - 1, "a value of 4 MiB among others: the others come");
	is_int(m.b[2].result, -EBADMSG, "it is one of another length");
	is_int(images_wrong(&m), 0, "no wrong byte comes");
	pthread_mutex_lock(&resp_lock);
	v = resp_find(key);
	pthread_mutex_unlock(&resp_lock);
	ok(!v, "and it is removed");
	remote_close(r);
	free(much);
	fill();
}

/* ---- a cluster ---- */

static char moved[200];

static bool moves(struct resp *s, int fd, int argc, char **argv, const size_t *len)
{
	(void)s, (void)argc, (void)len;
	if (strcmp(argv[0], "GET"))
		return false;
	resp_say_text(fd, moved);
	return true;
}

static void cluster(void)
{
	struct remote *r = start(&one, MS);

	resp_hook(&one, moves);
	if (!resp_start(&six, true)) {
		ok(true, "# SKIP there is no ::1");
	} else {
		resp_text(moved, sizeof(moved), "-MOVED 7 ::1:%d\r\n", six.port);
		is_int(get(r), N, "MOVED to an address with colons, as Redis writes it");
		resp_no_text(moved);
		resp_text(moved, sizeof(moved), "-ASK 7 [::1]:%d\r\n", six.port);
		is_int(get(r), N, "ASK with brackets");
	}
	remote_close(r);
}

static char map[65536];

static bool maps(struct resp *s, int fd, int argc, char **argv, const size_t *len)
{
	(void)s, (void)argc, (void)len;
	if (strcmp(argv[0], "CLUSTER"))
		return false;
	resp_say_text(fd, map);
	return true;
}

static void map_is(const char *text)
{
	resp_no_text(map);
	resp_text(map, sizeof(map), "%s", text);
}

/* "*3 first last *2 host port": host is a whole reply. */
static void range(const char *first, const char *last, const char *host, int port)
{
	resp_text(map, sizeof(map), "*3\r\n%s\r\n%s\r\n*2\r\n%s\r\n:%d\r\n", first, last, host,
		  port);
}

#define ALL  ":0", ":16383"
#define HERE "$9\r\n127.0.0.1"

static void map_gives(uint32_t n, const char *what)
{
	struct remote *r;
	uint64_t began;
	uint32_t i;

	resp_hook(&one, maps);
	r = start(&one, MS);
	for (i = 0; i < 3; i++)
		remote_tick(r);
	began = clock_ns();
	is_int(get(r), n, "%s: %u of %u images", what, n, N);
	if (!ok(is_soon(began, 3 * MS), "in time"))
		diag("%u ms", (unsigned)((clock_ns() - began) / NS_PER_MS));
	is_int(images_wrong(&m), 0, "no wrong byte");
	remote_close(r);
}

static void bad_maps(void)
{
	uint32_t i;

	map_is("*0\r\n");
	map_gives(N, "a map of nothing");
	map_is("*1\r\n");
	range(ALL, "$0\r\n", one.port);
	map_gives(N, "a node without a name is the one that was asked");
	map_is("*1\r\n");
	range(ALL, "$-1", one.port);
	map_gives(N, "so is one whose name is nil");
	map_is("*1\r\n");
	range(":5", ":9", HERE, one.port);
	map_gives(N, "a map with holes");
	map_is("*4\r\n");
	range(":9", ":5", HERE, one.port);
	range(":-9", ":99999", HERE, one.port);
	range("$1\r\n0", "*0", "*1\r\n*1\r\n:1", 0);
	range(ALL, HERE, one.port);
	map_gives(N, "ranges that are none");
	map_is("*301\r\n");
	for (i = 0; i < 300; i++)
		range(ALL, HERE, (int)(1 + i));
	range(ALL, HERE, one.port);
	map_gives(N, "three hundred nodes that are none, and one that has all");
	map_is("*300\r\n");
	for (i = 0; i < 300; i++)
		range(ALL, HERE, (int)(1 + i));
	map_gives(0, "three hundred nodes that are none");
	if (six.port) {
		map_is("*1\r\n");
		range(ALL, "$3\r\n::1", six.port);
		map_gives(N, "a node with an address of colons");
	}
	resp_hook(&one, NULL);
}

/* ---- a server that answers PING ---- */

static char pong[200];
static bool held = true;

static bool pings(struct resp *s, int fd, int argc, char **argv, const size_t *len)
{
	(void)s, (void)argc, (void)len;
	if (!strcmp(argv[0], "PING"))
		return resp_say_text(fd, pong) || resp_hold(fd, &held);
	return !strcmp(argv[0], "GET") && (resp_has_text(pong) || resp_hold(fd, &held));
}

/* ... and nothing else: each call that it lets wait makes it wait longer. */
static void deaf(void)
{
	struct remote *r = start(&one, LATE);
	uint64_t end = clock_ns() + 5000 * NS_PER_MS;
	uint32_t late = 0;

	resp_no_text(pong);
	resp_hook(&one, pings);
	while (clock_ns() < end) {
		get(r);
		late += images_with(&m, -ETIMEDOUT) != 0;
		remote_tick(r);
		usleep(5000);
	}
	/* without a pause that grows it would be 16, and a busy machine adds some */
	ok(late <= 8, "a server that answers nothing but PING: %u calls have waited in 5 seconds",
	   late);
	resp_hook(&one, NULL);
	for (end = clock_ns() + 90000 * NS_PER_MS; get(r) != N && clock_ns() < end; usleep(5000))
		remote_tick(r);
	is_int(images_with(&m, 0), N, "then it answers, and all come");
	remote_close(r);
}

static uint64_t peak(void)
{
	char line[200];
	unsigned long long kb = 0;
	FILE *f = fopen("/proc/self/status", "r");

	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "VmPeak: %llu", &kb) == 1)
			break;
	fclose(f);
	return kb << 10;
}

static void bad_pongs(void)
{
	struct remote *r;
	uint64_t before = peak();

	resp_hook(&one, pings);
	resp_text(pong, sizeof(pong), "*50000000\r\n");
	r = start(&one, MS);
	is_int(remote_status(r), REMOTE_DOWN, "an array of 50 million parts is no answer to PING");
	ok(peak() - before < 200u << 20, "and no memory is taken for it");
	remote_close(r);
	remote_log[0] = 0;
	resp_no_text(pong);
	resp_text(pong, sizeof(pong), "-ERR \033[31mred\r\n");
	r = start(&one, MS);
	is_int(remote_status(r), REMOTE_DOWN, "an error to PING");
	ok(remote_tells("red") && !strchr(remote_log, '\033'),
	   "which is in the log, without control characters");
	remote_close(r);
	resp_hook(&one, NULL);
}

static int body(void)
{
	if (!remote_plugin("redis", plugin, sizeof(plugin)))
		plan_skip_all("this build has no plugin for Redis");
	images_make(&m, N, BYTES);
	resp_start(&one, false);
	fill();
	slow();
	strays();
	longer();
	cluster();
	bad_maps();
	deaf();
	bad_pongs();
	return done_testing();
}

int main(void)
{
	remote_dir_make();
	return tap_guard(100, body, remote_dir_remove);
}
