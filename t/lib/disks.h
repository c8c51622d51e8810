/* SPDX-License-Identifier: Apache-2.0 */
/* disks.h - disk files of tests: in a folder of their own, with images that tell their key. */
#ifndef GPC_T_DISKS_H
#define GPC_T_DISKS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "index/base/crc.h"
#include "tiers/disk/disk.h"
#include "tiers/disk/format.h"
#include "gpc.h"
#include "t/lib/disk_whole.h"
#include "t/lib/tap.h"

#define DISK_TEST_IMAGE 12288u

static char disk_folder[64], disk_path[96];

/* One that O_DIRECT works in, where there is one: /tmp may be a tmpfs. */
TAP_FN void disk_make_folder(void)
{
	const char *in = getenv("GPC_TEST_DISK");

	snprintf(disk_folder, sizeof(disk_folder), "%s/gpc-t-disk-%d.XXXXXX", in ? in : ".",
		 (int)getpid());
	if (!mkdtemp(disk_folder))
		bail("%s cannot be made", disk_folder);
	snprintf(disk_path, sizeof(disk_path), "%s/blocks", disk_folder);
}

TAP_FN void disk_remove_folder(void)
{
	struct dirent *e;
	DIR *dir = *disk_folder ? opendir(disk_folder) : NULL;

	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.')
			unlinkat(dirfd(dir), e->d_name, 0);
	if (dir)
		closedir(dir);
	rmdir(disk_folder);
}

TAP_FN struct disk_options disk_opt(uint64_t slots)
{
	return (struct disk_options){ .flags = DISK_CREATE,
				      .slots = slots,
				      .threads = 2,
				      .image_bytes = DISK_TEST_IMAGE,
				      .note_bytes = 100 };
}

TAP_FN struct disk *disk_must(const struct disk_options *opt)
{
	struct disk *d = NULL;
	int err = disk_open(disk_path, opt, &d);

	if (err)
		bail("%s: %d, %s", disk_path, err, gpc_last_error());
	return d;
}

/* Their headers become FREE, durably. */
TAP_FN int disk_remove(struct disk *d, const uint64_t *slots, uint32_t n)
{
	int err = 0, one;
	uint32_t i;

	for (i = 0; i < n; i++) {
		one = disk_free(d, slots[i]);
		err = err || one == -ENODATA ? err : one;
	}
	one = disk_sync(d);
	return err ? err : one;
}

TAP_FN gpc_key disk_key(uint64_t n)
{
	return (gpc_key){ { n * 0x9e3779b97f4a7c15u + 1, n + 1 } };
}

/* Bytes that no other key and no other version have. */
TAP_FN void disk_fill(void *image, size_t n, gpc_key key, uint32_t version)
{
	uint64_t x = key.w[0] ^ key.w[1] << 32 ^ (uint64_t)version << 48;
	uint8_t *p = image;
	size_t i;

	for (i = 0; i < n; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		p[i] = (uint8_t)(x >> 56);
	}
}

/* Block n in that slot, child of n - 1 where it has one: 0 or what disk_write says. */
TAP_FN int disk_put(struct disk *d, uint64_t slot, uint64_t n, uint32_t depth, uint32_t version)
{
	static __thread uint8_t image[DISK_TEST_IMAGE] __attribute__((aligned(4096)));
	struct disk_slot s = { .slot = slot, .key = disk_key(n), .depth = depth, .tag = version };

	if (depth)
		s.parent = disk_key(n - 1);
	disk_fill(image, sizeof(image), s.key, version);
	return disk_write(d, &s, image);
}

/* 0: block n is there with its bytes; 1: with other bytes; else what disk_read says. */
TAP_FN int disk_has(struct disk *d, uint64_t slot, uint64_t n)
{
	static __thread uint8_t image[DISK_TEST_IMAGE] __attribute__((aligned(4096)));
	static __thread uint8_t want[DISK_TEST_IMAGE];
	struct disk_slot s = { .slot = slot, .key = disk_key(n) };
	int err = disk_read(d, &s, image);

	if (err)
		return err;
	disk_fill(want, sizeof(want), s.key, s.tag);
	return memcmp(image, want, sizeof(want)) != 0;
}

/* The block in that slot, whichever it is: as disk_has(); *ret is what the header says. */
TAP_FN int disk_any(struct disk *d, uint64_t slot, struct disk_slot *ret)
{
	static __thread uint8_t image[DISK_TEST_IMAGE] __attribute__((aligned(4096)));
	static __thread uint8_t want[DISK_TEST_IMAGE];
	int err;

	*ret = (struct disk_slot){ .slot = slot };
	err = disk_look(d, ret, NULL);
	if (!err)
		err = disk_read(d, ret, image);
	if (err)
		return err;
	disk_fill(want, sizeof(want), ret->key, ret->tag);
	return memcmp(image, want, sizeof(want)) != 0;
}

/* Behind the back of the disk. */
TAP_FN void disk_poke(uint64_t at, const void *from, size_t n)
{
	int fd = open(disk_path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || pwrite(fd, from, n, (off_t)at) != (ssize_t)n)
		bail("%s cannot be written", disk_path);
	close(fd);
}

TAP_FN void disk_see(uint64_t at, void *to, size_t n)
{
	int fd = open(disk_path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || pread(fd, to, n, (off_t)at) != (ssize_t)n)
		bail("%s cannot be read", disk_path);
	close(fd);
}

TAP_FN void disk_flip(uint64_t at, uint32_t bit)
{
	uint8_t byte;

	disk_see(at, &byte, 1);
	byte ^= (uint8_t)(1u << bit);
	disk_poke(at, &byte, 1);
}

/* Where things are in a file of disk_opt(), computed here once more. */
TAP_FN uint64_t disk_test_group(void)
{
	return 131072 + (102400 + 4095) / 4096 * 4096 + 1024ull * DISK_TEST_IMAGE;
}

TAP_FN uint64_t disk_test_header(uint64_t slot)
{
	return 131072 + slot / 1024 * disk_test_group() + slot % 1024 * 128;
}

TAP_FN uint64_t disk_test_image(uint64_t slot)
{
	return 131072 + slot / 1024 * disk_test_group() + 131072 + (102400 + 4095) / 4096 * 4096 +
	       slot % 1024 * DISK_TEST_IMAGE;
}

/* With a good checksum, whatever it says. */
TAP_FN void disk_seal_super(struct disk_super *s)
{
	s->checksum = crc32c(0, s, offsetof(struct disk_super, checksum));
}

TAP_FN void disk_seal_header(struct disk_header *h)
{
	h->checksum = crc32c(0, h, offsetof(struct disk_header, checksum));
}

/* A file found no room, and the sentence has what there is, less the superblock of a file that was
 * on its way. */
TAP_FN bool disk_says_free(void)
{
	const char *at = strstr(gpc_last_error(), " bytes more, and ");
	unsigned long long said = 0, there;
	char folder[96], *slash;
	struct statvfs fs;

	snprintf(folder, sizeof(folder), "%s", disk_path);
	slash = strrchr(folder, '/');
	*slash = 0;
	if (statvfs(folder, &fs))
		bail("statvfs: %s", strerror(errno));
	there = (unsigned long long)fs.f_bavail * fs.f_frsize;
	return at && sscanf(at, " bytes more, and %llu are free", &said) == 1 && said <= there &&
	       said + 8192 >= there;
}

#endif
