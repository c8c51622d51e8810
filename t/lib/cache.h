/* SPDX-License-Identifier: Apache-2.0 */
/* cache.h - caches of one process, through the public interface alone.
 *
 * Two styles: a serving thread, or the seat taken by the very thread that calls.  A test
 * that should hold in both is run by cache_both.  Recency is exact and nothing is kept
 * free ahead of demand, unless a configuration says so. */
#ifndef GPC_T_CACHE_H
#define GPC_T_CACHE_H

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

#include "gpc.h"
#include "gpc_look.h"
#include "gpc_serve.h"
#include "tap.h"

#define CACHE_KEYS 256 /* longest chain of chain_make */

static char cache_dir[64];
static char cache_name[64]; /* of the cache made last */
static bool cache_thread;   /* the style */

/* ---- names, and their end ---- */

/* Before tap_guard: the parent removes what the child leaves. */
TAP_FN void cache_dir_make(void)
{
	if (tap_is_guarded)
		bail("cache_dir_make() comes before tap_guard()");
	snprintf(cache_dir, sizeof(cache_dir), "/dev/shm/gpc-test-%d-XXXXXX", (int)getpid());
	if (!mkdtemp(cache_dir))
		bail("no directory in /dev/shm");
}

TAP_FN void cache_dir_remove(void)
{
	DIR *dir = opendir(cache_dir);
	struct dirent *e;

	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.')
			unlinkat(dirfd(dir), e->d_name, 0);
	if (dir)
		closedir(dir);
	rmdir(cache_dir);
}

/* ---- calls ---- */

/* What has to work for the rest to make sense. */
#define must(call) cache_must((call), #call, __FILE__, __LINE__)

TAP_FN int cache_must(int r, const char *call, const char *file, int line)
{
	if (r < 0)
		bail("%s:%d: %s: %d, %s", file, line, call, r, gpc_last_error());
	return r;
}

/* The call is refused with that errno, and with a sentence of its own. */
#define refused(call, err, ...) \
	(cache_spoil(), cache_refused((call), -(err), __FILE__, __LINE__, __VA_ARGS__))

TAP_FN void cache_spoil(void)
{
	((char *)gpc_last_error())[0] = 0;
}

TAP_FN TAP_PRINTF(5, 6) bool cache_refused(int got, int want, const char *file, int line,
					   const char *fmt, ...)
{
	const char *text = gpc_last_error();
	bool good = got == want && *text;
	va_list ap;

	va_start(ap, fmt);
	if (!tap_result(good, file, line, fmt, ap))
		diag("got %d, want %d; \"%s\"", got, want, text);
	va_end(ap);
	return good;
}

/* ---- handles ---- */

TAP_FN struct gpc_config cache_config(uint32_t vram, uint32_t ram)
{
	return (struct gpc_config){
		.size = sizeof(struct gpc_config),
		.max_peers = 4,
		.tick_us = 1,
		.free_target = -1,
		.vram_blocks = vram,
		.ram_blocks = ram,
		.dir = cache_dir,
	};
}

TAP_FN gpc *cache_make(const struct gpc_config *cfg, const struct gpc_attach_options *opt)
{
	static int number;
	gpc *c = NULL;

	snprintf(cache_name, sizeof(cache_name), "one-%d-%d", (int)getpid(), number++);
	must(gpc_create(cache_name, cfg, opt, cache_thread ? GPC_SERVE : 0, &c));
	if (!cache_thread)
		must(gpc_writer_take(c, 0, 0));
	return c;
}

TAP_FN gpc *cache_new(uint32_t vram, uint32_t ram)
{
	struct gpc_config cfg = cache_config(vram, ram);

	return cache_make(&cfg, NULL);
}

/* One more handle of the cache made last. */
TAP_FN gpc *cache_attach(uint32_t stock, uint32_t quota)
{
	struct gpc_attach_options opt = { .size = sizeof(opt),
					  .dir = cache_dir,
					  .stock = stock,
					  .quota = quota,
					  .label = "another" };
	gpc *c = NULL;

	must(gpc_attach(cache_name, &opt, 0, &c));
	return c;
}

TAP_FN void cache_end(gpc *c)
{
	must(gpc_close(c));
	must(gpc_unlink(cache_name, cache_dir));
}

TAP_FN void cache_both(void (*test)(void))
{
	cache_thread = false;
	test();
	cache_thread = true;
	test();
}

/* While another handle waits for its answers: somebody has to serve them. */
static struct {
	gpc *c;
	pthread_t thread;
	bool stop;
} cache_server;

TAP_FN void *cache_server_run(void *arg)
{
	while (!__atomic_load_n(&cache_server.stop, __ATOMIC_ACQUIRE))
		must(gpc_writer_serve(arg, 5));
	return NULL;
}

TAP_FN void serve_begin(gpc *c)
{
	cache_server.c = cache_thread ? NULL : c;
	cache_server.stop = false;
	if (cache_server.c && pthread_create(&cache_server.thread, NULL, cache_server_run, c))
		bail("no thread");
}

TAP_FN void serve_end(void)
{
	__atomic_store_n(&cache_server.stop, true, __ATOMIC_RELEASE);
	if (cache_server.c)
		pthread_join(cache_server.thread, NULL);
	cache_server.c = NULL;
}

/* ---- pools ---- */

TAP_FN struct gpc_pool pool_of(uint32_t kind, uint32_t blocks, uint32_t space)
{
	return (struct gpc_pool){ .size = sizeof(struct gpc_pool),
				  .kind = kind,
				  .blocks = blocks,
				  .space = space,
				  .demote_to = -1 };
}

TAP_FN int pool_new(gpc *c, uint32_t kind, uint32_t blocks, uint32_t space, uint32_t flags)
{
	struct gpc_pool p = pool_of(kind, blocks, space);

	p.flags = flags;
	return must(gpc_pool_make(c, &p, NULL, -1));
}

/* ---- keys and chains ---- */

/* Key number n; no two alike. */
TAP_FN gpc_key key_of(gpc *c, uint64_t n)
{
	gpc_key k;

	must(gpc_key_import(c, &n, sizeof(n), sizeof(n), 1, 0, &k));
	return k;
}

/* One prompt. */
TAP_FN int hash_keys(gpc *c, const gpc_key *parent, const uint32_t *tokens, size_t n,
		     const struct gpc_extra *x, uint32_t nx, uint32_t flags, gpc_key *keys)
{
	struct gpc_prompt p = {
		.parent = parent, .tokens = tokens, .n = n, .x = x, .nx = nx, .ret_keys = keys
	};

	return gpc_key_hash(c, &p, 1, flags);
}

TAP_FN int hash_group(gpc *c, uint32_t group, uint32_t block_tokens, const gpc_key *parent,
		      const uint32_t *tokens, size_t n, const struct gpc_extra *x, uint32_t nx,
		      uint32_t flags, gpc_key *keys)
{
	struct gpc_prompt p = { .parent = parent,
				.tokens = tokens,
				.n = n,
				.x = x,
				.nx = nx,
				.group = group,
				.block_tokens = block_tokens,
				.ret_keys = keys };

	return gpc_key_hash(c, &p, 1, flags | GPC_GROUP);
}

TAP_FN bool key_is(gpc_key a, gpc_key b)
{
	return a.w[0] == b.w[0] && a.w[1] == b.w[1];
}

/* keys[0] = no key, keys[1 .. n] = numbers from, from + 1, ...: each the parent of the
 * next. */
TAP_FN void chain_keys(gpc *c, uint64_t from, uint32_t n, gpc_key *keys)
{
	uint32_t i;

	keys[0] = (gpc_key){ { 0, 0 } };
	for (i = 0; i < n; i++)
		keys[i + 1] = key_of(c, from + i);
}

/* Publish the chain of those numbers in a pool; the blocks stay referenced. */
TAP_FN void chain_hold(gpc *c, int pool, uint64_t from, uint32_t n, gpc_block *blocks)
{
	gpc_key keys[CACHE_KEYS + 1];

	if (n > CACHE_KEYS)
		bail("a chain of %u", n);
	chain_keys(c, from, n, keys);
	must(gpc_reserve(c, pool, n, blocks, NULL, 0, 60000));
	if (must(gpc_publish(c, keys, keys + 1, blocks, n, NULL, 0, -1)) != (int)n)
		bail("the chain from %llu was not published", (unsigned long long)from);
}

/* The same, not referenced any more. */
TAP_FN void chain_make(gpc *c, int pool, uint64_t from, uint32_t n, gpc_block *blocks)
{
	gpc_block own[CACHE_KEYS];

	blocks = blocks ? blocks : own;
	chain_hold(c, pool, from, n, blocks);
	must(gpc_release(c, blocks, n));
}

/* Block of key number n, or -1; leaves no trace. */
TAP_FN gpc_block find(gpc *c, uint64_t n)
{
	gpc_key k = key_of(c, n);
	gpc_block b = -2;

	must(gpc_lookup(c, 0, &k, 1, &b, GPC_QUIET));
	return b;
}

/* Key number n is used now. */
TAP_FN gpc_block touch(gpc *c, uint64_t n)
{
	gpc_key k = key_of(c, n);
	gpc_block b = -2;

	must(gpc_lookup(c, 0, &k, 1, &b, 0));
	return b;
}

/* ---- looking ---- */

TAP_FN struct gpc_stats stats_of(gpc *c, int peer)
{
	struct gpc_stats st = { .size = sizeof(st) };

	must(gpc_stats_get(c, peer, &st));
	return st;
}

/* Keys that became live and are neither live nor lost: 0 where no move of a victim is open, no
 * source of a move waits in its space, and no writer has died. */
TAP_FN int64_t unaccounted(gpc *c)
{
	struct gpc_stats st = stats_of(c, -1);

	return (int64_t)(st.published - st.live - st.evicted - st.dropped);
}

TAP_FN struct gpc_info info_of(gpc *c)
{
	struct gpc_info info = { .size = sizeof(info) };

	must(gpc_info_get(c, &info));
	return info;
}

TAP_FN void cache_line(void *arg, const char *line)
{
	(void)arg;
	diag("check: %s", line);
}

#define clean(c, when) is_int(gpc_check((c), cache_line, NULL), 0, "check: %s", (when))

/* All that this handle has sent is done, reservations it gave back included. */
TAP_FN void done(gpc *c)
{
	gpc_ticket t;

	do { /* an answer may make it send more */
		t = gpc_ticket_last(c);
		must(gpc_ticket_wait(c, t, 2000));
	} while (t != gpc_ticket_last(c));
}

/* The writer does what is due: what waited for nothing but it is done afterwards. */
TAP_FN void settle(gpc *c)
{
	uint64_t end = 2000, i;
	struct timespec pause = { .tv_nsec = 1000000 };

	for (i = 0; i < end && stats_of(c, -1).dying; i++) {
		if (!cache_thread)
			must(gpc_writer_serve(c, 1));
		else
			nanosleep(&pause, NULL);
	}
}

/* ---- chance, the same in every run ---- */

static uint64_t chance_state = 88172645463325252u;

TAP_FN uint32_t chance(uint32_t below)
{
	chance_state ^= chance_state << 13;
	chance_state ^= chance_state >> 7;
	chance_state ^= chance_state << 17;
	return (uint32_t)((chance_state >> 32) * below >> 32);
}

#endif
