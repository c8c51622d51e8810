/* SPDX-License-Identifier: Apache-2.0 */
/* The writer is killed before any of its stores, in the middle of every operation and of its
 * own takeover.  Each time a process without threads takes the seat, repairs, and compares all
 * there is with a model of what was acknowledged: keys, blocks, bytes, references,
 * reservations, pools, and the feed of changes.
 *
 *   GPC_T_ROUNDS=n GPC_T_SEED=n    more of it, and another course of events
 * Tests: lib/index/takeover/takeover.c lib/index/takeover/table.c lib/index/takeover/others.c lib/index/writer/command.c */
#include "t/lib/actor.h"
#include "t/lib/lag.h"
#include "t/lib/patient.h"

#include "index/peer/handle.h"
#include "index/segment/blocks.h"
#include "index/peer/hold.h"
#include "t/lib/stops.h"

#define ROUNDS 320
#define STORES 300 /* of a writer, at most */
#define ACTS   60  /* of the worker in a round, at most */

enum { GATE_MADE, GATE_ACT, GATE_ACTED, GATE_JUDGE, GATE_JUDGED, GATE_END };
enum { N_STORES, N_TARGET, N_TAKEOVER, N_SURVIVED, N_LOST, N_SEAT, N_GENERATION, N_ACTS, N_ROUND };

static uint64_t seed = 1;
static const char *devices;

/* ---- the worker ---- */

/* One act after the other, as long as the writer lives; the one that it dies in is answered by
 * the judge. */
static void act(struct actor *a, uint32_t round)
{
	struct gpc_info info = { .size = sizeof(info) };
	int i;

	for (i = 0; i < ACTS; i++) {
		model->evicts = false;
		model_act(a);
		crew->count[N_ACTS]++;
		must_be(gpc_info_get(a->c, &info), 0);
		if (crew_is_open(GATE_JUDGE, round) ||
		    info.writer_generation != crew->count[N_GENERATION])
			break;
	}
	crew_open(GATE_ACTED);
}

static int worker(int me)
{
	struct actor a = { .seed = seed * 7919 + 1 };
	uint32_t round;

	crew_wait(GATE_MADE, 1);
	a.c = patient(crew_attach("worker"));
	crew->count[N_SEAT] = (uint64_t)crew_seat(a.c);
	for (round = 1;; round++) {
		crew_wait(GATE_ACT, round);
		if (crew_is_open(GATE_END, 1))
			break;
		act(&a, round);
	}
	gpc_close(a.c);
	return 0;
}

/* ---- the writer that dies ---- */

static int victim(int round)
{
	gpc *c;

	crew->count[N_STORES] = 0;
	stops.count = &crew->count[N_STORES];
	stops.last = crew->count[N_TARGET];
	stops.on_map = crew->count[N_TAKEOVER];
	c = crew_attach("victim");
	if (stops.on_map)
		crew_open(GATE_ACT);
	must_be(gpc_writer_take(c, 0, 0), 0);
	if (!stops.on_map) {
		stops_begin();
		crew_open(GATE_ACT);
	}
	while (!crew_is_open(GATE_ACTED, (uint32_t)round))
		gpc_writer_serve(c, 1);
	crew->count[N_SURVIVED]++;
	stops_die();
	return 1;
}

/* ---- the judge ---- */

struct judge {
	gpc *c;
	uint64_t cursor;
	gpc_block feed[KEYS]; /* what the feed says: block or -1 */
};

static int key_number(gpc_key k)
{
	int i;

	for (i = 0; i < KEYS; i++)
		if (key_same(&k, &(gpc_key){ { model_key(i).w[0], model_key(i).w[1] } }))
			return i;
	need(false, "a key that nobody published");
	return -1;
}

static void events_cleared(struct judge *j, const struct gpc_event *ch)
{
	int i;

	for (i = 0; i < KEYS; i++)
		if (j->feed[i] >= 0 && GPC_POOL(j->feed[i]) == GPC_POOL(ch->block) &&
		    (!ch->tag || ch->tag == model_tag(i)))
			j->feed[i] = GPC_NONE;
}

static void feed_change(struct judge *j, const struct gpc_event *ch)
{
	gpc_block *at;

	if (ch->what == GPC_RETURNED) /* says nothing of the content */
		return;
	if (ch->what == GPC_CLEARED) {
		events_cleared(j, ch);
		return;
	}
	at = &j->feed[key_number(ch->key)];
	switch (ch->what) {
	case GPC_STORED:
		need(*at < 0, "feed: stored twice, in 0x%x and 0x%x", (unsigned)*at,
		     (unsigned)ch->block);
		*at = ch->block;
		break;
	case GPC_MOVED:
		need(*at == ch->was, "feed: moved from 0x%x, but was in 0x%x", (unsigned)ch->was,
		     (unsigned)*at);
		*at = ch->block;
		break;
	default:
		need(ch->what == GPC_REMOVED, "feed: change %u", ch->what);
		need(*at == ch->block || *at < 0, "feed: removed from 0x%x, but was in 0x%x",
		     (unsigned)ch->block, (unsigned)*at);
		*at = GPC_NONE;
	}
}

static void read_feed(struct judge *j)
{
	struct gpc_event ch[64];
	int i, n;

	while ((n = gpc_event_read(j->c, &j->cursor, ch, 64)) > 0)
		for (i = 0; i < n; i++)
			feed_change(j, &ch[i]);
	need(n == 0, "changes: %s", gpc_last_error());
}

/* An idle key may have been evicted for a command whose writer died; nothing that hangs above a
 * referenced one. */
static void may_be_lost(int i)
{
	int k = i;

	need(model->evicts, "key %d is lost by %s", i, model->op);
	do
		need(!model->key[k].live || !*model_refs(model->key[k].block),
		     "key %d is lost by %s, and key %d is referenced", i, model->op, k);
	while (++k % DEEP && model->key[k].live);
	model_leaves(i);
	crew->count[N_LOST]++;
}

static void compare_keys(struct judge *j)
{
	gpc_key k[KEYS];
	gpc_block b[KEYS];
	int i;

	for (i = 0; i < KEYS; i++)
		k[i] = model_key(i);
	need(gpc_lookup(j->c, 1, k, KEYS, b, GPC_QUIET) >= 0, "lookup");
	read_feed(j);
	for (i = 0; i < KEYS; i++) {
		if (model->key[i].live && b[i] < 0)
			may_be_lost(i);
		need(model->key[i].live || b[i] < 0, "key %d is back, in block 0x%x", i,
		     (unsigned)b[i]);
		need(b[i] < 0 || b[i] == model->key[i].block, "key %d: in 0x%x instead of 0x%x", i,
		     (unsigned)b[i], (unsigned)model->key[i].block);
		need(b[i] < 0 || crew_holds(b[i], k[i]), "key %d: other bytes", i);
		need(j->feed[i] == b[i], "key %d: in 0x%x, the feed says 0x%x", i, (unsigned)b[i],
		     (unsigned)j->feed[i]);
	}
}

static void compare_walk(struct judge *j)
{
	struct gpc_entry e[KEYS + 1];
	uint64_t cursor = 0;
	int i, k, n = gpc_walk(j->c, &cursor, e, KEYS + 1);

	for (i = k = 0; k < KEYS; k++)
		i += model->key[k].live;
	must_be(n, i);
	for (i = 0; i < n; i++) {
		gpc_key up = model_parent(k = key_number(e[i].key));

		need(e[i].block == model->key[k].block && e[i].tag == model_tag(k) &&
			     key_same(&e[i].parent, &up) && e[i].depth == (uint32_t)(k % DEEP) &&
			     e[i].refs == *model_refs(e[i].block),
		     "key %d: walk shows another", k);
	}
}

/* Every block's state and holds; false: something is still on its way. */
static bool blocks_are_settled(struct judge *j, char *why)
{
	const struct segment *s = &j->c->seg;
	uint32_t seat = (uint32_t)crew->count[N_SEAT];
	int p, slot;

	for (p = 0; p < POOLS; p++)
		for (slot = 0; slot < SLOTS; slot++) {
			gpc_block b = GPC_BLOCK(p, slot);
			uint32_t record = pool_record(s, b), state, want;
			const struct shm_record *r;

			if (record == SHM_NO_RECORD)
				continue;
			r = seg_record(s, record);
			state = WORD_STATE(r->word);
			want = *model_hand(b)     ? RESERVED
			       : model_at(b) >= 0 ? LIVE
			       : *model_refs(b)   ? DYING
						  : FREE;
			snprintf(why, 200,
				 "block 0x%x: state %u instead of %u, owner %u, %u "
				 "references instead of %u",
				 (unsigned)b, state, want, r->owner,
				 hold_refs(*seg_cell(s, record, seat)), *model_refs(b));
			if (state != want || (state == RESERVED && r->owner != seat) ||
			    hold_refs(*seg_cell(s, record, seat)) != *model_refs(b))
				return false;
		}
	snprintf(why, 200, "still recovering, or reserved by the dead");
	return !load_relaxed(&seg_state(s)->recovering) && mirror_lag(j->c) == 0 &&
	       crew_stats(j->c, -1).reserved == crew_stats(j->c, (int)seat).reserved;
}

static void settle(struct judge *j)
{
	uint64_t until = clock_ns() + 90000 * NS_PER_MS;
	char why[200] = "";

	while (!blocks_are_settled(j, why)) {
		need(clock_ns() < until, "after %s: %s", model->op, why);
		gpc_writer_serve(j->c, 1);
	}
}

static void compare_pools(struct judge *j)
{
	struct gpc_pool p = { .size = sizeof(p) };
	int i;

	for (i = 0; i < POOLS; i++)
		must_be(gpc_pool_get(j->c, i, &p), i <= VRAM || i == model->extra ? 0 : -ENOENT);
}

/* The worker may still wait for an answer. */
static void judge_round(struct judge *j, uint32_t round, int section)
{
	must_be(gpc_writer_take(j->c, 0, 0), 0);
	if (section >= 0) {
		gpc_writer_serve(j->c, 0);
		gpc_section_leave(j->c, section);
	}
	while (!crew_is_open(GATE_ACTED, round))
		need(gpc_writer_serve(j->c, 1) >= 0 && !crew->failed, "serving");
	compare_keys(j);
	settle(j);
	compare_keys(j);
	compare_walk(j);
	compare_pools(j);
	crew_check(j->c);
	must_be(gpc_writer_drop(j->c), 0);
}

static void make_pools(gpc *c)
{
	struct gpc_pool p = {
		.size = sizeof(p), .kind = GPC_RAM, .blocks = 8, .transit = 4, .demote_to = -1
	};

	must_be(gpc_writer_take(c, 0, 0), 0);
	must_be(gpc_pool_make(c, &p, NULL, -1), RAM);
	p = (struct gpc_pool){
		.size = sizeof(p), .kind = GPC_VRAM, .blocks = 12, .demote_to = RAM
	};
	must_be(gpc_pool_make(c, &p, NULL, -1), VRAM);
	must_be(gpc_writer_drop(c), 0);
}

/* Sometimes an open section of its own holds everything back while the writer dies. */
static int judge(int rounds)
{
	struct gpc_config cfg = { .max_blocks = 40,
				  .max_peers = 4,
				  .max_pools = POOLS,
				  .tick_us = 1,
				  .free_target = -1,
				  .devices = devices };
	struct judge j = { .c = crew_create(cfg, 0) };
	struct gpc_info info = { .size = sizeof(info) };
	uint64_t random = seed * 31 + 5;
	int section;
	uint32_t i;

	memset(j.feed, 0xff, sizeof(j.feed));
	make_pools(j.c);
	crew_open(GATE_MADE);
	for (i = 1; i <= (uint32_t)rounds; i++) {
		section = crew_random(&random, 3) ? -1 : gpc_section_enter(j.c);
		must_be(gpc_info_get(j.c, &info), 0);
		crew->count[N_GENERATION] = info.writer_generation + 1;
		crew_open(GATE_JUDGED);
		crew_wait(GATE_JUDGE, i);
		judge_round(&j, i, section);
	}
	crew_open(GATE_JUDGED);
	crew_wait(GATE_END, 1);
	gpc_close(j.c);
	return 0;
}

/* ---- rounds ---- */

static void where(char *to, size_t size)
{
	const uint64_t *n = crew->count;

	snprintf(to, size,
		 " [seed %llu, mirrors: %s, round %llu; %s%s; the writer was to die "
		 "before store %llu since its %s began, and came to %llu]",
		 (unsigned long long)seed, devices, (unsigned long long)n[N_ROUND], model->op,
		 model->evicts ? ", evicting" : "", (unsigned long long)n[N_TARGET],
		 n[N_TAKEOVER] ? "takeover" : "service", (unsigned long long)n[N_STORES]);
}

static void round_of(uint32_t i, uint64_t *random)
{
	crew_wait(GATE_JUDGED, i);
	crew->count[N_ROUND] = i;
	crew->count[N_TAKEOVER] = !crew_random(random, 4);
	crew->count[N_TARGET] = 1 + crew_random(random, STORES);
	must_be(crew_status(crew_fork(victim, (int)i)), 256 + SIGKILL);
	crew_open(GATE_JUDGE);
}

static void course(int rounds, const char *with)
{
	uint64_t random = seed * 104729 + 3, *n = crew->count;
	pid_t a, b;
	int i;

	memset(crew, 0, sizeof(*crew));
	memset(model, 0, sizeof(*model));
	scratch_files("", true);
	devices = with;
	a = crew_fork(judge, rounds);
	b = crew_fork(worker, rounds + 1);
	for (i = 1; i <= rounds; i++)
		round_of((uint32_t)i, &random);
	crew_wait(GATE_JUDGED, (uint32_t)rounds + 1);
	crew_open(GATE_END);
	crew_open(GATE_ACT);
	crew_join(b, "the worker");
	crew_join(a, "the judge, who found everything as it was acknowledged,");
	ok(n[N_SURVIVED] < (uint64_t)rounds / 4,
	   "mirrors: %s; %d rounds, %llu acts; in %llu "
	   "rounds the writer came through; %llu idle keys were lost",
	   with, rounds, (unsigned long long)n[N_ACTS], (unsigned long long)n[N_SURVIVED],
	   (unsigned long long)n[N_LOST]);
}

static int body(void)
{
	const char *n = getenv("GPC_T_ROUNDS"), *s = getenv("GPC_T_SEED");
	int rounds = n ? atoi(n) : ROUNDS;

	seed = s ? strtoull(s, NULL, 10) : seed;
	diag("GPC_T_SEED=%llu", (unsigned long long)seed);
	crew_begin();
	model_begin();
	crew_where = where;
	course(rounds / 2, "none");
	course(rounds - rounds / 2, "host");
	return done_testing();
}

int main(void)
{
	scratch_make("t350");
	return tap_guard(getenv("GPC_T_ROUNDS") ? 600 : 60, body, scratch_remove);
}
