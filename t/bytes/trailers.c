/* SPDX-License-Identifier: Apache-2.0 */
/* The checksums in the file of a pool's memory: where they are, and what is refused of a forged or
 * cut file.
 * Tests: lib/bytes/memfile/open.c lib/index/segment/shm_memory.h */
#include "t/lib/memfile.h"

static struct memory make_summed(void)
{
	struct memory k = draft(GPC_RAM);
	int err;

	k.trailers = 1;
	err = memory_make(s, &k, NULL);
	if (err)
		bail("no memory: %d, %s", err, gpc_last_error());
	return k;
}

static void end(struct memory *k)
{
	memory_close(k);
	memory_remove(s, k->number);
}

/* ---- where they are ---- */

static void test_place(void)
{
	struct memory k = make_summed(), o;
	struct memory_trailers t = { 0 }, again = { 0 };
	uint8_t *p = NULL;
	uint32_t i, set = 0;

	is_int(k.trailers % 4096, 0, "checksums begin a page");
	ok(k.trailers >= memory_entry_place(k.nruns, k.nparts) + sizeof(struct shm_part),
	   "behind the tables");
	ok(k.images >= k.trailers + SLOTS * sizeof(struct shm_trailer), "and before the images");
	is_int(memory_open(s, k.number, true, &o), 0, "the file opens");
	ok(o.trailers == k.trailers, "and says where they are");
	is_int(memory_map_trailers(s, &o, &t), 0, "they are mapped");
	is_int(memory_map_trailers(s, &o, &again), 0, "by two");
	is_int(memory_map_images(s, &o, &p), 0, "and the images");
	for (i = 0; t.at && i < SLOTS; i++)
		set += t.at[i].life || t.at[i].crc || t.at[i].key[0] || t.at[i].key[1];
	is_int(set, 0, "no slot has one at first");
	if (!t.at || !again.at || !p)
		bail("not mapped");
	memset(t.at, 0xff, SLOTS * sizeof(*t.at));
	ok(again.at[SLOTS - 1].life == UINT32_MAX, "one sees what the other stores");
	for (i = 0; i < k.images_bytes; i++)
		set += p[i] != 0;
	is_int(set, 0, "no image does");
	memset(p, 0x11, k.images_bytes);
	ok(again.at[SLOTS - 1].life == UINT32_MAX && again.at[0].key[0] == UINT64_MAX,
	   "nor the other way");
	is_int(opens(k.number), 0, "and the tables are what they were");
	memory_unmap_images(s, &o, p);
	memory_unmap_trailers(&t);
	memory_unmap_trailers(&t);
	memory_unmap_trailers(&again);
	ok(!t.at && !t.base, "unmapped, and once more is fine");
	memory_close(&o);
	end(&k);
}

static void test_none(void)
{
	struct memory k = make(GPC_RAM), o;
	struct memory_trailers t = { 0 };

	is_int((long long)k.trailers, 0, "who asks for none has none");
	is_int(memory_open(s, k.number, false, &o), 0, "the file opens");
	is_int(memory_map_trailers(s, &o, &t), -ENOENT, "and nothing is to be mapped: %s",
	       gpc_last_error());
	ok(!t.at, "it is not");
	memory_close(&o);
	end(&k);
}

/* A slot's trailer of many: the last one is in the file. */
static void test_many(void)
{
	struct memory k = draft(GPC_RAM), o;
	struct memory_trailers t = { 0 };

	k.slots = 3000;
	k.block_bytes = 64;
	k.nruns = 1;
	k.run[0] = (struct shm_run){ 0, 1, 64, 0, 64, 0 };
	k.images_bytes = 3000 * 64;
	k.trailers = 1;
	if (memory_make(s, &k, NULL) || memory_open(s, k.number, true, &o))
		bail("no memory: %s", gpc_last_error());
	ok(k.images >= k.trailers + 3000 * sizeof(struct shm_trailer),
	   "3000 of them are before the images");
	is_int(memory_map_trailers(s, &o, &t), 0, "and are mapped");
	if (t.at)
		memset(t.at, 1, 3000 * sizeof(*t.at));
	memory_unmap_trailers(&t);
	memory_close(&o);
	end(&k);
}

/* ---- forged ---- */

static void forge(uint64_t number, void (*change)(struct shm_memory *h), int opened, int mapped,
		  const char *what)
{
	struct shm_memory good, bad;
	struct shm_run run[2];
	struct memory_trailers t = { 0 };
	struct memory o;
	int err;

	scratch_patch(file_of(number), 0, NULL, &good, sizeof(good));
	scratch_patch(file_of(number), SHM_PAGE, NULL, run, sizeof(run));
	bad = good;
	change(&bad);
	bad.checksum = memory_sum(&bad, run);
	scratch_patch(file_of(number), 0, &bad, NULL, sizeof(bad));
	err = memory_open(s, number, false, &o);
	is_int(err, opened, "%s: %s", what, err ? gpc_last_error() : "opens");
	if (!err) {
		err = memory_map_trailers(s, &o, &t);
		is_int(err, mapped, "%s, to be mapped: %s", what, err ? gpc_last_error() : "it is");
		memory_unmap_trailers(&t);
		memory_close(&o);
	}
	scratch_patch(file_of(number), 0, &good, NULL, sizeof(good));
}

static void in_header(struct shm_memory *h)
{
	h->trailers = 64;
}
static void in_runs(struct shm_memory *h)
{
	h->trailers = SHM_PAGE;
}
static void at_odd(struct shm_memory *h)
{
	h->trailers += 32;
}
static void in_images(struct shm_memory *h)
{
	h->trailers = h->images;
}
static void across(struct shm_memory *h)
{
	h->trailers = h->images - SHM_PAGE;
	h->slots = SLOTS;
}
static void at_end(struct shm_memory *h)
{
	h->trailers = UINT64_MAX - 4095;
}
static void far(struct shm_memory *h)
{
	h->trailers = (uint64_t)1 << 46;
}
static void of_none(struct shm_memory *h)
{
	h->trailers = 0;
}

/* Without images of its own the file is VRAM's, or has huge pages elsewhere: these have no end
 * before images. */
static void elsewhere(struct shm_memory *h)
{
	h->images = 0;
	h->trailers = ((uint64_t)1 << 40) - SHM_PAGE;
}

static void of_vram(struct shm_memory *h)
{
	h->kind = GPC_VRAM;
}

static void test_forged(void)
{
	struct memory k = make_summed();

	forge(k.number, in_header, -EBADMSG, 0, "in the header");
	forge(k.number, in_runs, -EBADMSG, 0, "where the runs are");
	forge(k.number, at_odd, -EBADMSG, 0, "at no page");
	forge(k.number, in_images, -EBADMSG, 0, "where the images are");
	forge(k.number, across, -EBADMSG, 0, "a page before these, where no page is");
	forge(k.number, at_end, -EBADMSG, 0, "where the sum would be small");
	forge(k.number, far, -EBADMSG, 0, "beyond all bytes");
	forge(k.number, elsewhere, 0, -EBADMSG, "behind the end of the file");
	forge(k.number, of_vram, -EBADMSG, 0, "of VRAM");
	forge(k.number, of_none, 0, -ENOENT, "none");
	end(&k);
}

/* ---- cut ---- */

static void test_cut(void)
{
	struct memory k = make_summed(), o;
	struct memory_trailers t = { 0 };

	if (fallocate(k.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)k.trailers, 4096))
		bail("no hole can be made");
	is_int(opens(k.number), -EBADMSG, "a page that is missing: %s", gpc_last_error());
	if (fallocate(k.fd, 0, (off_t)(k.trailers + 8192), 4096))
		bail("no page for it");
	is_int(memory_open(s, k.number, false, &o), 0, "another page hides that");
	is_int(memory_map_trailers(s, &o, &t), -EBADMSG, "until they are to be mapped: %s",
	       gpc_last_error());
	ok(!t.at && !t.base, "nothing is mapped");
	memory_close(&o);
	if (fallocate(k.fd, 0, (off_t)k.trailers, 4096))
		bail("no page for it");
	is_int(memory_open(s, k.number, false, &o), 0, "whole again");
	if (ftruncate(k.fd, (off_t)k.trailers + 32))
		bail("it cannot be cut");
	is_int(memory_map_trailers(s, &o, &t), -EBADMSG, "cut when it was open: %s",
	       gpc_last_error());
	memory_close(&o);
	end(&k);
}

static int body(void)
{
	made_new(&m, "a", 64);
	test_place();
	test_none();
	test_many();
	test_forged();
	test_cut();
	return done_testing();
}

int main(void)
{
	scratch_make("033");
	return tap_guard(30, body, scratch_remove);
}
