/* SPDX-License-Identifier: Apache-2.0 */
/* replay.h - the parts of gpc-replay.
 *
 *   main.c      the parent: preparations for the workers, and the way out
 *   options.c   the command line
 *   legal.c     which of its options go together
 *   child.c     signals, and children
 *   crew.c      the workers, as the parent sees them
 *   own.c       a cache of its own: the gpcd that it starts, and the one that keeps VRAM
 *   cache.c     the cache as it is, its writer, its devices
 *   pools.c     its pools: which one to fill, and checks of their kind
 *   trace.h     JSONL to arrays, every line checked; which worker gets which request
 *   worker.c    one worker: see worker.h
 *   report.c    counters and latencies: over the pipe, summed, shown
 *   disk.c      a tier below RAM, and restarts of the gpcd that keeps it
 *   kill.c      workers that are killed, and started again
 *   curve.h     hit rates of all capacities, by --plot: curve.c, plot.c, svg.c
 *   payload.h   the bytes behind the blocks, as an engine would have them
 *
 * Workers are executed anew and find their inputs on fixed descriptors.  The parent and its
 * workers share one memory file, `struct job`.  It has the work to do, the trace, and a cache line
 * for each worker's progress.
 * Tests: t/tools/replay-result.t */
#ifndef GPC_TOOLS_REPLAY_H
#define GPC_TOOLS_REPLAY_H

#include "tools/common/cli.h"
#include "tools/replay/payload.h"
#include "tools/replay/trace.h"
#include "gpc.h"

#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/types.h>

enum {
	WORKERS_MAX = 240, /* seats, less some for the writer and for tools */
	PAYLOAD_MIN = 24,
	PAYLOAD_MAX = 1 << 24,
	/* tag of the blocks that replays publish: blocks whose payload went with an earlier replay
	 * can be forgotten, and no other blocks with them */
	REPLAY_TAG = 0x72706c79,
	/* group of the keys of replays: so a hit is always on a block of a replay */
	REPLAY_GROUP = 0x72706c79,
	/* the tag where the bytes are in pools with memory, which outlives a replay */
	REPLAY_POOL_TAG = 0x72706c7a,
	REPLAY_POOL_GROUP = 0x72706c7a,
	PIECE_MIN = 256,
	PIECES_MOST = 64, /* for --pieces where it is not given */
};

enum { PATIENCE_MS = 10000 }; /* how long the writer may be absent */

/* descriptors of a worker */
enum {
	FD_JOB = 3,
	FD_PAYLOAD = 4, /* closed where pools have the payload */
	FD_GATE = 5,    /* end of file = go */
	FD_RESULT = 6,  /* one byte "attached", then one JSON object */
};

/* ---- counters of a worker ---- */

#define LATENCY_BUCKETS (59 * 64) /* 64 steps for each doubling: within 1.6 % */

struct counts {
	uint64_t requests, block_refs, hits, vram_hits, ram_hits, disk_hits;
	uint64_t inserted, duplicates, refused, unplaced;
	uint64_t demoted, promoted, wrong, retries;
	uint64_t on_device;                            /* requests that a device matched */
	uint64_t down_bytes, down_ns, up_bytes, up_ns; /* bytes that gpc_copy copied */
	uint64_t uncommitted;      /* blocks that a fetch brought, and that the writer refused */
	uint64_t claimed, pending; /* keys that were claimed, or that another process had claimed */
	uint64_t looked_after;     /* blocks of RAM that were verified after a kill */
	uint64_t end_ns;           /* when the worker was done; of several, the latest counts */
	uint64_t latency[LATENCY_BUCKETS];
};

/* ---- the job ---- */

struct job_pool {
	uint64_t first;
	uint32_t slots, kind;
}; /* first: payload slot */

/* Hits come up in batches of this size.  A cache of our own has as many blocks of VRAM beside
 * --vram-blocks.  So hits come up before other blocks go down in their place, and nothing is lost
 * in between. */
#define PROMOTE_BATCH 32u

struct job_line {
	uint64_t done, starts;
	uint64_t pad[6];
}; /* one cache line a worker */

struct job {
	char name[GPC_MAX_NAME + 1], dir[PATH_MAX];
	char device[48]; /* the device on which workers match; empty: on the host */
	uint32_t workers, requests, longest, payload;
	uint32_t in_pools; /* 1: the payload is in pools with memory */
	uint32_t disk;     /* 1: there is a tier below RAM */
	uint32_t fetch;    /* 1: each worker has a pool of VRAM of its own ... */
	uint32_t vram_blocks, pieces, spill_ahead; /* ... of so many blocks */
	uint32_t tag, group;                       /* of the blocks that are published */
	uint32_t spaces;                           /* spaces to look in */
	int32_t vram, ram;                         /* the pool to fill; its RAM pool, or -1 */
	/* blocks to fill in it; blocks that stay free beside them */
	uint32_t fill, up;
	uint64_t refs, slots; /* slots: of the payload */
	/* that part of its share each worker may do for now */
	uint64_t step, steps;
	struct job_pool pool[GPC_MAX_POOLS + 1];
	struct job_line progress[WORKERS_MAX];
	/* with fetch: the counts of a worker up to its last request, in saved[done & 1]; a worker
	 * that is started again goes on from there */
	struct counts saved[WORKERS_MAX][2];
	/* requests + 1 starts, refs ids, workers + 1 shares, requests in the order of the shares */
	uint64_t words[];
};

static inline const uint64_t *job_start(const struct job *j)
{
	return j->words;
}

static inline const uint64_t *job_ids(const struct job *j)
{
	return j->words + j->requests + 1;
}

/* Worker w has the requests job_order(j)[job_shares(j)[w] .. job_shares(j)[w + 1]). */
static inline const uint64_t *job_shares(const struct job *j)
{
	return job_ids(j) + j->refs;
}

static inline const uint64_t *job_order(const struct job *j)
{
	return job_shares(j) + j->workers + 1;
}

static inline uint64_t job_words(const struct trace *t, uint64_t workers)
{
	return 2 * (uint64_t)t->requests + 1 + t->refs + workers + 1;
}

/* Requests that worker w may do before step `step`. */
static inline uint64_t job_limit(const struct job *j, uint32_t w, uint64_t step)
{
	return (job_shares(j)[w + 1] - job_shares(j)[w]) * step / j->steps;
}

/* GPC_RAM, or GPC_VRAM for all other blocks, and for those of a pool that was not there at the
 * start. */
static inline uint32_t job_kind(const struct job *j, gpc_block block)
{
	return j->pool[GPC_POOL(block)].kind == GPC_RAM ? GPC_RAM : GPC_VRAM;
}

/* ---- counters and latencies ---- */

void counts_latency(struct counts *c, uint64_t ns);
uint64_t counts_percentile(const struct counts *c, unsigned percent);
json_t *counts_to_json(const struct counts *c);
/* Adds the counts of a worker's report; false if the text is no such report. */
bool counts_add_json(struct counts *sum, const json_t *from);

struct report {
	const char *trace, *cache; /* cache NULL: a cache of its own */
	const char *device;        /* the device that has the payload; NULL: none */
	const char *sticky;        /* NULL: requests are dealt in turn */
	uint32_t sessions, concurrency;
	uint32_t workers, failed, vram_blocks, ram_blocks, payload, pieces;
	bool fetch;
	double seconds;
	uint64_t evicted, dropped;
	uint64_t fetched, spilled, bad, kills;
	uint32_t disk_blocks;
	uint64_t restarts;
	struct gpc_tier tier;
	uint64_t left; /* holds, transfers and claims whose owner has gone */
	const struct counts *counts;
};

void report_show(const struct report *r, bool json);
/* Shows a bar on stderr if that is a terminal; total 0 wipes it. */
void report_progress(uint64_t done, uint64_t total);

/* ---- parent ---- */

struct args {
	const char *trace, *name, *dir, *device, *plot, *disk_path, *sticky_text;
	uint64_t workers, vram, ram, tokens, payload, pieces, kills;
	uint64_t disk, restarts, spare; /* spare: blocks of RAM beside `ram` */
	uint64_t up;                    /* blocks of VRAM beside `vram` */
	uint64_t concurrency;
	enum sticky sticky;
	bool vram_given, ram_given, tokens_given, payload_given, json;
	bool in_pools; /* the payload is in pools, on the device */
	bool fetch;    /* each worker has a pool of it */
};

struct child {
	pid_t pid;
	int fd; /* its result pipe; -1 after its end */
	bool attached;
	char *text;
	size_t len, room;
};

struct killer {
	uint32_t left, done;    /* kills */
	uint64_t random, at_ns; /* at_ns: of the next kill; 0: not decided yet */
	uint32_t victim;
	uint64_t target; /* the victim is killed when it has done so many requests */
	/* no other kill comes until the victim is back, and has verified the blocks that it
	 * found */
	bool waits;
};

struct run {
	struct args a;
	struct trace trace;
	char name[GPC_MAX_NAME + 1];
	pid_t writer, keeper; /* gpcd of our own, or 0 */
	char disk_path[PATH_MAX];
	bool disk_made;
	uint32_t restarted;
	struct job *job;
	int job_fd, payload_fd, gate;
	struct child *child;
	struct killer killer;
	struct counts counts;
	struct gpc_stats before;
	uint64_t begin_ns;
	uint32_t failed;
};

/* -1 means: go on; any other value is the exit status, also that of a worker. */
int options_parse(struct args *a, int argc, char **argv);

/* The same for options that do not go together. */
int options_legal(const struct args *a);

/* The signal that ends the replay.  From replay_hold_signals on signals come in during replay_poll
 * alone. */
extern volatile sig_atomic_t replay_caught;
void replay_hold_signals(void);
/* Ends this process by that signal. */
void replay_raise(void);
/* poll(2), which also returns 0 when a signal came in, such as at a child's end.  -1 ms: no
 * limit. */
int replay_poll(struct pollfd *fds, nfds_t n, int ms);
/* Called in a new child: signals work as usual, and the child ends when the parent ends. */
void replay_child(pid_t parent);
/* The status of a child that ends; a signal to us ends it. */
int replay_wait(pid_t child);
/* A child does work that may wait for long.  Returns its exit status as 0 or -1, after a message
 * of its own; a signal to us ends it. */
int replay_in_child(const struct run *run, int (*what)(const struct run *run));

/* 0, or -1 after a message. */
int own_start_writer(struct run *run);
/* Starts a process that owns the pool of VRAM, where that pool has memory. */
int own_start_keeper(struct run *run);
/* Makes the pool of RAM that the workers' own pools share. */
int own_make_ram(struct run *run);
void own_stop(struct run *run);
int cache_attach(const struct run *run, uint32_t flags, gpc **c);
/* Puts the geometry into run->a and run->job, the statistics into run->before. */
int cache_look(struct run *run);
/* Waits for a writer of the cache of --name; 0, or -1 after a message. */
int cache_wait_writer(const struct run *run);
/* Called before any worker is started: can it open the device?  0, or -1 after a message. */
int cache_try_device(const struct run *run);
int cache_stats(const struct run *run, struct gpc_stats *ret);
/* Compares a value of the command line with that of the cache; -1 after a message if they
 * differ. */
int cache_same(const struct run *run, const char *what, bool given, uint64_t *asked,
	       uint64_t found);

/* Puts the pools into run->a and run->job; 0, or -1 after a message. */
int pools_look(struct run *run, gpc *c);

/* Starts the workers; 0, or -1 after a message.  Started workers must be ended, too. */
int crew_start(struct run *run);
/* Starts a worker that has ended once more; 0, or -1 after a message. */
int crew_restart(struct run *run, uint32_t number);
/* Watches the workers until all of them are done, or a signal comes in. */
int crew_watch(struct run *run);
void crew_end(struct run *run);

/* Called before the workers start: sets how far they may go until the first kill. */
void kill_plan(struct run *run);
/* Kills a worker whose time has come, and starts it again; 0, or -1 after a message. */
int kill_step(struct run *run);
/* Is a kill to come, or one that is not over? */
static inline bool kill_is_due(const struct run *run)
{
	return run->gate < 0 && (run->killer.left || run->killer.waits);
}

/* 0, or -1 after a message. */
int disk_plan(struct run *run);
void disk_look(const struct run *run, struct gpc_tier *ret);
void disk_remove(const struct run *run);
int own_restart_writer(struct run *run);
/* Plans restarts as kill_plan plans kills. */
void restart_plan(struct run *run);
int restart_step(struct run *run);
bool restart_is_due(const struct run *run);

/* ---- worker ---- */

/* main() of a worker; returns the exit status. */
int worker_main(uint32_t number);

#endif
