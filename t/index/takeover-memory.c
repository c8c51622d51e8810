/* SPDX-License-Identifier: Apache-2.0 */
/* A takeover in several threads, and memory that ends in one of them: the seat is free again,
 * nothing is lost, all that was allocated is given back, and the next takeover succeeds.
 * Tests: lib/index/takeover/takeover.c lib/index/table/alloc.c lib/index/base/parallel.c */
#include "t/lib/cache.h"
#include "t/lib/counted.h"

#include <sys/mman.h>
#include "index/peer/handle.h"
#include "index/base/parallel.h"

enum { VRAM = 131072, RAM = 1024, BATCH = 512, CHAIN = 8, TEAM = 4, TRIES = 24 };

static gpc *c;

static struct {
	bool on, members, once; /* of other threads than the caller; one call fails */
	pthread_t caller;
	uint32_t asked, good, failed; /* so many are still given */
	void *map[128];               /* of them, those of the caller that are no malloc()'s */
} memory;

uint32_t __wrap_parallel_size(void);
void __real_parallel_run(uint32_t threads, void (*run)(void *job), void *jobs, size_t bytes,
			 uint32_t n);
void __wrap_parallel_run(uint32_t threads, void (*run)(void *job), void *jobs, size_t bytes,
			 uint32_t n);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t from);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t from);
int __real_munmap(void *p, size_t n);
int __wrap_munmap(void *p, size_t n);

/* ---- threads ---- */

struct part {
	void (*run)(void *job);
	char *jobs;
	size_t bytes;
	uint32_t first, n;
};

uint32_t __wrap_parallel_size(void)
{
	return TEAM;
}

static void *run_part(void *arg)
{
	const struct part *p = arg;
	uint32_t i;

	for (i = p->first; i < p->n; i += TEAM)
		p->run(p->jobs + i * p->bytes);
	return NULL;
}

/* If it is theirs to fail, others than the caller do all. */
void __wrap_parallel_run(uint32_t threads, void (*run)(void *job), void *jobs, size_t bytes,
			 uint32_t n)
{
	struct part part[TEAM];
	pthread_t thread[TEAM];
	uint32_t i;

	if (!memory.on || !memory.members) {
		__real_parallel_run(threads, run, jobs, bytes, n);
		return;
	}
	for (i = 0; i < TEAM; i++) {
		part[i] = (struct part){ run, jobs, bytes, i, n };
		if (pthread_create(&thread[i], NULL, run_part, &part[i]))
			bail("no thread");
	}
	for (i = 0; i < TEAM; i++)
		pthread_join(thread[i], NULL);
}

/* ---- memory that ends ---- */

static bool is_refused(void)
{
	uint32_t n;

	if (!memory.on || (memory.members && pthread_equal(pthread_self(), memory.caller)))
		return false;
	n = count_next(&memory.asked);
	if (memory.once ? n != memory.good : n < memory.good)
		return false;
	count_add(&memory.failed, 1);
	return true;
}

/* Where this one stands, or none does. */
static void **map_of(void *p)
{
	uint32_t i;

	for (i = 0; i < ARRAY_SIZE(memory.map); i++)
		if (memory.map[i] == p)
			return &memory.map[i];
	if (!p)
		bail("too many maps");
	return NULL;
}

void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t from)
{
	bool counts = memory.on && flags == (MAP_PRIVATE | MAP_ANONYMOUS) && prot != PROT_NONE;
	void *p;

	if (counts && is_refused()) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	p = __real_mmap(at, n, prot, flags, fd, from);
	if (counts && p != MAP_FAILED)
		*map_of(NULL) = counted(p);
	return p;
}

int __wrap_munmap(void *p, size_t n)
{
	void **map = map_of(p);

	if (map) {
		*map = NULL;
		count_sub(&allocations, 1);
	}
	return __real_munmap(p, n);
}

/* ---- a cache with something of everything ---- */

static void fill(void)
{
	static gpc_key key[BATCH + 1], parent[BATCH];
	static gpc_block b[BATCH];
	struct gpc_move m[CHAIN];
	uint32_t i, n;

	for (n = 0; n + BATCH <= VRAM - BATCH; n += BATCH) {
		for (i = 0; i < BATCH; i++) {
			key[i] = key_of(c, n + i + 1);
			parent[i] = i % CHAIN ? key[i - 1] : (gpc_key){ { 0, 0 } };
		}
		must(gpc_reserve(c, 0, BATCH, b, NULL, 0, 60000));
		if (must(gpc_publish(c, parent, key, b, BATCH, NULL, 0, -1)) != BATCH)
			bail("not all were published");
		must(gpc_release(c, b, BATCH));
	}
	must(gpc_evict(c, 0, BATCH, b, 0, 60000)); /* FREE, too */
	must(gpc_demote(c, 0, 1, NULL, CHAIN, m, 0, 60000));
}

static bool all_found(uint64_t first, uint64_t end, const gpc_block *block)
{
	uint64_t n;

	for (n = first; n < end; n++)
		if (find(c, n) != block[n])
			return false;
	return true;
}

/* ---- takeovers ---- */

/* A takeover, the `good`th request of which, counted from 0, fails; and all later ones. */
static int take(bool members, bool once, uint32_t good)
{
	int err;

	memory.members = members;
	memory.once = once;
	memory.asked = memory.failed = 0;
	memory.good = good;
	memory.caller = pthread_self();
	memory.on = true;
	err = gpc_writer_take(c, 0, 0);
	memory.on = false;
	return err;
}

/* Over the whole of a takeover. */
static void take_often(bool members, bool once, const char *what)
{
	uint32_t all, i, n = 0, wrong = 0, silent = 0;
	int64_t lost = 0;
	uint64_t before;
	int err;

	must(take(members, once, UINT32_MAX));
	all = memory.asked;
	must(gpc_writer_drop(c));
	for (i = 0; i < TRIES; i++) {
		before = load_relaxed(&allocations);
		cache_spoil();
		err = take(members, once, all * i / TRIES);
		wrong += err != (memory.failed ? -ENOMEM : 0);
		n += memory.failed > 0;
		silent += err && !strstr(gpc_last_error(), "no memory");
		if (!err)
			must(gpc_writer_drop(c));
		lost += (int64_t)(load_relaxed(&allocations) - before);
	}
	is_int(wrong, 0, "%s: a takeover without memory answers -ENOMEM, each time", what);
	is_int(silent, 0, "and says so");
	is_int(lost, 0, "all that it had allocated is given back");
	ok(n == TRIES && all > TRIES / 2, "memory ended in %u of %u, with up to %u requests",
	   (unsigned)n, TRIES, (unsigned)all);
}

static int body(void)
{
	struct gpc_config cfg = cache_config(VRAM, RAM);
	static gpc_block block[VRAM];
	struct gpc_stats before, after;
	uint64_t n;

	c = cache_make(&cfg, NULL);
	fill();
	settle(c);
	for (n = 1; n < VRAM; n++)
		block[n] = find(c, n);
	before = stats_of(c, -1);
	must(gpc_writer_drop(c));

	take_often(true, true, "one request of a thread fails");
	take_often(true, false, "no thread gets any more");
	take_often(false, true, "one request fails");
	take_often(false, false, "nobody gets any more");
	is_int(gpc_writer_serve(c, 0), -ENOTCONN, "the seat is free");

	is_int(gpc_writer_take(c, 0, 0), 0, "with memory it is taken");
	clean(c, "after all of these");
	ok(all_found(1, VRAM, block), "each key is where it was");
	after = stats_of(c, -1);
	ok(before.live == after.live && before.reserved == after.reserved &&
		   before.free_blocks == after.free_blocks,
	   "nothing came and nothing went");
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(200, body, cache_dir_remove);
}
