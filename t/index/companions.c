/* SPDX-License-Identifier: Apache-2.0 */
/* Companions of a seat: what a leader held stays as it was until its last companion has gone, also
 * when the leader has died, has left, or the writer is another one by then.
 * Tests: lib/index/peer/companion.c lib/index/writer/reap.c */
#include "t/lib/companions.h"

#include <sys/syscall.h>

/* ---- the leader dies ---- */

static void next_writer(void)
{
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
}

static bool bytes_are(uint64_t want)
{
	int i;

	for (i = 0; i < SLOTS && told->bytes[told->slot[i]] == want; i++)
		;
	return i == SLOTS;
}

static void test_dies(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	pid_t a, b;
	gpc *e;
	int i;

	begin(3);
	a = companion_run(leader);
	b = companion_run(companion);
	for (i = 0; i < SLOTS; i++) /* as the companion does, now and later */
		told->bytes[told->slot[i]] = 2;
	kills(a);
	ok(is_kept(), "a leader is dead: what it held is nobody's while its companion lives");
	ok(bytes_are(2), "and nobody has written there");
	is_int((int)stats_of(c, told->leader - 1).sections, 0, "its sections have ended");
	is_int((int)stats_of(c, told->leader - 1).reserved, 0, "and its reservations, as such");
	is_int((int)stats_of(c, -1).claims, 0, "and its claims, which others wait for");
	is_int(stats_of(c, told->leader - 1).alive, 0, "it is dead");
	is_int(gpc_attach(cache_name, &opt, 0, &e), -EUSERS, "nobody gets its seat");
	ok(strstr(gpc_last_error(), "companions"), "which is kept: %s", gpc_last_error());
	is_int(attach_to(told->leader, told->life, &e), -ESTALE,
	       "nobody is its companion any more");
	clean(c, "a seat that is kept");
	kills(b);
	ok(comes_back(), "when the companion is gone all comes back");
	ends("a leader that dies");
}

static void test_companion_first(void)
{
	const struct shm_seat *mine;
	pid_t a, b;

	begin(4);
	a = companion_run(leader);
	b = companion_run(companion);
	is_int(stats_of(c, told->leader).leader, told->leader - 1, "a companion's leader is told");
	is_int(stats_of(c, told->leader - 1).leader, -1, "a leader has none");
	mine = seg_seat(&c->seg, (uint32_t)told->leader);
	((struct shm_seat *)(uintptr_t)mine)->leader = (uint32_t)told->leader + 1;
	is_int(gpc_check(c, NULL, NULL), 1, "one that leads itself");
	((struct shm_seat *)(uintptr_t)mine)->leader = 4;
	is_int(gpc_check(c, NULL, NULL), 1, "one whose leader's seat is empty");
	((struct shm_seat *)(uintptr_t)mine)->leader = (uint32_t)told->leader;
	is_int(gpc_check(c, NULL, NULL), 0, "as it was");
	kills(b);
	serves(10);
	ok(seat()->state == SEAT_TAKEN && !rival_gets_leaders(),
	   "a companion dies: its leader has what "
	   "it had");
	kills(a);
	ok(comes_back(), "then the leader: nobody is waited for");
	ends("a companion that dies");
}

static void test_two(void)
{
	pid_t a, b;
	gpc *d;

	begin(4);
	a = companion_run(leader);
	b = companion_run(companion);
	must(attach_to(told->leader, told->life, &d));
	kills(a);
	kills(b);
	ok(is_kept(), "one of two companions lives");
	must(gpc_close(d));
	ok(comes_back(), "the second one leaves: all comes back");
	ends("two companions");
}

static void test_stopped(void)
{
	pid_t a, b;

	begin(4);
	a = companion_run(leader);
	b = companion_run(companion);
	stop_process(b);
	kills(a);
	ok(is_kept(), "a companion that is stopped keeps all of it");
	kills(b);
	ok(comes_back(), "until it is killed");
	ends("a stopped companion");
}

/* Others wait for the one step in which it goes. */
static void leader_with_pool(void)
{
	gpc *d = leads();
	int section = 0;

	gpc_section_leave(d, section);
	pool_new(d, GPC_VRAM, 2, 1, GPC_POOL_OWNED);
}

static void test_pool(void)
{
	struct gpc_pool p = { .size = sizeof(p) };
	pid_t a, b;

	begin(4);
	a = companion_run(leader_with_pool);
	b = companion_run(companion);
	is_int(gpc_pool_get(c, 1, &p), 0, "a leader has a pool");
	kills(a);
	ok(is_kept(), "it dies: its blocks are kept");
	is_int(gpc_pool_get(c, 1, &p), -ENOENT, "its pool is not");
	kills(b);
	ok(comes_back(), "all comes back");
	ends("the pool of a leader");
}

static void leader_with_targets(void)
{
	gpc *d = leads();
	int pool;

	gpc_section_leave(d, 0);
	pool = pool_new(d, GPC_VRAM, 4, 1, GPC_POOL_OWNED);
	if (gpc_reserve(d, pool, 2, (gpc_block[2]){ 0 }, NULL, 0, 5000) != 2)
		bail("the leader: %s", gpc_last_error());
}

/* Does a cell of the leader stand in a row of this pool? */
static bool has_cells(int pool)
{
	uint32_t i, first = pool_record(&c->seg, GPC_BLOCK(pool, 0));

	for (i = 0; i < 4; i++)
		if (*seg_cell(&c->seg, first + i, told->leader - 1))
			return true;
	return false;
}

/* Nobody sees the pool any more; its number and its records are nobody's until its slots are. */
static void test_pool_with_targets(void)
{
	struct gpc_pool p = { .size = sizeof(p) };
	gpc_block b[4];
	pid_t a, k;
	int pool;

	begin(4);
	a = companion_run(leader_with_targets);
	k = companion_run(companion);
	kills(a);
	ok(is_kept(), "a leader dies that has reserved in a pool of its own");
	is_int(gpc_pool_get(c, 1, &p), -ENOENT, "its pool is not there");
	pool = pool_new(c, GPC_VRAM, 4, 2, 0);
	ok(pool != 1 && !has_cells(pool), "another pool gets another number, and other records");
	is_int(gpc_pool_available(c, pool), 4, "all of which can be had");
	is_int(gpc_reserve(c, pool, 4, b, NULL, 0, 5000), 4, "and are");
	must(gpc_release(c, b, 4));
	clean(c, "a pool that is kept");
	kills(k);
	ok(comes_back(), "all comes back");
	is_int(pool_new(c, GPC_VRAM, 4, 3, 0), 1, "the number, too");
	ends("the pool of a leader that had reserved there");
}

static void leader_with_stock(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir, .stock = 4 };
	gpc_block b;
	gpc *d;

	must(gpc_attach(cache_name, &opt, 0, &d));
	if (gpc_reserve(d, 0, 1, &b, NULL, 0, 5000) != 1)
		bail("the leader: %s", gpc_last_error());
	told->leader = (int32_t)d->peer + 1;
	told->life = info_of(d).life;
	told->held = b;
}

/* Its program never had these. */
static void test_stock(void)
{
	gpc_block b[BLOCKS];
	pid_t a, k;
	int i, n, mine = 0;

	begin(4);
	must(gpc_pool_clear(c, 0, 0, 0, -1));
	a = companion_run(leader_with_stock);
	k = companion_run(companion);
	kills(a);
	serves(10);
	n = gpc_pool_available(c, 0);
	is_int(n, BLOCKS - 1,
	       "a leader with a stock is dead: all can be had but what it had reserved");
	is_int(gpc_reserve(c, 0, (uint32_t)n, b, NULL, 0, 5000), n, "and is");
	for (i = 0; i < n; i++)
		mine += b[i] == told->held;
	is_int(mine, 0, "what it had reserved is given to nobody");
	must(gpc_release(c, b, (uint32_t)n));
	clean(c, "a leader with a stock");
	kills(k);
	for (i = 0; i < 2000 && gpc_pool_available(c, 0) < BLOCKS; i++)
		serves(1);
	is_int(gpc_pool_available(c, 0), BLOCKS, "all comes back");
	ends("the stock of a leader");
}

/* In another namespace: nobody sees whether its process has ended. */
static void test_elsewhere(void)
{
	struct shm_seat *s;
	pid_t a;
	gpc *d;

	quarantine_ms = 10 * 1000; /* the machine runs longer */
	begin(4);
	quarantine_ms = 1;
	a = companion_run(leader);
	must(attach_to(told->leader, told->life, &d));
	s = seg_seat(&d->seg, d->peer);
	lock_drop(d->seg.lock_fd, LOCK_PEER(d->peer));
	s->namespaces ^= 1;
	next_writer(); /* who it is is noted once */
	kills(a);
	ok(is_kept() && s->lost_ns, "a companion that is lost counts for the quarantine");
	next_writer();
	ok(is_kept(), "also for the next writer");
	store_release(&s->lost_ns, 1);
	ok(comes_back(), "and no longer");
	must(gpc_close(d));
	ends("a companion elsewhere");
}

/* ---- the leader leaves ---- */

static void test_leaves(void)
{
	gpc *d, *e;
	pid_t b;

	begin(4);
	serve_begin(c);
	d = leads();
	serve_end();
	b = companion_run(companion);
	must(gpc_close(d));
	ok(is_kept(), "a leader has left: its companion keeps what was not released");
	is_int(stats_of(c, told->leader - 1).left, 1, "it has left");
	is_int(attach_to(told->leader, told->life, &e), -ESTALE,
	       "nobody is its companion any more");
	kills(b);
	ok(comes_back(), "and all comes back, though the process of the leader lives");
	ends("a leader that leaves");
}

/* ---- other writers ---- */

static void test_successor(void)
{
	pid_t a, b;

	begin(4);
	a = companion_run(leader);
	b = companion_run(companion);
	must(gpc_writer_drop(c));
	kills(a);
	must(gpc_writer_take(c, 0, 0));
	ok(is_kept(), "a leader dies while there is no writer");
	next_writer();
	ok(is_kept(), "a successor finds the seat kept");
	next_writer();
	kills(b);
	ok(comes_back(), "the next one gives it back");
	ends("successors");
}

/* A whole takeover by who wants a seat. */
static void test_no_writer(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	pid_t a, b;
	gpc *e;

	begin(3);
	a = companion_run(leader);
	b = companion_run(companion);
	must(gpc_writer_drop(c));
	kills(a);
	is_int(gpc_attach(cache_name, &opt, 0, &e), -EUSERS,
	       "no writer, and the only seat is kept");
	ok(strstr(gpc_last_error(), "all 3 seats"), "the sentence says that all are taken");
	kills(b);
	is_int(gpc_attach(cache_name, &opt, 0, &e), 0,
	       "when the companion is dead, who comes takes a seat");
	must(gpc_writer_take(c, 0, 0));
	must(gpc_close(e));
	ok(comes_back(), "and all is back");
	ends("without a writer");
}

/* ---- who may be a companion ---- */

static void test_stale(void)
{
	uint64_t life;
	gpc *d, *e, *f;

	begin(4);
	serve_begin(c);
	d = leads();
	serve_end();
	life = told->life;
	refused(attach_to(told->leader, life + 1, &e), ESTALE, "another number of the life");
	refused(attach_to(told->leader + 1, life, &e), ESTALE, "the life of another seat");
	refused(attach_to(5, life, &e), EINVAL, "a seat that there is not");
	must(attach_to(told->leader, life, &e));
	refused(attach_to((int32_t)e->peer + 1, info_of(e).life, &f), EINVAL,
		"the companion of a companion");
	must(gpc_close(e));
	lock_drop(d->seg.lock_fd, LOCK_PEER(d->peer));
	refused(attach_to(told->leader, life, &e), ESTALE,
		"a leader without its lock, as the dead have none");
	must(gpc_close(d));
	serves(4);
	refused(attach_to(told->leader, life, &e), ESTALE, "a seat that is free");
	d = cache_attach(0, 0);
	is_int((int)d->peer, told->leader - 1, "another peer takes it");
	refused(attach_to(told->leader, life, &e), ESTALE, "who has another life");
	must(attach_to(told->leader, info_of(d).life, &e));
	must(gpc_close(e));
	must(gpc_close(d));
	ends("stale lives");
}

/* ---- forks ---- */

static void forks(void)
{
	companion();
	if (!fork())
		for (;;)
			pause(); /* tap_guard() ends it */
}

/* No handler runs in such a child: it has the lock of its parent. */
static void forks_raw(void)
{
	long pid;

	companion();
	pid = syscall(SYS_fork);
	if (!pid)
		for (;;)
			pause();
	store_release(&told->child, (int32_t)pid);
}

static void test_fork(void)
{
	pid_t a, b;

	begin(4);
	a = companion_run(leader);
	b = companion_run(forks);
	kills(a);
	ok(is_kept(), "a companion that has a child");
	kills(b);
	ok(comes_back(), "its child is none");
	ends("a forked companion");
#ifdef SYS_fork
	begin(4);
	a = companion_run(leader);
	b = companion_run(forks_raw);
	kills(a);
	kills(b);
	is_int(lock_test(c->seg.lock_fd, LOCK_PEER((uint32_t)told->leader)), 1,
	       "a child has the dead one's lock");
	ok(comes_back(), "its process is looked at, too");
	clean(c, "a child that has the lock of who was a companion");
	kill(told->child, SIGKILL);
	ends("a child with the lock");
#endif
}

static int body(void)
{
	cache_thread = false;
	told_make();
	test_dies();
	test_companion_first();
	test_two();
	test_stopped();
	test_pool();
	test_pool_with_targets();
	test_stock();
	test_elsewhere();
	test_leaves();
	test_successor();
	test_no_writer();
	test_stale();
	test_fork();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
