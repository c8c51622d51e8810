/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_bytes.h - the bytes of blocks: memory of pools, copies between them, and checksums.
 *
 *   image  the bytes of one block, its pieces one after the other.  A pool may have memory: then every
 *          process maps it by the pool's number, and the layout of the pool says where the pieces of a
 *          block are.  A pool without memory is a set of numbers: only the engine knows the bytes.
 *
 * A stream is a cudaStream_t, passed as void *; NULL is the default stream of the device.
 * Tests: t/pages/structs.t t/repo/exports.t t/repo/headers.t t/repo/abi.t */
#ifndef GPC_BYTES_H
#define GPC_BYTES_H

#include "gpc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpc_sums gpc_sums; /* checksums of memory of the caller's own */
typedef uint64_t gpc_transfer;    /* names copies of one handle; 0 = none */

#define GPC_TRANSFER_ALL    UINT64_MAX /* for gpc_transfer_wait */
#define GPC_MAX_RUNS        512        /* runs of a layout */
#define GPC_MAX_PARTS       512        /* parts of a pool's memory */
#define GPC_TRANSFERS       64         /* transfers of one handle under way */
#define GPC_TRANSFER_BLOCKS 1024       /* blocks that one fetch or spill copies */
#define GPC_MAX_RANKS       16         /* processes that copy for one transfer */
#define GPC_MAX_STAGES      16         /* stages of a fetch by layers */
#define GPC_SUMS            4096       /* answers of one gpc_sums */
#define GPC_MAX_SUMS        256        /* checksums of an image */
#define GPC_MAX_PIECES      65536      /* pieces of an image, for gpc_sums_open */

/* flags of these calls, beside those of gpc.h */
enum {
	/* demote, promote, spill: the source stays live, too (only between different spaces) */
	GPC_COPY = 1 << 8,
	GPC_CANCEL = 1 << 9, /* commit: give the moves up */
	/* fetch: take only blocks with a checksum; the caller waits for the transfer before it
	 * uses any block */
	GPC_VERIFY_FIRST = 1 << 14
};

/* ---- memory of pools ---- */

/* NUMA policies of RAM */
enum {
	GPC_NUMA_DEFAULT = 0,    /* the policy of the process that makes the pool */
	GPC_NUMA_INTERLEAVE = 1, /* page by page over the nodes */
	GPC_NUMA_BIND = 2        /* on these nodes only */
};

struct gpc_run {              /* pieces of one size at equal distances */
	uint32_t part;        /* which allocation of the pool, from 0; RAM: 0 */
	uint32_t count;       /* pieces of a block, at least 1 */
	uint64_t bytes;       /* of a piece, at least 1 */
	uint64_t offset;      /* of piece 0 of slot 0, in the part */
	uint64_t slot_stride; /* from a slot to the next one; at least 1 */
	uint64_t run_stride;  /* from a piece to the next one; unused with count 1 */
};

struct gpc_memory { /* the memory that a pool is to have; zero = default; set size */
	uint32_t size;
	/* at most GPC_MAX_RUNS; 0 = one piece a block, slot after slot, of block_bytes */
	uint32_t nruns;
	/* the layout: piece j of slot s is at offset + s * slot_stride + j * run_stride of its
	 * part, and the image is the pieces in the order of this list.  No two pieces overlap;
	 * runs are refused if their strides differ and do not nest, and a check would take too
	 * long */
	const struct gpc_run *runs;
	uint64_t block_bytes; /* bytes of an image; with runs 0, or their sum */
	/* fingerprint of the meaning of an image (dtype, order of layers, rank); pools that
	 * exchange blocks have the same; zero = the cache's layout */
	uint8_t fingerprint[32];
	const char *device; /* VRAM: "host", "cuda:N", "GPU-uuid"; NULL = the GPU of uuid[0] */
	/* VRAM: the number of the caller's own allocations, each named by gpc_pool_lend; 0 = the
	 * call makes one allocation */
	uint32_t parts;
	uint32_t numa;  /* RAM: GPC_NUMA_... */
	uint64_t nodes; /* RAM: set of NUMA nodes; 0 = all nodes that the process may use */
	/* RAM: 0 = the pool keeps a CRC32C of each image from a spill, a tier below or gpc_seal;
	 * 1 = it keeps none */
	uint32_t no_checksums;
	/* RAM: a folder of a hugetlbfs for the file; NULL or "" = beside the cache's files, with
	 * huge pages where the kernel gives them */
	const char *huge_dir;
	/* RAM: threads that touch the pages.  The caller's is one of them, so there is always one.
	 * 0 = one per processor, less an eighth, and less one at least, for others; at most 16 */
	uint32_t threads;
	/* RAM: the caller's thread calls it with the bytes that are done, and all bytes; any answer
	 * but 0 ends the call with -ECANCELED */
	int (*progress)(void *arg, uint64_t done, uint64_t bytes);
	void *progress_arg;
	/* RAM with checksums: a word for the way in which the bytes of an image are put together.
	 * Sums begin with it, so bytes of another seed are refused.  gpc_pool_seed sets it later;
	 * 0 = not set */
	uint32_t seed;
	/* RAM: the number of equal parts of an image, each with a sum of its own (gpc_seal), at most
	 * GPC_MAX_SUMS; block_bytes is a multiple of it.  With more than 1, copies from and to VRAM
	 * make and compare no sums; 0 = 1 */
	uint32_t sums;
};

int gpc_pool_make(gpc *c, struct gpc_pool *p, const struct gpc_memory *m, int timeout_ms);
/* [writer] Adds a pool and returns its number; an engine calls it once it knows how many blocks fit.
 * After -ENOTCONN, -ETIMEDOUT and -EAGAIN the pool may still be added, and a second call adds
 * another pool: look for the first one with gpc_pool_get, or close the handle.  With GPC_POOL_ONCE a
 * second call by any peer, for the same kind, space, flags, block_bytes and fingerprint, returns the
 * first pool, and fills *p with its description; -EEXIST if another field differs.  GPC_POOL_ONCE is
 * -EINVAL with OWNED and CALLER, and for VRAM with memory.  m: NULL = without memory; else with
 * memory for blocks + transit slots.  RAM: files of shared memory, all of it allocated and touched
 * before the pool is there; it belongs to nobody unless GPC_POOL_OWNED, and is removed with the
 * pool.  VRAM: always OWNED; allocated on the device, or lent.  Before VRAM is allocated, the call
 * waits until no process has memory of a former pool of this device mapped; -ESTALE: this process
 * has mapped such memory (gpc_pool_map).  timeout_ms bounds that wait and the wait for the writer's
 * answer.  It does not bound the making of memory, about a second a GiB of RAM; progress can end
 * that (-ECANCELED), a signal cannot.  Before memory is made the call looks for a writer, as
 * [writer] says, and for room in max_pools and max_blocks: -ENOTCONN, -ENOSPC.  -ENOSPC: too little
 * memory, and the sentence says how much is missing.  -EINVAL: a field, or a layout whose pieces
 * overlap or do not fit.  -EPROTO: demote_to has images of another size or fingerprint.
 * GPC_POOL_ONCE (RAM): if the pool is there, no memory is made.  While one process makes such a
 * pool, calls for any such pool wait up to the timeout: -ETIMEDOUT, -EAGAIN.  -EEXIST:
 * sums or no_checksums differs from the pool's.  The first call decides runs, numa, nodes, huge_dir
 * and seed; threads and progress are of the call that makes memory. */

int gpc_pool_lend(gpc *c, int pool, uint32_t part, void *base, uint64_t bytes);
/* [shared] Owner only, once for each part: lend the bytes at base.  These stay where they are as
 * long as the pool lives, and may be a piece of a larger allocation.  The pool can be mapped when
 * all parts are lent.  No two parts of a pool share a byte; the engine ensures that two pools share
 * none.  -EINVAL: parts share bytes, a part is too short for the layout, or other processes cannot
 * map the allocation (the sentence says what to set).  -EEXIST: the part is lent already. */

struct gpc_pool_memory { /* the memory of a pool as it is.  set size */
	uint32_t size;
	uint32_t kind;  /* GPC_VRAM, GPC_RAM */
	uint32_t slots; /* blocks and transit */
	uint32_t nruns, parts;
	uint32_t parts_lent; /* less than parts while the owner has not lent all parts */
	uint64_t memory, block_bytes;
	uint64_t bytes;      /* bytes of all parts */
	uint64_t huge_bytes; /* RAM: bytes in huge pages, as this process has mapped them */
	uint32_t numa;
	uint32_t mapped; /* parts that this handle has mapped */
	uint64_t nodes;
	uint64_t pinned; /* bytes that this handle has registered with devices */
	uint8_t fingerprint[32];
	char device[32];    /* VRAM: "host", "cuda:0" as the maker of the pool named it */
	char file[320];     /* path of the file that describes it */
	uint32_t checksums; /* RAM: 1 = the pool keeps checksums */
	uint32_t sums;      /* RAM: checksums of an image */
};

int gpc_pool_memory_get(gpc *c, int pool, struct gpc_pool_memory *ret, struct gpc_run *runs,
			uint32_t n);
/* [shared] Fills *ret, unless ret is NULL, and up to n runs of the layout; returns the number of all
 * runs.  -ENOENT: no such pool, or it has no memory. */

int gpc_pool_map(gpc *c, int pool, uint32_t part, void **base, uint64_t *bytes);
/* [shared] The part in this process, mapped once by each handle: shared memory, another process's
 * allocation by IPC, or the caller's own memory as it is.  The map stays until this handle's
 * gpc_pool_unmap or gpc_close, even if the pool goes.  -ESTALE: this handle has mapped a pool that
 * has gone: do not use that map, unmap it, and call again.  -EAGAIN: some parts are not lent yet.
 * -ENODEV: no such GPU here, or no GPU that reaches it.  -EROFS: the handle is read-only. */

int gpc_pool_unmap(gpc *c, int pool);
/* [shared] Unmap all parts that this handle has mapped; copies under way keep the parts they use. */

int gpc_pool_pin(gpc *c, int pool, int timeout_ms);
/* [shared] Have a thread register the pool's RAM with the GPUs of this process, in chunks, one
 * process of the cache at a time; waits up to the timeout.  After -EAGAIN and -ETIMEDOUT the thread
 * goes on.  Copies between RAM and a GPU register the chunks that they touch by themselves.  While
 * the thread registers the pool, or if the driver refuses, these copies use unregistered memory,
 * which takes longer.  If the driver refuses, this call answers -EIO.  In a cache without GPUs
 * nothing is registered: 0.  -ENOENT: no such pool, or it has no RAM. */

/* ---- moves between tiers: the calls before and after the caller's copy ---- */

struct gpc_move {
	gpc_block from, to;
	gpc_key key;
	uint64_t op;
};

int gpc_demote(gpc *c, int from, int to, const gpc_block *blocks, uint32_t n,
	       struct gpc_move *moves, uint32_t flags, int timeout_ms);
/* [writer] Begin.  blocks NULL = the n least recent leaves of `from`; else live blocks of
 * `from`, leaf first.  to = -1: the pool's demote_to.  Sources stay findable until commit.
 * moves has room for n; returns the number that began.  moves[i].to == -1: the target space has
 * the key already, so there is nothing to copy or commit; the key leaves the source, even if
 * the source is referenced (with GPC_COPY the source stays).  After -ETIMEDOUT and -EAGAIN,
 * in this call and in gpc_promote, no move begins any more; the sources may stay pinned until the
 * writer notices (-ENOSPC for a second try).  After -ENOTCONN the writer may have died
 * while it answered, and then the next writer may begin the moves.  The next call on
 * this handle that needs the writer cancels such a move: its target is freed, its source
 * unpinned. */

int gpc_promote(gpc *c, const gpc_block *blocks, uint32_t n, int to, struct gpc_move *moves,
		uint32_t flags, int timeout_ms);
/* [writer] Begin.  The caller has references on blocks, root first.  Returns the number of moves that
 * began, which are the first ones; -ENOSPC when no move could: use the blocks where they are.
 * moves[i].to == -1: the target space has the key already.  There is nothing to copy or commit,
 * and the source stays.  If no block is free, the least recent leaves go, as in gpc_reserve.
 * GPC_COPY. */

int gpc_commit(gpc *c, const struct gpc_move *moves, uint32_t n, int *results, uint32_t flags,
	       int timeout_ms);
/* [writer] Copies are complete: the key now names `to`.  One reference of the caller on `from`
 * becomes one on `to`, unless a stream is to release it.  `from` is freed later, when every lookup
 * that is under way now has ended: each of them finds the key.  After a move to another space,
 * lookups in the space of `from` find it until then.  Returns the number of commits; results (may be
 * NULL) has 0 or a negative errno for each: -ESTALE source or target gone, -EEXIST the key is live
 * elsewhere by now, -ENOENT its parent is not live.  A refused or cancelled move gives its target
 * back.  Moves of one chain belong in one call, in any order.  -ENOTCONN, -ETIMEDOUT, -EAGAIN
 * (timeout 0): a commit that was submitted is carried out.  A second call for the same moves commits
 * the rest of them: result 0 says that one of the calls has made the key name `to`.  -ESTALE says
 * that the key does not name `to`: the first call was refused, or the key has left `to` again.
 * GPC_CANCEL gives the moves up; -EEXIST says that a move is committed already: the key names `to`,
 * and so does the reference. */

/* ---- copies ---- */

int gpc_copy(gpc *c, const struct gpc_move *moves, uint32_t n, uint32_t flags, void *stream,
	     gpc_transfer *ret);
/* [shared] Copy the images moves[i].from to moves[i].to in the order of the stream; returns
 * at once.  The caller holds both until the transfer is done: `to` is a
 * reservation (or a CALLER block of its own), `from` is a reference, a reservation, or the source
 * of a move to this `to` (gpc_demote, gpc_promote).  All `from` are of one pool, all `to` of one
 * pool; entries with to == -1 are skipped.  ret (may be NULL) names the transfer.  stream: of
 * the GPU that copies, NULL = its default one; between two GPUs, of either; from RAM to RAM,
 * NULL.  -EINVAL: a stream that captures.  -EPROTO: images of another size or
 * fingerprint.  -EPERM: a block is not held in this way, and none is copied.  -ESTALE: the
 * memory has gone.  -EAGAIN: GPC_TRANSFERS are under way.  -EIO: the driver refused a
 * copy; earlier copies of the call may still be made, ret names them, and the transfer ends in
 * -EIO. */

int gpc_transfer_wait(gpc *c, gpc_transfer t, int timeout_ms);
/* [shared] 0 = done: the bytes are in place.  Transfer 0 is always done.  A fetch or spill is done
 * only when the writer has committed it; -EBADMSG: a checksum was wrong, and nothing was committed.
 * gpc_transfer_results has the other refusals.  -EIO: the transfer has failed for good.  -EAGAIN
 * (timeout 0), -ETIMEDOUT: it is not done yet.  Failures of the last 1024 transfers are remembered.
 * GPC_TRANSFER_ALL: all transfers that this handle began before the call; it reports each failure
 * once. */

int gpc_transfer_fd(gpc *c, gpc_transfer t);
/* [shared] A new descriptor, for poll(2), that is readable once the transfer has ended.  The
 * caller closes it.  A thread of the library looks at the transfer a few times each
 * millisecond. */

/* ---- fetch and spill: moves whose copies gpc makes.  The writer commits them when the device says
 * that the copies are done, even if the caller has died since.  Both pools have memory.  A call copies
 * at most GPC_TRANSFER_BLOCKS blocks in one transfer; call again for more.  -EAGAIN: GPC_TRANSFERS are
 * under way.  -EINVAL: a stream that captures ---- */

struct gpc_fetch_options { /* zero = default; set size */
	uint32_t size;
	/* the fewest blocks that are of use: with fewer -ENOENT, and nothing is held */
	uint32_t min;
	uint32_t most; /* most blocks to copy; 0 = GPC_TRANSFER_BLOCKS */
	/* where to look besides the space of `to`; 0 = every space of VRAM and RAM */
	uint32_t spaces;
	/* the number of equal parts in which images are copied, the first part of all blocks
	 * first: gpc_order; 0 = 1.  Not with GPC_VERIFY_FIRST */
	uint32_t stages;
	/* the number of peers in ranks, which make the copies, at most GPC_MAX_RANKS; 0 = gpc
	 * copies */
	uint32_t nranks;
	/* each of them calls gpc_transfer_mark; so does the caller if it is in the list */
	const int32_t *ranks;
	struct gpc_move *moves; /* room for n, with nranks: gets the copies to make; default NULL */
	uint32_t *nmoves;       /* gets the number of these copies; default NULL */
	/* room for n: for each block 0, or the reason why the prefix ends there: -ENOENT not
	 * cached, -EALREADY another peer computes or loads it, -ENOSPC no block or `most`,
	 * -EDQUOT, -EPROTO other images, -EBADMSG no checksum; default NULL */
	int32_t *results;
};

int gpc_fetch(gpc *c, int to, const gpc_key *keys, uint32_t n, gpc_block *blocks,
	      const struct gpc_fetch_options *opt, uint32_t flags, void *stream, int timeout_ms,
	      gpc_transfer *ret);
/* [writer] Bring the longest prefix of one prompt, wherever it is, into blocks of the pool `to`.  They
 * are referenced for the caller as by gpc_acquire; returns their number.  Blocks that are in `to`
 * already are only referenced.  Blocks in RAM of the same space move; blocks of other spaces are copied,
 * and stay there.  The bytes are good in the order of the stream.  The keys name the new blocks soon
 * after, at the latest when gpc_transfer_wait returns 0.  *ret: the transfer, 0 = no copy.  The caller
 * may release a block at any time.  The bytes of a held block stay, even if the writer has refused it
 * because its source was dropped meanwhile.  Wrong checksum: nothing is committed, the transfer ends in
 * -EBADMSG, and the bad block is dropped with the descendants that cannot be without it.  Later work of
 * the stream has read the bad bytes.  GPC_VERIFY_FIRST takes no block without a checksum: with it the
 * caller waits by gpc_transfer_wait before it uses the bytes; the call does not.  Where the prompt goes
 * on below RAM (gpc_tiers.h) the call waits for that, for three quarters of its timeout at most; with 0
 * it only asks.  -ENOENT, -ENOSPC, -EDQUOT, as gpc_promote.  -ESTALE: a pool has gone, and another one
 * got its number, during the call: call again.  Timeout 0 and failures: as gpc_reserve. */

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
/* [writer] gpc_demote, the copies and the commit: blocks NULL = the n least recent leaves of `from`,
 * else live blocks of it, leaf first; to = -1: the pool's demote_to.  Returns the number of blocks
 * that are on their way or in the target space already.  Sources stay findable until the commit, and
 * references on them stay: a held source goes with its last hold.  Nobody holds the targets.
 * GPC_COPY: the sources stay. */

int gpc_spill_ahead(gpc *c, int pool, void *stream, int timeout_ms, gpc_transfer *ret);
/* [writer] One step of the pool's policy (spill_ahead).  It spills the least recent leaves to
 * demote_to until spill_ahead blocks are free, blocks under way included.  If demote_to is in
 * another space, it copies them until spill_ahead of the least recent blocks have a copy.  Returns
 * the number of blocks on their way now, 0 = nothing is due.  A keeper (gpcd --keep) calls it all
 * the time; an engine may call it between steps. */

int gpc_order(gpc *c, gpc_transfer t, uint32_t stage, void *stream);
/* [local] Make another stream of this process wait until that stage (0 = the first) of the transfer
 * has been copied.  The device waits, and the call does not.  For a transfer that is done it
 * returns 0. */

int gpc_release_after(gpc *c, const gpc_block *blocks, uint32_t n, void *stream);
/* [shared] gpc_release when the stream gets here: for kernels that still read the blocks.  It takes
 * only references, which belong to the stream from then on.  -EPERM, and nothing happens, if a
 * reference is named twice or was released by gpc_release.  -EAGAIN: GPC_TRANSFERS are under way.
 * gpc_close waits for the release. */

int gpc_transfer_mark(gpc *c, int peer, gpc_transfer t, void *stream);
/* [shared] For a rank of transfer t of that peer: it has given its copies to the stream, and they are
 * done when the stream gets here.  -EALREADY: this rank has marked the transfer; -ENOENT: no such
 * transfer, or it is over; -EPERM: this peer is no rank of it. */

int gpc_transfer_results(gpc *c, gpc_transfer t, int *results, uint32_t n);
/* [shared] The result of each block that a fetch or spill has copied, in order: 0 = committed, -ESTALE =
 * refused, -EBADMSG = wrong checksum.  Only for a transfer that is done and among the last 64 of this
 * handle.  Returns the number of results. */

/* ---- claims: one peer computes a key that many want ---- */

struct gpc_claim { /* which block has a key, or is to have it */
	gpc_key key;
	uint32_t state; /* GPC_CLAIM_... */
	gpc_block block;
	int32_t peer, pid; /* PENDING: the owner of the claim */
	uint32_t loading;  /* PENDING: 1 = a transfer brings the key, 0 = its peer computes it */
	/* PENDING: number of older open claims of that peer, a measure of the wait */
	uint32_t ahead;
	uint64_t age_ns; /* PENDING: age of the claim */
	uint64_t life;   /* life of the block, for gpc_claim_wait */
};
enum { GPC_CLAIM_MINE = 1, GPC_CLAIM_LIVE = 2, GPC_CLAIM_PENDING = 3 };

/* C++ finds the function by the name alone, and the struct by "struct gpc_claim": the function hides
 * the struct on purpose. */
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
 * computes the key, publish it in that block; LIVE = a block has the key; PENDING = another block,
 * of any peer, is to have it.  Only the space of blocks[i] counts.  Returns the number that are
 * MINE.  A claim ends when its block is published, given back, or claimed for another key, when its
 * publish is refused, when its key is live elsewhere, by gpc_claim_drop, and with its peer.  One
 * block for two keys in a call is -EINVAL, and then no key is claimed.  A claim is advice: a peer
 * that does not want to wait computes and publishes all the same.  On failure some keys may be
 * claimed, or be claimed later, and ret may be filled in part: gpc_claim_drop of all blocks ends
 * these claims.  GPC_PEEK: this process answers by itself, at once and without the writer.
 * blocks[i] is any block of the pool, and need not be reserved.  LIVE and PENDING have the meaning
 * above; MINE = no known block has the key or is to have it, and nothing is claimed. */

int gpc_claim_wait(gpc *c, const struct gpc_claim *claims, uint32_t n, int timeout_ms);
/* [shared] Sleeps until one of these PENDING claims has ended, and returns its index; then ask
 * again.  -ETIMEDOUT, -EAGAIN (timeout 0): all claims are open.  In this case compute the key
 * yourself: a request needs a deadline, because a stopped process never ends its claim.  -EDEADLK:
 * this handle has open claims, or reserved blocks: two such waits would starve each other (not with
 * timeout 0). */

int gpc_claim_drop(gpc *c, const gpc_block *blocks, uint32_t n, int timeout_ms);
/* [writer] End these claims; the blocks stay reserved.  Returns the number of ended claims. */

/* ---- checksums ---- */

uint32_t gpc_crc32c(uint32_t crc, const void *data, uint64_t n);
/* [local] The CRC32C that a pool of RAM keeps of an image, for engines that copy by themselves.  crc is
 * the sum of the bytes before these n bytes, 0 at first. */

#define GPC_SEAL_UNSUMMED 1u /* crc is unused: a tier that takes the block sums it */

struct gpc_sum {        /* of the bytes of a block, or of one part of them */
	uint32_t crc;   /* CRC32C of the bytes, begun with seed: gpc_crc32c(seed, ...) */
	uint32_t seed;  /* as gpc_memory.seed */
	uint32_t flags; /* 0 or GPC_SEAL_UNSUMMED */
	int32_t result; /* out of gpc_sealed: 0; -ENODATA: no sum is known */
	uint64_t word;  /* data of the caller, in part 0: tiers keep it and bring it back */
};

int gpc_seal(gpc *c, const gpc_block *blocks, const gpc_key *keys, uint32_t n, uint32_t part,
	     const struct gpc_sum *seals);
/* [shared] Store the sums of n blocks that this process has filled; the caller or its leader has
 * reserved them.  Call it after the last byte is written, and before the publish under these keys.
 * part: the number of the image's part, below gpc_memory.sums.  A sum counts only for this life of
 * the block under this key, so an interrupted fill leaves no sum.  Spills, fetches and tiers verify
 * the bytes with it.  -EINVAL: a block, a part, flags.  -EPERM: another peer has reserved a block.
 * -ENODATA: the pool keeps no checksums.  Other errors are those of gpc_pool_map.  Blocks before the
 * refused block have their sums. */

int gpc_sealed(gpc *c, const gpc_block *blocks, const gpc_key *keys, uint32_t n, uint32_t part,
	       struct gpc_sum *ret);
/* [shared] Read the sums of blocks that the caller holds; returns the number of blocks that have a
 * sum, and ret[i].result says which.  The user of the bytes compares seed and crc with the bytes. */

int gpc_pool_seed(gpc *c, int pool, uint32_t part, uint32_t seed);
/* [shared] From now on images from below or from VRAM are to have this seed in that part.  Images
 * that are in RAM keep their seeds.  A tier gives none of another seed, and a file loses it if all
 * parts of the pool have seeds.  Returns 1 if the part had another seed than 0 and this one; else 0. */

/* ---- checksums of memory of the caller's own ---- */

struct gpc_piece { /* of block b: `bytes` bytes at (char *)at + b * stride */
	const void *at;
	uint64_t stride, bytes; /* bytes: at least 1 */
};

int gpc_sums_open(const char *device, const struct gpc_piece *pieces, uint32_t n, uint32_t blocks,
		  gpc_sums **ret);
/* [local] Sum images that lie in memory of the caller's own, without a cache.  An image is its
 * pieces, 1 to GPC_MAX_PIECES, in this order.  blocks: the blocks of an image, 1 to 256; with
 * several the image is piece 0 of each block, in their order, then piece 1 of each, and so on.
 * device: "host" for memory of this process, or the GPU that has the memory and makes the sums
 * ("cuda:0", "GPU-uuid").  The call registers 256 KiB with the device, and takes about a megabyte
 * there.  The caller's memory stays as long as the gpc_sums.  -EINVAL: device is no valid name, or a
 * piece is NULL or empty.  -ENODEV: no such GPU here. */

int gpc_sums_seed(gpc_sums *s, uint32_t seed);
/* [local] Sums of later gpc_sums_ask begin with the seed, as gpc_crc32c(seed, ...); 0 at first. */

int gpc_sums_ask(gpc_sums *s, uint32_t first, const uint32_t *blocks, uint32_t n, void *stream);
/* [local] Enqueue the sums of n images, each made of the next blocks of this list, as the bytes
 * are when the stream gets there.  They become the answers first to first + n - 1, of GPC_SUMS.
 * stream: of that device, NULL = its default one; all calls of one gpc_sums are in one stream, or
 * one after the other. "host": NULL, and the answers are there when the call returns.  Block
 * numbers are not checked: the caller must not pass a wrong one.  -EINVAL: beyond GPC_SUMS. */

int gpc_sums_get(const gpc_sums *s, uint32_t first, uint32_t *crc, uint32_t n);
/* [local] Answers first to first + n - 1.  The caller has waited for the stream: this call does not
 * wait. */

int gpc_sums_close(gpc_sums *s);
/* [local] The caller has waited for all its sums.  NULL is fine. */

#ifdef __cplusplus
}
#endif
#endif
