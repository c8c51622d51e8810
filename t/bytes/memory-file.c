/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a pool's memory: made, found by its number alone, refused when any of it is forged or
 * missing; and what nobody can have.
 * Tests: lib/bytes/memfile/open.c lib/bytes/memfile/make.c lib/bytes/memfile/parts.h
 *   lib/index/segment/shm_memory.h */
#include "t/lib/memfile.h"

/* ---- made and opened ---- */

static void test_open(void)
{
	struct memory k = make(GPC_RAM), o;
	struct stat st, like;
	uint8_t *p = NULL;

	ok(k.number && k.fd >= 0 && is_there(k.number), "a file of a number of its own is made");
	is_int(k.images % SHM_IMAGES, 0, "its images begin at a huge page");
	ok(!stat(file_of(k.number), &st) && !fstat(s->index_fd, &like) &&
		   st.st_mode == like.st_mode && st.st_gid == like.st_gid,
	   "with the index's mode and group");
	is_int(memory_open(s, k.number, true, &o), 0, "it is opened by its number");
	ok(o.kind == GPC_RAM && o.slots == SLOTS && o.nruns == 2 && o.nparts == 1 &&
		   o.block_bytes == k.block_bytes && o.images == k.images &&
		   o.images_bytes == k.images_bytes && o.maker_pid == getpid() &&
		   !memcmp(o.run, k.run, 2 * sizeof(k.run[0])) &&
		   !memcmp(o.fingerprint, k.fingerprint, 32),
	   "with all that its maker said");
	is_int(memory_map_images(s, &o, &p), 0, "its images can be mapped");
	if (p) {
		size_t i, set = 0;

		is_int((uintptr_t)p % SHM_IMAGES, 0, "where huge pages can be");
		for (i = 0; i < o.images_bytes; i++)
			set += p[i] != 0;
		is_int(set, 0, "they are zeros");
		p[o.images_bytes - 1] = 1;
	}
	memory_unmap_images(s, &o, p);
	memory_close(&o);
	memory_close(&o);
	is_int(o.fd, -1, "and closing twice is fine");
	is_int(opens(k.number ^ 1), -ESTALE, "another number: %s", gpc_last_error());
	is_int(opens(0), -ESTALE, "no number");
	memory_made(&k);
	memory_close(&k);
	is_int(memory_remove(s, k.number), 0, "its name is taken away");
	is_int(opens(k.number), -ESTALE, "and it is stale");
	is_int(memory_remove(s, k.number), 0, "once more is fine");
}

/* ---- forged ---- */

struct whole {
	struct shm_memory h;
	struct shm_run run[2];
};

static void get(uint64_t number, struct whole *w)
{
	scratch_patch(file_of(number), 0, NULL, &w->h, sizeof(w->h));
	scratch_patch(file_of(number), SHM_PAGE, NULL, w->run, sizeof(w->run));
}

static void put(uint64_t number, const struct whole *w)
{
	scratch_patch(file_of(number), 0, &w->h, NULL, sizeof(w->h));
	scratch_patch(file_of(number), SHM_PAGE, w->run, NULL, sizeof(w->run));
}

/* With a right sum, as a peer would. */
static void forge(uint64_t number, struct whole w, int want, const char *what)
{
	struct whole good;

	get(number, &good);
	if (w.h.nruns <= 2)
		w.h.checksum = memory_sum(&w.h, w.run);
	put(number, &w);
	is_int(opens(number), want, "forged %s: %s", what, gpc_last_error());
	put(number, &good);
}

#define FORGE(field, value, want)                               \
	do {                                                    \
		struct whole w_ = good;                         \
		w_.field = (value);                             \
		forge(k.number, w_, (want), #field " " #value); \
	} while (0)

static void test_forged(void)
{
	struct memory k = make(GPC_RAM);
	struct whole good;

	get(k.number, &good);
	FORGE(h.magic, 1, -EBADMSG);
	FORGE(h.version, 2, -EBADMSG);
	FORGE(h.endian, 0x04030201, -EBADMSG);
	FORGE(h.ready, 0, -EBADMSG);
	FORGE(h.cache[3], good.h.cache[3] ^ 1, -ESTALE);
	FORGE(h.number, k.number + 1, -ESTALE);
	FORGE(h.kind, 0, -EBADMSG);
	FORGE(h.kind, 3, -EBADMSG);
	FORGE(h.slots, 0, -EBADMSG);
	FORGE(h.slots, SLOTS + 1, -EBADMSG);
	FORGE(h.slots, UINT32_MAX, -EBADMSG);
	FORGE(h.nruns, 0, -EBADMSG);
	FORGE(h.nruns, 1, -EBADMSG);
	FORGE(h.nruns, UINT32_MAX, -EBADMSG);
	FORGE(h.nparts, 0, -EBADMSG);
	FORGE(h.nparts, 2, -EBADMSG);
	FORGE(h.nparts, 513, -EBADMSG);
	FORGE(h.block_bytes, good.h.block_bytes + 1, -EBADMSG);
	FORGE(h.images, 4096, -EBADMSG);
	FORGE(h.images, SHM_IMAGES * 2, -EBADMSG);
	FORGE(h.images, UINT64_MAX - SHM_IMAGES + 1, -EBADMSG);
	FORGE(h.images_bytes, 0, -EBADMSG);
	FORGE(h.images_bytes, good.h.images_bytes + 4096, -EBADMSG);
	FORGE(h.images_bytes, good.h.images_bytes - 4096, -EBADMSG);
	FORGE(h.images_bytes, UINT64_MAX - 4095, -EBADMSG);
	FORGE(h.numa, 3, -EBADMSG);
	FORGE(h.lent, 1, -EBADMSG);
	FORGE(h.device[31], 'x', 0);
	FORGE(run[0].bytes, PIECE + 1, -EBADMSG);
	FORGE(run[0].offset, UINT64_MAX, -EBADMSG);
	FORGE(run[1].part, 1, -EBADMSG);
	FORGE(run[1].offset, 0, -EBADMSG);
	FORGE(run[1].slot_stride, UINT64_MAX / 2, -EBADMSG);
	memset(good.h.device, 'x', sizeof(good.h.device));
	forge(k.number, good, -EBADMSG, "device without end");
	is_int(opens(k.number), 0, "and the true one opens");
	memory_close(&k);
	memory_remove(s, k.number);
}

/* Whatever bit flips, it is never taken for another file. */
static void test_bits(void)
{
	struct memory k = make(GPC_RAM);
	struct whole good, bad;
	uint32_t i, taken = 0, places = offsetof(struct shm_memory, ready) + 4;
	int err;

	get(k.number, &good);
	for (i = 0; i < places * 8 + sizeof(good.run) * 8; i++) {
		uint32_t at = i / 8 < places ? i / 8 : offsetof(struct whole, run) + i / 8 - places;

		bad = good;
		((uint8_t *)&bad)[at] ^= (uint8_t)(1u << i % 8);
		put(k.number, &bad);
		err = opens(k.number);
		taken += err != -EBADMSG;
	}
	is_int(taken, 0, "each flipped bit of header and runs is seen");
	put(k.number, &good);
	memory_close(&k);
	memory_remove(s, k.number);
}

static void test_cut(void)
{
	struct memory k = make(GPC_RAM), o;
	const char *path = file_of(k.number);
	struct stat st;
	uint8_t *p;

	stat(path, &st);
	chmod(path, 0666);
	is_int(opens(k.number), -EACCES, "open to the world: %s", gpc_last_error());
	chmod(path, 0600);
	if (fallocate(k.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)(k.images + k.images_bytes - 4096), 4096))
		bail("no hole can be made");
	is_int(opens(k.number), -EBADMSG, "a hole: %s", gpc_last_error());
	if (fallocate(k.fd, 0, 65536, 4096))
		bail("no page for it");
	is_int(memory_open(s, k.number, false, &o), 0, "as many pages elsewhere are not seen");
	is_int(memory_map_images(s, &o, &p), -EBADMSG, "until it is to be mapped: %s",
	       gpc_last_error());
	memory_close(&o);
	if (truncate(path, st.st_size - 1) ||
	    (is_int(opens(k.number), -EBADMSG, "a byte short: %s", gpc_last_error()),
	     truncate(path, 100)))
		bail("it cannot be cut");
	is_int(opens(k.number), -EBADMSG, "cut within its header: %s", gpc_last_error());
	if (truncate(path, 0))
		bail("it cannot be cut");
	is_int(opens(k.number), -EBADMSG, "empty");
	unlink(path);
	if (symlink("/etc/passwd", path))
		bail("no link");
	is_int(opens(k.number), -EACCES, "a link: %s", gpc_last_error());
	memory_sweep(s);
	unlink(path);
	if (mkfifo(path, 0600))
		bail("no FIFO");
	is_int(opens(k.number), -EBADMSG, "a FIFO: %s", gpc_last_error());
	unlink(path);
	memory_close(&k);
}

/* ---- parts ---- */

static void test_parts(void)
{
	struct memory k = make(GPC_VRAM);
	struct shm_part part = { .bytes = SLOTS * 2 * PIECE,
				 .offset = 512,
				 .handle_bytes = 4,
				 .handle = "abc" },
			got, bad;
	long at = (long)memory_entry_place(2, 0);
	uint8_t *p;

	is_int(memory_read_part(&k, 0, &got), -EAGAIN, "a part that is not lent: %s",
	       gpc_last_error());
	is_int(memory_store_part(&k, 0, &part), 0, "it is lent");
	is_int(memory_read_part(&k, 0, &got), 0, "and there");
	ok(got.bytes == part.bytes && got.offset == 512 && !strcmp((char *)got.handle, "abc"),
	   "as its maker has it");
	is_int(memory_store_part(&k, 0, &part), -EEXIST, "once: %s", gpc_last_error());
	is_int(memory_read_part(&k, 1, &got), -EAGAIN, "the other one is not");
	is_int(memory_read_part(&k, 2, &got), -EINVAL, "there are two: %s", gpc_last_error());
	is_int(memory_store_part(&k, 2, &part), -EINVAL, "to lend, too");
	part.handle_bytes = 233;
	is_int(memory_store_part(&k, 1, &part), -EINVAL, "too long a handle: %s", gpc_last_error());
	is_int(memory_map_images(s, &k, &p), -ENOENT, "no images in the file: %s",
	       gpc_last_error());
	memory_read_part(&k, 0, &part);
#define PART(field, value)                                                     \
	do {                                                                   \
		bad = part;                                                    \
		bad.field = (value);                                           \
		scratch_patch(file_of(k.number), at, &bad, NULL, sizeof(bad)); \
		is_int(memory_read_part(&k, 0, &got), -EBADMSG,                \
		       "forged part: " #field " " #value);                     \
	} while (0)
	PART(bytes, part.bytes - 1);
	PART(bytes, UINT64_MAX);
	PART(offset, UINT64_MAX);
	PART(handle_bytes, 233);
	PART(state, 1);
	memory_close(&k);
	memory_remove(s, k.number);
}

/* ---- what is refused ---- */

static void refuses(struct memory k, struct memory_pages pages, int want, const char *sentence)
{
	int err = memory_make(s, &k, &pages);

	ok(err == want && strstr(gpc_last_error(), sentence), "%d: %s", err, gpc_last_error());
	is_int(memory_files(), 0, "and no file");
}

static void test_refused(void)
{
	struct memory k = draft(GPC_RAM);
	char long_dir[300];

	refuses(k, (struct memory_pages){ .numa = 3 }, -EINVAL, "numa is 3");
	refuses(k, (struct memory_pages){ .threads = 17 }, -EINVAL, "threads is 17");
	refuses(k, (struct memory_pages){ .nodes = 1 }, -EINVAL, "nodes is 0x1");
	refuses(k, (struct memory_pages){ .numa = 2, .nodes = 1ull << 63 }, -EINVAL,
		"nodes is 0x8000000000000000");
	refuses(k, (struct memory_pages){ .huge_dir = scratch }, -EINVAL, "hugetlbfs");
	refuses(k, (struct memory_pages){ .huge_dir = "/no/such/folder" }, -ENOENT,
		"huge_dir /no/such/folder");
	snprintf(long_dir, sizeof(long_dir), "%s/%0210d", scratch, 0);
	mkdir(long_dir, 0700);
	refuses(k, (struct memory_pages){ .huge_dir = long_dir }, -EINVAL, "at most 231 bytes");
	rmdir(long_dir);
	k.images_bytes = 1ull << 50;
	refuses(k, (struct memory_pages){ 0 }, -ENOSPC, "bytes are missing");
	k = draft(GPC_RAM);
	k.images_bytes--;
	refuses(k, (struct memory_pages){ 0 }, -EINVAL, "images_bytes is 196607");
	k = draft(GPC_RAM);
	k.block_bytes--;
	refuses(k, (struct memory_pages){ 0 }, -EINVAL, "block_bytes is 24575");
	k = draft(GPC_RAM);
	k.run[1].offset = 0;
	refuses(k, (struct memory_pages){ 0 }, -EINVAL, "runs[1]");
}

static int body(void)
{
	made_new(&m, "a", 64);
	test_open();
	test_forged();
	test_bits();
	test_cut();
	test_parts();
	test_refused();
	return done_testing();
}

int main(void)
{
	scratch_make("015");
	return tap_guard(30, body, scratch_remove);
}
