/* SPDX-License-Identifier: Apache-2.0 */
/* A companion comes at the very moment at which its leader ends: before, between and after the
 * looks of both sides.  And each side is killed before each of its stores: who attaches as a
 * companion, a leader that leaves, and the writer that ends a life whose companion lives.
 *
 *   GPC_T_EACH=1   each store of that writer; else each 7th
 * Tests: lib/index/peer/companion.c lib/index/peer/seat.c */
#include <pthread.h>

#include "t/lib/companions.h"

#include "t/lib/stops.h"

enum { STORES = 2000 };

/* ---- looks, one after the other ---- */

/* Where the two are to stop; a word that moves says that one of them has come there. */
static struct {
	/* of the companion, begun or over: 1 after the first, 2 before the second */
	uint64_t looks;
	uint64_t stop_at;       /* it waits there ... */
	uint64_t go;            /* ... for this to be as much */
	bool in_reaper, marked; /* it goes on within the reaper, before or after the mark */
	int result;
	uint64_t over;
	gpc *handle;
	pthread_t thread;
} race;

static bool dies_looking; /* in a process that is killed at its n-th store */

int __real_companion_may(const struct segment *s, uint32_t leader, uint64_t life);
int __wrap_companion_may(const struct segment *s, uint32_t leader, uint64_t life);
bool __real_companion_end_life(const struct segment *s, int lock_fd, uint32_t leader);
bool __wrap_companion_end_life(const struct segment *s, int lock_fd, uint32_t leader);

static void waits_for(const uint64_t *word, uint64_t value)
{
	while (load_acquire(word) < value)
		sched_yield();
}

static void comes_to(uint64_t place)
{
	store_release(&race.looks, place);
	if (race.stop_at == place)
		waits_for(&race.go, place);
}

int __wrap_companion_may(const struct segment *s, uint32_t leader, uint64_t life)
{
	bool first = !race.looks;
	int err;

	if (dies_looking && first) {
		stops.at[0] = stops.at[1] = s->control;
		stops.bytes[0] = stops.bytes[1] = ROUND_UP(s->at.control_bytes, s->unit);
		stops_begin();
		race.looks = 1;
		return __real_companion_may(s, leader, life);
	}
	if (!first)
		comes_to(2);
	err = __real_companion_may(s, leader, life);
	if (first)
		comes_to(1);
	return err;
}

/* The companion goes on, and to its end, while the writer stands here. */
static void lets_it_go_on(void)
{
	store_release(&race.go, 2);
	waits_for(&race.over, 1);
	race.in_reaper = false;
}

bool __wrap_companion_end_life(const struct segment *s, int lock_fd, uint32_t leader)
{
	bool ours = race.in_reaper && leader + 1 == (uint32_t)told->leader, kept;

	if (ours && !race.marked)
		lets_it_go_on();
	kept = __real_companion_end_life(s, lock_fd, leader);
	if (ours && race.marked)
		lets_it_go_on();
	return kept;
}

static void *attaches(void *arg)
{
	struct gpc_attach_options opt = {
		.size = sizeof(opt), .dir = cache_dir, .leader = told->leader, .life = told->life
	};

	(void)arg;
	race.result = gpc_attach(cache_name, &opt, 0, &race.handle);
	store_release(&race.over, 1);
	return NULL;
}

/* A companion that has come to that place. */
static pid_t meets(uint64_t place)
{
	pid_t a;

	begin(4);
	memset(&race, 0, sizeof(race));
	a = companion_run(leader);
	race.stop_at = place;
	if (pthread_create(&race.thread, NULL, attaches, NULL))
		bail("no thread");
	waits_for(&race.looks, place);
	return a;
}

static void goes_on(void)
{
	store_release(&race.go, 2);
	pthread_join(race.thread, NULL);
}

static void test_reaped_before(bool taken)
{
	pid_t a = meets(1);
	gpc *e = NULL;

	kills(a);
	ok(comes_back(), "a leader dies and is reaped, just when a companion has looked at it");
	if (taken)
		e = cache_attach(0, 0);
	goes_on();
	is_int(race.result, -ESTALE, "the companion sees that when it has sat down%s",
	       taken ? ", though another peer has the seat" : "");
	if (e)
		must(gpc_close(e));
	ends(taken ? "a seat that is another's" : "a seat that is free");
}

/* It has a seat, its leader's or another, and leaves it in its next step, whenever that comes. */
static void test_sits_late(bool there)
{
	pid_t a = meets(1);
	gpc *e = NULL;

	kills(a);
	ok(comes_back(), "a leader dies and is reaped, just when a companion has looked at it");
	if (!there)
		e = cache_attach(0, 0);
	store_relaxed(&race.stop_at, 2);
	store_release(&race.go, 1);
	waits_for(&race.looks, 2);
	if (e)
		must(gpc_close(e));
	serves(4);
	is_int(seat()->state, there ? SEAT_TAKEN : SEAT_FREE, "the companion sits down, %s",
	       there ? "where its leader sat" : "elsewhere");
	clean(c, "a companion that has not seen yet that it comes too late");
	goes_on();
	is_int(race.result, -ESTALE, "it sees that");
	ends("a companion that sat down too late");
}

static void test_seen(void)
{
	pid_t a = meets(2);

	kills(a);
	ok(is_kept(), "a leader dies just when a companion has sat down, and that is seen");
	goes_on();
	is_int(race.result, -ESTALE, "the companion sees it, too");
	ok(comes_back(), "and all comes back");
	ends("a companion that was seen");
}

static void test_in_reaper(bool marked)
{
	pid_t a = meets(1);

	race.marked = marked;
	kills(a);
	race.in_reaper = true;
	serves(2);
	goes_on();
	if (marked) {
		is_int(race.result, -ESTALE, "a companion that sits down when the life is marked");
	} else {
		is_int(race.result, 0,
		       "one that sits down before, of a leader whose lock the writer has");
		ok(is_kept(), "is seen");
		must(gpc_close(race.handle));
	}
	ok(comes_back(), "all comes back");
	ends("a companion within the reaper");
}

/* ---- killed at each store ---- */

static uint64_t *count; /* stores of who is killed */

static bool companion_dies(uint64_t last)
{
	pid_t pid = fork();
	int status;
	gpc *d;

	if (pid < 0)
		bail("no process");
	if (!pid) {
		stops.count = count;
		stops.last = last;
		dies_looking = true;
		_exit(attach_to(told->leader, told->life, &d) < 0);
	}
	while (waitpid(pid, &status, 0) < 0)
		;
	if (!WIFSIGNALED(status) && WEXITSTATUS(status))
		bail("no companion");
	return WIFSIGNALED(status);
}

static bool has_all(pid_t leader_pid)
{
	return !kill(leader_pid, 0) && seat()->state == SEAT_TAKEN &&
	       *seg_cell(&c->seg, (uint32_t)told->held, told->leader - 1) == 1 &&
	       !rival_gets_leaders();
}

static void test_companion_dies(void)
{
	bool died = true, good = true;
	uint64_t n;
	pid_t a;

	begin(4);
	for (n = 1; n < STORES && died && good; n++) {
		renew();
		a = companion_run(leader);
		*count = 0;
		memset(&race, 0, sizeof(race));
		died = companion_dies(n);
		good = has_all(a);
		kills(a);
		good &= comes_back() && gpc_check(c, cache_line, NULL) == 0;
	}
	ok(good,
	   "a companion dies before store %d of its coming: its leader has all, and then nobody",
	   (int)n - 1);
	ok(!good || !died, "all of its stores: %d", (int)n - 2);
	ends("all those companions");
}

/* A writer that is killed when it ends the life. */
static void writes(uint64_t last)
{
	gpc *d = cache_attach(0, 0);
	int i;

	must(gpc_writer_take(d, 0, 0));
	for (i = 0; i < 3; i++)
		must(gpc_writer_serve(d, 1));
	order_add64(&told->ready, 1);
	waits_for(&told->go, 1);
	stops.count = count;
	stops.last = last;
	stops_begin();
	for (i = 0; i < 4; i++) {
		d->writer->next_housekeep_ns = 0;
		must(gpc_writer_serve(d, 1));
	}
	_exit(0);
}

static bool writer_dies(pid_t leader_pid, uint64_t last)
{
	uint64_t ready = told->ready;
	int status;
	pid_t pid;

	must(gpc_writer_drop(c));
	pid = fork();
	if (pid < 0)
		bail("no process");
	if (!pid)
		writes(last);
	waits_for(&told->ready, ready + 1);
	kills(leader_pid);
	store_release(&told->go, 1);
	while (waitpid(pid, &status, 0) < 0)
		;
	return WIFSIGNALED(status);
}

static void test_writer_dies(void)
{
	uint64_t step = getenv("GPC_T_EACH") ? 1 : 7;
	bool died = true, good = true;
	uint64_t n;
	pid_t a, b;

	begin(4);
	for (n = 1; n < STORES && died && good; n += step) {
		*count = 0;
		store_release(&told->go, 0);
		renew();
		a = companion_run(leader);
		b = companion_run(companion);
		died = writer_dies(a, n);
		must(gpc_writer_take(c, 0, 0));
		good = is_kept();
		kills(b);
		good &= comes_back() && gpc_check(c, cache_line, NULL) == 0;
	}
	ok(good,
	   "a writer dies before store %d of the end of a leader: its successor keeps what that had",
	   (int)(n - step));
	ok(!good || !died, "all of its stores: about %d", (int)(n - step));
	ends("all those writers");
}

/* A leader that is killed as it leaves. */
static uint64_t leave_last;

static void leaves(void)
{
	gpc *d = leads();

	order_add64(&told->ready, 1);
	waits_for(&told->go, 1);
	stops.at[0] = stops.at[1] = d->seg.control;
	stops.bytes[0] = stops.bytes[1] = ROUND_UP(d->seg.at.control_bytes, d->seg.unit);
	stops.count = count;
	stops.last = leave_last;
	stops_begin();
	gpc_close(d);
	_exit(0);
}

static void test_leaver_dies(void)
{
	bool died = true, good = true;
	int status = 0;
	pid_t a, b;

	begin(4);
	for (leave_last = 1; leave_last < STORES && died && good; leave_last++) {
		*count = 0;
		store_release(&told->go, 0);
		renew();
		a = companion_run(leaves);
		b = companion_run(companion);
		store_release(&told->go, 1);
		while (waitpid(a, &status, 0) < 0)
			;
		died = WIFSIGNALED(status);
		good = is_kept();
		kills(b);
		good &= comes_back() && gpc_check(c, cache_line, NULL) == 0;
	}
	ok(good, "a leader dies before store %d of its leaving: its companion keeps what it had",
	   (int)leave_last - 1);
	ok(!good || !died, "all of its stores: %d", (int)leave_last - 2);
	ends("all those leaders");
}

static int body(void)
{
	cache_thread = false;
	told_make();
	count = &told->stores;
	test_reaped_before(false);
	test_reaped_before(true);
	test_sits_late(true);
	test_sits_late(false);
	test_seen();
	test_in_reaper(false);
	test_in_reaper(true);
	test_companion_dies();
	test_leaver_dies();
	test_writer_dies();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
