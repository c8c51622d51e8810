/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_check finds a reservation that nobody has, and a cell that says what is not so: each line
 * of index/peer/hold.h, broken by hand.
 * Tests: lib/look/check_hold.c lib/index/peer/hold.c */
#include "config.h"

#include "t/lib/cache.h"

#include "index/peer/handle.h"
#include "index/peer/refs.h"
#include "index/peer/hold.h"
#include "index/peer/ring.h"

static gpc *c, *d;
static char found[256];

static void note(void *arg, const char *line)
{
	(void)arg;
	if (!*found)
		snprintf(found, sizeof(found), "%s", line);
}

static void finds(const char *part, const char *what)
{
	int n;

	*found = 0;
	n = gpc_check(c, note, NULL);
	ok(n == 1 && strstr(found, part), "%s", what);
	if (n != 1 || !strstr(found, part))
		diag("%d lines; \"%s\" instead of \"%s\"", n, found, part);
}

static uint16_t *cell(gpc_block b)
{
	return refs_cell(d, pool_record(&d->seg, b));
}

/* The cell as it is not; then as it was. */
static void breaks(gpc_block b, uint16_t value, const char *part, const char *what)
{
	uint16_t was = *cell(b);

	store_relaxed(cell(b), value);
	finds(part, what);
	store_relaxed(cell(b), was);
	clean(c, "as it was");
}

static void begin(gpc_block *b, uint32_t n)
{
	cache_thread = false;
	c = cache_new(8, 0);
	d = cache_attach(0, 0);
	serve_begin(c);
	must(gpc_reserve(d, 0, n, b, NULL, 0, 60000));
	done(d);
	serve_end();
	clean(c, "reservations");
}

static void end(void)
{
	must(gpc_close(d));
	must(gpc_writer_serve(c, 50));
	clean(c, "in the end");
	cache_end(c);
}

static void test_reserved(void)
{
	gpc_block b[2];

	begin(b, 2);
	breaks(b[0], 0, "neither the program, a stock nor a command has it",
	       "a reservation that nobody has");
	breaks(b[1], 1, "counts references", "a reservation and a reference");
	breaks(b[0], CELL_PENDING, "no command publishes or commits it",
	       "a publish that was never sent");
	breaks(b[0], 0xffff, "no meaning", "a value that there is not");
	breaks(b[0] == 7 ? 6 : 7, CELL_RESERVED, "not reserved, but its cell says so",
	       "a free block that the program has");
	breaks(b[0] == 7 ? 6 : 7, CELL_STOCK, "not reserved, but its cell says so",
	       "a free block in stock");
	breaks(b[0] == 7 ? 6 : 7, CELL_PENDING, "neither reserved nor published",
	       "a free block that is published");
	store_relaxed(cell(b[0]), CELL_STOCK);
	clean(c, "a stock is an owner");
	store_relaxed(cell(b[0]), CELL_BACK);
	clean(c, "and so is what waits for its way back");
	store_relaxed(cell(b[0]), CELL_RESERVED);
	end();
}

/* The command has the block until its answer is taken, and not longer. */
static void test_command(void)
{
	struct shm_seat *seat;
	gpc_key k;
	gpc_block b;

	begin(&b, 1);
	seat = seg_seat(&d->seg, d->peer);
	k = key_of(d, 1);
	must(gpc_publish(d, &k, (gpc_key[]){ key_of(d, 2) }, &b, 1, NULL, 0, 0));
	is_int(*cell(b), CELL_PENDING, "a publish is under way");
	clean(c, "sent");
	must(gpc_writer_serve(c, 0));
	is_int(*cell(b), CELL_PENDING, "refused, and the answer not taken");
	clean(c, "answered");
	store_relaxed(&seat->taken, seat->head);
	finds("no command publishes or commits it", "taken, and the cell forgotten");
	store_relaxed(&seat->taken, seat->head - 1);
	must(gpc_ticket_wait(d, seat->head, 0));
	is_int(*cell(b), CELL_RESERVED, "a reservation again");
	is_int((long long)seat->taken, (long long)seat->head, "all answers are taken");
	clean(c, "taken");
	store_relaxed(&seat->taken, seat->head + 1);
	finds("it has taken answers", "more answers than there are");
	store_relaxed(&seat->taken, seat->head);
	end();
}

/* Of the dead nothing is said: their seat is cleared as a whole. */
static void test_dead(void)
{
	gpc_block b;

	begin(&b, 1);
	store_relaxed(cell(b), 0);
	finds("neither the program", "a peer that lives");
	must(gpc_writer_drop(c));
	must(gpc_close(d));
	clean(c, "one that has left");
	must(gpc_writer_take(c, 0, 0));
	must(gpc_writer_serve(c, 50));
	d = cache_attach(0, 0);
	end();
}

static int body(void)
{
	test_reserved();
	test_command();
	test_dead();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
