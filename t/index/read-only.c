/* SPDX-License-Identifier: Apache-2.0 */
/* A read-only handle.  What the front pages tell is of the present, and costs no copy; what needs
 * table or records works on a copy that the first such call makes, and a walk makes anew.  Whatever
 * becomes of the files meanwhile, there is an answer.
 * Tests: lib/index/door/attach.c lib/index/segment/snapshot.c lib/look/stats.c */
#include "t/lib/cache.h"
#include "t/lib/lag.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 65536 };

static gpc *c, *r;

static gpc *look(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	gpc *made = NULL;

	must(gpc_attach(cache_name, &opt, GPC_READONLY, &made));
	return made;
}

/* Bytes of this process's address space. */
static long space(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	long pages = 0;

	if (!f || fscanf(f, "%ld", &pages) != 1)
		bail("no /proc/self/statm");
	fclose(f);
	return pages * 4096;
}

static int walked(void)
{
	struct gpc_entry e[16];
	uint64_t cursor = 0;
	int n, sum = 0;

	while ((n = gpc_walk(r, &cursor, e, 16)) > 0)
		sum += n;
	return n < 0 ? n : sum;
}

static void test_present(void)
{
	struct gpc_pool p = { .size = sizeof(p) };
	struct gpc_stats st = { .size = sizeof(st) };
	struct gpc_event ch[8];
	uint64_t cursor = 0;
	long before = space();
	gpc_block b[4];
	gpc *other;

	r = look();
	is_int(info_of(r).peers, 1, "one peer");
	is_int(info_of(r).peer, -1, "who looks has no seat");
	other = cache_attach(0, 0);
	is_int(info_of(r).peers, 2, "one more comes");
	is_int(stats_of(r, 1).alive, 1, "and is alive");
	must(gpc_close(other));
	must(gpc_writer_serve(c, 50));
	is_int(gpc_stats_get(r, 1, &st), -ENOENT, "and leaves");
	is_int(stats_of(r, -1).live, 0, "no live block");
	chain_hold(c, 0, 1, 3, b);
	is_int(stats_of(r, -1).live, 3, "three");
	is_int(stats_of(r, 0).refs, 3, "held by the peer");
	is_int(gpc_pool_available(r, 0), gpc_pool_available(c, 0),
	       "as many are available as others find");
	is_int(gpc_pool_get(r, 0, &p), 0, "the pool");
	is_int(p.blocks, BLOCKS, "has its blocks");
	is_int(gpc_event_read(r, &cursor, ch, 8), 3, "three changes");
	chain_make(c, 0, 50, 1, NULL);
	is_int(gpc_event_read(r, &cursor, ch, 8), 1, "and the next one");
	ok(key_is(ch[0].key, key_of(c, 50)), "with its key");
	is_int(mirror_lag(r), 0, "no mirror lags");
	ok(space() - before < (long)info_of(c).bytes / 2, "no copy was made: %ld of %ld bytes",
	   space() - before, (long)info_of(c).bytes);
	must(gpc_release(c, b, 3));
}

static void test_copy(void)
{
	long before = space();

	is_int(find(r, 1), 0, "a lookup finds a key");
	ok(space() - before >= (long)info_of(c).bytes, "by a copy");
	chain_make(c, 0, 100, 2, NULL);
	is_int(find(r, 100), GPC_NONE, "it is of that moment");
	is_int(stats_of(r, -1).live, 6, "statistics are of this one");
	is_int(find(r, 100), GPC_NONE, "and make no new copy");
	is_int(walked(), 6, "a walk makes one");
	ok(find(r, 100) >= 0, "and lookups see it");
	is_int(gpc_check(r, NULL, NULL), 0, "check: sound");
	ok(space() - before < 2 * (long)info_of(c).bytes, "one copy is kept");
	must(gpc_close(r));
}

static void *walk_and_find(void *arg)
{
	struct gpc_entry e;
	int i, bad = 0;

	for (i = 0; i < 20; i++) {
		uint64_t cursor = 0;

		bad += find(r, 1) < 0;
		if (i % 5 == 0)
			bad += gpc_walk(r, &cursor, &e, 1) != 1;
	}
	*(int *)arg = bad;
	return NULL;
}

/* Their first calls come together. */
static void test_threads(void)
{
	pthread_t thread[4];
	int bad[4], i, sum = 0;

	r = look();
	for (i = 0; i < 4; i++)
		if (pthread_create(&thread[i], NULL, walk_and_find, &bad[i]))
			bail("no thread");
	for (i = 0; i < 4; i++) {
		pthread_join(thread[i], NULL);
		sum += bad[i];
	}
	is_int(sum, 0, "four threads on one handle");
	must(gpc_close(r));
}

static int forked(void)
{
	struct gpc_info info = { .size = sizeof(info) };
	gpc_key k = { { 1, 1 } };
	gpc_block b;
	int status = 0;
	pid_t pid = fork();

	if (!pid)
		_exit(gpc_info_get(r, &info) != -ECHILD ||
		      gpc_lookup(r, 0, &k, 1, &b, 0) != -ECHILD || gpc_close(r));
	while (waitpid(pid, &status, 0) < 0)
		;
	return status;
}

static void file(char *path, size_t room, const char *suffix)
{
	snprintf(path, room, "%s/gpc.%s.%s", cache_dir, cache_name, suffix);
}

/* A call of each kind; the sum of those that did not end as an error or a number. */
static void all_calls(const char *when)
{
	struct gpc_stats st = { .size = sizeof(st) };
	struct gpc_info info = { .size = sizeof(info) };
	struct gpc_pool p = { .size = sizeof(p) };
	struct gpc_mirror m = { .size = sizeof(m) };
	struct gpc_event ch[4];
	gpc_key k = key_of(r, 1);
	uint64_t cursor = 0;
	gpc_block b;
	int i;

	is_int(gpc_info_get(r, &info), 0, "%s: information", when);
	ok(info.refused < 0 && info.why[0], "%s: nobody could attach: %s", when, info.why);
	gpc_stats_get(r, -1, &st);
	ok(st.live <= BLOCKS && st.dying <= BLOCKS && st.free_blocks <= BLOCKS,
	   "%s: no more blocks than there are", when);
	for (i = 0; i < 16; i++) {
		gpc_stats_get(r, i, &st);
		gpc_pool_get(r, i, &p);
		gpc_pool_available(r, i);
		gpc_mirror_get(r, i, &m);
	}
	gpc_event_read(r, &cursor, ch, 4);
	mirror_lag(r);
	gpc_lookup(r, 0, &k, 1, &b, 0);
	walked();
	gpc_check(r, NULL, NULL);
}

/* Bytes of chance over all but the header. */
static void scribble(const char *path, off_t from, off_t to)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	uint64_t x = 0x9e3779b97f4a7c15u;

	for (; from < to; from += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		if (pwrite(fd, &x, 8, from) != 8)
			bail("pwrite");
	}
	close(fd);
}

static void test_damage(void)
{
	char idx[200], ctl[200];
	struct gpc_info info;

	file(idx, sizeof(idx), "idx");
	file(ctl, sizeof(ctl), "ctl");
	must(gpc_close(c));
	r = look();
	is_int(info_of(r).refused, 0, "whole: a peer could attach");
	is_int(forked(), 0, "a forked child has no use of it");
	scribble(idx, 4096, 4096 + 65536);
	scribble(ctl, 4096, 4096 + 65536);
	if (truncate(ctl, 200000))
		bail("truncate");
	all_calls("scribbled over and cut");
	if (truncate(idx, 5000) || truncate(ctl, 0))
		bail("truncate");
	all_calls("cut off");
	is_int(stats_of(r, -1).live, 0, "nothing is left");
	must(gpc_unlink(cache_name, cache_dir));
	info = info_of(r);
	is_int(info.refused, -ENOENT, "removed: %s", info.why);
	c = cache_make(&(struct gpc_config){ .size = sizeof(struct gpc_config),
					     .vram_blocks = 64,
					     .dir = cache_dir },
		       NULL);
	must(gpc_close(r));
}

/* What is missing reads as zeros, and that must not pass for an empty cache.  Only what is of the
 * present, or what describes the damage, has an answer. */
static void are_refused(const char *when, bool feed)
{
	struct gpc_entry e;
	struct gpc_event ch[4];
	uint64_t cursor = 0, from = 0;
	uint32_t start[2] = { 0, 1 }, len;
	gpc_key k = key_of(r, 1);
	gpc_block b;

	refused(gpc_walk(r, &cursor, &e, 1), EBADMSG, "%s: a walk", when);
	is_int(cursor, 0, "%s: which has not begun", when);
	refused(gpc_lookup(r, 0, &k, 1, &b, 0), EBADMSG, "%s: a lookup", when);
	refused(gpc_match(r, 0, &k, start, 1, &len, &b, 0), EBADMSG, "%s: a match", when);
	if (feed)
		refused(gpc_event_read(r, &from, ch, 4), EBADMSG, "%s: changes", when);
	is_int(from, 0, "%s: from the same cursor", when);
	ok(gpc_check(r, NULL, NULL) > 0, "%s: check finds it", when);
	is_int(info_of(r).refused, -EBADMSG, "%s: nobody can attach", when);
}

/* A handle that was open before, one that has a copy, and one that comes after. */
static void test_cut(const char *suffix, off_t size, bool feed)
{
	struct gpc_config cfg = { .size = sizeof(cfg), .vram_blocks = 64, .dir = cache_dir };
	char path[200], when[64];
	gpc *with_copy;

	c = cache_make(&cfg, NULL);
	chain_make(c, 0, 1, 3, NULL);
	must(gpc_close(c));
	with_copy = look();
	is_int(find(with_copy, 1) >= 0, 1, "whole: found");
	r = look();
	file(path, sizeof(path), suffix);
	if (size < 0 ? unlink(path) : truncate(path, size))
		bail("truncate");
	snprintf(when, sizeof(when), "%s of %ld bytes", suffix, (long)size);
	if (size >= 0) {
		are_refused(when, feed);
		must(gpc_close(r));
		r = with_copy;
		ok(find(r, 1) >= 0, "%s: a copy of before is whole", when);
		are_refused(when, feed);
	} else {
		must(gpc_close(with_copy));
	}
	must(gpc_close(r));
	r = look();
	are_refused(when, feed);
	must(gpc_close(r));
	must(gpc_unlink(cache_name, cache_dir));
}

/* The name is another cache's by now. */
static void test_other(void)
{
	struct gpc_config cfg = { .size = sizeof(cfg), .vram_blocks = 64, .dir = cache_dir };
	struct gpc_info info;
	gpc *next;

	r = look();
	must(gpc_unlink(cache_name, cache_dir));
	must(gpc_create(cache_name, &cfg, NULL, 0, &next));
	info = info_of(r);
	is_int(info.refused, -ESTALE, "made anew: %s", info.why);
	is_int(info.writer_pid, getpid(), "what is told is of the old one");
	must(gpc_close(r));
	must(gpc_close(next));
	cache_end(c);
}

static int body(void)
{
	c = cache_new(BLOCKS, 0);
	test_present();
	test_copy();
	test_threads();
	test_damage();
	test_other();
	test_cut("idx", 4096, true);
	test_cut("idx", 70000, true);
	test_cut("ctl", 4096, false);
	test_cut("ctl", 0, false);
	test_cut("ctl", -1, false);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
