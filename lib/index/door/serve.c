/* SPDX-License-Identifier: Apache-2.0 */
/* serve.c - the writer's seat is taken, served and given up by a handle.
 * Tests: t/index/name-lost.t t/index/wake-writer.t t/bytes/stopped-writer.t */
#include "config.h"

#include <errno.h>
#include <string.h>
#include "index/segment/files.h"
#include "index/segment/lockfile.h"
#include "index/peer/ring.h"
#include "index/takeover/open.h"
#include "index/writer/loop.h"
#include "index/door/serve.h"

#define LOOK_NS     (5 * NS_PER_MS)    /* the time between looks whether the seat is empty */
#define PATIENCE_NS (2000 * NS_PER_MS) /* the wait for a writer that is giving up the seat */
#define SERVE_NS    (50 * NS_PER_MS)   /* the time of one round of the thread */
#define NAME_NS     (1000 * NS_PER_MS) /* the time between looks whether the cache has its name */

#define SERVED_BY_ANOTHER "another thread serves by this handle: gpc_writer_wake ends that"

/* A thread that serves again and again would have the lock back before a waiting thread is awake.
 * So each passes the gate, which a waiting thread holds until it has the lock. */
static bool serve_begin(gpc *c, uint64_t until)
{
	bool got;

	if (!wait_mutex(&c->serve_gate, until))
		return false;
	got = wait_mutex(&c->serve_lock, until);
	pthread_mutex_unlock(&c->serve_gate);
	return got;
}

/* For a call, which waits only a moment: the thread that serves may do so for ever. */
static int serve_begin_call(gpc *c, uint64_t deadline)
{
	if (serve_begin(c, MAX(deadline, clock_ns() + PATIENCE_NS)))
		return 0;
	return err_set(EAGAIN, SERVED_BY_ANOTHER);
}

static void serve_end(gpc *c)
{
	pthread_mutex_unlock(&c->serve_lock);
}

static void drop_seat(gpc *c)
{
	struct writer *w = c->writer;

	store_relaxed(&c->help, NULL);
	store_relaxed(&c->writer, NULL);
	if (w)
		writer_close(w);
}

/* With serve_lock held. */
static int serve_once(gpc *c, uint64_t deadline_ns)
{
	int n;

	if (!c->writer)
		return err_set(ENOTCONN, "this handle is not the writer");
	n = writer_serve(c->writer, deadline_ns);
	if (n < 0)
		drop_seat(c);
	return n;
}

/* The value of c->help while this handle holds the seat.  If a thread serves already, ours or the
 * program's, it does more than this function would. */
static int help(gpc *c, uint64_t ns)
{
	bool helped;
	int n = 0;

	if (c->serving || pthread_mutex_trylock(&c->serve_lock) != 0)
		return 0;
	if (c->writer)
		n = serve_once(c, clock_ns() + ns);
	helped = c->writer != NULL;
	serve_end(c);
	return n < 0 ? n : helped;
}

/* With serve_lock held. */
static int take_seat(gpc *c)
{
	struct writer *w;
	int err;

	if (c->writer)
		return 0;
	if (lock_test(c->seg.lock_fd, LOCK_WRITER) == 1)
		return -EAGAIN;
	err = writer_open(c, false, &w);
	if (err < 0)
		return err;
	store_relaxed(&c->writer, w);
	store_relaxed(&c->help, help);
	return 0;
}

/* The PID of the last process that was marked as the writer, and that surely is no writer any
 * more; 0: none. */
static int32_t dead_writer(gpc *c)
{
	uint32_t peer = load_relaxed(&seg_state(&c->seg)->writer_peer) - 1;
	const struct shm_seat *s;
	struct identity who;

	if (peer >= c->seg.header.geometry.max_peers)
		return 0;
	s = seg_seat(&c->seg, peer);
	who = (struct identity){ s->pid, s->start_time, s->namespaces };
	return identity_gone(&who) ? who.pid : 0;
}

/* Will the holder of the seat soon give it up?  A process that gives up the seat, or has it only
 * to clear seats, marks it as nobody's.  A process that has just got it has marked nothing yet. */
static bool is_for_a_moment(gpc *c)
{
	return !load_relaxed(&seg_state(&c->seg)->writer_pid) || dead_writer(c);
}

static int has_writer(gpc *c)
{
	int32_t pid = dead_writer(c);

	if (pid) /* a child was made without fork handlers */
		return err_set(EAGAIN,
			       "the writer of %s, process %d, has died, but a child of it "
			       "keeps its lock: end that child",
			       c->seg.name, pid);
	return err_set(EAGAIN, "%s has a writer", c->seg.name);
}

GPC_EXPORT int gpc_writer_take(gpc *c, uint32_t flags, int timeout_ms)
{
	uint64_t deadline = deadline_from(timeout_ms), patience = clock_ns() + PATIENCE_NS;
	int err = handle_check(c, true);

	if (err == 0)
		err = err_flags(flags, GPC_STANDBY);
	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err < 0)
		return err;
	for (;;) {
		err = serve_begin_call(c, deadline);
		if (err < 0)
			return err;
		err = take_seat(c);
		serve_end(c);
		if (err != -EAGAIN)
			return err;
		if (!(flags & GPC_STANDBY) &&
		    (!is_for_a_moment(c) || wait_over(clock_ns(), patience)))
			return has_writer(c);
		if (flags & GPC_STANDBY && wait_over(clock_ns(), deadline))
			return err_set(ETIMEDOUT, "%s still has a writer", c->seg.name);
		clock_sleep(LOOK_NS);
	}
}

GPC_EXPORT int gpc_writer_serve(gpc *c, int timeout_ms)
{
	uint64_t deadline = deadline_from(timeout_ms);
	int n = handle_check(c, true);

	if (n == 0)
		n = err_timeout(timeout_ms);
	if (n == 0)
		n = serve_begin_call(c, deadline);
	if (n < 0)
		return n;
	c->may_wake = true;
	n = serve_once(c, deadline);
	c->may_wake = false;
	serve_end(c);
	return n;
}

/* Uses only atomic operations and one system call, since it may be called in a signal
 * handler. */
GPC_EXPORT void gpc_writer_wake(gpc *c)
{
	int saved = errno;

	if (!c || c->readonly || c->forked)
		return;
	store_relaxed(&c->wake, 1);
	ring_doorbell(
		/* `wake` is stored before the bell: the thread that answers the bell reads `wake`
		 * then */
		c);
	errno = saved;
}

GPC_EXPORT int gpc_writer_drop(gpc *c)
{
	int err = handle_check(c, true);

	if (err < 0)
		return err;
	if (!serve_begin(c, NEVER))
		return err_set(EAGAIN, SERVED_BY_ANOTHER);
	if (!c->writer)
		err = err_set(ENOTCONN, "this handle is not the writer");
	drop_seat(c);
	serve_end(c);
	return err;
}

/* gpcd looks for its name itself.  Here nobody else would, and a lost name does not come back. */
static void look_at_name(gpc *c)
{
	uint64_t now = clock_ns();

	if (c->nameless || now < c->name_ns)
		return;
	c->name_ns = now + NAME_NS;
	c->nameless = !segment_is_named(&c->seg, "idx", c->seg.index_fd);
	if (c->nameless)
		log_say(&c->log, LOG_WARNING,
			"%s: the cache has lost its name: those who are attached go on, nobody else can "
			"come, and its memory is free when the last of them ends; if nobody removed it, "
			"see RemoveIPC in gpc-containers(7)",
			c->seg.name);
}

static uint64_t serve(struct worker *w)
{
	gpc *c = w->arg;
	int err;

	if (worker_stops(w))
		return NEVER;
	worker_unlock(w);
	look_at_name(c);
	serve_begin(c, NEVER);
	err = take_seat(c);
	if (err == 0)
		err = serve_once(c, clock_ns() + SERVE_NS);
	serve_end(c);
	if (err < 0 && err != -EAGAIN)
		log_say(&c->log, LOG_ERR, "not the writer: %s", gpc_last_error());
	worker_lock(w);
	return err < 0 ? clock_ns() + (err == -EAGAIN ? LOOK_NS : 200 * LOOK_NS) : 0;
}

static const struct worker_kind server_kind = { .name = "gpc-serve",
						.what = "that serves",
						.step = serve };

int serve_start(gpc *c)
{
	int err;

	/* the seat is taken first, so the next call finds a writer */
	err = take_seat(c);
	if (err < 0 && err != -EAGAIN)
		return err;
	worker_open(&c->server, &server_kind, c);
	c->serving = true;
	err = worker_start(&c->server, 1);
	if (err < 0) {
		serve_stop(c);
		drop_seat(c);
		return err;
	}
	return 0;
}

void serve_stop(gpc *c)
{
	if (!c->serving)
		return;
	if (!c->forked) {
		worker_halt(&c->server);
		ring_doorbell(c);
	}
	worker_close(&c->server);
	c->serving = false;
}

void serve_leave(gpc *c)
{
	if (c->writer)
		writer_reap(c->writer);
	drop_seat(c);
}

int serve_reap(gpc *c)
{
	struct writer *w;
	int err = writer_open(c, true, &w);

	if (err < 0)
		return err;
	log_say(&c->log, LOG_INFO,
		"%s has no writer, and the dead have its seats: they are "
		"cleared",
		c->seg.name);
	err = writer_reap(w);
	writer_close(w);
	return err;
}
