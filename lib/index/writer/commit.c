/* SPDX-License-Identifier: Apache-2.0 */
/* commit.c - the targets of one commit, each after those that it needs (move.c commits a target).
 *
 * The order in the call does not count.  A commit that has to wait for a bucket goes on in the
 * next pass.  The results in its entries show which moves are answered, and commit_known shows it
 * for the head.
 * Tests: t/index/moves-die.t t/index/move-ends.t t/index/publish.t t/index/late-answers.t
 *   t/torture/threads.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "index/writer/commit.h"
#include "index/writer/grants.h"
#include "index/table/alloc.h"
#include "index/writer/move.h"
#include "index/writer/retire.h"

/* The target that an entry of the group names, or NONE. */
static uint32_t slot_target(struct writer *w, const struct shm_command *cmd)
{
	return w_find_record(w, load_relaxed(&cmd->commit.to));
}

static int32_t commit_one(struct writer *w, uint32_t peer, const struct shm_command *cmd)
{
	uint32_t target = slot_target(w, cmd);
	struct shm_record *t;
	int32_t err;

	if (target == NONE)
		return -EINVAL;
	t = w_record(w, target);
	if (t->owner != peer || t->op != load_relaxed(&cmd->commit.move_op))
		return -ESTALE;
	/* The target was committed before, by a writer that died or in a first try.  It is too late
	 * to give it up. */
	if (w_is(w, target, LIVE))
		return load_relaxed(&cmd->flags) & CF_CANCEL ? -EEXIST : 0;
	if (!w_is(w, target, RESERVED) || grant_holds(w, target) || w->node[target].bound)
		return -ESTALE;
	/* its peer may hold it by a cell until the peer takes the answer (rule C9) */
	if (load_relaxed(&cmd->flags) & CF_CANCEL) {
		retire_target(w, target);
		return 0;
	}
	err = move_commit_target(w, peer, target);
	if (err < 0)
		retire_target(w, target);
	return err;
}

struct order {
	uint32_t entry, target, late, depth;
};

static int compare(const void *a, const void *b)
{
	const struct order *x = a, *y = b;

	if (x->late != y->late)
		return x->late < y->late ? -1 : 1;
	if (x->depth != y->depth)
		return x->depth < y->depth ? -1 : 1;
	return x->entry < y->entry ? -1 : x->entry > y->entry;
}

/* Guarantee G: a live block that leaves VRAM for RAM of its space goes leaf first; any other goes
 * root first. */
static struct order order_of(struct writer *w, uint32_t entry, uint32_t target)
{
	const struct shm_record *t;
	bool late;

	if (target == NONE)
		return (struct order){ .entry = entry, .target = NONE };
	t = w_record(w, target);
	late = w_pool_of(w, target)->kind == GPC_RAM && t->source &&
	       w_space(w, t->source - 1) == w_space(w, target);
	return (struct order){ entry, target, late, late ? ~t->depth : t->depth };
}

static struct order *commit_order(struct writer *w, uint32_t peer, uint64_t position, uint32_t n)
{
	struct order *list = writer_alloc(n, sizeof(*list));
	uint32_t i;

	for (i = 0; i < n; i++)
		list[i] = order_of(w, i, slot_target(w, seg_command(&w->seg, peer, position + i)));
	qsort(list, n, sizeof(*list), compare);
	return list;
}

void move_order(struct writer *w, uint32_t *targets, uint32_t n)
{
	struct order *list = writer_alloc(n, sizeof(*list));
	uint32_t i;

	for (i = 0; i < n; i++)
		list[i] = order_of(w, i, targets[i]);
	qsort(list, n, sizeof(*list), compare);
	for (i = 0; i < n; i++)
		targets[i] = list[i].target;
	writer_free(list);
}

bool move_commit(struct writer *w, uint32_t peer, uint64_t position, uint32_t n)
{
	struct order *list = commit_order(w, peer, position, n);
	struct wpeer *p = &w->peer[peer];
	struct shm_command *cmd;
	uint32_t i, at;
	int32_t result;

	for (i = 0; i < n; i++) {
		at = list[i].entry;
		cmd = seg_command(&w->seg, peer, position + at);
		if (at ? load_relaxed(&cmd->result) != CMD_PENDING : p->commit_known)
			continue;
		result = commit_one(w, peer, cmd);
		if (result == MOVE_AGAIN)
			break;
		if (at) {
			w_answer(w, peer, position + at, result);
		} else {
			p->commit_known = true;
			p->commit_result = result;
		}
	}
	writer_free(list);
	if (i < n)
		return false;
	p->commit_known = false;
	w_answer(w, peer, position, p->commit_result);
	return true;
}
