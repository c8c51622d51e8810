/* SPDX-License-Identifier: Apache-2.0 */
/* peer.h - one table of another make, asked the same questions.
 *
 * Every peer maps the same 16-byte keys to the same 31-bit values, and is used in the way that
 * suits it best.  It is sized beforehand, asked in batches if it takes them, and given the key's
 * bits as a hash if it lets one choose.  Tables of 64-bit keys hold the first word of a key and
 * keep 32 bits of the second beside the value, so they compare 96 bits, no fewer than our own
 * lookup.
 *
 * One thread opens a table, uses it and closes it.
 * Tests: t/tools/bench-peers.t */
#ifndef GPC_TOOLS_BENCH_PEER_H
#define GPC_TOOLS_BENCH_PEER_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bench_key {
	uint64_t w[2];
}; /* uniformly random, never zero */

struct bench_peer {
	const char *name; /* ck_ht */
	/* Concurrency Kit 0.7.1, one writer; version as built, or as run once it was opened */
	const char *what;
	bool server; /* another process answers: wall time counts, not CPU time */
	/* Room for `entries` keys, empty.  NULL and a sentence in *why: it is not available here
	 * (server not installed, no memory). */
	void *(*open)(uint32_t entries, const char **why);
	/* Insert keys that are not there yet.  0; -1: it could not. */
	int (*insert)(void *table, const struct bench_key *keys, const int32_t *values, uint32_t n);
	/* values[i] is -1 if the key is not there.  0, or -1. */
	int (*lookup)(void *table, const struct bench_key *keys, uint32_t n, int32_t *values);
	/* Evict the n keys that were inserted or used least recently, by its own policy; NULL: it
	 * has none.  0; -1: there were fewer. */
	int (*evict)(void *table, uint32_t n);
	/* One steady step at capacity: n keys come, and n go.  NULL: insert() evicts by itself.  A
	 * table with a policy chooses itself: `out` are the least recently used.  0, or -1. */
	int (*turn)(void *table, const struct bench_key *in, const int32_t *values,
		    const struct bench_key *out, uint32_t n);
	/* The number of keys since open() that went by themselves when insert() found no room;
	 * NULL: that never happens.  Such a peer may have room for more than `entries`: it is full
	 * once this number grows. */
	uint64_t (*evicted)(void *table);
	void (*close)(void *table);
};

/* Those that this program was built with, NULL at the end. */
extern const struct bench_peer *const bench_peers[];
/* Names of those that configure did not find, NULL at the end. */
extern const char *const bench_peers_absent[];

/* ---- the starting algorithm ---- */

/* The first version of this project, as a baseline.  It hashes the whole prefix anew for every
 * block (FNV-1a).  Its tables are open addressed over separate arrays.  An eviction sorts all
 * stamps and rehashes. */
extern const struct bench_peer bench_start;
/* Keys of n / block_tokens blocks, by its way of hashing. */
void bench_start_hash(const uint32_t *tokens, uint32_t n, uint32_t block_tokens, uint64_t *keys);
/* Its sync: copy both arrays, whole, to `mirror`.  Returns the bytes; with mirror NULL it only
 * returns them. */
size_t bench_start_upload(void *table, void *mirror);

/* ---- a scheduler in Python ---- */

/* The prefix path of one prompt of `blocks` blocks of 16 tokens: hash, longest prefix, references,
 * release.  A Python measures it by itself (dict.py). */
struct bench_python_way {
	const char *what;           /* SHA-256 of packed tokens */
	double us, low_us, high_us; /* CPU time a prompt: median, a tenth below, above */
};

struct bench_python {
	char python[32];                /* CPython 3.11.2 */
	struct bench_python_way usual;  /* the way of engines when nothing is configured */
	struct bench_python_way packed; /* the best way of it */
	struct bench_python_way tuple;  /* without protection from computed collisions */
};

/* About `cached` blocks are in its dict.  0, or -1 and a sentence in *why. */
int bench_python_path(uint32_t blocks, uint32_t cached, uint32_t prompts, struct bench_python *ret,
		      const char **why);

/* ---- for the peers ---- */

extern const struct bench_peer bench_peer_ck;
extern const struct bench_peer bench_peer_lfht;
extern const struct bench_peer bench_peer_lmdb;
extern const struct bench_peer bench_peer_unordered, bench_peer_flat_map;
extern const struct bench_peer bench_peer_memcached, bench_peer_redis;

/* Returns NULL, with the sentence in *why, which lasts until the next one. */
void *bench_why(const char **why, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Is there such a program in PATH? */
bool bench_in_path(const char *program);
/* No signal ends us while there is a file that nobody else would remove. */
void bench_hold_signals(sigset_t *ret_held);
void bench_release_signals(const sigset_t *held);

#endif
