/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_check of what it cannot trust: damaged files, another cache's name, garbage; and of
 * a live cache, where things half done are no violations.
 * Tests: lib/look/check.c lib/index/segment/snapshot.c */
#include "config.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "t/lib/checked.h"

/* ---- files ---- */

static int file_of(const struct made *m, const char *suffix, int flags)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/gpc.%s.%s", scratch, m->c.seg.name, suffix);
	return open(path, flags);
}

static void test_files(void)
{
	struct made m;
	struct stat st;
	uint32_t bad = 7;
	int fd;

	made_new(&m, "check-files", MADE_BLOCKS);
	fill(&m);
	expect(&m, 0, "");

	fd = file_of(&m, "ctl", O_RDWR);
	if (pwrite(fd, &bad, sizeof(bad), offsetof(struct shm_header, quarantine_ms)) < 0)
		bail("cannot write");
	ok(check(&m) > 0, "a control segment with another header");
	tell();
	bad = m.c.seg.header.quarantine_ms;
	if (pwrite(fd, &bad, sizeof(bad), offsetof(struct shm_header, quarantine_ms)) < 0)
		bail("cannot write");
	expect(&m, 0, "");
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)m.c.seg.at.ring,
		      65536))
		bail("cannot punch a hole");
	expect(&m, 1, "control segment: sparse");
	fstat(fd, &st);
	if (ftruncate(fd, (off_t)m.c.seg.at.stamp))
		bail("cannot truncate");
	expect(&m, 1, "control segment: truncated");
	if (ftruncate(fd, st.st_size + 4096))
		bail("cannot extend");
	expect(&m, 1, "control segment: too long");
	close(fd);

	/* from here on nobody may touch the mappings */
	fd = file_of(&m, "idx", O_RDWR);
	if (ftruncate(fd, (off_t)m.c.seg.at.table + 100))
		bail("cannot truncate");
	ok(check(&m) > 1 && was_heard("index segment: truncated"), "a truncated index");
	if (ftruncate(fd, 10))
		bail("cannot truncate");
	ok(check(&m) == 1 && was_heard("segments: "), "a header cut off");
	tell();
	close(fd);
	segment_unlink(m.c.seg.name, scratch);
	is_int(check(&m), -ENOENT, "a name that is gone");
	made_free(&m);
}

static void test_other_cache(void)
{
	struct made a, b;

	made_new(&a, "check-other", MADE_BLOCKS);
	segment_unlink("check-other", scratch);
	made_new(&b, "check-other", MADE_BLOCKS);
	is_int(check(&a), -ESTALE, "a name that is another cache's by now");
	is_int(check(&b), 0, "which is fine itself");
	made_free(&b);
	made_free(&a);
}

/* ---- a live cache ---- */

struct flicker {
	struct made *m;
	bool stop;
};

/* A writer's work, slowed down: a record that dies and comes back, its entry after it.  In passes: this
 * thread may have no processor for as long as it likes. */
static void *flicker_run(void *arg)
{
	struct flicker *f = arg;
	struct shm_record *r = made_record(f->m, 7);
	struct timespec pause = { .tv_nsec = 700000 };
	struct shm_pool *pool = made_pool(f->m, 0);

	while (!load_relaxed(&f->stop)) {
		store_relaxed(&f->m->state->passes, f->m->state->passes + 1);
		order_stores();
		store_release(&r->word, WORD(DYING, WORD_GEN(r->word)));
		store_relaxed(&pool->live, pool->live - 1);
		store_relaxed(&pool->dying, pool->dying + 1);
		nanosleep(&pause, NULL);
		store_release(&r->word, WORD(LIVE, WORD_GEN(r->word) + 1));
		store_relaxed(&pool->live, pool->live + 1);
		store_relaxed(&pool->dying, pool->dying - 1);
		order_stores();
		store_relaxed(&f->m->state->passes, f->m->state->passes + 1);
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static void test_live(void)
{
	struct made made, *m = &made;
	struct flicker f = { .m = m };
	pthread_t thread;
	int fd, i, bad = 0;

	made_new(m, "check-live", MADE_BLOCKS);
	fill(m);
	made_pools_told(m);
	fd = segment_open_lock(&m->c.seg);
	lock_try(fd, LOCK_WRITER);
	BREAK(m, made_record(m, 3)->check, 0, 1, "its check word is wrong");
	pthread_create(&thread, NULL, flicker_run, &f);
	for (i = 0; i < 8; i++)
		bad += check(m);
	is_int(bad, 0, "what comes and goes on a live cache is no violation");
	made_record(m, 3)->check ^= 1;
	expect(m, 1, "record 3 (block 0x00000003): its check word is wrong");
	made_record(m, 3)->check ^= 1;
	store_relaxed(&f.stop, true);
	pthread_join(thread, NULL);
	BREAK(m, made_pool(m, 0)->live, 3, 1, "pool 0: ");
	BREAK(m, made_pool(m, 0)->lingering, 1, 1, "0 held, and it is said to have");
	close(fd);
	made_free(m);
}

/* ---- garbage ---- */

static void test_garbage(void)
{
	uint64_t seed = 1, i, from;
	struct made m;
	int round, n = 0;

	made_new(&m, "check-garbage", MADE_BLOCKS);
	for (round = 0; round < 40; round++) {
		from = round % 2 ? m.c.seg.at.state : m.c.seg.at.table;
		for (i = from / 8; i < m.c.seg.at.change / 8; i++)
			((uint64_t *)m.index)[i] = (seed = made_mix(seed + i));
		for (i = m.c.seg.at.shared / 8; i < m.c.seg.at.ring / 8; i++)
			((uint64_t *)m.c.seg.control)[i] = (seed = made_mix(seed + i));
		if (round % 3 == 0) { /* pools that make sense, full of nonsense */
			made_add_pool(&m, 0, GPC_VRAM, 0, 0, 32);
			made_add_pool(&m, 1, GPC_RAM, 1, 32, 16);
		}
		n += check(&m) > 0;
	}
	is_int(n, 40, "garbage gives lines, never a signal");
	ok(heard.lines <= 1000, "at most 1000 of them");
	made_free(&m);
}

/* All blocks are in the table, all broken: lines are capped, the count is not. */
static void test_many(void)
{
	uint32_t i, n = 3000;
	struct made m;

	made_new(&m, "check-many", 4 * n); /* no bucket overflows both ways */
	made_add_pool(&m, 0, GPC_VRAM, 0, 0, n);
	for (i = 0; i < n; i++)
		made_publish(&m, (gpc_block)i, i + 1, 0, 1);
	expect(&m, 0, "");
	for (i = 0; i < n; i++)
		made_record(&m, i)->check ^= 1;
	is_int(check(&m), n, "every violation counts");
	is_int(heard.lines, 1000, "a thousand lines are told");
	is_int(gpc_check(&m.c, NULL, NULL), n, "or none");
	made_free(&m);
}

static int body(void)
{
	test_files();
	test_other_cache();
	test_live();
	test_garbage();
	test_many();
	return done_testing();
}

int main(void)
{
	scratch_make("t025");
	return tap_guard(50, body, scratch_remove);
}
