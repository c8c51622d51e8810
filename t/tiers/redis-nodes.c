/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of Redis that are down, or that answer some things and not others: an outage is told once,
 * and its end once; no node suffers for another one; and what is no use costs a worker one
 * deadline.
 * Tests: plugins/redis/node.c plugins/redis/tick.c */
#include "t/lib/resp.h"

#define N     8u
#define BYTES 3000u
#define MS    3000u
#define LATE  300u /* of calls that come to nothing */

static char plugin[512];
static struct resp one, two;
static struct images m;

static struct remote *start(const char *servers, uint32_t ms)
{
	char spec[1200];

	snprintf(spec, sizeof(spec), "%s:server=%s", plugin, servers);
	return remote_start(spec, NULL, BYTES, ms);
}

static struct remote *start_one(const char *more, uint32_t ms)
{
	char servers[640];

	snprintf(servers, sizeof(servers), "127.0.0.1:%d%s", one.port, more);
	return start(servers, ms);
}

static uint32_t get(struct remote *r)
{
	images_want(&m, 0);
	return remote_get(r, 0, m.b, N, 0);
}

static void fill(void)
{
	struct remote *r = start_one("", MS);

	images_put(&m, 0);
	if (remote_put(r, 0, m.b, N, 0) != N)
		bail("the server takes nothing");
	remote_close(r);
}

static void tick_for(struct remote *r, uint32_t ms)
{
	uint64_t end = clock_ns() + ms * NS_PER_MS;

	while (clock_ns() < end) {
		remote_tick(r);
		usleep(5000);
	}
}

static uint32_t next_of(uint32_t *n)
{
	return __atomic_fetch_add(n, 1, __ATOMIC_SEQ_CST);
}

/* ---- an outage is told once ---- */

static uint32_t turn;
static bool is_out;

/* Each attempt fails in another way than the one before. */
static bool out(struct resp *s, int fd, int argc, char **argv, const size_t *len)
{
	(void)s, (void)argc, (void)len, (void)argv;
	if (!is_out)
		return false;
	switch (next_of(&turn) % 3) {
	case 0:
		shutdown(fd, SHUT_RDWR);
		break;
	case 1:
		resp_say(fd, "-LOADING Redis is loading the dataset in memory\r\n");
		break;
	default:
		resp_say(fd, "*2000000\r\n");
	}
	return true;
}

static void told_once(void)
{
	struct remote *r;
	uint64_t end;
	char node[64];

	remote_log[0] = 0;
	one.hook = out;
	is_out = false;
	r = start_one("", MS);
	is_int(get(r), N, "a server that answers");
	is_out = true;
	turn = 0;
	get(r);
	ok(remote_until(r, REMOTE_DOWN), "it is down");
	for (end = clock_ns() + 60000 * NS_PER_MS; turn <= 3 && clock_ns() < end; usleep(5000))
		remote_tick(r);
	ok(turn > 3, "it is tried again and again: %u commands", turn);
	snprintf(node, sizeof(node), "node 127.0.0.1:%d is down", one.port);
	remote_until_said(r, "until it answers again all of it is a miss", 1);
	if (!ok(remote_says(node) == 1, "the log says once that the node is down"))
		diag("%s", remote_log);
	is_int(remote_says("until it answers again all of it is a miss"), 1,
	       "and once that the store is");
	is_out = false;
	ok(remote_until(r, REMOTE_UP), "it answers again");
	is_int(get(r), N, "all come");
	remote_until_said(r, "answers again\n", 2);
	tick_for(r, 50);
	snprintf(node, sizeof(node), "node 127.0.0.1:%d answers again", one.port);
	is_int(remote_says(node), 1, "which is told once of the node");
	is_int(remote_says("answers again\n"), 2, "and once of the store");
	is_out = true;
	get(r);
	ok(remote_until(r, REMOTE_DOWN), "the next outage");
	remote_until_said(r, "until it answers again all of it is a miss", 2);
	is_int(remote_says("until it answers again all of it is a miss"), 2, "is told, too");
	one.hook = NULL;
	remote_close(r);
}

/* It answers PING: it is not up before it has answered more. */
static bool pings(struct resp *s, int fd, int argc, char **argv, const size_t *len)
{
	(void)s, (void)argc, (void)len;
	return is_out && strcmp(argv[0], "PING") && resp_hold(fd, &is_out);
}

static void deaf_is_told_once(void)
{
	struct remote *r = start_one("", LATE);
	uint64_t end;

	if (!remote_until(r, REMOTE_UP))
		bail("the store is not reached");
	remote_says_no_more();
	one.hook = pings;
	is_out = true;
	for (end = clock_ns() + 2000 * NS_PER_MS; clock_ns() < end; usleep(5000)) {
		get(r);
		remote_tick(r);
	}
	remote_until_said(r, "is down: ", 2);
	if (!ok(remote_says("is down: ") == 2,
		"a server that answers PING and nothing else: down, told once of node and store"))
		diag("%s", remote_log);
	is_int(remote_says("answers again\n"), 0, "and not up");
	is_out = false;
	end = clock_ns() + 90000 * NS_PER_MS;
	do {
		remote_tick(r);
		usleep(5000);
	} while (get(r) != N && clock_ns() < end);
	ok(remote_until_said(r, "answers again\n", 2), "until it answers");
	one.hook = NULL;
	remote_close(r);
}

/* ---- a password that becomes wrong while it is down ---- */

static bool refuses(struct resp *s, int fd, int argc, char **argv, const size_t *len)
{
	(void)s, (void)argc, (void)len, (void)argv;
	if (next_of(&turn) < 2)
		shutdown(fd, SHUT_RDWR);
	else
		resp_say(fd, "-NOAUTH Authentication required.\r\n");
	return true;
}

static void refusal_is_told(void)
{
	struct remote *r;

	remote_log[0] = 0;
	turn = 0;
	one.hook = refuses;
	r = start_one("", MS);
	remote_until_said(r, "is down: NOAUTH", 1);
	tick_for(r, 100);
	if (!ok(remote_says("is down: NOAUTH") == 1,
		"that it refuses us once it is there is told as well, once"))
		diag("%s", remote_log);
	one.hook = NULL;
	remote_close(r);
}

/* ---- nodes that do not answer take no time from others ---- */

/* A port whose connections nobody answers. */
static int hole(int *ret_fd)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (void *)&a, n) || listen(fd, 64) || getsockname(fd, (void *)&a, &n))
		bail("no socket");
	*ret_fd = fd;
	return ntohs(a.sin_port);
}

/* A deadline is short enough for three that do not answer to use it up.  A busy machine may make a
 * fourth of the one that does, and has five attempts. */
static void dead_seeds(void)
{
	char servers[400] = "", line[64];
	bool up = false, called_down = true;
	struct remote *r;
	int fd[3], i;

	for (i = 0; i < 3; i++)
		snprintf(servers + strlen(servers), sizeof(servers) - strlen(servers),
			 "127.0.0.1:%d+", hole(&fd[i]));
	snprintf(servers + strlen(servers), sizeof(servers) - strlen(servers), "127.0.0.1:%d",
		 one.port);
	snprintf(line, sizeof(line), "node 127.0.0.1:%d is down", one.port);
	for (i = 0; i < 5 && (!up || called_down); i++) {
		remote_says_no_more();
		r = start(servers, LATE);
		up = remote_until(r, REMOTE_UP);
		tick_for(r, 400);
		called_down = remote_says(line) > 0;
		remote_close(r);
	}
	ok(up, "three servers that do not answer, and one that does: the store is up");
	if (!ok(!called_down, "the one that answers was never called down"))
		diag("%s", remote_log);
	r = start(servers, MS);
	remote_until(r, REMOTE_UP);
	is_int(get(r), N, "and gives what it has");
	remote_close(r);
	for (i = 0; i < 3; i++)
		close(fd[i]);
}

/* Whichever of its addresses comes first. */
static void by_name(void)
{
	char name[64];
	struct remote *r;

	snprintf(name, sizeof(name), "localhost:%d", one.port);
	r = start(name, MS);
	ok(remote_until(r, REMOTE_UP), "a server by its name");
	is_int(get(r), N, "gives what it has");
	remote_close(r);
}

/* ---- values that never come, where all else is answered ---- */

static bool no_values(struct resp *s, int fd, int argc, char **argv, const size_t *len)
{
	(void)s, (void)argc, (void)len;
	if (!strcmp(argv[0], "AUTH")) {
		resp_say(fd, "+OK\r\n");
		return true;
	}
	return is_out && !strcmp(argv[0], "GET") && resp_hold(fd, &is_out);
}

static void large_ones_stick(void)
{
	char more[500], path[400];
	struct remote *r;
	gpc_key key = remote_key(0);
	uint64_t end;
	uint32_t late = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/word", remote_dir);
	f = fopen(path, "w");
	fputs("sesame\n", f);
	fclose(f);
	chmod(path, 0600);
	snprintf(more, sizeof(more), ",password-file=%s", path);
	one.hook = no_values;
	is_out = true;
	r = start_one(more, LATE);
	for (end = clock_ns() + 2000 * NS_PER_MS; clock_ns() < end; usleep(5000)) {
		remote_exists(r, 1, &key, 1, NULL, 0);
		get(r);
		late += images_with(&m, -ETIMEDOUT) != 0;
		remote_tick(r);
	}
	ok(late <= 4, "a server that answers all but GET: %u calls have waited in 2 s", late);
	is_out = false;
	end = clock_ns() + 90000 * NS_PER_MS;
	do {
		remote_tick(r);
		usleep(5000);
	} while (get(r) != N && clock_ns() < end);
	is_int(images_with(&m, 0), N, "then all come");
	one.hook = NULL;
	remote_close(r);
}

/* ---- a cluster that is busy is a cluster ---- */

static bool map_is_busy;
static uint32_t at_two;

static bool half(struct resp *s, int fd, int argc, char **argv, const size_t *len)
{
	char text[400];

	(void)argc, (void)len;
	if (!strcmp(argv[0], "GET") && s == &two)
		__atomic_fetch_add(&at_two, 1, __ATOMIC_SEQ_CST);
	if (!strcmp(argv[0], "GET") && map_is_busy && !next_of(&turn)) {
		snprintf(text, sizeof(text), "-MOVED 1 127.0.0.1:%d\r\n", two.port);
		resp_say(fd, text); /* the map is stale */
		return true;
	}
	if (strcmp(argv[0], "CLUSTER"))
		return false;
	if (map_is_busy) {
		resp_say(fd, "-BUSY Redis is busy running a script\r\n");
		return true;
	}
	snprintf(text, sizeof(text),
		 "*2\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n"
		 "*3\r\n:8192\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n",
		 one.port, two.port);
	resp_say(fd, text);
	return true;
}

static void busy_cluster(void)
{
	struct remote_state st;
	struct remote *r;
	uint32_t before;

	one.hook = two.hook = half;
	map_is_busy = false;
	r = start_one("", MS);
	remote_until(r, REMOTE_UP);
	tick_for(r, 100);
	is_int(get(r), N, "a cluster of two");
	before = at_two;
	ok(before > 0, "the second one has some: %u", before);
	map_is_busy = true;
	turn = 0;
	is_int(get(r), N, "a slot has moved, and the map cannot be read now");
	tick_for(r, 250);
	remote_state(r, &st);
	ok(strstr(st.where, "a cluster of 2"), "it is a cluster of two still: %s", st.where);
	before = at_two;
	is_int(get(r), N, "all come");
	ok(at_two > before, "each from where it is");
	one.hook = two.hook = NULL;
	remote_close(r);
}

/* ---- a cluster that moves on, and whose map we may not have ---- */

static int moved_to;

static bool moves_on(struct resp *s, int fd, int argc, char **argv, const size_t *len)
{
	char text[64];

	(void)argc, (void)len;
	if (!strcmp(argv[0], "CLUSTER"))
		resp_say(
			fd,
			"-NOPERM this user has no permissions to run the 'cluster|slots' command\r\n");
	else if (strcmp(argv[0], "GET") || s == &two)
		return false;
	else
		resp_send(fd, text,
			  (size_t)snprintf(text, sizeof(text), "-MOVED 7 127.0.0.1:%d\r\n",
					   moved_to));
	return true;
}

static void many_nodes(void)
{
	struct remote *r;

	one.hook = two.hook = moves_on;
	r = start_one("", MS);
	for (moved_to = 1; moved_to <= 140; moved_to++)
		get(r);
	moved_to = two.port;
	get(r);
	is_int(get(r), N, "a hundred and forty nodes that have gone, and one that is there");
	one.hook = two.hook = NULL;
	remote_close(r);
}

/* ---- no room for connections ---- */

static bool crowded(struct resp *s, int fd, int argc, char **argv, const size_t *len)
{
	(void)s, (void)argc, (void)len;
	if (!is_out || !strcmp(argv[0], "PING") || !strcmp(argv[0], "CLUSTER"))
		return false;
	resp_say(fd, "-ERR max number of clients reached\r\n");
	shutdown(fd, SHUT_RDWR);
	return true;
}

static void no_room(void)
{
	struct remote *r;
	uint32_t i, before;

	remote_log[0] = 0;
	is_out = true;
	one.hook = crowded;
	r = start_one("", MS);
	before = one.connections;
	for (i = 0; i < 60; i++) {
		get(r);
		remote_tick(r);
		usleep(5000);
	}
	ok(one.connections - before <= 6,
	   "a server that has too many clients: %u connections in 0.3 s", one.connections - before);
	if (!ok(remote_until_said(r, "is down: ERR max number of clients reached", 1),
		"the log says why"))
		diag("%s", remote_log);
	is_out = false;
	for (i = 0; i < 2000 && get(r) != N; i++) {
		remote_tick(r);
		usleep(5000);
	}
	is_int(images_with(&m, 0), N, "then it has room, and all come");
	one.hook = NULL;
	remote_close(r);
}

static int body(void)
{
	if (!remote_plugin("redis", plugin, sizeof(plugin)))
		plan_skip_all("this build has no plugin for Redis");
	images_make(&m, N, BYTES);
	resp_start(&one, false);
	resp_start(&two, false);
	fill();
	told_once();
	deaf_is_told_once();
	refusal_is_told();
	dead_seeds();
	by_name();
	large_ones_stick();
	busy_cluster();
	many_nodes();
	no_room();
	return done_testing();
}

int main(void)
{
	remote_dir_make();
	return tap_guard(100, body, remote_dir_remove);
}
