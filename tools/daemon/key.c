/* SPDX-License-Identifier: Apache-2.0 */
/* The file of the secret that keys are hashed with: --key-file.
 *
 * It is made beside its name and gets the name when all of it is on the disk.  So a process that
 * finds the name finds a whole key.  A name that is there stays.
 * A crash, or a second maker, leaves:
 *
 *   gpcd dies, or the machine, ...      what is left
 *   ----------------------------------  ----------------------------------------------------------
 *   before the file has its name        FILE.XXXXXX, which nobody reads; the next one makes a key
 *   before that name is on the disk     the key, or after a failure of power nothing; no block was
 *                                       written with it so far
 *   before FILE.XXXXXX is removed       the key, and a second name of it
 *
 *   two processes make it at once       link() refuses the second process, which reads the key of the
 *                                       first
 *
 * A key file is made for a new secret, or for the secret that a disk has, and never if it would be
 * refused.  A disk that was made without --key-file has the secret itself.  Any other disk has only
 * a check of the secret.
 *
 *   the key file           --disk              the cache           then
 *   ---------------------  ------------------  ------------------  --------------------------------------
 *   is absent              none, or a new one  none; we make it    is made with a new secret, before the cache
 *   is absent              none, or a new one  none; we join it    is left to the maker of the cache, and looked
 *                                                                  at again when there is a cache
 *   is absent              none, or a new one  is there            is not made: refused
 *   is absent              has a secret        none, or the same   is made with that secret, when the disk is open
 *                                              secret
 *   is absent              has a secret        another secret      is not made: refused
 *   is absent              has a check         any                 is not made: refused
 *   has a secret           none, a new one,    none, or the same   is used
 *                          or the same secret  secret
 *   has a secret           another secret      any                 is refused: by the disk, or by gpc_create
 *   has a secret           any                 another secret      is refused
 *   is another user's,     any                 any                 is refused
 *   open to others, or
 *   no key
 *
 * A user who may attach to the cache may read its key file, since the cache tells the secret to
 * processes of its group as well.
 *
 *   --group, --mode                 a key file that is made   an existing key file of this user
 *   ------------------------------  ------------------------  ----------------------------------------
 *   neither is given                gets 0600                 stays as it is
 *   a group may attach (0060)       gets 0640, and the group  gets the same when the cache's files do
 *   no group may attach             gets 0600                 gets the same when the cache's files do
 *
 * A process that finds no file looks again before it refuses, since another process makes the key
 * file first, and then cache and disk. python/gpc/engines/secret.py and tiers.py do the same for
 * engines.
 * Tests: t/daemon/key-file.t t/daemon/fits.t t/daemon/mode-and-group.t t/daemon/files.t */
#include "config.h"

#include "tools/common/dress.h"
#include "tools/daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIGITS = 2 * sizeof(((struct daemon *)NULL)->secret) };

static int no_key(const struct daemon *d, const char *what)
{
	say(LOG_ERR, "%s: --key-file %s: %s", d->name, d->key_file, what);
	return EXIT_RUNTIME;
}

static int cannot_open(const struct daemon *d, int err)
{
	return no_key(d, say_file(err, true));
}

/* ---- read ---- */

/* A file that was made in place may be cut short, if its maker was ended before it was whole. */
static int refuse_text(const struct daemon *d, const char *text)
{
	size_t n = strlen(text);
	char what[256];

	if (n < DIGITS && strspn(text, "0123456789abcdef") == n)
		snprintf(
			what, sizeof(what),
			"it has %zu of the 32 hex digits of a key: it was not written to its end; remove "
			"it, and a new one is made, or copy the one of the other machines here",
			n);
	else
		snprintf(
			what, sizeof(what),
			"it has not the 32 hex digits of a key; move it away, and a new one is made");
	return no_key(d, what);
}

static bool group_is_ours(gid_t gid)
{
	static gid_t list[NGROUPS_MAX];
	int i, n = getgroups(NGROUPS_MAX, list);

	for (i = 0; i < n; i++)
		if (list[i] == gid)
			return true;
	return gid == getegid();
}

/* A member of the file's group is trusted, as with the files of a cache. */
static int refuse_mode(const struct daemon *d, const struct stat *st)
{
	if (st->st_mode & 037)
		return no_key(
			d, "others could read it, or its group write to it: chmod 600 it, or 640");
	if (st->st_uid == geteuid())
		return 0;
	if (!(st->st_mode & 040))
		return no_key(
			d,
			"it belongs to another user, and its mode lets in nobody else: gpcd --group of that user "
			"gives it mode 640 and a group");
	return group_is_ours(st->st_gid)
		       ? 0
		       : no_key(d, "it belongs to another user, and this one is not in its group");
}

static int read_key(const struct daemon *d, int fd, uint8_t ret[DIGITS / 2])
{
	char text[DIGITS + 3] = "";
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return no_key(d, "it is no regular file");
	if (refuse_mode(d, &st))
		return EXIT_RUNTIME;
	n = read(fd, text, sizeof(text) - 1);
	if (n < 0)
		return no_key(d, strerror(errno));
	text[strcspn(text, "\n")] = 0;
	if (strlen(text) != DIGITS || cli_hex(text, ret, DIGITS / 2) != DIGITS / 2)
		return refuse_text(d, text);
	return 0;
}

static void use_secret(struct daemon *d)
{
	d->cfg.secret = d->tiers.secret = d->secret;
}

int key_look(struct daemon *d)
{
	int fd = open(d->key_file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), status;

	if (fd < 0 && errno != ENOENT)
		return cannot_open(d, errno);
	d->key = fd < 0 ? KEY_ABSENT : KEY_THERE;
	if (fd < 0)
		return 0;
	status = read_key(d, fd, d->secret);
	close(fd);
	if (!status)
		use_secret(d);
	return status;
}

/* ---- mode and group ---- */

static bool group_attaches(const struct daemon *d)
{
	return (d->cfg.mode & 0060) == 0060;
}

static gid_t group_of(const struct daemon *d)
{
	return d->cfg.gid ? dress_group(d->cfg.gid) : getegid();
}

/* Sets the group before the mode, so that no other group gets in. */
static int dress_file(const struct daemon *d, int fd, mode_t mode)
{
	if (group_attaches(d) && fchown(fd, (uid_t)-1, group_of(d)))
		return -errno;
	return fchmod(fd, mode) ? -errno : 0;
}

static int no_group(const struct daemon *d, int err)
{
	return no_key(d, err == -EPERM ? "this user may not give it the group of --group"
				       : strerror(-err));
}

int key_dress(struct daemon *d)
{
	int fd, err = 0;
	mode_t mode;
	struct stat st;

	if (!d->key_file[0] || !d->cfg.mode || d->key != KEY_THERE)
		return 0;
	fd = open(d->key_file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return cannot_open(d, errno);
	if (fstat(fd, &st))
		err = -errno;
	mode = (st.st_mode & 0600) | (group_attaches(d) ? 0040 : 0);
	if (!err && st.st_uid == geteuid() &&
	    ((st.st_mode & 0777) != mode || (group_attaches(d) && st.st_gid != group_of(d)))) {
		err = dress_file(d, fd, mode);
		if (!err && !d->quiet)
			say(LOG_INFO, "%s: --key-file %s: it has mode %03o now%s", d->name,
			    d->key_file, (unsigned)mode,
			    group_attaches(d) ? ", and the group of the cache" : "");
	}
	close(fd);
	if (!err || d->create)
		return err ? no_group(d, err) : 0;
	say(LOG_WARNING,
	    "%s: --key-file %s: it stays as it is, like the files of the cache that is joined: %s",
	    d->name, d->key_file, strerror(-err));
	return 0;
}

/* ---- made ---- */

static int write_all(int fd, const char *text, size_t n)
{
	ssize_t done;

	while (n) {
		done = write(fd, text, n);
		if (done < 0 && errno != EINTR)
			return -errno;
		if (done > 0) {
			text += done;
			n -= (size_t)done;
		}
	}
	return fsync(fd) ? -errno : 0;
}

static int write_key(int fd, const uint8_t secret[DIGITS / 2])
{
	char text[DIGITS + 2];
	size_t i;

	for (i = 0; i < DIGITS / 2; i++)
		snprintf(text + 2 * i, 3, "%02x", secret[i]);
	text[2 * i] = '\n';
	return write_all(fd, text, 2 * i + 1);
}

/* Puts the name on the disk, whichever process gave it, so a block that is written later finds its
 * secret. */
static int sync_folder(const struct daemon *d)
{
	char folder[PATH_MAX];
	int fd, err;

	snprintf(folder, sizeof(folder), "%s", d->key_file);
	*(strrchr(folder, '/') + 1) = 0;
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		/* a user who may write there need not be able to read it */
		return errno == EACCES ? 0 : -errno;
	err = fsync(fd) && errno != EINVAL ? -errno : 0;
	close(fd);
	return err;
}

/* Never takes the place of another file.  Some file systems have no links. */
static int give_name(const char *from, const char *to)
{
	if (!link(from, to))
		return 0;
	if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS)
		return -errno;
	return renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) ? -errno : 0;
}

/* 0: there is a file of that name, ours or another process's. */
static int make_key(struct daemon *d, bool *ret_ours)
{
	char path[PATH_MAX + 8];
	int fd, err;

	*ret_ours = false;
	snprintf(path, sizeof(path), "%s.XXXXXX", d->key_file);
	fd = mkostemp(path, O_CLOEXEC); /* with mode 0600 */
	if (fd < 0)
		return -errno;
	err = write_key(fd, d->secret);
	if (!err && group_attaches(d))
		err = dress_file(d, fd, 0640);
	close(fd);
	if (!err)
		err = give_name(path, d->key_file);
	*ret_ours = !err;
	unlink(path);
	if (err == -EEXIST)
		err = 0;
	return err ? err : sync_folder(d);
}

static int refuse_other(const struct daemon *d, const char *disk)
{
	say(LOG_ERR,
	    "%s: --key-file %s: another process has made it meanwhile, with another secret than that of %s: move it away, "
	    "or remove %s",
	    d->name, d->key_file, disk ? disk : "the cache", disk ? disk : "the cache");
	return EXIT_RUNTIME;
}

int key_draw(struct daemon *d)
{
	if (getrandom(d->secret, sizeof(d->secret), 0) != sizeof(d->secret))
		return no_key(d, strerror(errno));
	use_secret(d);
	d->key = KEY_DRAWN;
	return 0;
}

int key_make(struct daemon *d)
{
	const char *disk = d->key == KEY_OF_DISK ? d->disk : NULL;
	bool made = false, any = d->key == KEY_ABSENT;
	uint8_t ours[DIGITS / 2];
	int err, status = any ? key_draw(d) : 0;

	if (status)
		return status;
	d->key = KEY_THERE; /* it is tried once */
	memcpy(ours, d->secret, sizeof(ours));
	err = make_key(d, &made);
	if (err)
		return err == -EPERM && group_attaches(d) ? no_group(d, err) : cannot_open(d, -err);
	status = key_look(d);
	if (status)
		return status;
	if (!any && memcmp(ours, d->secret, sizeof(ours)))
		return refuse_other(d, disk);
	if (made)
		say(LOG_INFO, "%s: --key-file %s: made, with %s%s", d->name, d->key_file,
		    disk ? "the secret of " : "a new secret", disk ? disk : "");
	return 0;
}

/* ---- whether a file is made ---- */

/* Refuses at the beginning a file that could not be made at the end. */
static int of_disk(struct daemon *d)
{
	char folder[PATH_MAX];

	snprintf(folder, sizeof(folder), "%s", d->key_file);
	*(strrchr(folder, '/') + 1) = 0;
	if (faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS))
		return cannot_open(d, errno);
	d->key = KEY_OF_DISK;
	use_secret(d);
	return 0;
}

static int refuse_absent(const struct daemon *d)
{
	return no_key(
		d, "there is no such file, and it is made with a new cache, or with the secret of "
		   "--disk: give the one that this cache was made with, or leave the option out");
}

/* For a disk that has only a check of its secret. */
static int refuse_lost(const struct daemon *d)
{
	say(LOG_ERR,
	    "%s: --key-file %s: there is no such file, and the keys in %s were hashed with a secret that a key file has: "
	    "put back the one that it was made with, or remove %s",
	    d->name, d->key_file, d->disk, d->disk);
	return EXIT_RUNTIME;
}

int key_plan(struct daemon *d, const struct gpc_tiers_file *disk,
	     bool (*is_absent)(const struct daemon *d))
{
	bool absent;
	int status;

	if (d->key != KEY_ABSENT)
		return 0;
	if (disk->has_secret)
		return of_disk(d);
	absent = is_absent(d);
	if (absent && d->create && !disk->blocks)
		return key_make(d);
	status = key_look(d);
	if (status || d->key != KEY_ABSENT)
		return status;
	if (disk->blocks)
		return refuse_lost(d);
	if (!d->create)
		return absent ? 0 : refuse_absent(d);
	/* the secret is compared with that of the cache, if there is still one */
	return key_draw(d);
}
