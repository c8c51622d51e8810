/* SPDX-License-Identifier: Apache-2.0 */
/* The payload of the blocks, in a file of the replay's own.  A slot holds the key (16 bytes),
 * the block id (4) and a filling made from the key.  So a check finds a block that moved, was
 * overwritten or was copied only in part.
 * Tests: t/tools/replay-workers.t */
#include "config.h"

#include "tools/replay/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOCK_MS = 20 };

enum { AT_BLOCK = sizeof(gpc_key), AT_FILL = AT_BLOCK + sizeof(gpc_block) };

/* ---- slots ---- */

static int own_open(struct payload *p)
{
	size_t bytes = p->job->slots * p->job->payload;
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, FD_PAYLOAD, 0);

	if (at == MAP_FAILED) {
		snprintf(p->error, sizeof(p->error), "mmap of %zu bytes: %s", bytes,
			 strerror(errno));
		return -errno;
	}
	p->bytes = at;
	return 0;
}

static void own_close(struct payload *p)
{
	if (p->bytes)
		munmap(p->bytes, p->job->slots * p->job->payload);
}

/* NULL means that the block is of a pool that was not there at the start. */
static unsigned char *slot_of(const struct payload *p, gpc_block block)
{
	const struct job_pool *pool = &p->job->pool[block < 0 ? 0 : GPC_POOL(block)];
	uint32_t slot = (uint32_t)GPC_SLOT(block);

	if (block < 0 || slot >= pool->slots)
		return NULL;
	return p->bytes + (pool->first + slot) * p->job->payload;
}

static unsigned char fill_byte(const gpc_key *key, uint32_t i)
{
	return (unsigned char)(key->w[i & 1] >> (i >> 1 & 7) * 8) ^ (unsigned char)i;
}

static void write_one(const struct payload *p, gpc_block block, const gpc_key *key)
{
	unsigned char *slot = slot_of(p, block);

	if (!slot)
		return;
	memcpy(slot, key, sizeof(*key));
	memcpy(slot + AT_BLOCK, &block, sizeof(block));
	for (uint32_t i = AT_FILL; i < p->job->payload; i++)
		slot[i] = fill_byte(key, i);
}

/* Are these the bytes of that key, and of that block? */
static bool is_right(const struct payload *p, gpc_block block, const gpc_key *key)
{
	const unsigned char *slot = slot_of(p, block);

	if (!slot || memcmp(slot, key, sizeof(*key)) ||
	    memcmp(slot + AT_BLOCK, &block, sizeof(block)))
		return false;
	for (uint32_t i = AT_FILL; i < p->job->payload; i++)
		if (slot[i] != fill_byte(key, i))
			return false;
	return true;
}

/* Copies under the new block's id; false: the source was wrong. */
static bool copy_one(const struct payload *p, const struct gpc_move *m)
{
	bool good = is_right(p, m->from, &m->key);
	unsigned char *source = slot_of(p, m->from), *target = slot_of(p, m->to);

	if (!source || !target)
		return false;
	memcpy(target, source, p->job->payload);
	memcpy(target + AT_BLOCK, &m->to, sizeof(m->to));
	return good;
}

/* ---- arrays of blocks ---- */

static int own_write(struct payload *p, const gpc_block *blocks, const gpc_key *keys, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		write_one(p, blocks[i], &keys[i]);
	return 0;
}

static int own_check(struct payload *p, uint32_t kinds, const gpc_block *blocks,
		     const gpc_key *keys, uint32_t n)
{
	int wrong = 0;

	for (uint32_t i = 0; i < n; i++)
		if (blocks[i] >= 0 && kinds & job_kind(p->job, blocks[i]))
			wrong += !is_right(p, blocks[i], &keys[i]);
	return wrong;
}

static int own_copy(struct payload *p, const struct gpc_move *moves, uint32_t n, bool *bad)
{
	for (uint32_t i = 0; i < n; i++)
		bad[i] = !copy_one(p, &moves[i]);
	return 0;
}

const struct payload_ops payload_own = {
	.open = own_open,
	.close = own_close,
	.write = own_write,
	.check = own_check,
	.copy = own_copy,
};

/* ---- files ---- */

/* Bytes that the kernel believes it can give.  Beyond them a process gets no error, but the OOM
 * killer. */
static uint64_t available_bytes(void)
{
	unsigned long long kib, sum = 0;
	char line[128];
	FILE *f = fopen("/proc/meminfo", "re");

	if (!f)
		return UINT64_MAX;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %llu", &kib) == 1 ||
		    sscanf(line, "SwapFree: %llu", &kib) == 1)
			sum += kib << 10;
	fclose(f);
	return sum ? sum : UINT64_MAX;
}

/* Fills all of the file now, since a hole would be a SIGBUS later.  The file's size stays. */
static int fill_file(int fd, size_t bytes)
{
	uint64_t room = available_bytes();
	int r;

	if (bytes > room) {
		cli_error("no room for %zu bytes of payload: %llu are available", bytes,
			  (unsigned long long)room);
		return -1;
	}
	do {
		r = fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes);
	} while (r && errno == EINTR);
	if (r)
		cli_error("no room for %zu bytes of payload: %s", bytes, strerror(errno));
	return r;
}

int payload_private(size_t bytes)
{
	int fd = memfd_create("gpc-replay payload", MFD_CLOEXEC);

	if (fd < 0) {
		cli_error("cannot make the payload: %s", strerror(errno));
		return -1;
	}
	if (!fill_file(fd, bytes) && !ftruncate(fd, (off_t)bytes))
		return fd;
	close(fd);
	return -1;
}

static void path_of(char ret[PATH_MAX], const char *dir, const char *name)
{
	snprintf(ret, PATH_MAX, "%s/gpc-replay.%s", dir, name);
}

/* The exclusive lock says "alone", the shared one "in use".  A process that is alone may take
 * long, if its writer is stopped.  A signal ends the wait, without a message (errno 0). */
static int lock_file(int fd, int how)
{
	while (flock(fd, how | LOCK_NB)) {
		if (errno != EINTR && (errno != EWOULDBLOCK || how & LOCK_NB))
			return -1;
		replay_poll(NULL, 0, LOCK_MS);
		if (replay_caught) {
			errno = 0;
			return -1;
		}
	}
	return 0;
}

/* 1: the file is ours to use; 0: it was removed meanwhile; -1: errno, which is 0 after a message.
 * A file of another size that no process uses is a new one.  It gets its size when blocks without
 * bytes have been forgotten.  So a replay that dies before that leaves another new file. */
static int settle_file(int fd, const char *path, size_t bytes, bool *ret_fresh)
{
	bool alone = lock_file(fd, LOCK_EX | LOCK_NB) == 0;
	struct stat st;

	*ret_fresh = false;
	if (!alone && lock_file(fd, LOCK_SH))
		return -1;
	if (fstat(fd, &st))
		return -1;
	if (!st.st_nlink)
		return 0;
	if ((size_t)st.st_size == bytes)
		return alone && lock_file(fd, LOCK_SH) ? -1 : 1;
	if (!alone) {
		cli_error("%s is in use by a replay with another payload", path);
		errno = 0;
		return -1;
	}
	*ret_fresh = true;
	if (ftruncate(fd, 0))
		return -1;
	if (!fill_file(fd, bytes))
		return 1;
	errno = 0;
	return -1;
}

int payload_shared(const char *dir, const char *name, size_t bytes, bool *ret_fresh)
{
	char path[PATH_MAX];
	int fd, r;

	path_of(path, dir, name);
	do {
		fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
		r = fd < 0 ? -1 : settle_file(fd, path, bytes, ret_fresh);
		if (r == 1)
			return fd;
		if (r < 0 && errno)
			cli_error("%s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
	} while (!r);
	return -1;
}

int payload_settled(int fd, size_t bytes)
{
	if (!ftruncate(fd, (off_t)bytes) && !lock_file(fd, LOCK_SH))
		return 0;
	cli_error("the payload: %s", strerror(errno));
	return -1;
}

void payload_release(const char *dir, const char *name, int fd)
{
	char path[PATH_MAX];

	path_of(path, dir, name);
	if (lock_file(fd, LOCK_EX | LOCK_NB) == 0)
		unlink(path);
	close(fd);
}
