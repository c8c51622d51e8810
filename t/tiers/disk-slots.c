/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks in a disk file: written, read, replaced, forgotten, cleared; over the end of the process;
 * in pieces and out of alignment; notes; parents first.
 * Tests: lib/tiers/disk/slot.c lib/tiers/disk/scan.c lib/tiers/disk/super.c lib/tiers/disk/io.c lib/tiers/disk/disk.h */
#include "t/lib/disks.h"

static uint8_t image[2 * DISK_TEST_IMAGE + 8192] __attribute__((aligned(4096)));

static void one_block(void)
{
	struct disk_options opt = disk_opt(10);
	struct disk *d = disk_must(&opt);
	struct disk_info info;
	uint64_t slots[2] = { 3, 4 };

	disk_info(d, &info);
	ok(info.made && info.has_secret && info.slots == 10 && !info.removed, "a file is made");
	diag("O_DIRECT: %s", info.direct ? "yes" : "no");
	is_int(disk_has(d, 3, 7), -ENOENT, "a slot of it is free");
	is_int(disk_put(d, 3, 7, 0, 1), 0, "a block is written");
	is_int(disk_has(d, 3, 7), 0, "and read");
	is_int(disk_has(d, 3, 8), -ESTALE, "not under another key");
	is_int(disk_put(d, 3, 8, 0, 2), 0, "another block takes its place");
	is_int(disk_has(d, 3, 8), 0, "and is read");
	is_int(disk_has(d, 3, 7), -ESTALE, "the one before is not");
	is_int(disk_put(d, 4, 9, 0, 3), 0, "a third one");
	is_int(disk_put(d, 5, 10, 0, 3), 0, "a fourth one");
	is_int(disk_remove(d, slots, 2), 0, "two are forgotten");
	ok(disk_has(d, 3, 8) == -ENOENT && disk_has(d, 4, 9) == -ENOENT, "and are gone");
	is_int(disk_has(d, 5, 10), 0, "the fourth is there");
	is_int(disk_free(d, 5), 0, "freed");
	is_int(disk_has(d, 5, 10), -ENOENT, "it is not");
	is_int(disk_put(d, 9, 11, 0, 4), 0, "the last slot");
	disk_close(d);

	opt.flags = 0;
	opt.slots = 0;
	d = disk_must(&opt);
	is_int(disk_has(d, 9, 11), 0, "opened again, it is there");
	is_int(disk_has(d, 3, 8), -ENOENT, "and nothing else");
	is_int(disk_clear(d), 0, "cleared");
	is_int(disk_has(d, 9, 11), -ENOENT, "it is gone");
	is_int(disk_put(d, 9, 11, 0, 5), 0, "and may be written again");
	disk_close(d);
	d = disk_must(&opt);
	is_int(disk_has(d, 9, 11), 0,
	       "a block of the new epoch is there after it was opened again");
	disk_info(d, &info);
	is_int(info.epoch, 1ll << 32, "the epoch has stayed: the first one of the second opening");
	disk_close(d);
	unlink(disk_path);
}

/* ---- pieces ---- */

static int move_pieces(struct disk *d, enum disk_kind kind, uint8_t *at, const uint32_t *cut,
		       uint32_t n)
{
	struct iovec iov[20];
	struct disk_op op = { .kind = kind,
			      .what = { .slot = 1, .key = disk_key(1), .tag = 1 },
			      .iov = iov,
			      .niov = n };
	uint32_t i;

	for (i = 0; i < n; at += cut[i++])
		iov[i] = (struct iovec){ at, cut[i] };
	return disk_run(d, &op);
}

static void pieces(uint32_t bytes, uint32_t flags)
{
	static const uint32_t shift[] = { 0, 512, 1, 4096 };
	struct disk_options opt = disk_opt(4);
	uint32_t cuts[4][20] = { { bytes }, { 512, bytes - 512 }, { 1, bytes - 1 }, { 0 } },
		 n[4] = { 1, 2, 2, 20 };
	uint8_t *want = malloc(bytes), *back = malloc(bytes + 8192);
	uint32_t i, j, k, bad = 0;
	struct disk *d;

	for (i = 0; i < 20; i++)
		cuts[3][i] = i < 19 ? bytes / 64 * (i % 3) : 0;
	for (i = 0, k = 0; i < 19; i++)
		k += cuts[3][i];
	cuts[3][19] = bytes - k;
	opt.image_bytes = bytes;
	opt.flags |= flags;
	d = disk_must(&opt);
	for (i = 0; i < 4; i++)
		for (j = 0; j < 4; j++) {
			disk_fill(want, bytes, disk_key(i * 4 + j), bytes);
			memcpy(image + shift[j], want, bytes);
			bad += move_pieces(d, DISK_WRITE, image + shift[j], cuts[i], n[i]) != 0;
			memset(back, 0, bytes + 8192);
			k = (i + j) % 4;
			bad += move_pieces(d, DISK_READ, back + shift[k], cuts[k], n[k]) != 0;
			bad += memcmp(back + shift[k], want, bytes) != 0;
			memset(image, 0xee, sizeof(image));
			bad += move_pieces(d, DISK_READ, image + shift[k], cuts[i], n[i]) != 0;
			bad += memcmp(image + shift[k], want, bytes) != 0;
			bad += image[shift[k] + bytes] != 0xee;
		}
	is_int(bad, 0, "%u bytes in pieces%s", bytes, flags ? ", buffered" : "");
	disk_close(d);
	unlink(disk_path);
	free(want);
	free(back);
}

/* ---- notes ---- */

static void notes(void)
{
	struct disk_options opt = disk_opt(3);
	struct disk *d = disk_must(&opt);
	struct iovec iov = { image, DISK_TEST_IMAGE };
	char note[100], back[100] = "";
	struct disk_op op = { .kind = DISK_WRITE,
			      .iov = &iov,
			      .niov = 1,
			      .note = note,
			      .what = { .slot = 2, .key = disk_key(5), .note_bytes = 100 } };
	struct disk_slot s = { .slot = 2, .key = disk_key(5) };

	memset(note, 'n', sizeof(note));
	is_int(disk_run(d, &op), 0, "a block with a note");
	is_int(disk_look(d, &s, back), 0, "is looked at");
	ok(s.note_bytes == 100 && !memcmp(note, back, 100), "the note is there");
	memset(back, 0, sizeof(back));
	op.kind = DISK_READ;
	op.note = back;
	is_int(disk_run(d, &op), 0, "read");
	ok(!memcmp(note, back, 100), "with its note");
	disk_flip(131072 + 131072 + 2 * 100 + 50, 3);
	is_int(disk_run(d, &op), -EBADMSG, "a note whose bit has flipped");
	op.note = NULL;
	is_int(disk_run(d, &op), 0, "who does not want it reads the block");
	op.kind = DISK_WRITE;
	op.note = note;
	op.what.note_bytes = 101;
	is_int(disk_run(d, &op), -EINVAL, "a longer note is refused");
	disk_close(d);
	unlink(disk_path);
}

/* ---- scan ---- */

static uint32_t order_faults(const struct disk_slot *s, uint64_t n)
{
	uint64_t i, j;
	uint32_t bad = 0;

	for (i = 0; i < n; i++)
		if (s[i].depth) {
			for (j = 0; j < i; j++)
				if (s[j].key.w[0] == s[i].parent.w[0] &&
				    s[j].key.w[1] == s[i].parent.w[1])
					break;
			bad += j == i;
		}
	return bad;
}

static void scan(void)
{
	struct disk_options opt = disk_opt(2500);
	struct disk *d = disk_must(&opt);
	struct disk_slot *s = NULL;
	uint64_t n = 99, i;
	uint32_t bad = 0;

	is_int(disk_scan(d, &s, &n), 0, "an empty file is scanned");
	is_int(n, 0, "and has nothing");
	free(s);
	for (i = 0; i < 40; i++) /* 4 chains of 10, children before parents in the file */
		bad += disk_put(d, 2499 - i * 60, i, (uint32_t)(i % 10), 1) != 0;
	bad += disk_put(d, 1, 5, 5, 9) != 0; /* once more, later */
	bad += disk_put(d, 2, 999, 0, 9) != 0;
	bad += disk_free(d, 2) != 0;
	disk_close(d);
	d = disk_must(&opt);
	is_int(disk_scan(d, &s, &n), 0, "scanned");
	is_int(n, 40, "each key once");
	is_int(order_faults(s, n), 0, "parents before their children");
	for (i = 0; i < n; i++)
		if (s[i].key.w[0] == disk_key(5).w[0])
			ok(s[i].slot == 1 && s[i].tag == 9, "of two the later one");
	for (i = 0; i < n; i++)
		bad += disk_look(d, &s[i], NULL) != 0;
	is_int(bad, 0, "all are there");
	is_int(disk_has(d, 2499 - 5 * 60, 5), -ENOENT, "the earlier twin is free");
	free(s);
	is_int(disk_clear(d), 0, "cleared");
	is_int(disk_put(d, 7, 77, 0, 1), 0, "one more");
	is_int(disk_scan(d, &s, &n), 0, "scanned");
	ok(n == 1 && s[0].slot == 7, "only that one, 40 are of the epoch before");
	free(s);
	disk_close(d);
	unlink(disk_path);
}

static void refused(void)
{
	struct disk_options opt = disk_opt(3);
	struct disk *d = disk_must(&opt);
	struct iovec iov = { image, DISK_TEST_IMAGE };
	struct disk_op op = { .kind = DISK_WRITE,
			      .iov = &iov,
			      .niov = 1,
			      .what = { .slot = 3, .key = disk_key(5) } };
	struct disk_slot s = { .slot = 3 };

	is_int(disk_run(d, &op), -EINVAL, "a slot beyond the last");
	is_int(disk_submit(d, &op), -EINVAL, "submitted as well");
	op.what.slot = 0;
	iov.iov_len--;
	is_int(disk_run(d, &op), -EINVAL, "pieces that are too short");
	iov.iov_len = UINT64_MAX;
	is_int(disk_run(d, &op), -EINVAL, "or too long");
	iov.iov_len = DISK_TEST_IMAGE;
	op.what.key = (gpc_key){ { 0, 0 } };
	is_int(disk_run(d, &op), -EINVAL, "a zero key");
	op.what.key = (gpc_key){ { 1, 1ull << 63 } };
	is_int(disk_run(d, &op), -EINVAL, "a root key");
	op.what.key = disk_key(1);
	op.what.note_bytes = 1;
	is_int(disk_run(d, &op), -EINVAL, "a note that is nowhere");
	op.what.note_bytes = 0;
	op.kind = 99;
	is_int(disk_run(d, &op), -EINVAL, "no such operation");
	is_int(disk_free(d, 3), -EINVAL, "free beyond the last");
	is_int(disk_look(d, &s, NULL), -EINVAL, "look, too");
	disk_close(d);
	disk_close(NULL);
	unlink(disk_path);
}

static int body(void)
{
	static const uint32_t bytes[] = { DISK_TEST_IMAGE, 8192, 8704, 5000, 4096, 700, 24576 };
	uint32_t i;

	one_block();
	for (i = 0; i < sizeof(bytes) / sizeof(*bytes); i++) {
		pieces(bytes[i], 0);
		pieces(bytes[i], DISK_BUFFERED);
	}
	notes();
	scan();
	refused();
	return done_testing();
}

int main(void)
{
	disk_make_folder();
	return tap_guard(60, body, disk_remove_folder);
}
