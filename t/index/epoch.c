/* SPDX-License-Identifier: Apache-2.0 */
/* Sections, grace periods and ticks, and what a handle answers when it cannot be used.
 * Tests: lib/index/peer/epoch.c lib/index/peer/section.c lib/index/peer/fork.c lib/index/peer/handle.c */
#include "config.h"

#include <errno.h>
#include <sched.h>

#include "t/lib/made.h"
#include "t/lib/meet.h"
#include "t/lib/tap.h"

static struct made f;

static struct shm_section *section(uint32_t peer, uint32_t i)
{
	return seg_section(&f.c.seg, peer, i);
}

static void test_slot(void)
{
	const struct segment *s = &f.c.seg;

	ok(epoch_enter(s, 0, 3), "an idle slot can be taken");
	is_int(section(0, 3)->epoch, 1, "the first epoch of a fresh segment is 1, not idle");
	ok(epoch_is_open(section(0, 3)), "it is open");
	ok(!epoch_is_open(section(0, 2)), "its neighbour is not");
	is_int(f.seat->sections, 4, "the seat's mark covers the slot");
	ok(section(0, 3)->since_ns, "it says since when");
	ok(!epoch_enter(s, 0, 3), "an open slot cannot be taken again");
	ok(epoch_enter(s, 0, 1), "another can");
	is_int(f.seat->sections, 4, "the mark never falls");
	epoch_leave(s, 0, 1);
	epoch_leave(s, 0, 3);
	ok(!epoch_is_open(section(0, 3)), "left, it is idle");
	ok(section(0, 3)->done < section(0, 3)->ticket, "idle slots keep done < ticket");
	ok(epoch_enter(s, 0, 3), "and can be taken anew");
	epoch_leave(s, 0, 3);
}

static void test_grace(void)
{
	const struct segment *s = &f.c.seg;
	uint64_t cookie = epoch_start(s), later;

	ok(epoch_done(s, cookie), "without sections a grace period is over at once");
	is_int(f.shared->completed, cookie, "what the scan proved is kept");
	ok(!epoch_done(s, cookie + 1), "one that has not begun is not over");

	epoch_enter(s, 0, 5);
	cookie = epoch_start(s);
	ok(!epoch_done(s, cookie), "a section that was open before holds it back");
	later = epoch_start(s);
	epoch_enter(s, 2, 63);
	ok(!epoch_done(s, cookie), "still");
	epoch_leave(s, 0, 5);
	ok(epoch_done(s, cookie), "its end ends it");
	ok(epoch_done(s, later), "a section that began later does not hold it back");
	cookie = epoch_start(s);
	ok(!epoch_done(s, cookie), "that section holds back the next one");
	is_int(f.shared->completed, later, "and nothing beyond it counts as proved");
	epoch_leave(s, 2, 63);
	ok(epoch_done(s, cookie), "until it ends");
}

static void test_grace_order(void)
{
	const struct segment *s = &f.c.seg;
	uint64_t a, b, c;

	epoch_enter(s, 1, 0);
	a = epoch_start(s);
	epoch_enter(s, 2, 0);
	b = epoch_start(s);
	epoch_enter(s, 3, 0);
	c = epoch_start(s);
	ok(a < b && b < c, "cookies grow");
	epoch_leave(s, 2, 0);
	ok(!epoch_done(s, b), "the oldest section of all decides");
	epoch_leave(s, 1, 0);
	ok(epoch_done(s, b) && !epoch_done(s, c), "periods end in the order they began");
	epoch_leave(s, 3, 0);
	ok(epoch_done(s, c), "the last one too");
}

/* What other processes wrote is not to be believed. */
static void test_untrusted(void)
{
	const struct segment *s = &f.c.seg;
	uint64_t cookie;

	seg_seat(s, 1)->sections = UINT32_MAX;
	cookie = epoch_start(s);
	ok(epoch_done(s, cookie), "a mark beyond all slots is cut to their number");
	section(MADE_PEERS - 1, 63)->epoch = cookie - 1;
	section(MADE_PEERS - 1, 63)->ticket = 1;
	seg_seat(s, MADE_PEERS - 1)->sections = 64;
	cookie = epoch_start(s);
	ok(!epoch_done(s, cookie), "the very last slot is seen");
	section(MADE_PEERS - 1, 63)->epoch = UINT64_MAX;
	ok(!epoch_done(s, cookie), "an epoch that has not come yet may be as old as any");
	ok(f.shared->completed < cookie, "and nothing is proved by it");
	section(MADE_PEERS - 1, 63)->epoch = 0;
	ok(epoch_done(s, cookie), "until it is gone");
	seg_seat(s, 1)->sections = 0;
}

static void test_device_section(void)
{
	const struct segment *s = &f.c.seg;
	struct shm_section *sec = section(0, 17);
	uint64_t cookie, ticket;

	epoch_enter(s, 0, 17);
	sec->kind = 1;
	ticket = sec->ticket;
	cookie = epoch_start(s);
	ok(!epoch_done(s, cookie), "a device section is a section");
	ok(!epoch_sweep(s, 0, 17), "it cannot be swept while the device is at it");
	store_release(&sec->done, ticket);
	ok(!epoch_is_open(sec), "the device's signal ends it");
	ok(epoch_done(s, cookie), "no sweep is needed for that");
	handle_sweep_sections(&f.c);
	is_int(sec->epoch, 0, "swept, the slot is idle");
	is_int(sec->kind, 0, "a host slot again");
	ok(sec->ticket > ticket && sec->done < sec->ticket, "with a ticket not yet signalled");

	epoch_enter(s, 0, 17);
	store_release(&sec->done, ticket);
	ok(epoch_is_open(sec), "a late signal of the old ticket does not end the next section");
	sec->done = sec->ticket;
	ok(!epoch_sweep(s, 0, 17), "only device sections are swept");
	sec->ticket++;
	epoch_leave(s, 0, 17);

	epoch_enter(s, 0, 17);
	sec->kind = 1;
	ticket = sec->ticket;
	epoch_end(sec);
	sec->kind = 0;
	epoch_enter(s, 0, 17);
	store_release(&sec->done, ticket);
	ok(epoch_is_open(sec), "nor does one that the slot's last owner was killed with");
	epoch_leave(s, 0, 17);
}

static void test_library_sections(void)
{
	int slot[SHM_SECTIONS], i, library = 0;
	uint64_t seen = 0;

	for (i = 0; i < (int)SHM_SECTIONS; i++) {
		slot[i] = handle_enter(&f.c);
		if (i < 8)
			library += slot[i] < (int)SHM_OWN_SECTIONS;
		if (slot[i] >= 0)
			seen |= 1ull << slot[i];
	}
	is_int(library, 8, "lookups take the library's own slots first");
	ok(seen == UINT64_MAX, "and then any that is free, each once");
	is_int(handle_enter(&f.c), -EAGAIN, "with all 64 open there is none left");
	is_int(gpc_section_enter(&f.c), -EAGAIN, "for gpc_section_enter neither");
	ok(!handle_in_section(&f.c), "they are nobody's sections");
	gpc_section_leave(&f.c, 11);
	ok(epoch_is_open(section(0, SHM_SECTION(11))),
	   "gpc_section_leave does not end what gpc_section_enter did not begin");
	for (i = 0; i < (int)SHM_SECTIONS; i++)
		handle_leave(&f.c, slot[i]);
	i = handle_enter(&f.c);
	ok(i < (int)SHM_OWN_SECTIONS, "afterwards the library's are used again");
	handle_leave(&f.c, i);
}

static void *leave_it(void *arg)
{
	bool *inside = arg;

	*inside = handle_in_section(&f.c);
	gpc_section_leave(&f.c, 0);
	return NULL;
}

static void test_user_sections(void)
{
	pthread_t thread;
	bool other = true;
	int i, n;

	ok(!handle_in_section(&f.c), "this thread has no section open");
	is_int(gpc_section_enter(&f.c), 0, "gpc_section_enter gives the lowest");
	ok(handle_in_section(&f.c), "now it has");
	pthread_create(&thread, NULL, leave_it, &other);
	pthread_join(thread, NULL);
	ok(!other, "another thread has not");
	ok(!handle_in_section(&f.c), "but may leave it");
	is_int(section(0, SHM_SECTION(0))->epoch, 0, "and it is closed");

	for (n = 0; n <= GPC_SECTIONS && gpc_section_enter(&f.c) >= 0; n++)
		;
	is_int(n, GPC_SECTIONS, "a peer has %d sections", GPC_SECTIONS);
	is_int(gpc_section_enter(&f.c), -EAGAIN, "and no more");
	section(0, SHM_SECTION(20))->kind = 1;
	section(0, SHM_SECTION(20))->done = section(0, SHM_SECTION(20))->ticket;
	f.c.section_thread[20] = 0;
	is_int(gpc_section_enter(&f.c), 20, "unless a device has ended one meanwhile");
	for (i = -2; i < 70; i++)
		gpc_section_leave(&f.c, i);
	for (i = n = 0; i < (int)SHM_SECTIONS; i++)
		n += epoch_is_open(section(0, (uint32_t)i));
	is_int(n, 0, "leaving all, and numbers that are none, leaves none open");
	gpc_section_leave(&f.c, 3);
	ok(gpc_section_enter(&f.c) == 0, "leaving twice is harmless");
	gpc_section_leave(&f.c, 0);
}

static void test_public_grace(void)
{
	int inside = gpc_section_enter(&f.c);
	uint64_t cookie = gpc_grace_start(&f.c);

	is_int(gpc_grace_done(&f.c, cookie), 0,
	       "gpc_grace_start waits for the caller's section too");
	gpc_section_leave(&f.c, inside);
	is_int(gpc_grace_done(&f.c, cookie), 1, "and no longer");
	is_int(gpc_grace_done(&f.c, 0), 1, "cookie 0 is always over");
	is_int(gpc_grace_done(&f.c, cookie + 1), -EINVAL, "a cookie that was never given");

	inside = gpc_section_enter(&f.c);
	section(0, SHM_SECTION((uint32_t)inside))->kind = 1;
	f.c.section_thread[inside] = 0;
	cookie = gpc_grace_start(&f.c);
	is_int(gpc_grace_done(&f.c, cookie), 0, "a device section of the caller counts");
	section(0, SHM_SECTION((uint32_t)inside))->done =
		section(0, SHM_SECTION((uint32_t)inside))->ticket;
	is_int(gpc_grace_done(&f.c, cookie), 1, "until the device is done");
	is_int(section(0, SHM_SECTION((uint32_t)inside))->epoch, 0, "polling sweeps it (rule S4)");
}

static void test_unusable(void)
{
	f.c.readonly = true;
	is_int(gpc_section_enter(&f.c), -EROFS, "read-only: no section");
	is_int((long long)gpc_grace_start(&f.c), 0, "no grace period");
	is_int(gpc_grace_done(&f.c, 0), -EROFS, "none to ask for");
	is_int(handle_check(&f.c, false), 0, "other calls are fine");
	f.c.readonly = false;
	f.c.forked = true;
	is_int(gpc_section_enter(&f.c), -ECHILD, "a forked handle says so");
	is_int(handle_check(&f.c, false), -ECHILD, "in every call");
	f.c.forked = false;
	is_int(gpc_section_enter(NULL), -EINVAL, "so does NULL");
	gpc_section_leave(NULL, 0);
	is_int(gpc_grace_done(NULL, 0), -EINVAL, "in every call");
}

static void test_exact_tick(void)
{
	uint64_t first = handle_ticks(&f.c, 1);

	is_int((long long)(handle_ticks(&f.c, 1) - first), 1, "exact ticks: one for each call");
	is_int((long long)(f.shared->tick - first), 1, "kept in the segment");
	is_int((long long)(handle_ticks(&f.c, 5) - first), 6, "a long call has several");

	/* of those 2^22 ticks apart one has a stamp that ends in 32 zeros */
	f.shared->tick = (3 << 22) - 4;
	is_int((long long)handle_ticks(&f.c, 4), (3 << 22) + 4, "which is left out");
	f.shared->tick = first + 6;
}

static void test_timed_tick(void)
{
	/* as long as can be: the clock began with the machine, and nothing came before it */
	const uint64_t us = MIN(clock_coarse_ns() / 2000, 3600ull * 1000 * 1000), step = us * 1000;
	uint64_t tick, now;

	f.c.seg.header.tick_us = (uint32_t)us;
	f.shared->tick = 100;
	f.shared->tick_ns = clock_coarse_ns();
	f.c.tick_raised_ns = 0;
	is_int((long long)handle_ticks(&f.c, 1), 100, "a timed tick stays for its time");
	f.shared->tick_ns -= step;
	is_int((long long)handle_ticks(&f.c, 1), 101, "then whoever comes moves it on");
	is_int((long long)handle_ticks(&f.c, 1), 101, "and the time begins anew");
	is_int((long long)f.shared->tick, 101, "kept in the segment");
	f.shared->tick_ns += 2 * step;
	is_int((long long)handle_ticks(&f.c, 1), 101,
	       "a clock that is behind makes one step at a time");
	f.c.tick_raised_ns -= step;
	is_int((long long)handle_ticks(&f.c, 1), 102, "but does make it");

	f.c.seg.header.tick_us = 2;
	tick = handle_ticks(&f.c, 1);
	now = clock_coarse_ns();
	while (clock_coarse_ns() == now)
		sched_yield();
	ok(handle_ticks(&f.c, 1) > tick, "the clock does move");
	f.c.seg.header.tick_us = 1;
}

/* The child finds every handle marked and gives the memory of its copy up. */
static void test_fork(void)
{
	struct made *g = calloc(1, sizeof(*g));
	void *index, *control;
	int status = -1;
	pid_t pid;

	made_in_memory(g, 16, 8);
	index = g->c.seg.index;
	control = g->c.seg.control;
	is_int(fork_register(&f.c), 0, "a handle is entered in the list");
	is_int(fork_register(&g->c), 0, "another");
	pid = fork();
	if (!pid) {
		gpc_block b = 5;
		gpc_key key = made_key(1);
		bool good = f.c.forked && g->c.forked && !g->c.seg.index &&
			    gpc_lookup(&f.c, 0, &key, 1, &b, 0) == -ECHILD && b == 5 &&
			    gpc_acquire(&g->c, 0, &key, 1, &b, 0) == -ECHILD &&
			    gpc_key_hash(&f.c, &(struct gpc_prompt){ 0 }, 1, 0) == -ECHILD;

		fork_forget(&f.c); /* of an empty list */
		free(index);
		free(control);
		_exit(!good);
	}
	waitpid(pid, &status, 0);
	is_int(status, 0, "the child's handles are marked, and answer -ECHILD");
	ok(!f.c.forked && !g->c.forked && g->c.seg.index, "the parent's are not");
	fork_forget(&f.c);
	pid = fork();
	if (!pid)
		_exit(f.c.forked || !g->c.forked);
	waitpid(pid, &status, 0);
	is_int(status, 0, "a handle that was forgotten is left alone");
	fork_forget(&g->c);
	made_free(g);
	free(g);
}

/* Readers follow a pointer to one of two places, the writer moves it, waits for a
 * grace period and spoils the old place.  A reader that meets a spoiled place was not
 * waited for. */
#define PLACES 4
#define TURNS  10000

static uint64_t place[PLACES], visible, wrong, reads, stop;

static void *reader(void *arg)
{
	uint32_t peer = (uint32_t)(uintptr_t)arg % MADE_PEERS, i = 0;

	while (!load_relaxed(&stop)) {
		uint64_t *p;

		i = (i + 5) % SHM_SECTIONS;
		if (!i)
			sched_yield(); /* there may be two processors */
		if (!epoch_enter(&f.c.seg, peer, i))
			continue;
		p = &place[load_relaxed(&visible)];
		if (load_relaxed(p) != 1 || load_relaxed(p) != 1)
			count_add(&wrong, 1);
		count_add(&reads, 1);
		epoch_leave(&f.c.seg, peer, i);
	}
	return NULL;
}

static void test_threads(void)
{
	pthread_t thread[3];
	uint64_t cookie, old;
	uintptr_t i;

	for (i = 0; i < PLACES; i++)
		place[i] = 0;
	place[0] = 1;
	for (i = 0; i < ARRAY_SIZE(thread); i++)
		pthread_create(&thread[i], NULL, reader, (void *)(i / 2));
	for (i = 0; i < TURNS || load_relaxed(&reads) < TURNS; i++) {
		old = load_relaxed(&visible);
		store_relaxed(&place[(old + 1) % PLACES], 1);
		/* as the table does it: complete before it is visible */
		store_release(&visible, (old + 1) % PLACES);
		cookie = epoch_start(&f.c.seg);
		while (!epoch_done(&f.c.seg, cookie))
			sched_yield();
		store_relaxed(&place[old], 0);
	}
	store_relaxed(&stop, 1);
	for (i = 0; i < ARRAY_SIZE(thread); i++)
		pthread_join(thread[i], NULL);
	is_int((long long)wrong, 0, "no reader met a place that was reused too early");
	ok(load_relaxed(&reads) >= TURNS, "and they did read");
}

/* The two sides of a grace period in lockstep.  In each round the reader enters and
 * looks, the writer unpublishes and scans; both may see the other, one must.
 * GPC_T_SECONDS=n: for so long. */
#define ROUNDS 100000

static struct made g;
static uint64_t published, begun, ended, saw;
static uint64_t delay; /* of the writer */
enum { OVER = 2, TOO_LATE = 1 << 15 };

static void spin_until(const uint64_t *word, uint64_t value)
{
	int n;

	for (n = 1; load_acquire(word) < value; n++) {
		if (n % 256)
			order_pause();
		else
			sched_yield();
	}
}

static void *lockstep_reader(void *arg)
{
	uint64_t round;

	(void)arg;
	meet_on(1);
	for (round = 1;; round++) {
		spin_until(&begun, round);
		if (load_relaxed(&published) == OVER)
			return NULL;
		meet_late();
		epoch_enter(&g.c.seg, 0, 0);
		store_relaxed(&saw, load_relaxed(&published));
		store_release(&ended, round);
	}
}

static void test_lockstep(void)
{
	pthread_t thread;
	uint64_t round, step, cookie, both_blind = 0;
	const char *seconds = getenv("GPC_T_SECONDS");
	uint64_t until =
		clock_ns() + (seconds ? strtoull(seconds, NULL, 10) : 0) * 1000 * NS_PER_MS;
	bool over;

	made_in_memory(&g, 16, 8); /* a short scan */
	pthread_create(&thread, NULL, lockstep_reader, NULL);
	meet_on(0);
	for (round = 1; (round <= ROUNDS || clock_ns() < until) && !both_blind; round++) {
		store_relaxed(&published, 1);
		store_release(&begun, round);
		/* a little later when it was too early, and the reverse: that is where they meet */
		for (step = delay + round % 64; step; step--)
			(void)load_relaxed(&delay);
		meet_late();
		store_relaxed(&published, 0);
		cookie = epoch_start(&g.c.seg);
		over = epoch_done(&g.c.seg, cookie);
		spin_until(&ended, round);
		both_blind += over && saw;
		if (over && delay < TOO_LATE)
			store_relaxed(&delay, delay + 8);
		else if (!over && delay >= 8)
			store_relaxed(&delay, delay - 8);
		epoch_leave(&g.c.seg, 0, 0);
	}
	store_relaxed(&published, OVER);
	store_release(&begun, round);
	pthread_join(thread, NULL);
	made_free(&g);
	is_int((long long)both_blind, 0, "in each of %llu rounds one saw the other",
	       (unsigned long long)round - 1);
}

static int body(void)
{
	made_in_memory(&f, 16, 8);
	test_slot();
	test_grace();
	test_grace_order();
	test_untrusted();
	test_device_section();
	test_library_sections();
	test_user_sections();
	test_public_grace();
	test_unusable();
	test_exact_tick();
	test_timed_tick();
	test_fork();
	test_threads();
	test_lockstep();
	made_free(&f);
	return done_testing();
}

int main(void)
{
	return tap_guard(50, body, NULL);
}
