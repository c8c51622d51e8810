/* SPDX-License-Identifier: Apache-2.0 */
/* make.c - a file is made, grown or cut.
 *
 *   made     A superblock that says UNMADE is stored, the room is allocated, then both superblocks are
 *            stored.  A death before that leaves an empty file, or one that says UNMADE.  It holds
 *            nothing, and the next process makes it anew.
 *   grown    The file ends where the superblocks say, since bytes beyond that are cut off first.  The
 *            room is allocated; headers of the last group that lie beyond the old end are made free;
 *            then the superblocks are stored.
 *   cut      The superblocks are stored, then the end is cut off.  A death in between leaves a longer
 *            file, whose end nobody reads.
 *   cleared  With one of these changes, or without: the superblocks get another epoch.
 *
 * If superblocks cannot be written, both get their old bytes again.
 * Tests: t/tiers/disk-kills.t t/tiers/disk-power.t t/tiers/disk-files.t */
#include "config.h"

#include "tiers/disk/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "index/base/err.h"
#include "index/base/key.h"

void make_geometry(struct disk *d)
{
	d->images_at = DISK_GROUP * DISK_HEADER_BYTES +
		       ROUND_UP((uint64_t)DISK_GROUP * d->super.note_bytes, DISK_PAGE);
	d->group_bytes = d->images_at + DISK_GROUP * d->super.slot_bytes;
}

uint64_t make_secret_check(const uint8_t secret[16])
{
	static const char what[] = "gpc disk: which secret";
	struct key_secret s;

	memcpy(&s, secret, sizeof(s));
	return siphash128(&s, what, sizeof(what), 2, 4).w[0];
}

int make_check(const struct disk_options *opt)
{
	int err = opt->slots ? err_range("slots", opt->slots, 1, DISK_MOST_SLOTS) : 0;

	if (!err && opt->image_bytes)
		err = err_range("image_bytes", opt->image_bytes, 1, DISK_MOST_IMAGE);
	if (!err)
		err = err_range("note_bytes", opt->note_bytes, 0, DISK_MOST_NOTE);
	if (!err && opt->threads)
		err = err_range("threads", opt->threads, 1, DISK_MOST_THREADS);
	return err;
}

/* ---- room ---- */

#define UNKNOWN UINT64_MAX

static uint64_t bytes_left(const struct disk *d)
{
	struct statvfs fs;

	return fstatvfs(d->fd, &fs) ? UNKNOWN : (uint64_t)fs.f_bavail * fs.f_frsize;
}

/* left: the free bytes before any were allocated; a part of them may be taken by now. */
static int refuse_room(const struct disk *d, int err, uint64_t bytes, uint64_t left)
{
	char there[48] = "";

	if (left != UNKNOWN)
		snprintf(there, sizeof(there), ", and %llu are free", (unsigned long long)left);
	if (err == EDQUOT)
		return err_set(
			ENOSPC,
			"no room for %s, which needs %llu bytes more than the quota leaves: free some, or ask "
			"for fewer slots",
			d->path, (unsigned long long)bytes);
	return err_set(
		ENOSPC,
		"no room for %s, which needs %llu bytes more%s: free some, or ask for fewer slots",
		d->path, (unsigned long long)bytes, there);
}

/* Allocate the bytes: if that succeeds, they are there when they are written. */
static int find_room(struct disk *d, uint64_t from, uint64_t to)
{
	uint64_t left = bytes_left(d);
	struct rlimit most;
	int err;

	if (!getrlimit(RLIMIT_FSIZE, &most) && most.rlim_cur != RLIM_INFINITY && to > most.rlim_cur)
		return err_set(
			EFBIG,
			"%s needs %llu bytes, and files of this process may have %llu: raise "
			"the limit (ulimit -f), or ask for fewer slots",
			d->path, (unsigned long long)to, (unsigned long long)most.rlim_cur);
	do
		err = posix_fallocate(d->fd, (off_t)from, (off_t)(to - from));
	while (err == EINTR);
	if (err == EFBIG)
		return err_set(EFBIG,
			       "%s cannot have %llu bytes on its file system: ask for fewer slots",
			       d->path, (unsigned long long)to);
	errno = err;
	if (err == ENOSPC || err == EDQUOT)
		return refuse_room(d, err, to - from, left);
	return err ? err_sys(0, "%s cannot have %llu bytes", d->path, (unsigned long long)to) : 0;
}

static int set_end(struct disk *d, uint64_t end)
{
	int err;

	do
		err = ftruncate(d->fd, (off_t)end) ? -errno : 0;
	while (err == -EINTR);
	return err ? err_sys(0, "%s cannot be cut to %llu bytes", d->path, (unsigned long long)end)
		   : 0;
}

/* Runs after an error, whose sentence stays.  A part that cannot be cut off is never read. */
static void set_end_again(struct disk *d, uint64_t end)
{
	if (ftruncate(d->fd, (off_t)end) && d->log)
		log_say(d->log, LOG_WARNING, "%s cannot be cut to %llu bytes: %s", d->path,
			(unsigned long long)end, strerror(errno));
}

static int say(struct disk *d, int err)
{
	errno = -err;
	return err ? err_sys(-err, "the superblocks of %s cannot be written", d->path) : 0;
}

/* ---- made ---- */

static int draw_random(void *to, size_t n)
{
	if (getrandom(to, n, 0) == (ssize_t)n)
		return 0;
	return err_sys(0, "no random bytes can be had");
}

int make_draft(struct disk *d, const struct disk_options *opt)
{
	struct disk_super *s = &d->super;
	int err;

	if (!opt->slots || !opt->image_bytes)
		return err_set(EINVAL, "%s is 0: to make %s it must be known",
			       opt->slots ? "image_bytes" : "slots", d->path);
	*s = (struct disk_super){
		.magic = DISK_MAGIC,
		.version = DISK_VERSION,
		.endian = DISK_ENDIAN,
		.slots = opt->slots,
		.image_bytes = opt->image_bytes,
		.slot_bytes = ROUND_UP(opt->image_bytes, DISK_PAGE),
		.note_bytes = opt->note_bytes,
		.made = DISK_UNMADE,
		.epoch = 1,
	};
	memcpy(s->fingerprint, opt->fingerprint, 32);
	err = draw_random(s->file, sizeof(s->file));
	if (!err && !opt->secret)
		err = draw_random(s->secret, sizeof(s->secret));
	if (opt->secret && opt->flags & DISK_KEEP_SECRET)
		memcpy(s->secret, opt->secret, sizeof(s->secret));
	if (!err)
		s->secret_check = make_secret_check(opt->secret ? opt->secret : s->secret);
	return err;
}

int make_file(struct disk *d)
{
	int err = set_end(d, 0);

	if (!err)
		err = say(d, super_store(d, DISK_SUPER_A));
	if (!err)
		err = find_room(d, 0, disk_bytes(d, d->super.slots));
	if (!err) {
		d->super.made = DISK_MADE;
		err = say(d, super_commit(d));
	}
	if (err)
		set_end_again(d, 0);
	d->made = !err;
	return err;
}

/* ---- other sizes ---- */

/* The old state: both superblocks, and those headers of the last group that no slot has, from
 * before it was cut.  Unreadable bytes say nothing. */
struct before {
	struct disk_super at[2];
	bool known[2];
	struct disk_header *rest;
	uint32_t nrest;
};

static void read_before(const struct disk *d, bool grows, struct before *b)
{
	uint32_t used = (uint32_t)(d->super.slots % DISK_GROUP);

	*b = (struct before){ .nrest = grows && used ? DISK_GROUP - used : 0 };
	b->known[0] = !io_read(d->fd, &b->at[0], sizeof(b->at[0]), DISK_SUPER_A);
	b->known[1] = !io_read(d->fd, &b->at[1], sizeof(b->at[1]), DISK_SUPER_B);
	b->rest = b->nrest ? malloc(b->nrest * sizeof(*b->rest)) : NULL;
	if (!b->rest || !io_read(d->fd, b->rest, b->nrest * sizeof(*b->rest),
				 disk_header_at(d, d->super.slots)))
		return;
	free(b->rest);
	b->rest = NULL;
}

/* Runs before the superblocks name more slots, since otherwise the blocks of these headers
 * would come back. */
static int clear_rest(struct disk *d, const struct before *b)
{
	static const struct disk_header none[DISK_GROUP];
	int err = b->nrest ? io_write(d->fd, none, b->nrest * sizeof(*none),
				      disk_header_at(d, d->super.slots))
			   : 0;

	errno = -err;
	return err ? err_sys(-err, "headers of %s cannot be written", d->path) : 0;
}

static bool put_supers(struct disk *d, const struct before *b)
{
	return (!b->known[1] || !io_write(d->fd, &b->at[1], sizeof(b->at[1]), DISK_SUPER_B)) &&
	       (!b->known[0] || !io_write(d->fd, &b->at[0], sizeof(b->at[0]), DISK_SUPER_A));
}

static void stay_small(struct disk *d, const struct before *b, uint64_t slots, uint64_t end)
{
	if (b->rest)
		io_write(d->fd, b->rest, b->nrest * sizeof(*b->rest), disk_header_at(d, slots));
	set_end_again(d, end);
}

static int grow(struct disk *d, const struct before *b, uint64_t old, uint64_t now)
{
	int err = set_end(d, old); /* old headers from before a cut would come back otherwise */

	if (!err)
		err = find_room(d, old, now);
	return err ? err : clear_rest(d, b);
}

int make_due(struct disk *d, bool clear)
{
	uint64_t slots = d->super.slots, old = disk_bytes(d, slots), now = disk_bytes(d, d->due);
	bool grows = d->due > slots, same = true;
	struct before were;
	int err;

	read_before(d, grows, &were);
	err = grows ? grow(d, &were, old, now) : 0;
	if (!err) {
		d->super.opens++;
		d->super.slots = d->due;
		if (clear)
			super_next_epoch(d);
		err = say(d, super_commit(d));
		same = !err || put_supers(d, &were);
	}
	if (err && grows && same)
		stay_small(d, &were, slots, old);
	else if (!err && d->due < slots)
		set_end_again(d, now);
	free(were.rest);
	return err;
}
