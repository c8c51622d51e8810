/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks: transfers that other peers copy, here and in another process; what the calls refuse, each
 * with its sentence.
 * Tests: lib/bytes/payload/mark.c lib/bytes/payload/results.c lib/index/writer/transfer.c */
#include <sys/wait.h>

#include "t/lib/fetch.h"

enum { RAM = 0, VRAM = 1 };

static gpc *tiers(uint32_t vram, uint32_t ram)
{
	gpc *c = bytes_cache();

	is_int(bytes_ram(c, ram, 0, 0), RAM, "RAM");
	is_int(bytes_vram(c, vram, 0, RAM, 0), VRAM, "VRAM above it");
	return c;
}

static void copy_here(gpc *c, const struct gpc_move *m, uint32_t n, uint64_t first)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		bytes_write(c, m[i].to, first + i, BYTES_IMAGE);
}

static void test_ranks(void)
{
	gpc *c = tiers(16, 16), *d = cache_attach(0, 0);
	int32_t ranks[2] = { info_of(c).peer, info_of(d).peer };
	struct gpc_move m[8];
	uint32_t nm = 99;
	struct gpc_fetch_options o = {
		.size = sizeof(o), .nranks = 2, .ranks = ranks, .moves = m, .nmoves = &nm
	};
	struct gpc_spill_options s = {
		.size = sizeof(s), .nranks = 1, .ranks = ranks + 1, .moves = m, .nmoves = &nm
	};
	gpc_block b[4], r[4];
	gpc_transfer t = 0;
	gpc_key k[5];
	int i;

	bytes_chain(c, RAM, 1, 4, r, false);
	chain_keys(c, 1, 4, k);
	is_int(gpc_fetch(c, VRAM, k + 1, 4, b, &o, 0, NULL, 1000, &t), 4,
	       "four blocks, copied by ranks");
	is_int((int)nm, 4, "four moves are told");
	ok(m[2].from == r[2] && m[2].to == b[2] && !memcmp(&m[2].key, &k[3], sizeof(k[3])),
	   "with their keys");
	copy_here(c, m, 4, 1);
	refused(gpc_order(c, t, 0, NULL), EINVAL, "their streams are theirs");
	is_int(gpc_transfer_mark(c, ranks[0], t, NULL), 0, "one rank is done");
	refused(gpc_transfer_mark(c, ranks[0], t, NULL), EALREADY, "which it says once");
	is_int(gpc_transfer_wait(c, t, 20), -ETIMEDOUT, "which is not all");
	is_int(gpc_transfer_mark(d, ranks[0], t, NULL), 0, "the other one");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "now it is committed");
	is_int(fetch_live(c, 1, 4, VRAM), 4, "every byte");
	refused(gpc_transfer_mark(d, ranks[0], t, NULL), ENOENT, "it is over");
	must(gpc_release(c, b, 4));
	is_int(gpc_spill(c, VRAM, RAM, NULL, 2, &s, 0, NULL, 1000, &t), 2,
	       "two go down, copied by another peer");
	is_int((int)nm, 2, "two moves");
	refused(gpc_transfer_mark(c, ranks[0], t, NULL), EPERM, "the caller is no rank");
	copy_here(c, m, 1, 4);
	copy_here(c, m + 1, 1, 3);
	must(gpc_transfer_mark(d, ranks[0], t, NULL));
	is_int(gpc_transfer_wait(c, t, 5000), 0, "done");
	is_int(fetch_live(c, 3, 2, RAM), 2, "every byte");
	chain_keys(c, 1, 4, k);
	is_int(gpc_fetch(c, VRAM, k + 1, 4, b, &o, 0, NULL, 1000, &t), 4, "two come back");
	must(gpc_close(d));
	must(gpc_transfer_mark(c, ranks[0], t, NULL));
	is_int(gpc_transfer_wait(c, t, 5000), 0,
	       "a rank has left without a word: the transfer ends with the others");
	is_int(gpc_transfer_results(c, t, (int *)memset(r, 0, sizeof(r)), 4), 2, "two results");
	ok(r[0] == -ESTALE && r[1] == -ESTALE, "both refused");
	must(gpc_release(c, b, 4));
	settle(c);
	for (i = 0; i < 200 && stats_of(c, -1).reserved; i++)
		gpc_writer_serve(c, 1);
	is_int(fetch_live(c, 3, 2, RAM), 2, "and what was to come is where it was");
	fetch_end(c, "ranks");
}

/* Leader, writer and rank in three processes. */
static void test_processes(void)
{
	gpc *c = tiers(16, 16), *d;
	gpc_block b[4], r[4];
	gpc_transfer t = 0;
	int status = -1, up[2], down[2];
	int32_t peer = 0;
	gpc_key k[5];
	struct gpc_move m[4];
	uint32_t nm;
	struct gpc_fetch_options o = {
		.size = sizeof(o), .nranks = 1, .ranks = &peer, .moves = m, .nmoves = &nm
	};
	struct {
		int32_t peer;
		gpc_transfer t;
	} say;
	pid_t pid;

	bytes_chain(c, RAM, 1, 4, r, false);
	chain_keys(c, 1, 4, k);
	if (pipe(up) || pipe(down))
		bail("pipes");
	pid = fork();
	if (!pid) {
		gpc *e = NULL;
		struct gpc_attach_options a = { .size = sizeof(a),
						.timeout_ms = 5000,
						.dir = cache_dir };

		if (gpc_attach(cache_name, &a, 0, &e) < 0)
			_exit(2);
		peer = info_of(e).peer;
		if (write(up[1], &peer, sizeof(peer)) != sizeof(peer) ||
		    read(down[0], &say, sizeof(say)) != sizeof(say))
			_exit(3);
		if (gpc_transfer_mark(e, say.peer, say.t, NULL) < 0)
			_exit(4);
		_exit(gpc_close(e));
	}
	if (read(up[0], &peer, sizeof(peer)) != sizeof(peer))
		bail("the rank has no peer");
	d = cache_attach(0, 0);
	serve_begin(c);
	is_int(gpc_fetch(d, VRAM, k + 1, 4, b, &o, 0, NULL, 2000, &t), 4,
	       "a leader, and a rank elsewhere");
	copy_here(d, m, 4, 1);
	say.peer = info_of(d).peer;
	say.t = t;
	if (write(down[1], &say, sizeof(say)) != sizeof(say))
		bail("the rank is gone");
	is_int(gpc_transfer_wait(d, t, 5000), 0, "the rank's mark commits it");
	waitpid(pid, &status, 0);
	is_int(status, 0, "the rank is done");
	is_int(fetch_right(d, b, 4, 1), 4, "every byte");
	must(gpc_release(d, b, 4));
	must(gpc_close(d));
	serve_end();
	fetch_end(c, "processes");
}

/* ---- refused ---- */

static void says(gpc *c, int got, int want, const char *word)
{
	(void)c;
	is_int(got, want, "refused: %s", word);
	ok(strstr(gpc_last_error(), word), "\"%s\"", gpc_last_error());
}

static void test_refused(void)
{
	gpc *c = tiers(8, 8);
	int32_t ranks[3] = { 0, 0, 3 };
	struct gpc_move m[4];
	uint32_t nm;
	int results[2], bare = pool_new(c, GPC_RAM, 4, 2, 0);
	gpc_block b[4] = { 0 };
	gpc_key k[3];
	gpc_transfer t = 5;
	struct gpc_pool p = pool_of(GPC_VRAM, 4, 3);

#define FETCH(to, keys, n, blocks, flags, ms, ...)                                            \
	gpc_fetch(c, to, keys, n, blocks, GPC_OPTIONS(gpc_fetch_options, __VA_ARGS__), flags, \
		  NULL, ms, &t)
#define SPILL(from, to, flags, ms, ...)                                                           \
	gpc_spill(c, from, to, NULL, 1, GPC_OPTIONS(gpc_spill_options, __VA_ARGS__), flags, NULL, \
		  ms, &t)
	chain_keys(c, 1, 2, k);
	says(c, gpc_fetch(NULL, VRAM, k, 1, b, NULL, 0, NULL, 0, &t), -EINVAL, "handle is NULL");
	says(c, FETCH(99, k, 1, b, 0, 0, .min = 0), -EINVAL, "to is 99");
	says(c, FETCH(7, k, 1, b, 0, 0, .min = 0), -ENOENT, "to is 7");
	says(c, FETCH(bare, k, 1, b, 0, 0, .min = 0), -ENOENT, "no memory");
	says(c, FETCH(VRAM, NULL, 1, b, 0, 0, .min = 0), -EINVAL, "keys is NULL");
	says(c, FETCH(VRAM, k, 1, NULL, 0, 0, .min = 0), -EINVAL, "blocks is NULL");
	says(c, FETCH(VRAM, k, UINT32_MAX, b, 0, 0, .min = 0), -EINVAL, "n is 4294967295");
	says(c, FETCH(VRAM, k, 1, b, GPC_COPY, 0, .min = 0), -EINVAL, "flags");
	says(c, FETCH(VRAM, k, 1, b, 0, -2, .min = 0), -EINVAL, "timeout_ms");
	says(c, FETCH(VRAM, k, 1, b, 0, 0, .stages = 17), -EINVAL, "stages is 17");
	says(c, FETCH(VRAM, k, 1, b, GPC_VERIFY_FIRST, 0, .stages = 2), -EINVAL,
	     "GPC_VERIFY_FIRST");
	says(c, FETCH(VRAM, k, 1, b, 0, 0, .nranks = 17), -EINVAL, "nranks is 17");
	says(c, FETCH(VRAM, k, 1, b, 0, 0, .nranks = 1), -EINVAL, "ranks is NULL");
	says(c, FETCH(VRAM, k, 1, b, 0, 0, .nranks = 1, .ranks = ranks), -EINVAL, "moves is NULL");
	says(c, FETCH(VRAM, k, 1, b, 0, 0, .nranks = 1, .ranks = ranks, .moves = m), -EINVAL,
	     "nmoves is NULL");
	says(c, FETCH(VRAM, k, 1, b, 0, 0, .nranks = 2, .ranks = ranks, .moves = m, .nmoves = &nm),
	     -EINVAL, "ranks[0] and ranks[1]");
	says(c,
	     FETCH(VRAM, k, 1, b, 0, 0, .nranks = 1, .ranks = ranks + 2, .moves = m, .nmoves = &nm),
	     -EINVAL, "no peer in that seat");
	ranks[2] = 77;
	says(c,
	     FETCH(VRAM, k, 1, b, 0, 0, .nranks = 1, .ranks = ranks + 2, .moves = m, .nmoves = &nm),
	     -EINVAL, "ranks[0] is 77");
	says(c,
	     FETCH(VRAM, k, 1, b, 0, 0, .nranks = 1, .ranks = ranks, .moves = m, .nmoves = &nm,
		   .stages = 2),
	     -EINVAL, "ranks copy as they like");
	says(c,
	     gpc_fetch(c, VRAM, k, 1, b, &(struct gpc_fetch_options){ .size = 8 }, 0, NULL, 0, &t),
	     -EINVAL, "gpc_fetch_options");
	says(c, SPILL(99, RAM, 0, 0, .nranks = 0), -EINVAL, "from is 99");
	says(c, SPILL(7, RAM, 0, 0, .nranks = 0), -ENOENT, "from is 7");
	says(c, SPILL(VRAM, VRAM, 0, 0, .nranks = 0), -EINVAL, "both 1");
	says(c, SPILL(VRAM, bare, 0, 0, .nranks = 0), -ENOENT, "no memory");
	says(c, SPILL(RAM, -1, 0, 0, .nranks = 0), -ENOENT, "demotes to no other");
	says(c, SPILL(VRAM, RAM, GPC_TAKE, 0, .nranks = 0), -EINVAL, "flags");
	says(c, SPILL(VRAM, RAM, 0, -7, .nranks = 0), -EINVAL, "timeout_ms");
	says(c, SPILL(VRAM, RAM, 0, 1000, .nranks = 0), -ENOSPC, "no leaf");
	says(c, gpc_spill_ahead(c, 99, NULL, 0, &t), -EINVAL, "pool is 99");
	says(c, gpc_spill_ahead(c, bare, NULL, 0, &t), -ENOENT, "no memory");
	says(c, gpc_transfer_mark(c, 99, 640, NULL), -EINVAL, "peer is 99");
	says(c, gpc_transfer_mark(c, 0, 0, NULL), -EINVAL, "names none");
	says(c, gpc_transfer_mark(c, 0, 640, NULL), -ENOENT, "transfer is 640");
	says(c, gpc_transfer_results(c, 0, results, 2), -EINVAL, "names none");
	says(c, gpc_transfer_results(c, UINT64_MAX - 1, results, 2), -EINVAL, "no such name");
	says(c, gpc_transfer_results(c, 640, NULL, 2), -EINVAL, "results is NULL");
	is_int((int)t, 5, "no name was told");
	p.spill_ahead = 5;
	p.demote_to = RAM;
	says(c, gpc_pool_make(c, &p, NULL, 0), -EINVAL, "spill_ahead");
	p.spill_ahead = 2;
	p.demote_to = -1;
	says(c, gpc_pool_make(c, &p, NULL, 0), -EINVAL, "demote_to is -1");
	fetch_end(c, "refused");
}

static int body(void)
{
	test_ranks();
	test_processes();
	test_refused();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
