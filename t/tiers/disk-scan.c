/* SPDX-License-Identifier: Apache-2.0 */
/* 2^20 headers are read, sorted and given within ten seconds, with a file that was never written to
 * for the most part; and hostile ones at random: any header may say anything.
 * Tests: lib/tiers/disk/scan.c lib/tiers/disk/state.h */
#include <time.h>

#include "tiers/disk/state.h"
#include "t/lib/disks.h"

#define MANY (1u << 20)

/* Files of this test are removed at once: their headers need not come to the disk. */
int __wrap_fdatasync(int fd);

int __wrap_fdatasync(int fd)
{
	(void)fd;
	return 0;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Block n: child of n - 1, but the first of each 64. */
static struct disk_header header_of(const struct disk *d, uint64_t slot, uint64_t n)
{
	struct disk_header h = { .magic = DISK_HEADER_MAGIC,
				 .epoch = d->epoch,
				 .slot = slot,
				 .serial = n + 1,
				 .depth = (uint32_t)(n % 64) };

	memcpy(h.file, d->super.file, 16);
	memcpy(h.key, disk_key(n).w, 16);
	if (n % 64)
		memcpy(h.parent, disk_key(n - 1).w, 16);
	disk_seal_header(&h);
	return h;
}

/* A file with holes: only headers are there. */
static struct disk *sparse(uint64_t slots, uint64_t image_bytes)
{
	struct disk_options opt = disk_opt(1);
	struct disk_super s;

	opt.image_bytes = image_bytes;
	opt.note_bytes = 0;
	unlink(disk_path);
	disk_close(disk_must(&opt));
	disk_see(0, &s, sizeof(s));
	s.slots = slots;
	s.generation++;
	disk_seal_super(&s);
	disk_poke(0, &s, sizeof(s));
	if (truncate(disk_path, (off_t)(DISK_GROUPS + (slots / DISK_GROUP +
						       1) * (131072 + DISK_GROUP * s.slot_bytes))))
		bail("no file of that length");
	opt.slots = 0;
	return disk_must(&opt);
}

static void many(void)
{
	static struct disk_header h[DISK_GROUP];
	struct disk *d = sparse(MANY, 4096);
	struct disk_slot *s = NULL;
	uint64_t n = 0, i, k, bad = 0;
	double start;

	for (i = 0; i < MANY; i += DISK_GROUP) {
		for (k = 0; k < DISK_GROUP; k++)
			h[k] = header_of(d, i + k, MANY - 1 - i - k); /* children before parents */
		disk_poke(disk_header_at(d, i), h, sizeof(h));
	}
	disk_close(d);
	d = NULL;
	start = seconds();
	d = disk_must(&(struct disk_options){ .threads = 1 });
	is_int(disk_scan(d, &s, &n), 0, "2^20 headers are scanned");
	start = seconds() - start;
	is_int(n, MANY, "all are found");
	for (i = 0; i < n; i++)
		bad += s[i].depth != i / (MANY / 64);
	is_int(bad, 0, "parents first");
	ok(start < 10, "within 10 s: %.2f", start);
	free(s);
	disk_close(d);
}

static void holes(void)
{
	struct disk *d = sparse(1u << 26, 1 << 16); /* 4 TiB, 8 GiB of headers */
	struct disk_slot *s = NULL;
	struct disk_header h;
	uint64_t n = 0;
	double start;

	h = header_of(d, (1u << 26) - 1, 5);
	disk_poke(disk_header_at(d, (1u << 26) - 1), &h, sizeof(h));
	start = seconds();
	is_int(disk_scan(d, &s, &n), 0, "2^26 slots, of which one was written");
	start = seconds() - start;
	ok(n == 1 && s[0].slot == (1u << 26) - 1, "are scanned");
	ok(start < 10, "holes are passed over: %.2f s", start);
	free(s);
	disk_close(d);
}

/* Keys twice and more, parents that are their own, chains in a circle, any depth. */
static void hostile(void)
{
	struct disk *d = sparse(3000, 4096);
	struct disk_slot *s = NULL;
	struct disk_header h;
	uint64_t n = 0, i, x = 1, bad = 0, same = 0;

	for (i = 0; i < 3000; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		h = header_of(d, i, (x >> 33) % 500);
		h.depth = (x >> 20) % 3 ? h.depth : (uint32_t)(x >> 32);
		h.serial = (x >> 24) % 7;
		if ((x >> 28) % 2)
			memcpy(h.parent, disk_key((x >> 40) % 500).w, 16);
		if ((x >> 29) % 5 == 0)
			((uint8_t *)&h)[(x >> 50) % 128] ^= 1;
		else
			disk_seal_header(&h);
		disk_poke(disk_header_at(d, i), &h, sizeof(h));
	}
	is_int(disk_scan(d, &s, &n), 0, "hostile headers are scanned");
	for (i = 1; i < n; i++) {
		bad += s[i].depth < s[i - 1].depth;
		same += s[i].depth == s[i - 1].depth && !memcmp(&s[i].key, &s[i - 1].key, 16);
	}
	ok(n > 100 && !bad && !same, "in their order, %d of them", (int)n);
	free(s);
	disk_close(d);
}

static int body(void)
{
	many();
	holes();
	hostile();
	return done_testing();
}

int main(void)
{
	disk_make_folder();
	return tap_guard(100, body, disk_remove_folder);
}
