/* SPDX-License-Identifier: Apache-2.0 */
/* memfile.h - the file of a pool's memory: drafted, made, opened, checked, removed.
 *
 *   bytes/memfile/open.c    opens and checks it
 *   bytes/memfile/images.c  the files of its images: checks and maps them
 *   bytes/memfile/draft.c   checks the RAM that a caller wants
 *   bytes/memfile/create.c  the RAM pool of gpc_create
 *   bytes/memfile/layout.c  are its runs possible?
 *   bytes/memfile/make.c    makes it
 *   bytes/memfile/pages.c   its pages: allocated, bound to nodes, touched
 *   bytes/memfile/remove.c  removes it, and the leftovers of dead processes
 *
 * The steps in the life of a file, and its state if its maker has died there:
 *
 *   1  memory_make: created with MEMORY_LOCK_MADE held            garbage: no lock, no pool
 *   2  pages allocated and touched, header stored, `ready` last   garbage
 *   3  the command that adds the pool names its number            the pool's; or garbage if the
 *                                                                 command was not carried out
 *   4  memory_made: MEMORY_LOCK_MADE dropped                      the pool's
 *   5  the pool goes: the writer removes the file                 garbage: no pool names it
 *
 * So a process may remove a file if no pool names it and the process gets MEMORY_LOCK_MADE.  For
 * VRAM, MEMORY_LOCK_USED must be free, too: until then an importer keeps the GPU's memory
 * allocated, and memory_find_used() says so to a process that is about to allocate more.
 * Tests: t/bytes/ram-memory.t */
#ifndef GPC_SEGMENT_MEMORY_H
#define GPC_SEGMENT_MEMORY_H

#include "gpc_bytes.h"
#include "index/segment/segment.h"

/* The content of a file, checked, in private memory. */
struct memory {
	uint64_t number;
	uint32_t kind, slots, nruns, nparts;
	uint32_t files; /* of the images */
	uint64_t block_bytes, images, images_bytes, nodes;
	uint64_t trailers; /* their place in the file; to memory_make(): not 0, they are wanted */
	uint32_t numa, nsums;
	uint32_t seed; /* to memory_make(): the seed of all sums */
	bool lent;
	uint8_t fingerprint[32], uuid[16];
	char device[32];
	int32_t maker_pid;
	struct shm_run run[SHM_RUNS];
	int fd; /* open; it shares MEMORY_LOCK_USED if it was opened for use */
};

/* The kind of pages that RAM is to have. */
struct memory_pages {
	uint32_t numa, threads;
	uint64_t nodes;
	const char *huge_dir;
	/* an answer other than 0 stops the making */
	int (*progress)(void *arg, uint64_t done, uint64_t bytes);
	void *progress_arg;
};

/* Check runs that a caller or a file gives, for a pool of that many slots.  0; or -EINVAL with the
 * run, the field, its value and its limit.  ret_part[p] (room for SHM_PARTS; may be NULL) gets the
 * least size of part p, and ret_image the bytes of an image.  It finds any two pieces that
 * overlap. */
int memory_check_runs(const struct shm_run *run, uint32_t nruns, uint32_t nparts, uint32_t slots,
		      uint64_t *ret_part, uint64_t *ret_image);

/* Check the RAM that a caller wants for a pool of that many slots, and prepare it for
 * memory_make().  layout: the cache's, for a caller that gives no fingerprint.  ret_pages points
 * to strings of `want`.  -EINVAL with the field. */
int memory_draft(const struct gpc_memory *want, uint32_t slots, const uint8_t layout[32],
		 struct memory *ret, struct memory_pages *ret_pages);
/* Make the file that *m describes, with the mode and group of the cache's files.  number, images,
 * files and maker_pid are set here, and so is fd, with both locks held.  With images_bytes, which grows
 * to whole pages, all images are there and touched, and part 0 is stored.  -ENOSPC, before
 * anything is made, names the folder and the missing bytes of its file system, of free memory or of
 * huge pages.  -EFBIG: the limit of file sizes of this process.
 * pages: NULL means all defaults.  With huge_dir the images are in a file of the same name there:
 * `images` is 0, images_bytes is not, and part 0's handle is its path.  After an error there is no
 * file. */
int memory_make(const struct segment *s, struct memory *m, const struct memory_pages *pages);
/* The memory of the RAM pool that gpc_create() makes; hooks.h describes these functions. */
struct ram_draft;
/* Put the checksums that a caller wants into the draft: -EINVAL with the field. */
int memory_draft_sums(const struct gpc_memory *want, struct memory *m);
int ram_draft_new(const struct gpc_config *cfg, uint32_t slots, struct ram_draft **ret);
uint64_t ram_draft_room(const struct ram_draft *d);
int ram_draft_make(const struct segment *s, struct ram_draft *d, bool (*wanted)(void *arg),
		   void *arg, struct shm_pool *pool);
void ram_draft_end(const struct segment *s, struct ram_draft *d, bool keep);
int ram_draft_fits(const gpc *c, const struct gpc_config *cfg);
/* A pool names it now: drop MEMORY_LOCK_MADE. */
void memory_made(struct memory *m);
/* Open a pool's file.  With `use`, MEMORY_LOCK_USED is shared until memory_close().  -ESTALE:
 * there is no such file, or it has another number or cache.  -EBADMSG: it is forged or cut. */
int memory_open(const struct segment *s, uint64_t number, bool use, struct memory *ret);
/* Part i as it is now, checked.  -EAGAIN: it is not lent yet; -EBADMSG. */
int memory_read_part(const struct memory *m, uint32_t i, struct shm_part *ret);
/* For its maker: store part i.  -EEXIST: it was stored already. */
int memory_store_part(const struct memory *m, uint32_t i, const struct shm_part *part);
void memory_close(struct memory *m); /* fd -1 is fine */
/* gpc_check(): kind, slots (low half of the range), block_bytes, fingerprint and uuid[0]. */
int memory_describe(const struct segment *s, uint64_t number, struct shm_pool *ret);
/* Map the images of a file, with huge pages if it has any; and unmap them.  -ENOENT: it has no
 * images.  -ESTALE, -EBADMSG: the fault of another file that has some. */
int memory_map_images(const struct segment *s, const struct memory *m, uint8_t **ret);
int memory_map(const struct segment *s, const struct memory *m, int prot, uint8_t **ret);
void memory_unmap_images(const struct segment *s, const struct memory *m, uint8_t *base);

/* The same for its trailers: nsums for each slot, and as many seeds.  -ENOENT: it has none. */
struct memory_trailers {
	struct shm_trailer *at;
	uint32_t *seed;
	uint8_t *base;
	uint64_t bytes;
};
int memory_map_trailers(const struct segment *s, const struct memory *m,
			struct memory_trailers *ret);
void memory_unmap_trailers(struct memory_trailers *t); /* zeros are fine */

/* Does a file of memory end with this suffix?  And: open the file in another folder that has its
 * bytes, read-only: a descriptor; -ENOENT: there is none. */
bool memory_is_file(const char *suffix);
int memory_open_elsewhere(const struct segment *s, const char *suffix, int fd);

/* Take a file's name away, if it is of this cache. */
int memory_remove(const struct segment *s, uint64_t number);
/* Remove every file of this cache that no pool names, as described above.  Any process that may
 * write there may call it.  If s is not open (segment_create), there is no index, hence no
 * pool. */
void memory_sweep(const struct segment *s);
/* Does a pool name that number, which seats' requests may name as well? */
bool memory_is_of_pool(const struct segment *s, uint64_t number);
/* Is there a file that no pool names?  A sweep would look at it, even if a process has it open. */
bool memory_find_unnamed(const struct segment *s);
/* Is there a file of VRAM of this device that no pool names any more, and that is still locked as
 * used?  Then some process has that memory mapped.  Returns its number; else 0. */
uint64_t memory_find_used(const struct segment *s, const uint8_t uuid[16]);

#endif
