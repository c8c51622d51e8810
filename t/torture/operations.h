/* SPDX-License-Identifier: Apache-2.0 */
/* operations.h - what a victim dies in, and in which cache.
 *
 * The boss builds a table state as writer and worker at once, prepares what the operation
 * needs, and sends the command that a writer is to die in, without waiting. */
#ifndef GPC_T_OPERATIONS_H
#define GPC_T_OPERATIONS_H

#include "small.h"

#define MOST 4 /* blocks of a command */

/* What a second run of a command may do otherwise. */
enum {
	EVICTS = 1,  /* other blocks of the same pools, and idle keys more may be gone */
	CANCELS = 2, /* -ESTALE: it was given back already */
};

/* What the boss has prepared, and the answer to what it sent. */
static struct {
	gpc_block block[MOST], resident[MOST];
	struct gpc_move move[MOST];
	int n;
	bool answered;
	struct shm_command answer[MOST];
	uint32_t slots;
	uint64_t publish_key; /* of the next publish */
	pid_t other;	      /* a peer that is to be dead */
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
			    GPC_OPTIONS(gpc_publish_options, .tag = (uint32_t)number), 0,
			    -1), 1);
	return b;
}

static inline void put_chain(int pool, uint64_t first, int n)
{
	gpc_block b[8];
	int i;

	for (i = 0; i < n; i++)
		b[i] = put_key(pool, first + (uint64_t)i,
			       i ? first + (uint64_t)i - 1 : 0);
	must_be(gpc_release(boss, b, (uint32_t)n), 0);
}

static inline gpc_block where_is(uint64_t number)
{
	gpc_key k = crew_key(number);
	gpc_block b;

	must(gpc_lookup(boss, 0, &k, 1, &b, GPC_QUIET) >= 0, "lookup");
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
	gpc_key k[2] = {crew_key(1), crew_key(2)};
	gpc_block b[2];

	put_chain(VRAM, 1, 4);
	put_chain(VRAM, 5, 4);
	put_chain(RAM, 13, 4);
	put_chain(RAM, 17, 4);
	put_chain(VRAM, 9, 4);
	must_be(gpc_acquire(boss, 0, k, 2, b, 0), 2);
}

/* Two keys are detached, one is on its way to RAM. */
static void state_detached(void)
{
	struct gpc_move m[2], d;
	gpc_block b[2];

	state_full();
	must_be(gpc_reserve(boss, VRAM, 2, b,
			    GPC_OPTIONS(gpc_reserve_options, .moves = m), 0, 1000), 2);
	must_be(gpc_demote(boss, VRAM, RAM, NULL, 1, &d, 0, 1000), 1);
}

/* Both buckets of the key that is published next are full: a relocation. */
static void state_crowded(void)
{
	const gpc_key *mask = &boss->mask[0];
	uint32_t buckets = boss->seg.header.geometry.buckets, n[2] = {0, 0}, i;
	struct probe_key to, p;
	uint64_t number;
	gpc_key k = crew_key(100);
	gpc_block b;

	to = probe_prepare(k.w[0] ^ mask->w[0], k.w[1] ^ mask->w[1], buckets);
	for (number = 101; n[0] + n[1] < 2 * SHM_BUCKET; number++) {
		k = crew_key(number);
		p = probe_prepare(k.w[0] ^ mask->w[0], k.w[1] ^ mask->w[1], buckets);
		i = p.first == to.first ? 0 : 1;
		if ((p.first != to.first && p.first != to.second) ||
		    p.second == to.first || p.second == to.second || n[i] == SHM_BUCKET)
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
	gpc_key k[4] = {crew_key(1), crew_key(2), crew_key(3), crew_key(4)};
	gpc *c = small_attach("other", 0);
	gpc_block b[4];
	int n;

	(void)me;
	n = gpc_acquire(c, 0, k, 4, b, 0);
	must(n >= 0, "acquire: %s", gpc_last_error());
	must(gpc_reserve(c, VRAM, 2, b, NULL, GPC_PARTIAL, 2000) > 0, "reserve: %s",
	     gpc_last_error());
	must(gpc_section_enter(c) >= 0, "enter: %s", gpc_last_error());
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
		must(gpc_writer_serve(boss, 1) >= 0, "serve: %s", gpc_last_error());
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

/* ---- commands without waiting for an answer ---- */

static void take_job(gpc *c, struct op *op)
{
	struct ref_sum sum = {0};
	uint32_t i;

	job.answered = true;
	for (i = 0; i < op->n; i++) {
		struct shm_command *a = &job.answer[i];

		*a = *ring_slot(c, op, i);
		if (job.answer[0].result <= (int32_t)i || a->op == CMD_COMMIT)
			continue;
		if (job.answer[0].op == CMD_RESERVE ||
		    (job.answer[0].op == CMD_EVICT && (job.answer[0].flags & CF_TAKE)))
			request_own(c, a->block, &sum);
		if (job.answer[0].op >= CMD_RESERVE && job.answer[0].op <= CMD_PROMOTE &&
		    a->to >= 0)
			request_own(c, a->to, &sum);
		if (job.answer[0].op == CMD_PROMOTE && a->victim_to)
			request_own(c, (gpc_block)a->victim_to - 1, &sum);
	}
	refs_account(c, &sum);
}

static inline void send_group(struct shm_command *cmds, uint32_t n)
{
	struct op *op = ring_op(n, 0);

	cmds[0].count = n;
	op->group = true;
	op->take = take_job;
	job.slots = n;
	must_be(ring_submit(boss, op, cmds), 0);
}

static void send_reserve(void)
{
	struct shm_command cmd[3] = {{.op = CMD_RESERVE, .pool = VRAM}};

	send_group(cmd, 3);
}

static void send_reserve_moves(void)
{
	struct shm_command cmd[3] = {
		{.op = CMD_RESERVE, .pool = VRAM, .flags = CF_MOVES}};

	send_group(cmd, 3);
}

static void send_stock(void)
{
	struct shm_command cmd[4] = {
		{.op = CMD_RESERVE, .pool = VRAM, .flags = CF_PARTIAL}};

	send_group(cmd, 4);
}

static void send_evict(void)
{
	struct shm_command cmd[2] = {{.op = CMD_EVICT, .pool = VRAM}};

	send_group(cmd, 2);
}

static void send_evict_take(void)
{
	struct shm_command cmd[2] = {{.op = CMD_EVICT, .pool = VRAM, .flags = CF_TAKE}};

	send_group(cmd, 2);
}

static void send_evict_ram(void)
{
	struct shm_command cmd[2] = {{.op = CMD_EVICT, .pool = RAM, .flags = CF_TAKE}};

	send_group(cmd, 2);
}

static void send_demote(void)
{
	struct shm_command cmd[2] = {{.op = CMD_DEMOTE,
				      .pool = VRAM,
				      .to_pool = SHM_NO_POOL,
				      .any = 1,
				      .block = GPC_NONE},
				     {.block = GPC_NONE}};

	send_group(cmd, 2);
}

/* The chain in RAM, which the boss holds. */
static void prepare_promote(void)
{
	gpc_key k[3] = {crew_key(13), crew_key(14), crew_key(15)};

	job.n = gpc_acquire(boss, 0, k, 3, job.block, 0);
	must(job.n >= 0, "acquire: %s", gpc_last_error());
}

static void send_promote(void)
{
	struct shm_command cmd[MOST] = {
		{.op = CMD_PROMOTE, .to_pool = VRAM, .flags = CF_MOVES}};
	int i;

	for (i = 0; i < job.n; i++)
		cmd[i].block = job.block[i];
	if (job.n)
		send_group(cmd, (uint32_t)job.n);
}

static void prepare_demoted(void)
{
	job.n = gpc_demote(boss, VRAM, RAM, NULL, 2, job.move, 0, 1000);
	must(job.n >= 0 || job.n == -ENOSPC, "demote: %s", gpc_last_error());
	job.n = MAX(job.n, 0);
}

static void prepare_promoted(void)
{
	prepare_promote();
	if (job.n)
		job.n = gpc_promote(boss, job.block, (uint32_t)job.n, VRAM, job.move,
				    NULL, 0, 1000);
	must(job.n >= 0 || job.n == -ENOSPC, "promote: %s", gpc_last_error());
	job.n = MAX(job.n, 0);
}

/* Victims of a reservation, which are detached. */
static void prepare_detached(void)
{
	struct gpc_move m[MOST];
	int i, got = gpc_reserve(boss, VRAM, 3, job.block,
				 GPC_OPTIONS(gpc_reserve_options, .moves = m), 0, 1000);

	must(got >= 0 || got == -ENOSPC, "reserve: %s", gpc_last_error());
	for (i = 0; i < got; i++)
		if (m[i].to >= 0)
			job.move[job.n++] = m[i];
}

static void send_commit_as(uint8_t flags)
{
	struct shm_command cmd[MOST] = {{0}};
	struct ref_sum sum = {0};
	int i;

	for (i = 0; i < job.n; i++) {
		cmd[i] = (struct shm_command){.op = CMD_COMMIT,
					      .flags = flags,
					      .block = job.move[i].from,
					      .to = job.move[i].to,
					      .move_op = job.move[i].op & ~MOVE_NOT_HELD};
		hold_step(boss, pool_record(&boss->seg, job.move[i].to), job.move[i].to,
			  HOLD_PART, &sum);
	}
	refs_account(boss, &sum);
	if (job.n)
		send_group(cmd, (uint32_t)job.n);
}

static void send_commit(void)
{
	send_commit_as(0);
}

static void send_cancel(void)
{
	send_commit_as(CF_CANCEL);
}

static void prepare_blocks(void)
{
	job.n = gpc_reserve(boss, VRAM, 3, job.block, NULL, GPC_PARTIAL, 1000);
	must(job.n >= 0 || job.n == -ENOSPC, "reserve: %s", gpc_last_error());
	job.n = MAX(job.n, 0);
}

/* New keys below key 2, if that is live; or the one whose buckets are full. */
static void send_publish(void)
{
	gpc_key k[MOST], up[MOST];
	bool chain = where_is(2) >= 0;
	gpc_ticket t;
	int i;

	for (i = 0; i < job.n; i++) {
		k[i] = use_key(job.publish_key + (uint64_t)i);
		up[i] = i ? k[i - 1] : chain ? crew_key(2) : crew_no_key;
		must_be(gpc_publish(boss, &up[i], &k[i], &job.block[i], 1,
				    GPC_OPTIONS(gpc_publish_options,
						.tag = (uint32_t)job.publish_key + (uint32_t)i,
						.resident = &job.resident[i],
						.ticket = &t), 0, 0),
			0);
	}
}

/* Of keys that live: in VRAM, and in RAM, where it is a promotion. */
static void send_publish_known(void)
{
	static const uint64_t known[] = {1, 13, 14}, parent[] = {0, 0, 13};
	gpc_key k, up;
	gpc_ticket t;
	int i;

	for (i = 0; i < MIN(job.n, 3); i++) {
		k = use_key(known[i]);
		up = parent[i] ? crew_key(parent[i]) : crew_no_key;
		must_be(gpc_publish(boss, &up, &k, &job.block[i], 1,
				    GPC_OPTIONS(gpc_publish_options,
						.tag = (uint32_t)known[i],
						.resident = &job.resident[i],
						.ticket = &t), 0, 0),
			0);
	}
}

static void send_free(void)
{
	must_be(gpc_release(boss, job.block, (uint32_t)job.n), 0);
}

/* With all that hangs below. */
static void send_drop(void)
{
	gpc_block b[2] = {where_is(1), where_is(14)};
	uint32_t i, n = 0;

	for (i = 0; i < 2; i++)
		if (b[i] >= 0)
			b[n++] = b[i];
	must_be(gpc_drop(boss, b, n, NULL, 0, 0), 0);
}

static inline void send_one(struct shm_command cmd)
{
	struct op *op = ring_op(1, 0);

	cmd.count = 1;
	op->take = take_job;
	job.slots = 1;
	must_be(ring_submit(boss, op, &cmd), 0);
}

static void send_clear_tag(void)
{
	send_one((struct shm_command){.op = CMD_CLEAR, .pool = SHM_NO_POOL, .tag = 2});
}

static void send_clear(void)
{
	send_one((struct shm_command){.op = CMD_CLEAR, .pool = VRAM});
}

static void send_pool(void)
{
	seg_seat(&boss->seg, boss->peer)->request = (struct shm_pool){
		.range = 4,
		.blocks = 4,
		.kind = GPC_VRAM,
		.space = 1,
		.demote_to = -1,
	};
	send_one((struct shm_command){.op = CMD_POOL});
}

static void prepare_pool(void)
{
	struct gpc_pool p = {.size = sizeof(p),
			     .kind = GPC_VRAM,
			     .space = 1,
			     .blocks = 4,
			     .demote_to = -1};
	gpc_block b;

	job.n = gpc_pool_add(boss, &p, -1);
	must(job.n > VRAM, "pool_add: %s", gpc_last_error());
	b = put_key(job.n, 50, 0);
	must_be(gpc_release(boss, &b, 1), 0);
}

static void send_remove(void)
{
	send_one((struct shm_command){
		.op = CMD_CLEAR,
		.flags = CF_REMOVE,
		.pool = (uint8_t)job.n,
		.generation = seg_pool(&boss->seg, (uint32_t)job.n)->generation});
}

/* ---- answers ---- */

static inline void put_answers(char *to, size_t n)
{
	size_t at = strlen(to);
	uint32_t i;

	for (i = 0; i < job.slots && job.answered; i++) {
		const struct shm_command *a = &job.answer[i];

		at += (size_t)snprintf(to + at, n - at, " [%d", a->result);
		if (job.slots > 1 && job.answer[0].result > (int32_t)i)
			at += (size_t)snprintf(to + at, n - at, " 0x%x 0x%x %d",
					       (unsigned)a->block, (unsigned)a->to,
					       (int)a->tag);
		at += (size_t)snprintf(to + at, n - at, "]");
	}
	for (i = 0; i < (uint32_t)job.n; i++)
		at += (size_t)snprintf(to + at, n - at, " 0x%x",
				       (unsigned)job.resident[i]);
}

static inline bool answers_are(const struct shm_command *want, int again)
{
	uint32_t i;

	for (i = 0; i < job.slots; i++) {
		int32_t is = job.answer[i].result;

		if (is != want[i].result && !(again == CANCELS && is == -ESTALE))
			return false;
	}
	return true;
}

/* ---- what workers do ---- */

static struct {
	gpc *c;
	gpc_key key[2];
	gpc_block block[2];
	int n, section;
} mine;

static void ready_keys(void)
{
	int i;

	for (i = 0; i < 2; i++)
		mine.key[i] = crew_key((uint64_t)i + 1);
	mine.n = gpc_lookup(mine.c, 0, mine.key, 2, mine.block, GPC_QUIET);
	must(mine.n >= 0, "lookup: %s", gpc_last_error());
}

static void ready_refs(void)
{
	ready_keys();
	mine.n = gpc_acquire(mine.c, 0, mine.key, 2, mine.block, 0);
	must(mine.n >= 0, "acquire: %s", gpc_last_error());
}

static void ready_blocks(void)
{
	ready_keys();
	mine.n = gpc_reserve(mine.c, VRAM, 2, mine.block, NULL, GPC_PARTIAL, 2000);
	must(mine.n >= 0 || mine.n == -ENOSPC, "reserve: %s", gpc_last_error());
	mine.n = MAX(mine.n, 0);
}

/* Two leaves: dropping one says nothing of the other. */
static void ready_leaves(void)
{
	mine.key[0] = crew_key(4);
	mine.key[1] = crew_key(15);
	mine.n = gpc_lookup(mine.c, 0, mine.key, 2, mine.block, GPC_QUIET);
	must(mine.n >= 0, "lookup: %s", gpc_last_error());
}

static void ready_section(void)
{
	ready_keys();
	mine.section = gpc_section_enter(mine.c);
	must(mine.section >= 0, "enter: %s", gpc_last_error());
}

static void run_ref(void)
{
	must_be(gpc_ref(mine.c, mine.key, mine.block, (uint32_t)mine.n), mine.n);
}

static void run_unref(void)
{
	must_be(gpc_release(mine.c, mine.block, (uint32_t)mine.n), 0);
}

static void run_acquire(void)
{
	must(gpc_acquire(mine.c, 0, mine.key, 2, mine.block, 0) >= 0, "acquire");
}

static void run_lookup(void)
{
	must(gpc_lookup(mine.c, 0, mine.key, 2, mine.block, 0) >= 0, "lookup");
}

static void run_enter(void)
{
	must(gpc_section_enter(mine.c) >= 0, "enter");
}

static void run_leave(void)
{
	gpc_section_leave(mine.c, mine.section);
}

static void run_drop(void)
{
	if (mine.n == 2)
		must_be(gpc_drop(mine.c, mine.block, 2, NULL, 0, 0), 0);
}

static void run_publish(void)
{
	gpc_key k[2] = {crew_key(60), crew_key(61)};
	gpc_key up[2] = {crew_no_key, k[0]};

	must(gpc_publish(mine.c, up, k, mine.block, (uint32_t)mine.n,
			 GPC_OPTIONS(gpc_publish_options, .tag = 60), 0, 0) >= 0,
	     "publish");
}

static void run_attach(void)
{
	mine.c = small_attach("stepped", 2);
}

static void run_close(void)
{
	gpc_close(mine.c);
}

static void writer_sleeps(void)
{
	seg_shared(&boss->seg)->sleeping = 1;
}

/* ---- the lists ---- */

typedef void (*action)(void);

struct command { /* that a writer dies in */
	const char *name;
	action prepare, send;
	int again;
};

static const struct command commands[] = {
	{"nothing", NULL, NULL, 0},
	{"publish", prepare_blocks, send_publish, 0},
	{"publish-known", prepare_blocks, send_publish_known, 0},
	{"free", prepare_blocks, send_free, 0},
	{"reserve", NULL, send_reserve, EVICTS},
	{"reserve-moves", NULL, send_reserve_moves, EVICTS},
	{"stock", NULL, send_stock, EVICTS},
	{"evict", NULL, send_evict, EVICTS},
	{"evict-take", NULL, send_evict_take, EVICTS},
	{"evict-ram", NULL, send_evict_ram, EVICTS},
	{"demote", NULL, send_demote, EVICTS},
	{"commit-demote", prepare_demoted, send_commit, 0},
	{"cancel-demote", prepare_demoted, send_cancel, CANCELS},
	{"promote", prepare_promote, send_promote, EVICTS},
	{"commit-promote", prepare_promoted, send_commit, 0},
	{"cancel-promote", prepare_promoted, send_cancel, CANCELS},
	{"commit-detached", prepare_detached, send_commit, 0},
	{"cancel-detached", prepare_detached, send_cancel, CANCELS},
	{"drop", NULL, send_drop, 0},
	{"clear-tag", NULL, send_clear_tag, 0},
	{"clear", NULL, send_clear, 0},
	{"pool-add", NULL, send_pool, 0},
	{"pool-remove", prepare_pool, send_remove, 0},
	{"reap", other_comes, other_dies, 0},
};

struct work { /* that a worker dies in */
	const char *name;
	action ready, run, beside; /* beside: the boss, before the first step */
};

static const struct work works[] = {
	{"ref", ready_keys, run_ref, NULL},
	{"unref", ready_refs, run_unref, NULL},
	{"give-back", ready_blocks, run_unref, NULL},
	{"acquire", ready_keys, run_acquire, NULL},
	{"lookup", ready_keys, run_lookup, NULL},
	{"enter", NULL, run_enter, NULL},
	{"leave", ready_section, run_leave, NULL},
	{"submit-drop", ready_leaves, run_drop, NULL},
	{"submit-publish", ready_blocks, run_publish, NULL},
	{"submit-wakes", ready_leaves, run_drop, writer_sleeps},
	{"attach", NULL, run_attach, NULL},
	{"close", ready_refs, run_close, NULL},
};

struct table_state {
	const char *name, *devices;
	action build;
};

static const struct table_state states[] = {
	{"empty", "none", state_empty},	    {"half", "none", state_half},
	{"full", "none", state_full},	    {"detached", "none", state_detached},
	{"crowded", "none", state_crowded}, {"dead", "none", state_dead},
	{"mirror", "host", state_full},
};

#endif
