/* SPDX-License-Identifier: Apache-2.0 */
/* events.h - what the files of the publisher share.
 *
 *   publish.c   the thread: from the feed to the subscribers
 *   replay.c    answers clients that have missed batches
 *   waiting.c   batches that wait for subscribers, and the bound of their bytes
 *   socket.c    endpoints
 *   accept.c    which clients are let in
 *   batch.c     one change of the feed, or all blocks that are there, as batches
 *   told.c      which blocks consumers know
 *   words.c     adapter and salt of a root key
 *   wire.c      MessagePack
 *
 * Each calls those below it and none above.  The daemon calls events_start and events_stop
 * (daemon.h).
 *
 * All of them keep one rule.  A sequence is the number of a change of the feed, and a consumer
 * that has applied the batches up to it knows which blocks the cache had after that change.
 * Tests: t/kv/events.t */
#ifndef GPC_TOOLS_EVENTS_EVENTS_H
#define GPC_TOOLS_EVENTS_EVENTS_H

#include "tools/daemon/daemon.h"
#include "tools/daemon/events/told.h"
#include "tools/daemon/events/wire.h"
#include "tools/daemon/events/words.h"

#include <pthread.h>

/* ---- batch.c ---- */

struct pool_facts {
	bool asked, there;
	uint8_t kind, space;
};

struct batches {
	gpc *c;
	uint32_t block_tokens;
	bool keep_tokens;
	struct told told;
	uint64_t last;      /* the sequence to which `told` belongs */
	uint64_t settled;   /* a change up to here may be in `told` before its batch is made */
	struct wire wire;   /* the batch made last */
	uint32_t *tokens;   /* tokens of one block */
	uint32_t spaces;    /* set of the spaces that pools had, as far as known */
	struct words words; /* words of the block's namespace */
	struct pool_facts pool[GPC_MAX_POOLS];
};

/* Begins: all blocks that are there count as told.  *cursor: where to read the feed on.  Returns 0
 * or a negative errno. */
int batches_begin(struct batches *b, uint64_t *cursor);
void batches_end(struct batches *b);
/* Makes batches ask for the facts of each pool once more. */
void batches_ask_again(struct batches *b);
/* Makes the batch of the next change: wire has the batch, `told` the blocks that consumers know
 * after it.  False means that there is no memory. */
bool batches_next(struct batches *b, const struct gpc_event *e);
/* Makes the batch of a change up to `last` once more, and leaves `told` as it is.  Not for the
 * changes of batches_is_clear. */
void batches_again(struct batches *b, const struct gpc_event *e);
/* The space of that block's pool; 0 if the pool is gone. */
uint32_t batches_space(struct batches *b, gpc_block block);
/* Did a pool lose all its blocks in this change?  Only batches_next can tell which blocks those
 * were. */
bool batches_is_clear(const struct gpc_event *e);
void batches_empty(struct batches *b);

/* All blocks told up to `last`, batch after batch, for a consumer that knows nothing.  It is a
 * copy, so later changes follow it. */
struct snapshot {
	struct told_block *all;
	int64_t n, at;
	uint64_t first, last, batches, done;
	uint32_t space;
	uint32_t clears; /* ranks that are to be cleared besides the first one */
	bool cleared;
};

/* Sequences run from `first` or later to `last`; only: a space, or -1.  Returns 0 or -ENOMEM. */
int snapshot_begin(struct batches *b, struct snapshot *s, uint64_t first, int only);
/* Puts the next batch in wire; false if there is none. */
bool snapshot_next(struct batches *b, struct snapshot *s, uint64_t *sequence);
void snapshot_end(struct snapshot *s);

/* Bytes of `told`, and of such a copy. */
static inline uint64_t batches_bytes(const struct batches *b)
{
	return (uint64_t)b->told.room * sizeof(*b->told.slot);
}

static inline uint64_t snapshot_bytes(const struct snapshot *s)
{
	return s->all ? ((uint64_t)s->n + 1) * sizeof(*s->all) : 0;
}

/* ---- socket.c ---- */

struct endpoint {
	void *socket;     /* the socket of libzmq */
	const char *text; /* as it was given; NULL: there is none */
	char path[108];   /* for ipc: the file, once it is ours; "" until then */
	bool bound;
};

/* Returns 0; -EADDRINUSE, and a later try may succeed; or another negative errno. */
int endpoint_bind(struct endpoint *e, const struct daemon *d);
void endpoint_close(struct endpoint *e);
/* Sends a frame of a message; the last frame is the one without `more`.  False: errno gives the
 * reason, and a failed first frame has sent nothing. */
bool endpoint_frame(struct endpoint *e, const void *bytes, size_t n, bool more);

/* ---- accept.c ---- */

enum { HANDSHAKE_MS = 5000, DEAD_S = 120, DEAD_ASK_S = 15 };

/* Keeps some of the descriptors that there may be for gpcd itself. */
void accept_limit(void);
uint64_t accept_turned_away(void);
/* The endpoints that this thread listens on from now on are for subscribers (0), for replay
 * clients (1), or for neither (-1). */
void accept_binds(int which);
void accept_at_most(unsigned subscribers);
unsigned accept_subscribers(void);
/* Notes which subscribers take nothing now. */
void accept_look(uint64_t now);
/* Ends the connection that has taken nothing for longest, since a look before `before`; or all
 * such connections.  Returns how many it ended. */
unsigned accept_hang_up(uint64_t before, bool all);

/* ---- waiting.c ---- */

struct waiting {
	uint64_t limit, looked, peak;
	uint64_t hung_up; /* subscribers that were hung up on for taking nothing */
};

void waiting_begin(struct waiting *w, uint64_t limit);
/* Sends the last frame of a batch; its bytes count until it waits for no subscriber any more. */
bool waiting_frame(struct endpoint *to, const void *data, size_t n);
/* False means that there is no room for another batch. */
bool waiting_has_room(struct waiting *w);
/* To be called now and then. */
void waiting_look(struct waiting *w);
uint64_t waiting_bytes(void);

/* ---- replay.c ---- */

enum { REPLAY_SLOW = 64 };

struct replay {
	struct endpoint at;
	struct waiting *waiting;
	struct batches *from;
	bool busy; /* a client is served, with this state: */
	uint8_t client[256];
	size_t client_bytes;
	uint64_t first;     /* the sequence that it asked for */
	uint64_t next, end; /* changes that are left; next 0: a snapshot */
	/* when the answer last went on; a client that takes nothing is given up */
	uint64_t since;
	struct snapshot snapshot; /* used while next is 0 */
	bool begun;               /* ... and the snapshot is begun */
	void *held;               /* a batch of the snapshot that the client had no room for */
	size_t held_bytes;
	uint64_t held_sequence;
	const char *topic;
	uint64_t replays, snapshots, given_up;
	uint64_t slow[REPLAY_SLOW]; /* clients that were given up last, by hash */
};

/* Sends a part of the answer; true means that there is more to do at once. */
bool replay_step(struct replay *r);
void replay_end(struct replay *r);

#endif
