/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h - an engine where there is no libFuzzer.
 *
 * Input i of a seed is drawn from the two alone, so whatever goes wrong comes back with
 * --seed S --first I --runs 1.  A child executes; its parent sees how it ends, and that it
 * goes on: what has killed it, or kept it for LIMIT seconds, is written to a file. */
#ifndef GPC_FUZZ_DRIVER_H
#define GPC_FUZZ_DRIVER_H

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "t/lib/options.h"

#define LIMIT 60 /* seconds, on a busy machine */

extern size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static struct {
	uint64_t seed, first, runs, seconds;
	const char *input;
} fuzz_opt;

/* ---- inputs ---- */

FUZZ_FN void fuzz_change(uint64_t *r, uint8_t *data, size_t *size)
{
	size_t at = fuzz_draw(r, (uint32_t)*size), n = 1 + fuzz_draw(r, 16), from;
	uint64_t value = fuzz_nasty[fuzz_draw(r, sizeof(fuzz_nasty) / sizeof(*fuzz_nasty))];

	n = n < *size - at ? n : *size - at;
	switch (fuzz_draw(r, 8)) {
	case 0:
		data[at] ^= (uint8_t)(1u << fuzz_draw(r, 8));
		break;
	case 1:
	case 2:
		data[at] = (uint8_t)fuzz_draw(r, 256);
		break;
	case 3:
		memcpy(data + at, &value, n < 8 ? n : 8);
		break;
	case 4:
		from = fuzz_draw(r, (uint32_t)(*size - n + 1));
		memmove(data + at, data + from, n);
		break;
	case 5:
		memmove(data + at, data + at + n, *size - at - n);
		*size -= n < *size ? n : 0;
		break;
	case 6:
		if (*size + n > FUZZ_INPUT)
			break;
		memmove(data + at + n, data + at, *size - at);
		*size += n;
		break;
	default:
		while (n--)
			data[at + n] = (uint8_t)fuzz_draw(r, 256);
	}
}

FUZZ_FN void fuzz_draw_input(uint64_t number)
{
	struct fuzz_shared *s = fuzz_shared;
	uint64_t r = fuzz_mix(fuzz_opt.seed * 0x100000001b3u + number);
	uint32_t i, n = fuzz_draw(&r, 4) ? 0 : 1 + fuzz_draw(&r, 300);

	if (n) {
		for (i = 0; i < n; i++)
			s->input[i] = (uint8_t)fuzz_draw(&r, 256);
		s->size = n;
		return;
	}
	s->size = fuzz_seed(fuzz_mix(r), s->input, FUZZ_INPUT);
	for (n = fuzz_draw(&r, 1 + fuzz_draw(&r, 12)); n && s->size; n--)
		fuzz_change(&r, s->input, &s->size);
}

FUZZ_FN void fuzz_read_input(void)
{
	FILE *f = fopen(fuzz_opt.input, "re");

	if (f) {
		fuzz_shared->size = fread(fuzz_shared->input, 1, FUZZ_INPUT, f);
		if (!ferror(f) && !fclose(f))
			return;
	}
	option_refuse("--input %s: %s", fuzz_opt.input, strerror(errno));
}

FUZZ_FN void fuzz_write_input(const char *path)
{
	FILE *f = fopen(path, "we");

	if (!f || fwrite(fuzz_shared->input, 1, fuzz_shared->size, f) != fuzz_shared->size)
		diag("%s: cannot be written", path);
	if (f)
		fclose(f);
}

/* ---- the child ---- */

FUZZ_FN uint64_t fuzz_allocated(void)
{
	return __sanitizer_get_current_allocated_bytes ? __sanitizer_get_current_allocated_bytes()
						       : 0;
}

FUZZ_FN uint64_t fuzz_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec;
}

FUZZ_FN void fuzz_execute(void)
{
	struct fuzz_shared *s = fuzz_shared;
	uint64_t end = fuzz_seconds() + fuzz_opt.seconds, i;

	fuzz_begin();
	for (i = 0; i < fuzz_opt.runs; i++) {
		if (fuzz_opt.seconds && i % 16 == 0 && fuzz_seconds() >= end)
			break;
		if (!fuzz_opt.input)
			fuzz_draw_input(fuzz_opt.first + i);
		LLVMFuzzerTestOneInput(s->input, s->size);
		__atomic_store_n(&s->runs, i + 1, __ATOMIC_RELEASE);
		if (i == 500)
			s->bytes_early = fuzz_allocated();
		s->bytes_late = fuzz_allocated();
	}
}

/* ---- the parent ---- */

static volatile sig_atomic_t fuzz_stopped;

static inline void fuzz_stop(int sig)
{
	fuzz_stopped = sig;
}

/* How it ended: a status of waitpid, or -1 when it did not. */
FUZZ_FN int fuzz_watch(pid_t pid)
{
	const struct timespec look = { .tv_nsec = 50000000 }, report = { .tv_sec = 3 };
	uint64_t last = UINT64_MAX, since = 0, runs;
	int status;
	pid_t r;

	for (;;) {
		do
			r = waitpid(pid, &status, WNOHANG);
		while (r < 0 && errno == EINTR);
		if (r == pid)
			return status;
		runs = __atomic_load_n(&fuzz_shared->runs, __ATOMIC_ACQUIRE);
		if (runs != last) {
			last = runs;
			since = fuzz_seconds();
		}
		if (fuzz_seconds() - since > LIMIT) {
			kill(pid, SIGABRT); /* says where it is */
			nanosleep(&report, NULL);
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return -1;
		}
		if (fuzz_stopped)
			kill(pid, SIGKILL);
		nanosleep(&look, NULL);
	}
}

static const char fuzz_help[] =
	"  --seconds N    how long, or\n"
	"  --runs N       how many executions; without either as many as in make check\n"
	"  --seed S       what inputs are drawn from\n"
	"  --first I      number of the first one\n"
	"  --input FILE   this one, once\n"
	"  -h, --help\n";

FUZZ_FN void fuzz_options(int argc, char **argv, uint64_t runs)
{
	static const struct option known[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "first", required_argument, NULL, 'f' },
		{ "runs", required_argument, NULL, 'r' },
		{ "seconds", required_argument, NULL, 't' },
		{ "input", required_argument, NULL, 'i' },
		OPTION_HELP,
		{ NULL, 0, NULL, 0 },
	};
	struct timespec now;
	uint64_t given = 0;
	int o;

	clock_gettime(CLOCK_REALTIME, &now);
	fuzz_opt.seed = ((uint64_t)now.tv_sec * 1000003 ^ (uint64_t)now.tv_nsec) >> 8 & 0xffffff;
	while ((o = option_next(argc, argv, known, fuzz_help)) != -1) {
		switch (o) {
		case 's':
			fuzz_opt.seed = option_number(optarg, "seed", 0, UINT64_MAX);
			break;
		case 'f':
			fuzz_opt.first = option_number(optarg, "first", 0, UINT64_MAX);
			break;
		case 'r':
			given = option_number(optarg, "runs", 1, UINT64_MAX);
			break;
		case 't':
			fuzz_opt.seconds = option_number(optarg, "seconds", 1, MOST_SECONDS);
			break;
		default:
			fuzz_opt.input = optarg;
		}
	}
	fuzz_opt.runs = given ? given : fuzz_opt.seconds ? UINT64_MAX : fuzz_opt.input ? 1 : runs;
}

FUZZ_FN void fuzz_judge(const char *name, int status)
{
	const struct fuzz_shared *s = fuzz_shared;
	uint64_t bad = fuzz_opt.first + s->runs;
	char path[256];
	int i;

	if (!ok(status == 0, "%llu executions: no signal, no hang, nothing broken",
		(unsigned long long)s->runs)) {
		snprintf(path, sizeof(path), "fuzz-%s-%llu-%llu.bin", name,
			 (unsigned long long)fuzz_opt.seed, (unsigned long long)bad);
		if (!fuzz_opt.input)
			fuzz_write_input(path);
		diag("execution %llu of seed %llu: %s (status 0x%x)%s%s; input in %s",
		     (unsigned long long)bad, (unsigned long long)fuzz_opt.seed,
		     status < 0 ? "it hung" : "it ended", (unsigned)status, s->why[0] ? ": " : "",
		     s->why, fuzz_opt.input ? fuzz_opt.input : path);
	}
	for (i = 0; fuzz_counts[i]; i++)
		if (status || s->runs < 1000)
			diag("%s: %llu", fuzz_counts[i], (unsigned long long)s->count[i]);
		else
			ok(s->count[i], "%s: %llu", fuzz_counts[i],
			   (unsigned long long)s->count[i]);
	if (s->bytes_early && !status)
		ok(s->bytes_late < s->bytes_early + s->bytes_early / 8 + 65536,
		   "no memory is lost: %llu bytes early on, %llu at the end",
		   (unsigned long long)s->bytes_early, (unsigned long long)s->bytes_late);
}

/* Somebody wants it to end: what it was doing is no finding. */
FUZZ_FN void fuzz_give_up(void)
{
	fuzz_end();
	printf("Bail out! stopped by signal %d after %llu executions\n", (int)fuzz_stopped,
	       (unsigned long long)fuzz_shared->runs);
	fflush(stdout);
	signal(fuzz_stopped, SIG_DFL);
	raise(fuzz_stopped);
}

/* `runs`: in make check. */
FUZZ_FN int fuzz_main(int argc, char **argv, const char *name, uint64_t runs)
{
	int status;
	pid_t pid;

	fuzz_share();
	fuzz_options(argc, argv, runs);
	if (fuzz_opt.input)
		fuzz_read_input();
	setvbuf(stdout, NULL, _IOLBF, 0);
	diag("%s --seed %llu%s", name, (unsigned long long)fuzz_opt.seed,
	     __sanitizer_get_current_allocated_bytes ? "" : " (without sanitizers)");
	signal(SIGINT, fuzz_stop);
	signal(SIGTERM, fuzz_stop);
	signal(SIGHUP, fuzz_stop);
	pid = fork();
	if (pid < 0)
		bail("fork failed");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fuzz_execute();
		fflush(NULL);
		_exit(0);
	}
	status = fuzz_watch(pid);
	if (fuzz_stopped)
		fuzz_give_up();
	fuzz_judge(name, status);
	fuzz_end();
	return done_testing();
}

#define FUZZ_MAIN(name, runs)                                 \
	int main(int argc, char **argv)                       \
	{                                                     \
		return fuzz_main(argc, argv, (name), (runs)); \
	}

#endif
