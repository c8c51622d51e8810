/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_check waits for a writer in the middle of a change, however long it has no processor, and tells
 * its half from damage: each row of the table of look/check_pace.c.
 *
 * The time of the library is the test's: it goes on by a second with each look at the clock, where the
 * test says so.
 * Tests: lib/look/check_pace.c lib/look/check.c lib/look/check_record.c */
#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "t/lib/checked.h"

static struct made *m;
static int writer_fd; /* has the writer's lock, where no child has it */
static uint64_t late; /* added to the time */
static bool hurries;

static struct {
	int copies;
	bool passes; /* one ends with each look at the clock */
} turn;

int __real_segment_refresh(struct segment *s);
int __wrap_segment_refresh(struct segment *s);
uint64_t __real_clock_ns(void);
uint64_t __wrap_clock_ns(void);

uint64_t __wrap_clock_ns(void)
{
	if (turn.passes)
		store_relaxed(&m->state->passes, m->state->passes + 2);
	if (hurries)
		late += 1000 * NS_PER_MS;
	return __real_clock_ns() + late;
}

int __wrap_segment_refresh(struct segment *s)
{
	turn.copies++;
	return __real_segment_refresh(s);
}

static struct shm_record *half(void)
{
	return made_record(m, 7);
}

/* A change of 0.7 s of the clock, which is more than nine copies take: then all is whole. */
static void *slow_writer(void *arg)
{
	struct timespec pause = { .tv_nsec = 700 * 1000 * 1000 };

	nanosleep(&pause, NULL);
	half()->check ^= 1;
	order_stores();
	store_relaxed(&m->state->passes, m->state->passes + 1);
	return arg;
}

static void begin(const char *name)
{
	static struct made made;

	m = &made;
	made_new(m, name, MADE_BLOCKS);
	fill(m);
	made_count(m);
	memset(&turn, 0, sizeof(turn));
	writer_fd = segment_open_lock(&m->c.seg);
	lock_try(writer_fd, LOCK_WRITER);
}

static void end(void)
{
	hurries = false;
	close(writer_fd);
	made_free(m);
}

static void test_slow(void)
{
	pthread_t thread;

	begin("check-slow");
	half()->check ^= 1;
	m->state->passes = 5;
	if (pthread_create(&thread, NULL, slow_writer, NULL))
		bail("no thread");
	is_int(check(m), 0, "a change that takes longer than nine copies is no damage");
	tell();
	pthread_join(thread, NULL);
	end();
}

static void test_damage(void)
{
	begin("check-damage");
	half()->check ^= 1;
	m->state->passes = 4;
	expect(m, 1, "record 7 (block 0x00000007): its check word is wrong");
	is_int(turn.copies, 9, "a writer between two passes: nine copies");
	turn.passes = true;
	m->state->passes = 5;
	expect(m, 1, "record 7 (block 0x00000007): its check word is wrong");
	lock_drop(writer_fd, LOCK_WRITER);
	turn.passes = false;
	turn.copies = 0;
	expect(m, 1, "record 7 (block 0x00000007): its check word is wrong");
	is_int(turn.copies, 1, "nobody lives: one copy, whatever its passes");
	end();
}

static void test_hangs(void)
{
	begin("check-hangs");
	m->state->passes = 5;
	expect(m, 0, ""); /* nothing is wrong, so nobody is waited for */
	half()->check ^= 1;
	hurries = true;
	is_int(check(m), -EAGAIN, "a writer that is in one pass for ever");
	is_str(gpc_last_error(),
	       "the writer of check-hangs (pid 0) has been for 10 seconds in the middle of a change: "
	       "1 violations may be what is half done",
	       "the sentence says so");
	is_int(heard.lines, 0, "no line is told");
	end();
}

/* ---- a process ---- */

/* It has the lock; the seat and the state say so. */
static pid_t writer_process(void)
{
	struct shm_seat *seat = seg_seat(&m->c.seg, 2);
	struct identity who;
	char path[400];
	pid_t pid;
	int fds[2];

	if (pipe(fds) || (pid = fork()) < 0)
		bail("no process");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		identity_self(&who);
		snprintf(path, sizeof(path), "%s/gpc.%s.lock", scratch, m->c.seg.name);
		if (lock_try(open(path, O_RDWR), LOCK_WRITER) ||
		    write(fds[1], &who, sizeof(who)) != sizeof(who))
			_exit(1);
		for (;;)
			pause();
	}
	close(fds[1]);
	if (read(fds[0], &who, sizeof(who)) != sizeof(who))
		bail("no writer");
	close(fds[0]);
	seat->pid = who.pid;
	seat->start_time = who.start_time;
	seat->namespaces = who.namespaces;
	m->state->writer_pid = who.pid;
	m->state->writer_peer = 3;
	return pid;
}

static void test_stopped(void)
{
	char want[64];
	pid_t pid;

	begin("check-stopped");
	close(writer_fd);
	pid = writer_process();
	m->state->passes = 5;
	half()->check ^= 1;
	stop_process(pid);
	is_int(check(m), -EAGAIN, "a writer that is stopped in the middle of a change");
	snprintf(want, sizeof(want), "(pid %d) is stopped in the middle of a change", (int)pid);
	ok(strstr(gpc_last_error(), want) != NULL, "which the sentence says: %s", gpc_last_error());
	m->state->passes = 6;
	expect(m, 1, "its check word is wrong"); /* one that is stopped, and not within a change */
	m->state->passes = 5;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	expect(m, 1, "its check word is wrong");
	writer_fd = -1;
	end();
}

/* ---- what more passes end ---- */

static void test_relocation(void)
{
	struct probe_key p;

	begin("check-two-entries");
	p = made_probe(m, 0, made_key(2));
	made_entry(m, (uint64_t)p.first * SHM_BUCKET)->w[2] |= PROBE_OVERFLOW;
	made_fill(m, (uint64_t)p.second * SHM_BUCKET + 2, p, 7);
	hurries = true;
	expect(m, 0, ""); /* its writer does not serve */
	hurries = false;
	turn.passes = true;
	expect(m, 1, "record 7 (block 0x00000007): a table entry in each of its buckets");
	end();
}

static int body(void)
{
	test_slow();
	test_damage();
	test_hangs();
	test_stopped();
	test_relocation();
	return done_testing();
}

int main(void)
{
	scratch_make("check-waits");
	return tap_guard(50, body, scratch_remove);
}
