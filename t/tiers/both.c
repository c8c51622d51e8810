/* SPDX-License-Identifier: Apache-2.0 */
/* A steward of a file and of a store: memory that is missing at its start, a pool of it that another
 * one takes the number of, and what it says at its end.
 * Tests: lib/tiers/steward/open.c lib/tiers/steward/images.c lib/tiers/steward/drops.c */
#include "t/lib/below.h"
#include "t/lib/node.h"

/* ---- memory that cannot be had ---- */

static uint32_t fails; /* the n-th large one from now on */

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);

void *__wrap_malloc(size_t n)
{
	if (n >= 16 << 10 && __atomic_load_n(&fails, __ATOMIC_SEQ_CST) &&
	    !__atomic_sub_fetch(&fails, 1, __ATOMIC_SEQ_CST))
		return NULL;
	return __real_malloc(n);
}

static gpc *begin(struct gpc_tiers_options *o)
{
	gpc *c = node(16);

	new_store("");
	tiers_file();
	*o = node_options(1024, 8, 2000);
	o->disk = tiers_path;
	o->disk_blocks = 64;
	return c;
}

static void finish(gpc *c, gpc_tiers *t, const char *when)
{
	node_end(c, t, when);
	unlink(tiers_path);
}

/* Refused with a sentence, or it works: no thread of it is missing. */
static const char *open_without(gpc *c, const struct gpc_tiers_options *o, uint32_t nth)
{
	static char text[512];
	gpc_tiers *t = NULL;
	int err, sync = 0;

	__atomic_store_n(&fails, nth, __ATOMIC_SEQ_CST);
	err = gpc_tiers_open(cache_name, o, &t);
	snprintf(text, sizeof(text), "%s", err ? gpc_last_error() : "");
	if (!err) {
		sync = gpc_tiers_sync(c, 3000);
		must(gpc_tiers_close(t));
	}
	__atomic_store_n(&fails, 0, __ATOMIC_SEQ_CST);
	ok(err ? err == -ENOMEM && access(tiers_path, F_OK) : !sync, "without allocation %u: %s",
	   nth,
	   err    ? text
	   : sync ? "a thread is missing"
		  : "it works");
	unlink(tiers_path);
	return text;
}

/* As text, cut to fit: who scribbles on it makes no more of it. */
static void test_what(gpc *c, const struct gpc_tiers_options *o)
{
	struct gpc_tier t = { .size = sizeof(t) };

	must(gpc_tier_get(c, 0, &t));
	is_str(t.what, o->disk, "the first tier tells its file");
	must(gpc_tier_get(c, 1, &t));
	ok(!strncmp(t.what, o->remote, sizeof(t.what) - 1), "the second one its store");
	memset(seg_board(&c->seg)->what[0], 'x', sizeof(seg_board(&c->seg)->what[0]));
	must(gpc_tier_get(c, 0, &t));
	is_int((int)strlen(t.what), (int)sizeof(t.what) - 1, "a text without an end has one");
}

/* Of five chains of 8, a busy machine may bring some to the other tier alone. */
static void is_down(gpc *c, int tier, const char *what)
{
	struct gpc_tier t = { .size = sizeof(t) };

	must(gpc_tier_get(c, tier, &t));
	ok(t.written >= 8 && !t.errors, "with memory blocks go down to %s: %llu", what,
	   (unsigned long long)t.written);
}

static void test_memory(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	bool tier = false, remote = false;
	const char *text;
	gpc_tiers *t;
	gpc_block b[8];
	uint32_t i;

	bytes_chain(c, ram, 901, 8, b, false);
	for (i = 1; i <= 6; i++) {
		text = open_without(c, &o, i);
		tier |= strstr(text, "no memory for a batch of blocks on its way to the disk") !=
			NULL;
		remote |= strstr(text, "no memory for a batch of blocks on its way to the store") !=
			  NULL;
	}
	ok(tier && remote, "both threads that write had something to be refused for");
	t = node_keep(&o);
	test_what(c, &o);
	must(gpc_tiers_sync(c, TIERS_MS));
	tiers_fill(c, ram, 1, 40, 8);
	is_down(c, 0, "the file");
	is_down(c, 1, "the store");
	ok(tiers_below(c, 1, 40) >= 8, "and are in the file's pool");
	finish(c, t, "memory");
}

/* ---- a pool of RAM has the number of a tier's ---- */

/* What happens there is no business of the tier that had the number: what is dropped is bad in the
 * store as well. */
static void test_number(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = node_keep(&o);
	int number = tier_of(c).pool;
	gpc_block b[8];
	gpc_key k[9];

	tiers_fill(c, ram, 1, 24, 8);
	must(gpc_pool_clear(c, number, 0, GPC_REMOVE, 5000));
	is_int(bytes_ram(c, 16, 0, GPC_POOL_UNCHAINED), number,
	       "a pool of RAM takes the number of a file's pool, which was removed");
	tiers_fill(c, number, 101, 24, 8);
	chain_keys(c, 101, 8, k);
	must(gpc_pool_clear(c, number, 0, 0, 5000));
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 5000), 8,
	       "its blocks have gone to the store, and come from there");
	must(gpc_pool_clear(c, ram, 0, 0, 5000));
	bytes_chain(c, number, 101, 1, b, false);
	is_int(gpc_drop(c, b, 1, NULL, 0, 5000), 1,
	       "the first of them is computed again, and dropped");
	is_int(gpc_prefetch(c, vram, k + 1, 1, 0, 5000), 0, "it does not come back from the store");
	chain_keys(c, 201, 2, k);
	must(gpc_reserve(c, number, 1, b, NULL, 0, 60000));
	must(gpc_publish(c, k + 1, k + 2, b, 1, NULL, 0, -1));
	must(gpc_release(c, b, 1));
	bytes_chain(c, ram, 301, 1, b, false);
	is_int(gpc_drop(c, b, 1, NULL, 0, 5000), 1, "another block is dropped");
	ok(find(c, 202) >= 0, "which says nothing of one that is there without its parent");
	finish(c, t, "a number");
}

/* ---- the numbers of the next steward ---- */

static struct shm_board *watched; /* NULL: nobody looks */
static uint32_t up_with_lock;     /* tiers that are up still when the lock goes */

void __real_lock_drop(int fd, uint64_t byte);
void __wrap_lock_drop(int fd, uint64_t byte);

/* Another steward has the lock at once, and both of its tiers are up. */
void __wrap_lock_drop(int fd, uint64_t byte)
{
	uint32_t i;

	for (i = 0; watched && byte == LOCK_TIERS && i < SHM_TIERS; i++)
		up_with_lock += load_relaxed(&watched->tier[i].state) == GPC_TIER_UP;
	__real_lock_drop(fd, byte);
	for (i = 0; watched && byte == LOCK_TIERS && i < SHM_TIERS; i++)
		store_relaxed(&watched->tier[i].state, GPC_TIER_UP);
}

static void test_end(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = node_keep(&o);
	uint32_t i;

	must(gpc_tiers_sync(c, TIERS_MS));
	watched = seg_board(&c->seg);
	must(gpc_tiers_close(t));
	is_int((int)up_with_lock, 0, "a tier is down before its steward gives the lock back");
	for (i = 0; i < SHM_TIERS; i++)
		is_int((int)load_relaxed(&watched->tier[i].state), GPC_TIER_UP,
		       "what the next one says of tier %u stays", i);
	watched = NULL;
	unlink(tiers_path);
	fetch_end(c, "the end");
}

static int body(void)
{
	if (!remote_plugin("folder", plugin, sizeof(plugin)))
		bail("the plugin of folders is not built");
	test_memory();
	test_number();
	test_end();
	return done_testing();
}

static void clean_all(void)
{
	cache_dir_remove();
	remote_dir_remove();
}

int main(void)
{
	remote_dir_make();
	cache_dir_make();
	return tap_guard(60, body, clean_all);
}
