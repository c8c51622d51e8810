/* SPDX-License-Identifier: Apache-2.0 */
/* judge.h - a prefix of a writer's stores is copied to another cache of the same geometry;
 * there a successor takes over and serves until all is done; then everything is compared
 * with the ledger.
 *
 * The cache of each level has seats for its own writer and for those of the levels above; the
 * writers of lower levels are dead there, the workers alive. */
#ifndef GPC_T_JUDGE_H
#define GPC_T_JUDGE_H

#include "compare.h"
#include "index/peer/epoch.h"
#include "index/reader/probe_table.h"
#include "index/peer/ring.h"

/* ---- images ---- */

static void copy(uint8_t *to, const uint8_t *from, uint64_t begin, uint64_t end)
{
	memcpy(to + begin, from + begin, end - begin);
}

static void copy_ring(struct segment *to, const struct segment *from, uint32_t peer, uint64_t base)
{
	uint64_t head = seg_seat(from, peer)->head;

	for (; base < head; base++)
		*seg_command(to, peer, base) = *seg_command(from, peer, base);
}

/* Up to and with the key that may be half told in either, as nothing behind it was ever written. */
static uint64_t told(const struct segment *to, const struct segment *from)
{
	uint64_t n = MAX(seg_state(to)->drops_head, seg_state(from)->drops_head) + 1;

	return from->at.drop + MIN(n, (uint64_t)SHM_DROPS) * sizeof(struct shm_drop);
}

/* What can differ: never the headers; of the rings what was added since recording began. */
static void copy_image(int level)
{
	struct segment *to = &cache[level].c->seg;
	const struct segment *from = &cache[level - 1].c->seg;
	uint32_t i;

	copy(cache[level].index, from->index, from->at.state, told(to, from));
	copy(to->control, from->control, from->at.shared, from->at.ring);
	copy(to->control, from->control, from->at.ref, from->at.control_bytes);
	for (i = 0; i < WORKERS; i++)
		copy_ring(to, from, worker[i].peer, ring_base[i]);
}

/* Everything, before recording begins. */
TAP_FN void judge_prepare(void)
{
	const struct segment *from = &cache[0].c->seg;
	int l;
	uint32_t i;

	for (l = 1; l < LEVELS; l++)
		copy(cache[l].c->seg.control, from->control, from->at.shared,
		     from->at.control_bytes);
	for (i = 0; i < WORKERS; i++)
		ring_base[i] = worker[i].acked;
}

/* ---- the command in flight ---- */

static bool all_answered(const struct segment *s)
{
	uint32_t i;

	for (i = 0; i < WORKERS; i++)
		if (!worker[i].dead &&
		    seg_seat(s, worker[i].peer)->tail != seg_seat(s, worker[i].peer)->head)
			return false;
	return true;
}

static void end_sections(const struct segment *s)
{
	uint32_t i, j;

	for (i = 0; i < WORKERS; i++)
		for (j = 0; !worker[i].dead && j < SHM_SECTIONS; j++)
			if (seg_section(s, worker[i].peer, j)->epoch)
				epoch_leave(s, worker[i].peer, j);
}

/* An answer is for ever; a group's stands when its first slot has one. */
static void compare_answer(const struct verdict *v, uint32_t peer, uint64_t at, uint64_t head)
{
	const struct shm_command *was = seg_command(v->image, peer, at);
	const struct shm_command *is = seg_command(v->s, peer, at);

	if (seg_command(v->image, peer, head)->result == CMD_PENDING)
		return;
	need(!memcmp(was, is, sizeof(*is)),
	     "peer %u, command %llu: answered %d, 0x%x, then %d, 0x%x; or other bytes of it", peer,
	     (unsigned long long)at, was->result, (unsigned)was->block, is->result,
	     (unsigned)is->block);
}

/* Rule C1: what the dead writer took for an eviction, its successor answers with. */
static void compare_victims(const struct verdict *v, uint32_t peer, uint64_t at)
{
	const struct shm_command *c = seg_command(v->s, peer, at);
	uint32_t i, j, p;

	for (i = 0; c->op == CMD_EVICT && i < POOLS * SLOTS; i++) {
		gpc_block b = GPC_BLOCK((gpc_block)(i / SLOTS), (gpc_block)(i % SLOTS));
		const struct shm_record *r;

		if ((p = pool_record(v->image, b)) == SHM_NO_RECORD || is_held(v->image, b))
			continue;
		r = seg_record(v->image, p);
		if ((WORD_STATE(r->word) != DYING && WORD_STATE(r->word) != RESERVED) ||
		    r->owner != peer || r->op <= at || r->op > at + c->count)
			continue;
		for (j = 0; (int32_t)j < c->result; j++)
			if (seg_command(v->s, peer, at + j)->block == b)
				break;
		need((int32_t)j < c->result, "block 0x%x was evicted, and is not in the answer",
		     (unsigned)b);
	}
}

static void note_command(struct verdict *v, const struct shm_command *c)
{
	if (c->op == CMD_COMMIT && v->in_flight.n < ARRAY_SIZE(v->in_flight.to))
		v->in_flight.to[v->in_flight.n++] = c->commit.to;
	v->removes |= c->op == CMD_EVICT || c->op == CMD_DROP || c->op == CMD_CLEAR;
	if (c->op != CMD_RESERVE && c->op != CMD_EVICT && c->op != CMD_DEMOTE &&
	    c->op != CMD_PROMOTE)
		return;
	v->evicts = true;
	v->from = c->op == CMD_RESERVE || c->op == CMD_EVICT ? c->pool
		  : c->move.to_pool == SHM_NO_POOL           ? RAM
							     : c->move.to_pool;
	/* without GPC_TAKE a victim is free, and carries no operation, before the answer */
	v->most += c->op == CMD_EVICT && !(c->flags & CF_TAKE) ? KEYS : c->count;
}

static bool is_gone(const struct verdict *v, int k)
{
	return !has_key(v->s, ledger.key[k].block, k, LIVE);
}

/* Below one of another pool, which does not hold its parent back. */
static bool hung_below_gone(const struct verdict *v, int k)
{
	for (; k % DEEP; k--)
		if (ledger.key[k - 1].live && GPC_POOL(ledger.key[k - 1].block) != v->from &&
		    is_gone(v, k - 1))
			return true;
	return false;
}

/* Nor does it evict more than it was asked for, whoever does it. */
static void compare_evicted(const struct verdict *v)
{
	uint32_t n = 0;
	int k;

	for (k = 0; v->evicts && k < KEYS; k++)
		n += ledger.key[k].live && GPC_POOL(ledger.key[k].block) == v->from &&
		     is_gone(v, k) && !hung_below_gone(v, k);
	need(n <= v->most, "%u keys have left pool %d for a command that wants %u", n, v->from,
	     v->most);
}

static void apply_in_flight(struct verdict *v)
{
	uint32_t i;
	uint64_t at, head, first, end;

	for (i = 0; i < WORKERS; i++) {
		struct answers a = { v->s, worker[i].peer };

		head = worker[i].dead ? 0 : seg_seat(v->s, a.peer)->head;
		for (at = worker[i].acked; at < head; at++)
			note_command(v, seg_command(v->s, a.peer, at));
		for (at = worker[i].acked; at < head;) {
			compare_victims(v, a.peer, at);
			for (first = at, at += ledger_apply(&v->m, &a, at), end = at;
			     end-- > first;)
				compare_answer(v, a.peer, end, first);
		}
	}
}

/* ---- the verdict ---- */

#define SERVES 3000

/* Lookups go on while a successor repairs. */
static void look(struct verdict *v)
{
	struct probe l;
	int k;

	probe_begin(&l, v->c, 1);
	for (k = 0; k < KEYS; k++)
		v->missed[k] |= probe_one(&l, &ledger_key[k]) < 0;
}

static void serve(struct verdict *v, int i)
{
	if (i < 8)
		look(v);
	world.now += i < 6 ? 20000 : 6 * NS_PER_MS;
	if (i == 3)
		end_sections(v->s);
	need(gpc_writer_serve(v->c, 0) >= 0, "serving: %s", gpc_last_error());
}

/* What a process may still write to is not free as soon as it loses its seat. */
static void compare_quarantine(const struct verdict *v)
{
	int i;

	for (i = 0; lingering >= 0 && i < POOLS * SLOTS; i++) {
		gpc_block b = GPC_BLOCK(i / SLOTS, i % SLOTS);
		uint32_t record = pool_record(v->image, b), was, is;

		if (record == SHM_NO_RECORD || SLOT(&readable, b).owner != lingering + 1 ||
		    readable.pool[GPC_POOL(b)].owner == lingering + 1)
			continue;
		was = WORD_STATE(seg_record(v->image, record)->word);
		is = WORD_STATE(seg_record(v->s, record)->word);
		need(was == FREE || is == DYING || is == RESERVED,
		     "block 0x%x is free, and its dead owner may write", (unsigned)b);
	}
}

/* A judge of what the successor does meanwhile comes behind the exit that its own judge has
 * seen. */
static bool is_lingering(void)
{
	return lingering >= 0 && !world.gone[person[lingering]];
}

static void settle(struct verdict *v)
{
	char why[200] = "";
	int i = 0;

	while (!all_answered(v->s)) {
		serve(v, i++);
		need(i < SERVES, "commands are never answered");
	}
	if (v->image)
		apply_in_flight(v);
	if (v->image && i < 6 && is_lingering())
		compare_quarantine(v);
	/* sections end, processes exit, and nobody has to wait for the dead any more */
	if (lingering >= 0)
		world.gone[person[lingering]] = true;
	while (i < 4)
		serve(v, i++);
	find_lost(v);
	while (!is_settled(v, why)) {
		serve(v, i++);
		need(i < SERVES, "never settled: %s", why);
	}
}

static void compare(struct verdict *v)
{
	compare_keys(v, &feed);
	check_invariants(v);
}

/* What readers find meanwhile, before any successor comes: whatever was acknowledged and stays,
 * where it was or where it goes; nothing that is not live, or just was. */
static void compare_readers(struct verdict *v)
{
	const struct ledger *before = still_readable ? &readable : &ledger;
	gpc *c = cache[v->level - 1].c;
	struct probe l;
	gpc_block b;
	int k;

	probe_begin(&l, c, 1);
	for (k = 0; k < KEYS; k++) {
		bool was = before->key[k].live, is = v->m.key[k].live;

		b = probe_one(&l, &ledger_key[k]);
		need(b >= 0 || !was || !is, "readers do not find key %d", k);
		need(!v->missed[k] || !was || !is, "during recovery readers do not find key %d", k);
		if (b < 0)
			continue;
		need((was && b == before->key[k].block) || (is && b == v->m.key[k].block),
		     "readers find key %d in block 0x%x", k, (unsigned)b);
		need(has_key(v->image, b, k, LIVE) || has_key(v->image, b, k, DYING),
		     "readers find key %d in block 0x%x, which has it not", k, (unsigned)b);
		need(v->level > 1 || !v->removes || !was || !(k % DEEP) ||
			     probe_one(&l, &ledger_key[k - 1]) >= 0,
		     "readers find key %d, whose parent is gone", k);
	}
}

/* The prefix that the cache below this level holds now. */
TAP_FN void judge(int level)
{
	struct cache *to = &cache[level];
	struct verdict v = { .level = level,
			     .c = to->c,
			     .s = &to->c->seg,
			     .image = &cache[level - 1].c->seg,
			     .m = ledger };
	bool lingers = is_lingering();
	uint64_t now = world.now;

	judged[level]++;
	copy_image(level);
	world.gone[person[level - 1]] = true;
	recorder[level].on_map = level + 1 < LEVELS && judge_nests();
	need(gpc_writer_take(to->c, 0, 0) == 0, "takeover: %s", gpc_last_error());
	settle(&v);
	recorder_off(level);
	compare(&v);
	compare_evicted(&v);
	compare_readers(&v);
	must_be(gpc_writer_drop(to->c), 0);
	world.gone[person[level - 1]] = false;
	if (lingers)
		world.gone[person[lingering]] = false;
	world.now = now;
}

/* The writer itself, whom nobody killed. */
TAP_FN void judge_living(void)
{
	struct verdict v = { .c = cache[0].c, .s = &cache[0].c->seg, .m = ledger };

	settle(&v);
	compare(&v);
}

#endif
