/* SPDX-License-Identifier: Apache-2.0 */
/* An evict that a writer left without an answer is noted by its successor until it runs again.  Its
 * peer dies before that: nobody runs it, and the note goes with the peer.  Else no reserve would
 * have its blocks at once before the next takeover.
 * Tests: lib/index/writer/grant_again.c lib/index/writer/grant.c */
#include "config.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "t/lib/xfers.h"

enum { VRAM, RAM, BLOCKS = 4 };

struct writer;
static int at_once;

bool __real_grant_now(struct writer *w, uint32_t peer, uint64_t position,
		      const struct shm_command *cmd);
bool __wrap_grant_now(struct writer *w, uint32_t peer, uint64_t position,
		      const struct shm_command *cmd);

bool __wrap_grant_now(struct writer *w, uint32_t peer, uint64_t position,
		      const struct shm_command *cmd)
{
	bool given = __real_grant_now(w, peer, position, cmd);

	at_once += given;
	return given;
}

static int given_at_once(void)
{
	at_once = 0;
	is_int(run1(c, (struct shm_command){ .op = CMD_RESERVE, .pool = RAM, .block = GPC_NONE }),
	       1, "a reserve has its block");
	return at_once;
}

/* A peer in a process of its own, of which only the seat counts; returns its number. */
static uint32_t peer_make(pid_t *ret)
{
	const struct timespec pause_ = { .tv_nsec = 100000 };
	uint32_t *seat =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (seat == MAP_FAILED || (*ret = fork()) < 0)
		bail("no process");
	if (!*ret) {
		store_release(seat, cache_attach(0, 0)->peer + 1);
		for (;;)
			pause();
	}
	while (!load_acquire(seat))
		nanosleep(&pause_, NULL);
	return load_acquire(seat) - 1;
}

static void make(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_pool ram = pool_of(GPC_RAM, BLOCKS, 0);

	cfg.quarantine_ms = 20; /* a successor does not know who it was */
	ram.transit = 2;
	cfg.max_blocks = 12;
	cfg.max_peers = 4;
	c = cache_make(&cfg, NULL);
	pool_new(c, GPC_VRAM, BLOCKS, 0, 0);
	must(gpc_pool_make(c, &ram, NULL, -1));
	chain_make(c, RAM, 1, 1, NULL);
}

static int body(void)
{
	struct shm_command evict = {
		.op = CMD_EVICT, .flags = CF_TAKE, .pool = RAM, .block = GPC_NONE
	};
	int section, i;
	pid_t pid;
	gpc peer;

	make();
	is_int(given_at_once(), 1, "at once");
	peer = *c;
	peer.peer = peer_make(&pid);
	section = must(gpc_section_enter(c));
	put(&peer, &evict, 1);
	while (!load_acquire(&seg_pool(&c->seg, RAM)->dying))
		must(gpc_writer_serve(c, 1));
	must(gpc_writer_drop(c));
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0)
		;
	must(gpc_writer_take(c, 0, 0));
	must(gpc_section_leave(c, section));
	for (i = 0; i < 2000 && load_acquire(&xfers_seat(&peer)->state) != SEAT_FREE; i++)
		must(gpc_writer_serve(c, 1));
	is_int(load_acquire(&xfers_seat(&peer)->state), SEAT_FREE,
	       "the peer of an evict that nobody answered has died");
	is_int(given_at_once(), 1, "at once behind that, too");
	is_int(seg_pool(&c->seg, RAM)->reserved, 2, "and the victim is nobody's");
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
