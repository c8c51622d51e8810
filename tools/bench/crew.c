/* SPDX-License-Identifier: Apache-2.0 */
/* Other processes of this program, and the removal of caches at its end.
 *
 * Caches are removed however the program ends, SIGKILL included: a special child waits for the end
 * of a pipe that only this process holds, and removes the named caches.  Other children die with
 * their parent.  If this process ends by a signal, or in the ordinary way, it waits for that
 * child, so that nothing is left when it has gone.
 * Tests: t/tools/bench-ends.t */
#include "config.h"

#include "tools/bench/bench.h"

#include "tools/common/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct crew_child *children;
static volatile sig_atomic_t pids[CREW_MOST];
static pid_t remover;
static int to_remover = -1;
static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };

/* ---- cores ---- */

/* The cores that we were given, even if a process is bound to fewer meanwhile. */
static cpu_set_t cores;

uint32_t bench_cores(void)
{
	return (uint32_t)CPU_COUNT(&cores);
}

void bench_pin(pid_t pid, uint32_t core)
{
	cpu_set_t one;

	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &cores) && !core--) {
			CPU_ZERO(&one);
			CPU_SET(i, &one);
			sched_setaffinity(pid, sizeof(one), &one);
			return;
		}
}

void bench_unpin(pid_t pid)
{
	sched_setaffinity(pid, sizeof(cores), &cores);
}

/* ---- the way out ---- */

/* Does only things that a signal handler may do. */
static void go(void)
{
	int saved = errno;

	for (int i = 0; i < CREW_MOST; i++)
		if (pids[i])
			kill((pid_t)pids[i], SIGKILL);
	for (int i = 0; i < CREW_MOST; i++)
		if (pids[i]) {
			waitpid((pid_t)pids[i], NULL, 0);
			pids[i] = 0;
		}
	if (to_remover >= 0) {
		close(to_remover);
		to_remover = -1;
		waitpid(remover, NULL, 0);
	}
	errno = saved;
}

static void on_signal(int sig)
{
	signal(sig, SIG_DFL);
	go();
	raise(sig);
}

void bench_fail(const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	report_progress(NULL);
	cli_error("%s", text);
	exit(EXIT_RUNTIME);
}

/* Reads one name from each line; a name that is gone already does no harm. */
static _Noreturn void remove_all(int from)
{
	static char text[1 << 16];
	size_t used = 0;
	ssize_t n;

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		signal(ends[i], SIG_IGN);
	while (used < sizeof(text) - 1 &&
	       ((n = read(from, text + used, sizeof(text) - 1 - used)) > 0 ||
		(n < 0 && errno == EINTR)))
		used += n > 0 ? (size_t)n : 0;
	for (char *name = strtok(text, "\n"); name; name = strtok(NULL, "\n"))
		gpc_unlink(name, cache_dir());
	_exit(0);
}

void crew_init(void)
{
	struct sigaction act = { .sa_handler = on_signal };
	int ends_of[2];

	if (sched_getaffinity(0, sizeof(cores), &cores))
		CPU_SET(0, &cores);
	children = mmap(NULL, CREW_MOST * sizeof(*children), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (children == MAP_FAILED || pipe2(ends_of, O_CLOEXEC) || (remover = fork()) < 0) {
		cli_error("cannot start: %s", strerror(errno));
		exit(EXIT_RUNTIME);
	}
	if (!remover) {
		close(ends_of[1]);
		remove_all(ends_of[0]);
	}
	close(ends_of[0]);
	to_remover = ends_of[1];
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		sigaddset(&act.sa_mask, ends[i]);
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		sigaction(ends[i], &act, NULL);
	atexit(go);
}

void crew_will_remove(const char *name)
{
	char line[GPC_MAX_NAME + 2];
	int n = snprintf(line, sizeof(line), "%s\n", name);

	if (write(to_remover, line, (size_t)n) != n)
		bench_fail("cannot note a name: %s", strerror(errno));
}

/* ---- children ---- */

int crew_get(const int *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

void crew_set(int *word, int value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static _Noreturn void be_child(struct crew_child *child, pid_t parent,
			       int (*run)(struct crew_child *child, void *arg), void *arg)
{
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		signal(ends[i], SIG_DFL);
	close(to_remover);
	to_remover = -1;
	memset((void *)pids, 0, sizeof(pids));
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (getppid() != parent)
		_exit(EXIT_RUNTIME);
	bench.seed = bench_mix(bench.seed ^ (uint64_t)getpid());
	_exit(run(child, arg));
}

void crew_start(struct crew *m, int (*run)(struct crew_child *child, void *arg), void *arg)
{
	sigset_t all, before;
	pid_t parent = getpid();
	int i;

	for (i = 0; i < CREW_MOST - 1 && pids[i]; i++)
		;
	m->child = &children[i];
	memset(m->child, 0, sizeof(*m->child));
	sigfillset(&all); /* a signal must find a child that is known */
	sigprocmask(SIG_BLOCK, &all, &before);
	m->pid = fork();
	if (!m->pid)
		be_child(m->child, parent, run, arg);
	if (m->pid > 0)
		pids[i] = m->pid;
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (m->pid < 0)
		bench_fail("cannot start a process: %s", strerror(errno));
}

static void forget(struct crew *m)
{
	for (int i = 0; i < CREW_MOST; i++)
		if (pids[i] == m->pid)
			pids[i] = 0;
	m->pid = 0;
}

void crew_wait_ready(struct crew *m, int value)
{
	int status;

	while (crew_get(&m->child->ready) != value) {
		if (waitpid(m->pid, &status, WNOHANG) == m->pid) {
			forget(m);
			bench_fail("%s", m->child->text[0] ? m->child->text
							   : "a process ended too early");
		}
		cli_sleep_ms(1);
	}
}

void crew_kill(struct crew *m)
{
	if (!m->pid)
		return;
	kill(m->pid, SIGKILL);
	waitpid(m->pid, NULL, 0);
	forget(m);
}

void crew_finish(struct crew *m)
{
	int status = 0;

	if (!m->pid)
		return;
	crew_set(&m->child->stop, 1);
	while (waitpid(m->pid, &status, 0) < 0 && errno == EINTR)
		;
	forget(m);
	if (status)
		bench_fail("%s", m->child->text[0] ? m->child->text : "a process failed");
}
