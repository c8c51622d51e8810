/* SPDX-License-Identifier: Apache-2.0 */
/* publish.c - reservations become references.
 *
 * Rule S3: the cell of a block counts as a reference before its publish is shown to the writer,
 * so that there is no instant between "reserved" and "referenced".  If the publish is refused, the
 * cell says "reserved" again.  If the key was live already, the library takes an ordinary
 * reference on the resident block.  If that block has gone in the meantime, it publishes again.
 * index/peer/hold.h has all values of a cell, and the effect of a release before the answer.
 * Tests: t/index/publish-no-ref.t t/index/publish.t t/index/rouse.t t/index/workers.t
 *   t/index/first-refusal.t t/index/returned-refused.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "index/base/futex.h"
#include "index/request/note.h"
#include "index/request/request.h"
#include "index/peer/hold.h"
#include "index/peer/wait_word.h"
#include "index/segment/dropped.h"

#define PAUSE_NS (20 * NS_PER_MS) /* the time between looks for a writer that is gone */

struct publish { /* a call's arguments */
	const gpc_key *parents, *keys;
	const gpc_block *blocks;
	uint32_t tag;
	gpc_block *resident; /* answers, by place in blocks; NULL: they are not wanted */
	bool want_refs, no_refs;
	uint16_t how;   /* flags of each command */
	uint32_t since; /* with CF_SINCE */
	struct notes notes;
	/* by place in blocks; NULL: the bytes are the caller's own */
	const struct publish_copy *copies;
	const struct publish_rekeyed *rekeyed; /* NULL: the call is no gpc_rekey */
};

/* The first refusal of publishes without a wait is kept until gpc_ticket_wait asks for it. */
static void note_refused(gpc *c, const struct op *op, uint32_t i, int32_t err)
{
	const struct shm_command *s = ring_entry(c, op, i);

	if (c->refused.err)
		return;
	c->refused = (struct refused_item){
		.i = op->sent[i].place,
		.err = err,
		.block = s->block,
		.ticket = op->ticket,
		.key = { { s->publish.key[0], s->publish.key[1] } },
		.parent = { { s->publish.parent[0], s->publish.parent[1] } },
	};
}

static void answer(gpc *c, struct op *op, uint32_t i, gpc_block what)
{
	if (op->resident)
		op->resident[op->sent[i].place] = what;
	if (what < 0 && op->unwatched)
		note_refused(c, op, i, what);
}

/* The key is live in another block: take a reference on that block.  False: that block has
 * gone. */
static bool take_resident(gpc *c, gpc_block block, const gpc_key *key, struct ref_sum *sum,
			  int *err)
{
	uint32_t record = pool_record(&c->seg, block);
	int section = handle_enter(c);

	*err = -EAGAIN;
	if (section < 0)
		return true;
	*err = record == SHM_NO_RECORD ? -ESTALE : refs_take(c, record, block, key, sum);
	handle_leave(c, section);
	return *err != -ESTALE;
}

static void take_publish(gpc *c, struct op *op);

/* Publish only the block of entry i, once more. */
static bool publish_again(gpc *c, struct op *op, uint32_t i)
{
	struct shm_command cmd = *ring_entry(c, op, i);
	struct sent *sent = malloc(sizeof(*sent));
	struct op *again = ring_op(1, 0);

	if (!again || !sent)
		goto fail;
	*sent = op->sent[i];
	again->sent = sent;
	again->resident = op->resident;
	again->want_refs = true;
	again->unwatched = op->unwatched;
	again->ticket = op->ticket;
	again->take = take_publish;
	if (ring_submit_locked(c, again, &cmd) == 0)
		return true;
fail:
	free(again);
	free(sent);
	return false;
}

/* The publish was refused, or the key is live in another block.  If the block was not given up
 * meanwhile, its cell says "reserved" again.  For a CALLER block only the record says so. */
static void refused(gpc *c, const struct sent *sent, gpc_block block, struct ref_sum *sum)
{
	bool cell = !sent->owned && hold_is_owner(c, sent->record);

	hold_step(c, sent->record, block, cell ? HOLD_REFUSED : HOLD_GONE, sum);
}

/* Is the cell still that of the command?  In another life of the block the command's hold has
 * ended (rule C9). */
static bool is_of(const gpc *c, const struct sent *sent)
{
	return hold_life(c, sent->record) == sent->life;
}

/* The reservation may be lost, since its pool is going, or has gone, or another pool has the
 * number. */
static gpc_block stale_if_gone(gpc *c, const struct sent *sent, gpc_block block, gpc_block got)
{
	uint32_t pool = (uint32_t)block >> 24;

	if ((got == -EPERM || got == -EINVAL) &&
	    (pool_record(&c->seg, block) != sent->record ||
	     load_relaxed(&seg_pool(&c->seg, pool)->generation) != sent->generation))
		return -ESTALE;
	return refuse_gone(c, block, got);
}

/* GPC_NO_REF: the reference that HOLD_LIVE has made ends at once, as by gpc_release. */
static void take_live(gpc *c, struct op *op, uint32_t i, uint64_t stamp, struct ref_sum *sum)
{
	gpc_block block = ring_entry(c, op, i)->block;
	uint32_t record = op->sent[i].record;

	hold_step(c, record, block, HOLD_LIVE, sum);
	if (op->no_refs) {
		refs_stamp(c, record, stamp - i);
		refs_drop(c, record, block, sum);
	}
}

/* The program has given the block up.  So the answer changes only a cell that is on its way back
 * and no longer needed. */
static void take_given_up(gpc *c, const struct sent *sent, gpc_block block, bool live,
			  struct ref_sum *sum)
{
	if (live)
		hold_step(c, sent->record, block, HOLD_FREED, sum);
	else if (sent->untold && hold_of(load_relaxed(refs_cell(c, sent->record))) == HOLD_NONE)
		returns_tell(c, sent->record, block);
}

static void take_one(gpc *c, struct op *op, uint32_t i, uint64_t stamp, struct ref_sum *sum)
{
	const struct shm_command *s = ring_entry(c, op, i);
	gpc_key key = { { s->publish.key[0], s->publish.key[1] } };
	const struct sent *sent = &op->sent[i];
	gpc_block got = s->result;
	int err;

	if (s->op != CMD_PUBLISH)
		return;
	if (got == s->block) { /* the reservation is a reference now */
		if (is_of(c, sent) && sent->given_up)
			take_given_up(c, sent, s->block, true, sum);
		else if (is_of(c, sent))
			take_live(c, op, i, stamp, sum);
		answer(c, op, i, got);
		return;
	}
	if (got >= 0 && op->resident && op->want_refs) {
		if (!take_resident(c, got, &key, sum, &err)) {
			/* blocks that were given up meanwhile are on their way back */
			bool ours =
				is_of(c, sent) && !sent->given_up &&
				hold_of(load_relaxed(refs_cell(c, sent->record))) == HOLD_PENDING;

			if (ours && publish_again(c, op, i))
				return;
			err = ours ? -EAGAIN : -EPERM;
		}
		if (err < 0)
			got = err;
	}
	if (is_of(c, sent) && sent->given_up) {
		take_given_up(c, sent, s->block, false, sum);
	} else if (is_of(c, sent)) {
		if (sent->untold)
			returns_tell(c, sent->record, s->block);
		refused(c, sent, s->block, sum);
	}
	answer(c, op, i, stale_if_gone(c, sent, s->block, got));
}

static void take_publish(gpc *c, struct op *op)
{
	uint64_t stamp = op->no_refs ? refs_first_stamp(c, op->n) : 0;
	struct ref_sum sum = { 0 };
	uint32_t i;

	for (i = 0; i < op->n; i++)
		take_one(c, op, i, stamp, &sum);
	refs_account(c, &sum);
	free(op->sent);
	op->sent = NULL;
}

/* Does the program have the reservation?  For a CALLER block the record decides, since the owner
 * may not have asked for returns yet. */
static bool is_reserved_by_us(gpc *c, uint32_t record, gpc_block block)
{
	switch (hold_of(load_relaxed(refs_cell(c, record)))) {
	case HOLD_RESERVED:
		return true;
	case HOLD_NONE:
		return returns_has(c, record, block);
	default:
		return false;
	}
}

/* The lower half of `since`, for the command.  A number that is too old for its lower half to name
 * it is far below the floor.  The number that its lower half names then is below the floor, too,
 * since each drop has a key. */
static uint32_t lower_half(const gpc *c, uint64_t since)
{
	uint64_t next = dropped_next(&c->seg);

	return (uint32_t)(next - MIN(next - since, (uint64_t)INT32_MAX));
}

static void add_source(const gpc *c, const struct publish_copy *from, struct shm_command *cmd)
{
	cmd->publish.tag = from->tag;
	cmd->publish.source = from->source;
	cmd->publish.seen = from->source < 0 ? from->clears : from->life;
	cmd->publish.since = lower_half(c, from->since);
	cmd->flags =
		(uint16_t)((from->source < 0 ? CF_UNCLEARED : CF_SOURCE) |
			   (from->since ? CF_SINCE : 0) | (from->unchained ? CF_UNCHAINED : 0));
}

/* A claim ends with each answer to a publish of its block, so the writer says no then. */
static bool has_claim(gpc *c, uint32_t record, gpc_block block)
{
	return load_relaxed(&seg_record(&c->seg, record)->flags) & REC_CLAIM &&
	       is_reserved_by_us(c, record, block);
}

/* The command for block i; or the reason why there is none. */
static int prepare(gpc *c, const struct publish *p, uint32_t i, struct shm_command *cmd)
{
	gpc_block block = p->blocks[i];
	uint32_t record = pool_record(&c->seg, block);
	bool bad = key_is_zero(&p->keys[i]) || key_is_root(&p->keys[i]);

	if (record == SHM_NO_RECORD)
		return refuse_gone(c, block, -EINVAL);
	if (bad && !has_claim(c, record, block))
		return -EINVAL;
	if (!is_reserved_by_us(c, record, block))
		return refuse_gone(c, block, -EPERM);
	*cmd = (struct shm_command){
		.op = CMD_PUBLISH,
		.count = 1,
		.block = block,
		.publish.tag = p->tag,
		.flags = p->how,
		.publish.since = p->since,
		.publish.key = { p->keys[i].w[0], p->keys[i].w[1] },
	};
	if (p->parents) {
		cmd->publish.parent[0] = p->parents[i].w[0];
		cmd->publish.parent[1] = p->parents[i].w[1];
	}
	if (p->copies)
		add_source(c, &p->copies[i], cmd);
	return 0;
}

/* Set the sentence for block i. */
static void tell(gpc *c, const struct publish *p, uint32_t i, int32_t err)
{
	struct refused_item it = { .i = i, .err = err, .block = p->blocks[i], .key = p->keys[i] };

	if (p->rekeyed && p->rekeyed->results[i] == err) {
		refuse_reclaim(c, i, p->blocks[i], p->rekeyed->from, err);
		return;
	}
	if (p->rekeyed)
		it.keys = "to";
	if (p->parents)
		it.parent = p->parents[i];
	refuse_publish(c, &it);
}

/* Rule S3: from here on each block counts as referenced.  A block is left out if another thread
 * has published it or given it up since, or if it is in the array twice. */
static void send_publish(gpc *c, struct op *op)
{
	struct ref_sum sum = { 0 };
	uint32_t i;

	for (i = 0; i < op->n; i++) {
		struct shm_command *s = ring_entry(c, op, i);
		struct sent *sent = &op->sent[i];
		uint32_t record = pool_record(&c->seg, s->block);

		sent->record = record;
		if (record != SHM_NO_RECORD)
			sent->generation = load_relaxed(
				&seg_pool(&c->seg, (uint32_t)GPC_POOL(s->block))->generation);
		sent->owned = hold_is_pool_owner(c, s->block);
		if (record != SHM_NO_RECORD)
			sent->life = hold_life(c, record);
		if (record != SHM_NO_RECORD &&
		    hold_step(c, record, s->block, sent->owned ? HOLD_SEND_OWNED : HOLD_SEND,
			      &sum)) {
			sent->untold = sent->owned && returns_know(c, record, s->block);
			if (op->notes && s->flags & CF_SOURCE)
				notes_copy(c, s->publish.source, s->publish.seen, record,
					   s->publish.key);
			else if (op->notes)
				notes_publish(c, op->notes, op->sent[i].place, record,
					      s->publish.key);
			continue;
		}
		answer(c, op, i, refuse_gone(c, s->block, -EPERM));
		s->op = CMD_NOP;
	}
	op->notes = NULL; /* the notes belong to the caller */
	refs_account(c, &sum);
}

/* Prepare blocks from .. from + n.  The op has those that may be sent (n = 0: none). */
static struct op *prepare_part(gpc *c, const struct publish *p, uint32_t from, uint32_t n,
			       struct shm_command *cmds)
{
	struct op *op = ring_op(0, 0);
	struct sent *sent = calloc(n, sizeof(*sent));
	int32_t err, first = 0;
	uint32_t i;

	if (!op || !sent) {
		free(op);
		free(sent);
		err_set(ENOMEM, "no memory to publish %u blocks", n);
		return NULL;
	}
	for (i = 0; i < n; i++) {
		err = prepare(c, p, from + i, &cmds[op->n]);
		if (err == 0) {
			sent[op->n++].place = from + i;
			continue;
		}
		if (p->resident)
			p->resident[from + i] = err;
		if (!first)
			tell(c, p, from + i, first = err);
	}
	if (first && !p->copies)
		refuse_log(c, "gpc_publish", first);
	op->sent = sent;
	op->resident = p->resident;
	op->notes = seg_keeps_notes(&c->seg) ? &p->notes : NULL;
	op->want_refs = p->want_refs;
	op->no_refs = p->no_refs;
	op->send = send_publish;
	op->take = take_publish;
	return op;
}

/* A peer that waits for a claim sleeps, and so does a writer without work.  Then two wakes in a
 * row stand between a publish and the waiting peer, each as long as tens of publishes.  So a
 * publisher wakes both at once, unless the waiting threads would keep the processor from the
 * writer.  A woken thread finds its claim still open, and looks at it awake, for AWAKE_NS at
 * most.  Nothing depends on that: the writer wakes the sleepers when a claim has ended, and they
 * believe only records. */
static void rouse_waiters(gpc *c, const struct shm_command *cmds, uint32_t n)
{
	struct shm_shared *shared = seg_shared(&c->seg);
	uint32_t i, record;

	for (i = 0; c->spare_cpus && i < n; i++) {
		gpc_key key = { { cmds[i].claim.key[0], cmds[i].claim.key[1] } };
		struct shm_wait *word = &shared->wait[wait_word(&key)];

		record = pool_record(&c->seg, cmds[i].block);
		/* The claim may have ended by now, and another may have begun; then somebody is
		 * woken for nothing. */
		if (record == SHM_NO_RECORD ||
		    !(load_relaxed(&seg_record(&c->seg, record)->flags) & REC_CLAIM) ||
		    !load_relaxed(&word->waiters))
			continue;
		count_add(&word->seq, 1);
		futex_wake_all(&word->seq);
	}
}

/* Submit one part, and wait while the ring is full, unless the deadline is 0.  *ticket is the
 * ticket to wait for. */
static int submit_part(gpc *c, struct op *op, const struct shm_command *cmds, uint64_t deadline,
		       uint64_t *ticket)
{
	int err;

	for (;;) {
		pthread_mutex_lock(&c->ring_lock);
		ring_turn_locked(c);
		err = ring_submit_locked(c, op, cmds);
		if (err == 0)
			*ticket = op->ticket;
		pthread_mutex_unlock(&c->ring_lock);
		if (err != -EAGAIN || !deadline)
			return err;
		err = ring_wait(c, ring_last_ticket(c), deadline);
		if (err < 0)
			return err;
	}
}

/* Send blocks from `from` on, at most n.  Returns the number of blocks that were sent; or an
 * error, and none was sent. */
static int send_part(gpc *c, const struct publish *p, uint32_t from, uint32_t n,
		     struct shm_command *cmds, uint64_t deadline, uint64_t *ticket)
{
	struct op *op = prepare_part(c, p, from, n, cmds);
	int err;

	if (!op)
		return -ENOMEM;
	n = op->n;
	op->unwatched = !deadline;
	err = n ? submit_part(c, op, cmds, deadline, ticket) : 0;
	if (err < 0 || !n) {
		free(op->sent);
		free(op);
		return err;
	}
	rouse_waiters(c, cmds, n); /* after the submission */
	return (int)n;
}

/* Everything at once, or nothing. */
static int publish_nowait(gpc *c, const struct publish *p, uint32_t n, gpc_ticket *t)
{
	struct shm_command *cmds;
	uint64_t ticket = ring_last_ticket(c);
	int got;

	if (n > SHM_RING)
		return err_set(EINVAL, "n is %u: with timeout_ms 0 a call takes at most %u blocks",
			       n, SHM_RING);
	cmds = calloc(n, sizeof(*cmds));
	if (!cmds)
		return err_set(ENOMEM, "no memory to publish %u blocks", n);
	got = send_part(c, p, 0, n, cmds, 0, &ticket);
	if (got >= 0 && t)
		*t = ticket;
	free(cmds);
	return MIN(got, 0);
}

/* Set the sentence for the first block that was refused; not every block that is not live was
 * refused. */
static void tell_first(gpc *c, const struct publish *p, uint32_t n)
{
	uint32_t i;

	err_clear();
	for (i = 0; i < n; i++)
		if (p->resident[i] < 0) {
			tell(c, p, i, p->resident[i]);
			if (!p->copies)
				refuse_log(c, "gpc_publish", p->resident[i]);
			return;
		}
}

/* If a block was not reclaimed, and is not our reservation for another reason, its sentence tells
 * why. */
static void tell_kept(const struct publish *p, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (p->resident[i] == -EPERM && p->rekeyed->results[i] < 0)
			p->resident[i] = p->rekeyed->results[i];
}

/* Publish in parts.  Returns the number of blocks that are live in their own block.  Blocks that
 * are not submitted before the time is up keep their first result: reserved. */
static int publish_wait(gpc *c, const struct publish *p, uint32_t n, uint64_t deadline,
			uint64_t *ticket)
{
	struct shm_command *cmds = calloc(MIN(n, RING_PART), sizeof(*cmds));
	uint32_t done, i, live = 0;
	int err = 0;

	if (!cmds)
		return err_set(ENOMEM, "no memory to publish %u blocks", n);
	for (i = 0; i < n; i++)
		p->resident[i] = -EAGAIN;
	for (done = 0; err == 0 && done < n; done += RING_PART) {
		err = send_part(c, p, done, MIN(n - done, RING_PART), cmds, deadline, ticket);
		if (err > 0)
			err = ring_wait(c, *ticket, deadline);
	}
	free(cmds);
	if (err < 0)
		return err;
	if (p->rekeyed)
		tell_kept(p, n);
	for (i = 0; i < n; i++)
		live += p->resident[i] == p->blocks[i];
	if (live < n)
		tell_first(c, p, n);
	return (int)live;
}

/* Is the command still under way?  Then its ticket names it. */
static bool is_pending(int err)
{
	return err == -ENOTCONN || err == -ETIMEDOUT;
}

static int publish_all(gpc *c, struct publish *p, uint32_t n, uint64_t deadline, gpc_ticket *ticket)
{
	uint64_t before = ring_last_ticket(c), last = before;
	bool own = !p->resident;
	int got;

	if (own)
		p->resident = calloc(n, sizeof(*p->resident));
	if (!p->resident)
		return err_set(ENOMEM, "no memory to publish %u blocks", n);
	got = publish_wait(c, p, n, deadline, &last);
	if (ticket && (got >= 0 || is_pending(got)))
		*ticket = got < 0 && last == before ? 0 : last;
	if (own) {
		if (got < 0 && last != before)
			ring_forget(c, last);
		free(p->resident);
	}
	return got;
}

/* A number that gpc_drops() has not returned yet belongs to another cache, or to none. */
int request_check_since(const gpc *c, uint64_t since)
{
	if (!since || ((since & 1) && since <= dropped_next(&c->seg)))
		return 0;
	return err_set(EINVAL,
		       "since is %llu: gpc_drops() of this cache has not said so; it says %llu",
		       (unsigned long long)since, (unsigned long long)dropped_next(&c->seg));
}

int publish_call(gpc *c, const gpc_key *parents, const gpc_key *keys, const gpc_block *blocks,
		 uint32_t n, const struct gpc_publish_options *opt, uint32_t flags, int timeout_ms,
		 const struct publish_rekeyed *rekeyed)
{
	uint64_t deadline = deadline_from(timeout_ms);
	struct gpc_publish_options o = { 0 };
	struct publish p = {
		.parents = parents, .keys = keys, .blocks = blocks, .rekeyed = rekeyed
	};
	int err = request_check(c, flags, GPC_NO_REF, timeout_ms != 0);

	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err == 0 && opt)
		err = err_struct("gpc_publish_options", opt, 2 * sizeof(o.size), &o, sizeof(o));
	if (err == 0 && opt)
		err = notes_take(c, &o, &p.notes);
	if (err == 0)
		err = request_check_since(c, o.since);
	if (err < 0)
		return err;
	if (n && (!keys || !blocks))
		return err_set(EINVAL, "%s is NULL", keys ? "blocks" : "keys");
	err = err_count(n, "blocks");
	if (err < 0)
		return err;
	err_clear();
	if (!n && o.ticket)
		*o.ticket = ring_last_ticket(c);
	if (!n)
		return 0;
	p.tag = o.tag;
	p.how = (uint16_t)((parents ? 0 : CF_UNCHAINED) | (o.since ? CF_SINCE : 0));
	p.since = lower_half(c, o.since);
	p.resident = o.resident;
	p.no_refs = flags & GPC_NO_REF;
	p.want_refs = o.resident && !p.no_refs;
	if (!deadline)
		return publish_nowait(c, &p, n, o.ticket);
	return publish_all(c, &p, n, deadline, o.ticket);
}

GPC_EXPORT int gpc_publish(gpc *c, const gpc_key *parents, const gpc_key *keys,
			   const gpc_block *blocks, uint32_t n,
			   const struct gpc_publish_options *opt, uint32_t flags, int timeout_ms)
{
	return publish_call(c, parents, keys, blocks, n, opt, flags, timeout_ms, NULL);
}

int publish_copies(gpc *c, const struct publish_copy *copies, uint32_t n, gpc_block *resident,
		   const uint32_t *stop)
{
	gpc_key *keys = malloc(2 * (size_t)n * sizeof(*keys));
	gpc_block *blocks = malloc((size_t)n * sizeof(*blocks));
	struct publish p = { .parents = keys + n,
			     .keys = keys,
			     .blocks = blocks,
			     .resident = resident,
			     .no_refs = true,
			     .copies = copies,
			     .notes.copies = copies };
	gpc_ticket ticket = 0;
	uint32_t i;
	int got = -ENOMEM;

	for (i = 0; keys && blocks && i < n; i++) {
		keys[i] = copies[i].key;
		keys[n + i] = copies[i].parent;
		blocks[i] = copies[i].block;
	}
	if (keys && blocks)
		got = publish_all(c, &p, n, NEVER, &ticket);
	else
		err_set(ENOMEM, "no memory to publish %u blocks", n);
	while (is_pending(got) && ticket && !load_relaxed(stop)) {
		if (got == -ENOTCONN)
			/* the writer is known to have gone, so the call does not wait for it */
			clock_sleep(PAUSE_NS);
		got = ring_wait(c, ticket, clock_ns() + 100 * NS_PER_MS);
	}
	/* the answer is still to come, and the array `resident` may be gone by then */
	if (is_pending(got) && ticket)
		ring_forget(c, ticket);
	free(keys);
	free(blocks);
	return got;
}
