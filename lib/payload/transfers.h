/* SPDX-License-Identifier: Apache-2.0 */
/* transfers.h - what the sources of copies share: transfer.c, copy.c, pair.c, host.c. */
#ifndef GPC_PAYLOAD_TRANSFERS_H
#define GPC_PAYLOAD_TRANSFERS_H

#include "base/err.h"
#include "payload/plan.h"
#include "payload/transfer.h"

#define TRANSFER_FAILURES 1024u          /* that are remembered */
#define HOST_THREADS      4u             /* that copy from RAM to RAM */

/* Two pools between which something was copied: freed with either map. */
struct pair {
	struct pair *next;
	struct map *to, *from;
	const struct map *by;            /* whose device copies; NULL: our threads */
	struct copy_limits limits;
	struct plan plan;
	uint64_t *slots;                 /* a bit for each slot of `to`; under `marks` */
};

enum slot_state { SLOT_IDLE, SLOT_BEGUN, SLOT_MARKED, SLOT_LOST };

struct slot {
	enum slot_state state;
	int err;
	uint64_t value;                  /* of the transfer begun last; SHM words that equal it are done */
	struct map *to, *from;
	const struct map *by;
};

struct waiter { struct waiter *next; gpc_transfer t; int fd; };

/* A copy from RAM to RAM: threads take pairs from it, a few at a time. */
struct job {
	struct job *next;
	const struct pair *pair;
	struct copy_pair *pairs;         /* memory of the slot, kept for the next one */
	uint32_t size, n, taken, left;   /* room; pairs; taken, and not copied yet */
	uint64_t *done, value;
};

struct transfers {
	pthread_mutex_t lock;            /* of all but the last two groups */
	struct slot slot[SHM_TRANSFERS];
	uint64_t last;                   /* value given out last */
	uint64_t begun;                  /* before any was given out */
	gpc_transfer failed[TRANSFER_FAILURES];
	uint32_t nfailed;                /* ever; the place of the next one, modulo their number */
	uint32_t told;                   /* of these, by a wait for all */
	struct waiter *waiters;
	struct pair *pairs;
	pthread_mutex_t marks;           /* of pair->slots, and ... */
	const struct device_bytes *words_by;     /* ... whom done words are registered with */

	/* host.c */
	pthread_mutex_t work_lock;
	pthread_cond_t work;
	struct job job[SHM_TRANSFERS];
	struct job *first, **end;        /* those with pairs that nobody has taken */
	pthread_t thread[HOST_THREADS];
	uint32_t threads, most, busy;
	bool stop;
};

/* ---- pair.c ---- */

/* Of two maps that the caller holds: -EPROTO, or as plan_make. */
int pair_get(gpc *c, struct map *to, struct map *from, const struct pair **ret);
void pair_forget(gpc *c, struct map *m);
void pair_free_all(struct transfers *t);

/* ---- host.c ---- */

/* The slot's memory for n pairs: -ENOMEM.  It is filled, and then copied: -EAGAIN, no thread. */
int host_room(gpc *c, uint32_t slot, uint32_t n, struct copy_pair **ret_pairs);
int host_start(gpc *c);                  /* is there a thread at all? */
void host_submit(gpc *c, uint32_t slot, const struct pair *pair, uint32_t n);
void host_open(struct transfers *t);
void host_stop(struct transfers *t);

#endif
