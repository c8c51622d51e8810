/* SPDX-License-Identifier: Apache-2.0 */
/* dev.c - lookups in the mirror of a device, inside sections that end when the device has done its
 * work.
 *
 * A section that is opened here is one of the peer's own in the control segment, marked as a
 * device's.  It is open until its stream has raised the place's done word to its ticket (rule
 * S1).  Some later call of this process makes the place idle (handle_sweep_sections).
 * bytes/mirror/view.c chooses the mirror.
 * Tests: t/bytes/device-moves.t t/bytes/device-sections-host.t t/bytes/device-sections.t
 *   t/bytes/device.t */
#include "config.h"

#include "bytes/mirror/dev.h"

#include "bytes/mirror/view.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define CLOSE_WAIT_MS 10000 /* the wait for work in flight when a device is closed */

static struct shm_section *section_of(const gpc_dev *d, uint32_t i)
{
	return seg_section(&d->c->seg, d->c->peer, SHM_SECTION(i));
}

static int dev_check(gpc_dev *d)
{
	if (!d)
		return err_set(EINVAL, "d is NULL");
	return handle_check(d->c, true);
}

/* ---- counters ---- */

static void count_one(gpc_dev *d)
{
	uint64_t counts[DEVICE_COUNTERS], *to = &seg_seat(&d->c->seg, d->c->peer)->lookups;
	uint32_t i;

	d->ops->counted(d->there, counts);
	for (i = 0; i < DEVICE_COUNTERS; i++)
		if (counts[i])
			count_add(&to[i], counts[i]);
}

void dev_count(gpc *c)
{
	gpc_dev *d;

	if (c->readonly)
		return;
	pthread_mutex_lock(&c->dev_lock);
	for (d = c->devs; d; d = d->next)
		count_one(d);
	pthread_mutex_unlock(&c->dev_lock);
}

/* ---- open and close ---- */

/* Find an open device by its UUID, since one device has several names. */
static gpc_dev *find_open(const gpc *c, const uint8_t uuid[16])
{
	gpc_dev *d = c->devs;

	while (d && memcmp(d->uuid, uuid, sizeof(d->uuid)))
		d = d->next;
	return d;
}

/* Is this kind of device among those that the cache was made with?  More is unknown, since two
 * processes may number their GPUs differently. */
static bool is_kept(const gpc *c, const struct driver *driver)
{
	char list[sizeof(c->seg.header.devices) + 1], *device, *rest = list;

	memcpy(list, c->seg.header.devices, sizeof(c->seg.header.devices));
	list[sizeof(list) - 1] = 0;
	while ((device = strsep(&rest, ",")) != NULL)
		if (driver->matches(device))
			return true;
	return false;
}

static int no_mirror(const gpc *c, const char *device, const struct driver *driver)
{
	const char *kept = *c->seg.header.devices ? c->seg.header.devices : "none";

	if (is_kept(c, driver))
		return err_set(ESTALE,
			       "%s has no live mirror on device %s now; its devices are %.63s, "
			       "and its writer logs which of them it could not have",
			       c->seg.name, device, kept);
	return err_set(ENODEV,
		       "%s was made without a mirror on device %s: its devices are %.63s; the "
		       "host calls need none",
		       c->seg.name, device, kept);
}

static int open_new(gpc *c, const char *device, const struct driver *driver, const uint8_t uuid[16],
		    gpc_dev **ret)
{
	struct shm_mirror m;
	gpc_dev *d;
	int err;

	if (!import_find(c, uuid, &m))
		return no_mirror(c, device, driver);
	d = calloc(1, sizeof(*d));
	if (!d)
		return err_set(ENOMEM, "no memory for a device");
	err = driver->mirror->open(&c->seg, c->peer, device, &d->there);
	if (err) {
		free(d);
		return err;
	}
	memcpy(d->uuid, uuid, sizeof(d->uuid));
	strcpy(d->device, device);
	d->c = c;
	d->ops = driver->mirror;
	d->holds = 1;
	pthread_mutex_init(&d->lock, NULL);
	d->next = c->devs;
	c->devs = d;
	*ret = d;
	return 0;
}

GPC_EXPORT int gpc_dev_open(gpc *c, const char *device, gpc_dev **ret)
{
	const struct driver *driver;
	uint8_t uuid[16];
	gpc_dev *d;
	int err = handle_check(c, true);

	if (err)
		return err;
	if (!device || !ret)
		return err_set(EINVAL, "%s is NULL", device ? "ret" : "device");
	err = err_text("device", device, sizeof(d->device) - 1);
	if (err)
		return err;
	err = driver_identify(device, &driver, uuid);
	if (err)
		return err;
	pthread_mutex_lock(&c->dev_lock);
	d = find_open(c, uuid);
	if (!d)
		err = open_new(c, device, driver, uuid, &d);
	if (!err) {
		d->opens++;
		*ret = d;
	}
	pthread_mutex_unlock(&c->dev_lock);
	return err;
}

/* Sections that were never left end here, after the present work of the default stream. */
static int leave_all(gpc_dev *d)
{
	int err = 0;
	uint32_t i;

	for (i = 0; i < GPC_SECTIONS && !err; i++)
		if (d->use[i].import && !d->use[i].left)
			err = gpc_dev_leave(d, (int)i, NULL);
	return err;
}

static bool work_in_flight(const gpc_dev *d)
{
	uint32_t i;

	for (i = 0; i < GPC_SECTIONS; i++)
		if (d->use[i].import && load_acquire(&section_of(d, i)->done) < d->use[i].ticket)
			return true;
	return false;
}

static int wait_for_work(const gpc_dev *d)
{
	uint64_t until = deadline_from(CLOSE_WAIT_MS);
	struct backoff pause = { .ns = 50000, .most = NS_PER_MS };

	while (work_in_flight(d)) {
		if (clock_ns() > until)
			return err_set(ETIMEDOUT, "work on device %s has not ended", d->device);
		backoff_sleep(&pause);
	}
	return 0;
}

static void unlink_dev(gpc_dev *d)
{
	gpc_dev **at = &d->c->devs;

	while (*at != d)
		at = &(*at)->next;
	*at = d->next;
}

GPC_EXPORT int gpc_dev_close(gpc_dev *d)
{
	int err = dev_check(d);
	gpc *c;

	if (err)
		return err;
	c = d->c;
	pthread_mutex_lock(&c->dev_lock);
	if (d->opens > 1) {
		d->opens--;
	} else {
		err = leave_all(d);
		if (!err)
			err = wait_for_work(d);
		if (!err) {
			unlink_dev(d);
			handle_sweep_sections(c);
			count_one(d);
			import_end(d);
		}
	}
	pthread_mutex_unlock(&c->dev_lock);
	return err;
}

/* Work that does not end keeps its mirror mapped: only memory is lost. */
static void abandon(gpc_dev *d)
{
	log_say(&d->c->log, LOG_WARNING,
		"device %s: closed with work in flight; its mirror "
		"stays mapped",
		d->device);
	unlink_dev(d);
}

void dev_close_all(gpc *c)
{
	gpc_dev *d;

	while ((d = c->devs) != NULL) {
		d->opens = 1;
		if (gpc_dev_close(d))
			abandon(d);
	}
}

/* ---- sections ---- */

/* A lost device passes no point of any stream; a fault of the program's own kernels may be the
 * reason.  The work that sections waited for is over (rule S4), or they would stop everybody. */
static void end_if_lost(gpc_dev *d)
{
	uint32_t i;

	if (!d->ops->lost(d->there))
		return;
	pthread_mutex_lock(&d->lock);
	for (i = 0; i < GPC_SECTIONS; i++) {
		struct shm_section *sec = section_of(d, i);

		if (!load_relaxed(&d->use[i].import) ||
		    load_acquire(&sec->done) >= d->use[i].ticket)
			continue;
		if (!d->use[i].left)
			import_add32(&d->entered, (uint32_t)-1);
		d->use[i].left = 1;
		store_release(&sec->done, d->use[i].ticket);
	}
	pthread_mutex_unlock(&d->lock);
}

/* Check the driver's answer. */
static int checked(gpc_dev *d, int err)
{
	if (err == -EIO)
		end_if_lost(d);
	return err;
}

/* Open a section place.  This device's last use of the place is over. */
static int open_section(gpc_dev *d)
{
	const gpc *c = d->c;
	uint32_t i;

	for (i = 0; i < GPC_SECTIONS; i++)
		if (epoch_enter(&c->seg, c->peer, SHM_SECTION(i))) {
			/* The ticket of an idle place is above its done word.  So the place is
			 * open until this ticket is signalled, whatever kind it shows. */
			store_relaxed(&section_of(d, i)->kind, 1);
			import_forget(d, i);
			return (int)i;
		}
	return err_set(EAGAIN, "all %d sections of this peer are open: leave one first",
		       GPC_SECTIONS);
}

GPC_EXPORT int gpc_dev_enter(gpc_dev *d)
{
	struct import *im = NULL;
	int i, err = dev_check(d);

	if (err)
		return err;
	handle_sweep_sections(d->c);
	import_tidy(d);
	i = open_section(d);
	if (i < 0)
		return i;
	err = import_adopt(d, &im);
	if (err) {
		epoch_leave(&d->c->seg, d->c->peer, SHM_SECTION((uint32_t)i));
		return err;
	}
	d->use[i].ticket = load_relaxed(&section_of(d, (uint32_t)i)->ticket);
	d->use[i].left = 0;
	store_relaxed(&d->use[i].import, im);
	import_add32(&d->entered, 1);
	return i;
}

/* ... unless the device is lost. */
static bool use_ended(gpc_dev *d, int section)
{
	end_if_lost(d);
	return load_relaxed(&d->use[section].left);
}

GPC_EXPORT int gpc_dev_leave(gpc_dev *d, int section, void *stream)
{
	struct section_use *use;
	int err = dev_check(d);

	if (err)
		return err;
	if (section < 0 || section >= GPC_SECTIONS)
		return err_set(EINVAL, "section is %d: it must be one of gpc_dev_enter, 0 to %d",
			       section, GPC_SECTIONS - 1);
	use = &d->use[section];
	if (!load_relaxed(&use->import) || use->left)
		return err_set(EINVAL, "section is %d: it is not open on device %s", section,
			       d->device);
	use->left = 1;
	err = d->ops->signal(d->there, &section_of(d, (uint32_t)section)->done, use->ticket,
			     stream);
	if (err) {
		use->left = 0; /* the section is still open, so the caller may leave it again ... */
		return use_ended(d, section) ? 0 : err;
	}
	import_add32(&d->entered, (uint32_t)-1);
	return 0;
}

/* ---- launches ---- */

/* The view of the current import, for a caller with an open section.  No import that was current
 * since then is released. */
static int view_now(gpc_dev *d, struct dev_view *view)
{
	if (!load_relaxed(&d->entered) || !import_view(d, view))
		return err_set(EINVAL,
			       "no section is open on device %s: gpc_dev_enter comes "
			       "first",
			       d->device);
	return 0;
}

/* missing: the name of an array that is NULL.  count: the name of n. */
static int check_launch(gpc_dev *d, const char *count, uint32_t n, const char *missing)
{
	int err = dev_check(d);

	if (err || !n)
		return err;
	if (n > INT32_MAX)
		return err_set(EINVAL, "%s is %u: at most %d in one launch", count, n, INT32_MAX);
	return missing ? err_set(EINVAL, "%s is NULL", missing) : 0;
}

GPC_EXPORT int gpc_dev_lookup(gpc_dev *d, uint32_t spaces, const gpc_key *d_keys, uint32_t n,
			      gpc_block *d_blocks, void *stream)
{
	struct dev_view view;
	int err = check_launch(d, "n", n, !d_keys ? "d_keys" : !d_blocks ? "d_blocks" : NULL);

	if (err || !n)
		return err;
	err = view_now(d, &view);
	if (err)
		return err;
	return checked(d, d->ops->lookup(d->there, &view, spaces, d_keys, n, d_blocks, stream));
}

GPC_EXPORT int gpc_dev_match(gpc_dev *d, uint32_t spaces, const gpc_key *d_keys,
			     const uint32_t *d_start, uint32_t nseq, uint32_t *d_len,
			     gpc_block *d_blocks, void *stream)
{
	struct dev_view view;
	int err = check_launch(d, "nseq", nseq,
			       !d_keys    ? "d_keys"
			       : !d_start ? "d_start"
			       : !d_len   ? "d_len"
					  : NULL);

	if (err || !nseq)
		return err;
	err = view_now(d, &view);
	if (err)
		return err;
	return checked(d, d->ops->match(d->there, &view, spaces, d_keys, d_start, nseq, d_len,
					d_blocks, stream));
}

GPC_EXPORT int gpc_dev_wait(gpc_dev *d, void *stream, int timeout_ms)
{
	int err = dev_check(d);

	if (!err)
		err = err_timeout(timeout_ms);
	if (err)
		return err;
	err = checked(d, d->ops->wait(d->there, stream, timeout_ms));
	handle_sweep_sections(d->c);
	count_one(d);
	import_tidy(d);
	return err;
}
