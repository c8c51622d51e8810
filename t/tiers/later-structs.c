/* SPDX-License-Identifier: Apache-2.0 */
/* A struct of a caller of a later release: what this library does not know of it is refused unless
 * it is 0, and a size that no release has is refused without a look behind the struct.  Of each
 * struct that a caller fills. Tests: lib/index/base/err.h lib/index/base/err.c lib/index/door/attach.c lib/index/request/pool.c
 * lib/index/request/reserve.c lib/index/request/publish.c lib/index/request/rekey.c lib/bytes/payload/fetch.c
 * lib/bytes/payload/spill.c lib/index/reader/groups.c lib/tiers/steward/plan.c lib/bytes/memfile/draft.c
 * lib/bytes/mapping/make.c */
#include "config.h"

#include <sys/mman.h>
#include <unistd.h>
#include "t/lib/cache.h"

#define MORE 8 /* bytes of a later release */

static gpc *c;
static gpc_key key;
static gpc_block block;

static int create(void *s)
{
	gpc *no = NULL;

	return gpc_create("no/name", s, NULL, 0, &no);
}

static int attach(void *s)
{
	gpc *no = NULL;

	return gpc_attach("nobody", s, 0, &no);
}

static int pool_add(void *s)
{
	return gpc_pool_make(c, s, NULL, 0);
}

static int pool_make(void *s)
{
	struct gpc_memory m = { .size = sizeof(m) };

	return gpc_pool_make(c, s, &m, 0);
}

static int memory(void *s)
{
	struct gpc_pool p = pool_of(GPC_RAM, 4, 1);

	return gpc_pool_make(c, &p, s, 0);
}

static int ram_memory(void *s)
{
	struct gpc_config cfg = cache_config(0, 8);
	gpc *no = NULL;

	cfg.ram_memory = s; /* it has no block_bytes, so nothing is made */
	return gpc_create("no", &cfg, NULL, 0, &no);
}

static int reserve(void *s)
{
	return gpc_reserve(c, 0, 0, &block, s, 0, 0);
}

static int publish(void *s)
{
	return gpc_publish(c, NULL, &key, &block, 0, s, 0, 0);
}

static int rekey(void *s)
{
	return gpc_rekey(c, NULL, NULL, &key, &block, 0, s, 0, 0);
}

static int fetch(void *s)
{
	return gpc_fetch(c, 0, &key, 0, &block, s, 0, NULL, 0, NULL);
}

static int spill(void *s)
{
	return gpc_spill(c, 0, 1, NULL, 0, s, 0, NULL, 0, NULL);
}

static int group(void *s)
{
	return gpc_match_groups(c, 0, s, 1, NULL, 0);
}

static int match(void *s)
{
	struct gpc_group g = {
		.size = sizeof(g), .keys = &key, .blocks = &block, .block_tokens = 16
	};

	return gpc_match_groups(c, 0, &g, 1, s, 0);
}

static int tiers(void *s)
{
	gpc_tiers *no = NULL;

	return gpc_tiers_open("nobody", s, &no);
}

static const struct {
	const char *type;
	uint32_t size;
	int (*call)(void *s);
} structs[] = {
	{ "gpc_config", sizeof(struct gpc_config), create },
	{ "gpc_attach_options", sizeof(struct gpc_attach_options), attach },
	{ "gpc_pool", sizeof(struct gpc_pool), pool_add },
	{ "gpc_pool", sizeof(struct gpc_pool), pool_make },
	{ "gpc_memory", sizeof(struct gpc_memory), memory },
	{ "gpc_memory", sizeof(struct gpc_memory), ram_memory },
	{ "gpc_reserve_options", sizeof(struct gpc_reserve_options), reserve },
	{ "gpc_publish_options", sizeof(struct gpc_publish_options), publish },
	{ "gpc_publish_options", sizeof(struct gpc_publish_options), rekey },
	{ "gpc_fetch_options", sizeof(struct gpc_fetch_options), fetch },
	{ "gpc_spill_options", sizeof(struct gpc_spill_options), spill },
	{ "gpc_group", sizeof(struct gpc_group), group },
	{ "gpc_match_options", sizeof(struct gpc_match_options), match },
	{ "gpc_tiers_options", sizeof(struct gpc_tiers_options), tiers },
};

/* Is the size of that struct what is refused? */
static bool of_size(int got, const char *type)
{
	char words[64];

	snprintf(words, sizeof(words), "the field size of struct %s is", type);
	return got == -EINVAL && strstr(gpc_last_error(), words);
}

/* `end`: behind it a look is a signal. */
static void try_struct(uint32_t i, uint8_t *end)
{
	const char *type = structs[i].type;
	uint32_t size = structs[i].size;
	uint8_t *s = end - size - MORE;

	memset(s, 0, size + MORE);
	*(uint32_t *)s = size + MORE;
	ok(!of_size(structs[i].call(s), type), "%s, call %u: longer, and asks for nothing new: %s",
	   type, i, gpc_last_error());
	memset(s, 0, size + MORE);
	*(uint32_t *)s = size + MORE;
	end[-1] = 1;
	ok(of_size(structs[i].call(s), type) && strstr(gpc_last_error(), "is not 0"),
	   "%s, call %u: longer, and asks for something: %s", type, i, gpc_last_error());
	s = end - size;
	memset(s, 0, size);
	*(uint32_t *)s = 100000;
	ok(of_size(structs[i].call(s), type) && strstr(gpc_last_error(), "is 100000"),
	   "%s, call %u: a size that none has: %s", type, i, gpc_last_error());
}

static int body(void)
{
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = 64 };
	struct gpc_config cfg = cache_config(0, 8);
	struct gpc_pool second = pool_of(GPC_RAM, 8, 1);
	uint32_t i, page = (uint32_t)sysconf(_SC_PAGESIZE);
	uint8_t *at =
		mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED || mprotect(at + 2 * page, page, PROT_NONE))
		bail("no pages");
	cfg.max_blocks = 512;
	cfg.ram_memory = &m;
	c = cache_make(&cfg, NULL);
	serve_begin(c);
	cache_must(gpc_pool_make(c, &second, &m, -1), "a second pool", __FILE__, __LINE__);
	serve_end();
	key = key_of(c, 1);
	for (i = 0; i < sizeof(structs) / sizeof(structs[0]); i++)
		try_struct(i, at + 2 * page);
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
