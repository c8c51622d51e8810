/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.h - the functions of a device for the memory of pools, and for copies.
 *
 *   bytes/device/host_bytes.c  VRAM of the host device, in the memory's own file; copies by a stream's
 *                              thread.  The table of the host device is at its end
 *   bytes/device/host_sum.c    its checksums                  host_event.c   events of its streams
 *   bytes/device/cuda_bytes.c  allocations and IPC; CUDA's table
 *   bytes/device/cuda_pin.c    host memory, in chunks         cuda_copy.c    copies on a stream
 *   bytes/device/cuda_sum.c    checksums                      cuda_event.c   events; the device of
 *                                                                            a stream
 *   kernels/copy.cu            copies within one GPU
 *
 * All functions return 0 or a negative errno with err_set.  They work on the device that is named,
 * and leave the caller's current device as it was.  None waits for another process's stream or
 * event.  No pointer is NULL.  A device is never asked for a thing that its capabilities exclude;
 * it refuses other impossible calls with a sentence.  A table in lib/bytes/README.md says which
 * thread calls each function, whether it may wait, and what follows when it fails.
 * Tests: t/bytes/bytes-device.t */
#ifndef GPC_DEVICE_BYTES_H
#define GPC_DEVICE_BYTES_H

#include "index/base/base.h"
#include "index/segment/shm.h"

/* Rows of `width` bytes, which are `to_pitch` and `from_pitch` apart; `slices` of these, which are
 * `to_slice` and `from_slice` apart.  With one row the pitches are unused, and with one slice the
 * slice strides are. */
struct copy_op {
	uint8_t *to;
	const uint8_t *from;
	uint64_t width, rows, to_pitch, from_pitch;
	uint64_t slices, to_slice, from_slice;
};

/* One operation of every block's copy, with the addresses of slot 0. */
struct copy_shape {
	uint8_t *to;
	const uint8_t *from;
	uint64_t to_slot, from_slot; /* distance from a slot to the next */
	uint64_t width, rows, to_pitch, from_pitch;
};

struct copy_pair {
	uint32_t from, to;
}; /* the slots of a pair */

/* Sums of images (struct shm_trailer): the places of an image's pieces, and the images to sum.  An
 * image may be a chunk of several blocks: piece 0 of each block, then piece 1 of each, and so
 * on. */
struct sum_piece {
	const uint8_t *at; /* address in slot 0 */
	uint64_t slot_stride, bytes;
};

#define SUM_BLOCKS 256u

struct sum_want {
	/* pinned, if the device is a GPU; all trailers of one call are in one mapping */
	struct shm_trailer *trailer;
	uint64_t key[2];
	uint32_t slot;         /* the slot of the image, if it is one block ... */
	uint32_t index;        /* place of the block in its command */
	uint32_t life;         /* of the trailer's block */
	uint32_t seed;         /* the sum begins with it; one seed for all of a call */
	uint64_t word;         /* stored with the sum; only the host stores it */
	const uint32_t *slots; /* ... or the slots of the blocks of a chunk, in order */
};

/* The plan that all devices share: the position of an image's part number `part`, of n pieces
 * times `blocks`. */
struct sum_part {
	const struct sum_piece *piece;
	uint32_t place; /* place of the block in the chunk */
};
static inline struct sum_part sum_part_of(const struct sum_piece *pieces, uint32_t blocks,
					  uint32_t part)
{
	return (struct sum_part){ &pieces[part / blocks], part % blocks };
}

static inline uint32_t sum_slot_of(const struct sum_want *w, uint32_t place)
{
	return w->slots ? w->slots[place] : w->slot;
}

/* The abilities of a device's copies, measured at first use. */
struct copy_limits {
	uint64_t max_pitch; /* larger pitches must not be used; UINT64_MAX: none is too large */
	bool slices;        /* an op may have more than one slice */
	bool pairs;         /* copy_pairs() is the faster way, if it is possible */
};

struct device_bytes {
	/* Its memory is RAM: copies, checksums and done words need no registration.  A copy
	 * between it and another device is made by that device. */
	bool in_ram;
	/* It makes checksums.  If not, sum_open(), sum() and sum_close() are not called.  RAM
	 * pools that keep checksums refuse its fetches and spills then (-EOPNOTSUPP), and
	 * no_checksums makes RAM without. */
	bool sums;

	/* Make VRAM that other processes can map, on the device of that uuid (zeros: host), and
	 * fill the part's handle, offset and bytes. */
	int (*make)(const uint8_t uuid[16], uint64_t bytes, struct shm_part *part,
		    void **ret_memory, void **ret_base);
	/* The caller's own memory: fill the part; the memory stays as it is.  -EINVAL: it cannot
	 * be exported, or is not of that device. */
	int (*lend)(const uint8_t uuid[16], void *base, uint64_t bytes, struct shm_part *part);
	/* Map a part in this process; once for each handle, counted.  It is opened on the device
	 * of uuid, or, if this process does not see that one, on the thread's own device as its
	 * peer.  -ESTALE: its maker is gone.  -EBADMSG: it leads out of the allocation of its
	 * handle.  It stays valid when its maker dies, until it is unmapped, because copies under
	 * way read and write it. */
	int (*map)(const uint8_t uuid[16], const struct shm_part *part, void **ret_memory,
		   void **ret_base);
	void (*unmap)(void *memory); /* a part of make or map */

	/* Host memory that copies read and write, from `base` on, 2 MiB aligned: register it for
	 * all devices of this process.  A chunk that is registered already stays so. */
	int (*pin)(void *base, uint64_t bytes);
	void (*unpin)(void *base);

	/* -EINVAL: the stream is being captured. */
	int (*check_stream)(const uint8_t uuid[16], void *stream);
	/* The limits of copies between these two UUIDs (NULL: host memory).  The first question
	 * for a GPU tries strides and takes some 50 ms.  Between two GPUs it also enables peer
	 * access, so it comes before their first copy.  -ENODEV: one does not reach the other. */
	int (*limits)(const uint8_t *to_uuid, const uint8_t *from_uuid, struct copy_limits *ret);
	/* Enqueue n ops.  *ret_done is the number of enqueued ops, after an error as well. */
	int (*copy)(const uint8_t uuid[16], const struct copy_op *ops, uint32_t n, void *stream,
		    uint32_t *ret_done);
	/* Enqueue all shapes of all pairs, as one kernel; only if limits said `pairs`. */
	int (*copy_pairs)(const uint8_t uuid[16], const struct copy_shape *shapes, uint32_t nshapes,
			  const struct copy_pair *pairs, uint32_t npairs, void *stream);
	/* Store value at *done when the stream gets here.  The device does so, if the page was
	 * pinned; else a thread of this process does, and the stream waits for it. */
	int (*mark)(const uint8_t uuid[16], uint64_t *done, uint64_t value, void *stream);
	/* Sums.  sum_open takes memory of the device, once for a layout that is mapped.  sum_close
	 * comes when none of its work is queued any more.  blocks: of an image, at most
	 * SUM_BLOCKS. */
	int (*sum_open)(const uint8_t uuid[16], const struct sum_piece *pieces, uint32_t n,
			uint32_t blocks, void **ret);
	void (*sum_close)(void *sums);
	/* Enqueue: sum the images of these slots, by CRC32C (shm_memory.h) that begins with
	 * `seed`, over the pieces in the order of sum_part_of().  bad NULL: their trailers are
	 * stored.  Otherwise the images are compared with their trailers, if these are of that
	 * life and key; *bad (pinned) gets the least of its value and 1 + index of those that
	 * differ.  lane: below SHM_TRANSFERS; all work of one lane is in one stream, or one after
	 * the other. */
	int (*sum)(void *sums, const struct sum_want *want, uint32_t n, uint32_t lane,
		   uint64_t *bad, void *stream);
	/* The same as mark(), on a stream of the device's own, where nothing comes before it. */
	int (*mark_now)(const uint8_t uuid[16], uint64_t *done, uint64_t value);
	/* Does it use the memory of the host?  Then a copy in RAM saves nothing. */
	bool (*is_integrated)(const uint8_t uuid[16]);
	/* 0: the device works.  -EIO: its context is lost, and nothing runs there any more.  It is
	 * called every 10 ms while somebody waits for copies, with a lock held, so it must not
	 * wait. */
	int (*state)(const uint8_t uuid[16]);

	/* The device of a stream (NULL: the thread's own).  -ENODEV: no device of this kind has
	 * it. */
	int (*find_stream)(void *stream, uint8_t ret_uuid[16]);
	/* Events of this process.  They are made beforehand, so record and wait allocate
	 * nothing. */
	int (*event_make)(const uint8_t uuid[16], void **ret_event);
	/* streams that still wait for it go on as if it had passed */
	void (*event_free)(void *event);
	/* The event passes when the stream, which is of the event's device, gets here. */
	int (*event_record)(void *event, void *stream);
	/* The stream, of any device of this kind, goes on when the last record has passed.
	 * -EINVAL: the stream is being captured. */
	int (*event_wait)(void *event, void *stream);
	/* 1: it has passed; 0: not yet; -EIO: it never will, and nothing runs there any more. */
	int (*event_passed)(void *event);
};

extern const struct device_bytes device_bytes_host, device_bytes_cuda;

#endif
