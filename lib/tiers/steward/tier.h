/* SPDX-License-Identifier: Apache-2.0 */
/* tier.h - a tier below RAM, as the service that keeps it sees it.
 *
 * Each such tier has a pool in the index, of a kind of its own (GPC_DISK, GPC_REMOTE), in a space
 * of its own, of CALLER blocks of the service's handle.  A slot of the pool is a slot of the
 * tier: the service chooses the slot of a block, and a lookup in that space finds the slot of a
 * key.  The tier has bytes only.
 *
 * All calls may be made by several threads at a time.  One slot is kept apart by the service:
 * a thread that writes into it, or makes it free, has it alone; a reader holds a reference on its
 * block.
 *
 * A tier checks its answers by itself, and is believed: it gives the bytes that were written under
 * that key and this layout, or an error.  Each error is a miss.
 * Tests: t/tiers/down-and-up.t */
#ifndef GPC_STEWARD_TIER_H
#define GPC_STEWARD_TIER_H

#include <sys/uio.h>

#include "index/base/base.h"
#include "index/base/log.h"
#include "index/base/sums.h"
#include "gpc.h"
#include "gpc_tiers.h"

/* A failed call is tried again after this time, then after twice as long each time. */
#define REST_NS      (1000 * NS_PER_MS)
#define REST_MOST_NS (60000 * NS_PER_MS)
static inline uint64_t rest_longer(uint64_t ns)
{
	return MIN(2 * ns, REST_MOST_NS);
}

/* A block on its way up or down.  All of this memory is the caller's. */
struct tier_item {
	uint64_t slot; /* slot of the tier's pool */
	/* the wanted key; for a read `parent`, `depth` and `tag` are answers */
	gpc_key key, parent;
	uint32_t depth, tag;
	const struct iovec *iov; /* the image in its place in RAM: pieces in their order */
	uint32_t niov;
	struct image_sum sum; /* for a read the seed is wanted, and all of it is the answer */
	bool has_crc;         /* for a write: sum.crc is known, and so are the sums of the parts */
	struct image_parts parts;
	/* for a write: stored with the block; at most as many bytes as the tier has room for */
	const void *note;
	uint32_t note_bytes;
	gpc_block ram; /* the block of RAM that iov points into */
	/* 0, or a negative errno.  -ENOENT, -ESTALE: it is not there (any more).  -EBADMSG: it is
	 * damaged.  -EAGAIN: it has a structure, and the pool has none yet.  -ETIME: it came too
	 * late.  -EINPROGRESS: it came too late, and the tier keeps `ram` (a claim on it is dropped)
	 * and will release it.  Or another error of the tier */
	int result;
};

/* Both kinds read and write in this way.  Items of a write come in the order in which they are to
 * go: the first one is the oldest.  The calls return when each item has its result, by deadline_ns
 * (CLOCK_MONOTONIC) or soon after it: -ETIME.  Nothing is stored in iov after that. */
struct lower;

/* ---- disk.c: the file of lib/disk ---- */

void tier_disk_read(struct lower *d, struct tier_item *items, uint32_t n, uint64_t deadline_ns);
void tier_disk_write(struct lower *d, struct tier_item *items, uint32_t n, uint64_t deadline_ns);
/* Store all blocks that are there in d->found, parents first.  It is called once, before the first
 * write. */
int tier_disk_scan(struct lower *d);
/* CLOCK_MONOTONIC: before that time a write would only wait for the limit on writes. */
uint64_t tier_disk_turn(const struct lower *d);
/* peek.c: the disk's errors by the meanings of gpc.h; the sentence stays. */
int tier_disk_error(int err);

/* ---- remote.c: a store on other machines ---- */

struct gpc_tiers;
struct tier_store;
/* The store that the options name, for images like those of that pool of RAM.  Its place in the
 * board is made before.  If a later step fails, the caller closes *ret all the same. */
int tier_remote(struct gpc_tiers *t, uint32_t ram, struct tier_store **ret);
uint32_t tier_remote_blocks(const struct gpc_tiers *t, uint32_t ram);
void tier_remote_read(struct tier_store *s, struct tier_item *items, uint32_t n,
		      uint64_t deadline_ns);
void tier_remote_write(struct tier_store *s, struct tier_item *items, uint32_t n,
		       uint64_t deadline_ns);
/* Its value will be removed there soon, and is not read from now on. */
void tier_remote_forget(struct tier_store *s, const gpc_key *key);
/* The number of first keys of one prompt that the tier has; the index does not know them. */
uint32_t tier_remote_reach(struct tier_store *s, const gpc_key *keys, uint32_t n,
			   uint64_t deadline_ns);
/* False: reads and writes would fail now. */
bool tier_remote_ready(struct tier_store *s);
/* The blocks of the last write are published, or refused, and tier_remote_forget has been called
 * for the refused ones. */
void tier_remote_settled(struct tier_store *s);
/* Has a key of tier_remote_forget not been removed yet? */
bool tier_remote_owes(struct tier_store *s);
/* Calls under way end soon, later ones at once, and nothing more is stored in the board. */
void tier_remote_stop(struct tier_store *s);
void tier_remote_close(struct tier_store *s);

#endif
