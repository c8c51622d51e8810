/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of Redis that are not ours, in the middle of a call, and those that are errors: nobody is
 * given what belongs to another key, nothing is lost, and each error has its result.
 * Tests: plugins/redis/batch.c plugins/redis/reply.c */
#include "t/lib/resp.h"

#define N     8u
#define BYTES 3000u
#define MS    10000u /* nothing here comes late */

static char plugin[512];
static struct resp one;
static struct images m;
static uint32_t turn;

static struct remote *start(void)
{
	struct remote *r;
	char spec[700];

	snprintf(spec, sizeof(spec), "%s:server=127.0.0.1:%d", plugin, one.port);
	r = remote_start(spec, NULL, BYTES, MS);
	if (!remote_until(r, REMOTE_UP))
		bail("the store is not reached");
	return r;
}

static uint32_t get(struct remote *r)
{
	images_want(&m, 0);
	return remote_get(r, 0, m.b, N, 0);
}

static void fill(void)
{
	struct remote *r = start();

	images_put(&m, 0);
	if (remote_put(r, 0, m.b, N, 0) != N)
		bail("the server takes nothing");
	remote_close(r);
}

static uint32_t next_of(uint32_t *n)
{
	return __atomic_fetch_add(n, 1, __ATOMIC_SEQ_CST);
}

/* ---- answers that are not ours, in the middle of a call ---- */

static const char *stray_verb, *stray_text;

static bool stray(struct resp *s, int fd, int argc, char **argv, const size_t *len)
{
	(void)s, (void)argc, (void)len;
	if (stray_verb && !strcmp(argv[0], stray_verb) && !next_of(&turn))
		resp_say(fd, stray_text);
	return false;
}

static void a_stray(const char *verb, const char *text)
{
	struct remote *r = start();
	struct remote_state st;
	gpc_key keys[N];
	uint32_t i;

	for (i = 0; i < N; i++)
		keys[i] = remote_key(i);
	stray_text = text;
	stray_verb = verb;
	turn = 0;
	one.hook = stray;
	if (!strcmp(verb, "EXISTS"))
		is_int(remote_exists(r, 0, keys, N, NULL, 0), N,
		       "%s: an answer to nothing in front: all are there", verb);
	else if (!strcmp(verb, "GET"))
		is_int(get(r), N, "%s: an answer to nothing in front: all come", verb);
	is_int(get(r), N, "all come in the next call");
	is_int(images_wrong(&m), 0, "with their bytes");
	remote_state(r, &st);
	is_int(st.wrong, 0, "nothing is taken for damaged");
	is_int(st.state, REMOTE_UP, "nothing is switched off");
	one.hook = NULL;
	is_int(remote_exists(r, 0, keys, N, NULL, 0), N, "nothing is removed");
	remote_close(r);
}

/* The first one is carried out, and told twice; the second one is not. */
static bool unlinks(struct resp *s, int fd, int argc, char **argv, const size_t *len)
{
	uint32_t n = strcmp(argv[0], "UNLINK") ? 9 : next_of(&turn);

	(void)s, (void)argc, (void)len;
	if (n == 0)
		resp_say(fd, ":1\r\n");
	if (n == 1)
		resp_say(fd, "-BUSY Redis is busy running a script\r\n");
	return n == 1;
}

static void an_unlink_that_was_not(void)
{
	struct remote *r = start();
	gpc_key keys[2] = { remote_key(0), remote_key(1) };

	turn = 0;
	one.hook = unlinks;
	is_int(remote_remove(r, 0, keys, 2, NULL, 0), 2,
	       "a removal with an answer to nothing in front");
	is_int(remote_exists(r, 0, keys, 2, NULL, 0), 0, "is one");
	one.hook = NULL;
	remote_close(r);
	fill();
}

/* ---- errors ---- */

static const char *error_text;

static bool errs(struct resp *s, int fd, int argc, char **argv, const size_t *len)
{
	(void)s, (void)argc, (void)len;
	if (strcmp(argv[0], "SET"))
		return false;
	resp_say(fd, error_text);
	return true;
}

static void errors(void)
{
	static const struct {
		const char *text;
		int result;
	} of[] = {
		{ "-OOM command not allowed when used memory > 'maxmemory'.\r\n", -ENOSPC },
		{ "-READONLY You can't write against a read only replica.\r\n", -EAGAIN },
		{ "-NOREPLICAS Not enough good replicas to write.\r\n", -EAGAIN },
		{ "-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist.\r\n",
		  -EAGAIN },
		{ "-MASTERDOWN Link with MASTER is down\r\n", -EAGAIN },
		{ "-CLUSTERDOWN Hash slot not served\r\n", -EAGAIN },
		{ "-BUSY Redis is busy running a script.\r\n", -EAGAIN },
		{ "-MOVED 7 127.0.0.1:0\r\n", -EAGAIN },
		{ "-MOVED 7 nosuchhost.invalid:6379\r\n", -EAGAIN },
		{ "-MOVED 99999 127.0.0.1:7\r\n", -EAGAIN },
		{ "-ASK\r\n", -EIO },
		{ "-NOPERM this user has no permissions\r\n", -EACCES },
		{ "-ERR what\r\n", -EIO },
		{ "-\r\n", -EIO },
	};
	uint64_t began;
	size_t i;

	one.hook = errs;
	remote_log[0] = 0;
	for (i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		struct remote *r = start();

		error_text = of[i].text;
		images_put(&m, 0);
		began = clock_ns();
		remote_put(r, 0, m.b, N, 0);
		remote_put(r, 1, m.b, 1, 0);
		if (!ok(images_with(&m, of[i].result) == N && clock_ns() - began < MS * NS_PER_MS,
			"%.*s", (int)strlen(of[i].text) - 2, of[i].text))
			diag("result %d, %u ms", m.b[0].result,
			     (unsigned)((clock_ns() - began) / NS_PER_MS));
		remote_close(r);
	}
	one.hook = NULL;
	ok(remote_tells("refuses put to us") && remote_says("refuses put to us") == 1,
	   "that we may not store is told, once");
}

/* ---- a password ---- */

static char auth_with[64];

static bool auths(struct resp *s, int fd, int argc, char **argv, const size_t *len)
{
	(void)s, (void)len;
	if (strcmp(argv[0], "AUTH") || argc != 2)
		return false;
	snprintf(auth_with, sizeof(auth_with), "%s", argv[1]);
	resp_say(fd, "+OK\r\n");
	return true;
}

static void password(void)
{
	char spec[1200], path[400];
	struct remote *r;
	FILE *f;

	snprintf(path, sizeof(path), "%s/word", remote_dir);
	f = fopen(path, "w");
	fputs("open sesame\r\n# of the cache\n", f);
	fclose(f);
	chmod(path, 0600);
	snprintf(spec, sizeof(spec), "%s:server=127.0.0.1:%d,password-file=%s", plugin, one.port,
		 path);
	one.hook = auths;
	r = remote_start(spec, NULL, BYTES, MS);
	if (!ok(!strcmp(auth_with, "open sesame"), "the password is the first line of its file"))
		diag("'%s'", auth_with);
	one.hook = NULL;
	remote_close(r);
}

static int body(void)
{
	if (!remote_plugin("redis", plugin, sizeof(plugin)))
		plan_skip_all("this build has no plugin for Redis");
	images_make(&m, N, BYTES);
	resp_start(&one, false);
	fill();
	a_stray("GET", "$-1\r\n");
	a_stray("GET", "$3\r\nabc\r\n");
	a_stray("GET", "+PONG\r\n");
	a_stray("EXISTS", ":0\r\n");
	fill();
	an_unlink_that_was_not();
	errors();
	password();
	return done_testing();
}

int main(void)
{
	remote_dir_make();
	return tap_guard(100, body, remote_dir_remove);
}
