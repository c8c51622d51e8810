/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - a file is opened, locked, and checked; begun; and closed.
 *
 * Nothing is stored in it before disk_begin, so a refused file stays as it was.  aside.c says
 * which damaged files make room for new ones.
 * Tests: t/tiers/disk-files.t t/tiers/aside.t t/daemon/fits.t */
#include "config.h"

#include "tiers/disk/state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "index/base/err.h"
#include "index/base/fd.h"

static const uint8_t no_secret[16];

/* ---- the file ---- */

static int refuse_open(const char *path)
{
	switch (errno) {
	case ENOENT:
		return err_set(ENOENT, "there is no disk file %s: ask for it to be made", path);
	case ELOOP:
		return err_set(ENOTSUP, "%s is a symbolic link: name the file itself", path);
	case EISDIR:
		return err_set(ENOTSUP, "%s is a folder: a disk file is a regular file", path);
	case ENXIO:
		return err_set(ENOTSUP, "%s is no regular file", path);
	case ENOTDIR:
		return err_set(ENOTDIR,
			       "%s cannot be opened: the part before its last / is no folder",
			       path);
	default:
		return err_sys(0, "%s cannot be opened", path);
	}
}

static int refuse_create(const char *path)
{
	if (errno == ENOENT)
		return err_set(
			ENOENT,
			"%s cannot be made: its folder does not exist; make the folder, or name another "
			"file",
			path);
	return refuse_open(path);
}

/* If the name is free, it becomes an empty file. */
static int open_path(struct disk *d, const struct disk_options *opt)
{
	const int flags = O_RDWR | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;

	d->fd = fd_open(d->path, flags, 0);
	if (d->fd >= 0 || errno != ENOENT || !(opt->flags & DISK_CREATE))
		return d->fd >= 0 ? 0 : refuse_open(d->path);
	d->fd = fd_open(d->path, flags | O_CREAT | O_EXCL, 0600);
	d->created = d->fd >= 0 && !fchmod(d->fd, 0600); /* whatever the umask is */
	if (d->fd < 0 && errno == EEXIST)                /* another process is making it now */
		d->fd = fd_open(d->path, flags, 0);
	return d->fd >= 0 ? 0 : refuse_create(d->path);
}

static int check_kind(const struct disk *d, struct stat *st)
{
	if (fstat(d->fd, st))
		return err_sys(0, "%s cannot be looked at", d->path);
	if (!S_ISREG(st->st_mode))
		return err_set(ENOTSUP, "%s is no regular file", d->path);
	if (st->st_uid != geteuid())
		return err_set(EPERM,
			       "%s belongs to user %u, this process is of user %u: a disk file "
			       "has one owner",
			       d->path, (unsigned)st->st_uid, (unsigned)geteuid());
	if (st->st_mode & 077)
		return err_set(EPERM, "%s has mode %04o, others may open it: chmod 600 it", d->path,
			       (unsigned)st->st_mode & 07777);
	return 0;
}

/* The lock lasts as long as the descriptor is open.  It has to be on the file that has the name
 * now. */
static int lock_file(struct disk *d, const struct stat *st)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct stat named;

	if (fcntl(d->fd, F_OFD_SETLK, &lock)) {
		d->created = false; /* it belongs to the other process now */
		return errno == EAGAIN || errno == EACCES
			       ? err_set(EBUSY,
					 "%s is locked by another process that keeps a cache in "
					 "it: end that one (fuser %s names it), or name another "
					 "file",
					 d->path, d->path)
			       : err_sys(0, "%s cannot be locked", d->path);
	}
	if (lstat(d->path, &named) || named.st_dev != st->st_dev || named.st_ino != st->st_ino)
		return err_set(EAGAIN, "%s was replaced while it was opened: try again", d->path);
	return 0;
}

/* ---- is it sound, and ours? ---- */

static int refuse_super(const char *path, enum super_look is, uint32_t version)
{
	if (is == SUPER_UNREAD)
		return err_sys(0, "the superblocks of %s cannot be read", path);
	if (is == SUPER_VERSION)
		return err_set(
			EPROTO,
			"%s has version %u of the format, this reads %u to %u: use the program "
			"that made it, or remove the file",
			path, version, DISK_OLDEST, DISK_VERSION);
	if (is == SUPER_ENDIAN)
		return err_set(EPROTO,
			       "%s was made on a machine of the other byte order: use it there, or "
			       "remove the file",
			       path);
	if (is == SUPER_BAD)
		return err_set(EBADMSG,
			       "both superblocks of %s are damaged: what it holds cannot be told "
			       "from what was removed; remove the file",
			       path);
	return err_set(EPROTO,
		       "%s is no disk file of gpc, or both its superblocks are gone: name another "
		       "file, or remove this one",
		       path);
}

static int check_layout(const struct disk *d, const struct disk_options *opt)
{
	const struct disk_super *s = &d->super;

	if (opt->image_bytes && opt->image_bytes != s->image_bytes)
		return err_set(
			EXDEV,
			"%s has blocks of %llu bytes, these have %llu: name another file, or "
			"remove this one",
			d->path, (unsigned long long)s->image_bytes,
			(unsigned long long)opt->image_bytes);
	if (!(opt->flags & DISK_ANY_LAYOUT) && memcmp(opt->fingerprint, s->fingerprint, 32))
		return err_set(EXDEV,
			       "%s has blocks of another layout: name another file, or remove "
			       "this one",
			       d->path);
	if (opt->note_bytes > s->note_bytes)
		return err_set(
			EXDEV,
			"%s has room for notes of %u bytes, these may have %u: remove it, or "
			"name another file",
			d->path, s->note_bytes, opt->note_bytes);
	if (!opt->secret && !(opt->flags & DISK_ANY_LAYOUT) && !memcmp(s->secret, no_secret, 16))
		return err_set(
			EXDEV,
			"the keys in %s were hashed with a secret that is kept elsewhere: give the "
			"key file that it was made with, or remove %s",
			d->path, d->path);
	if (opt->secret && make_secret_check(opt->secret) != s->secret_check)
		return err_set(EXDEV,
			       "the keys in %s were hashed with another secret: give the key file "
			       "that it was made with, or remove %s",
			       d->path, d->path);
	return 0;
}

static bool is_cut_off(const struct disk *d, uint64_t bytes)
{
	return bytes < disk_bytes(d, d->super.slots);
}

static int check_size(const struct disk *d, const struct disk_options *opt, uint64_t bytes)
{
	const struct disk_super *s = &d->super;

	if (is_cut_off(d, bytes))
		return err_set(EBADMSG,
			       "%s has %llu bytes, and should have %llu: it was cut off; remove it",
			       d->path, (unsigned long long)bytes,
			       (unsigned long long)disk_bytes(d, s->slots));
	if (opt->slots && opt->slots != s->slots && !(opt->flags & DISK_RESIZE))
		return err_set(
			ERANGE,
			"%s has %llu slots, asked for are %llu: ask for it to be resized, or for as many "
			"as it has",
			d->path, (unsigned long long)s->slots, (unsigned long long)opt->slots);
	return 0;
}

static int refuse_empty(const char *path)
{
	return err_set(ENOENT, "%s is empty, or was not made to its end: ask for it to be made",
		       path);
}

static int open_unmade(struct disk *d, const struct disk_options *opt)
{
	int err;

	d->mended = false;
	if (!(opt->flags & DISK_CREATE))
		return refuse_empty(d->path);
	err = make_draft(d, opt);
	if (err)
		return err;
	d->unmade = true;
	d->due = d->super.slots;
	make_geometry(d);
	return 0;
}

/* slots: of the new file, if nobody asks for a number. */
static int open_aside(struct disk *d, const struct disk_options *opt, uint64_t slots)
{
	struct disk_options new = *opt;

	new.slots = opt->slots ? opt->slots : slots;
	if (!new.slots)
		return err_set(
			EBADMSG,
			"both superblocks of %s are damaged, so it does not tell how large a "
			"new one is to be: say that, or remove it",
			d->path);
	new.image_bytes = opt->image_bytes ? opt->image_bytes : d->super.image_bytes;
	d->damaged = true;
	return open_unmade(d, &new);
}

static bool may_set_aside(const struct disk_options *opt)
{
	return opt->flags & DISK_ASIDE && opt->flags & DISK_CREATE;
}

static int open_made(struct disk *d, const struct disk_options *opt, uint64_t bytes)
{
	int err;

	make_geometry(d);
	err = check_layout(d, opt);
	d->cut = !err && is_cut_off(d, bytes);
	if (d->cut && may_set_aside(opt))
		return open_aside(d, opt, d->super.slots);
	if (!err)
		err = check_size(d, opt, bytes);
	d->due = opt->slots ? opt->slots : d->super.slots;
	return err;
}

static int open_super(struct disk *d, const struct disk_options *opt, const struct stat *st)
{
	uint32_t version = 0;
	enum super_look is = SUPER_GOOD;

	if (st->st_size)
		is = super_read(d->fd, &d->super, &d->mended, &version);
	if (is == SUPER_BAD && may_set_aside(opt))
		return open_aside(d, opt, 0);
	if (is != SUPER_GOOD)
		return refuse_super(d->path, is, version);
	if (st->st_size && d->super.made == DISK_MADE)
		return open_made(d, opt, (uint64_t)st->st_size);
	return open_unmade(d, opt);
}

/* ---- direct transfers ---- */

static uint32_t find_align(int fd)
{
#ifdef STATX_DIOALIGN
	struct statx st;

	if (!statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) && st.stx_mask & STATX_DIOALIGN)
		return st.stx_dio_offset_align > DISK_PAGE
			       ? 0
			       : MAX(MAX(st.stx_dio_mem_align, st.stx_dio_offset_align), 512u);
#endif
	(void)fd;
	return DISK_PAGE;
}

/* Some file systems accept the flag and refuse the transfer. */
static bool can_read(int fd)
{
	void *page;
	ssize_t got = -1;

	if (!posix_memalign(&page, DISK_PAGE, DISK_PAGE)) {
		got = pread(fd, page, DISK_PAGE, 0);
		free(page);
	}
	return got == (ssize_t)DISK_PAGE;
}

/* Open the same file by a descriptor without the lock; -1: the file has lost that name. */
static int open_again(const struct disk *d, int flags)
{
	int fd = fd_open(d->path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | flags, 0);
	struct stat st, again;

	if (fd < 0 || (!fstat(fd, &again) && !fstat(d->fd, &st) && again.st_dev == st.st_dev &&
		       again.st_ino == st.st_ino))
		return fd;
	fd_close(fd);
	return -1;
}

static void open_direct(struct disk *d)
{
	int fd = open_again(d, O_DIRECT);

	if (fd < 0)
		return;
	d->align = find_align(fd);
	if (!d->align || !can_read(fd)) {
		fd_close(fd);
		return;
	}
	d->image_fd = fd;
	d->direct = true;
}

/* A mapping keeps its descriptor's file open as long as the memory of the process exists.  That
 * may outlive the process: on a machine with a GPU it did, by 17 to 100 ms.  So the mapping uses a
 * descriptor without the lock. */
static void map(struct disk *d)
{
	int fd = open_again(d, 0);

	if (fd < 0)
		return;
	io_map(d, fd);
	fd_close(fd);
}

static void tell(const struct disk *d)
{
	if (!d->log)
		return;
	if (d->aside[0])
		log_say(d->log, LOG_WARNING,
			"%s %s: it is %s now, which may be removed, and a new file is begun",
			d->path, d->cut ? "was cut off" : "has no superblock that is sound",
			d->aside);
	if (d->mended)
		log_say(d->log, LOG_WARNING,
			"one superblock of %s was damaged: it was written again", d->path);
	if (!d->direct && !d->buffered)
		log_say(d->log, LOG_NOTICE,
			"the file system of %s has no O_DIRECT: blocks go through the page "
			"cache",
			d->path);
}

/* Sync the folder, since the name of a new file has to be there after a loss of power; without it
 * the file would be lost. */
static void sync_folder(const char *path)
{
	char *folder = strdup(path), *slash = folder ? strrchr(folder, '/') : NULL;
	int fd;

	if (slash)
		slash[slash == folder] = 0;
	fd = folder ? fd_peek(slash ? folder : ".", O_RDONLY | O_DIRECTORY) : -1;
	if (fd >= 0) {
		fsync(fd);
		close(fd);
	}
	free(folder);
}

/* ---- open and close ---- */

static int open_file(struct disk *d, const struct disk_options *opt)
{
	struct stat st;
	int err = open_path(d, opt);

	if (!err)
		err = check_kind(d, &st);
	if (!err)
		err = lock_file(d, &st);
	if (!err && fstat(d->fd, &st)) /* its length, since nobody else can make it now */
		err = err_sys(0, "%s cannot be looked at", d->path);
	if (!err)
		err = open_super(d, opt, &st);
	if (err)
		return err;
	super_clock_start(d);
	d->buffered = opt->flags & DISK_BUFFERED;
	d->image_fd = d->fd;
	d->epoch = d->super.epoch;
	err = queue_start(d, opt);
	return err ? err_set(-err, "threads for %s cannot be started", d->path) : 0;
}

/* Both superblocks are stored, so a damaged one is whole again. */
int disk_begin(struct disk *d, bool clear)
{
	int err = d->damaged ? aside_begin(d) : 0;

	if (err)
		return err;
	err = d->unmade ? make_file(d) : make_due(d, clear);
	if (d->damaged)
		aside_end(d, !err);
	if (err)
		return err;
	d->unmade = false;
	d->begun = true;
	if (!d->buffered)
		open_direct(d);
	if (d->made)
		sync_folder(d->path);
	map(d);
	store_relaxed(&d->epoch, d->super.epoch);
	d->serial = d->super.opens << 40;
	scan_owed(d);
	tell(d);
	return 0;
}

/* A child that was just forked may still have copies of the descriptors, which share the lock. */
static void unlock_file(const struct disk *d)
{
	struct flock lock = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	if (d->fd >= 0)
		fcntl(d->fd, F_OFD_SETLK, &lock);
}

static void free_disk(struct disk *d)
{
	io_free_buffers(d);
	worker_close(&d->worker);
	pthread_mutex_destroy(&d->buffer_lock);
	pthread_mutex_destroy(&d->super_lock);
	pthread_rwlock_destroy(&d->epoch_lock);
	free(d->owed);
	free(d->path);
	free(d);
}

/* In a forked child threads and descriptors are gone already. */
void disk_close(struct disk *d)
{
	if (!d)
		return;
	if (d->pid == getpid()) {
		if (d->worker.threads) {
			queue_stop(d);
			if (d->begun)
				disk_sync(d);
		}
		if (d->created && !d->made)
			unlink(d->path); /* the file is empty, and still locked */
		io_unmap(d);
		if (d->image_fd != d->fd)
			fd_close(d->image_fd);
		unlock_file(d);
		fd_close(d->fd);
	}
	free_disk(d);
}

int disk_open(const char *path, const struct disk_options *opt, struct disk **ret)
{
	struct disk *d;
	int err = make_check(opt);

	if (err)
		return err;
	if (!path || !*path)
		return err_set(EINVAL, "path is %s: it must name a file", path ? "empty" : "NULL");
	d = calloc(1, sizeof(*d));
	if (d)
		d->path = strdup(path);
	if (!d || !d->path) {
		free(d);
		return err_set(ENOMEM, "no memory for a disk");
	}
	d->fd = d->image_fd = d->old_fd = -1;
	d->align = DISK_PAGE;
	d->pid = getpid();
	d->log = opt->log;
	pthread_mutex_init(&d->super_lock, NULL);
	pthread_rwlock_init(&d->epoch_lock, NULL);
	pthread_mutex_init(&d->buffer_lock, NULL);
	queue_open(d);
	err = open_file(d, opt);
	if (!err && !(opt->flags & DISK_LATER))
		err = disk_begin(d, false);
	if (err)
		disk_close(d);
	else
		*ret = d;
	return err;
}

static void tell_super(const struct disk *d, uint64_t epoch, struct disk_info *ret)
{
	const struct disk_super *s = &d->super;
	uint64_t slots = d->due ? d->due : s->slots;

	*ret = (struct disk_info){
		.slots = slots,
		.image_bytes = s->image_bytes,
		.slot_bytes = s->slot_bytes,
		.file_bytes = disk_bytes(d, slots),
		.note_bytes = s->note_bytes,
		.epoch = epoch,
		.has_secret = memcmp(s->secret, no_secret, 16) != 0,
		.made = d->made || d->unmade,
		.mended = d->mended,
	};
	memcpy(ret->file, s->file, 16);
	memcpy(ret->secret, s->secret, 16);
}

void disk_info(struct disk *d, struct disk_info *ret)
{
	struct stat st;

	tell_super(d, load_relaxed(&d->epoch), ret);
	ret->direct = d->direct;
	ret->removed = !fstat(d->fd, &st) && !st.st_nlink;
	ret->broken = load_relaxed(&d->broken);
}

/* Reads the superblocks into d, which has a path. */
static int peek(struct disk *d, struct stat *st)
{
	enum super_look is;
	uint32_t version = 0;
	int err;

	d->fd = fd_peek(d->path, O_RDONLY | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
	if (d->fd < 0)
		return refuse_open(d->path);
	err = check_kind(d, st);
	if (!err) {
		is = st->st_size ? super_read(d->fd, &d->super, &d->mended, &version) : SUPER_GOOD;
		err = is == SUPER_GOOD ? 0 : refuse_super(d->path, is, version);
	}
	if (!err && (!st->st_size || d->super.made != DISK_MADE))
		err = refuse_empty(d->path);
	close(d->fd);
	if (!err)
		make_geometry(d);
	return err;
}

int disk_peek(const char *path, struct disk_info *ret)
{
	struct disk d = { .path = (char *)(uintptr_t)path };
	struct stat st;
	int err = peek(&d, &st);

	if (!err)
		tell_super(&d, d.super.epoch, ret);
	return err;
}

int disk_check(const char *path, const struct disk_options *opt)
{
	struct disk d = { .path = (char *)(uintptr_t)path };
	struct stat st;
	int err = peek(&d, &st);

	if ((err == -ENOENT && opt->flags & DISK_CREATE) || (err == -EBADMSG && may_set_aside(opt)))
		return 0;
	if (!err)
		err = check_layout(&d, opt);
	if (!err && is_cut_off(&d, (uint64_t)st.st_size) && may_set_aside(opt))
		return 0;
	return err ? err : check_size(&d, opt, (uint64_t)st.st_size);
}
