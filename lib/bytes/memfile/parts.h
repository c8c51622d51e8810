/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h - functions that the sources of memfile.h share, and that no other file needs.
 *
 * The images of a pool are at `images` of the file that describes it, and, if they are many bytes,
 * in further files beside it.  With a huge_dir they are at the beginning of a file of the same
 * name in that folder of a hugetlbfs; then `images` is 0, and the handle of part 0 is that file's
 * path.  So the one name in the folder of the cache's files leads to all.
 * Tests: t/bytes/memory-file.t */
#ifndef GPC_SEGMENT_MEMORY_FILE_H
#define GPC_SEGMENT_MEMORY_FILE_H

#include "index/segment/files.h"
#include "bytes/memfile/memfile.h"

#define MEMORY_OWN    17                  /* bytes of "p" and 16 digits */
#define MEMORY_SUFFIX 24                  /* of those, of ".3" and a final 0 */
#define MEMORY_BYTES  ((uint64_t)1 << 62) /* there are never more, so sums of two do not wrap */

/* ---- open.c ---- */

/* The place of part i's description; for i = nparts, the bytes of everything but the images. */
uint64_t memory_entry_place(uint32_t nruns, uint32_t i);
/* The bytes of everything but the images: tables, and trailers if it has them. */
uint64_t memory_tables(const struct memory *m);
/* The bytes of the trailers, and of the seeds behind them. */
uint64_t memory_trailers_bytes(uint32_t slots, uint32_t nsums);
uint64_t memory_sum(const struct shm_memory *h, const struct shm_run *run);
/* Map those pages of a file that have `bytes` bytes at `at`.  ret is their address; ret_base and
 * ret_bytes are for munmap. */
int memory_map_tables(const struct segment *s, int fd, uint64_t at, uint64_t bytes,
		      uint8_t **ret_base, uint64_t *ret_bytes, uint8_t **ret);

void memory_suffix(uint64_t number, char ret[MEMORY_SUFFIX]);
/* The number in a suffix; 0: it is no suffix of a memory. */
uint64_t memory_suffix_number(const char *suffix);
/* Read header and runs of a file, ready or not, and check their sum: 0, -EBADMSG. */
int memory_read_header(int fd, struct shm_memory *h, struct shm_run run[SHM_RUNS]);
void memory_read_entry(int fd, uint32_t nruns, uint32_t i, struct shm_part *ret);
/* -EBADMSG and -ESTALE, of a file of that memory. */
int memory_forged(const struct segment *s, uint64_t number, uint32_t file, const char *why);
int memory_gone(const struct segment *s, uint64_t number, uint32_t file);

/* ---- images.c ---- */

/* The kernel has one lock for all pages of a file, and threads that make pages wait for each other
 * there.  So images are in several files, of at least so many bytes each.  Tests make it smaller. */
extern uint64_t memory_cut;
/* The number of files for so many bytes: 1 to SHM_FILES. */
uint32_t memory_files_for(uint64_t images_bytes);
/* Has each of so many files bytes of these images? */
bool memory_files_fit(uint64_t images_bytes, uint32_t files);
/* The images in file i of m->files: their place in the file and their bytes.  fd is -1, except of
 * the file itself. */
struct segment_range memory_range(const struct memory *m, uint32_t i);
/* Of file i; 0: the file itself. */
void memory_file_suffix(uint64_t number, uint32_t i, char ret[MEMORY_SUFFIX]);
/* Open range i's file, and check its owner and extent: a descriptor, m->fd for images in the file
 * itself; -ESTALE, -EBADMSG. */
int memory_open_range(const struct segment *s, const struct memory *m, uint32_t i);
bool memory_is_further(const char *suffix);
/* Has that file, of range i, all that it should have?  -EBADMSG. */
int memory_check_extent(const struct segment *s, const struct memory *m, uint32_t i, int fd);
/* The path in a handle, if memory_make() can have written it for this number: the file has that
 * name, and its folder is in a hugetlbfs.  -EBADMSG. */
int memory_huge_path(const struct segment *s, uint64_t number, const struct shm_part *part,
		     char ret[SEGMENT_PATH]);

/* ---- pages.c ---- */

/* Check a caller's request, and complete it: nodes 0 with a policy mean all nodes that the process
 * may use.  The unit is the one of files in the folder, which is a hugetlbfs if there is a huge_dir.
 * -EINVAL. */
int memory_check_pages(const struct memory_pages *p, const char *folder, uint32_t *ret_numa,
		       uint64_t *ret_nodes, uint32_t *ret_unit);
/* Is there that much memory in that folder, for pages of these nodes (0: any)?  -ENOSPC. */
int memory_check_room(const struct segment *s, const char *folder, uint64_t nodes, uint64_t bytes);
/* Allocate and touch all pages of m's images, which are in m->files files of that folder. */
int memory_make_pages(const struct segment *s, const struct memory *m,
		      const struct segment_range *range, const char *folder,
		      const struct memory_pages *p);

/* ---- remove.c ---- */

/* For segment_visit(): remove a file of memory, whether it is locked or not, and whatever it
 * contains. */
int memory_remove_named(const struct segment *s, const char *suffix, void *arg);

#endif
