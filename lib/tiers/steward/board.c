/* SPDX-License-Identifier: Apache-2.0 */
/* board.c - the lock, the bell and the numbers by which peers find the steward of the tiers.
 * Tests: t/tiers/life.t t/tiers/die.t t/tiers/durable.t t/tiers/refused.t
 *   t/bytes/stopped-steward.t */
#include "config.h"

#include <errno.h>
#include <string.h>
#include "index/base/futex.h"
#include "index/segment/lockfile.h"
#include "tiers/steward/steward.h"

static void tell(struct shm_board *d)
{
	order_add32(&d->news, 1);
	futex_wake_all(&d->news);
}

void board_begins(struct gpc_tiers *t)
{
	struct shm_board *d = seg_board(&t->c->seg);

	store_relaxed(&d->since, load_relaxed(&d->durable));
	/* (y) the words of the last steward, and the place in the feed from which this one
	 * follows, are stored before its life; pairs with index/request/durable.c.  If we die
	 * before it, the life is odd and the lock free */
	store_release(&d->life, load_relaxed(&d->life) + 1);
	tell(d);
}

int board_take(struct gpc_tiers *t)
{
	struct shm_board *d = seg_board(&t->c->seg);
	int err = lock_try(t->c->seg.lock_fd, LOCK_TIERS);

	if (err == -EAGAIN)
		return err_set(EBUSY,
			       "another process keeps the tiers below RAM of %s already (peer %d)",
			       t->c->seg.name, (int)load_relaxed(&d->steward) - 1);
	if (err < 0)
		return err_set(-err, "gpc.%s.lock: no lock: %s", t->c->seg.name, strerror(-err));
	t->has_lock = true;
	/* Odd: the holder of the lock begins.  Its answers from now on do not concern the time
	 * before, and the next `since` is later.  A life that fails leaves it odd. */
	store_relaxed(&d->life, load_relaxed(&d->life) | 1);
	order_fence();
	tell(d);
	return 0;
}

/* If another life kept the file last, or none did, the file may have everything that was ever
 * removed.  Zeros: no file is kept.  If we die in between, `file` differs from it, or nothing
 * counts as done for it. */
void board_keeps(struct gpc_tiers *t, const uint8_t file[16])
{
	struct shm_board *d = seg_board(&t->c->seg);
	uint32_t life = load_relaxed(&d->life);

	if (!memcmp(d->file, file, sizeof(d->file)))
		return;
	store_relaxed(&d->kept, life);
	memset(d->file, 0, sizeof(d->file));
	store_relaxed(&d->durable, 0);
	store_relaxed(&d->drops, 0);
	store_relaxed(&d->cleared, 0);
	order_fence();
	memcpy(d->file, file, sizeof(d->file));
}

/* Questions that the last steward had taken when it died are asked once more. */
static void take_over(struct gpc_tiers *t)
{
	const struct segment *s = &t->c->seg;
	uint32_t peer, i, word;

	for (peer = 0; peer < s->header.geometry.max_peers; peer++)
		for (i = 0; i < SHM_ASKS; i++) {
			struct shm_ask *a = seg_ask(s, peer, i);

			word = load_acquire(&a->word);
			if (ASK_STATE(word) == ASK_TAKEN)
				order_cas32(&a->word, word, ASK_WORD(ASK_POSTED, ASK_SEQ(word)));
		}
}

static void say_what(struct shm_board *d, uint32_t i, const char *what)
{
	memset(d->what[i], 0, sizeof(d->what[i]));
	if (what)
		memcpy(d->what[i], what, strnlen(what, sizeof(d->what[i]) - 1));
}

void board_show(struct gpc_tiers *t)
{
	struct shm_board *d = seg_board(&t->c->seg);
	uint32_t i, k;

	/* the counters are of another steward, which had other tiers */
	for (i = 0; i < SHM_TIERS; i++) {
		for (k = 0; k < t->nlower && t->lower[k].index != i; k++)
			;
		if (k == t->nlower)
			store_relaxed(&d->tier[i].kind, 0);
	}
	say_what(d, BOARD_DISK, t->opt.disk);
	say_what(d, BOARD_REMOTE, t->opt.remote);
	take_over(t);
	d->sleepers = 0;
	board_beat(t);
	/* (r) the tiers, and the questions that a dead steward had taken, are stored before the
	 * new steward's name; pairs with index/request/durable.c.  If we die before it, our lock
	 * is free and nobody keeps the tiers. */
	store_release(&d->steward, t->c->peer + 1);
}

void board_leave(struct gpc_tiers *t)
{
	struct shm_board *d = seg_board(&t->c->seg);
	uint32_t i;

	if (!t->has_lock)
		return;
	/* it is done with the lock held: later values there are the next steward's */
	for (i = 0; i < SHM_TIERS; i++) {
		store_relaxed(&d->tier[i].state, GPC_TIER_DOWN);
		store_relaxed(&d->tier[i].pool, -1);
	}
	lock_drop(t->c->seg.lock_fd, LOCK_TIERS);
	t->has_lock = false;
	tell(d); /* waiting processes see that nobody has the lock */
}

void board_beat(struct gpc_tiers *t)
{
	store_relaxed(&seg_board(&t->c->seg)->beat, clock_ns());
}

uint32_t board_bell(const struct gpc_tiers *t)
{
	return load_acquire(&seg_board(&t->c->seg)->bell);
}

void board_sleep(struct gpc_tiers *t, uint32_t seen, uint64_t ns)
{
	struct shm_board *d = seg_board(&t->c->seg);

	/* `sleepers` is raised before the bell is read: steward_ring does the reverse */
	order_add32(&d->sleepers, 1);
	if (load_relaxed(&d->bell) == seen && !steward_stops(t))
		futex_wait(&d->bell, seen, ns);
	order_add32(&d->sleepers, (uint32_t)-1);
}

void board_wake(struct gpc_tiers *t)
{
	struct shm_board *d = seg_board(&t->c->seg);

	order_add32(&d->bell, 1);
	futex_wake_all(&d->bell);
}

void board_durable(struct gpc_tiers *t, uint64_t number, uint64_t cleared)
{
	struct shm_board *d = seg_board(&t->c->seg);

	store_relaxed(&d->cleared, cleared);
	store_relaxed(&d->drops, t->since);
	/* (o) the disk has it before the number says so; pairs with index/request/durable.c.  If
	 * we die before it, a waiting process sees that our lock is gone. */
	store_release(&d->durable, number);
	order_add32(&d->news, 1);
	if (load_relaxed(&d->waiters))
		futex_wake_all(&d->news);
}
