/* SPDX-License-Identifier: Apache-2.0 */
/* What the writer asks of a mirror's driver, and when: the linker puts a driver in between that
 * looks at the cache before it does as it is told.  A mirror is published when it has been
 * uploaded, a flush has what was changed, and no grace period begins before its end.
 * Tests: lib/index/table/mirror.c lib/index/table/grace.c lib/hooks.c lib/index/segment/hooks.h */
#include "config.h"

#include "t/lib/cache.h"
#include "bytes/device/device.h"
#include "index/peer/handle.h"

int __real_driver_find(const char *device, const struct driver **ret);
int __wrap_driver_find(const char *device, const struct driver **ret);

static const struct device_ops *real;
static struct device_ops watched;
static struct driver with_watched;
static gpc *looker; /* another handle, which reads what the writer stores */
static uint32_t early, uploads, flushes, largest, hurried;
static uint64_t epoch;   /* when the flush in flight began */
static uint64_t changed; /* when the last flush that had entries did */
static bool slow;

static bool is_published(void)
{
	uint32_t i, n = 0;

	for (i = 0; looker && i < SHM_MIRRORS; i++)
		n += load_acquire(&seg_mirror(&looker->seg, i)->state) == MIRROR_READY;
	return n;
}

static int upload(void *mirror, const struct probe_entry *table, uint64_t entries,
		  const struct mirror_status *status)
{
	uploads++;
	early += is_published();
	return real->writer.upload(mirror, table, entries, status);
}

static int flush(void *mirror, const struct launch_change *changes, uint32_t n,
		 const struct mirror_status *status)
{
	flushes++;
	largest = MAX(largest, n);
	epoch = looker ? load_relaxed(&seg_shared(&looker->seg)->epoch) : 0;
	if (n)
		changed = epoch;
	return real->writer.flush(mirror, changes, n, status);
}

static int flushed(void *mirror)
{
	if (looker && load_relaxed(&seg_shared(&looker->seg)->epoch) != epoch)
		hurried++;
	return slow ? -EAGAIN : real->writer.flushed(mirror);
}

int __wrap_driver_find(const char *device, const struct driver **ret)
{
	const struct driver *driver;
	int err = __real_driver_find(device, &driver);

	if (err)
		return err;
	real = driver->mirror;
	watched = *real;
	watched.writer.upload = upload;
	watched.writer.flush = flush;
	watched.writer.flushed = flushed;
	with_watched = *driver;
	with_watched.mirror = &watched;
	*ret = &with_watched;
	return 0;
}

/* An entry that changes while its change is flushed is changed once more: the next flush has it. */
static void changes_twice(gpc *c)
{
	gpc_key k = key_of(c, 2001);
	gpc_block b, got = GPC_NONE;
	gpc_dev *d;
	int section;

	must(gpc_dev_open(c, "host", &d));
	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 60000));
	must(gpc_mirror_sync(c, GPC_TICKET_ALL, 60000));
	largest = 0;
	slow = true;
	must(gpc_publish(c, NULL, &k, &b, 1, NULL, GPC_NO_REF, 60000));
	while (!largest)
		must(gpc_writer_serve(c, 1));
	must(gpc_drop(c, &b, 1, NULL, 0, 60000));
	is_int(find(c, 2001), -1, "a block that is flushed goes meanwhile");
	largest = 0;
	slow = false;
	must(gpc_mirror_sync(c, GPC_TICKET_ALL, 60000));
	ok(largest, "the next flush has its entry once more");
	section = must(gpc_dev_enter(d));
	must(gpc_dev_lookup(d, 0, &k, 1, &got, NULL));
	must(gpc_dev_leave(d, section, NULL));
	must(gpc_dev_wait(d, NULL, 60000));
	is_int(got, -1, "and it is gone on the device");
	must(gpc_dev_close(d));
	clean(c, "a change while it is flushed");
}

static int body(void)
{
	struct gpc_config cfg = cache_config(256, 0);
	gpc_block b[64], x;
	uint32_t before;
	gpc *c;

	cfg.devices = "host";
	c = cache_make(&cfg, NULL);
	looker = cache_attach(0, 0);
	chain_make(c, 0, 1, 64, b);
	must(gpc_mirror_sync(c, GPC_TICKET_ALL, 2000));
	before = uploads;
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	is_int(uploads - before, 1, "a new writer uploads the table");
	is_int(early, 0, "and publishes its mirror afterwards");
	ok(is_published(), "then it is published");
	must(gpc_mirror_sync(c, GPC_TICKET_ALL, 2000));

	before = flushes;
	largest = 0;
	chain_make(c, 0, 1001, 1, &x);
	must(gpc_mirror_sync(c, GPC_TICKET_ALL, 2000));
	ok(flushes > before, "a block is published, and flushed");
	ok(largest && largest <= 4, "with what was changed: %u entries", largest);

	hurried = 0;
	slow = true;
	is_int(gpc_drop(c, &x, 1, NULL, 0, -1), 1, "one goes");
	must(gpc_writer_serve(c, 20));
	slow = false;
	must(gpc_mirror_sync(c, GPC_TICKET_ALL, 2000));
	settle(c);
	is_int(hurried, 0, "no grace period begins while a flush is under way");
	ok(load_relaxed(&seg_shared(&looker->seg)->epoch) > changed,
	   "one has begun since that flush was asked for");
	is_int(find(c, 1001), -1, "it is gone");
	clean(c, "all that");
	changes_twice(c);
	must(gpc_close(looker));
	looker = NULL;
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
