/* SPDX-License-Identifier: Apache-2.0 */
/* Fetches and spills whose command is answered when their caller has given up, whose CUT finds the
 * ring full, and whose quota is used up by a stock.  What was bound comes back, what was to be read
 * stays where it is, and nothing is pinned: all of it is fetched in the end.
 * Tests: lib/bytes/payload/bring.c lib/bytes/payload/tear.c */
#include "t/lib/fetch.h"

#include "bytes/payload/bring.h"
#include "index/peer/handle.h"
#include "index/peer/ring.h"
#include "index/request/stock.h"

enum { RAM = 0, VRAM = 1, BLOCKS = 16, N = 6 };

static gpc *c, *d; /* the writer; who fetches */
static gpc_key keys[N + 1];
static gpc_block sources[N];
static int home; /* where they are */

static void begin_in(int pool, uint32_t stock, uint32_t quota)
{
	cache_thread = false;
	c = bytes_cache();
	bytes_ram(c, BLOCKS, 0, 0);
	bytes_vram(c, BLOCKS, 0, RAM, 0);
	home = pool;
	bytes_chain(c, home, 1, N, sources, false);
	d = cache_attach(stock, quota);
	chain_keys(d, 1, N, keys);
}

static void begin(uint32_t stock, uint32_t quota)
{
	begin_in(RAM, stock, quota);
}

static bool is_idle(void)
{
	int i;

	for (i = 0; i < 2000 && load_acquire(&d->transfers->used); i++) {
		must(gpc_writer_serve(c, 1));
		transfer_sweep(d);
	}
	return !load_acquire(&d->transfers->used);
}

static int fetch(int timeout_ms, gpc_block b[N], int results[N], gpc_transfer *t)
{
	return gpc_fetch(d, VRAM, keys + 1, N, b,
			 GPC_OPTIONS(gpc_fetch_options, .results = results), 0, NULL, timeout_ms,
			 t);
}

/* Where a transfer that is not to be has come to its end. */
static void nothing_is_left(const char *what)
{
	struct gpc_stats st;

	ok(is_idle(), "%s: its slot is free again", what);
	settle(c);
	st = stats_of(c, -1);
	ok(!st.reserved && !st.transfers && !st.refs && !st.dying,
	   "%s: %d reserved, %d under way, %d references, %d dying", what, (int)st.reserved,
	   (int)st.transfers, (int)st.refs, (int)st.dying);
	is_int(fetch_live(c, 1, N, home), N, "%s: all sources are live, with their bytes", what);
	clean(c, what);
}

static int spill(int timeout_ms, gpc_transfer *t)
{
	gpc_block leaf_first[N];
	int i;

	for (i = 0; i < N; i++)
		leaf_first[i] = sources[N - 1 - i];
	return gpc_spill(d, VRAM, RAM, leaf_first, N, NULL, 0, NULL, timeout_ms, t);
}

/* A pin would be seen here: what is read is moved by nobody, and is no victim. */
static void end(const char *what)
{
	gpc_block b[BLOCKS];
	int results[N];
	gpc_transfer t = 0;

	serve_begin(c);
	if (home == RAM) {
		is_int(fetch(5000, b, results, &t), N, "%s: then all are fetched", what);
		is_int(gpc_transfer_wait(d, t, 5000), 0, "%s: and come", what);
		is_int(fetch_right(d, b, N, 1), N, "%s: every byte", what);
		memcpy(sources, b, sizeof(sources));
		must(gpc_release(d, b, N));
	}
	is_int(spill(5000, &t), N, "%s: then all are spilled", what);
	is_int(gpc_transfer_wait(d, t, 5000), 0, "%s: and go", what);
	is_int(fetch_live(c, 1, N, RAM), N, "%s: every byte", what);
	serve_end();
	settle(c);
	is_int(must(gpc_evict(c, RAM, N, b, 0, 60000)), N, "%s: each is a victim", what);
	must(gpc_close(d));
	fetch_end(c, what);
}

/* ---- given up ---- */

/* Nobody serves in time, so the writer finds the command withdrawn. */
static void test_withdrawn(bool spills)
{
	gpc_block b[BLOCKS];
	int results[N];
	gpc_transfer t = 5;

	begin_in(spills ? VRAM : RAM, 0, 0);
	if (spills)
		refused(spill(20, &t), ETIMEDOUT, "a spill in vain");
	else
		refused(fetch(20, b, results, &t), ETIMEDOUT, "a fetch in vain");
	is_int((int)t, 5, "which has no name");
	is_int((int)d->transfers->channel[0].state, CHANNEL_UNTOLD,
	       "its command is still in the ring");
	refused(gpc_transfer_wait(d, GPC_TRANSFER_ALL, 20), ETIMEDOUT,
		"who waits for all waits for it, too");
	nothing_is_left("withdrawn");
	is_int((int)seg_xfer(&c->seg, d->peer, 0)->value, 0, "nothing was ever bound");
	end("withdrawn");
}

/* The writer has granted the command, and died before its answer.  The program has the sources, so
 * that they can be bound though the call has let them go. */
static void *grants(void *arg)
{
	struct shm_seat *seat = seg_seat(&d->seg, d->peer);
	struct shm_command *head = seg_command(&d->seg, d->peer, *(uint64_t *)arg);

	while (load_acquire(&seat->head) == *(uint64_t *)arg)
		usleep(100);
	if (!order_cas64(&head->group_state, GROUP_OPEN, GROUP_GRANTED))
		bail("it is not open");
	return NULL;
}

static void give_up_granted(bool spills)
{
	uint64_t at = seg_seat(&d->seg, d->peer)->head;
	gpc_block b[BLOCKS];
	pthread_t thread;
	int results[N];
	gpc_transfer t = 5;

	if (must(gpc_acquire(d, 0, keys + 1, N, sources, 0)) != N)
		bail("no chain");
	must(gpc_writer_drop(c));
	if (pthread_create(&thread, NULL, grants, &at))
		bail("no thread");
	if (spills)
		refused(spill(10000, &t), ENOTCONN, "a writer dies that has granted a spill");
	else
		refused(fetch(10000, b, results, &t), ENOTCONN,
			"a writer dies that has granted a fetch");
	pthread_join(thread, NULL);
	is_int((int)t, 5, "which has no name");
	is_int((int)d->transfers->channel[0].state, CHANNEL_UNTOLD,
	       "its command is still in the ring");
	must(gpc_writer_take(c, 0, 0));
}

static void test_granted(bool spills)
{
	const struct shm_xfer *x;

	begin_in(spills ? VRAM : RAM, 0, 0);
	x = seg_xfer(&c->seg, d->peer, 0);
	give_up_granted(spills);
	ok(is_idle(), "answered late: it goes on");
	must(gpc_release(d, sources, N));
	nothing_is_left("answered late");
	ok(x->value && x->value == d->transfers->channel[0].value && x->n == N,
	   "the next writer has bound what was asked for");
	is_int((int)x->refused, N, "all of it was cut");
	end("answered late");
}

/* Its handle is closed before the answer. */
static void test_closed(void)
{
	struct shm_seat *seat;
	gpc *other;
	int i;

	begin(0, 0);
	give_up_granted(false);
	other = d;
	seat = seg_seat(&c->seg, other->peer);
	d = cache_attach(0, 0);
	must(gpc_close(other));
	for (i = 0; i < 1000 && load_acquire(&seat->state) != SEAT_FREE; i++)
		must(gpc_writer_serve(c, 1));
	is_int((int)load_acquire(&seat->state), SEAT_FREE, "its seat is free");
	nothing_is_left("closed before the answer");
	end("closed before the answer");
}

/* ---- a full ring ---- */

int __real_ring_submit(gpc *c, struct op *op, const struct shm_command *cmds);
int __wrap_ring_submit(gpc *c, struct op *op, const struct shm_command *cmds);

static uint32_t fills, refusals;

/* Before a CUT the ring is filled by others. */
int __wrap_ring_submit(gpc *h, struct op *op, const struct shm_command *cmds)
{
	struct shm_command nop = { .op = CMD_NOP, .count = 1 };
	struct op *filler;
	int err;

	if (cmds->op != CMD_CUT || !load_acquire(&fills))
		return __real_ring_submit(h, op, cmds);
	do {
		filler = ring_op(1, 0);
		err = __real_ring_submit(h, filler, &nop);
	} while (!err);
	free(filler);
	err = __real_ring_submit(h, op, cmds);
	if (err == -EAGAIN)
		count_add(&refusals, 1);
	return err;
}

static void fill_ring(void)
{
	store_release(&refusals, 0);
	store_release(&fills, 1);
}

/* Nobody serves: it is tried again and again. */
static void cut_is_refused(const char *what)
{
	uint64_t had = seg_seat(&d->seg, d->peer)->ring_full;
	int i;

	for (i = 0; i < 2000 && load_acquire(&refusals) < 3; i++) {
		transfer_sweep(d);
		usleep(500);
	}
	ok(load_acquire(&refusals) >= 3, "%s: the ring is full when its CUT is sent", what);
	ok(load_acquire(&d->transfers->channel[0].state) != CHANNEL_CUT, "%s: which waits", what);
	ok(seg_seat(&d->seg, d->peer)->ring_full > had, "%s: and is counted", what);
	store_release(&fills, 0);
}

static void answer_fetch(void)
{
	uint64_t at = seg_seat(&d->seg, d->peer)->head - N;
	int i;

	for (i = 0;
	     i < 1000 && load_acquire(&seg_command(&d->seg, d->peer, at)->result) == CMD_PENDING;
	     i++)
		must(gpc_writer_serve(c, 1));
}

static void test_full_untold(void)
{
	begin(0, 0);
	fill_ring();
	give_up_granted(false);
	answer_fetch();
	cut_is_refused("given up");
	is_int((int)seg_xfer(&c->seg, d->peer, 0)->left, N, "its targets are bound until then");
	must(gpc_release(d, sources, N));
	nothing_is_left("given up");
	end("a full ring");
}

/* What the device took is committed, the rest comes back. */
static void test_full_torn(void)
{
	gpc_block b[BLOCKS];
	int results[N], n;
	gpc_transfer t = 0;

	begin(0, 0);
	serve_begin(c);
	fill_ring();
	device_host_copy_fail_at = 2;
	n = fetch(5000, b, results, &t);
	device_host_copy_fail_at = 0;
	serve_end();
	ok(n == -EIO || (n >= 0 && n < N), "the device refuses a copy: %d", n);
	cut_is_refused("torn");
	ok(is_idle(), "torn: its slot is free again");
	if (n > 0) {
		is_int(gpc_transfer_wait(d, t, 1000), 0, "torn: what was whole has come");
		is_int(fetch_right(d, b, (uint32_t)n, 1), n, "torn: every byte");
		must(gpc_release(d, b, (uint32_t)n));
	}
	settle(c);
	is_int((int)stats_of(c, -1).reserved, 0, "torn: nothing is reserved");
	is_int(fetch_live(c, 1, N, RAM) + fetch_live(c, 1, N, VRAM), N,
	       "torn: each key has its bytes");
	must(gpc_close(d));
	fetch_end(c, "torn");
}

/* ---- a quota, and a stock ---- */

enum { STOCK = 5, QUOTA = 10 };

static uint64_t reserved(void)
{
	return stats_of(c, (int)d->peer).reserved;
}

/* One for the program, the rest of the stock in stock. */
static gpc_block with_stock(void)
{
	gpc_block own;

	begin(STOCK, QUOTA);
	serve_begin(c);
	must(gpc_reserve(d, VRAM, 1, &own, NULL, 0, 60000));
	done(d);
	serve_end();
	is_int((int)reserved(), 1 + STOCK, "one for the program, and a stock");
	return own;
}

static void test_stock(void)
{
	gpc_block own = with_stock(), b[BLOCKS];
	int results[N];
	gpc_transfer t = 0;

	serve_begin(c);
	is_int(fetch(5000, b, results, &t), N, "a stock makes room for a fetch");
	is_int(gpc_transfer_wait(d, t, 5000), 0, "which comes");
	is_int(fetch_right(d, b, N, 1), N, "every byte");
	must(gpc_release(d, b, N));
	must(gpc_release(d, &own, 1));
	done(d);
	serve_end();
	must(gpc_close(d));
	fetch_end(c, "a stock");
}

/* The writer serves when somebody waits for his stock to go back, and from then on. */
static uint32_t stops;

static void *serves_late(void *arg)
{
	while (!load_acquire(&d->stock_pauses))
		usleep(100);
	while (!load_acquire(&stops))
		must(gpc_writer_serve(c, 1));
	return arg;
}

/* The stock is being filled when the fetch comes: a second try, by another name. */
static void test_filling(void)
{
	gpc_block own[5], b[BLOCKS];
	gpc_transfer t = 0;
	int results[N], n;
	pthread_t thread;
	uint64_t first;

	own[0] = with_stock();
	for (n = 1; n < 5; n++) /* out of the stock, whose refill nobody answers */
		is_int(gpc_reserve(d, VRAM, 1, &own[n], NULL, 0, 0), 1, "out of the stock");
	must(gpc_release(d, own + 1, 4));
	first = d->transfers->last;
	ok(d->stock[VRAM].filling, "the stock is on its way");
	store_release(&stops, 0);
	if (pthread_create(&thread, NULL, serves_late, NULL))
		bail("no thread");
	is_int(fetch(5000, b, results, &t), N, "a fetch meanwhile");
	is_int((int)((t >> 6) - first), 2, "has the second name that was drawn");
	is_int(gpc_transfer_wait(d, t, 5000), 0, "and comes");
	is_int(fetch_right(d, b, N, 1), N, "every byte");
	must(gpc_release(d, b, N));
	must(gpc_release(d, own, 1));
	done(d);
	store_release(&stops, 1);
	pthread_join(thread, NULL);
	must(gpc_close(d));
	fetch_end(c, "a stock on its way");
}

/* What the program has cannot make room. */
static void test_used_up(uint32_t has)
{
	gpc_block own[QUOTA], b[BLOCKS];
	int results[N], n;
	gpc_transfer t = 5;

	own[0] = with_stock();
	serve_begin(c);
	must(gpc_reserve(d, VRAM, has - 1, own + 1, NULL, 0, 2000));
	n = fetch(5000, b, results, &t);
	if (has == QUOTA) {
		is_int(n, -EDQUOT, "the program has all: %s", gpc_last_error());
		is_int((int)t, 5, "no name");
	} else {
		is_int(n, (int)(QUOTA - has), "the program has %d: the rest is fetched", (int)has);
		is_int(results[n], -EDQUOT, "and the next one is over the quota");
		is_int(gpc_transfer_wait(d, t, 5000), 0, "they come");
		is_int(fetch_right(d, b, (uint32_t)n, 1), n, "every byte");
		must(gpc_release(d, b, (uint32_t)n));
	}
	serve_end();
	ok(is_idle(), "no slot is left");
	serve_begin(c);
	must(gpc_release(d, own, has));
	done(d);
	serve_end();
	must(gpc_close(d));
	fetch_end(c, "a quota that is used up");
}

/* ---- gone ---- */

int __real_bring_ask(struct bring *b, const struct shm_command *head, uint64_t deadline);
int __wrap_bring_ask(struct bring *b, const struct shm_command *head, uint64_t deadline);

static bool leaves;

int __wrap_bring_ask(struct bring *b, const struct shm_command *head, uint64_t deadline)
{
	if (leaves)
		must(gpc_pool_clear(c, RAM, 0, 0, 5000));
	leaves = false;
	return __real_bring_ask(b, head, deadline);
}

/* What was looked up has gone when the writer is asked: a miss. */
static void test_gone(void)
{
	gpc_block b[N];
	gpc_transfer t = 0;
	int results[N];

	cache_thread = true;
	c = bytes_cache();
	bytes_ram(c, BLOCKS, 0, 0);
	bytes_vram(c, BLOCKS, 0, RAM, 0);
	bytes_chain(c, RAM, 1, N, sources, false);
	d = cache_attach(0, 0);
	chain_keys(d, 1, N, keys);
	leaves = true;
	is_int(fetch(5000, b, results, &t), 0,
	       "blocks that have gone since they were looked up are not there");
	ok(!leaves, "they had been");
	is_int(results[0], -ENOENT, "which the results say");
	must(gpc_close(d));
	fetch_end(c, "gone");
}

static int body(void)
{
	test_gone();
	test_withdrawn(false);
	test_withdrawn(true);
	test_granted(false);
	test_granted(true);
	test_closed();
	test_full_untold();
	test_full_torn();
	test_stock();
	test_filling();
	test_used_up(QUOTA - 2);
	test_used_up(QUOTA);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
