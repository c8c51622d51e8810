/* SPDX-License-Identifier: Apache-2.0 */
/* host.h - declarations that both files of the host device share.
 *
 *   bytes/device/host.c          the driver's table; launches, and questions of the host
 *   bytes/device/host_mirror.c   the writer's mirror: made, uploaded, flushed
 *   bytes/device/host_import.c   a mirror of any process: mapped, read
 *   bytes/device/host_kernel.c   its "kernels"
 *   bytes/device/host_stream.c   its stream
 *
 * A mirror is a file in the folder of the segments:
 *
 *   DIR/gpc.NAME.m<handle>     header  4096 bytes
 *                              table   as in the index, buckets * 64 bytes
 *                              status  128 bytes: the changes that it shows, pools, spaces
 *
 * The file is the mirror's memory.  Its writer stores there from a thread of the mirror's own, so
 * a flush is as asynchronous as a copy to a GPU.  Importers map the file read-only.  The handle of
 * the descriptor is the text after the m, which is the mirror's generation. */
#ifndef GPC_DEVICE_HOST_H
#define GPC_DEVICE_HOST_H

#include "bytes/device/device.h"

struct host_header {    /* at 0; r: all; immutable after creation */
	uint64_t magic; /* SHM_MAGIC_MIRROR */
	uint32_t version, endian;
	uint32_t buckets, generation;
	uint64_t bytes;
	uint8_t id[16]; /* of the segments it mirrors */
};
_Static_assert(sizeof(struct host_header) == 48, "header of a host mirror");

/* The bytes of the file, whose pages are larger in a hugetlbfs. */
static inline uint64_t host_bytes(const struct segment *s)
{
	return ROUND_UP(SHM_PAGE + device_table_bytes(s->header.geometry.buckets) +
				sizeof(struct mirror_status),
			(uint64_t)s->unit);
}

static inline struct probe_entry *host_table(uint8_t *base)
{
	return (struct probe_entry *)(base + SHM_PAGE);
}

static inline struct mirror_status *host_status(uint8_t *base, uint32_t buckets)
{
	return (struct mirror_status *)(base + SHM_PAGE + device_table_bytes(buckets));
}

#define HOST_PATH 512 /* bytes of a mirror's path */
/* The handle comes from a segment, so it is checked: -EBADMSG. */
int host_path(const struct segment *s, const uint8_t handle[64], char ret[HOST_PATH]);

/* ---- bytes/device/host_mirror.c ---- */
int host_create(const struct segment *s, const char *device, uint32_t generation,
		struct shm_mirror *desc, void **ret_mirror);
int host_upload(void *mirror, const struct probe_entry *table, uint64_t entries,
		const struct mirror_status *status);
int host_flush(void *mirror, const struct launch_change *changes, uint32_t n,
	       const struct mirror_status *status);
int host_flushed(void *mirror);
void host_destroy(void *mirror);
void host_sweep(const struct segment *s, const struct shm_mirror *desc);

/* ---- bytes/device/host_import.c ---- */
int host_import(const struct segment *s, const struct shm_mirror *desc, void **ret_import,
		struct dev_view *view);
void host_release(void *import);
int host_read(const struct segment *s, const struct shm_mirror *desc, struct probe_entry *table,
	      uint64_t entries, uint64_t *ret_sequence);

#endif
