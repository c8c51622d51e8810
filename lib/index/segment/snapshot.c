/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.c - a look from outside: pread, nothing mapped.
 *
 * Tools look at caches that are being changed, truncated or removed.  A pread cannot raise a
 * signal.  Missing bytes read as zeros, which every reader treats as empty.  segment_read reads a
 * few bytes as they are now.  segment_refresh copies everything for readers of the table or
 * records, except for the unwritten part of the ring of dropped keys.
 * Tests: t/index/segment-snapshot.t t/index/read-only.t t/look/check-live.t
 *   t/bytes/hostile-files.t */
#include "index/segment/files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "index/base/err.h"
#include "index/base/fd.h"

#define SNAPSHOT_TRIES 8 /* tries while other processes remove the name and make it again */
#define CHUNK          (1u << 30)

/* The rest of a copy becomes zero; whole pages are not touched for that. */
static void zero_from(uint8_t *copy, uint64_t got, uint64_t bytes)
{
	uint64_t page = MIN(ROUND_UP(got, SHM_PAGE), bytes);

	memset(copy + got, 0, page - got);
	if (page < bytes)
		madvise(copy + page, bytes - page, MADV_DONTNEED);
}

/* The number of bytes that were there. */
static uint64_t read_all(int fd, uint64_t at, uint8_t *to, uint64_t bytes)
{
	uint64_t got = 0;
	ssize_t n = 1;

	while (fd >= 0 && got < bytes && n > 0) {
		do
			n = pread(fd, to + got, MIN(bytes - got, (uint64_t)CHUNK),
				  (off_t)(at + got));
		while (n < 0 && errno == EINTR);
		got += n > 0 ? (uint64_t)n : 0;
	}
	return got;
}

void segment_read(int fd, uint64_t at, void *to, uint64_t bytes)
{
	uint64_t got = read_all(fd, at, to, bytes);

	memset((uint8_t *)to + got, 0, bytes - got);
}

/* true: all of them were there */
static bool copy_file(int fd, uint8_t *copy, uint64_t bytes)
{
	uint64_t got = read_all(fd, 0, copy, bytes);

	zero_from(copy, got, bytes);
	return got == bytes;
}

static bool is_short(int fd, uint64_t bytes)
{
	struct stat st;

	return fd < 0 || fstat(fd, &st) || (uint64_t)st.st_size < bytes;
}

/* The ring of dropped keys is larger than all the rest of a small cache.  It is copied only up to
 * the keys that were stored: the ring's head stands before the ring, and nobody looks beyond the
 * head. */
static bool copy_index(struct segment *s)
{
	uint64_t before = s->at.drop, told, got = read_all(s->index_fd, 0, s->index, before);

	if (got == before) {
		told = MIN(seg_state(s)->drops_head, (uint64_t)SHM_DROPS) * sizeof(struct shm_drop);
		before += told;
		got += read_all(s->index_fd, got, s->index + got, told);
	}
	zero_from(s->index, got, s->at.index_bytes);
	return got == before && !is_short(s->index_fd, s->at.index_bytes);
}

static int anonymous(uint64_t bytes, uint32_t unit, uint8_t **ret)
{
	size_t n = ROUND_UP(bytes, unit);
	void *p;

	if (*ret)
		return 0;
	p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		 0);
	if (p == MAP_FAILED)
		return err_sys(ENOMEM, "a copy of %zu bytes", n);
	*ret = p;
	return 0;
}

#define RECORDS_A_READ 256u

/* The control segment was copied after the index: a note may be of a later life of its block.
 * A record whose word is still the copied one has had that note all the time, by the rule of
 * index/segment/note.h; other records are copied without their notes. */
static void drop_late_notes(const struct segment *s)
{
	struct shm_record now[RECORDS_A_READ];
	uint32_t i, j, n, max = s->header.geometry.max_blocks;

	for (i = 0; i < max; i += n) {
		n = MIN(max - i, RECORDS_A_READ);
		segment_read(s->index_fd, s->at.record + (uint64_t)i * sizeof(now[0]), now,
			     n * sizeof(now[0]));
		for (j = 0; j < n; j++)
			if (now[j].word != seg_record(s, i + j)->word)
				memset(seg_note(s, i + j), 0, sizeof(struct shm_note));
	}
}

int segment_refresh(struct segment *s)
{
	bool index, control;
	int err;

	if ((err = anonymous(s->at.index_bytes, s->unit, &s->index)) ||
	    (err = anonymous(s->at.control_bytes, s->unit, &s->control)))
		return err;
	index = copy_index(s);
	control = copy_file(s->control_fd, s->control, s->at.control_bytes);
	if (s->header.geometry.note_lines)
		drop_late_notes(s);
	s->cut = !index || !control;
	s->truncated = s->cut || s->lock_fd < 0;
	return 0;
}

/* The kernel lets us read the file.  Unless we are root, we read only files that we would also
 * attach to. */
static int check_reader(const struct segment *s, int fd, const char *suffix)
{
	return geteuid() ? segment_check_owner(s, fd, suffix) : 0;
}

static int open_index(struct segment *s)
{
	int err;

	s->index_fd = segment_open_file(s, "idx", O_RDONLY);
	if (s->index_fd < 0)
		return s->index_fd;
	s->lock_fd = segment_open_file(s, "lock", O_RDONLY);
	if ((err = check_reader(s, s->index_fd, "idx")))
		return err;
	err = segment_read_header(s);
	return err ? err : segment_check_extent(s);
}

/* The control segment and the lock file may be missing, but may not belong to others. */
static int open_rest(struct segment *s)
{
	struct shm_header h;
	int err;

	if (s->lock_fd >= 0 && segment_check_lock(s)) {
		fd_close(s->lock_fd);
		s->lock_fd = -1;
	}
	s->control_fd = segment_open_file(s, "ctl", O_RDONLY);
	if (s->control_fd < 0)
		return 0;
	if ((err = check_reader(s, s->control_fd, "ctl")))
		return err;
	if (pread(s->control_fd, &h, sizeof(h), 0) != sizeof(h))
		return 0; /* the file is cut off: zeros stand there */
	return segment_check_control(s);
}

/* One of its files is not whole: the sentence names the file and the missing part. */
static int say_cut(const struct segment *s, const char *suffix, int fd, uint64_t bytes)
{
	struct stat st;

	if (fd < 0)
		return err_set(EBADMSG, "gpc.%s.%s is missing, or no file of this cache", s->name,
			       suffix);
	if (fstat(fd, &st))
		return err_sys(errno, "gpc.%s.%s", s->name, suffix);
	return err_set(EBADMSG, "gpc.%s.%s has %llu bytes instead of %llu", s->name, suffix,
		       (unsigned long long)st.st_size, (unsigned long long)bytes);
}

int segment_check_index(const struct segment *s)
{
	if (!s->snapshot || !is_short(s->index_fd, s->at.index_bytes))
		return 0;
	return say_cut(s, "idx", s->index_fd, s->at.index_bytes);
}

int segment_check_copies(const struct segment *s)
{
	if (!s->snapshot || !s->cut)
		return 0;
	if (is_short(s->index_fd, s->at.index_bytes))
		return segment_check_index(s);
	if (is_short(s->control_fd, s->at.control_bytes))
		return say_cut(s, "ctl", s->control_fd, s->at.control_bytes);
	return err_set(EBADMSG, "the files of %s ended too early when they were copied", s->name);
}

static int snapshot_once(struct segment *s)
{
	int err;

	if ((err = open_index(s)) || (err = open_rest(s)))
		return err;
	s->truncated = is_short(s->index_fd, s->at.index_bytes) ||
		       is_short(s->control_fd, s->at.control_bytes) || s->lock_fd < 0;
	return 0;
}

/* As in segment_open, a cache that looks damaged may be half removed and half made anew.  A caller
 * that asks for the reason gets the sentence that an attaching process would get. */
int segment_snapshot(struct segment *s, const char *name, const char *dir)
{
	bool replaced = true;
	int i, err = 0, verdict;

	for (i = 0; i < SNAPSHOT_TRIES && replaced; i++) {
		if ((err = segment_begin(s, name, dir)))
			return err;
		s->snapshot = true;
		err = snapshot_once(s);
		replaced = s->index_fd >= 0 && (err || s->truncated) &&
			   !segment_is_named(s, "idx", s->index_fd);
		if (!err && !replaced)
			return 0;
		segment_close(s);
	}
	if (replaced)
		return err_set(ENOENT, "%s is removed and created all the time", name);
	verdict = segment_verdict(name, dir);
	return verdict ? verdict : err;
}
