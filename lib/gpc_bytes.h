/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_bytes.h - the bytes of blocks: memory of pools, copies between them, and checksums.
 *
 *   image  the bytes of one block, its pieces one after the other.  A pool may have memory, which
 *          every process maps by the pool's number, and then has a layout that says where the
 *          pieces of a block are.  Any other pool is a set of numbers, and its bytes are the
 *          engine's own affair.
 *
 * A stream is a cudaStream_t, passed as void *; NULL is the default one of the device.
 * Tests: t/repo/exports.t t/repo/headers.t t/repo/abi.t */
#ifndef GPC_BYTES_H
#define GPC_BYTES_H

#include "gpc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpc_sums gpc_sums; /* checksums of memory of the caller's own */
typedef uint64_t gpc_transfer;    /* names copies of one handle; 0 = none */

#define GPC_TRANSFER_ALL    UINT64_MAX /* for gpc_transfer_wait */
#define GPC_MAX_RUNS        512        /* of a layout */
#define GPC_MAX_PARTS       512        /* of a pool's memory */
#define GPC_TRANSFERS       64         /* transfers of one handle under way */
#define GPC_TRANSFER_BLOCKS 1024       /* that one fetch or spill copies */
#define GPC_MAX_RANKS       16         /* processes that copy for one transfer */
#define GPC_MAX_STAGES      16         /* of a fetch by layers */
#define GPC_SUMS            4096       /* answers of one gpc_sums */
#define GPC_MAX_SUMS        256        /* of an image */
#define GPC_MAX_PIECES      65536      /* of an image, for gpc_sums_open */

/* flags of these calls, beside those of gpc.h */
enum {
	/* demote, promote, spill: the source stays live too (only between different spaces) */
	GPC_COPY = 1 << 8,
	GPC_CANCEL = 1 << 9, /* commit: give the moves up */
	/* fetch: only blocks with a checksum, and none of their bytes counts before the transfer
	 * is done */
	GPC_VERIFY_FIRST = 1 << 14
};

/* ---- memory of pools ---- */

/* NUMA policies of RAM */
enum {
	GPC_NUMA_DEFAULT = 0,    /* of the process that makes the pool */
	GPC_NUMA_INTERLEAVE = 1, /* page by page over the nodes */
	GPC_NUMA_BIND = 2        /* on these nodes only */
};

struct gpc_run {              /* pieces of one size at equal distances */
	uint32_t part;        /* which allocation of the pool, from 0; RAM: 0 */
	uint32_t count;       /* pieces of a block, at least 1 */
	uint64_t bytes;       /* of a piece, at least 1 */
	uint64_t offset;      /* of piece 0 of slot 0, in the part */
	uint64_t slot_stride; /* from a slot to the next one; at least 1 */
	uint64_t run_stride;  /* from a piece to the next one; of count 1 it says nothing */
};

struct gpc_memory { /* what a pool's memory is to be; zero = default; set size */
	uint32_t size;
	/* at most GPC_MAX_RUNS; 0 = one piece a block, slot after slot, of block_bytes */
	uint32_t nruns;
	/* the layout: piece j of slot s is at offset + s * slot_stride + j * run_stride of its
	 * part, and the image is the pieces in the order of this list.  No two pieces overlap;
	 * runs whose strides differ and do not nest are refused where that is too dear to find
	 * out */
	const struct gpc_run *runs;
	uint64_t block_bytes; /* bytes of an image; with runs 0, or their sum */
	/* of what an image means (dtype, order of layers, rank); pools that exchange blocks have
	 * the same; zero = the cache's layout */
	uint8_t fingerprint[32];
	const char *device; /* VRAM: "host", "cuda:N", "GPU-uuid"; NULL = that of uuid[0] */
	/* VRAM: so many allocations of the caller's own, which gpc_pool_lend tells; 0 = one,
	 * allocated here */
	uint32_t parts;
	uint32_t numa;  /* RAM: GPC_NUMA_... */
	uint64_t nodes; /* RAM: set of NUMA nodes; 0 = all that the process may use */
	/* RAM: 1 = none are kept; 0 = a CRC32C of each image that a spill, a tier below or gpc_seal
	 * has brought */
	uint32_t no_checksums;
	/* RAM: a folder of a hugetlbfs for the file; NULL or "" = beside the cache's files, with
	 * huge pages where the kernel gives them */
	const char *huge_dir;
	uint32_t threads; /* RAM: that touch the pages; 0 = one a processor, at most 16 */
	/* RAM: pages so far, told by the caller's thread; another answer than 0 ends the call:
	 * -ECANCELED */
	int (*progress)(void *arg, uint64_t done, uint64_t bytes);
	void *progress_arg;
	/* RAM with checksums: a word of how the bytes of an image are put together, which its sums
	 * begin with: bytes of another one are refused.  gpc_pool_seed says it later; 0 = not told */
	uint32_t seed;
	/* RAM: an image has so many equal parts, each with a sum of its own (gpc_seal), at most
	 * GPC_MAX_SUMS; block_bytes is a multiple of it.  Above 1 copies from and to VRAM make and
	 * compare none; 0 = 1 */
	uint32_t sums;
};

int gpc_pool_make(gpc *c, struct gpc_pool *p, const struct gpc_memory *m, int timeout_ms);
/* [writer] Adds a pool and returns its number; an engine calls it once it knows how many blocks fit.
 * After -ENOTCONN, -ETIMEDOUT and -EAGAIN the pool may still be added, and a second call
 * adds a second one: look for it with gpc_pool_get, or close the handle.  With GPC_POOL_ONCE a
 * second call, of whomever, for the same kind, space, flags, block_bytes and fingerprint returns the
 * first one's pool, and fills *p with what it is: -EEXIST where its other fields differ.  -EINVAL
 * with OWNED and CALLER, and for VRAM with memory.
 * m: NULL = without memory; else with memory for blocks + transit slots.  RAM: a file of shared
 * memory, all of it allocated and touched before the pool is there; it belongs to nobody
 * unless GPC_POOL_OWNED, and goes with the pool.  VRAM: OWNED always; allocated on the
 * device, or lent.  Before VRAM is allocated, the call waits until no process has memory of
 * a former pool of this device mapped; -ESTALE: this process has, by gpc_pool_map.
 * timeout_ms is for that and for the writer's answer.  The making of memory itself, about a
 * second a GiB of RAM, it does not bound, nor does a signal end it: progress can, -ECANCELED.
 * -ENOSPC: too little memory, and the sentence says how much is missing.  -EINVAL: a field,
 * or a layout whose pieces overlap or do not fit.  -EPROTO: demote_to has images of another
 * size or fingerprint.  GPC_POOL_ONCE (RAM): no memory is made where the pool is there; while one
 * process makes such a pool, others that ask for any wait up to the timeout: -ETIMEDOUT, -EAGAIN.
 * runs, numa, nodes, huge_dir and no_checksums are those of the first one, whatever others ask
 * for. */

int gpc_pool_lend(gpc *c, int pool, uint32_t part, void *base, uint64_t bytes);
/* [shared] Owner only, once for each part: the bytes at base, which stay where they are as
 * long as the pool lives, and may be a piece of a larger allocation.  The pool can be
 * mapped when all parts are lent.  No two parts of a pool share a byte; that pools do not is
 * the engine's affair.  -EINVAL: they do, too short for the layout, or an allocation that
 * other processes cannot map: the sentence says what to set.  -EEXIST: it is lent. */

struct gpc_pool_memory { /* the memory of a pool as it is.  set size */
	uint32_t size;
	uint32_t kind;  /* GPC_VRAM, GPC_RAM */
	uint32_t slots; /* blocks and transit */
	uint32_t nruns, parts;
	uint32_t parts_lent; /* parts that are there; = parts, but for lent memory */
	uint64_t memory, block_bytes;
	uint64_t bytes;      /* of all parts */
	uint64_t huge_bytes; /* RAM: of them in huge pages, as this process sees it mapped */
	uint32_t numa;
	uint32_t mapped; /* parts that this handle has mapped ... */
	uint64_t nodes;
	uint64_t pinned; /* ... and bytes that it has registered with devices */
	uint8_t fingerprint[32];
	char device[32];    /* VRAM: "host", "cuda:0" as its maker named it */
	char file[320];     /* path of the file that describes it */
	uint32_t checksums; /* RAM: 1 = they are kept */
	uint32_t sums;      /* RAM: of an image */
};

int gpc_pool_memory_get(gpc *c, int pool, struct gpc_pool_memory *ret, struct gpc_run *runs,
			uint32_t n);
/* [shared] Fills *ret, unless that is NULL, and up to n runs of the layout; returns how many runs
 * there are.  -ENOENT: no such pool, or it has no memory. */

int gpc_pool_map(gpc *c, int pool, uint32_t part, void **base, uint64_t *bytes);
/* [shared] The part in this process, mapped once by each handle: shared memory, another
 * process's allocation by IPC, the caller's own as it is.  It stays until this handle's
 * gpc_pool_unmap or gpc_close, whatever becomes of the pool.  -ESTALE: what this handle has
 * mapped is of a pool that has gone: use it no more, unmap it, call again.  -EAGAIN: not all
 * parts are lent.  -ENODEV: no such GPU here, or none that reaches it.  Read-only handles:
 * -EROFS. */

int gpc_pool_unmap(gpc *c, int pool);
/* [shared] All parts that gpc_pool_map gave this handle; copies under way keep what they need. */

int gpc_pool_pin(gpc *c, int pool, int timeout_ms);
/* [shared] Have a thread register the pool's RAM with the GPUs of this process, in chunks,
 * one process of the cache at a time; waits up to the timeout.  -EAGAIN, -ETIMEDOUT: it
 * goes on.  Copies between RAM and a GPU do that themselves, for the chunks they touch; where the
 * driver refuses they go on without, which takes longer, and this call answers -EIO.  Without
 * GPUs in the cache it does nothing.  -ENOENT: no such pool, or no RAM. */

/* ---- moves between tiers: both halves around the caller's copy ---- */

struct gpc_move {
	gpc_block from, to;
	gpc_key key;
	uint64_t op;
};

int gpc_demote(gpc *c, int from, int to, const gpc_block *blocks, uint32_t n,
	       struct gpc_move *moves, uint32_t flags, int timeout_ms);
/* [writer] Begin.  blocks NULL = the n least recent leaves of `from`; else live blocks of
 * `from`, leaf first.  to = -1: the pool's demote_to.  Sources stay findable until commit.
 * moves has room for n; returns how many began.  moves[i].to == -1: the target space has
 * the key already, so there is nothing to copy or commit; the key leaves the source, also
 * where it is referenced (with GPC_COPY the source stays).  After -ETIMEDOUT and -EAGAIN,
 * here and in gpc_promote, no move begins any more; the sources may stay pinned until the
 * writer sees that (-ENOSPC for a second try).  After -ENOTCONN, of a writer that died
 * while it answered, the next writer may begin the moves all the same.  The next call on
 * this handle that needs the writer cancels such a move: its target is freed, its source
 * unpinned. */

int gpc_promote(gpc *c, const gpc_block *blocks, uint32_t n, int to, struct gpc_move *moves,
		uint32_t flags, int timeout_ms);
/* [writer] Begin. blocks are referenced by the caller, root first.  Returns how many
 * began (the first ones); -ENOSPC when none could: use them from where they are.
 * moves[i].to == -1: the target space has the key already, nothing to copy or commit, and
 * the source stays.  Where no block is free the least recent leaves go, as in gpc_reserve.
 * GPC_COPY. */

int gpc_commit(gpc *c, const struct gpc_move *moves, uint32_t n, int *results, uint32_t flags,
	       int timeout_ms);
/* [writer] Copies are complete: the key now names `to`; one reference of the caller on
 * `from` moves along, none that a stream is to release.  `from` is freed later, when every lookup
 * that is under way now has ended: each of them finds the key.  Of a move to another space, lookups
 * in the space of `from` find it until then.  Returns how many were committed; results (may be
 * NULL) tells for each 0 or a negative errno: -ESTALE source or target gone, -EEXIST the
 * key is live elsewhere by now, -ENOENT its parent is not live.  A refused or cancelled
 * move gives its target back.  Moves of one chain belong in one call, in any order.
 * -ENOTCONN, -ETIMEDOUT, -EAGAIN (timeout 0): a commit that was submitted is carried out.
 * A second call for the same moves commits what is not committed yet: 0 says that the key names
 * `to`, by either call, and -ESTALE that it does not: the first call was refused, or the key has left
 * `to` since.  GPC_CANCEL gives the moves up, and -EEXIST says that one is committed already: the
 * key names `to`, and the reference has moved along. */

/* ---- copies ---- */

int gpc_copy(gpc *c, const struct gpc_move *moves, uint32_t n, uint32_t flags, void *stream,
	     gpc_transfer *ret);
/* [shared] Copy the images moves[i].from to moves[i].to in the order of the stream; returns
 * at once.  Both are held by the caller until the transfer is done: `to` is a
 * reservation, `from` is a reference, a reservation (the victim of a reserve), or the source
 * that this `to` is the target of (gpc_demote).  All `from` are of one pool, all `to` of one
 * pool; entries with to == -1 are skipped.  ret (may be NULL) names the transfer.  stream: of
 * the GPU in question, NULL = its default one; between two GPUs, of either; RAM to RAM: of none,
 * NULL.  -EINVAL: a stream that captures.  -EPROTO: images of another size or
 * fingerprint.  -EPERM: a block that is not held so; then none is copied.  -ESTALE: the
 * memory has gone.  -EAGAIN: GPC_TRANSFERS are under way.  -EIO: the driver refused a
 * copy; what was given to the stream before it may still be copied, ret names it, and the
 * transfer ends in -EIO. */

int gpc_transfer_wait(gpc *c, gpc_transfer t, int timeout_ms);
/* [shared] 0 = done, the bytes are there; transfer 0 is done.  Of a fetch or spill: and the writer
 * has committed it; -EBADMSG: a checksum was wrong, and nothing was committed.  gpc_transfer_results
 * tells of the other refusals.  -EIO: it failed, and never will be.  -EAGAIN (timeout 0),
 * -ETIMEDOUT: not yet.  Of the last 1024 transfers a failure is remembered. GPC_TRANSFER_ALL: all
 * that this handle began before the call; it tells of each failure once. */

int gpc_transfer_fd(gpc *c, gpc_transfer t);
/* [shared] A new descriptor, for poll(2), that is readable once the transfer has ended; the
 * caller closes it.  A thread of the library looks, a few times each millisecond. */

/* ---- fetch and spill: moves whose copies gpc makes, and which the writer commits when the device
 * says that they are done, whoever has died since.  Both pools have memory.  A call copies at most
 * GPC_TRANSFER_BLOCKS blocks in one transfer; what is beyond, the next call does.  -EAGAIN:
 * GPC_TRANSFERS are under way.  -EINVAL: a stream that captures ---- */

struct gpc_fetch_options { /* zero = default; set size */
	uint32_t size;
	uint32_t min;    /* fewer than so many blocks are not wanted: -ENOENT, nothing is held */
	uint32_t most;   /* copy at most so many; 0 = GPC_TRANSFER_BLOCKS */
	uint32_t spaces; /* where to look beside the space of `to`; 0 = every one of VRAM and RAM */
	/* copy the image in so many parts of equal size, of all blocks the first part first:
	 * gpc_order; 0 = 1.  Not with GPC_VERIFY_FIRST */
	uint32_t stages;
	uint32_t nranks; /* the copies are those of these processes, at most ... */
	/* ... GPC_MAX_RANKS peers, each of which calls gpc_transfer_mark; the caller only if it
	 * is among them; 0 = gpc copies */
	const int32_t *ranks;
	struct gpc_move *moves; /* room for n: what is to be copied, with nranks; NULL */
	uint32_t *nmoves;       /* ... and how much; NULL */
	/* room for n: of each block 0, or why the prefix ends there: -ENOENT not cached,
	 * -EALREADY another peer computes or loads it, -ENOSPC no block or `most`, -EDQUOT,
	 * -EPROTO other images, -EBADMSG no checksum; NULL */
	int32_t *results;
};

int gpc_fetch(gpc *c, int to, const gpc_key *keys, uint32_t n, gpc_block *blocks,
	      const struct gpc_fetch_options *opt, uint32_t flags, void *stream, int timeout_ms,
	      gpc_transfer *ret);
/* [writer] The longest prefix of one prompt, wherever it is, in blocks of the pool `to`, which are
 * referenced for the caller as by gpc_acquire; returns its length.  Blocks that are in `to` already
 * are only referenced.  Those in RAM of the same space move; those of other spaces are copied, and
 * stay where they are.  The bytes are good in the order of the stream, and findable soon after, or
 * when gpc_transfer_wait returns 0.  *ret: the transfer, 0 when nothing had to be copied.  The
 * caller may release a block at any time; its bytes stay as long as it is held, also when the
 * writer has refused it because its source was dropped meanwhile. Bytes whose checksum is wrong:
 * nothing is committed, the transfer ends in -EBADMSG, the bad block is dropped, and of what follows it
 * what cannot be without its parent.  Later work of the stream has read them; a caller that cannot take that asks
 * for GPC_VERIFY_FIRST, which waits for the transfer first and takes no block without a checksum. -ENOENT,
 * -ENOSPC, -EDQUOT, as gpc_promote.  -ESTALE: a pool has gone, and another one got its number,
 * during the call: call again.  Timeout 0 and failures: as gpc_reserve. */

struct gpc_spill_options { /* zero = default; set size */
	uint32_t size;
	uint32_t nranks; /* as in gpc_fetch_options */
	const int32_t *ranks;
	struct gpc_move *moves; /* room for n */
	uint32_t *nmoves;
};

int gpc_spill(gpc *c, int from, int to, const gpc_block *blocks, uint32_t n,
	      const struct gpc_spill_options *opt, uint32_t flags, void *stream, int timeout_ms,
	      gpc_transfer *ret);
/* [writer] gpc_demote, the copies and the commit: blocks NULL = the n least recent leaves of
 * `from`, else live blocks of it, leaf first; to = -1: the pool's demote_to.  Returns how many are
 * on their way, or are there already.  Sources stay findable until the commit, and references on
 * them stay: a source that is held goes with its last hold.  Targets are held by nobody.  GPC_COPY:
 * the sources stay. */

int gpc_spill_ahead(gpc *c, int pool, void *stream, int timeout_ms, gpc_transfer *ret);
/* [writer] One step of the pool's policy (spill_ahead): spills the least recent leaves to demote_to
 * until so many blocks are free, those under way included; to another space: copies them until the
 * so many least recent ones have a copy.  Returns how many are on their way now, 0 = nothing is
 * due.  Its keeper (gpcd --keep) calls it all the time; an engine may between steps. */

int gpc_order(gpc *c, gpc_transfer t, uint32_t stage, void *stream);
/* [local] Another stream of this process goes on when that stage (0 = the first) of the transfer
 * has been copied; by an event of the device, nothing waits in the call.  A transfer that is done:
 * 0. */

int gpc_release_after(gpc *c, const gpc_block *blocks, uint32_t n, void *stream);
/* [shared] gpc_release when the stream gets here: for kernels that still read.  References only.
 * -EAGAIN: GPC_TRANSFERS are under way.  gpc_close waits for it.  These references are the
 * stream's: one that is named twice, or released by gpc_release as well, is -EPERM, and nothing
 * happens. */

int gpc_transfer_mark(gpc *c, int peer, gpc_transfer t, void *stream);
/* [shared] One of the ranks of that peer's transfer has given its copies to the stream: it says
 * done when the stream gets here.  -EALREADY: it has marked this one; -ENOENT: no such transfer, or
 * it is over; -EPERM: this peer is no rank of it. */

int gpc_transfer_results(gpc *c, gpc_transfer t, int *results, uint32_t n);
/* [shared] Of a fetch or spill that is done, and of the last 64 of this handle: of each copied
 * block, in order, 0 = committed, -ESTALE = refused, -EBADMSG.  Returns how many there are. */

/* ---- claims: who computes a key that many want ---- */

struct gpc_claim { /* what a key is waiting for */
	gpc_key key;
	uint32_t state;    /* GPC_CLAIM_... */
	gpc_block block;   /* that has the key, or is to have it */
	int32_t peer, pid; /* PENDING: whose block it is */
	uint32_t loading;  /* PENDING: 1 = a transfer brings it, 0 = its peer computes it */
	/* PENDING: claims of that peer which are older and still open: how far it is */
	uint32_t ahead;
	uint64_t age_ns; /* PENDING: of the claim */
	uint64_t life;   /* of the block, for gpc_claim_wait */
};
enum { GPC_CLAIM_MINE = 1, GPC_CLAIM_LIVE = 2, GPC_CLAIM_PENDING = 3 };

/* C++ finds the function by the name alone, and the struct by "struct gpc_claim"; that the one
 * hides the other is no mistake. */
#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
int gpc_claim(gpc *c, const gpc_key *keys, const gpc_block *blocks, uint32_t n,
	      struct gpc_claim *ret, uint32_t flags, int timeout_ms);
#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
/* [writer] blocks[i], reserved by the caller, is to have keys[i].  ret[i].state: MINE = nobody else
 * computes it, publish it in that block; LIVE = there is a block with it; PENDING = another block,
 * of whomever, is to have it.  Returns how many are MINE.  A claim ends when its block is published
 * or given back, its publish is refused, its key is live elsewhere, by gpc_claim_drop, and with its
 * peer, and when its block is claimed for another key: one block for two keys in a call is -EINVAL,
 * and then none is claimed.
 * It is advice: who does not want to wait computes and publishes all the same.  Pending means in
 * the space of blocks[i].  On failure some may be claimed, or be claimed later, and ret be filled
 * in part: gpc_claim_drop of all blocks ends that.
 * GPC_PEEK: what this process can tell by itself, without the writer and at once.  blocks[i] is any
 * block of the pool, and nobody need have reserved it.  LIVE and PENDING with another peer as
 * above; MINE = nobody is known to have it, and nothing is claimed. */

int gpc_claim_wait(gpc *c, const struct gpc_claim *claims, uint32_t n, int timeout_ms);
/* [shared] Sleeps until one of these PENDING claims has ended, and returns which; then ask again.
 * -ETIMEDOUT, -EAGAIN (timeout 0): none has; compute it yourself: the deadline is the request's,
 * and a claimer that is stopped never ends.  -EDEADLK: this handle has open claims, or blocks
 * reserved: two that wait so starve each other (not with timeout 0). */

int gpc_claim_drop(gpc *c, const gpc_block *blocks, uint32_t n, int timeout_ms);
/* [writer] End these claims; the blocks stay reserved.  Returns how many were claimed. */

/* ---- checksums ---- */

uint32_t gpc_crc32c(uint32_t crc, const void *data, uint64_t n);
/* [local] The CRC32C that a pool of RAM keeps of an image, for those who copy themselves: of what
 * crc is of, 0 at first, and n bytes more. */

#define GPC_SEAL_UNSUMMED 1u /* crc says nothing: all but the bytes is known */

struct gpc_sum {        /* what is known of the bytes of a block, or of a part of them */
	uint32_t crc;   /* CRC32C of the bytes, begun with seed: gpc_crc32c(seed, ...) */
	uint32_t seed;  /* of how they are put together */
	uint32_t flags; /* 0 or GPC_SEAL_UNSUMMED */
	int32_t result; /* out of gpc_sealed: 0; -ENODATA: nothing is known */
	uint64_t word;  /* the caller's own, of part 0: it goes along to tiers and back */
};

int gpc_seal(gpc *c, const gpc_block *blocks, const gpc_key *keys, uint32_t n, uint32_t part,
	     const struct gpc_sum *seals);
/* [shared] Says what n blocks have, which this process has filled, or its leader has reserved and this
 * one filled: behind the last byte, and before the publish under these keys.  part: of the image,
 * below gpc_memory.sums.  It counts for this life of the block under this key alone; so a store that
 * was cut off leaves none.  Spills, fetches and tiers verify by it.  -EINVAL: a block, a part, flags.
 * -ENODATA: the pool keeps no checksums.  Others as gpc_pool_map. */

int gpc_sealed(gpc *c, const gpc_block *blocks, const gpc_key *keys, uint32_t n, uint32_t part,
	       struct gpc_sum *ret);
/* [shared] The same read, of blocks that the caller holds: how many have one; ret[i].result of each.
 * Whoever uses the bytes compares seed and crc with what has arrived. */

int gpc_pool_seed(gpc *c, int pool, uint32_t part, uint32_t seed);
/* [shared] From now on images that come from below, or from VRAM, are to have this seed in that part:
 * 1, it had another one, which was not 0; 0, else.  What is in RAM already keeps its own. */

/* ---- checksums of memory of the caller's own ---- */

struct gpc_piece { /* of block b: so many bytes at (char *)at + b * stride */
	const void *at;
	uint64_t stride, bytes; /* bytes: at least 1 */
};

int gpc_sums_open(const char *device, const struct gpc_piece *pieces, uint32_t n, uint32_t blocks,
		  gpc_sums **ret);
/* [local] To sum images that lie in memory of the caller's own, without a cache: an image is its
 * pieces, 1 to GPC_MAX_PIECES, in this order.  blocks: of an image, 1 to 256; of several it is
 * piece 0 of each, in their order, then piece 1 of each, and so on.  device: "host" for memory of this process, or that
 * whose memory it is ("cuda:0", "GPU-uuid"): it sums where the bytes lie.  Takes 256 KiB, which are
 * registered with the device, and about a megabyte there.  The memory stays as long as the
 * gpc_sums. -EINVAL: device is no such name, or a piece is NULL or empty.  -ENODEV: no such GPU
 * here. */

int gpc_sums_seed(gpc_sums *s, uint32_t seed);
/* [local] What is asked for from now on begins with it, as gpc_crc32c(seed, ...); 0 at first. */

int gpc_sums_ask(gpc_sums *s, uint32_t first, const uint32_t *blocks, uint32_t n, void *stream);
/* [local] Enqueue: answers first to first + n - 1, of GPC_SUMS, become the CRC32C of n
 * images, each of the next ones of these blocks, as the bytes are when the stream gets there.  stream: of that device, NULL = its default
 * one; all calls of one gpc_sums are in one stream, or one after the other.  "host": no stream,
 * NULL; they are there when the call returns.  Blocks are not checked: no wrong number may be among
 * them.  -EINVAL: beyond GPC_SUMS. */

int gpc_sums_get(const gpc_sums *s, uint32_t first, uint32_t *crc, uint32_t n);
/* [local] Answers first to first + n - 1; the caller has waited for the stream.  Waits for
 * nothing. */

int gpc_sums_close(gpc_sums *s);
/* [local] Nothing of it may be queued any more.  NULL is fine. */

#ifdef __cplusplus
}
#endif
#endif
