/* SPDX-License-Identifier: Apache-2.0 */
/* A value that was dropped, and removed in a store, comes back there: by a put that was given up,
 * which no fence of that store can end, or as the store has lost the removal.  Nobody here reads it,
 * and it is removed again; by the next steward, too.
 * Tests: lib/tiers/steward/remote.c lib/tiers/steward/feed.c lib/tiers/remote/batch.c */
#include "t/lib/node.h"

#include <dirent.h>

#define WAIT_MS 100000
#define N       4u

static uint32_t unfenced;

uint32_t __real_remote_remove(struct remote *r, uint32_t lane, const gpc_key *keys, uint32_t n,
			      int32_t *results, uint64_t deadline_ns);
uint32_t __wrap_remote_remove(struct remote *r, uint32_t lane, const gpc_key *keys, uint32_t n,
			      int32_t *results, uint64_t deadline_ns);

/* As of a store without fences, a put of which was given up a moment ago. */
uint32_t __wrap_remote_remove(struct remote *r, uint32_t lane, const gpc_key *keys, uint32_t n,
			      int32_t *results, uint64_t deadline_ns)
{
	uint32_t gone = __real_remote_remove(r, lane, keys, n, results, deadline_ns), i;

	for (i = 0; i < n; i++)
		if (load_relaxed(&unfenced) && !results[i])
			results[i] = -EOPNOTSUPP;
	return gone;
}

static gpc_tiers *keep(void)
{
	struct gpc_tiers_options o = node_options(256, 16, 500);

	return node_keep(&o);
}

/* A chain, with its copies in the store where that takes them. */
static void fill(gpc *c, uint64_t first)
{
	gpc_block b[N];

	bytes_chain(c, ram, first, N, b, false);
	must(gpc_tiers_sync(c, WAIT_MS));
}

static int files(const char *folder)
{
	DIR *dir = opendir(folder);
	struct dirent *e;
	int n = 0;

	while ((e = readdir(dir)))
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}

static void until_files(int n, const char *what)
{
	while (files(store) != n)
		usleep(5000);
	ok(true, "%s", what);
}

static void copy_files(const char *from, const char *to)
{
	char command[1024];

	snprintf(command, sizeof(command), "mkdir -p '%s' && cp '%s'/gpc1* '%s'", to, from, to);
	if (system(command))
		bail("%s", command);
}

static int comes(gpc *c, uint64_t first)
{
	gpc_key k[N + 1];

	chain_keys(c, first, N, k);
	return must(gpc_prefetch(c, vram, k + 1, N, 0, 60000));
}

static void drop_first(gpc *c, uint64_t n)
{
	gpc_block b = find(c, n);

	is_int(gpc_drop(c, &b, 1, NULL, 0, WAIT_MS), 1, "the first block is dropped");
}

/* The store has forgotten that it had removed it. */
static void forgets(void)
{
	gpc *c = node(16);
	char aside[300];
	gpc_tiers *t;

	new_store("");
	snprintf(aside, sizeof(aside), "%s-aside", store);
	t = keep();
	fill(c, 1);
	copy_files(store, aside);
	drop_first(c, 1);
	until_files(0, "all of the chain is removed");
	copy_files(aside, store);
	is_int(comes(c, 1), 0, "it is back: it does not come");
	until_files(N - 1, "the one that was met is removed again");
	is_int(comes(c, 1), 0, "nor does it come now");
	fill(c, 1);
	until_files(N, "computed anew it is stored anew");
	must(gpc_pool_clear(c, ram, 0, 0, 60000));
	is_int(comes(c, 1), N, "and comes");
	node_end(c, t, "a store that forgets");
}

static void late(void)
{
	gpc *c = node(16);
	char aside[300];
	gpc_tiers *t;

	new_store("");
	snprintf(aside, sizeof(aside), "%s-aside", store);
	t = keep();
	fill(c, 1);
	copy_files(store, aside);
	store_relaxed(&unfenced, 1);
	drop_first(c, 1);
	until_files(0, "a store without fences: all of the chain is removed");
	fill(c, 1);
	is_int(files(store), 0, "computed anew it is not stored now");
	copy_files(aside, store);
	is_int(comes(c, 1), N, "what RAM has it has");
	until_files(0, "a late put comes, and is removed again, though nobody has met it");
	must(gpc_tiers_close(t));
	copy_files(aside, store);
	t = keep();
	until_files(0, "so it is by the next steward");
	must(gpc_pool_clear(c, ram, 0, 0, 60000));
	fill(c, 1);
	is_int(files(store), 0, "who does not store it either");
	store_relaxed(&unfenced, 0);
	while (files(store) != (int)N) {
		must(gpc_pool_clear(c, ram, 0, 0, 60000));
		fill(c, 1);
		usleep(20000);
	}
	must(gpc_pool_clear(c, ram, 0, 0, 60000));
	ok(true, "when it is sure that no put comes late it is stored again");
	is_int(comes(c, 1), N, "and comes");
	node_end(c, t, "late puts");
}

static int body(void)
{
	if (!remote_plugin("folder", plugin, sizeof(plugin)))
		bail("the plugin of folders is not built");
	forgets();
	late();
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
