/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - the kinds of devices, and the functions of a device that a mirror needs.  The device
 * `host` keeps the mirror in one more shared segment and runs "kernels" on a stream thread; `cuda`
 * (another file) keeps it in VRAM.
 *
 * A mirror has two halves.  The writer's half makes a mirror and brings it up to date; the peer's
 * half imports it and looks up in it.  All functions return 0 or a negative errno with
 * err_set.  index/segment/descriptor.h says how readers learn of a mirror.  No pointer is NULL.  A
 * table in lib/bytes/README.md says which thread calls each function, whether it may wait, and
 * what follows when it fails.  That page also says how to add a device. */
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
	/* peer: prepare this process for launches there, for that seat */
	int (*open)(const struct segment *s, uint32_t peer, const char *device, void **ret_dev);
	void (*close)(void *dev);
	/* peer: launches from now on, and replays of captured launches, use this import; it
	 * waits */
	int (*adopt)(void *dev, void *import);
	/* peer: in a stream of this process; NULL names the default stream.  The device reads and
	 * writes the arrays, which are not copied.  spaces: 0 = those of the mirror's status. */
	int (*lookup)(void *dev, const struct dev_view *view, uint32_t spaces, const gpc_key *keys,
		      uint32_t n, gpc_block *blocks, void *stream);
	int (*match)(void *dev, const struct dev_view *view, uint32_t spaces, const gpc_key *keys,
		     const uint32_t *start, uint32_t nseq, uint32_t *len, gpc_block *blocks,
		     void *stream);
	/* Raise *done to ticket when the stream gets here; it never lowers *done (rule S1). */
	int (*signal)(void *dev, uint64_t *done, uint64_t ticket, void *stream);
	/* peer: host-in, host-out.  It waits, and counts nothing.  Only one thread may use it at a
	 * time, until that thread is done with the answer. */
	int (*ask)(void *dev, const struct dev_view *view, const struct device_query *q,
		   struct device_result *ret);
	/* the counts, because the last call, of launches that are over */
	void (*counted)(void *dev, uint64_t counts[DEVICE_COUNTERS]);
	/* Wait until the stream has done all earlier work: -EAGAIN (timeout 0), -ETIMEDOUT. */
	int (*wait)(void *dev, void *stream, int timeout_ms);
	/* After an error: is it certain that nothing runs there any more? */
	bool (*lost)(void *dev);
};

/* A kind of device: one row of the table in device.c, which is the one place that knows the
 * kinds.  If the kind is built in, no pointer is NULL. */
struct driver {
	const char *name;    /* "host", "cuda" */
	const char *forms;   /* its device strings, for sentences */
	const char *without; /* the sentence if it is not built in */
	/* Is that a string for a device of this kind? */
	bool (*matches)(const char *device);
	/* Is that a complete string of this kind?  And: do two strings name one device?  Both
	 * judge only by the text. */
	bool (*is_form)(const char *device);
	bool (*same)(const char *a, const char *b);
	/* Are devices of that UUID of this kind?  It also knows devices that this process does not
	 * see. */
	bool (*owns)(const uint8_t uuid[16]);
	/* a device string for a device of that UUID, for people */
	void (*say)(const uint8_t uuid[16], char *text, size_t room);

	/* NULL, all three: it is not built in, and driver_find(), driver_of() answer -ENODEV */
	/* The UUID of this device, whatever number it has in a process; zeros for the host. */
	int (*identify)(const char *device, uint8_t uuid[16]);
	const struct device_ops *mirror;
	const struct device_bytes *bytes;
};

/* By a device string: "host"; "cuda:N" and "GPU-...".  -ENODEV: the kind is known, but not built
 * in.  -EINVAL: there is no such kind of device. */
int driver_find(const char *device, const struct driver **ret);
/* The same, and the device's UUID.  -ENODEV also if the device is absent. */
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
/* Check a list of devices, with which a cache is made: each has the form of a device, and occurs
 * once.  -EINVAL. */
#define DEVICE_LIST 64 /* bytes, the final 0 included */
int device_check_list(const char *devices);

extern const struct device_ops device_host, device_cuda;
int host_identify(const char *device, uint8_t uuid[16]);
int cuda_identify(const char *device, uint8_t uuid[16]);

/* For drivers: the bytes of a table. */
static inline uint64_t device_table_bytes(uint32_t buckets)
{
	return (uint64_t)buckets * SHM_BUCKET * sizeof(struct probe_entry);
}
/* -EINVAL: there are not as many entries as in the mirror, or one of the slots is beyond them. */
int device_check_entries(uint64_t entries, uint64_t mirror_entries);
int device_check_changes(const struct launch_change *changes, uint32_t n, uint64_t entries);
/* The device's string, cut to fit. */
void device_describe(const char *device, struct shm_mirror *desc);

/* For tests: the delay of every job of the host device's stream, and of every flush, in
 * microseconds.  If `device_host_fail_after` is not 0, flushes of each mirror beyond the first
 * that many fail with -EIO and change nothing. */
extern uint32_t device_host_delay_us, device_host_flush_delay_us, device_host_fail_after;

#endif
