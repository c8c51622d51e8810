/* SPDX-License-Identifier: Apache-2.0 */
/* The tables that gpc-bench compares with: each one that is here finds what was inserted, with
 * its value, and nothing else, and leaves neither process nor file behind.
 * Tests: tools/bench/peer/ */
#include "t/lib/tap.h"

#include "tools/bench/peer/peer.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

/* More than a batch of any peer, and no power of two. */
enum { N = 5000, OUT = 37, KEYS = 40 * N };

static struct bench_key key[KEYS];
static int32_t value[KEYS], got[KEYS];
static char dir[] = "/tmp/gpc-t-023.XXXXXX", shm_prefix[32];

static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static void make_keys(void)
{
	for (uint64_t i = 0; i < KEYS; i++) {
		key[i] = (struct bench_key){ { mix(2 * i + 1), mix(2 * i + 2) } };
		value[i] = (int32_t)(mix(i + 1) >> 33);
	}
	/* the ends of what a value may be */
	value[0] = 0;
	value[1] = INT32_MAX;
}

static int files_in(const char *path, const char *prefix)
{
	DIR *d = opendir(path);
	struct dirent *e;
	int n = 0;

	while (d && (e = readdir(d)))
		n += e->d_name[0] != '.' && !strncmp(e->d_name, prefix, strlen(prefix));
	if (d)
		closedir(d);
	return n;
}

/* Of the keys [from, to): how many are there with their values, or are not there. */
static int count_right(const struct bench_peer *p, void *t, int from, int to, bool there)
{
	int right = 0;

	for (int i = from; i < to; i++)
		got[i] = -77;
	if (p->lookup(t, key + from, (uint32_t)(to - from), got + from))
		return -1;
	for (int i = from; i < to; i++)
		right += got[i] == (there ? value[i] : -1);
	return right;
}

static int count_there(const struct bench_peer *p, void *t, int from, int to)
{
	int there = 0;

	if (p->lookup(t, key + from, (uint32_t)(to - from), got + from))
		return -1;
	for (int i = from; i < to; i++)
		there += got[i] >= 0;
	return there;
}

/* In calls of all lengths: 0, 1, 2, ... keys. */
static bool insert_all(const struct bench_peer *p, void *t, int from, int to)
{
	uint32_t n = 0;

	for (int i = from; i < to; i += (int)n++) {
		if (n > (uint32_t)(to - i))
			n = (uint32_t)(to - i);
		if (p->insert(t, key + i, value + i, n))
			return false;
	}
	return true;
}

static void test_lookup(const struct bench_peer *p, void *t)
{
	struct bench_key close[2] = { key[0], key[1] };
	int32_t answer[2] = { -77, -77 };

	is_int(count_right(p, t, 0, N, false), N, "%s: empty, nothing is found", p->name);
	ok(insert_all(p, t, 0, N), "%s: insert", p->name);
	is_int(count_right(p, t, 0, N, true), N, "%s: all are found", p->name);
	is_int(count_right(p, t, N, 2 * N, false), N, "%s: others are not", p->name);
	for (int i = 0; i < 2 * N; i += 1 + i / 64)
		if (count_right(p, t, i, i + 1, i < N) != 1)
			bail("%s: key %d alone", p->name, i);
	is_int(p->lookup(t, key, 0, answer), 0, "%s: no keys, no answers", p->name);
	close[0].w[0] ^= 1ull << 63;
	close[1].w[1] ^= 1;
	p->lookup(t, close, p == &bench_start ? 1 : 2, answer);
	ok(answer[0] == -1 && answer[1] == (p == &bench_start ? -77 : -1),
	   "%s: a key that differs in one bit is another", p->name);
}

/* Those that were used last stay. */
static void test_evict(const struct bench_peer *p, void *t)
{
	count_there(p, t, 0, N);
	count_there(p, t, 0, OUT);
	is_int(p->evict(t, OUT), 0, "%s: evict", p->name);
	is_int(count_there(p, t, 0, N), N - OUT, "%s: so many are gone", p->name);
	is_int(count_right(p, t, OUT, 2 * OUT, false), OUT, "%s: the oldest", p->name);
	is_int(p->evict(t, N), -1, "%s: there are not so many", p->name);
	ok(insert_all(p, t, OUT, 2 * OUT), "%s: and in again", p->name);
	is_int(count_right(p, t, 0, N, true), N, "%s: all are found again", p->name);
}

static void test_turn(const struct bench_peer *p, void *t)
{
	int lap, bad = 0;

	count_there(p, t, 0, N);
	for (lap = 0; lap + OUT <= N; lap += OUT)
		bad += p->turn(t, key + N + lap, value + N + lap, key + lap, OUT) != 0;
	is_int(bad, 0, "%s: in and out at capacity", p->name);
	is_int(count_right(p, t, 0, lap, false), lap, "%s: out", p->name);
	is_int(count_right(p, t, lap, N + lap, true), N, "%s: in", p->name);
}

/* insert() makes room by itself; a server may have some more of it than it was asked for. */
static void test_full(const struct bench_peer *p, void *t)
{
	int more = N, there, recent;
	uint64_t gone, before;

	is_int(p->evicted(t), 0, "%s: none has gone", p->name);
	while (more < KEYS && p->evicted(t) < OUT && !p->insert(t, key + more, value + more, 500))
		more += 500;
	/* it may go on a little by itself */
	do {
		before = p->evicted(t);
		there = count_there(p, t, 0, more);
		gone = p->evicted(t);
	} while (gone != before);
	recent = count_right(p, t, more - 500, more, true);
	diag("%s: full at %d of %d, %d gone", p->name, there, N, (int)gone);
	ok(gone >= OUT, "%s: full, some have gone", p->name);
	is_int(there, more - (int)gone, "%s: it tells how many", p->name);
	ok(recent > 450, "%s: few of the newest", p->name);
}

static void test_peer(const struct bench_peer *p)
{
	const char *why = NULL;
	void *t = p->open(N, &why), *u;

	if (!t) {
		ok(why && *why, "%s: it cannot be had", p->name);
		diag("%s: %s", p->name, why ? why : "nobody knows why");
		return;
	}
	diag("%s: %s", p->name, p->what);
	test_lookup(p, t);
	u = p->open(1, &why);
	ok(u != NULL, "%s: a second one", p->name);
	is_int(u ? count_right(p, u, 0, N, false) : -1, N, "%s: is empty", p->name);
	if (p->evict)
		test_evict(p, t);
	if (p->turn)
		test_turn(p, t);
	if (p->evicted)
		test_full(p, t);
	ok(p->turn || p->evicted, "%s: there is a way to stay at capacity", p->name);
	if (u)
		p->close(u);
	p->close(t);
	t = p->open(N, &why);
	is_int(t ? count_right(p, t, 0, N, false) : -1, N, "%s: another one", p->name);
	if (t)
		p->close(t);
	is_int(files_in(dir, ""), 0, "%s: no file is left", p->name);
	is_int(files_in("/dev/shm", shm_prefix), 0, "%s: nor in /dev/shm", p->name);
	ok(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "%s: nor a process", p->name);
}

static void test_start_hash(void)
{
	uint32_t token[8] = { 0x64636261, 0, 1, 2, 3, 4, 5, 6 }, last = 0;
	uint64_t one[8], two[4];
	void *t;
	const char *why;
	char *mirror;
	size_t bytes;

	bench_start_hash(token, 1, 1, one);
	ok(one[0] == 0xfc179f83ee0724dd, "FNV-1a of \"abcd\"");
	bench_start_hash(token, 8, 1, one);
	bench_start_hash(token, 7, 2, two);
	ok(two[0] == one[1] && two[1] == one[3] && two[2] == one[5],
	   "a key stands for the whole prefix");
	t = bench_start.open(6, &why);
	bench_start.insert(t, key, value, 6);
	bytes = bench_start_upload(t, NULL);
	mirror = calloc(1, bytes);
	is_int(bench_start_upload(t, mirror), bytes, "a sync copies all of it");
	for (size_t i = 0; i < bytes; i += 8)
		for (int k = 0; k < 6; k++)
			last += !memcmp(mirror + i, &key[k].w[0], 8);
	is_int(last, 6, "the keys are there");
	free(mirror);
	bench_start.close(t);
}

static bool is_figure(const struct bench_python_way *w)
{
	diag("%s: %.1f us", w->what, w->us);
	return w->low_us > 0 && w->us >= w->low_us && w->high_us >= w->us && w->us < 1e6;
}

static void test_python(void)
{
	struct bench_python p;
	const char *why = NULL;
	char *path = strdup(getenv("PATH"));
	int r = bench_python_path(10, 500, 30, &p, &why);

	if (r) {
		free(path);
		ok(why && *why && !bench_in_path("python3"), "no Python");
		diag("%s", why ? why : "nobody knows why");
		return;
	}
	diag("%s", p.python);
	ok(is_figure(&p.usual), "a scheduler in Python");
	ok(is_figure(&p.packed), "a better one");
	ok(is_figure(&p.tuple), "another hash");
	is_int(bench_python_path(10, 500, 0, &p, &why), -1, "no prompts, no figures");
	is_str(why, "python3: no prompts to measure", "which is said");
	setenv("PATH", dir, 1);
	is_int(bench_python_path(10, 500, 30, &p, &why), -1, "there is none in PATH");
	is_str(why, "python3 is not in PATH", "which is said, too");
	ok(!bench_peer_redis.open(10, &why) && !strcmp(why, "redis-server is not in PATH"),
	   "nor a server");
	setenv("PATH", path, 1);
	free(path);
}

static int body(void)
{
	make_keys();
	snprintf(shm_prefix, sizeof(shm_prefix), "gpc-bench-%d.", (int)getpid());
	test_peer(&bench_start);
	test_start_hash();
	for (int i = 0; bench_peers[i]; i++)
		test_peer(bench_peers[i]);
	test_python();
	for (int i = 0; bench_peers_absent[i]; i++)
		diag("not in this build: %s", bench_peers_absent[i]);
	return done_testing();
}

static void remove_dir(void)
{
	rmdir(dir);
}

int main(void)
{
	if (!mkdtemp(dir))
		bail("no directory");
	setenv("TMPDIR", dir, 1);
	return tap_guard(60, body, remove_dir);
}
