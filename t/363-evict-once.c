/* SPDX-License-Identifier: Apache-2.0 */
/* The writer dies before each store of an eviction in turn.  The command that the next one finds
 * without an answer has its one victim, whichever of the two has chosen it (rule C1). */
#include "cache.h"

#include "handle.h"
#include "ring.h"
#include "stops.h"

enum { BLOCKS = 8, STORES = 1000 };

static gpc *c;                           /* whose command it is; the next writer as well */

static struct shm_seat *seat(gpc *d)
{
	return seg_seat(&d->seg, c->peer);
}

static void submit(gpc *d)
{
	*seg_command(&d->seg, c->peer, seat(d)->head) = (struct shm_command){
		.op = CMD_EVICT, .flags = CF_TAKE, .count = 1, .block = GPC_NONE,
		.to = GPC_NONE, .result = CMD_PENDING };
	store_release(&seat(d)->head, seat(d)->head + 1);
}

static const struct shm_command *command(gpc *d)
{
	return seg_command(&d->seg, c->peer, seat(d)->head - 1);
}

static bool waits(gpc *d)
{
	return load_acquire(&command(d)->result) == CMD_PENDING;
}

static void writer(uint64_t last)
{
	static uint64_t count;
	gpc *d = cache_attach(0, 0);

	must(gpc_writer_take(d, 0, 0));
	while (load_acquire(&seg_state(&d->seg)->recovering))
		must(gpc_writer_serve(d, 1));
	stops.count = &count;
	stops.last = last;
	submit(d);
	stops_begin();
	while (waits(d))
		gpc_writer_serve(d, 1);
}

/* In a process of its own; false: it came to the answer. */
static bool writer_dies(uint64_t last)
{
	int status = 0;
	pid_t pid = fork();

	if (pid < 0)
		bail("no process");
	if (!pid) {
		writer(last);
		_exit(0);
	}
	while (waitpid(pid, &status, 0) < 0)
		;
	return WIFSIGNALED(status);
}

/* As the library does when it has the answer. */
static void give_back(gpc_block b)
{
	const struct shm_record *r = seg_record(&c->seg, (uint32_t)b);

	*seg_command(&c->seg, c->peer, seat(c)->head) = (struct shm_command){
		.op = CMD_FREE, .count = 1, .block = b, .arg = (uint64_t)WORD_GEN(r->word) + 1,
		.result = CMD_PENDING };
	store_release(&seat(c)->head, seat(c)->head + 1);
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

static int body(void)
{
	uint64_t n, key = 1;
	bool died = true, good = true;

	c = cache_new(BLOCKS, 0);
	for (n = 1; n < STORES && died && good; n++) {
		settle(c);
		while (stats_of(c, -1).live < BLOCKS)
			chain_make(c, 0, key++, 1, NULL);
		must(gpc_writer_drop(c));
		died = writer_dies(n);
		must(gpc_writer_take(c, 0, 0));
		good = one_went();
	}
	ok(good, "a writer dies before store %d of an eviction: one block goes", (int)n - 1);
	if (!good)
		diag("answer %d, block %d, %d of %d are live", command(c)->result,
		     command(c)->block, (int)stats_of(c, -1).live, BLOCKS);
	ok(!good || !died, "all of its stores: %d", (int)n - 2);
	settle(c);
	clean(c, "all those evictions");
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
