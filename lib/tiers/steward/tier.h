/* SPDX-License-Identifier: Apache-2.0 */
/* tier.h - a tier below RAM, as the service that keeps it sees it.
 *
 * Each such tier has a pool in the index, of a kind of its own (GPC_DISK, GPC_REMOTE), in a space
 * of its own, of CALLER blocks of the service's handle.  A slot of the pool is a slot of the tier:
 * the service says which block goes where, and who has a key is a lookup in that space.  The tier
 * has bytes only.
 *
 * All calls may be made by several threads at a time.  One slot is kept apart by the service:
 * whoever writes into it, or makes it free, has it alone; whoever reads holds a reference on its
 * block.
 *
 * What a tier answers is believed after its own checks: it gives the bytes that were written under
 * that key and this layout, or an error.  Each error is a miss.
 * Tests: t/tiers/down-and-up.t */
#ifndef GPC_STAGE_TIER_H
#define GPC_STAGE_TIER_H

#include <sys/uio.h>

#include "index/base/base.h"
#include "index/base/log.h"
#include "gpc.h"

/* What fails is tried again after a second, then after twice as long each time. */
#define REST_NS      (1000 * NS_PER_MS)
#define REST_MOST_NS (60000 * NS_PER_MS)
static inline uint64_t rest_longer(uint64_t ns)
{
	return MIN(2 * ns, REST_MOST_NS);
}

/* A block on its way up or down.  All of it is the caller's. */
struct tier_item {
	uint64_t slot;       /* of the tier's pool */
	gpc_key key, parent; /* wanted; of a read `parent`, `depth` and `tag` are answers */
	uint32_t depth, tag;
	const struct iovec *iov; /* the image where it lies in RAM: pieces in their order */
	uint32_t niov;
	uint32_t crc; /* CRC32C of the image: of a read the answer */
	bool has_crc; /* of a write: crc is known */
	/* of a write: stored beside it; at most as many bytes as the tier has room for */
	const void *note;
	uint32_t note_bytes;
	gpc_block ram; /* the block of RAM of iov */
	/* 0, or a negative errno.  -ENOENT, -ESTALE: it is not there (any more); -EBADMSG:
	 * damaged; -ETIME: too late; -EINPROGRESS: too late, and the tier keeps `ram` for itself
	 * (a claim on it is dropped): it gives it back; others: the tier's */
	int result;
	void *arg; /* the tier's own, during the call */
};

/* A block that is there when the tier is opened. */
struct tier_found {
	uint64_t slot;
	gpc_key key, parent;
	uint32_t depth, tag;
	uint64_t age_ns;
	uint32_t note_bytes, note_crc; /* of the note that was written with it; 0 bytes: none */
};

struct tier; /* the tier's own; `ops` comes first */

struct tier_ops {         /* all of it, of each kind; what one kind has alone stands below */
	const char *name; /* "disk" */
	uint32_t kind;    /* GPC_DISK, GPC_REMOTE */
	/* Items of a write come in the order in which they are to go: the first one is the oldest.
	 * Return when each item has its result, by deadline_ns (CLOCK_MONOTONIC) or soon after it:
	 * -ETIME. Nothing is stored in iov after that. */
	void (*read)(struct tier *t, struct tier_item *items, uint32_t n, uint64_t deadline_ns);
	void (*write)(struct tier *t, struct tier_item *items, uint32_t n, uint64_t deadline_ns);
	/* That slot has no block any more: on the disk with the next clear or sync; in a store soon,
	 * and it is not read there from now on. */
	void (*forget)(struct tier *t, uint64_t slot, const gpc_key *key);
	/* No slot has a block any more, and none will after a restart: on the disk when it returns
	 * 0. A store keeps what others use. */
	int (*clear)(struct tier *t);
	void (*close)(struct tier *t);
};

struct tier {
	const struct tier_ops *ops;
	uint64_t *beat; /* stored with each block that was read; NULL: nobody looks */
};

/* ---- disk.c: the file of lib/disk ---- */

struct disk;
struct tier_file;
/* notes: those of blocks that a scan finds are going to be read. */
int tier_disk(struct disk *d, bool notes, const struct log *log, const char *of,
	      struct tier_file **ret);
struct tier *tier_disk_tier(struct tier_file *f);
/* peek.c: its errors by the meanings of gpc.h; the sentence stays. */
int tier_disk_error(int err);
/* All that was answered by `forget` and `write` is on the disk. */
int tier_disk_sync(struct tier_file *f);
/* All blocks that are there, parents first, *ret to be freed; once, before the first write. */
int tier_disk_scan(struct tier_file *f, struct tier_found **ret, uint64_t *ret_n);
/* The note of such a block, note_bytes of it: 0, or why there is none. */
int tier_disk_note(struct tier_file *f, const struct tier_found *found, void *to);
/* Nothing that is there was changed before it, and it is the last of an opening that may fail: then
 * nothing is.  clear: all of it goes at once with that. */
int tier_disk_begin(struct tier_file *f, bool clear);
/* CLOCK_MONOTONIC: before that a write would only wait, for a limit on what is written. */
uint64_t tier_disk_turn(struct tier_file *f);

/* ---- remote.c: a store on other machines ---- */

struct gpc_tiers;
struct tier_store;
/* The store that the options name, for images like those of that pool of RAM. */
int tier_remote(struct gpc_tiers *t, uint32_t ram, struct tier_store **ret);
struct tier *tier_remote_tier(struct tier_store *s);
/* Once its place in the desk is made. */
int tier_remote_start(struct tier_store *s);
uint32_t tier_remote_blocks(const struct gpc_tiers *t, uint32_t ram);
/* Which of these keys, of which the index knows nothing, are there all the same: has[i] = 1.
 * Returns how many. */
int tier_remote_exists(struct tier_store *s, const gpc_key *keys, uint32_t n, uint8_t *has,
		       uint64_t deadline_ns);
/* false: reads and writes would come to nothing now. */
bool tier_remote_ready(struct tier_store *s);
/* The blocks of the last write are published, or refused, and `forget` has been told of these. */
void tier_remote_settled(struct tier_store *s);
/* Something that `forget` was told of is there still. */
bool tier_remote_owes(struct tier_store *s);
/* Calls under way end soon, later ones at once, and nothing more is stored in the desk. */
void tier_remote_stop(struct tier_store *s);

#endif
