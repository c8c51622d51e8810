/* SPDX-License-Identifier: Apache-2.0 */
/* remote.c - a store on other machines (lib/tiers/remote) as a tier.
 *
 * The blocks of its pool are hints: this node has stored that key, or has learned that the store
 * has it.  So an eviction of a hint takes nothing from the store.  A clear of the pool makes this
 * node forget its hints, and a new version tag makes all nodes forget theirs.  Dropped blocks
 * (gpc_drop) are removed in the store, in the background, and not read there from then on.
 *
 * A thread of its own calls remote_tick, and removes.  It has a lane of the store; each answering
 * thread takes another lane for its calls.
 * Tests: t/tiers/comes-back.t t/tiers/remote-kept.t t/tiers/remote-refuses.t t/tiers/store.t
 *   t/tiers/store-lost.t t/cluster/nodes.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "index/base/key.h"
#include "index/segment/peek.h"
#include "tiers/steward/store_lanes.h"

#define TICK_NS (100 * NS_PER_MS)
/* a store that takes nothing is left alone for REST_NS, and longer each time up to this */
#define REST_MOST (8000 * NS_PER_MS)
/* The store, or a put that was given up, may bring a removed key back.  So it is removed again,
 * for this time and this often. */
#define HOUR_NS      REMOTE_UNSURE_NS
#define AGAIN_NS     (5000 * NS_PER_MS)
#define AT_ONCE      (16ull << 20) /* bytes of images in one call, since a call has a deadline */
#define BLOCKS_LEAST 65536u

/* ---- read and write ---- */

static int our_result(int result)
{
	return result == -ETIMEDOUT ? -ETIME : result;
}

static uint32_t at_once(const struct tier_store *s)
{
	return (uint32_t)MIN(MAX(AT_ONCE / s->image_bytes, 1u), (uint64_t)GPC_REMOTE_BATCH);
}

static uint64_t deadline_of(const struct tier_store *s, uint64_t deadline_ns)
{
	return MIN(deadline_ns, clock_ns() + s->deadline_ns);
}

static bool was_removed(const struct tier_store *s, const gpc_key *key)
{
	return gone_has(&s->was[0], key) || gone_has(&s->was[1], key);
}

/* Keys that are to be removed there get this result.  at: the places of the others.  Returns the
 * number of others. */
static uint32_t pass_gone(struct tier_store *s, struct tier_item *items, uint32_t n, uint32_t *at,
			  int result)
{
	uint32_t i, k = 0;

	pthread_mutex_lock(&s->lock);
	for (i = 0; i < n; i++)
		if (s->blind || gone_has(&s->gone, &items[i].key) ||
		    (s->unsure && was_removed(s, &items[i].key)))
			items[i].result = result;
		else
			at[k++] = i;
	pthread_mutex_unlock(&s->lock);
	return k;
}

/* The key was removed there, and is there again: the store has lost the removal, or somebody else
 * has put the key.  Only if this node has put it since is the value known to be another one. */
static bool is_back(struct tier_store *s, const gpc_key *key)
{
	bool back;

	pthread_mutex_lock(&s->lock);
	back = was_removed(s, key);
	if (back)
		s->blind |= !gone_add(&s->gone, key);
	pthread_mutex_unlock(&s->lock);
	return back;
}

static void read_some(struct tier_store *s, uint32_t lane, struct tier_item *items, uint32_t n,
		      uint64_t deadline_ns)
{
	struct remote_block b[GPC_REMOTE_BATCH];
	uint32_t at[GPC_REMOTE_BATCH], i, k = pass_gone(s, items, n, at, -ENOENT);

	for (i = 0; i < k; i++)
		b[i] = (struct remote_block){ .key = items[at[i]].key,
					      .sum = items[at[i]].sum,
					      .parts = items[at[i]].parts,
					      .image = items[at[i]].iov,
					      .npieces = items[at[i]].niov };
	remote_get(s->remote, lane, b, k, deadline_of(s, deadline_ns));
	for (i = 0; i < k; i++) {
		struct tier_item *it = &items[at[i]];

		it->result =
			!b[i].result && is_back(s, &it->key) ? -ENOENT : our_result(b[i].result);
		it->parent = b[i].parent;
		it->depth = b[i].depth;
		it->tag = b[i].tag;
		it->sum = b[i].sum;
	}
	store_lane_keep(s, lane, items, n, true);
}

/* A prefix ends at the first missing key. */
void tier_remote_read(struct tier_store *s, struct tier_item *items, uint32_t n,
		      uint64_t deadline_ns)
{
	uint32_t lane = store_lane(s), i, k, some = at_once(s);
	bool whole = true;

	for (i = 0; i < n; i++)
		items[i].result = -EHOSTDOWN;
	for (i = 0; i < n && whole && lane != NO_LANE; i += some) {
		some = MIN(some, n - i);
		read_some(s, lane, items + i, some, deadline_ns);
		for (k = 0; k < some; k++)
			whole &= !items[i + k].result;
	}
	store_lane_give(s, lane);
}

/* All items of a call were refused, for want of room for instance, so the next values would be
 * refused, too.  If a part of the store is down, nothing was sent to it. */
static void note_refusals(struct tier_store *s, const struct remote_block *b, uint32_t n)
{
	uint32_t i, stored = 0, down = 0, lost = 0;
	uint64_t ns;

	for (i = 0; i < n; i++) {
		stored += b[i].result == 0;
		down += b[i].result == -EHOSTDOWN;
		lost += b[i].result == -EINPROGRESS;
	}
	if (lost == n)
		return;
	pthread_mutex_lock(&s->lock);
	ns = stored ? 0 : s->rest_ns ? MIN(2 * s->rest_ns, REST_MOST) : REST_NS;
	if (!stored && down + lost == n)
		ns = TICK_NS;
	else
		s->rest_ns = ns;
	s->rests_until = ns ? clock_ns() + ns : 0;
	pthread_mutex_unlock(&s->lock);
}

static void write_some(struct tier_store *s, uint32_t lane, struct tier_item *items, uint32_t n,
		       uint64_t deadline_ns)
{
	struct remote_block b[GPC_REMOTE_BATCH];
	uint32_t at[GPC_REMOTE_BATCH], i, k = pass_gone(s, items, n, at, -EAGAIN);

	for (i = 0; i < k; i++) {
		const struct tier_item *it = &items[at[i]];

		b[i] = (struct remote_block){
			.key = it->key,
			.parent = it->parent,
			.depth = it->depth,
			.tag = it->tag,
			.sum = it->sum,
			.image = it->iov,
			.npieces = it->niov,
		};
		if (!it->has_crc)
			b[i].sum.crc = sums_of(it->iov, it->niov, &it->parts, it->sum.seed);
	}
	remote_put(s->remote, lane, b, k, deadline_of(s, deadline_ns));
	pthread_mutex_lock(&s->lock);
	for (i = 0; i < k; i++) {
		items[at[i]].result = our_result(b[i].result);
		if (!b[i].result) {
			gone_take_off(&s->was[0], &b[i].key);
			gone_take_off(&s->was[1], &b[i].key);
		}
	}
	pthread_mutex_unlock(&s->lock);
	store_lane_keep(s, lane, items, n, false);
	note_refusals(s, b, k);
}

bool tier_remote_ready(struct tier_store *s)
{
	bool ready;

	pthread_mutex_lock(&s->lock);
	ready = clock_ns() >= s->rests_until && !s->blind;
	pthread_mutex_unlock(&s->lock);
	return ready && load_relaxed(&s->shown->state) == GPC_TIER_UP;
}

/* Only one thread writes, one batch at a time.  A later drop finds its key here; an earlier drop
 * finds that the key is gone. */
static void begin_writing(struct tier_store *s, const struct tier_item *items, uint32_t n)
{
	uint32_t i;

	pthread_mutex_lock(&s->lock);
	s->nwriting = MIN(n, BATCH);
	for (i = 0; i < s->nwriting; i++)
		s->writing[i] = items[i].key;
	pthread_mutex_unlock(&s->lock);
}

void tier_remote_settled(struct tier_store *s)
{
	pthread_mutex_lock(&s->lock);
	s->nwriting = 0;
	pthread_mutex_unlock(&s->lock);
}

void tier_remote_write(struct tier_store *s, struct tier_item *items, uint32_t n,
		       uint64_t deadline_ns)
{
	uint32_t lane = store_lane(s), i, some = at_once(s);

	for (i = 0; i < n; i++)
		items[i].result = -EHOSTDOWN;
	begin_writing(s, items, n);
	for (i = 0; i < n && lane != NO_LANE && !s->kept[lane].n && tier_remote_ready(s);
	     i += some) {
		some = MIN(some, n - i);
		write_some(s, lane, items + i, some, deadline_ns);
	}
	store_lane_give(s, lane);
}

uint32_t tier_remote_reach(struct tier_store *s, const gpc_key *keys, uint32_t n,
			   uint64_t deadline_ns)
{
	uint32_t lane = store_lane(s), reach = 0, i = 0;

	if (lane != NO_LANE)
		reach = remote_reach(s->remote, lane, keys, n, deadline_of(s, deadline_ns));
	store_lane_give(s, lane);
	pthread_mutex_lock(&s->lock);
	while (i < reach && !s->blind && !gone_has(&s->gone, &keys[i]) && !was_removed(s, &keys[i]))
		i++;
	pthread_mutex_unlock(&s->lock);
	if (i < reach)
		is_back(s, &keys[i]);
	return i;
}

/* ---- removals ---- */

void tier_remote_forget(struct tier_store *s, const gpc_key *key)
{
	bool told;

	pthread_mutex_lock(&s->lock);
	told = s->blind;
	s->blind |= !gone_add(&s->gone, key);
	told |= !s->blind;
	pthread_mutex_unlock(&s->lock);
	worker_lock(&s->worker);
	s->hurry = true;
	worker_post(&s->worker);
	worker_unlock(&s->worker);
	if (!told)
		log_say(&s->c->log, LOG_ERR,
			"remote store: more than %u blocks were dropped that it still has: it is not "
			"used any more until the tiers are opened anew; give another version tag",
			GONE_MOST);
}

bool tier_remote_owes(struct tier_store *s)
{
	bool owes;

	pthread_mutex_lock(&s->lock);
	owes = s->gone.n || s->blind || s->unsure;
	pthread_mutex_unlock(&s->lock);
	return owes;
}

static bool is_writing(const struct tier_store *s, const gpc_key *key)
{
	uint32_t i;

	for (i = 0; i < s->nwriting && !key_same(&s->writing[i], key); i++)
		;
	return i < s->nwriting;
}

/* Values on their way there are removed when they have arrived. */
static uint32_t take_gone(struct tier_store *s, gpc_key *keys)
{
	uint32_t n, i, k = 0;

	pthread_mutex_lock(&s->lock);
	n = gone_some(&s->gone, keys, GPC_REMOTE_BATCH);
	for (i = 0; i < n; i++)
		if (!is_writing(s, &keys[i]))
			keys[k++] = keys[i];
	pthread_mutex_unlock(&s->lock);
	return k;
}

static void tell_refusal(struct tier_store *s)
{
	if (!s->told_refusal)
		log_say(&s->c->log, LOG_WARNING,
			"remote store: values of blocks that were dropped cannot be removed there, it "
			"refuses that to us: nothing is read under their keys until it does not");
	s->told_refusal = true;
}

/* With the lock held.  -EOPNOTSUPP marks keys that no fence keeps removed. */
static void settle_removed(struct tier_store *s, const gpc_key *key, int result)
{
	if (result && result != -EOPNOTSUPP)
		return;
	gone_take_off(&s->gone, key);
	s->unsure |= result != 0;
	if (!was_removed(s, key))
		/* if there is no room for it, the store has to be believed */
		gone_add(&s->was[0], key);
}

/* A new hour: keys that may have come back are removed once more when they are met. */
static void pass_hour(struct tier_store *s)
{
	uint64_t now = clock_ns();
	uint32_t i, k;

	pthread_mutex_lock(&s->lock);
	if (now >= s->hour_ns) {
		gone_end(&s->was[1]);
		s->was[1] = s->was[0];
		s->was[0] = (struct gone){ 0 };
		s->hour_ns = now + HOUR_NS;
	}
	if (s->unsure && now >= s->again_ns) {
		for (k = 0; k < 2; k++)
			for (i = 0; i < s->was[k].n; i++)
				s->blind |= !gone_add(&s->gone, &s->was[k].key[i]);
		s->unsure = false; /* until another removal says so */
		s->again_ns = now + AGAIN_NS + (s->was[0].n + s->was[1].n) * NS_PER_MS;
	}
	pthread_mutex_unlock(&s->lock);
}

/* Once for each present key, or until the store refuses. */
static void remove_gone(struct tier_store *s)
{
	gpc_key keys[GPC_REMOTE_BATCH];
	int32_t results[GPC_REMOTE_BATCH];
	uint32_t n = take_gone(s, keys), i, done;

	do {
		done = n ? remote_remove(s->remote, LANES - 1, keys, n, results, 0) : 0;
		pthread_mutex_lock(&s->lock);
		for (i = 0; i < n; i++)
			settle_removed(s, &keys[i], results[i]);
		pthread_mutex_unlock(&s->lock);
		if (n && !done && results[0] == -EACCES)
			tell_refusal(s);
		n = done ? take_gone(s, keys) : 0;
	} while (n);
}

/* ---- the thread ---- */

static void show_own(struct tier_store *s)
{
	struct gpc_remote_counter c[SHM_OWN];
	struct shm_own *own = seg_board(&s->c->seg)->own;
	uint32_t n = remote_counters(s->remote, c, SHM_OWN), i;

	for (i = 0; i < n; i++) {
		store_relaxed(&own[i].value, c[i].value);
		if (!own[i].name[0] && c[i].name)
			memcpy(own[i].name, c[i].name, strnlen(c[i].name, sizeof(own[i].name) - 1));
	}
}

static void show(struct tier_store *s)
{
	static const uint32_t state[] = { [REMOTE_UP] = GPC_TIER_UP,
					  [REMOTE_DOWN] = GPC_TIER_DOWN,
					  [REMOTE_OFF] = GPC_TIER_OFF };
	struct remote_state st;
	bool blind;

	pthread_mutex_lock(&s->lock);
	blind = s->blind;
	pthread_mutex_unlock(&s->lock);
	remote_state(s->remote, &st);
	store_relaxed(&s->shown->state, blind ? GPC_TIER_OFF : state[st.state]);
	store_relaxed(&s->shown->count[TIER_FULL], st.full);
	store_relaxed(&s->shown->count[TIER_DOWN], st.down);
	store_relaxed(&s->shown->count[TIER_ASKED], st.asked);
	store_relaxed(&s->shown->count[TIER_THERE], st.there);
	show_own(s);
}

static uint64_t store_step(struct worker *w)
{
	struct tier_store *s = w->arg;

	if (worker_stops(w))
		return NEVER;
	s->hurry = false;
	worker_unlock(w);
	if (clock_ns() >= s->tick_ns) {
		remote_tick(s->remote);
		s->tick_ns = clock_ns() + TICK_NS;
	}
	store_lanes_look(s);
	show(s);
	pass_hour(s);
	if (load_relaxed(&s->shown->state) == GPC_TIER_UP)
		remove_gone(s);
	worker_lock(w);
	return s->hurry ? 0 : clock_ns() + TICK_NS;
}

static const struct worker_kind store_kind = { .name = "gpc-tiers-tick",
					       .what = "for a store",
					       .step = store_step };

/* The store's thread stores its findings in the board.  So it ends before another steward may have
 * its own numbers there. */
void tier_remote_stop(struct tier_store *s)
{
	remote_stop(s->remote);
	worker_stop(&s->worker);
}

void tier_remote_close(struct tier_store *s)
{
	tier_remote_stop(s);
	store_lanes_look(s);
	if (s->memory && !s->lost)
		remote_memory(s->remote, s->memory, s->memory_bytes, false);
	if (!remote_close(s->remote)) {
		store_lanes_leave(s);
		/* its memory stays, and so does the thread's log, which belongs to our peer */
		return;
	}
	gone_end(&s->gone);
	gone_end(&s->was[0]);
	gone_end(&s->was[1]);
	worker_close(&s->worker);
	pthread_cond_destroy(&s->change);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* ---- open ---- */

static int open_remote(struct gpc_tiers *t, uint32_t ram, struct remote **ret)
{
	const struct gpc_tiers_options *opt = &t->opt;
	const struct shm_pool *p = seg_pool(&t->c->seg, ram);
	struct remote_options o = {
		.spec = opt->remote,
		.tag = opt->remote_tag,
		.image_bytes = p->block_bytes,
		.lanes = LANES,
		.deadline_ms = opt->remote_ms,
		/* a steward that has failed to begin had this life, too, and has put nothing */
		.life = load_relaxed(&seg_board(&t->c->seg)->life),
		.node = key_checksum(t->c->seg.header.id, sizeof(t->c->seg.header.id)) | 1,
		.unsure_ns = &seg_board(&t->c->seg)->unsure,
		.log = t->c->log.call,
		.log_arg = t->c->log.arg,
	};

	memcpy(o.fingerprint, p->fingerprint, sizeof(o.fingerprint));
	return remote_open(&o, ret);
}

static void tell_memory(struct gpc_tiers *t, uint32_t ram, struct tier_store *s)
{
	void *base;
	uint64_t bytes;

	if (gpc_pool_map(t->c, (int)ram, 0, &base, &bytes) < 0)
		return;
	s->memory = base;
	s->memory_bytes = bytes;
	remote_memory(s->remote, base, bytes, true);
}

int tier_remote(struct gpc_tiers *t, uint32_t ram, struct tier_store **ret)
{
	struct tier_store *s = calloc(1, sizeof(*s));
	int err = s ? open_remote(t, ram, &s->remote) : err_set(ENOMEM, "no memory for a tier");

	if (err < 0) {
		free(s);
		return err;
	}
	s->c = t->c;
	s->shown = &seg_board(&t->c->seg)->tier[BOARD_REMOTE];
	memset(seg_board(&t->c->seg)->own, 0, sizeof(seg_board(&t->c->seg)->own));
	s->image_bytes = seg_pool(&t->c->seg, ram)->block_bytes;
	s->deadline_ns = (t->opt.remote_ms ? t->opt.remote_ms : REMOTE_DEADLINE_MS) * NS_PER_MS;
	s->lanes = ALL_LANES;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->change, NULL);
	worker_open(&s->worker, &store_kind, s);
	tell_memory(t, ram, s);
	*ret = s;
	show(s);
	err = worker_start(&s->worker, 1);
	return MIN(err, 0);
}

uint32_t tier_remote_blocks(const struct gpc_tiers *t, uint32_t ram)
{
	struct shm_pool p;
	uint32_t blocks = seg_peek_pool(&t->c->seg, ram, &p) ? p.blocks : 0;

	return t->opt.remote_blocks ? t->opt.remote_blocks
				    : MIN(MAX(4 * blocks, BLOCKS_LEAST), 1u << 24);
}
