/* SPDX-License-Identifier: Apache-2.0 */
/* A victim that a reserve waits for is that one's from the moment on when nobody reads it any more:
 * it is free for nobody in between.  And a peer that has its seat's lock is not taken for lost,
 * however often the writer looks.
 * Tests: lib/index/writer/retire.c lib/index/writer/reap.c */
#include "config.h"

#include <pthread.h>
#include "index/peer/handle.h"
#include "t/lib/cache.h"

struct writer;
static gpc *writer, *c;
static gpc_block got = GPC_NONE;

static void *reserve(void *arg)
{
	(void)arg;
	must(gpc_reserve(c, 0, 1, &got, NULL, 0, 60000));
	return NULL;
}

static uint32_t state_of(gpc_block block)
{
	return WORD_STATE(load_acquire(&seg_record(&c->seg, pool_record(&c->seg, block))->word));
}

static void test_promised(void)
{
	gpc_block victim;
	pthread_t thread;

	serve_begin(writer);
	chain_make(c, 0, 1, 1, &victim);
	serve_end();
	if (pthread_create(&thread, NULL, reserve, NULL))
		bail("no thread");
	while (state_of(victim) == LIVE || state_of(victim) == DYING)
		must(gpc_writer_serve(writer, 0));
	is_int(state_of(victim), RESERVED, "a victim becomes the reservation that waits for it");
	serve_begin(writer);
	pthread_join(thread, NULL);
	is_int(got, victim, "and is answered");
	must(gpc_release(c, &got, 1));
	done(c);
	clean(c, "a victim");
	serve_end();
}

static uint32_t looks;

void __real_reap_dead(struct writer *w);
void __wrap_reap_dead(struct writer *w);
void __wrap_reap_dead(struct writer *w)
{
	__real_reap_dead(w);
	looks++;
}

static void test_seated(void)
{
	int section = must(gpc_section_enter(c));

	looks = 0;
	while (looks < 3)
		must(gpc_writer_serve(writer, 1));
	is_int(stats_of(c, (int)c->peer).sections, 1,
	       "of a peer that holds its lock no section is ended");
	gpc_section_leave(c, section);
}

static int body(void)
{
	cache_thread = false;
	writer = cache_new(1, 0);
	c = cache_attach(0, 0);
	test_seated();
	test_promised();
	must(gpc_close(c));
	cache_end(writer);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
