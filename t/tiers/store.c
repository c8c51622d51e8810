/* SPDX-License-Identifier: Apache-2.0 */
/* A store on other machines as a tier: what one node computed another one loads, as long as both
 * have the same secret, layout and version tag; what the store loses, or spoils, is a miss.
 * Tests: lib/tiers/steward/remote.c lib/tiers/steward/learn.c lib/tiers/steward/above.c lib/tiers/steward/plan.c
 *   lib/bytes/payload/ask.c */
#include "t/lib/node.h"

#define WAIT_MS 100000

static void fill(gpc *c, uint64_t first, uint32_t n, uint32_t step)
{
	gpc_block b[CACHE_KEYS];
	uint32_t i;

	for (i = 0; i < n; i += step) {
		bytes_chain(c, ram, first + i, step, b, false);
		must(gpc_tiers_sync(c, WAIT_MS));
	}
}

static int hints_of(gpc *c, const gpc_key *keys, uint32_t n)
{
	struct gpc_pool p = { .size = sizeof(p) };
	gpc_block b[64];
	int found = 0;
	uint32_t i;

	must(gpc_pool_get(c, node_tier(c).pool, &p));
	for (i = 0; i < n; i++)
		found += must(gpc_lookup(c, GPC_SPACE(p.space), keys + i, 1, b, GPC_QUIET));
	return found;
}

/* How many of these have a hint. */
static int hints(gpc *c, uint64_t first, uint32_t n)
{
	struct gpc_pool p = { .size = sizeof(p) };
	gpc_block b[64];
	gpc_key k[65];

	must(gpc_pool_get(c, node_tier(c).pool, &p));
	chain_keys(c, first, n, k);
	return must(gpc_lookup(c, GPC_SPACE(p.space), k + 1, n, b, GPC_QUIET));
}

static void computes(void)
{
	gpc *c = node(16);
	struct gpc_tiers_options o = node_options(1024, 8, 5000);
	gpc_tiers *t = node_keep(&o);
	struct gpc_tier s;

	fill(c, 1, 40, 8);
	s = node_tier(c);
	is_int(s.kind, GPC_REMOTE, "the tier is a store on other machines");
	ok(s.written >= 24, "node A has stored at least 24 of its 40 blocks: %d", (int)s.written);
	ok(hints(c, 1, 40) >= 24, "and knows it, in the index");
	is_int((int)(s.failed + s.errors), 0, "nothing failed");
	node_end(c, t, "node A");
}

static void loads(void)
{
	gpc *c = node(32);
	struct gpc_tiers_options o = node_options(1024, 8, 5000);
	gpc_tiers *t = node_keep(&o);
	gpc_block b[40];
	gpc_key k[41];
	gpc_transfer tr = 0;
	struct gpc_tier s;

	chain_keys(c, 1, 16, k);
	is_int(gpc_lookup(c, 0, k + 1, 16, b, 0), 0, "node B has none of them");
	is_int(hints(c, 1, 16), 0, "and knows of none");
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 10000), 8, "it asks for eight, and has them");
	is_int(gpc_acquire(c, 0, k + 1, 8, b, 0), 8, "in RAM");
	is_int(fetch_right(c, b, 8, 1), 8, "every byte is that of node A");
	must(gpc_release(c, b, 8));
	is_int(gpc_fetch(c, vram, k + 1, 16, b, NULL, GPC_VERIFY_FIRST, NULL, 10000, &tr), 16,
	       "a fetch asks for the others by itself");
	is_int(gpc_transfer_wait(c, tr, 5000), 0, "with sums that are right");
	is_int(fetch_right(c, b, 16, 1), 16, "every byte");
	must(gpc_release(c, b, 16));
	ok(hints(c, 1, 16) >= 16, "it knows of them now");
	s = node_tier(c);
	is_int((int)(s.bad + s.errors + s.failed), 0, "nothing went wrong");
	is_int(s.brought, 16, "sixteen were brought");
	chain_keys(c, 900, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 5000), 0, "what no node has is a miss");
	node_end(c, t, "node B");
}

static void others_do_not(void)
{
	struct gpc_tiers_options o = node_options(1024, 8, 5000);
	gpc_key k[9];
	gpc_tiers *t;
	gpc *c = node(32);

	o.remote_tag = "v2";
	t = node_keep(&o);
	chain_keys(c, 1, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 5000), 0,
	       "another version tag is a clear for all");
	node_end(c, t, "another tag");
	secret[0] ^= 1;
	c = node(32);
	o.remote_tag = NULL;
	t = node_keep(&o);
	chain_keys(c, 1, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 5000), 0,
	       "under another secret keys mean nothing");
	must(gpc_tiers_close(t));
	secret[0] ^= 1;
	o.secret = secret;
	is_int(gpc_tiers_open(cache_name, &o, &t), -EPROTO,
	       "and a cache that has one is refused under that of the others");
	ok(strstr(gpc_last_error(), "no other node would find"), "which says: %s",
	   gpc_last_error());
	fetch_end(c, "another secret");
}

/* What the store has lost since is a miss, and its hint goes. */
static void forgets(void)
{
	gpc *c = node(32);
	struct gpc_tiers_options o = node_options(1024, 8, 5000);
	gpc_tiers *t = node_keep(&o);
	char command[400];
	gpc_key k[9];
	gpc_block b[8];
	gpc_pool_clear(c, -1, 0, 0, 1000);
	chain_keys(c, 1, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 5000), 8, "eight are there");
	must(gpc_pool_clear(c, ram, 0, 0, 5000));
	snprintf(command, sizeof(command), "rm -f %s/gpc1*", store);
	is_int(system(command), 0, "the store loses all");
	is_int(hints(c, 1, 8), 8, "of which hints know nothing");
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 5000), 0, "so they are misses");
	is_int(gpc_lookup(c, 0, k + 1, 8, b, 0), 0, "nothing came");
	ok(hints(c, 1, 8) < 8, "and hints go");
	ok(node_tier(c).absent > 0, "which is counted");
	node_end(c, t, "a store that forgets");
}

/* What others hang on has been lost, and is computed again: it is stored with the next of them,
 * though it is in use. */
static void mends(void)
{
	gpc *c = node(16);
	struct gpc_tiers_options o = node_options(1024, 8, 5000);
	gpc_tiers *t = node_keep(&o);
	char command[400];
	gpc_key k[CACHE_KEYS + 1];
	gpc_block b[16];

	fill(c, 201, 8, 8);
	fill(c, 301, 8, 8);
	is_int(hints(c, 201, 8), 8, "eight are stored");
	must(gpc_pool_clear(c, ram, 0, 0, 5000));
	snprintf(command, sizeof(command), "rm -f %s/gpc1*", store);
	is_int(system(command), 0, "the store loses all");
	chain_keys(c, 201, 16, k);
	is_int(gpc_prefetch(c, vram, k + 1, 1, 0, 5000), 0, "the first one is missed");
	bytes_chain(c, ram, 201, 16, b, false);
	is_int(gpc_acquire(c, 0, k + 1, 8, b, 0), 8, "it is computed again, and used");
	must(gpc_release(c, b, 8));
	must(gpc_tiers_sync(c, WAIT_MS));
	is_int(hints(c, 201, 16), 16, "more is stored");
	must(gpc_pool_clear(c, ram, 0, 0, 5000));
	is_int(gpc_prefetch(c, vram, k + 1, 1, 0, 5000), 1, "and the first one with it");
	node_end(c, t, "a store that is mended");
}

/* A store has what follows a block that this node does not know: a drop of another one says nothing
 * of that. */
static void gaps_stay(void)
{
	gpc *c = node(16);
	struct gpc_tiers_options o = node_options(1024, 8, 5000);
	gpc_tiers *t = node_keep(&o);
	gpc_block b[8];
	gpc_key k[9];
	uint32_t i;

	bytes_chain(c, vram, 401, 1, b, false);
	chain_keys(c, 401, 8, k);
	must(gpc_reserve(c, ram, 7, b, NULL, 0, 60000));
	for (i = 0; i < 7; i++)
		bytes_write(c, b[i], 402 + i, BYTES_IMAGE);
	must(gpc_publish(c, k + 1, k + 2, b, 7, NULL, 0, -1));
	must(gpc_release(c, b, 7));
	fill(c, 501, 8, 8);
	is_int(hints(c, 401, 8), 7, "what follows a block in VRAM is stored");
	must(gpc_pool_clear(c, ram, 0, 0, 5000));
	must(gpc_pool_clear(c, vram, 0, 0, 5000));
	is_int(hints(c, 401, 8), 7, "and known when that block has gone");
	bytes_chain(c, ram, 601, 1, b, false);
	is_int(gpc_drop(c, b, 1, NULL, 0, 5000), 1, "another block is dropped");
	is_int(hints(c, 401, 8), 7, "that says nothing of these");
	node_end(c, t, "gaps in a store");
}

static int values(void)
{
	char command[512];
	int n = -1;
	FILE *f;

	snprintf(command, sizeof(command), "find '%s' -type f | wc -l", store);
	f = popen(command, "r");
	if (!f || fscanf(f, "%d", &n) != 1)
		bail("%s", command);
	pclose(f);
	return n;
}

/* Of a file and a store with the same blocks behind a gap the file loses them, and other nodes find
 * them in the store. */
static void gaps_stay_there(void)
{
	gpc *c = node(16);
	struct gpc_tiers_options o = node_options(1024, 16, 5000);
	char disk[300];
	gpc_tiers *t;
	gpc_block b[8];
	gpc_key k[9];
	uint32_t i;

	snprintf(disk, sizeof(disk), "%s/gaps.disk", remote_dir);
	o.disk = disk;
	o.disk_blocks = 64;
	o.flags = GPC_TIERS_BUFFERED;
	t = node_keep(&o);
	bytes_chain(c, vram, 401, 1, b, false);
	chain_keys(c, 401, 8, k);
	must(gpc_reserve(c, ram, 7, b, NULL, 0, 60000));
	for (i = 0; i < 7; i++)
		bytes_write(c, b[i], 402 + i, BYTES_IMAGE);
	must(gpc_publish(c, k + 1, k + 2, b, 7, NULL, 0, -1));
	must(gpc_release(c, b, 7));
	/* the file may be behind the store: its writes are over when a call returns */
	i = 0;
	do
		must(gpc_tiers_sync(c, WAIT_MS));
	while (values() < 7 && ++i < 1000);
	is_int(values(), 7, "a file and a store have what follows a block in VRAM");
	must(gpc_pool_clear(c, ram, 0, 0, 5000));
	must(gpc_pool_clear(c, vram, 0, 0, 5000));
	bytes_chain(c, vram, 601, 1, b, false); /* of RAM it could be below already */
	is_int(gpc_drop(c, b, 1, NULL, 0, 5000), 1, "that has gone, and another block is dropped");
	is_int((int)node_tier(c).forgotten, 7, "the file has lost them");
	usleep(1200000); /* a tick of the store's thread, and some */
	is_int(values(), 7, "and the store has them");
	node_end(c, t, "gaps in a file and a store");
}

/* Fewer hints than RAM has blocks: with all that they hang on, blocks would push one another's
 * hints out for ever. */
static void few_hints(void)
{
	gpc *c = node(64);
	struct gpc_tiers_options o = node_options(1024, 8, 5000);
	gpc_tiers *t;
	gpc_block b[20];
	uint32_t i;

	for (i = 0; i < 3; i++)
		bytes_chain(c, ram, 401 + 20 * i, 20, b, false);
	o.ahead = 48;
	o.remote_blocks = 16;
	t = node_keep(&o);
	is_int(gpc_tiers_sync(c, 3000), 0, "with few hints writes come to an end");
	is_int((int)node_tier(c).written, 8, "behind those that go next");
	node_end(c, t, "few hints");
}

/* A clear is this node's.  A drop of the hint removes the value for all. */
static void removes(void)
{
	struct gpc_pool p = { .size = sizeof(p) };
	gpc *c = node(16);
	struct gpc_tiers_options o = node_options(1024, 8, 5000);
	gpc_tiers *t = node_keep(&o);
	gpc_key k[41], longer[61];
	gpc_block b[8];
	int i;

	fill(c, 1, 40, 8);
	must(gpc_pool_get(c, node_tier(c).pool, &p));
	chain_keys(c, 1, 8, k);
	must(gpc_pool_clear(c, -1, 0, 0, 5000));
	is_int(hints(c, 1, 40), 0, "after a clear nothing is known");
	chain_keys(c, 1, 60, longer);
	ok(gpc_prefetch(c, vram, longer + 1, 60, 0, 5000) >= 8,
	   "a prompt of 60 of which the store has 40");
	is_int(hints_of(c, longer + 41, 20), 0, "leaves hints of what is there alone");
	must(gpc_pool_clear(c, -1, 0, 0, 5000));
	is_int(gpc_prefetch(c, vram, k + 1, 4, 0, 5000), 4,
	       "the store has it still, as other nodes use it");
	is_int(gpc_lookup(c, GPC_SPACE(p.space), k + 1, 1, b, 0), 1, "the first block's hint");
	must(gpc_drop(c, b, 1, NULL, 0, 5000));
	for (i = 0; i < 300; i++) {
		must(gpc_pool_clear(c, -1, 0, 0, 5000));
		if (gpc_prefetch(c, vram, k + 1, 1, 0, 5000) == 0)
			break;
		usleep(20000);
	}
	ok(i < 300, "dropped, it is removed in the store");
	node_end(c, t, "removals");
}

/* A store that is late costs a peer one deadline, and then nothing; the index works on. */
static void is_dead(void)
{
	gpc *c = node(16);
	struct gpc_tiers_options o = node_options(1024, 8, 500);
	gpc_tiers *t;
	gpc_key k[9];
	uint64_t began;
	int i;

	new_store(",slow=60000");
	t = node_keep(&o);
	chain_keys(c, 1, 8, k);
	began = clock_ns();
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 10000), 0,
	       "a store that does not answer has nothing");
	ok(is_soon(began, 5000), "which a peer knows after the store's deadline");
	for (i = 0; i < 300 && gpc_prefetch(c, vram, k + 1, 8, 0, 10000) == 0; i++) {
		began = clock_ns();
		gpc_prefetch(c, vram, k + 1, 8, 0, 10000);
		if (is_soon(began, 20))
			break;
	}
	ok(i < 300, "and later at once: a miss of %d us", (int)((clock_ns() - began) / 1000));
	fill(c, 1, 40, 8);
	ok(true, "writes hold nothing up");
	node_end(c, t, "a dead store");
}

static void not_opened(struct gpc_tiers_options o, int err, const char *sentence)
{
	gpc_tiers *t = NULL;

	is_int(gpc_tiers_open(cache_name, &o, &t), err, "refused: %s", sentence);
	if (!ok(strstr(gpc_last_error(), sentence) != NULL, "which is said"))
		diag("it says: %s", gpc_last_error());
}

static void arguments(void)
{
	gpc *c = node(16);
	struct gpc_tiers_options o = node_options(1024, 8, 5000);

	new_store("");
	o.remote = "nothing";
	not_opened(o, -ENOENT, "there is no plugin nothing");
	o.remote = spec;
	o.remote_tag = "a:b";
	not_opened(o, -EINVAL, "the version tag is 'a:b': it must be 1 to 32 bytes");
	o.remote_tag = NULL;
	o.remote_ms = 600001;
	not_opened(o, -EINVAL, "remote_ms is 600001");
	o.remote_ms = 0;
	o.flags = GPC_TIERS_EXCLUSIVE;
	not_opened(o, -EINVAL, "GPC_TIERS_EXCLUSIVE is about the disk");
	o.flags = 0;
	o.remote = NULL;
	not_opened(o, -EINVAL, "disk and remote are NULL");
	fetch_end(c, "refused");
}

static int body(void)
{
	if (!remote_plugin("folder", plugin, sizeof(plugin)))
		bail("the plugin of folders is not built");
	new_store("");
	computes();
	loads();
	others_do_not();
	forgets();
	mends();
	gaps_stay();
	new_store("");
	gaps_stay_there();
	new_store("");
	few_hints();
	new_store("");
	removes();
	is_dead();
	arguments();
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
	return tap_guard(100, body, clean_all);
}
