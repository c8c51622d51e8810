/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h - declarations that the parts of the cuda device share.
 *
 *   bytes/device/cuda.c         the driver's table; errors
 *   bytes/device/cuda_name.c    devices by number and UUID
 *   bytes/device/cuda_thread.c  the calling thread's device
 *   bytes/device/cuda_memory.c  memory between processes; pins
 *   bytes/device/cuda_mirror.c  the writer's mirror: made, uploaded, read back
 *   bytes/device/cuda_flush.c   changes on their way to it
 *   bytes/device/cuda_peer.c    imports, launches, the signal that ends a section
 *   bytes/device/cuda_query.c   host-in, host-out
 *   bytes/device/cuda_bytes.c   the memory of pools: made, lent, mapped
 *   bytes/device/cuda_pin.c     host memory that copies use
 *   bytes/device/cuda_copier.c  what copies need of each device
 *   bytes/device/cuda_probe.c   the largest pitch
 *   bytes/device/cuda_copy.c    copies, and what marks their end
 *   bytes/device/cuda_sum.c     sums of images
 *   bytes/device/cuda_event.c   events between streams
 *
 * Every function works on the device that is named, and leaves the caller's current device as it
 * was.  A forked child has no CUDA, so there these functions only give host memory back. */
#ifndef GPC_DEVICE_CUDA_H
#define GPC_DEVICE_CUDA_H

#include "bytes/device/bytes.h"
#include "bytes/device/device.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/types.h>

/* A copy below this size waits for the time slice of a busy neighbour, like a kernel; a larger
 * copy does not.  The status is copied by itself, so it has that much room. */
#define CUDA_CHUNK 32768u

/* For tests: the n-th CUDA call from now on is not made, and fails with cudaErrorUnknown; 0:
 * none. */
extern uint32_t device_cuda_fail_at;
bool cuda_injected(void);
#define CUDA(call) (cuda_injected() ? cudaErrorUnknown : (call))

/* Set the error, with CUDA's own text: -ENODEV, -ENOMEM, -EINVAL, -EAGAIN or -EIO. */
int cuda_error(cudaError_t e, const char *what) __attribute__((cold));

/* ---- bytes/device/cuda_thread.c ---- */
/* The calling thread works on this device until cuda_leave.  Its context is kept, and not its
 * device, because setting a device makes a context there. */
struct cuda_scope {
	CUcontext before;
	enum cudaStreamCaptureMode mode;
};
int cuda_switch(int ordinal, CUcontext *ret_before);
void cuda_switch_back(CUcontext before);
cudaError_t cuda_check_stream(cudaStream_t stream);
/* A function of the driver, by the name and the signature that it has in CUDA 12. */
cudaError_t cuda_driver_call(const char *name, void **ret);
int cuda_enter(struct cuda_scope *s, int ordinal);
void cuda_leave(const struct cuda_scope *s);
/* A graph of the work that the stream has captured since its capture began.  launched: did the
 * captured launches succeed? */
cudaError_t cuda_graph(cudaStream_t stream, cudaError_t launched, cudaGraphExec_t *ret);

/* ---- bytes/device/cuda_name.c ---- */
/* "cuda:N" as this process counts, "GPU-" and a UUID, whole or its beginning: -ENODEV. */
int cuda_ordinal(const char *device, int *ret);
int cuda_ordinal_of(const uint8_t uuid[16], int *ret);
int cuda_uuid(int ordinal, uint8_t ret[16]);

/* ---- bytes/device/cuda_memory.c ---- */
/* Device memory that other processes map, or that another process has made.  A process cannot
 * import memory that it exports, so its own is found by the handle. */
struct cuda_memory {
	struct cuda_memory *next;
	uint32_t users;
	int ordinal;
	pid_t pid;
	bool imported;
	bool lent; /* the caller's memory: it is never freed here, and known until it has gone */
	uint8_t *base;
	cudaIpcMemHandle_t handle;
};
/* For both the device is entered. */
int cuda_memory_make(uint64_t bytes, int ordinal, struct cuda_memory **ret);
int cuda_memory_import(const uint8_t handle[64], int ordinal, struct cuda_memory **ret);
void cuda_memory_put(struct cuda_memory *m);
/* A whole allocation of the caller's: its handle.  This process finds the allocation by the handle
 * then. */
int cuda_memory_lend(void *base, int ordinal, cudaIpcMemHandle_t *ret);

/* Register host memory, in whole pages, for all devices; it may be repeated.  id and offset name
 * the mapping, because another mapping may have been there before. */
int cuda_pin(void *base, uint64_t bytes, const uint8_t id[16], uint64_t offset);
void cuda_unpin(void *base);

static inline uint64_t cuda_table_bytes(const struct segment *s)
{
	return device_table_bytes(s->header.geometry.buckets);
}

/* The status's place in a mirror. */
static inline uint64_t cuda_status_at(const struct segment *s)
{
	return ROUND_UP(cuda_table_bytes(s), (uint64_t)256);
}

/* ---- bytes/device/cuda_query.c: the state of a handle's device for questions ---- */
struct cuda_query;
struct mirror_view;
/* With the device entered.  The state is made with the first question.  word: of the view. */
int cuda_query_ask(struct cuda_query **query, struct mirror_view *const *word,
		   const struct device_query *q, struct device_result *ret);
void cuda_query_free(struct cuda_query *query); /* NULL is fine */

/* ---- bytes/device/cuda_copier.c, bytes/device/cuda_probe.c: a device's state for copies ---- */
struct cuda_copier {
	int ordinal;
	uint32_t blocks;     /* blocks of threads in a launch of copy.cu */
	uint64_t max_pitch;  /* 0: nobody has asked for it yet */
	cudaStream_t stream; /* for probes, and to find out whether the context is lost */
	bool writes;         /* the driver's streams write words of 64 bits */
	uint64_t *word;      /* a word of its memory that nobody reads */
};
/* It is made with the first question, and lives as long as the process.  The device is entered. */
int cuda_copier(int ordinal, struct cuda_copier **ret);
/* Enter the device; returns the ordinal of that uuid. */
int cuda_enter_uuid(struct cuda_scope *s, const uint8_t uuid[16], int *ret_ordinal);
int cuda_check_copies(const uint8_t uuid[16], void *stream);
int cuda_limits(const uint8_t *to, const uint8_t *from, struct copy_limits *ret);
int cuda_copy_state(const uint8_t uuid[16]);
/* The largest pitch at which copies between this device and host memory were seen to be right. */
uint64_t cuda_probe_pitch(int ordinal, cudaStream_t stream);

/* ---- bytes/device/cuda_copy.c ---- */
int cuda_copy(const uint8_t uuid[16], const struct copy_op *ops, uint32_t n, void *stream,
	      uint32_t *ret_done);
int cuda_copy_pairs(const uint8_t uuid[16], const struct copy_shape *shapes, uint32_t nshapes,
		    const struct copy_pair *pairs, uint32_t npairs, void *stream);
int cuda_mark(const uint8_t uuid[16], uint64_t *done, uint64_t value, void *stream);
int cuda_mark_now(const uint8_t uuid[16], uint64_t *done, uint64_t value);

/* ---- bytes/device/cuda_event.c ---- */
int cuda_event_make(const uint8_t uuid[16], void **ret_event);
void cuda_event_free(void *event);
int cuda_event_record(void *event, void *stream);
int cuda_event_wait(void *event, void *stream);
int cuda_event_passed(void *event);
int cuda_find_stream(void *stream, uint8_t ret_uuid[16]);

/* ---- bytes/device/cuda_sum.c ---- */
int cuda_sum_open(const uint8_t uuid[16], const struct sum_piece *pieces, uint32_t n,
		  uint32_t blocks, void **ret);
void cuda_sum_close(void *sums);
int cuda_sum(void *sums, const struct sum_want *want, uint32_t n, uint32_t lane, uint64_t *bad,
	     void *stream);

/* ---- bytes/device/cuda_pin.c ---- */
int cuda_pin_bytes(void *base, uint64_t bytes);
void cuda_unpin_bytes(void *base);

/* ---- bytes/device/cuda_mirror.c, bytes/device/cuda_flush.c ---- */
int cuda_create(const struct segment *s, const char *device, uint32_t generation,
		struct shm_mirror *desc, void **ret_mirror);
int cuda_upload(void *mirror, const struct probe_entry *table, uint64_t entries,
		const struct mirror_status *status);
int cuda_flush(void *mirror, const struct launch_change *changes, uint32_t n,
	       const struct mirror_status *status);
int cuda_flushed(void *mirror);
void cuda_destroy(void *mirror);
int cuda_read(const struct segment *s, const struct shm_mirror *desc, struct probe_entry *table,
	      uint64_t entries, uint64_t *ret_sequence);

/* ---- bytes/device/cuda_peer.c ---- */
int cuda_import(const struct segment *s, const struct shm_mirror *desc, void **ret_import,
		struct dev_view *view);
void cuda_release(void *import);
int cuda_open(const struct segment *s, uint32_t peer, const char *device, void **ret_dev);
void cuda_close(void *dev);
int cuda_adopt(void *dev, void *import);
int cuda_lookup(void *dev, const struct dev_view *view, uint32_t spaces, const gpc_key *keys,
		uint32_t n, gpc_block *blocks, void *stream);
int cuda_match(void *dev, const struct dev_view *view, uint32_t spaces, const gpc_key *keys,
	       const uint32_t *start, uint32_t nseq, uint32_t *len, gpc_block *blocks,
	       void *stream);
int cuda_signal(void *dev, uint64_t *done, uint64_t ticket, void *stream);
int cuda_ask(void *dev, const struct dev_view *view, const struct device_query *q,
	     struct device_result *ret);
void cuda_counted(void *dev, uint64_t counts[DEVICE_COUNTERS]);
int cuda_wait(void *dev, void *stream, int timeout_ms);
bool cuda_lost(void *dev);

#endif
