/* SPDX-License-Identifier: Apache-2.0 */
/* gpc-replay - replays a recorded trace of real requests against a prefix cache, with as
 * many worker processes as asked for.
 *
 * The parent never touches the cache while the workers run.  Whatever ends it, what it
 * made goes: workers and gpcd are told when their parent dies, gpcd removes the cache
 * it made, and the payload of such a cache has no name.  Only the payload of a cache
 * of somebody else's has one, and the last replay removes it. */
#include "config.h"

#include "tools/replay/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	BAR_MS = 100,
	POOL_MOST = 1 << 24, TOKENS_MOST = 1 << 16,  /* of a cache: see gpcd */
};

volatile sig_atomic_t replay_caught;

static sigset_t usual_mask;

/* ---- command line ---- */

static const struct option options[] = {
	{ "workers", required_argument, NULL, 'w' },
	{ "vram-blocks", required_argument, NULL, 'v' },
	{ "ram-blocks", required_argument, NULL, 'r' },
	{ "block-tokens", required_argument, NULL, 'b' },
	{ "payload", required_argument, NULL, 'p' },
	{ "name", required_argument, NULL, 'n' },
	{ "dir", required_argument, NULL, 'd' },
	{ "device", required_argument, NULL, 'D' },
	{ "json", no_argument, NULL, 'j' },
	{ "worker", required_argument, NULL, 'W' },      /* of the parent alone */
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ NULL, 0, NULL, 0 }
};

static const struct cli_help help[] = {
	{ NULL, "Usage: gpc-replay TRACE [OPTION]...", NULL },
	{ NULL, "Replay recorded requests against a cache.  TRACE has one JSON object in each\n"
	  "line; '-' is the standard input.\n", NULL },
	{ "--workers N", "processes that share the requests, 1 to 240", "1" },
	{ "--vram-blocks V", "blocks of VRAM, 1 to 16M", "10000" },
	{ "--ram-blocks R", "blocks of RAM that VRAM demotes to, up to 16M; 0: none", "0" },
	{ "--block-tokens B", "tokens in a block, 1 to 64k; changes no result", "16" },
	{ "--payload BYTES", "bytes of memory behind each block, 24 to 16M", "64" },
	{ "--name NAME", "use the cache of a running gpcd, not a cache of its own", NULL },
	{ "--dir DIR", "folder of the cache's files", "/dev/shm" },
	{ "--device D", "match on host, cuda:N or GPU-UUID, where a cache of its own gets a "
	  "mirror; none: match in shared memory", "none" },
	{ "--json", "print one JSON object", NULL },
	{ "-h, --help", "show this text", NULL },
	{ "-V, --version", "show the version", NULL },
	{ NULL, "\nNumbers take the suffixes k, M and G (powers of 1024).", NULL },
	{ NULL, "With --name, the sizes that you give must be those of the cache.", NULL },
	{ NULL, "Exit status: 0 done, 1 a wrong block or a failure, 2 wrong usage,\n"
	  "130 interrupted.", NULL },
};

static bool set_option(struct args *a, int opt, const char *arg)
{
	switch (opt) {
	case 'w': return cli_count("workers", arg, 1, WORKERS_MAX, &a->workers);
	case 'p': return cli_count("payload", arg, PAYLOAD_MIN, PAYLOAD_MAX, &a->payload);
	case 'v':
		a->vram_given = true;
		return cli_count("vram-blocks", arg, 1, POOL_MOST, &a->vram);
	case 'r':
		a->ram_given = true;
		return cli_count("ram-blocks", arg, 0, POOL_MOST, &a->ram);
	case 'b':
		a->tokens_given = true;
		return cli_count("block-tokens", arg, 1, TOKENS_MOST, &a->tokens);
	case 'n': a->name = arg; return true;
	case 'd': a->dir = arg; return true;
	case 'D': a->device = arg; return true;
	default: a->json = true; return true;
	}
}

/* -1: go on; otherwise the exit status, that of a worker included. */
static int parse(struct args *a, int argc, char **argv)
{
	uint64_t number;
	int opt, status = 0;

	while ((opt = cli_option(argc, argv, options, &status)) > 0) {
		if (opt == 'h')
			return cli_show_help(help, ARRAY_SIZE(help));
		if (opt == 'W')
			return cli_count("worker", optarg, 0, WORKERS_MAX - 1, &number) ?
			       worker_main((uint32_t)number) : EXIT_USAGE;
		if (!set_option(a, opt, optarg))
			return EXIT_USAGE;
	}
	if (opt < 0)
		return status;
	if (optind == argc)
		return cli_usage("which TRACE?");
	if (optind + 1 < argc)
		return cli_usage("one TRACE only: '%s' is one argument too many",
				 argv[optind + 1]);
	a->trace = argv[optind];
	if (a->name && !cli_name(a->name))
		return cli_bad_name(a->name);
	if (a->device && strlen(a->device) >= sizeof(((struct job *)0)->device))
		return cli_usage("--device: the name is too long");
	if (a->device && !cli_device(a->device))
		return EXIT_USAGE;
	if (strlen(a->dir) >= PATH_MAX - 128)
		return cli_usage("--dir: the path is too long");
	return -1;
}

/* ---- signals ---- */

static void on_signal(int sig)
{
	if (sig != SIGCHLD)
		replay_caught = sig;
}

/* They come in while we poll and nowhere else. */
static void hold_signals(void)
{
	static const int which[] = { SIGINT, SIGTERM, SIGHUP, SIGCHLD };
	struct sigaction act = { .sa_handler = on_signal };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(which); i++) {
		sigaddset(&set, which[i]);
		sigaction(which[i], &act, NULL);
	}
	sigprocmask(SIG_BLOCK, &set, &usual_mask);
	signal(SIGXFSZ, SIG_IGN);        /* a limit is an error like others */
}

int replay_poll(struct pollfd *fds, nfds_t n, int ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };
	int r = ppoll(fds, n, ms < 0 ? NULL : &ts, &usual_mask);

	return r < 0 && errno == EINTR ? 0 : r;
}

/* In a new child: signals as usual, and an end when the parent ends. */
void replay_child(pid_t parent)
{
	sigprocmask(SIG_SETMASK, &usual_mask, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(EXIT_RUNTIME);
}

/* The status of a child that ends.  It may be stopped, and a signal to us does not wait for it: no
 * other than this one ends those who are. */
static int wait_for(pid_t child)
{
	int status = 0;

	while (waitpid(child, &status, WNOHANG) == 0) {
		if (replay_caught)
			kill(child, SIGKILL);
		replay_poll(NULL, 0, replay_caught ? 1 : -1);
	}
	return status;
}

/* What may wait for long is done by a child, which a signal to us ends. */
int replay_in_child(const struct run *run, int (*what)(const struct run *run))
{
	pid_t parent = getpid(), child = fork();
	int status = 0;

	if (!child) {
		replay_child(parent);
		_exit(what(run));
	}
	if (child < 0) {
		cli_error("cannot start a process: %s", strerror(errno));
		return -1;
	}
	status = wait_for(child);
	return status ? -1 : 0;
}

/* ---- what the workers need ---- */

/* Blocks of earlier replays have no bytes any more.  In a child: it waits for a writer. */
static int forget_earlier(const struct run *run)
{
	uint64_t end = cli_now_ns() + PATIENCE_MS * UINT64_C(1000000);
	gpc *c;
	int r;

	if (cache_attach(run, 0, &c))
		return EXIT_RUNTIME;
	while ((r = gpc_pool_clear(c, -1, REPLAY_TAG, 0, PATIENCE_MS)) == -ENOTCONN &&
	       cli_now_ns() < end)
		cli_sleep_ms(10);
	if (r < 0)
		cli_gpc_error(r, "%s: cannot clear the blocks of earlier replays",
			      run->name);
	gpc_close(c);
	return r < 0 ? EXIT_RUNTIME : 0;
}

static int make_payload(struct run *run)
{
	size_t bytes = run->job->slots * run->job->payload;
	bool fresh;

	if (!run->a.name) {
		run->payload_fd = payload_private(bytes);
		return run->payload_fd < 0 ? -1 : 0;
	}
	run->payload_fd = payload_shared(run->a.dir, run->name, bytes, &fresh);
	if (run->payload_fd < 0)
		return -1;
	if (!fresh)
		return 0;
	return replay_in_child(run, forget_earlier) ? -1 : payload_settled(run->payload_fd, bytes);
}

static int make_job(struct run *run)
{
	const struct trace *t = &run->trace;
	size_t words = t->requests + 1 + t->refs;
	size_t bytes = sizeof(struct job) + words * sizeof(uint64_t);
	struct job *job = MAP_FAILED;

	run->job_fd = memfd_create("gpc-replay job", MFD_CLOEXEC);
	if (run->job_fd >= 0 && ftruncate(run->job_fd, (off_t)bytes) == 0)
		job = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, run->job_fd,
			   0);
	if (job == MAP_FAILED) {
		cli_error("no memory for the trace: %s", strerror(errno));
		return -1;
	}
	run->job = job;
	memcpy(job->name, run->name, sizeof(job->name));
	snprintf(job->dir, sizeof(job->dir), "%s", run->a.dir);
	if (run->a.device && strcmp(run->a.device, "none"))
		snprintf(job->device, sizeof(job->device), "%s", run->a.device);
	job->workers = (uint32_t)run->a.workers;
	job->requests = t->requests;
	job->longest = t->longest;
	job->payload = (uint32_t)run->a.payload;
	job->refs = t->refs;
	memcpy(job->words, t->start, (t->requests + 1) * sizeof(uint64_t));
	if (t->refs)
		memcpy(job->words + t->requests + 1, t->ids, t->refs * sizeof(uint64_t));
	return 0;
}

/* ---- workers ---- */

static _Noreturn void exec_worker(const struct run *run, uint32_t number, int gate,
				  int result)
{
	const int from[] = { run->job_fd, run->payload_fd, gate, result };
	const int to[] = { FD_JOB, FD_PAYLOAD, FD_GATE, FD_RESULT };
	char text[16];
	const char *argv[] = { "gpc-replay", "--worker", text, NULL };
	int high[ARRAY_SIZE(from)];

	snprintf(text, sizeof(text), "%u", number);
	for (size_t i = 0; i < ARRAY_SIZE(from); i++)
		high[i] = fcntl(from[i], F_DUPFD_CLOEXEC, FD_RESULT + 1);
	for (size_t i = 0; i < ARRAY_SIZE(from); i++)
		if (high[i] < 0 || dup2(high[i], to[i]) < 0) {
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

static int start_workers(struct run *run)
{
	int gate[2], r = 0;

	run->child = calloc(run->a.workers, sizeof(*run->child));
	if (!run->child || pipe2(gate, O_CLOEXEC)) {
		cli_error("cannot start workers: %s", strerror(errno));
		return -1;
	}
	run->gate = gate[1];
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

/* Let them go when all that live have attached. */
static void open_gate(struct run *run)
{
	for (uint32_t i = 0; i < run->a.workers; i++)
		if (run->child[i].fd >= 0 && !run->child[i].attached)
			return;
	run->begin_ns = cli_now_ns();
	close(run->gate);
	run->gate = -1;
}

static int watch_workers(struct run *run)
{
	struct pollfd *fds = calloc(run->a.workers, sizeof(*fds));
	bool bar = isatty(STDERR_FILENO);
	uint32_t alive = 1;

	while (fds && alive && !replay_caught) {
		for (uint32_t i = 0; i < run->a.workers; i++)
			fds[i] = (struct pollfd){ run->child[i].fd, POLLIN, 0 };
		replay_poll(fds, run->a.workers, bar ? BAR_MS : -1);
		alive = 0;
		for (uint32_t i = 0; i < run->a.workers; i++) {
			if (fds[i].revents)
				read_child(&run->child[i]);
			alive += run->child[i].fd >= 0;
		}
		if (run->gate >= 0)
			open_gate(run);
		if (bar)
			show_progress(run);
	}
	if (bar)
		report_progress(0, 0);
	free(fds);
	return fds && !replay_caught ? 0 : -1;
}

/* How a worker ended, and what it counted. */
static void collect(struct run *run, uint32_t number, int status)
{
	const struct child *child = &run->child[number++];
	json_t *o = child->len > 1 ? json_loadb(child->text + 1, child->len - 1, 0, NULL)
				   : NULL;
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

static void end_workers(struct run *run)
{
	int status;

	for (uint32_t i = 0; run->child && i < run->a.workers; i++)
		if (run->child[i].pid && run->child[i].fd >= 0)
			kill(run->child[i].pid, SIGKILL);
	for (uint32_t i = 0; run->child && i < run->a.workers; i++) {
		if (!run->child[i].pid)
			continue;
		status = wait_for(run->child[i].pid);
		if (!replay_caught)
			collect(run, i, status);
		if (run->child[i].fd >= 0)
			close(run->child[i].fd);
		free(run->child[i].text);
	}
	free(run->child);
	run->child = NULL;
}

/* ---- the whole ---- */

static void show_result(struct run *run)
{
	struct gpc_stats after;
	struct report r = {
		.trace = run->a.trace,
		.cache = run->a.name,
		.workers = (uint32_t)run->a.workers,
		.failed = run->failed,
		.vram_blocks = (uint32_t)run->a.vram,
		.ram_blocks = (uint32_t)run->a.ram,
		.payload = (uint32_t)run->a.payload,
		.counts = &run->counts,
	};

	if (run->counts.end_ns > run->begin_ns)
		r.seconds = (double)(run->counts.end_ns - run->begin_ns) / 1e9;
	if (cache_stats(run, &after) == 0) {
		r.evicted = after.evicted - run->before.evicted;
		r.dropped = after.dropped - run->before.dropped;
	}
	report_show(&r, run->a.json);
}

static int go(struct run *run)
{
	int r;

	if (!run->a.name && cache_start_writer(run))
		return EXIT_RUNTIME;
	if (make_job(run) || cache_look(run) || cache_wait_writer(run) ||
	    cache_try_device(run) || make_payload(run) || replay_caught)
		return EXIT_RUNTIME;
	r = start_workers(run);
	if (!r)
		r = watch_workers(run);
	end_workers(run);
	if (r || replay_caught)
		return EXIT_RUNTIME;
	show_result(run);
	return run->counts.wrong || run->failed ? EXIT_RUNTIME : 0;
}

static void clean_up(struct run *run)
{
	cache_stop_writer(run);
	if (run->payload_fd >= 0 && run->a.name)
		payload_release(run->a.dir, run->name, run->payload_fd);
	trace_free(&run->trace);
}

int main(int argc, char **argv)
{
	static struct run run = {
		.a = { .workers = 1, .vram = 10000, .tokens = 16, .payload = 64,
		       .dir = "/dev/shm" },
		.job_fd = -1, .payload_fd = -1, .gate = -1,
	};
	int status;

	cli_init("gpc-replay");
	status = parse(&run.a, argc, argv);
	if (status >= 0)
		return status;
	if (trace_load(run.a.trace, &run.trace))
		return EXIT_RUNTIME;
	if (run.a.name)
		snprintf(run.name, sizeof(run.name), "%s", run.a.name);
	hold_signals();
	status = go(&run);
	clean_up(&run);
	if (replay_caught) {
		signal(replay_caught, SIG_DFL);
		sigprocmask(SIG_SETMASK, &usual_mask, NULL);
		raise(replay_caught);
	}
	return cli_finish(status);
}
