/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz.h - what a harness defines, and the engine that runs it.
 *
 * A harness is LLVMFuzzerTestOneInput and the functions below.  Compiled by clang with
 * -DFUZZ_LIBFUZZER it is a target of libFuzzer; otherwise driver.h makes it a program of its
 * own, which draws inputs by chance. */
#ifndef GPC_FUZZ_H
#define GPC_FUZZ_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FUZZ_FN     static inline __attribute__((unused))
#define FUZZ_INPUT  4096 /* bytes of the longest one */
#define FUZZ_COUNTS 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- what each harness has ---- */

static void fuzz_begin(void); /* once */
static void fuzz_end(void);   /* once, in the parent of our own driver */
/* A well-formed input. */
static size_t fuzz_seed(uint64_t random, uint8_t *to, size_t room);
/* What executions came to: names of fuzz_shared->count, NULL at the end.  A run of more than a
 * thousand in which one of them is 0 has missed what it is for. */
static const char *const fuzz_counts[FUZZ_COUNTS + 1];

/* ---- what it may use ---- */

struct fuzz_shared {
	uint64_t runs, count[FUZZ_COUNTS];
	size_t size;
	uint8_t input[FUZZ_INPUT];
	char why[512];
	uint64_t bytes_early, bytes_late; /* allocated, where that is known */
};

static struct fuzz_shared *fuzz_shared;
static pid_t fuzz_owner; /* who removes what is left */

FUZZ_FN void fuzz_share(void)
{
	fuzz_shared = mmap(NULL, sizeof(*fuzz_shared), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (fuzz_shared == MAP_FAILED)
		abort();
	fuzz_owner = getpid();
}

FUZZ_FN void fuzz_count(int what)
{
	fuzz_shared->count[what]++;
}

/* What must not be. */
FUZZ_FN __attribute__((format(printf, 1, 2), noreturn)) void fuzz_fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(fuzz_shared->why, sizeof(fuzz_shared->why), fmt, ap);
	va_end(ap);
	fprintf(stderr, "fuzz: %s\n", fuzz_shared->why);
	abort();
}

#define fuzz_must(good, ...)                    \
	do {                                    \
		if (!(good))                    \
			fuzz_fail(__VA_ARGS__); \
	} while (0)

FUZZ_FN uint64_t fuzz_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

FUZZ_FN uint32_t fuzz_draw(uint64_t *state, uint32_t below)
{
	*state = fuzz_mix(*state);
	return (uint32_t)((*state >> 32) * below >> 32);
}

static const uint64_t fuzz_nasty[] = { 0,
				       1,
				       2,
				       3,
				       7,
				       8,
				       63,
				       64,
				       0x7f,
				       0x80,
				       0xff,
				       0x100,
				       0xfff,
				       0x1000,
				       0x1001,
				       0x7fff,
				       0x8000,
				       0xffff,
				       1u << 24,
				       0xffffff,
				       INT32_MAX - 1,
				       INT32_MAX,
				       1ull << 31,
				       UINT32_MAX - 1,
				       UINT32_MAX,
				       1ull << 32,
				       1ull << 62,
				       INT64_MAX,
				       1ull << 63,
				       UINT64_MAX - 1,
				       UINT64_MAX,
				       0x0100000000000000,
				       0x01000000,
				       0x02000000,
				       0x01000000ffffffff,
				       0x00000001ffffffff };

/* Input, taken bit by bit; zeros when there is no more. */
struct fuzz_input {
	const uint8_t *at;
	size_t left;
};

FUZZ_FN uint64_t fuzz_take(struct fuzz_input *in, size_t bytes)
{
	uint64_t v = 0;

	if (bytes > in->left)
		bytes = in->left;
	memcpy(&v, in->at, bytes);
	in->at += bytes;
	in->left -= bytes;
	return v;
}

/* A number that is often one of the awkward ones: two bytes, or ten. */
FUZZ_FN uint64_t fuzz_take_value(struct fuzz_input *in)
{
	uint64_t how = fuzz_take(in, 1), what = fuzz_take(in, 1);

	switch (how & 3) {
	case 0:
		return what;
	case 1:
		return fuzz_nasty[what % (sizeof(fuzz_nasty) / sizeof(*fuzz_nasty))];
	case 2:
		return 1ull << (what & 63);
	default:
		return fuzz_take(in, 8);
	}
}

__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0:max_allocation_size_mb=512:allocator_may_return_null=0:"
	       "abort_on_error=1:handle_abort=1:quarantine_size_mb=16:detect_stack_use_after_return=0";
}

#ifdef FUZZ_LIBFUZZER
/* What it begins with: well-formed inputs, as our own driver has them. */
FUZZ_FN void fuzz_write_seeds(const char *dir)
{
	char path[512];
	FILE *f;
	int i;

	for (i = 0; i < 300; i++) {
		snprintf(path, sizeof(path), "%s/seed-%d", dir, i);
		f = fopen(path, "we");
		if (!f)
			abort();
		fwrite(fuzz_shared->input, 1,
		       fuzz_seed(fuzz_mix((uint64_t)i), fuzz_shared->input, FUZZ_INPUT), f);
		fclose(f);
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	fuzz_share();
	if (getenv("GPC_FUZZ_SEEDS"))
		fuzz_write_seeds(getenv("GPC_FUZZ_SEEDS"));
	atexit(fuzz_end);
	fuzz_begin();
	return 0;
}
#else
#include "driver.h"
#endif

#endif
