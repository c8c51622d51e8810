/* SPDX-License-Identifier: Apache-2.0 */
/* format.h - the bytes of a disk file.  gpc_disk(5) describes them, and t/pages/disk-page.t compares.
 *
 *     disk_super                 at 0           A
 *     disk_super                 at 65536       B
 *     group 0                    at 131072
 *     group 1                    ...
 *
 * and each group, of DISK_GROUP slots, the last one too:
 *
 *     disk_header[DISK_GROUP]    131072 bytes
 *     notes[DISK_GROUP]          note_bytes each, together a multiple of DISK_PAGE
 *     images[DISK_GROUP]         slot_bytes each, a multiple of DISK_PAGE; the last group has as
 *                                many as the file has slots
 *
 * So a file grows at its end, and nothing in it moves.  All numbers are little endian.
 *
 * The headers are the truth.  A block is there when the header of its slot has a good checksum,
 * names this file and this slot, and has the epoch of the superblock.  Its bytes count if they
 * have the header's checksum and the wanted structure, which `seed` names (index/base/sums.h).
 * Anything else is a miss.  A header of zeros marks a free slot.
 *
 * Version 1 had headers with another magic, without seed and word.  Such a file becomes one of
 * version 2 when it is opened, and its headers stay until their slots are written.  A death in the
 * middle of that leaves superblocks of version 1 and version 2: both are good.
 *
 * The order of a write is this: the header becomes zeros; then the image is stored, then the note,
 * then the header.  A process that dies in between leaves a free slot.  A machine that dies may
 * lose any of these stores, because none is synced.  Then header and image do not agree, and
 * the checksums show it.
 *
 * Two superblocks.  B is written first; A only when B is on the disk.  So one of them is whole at
 * any time, and all that was acknowledged is in both.
 * Tests: t/tiers/disk-files.t t/pages/disk-page.t */
#ifndef GPC_DISK_FORMAT_H
#define GPC_DISK_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#define DISK_MAGIC        0x6b736964637067ull /* "gpcdisk" */
#define DISK_HEADER_MAGIC 0x32746c73u         /* "slt2" */
#define DISK_HEADER_1     0x746f6c73u /* "slot": version 1, seed is 1, word the image's length */
#define DISK_VERSION      2u
#define DISK_OLDEST       1u /* that is read */
#define DISK_ENDIAN       0x01020304u
#define DISK_PAGE         4096u
#define DISK_SUPER_A      0u
#define DISK_SUPER_B      65536u
#define DISK_GROUPS       131072u
#define DISK_GROUP        1024u
#define DISK_HEADER_BYTES 128u

#define DISK_MOST_SLOTS (1u << 28)
#define DISK_MOST_IMAGE (1ull << 32)
#define DISK_MOST_NOTE  (1u << 16)

enum disk_made { DISK_UNMADE = 0, DISK_MADE = 1 };

struct disk_super {
	uint64_t magic; /* from here to `has_secret`: its maker, immutable but `slots` */
	uint32_t version, endian;
	uint8_t file[16];        /* id of this file, random */
	uint8_t fingerprint[32]; /* layout of the images */
	uint64_t slots;
	uint64_t image_bytes, slot_bytes;
	uint32_t note_bytes, made;
	uint8_t secret[16];    /* of the keys; zeros: it is kept elsewhere */
	uint64_t secret_check; /* differs for another secret */
	uint64_t generation;   /* rises with each write of a superblock: the higher one counts */
	uint64_t epoch;        /* headers with another epoch are invalid */
	/* how often it was opened: upper bits of `serial`, and of an epoch that a clear begins */
	uint64_t opens;
	uint64_t clock_ns; /* the file's own clock (disk_now), and when that was: */
	uint64_t boot_ns;  /*   CLOCK_BOOTTIME */
	uint64_t real_ns;  /*   CLOCK_REALTIME */
	uint8_t boot[16];  /*   of the boot with this id */
	uint8_t pad[DISK_PAGE - 192];
	uint32_t zero;
	uint32_t checksum; /* CRC32C of all bytes before it */
};
_Static_assert(sizeof(struct disk_super) == DISK_PAGE, "superblock layout");
_Static_assert(offsetof(struct disk_super, slots) == 64, "superblock layout");
_Static_assert(offsetof(struct disk_super, secret) == 96, "superblock layout");
_Static_assert(offsetof(struct disk_super, epoch) == 128, "superblock layout");
_Static_assert(offsetof(struct disk_super, boot) == 168, "superblock layout");

struct disk_header {
	uint32_t magic;
	uint32_t seed;    /* that the image's checksum begins with */
	uint8_t file[16]; /* of the superblock: no header of another file counts */
	uint64_t epoch;
	uint64_t slot;   /* its own number: no header in another place counts */
	uint64_t serial; /* rises with each header: of two with one key the higher counts */
	uint64_t key[2], parent[2];
	uint32_t depth, tag;
	uint64_t word;       /* the engine's own, of the image */
	uint64_t born_ns;    /* by the file's own clock */
	uint64_t written_ns; /* CLOCK_REALTIME, for people */
	uint32_t crc;        /* CRC32C of the image, begun with seed */
	uint32_t note_bytes, note_crc;
	uint32_t checksum; /* CRC32C of all bytes before it */
};
_Static_assert(sizeof(struct disk_header) == DISK_HEADER_BYTES, "header layout");
_Static_assert(offsetof(struct disk_header, key) == 48, "header layout");
_Static_assert(offsetof(struct disk_header, word) == 88, "header layout");
_Static_assert(offsetof(struct disk_header, checksum) == 124, "header layout");
/* A note, if its block has one; ntokens tokens of 4 bytes follow.  Only its writer knows its
 * content: the file counts bytes. */
#define DISK_NOTE_VERSION 1u
struct disk_note {
	uint32_t version;
	uint32_t group; /* KV group */
	/* ntokens: block_tokens of the cache that wrote it; 0: it has no tokens */
	uint32_t digest_bytes, ntokens;
	uint8_t digest[32];
};
_Static_assert(sizeof(struct disk_note) == 48, "note layout");

_Static_assert(DISK_GROUP *DISK_HEADER_BYTES % DISK_PAGE == 0, "images are aligned");

#endif
