/* SPDX-License-Identifier: Apache-2.0 */
/* files.h - functions that the sources of segment.h share, and that no other file needs.
 * Tests: t/index/segment-names.t t/index/segment.t */
#ifndef GPC_SEGMENT_FILE_H
#define GPC_SEGMENT_FILE_H

#include <sys/types.h>

#include "index/segment/segment.h"

#define SEGMENT_DIR    "/dev/shm"
#define SEGMENT_PATH   384                     /* bytes that any path takes */
#define SEGMENT_CLOSED 256                     /* bytes that any answer of segment_closed takes */
#define SEGMENT_OTHER  ", or remove the cache" /* that is not what is asked for */

/* ---- segment.c ---- */

/* Everything closed, name and directory checked and stored. */
int segment_begin(struct segment *s, const char *name, const char *dir);
/* DIR/gpc.NAME.suffix */
void segment_path(const struct segment *s, const char *suffix, char path[SEGMENT_PATH]);
/* A file of this name: descriptor, -ENOENT, -EACCES, -EBADMSG (no regular file). */
int segment_open_file(const struct segment *s, const char *suffix, int flags);
/* Does this name still stand for the file behind fd? */
bool segment_is_named(const struct segment *s, const char *suffix, int fd);
/* Map both files into s->index and s->control. */
int segment_map(struct segment *s);

/* ---- index/segment/pages.c ---- */

/* Map a whole file so that its huge pages, if it has any, can be mapped as such: -ENOMEM. */
int segment_map_pages(const struct segment *s, int fd, uint64_t bytes, int prot, uint8_t **ret);
/* The same for ranges of files, one behind the other: `from` and `bytes` are multiples of the file's
 * segment_unit(), and in all ranges but the last one of 2 MiB as well. */
struct segment_range {
	int fd;
	uint64_t from, bytes;
};
int segment_map_ranges(const struct segment *s, const struct segment_range *range, uint32_t n,
		       int prot, uint8_t **ret);
void segment_unmap_pages(const struct segment *s, uint8_t *p, uint64_t bytes);
/* Allocate these bytes of a file, whatever signals come: 0, or errno as posix_fallocate(3) returns it. */
int segment_allocate(int fd, uint64_t from, uint64_t bytes);
/* Ask for huge pages for a new file, if there are any.  The file is allocated after it. */
void segment_advise_huge(const struct segment *s, int fd, uint64_t bytes);

/* ---- index/segment/space.c ---- */

/* The bytes that a new file can have now in the file system of this one.  UINT64_MAX: the system
 * does not say. */
uint64_t segment_free_space(int fd);
/* The limit that is the least there, for a sentence. */
const char *segment_space_limit(int fd);
/* The same only for memory: memory that the kernel can give without swapping, and free swap, and no more
 * than the control groups of this process allow (cgroup 2, memory.max). */
uint64_t segment_free_memory(void);
/* The processors whose time the control groups of this process allow (cgroup 2, cpu.max), rounded up.
 * UINT64_MAX: there is no limit. */
uint64_t segment_processors(void);
/* Memory of these NUMA nodes that is free, or that only has copies of bytes on disk. */
uint64_t segment_free_on_nodes(uint64_t nodes);
/* May a file of this process have so many bytes?  -EFBIG, before the kernel sends SIGXFSZ. */
int segment_check_limit(const struct segment *s, uint64_t bytes);

/* ---- index/segment/validate.c ---- */

/* The unit of file sizes there: 4096, or the huge page of hugetlbfs. */
uint32_t segment_unit(int fd);
int segment_boot_id(uint8_t id[16]);
uint64_t segment_header_sum(const struct shm_header *h);
/* The header of the control segment that belongs to this header of an index. */
void segment_control_header(const struct shm_header *index, struct shm_header *ret);

/* For a file that is closed to this process: its owner, group and mode, and the remedy, in ret. */
const char *segment_closed(const struct stat *st, char *ret, size_t room);
int segment_check_owner(const struct segment *s, int fd, const char *suffix);
/* Read the header of the index, validate it, and store it in s->header; set s->at, too. */
int segment_read_header(struct segment *s);
/* Is enough of the index there to be worth a copy?  -EBADMSG. */
int segment_check_extent(const struct segment *s);
int segment_check_control(const struct segment *s);
int segment_check_lock(const struct segment *s);
/* All of the above, and the files' sizes, pages and boot. */
int segment_check_files(struct segment *s);
int segment_check_want(const struct segment *s, const struct segment_want *want);

/* ---- index/segment/create.c ---- */

/* 0 = the default, or a mode that a cache's files may have; else -EINVAL. */
int segment_check_mode(uint32_t mode);

#define SEGMENT_LEAVE_GROUP ((gid_t)-1) /* as chown(2) has it */
/* The group that gpc_config.gid stands for in files of that mode: 0 is none, UINT32_MAX is group 0. */
static inline gid_t segment_group(uint32_t mode, uint32_t gid)
{
	if (!gid || !(mode & 0060))
		return SEGMENT_LEAVE_GROUP;
	return gid == UINT32_MAX ? 0 : (gid_t)gid;
}

/* ---- index/segment/seed.c ---- */

/* vram_blocks and ram_blocks of the configuration, into a fresh index. */
void segment_seed_pools(const struct segment *s, const struct gpc_config *cfg, uint8_t *index);
/* The pool of ram_blocks has the memory, block_bytes and fingerprint of *made. */
void segment_seed_memory(const struct segment *s, const struct gpc_config *cfg,
			 const struct shm_pool *made, uint8_t *index);

/* ---- index/segment/remove.c ---- */

#define SEGMENT_PATIENCE_MS 2000 /* the wait for a process that creates or removes */

/* Take LOCK_CREATE of s->lock_fd's file, and wait up to two seconds for its holder.  0, -EAGAIN or
 * -errno; -ESTALE if the name stands for another file by then. */
int segment_lock_name(const struct segment *s);
/* Remove a file of this cache; it may be absent. */
int segment_remove_file(const struct segment *s, const char *suffix);
/* Visit each file of this cache, and of caches whose names begin with its name and a dot.  The
 * function gets the rest of the file's name.  Returns the last answer that is not 0. */
int segment_visit(const struct segment *s,
		  int (*visit)(const struct segment *s, const char *suffix, void *arg), void *arg);
/* Does the name of a mirror's file end so? */
bool segment_is_mirror(const char *suffix);
/* Is there an index of this name, whatever it is? */
bool segment_has_index(const struct segment *s);

#endif
