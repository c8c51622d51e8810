/* SPDX-License-Identifier: Apache-2.0 */
/* disk.h - a file of blocks that outlives the cache: format, locks, reads, writes, threads.
 *
 *   tiers/disk/format.h   the bytes
 *   tiers/disk/open.c     opened, locked, found sound; begun; closed
 *   tiers/disk/make.c     made, grown, cut
 *   tiers/disk/aside.c    keeps a damaged one under another name
 *   tiers/disk/super.c    the two superblocks: epoch, clock
 *   tiers/disk/io.c       whole transfers; direct ones, with the alignment that they need
 *   tiers/disk/slot.c     one block: written, read, forgotten
 *   tiers/disk/scan.c     all that are there, parents first
 *   tiers/disk/queue.c    threads: reads before writes, a bound, a rate
 *
 * It knows no cache and no handle.  A slot has a number and holds one block or none; the caller
 * chooses the slot of a block.
 *
 * These invariants hold:
 *   1  A read gives the bytes that were written under that key, or an error.  (Checksums have 32
 *      bits: damaged bytes pass once in 2^32.)
 *   2  A disk_clear that has answered 0 is on the disk.  A disk_free is on the disk if it had
 *      answered before a disk_clear or disk_sync that has answered 0.  No scan finds such blocks
 *      again, even after a loss of power.
 *   3  A write that was answered is there after the death of the process; after a loss of power it
 *      may be missing, and is then a miss.
 *   4  A file that is refused is left as it was, byte for byte.
 *   5  If a sync fails, the kernel may have dropped the bytes that it could not write.  If
 *      disk_free fails, a header stays.  From then on disk_sync answers -EIO, until a disk_clear
 *      succeeds with a new epoch.
 *
 * Legal states of a slot, and the answers about it
 *
 *   on disk                    read        scan     after
 *   FREE: zeros                -ENOENT     -        a new file; free, the first step of a write
 *   WHOLE, older epoch         -ENOENT     -        clear
 *   WHOLE, this epoch          0           found    write
 *     another key              -ESTALE     found
 *     another structure        -ESTALE     found    -EAGAIN: the reader lacks the seed of a part
 *     image damaged            -EBADMSG    found    lost power, bits, stray stores
 *   anything else              -EBADMSG    bad      bits, another file's header, a torn page
 *
 * All calls may run at the same time, from any threads, with one exception: the caller does not
 * run a write together with another operation on its slot.  A clear may run during any call: a
 * write that began before the clear ends with -ESTALE and leaves nothing.
 * Tests: t/tiers/disk-slots.t */
#ifndef GPC_DISK_H
#define GPC_DISK_H

#include <sys/types.h>
#include <sys/uio.h>

#include "index/base/base.h"
#include "index/base/log.h"
#include "index/base/sums.h"
#include "gpc.h"

struct disk;

/* ---- a file ---- */

enum {
	DISK_CREATE = 1, /* make a missing or empty file */
	/* change its number of slots to `slots`; blocks beyond the new end are lost */
	DISK_RESIZE = 2,
	DISK_BUFFERED = 4,    /* no O_DIRECT */
	DISK_KEEP_SECRET = 8, /* a file that is made keeps the secret that is given */
	DISK_LATER = 16,      /* only look at it: disk_begin does the rest */
	DISK_ASIDE =
		32, /* with DISK_CREATE: a damaged one is renamed, and a new one made (aside.c) */
	DISK_ANY_LAYOUT = 64, /* disk_check: the fingerprint is not known yet */
};

struct disk_options { /* zero = default */
	uint32_t flags;
	uint64_t slots;          /* 0: as many as the file has */
	uint64_t image_bytes;    /* of a block; 0: as the file has.  1 to 4 GiB */
	uint32_t note_bytes;     /* the most bytes of a note of a block; at most 65536 */
	uint8_t fingerprint[32]; /* layout of the images */
	/* 16 bytes, with which keys are hashed: a file of another secret is refused.  They are
	 * stored only with DISK_KEEP_SECRET.  NULL: the file keeps a secret, drawn when it is
	 * made */
	const uint8_t *secret;
	uint32_t threads;    /* 8; at most 64 */
	uint32_t queue;      /* the most reads that wait, and as many writes; 256 */
	uint64_t write_rate; /* bytes a second; 0: no limit */
	uint64_t
		write_burst; /* the most bytes at once, after a pause; 0: the bytes of one second */
	const struct log *log; /* for messages; NULL: none.  It outlives the disk */
};

/* Open it for only this process, make it if asked to, start the threads.
 *   -ENOENT      there is none, and no DISK_CREATE
 *   -EBUSY       another process has it locked
 *   -EPERM       another user's, or other users may read or write it
 *   -ENOTSUP     no regular file (a link, a device, a pipe)
 *   -EBADMSG     both superblocks are damaged, or the file is shorter than they say; with DISK_ASIDE
 *                only where nobody says how large a new one is to be, or too many are aside
 *   -EPROTO      another version, byte order or no disk file at all
 *   -EXDEV       another layout, another secret, images of other lengths
 *   -ERANGE      another number of slots, and no DISK_RESIZE
 *   -ENOSPC      no room for that many slots
 *   -EINVAL, -ENOMEM, other errors of open(2).  All errors have a sentence */
int disk_open(const char *path, const struct disk_options *opt, struct disk **ret);
/* Called after disk_open with DISK_LATER.  The file is made, gets its size and, with clear, loses
 * all its blocks: at once, or not at all.  Before it only disk_scan, which finds the blocks that
 * are going to be there, disk_info and disk_close may be called.  disk_close removes a file then
 * that did not exist before. */
int disk_begin(struct disk *d, bool clear);
/* Requests in the queues are answered with -ECANCELED; requests under way end.  NULL is fine. */
void disk_close(struct disk *d);

struct disk_info {
	uint64_t slots, image_bytes, slot_bytes, file_bytes;
	uint32_t note_bytes;
	uint64_t epoch;
	uint8_t file[16], secret[16];
	bool has_secret; /* the file keeps it */
	bool made;       /* this disk_open has made it, or disk_begin is going to */
	bool mended;     /* one superblock was damaged, and was written again */
	bool direct;     /* O_DIRECT works here */
	bool removed;    /* nobody will find the file any more, because its name is gone */
	bool broken;     /* point 5 */
};
void disk_info(struct disk *d, struct disk_info *ret);
/* The content of a file's superblocks (without `direct`, `removed`, `broken`), without a lock.  It
 * is for a caller that needs the secret before there is a cache.  Errors as in disk_open;
 * an empty or unfinished file is -ENOENT. */
int disk_peek(const char *path, struct disk_info *ret);
/* Would disk_open refuse the file for what its superblocks say?  The file is not locked, and stays
 * as it is; a missing one that may be made is none of them. */
int disk_check(const char *path, const struct disk_options *opt);

/* ---- a block ---- */

struct disk_slot {
	uint64_t slot;
	gpc_key key, parent; /* parent: zero if there is none */
	uint32_t depth, tag;
	struct image_sum sum;
	uint32_t note_bytes, note_crc;
	uint64_t born_ns;    /* the time when it was written, by disk_now */
	uint64_t written_ns; /* CLOCK_REALTIME, for people: it may jump */
	uint64_t serial;
};

/* The file's own clock in ns, by which the age of a block is known.  It never goes back, and
 * ignores jumps of the clock of the day.  While the machine is up it goes on, whether the file is
 * open or not.  Over a restart of the machine it advances by the difference of the dates, if that
 * is not negative. */
uint64_t disk_now(const struct disk *d);

enum disk_kind { DISK_READ, DISK_WRITE };

/* One operation.  Its memory is the caller's, and stays until done() was called.
 *
 * READ what.slot, what.key and what.sum.seed say what is wanted.  The image is stored in iov.
 * Once
 *         the result is 0, `what` and `note` have the values of the header.  Otherwise iov may hold
 *         anything.
 * WRITE `what` has slot, key, parent, depth and tag; sum, whose crc is computed without has_crc;
 * and
 *         born_ns, 0: now.  `note` is the note.  `what` gets crc, born_ns, written_ns and serial. */
struct disk_op {
	enum disk_kind kind;
	struct disk_slot what;
	const struct iovec *iov; /* pieces of any sizes, with image_bytes together */
	uint32_t niov;
	bool has_crc;
	struct image_parts parts; /* of the image; n 0: it is one part */
	void *note;               /* WRITE: what.note_bytes; READ: room for the most; NULL */
	uint64_t deadline_ns;     /* CLOCK_MONOTONIC: it is not begun after that; 0: none */
	/* It is called in a thread of the disk.  It may submit, but may neither wait for an
	 * operation nor close. */
	void (*done)(struct disk_op *op);
	void *arg;
	int result;
	/* private */
	struct disk_op *next;
	uint64_t queued_ns;
};

/* 0: done() will be called once.  -EAGAIN: the queue is full.  -ESHUTDOWN: the disk is being
 * closed.  -EINVAL: an impossible slot, length or pieces.  Results:
 *   -ENOENT     no block is there
 *   -ESTALE     another block, or one of another structure, is there; WRITE: a clear came meanwhile
 *   -EAGAIN     one of a structure is there, and the reader has none yet
 *   -EBADMSG    damaged: header, image or note
 *   -ENODATA    the file ends before it
 *   -ETIME      its deadline passed while it waited
 *   -ECANCELED  the disk was closed while it waited
 *   -EIO, -ENOSPC and other errors of the system */
int disk_submit(struct disk *d, struct disk_op *op);

/* The same, run at once in the calling thread. */
int disk_run(struct disk *d, struct disk_op *op);

int disk_clear(struct disk *d); /* remove all blocks of the file, durably */
int disk_sync(struct disk *d);  /* make everything durable that was answered */
/* For evictions: the header becomes FREE, and is on the disk when the next clear or sync has been
 * answered.  A write does so itself before it begins. */
int disk_free(struct disk *d, uint64_t slot);
/* Only the header and the note, as they are now; results as in a read. */
int disk_look(struct disk *d, struct disk_slot *what, void *note);
/* Only the note, of a block from a scan or a look: what->note_bytes of it.  -EBADMSG: it is
 * damaged, or the slot has been written since. */
int disk_note(struct disk *d, const struct disk_slot *what, void *note);
/* The notes of the 1024 slots around this one are going to be read: the system may begin. */
void disk_note_ahead(struct disk *d, uint64_t slot);

/* ---- all blocks ---- */

/* All WHOLE blocks of the epoch, parents before their children (by depth), each key of a depth
 * once.  If a key is there twice, the one that was written last counts, and the others are made
 * FREE.  Returns them in *ret, which the caller frees, and their number.  All other slots are
 * free.  2^20 headers take less than a second.  It has to come before any write, which it might
 * miss. */
int disk_scan(struct disk *d, struct disk_slot **ret, uint64_t *ret_n);

/* CLOCK_MONOTONIC: a write that is submitted now would wait for the rate until then; 0: it would
 * not wait. */
uint64_t disk_turn(struct disk *d);

#endif
