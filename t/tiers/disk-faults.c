/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong with a disk: bits, errors of the device, no room, files that are cut under way,
 * short and interrupted transfers.  Each is a miss; no wrong byte is ever served.
 * Tests: lib/tiers/disk/slot.c lib/tiers/disk/io.c lib/tiers/disk/super.c lib/tiers/disk/scan.c */
#include <sys/mount.h>

#include "t/lib/disk_shim.h"
#include "t/lib/disks.h"

#define ALL UINT64_MAX

static struct disk *d;

static void fault(uint32_t calls, uint64_t from, uint64_t to, int err, uint32_t times)
{
	memset(&shim, 0, sizeof(shim));
	shim.calls = calls;
	shim.from = from;
	shim.to = to;
	shim.err = err;
	shim.times = times;
}

static void renew(uint64_t slots, uint32_t flags)
{
	struct disk_options opt = disk_opt(slots);
	uint64_t i;

	opt.flags |= flags;
	fault(0, 0, 0, 0, 0);
	disk_close(d);
	unlink(disk_path);
	d = disk_must(&opt);
	for (i = 0; i < slots; i++)
		if (disk_put(d, i, i, 0, 1))
			bail("block %d cannot be written", (int)i);
}

/* ---- bits ---- */

static void bits(void)
{
	uint32_t bit, bad = 0, miss = 0;
	uint64_t at;

	renew(4, 0);
	for (bit = 0; bit < 1024; bit++) {
		disk_flip(disk_test_header(2) + bit / 8, bit % 8);
		bad += disk_has(d, 2, 2) != -EBADMSG;
		disk_flip(disk_test_header(2) + bit / 8, bit % 8);
		miss += disk_has(d, 2, 2) != 0;
	}
	is_int(bad, 0, "each bit of a header: a miss");
	is_int(miss, 0, "and none as it was");
	for (at = 0, bad = 0; at < DISK_TEST_IMAGE; at += 37) {
		disk_flip(disk_test_image(2) + at, (uint32_t)(at % 8));
		bad += disk_has(d, 2, 2) != -EBADMSG;
		disk_flip(disk_test_image(2) + at, (uint32_t)(at % 8));
	}
	is_int(bad, 0, "bits of an image: a miss");
	is_int(disk_has(d, 2, 2), 0, "as it was it is served");
}

/* Fields that cannot be, below a good checksum. */
static void forged(void)
{
	static const struct {
		const char *what;
		uint32_t at, bytes;
		uint64_t value;
	} f[] = {
		{ "magic", 0, 4, 0 },          { "file", 8, 8, 1 },
		{ "a later epoch", 24, 8, 2 }, { "epoch -1", 24, 8, UINT64_MAX },
		{ "slot", 32, 8, 3 },          { "a root key", 56, 8, 1ull << 63 },
		{ "note_bytes", 116, 4, 101 }, { "note_bytes -1", 116, 4, UINT32_MAX },
	};
	struct disk_header h, whole;
	struct disk_slot *s;
	uint64_t n;
	uint32_t i;

	renew(4, 0);
	disk_see(disk_test_header(2), &whole, sizeof(whole));
	for (i = 0; i < sizeof(f) / sizeof(*f); i++) {
		h = whole;
		memcpy((char *)&h + f[i].at, &f[i].value, f[i].bytes);
		disk_seal_header(&h);
		disk_poke(disk_test_header(2), &h, sizeof(h));
		ok(disk_has(d, 2, 2) == -EBADMSG && !disk_scan(d, &s, &n) && n == 3, "%s",
		   f[i].what);
		free(s);
	}
	h = whole;
	h.seed = 7;
	disk_seal_header(&h);
	disk_poke(disk_test_header(2), &h, sizeof(h));
	is_int(disk_has(d, 2, 2), -ESTALE, "a block of another structure is none");
	h = whole;
	h.epoch = 0;
	disk_seal_header(&h);
	disk_poke(disk_test_header(2), &h, sizeof(h));
	is_int(disk_has(d, 2, 2), -ENOENT, "an older epoch is no block");
	disk_poke(disk_test_header(3), &whole, sizeof(whole));
	is_int(disk_has(d, 3, 2), -EBADMSG, "a header in another place");
}

/* ---- short and interrupted ---- */

static void pieces_of_transfers(uint32_t flags)
{
	static const size_t part[] = { 1, 100, 511, 4095, 4096, 4097, 8191 };
	uint32_t i, bad = 0, stuck = 0;
	int err;

	renew(4, flags);
	fault(SHIM_READ | SHIM_WRITE | SHIM_SYNC, 0, ALL, EINTR, 50);
	bad += disk_put(d, 1, 11, 0, 1) != 0;
	shim.times = 50;
	bad += disk_has(d, 1, 11) != 0;
	shim.times = 50;
	bad += disk_sync(d) != 0 || disk_clear(d) != 0;
	is_int(bad, 0, "interrupted calls go on%s", flags ? ", buffered" : "");
	for (i = 0, bad = 0; i < sizeof(part) / sizeof(*part); i++) {
		fault(SHIM_READ | SHIM_WRITE, 0, ALL, 0, 100000);
		shim.part = part[i];
		err = disk_put(d, 1, 11, 0, i);
		stuck += err == -EIO; /* direct, and less than a page at a time */
		bad += err && (err != -EIO || flags || part[i] >= 4096);
		shim.times = 100000;
		err = disk_has(d, 1, 11);
		bad += err && (flags || part[i] >= 4096);
		bad += err == 1;
	}
	is_int(bad, 0, "short ones, too");
	diag("stuck: %u", stuck);
	renew(4, flags);
	fault(SHIM_READ, disk_test_image(1), disk_test_image(2), 0, 1);
	shim.part = 700;
	is_int(disk_has(d, 1, 1), 0, "one short read");
	fault(SHIM_WRITE, disk_test_image(1), disk_test_image(2), 0, 1);
	shim.part = 4600;
	ok(!disk_put(d, 1, 5, 0, 7) && !disk_has(d, 1, 5), "one short write");
}

/* ---- errors of the device ---- */

static void reads_fail(void)
{
	struct disk_slot *s;
	uint64_t n;

	renew(70, 0);
	fault(SHIM_READ, disk_test_image(1), disk_test_image(2), EIO, 1);
	is_int(disk_has(d, 1, 1), -EIO, "an image that cannot be read");
	is_int(disk_has(d, 1, 1), 0, "and can be again");
	fault(SHIM_READ, disk_test_header(1), disk_test_header(1) + 128, EIO, 1);
	is_int(disk_has(d, 1, 1), -EIO, "a header that cannot be read");
	fault(SHIM_READ, 131072, 131073, EIO, 2);
	is_int(disk_scan(d, &s, &n), 0, "a scan where one page of headers cannot be read");
	is_int(n, 70 - 32, "has all others");
	free(s);
	fault(SHIM_READ, 0, ALL, ENOMEM, UINT32_MAX);
	ok(!disk_scan(d, &s, &n) && n == 0, "a scan where nothing can be read");
	free(s);
	fault(0, 0, 0, 0, 0);
}

static void writes_fail(int err)
{
	renew(4, 0);
	fault(SHIM_WRITE, disk_test_image(1), disk_test_image(2), err, 1);
	is_int(disk_put(d, 1, 11, 0, 2), -err, "an image that cannot be written: %s",
	       strerror(err));
	ok(disk_has(d, 1, 11) == -ENOENT && disk_has(d, 1, 1) == -ENOENT, "its slot is free");
	is_int(disk_put(d, 1, 11, 0, 2), 0, "and may be written");
	fault(SHIM_WRITE, disk_test_header(1), disk_test_header(2), err, 1);
	is_int(disk_put(d, 1, 12, 0, 2), -err, "a header that cannot be freed");
	is_int(disk_has(d, 1, 11), 0, "the block is as it was");
	fault(SHIM_WRITE, disk_test_header(1), disk_test_header(2), err, 1);
	shim.skip = 1;
	is_int(disk_put(d, 1, 12, 0, 2), -err, "a header that cannot be written");
	ok(disk_has(d, 1, 11) == -ENOENT && disk_has(d, 1, 12) == -ENOENT, "its slot is free");
	fault(SHIM_WRITE, disk_test_header(2), disk_test_header(3), err, 1);
	is_int(disk_remove(d, (const uint64_t[]){ 2, 3 }, 2), -err, "a removal that fails for one");
	is_int(disk_has(d, 3, 3), -ENOENT, "the other one is gone");
}

static void syncs_fail(void)
{
	const uint64_t slot = 1, next = 2;
	struct disk_info info;

	renew(6, 0);
	fault(SHIM_SYNC, 0, ALL, EIO, 1);
	is_int(disk_remove(d, &slot, 1), -EIO, "a sync that fails: nothing is acknowledged");
	disk_info(d, &info);
	ok(info.broken, "the disk is broken");
	is_int(disk_remove(d, &next, 1), -EIO, "the next one has nothing to go on");
	is_int(disk_sync(d), -EIO, "nor has a sync");
	is_int(disk_has(d, 3, 3), 0, "reads go on");
	is_int(disk_put(d, 1, 11, 0, 1), 0, "writes, too");
	fault(SHIM_SYNC, 0, ALL, EIO, 1);
	is_int(disk_clear(d), -EIO, "a clear whose sync fails");
	is_int(disk_has(d, 3, 3), -ENOENT, "blocks are gone all the same");
	shim.times = 1;
	shim.skip = 1;
	is_int(disk_clear(d), -EIO, "or whose second sync fails");
	is_int(disk_clear(d), 0, "a clear that succeeds");
	disk_info(d, &info);
	ok(!info.broken && !disk_sync(d), "mends the disk");
	is_int(disk_put(d, 1, 11, 0, 1), 0, "a block");
	is_int(disk_remove(d, &slot, 1), 0, "is forgotten");
	is_int(disk_put(d, 1, 11, 0, 1), 0, "a block");
	fault(SHIM_WRITE, disk_test_header(1), disk_test_header(2), EIO, 1);
	is_int(disk_free(d, 1), -EIO, "that cannot be freed");
	is_int(disk_sync(d), -EIO, "is not acknowledged by the next sync");
	ok(!disk_clear(d) && !disk_sync(d), "but by a clear");
}

/* What a caller is told must not depend on who else syncs: the system tells of an error once. */
static void syncs_fail_for_all(void)
{
	uint64_t slot;
	int refused = 0;

	renew(20, 0);
	fault(SHIM_SYNC, 0, ALL, EIO, 1);
	for (slot = 0; slot < 20; slot++)
		refused += disk_remove(d, &slot, 1) == -EIO;
	is_int(refused, 20, "one sync that fails: all who remove are refused");
}

/* ---- headers that must not come back ---- */

static uint64_t found(void)
{
	struct disk_slot *s;
	uint64_t n;

	if (disk_scan(d, &s, &n))
		bail("no scan");
	free(s);
	return n;
}

/* The power is lost under a clear: the header of a block that was written behind it is on the disk,
 * and the superblocks are not. */
static void clear_is_lost(void)
{
	static uint8_t front[DISK_GROUPS];
	struct disk_options opt = disk_opt(4);
	uint32_t i;

	renew(4, 0);
	disk_see(0, front, sizeof(front));
	ok(!disk_clear(d) && !disk_put(d, 1, 11, 0, 1), "a clear, and a block behind it");
	disk_close(d);
	disk_poke(0, front, sizeof(front));
	d = disk_must(&opt);
	is_int(disk_has(d, 1, 11), -EBADMSG, "that of an epoch that never was is none");
	for (i = 0; i < 3; i++) {
		is_int(disk_clear(d), 0, "another clear");
		is_int(disk_has(d, 1, 11), -ENOENT, "does not make it one");
	}
	disk_close(d);
	d = disk_must(&opt);
	is_int(found(), 0, "nor does the next start");
}

/* Two headers of one key, of which the older one cannot be freed when it is found. */
static void twin_stays(void)
{
	struct disk_options opt = disk_opt(4);
	uint64_t slot = 2;

	renew(4, 0);
	ok(!disk_put(d, 1, 11, 0, 1) && !disk_put(d, 2, 11, 0, 1), "two blocks of one key");
	fault(SHIM_WRITE, disk_test_header(1), disk_test_header(2), EIO, 1);
	is_int(found(), 3, "a scan finds one of them, and cannot free the other one");
	is_int(disk_remove(d, &slot, 1), -EIO, "that the key is forgotten is not acknowledged");
	is_int(disk_clear(d), 0, "but by a clear");
	disk_close(d);
	d = disk_must(&opt);
	is_int(found(), 0, "which has the other one behind it");
}

/* A key whose header could not be read at the start is written elsewhere, and forgotten. */
static void unread_stays(bool worse)
{
	struct disk_options opt = disk_opt(70);
	uint64_t slot = 40;
	int err;

	renew(70, 0);
	fault(SHIM_READ | (worse ? SHIM_WRITE : 0), disk_test_header(0), disk_test_header(0) + 1,
	      EIO, worse ? UINT32_MAX : 2);
	is_int(found(), 70 - 32, "headers that cannot be read%s", worse ? ", or written" : "");
	fault(0, 0, 0, 0, 0);
	is_int(disk_put(d, slot, 5, 0, 1), 0, "a key of theirs is written elsewhere");
	err = disk_remove(d, &slot, 1);
	ok(worse ? err == -EIO && !disk_clear(d) : !err, "and forgotten%s",
	   worse ? ", by a clear" : "");
	disk_close(d);
	d = disk_must(&opt);
	ok(disk_has(d, 5, 5) == -ENOENT && disk_has(d, 40, 5) == -ENOENT,
	   "it is nowhere at the next start");
}

/* ---- opened ---- */

static void opens_fail(void)
{
	struct disk_options opt = disk_opt(4);
	static const struct {
		uint32_t call;
		int err;
		const char *what;
	} f[] = {
		{ SHIM_WRITE, EIO, "written" },
		{ SHIM_SYNC, EIO, "synced" },
		{ SHIM_ROOM, ENOSPC, "found room" },
		{ SHIM_WRITE, ENOSPC, "written, no room" },
		{ SHIM_CUT, EIO, "cut" },
		{ SHIM_ROOM, EFBIG, "so long" },
	};
	struct disk *e = NULL;
	uint32_t i, k;
	int err;

	renew(4, 0);
	disk_close(d);
	d = NULL;
	for (i = 0; i < 4; i++) {
		for (k = 0; k < 2; k++) {
			fault(f[i].call, 0, ALL, f[i].err, 1);
			shim.skip = k;
			err = disk_open(disk_path, &opt, &e);
			if (!shim.met) {
				disk_close(e);
				continue;
			}
			is_int(err, -f[i].err, "a file that cannot be %s: %s", f[i].what,
			       gpc_last_error());
		}
		fault(0, 0, 0, 0, 0);
		d = disk_must(&opt);
		is_int(disk_has(d, 2, 2), 0, "has its blocks when it can");
		disk_close(d);
		d = NULL;
	}
	unlink(disk_path);
	for (i = 0; i < sizeof(f) / sizeof(*f); i++) {
		fault(f[i].call, 0, ALL, f[i].err, 1);
		err = disk_open(disk_path, &opt, &e);
		ok(err == -f[i].err && access(disk_path, F_OK), "a new one that cannot be %s: %s",
		   f[i].what, gpc_last_error());
	}
	fault(SHIM_ROOM, 0, ALL, EDQUOT, 1);
	ok(disk_open(disk_path, &opt, &e) == -ENOSPC &&
		   strstr(gpc_last_error(), "than the quota leaves"),
	   "a quota");
	renew(4, 0);
	disk_close(d);
	d = NULL;
	fault(SHIM_READ, 0, 70000, EIO, UINT32_MAX);
	is_int(disk_open(disk_path, &opt, &e), -EIO, "superblocks that cannot be read: %s",
	       gpc_last_error());
	fault(SHIM_READ, 0, 1, EIO, UINT32_MAX);
	d = disk_must(&opt);
	ok(disk_has(d, 2, 2) == 0, "one that cannot be read");
	disk_close(d);
	d = NULL;
	fault(0, 0, 0, 0, 0);
}

/* ---- cut under way ---- */

static void cut_under_way(uint32_t flags)
{
	struct disk_options opt = disk_opt(4);
	struct disk_slot *s;
	uint64_t n, slot = 1;
	int err;

	renew(4, flags);
	truncate(disk_path, (off_t)disk_test_image(2) + 5000);
	is_int(disk_has(d, 2, 2), -ENODATA, "the file ends within an image");
	is_int(disk_has(d, 3, 3), -ENODATA, "and before another");
	is_int(disk_has(d, 1, 1), 0, "one before that is there");
	truncate(disk_path, 131072 + 130);
	is_int(disk_has(d, 1, 1), -ENODATA, "it ends within a header");
	ok(!disk_scan(d, &s, &n) && n <= 1, "a scan gives what there is");
	free(s);
	is_int(disk_put(d, 1, 1, 0, 1), -ENODATA, "nothing is written behind its end");
	is_int(disk_remove(d, &slot, 1), 0, "what is gone may be forgotten");
	truncate(disk_path, 0);
	is_int(disk_has(d, 0, 0), -ENODATA, "an empty file has no blocks");
	ok(!disk_scan(d, &s, &n) && n == 0, "nor has a scan");
	free(s);
	is_int(disk_remove(d, &slot, 1), 0,
	       "what had a place in it may be forgotten, and is no signal");
	is_int(disk_clear(d), 0, "cleared");
	disk_close(d);
	d = NULL;
	err = disk_open(disk_path, &opt, &d);
	is_int(err, -EBADMSG, "it is refused afterwards: %s", gpc_last_error());
	d = NULL;
}

/* ---- a real file system without room, and without O_DIRECT or with it ---- */

static void small_file_system(void)
{
	struct disk_options opt = disk_opt(1000);
	char folder[80];
	struct stat st;

	snprintf(folder, sizeof(folder), "%s/small", disk_folder);
	mkdir(folder, 0700);
	if (mount("tmpfs", folder, "tmpfs", 0, "size=2m")) {
		skip(4, "no file system can be mounted here");
		rmdir(folder);
		return;
	}
	snprintf(disk_path, sizeof(disk_path), "%s/blocks", folder);
	ok(disk_open(disk_path, &opt, &d) == -ENOSPC && disk_says_free() && stat(disk_path, &st),
	   "no room: %s", gpc_last_error());
	opt.slots = 4;
	d = disk_must(&opt);
	ok(!disk_put(d, 1, 1, 0, 1) && !disk_has(d, 1, 1), "a smaller file has");
	opt.slots = 1000;
	opt.flags |= DISK_RESIZE;
	disk_close(d);
	d = NULL;
	ok(disk_open(disk_path, &opt, &d) == -ENOSPC && disk_says_free(), "it cannot grow: %s",
	   gpc_last_error());
	opt.slots = 4;
	d = disk_must(&opt);
	is_int(disk_has(d, 1, 1), 0, "and has its block still");
	disk_close(d);
	d = NULL;
	umount(folder);
	rmdir(folder);
	snprintf(disk_path, sizeof(disk_path), "%s/blocks", disk_folder);
}

static int body(void)
{
	bits();
	forged();
	pieces_of_transfers(0);
	pieces_of_transfers(DISK_BUFFERED);
	reads_fail();
	writes_fail(EIO);
	writes_fail(ENOSPC);
	syncs_fail();
	syncs_fail_for_all();
	clear_is_lost();
	twin_stays();
	unread_stays(false);
	unread_stays(true);
	opens_fail();
	cut_under_way(0);
	cut_under_way(DISK_BUFFERED);
	small_file_system();
	disk_close(d);
	return done_testing();
}

static void cleanup(void)
{
	char folder[80];

	snprintf(folder, sizeof(folder), "%s/small", disk_folder);
	umount2(folder, MNT_DETACH);
	rmdir(folder);
	disk_remove_folder();
}

int main(void)
{
	disk_make_folder();
	return tap_guard(60, body, cleanup);
}
