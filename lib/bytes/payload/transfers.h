/* SPDX-License-Identifier: Apache-2.0 */
/* transfers.h - declarations that the sources of copies share.
 *
 *   transfer.c   channels: begun, stepped, ended    wait.c      waits, and descriptors
 *   tear.c       copies that are not whole            results.c   the result of each block
 *   pair.c       two pools, planned once              enqueue.c   from pairs of slots to a stream
 *   host.c       RAM to RAM, by threads               order.c     other streams; late releases
 *   copy.c       gpc_copy                             mark.c      gpc_transfer_mark
 *   bring.c      a command that binds targets; bring_copy.c the copies into these
 *   fetch.c      gpc_fetch                            spill.c     gpc_spill, gpc_spill_ahead
 * Tests: t/bytes/transfer.t */
#ifndef GPC_PAYLOAD_TRANSFERS_H
#define GPC_PAYLOAD_TRANSFERS_H

#include "index/base/err.h"
#include "index/base/worker.h"
#include "bytes/payload/plan.h"
#include "bytes/payload/transfer.h"

#define TRANSFER_FAILURES 1024u /* failures that are remembered */
#define HOST_THREADS      4u    /* threads that copy from RAM to RAM */
#define ROUND             256u  /* pairs that are planned together */

/* Two pools between which something was copied.  It is freed with either map. */
struct pair {
	struct pair *next;
	struct map *to, *from;
	const struct map *by; /* the map whose device copies; NULL: our threads */
	struct copy_limits limits;
	uint64_t *slots; /* a bit for each slot of `to`; protected by `marks` */
	uint32_t stages;
	struct plan plan[]; /* a plan for each part of the image; with one stage, for all of it */
};

enum channel_state {
	CHANNEL_IDLE,
	CHANNEL_BEGUN,
	CHANNEL_MARKED,
	CHANNEL_DONE,
	CHANNEL_UNTOLD,
	CHANNEL_TORN,
	CHANNEL_CUTTING,
	CHANNEL_CUT,
	CHANNEL_LOST
};

struct events { /* The events of a channel on one device; they live as long as the handle. */
	struct events *next;
	const struct device_bytes *device;
	uint8_t uuid[16];
	void *event[GPC_MAX_STAGES]; /* made when a transfer of that many stages begins */
};

struct bound {
	uint32_t record, index;
}; /* a target; its entry in the command */

struct channel {
	enum channel_state state;
	bool commits; /* the writer commits it */
	bool ranked;  /* ... when the ranks say done */
	bool rings;   /* wake the writer when done, because it waits for a word of ours */
	int err;
	/* of the last transfer that was begun; it is done when the SHM word equals it */
	uint64_t value;
	/* for a rank: the word of its leader, and the value to store; else NULL */
	uint64_t *word, wanted;
	const struct device_bytes *device;
	uint8_t uuid[16];
	/* all events of the channel, and the events of this transfer; NULL: none */
	struct events *all_events, *events;
	uint32_t stages;
	uint32_t nmaps;
	struct map *map[GPC_MAX_POOLS + 1];
	gpc_block *release; /* to be released at done */
	uint32_t nrelease;

	/* For a transfer that the writer commits: */
	uint32_t n;          /* blocks that the call has reported */
	struct bound *bound; /* these blocks; it has room for GPC_TRANSFER_BLOCKS, once made */
	uint64_t op;         /* op of the first block */
	uint32_t cut;        /* torn: the number of the command's entries that are whole */
	/* ... and a part of it was given to the device: there is a last event */
	bool enqueued;
};

/* The result of a transfer that is over. */
#define OUTCOMES 64u
struct outcome {
	gpc_transfer name;
	uint32_t n, bad; /* bad: 1 + the block whose checksum was wrong; 0: none */
	uint64_t refused[GPC_TRANSFER_BLOCKS / 64];
};

struct waiter {
	struct waiter *next;
	gpc_transfer t;
	int fd;
};

/* A copy from RAM to RAM: threads take pairs from it, a few at a time. */
struct job {
	struct job *next;
	const struct pair *pair;
	struct copy_pair *pairs; /* memory of the channel, kept for the next one */
	/* its size; pairs in it; pairs that are taken; pairs that are not copied yet */
	uint32_t size, n, taken, left;
	uint64_t *done, value;
};

struct transfers {
	/* of all fields except for the last two groups; ring_lock is taken before it */
	pthread_mutex_t lock;
	uint64_t used; /* bit i: channel i is not idle */
	struct channel channel[SHM_TRANSFERS];
	uint64_t last;  /* the last value that was given out */
	uint64_t begun; /* the value before the first one was given out */
	struct {
		gpc_transfer name;
		int err;
	} failed[TRANSFER_FAILURES];
	uint32_t nfailed; /* failures so far; modulo their number it is the place of the next one */
	uint32_t named;   /* the failures that a wait for all has reported */
	struct outcome outcome[OUTCOMES];
	uint32_t noutcomes;     /* outcomes so far */
	uint64_t seat_asked_ns; /* the last time when a call waited only for the writer */
	uint64_t seat_look_ns;  /* the time of the next look for a writer */
	uint32_t seat_missed;   /* looks in a row that found no writer */
	struct waiter *waiters;
	struct pair *pairs;
	pthread_mutex_t marks; /* protects pair->slots; and ... */
	/* ... the device with which done words are registered: ... */
	const struct device_bytes *words_by;
	uint8_t pinned[GPC_MAX_PEERS + 1]; /* ... the words of these peers: enum map_chunk */
	uint32_t integrated_told;          /* atomic */

	/* host.c */
	struct worker copier; /* the lock protects the following fields */
	struct job job[SHM_TRANSFERS];
	struct job *first, **end; /* jobs with pairs that nobody has taken */
	uint32_t most, busy;
};

/* ---- transfer.c ---- */

/* With the lock held. */
gpc_transfer transfer_name(const struct transfers *t, uint32_t channel);
bool transfer_is_done(gpc *c, uint32_t channel);
bool transfer_is_over(gpc *c, uint32_t channel);
void transfer_fail(struct transfers *t, gpc_transfer name, int err);
void transfer_set(struct transfers *t, uint32_t channel, enum channel_state state);
/* Without the lock.  The channel gives back its holds, and is idle. */
void transfer_let_go(gpc *c, uint32_t channel);
/* Rule B4: a lost device has not done it. */
void transfer_find_lost(gpc *c);
/* Give another value to a channel with nothing bound, for a second try of its command. */
void transfer_renew(gpc *c, uint32_t channel);

/* ---- order.c ---- */

/* References that a stream was to release belong to the handle again. */
void release_unlend(gpc *c, const gpc_block *blocks, uint32_t n);

/* ---- wait.c ---- */

bool transfer_feed(gpc *c);
/* The handle goes.  Tell the waiters that the transfer has ended; in a forked child they belong to
 * the parent. */
void waiters_end(struct transfers *t, bool tell);

/* ---- results.c ---- */

/* With the lock held: it is over. */
void outcome_note(gpc *c, uint32_t channel);

/* ---- tear.c ---- */

/* Entries of the command from `cut` on are not whole. */
void tear(gpc *c, uint32_t channel, uint32_t cut, bool enqueued);
/* One step of a channel that is torn, cutting or cut. */
void tear_step(gpc *c, uint32_t channel);

/* ---- enqueue.c ---- */

/* The word of a peer, or our own, as devices store it. */
int pin_words(gpc *c, const struct device_bytes *device, uint32_t peer);
int pin_pair(gpc *c, const struct pair *p, const struct copy_pair *pairs, uint32_t n);
int enqueue_pairs(const struct pair *p, uint32_t stage, const struct copy_pair *pairs, uint32_t n,
		  void *stream);
int check_stream(const struct map *by, void *stream);
/* Events for that many stages; the channel is begun. */
int events_make(gpc *c, uint32_t channel, uint32_t stages);

/* ---- order.c ---- */

/* The device of a caller's stream, if no block says it. */
int stream_device(const gpc *c, void *stream, const struct device_bytes **ret, uint8_t uuid[16]);

/* ---- pair.c ---- */

/* For two maps that the caller holds: -EPROTO, or the errors of plan_make(). */
int pair_get(gpc *c, struct map *to, struct map *from, uint32_t stages, const struct pair **ret);
void pair_forget(gpc *c, struct map *m);
void pair_free_all(struct transfers *t);

/* ---- host.c ---- */

/* The channel's memory for n pairs: -ENOMEM.  The caller fills it, and then the threads copy:
 * -EAGAIN, there is no thread. */
int host_room(gpc *c, uint32_t channel, uint32_t n, struct copy_pair **ret_pairs);
int host_start(gpc *c); /* start a thread, if there is none */
void host_submit(gpc *c, uint32_t channel, const struct pair *pair, uint32_t n);
void host_open(struct transfers *t);
void host_stop(struct transfers *t);

#endif
