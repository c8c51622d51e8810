/* SPDX-License-Identifier: Apache-2.0 */
/* loop.c - the seat's life and the serving loop.
 *
 * The seat is byte 0 of the lock file: the kernel gives it up when the process dies, so two
 * writers cannot be, and a stopped one is still the writer.  One pass of the loop takes what
 * the rings hold, pushes retired things on, and answers; between passes it sleeps on a futex
 * that submitting peers wake. */
#include "config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/futex.h"
#include "takeover/takeover.h"
#include "writer/command.h"
#include "writer/grace.h"
#include "writer/grant.h"
#include "writer/loop.h"
#include "writer/lru.h"
#include "writer/memory.h"
#include "writer/mirror.h"
#include "writer/pools.h"
#include "writer/queue.h"
#include "writer/reap.h"
#include "writer/record.h"
#include "writer/retire.h"
#include "writer/table.h"

#define HUGE ((size_t)2 << 20)           /* a huge page */
#define ROUND 64                         /* commands of one peer before the next one's turn */
#define PREFETCH_COMMANDS 4                     /* commands whose memory is on its way */
#define HOUSEKEEP_NS (20 * NS_PER_MS)         /* between looks for the dead */
#define ALONE_NS (2000 * NS_PER_MS)      /* the same, when nobody else is there */
#define FLUSH_SPIN_NS 40000              /* longer than a flush to a GPU mostly takes */
#define GRACE_POLL_NS 50000              /* while a grace period or a flush is under way */

/* A writer without memory stops where it is, like a killed one: the segments are sound at any
 * instruction, and whoever takes the seat next goes on.  What the interrupted functions had
 * allocated for themselves is lost. */
static __thread jmp_buf *way_out;

static int guarded(struct writer *w, int (*run)(struct writer *w, uint64_t arg), uint64_t arg)
{
	jmp_buf here;

	way_out = &here;
	if (setjmp(here))
		return err_set(ENOMEM, "no memory for the writer of %s: it gives the seat up",
			       w->seg.name);
	return run(w, arg);
}

bool writer_guard(void (*run)(void *arg), void *arg)
{
	jmp_buf here, *before = way_out;
	bool done = false;

	way_out = &here;
	if (!setjmp(here)) {
		run(arg);
		done = true;
	}
	way_out = before;
	return done;
}

void writer_no_memory(void)
{
	longjmp(*way_out, 1);
}

/* Large arrays in huge pages, where the system gives them: faults would take a good part of a
 * takeover's time. */
static void advise_huge(void *p, size_t bytes)
{
	uintptr_t from = ROUND_UP((uintptr_t)p, HUGE), to = ((uintptr_t)p + bytes) & ~(HUGE - 1);

	if (from < to)
		madvise((void *)from, to - from, MADV_HUGEPAGE);
}

/* calloc() does not touch what it has just got from the system. */
static void *zeroed(size_t n, size_t item)
{
	void *p = calloc(n ? n : 1, item);

	if (p)
		advise_huge(p, n * item);
	return p;
}

static size_t node_bytes(const struct writer *w)
{
	return (size_t)w->max_blocks * sizeof(*w->node);
}

/* On lines of their own, which calloc() does not promise. */
static struct node *map_nodes(const struct writer *w)
{
	void *p = mmap(NULL, node_bytes(w), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	advise_huge(p, node_bytes(w));
	return p;
}

void *writer_alloc(size_t n, size_t item)
{
	void *p = zeroed(n, item);

	if (!p)
		writer_no_memory();
	return p;
}

void *writer_more(void *array, uint32_t *size, uint32_t want, size_t item)
{
	uint32_t to = MAX(*size * 2, 64u);

	to = MAX(to, want);
	array = realloc(array, to * item);
	if (!array)
		writer_no_memory();
	*size = to;
	return array;
}

uint32_t w_find_record(struct writer *w, gpc_block block)
{
	uint32_t pool = (uint32_t)block >> 24, slot = (uint32_t)block & 0xffffff;

	if (block < 0 || pool >= w->max_pools || slot >= w->pool[pool].slots)
		return NONE;
	return w->pool[pool].first + slot;
}

bool w_row_is_zero(struct writer *w, uint32_t record)
{
	const uint64_t *row = (const uint64_t *)seg_row(&w->seg, record);
	uint32_t i, n = w->max_peers / 4, rest = w->max_peers % 4;
	uint64_t any = 0;

	for (i = 0; i < n; i++)          /* pairs with (c) of refs.c */
		any |= load_acquire(&row[i]);
	/* cells beyond the last seat are nobody's, and nobody would ever lower them */
	if (rest)
		any |= load_acquire(&row[n]) & ((1ull << 16 * rest) - 1);
	return !any;
}

uint64_t w_tick(struct writer *w)
{
	return load_relaxed(&seg_shared(&w->seg)->tick);
}

/* ---- open and close ---- */

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
	free(w->peer);
	free(w->retired_slots);
	free(w->spilled);
	free(w->dirty_bit);
	free(w->dirty);
	free(w->changes);
	free(w->parked);
	free(w->quarantine);
	free(w->picked);
	free(w->below);
	free(w->aside);
	free(w->leftover);
	free(w->missing.at);
	free(w->twice.at);
	free(w->twins.at);
	free(w);
}

static void free_batches(struct batch *b)
{
	struct batch *next;

	for (; b; b = next) {
		next = b->next;
		free(b->slots);
		free(b->records);
		free(b->moved);
		free(b->leaving.at);
		free(b);
	}
}

static void free_pending(struct writer *w)
{
	struct relocation *r;
	struct grant *g;

	while ((r = w->relocations) != NULL) {
		w->relocations = r->next;
		free(r);
	}
	while ((g = w->grants) != NULL) {
		w->grants = g->next;
		free(g->slot);
		free(g);
	}
	free_batches(w->open);
	free_batches(w->flushing);
	free_batches(w->grace);
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
	w->owned = zeroed(g->max_blocks, sizeof(*w->owned));
	w->pool_of = zeroed(g->max_blocks, sizeof(*w->pool_of));
	w->peer = calloc(g->max_peers, sizeof(*w->peer));
	w->retired_slots = zeroed(g->buckets, 1);
	w->spilled = zeroed(g->buckets, sizeof(*w->spilled));
	w->dirty_bit = calloc((size_t)g->buckets * SHM_BUCKET / 64 + 1, 8);
	if (!w->node || !w->owned || !w->pool_of || !w->peer || !w->retired_slots ||
	    !w->spilled || !w->dirty_bit)
		return err_set(ENOMEM, "no memory for a writer of %u blocks", g->max_blocks);
	for (i = 0; i < g->max_peers; i++)
		w->peer[i].reserved = NONE;
	w->grace_end = &w->grace;
	w->grants_end = &w->grants;
	w->cleared_pool = NONE;
	return 0;
}

static void let_go(struct writer *w)
{
	if (w->seg.index)
		segment_unmap_writer(&w->c->seg, w->seg.index);
	fd_close(w->lock_fd);            /* gives the seat up */
	free_pending(w);
	free_all(w);
}

static int run_takeover(struct writer *w, uint64_t arg UNUSED)
{
	return takeover(w);
}

static void tell_nobody(struct writer *w)
{
	store_relaxed(&w_state(w)->writer_pid, 0);
	store_relaxed(&w_state(w)->writer_peer, 0);
}

/* Before the takeover: whoever finds the seat taken can tell one that serves from one that will
 * soon give the seat up. */
static void tell_who(struct writer *w)
{
	uint32_t peer = w->c->peer;

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
		tell_who(w);
		err = allocate(w);
	}
	if (err == 0)
		err = guarded(w, run_takeover, 0);
	if (err < 0) {
		if (w->seg.index)
			tell_nobody(w);
		let_go(w);
		return err;
	}
	if (!reaps)
		log_say(&c->log, LOG_INFO, "writer of %s, generation %u", c->seg.name,
			w_state(w)->generation);
	*ret = w;
	return 0;
}

/* What is still under way is left to the next writer, as a killed one would leave it. */
void writer_close(struct writer *w)
{
	tell_nobody(w);
	mirror_close_all(w);
	let_go(w);
}

/* ---- one pass ---- */

static uint32_t group_size(const struct shm_command *cmd)
{
	bool group = cmd->op == CMD_RESERVE || cmd->op == CMD_EVICT ||
		     cmd->op == CMD_DEMOTE || cmd->op == CMD_PROMOTE || cmd->op == CMD_COMMIT;

	return group && cmd->count && cmd->count <= SHM_RING ? cmd->count : 1;
}

/* What a command touches lies anywhere: one miss after another would be most of its time. */
static void prefetch_commands(struct writer *w, uint32_t peer, uint64_t head, uint64_t *asked)
{
	uint64_t next = w->peer[peer].next;

	if (*asked - next > PREFETCH_COMMANDS)  /* a group has skipped it */
		*asked = next;
	for (; *asked != head && *asked - next < PREFETCH_COMMANDS; ++*asked)
		command_prefetch(w, seg_command(&w->seg, peer, *asked));
}

/* Run commands of one peer in order; returns how many. */
static uint32_t drain(struct writer *w, uint32_t peer)
{
	struct shm_seat *s = seg_seat(&w->seg, peer);
	struct wpeer *p = &w->peer[peer];
	uint64_t head = load_acquire(&s->head);          /* (X) pairs with ring_submit */
	struct shm_command cmd;
	uint64_t asked = p->next;        /* up to here memory has been asked for */
	uint32_t n = 0;

	if (p->stalled || head - p->tail > SHM_RING || head - p->next > SHM_RING)
		return 0;                /* scribbled over: its own loss */
	while (p->next != head && n < ROUND) {
		prefetch_commands(w, peer, head, &asked);
		cmd = *seg_command(&w->seg, peer, p->next);
		if (cmd.result == CMD_PENDING) {
			p->stalled = !command_run(w, peer, p->next, &cmd);
			if (p->stalled)
				break;
			n++;
		}
		p->next += MIN(group_size(&cmd), head - p->next);
	}
	if (n)
		count_add(&w_tally(w, peer)->commands, n);
	return n;
}

/* Acknowledge what is done, in order, and wake who waits for it. */
static void acknowledge(struct writer *w, uint32_t peer)
{
	struct shm_seat *s = seg_seat(&w->seg, peer);
	struct wpeer *p = &w->peer[peer];

	if (!p->answered)
		return;
	p->answered = false;
	while (p->tail != p->next &&
	       load_relaxed(&seg_command(&w->seg, peer, p->tail)->result) != CMD_PENDING)
		p->tail++;
	store_release(&s->tail, p->tail);        /* (Y) pairs with ring.c */
	store_release(&s->done, s->done + 1);
	order_fence();                   /* results before `waiting`: ring.c does the reverse */
	if (load_relaxed(&s->waiting))
		futex_wake_all(&s->done);
}

static uint32_t drain_all(struct writer *w)
{
	uint32_t i, done = 0, round;

	do {
		round = 0;
		for (i = 0; i < w->max_peers; i++)
			if (load_relaxed(&seg_seat(&w->seg, i)->state) == SEAT_TAKEN) {
				reap_note(w, i);
				round += drain(w, i);
			}
		done += round;
		retire_advance(w);
		grant_sweep(w);
		for (i = 0; i < w->max_peers; i++)
			acknowledge(w, i);
	} while (round);
	return done;
}

/* Blocks ahead of demand, so that a reserve need not wait for a grace period.  Not where
 * victims are demoted: that takes a peer to copy them. */
static void refill(struct writer *w)
{
	uint32_t i, j, ahead, room, n;

	grant_trim(w);
	if (w->seg.header.free_target <= 0)
		return;
	for (i = 0; i < w->max_pools; i++) {
		struct wpool *p = &w->pool[i];

		if (p->state != POOL_READY || p->demote_to >= 0 || p->leaving ||
		    (p->flags & GPC_POOL_CALLER))
			continue;
		ahead = MIN((uint32_t)w->seg.header.free_target, p->blocks / 16);
		room = p->blocks - MIN(p->blocks, p->live + p->reserved);
		if (room >= (ahead + 1) / 2)
			continue;
		n = lru_pick(w, i, ahead - room, false, &w->picked, &w->picked_size, 0);
		w_count_lost(w, i, n);
		for (j = 0; j < n; j++) {        /* leaf first */
			retire_prefetch(w, w->picked, n, j);
			retire_subtree(w, w->picked[j]);
		}
	}
}

static void poll_quarantine(struct writer *w)
{
	uint32_t i = 0;

	while (i < w->nquarantine) {
		struct quarantine *q = &w->quarantine[i];
		uint32_t record = q->record;

		if (!identity_gone(&q->who) && clock_ns() < q->until_ns) {
			i++;
			continue;
		}
		*q = w->quarantine[--w->nquarantine];
		if (w_row_is_zero(w, record))
			record_free(w, record);
		else
			retire_dying(w, record);
	}
}

/* Nobody can die, and nothing waits for what only a look would tell.  Who comes rings, so the next
 * pass notes its seat. */
static bool no_other_peers(const struct writer *w)
{
	uint32_t own = w->c->peer;

	return !w->nparked && !w->nquarantine && !w->grants && !w->missing.n &&
	       w->nseated == (own < w->max_peers && w->peer[own].seated);
}

static bool pools_are_quiet(const struct writer *w)
{
	uint32_t i;

	for (i = 0; i < w->max_pools; i++)
		if (w->pool[i].state == POOL_DRAINING)
			return false;
	return true;
}

/* Somebody has come since, or something waits now. */
static void notice_company(struct writer *w, uint64_t now)
{
	if (!w->alone || no_other_peers(w))
		return;
	w->alone = false;
	w->next_housekeep_ns = MIN(w->next_housekeep_ns, now + HOUSEKEEP_NS);
}

static void care(struct writer *w)
{
	uint64_t now = clock_ns();

	notice_company(w, now);
	if (now < w->next_housekeep_ns)
		return;
	reap_dead(w);
	retire_poll_parked(w);
	poll_quarantine(w);
	pools_housekeep(w);
	w->alone = no_other_peers(w) && pools_are_quiet(w);
	w->next_housekeep_ns = now + (w->alone ? ALONE_NS : HOUSEKEEP_NS);
}

static void unstall(struct writer *w)
{
	uint32_t i;

	for (i = 0; i < w->max_peers; i++)
		w->peer[i].stalled = false;
}

/* Who rang?  One who has left wants its seat taken back now. */
static void answer_bell(struct writer *w)
{
	struct shm_shared *line = seg_shared(&w->seg);
	uint32_t i, peer;
	uint64_t bits;

	for (i = 0; i < ARRAY_SIZE(line->pending); i++) {
		if (!load_relaxed(&line->pending[i]))
			continue;
		for (bits = order_swap64(&line->pending[i], 0); bits; bits &= bits - 1) {
			peer = i * 64 + (uint32_t)__builtin_ctzll(bits);
			if (peer < w->max_peers &&
			    load_relaxed(&seg_seat(&w->seg, peer)->state) == SEAT_LEFT)
				w->next_housekeep_ns = 0;
		}
	}
}

static uint32_t pass(struct writer *w)
{
	uint32_t n = 0;

	answer_bell(w);
	if (w->missing.n)                 /* else commands come first: a dead writer's find the
					  * victims that it took for them (rule C1) */
		retire_advance(w);
	care(w);
	do {
		w->progress = false;
		if (!w->missing.n)        /* rule T7: then commands */
			n += drain_all(w);
		refill(w);
		retire_advance(w);
		unstall(w);
	} while (w->progress);
	return n;
}

static bool work_is_waiting(struct writer *w)
{
	const struct shm_shared *line = seg_shared(&w->seg);

	return load_relaxed(&line->pending[0]) || load_relaxed(&line->pending[1]) ||
	       load_relaxed(&line->pending[2]) || load_relaxed(&line->pending[3]);
}

/* Going to sleep takes longer than most flushes. */
static bool flush_ends_soon(struct writer *w)
{
	uint64_t until = clock_ns() + FLUSH_SPIN_NS;

	if (!w->flushing || !w->nmirrors)
		return false;
	do {
		if (mirror_flushed(w) || work_is_waiting(w))
			return true;
		order_pause();
	} while (clock_ns() < until);
	return false;
}

/* False: a signal handler has run, whose program may want to do something about it. */
static bool sleep_for_work(struct writer *w, uint64_t deadline_ns)
{
	struct shm_shared *line = seg_shared(&w->seg);
	uint64_t now = clock_ns(), until;
	int err = 0;

	if (flush_ends_soon(w))
		return true;
	notice_company(w, now);
	until = MIN(deadline_ns, w->next_housekeep_ns);
	if (!retire_idle(w) || w->ndirty || w->line_dirty)
		until = MIN(until, now + GRACE_POLL_NS);
	if (until <= now)
		return true;
	store_relaxed(&line->sleeping, 1);
	order_fence();                   /* (Z) sleeping before pending; ring.c the reverse;
					 * model/wake.pml */
	if (!work_is_waiting(w))
		err = futex_wait(&line->sleeping, 1, until - now);
	store_relaxed(&line->sleeping, 0);
	return err != -EINTR;
}

/* gpc_writer_wake() stores before it rings, and each pass begins with the answer to the bell.  It is
 * kept for gpc_writer_serve() when another call of this handle serves meanwhile. */
static bool is_woken(gpc *c)
{
	return load_relaxed(&c->stop) ||
	       (c->may_wake && load_relaxed(&c->wake) && order_swap32(&c->wake, 0));
}

/* Serve until something was done, a signal or the deadline; returns the number of commands. */
static int run_serve(struct writer *w, uint64_t deadline_ns)
{
	uint32_t n;

	for (;;) {
		n = pass(w);
		if (n || clock_ns() >= deadline_ns || is_woken(w->c) ||
		    !sleep_for_work(w, deadline_ns))
			return (int)MIN(n, (uint32_t)INT32_MAX);
	}
}

int writer_serve(struct writer *w, uint64_t deadline_ns)
{
	return guarded(w, run_serve, deadline_ns);
}

static int run_reap(struct writer *w, uint64_t arg UNUSED)
{
	reap_dead(w);
	return 0;
}

int writer_reap(struct writer *w)
{
	return guarded(w, run_reap, 0);
}
