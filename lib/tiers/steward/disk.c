/* SPDX-License-Identifier: Apache-2.0 */
/* disk.c - the file of lib/disk as a tier.
 * Tests: t/tiers/rest.t t/tiers/down-and-up.t */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include "index/base/order.h"
#include "tiers/disk/disk.h"
#include "tiers/disk/format.h"
#include "tiers/steward/tier.h"

struct tier_file {
	struct tier tier;
	struct disk *disk;
	bool notes;
	const struct log *log;
	const char *of;              /* whose cache */
	uint64_t pause_ns, until_ns; /* writes fail: no more of them before that */
};

/* A call waits for all of its operations: their memory is the caller's. */
struct batch {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	uint32_t left;
	uint64_t *beat; /* of a read; NULL */
};

static struct disk *file_of(struct tier *t)
{
	return ((struct tier_file *)t)->disk;
}

static void one_ended(struct disk_op *op)
{
	struct batch *b = op->arg;

	if (b->beat)
		store_relaxed(b->beat, clock_ns());
	pthread_mutex_lock(&b->lock);
	if (!--b->left)
		pthread_cond_signal(&b->ended);
	pthread_mutex_unlock(&b->lock);
}

static void fill_op(struct disk_op *op, enum disk_kind kind, const struct tier_item *it,
		    struct batch *b, uint64_t deadline_ns)
{
	*op = (struct disk_op){
		.kind = kind,
		.iov = it->iov,
		.niov = it->niov,
		.has_crc = it->has_crc,
		.deadline_ns = deadline_ns,
		.done = one_ended,
		.arg = b,
		.what = { .slot = it->slot,
			  .key = it->key,
			  .parent = it->parent,
			  .depth = it->depth,
			  .tag = it->tag,
			  .crc = it->crc },
	};
	if (kind == DISK_WRITE && it->note_bytes) {
		op->note = (void *)(uintptr_t)it->note; /* it is only read */
		op->what.note_bytes = it->note_bytes;
	}
}

/* Where as many wait as may, this thread does it itself. */
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

static void run(struct tier *t, enum disk_kind kind, struct tier_item *items, uint32_t n,
		uint64_t deadline_ns)
{
	struct batch b = { .lock = PTHREAD_MUTEX_INITIALIZER,
			   .ended = PTHREAD_COND_INITIALIZER,
			   .left = n,
			   .beat = kind == DISK_READ ? t->beat : NULL };
	struct disk_op *ops = calloc(n, sizeof(*ops));
	uint64_t now = disk_now(file_of(t));
	uint32_t i;

	for (i = 0; i < n; i++)
		items[i].result = -ENOMEM;
	if (!ops)
		return;
	for (i = 0; i < n; i++) {
		fill_op(&ops[i], kind, &items[i], &b, deadline_ns);
		/* in the order of the call, whichever thread comes first */
		ops[i].what.born_ns = now + i;
		submit(file_of(t), &ops[i]);
	}
	pthread_mutex_lock(&b.lock);
	while (b.left)
		pthread_cond_wait(&b.ended, &b.lock);
	pthread_mutex_unlock(&b.lock);
	for (i = 0; i < n; i++) {
		items[i].result = ops[i].result;
		items[i].crc = ops[i].what.crc;
	}
	free(ops);
}

static void file_read(struct tier *t, struct tier_item *items, uint32_t n, uint64_t deadline_ns)
{
	run(t, DISK_READ, items, n, deadline_ns);
}

static bool is_failure(int result)
{
	return result && result != -ESTALE && result != -ETIME && result != -ECANCELED &&
	       result != -EINVAL;
}

/* One bad place is the caller's: it takes another one.  Where nothing can be written it need not
 * try at once.  Removals, and what was written before, are not affected.  One thread writes. */
static void file_write(struct tier *t, struct tier_item *items, uint32_t n, uint64_t deadline_ns)
{
	struct tier_file *f = (struct tier_file *)t;
	uint32_t i, failed = 0, whole = 0;

	run(t, DISK_WRITE, items, n, deadline_ns);
	for (i = 0; i < n; i++) {
		failed += is_failure(items[i].result);
		whole += !items[i].result;
	}
	if (failed == n) {
		if (!f->pause_ns)
			log_say(f->log, LOG_ERR,
				"tier disk of %s: writes fail: %s; they are tried again in 1 s, and then at "
				"intervals of up to 60 s",
				f->of, gpc_strerror(items[0].result));
		f->pause_ns = f->pause_ns ? rest_longer(f->pause_ns) : REST_NS;
		f->until_ns = clock_ns() + f->pause_ns;
	} else if (whole && f->pause_ns) {
		f->pause_ns = 0;
		log_say(f->log, LOG_NOTICE, "tier disk of %s: writes succeed again", f->of);
	}
}

static int file_clear(struct tier *t)
{
	return disk_clear(file_of(t));
}

int tier_disk_sync(struct tier_file *f)
{
	return disk_sync(f->disk);
}

static void file_forget(struct tier *t, uint64_t slot, const gpc_key *key)
{
	(void)key;
	disk_free(file_of(t), slot);
}

/* They lie side by side for each group of slots, and are read in another order. */
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

int tier_disk_note(struct tier_file *f, const struct tier_found *found, void *to)
{
	struct disk_slot what = { .slot = found->slot,
				  .note_bytes = found->note_bytes,
				  .note_crc = found->note_crc };

	return disk_note(f->disk, &what, to);
}

int tier_disk_scan(struct tier_file *f, struct tier_found **ret, uint64_t *ret_n)
{
	struct disk *d = f->disk;
	struct disk_slot *there;
	struct tier_found *found;
	uint64_t n, i, now;
	int err = disk_scan(d, &there, &n);

	if (err < 0)
		return err;
	if (f->notes)
		notes_ahead(d, there, n);
	found = malloc((size_t)(n + 1) * sizeof(*found));
	now = disk_now(d);
	for (i = 0; found && i < n; i++)
		found[i] = (struct tier_found){
			.slot = there[i].slot,
			.key = there[i].key,
			.parent = there[i].parent,
			.depth = there[i].depth,
			.tag = there[i].tag,
			.age_ns = there[i].born_ns < now ? now - there[i].born_ns : 0,
			.note_bytes = there[i].note_bytes,
			.note_crc = there[i].note_crc,
		};
	free(there);
	*ret = found;
	*ret_n = n;
	return found ? 0 : -ENOMEM;
}

int tier_disk_begin(struct tier_file *f, bool clear)
{
	return disk_begin(f->disk, clear);
}

uint64_t tier_disk_turn(struct tier_file *f)
{
	return MAX(disk_turn(f->disk), f->until_ns);
}

static void file_close(struct tier *t)
{
	disk_close(file_of(t));
	free(t);
}

static const struct tier_ops disk_ops = {
	.name = "disk",
	.kind = GPC_DISK,
	.read = file_read,
	.write = file_write,
	.forget = file_forget,
	.clear = file_clear,
	.close = file_close,
};

int tier_disk(struct disk *d, bool notes, const struct log *log, const char *of,
	      struct tier_file **ret)
{
	struct tier_file *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	*t = (struct tier_file){
		.tier.ops = &disk_ops, .disk = d, .notes = notes, .log = log, .of = of
	};
	*ret = t;
	return 0;
}

struct tier *tier_disk_tier(struct tier_file *f)
{
	return &f->tier;
}
