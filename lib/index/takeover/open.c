/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - the life of a writer: it gets the seat and takes over; it gives the seat up.
 *
 * The seat is byte 0 of the lock file.  The kernel gives it up when the process dies, so there are
 * never two writers, and a stopped process is still the writer.
 * Tests: t/index/left-in-seats.t t/index/standby.t t/index/stopped.t t/index/serve-memory.t
 *   t/daemon/all-dead.t t/bytes/seats.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include "index/base/fd.h"
#include "index/takeover/open.h"
#include "index/takeover/takeover.h"
#include "index/table/alloc.h"
#include "index/table/meter.h"
#include "index/table/parked.h"
#include "index/writer/mirrors.h"

static void allocate(struct writer *w)
{
	const struct shm_geometry *g = &w->seg.header.geometry;
	uint32_t i;

	w->max_blocks = g->max_blocks;
	w->max_peers = g->max_peers;
	w->max_pools = g->max_pools;
	w->buckets = g->buckets;
	w->table = (struct probe_entry *)(w->seg.index + w->seg.at.table);
	/* no node is on two cache lines, which calloc() does not promise */
	w->node = writer_alloc((size_t)g->max_blocks + 1, sizeof(*w->node));
	w->node = (struct node *)ROUND_UP((uintptr_t)w->node, sizeof(*w->node));
	w->owned = writer_alloc(g->max_blocks, sizeof(*w->owned));
	w->pool_of = writer_alloc(g->max_blocks, sizeof(*w->pool_of));
	w->peer = writer_alloc(g->max_peers, sizeof(*w->peer));
	w->books = writer_alloc(g->buckets, sizeof(*w->books));
	w->dirty_bit = writer_alloc((size_t)g->buckets * SHM_BUCKET / 64 + 1, 8);
	w->parked = writer_alloc(g->max_peers + 1, sizeof(*w->parked));
	for (i = 0; i < g->max_peers; i++)
		w->peer[i].reserved = w->peer[i].reserved_own = NONE;
	w->grace_end = &w->grace;
	w->grants_end = &w->grants;
	w->cleared_pool = NONE;
}

static int run_takeover(struct writer *w, uint64_t arg UNUSED)
{
	int err;

	allocate(w);
	meter_begin(w);
	w_pass_begin(w);
	err = takeover(w);
	if (err == 0)
		w_pass_end(w);
	return err;
}

static void tell_nobody(struct writer *w)
{
	store_relaxed(&w_state(w)->writer_pid, 0);
	store_relaxed(&w_state(w)->writer_peer, 0);
	store_relaxed(&w_state(w)->served_ns, 0);
}

/* Runs before the takeover.  So a process that finds the seat taken can tell a serving writer
 * from one that will soon give up the seat. */
static void tell_who(struct writer *w)
{
	uint32_t peer = w->c->peer;

	store_relaxed(&w_state(w)->served_ns, clock_ns());
	store_relaxed(&w_state(w)->writer_pid, w->reaps ? 0 : getpid());
	store_relaxed(&w_state(w)->writer_peer, w->reaps || peer == SHM_NO_PEER ? 0 : peer + 1);
}

int writer_open(gpc *c, bool reaps, struct writer **ret)
{
	struct writer *w = calloc(1, sizeof(*w));
	int err;

	if (!w)
		return err_set(ENOMEM, "no memory for a writer");
	w->c = c;
	w->reaps = reaps;
	w->seg = c->seg;
	w->seg.index = NULL;
	w->lock_fd = segment_open_lock(&c->seg);
	err = w->lock_fd < 0 ? w->lock_fd : lock_try(w->lock_fd, LOCK_WRITER);
	if (err == 0)
		err = segment_map_writer(&c->seg, &w->seg.index);
	if (err == 0) {
		w_places(w);
		tell_who(w);
		err = writer_run(w, run_takeover, 0);
	}
	if (err < 0) {
		writer_close(w);
		return err;
	}
	meter_taken_over(w);
	if (!reaps)
		log_say(&c->log, LOG_INFO, "writer of %s, generation %u", c->seg.name,
			w_state(w)->generation);
	*ret = w;
	return 0;
}

/* Work under way is left to the next writer, as a killed writer would leave it. */
void writer_close(struct writer *w)
{
	if (w->seg.index) {
		tell_nobody(w);
		mirrors_close(w);
		segment_unmap_writer(&w->c->seg, w->seg.index);
	}
	fd_close(w->lock_fd); /* the seat is given up */
	writer_free_all(&w->scan);
	writer_free_all(&w->memory);
	free(w);
}
