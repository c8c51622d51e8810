/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_pool_memory_get counts huge pages, which takes 5 ms a GiB, only for who has room for the count:
 * who maps the memory of a pool has not.
 * Tests: lib/bytes/mapping/lend.c */
#include "t/lib/bytes.h"

#include <stddef.h>

#include "index/base/base.h"
#include "bytes/mapping/make.h"

static uint32_t counted;

uint64_t __real_huge_bytes(const struct segment *s, const struct memory *m);
uint64_t __wrap_huge_bytes(const struct segment *s, const struct memory *m);
uint64_t __wrap_huge_bytes(const struct segment *s, const struct memory *m)
{
	counted++;
	return __real_huge_bytes(s, m);
}

static int body(void)
{
	gpc *c = bytes_cache();
	int pool = bytes_ram(c, 8, 0, 0);
	struct gpc_pool_memory m = { .size = sizeof(m) };
	uint64_t bytes;

	must(gpc_pool_memory_get(c, pool, &m, NULL, 0));
	is_int(counted, 1, "a whole record has the huge pages");
	bytes = m.bytes;
	memset(&m, 0xff, sizeof(m));
	m.size = offsetof(struct gpc_pool_memory, huge_bytes);
	must(gpc_pool_memory_get(c, pool, &m, NULL, 0));
	is_int(counted, 1, "one that ends before them asks nobody");
	ok(m.bytes == bytes && m.kind == GPC_RAM, "it has what comes before");
	ok(m.huge_bytes == UINT64_MAX, "and nothing is written behind it");
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(20, body, cache_dir_remove);
}
