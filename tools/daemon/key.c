/* SPDX-License-Identifier: Apache-2.0 */
/* The file of the secret that keys are hashed with: --key-file.
 *
 * It is made beside its name and gets the name when all of it is on the disk, so whoever finds the
 * name finds a whole key, and the name that is there stays:
 *
 *   gpcd dies, or the machine, ...      left behind
 *   ----------------------------------  ----------------------------------------------------------
 *   before the file has its name        FILE.XXXXXX, which nobody reads; the next one makes a key
 *   before that name is on the disk     the key, or after a failure of power nothing; no block was
 *                                       written with it so far
 *   before FILE.XXXXXX is removed       the key, and a second name of it
 *
 *   two make it at a time               link() refuses the second, which reads the first one's
 * Tests: t/daemon/key-file.t t/daemon/files.t */
#include "config.h"

#include "tools/daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
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

/* Where it was made in place, who made it could be ended before it was whole. */
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

static int read_key(struct daemon *d, int fd)
{
	char text[DIGITS + 3] = "";
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return no_key(d, "it is no regular file");
	if (st.st_uid != geteuid())
		return no_key(d,
			      "it belongs to another user: it must be this user's, with mode 0600");
	if (st.st_mode & 077)
		return no_key(d, "others could read it: chmod 600 it");
	n = read(fd, text, sizeof(text) - 1);
	if (n < 0)
		return no_key(d, strerror(errno));
	text[strcspn(text, "\n")] = 0;
	if (strlen(text) != DIGITS ||
	    cli_hex(text, d->secret, sizeof(d->secret)) != (int)sizeof(d->secret))
		return refuse_text(d, text);
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

static int write_key(int fd)
{
	uint8_t secret[DIGITS / 2];
	char text[DIGITS + 2];
	size_t i;

	if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
		return -errno;
	for (i = 0; i < sizeof(secret); i++)
		snprintf(text + 2 * i, 3, "%02x", secret[i]);
	text[2 * i] = '\n';
	return write_all(fd, text, 2 * i + 1);
}

/* The name is on the disk, whoever gave it: a block that is written later finds its secret. */
static int sync_folder(const struct daemon *d)
{
	char folder[PATH_MAX];
	int fd, err;

	snprintf(folder, sizeof(folder), "%s", d->key_file);
	*(strrchr(folder, '/') + 1) = 0;
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == EACCES ? 0 : -errno; /* who may write there need not read it */
	err = fsync(fd) && errno != EINVAL ? -errno : 0;
	close(fd);
	return err;
}

/* Never in the place of another file.  Some file systems have no links. */
static int give_name(const char *from, const char *to)
{
	if (!link(from, to))
		return 0;
	if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS)
		return -errno;
	return renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) ? -errno : 0;
}

/* 0: there is a file of that name, ours or another's. */
static int make_key(struct daemon *d, bool *ret_ours)
{
	char path[PATH_MAX + 8];
	int fd, err;

	*ret_ours = false;
	snprintf(path, sizeof(path), "%s.XXXXXX", d->key_file);
	fd = mkostemp(path, O_CLOEXEC); /* with mode 0600 */
	if (fd < 0)
		return -errno;
	err = write_key(fd);
	close(fd);
	if (!err)
		err = give_name(path, d->key_file);
	*ret_ours = !err;
	unlink(path);
	if (err == -EEXIST)
		err = 0;
	return err ? err : sync_folder(d);
}

/* Made where there is none; two that make it at a time have one. */
int key_take(struct daemon *d)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
	int fd = open(d->key_file, flags), err = 0, status;
	bool ours = false;

	if (fd < 0 && errno == ENOENT) {
		err = make_key(d, &ours);
		if (err)
			return cannot_open(d, -err);
		fd = open(d->key_file, flags);
	}
	if (fd < 0)
		return cannot_open(d, errno);
	status = read_key(d, fd);
	close(fd);
	if (status)
		return status;
	if (ours)
		say(LOG_INFO, "%s: --key-file %s: made, with a new secret", d->name, d->key_file);
	d->cfg.secret = d->tiers.secret = d->secret;
	return 0;
}
