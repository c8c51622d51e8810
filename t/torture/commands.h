/* SPDX-License-Identifier: Apache-2.0 */
/* commands.h - the commands that a writer dies in.
 *
 * The boss prepares what a command needs, and sends it without waiting. */
#ifndef GPC_T_COMMANDS_H
#define GPC_T_COMMANDS_H

#include "states.h"

/* What a second run of a command may do otherwise. */
enum {
	EVICTS = 1,  /* other blocks of the same pools, and idle keys more may be gone */
	CANCELS = 2, /* -ESTALE: it was given back already */
};

/* ---- commands without waiting for an answer ---- */

/* Where the bytes of this slot go, as the answer to a command of that kind says. */
static inline gpc_block answered_to(uint32_t op, const struct shm_command *a)
{
	return op == CMD_DEMOTE || op == CMD_PROMOTE ? a->move.to : GPC_NONE;
}

static void take_job(gpc *c, struct op *op)
{
	uint32_t kind = ring_entry(c, op, 0)->op;
	struct ref_sum sum = { 0 };
	uint32_t i;

	job.answered = true;
	for (i = 0; i < op->n; i++) {
		struct shm_command *a = &job.answer[i];

		*a = *ring_entry(c, op, i);
		if (job.answer[0].result <= (int32_t)i || a->op == CMD_COMMIT)
			continue;
		if (kind == CMD_RESERVE || (kind == CMD_EVICT && (job.answer[0].flags & CF_TAKE)))
			request_own(c, a->block, &sum);
		if (answered_to(kind, a) >= 0)
			request_own(c, answered_to(kind, a), &sum);
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
	struct shm_command cmd[3] = { { .op = CMD_RESERVE, .pool = VRAM } };

	send_group(cmd, 3);
}

static void send_stock(void)
{
	struct shm_command cmd[4] = { { .op = CMD_RESERVE, .pool = VRAM, .flags = CF_PARTIAL } };

	send_group(cmd, 4);
}

static void send_evict(void)
{
	struct shm_command cmd[2] = { { .op = CMD_EVICT, .pool = VRAM } };

	send_group(cmd, 2);
}

static void send_evict_take(void)
{
	struct shm_command cmd[2] = { { .op = CMD_EVICT, .pool = VRAM, .flags = CF_TAKE } };

	send_group(cmd, 2);
}

static void send_evict_ram(void)
{
	struct shm_command cmd[2] = { { .op = CMD_EVICT, .pool = RAM, .flags = CF_TAKE } };

	send_group(cmd, 2);
}

static void send_demote(void)
{
	struct shm_command cmd[2] = { { .op = CMD_DEMOTE,
					.pool = VRAM,
					.move = { .to_pool = SHM_NO_POOL, .any = 1 },
					.block = GPC_NONE },
				      { .block = GPC_NONE } };

	send_group(cmd, 2);
}

/* The chain in RAM, which the boss holds. */
static void prepare_promote(void)
{
	gpc_key k[3] = { crew_key(13), crew_key(14), crew_key(15) };

	job.n = gpc_acquire(boss, 0, k, 3, job.block, 0);
	need(job.n >= 0, "acquire: %s", gpc_last_error());
}

static void send_promote(void)
{
	struct shm_command cmd[MOST] = { { .op = CMD_PROMOTE, .move.to_pool = VRAM } };
	int i;

	for (i = 0; i < job.n; i++)
		cmd[i].block = job.block[i];
	if (job.n)
		send_group(cmd, (uint32_t)job.n);
}

static void prepare_demoted(void)
{
	job.n = gpc_demote(boss, VRAM, RAM, NULL, 2, job.move, 0, 1000);
	need(job.n >= 0 || job.n == -ENOSPC, "demote: %s", gpc_last_error());
	job.n = MAX(job.n, 0);
}

static void prepare_promoted(void)
{
	prepare_promote();
	if (job.n)
		job.n = gpc_promote(boss, job.block, (uint32_t)job.n, VRAM, job.move, 0, 1000);
	need(job.n >= 0 || job.n == -ENOSPC, "promote: %s", gpc_last_error());
	job.n = MAX(job.n, 0);
}

static void send_commit_as(uint16_t flags)
{
	struct shm_command cmd[MOST] = { { .op = CMD_COMMIT } };
	struct ref_sum sum = { 0 };
	int i;

	for (i = 0; i < job.n; i++) {
		cmd[i] = (struct shm_command){ .op = CMD_COMMIT,
					       .flags = flags,
					       .block = job.move[i].from,
					       .commit.to = job.move[i].to,
					       .commit.move_op = job.move[i].op & ~MOVE_NOT_HELD };
		hold_step(boss, pool_record(&boss->seg, job.move[i].to), job.move[i].to, HOLD_PART,
			  &sum);
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
	need(job.n >= 0 || job.n == -ENOSPC, "reserve: %s", gpc_last_error());
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
						.resident = &job.resident[i], .ticket = &t),
				    0, 0),
			0);
	}
}

/* Of keys that live: in VRAM, and in RAM, where it is a promotion. */
static void send_publish_known(void)
{
	static const uint64_t known[] = { 1, 13, 14 }, parent[] = { 0, 0, 13 };
	gpc_key k, up;
	gpc_ticket t;
	int i;

	for (i = 0; i < MIN(job.n, 3); i++) {
		k = use_key(known[i]);
		up = parent[i] ? crew_key(parent[i]) : crew_no_key;
		must_be(gpc_publish(boss, &up, &k, &job.block[i], 1,
				    GPC_OPTIONS(gpc_publish_options, .tag = (uint32_t)known[i],
						.resident = &job.resident[i], .ticket = &t),
				    0, 0),
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
	gpc_block b[2] = { where_is(1), where_is(14) };
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
	send_one((struct shm_command){ .op = CMD_CLEAR, .pool = SHM_NO_POOL, .clear.tag = 2 });
}

static void send_clear(void)
{
	send_one((struct shm_command){ .op = CMD_CLEAR, .pool = VRAM });
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
	send_one((struct shm_command){ .op = CMD_POOL });
}

static void prepare_pool(void)
{
	struct gpc_pool p = {
		.size = sizeof(p), .kind = GPC_VRAM, .space = 1, .blocks = 4, .demote_to = -1
	};
	gpc_block b;

	job.n = gpc_pool_make(boss, &p, NULL, -1);
	need(job.n > VRAM, "pool_add: %s", gpc_last_error());
	b = put_key(job.n, 50, 0);
	must_be(gpc_release(boss, &b, 1), 0);
}

static void send_remove(void)
{
	send_one((struct shm_command){ .op = CMD_CLEAR,
				       .flags = CF_REMOVE,
				       .pool = (uint8_t)job.n,
				       .clear.generation =
					       seg_pool(&boss->seg, (uint32_t)job.n)->generation });
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
			at += (size_t)snprintf(to + at, n - at, " 0x%x 0x%x", (unsigned)a->block,
					       (unsigned)answered_to(job.answer[0].op, a));
		at += (size_t)snprintf(to + at, n - at, "]");
	}
	for (i = 0; i < (uint32_t)job.n; i++)
		at += (size_t)snprintf(to + at, n - at, " 0x%x", (unsigned)job.resident[i]);
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

/* ---- the list ---- */

struct command { /* that a writer dies in */
	const char *name;
	action prepare, send;
	int again;
};

static const struct command commands[] = {
	{ "nothing", NULL, NULL, 0 },
	{ "publish", prepare_blocks, send_publish, 0 },
	{ "publish-known", prepare_blocks, send_publish_known, 0 },
	{ "free", prepare_blocks, send_free, 0 },
	{ "reserve", NULL, send_reserve, EVICTS },
	{ "stock", NULL, send_stock, EVICTS },
	{ "evict", NULL, send_evict, EVICTS },
	{ "evict-take", NULL, send_evict_take, EVICTS },
	{ "evict-ram", NULL, send_evict_ram, EVICTS },
	{ "demote", NULL, send_demote, EVICTS },
	{ "commit-demote", prepare_demoted, send_commit, 0 },
	{ "cancel-demote", prepare_demoted, send_cancel, CANCELS },
	{ "promote", prepare_promote, send_promote, EVICTS },
	{ "commit-promote", prepare_promoted, send_commit, 0 },
	{ "cancel-promote", prepare_promoted, send_cancel, CANCELS },
	{ "drop", NULL, send_drop, 0 },
	{ "clear-tag", NULL, send_clear_tag, 0 },
	{ "clear", NULL, send_clear, 0 },
	{ "pool-add", NULL, send_pool, 0 },
	{ "pool-remove", prepare_pool, send_remove, 0 },
	{ "reap", other_comes, other_dies, 0 },
};

#endif
