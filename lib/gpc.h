/* SPDX-License-Identifier: Apache-2.0 */
/* gpc.h - a prefix cache that the engines of a machine share: the calls of an engine.
 *
 * A worker, for a prompt of ntok tokens in at most 63 blocks.  Any call may return a negative errno:
 *
 *	gpc_attach("demo", GPC_OPTIONS(gpc_attach_options, .timeout_ms = 1000), 0, &c);
 *	gpc_key_root(c, &model, 1, key);                  // key[0], before the first block
 *	struct gpc_prompt p = { .parent = key, .tokens = tok, .n = ntok - 1, .ret_keys = key + 1 };
 *	int n = gpc_key_hash(c, &p, 1, 0);                // the last token is always computed
 *	int hit = gpc_acquire(c, 0, key + 1, n, blk, 0);  // the longest cached prefix, held
 *	hit = hit < 0 ? 0 : hit;                          // an error, or n was negative: no hit
 *	int got = gpc_reserve(c, 0, n - hit, blk + hit, NULL, GPC_PARTIAL, 0);
 *	got = got < 0 ? 0 : got;                          // no room now: the rest is not cached
 *	prefill(blk, hit, got);                           // reads `hit` blocks, writes the next `got`
 *	gpc_publish(c, key + hit, key + hit + 1, blk + hit, got, NULL, 0, 1000);
 *	gpc_release(c, blk, hit + got);                   // finished, aborted, or preempted
 *	gpc_close(c);
 *
 *   key    128 bits: a whole prompt up to the end of one block.  All zero = no key.  A root key
 *          (gpc_key_root) names a namespace, and as a parent it means "first block", as zero does.
 *   block  31 bits: pool << 24 | slot; -1 = none.  In a tensor-parallel group it is the same slot
 *          on every GPU, and one process speaks for the group.
 *   pool   a numbered set of blocks in one place.  It comes and goes at run time.
 *   space  a set of pools that together hold each key at most once.  Lookups take a set of spaces,
 *          and probe them in ascending order.
 *   owner  the peer whose process owns a pool's memory: the pool's blocks die with it.
 *   hold   a reservation (bytes yours to write, nobody finds the block) or a reference (bytes
 *          fixed, findable).  gpc_publish turns the first into the second; gpc_release ends either.
 *   peer   an attachment, with a numbered seat.
 *   writer the one process that changes the index: gpcd, or an attached process (GPC_SERVE).
 *
 * Other headers have the other calls: gpc_serve.h makes and serves a cache, gpc_bytes.h moves the
 * bytes of blocks, gpc_device.h looks up on a GPU, gpc_tiers.h is for tiers below RAM, gpc_look.h for
 * tools, gpc_remote.h for authors of plugins.  Each call has a page in section 3; gpc(7) explains the
 * words, and gpc_engine(7) an engine with its own allocator.
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
 *   -EBUSY     somebody holds it                  -EXDEV     in another space, or of another kind
 *   -EALREADY  another peer computes or loads the key, or the work is done
 *   -EOVERFLOW 32768 references of one peer on one block; -ENOMEM, -EFBIG, -EINTR, -EIO as usual
 *   -ECHILD    handle of the parent process       -EROFS     handle is read-only
 *   -ENODEV    no such device, or built without   -EOPNOTSUPP a device that cannot do this
 *
 * The comment below a call begins with how far it goes:
 *   [local]    memory and devices of this process
 *   [shared]   shared memory as well; needs no writer
 *   [writer]   a command for the writer; waits for its answer, up to timeout_ms.  -ENOTCONN: no
 *              writer.  The first call with a timeout waits 0.2 s for one; later calls fail at once
 *              until it is back.  With timeout 0 it fails at once.  -EDEADLK when the thread has an
 *              open section; gpc_device.h names the exceptions.
 * Local and shared calls wait for nobody, unless the comment says so.  Any thread may use a handle.
 *
 * Timeouts are milliseconds: -1 = no limit, 0 = one round trip to the writer at most (0.1 s).  After
 * -ETIMEDOUT, -ENOTCONN, and -EAGAIN of timeout 0, the command of a call that gets blocks (gpc_reserve,
 * gpc_evict) or that begins a move is withdrawn: no block arrives later.  Commands of other calls are
 * carried out.
 *
 * Arrays and structs belong to the caller.  Outputs are unchanged on failure unless the call says
 * otherwise.  A struct that begins with its size may grow: the caller sets the size, a zero field has
 * its default, and bytes that the library does not know must be zero (-EINVAL).  Options may be NULL.
 * Tests: t/bytes/sentences-bytes.t t/bytes/sentences.t t/repo/exports.t t/repo/headers.t
 *   t/pages/structs.t t/repo/abi.t */
#ifndef GPC_H
#define GPC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpc gpc; /* one attachment of this process */
typedef struct {
	uint64_t w[2];
} gpc_key;
typedef int32_t gpc_block;
typedef uint64_t gpc_ticket; /* names a command of this peer; grows; 0 = none */

#define GPC_VERSION_MAJOR 0
#define GPC_VERSION_MINOR 2
#define GPC_VERSION       (GPC_VERSION_MAJOR << 16 | GPC_VERSION_MINOR)

#define GPC_NONE        (-1)
#define GPC_POOL(b)     ((b) >> 24)
#define GPC_SLOT(b)     ((b)&0xffffff)
#define GPC_BLOCK(p, s) ((gpc_block)((p) << 24 | (s)))
#define GPC_SPACE(s)    (1u << (s)) /* sets of spaces are masks; 0 = every space of VRAM and RAM */

#define GPC_MAX_NAME   64 /* bytes of a cache's name, without the final 0 */
#define GPC_MAX_POOLS  127
#define GPC_MAX_PEERS  250
#define GPC_MAX_SPACES 32
#define GPC_MAX_GROUPS 64         /* KV groups of one gpc_match_groups */
#define GPC_TICKET_ALL UINT64_MAX /* all commands submitted so far */

/* The options of a call, in place: a pointer to a struct of that type, with its size.  It lasts to
 * the end of the { } around it; in C++ (see the end of this file) as long as the full expression. */
#ifndef __cplusplus
#define GPC_OPTIONS(type, ...) (&(struct type){ .size = sizeof(struct type), __VA_ARGS__ })
#endif

/* Flags.  Each call names the flags that it takes.  The other headers have the other bits. */
enum {
	GPC_SERVE = 1 << 1,       /* attach, create: a thread takes the empty writer's seat */
	GPC_READONLY = 1 << 2,    /* attach: no seat, for tools; works on dead and damaged caches */
	GPC_QUIET = 1 << 3,       /* finding: leave recency and statistics alone */
	GPC_REF = 1 << 4,         /* lookup, match_groups: reference what is found */
	GPC_ANYWHERE = 1 << 5,    /* lookup, match: an opened device may answer */
	GPC_PARTIAL = 1 << 6,     /* reserve: fewer than n is fine */
	GPC_TAKE = 1 << 7,        /* evict: the blocks become reservations of the caller */
	GPC_TAIL = 1 << 10,       /* hash: a last, partial block gets a key, too */
	GPC_REMOVE = 1 << 12,     /* clear: remove the emptied pool as well */
	GPC_DEVICE = 1 << 13,     /* lookup, match: an opened device must answer */
	GPC_IF_IDLE = 1 << 15,    /* clear: only if nobody holds a block of it, else -EBUSY */
	GPC_NO_REF = 1 << 16,     /* publish, rekey: nothing is referenced for the caller */
	GPC_PEEK = 1 << 17,       /* evict, claim: say what would happen, change nothing */
	GPC_TOUCH = 1 << 18,      /* finding: count as a use, but not in statistics */
	GPC_IN_HAND = 1 << 19,    /* reserve: only out of the stock, without the writer */
	GPC_GROUP = 1 << 20,      /* hash: the blocks are those of a KV group */
	GPC_EVERYWHERE = 1 << 21, /* drop: the key and its descendants, in every space */
	GPC_FREE = 1 << 22,       /* reserve: only free blocks, else -ENOSPC */
	GPC_ONLY = 1 << 23,       /* drop: only the key; gpc_drop says which descendants stay */
};

/* ---- the library ---- */

uint32_t gpc_version(void);
/* [local] GPC_VERSION of the loaded library: major << 16 | minor. */

const char *gpc_strerror(int err);
/* [local] One sentence with the remedy for an errno of this library, of either sign. */

const char *gpc_last_error(void);
/* [local] A sentence about this thread's last call that failed: the argument, its value, and its
 * limits.  Calls that answer item by item (gpc_publish, gpc_reclaim, gpc_rekey, gpc_ref,
 * gpc_ticket_wait) leave the sentence of the first item that was refused, "" if none was.  Other
 * calls that succeed leave the text as it is. */

/* ---- a cache by name ---- */

struct gpc_attach_options { /* zero = default; set size */
	uint32_t size;
	int32_t timeout_ms; /* the wait until the name and a free seat appear; default 0 */
	/* blocks of each pool that this peer has in hand: gpc_reserve needs no round trip for them,
	 * nor does gpc_evict in its pools of GPC_POOL_CALLER; default 0, at most 1024 */
	uint32_t stock;
	uint32_t quota;     /* most blocks that this peer may hold reserved; 0 = no limit */
	const char *dir;    /* directory of the segments; default /dev/shm */
	const char *label;  /* tools show it with the pid; up to 31 bytes */
	uint8_t layout[32]; /* gpc_config.layout that the cache must have; zero = any */
	void (*log)(void *arg, int level, const char *text); /* level as in syslog(3) */
	void *log_arg;
	/* 1 + the seat of this companion's leader; 0 = no companion.  A companion reads and writes
	 * blocks that its leader holds.  These stay held until the last companion has ended */
	int32_t leader;
	uint64_t life; /* gpc_info.life of the leader */
};

int gpc_attach(const char *name, const struct gpc_attach_options *opt, uint32_t flags, gpc **ret);
/* [shared] Take a seat in a cache that gpcd or gpc_create has made.  Waits for the name and a seat
 * up to opt->timeout_ms; seats of dead peers count as free.  GPC_SERVE, GPC_READONLY.  -ENOENT: no
 * such cache.  -EUSERS: no seat.  -EPROTO: another version or layout.  -ESTALE: that life of the
 * leader is over. */

int gpc_close(gpc *c);
/* [shared] Give back the seat and every hold; the cache stays.  No other thread may use the handle
 * any more.  Waits a second for commands that were submitted, and ten for its devices.  Always 0;
 * NULL is fine.  Holds of a leader end with its last companion. */

/* ---- pools: gpcd or gpc_pool_make (gpc_bytes.h) makes them ---- */

/* kinds of pools: the tiers; the last two are below RAM (gpc_tiers.h) */
enum { GPC_VRAM = 1, GPC_RAM = 2, GPC_DISK = 3, GPC_REMOTE = 4 };
enum {
	GPC_POOL_OWNED = 1 << 0, /* the adding process is the owner */
	/* OWNED, and the owner allocates: every block that has no key is reserved by the owner */
	GPC_POOL_CALLER = 1 << 1,
	GPC_POOL_UNCHAINED = 1 << 2, /* blocks may be published without a live parent */
	GPC_POOL_ONCE = 1 << 3 /* only in gpc_pool_make: return an equal pool if there is one */
};

struct gpc_pool { /* set size */
	uint32_t size;
	int32_t number; /* out */
	uint32_t kind, flags, space;
	uint32_t blocks;      /* capacity */
	uint32_t transit;     /* RAM: more slots, for blocks in use that lost their key; 0 = 64 */
	uint32_t generation;  /* out: changes when the memory behind the pool changed */
	int32_t owner;        /* out: peer, or -1 */
	int32_t demote_to;    /* pool that gpc_demote moves to by default, or -1 */
	uint32_t gpus;        /* GPUs of the group; 0 and 1 = a single GPU */
	uint8_t uuid[16][16]; /* UUIDs of these GPUs */
	uint32_t backing_size;
	/* of a pool whose memory gpc does not know: the owner's data on how to map it */
	uint8_t backing[1024];
	uint64_t memory;         /* out: number of its memory, new with each pool; 0 = no memory */
	uint64_t block_bytes;    /* out: bytes of an image */
	uint8_t fingerprint[32]; /* out: of the images */
	/* how many blocks gpc_spill_ahead keeps ready: free, or, if demote_to is in another space,
	 * with a copy in demote_to; default 0 */
	uint32_t spill_ahead;
	uint32_t live, reserved, dying; /* out: blocks by state */
};

int gpc_pool_get(gpc *c, int pool, struct gpc_pool *ret);
/* [shared] -ENOENT: no such pool, or it is being removed; calls for its blocks then return -ESTALE.
 * Compare generation before you use a mapping of the bytes. */

int gpc_pool_available(gpc *c, int pool);
/* [shared] The number of blocks that a reserve could get now; in a CALLER pool, the number that
 * gpc_evict could bring back.  Cheap, and a hint for schedulers: too low while two peers hold one
 * block, too high while a peer holds a block without its ancestors. */

int gpc_pool_clear(gpc *c, int pool, uint32_t tag, uint32_t flags, int timeout_ms);
/* [writer] Forget every entry of that tag (0 = all) of a pool (-1 = all pools), with all descendants
 * in the space.  Held blocks become unfindable, and their slots are free after the last hold; returns
 * how many are still held.  GPC_REMOVE waits for those holds, up to the timeout.  GPC_IF_IDLE: if
 * somebody holds one of the blocks, -EBUSY, and nothing has changed. */

/* ---- keys ---- */

struct gpc_field {
	uint16_t tag; /* 1 model, 2 adapter, 3 salt, 4 weights version; the caller defines others */
	uint16_t reserved;
	uint32_t len;
	const void *data;
};
struct gpc_extra {           /* content that is not in the tokens (image, embedding) */
	uint32_t token, len; /* token: 0 is the first one of the prompt */
	const void *data;
};

int gpc_key_root(gpc *c, const struct gpc_field *f, uint32_t n, gpc_key *ret_root);
/* [local] A root key of n fields, whose order matters.  Prompts of two roots share nothing. */

struct gpc_prompt {
	const gpc_key *parent; /* NULL or zero = no parent */
	const uint32_t *tokens;
	size_t n;                  /* tokens */
	const struct gpc_extra *x; /* sorted by token; each changes the keys from its block on */
	uint32_t nx;
	uint32_t group;        /* with GPC_GROUP; without it, this and block_tokens are 0 */
	uint32_t block_tokens; /* tokens a block of the group, at most 65536; 0 = the cache's */
	uint32_t reserved;     /* 0 */
	gpc_key *ret_keys;     /* room for n / block_tokens keys, rounded up with GPC_TAIL */
};

int gpc_key_hash(gpc *c, const struct gpc_prompt *p, uint32_t n, uint32_t flags);
/* [local] One key for each full block of n prompts; each prompt may continue any parent.  Returns
 * the total number of keys.  GPC_TAIL.  GPC_GROUP: group and block_tokens change every key.
 * ret_keys of a prompt must not overlap tokens, parent or ret_keys of another prompt. */

int gpc_key_import(gpc *c, const void *digests, uint32_t bytes, uint32_t stride, uint32_t n,
		   uint32_t group, gpc_key *ret_keys);
/* [local] Keys of KV group `group` from the engine's own hashes: item i is the `bytes` bytes at
 * digests + i * stride.  Same input, same key, in every peer.  Returns n. */

int gpc_alias(gpc *c, const gpc_key *alias, const gpc_key *to, uint32_t n, uint32_t flags,
	      int timeout_ms);
/* [writer] Store n pairs, in order: the content of `to` can be found under `alias`, too.  A pair
 * never becomes wrong, and holds no block.  A pair that the cache forgets is a miss.  Returns 0.
 * -EINVAL: a zero or root key, or alias[i] is to[i].  -ENOENT: this cache keeps no aliases. */

int gpc_alias_resolve(gpc *c, gpc_key *keys, uint32_t n);
/* [shared] Replace each alias by the key that it stands for; returns the number of aliases.  No other
 * call knows aliases: resolve keys and parents first. */

/* ---- finding: wait-free.  A hint is a block without a reference ---- */

int gpc_lookup(gpc *c, uint32_t spaces, const gpc_key *keys, uint32_t n, gpc_block *blocks,
	       uint32_t flags);
/* [shared] Each key by itself; blocks[i] = block (a hint unless GPC_REF) or -1.  Returns the number
 * of hits.  GPC_QUIET, GPC_TOUCH, GPC_ANYWHERE.  GPC_DEVICE: -ENODEV no device, -ESTALE no mirror. */

int gpc_match(gpc *c, uint32_t spaces, const gpc_key *keys, const uint32_t *start, uint32_t nseq,
	      uint32_t *len, gpc_block *blocks, uint32_t flags);
/* [shared] Longest prefix of each sequence keys[start[i] .. start[i+1]) of chained keys, as hints.
 * len[i] gets its length; blocks (may be NULL) is indexed like keys, written as far as they match.
 * Returns the sum of len.  GPC_QUIET, GPC_TOUCH, GPC_ANYWHERE, GPC_DEVICE. */

struct gpc_group { /* a KV group of one prompt.  set size, the same one in all groups */
	uint32_t size;
	uint32_t block_tokens; /* of a block of this group; 0 = the cache's */
	/* a prefix needs the blocks with its last `last` tokens; 0 = all blocks.  A sliding window
	 * of w tokens needs last = w - 1; a recurrent state (Mamba) needs last = 1 */
	uint32_t last;
	uint32_t n;          /* keys */
	const gpc_key *keys; /* keys[i]: the block from token i * block_tokens on */
	gpc_block *blocks;   /* room for n */
};

struct gpc_match_options { /* zero = default; set size */
	uint32_t size;
	uint32_t multiple; /* the length is a multiple of so many tokens; 0 = any */
};

int gpc_match_groups(gpc *c, uint32_t spaces, const struct gpc_group *groups, uint32_t n,
		     const struct gpc_match_options *opt, uint32_t flags);
/* [shared] The longest prefix of one prompt that every one of n groups can go on from; returns the
 * number of its tokens.  groups[g].blocks[i] gets the block of keys[i] if the group needs it, else
 * -1: gpc_release takes the array as it is.  The blocks are hints unless GPC_REF.  GPC_QUIET,
 * GPC_TOUCH.  On failure nothing is held; -EOVERFLOW has written -1 everywhere. */

int gpc_acquire(gpc *c, uint32_t spaces, const gpc_key *keys, uint32_t n, gpc_block *blocks,
		uint32_t flags);
/* [shared] Longest prefix of one prompt, referenced before return; returns the number of its blocks.
 * Elements of blocks behind the prefix are unchanged.  GPC_QUIET, GPC_TOUCH. */

int gpc_ref(gpc *c, const gpc_key *keys, const gpc_block *blocks, uint32_t n);
/* [shared] Turn hints into references, up to the first stale hint; returns their number. */

int gpc_release(gpc *c, const gpc_block *blocks, uint32_t n);
/* [shared] Give one hold on each block back, root first; -1 is skipped.  The end of a reference is a
 * use, and each block counts as a little older than the one before it; a reserved block is free again.
 * A block may be released before its publish is answered: the publish then leaves no hold.  -EPERM: a
 * block is not held; the other blocks are released all the same. */

/* ---- filling ---- */

struct gpc_reserve_options { /* zero = default; set size */
	uint32_t size;
	uint32_t headroom; /* blocks of the capacity that must stay available; default 0 */
};

int gpc_reserve(gpc *c, int pool, uint32_t n, gpc_block *blocks,
		const struct gpc_reserve_options *opt, uint32_t flags, int timeout_ms);
/* [writer] ([shared] with a stock in hand.)  Get n blocks to write, or none; returns n.  Free blocks
 * come first, then the least recent leaves without a hold, which lose their keys.  GPC_PARTIAL: fewer
 * will do, for the first blocks of the prompt.  GPC_IN_HAND: at once, out of the stock; else -EAGAIN.
 * -ENOSPC, -EDQUOT, -ESTALE the pool has gone, -EPERM a CALLER pool. */

struct gpc_publish_options { /* zero = default; set size */
	uint32_t size;
	uint32_t tag;        /* of all blocks of the call: gpc_pool_clear, events, walks */
	gpc_block *resident; /* room for n: the answer for each block; default NULL */
	gpc_ticket *ticket;  /* gets the ticket, or 0 if nothing was submitted; default NULL */
	/* notes that a cache keeps: group, digests with keep_digests; tokens with keep_tokens */
	uint32_t group;         /* KV group of all blocks */
	const uint32_t *tokens; /* n times block_tokens of the cache */
	const void *digests;    /* names of the blocks: digest_bytes bytes at i * digest_stride */
	uint32_t digest_bytes, digest_stride; /* bytes: 1 to 32 */
	/* what gpc_drops() returned before the request looked up or loaded anything: a block with
	 * an ancestor that was dropped since is refused; 0 = no check */
	uint64_t since;
};

int gpc_publish(gpc *c, const gpc_key *parents, const gpc_key *keys, const gpc_block *blocks,
		uint32_t n, const struct gpc_publish_options *opt, uint32_t flags, int timeout_ms);
/* [writer] The bytes of reserved blocks are complete, device writes included.  Any mix of sequences,
 * parents before children; zero or root parent = first block; parents == NULL: no chain.  Returns how
 * many are live in blocks[i]; opt->resident[i] is
 *   blocks[i]      live: the reservation became a reference
 *   another block  it has the key already, and is referenced now; blocks[i] stays reserved
 *   negative       refused, blocks[i] stays reserved: -ENOENT the parent is not live, -EXDEV it is
 *                  in another space, -EPERM not reserved by you, -ESTALE the pool has gone, or the
 *                  block follows a drop since opt->since, -EAGAIN no bucket or not submitted,
 *                  -EINVAL no such block, a zero or root key, or its own parent, -EOVERFLOW
 * GPC_NO_REF: blocks that go live are released with the answer; resident has hints.  Timeout
 * 0 submits all n (at most 4096) or none (-EAGAIN), and returns 0.  In this case, and after -ENOTCONN
 * or -ETIMEDOUT, a later call fills resident: keep it until gpc_ticket_wait or gpc_close returns. */

int gpc_ticket_wait(gpc *c, gpc_ticket t, int timeout_ms);
/* [writer] Returns 0 when this command and all before it are acknowledged: they survive any death.
 * Ticket 0 names no command, GPC_TICKET_ALL all commands of this handle. */

gpc_ticket gpc_ticket_last(gpc *c);
/* [local] The ticket of the last command of this handle; 0 = no command yet, or no seat. */

/* ---- room: for engines with an allocator of their own, see gpc_engine(7) ---- */

int gpc_evict(gpc *c, int pool, uint32_t n, gpc_block *blocks, uint32_t flags, int timeout_ms);
/* [writer] ([shared] out of the stock of its own CALLER pool.)  Evict the least recent leaves that
 * nobody holds; returns their number after their grace period, 0 = no block could go.  Blocks of a
 * CALLER pool are the owner's again.  GPC_TAKE: in a CALLER pool only for its owner (-EPERM).
 * GPC_PEEK: name at most 4096 blocks that would go, as hints, at once. */

int gpc_reclaim(gpc *c, const gpc_key *keys, const gpc_block *blocks, uint32_t n, int *results,
		uint32_t flags, int timeout_ms);
/* [writer] Chosen live blocks, leaf first, become reservations of the caller (in a CALLER pool, of
 * its owner).  keys (may be NULL) are the keys that they must have; a zero key is any.  One reference
 * of the caller becomes the reservation: do not release it before return.  Returns their number;
 * results[i] (may be NULL) is 0, -EBUSY another hold or a live child, -ESTALE not live with that key,
 * -EPERM another owner's CALLER pool, -EDQUOT, -EINVAL.  After -ETIMEDOUT, -EAGAIN or -ENOTCONN a
 * block may have lost its key; a reference of the caller stays a hold: release it once. */

int gpc_rekey(gpc *c, const gpc_key *from, const gpc_key *parents, const gpc_key *to,
	      const gpc_block *blocks, uint32_t n, const struct gpc_publish_options *opt,
	      uint32_t flags, int timeout_ms);
/* [writer] gpc_reclaim with the keys `from` (NULL: any), then gpc_publish under `to`: a partial block
 * became full.  Returns the number with the new key; opt->resident has the answer of the
 * step that refused a block, else of the publish.  A second call goes on where the first one stopped.
 * GPC_NO_REF.  Give it time: after -ETIMEDOUT a block may have lost its old key and its bytes. */

int gpc_returned(gpc *c, int pool, gpc_block *blocks, uint32_t n, int timeout_ms);
/* [shared] Owner only (-EPERM): up to n blocks of its CALLER pool (-1: of all) that came back
 * because they were evicted, cleared, dropped or moved, and that nobody holds now.  Each return is
 * reported once.  Waits up to the timeout for the first; returns their number, 0 = none by then. */

/* ---- bytes that turn out to be bad ---- */

int gpc_drop(gpc *c, const gpc_block *blocks, uint32_t n, gpc_ticket *ticket, uint32_t flags,
	     int timeout_ms);
/* [writer] Make blocks unfindable, held or not, with all descendants and their copies below RAM; a key
 * that has moved is followed.  Flags 0, for bytes damaged where they lie: copies in other spaces stay.
 * GPC_EVERYWHERE, for bytes computed wrongly: those copies go, too.  GPC_ONLY, for bytes that nobody has
 * read: children below RAM and in UNCHAINED pools stay, with their descendants; other children go.
 * Returns the number of named blocks that were dropped.  Timeout 0 submits, and returns 0. */

uint64_t gpc_drops(gpc *c);
/* [shared] A mark in time, for `since`: ask before a request looks up or loads anything.  Never 0. */

int gpc_dropped(gpc *c, uint64_t since, const gpc_key *keys, uint32_t n);
/* [shared] The number of these keys that were dropped after that mark.  -ESTALE: more than 65,536
 * keys were dropped after it, so the cache cannot know. */

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

/* Designators belong to C++20; GCC and Clang accept them before.  A field that is left out is zero,
 * and g++ would warn of that (-Wmissing-field-initializers) at each use of the macro, but not in a
 * system header.  The pragma makes the rest of this file one, so nothing else stands here. */
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
