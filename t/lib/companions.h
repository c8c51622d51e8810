/* SPDX-License-Identifier: Apache-2.0 */
/* companions.h - a leader with blocks that it reads and blocks that it writes, companions, and a
 * rival who wants all blocks: is what the leader had kept, and does it come back? */
#ifndef GPC_T_COMPANIONS_H
#define GPC_T_COMPANIONS_H

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "cache.h"

#include "index/peer/companion.h"
#include "index/peer/handle.h"
#include "index/segment/lockfile.h"
#include "index/table/state.h"

enum { BLOCKS = 8, SLOTS = 4 };

static gpc *c; /* the writer, and the rival who wants all blocks */

static uint32_t quarantine_ms = 1; /* of the next cache */

/* What processes tell each other. */
static struct told {
	uint64_t ready, go, stores, life;
	int32_t leader, child;
	gpc_block held, slot[SLOTS];
	uint64_t bytes[BLOCKS]; /* of the blocks: who has written there */
} * told;

TAP_FN void serves(int times)
{
	while (times--) {
		c->writer->next_housekeep_ns = 0;
		must(gpc_writer_serve(c, 1));
	}
}

TAP_FN void begin(uint32_t seats)
{
	struct gpc_config cfg = cache_config(BLOCKS, 0);

	memset(told, 0, sizeof(*told));
	cfg.max_peers = seats;
	cfg.quarantine_ms = quarantine_ms;
	cfg.max_blocks = 2 * BLOCKS;
	c = cache_make(&cfg, NULL);
	chain_make(c, 0, 1, 1, NULL);
}

/* The key that leaders read; the rival may have taken its block. */
TAP_FN void renew(void)
{
	if (find(c, 1) < 0)
		chain_make(c, 0, 1, 1, NULL);
}

TAP_FN void ends(const char *what)
{
	serves(4);
	clean(c, what);
	cache_end(c);
}

/* ---- who takes part ---- */

TAP_FN int attach_to(int32_t leader, uint64_t life, gpc **ret)
{
	struct gpc_attach_options opt = { .size = sizeof(opt),
					  .dir = cache_dir,
					  .label = "companion",
					  .leader = leader,
					  .life = life };

	return gpc_attach(cache_name, &opt, 0, ret);
}

/* Reads one block, and has some to be written. */
TAP_FN gpc *leads(void)
{
	gpc *d = cache_attach(0, 0);
	gpc_key k = key_of(d, 1), other = key_of(d, 2);
	struct gpc_claim claim;

	if (gpc_acquire(d, 0, &k, 1, &told->held, 0) != 1 ||
	    gpc_reserve(d, 0, SLOTS, told->slot, NULL, 0, 5000) != SLOTS ||
	    gpc_claim(d, &other, told->slot, 1, &claim, 0, 5000) != 1 || gpc_section_enter(d) < 0)
		bail("the leader: %s", gpc_last_error());
	told->leader = (int32_t)d->peer + 1;
	told->life = info_of(d).life;
	return d;
}

TAP_FN void leader(void)
{
	leads();
}

TAP_FN void companion(void)
{
	gpc *d;

	must(attach_to(told->leader, told->life, &d));
}

/* Runs `what`, and then lives until it is killed. */
TAP_FN pid_t companion_run(void (*what)(void))
{
	uint64_t ready = load_acquire(&told->ready);
	pid_t pid = fork();

	if (pid < 0)
		bail("no process");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		what();
		order_add64(&told->ready, 1);
		for (;;)
			pause();
	}
	while (load_acquire(&told->ready) == ready) {
		if (waitpid(pid, NULL, WNOHANG) == pid)
			bail("one that was to live has ended");
		serves(1);
	}
	return pid;
}

TAP_FN void kills(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* ---- what is so ---- */

TAP_FN const struct shm_seat *seat(void)
{
	return seg_seat(&c->seg, (uint32_t)told->leader - 1);
}

/* Is this one of the blocks that the leader had? */
TAP_FN bool is_leaders(gpc_block b)
{
	int i;

	for (i = 0; i < SLOTS; i++)
		if (told->slot[i] == b)
			return true;
	return told->held == b;
}

/* The rival takes what it can get, writes there, and gives it back. */
TAP_FN bool rival_gets_leaders(void)
{
	gpc_block b[BLOCKS];
	int i, n = gpc_reserve(c, 0, BLOCKS, b, NULL, GPC_PARTIAL, 0);
	bool any = false;

	for (i = 0; i < n; i++) {
		any |= is_leaders(b[i]);
		told->bytes[b[i]] = 1;
	}
	if (n > 0)
		must(gpc_release(c, b, (uint32_t)n));
	return any;
}

/* However often it is looked at. */
TAP_FN bool is_kept(void)
{
	int i;

	for (i = 0; i < 30; i++) {
		serves(1);
		if (seat()->state == SEAT_FREE || rival_gets_leaders() ||
		    *seg_cell(&c->seg, (uint32_t)told->held, told->leader - 1) != 1)
			return false;
	}
	return true;
}

TAP_FN bool comes_back(void)
{
	int i;

	for (i = 0; i < 2000 && (seat()->state != SEAT_FREE || stats_of(c, -1).dying); i++)
		serves(1);
	return i < 2000 && gpc_pool_available(c, 0) == BLOCKS && rival_gets_leaders();
}

TAP_FN void told_make(void)
{
	told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (told == MAP_FAILED)
		bail("no shared page");
}

#endif
