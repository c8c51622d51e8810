/* SPDX-License-Identifier: Apache-2.0 */
/* states.h - the caches in which a victim dies.
 *
 * The boss builds each table state as writer and worker at once. */
#ifndef GPC_T_STATES_H
#define GPC_T_STATES_H

#include "small.h"

#define MOST 4 /* blocks of a command */

/* What the boss has prepared, and the answer to what it sent. */
static struct {
	gpc_block block[MOST], resident[MOST];
	struct gpc_move move[MOST];
	int n;
	bool answered;
	struct shm_command answer[MOST];
	uint32_t slots;
	uint64_t publish_key; /* of the next publish */
	pid_t other;          /* a peer that is to be dead */
} job;

/* ---- keys and chains ---- */

static inline gpc_key use_key(uint64_t number)
{
	int i;

	for (i = 0; i < small.nused && small.used[i] != number; i++)
		;
	if (i == KEYS)
		bail("too many keys");
	small.used[i] = number;
	small.nused += i == small.nused;
	return crew_key(number);
}

static inline gpc_block put_key(int pool, uint64_t number, uint64_t parent)
{
	gpc_key k = use_key(number), up = parent ? crew_key(parent) : crew_no_key;
	gpc_block b;

	must_be(gpc_reserve(boss, pool, 1, &b, NULL, 0, 1000), 1);
	must_be(gpc_publish(boss, &up, &k, &b, 1,
			    GPC_OPTIONS(gpc_publish_options, .tag = (uint32_t)number), 0, -1),
		1);
	return b;
}

static inline void put_chain(int pool, uint64_t first, int n)
{
	gpc_block b[8];
	int i;

	for (i = 0; i < n; i++)
		b[i] = put_key(pool, first + (uint64_t)i, i ? first + (uint64_t)i - 1 : 0);
	must_be(gpc_release(boss, b, (uint32_t)n), 0);
}

static inline gpc_block where_is(uint64_t number)
{
	gpc_key k = crew_key(number);
	gpc_block b;

	need(gpc_lookup(boss, 0, &k, 1, &b, GPC_QUIET) >= 0, "lookup");
	return b;
}

/* ---- table states ---- */

static void state_empty(void)
{
}

static void state_half(void)
{
	put_chain(VRAM, 1, 4);
	put_chain(RAM, 13, 3);
}

/* Children in another pool, references in the middle of nowhere. */
static void state_full(void)
{
	gpc_key k[2] = { crew_key(1), crew_key(2) };
	gpc_block b[2];

	put_chain(VRAM, 1, 4);
	put_chain(VRAM, 5, 4);
	put_chain(RAM, 13, 4);
	put_chain(RAM, 17, 4);
	put_chain(VRAM, 9, 4);
	must_be(gpc_acquire(boss, 0, k, 2, b, 0), 2);
}

/* A key is on its way to RAM, another one has come there. */
static void state_moving(void)
{
	struct gpc_move m, d;

	state_full();
	must_be(gpc_demote(boss, VRAM, RAM, NULL, 1, &m, 0, 1000), 1);
	must_be(gpc_commit(boss, &m, 1, NULL, 0, -1), 1);
	must_be(gpc_demote(boss, VRAM, RAM, NULL, 1, &d, 0, 1000), 1);
}

/* Both buckets of the key that is published next are full: a relocation. */
static void state_crowded(void)
{
	const gpc_key *mask = &boss->mask[0];
	uint32_t buckets = boss->seg.header.geometry.buckets, n[2] = { 0, 0 }, i;
	struct probe_key to, p;
	uint64_t number;
	gpc_key k = crew_key(100);
	gpc_block b;

	to = probe_prepare(k.w[0] ^ mask->w[0], k.w[1] ^ mask->w[1], buckets);
	for (number = 101; n[0] + n[1] < 2 * SHM_BUCKET; number++) {
		k = crew_key(number);
		p = probe_prepare(k.w[0] ^ mask->w[0], k.w[1] ^ mask->w[1], buckets);
		i = p.first == to.first ? 0 : 1;
		if ((p.first != to.first && p.first != to.second) || p.second == to.first ||
		    p.second == to.second || n[i] == SHM_BUCKET)
			continue;
		n[i]++;
		b = put_key(VRAM, number, 0);
		must_be(gpc_release(boss, &b, 1), 0);
	}
	job.publish_key = 100;
}

/* ---- another peer, which dies ---- */

static int other_peer(int me)
{
	gpc_key k[4] = { crew_key(1), crew_key(2), crew_key(3), crew_key(4) };
	gpc *c = small_attach("other", 0);
	gpc_block b[4];
	int n;

	(void)me;
	n = gpc_acquire(c, 0, k, 4, b, 0);
	need(n >= 0, "acquire: %s", gpc_last_error());
	need(gpc_reserve(c, VRAM, 2, b, NULL, GPC_PARTIAL, 2000) > 0, "reserve: %s",
	     gpc_last_error());
	need(gpc_section_enter(c) >= 0, "enter: %s", gpc_last_error());
	if (n > 0)
		must_be(gpc_drop(c, b, 1, NULL, 0, 0), 0);
	__atomic_store_n(&crew->gate[0], 1, __ATOMIC_SEQ_CST);
	for (;;)
		pause();
	return 0;
}

/* It holds references, a reservation and a section. */
static void other_comes(void)
{
	crew->gate[0] = 0;
	job.other = crew_fork(other_peer, 2);
	while (crew_goes_on(0, 1))
		need(gpc_writer_serve(boss, 1) >= 0, "serve: %s", gpc_last_error());
}

static void other_dies(void)
{
	if (job.other)
		crew_kill(job.other);
	job.other = 0;
}

/* Dead, and no writer has looked. */
static void state_dead(void)
{
	state_half();
	other_comes();
	must_be(gpc_writer_drop(boss), 0);
	other_dies();
}

/* ---- the list ---- */

typedef void (*action)(void);

struct table_state {
	const char *name, *devices;
	action build;
};

static const struct table_state states[] = {
	{ "empty", "none", state_empty },     { "half", "none", state_half },
	{ "full", "none", state_full },       { "moving", "none", state_moving },
	{ "crowded", "none", state_crowded }, { "dead", "none", state_dead },
	{ "mirror", "host", state_full },
};

#endif
