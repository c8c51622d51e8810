/* SPDX-License-Identifier: Apache-2.0 */
/* index/base/worker.h: steps are called as often as they want, posts are not missed, a stop lets work be
 * done and ends the threads, a forked child begins anew, and a thread that cannot be had is an
 * error.
 * Tests: lib/index/base/worker.c lib/index/base/worker.h lib/index/base/clock.c */
#include "config.h"

#include "index/base/worker.h"

#include <errno.h>
#include <sched.h>

#include "index/base/err.h"
#include "gpc.h"
#include "t/lib/tap.h"

enum { POSTS = 20000, THREADS = 4, ROUNDS = 200 };

/* Work that is counted.  `left` goes down by one in each step that has some. */
struct counter {
	struct worker w;
	uint32_t left, done, running, most_running, forgotten, naps;
	uint64_t nap_ns; /* 0: sleep until a post */
	bool blocked;    /* a step does not return until this is false */
	char name[32];
	sigset_t mask;
};

/* The system gives so many threads, and no more. */
static uint32_t started, allowed = UINT32_MAX;

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

static uint64_t count_step(struct worker *w)
{
	struct counter *c = w->arg;

	pthread_getname_np(pthread_self(), c->name, sizeof(c->name));
	pthread_sigmask(SIG_SETMASK, NULL, &c->mask);
	if (!c->left) {
		if (c->nap_ns)
			c->naps++;
		worker_tell(w);
		return c->nap_ns && !worker_stops(w) ? clock_ns() + c->nap_ns : NEVER;
	}
	c->left--;
	c->running++;
	c->most_running = MAX(c->most_running, c->running);
	worker_tell(w);
	worker_unlock(w);
	while (load_relaxed(&c->blocked))
		sched_yield();
	worker_lock(w);
	c->running--;
	c->done++;
	worker_tell(w);
	return 0;
}

static void forget(struct worker *w)
{
	struct counter *c = w->arg;

	c->left = 0;
	c->forgotten++;
}

static const struct worker_kind kind = { .name = "gpc-counts",
					 .what = "that counts",
					 .step = count_step,
					 .forget = forget };
static const struct worker_kind silent = { .name = "gpc-silent", .step = count_step };

static void post(struct counter *c, uint32_t n)
{
	worker_lock(&c->w);
	c->left += n;
	worker_post_all(&c->w);
	worker_unlock(&c->w);
}

/* Until so much is done. */
static void until_done(struct counter *c, uint32_t n)
{
	worker_lock(&c->w);
	while (c->done < n)
		worker_await(&c->w, NEVER);
	worker_unlock(&c->w);
}

static void test_steps(void)
{
	static struct counter c;
	uint32_t i;
	int sig, blocked = 0;

	worker_open(&c.w, &kind, &c);
	is_int(worker_start(&c.w, 1), 1, "a thread");
	for (i = 1; i <= POSTS; i++) {
		post(&c, 1);
		until_done(&c, i);
	}
	is_int(c.done, POSTS, "each post is followed by a step, however soon it comes");
	ok(strcmp(c.name, "gpc-counts") == 0, "the thread is called %s", c.name);
	for (sig = 1; sig < 32; sig++)
		blocked += sigismember(&c.mask, sig) == 1;
	is_int(blocked, 29, "signals of the program are blocked, but KILL and STOP");
	is_int(worker_start(&c.w, THREADS), THREADS, "more threads");
	is_int(worker_start(&c.w, 2), THREADS, "fewer are there already");
	store_relaxed(&c.blocked, true);
	post(&c, 2 * THREADS);
	worker_lock(&c.w);
	while (c.running < THREADS)
		worker_await(&c.w, NEVER);
	worker_unlock(&c.w);
	is_int(c.most_running, THREADS, "all of them work at a time");
	worker_halt(&c.w);
	store_relaxed(&c.blocked, false);
	worker_stop(&c.w);
	is_int(c.done, POSTS + 2 * THREADS, "what was left is done before they end");
	is_int(c.w.threads, 0, "none is left");
	is_int(worker_start(&c.w, 1), -ESHUTDOWN, "a stopped worker starts none");
	worker_stop(&c.w);
	worker_close(&c.w);
}

static void test_times(void)
{
	static struct counter c;
	uint64_t until = clock_ns() + 20 * NS_PER_MS;
	uint32_t naps;

	worker_open(&c.w, &kind, &c);
	c.nap_ns = NS_PER_MS / 10;
	worker_start(&c.w, 1);
	worker_lock(&c.w);
	while (c.naps < 20)
		worker_await(&c.w, NEVER);
	ok(true, "steps come again when they said, without a post");
	c.nap_ns = 0;
	worker_unlock(&c.w);
	worker_lock(&c.w);
	while (!c.w.idle)
		worker_await(&c.w, clock_ns() + NS_PER_MS);
	naps = c.naps;
	while (worker_await(&c.w, until))
		;
	ok(clock_ns() >= until, "who waits has waited until then");
	is_int(c.naps, (int)naps, "and no step came that nobody asked for");
	worker_unlock(&c.w);
	worker_close(&c.w);
}

static void *post_many(void *arg)
{
	struct counter *c = arg;
	uint32_t i;

	for (i = 0; i < 200; i++) {
		post(c, 1);
		worker_start(&c->w, 1 + i % THREADS);
	}
	return NULL;
}

/* Of what was posted before the stop nothing is left, if a thread was there; start() and stop() in
 * any order end with no thread. */
static void test_stop_while_posting(void)
{
	uint32_t round, left = 0;

	for (round = 0; round < ROUNDS; round++) {
		struct counter c = { 0 };
		pthread_t poster;

		worker_open(&c.w, &kind, &c);
		worker_start(&c.w, 1);
		post(&c, 100);
		__real_pthread_create(&poster, NULL, post_many, &c);
		if (round % 2)
			sched_yield();
		worker_stop(&c.w);
		left += c.done < 100 || c.w.threads;
		pthread_join(poster, NULL);
		left += c.w.threads;
		worker_close(&c.w);
	}
	is_int(left, 0, "a stop while others post and start");
}

static int in_child(struct counter *c)
{
	if (c->w.threads || c->left || c->forgotten != 1 || worker_stops(&c->w))
		return 1;
	store_relaxed(&c->blocked, false);
	c->done = c->running = 0;
	if (worker_start(&c->w, 2) != 2)
		return 2;
	post(c, 10);
	until_done(c, 10);
	worker_close(&c->w);
	return 0;
}

static int child_status(pid_t pid)
{
	int status;

	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_fork(void)
{
	static struct counter c, halted;
	pid_t pid;

	worker_open(&c.w, &kind, &c);
	worker_open(&halted.w, &kind, &halted);
	worker_start(&c.w, THREADS);
	worker_start(&halted.w, 1);
	worker_halt(&halted.w);
	store_relaxed(&c.blocked, true);
	post(&c, 100);
	pid = fork();
	if (pid == 0) {
		int bad = in_child(&c);

		if (!bad && (halted.w.threads || worker_stops(&halted.w)))
			bad = 3;
		worker_close(&halted.w);
		_exit(bad);
	}
	is_int(child_status(pid), 0,
	       "a forked child has no threads and no work, and may have some");
	is_int(c.forgotten, 0, "its parent forgets nothing");
	store_relaxed(&c.blocked, false);
	worker_close(&c.w);
	is_int(c.done, 100, "and does it");
	worker_close(&halted.w);
	pid = fork();
	if (pid == 0)
		_exit(c.forgotten != 0);
	is_int(child_status(pid), 0, "a closed worker is not looked at");
}

/* The threads take the lock all the time. */
static void test_fork_any_time(void)
{
	static struct counter c;
	uint32_t i, bad = 0;

	worker_open(&c.w, &kind, &c);
	c.nap_ns = 1;
	worker_start(&c.w, THREADS);
	for (i = 0; i < ROUNDS; i++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(in_child(&c));
		bad += child_status(pid) != 0;
	}
	is_int(bad, 0, "a fork finds no lock taken");
	worker_close(&c.w);
}

static void test_no_thread(void)
{
	static struct counter c, mute;

	worker_open(&c.w, &kind, &c);
	worker_open(&mute.w, &silent, &mute);
	started = 0;
	allowed = 0;
	is_int(worker_start(&c.w, 2), -EAGAIN, "no thread can be had");
	ok(strstr(gpc_last_error(), "cannot start a thread that counts") != NULL, "says: %s",
	   gpc_last_error());
	err_set(EINVAL, "before");
	is_int(worker_start(&mute.w, 1), -EAGAIN, "the same without a sentence");
	ok(strcmp(gpc_last_error(), "before") == 0, "which stays: %s", gpc_last_error());
	allowed = 1;
	is_int(worker_start(&c.w, 3), 1, "fewer than were asked for");
	post(&c, 5);
	until_done(&c, 5);
	ok(true, "do the work");
	worker_close(&c.w);
	worker_close(&mute.w);
	allowed = UINT32_MAX;
}

static int body(void)
{
	test_steps();
	test_times();
	test_stop_while_posting();
	test_fork();
	test_fork_any_time();
	test_no_thread();
	return done_testing();
}

int main(void)
{
	return tap_guard(60, body, NULL);
}
