/* SPDX-License-Identifier: Apache-2.0 */
/* validate.c - is this a whole cache of ours, with the geometry that the opener wants?
 *
 * Nothing in a file is believed before it has been compared with what this library would
 * have written: one header is read by pread into private memory and checked there, and
 * all offsets are computed from its geometry.
 * Tests: t/index/segment-damage.t t/bytes/forged-files.t t/daemon/other-layout.t
 *   t/tools/verdicts.t t/fuzz/segment.t t/daemon/exists.t */
#include "index/segment/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "index/base/err.h"
#include "index/base/fd.h"
#include "index/segment/lockfile.h"

/* ---- files ---- */

static bool is_hugetlbfs(const struct statfs *fs)
{
	return fs->f_type == HUGETLBFS_MAGIC;
}

uint32_t segment_unit(int fd)
{
	struct statfs fs;

	if (!fstatfs(fd, &fs) && is_hugetlbfs(&fs) && fs.f_bsize > (long)SHM_PAGE)
		return (uint32_t)fs.f_bsize;
	return SHM_PAGE;
}

static bool group_is_ours(gid_t gid)
{
	gid_t list[NGROUPS_MAX];
	int i, n;

	if (gid == getegid())
		return true;
	n = getgroups(NGROUPS_MAX, list);
	for (i = 0; i < n; i++)
		if (list[i] == gid)
			return true;
	return false;
}

/* The bits of the group decide, as the owner never asks:
 *
 *   none            no group is let in
 *   some            its members are refused for the mode
 *   both            a process outside the group is refused
 */
const char *segment_closed(const struct stat *st, char *ret, size_t room)
{
	unsigned group = (unsigned)st->st_gid, bits = st->st_mode & 0060;
	int n = snprintf(ret, room, "user %u, group %u, mode %03o; ", (unsigned)st->st_uid, group,
			 st->st_mode & 07777);
	size_t used = MIN((size_t)n, room);

	if (!bits || (bits == 0060 && group_is_ours(st->st_gid)))
		snprintf(ret + used, room - used, "gpcd --group lets a group in");
	else if (bits != 0060)
		snprintf(ret + used, room - used,
			 "mode 0660 lets group %u in: gpcd --mode, or gpc-inspect set", group);
	else
		snprintf(ret + used, room - used,
			 "this process is not in group %u: add its user to the group, or have "
			 "SupplementaryGroups=%u in its unit",
			 group, group);
	return ret;
}

/* A file that somebody else could write is somebody else's file. */
int segment_check_owner(const struct segment *s, int fd, const char *suffix)
{
	char closed[SEGMENT_CLOSED];
	struct stat st;

	if (fstat(fd, &st))
		return err_sys(0, "gpc.%s.%s", s->name, suffix);
	if (st.st_mode & 07)
		return err_set(EACCES, "gpc.%s.%s has mode %o: everybody could reach it", s->name,
			       suffix, st.st_mode & 07777);
	if (st.st_uid == geteuid())
		return 0;
	if ((st.st_mode & 0777) == 0660 && group_is_ours(st.st_gid))
		return 0;
	return err_set(EACCES, "gpc.%s.%s belongs to %s", s->name, suffix,
		       segment_closed(&st, closed, sizeof(closed)));
}

/* A hole in a tmpfs file would become SIGBUS on the day the file system is full. */
static int check_size(const struct segment *s, int fd, const char *suffix, uint64_t bytes)
{
	uint64_t want = ROUND_UP(bytes, s->unit);
	struct statfs fs;
	struct stat st;

	if (fstat(fd, &st) || fstatfs(fd, &fs))
		return err_sys(0, "gpc.%s.%s", s->name, suffix);
	if ((uint64_t)st.st_size != want && !(is_hugetlbfs(&fs) && (uint64_t)st.st_size == bytes))
		return err_set(EBADMSG, "gpc.%s.%s has %llu bytes instead of %llu", s->name, suffix,
			       (unsigned long long)st.st_size, (unsigned long long)want);
	if (!is_hugetlbfs(&fs) && (uint64_t)st.st_blocks * 512 < want)
		return err_set(EBADMSG,
			       "gpc.%s.%s is sparse: only %llu of its %llu bytes "
			       "are there",
			       s->name, suffix, (unsigned long long)st.st_blocks * 512,
			       (unsigned long long)want);
	return 0;
}

#define MISSING (64ull << 20)
#define LAYOUTS 1000 /* no larger layout number will ever exist, so it would be damage */

/* Half a cache can be looked at, and so can a small removed one.  But a page with a header must
 * not make a tool copy, check and list the tens of gigabytes that the header claims. */
int segment_check_extent(const struct segment *s)
{
	uint64_t want = s->at.index_bytes, there;
	struct statfs fs;
	struct stat st;

	if (fstat(s->index_fd, &st) || fstatfs(s->index_fd, &fs))
		return err_sys(0, "gpc.%s.idx", s->name);
	there = (uint64_t)st.st_size;
	if (!is_hugetlbfs(&fs))
		there = MIN(there, (uint64_t)st.st_blocks * 512);
	if (there >= want / 2 || want - there <= MISSING)
		return 0;
	return err_set(EBADMSG, "gpc.%s.idx has only %llu of its %llu bytes", s->name,
		       (unsigned long long)there, (unsigned long long)want);
}

/* ---- headers ---- */

int segment_boot_id(uint8_t id[16])
{
	char text[64] = "";
	int fd = fd_peek("/proc/sys/kernel/random/boot_id", O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	int i = 0, saved = errno;
	unsigned byte;
	char *p = text;

	if (fd >= 0)
		close(fd);
	errno = saved;
	if (n < 0)
		return err_sys(0, "/proc/sys/kernel/random/boot_id");
	while (n > 0 && i < 16 && sscanf(p, "%2x", &byte) == 1) {
		id[i++] = (uint8_t)byte;
		p += 2;
		p += *p == '-';
	}
	return i == 16 ? 0 : err_set(EIO, "/proc/sys/kernel/random/boot_id holds no identifier");
}

uint64_t segment_header_sum(const struct shm_header *h)
{
	return key_checksum(h, offsetof(struct shm_header, checksum));
}

void segment_control_header(const struct shm_header *index, struct shm_header *ret)
{
	struct layout at;

	geometry_layout(&index->geometry, &at);
	*ret = *index;
	ret->magic = SHM_MAGIC_CONTROL;
	ret->bytes = at.control_bytes;
	memset(ret->secret, 0, sizeof(ret->secret));
	ret->checksum = segment_header_sum(ret);
}

/* (A) A creator stores `ready` last and renames afterwards, so a process that finds the name finds
 * it set.  A file of that name without it was made by other means, or is being repaired. */
static int check_ready(const struct segment *s, const struct shm_header *h)
{
	if (h->magic == SHM_MAGIC_INDEX && h->ready == SHM_READY)
		return 0;
	if (s->lock_fd >= 0 && lock_test(s->lock_fd, LOCK_CREATE) == 1)
		return err_set(ENOENT, "%s is being created", s->name);
	if (h->magic != SHM_MAGIC_INDEX)
		return err_set(EBADMSG, "gpc.%s.idx is not an index of gpc", s->name);
	return err_set(EBADMSG, "gpc.%s.idx was never completed", s->name);
}

/* Bytes of a file, as text that may be shown anywhere. */
static const char *plain(const char *from, size_t n, char *to)
{
	size_t i;

	for (i = 0; i < n && from[i]; i++)
		to[i] = from[i] >= ' ' && from[i] < 0x7f ? from[i] : '?';
	to[i] = 0;
	return to;
}

/* Earlier layouts have their checksum at the same place.  A later layout may differ in all but the
 * first fields, so only its number is compared, which is small. */
static bool is_other_layout(const struct shm_header *h)
{
	if (h->version < SHM_VERSION)
		return h->version && h->checksum == segment_header_sum(h);
	return h->version > SHM_VERSION && h->version <= LAYOUTS;
}

/* The sentence says which of the two is older, and how to get rid of it. */
static int other_layout(const struct segment *s, const struct shm_header *h)
{
	bool usual = !strcmp(s->dir, SEGMENT_DIR), older = h->version < SHM_VERSION;
	const char *maker = older ? "an older gpc" : "a newer gpc";

	return err_set(EPROTO,
		       "cache %s was made by %s (layout %u); this library is %s (layout %u): "
		       "%send its processes and remove it with gpc-inspect %s%s%srm %s",
		       s->name, h->version == 1 ? "gpc 0.1" : maker, h->version,
		       older ? "newer" : "older", SHM_VERSION, older ? "" : "use that one's, or ",
		       usual ? "" : "--dir ", usual ? "" : s->dir, usual ? "" : " ", s->name);
}

static int check_content(const struct segment *s, const struct shm_header *h)
{
	char hash[sizeof(h->hash) + 1];
	struct layout at;
	int err;

	if (h->endian == SHM_ENDIAN && is_other_layout(h))
		return other_layout(s, h);
	if (h->version != SHM_VERSION || h->endian != SHM_ENDIAN || h->page != SHM_PAGE ||
	    h->header_bytes != sizeof(struct shm_header) || h->pad1)
		return err_set(EBADMSG, "gpc.%s.idx: its header is damaged", s->name);
	if (h->checksum != segment_header_sum(h))
		return err_set(EBADMSG, "gpc.%s.idx: the checksum of its header is wrong", s->name);
	if ((err = geometry_check(&h->geometry, h->block_tokens)))
		return err;
	geometry_layout(&h->geometry, &at);
	if (h->bytes != at.index_bytes || !h->block_tokens || h->block_tokens > 65536 ||
	    !h->tick_us || h->free_target < 0 || !memchr(h->devices, 0, sizeof(h->devices)))
		return err_set(EBADMSG, "%s: the header contradicts itself", s->name);
	if (strncmp(h->hash, KEY_HASH_NAME, sizeof(h->hash)))
		return err_set(EPROTO, "%s hashes with %s, this library with %s", s->name,
			       plain(h->hash, sizeof(h->hash), hash), KEY_HASH_NAME);
	return 0;
}

int segment_read_header(struct segment *s)
{
	struct shm_header h = { 0 };
	ssize_t n = pread(s->index_fd, &h, sizeof(h), 0);
	int err;

	if (n < 0)
		return err_sys(EIO, "gpc.%s.idx", s->name);
	if ((err = check_ready(s, &h)) || (err = check_content(s, &h)))
		return err;
	s->header = h;
	s->unit = segment_unit(s->index_fd);
	geometry_layout(&h.geometry, &s->at);
	return 0;
}

/* Index, control segment and lock file come from one creation. */
int segment_check_control(const struct segment *s)
{
	struct shm_header want, have = { 0 };

	segment_control_header(&s->header, &want);
	if (pread(s->control_fd, &have, sizeof(have), 0) < 0)
		return err_sys(EIO, "gpc.%s.ctl", s->name);
	if (memcmp(&want, &have, sizeof(want)))
		return err_set(EBADMSG, "gpc.%s.ctl does not belong to the index", s->name);
	return 0;
}

int segment_check_lock(const struct segment *s)
{
	uint8_t id[16] = { 0 };

	if (pread(s->lock_fd, id, sizeof(id), 0) < 0)
		return err_sys(EIO, "gpc.%s.lock", s->name);
	if (memcmp(id, s->header.id, sizeof(id)))
		return err_set(EBADMSG, "gpc.%s.lock does not belong to the index", s->name);
	return 0;
}

/* Is the file in memory?  None of its bytes outlives a boot then, and no other machine has
 * them. */
static bool is_of_memory(int fd)
{
	struct statfs fs;

	return !fstatfs(fd, &fs) &&
	       (is_hugetlbfs(&fs) || fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

/* By the clocks as they are now. */
static bool is_since_boot(uint64_t created_ns)
{
	struct timespec now, up;

	clock_gettime(CLOCK_REALTIME, &now);
	clock_gettime(CLOCK_BOOTTIME, &up);
	return (int64_t)(created_ns / 1000000000u) >= (int64_t)now.tv_sec - (int64_t)up.tv_sec - 1;
}

/*   boot id  file system  made since boot  it is
 *   -------  -----------  ---------------  --------------------------------------------------------
 *   ours     any          any              of this boot
 *   another  of memory    yes              of this boot: containers of systemd-nspawn and LXC see a
 *                                          boot id of their own, and services in them may see that
 *                                          of the machine
 *   another  of memory    no               a copy that was kept over a boot
 *   another  any other    any              of another boot, or of another machine */
static int check_boot(const struct segment *s)
{
	uint8_t boot[16];
	int err = segment_boot_id(boot);

	if (err || !memcmp(boot, s->header.boot, sizeof(boot)) ||
	    (is_of_memory(s->index_fd) && is_since_boot(s->header.created_ns)))
		return err;
	return err_set(EBADMSG,
		       "%s was made before the last boot, or on another machine: remove it",
		       s->name);
}

/* ---- what the opener wants ---- */

static bool is_zero(const uint8_t *p, size_t n)
{
	while (n--)
		if (*p++)
			return false;
	return true;
}

static int check_layout(const struct segment *s, const uint8_t *layout)
{
	if (!layout || is_zero(layout, 32) || !memcmp(layout, s->header.layout, 32))
		return 0;
	return err_set(EPROTO,
		       "%s was made for another model or parallel layout (its "
		       "fingerprint differs): use that one" SEGMENT_OTHER,
		       s->name);
}

/* given 0: the caller does not care */
static int check_field(const struct segment *s, const char *field, int64_t has, int64_t given)
{
	if (!given || has == given)
		return 0;
	return err_set(EPROTO,
		       "%s exists with %s %lld instead of %lld: ask for what it has" SEGMENT_OTHER,
		       s->name, field, (long long)has, (long long)given);
}

/* The number of tokens in a block is always compared, since keys depend on it. */
static int check_config(const struct segment *s, const struct gpc_config *cfg)
{
	const struct shm_header *h = &s->header;
	const struct shm_geometry *g = &h->geometry;
	struct gpc_config fits = *cfg;
	struct shm_geometry made;
	int err;

	fits.max_blocks = g->max_blocks;
	fits.max_pools = g->max_pools;
	if ((err = geometry_from_config(&fits, &made)))
		return err_set(
			EPROTO,
			"%s exists and is too small: it has %u blocks and %u pools, and "
			"vram_blocks %u and ram_blocks %u are asked for: ask for less" SEGMENT_OTHER,
			s->name, g->max_blocks, g->max_pools, cfg->vram_blocks, cfg->ram_blocks);
	if ((err = check_field(s, "block_tokens", h->block_tokens,
			       cfg->block_tokens ? cfg->block_tokens : 16)) ||
	    (err = check_field(s, "max_blocks", g->max_blocks, cfg->max_blocks)) ||
	    (err = check_field(s, "max_peers", g->max_peers, cfg->max_peers)) ||
	    (err = check_field(s, "max_pools", g->max_pools, cfg->max_pools)) ||
	    (err = check_field(s, "tick_us", h->tick_us, cfg->tick_us)) ||
	    (err = check_field(s, "quarantine_ms", h->quarantine_ms, cfg->quarantine_ms)) ||
	    (err = check_field(s, "keep_tokens", !!(g->keep & KEEP_TOKENS), cfg->keep_tokens)) ||
	    (err = check_field(s, "keep_digests", !!(g->keep & KEEP_DIGESTS), cfg->keep_digests)) ||
	    (err = check_field(s, "peer_quota", h->peer_quota, cfg->peer_quota)))
		return err;
	if (cfg->secret && memcmp(cfg->secret, h->secret, sizeof(h->secret)))
		return err_set(EPROTO,
			       "%s exists with another secret than the one that is given: give the "
			       "one that it was made with" SEGMENT_OTHER,
			       s->name);
	if (cfg->free_target && h->free_target != MAX(cfg->free_target, 0))
		return err_set(EPROTO,
			       "%s exists with free_target %d instead of %d: ask for what it "
			       "has" SEGMENT_OTHER,
			       s->name, h->free_target, MAX(cfg->free_target, 0));
	if (cfg->max_aliases && g->alias_buckets != made.alias_buckets)
		return err_set(EPROTO,
			       "%s exists with max_aliases %d instead of %d: ask for what it "
			       "has" SEGMENT_OTHER,
			       s->name,
			       g->alias_buckets ? (int)(g->alias_buckets * SHM_ALIASES) : -1,
			       cfg->max_aliases);
	return check_layout(s, cfg->layout);
}

int segment_check_want(const struct segment *s, const struct segment_want *want)
{
	int err = check_layout(s, want->layout);

	return err || !want->config ? err : check_config(s, want->config);
}

/* ---- all of it ---- */

int segment_check_files(struct segment *s)
{
	int err;

	if ((err = segment_check_owner(s, s->index_fd, "idx")) ||
	    (err = segment_check_owner(s, s->control_fd, "ctl")) ||
	    (err = segment_check_owner(s, s->lock_fd, "lock")) || (err = segment_read_header(s)) ||
	    (err = check_size(s, s->index_fd, "idx", s->at.index_bytes)) ||
	    (err = check_size(s, s->control_fd, "ctl", s->at.control_bytes)) ||
	    (err = segment_check_control(s)) || (err = segment_check_lock(s)) ||
	    (err = check_boot(s)))
		return err;
	return 0;
}
