/* SPDX-License-Identifier: Apache-2.0 */
/* image.h - the files of a small cache, as they were before each execution.
 *
 * They are made once.  A mapping of our own sees what an execution has changed, so only those
 * pages are copied back; the sizes, when the execution changed them. */
#ifndef GPC_FUZZ_IMAGE_H
#define GPC_FUZZ_IMAGE_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "fuzz.h"
#include "index/peer/handle.h"
#include "virtual.h"

#define IMAGE_NAME "x"

enum { INDEX, CONTROL, LOCK, IMAGE_FILES };

struct image_file {
	int fd;
	uint8_t *map, *kept;
	size_t size;
	bool resized, gone;
};

static char image_dir[64];
static struct image_file image[IMAGE_FILES];
static struct layout image_at;
static struct shm_header image_header;
static bool image_has_mirrors; /* files of mirrors may lie about */

FUZZ_FN const char *image_path(int i, bool away)
{
	static const char *const suffix[] = { "idx", "ctl", "lock" };
	static char path[2][128];

	snprintf(path[away], sizeof(path[0]), "%s/%s." IMAGE_NAME ".%s", image_dir,
		 away ? "away" : "gpc", suffix[i]);
	return path[away];
}

FUZZ_FN void image_dir_name(void)
{
	const char *given = getenv("GPC_FUZZ_DIR");

	snprintf(image_dir, sizeof(image_dir), "%.40s/gpc-fuzz-%d", given ? given : "/dev/shm",
		 (int)fuzz_owner);
}

FUZZ_FN void image_remove_files(const char *prefix)
{
	DIR *dir = opendir(image_dir);
	struct dirent *e;

	while (dir && (e = readdir(dir)))
		if (!strncmp(e->d_name, prefix, strlen(prefix)) && e->d_name[0] != '.')
			unlinkat(dirfd(dir), e->d_name, 0);
	if (dir)
		closedir(dir);
}

static void fuzz_end(void)
{
	image_dir_name();
	image_remove_files("");
	rmdir(image_dir);
}

FUZZ_FN void image_map(int i)
{
	struct image_file *f = &image[i];
	struct stat st;

	f->fd = open(image_path(i, false), O_RDWR | O_CLOEXEC);
	fuzz_must(f->fd >= 0 && !fstat(f->fd, &st), "no file %d", i);
	f->size = (size_t)st.st_size;
	f->map = mmap(NULL, f->size, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
	f->kept = malloc(f->size);
	fuzz_must(f->map != MAP_FAILED && f->kept, "no memory");
	memcpy(f->kept, f->map, f->size);
}

/* A child makes the cache and dies with all that it has, or leaves in good order. */
FUZZ_FN void image_make(void (*maker)(const char *dir))
{
	int i, status;
	pid_t pid;

	image_dir_name();
	fuzz_must(!mkdir(image_dir, 0700), "%s: %s", image_dir, strerror(errno));
	virtual_begin();
	pid = fork();
	if (!pid) {
		maker(image_dir);
		_exit(0);
	}
	fuzz_must(pid > 0 && waitpid(pid, &status, 0) == pid && !status, "the cache was not made");
	for (i = 0; i < IMAGE_FILES; i++)
		image_map(i);
	memcpy(&image_header, image[INDEX].kept, sizeof(image_header));
	geometry_layout(&image_header.geometry, &image_at);
	image_has_mirrors = true;
}

FUZZ_FN void image_put_back(struct image_file *f)
{
	size_t at, n;

	for (at = 0; at < f->size; at += n) {
		n = f->size - at < SHM_PAGE ? f->size - at : SHM_PAGE;
		if (f->resized || memcmp(f->map + at, f->kept + at, n))
			memcpy(f->map + at, f->kept + at, n);
	}
	f->resized = false;
}

FUZZ_FN void image_restore(void)
{
	int i;

	virtual_begin();
	for (i = 0; i < IMAGE_FILES; i++) {
		struct image_file *f = &image[i];

		if (f->gone)
			fuzz_must(!rename(image_path(i, true), image_path(i, false)), "gone");
		f->gone = false;
		if (f->resized)
			fuzz_must(!ftruncate(f->fd, (off_t)f->size) &&
					  !fallocate(f->fd, 0, 0, (off_t)f->size),
				  "no memory");
		image_put_back(f);
	}
	if (image_has_mirrors)
		image_remove_files("gpc." IMAGE_NAME ".m");
	image_has_mirrors = false;
}

/* Both headers again as if they had been made so. */
FUZZ_FN void image_seal(void)
{
	struct shm_header h;

	memcpy(&h, image[INDEX].map, sizeof(h));
	h.checksum = key_checksum(&h, offsetof(struct shm_header, checksum));
	memcpy(image[INDEX].map, &h, sizeof(h));
	h.magic = SHM_MAGIC_CONTROL;
	if (geometry_check(&h.geometry, h.block_tokens) == 0) {
		struct layout at;

		geometry_layout(&h.geometry, &at);
		h.bytes = at.control_bytes;
	}
	memset(h.secret, 0, sizeof(h.secret));
	h.checksum = key_checksum(&h, offsetof(struct shm_header, checksum));
	memcpy(image[CONTROL].map, &h, sizeof(h));
}

FUZZ_FN void image_devices(const char *devices)
{
	struct shm_header *h = (struct shm_header *)image[INDEX].map;

	memset(h->devices, 0, sizeof(h->devices));
	strcpy(h->devices, devices);
	image_has_mirrors |= strcmp(devices, "none") != 0;
}

/* ---- sizes ---- */

enum { SHRINK, GROW, HOLE, GONE, SIZE_CHANGES };

FUZZ_FN void image_resize(int i, int how, uint64_t to)
{
	struct image_file *f = &image[i];
	off_t at = (off_t)(to % f->size);

	f->resized = true;
	switch (how) {
	case SHRINK:
		fuzz_must(!ftruncate(f->fd, at), "ftruncate");
		break;
	case GROW:
		fuzz_must(!ftruncate(f->fd, (off_t)f->size + (off_t)(to % 100000)), "ftruncate");
		break;
	case HOLE:
		fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at & ~4095,
			  4096 << (to >> 60));
		break;
	default:
		f->gone |= !rename(image_path(i, false), image_path(i, true));
	}
}

FUZZ_FN gpc_key image_key(uint64_t n)
{
	if (!n)
		return (gpc_key){ { 0, 0 } };
	return (gpc_key){ { fuzz_mix(2 * n + 1), fuzz_mix(~n) & ~KEY_ROOT_BIT } };
}

#endif
