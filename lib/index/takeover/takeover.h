/* SPDX-License-Identifier: Apache-2.0 */
/* takeover.h - functions that the sources of takeover share.
 *
 *   index/takeover/open.c      the life of a writer, which begins with a takeover
 *   index/takeover/takeover.c  the order of all steps (rule T7), and those after the grace period
 *   index/takeover/live.c      LIVE records
 *   index/takeover/others.c    other records, and commands that dead writers left unanswered
 *   index/takeover/table.c     table entries
 *   index/takeover/tree.c      parents and children
 *   index/takeover/say.c       messages about damage
 *
 * Nearly all blocks are LIVE, and work on them mainly waits for memory.  So it is done in several
 * threads, each with records or buckets of its own.  The threads read the segments and write to
 * the private memory of this writer.  Only the serving thread stores to the segments, when no
 * other thread runs. */
#ifndef GPC_TAKEOVER_H
#define GPC_TAKEOVER_H

#include "index/table/alloc.h"

#define TAKEOVER_GROUP     128u  /* records whose entries are noted together */
#define TAKEOVER_NEAR      2048u /* records: most parents are no further away than this */
#define TAKEOVER_NEAR_SIZE (16 * TAKEOVER_NEAR)
#define TAKEOVER_REGION    4096u /* buckets whose entries are counted together */

enum { ENTRY_MISSING = 1, ENTRY_SEEN = 2 }; /* of a LIVE record */

/* A run of records of one pool; one thread works on it at a time. */
struct share {
	struct writer *w;
	uint32_t pool, first, end;
	uint8_t *entry;    /* by record, of the whole cache: ENTRY_SEEN ... */
	uint32_t *counted; /* by region of the table: entries of these records */
	uint32_t *near;    /* by hash of the key: record + 1 */
	uint32_t live;
	struct records other;      /* records that are not LIVE, or REC_MOVED; the last one first */
	struct records bad;        /* LIVE, but must go */
	struct records half_moved; /* LIVE targets that still name a source */
	struct records leaving;    /* LIVE sources of another space's targets */
	struct records alone;      /* LIVE, in the tree without their parents ... */
	struct records up;         /* ... and their parents, once these were looked for, or NONE */
	struct records leaves;
};

/* A group command without an answer, of one peer. */
struct open_group {
	uint32_t peer, n, kind;
	uint64_t position;
}; /* in the order of their positions */

/* Faults that only damage explains, and no death of a writer.  They are logged when they are
 * repaired.  lost: the number with their descendants. */
struct damage {
	uint32_t bad, bad_lost;         /* LIVE records whose checksum is wrong */
	uint32_t orphans, orphans_lost; /* LIVE records whose parent is missing */
	/* an invalid state, a reservation without owner, a source that does not exist */
	uint32_t states;
	/* entries of a block that is not LIVE, or has another key */
	uint32_t entries;
	uint32_t halves;  /* entries without a block; a death may leave one */
	uint32_t flags;   /* overflow flags that were missing */
	uint32_t missing; /* LIVE records without an entry; a death may leave one */
};

struct scan {
	struct damage damage;
	struct share *share;
	uint32_t nshares, threads;
	uint8_t *entry;
	struct region *region; /* of the table */
	uint32_t *map;         /* the records that the table lacks */
	struct open_group *group;
	uint32_t ngroups, groups_size;
	struct records moving;  /* targets of moves */
	struct records orphans; /* LIVE records that have no parent */
};

void records_add(struct records *list, uint32_t record);

/* ---- index/takeover/live.c ---- */

/* Make all nodes.  For LIVE records: count them, list them, note their entries, and link parents
 * that are near. */
void takeover_scan(struct writer *w, struct scan *sc);
/* run() for n jobs, in the threads of this scan. */
void takeover_parallel(struct writer *w, struct scan *sc, void (*run)(void *job), void *jobs,
		       size_t bytes, uint32_t n);
/* Put the leaves into the queues of their pools. */
void takeover_fill_queues(struct writer *w, struct scan *sc);
void takeover_scan_end(struct writer *w, struct scan *sc);

/* ---- index/takeover/others.c ---- */

void takeover_rings(struct writer *w, struct scan *sc);
/* The other records, which the scan has listed. */
void takeover_others(struct writer *w, struct scan *sc);

/* ---- index/takeover/table.c ---- */

uint32_t takeover_regions(const struct writer *w);
/* Note the entries of that many LIVE records of a share. */
void takeover_note_entries(struct share *s, const uint32_t *record, uint32_t n);
/* Wipe the entries that no record has noted, and set missing flags. */
void takeover_sweep_table(struct writer *w, struct scan *sc);

/* ---- index/takeover/say.c ---- */

/* One log line for each cause. */
void takeover_say(struct writer *w, const struct damage *d);
/* ... and one for blocks that were lost after the first grace period. */
void takeover_say_full(struct writer *w, uint32_t blocks);

/* ---- index/takeover/tree.c ---- */

/* The record is LIVE and in the tree.  The scan goes from the last record of a share to the
 * first. */
void takeover_meet(struct share *s, uint32_t record);
/* All records within TAKEOVER_NEAR of this one were met. */
void takeover_link_near(struct share *s, uint32_t record);
/* Link the other records by the table, and by w->missing. */
void takeover_link_rest(struct writer *w, struct scan *sc);

/* ---- index/takeover/takeover.c ---- */

int takeover(struct writer *w);         /* -EBADMSG */
void takeover_finish(struct writer *w); /* after the first grace period: batch.then */

#endif
