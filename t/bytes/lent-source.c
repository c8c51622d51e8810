/* SPDX-License-Identifier: Apache-2.0 */
/* A reference that a stream is to release stays on its block until then: a move of that block takes
 * along one of the program's own, or none.
 * Tests: lib/index/request/move.c lib/bytes/payload/order.c lib/index/peer/refs.c lib/index/peer/refs.h */
#include "t/lib/fetch.h"

#include "index/base/order.h"

enum { RAM = 0, VRAM = 1 };

static gpc *c;
static void *stream;

/* A job that keeps its stream until the gate is open. */
static uint32_t gate;

static void wait_run(struct stream_job *job)
{
	(void)job;
	while (!load_acquire(&gate))
		usleep(100);
}

static void gate_shut(void)
{
	struct stream_job *job = calloc(1, sizeof(*job));

	job->run = wait_run;
	store_release(&gate, 0);
	must(stream_submit_to(stream, job));
}

static void lend(gpc_block b)
{
	is_int(gpc_release_after(c, &b, 1, stream), 0, "a reference is the stream's");
}

static void begin(gpc_block *b, gpc_key *k)
{
	gpc_key keys[2];

	c = bytes_cache();
	is_int(bytes_ram(c, 8, 0, 0), RAM, "RAM");
	is_int(bytes_vram(c, 8, 0, RAM, 0), VRAM, "VRAM above it");
	stream = host_stream_open();
	bytes_chain(c, VRAM, 1, 1, b, true);
	chain_keys(c, 1, 1, keys);
	*k = keys[1];
	gate_shut();
}

static void move(gpc_block b, struct gpc_move *m)
{
	must(gpc_demote(c, VRAM, RAM, &b, 1, m, 0, -1));
	must(bytes_copy(c, m, 1));
	is_int(gpc_commit(c, m, 1, NULL, 0, -1), 1, "its block moves");
}

static void end(const char *when)
{
	int i;

	store_release(&gate, 1);
	for (i = 0; i < 5000 && stats_of(c, -1).refs; i++)
		usleep(1000);
	is_int((int)c->nlent, 0, "%s: none is lent", when);
	host_stream_close(stream);
	fetch_end(c, when);
}

static void test_none(void)
{
	struct gpc_move m;
	gpc_block b;
	gpc_key k;

	begin(&b, &k);
	lend(b);
	move(b, &m);
	refused(gpc_release(c, &m.to, 1), EPERM, "nobody has a reference where it is now");
	refused(gpc_release(c, &b, 1), EPERM, "nor the program where it was");
	is_int((int)stats_of(c, -1).refs, 1, "there it is still the stream's");
	end("lent alone");
}

static void test_own(void)
{
	struct gpc_move m;
	gpc_block b, again;
	gpc_key k;

	begin(&b, &k);
	lend(b);
	is_int(gpc_acquire(c, 0, &k, 1, &again, 0), 1, "and one the program's");
	move(b, &m);
	refused(gpc_release(c, &b, 1), EPERM, "the program's has moved along");
	is_int(gpc_release(c, &m.to, 1), 0, "and is released there");
	end("lent and own");
}

/* The commit has no answer yet when the stream gets the reference. */
static void test_late(void)
{
	struct gpc_move m;
	gpc_block b;
	gpc_key k;

	begin(&b, &k);
	must(gpc_demote(c, VRAM, RAM, &b, 1, &m, 0, -1));
	must(bytes_copy(c, &m, 1));
	must(gpc_writer_drop(c));
	refused(gpc_commit(c, &m, 1, NULL, 0, -1), ENOTCONN, "nobody commits it");
	lend(b);
	must(gpc_writer_take(c, 0, -1));
	must(gpc_ticket_wait(c, GPC_TICKET_ALL, -1));
	refused(gpc_release(c, &m.to, 1), EPERM, "nothing has moved along");
	is_int((int)stats_of(c, -1).refs, 1, "the stream's is where it was");
	end("lent before the answer");
}

static int body(void)
{
	test_none();
	test_own();
	test_late();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
