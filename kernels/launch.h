/* SPDX-License-Identifier: Apache-2.0 */
/* launch.h - the kernels, as C sees them.  It includes probe.h and no other header of ours.
 *
 * A mirror in device memory is the table's entries, followed by one struct mirror_status, which
 * the writer's flush stores last.  Kernels find a mirror through two steps in memory of the
 * launching process.  The first is a word that names the current descriptor.  The second is the
 * descriptor, which never changes while the word names it.  A captured graph keeps the address of
 * the word, so it finds each later mirror as well.
 * Tests: t/bytes/cuda-peer.t */
#ifndef GPC_LAUNCH_H
#define GPC_LAUNCH_H

#include "probe.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LAUNCH_SPACES 32

/* 128 bytes after the entries; the writer's flush stores every field. */
struct mirror_status {
	uint64_t sequence;     /* number of changes that the mirror shows */
	uint64_t ram_pools[2]; /* bit p: pool p is RAM; the counters use it */
	uint32_t spaces;       /* spaces of all live pools, which "all spaces" stands for */
	uint32_t pad[25];
};

/* In device memory of the launching process, at a multiple of 16; never changes. */
struct mirror_view {
	const struct probe_entry *table;
	const struct mirror_status *status;
	uint32_t buckets, pad[3];
	uint64_t mask[LAUNCH_SPACES][2]; /* XORed to keys of a space; aligned to 16 bytes */
};

struct launch_change {
	uint32_t slot, pad[3];
	struct probe_entry entry;
};

/* All of these are asynchronous on `stream` (a cudaStream_t), allocate nothing, do not synchronise
 * and can be captured; they return 0 or a cudaError_t.  `view` is a word in device memory that
 * holds the address of a struct mirror_view there.  counters may be NULL; else they are four
 * 64-bit words in device memory: keys asked for, hits in VRAM, hits in RAM, misses.  spaces: a set
 * of spaces; 0 stands for those of the status. */

/* Loads the kernels into a device.  Each device needs it once before a call that must not wait. */
int launch_load_lookup(void);
int launch_load_match(void);
int launch_load_scatter(void);

/* blocks[i] = the block of keys[i] in the lowest space of the set that has it, or -1. */
int launch_lookup(struct mirror_view *const *view, uint32_t spaces, const uint64_t (*keys)[2],
		  uint32_t n, int32_t *blocks, unsigned long long *counters, void *stream);

/* Sequence i = keys[start[i] .. start[i + 1]).  len[i] = how many of its first keys are resident.
 * blocks (may be NULL) is like keys, and is written for the matched part only.  In the lowest
 * space of the set the resident part is prefix-closed (a chain is only ever cut at its end), so a
 * wide search is exact.  From the first miss there on, the other spaces are probed key by key.
 * Hits by tier are exact while a chain's blocks in RAM lie after those in VRAM, or if blocks is
 * given. */
int launch_match(struct mirror_view *const *view, uint32_t spaces, const uint64_t (*keys)[2],
		 const uint32_t *start, uint32_t nseq, uint32_t *len, int32_t *blocks,
		 unsigned long long *counters, void *stream);

/* For the writer: stores n entries, each slot at most once, then `status`.  The status is passed
 * by value; its sequence is stored after all entries are visible (st.release.sys).  changes: in
 * device memory or pinned host memory. */
int launch_scatter(struct probe_entry *table, struct mirror_status *status,
		   const struct launch_change *changes, uint32_t n,
		   const struct mirror_status *value, void *stream);

/* The same from pinned host memory, which is read when the stream gets there.  So a graph that was
 * captured once flushes whatever the pinned memory holds by then, up to `most` changes (at most
 * LAUNCH_PINNED).  All of `most` may be read, so a small flush takes a graph with a small `most`.
 * When the mirror shows the changes, the pinned memory is not read any more.  Then done = ticket,
 * with release at system scope, and the host need not ask CUDA.  One flush of the pinned memory
 * may run at a time. */
#define LAUNCH_PINNED 1024

struct launch_pinned {
	uint64_t done, pad0[15]; /* stored by the device, alone in its line */
	struct mirror_status value;
	uint64_t ticket;
	uint32_t n, pad1[5];
	struct launch_change change[LAUNCH_PINNED];
};

int launch_scatter_pinned(struct probe_entry *table, struct mirror_status *status,
			  struct launch_pinned *pinned, uint32_t most, void *stream);

/* When the stream gets here, totals[0 .. 4) = counters, then *done = ticket, with release at
 * system scope.  done and totals: pinned host memory, as the device addresses it. */
int launch_signal(uint64_t *done, uint64_t ticket, const unsigned long long *counters,
		  uint64_t *totals, void *stream);

#ifdef __cplusplus
}
#endif
#endif
