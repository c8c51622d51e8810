/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong between two steps of a maker: a part that cannot be told to others is not kept
 * either, and a pool that goes before its maker has the call's answer takes none of the maker's
 * other files along.
 * Tests: lib/bytes/mapping/lend.c lib/bytes/mapping/make.c */
#include "t/lib/memory_files.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "index/base/err.h"
#include "bytes/mapping/map.h"
#include "index/segment/lockfile.h"

enum { PIECE = 4096, BLOCKS = 4, PART = PIECE * BLOCKS };

static bool store_fails;
static bool removes;      /* the pool, as soon as its maker has it */
static int stranger = -1; /* descriptor of a file that has nothing to do with it */

int __real_memory_store_part(const struct memory *m, uint32_t i, const struct shm_part *part);
int __wrap_memory_store_part(const struct memory *m, uint32_t i, const struct shm_part *part);
int __wrap_memory_store_part(const struct memory *m, uint32_t i, const struct shm_part *part)
{
	return store_fails ? err_set(ENOMEM, "no room for another mapping")
			   : __real_memory_store_part(m, i, part);
}

/* Another thread of the maker sweeps, and the number of what it closed is the next file's. */
static void stranger_comes(gpc *c)
{
	char path[128];

	map_sweep(c);
	snprintf(path, sizeof(path), "%s/stranger", cache_dir);
	stranger = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (stranger < 0 || lock_try(stranger, MEMORY_LOCK_MADE) < 0)
		bail("no file with a lock");
}

int __real_map_adopt(gpc *c, uint32_t pool, const struct memory *m, uint32_t nparts,
		     const struct map_part *part);
int __wrap_map_adopt(gpc *c, uint32_t pool, const struct memory *m, uint32_t nparts,
		     const struct map_part *part);
int __wrap_map_adopt(gpc *c, uint32_t pool, const struct memory *m, uint32_t nparts,
		     const struct map_part *part)
{
	int err = __real_map_adopt(c, pool, m, nparts, part);

	if (err == 0 && removes) {
		must(gpc_pool_clear(c, (int)pool, 0, GPC_REMOVE, -1));
		stranger_comes(c);
	}
	return err;
}

static gpc *new_cache(void)
{
	struct gpc_config cfg = cache_config(0, 0);

	cfg.max_blocks = 64;
	cfg.max_pools = 4;
	return cache_make(&cfg, NULL);
}

static uint8_t *shared(void)
{
	char path[128];
	void *p;
	int fd;

	snprintf(path, sizeof(path), "%s/engine", cache_dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, PART))
		bail("no file");
	p = mmap(NULL, PART, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		bail("no shared memory");
	return p;
}

static void test_store_fails(void)
{
	struct gpc_run run = { .count = 1, .bytes = PIECE, .slot_stride = PIECE };
	struct gpc_memory m = { .size = sizeof(m), .nruns = 1, .runs = &run, .parts = 1 };
	struct gpc_pool p = pool_with(GPC_VRAM, BLOCKS, 0);
	gpc *c = new_cache();
	int pool = must(gpc_pool_make(c, &p, &m, -1));
	uint8_t *base = shared();
	uint64_t bytes;
	void *at;

	store_fails = true;
	refused(gpc_pool_lend(c, pool, 0, base, PART), ENOMEM, "others cannot be told of the part");
	store_fails = false;
	is_int(memory_get(c, pool).parts_lent, 0, "so it is not lent");
	refused(gpc_pool_map(c, pool, 0, &at, &bytes), EAGAIN, "to its owner neither");
	is_int(gpc_pool_lend(c, pool, 0, base, PART), 0, "and can be lent once more");
	is_int(memory_get(c, pool).parts_lent, 1, "now it is there");
	is_int(gpc_pool_map(c, pool, 0, &at, &bytes), 0, "for all");
	ok(at == base, "where it is");
	cache_end(c);
	munmap(base, PART);
}

static void test_swept(void)
{
	struct gpc_pool p = pool_with(GPC_VRAM, BLOCKS, 0);
	struct gpc_memory m = memory_of(PIECE);
	gpc *c = new_cache();
	char path[128];
	int other;

	removes = true;
	is_int(gpc_pool_make(c, &p, &m, -1), 0, "a pool that is removed before its maker returns");
	removes = false;
	snprintf(path, sizeof(path), "%s/stranger", cache_dir);
	other = open(path, O_RDWR | O_CLOEXEC);
	is_int(lock_test(other, MEMORY_LOCK_MADE), 1, "no lock of another file is dropped");
	close(other);
	close(stranger);
	ok(memory_files_come_to(c, 0), "and nothing is left of the pool");
	is_int(gpc_pool_make(c, &p, &m, -1), 0, "another one is made");
	cache_end(c);
}

static int body(void)
{
	cache_both(test_store_fails);
	cache_both(test_swept);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
