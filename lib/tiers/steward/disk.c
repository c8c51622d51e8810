/* SPDX-License-Identifier: Apache-2.0 */
/* disk.c - the file of lib/tiers/disk as a tier.
 * Tests: t/tiers/rest.t t/tiers/down-and-up.t */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include "tiers/disk/format.h"
#include "tiers/steward/steward.h"

/* A call waits for all of its operations, since their memory is the caller's. */
struct io_batch {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	uint32_t left;
	struct gpc_tiers *t;
	bool reads;
};

static void one_ended(struct disk_op *op)
{
	struct io_batch *b = op->arg;

	if (b->reads)
		board_beat(b->t);
	pthread_mutex_lock(&b->lock);
	if (!--b->left)
		pthread_cond_signal(&b->ended);
	pthread_mutex_unlock(&b->lock);
}

static void fill_op(struct disk_op *op, enum disk_kind kind, const struct tier_item *it,
		    struct io_batch *b, uint64_t deadline_ns)
{
	*op = (struct disk_op){
		.kind = kind,
		.iov = it->iov,
		.niov = it->niov,
		.has_crc = it->has_crc,
		.parts = it->parts,
		.deadline_ns = deadline_ns,
		.done = one_ended,
		.arg = b,
		.what = { .slot = it->slot,
			  .key = it->key,
			  .parent = it->parent,
			  .depth = it->depth,
			  .tag = it->tag,
			  .sum = it->sum },
	};
	if (kind == DISK_WRITE && it->note_bytes) {
		op->note = (void *)(uintptr_t)it->note; /* it is only read */
		op->what.note_bytes = it->note_bytes;
	}
}

/* If the queue is full, this thread runs the operation itself. */
static void submit(struct disk *d, struct disk_op *op)
{
	int err = disk_submit(d, op);

	if (err == -EAGAIN) {
		op->result = disk_run(d, op);
		err = 0;
	} else if (!err) {
		return;
	}
	if (err)
		op->result = err;
	one_ended(op);
}

static void run(struct lower *d, enum disk_kind kind, struct tier_item *items, uint32_t n,
		uint64_t deadline_ns)
{
	struct io_batch b = { .lock = PTHREAD_MUTEX_INITIALIZER,
			      .ended = PTHREAD_COND_INITIALIZER,
			      .left = n,
			      .t = d->t,
			      .reads = kind == DISK_READ };
	struct disk_op *ops = calloc(n, sizeof(*ops));
	uint64_t now = disk_now(d->file);
	uint32_t i;

	for (i = 0; i < n; i++)
		items[i].result = -ENOMEM;
	if (!ops)
		return;
	for (i = 0; i < n; i++) {
		fill_op(&ops[i], kind, &items[i], &b, deadline_ns);
		/* in the order of the call, whichever thread writes first */
		ops[i].what.born_ns = now + i;
		submit(d->file, &ops[i]);
	}
	pthread_mutex_lock(&b.lock);
	while (b.left)
		pthread_cond_wait(&b.ended, &b.lock);
	pthread_mutex_unlock(&b.lock);
	for (i = 0; i < n; i++) {
		items[i].result = ops[i].result;
		items[i].sum = ops[i].what.sum;
	}
	free(ops);
}

void tier_disk_read(struct lower *d, struct tier_item *items, uint32_t n, uint64_t deadline_ns)
{
	run(d, DISK_READ, items, n, deadline_ns);
}

static bool is_failure(int result)
{
	return result && result != -ESTALE && result != -ETIME && result != -ECANCELED &&
	       result != -EINVAL;
}

/* The caller handles one bad place by taking another one.  If nothing can be written, it need not
 * try again at once.  Removals and earlier writes are not affected.  Only one thread writes. */
void tier_disk_write(struct lower *d, struct tier_item *items, uint32_t n, uint64_t deadline_ns)
{
	uint32_t i, failed = 0, whole = 0;

	run(d, DISK_WRITE, items, n, deadline_ns);
	for (i = 0; i < n; i++) {
		failed += is_failure(items[i].result);
		whole += !items[i].result;
	}
	if (failed == n) {
		if (!d->fails_ns)
			log_say(&d->t->c->log, LOG_ERR,
				"tier disk of %s: writes fail: %s; they are tried again in 1 s, and then at "
				"intervals of up to 60 s",
				d->t->c->seg.name, gpc_strerror(items[0].result));
		d->fails_ns = d->fails_ns ? rest_longer(d->fails_ns) : REST_NS;
		d->writes_ns = clock_ns() + d->fails_ns;
	} else if (whole && d->fails_ns) {
		d->fails_ns = 0;
		log_say(&d->t->c->log, LOG_NOTICE, "tier disk of %s: writes succeed again",
			d->t->c->seg.name);
	}
}

/* The notes of each group of slots lie side by side, but are read in another order. */
static void notes_ahead(struct disk *d, const struct disk_slot *there, uint64_t n)
{
	uint64_t i, most = 0;
	uint8_t *seen;

	for (i = 0; i < n; i++)
		most = MAX(most, there[i].slot);
	seen = calloc(most / DISK_GROUP + 1, 1);
	for (i = 0; seen && i < n; i++)
		if (there[i].note_bytes && !seen[there[i].slot / DISK_GROUP]++)
			disk_note_ahead(d, there[i].slot);
	free(seen);
}

int tier_disk_scan(struct lower *d)
{
	int err = disk_scan(d->file, &d->found, &d->nfound);

	if (err == 0 && d->note_room)
		notes_ahead(d->file, d->found, d->nfound);
	return err;
}

uint64_t tier_disk_turn(const struct lower *d)
{
	return MAX(disk_turn(d->file), d->writes_ns);
}
