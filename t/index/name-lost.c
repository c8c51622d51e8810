/* SPDX-License-Identifier: Apache-2.0 */
/* A program that serves its cache itself, or waits to: when the cache loses its name, or another one
 * has it, the log hears it once from each, and what is attached goes on.
 * Tests: lib/index/door/serve.c lib/index/peer/handle.h */
#include "config.h"

#include "t/lib/cache.h"

static int heard[3]; /* by writer, standby, and who only asks */
static char last[600];

static void hear(void *arg, int level, const char *text)
{
	if (!strstr(text, "lost its name"))
		return;
	snprintf(last, sizeof(last), "%d %s", level, text);
	__atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
}

static gpc *join(int who, uint32_t flags)
{
	struct gpc_attach_options opt = {
		.size = sizeof(opt), .dir = cache_dir, .log = hear, .log_arg = &heard[who]
	};
	gpc *c;

	must(gpc_attach(cache_name, &opt, flags, &c));
	return c;
}

static void until_heard(int who)
{
	while (!__atomic_load_n(&heard[who], __ATOMIC_SEQ_CST))
		usleep(10000);
}

static int body(void)
{
	struct gpc_config cfg = {
		.size = sizeof(cfg), .block_tokens = 16, .vram_blocks = 8, .dir = cache_dir
	};
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	gpc *maker, *c[3], *next;
	gpc_block b;
	int i;

	snprintf(cache_name, sizeof(cache_name), "lost");
	must(gpc_create(cache_name, &cfg, &opt, 0, &maker));
	c[0] = join(0, GPC_SERVE);
	c[1] = join(1, GPC_SERVE);
	c[2] = join(2, 0);
	usleep(1200000); /* more than one look */
	is_int(heard[0] + heard[1] + heard[2], 0, "nothing is said while the cache has its name");
	must(gpc_unlink(cache_name, cache_dir));
	must(gpc_create(cache_name, &cfg, &opt, 0, &next));
	until_heard(0);
	until_heard(1);
	ok(strncmp(last, "4 lost: the cache has lost its name", 35) == 0 &&
		   strstr(last, "RemoveIPC"),
	   "a warning that names the cause: %s", last);
	is_int(gpc_reserve(c[2], 0, 1, &b, NULL, 0, 60000), 1, "who is attached is served");
	usleep(2200000);
	is_int(heard[0], 1, "the writer has said it once");
	is_int(heard[1], 1, "and who waits for its seat");
	is_int(heard[2], 0, "and nobody else");
	for (i = 2; i >= 0; i--)
		gpc_close(c[i]);
	gpc_close(maker);
	gpc_close(next);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
