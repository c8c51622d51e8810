/* SPDX-License-Identifier: Apache-2.0 */
/* segment.h - the files of one cache: made, opened, validated, mapped, removed.
 *
 * The files are DIR/gpc.NAME.idx, .ctl and .lock.  Host mirrors add DIR/gpc.NAME.m<generation>,
 * and pools with memory DIR/gpc.NAME.p<number> (memory.h). */
#ifndef GPC_SEGMENT_H
#define GPC_SEGMENT_H

#include <sys/stat.h>

#include "index/base/base.h"
#include "index/segment/geometry.h"
#include "index/base/key.h"
#include "index/segment/shm.h"

struct segment {
	char dir[256], name[GPC_MAX_NAME + 1];
	int index_fd, control_fd, lock_fd; /* -1 = not open; a snapshot keeps them for pread */
	/* Nothing is mapped: `index` and `control` are private copies, and NULL until
	 * segment_refresh makes them. */
	bool snapshot;
	/* A snapshot in which a file, or the end of one, was missing.  Zeros stand there, and
	 * lock_fd may be -1. */
	bool truncated;
	bool cut;      /* the copies are not whole: a file ended too early */
	uint32_t unit; /* files are multiples of it: 4096, or a huge page */
	struct layout at;
	uint8_t *index;           /* PROT_READ for peers */
	uint8_t *control;         /* read-write */
	struct shm_header header; /* of the index: a private copy, validated */
};

/* Conditions for opening; a field of zero sets none. */
struct segment_want {
	const uint8_t *layout;           /* 32 bytes, all zero = any; -EPROTO on mismatch */
	const struct gpc_config *config; /* IF_ABSENT: the existing cache must fit it; -EPROTO */
};

/* -EINVAL: the name is empty, longer than GPC_MAX_NAME, contains '/' or control characters, or
 * begins with '.'. */
int segment_name_check(const char *name);
/* -EEXIST, -ENOSPC (says how much is missing), -EINVAL, -EACCES, -EAGAIN (another process
 * has been creating or removing the name for two seconds).  On success opened and mapped
 * like segment_open does.  The names appear only when the content is complete, so a creator that
 * is killed at any point leaves nothing that an attaching process would take for a cache. */
int segment_create(struct segment *s, const char *name, const struct gpc_config *cfg);
/* -ENOENT, -EPROTO, -EBADMSG, -EACCES. */
int segment_open(struct segment *s, const char *name, const char *dir,
		 const struct segment_want *want);
/* The present answer of segment_open(), with its sentence.  Nothing is mapped, and nothing stays
 * open. */
int segment_verdict(const char *name, const char *dir);
/* For tools.  Nothing is mapped, and nothing copied yet, so no signal comes, whatever happens to
 * the files.  Damage beyond the header is no error here. */
int segment_snapshot(struct segment *s, const char *name, const char *dir);
/* In a snapshot: copy both files, for the first time or again; -ENOMEM. */
int segment_refresh(struct segment *s);
/* Of a snapshot: -EBADMSG if the index is not whole now.  The bytes that were just read may be
 * zeros then that were never stored there. */
int segment_check_index(const struct segment *s);
/* The same for the copies that segment_refresh made. */
int segment_check_copies(const struct segment *s);
/* Bytes of a file as they are now; zeros from where it ends. */
void segment_read(int fd, uint64_t at, void *to, uint64_t bytes);
/* The cache's files get that mode, and that group (0: it stays).  1: something has changed,
 * and ret_old is what the first such file was; 0:
 * they had them already, or mode is 0; -EPROTO: the files are another user's. */
int segment_redress(const struct segment *s, uint32_t mode, uint32_t gid, struct stat *ret_old);
/* A second, writable mapping of the index for the writer. */
int segment_map_writer(const struct segment *s, uint8_t **ret_index);
void segment_unmap_writer(const struct segment *s, uint8_t *index);
/* Another open file description of the lock file. */
int segment_open_lock(const struct segment *s);
void segment_close(struct segment *s);
/* For a forked child, whose descriptors are closed already: forget them and the mappings, which
 * are MADV_DONTFORK. */
void segment_abandon(struct segment *s);
/* Remove the index first, then the other files, and the leftovers of killed creators.  -ENOENT:
 * there was no index.  -EACCES, -EAGAIN as above. */
int segment_unlink(const char *name, const char *dir);

/* ---- typed places; the caller has checked that i is in range ---- */
#define SEG_AT(base, off, type, i) ((type *)((base) + (off)) + (i))

static inline struct shm_shared *seg_shared(const struct segment *s)
{
	return SEG_AT(s->control, s->at.shared, struct shm_shared, 0);
}

static inline struct shm_seat *seg_seat(const struct segment *s, uint32_t peer)
{
	return SEG_AT(s->control, s->at.seat, struct shm_seat, peer);
}

static inline struct shm_section *seg_section(const struct segment *s, uint32_t peer, uint32_t i)
{
	return SEG_AT(s->control, s->at.section, struct shm_section,
		      (uint64_t)peer * SHM_SECTIONS + i);
}

static inline struct shm_command *seg_command(const struct segment *s, uint32_t peer,
					      uint64_t position)
{
	return SEG_AT(s->control, s->at.ring, struct shm_command,
		      (uint64_t)peer * SHM_RING + (position & (SHM_RING - 1)));
}

static inline uint16_t *seg_cell(const struct segment *s, uint32_t record, uint32_t peer)
{
	return SEG_AT(s->control, s->at.ref + peer * s->at.column, uint16_t, record);
}

static inline uint64_t *seg_stamp(const struct segment *s, uint32_t record)
{
	return SEG_AT(s->control, s->at.stamp, uint64_t, record);
}

static inline uint32_t *seg_use(const struct segment *s, uint32_t record)
{
	return SEG_AT(s->control, s->at.use, uint32_t, record);
}

/* Only where notes are kept: geometry.note_lines. */
static inline struct shm_note *seg_note(const struct segment *s, uint32_t record)
{
	return SEG_AT(s->control, s->at.note, struct shm_note,
		      (uint64_t)record * s->header.geometry.note_lines);
}

static inline struct shm_transfer *seg_transfer(const struct segment *s, uint32_t peer)
{
	return SEG_AT(s->control, s->at.transfer, struct shm_transfer, peer);
}

static inline struct shm_board *seg_board(const struct segment *s)
{
	return SEG_AT(s->control, s->at.board, struct shm_board, 0);
}

static inline struct shm_ask *seg_ask(const struct segment *s, uint32_t peer, uint32_t i)
{
	return SEG_AT(s->control, s->at.ask, struct shm_ask, (uint64_t)peer * SHM_ASKS + i);
}

static inline const struct shm_state *seg_state(const struct segment *s)
{
	return SEG_AT(s->index, s->at.state, const struct shm_state, 0);
}

static inline const struct shm_pool *seg_pool(const struct segment *s, uint32_t pool)
{
	return SEG_AT(s->index, s->at.pool, const struct shm_pool, pool);
}

static inline const struct shm_mirror *seg_mirror(const struct segment *s, uint32_t i)
{
	return SEG_AT(s->index, s->at.mirror, const struct shm_mirror, i);
}

static inline const struct shm_xfer *seg_xfer(const struct segment *s, uint32_t peer,
					      uint32_t channel)
{
	return SEG_AT(s->index, s->at.xfer, const struct shm_xfer, peer *SHM_TRANSFERS + channel);
}

static inline const struct shm_tally *seg_tally(const struct segment *s, uint32_t peer)
{
	return SEG_AT(s->index, s->at.tally, const struct shm_tally, peer);
}

static inline const struct shm_record *seg_record(const struct segment *s, uint32_t record)
{
	return SEG_AT(s->index, s->at.record, const struct shm_record, record);
}

static inline const struct shm_change *seg_change(const struct segment *s, uint64_t number)
{
	return SEG_AT(s->index, s->at.change, const struct shm_change,
		      number &(s->header.geometry.changes - 1));
}

/* Only where digests are kept. */
static inline const struct shm_note *seg_change_note(const struct segment *s, uint64_t number)
{
	return SEG_AT(s->index, s->at.change_note, const struct shm_note,
		      number &(s->header.geometry.changes - 1));
}

static inline const struct shm_drop *seg_drop(const struct segment *s, uint64_t i)
{
	return SEG_AT(s->index, s->at.drop, const struct shm_drop, i &(SHM_DROPS - 1));
}

static inline bool seg_keeps(const struct segment *s, uint32_t what)
{
	return (s->header.geometry.keep & what) != 0;
}

static inline bool seg_keeps_notes(const struct segment *s)
{
	return s->header.geometry.note_lines != 0;
}

#endif
