/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints: ipc:///PATH and tcp://HOST:PORT.
 *
 * The file of a socket lets in the users that the cache lets in, and from its first moment no
 * others.  So it is made here and given to libzmq.  libzmq would make it with a mode that follows
 * from the umask, and would remove the file of a living process.
 * Tests: t/kv/lives.t */
#include "config.h"

#include "tools/daemon/events/events.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

enum { BACKLOG = 64 };

/* Mode and group of the cache's files. */
static int mode_of_cache(const struct daemon *d, struct stat *ret)
{
	char path[PATH_MAX + GPC_MAX_NAME + 16];

	snprintf(path, sizeof(path), "%s/gpc.%s.idx", d->dir[0] ? d->dir : "/dev/shm", d->name);
	return stat(path, ret) ? -errno : 0;
}

/* A process that has died has left its file, and does not answer there. */
static int clear_path(const struct sockaddr_un *at)
{
	struct stat st;
	int fd, r;

	if (lstat(at->sun_path, &st))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	r = connect(fd, (const struct sockaddr *)at, sizeof(*at)) ? errno : 0;
	close(fd);
	if (r == 0 || r == EAGAIN)
		return -EADDRINUSE;
	if (r != ECONNREFUSED)
		return -r;
	return unlink(at->sun_path) && errno != ENOENT ? -errno : 0;
}

/* Makes a socket that listens.  The mode of its file is that of the descriptor first, which lets
 * no other user in. */
static int listen_at(const struct sockaddr_un *at, const struct stat *cache)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r = 0;

	if (fd < 0)
		return -errno;
	if (fchmod(fd, 0600) || bind(fd, (const struct sockaddr *)at, sizeof(*at)))
		r = -errno;
	else if (chown(at->sun_path, (uid_t)-1, cache->st_gid) ||
		 chmod(at->sun_path, cache->st_mode & 0660) || listen(fd, BACKLOG))
		r = -errno;
	if (!r)
		return fd;
	close(fd);
	return r;
}

static int bind_file(struct endpoint *e, const struct daemon *d)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	struct stat cache;
	int r = mode_of_cache(d, &cache), fd;

	snprintf(at.sun_path, sizeof(at.sun_path), "%s", e->text + strlen("ipc://"));
	if (!r)
		r = clear_path(&at);
	if (r)
		return r;
	fd = listen_at(&at, &cache);
	if (fd < 0)
		return fd;
	snprintf(e->path, sizeof(e->path), "%s", at.sun_path);
	if (zmq_setsockopt(e->socket, ZMQ_USE_FD, &fd, sizeof(fd)) ||
	    zmq_bind(e->socket, e->text)) {
		r = -errno;
		close(fd);
	}
	return r;
}

int endpoint_bind(struct endpoint *e, const struct daemon *d)
{
	int r = 0;

	if (!e->text || e->bound)
		return 0;
	if (strncmp(e->text, "ipc://", 6) == 0)
		r = bind_file(e, d);
	else if (zmq_bind(e->socket, e->text))
		r = -errno;
	e->bound = !r;
	return r;
}

/* The file is removed first, so a client that comes now is refused and does not wait. */
void endpoint_close(struct endpoint *e)
{
	if (e->path[0])
		unlink(e->path);
	if (e->socket)
		zmq_close(e->socket);
	*e = (struct endpoint){ .text = e->text };
}

bool endpoint_frame(struct endpoint *e, const void *bytes, size_t n, bool more)
{
	return zmq_send(e->socket, bytes, n, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) >= 0;
}
