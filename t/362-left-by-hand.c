/* SPDX-License-Identifier: Apache-2.0 */
/* What a dead writer may leave in table and records, each made by hand; what a takeover does
 * with it at once, and what not before its first grace period is over (rule T7).  And what dead
 * peers leave in their seats. */
#include "t/lib/cache.h"

#include <sys/wait.h>
#include <unistd.h>

#include "peer/handle.h"
#include "base/key.h"
#include "segment/lockfile.h"
#include "kernels/probe.h"
#include "peer/refs.h"

enum { BLOCKS = 64, BUCKETS = 32, FULL = 4 };

static gpc *c, *d;                       /* d: a reader, whose section holds grace periods back */
static int section;
static uint8_t *index_of_hand;
static uint64_t number;                  /* of keys */

static void begin(void)
{
	struct gpc_config cfg = cache_config(BLOCKS, 0);

	cfg.quarantine_ms = 3600 * 1000;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	if (info_of(c).buckets != BUCKETS)
		bail("the table has %u buckets", (unsigned)info_of(c).buckets);
}

static void end(const char *what)
{
	settle(c);
	clean(c, what);
	must(gpc_close(d));
	cache_end(c);
}

/* ---- the hand ---- */

static void writer_dies(void)
{
	must(gpc_writer_drop(c));
	must(segment_map_writer(&c->seg, &index_of_hand));
}

/* The next one, which has not served yet; held: a section is open all the while. */
static void writer_comes(bool held)
{
	segment_unmap_writer(&c->seg, index_of_hand);
	section = held ? must(gpc_section_enter(d)) : -1;
	must(gpc_writer_take(c, 0, 0));
}

static bool is_recovering(void)
{
	return load_acquire(&seg_state(&c->seg)->recovering);
}

static void recovers(void)
{
	int i;

	if (section >= 0)
		gpc_section_leave(d, section);
	for (i = 0; i < 200 && is_recovering(); i++)
		must(gpc_writer_serve(c, 10));
	ok(!is_recovering(), "the first grace period is over");
}

static struct probe_entry *entry(uint32_t slot)
{
	return SEG_AT(index_of_hand, c->seg.at.table, struct probe_entry, slot);
}

static struct shm_record *record(gpc_block b)
{
	return SEG_AT(index_of_hand, c->seg.at.record, struct shm_record, (uint32_t)b);
}

static const struct probe_entry *seen(uint32_t slot)
{
	return SEG_AT(c->seg.index, c->seg.at.table, const struct probe_entry, slot);
}

static bool has_flag(uint32_t bucket)
{
	return load_acquire(&seen(bucket * FULL)->w[2]) & PROBE_OVERFLOW;
}

static struct probe_key places(gpc_key k)
{
	return probe_prepare(k.w[0], k.w[1], BUCKETS);
}

/* A slot of this bucket that names the block; -1. */
static int slot_of(uint32_t bucket, gpc_block b)
{
	uint32_t i;

	for (i = bucket * FULL; i < (bucket + 1) * FULL; i++)
		if (load_acquire(&seen(i)->w[3]) == (uint32_t)b + 1)
			return (int)i;
	return -1;
}

static int entries_of(gpc_key k, gpc_block b)
{
	return (slot_of(places(k).first, b) >= 0) + (slot_of(places(k).second, b) >= 0);
}

/* ---- keys ---- */

static gpc_key key_in(uint32_t first, uint32_t second)
{
	struct probe_key p;
	gpc_key k;

	do {
		k = key_of(c, ++number);
		p = places(k);
	} while (p.first != first || p.second != second);
	return k;
}

static gpc_block publish(gpc_key k)
{
	gpc_block b;

	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 1000));
	if (must(gpc_publish(c, NULL, &k, &b, 1, NULL, 0, -1)) != 1)
		bail("a key has no place");
	must(gpc_release(c, &b, 1));
	return b;
}

static gpc_block look(gpc_key k)
{
	gpc_block b = -2;

	must(gpc_lookup(d, 0, &k, 1, &b, GPC_QUIET));
	return b;
}

/* ---- before the grace period ---- */

/* Its entry stands in the second bucket, and the store of the flag was the last but one. */
static void test_missing_flag(void)
{
	gpc_block b = GPC_NONE;
	gpc_key k = { { 0, 0 } };
	int i;

	begin();
	for (i = 0; i <= FULL; i++)
		b = publish(k = key_in(5, 9));
	ok(slot_of(9, b) >= 0 && has_flag(5), "a key in its second bucket");
	writer_dies();
	entry(5 * FULL)->w[2] &= ~PROBE_OVERFLOW;
	is_int(look(k), -1, "without the flag of the first it is not found");
	writer_comes(true);
	is_int(look(k), b, "by a new writer the flag is set at once");
	recovers();
	is_int(look(k), b, "and stays");
	end("a missing flag");
}

static void test_wrong_entry(void)
{
	struct probe_key p;
	gpc_block b;
	gpc_key k;

	begin();
	k = key_in(5, 9);
	b = publish(k);
	p = places(key_in(7, 11));
	writer_dies();
	*entry(7 * FULL + 1) = (struct probe_entry){ { p.w[0], p.w[1], p.w[2], (uint32_t)b + 1 } };
	*entry(8 * FULL + 2) = (struct probe_entry){ { 1, 2, 3u << 8, 0 } };
	*entry(8 * FULL + 3) = (struct probe_entry){ { 1, 2, 3u << 8, 40 } };
	writer_comes(true);
	is_int(slot_of(7, b), -1, "an entry with another key's bits goes at once");
	is_int(seen(8 * FULL + 3)->w[3], 0, "so does one that names a free block");
	is_int(seen(8 * FULL + 2)->w[0] | seen(8 * FULL + 3)->w[0], 0, "nor do its bits stay");
	is_int(look(k), b, "a good one stays");
	recovers();
	end("wrong entries");
}

/* Somebody may still be at an entry that the dead writer has emptied: which, nobody knows. */
static void test_empty_entries(void)
{
	gpc_ticket t;
	gpc_block b;
	gpc_key k;
	int err;

	begin();
	k = key_in(5, 9);
	writer_dies();
	writer_comes(true);
	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 1000));
	must(gpc_publish(c, NULL, &k, &b, 1,
			 GPC_OPTIONS(gpc_publish_options, .ticket = &t), 0, 0));
	err = gpc_ticket_wait(c, t, 20);
	is_int(err, -ETIMEDOUT, "a publish waits: no empty entry is used");
	is_int(look(k), -1, "it is not found");
	recovers();
	is_int(gpc_ticket_wait(c, t, 2000), 0, "until the grace period is over");
	is_int(look(k), b, "then it is");
	must(gpc_release(c, &b, 1));
	end("empty entries");
}

static void test_bad_record(void)
{
	gpc_block b, x;
	gpc_key k, l;

	begin();
	b = publish(k = key_in(5, 9));
	x = publish(l = key_in(6, 9));
	writer_dies();
	record(b)->check ^= 1;
	writer_comes(false);
	is_int(look(k), -1, "a block whose checksum is wrong is not found any more");
	is_int(look(l), x, "another is");
	recovers();
	end("a wrong checksum");
}

static void test_orphan(void)
{
	gpc_block b[3];

	begin();
	chain_make(c, 0, 1, 3, b);
	writer_dies();
	record(b[1])->word = WORD(FREE, WORD_GEN(record(b[1])->word) + 1);
	writer_comes(false);
	recovers();
	is_int(find(c, 1), b[0], "a parent");
	is_int(find(c, 2), -1, "its child is lost");
	is_int(find(c, 3), -1, "so the child of that goes as well");
	end("an orphan");
}

/* LIVE, with a key like another's, and naming that one as its source; below its own children. */
static void test_forged_move(void)
{
	struct shm_record *r;
	gpc_block b[3], x;

	begin();
	x = publish(key_in(5, 9));
	chain_make(c, 0, 1, 3, b);
	writer_dies();
	r = record(x);
	memcpy(r->key, record(b[0])->key, sizeof(r->key));
	memcpy(r->parent, record(b[2])->key, sizeof(r->parent));
	r->depth = 10;
	r->flags = 0;
	r->check = key_check(r->key, r->parent, r->depth, r->tag);
	r->source_word = record(b[0])->word;
	r->source = (uint32_t)b[0] + 1;
	writer_comes(false);
	recovers();
	is_int(find(c, 3), b[2], "a move to below its own children is none");
	is_int(gpc_drop(c, &b[1], 1, NULL, 0, -1), 1, "they have an end");
	is_int(find(c, 1), b[0], "and a beginning");
	is_int(find(c, 2), -1, "they go");
	end("a forged move");
}

static void test_forged_target(void)
{
	struct gpc_config cfg = cache_config(4, 4);
	struct gpc_move m;
	gpc_block b;
	int result = 0;

	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	chain_make(c, 0, 1, 1, &b);
	is_int(gpc_demote(c, 0, 1, &b, 1, &m, 0, 1000), 1, "a move");
	writer_dies();
	record(4)->depth++;
	writer_comes(false);
	recovers();
	must(gpc_commit(c, &m, 1, &result, 0, -1));
	is_int(result, -ESTALE, "is refused if its target is not at the source's depth");
	is_int(find(c, 1), b, "which stays");
	end("a forged target");
}

/* A child of it would be at the depth of a first block. */
static void test_deepest(void)
{
	gpc_block b, x, resident = GPC_NONE;
	struct shm_record *r;
	gpc_key up, k;

	begin();
	b = publish(up = key_in(5, 9));
	writer_dies();
	r = record(b);
	r->depth = UINT32_MAX;
	r->check = key_check(r->key, r->parent, r->depth, r->tag);
	writer_comes(false);
	recovers();
	k = key_in(6, 9);
	must(gpc_reserve(c, 0, 1, &x, NULL, 0, 1000));
	is_int(gpc_publish(c, &up, &k, &x, 1,
			   GPC_OPTIONS(gpc_publish_options, .resident = &resident), 0, -1), 0, "nothing is deeper");
	is_int(resident, -ENOENT, "than the deepest block");
	must(gpc_release(c, &x, 1));
	end("the deepest block");
}

/* The source of a forged move is of no pool; later it is of one. */
static void test_source_of_no_pool(void)
{
	enum { LATER = 32, AT = BLOCKS + 7 };
	struct gpc_config cfg = cache_config(BLOCKS, 0);
	struct gpc_pool p = pool_of(GPC_VRAM, LATER, 1);
	gpc_block b, x[LATER];
	gpc_key k[LATER];
	int pool, i;

	cfg.max_blocks = BLOCKS + LATER;
	cfg.max_pools = 4;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 1000));
	writer_dies();
	record(b)->source_word = record(AT)->word;
	record(b)->source = AT + 1;
	writer_comes(false);
	recovers();
	pool = must(gpc_pool_add(c, &p, -1));
	must(gpc_release(c, &b, 1));
	must(gpc_reserve(c, pool, LATER, x, NULL, 0, 1000));
	for (i = 0; i < LATER; i++)
		k[i] = key_of(c, 1000 + (uint64_t)i);
	is_int(gpc_publish(c, NULL, k, x, LATER, NULL, 0, -1), LATER,
	       "a pool where there was none");
	must(gpc_release(c, x, LATER));
	is_int(gpc_evict(c, pool, LATER, x, 0, 1000), LATER, "all of it can be evicted");
	end("a source of no pool");
}

/* Without entries, and made so that a table by a hash of their keys would be one long row. */
static void test_same_hash(void)
{
	enum { MANY = 1 << 18 };
	struct gpc_config cfg = cache_config(MANY, 0);
	struct shm_record *r;
	int i;

	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	writer_dies();
	for (i = 0; i < MANY; i++) {
		r = record(i);
		r->key[0] = ((uint64_t)i + 1) * 0x9e3779b97f4a7c15ull >> 1;
		r->key[1] = r->key[0] ^ 0x1234567;
		r->flags = REC_UNCHAINED;
		r->owner = SHM_NO_PEER;
		r->check = key_check(r->key, r->parent, r->depth, r->tag);
		r->word = WORD(LIVE, 1);
	}
	writer_comes(false);
	recovers();
	ok(stats_of(c, -1).live > MANY / 2, "a takeover of blocks without entries ends");
	end("keys of one hash");
}

/* A pool goes, with the place of a detached key in it, whose child is elsewhere. */
static void test_detached_of_a_dead_pool(void)
{
	struct gpc_config cfg = cache_config(2, 4);
	struct gpc_move m[2], victim;
	gpc_block b[2], x[2];
	struct shm_state *st;
	gpc_key k;
	int result = 0;

	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	chain_make(c, 0, 1, 2, b);
	is_int(gpc_demote(c, 0, 1, &b[1], 1, m, 0, 1000), 1, "a child goes to RAM");
	must(gpc_commit(c, m, 1, NULL, 0, -1));
	is_int(gpc_reserve(c, 0, 2, x, GPC_OPTIONS(gpc_reserve_options, .moves = m), 0,
			   1000), 2, "its parent is evicted");
	victim = m[0].to >= 0 ? m[0] : m[1];
	ok(victim.to >= 0, "and would go there, too");
	must(gpc_release(c, &x[victim.from == x[0]], 1));
	k = key_of(c, 2);
	is_int(gpc_acquire(c, 0, &k, 1, b, 0), 1, "the child is in use");
	is_int(gpc_promote(c, b, 1, 0, m, NULL, 0, 1000), 1, "and comes back");
	must(gpc_commit(c, m, 1, NULL, 0, -1));
	is_int(find(c, 2), m[0].to, "before its parent has gone");
	must(gpc_release(c, &m[0].to, 1));
	writer_dies();
	st = SEG_AT(index_of_hand, c->seg.at.state, struct shm_state, 0);
	st->live_pools[0] &= ~2ull;
	writer_comes(false);
	recovers();
	is_int(find(c, 2), -1, "it goes with the pool where its parent's key was");
	clean(c, "a detached move in a dead pool");
	must(gpc_commit(c, &victim, 1, &result, 0, -1));
	is_int(result, -ESTALE, "the parent does not come back");
	end("and its commit");
}

static void test_quarantine(void)
{
	gpc_block b;
	int i;

	begin();
	b = publish(key_in(5, 9));
	writer_dies();
	record(b)->owner = SHM_NO_PEER;
	record(b)->flags = REC_QUARANTINE;
	record(b)->word = WORD(DYING, WORD_GEN(record(b)->word));
	writer_comes(false);
	recovers();
	for (i = 0; i < 10; i++)
		must(gpc_writer_serve(c, 5));
	is_int(WORD_STATE(seg_record(&c->seg, (uint32_t)b)->word), DYING,
	       "what was in quarantine stays there");
	clean(c, "a quarantine");
	must(gpc_close(d));
	cache_end(c);
}

/* ---- after it ---- */

static void test_twice(void)
{
	gpc_block b;
	gpc_key k;
	int at;

	begin();
	b = publish(k = key_in(5, 9));
	at = slot_of(5, b);
	writer_dies();
	*entry(9 * FULL + 2) = *entry((uint32_t)at);
	entry(9 * FULL + 2)->w[2] &= ~PROBE_OVERFLOW;
	entry(5 * FULL)->w[2] |= PROBE_OVERFLOW;
	writer_comes(true);
	is_int(entries_of(k, b), 2, "a relocation half done: both entries stay at first");
	is_int(look(k), b, "the key is found");
	recovers();
	is_int(entries_of(k, b), 1, "then one goes");
	is_int(look(k), b, "the key is found");
	end("two entries");
}

/* A move's writer died while it renamed the two entries of a relocation. */
static void test_renamed_half(void)
{
	gpc_block from, to;
	gpc_key k;

	begin();
	from = publish(k = key_in(5, 9));
	must(gpc_reserve(c, 0, 1, &to, NULL, 0, 1000));
	writer_dies();
	*entry(9 * FULL + 2) = *entry((uint32_t)slot_of(5, from));
	entry(9 * FULL + 2)->w[2] &= ~PROBE_OVERFLOW;
	entry(9 * FULL + 2)->w[3] = (uint32_t)to + 1;
	entry(5 * FULL)->w[2] |= PROBE_OVERFLOW;
	*record(to) = *record(from);
	record(to)->source = (uint32_t)from + 1;
	record(to)->source_word = record(from)->word;
	*refs_cell(c, (uint32_t)to) = 0;         /* the commit had been sent */
	writer_comes(true);
	is_int(entries_of(k, to), 2, "a move half done: both entries name its target");
	is_int(look(k), to, "the key is found there");
	recovers();
	is_int(entries_of(k, to), 1, "one of them goes");
	is_int(look(k), to, "the key is found");
	end("a move of two entries");
}

static void test_spare_flag(void)
{
	begin();
	publish(key_in(5, 9));
	writer_dies();
	entry(5 * FULL)->w[2] |= PROBE_OVERFLOW;
	entry(7 * FULL)->w[2] |= PROBE_OVERFLOW;
	writer_comes(false);
	recovers();
	ok(!has_flag(5) && !has_flag(7), "flags without spilled entries go");
	end("spare flags");
}

static void test_no_entry(void)
{
	gpc_block b;
	gpc_key k;

	begin();
	b = publish(k = key_in(5, 9));
	writer_dies();
	*entry((uint32_t)slot_of(5, b)) = (struct probe_entry){ { 0, 0, 0, 0 } };
	writer_comes(false);
	recovers();
	is_int(look(k), b, "a block without an entry gets one");
	end("no entry");
}

/* ---- seats ---- */

/* Its lock is gone and its process is not: something of it may still write. */
static void test_reserved_of_the_dead(void)
{
	gpc_block b, ref;
	gpc_key k;

	begin();
	publish(k = key_in(5, 9));
	is_int(gpc_acquire(d, 0, &k, 1, &ref, 0), 1, "a reference");
	serve_begin(c);
	must(gpc_reserve(d, 0, 1, &b, NULL, 0, 1000));
	serve_end();
	lock_drop(d->seg.lock_fd, LOCK_PEER(d->peer));
	must(gpc_writer_serve(c, 50));
	must(gpc_writer_serve(c, 50));
	is_int(seg_seat(&c->seg, d->peer)->state, SEAT_FREE, "a seat whose lock went is reaped");
	is_int(*refs_cell(d, (uint32_t)ref), 0, "its reference has gone");
	is_int(WORD_STATE(seg_record(&c->seg, (uint32_t)b)->word), DYING,
	       "what it had reserved is not free yet");
	ok(seg_record(&c->seg, (uint32_t)b)->flags & REC_QUARANTINE, "but in quarantine");
	must(gpc_close(d));
	must(gpc_writer_serve(c, 50));
	cache_end(c);
}

/* In a process of its own: attach, say so, and wait for the end. */
static pid_t one_that_dies(void)
{
	int fd[2];
	pid_t pid;
	char x;

	if (pipe(fd) || (pid = fork()) < 0)
		bail("no process");
	if (!pid) {
		cache_attach(0, 0);
		x = write(fd[1], "", 1) != 1;
		for (;;)
			pause();
	}
	if (read(fd[0], &x, 1) != 1)
		bail("it did not attach");
	close(fd[0]);
	close(fd[1]);
	return pid;
}

/* The writer knows who sat there, and that this one is dead; now somebody else sits there. */
static void test_renewed_seat(void)
{
	struct shm_seat *s;
	gpc_block b = GPC_NONE;
	gpc_key k;
	gpc *e;
	pid_t pid;
	int i;

	begin();
	publish(k = key_in(5, 9));
	pid = one_that_dies();
	s = seg_seat(&c->seg, d->peer + 1);
	is_int(s->pid, pid, "another process has a seat");
	must(gpc_writer_serve(c, 50));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	store_release(&s->state, SEAT_FREE);
	e = cache_attach(0, 0);
	is_int(e->peer, d->peer + 1, "it dies, and we have it");
	is_int(gpc_acquire(e, 0, &k, 1, &b, 0), 1, "with a reference");
	for (i = 0; i < 5; i++)
		must(gpc_writer_serve(c, 25));
	is_int(s->state, SEAT_TAKEN, "nobody takes it away");
	is_int(*refs_cell(e, (uint32_t)b), 1, "nor the reference");
	must(gpc_close(e));
	must(gpc_writer_serve(c, 50));
	end("a renewed seat");
}

/* A child that lives on keeps nothing of its parent's. */
static void test_forked_writer(void)
{
	pid_t pid;

	begin();
	pid = fork();
	if (!pid)
		for (;;)
			pause();
	must(gpc_writer_drop(c));
	is_int(gpc_writer_take(d, GPC_STANDBY, 5000), 0, "a writer that forked gives its seat up");
	must(gpc_writer_drop(d));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	must(gpc_writer_take(c, 0, 0));
	end("a writer that forked");
}

static int body(void)
{
	test_missing_flag();
	test_wrong_entry();
	test_empty_entries();
	test_bad_record();
	test_orphan();
	test_forged_move();
	test_forged_target();
	test_deepest();
	test_source_of_no_pool();
	test_same_hash();
	test_detached_of_a_dead_pool();
	test_quarantine();
	test_twice();
	test_renamed_half();
	test_spare_flag();
	test_no_entry();
	test_reserved_of_the_dead();
	test_renewed_seat();
	test_forked_writer();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
