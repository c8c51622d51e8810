/* SPDX-License-Identifier: Apache-2.0 */
/* lockfile.c - open file description locks, and whether a process is still there.
 * Tests: t/index/lockfile.t t/index/namespaces.t t/index/lost-peers.t t/index/fork-at-open.t
 *   t/bytes/forked.t */
#include "index/segment/lockfile.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "index/base/fd.h"
#include "index/segment/segment.h"

static struct flock byte_lock(short type, uint64_t byte)
{
	return (struct flock){
		.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1
	};
}

static int lock_set(int fd, short type, uint64_t byte)
{
	struct flock fl = byte_lock(type, byte);

	if (!fcntl(fd, F_OFD_SETLK, &fl))
		return 0;
	return errno == EACCES ? -EAGAIN : -errno;
}

int lock_try(int fd, uint64_t byte)
{
	return lock_set(fd, F_WRLCK, byte);
}

int lock_share(int fd, uint64_t byte)
{
	return lock_set(fd, F_RDLCK, byte);
}

void lock_drop(int fd, uint64_t byte)
{
	struct flock fl = byte_lock(F_UNLCK, byte);

	fcntl(fd, F_OFD_SETLK, &fl);
}

int lock_test(int fd, uint64_t byte)
{
	struct flock fl = byte_lock(F_WRLCK, byte);

	if (fcntl(fd, F_OFD_GETLK, &fl))
		return -errno;
	return fl.l_type != F_UNLCK;
}

bool segment_writer_alive(const struct segment *s)
{
	return s->lock_fd >= 0 && lock_test(s->lock_fd, LOCK_WRITER) == 1;
}

bool segment_peer_alive(const struct segment *s, uint32_t peer)
{
	return s->lock_fd >= 0 && lock_test(s->lock_fd, LOCK_PEER(peer)) == 1;
}

struct proc_stat {
	char state;
	long threads;
	uint64_t start_time;
};

/* The fields of /proc/PID/stat that follow the command's name, which may contain any characters.
 * In the file the state is field 3, the number of threads field 20, and the start time field
 * 22. */
static bool proc_read(const char *path, struct proc_stat *ret)
{
	char text[1024], *field;
	ssize_t n;
	int i, fd = fd_peek(path, O_RDONLY);

	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = 0;
	field = strrchr(text, ')');
	if (!field || field[1] != ' ')
		return false;
	field += 2;
	ret->state = *field;
	for (i = 3; i < 20 && field; i++)
		field = strchr(field + 1, ' ');
	if (!field)
		return false;
	ret->threads = strtol(field, &field, 10);
	strtol(field, &field, 10);
	ret->start_time = strtoull(field, NULL, 10);
	return ret->start_time != 0;
}

/* Is /proc that of our PID namespace?  If not, it would tell us about other processes of the same
 * numbers. */
static bool proc_is_ours(void)
{
	char self[32];
	ssize_t n = readlink("/proc/self", self, sizeof(self) - 1);

	if (n <= 0)
		return false;
	self[n] = 0;
	return atol(self) == (long)getpid();
}

static uint64_t namespace_of(const char *path)
{
	struct stat ns;

	return stat(path, &ns) ? 0 : ns.st_ino;
}

/* The namespaces as one number.  Start times are in the clock of the reader's time namespace.
 * Inodes of namespaces have 32 bits. */
static uint64_t namespaces(void)
{
	uint64_t pid = namespace_of("/proc/self/ns/pid");

	return pid ? namespace_of("/proc/self/ns/time") << 32 | (uint32_t)pid : 0;
}

void identity_self(struct identity *ret)
{
	struct proc_stat st;

	*ret = (struct identity){ .pid = (int32_t)getpid() };
	if (!proc_is_ours())
		return;
	ret->namespaces = namespaces();
	if (proc_read("/proc/self/stat", &st))
		ret->start_time = st.start_time;
}

/* kill() decides whether the number is in use, since a /proc mounted with hidepid lacks processes
 * that are alive.  A dead group leader stays a zombie while its other threads run, and these share
 * its files.  So the threads are counted. */
static enum identity_answer look(const struct identity *id, char *ret_state)
{
	struct proc_stat st;
	char path[32];

	if (id->pid <= 0 || !id->namespaces || !id->start_time || !proc_is_ours())
		return IDENTITY_UNKNOWN;
	if (namespaces() != id->namespaces)
		return IDENTITY_UNKNOWN;
	if (kill(id->pid, 0) && errno == ESRCH)
		return IDENTITY_GONE;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)id->pid);
	if (!proc_read(path, &st))
		return IDENTITY_UNKNOWN;
	if (st.start_time != id->start_time)
		return IDENTITY_GONE;
	*ret_state = st.state;
	return (st.state == 'Z' || st.state == 'X') && st.threads <= 1 ? IDENTITY_GONE
								       : IDENTITY_THERE;
}

enum identity_answer identity_look(const struct identity *id)
{
	char state;

	return look(id, &state);
}

bool identity_stopped(const struct identity *id)
{
	char state;

	return look(id, &state) == IDENTITY_THERE && (state == 'T' || state == 't');
}

bool identity_gone(const struct identity *id)
{
	return identity_look(id) == IDENTITY_GONE;
}
