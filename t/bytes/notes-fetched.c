/* SPDX-License-Identifier: Apache-2.0 */
/* Notes go with the key when a transfer takes it: fetched, spilled, spilled ahead, copied to
 * another space, by ranks; and where nothing is committed they stay with the source.
 * Tests: lib/bytes/payload/bring.c lib/index/writer/transfer_decide.c lib/index/segment/note.c */
#include "t/lib/fetch.h"
#include "t/lib/notes.h"

#include "index/peer/handle.h"

enum { RAM, VRAM, N = 3 };

static gpc *c;

/* Keys without parents, so that each may go where it likes. */
static void publish(int pool, gpc_block *b)
{
	uint64_t n;

	for (n = 1; n <= N; n++) {
		must(gpc_reserve(c, pool, 1, &b[n - 1], NULL, 0, 60000));
		bytes_write(c, b[n - 1], n, BYTES_IMAGE);
		if (must(say_note(c, n, b[n - 1], NULL, -1)) != 1)
			bail("key %d was not published", (int)n);
	}
	must(gpc_release(c, b, N));
}

static void begin(uint32_t ahead)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_pool p = pool_of(GPC_VRAM, 16, 0);
	struct gpc_memory m = { .size = sizeof(m), .device = "host", .nruns = 2 };
	struct gpc_run run[2];

	cfg.max_blocks = 256;
	c = notes_cache(cfg, true, true);
	bytes_ram(c, 16, 0, GPC_POOL_UNCHAINED);
	bytes_layers(run, 16);
	m.runs = run;
	p.flags = GPC_POOL_UNCHAINED | GPC_POOL_OWNED;
	p.demote_to = RAM;
	p.spill_ahead = ahead;
	must(gpc_pool_make(c, &p, &m, -1));
	notes_cursor = UINT64_MAX;
	must(gpc_event_read(c, &notes_cursor, NULL, 0));
}

static void skip_events(void)
{
	struct gpc_event ev;

	while (must(gpc_event_read(c, &notes_cursor, &ev, 1)) == 1)
		;
}

static void have_gone(int pool, uint32_t space, uint32_t what, const char *how)
{
	uint64_t n, from = notes_cursor;
	gpc_block b;

	for (n = 1; n <= N; n++) {
		gpc_key k = key_of(c, n);

		notes_cursor = from; /* the writer goes by its own order */
		must(gpc_lookup(c, GPC_SPACE(space), &k, 1, &b, GPC_QUIET));
		ok(b >= 0 && GPC_POOL(b) == pool && bytes_are(c, b, n, BYTES_IMAGE),
		   "%s: key %d is there", how, (int)n);
		ok(tokens_say(c, n, b), "%s: with its tokens", how);
		ok(event_says(c, what, n), "%s: and its digest, in the change", how);
		if (!space)
			ok(walk_says(c, n), "%s: and in a walk", how);
	}
	skip_events();
	clean(c, how);
}

static void fetch(int pool, gpc_block *b)
{
	gpc_transfer t = 0;
	gpc_key k;
	uint64_t n;

	for (n = 1; n <= N; n++) { /* each is a prompt of its own */
		k = key_of(c, n);
		is_int(gpc_fetch(c, pool, &k, 1, &b[n - 1], NULL, 0, NULL, 1000, &t), 1,
		       "key %d is fetched", (int)n);
		must(gpc_transfer_wait(c, t, 5000));
	}
	must(gpc_release(c, b, N));
	settle(c);
}

static void test_there_and_back(void)
{
	gpc_transfer t = 0;
	gpc_block b[16];

	begin(0);
	publish(RAM, b);
	skip_events();
	fetch(VRAM, b);
	have_gone(VRAM, 0, GPC_MOVED, "fetched");
	is_int(gpc_spill(c, VRAM, RAM, b, N, NULL, 0, NULL, 1000, &t), N, "spilled");
	must(gpc_transfer_wait(c, t, 5000));
	settle(c);
	have_gone(RAM, 0, GPC_MOVED, "spilled");
	fetch_end(c, "there and back");
}

static void test_ahead(void)
{
	gpc_transfer t = 0;
	gpc_block b[16];

	begin(16);
	publish(VRAM, b);
	skip_events();
	is_int(gpc_spill_ahead(c, VRAM, NULL, 1000, &t), N, "spilled ahead");
	must(gpc_transfer_wait(c, t, 5000));
	settle(c);
	have_gone(RAM, 0, GPC_MOVED, "spilled ahead");
	fetch_end(c, "ahead");
}

static void test_space(void)
{
	gpc_block b[16], first[16];
	int far, n;

	begin(0);
	far = bytes_vram(c, 16, 1, -1, GPC_POOL_UNCHAINED);
	publish(RAM, b);
	memcpy(first, b, sizeof(b));
	skip_events();
	fetch(far, b);
	have_gone(far, 1, GPC_STORED, "in another space");
	for (n = 1; n <= N; n++)
		ok(tokens_say(c, (uint64_t)n, first[n - 1]), "the source has its own still");
	fetch_end(c, "another space");
}

/* Who copies is another process; the notes are the leader's to move. */
static void test_ranks(void)
{
	struct gpc_fetch_options o = { .size = sizeof(o), .nranks = 1 };
	gpc *d;
	struct gpc_move m[4];
	uint32_t moves = 0;
	gpc_transfer t = 0;
	gpc_block b[16];
	int32_t rank;
	gpc_key k;

	begin(0);
	publish(RAM, b);
	skip_events();
	d = cache_attach(0, 0);
	rank = info_of(d).peer;
	k = key_of(c, 2);
	o.ranks = &rank;
	o.moves = m;
	o.nmoves = &moves;
	is_int(gpc_fetch(c, VRAM, &k, 1, b, &o, 0, NULL, 1000, &t), 1, "fetched by ranks");
	bytes_write(c, m[0].to, 2, BYTES_IMAGE);
	must(gpc_transfer_mark(d, info_of(c).peer, t, NULL));
	is_int(gpc_transfer_wait(c, t, 5000), 0, "done");
	ok(tokens_say(c, 2, b[0]), "with its tokens");
	ok(event_says(c, GPC_MOVED, 2), "and its digest");
	must(gpc_release(c, b, 1));
	must(gpc_close(d));
	fetch_end(c, "ranks");
}

/* Its source is dropped meanwhile, and its key published anew, with another note, or with none. */
static void test_refused(bool again)
{
	gpc_block b[16], r[16], own;
	gpc_transfer t = 0;
	gpc_key k;
	int result = 0;

	begin(0);
	publish(RAM, r);
	k = key_of(c, 1);
	device_host_delay_us = 20000;
	is_int(gpc_fetch(c, VRAM, &k, 1, b, NULL, 0, NULL, 1000, &t), 1, "on its way");
	device_host_delay_us = 0;
	must(gpc_drop(c, r, 1, NULL, 0, -1));
	must(gpc_reserve(c, VRAM, 1, &own, NULL, 0, 60000));
	if (again)
		must(say_note(c, 1, own, NULL, -1));
	else
		must(gpc_publish(c, NULL, &k, &own, 1, NULL, 0, -1));
	must(gpc_release(c, &own, 1));
	is_int(gpc_transfer_wait(c, t, 5000), 0, "over");
	is_int(gpc_transfer_results(c, t, &result, 1), 1, "one result");
	is_int(result, -ESTALE, "refused");
	is_int(find(c, 1), own, "the key is where it was published");
	ok(tokens_say(c, 1, own) == again, again ? "with its tokens" : "without tokens");
	ok(!tokens_say(c, 1, b[0]), "what was refused says nothing of the key");
	must(gpc_release(c, b, 1));
	fetch_end(c, "refused");
}

static int body(void)
{
	test_there_and_back();
	test_ahead();
	test_space();
	test_ranks();
	test_refused(true);
	test_refused(false);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(30, body, cache_dir_remove);
}
