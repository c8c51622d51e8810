/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - the life of a writer: it gets the seat and takes over; it gives the seat up.
 *
 * The seat is byte 0 of the lock file.  The kernel gives it up when the process dies, so there are
 * never two writers, and a stopped process is still the writer.
 * Tests: t/index/left-in-seats.t t/index/standby.t t/index/stopped.t t/daemon/all-dead.t
 *   t/bytes/seats.t t/bytes/names.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "index/base/fd.h"
#include "index/takeover/open.h"
#include "index/takeover/takeover.h"
#include "index/writer/grants.h"
#include "index/table/dropped.h"
#include "index/table/grace.h"
#include "index/table/alloc.h"
#include "index/table/meter.h"
#include "index/table/parked.h"
#include "index/table/pending.h"
#include "index/table/queue.h"
#include "index/table/table.h"
#include "index/writer/mirrors.h"
#include "index/writer/transfer.h"

static size_t node_bytes(const struct writer *w)
{
	return (size_t)w->max_blocks * sizeof(*w->node);
}

/* The nodes are on cache lines of their own, which calloc() does not promise. */
static struct node *map_nodes(const struct writer *w)
{
	void *p = mmap(NULL, node_bytes(w), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	if (p == MAP_FAILED)
		return NULL;
	writer_advise_huge(p, node_bytes(w));
	return p;
}

static void free_all(struct writer *w)
{
	uint32_t i;

	for (i = 0; i <= GPC_MAX_POOLS; i++) {
		free(w->pool[i].free);
		queue_free(&w->pool[i].queue);
	}
	if (w->node)
		munmap(w->node, node_bytes(w));
	free(w->owned);
	free(w->pool_of);
	pending_free(w);
	free(w->peer);
	free(w->books);
	free(w->dirty_bit);
	free(w->dirty);
	free(w->changes);
	parked_free(w);
	free(w->quarantine);
	free(w->picked);
	free(w->subtree);
	free(w->aside);
	free(w->leftover);
	free(w->order.at);
	free(w->missing.at);
	free(w->doomed.at);
	dropped_free(w);
	free(w->twice.at);
	free(w);
}

static void free_relocations(struct relocation *r)
{
	struct relocation *next;

	for (; r; r = next) {
		next = r->next;
		free(r);
	}
}

static void free_pending(struct writer *w)
{
	struct grant *g;

	free_relocations(w->relocations);
	free_relocations(w->old_relocations);
	while ((g = w->grants) != NULL) {
		w->grants = g->next;
		free(g->item);
		free(g);
	}
	transfer_free_all(w);
	grace_free(w->spare);
	grace_free(w->open);
	grace_free(w->flushing);
	grace_free(w->grace);
}

static int allocate(struct writer *w)
{
	const struct shm_geometry *g = &w->seg.header.geometry;
	uint32_t i;

	w->max_blocks = g->max_blocks;
	w->max_peers = g->max_peers;
	w->max_pools = g->max_pools;
	w->buckets = g->buckets;
	w->table = (struct probe_entry *)(w->seg.index + w->seg.at.table);
	w->node = map_nodes(w);
	w->owned = writer_zeroed(g->max_blocks, sizeof(*w->owned));
	w->pool_of = writer_zeroed(g->max_blocks, sizeof(*w->pool_of));
	w->peer = calloc(g->max_peers, sizeof(*w->peer));
	w->books = writer_zeroed(g->buckets, sizeof(*w->books));
	w->dirty_bit = calloc((size_t)g->buckets * SHM_BUCKET / 64 + 1, 8);
	if (!w->node || !w->owned || !w->pool_of || !w->peer || !w->books || !w->dirty_bit ||
	    parked_init(w) < 0)
		return err_set(ENOMEM, "no memory for a writer of %u blocks", g->max_blocks);
	for (i = 0; i < g->max_peers; i++)
		w->peer[i].reserved = w->peer[i].reserved_own = NONE;
	w->grace_end = &w->grace;
	w->grants_end = &w->grants;
	w->cleared_pool = NONE;
	return 0;
}

static void let_go(struct writer *w)
{
	if (w->seg.index)
		segment_unmap_writer(&w->c->seg, w->seg.index);
	fd_close(w->lock_fd); /* the seat is given up */
	free_pending(w);
	free_all(w);
}

static int run_takeover(struct writer *w, uint64_t arg UNUSED)
{
	int err;

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

/* It comes before the takeover.  So a process that finds the seat taken can tell a serving writer
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
		err = allocate(w);
	}
	if (err == 0) {
		meter_begin(w);
		err = writer_run(w, run_takeover, 0);
	}
	if (err < 0) {
		if (w->seg.index)
			tell_nobody(w);
		let_go(w);
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
	tell_nobody(w);
	mirrors_close(w);
	let_go(w);
}
