/* SPDX-License-Identifier: Apache-2.0 */
/* What dead peers leave in their seats, and dead writers in theirs.
 * Tests: lib/index/writer/reap.c lib/index/takeover/open.c */
#include "t/lib/hand.h"

#include <sys/wait.h>
#include <unistd.h>

#include "index/segment/lockfile.h"

/* Its lock is gone and its process is not: something of it may still write. */
static void test_reserved_of_the_dead(void)
{
	gpc_block b, ref;
	gpc_key k;
	uint32_t peer;

	begin();
	peer = d->peer;
	publish(k = key_in(5, 9));
	is_int(gpc_acquire(d, 0, &k, 1, &ref, 0), 1, "a reference");
	serve_begin(c);
	must(gpc_reserve(d, 0, 1, &b, NULL, 0, 60000));
	serve_end();
	lock_drop(d->seg.lock_fd, LOCK_PEER(d->peer));
	must(gpc_writer_serve(c, 50));
	must(gpc_writer_serve(c, 50));
	is_int(seg_seat(&c->seg, d->peer)->state, SEAT_TAKEN, "a seat whose lock went is nobody's");
	is_int(*refs_cell(d, (uint32_t)ref), 1, "its reference is there");
	is_int(WORD_STATE(seg_record(&c->seg, (uint32_t)b)->word), DYING,
	       "what it had reserved is not free yet");
	ok(seg_record(&c->seg, (uint32_t)b)->flags & REC_QUARANTINE, "but in quarantine");
	must(gpc_close(d));
	must(gpc_writer_serve(c, 50));
	is_int(seg_seat(&c->seg, peer)->state, SEAT_FREE, "it leaves: the seat is free");
	is_int(*seg_cell(&c->seg, (uint32_t)ref, peer), 0, "and the reference has gone");
	cache_end(c);
}

/* In a process of its own: attach, say so, and wait for the end. */
static pid_t one_that_dies(void)
{
	int fd[2];
	pid_t pid;
	char x;

	if (pipe(fd) || (pid = fork()) < 0)
		bail("no process");
	if (!pid) {
		cache_attach(0, 0);
		x = write(fd[1], "", 1) != 1;
		for (;;)
			pause();
	}
	if (read(fd[0], &x, 1) != 1)
		bail("it did not attach");
	close(fd[0]);
	close(fd[1]);
	return pid;
}

/* The writer knows who sat there, and that this one is dead; now somebody else sits there. */
static void test_renewed_seat(void)
{
	struct shm_seat *s;
	gpc_block b = GPC_NONE;
	gpc_key k;
	gpc *e;
	pid_t pid;
	int i;

	begin();
	publish(k = key_in(5, 9));
	pid = one_that_dies();
	s = seg_seat(&c->seg, d->peer + 1);
	is_int(s->pid, pid, "another process has a seat");
	must(gpc_writer_serve(c, 50));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	store_release(&s->state, SEAT_FREE);
	e = cache_attach(0, 0);
	is_int(e->peer, d->peer + 1, "it dies, and we have it");
	is_int(gpc_acquire(e, 0, &k, 1, &b, 0), 1, "with a reference");
	for (i = 0; i < 24; i++) /* long enough for looks behind locks, too */
		must(gpc_writer_serve(c, 25));
	is_int(s->state, SEAT_TAKEN, "nobody takes it away");
	is_int(*refs_cell(e, (uint32_t)b), 1, "nor the reference");
	must(gpc_close(e));
	must(gpc_writer_serve(c, 50));
	end("a renewed seat");
}

/* A child that lives on keeps nothing of its parent's. */
static void test_forked_writer(void)
{
	pid_t pid;

	begin();
	pid = fork();
	if (!pid)
		for (;;)
			pause();
	must(gpc_writer_drop(c));
	is_int(gpc_writer_take(d, GPC_STANDBY, 5000), 0, "a writer that forked gives its seat up");
	must(gpc_writer_drop(d));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	must(gpc_writer_take(c, 0, 0));
	end("a writer that forked");
}

static int body(void)
{
	test_reserved_of_the_dead();
	test_renewed_seat();
	test_forked_writer();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
