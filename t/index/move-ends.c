/* SPDX-License-Identifier: Apache-2.0 */
/* How a move ends: references go along, or it is cancelled, in time or too late; or it
 * was a copy for another space, where the key may be already.
 * Tests: lib/index/writer/move.c lib/index/writer/move_bind.c lib/index/writer/commit.c */
#include "t/lib/copied.h"

/* ---- references ---- */

static void test_references(void)
{
	gpc *c = cache_new(4, 4), *d = cache_attach(0, 0);
	struct gpc_move m[2];
	gpc_block b[2], theirs[2];
	gpc_key k[3];

	chain_keys(c, 1, 2, k);
	write_chain(c, VRAM, 1, 2);
	must(gpc_acquire(c, 0, k + 1, 2, b, 0));
	must(gpc_acquire(c, 0, k + 1, 1, b, 0));
	must(gpc_acquire(d, 0, k + 1, 2, theirs, 0));
	is_int(gpc_demote(c, VRAM, RAM, (gpc_block[2]){ b[1], b[0] }, 2, m, 0, 60000), 2,
	       "blocks in use may move");
	copy(m, 2);
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 2, "and do");
	is_int(found_in(c, RAM, 1, 2), 2, "the keys have moved");
	ok(*bytes_of(theirs[0]) == 1 && *bytes_of(theirs[1]) == 2, "the old bytes are there");
	is_int(stats_of(c, -1).dying, 2, "for those who use them still");
	is_int(gpc_release(c, (gpc_block[2]){ m[1].to, m[0].to }, 2), 0,
	       "one reference of each block moved along");
	refused(gpc_release(c, &m[1].to, 1), EPERM, "one only");
	is_int(gpc_release(c, &b[0], 1), 0, "the second one stayed");
	refused(gpc_release(c, &b[1], 1), EPERM, "where there was one");
	is_int(gpc_release(d, theirs, 2), 0, "the other peer's stay until it is through");
	settle(c);
	ok(!stats_of(c, -1).dying && !stats_of(c, -1).refs, "then all is free");
	clean(c, "references");
	must(gpc_close(d));
	cache_end(c);
}

static void test_cancel(void)
{
	gpc *c = cache_new(4, 4);
	struct gpc_move m[4];
	gpc_block b[4];
	int results[2] = { 77, 77 };

	write_chain(c, VRAM, 1, 4);
	hold_chain(c, 1, 4, b);
	is_int(gpc_demote(c, VRAM, RAM, (gpc_block[2]){ b[3], b[2] }, 2, m, 0, 60000), 2, "begun");
	is_int(gpc_commit(c, m, 2, results, GPC_CANCEL, -1), 2, "given up");
	ok(!results[0] && !results[1], "without fault");
	is_int(found_in(c, VRAM, 1, 4), 4, "nothing moved");
	is_int(gpc_release(c, b, 4), 0, "references are where they were");
	is_int(stats_of(c, -1).reserved, 0, "targets went back");
	is_int(gpc_commit(c, m, 2, results, 0, -1), 0, "it is too late for a commit");
	ok(results[0] == -ESTALE && results[1] == -ESTALE, "the targets are not ours");
	is_int(gpc_commit(c, m, 2, results, GPC_CANCEL, -1), 0, "and to cancel again");
	is_int(stats_of(c, -1).demoted, 0, "no demotion");
	is_int(gpc_pool_available(c, RAM), 4, "RAM is free");
	clean(c, "given up");
	cache_end(c);
}

/* The caller learns where the key and its reference are, however often it asks. */
static void cancel_too_late(gpc *c, const struct gpc_move *m)
{
	int result = 77, i;

	for (i = 0; i < 2; i++) {
		is_int(gpc_commit(c, m, 1, &result, GPC_CANCEL, -1), 0, "too late to give it up");
		is_int(result, -EEXIST, "since it is committed");
		ok(strstr(gpc_last_error(), "committed already"), "%s", gpc_last_error());
	}
	is_int(found_in(c, RAM, 1, 1), 1, "the key is where it went");
	refused(gpc_release(c, &m->from, 1), EPERM, "no reference stayed behind");
	is_int(gpc_release(c, &m->to, 1), 0, "it moved along");
}

static void begin_one(gpc *c, struct gpc_move *m)
{
	gpc_block b;

	write_chain(c, VRAM, 1, 1);
	hold_chain(c, 1, 1, &b);
	is_int(gpc_demote(c, VRAM, RAM, &b, 1, m, 0, 60000), 1, "begun");
	copy(m, 1);
}

static void test_cancel_late(void)
{
	gpc *c = cache_new(4, 4);
	struct gpc_move m;

	begin_one(c, &m);
	is_int(gpc_commit(c, &m, 1, NULL, 0, -1), 1, "committed");
	is_int(gpc_commit(c, &m, 1, NULL, 0, -1), 1, "again: done before");
	cancel_too_late(c, &m);
	clean(c, "too late");
	cache_end(c);
}

/* The commit is pending, and the next writer makes it before it comes to the cancel. */
static void test_cancel_pending(void)
{
	gpc *c = cache_new(4, 4);
	struct gpc_move m;

	begin_one(c, &m);
	must(gpc_writer_drop(c));
	refused(gpc_commit(c, &m, 1, NULL, 0, -1), ENOTCONN, "nobody commits it");
	must(gpc_writer_take(c, 0, 60000));
	cancel_too_late(c, &m);
	clean(c, "a pending commit");
	cache_end(c);
}

/* A second commit tells no more than where the key is; where the reference is, its release tells. */
static void test_again(bool refused_first)
{
	gpc *c = cache_new(4, 4);
	struct gpc_move m;
	int result = 77;

	begin_one(c, &m);
	must(gpc_writer_drop(c));
	if (refused_first)
		must(gpc_drop(c, &m.from, 1, NULL, 0, 0));
	refused(gpc_commit(c, &m, 1, NULL, 0, -1), ENOTCONN, "nobody commits it");
	must(gpc_writer_take(c, 0, 60000));
	must(gpc_ticket_wait(c, GPC_TICKET_ALL, -1));
	if (!refused_first) {
		is_int(gpc_commit(c, &m, 1, &result, 0, -1), 1, "again: it is committed");
		is_int(result, 0, "without fault");
		is_int(gpc_drop(c, &m.to, 1, NULL, 0, -1), 1, "the key goes from the target");
	}
	is_int(gpc_commit(c, &m, 1, &result, 0, -1), 0, "again: no key in the target");
	is_int(result, -ESTALE, "as the result says");
	if (refused_first) {
		refused(gpc_release(c, &m.to, 1), EPERM, "no reference moved along");
		is_int(gpc_release(c, &m.from, 1), 0, "it stayed behind");
	} else {
		is_int(gpc_release(c, &m.to, 1), 0, "the reference moved along");
		refused(gpc_release(c, &m.from, 1), EPERM, "none stayed behind");
	}
	clean(c, "again");
	cache_end(c);
}

/* ---- between spaces ---- */

static gpc *two_spaces(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	gpc *c;

	cfg.max_blocks = 512;
	c = cache_make(&cfg, NULL);
	pool_new(c, GPC_VRAM, 8, 0, 0);
	pool_new(c, GPC_VRAM, 8, 1, 0);
	pool_new(c, GPC_RAM, 8, 2, GPC_POOL_UNCHAINED);
	return c;
}

static void test_keep(void)
{
	gpc *c = two_spaces();
	struct gpc_move m[4];
	gpc_block b[4], r[4];
	gpc_key k[5];

	chain_keys(c, 1, 4, k);
	write_chain(c, 0, 1, 4);
	hold_chain(c, 1, 4, b);
	is_int(gpc_demote(c, 0, 2, (gpc_block[4]){ b[3], b[2], b[1], b[0] }, 4, m, GPC_COPY, 1000),
	       4, "a copy for everybody");
	copy(m, 4);
	is_int(gpc_commit(c, m, 4, NULL, 0, -1), 4, "made");
	is_int(stats_of(c, -1).live, 8, "both are live");
	is_int(gpc_lookup(c, GPC_SPACE(0), k + 1, 4, r, 0), 4, "here");
	is_int(gpc_lookup(c, GPC_SPACE(2), k + 1, 4, r, 0), 4, "and there");
	ok(*bytes_of(r[0]) == 1 && *bytes_of(r[3]) == 4, "with the same bytes");
	clean(c, "two copies");
	is_int(gpc_acquire(c, GPC_SPACE(2), k + 1, 4, r, 0), 4, "the shared copy");
	is_int(gpc_promote(c, r, 4, 1, m, GPC_COPY, 60000), 4, "for another GPU");
	copy(m, 4);
	is_int(gpc_commit(c, m, 4, NULL, 0, -1), 4, "made");
	is_int(stats_of(c, -1).live, 12, "three are live");
	is_int(gpc_lookup(c, GPC_SPACE(1), k + 1, 4, r, 0), 4, "in the third place, too");
	ok(*bytes_of(r[0]) == 1 && *bytes_of(r[3]) == 4 && GPC_POOL(r[0]) == 1, "same bytes");
	refused(gpc_promote(c, (gpc_block[1]){ b[0] }, 1, 0, m, GPC_COPY, 1000), EINVAL,
		"to where it is");
	clean(c, "three copies");
	cache_end(c);
}

/* How many of a chain of four are found in that space, when sources that have moved away have gone:
 * that takes a grace period behind the commit. */
static int left_in(gpc *c, uint32_t space, const gpc_key *k, int want)
{
	gpc_block b[4];
	int n, i;

	for (i = 0; (n = must(gpc_lookup(c, GPC_SPACE(space), k + 1, 4, b, GPC_QUIET))) != want &&
		    i < 2000;
	     i++) {
		if (!cache_thread)
			must(gpc_writer_serve(c, 1));
		else
			usleep(1000);
	}
	return n;
}

/* A pool that takes children without their parent, for one worker's space. */
static void test_forget(void)
{
	gpc *c = two_spaces();
	struct gpc_move m[4];
	gpc_block b[4], r;
	gpc_key k[5];

	chain_keys(c, 1, 4, k);
	write_chain(c, 0, 1, 4);
	write_chain(c, 1, 1, 4);
	is_int(gpc_demote(c, 0, 2, NULL, 2, m, 0, 60000), 2, "the leaves of one");
	copy(m, 2);
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 2, "go to the shared space");
	is_int(left_in(c, 0, k, 2), 2, "two are left");
	is_int(gpc_demote(c, 1, 2, NULL, 3, m, 0, 60000), 3, "the leaves of the other");
	ok(m[0].to == -1 && m[1].to == -1 && m[2].to >= 0, "two are there already");
	is_int(gpc_lookup(c, GPC_SPACE(1), k + 1, 4, b, GPC_QUIET), 2, "their sources are gone");
	copy(m, 3);
	is_int(gpc_commit(c, m, 3, NULL, 0, -1), 1, "one to commit");
	is_int(gpc_lookup(c, GPC_SPACE(2), k + 1, 4, b, 0), 3, "three are shared");
	ok(b[0] == -1 && *bytes_of(b[1]) == 2 && *bytes_of(b[3]) == 4, "over their bytes");
	is_int(gpc_demote(c, 1, 2, NULL, 1, m, GPC_COPY, 60000), 1, "the last one, kept");
	is_int(gpc_commit(c, m, 1, NULL, 0, -1), 1, "copied");
	is_int(gpc_demote(c, 1, 2, NULL, 1, m, GPC_COPY, 60000), 1, "once more");
	is_int(m[0].to, -1, "is not needed");
	is_int(gpc_lookup(c, GPC_SPACE(1), k + 1, 1, &r, 0), 1, "and nothing is forgotten");
	settle(c);
	clean(c, "what is there already");
	cache_end(c);
}

static void tests(void)
{
	test_references();
	test_cancel();
	test_cancel_late();
	if (!cache_thread) { /* whose handle would serve itself */
		test_cancel_pending();
		test_again(true);
		test_again(false);
	}
	test_keep();
	test_forget();
}

static int body(void)
{
	cache_both(tests);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
