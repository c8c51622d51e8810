/* SPDX-License-Identifier: Apache-2.0 */
/* Images of many bytes are in several files: whoever maps them sees one memory, whoever removes the
 * memory removes all of them, and a file that is missing, cut or forged is refused.
 * Tests: lib/bytes/memfile/images.c lib/bytes/memfile/make.c lib/bytes/memfile/remove.c
 *   lib/bytes/memfile/pages.c */
#include "t/lib/memfile.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define MIB   ((uint64_t)1 << 20)
#define BYTES (9 * MIB) /* in files of 4, 4 and 1 MiB */

static struct memory make_three(void)
{
	struct memory k = draft(GPC_RAM);

	k.images_bytes = BYTES;
	k.trailers = 1;
	if (memory_make(s, &k, NULL) < 0)
		bail("no memory: %s", gpc_last_error());
	return k;
}

static const char *further(uint64_t number, uint32_t i)
{
	char suffix[MEMORY_SUFFIX];

	memory_file_suffix(number, i, suffix);
	return scratch_file("a", suffix);
}

static uint64_t size_of(const char *path)
{
	struct stat st;

	return stat(path, &st) ? 0 : (uint64_t)st.st_size;
}

static int maps(uint64_t number)
{
	struct memory o;
	uint8_t *p = NULL;
	int err = memory_open(s, number, true, &o);

	if (err < 0)
		return err;
	err = memory_map_images(s, &o, &p);
	memory_unmap_images(s, &o, p);
	memory_close(&o);
	return err;
}

static int describes(uint64_t number)
{
	struct shm_pool p;

	return memory_describe(s, number, &p);
}

/* ---- one memory ---- */

static void test_number(void)
{
	const struct {
		uint64_t bytes;
		uint32_t files;
	} some[] = { { 4096, 1 },    { MIB, 1 },     { 4 * MIB, 2 }, { 4 * MIB + 4096, 2 },
		     { 6 * MIB, 3 }, { 8 * MIB, 4 }, { BYTES, 3 },   { 100 * MIB, 4 } };
	size_t i;

	for (i = 0; i < sizeof(some) / sizeof(some[0]); i++)
		ok(memory_files_for(some[i].bytes) == some[i].files &&
			   memory_files_fit(some[i].bytes, some[i].files),
		   "%llu bytes are in %u files", (unsigned long long)some[i].bytes, some[i].files);
}

static void test_one(void)
{
	struct memory k = make_three(), o;
	uint8_t *p = NULL, *q = NULL, at[3] = { 0 };
	struct stat st, like;
	uint64_t i, wrong = 0;
	int fd[3] = { k.fd, open(further(k.number, 1), O_RDONLY),
		      open(further(k.number, 2), O_RDONLY) };

	is_int(k.files, 3, "three files");
	ok(size_of(file_of(k.number)) == k.images + 4 * MIB &&
		   size_of(further(k.number, 1)) == 4 * MIB && size_of(further(k.number, 2)) == MIB,
	   "each with its range");
	ok(!fstat(fd[2], &st) && !fstat(s->index_fd, &like) && st.st_mode == like.st_mode &&
		   st.st_gid == like.st_gid,
	   "with the index's mode and group");
	is_int(memory_open(s, k.number, true, &o), 0, "the first one is opened");
	is_int(memory_map_images(s, &o, &p), 0, "and leads to all");
	is_int((uintptr_t)p % SHM_IMAGES, 0, "where huge pages can be");
	for (i = 0; p && i < BYTES; i += 4096) {
		wrong += p[i] != 0;
		memcpy(p + i, &i, sizeof(i));
	}
	is_int(wrong, 0, "they are zeros");
	is_int(memory_map(s, &k, PROT_READ, &q), 0, "they are mapped once more");
	for (i = 0; q && i < BYTES; i += 4096)
		wrong += memcmp(q + i, &i, sizeof(i)) != 0;
	is_int(wrong, 0, "another mapping has the same bytes at the same places");
	for (i = 0; i < 3; i++)
		if (pread(fd[i], &at[i], 1, (off_t)((i ? 0 : k.images) + 4096 + 1)) != 1)
			bail("a file cannot be read");
	ok(at[0] == 4096 >> 8 && at[1] == 4096 >> 8 && at[2] == 4096 >> 8,
	   "a range begins where the one before it ends");
	memory_unmap_images(s, &k, q);
	memory_unmap_images(s, &o, p);
	memory_close(&o);
	close(fd[1]);
	close(fd[2]);
	memory_made(&k);
	memory_close(&k);
	is_int(memory_remove(s, k.number), 0, "its names are taken away");
	is_int(memory_files(), 0, "all of them");
}

static void test_mode(void)
{
	struct memory k = make_three();
	struct stat st, old;

	is_int(segment_redress(s, 0660, (uint32_t)getegid(), &old), 1,
	       "another mode for the cache");
	ok(!stat(further(k.number, 2), &st) && (st.st_mode & 0777) == 0660,
	   "is one for all files of the memory");
	is_int(segment_redress(s, 0600, (uint32_t)getegid(), &old), 1, "and back");
	is_int(maps(k.number), 0, "it is as it was");
	memory_close(&k);
	memory_remove(s, k.number);
}

/* ---- other kinds ---- */

static void test_kinds(void)
{
	struct memory k = draft(GPC_VRAM);

	k.lent = false;
	k.nparts = 1;
	k.run[1].part = 0;
	k.run[1].offset = SLOTS * 2 * PIECE;
	k.images_bytes = BYTES;
	is_int(memory_make(s, &k, NULL), 0, "VRAM of the host device");
	ok(k.files == 1 && memory_files() == 1, "is one file");
	memory_close(&k);
	memory_remove(s, k.number);
}

/* ---- forged ---- */

static void test_forged(void)
{
	struct memory k = make_three();
	struct {
		struct shm_memory h;
		struct shm_run run[2];
	} good, bad;
	const char *path = file_of(k.number);
	const uint32_t files[] = { 0, 1, 2, 4, 5, UINT32_MAX };
	size_t i;

	scratch_patch(path, 0, NULL, &good.h, sizeof(good.h));
	scratch_patch(path, SHM_PAGE, NULL, good.run, sizeof(good.run));
	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		bad = good;
		bad.h.files = files[i];
		bad.h.checksum = memory_sum(&bad.h, bad.run);
		scratch_patch(file_of(k.number), 0, &bad.h, NULL, sizeof(bad.h));
		is_int(maps(k.number), -EBADMSG, "files is %u: %s", files[i], gpc_last_error());
	}
	bad = good;
	bad.h.images_bytes = 8 * MIB;
	bad.h.checksum = memory_sum(&bad.h, bad.run);
	scratch_patch(file_of(k.number), 0, &bad.h, NULL, sizeof(bad.h));
	is_int(maps(k.number), -EBADMSG, "no byte for the last one: %s", gpc_last_error());
	scratch_patch(file_of(k.number), 0, &good.h, NULL, sizeof(good.h));
	is_int(maps(k.number), 0, "as it was");
	memory_close(&k);
	memory_remove(s, k.number);
}

static void test_broken(void)
{
	struct memory k = make_three();
	const char *path = further(k.number, 1);
	char there[300], away[310];
	int fd;

	snprintf(there, sizeof(there), "%s", path);
	snprintf(away, sizeof(away), "%s.away", path);
	chmod(there, 0666);
	is_int(maps(k.number), -EACCES, "open to the world: %s", gpc_last_error());
	chmod(there, 0600);
	fd = open(there, O_RDWR);
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)MIB, 4096))
		bail("no hole can be made");
	is_int(maps(k.number), -EBADMSG, "a hole: %s", gpc_last_error());
	if (fallocate(fd, 0, (off_t)(5 * MIB), 4096))
		bail("no page for it");
	is_int(maps(k.number), -EBADMSG, "as many pages elsewhere: %s", gpc_last_error());
	if (ftruncate(fd, (off_t)(4 * MIB - 1)))
		bail("it cannot be cut");
	is_int(maps(k.number), -EBADMSG, "a byte short: %s", gpc_last_error());
	close(fd);
	is_int(describes(k.number), -EBADMSG, "as a check says");
	rename(there, away);
	is_int(maps(k.number), -ESTALE, "it has gone: %s", gpc_last_error());
	ok(strstr(gpc_last_error(), ".1 does not exist"), "by its name");
	is_int(describes(k.number), -ESTALE, "as a check says");
	if (symlink("/etc/passwd", there))
		bail("no link");
	is_int(maps(k.number), -EACCES, "a link: %s", gpc_last_error());
	unlink(there);
	if (mkfifo(there, 0600))
		bail("no FIFO");
	is_int(maps(k.number), -EBADMSG, "a FIFO: %s", gpc_last_error());
	unlink(there);
	unlink(away);
	memory_close(&k);
	memory_sweep(s);
	is_int(memory_files(), 0, "what is left of it is swept");
}

/* ---- left behind ---- */

static void test_left(void)
{
	struct memory k = make_three();
	char of[300];

	snprintf(of, sizeof(of), "%s", file_of(k.number));
	memory_sweep(s);
	is_int(memory_files(), 3, "what its maker has locked stays");
	memory_close(&k);
	memory_sweep(s);
	is_int(memory_files(), 0, "with no lock, all three go");
	k = make_three();
	snprintf(of, sizeof(of), "%s", file_of(k.number));
	memory_close(&k);
	unlink(of);
	is_int(memory_files(), 2, "somebody has removed the first one");
	memory_sweep(s);
	is_int(memory_files(), 0, "the others are swept");
	k = make_three();
	snprintf(of, sizeof(of), "%s", file_of(k.number));
	if (truncate(of, 0))
		bail("it cannot be cut");
	memory_close(&k);
	memory_sweep(s);
	is_int(memory_files(), 0, "so they are if it is empty");
	k = make_three();
	close(open(scratch_file("a", "p0123456789abcdef.4"), O_CREAT | O_RDWR, 0600));
	close(open(scratch_file("a", "p0123456789abcdef.10"), O_CREAT | O_RDWR, 0600));
	close(open(scratch_file("a", "p0123456789abcde.1"), O_CREAT | O_RDWR, 0600));
	memory_close(&k);
	memory_sweep(s);
	is_int(memory_files(), 3, "files of similar names are none of ours");
	scratch_files("gpc.a.p", true);
}

/* A folder is all that root cannot unlink. */
static void test_planted(void)
{
	struct memory k = make_three();
	char there[300];

	snprintf(there, sizeof(there), "%s", further(k.number, 1));
	unlink(there);
	mkdir(there, 0700);
	memory_close(&k);
	memory_sweep(s);
	ok(!is_there(k.number) && access(further(k.number, 2), F_OK),
	   "a folder in the place of a file keeps none of the others");
	rmdir(there);
	k = make_three();
	snprintf(there, sizeof(there), "%s", further(k.number, 3));
	mkdir(there, 0700);
	ok(memory_remove(s, k.number) < 0, "a removal tells: %s", gpc_last_error());
	is_int(memory_files(), 1, "and removes the rest");
	memory_close(&k);
	rmdir(there);
}

/* Somebody removes the cache at that step of the making. */
static int removes_at, removed;

int __real_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode)
{
	int err = __real_fchmod(fd, mode);

	if (removes_at && !--removes_at) {
		segment_visit(s, memory_remove_named, NULL);
		removed = 1;
	}
	return err;
}

static void test_removed_meanwhile(void)
{
	struct memory k;
	int at, err;

	for (at = 2; at <= 4;
	     at++) { /* behind the first one, which is drawn again without its name */
		k = draft(GPC_RAM);
		k.images_bytes = BYTES;
		removes_at = at;
		removed = 0;
		err = memory_make(s, &k, NULL);
		removes_at = 0;
		if (!removed) {
			memory_close(&k);
			memory_remove(s, k.number);
			break;
		}
		is_int(err, -ESTALE, "removed behind file %d: %s", at, gpc_last_error());
		is_int(memory_files(), 0, "no file is left");
	}
	is_int(at, 4, "there are three files");
}

/* ---- not made ---- */

static int stops(void *arg, uint64_t done, uint64_t bytes)
{
	(void)arg;
	(void)bytes;
	return done > 0;
}

static void test_not_made(void)
{
	struct memory_pages pages = { .threads = 1, .progress = stops };
	struct rlimit had, limit;
	struct memory k = draft(GPC_RAM);
	int err;

	k.images_bytes = BYTES;
	is_int(memory_make(s, &k, &pages), -ECANCELED, "it is not to go on: %s", gpc_last_error());
	is_int(memory_files(), 0, "no file is left");
	getrlimit(RLIMIT_FSIZE, &had);
	limit = (struct rlimit){ 7 * MIB, had.rlim_max };
	setrlimit(RLIMIT_FSIZE, &limit);
	k = draft(GPC_RAM);
	k.images_bytes = BYTES;
	err = memory_make(s, &k, NULL);
	is_int(err, 0, "the limit of file sizes is one of each file");
	memory_close(&k);
	memory_remove(s, k.number);
	limit.rlim_cur = 5 * MIB;
	setrlimit(RLIMIT_FSIZE, &limit);
	k = draft(GPC_RAM);
	k.images_bytes = BYTES;
	is_int(memory_make(s, &k, NULL), -EFBIG, "which may be too small: %s", gpc_last_error());
	setrlimit(RLIMIT_FSIZE, &had);
	is_int(memory_files(), 0, "no file is left");
}

static int body(void)
{
	memory_cut = 2 * MIB;
	made_new(&m, "a", 64);
	test_number();
	test_one();
	test_mode();
	test_kinds();
	test_forged();
	test_broken();
	test_left();
	test_planted();
	test_removed_meanwhile();
	test_not_made();
	return done_testing();
}

int main(void)
{
	scratch_make("ranges");
	return tap_guard(30, body, scratch_remove);
}
