/* SPDX-License-Identifier: Apache-2.0 */
/* gpc.h - one prefix cache index per machine, shared by name.
 *
 *   key    128 bits, names a whole prompt prefix up to the end of one block.  All zero = no
 *          key.  A root key (gpc_key_root) names a namespace, is never live itself, and carries
 *          one bit that block keys never have: as a parent it means "first block", like the
 *          zero key.  Keys come from gpc_key_root, gpc_key_hash and gpc_key_import.
 *   block  31 bits: pool << 24 | slot.  The id alone tells the pool, hence the tier.
 *          -1 = none.  One block is one logical slot: in a tensor-parallel group the same
 *          slot number on every GPU of the group, and one process speaks for the group.
 *   pool   a numbered set of blocks in one place: the VRAM of one GPU (or one group), or RAM.
 *          Pools come and go at run time.
 *   space  pools of one space hold a key at most once between them; different spaces hold it
 *          independently.  One GPU with RAM behind it: both pools in space 0, tiers exclusive,
 *          one probe answers both.  N GPUs: VRAM pool i in space i, RAM in the highest space.
 *          Lookups take a set of spaces, probed in ascending order.
 *   owner  the peer whose process owns a pool's memory.  When it dies the pool's blocks die
 *          with it.  A pool without owner outlives all.
 *   image  the bytes of one block, its pieces one after the other.  A pool may
 *          have memory, which every process maps by the pool's number, and then has a
 *          layout that says where the pieces of a block are; gpc_copy copies images.
 *          Any other pool is a set of numbers, and its bytes are the engine's own affair.
 *   hold   what keeps a block for you: a reservation (bytes yours to write, nobody finds it)
 *          or a reference (bytes fixed, findable).  gpc_reserve gives the first, gpc_publish
 *          turns it into the second, gpc_release gives either back.
 *   writer the one process that changes the index: gpcd, or any attached process that takes
 *          the seat (GPC_SERVE, gpc_writer_take).
 *
 * Calls return >= 0, or a negative errno.  One meaning each:
 *   -EINVAL    an argument is out of range        -ENOENT    no such name, key, pool or peer
 *   -EEXIST    the name is taken                  -EPROTO    other version, geometry, layout
 *   -EBADMSG   bad checksum, or damaged segment   -EACCES    another user's segment
 *   -ENOSPC    nothing free, nothing evictable, or too little shared memory
 *   -EDQUOT    your quota is used up              -EAGAIN    not yet: ring full, or timeout 0
 *   -ETIMEDOUT time is up                         -ENOTCONN  no writer
 *   -EDEADLK   the caller would wait for itself   -ESTALE    block, key, mirror, pool, leader changed
 *   -EPERM     not your block                     -EUSERS    no free seat
 *   -EXDEV     the parent lives only in another space
 *   -EBUSY     somebody holds it
 *   -EALREADY  another peer computes or loads it, or it has been done
 *   -EOVERFLOW 32768 references of one peer on one block
 *   -ECHILD    handle of the parent process       -EROFS     handle is read-only
 *   -ENODEV    no such device, or built without   -ENOMEM, -EINTR and -EIO as usual
 * gpc_last_error() has the sentence.
 *
 * Timeouts are milliseconds; -1 = no limit, 0 = do not wait: one round trip to the writer at
 * most, and gpc_publish and gpc_drop only submit.  After -ETIMEDOUT, -ENOTCONN and the -EAGAIN of
 * a timeout of 0, gpc_reserve, gpc_evict, gpc_demote and gpc_promote give nothing later; what the
 * other calls have submitted is carried out.  Any thread may use a handle; arrays belong to the
 * caller.  Outputs are unchanged on failure unless the call says otherwise.
 *
 * Names are gpc_object_verb (gpc_pool_make, gpc_key_hash); calls about blocks are verbs alone
 * (gpc_acquire, gpc_release).  Structs that may grow begin with their size: the caller sets
 * it, and every field that it leaves zero has its default.  Of a longer one, of a later release,
 * what is not known here must be zero: -EINVAL (a struct that is filled here says in its size how much
 * was).  Options may be NULL: all defaults.
 * In C, and in C++ with the fields in the order of the struct,
 *
 * 	gpc_publish(c, parents, keys, blocks, n,
 * 		    GPC_OPTIONS(gpc_publish_options, .tag = 7, .ticket = &t), 0, -1);
 *
 * No call is inline: the interface can be bound from any language.
 * Tests: t/bytes/sentences-bytes.t t/repo/exports.t t/bytes/sentences.t t/repo/headers.t
 *   t/repo/abi.t */
#ifndef GPC_H
#define GPC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpc gpc;           /* one attachment of this process */
typedef struct gpc_dev gpc_dev;   /* this process's use of one mirror */
typedef struct gpc_sums gpc_sums; /* checksums of memory of the caller's own */
typedef struct {
	uint64_t w[2];
} gpc_key;
typedef int32_t gpc_block;
typedef uint64_t gpc_ticket;   /* names a command of this peer; grows; 0 = none */
typedef uint64_t gpc_transfer; /* names copies of one handle; 0 = none */

#define GPC_VERSION_MAJOR 0
#define GPC_VERSION_MINOR 2
#define GPC_VERSION       (GPC_VERSION_MAJOR << 16 | GPC_VERSION_MINOR)

#define GPC_NONE        (-1)
#define GPC_POOL(b)     ((b) >> 24)
#define GPC_SLOT(b)     ((b)&0xffffff)
#define GPC_BLOCK(p, s) ((gpc_block)((p) << 24 | (s)))
#define GPC_SPACE(s)    (1u << (s)) /* sets of spaces are masks; 0 = every space of VRAM and RAM */

#define GPC_MAX_NAME        64 /* bytes of a cache's name, without the final 0 */
#define GPC_MAX_POOLS       127
#define GPC_MAX_PEERS       250
#define GPC_MAX_SPACES      32
#define GPC_MAX_MIRRORS     8
#define GPC_TICKET_ALL      UINT64_MAX /* for the calls that take a ticket: all submitted so far */
#define GPC_TRANSFER_ALL    UINT64_MAX /* for gpc_transfer_wait */
#define GPC_SECTIONS        56         /* sections that one peer may have open */
#define GPC_MAX_RUNS        512        /* of a layout */
#define GPC_MAX_PARTS       512        /* of a pool's memory */
#define GPC_TRANSFERS       64         /* transfers of one handle under way */
#define GPC_TRANSFER_BLOCKS 1024       /* that one fetch or spill copies */
#define GPC_MAX_RANKS       16         /* processes that copy for one transfer */
#define GPC_MAX_STAGES      16         /* of a fetch by layers */
#define GPC_SUMS            4096       /* answers of one gpc_sums */
#define GPC_MAX_PIECES      65536      /* of an image, for gpc_sums_open */
#define GPC_MAX_GROUPS      64         /* KV groups of one gpc_match_groups */
#define GPC_ROOT_BYTES \
	488 /* of the fields of gpc_root_keep: 8 a field, and its data, rounded up to 8 */

/* Options of a call, in place: a pointer to a struct of that type, its size set.  The struct lasts
 * as long as the block around it; in C++, where the macro is at the end of this file, as long as the
 * full expression. */
#ifndef __cplusplus
#define GPC_OPTIONS(type, ...) (&(struct type){ .size = sizeof(struct type), __VA_ARGS__ })
#endif

/* flags; each function lists those it takes */
enum {
	GPC_IF_ABSENT = 1 << 0, /* create: attach when the name exists and fits */
	/* create, attach: a thread of this process takes the writer's seat whenever it is empty */
	GPC_SERVE = 1 << 1,
	/* attach: no seat, no references, no effect on recency; works on dead and damaged
	 * segments.  Maps nothing: info, stats, pools, mirrors and changes are read as they are
	 * now; lookups, walks and checks work on a private copy */
	GPC_READONLY = 1 << 2,
	/* lookup, match, match_groups, acquire: leave recency and statistics alone */
	GPC_QUIET = 1 << 3,
	/* lookup: take a reference on every hit.  match_groups: on each block that the prefix
	 * needs */
	GPC_REF = 1 << 4,
	/* lookup, match: may run on an opened device, when that is faster and its mirror shows
	 * all changes so far */
	GPC_ANYWHERE = 1 << 5,
	GPC_PARTIAL = 1 << 6, /* reserve: fewer than n is fine */
	GPC_TAKE = 1 << 7,    /* evict: the ids become reservations of the caller */
	/* demote, promote: the source stays live too (only between different spaces) */
	GPC_COPY = 1 << 8,
	GPC_CANCEL = 1 << 9,   /* commit: give the moves up */
	GPC_TAIL = 1 << 10,    /* hash: a last, partial block gets a key too */
	GPC_STANDBY = 1 << 11, /* writer_take: wait until the present writer is gone */
	GPC_REMOVE = 1 << 12,  /* clear: remove the emptied pool as well */
	GPC_DEVICE = 1 << 13,  /* lookup, match: on an opened device, or fail */
	/* fetch: only blocks with a checksum, and none of their bytes counts before the transfer
	 * is done */
	GPC_VERIFY_FIRST = 1 << 14,
	GPC_IF_IDLE = 1 << 15, /* clear: only if nobody holds a block of it, else -EBUSY */
	GPC_NO_REF = 1 << 16,  /* publish: nothing is referenced for the caller */
	/* evict: nothing goes, the call only names what would.  claim: nothing is claimed, see
	 * there */
	GPC_PEEK = 1 << 17,
	/* lookup, match, match_groups, acquire: a use as ever, and no question: statistics are
	 * left alone.  With GPC_QUIET: as that */
	GPC_TOUCH = 1 << 18,
	GPC_IN_HAND = 1 << 19,   /* reserve: out of the stock alone, which needs no writer */
	GPC_GROUP = 1 << 20,     /* hash: the blocks are those of a KV group */
	GPC_EVERYWHERE = 1 << 21 /* drop: the key, and what follows it, in every space */
};

/* kinds of pools: the tiers */
enum {
	GPC_VRAM = 1,
	GPC_RAM = 2,
	GPC_DISK = 3,
	GPC_REMOTE = 4 /* below RAM: each in a space of its own, of CALLER blocks whose owner
	                              * keeps the bytes (gpc_tiers_open) */
};
enum {
	GPC_POOL_OWNED = 1 << 0, /* the adding process is the owner */
	/* for an engine with its own allocator: each block is at first a reservation of the
	 * owner, and becomes one again when its key has gone; implies OWNED */
	GPC_POOL_CALLER = 1 << 1,
	/* blocks may be published without a live parent (RAM shared by several GPUs) */
	GPC_POOL_UNCHAINED = 1 << 2,
	GPC_POOL_ONCE = 1 << 3 /* add, make: not a second one of the same kind, space, flags,
	                              * block_bytes and fingerprint.  If there is one, the call returns
	                              * its number, and fills *p with what it is.  -EEXIST: there is
	                              * one, and its blocks, transit, demote_to, spill_ahead, gpus,
	                              * uuid or backing are not those that are asked for.  Not of a pool,
	                              * and never in gpc_pool.flags of one: -EINVAL with OWNED and
	                              * CALLER, and for VRAM with memory */
};

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
	/* RAM: 1 = none are kept; 0 = a CRC32C of each image that a spill has brought */
	uint32_t no_checksums;
	/* RAM: a folder of a hugetlbfs for the file; NULL or "" = beside the cache's files, with
	 * huge pages where the kernel gives them */
	const char *huge_dir;
	uint32_t threads; /* RAM: that touch the pages; 0 = one a processor, at most 16 */
	/* RAM: pages so far, told by the caller's thread; another answer than 0 ends the call:
	 * -ECANCELED */
	int (*progress)(void *arg, uint64_t done, uint64_t bytes);
	void *progress_arg;
};

struct gpc_config { /* zero = default everywhere; set size */
	uint32_t size;
	uint32_t block_tokens; /* tokens a block; 16 */
	/* records for all pools together: the largest sum at any time, transit blocks included;
	 * 0 = what vram_blocks and ram_blocks need, or 65536 */
	uint32_t max_blocks;
	uint32_t max_peers;   /* 32; at most GPC_MAX_PEERS */
	uint32_t max_pools;   /* 16; at most GPC_MAX_POOLS */
	uint32_t vram_blocks; /* shorthand: pool 0 in space 0, no owner, demotes to pool 1 */
	uint32_t ram_blocks;  /* shorthand: pool 1 (0 without VRAM), no owner */
	/* recency step; 0 = 1000; 1 = a new tick with every touching call (exact order of
	 * requests) */
	uint32_t tick_us;
	/* blocks the writer keeps free per pool ahead of demand; 0 = 64; -1 = none, capacity
	 * exact */
	int32_t free_target;
	/* delay before a dead peer's reserved blocks are reused when its process cannot be seen
	 * to have exited; 0 = 1000 */
	uint32_t quarantine_ms;
	uint32_t keep_tokens;  /* 1 = the tokens of each block are kept, 4 bytes each; 0 */
	uint32_t keep_digests; /* 1 = a digest and a group of each block are kept; 0 */
	/* most blocks any peer may hold reserved; 0 = no limit */
	uint32_t peer_quota;
	/* of the segments; 0 = 0600, group of this process.  0660 with gid lets that group in;
	 * world bits are refused.  GPC_IF_ABSENT: the files of a cache that exists get them, if they
	 * are this user's */
	uint32_t mode, gid;
	const char *dir;     /* on a tmpfs or hugetlbfs, else slower; /dev/shm */
	const char *devices; /* "none", "host", "cuda:0,cuda:1": mirrors to keep; "none" */
	/* fingerprint of model, dtype, parallel and block layout; attachers bring the same or
	 * all zero */
	uint8_t layout[32];
	const struct gpc_memory *ram_memory; /* of the pool of ram_blocks; NULL = it has none */
	uint32_t ram_space;                  /* space of that pool */
	uint32_t ram_flags;                  /* ... and 0 or GPC_POOL_UNCHAINED */
	/* pairs of gpc_alias that there is room for, 43 bytes each; 0 = an eighth of max_blocks;
	 * -1 = none */
	int32_t max_aliases;
	/* 16 bytes that keys are hashed with, so that they are the same in a cache that is made
	 * again; NULL = random.  Who knows them can construct keys that collide */
	const void *secret;
};

struct gpc_attach_options { /* of one attachment; zero = default; set size */
	uint32_t size;
	int32_t timeout_ms; /* how long to wait for the name and a free seat to appear */
	/* reservations this peer keeps in hand per pool so that reserve needs no round trip; of
	 * its own CALLER pools blocks evicted ahead of demand, for gpc_evict; 0 */
	uint32_t stock;
	uint32_t quota;    /* most blocks this peer may hold reserved; 0 = no limit */
	const char *dir;   /* /dev/shm */
	const char *label; /* shown beside the pid; up to 31 bytes */
	uint8_t layout[32];
	void (*log)(void *arg, int level, const char *text); /* level as in syslog(3) */
	void *log_arg;
	/* 1 + the peer that this one is a companion of: what that peer holds this process reads
	 * and writes, too, so when it ends it is kept until its companions have; 0 = none */
	int32_t leader;
	uint64_t life; /* gpc_info.life of the leader, by a channel of the engine's */
};

struct gpc_pool { /* set size */
	uint32_t size;
	int32_t number; /* out */
	uint32_t kind, flags, space;
	uint32_t blocks; /* capacity */
	/* RAM: slots beyond the capacity, for keys that come while blocks whose keys have gone are
	 * still in use; memory for blocks + transit slots is needed; 0 = 64 (RAM), 0 */
	uint32_t transit;
	uint32_t generation; /* out: changes when the memory behind the pool changed */
	int32_t owner;       /* out: peer, or -1 */
	/* pool that gpc_demote moves to by default, or -1; in one space VRAM demotes to RAM, and
	 * nothing else does */
	int32_t demote_to;
	uint32_t gpus;        /* GPUs of the group; 0 and 1 = a single one */
	uint8_t uuid[16][16]; /* their UUIDs */
	uint32_t backing_size;
	/* of a pool without memory: the owner's own words on how to map the bytes (IPC handles,
	 * a shm name, bytes a block) */
	uint8_t backing[1024];
	uint64_t memory;         /* out: number of its memory, new with each pool; 0 = none */
	uint64_t block_bytes;    /* out: bytes of an image */
	uint8_t fingerprint[32]; /* out: of the images */
	/* what gpc_spill_ahead keeps ready: blocks that are free, or, where demote_to is of
	 * another space, that have a copy there; 0 = none */
	uint32_t spill_ahead;
	uint32_t live, reserved, dying; /* out: blocks by state, as gpc_stats sums them up */
};

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
};

struct gpc_field {
	uint16_t tag;
	uint16_t reserved;
	uint32_t len;
	const void *data;
};
/* 1 model, 2 adapter, 3 salt, 4 weights version; others are the caller's */
struct gpc_extra {
	uint32_t token, len;
	const void *data;
};
/* content not in the tokens (image, embedding, salt of a range) that begins at this
	 * token; token counts from the first token of the call */
struct gpc_move {
	gpc_block from, to;
	gpc_key key;
	uint64_t op;
};

struct gpc_info { /* set size */
	uint32_t size, version;
	uint32_t block_tokens, max_blocks, max_peers, max_pools;
	uint32_t pools, peers; /* present now */
	uint32_t mirrors;      /* live mirrors */
	int32_t writer_pid;    /* 0 = none */
	uint32_t writer_generation;
	int32_t peer; /* seat of this handle; -1 = read-only */
	uint32_t tick_us;
	int32_t free_target;
	uint32_t keep_tokens, keep_digests;
	uint64_t tick, bytes; /* bytes: of all segments */
	uint64_t buckets;
	char hash[16];
	char devices[64];
	uint8_t layout[32];
	int32_t writer_peer; /* seat of the writer; -1 = none */
	/* read-only handles: what gpc_attach as a peer would answer now: 0, or a negative errno
	 * ... */
	int32_t refused;
	char why[256]; /* ... and its sentence */
	/* of this handle's seat: no other, here or in another cache, has had it; companions name
	 * it.  0 = read-only */
	uint64_t life;
	uint32_t max_aliases;     /* that there is room for; 0 = none are kept */
	uint64_t created_ns;      /* CLOCK_REALTIME: when the cache was made */
	uint64_t writer_since_ns; /* CLOCK_MONOTONIC: when its writer took the seat; 0 = none */
	/* seats whose process holds them, and those of processes that have died or left, not yet
	 * reaped */
	uint32_t peers_alive, peers_dead;
};

struct gpc_stats { /* since attach; of one peer, or summed.  set size */
	uint32_t size;
	int32_t pid; /* 0 when summed */
	char label[32];
	uint64_t lookups, hit_vram, hit_ram, miss; /* blocks; times block_tokens = tokens */
	uint64_t published, duplicate; /* keys that became live; that were live already */
	uint64_t evicted;           /* keys lost because others needed the room, of either tier */
	uint64_t demoted, promoted; /* moves committed, to RAM and to VRAM */
	uint64_t dropped;           /* keys lost by drops, clears, bad bytes, and ends of pools */
	uint64_t stale_refs, ring_full;
	uint64_t relocated, no_bucket; /* summed only: table moves, publishes refused */
	uint64_t refs, reserved, sections, oldest_section_ns; /* held now */
	/* summed only; as the writer counts.  What a leader had reserved and its companions keep
	 * is dying, and reserved by nobody */
	uint64_t live, free_blocks, dying;
	int32_t alive; /* 1 = the process holds its seat, 0 = dead or left, not yet reaped */
	/* 1 = pid is a number of the caller's PID namespace, 0 = of another, or it cannot be
	 * told */
	int32_t here;
	/* 1 = it has closed its handle, and no writer has cleared its seat yet */
	int32_t left;
	uint64_t fetched, spilled; /* blocks that transfers have brought */
	uint64_t bad; /* blocks whose bytes had another checksum than when they were spilled */
	uint64_t transfers, claims; /* under way, open now */
	int32_t leader;             /* the peer that it is a companion of, or -1 */
	/* summed only: pairs of gpc_alias; one too many for each writer that died while it
	 * stored one */
	uint64_t aliases;
	uint64_t commands;                     /* that the writer has carried out */
	uint64_t pending;                      /* submitted now, and not acknowledged */
	uint64_t fetched_bytes, spilled_bytes; /* of the images of those blocks */
	/* held now: for so long each look of the writer, ten a second, has found references.  None
	 * is older, but for 0.1 s, or for the time without a writer.  Summed: the longest of all */
	uint64_t refs_ns;
	/* as peers have told by gpc_hits_add: blocks that they had themselves; and of hit_ram, those
	 * that a disk, and a store, had brought for the question */
	uint64_t hit_own, hit_disk, hit_store;
};

struct gpc_histogram { /* how long things took, or had been, since the cache was made.  set size */
	uint32_t size;
	uint32_t cells; /* of cell[] that are filled: 31 */
	/* cell[k] counts what was at most first_ns << k, and not in a cell ... */
	uint64_t first_ns;
	uint64_t cell[32]; /* ... before; the last of them, what was more than all others take */
	uint64_t count;    /* sum of the cells */
	double sum;        /* of the values, in seconds */
	/* GPC_COPY_...: that those transfers brought, and those that go on */
	uint64_t blocks, bytes;
};
/* for gpc_histogram_get.  From milliseconds to days: */
enum {
	GPC_AGE_EVICTED = 1,  /* keys that were evicted: since they were live in that block */
	GPC_IDLE_EVICTED = 2, /* ... since their last use */
	/* between two uses of a block, of those whose turn to go it would have been */
	GPC_REUSE_GAP = 3,
	/* from microseconds to minutes: */
	GPC_ROUND_TRIP = 4, /* commands that a call has waited for */
	GPC_TAKEOVER = 5,   /* new writers, from having the seat to serving */
	/* transfers that brought blocks: from their answer to their commit */
	GPC_COPY_VRAM_VRAM = 6,
	GPC_COPY_VRAM_RAM = 7,
	GPC_COPY_RAM_VRAM = 8,
	GPC_COPY_RAM_RAM = 9
};

struct gpc_transfer_info { /* a transfer that is not over, for tools.  set size */
	uint32_t size;
	int32_t peer;
	gpc_transfer transfer;
	uint32_t blocks, left;  /* of its command; not decided yet */
	uint32_t ranks, passed; /* that copy, 1 at least; that have said done */
	int32_t from, to;       /* pools; from: of its first block when it began */
	uint64_t age_ns;
};

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

struct gpc_mirror { /* one mirror, for tools.  set size */
	uint32_t size;
	uint32_t generation;
	char device[32]; /* "host", "cuda:0" as its writer named it */
	uint8_t uuid[16];
	uint64_t bytes;
	uint64_t flushed; /* changes of the table that the mirror shows */
	uint64_t changes; /* changes of the table so far */
	uint32_t retired; /* 1 = its flush failed; lookups answer -ESTALE */
};

struct gpc_entry { /* one live block, for walks */
	gpc_key key, parent;
	gpc_block block;
	uint32_t depth, tag, refs;
	uint64_t stamp;
	uint32_t group, digest_bytes; /* as published; zero when none was given, or none ... */
	uint8_t digest[32];           /* ... is kept (keep_digests) */
};

struct gpc_event {
	uint64_t seq;
	uint32_t what; /* GPC_STORED ... */
	uint32_t tag;
	/* was: GPC_MOVED, the block that held the key before; GPC_REMOVED, `block` where
	 * gpc_drop has removed it, else -1; -1 too of a copy below RAM that went with a block of
	 * VRAM or RAM */
	gpc_block block, was;
	gpc_key key, parent;
	uint32_t group, digest_bytes; /* as in gpc_entry; of GPC_STORED, GPC_REMOVED and ... */
	uint8_t digest[32];           /* ... GPC_MOVED */
};
enum {
	GPC_STORED = 1,
	GPC_REMOVED = 2,
	GPC_MOVED = 3,
	GPC_CLEARED = 4,
	GPC_RETURNED = 5
}; /* a block of a CALLER pool is its owner's again */

/* The comment below a call says what it does.  Its first word says how far the call goes:
 *
 *   [local]   memory and devices of this process
 *   [shared]  shared memory as well; needs no writer
 *   [writer]  a command for the writer; waits for its answer, up to timeout_ms.  -ENOTCONN
 *             when there is no writer: about 0.2 seconds after it has gone, once, and at once in
 *             the calls of this handle that follow, until one is back.  -EDEADLK when the calling thread has an open section.
 *             Two calls may be made in a section: gpc_drop, and gpc_pool_make without memory.
 *             Five more may with timeout 0: gpc_publish, gpc_commit, gpc_ticket_wait,
 *             gpc_mirror_sync and gpc_pool_clear
 *
 * Local and shared calls wait for nobody, unless the comment says so.
 */

/* ---- library ---- */

uint32_t gpc_version(void);
/* [local] GPC_VERSION of the loaded library: major << 16 | minor. */

const char *gpc_strerror(int err);
/* [local] One sentence with the remedy for an errno of this library; accepts either
 * sign. */

uint32_t gpc_crc32c(uint32_t crc, const void *data, uint64_t n);
/* [local] The CRC32C that a pool of RAM keeps of an image, for those who copy themselves: of what
 * crc is of, 0 at first, and n bytes more. */

const char *gpc_last_error(void);
/* [local] Of this thread's last call that failed: which argument, its value, what it may
 * be; with the system's or the driver's own text.  gpc_publish, gpc_commit, gpc_reclaim, gpc_rekey
 * and gpc_ticket_wait that return >= 0 leave the sentence of the first item that was refused, and
 * "" if none was; gpc_ref that stopped early says why.  Other calls that succeed leave the text as
 * it is. */

/* ---- a cache by name ---- */

int gpc_create(const char *name, const struct gpc_config *cfg, const struct gpc_attach_options *opt,
	       uint32_t flags, gpc **ret);
/* [shared] Make the segments and attach.  cfg and opt may be NULL.  GPC_IF_ABSENT,
 * GPC_SERVE.  -EEXIST, -EPROTO (GPC_IF_ABSENT: it exists and differs), -ENOSPC (says how
 * much is missing).  -EINVAL: opt->leader is set, and companions attach. */

int gpc_attach(const char *name, const struct gpc_attach_options *opt, uint32_t flags, gpc **ret);
/* [shared] Take a seat; waits for the name and a seat up to the time in opt.  Seats of
 * the dead are free: without a writer the call clears them itself.  GPC_SERVE,
 * GPC_READONLY.
 * opt->leader: as a companion, a peer like any other.  When its leader dies or closes its handle,
 * what the leader had reserved or referenced is given to nobody, and its seat neither, before the
 * last companion has closed its handle or its process has exited; what the leader asked for, its
 * claims, sections and pools, end at once.  A companion that is stopped holds all of it for as
 * long.  -ESTALE: that life of the leader is over.  -EINVAL: the leader is a companion, or its life
 * is not given. */

int gpc_close(gpc *c);
/* [shared] Give every hold, section and the seat back; the cache stays.  No other thread
 * may use the handle any more.  Always succeeds; NULL is fine.  Of a leader: holds that it has not
 * released, and its seat, when its companions have gone. */

int gpc_unlink(const char *name, const char *dir);
/* [shared] Remove the names; attached processes go on. */

int gpc_info_get(gpc *c, struct gpc_info *ret);
/* [shared] Geometry, options, writer and seat. */

/* ---- pools ---- */

int gpc_pool_get(gpc *c, int pool, struct gpc_pool *ret);
/* [shared] -ENOENT: there is none, or it is being removed (calls that want blocks of such a pool
 * say -ESTALE: its number may soon be another's).  Compare generation before you use a mapping of
 * the bytes. */

int gpc_pool_available(gpc *c, int pool);
/* [shared] Blocks that a reserve could have now: the capacity less the blocks that each
 * peer holds there, at least 0.  A block held by k peers is subtracted k times.  A stock
 * is available, whosever it is.  In a pool of CALLER blocks, which nobody reserves from:
 * the blocks that gpc_evict could bring back to the owner now, those that are live and
 * that nobody holds, and its stock.  The number is too low while two peers hold one block, and too
 * high while somebody holds a block but not its ancestors.  Cheap: a scheduler may ask at each
 * step. */

int gpc_pool_clear(gpc *c, int pool, uint32_t tag, uint32_t flags, int timeout_ms);
/* [writer] Forget every entry (of that tag; 0 = all) of a pool (-1 = all pools), with all
 * descendants in the space.  Copies below RAM are entries of pools of their own.  Held blocks
 * become unfindable and come back with their last hold; returns how many such blocks there are,
 * earlier ones included.  GPC_REMOVE: the pool goes when its last hold has; waits for that up to
 * the timeout (0: do not wait, it goes later by itself). -ENOTCONN, -ETIMEDOUT and -EAGAIN (timeout
 * 0) of a call that was submitted: a writer clears later, with GPC_IF_IDLE too if nobody holds a
 * block at that later moment; gpc_ticket_wait tells when it has looked. GPC_IF_IDLE: -EBUSY, and
 * nothing has changed, if somebody holds a block of what is to go: a reference on one of those
 * entries, or an open move or transfer of one; of tag 0 also a reservation, or a reference on a
 * block whose key has gone.  A stock does not count; a dead peer's holds do until a writer has
 * cleared its seat.  The writer looks, and then clears, without another command in between.  A
 * reference that a peer takes in that moment is not seen by the look: then the entries go, the call
 * succeeds, and what it returns counts that block, unless it is a descendant in a pool that was not
 * named. */

/* ---- memory of pools ---- */

int gpc_pool_make(gpc *c, struct gpc_pool *p, const struct gpc_memory *m, int timeout_ms);
/* [writer] Adds a pool and returns its number; an engine calls it once it knows how many blocks fit.
 * After -ENOTCONN, -ETIMEDOUT and -EAGAIN the pool may still be added, and a second call
 * adds a second one: look for it with gpc_pool_get, or close the handle.  With GPC_POOL_ONCE a
 * second call, of whomever, returns the first one's pool: -EEXIST where it differs.
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
 * has committed it; -EBADMSG: a checksum was wrong, and nothing was committed.  What was refused
 * otherwise, gpc_transfer_results tells.  -EIO: it failed, and never will be.  -EAGAIN (timeout 0),
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
 * nothing is committed, the transfer ends in -EBADMSG, the bad block is dropped with its
 * descendants.  What follows in the stream has read them, so whoever cannot take that waits for the
 * transfer first: GPC_VERIFY_FIRST says so, and takes no block without a checksum. -ENOENT,
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

int gpc_transfer_get(gpc *c, uint32_t i, struct gpc_transfer_info *ret);
/* [shared] The i-th of those that are not over, of all peers; -ENOENT past the last. */

/* ---- tiers below RAM: bytes on disk, or with a remote store.  One process of the cache keeps them
 * (gpc_tiers_open; gpcd does with --disk); the bytes of a block come to RAM before anybody else has
 * them ---- */

int gpc_prefetch(gpc *c, int to, const gpc_key *keys, uint32_t n, uint32_t flags, int timeout_ms);
/* [shared] The keys of one prompt, as far as they are below RAM, are brought to RAM by the process
 * that keeps the tiers: to the RAM of the space of pool `to`, if there is some with images like
 * theirs, else to any RAM.  Waits up to the timeout and returns how many of the first keys are in
 * VRAM or RAM then; timeout 0 asks, and returns how many are now.  What was asked for goes on
 * without the caller.  Nothing is held: gpc_fetch, which asks by itself where it has time, or
 * gpc_acquire comes next.  While a block is on its way its key is PENDING (gpc_claim).  What cannot
 * be brought is a miss: bytes that are damaged, late, or cleared meanwhile, no block of RAM free.
 * flags: 0.  -ENOTCONN: nobody keeps tiers, or its keeper has ended meanwhile; only where some key
 * is below RAM.  -EAGAIN: 4 calls of this handle with timeout 0 are under way.  Of a call with
 * timeout 0 the first 1024 keys that are missing are asked for.  A keeper that is stopped is waited
 * for once, at most for five seconds, and not asked until it goes on (GPC_TIER_STOPPED). */

struct gpc_tiers;
typedef struct gpc_tiers gpc_tiers; /* the tiers that this process keeps */

struct gpc_tiers_options { /* zero = default; set size */
	uint32_t size;
	uint32_t flags;     /* GPC_TIERS_... */
	const char *dir;    /* of the cache; /dev/shm */
	int32_t timeout_ms; /* for the cache, a seat and a writer to appear */
	/* the RAM pool whose images the tiers have, + 1; 0 = the first one with memory.  Others
	 * with images of the same size and fingerprint are served as well */
	int32_t ram;
	/* path of a file; it is made, 0600, where there is none; NULL = no disk */
	const char *disk;
	/* of that file, about; 0 = as it is, and where there is none disk_blocks is given */
	uint64_t disk_bytes;
	uint32_t disk_blocks;  /* or so many blocks; 0 = what disk_bytes is enough for */
	uint32_t disk_space;   /* space of its pool; 0 = the highest one without pools */
	uint32_t disk_threads; /* that read and write; 8; at most 64 */
	/* so many blocks, next to go from each RAM pool, have a copy below before they go, and
	 * so has what they hang on there, if the tier has as many blocks as RAM; with
	 * GPC_TIERS_EXCLUSIVE, so many blocks of RAM are kept free, half of them at least.  0 =
	 * a sixteenth of the pool, 64 to 4096 */
	uint32_t ahead;
	/* a block is written when it is next to go for the so-manieth time in its life with this
	 * keeper; 0 and 1 = the first time */
	uint32_t min_uses;
	uint32_t max_age_s;  /* blocks that were written longer ago go; 0 = none do */
	uint64_t write_rate; /* bytes a second that are written at most; 0 = no limit */
	uint32_t stages;     /* questions that are answered at a time; 4; at most 16 */
	uint32_t reserved;
	/* a store on other machines: NAME:word=value,... of a plugin; NULL = none */
	const char *remote;
	/* version of what is cached, 1 to 32 bytes of [A-Za-z0-9._-]: whoever has another one
	 * sees nothing of it; NULL = "0" */
	const char *remote_tag;
	/* so many keys in the store are known here; 0 = 4 times the RAM pool, at least 65536 */
	uint32_t remote_blocks;
	uint32_t remote_space; /* space of their pool; 0 = the highest one without pools */
	uint32_t remote_uses;  /* as min_uses */
	uint32_t remote_ms;    /* a call to the store has so long; 0 = 2000 */
	/* 16 bytes, if the cache was made with them: the file keeps no copy, and one that was
	 * written under others is refused.  NULL = the file keeps those of the cache */
	const void *secret;
	void (*log)(void *arg, int level, const char *text); /* level as in syslog(3) */
	void *log_arg;
};
enum {
	/* a block is in RAM or below it: what was brought up leaves the disk, and what was
	 * written leaves RAM.  Default: both keep it */
	GPC_TIERS_EXCLUSIVE = 1 << 0,
	/* a file of another size is grown, or cut: what was beyond the end is lost */
	GPC_TIERS_RESIZE = 1 << 1,
	/* the file goes through the page cache; default: O_DIRECT where it can */
	GPC_TIERS_BUFFERED = 1 << 2,
	/* a damaged file of ours is refused; default: it is renamed to DISK.bad, and a new one made */
	GPC_TIERS_STRICT = 1 << 3
};

int gpc_tiers_open(const char *name, const struct gpc_tiers_options *opt, gpc_tiers **ret);
/* [writer] Attach to the cache as a peer of its own, and keep its tiers below RAM with threads of
 * this process, until gpc_tiers_close.  Each tier is a pool of the index (GPC_DISK) in a space of
 * its own, whose blocks can be looked up, counted, walked, dropped and cleared like others; they go
 * when this process ends, and the file stays: what is in it is published again by the next call, in
 * the background.  gpc_tiers_sync waits for that. -EBUSY: another process keeps the tiers of this
 * cache, or has the file.  -EPROTO: the file is none, of another version, or of images of another
 * size or fingerprint, or its keys were hashed with another secret.  -EACCES: another user's, or
 * others may read it.  -EBADMSG: damaged.  -ENOSPC: no room for the file, or for so many blocks in
 * the cache (max_blocks) or another pool (max_pools).  -ENOENT: no such RAM pool.  In each case the
 * file is as it was, and the sentence has the remedy.  -ENOTCONN: no writer. */

int gpc_tiers_close(gpc_tiers *t);
/* [writer] Questions that are open end with what has come so far; threads end; the pools go.  Waits
 * for the writer for two seconds at most.  NULL is fine. */

struct gpc_tiers_file { /* a file that is there.  set size */
	uint32_t size;
	uint32_t has_secret; /* 1: it keeps the secret of its cache */
	uint64_t blocks, block_bytes, bytes;
	uint8_t secret[16]; /* 16 bytes that its keys were hashed with: for gpc_config.secret */
};

int gpc_tiers_file_get(const char *disk, struct gpc_tiers_file *ret);
/* [local] What such a file says of itself: for who makes the cache anew that it belongs to.  Nobody
 * has to keep it, and it is not locked.  -ENOENT: no such file.  -EPROTO, -EBADMSG, -EACCES as
 * above. */

int gpc_tiers_sync(gpc *c, int timeout_ms);
/* [shared] Returns when the keeper of the tiers has nothing left to do: what was in the file is
 * published, what is next to go from RAM is written as far as the policy wants it, what was removed
 * is gone from the disk for ever.  Calls that remove (gpc_drop, gpc_pool_clear) wait for the last
 * part by themselves.  -ENOTCONN: nobody keeps tiers, or another process began to during the
 * call. */

/* state of a tier */
enum {
	/* the store does not answer, the disk rests, or nobody keeps the tier: all of it is a
	 * miss */
	GPC_TIER_DOWN = 0,
	GPC_TIER_UP = 1,
	/* switched off until its keeper starts anew: wrong bytes, or too many drops */
	GPC_TIER_OFF = 2,
	/* its keeper lives and takes no questions: it is stopped, or all its stages hang.  Nobody
	 * waits for it, and all of it is a miss, until it goes on */
	GPC_TIER_STOPPED = 3
};

struct gpc_tier_counter {
	char name[24]; /* [a-z0-9_]+ */
	uint64_t value;
};

struct gpc_tier { /* a tier below RAM, for tools: since its keeper opened it.  set size */
	uint32_t size;
	uint32_t kind; /* GPC_DISK, GPC_REMOTE */
	int32_t pool;  /* its pool, and the peer that keeps it; -1: nobody does now */
	int32_t keeper;
	uint32_t ready;       /* 1: what was there when it was opened is published */
	uint32_t state;       /* GPC_TIER_...; a disk that is kept is up */
	uint64_t block_bytes; /* of an image */
	/* questions of peers, to all tiers together; keys of theirs that were brought ... */
	uint64_t asks;
	uint64_t hits, misses;           /* ... and that were not */
	uint64_t brought, brought_bytes; /* blocks that came to RAM */
	uint64_t written, written_bytes; /* ... and went down */
	uint64_t absent;                 /* looked for, and not found there */
	uint64_t bad;                    /* a checksum was wrong: never served */
	uint64_t errors, late;           /* reads that failed; that did not come in time */
	uint64_t overtaken;     /* cleared, dropped or evicted while they were on their way */
	uint64_t no_ram;        /* no block of RAM was to be had */
	uint64_t refused;       /* by the writer: no parent there, no bucket */
	uint64_t failed;        /* writes that failed */
	uint64_t unwanted;      /* not written, for min_uses */
	uint64_t evicted, aged; /* for want of room; for their age */
	uint64_t forgotten;     /* made free for ever, after drops and clears */
	/* in the file when it was opened; published; those behind a block that was nowhere */
	uint64_t found, restored, orphans;
	/* of a remote store: */
	/* images it had no room for; images and keys it was not asked for, being down or off */
	uint64_t full, down;
	/* keys of which the index knew nothing, that it was asked about; that it has */
	uint64_t asked, there;
	/* times that all of the tier went, since more was dropped than is known */
	uint64_t emptied;
	uint32_t ncounters, reserved;
	struct gpc_tier_counter counter[8]; /* what its plugin counts of its own (gpc_remote(7)) */
	/* as its keeper was told it, cut to fit: path of a file, or NAME:word=value,... of a store */
	char what[512];
};

int gpc_tier_get(gpc *c, uint32_t i, struct gpc_tier *ret);
/* [shared] The i-th tier below RAM; -ENOENT past the last. */

/* ---- checksums of memory of the caller's own ---- */

struct gpc_piece { /* of block b: so many bytes at (char *)at + b * stride */
	const void *at;
	uint64_t stride, bytes; /* bytes: at least 1 */
};

int gpc_sums_open(const char *device, const struct gpc_piece *pieces, uint32_t n, gpc_sums **ret);
/* [local] To sum images that lie in memory of the caller's own, without a cache: an image is its
 * pieces, 1 to GPC_MAX_PIECES, in this order.  device: "host" for memory of this process, or that
 * whose memory it is ("cuda:0", "GPU-uuid"): it sums where the bytes lie.  Takes 128 KiB, which are
 * registered with the device, and about a megabyte there.  The memory stays as long as the
 * gpc_sums. -EINVAL: device is no such name, or a piece is NULL or empty.  -ENODEV: no such GPU
 * here. */

int gpc_sums_ask(gpc_sums *s, uint32_t first, const uint32_t *blocks, uint32_t n, void *stream);
/* [local] Enqueue: answers first to first + n - 1, of GPC_SUMS, become the CRC32C of these blocks'
 * images, as the bytes are when the stream gets there.  stream: of that device, NULL = its default
 * one; all calls of one gpc_sums are in one stream, or one after the other.  "host": no stream,
 * NULL; they are there when the call returns.  Blocks are not checked: no wrong number may be among
 * them.  -EINVAL: beyond GPC_SUMS. */

int gpc_sums_get(const gpc_sums *s, uint32_t first, uint32_t *crc, uint32_t n);
/* [local] Answers first to first + n - 1; the caller has waited for the stream.  Waits for
 * nothing. */

int gpc_sums_close(gpc_sums *s);
/* [local] Nothing of it may be queued any more.  NULL is fine. */

/* ---- claims: who computes a key that many want ---- */

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

int gpc_claim_walk(gpc *c, uint64_t *cursor, struct gpc_claim *out, uint32_t n);
/* [shared] Every open claim, for tools; *cursor starts at 0; returns how many; 0 = the end. */

/* ---- keys ---- */

int gpc_key_root(gpc *c, const struct gpc_field *f, uint32_t n, gpc_key *ret_root);
/* [local] Model, adapter, salt; length-prefixed, domain-separated; the order of fields
 * matters. */

int gpc_root_keep(gpc *c, const struct gpc_field *f, uint32_t n, gpc_key *ret_root, uint32_t flags,
		  int timeout_ms);
/* [writer] gpc_key_root, and the cache keeps the fields, for those who know the root alone: gpcd
 * --events names adapter (tag 2) and salt (tag 3) of each block below it.  A call whose root is
 * kept already is local, so that it may stand before each publish of a first block.  ret_root (may
 * be NULL) is filled where the call fails for want of room, writer or time, too.  Fields outlive
 * their publisher and every writer, and may be forgotten: there is room for one root in 16 of
 * max_blocks, 64 to 4096, in buckets of four, and a full one forgets its oldest.  Every process of
 * the cache can read them, salts included.  Returns 0.  -EINVAL: as gpc_key_root, or more than
 * GPC_ROOT_BYTES.  -ENOENT: this cache keeps none, as neither tokens nor digests. -ENOTCONN,
 * -ETIMEDOUT, -EAGAIN (timeout 0): what was submitted is carried out; a second call does no
 * harm. */

int gpc_root_get(gpc *c, const gpc_key *root, struct gpc_field *f, uint32_t n, void *data,
		 uint32_t bytes);
/* [shared] The fields of a root that gpc_root_keep was given: up to n of them in f, which point to
 * their bytes in data (GPC_ROOT_BYTES is enough for all).  Returns how many there are.  -ENOENT: no
 * fields of that root are kept.  -ENOSPC: data is too short for n; f and data have a part.  Needs
 * no seat, no section, no writer. */

struct gpc_prompt {
	const gpc_key *parent; /* NULL or zero = no parent */
	const uint32_t *tokens;
	size_t n;                  /* tokens */
	const struct gpc_extra *x; /* sorted by token; each enters every block it begins in */
	uint32_t nx;
	uint32_t group;        /* GPC_GROUP; else 0 */
	uint32_t block_tokens; /* GPC_GROUP: of the group, at most 65536; 0 = the cache's; else 0 */
	uint32_t reserved;     /* 0 */
	gpc_key *ret_keys;     /* room for n / block_tokens keys, rounded up with GPC_TAIL */
};

int gpc_key_hash(gpc *c, const struct gpc_prompt *p, uint32_t n, uint32_t flags);
/* [local] Chain on from any key: one key for each full block of n prompts (with GPC_TAIL also one
 * for a partial last block); returns how many there are together (at most INT32_MAX, else
 * -EINVAL).  Three and more chains without extras are hashed side by side where the processor has
 * AVX2 or AVX-512 and block_tokens is even.  No prompt's keys overlap another one's tokens, parent
 * or keys.
 * GPC_GROUP: for the blocks of a KV group.  group and block_tokens enter every key: none is a key
 * of another group, of blocks of another size, of a call without GPC_GROUP or of gpc_key_import,
 * whatever the parent is.  parent: root, zero, or a key of the same group and size. */

int gpc_key_import(gpc *c, const void *digests, uint32_t bytes, uint32_t stride, uint32_t n,
		   uint32_t group, gpc_key *ret_keys);
/* [local] Foreign digests, u64 hashes or gpc keys to keys of KV group `group`: item i is
 * the `bytes` bytes at digests + i * stride.  Same input, same key, in every peer. */

/* ---- aliases: other keys for one content.  A pair of keys says: what has the key `to` is what is
 * looked for under `alias`.  Keys name contents, so a pair is true for ever, in every pool and
 * space, whether or not a block with that key is live.  It holds nothing, and nothing that befalls
 * blocks ends it ---- */

int gpc_alias(gpc *c, const gpc_key *alias, const gpc_key *to, uint32_t n, uint32_t flags,
	      int timeout_ms);
/* [writer] Store n pairs, in order.  A `to` that is an alias itself is stored as the key that it
 * stands for at that moment; the last pair of an alias counts.  A pair may be forgotten at any
 * time, and is then a miss: buckets are of three, and a full one forgets its oldest.  So of
 * max_aliases pairs one in five has gone, of half as many one in seventeen; store what is missed
 * again.  Returns 0.  -EINVAL: a zero or root key, or alias[i] is to[i]; nothing is stored.
 * -ENOENT: this cache keeps none (max_aliases).  -ENOTCONN, -ETIMEDOUT, -EAGAIN (timeout 0): what
 * was submitted is carried out; a second call for the same pairs does no harm. */

int gpc_alias_resolve(gpc *c, gpc_key *keys, uint32_t n);
/* [shared] Each key that is an alias becomes the key that it stands for; returns how many were.
 * The others stay as they are, zero and root keys among them.  For keys that may be aliases: before
 * gpc_lookup and the other calls that find, before gpc_fetch and gpc_claim, and for the parents of
 * gpc_publish, which all know no aliases.  An alias is replaced even where a block with that key
 * itself is live: who wants that one looks it up first.  Wait-free; needs no seat, no section, no
 * writer. */

/* ---- finding: wait-free ---- */

int gpc_lookup(gpc *c, uint32_t spaces, const gpc_key *keys, uint32_t n, gpc_block *blocks,
	       uint32_t flags);
/* [shared] Each key by itself; blocks[i] = block or -1; returns hits; hints unless
 * GPC_REF.  GPC_QUIET, GPC_TOUCH, GPC_REF, GPC_ANYWHERE, GPC_DEVICE (-ENODEV: none is open; -ESTALE:
 * no live mirror; the answer is what its mirror shows: call gpc_mirror_sync first for the
 * latest). */

int gpc_match(gpc *c, uint32_t spaces, const gpc_key *keys, const uint32_t *start, uint32_t nseq,
	      uint32_t *len, gpc_block *blocks, uint32_t flags);
/* [shared] Longest prefix of each sequence keys[start[i] .. start[i+1]); chained keys
 * only; hints.  len[i] = matched blocks; blocks (may be NULL) is indexed like keys, only
 * the matched part is written.  Returns the sum of len.  GPC_QUIET, GPC_TOUCH, GPC_ANYWHERE,
 * GPC_DEVICE. */

struct gpc_group { /* a KV group of one prompt.  set size, the same one in all groups */
	uint32_t size;
	uint32_t block_tokens; /* of a block of this group; 0 = the cache's */
	/* of a prefix of L tokens only those blocks are needed that hold some of its last so
	 * many tokens; 0 = all blocks (full attention).  A sliding window of w tokens needs w -
	 * 1, as the next token is in the window itself; a state needs 1, the block at whose end
	 * it is */
	uint32_t last;
	uint32_t n;          /* keys */
	const gpc_key *keys; /* keys[i] is of the block of tokens i * block_tokens and on */
	gpc_block *blocks;   /* room for n */
};

struct gpc_match_options { /* zero = default; set size */
	uint32_t size;
	/* the length is a multiple of so many tokens, too (a chunk); 0 = of any */
	uint32_t multiple;
};

int gpc_match_groups(gpc *c, uint32_t spaces, const struct gpc_group *groups, uint32_t n,
		     const struct gpc_match_options *opt, uint32_t flags);
/* [shared] The longest prefix of one prompt that every one of n groups can go on from; returns its
 * length in tokens, a multiple of block_tokens of each group, or 0.  The keys of each group go as
 * far, so the group whose keys end first bounds it.  Keys need not be chained.  groups[g].blocks
 * gets the blocks that are needed, each at the index of its key, and -1 everywhere else:
 * gpc_release takes the array as it is.  Hints, unless GPC_REF: then each of them is referenced
 * before return; one that goes meanwhile makes the prefix shorter, and nothing beside the answer is
 * held.  GPC_QUIET, GPC_TOUCH, GPC_REF.  In statistics the blocks that the longest possible prefix needs count
 * as looked up, and those of the answer as hits.  On failure nothing is held; -EOVERFLOW alone has
 * written to blocks, -1 everywhere. */

int gpc_acquire(gpc *c, uint32_t spaces, const gpc_key *keys, uint32_t n, gpc_block *blocks,
		uint32_t flags);
/* [shared] Longest prefix of one prompt, referenced before return; returns its length;
 * blocks past it are untouched.  This is what a scheduler calls.  GPC_QUIET, GPC_TOUCH. */

int gpc_ref(gpc *c, const gpc_key *keys, const gpc_block *blocks, uint32_t n);
/* [shared] Hints to references, verified; stops at the first stale one and returns how
 * many were taken. */

int gpc_release(gpc *c, const gpc_block *blocks, uint32_t n);
/* [shared] One hold less on each, root first; a release counts as a use (each block a
 * little older than the one before it in the array, chained or not: the last goes first);
 * a reservation goes back to the free list.  Never fails for a full ring.  -1 is skipped.
 * -EPERM: a block that is not held; the others are released all the same.  A block may be
 * released before its publish is answered: then this handle holds nothing of it, whatever
 * the answer is. */

/* ---- filling ---- */

struct gpc_reserve_options { /* zero = default; set size */
	uint32_t size;
	/* succeed only if so many more blocks of the capacity stay available; 0 */
	uint32_t headroom;
};

int gpc_reserve(gpc *c, int pool, uint32_t n, gpc_block *blocks,
		const struct gpc_reserve_options *opt, uint32_t flags, int timeout_ms);
/* [writer] (With a stock in hand: [shared].)  All n, or none; returns n.  GPC_PARTIAL: up
 * to n, returns how many, root-most first.  First the free blocks, last returned first,
 * then the least recent leaves, whose keys are lost: gpc_demote ahead keeps them.  -ENOSPC, -EDQUOT, -EAGAIN (timeout 0),
 * -ETIMEDOUT, -ESTALE (pool gone), -EPERM (a pool of CALLER blocks).  GPC_IN_HAND: all n out of the
 * stock of this handle, with GPC_PARTIAL as many as it has, at once and [shared]; else -EAGAIN, and the stock is on its way to be full
 * again. */

struct gpc_publish_options { /* zero = default; set size */
	uint32_t size;
	uint32_t tag;        /* of all blocks of the call: gpc_pool_clear, events, walks */
	gpc_block *resident; /* room for n: what became of each, see below; NULL */
	gpc_ticket *ticket;  /* gets the ticket; 0: nothing was submitted in time; NULL */
	/* notes, which the cache keeps beside each block and never looks at: the KV group of all
	 * blocks of the call (keep_digests) */
	uint32_t group;
	/* n * block_tokens, those of the cache, in the order of blocks (keep_tokens); NULL for a
	 * KV group whose blocks have more or fewer */
	const uint32_t *tokens;
	/* the engine's own names: that of block i is the digest_bytes, 1 to 32, at digests + i *
	 * digest_stride (keep_digests) */
	const void *digests;
	uint32_t digest_bytes, digest_stride;
	/* gpc_drops() of before the first lookup or load of the request that computed the blocks:
	 * refused is what follows, or may follow, from bytes that were dropped since.  0: not asked
	 */
	uint64_t since;
};

int gpc_publish(gpc *c, const gpc_key *parents, const gpc_key *keys, const gpc_block *blocks,
		uint32_t n, const struct gpc_publish_options *opt, uint32_t flags, int timeout_ms);
/* [writer] After the bytes are complete, device writes included.  Any mix of sequences in one
 * call, parents before children; zero or root parent = first block; parents == NULL: no chain
 * (window or state groups, looked up one by one).  opt->resident tells for each:
 *   == blocks[i]    live; the reservation became a reference
 *   another block   the key was live already; that one is referenced for the caller, and
 *                   blocks[i] stays reserved
 *   negative        refused, blocks[i] stays reserved: -ENOENT parent not live, -EXDEV parent
 *                   in another space, -EPERM not reserved by you, -ESTALE pool gone, or its key,
 *                   or that of a block that it follows, was dropped since opt->since, -EAGAIN
 *                   no bucket free, or not submitted, -EINVAL no such block, or a key that is zero,
 *                   a root key or its own parent, -EOVERFLOW
 * Returns how many are live in blocks[i] now.
 * GPC_NO_REF, to publish and forget: a block that goes live is released with the answer, as by
 * gpc_release, and is as recent; another block that has the key is named and not referenced, a
 * hint; what stays reserved stays so, and is the caller's to release.  With timeout 0, and after
 * -ENOTCONN and -ETIMEDOUT, the call on this handle that takes the answer releases; gpc_release of
 * a block before that ends the hold as ever, unless another thread of this handle has a reference
 * on it by then, and behind it is -EPERM of one that went live.  Beyond 1024 blocks a parent may
 * be evicted before its child is published: -ENOENT. Notes are those of the block's own publisher,
 * for as long as the key stays, whatever block it moves to: a duplicate's are forgotten.  -EINVAL:
 * notes that this cache does not keep. Timeout 0 submits, all n or none (-EAGAIN: the ring has no
 * room; n is at most 4096), and returns 0; gpc_ticket_wait tells when resident is filled.
 * -ENOTCONN, -ETIMEDOUT: this writer or the next one carries out what was submitted, and a later
 * call on this handle writes into resident.  Take a ticket too, and free the array only after
 * gpc_ticket_wait returned 0 for it or gpc_close returned. */

int gpc_ticket_wait(gpc *c, gpc_ticket t, int timeout_ms);
/* [writer] Returns when the command and all before it are acknowledged: they survive any
 * death.  Ticket 0 names nothing, and the call succeeds.  GPC_TICKET_ALL: all that this
 * handle has submitted. */

gpc_ticket gpc_ticket_last(gpc *c);
/* [local] The ticket of the last command of this handle; 0 = none yet, or no seat. */

int gpc_evict(gpc *c, int pool, uint32_t n, gpc_block *blocks, uint32_t flags, int timeout_ms);
/* [writer] (A CALLER pool of its own, with a stock in hand: [shared].)  Least recent leaves
 * without hold; returns after their grace period; returns
 * how many (0 = none evictable).  GPC_TAKE.  Blocks of a CALLER pool go back to the
 * owner: anybody may evict there, GPC_TAKE is the owner's alone (else -EPERM) and makes
 * no difference.  Blocks of the owner's stock come first; they have been evicted already, at most
 * gpc_attach_options.stock of the least recent ones, and GPC_PEEK does not name them.  GPC_PEEK:
 * nothing goes; the blocks that an evict would name at this moment, in its order, at most 4096,
 * without a wait for grace periods.  A hint: none is held, and any use, reserve or release changes
 * what goes next. */

int gpc_reclaim(gpc *c, const gpc_key *keys, const gpc_block *blocks, uint32_t n, int *results,
		uint32_t flags, int timeout_ms);
/* [writer] Chosen live blocks become reservations of the caller (of a CALLER pool: its owner's
 * again): unfindable at once, the caller's after their grace period.  Of each block nobody else
 * holds anything; a single reference of the caller, which no stream is to release, becomes the
 * reservation.  Leaf first: what hangs below a block, in any pool, does not go by itself.  keys
 * (NULL: any key) are those that the blocks are meant to have; a zero key is any.  Returns how many
 * are reserved; results (may be NULL) tells for each 0 or a negative errno.  The block and the
 * caller's reference are as they were after -EINVAL no such block, -1 among them, -EBUSY held, by
 * another reference, a move, a transfer or a live child, -EPERM a CALLER pool of another peer,
 * -EDQUOT.  -ESTALE: it is not live, or not with that key; or somebody took a reference in the
 * moment that it went, then it is as after gpc_drop.  In both cases a reference of the caller
 * stays. A block is not released before the call has returned.  -ETIMEDOUT, -EAGAIN (timeout 0):
 * none of the blocks of this part is reserved; some may be unfindable, a reference of the caller
 * stays.  Beyond 1024 blocks, and for each pool in the list, there is a part of its own: what goes
 * wrong in a later one stands in results. -ENOTCONN: the next writer may reclaim them all the same;
 * what the caller held is held, as a reference or a reservation, and one gpc_release ends it; what
 * it did not hold is given back. */

int gpc_rekey(gpc *c, const gpc_key *from, const gpc_key *parents, const gpc_key *to,
	      const gpc_block *blocks, uint32_t n, const struct gpc_publish_options *opt,
	      uint32_t flags, int timeout_ms);
/* [writer] Live blocks get other keys and keep their bytes, which the caller may have completed
 * since: a partial block that became full.  gpc_reclaim with the keys `from` (NULL: any), then
 * gpc_publish under the keys `to`, parents before children; a block that the caller has reserved
 * already is only published, so a second call goes on where the first one stopped.  A lookup finds
 * the old key, then, for a grace period, neither, then the new one.  opt->resident as of
 * gpc_publish, or what gpc_reclaim says of a block that has kept its key (-EBUSY, -ESTALE,
 * -EDQUOT).  Returns how many have the new key.  What was refused by the publish (-ENOENT, -EXDEV,
 * -EAGAIN), and all that was reclaimed when this call fails, is reserved.  But what gpc_reclaim had
 * no time for (-ETIMEDOUT; -EAGAIN with timeout 0; -ENOTCONN) may have lost its key, as that call
 * says, and its bytes with it: an open section is enough, so give it time.  -EINVAL: a zero or root
 * key in `to`, or one that is its own parent; nothing has changed.  opt->since as of gpc_publish;
 * 0: when the call began, since the bytes were live then.  GPC_NO_REF.  Timeout 0: a round trip for
 * each half. */

int gpc_returned(gpc *c, int pool, gpc_block *blocks, uint32_t n, int timeout_ms);
/* [shared] Owner only: up to n of its CALLER blocks of that pool (-1: of all such pools)
 * that came back to it, evicted by anybody, cleared, dropped, or moved elsewhere: nobody
 * finds them or holds them any more, and they may be published anew.  Each return of a
 * block is told once, by one thread's call; of one that a publish has named before, when that is
 * refused.  A block that the owner's own gpc_evict names is
 * told there, and not here.  Waits for the first one up to the timeout; returns how many,
 * 0 = none in that time.  -EPERM: not a CALLER pool of this peer.  -ENOENT: no such pool.
 * -ESTALE: it is being removed. */

int gpc_drop(gpc *c, const gpc_block *blocks, uint32_t n, gpc_ticket *ticket, uint32_t flags,
	     int timeout_ms);
/* [writer] Bytes are bad: unfindable now, with all descendants, held or not.  A block whose key has
 * moved since is followed to where the key is now.  Of a block of VRAM or
 * RAM its copies below RAM go as well, and what follows it there, also what may: a block on disk,
 * or one that is without its parent in VRAM or RAM, one of whose ancestors is nowhere by then.  The
 * call returns when no restart can bring them back.  A block below RAM goes alone, with its
 * descendants there.  GPC_EVERYWHERE: the key of each block, and all that follows it, in every space
 * of VRAM and RAM, and below, whether the block is live still or not: of bytes that were computed
 * wrongly, since copies have them, too.  Without it, blocks of the key in other spaces stay: of bytes that were
 * damaged where they lay.  Returns how many of the named blocks were dropped.  ticket (may be NULL)
 * gets the ticket.  Timeout 0 submits, as gpc_publish does, and returns 0.  -ENOTCONN, -ETIMEDOUT:
 * what was submitted is carried out. */

uint64_t gpc_drops(gpc *c);
/* [shared] A mark in time: what is dropped from now on is dropped since then.  Ask before a request
 * looks up or loads anything, keep it with the request, and publish with it as `since`; threads and
 * processes may hand it to each other.  It grows with each drop of blocks of VRAM or RAM, and is
 * never 0 but in the child of a fork. */

int gpc_dropped(gpc *c, uint64_t since, const gpc_key *keys, uint32_t n);
/* [shared] How many of these keys were dropped since gpc_drops() has said that number: of a request
 * that has read them.  -ESTALE: more than 65,536 keys were dropped since, and nobody knows. */

/* ---- moves between tiers: both halves around the caller's copy ---- */

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

/* ---- sections and grace periods (only for ids used without a reference) ---- */

int gpc_section_enter(gpc *c);
/* [shared] Returns a section; -EAGAIN when this peer has none left. */

int gpc_section_leave(gpc *c, int section);
/* [shared] -EINVAL: it is no open section of gpc_section_enter. */

uint64_t gpc_grace_start(gpc *c);
/* [shared] Returns a cookie for a grace period: all sections that are open now must
 * end. */

int gpc_grace_done(gpc *c, uint64_t cookie);
/* [shared] 1 = the grace period is over, 0 = not yet. */

/* ---- mirrors and devices; streams are cudaStream_t passed as void *, pointers marked d_ are
 * device memory (on the host device: any memory, any stream) ---- */

int gpc_mirror_sync(gpc *c, gpc_ticket t, int timeout_ms);
/* [writer] Returns when that command and all acknowledged ones are visible on all mirrors
 * that are not retired; without mirrors the same as gpc_ticket_wait.  GPC_TICKET_ALL as
 * there. */

int gpc_dev_open(gpc *c, const char *device, gpc_dev **ret);
/* [shared] "host", "cuda:N", "GPU-uuid"; import once per process; -ENODEV: none, or the
 * cache was made without one of that kind; -ESTALE: no mirror there now. */

int gpc_dev_close(gpc_dev *d);
/* [local] Waits until the device has done what this process gave to it. */

int gpc_dev_enter(gpc_dev *d);
/* [shared] Before each launch or graph launch: adopts a replaced mirror, opens a section,
 * returns it.  -ESTALE: there is no mirror now, use the host calls.  -EAGAIN: no section
 * left. */

int gpc_dev_leave(gpc_dev *d, int section, void *stream);
/* [shared] The section ends when the stream gets here. */

int gpc_dev_lookup(gpc_dev *d, uint32_t spaces, const gpc_key *d_keys, uint32_t n,
		   gpc_block *d_blocks, void *stream);
/* [local] Inside a device section.  Capturable; a captured launch finds the mirror
 * through the descriptor that gpc_dev_enter refreshes. */

int gpc_dev_match(gpc_dev *d, uint32_t spaces, const gpc_key *d_keys, const uint32_t *d_start,
		  uint32_t nseq, uint32_t *d_len, gpc_block *d_blocks, void *stream);
/* [local] The same for gpc_match. */

int gpc_dev_wait(gpc_dev *d, void *stream, int timeout_ms);
/* [local] Wait until the stream has done what was given to it so far. */

/* ---- looking from outside ---- */

int gpc_stats_get(gpc *c, int peer, struct gpc_stats *ret);
/* [shared] peer -1 = all, summed by the reader, the departed included; -ENOENT = empty
 * seat. */

int gpc_hits_add(gpc *c, uint64_t own, uint64_t disk, uint64_t store);
/* [shared] For gpc_stats of this peer: so many blocks more that a request had in the memory of its
 * engine, so nobody looked them up, and so many hits in RAM that had come from a disk, and from a
 * store, for the request (gpc_prefetch).  Atomic; waits for nobody. */

int gpc_histogram_get(gpc *c, int what, int peer, struct gpc_histogram *ret);
/* [shared] what is GPC_AGE_EVICTED ... peer -1 = of all, the departed included; a seat: only
 * GPC_ROUND_TRIP (else -EINVAL); -ENOENT = empty seat.  Cells never fall, across writers.  After
 * the death of a writer, or of a peer, a value may be missing in sum, or altogether. */

int gpc_mirror_get(gpc *c, int i, struct gpc_mirror *ret);
/* [shared] Mirror i of info.mirrors (retired ones follow); -ENOENT past the last.  It is
 * changes - flushed behind the table. */

int gpc_walk(gpc *c, uint64_t *cursor, struct gpc_entry *out, uint32_t n);
/* [shared] Every entry live throughout, parents first; *cursor starts at 0; returns how
 * many; 0 = done.  Here, in gpc_lookup, gpc_match and gpc_event_read of a read-only
 * handle: -EBADMSG when a file of the cache is cut off or missing. */

int gpc_tokens_get(gpc *c, const gpc_key *key, gpc_block block, uint32_t *tokens, uint32_t n);
/* [shared] The tokens that a live block was published with, up to n of them; returns how many
 * (block_tokens at most; 0 = its publisher gave none).  -ESTALE: the block does not hold that key
 * now.  -ENOENT: this cache keeps none (keep_tokens). */

int gpc_event_read(gpc *c, uint64_t *cursor, struct gpc_event *out, uint32_t n);
/* [shared] Numbered changes in order, across writers.  *cursor starts at 0 (oldest kept)
 * or UINT64_MAX (from now on).  -ESTALE: too late; walk, and go on from the new *cursor.
 * GPC_CLEARED comes first and names a pool by slot 0 of it.  Tag 0: all entries of that
 * pool are gone, without a GPC_REMOVED each; descendants in other pools have theirs.
 * Another tag: every entry that goes, descendants included, has its GPC_REMOVED. */

int gpc_check(gpc *c, void (*report)(void *arg, const char *line), void *arg);
/* [shared] Verify all invariants; report gets one line for each violation; returns their
 * number. */

/* ---- being the writer ---- */

int gpc_writer_take(gpc *c, uint32_t flags, int timeout_ms);
/* [shared] Take the seat and recover.  -EAGAIN: it is taken.  GPC_STANDBY: wait for it up
 * to the timeout, then -ETIMEDOUT.  Without it the call waits, 2 s at most, for a writer
 * that is giving the seat up. */

int gpc_writer_serve(gpc *c, int timeout_ms);
/* [shared] Do what is due, waiting for work up to the timeout; returns the number of
 * commands done.  -EAGAIN: another thread serves by this handle, up to the timeout, and two seconds at
 * least; gpc_writer_take the same. */

void gpc_writer_wake(gpc *c);
/* [shared] Ends the wait of the gpc_writer_serve of this handle that runs; if none runs,
 * the next one does not wait.  Any thread may call it, and a signal handler; NULL is
 * fine. */

int gpc_writer_drop(gpc *c);
/* [shared] Give the seat up. */

/* One request, host path (error handling left out):
 *
 *	struct gpc_prompt p = { .parent = &root, .tokens = tok, .n = ntok - 1, .ret_keys = key + 1 };
 *	n   = gpc_key_hash(c, &p, 1, 0);                key[0] = root; the last token is always
 *	                                                computed
 *	hit = gpc_acquire(c, 0, key + 1, n, blk, 0);    held
 *	if (gpc_reserve(c, pool, n - hit, blk + hit, NULL, 0, 0) < 0) {
 *		gpc_release(c, blk, hit);
 *		return;                                 try again later
 *	}
 *	... prefill writes blk[hit ..]; when the step's event has passed:
 *	gpc_publish(c, key + hit, key + hit + 1, blk + hit, n - hit, NULL, 0, -1);
 *	gpc_release(c, blk, n);                         finish, abort, preemption: the same call
 */

#ifdef __cplusplus
}
#endif

#if defined(__cplusplus) && __cplusplus >= 201103L
extern "C++" {
/* The address of a temporary, which lasts as long as the full expression of the caller. */
template <typename T> inline T *gpc_options_at(T &&options) noexcept
{
	return &options;
}
}

/* Designators are of C++20; GCC and Clang have them before.  A field that is left out is zero, and
 * g++ would warn of it (-Wmissing-field-initializers) wherever the macro is used.  It does not warn
 * of macros of a system header, which the rest of this file is: only the macro stands here. */
#ifdef __GNUC__
#pragma GCC system_header
#define GPC_OPTIONS(type, ...) \
	(__extension__ gpc_options_at<struct type>({ .size = sizeof(struct type), __VA_ARGS__ }))
#else
#define GPC_OPTIONS(type, ...) \
	(gpc_options_at<struct type>({ .size = sizeof(struct type), __VA_ARGS__ }))
#endif
#endif
#endif
