/* SPDX-License-Identifier: Apache-2.0 */
/* A disk file that says anything.  It is opened or refused with a sentence; then scanned, read,
 * written to, forgotten, cleared, resized, and cut under way.  No signal, no call without end; a
 * block that is read is the one that was written, unless a header was forged with a good
 * checksum.
 * Tests: lib/tiers/disk/ */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "fuzz.h"

#include "index/base/crc.h"
#include "index/base/err.h"
#include "tiers/disk/disk.h"
#include "tiers/disk/format.h"
#include "t/lib/disk_whole.h"

#define SLOTS     20u
#define IMAGE     5000u
#define MOST_FILE (1u << 20)

enum { N_OPENED, N_REFUSED, N_MENDED, N_FOUND, N_READ, N_MISSED, N_DAMAGED, N_RESIZED };
static const char *const fuzz_counts[FUZZ_COUNTS + 1] = { "opened",       "refused", "mended",
							  "blocks found", "read",    "missed",
							  "damaged",      "resized" };

static char folder[80], path[100];
static uint8_t whole[MOST_FILE];
static uint64_t whole_bytes;
static bool forged;

static gpc_key key_of(uint64_t n)
{
	return (gpc_key){ { n * 0x9e3779b97f4a7c15u + 1, n + 1 } };
}

static void fill(uint8_t *image, uint64_t n)
{
	uint32_t i;

	for (i = 0; i < IMAGE; i++)
		image[i] = (uint8_t)(n * 31 + i * 7);
}

static void put(struct disk *d, uint64_t slot, uint64_t n)
{
	static uint8_t image[IMAGE];
	struct disk_slot s = { .slot = slot, .key = key_of(n), .depth = (uint32_t)(n % 5) };

	if (n % 5)
		s.parent = key_of(n - 1);
	fill(image, n);
	fuzz_must(disk_write(d, &s, image) <= 0, "a write");
}

static void fuzz_begin(void)
{
	const char *in = getenv("GPC_FUZZ_DIR");
	struct disk_options opt = { .flags = DISK_CREATE,
				    .slots = SLOTS,
				    .image_bytes = IMAGE,
				    .note_bytes = 64,
				    .threads = 1 };
	struct disk *d;
	struct stat st;
	uint32_t i;
	int fd;

	snprintf(folder, sizeof(folder), "%s/gpc-fuzz-disk-%d", in ? in : "/dev/shm",
		 (int)fuzz_owner);
	mkdir(folder, 0700);
	snprintf(path, sizeof(path), "%s/blocks", folder);
	unlink(path);
	fuzz_must(!disk_open(path, &opt, &d), "%s", gpc_last_error());
	for (i = 0; i < SLOTS - 4; i++)
		put(d, i, i);
	disk_close(d);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	fuzz_must(fd >= 0 && !fstat(fd, &st) && st.st_size <= MOST_FILE, "the file");
	whole_bytes = (uint64_t)st.st_size;
	fuzz_must(read(fd, whole, whole_bytes) == (ssize_t)whole_bytes, "the file");
	close(fd);
}

static void fuzz_end(void)
{
	snprintf(folder, sizeof(folder), "/dev/shm/gpc-fuzz-disk-%d", (int)fuzz_owner);
	snprintf(path, sizeof(path), "%s/blocks", folder);
	unlink(path);
	rmdir(folder);
}

/* ---- edits ---- */

static uint64_t header_at(uint64_t slot)
{
	return DISK_GROUPS + slot % SLOTS * DISK_HEADER_BYTES;
}

/* A field, or bits; then a checksum that is right, or not. */
static void edit_struct(struct fuzz_input *in, int fd, uint64_t at, size_t bytes)
{
	uint8_t b[DISK_PAGE];
	uint64_t how = fuzz_take(in, 1), where, value;
	uint32_t crc, edits = 1 + how % 3;

	if (pread(fd, b, bytes, (off_t)at) != (ssize_t)bytes)
		return;
	while (edits--) {
		where = fuzz_take(in, 1) % (MIN(bytes, 192) / 4) * 4;
		value = fuzz_take_value(in);
		memcpy(b + where, &value, how & 8 ? 4 : 8);
	}
	crc = crc32c(0, b, bytes - 4);
	if (how & 4) {
		memcpy(b + bytes - 4, &crc, 4);
		forged = true;
	}
	fuzz_must(pwrite(fd, b, bytes, (off_t)at) == (ssize_t)bytes, "an edit");
}

static void copy_header(struct fuzz_input *in, int fd)
{
	uint8_t h[DISK_HEADER_BYTES];
	uint64_t from = header_at(fuzz_take(in, 1)), to = header_at(fuzz_take(in, 1));

	if (pread(fd, h, sizeof(h), (off_t)from) == (ssize_t)sizeof(h))
		fuzz_must(pwrite(fd, h, sizeof(h), (off_t)to) == (ssize_t)sizeof(h), "a copy");
}

static void edit(struct fuzz_input *in, int fd)
{
	uint64_t how = fuzz_take(in, 1), at, size;
	uint8_t byte = (uint8_t)how;

	switch (how % 8) {
	case 0:
		edit_struct(in, fd, DISK_SUPER_A, DISK_PAGE);
		break;
	case 1:
		edit_struct(in, fd, DISK_SUPER_B, DISK_PAGE);
		break;
	case 2:
	case 3:
	case 4:
		edit_struct(in, fd, header_at(fuzz_take(in, 1)), DISK_HEADER_BYTES);
		break;
	case 5:
		copy_header(in, fd);
		break;
	case 6:
		at = fuzz_take(in, 3) % whole_bytes;
		fuzz_must(pwrite(fd, &byte, 1, (off_t)at) == 1, "a byte");
		break;
	default:
		size = how & 128 ? fuzz_take_value(in) % (1ull << 44)
				 : fuzz_take(in, 3) % whole_bytes;
		fuzz_must(!ftruncate(fd, (off_t)size), "a length");
	}
}

/* Both superblocks say the same, so that what they say counts. */
static void edit_both(struct fuzz_input *in, int fd)
{
	uint8_t page[DISK_PAGE];

	edit_struct(in, fd, DISK_SUPER_A, DISK_PAGE);
	if (pread(fd, page, sizeof(page), DISK_SUPER_A) == (ssize_t)sizeof(page))
		fuzz_must(pwrite(fd, page, sizeof(page), DISK_SUPER_B) == (ssize_t)sizeof(page),
			  "B");
}

/* ---- and what it comes to ---- */

static void read_one(struct disk *d, struct disk_slot *s, uint64_t image_bytes)
{
	static uint8_t image[1 << 16], want[IMAGE];
	struct disk_slot found = *s;
	int err;

	if (image_bytes > sizeof(image))
		return;
	err = disk_read(d, &found, image);
	fuzz_count(!err ? N_READ : err == -EBADMSG ? N_DAMAGED : N_MISSED);
	if (err || forged)
		return;
	fill(want, s->key.w[1] - 1);
	fuzz_must(!memcmp(image, want, IMAGE), "wrong bytes in slot %d", (int)s->slot);
}

static void use(struct disk *d, struct fuzz_input *in, int fd)
{
	struct disk_slot *s = NULL, look;
	struct disk_info info;
	uint64_t n = 0, i, slot;
	uint8_t note[DISK_MOST_NOTE];

	disk_info(d, &info);
	if (info.mended)
		fuzz_count(N_MENDED);
	fuzz_must(!disk_scan(d, &s, &n) && n <= info.slots, "a scan");
	for (i = 0; i < n; i++) {
		fuzz_must(s[i].slot < info.slots && (!i || s[i - 1].depth <= s[i].depth),
			  "its order");
		fuzz_count(N_FOUND);
		if (i == n / 2 && fuzz_take(in, 1) & 1)
			edit(in, fd);
		read_one(d, &s[i], info.image_bytes);
		look = s[i];
		disk_look(d, &look, note);
	}
	free(s);
	slot = fuzz_take(in, 1) % info.slots;
	if (info.image_bytes == IMAGE)
		put(d, slot, slot);
	if (fuzz_take(in, 1) & 1)
		disk_free(d, slot);
	if (fuzz_take(in, 1) & 1)
		disk_clear(d);
	disk_sync(d);
	disk_free(d, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	struct disk_options opt = { .threads = 1 };
	struct disk_info info;
	struct disk *d = NULL;
	uint64_t how = fuzz_take(&in, 1), edits = 1 + how % 4;
	int err, fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	fuzz_must(fd >= 0 && !ftruncate(fd, 0) &&
			  pwrite(fd, whole, whole_bytes, 0) == (ssize_t)whole_bytes,
		  "the file");
	forged = false;
	if (how & 16)
		edit_both(&in, fd);
	while (edits--)
		edit(&in, fd);
	if (how & 32) {
		opt.flags = DISK_RESIZE;
		opt.slots = 1 + fuzz_take(&in, 1) % 40;
		fuzz_count(N_RESIZED);
	}
	opt.image_bytes = how & 64 ? IMAGE : 0;
	opt.flags |= how & 128 ? DISK_CREATE : 0;
	err_clear();
	disk_peek(path, &info);
	err = disk_open(path, &opt, &d);
	fuzz_must(err <= 0 && (!err || *gpc_last_error()), "%d without a sentence", err);
	fuzz_count(err ? N_REFUSED : N_OPENED);
	if (!err)
		use(d, &in, fd);
	disk_close(d);
	close(fd);
	return 0;
}

static size_t fuzz_seed(uint64_t random, uint8_t *to, size_t room)
{
	size_t i, n = 16 + fuzz_draw(&random, 48);

	for (i = 0; i < n && i < room; i++)
		to[i] = (uint8_t)fuzz_draw(&random, 256);
	return i;
}

#ifndef FUZZ_LIBFUZZER
FUZZ_MAIN("disk", 4000)
#endif
