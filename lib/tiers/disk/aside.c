/* SPDX-License-Identifier: Apache-2.0 */
/* aside.c - a damaged file of ours makes room for a new one, and is kept under another name.
 *
 *   the file at the name                           with DISK_ASIDE    without
 *   is sound                                       is used            is used
 *   is ours by its magic; no superblock is sound   is set aside       -EBADMSG
 *   is ours, of this layout and secret; cut off    is set aside       -EBADMSG
 *   has another version, byte order, layout, or    is refused         is refused
 *     secret
 *   has no superblock with the magic, or none      is refused         is refused
 *     that can be read
 *   is another user's, locked, or no regular file  is refused         is refused
 *
 * Nothing is changed before disk_begin.  There the damaged file, whose lock is kept, gets the
 * first free name of a few, and an empty file gets the old name.  If the empty file cannot become
 * a disk file, it is removed, and the damaged file gets its name back.  A process that dies in
 * between leaves the damaged file under its new name, and an empty file or none under the old one.
 * Tests: t/tiers/aside.t t/daemon/disk-aside.t */
#include "config.h"

#include "tiers/disk/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "index/base/err.h"
#include "index/base/fd.h"

static void name_aside(const struct disk *d, uint32_t i, char *ret, size_t room)
{
	if (i)
		snprintf(ret, room, "%s.bad.%u", d->path, i);
	else
		snprintf(ret, room, "%s.bad", d->path);
}

/* Never replaces an existing file; -1 and errno. */
static int rename_to_free(const char *from, const char *to)
{
	struct stat st;

	if (!renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE))
		return 0;
	if (errno != EINVAL && errno != ENOSYS) /* there are file systems without such a rename */
		return -1;
	if (!lstat(to, &st)) {
		errno = EEXIST;
		return -1;
	}
	return errno == ENOENT ? rename(from, to) : -1;
}

static int move_away(struct disk *d)
{
	uint32_t i;

	for (i = 0; i < DISK_ASIDE_MOST; i++) {
		name_aside(d, i, d->aside, sizeof(d->aside));
		if (!rename_to_free(d->path, d->aside))
			return 0;
		if (errno != EEXIST)
			return err_sys(0, "%s is damaged, and cannot be renamed to %s", d->path,
				       d->aside);
	}
	return err_set(EBADMSG,
		       "%s is damaged, as were %u files before it, %s.bad to %s: find out why its "
		       "disk damages files, and remove them",
		       d->path, DISK_ASIDE_MOST, d->path, d->aside);
}

static void move_back(struct disk *d)
{
	if (rename_to_free(d->aside, d->path) && d->log)
		log_say(d->log, LOG_WARNING, "%s cannot have its name %s again: %s", d->aside,
			d->path, strerror(errno));
}

/* The new file is locked before it has a byte. */
static int make_new(const struct disk *d, int *ret)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int err;

	*ret = fd_open(d->path, O_RDWR | O_NOFOLLOW | O_CREAT | O_EXCL, 0600);
	if (*ret < 0)
		return errno == EEXIST
			       ? err_set(EAGAIN, "%s was replaced while it was opened: try again",
					 d->path)
			       : err_sys(0, "%s cannot be made", d->path);
	if (!fchmod(*ret, 0600) && !fcntl(*ret, F_OFD_SETLK, &lock))
		return 0;
	err = err_sys(0, "%s cannot be locked", d->path);
	unlink(d->path);
	fd_close(*ret);
	return err;
}

int aside_begin(struct disk *d)
{
	int fd, err = move_away(d);

	if (err)
		return err;
	err = make_new(d, &fd);
	if (err) {
		move_back(d);
		return err;
	}
	d->old_fd = d->fd;
	d->fd = d->image_fd = fd;
	return 0;
}

void aside_end(struct disk *d, bool made)
{
	if (made) {
		fd_close(d->old_fd);
	} else {
		unlink(d->path);
		fd_close(d->fd);
		d->fd = d->image_fd = d->old_fd;
		move_back(d);
	}
	d->old_fd = -1;
}
