/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile commands and damaged segments: names of transfers out of range, reused, overlapping; what
 * a takeover makes of it, and what gpc_check says.
 * Tests: lib/look/check_transfer.c lib/index/writer/transfers.h lib/index/takeover/others.c */
#include "t/lib/xfers.h"

enum { VRAM, RAM };

static gpc *p;
static uint8_t *hand; /* the index, written to */

static void begin(gpc_block *b)
{
	struct gpc_config cfg = cache_config(0, 0);
	gpc_key k[5];

	cfg.max_blocks = 256;
	cfg.quarantine_ms = 50; /* a handle that leaves does so in a process that goes on */
	c = cache_make(&cfg, NULL);
	p = cache_attach(0, 0);
	pool_new(c, GPC_VRAM, 16, 0, 0);
	pool_new(c, GPC_RAM, 16, 0, 0);
	chain_make(c, RAM, 1, 4, b);
	chain_keys(p, 1, 4, k);
	if (must(gpc_acquire(p, 0, k + 1, 4, b, 0)) != 4)
		bail("no chain");
}

static void end(const char *what)
{
	ok(is_quiet(), "%s: nothing is left", what);
	clean(c, what);
	must(gpc_close(p));
	cache_end(c);
}

static struct shm_xfer *forge(uint32_t slot)
{
	return SEG_AT(hand, c->seg.at.xfer, struct shm_xfer, p->peer * SHM_TRANSFERS + slot);
}

/* ---- what gpc_check says ---- */

static const char *wanted;

static void look_for(void *arg, const char *line)
{
	if (strstr(line, wanted))
		++*(int *)arg;
}

static void says(const char *what)
{
	int n = 0;

	wanted = what;
	must(gpc_check(c, look_for, &n));
	ok(n > 0, "check says: %s", what);
}

static void test_check(void)
{
	struct shm_xfer was, was4;
	gpc_block b[4] = { 0 };
	struct xfer x, y;

	begin(b);
	x = xfer(p, 3, 1);
	y = xfer(p, 4, 2);
	is_int(fetch(&x, VRAM, b, 2), 2, "two are bound");
	is_int(fetch(&y, VRAM, b + 2, 2), 2, "two more");
	clean(c, "bound");
	must(segment_map_writer(&c->seg, &hand));
	was = *forge(3);
	was4 = *forge(4);
	forge(3)->left = 1;
	says("transfer 3 has 2 targets, and 1 are said to be left");
	forge(3)->left = 5;
	says("transfer 3 is damaged");
	*forge(3) = was;
	forge(3)->n = SHM_RING + 1;
	says("transfer 3 is damaged");
	*forge(3) = was;
	forge(3)->op = 0;
	says("transfer 3 is damaged");
	*forge(3) = was;
	forge(3)->value = 0;
	says("transfer 3 is damaged");
	*forge(3) = was;
	forge(3)->rank[0] = 200;
	says("rank 0 of transfer 3 is seat 200, which cannot be");
	*forge(3) = was;
	forge(4)->op = was.op + 1;
	says("transfers 3 and 4 have entries of one command");
	*forge(4) = was4;
	*cell_of(p, x.to[0]) = CELL_RESERVED;
	clean(c, "a cell of a reservation, which it is");
	*cell_of(p, x.to[0]) = 3;
	clean(c, "references on a target");
	forge(3)->left = 0;
	says("reserved, but its cell counts references");
	*forge(3) = was;
	*cell_of(p, x.to[0]) = 0;
	segment_unmap_writer(&c->seg, hand);
	xfer_done(&x);
	xfer_done(&y);
	ok(ends(&x) && ends(&y), "done");
	must(gpc_release(p, b, 4));
	end("check");
}

/* ---- what a takeover makes of it ---- */

enum damage { N, OP, VALUE, RANK, LEFT, OVERLAP, SOURCE, NOBODY, DAMAGES };

static void damage(enum damage how, const struct xfer *x)
{
	switch (how) {
	case N:
		forge(3)->n = UINT32_MAX;
		break;
	case OP:
		forge(3)->op = UINT64_MAX - 1;
		break;
	case VALUE:
		forge(3)->value = UINT64_MAX;
		break;
	case RANK:
		forge(3)->rank[0] = 200;
		break;
	case LEFT:
		forge(3)->left = 77;
		break;
	case OVERLAP:
		*forge(5) = *forge(3);
		break;
	case SOURCE:
		SEG_AT(hand, c->seg.at.record, struct shm_record, pool_record(&c->seg, x->to[0]))
			->source = 0x7fffffff;
		break;
	default:
		forge(9)->left = 3;
		forge(9)->n = 3;
		forge(9)->op = 1ull << 40;
		forge(9)->value = 99;
	}
}

static void test_takeover(enum damage how)
{
	gpc_block b[4] = { 0 };
	uint32_t seat, i;
	struct xfer x;

	begin(b);
	seat = p->peer;
	x = xfer(p, 3, 1);
	is_int(fetch(&x, VRAM, b, 4), 4, "four are bound, and damaged: %d", how);
	must(gpc_writer_drop(c));
	must(segment_map_writer(&c->seg, &hand));
	damage(how, &x);
	segment_unmap_writer(&c->seg, hand);
	must(gpc_writer_take(c, 0, 0));
	serve_some();
	xfer_done(&x);
	for (i = 0; i < SHM_RANKS && how != RANK; i++) /* nobody can be that rank */
		rank_done(&x, i);
	ok(ends(&x), "a successor goes on");
	must(gpc_release(p, b, 4));
	must(gpc_close(p));
	for (i = 0; i < 100 && load_acquire(&seg_seat(&c->seg, seat)->state) != SEAT_FREE; i++)
		must(gpc_writer_serve(c, 1));
	ok(is_quiet(), "nothing is left when the peer has gone");
	clean(c, "damage");
	cache_end(c);
}

static uint64_t any_name(const uint64_t *odd)
{
	return odd[chance(10)] + (uint64_t)chance(64) * chance(100);
}

/* ---- commands ---- */

/* Whatever stands in them: an answer, and nothing is left when the peer has gone. */
static void test_random(void)
{
	static const uint64_t odd[] = {
		0, 1, 63, 64, 65, 1 << 6 | 3, 2 << 6 | 3, UINT64_MAX, UINT64_MAX >> 6, 1ull << 63
	};
	gpc_block b[4] = { 0 };
	uint32_t i, j, n = 0, seat;

	begin(b);
	seat = p->peer;
	for (i = 0; i < 3000; i++) {
		struct shm_command cmd[3];
		uint64_t at;

		memset(cmd, 0, sizeof(cmd));
		for (j = 0; j < 3; j++) {
			cmd[j] = (struct shm_command){
				.op = (uint8_t)(chance(3)   ? CMD_PROMOTE
						: chance(2) ? CMD_DEMOTE
							    : CMD_CUT),
				.pool = (uint8_t)chance(3),
				.block = chance(8) ? b[chance(4)] : (gpc_block)chance(1 << 25),
			};
			if (cmd[j].op == CMD_CUT) {
				cmd[j].cut.transfer = any_name(odd);
				cmd[j].cut.from = odd[chance(10)];
				continue;
			}
			cmd[j].move.to_pool = (uint8_t)chance(3);
			cmd[j].move.transfer = any_name(odd);
			cmd[j].move.any = !chance(4);
		}
		if (cmd[0].op != CMD_CUT)
			memset(cmd[0].move.rank, chance(4) ? 255 : (int)chance(256),
			       sizeof(cmd[0].move.rank));
		at = put(p, cmd, cmd[0].op == CMD_CUT ? 1 : 1 + chance(3));
		n += answer(p, at) != CMD_PENDING;
		take_answers(p);
		if (!chance(20))
			xfers_words(p)->done[chance(64)] = chance(200);
		if (!chance(300)) {
			must(gpc_writer_drop(c));
			must(gpc_writer_take(c, 0, 0));
		}
	}
	is_int(n, 3000, "each is answered");
	clean(c, "nonsense");
	must(gpc_release(p, b, 4));
	for (i = 0; i < SHM_TRANSFERS; i++) {
		/* what is bound is copied: else it waits for the end of the process */
		xfers_words(p)->done[i] = seg_xfer(&c->seg, seat, i)->value;
		for (n = 0; n < SHM_RANKS; n++)
			xfers_words(p)->rank[i][n] = seg_xfer(&c->seg, seat, i)->value;
	}
	must(gpc_writer_serve(c, 30));
	must(gpc_close(p));
	for (i = 0; i < 200 && load_acquire(&seg_seat(&c->seg, seat)->state) != SEAT_FREE; i++)
		must(gpc_writer_serve(c, 1));
	ok(is_quiet(), "nothing is left when the peer has gone");
	clean(c, "and it has gone");
	cache_end(c);
}

static int body(void)
{
	int how;

	test_check();
	for (how = 0; how < DAMAGES; how++)
		test_takeover(how);
	test_random();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
