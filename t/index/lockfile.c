/* SPDX-License-Identifier: Apache-2.0 */
/* index/lockfile - byte locks between descriptions and processes, and who is gone.
 * Tests: lib/index/segment/lockfile.c */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/stat.h>

#include "index/segment/lockfile.h"
#include "t/lib/tap.h"

static char path[64];

static int open_again(int flags)
{
	int fd = open(path, flags | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0)
		bail("%s: cannot open", path);
	return fd;
}

static void test_descriptions(void)
{
	int a = open_again(O_RDWR), b = open_again(O_RDWR), c = open_again(O_RDONLY), copy;

	is_int(lock_try(a, 0), 0, "a free byte is ours");
	is_int(lock_try(a, 0), 0, "taking it twice is fine");
	is_int(lock_try(b, 0), -EAGAIN, "another description gets -EAGAIN");
	is_int(lock_test(b, 0), 1, "and sees it held");
	is_int(lock_test(c, 0), 1, "so does a read-only one");
	is_int(lock_test(a, 0), 0, "a lock does not conflict with its own");
	is_int(lock_try(b, 1), 0, "the next byte is free");
	is_int(lock_test(a, 1), 1, "and held then");
	is_int(lock_test(a, 2), 0, "the one after it is free");
	is_int(lock_try(c, 2), -EBADF, "a read-only description locks nothing");
	is_int(lock_test(-1, 0), -EBADF, "nor does none");
	lock_drop(a, 0);
	is_int(lock_try(b, 0), 0, "a dropped byte is free");
	close(open_again(O_RDWR));
	is_int(lock_test(a, 0), 1, "closing another descriptor drops nothing");
	copy = dup(b);
	close(b);
	is_int(lock_test(a, 0), 1, "a duplicate keeps the lock");
	close(copy);
	is_int(lock_test(a, 0), 0, "the last one's close drops it");
	close(a);
	close(c);
}

/* A child that holds byte 5 until it is told or killed; *ret_gate ends it when closed. */
static pid_t holder(int *ret_gate)
{
	int ready[2], gate[2];
	char byte = 0;
	pid_t pid;

	if (pipe(ready) || pipe(gate))
		bail("pipe failed");
	pid = fork();
	if (!pid) {
		int fd = open_again(O_RDWR);

		close(ready[0]);
		close(gate[1]);
		if (lock_try(fd, 5) || write(ready[1], "", 1) != 1)
			_exit(1);
		_exit(read(gate[0], &byte, 1) != 0);
	}
	close(ready[1]);
	close(gate[0]);
	if (read(ready[0], &byte, 1) != 1)
		bail("the child did not come up");
	close(ready[0]);
	*ret_gate = gate[1];
	return pid;
}

static void test_death(void)
{
	int fd = open_again(O_RDWR), gate, status;
	pid_t pid = holder(&gate);

	is_int(lock_test(fd, 5), 1, "held by a child");
	kill(pid, SIGSTOP);
	is_int(lock_try(fd, 5), -EAGAIN, "a stopped process is alive");
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	is_int(lock_test(fd, 5), 0, "SIGKILL drops the lock");
	is_int(lock_try(fd, 5), 0, "the next one gets it");
	lock_drop(fd, 5);
	close(gate);
	close(fd);
}

static void test_identity(void)
{
	struct identity me, other;
	struct stat ns;

	identity_self(&me);
	is_int(me.pid, getpid(), "own pid");
	ok(me.start_time, "a start time");
	ok(!stat("/proc/self/ns/pid", &ns) && ns.st_ino == (uint32_t)me.namespaces,
	   "own PID namespace");
	is_int(stat("/proc/self/ns/time", &ns) ? 0 : ns.st_ino, me.namespaces >> 32,
	       "own time namespace");
	ok(!identity_gone(&me), "we are here");
	other = me;
	other.start_time--;
	ok(identity_gone(&other), "whoever had this pid before is gone");
	other = me;
	other.start_time--;
	other.namespaces++;
	ok(!identity_gone(&other), "of another PID namespace we know nothing");
	other.namespaces = me.namespaces ^ 1ull << 32;
	ok(!identity_gone(&other), "nor of another time namespace, where start times differ");
	other = me;
	other.pid = 0;
	ok(!identity_gone(&other), "nor of no process");
	memset(&other, 0, sizeof(other));
	ok(!identity_gone(&other), "nor of zeros");
}

/* Speaks after its identity is known, so that the parent may judge it. */
static void test_exit(void)
{
	struct identity child;
	int gate, fds[2];
	pid_t pid;

	if (pipe(fds))
		bail("pipe failed");
	pid = fork();
	if (!pid) {
		char byte;

		identity_self(&child);
		if (write(fds[1], &child, sizeof(child)) != sizeof(child))
			_exit(1);
		close(fds[1]);
		gate = open("/dev/null", O_RDONLY);
		while (pause() || read(gate, &byte, 1))
			;
	}
	close(fds[1]);
	if (read(fds[0], &child, sizeof(child)) != sizeof(child))
		bail("no identity");
	is_int(child.pid, pid, "the child's own idea of its pid");
	ok(!identity_gone(&child), "a living child");
	kill(pid, SIGKILL);
	waitid(P_PID, (id_t)pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT);
	ok(identity_gone(&child), "a zombie is gone");
	waitpid(pid, NULL, 0);
	ok(identity_gone(&child), "and so is one that was waited for");
	close(fds[0]);
}

static void *stay(void *gate)
{
	char byte;

	_exit(read(*(int *)gate, &byte, 1) != 0);
}

/* The group leader is a zombie, a thread of it runs on and keeps the files open. */
static void test_leader(void)
{
	struct identity child;
	int fds[2], gate[2], i;
	siginfo_t info;
	char name[32], text[256] = "";
	pthread_t t;
	pid_t pid;

	if (pipe(fds) || pipe(gate))
		bail("pipe failed");
	pid = fork();
	if (!pid) {
		close(gate[1]);
		identity_self(&child);
		if (pthread_create(&t, NULL, stay, &gate[0]) ||
		    write(fds[1], &child, sizeof(child)) != sizeof(child))
			_exit(1);
		pthread_exit(NULL);
	}
	close(fds[1]);
	close(gate[0]);
	if (read(fds[0], &child, sizeof(child)) != sizeof(child))
		bail("no identity");
	snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
	for (i = 0; i < 1000000 && !strstr(text, ") Z "); i++) {
		int fd = open(name, O_RDONLY);
		ssize_t n = read(fd, text, sizeof(text) - 1);

		text[n > 0 ? n : 0] = 0;
		close(fd);
		sched_yield();
	}
	ok(strstr(text, ") Z "), "the leader is a zombie");
	ok(!identity_gone(&child), "its process is not gone while a thread runs");
	close(gate[1]);
	waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
	ok(identity_gone(&child), "but then it is");
	waitpid(pid, NULL, 0);
	close(fds[0]);
}

static int body(void)
{
	test_descriptions();
	test_death();
	test_identity();
	test_exit();
	test_leader();
	return done_testing();
}

static void cleanup(void)
{
	unlink(path);
}

int main(void)
{
	snprintf(path, sizeof(path), "/dev/shm/gpc-t003-%d", (int)getpid());
	return tap_guard(30, body, cleanup);
}
