/* SPDX-License-Identifier: Apache-2.0 */
/* shm_memory.h - the rest of shm.h: the file of a pool's memory.
 * Tests: t/bytes/trailers.t t/bytes/memory-file.t t/pages/segment-page.t */
#ifndef GPC_SHM_MEMORY_H
#define GPC_SHM_MEMORY_H

#include <stdint.h>

/* ---- memory of a pool: DIR/gpc.NAME.p<number in 16 hex digits> ----
 *
 *     shm_memory                 header    4096   its maker, immutable once ready
 *     shm_run[nruns]             at 4096          the same
 *     shm_part[nparts]           behind, at a multiple of 64; its maker, each immutable once lent
 *     shm_trailer[slots][nsums]  at `trailers`    RAM with checksums: who has the block reserved, devices
 *     seeds[nsums]               behind           words of 32 bits, atomic: gpc_pool_seed
 *     images                     at `images`      RAM, and VRAM of the host device: who holds a block
 *
 * Locks of the file (OFD, lockfile.h): MEMORY_LOCK_MADE exclusive while it is made, until a pool
 * names it; MEMORY_LOCK_USED shared by each process that has a part mapped, the maker of VRAM
 * included.  A file that no pool of the index names, and that nobody has locked, is garbage: any
 * process may remove it.  A peer may forge all of this.  The process that maps the file checks it,
 * and computes with a private copy. */
#define SHM_RUNS   512u
#define SHM_PARTS  512u
#define SHM_SUMS   256u
#define SHM_IMAGES ((uint64_t)2 << 20) /* images begin at a multiple of this */
#define SHM_FILES  4u

enum { MEMORY_LOCK_MADE = 0, MEMORY_LOCK_USED = 1 };

struct shm_memory {
	uint64_t magic;
	uint32_t version, endian;
	uint8_t cache[16]; /* id of the cache */
	uint64_t number;   /* as in the file's name and in shm_pool */
	uint32_t kind;     /* GPC_VRAM, GPC_RAM */
	uint32_t slots, nruns, nparts;
	uint64_t block_bytes; /* of an image: sum of the runs' pieces */
	/* Offset in this file and bytes, in whole pages.  If both are 0 the parts name another
	 * place.  If images is 0 alone they are another file from its beginning on, whose path is
	 * in part 0's handle. */
	uint64_t images, images_bytes;
	uint64_t nodes;
	uint64_t trailers;   /* their place in this file, before its images; 0: no checksums */
	uint32_t numa, lent; /* lent: 1 = the parts are the maker's own allocations */
	uint8_t fingerprint[32];
	uint8_t uuid[16]; /* VRAM: of the GPU; zeros: the host device */
	char device[32];
	int32_t maker_pid;
	uint32_t nsums; /* RAM with checksums: the number of checksums of an image; else 1 */
	/* RAM whose images are in the folder of the cache: the number of files that have them, this
	 * one, p<number>.1 and so on; else 1.  Each file has as many bytes of them as the others,
	 * in whole huge pages, and the last one the rest. */
	uint32_t files, pad0;
	uint64_t checksum; /* of all bytes above, and of the runs */
	uint32_t ready;    /* SHM_READY; (A) stored last */
	uint32_t pad1;
};
_Static_assert(sizeof(struct shm_memory) == 216, "memory layout");

/* The checksum of a slot's image, or of one of its equal parts (index/base/sums.h).  It counts as
 * long as the block is LIVE, `life` is 1 + the generation of its word, and the key is the
 * record's.  For any other life of the block it means nothing.  It is stored behind the image's
 * copy and before done, `life` last.  A transfer that never ends may leave a checksum, which
 * nobody believes, because its block is not LIVE. */
struct shm_trailer {
	uint64_t key[2];
	uint32_t crc; /* CRC32C (RFC 3720, appendix B.4), begun with `seed` */
	uint32_t life;
	uint32_t seed;
	uint32_t flags; /* GPC_SEAL_UNSUMMED: crc says nothing */
	uint64_t word;  /* the engine's own word */
	uint64_t pad[3];
};
_Static_assert(sizeof(struct shm_trailer) == 64, "trailer layout");

struct shm_run { /* as struct gpc_run */
	uint32_t part, count;
	uint64_t bytes, offset, slot_stride, run_stride;
};
_Static_assert(sizeof(struct shm_run) == 40, "run layout");

struct shm_part {
	uint32_t state; /* 0, then SHM_READY: (A) stored last, when the part is lent */
	uint32_t handle_bytes;
	uint64_t bytes; /* bytes that can be used, from `offset` on */
	/* where the part begins in the allocation or file that the handle names */
	uint64_t offset;
	uint8_t handle[232]; /* cudaIpcMemHandle_t; the host device, huge pages: a path */
};
_Static_assert(sizeof(struct shm_part) == 256, "part layout");

#endif
