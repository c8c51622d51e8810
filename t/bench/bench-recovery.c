/* SPDX-License-Identifier: Apache-2.0 */
/* bench-recovery - how long a death is felt.
 *
 *   bench-recovery [--blocks N] [--rounds N]
 *
 * A cache is filled with prompts and goes on until twice as many blocks have come as fit, so that
 * blocks lie where evictions left them.  Then, one round after the other:
 *
 *   takeover   a process takes the empty seat and is killed while it serves
 *   standby    the writer is killed; another one waits for its seat, and a worker for an answer
 *   worker     one with references is killed, until the last of them is gone
 *
 * Meanwhile a process looks keys up without a pause, and sorts its calls by what goes on.  It
 * knows what it must find, and at the end gpc_check() looks at everything: if either finds a
 * mistake there are no figures. */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "gpc.h"
#include "gpc_look.h"
#include "gpc_serve.h"
#include "times.h"

#define PROMPT 256u  /* blocks of the longest */
#define BATCH  64u   /* keys of a lookup */
#define OWNED  4096u /* blocks whose keys are looked up */
#define WORKER 1000u /* references of the worker that is killed */

enum { QUIET, TAKEOVER, PHASES, PAUSE = PHASES, END };

static struct shared { /* between the processes */
	_Atomic int phase;
	_Atomic int ready; /* generation of a standby's predecessor, or 1 */
	_Atomic uint64_t took_ns;
	_Atomic uint64_t wrong; /* lookups that did not find what is there */
	_Atomic uint64_t calls[PHASES][BINS];
} * shared;

static struct times takeover, standby, worker;
static char name[64];
static uint32_t blocks = 1u << 20, rounds = 15, nkept;
static gpc_key kept[OWNED];
static gpc_block kept_block[OWNED];
static uint64_t seed = 1;

static void die(const char *what, int err)
{
	fprintf(stderr, "bench-recovery: %s: %s\n", what, gpc_last_error());
	gpc_unlink(name, NULL);
	exit(err == 1 ? 1 : 2);
}

/* What has to work for the rest to make sense. */
#define must(call) must_work((call), #call)

static int must_work(int value, const char *what)
{
	if (value < 0)
		die(what, 2);
	return value;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void sleep_ms(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

static uint64_t draw(void)
{
	uint64_t z = seed += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static gpc *attach(uint32_t flags)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .timeout_ms = 5000 };
	gpc *c; /* those killed before may not be reaped yet */

	must(gpc_attach(name, &opt, flags, &c));
	return c;
}

/* ---- a full cache ---- */

/* A prompt: some of an earlier one, then its own. */
static void prompt_keys(gpc *c, gpc_key *key, uint32_t n)
{
	static uint64_t start[1024];
	uint64_t digest[PROMPT], *from = &start[draw() % 1024], i;
	uint32_t same = *from ? (uint32_t)(draw() % n) : 0;

	if (!same)
		*from = draw() | 1;
	for (i = 0; i < n; i++)
		digest[i] = i < same ? *from + i : draw();
	must(gpc_key_import(c, digest, 8, 8, n, 0, key + 1));
	memset(key, 0, sizeof(*key));
}

static uint32_t publish_prompt(gpc *c, const gpc_key *key, uint32_t n)
{
	gpc_block block[PROMPT];
	uint32_t hit;

	hit = (uint32_t)must(gpc_acquire(c, 0, key + 1, n, block, 0));
	if (hit < n) {
		must(gpc_reserve(c, 0, n - hit, block + hit, NULL, 0, -1));
		must(gpc_publish(c, key + hit, key + hit + 1, block + hit, n - hit, NULL, 0, -1));
	}
	must(gpc_release(c, block, n));
	return n - hit;
}

/* Also keeps some whose keys will be looked up. */
static void fill(gpc *c)
{
	gpc_key key[PROMPT + 1];
	uint64_t came = 0;
	uint32_t n;

	while (came < 2ull * blocks) {
		n = 1 + (uint32_t)(draw() % PROMPT);
		prompt_keys(c, key, n);
		came += publish_prompt(c, key, n);
	}
	while (nkept < OWNED) {
		n = OWNED - nkept < PROMPT ? OWNED - nkept : PROMPT;
		prompt_keys(c, key, n);
		publish_prompt(c, key, n);
		must(gpc_acquire(c, 0, key + 1, n, kept_block + nkept, 0));
		memcpy(kept + nkept, key + 1, n * sizeof(*kept));
		nkept += n;
	}
}

/* ---- processes ---- */

static pid_t start(void (*run)(void))
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0) {
		perror("bench-recovery: fork");
		die("fork", 2);
	}
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run();
		_exit(0);
	}
	return pid;
}

static void kill_child(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void run_reader(void)
{
	gpc *c = attach(0);
	gpc_block block[BATCH];
	uint64_t from, ns;
	uint32_t at;
	int phase, n;

	while ((phase = shared->phase) != END) {
		at = (uint32_t)(draw() % (nkept - BATCH + 1));
		from = now_ns();
		n = gpc_lookup(c, 0, kept + at, BATCH, block, 0);
		ns = now_ns() - from;
		if (n != (int)BATCH || memcmp(block, kept_block + at, sizeof(block)))
			shared->wrong++;
		if (phase < PHASES && phase == shared->phase)
			shared->calls[phase][bin_of(ns)]++;
	}
	gpc_close(c);
}

/* Takes the seat as soon as it is empty. */
static void run_writer(void)
{
	gpc *c = attach(0);
	uint64_t from;

	shared->ready = 1;
	from = now_ns();
	must(gpc_writer_take(c, GPC_STANDBY, -1));
	shared->took_ns = now_ns() - from;
	shared->ready = 2;
	for (;;)
		must(gpc_writer_serve(c, -1));
}

static void run_worker(void)
{
	gpc *c = attach(0);
	uint32_t i;

	for (i = 0; i < WORKER; i++)
		if (must(gpc_ref(c, kept + i, kept_block + i, 1)) != 1)
			shared->wrong++;
	shared->ready = 1;
	pause();
}

static void wait_ready(pid_t pid, int value)
{
	while (shared->ready != value) {
		if (waitpid(pid, NULL, WNOHANG) != 0)
			exit(2); /* it has said why */
		sleep_ms(1);
	}
}

static pid_t start_ready(void (*run)(void), int value)
{
	pid_t pid;

	shared->ready = 0;
	pid = start(run);
	wait_ready(pid, value);
	return pid;
}

/* ---- rounds ---- */

static void nothing(gpc *c) /* a command, and its answer */
{
	gpc_block block;

	must(gpc_reserve(c, 0, 1, &block, NULL, 0, -1));
	must(gpc_release(c, &block, 1));
}

/* The writer goes, another one comes; `quiet` is as much time without any death. */
static pid_t round_standby(gpc *c, pid_t writer)
{
	pid_t next = start_ready(run_writer, 1);
	uint64_t from, ns;

	sleep_ms(20); /* it sleeps in the kernel by now */
	shared->phase = TAKEOVER;
	from = now_ns();
	kill(writer, SIGKILL);
	wait_ready(next, 2); /* no answer of the old one */
	nothing(c);
	ns = now_ns() - from;
	shared->phase = PAUSE;
	waitpid(writer, NULL, 0);
	add_time(&standby, ns);
	sleep_ms(50);
	shared->phase = QUIET;
	sleep_ms((long)(ns / 1000000) + 1);
	shared->phase = PAUSE;
	return next;
}

static uint64_t references(gpc *c)
{
	struct gpc_stats s = { .size = sizeof(s) };

	must(gpc_stats_get(c, -1, &s));
	return s.refs;
}

static void round_worker(gpc *c)
{
	uint64_t before = references(c), from;
	pid_t pid = start_ready(run_worker, 1);

	if (references(c) != before + WORKER)
		shared->wrong++;
	from = now_ns();
	kill(pid, SIGKILL);
	while (references(c) != before)
		sleep_ms(1);
	add_time(&worker, now_ns() - from);
	waitpid(pid, NULL, 0);
}

static void round_takeover(void)
{
	pid_t pid = start_ready(run_writer, 2);

	add_time(&takeover, shared->took_ns);
	kill_child(pid);
}

static void run_rounds(gpc *c)
{
	pid_t reader, writer;
	int status = 0;
	uint32_t i;

	for (i = 0; i < rounds; i++)
		round_takeover();
	shared->phase = PAUSE;
	writer = start_ready(run_writer, 2);
	reader = start(run_reader);
	for (i = 0; i < rounds; i++)
		writer = round_standby(c, writer);
	shared->phase = END;
	if (waitpid(reader, &status, 0) != reader || status)
		exit(2); /* it has said why */
	for (i = 0; i < rounds; i++)
		round_worker(c);
	kill_child(writer);
}

/* ---- results ---- */

static void say(void *arg, const char *line)
{
	(void)arg;
	fprintf(stderr, "bench-recovery: %s\n", line);
}

/* No writer is there any more: the parent takes the seat, once everything is at rest. */
static void verify(gpc *c)
{
	must(gpc_writer_take(c, 0, 0));
	nothing(c);
	if (gpc_check(c, say, NULL) != 0 || shared->wrong) {
		fprintf(stderr,
			"bench-recovery: the cache is damaged, or %llu answers were wrong: "
			"no figures\n",
			(unsigned long long)shared->wrong);
		gpc_unlink(name, NULL);
		exit(1);
	}
}

static void print_lookups(void)
{
	static const double part[] = { 0.5, 0.99, 0.999 };
	uint64_t calls, idle;
	double with, without;
	size_t i;

	for (i = 0; i < sizeof(part) / sizeof(*part); i++) {
		with = part_ns(shared->calls[TAKEOVER], part[i], &calls) / 1e3;
		without = part_ns(shared->calls[QUIET], part[i], &idle) / 1e3;
		printf("lookups of %u keys, %5.1f %% take at most %10.2f us, else %.2f us: "
		       "ratio %.2f",
		       BATCH, 100 * part[i], with, without, with / without);
		if (part[i] == 0.999)
			printf("; must be 2: %s", with <= 2 * without ? "met" : "missed");
		printf("\n");
	}
	printf("  (%llu calls during takeover, %llu else, all answers verified)\n",
	       (unsigned long long)calls, (unsigned long long)idle);
}

static void options(int argc, char **argv)
{
	static const struct option list[] = {
		{ "blocks", required_argument, NULL, 'b' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	static const char usage[] = "usage: bench-recovery [--blocks %u-%u] [--rounds 1-%d]\n";
	char *end;
	int o;

	while ((o = getopt_long(argc, argv, "", list, NULL)) != -1) {
		unsigned long v = optarg ? strtoul(optarg, &end, 10) : 0;

		if (o == 'h') {
			printf(usage, 4 * OWNED, 1u << 24, MAX_ROUNDS);
			exit(0);
		}
		if (o == '?' || *end || v < (o == 'b' ? 4 * OWNED : 1) ||
		    v > (o == 'b' ? 1u << 24 : MAX_ROUNDS)) {
			fprintf(stderr, usage, 4 * OWNED, 1u << 24, MAX_ROUNDS);
			exit(2);
		}
		*(o == 'b' ? &blocks : &rounds) = (uint32_t)v;
	}
}

int main(int argc, char **argv)
{
	struct gpc_config cfg = { .size = sizeof(cfg) };
	gpc *c, *owner;

	options(argc, argv);
	snprintf(name, sizeof(name), "bench-recovery-%d", (int)getpid());
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED) {
		perror("bench-recovery");
		return 2;
	}
	cfg.vram_blocks = blocks;
	must(gpc_create(name, &cfg, NULL, GPC_SERVE, &owner));
	c = attach(0);
	fill(c);
	gpc_close(owner); /* and its seat as a writer */
	run_rounds(c);
	verify(c);
	printf("%u blocks, %u rounds\n", blocks, rounds);
	print_times("takeover of an empty seat", &takeover, 58);
	print_times("standby: from the writer's kill to an answer", &standby, 0);
	print_times("references of a killed worker, until released", &worker, 250);
	print_lookups();
	gpc_close(c);
	gpc_unlink(name, NULL);
	return 0;
}
