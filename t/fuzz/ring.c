/* SPDX-License-Identifier: Apache-2.0 */
/* A peer that writes rubbish, as the writer and an honest peer see it.
 *
 * Three handles of one process: the writer, which serves whenever another one waits; the honest
 * peer, with a chain, a reservation and a stock of its own in pool HOME; and a brat.  The input is
 * what the brat stores where it may, and when the others get their turn.  In the end the brat is
 * gone, without a word or with one, and
 *
 *   what the honest peer held it has still had, all the time
 *   gpc_check finds nothing, and nothing is reserved or dying
 *   each pool can be reserved as a whole: all that the brat had came back
 *   the honest peer's calls work as if nothing had been
 * Tests: lib/index/writer/command.c */
#include "rubbish.h"

#include "gpc_look.h"

/* ---- steps ---- */

static void step(struct fuzz_input *in)
{
	uint32_t what = (uint32_t)fuzz_take(in, 1) % 32;

	fuzz_count(N_STEPS);
	step_began = virtual_spent_ns();
	switch (what) {
	case 0:
		show_head(seat()->head + fuzz_take_value(in));
		break;
	case 1:
		show_head(seat()->head - fuzz_take(in, 1) % 16);
		break;
	case 2:
	case 3:
		scribble_slot(in);
		break;
	case 4:
		scribble_words(in, seat(), 1024);
		break;
	case 5:
		scribble_words(in, seat(), 256);
		break;
	case 6:
	case 7:
		scribble_section(in);
		break;
	case 8:
		scribble_line(in);
		break;
	case 9:
	case 10:
		scribble_cell(in);
		break;
	case 11:
		scribble_request(in);
		break;
	case 12:
		store_relaxed(seg_stamp(&brat->seg, fuzz_take(in, 1) % 40), fuzz_take_value(in));
		break;
	case 13:
		act_honestly((uint32_t)fuzz_take(in, 1));
		break;
	case 14:
		serve((uint32_t)fuzz_take(in, 1) % 40);
		break;
	case 15:
		renew(in);
		break;
	case 16:
		store_release(&seat()->head, seat()->tail);
		break;
	case 17:
		park(in);
		break;
	case 18:
		publish_some(in);
		break;
	case 19:
		serve(0);
		break;
	default:
		submit(in);
	}
}

/* ---- in the end ---- */

static void count_answers(void)
{
	uint32_t i;

	for (i = 0; i < 64; i++) {
		const struct shm_command *c = slot(i);

		if (c->op && c->result != CMD_PENDING)
			fuzz_count(N_ANSWERED);
	}
	for (i = 0; i < brat->seg.header.geometry.max_blocks; i++)
		if (seg_record(&brat->seg, i)->owner == brat->peer)
			fuzz_count(N_GRANTED);
}

static void take_line(void *arg, const char *line)
{
	/* recency may be wrong, and a hint, for which there are common words; and whose pool names
	 * memory that is not there has a pool without */
	if (!strstr(line, "its stamp") && !strstr(line, "counts as completed") &&
	    !strstr(line, ": its memory: "))
		fuzz_fail("check: %s", line);
	(void)arg;
}

static void judge_pool(int pool)
{
	struct gpc_pool p = { .size = sizeof(p) };
	gpc_block b[32];
	int n;

	if (gpc_pool_get(honest, pool, &p) < 0)
		return;
	if (p.flags & GPC_POOL_CALLER)
		fuzz_fail("pool %d has no owner any more", pool);
	n = gpc_reserve(honest, pool, p.blocks, b, NULL, 0, 3000);
	fuzz_must(n == (int)p.blocks, "pool %d: %d of %u blocks: %s", pool, n, p.blocks,
		  gpc_last_error());
	gpc_release(honest, b, p.blocks);
}

static void judge(void)
{
	struct gpc_stats st = { .size = sizeof(st) };
	struct gpc_pool home = { .size = sizeof(home) };
	gpc_ticket t;
	int i;

	wait_for_seat();
	serve(100);
	look_at_own();
	gpc_release(honest, chain, CHAIN);
	gpc_release(honest, stake, STAKES);
	for (i = 0; i < 3; i++) { /* answers to calls whose time was up give more back */
		fuzz_must(gpc_drop(honest, NULL, 0, &t, 0, -1) == 0 &&
				  gpc_ticket_wait(honest, t, 1000) == 0,
			  "wait: %s", gpc_last_error());
		serve(100);
	}
	fuzz_must(gpc_stats_get(honest, -1, &st) == 0 && !st.dying && st.reserved <= 5 * stock &&
			  !st.refs && !st.sections,
		  "%llu dying, %llu reserved, %llu references, %llu sections",
		  (unsigned long long)st.dying, (unsigned long long)st.reserved,
		  (unsigned long long)st.refs, (unsigned long long)st.sections);
	gpc_check(writer, take_line, NULL);
	for (i = 0; i < 5; i++)
		judge_pool(i);
	if (!polite && gpc_pool_get(honest, HOME, &home) < 0)
		return; /* anybody may remove a pool */
	settle();
	polite = true;
	look_at_own();
}

static void close_all(void)
{
	gpc_close(honest);
	honest = NULL;
	gpc_writer_drop(writer);
	gpc_close(writer);
	writer = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	uint32_t n = 0, flags = (uint32_t)fuzz_take(&in, 1);

	image_restore();
	step_began = 0;
	polite = flags & 1;
	writer = attach(0);
	fuzz_must(gpc_writer_take(writer, 0, 0) == 0, "no writer: %s", gpc_last_error());
	stock = flags & 2 ? 3 : 0;
	honest = attach(stock);
	brat = attach(0);
	settle();
	while (in.left && n++ < 100)
		step(&in);
	serve(flags & 4 ? 0 : 10);
	look_at_own();
	count_answers();
	leave(flags & 8);
	judge();
	close_all();
	return 0;
}

/* Steps, as an input has them. */
static size_t fuzz_seed(uint64_t random, uint8_t *to, size_t room)
{
	size_t i, n = 20 + fuzz_draw(&random, 400);

	(void)room;
	for (i = 0; i < n; i++)
		to[i] = (uint8_t)fuzz_draw(&random, fuzz_draw(&random, 2) ? 256 : 32);
	return n;
}

#ifndef FUZZ_LIBFUZZER
FUZZ_MAIN("ring", 2500)
#endif
