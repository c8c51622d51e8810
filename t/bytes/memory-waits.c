/* SPDX-License-Identifier: Apache-2.0 */
/* VRAM is made when nobody has the former pool's any more: who waits is told for whom, and waits
 * never for itself.
 * Tests: lib/bytes/mapping/make.c lib/bytes/mapping/who.c */
#include "t/lib/memory_files.h"

#include <signal.h>
#include <sys/wait.h>
#include <syslog.h>

enum { BLOCK = 8192, BLOCKS = 6 };

static gpc *new_cache(const struct gpc_attach_options *opt)
{
	struct gpc_config cfg = cache_config(0, 0);

	cfg.max_blocks = 512;
	cache_thread = true;
	return cache_make(&cfg, opt);
}

static void map_and_remove(gpc *maker, gpc *holder, const char *who)
{
	struct gpc_pool p = pool_with(GPC_VRAM, BLOCKS, 1);
	struct gpc_memory m = memory_of(BLOCK);
	uint64_t bytes;
	void *base;
	int n = must(gpc_pool_make(maker, &p, &m, -1));

	must(gpc_pool_map(holder, n, 0, &base, &bytes));
	must(gpc_pool_clear(maker, n, 0, GPC_REMOVE, 5000));
	p = pool_with(GPC_VRAM, BLOCKS, 1);
	refused(gpc_pool_make(maker, &p, &m, -1), ESTALE, "%s has the map: no wait without end",
		who);
	ok(strstr(gpc_last_error(), "former pool 0 of host"), "which is named: %s",
	   gpc_last_error());
	((char *)base)[BLOCK] = 1;
	must(gpc_pool_unmap(holder, n));
	is_int(gpc_pool_make(maker, &p, &m, -1), n, "%s has let go: the next is made", who);
	must(gpc_pool_clear(maker, n, 0, GPC_REMOVE, 5000));
}

static void test_own_maps(void)
{
	gpc *c = new_cache(NULL), *d;

	d = cache_attach(0, 0);
	map_and_remove(c, c, "the maker");
	map_and_remove(c, d, "another handle of its process");
	must(gpc_close(d));
	d = cache_attach(0, 0);
	map_and_remove(d, c, "a handle that came before it");
	must(gpc_close(d));
	clean(c, "own maps");
	cache_end(c);
}

static struct {
	int level;
	char text[256];
} said;

static void hear(void *arg, int level, const char *text)
{
	(void)arg;
	if (!strstr(text, "waiting to make a pool"))
		return;
	said.level = level;
	snprintf(said.text, sizeof(said.text), "%s", text);
}

/* A process that maps pool 0, says so, and sleeps. */
static pid_t importer(gpc *c)
{
	int ends[2];
	pid_t pid;
	char byte;

	if (pipe(ends) || (pid = fork()) < 0)
		bail("no process");
	if (!pid) {
		uint64_t bytes;
		void *base;

		must(gpc_close(c));
		must(gpc_pool_map(cache_attach(0, 0), 0, 0, &base, &bytes));
		if (write(ends[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	if (read(ends[0], &byte, 1) != 1)
		bail("nothing was mapped");
	close(ends[0]);
	close(ends[1]);
	return pid;
}

static void test_who(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .log = hear };
	struct gpc_pool p = pool_with(GPC_VRAM, BLOCKS, 1);
	struct gpc_memory m = memory_of(BLOCK);
	char words[64];
	pid_t pid;
	gpc *c;

	c = new_cache(&opt);
	must(gpc_pool_make(c, &p, &m, -1));
	pid = importer(c);
	must(gpc_pool_clear(c, 0, 0, GPC_REMOVE, 5000));
	snprintf(words, sizeof(words), "process %d has memory of a former pool of host", (int)pid);
	p = pool_with(GPC_VRAM, BLOCKS, 1);
	refused(gpc_pool_make(c, &p, &m, 0), EAGAIN, "another process has it");
	ok(strstr(gpc_last_error(), words), "which is named: %s", gpc_last_error());
	is_int(said.level, 0, "the log is not told at once");
	refused(gpc_pool_make(c, &p, &m, 1300), ETIMEDOUT, "a second and more");
	ok(strstr(gpc_last_error(), words), "%s", gpc_last_error());
	ok(said.level == LOG_WARNING && strstr(said.text, words), "then it is: %s", said.text);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	is_int(gpc_pool_make(c, &p, &m, 5000), 0, "made when that process has ended");
	clean(c, "who has it");
	cache_end(c);
}

static int body(void)
{
	test_own_maps();
	test_who();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
