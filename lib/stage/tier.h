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
 * Tests: t/101-tiers.t */
#ifndef GPC_STAGE_TIER_H
#define GPC_STAGE_TIER_H

#include <sys/uio.h>

#include "base/base.h"
#include "base/log.h"
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

struct tier_counts {
	uint64_t misses, bad, errors, late, refused;
};

struct tier; /* the tier's own; `ops` comes first */

struct tier_ops {
	const char *name; /* "disk" */
	uint32_t kind;    /* GPC_DISK, GPC_REMOTE */
	/* Items of a write come in the order in which they are to go: the first one is the oldest.
	 * Return when each item has its result, by deadline_ns (CLOCK_MONOTONIC) or soon after it:
	 * -ETIME. Nothing is stored in iov after that. */
	void (*read)(struct tier *t, struct tier_item *items, uint32_t n, uint64_t deadline_ns);
	void (*write)(struct tier *t, struct tier_item *items, uint32_t n, uint64_t deadline_ns);
	/* These slots have no block any more, and never will after a restart: on the disk when it
	 * returns 0. keys: a slot that has another one by now is left alone. */
	int (*forget)(struct tier *t, const uint64_t *slots, const gpc_key *keys, uint32_t n);
	/* The same for all of the tier. */
	int (*clear)(struct tier *t);
	/* All that was answered by `reuse` and `write` is on the disk.  NULL: nothing to do. */
	int (*sync)(struct tier *t);
	/* The service evicts the block of this slot: gone with the next forget, clear or sync.
	 * NULL: nothing to do. */
	void (*reuse)(struct tier *t, uint64_t slot, const gpc_key *key);
	/* All blocks that are there, parents first, *ret to be freed; once, before the first write.
	 * NULL: none. */
	int (*scan)(struct tier *t, struct tier_found **ret, uint64_t *ret_n);
	/* The note of such a block, note_bytes of it: 0, or why there is none.  NULL: the tier has
	 * no notes. */
	int (*note)(struct tier *t, const struct tier_found *f, void *to);
	/* Nothing that is there was changed before it, and it is the last of an opening that may
	 * fail: then nothing is. clear: all of it goes at once with that.  NULL: nothing to do. */
	int (*begin)(struct tier *t, bool clear);
	/* Which of these keys, of which the index knows nothing, are there all the same: has[i] =
	 * 1.  Returns how many.  NULL: the index knows all. */
	int (*exists)(struct tier *t, const gpc_key *keys, uint32_t n, uint8_t *has,
		      uint64_t deadline_ns);
	/* CLOCK_MONOTONIC: before that a write would only wait, for a limit on what is written.
	 * NULL: it never does. */
	uint64_t (*turn)(struct tier *t);
	/* false: reads and writes would come to nothing now.  NULL: it always is. */
	bool (*ready)(struct tier *t);
	/* The blocks of the last write are published, or refused, and `reuse` has been told of
	 * these.  NULL: nothing to do. */
	void (*settled)(struct tier *t);
	/* Something that `reuse` was told of is there still.  NULL: never, once it is synced. */
	bool (*owes)(struct tier *t);
	/* What went wrong so far, by cause. */
	void (*counts)(struct tier *t, struct tier_counts *ret);
	/* Calls under way end soon, later ones at once, and nothing more is stored in the desk.
	 * NULL: they do not take long. */
	void (*stop)(struct tier *t);
	void (*close)(struct tier *t);
};

struct tier {
	const struct tier_ops *ops;
	uint64_t *beat; /* stored with each block that was read; NULL: nobody looks */
};

/* The file of lib/disk as a tier.  notes: those of blocks that a scan finds are going to be
 * read. */
struct disk;
int tier_disk(struct disk *d, bool notes, const struct log *log, const char *of, struct tier **ret);
/* peek.c: its errors by the meanings of gpc.h; the sentence stays. */
int tier_disk_error(int err);

/* The store that the options name, for images like those of that pool of RAM. */
struct gpc_tiers;
int tier_remote(struct gpc_tiers *t, uint32_t ram, struct tier **ret);
/* Once its place in the desk is made. */
int tier_remote_start(struct tier *t);
uint32_t tier_remote_blocks(const struct gpc_tiers *t, uint32_t ram);

#endif
