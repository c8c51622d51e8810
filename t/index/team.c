/* SPDX-License-Identifier: Apache-2.0 */
/* index/base/parallel.h: each job once, whatever threads there are; the program's signals are the
 * caller's.
 * Tests: lib/index/base/parallel.c lib/index/base/worker.c */
#include "config.h"

#include "index/base/parallel.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "index/base/base.h"
#include "index/base/order.h"
#include "t/lib/tap.h"

enum { MOST = 1000, LIMIT = 16 };

struct job {
	uint32_t done;
	pthread_t by;
	sigset_t mask;
};

static struct job job[MOST + 1];               /* the last one is nobody's */
static uint32_t started, allowed = UINT32_MAX; /* of pthread_create */

/* The system gives so many threads, and no more. */
int __real_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	int err = started < allowed ? __real_pthread_create(t, attr, run, arg) : EAGAIN;

	started += !err;
	return err;
}

static void do_job(void *arg)
{
	struct job *j = arg;

	count_add(&j->done, 1);
	j->by = pthread_self();
	pthread_sigmask(SIG_SETMASK, NULL, &j->mask);
}

/* Were all of n done once, and nothing else? */
static bool run(uint32_t threads, uint32_t n)
{
	uint32_t i, right = 0;

	memset(job, 0, sizeof(job));
	started = 0;
	parallel_run(threads, do_job, job, sizeof(*job), n);
	for (i = 0; i <= MOST; i++)
		right += job[i].done == (i < n);
	return right == MOST + 1;
}

static void test_each_once(void)
{
	static const uint32_t threads[] = { 0, 1, 2, 3, 7, 15, 16, 17, 100, UINT32_MAX };
	static const uint32_t n[] = { 0, 1, 2, 3, 7, 15, 16, 17, 64, MOST };
	uint32_t i, j, most, bad = 0, many = 0;

	for (i = 0; i < ARRAY_SIZE(threads); i++)
		for (j = 0; j < ARRAY_SIZE(n); j++) {
			bad += !run(threads[i], n[j]);
			most = MIN(MIN(threads[i], LIMIT), n[j]);
			many += started != (most ? most - 1 : 0);
		}
	is_int(bad, 0, "each job is done once");
	is_int(many, 0, "by as many threads as are asked for, the caller included, at most 16");
}

static void test_few_threads(void)
{
	uint32_t bad = 0;

	for (allowed = 0; allowed < LIMIT; allowed++)
		bad += !run(LIMIT, MOST) || started != MIN(allowed, LIMIT - 1);
	is_int(bad, 0, "threads that the system does not give are done without");
	allowed = 0;
	run(LIMIT, 1);
	ok(pthread_equal(job[0].by, pthread_self()), "even all of them");
	allowed = UINT32_MAX;
}

/* ---- two at the same time ---- */

struct pair {
	bool both;
	pthread_t by;
	sigset_t mask;
};

static uint32_t met;

/* Until so many have come here, both of them each time; false: the other one does not come. */
static bool meet(uint32_t n)
{
	struct timespec now, until;

	count_add(&met, 1);
	clock_gettime(CLOCK_MONOTONIC, &until);
	do {
		if (load_acquire(&met) >= n)
			return true;
		sched_yield();
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < until.tv_sec + 5);
	return false;
}

static void look(void *arg)
{
	struct pair *p = arg;

	p->both = meet(2);
	p->by = pthread_self();
	pthread_sigmask(SIG_SETMASK, NULL, &p->mask);
}

static bool run_pair(void (*run_one)(void *arg), struct pair *p)
{
	met = 0;
	parallel_run(2, run_one, p, sizeof(*p), 2);
	return p[0].both && p[1].both;
}

static void test_together(void)
{
	struct pair p[2];

	ok(run_pair(look, p), "two jobs are done at the same time");
	ok(!pthread_equal(p[0].by, p[1].by) && (pthread_equal(p[0].by, pthread_self()) ||
						pthread_equal(p[1].by, pthread_self())),
	   "one of them by the caller");
}

/* ---- signals ---- */

static pthread_t caller, heard_by;
static volatile sig_atomic_t heard;

static void hear(int sig UNUSED)
{
	heard_by = pthread_self();
	heard++;
}

static bool same(const sigset_t *a, const sigset_t *b)
{
	int sig, n = 0;

	for (sig = 1; sig < NSIG; sig++)
		n += sigismember(a, sig) != sigismember(b, sig);
	return !n;
}

static bool all_blocked(const sigset_t *set)
{
	static const int some[] = { SIGUSR1, SIGTERM, SIGINT, SIGCHLD, SIGALRM, SIGPROF };
	uint32_t i, n = 0;

	for (i = 0; i < ARRAY_SIZE(some); i++)
		n += sigismember(set, some[i]) == 1;
	return n == ARRAY_SIZE(some);
}

/* The caller does not want it; the other one is asked by nobody. */
static void send(void *arg)
{
	struct pair *p = arg;
	sigset_t usr1;

	p->both = meet(2);
	if (pthread_equal(pthread_self(), caller)) {
		sigemptyset(&usr1);
		sigaddset(&usr1, SIGUSR1);
		pthread_sigmask(SIG_BLOCK, &usr1, NULL);
		kill(getpid(), SIGUSR1);
	}
	p->both = meet(4) && p->both;
}

static void test_masks(const sigset_t *before)
{
	uint32_t i, member, changed = 0;
	struct pair p[2];
	sigset_t after;

	if (!run_pair(look, p))
		bail("no second thread");
	member = pthread_equal(p[0].by, caller);
	ok(all_blocked(&p[member].mask), "all signals are blocked in a member");
	ok(same(&p[!member].mask, before), "the caller has its own mask meanwhile");
	for (allowed = 0; allowed <= LIMIT; allowed++)
		for (i = 0; i < LIMIT; i++) {
			run(i, MOST);
			pthread_sigmask(SIG_SETMASK, NULL, &after);
			changed += !same(before, &after);
		}
	allowed = UINT32_MAX;
	is_int(changed, 0, "and afterwards, with and without threads");
}

static void test_signals(void)
{
	struct sigaction act = { .sa_handler = hear };
	struct pair p[2];
	sigset_t mask;

	caller = pthread_self();
	sigaction(SIGUSR1, &act, NULL);
	sigemptyset(&mask);
	sigaddset(&mask, SIGWINCH);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	test_masks(&mask);
	ok(run_pair(send, p) && !heard, "no member hears the program's signals");
	sigemptyset(&mask);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	is_int(heard, 1, "the caller hears them when it wants to");
	ok(heard && pthread_equal(heard_by, caller), "and nobody else");
}

/* ---- a fork meanwhile ---- */

enum { STACK = 64 << 10, FORKS = 4 };

static uint32_t working, may_end;

static void work_on(void *arg)
{
	(void)arg;
	count_add(&working, 1);
	while (!load_acquire(&may_end))
		usleep(1000);
}

static void *have_a_team(void *arg)
{
	parallel_run(2, work_on, job, sizeof(*job), 2);
	return arg;
}

static void *use_stack(void *arg)
{
	volatile uint8_t text[STACK];
	size_t i;

	for (i = 0; i < sizeof(text); i++)
		text[i] = 0xa5;
	return text[STACK / 2] ? arg : NULL;
}

/* A child: its threads have the stacks of its parent's, and it forks. */
static void be_a_child(void)
{
	pthread_t t[FORKS];
	int i, status;
	pid_t pid;

	for (i = 0; i < FORKS; i++)
		if (pthread_create(&t[i], NULL, use_stack, NULL))
			_exit(2);
	for (i = 0; i < FORKS; i++)
		pthread_join(t[i], NULL);
	pid = fork();
	if (!pid)
		_exit(0);
	_exit(pid < 0 || waitpid(pid, &status, 0) != pid || status ? 3 : !run(2, 2));
}

/* The team is on the stack of a thread that a child does not have. */
static void test_fork(void)
{
	pthread_t t;
	int i, status, bad = 0;

	if (pthread_create(&t, NULL, have_a_team, NULL))
		bail("no thread");
	while (load_acquire(&working) < 2)
		usleep(1000);
	for (i = 0; i < FORKS; i++) {
		pid_t pid = fork();

		if (!pid)
			be_a_child();
		bad += pid < 0 || waitpid(pid, &status, 0) != pid || status;
	}
	store_release(&may_end, 1);
	pthread_join(t, NULL);
	is_int(bad, 0,
	       "a child that is forked beside a team uses its stacks, forks, and has teams");
}

/* ---- how many ---- */

static void test_size(void)
{
	cpu_set_t all, one;
	int cpu = 0;

	ok(parallel_size() >= 1 && parallel_size() <= LIMIT, "%u threads here",
	   (unsigned)parallel_size());
	if (sched_getaffinity(0, sizeof(all), &all)) {
		skip(2, "more processors than a set has room for");
		return;
	}
	is_int(parallel_size(), MIN(CPU_COUNT(&all), LIMIT), "one for each processor, at most 16");
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		bail("no affinity");
	is_int(parallel_size(), 1, "one where only one processor may be used");
	sched_setaffinity(0, sizeof(all), &all);
}

static int body(void)
{
	test_each_once();
	test_few_threads();
	test_together();
	test_signals();
	test_fork();
	test_size();
	return done_testing();
}

int main(void)
{
	return tap_guard(30, body, NULL);
}
