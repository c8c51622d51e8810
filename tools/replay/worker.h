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

enum { RING_BATCH = 1024 }; /* well below what one command may name */

struct worker {
	struct job *job;
	struct payload payload;
	uint32_t number;
	int32_t vram;       /* pool to fill: that of all, or its own */
	gpc_transfer spill; /* under way since the last request */
	gpc *c;
	gpc_dev *device; /* NULL: match on the host */
	struct counts counts;
	/* of the request at hand: chain[0] is no key, chain[1 + j] names block j */
	gpc_key *chain;
	gpc_block *held; /* blocks that go back at the end, root first */
	gpc_block *fresh, *resident;
	struct gpc_move *moves;
	int *results;
	bool *bad;
	struct gpc_claim *claims;
	gpc_key *known; /* keys of the trace, sorted; made when wanted */
	char error[512];
};

/* The first error is the one that is reported; returns it. */
int worker_fail(struct worker *w, int err, const char *what);

struct patience {
	uint64_t end_ns;
	unsigned pause_ms;
};

/* True: wait a little, then do it again. */
bool worker_again(struct worker *w, struct patience *p, int r);

/* The same for what the payload did. */
int worker_fail_payload(struct worker *w, int err, const char *what);
/* n blocks had other bytes than those of their keys; the first time, says where. */
void worker_wrong(struct worker *w, uint64_t n);

/* ---- disk.c ---- */

int disk_hits(struct worker *w, uint32_t hits, uint32_t n);
int disk_settle(struct worker *w);

bool worker_in_ram(const struct worker *w, gpc_block block);

/* Where there is RAM: as many of the least recent blocks go down as n more would have to push out.
 * Those that cannot move stay, and what is reserved then pushes them out. */
int moves_make_room(struct worker *w, uint32_t n);
/* Root first, run by run of blocks in RAM; without room the rest is used from there, and
 * verified there. */
int moves_promote(struct worker *w, uint32_t hits);

/* A pool of VRAM of this worker's own. */
int fetch_make_pool(struct worker *w);
/* What is cached of a request, into held[]: referenced, verified, in VRAM; counted. */
int fetch_hits(struct worker *w, uint32_t n);
/* The keys of fresh[]. */
int fetch_claim(struct worker *w, const gpc_key *keys, uint32_t n);
/* Begin to copy down what goes next; wait for its end. */
int fetch_spill(struct worker *w);
int fetch_spilled(struct worker *w);

/* Before a worker that was killed goes on; -EIO: something is wrong. */
int after_kill(struct worker *w);

/* The blocks of one request: their prefixes, as the trace names them. */
int request_replay(struct worker *w, const uint64_t *ids, uint32_t n);

#endif
