/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - the kinds of devices, and the functions of a device that a mirror needs.  `host`
 * keeps the mirror in one more shared segment and runs "kernels" on a stream thread; `cuda`
 * (another file) keeps it in VRAM.
 *
 * A mirror has two halves.  The writer's half makes a mirror and brings it up to date; the peer's
 * half imports it and looks up in it.  All functions return 0 or a negative errno with
 * err_set.  index/segment/descriptor.h tells how readers learn of a mirror.  No pointer is NULL.
 * lib/bytes/README.md has a table: which thread calls each, whether it may wait, and what follows when
 * it fails; and how to add a device. */
#ifndef GPC_DEVICE_DEVICE_H
#define GPC_DEVICE_DEVICE_H

#include "index/base/base.h"
#include "bytes/device/bytes.h"
#include "gpc.h"
#include "kernels/launch.h"
#include "index/segment/hooks.h"
#include "index/segment/segment.h"

/* An imported mirror: the table's entries, and behind them the status of launch.h. */
struct dev_view {
	const struct probe_entry *table;
	const struct mirror_status *status;
	uint32_t buckets;
	gpc_key mask[GPC_MAX_SPACES];
};
_Static_assert(GPC_MAX_SPACES == LAUNCH_SPACES, "kernels know all spaces");

/* The counters of lookups of a view, in the order of gpc_stats and of a seat: keys asked for,
 * hits by tier, misses.  A match asks for all keys of its sequences. */
enum { COUNT_LOOKUPS, COUNT_HIT_VRAM, COUNT_HIT_RAM, COUNT_MISS, DEVICE_COUNTERS };

struct device_ops {
	struct mirror_ops writer;

	/* peer: map the mirror that desc (a private copy) describes */
	int (*import)(const struct segment *s, const struct shm_mirror *desc, void **ret_import,
		      struct dev_view *view);
	void (*release)(void *import);
	/* peer: what this process needs there to launch for that seat */
	int (*open)(const struct segment *s, uint32_t peer, const char *device, void **ret_dev);
	void (*close)(void *dev);
	/* peer: launches from now on, and replays of captured ones, use this import; waits */
	int (*adopt)(void *dev, void *import);
	/* peer: a stream of this process; NULL names the default one.  Arrays are the device's
	 * to read and write, and are not copied.  spaces: 0 = those of the mirror's status. */
	int (*lookup)(void *dev, const struct dev_view *view, uint32_t spaces, const gpc_key *keys,
		      uint32_t n, gpc_block *blocks, void *stream);
	int (*match)(void *dev, const struct dev_view *view, uint32_t spaces, const gpc_key *keys,
		     const uint32_t *start, uint32_t nseq, uint32_t *len, gpc_block *blocks,
		     void *stream);
	/* raise *done to ticket when the stream gets here; never lowers it (rule S1) */
	int (*signal)(void *dev, uint64_t *done, uint64_t ticket, void *stream);
	/* peer: host-in, host-out; waits; counts nothing.  One thread at a time, until it is
	 * done with the answer. */
	int (*ask)(void *dev, const struct dev_view *view, const struct device_query *q,
		   struct device_result *ret);
	/* what launches that are over have counted since the last call */
	void (*counted)(void *dev, uint64_t counts[DEVICE_COUNTERS]);
	/* until the stream has done all it was given so far: -EAGAIN (timeout 0),
	 * -ETIMEDOUT */
	int (*wait)(void *dev, void *stream, int timeout_ms);
	/* after an error: does nothing run there any more, and never will? */
	bool (*lost)(void *dev);
};

/* A kind of device: one row of the table in device.c, the one place that knows the kinds.  No pointer
 * is NULL where it is built in. */
struct driver {
	const char *name;    /* "host", "cuda" */
	const char *forms;   /* its device strings, for sentences */
	const char *without; /* the sentence where it is not built in */
	/* does it answer to that device string? */
	bool (*matches)(const char *device);
	/* is that a whole string of it, and do two name one device?  By the text alone. */
	bool (*is_form)(const char *device);
	bool (*same)(const char *a, const char *b);
	/* Are devices of that UUID of this kind?  For those, too, that this process does not see. */
	bool (*owns)(const uint8_t uuid[16]);
	/* a device string for such a one, for people */
	void (*say)(const uint8_t uuid[16], char *text, size_t room);

	/* NULL, all three: it is not built in, and driver_find(), driver_of() answer -ENODEV */
	/* what names this device whichever processes see it under which number; zeros for the
	 * host */
	int (*identify)(const char *device, uint8_t uuid[16]);
	const struct device_ops *mirror;
	const struct device_bytes *bytes;
};

/* By a device string: "host"; "cuda:N" and "GPU-...".  -ENODEV: known, but not built in; -EINVAL: no
 * such kind of device. */
int driver_find(const char *device, const struct driver **ret);
/* The same, and which device that is.  -ENODEV: it is absent, too. */
int driver_identify(const char *device, const struct driver **ret, uint8_t uuid[16]);
/* By the UUID of a device, zeros for the host. */
int driver_of(const uint8_t uuid[16], const struct driver **ret);
static inline int device_bytes_of(const uint8_t uuid[16], const struct device_bytes **ret)
{
	const struct driver *d;
	int err = driver_of(uuid, &d);

	if (!err)
		*ret = d->bytes;
	return err;
}
/* A device string for it, for people. */
void driver_say(const uint8_t uuid[16], char *text, size_t room);
/* A list of devices, as a cache is made with: each by its form, and once.  -EINVAL. */
#define DEVICE_LIST 64 /* bytes, the final 0 included */
int device_check_list(const char *devices);

extern const struct device_ops device_host, device_cuda;
int host_identify(const char *device, uint8_t uuid[16]);
int cuda_identify(const char *device, uint8_t uuid[16]);

/* For drivers.  The bytes of a table: */
static inline uint64_t device_table_bytes(uint32_t buckets)
{
	return (uint64_t)buckets * SHM_BUCKET * sizeof(struct probe_entry);
}
/* -EINVAL: not as many entries as the mirror has; one of the slots is beyond them. */
int device_check_entries(uint64_t entries, uint64_t mirror_entries);
int device_check_changes(const struct launch_change *changes, uint32_t n, uint64_t entries);
/* The device's string, cut to fit. */
void device_describe(const char *device, struct shm_mirror *desc);

/* For tests: delay of every job of the host device's stream and of every flush, in
 * microseconds; of each mirror, flushes beyond the first `device_host_fail_after` (if
 * not 0) fail with -EIO and change nothing. */
extern uint32_t device_host_delay_us, device_host_flush_delay_us, device_host_fail_after;

#endif
