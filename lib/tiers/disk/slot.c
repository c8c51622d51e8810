/* SPDX-License-Identifier: Apache-2.0 */
/* slot.c - one block: written, read, looked at, forgotten.
 *
 * A write frees the header before it touches the image, and stores the header last.  The page
 * cache keeps that order for every other process.  After a loss of power the checksums show what
 * is missing.
 * Tests: t/tiers/disk-faults.t t/tiers/disk-slots.t t/tiers/disk-kills.t t/tiers/disk-power.t
 *   t/bytes/seals.t */
#include "config.h"

#include "tiers/disk/state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "index/base/crc.h"
#include "index/base/err.h"
#include "index/base/key.h"

static const struct disk_header zeros;

static uint32_t checksum(const struct disk_header *h)
{
	return crc32c(0, h, offsetof(struct disk_header, checksum));
}

/* Version 1 did not know structures: its bytes are for pools without a seed. */
static bool sum_of(const struct disk *d, const struct disk_header *h, struct image_sum *ret)
{
	*ret = (struct image_sum){ h->crc, h->seed, h->word };
	if (h->magic != DISK_HEADER_1)
		return h->magic == DISK_HEADER_MAGIC;
	*ret = (struct image_sum){ .crc = h->crc };
	return h->seed == 1 && h->word == d->super.image_bytes;
}

int slot_check(const struct disk *d, const struct disk_header *h, uint64_t slot,
	       struct disk_slot *ret)
{
	const gpc_key key = { { h->key[0], h->key[1] } };
	struct image_sum image;

	if (!memcmp(h, &zeros, sizeof(zeros)))
		return -ENOENT;
	if (!sum_of(d, h, &image) || h->checksum != checksum(h) || h->slot != slot ||
	    memcmp(h->file, d->super.file, 16) || h->note_bytes > d->super.note_bytes ||
	    key_is_zero(&key) || key_is_root(&key) || h->epoch > load_relaxed(&d->epoch))
		return -EBADMSG;
	*ret = (struct disk_slot){
		.slot = slot,
		.key = key,
		.parent = { { h->parent[0], h->parent[1] } },
		.depth = h->depth,
		.tag = h->tag,
		.sum = image,
		.note_bytes = h->note_bytes,
		.note_crc = h->note_crc,
		.born_ns = h->born_ns,
		.written_ns = h->written_ns,
		.serial = h->serial,
	};
	return h->epoch == load_relaxed(&d->epoch) ? 0 : -ESTALE;
}

/* The slot's header, checked as by slot_check(), except that an older epoch means no block; or an
 * error of the file. */
static int read_header(struct disk *d, uint64_t slot, struct disk_slot *ret)
{
	struct disk_header h;
	int err = io_read(d->fd, &h, sizeof(h), disk_header_at(d, slot));

	if (err)
		return err;
	err = slot_check(d, &h, slot, ret);
	return err == -ESTALE ? -ENOENT : err;
}

static int clear_header(struct disk *d, uint64_t slot)
{
	return io_store(d, &zeros, sizeof(zeros), disk_header_at(d, slot));
}

/* Clear the header unless it is all zeros. */
static int clear_if_used(struct disk *d, uint64_t slot)
{
	struct disk_header h;
	int err = io_read(d->fd, &h, sizeof(h), disk_header_at(d, slot));

	if (err)
		return err;
	return memcmp(&h, &zeros, sizeof(h)) ? clear_header(d, slot) : 0;
}

/* ---- write ---- */

/* Not if a clear came meanwhile: with the clear's epoch this block would count as a later one. */
static int store_header(struct disk *d, struct disk_slot *s, uint64_t epoch)
{
	struct disk_header h = {
		.magic = DISK_HEADER_MAGIC,
		.seed = s->sum.seed,
		.epoch = epoch,
		.slot = s->slot,
		.serial = s->serial,
		.key = { s->key.w[0], s->key.w[1] },
		.parent = { s->parent.w[0], s->parent.w[1] },
		.depth = s->depth,
		.tag = s->tag,
		.word = s->sum.word,
		.born_ns = s->born_ns,
		.written_ns = s->written_ns,
		.crc = s->sum.crc,
		.note_bytes = s->note_bytes,
		.note_crc = s->note_crc,
	};
	int err = -ESTALE;

	memcpy(h.file, d->super.file, 16);
	h.checksum = checksum(&h);
	pthread_rwlock_rdlock(&d->epoch_lock);
	if (load_relaxed(&d->epoch) == epoch)
		err = io_store(d, &h, sizeof(h), disk_header_at(d, s->slot));
	pthread_rwlock_unlock(&d->epoch_lock);
	return err;
}

static int run_write(struct disk *d, struct disk_op *op)
{
	struct disk_slot *s = &op->what;
	uint64_t epoch = load_relaxed(&d->epoch);
	int err = clear_if_used(d, s->slot);

	if (err)
		return err;
	err = io_write_image(d, op);
	if (!err && s->note_bytes)
		err = io_store(d, op->note, s->note_bytes, disk_note_at(d, s->slot));
	if (err)
		return err;
	s->note_crc = crc32c(0, op->note, s->note_bytes);
	if (!s->born_ns)
		s->born_ns = disk_now(d);
	s->written_ns = super_real_ns();
	s->serial = count_next(&d->serial) + 1;
	err = store_header(d, s, epoch);
	if (!err)
		super_clock_save(d);
	return err;
}

/* ---- read ---- */

static int read_note(struct disk *d, const struct disk_slot *s, void *note)
{
	int err = io_read(d->fd, note, s->note_bytes, disk_note_at(d, s->slot));

	if (err)
		return err;
	return crc32c(0, note, s->note_bytes) == s->note_crc ? 0 : -EBADMSG;
}

static int look(struct disk *d, struct disk_slot *what, void *note, struct disk_slot *ret)
{
	int err = read_header(d, what->slot, ret);

	if (!err && !key_is_zero(&what->key) && !key_same(&ret->key, &what->key))
		err = -ESTALE;
	if (!err && note && ret->note_bytes)
		err = read_note(d, ret, note);
	return err;
}

int disk_look(struct disk *d, struct disk_slot *what, void *note)
{
	struct disk_slot found;
	int err = what->slot < d->super.slots ? look(d, what, note, &found) : -EINVAL;

	if (!err)
		*what = found;
	return err;
}

int disk_note(struct disk *d, const struct disk_slot *what, void *note)
{
	if (what->slot >= d->super.slots || what->note_bytes > d->super.note_bytes)
		return -EINVAL;
	return read_note(d, what, note);
}

/* Reads whole pages of notes, so no page of an image gets into the page cache. */
void disk_note_ahead(struct disk *d, uint64_t slot)
{
	uint64_t first = slot - slot % DISK_GROUP;

	if (d->super.note_bytes && slot < d->super.slots)
		posix_fadvise(d->fd, (off_t)disk_note_at(d, first),
			      (off_t)(d->images_at - DISK_GROUP * DISK_HEADER_BYTES),
			      POSIX_FADV_WILLNEED);
}

static int run_read(struct disk *d, struct disk_op *op)
{
	struct disk_slot found;
	int err = look(d, &op->what, op->note, &found);

	if (!err)
		err = sums_compare(found.sum.seed, op->what.sum.seed, &op->parts);
	if (err)
		return err;
	err = io_read_image(d, op, found.sum.crc);
	if (!err)
		op->what = found;
	return err;
}

/* ---- blocks that go ---- */

/* A header that could not be freed would outlive the next sync, so nothing is acknowledged then.
 * In a file that was cut the header is gone. */
int disk_free(struct disk *d, uint64_t slot)
{
	int err = slot < d->super.slots ? clear_if_used(d, slot) : -EINVAL;

	if (err && err != -EINVAL && err != -ENODATA)
		super_break(d);
	return err;
}

int disk_sync(struct disk *d)
{
	int err;

	pthread_mutex_lock(&d->super_lock);
	err = super_sync(d);
	pthread_mutex_unlock(&d->super_lock);
	return err;
}

int disk_clear(struct disk *d)
{
	int err;

	pthread_mutex_lock(&d->super_lock);
	pthread_rwlock_wrlock(&d->epoch_lock);
	super_next_epoch(d);
	store_relaxed(&d->epoch, d->super.epoch);
	pthread_rwlock_unlock(&d->epoch_lock);
	err = super_commit(d);
	pthread_mutex_unlock(&d->super_lock);
	return err;
}

/* ---- all kinds ---- */

static int check_pieces(const struct disk *d, const struct disk_op *op)
{
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; i < op->niov; i++) {
		if (op->iov[i].iov_len > d->super.image_bytes - bytes)
			return -EINVAL;
		bytes += op->iov[i].iov_len;
	}
	return bytes == d->super.image_bytes ? 0 : -EINVAL;
}

int slot_check_op(const struct disk *d, const struct disk_op *op)
{
	const struct disk_slot *s = &op->what;

	switch (op->kind) {
	case DISK_WRITE:
		if (s->note_bytes > d->super.note_bytes || (s->note_bytes && !op->note))
			return -EINVAL;
		/* fall through */
	case DISK_READ:
		if (s->slot >= d->super.slots || key_is_zero(&s->key) || key_is_root(&s->key))
			return -EINVAL;
		return check_pieces(d, op);
	}
	return -EINVAL;
}

void slot_run(struct disk *d, struct disk_op *op)
{
	op->result = op->kind == DISK_READ ? run_read(d, op) : run_write(d, op);
}

int disk_run(struct disk *d, struct disk_op *op)
{
	int err = slot_check_op(d, op);

	if (err)
		return op->result = err;
	slot_run(d, op);
	return op->result;
}
