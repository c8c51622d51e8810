/* SPDX-License-Identifier: Apache-2.0 */
/* handle.h - struct gpc: one attachment of this process.  Private memory; nothing here is
 * shared with other processes. */
#ifndef GPC_HANDLE_H
#define GPC_HANDLE_H

#include <pthread.h>
#include <stdatomic.h>
#include "index/base/base.h"
#include "index/peer/epoch.h"
#include "index/base/err.h"
#include "gpc.h"
#include "index/base/key.h"
#include "index/base/log.h"
#include "index/base/order.h"
#include "index/base/worker.h"
#include "index/segment/blocks.h"
#include "index/segment/segment.h"

struct writer;
struct op;
struct returns;
struct back {
	gpc_block block;
	uint32_t record, word;
};
struct stock;
struct walk;
struct making;
struct maps;
struct transfers;

struct refused_item { /* of a call with arrays */
	uint32_t i;   /* index in the caller's arrays */
	int32_t err;  /* 0: none */
	gpc_block block;
	gpc_key key, parent;
	const char *keys; /* name of the array that the key stands in; NULL: "keys" */
	uint64_t ticket;  /* of a publish without waiting */
};

/* If there are spare CPUs, a thread looks this long before it sleeps: as long as a wake takes. */
#define AWAKE_NS 50000u

struct gpc {
	struct gpc *next; /* list of all handles of the process, for fork */
	struct segment seg;
	struct log log;
	uint32_t peer; /* SHM_NO_PEER = read-only */
	uint32_t flags;
	bool readonly;
	uint64_t namespaces; /* of this process, 0 until they were looked up (look/stats.c) */
	bool spare_cpus;     /* a thread that waits awake takes its CPU from nobody */
	bool forked;         /* set in a forked child: every call answers -ECHILD */
	struct key_secret secret;
	gpc_key mask[GPC_MAX_SPACES];

	/* sections: the thread that opened each (0 = none), named by the address of its thread
	 * control block */
	uint64_t section_thread[SHM_SECTIONS];
	/* references that streams are to release: of each record, and of all records (refs.h) */
	uint16_t *lent; /* made by the first */
	uint64_t nlent;
	pthread_mutex_t device_sections; /* sweeping sections that devices have ended */

	/* millisecond ticks: the tick this process saw last, and when it saw it first */
	uint64_t tick_raised_ns; /* by us */

	/* the command ring, producer's side: ring.c */
	pthread_mutex_t ring_lock;
	struct op *ops, **ops_end; /* submitted, results not yet taken; by position */
	struct back *back;         /* reservations to give back when the ring has room */
	uint32_t back_n, back_size;
	bool back_forgotten; /* there was no memory for some: index/peer/hold.c */
	/* 1 + the generation of a writer that has ended without a successor in time; 0: none is
	 * known.  All threads share it: ring.c */
	uint32_t gone;
	/* the time when waits for the writer end, whatever their callers said; 0: as they said.
	 * late: one wait has ended so, and further waits need not begin (ring_leave) */
	uint64_t leaves_ns;
	uint32_t left_late;

	/* the first refusal of a publish without waiting that no gpc_ticket_wait has reported;
	 * ring_lock */
	struct refused_item refused;
	/* set of the errnos of refused items that are in the log already (refuse_log) */
	uint64_t told_kinds;
	struct stock *stock; /* reservations in hand, per pool; NULL = none wanted */
	uint32_t quota;      /* most blocks reserved, stocks included; 0 = no limit */
	uint32_t leader;     /* 1 + its seat; 0: we are no companion */
	uint64_t leader_life;
	uint32_t stock_pauses;     /* calls that wait for the quota: no refill; ring_lock */
	pthread_mutex_t pool_lock; /* the seat's request, one at a time */
	uint64_t pool_ticket;      /* of a request that has no answer so far */
	/* memory of the pool that one asked for, until the answer is seen: bytes/mapping/make.c;
	 * pool_lock */
	struct making *making;
	int32_t making_answer; /* CMD_PENDING, or what the writer said; ring_lock */
	/* of the thread that has LOCK_ONCE, or tries to get it; taken before pool_lock */
	pthread_mutex_t once_lock;
	/* our pools of CALLER blocks, and their returns: index/request/returned.c */
	struct returns *returns[GPC_MAX_POOLS + 1]; /* returns_lock */
	uint64_t returns_life[GPC_MAX_POOLS + 1]; /* 1 + generation of the pool it is of; 0: none */
	pthread_mutex_t returns_lock;

	/* the writer's seat: serve.c */
	pthread_mutex_t serve_lock, serve_gate;
	struct writer *writer; /* not NULL: this handle holds the seat, and ... */
	/* ... a call that waits for the writer serves by this, for that long.  1: it has served;
	 * 0: a thread serves already; negative: the seat is given up.  handle_help() calls it. */
	int (*help)(gpc *c, uint64_t ns);
	bool serving; /* the thread of `server` runs ... */
	/* ... and from this time on looks whether the cache still has its name, until the loss is
	 * logged */
	uint64_t name_ns;
	bool nameless;
	uint32_t wake; /* gpc_writer_serve shall return ... */
	bool may_wake; /* ... and it is running; with serve_lock held */

	pthread_mutex_t walk_lock;
	struct walk *walk; /* copy made by gpc_walk */

	pthread_mutex_t dev_lock;
	struct gpc_dev *devs;

	/* questions to the steward of tiers below RAM: bytes/payload/ask.c */
	pthread_mutex_t ask_lock;
	uint32_t asks_watched; /* set of questions that a thread waits for */
	bool asks_settled;

	struct maps *maps; /* memory of pools: bytes/mapping/map.c; NULL = none yet */
	struct transfers
		*transfers;   /* copies under way: bytes/payload/transfer.c; NULL = none yet */
	struct worker server; /* serve.c */
};

/* Changes of holds by one call.  They are added to the seat's counters at the end of the call
 * (refs.c). */
struct ref_sum {
	int64_t refs;
	uint64_t pools[2]; /* records whose held[] may differ from 0 */
	int32_t held[GPC_MAX_POOLS + 1];
};

static inline void refs_sum_held(struct ref_sum *sum, uint32_t pool, int32_t by)
{
	sum->pools[pool >> 6] |= 1ull << (pool & 63);
	sum->held[pool] += by;
}

/* The answer of handle_check() to a handle that it refuses. */
int handle_refuse(gpc *c);

/* First line of every public call: 0, -EINVAL (NULL), -ECHILD; with `seat` also -EROFS. */
static inline int handle_check(gpc *c, bool seat)
{
	if (__builtin_expect(c && !c->forked && !(seat && c->readonly), 1))
		return 0;
	return handle_refuse(c);
}

/* A call that waits for the writer may wait for itself.  1: it has served meanwhile; 0: it is
 * not the writer, or a thread serves; negative: it was the writer, and cannot go on. */
static inline int handle_help(gpc *c, uint64_t ns)
{
	int (*help)(gpc * c, uint64_t ns) = load_relaxed(&c->help);

	return help ? help(c, ns) : 0;
}

/* The tick for a call that uses blocks.  In exact mode the call raises the tick by one, else the
 * tick moves once a tick_us.  A call that wants n > 1 ticks has the one returned and the n - 1
 * before it for itself. */
uint64_t handle_ticks(gpc *c, uint32_t n);

#define HANDLE_TURNS 256 /* yields to other threads by handle_enter when no place is idle */
/* The library's own sections: place or -EAGAIN.  Lookups use them (6 ns a pair). */
int handle_enter(gpc *c);
void handle_leave(gpc *c, int section);
/* End the sections whose device work is done. */
void handle_sweep_sections(gpc *c);
/* The name of the calling thread in section_thread, never 0.  If a thread ends within its section,
 * a later thread may have the same name. */
static inline uint64_t handle_thread(void)
{
#ifdef HAVE_THREAD_POINTER
	return (uint64_t)(uintptr_t)__builtin_thread_pointer();
#else
	return (uint64_t)(uintptr_t)pthread_self(); /* the same, by a call */
#endif
}
/* Does the calling thread have a section of gpc_section_enter open? */
bool handle_in_section(gpc *c);

/* A read-only handle maps nothing.  Calls that need the table or records work on a private copy
 * (segment_refresh), which the first such call makes.
 *
 * It checks the handle and takes its lock.  It makes the copy of a read-only handle if there is
 * none, and makes it anew if `fresh`.  0: the caller ends with handle_copy_end().  Else a negative
 * errno: -EBADMSG if the copy is not whole, because zeros would look like an empty cache. */
int handle_copy_begin(gpc *c, bool fresh);
void handle_copy_end(gpc *c);
/* The copy of a read-only handle, for lookups: 0, or a negative errno. */
int handle_need_copy(gpc *c);

/* A list of all handles of the process, for fork (fork.c); -ENOMEM.  In a child the list is
 * empty. */
int fork_register(gpc *c);
void fork_forget(gpc *c);
/* Between these calls no handle begins or ends, and no thread forks.  The first handle is returned.
 * The time between is short, and the caller waits for no other lock in it: the holder of that lock
 * may wait for a lock that a fork has taken. */
gpc *fork_hold(void);
void fork_release(void);

#endif
