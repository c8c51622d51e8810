/* SPDX-License-Identifier: Apache-2.0 */
/* neighbour.h - a writer, and an honest peer beside peers ("brats") that write rubbish.
 *
 * While they do, each of the neighbour's calls ends in time, what it reserved stays its
 * own, what it published is found, and gpc_check speaks of no one but brats.  Then it
 * kills them, and all that they had comes back, their seats too. */
#ifndef GPC_T_NEIGHBOUR_H
#define GPC_T_NEIGHBOUR_H

#include "crew.h"

#include "index/peer/handle.h"
#include "index/segment/lockfile.h"
#include "index/segment/blocks.h"

enum { HOME, ATTIC, PLAY }; /* pools: the neighbour's; RAM behind PLAY; PLAY */
static const uint32_t capacity[] = { 64, 8, 16 };

#define ANCHORS 8    /* a chain the neighbour has published, and holds */
#define STAKES  6    /* what it holds reserved, all the time */
#define BOUND   2000 /* milliseconds for a call, on a busy machine */
#define LIMIT   15   /* seconds for a process */

enum { GATE_SERVED, GATE_STAND, GATE_MESS, GATE_END };
enum { N_PID, N_SEAT = 2 }; /* of each brat */

static struct { /* of this scene */
	int brats, rounds;
	bool holds; /* a brat keeps blocks from being evicted */
} company;

/* ---- the writer ---- */

static void add_pool(gpc *c, uint32_t kind, int number, int demote_to)
{
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = kind,
			      .space = 1,
			      .transit = kind == GPC_RAM ? 4 : 0,
			      .blocks = capacity[number],
			      .demote_to = demote_to };

	must_be(gpc_pool_make(c, &p, NULL, -1), number);
}

static int server(int me)
{
	struct gpc_config cfg = { .vram_blocks = capacity[HOME],
				  .max_blocks = 128,
				  .max_peers = 4,
				  .max_pools = 8,
				  .tick_us = 1,
				  .free_target = -1,
				  .quarantine_ms = 20 };
	gpc *c;

	alarm(LIMIT);
	c = crew_create(cfg, GPC_SERVE);
	add_pool(c, GPC_RAM, ATTIC, -1);
	add_pool(c, GPC_VRAM, PLAY, ATTIC);
	crew_open(GATE_SERVED);
	crew_wait(GATE_END, 1);
	gpc_close(c);
	return me;
}

/* ---- the neighbour ---- */

static gpc_key anchor[ANCHORS + 1]; /* [0]: no parent */
static gpc_block at[ANCHORS], stake[STAKES];
static uint32_t stake_word[STAKES];

static uint32_t reserve(gpc *c, int pool, uint32_t n, gpc_block *b)
{
	uint32_t i;

	must_be(gpc_reserve(c, pool, n, b, NULL, 0, BOUND), n);
	for (i = 0; i < n; i++)
		crew_own(b[i]);
	return n;
}

static void give_back(gpc *c, const gpc_block *b, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		crew_disown(b[i]);
	must_be(gpc_release(c, b, n), 0);
}

static const struct shm_record *record_of(gpc *c, gpc_block b)
{
	return seg_record(&c->seg, pool_record(&c->seg, b));
}

static void settle(gpc *c)
{
	uint32_t i;

	for (i = 0; i <= ANCHORS; i++)
		anchor[i] = i ? crew_key(i) : crew_no_key;
	reserve(c, HOME, ANCHORS, at);
	for (i = 0; i < ANCHORS; i++)
		crew_write(at[i], anchor[i + 1]);
	must_be(gpc_publish(c, anchor, anchor + 1, at, ANCHORS, NULL, 0, -1), ANCHORS);
	reserve(c, HOME, STAKES, stake);
	for (i = 0; i < STAKES; i++)
		stake_word[i] = load_relaxed(&record_of(c, stake[i])->word);
}

/* Everything that it has is as it was. */
static void look_at_own(gpc *c)
{
	gpc_block b[ANCHORS];
	uint32_t i;

	must_be(gpc_acquire(c, 0, anchor + 1, ANCHORS, b, 0), ANCHORS);
	need(!memcmp(b, at, sizeof(b)), "its keys are in other blocks");
	must_be(gpc_release(c, b, ANCHORS), 0);
	for (i = 0; i < ANCHORS; i++)
		need(crew_holds(b[i], anchor[i + 1]), "other bytes in block 0x%x", b[i]);
	for (i = 0; i < STAKES; i++) {
		const struct shm_record *r = record_of(c, stake[i]);

		must_be(load_relaxed(&r->word), stake_word[i]);
		must_be(r->owner, c->peer);
	}
}

/* Keys that are live already: its reservations stay, and are given back. */
static void publish_again(gpc *c)
{
	gpc_block b[3], resident[3];

	reserve(c, HOME, 3, b);
	must_be(gpc_publish(c, anchor, anchor + 1, b, 3,
			    GPC_OPTIONS(gpc_publish_options, .resident = resident), 0, -1),
		0);
	need(!memcmp(resident, at, sizeof(resident)), "resident in other blocks");
	must_be(gpc_release(c, resident, 3), 0);
	give_back(c, b, 3);
}

static void publish_and_drop(gpc *c, int turn)
{
	gpc_key k = crew_key(1000 + (uint64_t)turn);
	gpc_block b, found;

	reserve(c, HOME, 1, &b);
	must_be(gpc_publish(c, &anchor[ANCHORS], &k, &b, 1, NULL, 0, -1), 1);
	must_be(gpc_lookup(c, 0, &k, 1, &found, 0), 1);
	must_be(found, b);
	crew_disown(b);
	must_be(gpc_release(c, &b, 1), 0);
	if (turn % 8)
		return;
	must_be(gpc_drop(c, &b, 1, NULL, 0, -1), 1);
	must_be(gpc_lookup(c, 0, &k, 1, &found, 0), 0);
}

/* Nothing in PLAY that the brats were given, and took. */
static void play(gpc *c)
{
	gpc_block b[16];
	int i, n = gpc_reserve(c, PLAY, 16, b, NULL, GPC_PARTIAL, 0);

	need(n > 0 || n == -ENOSPC || n == -EAGAIN, "PLAY: %d, %s", n, gpc_last_error());
	for (i = 0; i < n; i++)
		crew_own(b[i]);
	if (n > 0)
		give_back(c, b, (uint32_t)n);
}

/* All blocks of a pool but those that the neighbour has anyway. */
static void take_all(gpc *c, int pool)
{
	gpc_block b[64];
	uint32_t n = capacity[pool] - (pool == HOME ? ANCHORS + STAKES : 0);

	give_back(c, b, reserve(c, pool, n, b));
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void live_on(gpc *c)
{
	uint64_t from;
	int i;

	for (i = 1; i <= company.rounds; i++) {
		from = now_ms();
		look_at_own(c);
		publish_again(c);
		if (i % 4 == 0)
			publish_and_drop(c, i);
		if (i % 8 == 0)
			play(c);
		need(now_ms() - from < BOUND, "round %d took %d ms", i, (int)(now_ms() - from));
	}
	if (!company.holds)
		take_all(c, HOME);
}

/* Lines that speak of a brat: none about the index, which only the writer stores; but
 * that its seat is empty is what a brat may say of itself. */
static bool may_be(const char *line)
{
	char seat[32];
	int i;

	for (i = 0; i < company.brats; i++) {
		snprintf(seat, sizeof(seat), "seat %d:", (int)crew->count[N_SEAT + i]);
		if (!strncmp(line, seat, strlen(seat)))
			return true;
		snprintf(seat, sizeof(seat), "of seat %d,", (int)crew->count[N_SEAT + i]);
		if (strstr(line, seat))
			return true;
	}
	return strstr(line, ": reserved by a peer whose seat is empty");
}

static void check_line(void *alive, const char *line)
{
	/* all may store stamps */
	need(strstr(line, ": its stamp") || (alive && may_be(line)), "check: %s", line);
}

/* The brats are dead: what they had is there again, and so are their seats. */
static void come_back(gpc *c)
{
	uint64_t end = now_ms() + BOUND;
	uint32_t first = UINT32_MAX, seat;
	gpc_block b[2];
	gpc *other;
	int i;

	for (i = 0; i < company.brats; i++)
		kill((pid_t)crew->count[N_PID + i], SIGKILL);
	memset(crew->block[PLAY], 0, sizeof(crew->block[PLAY]));
	memset(crew->block[ATTIC], 0, sizeof(crew->block[ATTIC]));
	for (i = 0; i < company.brats; i++) {
		seat = (uint32_t)crew->count[N_SEAT + i];
		first = MIN(first, seat);
		while (lock_test(c->seg.lock_fd, LOCK_PEER(seat)) == 1 ||
		       !crew_seat_is_free(c, (int)seat)) {
			need(now_ms() < end, "a dead brat has its seat for ever");
			crew_breath();
		}
	}
	take_all(c, HOME);
	take_all(c, PLAY);
	take_all(c, ATTIC);
	other = crew_attach("newcomer");
	must_be(crew_seat(other), first);
	must_be(gpc_acquire(other, 0, anchor + 1, 2, b, 0), 2);
	must_be(gpc_release(other, b, 2), 0);
	give_back(other, b, reserve(other, HOME, 2, b));
	must_be(gpc_close(other), 0);
}

static int neighbour(int me)
{
	gpc_key k[STAKES];
	gpc *c;
	int i;

	alarm(LIMIT);
	crew_wait(GATE_SERVED, 1);
	c = crew_attach("neighbour");
	settle(c);
	crew_open(GATE_STAND);
	crew_wait(GATE_MESS, (uint32_t)company.brats);
	live_on(c);
	need(gpc_check(c, check_line, c) >= 0, "check: %s", gpc_last_error());
	come_back(c);
	look_at_own(c);
	for (i = 0; i < STAKES; i++)
		k[i] = crew_key(2000 + (uint64_t)i);
	must_be(gpc_publish(c, NULL, k, stake, STAKES, NULL, 0, -1), STAKES);
	need(gpc_check(c, check_line, NULL) >= 0, "check: %s", gpc_last_error());
	gpc_close(c);
	return me;
}

/* ---- the verdict ---- */

#define WHY (sizeof(crew->why) + 80)

/* A scene; brat: a member that fills in its N_PID and N_SEAT, opens GATE_MESS, and makes
 * trouble until it is killed.  False: why is a sentence. */
static bool neighbour_lives(int (*brat)(int me), char why[WHY])
{
	pid_t writer, other, pid[2];
	int i, a, b;

	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
	writer = crew_fork(server, 0);
	other = crew_fork(neighbour, 0);
	for (i = 0; i < company.brats; i++)
		pid[i] = crew_fork(brat, i);
	a = crew_status(other);
	for (i = 0; i < company.brats; i++)
		crew_kill(pid[i]);
	crew_open(GATE_END);
	b = crew_status(writer);
	snprintf(why, WHY, "neighbour %d, writer %d (from 256 on: signals): %s", a, b, crew->why);
	return !a && !b;
}

#endif
