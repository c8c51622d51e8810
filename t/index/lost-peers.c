/* SPDX-License-Identifier: Apache-2.0 */
/* Peers whose lock is free, in each case of what is known of their process.  Until it has surely
 * exited nobody gets the seat, its references stay, and what it had reserved is not free.
 * Tests: lib/index/segment/lockfile.c lib/index/writer/reap.c lib/index/peer/seat.c */
#include "t/lib/cache.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "index/base/fd.h"
#include "index/peer/handle.h"
#include "index/peer/seat.h"
#include "index/segment/lockfile.h"
#include "index/table/state.h"

enum { BLOCKS = 8, SEATS = 2, LONG_MS = 3600 * 1000, TEN_S = 10 * 1000 };

static gpc *c;                   /* the writer */
static uint32_t peer = 1;        /* the one that is lost */
static gpc_block held, reserved; /* what it has */

static void begin(uint32_t quarantine_ms)
{
	struct gpc_config cfg = cache_config(BLOCKS, 0);
	gpc_key k = { { 1, 2 } };
	gpc_block b;

	cfg.max_peers = SEATS;
	cfg.quarantine_ms = quarantine_ms;
	c = cache_make(&cfg, NULL);
	must(gpc_reserve(c, 0, 1, &b, NULL, 0, -1));
	must(gpc_publish(c, NULL, &k, &b, 1, NULL, 0, -1));
	must(gpc_release(c, &b, 1));
}

static const struct shm_seat *seat(void)
{
	return seg_seat(&c->seg, peer);
}

/* What a peer may have copies under way into: one block of each kind. */
static gpc *sits(void)
{
	gpc *d = cache_attach(0, 0);
	gpc_key k = { { 1, 2 } };

	must(gpc_acquire(d, 0, &k, 1, &held, 0));
	if (gpc_reserve(d, 0, 1, &reserved, NULL, 0, 5000) != 1)
		bail("no block");
	return d;
}

static void serves(int times)
{
	while (times--)
		must(gpc_writer_serve(c, 5));
}

static bool is_kept(void)
{
	return seat()->state == SEAT_TAKEN && *seg_cell(&c->seg, (uint32_t)held, peer) == 1 &&
	       WORD_STATE(seg_record(&c->seg, (uint32_t)reserved)->word) != FREE;
}

static bool is_given_back(void)
{
	return seat()->state == SEAT_FREE && !*seg_cell(&c->seg, (uint32_t)held, peer);
}

static bool comes_back(void)
{
	int i;

	for (i = 0;
	     i < 1000 && !(is_given_back() &&
			   WORD_STATE(seg_record(&c->seg, (uint32_t)reserved)->word) == FREE);
	     i++)
		serves(1);
	return i < 1000;
}

static bool nobody_sits(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	gpc *e = NULL;

	return gpc_attach(cache_name, &opt, 0, &e) == -EUSERS;
}

static void ends(const char *what)
{
	clean(c, what);
	cache_end(c);
}

/* ---- a process of its own ---- */

static struct {
	gpc_block held, reserved;
	uint32_t ready;
} * told;

static void sits_without_lock(void)
{
	gpc *d = sits();

	told->held = held;
	told->reserved = reserved;
	fd_close(d->seg.lock_fd);
}

/* Its lock goes, as the kernel drops it before a process has exited; and it is stopped. */
static pid_t one_that_stops(void)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		bail("no process");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sits_without_lock();
		raise(SIGSTOP);
		_exit(0);
	}
	while (waitpid(pid, &status, WUNTRACED | WNOHANG) == 0)
		serves(1);
	held = told->held;
	reserved = told->reserved;
	return pid;
}

static void test_stopped(void)
{
	pid_t pid;

	begin(1); /* no time counts as long as the process is seen */
	pid = one_that_stops();
	is_int(lock_test(c->seg.lock_fd, LOCK_PEER(peer)), 0,
	       "a process that is stopped has lost its lock");
	serves(40);
	ok(is_kept(), "what it has is its own still");
	ok(seat()->lost_ns, "it is noted that it is lost");
	ok(nobody_sits(), "nobody gets its seat");
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	serves(40);
	ok(is_kept(), "the next writer keeps it as well");
	kill(pid, SIGKILL);
	ok(comes_back(), "killed, and nobody has waited for it: all comes back from a zombie");
	is_int(waitpid(pid, NULL, WNOHANG), pid, "which it was");
	is_int((int)seat()->lost_ns, 0, "nothing is noted for the next one");
	ends("a stopped one");
}

/* Every thread of it, not the first one alone. */
static void *sleeps(void *arg)
{
	(void)arg;
	store_release(&told->ready, 1);
	for (;;)
		pause();
	return NULL;
}

static void test_half_zombie(void)
{
	pthread_t t;
	pid_t pid;

	begin(1);
	store_release(&told->ready, 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sits_without_lock();
		if (pthread_create(&t, NULL, sleeps, NULL))
			_exit(1);
		pthread_exit(NULL);
	}
	while (!load_acquire(&told->ready) || lock_test(c->seg.lock_fd, LOCK_PEER(peer)) != 0)
		serves(1);
	held = told->held;
	reserved = told->reserved;
	serves(40);
	ok(is_kept(), "a zombie whose other thread runs is there still");
	kill(pid, SIGKILL);
	ok(comes_back(), "then it is gone");
	waitpid(pid, NULL, 0);
	ends("half a zombie");
}

/* ---- forged identities: of this process, which is there ---- */

static gpc *loses(void)
{
	gpc *d;

	serve_begin(c);
	d = sits();
	serve_end();
	lock_drop(d->seg.lock_fd, LOCK_PEER(d->peer));
	return d;
}

/* Who it is is noted when it comes; so another writer has to see this for the first time. */
static void next_writer(void)
{
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	serves(4);
}

static void test_reused(void)
{
	gpc *d;

	begin(LONG_MS);
	d = loses();
	seg_seat(&d->seg, d->peer)->start_time--;
	next_writer();
	ok(comes_back(), "the number of its process is another one's by now: it is gone");
	must(gpc_close(d));
	ends("a number that was given again");
}

static void test_elsewhere(void)
{
	struct shm_seat *s;
	gpc *d;

	begin(TEN_S);
	d = loses();
	s = seg_seat(&d->seg, d->peer);
	s->namespaces ^= 1;
	next_writer();
	ok(is_kept(), "of other namespaces: all of it stays for the quarantine");
	ok(s->lost_ns && s->lost_ns <= clock_ns(), "which the seat has the beginning of");
	ok(nobody_sits(), "nobody gets the seat");
	store_release(&s->lost_ns, clock_ns() + LONG_MS * NS_PER_MS);
	serves(40);
	ok(is_kept() && s->lost_ns <= clock_ns(), "a time to come, of another clock, is now");
	store_release(&s->lost_ns, 1); /* long ago, as a writer that is dead has noted it */
	next_writer();
	serves(10);
	ok(is_given_back(), "when that is over the seat is free, also for the next writer");
	must(gpc_close(d));
	ends("another namespace");
}

/* All seats are of the lost, and no writer: who attaches clears them when the time is over. */
static void test_no_writer(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt),
					  .dir = cache_dir,
					  .timeout_ms = 20000 };
	struct shm_seat *s;
	gpc *d, *e;

	begin(200);
	d = loses();
	s = seg_seat(&d->seg, d->peer);
	s->namespaces ^= 1;
	must(gpc_writer_drop(c));
	is_int(gpc_attach(cache_name, &opt, 0, &e), 0, "one seat is lost, and there is no writer");
	is_int((int)e->peer, (int)peer, "who comes waits for the quarantine, and has it");
	must(gpc_close(e));
	must(gpc_writer_take(c, 0, 0));
	serves(10);
	must(gpc_close(d));
	ends("without a writer");
}

static void test_freed_itself(void)
{
	gpc *d;

	begin(LONG_MS);
	d = loses();
	store_release(&seg_seat(&d->seg, d->peer)->state, SEAT_FREE);
	serves(10);
	ok(is_kept(), "who says itself that its seat is free is lost all the same");
	must(gpc_close(d));
	serves(10);
	ok(is_given_back(), "until it leaves");
	ends("a seat that was freed by its owner");
}

/* ---- the cost ---- */

static int looks;

enum identity_answer __real_identity_look(const struct identity *id);
enum identity_answer __wrap_identity_look(const struct identity *id);
enum identity_answer __wrap_identity_look(const struct identity *id)
{
	looks++;
	return __real_identity_look(id);
}

bool __real_identity_gone(const struct identity *id);
bool __wrap_identity_gone(const struct identity *id);
bool __wrap_identity_gone(const struct identity *id)
{
	looks++;
	return __real_identity_gone(id);
}

static void test_cost(void)
{
	gpc *d;
	int i;

	begin(1);
	d = cache_attach(0, 0);
	serves(1);
	looks = 0;
	for (i = 0; i < 200; i++) {
		c->writer->next_housekeep_ns = 0;
		must(gpc_writer_serve(c, 0));
	}
	ok(looks <= 2 * 100,
	   "of a peer that lives only the lock is looked at: %d looks at its "
	   "process in 200 rounds",
	   looks);
	must(gpc_close(d));
	ends("peers that live");
}

static int body(void)
{
	cache_thread = false;
	told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (told == MAP_FAILED)
		bail("no shared page");
	test_stopped();
	test_half_zombie();
	test_reused();
	test_elsewhere();
	test_no_writer();
	test_freed_itself();
	test_cost();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
