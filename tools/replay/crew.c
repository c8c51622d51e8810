/* SPDX-License-Identifier: Apache-2.0 */
/* The workers, as their parent sees them: it starts them, lets them go together, watches and ends
 * them.
 * Tests: t/tools/replay-workers.t */
#include "config.h"

#include "tools/replay/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BAR_MS = 100 };

static _Noreturn void exec_worker(const struct run *run, uint32_t number, int gate, int result)
{
	const int from[] = { run->job_fd, run->payload_fd, gate, result };
	const int to[] = { FD_JOB, FD_PAYLOAD, FD_GATE, FD_RESULT };
	char text[16];
	const char *argv[] = { "gpc-replay", "--worker", text, NULL };
	int high[ARRAY_SIZE(from)];

	snprintf(text, sizeof(text), "%u", number);
	for (size_t i = 0; i < ARRAY_SIZE(from); i++)
		high[i] = from[i] < 0 ? -1 : fcntl(from[i], F_DUPFD_CLOEXEC, FD_RESULT + 1);
	for (size_t i = 0; i < ARRAY_SIZE(from); i++)
		if (from[i] >= 0 && (high[i] < 0 || dup2(high[i], to[i]) < 0)) {
			cli_error("worker %u: %s", number + 1, strerror(errno));
			_exit(EXIT_RUNTIME);
		}
	execv("/proc/self/exe", (char *const *)argv);
	cli_error("cannot run worker %u: %s", number + 1, strerror(errno));
	_exit(EXIT_RUNTIME);
}

static int start_worker(struct run *run, uint32_t number, int gate)
{
	struct child *child = &run->child[number];
	pid_t parent = getpid();
	int result[2];

	if (pipe2(result, O_CLOEXEC) || (child->pid = fork()) < 0) {
		cli_error("cannot start worker %u: %s", number + 1, strerror(errno));
		child->pid = 0;
		return -1;
	}
	if (!child->pid) {
		replay_child(parent);
		exec_worker(run, number, gate, result[1]);
	}
	close(result[1]);
	child->fd = result[0];
	return 0;
}

/* A worker that is started again finds the gate open. */
int crew_restart(struct run *run, uint32_t number)
{
	struct child *child = &run->child[number];
	int gate = open("/dev/null", O_RDONLY | O_CLOEXEC), r;

	replay_wait(child->pid);
	close(child->fd);
	free(child->text);
	*child = (struct child){ .fd = -1 };
	run->job->progress[number].starts++;
	if (replay_caught)
		r = 0;
	else
		r = gate < 0 ? -1 : start_worker(run, number, gate);
	if (gate >= 0)
		close(gate);
	else
		cli_error("cannot start worker %u: %s", number + 1, strerror(errno));
	return r;
}

int crew_start(struct run *run)
{
	int gate[2], r = 0;

	run->child = calloc(run->a.workers, sizeof(*run->child));
	if (!run->child || pipe2(gate, O_CLOEXEC)) {
		cli_error("cannot start workers: %s", strerror(errno));
		return -1;
	}
	run->gate = gate[1];
	kill_plan(run);
	restart_plan(run);
	for (uint32_t i = 0; i < run->a.workers; i++)
		run->child[i].fd = -1;
	for (uint32_t i = 0; i < run->a.workers && !r; i++)
		r = start_worker(run, i, gate[0]);
	close(gate[0]);
	return r;
}

static void read_child(struct child *child)
{
	char text[4096];
	ssize_t n = read(child->fd, text, sizeof(text));
	char *more;

	if (n < 0 && errno == EINTR)
		return;
	if (n <= 0) {
		close(child->fd);
		child->fd = -1;
		return;
	}
	child->attached = true;
	if (child->len + (size_t)n > child->room) {
		child->room = 2 * child->room + sizeof(text);
		more = realloc(child->text, child->room);
		if (!more) {
			cli_error("out of memory");
			exit(EXIT_RUNTIME);
		}
		child->text = more;
	}
	memcpy(child->text + child->len, text, (size_t)n);
	child->len += (size_t)n;
}

static void show_progress(const struct run *run)
{
	uint64_t done = 0;

	for (uint32_t i = 0; i < run->a.workers; i++)
		done += __atomic_load_n(&run->job->progress[i].done, __ATOMIC_RELAXED);
	report_progress(done, run->job->requests);
}

/* Lets the workers go when all living ones have attached. */
static void open_gate(struct run *run)
{
	for (uint32_t i = 0; i < run->a.workers; i++)
		if (run->child[i].fd >= 0 && !run->child[i].attached)
			return;
	run->begin_ns = cli_now_ns();
	close(run->gate);
	run->gate = -1;
}

int crew_watch(struct run *run)
{
	struct pollfd *fds = calloc(run->a.workers, sizeof(*fds));
	bool bar = isatty(STDERR_FILENO);
	uint32_t alive = 1;
	int r = 0;

	while (fds && alive && !replay_caught && !r) {
		for (uint32_t i = 0; i < run->a.workers; i++)
			fds[i] = (struct pollfd){ run->child[i].fd, POLLIN, 0 };
		replay_poll(fds, run->a.workers,
			    kill_is_due(run) || restart_is_due(run) ? 1
			    : bar                                   ? BAR_MS
								    : -1);
		alive = 0;
		for (uint32_t i = 0; i < run->a.workers; i++) {
			if (fds[i].revents)
				read_child(&run->child[i]);
			alive += run->child[i].fd >= 0;
		}
		if (run->gate >= 0)
			open_gate(run);
		r = kill_step(run);
		if (!r)
			r = restart_step(run);
		if (bar)
			show_progress(run);
	}
	if (bar)
		report_progress(0, 0);
	free(fds);
	return fds && !replay_caught ? r : -1;
}

/* Notes how a worker ended, and adds the figures that it counted. */
static void collect(struct run *run, uint32_t number, int status)
{
	const struct child *child = &run->child[number++];
	json_t *o = child->len > 1 ? json_loadb(child->text + 1, child->len - 1, 0, NULL) : NULL;
	const char *error = json_string_value(json_object_get(o, "error"));
	bool good = o && counts_add_json(&run->counts, o) && !error && status == 0;

	if (!good)
		run->failed++;
	if (error)
		cli_error("worker %u: %s", number, error);
	else if (WIFSIGNALED(status))
		cli_error("worker %u was killed by signal %d", number, WTERMSIG(status));
	else if (!good)
		cli_error("worker %u ended with status %d and no result", number,
			  WEXITSTATUS(status));
	json_decref(o);
}

void crew_end(struct run *run)
{
	int status;

	for (uint32_t i = 0; run->child && i < run->a.workers; i++)
		if (run->child[i].pid && run->child[i].fd >= 0)
			kill(run->child[i].pid, SIGKILL);
	for (uint32_t i = 0; run->child && i < run->a.workers; i++) {
		if (!run->child[i].pid)
			continue;
		status = replay_wait(run->child[i].pid);
		if (!replay_caught)
			collect(run, i, status);
		if (run->child[i].fd >= 0)
			close(run->child[i].fd);
		free(run->child[i].text);
	}
	free(run->child);
	run->child = NULL;
}
