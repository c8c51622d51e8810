/* SPDX-License-Identifier: Apache-2.0 */
/* takeover.h - what the sources of takeover share.
 *
 *   index/takeover/open.c    the life of a writer, which begins with a takeover
 *   index/takeover/takeover.c        the order of all (rule T7), and what comes after the grace period
 *   index/takeover/live.c    LIVE records
 *   index/takeover/others.c   the others, and the commands that dead writers left unanswered
 *   index/takeover/table.c   table entries
 *   index/takeover/tree.c    parents and children
 *   index/takeover/say.c     what was damaged
 *
 * LIVE blocks are nearly all, and what they need is waiting for memory: it is done in several
 * threads, each with records or buckets of its own.  Threads read the segments and write to the
 * memory of this writer; all stores to the segments are the serving thread's, when there is no
 * other one. */
#ifndef GPC_TAKEOVER_H
#define GPC_TAKEOVER_H

#include "index/table/alloc.h"

#define TAKEOVER_GROUP     128u  /* records whose entries are noted together */
#define TAKEOVER_NEAR      2048u /* records: most parents are no further away */
#define TAKEOVER_NEAR_SIZE (16 * TAKEOVER_NEAR)
#define TAKEOVER_REGION    4096u /* buckets whose entries are counted together */

enum { ENTRY_MISSING = 1, ENTRY_SEEN = 2 }; /* of a LIVE record */

/* A run of records of one pool: one thread's at a time. */
struct share {
	struct writer *w;
	uint32_t pool, first, end;
	uint8_t *entry;    /* by record, of all: ENTRY_SEEN ... */
	uint32_t *counted; /* by region of the table: entries of these records */
	uint32_t *near;    /* by hash of the key: record + 1 */
	uint32_t live;
	struct records other;      /* not LIVE, or REC_MOVED; the last one first */
	struct records bad;        /* LIVE, but must go */
	struct records half_moved; /* LIVE targets that still name a source */
	struct records leaving;    /* LIVE sources of another space's targets */
	struct records alone;      /* LIVE, in the tree without their parents ... */
	struct records up;         /* ... and these, once they were looked for, or NONE */
	struct records leaves;
};

/* A group command without an answer, of one peer. */
struct open_group {
	uint32_t peer, n, kind;
	uint64_t position;
}; /* in their order */

/* Faults that come from damage alone, and from no death of a writer: logged when they are
 * repaired.  lost: with their descendants. */
struct damage {
	uint32_t bad, bad_lost;         /* LIVE, and the checksum is wrong */
	uint32_t orphans, orphans_lost; /* LIVE, and the parent is not there */
	uint32_t states;                /* no state, a reservation without owner, no such source */
	uint32_t entries;               /* of a block that is not LIVE, or has another key */
	uint32_t halves;                /* without a block: one may be left by a death */
	uint32_t flags;                 /* overflow flags that were missing */
	uint32_t missing;               /* LIVE without an entry: one may be left by a death */
};

struct scan {
	struct damage damage;
	struct share *share;
	uint32_t nshares, threads;
	uint8_t *entry;
	struct region *region; /* of the table */
	uint32_t nregions;
	uint32_t *map; /* of records that the table does not have */
	struct open_group *group;
	uint32_t ngroups, groups_size;
	struct records moving;  /* targets of moves */
	struct records orphans; /* LIVE, and there is no parent */
};

void records_add(struct records *list, uint32_t record);

/* ---- index/takeover/live.c ---- */

/* All nodes; LIVE records: counters, lists, entries noted, parents nearby linked. */
void takeover_scan(struct writer *w, struct scan *sc);
/* run() for n jobs, in the threads of this scan. */
void takeover_parallel(struct scan *sc, void (*run)(void *job), void *jobs, size_t bytes,
		       uint32_t n);
/* The leaves, into the queues of their pools. */
void takeover_fill_queues(struct writer *w, struct scan *sc);
void takeover_scan_end(struct scan *sc);

/* ---- index/takeover/others.c ---- */

void takeover_rings(struct writer *w, struct scan *sc);
/* The other records, which the scan has listed. */
void takeover_others(struct writer *w, struct scan *sc);

/* ---- index/takeover/table.c ---- */

uint32_t takeover_regions(const struct writer *w);
/* Note the entries of that many LIVE records of a share. */
void takeover_note_entries(struct share *s, const uint32_t *record, uint32_t n);
/* Wipe the entries that no record has, and set missing flags. */
void takeover_sweep_table(struct writer *w, struct scan *sc);
void takeover_sweep_end(struct scan *sc);

/* ---- index/takeover/say.c ---- */

/* One line for each cause. */
void takeover_say(struct writer *w, const struct damage *d);
/* ... and for blocks that were lost after the first grace period. */
void takeover_say_full(struct writer *w, uint32_t blocks);

/* ---- index/takeover/tree.c ---- */

/* The record is LIVE and in the tree; the scan goes from the last to the first of a share. */
void takeover_meet(struct share *s, uint32_t record);
/* All within TAKEOVER_NEAR of this record were met. */
void takeover_link_near(struct share *s, uint32_t record);
/* Link the others by the table, and by w->missing. */
void takeover_link_rest(struct writer *w, struct scan *sc);

/* ---- index/takeover/takeover.c ---- */

int takeover(struct writer *w);         /* -EBADMSG */
void takeover_finish(struct writer *w); /* after the first grace period: batch.then */

#endif
