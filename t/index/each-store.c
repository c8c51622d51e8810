/* SPDX-License-Identifier: Apache-2.0 */
/* The writer dies before each store of one command in turn.
 *
 * An eviction: the next writer finds it without an answer, and it has one victim, whichever of
 * the two has chosen that (rule C1).  One of named blocks has those.  The commit of a move: its key
 * is found, and can be referenced, all the time, while there is no writer as well (rule C3).
 *
 * And a peer dies before each store of a call: what its ring holds by then is a whole command.
 * Tests: lib/index/writer/grant.c lib/index/writer/grant_again.c lib/index/writer/move.c */
#include "t/lib/counts.h"
#include "index/peer/handle.h"
#include "index/segment/blocks.h"
#include "index/peer/refs.h"
#include "index/peer/hold.h"
#include "index/peer/ring.h"

#include "t/lib/dies.h"

enum { BLOCKS = 8, STORES = 1000 };

/* As the library does when it has the answer. */
static void give_back(gpc_block b)
{
	const struct shm_record *r = seg_record(&c->seg, (uint32_t)b);

	submit(c, (struct shm_command){
			  .op = CMD_FREE, .block = b, .free.life = WORD_GEN(r->word) + 1 });
	while (waits(c))
		must(gpc_writer_serve(c, 1));
}

/* Does the command have one block, and the cache the others? */
static bool one_went(void)
{
	gpc_block b;
	int i;

	for (i = 0; i < 2000 && waits(c); i++)
		must(gpc_writer_serve(c, 1));
	b = command(c)->block;
	if (command(c)->result != 1 || stats_of(c, -1).live != BLOCKS - 1 || b < 0 ||
	    WORD_STATE(seg_record(&c->seg, (uint32_t)b)->word) != RESERVED)
		return false;
	give_back(b);
	return true;
}

static void test_evict(void)
{
	struct shm_command evict = { .op = CMD_EVICT, .flags = CF_TAKE, .block = GPC_NONE };
	uint64_t n, key = 1;
	bool died = true, good = true;

	c = cache_new(BLOCKS, 0);
	for (n = 1; n < STORES && died && good; n++) {
		settle(c);
		while (stats_of(c, -1).live < BLOCKS)
			chain_make(c, 0, key++, 1, NULL);
		must(gpc_writer_drop(c));
		died = writer_dies(evict, n);
		must(gpc_writer_take(c, 0, 0));
		good = counts_agree(c) && one_went() && counts_agree(c);
	}
	ok(good, "a writer dies before store %d of an eviction: one block goes", (int)n - 1);
	if (!good)
		diag("answer %d, block %d, %d of %d are live", command(c)->result,
		     command(c)->block, (int)stats_of(c, -1).live, BLOCKS);
	ok(!good || !died, "all of its stores: %d", (int)n - 2);
	settle(c);
	clean(c, "all those evictions");
	cache_end(c);
}

/* GPC_PEEK: whichever store it dies before, nothing has gone, and the next one names what an evict
 * takes. */
static void test_peek(void)
{
	struct shm_command peek = { .op = CMD_EVICT, .flags = CF_PEEK, .block = GPC_NONE };
	bool died = true, good = true;
	gpc_block out, named;
	uint64_t n;
	int i;

	c = cache_new(BLOCKS, 0);
	chain_make(c, 0, 1, 4, NULL);
	chain_make(c, 0, 11, 4, NULL);
	for (n = 1; n < STORES && died && good; n++) {
		must(gpc_writer_drop(c));
		died = writer_dies(peek, n);
		must(gpc_writer_take(c, 0, 0));
		for (i = 0; i < 2000 && waits(c); i++)
			must(gpc_writer_serve(c, 1));
		named = command(c)->block;
		good = command(c)->result == 1 && stats_of(c, -1).live == BLOCKS &&
		       counts_agree(c) && find(c, 4) == named;
	}
	ok(good, "a writer dies before store %d of a peek: nothing goes", (int)n - 1);
	ok(!good || !died, "all of its stores: %d", (int)n - 2);
	is_int(gpc_evict(c, 0, 1, &out, 0, 60000), 1, "one goes");
	is_int(out, named, "the one that was named");
	clean(c, "all those peeks");
	cache_end(c);
}

enum named { IDLE, HELD, GIVEN_UP };

/* As the library does when it has the answer: the block, or the reference, goes back. */
static bool named_end(gpc_block b, enum named how)
{
	const struct shm_command *cmd = command(c);
	uint32_t record = pool_record(&c->seg, b);
	struct ref_sum sum = { 0 };
	bool given = cmd->result == 1 && cmd->evict.why == 0, ours = hold_is_owner(c, record);

	if (!given && WORD_STATE(seg_record(&c->seg, record)->word) == FREE)
		return false; /* with a reference on it */
	if (how != IDLE && !hold_step(c, record, b, given ? HOLD_GONE : HOLD_LIVE, &sum))
		return false;
	refs_account(c, &sum);
	if (given && ours)
		give_back(b);
	else if (!given)
		must(gpc_release(c, &b, 1));
	return given ? ours : how == GIVEN_UP && cmd->result == -ETIMEDOUT && !ours;
}

static bool named_round(uint64_t n, enum named how, bool *died)
{
	struct shm_command reclaim = { .op = CMD_EVICT, .flags = CF_TAKE | CF_NAMED };
	gpc_key k = key_of(c, n);
	uint16_t *cell;
	gpc_block b;
	int i;

	chain_make(c, 0, n, 1, &b);
	if (how != IDLE)
		must(gpc_acquire(c, 0, &k, 1, &b, 0));
	settle(c);
	cell = refs_cell(c, pool_record(&c->seg, b));
	if (how != IDLE && !hold_offer(cell))
		bail("the cell is 0x%x", *cell);
	reclaim.block = b;
	reclaim.evict.key[0] = k.w[0];
	reclaim.evict.key[1] = k.w[1];
	must(gpc_writer_drop(c));
	*died = writer_dies(reclaim, n);
	if (how == GIVEN_UP)
		order_cas64(&seg_command(&c->seg, c->peer, dies_seat(c)->head - 1)->group_state,
			    GROUP_OPEN, GROUP_WITHDRAWN);
	must(gpc_writer_take(c, 0, 0));
	if (!counts_agree(c))
		return false;
	for (i = 0; i < 2000 && waits(c); i++)
		must(gpc_writer_serve(c, 1));
	if (find(c, n) >= 0 && command(c)->result == 1)
		return false;
	if (!named_end(b, how))
		return false;
	if (find(c, n) >= 0)
		must(gpc_drop(c, &b, 1, NULL, 0, -1));
	settle(c);
	return counts_agree(c) && stats_of(c, -1).free_blocks == BLOCKS;
}

/* A block that is named is its peer's in the end, whoever dies; or the call was given up, and the
 * peer's reference keeps the bytes. */
static void test_named(enum named how, const char *what)
{
	bool died = true, good = true;
	uint64_t n;

	c = cache_new(BLOCKS, 0);
	for (n = 1; n < STORES && died && good; n++)
		good = named_round(n, how, &died);
	ok(good, "a writer dies before store %d of a reclaim, %s", (int)n - 1, what);
	if (!good)
		diag("answer %d, %d; %d of %d are free", command(c)->result, command(c)->evict.why,
		     (int)stats_of(c, -1).free_blocks, BLOCKS);
	ok(!good || !died, "all of its stores: %d", (int)n - 2);
	clean(c, what);
	cache_end(c);
}

/* Where key n is: 0 = nowhere, or nobody gets a reference. */
static gpc_block hold(gpc *d, uint64_t n)
{
	gpc_key k = key_of(d, n);
	gpc_block b = GPC_NONE;

	if (gpc_acquire(d, 0, &k, 1, &b, 0) == 1)
		must(gpc_release(d, &b, 1));
	return b;
}

/* The same, and it stays. */
static gpc_block hold_first(gpc *d, uint64_t n)
{
	gpc_key k = key_of(d, n);
	gpc_block b = GPC_NONE;

	return gpc_acquire(d, 0, &k, 1, &b, 0) == 1 ? b : GPC_NONE;
}

static bool is_there(gpc *d, uint64_t n, const struct gpc_move *m, const char *when)
{
	gpc_block b = hold(d, n);

	if (b == m->from || b == m->to)
		return true;
	diag("%s: key %d is in block %d", when, (int)n, b);
	return false;
}

/* As the library does when it sends the commit. */
static void part_with(gpc_block b)
{
	struct ref_sum sum = { 0 };

	if (!hold_step(c, pool_record(&c->seg, b), b, HOLD_PART, &sum))
		bail("block 0x%x is no reservation", (unsigned)b);
	refs_account(c, &sum);
}

static bool commit_round(gpc *d, uint64_t n, bool *died)
{
	struct gpc_move m;
	struct shm_command commit;
	gpc_block b;
	bool good;
	int i;

	chain_make(c, 0, n, 1, &b);
	must(gpc_demote(c, 0, 1, &b, 1, &m, 0, 60000));
	commit =
		(struct shm_command){ .op = CMD_COMMIT,
				      .block = m.from,
				      .commit.to = m.to,
				      .commit.move_op =
					      seg_record(&c->seg, pool_record(&c->seg, m.to))->op };
	part_with(m.to);
	must(gpc_writer_drop(c));
	*died = writer_dies(commit, n);
	good = is_there(d, n, &m, "without a writer");
	must(gpc_writer_take(c, 0, 0));
	good &= is_there(d, n, &m, "with a new one") && counts_agree(c);
	for (i = 0; i < 2000 && waits(c); i++)
		must(gpc_writer_serve(c, 1));
	good &= hold(d, n) == m.to && command(c)->result == 0;
	must(gpc_drop(c, &m.to, 1, NULL, 0, -1));
	settle(c);
	return good && counts_agree(c);
}

static void test_commit(void)
{
	bool died = true, good = true;
	uint64_t n;
	gpc *d;

	c = cache_new(BLOCKS, BLOCKS);
	d = cache_attach(0, 0);
	for (n = 1; n < STORES && died && good; n++)
		good = commit_round(d, n, &died);
	ok(good, "a writer dies before store %d of a commit: the key is there", (int)n - 1);
	ok(!good || !died, "all of its stores: %d", (int)n - 2);
	clean(c, "all those commits");
	must(gpc_close(d));
	must(gpc_writer_serve(c, 50));
	cache_end(c);
}

/* ---- the same of a peer ---- */

/* GPC_POOL_ONCE: the pool is added once, whoever dies, and found by who asks again. */
static bool once_round(uint64_t n, bool *died)
{
	struct shm_command add = { .op = CMD_POOL };
	bool good;
	int i, number;

	*died = writer_dies(add, n);
	must(gpc_writer_take(c, 0, 0));
	for (i = 0; i < 2000 && waits(c); i++)
		must(gpc_writer_serve(c, 1));
	number = command(c)->result;
	submit(c, add);
	while (waits(c))
		must(gpc_writer_serve(c, 1));
	good = number >= 1 && command(c)->result == number && info_of(c).pools == 2 &&
	       counts_agree(c);
	if (!good)
		diag("store %d: pool %d, then %d; %u pools", (int)n, number, command(c)->result,
		     info_of(c).pools);
	return good;
}

static void test_once(bool there)
{
	struct gpc_config cfg = cache_config(BLOCKS, 0);
	bool died = true, good = true;
	uint64_t n;

	cfg.max_blocks = 4 * BLOCKS;
	c = cache_make(&cfg, NULL);
	seg_seat(&c->seg, c->peer)->request = (struct shm_pool){ .range = 4,
								 .blocks = 4,
								 .kind = GPC_RAM,
								 .flags = GPC_POOL_ONCE,
								 .space = 1,
								 .demote_to = -1 };
	for (n = 1; n < STORES && died && good; n++) {
		if (there) {
			submit(c, (struct shm_command){ .op = CMD_POOL });
			while (waits(c))
				must(gpc_writer_serve(c, 1));
		}
		must(gpc_writer_drop(c));
		good = once_round(n, &died);
		must(gpc_pool_clear(c, command(c)->result, 0, GPC_REMOVE, 2000));
	}
	ok(good, "a writer dies before store %d of a pool that is %s: one pool", (int)n - 1,
	   there ? "there" : "added");
	ok(!good || !died, "all of its stores: %d", (int)n - 2);
	clean(c, "all those pools");
	cache_end(c);
}

/* GPC_IF_IDLE: a clear that has been begun is ended, though somebody holds a block of the pool by
 * then. */
static bool idle_round(gpc *d, uint64_t n, bool *died)
{
	struct shm_command clear = { .op = CMD_CLEAR, .flags = CF_IDLE };
	gpc_block held;
	int left, result, i;

	for (i = 0; i < 3; i++)
		chain_make(c, 0, (uint64_t)i * 10 + 1, 2, NULL);
	done(c);
	must(gpc_writer_drop(c));
	*died = writer_dies(clear, n);
	held = hold_first(d, 11);
	must(gpc_writer_take(c, 0, 0));
	for (i = 0; i < 2000 && waits(c); i++)
		must(gpc_writer_serve(c, 1));
	result = command(c)->result;
	for (i = left = 0; i < 3; i++)
		left += find(c, (uint64_t)i * 10 + 1) >= 0;
	if (held >= 0)
		must(gpc_release(d, &held, 1));
	settle(c);
	must(gpc_pool_clear(c, 0, 0, 0, -1));
	settle(c);
	if (result == -EBUSY ? left == 3 && held >= 0 : result >= 0 && !left)
		return counts_agree(c);
	diag("store %d: result %d, %d of 3 chains left, held: %d", (int)n, result, left, held);
	return false;
}

static void test_idle(void)
{
	bool died = true, good = true;
	uint64_t n;
	gpc *d;

	c = cache_new(BLOCKS, 0);
	d = cache_attach(0, 0);
	for (n = 1; n < STORES && died && good; n++)
		good = idle_round(d, n, &died);
	ok(good, "a writer dies before store %d of a clear of what is idle: all goes, or nothing",
	   (int)n - 1);
	ok(!good || !died, "all of its stores: %d", (int)n - 2);
	must(gpc_close(d));
	clean(c, "all those clears");
	cache_end(c);
}

static bool peer_dies(uint32_t place, gpc_block b, uint64_t last)
{
	static uint64_t count;
	int status = 0;
	pid_t pid = fork();
	gpc *d;

	if (pid < 0)
		bail("no process");
	if (!pid) {
		d = cache_attach(0, 0);
		if (d->peer != place)
			_exit(1);
		stops.at[0] = stops.at[1] = d->seg.control;
		stops.bytes[0] = stops.bytes[1] = ROUND_UP(d->seg.at.control_bytes, d->seg.unit);
		stops.count = &count;
		stops.last = last;
		stops_begin();
		gpc_drop(d, &b, 1, NULL, 0, 0);
		_exit(0);
	}
	while (waitpid(pid, &status, 0) < 0)
		;
	return WIFSIGNALED(status);
}

static void test_submit(void)
{
	const struct shm_command *cmd;
	const struct shm_seat *s;
	bool died = true, good = true;
	gpc_block b;
	uint64_t n;
	int i;

	c = cache_new(BLOCKS, 0);
	chain_make(c, 0, 1, 1, &b);
	s = seg_seat(&c->seg, c->peer + 1);
	for (n = 1; n < STORES && died && good; n++) {
		died = peer_dies(c->peer + 1, b, n);
		cmd = seg_command(&c->seg, c->peer + 1, s->tail);
		good = s->head == s->tail || (s->head == s->tail + 1 && cmd->op == CMD_DROP &&
					      cmd->block == b && cmd->result == CMD_PENDING);
		for (i = 0; i < 2000 && s->state != SEAT_FREE; i++)
			must(gpc_writer_serve(c, 5));
		if (find(c, 1) < 0)
			chain_make(c, 0, 1, 1, &b);
	}
	ok(good, "a peer dies before store %d of a drop: no command, or all of it", (int)n - 1);
	ok(!good || !died, "all of its stores: %d", (int)n - 2);
	clean(c, "all those drops");
	cache_end(c);
}

static int body(void)
{
	test_evict();
	test_peek();
	test_named(IDLE, "held by nobody");
	test_named(HELD, "referenced by its peer");
	test_named(GIVEN_UP, "which the peer has given up");
	test_commit();
	test_once(false);
	test_once(true);
	test_idle();
	test_submit();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
