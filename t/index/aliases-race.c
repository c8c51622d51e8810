/* SPDX-License-Identifier: Apache-2.0 */
/* Threads and another process read the table of aliases while one writer stores into it without
 * rest: a key is itself, or a key that was stored for it, and never words of two.
 * Tests: lib/index/segment/memo.h lib/index/table/memo.c */
#include "t/lib/cache.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NAMES = 7, READERS = 2, PART = 256 };

#ifdef __SANITIZE_THREAD__
enum { CALLS = 40 };
#else
enum { CALLS = 400 };
#endif

struct shared { /* with the other process */
	uint64_t found, missed, wrong;
	bool stop;
};

static struct shared *sh;

static gpc_key name_of(uint64_t n)
{
	return (gpc_key){ { n, n << 20 } };
}

/* What is stored for an alias tells for which, and each word tells the other one. */
static gpc_key to_of(uint64_t alias, uint64_t turn)
{
	uint64_t w = turn << 8 | alias;

	return (gpc_key){ { w, (w * 0x9e3779b97f4a7c15ull) >> 1 } };
}

static void look(gpc *c)
{
	gpc_key keys[NAMES];
	uint64_t i, found = 0, missed = 0, wrong = 0;

	for (i = 0; i < NAMES; i++)
		keys[i] = name_of(i + 1);
	must(gpc_alias_resolve(c, keys, NAMES));
	for (i = 0; i < NAMES; i++) {
		uint64_t turn = keys[i].w[0] >> 8;

		if (key_is(keys[i], name_of(i + 1)))
			missed++;
		else if (turn && key_is(keys[i], to_of(i + 1, turn)))
			found++;
		else
			wrong++;
	}
	__atomic_fetch_add(&sh->found, found, __ATOMIC_RELAXED);
	__atomic_fetch_add(&sh->missed, missed, __ATOMIC_RELAXED);
	__atomic_fetch_add(&sh->wrong, wrong, __ATOMIC_RELAXED);
}

static void *reader(void *arg)
{
	while (!__atomic_load_n(&sh->stop, __ATOMIC_ACQUIRE))
		look(arg);
	return NULL;
}

/* More names than there are places, and names that change, all in one bucket. */
static void race(int32_t room, const char *what)
{
	struct gpc_config cfg = cache_config(8, 0);
	pthread_t thread[READERS];
	gpc_key alias[PART], to[PART];
	uint64_t turn = 0;
	int i, j, status = -1;
	pid_t pid;
	gpc *c;

	cfg.max_aliases = room;
	memset(sh, 0, sizeof(*sh));
	cache_thread = false;
	c = cache_make(&cfg, NULL);
	pid = fork();
	if (pid < 0)
		bail("no process");
	if (!pid) {
		reader(cache_attach(0, 0));
		_exit(0);
	}
	for (i = 0; i < READERS; i++)
		if (pthread_create(&thread[i], NULL, reader, c))
			bail("no thread");
	for (j = 0; j < CALLS; j++) {
		for (i = 0; i < PART; i++) {
			uint64_t n = 1 + (uint64_t)(i * 5 + j) % NAMES;

			alias[i] = name_of(n);
			to[i] = to_of(n, ++turn);
		}
		must(gpc_alias(c, alias, to, PART, 0, -1));
	}
	/* a slow machine: they have to have read something */
	while (!__atomic_load_n(&sh->found, __ATOMIC_RELAXED))
		look(c);
	__atomic_store_n(&sh->stop, true, __ATOMIC_RELEASE);
	for (i = 0; i < READERS; i++)
		pthread_join(thread[i], NULL);
	if (waitpid(pid, &status, 0) != pid)
		bail("no end of the other process");
	is_int(status, 0, "%s: %d pairs were stored", what, CALLS * PART);
	is_int((long)sh->wrong, 0, "%s: never another key", what);
	diag("%llu were found, %llu missed", (unsigned long long)sh->found,
	     (unsigned long long)sh->missed);
	must(gpc_writer_serve(c, 10));
	clean(c, what);
	cache_end(c);
}

static int body(void)
{
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		bail("no shared page");
	race(3, "one bucket");
	race(300, "room for all");
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
