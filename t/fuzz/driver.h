/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h - an engine where there is no libFuzzer.
 *
 * Input i of a seed is drawn from the two alone, so whatever goes wrong comes back with
 * --seed S --first I --runs 1.  A child executes; its parent sees how it ends, and that it
 * goes on: what has killed it, or kept it for LIMIT seconds, is written to a file. */
#ifndef GPC_FUZZ_DRIVER_H
#define GPC_FUZZ_DRIVER_H

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "../tap.h"

#define LIMIT 60 /* seconds, on a busy machine */

extern size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static struct { uint64_t seed, first, runs, seconds; const char *input; } fuzz_opt;

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

	if (!f)
		bail("%s: %s", fuzz_opt.input, strerror(errno));
	fuzz_shared->size = fread(fuzz_shared->input, 1, FUZZ_INPUT, f);
	fclose(f);
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
	return __sanitizer_get_current_allocated_bytes ?
		       __sanitizer_get_current_allocated_bytes() : 0;
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
		if (fuzz_opt.input)
			fuzz_read_input();
		else
			fuzz_draw_input(fuzz_opt.first + i);
		LLVMFuzzerTestOneInput(s->input, s->size);
		__atomic_store_n(&s->runs, i + 1, __ATOMIC_RELEASE);
		if (i == 500)
			s->bytes_early = fuzz_allocated();
		s->bytes_late = fuzz_allocated();
	}
}

/* ---- the parent ---- */

static volatile sig_atomic_t fuzz_child;

static inline void fuzz_stop(int sig)
{
	(void)sig;
	if (fuzz_child > 0)
		kill(fuzz_child, SIGKILL);
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
		nanosleep(&look, NULL);
	}
}

FUZZ_FN void fuzz_options(int argc, char **argv, uint64_t runs)
{
	static const struct option known[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "first", required_argument, NULL, 'f' },
		{ "runs", required_argument, NULL, 'r' },
		{ "seconds", required_argument, NULL, 't' },
		{ "input", required_argument, NULL, 'i' },
		{ NULL, 0, NULL, 0 },
	};
	struct timespec now;
	int o;

	clock_gettime(CLOCK_REALTIME, &now);
	fuzz_opt.seed = ((uint64_t)now.tv_sec * 1000003 ^ (uint64_t)now.tv_nsec) >> 8 & 0xffffff;
	fuzz_opt.runs = runs;
	while ((o = getopt_long(argc, argv, "", known, NULL)) != -1) {
		uint64_t n = optarg ? strtoull(optarg, NULL, 0) : 0;

		switch (o) {
		case 's': fuzz_opt.seed = n; break;
		case 'f': fuzz_opt.first = n; break;
		case 'r': fuzz_opt.runs = n; break;
		case 't': fuzz_opt.seconds = n; fuzz_opt.runs = UINT64_MAX; break;
		case 'i': fuzz_opt.input = optarg; fuzz_opt.runs = 1; break;
		default:
			bail("options: --seed S --first I --runs N --seconds N --input FILE");
		}
	}
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
		     status < 0 ? "it hung" : "it ended", (unsigned)status,
		     s->why[0] ? ": " : "", s->why, fuzz_opt.input ? fuzz_opt.input : path);
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

/* `runs`: in make check. */
FUZZ_FN int fuzz_main(int argc, char **argv, const char *name, uint64_t runs)
{
	pid_t pid;

	fuzz_options(argc, argv, runs);
	setvbuf(stdout, NULL, _IOLBF, 0);
	diag("%s --seed %llu%s", name, (unsigned long long)fuzz_opt.seed,
	     __sanitizer_get_current_allocated_bytes ? "" : " (without sanitizers)");
	fuzz_share();
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
	fuzz_child = pid;
	fuzz_judge(name, fuzz_watch(pid));
	fuzz_end();
	return done_testing();
}

#define FUZZ_MAIN(name, runs)                                \
	int main(int argc, char **argv)                      \
	{                                                    \
		return fuzz_main(argc, argv, (name), (runs)); \
	}

#endif
