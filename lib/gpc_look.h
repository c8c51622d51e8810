/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_look.h - for tools that look at a cache: geometry, statistics, walks, events, checks.
 *
 * Two calls are for engines: gpc_root_keep keeps names that tools read, and gpc_hits_add counts.  All
 * other calls change nothing.
 * Tests: t/pages/structs.t t/repo/exports.t t/repo/headers.t t/repo/abi.t */
#ifndef GPC_LOOK_H
#define GPC_LOOK_H

#include "gpc_bytes.h"
#include "gpc_tiers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Room for the fields of gpc_root_keep: 8 bytes for each field, and its data, rounded up to 8. */
#define GPC_ROOT_BYTES 488

/* ---- the cache, its peers and its devices ---- */

struct gpc_info { /* set size */
	uint32_t size, version;
	uint32_t block_tokens, max_blocks, max_peers, max_pools;
	uint32_t pools, peers; /* present now */
	uint32_t mirrors;      /* live mirrors */
	int32_t writer_pid;    /* 0 = no writer */
	uint32_t writer_generation;
	int32_t peer; /* seat of this handle; -1 = read-only */
	uint32_t tick_us;
	int32_t free_target;
	uint32_t keep_tokens, keep_digests;
	uint64_t tick, bytes; /* bytes: size of all segments */
	uint64_t buckets;
	char hash[16];
	char devices[64];
	uint8_t layout[32];
	int32_t writer_peer; /* seat of the writer; -1 = no writer */
	/* read-only handles: the answer that gpc_attach as a peer would give now: 0, or a negative
	 * errno */
	int32_t refused;
	char why[256]; /* the sentence of that errno */
	/* a number of this handle's seat that no seat had before, in this cache or any other;
	 * companions name it.  0 = read-only */
	uint64_t life;
	uint32_t max_aliases; /* room for aliases; 0 = this cache keeps no aliases */
	uint64_t created_ns;  /* CLOCK_REALTIME: when the cache was made */
	uint64_t
		writer_since_ns; /* CLOCK_MONOTONIC: when the writer took the seat; 0 = no writer */
	/* seats that a process holds, and seats of dead or departed processes that are not reaped
	 * yet */
	uint32_t peers_alive, peers_dead;
	uint32_t quarantine_ms, peer_quota; /* as gpc_config; 0: no limit */
};

int gpc_info_get(gpc *c, struct gpc_info *ret);
/* [shared] Geometry, options, writer and seat. */

struct gpc_stats { /* since attach; of one peer, or summed.  set size */
	uint32_t size;
	int32_t pid; /* 0 when summed */
	char label[32];
	uint64_t lookups, hit_vram, hit_ram, miss; /* blocks; times block_tokens = tokens */
	uint64_t published, duplicate; /* keys that became live; keys that were live already */
	uint64_t evicted; /* keys of VRAM and RAM lost because other keys needed the room */
	uint64_t demoted, promoted; /* moves committed, to RAM and to VRAM */
	uint64_t dropped;           /* keys lost by drops, clears, bad bytes, and ends of pools */
	uint64_t stale_refs, ring_full;
	uint64_t relocated, no_bucket; /* summed only: table moves, publishes refused */
	uint64_t refs, reserved, sections, oldest_section_ns; /* held now */
	/* summed only, as the writer counts them.  A block that a leader had reserved and its
	 * companions keep counts as dying, and not as reserved */
	uint64_t live, free_blocks, dying;
	int32_t alive; /* 1 = the process holds its seat, 0 = dead or left, not yet reaped */
	/* 1 = pid is a number of the caller's PID namespace; 0 = of another namespace, or
	 * unknown */
	int32_t here;
	/* 1 = the peer has closed its handle, and no writer has cleared its seat yet */
	int32_t left;
	uint64_t fetched, spilled; /* blocks that transfers have brought */
	uint64_t bad; /* blocks whose bytes had another checksum than when they were spilled */
	uint64_t transfers, claims; /* transfers under way, open claims */
	int32_t leader;             /* of a companion: the peer of its leader; or -1 */
	/* summed only: pairs of gpc_alias; each writer that died while it stored a pair may add
	 * one too many */
	uint64_t aliases;
	uint64_t commands;                     /* done by the writer */
	uint64_t pending;                      /* commands submitted, and not acknowledged yet */
	uint64_t fetched_bytes, spilled_bytes; /* bytes of the fetched and spilled blocks */
	/* for how long this peer has had references without a break, as the writer sees it ten
	 * times a second.  No present reference is older than that and 0.1 s, or the time without a
	 * writer.  Summed: the longest of all peers */
	uint64_t refs_ns;
	/* from gpc_hits_add: blocks that peers had in their own memory; blocks of hit_ram that a
	 * disk had brought for the request; blocks of hit_ram that a store had brought */
	uint64_t hit_own, hit_disk, hit_store;
	/* the start time of process pid, as in /proc/PID/stat, in ticks since boot: a later
	 * process with the same pid has another one.  0 when summed, and if time namespaces
	 * differ */
	uint64_t start_time;
};

int gpc_stats_get(gpc *c, int peer, struct gpc_stats *ret);
/* [shared] peer -1 = the sum of all peers, peers that have left included; -ENOENT = empty seat. */

int gpc_hits_add(gpc *c, uint64_t own, uint64_t disk, uint64_t store);
/* [shared] Add to gpc_stats of this peer: own, blocks of a request that its engine had in its own memory
 * and never looked up; disk and store, hits in RAM that a disk or a store had brought for the request
 * (gpc_prefetch).  Atomic; waits for nobody. */

/* times that things took, or that had passed, since the cache was made.  set size */
struct gpc_histogram {
	uint32_t size;
	uint32_t cells; /* used cells of cell[]: 31 */
	/* cell[0] counts values up to first_ns, cell[k] values above first_ns << (k - 1) and up to
	 * first_ns << k; the last used cell also counts all larger values */
	uint64_t first_ns;
	uint64_t cell[32];
	uint64_t count; /* sum of the cells */
	double sum;     /* sum of the values, in seconds */
	/* GPC_COPY_...: the blocks and bytes that transfers have brought, also transfers that still
	 * go on */
	uint64_t blocks, bytes;
};
/* for gpc_histogram_get.  From milliseconds to days: */
enum {
	/* at the eviction of a key: the time since it became live in that block */
	GPC_AGE_EVICTED = 1,
	/* at the eviction of a key: the time since its last use */
	GPC_IDLE_EVICTED = 2,
	/* the time between two uses of a block that was next to go in between */
	GPC_REUSE_GAP = 3,
	/* from microseconds to minutes: */
	GPC_ROUND_TRIP = 4, /* of commands that a call has waited for */
	GPC_TAKEOVER = 5,   /* of a new writer: from taking the seat to serving */
	/* transfers that brought blocks: from their answer to their commit */
	GPC_COPY_VRAM_VRAM = 6,
	GPC_COPY_VRAM_RAM = 7,
	GPC_COPY_RAM_VRAM = 8,
	GPC_COPY_RAM_RAM = 9
};

int gpc_histogram_get(gpc *c, int what, int peer, struct gpc_histogram *ret);
/* [shared] The parameter what is GPC_AGE_EVICTED ...  peer -1 = all peers, peers that have left
 * included.  For a seat there is only GPC_ROUND_TRIP (else -EINVAL); -ENOENT = empty seat.  Cells
 * never fall, across writers.  After the death of a writer, or of a peer, a value may be missing
 * in sum, or in sum and cells. */

struct gpc_mirror { /* one mirror, for tools.  set size */
	uint32_t size;
	uint32_t generation;
	char device[32]; /* "host", "cuda:0" as the writer named it */
	uint8_t uuid[16];
	uint64_t bytes;
	uint64_t flushed; /* changes of the table that the mirror shows */
	uint64_t changes; /* changes of the table so far */
	uint32_t retired; /* 1 = its flush failed; lookups answer -ESTALE */
};

int gpc_mirror_get(gpc *c, int i, struct gpc_mirror *ret);
/* [shared] Mirror i of info.mirrors; retired mirrors follow; -ENOENT past the last.  The mirror lacks
 * the last (changes - flushed) changes of the table. */

/* ---- entries ---- */

struct gpc_entry { /* one live block, for walks */
	gpc_key key, parent;
	gpc_block block;
	uint32_t depth, tag, refs;
	uint64_t stamp;
	/* as published; zero if the publisher gave none, or the cache has no keep_digests */
	uint32_t group, digest_bytes;
	uint8_t digest[32];
};

int gpc_walk(gpc *c, uint64_t *cursor, struct gpc_entry *out, uint32_t n);
/* [shared] Every entry that is live during the whole walk, parents first.  *cursor starts at 0.
 * Returns the number of entries; 0 = done.  Here, in gpc_lookup, gpc_match and gpc_event_read of a
 * read-only handle: -EBADMSG when a file of the cache is cut off or missing. */

int gpc_tokens_get(gpc *c, const gpc_key *key, gpc_block block, uint32_t *tokens, uint32_t n);
/* [shared] The tokens that a live block was published with, up to n of them; returns their number
 * (block_tokens at most; 0 = its publisher gave no tokens).  -ESTALE: the block does not hold that
 * key now.  -ENOENT: this cache keeps no tokens (keep_tokens). */

/* ---- fields of roots ---- */

int gpc_root_keep(gpc *c, const struct gpc_field *f, uint32_t n, gpc_key *ret_root, uint32_t flags,
		  int timeout_ms);
/* [writer] gpc_key_root, and the cache keeps the fields for programs that know only the root: gpcd
 * --events names adapter (tag 2) and salt (tag 3) of each block below it.  A call whose root is
 * kept already is local, so it may stand before each publish of a first block.  ret_root (may
 * be NULL) is filled even if the call fails for lack of room, writer or time.  Fields outlive
 * their publisher and every writer, and may be forgotten: there is room for one root in 16 of
 * max_blocks, 64 to 4096, in buckets of four, and a full bucket forgets its oldest root.  Every process of
 * the cache can read them, salts included.  Returns 0.  -EINVAL: as gpc_key_root, or more than
 * GPC_ROOT_BYTES.  -ENOENT: this cache keeps neither tokens nor digests, and so no fields.
 * -ENOTCONN, -ETIMEDOUT, -EAGAIN (timeout 0): a submitted command is carried out; a second call does
 * no harm. */

int gpc_root_get(gpc *c, const gpc_key *root, struct gpc_field *f, uint32_t n, void *data,
		 uint32_t bytes);
/* [shared] The fields of a root that gpc_root_keep was given: up to n of them in f, which point to
 * their bytes in data (GPC_ROOT_BYTES is enough for all).  Returns the number of all its fields.
 * -ENOENT: no fields of that root are kept.  -ENOSPC: data is too short for n; f and data have a
 * part.  Needs no seat, no section, no writer. */

/* ---- the feed of changes ---- */

struct gpc_event {
	uint64_t seq;
	uint32_t what; /* GPC_STORED ... */
	uint32_t tag;
	/* was: in GPC_MOVED, the block that held the key before; in GPC_REMOVED, `block` if
	 * gpc_drop has removed it, else -1, and -1 for a copy below RAM that went with a block of
	 * VRAM or RAM */
	gpc_block block, was;
	gpc_key key, parent;
	/* as in gpc_entry; in GPC_STORED, GPC_REMOVED and GPC_MOVED */
	uint32_t group, digest_bytes;
	uint8_t digest[32];
};
enum {
	GPC_STORED = 1,
	GPC_REMOVED = 2,
	GPC_MOVED = 3,
	GPC_CLEARED = 4,
	GPC_RETURNED = 5
}; /* a block of a CALLER pool is its owner's again */

int gpc_event_read(gpc *c, uint64_t *cursor, struct gpc_event *out, uint32_t n);
/* [shared] Numbered changes in order, across writers.  *cursor starts at 0 (oldest kept)
 * or UINT64_MAX (from now on).  -ESTALE: it is too late for this cursor: walk, and go on from the
 * new *cursor.  GPC_CLEARED comes first and names a pool by its slot 0.  Tag 0: all entries of that
 * pool are gone without a GPC_REMOVED; each descendant in another pool has its GPC_REMOVED.  Another
 * tag: every entry that goes, descendants included, has its GPC_REMOVED. */

/* ---- work under way ---- */

struct gpc_transfer_info { /* a transfer that is not over, for tools.  set size */
	uint32_t size;
	int32_t peer;
	gpc_transfer transfer;
	uint32_t blocks, left;  /* blocks of its command; blocks that are undecided yet */
	uint32_t ranks, passed; /* ranks that copy, 1 at least; ranks that are done */
	int32_t from, to;       /* pools; from: the pool of its first block when it began */
	uint64_t age_ns;
};

int gpc_transfer_get(gpc *c, uint32_t i, struct gpc_transfer_info *ret);
/* [shared] The i-th transfer that is not over, of all peers; -ENOENT past the last. */

struct gpc_slow {          /* a call that took long */
	uint64_t ended_ns; /* CLOCK_MONOTONIC */
	uint64_t took_ns;  /* from its beginning to the answer, or until its caller gave up */
	int32_t peer, pid;
	uint32_t blocks;  /* blocks, or keys, of its command; 0: it waited for earlier commands */
	int32_t error;    /* 0: it was answered; else -ETIMEDOUT, -ENOTCONN or -EAGAIN */
	char command[16]; /* the command: reserve, publish, ...; "" with blocks 0 */
};

int gpc_slow_walk(gpc *c, uint64_t *cursor, struct gpc_slow *out, uint32_t n);
/* [shared] The last 8 calls of each seat that waited for the writer longer than GPC_SET_SLOW_MS, by
 * seat, the oldest first.  Calls of a process that has left stay until its seat has 8 newer calls.
 * *cursor starts at 0.  Returns the number of calls that were written; 0: no calls are left. */

int gpc_claim_walk(gpc *c, uint64_t *cursor, struct gpc_claim *out, uint32_t n);
/* [shared] Every open claim, for tools.  *cursor starts at 0.  Returns the number of claims; 0 =
 * the end. */

/* ---- tiers below RAM ---- */

struct gpc_tier_counter {
	char name[24]; /* [a-z0-9_]+ */
	uint64_t value;
};

struct gpc_tier { /* a tier below RAM, for tools: since its steward opened it.  set size */
	uint32_t size;
	uint32_t kind;         /* GPC_DISK, GPC_REMOTE */
	int32_t pool;          /* its pool; -1: nobody keeps the tier now */
	int32_t steward;       /* the peer that keeps the tier; -1: nobody */
	uint32_t ready;        /* 1: the blocks that it had when it was opened are published */
	uint32_t state;        /* GPC_TIER_...; a disk that is kept is up */
	uint64_t block_bytes;  /* of an image */
	uint64_t asks;         /* questions of peers, to all tiers together */
	uint64_t hits, misses; /* keys in these questions that were brought; that were not */
	uint64_t brought, brought_bytes; /* blocks that came to RAM */
	uint64_t written, written_bytes; /* blocks that were written to the tier */
	uint64_t absent;                 /* keys that were looked for in the tier, and not found */
	uint64_t bad;                    /* blocks with a wrong checksum: never served */
	uint64_t errors, late;           /* reads that failed; reads that came too late */
	/* blocks cleared, dropped or evicted while they were on their way */
	uint64_t overtaken;
	uint64_t no_ram;        /* blocks for which there was no block of RAM */
	uint64_t refused;       /* blocks that the writer refused: no parent there, no bucket */
	uint64_t failed;        /* writes that failed */
	uint64_t unwanted;      /* blocks not written, because of min_uses */
	uint64_t evicted, aged; /* blocks evicted for lack of room; for their age */
	uint64_t forgotten;     /* blocks freed for ever, after drops and clears */
	/* blocks in the file when it was opened; published; blocks whose parent was in no tier */
	uint64_t found, restored, orphans;
	/* of a remote store: */
	/* images that the store had no room for; images and keys that it was not asked for while it
	 * was down or off */
	uint64_t full, down;
	/* keys that the index did not know and the store was asked for; those that the store has */
	uint64_t asked, there;
	/* how often all of the tier was forgotten, after more drops than the cache remembers */
	uint64_t emptied;
	uint32_t ncounters, reserved;
	struct gpc_tier_counter counter[8]; /* of its plugin (gpc_remote(7)) */
	/* option of its steward, cut to fit: path of a file, or NAME:word=value,... of a store */
	char what[512];
	/* blocks that left RAM, not by a clear or a drop, while the tier had no copy; not counted
	 * with min_uses */
	uint64_t overrun;
};

int gpc_tier_get(gpc *c, uint32_t i, struct gpc_tier *ret);
/* [shared] The i-th tier below RAM; -ENOENT past the last. */

/* ---- invariants ---- */

int gpc_check(gpc *c, void (*report)(void *arg, const char *line), void *arg);
/* [shared] Verify all invariants.  report gets one line for each violation.  Returns the number of
 * violations.  It waits for a writer that is in the middle of a change, 10 s at most, half a
 * second if that process is stopped; then -EAGAIN, if violations may come from the unfinished
 * change. */

#ifdef __cplusplus
}
#endif
#endif
