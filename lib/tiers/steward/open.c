/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - gpc_tiers_open: a peer that keeps the tiers below RAM, from its seat to its end.
 *
 *   1  The seat and the steward's lock are taken.
 *   2  plan.c chooses the pool of RAM that the tiers serve, and the size of the file.
 *   3  Each tier gets a pool of CALLER blocks; the store is opened; the file is locked, and looked at.
 *   4  If the file was not cleared while nobody kept it, its blocks are read.
 *   5  The threads start, and wait at the gate.
 *   6  The file is made; or it gets its size and loses the blocks that were cleared.  Either is one
 *      change of its superblocks.
 *   7  The board says which file is kept, and that peers may ask; the gate is opened.
 *
 * If a step fails, the results of the earlier steps are given back in reverse order.  Up to step 6
 * nothing is changed that was there before, except for the numbers of a dead steward's tiers in
 * the board.  After step 6 nothing fails.
 * Tests: t/tiers/resize.t t/tiers/both.t t/tiers/die.t t/tiers/refused.t
 *   t/tiers/stopped-writer.t t/tiers/down-and-up.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tiers/disk/disk.h"
#include "tiers/remote/remote.h"
#include "index/peer/refuse.h"
#include "tiers/steward/steward.h"

#define POOL_MS   10000
#define WRITER_NS (1500 * NS_PER_MS) /* the wait for the writer, with work under way at the end */
/* ---- step 3: its pool ---- */

static uint32_t free_space(const gpc *c)
{
	const struct shm_state *st = seg_state(&c->seg);
	uint32_t taken = load_acquire(&st->spaces) | load_acquire(&st->lower_spaces),
		 s = GPC_MAX_SPACES - 1;

	while (s && taken >> s & 1)
		s--;
	return s;
}

/* The last steward's pool goes when a writer has seen its death.  Until then it takes the room, or
 * the space. */
static bool is_in_the_way(const gpc *c, const struct gpc_pool *of)
{
	uint32_t i;

	for (i = 0; i < c->seg.header.geometry.max_pools; i++) {
		const struct shm_pool *p = seg_pool(&c->seg, i);

		if (load_acquire(&p->state) != POOL_FREE && shm_is_lower(load_relaxed(&p->kind)) &&
		    load_relaxed(&p->owner) != (int32_t)c->peer &&
		    (load_relaxed(&p->kind) == of->kind || load_relaxed(&p->space) == of->space))
			return true;
	}
	return false;
}

/* We look before we ask: after a refusal its reason may be gone already. */
static int add_when_free(gpc *c, struct gpc_pool *p)
{
	uint64_t deadline = clock_ns() + POOL_MS * NS_PER_MS;
	bool waits;
	int n;

	for (;;) {
		waits = is_in_the_way(c, p) && !wait_over(clock_ns(), deadline);
		n = gpc_pool_make(c, p, NULL, POOL_MS);
		if (!waits || (n != -ENOSPC && n != -EXDEV))
			return n;
		clock_sleep(NS_PER_MS);
	}
}

static int add_pool(struct gpc_tiers *t, struct lower *d, uint32_t kind, uint32_t ram,
		    uint32_t blocks, uint32_t space)
{
	const struct shm_pool *r = seg_pool(&t->c->seg, ram);
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = kind,
			      .space = space ? space : free_space(t->c),
			      .flags = GPC_POOL_CALLER | GPC_POOL_UNCHAINED,
			      .blocks = blocks,
			      .demote_to = -1 };
	int n = add_when_free(t->c, &p);

	if (n < 0)
		return n;
	d->pool = (uint32_t)n;
	d->space = p.space;
	d->blocks = blocks;
	d->record = pool_record(&t->c->seg, GPC_BLOCK(n, 0));
	d->block_bytes = r->block_bytes;
	memcpy(d->fingerprint, r->fingerprint, sizeof(d->fingerprint));
	d->shown = &seg_board(&t->c->seg)->tier[d->index];
	memset(d->shown, 0, sizeof(*d->shown));
	d->shown->kind = kind;
	d->shown->block_bytes = d->block_bytes;
	d->shown->state = GPC_TIER_DOWN;
	store_relaxed(&d->shown->pool, n);
	return slots_new(d);
}

/* ---- step 4: clears meanwhile ---- */

/* The cache counts the clears of all pools, and its last steward has noted the number that its
 * file had.  Another file may lack any of them. */
static void look_for_clears(struct gpc_tiers *t, uint64_t cleared)
{
	const struct shm_board *board = seg_board(&t->c->seg);
	bool same = !memcmp(board->file, t->file, sizeof(t->file));

	t->lower[0].clear = same ? load_relaxed(&board->cleared) != cleared : cleared != 0;
}

/* ---- step 5: threads ---- */

static void (*const run[])(struct gpc_tiers *t) = {
	[TIERS_UP] = up_thread,
	[TIERS_DOWN] = down_thread,
	[TIERS_STORE] = store_thread,
	[TIERS_FEED] = feed_thread,
};

/* Before the gate is open the threads do nothing.  Each runs once, until t->stop. */
static uint64_t step(struct worker *w)
{
	struct gpc_tiers *t = w->arg;

	if (!t->open || load_relaxed(&t->stop))
		return NEVER;
	worker_unlock(w);
	run[w - t->worker](t);
	worker_lock(w);
	return NEVER;
}

static const struct worker_kind kind[] = {
	[TIERS_UP] = { .name = "gpc-tiers-up", .step = step },
	[TIERS_DOWN] = { .name = "gpc-tiers-down", .step = step },
	[TIERS_STORE] = { .name = "gpc-tiers-store", .step = step },
	[TIERS_FEED] = { .name = "gpc-tiers-feed", .step = step },
};

static int start_threads(struct gpc_tiers *t)
{
	uint32_t n[] = { [TIERS_UP] = t->opt.questions ? t->opt.questions : 4,
			 [TIERS_DOWN] = t->disk ? 1 : 0,
			 [TIERS_STORE] = t->store ? 1 : 0,
			 [TIERS_FEED] = 1 },
		 i;

	for (i = 0; i < ARRAY_SIZE(n); i++)
		if (worker_start(&t->worker[i], n[i]) < (int)n[i])
			return err_set(
				EAGAIN,
				"a thread that keeps the tiers of %s cannot be started: raise the limits on processes "
				"and memory, or answer fewer questions at a time",
				t->c->seg.name);
	return 0;
}

/* A thread that goes to sleep has the lock until it sleeps, and has seen that the gate is
 * closed. */
static void open_gate(struct gpc_tiers *t)
{
	uint32_t i;

	for (i = 0; i < ARRAY_SIZE(t->worker); i++) {
		worker_lock(&t->worker[i]);
		store_relaxed(&t->open, true);
		worker_post_all(&t->worker[i]);
		worker_unlock(&t->worker[i]);
	}
}

static void stop_threads(struct gpc_tiers *t)
{
	uint32_t i;

	if (t->c)
		ring_leave(t->c, clock_ns() + WRITER_NS);
	store_release(&t->stop, 1);
	if (t->has_lock)
		board_wake(t);
	if (t->store)
		tier_remote_stop(t->store->store);
	for (i = 0; i < ARRAY_SIZE(t->worker); i++)
		worker_close(&t->worker[i]);
}

/* ---- the call ---- */

static int open_disk_pool(struct gpc_tiers *t, uint32_t ram, struct disk_options *ret)
{
	struct lower *d = &t->lower[0];
	uint32_t slots = 0;
	int err = plan_disk(t, ram, ret, &slots);

	if (err < 0)
		return err;
	d->t = t;
	d->name = "disk";
	d->index = BOARD_DISK;
	d->min_uses = t->opt.min_uses;
	d->exclusive = t->opt.flags & GPC_TIERS_EXCLUSIVE;
	t->disk = d;
	t->nlower = 1;
	return add_pool(t, d, GPC_DISK, ram, slots, t->opt.disk_space);
}

static int open_disk_file(struct gpc_tiers *t, const struct disk_options *opt)
{
	struct lower *d = &t->lower[0];
	struct disk_info info;
	int err = tier_disk_error(disk_open(t->opt.disk, opt, &d->file));

	if (err < 0)
		return err;
	disk_info(d->file, &info);
	memcpy(t->file, info.file, sizeof(t->file));
	t->made = info.made;
	d->note_room = MIN(info.note_bytes, notes_most(&t->c->seg));
	if (info.slots != d->blocks)
		return err_set(EAGAIN, "%s was replaced while it was opened: try again",
			       t->opt.disk);
	return 0;
}

static int open_tier_remote(struct gpc_tiers *t, uint32_t ram)
{
	struct lower *d = &t->lower[t->nlower];
	uint32_t blocks = tier_remote_blocks(t, ram);
	int err = plan_room(t, GPC_REMOTE, blocks);

	if (err < 0)
		return err;
	d->t = t;
	d->name = "remote";
	d->index = BOARD_REMOTE;
	d->min_uses = t->opt.remote_uses;
	t->nlower++;
	err = add_pool(t, d, GPC_REMOTE, ram, blocks, t->opt.remote_space);
	if (err == 0)
		err = tier_remote(t, ram, &d->store);
	if (err == 0)
		t->store = d;
	return err;
}

/* ---- steps 6, 7: the tiers begin ---- */

static int begin_tiers(struct gpc_tiers *t)
{
	int err = t->disk ? tier_disk_error(disk_begin(t->disk->file, t->disk->clear)) : 0;

	t->begun = err == 0;
	return err;
}

static void show(struct gpc_tiers *t, uint64_t cleared)
{
	struct shm_board *board = seg_board(&t->c->seg);

	board_begins(t);
	board_keeps(t, t->file);
	store_relaxed(&board->cleared, cleared);
	restore_settle(t);
	drops_missed(t);
	if (t->opt.disk)
		store_relaxed(&t->disk->shown->state, GPC_TIER_UP);
	board_show(t);
	open_gate(t);
}

static int look(struct gpc_tiers *t)
{
	struct disk_options disk;
	int ram = plan_ram(t), err = ram < 0 ? ram : plan_secret(t);

	if (err == 0 && t->opt.disk)
		err = open_disk_pool(t, (uint32_t)ram, &disk);
	if (err == 0 && t->opt.remote)
		err = open_tier_remote(t, (uint32_t)ram);
	if (err == 0 && t->opt.disk)
		err = open_disk_file(t, &disk);
	return err == 0 ? down_begin(t) : err;
}

static int open_all(struct gpc_tiers *t)
{
	uint64_t cleared = 0;
	int err = board_take(t);

	if (err == 0)
		err = drops_begin(t);
	if (err == 0)
		err = look(t);
	/* read before the head of the feed: a clear is in one of the two, or in both */
	if (err == 0) {
		cleared = load_acquire(&seg_state(&t->c->seg)->cleared);
		if (t->opt.disk)
			look_for_clears(t, cleared);
		err = feed_begin(t);
	}
	if (err == 0)
		err = restore_begin(t);
	if (err == 0)
		err = start_threads(t);
	if (err == 0)
		err = begin_tiers(t);
	if (err == 0)
		show(t, cleared);
	return err;
}

static void end(struct gpc_tiers *t)
{
	uint32_t i;

	stop_threads(t);
	down_end(t);
	feed_end(t);
	restore_end(t);
	board_leave(t);
	for (i = 0; i < t->nlower; i++) {
		slots_end(&t->lower[i]);
		disk_close(t->lower[i].file);
		if (t->lower[i].store)
			tier_remote_close(t->lower[i].store);
	}
	gpc_close(t->c);
	drops_end(t);
	free((char *)t->opt.disk);
	free(t);
}

GPC_EXPORT int gpc_tiers_open(const char *name, const struct gpc_tiers_options *opt,
			      gpc_tiers **ret)
{
	int err = plan_check(name, opt, ret);
	struct gpc_tiers *t;
	uint32_t i;

	if (err == 0 && opt->remote)
		err = remote_check(opt->remote);
	if (err == 0 && opt->flags & GPC_TIERS_CHECK) {
		*ret = NULL;
		return plan_try(name, opt);
	}
	if (err < 0)
		return err;
	t = calloc(1, sizeof(*t));
	if (t) {
		t->opt = *opt;
		t->opt.disk = opt->disk ? strdup(opt->disk) : NULL;
	}
	if (!t || (opt->disk && !t->opt.disk)) {
		free(t);
		return err_set(ENOMEM, "no memory for tiers");
	}
	pthread_mutex_init(&t->writing, NULL);
	for (i = 0; i < ARRAY_SIZE(kind); i++)
		worker_open(&t->worker[i], &kind[i], t);
	err = gpc_attach(name,
			 GPC_OPTIONS(gpc_attach_options, .timeout_ms = opt->timeout_ms,
				     .dir = opt->dir, .label = "tiers", .log = opt->log,
				     .log_arg = opt->log_arg),
			 0, &t->c);
	if (err == 0)
		err = open_all(t);
	if (err == 0)
		*ret = t;
	else
		end(t);
	return err;
}

GPC_EXPORT int gpc_tiers_close(gpc_tiers *t)
{
	if (!t)
		return 0;
	if (t->c->forked)
		return handle_check(t->c, true);
	end(t);
	return 0;
}
