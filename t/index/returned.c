/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_returned: an engine learns which of its blocks it has back, each once, however they
 * went.
 * Tests: lib/index/request/returned.c */
#include "index/peer/handle.h"
#include "t/lib/returned.h"

static gpc_block block_of(uint64_t key)
{
	return find(c, key);
}

static void test_evicted(void)
{
	gpc_block b[2];

	begin();
	ok(none(), "nothing has come back at first");
	cache(own, BLOCKS);
	ok(none(), "nor when it is published and let go");
	is_int(gpc_release(owner, own, 1), -EPERM, "which is not the owner's any more");

	is_int(gpc_evict(other, pool, 2, b, 0, 60000), 2, "another peer evicts");
	is_int(back(2), 1u << GPC_SLOT(b[0]) | 1u << GPC_SLOT(b[1]), "and the owner is told");
	ok(none(), "once");
	is_int(gpc_release(owner, b, 2), 0, "they are its own");
	cache(b, 2);

	is_int(gpc_evict(owner, pool, 2, b, 0, 60000), 2, "it evicts by itself");
	ok(none(), "the answer has told it");
	cache(b, 2);
	is_int(gpc_evict(owner, pool, 2, b, GPC_TAKE, 60000), 2, "or takes");
	ok(none(), "the same");
	end("evicted");
}

static void test_dropped(void)
{
	gpc_block b, ref;
	gpc_key k;

	begin();
	cache(own, BLOCKS);
	is_int(gpc_drop(other, own + 5, 1, NULL, 0, -1), 1, "one is dropped");
	is_int(back(1), 1u << 5, "it is back");
	ok(none(), "once");

	fill(own + 5, 1);
	k = key_of(c, last_key);
	is_int(gpc_acquire(other, 0, &k, 1, &ref, 0), 1, "another peer holds one");
	must(gpc_release(owner, own + 5, 1));
	is_int(gpc_pool_clear(other, -1, 1, 0, 1000), 1, "all are cleared, one is still held");
	is_int(back(BLOCKS - 1), ((1u << BLOCKS) - 1) & ~(1u << 5), "the others are back");
	is_int(block_of(last_key), -1, "that one is not found");
	ok(none(), "but not the owner's");
	k = key_of(c, ++last_key);
	is_int(gpc_publish(owner, NULL, &k, &ref, 1,
			   GPC_OPTIONS(gpc_publish_options, .tag = 1, .resident = &b), 0, -1),
	       0, "who cannot");
	is_int(b, -EPERM, "publish it");
	must(gpc_release(other, &ref, 1));
	is_int(back(1), 1u << 5, "until its holder lets go");
	end("dropped");
}

static void test_demoted(void)
{
	struct gpc_move m[2];
	int ram;

	begin();
	cache(own, BLOCKS);
	ram = pool_new(other, GPC_RAM, 4, 0, 0);
	is_int(gpc_demote(other, pool, ram, NULL, 2, m, 0, 60000), 2, "two are demoted");
	ok(none(), "they are there still");
	is_int(gpc_commit(other, m, 2, NULL, 0, -1), 2, "moved");
	is_int(back(2), 1u << GPC_SLOT(m[0].from) | 1u << GPC_SLOT(m[1].from), "and back");
	ok(none(), "once");
	end("demoted");
}

static void test_errors(void)
{
	gpc_block b = -7;
	int second;

	begin();
	refused(gpc_returned(other, pool, &b, 1, 0), EPERM, "another peer's pool");
	second = pool_new(owner, GPC_VRAM, 4, 1, GPC_POOL_OWNED);
	refused(gpc_returned(owner, second, &b, 1, 0), EPERM, "not one of CALLER blocks");
	refused(gpc_returned(owner, second + 1, &b, 1, 0), ENOENT, "no pool");
	refused(gpc_returned(owner, 9999, &b, 1, 0), EINVAL, "no number of a pool");
	refused(gpc_returned(owner, -2, &b, 1, 0), EINVAL, "nor this");
	refused(gpc_returned(other, -1, &b, 1, 0), ENOENT, "a peer without such a pool");
	refused(gpc_returned(owner, pool, NULL, 1, 0), EINVAL, "no array");
	refused(gpc_returned(NULL, pool, &b, 1, 0), EINVAL, "no handle");
	is_int(gpc_returned(owner, pool, NULL, 0, 1000), 0, "no room");
	is_int(gpc_returned(owner, pool, &b, 1, 20), 0, "nothing in that time");
	is_int(b, -7, "untouched");
	second = must(gpc_section_enter(owner));
	refused(gpc_returned(owner, pool, &b, 1, 20), EDEADLK, "a section is open");
	is_int(gpc_returned(owner, pool, &b, 1, 0), 0, "but it may look");
	gpc_section_leave(owner, second);
	fill(own, 1);
	is_int(gpc_pool_clear(other, pool, 0, GPC_REMOVE, 0), 1, "the pool is removed");
	refused(gpc_returned(owner, pool, &b, 1, 1000), ESTALE, "it is going");
	must(gpc_release(owner, own, 1));
	end("errors");
}

/* Two pools, one wait; and a pool that comes again under its number. */
static void test_pools(void)
{
	gpc_block b[4];
	int second, i, got;

	begin();
	second = pool_new(owner, GPC_VRAM, 4, 1, GPC_POOL_CALLER);
	cache(own, 2);
	cache(&(gpc_block){ GPC_BLOCK(second, 3) }, 1);
	must(gpc_pool_clear(other, -1, 0, 0, 60000));
	for (i = got = 0; i < 5 && got < 3; i++)
		got += must(gpc_returned(owner, -1, b + got, 4 - (uint32_t)got, 2000));
	is_int(got, 3, "all of both pools, by one call or some");
	cache(&(gpc_block){ GPC_BLOCK(second, 2) }, 1);
	must(gpc_pool_clear(owner, second, 0, GPC_REMOVE, 2000));
	is_int(gpc_returned(owner, -1, b, 4, 0), 0, "a removed one is left out");
	is_int(pool_new(owner, GPC_VRAM, 8, 1, GPC_POOL_CALLER), second, "another has its number");
	is_int(gpc_returned(owner, second, b, 4, 0), 0, "and begins anew");
	cache(&(gpc_block){ GPC_BLOCK(second, 7) }, 1);
	must(gpc_pool_clear(owner, second, 0, 0, 0));
	is_int(gpc_returned(owner, second, b, 4, 2000), 1, "with blocks");
	is_int(b[0], GPC_BLOCK(second, 7), "of its own");

	must(gpc_pool_clear(owner, second, 0, GPC_REMOVE, 2000));
	is_int(pool_new(owner, GPC_VRAM, 4, 1, GPC_POOL_OWNED), second, "one of another kind");
	refused(gpc_returned(owner, second, b, 4, 0), ESTALE, "has none to tell of");
	is_int(gpc_reserve(owner, second, 4, b, NULL, 0, 60000), 4, "its blocks are reserved");
	is_int(gpc_pool_available(owner, second), 0, "counted");
	must(gpc_release(owner, b, 4));
	done(owner);
	is_int(gpc_pool_available(other, second), 4, "given back");
	is_int(gpc_reserve(other, second, 4, b, NULL, 0, 60000), 4, "to anybody");
	must(gpc_release(other, b, 4));
	done(other);
	end("pools");
}

/* ---- waiting ---- */

static struct {
	int got;
	gpc_block b[4];
} waits;

static void *wait_back(void *arg)
{
	waits.got = gpc_returned(owner, pool, waits.b, 4, 20000);
	return arg;
}

static bool sleeps(void)
{
	int i;

	for (i = 0; i < 10000; i++) {
		if (load_relaxed(&seg_seat(&owner->seg, owner->peer)->waiting))
			return true;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return false;
}

static void test_wait(void)
{
	pthread_t thread;
	int i;

	begin();
	for (i = 0; i < 20; i++) {
		struct timespec a, b;

		cache(own, 1);
		if (pthread_create(&thread, NULL, wait_back, NULL))
			bail("no thread");
		if (!sleeps())
			bail("it does not sleep");
		must(gpc_drop(other, own, 1, NULL, 0, 0));
		clock_gettime(CLOCK_MONOTONIC, &a);
		pthread_join(thread, NULL);
		clock_gettime(CLOCK_MONOTONIC, &b);
		if (waits.got != 1 || waits.b[0] != own[0] || b.tv_sec - a.tv_sec > 10)
			break;
	}
	is_int(i, 20, "a thread that waits is woken by what comes back");
	end("waiting");
}

/* ---- an evict that nobody waits for any more ---- */

static void test_given_up(void)
{
	gpc_block b[4];
	int section, n;

	begin();
	cache(own, 4);
	section = must(gpc_section_enter(other));
	refused(gpc_evict(owner, pool, 2, b, 0, 20), ETIMEDOUT, "an evict that takes too long");
	refused(gpc_evict(owner, pool, 1, b, GPC_TAKE, 20), ETIMEDOUT, "and one that takes");
	refused(gpc_evict(owner, pool, 1, b, 0, 0), EAGAIN, "and one that tries");
	ok(none(), "nothing is back yet");
	gpc_section_leave(other, section);
	n = __builtin_popcount(back(4));
	is_int(n, 4, "in the end all four are, each told once");
	ok(none(), "and no more");
	cache(own, 4);
	is_int(gpc_pool_available(owner, pool), 4, "all may be filled again");
	end("given up");
}

/* ---- all at once ---- */

enum { MINE, CACHED };

static struct {
	uint32_t state, key;
} slot[BLOCKS];
static uint32_t keys, told, wrong;
static bool stop;

static void publish_one(gpc_block b)
{
	uint32_t n = 1 + __atomic_fetch_add(&keys, 1, __ATOMIC_RELAXED);
	gpc_key k = key_of(owner, 1000000 + n);
	gpc_block res = -7;

	__atomic_store_n(&slot[GPC_SLOT(b)].key, n, __ATOMIC_RELAXED);
	__atomic_store_n(&slot[GPC_SLOT(b)].state, CACHED, __ATOMIC_RELEASE);
	must(gpc_publish(owner, NULL, &k, &b, 1,
			 GPC_OPTIONS(gpc_publish_options, .tag = 1, .resident = &res), 0, -1));
	__atomic_fetch_add(&wrong, res != b, __ATOMIC_RELAXED);
	must(gpc_release(owner, &b, 1));
}

static void *engine(void *arg)
{
	gpc_block b[2], found;
	gpc_key k;
	int n, i;

	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		n = must(gpc_returned(owner, pool, b, 2, 10));
		for (i = 0; i < n; i++) {
			k = key_of(owner, 1000000 + __atomic_load_n(&slot[GPC_SLOT(b[i])].key,
								    __ATOMIC_RELAXED));
			must(gpc_lookup(owner, 0, &k, 1, &found, GPC_QUIET));
			if (__atomic_exchange_n(&slot[GPC_SLOT(b[i])].state, MINE,
						__ATOMIC_ACQ_REL) != CACHED ||
			    found >= 0)
				__atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
			__atomic_fetch_add(&told, 1, __ATOMIC_RELAXED);
			publish_one(b[i]);
		}
	}
	return arg;
}

static void *spoiler(void *arg)
{
	uint32_t n;
	gpc_block b[3];
	gpc_key k;

	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		n = __atomic_load_n(&keys, __ATOMIC_RELAXED);
		k = key_of(other, 1000000 + n - n % 7);
		if (n % 3 == 0)
			must(gpc_evict(other, pool, 1 + n % 3, b, 0, 60000));
		else if (must(gpc_acquire(other, 0, &k, 1, b, 0)) == 1) {
			must(gpc_drop(other, b, 1, NULL, 0, -1));
			must(gpc_release(other, b, 1));
		} else {
			must(gpc_evict(other, pool, 1, b, 0, 60000));
		}
	}
	return arg;
}

static void test_all(void)
{
	pthread_t thread[3];
	uint32_t i;

	begin();
	keys = told = wrong = 0;
	stop = false;
	for (i = 0; i < BLOCKS; i++)
		publish_one(own[i]);
	for (i = 0; i < 3; i++)
		if (pthread_create(&thread[i], NULL, i < 2 ? engine : spoiler, NULL))
			bail("no thread");
	for (i = 0; i < 20000 && __atomic_load_n(&told, __ATOMIC_RELAXED) < 2000; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	for (i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	ok(told >= 2000, "%u returns in two threads", told);
	is_int(wrong, 0, "each block was told once, was not found then, and could be filled");
	end("all at once");
}

static int body(void)
{
	cache_thread = true;
	test_evicted();
	test_dropped();
	test_demoted();
	test_errors();
	test_pools();
	test_wait();
	test_given_up();
	test_all();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
