/* SPDX-License-Identifier: Apache-2.0 */
/* events.h - what the files of the publisher share.
 *
 *   publish.c   the thread: from the feed to the subscribers
 *   replay.c    answers who has missed batches
 *   waiting.c   what waits for subscribers, and how much of it there may be
 *   socket.c    endpoints
 *   accept.c    which clients are let in
 *   batch.c     one change of the feed, or all that is there, as batches
 *   told.c      which blocks consumers know
 *   words.c     adapter and salt of a root key
 *   wire.c      MessagePack
 *
 * Each calls those below it and none above.  The daemon calls events_start and events_stop
 * (daemon.h).
 *
 * The rule that all of it keeps: a sequence is the number of a change of the feed, and a consumer
 * that has applied the batches up to it knows what the cache had after that change.
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
	uint64_t last;      /* the sequence that `told` is of */
	uint64_t settled;   /* up to here a change may be in `told` before its batch is made */
	struct wire wire;   /* of the batch made last */
	uint32_t *tokens;   /* of one block */
	uint32_t spaces;    /* set of those that pools had, as far as we know */
	struct words words; /* of its namespace */
	struct pool_facts pool[GPC_MAX_POOLS];
};

/* Begin: what is there now was told.  *cursor: where the feed goes on.  0, or a negative errno. */
int batches_begin(struct batches *b, uint64_t *cursor);
void batches_end(struct batches *b);
/* Facts of pools are asked for again, once each. */
void batches_ask_again(struct batches *b);
/* The next change: wire has its batch, `told` what consumers know after it.  False: no memory. */
bool batches_next(struct batches *b, const struct gpc_event *e);
/* A change up to `last` once more, and nothing becomes of `told`.  Not for those of
 * batches_is_clear. */
void batches_again(struct batches *b, const struct gpc_event *e);
/* The space of that block's pool; 0: it is gone. */
uint32_t batches_space(struct batches *b, gpc_block block);
/* A pool lost all it had in this change: which blocks those were, only batches_next can tell. */
bool batches_is_clear(const struct gpc_event *e);
void batches_empty(struct batches *b);

/* All that was told up to `last`, as a consumer that knows nothing needs it, batch after batch.  It
 * is a copy: what happens meanwhile comes behind it. */
struct snapshot {
	struct told_block *all;
	int64_t n, at;
	uint64_t first, last, batches, done;
	uint32_t space;
	uint32_t clears; /* ranks beside the first one that are to be cleared */
	bool cleared;
};

/* Sequences are from `first` or later to `last`; only: a space, or -1.  0, or -ENOMEM. */
int snapshot_begin(struct batches *b, struct snapshot *s, uint64_t first, int only);
/* The next batch is in wire; false: there is none. */
bool snapshot_next(struct batches *b, struct snapshot *s, uint64_t *sequence);
void snapshot_end(struct snapshot *s);

/* Memory of what was told, and of such a copy. */
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
	void *socket;     /* of libzmq */
	const char *text; /* as it was given; NULL: there is none */
	char path[108];   /* ipc: the file that is ours; "" until then */
	bool bound;
};

/* 0; -EADDRINUSE: later perhaps; or a negative errno. */
int endpoint_bind(struct endpoint *e, const struct daemon *d);
void endpoint_close(struct endpoint *e);
/* Frames of one message, the last one without `more`; false: errno says why, and nothing was sent
 * if it was the first one. */
bool endpoint_frame(struct endpoint *e, const void *bytes, size_t n, bool more);

/* ---- accept.c ---- */

enum { HANDSHAKE_MS = 5000, DEAD_S = 120, DEAD_ASK_S = 15 };

/* Of as many descriptors as there may be, some are for gpcd itself. */
void accept_limit(void);
uint64_t accept_turned_away(void);
/* What this thread listens on from now on is an endpoint of subscribers, 0, or of those who ask, 1;
 * or is neither, -1. */
void accept_binds(int which);
void accept_at_most(unsigned subscribers);
unsigned accept_subscribers(void);
/* Which subscribers take nothing now. */
void accept_look(uint64_t now);
/* End the connection that has taken nothing for longest, since a look before `before`; or all such.
 * Returns how many. */
unsigned accept_hang_up(uint64_t before, bool all);

/* ---- waiting.c ---- */

struct waiting {
	uint64_t limit, looked, peak;
	uint64_t hung_up; /* subscribers, for taking nothing */
};

void waiting_begin(struct waiting *w, uint64_t limit);
/* The last frame of a batch, whose bytes are counted until nobody waits for it any more. */
bool waiting_frame(struct endpoint *to, const void *data, size_t n);
/* False: there is no room for another batch. */
bool waiting_has_room(struct waiting *w);
/* Now and then. */
void waiting_look(struct waiting *w);
uint64_t waiting_bytes(void);

/* ---- replay.c ---- */

enum { REPLAY_SLOW = 64 };

struct replay {
	struct endpoint at;
	struct waiting *waiting;
	struct batches *from;
	bool busy; /* with this one: */
	uint8_t client[256];
	size_t client_bytes;
	uint64_t first;           /* asked for */
	uint64_t next, end;       /* changes to go; next 0: a snapshot */
	uint64_t since;           /* when it last went on, for a client that takes nothing */
	struct snapshot snapshot; /* while next is 0 */
	bool begun;               /* ... and the snapshot is begun */
	void *held;               /* a batch of it that the client had no room for */
	size_t held_bytes;
	uint64_t held_sequence;
	const char *topic;
	uint64_t replays, snapshots, given_up;
	uint64_t slow[REPLAY_SLOW]; /* clients that were given up last */
};

/* Some of what is asked for; true: there is more to do at once. */
bool replay_step(struct replay *r);
void replay_end(struct replay *r);

#endif
