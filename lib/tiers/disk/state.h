/* SPDX-License-Identifier: Apache-2.0 */
/* state.h - an open disk, for the files of this folder.
 * Tests: t/tiers/disk-queue.t t/tiers/disk-scan.t */
#ifndef GPC_DISK_STATE_H
#define GPC_DISK_STATE_H

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

#include "index/base/worker.h"
#include "tiers/disk/disk.h"
#include "tiers/disk/format.h"

#define DISK_MOST_THREADS 64u /* the most threads that may be asked for */
#define DISK_ASIDE_MOST   4u /* at most so many damaged files of a disk: NAME.bad, NAME.bad.1, ... */

struct buffer {
	struct buffer *next;
};
struct pipe {
	struct pipe *next;
	int fd[2];
};

struct disk_queue {
	struct disk_op *first, **last;
	uint32_t n, running;
};

struct disk {
	int fd;       /* it has the lock; for superblocks, and reads of headers and notes */
	int image_fd; /* the same file with O_DIRECT; else fd */
	bool direct, made, mended, created;
	bool unmade, begun, buffered; /* unmade: disk_begin makes it */
	bool cut, damaged;    /* what is wrong with the file of fd; disk_begin sets it aside */
	char aside[PATH_MAX]; /* the name of the file that was set aside; "": no file was */
	int old_fd;           /* of the damaged file, within disk_begin; else -1 */
	uint64_t due;         /* the number of slots from disk_begin on */
	uint64_t *owed;       /* scan.c: headers that disk_begin is to free */
	uint32_t nowed, owed_room;
	uint32_t align; /* alignment of memory with O_DIRECT */
	pid_t pid;      /* the process that the threads and descriptors belong to */
	char *path;
	const struct log *log;

	/* immutable, except for generation and epoch, which super_lock protects */
	struct disk_super super;
	uint64_t group_bytes, images_at; /* bytes of a group; place of the images in it */
	uint64_t clock_base, boot_base;  /* disk_now() is base + CLOCK_BOOTTIME - boot_base */
	uint64_t serial;                 /* the last serial number that was given; atomic */
	uint64_t epoch;                  /* as super.epoch; stored under epoch_lock */

	pthread_mutex_t super_lock; /* protects superblocks, syncs, `broken` */
	/* Shared: a header is stored.  Exclusive: the epoch rises.  Taken inside super_lock. */
	pthread_rwlock_t epoch_lock;
	uint32_t broken;
	uint64_t clock_saved; /* disk_now() of the last superblock; atomic */

	/* the file mapped, for stores of headers and notes; NULL: they go by write(2) */
	uint8_t *map;
	uint64_t map_bytes;

	pthread_mutex_t buffer_lock;
	struct buffer *buffers;
	struct pipe *pipes;

	struct worker worker; /* the lock protects the following fields */
	struct disk_queue reads, writes;
	uint32_t most_waiting, most_reading, most_writing, reads_in_row;
	void *timed;                      /* the one thread that waits for the turn of a write */
	uint64_t rate, burst_ns, turn_ns; /* turn_ns: the time when the next write may begin */
};

static inline uint64_t disk_group_at(const struct disk *d, uint64_t slot)
{
	return DISK_GROUPS + slot / DISK_GROUP * d->group_bytes;
}

static inline uint64_t disk_header_at(const struct disk *d, uint64_t slot)
{
	return disk_group_at(d, slot) + slot % DISK_GROUP * DISK_HEADER_BYTES;
}

static inline uint64_t disk_note_at(const struct disk *d, uint64_t slot)
{
	return disk_group_at(d, slot) + DISK_GROUP * DISK_HEADER_BYTES +
	       slot % DISK_GROUP * d->super.note_bytes;
}

static inline uint64_t disk_image_at(const struct disk *d, uint64_t slot)
{
	return disk_group_at(d, slot) + d->images_at + slot % DISK_GROUP * d->super.slot_bytes;
}

/* The bytes of a file with this number of slots. */
static inline uint64_t disk_bytes(const struct disk *d, uint64_t slots)
{
	return disk_image_at(d, slots - 1) + d->super.slot_bytes;
}

/* ---- super.c: with super_lock held, or while no other thread has the disk ---- */

enum super_look { SUPER_GOOD, SUPER_BAD, SUPER_NONE, SUPER_VERSION, SUPER_ENDIAN, SUPER_UNREAD };
/* Store the better superblock in *ret; *ret_mend: the other is damaged.  SUPER_UNREAD: errno. */
enum super_look super_read(int fd, struct disk_super *ret, bool *ret_mend, uint32_t *ret_version);
int super_store(struct disk *d, uint64_t at); /* store one superblock, without a sync */
void super_next_epoch(struct disk *d);        /* in d->super */
int super_commit(struct disk *d);             /* store both, with a sync; it clears `broken` */
int super_sync(struct disk *d);               /* headers and all: fdatasync */
/* call it when a header could not be removed; it takes super_lock */
void super_break(struct disk *d);
void super_clock_start(struct disk *d); /* start from the values of the superblock */
void super_clock_save(struct disk *d);  /* called now and then; it takes super_lock */
uint64_t super_real_ns(void);

/* ---- aside.c ---- */

/* The damaged file gets another name, and fd becomes an empty file.  After an error nothing has
 * changed. */
int aside_begin(struct disk *d);
/* Call it after aside_begin.  made: keep the new file; else everything is as before. */
void aside_end(struct disk *d, bool made);

/* ---- make.c ---- */

void make_geometry(struct disk *d); /* set group_bytes and images_at, from the superblock */
/* Make the superblock of the file that opt describes, in d->super. */
int make_draft(struct disk *d, const struct disk_options *opt);
/* Make the file, which is empty or was never finished.  After an error it is empty. */
int make_file(struct disk *d);
/* Give the file d->due slots and, if clear, the next epoch, by one change of its superblocks. */
int make_due(struct disk *d, bool clear);
int make_check(const struct disk_options *opt); /* can such a file be made? */
uint64_t make_secret_check(const uint8_t secret[16]);

/* ---- io.c ---- */

/* Transfer all of v, which is used up: 0, -ENODATA (the file ends before), or -errno.  align: an
 * interrupted transfer goes on at a multiple of it. */
int io_move(int fd, bool write, struct iovec *v, uint32_t n, uint64_t at, uint32_t align);
int io_read(int fd, void *to, size_t n, uint64_t at);
int io_write(int fd, const void *from, size_t n, uint64_t at);
/* An image, to or from the caller's pieces, with its checksum.  A write computes it before, unless
 * it is known; a read computes it afterwards. */
int io_write_image(struct disk *d, struct disk_op *op);
int io_read_image(struct disk *d, struct disk_op *op, uint32_t crc);
void io_free_buffers(struct disk *d);
/* Store a header or a note in the page cache.  -ENODATA: the file ends before it. */
int io_store(struct disk *d, const void *from, size_t n, uint64_t at);
void io_map(struct disk *d, int fd);
void io_unmap(struct disk *d);

/* ---- slot.c ---- */

/* 0: a block is there, described in *ret; -ENOENT, -EBADMSG. */
int slot_check(const struct disk *d, const struct disk_header *h, uint64_t slot,
	       struct disk_slot *ret);
int slot_check_op(const struct disk *d, const struct disk_op *op);
void slot_run(struct disk *d, struct disk_op *op); /* disk_run() of a checked operation */

/* ---- scan.c ---- */

/* free the headers that a scan before disk_begin would have freed */
void scan_owed(struct disk *d);

/* ---- queue.c ---- */

void queue_open(struct disk *d);
int queue_start(struct disk *d, const struct disk_options *opt);
void queue_stop(struct disk *d);

#endif
