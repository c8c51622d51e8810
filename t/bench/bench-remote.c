/* SPDX-License-Identifier: Apache-2.0 */
/* A remote store in a Redis on this machine, images of 1 MiB through a unix socket, beside a plain
 * loop over hiredis that copies and sums as much: bench-remote PLUGIN [ROUNDS]
 *
 * Both in turns, 32 images pipelined; medians and their ratio.  Then lookups of 64 keys in an
 * index, while a thread loads from the store and while none does, in turns. */
#include "t/lib/redis.h"
#include "t/lib/cache.h"

#define N     32u
#define BYTES (1u << 20)

static struct server server;
static struct images m;

static int up(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), up);
	return v[n / 2];
}

static double gb(uint64_t ns)
{
	return (double)N * BYTES / (double)ns;
}

/* ---- the plain loop ---- */

static double plain_put(redisContext *c)
{
	uint64_t began = clock_ns();
	uint32_t i;
	void *r;

	for (i = 0; i < N; i++) {
		const char *argv[3] = { "SET", NULL, (char *)m.at + (size_t)i * BYTES };
		char key[40];
		size_t len[3] = { 3, 0, BYTES };
		volatile uint32_t crc = crc32c(0, argv[2], BYTES);

		(void)crc;
		len[1] = (size_t)snprintf(key, sizeof(key), "plain:%u", i);
		argv[1] = key;
		redisAppendCommandArgv(c, 3, argv, len);
	}
	for (i = 0; i < N; i++) {
		redisGetReply(c, &r);
		freeReplyObject(r);
	}
	return gb(clock_ns() - began);
}

static double plain_get(redisContext *c)
{
	uint64_t began = clock_ns();
	volatile uint32_t crc = 0;
	uint32_t i;
	void *r;

	for (i = 0; i < N; i++)
		redisAppendCommand(c, "GET plain:%u", i);
	for (i = 0; i < N; i++) {
		redisGetReply(c, &r);
		memcpy(m.at + (size_t)i * BYTES, ((redisReply *)r)->str, BYTES);
		crc += crc32c(0, m.at + (size_t)i * BYTES, BYTES);
		freeReplyObject(r);
	}
	return gb(clock_ns() - began);
}

/* ---- ours ---- */

static double our_put(struct remote *s)
{
	uint64_t began = clock_ns();
	uint32_t i;

	for (i = 0; i < N; i++)
		m.b[i].crc = crc32c(0, m.iov[i].iov_base, BYTES);
	if (remote_put(s, 0, m.b, N, 0) != N)
		bail("not all was stored");
	return gb(clock_ns() - began);
}

static double our_get(struct remote *s)
{
	uint64_t began = clock_ns();

	if (remote_get(s, 0, m.b, N, 0) != N)
		bail("not all came back");
	return gb(clock_ns() - began);
}

static void rates(struct remote *s, redisContext *c, int rounds)
{
	double *v[4];
	int i, k;

	for (k = 0; k < 4; k++)
		v[k] = calloc((size_t)rounds, sizeof(double));
	plain_put(c);
	our_put(s);
	for (i = 0; i < rounds; i++) {
		v[0][i] = plain_put(c);
		v[1][i] = our_put(s);
		v[2][i] = plain_get(c);
		v[3][i] = our_get(s);
	}
	for (k = 0; k < 4; k += 2)
		printf("%s: plain hiredis %.2f GB/s, ours %.2f GB/s, ratio %.2f\n",
		       k ? "GET" : "PUT", median(v[k], rounds), median(v[k + 1], rounds),
		       median(v[k + 1], rounds) / median(v[k], rounds));
}

/* ---- lookups beside it ---- */

static uint32_t traffic, stop;

static void *load(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		if (__atomic_load_n(&traffic, __ATOMIC_RELAXED))
			our_get(arg);
		else
			usleep(1000);
	}
	return NULL;
}

static double lookups(gpc *c, const gpc_key *keys)
{
	enum { TURNS = 4001 };
	static double v[TURNS];
	gpc_block b[64];
	int i;

	for (i = 0; i < TURNS; i++) {
		uint64_t began = clock_ns();

		must(gpc_lookup(c, 0, keys + i % 64 * 64, 64, b, GPC_QUIET));
		v[i] = (double)(clock_ns() - began);
	}
	return median(v, TURNS);
}

static void beside(struct remote *s, int rounds)
{
	gpc *c = cache_new(8192, 0);
	gpc_key *keys = calloc(4096, sizeof(*keys));
	gpc_block b[64];
	double *with = calloc((size_t)rounds, sizeof(double)),
	       *without = calloc((size_t)rounds, sizeof(double));
	pthread_t thread;
	int i;

	for (i = 0; i < 4096; i += 64) {
		chain_keys(c, 1 + (uint64_t)i, 64, (gpc_key[65]){ { { 0 } } });
		must(gpc_reserve(c, 0, 64, b, NULL, 0, -1));
		for (int k = 0; k < 64; k++)
			keys[i + k] = key_of(c, 1 + (uint64_t)(i + k));
		must(gpc_publish(c, NULL, keys + i, b, 64, NULL, GPC_NO_REF, -1));
	}
	pthread_create(&thread, NULL, load, s);
	for (i = 0; i < rounds; i++) {
		__atomic_store_n(&traffic, 1, __ATOMIC_RELAXED);
		usleep(20000);
		with[i] = lookups(c, keys);
		__atomic_store_n(&traffic, 0, __ATOMIC_RELAXED);
		usleep(60000);
		without[i] = lookups(c, keys);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	printf("lookups of 64 keys: %.0f ns with remote traffic, %.0f ns without, ratio %.3f\n",
	       median(with, rounds), median(without, rounds),
	       median(with, rounds) / median(without, rounds));
	done(c);
	cache_end(c);
}

static int rounds_of, argc_of;
static char **argv_of;

static int body(void)
{
	char spec[1200];
	struct remote *s;
	redisContext *c;

	server_start(&server, "bench", 0, NULL);
	c = redisConnectUnix(server.path);
	images_make(&m, N, BYTES);
	images_put(&m, 1);
	snprintf(spec, sizeof(spec), "%s:server=unix:%s", argc_of > 1 ? argv_of[1] : "redis",
		 server.path);
	s = remote_start(spec, NULL, BYTES, 10000);
	if (!s)
		return 1;
	rates(s, c, rounds_of);
	beside(s, rounds_of / 2 + 1);
	remote_close(s);
	redisFree(c);
	server_kill(&server);
	return 0;
}

static void clean_all(void)
{
	cache_dir_remove();
	remote_dir_remove();
}

int main(int argc, char **argv)
{
	argc_of = argc;
	argv_of = argv;
	rounds_of = argc > 2 ? atoi(argv[2]) : 31;
	remote_dir_make();
	cache_dir_make();
	return tap_guard(300, body, clean_all);
}
