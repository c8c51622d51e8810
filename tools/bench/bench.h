/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h - declarations that the files of gpc-bench share.
 *
 *   main.c     options, and which works are measured
 *   rounds.c   contenders in turns, round after round; medians and spreads
 *   report.c   rows, and whether their marks are met
 *   show.c     rows as JSON, CSV, a table; plot.c as a picture
 *   crew.c     processes beside this one, and the way out
 *   cache.c    caches to measure, full of keys that follow from numbers
 *   limit.c    the best that the machine can do; floor.c the lines of a pair of insert and evict
 *   writer.c   the writer's time alone; caller.c an engine with blocks of its own
 *   beside.c   a table of another make, filled: beside.h; beside_*.c its questions
 *
 * and one file for each work.  Timed results are verified outside of the timed part.  Rows are
 * printed when all of them are there, so after one wrong answer there are no figures.
 * Tests: t/tools/bench.t */
#ifndef GPC_TOOLS_BENCH_H
#define GPC_TOOLS_BENCH_H

#include "tools/bench/peer/peer.h"
#include "tools/common/cli.h"
#include "gpc.h"
#include "gpc_serve.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	LIST_MOST = 8, /* values of an option that may be repeated */
	ROUNDS_MOST = 1000,
	CREW_MOST = 64,
	SPARE = 256,
};

struct bench_list {
	uint32_t n;
	uint64_t at[LIST_MOST];
};

struct bench_args {
	struct bench_list entries, batch, hits;
	uint64_t size; /* entries of works that are measured at one size */
	uint64_t rounds, seed, patience;
	const char *dir, *plot;
	bool huge, json, csv, quick;
	char command[256];
};
extern struct bench_args bench;

struct bench_cache;
struct bench_row;

/* ---- main.c: the works ---- */

/* The cache has room for SPARE blocks more than it has; insert comes last. */
void bench_lookup(struct bench_cache *b);
void bench_insert(struct bench_cache *b);
/* The same for a cache that could not be made: its rows are skipped, with the reason in `why`. */
void bench_no_lookup(uint64_t entries, const struct bench_row *why);
void bench_no_insert(uint64_t entries, const struct bench_row *why);
void bench_match(void);
void bench_hash(void);
void bench_evict(void);
void bench_ref(void);
void bench_ring(void);
void bench_scale(void);
void bench_changes(void);    /* part of scale */
void bench_memory(void);     /* part of scale */
void bench_idle(void);       /* part of ring */
void bench_caller(void);     /* part of evict */
void bench_idle_peers(void); /* part of insert */
/* Part of insert, and the end of this cache's writer: from now on this process is the writer.
 * next: the number of the first key that the cache never had. */
void bench_writer_alone(struct bench_cache *b, uint64_t next);
/* It comes last of all. */
void bench_devices(bool sync, bool lookups);

/* ---- rounds.c ---- */

struct figure {
	double median, low, high;
	unsigned n;
}; /* 10th and 90th percentile */

struct contender {
	const char *name;
	void *arg;
	double per;                 /* a value is the nanoseconds of a run divided by this */
	bool wall;                  /* wall time counts, not CPU time of this thread */
	void (*prepare)(void *arg); /* not timed: fresh keys */
	int (*run)(void *arg);      /* timed; negative: it failed */
	/* instead of run: it returns the value itself; negative: failed */
	double (*value)(void *arg);
	bool (*verify)(void *arg); /* not timed */
	unsigned n;                /* rounds so far, and their values */
	double at[ROUNDS_MOST];
};

/* In each round each of them runs once, and the one that runs first changes from round to round.
 * One more round comes first and does not count.  A contender that fails or answers wrongly ends
 * the program. */
void rounds_run(const char *what, struct contender *c, unsigned n, unsigned rounds);
/* A few rounds, for contenders so slow that nothing has to get warm except the first one.  That
 * one is fast, and has a turn before each round, which does not count. */
void rounds_run_few(const char *what, struct contender *c, unsigned n);
struct figure figure_of(const double *values, unsigned n);
struct figure contender_figure(const struct contender *c);
/* The ratio of each round. */
struct figure contender_ratio(const struct contender *c, const struct contender *reference);

uint64_t bench_cpu_ns(void); /* of this thread */
uint64_t bench_random(void);
uint64_t bench_below(uint64_t n);
uint64_t bench_mix(uint64_t x); /* a number made from another, as good as random */
/* zeroed and touched memory; without memory the program ends */
void *bench_alloc(size_t n, size_t size);

/* ---- report.c ---- */

enum mark { MARK_NONE, MARK_VALUE_MOST, MARK_VALUE_LEAST, MARK_RATIO_MOST, MARK_RATIO_LEAST };

struct bench_row {
	const char *work, *unit;
	char what[80], reference[80], reason[240];
	uint64_t entries, batch; /* 0: does not matter */
	int hits;                /* percent; -1: does not matter */
	uint32_t processes;
	struct figure value, against, ratio; /* value.n == 0: skipped, and `reason` says why */
	enum mark mark;
	double limit;
};

struct bench_row row_new(const char *work, const char *unit, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void row_value(struct bench_row *row, const struct contender *c);
void row_against(struct bench_row *row, const struct contender *c,
		 const struct contender *reference);
void row_mark(struct bench_row *row, enum mark mark, double limit);
void row_skip(struct bench_row *row, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* 1 met, 0 missed, -1 no mark, or skipped */
int row_met(const struct bench_row *row);
void report_add(const struct bench_row *row);
const struct bench_row *report_rows(size_t *n);

/* Show the present work on a terminal; NULL: nothing any more. */
void report_progress(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- show.c, plot.c ---- */

void show_rows(double seconds);
/* It comes before anything is measured.  measured: something that is drawn will be measured.
 * Returns the exit status. */
int plot_check(const char *file, bool measured);
int plot_rows(const char *file); /* exit status */

/* ---- crew.c ---- */

struct crew_child {          /* shared with one child */
	int ready, go, stop; /* __atomic: both sides look at them */
	uint64_t count[4];
	double value[4];
	char text[160];
} __attribute__((aligned(128)));

struct crew {
	pid_t pid;
	struct crew_child *child;
};

void crew_init(void);
/* After this the named cache is removed, however the program ends. */
void crew_will_remove(const char *name);
/* Start a child that does this and exits with its result; it dies with its parent. */
void crew_start(struct crew *m, int (*run)(struct crew_child *child, void *arg), void *arg);
/* Wait until it has set ready to that value; a child that ends instead is a failure. */
void crew_wait_ready(struct crew *m, int value);
/* Ask it to stop and wait; kill it. */
void crew_finish(struct crew *m);
void crew_kill(struct crew *m);
int crew_get(const int *word);
void crew_set(int *word, int value);
/* Print the message and no figures; exit status 1. */
_Noreturn void bench_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
uint32_t bench_cores(void);
/* Bind a process to the core of that rank; 0: this process. */
void bench_pin(pid_t pid, uint32_t core);
void bench_unpin(pid_t pid);

/* ---- cache.c ---- */

struct bench_cache {
	char name[GPC_MAX_NAME + 1];
	gpc *c;             /* of this process */
	struct crew writer; /* pid 0: this process serves */
	uint64_t entries, salt;
	gpc_block *block_of; /* of key number 0, 1, ... */
};

enum cache_writer { CACHE_SELF, CACHE_SERVED }; /* this process, or one of its own */

/* Make the cache, and fill it with `entries` keys.  False: the reason is in `row`, which is
 * skipped then. */
bool cache_open(struct bench_cache *b, struct gpc_config *cfg, uint64_t entries,
		enum cache_writer writer, struct bench_row *row);
void cache_close(struct bench_cache *b);
gpc *cache_attach(const char *name); /* in a child */
gpc *cache_attach_stock(const char *name, uint32_t stock);
uint64_t cache_writer_ns(const struct bench_cache *b);
/* The keys of these numbers; those below `entries` are in the cache. */
void cache_keys(gpc *c, uint64_t salt, const uint64_t *numbers, uint32_t n, gpc_key *keys);
void cache_key_run(const struct bench_cache *b, uint64_t first, uint32_t n, gpc_key *keys);
/* Publish n <= 1024 more keys, each without a parent, and release them. */
void cache_insert(struct bench_cache *b, uint64_t first, uint32_t n, gpc_block *blocks);
/* The folder of segments: --dir, or a mounted hugetlbfs; without one the program exits. */
const char *cache_dir(void);
uint64_t bench_memory_left(void); /* of the machine, bytes */
int must(int r, const char *what);

/* ---- limit.c ---- */

struct limit {
	uint32_t *memory;
	uint64_t lines;
};

bool limit_open(struct limit *l, uint64_t lines, struct bench_row *row);
void limit_close(struct limit *l);
uint32_t limit_answer(const struct limit *l, const gpc_key *key);
/* Read the word in each key's line: prefetched `batch` at a time, or `window` ahead. */
void limit_batches(const struct limit *l, const gpc_key *keys, uint32_t n, uint32_t batch,
		   uint32_t *answers);
void limit_window(const struct limit *l, const gpc_key *keys, uint32_t n, uint32_t window,
		  uint32_t *answers);
/* Read one after the other, each at a place that depends on the last. */
uint32_t limit_chain(const struct limit *l, uint32_t n, uint32_t start);
/* Two locked additions to a word of each line. */
void limit_add(const struct limit *l, const gpc_key *keys, uint32_t n, uint32_t batch);
/* `each` lines a key are written, `batch` keys at a time. */
void limit_write(const struct limit *l, const gpc_key *keys, uint32_t n, uint32_t batch,
		 uint32_t each);

/* ---- floor.c ---- */

enum { FLOOR_LINES = 24, FLOOR_WRITTEN = 15 };

struct bench_floor { /* the lines that a pair of insert and evict touches */
	struct limit limit;
	uint32_t n, sum; /* pairs; sum of the words that were read */
	uint32_t *at;    /* lines of each pair, those that are written first */
};

bool floor_open(struct bench_floor *f, uint64_t entries, uint32_t pairs, struct bench_row *row);
void floor_close(struct bench_floor *f);
/* In the form that contenders need. */
void floor_prepare(void *arg);
int floor_run(void *arg);
bool floor_verify(void *arg);

/* ---- lookup.c ---- */

/* n keys of a cache, drawn anew, and their answers. */
struct key_set {
	const struct bench_cache *cache;
	const struct limit *limit;
	uint32_t n;
	uint64_t *numbers;
	gpc_key *keys;
	gpc_block *expect, *got;
};

struct lookup_arg {
	struct key_set *set;
	uint32_t batch, flags, window;
	int hits;
};

void key_set_open(struct key_set *s, const struct bench_cache *b, uint32_t n);
void key_set_close(struct key_set *s);
void lookup_prepare(void *arg);
int probe_run(void *arg);
bool lookup_verify(void *arg);

/* ---- beside_*.c ---- */

void beside_lookup(const struct bench_cache *b, uint32_t batch);
void beside_insert(const struct bench_cache *b, const struct contender *ours);
void beside_evict(const struct bench_cache *b, uint32_t n, const struct contender *ours);
/* mark: it has to be this many times slower than ours; 0: none */
void beside_hash(const struct contender *ours, const uint32_t *text, uint32_t tokens, double mark);
void beside_sync(const struct bench_cache *b, uint32_t n, const struct contender *ours);
void beside_path(const struct contender *ours);

#endif
