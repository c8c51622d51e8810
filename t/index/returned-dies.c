/* SPDX-License-Identifier: Apache-2.0 */
/* The writer dies before each store, in turn, of what brings a block back to the owner of a
 * CALLER pool: an eviction, a drop, a clear.  The owner is told of the block once, the feed says
 * so once, and gpc_pool_available is exact, whichever writer did what.
 * Tests: lib/index/request/returned.c lib/index/table/events.c */
#include "t/lib/cache.h"

#include "index/peer/handle.h"
#include "index/segment/blocks.h"
#include "index/peer/ring.h"
#include "t/lib/stops.h"

enum { BLOCKS = 3, STORES = 1000 };

static gpc *c, *owner; /* c: the next writer, and another peer */
static int pool;
static uint64_t cursor;

static struct shm_seat *seat(gpc *d, gpc *of)
{
	return seg_seat(&d->seg, of->peer);
}

/* As if `of` had sent it. */
static void submit(gpc *d, gpc *of, struct shm_command cmd)
{
	cmd.count = 1;
	cmd.result = CMD_PENDING;
	*seg_command(&d->seg, of->peer, seat(d, of)->head) = cmd;
	store_release(&seat(d, of)->head, seat(d, of)->head + 1);
}

static const struct shm_command *command(gpc *d, gpc *of)
{
	return seg_command(&d->seg, of->peer, seat(d, of)->head - 1);
}

static int reserved(gpc *d)
{
	int i, n = 0;

	for (i = 0; i < BLOCKS; i++)
		n += WORD_STATE(load_acquire(
			     &seg_record(&d->seg, pool_record(&d->seg, GPC_BLOCK(pool, i)))
				      ->word)) == RESERVED;
	return n;
}

static bool is_over(gpc *d, gpc *of)
{
	return load_acquire(&command(d, of)->result) != CMD_PENDING && reserved(d) &&
	       !stats_of(d, -1).dying;
}

static void writer(gpc *of, struct shm_command cmd, uint64_t last)
{
	static uint64_t count;
	gpc *d = cache_attach(0, 0);

	must(gpc_writer_take(d, 0, 0));
	while (load_acquire(&seg_state(&d->seg)->recovering))
		must(gpc_writer_serve(d, 1));
	stops.count = &count;
	stops.last = last;
	submit(d, of, cmd);
	stops_begin();
	while (!is_over(d, of))
		gpc_writer_serve(d, 1);
}

/* In a process of its own; false: it came to the end. */
static bool writer_dies(gpc *of, struct shm_command cmd, uint64_t last)
{
	int status = 0;
	pid_t pid = fork();

	if (pid < 0)
		bail("no process");
	if (!pid) {
		writer(of, cmd, last);
		_exit(0);
	}
	while (waitpid(pid, &status, 0) < 0)
		;
	return WIFSIGNALED(status);
}

/* ---- before and after ---- */

static void fill(uint64_t from)
{
	gpc_block b[BLOCKS], res[BLOCKS];
	gpc_key k[BLOCKS];
	uint32_t i, n = 0;

	for (i = 0; i < BLOCKS; i++) {
		b[n] = GPC_BLOCK(pool, (gpc_block)i);
		if (WORD_STATE(seg_record(&c->seg, pool_record(&c->seg, b[n]))->word) == LIVE)
			continue;
		k[n++] = key_of(c, from + i);
	}
	serve_begin(c);
	/* one tag for each block, so that a clear takes one */
	for (i = 0; i < n; i++)
		if (must(gpc_publish(owner, NULL, &k[i], &b[i], 1,
				     GPC_OPTIONS(gpc_publish_options,
						 .tag = 1 + (uint32_t)GPC_SLOT(b[i]),
						 .resident = res),
				     0, -1)) != 1)
			bail("not published: %d", res[0]);
	must(gpc_release(owner, b, n));
	serve_end();
}

/* How many changes since say that a block came back; bits: which. */
static int told_by_feed(uint32_t *bits)
{
	struct gpc_event ch[32];
	int i, n, told = 0;

	*bits = 0;
	while ((n = must(gpc_event_read(c, &cursor, ch, 32))) > 0)
		for (i = 0; i < n; i++)
			if (ch[i].what == GPC_RETURNED) {
				told++;
				*bits |= 1u << GPC_SLOT(ch[i].block);
			}
	return told;
}

static bool failed(const char *what, int got, int want)
{
	diag("%s: %d, not %d", what, got, want);
	return false;
}

/* The owner's own eviction tells by its answer, and by nothing else. */
static bool answer_tells(void)
{
	const struct shm_command *cmd = command(c, owner);
	gpc_block b = -7, named = cmd->block;
	const struct shm_record *r = seg_record(&c->seg, pool_record(&c->seg, named));

	if (cmd->result != 1 || WORD_STATE(r->word) != RESERVED)
		return failed("answer", cmd->result, 1);
	if (must(gpc_returned(owner, pool, &b, 1, 0)) != 0)
		return failed("told besides the answer", b, GPC_NONE);
	/* as the library does when nobody waits for the answer */
	submit(c, owner,
	       (struct shm_command){
		       .op = CMD_FREE, .block = named, .free.life = WORD_GEN(r->word) + 1 });
	while (load_acquire(&command(c, owner)->result) == CMD_PENDING)
		must(gpc_writer_serve(c, 1));
	return true;
}

/* What another peer's eviction has brought back is the owner's, and carries no operation: when
 * the writer dies before the answer, its successor evicts one more. */
static bool came_back_once(gpc *of)
{
	int i, n, back, again = of == owner;
	uint32_t bits = 0, by_feed;
	gpc_block b[BLOCKS];

	for (i = 0; i < 2000 && !is_over(c, of); i++)
		must(gpc_writer_serve(c, 1));
	back = reserved(c);
	if (back != 1 && !(back == 2 && of == c && command(c, c)->op == CMD_EVICT))
		return failed("back", back, 1);
	if (gpc_pool_available(c, pool) != BLOCKS - back)
		return failed("avail", gpc_pool_available(c, pool), BLOCKS - back);
	if (of == owner && !answer_tells())
		return false;
	for (i = 0; i < back && must(gpc_returned(owner, pool, b, 1, 2000)) == 1; i++)
		bits |= 1u << GPC_SLOT(b[0]);
	if (__builtin_popcount(bits) != back || must(gpc_returned(owner, pool, b, 1, 0)))
		return failed("told", __builtin_popcount(bits), back);
	n = told_by_feed(&by_feed);
	if (n != back + again || by_feed != bits)
		return failed("told by the feed", n, back + again);
	return true;
}

static void test(const char *what, gpc *of, struct shm_command cmd)
{
	bool died = true, good = true;
	uint64_t n;

	for (n = 1; n < STORES && died && good; n++) {
		fill(1000 * n);
		must(gpc_returned(owner, pool, (gpc_block[BLOCKS]){ 0 }, BLOCKS, 0));
		told_by_feed(&(uint32_t){ 0 });
		must(gpc_writer_drop(c));
		died = writer_dies(of, cmd, n);
		must(gpc_writer_take(c, 0, 0));
		good = came_back_once(of);
	}
	ok(good, "a writer dies before store %d of %s: what is back is told once", (int)n - 1,
	   what);
	ok(!good || (!died && n > 20), "all of its stores: %d", (int)n - 2);
	settle(c);
	clean(c, what);
}

static int body(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct shm_command cmd = { .op = CMD_EVICT, .block = GPC_NONE };

	cfg.max_blocks = 64;
	cfg.max_pools = 4;
	c = cache_make(&cfg, NULL);
	owner = cache_attach(0, 0);
	serve_begin(c);
	pool = pool_new(owner, GPC_VRAM, BLOCKS, 0, GPC_POOL_CALLER);
	serve_end();
	cursor = UINT64_MAX;
	must(gpc_event_read(c, &cursor, NULL, 0));
	cmd.pool = (uint8_t)pool;
	test("another peer's eviction", c, cmd);
	test("the owner's own", owner, cmd);
	cmd.flags = CF_TAKE;
	test("one that takes", owner, cmd);
	test("a drop", c, (struct shm_command){ .op = CMD_DROP, .block = GPC_BLOCK(pool, 1) });
	test("a clear", c,
	     (struct shm_command){ .op = CMD_CLEAR, .pool = (uint8_t)pool, .clear.tag = 2 });
	must(gpc_close(owner));
	must(gpc_writer_serve(c, 50));
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
