/* SPDX-License-Identifier: Apache-2.0 */
/* folder.c - a remote store that is a folder: one file a key.
 *
 * For tests, and for a look at what goes to a store; a folder of a network file system works, and
 * waits for as long as that does.  A value is written beside its name and renamed, so a file is
 * whole or not there.
 * Tests: t/tiers/remote-folder.t t/tiers/late-put.t */
#include "gpc_remote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

struct folder {
	int fd;
	unsigned long long self; /* of this store, among those of all machines */
	int slow_ms;             /* before each item: for tests of deadlines */
	bool shared;             /* another machine has it */
	char path[256];
};

static uint64_t now_ns(void)
{
	struct timespec t = { 0 };

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int result_of(int err)
{
	switch (err) {
	case ENOENT:
		return -ENOENT;
	case ENOSPC:
	case EDQUOT:
		return -ENOSPC;
	case EFBIG:
		return -EFBIG;
	case EACCES:
	case EPERM:
	case EROFS:
		return -EACCES;
	default:
		return -EIO;
	}
}

/* 0, or why the item is not tried. */
static int wait_turn(const struct folder *f, const struct gpc_remote_call *call)
{
	struct pollfd p = { .fd = call->cancel_fd, .events = POLLIN };
	uint64_t now = now_ns();
	uint64_t left_ms = now < call->deadline_ns ? (call->deadline_ns - now) / 1000000 + 1 : 0;
	int wait_ms = (uint64_t)f->slow_ms < left_ms ? f->slow_ms : (int)left_ms;

	if (poll(&p, 1, wait_ms) > 0)
		return -ECANCELED;
	return now_ns() < call->deadline_ns ? 0 : -ETIMEDOUT;
}

static void exists(void *store, const struct gpc_remote_call *call, struct gpc_remote_item *items,
		   uint32_t n)
{
	struct folder *f = store;
	uint32_t i;

	for (i = 0; i < n; i++) {
		items[i].result = wait_turn(f, call);
		if (!items[i].result && faccessat(f->fd, items[i].key, F_OK, 0) < 0)
			items[i].result = result_of(errno);
	}
}

enum { AT_ONCE = 64 }; /* pieces of one readv or writev */
enum { SLOW_MOST = 600000 };

/* Bytes of a value from `at` on, where they lie: up to AT_ONCE pieces.  Returns how many. */
static int pieces_at(const struct gpc_remote_item *item, uint64_t at, struct iovec *v)
{
	struct iovec all = { item->header, GPC_REMOTE_HEADER };
	uint32_t i = 0;
	int n = 0;

	for (; n < AT_ONCE; all = item->image[i++]) {
		if (at < all.iov_len) {
			v[n++] = (struct iovec){ (char *)all.iov_base + at, all.iov_len - at };
			at = 0;
		} else {
			at -= all.iov_len;
		}
		if (i == item->npieces)
			break;
	}
	return n;
}

static uint64_t bytes_of(const struct gpc_remote_item *item)
{
	return GPC_REMOTE_HEADER + item->image_bytes;
}

static int all_of(int fd, const struct gpc_remote_item *item,
		  ssize_t (*go)(int, const struct iovec *, int))
{
	struct iovec v[AT_ONCE];
	uint64_t at = 0;
	ssize_t r;

	while (at < bytes_of(item)) {
		r = go(fd, v, pieces_at(item, at, v));
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return r < 0 ? result_of(errno) : -EIO;
		at += (uint64_t)r;
	}
	return 0;
}

static int get_one(const struct folder *f, struct gpc_remote_item *item)
{
	struct stat st;
	int fd = openat(f->fd, item->key, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), r;

	if (fd < 0)
		return result_of(errno);
	if (fstat(fd, &st) < 0)
		r = -EIO;
	else if ((uint64_t)st.st_size != bytes_of(item))
		r = -EBADMSG;
	else
		r = all_of(fd, item, readv);
	close(fd);
	return r;
}

static void get(void *store, const struct gpc_remote_call *call, struct gpc_remote_item *items,
		uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		items[i].result = wait_turn(store, call);
		if (!items[i].result)
			items[i].result = get_one(store, &items[i]);
	}
}

static int put_one(const struct folder *f, uint32_t lane, struct gpc_remote_item *item)
{
	char part[64];
	int fd, r;

	snprintf(part, sizeof(part), ".part-%016llx-%u", f->self, lane);
	fd = openat(f->fd, part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return result_of(errno);
	r = all_of(fd, item, writev);
	close(fd);
	if (!r && renameat(f->fd, part, f->fd, item->key) < 0)
		r = result_of(errno);
	if (r)
		unlinkat(f->fd, part, 0);
	return r;
}

static void put(void *store, const struct gpc_remote_call *call, struct gpc_remote_item *items,
		uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		items[i].result = wait_turn(store, call);
		if (!items[i].result)
			items[i].result = put_one(store, call->lane, &items[i]);
	}
}

static void take_away(void *store, const struct gpc_remote_call *call,
		      struct gpc_remote_item *items, uint32_t n)
{
	struct folder *f = store;
	uint32_t i;

	for (i = 0; i < n; i++) {
		items[i].result = wait_turn(f, call);
		if (!items[i].result && unlinkat(f->fd, items[i].key, 0) < 0 && errno != ENOENT)
			items[i].result = result_of(errno);
	}
}

/* A put that has ended has renamed its file, or it never will; where the kernel asks another
 * machine for that, a question that was given up may come late. */
static bool is_local(int fd)
{
	static const unsigned long local[] = {
		0xef53,     /* ext2, ext3, ext4 */
		0x58465342, /* xfs */
		0x9123683e, /* btrfs */
		0x01021994, /* tmpfs */
		0x858458f6, /* ramfs */
		0x794c7630, /* overlayfs */
		0xf2f52010, /* f2fs */
		0x2fc12fc1, /* zfs */
		0xca451a4e, /* bcachefs */
		0x3153464a, /* jfs */
	};
	struct statfs st;
	size_t i;

	if (fstatfs(fd, &st) < 0)
		return false;
	for (i = 0; i < sizeof(local) / sizeof(local[0]); i++)
		if ((unsigned long)st.f_type == local[i])
			return true;
	return false;
}

static void fence(void *store, const struct gpc_remote_call *call, struct gpc_remote_item *items,
		  uint32_t n)
{
	const struct folder *f = store;
	uint32_t i;

	(void)call;
	for (i = 0; i < n; i++)
		items[i].result = f->shared ? -EOPNOTSUPP : 0;
}

static int take(struct folder *f, const struct gpc_remote_option *o, char *why, size_t room)
{
	char *end;
	unsigned long ms;

	if (strcmp(o->word, "slow") == 0) {
		ms = strtoul(o->value, &end, 10);
		if (o->value[0] < '0' || o->value[0] > '9' || *end || ms > SLOW_MOST) {
			snprintf(why, room,
				 "slow=%s: it must be a number of milliseconds from 0 to %d",
				 o->value, SLOW_MOST);
			return -EINVAL;
		}
		f->slow_ms = (int)ms;
		return 0;
	}
	if (strlen(o->value) >= sizeof(f->path)) {
		snprintf(why, room, "dir has %zu bytes, and may have %zu", strlen(o->value),
			 sizeof(f->path) - 1);
		return -EINVAL;
	}
	memcpy(f->path, o->value, strlen(o->value) + 1);
	return 0;
}

static int open_folder(const struct gpc_remote_setup *setup, void **store, char *why, size_t room)
{
	struct folder *f = calloc(1, sizeof(*f));
	uint32_t i;
	int r = f ? 0 : -ENOMEM;

	for (i = 0; i < setup->noptions && !r; i++)
		r = take(f, &setup->options[i], why, room);
	if (!r && getrandom(&f->self, sizeof(f->self), 0) != sizeof(f->self))
		r = -errno;
	if (!r && !f->path[0]) {
		snprintf(why, room, "dir is missing: say folder:dir=FOLDER");
		r = -EINVAL;
	}
	if (!r) {
		f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = f->fd < 0 ? -errno : 0;
		if (r < 0)
			snprintf(why, room, "dir=%s is no folder that can be opened: %s; %s",
				 f->path, strerror(-r),
				 r == -ENOENT ? "make it"
					      : "give a folder that this user may read");
		else
			f->shared = !is_local(f->fd);
	}
	if (r < 0) {
		free(f);
		return r;
	}
	*store = f;
	return 0;
}

static void close_folder(void *store)
{
	struct folder *f = store;

	close(f->fd);
	free(f);
}

static void where(void *store, char *ret, size_t room)
{
	snprintf(ret, room, "%s", ((struct folder *)store)->path);
}

static const struct gpc_remote_word words[] = {
	{ "dir", "the folder" },
	{ "slow", "milliseconds that each item waits first, for tests" },
	{ NULL, NULL }
};

const struct gpc_remote_plugin gpc_remote_plugin = {
	.size = sizeof(struct gpc_remote_plugin),
	.abi = GPC_REMOTE_ABI,
	.name = "folder",
	.about = "a folder with one file a key",
	.words = words,
	.open = open_folder,
	.close = close_folder,
	.exists = exists,
	.get = get,
	.put = put,
	.remove = take_away,
	.where = where,
	.fence = fence,
};
