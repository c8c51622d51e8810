/* SPDX-License-Identifier: Apache-2.0 */
/* What outsiders see: information, statistics, mirrors, walks, the changes feed.
 * Tests: lib/look/walk.c lib/index/reader/events.c lib/look/stats.c lib/look/inspect.c */
#include "config.h"

#include "t/lib/made.h"

#include <pthread.h>

#include "gpc_look.h"

/* ---- information and statistics ---- */

static void test_info(struct made *m)
{
	struct gpc_info info = { .size = sizeof(info) };
	struct {
		struct gpc_info info;
		uint64_t guard;
	} small;

	is_int(gpc_info_get(&m->c, &info), 0, "information");
	is_int(info.max_blocks, MADE_BLOCKS, "blocks of the segment");
	is_int(info.pools, 2, "pools present");
	is_int(info.peers, 1, "peers present");
	is_int(info.peer, MADE_PEER, "the own seat");
	is_int(info.writer_pid, 0, "no writer holds the seat, whatever the segment says");
	is_str(info.hash, KEY_HASH_NAME, "name of the hash function");
	ok(info.bytes == m->c.seg.at.index_bytes + m->c.seg.at.control_bytes,
	   "bytes of the segments");

	memset(&small, 0xaa, sizeof(small));
	small.info.size = offsetof(struct gpc_info, max_blocks);
	is_int(gpc_info_get(&m->c, &small.info), 0, "a caller built with an older header");
	is_int(small.info.block_tokens, 16, "gets what it has room for");
	is_int(small.info.max_blocks, 0xaaaaaaaa, "and nothing beyond");
	is_int(small.info.size, offsetof(struct gpc_info, max_blocks), "its size stays");
	small.info.size = 4;
	is_int(gpc_info_get(&m->c, &small.info), -EINVAL, "a size without room");
	is_int(gpc_info_get(&m->c, NULL), -EINVAL, "no struct at all");
	is_int(gpc_info_get(NULL, &info), -EINVAL, "no handle");
}

static void test_stats(struct made *m)
{
	struct gpc_stats st = { .size = sizeof(st) }, sum = { .size = sizeof(sum) };
	struct shm_seat *seat = seg_seat(&m->c.seg, MADE_PEER);

	seat->lookups = 10;
	seat->hit_vram = 6;
	seat->hit_ram = 1;
	seat->miss = 3;
	seat->refs = 2;
	made_tally(m, MADE_PEER)->published = 5;
	made_tally(m, MADE_PEER)->reserved = 4;
	made_state(m)->past.lookups = 100;
	made_state(m)->past.ring_full = 9;
	made_state(m)->relocated = 3;
	epoch_enter(&m->c.seg, MADE_PEER, 5);
	made_count(m);

	is_int(gpc_stats_get(&m->c, MADE_PEER, &st), 0, "statistics of a peer");
	ok(st.lookups == 10 && st.hit_vram == 6 && st.hit_ram == 1 && st.miss == 3, "its lookups");
	ok(st.published == 5 && st.reserved == 4 && st.refs == 2, "what the writer counted, "
								  "what it holds");
	is_int(st.sections, 1, "its open section");
	ok(st.oldest_section_ns > 0 && st.oldest_section_ns < 60ull * 1000000000, "and its age");
	is_str(st.label, "made", "its label");
	is_int(st.pid, getpid(), "its process");
	is_int(st.alive, 1, "alive, as we are");

	is_int(gpc_stats_get(&m->c, -1, &sum), 0, "statistics of all");
	is_int(sum.lookups, 110, "the departed included");
	is_int(sum.ring_full, 9, "in the order of the struct");
	is_int(sum.relocated, 3, "moves of the table");
	is_int(sum.live, 4, "live blocks");
	is_int(sum.free_blocks, 32 + 16 - 4 - 2, "free blocks: neither reserved nor dying");
	is_int(sum.dying, 1, "dying blocks");
	is_int(gpc_stats_get(&m->c, 0, &st), -ENOENT, "an empty seat");
	is_int(gpc_stats_get(&m->c, MADE_PEERS, &st), -EINVAL, "no such seat");
	epoch_leave(&m->c.seg, MADE_PEER, 5);
}

static void test_alive(struct made *m)
{
	struct gpc_stats st = { .size = sizeof(st) };
	struct gpc_info info = { .size = sizeof(info) };
	struct made look;
	int fd = segment_open_lock(&m->c.seg);

	seg_seat(&m->c.seg, 2)->state = SEAT_TAKEN;
	made_state(m)->writer_pid = 4711;
	made_look(&look, m);
	is_int(gpc_stats_get(&look.c, 2, &st), 0, "a peer, seen from a read-only handle");
	is_int(st.alive, 0, "that holds no lock is dead");
	is_int(gpc_info_get(&look.c, &info) ? -2 : info.peer, -1, "a looker has no seat");
	is_int(info.writer_pid, 0, "a writer without lock is none");

	lock_try(fd, LOCK_PEER(2));
	lock_try(fd, LOCK_WRITER);
	seg_seat(&m->c.seg, 2)->lookups = 77;
	is_int(gpc_stats_get(&look.c, 2, &st), 0, "again");
	is_int(st.alive, 1, "with the lock it lives");
	is_int(st.lookups, 77, "and the snapshot is read anew");
	is_int(gpc_info_get(&look.c, &info) ? -2 : info.writer_pid, 4711, "the writer, too");
	close(fd);
	made_look_end(&look);
	memset(seg_seat(&m->c.seg, 2), 0, sizeof(struct shm_seat));
}

static void test_mirrors(struct made *m)
{
	struct gpc_mirror mi = { .size = sizeof(mi) };
	struct gpc_info info = { .size = sizeof(info) };
	uint32_t i;

	for (i = 0; i < 3; i++) {
		struct shm_mirror *d = made_mirror(m, i);

		snprintf(d->device, sizeof(d->device), "dev%u", i);
		d->generation = 5 + i;
		d->flushed = i;
		d->state = i ? MIRROR_READY : MIRROR_RETIRED;
	}
	made_mirror(m, 2)->state = MIRROR_NONE;
	is_int(gpc_info_get(&m->c, &info) ? -1 : (int)info.mirrors, 1, "one live mirror");
	is_int(gpc_mirror_get(&m->c, 0, &mi), 0, "it comes first");
	is_str(mi.device, "dev1", "by its device");
	is_int(mi.retired, 0, "not retired");
	is_int(mi.changes, made_state(m)->changes, "changes of the table");
	is_int(gpc_mirror_get(&m->c, 1, &mi), 0, "then the retired one");
	is_int(mi.retired, 1, "marked");
	is_int(gpc_mirror_get(&m->c, 2, &mi), -ENOENT, "then none");
	is_int(gpc_mirror_get(&m->c, -1, &mi), -EINVAL, "and none before the first");
	memset(made_mirror(m, 0), 0, 3 * sizeof(struct shm_mirror));
}

/* ---- walks ---- */

static void test_walk(struct made *m)
{
	struct gpc_entry e[16];
	uint64_t cursor = 0, other = 0;

	*seg_cell(&m->c.seg, 3, 0) = 2;
	*seg_cell(&m->c.seg, 3, MADE_PEER) = 3;
	*seg_stamp(&m->c.seg, 3) = 55 << STAMP_BITS | 7;
	is_int(gpc_walk(&m->c, &cursor, e, 16), 4, "four blocks are live");
	ok(e[0].depth == 1 && e[1].depth == 1 && e[2].depth == 2 && e[3].depth == 3,
	   "parents first");
	ok(e[0].block == 3 && e[1].block == GPC_BLOCK(1, 1), "then by block");
	is_int(e[0].refs, 5, "references of all peers");
	is_int(e[0].stamp, 55, "recency");
	is_int(e[0].tag, 7, "tag");
	ok(key_same(&e[2].parent, &e[0].key), "a child names its parent's key");
	is_int(gpc_walk(&m->c, &cursor, e, 16), 0, "done");
	is_int(gpc_walk(&m->c, &cursor, e, 16), -ESTALE, "a finished walk is over");

	cursor = 0;
	is_int(gpc_walk(&m->c, &cursor, e, 3), 3, "in parts");
	is_int(gpc_walk(&m->c, &other, e, 1), 1, "another walk begins");
	is_int(gpc_walk(&m->c, &cursor, e, 3), -ESTALE, "and ends the first");
	is_int(gpc_walk(&m->c, &other, e, 16), 3, "but goes on itself");
	cursor = other + 100;
	is_int(gpc_walk(&m->c, &cursor, e, 16), -ESTALE, "a cursor from nowhere");
	is_int(gpc_walk(&m->c, NULL, e, 16), -EINVAL, "no cursor");
	is_int(gpc_walk(&m->c, &other, e, 0), -EINVAL, "no room");
	*seg_cell(&m->c.seg, 3, 0) = *seg_cell(&m->c.seg, 3, MADE_PEER) = 0;
}

static void test_walk_pools(struct made *m)
{
	struct gpc_entry e[16];
	uint64_t cursor = 0;
	struct made look;

	made_look(&look, m);
	is_int(gpc_walk(&look.c, &cursor, e, 16), 4, "a read-only handle walks");
	made_state(m)->live_pools[0] &= ~2ull;
	is_int(gpc_walk(&look.c, &cursor, e, 16), 0, "its copy");
	cursor = 0;
	is_int(gpc_walk(&look.c, &cursor, e, 16), 3, "the blocks of a dead pool are gone");
	made_state(m)->live_pools[0] |= 2;
	made_look_end(&look);
}

/* A key that hops between two blocks all the time is live all the time. */
struct hop {
	struct made *m;
	bool stop;
	uint64_t hops;
};

static void *hop_run(void *arg)
{
	struct hop *h = arg;
	struct made *m = h->m;
	uint32_t at = 20, to = 1, i;

	while (!load_relaxed(&h->stop)) {
		struct shm_record *from = made_record(m, at), *r = made_record(m, to);

		memcpy(r->key, from->key, sizeof(r->key));
		memcpy(r->parent, from->parent, sizeof(r->parent));
		r->depth = from->depth;
		r->source = at + 1;
		store_release(&r->word, WORD(LIVE, WORD_GEN(r->word) + 1));
		made_feed(m, GPC_MOVED, (gpc_block)to, (gpc_block)at, 99);
		store_release(&from->word, WORD(DYING, WORD_GEN(from->word)));
		store_release(&from->word, WORD(FREE, WORD_GEN(from->word) + 1));
		r->source = 0;
		i = at;
		at = to;
		to = i;
		store_relaxed(&h->hops, h->hops + 1);
		for (i = 0; i < 20000; i++)
			order_pause();
	}
	return NULL;
}

static void test_walk_moving(struct made *m)
{
	struct hop h = { .m = m };
	struct gpc_entry e[16];
	gpc_key key = made_key(99);
	uint32_t round, lost = 0, twice = 0;
	uint64_t cursor;
	pthread_t thread;
	int i, n, seen;

	made_publish(m, 20, 99, 0, 1);
	pthread_create(&thread, NULL, hop_run, &h);
	for (round = 0; round < 2000 || load_relaxed(&h.hops) < 200; round++) {
		cursor = 0;
		n = gpc_walk(&m->c, &cursor, e, 16);
		for (seen = i = 0; i < n; i++)
			seen += key_same(&e[i].key, &key);
		lost += seen == 0;
		twice += seen > 1;
	}
	store_relaxed(&h.stop, true);
	pthread_join(thread, NULL);
	is_int(lost, 0, "a key that moves from block to block is in every walk");
	is_int(twice, 0, "once");
}

/* ---- the feed ---- */

static void test_changes(struct made *m)
{
	uint64_t cursor = 0, kept = m->c.seg.header.geometry.changes, i;
	struct gpc_event ch[8];
	struct shm_state *st = made_state(m);

	memset(made_change(m, 0), 0, kept * sizeof(struct shm_change));
	st->events_head = 0;
	is_int(gpc_event_read(&m->c, &cursor, ch, 8), 0, "nothing has changed yet");
	is_int(cursor, 1, "and the first change will be number 1");
	for (i = 0; i < 5; i++)
		made_feed(m, GPC_STORED, (gpc_block)i, GPC_NONE, i + 1);
	is_int(gpc_event_read(&m->c, &cursor, ch, 3), 3, "three of five");
	ok(ch[0].seq == 1 && ch[2].seq == 3 && ch[2].block == 2, "in order");
	is_int(gpc_event_read(&m->c, &cursor, ch, 8), 2, "the others");
	is_int(gpc_event_read(&m->c, &cursor, ch, 8), 0, "and no more");
	cursor = UINT64_MAX;
	is_int(gpc_event_read(&m->c, &cursor, ch, 8), 0, "from now on");
	made_feed(m, GPC_REMOVED, 2, GPC_NONE, 3);
	is_int(gpc_event_read(&m->c, &cursor, ch, 8), 1, "only what comes later");
	ok(ch[0].what == GPC_REMOVED && ch[0].seq == 6, "the sixth");
	is_int(gpc_event_read(&m->c, NULL, ch, 8), -EINVAL, "no cursor");
}

static void test_changes_lost(struct made *m)
{
	uint64_t cursor = 2, kept = m->c.seg.header.geometry.changes, i;
	struct shm_state *st = made_state(m);
	struct gpc_event ch[8];

	for (i = 0; i < kept; i++)
		made_feed(m, GPC_STORED, 1, GPC_NONE, i + 1);
	is_int(gpc_event_read(&m->c, &cursor, ch, 8), -ESTALE, "too late");
	is_int(cursor, st->events_head + 1, "the new cursor is the present");
	is_int(gpc_event_read(&m->c, &cursor, ch, 8), 0, "and works");
	cursor = 0;
	is_int(gpc_event_read(&m->c, &cursor, ch, 1), 1, "the oldest kept");
	is_int(ch[0].seq, st->events_head - kept + 1, "is the first of the ring");

	made_change(m, st->events_head)->seq = 0; /* the writer is filling this place */
	cursor = 0;
	is_int(gpc_event_read(&m->c, &cursor, ch, 1), 1, "while the oldest is overwritten");
	is_int(ch[0].seq, st->events_head - kept + 2, "the next one is the oldest");
	cursor = st->events_head - kept + 1;
	is_int(gpc_event_read(&m->c, &cursor, ch, 1), -ESTALE, "who wants that one is late");

	st->events_floor = st->events_head - 2;
	cursor = st->events_head - 3;
	is_int(gpc_event_read(&m->c, &cursor, ch, 8), -ESTALE, "below the floor of a successor");
	cursor = 0;
	is_int(gpc_event_read(&m->c, &cursor, ch, 8), 2, "the floor bounds the oldest");
	cursor = st->events_head + 50;
	is_int(gpc_event_read(&m->c, &cursor, ch, 8), -ESTALE, "a cursor of the future");
	st->events_floor = 0;
}

static int body(void)
{
	struct made m;

	made_new(&m, "feed-walk", MADE_BLOCKS);
	made_add_pool(&m, 0, GPC_VRAM, 0, 0, 32);
	made_add_pool(&m, 1, GPC_RAM, 0, 32, 16);
	made_publish(&m, 3, 1, 0, 1);
	made_publish(&m, 7, 2, 1, 2);
	made_publish(&m, 5, 3, 2, 3);
	made_publish(&m, GPC_BLOCK(1, 1), 4, 0, 1);
	made_record(&m, 10)->word = WORD(RESERVED, 1);
	made_record(&m, 11)->word = WORD(DYING, 1);
	made_record(&m, 60)->word = WORD(LIVE, 1); /* outside of every pool */

	test_info(&m);
	test_stats(&m);
	test_alive(&m);
	test_mirrors(&m);
	test_walk(&m);
	test_walk_pools(&m);
	test_walk_moving(&m);
	test_changes(&m);
	test_changes_lost(&m);
	made_free(&m);
	return done_testing();
}

int main(void)
{
	scratch_make("t020");
	return tap_guard(50, body, scratch_remove);
}
