/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c - all blocks that a file has, parents first.
 *
 * Headers are read a group at a time.  If the disk refuses a page of them, the group is read page
 * by page, so that the other pages are not lost.  The refused page is written anew, with free
 * slots.  Its blocks are lost, and if it could be read again later, it would bring removed keys
 * back.  Parts of the file that were never written are passed over.
 * Tests: t/tiers/disk-scan.t t/tiers/disk-faults.t t/tiers/disk-slots.t */
#include "config.h"

#include "tiers/disk/state.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "index/base/key.h"

#define IN_PAGE (DISK_PAGE / DISK_HEADER_BYTES)

struct scanned {
	struct disk_slot *at;
	uint64_t n, room;
};

static int keep(struct scanned *f, const struct disk_slot *s)
{
	struct disk_slot *more;
	uint64_t room = f->room ? f->room * 2 : DISK_GROUP;

	if (f->n == f->room) {
		more = reallocarray(f->at, room, sizeof(*more));
		if (!more)
			return -ENOMEM;
		f->at = more;
		f->room = room;
	}
	f->at[f->n++] = *s;
	return 0;
}

static int look_at(struct disk *d, const struct disk_header *h, uint64_t first, uint32_t n,
		   struct scanned *f)
{
	struct disk_slot s;
	uint32_t i;
	int err = 0;

	for (i = 0; i < n && err != -ENOMEM; i++) {
		err = slot_check(d, &h[i], first + i, &s);
		if (!err)
			err = keep(f, &s);
	}
	return err == -ENOMEM ? err : 0;
}

/* Is it certain that nothing was ever written there? */
static bool is_hole(const struct disk *d, uint64_t from, uint64_t bytes)
{
	off_t data = lseek(d->fd, (off_t)from, SEEK_DATA);

	return data < 0 ? errno == ENXIO : (uint64_t)data >= from + bytes;
}

/* ---- headers that become free ---- */

#define OWED_PAGE (1ull << 63) /* all headers of the page that has this one */

static int owe(struct disk *d, uint64_t what)
{
	uint32_t room = d->owed_room ? 2 * d->owed_room : 64;
	uint64_t *more;

	if (d->nowed == d->owed_room) {
		more = reallocarray(d->owed, room, sizeof(*more));
		if (!more)
			return -ENOMEM;
		d->owed = more;
		d->owed_room = room;
	}
	d->owed[d->nowed++] = what;
	return 0;
}

/* The page's content is unknown.  If the page cannot be written, no removal is acknowledged. */
static void free_page(struct disk *d, uint64_t first)
{
	static const uint8_t page[DISK_PAGE];

	if (io_write(d->fd, page, sizeof(page), disk_header_at(d, first)))
		super_break(d);
}

static int page_is_lost(struct disk *d, uint64_t first)
{
	if (!d->begun)
		return owe(d, first | OWED_PAGE);
	free_page(d, first);
	return 0;
}

static int is_twin(struct disk *d, uint64_t slot)
{
	if (!d->begun)
		return owe(d, slot);
	disk_free(d, slot);
	return 0;
}

void scan_owed(struct disk *d)
{
	uint32_t i;

	for (i = 0; i < d->nowed; i++)
		if (d->owed[i] & OWED_PAGE)
			free_page(d, d->owed[i] & ~OWED_PAGE);
		else
			disk_free(d, d->owed[i]);
	free(d->owed);
	d->owed = NULL;
	d->nowed = d->owed_room = 0;
}

/* ---- blocks that are there ---- */

static int look_by_page(struct disk *d, struct disk_header *h, uint64_t first, uint32_t n,
			struct scanned *f)
{
	uint32_t i, k;
	int err = 0;

	for (i = 0; i < n && !err; i += k) {
		k = MIN(n - i, IN_PAGE);
		err = io_read(d->fd, h, k * sizeof(*h), disk_header_at(d, first + i));
		if (err)
			err = err == -ENODATA ? 0 : page_is_lost(d, first + i);
		else
			err = look_at(d, h, first + i, k, f);
	}
	return err;
}

static int look_at_group(struct disk *d, uint64_t first, uint64_t end, struct disk_header *h,
			 struct scanned *f)
{
	uint32_t n = (uint32_t)MIN(end - first, DISK_GROUP);
	uint64_t at = disk_header_at(d, first);

	if (is_hole(d, at, n * sizeof(*h)))
		return 0;
	if (io_read(d->fd, h, n * sizeof(*h), at))
		return look_by_page(d, h, first, n, f);
	return look_at(d, h, first, n, f);
}

/* Parents are less deep than their children.  If a key is there twice, the later write comes
 * first. */
static int compare(const void *a, const void *b)
{
	const struct disk_slot *s = a, *t = b;

	if (s->depth != t->depth)
		return s->depth < t->depth ? -1 : 1;
	if (s->key.w[0] != t->key.w[0])
		return s->key.w[0] < t->key.w[0] ? -1 : 1;
	if (s->key.w[1] != t->key.w[1])
		return s->key.w[1] < t->key.w[1] ? -1 : 1;
	return s->serial > t->serial ? -1 : s->serial < t->serial;
}

static int drop_twins(struct disk *d, struct scanned *f)
{
	uint64_t i, n = 0;
	int err = 0;

	for (i = 0; i < f->n && !err; i++) {
		if (n && key_same(&f->at[n - 1].key, &f->at[i].key))
			err = is_twin(d, f->at[i].slot);
		else
			f->at[n++] = f->at[i];
	}
	f->n = n;
	return err;
}

int disk_scan(struct disk *d, struct disk_slot **ret, uint64_t *ret_n)
{
	struct disk_header *h = malloc(DISK_GROUP * sizeof(*h));
	struct scanned f = { NULL, 0, 0 };
	uint64_t first, end = d->unmade ? 0 : MIN(d->super.slots, d->due);
	int err = h ? 0 : -ENOMEM;

	for (first = 0; first < end && !err; first += DISK_GROUP)
		err = look_at_group(d, first, end, h, &f);
	free(h);
	if (f.n && !err)
		qsort(f.at, f.n, sizeof(*f.at), compare);
	if (!err)
		err = drop_twins(d, &f);
	if (err) {
		free(f.at);
		return err;
	}
	*ret = f.at;
	*ret_n = f.n;
	return 0;
}
