/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h - one worker, and what its files share.
 *
 *   worker.c    its life: attach, replay its requests, report
 *   request.c   one request, as an engine would serve it
 *   moves.c     blocks that go down ahead of demand, hits that come up
 *   fetch.c     the same with a pool of VRAM of its own, by gpc_fetch and gpc_spill_ahead
 *   after.c     what is left by a worker that was killed */
#ifndef GPC_TOOLS_WORKER_H
#define GPC_TOOLS_WORKER_H

#include "gpc_device.h"
#include "tools/replay/replay.h"

enum { RING_BATCH = 1024 }; /* well below the number that one command may name */

struct worker {
	struct job *job;
	struct payload payload;
	uint32_t number;
	int32_t vram;       /* the pool to fill: the shared one, or its own */
	gpc_transfer spill; /* a spill that has been under way since the last request */
	gpc *c;
	gpc_dev *device; /* NULL: match on the host */
	struct counts counts;
	/* keys of the request at hand: chain[0] is no key, chain[1 + j] names block j */
	gpc_key *chain;
	gpc_block *held; /* blocks that go back at the end, root first */
	gpc_block *fresh, *resident;
	struct gpc_move *moves;
	int *results;
	bool *bad;
	struct gpc_claim *claims;
	gpc_key *known; /* keys of the trace, sorted; made when they are needed */
	char error[512];
};

/* Keeps the first error for the report; returns it. */
int worker_fail(struct worker *w, int err, const char *what);

struct patience {
	uint64_t end_ns;
	unsigned pause_ms;
};

/* True means: wait a little, then do it again. */
bool worker_again(struct worker *w, struct patience *p, int r);

/* The same for an error of the payload. */
int worker_fail_payload(struct worker *w, int err, const char *what);
/* n blocks had other bytes than those of their keys; the first time, it logs where. */
void worker_wrong(struct worker *w, uint64_t n);

/* ---- disk.c ---- */

int disk_hits(struct worker *w, uint32_t hits, uint32_t n);
int disk_settle(struct worker *w);

bool worker_in_ram(const struct worker *w, gpc_block block);

/* Where there is RAM, as many of the least recent blocks go down as n more would push out.  Blocks
 * that cannot move stay, and later reservations push them out. */
int moves_make_room(struct worker *w, uint32_t n);
/* Promotes root first, run by run of blocks in RAM.  Without room, the rest is used and verified
 * in RAM. */
int moves_promote(struct worker *w, uint32_t hits);

/* Makes a pool of VRAM of this worker's own. */
int fetch_make_pool(struct worker *w);
/* Brings the cached blocks of a request into held[]: referenced, verified, in VRAM; counted. */
int fetch_hits(struct worker *w, uint32_t n);
/* Claims the keys of fresh[]. */
int fetch_claim(struct worker *w, const gpc_key *keys, uint32_t n);
/* Begins to copy down the next victims, or waits for the end of that. */
int fetch_spill(struct worker *w);
int fetch_spilled(struct worker *w);

/* Called before a worker that was killed goes on; -EIO: it found a fault. */
int after_kill(struct worker *w);

/* Replays the blocks of one request: ids are their prefixes, as the trace names them. */
int request_replay(struct worker *w, const uint64_t *ids, uint32_t n);

#endif
